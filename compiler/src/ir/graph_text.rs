//! The graph as text, and back.
//!
//! A line each for what a graph holds; expressions are numbered, and each definition has its formula in a comment.
//! What is printed reads back to the same graph: `print(&read(&print(g))?) == print(g)`.

use super::graph::*;
use crate::vocab::dtype::{DType, Ty, Value};
use crate::vocab::func::FUNCS;
use crate::vocab::monoid::Monoid;
use girih_dsl::ast::Span;
use std::fmt::Write;

const ROUNDINGS: [(&str, Rounding); 2] = [("fixed", Rounding::Fixed), ("movable", Rounding::Movable)];

const ROLES: [(&str, Role); 5] = [
    ("input", Role::Input),
    ("inout", Role::Inout),
    ("result", Role::Result),
    ("local", Role::Local),
    ("table", Role::Table),
];
const MONOIDS: [Monoid; 8] = [
    Monoid::Sum,
    Monoid::Prod,
    Monoid::Max,
    Monoid::Min,
    Monoid::Any,
    Monoid::All,
    Monoid::ArgMax,
    Monoid::ArgMin,
];
const TYPES: [Ty; 5] = [Ty::Bool, Ty::I32, Ty::I64, Ty::F32, Ty::F64];
const OPS: [(&str, UpdateOp); 4] =
    [("set", UpdateOp::Set), ("add", UpdateOp::Add), ("max", UpdateOp::Max), ("min", UpdateOp::Min)];

