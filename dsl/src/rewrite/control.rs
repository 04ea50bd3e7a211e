//! Statements around statements: branches, loops and stores by call, as other languages have them.

use super::*;

/// `if (c) { y[i] = a } else { y[i] = b }`
pub(super) fn chosen(text: &str, tokens: &[Token], names: &Names) -> Option<String> {
    let is_value = |n: &str| names.tensors.contains_key(n);
    let mut reader = Reader { text, tokens, at: 1, is_value: &is_value, depth: 0, loose: names.loose };
    let cond = reader.expr()?;
    reader.eat(":");
    let first = branch(&mut reader)?;
    let second = if reader.eat("else") {
        reader.eat(":");
        Some(branch(&mut reader)?)
    } else {
        None
    };
    if reader.at != tokens.len() {
        return None;
    }
    let other = match second {
        Some((t, v)) if t.name == first.0.name && t.slots == first.0.slots => v,
        Some(_) => return None,
        None => F::Number("0".into()),
    };
    let value = F::If(cond.into(), first.1.into(), other.into());
    written(&first.0, "=", "", &value, names)
}

/// `{ y[i] = a }`, `y[i] = a;`
pub(super) fn branch(reader: &mut Reader) -> Option<(Target, F)> {
    let braces = reader.eat("{");
    let t = target(reader.text, reader.tokens, reader.at)?;
    reader.at += t.len;
    let ("=", "", len) = assignment(reader.text, reader.tokens, reader.at)? else { return None };
    reader.at += len;
    let value = reader.expr()?;
    while reader.eat(";") {}
    (!braces || reader.eat("}")).then_some((t, value))
}

/// `for i in range(N): y[i] = x[i]`: what stands in the loop, alone.
pub(super) fn looped(text: &str, tokens: &[Token], names: &Names) -> Option<String> {
    let word = |i: usize| tokens.get(i).map_or("", |t| t.text(text));
    let mut at = if word(1) == "(" { closing(text, tokens, 1)? + 1 } else { 1 };
    let mut depth = 0usize;
    while word(1) != "(" && at < tokens.len() && !(depth == 0 && (word(at) == ":" || tokens[at].first)) {
        match word(at) {
            "(" | "[" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    at += usize::from(word(at) == ":");
    let mut end = tokens.len();
    if word(at) == "{" {
        end = closing(text, tokens, at).filter(|e| e + 1 == tokens.len())?;
        at += 1;
    }
    if word(end - 1) == "end" {
        end -= 1;
    }
    // `for i in …: s += x[i]` is a sum over i.
    let body = tokens.get(at..end)?;
    let header = &tokens[1..at];
    let axis = header.iter().find(|t| {
        let w = t.text(text);
        t.kind == Kind::Word && !crate::foreign::is_like_a_dtype(w)
    })?;
    let axis = axis.text(text);
    if let Some(t) = target(text, body, 0)
        && let Some((op @ ("+=" | "max=" | "min="), "", len)) = assignment(text, body, t.len)
        && !t.slots.iter().flatten().any(|s| s == axis)
    {
        let (value, _) = whole(text, &body[t.len + len..], names)?;
        let fold = match op {
            "+=" => "sum",
            "max=" => "max",
            _ => "min",
        };
        let value = F::Fold(fold.into(), axis.into(), vec![axis.into()], value.into());
        return written(&t, op, "", &value, names);
    }
    translated(text, body, names, &[])
}

/// Stores by a call: `tl.store(y + i, v)`, `atomicAdd(&h[b], 1)`, `T.copy(x, y)`.
pub(super) fn stored(text: &str, tokens: &[Token], names: &Names) -> Option<String> {
    let is_value = |n: &str| names.tensors.contains_key(n);
    let mut reader = Reader { text, tokens, at: 0, is_value: &is_value, depth: 0, loose: names.loose };
    let value = reader.expr()?;
    let increments = reader.look(0) == "+" && reader.look(1) == "+";
    if increments {
        reader.at += 2;
    }
    while reader.eat(";") {}
    if reader.at != tokens.len() {
        return None;
    }
    if increments {
        return place(&value)
            .map(|(name, index)| (name, index, F::Number("1".into()), "+="))
            .and_then(|p| update(&p.0, &p.1, &p.2, p.3, names));
    }
    let F::Call { name, args, .. } = &value else { return None };
    let plain: Vec<&F> = args.iter().filter(|a| a.0.is_none()).map(|a| &a.1).collect();
    let op = match name.as_str() {
        "store" => "=",
        "atomic_add" | "atomicAdd" | "at" => "+=",
        "atomic_max" | "atomicMax" => "max=",
        "atomic_min" | "atomicMin" => "min=",
        "copy" => {
            let [from, F::Name(to)] = plain[..] else { return None };
            let t = Target { name: to.clone(), dtype: None, slots: None, len: 0 };
            return written(&t, "=", "", from, names);
        }
        "gemm" => {
            let [a, b, F::Name(to)] = plain[..] else { return None };
            let t = Target { name: to.clone(), dtype: None, slots: None, len: 0 };
            let product = F::Binary("@".into(), Box::new(a.clone()), Box::new(b.clone()));
            return written(&t, "=", "", &product, names);
        }
        n if n.starts_with("reduce_") => {
            let [from, F::Name(to)] = plain[..] else { return None };
            let t = Target { name: to.clone(), dtype: None, slots: None, len: 0 };
            let rest = args.iter().filter(|a| a.0.is_some()).cloned();
            let args = [(None, from.clone())].into_iter().chain(rest).collect();
            let call = F::Call { name: n["reduce_".len()..].into(), on: None, path: true, args };
            return written(&t, "=", "", &call, names);
        }
        _ => return None,
    };
    if name == "at" {
        let [F::Name(to), index, value] = plain[..] else { return None };
        return update(to, std::slice::from_ref(index), value, op, names);
    }
    let [to, value, ..] = plain[..] else { return None };
    let (name, index) = place(to)?;
    update(&name, &index, value, op, names)
}

/// `y[i]`, `y + i`
pub(super) fn place(f: &F) -> Option<(String, Vec<F>)> {
    match f {
        F::Index(base, index) => match &**base {
            F::Name(n) => Some((n.clone(), index.clone())),
            _ => None,
        },
        F::Binary(op, a, b) if op == "+" => match &**a {
            F::Name(n) => Some((n.clone(), vec![(**b).clone()])),
            _ => None,
        },
        _ => None,
    }
}

/// `h[b[i]] += x[i]`, with an axis for whole tensors in it.
pub(super) fn update(name: &str, index: &[F], value: &F, op: &str, names: &Names) -> Option<String> {
    let arrays = Arrays::new(names, Vec::new(), Vec::new());
    let dims: Option<Vec<Vec<String>>> = index.iter().chain([value]).map(|f| arrays.dims(f)).collect();
    let dims = dims?.into_iter().max_by_key(Vec::len)?;
    let letters: Vec<String> = dims.iter().map(|d| arrays.letter(d)).collect();
    let at = |f: &F| {
        let n = arrays.dims(f)?.len();
        Some(arrays.at(f, &letters[..n])?.0)
    };
    let index: Vec<String> = index.iter().map(at).collect::<Option<_>>()?;
    Some(format!("{name}[{}] {op} {}", index.join(", "), at(value)?))
}
