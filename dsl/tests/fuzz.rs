//! Random texts: nothing panics, nothing takes long, and formatting keeps the meaning and is a fixed point.
//! `PROPTEST_CASES` sets how many.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use girih_dsl::ast::*;
use proptest::prelude::*;

/// No text here is longer than 300 KiB; a debug build gets more time.
const LIMIT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 30 } else { 2 });

fn corpus() -> &'static [String] {
    static TEXTS: OnceLock<Vec<String>> = OnceLock::new();
    TEXTS.get_or_init(|| {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/corpus/given");
        let mut files: Vec<_> =
            std::fs::read_dir(root).expect("a folder").map(|e| e.expect("a file").path()).collect();
        files.sort();
        files.iter().map(|p| std::fs::read_to_string(p).expect("UTF-8")).collect()
    })
}

/// Parses, renders and formats, within a second.
fn survive(text: &str) {
    let start = Instant::now();
    let mut sources = girih_dsl::source::Sources::default();
    let file = sources.add("fuzz.tile", text);
    let (_, diagnostics) = girih_dsl::parse(text, file);
    for diagnostic in &diagnostics {
        assert!(girih_dsl::explain(diagnostic.code).is_some(), "{} is not registered", diagnostic.code);
        assert!(diagnostic.help.is_some(), "{diagnostic:?} has no help");
        assert!(diagnostic.span.end as usize <= text.len(), "{diagnostic:?} is outside of the text");
    }
    let shown = girih_dsl::render(&sources, &diagnostics, false);
    assert_eq!(shown.is_empty(), diagnostics.is_empty());
    assert_eq!(girih_dsl::format(text).is_err(), !diagnostics.is_empty());
    assert!(start.elapsed() < LIMIT, "took {:?}\n{text}", start.elapsed());
}

/// The words of a text, comments left out, as far as white space and comments are concerned.
fn words(text: &str) -> Vec<&str> {
    let lines = text.lines().map(|l| l.split_once("//").map_or(l, |(code, _)| code));
    lines.flat_map(str::split_whitespace).collect()
}

fn comments(text: &str) -> Vec<&str> {
    text.lines().filter_map(|l| l.find("//").map(|i| l[i..].trim_end())).collect()
}

/// The tree as text, without the places of its parts.
fn shape(text: &str) -> String {
    let (file, diagnostics) = girih_dsl::parse(text, 0);
    assert_eq!(diagnostics, [], "{text}");
    without_spans(&format!("{file:?}"))
}

fn without_spans(shown: &str) -> String {
    let mut out = String::new();
    let mut rest = shown;
    while let Some(at) = rest.find("Span {") {
        out += &rest[..at];
        rest = &rest[at..];
        rest = &rest[rest.find('}').expect("a span ends") + 1..];
    }
    out + rest
}

/// The text with other white space, and comments, between some of its words.
fn respaced(text: &str, gaps: &[(usize, u8)]) -> String {
    let mut out: Vec<String> = Vec::new();
    let words = words(text);
    for (i, word) in words.iter().enumerate() {
        let gap = match gaps.iter().find(|(at, _)| at % words.len() == i).map(|(_, what)| what % 6) {
            Some(0) => "\n",
            Some(1) => "\n\n\n",
            Some(2) => "  \t ",
            Some(3) => " // a word on it\n",
            Some(4) => "\n // a line on it\n",
            Some(_) => "\n\n/// documentation\n\n",
            None => " ",
        };
        out.push(format!("{gap}{word}"));
    }
    out.concat()
}

/// Formats with all that is promised of it.
fn check_format(text: &str) {
    let once = girih_dsl::format(text).expect("a right text");
    let twice = girih_dsl::format(&once).expect("a right text");
    assert_eq!(once, twice, "not a fixed point, of\n{text}");
    assert_eq!(words(&once).concat(), words(text).concat());
    assert_eq!(comments(&once), comments(text));
    assert_eq!(shape(&once), shape(text));
    assert!(!once.contains("\n\n\n") && !once.contains(" \n") && !once.starts_with('\n'));
}

fn edited(text: &str, edits: &[(usize, u8, char)]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for (at, what, with) in edits {
        let at = at % chars.len().max(1);
        match what % 3 {
            0 if !chars.is_empty() => drop(chars.remove(at)),
            1 => chars.insert(at.min(chars.len()), *with),
            _ if !chars.is_empty() => {
                let end = (at + 40).min(chars.len());
                let piece: Vec<char> = chars[at..end].to_vec();
                chars.splice(at..at, piece);
            }
            _ => {}
        }
    }
    chars.into_iter().collect()
}

fn name() -> impl Strategy<Value = Name> {
    "(x|y|k|sum|max|op|for|int|_a1|größe)".prop_map(|text| Name { text, span: Span::default() })
}

fn at(kind: ExprKind) -> Expr {
    Expr { kind, span: Span::default() }
}

