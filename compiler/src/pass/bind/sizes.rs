//! What an op's sizes, dtype parameters and consts are, from the shapes and values that are given.
//!
//! A dim that is a size alone binds it; then a dim that is linear in one unknown size is solved; sizes may be derived,
//! consts have defaults. What is left must be given. Then every dim and every `where` is checked.

use super::build;
use super::elab::{Elab, Meaning};
use super::poly::Poly;
use super::typ::{Typ, Val};
use crate::host;
use crate::pass::module::Found;
use crate::vocab::dtype::{DTYPES, DType, Value};
use girih_dsl::ast::*;
use girih_dsl::diagnostic::Diagnostic;
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

/// What is known of one call of an op, or of one run.
#[derive(Default)]
pub struct Given {
    /// Dims of tensor parameters, as numbers and as polynomials (of an inlined call).
    pub shapes: HashMap<String, (Vec<i64>, Option<Vec<Poly>>)>,
    pub dtypes: HashMap<String, DType>,
    /// Sizes, with a polynomial if the caller has one.
    pub sizes: HashMap<String, (i64, Option<Poly>)>,
    /// Const parameters.
    pub consts: HashMap<String, (Value, Option<Poly>)>,
    /// Dtype parameters that are given by themselves.
    pub types: HashMap<String, DType>,
    /// Where to point for what is missing: the call, or nothing for a run.
    pub call: Option<Span>,
    /// The call's arguments by parameter.
    pub spans: HashMap<String, Span>,
}

impl Given {
    /// Where to point for what is wrong with a parameter: the argument, or what the op declares.
    fn place(&self, p: &Param, declared: Span) -> Span {
        self.spans.get(&p.name.text).copied().or(self.call).unwrap_or(declared)
    }
}

impl<'m> Elab<'m> {
    /// Binds everything that stands before the body. `None` after a report.
    pub fn bind_header(&mut self, op: &'m Op, given: &Given) -> Option<()> {
        self.take_names(op);
        self.bind_dtypes(op, given)?;
        for (name, (v, poly)) in &given.sizes {
            self.put_size(name, *v, poly.clone());
        }
        for p in op.params.iter().filter(|p| p.is_const) {
            if let Some((v, poly)) = given.consts.get(&p.name.text) {
                self.put_const(p, *v, poly.clone())?;
            }
        }
        self.solve(op, given)?;
        self.complete(op, given)?;
        self.check_dims(op, given)?;
        self.check_wheres(op)?;
        Some(())
    }

    /// Notes all value names of the op; two meanings for one name are an error.
    fn take_names(&mut self, op: &'m Op) {
        let sizes =
            op.sizes.iter().map(|s| (&s.name, matches!(s.kind, SizeKind::DType(_) | SizeKind::DTypeSet(..))));
        let params = op.params.iter().map(|p| (&p.name, false));
        let results = op.results.iter().map(|r| (&r.name, false));
        for (name, is_type) in sizes.chain(params).chain(results) {
            if is_type {
                continue;
            }
            if let Some(&at) = self.frame().taken.get(&name.text) {
                let d = Diagnostic::error("E0110", name.span, format!("`{}` is declared twice", name.text));
                self.report(
                    d.also(at, "first here").help("one value name has one meaning: rename one of them"),
                );
            }
            self.frame_mut().taken.insert(name.text.clone(), name.span);
        }
        for target in op.body.iter().flat_map(|s| &s.targets) {
            let (name, span) = (target.name.text.clone(), target.name.span);
            self.frame_mut().taken.entry(name).or_insert(span);
        }
    }

