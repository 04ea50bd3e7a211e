//! Argsort of rows longer than a block's shared memory: a radix sort in global memory, least digit first.
//!
//! Each of the passes moves the keys' bits and their positions by one digit of 8 bits, in three kernels: every block counts
//! the digits of its tile; a block a digit sums the counts of the row's tiles up; every block puts its tile in order in
//! shared memory and then where it belongs, so that keys of a digit are written next to each other. Equal keys keep their
//! order, and nothing depends on the order of the blocks.

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
pub(super) const THREADS: i64 = 256;
pub(super) const HELD: i64 = 16;
/// Keys of a tile that may be asked for, and the keys of a row beyond which this sort is worth its launches.
pub(super) const TILES: [i64; 3] = [1024, 2048, 4096];
pub(super) const LONG: i64 = 4 * THREADS * HELD;
const WARP: i64 = 32;
/// Counters of a warp: see `sort_radix.rs`.
const PITCH: i64 = BINS + 1;
/// Counts of a digit that a thread sums up at a time.
const COUNTS: i64 = 4;

/// Rows of keys in a workspace.
#[derive(Clone, Copy)]
pub struct Rows {
    pub keys: BufferId,
    pub dtype: DType,
    pub rows: i64,
    pub n: i64,
    /// Low bits of an integer key (0 or above) that may be set.
    pub bits: u32,
    /// Keys of a tile that each thread holds.
    pub held: i64,
}

impl Rows {
    /// Keys of a tile.
    fn tile(&self) -> i64 {
        THREADS * self.held
    }

    fn tiles(&self) -> i64 {
        (self.n + self.tile() - 1) / self.tile()
    }

    /// Whether this sort takes the rows: there are more keys than its many launches are worth.
    pub fn are_long(&self) -> bool {
        let blocks = self.rows.saturating_mul(self.tiles());
        matches!(self.dtype, DType::F32 | DType::I32 | DType::F64 | DType::I64)
            && self.n > LONG
            && blocks <= MAX_GRID_X / BINS
            && self.n < i32::MAX as i64 / 4
    }

    /// What the keys' bits are kept as.
    fn bits_dtype(&self) -> DType {
        if self.dtype.bits() == 64 { DType::I64 } else { DType::I32 }
    }

