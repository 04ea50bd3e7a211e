//! Sums over a part of an axis that moves with another one (`sum[j in 0..=i](p[i, j] * v[j, e])`), as sums over the whole
//! axis under a condition: products of matrices some terms of which are left out.

use super::inline;
use super::subst::Subst;
use crate::ir::graph::*;
use crate::vocab::dtype::{Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use std::collections::BTreeSet;

/// Rewrites such sums of all definitions.
pub fn box_sums(g: &mut Graph) {
    for s in 0..g.stmts.len() {
        let Stmt::Define(d) = &g.stmts[s] else { continue };
        let value = d.value;
        let folds = inline::outer_folds(g, value);
        let boxed: Vec<_> = folds.into_iter().filter_map(|e| Some((e, boxed(g, e)?))).collect();
        if boxed.is_empty() {
            continue;
        }
        let value = Subst::of_exprs(boxed).apply(g, value);
        if let Stmt::Define(d) = &mut g.stmts[s] {
            d.value = value;
        }
    }
}

fn boxed(g: &mut Graph, e: ExprId) -> Option<ExprId> {
    let Expr::Fold(f) = g.expr(e).clone() else { return None };
    let [axis] = f.axes[..] else { return None };
    if f.combine != Combine::Builtin(Monoid::Sum) || g.axis_range(axis).is_some() {
        return None;
    }
    let Axis { name, lo, hi, span } = g.axis(axis).clone();
    let Expr::Call(Func::Mul, factors) = g.expr(f.body).clone() else { return None };
    let [(first, a), (second, b)] = [matrix(g, factors[0], axis)?, matrix(g, factors[1], axis)?];
    // Each is used again along an axis of the other.
    let reused = |a: &BTreeSet<AxisId>, b: &BTreeSet<AxisId>| a.iter().any(|x| !b.contains(x));
    if first != second || !reused(&a, &b) || !reused(&b, &a) || !of_axes(g, lo) || !of_axes(g, hi) {
        return None;
    }
    let is = |g: &Graph, e: ExprId, v: i64| matches!(g.expr(e), Expr::Lit(Value::I64(x)) if *x == v);
    // One end stays, so that about half of the terms are taken.
    let (from_start, to_end) = (is(g, lo, first.0), is(g, hi, first.1));
    if from_start == to_end {
        return None;
    }
    let (low, high) = (g.int(first.0), g.int(first.1));
    let whole = g.new_axis(name, low, high, span);
    let j = g.axis_expr(whole);
    let (func, args) = match g.expr(hi) {
        _ if to_end => (Func::Le, vec![lo, j]),
        Expr::Call(Func::Add, x) if is(g, x[1], 1) => (Func::Le, vec![j, x[0]]),
        _ => (Func::Lt, vec![j, hi]),
    };
    let mut cond = g.add(Expr::Call(func, args), Ty::Bool, span);
    let mut subst = Subst::of_axes(g, [(axis, j)]);
    if let Some(own) = f.cond {
        let own = subst.apply(g, own);
        let no = g.lit(Value::Bool(false));
        cond = g.add(Expr::Select(cond, own, no), Ty::Bool, span);
    }
    let body = subst.apply(g, f.body);
    let (ty, span) = (g.ty(e), g.span(e));
    Some(g.add(Expr::Fold(Fold { axes: vec![whole], cond: Some(cond), body, ..f }), ty, span))
}

/// The range of the one dim that an axis indexes on its own in a read, and the read's other axes.
fn matrix(g: &Graph, e: ExprId, axis: AxisId) -> Option<((i64, i64), BTreeSet<AxisId>)> {
    let Expr::Read(Read { tensor, index, access: Access::Proven }) = g.expr(e) else { return None };
    let t = g.tensor(*tensor);
    let mut range = None;
    let mut others = BTreeSet::new();
    for (d, &i) in index.iter().enumerate() {
        match g.expr(i) {
            Expr::Axis(a) if *a == axis && range.is_none() => range = Some((t.lo[d], t.lo[d] + t.dims[d])),
            _ => {
                let axes = inline::below(g, i).into_iter().filter_map(|x| match g.expr(x) {
                    Expr::Axis(a) => Some(*a),
                    _ => None,
                });
                others.extend(axes);
            }
        }
    }
    range.filter(|_| !others.contains(&axis)).map(|r| (r, others))
}

/// Made of axes and whole numbers alone.
fn of_axes(g: &Graph, e: ExprId) -> bool {
    match g.expr(e) {
        Expr::Axis(_) | Expr::Lit(_) => true,
        Expr::Call(Func::Add | Func::Sub, a) => a.iter().all(|&x| of_axes(g, x)),
        _ => false,
    }
}
