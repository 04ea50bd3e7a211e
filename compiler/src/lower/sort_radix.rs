//! Argsort of rows that fit a block's shared memory: a radix sort, least digit first, of 8 bits a pass.
//!
//! The keys' bits (in an order of unsigned numbers, NaN last) stay where they are; positions move. A warp owns a contiguous
//! stretch of the positions as they stand. In a pass it first counts its digits; the counts of all warps, digit by
//! digit and warp by warp within a digit, are summed up to where each warp's first position of each digit goes; then the
//! warp goes over its stretch again in order, every lane placed after the lanes before it with the same digit. So equal
//! keys keep their order, and the result does not depend on the order of the warps.

use super::map;
use super::row_reduce::shuffle;
use super::scalar::{Emit, Num, add, arith, cast, cmp, int_of, int_op, lit32, mul, sub};
use super::sort::target_index;
use super::sort_select::{load, store, unsigned};
use super::{Lowering, MAX_GRID_X};
use crate::ir::graph::{Expr as Node, ExprId, Graph, Sort};
use crate::ir::simt::{
    ArrayId, AtomicOp, CmpOp, Expr, IntOp, Intrinsic, Mem, Place, SharedId, ShuffleKind, Special, Stmt, Ty,
    Unroll, VarId,
};
use crate::vocab::dtype::{self, DType};
use crate::vocab::func::Func;

const DIGIT: u8 = 8;
const BINS: i64 = 1 << DIGIT;
/// Counters of a warp, so that neither its digits nor neighbouring warps meet in a bank.
const PITCH: i64 = BINS + 1;
const WARP: i64 = 32;
/// Most positions of a lane.
const HELD: i64 = 32;

/// How a row lies over a block.
#[derive(Clone, Copy)]
struct Shape {
    n: i64,
    warps: i64,
    /// Positions of a lane.
    held: i64,
}

impl Shape {
    /// `warps`: of a block, if so many are asked for.
    fn new(n: i64, warps: Option<i64>) -> Shape {
        let warps = warps.unwrap_or((n + WARP * HELD - 1) / (WARP * HELD));
        Shape { n, warps, held: (n + WARP * warps - 1) / (WARP * warps) }
    }

    fn threads(&self) -> i64 {
        self.warps * WARP
    }

    /// Positions with those beyond the row's end, which come last.
    fn all(&self) -> i64 {
        self.threads() * self.held
    }

    fn shared_bytes(&self) -> i64 {
        6 * self.all() + 4 * (PITCH * self.warps + self.warps) + 64
    }
}

/// Whether a block of the target can hold a row of this many keys of this type.
pub fn takes(cx: &Lowering<'_>, sort: &Sort, warps: Option<i64>) -> bool {
    let t = cx.graph.tensor(sort.target);
    let n = t.dims[sort.along];
    let rows = t.dims.iter().product::<i64>() / n.max(1);
    let narrow = matches!(cx.graph.ty(sort.key), dtype::Ty::F32 | dtype::Ty::I32 | dtype::Ty::Bool);
    let shape = Shape::new(n, warps);
    narrow
        && (1..=MAX_GRID_X).contains(&rows)
        && (1..=WARP).contains(&shape.warps)
        && shape.held <= HELD
        && t.dtype.bits() >= 8
        && shape.shared_bytes() <= cx.target.shared_per_block as i64
}

struct Shared {
    keys: SharedId,
    places: SharedId,
    counts: SharedId,
    sums: SharedId,
}

pub fn lower<'a>(cx: &mut Lowering<'a>, name: &str, sort: &'a Sort, warps: Option<i64>) {
    let t = cx.graph.tensor(sort.target);
    let mut dims = t.dims.clone();
    let shape = Shape::new(dims.remove(sort.along), warps);
    let rows: i64 = dims.iter().product();
    let mut emit = cx.emit(name);
    let e = &mut emit;
    e.kernel.block = [shape.threads() as u32, 1, 1];
    e.kernel.grid = [rows as u32, 1, 1];
    e.line(sort.span);
    let at = map::decode(e, Num { expr: Expr::Special(Special::BlockX), ty: Ty::I32 }, &dims);
    let s = Shared {
        keys: e.kernel.shared("keys", DType::I32, shape.all() as u32, 16),
        places: e.kernel.shared("places", DType::I16, shape.all() as u32, 16),
        counts: e.kernel.shared("counts", DType::I32, (PITCH * shape.warps) as u32, 16),
        sums: e.kernel.shared("sums", DType::I32, shape.warps as u32, 16),
    };
    strided(e, shape.threads(), shape.all(), Unroll::By(4), |e, i| {
        let bits = e.let_var("bits", Ty::U32, Expr::U32(u32::MAX));
        let inside = cmp(CmpOp::Lt, i.clone(), lit32(shape.n as i32));
        e.if_then(inside, |e| {
            let key = key(e, sort, &at, i.clone());
            e.push(Stmt::Set(bits, key));
        });
        store(e, s.keys, i.clone(), cast(Ty::I32, Expr::Var(bits)));
        store(e, s.places, i.clone(), i);
    });
    let shift = e.kernel.var("shift", Ty::I32);
    let body = e.block(|e| pass(e, &s, shape, Expr::Var(shift)));
    let (lo, hi, step) = (lit32(zero_bits(e.graph, sort.key)), lit32(32), lit32(DIGIT as i32));
    e.push(Stmt::For { var: shift, lo, hi, step, unroll: Unroll::None, body });
    e.push(Stmt::Barrier);
    strided(e, shape.threads(), shape.n, Unroll::By(4), |e, i| {
        let found = e.let_var("found", Ty::I32, load(s.places, i.clone()));
        let lo = int_of(Ty::I32, t.lo[sort.along]);
        let value = arith(IntOp::Add, Num { expr: Expr::Var(found), ty: Ty::I32 }, lo);
        let value = e.rounded(t.dtype, value);
        let mut own = at.clone();
        own.push(Num { expr: i, ty: Ty::I32 });
        let index = target_index(t, sort.along, &own);
        e.store(sort.target, &index, value.expr);
    });
    cx.launch(emit);
}

