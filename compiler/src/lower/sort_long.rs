//! Argsort of rows longer than a block's shared memory: a radix sort in global memory, least digit first.
//!
//! Each of the passes moves the keys' bits and their positions by one digit of 8 bits, in three kernels: every block counts
//! the digits of its tile; the counts of a row, digit by digit and tile by tile within a digit, are summed up to where each
//! tile's first key of each digit goes; every block places its tile, in order. So equal keys keep their order, and nothing
//! depends on the order of the blocks.

use super::map::launch_points;
use super::scalar::{Emit, Num, add, arith, cast, cmp, int_of, int_op, lit32, mul};
use super::sort_radix::{block_sums, place_after};
use super::sort_select::{load, store, unsigned};
use super::{Lowering, MAX_GRID_X, Refusal};
use crate::ir::program::{Arg, BufferId, Launch, Step};
use crate::ir::simt::{ArrayId, AtomicOp, CmpOp, Expr, IntOp, Mem, ParamId, Special, Stmt, Ty, Unroll};
use crate::vocab::dtype::{DType, Value};
use girih_dsl::ast::Span;

const BINS: i64 = 256;
const DIGIT: i64 = 8;
/// Threads of a block, one a digit, and keys that each holds.
const THREADS: i64 = 256;
const HELD: i64 = 16;
const TILE: i64 = THREADS * HELD;
const WARP: i64 = 32;
/// Counters of a warp: see `sort_radix.rs`.
const PITCH: i64 = BINS + 1;
/// Threads that sum up a row's counts.
const SUMMERS: i64 = 1024;

/// Rows of keys in a workspace.
#[derive(Clone, Copy)]
pub struct Rows {
    pub keys: BufferId,
    pub dtype: DType,
    pub rows: i64,
    pub n: i64,
    /// Low bits of an integer key (0 or above) that may be set.
    pub bits: u32,
}

impl Rows {
    fn tiles(&self) -> i64 {
        (self.n + TILE - 1) / TILE
    }

    /// Whether this sort takes the rows: 32-bit keys, and more of them than its many launches are worth.
    pub fn are_long(&self) -> bool {
        const LONG: i64 = 4 * TILE;
        let blocks = self.rows.saturating_mul(self.tiles());
        matches!(self.dtype, DType::F32 | DType::I32)
            && self.n > LONG
            && blocks <= MAX_GRID_X / BINS
            && self.n < i32::MAX as i64 / 4
    }

    fn wide(&self) -> Ty {
        if self.rows * self.n <= i32::MAX as i64 { Ty::I32 } else { Ty::I64 }
    }
}

/// Buffers between which keys' bits and positions go.
#[derive(Clone, Copy)]
struct Side {
    bits: BufferId,
    places: BufferId,
}

/// The positions (I32) of each row's keys in ascending order.
pub fn sort(cx: &mut Lowering<'_>, name: &str, r: Rows, span: Span) -> Result<BufferId, Refusal> {
    let dims = [r.rows, r.n];
    let side = |cx: &mut Lowering<'_>, at: u32| Side {
        bits: cx.workspace(format!("{name}_bits{at}"), DType::I32, &dims),
        places: cx.workspace(format!("{name}_order{at}"), DType::I32, &dims),
    };
    let (mut from, mut into) = (side(cx, 0), side(cx, 1));
    let counts = cx.workspace(format!("{name}_counts"), DType::I32, &[r.rows, BINS, r.tiles()]);
    start(cx, name, r, from, span)?;
    let first = cx.program.kernels.len();
    let passes = match r.dtype {
        DType::F32 => 32 / DIGIT,
        _ => (r.bits.clamp(1, 32) as i64 + DIGIT - 1) / DIGIT,
    };
    for pass in 0..passes {
        let shift = Arg::Const(Value::I32((pass * DIGIT) as i32));
        if pass == 0 {
            count(cx, name, r, from, counts, span);
            sum_up(cx, name, r, counts, span);
            place(cx, name, r, [from, into], counts, span);
        } else {
            let b = Arg::Buffer;
            let args = [
                vec![b(from.bits), b(counts), shift.clone()],
                vec![b(counts)],
                vec![b(from.bits), b(from.places), b(counts), b(into.bits), b(into.places), shift],
            ];
            for (i, args) in args.into_iter().enumerate() {
                cx.step(Step::Launch(Launch { kernel: first + i, args }));
            }
        }
        (from, into) = (into, from);
    }
    Ok(from.places)
}

