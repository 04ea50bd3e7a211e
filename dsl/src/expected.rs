//! The words of syntax errors: what stands there, what was wanted, and what to write.

use crate::ast::Span;
use crate::diagnose::Reader;
use crate::diagnostic::Diagnostic;
use crate::scan;
use crate::token::{Kind, Token};

/// What the grammar wants at a place.
#[derive(Clone, Copy)]
pub enum Wanted {
    Item,
    /// This word, after what the second text says.
    Word(&'static str, &'static str),
    /// The closing bracket of the one at this token.
    Close(&'static str, usize),
    /// A name, and what it would be.
    Name(&'static str),
    /// At least one entry.
    Least(&'static str),
    Body,
    Assign,
    Dots,
    Operand,
    /// The same, at the end of a line, where the next one is a statement.
    OperandAbove,
    /// `lib.name(` after a dot.
    Selection,
}

/// The reserved words: never names.
const RESERVED: [&str; 11] =
    ["if", "then", "else", "where", "in", "inout", "true", "false", "inf", "nan", "pi"];

pub fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

pub fn is_literal(word: &str) -> bool {
    matches!(word, "true" | "false" | "inf" | "nan" | "pi")
}

const OPERATORS: [&str; 19] =
    ["||", "&&", "==", "!=", "<=", ">=", "<", ">", "|", "^", "&", "<<", ">>", "+", "-", "*", "/", "%", "**"];

pub fn is_operator(word: &str) -> bool {
    OPERATORS.contains(&word)
}

/// The diagnostic for the reader's place.
pub fn expected(reader: &Reader, wanted: Wanted) -> Diagnostic {
    foreign(reader, wanted).unwrap_or_else(|| match wanted {
        Wanted::Item => item(reader),
        Wanted::Word(word, after) => word_after(reader, word, after),
        Wanted::Close(word, open) => close(reader, word, open),
        Wanted::Name(what) => name(reader, what),
        Wanted::Least(what) => least(reader, what),
        Wanted::Body => plain(reader, "`{`, `where` or `->`").help("the statements of an op stand in `{ … }`"),
        Wanted::Assign => assign(reader),
        Wanted::Dots if after_range_call(reader) => {
            plain(reader, "`..` or `..=`").help("there is no `range(…)`: write `k in 0..K`")
        }
        Wanted::Dots => plain(reader, "`..` or `..=`")
            .help("ranges are written `lo..hi` (without hi) or `lo..=hi` (with it)"),
        Wanted::Operand => operand(reader),
        Wanted::OperandAbove => operand_above(reader),
        Wanted::Selection => plain(reader, "a call after this name").help(
            crate::foreign::member(reader.look(1)).unwrap_or("a dot stands only in calls of a library, `nn.softmax(x)`; elements are read with brackets, `x[i]`"),
        ),
    })
}

fn found(reader: &Reader) -> String {
    match reader.token(0) {
        None => "the end of the text".to_string(),
        Some(t) if t.kind == Kind::Text => "a text".to_string(),
        Some(t) => format!("`{}`", shortened(t.text(reader.text))),
    }
}

fn shortened(word: &str) -> String {
    if word.chars().count() <= 40 {
        word.to_string()
    } else {
        word.chars().take(37).collect::<String>() + "…"
    }
}

fn plain(reader: &Reader, what: &str) -> Diagnostic {
    let message = format!("expected {what}, found {}", found(reader));
    Diagnostic::error("E0005", reader.here(), message)
}

fn span(reader: &Reader, token: &Token) -> Span {
    scan::span(token, reader.file)
}

/// Spellings of other languages, and what they are here. `None`: the mistake is another one.
fn foreign(reader: &Reader, wanted: Wanted) -> Option<Diagnostic> {
    let (first, second) = (reader.look(0), reader.look(1));
    let in_expression =
        matches!(wanted, Wanted::Close(..) | Wanted::Operand | Wanted::Assign | Wanted::Word(..));
    let touching = reader.token(0).zip(reader.token(1)).is_some_and(|(a, b)| a.end == b.start);
    let help = match (first, second) {
        (word, _) if in_expression && logical(word).is_some() => {
            format!("write `{}`", logical(word).unwrap_or_default())
        }
        ("-" | "*" | "/" | "%" | "|" | "&" | "^", "=") if touching && matches!(wanted, Wanted::Assign) => {
            format!("updates are `=`, `+=`, `max=` and `min=`; write `x[i] = x[i] {first} …`")
        }
        ("**", "=") if touching && matches!(wanted, Wanted::Assign) => "write `x[i] = x[i] ** …`".to_string(),
        (":", "=") if touching => "write `=`".to_string(),
        ("==", _) if matches!(wanted, Wanted::Assign) => "definitions are written with one `=`".to_string(),
        ("=", _) if matches!(wanted, Wanted::Close(..)) && in_binder(reader) => {
            "a range is written with `in`: `k in 0..K`".to_string()
        }
        ("=", _) if matches!(wanted, Wanted::Close(..) | Wanted::Word("then", _)) => {
            "comparisons are written `==`".to_string()
        }
        ("=", ">") if touching && in_expression => "write `>=`".to_string(),
        ("elif" | "elseif", _) if in_expression => "write `else if`".to_string(),
        _ => return statement_word(reader, wanted),
    };
    let words =
        if touching && matches!(second, "=" | ">") { format!("{first}{second}") } else { first.to_string() };
    Some(
        Diagnostic::error("E0008", reader.here(), format!("`{words}` is not written like this here"))
            .help(help),
    )
}

/// Is this `sum[k` with the reader behind it?
fn in_binder(reader: &Reader) -> bool {
    let text = |back: usize| reader.at.checked_sub(back).map_or("", |i| reader.tokens[i].text(reader.text));
    matches!(text(2), "[" | ",") && reader.previous().is_some_and(|t| t.kind == Kind::Word)
}

/// `for i in …`, `let x = …`: the word was read as the name of a target; what follows it gave it away.
fn statement_word(reader: &Reader, wanted: Wanted) -> Option<Diagnostic> {
    let previous = reader.previous()?;
    let word = previous.text(reader.text);
    if !matches!(wanted, Wanted::Assign) {
        return None;
    }
    if let Some(spelling) = logical(word) {
        let error =
            Diagnostic::error("E0008", span(reader, previous), format!("`{word}` is not an operator here"));
        return Some(error.help(format!("write `{spelling}`")));
    }
    if !is_statement_word(word) || !previous.first {
        return None;
    }
    let error = Diagnostic::error("E0008", span(reader, previous), format!("there is no `{word}` statement"));
    Some(error.help(statement_help(word)))
}

/// Words that start a statement in other languages.
pub fn is_statement_word(word: &str) -> bool {
    matches!(word, "for" | "while" | "return" | "let" | "var")
}

fn logical(word: &str) -> Option<&'static str> {
    match word {
        "and" => Some("&&"),
        "or" => Some("||"),
        "not" => Some("!"),
        _ => None,
    }
}

fn statement_help(word: &str) -> &'static str {
    match word {
        "for" => "axes take the place of loops: `y[i] = …` defines y for every i, `sum[k](…)` runs over k",
        "while" => "a recurrence has a fixed length: `h[t] = if … then … else (h[t-1] else h0)`",
        "return" => "results are named in `-> (y: f32[N])` and defined by `y[i] = …`",
        _ => "a definition needs no word before its name: `t[i] = …`",
    }
}

fn item(reader: &Reader) -> Diagnostic {
    let word = reader.look(0);
    let error = plain(reader, "`op`, `fn`, `const`, `tile`, `profile` or `import`");
    let after_operand =
        reader.previous().is_some_and(|t| matches!(t.kind, Kind::Word | Kind::Int | Kind::Float));
    match word {
        "}" | ")" | "]" => Diagnostic::error("E0006", reader.here(), format!("this `{word}` closes nothing"))
            .help("remove it, or look above for a bracket that was closed too early"),
        "def" | "func" | "function" | "kernel" | "void" | "let" | "struct" => {
            error.help("an operator is written `op name[N](x: f32[N]) -> (y: f32[N]) { … }`")
        }
        _ if reader.look(1) == "[" || reader.look(1) == "=" => {
            error.help("statements stand in the `{ … }` of an op; a constant is written `const name = …`")
        }
        _ if after_operand => {
            error.help("an operator may be missing before it: products are written with `*`")
        }
        _ => error.help("a file is a list of these items"),
    }
}

fn word_after(reader: &Reader, word: &'static str, after: &str) -> Diagnostic {
    let place = if after.is_empty() { String::new() } else { format!(" after {after}") };
    let error = plain(reader, &format!("`{word}`{place}"));
    match word {
        "then" => error.help("write `if condition then a else b`"),
        "else" => error.help(
            "write `if condition then a else b`; for a point to be left out, give it a value such as 0",
        ),
        ":" if reader.look(0) == "=" => {
            error.help("its dtype stands before its default: `eps: f32 = 1e-5`, or `n: const i32 = 4`")
        }
        ":" if reader.is_name(0)
            && reader.previous().is_some_and(|t| is_like_a_dtype(t.text(reader.text))) =>
        {
            error.help("the name comes first: `x: f32[M, N]`")
        }
        ":" => error.help("each parameter and result has a dtype: `x: f32[M, N]`"),
        "=" if after == "the axis" => error.help("write `block m = 128, n = 64`, or `stages = 3`"),
        "=" if after == "the size" => error.help("write `profile name M = 1..=8192 at {16, 512}, K = 4096`"),
        "=" if after == "the parameters" => {
            error.help("write `fn name(a, b) = …`, or `fn name(a, b) from unit = …` for a fold")
        }
        "(" if after == "`->`" => error.help("results stand in parentheses: `-> (y: f32[N])`"),
        "(" if after.starts_with("the op") => {
            error.help("write `op name[N](x: f32[N]) -> (y: f32[N]) { … }`")
        }
        "{" => error.help("write `tile name for sm_90 { block m = 128 }`"),
        _ => error.help(format!("write `{word}` here")),
    }
}

/// `f32`, `bf16`, `u8`, `int`.
fn is_like_a_dtype(word: &str) -> bool {
    let bits = word.trim_start_matches(['b', 'f', 'i', 'u', 'e', 'm']);
    matches!(word, "bool" | "float" | "int" | "double" | "half")
        || bits.len() < word.len() && !bits.is_empty() && bits.chars().all(|c| c.is_ascii_digit() || c == 'm')
}

/// Text that stands where a bracket should be closed: a forgotten bracket, a forgotten operator or comma, or a wrong partner.
fn close(reader: &Reader, word: &'static str, open: usize) -> Diagnostic {
    let opener = &reader.tokens[open];
    let opened = opener.text(reader.text);
    let next = reader.token(0);
    let same_line = next.is_some_and(|t| !t.first);
    let stands_alone =
        next.is_some_and(|t| matches!(t.kind, Kind::Word | Kind::Int | Kind::Float | Kind::Text));
    if same_line && stands_alone && !is_reserved(reader.look(0)) {
        let error = plain(reader, &format!("an operator, `,` or `{word}`"));
        return error
            .also(span(reader, opener), format!("inside this `{opened}`"))
            .help("products are written with `*`, arguments and axes are separated by `,`");
    }
    if reader.look(0) == "else" && opened == "(" {
        return plain(reader, &format!("`,` or `{word}`"))
            .also(span(reader, opener), "inside these parentheses")
            .help("put a read and its default in parentheses of their own: `(x[i-1] else 0)`");
    }
    if reader.look(0) == ".." || reader.look(0) == "..=" {
        return plain(reader, &format!("`,` or `{word}`"))
            .also(span(reader, opener), format!("inside this `{opened}`"))
            .help("a range names its axis: `i in 0..N`");
    }
    let compares = matches!(reader.look(0), "<" | "<=" | ">" | ">=" | "==" | "!=");
    if opened == "[" && compares && in_binder(reader) {
        return plain(reader, &format!("`in`, `where`, `,` or `{word}`"))
            .also(span(reader, opener), "inside this `[`")
            .help("an axis has a range, and a fold a condition after it: `sum[j in 0..=i](x[j])`, `sum[j where j <= i](x[j])`");
    }
    if let Some(help) = foreign_inside(reader, opened).or_else(|| after_comment(reader)) {
        return plain(reader, &format!("`,` or `{word}`"))
            .also(span(reader, opener), format!("inside this `{opened}`"))
            .help(help);
    }
    let error = match next {
        Some(t) if matches!(t.text(reader.text), ")" | "]" | "}") => {
            let message = format!("`{opened}` is closed by `{}`", t.text(reader.text));
            Diagnostic::error("E0006", reader.here(), message).label(format!("expected `{word}`"))
        }
        _ => {
            let message = format!("expected `{word}`, found {}", found(reader));
            Diagnostic::error("E0006", reader.here(), message)
        }
    };
    error
        .also(span(reader, opener), format!("this `{opened}` is not closed"))
        .help(format!("add the missing `{word}`"))
}

/// The help for what is written inside brackets in other languages.
fn foreign_inside(reader: &Reader, opened: &str) -> Option<&'static str> {
    let previous = reader.previous().map_or("", |t| t.text(reader.text));
    match (opened, previous, reader.look(0)) {
        (_, "]", "[") => Some("all indices stand in one pair of brackets: `x[i, j]`"),
        ("[", _, ":") => Some(
            "there are no slices: name an axis and give it the range: `y[i in 1..N] = x[i]`, `sum[k in 1..N](x[k])`",
        ),
        ("(", _, ":") if after_fn(reader) => Some(
            "a fn takes numbers, its parameters are names alone: `fn f(a, b) = …`; of tensors write an `op`",
        ),
        _ => after_value(reader),
    }
}

