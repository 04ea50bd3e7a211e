//! Row kernels: a row across the blocks of a cluster, each with a part of it in registers.
//!
//! Blocks combine their parts as threads do: each stores its partial result to all blocks of the cluster (`st.async`,
//! counted on an mbarrier there), and each combines them in the blocks' order, so all have the same. Two mbarriers take
//! turns: a block that stores its second next result has had the next one of every block, so none still waits for the
//! one before. No block ends before it has had all that the others store to it.

use super::fold::Acc;
use super::hopper_loop::call;
use super::row_layout::{Layout, MOST_THREADS};
use super::row_pass::{Kind, Pass};
use super::row_reduce::{Slots, combine};
use super::row_resident::{self, Look};
use super::scalar::{Emit, Num, add, arith, cmp, int_of, lit32, mul};
use super::{Lowering, index::Facts};
use crate::ir::simt::{CmpOp, Expr, IntOp, Intrinsic, SharedId, Special, Stmt, Ty, Unroll};
use crate::pass::rows::Rows;
use crate::vocab::dtype::{self, DType};
use std::cell::Cell;

/// Blocks of a cluster at most: what every device with clusters runs.
const MOST: i64 = 8;
/// Registers of held values above which a row is shared by a cluster.
const LONG: i64 = 8192;

/// Shares long rows among the blocks of a cluster, where that holds them.
pub fn choose(cx: &Lowering<'_>, rows: &Rows, passes: &[Pass<'_>], layout: &mut Layout) {
    // Registers of held values a thread, and threads of a block, at least: many small blocks hide each other's waits.
    const EACH: i64 = 32;
    const THREADS: i64 = 128;
    const ROOMY: i64 = 512;
    if !able(cx, passes, layout) {
        return;
    }
    if few_long(cx, rows, passes, layout) {
        (layout.cluster, layout.lanes, layout.per_block, layout.held) = (MOST, 512, 1, false);
        return;
    }
    // What is only reduced, and in one pass, is as well read as it comes.
    let stores = passes.iter().flat_map(|p| &p.items).any(|i| matches!(i.kind, Kind::Map { .. }));
    if !stores && super::row_online::joins(cx.graph, passes).is_some() {
        layout.held = words(cx, rows, passes, layout).is_some_and(|w| w <= LONG);
        return;
    }
    let Some(words) = words(cx, rows, passes, layout).filter(|&w| w > LONG) else { return };
    let power = |n: i64| (n.max(1) as u64).next_power_of_two() as i64;
    // Rows that are too few to hide each other's waits have more threads each.
    let each = if rows.count() < 132.0 { EACH / 4 } else { EACH };
    let cluster = power((words + THREADS * each - 1) / (THREADS * each)).clamp(2, MOST);
    let lanes = |each: i64| power((words + cluster * each - 1) / (cluster * each)).max(THREADS);
    let lanes = lanes(each).min(ROOMY).max(lanes(EACH));
    if lanes <= MOST_THREADS {
        (layout.cluster, layout.lanes, layout.per_block) = (cluster, lanes, 1);
    }
}

/// Rows that are too few for the device's multiprocessors and too long to be held: a cluster reads each of them as often as
/// there are passes.
fn few_long(cx: &Lowering<'_>, rows: &Rows, passes: &[Pass<'_>], layout: &Layout) -> bool {
    const FEW: f64 = 132.0;
    const POINTS: i64 = 1 << 16;
    let holds = |w: i64| {
        w <= MOST * 512 * row_resident::most_held(&Layout { lanes: 512, per_block: 1, ..layout.clone() })
    };
    let points = passes.iter().filter_map(|p| super::row::points(&p.dims)).max().unwrap_or(0);
    rows.count() < FEW && points >= POINTS && !words(cx, rows, passes, layout).is_some_and(holds)
}

/// May a cluster share these passes' rows?
pub fn able(cx: &Lowering<'_>, passes: &[Pass<'_>], layout: &Layout) -> bool {
    let boxes = passes.iter().all(|p| p.dims.is_some() && !p.ordered);
    let several = passes.len() > 1 || passes.iter().any(|p| p.online);
    // Slots of truth values are bytes, and blocks store words.
    let word = |k: &Kind<'_>| !matches!(k, Kind::Fold { expr, .. } if cx.graph.ty(*expr) == dtype::Ty::Bool);
    let words = passes.iter().flat_map(|p| &p.items).all(|i| word(&i.kind));
    cx.target.clusters && !layout.columns && boxes && words && several
}