/// The keys' bits, and each at its own position.
fn start(cx: &mut Lowering<'_>, name: &str, r: Rows, to: Side, span: Span) -> Result<(), Refusal> {
    let ty = Ty::of(r.dtype.compute());
    launch_points(cx, name, &[r.rows, r.n], span, |e, at| {
        let (keys, bits, places) =
            (e.pointer(r.keys, false), e.pointer(to.bits, true), e.pointer(to.places, true));
        let row = at[0].clone();
        let base = arith(
            IntOp::Mul,
            Num { expr: super::read::to(row, r.wide()), ty: r.wide() },
            int_of(r.wide(), r.n),
        );
        let i = super::read::to(at[1].clone(), Ty::I32);
        let place =
            arith(IntOp::Add, base, Num { expr: super::read::to(at[1].clone(), r.wide()), ty: r.wide() });
        let place = e.named("at", r.wide(), place.expr);
        let key = e.let_var("key", ty, Expr::Load(Mem::Global(keys), Box::new(place.clone())));
        // Integers are elements' numbers: they are their own bits.
        let own = match r.dtype {
            DType::F32 => cast(Ty::I32, unsigned(e, Expr::Var(key), crate::vocab::dtype::Ty::F32)),
            _ if r.bits >= 32 => cast(Ty::I32, unsigned(e, Expr::Var(key), crate::vocab::dtype::Ty::I32)),
            _ => Expr::Var(key),
        };
        e.push(Stmt::Store(Mem::Global(bits), place.clone(), own));
        e.push(Stmt::Store(Mem::Global(places), place, i));
    })
}

/// A block a tile of a row.
struct Tile<'a> {
    e: Emit<'a>,
    row: Expr,
    tile: Expr,
    /// The row's first element.
    base: Expr,
}

fn tile<'a>(cx: &mut Lowering<'a>, name: &str, r: Rows, span: Span) -> Tile<'a> {
    let mut e = cx.emit(name);
    e.kernel.block = [THREADS as u32, 1, 1];
    e.kernel.grid = [(r.rows * r.tiles()) as u32, 1, 1];
    e.line(span);
    let block = Expr::Special(Special::BlockX);
    let tiles = lit32(r.tiles() as i32);
    let row = e.named("row", Ty::I32, int_op(IntOp::Div, block.clone(), tiles.clone()));
    let tile = e.named("tile", Ty::I32, int_op(IntOp::Rem, block, tiles));
    let wide = super::read::to(Num { expr: row.clone(), ty: Ty::I32 }, r.wide());
    let base = e.named("base", r.wide(), mul(wide, int_of(r.wide(), r.n).expr));
    Tile { e, row, tile, base }
}

fn element(r: Rows, base: &Expr, at: Expr) -> Expr {
    add(base.clone(), super::read::to(Num { expr: at, ty: Ty::I32 }, r.wide()))
}

/// The digit of bits that are held as I32.
fn digit(e: &mut Emit<'_>, bits: Expr, shift: &Expr) -> Expr {
    let bits = int_op(IntOp::Shr, cast(Ty::U32, bits), cast(Ty::U32, shift.clone()));
    let digit = int_op(IntOp::And, bits, Expr::U32(BINS as u32 - 1));
    e.named("digit", Ty::I32, cast(Ty::I32, digit))
}

/// Where a tile's count of a digit stands.
fn counter(r: Rows, row: &Expr, digit: Expr, tile: &Expr) -> Expr {
    let line = add(mul(row.clone(), lit32(BINS as i32)), digit);
    add(mul(line, lit32(r.tiles() as i32)), tile.clone())
}

