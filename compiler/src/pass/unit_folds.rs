//! Reductions of a single term: over axes of extent 1 the reduction is its term.

use super::inline::below;
use super::subst::Subst;
use crate::ir::graph::*;
use crate::vocab::monoid::Monoid;
use std::collections::BTreeSet;

/// Puts the terms of such reductions in their place.
pub fn remove(g: &mut Graph) {
    // What a tile block says of an axis would have no place.
    if !g.tiles.is_empty() {
        return;
    }
    let found: BTreeSet<ExprId> =
        g.stmts.iter().flat_map(super::facts::roots).flat_map(|r| below(g, r)).collect();
    // Inner ones stand before those around them.
    let mut terms = Subst::of_exprs([]);
    let mut some = false;
    for e in found {
        if let Some((axes, body)) = single(g, e) {
            let body = terms.apply(g, body);
            let points: Vec<(AxisId, ExprId)> = axes.into_iter().map(|(a, lo)| (a, g.int(lo))).collect();
            let term = Subst::of_axes(g, points).apply(g, body);
            terms.put(e, term);
            some = true;
        }
    }
    if some {
        let mut stmts = std::mem::take(&mut g.stmts);
        stmts.iter_mut().for_each(|s| super::facts::map_roots(s, &mut |e| terms.apply(g, e)));
        g.stmts = stmts;
    }
}

/// The axes of a reduction of one term, each with its value, and the term.
fn single(g: &Graph, e: ExprId) -> Option<(Vec<(AxisId, i64)>, ExprId)> {
    let Expr::Fold(f) = g.expr(e) else { return None };
    let plain = match f.combine {
        Combine::Builtin(m) => !matches!(m, Monoid::ArgMax | Monoid::ArgMin),
        Combine::Fn(_) => false,
    };
    let one = |&a: &AxisId| g.axis_range(a).filter(|(lo, hi)| hi - lo == 1).map(|(lo, _)| (a, lo));
    let axes = f.axes.iter().map(one).collect::<Option<Vec<_>>>()?;
    (plain && f.cond.is_none() && g.ty(e) == g.ty(f.body)).then_some((axes, f.body))
}
