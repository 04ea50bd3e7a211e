//! The first few of a sorted row, without sorting the row: what reads an argsort only at its first K places.
//!
//! A block takes a row, or a segment of one (`sort_segments.rs`). In one pass it takes the elements up to a bound from a sample (`sort_filter.rs`); where that took
//! too few or too many, it narrows the row down: an element's rank key is its key's bits (in an order of unsigned numbers, NaN last) with its
//! position below them, so that no two are equal and ties go by position. Histograms of twelve bits at a time narrow
//! the range of rank keys that holds the first K, until few enough are left to be sorted in shared memory. The
//! counters are integers and the rank keys unique, so the result does not depend on the order of the threads.

use super::index::reads;
use super::map;
use super::read::to;
use super::scalar::{Emit, Num, add, and, arith, cast, cmp, int_of, int_op, lit32, lit64, mul, sub};
use super::sort::target_index;
use super::sort_filter::{self, Keys};
use super::{Lowering, MAX_GRID_X, sort_segments};
use crate::ir::graph::{Base, Sort, Stmt as GraphStmt};
use crate::ir::simt::{AtomicOp, CmpOp, Expr, IntOp, Mem, SharedId, Special, Stmt, Ty, Unroll, VarId};
use crate::vocab::dtype::{self, DType, Value};
use crate::vocab::func::Func;

/// Most elements that are asked for.
const MOST: i64 = 4096;
pub(super) const THREADS: i64 = 256;
/// Bits of a digit, and of a position.
const DIGIT: i64 = 12;
pub(super) const POSITION: i64 = 28;
const BINS: i64 = 1 << DIGIT;
const BITS: i64 = 32 + POSITION;

/// Elements that are sorted in the end, at most.
pub(super) fn room(places: i64) -> i64 {
    if places <= 1024 { 2048 } else { 8192 }
}

/// How many of the first places are read, if that is all that is read, and the row is long.
pub fn first_places(cx: &Lowering<'_>, sort: &Sort) -> Option<i64> {
    let graph = cx.graph;
    let t = graph.tensor(sort.target);
    let n = t.dims[sort.along];
    let narrow = matches!(graph.ty(sort.key), dtype::Ty::F32 | dtype::Ty::I32 | dtype::Ty::Bool);
    let rows: i64 = t.dims.iter().product::<i64>() / n.max(1);
    if !narrow || t.dtype.bits() < 8 || graph.outputs.iter().any(|o| o.tensor == sort.target) {
        return None;
    }
    let mut places = 0;
    for s in &graph.stmts {
        if matches!(s, GraphStmt::Update(u) if u.base == Base::Tensor(sort.target)) {
            return None;
        }
        for (_, r) in reads(graph, s).into_iter().filter(|(_, r)| r.tensor == sort.target) {
            let at = cx.facts.interval(r.index[sort.along]);
            places = places.max(at.hi - t.lo[sort.along] + 1);
        }
    }
    // Candidates and bins.
    let bytes = 8 * room(places) + 4 * (BINS + THREADS + 4);
    let fits = bytes <= cx.target.shared_per_block as i64
        && (1..=MOST).contains(&places)
        && n > 2 * room(places)
        && n < 1 << POSITION
        && rows <= MAX_GRID_X;
    fits.then_some(places)
}

/// Shared memory of a block.
#[derive(Clone, Copy)]
pub(super) struct Shared {
    pub bins: SharedId,
    pub sums: SharedId,
    /// Digit, elements before it, elements with it; the number of candidates.
    pub state: SharedId,
    pub candidates: SharedId,
    /// How many candidates there may be.
    pub room: i64,
}

/// The range of rank keys still open.
#[derive(Clone, Copy)]
struct Open {
    prefix: VarId,
    shift: VarId,
    before: VarId,
    /// Elements up to the end of the range.
    count: VarId,
}

