//! Form `fold`, what a block stores of its rows: results, values of the rows beside them, or its part of both.

use super::contract_coords::{Known, Place as Where, modulo, plus, times};
use super::contract_epilogue::Epilogue;
use super::contract_mma::Accumulators;
use super::contract_operand::Ground;
use super::fold_beside::OfRow;
use super::fold_loop::{FoldLoop, Goes, Parts, State, Task, f32_call, unrolled};
use super::fold_scores::{Scores, Thread, lane_column};
use super::home::Home;
use super::index::Facts;
use super::scalar::{Emit, and, cmp, int_op, lit32};
use crate::ir::graph::TensorId;
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Mem, ParamId, ShuffleKind, Special, Stmt, Ty};
use crate::vocab::dtype::Value;
use crate::vocab::func::Func;

impl FoldLoop<'_> {
    /// What a block makes of its rows when their terms are done.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn store(
        &self,
        e: &mut Emit,
        facts: &Facts,
        home: &dyn Fn(TensorId) -> Home,
        goes: &Goes,
        task: &Task,
        state: &State,
        thread: &Thread,
    ) {
        let Task { place, scores, .. } = task;
        if let Goes::Parts(parts, flags) = goes {
            return self.store_part(e, state, place, parts, *flags);
        }
        self.finish(e, state, scores, thread);
        self.store_beside(e, state, scores, thread, place);
        let acc = state.acc;
        if let Goes::Whole(Some(flags)) = goes {
            self.note(e, acc, place, *flags);
        }
        let ground = Ground { graph: e.graph, facts, shape: &self.chain.outer, home };
        Epilogue { shape: &self.chain.outer, tile: self.tile }.store(e, &ground, place, &[acc]);
    }

    /// Notes for each row whether all its results are finite: 0 times what a condition leaves out may not be.
    fn note(&self, e: &mut Emit, acc: ArrayId, place: &Where, flags: ParamId) {
        let most = Expr::Lit(Value::F32(f32::MAX));
        let rows = self.tile.m.points();
        for r in 0..2 {
            let noted = e.let_var("noted", Ty::I32, lit32(0));
            unrolled(e, "g", self.tile.n.block / 8, |e, g| {
                for w in 0..2 {
                    let at = plus(times(g.clone(), 4), lit32(2 * r + w));
                    let size = f32_call(Func::Abs, vec![Expr::Elem(acc, Box::new(at))]);
                    let finite = cmp(CmpOp::Le, size, most.clone());
                    let value =
                        Expr::Select(Box::new(finite), Box::new(Expr::Var(noted)), Box::new(lit32(1)));
                    e.push(Stmt::Set(noted, value));
                }
            });
            for mask in [1, 2] {
                let other = e.kernel.var("other", Ty::I32);
                let (kind, value) = (ShuffleKind::Xor, Expr::Var(noted));
                e.push(Stmt::Shuffle { var: other, kind, value, lane: lit32(mask) });
                e.push(Stmt::Set(noted, int_op(IntOp::Or, Expr::Var(noted), Expr::Var(other))));
            }
            let local = Accumulators::of(self.tile).row(lit32(r));
            let row = e.named("row", Ty::I32, plus(place.m[0].clone(), local));
            let first = cmp(CmpOp::Eq, modulo(Expr::Special(Special::Lane), 4), lit32(0));
            let inside = cmp(CmpOp::Lt, row.clone(), lit32(rows as i32));
            e.if_then(and(first, inside), |e| {
                let at = plus(times(place.batch_number.clone(), rows), row.clone());
                e.push(Stmt::Store(Mem::Global(flags), at, Expr::Var(noted)));
            });
        }
    }

    /// Stores what a block has of its rows after its part of the terms.
    fn store_part(
        &self,
        e: &mut Emit,
        s: &State,
        place: &Where,
        parts: &Parts<ParamId>,
        flags: Option<ParamId>,
    ) {
        let (rows, columns) = (self.tile.m.points(), self.tile.n.points());
        for r in 0..2 {
            if self.chain.cascade.state.is_some() {
                self.over_lanes(e, s.sum[r], Func::Add);
            }
            let local = Accumulators::of(self.tile).row(lit32(r as i32));
            let row = e.named("row", Ty::I32, plus(place.m[0].clone(), local));
            let inside = cmp(CmpOp::Lt, row.clone(), lit32(rows as i32));
            e.if_then(inside, |e| {
                let batch = plus(times(place.part.clone(), self.tile.batch), place.batch_number.clone());
                let line = e.named("line", Ty::I32, plus(times(batch, rows), row.clone()));
                let first = cmp(CmpOp::Eq, modulo(Expr::Special(Special::Lane), 4), lit32(0));
                e.if_then(first.clone(), |e| {
                    e.push(Stmt::Store(Mem::Global(parts.tops), line.clone(), Expr::Var(s.top[r])));
                    e.push(Stmt::Store(Mem::Global(parts.sums), line.clone(), Expr::Var(s.sum[r])));
                    if let (Some(mem), Some(most)) = (parts.most, s.most) {
                        e.push(Stmt::Store(Mem::Global(mem), line.clone(), Expr::Var(most[r])));
                    }
                });
                if let Some(flags) = flags {
                    let first_part = cmp(CmpOp::Eq, place.part.clone(), lit32(0));
                    e.if_then(and(first, first_part), |e| {
                        e.push(Stmt::Store(Mem::Global(flags), line.clone(), lit32(0)));
                    });
                }
                let start = plus(times(line, columns), lane_column());
                let start = e.named("start", Ty::I32, start);
                unrolled(e, "g", self.tile.n.block / 8, |e, g| {
                    for w in 0..2 {
                        let at = plus(times(g.clone(), 4), lit32(2 * r as i32 + w));
                        let value = Expr::Elem(s.acc, Box::new(at));
                        let to = plus(start.clone(), plus(times(g.clone(), 8), lit32(w)));
                        let store = |e: &mut Emit| e.push(Stmt::Store(Mem::Global(parts.accs), to, value));
                        if columns % 8 == 0 {
                            store(e);
                        } else {
                            let column = plus(plus(times(g.clone(), 8), lane_column()), lit32(w));
                            e.if_then(cmp(CmpOp::Lt, column, lit32(columns as i32)), store);
                        }
                    }
                });
            });
        }
    }

    /// Stores the values of the rows: a lane each.
    fn store_beside(&self, e: &mut Emit, s: &State, scores: &Scores, thread: &Thread, place: &Where) {
        let Some(most) = s.most else { return };
        let rows = self.tile.m.points();
        for r in 0..2 {
            let local = Accumulators::of(self.tile).row(lit32(r as i32));
            let row = e.named("row", Ty::I32, plus(place.m[0].clone(), local));
            let first = cmp(CmpOp::Eq, modulo(Expr::Special(Special::Lane), 4), lit32(0));
            let inside = cmp(CmpOp::Lt, row, lit32(rows as i32));
            e.if_then(and(first, inside), |e| {
                let row = OfRow::new(e, self.chain, most[r], scores.scale(), Expr::Var(s.sum[r]));
                let known = Known { batch: &thread.batch, m: &thread.rows[r], n: &[] };
                self.chain.beside.iter().for_each(|b| b.store(e, self.chain, known, &row));
            });
        }
    }
}
