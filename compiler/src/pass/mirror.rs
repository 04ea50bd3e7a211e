//! Scans from the end: a scan of terms that are taken backwards (`c[n] = cumsum[n](x[N-1-n])`), of which all is read
//! backwards again (`c[N-1-n]`), runs over the axis as its tensors lie, from the last point to the first.

use super::inline::below;
use super::subst::Subst;
use crate::ir::graph::*;
use crate::vocab::dtype::{Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use std::collections::BTreeSet;

/// Turns such scans into recurrences from the end.
pub fn turn(g: &mut Graph) {
    // What a tile block says of an axis would have no place.
    if !g.tiles.is_empty() {
        return;
    }
    for i in 0..g.stmts.len() {
        let Stmt::Scan(s) = &g.stmts[i] else { continue };
        let s = s.clone();
        if let Some((terms, reads)) = mirrored(g, i, &s) {
            apply(g, i, &s, terms, reads);
        }
    }
}

/// An index `c − a`, with what it is in the axis as it lies: `a + shift`.
type Turned = (ExprId, i64);

/// The indices of a scan's terms, and the reads of the scan, if all of them are backwards.
fn mirrored(g: &Graph, i: usize, s: &Scan) -> Option<(Vec<Turned>, Vec<ExprId>)> {
    let Combine::Builtin(Monoid::Sum | Monoid::Prod | Monoid::Max | Monoid::Min) = s.combine else {
        return None;
    };
    let t = g.tensor(s.target);
    let own = s.axes[s.along];
    let (lo, hi) = g.axis_range(own)?;
    if t.role != Role::Local
        || t.dtype != g.ty(s.body).stored()
        || t.dims.contains(&0)
        || g.axis_range(own)? != (t.lo[s.along], t.lo[s.along] + t.dims[s.along])
    {
        return None;
    }
    let mut terms = Vec::new();
    let roots: Vec<ExprId> = s.cond.into_iter().chain([s.body]).collect();
    for e in roots.iter().flat_map(|&r| below(g, r)) {
        let Expr::Read(r) = g.expr(e) else { continue };
        for &index in r.index.iter().filter(|&&x| names(g, x, own)) {
            terms.push((index, flipped(g, index, own)? - (lo + hi - 1)));
        }
    }
    // Nothing else may know of the axis.
    let known: BTreeSet<ExprId> = terms.iter().map(|t| t.0).collect();
    if terms.is_empty() || roots.iter().any(|&r| outside(g, r, own, &known)) {
        return None;
    }
    let mut reads = Vec::new();
    for (k, other) in g.stmts.iter().enumerate() {
        let all: BTreeSet<ExprId> =
            super::facts::roots(other).into_iter().flat_map(|r| below(g, r)).collect();
        for e in all {
            let Expr::Read(r) = g.expr(e) else { continue };
            if r.tensor != s.target {
                continue;
            }
            let axis = only_axis(g, r.index[s.along])?;
            flipped(g, r.index[s.along], axis)?;
            // Where it is outside is known by the index as it was.
            if k == i || r.access != Access::Proven {
                return None;
            }
            reads.push(e);
        }
    }
    let output = g.outputs.iter().any(|o| o.tensor == s.target);
    (!reads.is_empty() && !output).then_some((terms, reads))
}

fn names(g: &Graph, e: ExprId, a: AxisId) -> bool {
    below(g, e).iter().any(|&x| matches!(g.expr(x), Expr::Axis(b) if *b == a))
}

/// Is the axis read anywhere but below these?
fn outside(g: &Graph, e: ExprId, a: AxisId, known: &BTreeSet<ExprId>) -> bool {
    if known.contains(&e) {
        return false;
    }
    matches!(g.expr(e), Expr::Axis(b) if *b == a)
        || g.children(e).into_iter().any(|c| outside(g, c, a, known))
}

/// The only axis of an index.
fn only_axis(g: &Graph, e: ExprId) -> Option<AxisId> {
    let mut all = below(g, e).into_iter().filter_map(|x| match g.expr(x) {
        Expr::Axis(a) => Some(*a),
        _ => None,
    });
    let first = all.next()?;
    all.all(|a| a == first).then_some(first)
}

/// `c`, if the expression is `c − a`.
fn flipped(g: &Graph, e: ExprId, a: AxisId) -> Option<i64> {
    match linear(g, e, a)? {
        (-1, c) => Some(c),
        _ => None,
    }
}

/// The expression as `k·a + c`.
fn linear(g: &Graph, e: ExprId, a: AxisId) -> Option<(i64, i64)> {
    match g.expr(e) {
        Expr::Axis(b) => (*b == a).then_some((1, 0)),
        Expr::Lit(Value::I64(v)) => Some((0, *v)),
        Expr::Lit(Value::I32(v)) => Some((0, *v as i64)),
        Expr::Call(f, args) => {
            let x = linear(g, args[0], a)?;
            let y = args.get(1).map_or(Some((0, 0)), |&y| linear(g, y, a))?;
            match f {
                Func::Add => Some((x.0.checked_add(y.0)?, x.1.checked_add(y.1)?)),
                Func::Sub => Some((x.0.checked_sub(y.0)?, x.1.checked_sub(y.1)?)),
                Func::Neg => Some((x.0.checked_neg()?, x.1.checked_neg()?)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn apply(g: &mut Graph, i: usize, s: &Scan, terms: Vec<Turned>, reads: Vec<ExprId>) {
    let own = s.axes[s.along];
    let Axis { name, lo, hi, span } = g.axis(own).clone();
    let (first, end) = g.axis_range(own).expect("its range was asked for");
    let fresh = g.new_axis(name, lo, hi, span);
    let mut axes = s.axes.clone();
    axes[s.along] = fresh;
    let at = g.axis_expr(fresh);
    let mut inside = Subst::of_exprs([]);
    for (index, shift) in terms {
        let to = plus(g, at, shift);
        inside.put(index, to);
    }
    let body = inside.apply(g, s.body);
    let cond = s.cond.map(|c| inside.apply(g, c));
    let value = step(g, s, &axes, body, cond);
    g.stmts[i] = Stmt::Recur(Recur {
        members: vec![Define { target: s.target, axes, value, span: s.span }],
        steps: vec![StepAxis { position: vec![s.along], descending: true }],
    });
    let mut around = Subst::of_exprs([]);
    for e in reads {
        let Expr::Read(mut r) = g.expr(e).clone() else { continue };
        let axis = only_axis(g, r.index[s.along]).expect("it was found before");
        let c = flipped(g, r.index[s.along], axis).expect("it was found before");
        let at = g.axis_expr(axis);
        r.index[s.along] = plus(g, at, first + end - 1 - c);
        let (ty, span) = (g.ty(e), g.span(e));
        let to = g.add(Expr::Read(r), ty, span);
        around.put(e, to);
    }
    let mut stmts = std::mem::take(&mut g.stmts);
    for (_, s) in stmts.iter_mut().enumerate().filter(|(k, _)| *k != i) {
        super::facts::map_roots(s, &mut |e| around.apply(g, e));
    }
    g.stmts = stmts;
}

/// The state at a point: what stands after it, and its own term.
fn step(g: &mut Graph, s: &Scan, axes: &[AxisId], body: ExprId, cond: Option<ExprId>) -> ExprId {
    let Combine::Builtin(m) = s.combine else { return body };
    let ty = g.ty(body);
    let unit = g.lit(m.unit(ty));
    let mut index: Vec<ExprId> = axes.iter().map(|&a| g.axis_expr(a)).collect();
    index[s.along] = plus(g, index[s.along], 1);
    let read = Read { tensor: s.target, index, access: Access::Else(unit) };
    let after = g.add(Expr::Read(read), ty, s.span);
    let f = match m {
        Monoid::Prod => Func::Mul,
        Monoid::Max => Func::Max,
        Monoid::Min => Func::Min,
        _ => Func::Add,
    };
    let both = g.add(Expr::Call(f, vec![after, body]), ty, s.span);
    match cond {
        Some(c) => g.add(Expr::Select(c, both, after), ty, s.span),
        None => both,
    }
}

fn plus(g: &mut Graph, e: ExprId, by: i64) -> ExprId {
    if by == 0 {
        return e;
    }
    let span = g.span(e);
    let lit = g.lit(Value::I64(by));
    g.add(Expr::Call(Func::Add, vec![e, lit]), Ty::I64, span)
}
