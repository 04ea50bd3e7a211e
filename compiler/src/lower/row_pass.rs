//! Row kernels: one pass over the row.
//!
//! A thread takes `vector` neighbouring points at a time, `lanes` threads side by side, round after round. What
//! several passes read is kept in arrays (`Resident`) if all rounds of it fit in registers; then the rounds are
//! unrolled. Functions of the user take a contiguous piece of the row in each thread, so that their order is kept.

use super::fold::Acc;
use super::map;
use super::row::{Row, before_loop, points};
use super::row_argmax;
use super::row_layout::{self, OfRows};
use super::row_lead;
use super::row_made;
use super::row_random::{self, Random};
use super::row_resident::*;
use super::row_stage;
use super::row_store::{out_arrays, store_vector};
use super::scalar::{Emit, Num, add, and, arith, cmp, int_of, lit32, literal, mul};
use crate::ir::graph::{AxisId, Define, ExprId, Fold, Read, TensorId};
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Special, Stmt, Ty, Unroll, VarId};
use std::collections::BTreeMap;

/// What one pass computes over the same points.
#[derive(Clone)]
pub struct Pass<'a> {
    pub level: usize,
    /// Extents of the box of points; `None` if a range depends on data or the row.
    pub dims: Option<Vec<i64>>,
    /// Functions of the user: each thread takes a contiguous piece.
    pub ordered: bool,
    /// A maximum, a sum of exponentials below it, and what is reduced beside them, in one go (`row_online.rs`).
    pub online: bool,
    pub items: Vec<Item<'a>>,
}

#[derive(Clone)]
pub struct Item<'a> {
    /// The statement's axes that are rows.
    pub rows: Vec<AxisId>,
    /// Axes of the pass, as this item names them.
    pub axes: Vec<AxisId>,
    pub kind: Kind<'a>,
}

#[derive(Clone)]
pub enum Kind<'a> {
    Fold { expr: ExprId, fold: &'a Fold, guard: Vec<(ExprId, bool)> },
    Map { define: &'a Define },
}

/// Rounds over a box of points.
#[derive(Clone)]
pub(super) struct Rounds {
    pub dims: Vec<i64>,
    pub points: i64,
    pub vector: i64,
    pub lanes: i64,
    pub count: i64,
    pub ty: Ty,
    /// Elements before the row in its first vector (`row_lead.rs`).
    pub lead: Option<Expr>,
    /// Whether some of a vector's points may be outside the row.
    pub edge: bool,
    pub start: Option<row_lead::Lead>,
}

impl Rounds {
    pub fn new(row: &Row<'_, '_>, dims: &[i64]) -> Rounds {
        let points: i64 = dims.iter().product();
        let (vector, lanes) = (row.layout.vector, row.layout.lanes * row.layout.cluster);
        let lead = row.lead.clone();
        let before = if lead.as_ref().is_none_or(row_lead::is_zero) { 0 } else { vector - 1 };
        let count = (before + points + lanes * vector - 1) / (lanes * vector);
        let ty = if points + 2 * lanes * vector > i32::MAX as i64 { Ty::I64 } else { Ty::I32 };
        let edge = lead.is_some();
        Rounds {
            dims: dims.to_vec(),
            points,
            vector,
            lanes,
            count,
            ty,
            lead,
            edge,
            start: row.layout.lead.clone(),
        }
    }

    /// Points of the row, whatever these rounds take of it.
    pub fn length(&self) -> i64 {
        self.dims.iter().product()
    }

    /// The rounds, of those that have an edge, in which every vector is inside the row: from, to.
    fn inner(&self) -> (i64, i64) {
        let first = i64::from(!self.lead.as_ref().is_none_or(row_lead::is_zero));
        (first, (self.length() / (self.lanes * self.vector)).max(first))
    }

    /// As they are in round `j`.
    pub(super) fn at(&self, j: i64) -> Rounds {
        let (first, end) = self.inner();
        Rounds { edge: self.edge && !(first..end).contains(&j), ..self.clone() }
    }

    /// All of the row's inner rounds, as rounds that need no guard.
    fn inner_rounds(&self) -> Rounds {
        let (_, end) = self.inner();
        Rounds { points: end * self.lanes * self.vector, count: end, edge: false, ..self.clone() }
    }

    pub fn is_even(&self) -> bool {
        self.count * self.lanes * self.vector == self.points
    }

    /// Elements of a thread.
    pub(super) fn each(&self) -> i64 {
        self.count * self.vector
    }
}

/// The first point of a thread's turn in a round.
pub(super) fn base_at(rounds: &Rounds, lane: &Num, round: Num) -> Num {
    let lane = Num { expr: super::read::to(lane.clone(), rounds.ty), ty: rounds.ty };
    let turn = arith(IntOp::Add, arith(IntOp::Mul, round, int_of(rounds.ty, rounds.lanes)), lane);
    let first = arith(IntOp::Mul, turn, int_of(rounds.ty, rounds.vector));
    match &rounds.lead {
        Some(lead) => arith(IntOp::Sub, first, Num { expr: lead.clone(), ty: Ty::I32 }),
        None => first,
    }
}

pub(super) fn bind_point(e: &mut Emit<'_>, rounds: &Rounds, item: &Item<'_>, pos: &Num) {
    let at = map::decode(e, pos.clone(), &rounds.dims);
    map::bind_axes(e, &item.axes, &at);
}

/// Runs a pass; the folds' values are bound afterwards.
pub fn run<'a>(row: &mut Row<'a, '_>, pass: &Pass<'a>) {
    if pass.online {
        return super::row_online::run(row, pass);
    }
    for item in &pass.items {
        line(row, item);
        let guard = guard_of(&mut row.e, item);
        if guard.is_none() {
            before_loop(&mut row.e, item);
        }
    }
    let accs = accumulators(row, pass);
    match &pass.dims {
        _ if points(&pass.dims) == Some(0) => {}
        Some(dims) if !pass.ordered => super::row_guard::rounds(row, pass, &Rounds::new(row, dims), &accs),
        Some(dims) => super::row_open::pieces(row, pass, dims, &accs),
        None => super::row_open::run(row, pass, &accs),
    }
    let found: Vec<Acc> = accs.iter().flatten().cloned().collect();
    let lanes = row.lanes.clone();
    lanes.reduce(&mut row.e, &found);
    for (item, acc) in pass.items.iter().zip(&accs) {
        if let (Kind::Fold { expr, .. }, Some(acc)) = (&item.kind, acc) {
            let n = row.e.result(acc);
            let n = Num { expr: row.e.named("total", n.ty, n.expr), ty: n.ty };
            row.e.bind_num(*expr, n);
        }
    }
}

