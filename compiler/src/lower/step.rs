//! Form `step`: recurrences whose points at one step are too many for a block. Each step is a launch of each member,
//! in order; the counter of the host's loop says which step it is. Long sums of a step are kernels of their own
//! (`step_split.rs`).

use super::map::launch_points;
use super::read::{Index, to};
use super::recur::{Parts, parts};
use super::scalar::{Emit, Num, add, arith, cast, int_of};
use super::step_split::{self, Split};
use super::{Lowering, Parts as PartsOf, Refusal};
use crate::ir::graph::{Expr as Node, Graph, Read, ScalarId, Stmt, TensorId};
use crate::ir::plan::PlanKernel;
use crate::ir::program::Arg;
use crate::ir::simt::{Expr, IntOp, Mem, Stmt as Simt, Ty};
use crate::vocab::func::Func;
use std::ops::Range;
use std::rc::Rc;

pub fn lower<'a>(cx: &mut Lowering<'a>, k: &'a PlanKernel) -> Result<(), Refusal> {
    match step_split::split(cx.plan, k)? {
        Some(split) => split_steps(cx, &split),
        None => steps(cx, k, &[], None),
    }
}

/// Lowers the rewritten recurrence in a lowering of its own, whose kernels and buffers join the program.
fn split_steps(cx: &mut Lowering<'_>, split: &Split) -> Result<(), Refusal> {
    cx.within(&split.plan, |inner| {
        split.sums.iter().for_each(|&t| inner.new_home(t));
        steps(inner, &split.kernel, &split.before, Some(split.step))
    })
}

fn steps<'a>(
    cx: &mut Lowering<'a>,
    k: &'a PlanKernel,
    before: &'a [Vec<PlanKernel>],
    step: Option<ScalarId>,
) -> Result<(), Refusal> {
    let p = parts(cx.graph, k)?;
    let total = p.total(&k.name)?;
    cx.repeat(total, |cx| {
        let mut m = 0;
        while m < p.recur.members.len() {
            for sum in before.get(m).into_iter().flatten() {
                cx.lower_form(sum)?;
            }
            let mut end = m + 1;
            while end < p.recur.members.len()
                && before.get(end).is_none_or(Vec::is_empty)
                && joins(cx.graph, &p, m..end)
            {
                end += 1;
            }
            members(cx, k, &p, m..end, total)?;
            m = end;
        }
        step.into_iter().for_each(|s| cx.count_by(s));
        Ok(())
    })
}

/// Can the member after these share their launch? It has their points, and reads them at this step only at its own.
fn joins(graph: &Graph, p: &Parts<'_>, with: Range<usize>) -> bool {
    let next = with.end;
    let shape = |m: usize| (p.dims(graph, m, &p.free[m]), p.dims(graph, m, &p.coupled[m]));
    if shape(with.start) != shape(next) {
        return false;
    }
    let d = &p.recur.members[next];
    let stepped: Vec<usize> = p.recur.steps.iter().map(|s| s.position[next]).collect();
    let plain = |m: usize| -> Vec<usize> { p.free[m].iter().chain(&p.coupled[m]).copied().collect() };
    let own = plain(next);
    super::index::reads(graph, &Stmt::Define(d.clone())).iter().all(|(_, r)| {
        let Some(of) = with.clone().find(|&m| p.recur.members[m].target == r.tensor) else { return true };
        // At the same step or an earlier one: at the reader's own point, it is its own thread's either way.
        let is =
            |i: crate::ir::graph::ExprId, a: usize| matches!(graph.expr(i), Node::Axis(x) if *x == d.axes[a]);
        let here = plain(of).iter().zip(&own).all(|(&at, &a)| is(r.index[at], a));
        let now = p.recur.steps.iter().zip(&stepped).all(|(s, &a)| is(r.index[s.position[of]], a));
        here || !now && earlier(graph, p, r, of, next)
    })
}

/// Is a member read at a fixed number of steps before, wherever in the step it is?
fn earlier(graph: &Graph, p: &Parts<'_>, r: &Read, of: usize, reader: usize) -> bool {
    let [step] = &p.recur.steps[..] else { return false };
    let axis = p.recur.members[reader].axes[step.position[reader]];
    let by = super::thread::offset(graph, r.index[step.position[of]], &[axis]);
    by.is_some_and(|by| if step.descending { by > 0 } else { by < 0 })
}

fn members<'a>(
    cx: &mut Lowering<'a>,
    k: &PlanKernel,
    p: &Parts<'a>,
    group: Range<usize>,
    total: i64,
) -> Result<(), Refusal> {
    let m = group.start;
    let (free, coupled) = (p.dims(cx.graph, m, &p.free[m]), p.dims(cx.graph, m, &p.coupled[m]));
    let split = free.len();
    let dims = [free, coupled].concat();
    let parts = cx.parts.clone().unwrap_or_default();
    launch_points(cx, &k.name, &dims, p.recur.members[m].span, |e, at| {
        let steps = counter(e, p, total);
        parts.iter().for_each(|(&t, &parts)| stage_parts(e, t, parts));
        for m in group {
            p.define(e, m, &steps, &at[..split], &at[split..], &mut |_, _| {});
        }
    })
}

/// Reads of a sum add its parts, in order.
fn stage_parts(e: &mut Emit<'_>, tensor: TensorId, parts: PartsOf) {
    e.stage(
        tensor,
        Rc::new(move |e: &mut Emit<'_>, r: &Read| {
            let index: Vec<Index> = r.index.iter().map(|&i| e.index(i)).collect();
            let wide = parts.count * parts.len > i32::MAX as i64;
            let ty = if wide { Ty::I64 } else { Ty::I32 };
            let at = e.offset(tensor, &index);
            let at_ty = e.home(tensor).index_ty();
            let at = e.named("at", ty, to(Num { expr: at, ty: at_ty }, ty));
            let from = e.pointer(parts.buffer, false);
            let of = Ty::of(e.graph.tensor(tensor).dtype.compute());
            let part = |i: i64| {
                Expr::Load(Mem::Global(from), Box::new(add(at.clone(), int_of(ty, i * parts.len).expr)))
            };
            let sum = e.let_var("sum", of, part(0));
            for i in 1..parts.count {
                let next = match of {
                    Ty::F32 | Ty::F64 => Expr::Call(Func::Add, vec![Expr::Var(sum), part(i)]),
                    _ => add(Expr::Var(sum), part(i)),
                };
                e.push(Simt::Set(sum, next));
            }
            Some(Expr::Var(sum))
        }),
    );
}

/// The number of the step along each step axis, from the host's counter.
fn counter<'a>(e: &mut Emit<'a>, p: &Parts<'a>, total: i64) -> Vec<Num> {
    let counter = e.scalar_param("step", Ty::I64, Arg::Counter);
    let n = if total <= i32::MAX as i64 {
        Num { expr: cast(Ty::I32, counter), ty: Ty::I32 }
    } else {
        Num { expr: counter, ty: Ty::I64 }
    };
    let mut rest = Num { expr: e.named("step", n.ty, n.expr), ty: n.ty };
    let mut at = vec![int_of(rest.ty, 0); p.steps.len()];
    for s in (0..p.steps.len()).rev() {
        if s == 0 {
            at[0] = rest.clone();
            break;
        }
        let n = int_of(rest.ty, p.steps[s].count);
        let r = arith(IntOp::Rem, rest.clone(), n.clone());
        at[s] = Num { expr: e.named("r", r.ty, r.expr), ty: r.ty };
        let q = arith(IntOp::Div, rest, n);
        rest = Num { expr: e.named("q", q.ty, q.expr), ty: q.ty };
    }
    at
}