/// Registers, of all threads, that hold what several passes read; `None` if there is nothing or the passes differ in
/// their points.
fn words(cx: &Lowering<'_>, rows: &Rows, passes: &[Pass<'_>], layout: &Layout) -> Option<i64> {
    let dims = passes.first()?.dims.clone()?;
    if passes.iter().any(|p| p.dims.as_ref() != Some(&dims)) {
        return None;
    }
    let facts: &Facts<'_> = &cx.facts;
    let look = Look { graph: cx.graph, facts, rows };
    let reads = row_resident::shared_reads(look, passes, &dims);
    let packs: Vec<Option<DType>> = reads
        .iter()
        .map(|(_, item, _, r)| row_resident::packed(cx.graph, cx.home(r.tensor), layout, item, r))
        .collect();
    let made = super::row_made::of_box(look, passes, &dims, layout, &|t| cx.home(t).clone());
    let packs = packs.iter().chain(made.iter().map(|m| &m.1));
    let points = super::row::points(&Some(dims.clone()))? + layout.lead.as_ref().map_or(0, |l| l.v - 1);
    let even = (points + 2 * layout.vector - 1) / (2 * layout.vector) * (2 * layout.vector);
    Some(row_resident::registers(packs, even)).filter(|&w| w > 0)
}

/// Does a thread's part of what several passes read fit its registers? (Also where there is nothing to hold.)
pub fn fits(cx: &Lowering<'_>, rows: &Rows, passes: &[Pass<'_>], layout: &Layout) -> bool {
    let threads = layout.lanes * layout.cluster;
    match words(cx, rows, passes, layout) {
        Some(words) => (words + threads - 1) / threads <= row_resident::most_held(layout),
        // Passes over different points are looked at one by one as they are loaded.
        None => true,
    }
}

/// Blocks of a multiprocessor: those that wait for the others of their cluster leave the memory idle unless there are others,
/// as far as the registers go.
pub fn together(cx: &Lowering<'_>, rows: &Rows, passes: &[Pass<'_>], layout: &Layout) -> u32 {
    const THREADS: i64 = 768;
    const REGISTERS: i64 = 1 << 16;
    /// What a thread needs beside what it holds.
    const BESIDE: i64 = 36;
    if layout.cluster == 1 {
        return 0;
    }
    let few = (THREADS / layout.lanes).max(1);
    let threads = layout.lanes * layout.cluster;
    let held = words(cx, rows, passes, layout).filter(|_| layout.held).unwrap_or(0);
    // Registers of a round.
    let round = if super::row_layout::packs(cx, passes) { layout.vector / 2 } else { layout.vector }.max(1);
    let each = (held + threads * round - 1) / (threads * round) * round;
    let two = few == 1 && 2 * layout.lanes * (each + BESIDE) <= REGISTERS;
    if two && layout.held { 2 } else { few as u32 }
}

/// The blocks that share a row.
#[derive(Clone)]
pub struct Cluster {
    blocks: i64,
    rank: Expr,
    barriers: SharedId,
    /// Results that have been exchanged so far.
    turn: std::rc::Rc<Cell<u32>>,
}

impl Cluster {
    pub fn new(e: &mut Emit<'_>, blocks: i64) -> Cluster {
        let block = Num { expr: Expr::Special(Special::BlockX), ty: Ty::I32 };
        let rank = arith(IntOp::Rem, block, int_of(Ty::I32, blocks));
        let rank = e.named("rank", Ty::I32, rank.expr);
        let barriers = e.kernel.shared("arrived", DType::I64, 2, 8);
        Cluster { blocks, rank, barriers, turn: Default::default() }
    }

    /// A thread's place among all of the row's.
    pub fn lane(&self, e: &mut Emit<'_>, own: &Num, lanes: i64) -> Num {
        let expr = add(mul(self.rank.clone(), lit32(lanes as i32)), own.expr.clone());
        Num { expr: e.named("lane_of_row", Ty::I32, expr), ty: Ty::I32 }
    }

