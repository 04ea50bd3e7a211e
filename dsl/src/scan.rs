//! What is looked at before parsing: numbers and texts that are none, characters that mean nothing, and nesting. After this,
//! neither the parser nor any recursive walk over the tree can run out of stack.
//!
//! Also splits a text into its items, so that an error in one does not hide the next.

use crate::ast::Span;
use crate::diagnostic::Diagnostic;
use crate::token::{Kind, Token};

/// How deep brackets, `if`s, prefix operators and `**` may nest, together.
pub const MAX_NESTING: usize = 64;

/// A run of tokens that is one item, with the documentation above it.
#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    pub first: usize,
    pub end: usize,
}

/// Comments that look like the divisor of an integer division: `x[i] // 2`, `i // K`.
pub fn divisions(text: &str, tokens: &[Token], file: u32) -> Vec<Diagnostic> {
    let sizes = sizes(text, tokens);
    let pairs = tokens.windows(2).filter(|w| w[1].kind == Kind::Comment && !w[1].first);
    let operand = |t: &Token| {
        matches!(t.kind, Kind::Word | Kind::Int | Kind::Float) || matches!(t.text(text), ")" | "]")
    };
    let divides = |w: &&[Token]| operand(&w[0]) && is_divisor(w[1].text(text), &sizes);
    let found = pairs.filter(divides).map(|w| {
        let what = "`//` starts a comment: what follows it here is no divisor";
        let d = Diagnostic::warning("W0005", span(&w[1], file), what);
        d.help(
            "integers are divided (rounding down) by `/`: write `i / 2`; else begin the comment with a word",
        )
    });
    found.collect()
}

/// Names that stand in the brackets after an op's name.
fn sizes<'t>(text: &'t str, tokens: &[Token]) -> Vec<&'t str> {
    let mut out = Vec::new();
    for (i, w) in tokens.windows(3).enumerate() {
        if w[0].text(text) == "op" && w[1].kind == Kind::Word && w[2].text(text) == "[" {
            let list = tokens[i + 3..].iter().take_while(|t| t.text(text) != "]");
            out.extend(list.filter(|t| t.kind == Kind::Word).map(|t| t.text(text)));
        }
    }
    out
}

/// A number or a size, alone or before an operator, a bracket or a comma.
fn is_divisor(comment: &str, sizes: &[&str]) -> bool {
    let rest = comment.trim_start_matches('/').trim().trim_start_matches('(');
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
    let (head, tail) = rest.split_at(end);
    let number = !head.is_empty() && head.chars().all(|c| c.is_ascii_digit());
    let tail = tail.trim_start();
    (number || sizes.contains(&head))
        && (tail.is_empty() || tail.starts_with([')', ']', ',', '*', '+', '-', '%']))
}