pub fn lower<'a>(cx: &mut Lowering<'a>, name: &str, sort: &'a Sort, places: i64, segments: Option<i64>) {
    let t = cx.graph.tensor(sort.target);
    let mut dims = t.dims.clone();
    let n = dims.remove(sort.along);
    let rows: i64 = dims.iter().product();
    if let Some(cut) = sort_segments::Cut::new(rows, n, places, segments) {
        return sort_segments::lower(cx, name, sort, places, &cut);
    }
    let mut e = cx.emit(name);
    e.kernel.block = [THREADS as u32, 1, 1];
    e.kernel.grid = [rows as u32, 1, 1];
    e.line(sort.span);
    let at = map::decode(&mut e, Num { expr: Expr::Special(Special::BlockX), ty: Ty::I32 }, &dims);
    let keys = Keys::new(&e, sort, &at, n);
    let shared = first_of(&mut e, sort, &at, &keys, places);
    put(&mut e, sort, &at, shared, places);
    cx.launch(e);
}

/// Leaves the first places of some keys in the candidates, in order.
pub(super) fn first_of<'a>(
    e: &mut Emit<'a>,
    sort: &'a Sort,
    at: &[Num],
    keys: &Keys<'a>,
    places: i64,
) -> Shared {
    let shared = Shared {
        bins: e.kernel.shared("bins", DType::I32, BINS as u32, 16),
        sums: e.kernel.shared("sums", DType::I32, THREADS as u32, 16),
        state: e.kernel.shared("state", DType::I32, 4, 16),
        candidates: e.kernel.shared("candidates", DType::I64, room(places) as u32, 16),
        room: room(places),
    };
    let open = Open {
        prefix: e.let_var("prefix", Ty::I64, lit64(0)),
        shift: e.let_var("shift", Ty::I64, lit64(BITS - DIGIT)),
        before: e.let_var("before", Ty::I32, lit32(0)),
        count: e.let_var("count", Ty::I32, lit32(i32::MAX)),
    };
    let from = keys.from();
    let rank = |e: &mut Emit<'a>, i: Expr| {
        let i = e.named("at", Ty::I32, add(from.clone(), i));
        rank_key(e, sort, at, i)
    };
    let n = keys.count();
    let size = e.let_var("sample", Ty::I32, lit32(0));
    sort_filter::filter(e, shared, keys, places, open.count, size);
    let few = cmp(CmpOp::Lt, Expr::Var(open.count), lit32(places as i32));
    let many = cmp(CmpOp::Gt, Expr::Var(open.count), lit32(shared.room as i32));
    let again = Expr::Var(e.let_var("again", Ty::Bool, Expr::Or(Box::new(few), Box::new(many.clone()))));
    e.if_then(again, |e| {
        e.push(Stmt::Set(open.count, lit32(i32::MAX)));
        let body = e.block(|e| narrow(e, shared, open, &n, places, &rank));
        e.push(Stmt::While { cond: many, body });
        gather(e, shared, open, &n, &rank);
    });
    sort_candidates(e, shared, open.count);
    shared
}

/// The candidates' positions are the result.
pub(super) fn put<'a>(e: &mut Emit<'a>, sort: &'a Sort, at: &[Num], shared: Shared, places: i64) {
    let t = e.graph.tensor(sort.target);
    strided(e, lit32(places as i32), Unroll::None, |e, j| {
        let found = load(shared.candidates, j.clone());
        let place = int_op(IntOp::And, found, lit64((1 << POSITION) - 1));
        let place = e.named("at", Ty::I32, cast(Ty::I32, place));
        let lo = int_of(Ty::I32, t.lo[sort.along]);
        let value = arith(IntOp::Add, Num { expr: place, ty: Ty::I32 }, lo);
        let value = e.rounded(t.dtype, value);
        let mut own = at.to_vec();
        own.push(Num { expr: j, ty: Ty::I32 });
        let index = target_index(t, sort.along, &own);
        e.store(sort.target, &index, value.expr);
    });
}

pub(super) fn load(from: SharedId, at: Expr) -> Expr {
    Expr::Load(Mem::Shared(from), Box::new(at))
}

pub(super) fn store(e: &mut Emit<'_>, to: SharedId, at: Expr, value: Expr) {
    e.push(Stmt::Store(Mem::Shared(to), at, value));
}