    fn bind_dtypes(&mut self, op: &'m Op, given: &Given) -> Option<()> {
        let mut ok = true;
        for s in &op.sizes {
            let Some(allowed) = self.kind(&s.kind) else {
                ok &= matches!(s.kind, SizeKind::Plain | SizeKind::Derived(_));
                continue;
            };
            let mut found: Option<(DType, Span)> = given.types.get(&s.name.text).map(|&d| (d, s.name.span));
            for p in op.params.iter().filter(|p| p.dtype.text == s.name.text) {
                let Some(&d) = given.dtypes.get(&p.name.text) else { continue };
                match found {
                    Some((f, at)) if f != d => {
                        let what =
                            format!("`{}` is {} here, but {} elsewhere", s.name.text, d.name(), f.name());
                        let e = Diagnostic::error("E0507", given.place(p, p.dtype.span), what);
                        let help = format!("tensors of one dtype parameter have one dtype: {}", converted(f));
                        self.report(e.also(at, "bound here").help(help));
                        ok = false;
                    }
                    Some(_) => {}
                    None => found = Some((d, given.place(p, p.dtype.span))),
                }
            }
            let chosen = found.map(|f| f.0).or(if allowed.len() == 1 { Some(allowed[0]) } else { None });
            match chosen {
                Some(d) if allowed.contains(&d) => {
                    self.frame_mut().dtypes.insert(s.name.text.clone(), d);
                }
                Some(d) => {
                    let names: Vec<&str> = allowed.iter().map(|a| a.name()).collect();
                    let what = format!("`{}` cannot be {}", s.name.text, d.name());
                    let e = Diagnostic::error("E0507", given.call.unwrap_or(s.name.span), what);
                    self.report(e.help(format!("it may be {}", names.join(", "))));
                    ok = false;
                }
                None => {
                    let what = format!("the dtype `{}` is not known", s.name.text);
                    let e = Diagnostic::error("E0513", given.call.unwrap_or(s.name.span), what);
                    self.report(e.help(format!("give it: --const {}={}", s.name.text, allowed[0].name())));
                    ok = false;
                }
            }
        }
        if !ok {
            return None;
        }
        for p in &op.params {
            let Some(d) = self.dtype(&p.dtype) else {
                ok = false;
                continue;
            };
            if let Some(&got) = given.dtypes.get(&p.name.text)
                && got != d
            {
                let what = format!("`{}` is {}, but {} is given", p.name.text, d.name(), got.name());
                let e = Diagnostic::error("E0507", given.place(p, p.dtype.span), what);
                self.report(match given.call {
                    Some(_) => e.also(p.dtype.span, "declared here").help(converted(d)),
                    None => {
                        e.help(format!("give {}, or declare `{}: {}`", d.name(), p.name.text, got.name()))
                    }
                });
                ok = false;
            }
        }
        ok.then_some(())
    }

    /// The dtypes that a dtype parameter may be; `None` if it is a size.
    pub fn kind(&mut self, kind: &SizeKind) -> Option<Vec<DType>> {
        let by = |f: fn(DType) -> bool| DTYPES.iter().map(|r| r.dtype).filter(|d| f(*d)).collect::<Vec<_>>();
        let name = match kind {
            SizeKind::Plain | SizeKind::Derived(_) => return None,
            SizeKind::DTypeSet(names, _) => {
                let all: Option<Vec<DType>> = names.iter().map(|n| self.dtype(n)).collect();
                return all;
            }
            SizeKind::DType(name) => name,
        };
        match name.text.as_str() {
            "float" => Some(by(DType::is_float)),
            "int" => Some(by(DType::is_int)),
            "any" => Some(by(|_| true)),
            _ => Some(vec![self.dtype(name)?]),
        }
    }

    fn put_size(&mut self, name: &str, v: i64, poly: Option<Poly>) {
        let id = self.g.int(v);
        let poly = poly.unwrap_or_else(|| Poly::var(name));
        let meaning = Meaning::Value(Val::new(Typ::Index, id), Some(poly));
        self.frame_mut().names.insert(name.into(), meaning);
    }

    fn put_const(&mut self, p: &Param, v: Value, poly: Option<Poly>) -> Option<()> {
        let dtype = self.dtype(&p.dtype)?;
        let id = self.g.lit(host::round(v, dtype));
        let value = self.constant_of(id, dtype);
        let poly = poly.unwrap_or_else(|| Poly::var(p.name.text.clone()));
        self.frame_mut().names.insert(p.name.text.clone(), Meaning::Value(value, Some(poly)));
        if let Some(range) = &p.range {
            self.check_const_range(p, range, value);
        }
        Some(())
    }

