//! The whole corpus parses, prints stably, and fast.

use std::path::PathBuf;

fn corpus() -> Vec<(String, String)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/given");
    let mut files: Vec<_> = std::fs::read_dir(&root)
        .expect("the corpus stands beside the crate")
        .map(|e| e.expect("a readable folder").path())
        .filter(|p| p.extension().is_some_and(|e| e == "tile"))
        .collect();
    files.sort();
    assert!(files.len() >= 96, "the corpus has {} files only", files.len());
    files
        .into_iter()
        .map(|p| (p.display().to_string(), std::fs::read_to_string(&p).expect("a readable file")))
        .collect()
}

#[test]
fn parses() {
    for (name, text) in corpus() {
        let (file, diagnostics) = girih_dsl::parse(&text, 0);
        assert_eq!(diagnostics, [], "{name}");
        assert!(!file.items.is_empty(), "{name}");
    }
}

#[test]
fn nests_64_deep_on_a_small_stack() {
    let nest =
        |open: &str, close: &str, n: usize| format!("const a = {}1{}", open.repeat(n), close.repeat(n));
    let shapes = [
        ("(", ")"),
        ("-", ""),
        ("2 ** ", ""),
        ("f(", ")"),
        ("x[", "]"),
        ("if x then 1 else ", ""),
        ("sum[i in 0..", "](1)"),
    ];
    for (open, close) in shapes {
        for n in [60, 70, 5000] {
            let (_, diagnostics) = girih_dsl::parse(&nest(open, close, n), 0);
            let codes: Vec<_> = diagnostics.iter().map(|d| d.code).collect();
            assert_eq!(codes, if n < 64 { vec![] } else { vec!["E0011"] }, "{open} {n}");
        }
    }
}

/// The tree, without the places of its parts.
fn shape(text: &str) -> String {
    let (file, diagnostics) = girih_dsl::parse(text, 0);
    assert_eq!(diagnostics, [], "{text}");
    let mut out = String::new();
    let shown = format!("{file:?}");
    let mut rest = shown.as_str();
    while let Some(at) = rest.find("Span {") {
        out += &rest[..at];
        rest = &rest[at..];
        rest = &rest[rest.find('}').expect("a span ends") + 1..];
    }
    out + rest
}

#[test]
fn formats_to_a_fixed_point() {
    for (name, text) in corpus() {
        let once = girih_dsl::format(&text).expect("a right text");
        let twice = girih_dsl::format(&once).expect("a right text");
        assert_eq!(once, twice, "{name}");
        assert_eq!(shape(&text), shape(&once), "{name}");
        if let Some(long) = once.lines().find(|l| l.chars().count() > girih_dsl::WIDTH && !l.contains("//")) {
            panic!("{name}: {} wide\n{long}", long.chars().count());
        }
    }
}

/// A release build takes about 10 ms on a quiet machine; the limits leave room for a busy one and for a debug build.
#[test]
fn a_thousand_lines_parse_quickly() {
    let mut text = String::new();
    for (_, part) in corpus().iter().cycle() {
        text += part;
        if text.lines().count() >= 1000 {
            break;
        }
    }
    let best = (0..if cfg!(debug_assertions) { 2 } else { 20 })
        .map(|_| {
            let start = std::time::Instant::now();
            assert_eq!(girih_dsl::parse(&text, 0).1, []);
            start.elapsed()
        })
        .min();
    let limit = std::time::Duration::from_millis(if cfg!(debug_assertions) { 4000 } else { 60 });
    assert!(best.is_some_and(|b| b < limit), "{} lines took {best:?}", text.lines().count());
}
