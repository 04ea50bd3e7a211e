//! Whole-array expressions in index notation: the dims of each value, and its element at given indices.

mod call;

use super::read::{F, binds};
use crate::foreign;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Text and how tightly its outermost operator binds.
pub type Printed = (String, u8);

const ATOM: u8 = 12;
const CHOICE: u8 = 0;

/// What the names of an op mean, as far as the words of its text say it.
#[derive(Default)]
pub struct Names {
    /// Dims of the tensors; numbers have none.
    pub tensors: BTreeMap<String, Vec<String>>,
    pub dtypes: BTreeMap<String, String>,
    pub sizes: Vec<String>,
    /// `&` and `|` join comparisons, and `^` is a power.
    pub loose: bool,
}

pub struct Arrays<'n> {
    pub names: &'n Names,
    /// Axes of the statement's left side.
    pub left: Vec<String>,
    /// Letters that folds have taken.
    pub used: RefCell<Vec<String>>,
    /// The dims that the statement's target has.
    pub target: Vec<String>,
    /// Statements that must stand before this one.
    pub before: RefCell<Vec<String>>,
    /// Values that were looked at: nested ones are looked at again and again, so a statement has a limit.
    pub seen: Cell<u32>,
}

/// Looks at values after which a statement is left as it is.
const LOOKS: u32 = 5000;

/// Functions of numbers that are called the same here.
const ELEMENTWISE: &[&str] = &[
    "abs",
    "sign",
    "sqrt",
    "rsqrt",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "atan2",
    "sinh",
    "cosh",
    "tanh",
    "erf",
    "erfc",
    "pow",
    "fma",
    "copysign",
    "floor",
    "ceil",
    "trunc",
    "round",
    "isnan",
    "isinf",
    "isfinite",
    "relu",
    "sigmoid",
    "silu",
    "gelu",
    "gelu_tanh",
    "softplus",
    "mish",
    "min",
    "max",
    "clamp",
    "cdiv",
];

const ALONG: &[&str] = &["softmax", "cumsum", "cumprod", "cummax", "cummin", "argsort"];

type Args = [(Option<String>, F)];

fn number(f: &F) -> Option<i64> {
    match f {
        F::Number(n) => n.parse().ok(),
        F::Prefix('-', a) => number(a).map(|n| -n),
        _ => None,
    }
}

fn named<'a>(args: &'a Args, names: &[&str]) -> Option<&'a F> {
    args.iter().find(|(n, _)| n.as_deref().is_some_and(|n| names.contains(&n))).map(|(_, f)| f)
}

fn position(args: &Args, at: usize) -> Option<&F> {
    args.iter().filter(|(n, _)| n.is_none()).map(|(_, f)| f).nth(at)
}

fn is_word(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || c == '_') && !text.starts_with(|c: char| c.is_ascii_digit())
}

/// In parentheses, where the operator around it binds tighter.
fn within(p: Printed, least: u8) -> String {
    if p.1 < least { format!("({})", p.0) } else { p.0 }
}

/// Does an expression name it outside of folds that bind it?
pub fn names_in(f: &F, out: &mut Vec<String>) {
    match f {
        F::Name(n) => {
            if !out.contains(n) {
                out.push(n.clone());
            }
        }
        F::Fold(_, _, axes, body) => {
            let mut inner = Vec::new();
            names_in(body, &mut inner);
            inner.retain(|n| !axes.contains(n) && !out.contains(n));
            out.extend(inner);
        }
        F::Call { on, args, .. } => {
            on.iter().for_each(|o| names_in(o, out));
            args.iter().for_each(|(_, a)| names_in(a, out));
        }
        F::Member(a, _) | F::Prefix(_, a) => names_in(a, out),
        F::Index(a, all) => {
            names_in(a, out);
            all.iter().for_each(|i| names_in(i, out));
        }
        F::Binary(_, a, b) | F::Else(a, b) => [a, b].iter().for_each(|x| names_in(x, out)),
        F::If(a, b, c) => [a, b, c].iter().for_each(|x| names_in(x, out)),
        F::List(all) => all.iter().for_each(|i| names_in(i, out)),
        F::Slice(_, ends) => ends.iter().flatten().for_each(|e| names_in(e, out)),
        F::Number(_) | F::Text(_) | F::Ellipsis => {}
    }
}

