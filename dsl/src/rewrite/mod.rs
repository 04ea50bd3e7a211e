//! A statement in the manner of another language, written as one of this: `y = x.sum(axis=1)` is `y[m] = sum[n](x[m, n])`.
//!
//! Works on the words of a text that may be no program. What comes out is a proposal: who shows it has tried it first.

mod array;
mod calls;
mod control;
mod head;
mod read;
mod spec;

use crate::token::{self, Kind, Token};
use array::{Arrays, Names};
use control::{chosen, looped, stored, update};
use read::{F, Reader};
use std::ops::Range;

/// Other text for a part of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub at: Range<usize>,
    pub text: String,
}

impl Edit {
    /// The source with the edit made.
    pub fn apply(&self, source: &str) -> String {
        [&source[..self.at.start], &self.text, &source[self.at.end..]].concat()
    }
}

/// The words of a text without its comments.
fn words(text: &str) -> Vec<Token> {
    token::tokens(text).into_iter().filter(|t| !t.is_comment()).collect()
}

/// The body of the op around a place: the token of its keyword, of its `{`, and of the end.
struct Around {
    op: usize,
    open: usize,
    end: usize,
}

fn around(text: &str, tokens: &[Token], at: usize) -> Option<Around> {
    let word = |i: usize| tokens.get(i).map_or("", |t| t.text(text));
    let starts = |i: &usize| crate::scan::starts_item(text, &tokens[*i..]) && (tokens[*i].column0 || *i == 0);
    let ops: Vec<usize> = (0..tokens.len()).filter(starts).collect();
    let op = *ops.iter().rev().find(|i| tokens[**i].start <= at && word(**i) == "op")?;
    let limit = ops.iter().find(|i| **i > op).copied().unwrap_or(tokens.len());
    let open = (op..limit).find(|i| word(*i) == "{" && *i > 0 && word(*i - 1) != ":")?;
    let mut depth = 0usize;
    let mut end = limit;
    for i in open..limit {
        match word(i) {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                if depth == 0 {
                    end = i;
                    break;
                }
            }
            _ => {}
        }
    }
    (tokens[open].start < at).then_some(Around { op, open, end })
}

/// The names that the items of a text give, whether they can be read or not.
pub fn item_names(text: &str) -> Vec<String> {
    let tokens = words(text);
    let items = (0..tokens.len()).filter(|i| {
        matches!(tokens[*i].text(text), "op" | "fn" | "const")
            && crate::scan::starts_item(text, &tokens[*i..])
    });
    items.map(|i| tokens[i + 1].text(text).to_string()).collect()
}

/// Text that may mend what is wrong at the byte `at`, of which the message is given.
pub fn guess(text: &str, at: usize, message: &str) -> Option<Edit> {
    // `&` between comparisons, and `^` of floats, are read as they were meant.
    let loose = message.contains("chain of comparisons") || message.contains("work on integers");
    match message.contains("is an op") || message.contains("takes a tensor") {
        true => calls::hoisted(text, at),
        false => statement(text, at, loose),
    }
    .or_else(|| head::head(text, at))
}

/// The op in whose head a place is: the tokens of its keyword and of its `{`.
fn around_head(text: &str, tokens: &[Token], at: usize) -> Option<(usize, usize)> {
    let starts = |i: &usize| tokens[*i].text(text) == "op" && (tokens[*i].column0 || *i == 0);
    let op = (0..tokens.len()).filter(starts).rfind(|i| tokens[*i].start <= at)?;
    let open =
        (op + 2..tokens.len()).find(|i| tokens[*i].text(text) == "{" && tokens[*i - 1].text(text) != ":")?;
    (at < tokens[open].end && tokens.get(op + 1)?.kind == Kind::Word).then_some((op, open))
}