    fn check_const_range(&mut self, p: &Param, range: &Range, value: Val) {
        let Some(v) = build::literal_int(&self.g, value.id) else { return };
        if !self.knows(&range.lo) || !self.knows(&range.hi) {
            return;
        }
        if let Some((lo, hi)) = self.literal_range(range)
            && !(lo..hi).contains(&v)
        {
            let what = format!("`{}` is {v}, outside of its range {lo}..{hi}", p.name.text);
            let d = match self.frame().call {
                Some(call) => Diagnostic::error("E0510", call, what).also(p.name.span, "declared here"),
                None => Diagnostic::error("E0510", p.name.span, what),
            };
            self.report(d.help("give a value within the range"));
        }
    }

    /// The numbers of a range that is made of sizes and consts.
    pub fn literal_range(&mut self, range: &Range) -> Option<(i64, i64)> {
        let r = self.range(range)?;
        let pair = (build::literal_int(&self.g, r.lo), build::literal_int(&self.g, r.hi));
        match pair {
            (Some(lo), Some(hi)) => Some((lo, hi)),
            _ => {
                let d = Diagnostic::error("E0204", range.span, "this range is made of sizes and consts only");
                self.report(d.help("data and run-time scalars cannot stand here"));
                None
            }
        }
    }

    /// Are all names of an expression known by now?
    fn knows(&self, e: &Expr) -> bool {
        names_in(e).iter().all(|n| {
            self.frame().names.contains_key(*n)
                || !matches!(self.module.constant(self.frame().unit, n), Found::None)
                || !self.frame().taken.contains_key(*n)
        })
    }

    /// The integer that a closed expression is.
    fn integer(&mut self, e: &Expr) -> Option<i64> {
        self.fits(e)?;
        let id = self.int_expr(e)?;
        let v = build::literal_int(&self.g, id);
        if v.is_none() {
            let d = Diagnostic::error("E0511", e.span, "this must be known before the kernel is compiled");
            let of_a_run = |n: &&str| matches!(self.frame().names.get(*n), Some(Meaning::Value(_, None)));
            let help = match names_in(e).into_iter().find(of_a_run) {
                Some(n) => format!(
                    "`{n}` is known only when it runs: declare it a const, `{n}: const i32`, to have a kernel for each value"
                ),
                None => "use sizes, const parameters (k: const i32) and literals".into(),
            };
            self.report(d.help(help));
        }
        v
    }

    /// Binds sizes, derived sizes and consts as far as they follow.
    fn solve(&mut self, op: &'m Op, given: &Given) -> Option<()> {
        let sizes: HashSet<&str> = op
            .sizes
            .iter()
            .filter(|s| matches!(s.kind, SizeKind::Plain))
            .map(|s| s.name.text.as_str())
            .collect();
        // A dim that is a size alone comes first.
        for (_, dim, n, poly) in dims_given(op, given) {
            if let ExprKind::Read { name, index: None } = &dim.kind
                && sizes.contains(name.text.as_str())
                && !self.frame().names.contains_key(&name.text)
            {
                self.put_size(&name.text, n, poly);
            }
        }
        loop {
            let known = self.frame().names.len();
            self.solve_defaults(op)?;
            for (_, dim, n, poly) in dims_given(op, given) {
                self.solve_dim(dim, n, poly, &sizes)?;
            }
            if self.frame().names.len() == known {
                return Some(());
            }
        }
    }

    /// Derived sizes and defaults of consts whose names are all known.
    fn solve_defaults(&mut self, op: &'m Op) -> Option<()> {
        for s in &op.sizes {
            if let SizeKind::Derived(e) = &s.kind
                && !self.frame().names.contains_key(&s.name.text)
                && self.knows(e)
            {
                let v = self.integer(e)?;
                let poly = self.poly(e);
                self.put_size(&s.name.text, v, Some(poly));
            }
        }
        for p in op.params.iter().filter(|p| p.is_const) {
            let Some(e) = &p.default else { continue };
            if self.frame().names.contains_key(&p.name.text) || !self.knows(e) {
                continue;
            }
            let v = self.expr(e);
            let dtype = self.dtype(&p.dtype)?;
            let v = self.typed_constant(v, dtype, &p.name.text, e.span)?;
            let Some(value) = build::literal(&self.g, v.id) else {
                let d =
                    Diagnostic::error("E0511", e.span, "the default of a const is made of sizes and consts");
                self.report(d.help("leave the default out, and give the value"));
                return None;
            };
            self.put_const(p, value, None)?;
        }
        Some(())
    }

