//! Form `block`: recurrences whose points at one step fit a block. One block for each independent part; it loops
//! over the steps, its threads share the points of a step, and a barrier stands after each member.

use super::map::{count, decode};
use super::recur::{Parts, parts};
use super::scalar::{Emit, Num, add, int_of, lit32};
use super::{Lowering, MAX_GRID_X, Refusal};
use crate::ir::plan::PlanKernel;
use crate::ir::simt::{Expr, Special, Stmt, Ty, Unroll};

/// Most threads that step together.
const THREADS: i64 = 512;

pub fn lower<'a>(cx: &mut Lowering<'a>, k: &'a PlanKernel) -> Result<(), Refusal> {
    let p = parts(cx.graph, k)?;
    let outer = p.dims(cx.graph, 0, &p.free[0]);
    let blocks = count(&outer, p.span, &k.name)?;
    if blocks == 0 || p.total(&k.name)? == 0 {
        return Ok(());
    }
    if blocks > MAX_GRID_X {
        return Err(Refusal::new(p.span, format!("{} has too many independent parts for a grid", k.name)));
    }
    let mut widest = 1;
    for m in 0..p.recur.members.len() {
        widest = widest.max(count(&p.dims(cx.graph, m, &p.coupled[m]), p.span, &k.name)?);
    }
    let threads = super::map::threads(cx, &k.name, THREADS, p.span)?.min((widest + 31) / 32 * 32);
    let mut e = cx.emit(&k.name);
    e.kernel.block = [threads as u32, 1, 1];
    e.kernel.grid = [blocks as u32, 1, 1];
    e.line(p.span);
    let block = Num { expr: Expr::Special(Special::BlockX), ty: Ty::I32 };
    let free = decode(&mut e, block, &outer);
    p.step_loops(&mut e, &mut |e, at| {
        for m in 0..p.recur.members.len() {
            share(e, &p, m, at, &free, threads);
            e.push(Stmt::Barrier);
        }
    });
    cx.launch(e);
    Ok(())
}

/// The threads take a member's points at one step in turns.
fn share<'a>(e: &mut Emit<'a>, p: &Parts<'a>, m: usize, at: &[Num], free: &[Num], threads: i64) {
    let dims = p.dims(e.graph, m, &p.coupled[m]);
    let n: i64 = dims.iter().product();
    let ty = if n + threads < i32::MAX as i64 { Ty::I32 } else { Ty::I64 };
    let thread = Expr::Special(Special::ThreadX);
    let first = super::read::to(Num { expr: thread, ty: Ty::I32 }, ty);
    if n <= threads && ty == Ty::I32 {
        let here = super::scalar::cmp(crate::ir::simt::CmpOp::Lt, first.clone(), lit32(n as i32));
        return e.if_then(here, |e| {
            let coupled = decode(e, Num { expr: add(first, lit32(0)), ty }, &dims);
            p.define(e, m, at, free, &coupled, &mut |_, _| {});
        });
    }
    let var = e.kernel.var("point", ty);
    let body = e.block(|e| {
        let coupled = decode(e, Num { expr: Expr::Var(var), ty }, &dims);
        p.define(e, m, at, free, &coupled, &mut |_, _| {});
    });
    let (hi, step) = (int_of(ty, n).expr, int_of(ty, threads).expr);
    e.push(Stmt::For { var, lo: first, hi, step, unroll: Unroll::None, body });
}