fn name_of<T: PartialEq>(table: &[(&'static str, T)], v: T) -> &'static str {
    table.iter().find(|(_, x)| *x == v).map_or("", |(n, _)| n)
}

fn span(s: Span) -> String {
    format!("@{}:{}:{}", s.file, s.start, s.end)
}

fn read_span(w: &str) -> Option<Span> {
    let mut parts = w.strip_prefix('@')?.split(':').map(str::parse);
    let mut part = || parts.next()?.ok();
    Some(Span { file: part()?, start: part()?, end: part()? })
}

fn list(v: &[i64]) -> String {
    format!("[{}]", v.iter().map(i64::to_string).collect::<Vec<_>>().join(" "))
}

fn ids(prefix: char, v: impl Iterator<Item = u32>) -> String {
    format!("[{}]", v.map(|i| format!("{prefix}{i}")).collect::<Vec<_>>().join(" "))
}

fn exprs(v: &[ExprId]) -> String {
    ids('e', v.iter().map(|e| e.0))
}

fn axes(v: &[AxisId]) -> String {
    ids('a', v.iter().map(|a| a.0))
}

fn maybe(e: Option<ExprId>) -> String {
    e.map_or("-".into(), |e| format!("e{}", e.0))
}

/// A value with its type: floats by their bits, with the number for people.
fn value(v: Value) -> String {
    match v {
        Value::Bool(b) => format!("bool {}", b as u8),
        Value::I32(i) => format!("i32 {i}"),
        Value::I64(i) => format!("i64 {i}"),
        Value::F32(f) => format!("f32 0x{:08x}", f.to_bits()),
        Value::F64(f) => format!("f64 0x{:016x}", f.to_bits()),
    }
}

fn combine(c: Combine) -> String {
    match c {
        Combine::Builtin(m) => m.name().to_string(),
        Combine::Fn(f) => format!("fn{}", f.0),
    }
}

/// Writes a graph. Writing to a string does not fail.
pub fn print(g: &Graph) -> String {
    let mut out = String::new();
    let o = &mut out;
    let _ = writeln!(o, "graph {:?}", g.op);
    g.sizes.iter().for_each(|(n, v)| line(o, format!("size {n:?} {v}")));
    g.consts.iter().for_each(|(n, v)| line(o, format!("const {n:?} {}", value(*v))));
    g.tensors.iter().for_each(|t| line(o, tensor(t)));
    for s in &g.scalars {
        let default = s.default.map_or("-".to_string(), value);
        let range = s.range.map_or("-".to_string(), |r| format!("{}..{}", r.0, r.1));
        line(o, format!("scalar {:?} {} {default} {range} {}", s.name, s.dtype.name(), span(s.span)));
    }
    for a in &g.axes {
        line(o, format!("axis {:?} e{} e{} {}", a.name, a.lo.0, a.hi.0, span(a.span)));
    }
    for (i, e) in g.exprs.iter().enumerate() {
        line(o, format!("e{i} {} {} {}", e.ty.name(), expr(&e.expr), span(e.span)));
    }
    for f in &g.fold_fns {
        line(o, format!("fn {:?} {} e{} e{}", f.name, f.ty.name(), f.body.0, f.unit.0));
    }
    g.stmts.iter().for_each(|s| stmt(o, g, s));
    for x in &g.outputs {
        let inout = x.inout.map_or("-".to_string(), |t| format!("t{}", t.0));
        let shape = x.shape.as_ref().map_or(String::new(), |s| format!(" {}", list(s)));
        line(o, format!("output {:?} t{} {inout}{shape}", x.name, x.tensor.0));
    }
    for t in &g.tiles {
        let targets: Vec<String> = t.targets.iter().map(|x| format!("{x:?}")).collect();
        let at: Vec<String> = t.of.iter().chain(&t.at).map(|&s| span(s)).collect();
        let called = if t.of.is_some() { "called" } else { "own" };
        let def = t.def.as_deref().unwrap_or("");
        line(o, format!("tile {def:?} [{}] {called} [{}]", targets.join(" "), at.join(" ")));
        for s in &t.settings {
            let words: Vec<String> = s.choices.iter().map(word).collect();
            let axis = s.axis.as_deref().unwrap_or("");
            line(o, format!("setting {:?} {axis:?} [{}] {}", s.key, words.join(" "), span(s.span)));
        }
    }
    out
}

fn line(out: &mut String, text: String) {
    out.push_str(&text);
    out.push('\n');
}

fn word(w: &Word) -> String {
    match w {
        Word::Int(v) => v.to_string(),
        Word::Name(n) => format!("{n:?}"),
        Word::Apply(f, a) => format!("apply {f:?} {}", word(a)),
    }
}

fn tensor(t: &Tensor) -> String {
    let range = t.range.map_or("-".to_string(), |r| format!("{}..{}", r.0, r.1));
    format!(
        "tensor {:?} {} {} {} lo {} strides {} range {range} unique {} cast {} align {} version {} {}",
        t.name,
        name_of(&ROLES, t.role),
        t.dtype.name(),
        list(&t.dims),
        list(&t.lo),
        list(&t.strides),
        t.unique as u8,
        t.cast as u8,
        t.align,
        t.version,
        span(t.span)
    )
}

fn expr(e: &Expr) -> String {
    match e {
        Expr::Lit(v) => format!("lit {}", value(*v)),
        Expr::Axis(a) => format!("axis a{}", a.0),
        Expr::Scalar(s) => format!("scalar {}", s.0),
        Expr::Param(i) => format!("param {i}"),
        Expr::Read(r) => {
            let access = match r.access {
                Access::Proven => "proven".to_string(),
                Access::Checked => "checked".to_string(),
                Access::Else(d) => format!("else e{}", d.0),
            };
            format!("read t{} {} {access}", r.tensor.0, exprs(&r.index))
        }
        // By the name of the variant: `-` would be two functions.
        Expr::Call(f, args) => format!("call {f:?} {}", exprs(args)),
        Expr::Cast(a) => format!("cast e{}", a.0),
        Expr::Round(d, how, a) => format!("round {} {} e{}", name_of(&ROUNDINGS, *how), d.name(), a.0),
        Expr::Select(c, a, b) => format!("select e{} e{} e{}", c.0, a.0, b.0),
        Expr::Fold(f) => {
            format!("fold {} {} {} e{}", combine(f.combine), axes(&f.axes), maybe(f.cond), f.body.0)
        }
    }
}

fn define(d: &Define) -> String {
    format!("t{} {} e{} {}", d.target.0, axes(&d.axes), d.value.0, span(d.span))
}

fn stmt(o: &mut String, g: &Graph, s: &Stmt) {
    match s {
        Stmt::Define(d) => {
            comment(o, g, d);
            line(o, format!("define {}", define(d)));
        }
        Stmt::Scan(s) => line(
            o,
            format!(
                "scan t{} {} along {} {} {} e{} {}",
                s.target.0,
                axes(&s.axes),
                s.along,
                combine(s.combine),
                maybe(s.cond),
                s.body.0,
                span(s.span)
            ),
        ),
        Stmt::Sort(s) => line(
            o,
            format!("sort t{} {} along {} e{} {}", s.target.0, axes(&s.axes), s.along, s.key.0, span(s.span)),
        ),
        Stmt::Recur(r) => {
            r.members.iter().for_each(|d| comment(o, g, d));
            line(o, format!("recur {}", r.members.len()));
            r.members.iter().for_each(|d| line(o, format!("member {}", define(d))));
            for s in &r.steps {
                let p: Vec<i64> = s.position.iter().map(|&p| p as i64).collect();
                line(o, format!("step {} {}", list(&p), s.descending as u8));
            }
        }
        Stmt::Update(u) => {
            let base = match u.base {
                Base::Tensor(t) => format!("t{}", t.0),
                Base::Unit => "-".to_string(),
            };
            line(
                o,
                format!(
                    "update t{} {} {base} {} {} proven {} distinct {} {} e{} {}",
                    u.target.0,
                    name_of(&OPS, u.op),
                    axes(&u.axes),
                    exprs(&u.index),
                    u.proven as u8,
                    u.distinct as u8,
                    maybe(u.cond),
                    u.value.0,
                    span(u.span)
                ),
            );
        }
        Stmt::Table { target, values } => {
            let all: Vec<String> = values.iter().map(|v| value(*v)).collect();
            line(o, format!("values t{} {} {}", target.0, all.len(), all.join(" ")));
        }
    }
}

/// A definition as people write it, in a comment.
fn comment(o: &mut String, g: &Graph, d: &Define) {
    let names: Vec<&str> = d.axes.iter().map(|&a| g.axis(a).name.as_str()).collect();
    line(o, format!("// {}[{}] = {}", g.tensor(d.target).name, names.join(", "), formula(g, d.value)));
}

/// An expression as people write it, cut where it gets long.
pub fn formula(g: &Graph, e: ExprId) -> String {
    let mut text = String::new();
    shown(g, e, &mut text);
    text
}

/// An expression as people write it, cut where it gets long.
fn shown(g: &Graph, e: ExprId, out: &mut String) {
    if out.len() > 400 {
        if !out.ends_with('…') {
            out.push('…');
        }
        return;
    }
    let each = |all: &[ExprId], out: &mut String| {
        for (i, &a) in all.iter().enumerate() {
            out.push_str(if i > 0 { ", " } else { "" });
            shown(g, a, out);
        }
    };
    match g.expr(e) {
        Expr::Lit(Value::Bool(b)) => out.push_str(&b.to_string()),
        Expr::Lit(Value::I32(v)) => out.push_str(&v.to_string()),
        Expr::Lit(Value::I64(v)) => out.push_str(&v.to_string()),
        Expr::Lit(Value::F32(v)) => out.push_str(&format!("{v:?}")),
        Expr::Lit(Value::F64(v)) => out.push_str(&format!("{v:?}")),
        Expr::Axis(a) => out.push_str(&g.axis(*a).name),
        Expr::Scalar(s) => out.push_str(&g.scalars[s.0 as usize].name),
        Expr::Param(i) => out.push_str(["a", "b"][*i as usize & 1]),
        Expr::Read(r) => {
            out.push_str(&g.tensor(r.tensor).name);
            out.push('[');
            each(&r.index, out);
            out.push(']');
            if let Access::Else(d) = r.access {
                out.push_str(" else ");
                shown(g, d, out);
            }
        }
        Expr::Call(f, args) if args.len() == 2 && !f.name().starts_with(char::is_alphabetic) => {
            out.push('(');
            shown(g, args[0], out);
            out.push_str(&format!(" {} ", f.name()));
            shown(g, args[1], out);
            out.push(')');
        }
        Expr::Call(f, args) => {
            out.push_str(f.name());
            out.push('(');
            each(args, out);
            out.push(')');
        }
        Expr::Cast(a) => {
            out.push_str(&format!("{}(", g.ty(e).name()));
            shown(g, *a, out);
            out.push(')');
        }
        Expr::Round(d, _, a) => {
            out.push_str(&format!("{}(", d.name()));
            shown(g, *a, out);
            out.push(')');
        }
        Expr::Select(c, a, b) => {
            out.push_str("if ");
            shown(g, *c, out);
            out.push_str(" then ");
            shown(g, *a, out);
            out.push_str(" else ");
            shown(g, *b, out);
        }
        Expr::Fold(f) => {
            let names: Vec<&str> = f.axes.iter().map(|&a| g.axis(a).name.as_str()).collect();
            let name = match f.combine {
                Combine::Builtin(m) => m.name(),
                Combine::Fn(x) => &g.fold_fn(x).name,
            };
            out.push_str(&format!("{name}[{}", names.join(", ")));
            if let Some(c) = f.cond {
                out.push_str(" where ");
                shown(g, c, out);
            }
            out.push_str("](");
            shown(g, f.body, out);
            out.push(')');
        }
    }
}

/// Reads what [`print`] writes. The error names the line.
pub fn read(text: &str) -> Result<Graph, String> {
    let mut g = Graph::default();
    for (i, l) in text.lines().enumerate() {
        let l = l.trim();
        if l.is_empty() || l.starts_with("//") {
            continue;
        }
        read_line(&mut g, l).ok_or_else(|| format!("line {}: not a line of a graph: {l}", i + 1))?;
    }
    super::graph_verify::verify(&g).map_err(|w| w.join("\n"))?;
    Ok(g)
}

/// The words of a line: texts in quotes (with Rust's escapes), brackets, and what stands between spaces.
struct Words<'a> {
    rest: &'a str,
}

impl Words<'_> {
    fn next(&mut self) -> Option<String> {
        self.rest = self.rest.trim_start();
        let first = self.rest.chars().next()?;
        if first == '"' {
            return self.quoted();
        }
        let end = match first {
            '[' | ']' => 1,
            _ => self.rest.find([' ', '[', ']']).unwrap_or(self.rest.len()),
        };
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(word.to_string())
    }

    fn quoted(&mut self) -> Option<String> {
        let mut out = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = &self.rest[i + 1..];
                    return Some(out);
                }
                '\\' => match chars.next()?.1 {
                    'n' => out.push('\n'),
                    't' => out.push('\t'),
                    'r' => out.push('\r'),
                    '0' => out.push('\0'),
                    'u' => {
                        let hex: String =
                            chars.by_ref().map(|c| c.1).skip(1).take_while(|c| *c != '}').collect();
                        out.push(char::from_u32(u32::from_str_radix(&hex, 16).ok()?)?);
                    }
                    c => out.push(c),
                },
                c => out.push(c),
            }
        }
        None
    }

    fn word(&mut self, expected: &str) -> Option<()> {
        (self.next()? == expected).then_some(())
    }

    fn int<T: std::str::FromStr>(&mut self) -> Option<T> {
        self.next()?.parse().ok()
    }

    fn flag(&mut self) -> Option<bool> {
        match self.next()?.as_str() {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        }
    }

    fn id(&mut self, prefix: char) -> Option<u32> {
        self.next()?.strip_prefix(prefix)?.parse().ok()
    }

    fn expr(&mut self) -> Option<ExprId> {
        self.id('e').map(ExprId)
    }

    fn tensor(&mut self) -> Option<TensorId> {
        self.id('t').map(TensorId)
    }

    /// `[…]`, each part read by `f` from its word.
    fn list<T>(&mut self, f: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
        self.word("[")?;
        let mut out = Vec::new();
        loop {
            match self.next()?.as_str() {
                "]" => return Some(out),
                w => out.push(f(w)?),
            }
        }
    }

    fn ints<T: std::str::FromStr>(&mut self) -> Option<Vec<T>> {
        self.list(|w| w.parse().ok())
    }

    fn exprs(&mut self) -> Option<Vec<ExprId>> {
        self.list(|w| w.strip_prefix('e')?.parse().ok().map(ExprId))
    }

    fn axes(&mut self) -> Option<Vec<AxisId>> {
        self.list(|w| w.strip_prefix('a')?.parse().ok().map(AxisId))
    }

    fn maybe(&mut self) -> Option<Option<ExprId>> {
        match self.next()?.as_str() {
            "-" => Some(None),
            w => Some(Some(ExprId(w.strip_prefix('e')?.parse().ok()?))),
        }
    }

    fn span(&mut self) -> Option<Span> {
        read_span(&self.next()?)
    }

    fn ty(&mut self) -> Option<Ty> {
        let w = self.next()?;
        TYPES.into_iter().find(|t| t.name() == w)
    }

    fn dtype(&mut self) -> Option<DType> {
        DType::parse(&self.next()?)
    }

    fn value(&mut self) -> Option<Value> {
        let ty = self.ty()?;
        self.value_of(ty)
    }

    fn value_of(&mut self, ty: Ty) -> Option<Value> {
        let w = self.next()?;
        let bits = || u64::from_str_radix(w.strip_prefix("0x")?, 16).ok();
        Some(match ty {
            Ty::Bool => Value::Bool(w == "1"),
            Ty::I32 => Value::I32(w.parse().ok()?),
            Ty::I64 => Value::I64(w.parse().ok()?),
            Ty::F32 => Value::F32(f32::from_bits(bits()? as u32)),
            Ty::F64 => Value::F64(f64::from_bits(bits()?)),
        })
    }

    fn range(&mut self) -> Option<Option<(i64, i64)>> {
        match self.next()?.as_str() {
            "-" => Some(None),
            w => {
                let (lo, hi) = w.split_once("..")?;
                Some(Some((lo.parse().ok()?, hi.parse().ok()?)))
            }
        }
    }

    fn combine(&mut self) -> Option<Combine> {
        let w = self.next()?;
        let built_in = MONOIDS.into_iter().find(|m| m.name() == w).map(Combine::Builtin);
        built_in.or_else(|| Some(Combine::Fn(FoldFnId(w.strip_prefix("fn")?.parse().ok()?))))
    }

    fn define(&mut self) -> Option<Define> {
        Some(Define { target: self.tensor()?, axes: self.axes()?, value: self.expr()?, span: self.span()? })
    }
}

