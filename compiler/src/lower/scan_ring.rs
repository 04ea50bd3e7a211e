//! Scans along an axis that is not the contiguous one, in one pass: a warp takes 32 neighbouring rows, a lane each, from
//! the first point to the last. What they read is copied to a ring in shared memory some steps ahead, so that enough bytes
//! are on their way although few threads run. Points follow each other as the definition says: nothing is reassociated.
//! What a term or a step is made of does not hang on the points before, so four warps of a block make it, each for a part of
//! the steps in a place of the ring, and meet in shared memory; each then combines all of them and finishes its own part.

use super::hopper_loop::call;
use super::map::decode;
use super::read::Index;
use super::scalar::{Emit, Num, add, arith, cmp, int_of, int_op, lit32, mul};
use super::scan::Shape;
use super::scan_before::Here;
use super::scan_flow::chunk_of;
use super::scan_law::{Algebra, values};
use super::{Lowering, MAX_GRID_X, Refusal};
use crate::ir::graph::{AxisId, Expr as Node, ExprId, Read};
use crate::ir::simt::{
    CmpOp, Expr, IntOp, Intrinsic, Mem, ParamId, SharedId, Special, Stmt, Ty, Unroll, VarId,
};

const LANES: i64 = 32;
/// Steps that are copied together.
const STEPS: i64 = 16;
/// Warps that make terms together, and steps of each.
const WARPS: i64 = 4;
const OWN: i64 = STEPS / WARPS;
/// Bytes of a ring, about, and its places.
const BYTES: i64 = 24 << 10;
const PLACES: std::ops::RangeInclusive<i64> = 3..=8;
/// Fewer rows leave multiprocessors without a few warps each.
const ENOUGH: i64 = 4096;
/// Where there are fewer, a multiprocessor has one block, whose ring is so many times as long.
const MANY: i64 = 8192;
const LONGER: i64 = 4;
/// Bytes of a copy.
const COPY: i64 = 16;

/// A read that is copied ahead, with the axes that it is written in.
struct Ahead<'a> {
    expr: ExprId,
    read: Read,
    axes: &'a [AxisId],
    /// Bytes of an element.
    size: i64,
}

pub(super) struct Ring<'a> {
    reads: Vec<Ahead<'a>>,
    places: i64,
    warps: i64,
}

impl Ring<'_> {
    fn threads(&self) -> i64 {
        self.warps * LANES
    }
}

/// A read's part of the ring.
struct Copied<'r, 'a> {
    ahead: &'r Ahead<'a>,
    shared: SharedId,
    mem: ParamId,
}

