//! Sums of which data say for each batch which terms count: `sum[m where start[e] <= m && m < start[e + 1]]`, the gradient of a
//! grouped product's weights. A block has only the steps that reach into its bounds, and what a step has beyond
//! them is zero in both operands and is not read.

use super::contract_coords::{Known, Place, bind, over, plus};
use super::contract_operand::Ground;
use super::contract_pattern::{ContractShape, Contraction, Factor, Guard, KAxis};
use super::hopper_loop::Steps;
use super::scalar::{Emit, Num, add, cast, int_op, lit32, lit64, sub, widen};
use crate::ir::graph::{AxisId, Expr as GraphExpr, ExprId, Graph};
use crate::ir::simt::{Expr, IntOp, Ty};
use crate::vocab::func::Func;

/// A bound of a fold axis: at least `at` + `more`, or less than that.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    axis: AxisId,
    at: ExprId,
    more: i64,
    least: bool,
}

/// The bounds of an axis as numbers of its values, from its lowest on.
#[derive(Clone)]
pub struct Range {
    pub axis: AxisId,
    pub lo: Expr,
    pub hi: Expr,
}

/// A factor's conditions as bounds that are the same for all points of a batch, if they are nothing else.
pub fn bounds(ground: &Ground, c: &Contraction, f: &Factor) -> Option<Vec<Bound>> {
    f.guards.iter().map(|g| bound(ground, c, *g)).collect()
}

fn bound(ground: &Ground, c: &Contraction, guard: Guard) -> Option<Bound> {
    let g = ground.graph;
    let found = match guard {
        Guard::AtLeast(axis, at) => Bound { axis, at, more: 0, least: true },
        Guard::Below(axis, at) => Bound { axis, at, more: 0, least: false },
        Guard::Is(cond, true) => {
            let GraphExpr::Call(f @ (Func::Le | Func::Lt), args) = g.expr(cond) else { return None };
            let strict = (*f == Func::Lt) as i64;
            match (axis_of(g, args[0]), axis_of(g, args[1])) {
                (Some(axis), None) => Bound { axis, at: args[1], more: 1 - strict, least: false },
                (None, Some(axis)) => Bound { axis, at: args[0], more: strict, least: true },
                _ => return None,
            }
        }
        Guard::Is(_, false) => return None,
    };
    let shape = ground.shape;
    let axes = &shape.stmts[c.stmt].axes;
    let batch = |a: &AxisId| {
        let whole =
            |d: &super::contract_pattern::Digit| d.stride == 1 && d.extent == shape.axes[d.out].extent;
        shape.batch.iter().any(|d| axes[d.out] == *a && whole(d))
    };
    let known = ground.facts.free(found.at).iter().all(batch);
    (known && g.ty(found.at).is_int() && c.k.iter().any(|k| k.axis == found.axis)).then_some(found)
}

/// The axis that an index is.
fn axis_of(g: &Graph, id: ExprId) -> Option<AxisId> {
    match g.expr(id) {
        GraphExpr::Axis(a) => Some(*a),
        GraphExpr::Cast(a) if g.ty(*a).is_int() && g.ty(id).is_int() => axis_of(g, *a),
        _ => None,
    }
}

/// Evaluates bounds for a block.
pub fn ranges(
    e: &mut Emit,
    shape: &ContractShape,
    c: &Contraction,
    place: &Place,
    bounds: &[Bound],
) -> Vec<Range> {
    let mut out: Vec<Range> = Vec::new();
    for b in bounds {
        let Some(k) = c.k.iter().find(|k| k.axis == b.axis) else { continue };
        let at = value(e, shape, c, place, b, k);
        let known = out.iter().position(|r| r.axis == b.axis).unwrap_or_else(|| {
            out.push(Range { axis: b.axis, lo: lit32(0), hi: lit32(k.extent as i32) });
            out.len() - 1
        });
        let r = &mut out[known];
        match b.least {
            true => r.lo = int_op(IntOp::Max, r.lo.clone(), at),
            false => r.hi = int_op(IntOp::Min, r.hi.clone(), at),
        }
    }
    for r in &mut out {
        r.lo = e.named("lowest", Ty::I32, r.lo.clone());
        r.hi = e.named("end", Ty::I32, r.hi.clone());
    }
    out
}

/// A bound as the number of a value, between the axis's ends.
fn value(e: &mut Emit, shape: &ContractShape, c: &Contraction, place: &Place, b: &Bound, k: &KAxis) -> Expr {
    e.open();
    bind(e, shape, c.stmt, Known { batch: &place.batch, m: &[], n: &[] });
    let n: Num = widen(e.num(b.at));
    let at = add(n.expr, lit64(b.more - k.lo));
    let at = int_op(IntOp::Min, int_op(IntOp::Max, at, lit64(0)), lit64(k.extent));
    let at = e.named("bound", Ty::I32, cast(Ty::I32, at));
    let stmts = e.close();
    stmts.into_iter().for_each(|s| e.push(s));
    at
}

/// The steps that reach into the bounds of the only fold axis.
pub fn narrow(e: &mut Emit, steps: Steps, range: &Range, step: i64) -> Steps {
    let least = over(range.lo.clone(), step);
    let end = over(plus(range.hi.clone(), lit32(step as i32 - 1)), step);
    let own = plus(steps.first.clone(), steps.count.clone());
    let first = e.named("first", Ty::I32, int_op(IntOp::Max, steps.first, least));
    let count = sub(int_op(IntOp::Min, own, end), first.clone());
    let count = e.named("count", Ty::I32, int_op(IntOp::Max, count, lit32(0)));
    Steps { first, count }
}
