//! Form `map`, turned: where a read runs along another axis than the store, a block brings a tile of it through
//! shared memory, so that both sides move whole vectors (transposes, permutes, layout changes).
//!
//! Let q be the last axis and p the one that the read runs along. A tile is `tq` rows of `tp` neighbours along p.
//! Access j of row r stands at place `j ^ (r / v) % n` of its row, n being the accesses in the width of all banks: the
//! threads of a warp read down columns at steps of v rows, which this spreads over the banks.

use super::map::{count, decode};
use super::map_lanes::{Lanes, gcd};
use super::map_vec::{self, Loaded};
use super::read::Index;
use super::scalar::{Emit, Num, add, and, arith, cmp, int_of, lit32, mul};
use super::{Lowering, MAX_GRID_X, Refusal, map_tile_odd, unaligned};
use crate::ir::graph::{Access, AxisId, Define, Expr as Node, ExprId, Read};
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Mem, STATIC_SHARED, SharedId, Special, Stmt, Ty, Unroll};

/// A read that goes through shared memory.
pub(super) struct Turned<'a> {
    pub id: ExprId,
    pub read: &'a Read,
    p: AxisId,
    q: AxisId,
    /// Elements of one access along p.
    wide: i64,
    /// Accesses begin at any place.
    odd: bool,
}

/// Reads that run along one axis, which is not the last.
pub struct Turn<'a> {
    /// Which of the targets' dims that axis is.
    along: usize,
    /// Whether places along p go on along the axis before it, and those along q.
    pairs: [bool; 2],
    pub(super) reads: Vec<Turned<'a>>,
}

/// Threads of a block, at most.
const THREADS: i64 = 512;
/// Extents below which a tile is mostly edge.
const LEAST: i64 = 32;
/// The most places of a tile along an axis.
const SIDE: i64 = 128;

/// A tile's axes, p and q: whether each goes on along the axis before it, and how many places there are.
fn sides(dims: &[i64], along: usize) -> ([bool; 2], [i64; 2]) {
    let last = dims.len() - 1;
    let q = dims[last] < SIDE && last > 0 && along != last - 1;
    let p = dims[along] < SIDE && along > 0;
    let extent = |d: usize, pair: bool| if pair { dims[d] * dims[d - 1] } else { dims[d] };
    ([p, q], [extent(along, p), extent(last, q)])
}