/// The help where a comment hides what was meant as a division: `(x[i] // 2)`.
fn after_comment(reader: &Reader) -> Option<&'static str> {
    let from = reader.previous()?.end;
    let until = reader.token(0).map_or(reader.text.len(), |t| t.start);
    let line = reader.text.get(from..until)?.lines().next()?;
    line.trim_start().starts_with("//").then_some(
        "`//` starts a comment, which hides the rest of the line: integers are divided by `/`, floats too",
    )
}

/// Is the item at hand a `fn` whose parameters are being read?
fn after_fn(reader: &Reader) -> bool {
    let before = &reader.tokens[..reader.at];
    let paren = before.iter().rposition(|t| t.text(reader.text) == "(");
    paren.is_some_and(|p| p >= 2 && before[p - 2].text(reader.text) == "fn")
}

/// The help for what follows a value in other languages: `x[i].shape`, `f(x)[i]`, `sum(n)(…)`, `sum{n}(…)`.
fn after_value(reader: &Reader) -> Option<&'static str> {
    let previous = reader.previous().map_or("", |t| t.text(reader.text));
    match (previous, reader.look(0)) {
        (_, ".") => crate::foreign::member(reader.look(1)),
        (")", "[") => {
            Some("only tensors are indexed: give the value a name in a statement above, `t[i] = …`")
        }
        (")", "(") | ("sum" | "max" | "min" | "mean" | "prod" | "any" | "all" | "softmax", "{") => {
            Some("the axes of a fold stand in brackets: `sum[k](x[k])`")
        }
        _ => None,
    }
}

