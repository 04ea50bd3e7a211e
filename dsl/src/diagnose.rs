//! Words for syntax errors: where the parser stopped, what stands there, and what was expected, in the user's terms.

use crate::ast::Span;
use crate::diagnostic::Diagnostic;
use crate::scan;
use crate::token::Token;

/// The errors of one part of the text that the parser refused; it got as far as the byte `at`.
pub fn diagnose(text: &str, tokens: &[Token], at: usize, file: u32) -> Vec<Diagnostic> {
    vec![unexpected(text, tokens, at, file)]
}

/// The parser stopped at the byte `at`.
pub fn unexpected(text: &str, tokens: &[Token], at: usize, file: u32) -> Diagnostic {
    let found = tokens.iter().find(|t| t.start >= at && !t.is_comment());
    let (span, what) = match found {
        Some(token) => (scan::span(token, file), format!("unexpected `{}`", token.text(text))),
        None => {
            let end = tokens.iter().rev().find(|t| !t.is_comment()).map_or(0, |t| t.end) as u32;
            (Span { file, start: end, end }, "the text ends too early".to_string())
        }
    };
    Diagnostic::error("E0005", span, what).help("see the language reference, section 2, for the grammar")
}
