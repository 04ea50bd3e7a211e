//! The text that mends a wrong statement. What the author meant is guessed ([`girih_dsl::rewrite`]); a guess is shown only
//! if the program with it has no error there any more.

use super::{check, module};
use girih_dsl::ast::Span;
use girih_dsl::diagnostic::{Diagnostic, Severity};
use girih_dsl::rewrite::{self, Edit};
use girih_dsl::source::Sources;

/// Guesses that are made and tried for one text, at most, and how much text they may go through in all: each try checks
/// the whole program again, and each guess reads its words.
const GUESSES: usize = 40;
const TRIES: usize = 12;
const GUESSED: usize = 2 << 20;
const CHECKED: usize = 480 << 10;

/// Gives errors of the root file, which is the first source, help that can be pasted. Of several errors in a statement
/// that is written anew the first one is kept.
pub fn propose(sources: &Sources, diags: Vec<Diagnostic>) -> Vec<Diagnostic> {
    if sources.is_empty() {
        return diags;
    }
    let text = sources.get(0).text.as_str();
    let (mut guesses, tries) = (most(GUESSES, GUESSED, text), most(TRIES, CHECKED, text));
    let mut tried: Vec<(Edit, bool)> = Vec::new();
    let mut out = Vec::new();
    for d in diags {
        let may = d.severity == Severity::Error && d.span.file == 0 && guesses > 0;
        guesses -= usize::from(may);
        let guess = may.then(|| rewrite::guess(text, d.span.start as usize, &d.message)).flatten();
        let Some(edit) = guess else {
            out.push(d);
            continue;
        };
        match tried.iter().find(|(e, _)| *e == edit) {
            Some((_, true)) => {}
            None if tried.len() < tries && mends(sources, &edit) => {
                out.push(Diagnostic { help: Some(format!("write `{}`", edit.text)), ..d });
                tried.push((edit, true));
            }
            known => {
                if known.is_none() {
                    tried.push((edit, false));
                }
                out.push(d);
            }
        }
    }
    out
}

/// How often something that goes through a text may be done: at least once.
fn most(times: usize, bytes: usize, text: &str) -> usize {
    (bytes / text.len().max(1)).clamp(1, times)
}

/// Is there no error any more where the edit is made?
pub fn mends(sources: &Sources, edit: &Edit) -> bool {
    let root = sources.get(0);
    let place = Span { file: 0, start: edit.at.start as u32, end: (edit.at.start + edit.text.len()) as u32 };
    let errors = errors_of(&root.name, &edit.apply(&root.text), sources);
    !errors.iter().any(|d| touches(d.span, place) || d.more.iter().any(|(s, _)| touches(*s, place)))
}

fn touches(a: Span, b: Span) -> bool {
    a.file == b.file && a.start < b.end.max(b.start + 1) && b.start < a.end.max(a.start + 1)
}

/// All errors of a text in the place of the root file.
fn errors_of(name: &str, text: &str, sources: &Sources) -> Vec<Diagnostic> {
    let read = |path: &str| {
        let all = (0..sources.len()).map(|i| sources.get(i as u32));
        let found = all.into_iter().find(|s| s.name == path);
        found.map(|s| s.text.clone()).ok_or_else(|| "it was not read".to_string())
    };
    let mut fresh = Sources::default();
    let diags = match module::load(name, text, &mut fresh, &read) {
        Ok(m) => check::check(&m, &fresh),
        Err(d) => d,
    };
    diags.into_iter().filter(|d| d.severity == Severity::Error).collect()
}
