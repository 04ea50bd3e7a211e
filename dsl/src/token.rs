//! The words of a source text, comments included. Used to look at a text before it is parsed (nesting, misspelt numbers),
//! to split it into items after an error, to say what was expected, and to keep comments when formatting.
//!
//! Agrees with `grammar.pest` on what a word is; every byte that is not white space belongs to exactly one token.

use pest::unicode::{XID_CONTINUE, XID_START};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Word,
    /// A number as the grammar has it.
    Int,
    Float,
    /// Starts like a number and is none: `1.`, `.5`, `3px`, `1e`.
    BadNumber,
    Text,
    /// A quote without its partner on the line.
    BadText,
    Punct,
    /// `// …` up to the end of the line.
    Comment,
    /// `/// …`.
    Doc,
    /// A character that no token starts with.
    Junk,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
    /// Only white space stands before it on its line.
    pub first: bool,
    /// Its first byte is the first of a line.
    pub column0: bool,
}

impl Token {
    pub fn text<'t>(&self, text: &'t str) -> &'t str {
        &text[self.start..self.end]
    }

    pub fn is_comment(&self) -> bool {
        matches!(self.kind, Kind::Comment | Kind::Doc)
    }
}

/// Longest first, so that a prefix never wins. (`max=` and `min=` are a word and a `=` here.)
const PUNCTUATION: [&str; 34] = [
    "..=", "**", "..", "==", "!=", "<=", ">=", "<<", ">>", "&&", "||", "->", "+=", "(", ")", "[", "]", "{",
    "}", ",", ":", ".", "=", "+", "-", "*", "/", "%", "<", ">", "!", "&", "|", "^",
];

/// All tokens of `text`, in order.
pub fn tokens(text: &str) -> Vec<Token> {
    let mut out: Vec<Token> = Vec::with_capacity(text.len() / 3);
    let mut at = 0;
    let mut first = true;
    while let Some(c) = text[at..].chars().next() {
        if matches!(c, ' ' | '\t' | '\r' | '\n') {
            first |= c == '\n';
            at += 1;
            continue;
        }
        let (kind, len) = token_at(text, at, c, out.last());
        let column0 = at == 0 || text.as_bytes()[at - 1] == b'\n';
        out.push(Token { kind, start: at, end: at + len, first, column0 });
        at += len;
        first = false;
    }
    out
}

fn token_at(text: &str, at: usize, c: char, previous: Option<&Token>) -> (Kind, usize) {
    let rest = &text[at..];
    if rest.starts_with("//") {
        let len = rest.find('\n').unwrap_or(rest.len());
        let comment = rest[..len].trim_end();
        let doc = comment.starts_with("///") && !comment.starts_with("////");
        return (if doc { Kind::Doc } else { Kind::Comment }, comment.len());
    }
    if c == '"' {
        return match rest[1..].find(['"', '\n']) {
            Some(n) if rest.as_bytes()[n + 1] == b'"' => (Kind::Text, n + 2),
            Some(n) => (Kind::BadText, n + 1),
            None => (Kind::BadText, rest.len()),
        };
    }
    if c.is_ascii_digit() {
        return number(rest);
    }
    if c == '.' && rest[1..].starts_with(|d: char| d.is_ascii_digit()) && !follows_a_value(text, at, previous)
    {
        return (Kind::BadNumber, 1 + number(&rest[1..]).1);
    }
    if c == '_' || XID_START(c) {
        return (Kind::Word, word_len(rest));
    }
    match PUNCTUATION.iter().find(|p| rest.starts_with(**p)) {
        Some(p) => (Kind::Punct, p.len()),
        None => (Kind::Junk, c.len_utf8()),
    }
}

/// `x.5` is a wrong selection, not a wrong number.
fn follows_a_value(text: &str, at: usize, previous: Option<&Token>) -> bool {
    previous
        .is_some_and(|p| p.end == at && (p.kind == Kind::Word || matches!(p.text(text), ")" | "]" | "..")))
}

fn word_len(text: &str) -> usize {
    text.find(|c: char| !XID_CONTINUE(c)).unwrap_or(text.len())
}

fn digits_len(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len())
}

fn exponent_len(text: &str) -> usize {
    let Some(rest) = text.strip_prefix(['e', 'E']) else { return 0 };
    let rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    if digits == 0 { 0 } else { text.len() - rest.len() + digits }
}

fn number(text: &str) -> (Kind, usize) {
    let mut kind = Kind::Int;
    let hex = text
        .strip_prefix("0x")
        .map_or(0, |h| h.find(|c: char| !c.is_ascii_hexdigit() && c != '_').unwrap_or(h.len()));
    let mut len = if hex > 0 { 2 + hex } else { digits_len(text) };
    let fraction = text[len..].strip_prefix('.').filter(|f| !f.starts_with('.'));
    match fraction {
        Some(f) if f.starts_with(|c: char| c.is_ascii_digit()) => {
            kind = if hex > 0 { Kind::BadNumber } else { Kind::Float };
            len += 1 + digits_len(f);
        }
        Some(f) if !f.starts_with(|c: char| c == '_' || XID_START(c)) => {
            return (Kind::BadNumber, len + 1);
        }
        _ => {}
    }
    let exponent = if hex > 0 { 0 } else { exponent_len(&text[len..]) };
    if exponent > 0 {
        kind = Kind::Float;
        len += exponent;
    }
    let suffix = word_len(&text[len..]);
    if suffix > 0 {
        return (Kind::BadNumber, len + suffix);
    }
    (kind, len)
}
