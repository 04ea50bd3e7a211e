//! The parser and `diagnose.rs` agree on what is right: for each text, either both accept it or both refuse it.

use proptest::prelude::*;

use crate::{diagnose, scan, text_to_ast, token};

const WORDS: [&str; 60] = [
    "op", "fn", "const", "tile", "profile", "import", "for", "from", "at", "in", "inout", "unique", "where",
    "if", "then", "else", "true", "inf", "pi", "max", "min", "x", "y", "N", "sum", "f32", "nn", "0", "1",
    "2.5", "0x1f", "1e3", "\"a\"", "(", ")", "[", "]", "{", "}", ",", ":", "=", "==", "+=", "->", "..",
    "..=", "+", "-", "*", "**", "/", "%", "<", ">=", "!", "&&", "||", "|", ".",
];

/// Both verdicts of a text, where nesting and characters are fine.
fn verdicts(text: &str) -> Option<(bool, bool)> {
    let tokens = token::tokens(text);
    if !scan::scan(text, &tokens, 0).is_empty() {
        return None;
    }
    Some((text_to_ast::accepts(text), diagnose::check(text, &tokens, 0).is_empty()))
}

fn agree(text: &str) {
    if let Some((parser, reader)) = verdicts(text) {
        assert_eq!(parser, reader, "parser accepts: {parser}, reader accepts: {reader}\n{text}\n");
    }
}

fn corpus() -> &'static [String] {
    static TEXTS: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();
    TEXTS.get_or_init(read_corpus)
}

fn read_corpus() -> Vec<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/corpus/given");
    let mut files: Vec<_> =
        std::fs::read_dir(root).expect("the corpus").map(|e| e.expect("a file").path()).collect();
    files.sort();
    files.iter().map(|p| std::fs::read_to_string(p).expect("a text")).collect()
}

/// A text with a few words removed, doubled, exchanged or replaced.
fn mutated(text: &str, edits: &[(usize, u8, usize)]) -> String {
    let mut words: Vec<String> = token::tokens(text)
        .iter()
        .filter(|t| !t.is_comment())
        .map(|t| format!("{}{}", if t.first { "\n" } else { " " }, t.text(text)))
        .collect();
    for (at, what, with) in edits {
        if words.is_empty() {
            break;
        }
        let at = at % words.len();
        match what % 4 {
            0 => drop(words.remove(at)),
            1 => words.insert(at, words[at].clone()),
            2 => words[at] = format!(" {}", WORDS[with % WORDS.len()]),
            _ => {
                let other = with % words.len();
                words.swap(at, other);
            }
        }
    }
    words.concat()
}

#[test]
fn on_the_corpus() {
    for text in corpus() {
        assert_eq!(verdicts(text), Some((true, true)), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn on_random_words(words in prop::collection::vec(0..WORDS.len(), 0..30), start in 0..3usize) {
        let body: Vec<&str> = words.into_iter().map(|i| WORDS[i]).collect();
        let (before, after) = [("", ""), ("op f(x: f32[N]) { y[i] =", "}"), ("const a =", "")][start];
        agree(&format!("{before} {} {after}", body.join(" ")));
    }

    #[test]
    fn on_mutated_corpus(file in 0..96usize, edits in prop::collection::vec(any::<(usize, u8, usize)>(), 1..4)) {
        agree(&mutated(&corpus()[file], &edits));
    }
}
