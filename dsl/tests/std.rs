//! The operator library: right, in its usual form, documented, and out of the way of the language's own words.

use std::collections::BTreeMap;

use girih_dsl::ast::Item;

/// Callables of the language: a library name like one of these would change what it means.
const BUILT_IN: &str = "sum prod max min mean any all argmax argmin logsumexp softmax cumsum cumprod cummax cummin argsort
    abs sign clamp cdiv sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh erf erfc
    pow fma copysign ldexp floor ceil trunc round isnan isinf isfinite tf32 bits frombits uniform normal randbits f64 f32 f16
    bf16 e4m3 e5m2 i64 i32 i16 i8 u8 i4 u4 bool";

fn item(item: &Item) -> Option<(&str, &[String])> {
    match item {
        Item::Op(op) => Some((&op.name.text, &op.docs)),
        Item::Fn(function) => Some((&function.name.text, &function.docs)),
        Item::Const(constant) => Some((&constant.name.text, &constant.docs)),
        _ => None,
    }
}

#[test]
fn is_right_documented_and_unambiguous() {
    let mut names: BTreeMap<String, &str> = BTreeMap::new();
    for module in girih_dsl::library_names() {
        let text = girih_dsl::library(module).expect("a module of the list");
        let mut sources = girih_dsl::source::Sources::default();
        let file = sources.add(format!("{module}.tile"), text);
        let (parsed, diagnostics) = girih_dsl::parse(text, file);
        assert!(diagnostics.is_empty(), "{}", girih_dsl::render(&sources, &diagnostics, false));
        for (name, docs) in parsed.items.iter().filter_map(item) {
            assert!(!docs.is_empty(), "{module}.{name} has no documentation");
            assert!(!BUILT_IN.split_whitespace().any(|b| b == name), "{module}.{name} hides the built-in");
            if let Some(other) = names.insert(name.to_string(), module) {
                panic!("{name} is in {other} and in {module}");
            }
        }
    }
    assert!(names.len() > 150, "only {} callables", names.len());
}

/// `BLESS=1` writes the library's files in their usual form.
#[test]
fn is_formatted() {
    for module in girih_dsl::library_names() {
        let text = girih_dsl::library(module).expect("a module of the list");
        let formatted = girih_dsl::format(text).expect("a right text");
        if std::env::var_os("BLESS").is_some() {
            let path = format!("{}/std/{module}.tile", env!("CARGO_MANIFEST_DIR"));
            std::fs::write(path, &formatted).expect("a writable file");
        } else {
            assert_eq!(formatted, text, "{module}.tile: run with BLESS=1");
        }
        for line in formatted.lines() {
            assert!(line.chars().count() <= 130, "{module}: {line}");
        }
    }
}

#[test]
fn knows_its_modules() {
    assert!(girih_dsl::library("nn").is_some_and(|t| t.contains("op rmsnorm")));
    assert!(girih_dsl::library("no_such_module").is_none());
    assert!(girih_dsl::library_names().is_sorted());
}