/// Low bits that all keys of equal high bits share: those that a narrow float lacks.
fn zero_bits(g: &Graph, key: ExprId) -> i32 {
    match g.expr(key) {
        Node::Read(r) => match g.tensor(r.tensor).dtype {
            DType::BF16 => 16,
            DType::F16 => 13,
            _ => 0,
        },
        Node::Call(Func::Neg | Func::Abs, args) => zero_bits(g, args[0]),
        _ => 0,
    }
}

/// `for i in thread..hi step threads`
fn strided<'a>(e: &mut Emit<'a>, threads: i64, hi: i64, unroll: Unroll, f: impl FnOnce(&mut Emit<'a>, Expr)) {
    let var = e.kernel.var("i", Ty::I32);
    let body = e.block(|e| f(e, Expr::Var(var)));
    let (lo, hi, step) = (Expr::Special(Special::ThreadX), lit32(hi as i32), lit32(threads as i32));
    e.push(Stmt::For { var, lo, hi, step, unroll, body });
}

fn key<'a>(e: &mut Emit<'a>, sort: &'a Sort, at: &[Num], i: Expr) -> Expr {
    let mut own = at.to_vec();
    own.insert(sort.along, Num { expr: i, ty: Ty::I32 });
    e.scope(|e| {
        map::bind_axes(e, &sort.axes, &own);
        let key = e.value(sort.key);
        unsigned(e, key, e.graph.ty(sort.key))
    })
}

/// Moves the positions by one digit of their keys.
fn pass(e: &mut Emit<'_>, s: &Shared, shape: Shape, shift: Expr) {
    let counters = PITCH * shape.warps;
    strided(e, shape.threads(), counters, Unroll::None, |e, i| store(e, s.counts, i, lit32(0)));
    e.push(Stmt::Barrier);
    let warp = Expr::Special(Special::Warp);
    let own = mul(warp.clone(), lit32(PITCH as i32));
    let own = e.named("own", Ty::I32, own);
    let first = add(mul(warp, lit32((WARP * shape.held) as i32)), Expr::Special(Special::Lane));
    let first = e.named("first", Ty::I32, first);
    let held = e.kernel.array("held", Ty::I32, shape.held as u32);
    for i in 0..shape.held {
        let at = load(s.places, add(first.clone(), lit32((i * WARP) as i32)));
        e.push(Stmt::SetElem(held, lit32(i as i32), at));
        let digit = digit(e, s, held, i, &shift);
        let (mem, index) = (Mem::Shared(s.counts), add(own.clone(), digit));
        e.push(Stmt::Atomic { op: AtomicOp::Add, mem, index, value: lit32(1), old: None });
    }
    e.push(Stmt::Barrier);
    starts(e, s, shape);
    e.push(Stmt::Barrier);
    for i in 0..shape.held {
        let digit = digit(e, s, held, i, &shift);
        let to = place_after(e, s.counts, &own, digit);
        let at = Expr::Elem(held, Box::new(lit32(i as i32)));
        store(e, s.places, to, at);
    }
    e.push(Stmt::Barrier);
}

/// The digit of the key of a lane's `i`-th position.
fn digit(e: &mut Emit<'_>, s: &Shared, held: ArrayId, i: i64, shift: &Expr) -> Expr {
    let key = load(s.keys, Expr::Elem(held, Box::new(lit32(i as i32))));
    let bits = int_op(IntOp::Shr, cast(Ty::U32, key), cast(Ty::U32, shift.clone()));
    let digit = int_op(IntOp::And, bits, Expr::U32(BINS as u32 - 1));
    e.named("digit", Ty::I32, cast(Ty::I32, digit))
}

