//! Scans by blocks: neighbouring threads take neighbouring vectors of a row, every warp a contiguous stretch.
//!
//! Each thread combines its vectors' elements in order, each warp its threads' totals by shuffles, the block its
//! warps' totals through shared memory; rows longer than a block takes at a time come in chunks with a carry.
//! The order of operands is kept, and how they are put together depends on the sizes alone.

use super::scalar::{Emit, Num, add, arith, cmp, int_of, lit32};
use super::scan_law::{Algebra, values};
use crate::ir::simt::{
    ArrayId, CmpOp, Expr, IntOp, Mem, SharedId, ShuffleKind, Special, Stmt, Ty, Unroll, VarId,
};

/// How the threads of a block lie over rows.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Threads of a row: a power of two.
    pub lanes: i64,
    /// Rows of a block; one, if the row takes more than a chunk.
    pub per_block: i64,
    /// Vectors of a thread.
    pub vectors: i64,
    /// Elements of a vector.
    pub width: i64,
}

const WARP: i64 = 32;

impl Layout {
    /// For rows of `n` points, of which a thread holds at most `most`, in blocks of at most `threads`; several short rows
    /// make a block of so many, if that is given.
    pub fn new(n: i64, width: i64, most: i64, threads: i64, block: Option<i64>) -> Layout {
        const BLOCK: i64 = 256;
        let threads = threads.max(WARP);
        let all = ((n + width - 1) / width).max(1);
        let most = (most / width).max(1);
        let short = all <= WARP;
        let lanes = if short { power(all) } else { power((all + most - 1) / most).clamp(WARP, threads) };
        let vectors = ((all + lanes - 1) / lanes).clamp(1, most);
        Layout { lanes, per_block: (block.unwrap_or(BLOCK) / lanes).max(1), vectors, width }
    }

    /// Points of a row that a block takes at a time.
    pub fn chunk(&self) -> i64 {
        self.lanes * self.vectors * self.width
    }

    fn side(&self) -> i64 {
        self.lanes.min(WARP)
    }

    fn warps(&self) -> i64 {
        (self.lanes / WARP).max(1)
    }
}

fn power(n: i64) -> i64 {
    (n.max(1) as u64).next_power_of_two() as i64
}