/// The reads to turn, if there are any and a tile pays.
pub fn find<'a>(cx: &Lowering<'a>, name: &str, group: &[&'a Define]) -> Option<Turn<'a>> {
    let set = |key: &str| cx.schedule.int(name, key, "").is_some();
    let t = cx.graph.tensor(group[0].target);
    let outer = t.dims.split_last()?.1;
    if cx.schedule.block_threads(name).is_some()
        || set("vector")
        || !group.iter().all(|d| map_vec::small(cx.graph, d.value))
    {
        return None;
    }
    let own: Vec<_> = group.iter().map(|d| d.target).collect();
    let wide = |&along: &usize| sides(&t.dims, along).1.iter().all(|&n| n >= LEAST);
    (0..outer.len()).filter(wide).find_map(|along| {
        let (pairs, _) = sides(&t.dims, along);
        let mut reads = Vec::new();
        for d in group {
            for id in map_vec::unconditional(cx.graph, d.value) {
                let Node::Read(r) = cx.graph.expr(id) else { continue };
                let new = reads.iter().all(|t: &Turned| t.id != id) && !own.contains(&r.tensor);
                reads.extend(new.then(|| turned(cx, d, (along, pairs[0]), id, r)).flatten());
            }
        }
        (!reads.is_empty()).then_some(Turn { along, pairs, reads })
    })
}

fn turned<'a>(
    cx: &Lowering<'a>,
    d: &Define,
    (along, pair): (usize, bool),
    id: ExprId,
    r: &'a Read,
) -> Option<Turned<'a>> {
    let (graph, facts) = (cx.graph, &cx.facts);
    let (p, q) = (d.axes[along], *d.axes.last()?);
    let (t, home) = (graph.tensor(r.tensor), cx.home(r.tensor));
    let bits = t.dtype.bits() as i64;
    let stride_one = |&s: &usize| home.strides[s] == 1 && t.dims[s] > 1;
    let inner = (0..t.dims.len()).find(stride_one)?;
    let run = Lanes { graph, facts, axis: p, v: 16 }.run(r.index[inner])?;
    let others = (0..t.dims.len()).filter(|&s| s != inner);
    let apart = others.clone().all(|s| !facts.free(r.index[s]).contains(&p));
    let rows = others.clone().any(|s| facts.free(r.index[s]).contains(&q));
    let steady = !facts.free(r.index[inner]).contains(&q);
    let faults = r.index.iter().any(|&i| facts.may_fault(i));
    if !(apart && rows && steady) || faults || r.access != Access::Proven || bits < 8 || t.dims.contains(&0) {
        return None;
    }
    let (lo, hi) = graph.axis_range(p)?;
    let pitch = others.filter(|&s| t.dims[s] > 1).map(|s| home.strides[s]).fold(0, gcd);
    let wide = [run.align(16), lo, hi, t.lo[inner], pitch, home.align as i64 * 8 / bits]
        .into_iter()
        .fold(128 / bits, gcd);
    // Less than a word is not a vector.
    let outer = |s: &usize| matches!(graph.expr(r.index[*s]), Node::Axis(a) if *a == d.axes[along - 1]);
    let run_on = |s: usize| home.strides[s] == hi - lo && t.dims[inner] == hi - lo;
    let whole = !pair || (0..t.dims.len()).find(outer).is_some_and(run_on);
    let any = unaligned::width(t.dtype, home.len, home.align).filter(|_| wide * bits <= 32 && whole);
    let wide = any.unwrap_or(if wide * bits >= 32 { wide } else { 1 });
    Some(Turned { id, read: r, p, q, wide, odd: any.is_some() })
}

/// A tile's extents, and what the threads of a block do of it.
pub(super) struct Tile {
    pub tp: i64,
    pub tq: i64,
    /// Neighbours along q that a thread computes at once.
    pub v: i64,
    pub threads: i64,
    /// Of the narrowest target.
    bits: i64,
    /// Rows of the targets begin anywhere between two aligned places.
    odd: bool,
}

impl Tile {
    /// Vectors along q that a warp's neighbours take: a whole line of the store, no more, so that the other threads
    /// of a warp read the next columns, which stand in other banks.
    fn settled(self, legal: i64) -> Tile {
        if self.odd { self } else { Tile { v: legal, ..self } }
    }

    fn low(&self) -> i64 {
        (1024 / (self.v * self.bits)).clamp(1, 32).min(self.tq / self.v)
    }
}

fn tile(cx: &Lowering<'_>, group: &[&Define], turn: &Turn<'_>) -> Tile {
    let t = cx.graph.tensor(group[0].target);
    let legal = map_vec::legal_width(cx, group);
    let (pairs, [np, nq]) = sides(&t.dims, turn.along);
    let odd = odd_width(cx, group, legal, pairs[1]);
    let v = odd.unwrap_or(legal);
    let bytes: i64 = turn.reads.iter().map(|r| cx.graph.tensor(r.read.tensor).dtype.bits() as i64 / 8).sum();
    let side = |extent: i64, most: i64| (extent as u64).next_power_of_two().min(most as u64) as i64;
    let (mut tp, mut tq) = (side(np, SIDE), side(nq, SIDE));
    while tp * tq * bytes > STATIC_SHARED as i64 {
        if tq >= tp { tq /= 2 } else { tp /= 2 }
    }
    let loads = turn.reads.iter().map(|r| tp * tq / r.wide).min().unwrap_or(32);
    let threads = (tp * tq / v / 4).clamp(32, THREADS).min(loads);
    let bits = group.iter().map(|d| cx.graph.tensor(d.target).dtype.bits() as i64).min().unwrap_or(32);
    Tile { tp, tq, v, threads, bits, odd: odd.is_some() && tq >= 4 * v }.settled(legal)
}