fn read_line(g: &mut Graph, text: &str) -> Option<()> {
    let mut w = Words { rest: text };
    let head = w.next()?;
    match head.as_str() {
        "graph" => g.op = w.next()?,
        "size" => g.sizes.push((w.next()?, w.int()?)),
        "const" => g.consts.push((w.next()?, w.value()?)),
        "tensor" => g.tensors.push(read_tensor(&mut w)?),
        "scalar" => {
            let (name, dtype) = (w.next()?, w.dtype()?);
            let default = match w.next()?.as_str() {
                "-" => None,
                t => Some(w.value_of(TYPES.into_iter().find(|x| x.name() == t)?)?),
            };
            g.scalars.push(Scalar { name, dtype, default, range: w.range()?, span: w.span()? });
        }
        "axis" => g.axes.push(Axis { name: w.next()?, lo: w.expr()?, hi: w.expr()?, span: w.span()? }),
        "fn" => {
            let (name, ty) = (w.next()?, w.ty()?);
            g.fold_fns.push(FoldFn { name, ty, body: w.expr()?, unit: w.expr()? });
        }
        "output" => {
            let (name, tensor) = (w.next()?, w.tensor()?);
            let inout = match w.next()?.as_str() {
                "-" => None,
                t => Some(TensorId(t.strip_prefix('t')?.parse().ok()?)),
            };
            let shape = w.ints();
            g.outputs.push(Output { name, tensor, inout, shape });
        }
        "tile" => {
            let def = Some(w.next()?).filter(|d| !d.is_empty());
            let targets = w.list(|x| Some(x.to_string()))?;
            let called = w.next()? == "called";
            let mut at = w.list(read_span)?;
            let of = called.then(|| (!at.is_empty()).then(|| at.remove(0))).flatten();
            g.tiles.push(TileBlock { def, at, of, targets, settings: Vec::new() });
        }
        "setting" => {
            let (key, axis) = (w.next()?, Some(w.next()?).filter(|a| !a.is_empty()));
            let choices = read_words(&mut w)?;
            let s = Setting { key, axis, choices, span: w.span()? };
            g.tiles.last_mut()?.settings.push(s);
        }
        "define" | "scan" | "sort" | "recur" | "member" | "step" | "update" | "values" => {
            read_stmt(g, &head, &mut w)?
        }
        _ => {
            let at: usize = head.strip_prefix('e')?.parse().ok()?;
            let ty = w.ty()?;
            let expr = read_expr(&mut w)?;
            let span = w.span()?;
            // Numbers must come out as they stand: the text lists each expression once, in order.
            (g.add(expr, ty, span).0 as usize == at).then_some(())?;
        }
    }
    w.next().is_none().then_some(())
}

