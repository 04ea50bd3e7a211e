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