/// One block's part of a pass (a run of rounds); gives the accumulators, combined over the block.
pub fn run_part<'a>(row: &mut Row<'a, '_>, pass: &Pass<'a>, parts: i64) -> Vec<Acc> {
    pass.items.iter().for_each(|i| line(row, i));
    let accs = accumulators(row, pass);
    if let Some(dims) = pass.dims.as_ref().filter(|_| points(&pass.dims) != Some(0)) {
        let rounds = Rounds::new(row, dims);
        let block = Expr::Special(Special::BlockY);
        let each = (rounds.count + parts - 1) / parts;
        let block = Num { expr: block, ty: Ty::I32 };
        let lo = arith(
            IntOp::Mul,
            Num { expr: super::read::to(block, rounds.ty), ty: rounds.ty },
            int_of(rounds.ty, each),
        );
        let lo = Num { expr: row.e.named("first", rounds.ty, lo.expr), ty: rounds.ty };
        let end = arith(IntOp::Add, lo.clone(), int_of(rounds.ty, each));
        let end = arith(IntOp::Min, end, int_of(rounds.ty, rounds.count));
        let end = Num { expr: row.e.named("last", rounds.ty, end.expr), ty: rounds.ty };
        long_rounds(row, pass, &rounds, &accs, lo, end);
    }
    let found: Vec<Acc> = accs.into_iter().flatten().collect();
    let lanes = row.lanes.clone();
    lanes.reduce(&mut row.e, &found);
    found
}

pub(super) fn line(row: &mut Row<'_, '_>, item: &Item<'_>) {
    let span = match &item.kind {
        Kind::Fold { expr, .. } => row.graph.span(*expr),
        Kind::Map { define } => define.span,
    };
    row.e.line(span);
}