impl<'a> Shape<'a> {
    /// What is copied ahead, if that makes one pass of it.
    pub(super) fn ring(&self, cx: &Lowering<'a>, rows: i64) -> Option<Ring<'a>> {
        let graph = cx.graph;
        let dims = &graph.tensor(self.target).dims;
        let last = dims.len() - 1;
        let fits = self.along < last && dims[last] >= LANES && (ENOUGH..=MAX_GRID_X * LANES).contains(&rows);
        if !fits || self.n < 2 * STEPS || cx.target.compute < (8, 0) {
            return None;
        }
        let roots = self.roots();
        let own = roots.0.into_iter().chain([roots.1]).map(|r| (r, self.axes));
        let all = own.chain(self.maps.iter().map(|m| (m.value, &m.axes[..])));
        let mut reads: Vec<Ahead> = Vec::new();
        for (root, axes) in all {
            for expr in crate::pass::inline::below(graph, root) {
                let Node::Read(read) = graph.expr(expr) else { continue };
                let made_here = self.outs().iter().any(|o| o.0 == read.tensor) || read.tensor == self.target;
                if made_here || reads.iter().any(|r| r.expr == expr) {
                    continue;
                }
                let home = cx.home(read.tensor);
                let size = home.dtype.bits() as i64 / 8;
                let width = if size == 0 { continue } else { COPY / size };
                let chunk = chunk_of(graph, &cx.facts, home, (expr, read), axes, axes[last], width);
                if chunk == Some(width) && cx.facts.free(expr).contains(&axes[self.along]) {
                    reads.push(Ahead { expr, read: read.clone(), axes, size });
                }
            }
        }
        let step: i64 = reads.iter().map(|r| r.size * LANES).sum();
        if step == 0 || step * STEPS * PLACES.start() > 2 * BYTES {
            return None;
        }
        let longer = if rows < MANY { LONGER } else { 1 };
        let places = (longer * BYTES / (step * STEPS)).clamp(*PLACES.start(), longer * PLACES.end());
        let warps = if self.has_terms(graph) { WARPS } else { 1 };
        Some(Ring { reads, places, warps })
    }

    pub(super) fn by_ring(&self, cx: &mut Lowering<'a>, rows: i64, ring: &Ring<'a>) -> Result<(), Refusal> {
        let mut e = cx.emit(&self.name);
        e.kernel.block = [ring.threads() as u32, 1, 1];
        e.kernel.grid = [((rows + LANES - 1) / LANES) as u32, 1, 1];
        e.line(self.span);
        let ty = self.position_ty();
        let copied: Vec<Copied> = ring.reads.iter().map(|r| part(&mut e, r, ring.places)).collect();
        let first = mul(Expr::Special(Special::BlockX), lit32(LANES as i32));
        let first = e.named("first", Ty::I32, first);
        let sides: Vec<Side> =
            copied.iter().map(|c| self.side(&mut e, c, &first, (rows, ring.threads()))).collect();
        let own = add(first, Expr::Special(Special::Lane));
        let (own, valid) = clamped(&mut e, own, rows);
        let own = decode(&mut e, Num { expr: own, ty: Ty::I32 }, &self.rows);
        let copy = |e: &mut Emit<'a>, start: &Num, place: &Expr| {
            copied.iter().zip(&sides).for_each(|(c, s)| self.copy(e, c, s, start, place));
            call(e, Intrinsic::CpAsyncCommit, Vec::new());
        };
        for p in 0..ring.places - 1 {
            copy(&mut e, &int_of(ty, p * STEPS), &lit32(p as i32));
        }
        let place = e.let_var("place", Ty::I32, lit32(0));
        let (algebra, acc) = self.begin_rows(&mut e, &own);
        let apart = if ring.warps > 1 { algebra.components() } else { 0 };
        let terms: Vec<SharedId> =
            (0..apart).map(|_| e.kernel.shared("terms", algebra.dtype, (STEPS * LANES) as u32, 16)).collect();
        let var = e.kernel.var("start", ty);
        let body = e.block(|e| {
            call(e, Intrinsic::CpAsyncWait(ring.places as u8 - 2), Vec::new());
            e.push(if ring.warps > 1 { Stmt::Barrier } else { Stmt::WarpBarrier });
            let start = Num { expr: Expr::Var(var), ty };
            let ahead = arith(IntOp::Add, start.clone(), int_of(ty, (ring.places - 1) * STEPS));
            let before = cmp(CmpOp::Eq, Expr::Var(place), lit32(0));
            let free = Expr::Select(
                Box::new(before),
                Box::new(lit32(ring.places as i32 - 1)),
                Box::new(add(Expr::Var(place), lit32(-1))),
            );
            let free = e.named("free", Ty::I32, free);
            copy(e, &ahead, &free);
            e.scope(|e| {
                self.bind_rows(e, &own);
                let slot = mul(Expr::Var(place), lit32((STEPS * LANES) as i32));
                let slot = e.named("slot", Ty::I32, add(slot, Expr::Special(Special::Lane)));
                let at = Tile { copied: &copied, slot, start, valid: &valid };
                match terms.is_empty() {
                    true => self.steps_of(e, &at, (&algebra, &acc)),
                    false => self.steps_apart(e, &at, (&algebra, &acc), &terms),
                }
            });
            let next = add(Expr::Var(place), lit32(1));
            let wrapped = cmp(CmpOp::Eq, next.clone(), lit32(ring.places as i32));
            let next = Expr::Select(Box::new(wrapped), Box::new(lit32(0)), Box::new(next));
            e.push(Stmt::Set(place, next));
        });
        let (lo, hi, step) = (int_of(ty, 0).expr, int_of(ty, self.n).expr, int_of(ty, STEPS).expr);
        e.push(Stmt::For { var, lo, hi, step, unroll: Unroll::None, body });
        call(&mut e, Intrinsic::CpAsyncWait(0), Vec::new());
        cx.launch(e);
        Ok(())
    }