/// What a block scans, and where the result goes.
pub trait Flow<'a> {
    /// Starts the loads of a vector of points.
    fn load(&self, e: &mut Emit<'a>, first: &Num, vector: i64);
    /// Sets `items[at + i]` to the term at each point of a vector; an array a component of the algebra.
    fn terms(&self, e: &mut Emit<'a>, first: &Num, vector: i64, items: &[ArrayId]);
    /// Whether what goes before a chunk is found by `ahead`.
    fn looks_back(&self) -> bool {
        false
    }
    /// What goes before the block's chunk, of which this is the combination. All threads of the block call it.
    fn ahead(&self, _: &mut Emit<'a>, _: &Algebra, total: &[Expr]) -> Vec<Expr> {
        total.to_vec()
    }
    /// Takes the combination of all terms up to each point of a vector, and of those before it.
    fn results(&self, e: &mut Emit<'a>, first: &Num, vector: i64, items: &[ArrayId], before: &Expr);
}

/// A block that scans: its threads' places and what is carried from chunk to chunk.
pub struct Block {
    pub layout: Layout,
    algebra: Algebra,
    /// Row of the block, thread in its part of a warp, warp of the row.
    pub row: Num,
    side: Expr,
    warp: Expr,
    /// One array a component, where warps meet.
    shared: Vec<SharedId>,
    pub carry: Option<Vec<VarId>>,
    /// Chunks follow each other.
    again: bool,
}

impl Block {
    /// `carry`: what goes before the first chunk. Without one, a single chunk is all.
    pub fn new(
        e: &mut Emit<'_>,
        layout: Layout,
        algebra: Algebra,
        carry: Option<Vec<Expr>>,
        again: bool,
    ) -> Block {
        let thread = Num { expr: Expr::Special(Special::ThreadX), ty: Ty::I32 };
        let row = arith(IntOp::Div, thread.clone(), int_of(Ty::I32, layout.lanes));
        let row = Num { expr: e.named("row_in_block", Ty::I32, row.expr), ty: Ty::I32 };
        let in_row = super::scalar::int_op(IntOp::And, thread.expr, lit32(layout.lanes as i32 - 1));
        let in_row = e.named("lane", Ty::I32, in_row);
        let side = super::scalar::int_op(IntOp::And, in_row.clone(), lit32(layout.side() as i32 - 1));
        let side = e.named("side", Ty::I32, side);
        let warp = super::scalar::int_op(IntOp::Div, in_row, lit32(layout.side() as i32));
        let warp = if layout.warps() > 1 { e.named("warp", Ty::I32, warp) } else { lit32(0) };
        let slots = (layout.warps() * layout.per_block) as u32;
        let arrays = if layout.warps() > 1 { algebra.components() } else { 0 };
        let shared = (0..arrays).map(|_| e.kernel.shared("totals", algebra.dtype, slots, 16)).collect();
        let carry = carry.map(|c| c.into_iter().map(|c| e.let_var("carry", algebra.ty, c)).collect());
        Block { layout, algebra, row, side, warp, shared, carry, again }
    }

    fn elems(items: &[ArrayId], i: i64) -> Vec<Expr> {
        items.iter().map(|&a| Expr::Elem(a, Box::new(lit32(i as i32)))).collect()
    }

    fn set_elems(e: &mut Emit<'_>, items: &[ArrayId], i: i64, values: Vec<Expr>) {
        items.iter().zip(values).for_each(|(&a, v)| e.push(Stmt::SetElem(a, lit32(i as i32), v)));
    }

    /// One chunk from position `start`; positions from `end` on are outside (`None`: all are inside).
    pub fn chunk<'a>(&self, e: &mut Emit<'a>, start: &Num, end: Option<&Num>, flow: &dyn Flow<'a>) {
        let Layout { vectors, width, .. } = self.layout;
        let len = (vectors * width) as u32;
        let items: Vec<ArrayId> =
            (0..self.algebra.components()).map(|_| e.kernel.array("items", self.algebra.ty, len)).collect();
        let places: Vec<(Num, Option<Expr>)> = (0..vectors).map(|j| self.place(e, start, end, j)).collect();
        for (j, (at, inside)) in places.iter().enumerate() {
            within(e, inside, |e| flow.load(e, at, j as i64));
        }
        for (j, (at, inside)) in places.iter().enumerate() {
            if inside.is_some() {
                let all = j as i64 * width..(j as i64 + 1) * width;
                all.for_each(|i| Self::set_elems(e, &items, i, self.algebra.unit.clone()));
            }
            within(e, inside, |e| flow.terms(e, at, j as i64, &items));
        }
        let (before, total) = self.in_warp(e, &items);
        let base = self.in_block(e, total, flow);
        for (j, (at, inside)) in places.iter().enumerate() {
            let first = match (&base, &before[j]) {
                (Some(b), Some(p)) => Some(self.algebra.both(e, b, p)),
                (b, p) => b.clone().or(p.clone()),
            };
            let mut ahead = self.algebra.unit.last().cloned().expect("an algebra has a component");
            if let Some(first) = first {
                let first = values(&self.algebra.vars(e, "before", first));
                ahead.clone_from(&first[first.len() - 1]);
                let result = &items[items.len() - 1..];
                for i in j as i64 * width..(j as i64 + 1) * width {
                    let own = Self::elems(&items, i);
                    let v = self.algebra.result(e, &first, &own);
                    Self::set_elems(e, result, i, vec![v]);
                }
            }
            within(e, inside, |e| flow.results(e, at, j as i64, &items, &ahead));
        }
    }

    /// The first position of this thread's `j`-th vector, and whether it is inside.
    fn place(&self, e: &mut Emit<'_>, start: &Num, end: Option<&Num>, j: i64) -> (Num, Option<Expr>) {
        let Layout { vectors, width, .. } = self.layout;
        let ty = start.ty;
        let warp = arith(IntOp::Mul, i32_of(self.warp.clone()), int_of(Ty::I32, vectors));
        let turn = arith(IntOp::Add, warp, int_of(Ty::I32, j));
        let turn = arith(IntOp::Mul, turn, int_of(Ty::I32, self.layout.side()));
        let turn = arith(IntOp::Add, turn, i32_of(self.side.clone()));
        let off = arith(IntOp::Mul, turn, int_of(Ty::I32, width));
        let at = arith(IntOp::Add, start.clone(), Num { expr: super::read::to(off, ty), ty });
        let at = Num { expr: e.named("at", ty, at.expr), ty };
        let inside = end.map(|end| {
            let c = cmp(CmpOp::Lt, at.expr.clone(), end.expr.clone());
            e.named("inside", Ty::Bool, c)
        });
        (at, inside)
    }

    /// Scans every vector in its thread and over its warp's side; gives what goes before each vector within the
    /// warp's stretch, and the stretch's total.
    fn in_warp<'a>(&self, e: &mut Emit<'a>, items: &[ArrayId]) -> (Vec<Option<Vec<Expr>>>, Vec<Expr>) {
        let Layout { vectors, width, .. } = self.layout;
        let side = self.layout.side();
        let mut before = Vec::new();
        let mut running: Option<Vec<Expr>> = None;
        for j in 0..vectors {
            for i in j * width + 1..(j + 1) * width {
                let v = self.algebra.both(e, &Self::elems(items, i - 1), &Self::elems(items, i));
                let v = if v.len() > 1 { values(&self.algebra.vars(e, "next", v)) } else { v };
                Self::set_elems(e, items, i, v);
            }
            let sum = self.algebra.vars(e, "sum", Self::elems(items, (j + 1) * width - 1));
            self.algebra.warp_scan(e, &sum, side);
            let mut own = running.clone();
            if side > 1 {
                let left = self.algebra.shuffled(e, &sum, ShuffleKind::Up, &lit32(1));
                let inner = cmp(CmpOp::Gt, self.side.clone(), lit32(0));
                let left = self.algebra.or_unit(&inner, left);
                let left = values(&self.algebra.vars(e, "left", left));
                own = Some(match own {
                    Some(r) => self.algebra.both(e, &r, &left),
                    None => left,
                });
            }
            before.push(own.map(|v| self.algebra.named(e, "ahead", v)));
            let total = if side > 1 { self.last_of_side(e, &sum) } else { values(&sum) };
            let next = match running {
                Some(r) => self.algebra.both(e, &r, &total),
                None => total,
            };
            running = Some(self.algebra.named(e, "running", next));
        }
        (before, running.unwrap_or_else(|| self.algebra.unit.clone()))
    }

    fn last_of_side(&self, e: &mut Emit<'_>, sum: &[VarId]) -> Vec<Expr> {
        let last = self.layout.side() as i32 - 1;
        let lane = super::scalar::int_op(IntOp::Or, Expr::Special(Special::Lane), lit32(last));
        self.algebra.shuffled(e, sum, ShuffleKind::Index, &lane)
    }

    /// What goes before this warp's stretch; moves the carry on.
    fn in_block<'a>(&self, e: &mut Emit<'a>, total: Vec<Expr>, flow: &dyn Flow<'a>) -> Option<Vec<Expr>> {
        let (mut base, mut all) = (None, total.clone());
        if !self.shared.is_empty() {
            let warps = self.layout.warps();
            let first = arith(IntOp::Mul, self.row.clone(), int_of(Ty::I32, warps)).expr;
            let first = e.named("first", Ty::I32, first);
            let lane = Expr::Special(Special::Lane);
            let one = cmp(CmpOp::Eq, lane.clone(), lit32(0));
            let to = add(first.clone(), self.warp.clone());
            e.if_then(one, |e| {
                for (&s, t) in self.shared.iter().zip(total) {
                    e.push(Stmt::Store(Mem::Shared(s), to.clone(), t));
                }
            });
            e.push(Stmt::Barrier);
            let sum = self.algebra.vars(e, "sum", self.algebra.unit.clone());
            let mine = cmp(CmpOp::Lt, lane.clone(), lit32(warps as i32));
            let place = add(first, lane);
            e.if_then(mine, |e| {
                for (&s, &v) in self.shared.iter().zip(&sum) {
                    e.push(Stmt::Set(v, Expr::Load(Mem::Shared(s), Box::new(place.clone()))));
                }
            });
            self.algebra.warp_scan(e, &sum, warps);
            let left = super::scalar::sub(self.warp.clone(), lit32(1));
            let left = self.algebra.shuffled(e, &sum, ShuffleKind::Index, &left);
            let inner = cmp(CmpOp::Gt, self.warp.clone(), lit32(0));
            let left = self.algebra.or_unit(&inner, left);
            base = Some(values(&self.algebra.vars(e, "base", left)));
            if self.again || flow.looks_back() {
                all = self.algebra.shuffled(e, &sum, ShuffleKind::Index, &lit32(warps as i32 - 1));
            }
        }
        if flow.looks_back() {
            let before = flow.ahead(e, &self.algebra, &all);
            let own = match base {
                Some(b) => self.algebra.both(e, &before, &b),
                None => before,
            };
            return Some(values(&self.algebra.vars(e, "base", own)));
        }
        let Some(carry) = &self.carry else { return base };
        let before = values(carry);
        let own = match base {
            Some(b) => self.algebra.both(e, &before, &b),
            None => before.clone(),
        };
        let own = values(&self.algebra.vars(e, "base", own));
        if self.again {
            let next = self.algebra.both(e, &before, &all);
            let next = if next.len() > 1 { values(&self.algebra.vars(e, "next", next)) } else { next };
            carry.iter().zip(next).for_each(|(&c, n)| e.push(Stmt::Set(c, n)));
            if !self.shared.is_empty() {
                e.push(Stmt::Barrier);
            }
        }
        Some(own)
    }

    /// All chunks of the positions `lo..hi`, of which there are at most `most`.
    pub fn chunks<'a>(&self, e: &mut Emit<'a>, (lo, hi): (Num, Num), even: bool, flow: &dyn Flow<'a>) {
        let end = (!even).then_some(&hi);
        if !self.again {
            return self.chunk(e, &lo, end, flow);
        }
        let var = e.kernel.var("chunk", lo.ty);
        let start = Num { expr: Expr::Var(var), ty: lo.ty };
        let body = e.block(|e| self.chunk(e, &start, end, flow));
        let step = int_of(lo.ty, self.layout.chunk()).expr;
        e.push(Stmt::For { var, lo: lo.expr, hi: hi.expr.clone(), step, unroll: Unroll::None, body });
    }
}

fn i32_of(expr: Expr) -> Num {
    Num { expr, ty: Ty::I32 }
}

fn within<'a>(e: &mut Emit<'a>, inside: &Option<Expr>, f: impl FnOnce(&mut Emit<'a>)) {
    match inside {
        Some(c) => e.if_then(c.clone(), f),
        None => e.scope(f),
    }
}
