//! `girih check`, `girih fmt`, `girih explain`.

use super::{Outcome, color};
use girih::{Error, Kernel};
use std::path::{Path, PathBuf};

pub fn check(files: &[PathBuf]) -> Outcome {
    let mut outcome = Outcome::Right;
    for file in files {
        match Kernel::load(file).and_then(|kernel| kernel.check(color())) {
            Ok(warnings) => eprint!("{warnings}"),
            Err(e) => {
                eprintln!("{e}");
                outcome = Outcome::Wrong;
            }
        }
    }
    outcome
}

/// Formats in place, or only tells what would change.
pub fn fmt(files: &[PathBuf], only_check: bool) -> Outcome {
    let mut outcome = Outcome::Right;
    for file in files {
        match format_file(file, only_check) {
            Ok(changed) if changed && only_check => {
                println!("{} is not formatted", file.display());
                outcome = Outcome::Wrong;
            }
            Ok(_) => (),
            Err(e) => {
                eprintln!("{e}");
                outcome = Outcome::Wrong;
            }
        }
    }
    outcome
}

/// Whether the text changes.
fn format_file(file: &Path, only_check: bool) -> girih::Result<bool> {
    let text = girih::kernel::read(file)?;
    let formatted = girih::format(&file.display().to_string(), &text)?;
    if formatted == text {
        return Ok(false);
    }
    if !only_check {
        girih_runtime::cache::write_atomically(file, formatted.as_bytes())
            .map_err(|e| Error::file(file, format!("cannot be written: {e}")))?;
    }
    Ok(true)
}

pub fn explain(asked: &str) -> Outcome {
    let code = &whole_code(asked);
    match girih_dsl::codes::find(code) {
        Some(row) => {
            super::print(&format!("{}: {}\n\n{}", row.code, row.title, row.text));
            Outcome::Right
        }
        None => {
            let near: Vec<&str> =
                girih_dsl::codes::all().map(|r| r.code).filter(|c| close(c, code)).collect();
            let hint =
                if near.is_empty() { String::new() } else { format!(": there is {}", near.join(", ")) };
            eprintln!("error: no code {code}{hint}");
            Outcome::Wrong
        }
    }
}

/// `E0010` for `10` and `e10`.
fn whole_code(asked: &str) -> String {
    let asked = asked.trim();
    let (letter, number) = match asked.chars().next() {
        Some(c @ ('e' | 'E' | 'w' | 'W')) => (c.to_ascii_uppercase(), &asked[1..]),
        _ => ('E', asked),
    };
    match number.parse::<u16>() {
        Ok(n) => format!("{letter}{n:04}"),
        Err(_) => asked.to_string(),
    }
}

/// Same group of codes.
fn close(code: &str, asked: &str) -> bool {
    asked.len() >= 3
        && code.get(..3).is_some_and(|c| asked.get(..3).is_some_and(|a| a.eq_ignore_ascii_case(c)))
}