fn thread() -> Expr {
    Expr::Special(Special::ThreadX)
}

fn count(cx: &mut Lowering<'_>, name: &str, r: Rows, from: Side, counts: BufferId, span: Span) {
    let Tile { e: mut emit, row, tile, base } = tile(cx, &format!("{name}_count"), r, span);
    let e = &mut emit;
    let (bits, into) = (e.pointer(from.bits, false), e.pointer(counts, true));
    let shift = e.scalar_param("shift", Ty::I32, Arg::Const(Value::I32(0)));
    let bins = e.kernel.shared("bins", DType::I32, BINS as u32, 16);
    store(e, bins, thread(), lit32(0));
    e.push(Stmt::Barrier);
    let first = add(mul(tile.clone(), lit32(TILE as i32)), thread());
    let first = e.named("first", Ty::I32, first);
    for i in 0..HELD {
        let at = e.named("at", Ty::I32, add(first.clone(), lit32((i * THREADS) as i32)));
        let inside = cmp(CmpOp::Lt, at.clone(), lit32(r.n as i32));
        e.if_then(inside, |e| {
            let own = Expr::Load(Mem::Global(bits), Box::new(element(r, &base, at)));
            let index = digit(e, own, &shift);
            let mem = Mem::Shared(bins);
            e.push(Stmt::Atomic { op: AtomicOp::Add, mem, index, value: lit32(1), old: None });
        });
    }
    e.push(Stmt::Barrier);
    let own = load(bins, thread());
    e.push(Stmt::Store(Mem::Global(into), counter(r, &row, thread(), &tile), own));
    cx.launch(emit);
}

/// Counts become where the first goes: a block a row, whose threads take neighbouring counts.
fn sum_up(cx: &mut Lowering<'_>, name: &str, r: Rows, counts: BufferId, span: Span) {
    let all = BINS * r.tiles();
    let threads = SUMMERS.min(all);
    let each = (all + threads - 1) / threads;
    let mut emit = cx.emit(&format!("{name}_sum"));
    let e = &mut emit;
    e.kernel.block = [threads as u32, 1, 1];
    e.kernel.grid = [r.rows as u32, 1, 1];
    e.line(span);
    let p = e.pointer(counts, true);
    let sums = e.kernel.shared("sums", DType::I32, (threads / WARP) as u32, 16);
    let base = e.named("base", Ty::I32, mul(Expr::Special(Special::BlockX), lit32(all as i32)));
    let first = e.named("first", Ty::I32, mul(thread(), lit32(each as i32)));
    let last = int_op(IntOp::Min, add(first.clone(), lit32(each as i32)), lit32(all as i32));
    let last = e.named("last", Ty::I32, last);
    let sum = e.let_var("sum", Ty::I32, lit32(0));
    let over = |e: &mut Emit<'_>, f: &dyn Fn(&mut Emit<'_>, Expr)| {
        let var = e.kernel.var("i", Ty::I32);
        let body = e.block(|e| f(e, add(base.clone(), Expr::Var(var))));
        let (lo, hi) = (first.clone(), last.clone());
        e.push(Stmt::For { var, lo, hi, step: lit32(1), unroll: Unroll::By(4), body });
    };
    over(e, &|e, at| {
        let count = Expr::Load(Mem::Global(p), Box::new(at));
        e.push(Stmt::Set(sum, add(Expr::Var(sum), count)));
    });
    let before = block_sums(e, sums, threads / WARP, sum);
    over(e, &|e, at| {
        let at = e.named("at", Ty::I32, at);
        let count = e.let_var("count", Ty::I32, Expr::Load(Mem::Global(p), Box::new(at.clone())));
        e.push(Stmt::Store(Mem::Global(p), at, Expr::Var(before)));
        e.push(Stmt::Set(before, add(Expr::Var(before), Expr::Var(count))));
    });
    cx.launch(emit);
}

