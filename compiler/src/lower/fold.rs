//! Emit, folds: loops in the thread.
//!
//! Float sums and products longer than `CHAIN` terms are summed in pieces, so that no serial chain is long: each
//! piece starts anew, and the pieces are combined. What does not depend on the fold's axes is computed before the
//! loop where that can do no harm. A sum of products is a chain of fused multiply-adds.

use super::arith::default_of;
use super::index::Interval;
use super::scalar::{Emit, Num, add, arith, cmp, int, int_of, not};
use crate::ir::graph::{AxisId, Combine, Expr as Node, ExprId, Fold};
use crate::ir::simt::{CmpOp, Expr, IntOp, Stmt, Ty, Unroll, VarId};
use crate::vocab::dtype::{self, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use std::collections::BTreeSet;

/// Terms that are added one after the other.
const CHAIN: i64 = 512;

/// The running value of a fold in registers.
#[derive(Clone)]
pub struct Acc {
    pub combine: Combine,
    pub var: VarId,
    pub ty: Ty,
    /// argmax, argmin: where the best value (in `var`) stands; below every index at first (−1, if none is negative).
    pub at: Option<(VarId, Ty)>,
    /// That first value.
    pub nowhere: i64,
}

impl<'a> Emit<'a> {
    pub(super) fn fold(&mut self, f: &Fold, ty: dtype::Ty) -> Num {
        self.hoist_fold(f);
        let acc = self.accumulator(f.combine, f.body, self.fold_ty(f, ty), f.axes.first().copied());
        self.nest(f, 0, &acc);
        self.result(&acc)
    }

    /// The register type of a fold's value while it runs.
    pub(super) fn fold_ty(&self, f: &Fold, ty: dtype::Ty) -> Ty {
        let of = self.graph.ty(f.body);
        match f.combine {
            Combine::Builtin(Monoid::ArgMax | Monoid::ArgMin) => match of {
                dtype::Ty::I64 if self.facts.interval(f.body).fits_i32() => Ty::I32,
                t => Ty::of(t),
            },
            Combine::Builtin(Monoid::Sum) if ty == dtype::Ty::I64 && self.sum_fits(f) => Ty::I32,
            Combine::Builtin(Monoid::Max | Monoid::Min) if ty == dtype::Ty::I64 && self.never_empty(f) => {
                if self.facts.interval(f.body).fits_i32() {
                    Ty::I32
                } else {
                    Ty::I64
                }
            }
            _ => Ty::of(ty),
        }
    }

    fn sum_fits(&self, f: &Fold) -> bool {
        let count = f.axes.iter().try_fold(1i128, |n, &a| Some(n * self.graph.extent(a)? as i128));
        let body = self.facts.interval(f.body);
        let most = (body.lo as i128).abs().max((body.hi as i128).abs());
        count.is_some_and(|n| n.saturating_mul(most) <= i32::MAX as i128)
    }

    fn never_empty(&self, f: &Fold) -> bool {
        f.cond.is_none() && self.all_taken(&f.axes)
    }

    fn all_taken(&self, axes: &[AxisId]) -> bool {
        axes.iter().all(|&a| self.graph.extent(a).is_some_and(|n| n > 0))
    }

    /// A new accumulator at its unit. `ty` is the register type of the body's (argmax: the key's) values.
    pub fn accumulator(&mut self, combine: Combine, body: ExprId, ty: Ty, axis: Option<AxisId>) -> Acc {
        let unit = self.unit(combine, self.graph.ty(body), ty);
        let var = self.let_var("acc", ty, unit);
        let negative = axis.is_some_and(|a| self.facts.axis(a).lo < 0);
        let nowhere = if negative { i32::MIN as i64 } else { -1 };
        let at = match combine {
            Combine::Builtin(Monoid::ArgMax | Monoid::ArgMin) => {
                let fits = axis.is_some_and(|a| self.facts.axis(a).fits_i32());
                let ty = if fits { Ty::I32 } else { Ty::I64 };
                Some((self.let_var("at", ty, int_of(ty, nowhere).expr), ty))
            }
            _ => None,
        };
        Acc { combine, var, ty, at, nowhere }
    }

    /// The value of an empty fold, held in `ty` (argmax, argmin: a key that is not looked at).
    pub fn unit(&mut self, combine: Combine, body: dtype::Ty, ty: Ty) -> Expr {
        match combine {
            Combine::Builtin(Monoid::ArgMax | Monoid::ArgMin) => default_of(ty),
            Combine::Builtin(m) => match m.unit(body) {
                Value::I64(v) => int_of(ty, v).expr,
                v => Expr::Lit(v),
            },
            Combine::Fn(f) => {
                let unit = self.graph.fold_fn(f).unit;
                self.num_as(unit, ty)
            }
        }
    }

    /// The fold's value.
    pub fn result(&mut self, acc: &Acc) -> Num {
        match acc.at {
            Some((at, ty)) if acc.nowhere == -1 => Num { expr: Expr::Var(at), ty },
            Some((at, ty)) => {
                let none = cmp(CmpOp::Eq, Expr::Var(at), int_of(ty, acc.nowhere).expr);
                let (a, b) = (int_of(ty, -1).expr, Expr::Var(at));
                Num { expr: Expr::Select(Box::new(none), Box::new(a), Box::new(b)), ty }
            }
            None => Num { expr: Expr::Var(acc.var), ty: acc.ty },
        }
    }

    // Loops.

    fn nest(&mut self, f: &Fold, depth: usize, acc: &Acc) {
        let Some(&axis) = f.axes.get(depth) else { return self.leaf(f, acc) };
        let (lo, hi) = self.range(axis);
        let ty = self.loop_ty(axis);
        let long = self.chained(acc) && self.points(&f.axes[depth..]).is_none_or(|n| n > CHAIN);
        if !long {
            return self.for_axis(axis, ty, lo, hi, |e| e.nest(f, depth + 1, acc));
        }
        if self.graph.extent(axis).is_some_and(|n| n <= CHAIN) {
            return self.for_axis(axis, ty, lo, hi, |e| e.piece(f, depth + 1, acc));
        }
        self.chunks(f, depth, axis, ty, lo, hi, acc);
    }

    /// The axis in chunks of `CHAIN`, each summed on its own.
    #[allow(clippy::too_many_arguments)]
    fn chunks(&mut self, f: &Fold, depth: usize, axis: AxisId, ty: Ty, lo: Num, hi: Num, acc: &Acc) {
        let (lo, hi) = (super::read::to(lo, ty), super::read::to(hi, ty));
        let hi = self.named("hi", ty, hi);
        let var = self.kernel.var("chunk", ty);
        let body = self.block(|e| {
            let part = e.partial(acc);
            let end = add(Expr::Var(var), int_of(ty, CHAIN).expr);
            let end = e.named("end", ty, Expr::Int(IntOp::Min, Box::new(end), Box::new(hi.clone())));
            let (lo, hi) = (Num { expr: Expr::Var(var), ty }, Num { expr: end, ty });
            let inner = e.points(&f.axes[depth + 1..]);
            e.for_axis(axis, ty, lo, hi, |e| match inner {
                Some(n) if n <= 64 => e.nest(f, depth + 1, &part),
                _ => e.piece(f, depth + 1, &part),
            });
            e.merge(acc, &part);
        });
        self.push(Stmt::For { var, lo, hi, step: int_of(ty, CHAIN).expr, unroll: Unroll::None, body });
    }

    /// The rest of the nest in an accumulator of its own.
    fn piece(&mut self, f: &Fold, depth: usize, acc: &Acc) {
        if depth == f.axes.len() {
            return self.leaf(f, acc);
        }
        let part = self.partial(acc);
        self.nest(f, depth, &part);
        self.merge(acc, &part);
    }

    pub(super) fn partial(&mut self, acc: &Acc) -> Acc {
        let unit = match (acc.combine, acc.ty) {
            (Combine::Builtin(m), Ty::F64) => Expr::Lit(m.unit(dtype::Ty::F64)),
            (Combine::Builtin(m), _) => Expr::Lit(m.unit(dtype::Ty::F32)),
            (Combine::Fn(_), ty) => default_of(ty),
        };
        Acc { var: self.let_var("part", acc.ty, unit), ..acc.clone() }
    }

    pub(super) fn merge(&mut self, acc: &Acc, part: &Acc) {
        let n = Num { expr: Expr::Var(part.var), ty: part.ty };
        let v = self.combined(acc.combine, Num { expr: Expr::Var(acc.var), ty: acc.ty }, n);
        self.push(Stmt::Set(acc.var, v.expr));
    }

    /// Float sums and products, whose error grows with the chain.
    pub(super) fn chained(&self, acc: &Acc) -> bool {
        matches!(acc.combine, Combine::Builtin(Monoid::Sum | Monoid::Prod))
            && matches!(acc.ty, Ty::F32 | Ty::F64)
    }

    /// Number of points of a nest of axes with literal ranges.
    fn points(&self, axes: &[AxisId]) -> Option<i64> {
        axes.iter().try_fold(1i64, |n, &a| n.checked_mul(self.graph.extent(a)?))
    }

    /// An axis's bounds, in variables.
    pub fn range(&mut self, axis: AxisId) -> (Num, Num) {
        let a = self.graph.axis(axis).clone();
        let (lo, hi) = (self.num(a.lo), self.num(a.hi));
        let lo = Num { expr: self.named("lo", lo.ty, lo.expr), ty: lo.ty };
        let hi = Num { expr: self.named("hi", hi.ty, hi.expr), ty: hi.ty };
        (lo, hi)
    }

    /// The register type of a loop over an axis.
    pub fn loop_ty(&self, axis: AxisId) -> Ty {
        let a = self.graph.axis(axis);
        let ends = self.facts.interval(a.lo).union(self.facts.interval(a.hi));
        let room = Interval::new(ends.lo, ends.hi.saturating_add(2 * CHAIN));
        if room.fits_i32() { Ty::I32 } else { Ty::I64 }
    }

    /// A loop that binds an axis.
    pub fn for_axis(&mut self, axis: AxisId, ty: Ty, lo: Num, hi: Num, f: impl FnOnce(&mut Self)) {
        let name = self.graph.axis(axis).name.clone();
        let var = self.kernel.var(name, ty);
        let (lo, hi) = (super::read::to(lo, ty), super::read::to(hi, ty));
        let body = self.block(|e| {
            e.bind_axis(axis, Expr::Var(var), ty);
            f(e);
        });
        self.push(Stmt::For { var, lo, hi, step: int_of(ty, 1).expr, unroll: Unroll::Auto, body });
    }

    // Terms.

    /// Takes the point of a fold at which its axes are bound.
    pub(super) fn leaf(&mut self, f: &Fold, acc: &Acc) {
        match f.cond {
            Some(c) => {
                let cond = self.value(c);
                self.if_then(cond, |e| e.take(f, acc));
            }
            None => self.take(f, acc),
        }
    }

    /// Combines the body at this point into the accumulator.
    fn take(&mut self, f: &Fold, acc: &Acc) {
        let here = f.axes.first().and_then(|a| self.axis_value(*a).cloned());
        self.accumulate(acc, f.body, here);
    }

    /// Combines the value of `body` into an accumulator; `here` is the axis's value (argmax, argmin).
    pub fn accumulate(&mut self, acc: &Acc, body: ExprId, here: Option<Num>) {
        let old = Num { expr: Expr::Var(acc.var), ty: acc.ty };
        match acc.combine {
            Combine::Builtin(m @ (Monoid::Any | Monoid::All)) if !self.facts.may_fault(body) => {
                let open = if m == Monoid::Any { not(old.expr) } else { old.expr };
                self.if_then(open, |e| {
                    let v = e.value(body);
                    e.push(Stmt::Set(acc.var, v));
                });
            }
            Combine::Builtin(m @ (Monoid::ArgMax | Monoid::ArgMin)) => {
                let v = self.num_as(body, acc.ty);
                let v = self.named("key", acc.ty, v);
                self.better(m, acc, v, here.unwrap_or_else(|| int(0)));
            }
            combine => {
                let new = match self.product(combine, body) {
                    Some((a, b)) => {
                        let (a, b) = (self.value(a), self.value(b));
                        Num { expr: Expr::Call(Func::Fma, vec![a, b, old.expr]), ty: acc.ty }
                    }
                    None => {
                        let v = self.num_as(body, acc.ty);
                        self.combined(combine, old, Num { expr: v, ty: acc.ty })
                    }
                };
                self.push(Stmt::Set(acc.var, new.expr));
            }
        }
    }

    /// The factors, if this is a float sum of products whose product nothing else uses.
    pub(super) fn product(&self, combine: Combine, body: ExprId) -> Option<(ExprId, ExprId)> {
        let fuses = combine == Combine::Builtin(Monoid::Sum)
            && self.graph.ty(body).is_float()
            && self.facts.uses(body) <= 1
            && !self.is_known(body);
        match self.graph.expr(body) {
            Node::Call(Func::Mul, ab) if fuses => Some((ab[0], ab[1])),
            _ => None,
        }
    }

    /// Takes a key and its place into an argmax or argmin: the first NaN, otherwise the lowest index among the best.
    /// Points must come in order of their index.
    pub fn better(&mut self, m: Monoid, acc: &Acc, key: Expr, here: Num) {
        let Some((at, at_ty)) = acc.at else { return };
        let best = Expr::Var(acc.var);
        let op = if m == Monoid::ArgMax { CmpOp::Gt } else { CmpOp::Lt };
        let first = cmp(CmpOp::Eq, Expr::Var(at), int_of(at_ty, acc.nowhere).expr);
        let mut cond = Expr::Or(Box::new(first), Box::new(cmp(op, key.clone(), best.clone())));
        if matches!(acc.ty, Ty::F32 | Ty::F64) {
            let nan = |e: &Expr| Expr::Call(Func::IsNan, vec![e.clone()]);
            let wins = super::scalar::and(nan(&key), not(nan(&best)));
            cond = Expr::Or(Box::new(cond), Box::new(wins));
        }
        let here = super::read::to(here, at_ty);
        self.if_then(cond, |e| {
            e.push(Stmt::Set(acc.var, key));
            e.push(Stmt::Set(at, here));
        });
    }

    /// `a ⊕ b`, in this order.
    pub fn combined(&mut self, combine: Combine, a: Num, b: Num) -> Num {
        let ty = a.ty;
        let float = matches!(ty, Ty::F32 | Ty::F64);
        let call = |f: Func, a: Num, b: Num| Num { expr: Expr::Call(f, vec![a.expr, b.expr]), ty };
        match combine {
            Combine::Fn(f) => {
                let body = self.graph.fold_fn(f).body;
                let a = Num { expr: self.named("a", a.ty, a.expr), ty: a.ty };
                let b = Num { expr: self.named("b", b.ty, b.expr), ty: b.ty };
                let n = self.apply(body, [a, b]);
                Num { expr: super::read::to(n, ty), ty }
            }
            Combine::Builtin(Monoid::Sum) if float => call(Func::Add, a, b),
            Combine::Builtin(Monoid::Prod) if float => call(Func::Mul, a, b),
            Combine::Builtin(Monoid::Max) if float => call(Func::Max, a, b),
            Combine::Builtin(Monoid::Min) if float => call(Func::Min, a, b),
            Combine::Builtin(Monoid::Sum) => arith(IntOp::Add, a, b),
            Combine::Builtin(Monoid::Prod) => arith(IntOp::Mul, a, b),
            Combine::Builtin(Monoid::Max) => arith(IntOp::Max, a, b),
            Combine::Builtin(Monoid::Min) => arith(IntOp::Min, a, b),
            Combine::Builtin(Monoid::Any) => Num { expr: Expr::Or(Box::new(a.expr), Box::new(b.expr)), ty },
            Combine::Builtin(Monoid::All) => Num { expr: Expr::And(Box::new(a.expr), Box::new(b.expr)), ty },
            // Pairs are combined by `better`.
            Combine::Builtin(Monoid::ArgMax | Monoid::ArgMin) => a,
        }
    }

    // What does not change in the loop.

    fn hoist_fold(&mut self, f: &Fold) {
        let bound: BTreeSet<AxisId> = f.axes.iter().copied().collect();
        let sure = self.all_taken(&f.axes);
        let mut seen = BTreeSet::new();
        for &a in &f.axes[1.min(f.axes.len())..] {
            let axis = self.graph.axis(a).clone();
            self.hoist(axis.lo, &bound, sure, &mut seen);
            self.hoist(axis.hi, &bound, sure, &mut seen);
        }
        match f.cond {
            Some(c) => self.hoist(c, &bound, sure, &mut seen),
            None => self.hoist(f.body, &bound, sure, &mut seen),
        }
    }

    /// Computes now what does not depend on these axes, for several values of which the expression is emitted.
    pub fn hoist_shared(&mut self, id: ExprId, bound: &BTreeSet<AxisId>) {
        self.hoist(id, bound, true, &mut BTreeSet::new());
    }

    /// Emits the largest parts of `id` that are free of `bound`; with reads only where the loop surely runs.
    pub(super) fn hoist(
        &mut self,
        id: ExprId,
        bound: &BTreeSet<AxisId>,
        sure: bool,
        seen: &mut BTreeSet<ExprId>,
    ) {
        let leaf =
            matches!(self.graph.expr(id), Node::Lit(_) | Node::Axis(_) | Node::Scalar(_) | Node::Param(_));
        if leaf || self.is_known(id) || !seen.insert(id) {
            return;
        }
        let invariant = self.facts.free(id).is_disjoint(bound) && !self.facts.has_param(id);
        if invariant && !self.facts.may_fault(id) && (sure || !self.has_read(id)) {
            let n = self.num(id);
            let expr = self.named("inv", n.ty, n.expr);
            return self.bind_num(id, Num { expr, ty: n.ty });
        }
        match self.graph.expr(id) {
            Node::Call(_, args) => args.iter().for_each(|&a| self.hoist(a, bound, sure, seen)),
            Node::Cast(a) | Node::Round(_, _, a) => self.hoist(*a, bound, sure, seen),
            Node::Select(c, ..) => self.hoist(*c, bound, sure, seen),
            Node::Read(r) => r.index.iter().for_each(|&i| self.hoist(i, bound, sure, seen)),
            Node::Fold(f) => {
                let mut inner = bound.clone();
                inner.extend(&f.axes);
                let sure = sure && self.all_taken(&f.axes) && f.cond.is_none();
                self.hoist(f.body, &inner, sure, seen);
            }
            _ => {}
        }
    }

    fn has_read(&self, id: ExprId) -> bool {
        matches!(self.graph.expr(id), Node::Read(_))
            || self.graph.children(id).iter().any(|&c| self.has_read(c))
    }
}
