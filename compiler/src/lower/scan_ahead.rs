//! Long rows in one pass: a block a segment, which learns from the blocks before it what goes before its own.
//!
//! A block draws a ticket when it starts, so it waits only for blocks that have started. It publishes the combination
//! of its own terms, waits for those of the segments before it in its window, and for the combination of all windows
//! before that, which the last block of each window publishes. What is combined in which order hangs on the sizes
//! alone and never on who comes first, so runs repeat bit for bit.

use super::map::decode;
use super::scalar::{Emit, Num, add, and, arith, cmp, int_of, int_op, lit32, mul, sub};
use super::scan::Shape;
use super::scan_block::{Block, Flow, Layout};
use super::scan_flow::Vectors;
use super::scan_law::{Algebra, Law, values};
use super::{Lowering, MAX_GRID_X, Refusal};
use crate::ir::program::{BufferId, Step};
use crate::ir::simt::{
    ArrayId, AtomicOp, CmpOp, Expr, IntOp, Intrinsic, Mem, ParamId, Place, ShuffleKind, Special, Stmt, Ty,
};
use crate::vocab::dtype::{DType, Value};

/// Threads of a block, at most.
const THREADS: i64 = 256;
/// Fewer segments are one block's work.
const FEW: i64 = 4;
const WARP: i64 = 32;
/// Segments of a window, over all rows: fewer make the chain of windows long, and with more the blocks that run make up so
/// few windows that all wait for the same one.
const WINDOW: i64 = 128;
/// Segments of a row's window, at least.
const LEAST: i64 = 8;
/// Places before the words: the tickets.
const FRONT: i64 = 1;

/// How rows are cut.
pub(super) struct Split {
    layout: Layout,
    segments: i64,
    /// Segments of a window: a power of two.
    window: i64,
    /// Words of a partial result.
    words: i64,
}

impl Split {
    fn windows(&self) -> i64 {
        (self.segments + self.window - 1) / self.window
    }

    /// Segments of a window that a lane looks at.
    fn each(&self) -> i64 {
        (self.window / WARP).max(1)
    }
}

impl<'a> Shape<'a> {
    /// How the rows are cut, if they are long enough for more than a block each.
    pub(super) fn one_pass(&self, cx: &Lowering<'a>, rows: i64) -> Option<Split> {
        let width = self.width(cx);
        let whole = self.layout(width, self.held().1).chunk();
        let layout = self.layout(width, THREADS);
        let segments = (self.n + layout.chunk() - 1) / layout.chunk();
        let fits = layout.per_block == 1 && rows.checked_mul(segments)? <= MAX_GRID_X;
        if !fits || self.n <= whole || segments < FEW {
            return None;
        }
        let components = if self.law() == Law::Affine { 2 } else { 1 };
        let words = components * if matches!(self.ty, Ty::F64 | Ty::I64) { 2 } else { 1 };
        let window = (WINDOW / rows.max(1)).max(LEAST) as u64;
        Some(Split { layout, segments, window: window.next_power_of_two() as i64, words })
    }

    pub(super) fn by_segments(&self, cx: &mut Lowering<'a>, rows: i64, split: &Split) -> Result<(), Refusal> {
        let len = FRONT + rows * (split.segments + split.windows()) * split.words;
        let shared = cx.workspace(format!("{}_ahead", self.name), DType::I64, &[len]);
        cx.step(Step::Fill { buffer: shared, byte: 0 });
        let layout = split.layout.clone();
        let mut e = self.begin(cx, &layout, rows * split.segments)?;
        let ticket = draw(&mut e, shared);
        // Blocks that run side by side are of different rows, which wait less for each other.
        let rest = Num { expr: ticket, ty: Ty::I32 };
        let row = arith(IntOp::Rem, rest.clone(), int_of(Ty::I32, rows));
        let row = Num { expr: e.named("row", Ty::I32, row.expr), ty: Ty::I32 };
        let number = arith(IntOp::Div, rest, int_of(Ty::I32, rows));
        let number = e.named("segment", Ty::I32, number.expr);
        let at = decode(&mut e, row.clone(), &self.rows);
        self.bind_rows(&mut e, &at);
        let algebra = self.algebra(&mut e);
        let start = self.start(&mut e);
        let flow = Ahead {
            vectors: Vectors::new(self, &mut e, &layout, None),
            split,
            shared,
            row: row.expr,
            number: number.clone(),
            rows,
            start,
            slots: shared_slots(&mut e, &algebra),
        };
        let block = Block::new(&mut e, layout.clone(), algebra, None, false);
        let ty = self.position_ty();
        let first = Num { expr: super::read::to(Num { expr: number, ty: Ty::I32 }, ty), ty };
        let first = arith(IntOp::Mul, first, int_of(ty, layout.chunk()));
        let first = Num { expr: e.named("lo", ty, first.expr), ty };
        let end = int_of(ty, self.n);
        let even = self.n % layout.chunk() == 0;
        block.chunk(&mut e, &first, (!even).then_some(&end), &flow);
        cx.launch(e);
        Ok(())
    }
}