/// Splits the tokens where an item plainly starts: its keyword and what must follow it, at the start of a line or after a `}`.
pub fn chunks(text: &str, tokens: &[Token]) -> Vec<Chunk> {
    let mut starts = vec![0];
    let mut depth = 0usize;
    let mut docs_from = None;
    for (i, token) in tokens.iter().enumerate() {
        if token.kind == Kind::Doc && token.first {
            docs_from.get_or_insert(i);
            continue;
        }
        let outside = depth == 0 && (token.first || i > 0 && tokens[i - 1].text(text) == "}");
        if (token.column0 || outside) && starts_item(text, &tokens[i..]) {
            starts.push(docs_from.unwrap_or(i));
            depth = 0;
        }
        docs_from = None;
        match token.text(text) {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    starts.push(tokens.len());
    starts.dedup();
    starts.windows(2).map(|w| Chunk { first: w[0], end: w[1] }).collect()
}

/// Whether the tokens start as an item does. All keywords but the reserved words are names elsewhere, so the next tokens decide.
pub fn starts_item(text: &str, tokens: &[Token]) -> bool {
    let [first, second, rest @ ..] = tokens else { return false };
    let then = rest.first().map_or("", |t| t.text(text));
    let named = second.kind == Kind::Word;
    match first.text(text) {
        "op" => named && matches!(then, "[" | "(" | "{" | "->" | "where" | ""),
        "fn" => named && then == "(",
        "const" => named && matches!(then, "=" | ":"),
        "tile" => named && matches!(then, "." | "for" | "{"),
        "profile" => named && rest.first().is_some_and(|t| t.kind == Kind::Word),
        "import" => second.kind == Kind::Text || named && then != "=" && then != "[",
        _ => false,
    }
}

/// Different characters that are reported: more of them are no program.
const MOST_JUNK: usize = 16;

/// Everything wrong with the tokens of one chunk that has a message of its own.
pub fn scan(text: &str, tokens: &[Token], file: u32) -> Vec<Diagnostic> {
    let mut out: Vec<Diagnostic> = Vec::new();
    // One report for each wrong character: who ends his lines with `;` need not be told at every line.
    let mut junk: Vec<&str> = Vec::new();
    for t in tokens {
        if t.kind == Kind::Junk {
            let written = t.text(text);
            if junk.contains(&written) || junk.len() >= MOST_JUNK {
                continue;
            }
            junk.push(written);
        }
        out.extend(bad_token(text, t, file));
    }
    if let Some(token) = too_deep(text, tokens) {
        out.push(
            Diagnostic::error(
                "E0011",
                span(&token, file),
                format!("nested deeper than {MAX_NESTING} levels"),
            )
            .label("one level too many")
            .help("give an inner part a name of its own: `t[i, j] = …` in a statement above, or a `fn`"),
        );
    }
    out
}

pub fn span(token: &Token, file: u32) -> Span {
    Span { file, start: token.start as u32, end: token.end as u32 }
}

fn bad_token(text: &str, token: &Token, file: u32) -> Option<Diagnostic> {
    let written = token.text(text);
    let error = |code, message: String| Some(Diagnostic::error(code, span(token, file), message));
    match token.kind {
        Kind::BadNumber => bad_number(written, span(token, file)),
        Kind::BadText => error("E0003", "this text has no closing quote".into())
            .map(|d| d.label("starts here").help("close it with `\"` on the same line")),
        Kind::Junk => error("E0002", format!("{} means nothing here", describe_char(written)))
            .map(|d| d.help(junk_help(written, token.first))),
        _ => None,
    }
}

fn describe_char(written: &str) -> String {
    match written.chars().next() {
        Some(c)
            if c.is_control()
                || ('\u{200b}'..='\u{206f}').contains(&c)
                || c == '\u{feff}'
                || c == '\u{a0}' =>
        {
            format!("the invisible character U+{:04X}", c as u32)
        }
        _ => format!("`{written}`"),
    }
}

fn junk_help(written: &str, first: bool) -> &'static str {
    match written {
        "@" if first => "leave it out: what is said of how an op runs stands in a `tile` block",
        ";" => "leave the `;` out: statements need no separator",
        "\u{feff}" => "save the file as UTF-8 without a byte order mark",
        "\0" => "is this a text file? A `.tile` file is UTF-8 text",
        "·" | "×" | "∗" => "write `*`",
        "−" | "–" | "—" => "write `-`",
        "≤" => "write `<=`",
        "≥" => "write `>=`",
        "≠" => "write `!=`",
        "∞" => "write `inf`",
        "∑" | "Σ" => "write `sum[k](…)`",
        "→" => "write `->`",
        "…" => "write `..`",
        "’" | "‘" | "'" | "“" | "”" => {
            "texts stand between plain `\"` quotes, and only after `import`"
        }
        "@" => "matrix products are written out: `sum[k](a[i, k] * b[k, j])`",
        "#" => "comments start with `//`",
        "\\" => "leave it out: a statement may go on in the next line",
        "$" | "`" => "names are letters, digits and `_`",
        "?" => "a choice is written `if c then a else b`; a size that is not known has a name, `x: f32[N]`",
        "~" => "write `!x`, of a bool or of the bits of an integer; not equal is `!=`",
        "√" => "write `sqrt(…)`",
        _ => "remove it",
    }
}

/// The digits of a number in another base, as a number here.
fn other_base(written: &str) -> Option<String> {
    let digits = written.get(2..)?.trim_end_matches(['u', 'U', 'l', 'L']).replace('_', "");
    match written.get(..2)? {
        "0b" | "0B" => i64::from_str_radix(&digits, 2).ok().map(|n| n.to_string()),
        "0o" | "0O" => i64::from_str_radix(&digits, 8).ok().map(|n| n.to_string()),
        "0x" | "0X" => i64::from_str_radix(&digits, 16).ok().map(|_| format!("0x{digits}")),
        _ => None,
    }
}

/// What a number that is written otherwise elsewhere is here: `1.0f`, `.5`, `0b101`, `10L`.
pub fn as_number(written: &str) -> Option<String> {
    if let Some(number) = other_base(written) {
        return Some(number);
    }
    if let Some(fraction) = written.strip_prefix('.') {
        let whole: String = fraction.chars().take_while(|c| c.is_ascii_digit() || *c == '_').collect();
        return Some(format!("0.{whole}"));
    }
    if let Some(whole) = written.strip_suffix('.') {
        return Some(format!("{whole}.0"));
    }
    let (number, suffix) = written.split_at(number_prefix(written));
    // `1e-5f32`: the exponent belongs to the number.
    let signed = suffix.strip_prefix(['e', 'E']).unwrap_or_default();
    let digits = signed.strip_prefix(['+', '-']).unwrap_or(signed);
    let n = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let exponent = if n > 0 { suffix.len() - digits.len() + n } else { 0 };
    let (exponent, suffix) = suffix.split_at(exponent);
    let plain = suffix.trim_start_matches('_');
    let float = matches!(plain, "f" | "F" | "h" | "d" | "f16" | "f32" | "f64" | "bf16");
    let int = matches!(plain, "l" | "L" | "ll" | "LL" | "u" | "U" | "ul" | "UL" | "ull" | "ULL")
        || plain.starts_with(['i', 'u']) && plain[1..].chars().all(|c| c.is_ascii_digit());
    match (exponent, float) {
        ("", true) => Some(as_float(number)),
        (e, _) if float || int => Some(format!("{number}{e}")),
        _ => None,
    }
}

fn bad_number(written: &str, at: Span) -> Option<Diagnostic> {
    let error = |message: String, help: String| Some(Diagnostic::error("E0004", at, message).help(help));
    let (number, suffix) = written.split_at(number_prefix(written));
    if let Some(ours) = as_number(written) {
        let plain = written.starts_with('.') || written.ends_with('.') || other_base(written).is_some();
        let why = if plain { "" } else { ": the type comes from what it is used with" };
        return error(format!("`{written}` is not a number"), format!("write `{ours}`{why}"));
    }
    if written == "0x" || written.starts_with("0x") && written.contains('.') {
        return error(
            format!("`{written}` is not a number"),
            "hexadecimal integers are written `0x1f`".into(),
        );
    }
    let good = written.trim_end_matches(|c: char| c == '_' || c.is_alphanumeric() && !c.is_ascii_digit());
    if suffix.starts_with(['e', 'E']) && suffix[1..].chars().all(|c| c.is_ascii_digit() || c == '_') {
        return error(
            format!("the exponent of `{written}` has no plain digits"),
            format!(
                "write the power of ten: `{}e3`",
                if good.is_empty() { number } else { number.trim_end_matches('_') }
            ),
        );
    }
    let help = match suffix.trim_start_matches('_') {
        "j" | "J" => "there are no complex numbers: give the tensor an axis of 2".to_string(),
        s => format!("numbers take no suffix: write `{number}`, or `{number} * {s}` for a product"),
    };
    error(format!("`{written}` is not a number"), help)
}

fn as_float(number: &str) -> String {
    if number.contains('.') { number.to_string() } else { format!("{number}.0") }
}

/// The length of the part of a wrong number that is one by itself.
fn number_prefix(written: &str) -> usize {
    let digits = |s: &str| s.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(s.len());
    let mut len = digits(written);
    if written[len..].starts_with('.') {
        len += 1 + digits(&written[len + 1..]);
    }
    len
}

/// One thing that is still open.
#[derive(Clone, Copy, PartialEq)]
enum Open {
    /// A bracket, with the prefix operators and `**` that were pending before it.
    Bracket(usize),
    /// An `if` whose condition, first branch or second branch is being read.
    If(Part),
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Condition,
    Then,
    Else,
}

/// The token at which nesting passes the limit. An upper bound of the parser's own depth, kept without recursion.
fn too_deep(text: &str, tokens: &[Token]) -> Option<Token> {
    let mut open: Vec<Open> = Vec::new();
    // Prefix operators and `**` since the last operator that ends an operand: those nest to the right.
    let mut pending = 0;
    let mut outer_pending = 0;
    let mut after_operand = false;
    for token in tokens.iter().filter(|t| !t.is_comment()) {
        let word = token.text(text);
        match word {
            "(" | "[" | "{" => {
                open.push(Open::Bracket(pending));
                outer_pending += pending;
                pending = 0;
                after_operand = false;
            }
            ")" | "]" | "}" => {
                while let Some(top) = open.pop() {
                    if let Open::Bracket(before) = top {
                        outer_pending -= before;
                        pending = if word == "}" { 0 } else { before };
                        break;
                    }
                }
                after_operand = true;
            }
            "if" => {
                open.push(Open::If(Part::Condition));
                pending = 0;
                after_operand = false;
            }
            "then" | "else" => {
                turn(&mut open, if word == "then" { Part::Then } else { Part::Else });
                pending = 0;
                after_operand = false;
            }
            "**" => {
                pending += 1;
                after_operand = false;
            }
            "-" | "!" if !after_operand => pending += 1,
            _ => {
                after_operand = !matches!(token.kind, Kind::Punct) && word != "in" && word != "where";
                if !after_operand {
                    pending = 0;
                }
                if matches!(word, "," | "=" | "+=" | "where") {
                    while matches!(open.last(), Some(Open::If(_))) {
                        open.pop();
                    }
                }
            }
        }
        if open.len() + pending + outer_pending > MAX_NESTING {
            return Some(*token);
        }
    }
    None
}

/// Moves the innermost `if` that waits for this word on, ending those inside it that are complete.
fn turn(open: &mut Vec<Open>, to: Part) {
    let waiting = if to == Part::Then { Part::Condition } else { Part::Then };
    let inner = open.iter().rposition(|o| matches!(o, Open::Bracket(_))).map_or(0, |i| i + 1);
    if let Some(i) = open[inner..].iter().rposition(|o| *o == Open::If(waiting)) {
        open.truncate(inner + i);
        open.push(Open::If(to));
    }
}
