//! One text file a case, under `cases/`: the input, then what the crate makes of it. `BLESS=1` rewrites the expected part.
//!
//! In `syntax/` the expected part is what is rendered, in `format/` the formatted text.

use std::path::{Path, PathBuf};

use girih_dsl::source::Sources;

const MARK: &str = "==== expected\n";

fn cases(folder: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(folder);
    let mut files: Vec<_> =
        std::fs::read_dir(root).expect("a folder").map(|e| e.expect("a file").path()).collect();
    files.sort();
    files
}

/// Runs every case of a folder and shows all that differ.
fn check(folder: &str, make: impl Fn(&str) -> String) {
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = String::new();
    for path in cases(folder) {
        let text = std::fs::read_to_string(&path).expect("UTF-8");
        let (input, expected) = text.split_once(MARK).unwrap_or((&text, ""));
        let made = make(input);
        if bless {
            std::fs::write(&path, format!("{input}{MARK}{made}")).expect("a writable case");
        } else if made != expected {
            wrong += &format!("\n---- {}: expected\n{expected}\n---- made\n{made}\n", path.display());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn syntax() {
    check("syntax", |input| {
        let mut sources = Sources::default();
        let file = sources.add("case.tile", input);
        let (_, diagnostics) = girih_dsl::parse(input, file);
        assert!(!diagnostics.is_empty(), "no error in\n{input}");
        girih_dsl::render(&sources, &diagnostics, false)
    });
}

/// Every code of the syntax group is shown by a case, but for the one that would need 16 MiB.
#[test]
fn every_syntax_code_has_a_case() {
    let all: String = cases("syntax").iter().map(|p| std::fs::read_to_string(p).expect("UTF-8")).collect();
    for row in girih_dsl::codes::all().filter(|row| row.code.starts_with("E00") && row.code != "E0001") {
        assert!(all.contains(&format!("error[{}]", row.code)), "{} has no case", row.code);
    }
    let (_, diagnostics) = girih_dsl::parse(&" ".repeat(girih_dsl::MAX_BYTES + 1), 0);
    assert_eq!(diagnostics[0].code, "E0001");
}

#[test]
fn format() {
    check("format", |input| {
        let once = girih_dsl::format(input).unwrap_or_else(|d| panic!("{d:?}\n{input}"));
        assert_eq!(girih_dsl::format(&once).expect("a right text"), once);
        once
    });
}

#[test]
fn a_wrong_text_is_not_formatted() {
    let diagnostics = girih_dsl::format("op f( {").expect_err("wrong");
    assert_eq!(diagnostics[0].code, "E0005");
}