fn name(reader: &Reader, what: &str) -> Diagnostic {
    let word = reader.look(0);
    if is_reserved(word) {
        let error =
            Diagnostic::error("E0007", reader.here(), format!("`{word}` is a reserved word, not a name"));
        return match word {
            "if" if what == "a statement" => {
                error.help("a choice is an expression: `y[i] = if c then a else b`")
            }
            "else" if what == "a statement" => {
                error.help("the `if` above has its `else` already, or ended before it")
            }
            "where" if what == "a statement" => {
                error.help("a statement has one `where`: join conditions with `&&`")
            }
            _ => error
                .label(format!("expected {what}"))
                .help(format!("use another name, such as `{word}_` or `{word}0`")),
        };
    }
    if word == "}" && what == "a statement" {
        return plain(reader, "a statement").help("remove the comma before it");
    }
    let touches_operator = what == "a statement"
        && reader.token(0).is_some_and(|t| !t.first || is_operator(word) || t.kind != Kind::Word);
    let error = plain(reader, what);
    if touches_operator && word == "[" && reader.previous().is_some_and(|t| t.text(reader.text) == "]") {
        return error.help("all indices stand in one pair of brackets: `x[i, j]`");
    }
    if let Some(help) = after_value(reader).filter(|_| what == "a statement") {
        return error.help(help);
    }
    if what.contains("a setting") && reader.look(0) == "," {
        return error.help(
            "settings stand side by side; commas part the axes of one: `block m = 128, n = 64  stages = 3`",
        );
    }
    if touches_operator {
        return error
            .help("statements are written `name[axes] = expression`; an operator or a bracket may be missing before this");
    }
    match word {
        "," | ")" | "]" | "}" => error.help("remove the comma before it, or write what is missing"),
        ".." if what.contains("a setting") => error.help("ranges are closed here: write `2..=5`"),
        _ => error.help(name_help(what)),
    }
}