/// The expression with one name for another.
fn renamed(f: &F, from: &str, to: &str) -> F {
    let r = |f: &F| Box::new(renamed(f, from, to));
    match f {
        F::Name(n) if n == from => F::Name(to.into()),
        F::Fold(name, head, axes, body) if !axes.iter().any(|a| a == from) => {
            F::Fold(name.clone(), head.clone(), axes.clone(), r(body))
        }
        F::Call { name, on, path, args } => F::Call {
            name: name.clone(),
            on: on.as_ref().map(|o| r(o)),
            path: *path,
            args: args.iter().map(|(n, a)| (n.clone(), *r(a))).collect(),
        },
        F::Member(a, n) => F::Member(r(a), n.clone()),
        F::Prefix(op, a) => F::Prefix(*op, r(a)),
        F::Index(a, all) => F::Index(r(a), all.iter().map(|i| *r(i)).collect()),
        F::Binary(op, a, b) => F::Binary(op.clone(), r(a), r(b)),
        F::Else(a, b) => F::Else(r(a), r(b)),
        F::If(a, b, c) => F::If(r(a), r(b), r(c)),
        F::List(all) => F::List(all.iter().map(|i| *r(i)).collect()),
        F::Slice(axis, ends) => F::Slice(axis.clone(), ends.clone().map(|e| e.map(|e| *r(&e)).map(Box::new))),
        other => other.clone(),
    }
}

/// `a - b` of two texts, `D` for `2*D - D`.
fn less(hi: &str, lo: &str) -> String {
    match (hi.parse::<i64>(), lo.parse::<i64>()) {
        (Ok(a), Ok(b)) => return (a - b).to_string(),
        (_, Ok(0)) => return hi.into(),
        _ => {}
    }
    let sum = |t: &str| t.contains(['+', '-', ' ']);
    format!("{hi} - {}", if sum(lo) { format!("({lo})") } else { lo.into() })
}

fn plus(a: &str, b: &str) -> String {
    match (a, b) {
        ("0", b) => b.into(),
        (a, "0") => a.into(),
        (a, b) => format!("{a} + {b}"),
    }
}

/// `a * b` of texts.
fn times(a: &str, b: &str) -> String {
    let one = |t: &str| if t.contains([' ', '+', '-', '/', '%']) { format!("({t})") } else { t.to_string() };
    match (a, b) {
        ("1", b) => b.into(),
        (a, "1") => a.into(),
        (a, b) => format!("{} * {}", one(a), one(b)),
    }
}

pub fn halved(dim: &str, parts: &str) -> String {
    let plain = dim.replace(' ', "");
    if let Some(rest) = plain.strip_prefix(&format!("{parts}*")) {
        return rest.into();
    }
    if let Some(rest) = plain.strip_suffix(&format!("*{parts}")) {
        return rest.into();
    }
    if is_word(&plain) { format!("{plain} / {parts}") } else { format!("({plain}) / {parts}") }
}