    fn bits_ty(&self) -> Ty {
        Ty::of(self.bits_dtype().compute())
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

#[derive(Clone, Copy)]
struct Counts {
    /// Of each digit in each tile; then in the tiles before it.
    of_tiles: BufferId,
    /// Of each digit in the row.
    of_row: BufferId,
}

/// The positions (I32) of each row's keys in ascending order.
pub fn sort(cx: &mut Lowering<'_>, name: &str, r: Rows, span: Span) -> Result<BufferId, Refusal> {
    let dims = [r.rows, r.n];
    let side = |cx: &mut Lowering<'_>, at: u32| Side {
        bits: cx.workspace(format!("{name}_bits{at}"), r.bits_dtype(), &dims),
        places: cx.workspace(format!("{name}_order{at}"), DType::I32, &dims),
    };
    let (mut from, mut into) = (side(cx, 0), side(cx, 1));
    let counts = Counts {
        of_tiles: cx.workspace(format!("{name}_counts"), DType::I32, &[r.rows, BINS, r.tiles()]),
        of_row: cx.workspace(format!("{name}_totals"), DType::I32, &[r.rows, BINS]),
    };
    start(cx, name, r, from, span)?;
    let first = cx.program.kernels.len();
    let passes = match r.dtype {
        DType::F32 | DType::F64 => r.dtype.bits() as i64 / DIGIT,
        _ => (r.bits.clamp(1, r.dtype.bits()) as i64 + DIGIT - 1) / DIGIT,
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
                vec![b(from.bits), b(counts.of_tiles), shift.clone()],
                vec![b(counts.of_tiles), b(counts.of_row)],
                [from.bits, from.places, counts.of_tiles, counts.of_row, into.bits, into.places]
                    .map(b)
                    .into_iter()
                    .chain([shift])
                    .collect(),
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
        let float = matches!(r.dtype, DType::F32 | DType::F64);
        let own = match float || r.bits >= r.dtype.bits() {
            true => cast(r.bits_ty(), unsigned(e, Expr::Var(key), r.dtype.compute())),
            false => Expr::Var(key),
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

/// The digit of bits that are held as I32 or I64.
fn digit(e: &mut Emit<'_>, r: Rows, bits: Expr, shift: &Expr) -> Expr {
    let ty = if r.bits_ty() == Ty::I64 { Ty::U64 } else { Ty::U32 };
    let bits = int_op(IntOp::Shr, cast(ty, bits), cast(ty, shift.clone()));
    let digit = int_op(IntOp::And, cast(Ty::U32, bits), Expr::U32(BINS as u32 - 1));
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

fn count(cx: &mut Lowering<'_>, name: &str, r: Rows, from: Side, counts: Counts, span: Span) {
    let Tile { e: mut emit, row, tile, base } = tile(cx, &format!("{name}_count"), r, span);
    let e = &mut emit;
    let (bits, into) = (e.pointer(from.bits, false), e.pointer(counts.of_tiles, true));
    let shift = e.scalar_param("shift", Ty::I32, Arg::Const(Value::I32(0)));
    let bins = e.kernel.shared("bins", DType::I32, BINS as u32, 16);
    store(e, bins, thread(), lit32(0));
    e.push(Stmt::Barrier);
    let first = add(mul(tile.clone(), lit32(r.tile() as i32)), thread());
    let first = e.named("first", Ty::I32, first);
    for i in 0..r.held {
        let at = e.named("at", Ty::I32, add(first.clone(), lit32((i * THREADS) as i32)));
        let inside = cmp(CmpOp::Lt, at.clone(), lit32(r.n as i32));
        e.if_then(inside, |e| {
            let own = Expr::Load(Mem::Global(bits), Box::new(element(r, &base, at)));
            let index = digit(e, r, own, &shift);
            let mem = Mem::Shared(bins);
            e.push(Stmt::Atomic { op: AtomicOp::Add, mem, index, value: lit32(1), old: None });
        });
    }
    e.push(Stmt::Barrier);
    let own = load(bins, thread());
    e.push(Stmt::Store(Mem::Global(into), counter(r, &row, thread(), &tile), own));
    cx.launch(emit);
}

/// A block a digit of a row: its counts become what stands in the tiles before.
fn sum_up(cx: &mut Lowering<'_>, name: &str, r: Rows, counts: Counts, span: Span) {
    let mut emit = cx.emit(&format!("{name}_sum"));
    let e = &mut emit;
    e.kernel.block = [THREADS as u32, 1, 1];
    e.kernel.grid = [(r.rows * BINS) as u32, 1, 1];
    e.line(span);
    let (p, totals) = (e.pointer(counts.of_tiles, true), e.pointer(counts.of_row, true));
    let sums = e.kernel.shared("sums", DType::I32, (THREADS / WARP) as u32, 16);
    let total = e.kernel.shared("total", DType::I32, 1, 4);
    let block = Expr::Special(Special::BlockX);
    let base = e.named("base", Ty::I32, mul(block.clone(), lit32(r.tiles() as i32)));
    let carry = e.let_var("carry", Ty::I32, lit32(0));
    let var = e.kernel.var("first", Ty::I32);
    let body = e.block(|e| {
        let mine = add(Expr::Var(var), mul(thread(), lit32(COUNTS as i32)));
        let mine = e.named("mine", Ty::I32, mine);
        let sum = e.let_var("sum", Ty::I32, lit32(0));
        let own: Vec<_> = (0..COUNTS)
            .map(|i| {
                let at = e.named("tile", Ty::I32, add(mine.clone(), lit32(i as i32)));
                let count = e.let_var("count", Ty::I32, lit32(0));
                let inside = cmp(CmpOp::Lt, at.clone(), lit32(r.tiles() as i32));
                let at = e.named("at", Ty::I32, add(base.clone(), at));
                let got = Expr::Load(Mem::Global(p), Box::new(at.clone()));
                e.if_then(inside.clone(), |e| e.push(Stmt::Set(count, got)));
                e.push(Stmt::Set(sum, add(Expr::Var(sum), Expr::Var(count))));
                (at, inside, count)
            })
            .collect();
        let before = block_sums(e, sums, THREADS / WARP, sum);
        let last = cmp(CmpOp::Eq, thread(), lit32(THREADS as i32 - 1));
        // `sum` now goes up to this thread's.
        e.if_then(last, |e| store(e, total, lit32(0), Expr::Var(sum)));
        e.push(Stmt::Set(before, add(Expr::Var(before), Expr::Var(carry))));
        for (at, inside, count) in own {
            e.if_then(inside, |e| e.push(Stmt::Store(Mem::Global(p), at, Expr::Var(before))));
            e.push(Stmt::Set(before, add(Expr::Var(before), Expr::Var(count))));
        }
        e.push(Stmt::Barrier);
        e.push(Stmt::Set(carry, add(Expr::Var(carry), load(total, lit32(0)))));
        e.push(Stmt::Barrier);
    });
    let (lo, hi, step) = (lit32(0), lit32(r.tiles() as i32), lit32((THREADS * COUNTS) as i32));
    e.push(Stmt::For { var, lo, hi, step, unroll: Unroll::None, body });
    let first = cmp(CmpOp::Eq, thread(), lit32(0));
    e.if_then(first, |e| e.push(Stmt::Store(Mem::Global(totals), block, Expr::Var(carry))));
    cx.launch(emit);
}

fn place(cx: &mut Lowering<'_>, name: &str, r: Rows, [from, into]: [Side; 2], counts: Counts, span: Span) {
    let Tile { e: mut emit, row, tile, base } = tile(cx, &format!("{name}_place"), r, span);
    let e = &mut emit;
    let (bits, places) = (e.pointer(from.bits, false), e.pointer(from.places, false));
    let (starts, totals) = (e.pointer(counts.of_tiles, false), e.pointer(counts.of_row, false));
    let (to_bits, to_places) = (e.pointer(into.bits, true), e.pointer(into.places, true));
    let shift = e.scalar_param("shift", Ty::I32, Arg::Const(Value::I32(0)));
    let warps = THREADS / WARP;
    let counters = e.kernel.shared("counts", DType::I32, (PITCH * warps) as u32, 16);
    let sums = e.kernel.shared("sums", DType::I32, warps as u32, 16);
    let shifts = e.kernel.shared("shifts", DType::I32, BINS as u32, 16);
    let sorted = e.kernel.shared("sorted", r.bits_dtype(), r.tile() as u32, 16);
    let sorted_at = e.kernel.shared("sorted_at", DType::I32, r.tile() as u32, 16);
    let var = e.kernel.var("i", Ty::I32);
    let body = e.block(|e| store(e, counters, Expr::Var(var), lit32(0)));
    let hi = lit32((PITCH * warps) as i32);
    e.push(Stmt::For { var, lo: thread(), hi, step: lit32(THREADS as i32), unroll: Unroll::None, body });
    e.push(Stmt::Barrier);
    let own = mul(Expr::Special(Special::Warp), lit32(PITCH as i32));
    let own = e.named("own", Ty::I32, own);
    let first = mul(Expr::Special(Special::Warp), lit32((WARP * r.held) as i32));
    let first = add(add(mul(tile.clone(), lit32(r.tile() as i32)), first), Expr::Special(Special::Lane));
    let first = e.named("first", Ty::I32, first);
    let (held, held_at) = (
        e.kernel.array("held", r.bits_ty(), r.held as u32),
        e.kernel.array("held_at", Ty::I32, r.held as u32),
    );
    let inside = |at: Expr| cmp(CmpOp::Lt, at, lit32(r.n as i32));
    for i in 0..r.held {
        let slot = lit32(i as i32);
        // What lies beyond the row comes after all of it.
        e.push(Stmt::SetElem(held, slot.clone(), int_of(r.bits_ty(), -1).expr));
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
    for i in 0..r.held {
        let digit = digit(e, r, elem(held, i), &shift);
        let (mem, index) = (Mem::Shared(counters), add(own.clone(), digit));
        e.push(Stmt::Atomic { op: AtomicOp::Add, mem, index, value: lit32(1), old: None });
    }
    e.push(Stmt::Barrier);
    // A thread a digit: where its keys go in the tile, warp by warp, and from there in the row.
    let own_at = |w: i64| add(thread(), lit32((w * PITCH) as i32));
    let all = e.let_var("all", Ty::I32, lit32(0));
    for w in 0..warps {
        e.push(Stmt::Set(all, add(Expr::Var(all), load(counters, own_at(w)))));
    }
    let at = block_sums(e, sums, warps, all);
    e.push(Stmt::Barrier);
    let of_row = e.named("line", Ty::I32, add(mul(row.clone(), lit32(BINS as i32)), thread()));
    let smaller = e.let_var("smaller", Ty::I32, Expr::Load(Mem::Global(totals), Box::new(of_row)));
    let smaller = block_sums(e, sums, warps, smaller);
    let before = Expr::Load(Mem::Global(starts), Box::new(counter(r, &row, thread(), &tile)));
    let shifted = super::scalar::sub(add(Expr::Var(smaller), before), Expr::Var(at));
    store(e, shifts, thread(), shifted);
    for w in 0..warps {
        let place = e.named("place", Ty::I32, own_at(w));
        let count = e.let_var("count", Ty::I32, load(counters, place.clone()));
        store(e, counters, place, Expr::Var(at));
        e.push(Stmt::Set(at, add(Expr::Var(at), Expr::Var(count))));
    }
    e.push(Stmt::Barrier);
    for i in 0..r.held {
        let digit = digit(e, r, elem(held, i), &shift);
        let to = place_after(e, counters, &own, digit);
        let to = e.named("to", Ty::I32, to);
        store(e, sorted, to.clone(), elem(held, i));
        store(e, sorted_at, to, elem(held_at, i));
    }
    e.push(Stmt::Barrier);
    let tile_first = mul(tile, lit32(r.tile() as i32));
    let left = super::scalar::sub(lit32(r.n as i32), tile_first);
    let left = e.named("left", Ty::I32, left);
    for i in 0..r.held {
        let from = e.named("from", Ty::I32, add(thread(), lit32((i * THREADS) as i32)));
        // What lies beyond the row stands last.
        e.if_then(cmp(CmpOp::Lt, from.clone(), left.clone()), |e| {
            let own = e.let_var("own", r.bits_ty(), load(sorted, from.clone()));
            let digit = digit(e, r, Expr::Var(own), &shift);
            let to = add(load(shifts, digit), from.clone());
            let to = e.named("to", r.wide(), element(r, &base, to));
            e.push(Stmt::Store(Mem::Global(to_bits), to.clone(), Expr::Var(own)));
            e.push(Stmt::Store(Mem::Global(to_places), to, load(sorted_at, from)));
        });
    }
    cx.launch(emit);
}
