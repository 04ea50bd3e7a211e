//! Form `scan`: prefix combinations along one axis.
//!
//! Short axes, and many rows of moderate ones: a thread a row. Else a block takes a row in chunks: each thread
//! combines a few neighbours, the block scans the threads' totals in shared memory, a carry goes from chunk to chunk.
//! Long axes with few rows are cut in segments: their totals first, then each segment with the combination of
//! all totals before it. The order of operands is kept, and is the same in every run.

use super::map::{count, decode, launch_points};
use super::read::{Index, to};
use super::scalar::{Emit, Num, add, cmp, int_of, lit32, mul, sub};
use super::{Lowering, MAX_GRID_X, Refusal};
use crate::ir::graph::{Scan, Stmt as GraphStmt};
use crate::ir::plan::PlanKernel;
use crate::ir::program::BufferId;
use crate::ir::simt::{CmpOp, Expr, IntOp, Mem, SharedId, Special, Stmt, Ty, Unroll, VarId};
use crate::vocab::dtype;

/// Threads of a block.
const THREADS: i64 = 256;
/// Neighbours that a thread combines.
const ITEMS: i64 = 4;
/// Points of a segment, where a row is cut.
const SEGMENT: i64 = 8192;
/// Rows from which on threads that take one each are enough.
const MANY_ROWS: i64 = 8192;

pub fn lower<'a>(cx: &mut Lowering<'a>, k: &'a PlanKernel) -> Result<(), Refusal> {
    let graph = cx.graph;
    for &s in &k.stmts {
        if let GraphStmt::Scan(scan) = &graph.stmts[s] {
            Shape::new(cx, k, scan)?.lower(cx)?;
        }
    }
    Ok(())
}

/// One scan, taken apart.
struct Shape<'a> {
    name: String,
    scan: &'a Scan,
    /// Extents of the other axes.
    rows: Vec<i64>,
    lo: i64,
    n: i64,
    ty: Ty,
}

/// Shared memory and carried value of a block that scans.
struct Block {
    shared: SharedId,
    carry: VarId,
}

