//! Mistakes of people who come from elsewhere, and what they are told.
//!
//! A file under `cases/mistakes/` holds cases: a line `@ title`, a program, and what is reported of it in lines that start
//! with `> `: code and place, message, help, and whether the help can be pasted. A text of the help is pasted if, put in the
//! place of some words around the error, it leaves no error there. `BLESS=1` writes the reports anew.

use girih_compiler::pass::{check, module, propose};
use girih_dsl::diagnostic::{Diagnostic, Severity};
use girih_dsl::source::Sources;
use std::path::Path;

/// Places that are tried for one text.
const TRIES: usize = 60;

/// What `girih check` reports of a program.
fn reported(text: &str) -> (Sources, Vec<Diagnostic>) {
    let mut sources = Sources::default();
    let none = |_: &str| Err("there is no such file".to_string());
    let diags = match module::load("case.tile", text, &mut sources, &none) {
        Err(d) => d,
        Ok(m) => check::check(&m, &sources),
    };
    let diags = propose::propose(&sources, diags);
    (sources, diags)
}

fn errors(text: &str) -> Vec<Diagnostic> {
    let mut sources = Sources::default();
    let none = |_: &str| Err("there is no such file".to_string());
    let diags = match module::load("case.tile", text, &mut sources, &none) {
        Err(d) => d,
        Ok(m) => check::check(&m, &sources),
    };
    diags.into_iter().filter(|d| d.severity == Severity::Error).collect()
}

/// The texts of a help that could be pasted.
fn offered(help: &str) -> Vec<&str> {
    let quoted = help.split('`').skip(1).step_by(2);
    let plain = help.split_once("write ").map(|(_, rest)| rest.split([';', '`']).next().unwrap_or(rest));
    quoted.chain(plain).map(str::trim).filter(|t| !t.is_empty() && !t.contains('…')).collect()
}

/// Words and signs of a text, as byte ranges.
fn words(text: &str) -> Vec<(usize, usize)> {
    let mut out: Vec<(usize, usize)> = Vec::new();
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    for (at, c) in text.char_indices().filter(|(_, c)| !c.is_whitespace()) {
        match out.last_mut() {
            Some((start, end)) if *end == at && word(c) && text[*start..*end].chars().all(word) => {
                *end = at + c.len_utf8();
            }
            _ => out.push((at, at + c.len_utf8())),
        }
    }
    out
}

/// Runs of words around a place, brackets closed in them, the likeliest first.
fn places(text: &str, d: &Diagnostic) -> Vec<(usize, usize)> {
    let (start, end) = (d.span.start as usize, (d.span.end as usize).max(d.span.start as usize));
    let line = text[..start].rfind('\n').map_or(0, |n| n + 1);
    let line_end = text[end..].find('\n').map_or(text.len(), |n| end + n);
    let all: Vec<(usize, usize)> =
        words(text).into_iter().filter(|(a, b)| *a >= line && *b <= line_end).collect();
    let balanced = |a: usize, b: usize| {
        let count = |set: &str| text[a..b].chars().filter(|c| set.contains(*c)).count();
        count("([{") == count(")]}")
    };
    let mut out = vec![(start, end)];
    for (i, (a, _)) in all.iter().enumerate() {
        for (_, b) in &all[i..] {
            if *a <= start && *b >= end && balanced(*a, *b) && !out.contains(&(*a, *b)) {
                out.push((*a, *b));
            }
        }
    }
    // Statements whole, then what is close.
    let statement = |(a, b): &(usize, usize)| {
        let before = text[..*a].trim_end();
        let after = text[*b..].trim_start();
        let begins = before.ends_with(['{', '\n', ';']) || text[line..*a].trim().is_empty();
        !(begins && (after.starts_with(['}', '\n']) || *b == line_end))
    };
    out[1..].sort_by_key(|r| (statement(r), r.1 - r.0));
    out.truncate(TRIES);
    out
}

/// Does some text of the help, put in some place, leave no error there and fewer in all?
fn pastes(text: &str, d: &Diagnostic) -> bool {
    let Some(help) = &d.help else { return false };
    let before = errors(text).len();
    offered(help).into_iter().any(|new| {
        places(text, d).into_iter().any(|(a, b)| {
            let mended = [&text[..a], new, &text[b..]].concat();
            let rest = errors(&mended);
            let touches = |e: &Diagnostic| {
                (e.span.start as usize) < a + new.len().max(1)
                    && (e.span.end as usize).max(e.span.start as usize + 1) > a
            };
            rest.len() < before.max(1) && !rest.iter().any(touches)
        })
    })
}

/// The lines of a report, the errors of it, and those whose help can be pasted.
fn report(text: &str) -> (String, usize, usize) {
    let (sources, diags) = reported(text);
    let (mut lines, mut all, mut pasted) = (String::new(), 0, 0);
    for d in &diags {
        let (line, column) = sources.line_column(d.span);
        lines += &format!("> {} {line}:{column} {}\n", d.code, d.message);
        if let Some(help) = &d.help {
            lines += &format!(">     {help}\n");
        }
        if d.severity == Severity::Error {
            all += 1;
            let right = pastes(text, d);
            pasted += usize::from(right);
            lines += if right { ">     pasted: right\n" } else { ">     pasted: no\n" };
        }
    }
    if diags.is_empty() {
        lines += "> nothing\n";
    }
    (lines, all, pasted)
}

#[test]
fn mistakes_are_met_by_what_to_write() {
    let bless = std::env::var_os("BLESS").is_some();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/mistakes");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder of cases is in the repository")
        .map(|e| e.expect("a readable folder").path())
        .collect();
    files.sort();
    let (mut cases, mut all, mut pasted, mut wrong) = (0, 0, 0, String::new());
    for path in files {
        let text = std::fs::read_to_string(&path).expect("a readable file");
        let mut out = String::new();
        for case in text.trim_start_matches("@ ").split("\n@ ") {
            let (title, rest) = case.split_once('\n').expect("a title and a program");
            let program: String =
                rest.lines().filter(|l| !l.starts_with("> ")).map(|l| format!("{l}\n")).collect();
            let (lines, n, right) = report(&program);
            cases += 1;
            all += n;
            pasted += right;
            let one = format!("@ {title}\n{program}{lines}");
            if !text.contains(&one) {
                wrong += &one;
            }
            out += &one;
        }
        if bless {
            std::fs::write(&path, out).expect("a writable file");
        }
    }
    eprintln!("{cases} mistakes, {all} errors, {pasted} with help that can be pasted");
    assert!(bless || wrong.is_empty(), "{wrong}(BLESS=1 writes the reports anew)");
    assert!(cases >= 500, "only {cases} cases were found");
    assert!(pasted * 10 >= all * 6, "{pasted} of {all} errors have help that can be pasted");
}