/// `for i in thread..hi step threads`
pub(super) fn strided<'a>(e: &mut Emit<'a>, hi: Expr, unroll: Unroll, f: impl FnOnce(&mut Emit<'a>, Expr)) {
    let var = e.kernel.var("i", Ty::I32);
    let body = e.block(|e| f(e, Expr::Var(var)));
    let (lo, step) = (Expr::Special(Special::ThreadX), lit32(THREADS as i32));
    e.push(Stmt::For { var, lo, hi, step, unroll, body });
}

/// The rank key of the element at a position: non-negative, of `BITS` bits.
fn rank_key<'a>(e: &mut Emit<'a>, sort: &'a Sort, at: &[Num], i: Expr) -> Expr {
    let mut own = at.to_vec();
    own.insert(sort.along, Num { expr: i.clone(), ty: Ty::I32 });
    e.scope(|e| {
        map::bind_axes(e, &sort.axes, &own);
        let key = e.value(sort.key);
        let bits = unsigned(e, key, e.graph.ty(sort.key));
        let high = int_op(IntOp::Shl, cast(Ty::I64, bits), lit64(POSITION));
        let low = to(Num { expr: i, ty: Ty::I32 }, Ty::I64);
        Expr::Var(e.let_var("rank", Ty::I64, add(high, low)))
    })
}

/// Bits whose unsigned order is the keys': zeros are equal, NaN is greatest. U32, or U64 of a wide key.
pub(super) fn unsigned(e: &mut Emit<'_>, key: Expr, ty: dtype::Ty) -> Expr {
    if matches!(ty, dtype::Ty::F64 | dtype::Ty::I64) {
        return unsigned_wide(e, key, ty);
    }
    const TOP: u32 = 1 << 31;
    let xor = |a: Expr, b: u32| int_op(IntOp::Xor, a, Expr::U32(b));
    if ty != dtype::Ty::F32 {
        let key = if ty == dtype::Ty::Bool { cast(Ty::I32, key) } else { key };
        return Expr::Var(e.let_var("bits", Ty::U32, xor(cast(Ty::U32, key), TOP)));
    }
    let zero = Expr::Lit(Value::F32(0.0));
    let key = Expr::Var(e.let_var("key", Ty::F32, Expr::Call(Func::Add, vec![key, zero])));
    let bits = Expr::Bitcast(Ty::U32, Box::new(key.clone()));
    let bits = Expr::Var(e.let_var("bits", Ty::U32, bits));
    let negative = cmp(CmpOp::Ge, bits.clone(), Expr::U32(TOP));
    let select = |c: Expr, a: Expr, b: Expr| Expr::Select(Box::new(c), Box::new(a), Box::new(b));
    let ordered = select(negative, xor(bits.clone(), u32::MAX), xor(bits, TOP));
    let nan = Expr::Call(Func::IsNan, vec![key]);
    Expr::Var(e.let_var("bits", Ty::U32, select(nan, Expr::U32(u32::MAX), ordered)))
}

fn unsigned_wide(e: &mut Emit<'_>, key: Expr, ty: dtype::Ty) -> Expr {
    let lit = |v: i64| cast(Ty::U64, lit64(v));
    let xor = |a: Expr, b: i64| int_op(IntOp::Xor, a, lit(b));
    if ty == dtype::Ty::I64 {
        return Expr::Var(e.let_var("bits", Ty::U64, xor(cast(Ty::U64, key), i64::MIN)));
    }
    let zero = Expr::Lit(Value::F64(0.0));
    let key = Expr::Var(e.let_var("key", Ty::F64, Expr::Call(Func::Add, vec![key, zero])));
    let bits = Expr::Bitcast(Ty::U64, Box::new(key.clone()));
    let bits = Expr::Var(e.let_var("bits", Ty::U64, bits));
    let negative = cmp(CmpOp::Ge, bits.clone(), lit(i64::MIN));
    let select = |c: Expr, a: Expr, b: Expr| Expr::Select(Box::new(c), Box::new(a), Box::new(b));
    let ordered = select(negative, xor(bits.clone(), -1), xor(bits, i64::MIN));
    let nan = Expr::Call(Func::IsNan, vec![key]);
    Expr::Var(e.let_var("bits", Ty::U64, select(nan, lit(-1), ordered)))
}