    /// Solves a dim that is linear in one unknown size.
    fn solve_dim(&mut self, dim: &Expr, n: i64, poly: Option<Poly>, sizes: &HashSet<&str>) -> Option<()> {
        let unknown: Vec<&str> =
            names_in(dim).into_iter().filter(|x| !self.frame().names.contains_key(*x)).collect();
        let mut distinct = unknown.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let [name] = distinct[..] else { return Some(()) };
        if !sizes.contains(name) || !is_linear(dim) {
            return Some(());
        }
        let at = |s: &mut Self, v: i64| {
            s.put_size(name, v, None);
            let r = s.integer(dim);
            s.frame_mut().names.remove(name);
            r
        };
        let (c, one, two) = (at(self, 0)?, at(self, 1)?, at(self, 2)?);
        let a = one.wrapping_sub(c);
        if a == 0 || two.wrapping_sub(one) != a {
            return Some(());
        }
        let rest = n.wrapping_sub(c);
        if rest % a != 0 {
            let what = format!("no {name} makes this dim {n}: {rest} is not a multiple of {a}");
            let d = match self.frame().call {
                Some(call) => Diagnostic::error("E0503", call, what).also(dim.span, "this dim"),
                None => Diagnostic::error("E0503", dim.span, what),
            };
            self.report(d.help(format!("the dim must be {c} + {a}·{name}")));
            return None;
        }
        let solved = poly.map(|p| {
            self.put_size(name, 0, Some(Poly::default()));
            let base = self.poly(dim);
            self.put_size(name, 1, Some(Poly::constant(1)));
            let factor = self.poly(dim).sub(&base);
            self.frame_mut().names.remove(name);
            p.sub(&base).div(&factor)
        });
        self.put_size(name, rest / a, solved);
        Some(())
    }

    /// Everything must be known by now.
    fn complete(&mut self, op: &'m Op, given: &Given) -> Option<()> {
        let mut ok = true;
        let plain = op.sizes.iter().filter(|s| matches!(s.kind, SizeKind::Plain | SizeKind::Derived(_)));
        let sizes = plain.map(|s| (&s.name, "size", "E0501", "--dim"));
        let consts = op.params.iter().filter(|p| p.is_const).map(|p| (&p.name, "const", "E0506", "--const"));
        for (name, what, code, flag) in sizes.chain(consts) {
            if self.frame().names.contains_key(&name.text) {
                continue;
            }
            ok = false;
            let text = format!("the {what} `{}` has no value", name.text);
            let d = Diagnostic::error(code, given.call.unwrap_or(name.span), text);
            self.report(match given.call {
                Some(_) => d.help(format!("give it in the call: {} = …", name.text)),
                None => d.help(format!("give it: {flag} {}=…", name.text)),
            });
        }
        ok.then_some(())
    }

    /// Every dim that is given agrees with its expression, and none is negative.
    fn check_dims(&mut self, op: &'m Op, given: &Given) -> Option<()> {
        let mut ok = true;
        for s in &op.sizes {
            if !matches!(s.kind, SizeKind::Plain | SizeKind::Derived(_)) {
                continue;
            }
            if let Some(Meaning::Value(v, _)) = self.frame().names.get(&s.name.text)
                && let Some(n) = build::literal_int(&self.g, v.id)
            {
                if let SizeKind::Derived(e) = &s.kind
                    && let Some(m) = self.integer(e)
                    && m != n
                {
                    let what = format!("`{}` is {m} by its definition, but {n} is given", s.name.text);
                    let d = Diagnostic::error("E0502", given.call.unwrap_or(s.name.span), what);
                    self.report(d.help("leave it out: it follows from the others"));
                    ok = false;
                }
                if n < 0 && matches!(s.kind, SizeKind::Plain) {
                    let at = given.call.unwrap_or(s.name.span);
                    let d = Diagnostic::error("E0504", at, format!("the size `{}` is {n}", s.name.text));
                    self.report(d.help("no size may be negative"));
                    ok = false;
                }
            }
        }
        for (p, dim, n, have) in dims_given(op, given) {
            if let (Some(_), Some(have)) = (given.call, &have)
                && self.never_fits(op, p, dim, have, given)
            {
                ok = false;
                continue;
            }
            match self.integer(dim) {
                None => ok = false,
                Some(m) if m != n => {
                    let what = format!("a dim of `{}` is {n}, but it must be {m} here", p.name.text);
                    let d = Diagnostic::error("E0502", given.place(p, dim.span), what);
                    let need = self.poly(dim);
                    self.report(match have.filter(|_| given.call.is_some()) {
                        Some(have) => d.also(dim.span, "this dim").help(equal_dims(&have, &need)),
                        None => d.help(
                            "the sizes are bound by the dims that are a size alone; the others must agree",
                        ),
                    });
                    ok = false;
                }
                _ => {}
            }
        }
        ok.then_some(())
    }