/// How the thing is written whose name is missing.
fn name_help(what: &str) -> &'static str {
    const HELP: [(&str, &str); 14] = [
        (
            "an axis",
            "folds are written `sum[k](…)`, `sum[k in 0..K, j where c](…)`: names stand between the brackets",
        ),
        (
            "a whole number",
            "settings hold whole numbers, sets, ranges and words: `block m = {64, 128}`, `stages = 2..=5`",
        ),
        ("a setting", "settings are written `stages = 3`, or with axes `block m = 128, n = {64, 128}`"),
        ("`=` or an axis", "settings are written `stages = 3`, or with axes `block m = 128, n = {64, 128}`"),
        ("a dtype", "each parameter and result has a dtype: `x: f32[M, N]`"),
        ("a target", "write `tile name for sm_90, sm_100 { … }`, or leave the `for` out"),
        ("the op that", "write `tile name { block m = 128 }`"),
        ("a definition", "write `tile op.definition { … }`"),
        ("the op to", "write `profile name M = 1..=8192 at {16, 512}, K = 4096`"),
        ("a size or dtype", "write `profile name M = 1..=8192 at {16, 512}, K = 4096`"),
        ("the name of the op", "write `op name[N](x: f32[N]) -> (y: f32[N]) { … }`"),
        ("the name of the function", "write `fn name(a, b) = …`"),
        ("the name of the constant", "write `const name = 0.5`"),
        ("the name of a library", "write `import nn` or `import \"file.tile\"`"),
    ];
    let row = HELP.iter().find(|(start, _)| what.starts_with(start));
    row.map_or("names start with a letter or `_`", |(_, help)| help)
}

