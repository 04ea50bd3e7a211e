//! Folds remove axes; maps along an axis keep theirs.
//!
//! `mean`, `softmax` and `logsumexp` are written out with fresh axes. `cumsum` and its like, and `argsort`, become
//! statements of their own on hidden locals.

use super::build;
use super::elab::Elab;
use super::poly::Poly;
use super::typ::{Typ, Val};
use crate::ir::graph::*;
use crate::pass::module::{Callable, Found};
use crate::pass::subst::Subst;
use crate::vocab::dtype::Value;
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use girih_dsl::ast::{self, BinOp, Binder, Function, Name, Span};
use girih_dsl::diagnostic::Diagnostic;

/// What stands before `[…](…)`.
#[derive(Clone, Copy)]
enum Kind<'m> {
    Fold(Monoid),
    Mean,
    LogSumExp,
    User(usize, &'m Function),
    Softmax,
    Scan(Monoid),
    Sort,
}

/// Is it a built-in fold, or a map along an axis?
pub fn is_fold(name: &str) -> bool {
    BUILT_IN.iter().any(|(n, _)| *n == name)
}

const BUILT_IN: [(&str, Kind<'static>); 16] = [
    ("sum", Kind::Fold(Monoid::Sum)),
    ("prod", Kind::Fold(Monoid::Prod)),
    ("max", Kind::Fold(Monoid::Max)),
    ("min", Kind::Fold(Monoid::Min)),
    ("any", Kind::Fold(Monoid::Any)),
    ("all", Kind::Fold(Monoid::All)),
    ("argmax", Kind::Fold(Monoid::ArgMax)),
    ("argmin", Kind::Fold(Monoid::ArgMin)),
    ("mean", Kind::Mean),
    ("logsumexp", Kind::LogSumExp),
    ("softmax", Kind::Softmax),
    ("cumsum", Kind::Scan(Monoid::Sum)),
    ("cumprod", Kind::Scan(Monoid::Prod)),
    ("cummax", Kind::Scan(Monoid::Max)),
    ("cummin", Kind::Scan(Monoid::Min)),
    ("argsort", Kind::Sort),
];

/// A range with its polynomials.
#[derive(Clone)]
pub struct AxisRange {
    pub lo: ExprId,
    pub hi: ExprId,
    pub sym: (Poly, Poly),
}

impl<'m> Elab<'m> {
    pub fn fold(
        &mut self,
        name: &Name,
        binders: &[Binder],
        cond: Option<&ast::Expr>,
        body: &ast::Expr,
        span: Span,
    ) -> Val {
        let Some(kind) = self.fold_kind(name) else { return self.poison() };
        match kind {
            Kind::Softmax | Kind::Scan(_) | Kind::Sort => {
                self.map_along(kind, name, binders, cond, body, span)
            }
            _ => self.reduce(kind, name, binders, cond, body, span),
        }
    }

    fn fold_kind(&mut self, name: &Name) -> Option<Kind<'m>> {
        let (module, unit) = (self.module, self.frame().unit);
        let built_in = BUILT_IN.iter().find(|(n, _)| *n == name.text).map(|(_, k)| *k);
        let d = match module.callable(unit, None, &name.text) {
            Found::One(Callable::Fn(u, f)) if f.unit.is_some() => return Some(Kind::User(u, f)),
            Found::One(Callable::Fn(_, f)) if built_in.is_none() => Diagnostic::error(
                "E0116",
                name.span,
                format!("`{}` has no unit, so it cannot fold", name.text),
            )
            .also(f.name.span, "defined here")
            .help("write fn f(a, b) from unit = …, with f(unit, b) = b"),
            Found::Clash(a, b) => {
                Diagnostic::error("E0109", name.span, format!("both {a} and {b} have `{}`", name.text))
                    .help("define your own, or import one of them")
            }
            _ if built_in.is_some() => return built_in,
            _ => {
                let d = Diagnostic::error("E0108", name.span, format!("there is no fold `{}`", name.text));
                d.help(self.fold_by_another_name(name))
            }
        };
        self.report(d);
        None
    }

    /// The help for a fold that there is none of.
    fn fold_by_another_name(&self, name: &Name) -> String {
        let known = BUILT_IN.iter().map(|(n, _)| *n);
        if let Some(ours) = girih_dsl::foreign::renamed_function(&name.text, &is_fold).filter(|n| is_fold(n))
        {
            return format!("it is called `{ours}` here: write {ours}[…](…)");
        }
        if let Some((op, library)) = self.op_like(&name.text) {
            let library = library.map_or(String::new(), |l| format!("write `import {l}` at the top, then "));
            return format!(
                "`{op}` is an op, which takes whole tensors: {library}`t = {op}(…)` as a statement"
            );
        }
        if super::call::is_built_in(&name.text) {
            return format!("it is a function of numbers: write {}(…), without the brackets", name.text);
        }
        match super::read::nearest(&name.text, known.clone()) {
            Some(n) => format!("did you mean `{n}`?"),
            None => format!("the folds are {}", known.collect::<Vec<_>>().join(", ")),
        }
    }

    fn reduce(
        &mut self,
        kind: Kind<'m>,
        name: &Name,
        binders: &[Binder],
        cond: Option<&ast::Expr>,
        body: &ast::Expr,
        span: Span,
    ) -> Val {
        let mark = self.prover.mark();
        let (bound, scope) = (self.frame().axes.len(), self.scope.len());
        let axes = self.bind_fold_axes(name, binders, cond, body);
        let mut result = None;
        if let Some(axes) = axes {
            let c = cond.map(|c| (self.condition(c), c.span));
            let dead = c.is_some_and(|(c, _)| self.known_bool(c) == Some(false));
            if let Some((c, _)) = c
                && c.typ == Typ::Bool
            {
                self.prover.assume(&self.g, c.id, true);
            }
            self.dead += dead as u32;
            let e = self.expr(body);
            self.dead -= dead as u32;
            self.prover.release(mark);
            self.frame_mut().axes.truncate(bound);
            self.scope.truncate(scope);
            let bad = e.typ == Typ::Error || c.is_some_and(|(c, _)| c.typ == Typ::Error);
            let c = c.map(|(c, _)| c.id).filter(|&c| build::literal_bool(&self.g, c) != Some(true));
            result = if bad { None } else { self.finish_reduce(kind, name, axes, c, e, body.span, span) };
        }
        self.prover.release(mark);
        self.frame_mut().axes.truncate(bound);
        self.scope.truncate(scope);
        result.unwrap_or_else(|| self.poison())
    }

    #[allow(clippy::too_many_arguments)]
    fn finish_reduce(
        &mut self,
        kind: Kind<'m>,
        name: &Name,
        axes: Vec<AxisId>,
        cond: Option<ExprId>,
        e: Val,
        at: Span,
        span: Span,
    ) -> Option<Val> {
        self.check_body(kind, name, &axes, e, at)?;
        Some(match kind {
            Kind::Fold(m) => {
                let t = match m {
                    Monoid::ArgMax | Monoid::ArgMin => Typ::Index,
                    Monoid::Any | Monoid::All => Typ::Bool,
                    _ if e.typ == Typ::Lit => Typ::Index,
                    _ => e.typ,
                };
                self.fold_node(Combine::Builtin(m), &axes, cond, e, t, span)
            }
            Kind::Mean => self.mean(axes, cond, e, span),
            Kind::LogSumExp => self.log_sum_exp(axes, cond, e, span),
            Kind::User(unit, f) => self.user_fold(unit, f, axes, cond, e, span)?,
            Kind::Softmax | Kind::Scan(_) | Kind::Sort => return None,
        })
    }

    fn check_body(&mut self, kind: Kind, name: &Name, axes: &[AxisId], e: Val, at: Span) -> Option<()> {
        let logical = matches!(kind, Kind::Fold(Monoid::Any | Monoid::All));
        if logical != (e.typ == Typ::Bool) && !matches!(kind, Kind::User(..)) {
            let d = match logical {
                true => Diagnostic::error(
                    "E0305",
                    at,
                    format!("`{}` folds bools, this is {}", name.text, e.typ.name()),
                )
                .help("write a comparison: … != 0"),
                false => {
                    Diagnostic::error("E0302", at, format!("`{}` folds numbers, this is bool", name.text))
                        .help("write i32(c) to count")
                }
            };
            self.report(d);
            return None;
        }
        if !matches!(kind, Kind::Fold(Monoid::ArgMax | Monoid::ArgMin)) {
            return Some(());
        }
        if axes.len() != 1 {
            let d = Diagnostic::error(
                "E0209",
                name.span,
                format!("`{}` takes one axis and gives its value", name.text),
            );
            self.report(d.help("fold the others away first, or make one axis of them: x[k/N, k%N]"));
            return None;
        }
        if self.g.extent(axes[0]) == Some(0) && self.dead == 0 && !self.lenient {
            let axis = self.g.axis(axes[0]).name.clone();
            let d =
                Diagnostic::error("E0208", name.span, format!("`{}` over {axis}, which is empty", name.text));
            self.report(d.help("an op with argmax needs at least one element there"));
            return None;
        }
        Some(())
    }

    fn fold_node(
        &mut self,
        combine: Combine,
        axes: &[AxisId],
        cond: Option<ExprId>,
        e: Val,
        t: Typ,
        span: Span,
    ) -> Val {
        let ty = |s: &Self, body: ExprId| match combine {
            Combine::Builtin(m) => m.result(s.g.ty(body)),
            Combine::Fn(_) => s.g.ty(body),
        };
        let one = |s: &mut Self, body: ExprId| {
            let ty = ty(s, body);
            s.g.add(Expr::Fold(Fold { combine, axes: axes.to_vec(), cond, body }), ty, span)
        };
        let id = one(self, e.id);
        if t == Typ::Open {
            let wide = one(self, e.wide);
            return Val::open(id, wide);
        }
        Val::new(t, id)
    }

    fn mean(&mut self, axes: Vec<AxisId>, cond: Option<ExprId>, e: Val, span: Span) -> Val {
        let t = e.typ.as_float();
        let e = Val { divided: false, ..e };
        let e = self.convert(e, t, span);
        let total = self.fold_node(Combine::Builtin(Monoid::Sum), &axes, cond, e, t, span);
        let extents: Option<Vec<i64>> = axes.iter().map(|&a| self.g.extent(a)).collect();
        let count = match (cond, extents) {
            (None, Some(n)) => self.int(n.iter().product()),
            _ => {
                // Counted along axes of its own, since an axis is bound once.
                let (axes, cond) = self.fresh_axes(&axes, cond);
                let one = self.int(1);
                self.fold_node(Combine::Builtin(Monoid::Sum), &axes, cond, one, Typ::Index, span)
            }
        };
        let count = self.convert(count, t, span);
        self.apply(Func::Div, &[total, count], t, span)
    }

    /// Fresh axes with the same ranges, and the condition over them.
    fn fresh_axes(&mut self, axes: &[AxisId], cond: Option<ExprId>) -> (Vec<AxisId>, Option<ExprId>) {
        let mut s = Subst::default();
        let mut out = Vec::new();
        for &a in axes {
            let fresh = self.renamed(a, &mut s);
            out.push(fresh);
        }
        let cond = cond.map(|c| s.apply(&mut self.g, c));
        (out, cond)
    }

    /// A fresh axis for `a`, which the substitution replaces from now on.
    pub(super) fn renamed(&mut self, a: AxisId, s: &mut Subst) -> AxisId {
        let fresh = self.axis_like(a);
        let (lo, hi) = (self.g.axis(a).lo, self.g.axis(a).hi);
        let (lo, hi) = (s.apply(&mut self.g, lo), s.apply(&mut self.g, hi));
        self.g.axes[fresh.0 as usize].lo = lo;
        self.g.axes[fresh.0 as usize].hi = hi;
        let (from, to) = (self.g.axis_expr(a), self.g.axis_expr(fresh));
        s.put(from, to);
        fresh
    }

    /// `m + log Σ exp(e − m)`, and m where it is infinite.
    fn log_sum_exp(&mut self, axes: Vec<AxisId>, cond: Option<ExprId>, e: Val, span: Span) -> Val {
        let t = e.typ.as_float();
        let e = self.convert(e, t, span);
        let one = |s: &mut Self, body: ExprId| {
            let (m, total) = s.shifted_sum(&axes, cond, body, span);
            let log = build::call(&mut s.g, Func::Log, vec![total], span);
            let sum = build::call(&mut s.g, Func::Add, vec![m, log], span);
            let infinite = build::call(&mut s.g, Func::IsInf, vec![m], span);
            build::select(&mut s.g, infinite, m, sum, span)
        };
        self.both(e, t, one)
    }

    /// Does something to the f32 and the f64 form of a float.
    fn both(&mut self, e: Val, t: Typ, mut one: impl FnMut(&mut Self, ExprId) -> ExprId) -> Val {
        if e.typ == Typ::Error {
            return e;
        }
        let id = one(self, e.id);
        if t == Typ::Open {
            let wide = one(self, e.wide);
            return Val::open(id, wide);
        }
        Val::new(t, id)
    }

    /// The maximum m of `body`, and Σ exp(body − m) along axes of its own.
    fn shifted_sum(
        &mut self,
        axes: &[AxisId],
        cond: Option<ExprId>,
        body: ExprId,
        span: Span,
    ) -> (ExprId, ExprId) {
        let ty = self.g.ty(body);
        let combine = Combine::Builtin(Monoid::Max);
        let m = self.g.add(Expr::Fold(Fold { combine, axes: axes.to_vec(), cond, body }), ty, span);
        let mut s = Subst::default();
        let axes: Vec<AxisId> = axes.iter().map(|&a| self.renamed(a, &mut s)).collect();
        let cond = cond.map(|c| s.apply(&mut self.g, c));
        let body = s.apply(&mut self.g, body);
        let body = self.weight(body, m, span);
        let combine = Combine::Builtin(Monoid::Sum);
        (m, self.g.add(Expr::Fold(Fold { combine, axes, cond, body }), ty, span))
    }

    /// `exp(e − m)`
    fn weight(&mut self, e: ExprId, m: ExprId, span: Span) -> ExprId {
        let d = build::call(&mut self.g, Func::Sub, vec![e, m], span);
        build::call(&mut self.g, Func::Exp, vec![d], span)
    }

    fn user_fold(
        &mut self,
        unit: usize,
        f: &'m Function,
        axes: Vec<AxisId>,
        cond: Option<ExprId>,
        e: Val,
        span: Span,
    ) -> Option<Val> {
        let t = if e.typ == Typ::Lit { Typ::Index } else { e.typ };
        let narrow = self.fold_fn(unit, f, if t == Typ::Open { Typ::F32 } else { t }, span)?;
        let id = self.fold_node(Combine::Fn(narrow), &axes, cond, Val::new(t, e.id), Typ::F32, span).id;
        let wide = match t {
            Typ::Open => {
                let f = self.fold_fn(unit, f, Typ::F64, span)?;
                self.fold_node(Combine::Fn(f), &axes, cond, Val::new(t, e.wide), Typ::F64, span).id
            }
            _ => id,
        };
        Some(Val { typ: t, id, wide, divided: false })
    }

    /// A fn with a unit, for values of one type.
    fn fold_fn(&mut self, unit: usize, f: &'m Function, t: Typ, span: Span) -> Option<FoldFnId> {
        let key = (unit, f.name.text.clone(), t.ty());
        if let Some(&id) = self.fold_fns.get(&key) {
            return Some(id);
        }
        if f.params.len() != 2 {
            let what = format!("`{}` folds, so it takes two arguments, not {}", f.name.text, f.params.len());
            self.report(Diagnostic::error("E0111", f.name.span, what).help("write fn f(a, b) from unit = …"));
            return None;
        }
        let ty = t.ty();
        let mut args = Vec::new();
        for i in 0..2 {
            let p = self.g.add(Expr::Param(i), ty, f.params[i as usize].span);
            args.push(Val::new(t, p));
        }
        let unit_expr = f.unit.as_ref()?;
        let body = self.inline_fn(unit, f, args, span);
        let unit_value = self.closed(unit, &f.name, |s| s.expr(unit_expr))?;
        if body.typ == Typ::Error || unit_value.typ == Typ::Error {
            return None;
        }
        let as_type = |s: &mut Self, v: Val, at: Span| -> Option<ExprId> {
            let fits = v.typ == t || v.typ.meet(t) == Some(t);
            if !fits {
                let what = format!("`{}` over {} gives {}", f.name.text, t.name(), v.typ.name());
                let d = Diagnostic::error("E0310", at, what).also(span, "folded here");
                s.report(d.help("a fn that folds gives the type of its arguments: use a cast"));
                return None;
            }
            let v = s.convert(v, t, at);
            (v.typ != Typ::Error).then_some(v.id)
        };
        let body = as_type(self, body, f.body.span)?;
        let unit = as_type(self, unit_value, unit_expr.span)?;
        self.g.fold_fns.push(FoldFn { name: f.name.text.clone(), body, unit, ty });
        let id = FoldFnId(self.g.fold_fns.len() as u32 - 1);
        self.fold_fns.insert(key, id);
        Some(id)
    }

    /// Binds the axes of a fold, inner ones last. `None` after a report.
    fn bind_fold_axes(
        &mut self,
        fold: &Name,
        binders: &[Binder],
        cond: Option<&ast::Expr>,
        body: &ast::Expr,
    ) -> Option<Vec<AxisId>> {
        let mut axes = Vec::new();
        let mut bad = false;
        for b in binders {
            if !self.free_to_bind(&b.name, fold, body) {
                bad = true;
                continue;
            }
            let range = match &b.range {
                Some(r) => self.range(r),
                None => self.inferred(&b.name, &[body], cond),
            };
            let Some(r) = range else {
                bad = true;
                continue;
            };
            let id = self.axis(&b.name.text, r.lo, r.hi, r.sym, b.name.span);
            self.bind_axis(&b.name.text, id, b.name.span);
            axes.push(id);
        }
        (!bad).then_some(axes)
    }

    /// May a fold bind this name?
    fn free_to_bind(&mut self, name: &Name, fold: &Name, body: &ast::Expr) -> bool {
        if let Some(b) = self.bound(&name.text) {
            let at = b.span;
            let d = Diagnostic::error(
                "E0104",
                name.span,
                format!("`{}` is bound around this fold already", name.text),
            );
            let other = ["k", "j", "l", "i", "p", "q"]
                .into_iter()
                .find(|l| self.bound(l).is_none() && self.could_be_an_axis(l));
            let d = d.also(at, "bound here").help(match other {
                Some(k) => {
                    let body = super::hints::renamed(&girih_dsl::print_expr(body), &name.text, k);
                    format!(
                        "give the fold's axis another name, on its left and inside it: {}[{k}]({body})",
                        fold.text
                    )
                }
                None => "give the fold's axis another name, on its left and inside it: sum[k](e[m, k])"
                    .to_string(),
            });
            self.report(d);
            return false;
        }
        self.not_taken(name)
    }

    /// An axis may not have the name of a tensor, size or constant.
    pub fn not_taken(&mut self, name: &Name) -> bool {
        let frame = self.frame();
        let at = frame.taken.get(&name.text).copied();
        let constant = self.module.constant(frame.unit, &name.text);
        let at = at.or(match constant {
            Found::One((unit, c)) if unit == frame.unit => Some(c.name.span),
            _ => None,
        });
        let Some(at) = at else { return true };
        let d = Diagnostic::error(
            "E0103",
            name.span,
            format!("`{}` has a meaning already, it cannot be an axis", name.text),
        );
        let lower = name.text.to_lowercase();
        let free = lower != name.text && self.bound(&lower).is_none() && self.could_be_an_axis(&lower);
        let other = if free { lower } else { format!("{}0", name.text) };
        self.report(
            d.also(at, "it is this").help(format!("give the axis a name of its own, such as `{other}`")),
        );
        false
    }

    /// A range as written.
    pub fn range(&mut self, r: &ast::Range) -> Option<AxisRange> {
        let (lo, hi) = (self.int_expr(&r.lo), self.int_expr(&r.hi));
        let (lo, mut hi) = (lo?, hi?);
        let mut sym = (self.poly(&r.lo), self.poly(&r.hi));
        if r.closed {
            let one = self.g.int(1);
            hi = self.index_op(BinOp::Add, hi, one, r.span);
            sym.1 = sym.1.add(&Poly::constant(1));
        }
        Some(AxisRange { lo, hi, sym })
    }

    fn map_along(
        &mut self,
        kind: Kind<'m>,
        name: &Name,
        binders: &[Binder],
        cond: Option<&ast::Expr>,
        body: &ast::Expr,
        span: Span,
    ) -> Val {
        let [binder] = binders else {
            let d = Diagnostic::error("E0209", name.span, format!("`{}` goes along one axis", name.text));
            return self.wrong(d.help("make one axis of them: x[k/N, k%N]"));
        };
        let Some(outer) = self.bound(&binder.name.text).map(|b| b.id) else {
            let what =
                format!("`{0}` keeps its axis, but {1} is not bound around it", name.text, binder.name.text);
            let d = Diagnostic::error("E0205", binder.name.span, what);
            let help = match self.along_the_left(name, &binder.name, body) {
                Some(form) => format!("write it along an axis of the left side: {form}"),
                None => {
                    format!(
                        "put {} on the left side (y[…, {0}] = …), or in a fold around it",
                        binder.name.text
                    )
                }
            };
            return self.wrong(d.help(help));
        };
        if let Some(r) = &binder.range {
            let Some(r) = self.range(r) else { return self.poison() };
            let of = self.sym_of_axis(outer);
            if !self.same(&of.0, &r.sym.0) || !self.same(&of.1, &r.sym.1) {
                let what = format!("`{}` has another range here than around", binder.name.text);
                let d = Diagnostic::error("E0206", binder.name.span, what);
                return self
                    .wrong(d.help("a map along an axis covers its whole range: use `where` to take a part"));
            }
        }
        let hoisted = !matches!(kind, Kind::Softmax);
        let Some((axis, c, e)) = self.map_body(binder, outer, cond, body, hoisted) else {
            return self.poison();
        };
        if e.typ == Typ::Bool {
            let d = Diagnostic::error(
                "E0302",
                body.span,
                format!("`{}` works on numbers, this is bool", name.text),
            );
            return self.wrong(d.help("write i32(c)"));
        }
        match kind {
            Kind::Softmax => self.softmax(axis, outer, c, e, span),
            Kind::Scan(m) => self.hoist(name, axis, outer, c, e, Some(m), span),
            _ => self.hoist(name, axis, outer, c, e, None, span),
        }
    }

    /// The body and condition of a map, over an axis of its own.
    fn map_body(
        &mut self,
        binder: &Binder,
        outer: AxisId,
        cond: Option<&ast::Expr>,
        body: &ast::Expr,
        hoisted: bool,
    ) -> Option<(AxisId, Option<ExprId>, Val)> {
        let axis = self.axis_like(outer);
        let saved = self.prover.clone();
        if hoisted {
            // Conditions on the axis do not hold at its other points.
            self.prover.forget(&self.g, outer);
        }
        let place = self.frame().axes.iter().rposition(|b| b.name == binder.name.text)?;
        self.frame_mut().axes[place].id = axis;
        self.scope.push(axis);
        self.prover.enter_axis(&mut self.g, axis);
        let c = cond.map(|c| self.condition(c));
        let dead = c.is_some_and(|c| self.known_bool(c) == Some(false));
        if let Some(c) = c.filter(|c| c.typ == Typ::Bool) {
            self.prover.assume(&self.g, c.id, true);
        }
        self.dead += dead as u32;
        let e = self.expr(body);
        self.dead -= dead as u32;
        self.scope.pop();
        self.frame_mut().axes[place].id = outer;
        let tensors = std::mem::take(&mut self.prover.tensors);
        self.prover = saved;
        self.prover.tensors = tensors;
        if e.typ == Typ::Error || c.is_some_and(|c| c.typ == Typ::Error) {
            return None;
        }
        let c = c.map(|c| c.id).filter(|&c| build::literal_bool(&self.g, c) != Some(true));
        Some((axis, c, e))
    }

    /// `exp(e − m) / Σ exp(e − m)`; 0 where m is −inf or the condition is false.
    fn softmax(&mut self, axis: AxisId, outer: AxisId, cond: Option<ExprId>, e: Val, span: Span) -> Val {
        let t = e.typ.as_float();
        let e = self.convert(e, t, span);
        let one = |s: &mut Self, body: ExprId| {
            let ty = s.g.ty(body);
            let (m, total) = s.shifted_sum(&[axis], cond, body, span);
            let to = s.g.axis_expr(outer);
            let mut here = Subst::of_axes(&mut s.g, [(axis, to)]);
            let own = here.apply(&mut s.g, body);
            let weight = s.weight(own, m, span);
            let share = build::call(&mut s.g, Func::Div, vec![weight, total], span);
            let lit = |s: &mut Self, v: f64| s.g.lit(crate::host::convert(Value::F64(v), ty));
            let (low, zero) = (lit(s, f64::NEG_INFINITY), lit(s, 0.0));
            let nothing = build::call(&mut s.g, Func::Eq, vec![m, low], span);
            let share = build::select(&mut s.g, nothing, zero, share, span);
            match cond.map(|c| here.apply(&mut s.g, c)) {
                Some(c) => build::select(&mut s.g, c, share, zero, span),
                None => share,
            }
        };
        self.both(e, t, one)
    }
}

#[cfg(test)]
mod tests {
    /// The parser's reports know folds by their names.
    #[test]
    fn the_folds_are_the_parsers() {
        for (name, _) in super::BUILT_IN {
            assert!(girih_dsl::foreign::is_fold(name), "{name}");
        }
    }
}
