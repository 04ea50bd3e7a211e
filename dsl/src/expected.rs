//! The words of syntax errors: what stands there, what was wanted, and what to write.

use crate::ast::Span;
use crate::diagnose::Reader;
use crate::diagnostic::Diagnostic;
use crate::foreign::{is_like_a_dtype, operator, statement};
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
        Wanted::Body => plain(reader, "`{`, `where` or `->`").help(match reader.look(0) {
            ":" | "=" | "=>" | "-" => "what it gives stands after an arrow: `-> (y: f32[N])`",
            _ => "the statements of an op stand in `{ … }`",
        }),
        Wanted::Assign => assign(reader),
        Wanted::Dots if after_range_call(reader) => {
            plain(reader, "`..` or `..=`").help("there is no `range(…)`: write `k in 0..K`")
        }
        Wanted::Dots if in_one_size(reader).is_some() => {
            plain(reader, "`..` or `..=`").help(in_one_size(reader).unwrap_or_default())
        }
        Wanted::Dots => plain(reader, "`..` or `..=`")
            .help("ranges are written `lo..hi` (without hi) or `lo..=hi` (with it)"),
        Wanted::Operand => operand(reader),
        Wanted::OperandAbove => operand_above(reader),
        Wanted::Selection => plain(reader, "a call after this name").help(match crate::foreign::member(reader.look(1)) {
            Some(help) => help.to_string(),
            None if reader.look(2) == "." && reader.look(4) == "(" => {
                format!("functions have no prefix: write `{}(…)`", reader.look(3))
            }
            None => "a dot stands only in calls of a library, `nn.softmax(x)`; elements are read with brackets, `x[i]`".into(),
        }),
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
    if let Some(error) = before_the_place(reader, wanted) {
        return Some(error);
    }
    let touching = reader.token(0).zip(reader.token(1)).is_some_and(|(a, b)| a.end == b.start);
    let help = match (first, second) {
        ("or", _) if in_expression && reader.previous().is_some_and(|t| t.text(reader.text) == "]") => {
            "write `||`; a default for a read beyond its tensor is written `(x[i-1] else 0)`".to_string()
        }
        (word, _) if in_expression && operator(word).is_some() => {
            format!("write `{}`", operator(word).unwrap_or_default())
        }
        ("<", ">") if touching && in_expression => "write `!=`".to_string(),
        ("/", "*") if touching && in_expression => {
            "comments start with `//` and end with the line".to_string()
        }
        ("-" | "*" | "/" | "%" | "|" | "&" | "^" | "**", "=")
            if touching && matches!(wanted, Wanted::Assign) =>
        {
            other_update(reader, first)
        }
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

/// The help for `y[i] -= …` and its like.
fn other_update(reader: &Reader, operator: &str) -> String {
    let from = stmt_start(reader).and_then(|s| reader.tokens.iter().position(|t| t.start == s.start));
    let target = from.map_or("y[i]", |from| between(reader, from, reader.at));
    let (name, slots) = target.split_at(target.find('[').unwrap_or(target.len()));
    match operator {
        "-" => format!("updates are `=`, `+=`, `max=` and `min=`: write `{target} += -(…)`"),
        _ => format!(
            "updates are `=`, `+=`, `max=` and `min=`: give the new value a name of its own, `{name}2{slots} = {target} {operator} …`"
        ),
    }
}

/// Operators of other languages that were read in part, or as a name: `not x`, `a <> b`, `a === b`, `lambda v: …`, `/* … */`.
fn before_the_place(reader: &Reader, wanted: Wanted) -> Option<Diagnostic> {
    let previous = reader.previous()?;
    let (before, word) = (previous.text(reader.text), reader.look(0));
    let touching = reader.token(0).is_some_and(|t| t.start == previous.end);
    let (written, help) = match (before, word) {
        ("not", _) if matches!(wanted, Wanted::Close(..) | Wanted::Word("then", _)) => {
            ("not".to_string(), "write `!`, with what it denies in parentheses: `!(a > b)`".to_string())
        }
        ("lambda", _) => ("lambda".into(), "functions stand beside the op: `fn f(x) = …`".into()),
        ("<", ">") | ("!=", "=") if touching => (format!("{before}{word}"), "write `!=`".into()),
        ("==", "=") if touching => ("===".into(), "write `==`".into()),
        ("/", "*") if touching => ("/*".into(), "comments start with `//` and end with the line".into()),
        ("+", "+") | ("-", "-") if touching => {
            (format!("{before}{word}"), "write an update: `x[i] += 1`".to_string())
        }
        _ => return None,
    };
    let message = format!("`{written}` is not written like this here");
    Some(Diagnostic::error("E0008", span(reader, previous).to(reader.here()), message).help(help))
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
    if let Some(spelling) = operator(word) {
        let error =
            Diagnostic::error("E0008", span(reader, previous), format!("`{word}` is not an operator here"));
        return Some(error.help(format!("write `{spelling}`")));
    }
    let alone = reader.at < 2 || {
        let before = &reader.tokens[reader.at - 2];
        previous.first || before.text(reader.text) == "{" || reader.is_name(0)
    };
    let help = statement(word).filter(|_| alone)?;
    let error = Diagnostic::error("E0008", span(reader, previous), format!("there is no `{word}` statement"));
    Some(error.help(help))
}

fn item(reader: &Reader) -> Diagnostic {
    let word = reader.look(0);
    let error = plain(reader, "`op`, `fn`, `const`, `tile`, `profile` or `import`");
    let after_operand =
        reader.previous().is_some_and(|t| matches!(t.kind, Kind::Word | Kind::Int | Kind::Float));
    match word {
        "}" | ")" | "]" => Diagnostic::error("E0006", reader.here(), format!("this `{word}` closes nothing"))
            .help("remove it, or look above for a bracket that was closed too early"),
        "/" if reader.look(1) == "*" => error.help("comments start with `//` and end with the line"),
        "%" | "--" => error.help("comments start with `//`"),
        "." if reader.at >= 2 && reader.tokens[reader.at - 2].text(reader.text) == "import" => {
            error.help("leave the line out: functions such as exp and sum need no import; a library is one word, `import nn`")
        }
        _ if crate::foreign::item(word).is_some() => {
            error.help(crate::foreign::item(word).unwrap_or_default())
        }
        ".." if after_operand && reader.token(1).is_some_and(|t| t.kind == Kind::Int) => {
            let from = reader.previous().map_or("1", |t| t.text(reader.text));
            error.help(format!("ranges are closed here: write `{from}..={}`", reader.look(1)))
        }
        _ if reader.look(1) == "=" => error.help(format!(
            "statements stand in the `{{ … }}` of an op; a constant is written `const {word} = …`"
        )),
        _ if reader.look(1) == "[" => error.help("statements stand in the `{ … }` of an op"),
        _ if after_operand => {
            error.help("an operator may be missing before it: products are written with `*`")
        }
        _ => error.help("a file is a list of these items"),
    }
}

fn word_after(reader: &Reader, word: &'static str, after: &str) -> Diagnostic {
    let place = if after.is_empty() { String::new() } else { format!(" after {after}") };
    let error = plain(reader, &format!("`{word}`{place}"));
    let before = reader.previous().map_or("", |t| t.text(reader.text));
    match word {
        "then" => error.help("write `if condition then a else b`"),
        "else" => error.help(
            "write `if condition then a else b`; for a point to be left out, give it a value such as 0",
        ),
        ":" if reader.look(0) == "=" => {
            error.help("its dtype stands before its default: `eps: f32 = 1e-5`, or `n: const i32 = 4`")
        }
        ":" if (reader.is_name(0) || reader.look(0) == "[") && is_like_a_dtype(before) => {
            error.help("the name comes first: `x: f32[M, N]`")
        }
        ":" if reader.is_name(0) && crate::foreign::parameter(before).is_some() => {
            error.help(crate::foreign::parameter(before).unwrap_or_default())
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
        let help = match reader.look(0) {
            "for" => "a sum names its axis: `sum[k in 0..K](x[k])`",
            _ if in_sizes(reader, open) => {
                "sizes are names alone, `op name[M, N](…)`; a constant of the kernel is a parameter, `k: const i32 = 4`"
            }
            _ => "products are written with `*`, arguments and axes are separated by `,`",
        };
        return error.also(span(reader, opener), format!("inside this `{opened}`")).help(help);
    }
    if opened == "("
        && reader.look(0) == ","
        && open >= 3
        && reader.tokens[open - 3].text(reader.text) == "const"
    {
        return plain(reader, "`)`")
            .also(span(reader, opener), "inside these parentheses")
            .help("a list of numbers stands in brackets: `const W = [1.0, 2.0]`");
    }
    if let Some(help) = fold_of_two(reader, open) {
        return plain(reader, "`)`").also(span(reader, opener), "inside these parentheses").help(help);
    }
    if reader.look(0) == "else" && opened == "(" {
        return plain(reader, &format!("`,` or `{word}`"))
            .also(span(reader, opener), "inside these parentheses")
            .help("put a read and its default in parentheses of their own: `(x[i-1] else 0)`");
    }
    if reader.look(0) == "if" {
        return plain(reader, &format!("`,` or `{word}`"))
            .also(span(reader, opener), format!("inside this `{opened}`"))
            .help("a choice is written `if c then a else b`, the condition first");
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

/// Is the bracket the one after an op's name?
fn in_sizes(reader: &Reader, open: usize) -> bool {
    open >= 2
        && reader.tokens[open].text(reader.text) == "["
        && reader.tokens[open - 2].text(reader.text) == "op"
}

/// The help for `max[d](x[d], 0)`, and for `rmsnorm[b](x[b], g)`: the parentheses at `open` hold more than one value.
fn fold_of_two(reader: &Reader, open: usize) -> Option<String> {
    let text = |i: usize| reader.tokens[i].text(reader.text);
    let bracket = partner_before(reader, open.checked_sub(1)?)?;
    let name = text(bracket.checked_sub(1)?);
    if reader.look(0) != "," || text(open) != "(" {
        return None;
    }
    let value = between(reader, open + 1, reader.at);
    Some(match name {
        "max" | "min" => format!(
            "over an axis a fold takes one value; of two numbers write `{name}({value}, …)`, without the brackets"
        ),
        _ if crate::foreign::is_fold(name) => {
            let axes = between(reader, bracket, open);
            format!("a fold takes one value: `{name}{axes}({value})`")
        }
        _ => format!("brackets after a name are the axes of a fold; an op is called as `{name}({value}, …)`"),
    })
}

/// The opening bracket of the closing one at a token.
fn partner_before(reader: &Reader, close: usize) -> Option<usize> {
    let mut depth = 0usize;
    for i in (0..=close).rev() {
        match reader.tokens[i].text(reader.text) {
            "]" | ")" => depth += 1,
            "[" | "(" if depth == 1 => return Some(i),
            "[" | "(" => depth = depth.checked_sub(1)?,
            _ if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// The text of the tokens `from..until`.
fn between<'r>(reader: &'r Reader, from: usize, until: usize) -> &'r str {
    match (reader.tokens.get(from), until.checked_sub(1).and_then(|u| reader.tokens.get(u))) {
        (Some(a), Some(b)) if a.start < b.end => &reader.text[a.start..b.end],
        _ => "…",
    }
}

/// The help for what is written inside brackets in other languages.
fn foreign_inside(reader: &Reader, opened: &str) -> Option<String> {
    let previous = reader.previous().map_or("", |t| t.text(reader.text));
    let help = match (opened, previous, reader.look(0)) {
        (_, "]", "[") => "all indices stand in one pair of brackets: `x[i, j]`",
        ("[", _, ":") => {
            "there are no slices: name an axis and give it the range: `y[i in 1..N] = x[i]`, `sum[k in 1..N](x[k])`"
        }
        ("(", _, ":") if after_fn(reader) => {
            "a fn takes numbers, its parameters are names alone: `fn f(a, b) = …`; of tensors write an `op`"
        }
        ("(", _, "(") if is_like_a_dtype(previous) => {
            return Some(format!("dims stand in brackets: `{previous}[N]`"));
        }
        _ => return after_value(reader),
    };
    Some(help.into())
}

/// The help where a comment hides what was meant as a division: `(x[i] // 2)`.
fn after_comment(reader: &Reader) -> Option<String> {
    let from = reader.previous()?.end;
    let until = reader.token(0).map_or(reader.text.len(), |t| t.start);
    let line = reader.text.get(from..until)?.lines().next()?;
    line.trim_start().starts_with("//").then(|| {
        "`//` starts a comment, which hides the rest of the line: integers are divided by `/`, floats too"
            .into()
    })
}

/// Is the item at hand a `fn` whose parameters are being read?
fn after_fn(reader: &Reader) -> bool {
    let before = &reader.tokens[..reader.at];
    let paren = before.iter().rposition(|t| t.text(reader.text) == "(");
    paren.is_some_and(|p| p >= 2 && before[p - 2].text(reader.text) == "fn")
}

/// The help for what follows a value in other languages: `x[i].shape`, `x[i].exp()`, `1.f`, `f(x)[i]`, `sum(n)(…)`,
/// `sum{n}(…)`.
fn after_value(reader: &Reader) -> Option<String> {
    let token = reader.previous()?;
    let previous = token.text(reader.text);
    let help = match (previous, reader.look(0)) {
        (_, ".") if token.kind == Kind::Int => {
            return Some(format!(
                "numbers have digits on both sides of the point, and no suffix: write `{previous}.0`"
            ));
        }
        (_, ".") => match crate::foreign::member(reader.look(1)) {
            Some(help) => help,
            None if reader.look(2) == "(" => {
                return Some(format!("a function stands before its value: `{}(…)`", reader.look(1)));
            }
            None => return None,
        },
        (")", "[") => return Some(indexed_call(reader)),
        (")", "(") | ("sum" | "max" | "min" | "mean" | "prod" | "any" | "all" | "softmax", "{") => {
            "the axes of a fold stand in brackets: `sum[k](x[k])`"
        }
        _ => return None,
    };
    Some(help.into())
}

/// The help for `f(x)[i]`.
fn indexed_call(reader: &Reader) -> String {
    let open = partner_before(reader, reader.at.saturating_sub(1));
    let name = open.and_then(|o| o.checked_sub(1)).map_or("", |i| reader.tokens[i].text(reader.text));
    let inside = open.map_or("…", |o| between(reader, o + 1, reader.at - 1));
    if let Some(help) = crate::foreign::function(name) {
        return help;
    }
    match name {
        _ if crate::foreign::is_fold(name) && !inside.contains(['(', '[', ',']) => {
            format!("a fold names its axis and gives its value there: `{name}[i]({inside}[i])`")
        }
        _ if crate::foreign::is_fold(name) => format!("a fold names its axis: `{name}[i](…)`"),
        _ if name.is_empty() || !name.starts_with(|c: char| c.is_alphabetic()) => {
            "only tensors are indexed: give the value a name in a statement above, `t[i] = …`".into()
        }
        _ => {
            format!("only tensors are indexed: write `t = {name}({inside})` as a statement, then read `t[…]`")
        }
    }
}

fn name(reader: &Reader, what: &str) -> Diagnostic {
    let word = reader.look(0);
    if is_reserved(word) {
        let error =
            Diagnostic::error("E0007", reader.here(), format!("`{word}` is a reserved word, not a name"));
        return match word {
            "true" | "false" if what.starts_with("a whole number") => {
                error.help("settings have words of their own: `persistent = on`, `atomic = any`")
            }
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
        ".." if what == "a size" => error.help("every size has a name: `op name[M, N](x: f32[M, N])`"),
        "[" | "(" if what.starts_with("a whole number") => error.help("a set stands in braces: `{64, 128}`"),
        "-" if what.starts_with("a whole number") => {
            error.help("settings and sizes are whole numbers from 0")
        }
        _ if what.contains("a setting")
            && reader.token(0).is_some_and(|t| t.kind == Kind::Int)
            && reader.previous().is_some_and(|t| t.text(reader.text) == "swizzle") =>
        {
            error.help(format!("its number stands in parentheses: `swizzle({word})`"))
        }
        ".." if what.contains("a setting") && reader.token(1).is_some_and(|t| t.kind == Kind::Int) => {
            let from = reader.previous().map_or("2", |t| t.text(reader.text));
            error.help(format!("ranges are closed here: write `{from}..={}`", reader.look(1)))
        }
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
    if written == "]" && reader.look(0) == ":" && reader.is_name(1) {
        return error.help(format!("the dtype stands before the indices: `y: {}[i] = …`", reader.look(1)));
    }
    if written == "]" && reader.look(0) == "[" {
        return error.help("all indices stand in one pair of brackets: `x[i, j]`");
    }
    // `y[i] = 2 x[i]`: the second operand was taken for the next statement.
    if let Some(target) = stmt_start(reader).filter(|t| !t.first) {
        let word = target.text(reader.text);
        let at = reader.tokens.iter().position(|t| t.start == target.start).unwrap_or(0);
        let before = at.checked_sub(1).map_or("", |i| reader.tokens[i].text(reader.text));
        let fold = (before == "]").then(|| partner_before(reader, at - 1)).flatten();
        let fold = fold.and_then(|o| o.checked_sub(1)).map(|i| (i, reader.tokens[i].text(reader.text)));
        let cast = at >= 3 && before == ")" && is_like_a_dtype(reader.tokens[at - 2].text(reader.text));
        let value = between(reader, at, reader.at);
        // `v` and `v: v`, which was read as a name with its dtype.
        let lambda = [1, 3]
            .iter()
            .filter_map(|back| at.checked_sub(*back))
            .any(|i| reader.tokens[i].text(reader.text) == "lambda");
        let help = match (before, word) {
            (_, "as") => "a dtype is written like a function: `f16(x[i])`".to_string(),
            _ if lambda => "functions stand beside the op: `fn f(x) = …`".to_string(),
            ("sum" | "max" | "min" | "mean" | "prod" | "any" | "all", _) => {
                "the axes of a fold stand in brackets: `sum[k](x[k])`".to_string()
            }
            _ if cast => {
                let dtype = reader.tokens[at - 2].text(reader.text);
                format!(
                    "a cast is written like a function: `{}({value})`",
                    crate::foreign::dtype(dtype).unwrap_or(dtype)
                )
            }
            _ => match fold.filter(|(_, name)| crate::foreign::is_fold(name)) {
                Some((i, _)) => {
                    format!("what is folded stands in parentheses: `{}({value})`", between(reader, i, at))
                }
                None => called_without(reader, at, value),
            },
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

/// The help for an operand behind another: `2 x[i]`, `sqrt x[i]`, `sum_k a[k]`.
fn called_without(reader: &Reader, at: usize, value: &str) -> String {
    let before = at.checked_sub(1).map(|i| &reader.tokens[i]);
    let name = before.filter(|t| t.kind == Kind::Word).map_or("", |t| t.text(reader.text));
    let statements = "statements are written `name[axes] = expression`";
    match name.split_once('_') {
        Some((fold, axis)) if crate::foreign::is_fold(fold) => {
            format!(
                "a fold has its axes in brackets, and its value in parentheses: `{fold}[{axis}]({value})`"
            )
        }
        _ if !name.is_empty() && !is_reserved(name) => {
            format!(
                "products are written with `*`, a function has parentheses, `{name}({value})`; {statements}"
            )
        }
        _ => format!("products are written with `*`; {statements}"),
    }
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

/// The help for `n in N`, where the reader stands behind N.
fn in_one_size(reader: &Reader) -> Option<String> {
    let token = |back: usize| reader.at.checked_sub(back).map(|i| &reader.tokens[i]);
    let named = |t: &&Token| t.kind == Kind::Word && !is_reserved(t.text(reader.text));
    let (size, axis) = (token(1).filter(named)?.text(reader.text), token(3).filter(named)?.text(reader.text));
    let range = token(2)?.text(reader.text) == "in";
    range.then(|| format!("a range has both its ends: write `{axis} in 0..{size}`"))
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

/// Is it `const W =` with the reader behind it? `back` tokens before it the name stands.
fn in_constant(reader: &Reader, back: usize) -> bool {
    reader.at.checked_sub(back + 1).is_some_and(|i| reader.tokens[i].text(reader.text) == "const")
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
            _ if called == "float" => "infinity and NaN are words: `-inf`, `nan`".into(),
            _ => "texts stand in `import \"file.tile\"` only: write a number, a name, or a read as `x[i]`"
                .into(),
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
        ("[" | ",", "*") => error.help("every dim is a size with a name, or a number: `x: f32[M, N]`"),
        (_, ".." | "..=") => error.help("both ends of a range are written: `0..N`"),
        (_, "{") if in_constant(reader, 2) => {
            error.help("a list of numbers stands in brackets: `const W = [1.0, 2.0]`")
        }
        (_, "{") => error.help("sets stand in `tile` and `profile` only"),
        _ => error.help("write a number, a name, a read as `x[i]`, a call as `f(x)`, or parentheses"),
    }
}