/// The number of blocks of the grid that started before this one.
fn draw(e: &mut Emit<'_>, tickets: BufferId) -> Expr {
    let mem = Mem::Global(e.pointer(tickets, true));
    let slot = e.kernel.shared("ticket", DType::I32, 1, 4);
    let first = cmp(CmpOp::Eq, Expr::Special(Special::ThreadX), lit32(0));
    e.if_then(first, |e| {
        let old = e.kernel.var("ticket", Ty::I64);
        let value = Expr::Lit(Value::I64(1));
        e.push(Stmt::Atomic { op: AtomicOp::Add, mem, index: lit32(0), value, old: Some(old) });
        let old = Expr::Cast(Ty::I32, Box::new(Expr::Var(old)));
        e.push(Stmt::Store(Mem::Shared(slot), lit32(0), old));
    });
    e.push(Stmt::Barrier);
    e.named("ticket", Ty::I32, Expr::Load(Mem::Shared(slot), Box::new(lit32(0))))
}

fn shared_slots(e: &mut Emit<'_>, algebra: &Algebra) -> Vec<crate::ir::simt::SharedId> {
    (0..algebra.components()).map(|_| e.kernel.shared("ahead", algebra.dtype, 1, 16)).collect()
}

/// A scan's terms and results, and what goes before a segment by looking at the segments before it.
struct Ahead<'s, 'a> {
    vectors: Vectors<'s, 'a>,
    split: &'s Split,
    /// The ticket counter, the words of segments, the words of windows.
    shared: BufferId,
    row: Expr,
    number: Expr,
    rows: i64,
    /// What goes before the first point.
    start: Option<Vec<Expr>>,
    slots: Vec<crate::ir::simt::SharedId>,
}

impl<'a> Flow<'a> for Ahead<'_, 'a> {
    fn load(&self, e: &mut Emit<'a>, first: &Num, vector: i64) {
        self.vectors.load(e, first, vector);
    }

    fn terms(&self, e: &mut Emit<'a>, first: &Num, vector: i64, items: &[ArrayId]) {
        self.vectors.terms(e, first, vector, items);
    }

    fn results(&self, e: &mut Emit<'a>, first: &Num, vector: i64, items: &[ArrayId], before: &Expr) {
        self.vectors.results(e, first, vector, items, before);
    }

    fn looks_back(&self) -> bool {
        true
    }

    fn ahead(&self, e: &mut Emit<'a>, algebra: &Algebra, total: &[Expr]) -> Vec<Expr> {
        let words = e.pointer(self.shared, true);
        let total = algebra.named(e, "total", total.to_vec());
        let own = add(mul(self.row.clone(), lit32(self.split.segments as i32)), self.number.clone());
        let first = cmp(CmpOp::Eq, Expr::Special(Special::ThreadX), lit32(0));
        e.if_then(first, |e| self.publish(e, algebra, words, own, &total, false));
        let mut first_warp = cmp(CmpOp::Lt, Expr::Special(Special::ThreadX), lit32(WARP as i32));
        if self.split.layout.lanes == WARP {
            first_warp = Expr::Lit(Value::Bool(true));
        }
        e.if_then(first_warp, |e| self.look(e, algebra, words, &total));
        e.push(Stmt::Barrier);
        let load = |s: &crate::ir::simt::SharedId| Expr::Load(Mem::Shared(*s), Box::new(lit32(0)));
        algebra.named(e, "before", self.slots.iter().map(load).collect())
    }
}

