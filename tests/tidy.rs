//! What holds for every file of the project: sizes, dependency directions, no hidden panics, nothing of one machine.

use std::fs;
use std::path::{Path, PathBuf};

const CRATES: [&str; 5] = ["dsl/src", "compiler/src", "runtime/src", "autotune/src", "src"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below a folder, with its path from the root.
fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if matches!(name.as_str(), "target" | ".git" | ".girih" | "__pycache__") {
            continue;
        }
        if path.is_dir() {
            files(&path, out);
        } else {
            out.push(path);
        }
    }
}

fn rust_files() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for c in CRATES {
        let mut found = Vec::new();
        files(&root().join(c), &mut found);
        for path in found.into_iter().filter(|p| p.extension().is_some_and(|e| e == "rs")) {
            let text = fs::read_to_string(&path).expect("a source file is text");
            all.push((relative(&path), text));
        }
    }
    all.sort();
    assert!(all.len() > 20, "the sources were not found");
    let tests: Vec<String> = all.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    all.retain(|(path, _)| !tests.contains(path));
    all
}

/// Files that a file declares as modules of its tests.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    let folder = path.rsplit_once('/').map_or("", |p| p.0);
    let declared = text.split("#[cfg(test)]\nmod ").skip(1).filter_map(|rest| rest.split_once(';'));
    declared.filter(|(name, _)| !name.contains('\n')).map(|(name, _)| format!("{folder}/{name}.rs")).collect()
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).expect("below the root").display().to_string()
}

/// The lines before the file's tests.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().take_while(|(_, l)| !l.starts_with("#[cfg(test)]")).map(|(i, l)| (i + 1, l))
}

fn fail_with(bad: Vec<String>) {
    assert!(bad.is_empty(), "\n{}", bad.join("\n"));
}

#[test]
fn files_stay_under_800_lines() {
    let long = |(path, text): (String, String)| {
        let n = text.lines().count();
        (n >= 800).then(|| format!("{path}: {n} lines"))
    };
    fail_with(rust_files().into_iter().filter_map(long).collect());
}

#[test]
fn every_file_says_what_it_is() {
    let silent =
        |(path, text): (String, String)| (!text.starts_with("//!")).then(|| format!("{path}: no head"));
    fail_with(rust_files().into_iter().filter_map(silent).collect());
}

/// Which crates a crate may name.
#[test]
fn dependencies_go_one_way() {
    let allowed: [(&str, &[&str]); 4] = [
        ("dsl", &[]),
        ("compiler", &["girih-dsl"]),
        ("runtime", &["girih-dsl", "girih-compiler"]),
        ("autotune", &["girih-dsl", "girih-compiler", "girih-runtime"]),
    ];
    let mut bad = Vec::new();
    for (name, may) in allowed {
        let manifest = fs::read_to_string(root().join(name).join("Cargo.toml")).expect("every crate has one");
        for line in manifest.lines().skip_while(|l| !l.starts_with("[dependencies]")) {
            let dependency = line.split(['.', ' ', '=']).next().unwrap_or("");
            if dependency.starts_with("girih-") && !may.contains(&dependency) {
                bad.push(format!("{name} depends on {dependency}"));
            }
        }
    }
    fail_with(bad);
}

/// The core is pure: no files, no clock, no environment, no driver.
#[test]
fn core_crates_do_no_io() {
    let words =
        ["std::fs", "std::env", "std::net", "std::process", "std::time", "cudarc", "libloading", "println!"];
    let mut bad = Vec::new();
    for (path, text) in rust_files() {
        if !path.starts_with("dsl/") && !path.starts_with("compiler/") {
            continue;
        }
        for (n, line) in code(&text) {
            for word in words.iter().filter(|w| line.contains(*w) && !line.trim_start().starts_with("//")) {
                bad.push(format!("{path}:{n}: {word}"));
            }
        }
    }
    fail_with(bad);
}

#[test]
fn only_the_run_time_knows_the_driver() {
    let knows = |(path, text): &(String, String)| text.contains("cudarc::") && !path.starts_with("runtime/");
    fail_with(rust_files().into_iter().filter(knows).map(|f| f.0).collect());
}

#[test]
fn nothing_panics_without_a_reason() {
    let mut bad = Vec::new();
    for (path, text) in rust_files() {
        for (n, line) in code(&text) {
            let line = line.trim_start();
            let bare =
                [".unwrap()", "todo!(", "unimplemented!(", "panic!()", "unreachable!()", ".expect(\"\")"];
            if !line.starts_with("//") && bare.iter().any(|w| line.contains(w)) {
                bad.push(format!("{path}:{n}: {line}"));
            }
        }
    }
    fail_with(bad);
}

/// Every diagnostic code that is made has a row with its long text.
#[test]
fn every_code_is_explained() {
    let mut bad = Vec::new();
    let mut seen = 0;
    for (path, text) in rust_files() {
        for (n, line) in code(&text) {
            for code in quoted_codes(line) {
                seen += 1;
                if girih_dsl::explain(code).is_none() {
                    bad.push(format!("{path}:{n}: {code}"));
                }
            }
        }
    }
    assert!(seen > 20, "the codes were not found");
    fail_with(bad);
}