pub fn accumulators<'a>(row: &mut Row<'a, '_>, pass: &Pass<'a>) -> Vec<Option<Acc>> {
    pass.items
        .iter()
        .map(|item| match &item.kind {
            Kind::Fold { expr, fold, .. } => {
                let ty = row.e.fold_ty(fold, row.graph.ty(*expr));
                Some(row.e.accumulator(fold.combine, fold.body, ty, fold.axes.first().copied()))
            }
            Kind::Map { .. } => None,
        })
        .collect()
}

/// The condition under which a fold is evaluated at all.
pub(super) fn guard_of(e: &mut Emit<'_>, item: &Item<'_>) -> Option<Expr> {
    let Kind::Fold { guard, .. } = &item.kind else { return None };
    let conds: Vec<Expr> = guard
        .iter()
        .map(|&(c, taken)| {
            let v = e.value(c);
            let v = e.named("guard", Ty::Bool, v);
            if taken { v } else { super::scalar::not(v) }
        })
        .collect();
    conds.into_iter().reduce(and)
}

/// Turns of a loop that are written out: so many loads are under way at a time. Columns are loaded an element at a time.
pub(super) fn unrolled(row: &Row<'_, '_>, pass: &Pass<'_>) -> u32 {
    const FEW: u32 = 4;
    const BYTES: u32 = 32;
    let reads = pass.items.iter().flat_map(|i| row_layout::reads(row.graph, i));
    let size = reads.map(|(_, r)| row.graph.tensor(r.tensor).dtype.bits() / 8).max().unwrap_or(4);
    match row.layout.columns {
        true => (BYTES / size.max(1)).max(FEW),
        false => FEW,
    }
}

/// Rounds that are added one after the other.
const PIECE: i64 = 512;

/// The pass in rounds. Long sums are cut in pieces, each summed on its own.
pub(super) fn rounds_of<'a>(row: &mut Row<'a, '_>, pass: &Pass<'a>, rounds: &Rounds, accs: &[Option<Acc>]) {
    let kept = resident_of(row, pass, rounds);
    let (lo, hi) = (int_of(rounds.ty, 0), int_of(rounds.ty, rounds.count));
    let short = !kept.is_empty() || rounds.count <= 2 * PIECE;
    if short || !accs.iter().flatten().any(|a| row.e.chained(a)) {
        return round_loop(row, pass, rounds, accs, &kept, lo, hi);
    }
    long_rounds(row, pass, rounds, accs, lo, hi);
}

fn long_rounds<'a>(
    row: &mut Row<'a, '_>,
    pass: &Pass<'a>,
    rounds: &Rounds,
    accs: &[Option<Acc>],
    lo: Num,
    hi: Num,
) {
    let chunk = row.e.kernel.var("piece", rounds.ty);
    row.e.open();
    let parts: Vec<Option<Acc>> = accs.iter().map(|a| a.as_ref().map(|a| part_of(&mut row.e, a))).collect();
    let end = add(Expr::Var(chunk), int_of(rounds.ty, PIECE).expr);
    let end = Expr::Int(IntOp::Min, Box::new(end), Box::new(hi.expr.clone()));
    let end = Num { expr: row.e.named("end", rounds.ty, end), ty: rounds.ty };
    let first = Num { expr: Expr::Var(chunk), ty: rounds.ty };
    round_loop(row, pass, rounds, &parts, &BTreeMap::new(), first, end);
    for (acc, part) in accs.iter().flatten().zip(parts.iter().flatten()) {
        if acc.var != part.var {
            row.e.merge(acc, part);
        }
    }
    let body = row.e.close();
    let step = int_of(rounds.ty, PIECE).expr;
    row.e.push(Stmt::For { var: chunk, lo: lo.expr, hi: hi.expr, step, unroll: Unroll::None, body });
}

/// An accumulator for a piece of a long float sum; others go on with their own.
fn part_of(e: &mut Emit<'_>, acc: &Acc) -> Acc {
    if e.chained(acc) { e.partial(acc) } else { acc.clone() }
}