/// Elements of 16 bytes of the narrowest target, where its rows are longer than what they allow (`legal`).
fn odd_width(cx: &Lowering<'_>, group: &[&Define], legal: i64, pair: bool) -> Option<i64> {
    let first = cx.home(group[0].target);
    let dims = &cx.graph.tensor(group[0].target).dims;
    if pair && first.strides[dims.len() - 2] != dims[dims.len() - 1] {
        return None;
    }
    let mut v = 1;
    for d in group {
        let (dtype, home) = (cx.graph.tensor(d.target).dtype, cx.home(d.target));
        let bits = dtype.bits() as i64;
        let plain = home.align >= 16 && home.strides.last() == Some(&1) && home.strides == first.strides;
        if !plain || home.ring.is_some() || !(16..=32).contains(&bits) || legal * bits > 32 {
            return None;
        }
        v = v.max(128 / bits);
    }
    Some(v)
}

pub fn points<'a>(
    cx: &mut Lowering<'a>,
    name: &str,
    group: &[&'a Define],
    turn: Turn<'a>,
) -> Result<(), Refusal> {
    let first = group[0];
    let t = cx.graph.tensor(first.target);
    if count(&t.dims, first.span, name)? == 0 {
        return Ok(());
    }
    let tile = tile(cx, group, &turn);
    let last = t.dims.len() - 1;
    let ([p_pair, q_pair], extents) = sides(&t.dims, turn.along);
    let blocks = |n: i64, side: i64| (n + side - 1) / side;
    let taken =
        |d: usize| d == turn.along || d == last || p_pair && d + 1 == turn.along || q_pair && d + 1 == last;
    let outer: Vec<usize> = (0..last).filter(|&d| !taken(d)).collect();
    // Neighbouring blocks write on along q.
    let mut grid: Vec<i64> = outer.iter().map(|&d| t.dims[d]).collect();
    grid.extend([blocks(extents[0], tile.tp), blocks(extents[1], tile.tq)]);
    let total = count(&grid, first.span, name)?;
    if total > MAX_GRID_X {
        return Err(Refusal::new(
            first.span,
            "the work needs more blocks than a grid may have: make the tensor smaller",
        ));
    }
    let mut e = cx.emit(name);
    e.kernel.block = [tile.threads as u32, 1, 1];
    e.kernel.grid = [total as u32, 1, 1];
    e.line(first.span);
    let number = Num { expr: e.named("block", Ty::I32, Expr::Special(Special::BlockX)), ty: Ty::I32 };
    let mut at = decode(&mut e, number, &grid);
    let corner = |e: &mut Emit<'a>, n: Option<Num>, side: i64| {
        let n = n.expect("the grid has a dim for p and one for q");
        let n = arith(IntOp::Mul, n, int_of(Ty::I32, side));
        Num { expr: e.named("corner", n.ty, n.expr), ty: n.ty }
    };
    let q0 = corner(&mut e, at.pop(), tile.tq);
    let p0 = corner(&mut e, at.pop(), tile.tp);
    let outer = outer.into_iter().zip(at).collect();
    let block = Block { group, turn: &turn, tile: &tile, outer, p0, q0, dims: &t.dims, extents };
    let stages: Vec<SharedId> = turn.reads.iter().map(|r| block.bring(&mut e, r)).collect();
    e.push(Stmt::Barrier);
    if tile.odd {
        block.compute_odd(&mut e, &stages);
    } else {
        block.compute(&mut e, &stages);
    }
    cx.launch(e);
    Ok(())
}

