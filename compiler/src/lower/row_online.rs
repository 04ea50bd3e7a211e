//! Row kernels: a maximum and the sum of exponentials below it in one pass, for rows that registers do not hold.
//!
//! With m the maximum so far, the pass keeps s = Σ exp(x − m). Where m grows to m′, s · exp(m − m′) is the sum for m′.
//! Threads are put together the same way: each rescales its sum to the row's maximum, then the sums are added. While
//! all is −inf, nothing is added, so that no −inf − −inf arises.

use super::Lowering;
use super::fold::Acc;
use super::row::{Row, before_loop};
use super::row_pass::{self, Item, Kind, Pass, Rounds, Streamed};
use super::scalar::{Emit, Num, cmp, int_of};
use crate::ir::graph::{AxisId, Combine, Expr as Node, ExprId, Fold, Graph};
use crate::ir::simt::{CmpOp, Expr, Stmt, Ty};
use crate::pass::{inline::below, shape, sites};
use crate::vocab::dtype::{self, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;

/// Points of the shortest row that is worth it.
const LEAST: i64 = 1024;
/// The same for columns, which are read again from memory.
const LEAST_COLUMN: i64 = 64;
/// Rounds whose terms one chain adds.
const ROUNDS: i64 = 1024;

/// The passes with a maximum and its sum joined, if they are there and the row is long.
pub fn joined<'a>(cx: &Lowering<'a>, passes: &[Pass<'a>], columns: bool) -> Option<Vec<Pass<'a>>> {
    let points = super::row::points(&passes.first()?.dims)?;
    let least = if columns { LEAST_COLUMN } else { LEAST };
    if !(least..=ROUNDS * 1024).contains(&points) {
        return None;
    }
    let max = joins(cx.graph, passes)?;
    let mut items = vec![passes[0].items[max].clone(), passes[1].items[0].clone()];
    let others = passes[0].items.iter().enumerate().filter(|(i, _)| *i != max);
    items.extend(others.map(|(_, item)| item.clone()));
    let mut all = vec![Pass { online: true, items, ..passes[0].clone() }];
    all.extend_from_slice(&passes[2..]);
    Some(all)
}

/// Are the first passes a maximum and the sum of exponentials below it, with reductions beside the maximum at most? Gives
/// the maximum's place.
pub fn joins(graph: &Graph, passes: &[Pass<'_>]) -> Option<usize> {
    let [first, second, rest @ ..] = passes else { return None };
    let plain = |p: &Pass<'_>| !p.ordered && p.dims.is_some();
    let apart = (first.level, second.level) == (0, 1) && rest.iter().all(|p| p.level >= 2);
    let alike = apart && plain(first) && plain(second) && first.dims == second.dims;
    if !alike || second.items.len() != 1 {
        return None;
    }
    let max = first.items.iter().position(|i| matches(graph, i, &second.items[0]))?;
    let beside = |i: &Item<'_>| match &i.kind {
        Kind::Fold { fold, guard, .. } => {
            guard.is_empty()
                && matches!(fold.combine, Combine::Builtin(m) if m != Monoid::ArgMax && m != Monoid::ArgMin)
        }
        Kind::Map { .. } => false,
    };
    let mut others = first.items.iter().enumerate().filter(|(i, _)| *i != max);
    others.all(|(_, item)| beside(item)).then_some(max)
}

fn parts<'a>(item: &Item<'a>) -> Option<(ExprId, &'a Fold)> {
    match &item.kind {
        Kind::Fold { expr, fold, .. } => Some((*expr, fold)),
        Kind::Map { .. } => None,
    }
}

/// Is the second the sum of exp(x − m) over the points of m, the maximum of x?
fn matches(g: &Graph, max: &Item<'_>, sum: &Item<'_>) -> bool {
    let (Some((m, top)), Some((_, total))) = (parts(max), parts(sum)) else { return false };
    let float = matches!(g.ty(m), dtype::Ty::F32 | dtype::Ty::F64) && g.ty(total.body) == g.ty(m);
    let kinds = (top.combine, total.combine);
    if !float || kinds != (Combine::Builtin(Monoid::Max), Combine::Builtin(Monoid::Sum)) {
        return false;
    }
    if top.cond.is_some() || total.cond.is_some() || !sites::speculable(g, total.body) {
        return false;
    }
    let Node::Call(Func::Exp, args) = g.expr(total.body) else { return false };
    let Node::Call(Func::Sub, ab) = g.expr(args[0]) else { return false };
    let key = |e: ExprId, item: &Item<'_>| {
        let axes: Vec<AxisId> = item.rows.iter().chain(&item.axes).copied().collect();
        shape::key(g, e, &axes)
    };
    let free = below(g, ab[0]).iter().all(|&x| !matches!(g.expr(x), Node::Fold(_)));
    ab[1] == m && free && key(ab[0], sum) == key(top.body, max)
}

