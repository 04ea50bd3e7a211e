//! Row kernels: folds whose ranges depend on the row or on data, and functions of the user, for which each thread takes a
//! contiguous piece.

use super::fold::Acc;
use super::row::Row;
use super::row_pass::{Item, Kind, Pass, Rounds, bind_point, guard_of, point, take};
use super::scalar::{Emit, Num, arith, int_of, lit32};
use crate::ir::graph::Fold;
use crate::ir::simt::{Expr, IntOp, Stmt, Ty, Unroll};

/// A fold whose ranges depend on the row or on data: the threads share its first axis; the others are loops.
pub fn run<'a>(row: &mut Row<'a, '_>, pass: &Pass<'a>, accs: &[Option<Acc>]) {
    for (item, acc) in pass.items.iter().zip(accs) {
        let (Kind::Fold { fold, .. }, Some(acc)) = (&item.kind, acc) else { continue };
        let guard = guard_of(&mut row.e, item);
        row.e.open();
        open_range(row, item, fold, acc, pass.ordered);
        let stmts = row.e.close();
        match guard {
            Some(cond) => row.e.push(Stmt::If { cond, then: stmts, otherwise: Vec::new() }),
            None => stmts.into_iter().for_each(|s| row.e.push(s)),
        }
    }
}

fn open_range<'a>(row: &mut Row<'a, '_>, item: &Item<'a>, fold: &Fold, acc: &Acc, ordered: bool) {
    let axis = fold.axes[0];
    let (lo, hi) = row.e.range(axis);
    let ty = row.e.loop_ty(axis);
    let lanes = row.layout.lanes;
    let (lo, hi) = (Num { expr: super::read::to(lo, ty), ty }, Num { expr: super::read::to(hi, ty), ty });
    let lane = Num { expr: super::read::to(row.lanes.lane.clone(), ty), ty };
    let (first, end, step) = if ordered {
        let span = arith(IntOp::Max, arith(IntOp::Sub, hi.clone(), lo.clone()), int_of(ty, 0));
        let each = arith(IntOp::Div, arith(IntOp::Add, span, int_of(ty, lanes - 1)), int_of(ty, lanes));
        let each = Num { expr: row.e.named("each", ty, each.expr), ty };
        let first = arith(IntOp::Add, lo, arith(IntOp::Mul, lane, each.clone()));
        let first = Num { expr: row.e.named("first", ty, first.expr), ty };
        let end = arith(IntOp::Min, arith(IntOp::Add, first.clone(), each), hi);
        (first, end, 1)
    } else {
        (arith(IntOp::Add, lo, lane), hi, lanes)
    };
    let end = row.e.named("end", ty, end.expr);
    let var = row.e.kernel.var(row.graph.axis(axis).name.clone(), ty);
    row.e.open();
    row.e.bind_axis(axis, Expr::Var(var), ty);
    rest(&mut row.e, item, fold, acc, 1);
    let body = row.e.close();
    row.e.push(Stmt::For {
        var,
        lo: first.expr,
        hi: end,
        step: int_of(ty, step).expr,
        unroll: Unroll::Auto,
        body,
    });
}

/// The axes after the first, as loops of the thread.
fn rest<'a>(e: &mut Emit<'a>, item: &Item<'a>, fold: &Fold, acc: &Acc, depth: usize) {
    let Some(&axis) = fold.axes.get(depth) else { return take(e, item, fold, acc, None) };
    let (lo, hi) = e.range(axis);
    let ty = e.loop_ty(axis);
    e.for_axis(axis, ty, lo, hi, |e| rest(e, item, fold, acc, depth + 1));
}

/// Each thread takes a contiguous piece of the row.
pub fn pieces<'a>(row: &mut Row<'a, '_>, pass: &Pass<'a>, dims: &[i64], accs: &[Option<Acc>]) {
    let points: i64 = dims.iter().product();
    let rounds = Rounds { vector: 1, lead: None, edge: false, ..Rounds::new(row, dims) };
    let each = (points + rounds.lanes - 1) / rounds.lanes;
    let ty = if points + each > i32::MAX as i64 { Ty::I64 } else { Ty::I32 };
    let lane = Num { expr: super::read::to(row.lanes.lane.clone(), ty), ty };
    let lo = arith(IntOp::Mul, lane, int_of(ty, each));
    let lo = Num { expr: row.e.named("first", ty, lo.expr), ty };
    let end = arith(IntOp::Add, lo.clone(), int_of(ty, each));
    let end = arith(IntOp::Min, end, int_of(ty, points));
    let end = row.e.named("end", ty, end.expr);
    let pos = row.e.kernel.var("pos", ty);
    row.e.open();
    each_item(row, pass, accs, |e, item| bind_point(e, &rounds, item, &Num { expr: Expr::Var(pos), ty }));
    let body = row.e.close();
    row.e.push(Stmt::For {
        var: pos,
        lo: lo.expr,
        hi: end,
        step: int_of(ty, 1).expr,
        unroll: Unroll::Auto,
        body,
    });
}

fn each_item<'a>(
    row: &mut Row<'a, '_>,
    pass: &Pass<'a>,
    accs: &[Option<Acc>],
    bind: impl Fn(&mut Emit<'a>, &Item<'a>),
) {
    for (i, item) in pass.items.iter().enumerate() {
        row.e.open();
        bind(&mut row.e, item);
        point(row, item, &accs[i], None, (&lit32(0), &lit32(0)));
        let stmts = row.e.close();
        stmts.into_iter().for_each(|s| row.e.push(s));
    }
}
