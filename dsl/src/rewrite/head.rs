//! The head of an op, written as other languages write it: `op f(float* x, int N) -> f32[N]`.

use super::{Edit, around_head, closing, parts, words};
use crate::foreign;
use crate::token::{Kind, Token};

#[derive(Default)]
struct Head {
    sizes: Vec<String>,
    params: Vec<String>,
    results: Vec<String>,
    wheres: String,
}

/// The head around the byte `at` in the words of this language.
pub fn head(text: &str, at: usize) -> Option<Edit> {
    let tokens = words(text);
    let (op, open) = around_head(text, &tokens, at)?;
    let word = |i: usize| tokens.get(i).map_or("", |t| t.text(text));
    let mut head = Head::default();
    let mut i = op + 2;
    if word(i) == "[" {
        let end = closing(text, &tokens, i)?;
        sizes(&mut head, text, &tokens[i + 1..end]);
        i = end + 1;
    } else if word(i) == "<" {
        let end = (i..open).find(|j| word(*j) == ">")?;
        sizes(&mut head, text, &tokens[i + 1..end]);
        i = end + 1;
    } else if word(i) == "("
        && let Some(end) = closing(text, &tokens, i)
        && word(end + 1) == "("
    {
        sizes(&mut head, text, &tokens[i + 1..end]);
        i = end + 1;
    }
    if word(i) != "(" {
        return None;
    }
    let end = closing(text, &tokens, i).filter(|e| *e < open)?;
    for p in parts(text, &tokens[i + 1..end]) {
        param(&mut head, &p)?;
    }
    i = end + 1;
    while matches!(word(i), "->" | "=" | ">" | ":" | "-") && i < open {
        i += 1;
    }
    let wheres = (i..open).find(|j| word(*j) == "where").unwrap_or(open);
    if wheres < open {
        head.wheres = format!(" where {}", &text[tokens[wheres + 1].start..tokens[open - 1].end]);
    }
    if i < wheres {
        results(&mut head, text, &tokens[i..wheres])?;
    }
    declare_sizes(&mut head);
    let mut new = String::new();
    if !head.sizes.is_empty() {
        new += &format!("[{}]", head.sizes.join(", "));
    }
    new += &format!("({})", head.params.join(", "));
    if !head.results.is_empty() {
        new += &format!(" -> ({})", head.results.join(", "));
    }
    new += &head.wheres;
    let range = tokens[op + 2].start..tokens[open - 1].end;
    let plain = |t: &str| t.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    // The whole head, which can be pasted over the old one.
    let start = tokens[op].start;
    (plain(&new) != plain(&text[range.clone()]))
        .then(|| Edit { at: start..range.end, text: format!("op {}{new}", word(op + 1)) })
}

fn sizes(head: &mut Head, text: &str, tokens: &[Token]) {
    for p in parts(text, tokens) {
        match p.split_once([':', '=']) {
            Some((name, rest))
                if p.contains("const") || p.contains('=') && rest.trim().parse::<i64>().is_ok() =>
            {
                let value = p.split('=').nth(1).map_or(String::new(), |v| format!(" = {}", v.trim()));
                head.params.push(format!("{}: const i32{value}", name.trim()));
            }
            Some((name, rest)) if foreign::is_like_a_dtype(rest.trim()) => {
                head.sizes.push(name.trim().to_string());
            }
            Some(_) => head.sizes.push(p),
            // `M N`
            None => head.sizes.extend(
                p.split_whitespace()
                    .filter(|w| !w.starts_with(|c: char| c.is_ascii_digit()))
                    .map(String::from),
            ),
        }
    }
}

/// The dtype in a path of words, `torch.bfloat16`.
fn dtype(words: &str) -> Option<String> {
    let last = words.rsplit(['.', ' ']).next().unwrap_or(words).trim_matches(['*', '&', ' ', '"', '\'']);
    foreign::dtype(last).or(foreign::is_like_a_dtype(last).then_some(last)).map(String::from)
}

fn is_name(word: &str) -> bool {
    !word.is_empty()
        && word.chars().all(|c| c.is_alphanumeric() || c == '_')
        && !word.starts_with(|c: char| c.is_ascii_digit())
}

/// The texts of all brackets behind a dtype: `[M][N]`, `(N)`.
fn dims(text: &str) -> Option<String> {
    let inside = text.trim().trim_matches(|c| "[]()".contains(c)).replace("][", ", ").replace(")(", ", ");
    (!inside.is_empty()).then_some(inside)
}

/// A dtype with its dims as one of here.
fn shaped(text: &str) -> Option<String> {
    let text = text.trim();
    // `[M, N] f32`
    if let Some((inside, after)) = text.strip_prefix('[').and_then(|t| t.split_once(']')) {
        return Some(format!("{}[{inside}]", dtype(after)?));
    }
    let at = text.find(['[', '(']).unwrap_or(text.len());
    let (name, rest) = text.split_at(at);
    let name = dtype(name.trim())?;
    Some(match dims(rest) {
        Some(d) => format!("{name}[{d}]"),
        None if text.contains('*') => format!("{name}[N]"),
        None => name,
    })
}

fn value(text: &str) -> String {
    let text = text.trim();
    foreign::value(text).unwrap_or(text).to_string()
}