/// For each item, its reads that are resident.
fn resident_of(row: &Row<'_, '_>, pass: &Pass<'_>, rounds: &Rounds) -> BTreeMap<ExprId, Held> {
    let look = Look { graph: row.graph, facts: &row.e.facts, rows: row.rows };
    let mut found = BTreeMap::new();
    for item in &pass.items {
        for (e, r) in row_layout::reads(row.graph, item) {
            if !keeps(look, item, e, &r) {
                continue;
            }
            let k = key(row.graph, item, e);
            if let Some(x) = row.resident.iter().find(|x| x.key == k && x.dims == rounds.dims) {
                found.insert(e, x.held);
            }
        }
    }
    found
}

/// A vector read that only this pass makes.
#[derive(Clone)]
pub(super) struct Streamed {
    pub item: usize,
    pub expr: ExprId,
    pub read: Read,
    pub array: ArrayId,
    pub chunk: i64,
}

pub(super) fn streamed(
    row: &mut Row<'_, '_>,
    pass: &Pass<'_>,
    rounds: &Rounds,
    kept: &BTreeMap<ExprId, Held>,
    turns: i64,
) -> Vec<Streamed> {
    let mut out: Vec<Streamed> = Vec::new();
    let mut arrays: BTreeMap<String, ArrayId> = BTreeMap::new();
    let facts = row.e.facts.clone();
    let look = Look { graph: row.graph, facts: &facts, rows: row.rows };
    for (i, item) in pass.items.iter().enumerate() {
        for (e, r) in row_layout::reads(row.graph, item) {
            let shared = row.rows.held.contains(&r.tensor) && row_made::owner(row).is_some();
            if rounds.vector == 1 || kept.contains_key(&e) || shared || !keeps(look, item, e, &r) {
                continue;
            }
            let Some(chunk) = row.layout.chunk(row.graph, &row.e.home(r.tensor), item, &r) else { continue };
            let k = key(row.graph, item, e);
            let array = match arrays.get(&k) {
                Some(&a) => a,
                None => {
                    let name = format!("in_{}", row.graph.tensor(r.tensor).name);
                    let a = row.e.kernel.array(name, Ty::of(row.graph.ty(e)), (turns * rounds.vector) as u32);
                    arrays.insert(k, a);
                    a
                }
            };
            out.push(Streamed { item: i, expr: e, read: r, array, chunk });
        }
    }
    note_once(row, pass, &out);
    out
}

/// What is read once beside what every row reads again (a matrix beside its vector) leaves the L1 cache to that.
fn note_once(row: &mut Row<'_, '_>, pass: &Pass<'_>, streamed: &[Streamed]) {
    let facts = row.e.facts.clone();
    let rows = |s: &Streamed| row_layout::rows_of(row.graph, &facts, &pass.items[s.item], &s.read);
    let again: Vec<usize> = streamed.iter().filter(|s| rows(s) == OfRows::None).map(|s| s.item).collect();
    let is_once = |s: &&Streamed| again.contains(&s.item) && rows(s) == OfRows::Each;
    let once: Vec<TensorId> = streamed.iter().filter(is_once).map(|s| s.read.tensor).collect();
    for tensor in once {
        let param = row.e.tensor_param(tensor, false);
        if !row.e.kernel.once.contains(&param) {
            row.e.kernel.once.push(param);
        }
    }
}

/// Loads a thread's vectors of one round, to the place of turn `turn` of their arrays.
pub(super) fn load_streamed<'a>(
    e: &mut Emit<'a>,
    pass: &Pass<'a>,
    rounds: &Rounds,
    streamed: &[Streamed],
    base: &Num,
    turn: i64,
) {
    let mut loaded: Vec<ArrayId> = Vec::new();
    for s in streamed {
        if !loaded.contains(&s.array) {
            loaded.push(s.array);
            let at = turn * rounds.vector;
            e.scope(|e| load_vector(e, rounds, &pass.items[s.item], &s.read, base, s.array, at, s.chunk));
        }
    }
}

/// `f` at each point of a thread's turn, with its reads bound to what was loaded.
pub(super) fn each_point<'a>(
    e: &mut Emit<'a>,
    item: &Item<'a>,
    rounds: &Rounds,
    streamed: &[Streamed],
    base: &Num,
    turn: i64,
    f: &dyn Fn(&mut Emit<'a>, &Item<'a>),
) {
    for v in 0..rounds.vector {
        e.scope(|e| {
            let pos = arith(IntOp::Add, base.clone(), int_of(base.ty, v));
            let pos = Num { expr: e.named("pos", pos.ty, pos.expr), ty: pos.ty };
            let work = |e: &mut Emit<'a>| {
                bind_point(e, rounds, item, &pos);
                for s in streamed {
                    let at = lit32((turn * rounds.vector + v) as i32);
                    e.bind(s.expr, Expr::Elem(s.array, Box::new(at)));
                }
                f(e, item);
            };
            if rounds.edge {
                e.if_then(row_lead::inside(rounds, &pos), work);
            } else {
                work(e);
            }
        });
    }
}