fn shifted(rank: Expr, by: Expr) -> Expr {
    int_op(IntOp::Shr, rank, by)
}

/// One more digit of the range in which the last of the places lies.
fn narrow<'a>(
    e: &mut Emit<'a>,
    s: Shared,
    open: Open,
    n: &Expr,
    places: i64,
    rank: &dyn Fn(&mut Emit<'a>, Expr) -> Expr,
) {
    strided(e, lit32(BINS as i32), Unroll::None, |e, i| store(e, s.bins, i, lit32(0)));
    e.push(Stmt::Barrier);
    strided(e, n.clone(), Unroll::By(4), |e, i| {
        let r = rank(e, i);
        let above = shifted(r.clone(), add(Expr::Var(open.shift), lit64(DIGIT)));
        let inside = cmp(CmpOp::Eq, above, Expr::Var(open.prefix));
        let digit = int_op(IntOp::And, shifted(r, Expr::Var(open.shift)), lit64(BINS - 1));
        let index = cast(Ty::I32, digit);
        e.if_then(inside, |e| {
            let mem = Mem::Shared(s.bins);
            e.push(Stmt::Atomic { op: AtomicOp::Add, mem, index, value: lit32(1), old: None });
        });
    });
    e.push(Stmt::Barrier);
    find_digit(e, s, open, places);
    let state = |i: i32| load(s.state, lit32(i));
    let digit = cast(Ty::I64, state(0));
    e.push(Stmt::Set(open.prefix, add(mul(Expr::Var(open.prefix), lit64(BINS)), digit)));
    e.push(Stmt::Set(open.before, state(1)));
    e.push(Stmt::Set(open.count, add(state(1), state(2))));
    let more = cmp(CmpOp::Gt, Expr::Var(open.count), lit32(s.room as i32));
    e.if_then(more, |e| e.push(Stmt::Set(open.shift, sub(Expr::Var(open.shift), lit64(DIGIT)))));
    e.push(Stmt::Barrier);
}

/// The bin that holds the last of the places: sums of each thread's bins, their scan, then the thread's own bins.
fn find_digit(e: &mut Emit<'_>, s: Shared, open: Open, places: i64) {
    const EACH: i64 = BINS / THREADS;
    let thread = Expr::Special(Special::ThreadX);
    let sum = e.let_var("sum", Ty::I32, lit32(0));
    let first = e.named("first", Ty::I32, mul(thread.clone(), lit32(EACH as i32)));
    for b in 0..EACH {
        let bin = load(s.bins, add(first.clone(), lit32(b as i32)));
        e.push(Stmt::Set(sum, add(Expr::Var(sum), bin)));
    }
    store(e, s.sums, thread.clone(), Expr::Var(sum));
    e.push(Stmt::Barrier);
    let mut gap = 1;
    while gap < THREADS as i32 {
        let far = cmp(CmpOp::Ge, thread.clone(), lit32(gap));
        let left = e.let_var("left", Ty::I32, lit32(0));
        let from = load(s.sums, sub(thread.clone(), lit32(gap)));
        e.if_then(far, |e| e.push(Stmt::Set(left, from)));
        e.push(Stmt::Barrier);
        e.push(Stmt::Set(sum, add(Expr::Var(sum), Expr::Var(left))));
        store(e, s.sums, thread.clone(), Expr::Var(sum));
        e.push(Stmt::Barrier);
        gap *= 2;
    }
    let ahead = e.let_var("ahead", Ty::I32, Expr::Var(open.before));
    let left = load(s.sums, sub(thread.clone(), lit32(1)));
    let inner = cmp(CmpOp::Gt, thread, lit32(0));
    e.if_then(inner, |e| e.push(Stmt::Set(ahead, add(Expr::Var(open.before), left))));
    for b in 0..EACH {
        let at = add(first.clone(), lit32(b as i32));
        let bin = e.let_var("bin", Ty::I32, load(s.bins, at.clone()));
        let until = add(Expr::Var(ahead), Expr::Var(bin));
        let here = and(
            cmp(CmpOp::Lt, Expr::Var(ahead), lit32(places as i32)),
            cmp(CmpOp::Ge, until.clone(), lit32(places as i32)),
        );
        e.if_then(here, |e| {
            store(e, s.state, lit32(0), at);
            store(e, s.state, lit32(1), Expr::Var(ahead));
            store(e, s.state, lit32(2), Expr::Var(bin));
        });
        e.push(Stmt::Set(ahead, until));
    }
    e.push(Stmt::Barrier);
}