fn read_words(w: &mut Words) -> Option<Vec<Word>> {
    w.word("[")?;
    let mut out = Vec::new();
    loop {
        w.rest = w.rest.trim_start();
        if let Some(rest) = w.rest.strip_prefix(']') {
            w.rest = rest;
            return Some(out);
        }
        out.push(read_word(w)?);
    }
}

fn read_word(w: &mut Words) -> Option<Word> {
    if w.rest.trim_start().starts_with('"') {
        return w.next().map(Word::Name);
    }
    match w.next()?.as_str() {
        "apply" => Some(Word::Apply(w.next()?, Box::new(read_word(w)?))),
        v => v.parse().ok().map(Word::Int),
    }
}

fn read_tensor(w: &mut Words) -> Option<Tensor> {
    let name = w.next()?;
    let role = w.next()?;
    let role = ROLES.iter().find(|r| r.0 == role)?.1;
    let (dtype, dims) = (w.dtype()?, w.ints()?);
    w.word("lo")?;
    let lo = w.ints()?;
    w.word("strides")?;
    let strides = w.ints()?;
    w.word("range")?;
    let range = w.range()?;
    w.word("unique")?;
    let unique = w.flag()?;
    w.word("cast")?;
    let cast = w.flag()?;
    w.word("align")?;
    let align = w.int()?;
    w.word("version")?;
    let version = w.int()?;
    Some(Tensor {
        name,
        version,
        dtype,
        dims,
        lo,
        role,
        range,
        unique,
        cast,
        strides,
        align,
        span: w.span()?,
    })
}