impl<'a> Ahead<'_, 'a> {
    /// The first warp: leaves in shared memory what goes before the segment.
    fn look(&self, e: &mut Emit<'a>, algebra: &Algebra, words: ParamId, total: &[Expr]) {
        let window = self.split.window as i32;
        let number = || self.number.clone();
        let place = int_op(IntOp::And, number(), lit32(window - 1));
        let place = e.named("place", Ty::I32, place);
        let first = e.named("first", Ty::I32, sub(number(), place.clone()));
        let windows_before = int_op(IntOp::Div, number(), lit32(window));
        let windows_before = e.named("windows", Ty::I32, windows_before);
        let behind = self.windows(e, algebra, words, &windows_before);
        let inside = self.segments(e, algebra, words, &first, &place);
        let before = algebra.both(e, &behind, &inside);
        let before = algebra.named(e, "before", before);
        let lane = cmp(CmpOp::Eq, Expr::Special(Special::Lane), lit32(0));
        let last = and(cmp(CmpOp::Eq, place, lit32(window - 1)), lane.clone());
        e.if_then(last, |e| {
            let whole = algebra.both(e, &before, total);
            let whole = algebra.named(e, "whole", whole);
            let at = add(mul(self.row.clone(), lit32(self.split.windows() as i32)), windows_before);
            self.publish(e, algebra, words, at, &whole, true);
        });
        let before = match &self.start {
            Some(start) => algebra.both(e, start, &before),
            None => before,
        };
        e.if_then(lane, |e| {
            for (&s, v) in self.slots.iter().zip(before) {
                e.push(Stmt::Store(Mem::Shared(s), lit32(0), v));
            }
        });
    }

    /// The combination of all windows before.
    fn windows(&self, e: &mut Emit<'a>, algebra: &Algebra, words: ParamId, windows: &Expr) -> Vec<Expr> {
        let some = cmp(CmpOp::Gt, windows.clone(), lit32(0));
        let wanted = Expr::Select(
            Box::new(some.clone()),
            Box::new(lit32(self.split.words as i32)),
            Box::new(lit32(0)),
        );
        let at = add(mul(self.row.clone(), lit32(self.split.windows() as i32)), windows.clone());
        // The window's that ended last, where there is one.
        let at = self.word(sub(at, lit32(1)), true);
        let found = self.wait(e, words, at, wanted, self.split.words);
        let v = self.value(e, algebra, found, 0);
        let v = algebra.or_unit(&some, v);
        algebra.named(e, "behind", v)
    }

    /// The combination of the segments of the window before this one: lanes have neighbours, in order.
    fn segments(
        &self,
        e: &mut Emit<'a>,
        algebra: &Algebra,
        words: ParamId,
        first: &Expr,
        place: &Expr,
    ) -> Vec<Expr> {
        let (each, per) = (self.split.each(), self.split.words);
        let mine = mul(Expr::Special(Special::Lane), lit32(each as i32));
        let mine = e.named("mine", Ty::I32, mine);
        let left = sub(place.clone(), mine.clone());
        let left = int_op(IntOp::Max, int_op(IntOp::Min, left, lit32(each as i32)), lit32(0));
        let left = e.named("left", Ty::I32, left);
        let row = mul(self.row.clone(), lit32(self.split.segments as i32));
        let at = self.word(add(row, add(first.clone(), mine)), false);
        let found = self.wait(e, words, at, mul(left.clone(), lit32(per as i32)), each * per);
        let sum = algebra.vars(e, "sum", algebra.unit.clone());
        for i in 0..each {
            let there = cmp(CmpOp::Lt, lit32(i as i32), left.clone());
            let v = self.value(e, algebra, found, i);
            let v = algebra.or_unit(&there, v);
            let v = algebra.named(e, "next", v);
            let next = algebra.both(e, &values(&sum), &v);
            let next = algebra.named(e, "next", next);
            sum.iter().zip(next).for_each(|(&s, v)| e.push(Stmt::Set(s, v)));
        }
        algebra.warp_scan(e, &sum, WARP);
        let all = algebra.shuffled(e, &sum, ShuffleKind::Index, &lit32(WARP as i32 - 1));
        algebra.named(e, "inside", all)
    }

    /// Where the words of a segment (or window) of all rows' begin.
    fn word(&self, number: Expr, of_windows: bool) -> Expr {
        let Split { segments, words, .. } = *self.split;
        let base = FRONT + if of_windows { self.rows * segments * words } else { 0 };
        let number = Num { expr: Expr::Cast(Ty::I64, Box::new(number)), ty: Ty::I64 };
        let at = arith(IntOp::Mul, number, int_of(Ty::I64, words));
        arith(IntOp::Add, at, int_of(Ty::I64, base)).expr
    }

    fn wait(&self, e: &mut Emit<'a>, mem: ParamId, at: Expr, wanted: Expr, count: i64) -> ArrayId {
        let array = e.kernel.array("words", Ty::U32, count as u32);
        let outs = (0..count as u32).map(|i| Place::Elem(array, i)).collect();
        let op = Intrinsic::AwaitWords { mem, count: count as u8 };
        e.push(Stmt::Intrinsic { op, outs, args: vec![at, wanted] });
        array
    }

    fn publish(
        &self,
        e: &mut Emit<'a>,
        algebra: &Algebra,
        mem: ParamId,
        number: Expr,
        value: &[Expr],
        of_windows: bool,
    ) {
        let at = self.word(number, of_windows);
        let at = e.named("word", Ty::I64, at);
        let words = value.iter().flat_map(|v| to_words(algebra.ty, v)).collect::<Vec<_>>();
        for (i, word) in words.into_iter().enumerate() {
            let at = arith(IntOp::Add, Num { expr: at.clone(), ty: Ty::I64 }, int_of(Ty::I64, i as i64));
            let op = Intrinsic::PublishWord { mem };
            e.push(Stmt::Intrinsic { op, outs: Vec::new(), args: vec![at.expr, word] });
        }
    }

    /// The `i`-th partial result among words.
    fn value(&self, e: &mut Emit<'a>, algebra: &Algebra, words: ArrayId, i: i64) -> Vec<Expr> {
        let per = self.split.words / algebra.components() as i64;
        let word =
            |c: i64, j: i64| Expr::Elem(words, Box::new(lit32((i * self.split.words + c * per + j) as i32)));
        let all = (0..algebra.components() as i64)
            .map(|c| from_words(algebra.ty, &(0..per).map(|j| word(c, j)).collect::<Vec<_>>()))
            .collect();
        algebra.named(e, "ahead", all)
    }
}