/// Texts between commas that stand in no bracket.
fn parts(text: &str, tokens: &[Token]) -> Vec<String> {
    let mut depth = 0usize;
    let mut out: Vec<Vec<&Token>> = vec![Vec::new()];
    for t in tokens {
        match t.text(text) {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            "," if depth == 0 => {
                out.push(Vec::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = out.last_mut() {
            last.push(t);
        }
    }
    let one = |p: Vec<&Token>| match (p.first(), p.last()) {
        (Some(a), Some(b)) => text[a.start..b.end].to_string(),
        _ => String::new(),
    };
    out.into_iter().filter(|p| !p.is_empty()).map(one).collect()
}

/// The token that closes the bracket at `open`.
fn closing(text: &str, tokens: &[Token], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (i, t) in tokens.iter().enumerate().skip(open) {
        match t.text(text) {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

/// What the head of an op declares.
fn declared(text: &str, tokens: &[Token], around: &Around) -> (Names, Vec<String>) {
    let word = |i: usize| tokens.get(i).map_or("", |t| t.text(text));
    let mut names = Names::default();
    let mut results = Vec::new();
    if word(around.op + 2) == "["
        && let Some(end) = closing(text, tokens, around.op + 2)
    {
        let all = parts(text, &tokens[around.op + 3..end]);
        names.sizes =
            all.iter().map(|s| s.split([':', '=']).next().unwrap_or(s).trim().to_string()).collect();
    }
    let mut past_arrow = false;
    for i in around.op + 2..around.open {
        past_arrow |= word(i) == "->";
        let named =
            tokens[i].kind == Kind::Word && word(i + 1) == ":" && matches!(word(i - 1), "(" | "," | "inout");
        if !named {
            continue;
        }
        let mut j = i + 2;
        while j < around.open && !matches!(word(j), "[" | "," | ")" | "(" | "=") {
            j += 1;
        }
        let dims = match (word(j), closing(text, tokens, j)) {
            ("[", Some(end)) => parts(text, &tokens[j + 1..end]),
            _ => Vec::new(),
        };
        if past_arrow {
            results.push(word(i).to_string());
        }
        names.dtypes.insert(word(i).to_string(), word(j - 1).to_string());
        names.tensors.insert(word(i).to_string(), dims);
    }
    (names, results)
}

/// `name`, its dtype, the texts of its slots.
struct Target {
    name: String,
    dtype: Option<String>,
    slots: Option<Vec<String>>,
    /// Tokens of it.
    len: usize,
}

fn target(text: &str, tokens: &[Token], at: usize) -> Option<Target> {
    let word = |i: usize| tokens.get(i).map_or("", |t| t.text(text));
    let first =
        tokens.get(at).filter(|t| t.kind == Kind::Word && !crate::expected::is_reserved(t.text(text)))?;
    let mut next = at + 1;
    let mut dtype = None;
    let typed = |n: usize| word(n) == ":" && crate::foreign::is_like_a_dtype(word(n + 1));
    if typed(next) {
        dtype = Some(word(next + 1).to_string());
        next += 2;
    }
    let mut slots = None;
    while matches!(word(next), "[" | "(") {
        let end = closing(text, tokens, next)?;
        slots.get_or_insert_with(Vec::new).extend(parts(text, &tokens[next + 1..end]));
        next = end + 1;
    }
    if typed(next) {
        dtype = Some(word(next + 1).to_string());
        next += 2;
    }
    Some(Target { name: first.text(text).to_string(), dtype, slots, len: next - at })
}

/// How a definition or an update is written elsewhere: its operator here, what else is done with the old value, and the
/// tokens of it.
fn assignment(text: &str, tokens: &[Token], at: usize) -> Option<(&'static str, &'static str, usize)> {
    let word = |i: usize| tokens.get(i).map_or("", |t| t.text(text));
    let touching = |i: usize| tokens.get(i).zip(tokens.get(i + 1)).is_some_and(|(a, b)| a.end == b.start);
    Some(match (word(at), word(at + 1)) {
        ("+=", "!") => ("=", "", 2),
        ("=", "=") | ("=", ">") => return None,
        ("=", _) => ("=", "", 1),
        ("==", _) => ("=", "", 1),
        ("+=", _) => ("+=", "", 1),
        ("max", "=") => ("max=", "", 2),
        ("min", "=") => ("min=", "", 2),
        (":" | ".", "=") if touching(at) => ("=", "", 2),
        ("<", "-") if touching(at) => ("=", "", 2),
        ("-", "=") if touching(at) => ("+=", "-", 2),
        ("*", "=") if touching(at) => ("=", "*", 2),
        ("/", "=") if touching(at) => ("=", "/", 2),
        _ => return None,
    })
}

/// Does a statement start at this token?
fn starts(text: &str, tokens: &[Token], at: usize) -> bool {
    let word = tokens[at].text(text);
    if tokens[at].first && word != "{" && word != "}" {
        return true;
    }
    let before = at.checked_sub(1).map_or("", |b| tokens[b].text(text));
    if matches!(before, "." | "," | "in" | "let" | "mut" | "auto" | "var")
        || crate::foreign::is_like_a_dtype(before)
    {
        return false;
    }
    target(text, tokens, at).is_some_and(|t| assignment(text, tokens, at + t.len).is_some())
        || crate::foreign::is_statement(word)
        || word == "if" && matches!(before, ";" | "{" | "}")
}

/// Is nothing of a block open: `for …:`, `if (…) {`?
fn is_complete(text: &str, tokens: &[Token]) -> bool {
    let word = |t: &Token| t.text(text).to_string();
    let block =
        tokens.first().is_some_and(|t| matches!(t.text(text), "for" | "if" | "while" | "with" | "else"));
    if !block {
        return true;
    }
    let count = |brace: &str| tokens.iter().filter(|t| t.text(text) == brace).count();
    if count("{") > count("}") {
        return false;
    }
    // Nothing is defined in it so far.
    let last = tokens.last().map(word).unwrap_or_default();
    last != ":"
        && (1..tokens.len()).any(|i| {
            target(text, tokens, i).is_some_and(|t| {
                let inside = text[tokens[0].start..tokens[i].start].matches('(').count()
                    > text[tokens[0].start..tokens[i].start].matches(')').count();
                !inside && assignment(text, tokens, i + t.len).is_some()
            })
        })
}

/// The statement around a place, as tokens.
fn statement_at(text: &str, tokens: &[Token], around: &Around, at: usize) -> Option<Range<usize>> {
    let mut begin = None;
    let mut depth = 0usize;
    for i in around.open + 1..around.end {
        let word = tokens[i].text(text);
        if depth == 0 && (i == around.open + 1 || starts(text, tokens, i)) {
            let open = begin.is_some_and(|b| !is_complete(text, &tokens[b..i]) || word == "else");
            if tokens[i].start > at && begin.is_some() && !open {
                return begin.map(|b| b..i);
            }
            if !open {
                begin = Some(i);
            }
        }
        match word {
            "(" | "[" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    begin.map(|b| b..around.end)
}

/// The statement around the byte `at` in the words of this language, if it can be read as one of another; `loose` as
/// [`Names::loose`].
fn statement(text: &str, at: usize, loose: bool) -> Option<Edit> {
    rewritten(text, at, |tokens, names, results| {
        let names = Names { loose, ..names };
        translated(text, tokens, &names, results)
    })
}

/// The statement around the byte `at`, rewritten with what its op declares and defines above it.
fn rewritten(
    text: &str,
    at: usize,
    how: impl FnOnce(&[Token], Names, &[String]) -> Option<String>,
) -> Option<Edit> {
    let tokens = words(text);
    let around = around(text, &tokens, at)?;
    let (mut names, results) = declared(text, &tokens, &around);
    let range = statement_at(text, &tokens, &around, at)?;
    let mut i = around.open + 1;
    while i < range.start {
        if starts(text, &tokens, i)
            && let Some(t) = target(text, &tokens, i)
            && assignment(text, &tokens, i + t.len).is_some()
        {
            let dims = t.slots.unwrap_or_default().iter().map(|s| names.dim_of(s)).collect();
            names.tensors.entry(t.name).or_insert(dims);
        }
        i += 1;
    }
    let written = &text[tokens[range.start].start..tokens[range.end - 1].end];
    let new = how(&tokens[range.clone()], names, &results)?;
    let plain = |t: &str| t.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    (plain(&new) != plain(written))
        .then(|| Edit { at: tokens[range.start].start..tokens[range.end - 1].end, text: new })
}

impl Names {
    /// The dim that a slot of a left side ranges over, as far as its words say.
    fn dim_of(&self, slot: &str) -> String {
        if let Some((_, range)) = slot.split_once(" in ") {
            return range.rsplit("..").next().unwrap_or(range).trim().to_string();
        }
        let upper = slot.to_uppercase();
        if self.sizes.contains(&upper) { upper } else { format!("?{slot}") }
    }
}

fn translated(text: &str, tokens: &[Token], names: &Names, results: &[String]) -> Option<String> {
    let word = |i: usize| tokens.get(i).map_or("", |t| t.text(text));
    // Words before a definition elsewhere.
    let mut at = 0;
    while tokens.get(at + 1).is_some_and(|t| t.kind == Kind::Word)
        && (crate::foreign::is_like_a_dtype(word(at))
            || matches!(word(at), "let" | "mut" | "var" | "val" | "auto" | "const" | "local" | "global"))
    {
        at += 1;
    }
    match word(at) {
        "return" => return results_of(text, &tokens[at + 1..], names, results),
        "if" => return chosen(text, &tokens[at..], names),
        "for" => return looped(text, &tokens[at..], names),
        _ => {}
    }
    if let Some(done) = stored(text, &tokens[at..], names) {
        return Some(done);
    }
    let mut targets = vec![target(text, tokens, at)?];
    at += targets[0].len;
    while word(at) == "," {
        let t = target(text, tokens, at + 1)?;
        at += 1 + t.len;
        targets.push(t);
    }
    let (op, old, len) = assignment(text, tokens, at)?;
    let rest = &tokens[at + len..];
    match &targets[..] {
        [t] => defined(text, t, op, old, rest, names),
        all => several(text, all, rest, names),
    }
}

/// Reads a whole expression; nothing but a `;`, or a condition of an update, may follow it.
fn whole(text: &str, tokens: &[Token], names: &Names) -> Option<(F, Option<F>)> {
    let is_value = |n: &str| names.tensors.contains_key(n);
    let mut reader = Reader { text, tokens, at: 0, is_value: &is_value, depth: 0, loose: names.loose };
    let mut value = reader.expr()?;
    if reader.eat("else") {
        value = F::Else(value.into(), reader.expr()?.into());
    }
    if reader.eat(",") && reader.at < tokens.len() {
        return None;
    }
    let cond = if reader.eat("where") { Some(reader.expr()?) } else { None };
    while reader.eat(";") {}
    (reader.at == tokens.len()).then_some((value, cond))
}

fn defined(text: &str, t: &Target, op: &str, old: &str, rest: &[Token], names: &Names) -> Option<String> {
    let (value, cond) = whole(text, rest, names)?;
    if cond.is_some() {
        return None;
    }
    written(t, op, old, &value, names)
}

/// The axes that a slot names: `i`, `i in 0..N`.
fn axis_of(slot: &str) -> Option<&str> {
    let axis = slot.split(" in ").next().unwrap_or(slot).trim();
    let word = axis.chars().all(|c| c.is_alphanumeric() || c == '_');
    (word && !axis.starts_with(|c: char| c.is_ascii_digit())).then_some(axis)
}

/// A target and a value as a statement.
fn written(t: &Target, op: &str, old: &str, value: &F, names: &Names) -> Option<String> {
    let declared = names.tensors.get(&t.name).cloned();
    let slots = t.slots.clone().unwrap_or_default();
    let sliced =
        slots.iter().any(|s| s.contains(':') && !s.contains("..") || s.contains("..") && !s.contains(" in "));
    let slots = if sliced { sliced_slots(&slots, &declared) } else { slots };
    let left: Vec<String> = slots.iter().filter_map(|s| axis_of(s)).map(String::from).collect();
    let target = declared.clone().unwrap_or_default();
    let arrays = Arrays::new(names, left, target);
    if let Some(update) = masked(t, op, old, value, &arrays) {
        return Some(update);
    }
    if let F::Call { name, args, .. } = value
        && matches!(name.as_str(), "bincount" | "histogram" | "histc")
        && slots.is_empty()
    {
        return update(&t.name, &[args.first()?.1.clone()], &F::Number("1".into()), "+=", names);
    }
    let dims = arrays.dims(value)?;
    let rank = declared.as_ref().map_or(dims.len(), |d| d.len().max(slots.len()));
    let mut left_slots: Vec<String> = slots.clone();
    let mut idx: Vec<String> = slots.clone().iter().map(|s| axis_of(s).unwrap_or(s).to_string()).collect();
    for n in slots.len()..rank {
        let own = declared.as_ref().and_then(|d| d.get(n)).or(dims.get(n))?;
        let lead = dims.len() + n;
        let own = if own == "1" { dims.get(lead.checked_sub(rank)?).unwrap_or(own) } else { own };
        let letter = arrays.letter(own);
        idx.push(letter.clone());
        // A local without a read that gives its range.
        left_slots.push(match declared.is_none() && !plainly_ranged(value) {
            true => format!("{letter} in 0..{own}"),
            false => letter,
        });
    }
    // Of an element, as the statement has it, or of the whole value.
    let slices: Vec<usize> = match (&t.slots, sliced) {
        (Some(all), true) => (0..all.len()).filter(|n| axis_of(&all[*n]).is_none()).collect(),
        _ => Vec::new(),
    };
    let own = match dims.len() {
        0 => Vec::new(),
        n if n == slices.len() => slices.iter().map(|n| idx[*n].clone()).collect(),
        _ if sliced => return None,
        n if n <= idx.len() => idx[idx.len() - n..].to_vec(),
        // Dims of one element that were kept.
        _ => {
            let mut rest = idx.iter();
            let one = |d: &String| if d == "1" { Some("0".to_string()) } else { rest.next().cloned() };
            let own: Vec<String> = dims.iter().map(one).collect::<Option<_>>()?;
            if rest.next().is_some() {
                return None;
            }
            own
        }
    };
    let text = arrays.at(value, &own)?.0;
    let name = match &t.dtype {
        Some(d) => format!("{}: {}", t.name, crate::foreign::dtype(d).unwrap_or(d)),
        None => t.name.clone(),
    };
    let with = |name: &str, slots: &[String]| match slots.is_empty() {
        true => name.to_string(),
        false => format!("{name}[{}]", slots.join(", ")),
    };
    let here = with(&name, &left_slots);
    let line = match old {
        "" => format!("{here} {op} {text}"),
        "-" => format!("{here} {op} -({text})"),
        _ => {
            format!("{} = {} {old} ({text})", with(&format!("{}2", t.name), &left_slots), with(&t.name, &idx))
        }
    };
    let mut all = arrays.before.take();
    all.push(line);
    Some(all.join("  "))
}

/// `y[x > 0] = 0` is an update under a condition.
fn masked(t: &Target, op: &str, old: &str, value: &F, arrays: &Arrays) -> Option<String> {
    let [slot] = t.slots.as_deref()? else { return None };
    let tokens = words(slot);
    let (cond, _) = whole(slot, &tokens, arrays.names)?;
    let compares = matches!(&cond, F::Binary(o, ..) if (1..=3).contains(&read::binds(o)));
    if !compares || !old.is_empty() {
        return None;
    }
    let mut free = Vec::new();
    array::names_in(&cond, &mut free);
    free.retain(|n| !arrays.names.tensors.contains_key(n) && !arrays.names.sizes.contains(n));
    let rank = arrays.names.tensors.get(&t.name)?.len();
    let idx: Vec<String> = match free.len() == rank {
        true => free,
        false => arrays.names.tensors.get(&t.name)?.iter().map(|d| arrays.letter(d)).collect(),
    };
    let at = |f: &F| {
        let n = arrays.dims(f)?.len();
        Some(arrays.at(f, idx.get(idx.len().checked_sub(n)?..)?)?.0)
    };
    Some(format!("{}[{}] {op} {} where {}", t.name, idx.join(", "), at(value)?, at(&cond)?))
}

/// Has the value a read of a tensor at all, which can say what an axis ranges over?
fn plainly_ranged(value: &F) -> bool {
    let mut all = Vec::new();
    array::names_in(value, &mut all);
    !all.is_empty()
        && !matches!(value, F::Call { name, .. } if matches!(name.as_str(), "zeros" | "ones" | "full" | "empty" | "arange" | "eye" | "chunk" | "split"))
}

/// Slots of a left side with slices: the axes that are written, and one for each slice.
fn sliced_slots(slots: &[String], declared: &Option<Vec<String>>) -> Vec<String> {
    let dims = declared.clone().unwrap_or_default();
    let mut taken: Vec<String> = slots.iter().filter_map(|s| axis_of(s)).map(String::from).collect();
    let mut out = Vec::new();
    for (n, s) in slots.iter().enumerate() {
        if axis_of(s).is_some() {
            out.push(s.clone());
            continue;
        }
        let own = dims.get(n).map(|d| d.to_lowercase()).filter(|l| l.len() == 1 && !taken.contains(l));
        let letter =
            own.or_else(|| ["i", "j", "k", "l"].map(String::from).into_iter().find(|l| !taken.contains(l)));
        let letter = letter.unwrap_or_else(|| "i".into());
        taken.push(letter.clone());
        out.push(letter);
    }
    out
}

/// `y, i = max(x, dim=1)`, `a, b = x.chunk(2)`, `y[i], z[i] = a, b`
fn several(text: &str, targets: &[Target], rest: &[Token], names: &Names) -> Option<String> {
    let is_value = |n: &str| names.tensors.contains_key(n);
    let mut reader = Reader { text, tokens: rest, at: 0, is_value: &is_value, depth: 0, loose: names.loose };
    let mut values = vec![reader.expr()?];
    while reader.eat(",") {
        values.push(reader.expr()?);
    }
    while reader.eat(";") {}
    if reader.at != rest.len() {
        return None;
    }
    let one = |t: &Target, f: &F| written(t, "=", "", f, names);
    if values.len() == targets.len() {
        let all: Option<Vec<String>> = targets.iter().zip(&values).map(|(t, f)| one(t, f)).collect();
        return all.map(|a| a.join("  "));
    }
    let [value] = &values[..] else { return None };
    match value {
        F::Call { name, on, path, args } if matches!(name.as_str(), "max" | "min") && targets.len() == 2 => {
            let arg = F::Call { name: format!("arg{name}"), on: on.clone(), path: *path, args: args.clone() };
            Some(format!("{}  {}", one(&targets[0], value)?, one(&targets[1], &arg)?))
        }
        F::Fold(name, head, axes, body) if matches!(name.as_str(), "max" | "min") && targets.len() == 2 => {
            let arg = F::Fold(format!("arg{name}"), head.clone(), axes.clone(), body.clone());
            Some(format!("{}  {}", one(&targets[0], value)?, one(&targets[1], &arg)?))
        }
        F::Call { name, on, args, .. } if matches!(name.as_str(), "chunk" | "split" | "tensor_split") => {
            parts_of(targets, on.as_deref(), args, names)
        }
        _ => None,
    }
}

/// `a[t, d in 0..D] = x[t, d]`, `b[t, d in 0..D] = x[t, d + D]`
fn parts_of(
    targets: &[Target],
    on: Option<&F>,
    args: &[(Option<String>, F)],
    names: &Names,
) -> Option<String> {
    let f = on.or_else(|| args.first().map(|a| &a.1))?;
    let F::Name(name) = f else { return None };
    let dims = names.tensors.get(name)?;
    let axis = args.iter().find(|a| matches!(a.0.as_deref(), Some("dim" | "axis")));
    let n = match axis.map(|a| &a.1) {
        Some(F::Number(n)) => n.parse::<usize>().ok()?,
        Some(F::Prefix('-', _)) => dims.len() - 1,
        _ => 0,
    };
    let arrays = Arrays::new(names, Vec::new(), Vec::new());
    let part = array::halved(dims.get(n)?, &targets.len().to_string());
    let letters: Vec<String> = dims.iter().map(|d| arrays.letter(d.trim_start_matches("2*"))).collect();
    let line = |(k, t): (usize, &Target)| {
        let slots: Vec<String> = letters
            .iter()
            .enumerate()
            .map(|(d, l)| if d == n { format!("{l} in 0..{part}") } else { l.clone() })
            .collect();
        let mut idx = letters.clone();
        idx[n] = match k {
            0 => letters[n].clone(),
            1 => format!("{} + {part}", letters[n]),
            k => format!("{} + {k} * {part}", letters[n]),
        };
        format!("{}[{}] = {name}[{}]", t.name, slots.join(", "), idx.join(", "))
    };
    Some(targets.iter().enumerate().map(line).collect::<Vec<_>>().join("  "))
}

/// `return e` defines the only result.
fn results_of(text: &str, rest: &[Token], names: &Names, results: &[String]) -> Option<String> {
    let [result] = results else { return None };
    let (value, _) = whole(text, rest, names)?;
    let rank = names.tensors.get(result)?.len();
    let mut all = Vec::new();
    array::names_in(&value, &mut all);
    let free: Vec<String> =
        all.into_iter().filter(|n| !names.tensors.contains_key(n) && !names.sizes.contains(n)).collect();
    let slots = (free.len() == rank && rank > 0).then_some(free);
    let t = Target { name: result.clone(), dtype: None, slots, len: 0 };
    written(&t, "=", "", &value, names)
}

#[cfg(test)]
mod tests;