/// The first points of a thread's turn in each of `turns` rounds from `round`.
fn bases(row: &mut Row<'_, '_>, rounds: &Rounds, round: VarId, turns: i64) -> Vec<Num> {
    let lane = row.lanes.lane.clone();
    let base = |w: i64| {
        let round = Num { expr: Expr::Var(round), ty: rounds.ty };
        let at = base_at(rounds, &lane, arith(IntOp::Add, round, int_of(rounds.ty, w)));
        Num { expr: row.e.named("base", at.ty, at.expr), ty: at.ty }
    };
    (0..turns).map(base).collect()
}

/// The end of the rounds of a range that go `turns` at a time without a guard.
fn turns(e: &mut Emit<'_>, rounds: &Rounds, lo: Num, hi: &Num, turns: i64) -> Num {
    let whole = int_of(rounds.ty, rounds.points / (rounds.lanes * rounds.vector));
    let end = arith(IntOp::Min, hi.clone(), whole);
    let count = arith(IntOp::Max, arith(IntOp::Sub, end, lo.clone()), int_of(rounds.ty, 0));
    let by = int_of(rounds.ty, turns);
    let mid = arith(IntOp::Add, lo, arith(IntOp::Mul, arith(IntOp::Div, count, by.clone()), by));
    Num { expr: e.named("middle", rounds.ty, mid.expr), ty: rounds.ty }
}

/// Adds the work of a turn: several rounds at a time are whole, one alone may not be.
fn guarded(row: &mut Row<'_, '_>, rounds: &Rounds, base: &Num, turns: i64, work: Vec<Stmt>) {
    if turns > 1 || rounds.is_even() {
        return work.into_iter().for_each(|s| row.e.push(s));
    }
    let cond = cmp(CmpOp::Lt, base.expr.clone(), int_of(rounds.ty, rounds.points).expr);
    row.e.push(Stmt::If { cond, then: work, otherwise: Vec::new() });
}

/// Rounds from `lo` to `hi`, `by` (a power of two) at a time as long as they are whole, then half as many, and so on: all loads of a turn, then
/// `work` on what they gave and the first points of its rounds.
pub(super) fn in_turns<'a>(
    row: &mut Row<'a, '_>,
    pass: &Pass<'a>,
    rounds: &Rounds,
    (lo, hi): (Num, Num),
    by: i64,
    work: &dyn Fn(&mut Emit<'a>, &[Streamed], &[Num]),
) {
    let mut lo = lo;
    let first = rounds.inner().0;
    if rounds.edge && first > 0 {
        let end = clamped(&mut row.e, first, &lo, &hi);
        turns_of(row, pass, rounds, (lo, end.clone()), 1, work);
        lo = end;
    }
    let inner = if rounds.edge { rounds.inner_rounds() } else { rounds.clone() };
    let mut by = by;
    while by > 1 {
        let mid = turns(&mut row.e, rounds, lo.clone(), &hi, by);
        turns_of(row, pass, &inner, (lo, mid.clone()), by, work);
        (lo, by) = (mid, by / 2);
    }
    turns_of(row, pass, rounds, (lo, hi), 1, work);
}

/// A round, but not before `lo` or after `hi`.
fn clamped(e: &mut Emit<'_>, round: i64, lo: &Num, hi: &Num) -> Num {
    if let (Some(a), Some(b)) = (literal(&lo.expr), literal(&hi.expr)) {
        return int_of(lo.ty, round.clamp(a, b.max(a)));
    }
    let n = arith(IntOp::Min, int_of(lo.ty, round), hi.clone());
    let n = arith(IntOp::Max, n, lo.clone());
    Num { expr: e.named("part", n.ty, n.expr), ty: n.ty }
}

