//! Form `thread`: recurrences whose points depend on each other along the steps alone. A thread takes an independent
//! part and loops over the steps; states read at a fixed small distance stay in registers.

use super::arith::default_of;
use super::map::launch_points;
use super::recur::{Parts, parts};
use super::scalar::{Emit, Num, compare, int_of};
use super::{Lowering, Refusal, thread_tile};
use crate::ir::graph::{Access, AxisId, Expr as Node, ExprId, Graph, Read, TensorId};
use crate::ir::plan::PlanKernel;
use crate::ir::simt::{CmpOp, Expr, Stmt, Ty, Unroll, VarId};
use crate::vocab::dtype::Value;
use crate::vocab::func::Func;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Steps back that a state is kept for in registers.
const DISTANCE: i64 = 4;

pub fn lower<'a>(cx: &mut Lowering<'a>, k: &'a PlanKernel) -> Result<(), Refusal> {
    let p = parts(cx.graph, k)?;
    if p.total(&k.name)? == 0 {
        return Ok(());
    }
    let outer = p.dims(cx.graph, 0, &p.free[0]);
    let states = states(cx.graph, &p);
    if cx.schedule.block_threads(&k.name).is_none()
        && let Some(tiles) = thread_tile::find(cx, &p, &states, &outer)
    {
        thread_tile::lower(cx, &p, (&k.name, &outer), &tiles);
        return Ok(());
    }
    launch_points(cx, &k.name, &outer, p.span, |e, free| {
        let vars = declare(e, &states);
        let names: Vec<TensorId> = vars.keys().copied().collect();
        p.step_loops(e, &mut |e, at| {
            for (&tensor, regs) in &vars {
                stage(e, &p, tensor, regs.clone(), at[0].clone());
            }
            for m in 0..p.recur.members.len() {
                points(e, &p, m, at, free, &mut Vec::new(), &vars);
            }
            for regs in vars.values() {
                shift(e, regs);
            }
        });
        names.iter().for_each(|&t| e.unstage(t));
    })
}

/// The registers of a state: its value at this step, and at the steps before, nearest first.
#[derive(Clone)]
pub(super) struct Regs {
    pub now: VarId,
    before: Vec<VarId>,
    pub ty: Ty,
}

/// For each member whose every read by a member is at the same place a few steps before (or at this step): how many.
pub(super) fn states(graph: &Graph, p: &Parts<'_>) -> BTreeMap<TensorId, i64> {
    let mut far: BTreeMap<TensorId, Option<i64>> = BTreeMap::new();
    if p.steps.len() != 1 || !p.coupled.iter().all(Vec::is_empty) {
        return BTreeMap::new();
    }
    let same_box = p.recur.members.iter().enumerate().all(|(m, d)| {
        let at = p.recur.steps[0].position[m];
        graph.tensor(d.target).dims[at] == p.steps[0].count
    });
    if !same_box {
        return BTreeMap::new();
    }
    for d in &p.recur.members {
        far.insert(d.target, Some(0));
    }
    for d in &p.recur.members {
        let stmt = crate::ir::graph::Stmt::Define(d.clone());
        for (_, r) in super::index::reads(graph, &stmt) {
            if let Some(most) = far.get_mut(&r.tensor) {
                *most = match (*most, distance(graph, p, r)) {
                    (Some(a), Some(b)) if b <= DISTANCE && r.access != Access::Checked => Some(a.max(b)),
                    _ => None,
                };
            }
        }
    }
    far.into_iter().filter_map(|(t, d)| Some((t, d?))).collect()
}

/// How many steps before the reader a member is read, if that is fixed.
fn distance(graph: &Graph, p: &Parts<'_>, r: &Read) -> Option<i64> {
    let m = p.recur.members.iter().position(|d| d.target == r.tensor)?;
    let step = &p.recur.steps[0];
    let axes: Vec<AxisId> = (0..p.recur.members.len())
        .map(|reader| p.recur.members[reader].axes[step.position[reader]])
        .collect();
    let by = offset(graph, r.index[step.position[m]], &axes)?;
    let back = if step.descending { by } else { -by };
    (back >= 0).then_some(back)
}

