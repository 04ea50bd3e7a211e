//! Form `step`: recurrences whose points at one step are too many for a block. Each step is a launch of each member,
//! in order; the counter of the host's loop says which step it is. Long sums of a step are kernels of their own
//! (`step_split.rs`).

use super::map::launch_points;
use super::recur::{Parts, parts};
use super::scalar::{Emit, Num, arith, cast, int_of};
use super::step_split::{self, Split};
use super::{Lowering, Refusal};
use crate::ir::graph::ScalarId;
use crate::ir::plan::PlanKernel;
use crate::ir::program::Arg;
use crate::ir::simt::{IntOp, Ty};

pub fn lower<'a>(cx: &mut Lowering<'a>, k: &'a PlanKernel) -> Result<(), Refusal> {
    match step_split::split(cx.plan, k)? {
        Some(split) => split_steps(cx, &split),
        None => steps(cx, k, &[], None),
    }
}

/// Lowers the rewritten recurrence in a lowering of its own, whose kernels and buffers join the program.
fn split_steps(cx: &mut Lowering<'_>, split: &Split) -> Result<(), Refusal> {
    let mut sub = cx.over(&split.plan);
    split.sums.iter().for_each(|&t| sub.new_home(t));
    let done = steps(&mut sub, &split.kernel, &split.before, Some(split.step));
    let state = sub.into_state();
    cx.resume(state);
    done
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
        for m in 0..p.recur.members.len() {
            for sum in before.get(m).into_iter().flatten() {
                cx.lower_form(sum)?;
            }
            member(cx, k, &p, m, total)?;
        }
        step.into_iter().for_each(|s| cx.count_by(s));
        Ok(())
    })
}

fn member<'a>(
    cx: &mut Lowering<'a>,
    k: &PlanKernel,
    p: &Parts<'a>,
    m: usize,
    total: i64,
) -> Result<(), Refusal> {
    let (free, coupled) = (p.dims(cx.graph, m, &p.free[m]), p.dims(cx.graph, m, &p.coupled[m]));
    let split = free.len();
    let dims = [free, coupled].concat();
    launch_points(cx, &k.name, &dims, p.recur.members[m].span, |e, at| {
        let steps = counter(e, p, total);
        p.define(e, m, &steps, &at[..split], &at[split..], &mut |_, _| {});
    })
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
