//! Row kernels: argmax and argmin of floats, a vector at a time.
//!
//! A thread keeps the best value so far and the vector it came from, which costs a maximum an element; the place in
//! that vector is looked for once, at the end, when the vector is read again. A NaN is the best there is, so the
//! vector of the first NaN is kept.

use super::fold::Acc;
use super::row::Row;
use super::row_pass::{self, Item, Kind, Pass, Rounds, Streamed};
use super::scalar::{Emit, Num, and, arith, cmp, int_of, not};
use crate::ir::graph::{Combine, Fold};
use crate::ir::simt::{CmpOp, Expr, IntOp, Stmt, Ty, VarId};
use crate::pass::sites;
use crate::vocab::dtype::{self, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use std::collections::BTreeMap;

/// Rounds whose loads go together.
const TURNS: i64 = 8;

struct Best<'x, 'a> {
    item: &'x Item<'a>,
    fold: &'a Fold,
    acc: &'x Acc,
    monoid: Monoid,
    /// The first point of the best vector, −1 if an earlier piece of the row had a better one.
    from: VarId,
}

/// Does a pass only look for the place of a float, in vectors?
pub fn applies(row: &Row<'_, '_>, pass: &Pass<'_>, rounds: &Rounds) -> bool {
    let [item] = &pass.items[..] else { return false };
    let Kind::Fold { fold, guard, .. } = &item.kind else { return false };
    let place = matches!(fold.combine, Combine::Builtin(Monoid::ArgMax | Monoid::ArgMin));
    place
        && rounds.vector >= 4
        && rounds.dims.len() == 1
        && guard.is_empty()
        && fold.cond.is_none()
        && row.graph.ty(fold.body) == dtype::Ty::F32
        && sites::speculable(row.graph, fold.body)
}

/// The rounds from `lo` to `hi`.
pub fn run<'a>(row: &mut Row<'a, '_>, pass: &Pass<'a>, rounds: &Rounds, acc: &Acc, lo: Num, hi: Num) {
    let item = &pass.items[0];
    let Kind::Fold { fold, .. } = &item.kind else { return };
    let Combine::Builtin(monoid) = fold.combine else { return };
    let from = row.e.let_var("best_from", rounds.ty, int_of(rounds.ty, -1).expr);
    let best = Best { item, fold, acc, monoid, from };
    row_pass::in_turns(row, pass, rounds, (lo, hi), TURNS, &|e, streamed, bases| {
        for (w, base) in bases.iter().enumerate() {
            vector(e, rounds, &best, streamed, base, w as i64);
        }
    });
    place(row, pass, rounds, &best);
}

/// Keeps a vector that is better than the best so far.
fn vector<'a>(
    e: &mut Emit<'a>,
    rounds: &Rounds,
    best: &Best<'_, 'a>,
    streamed: &[Streamed],
    base: &Num,
    turn: i64,
) {
    let max = best.monoid == Monoid::ArgMax;
    let worst = if max { f32::NEG_INFINITY } else { f32::INFINITY };
    let top = e.let_var("top", Ty::F32, Expr::Lit(Value::F32(worst)));
    let better = if max { Func::Max } else { Func::Min };
    row_pass::each_point(e, best.item, rounds, streamed, base, turn, &|e, _| {
        let key = e.num_as(best.fold.body, Ty::F32);
        e.push(Stmt::Set(top, Expr::Call(better, vec![Expr::Var(top), key])));
    });
    let (new, old) = (Expr::Var(top), Expr::Var(best.acc.var));
    let nan = |x: &Expr| Expr::Call(Func::IsNan, vec![x.clone()]);
    let Some((at, at_ty)) = best.acc.at else { return };
    let none = cmp(CmpOp::Eq, Expr::Var(at), int_of(at_ty, best.acc.nowhere).expr);
    let first = and(cmp(CmpOp::Lt, Expr::Var(best.from), int_of(rounds.ty, 0).expr), none);
    let op = if max { CmpOp::Gt } else { CmpOp::Lt };
    let or = |a, b| Expr::Or(Box::new(a), Box::new(b));
    let by_nan = and(nan(&new), not(nan(&old)));
    let cond = or(first, or(cmp(op, new.clone(), old), by_nan));
    e.if_then(cond, |e| {
        e.push(Stmt::Set(best.acc.var, new));
        // Not below 0, which says that there is none.
        let lead = rounds.lead.clone().unwrap_or(super::scalar::lit32(0));
        let from = arith(IntOp::Add, base.clone(), Num { expr: lead, ty: Ty::I32 });
        e.push(Stmt::Set(best.from, from.expr));
    });
}

/// The place in the best vector.
fn place<'a>(row: &mut Row<'a, '_>, pass: &Pass<'a>, rounds: &Rounds, best: &Best<'_, 'a>) {
    let streamed = row_pass::streamed(row, pass, rounds, &BTreeMap::new(), 1);
    let found = cmp(CmpOp::Ge, Expr::Var(best.from), int_of(rounds.ty, 0).expr);
    let Some((at, at_ty)) = best.acc.at else { return };
    row.e.if_then(found, |e| {
        let lead = rounds.lead.clone().unwrap_or(super::scalar::lit32(0));
        let from = Num { expr: Expr::Var(best.from), ty: rounds.ty };
        let base = arith(IntOp::Sub, from, Num { expr: lead, ty: Ty::I32 });
        let base = Num { expr: e.named("base", base.ty, base.expr), ty: base.ty };
        row_pass::load_streamed(e, pass, rounds, &streamed, &base, 0);
        e.push(Stmt::Set(at, int_of(at_ty, best.acc.nowhere).expr));
        row_pass::each_point(e, best.item, rounds, &streamed, &base, 0, &|e, item| {
            row_pass::take(e, item, best.fold, best.acc, None);
        });
    });
}