fn turns_of<'a>(
    row: &mut Row<'a, '_>,
    pass: &Pass<'a>,
    rounds: &Rounds,
    (lo, hi): (Num, Num),
    by: i64,
    work: &dyn Fn(&mut Emit<'a>, &[Streamed], &[Num]),
) {
    let streamed = streamed(row, pass, rounds, &BTreeMap::new(), by);
    let round = row.e.kernel.var("round", rounds.ty);
    row.e.open();
    let bases = bases(row, rounds, round, by);
    let work = row.e.block(|e| {
        for (w, base) in bases.iter().enumerate() {
            load_streamed(e, pass, rounds, &streamed, base, w as i64);
        }
        work(e, &streamed, &bases);
    });
    guarded(row, rounds, &bases[0], by, work);
    let body = row.e.close();
    let step = int_of(rounds.ty, by).expr;
    row.e.push(Stmt::For { var: round, lo: lo.expr, hi: hi.expr, step, unroll: Unroll::None, body });
}

fn round_loop<'a>(
    row: &mut Row<'a, '_>,
    pass: &Pass<'a>,
    rounds: &Rounds,
    accs: &[Option<Acc>],
    kept: &BTreeMap<ExprId, Held>,
    lo: Num,
    hi: Num,
) {
    if let (true, [Some(acc)]) = (kept.is_empty() && row_argmax::applies(row, pass, rounds), accs) {
        return row_argmax::run(row, pass, rounds, acc, lo, hi);
    }
    if rounds.edge {
        return edged(row, pass, rounds, accs, kept, lo, hi);
    }
    let whole = rounds.points / (rounds.lanes * rounds.vector);
    let all =
        matches!((&lo.expr, &hi.expr), (a, b) if literal(a) == Some(0) && literal(b) == Some(rounds.count));
    if all && kept.is_empty() && whole < rounds.count && whole > 0 {
        // All whole rounds without a guard, so that their loads go together; then the last.
        let main = Rounds { points: whole * rounds.lanes * rounds.vector, count: whole, ..rounds.clone() };
        let end = int_of(rounds.ty, whole);
        round_part(row, pass, &main, accs, kept, lo, end.clone());
        return round_part(row, pass, rounds, accs, kept, end, hi);
    }
    round_part(row, pass, rounds, accs, kept, lo, hi);
}

/// The first round, the inner ones without a question, the last.
fn edged<'a>(
    row: &mut Row<'a, '_>,
    pass: &Pass<'a>,
    rounds: &Rounds,
    accs: &[Option<Acc>],
    kept: &BTreeMap<ExprId, Held>,
    lo: Num,
    hi: Num,
) {
    let (first, end) = rounds.inner();
    if first >= end {
        return round_part(row, pass, rounds, accs, kept, lo, hi);
    }
    let first = clamped(&mut row.e, first, &lo, &hi);
    let end = clamped(&mut row.e, end, &first, &hi);
    let inner = rounds.inner_rounds();
    for (rounds, lo, hi) in [(rounds, lo, first.clone()), (&inner, first, end.clone()), (rounds, end, hi)] {
        let none = literal(&lo.expr).is_some_and(|a| literal(&hi.expr).is_some_and(|b| a >= b));
        if !none {
            round_part(row, pass, rounds, accs, kept, lo, hi);
        }
    }
}