/// A block's tile: its corner, and what is done of it.
pub(super) struct Block<'g, 'a> {
    pub group: &'g [&'a Define],
    pub turn: &'g Turn<'a>,
    pub tile: &'g Tile,
    /// Coordinates of the other dims, from 0.
    outer: Vec<(usize, Num)>,
    p0: Num,
    pub q0: Num,
    dims: &'g [i64],
    /// Places along p and q.
    pub extents: [i64; 2],
}

/// A read's vector that begins at any place.
fn any_place(e: &mut Emit<'_>, r: &Turned<'_>, stage: ArrayId, at: i64, index: Expr) {
    let ty = e.home(r.read.tensor).index_ty();
    let index = Num { expr: e.named("index", ty, index), ty };
    let words = unaligned::load(e, r.read.tensor, &index, r.wide, false);
    for w in 0..4 {
        e.push(Stmt::SetElem(stage, lit32((at + w) as i32), Expr::Elem(words, Box::new(lit32(w as i32)))));
    }
}

pub(super) fn shift(e: Expr, by: i64) -> Expr {
    let op = |op, n: i64| Expr::Int(op, Box::new(e.clone()), Box::new(lit32(n as i32)));
    if by == 1 { e } else { op(IntOp::Shr, by.trailing_zeros() as i64) }
}

fn mask(e: Expr, below: i64) -> Expr {
    Expr::Int(IntOp::And, Box::new(e), Box::new(lit32(below as i32 - 1)))
}

