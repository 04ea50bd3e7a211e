//! Form `fold`, rows once more as they are defined.
//!
//! A term that a condition leaves out has the weight 0 in the main loop, which does no harm unless its other factor is
//! infinite or NaN. The loop notes rows whose results are not finite; this kernel evaluates those by their definition
//! and ends at once where there are none.
//!
//! A block takes a row at a time: first the folds that the whole row shares (its greatest score, its sum), each by all
//! threads together; then the terms in chunks, a thread a weight, and a thread a column over the chunk's weights. So a
//! row costs its scores a few times over, and not once for each column.

use super::contract_coords::{Known, axis_values, bind, plus, times};
use super::contract_pattern::ContractShape;
use super::fold::Acc;
use super::fold_pattern::{self, Chain, Sum};
use super::map::{decode, point};
use super::row_reduce::Lanes;
use super::scalar::{Emit, Num, cmp, int, int_op, lit32};
use super::{Lowering, Refusal};
use crate::ir::graph::{AxisId, Combine, Define, Expr as Node, ExprId, Fold, Graph};
use crate::ir::plan::PlanKernel;
use crate::ir::program::BufferId;
use crate::ir::simt::{CmpOp, Expr, IntOp, Mem, SharedId, Special, Stmt, Ty, Unroll};
use crate::pass::{facts, inline};
use crate::vocab::dtype::DType;
use crate::vocab::monoid::Monoid;

const THREADS: i64 = 128;
/// Blocks at most: several for each multiprocessor, so that rows are shared well.
const BLOCKS: i64 = 2048;
/// Terms whose weights are kept at once.
const CHUNK: i64 = 512;

/// The flags of the rows, or nothing where every result may be as the loop has it.
pub fn flags(cx: &mut Lowering, k: &PlanKernel, chain: &Chain) -> Option<BufferId> {
    chain.strict.then(|| cx.workspace(format!("{}_unbounded", k.name), DType::I32, &[all_rows(chain)]))
}

fn all_rows(chain: &Chain) -> i64 {
    ContractShape::points(&chain.outer.batch) * ContractShape::points(&chain.outer.m)
}

pub fn lower<'a>(
    cx: &mut Lowering<'a>,
    k: &'a PlanKernel,
    d: &'a Define,
    chain: &Chain,
    flags: BufferId,
) -> Result<(), Refusal> {
    let all = all_rows(chain);
    let sum = fold_pattern::sum(cx.graph, d).map_err(|why| Refusal::new(d.span, why))?;
    let mut e = cx.emit(&format!("{}_exact", k.name));
    let blocks = all.min(BLOCKS);
    e.kernel.grid = [blocks as u32, 1, 1];
    e.kernel.block = [THREADS as u32, 1, 1];
    e.kernel.rare = true;
    e.line(d.span);
    let noted = Mem::Global(e.pointer(flags, false));
    let words = e.kernel.shared("words", DType::I32, (THREADS / 32) as u32, 4);
    let weights = e.kernel.shared("row_weights", DType::F32, CHUNK as u32, 16);
    let row = Row { chain, d, sum, weights, lanes: Lanes::of_block(THREADS) };
    // The rows of a block lie apart: those that are noted often lie together.
    let turns = (all + blocks * THREADS - 1) / (blocks * THREADS);
    let turn = e.kernel.var("turn", Ty::I32);
    let body = e.block(|e| {
        let line = |at: Expr| {
            plus(times(plus(times(Expr::Var(turn), THREADS), at), blocks), Expr::Special(Special::BlockX))
        };
        let own = e.named("own", Ty::I32, line(Expr::Special(Special::ThreadX)));
        let inside = cmp(CmpOp::Lt, own.clone(), lit32(all as i32));
        let found = e.let_var("found", Ty::I32, lit32(0));
        e.if_then(inside, |e| e.push(Stmt::Set(found, Expr::Load(noted, Box::new(own)))));
        let word = e.kernel.var("word", Ty::U32);
        e.push(Stmt::Ballot { var: word, pred: cmp(CmpOp::Ne, Expr::Var(found), lit32(0)) });
        let first = cmp(CmpOp::Eq, Expr::Special(Special::Lane), lit32(0));
        let word = Expr::Bitcast(Ty::I32, Box::new(Expr::Var(word)));
        e.if_then(first, |e| {
            e.push(Stmt::Store(Mem::Shared(words), Expr::Special(Special::Warp), word));
        });
        e.push(Stmt::Barrier);
        each(e, "warp", lit32(0), lit32((THREADS / 32) as i32), 1, |e, warp| {
            let word = Expr::Load(Mem::Shared(words), Box::new(warp.clone()));
            let word = e.named("bits", Ty::I32, word);
            e.if_then(cmp(CmpOp::Ne, word.clone(), lit32(0)), |e| {
                each(e, "lane", lit32(0), lit32(32), 1, |e, lane| {
                    let bit = int_op(IntOp::And, int_op(IntOp::Shr, word.clone(), lane.clone()), lit32(1));
                    e.if_then(cmp(CmpOp::Ne, bit, lit32(0)), |e| {
                        let number = e.named("row", Ty::I32, line(plus(times(warp, 32), lane)));
                        row.emit(e, number);
                    });
                });
            });
        });
        e.push(Stmt::Barrier);
    });
    let (hi, step) = (lit32(turns as i32), lit32(1));
    e.push(Stmt::For { var: turn, lo: lit32(0), hi, step, unroll: Unroll::None, body });
    cx.launch(e);
    Ok(())
}