fn round_part<'a>(
    row: &mut Row<'a, '_>,
    pass: &Pass<'a>,
    rounds: &Rounds,
    accs: &[Option<Acc>],
    kept: &BTreeMap<ExprId, Held>,
    lo: Num,
    hi: Num,
) {
    let streamed = streamed(row, pass, rounds, kept, 1);
    let outs = out_arrays(row, pass, rounds);
    let randoms = row_random::found(row, pass, rounds);
    let turn = Turn { accs, kept, streamed: &streamed, randoms: &randoms, outs: &outs };
    let round = row.e.kernel.var("round", rounds.ty);
    row.e.open();
    let base = base_at(rounds, &row.lanes.lane.clone(), Num { expr: Expr::Var(round), ty: rounds.ty });
    let base = Num { expr: row.e.named("base", base.ty, base.expr), ty: base.ty };
    row.e.open();
    load_streamed(&mut row.e, pass, rounds, &streamed, &base, 0);
    row_random::make(row, pass, rounds, &randoms, &base);
    if rounds.edge {
        // Most vectors are inside: the question is asked once for each.
        let cond = row_lead::whole(rounds, &base);
        let sides = [false, true].map(|edge| {
            let rounds = Rounds { edge, ..rounds.clone() };
            row.e.open();
            turn_of(row, pass, &rounds, &turn, round, &base);
            row.e.close()
        });
        let [then, otherwise] = sides;
        row.e.push(Stmt::If { cond, then, otherwise });
    } else {
        turn_of(row, pass, rounds, &turn, round, &base);
    }
    let work = row.e.close();
    if rounds.is_even() {
        work.into_iter().for_each(|s| row.e.push(s));
    } else {
        let cond = cmp(CmpOp::Lt, base.expr.clone(), int_of(rounds.ty, rounds.points).expr);
        row.e.push(Stmt::If { cond, then: work, otherwise: Vec::new() });
    }
    let body = row.e.close();
    let holds =
        |i: &Item<'_>| matches!(&i.kind, Kind::Map { define } if row.made.contains_key(&define.target));
    let unroll = match kept.is_empty() && !pass.items.iter().any(holds) {
        true if rounds.is_even() && rounds.count >= 4 => Unroll::By(unrolled(row, pass)),
        true => Unroll::Auto,
        false => Unroll::Full,
    };
    row.e.push(Stmt::For {
        var: round,
        lo: lo.expr,
        hi: hi.expr,
        step: int_of(rounds.ty, 1).expr,
        unroll,
        body,
    });
}

/// What the points of a thread's turn go into and come from.
struct Turn<'t> {
    accs: &'t [Option<Acc>],
    kept: &'t BTreeMap<ExprId, Held>,
    streamed: &'t [Streamed],
    randoms: &'t [Random],
    outs: &'t [Option<(ArrayId, i64)>],
}

/// A thread's turn: its points, then the stores.
fn turn_of<'a>(
    row: &mut Row<'a, '_>,
    pass: &Pass<'a>,
    rounds: &Rounds,
    t: &Turn<'_>,
    round: VarId,
    base: &Num,
) {
    vector_loop(row, pass, rounds, t, round, base);
    for (item, out) in pass.items.iter().zip(t.outs) {
        if let (Kind::Map { define }, Some((array, chunk))) = (&item.kind, out) {
            if let Some(Held { array: to, packed: Some(dtype) }) = row.made.get(&define.target).copied() {
                row_made::hold_packed(&mut row.e, rounds, round, dtype, *array, to);
            }
            if row_made::is_stored(row, define) {
                store_vector(row, rounds, item, define, base, *array, *chunk);
            }
        }
    }
}

/// The points of a thread's turn.
fn vector_loop<'a>(
    row: &mut Row<'a, '_>,
    pass: &Pass<'a>,
    rounds: &Rounds,
    t: &Turn<'_>,
    round: VarId,
    base: &Num,
) {
    let single = rounds.vector == 1;
    let turn = super::read::to(Num { expr: Expr::Var(round), ty: rounds.ty }, Ty::I32);
    if single {
        let held = |h: Held| h.element(&turn, &lit32(0), 0);
        return vector_point(row, pass, rounds, t, base, (&lit32(0), &turn), &held);
    }
    // Halves of a register are told apart as the kernel is written: two points a turn of the loop.
    let step = if t.kept.values().any(|h| h.packed.is_some()) { 2 } else { 1 };
    let v = row.e.kernel.var("v", Ty::I32);
    row.e.open();
    for half in 0..step {
        row.e.open();
        let inner = arith(
            IntOp::Add,
            arith(IntOp::Mul, Num { expr: Expr::Var(v), ty: Ty::I32 }, int_of(Ty::I32, step)),
            int_of(Ty::I32, half),
        );
        let inner = row.e.named("at", Ty::I32, inner.expr);
        let slot = add(mul(turn.clone(), lit32(rounds.vector as i32)), inner.clone());
        let pair = add(mul(turn.clone(), lit32(rounds.vector as i32 / 2)), Expr::Var(v));
        let held = |h: Held| h.element(&slot, &pair, half as u8);
        vector_point(row, pass, rounds, t, base, (&inner, &slot), &held);
        let stmts = row.e.close();
        stmts.into_iter().for_each(|s| row.e.push(s));
    }
    let body = row.e.close();
    let hi = lit32((rounds.vector / step) as i32);
    row.e.push(Stmt::For { var: v, lo: lit32(0), hi, step: lit32(1), unroll: Unroll::Full, body });
}