fn place(cx: &mut Lowering<'_>, name: &str, r: Rows, [from, into]: [Side; 2], counts: BufferId, span: Span) {
    let Tile { e: mut emit, row, tile, base } = tile(cx, &format!("{name}_place"), r, span);
    let e = &mut emit;
    let (bits, places) = (e.pointer(from.bits, false), e.pointer(from.places, false));
    let starts = e.pointer(counts, false);
    let (to_bits, to_places) = (e.pointer(into.bits, true), e.pointer(into.places, true));
    let shift = e.scalar_param("shift", Ty::I32, Arg::Const(Value::I32(0)));
    let warps = THREADS / WARP;
    let counters = e.kernel.shared("counts", DType::I32, (PITCH * warps) as u32, 16);
    let var = e.kernel.var("i", Ty::I32);
    let body = e.block(|e| store(e, counters, Expr::Var(var), lit32(0)));
    let hi = lit32((PITCH * warps) as i32);
    e.push(Stmt::For { var, lo: thread(), hi, step: lit32(THREADS as i32), unroll: Unroll::None, body });
    e.push(Stmt::Barrier);
    let own = mul(Expr::Special(Special::Warp), lit32(PITCH as i32));
    let own = e.named("own", Ty::I32, own);
    let first = mul(Expr::Special(Special::Warp), lit32((WARP * HELD) as i32));
    let first = add(add(mul(tile.clone(), lit32(TILE as i32)), first), Expr::Special(Special::Lane));
    let first = e.named("first", Ty::I32, first);
    let (held, held_at) =
        (e.kernel.array("held", Ty::I32, HELD as u32), e.kernel.array("held_at", Ty::I32, HELD as u32));
    let inside = |at: Expr| cmp(CmpOp::Lt, at, lit32(r.n as i32));
    for i in 0..HELD {
        let slot = lit32(i as i32);
        // What lies beyond the row comes after all of it.
        e.push(Stmt::SetElem(held, slot.clone(), lit32(-1)));
        e.push(Stmt::SetElem(held_at, slot.clone(), lit32(0)));
        let at = e.named("at", Ty::I32, add(first.clone(), lit32((i * WARP) as i32)));
        e.if_then(inside(at.clone()), |e| {
            let at = e.named("from", r.wide(), element(r, &base, at));
            let get = |p: ParamId| Expr::Load(Mem::Global(p), Box::new(at.clone()));
            e.push(Stmt::SetElem(held, slot.clone(), get(bits)));
            e.push(Stmt::SetElem(held_at, slot, get(places)));
        });
    }
    let elem = |a: ArrayId, i: i64| Expr::Elem(a, Box::new(lit32(i as i32)));
    for i in 0..HELD {
        let digit = digit(e, elem(held, i), &shift);
        let (mem, index) = (Mem::Shared(counters), add(own.clone(), digit));
        e.push(Stmt::Atomic { op: AtomicOp::Add, mem, index, value: lit32(1), old: None });
    }
    e.push(Stmt::Barrier);
    // A thread a digit: where its keys go, warp by warp.
    let at = Expr::Load(Mem::Global(starts), Box::new(counter(r, &row, thread(), &tile)));
    let at = e.let_var("start", Ty::I32, at);
    for w in 0..warps {
        let place = e.named("place", Ty::I32, add(thread(), lit32((w * PITCH) as i32)));
        let count = e.let_var("count", Ty::I32, load(counters, place.clone()));
        store(e, counters, place, Expr::Var(at));
        e.push(Stmt::Set(at, add(Expr::Var(at), Expr::Var(count))));
    }
    e.push(Stmt::Barrier);
    for i in 0..HELD {
        let digit = digit(e, elem(held, i), &shift);
        let to = place_after(e, counters, &own, digit);
        let at = add(first.clone(), lit32((i * WARP) as i32));
        e.if_then(inside(at), |e| {
            let to = e.named("to", r.wide(), element(r, &base, to));
            e.push(Stmt::Store(Mem::Global(to_bits), to.clone(), elem(held, i)));
            e.push(Stmt::Store(Mem::Global(to_places), to, elem(held_at, i)));
        });
    }
    cx.launch(emit);
}
