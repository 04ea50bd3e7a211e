//! Row kernels: a maximum and the sum of exponentials below it in one pass, for rows that registers do not hold.
//!
//! With m the maximum so far, the pass keeps s = Σ exp(x − m). Where m grows to m′, s · exp(m − m′) is the sum for m′.
//! Threads are put together the same way: each rescales its sum to the row's maximum, then the sums are added. While
//! all is −inf, nothing is added, so that no −inf − −inf arises.

use super::Lowering;
use super::fold::Acc;
use super::row::{Row, before_loop};
use super::row_layout::{longest_held, packs};
use super::row_pass::{self, Item, Kind, Pass, Rounds, Streamed};
use super::scalar::{Emit, Num, arith, cmp, int_of};
use crate::ir::graph::{AxisId, Combine, Expr as Node, ExprId, Fold, Graph};
use crate::ir::simt::{CmpOp, Expr, IntOp, Stmt, Ty, Unroll};
use crate::pass::{inline::below, shape, sites};
use crate::vocab::dtype::{self, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use std::collections::BTreeMap;

/// Rounds whose terms one chain adds.
const ROUNDS: i64 = 1024;

/// The passes with a maximum and its sum joined, if they are there and the row is too long to be held.
pub fn joined<'a>(cx: &Lowering<'a>, passes: &[Pass<'a>]) -> Option<Vec<Pass<'a>>> {
    let (first, second) = (passes.first()?, passes.get(1)?);
    let points = super::row::points(&first.dims)?;
    let long = points > longest_held(packs(cx, passes)) && points <= ROUNDS * 1024;
    let plain = |p: &Pass<'_>| !p.ordered && p.items.len() == 1;
    let apart = (first.level, second.level) == (0, 1) && passes[2..].iter().all(|p| p.level >= 2);
    if !(long && apart && plain(first) && plain(second) && first.dims == second.dims) {
        return None;
    }
    matches(cx.graph, &first.items[0], &second.items[0]).then_some(())?;
    let items = vec![first.items[0].clone(), second.items[0].clone()];
    let mut all = vec![Pass { online: true, items, ..first.clone() }];
    all.extend_from_slice(&passes[2..]);
    Some(all)
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
    let accs: Vec<Acc> = row_pass::accumulators(row, pass).into_iter().flatten().collect();
    let (max, sum) = (accs[0].clone(), accs[1].clone());
    let rounds = Rounds::new(row, &dims);
    let whole = rounds.points / (rounds.lanes * rounds.vector);
    part(row, pass, &rounds, (&max, &sum), 0, whole, true);
    part(row, pass, &rounds, (&max, &sum), whole, rounds.count, false);
    // The thread's sum, for the row's maximum.
    let own = row.e.let_var("own", max.ty, Expr::Var(max.var));
    let lanes = row.lanes.clone();
    lanes.reduce(&mut row.e, std::slice::from_ref(&max));
    rescale(&mut row.e, &sum, Expr::Var(own), Expr::Var(max.var));
    lanes.reduce(&mut row.e, std::slice::from_ref(&sum));
    for (item, acc) in pass.items.iter().zip([&max, &sum]) {
        let Some((expr, _)) = parts(item) else { continue };
        row.e.bind_num(expr, Num { expr: Expr::Var(acc.var), ty: acc.ty });
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

/// Some rounds; `sure`: all their points are inside.
fn part<'a>(
    row: &mut Row<'a, '_>,
    pass: &Pass<'a>,
    rounds: &Rounds,
    (max, sum): (&Acc, &Acc),
    lo: i64,
    hi: i64,
    sure: bool,
) {
    if lo >= hi {
        return;
    }
    let streamed = row_pass::streamed(row, pass, rounds, &BTreeMap::new());
    let round = row.e.kernel.var("round", rounds.ty);
    row.e.open();
    let lane = row.lanes.lane.clone();
    let base = row_pass::base_at(rounds, &lane, Num { expr: Expr::Var(round), ty: rounds.ty });
    let base = Num { expr: row.e.named("base", base.ty, base.expr), ty: base.ty };
    let work = row.e.block(|e| turn(e, pass, rounds, (max, sum), &streamed, &base));
    if sure {
        work.into_iter().for_each(|s| row.e.push(s));
    } else {
        let cond = cmp(CmpOp::Lt, base.expr.clone(), int_of(rounds.ty, rounds.points).expr);
        row.e.push(Stmt::If { cond, then: work, otherwise: Vec::new() });
    }
    let body = row.e.close();
    let unroll = if sure && hi - lo >= 4 { Unroll::By(4) } else { Unroll::Auto };
    let (lo, hi, step) = (int_of(rounds.ty, lo).expr, int_of(rounds.ty, hi).expr, int_of(rounds.ty, 1).expr);
    row.e.push(Stmt::For { var: round, lo, hi, step, unroll, body });
}

/// A thread's points of one round.
fn turn<'a>(
    e: &mut Emit<'a>,
    pass: &Pass<'a>,
    rounds: &Rounds,
    (max, sum): (&Acc, &Acc),
    streamed: &[Streamed],
    base: &Num,
) {
    let mut loaded = Vec::new();
    for s in streamed {
        if !loaded.contains(&s.array) {
            loaded.push(s.array);
            e.scope(|e| {
                row_pass::load_vector(e, rounds, &pass.items[s.item], &s.read, base, s.array, 0, s.chunk)
            });
        }
    }
    let top = Acc { var: e.let_var("top", max.ty, Expr::Var(max.var)), ..max.clone() };
    points(e, pass, 0, rounds, streamed, base, &|e, item, fold| row_pass::take(e, item, fold, &top, None));
    let grows = cmp(CmpOp::Ne, Expr::Var(top.var), Expr::Var(max.var));
    e.if_then(grows, |e| {
        rescale(e, sum, Expr::Var(max.var), Expr::Var(top.var));
        e.push(Stmt::Set(max.var, Expr::Var(top.var)));
    });
    let some = cmp(CmpOp::Gt, Expr::Var(max.var), lit(max.ty, f64::NEG_INFINITY));
    e.if_then(some, |e| {
        let part = Acc { var: e.let_var("part", sum.ty, lit(sum.ty, 0.0)), ..sum.clone() };
        let Some((m, _)) = parts(&pass.items[0]) else { return };
        points(e, pass, 1, rounds, streamed, base, &|e, item, fold| {
            e.bind(m, Expr::Var(max.var));
            row_pass::take(e, item, fold, &part, None);
        });
        let all = call(Func::Add, vec![Expr::Var(sum.var), Expr::Var(part.var)]);
        e.push(Stmt::Set(sum.var, all));
    });
}

/// `f` at each point of a thread's turn.
fn points<'a>(
    e: &mut Emit<'a>,
    pass: &Pass<'a>,
    which: usize,
    rounds: &Rounds,
    streamed: &[Streamed],
    base: &Num,
    f: &dyn Fn(&mut Emit<'a>, &Item<'a>, &'a Fold),
) {
    let item = &pass.items[which];
    let Some((_, fold)) = parts(item) else { return };
    for v in 0..rounds.vector {
        e.scope(|e| {
            let pos = arith(IntOp::Add, base.clone(), int_of(base.ty, v));
            let pos = Num { expr: e.named("pos", pos.ty, pos.expr), ty: pos.ty };
            row_pass::bind_point(e, rounds, item, &pos);
            for s in streamed.iter().filter(|s| s.item == which) {
                e.bind(s.expr, Expr::Elem(s.array, Box::new(super::scalar::lit32(v as i32))));
            }
            f(e, item, fold);
        });
    }
}