impl<'a> Shape<'a> {
    fn new(cx: &Lowering<'a>, k: &PlanKernel, scan: &'a Scan) -> Result<Shape<'a>, Refusal> {
        let t = cx.graph.tensor(scan.target);
        let mut rows = t.dims.clone();
        let n = rows.remove(scan.along);
        let shape = Shape {
            name: k.name.clone(),
            scan,
            rows,
            lo: t.lo[scan.along],
            n,
            ty: Ty::of(cx.graph.ty(scan.body)),
        };
        count(&t.dims, scan.span, &k.name)?;
        Ok(shape)
    }

    fn lower(&self, cx: &mut Lowering<'a>) -> Result<(), Refusal> {
        let rows: i64 = self.rows.iter().product();
        if rows == 0 || self.n == 0 {
            return Ok(());
        }
        let serial = self.n <= 32 || rows >= MANY_ROWS && self.n <= 4096;
        if serial || self.n > i32::MAX as i64 / 2 && rows > MAX_GRID_X {
            return self.by_threads(cx);
        }
        let segments = (self.n + SEGMENT - 1) / SEGMENT;
        if rows >= 128 || segments < 4 || rows * segments > MAX_GRID_X {
            return self.by_blocks(cx, rows, 1, None);
        }
        self.by_segments(cx, rows, segments)
    }

    /// Binds the axes other than the scan's.
    fn bind_rows(&self, e: &mut Emit<'a>, at: &[Num]) {
        let t = e.graph.tensor(self.scan.target);
        let others = (0..t.dims.len()).filter(|&d| d != self.scan.along);
        for (d, n) in others.zip(at) {
            let v = super::scalar::arith(IntOp::Add, n.clone(), int_of(n.ty, t.lo[d]));
            let v = Num { expr: e.named("ax", v.ty, v.expr), ty: v.ty };
            e.bind_axis(self.scan.axes[d], v.expr, v.ty);
        }
    }

    /// The term at a position (from 0) that is inside: the body, or the unit where the condition is false.
    fn term(&self, e: &mut Emit<'a>, at: Num, out: VarId) {
        e.scope(|e| {
            let v = super::scalar::arith(IntOp::Add, at.clone(), int_of(at.ty, self.lo));
            let v = Num { expr: e.named("t", v.ty, v.expr), ty: v.ty };
            e.bind_axis(self.scan.axes[self.scan.along], v.expr, v.ty);
            let body = |e: &mut Emit<'a>| {
                let v = e.num_as(self.scan.body, self.ty);
                e.push(Stmt::Set(out, v));
            };
            match self.scan.cond {
                Some(c) => {
                    let c = e.value(c);
                    e.if_then(c, body);
                }
                None => body(e),
            }
        });
    }

    fn store(&self, e: &mut Emit<'a>, at: Num, value: Expr) {
        let t = e.graph.tensor(self.scan.target);
        let index: Vec<Index> = (0..t.dims.len())
            .map(|d| {
                let num = if d == self.scan.along {
                    super::scalar::arith(IntOp::Add, at.clone(), int_of(at.ty, self.lo))
                } else {
                    e.axis_value(self.scan.axes[d]).cloned().unwrap_or_else(|| int_of(Ty::I32, t.lo[d]))
                };
                Index { num, range: super::index::Interval::new(t.lo[d], t.lo[d] + t.dims[d] - 1) }
            })
            .collect();
        let value = e.rounded(t.dtype, Num { expr: value, ty: self.ty });
        e.store(self.scan.target, &index, value.expr);
    }

    fn unit(&self, e: &mut Emit<'a>) -> Expr {
        let of: dtype::Ty = e.graph.ty(self.scan.body);
        e.unit(self.scan.combine, of, self.ty)
    }

    fn combined(&self, e: &mut Emit<'a>, a: Expr, b: Expr) -> Expr {
        let (a, b) = (Num { expr: a, ty: self.ty }, Num { expr: b, ty: self.ty });
        let n = e.combined(self.scan.combine, a, b);
        to(n, self.ty)
    }

    fn position_ty(&self) -> Ty {
        if self.n + 4 * THREADS * ITEMS < i32::MAX as i64 { Ty::I32 } else { Ty::I64 }
    }

    // A thread a row.

    fn by_threads(&self, cx: &mut Lowering<'a>) -> Result<(), Refusal> {
        launch_points(cx, &self.name, &self.rows, self.scan.span, |e, at| {
            self.bind_rows(e, at);
            let unit = self.unit(e);
            let acc = e.let_var("acc", self.ty, unit.clone());
            let ty = self.position_ty();
            let var = e.kernel.var("i", ty);
            let body = e.block(|e| {
                let at = Num { expr: Expr::Var(var), ty };
                let x = e.let_var("x", self.ty, unit);
                self.term(e, at.clone(), x);
                let v = self.combined(e, Expr::Var(acc), Expr::Var(x));
                e.push(Stmt::Set(acc, v));
                self.store(e, at, Expr::Var(acc));
            });
            let (lo, hi, step) = (int_of(ty, 0).expr, int_of(ty, self.n).expr, int_of(ty, 1).expr);
            e.push(Stmt::For { var, lo, hi, step, unroll: Unroll::Auto, body });
        })
    }

    // A block a row, or a segment of one.

    /// `parts` blocks for each row; `carried` holds, for each row and part, what goes before the part.
    fn by_blocks(
        &self,
        cx: &mut Lowering<'a>,
        rows: i64,
        parts: i64,
        carried: Option<BufferId>,
    ) -> Result<(), Refusal> {
        let mut e = self.begin(cx, rows * parts)?;
        let (row, lo, hi) = self.place(&mut e, parts);
        let unit = self.unit(&mut e);
        let first = match carried {
            Some(buffer) => {
                let p = e.pointer(buffer, false);
                Expr::Load(Mem::Global(p), Box::new(Expr::Special(Special::BlockX)))
            }
            None => unit.clone(),
        };
        self.bind_rows(&mut e, &row);
        let block = self.block(&mut e, first);
        self.chunks(&mut e, lo, hi, |e, at, inside| {
            let items = self.items(e, &at, &inside, &unit);
            let prefix = self.block_scan(e, &block, items[items.len() - 1], &unit);
            for (i, &item) in items.iter().enumerate() {
                let v = self.combined(e, Expr::Var(prefix), Expr::Var(item));
                let (here, at) = (inside[i].clone(), at[i].clone());
                e.if_then(here, |e| self.store(e, at, v));
            }
        });
        cx.launch(e);
        Ok(())
    }

    /// Totals of segments, their prefixes, then the segments.
    fn by_segments(&self, cx: &mut Lowering<'a>, rows: i64, segments: i64) -> Result<(), Refusal> {
        let dtype = cx.graph.ty(self.scan.body).stored();
        let totals = cx.workspace(format!("{}_totals", self.name), dtype, &[rows, segments]);
        let mut e = self.begin(cx, rows * segments)?;
        let (row, lo, hi) = self.place(&mut e, segments);
        self.bind_rows(&mut e, &row);
        let unit = self.unit(&mut e);
        let block = self.block(&mut e, unit.clone());
        self.chunks(&mut e, lo, hi, |e, at, inside| {
            let items = self.items(e, &at, &inside, &unit);
            self.block_scan(e, &block, items[items.len() - 1], &unit);
        });
        let first = cmp(CmpOp::Eq, Expr::Special(Special::ThreadX), lit32(0));
        let p = e.pointer(totals, true);
        let at = Expr::Special(Special::BlockX);
        e.if_then(first, |e| e.push(Stmt::Store(Mem::Global(p), at, Expr::Var(block.carry))));
        cx.launch(e);
        self.prefixes(cx, totals, rows, segments)?;
        self.by_blocks(cx, rows, segments, Some(totals))
    }

    /// Replaces each segment's total by the combination of all before it.
    fn prefixes(&self, cx: &mut Lowering<'a>, totals: BufferId, rows: i64, n: i64) -> Result<(), Refusal> {
        launch_points(cx, &self.name, &[rows], self.scan.span, |e, at| {
            let p = e.pointer(totals, true);
            let unit = self.unit(e);
            let acc = e.let_var("acc", self.ty, unit);
            let var = e.kernel.var("s", Ty::I32);
            let body = e.block(|e| {
                let place = add(mul(to(at[0].clone(), Ty::I32), lit32(n as i32)), Expr::Var(var));
                let place = e.named("at", Ty::I32, place);
                let x = e.let_var("x", self.ty, Expr::Load(Mem::Global(p), Box::new(place.clone())));
                e.push(Stmt::Store(Mem::Global(p), place, Expr::Var(acc)));
                let v = self.combined(e, Expr::Var(acc), Expr::Var(x));
                e.push(Stmt::Set(acc, v));
            });
            let (lo, hi, step) = (lit32(0), lit32(n as i32), lit32(1));
            e.push(Stmt::For { var, lo, hi, step, unroll: Unroll::None, body });
        })
    }

    fn begin(&self, cx: &mut Lowering<'a>, blocks: i64) -> Result<Emit<'a>, Refusal> {
        if blocks > MAX_GRID_X {
            return Err(Refusal::new(self.scan.span, format!("{} has too many rows for a grid", self.name)));
        }
        let mut e = cx.emit(&self.name);
        e.kernel.block = [THREADS as u32, 1, 1];
        e.kernel.grid = [blocks as u32, 1, 1];
        e.line(self.scan.span);
        Ok(e)
    }

    /// The row's coordinates, and the range of positions that this block takes.
    fn place(&self, e: &mut Emit<'a>, parts: i64) -> (Vec<Num>, Expr, Expr) {
        let ty = self.position_ty();
        let mut dims = self.rows.clone();
        dims.push(parts);
        let mut at = decode(e, Num { expr: Expr::Special(Special::BlockX), ty: Ty::I32 }, &dims);
        let part = at.pop().expect("the parts were pushed as a dim");
        if parts == 1 {
            return (at, int_of(ty, 0).expr, int_of(ty, self.n).expr);
        }
        let lo = mul(to(part, ty), int_of(ty, SEGMENT).expr);
        let lo = e.named("lo", ty, lo);
        let hi = super::scalar::int_op(
            IntOp::Min,
            add(lo.clone(), int_of(ty, SEGMENT).expr),
            int_of(ty, self.n).expr,
        );
        (at, lo, e.named("hi", ty, hi))
    }

    fn block(&self, e: &mut Emit<'a>, first: Expr) -> Block {
        let dtype = e.graph.ty(self.scan.body).stored();
        let shared = e.kernel.shared("scan", dtype, THREADS as u32, 16);
        let carry = e.let_var("carry", self.ty, first);
        Block { shared, carry }
    }

    /// A loop over the chunks of a range; `f` gets this thread's positions and whether they are inside.
    fn chunks(
        &self,
        e: &mut Emit<'a>,
        lo: Expr,
        hi: Expr,
        f: impl FnOnce(&mut Emit<'a>, Vec<Num>, Vec<Expr>),
    ) {
        let ty = self.position_ty();
        let var = e.kernel.var("chunk", ty);
        let body = e.block(|e| {
            let thread = to(Num { expr: Expr::Special(Special::ThreadX), ty: Ty::I32 }, ty);
            let first = add(Expr::Var(var), mul(thread, int_of(ty, ITEMS).expr));
            let first = e.named("first", ty, first);
            let mut at = Vec::new();
            let mut inside = Vec::new();
            for i in 0..ITEMS {
                let p = add(first.clone(), int_of(ty, i).expr);
                let p = e.named("at", ty, p);
                inside.push(cmp(CmpOp::Lt, p.clone(), hi.clone()));
                at.push(Num { expr: p, ty });
            }
            f(e, at, inside);
        });
        let step = int_of(ty, THREADS * ITEMS).expr;
        e.push(Stmt::For { var, lo, hi: hi.clone(), step, unroll: Unroll::None, body });
    }

    /// This thread's terms, combined one after the other.
    fn items(&self, e: &mut Emit<'a>, at: &[Num], inside: &[Expr], unit: &Expr) -> Vec<VarId> {
        let mut items: Vec<VarId> = Vec::new();
        for (p, here) in at.iter().zip(inside) {
            let x = e.let_var("x", self.ty, unit.clone());
            let (p, here) = (p.clone(), here.clone());
            e.if_then(here, |e| self.term(e, p, x));
            if let Some(&last) = items.last() {
                let v = self.combined(e, Expr::Var(last), Expr::Var(x));
                e.push(Stmt::Set(x, v));
            }
            items.push(x);
        }
        items
    }

    /// Scans the threads' totals; gives what goes before this thread's terms, and moves the carry on.
    fn block_scan(&self, e: &mut Emit<'a>, block: &Block, total: VarId, unit: &Expr) -> VarId {
        let thread = Expr::Special(Special::ThreadX);
        let mem = Mem::Shared(block.shared);
        let load = |at: Expr| Expr::Load(mem, Box::new(at));
        let sum = e.let_var("sum", self.ty, Expr::Var(total));
        e.push(Stmt::Store(mem, thread.clone(), Expr::Var(sum)));
        e.push(Stmt::Barrier);
        let gap = e.let_var("gap", Ty::I32, lit32(1));
        let body = e.block(|e| {
            let far = cmp(CmpOp::Ge, thread.clone(), Expr::Var(gap));
            e.if_then(far, |e| {
                let left = load(sub(thread.clone(), Expr::Var(gap)));
                let left = Expr::Var(e.let_var("left", self.ty, left));
                let v = self.combined(e, left, Expr::Var(sum));
                e.push(Stmt::Set(sum, v));
            });
            e.push(Stmt::Barrier);
            e.push(Stmt::Store(mem, thread.clone(), Expr::Var(sum)));
            e.push(Stmt::Barrier);
            e.push(Stmt::Set(gap, mul(Expr::Var(gap), lit32(2))));
        });
        e.push(Stmt::While { cond: cmp(CmpOp::Lt, Expr::Var(gap), lit32(THREADS as i32)), body });
        let before = e.let_var("before", self.ty, unit.clone());
        let inner = cmp(CmpOp::Gt, thread.clone(), lit32(0));
        e.if_then(inner, |e| e.push(Stmt::Set(before, load(sub(thread.clone(), lit32(1))))));
        let prefix = self.combined(e, Expr::Var(block.carry), Expr::Var(before));
        let prefix = e.let_var("prefix", self.ty, prefix);
        let all = e.let_var("all", self.ty, load(lit32(THREADS as i32 - 1)));
        let carry = self.combined(e, Expr::Var(block.carry), Expr::Var(all));
        e.push(Stmt::Set(block.carry, carry));
        e.push(Stmt::Barrier);
        prefix
    }
}