fn each(e: &mut Emit, name: &str, lo: Expr, hi: Expr, step: i64, f: impl FnOnce(&mut Emit, Expr)) {
    let var = e.kernel.var(name, Ty::I32);
    let body = e.block(|e| f(e, Expr::Var(var)));
    e.push(Stmt::For { var, lo, hi, step: lit32(step as i32), unroll: Unroll::None, body });
}

struct Row<'x, 'a> {
    chain: &'x Chain,
    d: &'a Define,
    sum: Sum,
    weights: SharedId,
    lanes: Lanes,
}

impl Row<'_, '_> {
    /// By all threads of a block.
    fn emit(&self, e: &mut Emit, number: Expr) {
        let shape = &self.chain.outer;
        let extents: Vec<i64> = shape.batch.iter().chain(&shape.m).map(|d| d.extent).collect();
        let digits = decode(e, Num { expr: number, ty: Ty::I32 }, &extents);
        let (batch, m) = digits.split_at(shape.batch.len());
        // Axes that row and column share have their whole values further below only.
        let mut shared = Vec::new();
        e.open();
        bind(e, shape, 0, Known { batch, m, n: &[] });
        let known = e.facts.clone();
        // What could fault is evaluated where its value is asked for.
        for fold in self.row_folds(e.graph).into_iter().filter(|&f| !known.may_fault(f)) {
            let value = self.together(e, fold);
            e.bind_num(fold, value.clone());
            shared.push((fold, value));
        }
        let stmts = e.close();
        stmts.into_iter().for_each(|s| e.push(s));
        let bind_shared = |e: &mut Emit| shared.iter().for_each(|(id, n)| e.bind_num(*id, n.clone()));

        let columns = ContractShape::points(&shape.n);
        let slots = (columns + THREADS - 1) / THREADS;
        let fold = &self.sum.fold;
        let axis = fold.axes[0];
        let ty = e.fold_ty(fold, e.graph.ty(self.sum.id));
        let accs: Vec<Acc> = (0..slots).map(|_| e.accumulator(fold.combine, fold.body, ty, None)).collect();
        let (lo, hi) = e.graph.axis_range(axis).unwrap_or((0, 0));
        each(e, "chunk", lit32(lo as i32), lit32(hi as i32), CHUNK, |e, chunk| {
            let end = int_op(IntOp::Min, plus(chunk.clone(), lit32(CHUNK as i32)), lit32(hi as i32));
            let end = e.named("end", Ty::I32, end);
            let first = plus(chunk.clone(), Expr::Special(Special::ThreadX));
            each(e, "term", first, end.clone(), THREADS, |e, term| {
                bind(e, shape, 0, Known { batch, m, n: &[] });
                e.bind_axis(axis, term.clone(), Ty::I32);
                bind_shared(e);
                let taken = self.taken(e);
                let at = int_op(IntOp::Sub, term, chunk.clone());
                let store = |e: &mut Emit| {
                    let weight = e.value(self.sum.term);
                    e.push(Stmt::Store(Mem::Shared(self.weights), at, weight));
                };
                match taken {
                    Some(c) => e.if_then(c, store),
                    None => store(e),
                }
            });
            e.push(Stmt::Barrier);
            for (slot, acc) in accs.iter().enumerate() {
                self.at_column(e, slot, batch, m, |e| {
                    bind_shared(e);
                    let part = e.partial(acc);
                    each(e, "term", chunk.clone(), end.clone(), 1, |e, term| {
                        e.bind_axis(axis, term.clone(), Ty::I32);
                        let taken = self.taken(e);
                        let at = Box::new(int_op(IntOp::Sub, term, chunk.clone()));
                        let add = |e: &mut Emit| {
                            let weight =
                                e.named("weight", Ty::F32, Expr::Load(Mem::Shared(self.weights), at));
                            e.bind(self.sum.term, weight);
                            e.accumulate(&part, self.sum.product, None);
                        };
                        match taken {
                            Some(c) => e.if_then(c, add),
                            None => add(e),
                        }
                    });
                    e.merge(acc, &part);
                });
            }
            e.push(Stmt::Barrier);
        });
        for (slot, acc) in accs.iter().enumerate() {
            self.at_column(e, slot, batch, m, |e| {
                bind_shared(e);
                let value = e.result(acc);
                e.bind_num(self.sum.id, value);
                let bound = |e: &Emit, a: &AxisId| e.axis_value(*a).cloned().unwrap_or(int(0));
                let at: Vec<Num> = self.d.axes.iter().map(|a| bound(e, a)).collect();
                point(e, &[self.d], &at);
            });
        }
    }