    /// The value before the first point.
    fn begin_rows(&self, e: &mut Emit<'a>, own: &[Num]) -> (Algebra, Vec<VarId>) {
        let algebra = self.algebra(e);
        let acc = algebra.vars(e, "acc", algebra.unit.clone());
        e.scope(|e| {
            self.bind_rows(e, own);
            if let Some(start) = self.start(e) {
                acc.iter().zip(start).for_each(|(&a, v)| e.push(Stmt::Set(a, v)));
            }
        });
        (algebra, acc)
    }

    /// The steps that stand in a place of the ring, as they are written.
    fn steps_of(&self, e: &mut Emit<'a>, tile: &Tile<'_, '_, 'a>, (algebra, acc): (&Algebra, &[VarId])) {
        for j in 0..STEPS {
            let at = arith(IntOp::Add, tile.start.clone(), int_of(tile.start.ty, j));
            self.if_inside(e, &at, |e| {
                tile.bind(e, lit32(j as i32));
                self.next(e, algebra, &at, acc, &|e, at, v| self.finish_row(e, tile, at, v));
            });
        }
    }

    /// The same by several warps: the terms, then all combined by each, which finishes its own steps.
    fn steps_apart(
        &self,
        e: &mut Emit<'a>,
        tile: &Tile<'_, '_, 'a>,
        (algebra, acc): (&Algebra, &[VarId]),
        terms: &[SharedId],
    ) {
        let lane = || Expr::Special(Special::Lane);
        let warp = || Expr::Special(Special::Warp);
        let first = e.named("mine", Ty::I32, mul(warp(), lit32(OWN as i32)));
        for j in 0..OWN {
            let step = e.named("step", Ty::I32, add(first.clone(), lit32(j as i32)));
            let wide = super::read::to(Num { expr: step.clone(), ty: Ty::I32 }, tile.start.ty);
            let at = arith(IntOp::Add, tile.start.clone(), Num { expr: wide, ty: tile.start.ty });
            let at = Num { expr: e.named("at", at.ty, at.expr), ty: at.ty };
            self.if_inside(e, &at, |e| {
                tile.bind(e, step.clone());
                let x = algebra.vars(e, "x", algebra.unit.clone());
                self.term(e, &at, &[], &|e, v| {
                    x.iter().zip(v).for_each(|(&x, v)| e.push(Stmt::Set(x, v)));
                });
                let to = add(mul(step, lit32(LANES as i32)), lane());
                let to = e.named("to", Ty::I32, to);
                for (&s, &x) in terms.iter().zip(&x) {
                    e.push(Stmt::Store(Mem::Shared(s), to.clone(), Expr::Var(x)));
                }
            });
        }
        e.push(Stmt::Barrier);
        let result = *acc.last().expect("an algebra has a component");
        for j in 0..STEPS {
            let at = arith(IntOp::Add, tile.start.clone(), int_of(tile.start.ty, j));
            self.if_inside(e, &at, |e| {
                let from = add(lane(), lit32((j * LANES) as i32));
                let load = |s: &SharedId| Expr::Load(Mem::Shared(*s), Box::new(from.clone()));
                let x = algebra.named(e, "x", terms.iter().map(load).collect());
                let v = algebra.result(e, &values(acc), &x);
                let before = self.before(e, result);
                e.push(Stmt::Set(result, v));
                e.if_then(cmp(CmpOp::Eq, warp(), lit32((j / OWN) as i32)), |e| {
                    tile.bind(e, lit32(j as i32));
                    self.finish_row(e, tile, &at, Here { value: Expr::Var(result), before: before.clone() });
                });
            });
        }
    }