    fn barrier(&self, i: u32) -> Expr {
        Expr::SharedAddr(self.barriers, Box::new(lit32(i as i32)))
    }

    pub fn begin(&self, e: &mut Emit<'_>) {
        let first = cmp(CmpOp::Eq, Expr::Special(Special::ThreadX), lit32(0));
        e.if_then(first, |e| {
            for i in 0..2 {
                call(e, Intrinsic::MbarrierInit, vec![self.barrier(i), Expr::U32(1)]);
            }
            call(e, Intrinsic::FenceMbarrierInit, Vec::new());
        });
        e.push(Stmt::Barrier);
        call(e, Intrinsic::ClusterArrive, Vec::new());
    }

    pub fn meet(&self, e: &mut Emit<'_>) {
        call(e, Intrinsic::ClusterWait, Vec::new());
    }

    /// Every block's results, which all its threads have, are combined in the blocks' order; all threads get the same.
    pub fn combine(&self, e: &mut Emit<'_>, accs: &[Acc], own: &Num) {
        if accs.is_empty() {
            return;
        }
        let turn = self.turn.get();
        self.turn.set(turn + 1);
        let (barrier, parity) = (self.barrier(turn % 2), turn / 2 % 2);
        let slots: Vec<Slots> = accs.iter().map(|a| Slots::new(e, a, self.blocks)).collect();
        let sends: Vec<(SharedId, Ty, Expr)> = slots
            .iter()
            .zip(accs)
            .flat_map(|(s, a)| {
                let at = s.at.zip(a.at).map(|(s, (at, ty))| (s, ty, Expr::Var(at)));
                [Some((s.value, a.ty, Expr::Var(a.var))), at]
            })
            .flatten()
            .collect();
        let bytes: i64 = sends.iter().map(|s| if is_wide(s.1) { 8 } else { 4 }).sum();
        let first = cmp(CmpOp::Eq, own.expr.clone(), lit32(0));
        let expected = Expr::U32((bytes * self.blocks) as u32);
        e.if_then(first, |e| call(e, Intrinsic::MbarrierExpect, vec![barrier.clone(), expected]));
        let sender = cmp(CmpOp::Lt, own.expr.clone(), lit32(self.blocks as i32));
        e.if_then(sender, |e| {
            let to = Expr::Cast(Ty::U32, Box::new(own.expr.clone()));
            for (slot, ty, value) in sends {
                let at = Expr::SharedAddr(slot, Box::new(self.rank.clone()));
                let op = Intrinsic::StoreAsync { wide: is_wide(ty) };
                call(e, op, vec![at, barrier.clone(), to.clone(), bits(ty, value)]);
            }
        });
        call(e, Intrinsic::MbarrierWait, vec![barrier, Expr::U32(parity)]);
        for (s, a) in slots.iter().zip(accs) {
            s.take(e, a, &lit32(0));
        }
        let part = e.kernel.var("part", Ty::I32);
        let body = e.block(|e| {
            for (s, a) in slots.iter().zip(accs) {
                let other = s.read(e, &Expr::Var(part));
                combine(e, a, &other);
            }
        });
        let (lo, hi, step) = (lit32(1), lit32(self.blocks as i32), lit32(1));
        e.push(Stmt::For { var: part, lo, hi, step, unroll: Unroll::Full, body });
    }
}

fn is_wide(ty: Ty) -> bool {
    matches!(ty, Ty::I64 | Ty::U64 | Ty::F64)
}

/// A value's bits, as they lie in memory.
fn bits(ty: Ty, value: Expr) -> Expr {
    let boxed = Box::new(value);
    match ty {
        Ty::Bool => Expr::Cast(Ty::U32, Box::new(Expr::Cast(Ty::I32, boxed))),
        Ty::I32 => Expr::Cast(Ty::U32, boxed),
        Ty::I64 => Expr::Cast(Ty::U64, boxed),
        Ty::F32 => Expr::Bitcast(Ty::U32, boxed),
        Ty::F64 => Expr::Bitcast(Ty::U64, boxed),
        Ty::U32 | Ty::U64 => *boxed,
    }
}