fn read_expr(w: &mut Words) -> Option<Expr> {
    Some(match w.next()?.as_str() {
        "lit" => Expr::Lit(w.value()?),
        "axis" => Expr::Axis(AxisId(w.id('a')?)),
        "scalar" => Expr::Scalar(ScalarId(w.int()?)),
        "param" => Expr::Param(w.int()?),
        "read" => {
            let (tensor, index) = (w.tensor()?, w.exprs()?);
            let access = match w.next()?.as_str() {
                "proven" => Access::Proven,
                "checked" => Access::Checked,
                "else" => Access::Else(w.expr()?),
                _ => return None,
            };
            Expr::Read(Read { tensor, index, access })
        }
        "call" => {
            let name = w.next()?;
            let func = FUNCS.iter().map(|r| r.func).find(|f| format!("{f:?}") == name)?;
            Expr::Call(func, w.exprs()?)
        }
        "cast" => Expr::Cast(w.expr()?),
        "round" => {
            let how = w.next()?;
            let how = ROUNDINGS.iter().find(|r| r.0 == how)?.1;
            Expr::Round(w.dtype()?, how, w.expr()?)
        }
        "select" => Expr::Select(w.expr()?, w.expr()?, w.expr()?),
        "fold" => {
            let (combine, axes) = (w.combine()?, w.axes()?);
            Expr::Fold(Fold { combine, axes, cond: w.maybe()?, body: w.expr()? })
        }
        _ => return None,
    })
}