/// A register's bits, low word first.
fn to_words(ty: Ty, v: &Expr) -> Vec<Expr> {
    let v = Box::new(v.clone());
    let wide = match ty {
        Ty::F32 => return vec![Expr::Bitcast(Ty::U32, v)],
        Ty::F64 => Expr::Bitcast(Ty::U64, v),
        Ty::I64 => Expr::Cast(Ty::U64, v),
        _ => return vec![Expr::Cast(Ty::U32, v)],
    };
    let shift = Expr::Int(IntOp::Shr, Box::new(wide.clone()), Box::new(u64_of(32)));
    [wide, shift].map(|w| Expr::Cast(Ty::U32, Box::new(w))).into()
}

fn from_words(ty: Ty, words: &[Expr]) -> Expr {
    let wide = |w: &Expr| Box::new(Expr::Cast(Ty::U64, Box::new(w.clone())));
    match (ty, words) {
        (Ty::F32, [w]) => Expr::Bitcast(Ty::F32, Box::new(w.clone())),
        (_, [low, high]) => {
            let high = Expr::Int(IntOp::Shl, wide(high), Box::new(u64_of(32)));
            let all = Box::new(Expr::Int(IntOp::Or, wide(low), Box::new(high)));
            if ty == Ty::F64 { Expr::Bitcast(Ty::F64, all) } else { Expr::Cast(Ty::I64, all) }
        }
        (_, words) => Expr::Cast(Ty::I32, Box::new(words[0].clone())),
    }
}

fn u64_of(v: u32) -> Expr {
    Expr::Cast(Ty::U64, Box::new(Expr::U32(v)))
}