/// `c` of an index `axis + c`.
pub(super) fn offset(graph: &Graph, id: ExprId, axes: &[AxisId]) -> Option<i64> {
    let lit = |id: ExprId| match graph.expr(id) {
        Node::Lit(Value::I64(v)) => Some(*v),
        _ => None,
    };
    match graph.expr(id) {
        Node::Axis(a) if axes.contains(a) => Some(0),
        Node::Call(Func::Add, ab) => {
            let (a, b) = (ab[0], ab[1]);
            let sum = |x, y| Some(offset(graph, x, axes)? + lit(y)?);
            sum(a, b).or_else(|| sum(b, a))
        }
        Node::Call(Func::Sub, ab) => Some(offset(graph, ab[0], axes)? - lit(ab[1])?),
        _ => None,
    }
}

pub(super) fn declare(e: &mut Emit<'_>, states: &BTreeMap<TensorId, i64>) -> BTreeMap<TensorId, Regs> {
    let mut vars = BTreeMap::new();
    for (&t, &back) in states {
        let ty = Ty::of(e.graph.tensor(t).dtype.compute());
        let name = e.graph.tensor(t).name.clone();
        let now = e.let_var(&name, ty, default_of(ty));
        let before = (0..back).map(|_| e.let_var(&name, ty, default_of(ty))).collect();
        vars.insert(t, Regs { now, before, ty });
    }
    vars
}

/// Reads of a state come from its registers.
pub(super) fn stage<'a>(e: &mut Emit<'a>, p: &Parts<'a>, tensor: TensorId, regs: Regs, at: Num) {
    let graph = e.graph;
    let Some(m) = p.recur.members.iter().position(|d| d.target == tensor) else { return };
    let step = p.recur.steps[0].clone();
    let recur = p.recur;
    let axes: Vec<AxisId> = recur.members.iter().enumerate().map(|(r, d)| d.axes[step.position[r]]).collect();
    e.stage(
        tensor,
        Rc::new(move |e: &mut Emit<'a>, r: &Read| {
            let by = offset(graph, r.index[step.position[m]], &axes)?;
            let back = if step.descending { by } else { -by };
            let var = match back {
                0 => regs.now,
                n => *regs.before.get(n as usize - 1)?,
            };
            match r.access {
                Access::Else(d) if back > 0 => Some(or_default(e, &regs, var, back, &at, d)),
                _ => Some(Expr::Var(var)),
            }
        }),
    );
}

/// The state `back` steps before, or the default where that is before the first.
fn or_default(e: &mut Emit<'_>, regs: &Regs, var: VarId, back: i64, at: &Num, default: ExprId) -> Expr {
    let out = e.kernel.var("x", regs.ty);
    e.push(Stmt::Let(out, Expr::Var(var)));
    let early = compare(CmpOp::Lt, at.clone(), int_of(at.ty, back));
    e.if_then(early, |e| {
        let v = e.num_as(default, regs.ty);
        e.push(Stmt::Set(out, v));
    });
    Expr::Var(out)
}

/// After a step, each state moves one step back.
pub(super) fn shift(e: &mut Emit<'_>, regs: &Regs) {
    for i in (1..regs.before.len()).rev() {
        e.push(Stmt::Set(regs.before[i], Expr::Var(regs.before[i - 1])));
    }
    if let Some(&first) = regs.before.first() {
        e.push(Stmt::Set(first, Expr::Var(regs.now)));
    }
}

/// A member at one step: at every point of its coupled axes, one after the other.
fn points<'a>(
    e: &mut Emit<'a>,
    p: &Parts<'a>,
    m: usize,
    at: &[Num],
    free: &[Num],
    coupled: &mut Vec<Num>,
    vars: &BTreeMap<TensorId, Regs>,
) {
    let dims = p.dims(e.graph, m, &p.coupled[m]);
    let Some(&n) = dims.get(coupled.len()) else {
        let regs = vars.get(&p.recur.members[m].target).cloned();
        return p.define(e, m, at, free, coupled, &mut |e, v| {
            if let Some(r) = &regs {
                let v = super::read::to(v, r.ty);
                e.push(Stmt::Set(r.now, v));
            }
        });
    };
    let ty = if n < i32::MAX as i64 { Ty::I32 } else { Ty::I64 };
    let var = e.kernel.var("point", ty);
    coupled.push(Num { expr: Expr::Var(var), ty });
    let body = e.block(|e| points(e, p, m, at, free, coupled, vars));
    coupled.pop();
    let (lo, hi, step) = (int_of(ty, 0).expr, int_of(ty, n).expr, int_of(ty, 1).expr);
    e.push(Stmt::For { var, lo, hi, step, unroll: Unroll::Auto, body });
}