    /// A dim of a call's arguments that is another expression than the called op has there, though the numbers agree.
    pub fn argument_of_other_dims(&mut self, op: &'m Op, given: &Given) -> Option<Diagnostic> {
        for (p, dim, _, have) in dims_given(op, given) {
            let (Some(have), need) = (have, self.poly(dim)) else { continue };
            if self.same(&have, &need) {
                continue;
            }
            let at = given.place(p, dim.span);
            let what = format!(
                "a dim of the argument `{}` is {have}, but `{}` needs {need} there",
                p.name.text, op.name.text
            );
            let d = Diagnostic::error("E0414", at, what).also(dim.span, "this dim");
            return Some(d.help(equal_dims(&have, &need)));
        }
        None
    }

    /// Reports an argument's dim that is another than the called op's, whatever the sizes are.
    fn never_fits(&mut self, op: &Op, p: &Param, dim: &Expr, have: &Poly, given: &Given) -> bool {
        let need = self.poly(dim);
        let sizes: Vec<&str> = match self.module.op(&self.g.op) {
            Some((_, root)) => root.sizes.iter().map(|s| s.name.text.as_str()).collect(),
            None => Vec::new(),
        };
        if !have.sub(&need).is_never_zero(&|v| sizes.contains(&v)) {
            return false;
        }
        let at = given.place(p, dim.span);
        let what = format!(
            "a dim of the argument `{}` is {have}, but `{}` needs {need} there",
            p.name.text, op.name.text
        );
        let d = Diagnostic::error("E0414", at, what).also(dim.span, "this dim");
        self.report(d.help(format!("make a tensor of {need} for it: t[…] = …, and pass that")));
        true
    }

    /// The dims of a declaration as numbers and polynomials; none may be negative.
    pub fn dims(&mut self, name: &Name, dims: &[Expr]) -> Option<(Vec<i64>, Vec<(Poly, Poly)>)> {
        let (mut out, mut sym) = (Vec::new(), Vec::new());
        for d in dims {
            let mut n = self.integer(d)?;
            if self.lenient {
                n = n.max(0);
            }
            if n < 0 {
                let what = format!("a dim of `{}` is {n}", name.text);
                let e = match self.frame().call {
                    Some(call) => Diagnostic::error("E0504", call, what).also(d.span, "this dim"),
                    None => Diagnostic::error("E0504", d.span, what),
                };
                self.report(e.help("no dim may be negative: check the sizes and consts it is made of"));
                return None;
            }
            out.push(n);
            sym.push((Poly::default(), self.poly(d)));
        }
        let elements = out.iter().try_fold(1i64, |a, &b| a.checked_mul(b.max(1)));
        if elements.is_none_or(|e| e > 1 << 56) {
            let e = Diagnostic::error(
                "E0514",
                name.span,
                format!("`{}` would have more than 2⁵⁶ elements", name.text),
            );
            self.report(e.help("check the sizes"));
            return None;
        }
        Some((out, sym))
    }