impl<'a> Block<'_, 'a> {
    /// The coordinates of a point, from 0.
    pub(super) fn at(&self, p: Expr, q: Expr) -> Vec<Num> {
        let last = self.dims.len() - 1;
        let mut at = vec![int_of(Ty::I32, 0); self.dims.len()];
        for (d, n) in &self.outer {
            at[*d] = n.clone();
        }
        for (d, x, pair) in [(self.turn.along, p, self.turn.pairs[0]), (last, q, self.turn.pairs[1])] {
            let x = Num { expr: x, ty: Ty::I32 };
            if pair {
                at[d - 1] = arith(IntOp::Div, x.clone(), int_of(Ty::I32, self.dims[d]));
                at[d] = arith(IntOp::Rem, x, int_of(Ty::I32, self.dims[d]));
            } else {
                at[d] = x;
            }
        }
        at
    }

    /// The condition that a point of the tile is inside; `None` where tiles fit.
    fn inside(&self, p: &Expr, q: &Expr) -> Option<Expr> {
        let [np, nq] = self.extents;
        let check =
            |x: &Expr, n: i64, side: i64| (n % side != 0).then(|| cmp(CmpOp::Lt, x.clone(), lit32(n as i32)));
        match (check(p, np, self.tile.tp), check(q, nq, self.tile.tq)) {
            (Some(a), Some(b)) => Some(and(a, b)),
            (a, b) => a.or(b),
        }
    }

    /// The place in a tile of neighbour `p` of row `row`, and of those up to the access's end.
    pub(super) fn place(&self, e: &Emit<'a>, r: &Turned<'a>, row: Expr, group: Expr, p: Expr) -> Expr {
        let vectors = self.tile.tp / r.wide;
        // Accesses in the width of all banks.
        let line = 1024 / (r.wide * e.graph.tensor(r.read.tensor).dtype.bits() as i64);
        let turn = mul(mask(group, vectors.min(line)), lit32(r.wide as i32));
        let p = if vectors > 1 { Expr::Int(IntOp::Xor, Box::new(p), Box::new(turn)) } else { p };
        add(mul(row, lit32(self.tile.tp as i32)), p)
    }

    /// Brings the tile of a read to shared memory: all of a thread's loads, then its stores.
    fn bring(&self, e: &mut Emit<'a>, r: &Turned<'a>) -> SharedId {
        let t = e.graph.tensor(r.read.tensor);
        let (bits, tile) = (t.dtype.bits() as i64, self.tile);
        let shared = e.kernel.shared(format!("{}_tile", t.name), t.dtype, (tile.tp * tile.tq) as u32, 16);
        let each = tile.tp * tile.tq / r.wide / tile.threads;
        if r.wide == 1 {
            self.bring_single(e, r, shared, each);
            return shared;
        }
        let words = r.wide * bits / 32;
        let stage = e.kernel.array(&t.name, Ty::U32, (words * each) as u32);
        let mut stores = Vec::new();
        for i in 0..each {
            let (place, cond, load) = self.item(e, r, lit32((i * tile.threads) as i32), |e, index| {
                if r.odd {
                    return any_place(e, r, stage, i * words, index);
                }
                let mem = Mem::Global(e.tensor_param(r.read.tensor, false));
                e.push(Stmt::LoadVec {
                    array: stage,
                    at: (i * words) as u32,
                    mem,
                    index,
                    count: r.wide as u32,
                });
            });
            guarded(e, cond.clone(), load);
            let (array, at) = (stage, (i * words) as u32);
            let store =
                Stmt::StoreVec { mem: Mem::Shared(shared), index: place, array, at, count: r.wide as u32 };
            stores.push((cond, store));
        }
        stores.into_iter().for_each(|(cond, s)| guarded(e, cond, vec![s]));
        shared
    }

    fn bring_single(&self, e: &mut Emit<'a>, r: &Turned<'a>, shared: SharedId, each: i64) {
        let i = e.kernel.var("i", Ty::I32);
        let step = mul(Expr::Var(i), lit32(self.tile.threads as i32));
        let body = e.block(|e| {
            let ty = Ty::of(e.graph.tensor(r.read.tensor).dtype.compute());
            let x = e.kernel.var("x", ty);
            let (place, cond, mut load) = self.item(e, r, step, |e, index| {
                let mem = Mem::Global(e.tensor_param(r.read.tensor, false));
                e.push(Stmt::Let(x, Expr::Load(mem, Box::new(index))));
            });
            load.push(Stmt::Store(Mem::Shared(shared), place, Expr::Var(x)));
            guarded(e, cond, load);
        });
        let (lo, hi, step) = (lit32(0), lit32(each as i32), lit32(1));
        e.push(Stmt::For { var: i, lo, hi, step, unroll: Unroll::By(8), body });
    }

    /// One access of a thread: its place in the tile, the condition that it is inside, and what `load` emits for
    /// its place in the tensor.
    fn item(
        &self,
        e: &mut Emit<'a>,
        r: &Turned<'a>,
        first: Expr,
        load: impl FnOnce(&mut Emit<'a>, Expr),
    ) -> (Expr, Option<Expr>, Vec<Stmt>) {
        let tile = self.tile;
        let n = e.named("n", Ty::I32, sum(Expr::Special(Special::ThreadX), first));
        let vectors = tile.tp / r.wide;
        let along = e.named("along", Ty::I32, mul(mask(n.clone(), vectors), lit32(r.wide as i32)));
        let row = e.named("row", Ty::I32, shift(n, vectors));
        let p = e.named("p", Ty::I32, add(self.p0.expr.clone(), along.clone()));
        let q = e.named("q", Ty::I32, add(self.q0.expr.clone(), row.clone()));
        let cond = self.inside(&p, &q);
        let stmts = e.block(|e| {
            let at = self.at(p, q);
            let d = self.definition(r);
            let at = super::map::coordinates(e, d.target, &at);
            for (&a, n) in d.axes.iter().zip(&at) {
                e.bind_axis(a, n.expr.clone(), n.ty);
            }
            let index: Vec<Index> = r.read.index.iter().map(|&i| e.index(i)).collect();
            let place = e.offset(r.read.tensor, &index);
            load(e, place);
        });
        let place = self.place(e, r, row.clone(), shift(row, tile.v), along);
        (e.named("place", Ty::I32, place), cond, stmts)
    }

    fn definition(&self, r: &Turned<'a>) -> &'a Define {
        let own = |d: &&&'a Define| d.axes.last() == Some(&r.q) && d.axes[self.turn.along] == r.p;
        self.group.iter().find(own).expect("the read was found in one of them")
    }

    fn compute_odd(&self, e: &mut Emit<'a>, stages: &[SharedId]) {
        map_tile_odd::compute(self, e, stages);
    }

    /// The condition that a place along p is inside, and its coordinate.
    pub(super) fn row(&self, e: &mut Emit<'a>, along: &Expr) -> (Expr, Option<Expr>) {
        let p = e.named("p", Ty::I32, add(self.p0.expr.clone(), along.clone()));
        let n = self.extents[0];
        let cond = (n % self.tile.tp != 0).then(|| cmp(CmpOp::Lt, p.clone(), lit32(n as i32)));
        (p, cond)
    }

    fn compute(&self, e: &mut Emit<'a>, stages: &[SharedId]) {
        let tile = self.tile;
        let groups = tile.tq / tile.v;
        let each = tile.tp * groups / tile.threads;
        let i = e.kernel.var("i", Ty::I32);
        let body = e.block(|e| {
            let n = sum(Expr::Special(Special::ThreadX), mul(Expr::Var(i), lit32(tile.threads as i32)));
            let n = e.named("n", Ty::I32, n);
            let (low, tp) = (tile.low(), tile.tp);
            let high = mul(shift(n.clone(), low * tp), lit32(low as i32));
            let group = mask(n.clone(), low);
            let group = e.named("group", Ty::I32, if groups == low { group } else { add(high, group) });
            let along = e.named("along", Ty::I32, mask(shift(n, low), tp));
            let row = e.named("row", Ty::I32, mul(group.clone(), lit32(tile.v as i32)));
            let p = e.named("p", Ty::I32, add(self.p0.expr.clone(), along.clone()));
            let q = e.named("q", Ty::I32, add(self.q0.expr.clone(), row.clone()));
            let cond = self.inside(&p, &q);
            let stmts = e.block(|e| self.vector(e, stages, [group, along, row, p, q]));
            guarded(e, cond, stmts);
        });
        let (lo, hi, step) = (lit32(0), lit32(each as i32), lit32(1));
        e.push(Stmt::For { var: i, lo, hi, step, unroll: Unroll::Auto, body });
    }

    fn vector(&self, e: &mut Emit<'a>, stages: &[SharedId], [group, along, row, p, q]: [Expr; 5]) {
        let v = self.tile.v;
        let mut loaded = Vec::new();
        for (r, &stage) in self.turn.reads.iter().zip(stages) {
            let t = e.graph.tensor(r.read.tensor);
            let ty = Ty::of(t.dtype.compute());
            let array = e.kernel.array(&t.name, ty, v as u32);
            let first = self.place(e, r, row.clone(), group.clone(), along.clone());
            let first = e.named("place", Ty::I32, first);
            for lane in 0..v {
                let at = sum(first.clone(), lit32((lane * self.tile.tp) as i32));
                let x = Expr::Load(Mem::Shared(stage), Box::new(at));
                e.push(Stmt::SetElem(array, lit32(lane as i32), x));
            }
            loaded.push(Loaded { id: r.id, array, at: 0, ty });
        }
        let at = super::map::coordinates(e, self.group[0].target, &self.at(p, q));
        map_vec::lanes(e, self.group, &at, v, &loaded);
    }
}

pub(super) fn sum(a: Expr, b: Expr) -> Expr {
    match b {
        Expr::Lit(crate::vocab::dtype::Value::I32(0)) => a,
        b => add(a, b),
    }
}

fn guarded(e: &mut Emit<'_>, cond: Option<Expr>, then: Vec<Stmt>) {
    match cond {
        Some(cond) => e.push(Stmt::If { cond, then, otherwise: Vec::new() }),
        None => then.into_iter().for_each(|s| e.push(s)),
    }
}