    /// What the threads do that have a column in this slot, with all axes of the result bound.
    fn at_column(&self, e: &mut Emit, slot: usize, batch: &[Num], m: &[Num], f: impl FnOnce(&mut Emit)) {
        let shape = &self.chain.outer;
        let columns = ContractShape::points(&shape.n);
        let column = plus(Expr::Special(Special::ThreadX), lit32((slot as i64 * THREADS) as i32));
        let inside = cmp(CmpOp::Lt, column.clone(), lit32(columns as i32));
        e.if_then(inside, |e| {
            let column = e.named("column", Ty::I32, column);
            let extents: Vec<i64> = shape.n.iter().map(|d| d.extent).collect();
            let n = decode(e, Num { expr: column, ty: Ty::I32 }, &extents);
            let values = axis_values(e, shape, Known { batch, m, n: &n });
            for (&axis, value) in shape.stmts[0].axes.iter().zip(values) {
                let value = value.unwrap_or(int(0));
                e.bind_axis(axis, value.expr, value.ty);
            }
            f(e);
        });
    }

    /// Whether the sum takes a term.
    fn taken(&self, e: &mut Emit) -> Option<Expr> {
        let mut all: Option<Expr> = None;
        for &c in &self.sum.conds {
            // A condition may be evaluated only where those before it hold.
            let value = match all.take() {
                None => e.value(c),
                Some(before) => {
                    let holds = e.let_var("holds", Ty::Bool, before.clone());
                    e.if_then(before, |e| {
                        let value = e.value(c);
                        e.push(Stmt::Set(holds, value));
                    });
                    Expr::Var(holds)
                }
            };
            all = Some(e.named("taken", Ty::Bool, value));
        }
        all
    }

    /// Folds along the terms that do not depend on term or column, innermost first.
    fn row_folds(&self, g: &Graph) -> Vec<ExprId> {
        let mut facts = facts::Facts::default();
        let rows: Vec<AxisId> = {
            let shape = &self.chain.outer;
            let digits = shape.batch.iter().chain(&shape.m);
            let outs: Vec<usize> = digits.map(|d| d.out).collect();
            let own = |i: &usize| outs.contains(i) && !shape.n.iter().any(|d| d.out == *i);
            (0..self.d.axes.len()).filter(own).map(|i| self.d.axes[i]).collect()
        };
        let along = g.axis_range(self.sum.fold.axes[0]);
        let is_one = |e: &ExprId| match g.expr(*e) {
            Node::Fold(Fold { axes, combine: Combine::Builtin(m), .. }) => {
                let known = matches!(m, Monoid::Sum | Monoid::Max | Monoid::Min);
                known && matches!(axes[..], [a] if along.is_some() && g.axis_range(a) == along)
            }
            _ => false,
        };
        let mut found: Vec<ExprId> = inline::below(g, self.d.value).into_iter().filter(is_one).collect();
        found.retain(|&e| e != self.sum.id && facts.free(g, e).iter().all(|a| rows.contains(a)));
        // Expressions below come before those above.
        found.sort();
        found.dedup();
        found
    }

    /// A fold by all threads.
    fn together(&self, e: &mut Emit, id: ExprId) -> Num {
        let Node::Fold(fold) = e.graph.expr(id).clone() else {
            unreachable!("`row_folds` gives folds alone")
        };
        let axis = fold.axes[0];
        let ty = e.fold_ty(&fold, e.graph.ty(id));
        let acc = e.accumulator(fold.combine, fold.body, ty, Some(axis));
        let (lo, hi) = e.graph.axis_range(axis).unwrap_or((0, 0));
        let first = plus(Expr::Special(Special::ThreadX), lit32(lo as i32));
        each(e, "term", first, lit32(hi as i32), THREADS, |e, term| {
            e.bind_axis(axis, term, Ty::I32);
            e.leaf(&fold, &acc);
        });
        self.lanes.reduce(e, std::slice::from_ref(&acc));
        e.result(&acc)
    }
}