    fn check_wheres(&mut self, op: &'m Op) -> Option<()> {
        let mut ok = true;
        for w in &op.wheres {
            if self.speaks_of_data(op, w) || self.fits(w).is_none() {
                ok = false;
                continue;
            }
            let v = self.condition(w);
            match self.known_bool(v) {
                Some(true) => self.note_equal(w),
                Some(false) if self.lenient => match self.never(op, w) {
                    true => {
                        let what = format!("this condition of `{}` is false for all sizes", op.name.text);
                        let d = Diagnostic::error("E0505", w.span, what);
                        self.report(d.help("no size is negative: write a condition that some sizes meet"));
                        ok = false;
                    }
                    false => self.note_equal(w),
                },
                Some(false) => {
                    let sizes: Vec<String> = names_in(w)
                        .into_iter()
                        .filter_map(|n| match self.frame().names.get(n) {
                            Some(Meaning::Value(v, _)) => {
                                build::literal_int(&self.g, v.id).map(|i| format!("{n} = {i}"))
                            }
                            _ => None,
                        })
                        .collect();
                    let at =
                        if sizes.is_empty() { String::new() } else { format!(" for {}", sizes.join(", ")) };
                    let what = format!("this condition of `{}` is false{at}", op.name.text);
                    self.report(match self.frame().call {
                        None => Diagnostic::error("E0505", w.span, what)
                            .help("choose sizes and consts that meet it"),
                        Some(call) => {
                            let what = what.replacen("this", "a", 1);
                            let d = Diagnostic::error("E0505", call, what).also(w.span, "this condition");
                            d.help("give it arguments that meet it, or write the condition after `where` here too")
                        }
                    });
                    ok = false;
                }
                None if v.typ == Typ::Error => ok = false,
                None => {
                    let d =
                        Diagnostic::error("E0511", w.span, "a `where` of an op speaks of sizes and consts");
                    self.report(d.help("use `if` in the body for conditions on data"));
                    ok = false;
                }
            }
        }
        ok.then_some(())
    }

    /// Reports a `where` of an op that reads an input.
    fn speaks_of_data(&mut self, op: &Op, w: &Expr) -> bool {
        let data = |n: &str| op.params.iter().any(|p| !p.is_const && p.name.text == n);
        let Some(name) = names_in(w).into_iter().find(|n| data(n)) else { return false };
        let what =
            format!("a `where` of an op speaks of sizes and consts, `{name}` is known only when it runs");
        let d = Diagnostic::error("E0511", w.span, what);
        self.report(d.help("use `if` in the body for conditions on data"));
        true
    }

    /// Dims that a `where` says are equal.
    fn note_equal(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Paren(a) => self.note_equal(a),
            ExprKind::Binary(BinOp::And, a, b) => {
                self.note_equal(a);
                self.note_equal(b);
            }
            ExprKind::Binary(BinOp::Eq, a, b) => {
                let pair = (self.poly(a), self.poly(b));
                self.equal.push(pair);
            }
            _ => {}
        }
    }
}

/// The dims of tensor parameters whose shape is given, with their numbers.
fn dims_given<'m>(op: &'m Op, given: &Given) -> Vec<(&'m Param, &'m Expr, i64, Option<Poly>)> {
    let mut out = Vec::new();
    for p in &op.params {
        let (Some(dims), Some((shape, sym))) = (&p.dims, given.shapes.get(&p.name.text)) else { continue };
        for (i, (d, &n)) in dims.iter().zip(shape).enumerate() {
            out.push((p, d, n, sym.as_ref().map(|s| s[i].clone())));
        }
    }
    out
}

/// The ways out where an argument's dim is not the one that is needed.
fn equal_dims(have: &Poly, need: &Poly) -> String {
    format!(
        "are the axes in the right order? else pass a tensor with {need} there, or, if the two are always equal, write `where {have} == {need}` after the op's results"
    )
}

/// How an argument gets a dtype.
fn converted(to: DType) -> String {
    format!("convert it in a statement before the call: t: {}[…] = …, and pass t", to.name())
}

/// The value names in an expression, as often as they stand there.
pub fn names_in(e: &Expr) -> Vec<&str> {
    let mut out = Vec::new();
    super::scan::each_name(e, &mut |n| out.push(n.text.as_str()));
    out
}

/// Made of `+ - *` only.
fn is_linear(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Int(_) | ExprKind::Read { index: None, .. } => true,
        ExprKind::Paren(a) | ExprKind::Unary(UnOp::Neg, a) => is_linear(a),
        ExprKind::Binary(BinOp::Add | BinOp::Sub | BinOp::Mul, a, b) => is_linear(a) && is_linear(b),
        _ => false,
    }
}