fn expr() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![
        "(0|17|1_000|0x1f)".prop_map(|t| at(ExprKind::Int(t))),
        "(0\\.5|1e-5|2\\.5e\\+3)".prop_map(|t| at(ExprKind::Float(t))),
        any::<bool>().prop_map(|b| at(ExprKind::Bool(b))),
        Just(at(ExprKind::Inf)),
        Just(at(ExprKind::Pi)),
        name().prop_map(|name| at(ExprKind::Read { name, index: None })),
    ];
    leaf.prop_recursive(6, 60, 4, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        let read = (name(), prop::collection::vec(inner.clone(), 1..4))
            .prop_map(|(name, index)| at(ExprKind::Read { name, index: Some(index) }))
            .boxed();
        let range = (boxed.clone(), boxed.clone(), any::<bool>()).prop_map(|(lo, hi, closed)| Range {
            lo,
            hi,
            closed,
            span: Span::default(),
        });
        let binder = (name(), prop::option::of(range)).prop_map(|(name, range)| Binder { name, range });
        let arg = (prop::option::of(name()), inner.clone()).prop_map(|(name, value)| Arg { name, value });
        let one_way =
            prop::collection::vec(prop::sample::select(vec![BinOp::Lt, BinOp::Le, BinOp::Eq]), 2..4);
        prop_oneof![
            read.clone(),
            (prop::sample::select(BinOp::ALL.to_vec()), boxed.clone(), boxed.clone())
                .prop_map(|(op, a, b)| at(ExprKind::Binary(op, a, b))),
            (any::<bool>(), boxed.clone())
                .prop_map(|(neg, a)| at(ExprKind::Unary(if neg { UnOp::Neg } else { UnOp::Not }, a))),
            (boxed.clone(), boxed.clone(), boxed.clone()).prop_map(|(c, a, b)| at(ExprKind::If(c, a, b))),
            (prop::option::of(name()), name(), prop::collection::vec(arg, 0..3))
                .prop_map(|(lib, name, args)| at(ExprKind::Call { lib, name, args })),
            (name(), prop::collection::vec(binder, 1..3), prop::option::of(boxed.clone()), boxed.clone())
                .prop_map(|(name, binders, cond, body)| at(ExprKind::Fold { name, binders, cond, body })),
            (one_way, prop::collection::vec(inner, 4)).prop_map(|(ops, mut operands)| {
                operands.truncate(ops.len() + 1);
                at(ExprKind::Chain(operands, ops))
            }),
            (read, boxed)
                .prop_map(|(read, d)| at(ExprKind::Paren(Box::new(at(ExprKind::Else(Box::new(read), d)))))),
        ]
    })
}

/// The tree as text, without places and parentheses.
fn bare(expr: &Expr) -> String {
    let shown = without_spans(&format!("{expr:?}"));
    // `Paren(Expr { kind: K, span })` is written like `K`: cut both its ends.
    let (mut out, mut rest, mut cuts) = (String::new(), shown.as_str(), Vec::new());
    let mut depth = 0usize;
    const OPEN: &str = "Paren(Expr { kind: ";
    while let Some(c) = rest.chars().next() {
        if rest.starts_with(OPEN) {
            cuts.push(depth);
            depth += 2;
            rest = &rest[OPEN.len()..];
            continue;
        }
        match c {
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => depth -= 1,
            ',' if cuts.last().is_some_and(|cut| cut + 2 == depth) => {
                let end = rest.find(')').expect("the parenthesis ends");
                rest = &rest[end + 1..];
                depth = cuts.pop().expect("looked at above");
                continue;
            }
            _ => {}
        }
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        survive(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn characters(text in "(op f\\[)?(\\PC|[-(){}\\[\\]=+*/.,:<>!&|^0-9a-z\"\n ]){0,200}") {
        survive(&text);
    }

    #[test]
    fn edited_corpus(file in 0..96usize, edits in prop::collection::vec(any::<(usize, u8, char)>(), 1..6)) {
        survive(&edited(&corpus()[file], &edits));
    }

    #[test]
    fn respaced_corpus(file in 0..96usize, gaps in prop::collection::vec(any::<(usize, u8)>(), 0..12)) {
        check_format(&respaced(&corpus()[file], &gaps));
    }

    #[test]
    fn generated_expressions(expr in expr(), gaps in prop::collection::vec(any::<(usize, u8)>(), 0..4)) {
        let printed = girih_dsl::print_expr(&expr);
        let read = girih_dsl::parse_expr(&printed, 0).expect(&printed);
        prop_assert_eq!(bare(&read), bare(&expr), "{}", printed);
        let text = format!("op f[N](x: f32[N]) -> (y: f32[N]) {{ y[i in 0..N] = {printed} }} const a = {printed}");
        check_format(&respaced(&text, &gaps));
    }
}

/// Texts that would take long, or overflow, if anything backtracked or recursed without a limit.
#[test]
fn long_and_deep() {
    for piece in [
        "(",
        "[",
        "{",
        "-",
        "!",
        "a[",
        "f(",
        "sum[i in 0..",
        "if ",
        "if a then ",
        "2 ** ",
        "a + ",
        "a < ",
        "a,",
        "x = ",
        "op f",
        "op f() {",
        "op f() {}\n",
        "///\n",
        "//\n",
        "\"",
        "0x",
        "1.",
        "}",
        ")",
        "const a = (",
        "import \"",
        "\u{feff}",
        "\0",
        "tile f { block m = {",
        "x: f32[",
        "where ",
        "max[i where ",
        "a.",
        "(a else ",
        "y[i in ",
    ] {
        for (before, after) in [("", ""), ("op f(x: f32) { y = ", " }"), ("const a = ", "")] {
            let text = format!(
                "{before}{}{after}",
                piece.repeat(if cfg!(debug_assertions) { 2_000 } else { 20_000 })
            );
            let start = Instant::now();
            let (_, diagnostics) = girih_dsl::parse(&text, 0);
            drop(girih_dsl::format(&text));
            assert!(start.elapsed() < LIMIT, "{piece}: {:?}", start.elapsed());
            assert!(diagnostics.len() < 100_000);
        }
    }
}