/// A constant of the accumulator's type.
fn lit(ty: Ty, v: f64) -> Expr {
    Expr::Lit(if ty == Ty::F64 { Value::F64(v) } else { Value::F32(v as f32) })
}

fn call(f: Func, args: Vec<Expr>) -> Expr {
    Expr::Call(f, args)
}

pub fn run<'a>(row: &mut Row<'a, '_>, pass: &Pass<'a>) {
    let dims = pass.dims.clone().expect("only boxes are joined");
    row_pass::line(row, &pass.items[0]);
    before_loop(&mut row.e, &pass.items[0]);
    pass.items[2..].iter().for_each(|i| before_loop(&mut row.e, i));
    let accs: Vec<Acc> = row_pass::accumulators(row, pass).into_iter().flatten().collect();
    let (max, sum) = (accs[0].clone(), accs[1].clone());
    let rounds = Rounds::new(row, &dims);
    let (lo, hi) = (int_of(rounds.ty, 0), int_of(rounds.ty, rounds.count));
    // Rounds whose loads go together.
    let turns = row_pass::unrolled(row, pass) as i64;
    row_pass::in_turns(row, pass, &rounds, (lo, hi), turns, &|e, streamed, bases| {
        turn(e, pass, &rounds, &accs, streamed, bases);
    });
    // The thread's sum, for the row's maximum.
    let own = row.e.let_var("own", max.ty, Expr::Var(max.var));
    let lanes = row.lanes.clone();
    lanes.reduce(&mut row.e, std::slice::from_ref(&max));
    rescale(&mut row.e, &sum, Expr::Var(own), Expr::Var(max.var));
    lanes.reduce(&mut row.e, std::slice::from_ref(&sum));
    lanes.reduce(&mut row.e, &accs[2..]);
    for (item, acc) in pass.items.iter().zip(&accs) {
        let Some((expr, _)) = parts(item) else { continue };
        let n = row.e.result(acc);
        row.e.bind_num(expr, n);
    }
}

/// Makes a sum below `old` one below `new`.
fn rescale(e: &mut Emit<'_>, sum: &Acc, old: Expr, new: Expr) {
    let differs = cmp(CmpOp::Ne, old.clone(), new.clone());
    e.if_then(differs, |e| {
        let factor = call(Func::Exp, vec![call(Func::Sub, vec![old, new])]);
        e.push(Stmt::Set(sum.var, call(Func::Mul, vec![Expr::Var(sum.var), factor])));
    });
}

/// A thread's points of some rounds, which are loaded: one maximum for all.
fn turn<'a>(
    e: &mut Emit<'a>,
    pass: &Pass<'a>,
    rounds: &Rounds,
    accs: &[Acc],
    streamed: &[Streamed],
    bases: &[Num],
) {
    let (max, sum) = (&accs[0], &accs[1]);
    let points = |e: &mut Emit<'a>, which: usize, f: &dyn Fn(&mut Emit<'a>, &Item<'a>)| {
        let own: Vec<Streamed> = streamed.iter().filter(|s| s.item == which).cloned().collect();
        for (w, base) in bases.iter().enumerate() {
            row_pass::each_point(e, &pass.items[which], rounds, &own, base, w as i64, f);
        }
    };
    let (Some((m, top_fold)), Some((_, sum_fold))) = (parts(&pass.items[0]), parts(&pass.items[1])) else {
        return;
    };
    let top = Acc { var: e.let_var("top", max.ty, Expr::Var(max.var)), ..max.clone() };
    points(e, 0, &|e, item| row_pass::take(e, item, top_fold, &top, None));
    let grows = cmp(CmpOp::Ne, Expr::Var(top.var), Expr::Var(max.var));
    e.if_then(grows, |e| {
        rescale(e, sum, Expr::Var(max.var), Expr::Var(top.var));
        e.push(Stmt::Set(max.var, Expr::Var(top.var)));
    });
    let some = cmp(CmpOp::Gt, Expr::Var(max.var), lit(max.ty, f64::NEG_INFINITY));
    e.if_then(some, |e| {
        let part = Acc { var: e.let_var("part", sum.ty, lit(sum.ty, 0.0)), ..sum.clone() };
        points(e, 1, &|e, item| {
            e.bind(m, Expr::Var(max.var));
            row_pass::take(e, item, sum_fold, &part, None);
        });
        let all = call(Func::Add, vec![Expr::Var(sum.var), Expr::Var(part.var)]);
        e.push(Stmt::Set(sum.var, all));
    });
    for (i, (item, acc)) in pass.items.iter().zip(accs).enumerate().skip(2) {
        let Some((_, fold)) = parts(item) else { continue };
        points(e, i, &|e, item| row_pass::take(e, item, fold, acc, None));
    }
}