/// No candidates.
pub(super) fn clear(e: &mut Emit<'_>, s: Shared) {
    let first = cmp(CmpOp::Eq, thread(), lit32(0));
    e.if_then(first, |e| store(e, s.state, lit32(3), lit32(0)));
    strided(e, lit32(s.room as i32), Unroll::None, |e, i| store(e, s.candidates, i, lit64(i64::MAX)));
}

pub(super) fn thread() -> Expr {
    Expr::Special(Special::ThreadX)
}

/// All rank keys up to the end of the range, in any order.
fn gather<'a>(e: &mut Emit<'a>, s: Shared, open: Open, n: &Expr, rank: &dyn Fn(&mut Emit<'a>, Expr) -> Expr) {
    clear(e, s);
    e.push(Stmt::Barrier);
    strided(e, n.clone(), Unroll::By(4), |e, i| {
        let r = rank(e, i);
        let inside = cmp(CmpOp::Le, shifted(r.clone(), Expr::Var(open.shift)), Expr::Var(open.prefix));
        e.if_then(inside, |e| {
            let slot = e.kernel.var("slot", Ty::I32);
            let mem = Mem::Shared(s.state);
            e.push(Stmt::Atomic {
                op: AtomicOp::Add,
                mem,
                index: lit32(3),
                value: lit32(1),
                old: Some(slot),
            });
            store(e, s.candidates, Expr::Var(slot), r);
        });
    });
    e.push(Stmt::Barrier);
}

/// Bitonic, over the least power of two that holds them.
pub(super) fn sort_candidates(e: &mut Emit<'_>, s: Shared, count: VarId) {
    let size = e.let_var("size", Ty::I32, lit32(2));
    let body = vec![Stmt::Set(size, mul(Expr::Var(size), lit32(2)))];
    e.push(Stmt::While { cond: cmp(CmpOp::Lt, Expr::Var(size), Expr::Var(count)), body });
    let width = e.let_var("width", Ty::I32, lit32(2));
    let outer = e.block(|e| {
        let gap = e.let_var("gap", Ty::I32, int_op(IntOp::Div, Expr::Var(width), lit32(2)));
        let inner = e.block(|e| {
            let half = int_op(IntOp::Div, Expr::Var(size), lit32(2));
            strided(e, half, Unroll::None, |e, t| {
                let low = int_op(IntOp::And, t.clone(), sub(Expr::Var(gap), lit32(1)));
                let i = add(mul(sub(t, low.clone()), lit32(2)), low);
                let i = Expr::Var(e.let_var("i", Ty::I32, i));
                let j = Expr::Var(e.let_var("j", Ty::I32, add(i.clone(), Expr::Var(gap))));
                let a = Expr::Var(e.let_var("a", Ty::I64, load(s.candidates, i.clone())));
                let b = Expr::Var(e.let_var("b", Ty::I64, load(s.candidates, j.clone())));
                let bit = int_op(IntOp::And, i.clone(), Expr::Var(width));
                let up = cmp(CmpOp::Eq, bit, lit32(0));
                let wrong = cmp(CmpOp::Gt, a.clone(), b.clone());
                e.if_then(Expr::Compare(CmpOp::Eq, Box::new(wrong), Box::new(up)), |e| {
                    store(e, s.candidates, i, b);
                    store(e, s.candidates, j, a);
                });
            });
            e.push(Stmt::Barrier);
            e.push(Stmt::Set(gap, int_op(IntOp::Div, Expr::Var(gap), lit32(2))));
        });
        e.push(Stmt::While { cond: cmp(CmpOp::Gt, Expr::Var(gap), lit32(0)), body: inner });
        e.push(Stmt::Set(width, mul(Expr::Var(width), lit32(2))));
    });
    e.push(Stmt::While { cond: cmp(CmpOp::Le, Expr::Var(width), Expr::Var(size)), body: outer });
}