fn param(head: &mut Head, text: &str) -> Option<()> {
    let text = text.trim();
    if text == "self" {
        return Some(());
    }
    let (left, default) = match text.split_once('=') {
        Some((l, d)) => (l.trim(), Some(value(d))),
        None => (text, None),
    };
    let with_default = |s: String| match &default {
        Some(d) => format!("{s} = {d}"),
        None => s,
    };
    let Some((name, rest)) = left.split_once(':') else {
        if let (true, Some(d)) = (is_name(left), &default) {
            let kind = match d.as_str() {
                "true" | "false" => "bool",
                d if d.parse::<i64>().is_ok() => "i32",
                _ => "f32",
            };
            head.params.push(format!("{left}: {kind} = {d}"));
            return Some(());
        }
        // `float* x`, `const float x[N]`, `int N`
        let left = left.trim_start_matches("const ").trim();
        let at = left.find('[').unwrap_or(left.len());
        let (words, brackets) = left.split_at(at);
        let at = words.trim_end().rfind([' ', '*', '&']).map(|n| n + 1)?;
        let (kind, name) = words.trim_end().split_at(at);
        let dtype = dtype(kind)?;
        match (dims(brackets), kind.contains('*')) {
            (Some(d), _) => head.params.push(format!("{name}: {dtype}[{d}]")),
            (None, true) => head.params.push(format!("{name}: {dtype}[N]")),
            // A size is known from the tensors.
            (None, false) if name.starts_with(|c: char| c.is_uppercase()) => head.sizes.push(name.into()),
            (None, false) => head.params.push(with_default(format!("{name}: {dtype}"))),
        }
        return Some(());
    };
    let words: Vec<&str> = name.split_whitespace().collect();
    let name = words.last()?.trim_start_matches(['&', '*']);
    let lead = words.first().filter(|_| words.len() > 1);
    let by_reference =
        words.last()?.starts_with('&') || lead.is_some_and(|l| matches!(*l, "ref" | "mut" | "inout"));
    let rest = rest.trim();
    let declared = |rest: &str| {
        // What follows the dims, such as `in 0..V`, stays.
        let (kind, more) = match rest.find(" in ") {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        shaped(kind).map(|s| format!("{s}{more}"))
    };
    if rest.ends_with("constexpr") || rest == "const" {
        head.params.push(with_default(format!("{name}: const i32")));
    } else if let Some(kind) = rest.strip_prefix("const ") {
        match kind.contains('[') {
            true => head.params.push(format!("{name}: {}", declared(kind)?)),
            false => head.params.push(with_default(format!("{name}: const {}", dtype(kind)?))),
        }
    } else if let Some(kind) = rest.strip_prefix("inout ") {
        head.params.push(format!("inout {name}: {}", declared(kind)?));
    } else if lead.is_some_and(|l| matches!(*l, "out" | "output" | "result")) {
        head.results.push(format!("{name}: {}", declared(rest)?));
    } else if lead.is_some_and(|l| *l == "const") {
        head.params.push(with_default(format!("{name}: const {}", dtype(rest)?)));
    } else if by_reference {
        head.params.push(format!("inout {name}: {}", declared(rest)?));
    } else {
        // A dtype parameter of the op, and what cannot be read, stay as they are.
        let kind = declared(rest).unwrap_or_else(|| rest.to_string());
        let tensor = kind.contains('[');
        let default = default.filter(|d| !(tensor && d == "None"));
        head.params.push(match default {
            Some(d) => format!("{name}: {kind} = {d}"),
            None => format!("{name}: {kind}"),
        });
    }
    Some(())
}

fn results(head: &mut Head, text: &str, tokens: &[Token]) -> Option<()> {
    let first = tokens.first()?;
    let inside = match (first.text(text), closing(text, tokens, 0)) {
        ("(", Some(end)) => &tokens[1..end],
        _ => tokens,
    };
    let names = ["y", "z", "w", "v"];
    for (n, p) in parts(text, inside).iter().enumerate() {
        let (name, kind) = match p.split_once(':') {
            Some((name, kind)) => (name.trim(), kind),
            None if matches!(p.trim(), "void" | "None") => return Some(()),
            None => (*names.get(n)?, p.as_str()),
        };
        head.results.push(format!("{name}: {}", shaped(kind).unwrap_or_else(|| kind.trim().to_string())));
    }
    Some(())
}

/// Sizes that stand in dims and that nothing declares.
fn declare_sizes(head: &mut Head) {
    let declared: Vec<String> = head
        .sizes
        .iter()
        .chain(&head.params)
        .map(|s| s.split([':', '=']).next().unwrap_or(s).trim().trim_start_matches("inout ").to_string())
        .collect();
    let mut found = Vec::new();
    for p in head.params.iter().chain(&head.results) {
        let Some(at) = p.find('[') else { continue };
        let dims = &p[at..p[at..].find(']').map_or(p.len(), |e| at + e)];
        for t in words(dims).iter().filter(|t| t.kind == Kind::Word) {
            let name = t.text(dims).to_string();
            let size = name.starts_with(|c: char| c.is_uppercase());
            if size && !declared.contains(&name) && !found.contains(&name) {
                found.push(name);
            }
        }
    }
    head.sizes.extend(found);
}