/// `"E0123"` and `"W0012"` in a line.
fn quoted_codes(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').filter(|w| {
        w.len() == 5 && matches!(w.as_bytes()[0], b'E' | b'W') && w[1..].bytes().all(|b| b.is_ascii_digit())
    })
}

#[test]
fn nothing_is_of_one_machine() {
    // Spelt in two parts, so that this file does not hold them.
    let words: Vec<String> = [
        ("/wo", "rk/"),
        ("/ro", "ot/"),
        ("/ho", "me/"),
        ("crates.i", "o-"),
        ("pypi.o", "rg"),
        ("index-u", "rl"),
    ]
    .iter()
    .map(|(a, b)| format!("{a}{b}"))
    .collect();
    let mut all = Vec::new();
    files(&root(), &mut all);
    let mut bad = Vec::new();
    for path in all {
        let text_file = path.extension().is_none_or(|e| {
            matches!(
                e.to_str(),
                Some("rs" | "md" | "tile" | "toml" | "py" | "sh" | "json" | "txt" | "pest" | "yml")
            )
        });
        let Ok(text) = fs::read_to_string(&path) else { continue };
        if !text_file {
            continue;
        }
        for (n, line) in text.lines().enumerate() {
            for word in words.iter().filter(|w| line.contains(w.as_str())) {
                bad.push(format!("{}:{}: {word}", relative(&path), n + 1));
            }
        }
    }
    fail_with(bad);
}

/// Every code has a case that makes it: what the parser says in `dsl`, the rest in `compiler`.
#[test]
fn every_code_has_a_case() {
    let mut text = String::new();
    for folder in ["dsl/tests/cases/syntax", "compiler/tests/cases/diagnostics"] {
        let mut found = Vec::new();
        files(&root().join(folder), &mut found);
        found.iter().for_each(|p| text += &fs::read_to_string(p).expect("a case is text"));
    }
    // A file of 16 MiB is made by dsl/tests/cases.rs; E0599 reports a defect of the compiler.
    let codes = girih_dsl::codes::all().map(|r| r.code).filter(|c| !matches!(*c, "E0001" | "E0599"));
    fail_with(
        codes.filter(|c| !text.contains(&format!("[{c}]"))).map(|c| format!("{c} has no case")).collect(),
    );
}

fn pages() -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    for folder in ["docs", "examples", "tests/peers"] {
        files(&root().join(folder), &mut all);
    }
    all.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|p| root().join(p)));
    all.retain(|p| p.extension().is_some_and(|e| e == "md") && p.exists());
    assert!(all.len() > 8, "the pages were not found");
    all.into_iter().map(|p| (p.clone(), fs::read_to_string(p).expect("a page is text"))).collect()
}

/// The targets of a page's links, code left out.
fn links(text: &str) -> Vec<String> {
    let prose = text.split("```").step_by(2).flat_map(|part| part.split('`').step_by(2));
    let prose: String = prose.collect();
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_string()).collect()
}

/// The heading of a link's part after `#`, as mdBook names it.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter_map(|l| l.strip_prefix('#')).map(|l| l.trim_start_matches('#').trim());
    let keep = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    headings.map(|h| h.to_lowercase().replace(' ', "-").chars().filter(|&c| keep(c)).collect()).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut bad = Vec::new();
    for (path, text) in pages() {
        for link in links(&text).into_iter().filter(|l| !l.contains("://") && !l.starts_with("mailto:")) {
            let (file, part) = link.split_once('#').map_or((link.as_str(), None), |(f, p)| (f, Some(p)));
            let target = if file.is_empty() { path.clone() } else { path.with_file_name("").join(file) };
            let whole = target.exists()
                && part.is_none_or(|p| {
                    fs::read_to_string(&target).is_ok_and(|t| anchors(&t).iter().any(|a| a == p))
                });
            if !whole {
                bad.push(format!("{}: {link}", relative(&path)));
            }
        }
    }
    fail_with(bad);
}

/// The book's summary has every page once, and nothing else; its code is of kinds that tests read.
#[test]
fn the_book_is_whole() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).expect("the book has a summary");
    let mut listed = links(&summary);
    let mut there: Vec<String> = fs::read_dir(&docs)
        .expect("the book")
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|n| n.ends_with(".md") && n != "SUMMARY.md")
        .collect();
    listed.sort();
    there.sort();
    assert_eq!(listed, there);
    let mut bad = Vec::new();
    for (path, text) in pages() {
        for (n, line) in text.lines().enumerate().filter(|(_, l)| l.starts_with("```")) {
            // `tile` and `pest` are held by dsl/tests/docs.rs, `rust` by the facade's doc tests, `c` by the tuner's.
            if !["", "tile", "pest", "rust", "rust,no_run", "sh", "text", "c"].contains(&line[3..].trim()) {
                bad.push(format!("{}:{}: {line}", relative(&path), n + 1));
            }
        }
        if text.matches("\n```").count() % 2 != 0 {
            bad.push(format!("{}: a code block does not end", relative(&path)));
        }
    }
    fail_with(bad);
}