    /// What follows where a position is inside.
    fn if_inside(&self, e: &mut Emit<'a>, at: &Num, f: impl FnOnce(&mut Emit<'a>)) {
        match self.n % STEPS {
            0 => e.scope(f),
            _ => e.if_then(cmp(CmpOp::Lt, at.expr.clone(), int_of(at.ty, self.n).expr), f),
        }
    }

    fn finish_row(&self, e: &mut Emit<'a>, tile: &Tile<'_, '_, 'a>, at: &Num, v: Here) {
        let finish = |e: &mut Emit<'a>| {
            self.finish(e, at, v.clone(), &|e, slot, n| self.store_here(e, slot, n));
        };
        match tile.valid {
            Some(valid) => e.if_then(valid.clone(), finish),
            None => finish(e),
        }
    }

    /// Where a lane's copies of a read begin: rows, and the first step.
    fn side(&self, e: &mut Emit<'a>, c: &Copied<'_, 'a>, first: &Expr, (rows, threads): (i64, i64)) -> Side {
        let width = COPY / c.ahead.size;
        let chunks = LANES / width;
        let thread = || Expr::Special(Special::ThreadX);
        let part = int_op(IntOp::And, thread(), lit32(chunks as i32 - 1));
        let column = mul(part, lit32(width as i32));
        let column = e.named("column", Ty::I32, column);
        let (row, valid) = clamped_chunk(e, add(first.clone(), column.clone()), rows, width);
        let at = decode(e, Num { expr: row, ty: Ty::I32 }, &self.rows);
        let step = int_op(IntOp::Div, thread(), lit32(chunks as i32));
        let step = e.named("step", Ty::I32, step);
        Side { at, valid, column, step, each: threads / chunks }
    }

    /// Starts the copies of a read's steps from a position on; what is beyond the last is zero.
    fn copy(&self, e: &mut Emit<'a>, c: &Copied<'_, 'a>, side: &Side, start: &Num, place: &Expr) {
        let each = side.each;
        let base = mul(place.clone(), lit32((STEPS * LANES) as i32));
        let base = e.named("base", Ty::I32, base);
        for i in 0..(STEPS / each).max(1) {
            let step = add(side.step.clone(), lit32((i * each) as i32));
            let step = e.named("step", Ty::I32, step);
            let to = add(base.clone(), add(mul(step.clone(), lit32(LANES as i32)), side.column.clone()));
            let at = Num {
                expr: super::read::to(Num { expr: step.clone(), ty: Ty::I32 }, start.ty),
                ty: start.ty,
            };
            let at = arith(IntOp::Add, start.clone(), at);
            let at = Num { expr: e.named("at", at.ty, at.expr), ty: at.ty };
            let last = int_of(at.ty, self.n - 1);
            let inside = cmp(CmpOp::Le, at.expr.clone(), last.expr.clone());
            let inside = match &side.valid {
                Some(v) => super::scalar::and(inside, v.clone()),
                None => inside,
            };
            let bytes = Expr::Select(Box::new(inside), Box::new(lit32(COPY as i32)), Box::new(lit32(0)));
            let at = arith(IntOp::Min, at, last);
            let at = Num { expr: e.named("at", at.ty, at.expr), ty: at.ty };
            let copy = |e: &mut Emit<'a>| {
                let from = self.offset_of(e, c, side, &at);
                let to = Expr::SharedAddr(c.shared, Box::new(to));
                let op = Intrinsic::CpAsync { mem: c.mem, bytes: COPY as u8 };
                e.push(Stmt::Intrinsic { op, outs: Vec::new(), args: vec![to, from, bytes] });
            };
            // More lanes than copies.
            match STEPS % each {
                0 => e.scope(copy),
                _ => e.if_then(cmp(CmpOp::Lt, step, lit32(STEPS as i32)), copy),
            }
        }
    }

    fn offset_of(&self, e: &mut Emit<'a>, c: &Copied<'_, 'a>, side: &Side, at: &Num) -> Expr {
        e.scope(|e| {
            let t = e.graph.tensor(self.target);
            let others = (0..t.dims.len()).filter(|&d| d != self.along);
            for (d, n) in others.zip(&side.at) {
                let v = arith(IntOp::Add, n.clone(), int_of(n.ty, t.lo[d]));
                self.bind_everywhere(e, d, &v);
            }
            self.bind_along(e, at);
            debug_assert!(c.ahead.axes.iter().all(|a| e.axis_value(*a).is_some()));
            let index: Vec<Index> = c.ahead.read.index.iter().map(|&i| e.index(i)).collect();
            let offset = e.offset(c.ahead.read.tensor, &index);
            let wide = e.home(c.ahead.read.tensor).len > i32::MAX as i64;
            e.named("from", if wide { Ty::I64 } else { Ty::I32 }, offset)
        })
    }
}