fn read_stmt(g: &mut Graph, head: &str, w: &mut Words) -> Option<()> {
    let stmt = match head {
        "define" => Stmt::Define(w.define()?),
        "scan" => {
            let (target, axes) = (w.tensor()?, w.axes()?);
            w.word("along")?;
            let (along, combine, cond) = (w.int()?, w.combine()?, w.maybe()?);
            Stmt::Scan(Scan { target, axes, along, combine, cond, body: w.expr()?, span: w.span()? })
        }
        "sort" => {
            let (target, axes) = (w.tensor()?, w.axes()?);
            w.word("along")?;
            Stmt::Sort(Sort { target, axes, along: w.int()?, key: w.expr()?, span: w.span()? })
        }
        "recur" => {
            w.int::<usize>()?;
            Stmt::Recur(Recur { members: Vec::new(), steps: Vec::new() })
        }
        "member" | "step" => {
            let Some(Stmt::Recur(r)) = g.stmts.last_mut() else { return None };
            match head {
                "member" => r.members.push(w.define()?),
                _ => r.steps.push(StepAxis { position: w.ints()?, descending: w.flag()? }),
            }
            return Some(());
        }
        "update" => {
            let target = w.tensor()?;
            let op = w.next()?;
            let op = OPS.iter().find(|o| o.0 == op)?.1;
            let base = match w.next()?.as_str() {
                "-" => Base::Unit,
                t => Base::Tensor(TensorId(t.strip_prefix('t')?.parse().ok()?)),
            };
            let (axes, index) = (w.axes()?, w.exprs()?);
            w.word("proven")?;
            let proven = w.flag()?;
            w.word("distinct")?;
            let distinct = w.flag()?;
            let cond = w.maybe()?;
            Stmt::Update(Update {
                target,
                base,
                axes,
                index,
                proven,
                distinct,
                op,
                cond,
                value: w.expr()?,
                span: w.span()?,
            })
        }
        _ => {
            let (target, n) = (w.tensor()?, w.int::<usize>()?);
            let values: Option<Vec<Value>> = (0..n).map(|_| w.value()).collect();
            Stmt::Table { target, values: values? }
        }
    };
    g.stmts.push(stmt);
    Some(())
}