impl Arrays<'_> {
    /// For a statement whose left side has these axes and whose target these dims.
    pub fn new(names: &Names, left: Vec<String>, target: Vec<String>) -> Arrays<'_> {
        let (used, before) = (RefCell::default(), RefCell::default());
        Arrays { names, left, used, target, before, seen: Cell::default() }
    }

    /// One more value is looked at, if that may be.
    fn look(&self) -> Option<()> {
        self.seen.set(self.seen.get() + 1);
        (self.seen.get() <= LOOKS).then_some(())
    }

    /// A letter for an axis over a dim that nothing else has.
    pub fn letter(&self, dim: &str) -> String {
        let taken = |l: &str| {
            self.names.tensors.contains_key(l)
                || self.names.sizes.iter().any(|s| s == l)
                || self.left.iter().any(|s| s == l)
                || self.used.borrow().iter().any(|s| s == l)
        };
        let own = (is_word(dim) && !dim.is_empty()).then(|| dim.to_lowercase());
        let own = own.filter(|l| l.len() <= 2 && l != dim && !crate::expected::is_reserved(l) && !taken(l));
        let pool = ["i", "j", "k", "l", "p", "q", "r", "s", "t", "u", "i2", "j2", "k2"];
        let letter = own.or_else(|| pool.into_iter().find(|l| !taken(l)).map(String::from));
        let letter = letter.unwrap_or_else(|| "i3".into());
        self.used.borrow_mut().push(letter.clone());
        letter
    }

    fn rank(&self, f: &F) -> Option<usize> {
        self.dims(f).map(|d| d.len())
    }

    /// The dims of a value.
    pub fn dims(&self, f: &F) -> Option<Vec<String>> {
        self.look()?;
        match f {
            F::Number(_) => Some(Vec::new()),
            F::Name(n) => Some(self.names.tensors.get(n).cloned().unwrap_or_default()),
            F::Index(base, index) => self.index_dims(base, index),
            F::Fold(name, _, _, body) => {
                let known = foreign::is_fold(name)
                    || name == "log_softmax"
                    || self.reduction(name, None, true, &[]).is_some();
                self.dims(body).filter(|d| d.is_empty() && known)
            }
            F::Prefix(_, a) => self.dims(a),
            F::Binary(op, a, b) if op == "@" => self.product_dims(a, b),
            F::Binary(_, a, b) | F::Else(a, b) => self.broadcast(&[a, b]),
            F::If(c, a, b) => self.broadcast(&[c, a, b]),
            F::Member(a, name) => match name.as_str() {
                "T" | "mT" => self.dims(a).map(|d| swapped(d, -2, -1)),
                "pi" | "inf" | "nan" | "size" | "shape" | "ndim" => Some(Vec::new()),
                _ => None,
            },
            F::Call { name, on, path, args } => self.call_dims(name, on.as_deref(), *path, args),
            F::List(_) | F::Text(_) | F::Slice(..) | F::Ellipsis => None,
        }
    }

    fn broadcast(&self, all: &[&F]) -> Option<Vec<String>> {
        let mut out: Vec<String> = Vec::new();
        for f in all {
            let dims = self.dims(f)?;
            for (back, dim) in dims.iter().rev().enumerate() {
                match out.len().checked_sub(back + 1) {
                    None => out.insert(0, dim.clone()),
                    Some(at) if out[at] == "1" => out[at] = dim.clone(),
                    Some(_) => {}
                }
            }
        }
        Some(out)
    }

    /// The element of an operand of a broadcast.
    fn at_last(&self, f: &F, idx: &[String]) -> Option<Printed> {
        let dims = self.dims(f)?;
        let own = idx.get(idx.len().checked_sub(dims.len())?..)?;
        let own: Vec<String> =
            own.iter().zip(&dims).map(|(i, d)| if d == "1" { "0".into() } else { i.clone() }).collect();
        self.at(f, &own)
    }

    /// The element of a value at these indices, as text.
    pub fn at(&self, f: &F, idx: &[String]) -> Option<Printed> {
        self.look()?;
        match f {
            F::Number(n) => Some((n.clone(), ATOM)),
            F::Name(n) if idx.is_empty() => Some((n.clone(), ATOM)),
            F::Name(n) => Some((format!("{n}[{}]", idx.join(", ")), ATOM)),
            F::Index(base, index) => self.index_at(base, index, idx),
            F::Fold(name, head, axes, body) => self.fold_at(name, head, axes, body),
            F::Prefix(op, a) => Some((format!("{op}{}", within(self.at_last(a, idx)?, 10)), 10)),
            F::Binary(op, a, b) if op == "@" => self.product_at(a, b, idx),
            F::Binary(op, a, b) => {
                let l = binds(op);
                let (x, y) = (self.at_last(a, idx)?, self.at_last(b, idx)?);
                // C's `&` of comparisons is `&&` here.
                let truth = |f: &F| self.is_truth(f);
                let counted = |f: &F, p: Printed| if truth(f) { (format!("i32({})", p.0), ATOM) } else { p };
                let (x, y) = match op.as_str() {
                    "+" | "-" | "*" | "/" if truth(a) != truth(b) => (counted(a, x), counted(b, y)),
                    _ => (x, y),
                };
                let op = match op.as_str() {
                    "&" if truth(a) && truth(b) => "&&",
                    "|" if truth(a) && truth(b) => "||",
                    op => op,
                };
                let l = if op.len() == 2 && (op == "&&" || op == "||") { binds(op) } else { l };
                Some((format!("{} {op} {}", within(x, l), within(y, l + 1)), l))
            }
            F::Else(a, b) => {
                Some((format!("({} else {})", self.at(a, idx)?.0, self.at_last(b, idx)?.0), ATOM))
            }
            F::If(c, a, b) => self.choice(c, a, b, idx),
            F::Member(a, name) => match name.as_str() {
                "T" | "mT" => {
                    let n = idx.len();
                    let mut idx = idx.to_vec();
                    if n >= 2 {
                        idx.swap(n - 1, n - 2);
                    }
                    self.at(a, &idx)
                }
                "pi" | "inf" | "nan" => Some((name.clone(), ATOM)),
                "size" => {
                    let all = self.dims(a)?;
                    Some((all.iter().fold("1".to_string(), |x, y| times(&x, y)), 9))
                }
                _ => None,
            },
            F::Call { name, on, path, args } => self.call_at(name, on.as_deref(), *path, args, idx),
            F::List(_) | F::Text(_) | F::Slice(..) | F::Ellipsis => None,
        }
    }

    /// Is the value a bool, as far as its words say?
    fn is_truth(&self, f: &F) -> bool {
        match f {
            F::Binary(op, ..) => (1..=3).contains(&binds(op)),
            F::Prefix('!', a) => self.is_truth(a),
            F::Name(n) => self.names.dtypes.get(n).is_some_and(|d| d == "bool"),
            F::Index(a, _) => self.is_truth(a),
            _ => false,
        }
    }

    /// A fold that is written as here; some have other names, or are made of others.
    fn fold_at(&self, name: &str, head: &str, axes: &[String], body: &F) -> Option<Printed> {
        let x = self.at(body, &[])?;
        let fold = match foreign::is_fold(name) {
            true => name,
            false if name == "log_softmax" => name,
            false => self.reduction(name, None, true, &[])?,
        };
        let count = |x: Printed| if self.is_truth(body) { (format!("i32({})", x.0), ATOM) } else { x };
        match fold {
            "sum" | "mean" | "prod" => Some((format!("{fold}[{head}]({})", count(x).0), ATOM)),
            "log_softmax" => {
                let ([axis], k) = (axes, self.letter("")) else { return None };
                let other = self.at(&renamed(body, axis, &k), &[])?.0;
                Some((format!("{} - logsumexp[{k}]({other})", within(x, 8)), 8))
            }
            fold => self.of_folds(fold, x, head, || {
                let ([axis], k) = (axes, self.letter("")) else { return None };
                Some((self.at(&renamed(body, axis, &k), &[])?.0, k))
            }),
        }
    }

    fn choice(&self, c: &F, a: &F, b: &F, idx: &[String]) -> Option<Printed> {
        let (c, a, b) = (self.at_last(c, idx)?, self.at_last(a, idx)?, self.at_last(b, idx)?);
        Some((format!("if {} then {} else {}", c.0, within(a, 1), b.0), CHOICE))
    }

    /// Indices with `…` written out, one for each dim and each new one.
    fn spelled(&self, base: &F, index: &[F]) -> Option<Vec<F>> {
        let rank = self.rank(base)?;
        let whole = || F::Slice(None, [None, None, None]);
        let new = |f: &F| matches!(f, F::Name(n) if n == "None" || n == "newaxis");
        let given = index.iter().filter(|f| !new(f) && **f != F::Ellipsis).count();
        let missing = rank.checked_sub(given)?;
        let mut out = Vec::new();
        let mut spread = false;
        for f in index {
            match f {
                F::Ellipsis => {
                    out.extend(std::iter::repeat_with(whole).take(missing));
                    spread = true;
                }
                f => out.push(f.clone()),
            }
        }
        if !spread {
            out.extend(std::iter::repeat_with(whole).take(missing));
        }
        Some(out)
    }

    /// A slice's first index, its step, and its length.
    fn slice(&self, ends: &[Option<Box<F>>; 3], dim: &str) -> Option<(String, i64, String)> {
        let end = |e: &Option<Box<F>>, or: &str| match e {
            None => Some(or.to_string()),
            Some(e) => match number(e) {
                Some(n) if n < 0 => Some(less(dim, &(-n).to_string())),
                _ => Some(self.at(e, &[])?.0),
            },
        };
        let step = ends[2].as_ref().map_or(Some(1), |s| number(s))?;
        if step == -1 && ends[0].is_none() && ends[1].is_none() {
            return Some((less(dim, "1"), -1, dim.into()));
        }
        let (lo, hi) = (end(&ends[0], "0")?, end(&ends[1], dim)?);
        let all = less(&hi, &lo);
        Some((lo, step, if step == 1 { all } else { halved(&all, &step.to_string()) }))
    }

    fn index_dims(&self, base: &F, index: &[F]) -> Option<Vec<String>> {
        if is_shape(base) {
            return Some(Vec::new());
        }
        if matches!(base, F::Number(_)) {
            return Some(Vec::new());
        }
        let dims = self.dims(base)?;
        if matches!(base, F::Name(n) if !self.names.tensors.contains_key(n)) {
            return None;
        }
        let (mut at, mut out) = (0, Vec::new());
        for f in self.spelled(base, index)? {
            match &f {
                F::Name(n) if n == "None" || n == "newaxis" => {
                    out.push("1".into());
                    continue;
                }
                F::Slice(_, ends) => out.push(self.slice(ends, dims.get(at)?)?.2),
                f => out.extend(self.dims(f)?),
            }
            at += 1;
        }
        Some(out)
    }

    fn index_at(&self, base: &F, index: &[F], idx: &[String]) -> Option<Printed> {
        if let (true, Some(F::Member(t, _))) = (is_shape(base), Some(base)) {
            let dims = self.dims(t)?;
            let n = number(index.first()?)?;
            let n = if n < 0 { n + dims.len() as i64 } else { n };
            let dim = dims.get(usize::try_from(n).ok()?)?.clone();
            let level = if is_word(&dim) || dim.parse::<i64>().is_ok() { ATOM } else { 8 };
            return Some((dim, level));
        }
        // A result of a statement before this one.
        if let F::Number(name) = base {
            let all: Vec<String> = index.iter().map(|i| Some(self.at(i, &[])?.0)).collect::<Option<_>>()?;
            return Some((format!("{name}[{}]", all.join(", ")), ATOM));
        }
        let dims = self.dims(base)?;
        let mut idx = idx.iter();
        let (mut at, mut inner) = (0, Vec::new());
        for f in self.spelled(base, index)? {
            match &f {
                F::Name(n) if n == "None" || n == "newaxis" => {
                    idx.next()?;
                    continue;
                }
                F::Slice(_, ends) => {
                    let (lo, step, _) = self.slice(ends, dims.get(at)?)?;
                    let i = idx.next()?;
                    inner.push(match step {
                        1 => plus(i, &lo),
                        -1 => format!("{lo} - {i}"),
                        s => plus(&times(&s.to_string(), i), &lo),
                    });
                }
                F::Name(n) if n == "end" && !self.names.tensors.contains_key(n) => {
                    inner.push(less(dims.get(at)?, "1"));
                }
                f => {
                    let own: Vec<String> = idx.by_ref().take(self.rank(f)?).cloned().collect();
                    let negative = number(f).filter(|n| *n < 0);
                    inner.push(match negative {
                        Some(n) => less(dims.get(at)?, &(-n).to_string()),
                        None => self.at(f, &own)?.0,
                    });
                }
            }
            at += 1;
        }
        self.at(base, &inner)
    }

    /// `a @ b`: rows by columns, batches in front.
    fn product_dims(&self, a: &F, b: &F) -> Option<Vec<String>> {
        let (x, y) = (self.dims(a)?, self.dims(b)?);
        Some(match (x.len(), y.len()) {
            (0, _) | (_, 0) => return None,
            (1, 1) => Vec::new(),
            (n, 1) => x[..n - 1].to_vec(),
            (1, m) => [&y[..m - 2], &y[m - 1..]].concat(),
            (n, m) => {
                let lead = if n >= m { &x[..n - 2] } else { &y[..m - 2] };
                [lead, &x[n - 2..n - 1], &y[m - 1..]].concat()
            }
        })
    }

    fn product_at(&self, a: &F, b: &F, idx: &[String]) -> Option<Printed> {
        let (x, y) = (self.dims(a)?, self.dims(b)?);
        let (n, m) = (x.len(), y.len());
        let k = self.letter(x.last()?);
        let mut left = idx.to_vec();
        let mut right = idx.to_vec();
        match (n, m) {
            (1, 1) => (left, right) = (vec![k.clone()], vec![k.clone()]),
            (_, 1) => {
                left.push(k.clone());
                right = vec![k.clone()];
            }
            (1, _) => {
                left = vec![k.clone()];
                right.insert(m - 2, k.clone());
            }
            _ => {
                let last = left.len().checked_sub(1)?;
                left[last] = k.clone();
                left.drain(..left.len().checked_sub(n)?);
                let row = right.len().checked_sub(2)?;
                right[row] = k.clone();
                right.drain(..right.len().checked_sub(m)?);
            }
        }
        let (p, q) = (self.at(a, &left)?, self.at(b, &right)?);
        Some((format!("sum[{k}]({} * {})", within(p, 9), within(q, 10)), ATOM))
    }
}

/// Two dims exchanged.
fn swapped(mut dims: Vec<String>, a: i64, b: i64) -> Vec<String> {
    let at = |n: i64| usize::try_from(n + dims.len() as i64).ok();
    if let (Some(a), Some(b)) = (at(a), at(b)) {
        dims.swap(a, b);
    }
    dims
}

fn is_shape(f: &F) -> bool {
    matches!(f, F::Member(_, m) if m == "shape")
}