fn least(reader: &Reader, what: &str) -> Diagnostic {
    let (needs, help) = match what {
        "a function" => {
            ("a function has at least one parameter", "for a value without parameters write `const name = …`")
        }
        "a fold" => ("a fold names at least one axis", "write `sum[k](x[k])`"),
        "`->`" => ("`->` needs at least one result", "leave the `->` out, or write `-> (y: f32[N])`"),
        "a set of dtypes" => ("a set of dtypes has at least one", "write `T: {f16, bf16}`, or `T: float`"),
        "a set" => ("a set has at least one value", "write `{64, 128}`"),
        _ => ("a list has at least one entry", "write `[0.5, 1.0]`"),
    };
    Diagnostic::error("E0015", reader.here(), needs).help(help)
}

fn assign(reader: &Reader) -> Diagnostic {
    let written = reader.previous().map_or("", |t| t.text(reader.text));
    let error = plain(reader, &format!("`=`, `+=`, `max=` or `min=` after `{written}`"));
    // `y[i] = 2 x[i]`: the second operand was taken for the next statement.
    if let Some(target) = stmt_start(reader).filter(|t| !t.first) {
        let word = target.text(reader.text);
        let at = reader.tokens.iter().position(|t| t.start == target.start).unwrap_or(0);
        let before = at.checked_sub(1).map_or("", |i| reader.tokens[i].text(reader.text));
        let help = match (before, word) {
            (_, "as") => "a dtype is written like a function: `f16(x[i])`",
            ("sum" | "max" | "min" | "mean" | "prod" | "any" | "all", _) => {
                "the axes of a fold stand in brackets: `sum[k](x[k])`"
            }
            _ => "products are written with `*`; statements are written `name[axes] = expression`",
        };
        let message =
            format!("expected an operator before `{}`, or a new statement", target.text(reader.text));
        return Diagnostic::error("E0005", span(reader, target), message).help(help);
    }
    if is_operator(reader.look(0)) {
        return error.help("the left side of a statement is a name and its indices: `y[i, j] = …`");
    }
    error.help("statements are written `name[axes] = expression`")
}