/// Counts become the places of the first of each: a thread takes eight counters that follow each other, digit by digit.
fn starts(e: &mut Emit<'_>, s: &Shared, shape: Shape) {
    let each = BINS * shape.warps / shape.threads();
    let first = e.named("entry", Ty::I32, mul(Expr::Special(Special::ThreadX), lit32(each as i32)));
    let place = |e: &mut Emit<'_>, i: i64| {
        let entry = e.named("entry", Ty::I32, add(first.clone(), lit32(i as i32)));
        let warps = lit32(shape.warps as i32);
        let row = mul(int_op(IntOp::Rem, entry.clone(), warps.clone()), lit32(PITCH as i32));
        e.named("place", Ty::I32, add(row, int_op(IntOp::Div, entry, warps)))
    };
    let sum = e.let_var("sum", Ty::I32, lit32(0));
    for i in 0..each {
        let count = load(s.counts, place(e, i));
        e.push(Stmt::Set(sum, add(Expr::Var(sum), count)));
    }
    let at = block_sums(e, s.sums, shape.warps, sum);
    // Read once more: registers are short beside the positions.
    for i in 0..each {
        let place = place(e, i);
        let count = e.let_var("count", Ty::I32, load(s.counts, place.clone()));
        store(e, s.counts, place, Expr::Var(at));
        e.push(Stmt::Set(at, add(Expr::Var(at), Expr::Var(count))));
    }
}

/// Takes the next place of a digit, whose counter is one of the warp's that begin at `own`: a lane's place is after those
/// of the lanes before it.
pub(super) fn place_after(e: &mut Emit<'_>, counts: SharedId, own: &Expr, digit: Expr) -> Expr {
    let counter = e.named("counter", Ty::I32, add(own.clone(), digit.clone()));
    let (before, all) = (e.kernel.var("before", Ty::I32), e.kernel.var("alike", Ty::I32));
    e.push(Stmt::Let(before, lit32(0)));
    e.push(Stmt::Let(all, lit32(0)));
    let (outs, args) = (vec![Place::Var(before), Place::Var(all)], vec![cast(Ty::U32, digit)]);
    e.push(Stmt::Intrinsic { op: Intrinsic::MatchDigit { bits: DIGIT }, outs, args });
    let start = e.let_var("start", Ty::I32, load(counts, counter.clone()));
    e.push(Stmt::WarpBarrier);
    let leads = cmp(CmpOp::Eq, Expr::Var(before), lit32(0));
    let next = add(Expr::Var(start), Expr::Var(all));
    e.if_then(leads, |e| store(e, counts, counter, next));
    e.push(Stmt::WarpBarrier);
    add(Expr::Var(start), Expr::Var(before))
}

/// The sum of what the block's threads before this one have; `sum` is this thread's.
pub(super) fn block_sums(e: &mut Emit<'_>, sums: SharedId, warps: i64, sum: VarId) -> VarId {
    let own = e.let_var("own_sum", Ty::I32, Expr::Var(sum));
    let lane = Expr::Special(Special::Lane);
    inclusive(e, sum);
    if warps > 1 {
        let warp = Expr::Special(Special::Warp);
        let last = cmp(CmpOp::Eq, lane.clone(), lit32(WARP as i32 - 1));
        e.if_then(last, |e| store(e, sums, warp.clone(), Expr::Var(sum)));
        e.push(Stmt::Barrier);
        let others = e.let_var("others", Ty::I32, lit32(0));
        let mine = cmp(CmpOp::Lt, lane.clone(), lit32(warps as i32));
        e.if_then(mine, |e| e.push(Stmt::Set(others, load(sums, lane.clone()))));
        inclusive(e, others);
        let left = shuffle(e, Ty::I32, Expr::Var(others), ShuffleKind::Index, &sub(warp.clone(), lit32(1)));
        let inner = cmp(CmpOp::Gt, warp, lit32(0));
        e.if_then(inner, |e| e.push(Stmt::Set(sum, add(Expr::Var(sum), left))));
    }
    e.let_var("start", Ty::I32, sub(Expr::Var(sum), Expr::Var(own)))
}

/// Inclusive sums over a warp.
fn inclusive(e: &mut Emit<'_>, sum: VarId) {
    let lane = Expr::Special(Special::Lane);
    for step in [1, 2, 4, 8, 16] {
        let left = shuffle(e, Ty::I32, Expr::Var(sum), ShuffleKind::Up, &lit32(step));
        let far = cmp(CmpOp::Ge, lane.clone(), lit32(step));
        e.if_then(far, |e| e.push(Stmt::Set(sum, add(Expr::Var(sum), left))));
    }
}