/// Every item at the `inner`-th point of a thread's turn, which is the `slot`-th of all its turns.
fn vector_point<'a>(
    row: &mut Row<'a, '_>,
    pass: &Pass<'a>,
    rounds: &Rounds,
    t: &Turn<'_>,
    base: &Num,
    (inner, slot): (&Expr, &Expr),
    held: &dyn Fn(Held) -> Expr,
) {
    let pos = arith(IntOp::Add, base.clone(), Num { expr: inner.clone(), ty: Ty::I32 });
    let pos = Num { expr: row.e.named("pos", pos.ty, pos.expr), ty: pos.ty };
    for (i, item) in pass.items.iter().enumerate() {
        row.e.open();
        bind_point(&mut row.e, rounds, item, &pos);
        for (&e, &h) in t.kept {
            row.e.bind(e, held(h));
        }
        for s in t.streamed.iter().filter(|s| s.item == i) {
            row.e.bind(s.expr, Expr::Elem(s.array, Box::new(inner.clone())));
        }
        for r in t.randoms.iter().filter(|r| r.item == i) {
            r.bind(&mut row.e, inner);
        }
        point(row, item, &t.accs[i], t.outs[i], (inner, slot));
        let mut then = row.e.close();
        if let Some(valid) = row_made::owner(row) {
            then = vec![Stmt::If { cond: valid, then, otherwise: Vec::new() }];
        }
        if rounds.edge {
            let cond = row_lead::inside(rounds, &pos);
            row.e.push(Stmt::If { cond, then, otherwise: Vec::new() });
        } else {
            then.into_iter().for_each(|s| row.e.push(s));
        }
    }
}

/// One point of one item.
pub(super) fn point<'a>(
    row: &mut Row<'a, '_>,
    item: &Item<'a>,
    acc: &Option<Acc>,
    out: Option<(ArrayId, i64)>,
    (inner, slot): (&Expr, &Expr),
) {
    match (&item.kind, acc) {
        (Kind::Fold { fold, .. }, Some(acc)) => {
            let guard = guard_of(&mut row.e, item);
            take(&mut row.e, item, fold, acc, guard);
        }
        (Kind::Map { define }, _) => map_point(row, define, out, (inner, slot)),
        _ => {}
    }
}

/// Takes a point into a fold's accumulator, if its conditions hold.
pub(super) fn take<'a>(e: &mut Emit<'a>, item: &Item<'a>, fold: &Fold, acc: &Acc, guard: Option<Expr>) {
    if let Some(g) = guard {
        return e.if_then(g, |e| take(e, item, fold, acc, None));
    }
    let here = item.axes.first().and_then(|&a| e.axis_value(a).cloned());
    match fold.cond {
        Some(c) => {
            let c = e.value(c);
            e.if_then(c, |e| e.accumulate(acc, fold.body, here));
        }
        None => e.accumulate(acc, fold.body, here),
    }
}

fn map_point<'a>(
    row: &mut Row<'a, '_>,
    d: &'a Define,
    out: Option<(ArrayId, i64)>,
    (inner, slot): (&Expr, &Expr),
) {
    let value = row.e.value(d.value);
    let ty = Ty::of(row.graph.ty(d.value));
    let single = row.made.get(&d.target).copied().filter(|h| h.packed.is_none());
    let value = if out.is_none() || single.is_some() { row.e.named("y", ty, value) } else { value };
    if let Some(held) = single {
        row_made::hold(row, d, held, slot, Num { expr: value.clone(), ty });
    }
    if let Some((array, _)) = out {
        return row.e.push(Stmt::SetElem(array, inner.clone(), value));
    }
    if !row_made::is_stored(row, d) {
        return;
    }
    let index = map::own_index(&row.e, d.target, &d.axes);
    let staged = row.outs.get(&d.target).copied();
    let store = |e: &mut Emit<'a>| match staged {
        Some(to) => row_stage::store(e, d.target, to, &index, value),
        None => e.store(d.target, &index, value),
    };
    match row.valid.clone() {
        Some(valid) => row.e.if_then(valid, store),
        None => store(&mut row.e),
    }
}