/// The first token of the target that ends just before the reader.
fn stmt_start<'r>(reader: &'r Reader) -> Option<&'r Token> {
    let mut depth = 0usize;
    for token in reader.tokens[..reader.at].iter().rev() {
        match token.text(reader.text) {
            "]" => depth += 1,
            "[" => depth = depth.saturating_sub(1),
            _ if depth == 0 && token.kind == Kind::Word => return Some(token),
            _ => {}
        }
    }
    None
}

/// Does `range(…)` stand before the reader?
fn after_range_call(reader: &Reader) -> bool {
    let before = &reader.tokens[..reader.at];
    let open = before.iter().rposition(|t| t.text(reader.text) == "(");
    let called = open.and_then(|o| o.checked_sub(1)).map_or("", |i| before[i].text(reader.text));
    called == "range" && before.last().is_some_and(|t| t.text(reader.text) == ")")
}

fn operand_above(reader: &Reader) -> Diagnostic {
    let (at, after) =
        reader.previous().map_or((reader.here(), ""), |t| (span(reader, t), t.text(reader.text)));
    Diagnostic::error("E0005", at, format!("expected a value after `{after}`, found the next statement"))
        .label("nothing follows this")
        .also(reader.here(), "the next statement")
        .help("write the missing value, or remove the operator")
}

fn operand(reader: &Reader) -> Diagnostic {
    let word = reader.look(0);
    let after = reader.previous().map(|t| t.text(reader.text)).unwrap_or("");
    if word == "if" {
        return Diagnostic::error("E0009", reader.here(), "`if` inside an operand needs parentheses")
            .help("write `a + (if c then x else y)`");
    }
    if is_reserved(word) {
        return Diagnostic::error(
            "E0007",
            reader.here(),
            format!("`{word}` is a reserved word, not a value"),
        )
        .help(match word {
            "where" => "a choice is written `if c then a else b`; conditions of a statement stand after it: `y[i] = … where c`",
            _ => "a value is missing before it, or the name must be another",
        });
    }
    let error = plain(reader, &format!("a value after `{after}`"));
    if reader.token(0).is_some_and(|t| t.kind == Kind::Text) {
        let called = reader.at.checked_sub(2).map_or("", |i| reader.tokens[i].text(reader.text));
        return error.help(match crate::foreign::function(called) {
            Some(help) if called != "float" => help,
            _ if called == "float" => "infinity and NaN are words: `-inf`, `nan`",
            _ => "texts stand in `import \"file.tile\"` only: write a number, a name, or a read as `x[i]`",
        });
    }
    match (after, word) {
        ("[" | ",", ":") => error.help(
            "there are no slices: an index is an axis, `x[i]`, and an axis takes all of its dim by itself",
        ),
        (_, "[") => {
            error.help("tensors are indexed by name, `x[i]`; lists of numbers stand in `const` items only")
        }
        ("[", "]") => error.help("an index is missing"),
        (_, "+") => error.help("there is no prefix `+`: leave it out"),
        ("*", "*") => error.help("powers are written `**`"),
        (_, ")" | "]" | "}" | ",") => error.help("write the missing value, or remove what stands before it"),
        ("[" | ",", "..") if reader.look(1) == "." => error.help("every axis is written: `x[i, j]`"),
        (":", _) => {
            error.help("there are no slices: name an axis and give it the range: `y[i in 1..N] = x[i]`")
        }
        (_, ".." | "..=") => error.help("both ends of a range are written: `0..N`"),
        (_, "{") => error.help("sets stand in `tile` and `profile` only"),
        _ => error.help("write a number, a name, a read as `x[i]`, a call as `f(x)`, or parentheses"),
    }
}