/// A lane's copies.
struct Side {
    /// The coordinates of their first row.
    at: Vec<Num>,
    valid: Option<Expr>,
    /// The first row in the block, and the first step.
    column: Expr,
    step: Expr,
    /// Steps that all threads copy at a time.
    each: i64,
}

/// The steps in a place of the ring.
struct Tile<'t, 'r, 'a> {
    copied: &'t [Copied<'r, 'a>],
    /// The lane's element of the first step.
    slot: Expr,
    start: Num,
    valid: &'t Option<Expr>,
}

impl<'a> Tile<'_, '_, 'a> {
    /// What was copied for a step takes the place of the reads.
    fn bind(&self, e: &mut Emit<'a>, step: Expr) {
        for c in self.copied {
            let ty = Ty::of(e.graph.ty(c.ahead.expr));
            let from = add(self.slot.clone(), mul(step.clone(), lit32(LANES as i32)));
            let v = e.let_var("in", ty, Expr::Load(Mem::Shared(c.shared), Box::new(from)));
            e.bind(c.ahead.expr, Expr::Var(v));
        }
    }
}

fn part<'r, 'a>(e: &mut Emit<'a>, ahead: &'r Ahead<'a>, places: i64) -> Copied<'r, 'a> {
    let home = e.home(ahead.read.tensor);
    let name = format!("ring_{}", e.graph.tensor(ahead.read.tensor).name);
    let shared = e.kernel.shared(name, home.dtype, (places * STEPS * LANES) as u32, COPY as u32);
    Copied { ahead, shared, mem: e.tensor_param(ahead.read.tensor, false) }
}

/// A row that exists, and whether it is the one asked for, if that is in question.
fn clamped(e: &mut Emit<'_>, row: Expr, rows: i64) -> (Expr, Option<Expr>) {
    clamped_chunk(e, row, if rows % LANES == 0 { i64::MAX } else { rows }, 1)
}

/// The same for the first of `width` rows.
fn clamped_chunk(e: &mut Emit<'_>, row: Expr, rows: i64, width: i64) -> (Expr, Option<Expr>) {
    let row = e.named("row", Ty::I32, row);
    if rows == i64::MAX || rows % LANES == 0 {
        return (row, None);
    }
    let valid = cmp(CmpOp::Lt, row.clone(), lit32(rows as i32));
    let valid = e.named("in_rows", Ty::Bool, valid);
    let row = int_op(IntOp::Min, row, lit32((rows - width) as i32));
    (e.named("row", Ty::I32, row), Some(valid))
}
