//! Form `scan`: prefix combinations along one axis, and what is mapped over the same points.
//!
//! Along the contiguous axis a block takes a row, or several short ones (`scan_block.rs`); long axes with few rows
//! are cut in segments: their totals first, then each segment with the combination of all totals before it. Along
//! another axis neighbouring threads take neighbouring rows, each its row or a segment of it. The order of operands
//! is kept, and is the same in every run.

use super::map::{self, count, decode, launch_points};
use super::read::{Index, to};
use super::row_layout::{vector_read, vector_write};
use super::scalar::{Emit, Num, add, arith, cmp, int_of, int_op, lit32, mul};
use super::scan_block::{Block, Flow, Layout};
use super::{Lowering, MAX_GRID_X, Refusal};
use crate::ir::graph::{AxisId, Define, Expr as Node, ExprId, Graph, Scan, Stmt as GraphStmt};
use crate::ir::plan::PlanKernel;
use crate::ir::program::BufferId;
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Mem, Special, Stmt, Ty, Unroll, VarId};
use crate::vocab::dtype;
use std::collections::BTreeSet;

/// Elements that a thread holds.
const HELD: i64 = 32;
/// Points of a segment, where a row is cut.
const SEGMENT: i64 = 8192;
/// Rows that keep the device busy with a block each.
const ENOUGH_ROWS: i64 = 96;
/// Threads that keep the device busy.
const ENOUGH_THREADS: i64 = 1 << 17;

pub fn lower<'a>(cx: &mut Lowering<'a>, k: &'a PlanKernel) -> Result<(), Refusal> {
    let graph = cx.graph;
    let stored = super::row::stored_targets(graph, &k.stmts);
    for &s in &k.stmts {
        if let GraphStmt::Scan(scan) = &graph.stmts[s] {
            let maps = k.stmts.iter().filter_map(|&s| super::row::define(graph, s)).collect();
            Shape::new(cx, k, scan, maps, stored.contains(&scan.target))?.lower(cx)?;
        }
    }
    Ok(())
}

/// One scan, taken apart.
struct Shape<'a> {
    name: String,
    scan: &'a Scan,
    /// Definitions at the scan's points that read it there.
    maps: Vec<&'a Define>,
    /// Something else reads the scan itself.
    stored: bool,
    /// Extents of the other axes.
    rows: Vec<i64>,
    lo: i64,
    n: i64,
    ty: Ty,
}

/// The part of the rows that a thread or block takes.
struct Part {
    /// Position of the first point, and of the first beyond.
    lo: Num,
    hi: Num,
}

impl<'a> Shape<'a> {
    fn new(
        cx: &Lowering<'a>,
        k: &PlanKernel,
        scan: &'a Scan,
        maps: Vec<&'a Define>,
        stored: bool,
    ) -> Result<Shape<'a>, Refusal> {
        let t = cx.graph.tensor(scan.target);
        let mut rows = t.dims.clone();
        let n = rows.remove(scan.along);
        let (lo, ty) = (t.lo[scan.along], Ty::of(cx.graph.ty(scan.body)));
        count(&t.dims, scan.span, &k.name)?;
        Ok(Shape { name: k.name.clone(), scan, maps, stored, rows, lo, n, ty })
    }

    fn lower(&self, cx: &mut Lowering<'a>) -> Result<(), Refusal> {
        let rows: i64 = self.rows.iter().product();
        if rows == 0 || self.n == 0 {
            return Ok(());
        }
        let inner = cx.graph.tensor(self.scan.target).dims[self.scan.along + 1..].iter().product::<i64>();
        if rows > MAX_GRID_X || inner > 1 && (self.n <= 32 || inner >= 32) {
            return self.by_threads(cx, rows);
        }
        let segments = (self.n + SEGMENT - 1) / SEGMENT;
        if rows >= ENOUGH_ROWS || segments < 4 || rows * segments > MAX_GRID_X {
            return self.by_rows(cx, rows);
        }
        self.by_segments(cx, rows, segments)
    }

    /// Binds the axes other than the scan's.
    fn bind_rows(&self, e: &mut Emit<'a>, at: &[Num]) {
        let t = e.graph.tensor(self.scan.target);
        let others = (0..t.dims.len()).filter(|&d| d != self.scan.along);
        for (d, n) in others.zip(at) {
            let v = arith(IntOp::Add, n.clone(), int_of(n.ty, t.lo[d]));
            let v = Num { expr: e.named("ax", v.ty, v.expr), ty: v.ty };
            self.bind_everywhere(e, d, &v);
        }
        let along: BTreeSet<AxisId> = [self.scan.axes[self.scan.along]].into();
        let first = self.scan.cond.unwrap_or(self.scan.body);
        e.hoist(first, &along, true, &mut BTreeSet::new());
    }

    /// The axis at this place of the scan, and of the definitions mapped over it.
    fn bind_everywhere(&self, e: &mut Emit<'a>, d: usize, v: &Num) {
        e.bind_axis(self.scan.axes[d], v.expr.clone(), v.ty);
        for m in &self.maps {
            if m.axes[d] != self.scan.axes[d] && e.axis_value(m.axes[d]).is_none() {
                e.bind_axis(m.axes[d], v.expr.clone(), v.ty);
            }
        }
    }

    fn bind_along(&self, e: &mut Emit<'a>, at: &Num) {
        let v = arith(IntOp::Add, at.clone(), int_of(at.ty, self.lo));
        let v = Num { expr: e.named("t", v.ty, v.expr), ty: v.ty };
        self.bind_everywhere(e, self.scan.along, &v);
    }

    /// The term at a position (from 0) that is inside, if the condition holds there.
    fn term(&self, e: &mut Emit<'a>, at: &Num, known: &[(ExprId, Expr)], set: &dyn Fn(&mut Emit<'a>, Expr)) {
        e.scope(|e| {
            self.bind_along(e, at);
            known.iter().for_each(|(id, v)| e.bind(*id, v.clone()));
            let body = |e: &mut Emit<'a>| {
                let v = e.num_as(self.scan.body, self.ty);
                set(e, v);
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

    /// The values to store at a position: the scan's own, if it is stored, then the maps'.
    fn finish(&self, e: &mut Emit<'a>, at: &Num, value: Expr, store: &dyn Fn(&mut Emit<'a>, usize, Num)) {
        e.scope(|e| {
            self.bind_along(e, at);
            let dtype = e.graph.tensor(self.scan.target).dtype;
            let own = e.rounded(dtype, Num { expr: value, ty: self.ty });
            let own = Num { expr: e.named("y", own.ty, own.expr), ty: own.ty };
            e.forward(self.scan.target, &self.scan.axes, own.clone());
            let mut slot = 0;
            if self.stored {
                store(e, slot, own);
                slot += 1;
            }
            for m in &self.maps {
                e.line(m.span);
                let dtype = e.graph.tensor(m.target).dtype;
                let v = e.stored_value(dtype, m.value);
                let v = e.rounded(dtype, v);
                let v = Num { expr: e.named("y", v.ty, v.expr), ty: v.ty };
                e.forward(m.target, &m.axes, v.clone());
                store(e, slot, v);
                slot += 1;
            }
            e.unforward(self.scan.target);
            self.maps.iter().for_each(|m| e.unforward(m.target));
        });
    }

    /// What is stored: target and axes.
    fn outs(&self) -> Vec<(crate::ir::graph::TensorId, &'a [AxisId])> {
        let own = self.stored.then_some((self.scan.target, &self.scan.axes[..]));
        own.into_iter().chain(self.maps.iter().map(|m| (m.target, &m.axes[..]))).collect()
    }

    /// Stores at the bound axes.
    fn store_here(&self, e: &mut Emit<'a>, slot: usize, value: Num) {
        let (target, axes) = self.outs()[slot];
        let index = map::own_index(e, target, axes);
        e.store(target, &index, value.expr);
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
        if self.n < i32::MAX as i64 / 2 { Ty::I32 } else { Ty::I64 }
    }

    fn dtype(&self, graph: &Graph) -> dtype::DType {
        graph.ty(self.scan.body).stored()
    }

    // A thread a row, or a segment of one; neighbouring threads have neighbouring rows.

    fn by_threads(&self, cx: &mut Lowering<'a>, rows: i64) -> Result<(), Refusal> {
        const SHORT: i64 = 64;
        let wanted = (ENOUGH_THREADS / rows).min(self.n / SHORT).min(256);
        if wanted < 2 {
            return self.columns(cx, 1, self.n, None);
        }
        let each = (self.n + wanted - 1) / wanted;
        let segments = (self.n + each - 1) / each;
        let totals = cx.workspace(format!("{}_totals", self.name), self.dtype(cx.graph), &[segments, rows]);
        let dims = [&[segments], &self.rows[..]].concat();
        launch_points(cx, &self.name, &dims, self.scan.span, |e, at| {
            let part = self.segment(e, &at[0], each);
            self.bind_rows(e, &at[1..]);
            let unit = self.unit(e);
            let acc = e.let_var("acc", self.ty, unit.clone());
            self.walk(e, &part, acc, &unit, &|_, _, _| {});
            let p = e.pointer(totals, true);
            let place = self.place_of(e, at, rows);
            e.push(Stmt::Store(Mem::Global(p), place.expr, Expr::Var(acc)));
        })?;
        launch_points(cx, &self.name, &[rows], self.scan.span, |e, at| {
            let p = e.pointer(totals, true);
            let unit = self.unit(e);
            let acc = e.let_var("acc", self.ty, unit);
            let ty = if rows * segments < i32::MAX as i64 { Ty::I32 } else { Ty::I64 };
            let var = e.kernel.var("s", ty);
            let body = e.block(|e| {
                let place = add(mul(Expr::Var(var), int_of(ty, rows).expr), to(at[0].clone(), ty));
                let place = e.named("at", ty, place);
                let x = e.let_var("x", self.ty, Expr::Load(Mem::Global(p), Box::new(place.clone())));
                e.push(Stmt::Store(Mem::Global(p), place, Expr::Var(acc)));
                let v = self.combined(e, Expr::Var(acc), Expr::Var(x));
                e.push(Stmt::Set(acc, v));
            });
            let (lo, hi, step) = (int_of(ty, 0).expr, int_of(ty, segments).expr, int_of(ty, 1).expr);
            e.push(Stmt::For { var, lo, hi, step, unroll: Unroll::None, body });
        })?;
        self.columns(cx, segments, each, Some(totals))
    }

    /// The last pass, from what goes before each segment.
    fn columns(
        &self,
        cx: &mut Lowering<'a>,
        segments: i64,
        each: i64,
        before: Option<BufferId>,
    ) -> Result<(), Refusal> {
        let dims = [&[segments], &self.rows[..]].concat();
        let rows: i64 = self.rows.iter().product();
        launch_points(cx, &self.name, &dims, self.scan.span, |e, at| {
            let part = self.segment(e, &at[0], each);
            let unit = self.unit(e);
            let first = match before {
                Some(buffer) => {
                    let p = e.pointer(buffer, false);
                    let place = self.place_of(e, at, rows);
                    Expr::Load(Mem::Global(p), Box::new(place.expr))
                }
                None => unit.clone(),
            };
            self.bind_rows(e, &at[1..]);
            let acc = e.let_var("acc", self.ty, first);
            self.walk(e, &part, acc, &unit, &|e, at, v| {
                self.finish(e, at, v, &|e, slot, n| self.store_here(e, slot, n));
            });
        })
    }

    fn place_of(&self, e: &mut Emit<'a>, at: &[Num], rows: i64) -> Num {
        let dims = [&[1], &self.rows[..]].concat();
        let wide = rows * 512 > i32::MAX as i64;
        let ty = if wide { Ty::I64 } else { Ty::I32 };
        let mut sum = int_of(ty, 0);
        for (n, &d) in at.iter().zip(&dims) {
            sum = arith(IntOp::Mul, sum, int_of(ty, d));
            sum = arith(IntOp::Add, sum, Num { expr: to(n.clone(), ty), ty });
        }
        Num { expr: e.named("slot", ty, sum.expr), ty }
    }

    fn segment(&self, e: &mut Emit<'a>, number: &Num, each: i64) -> Part {
        let ty = self.position_ty();
        if each >= self.n {
            return Part { lo: int_of(ty, 0), hi: int_of(ty, self.n) };
        }
        let lo = arith(IntOp::Mul, Num { expr: to(number.clone(), ty), ty }, int_of(ty, each));
        let lo = Num { expr: e.named("lo", ty, lo.expr), ty };
        let hi = arith(IntOp::Add, lo.clone(), int_of(ty, each));
        let hi = arith(IntOp::Min, hi, int_of(ty, self.n));
        Part { lo, hi: Num { expr: e.named("hi", ty, hi.expr), ty } }
    }

    /// Point after point.
    fn walk(
        &self,
        e: &mut Emit<'a>,
        part: &Part,
        acc: VarId,
        unit: &Expr,
        each: &dyn Fn(&mut Emit<'a>, &Num, Expr),
    ) {
        let ty = part.lo.ty;
        let var = e.kernel.var("i", ty);
        let body = e.block(|e| {
            let at = Num { expr: Expr::Var(var), ty };
            let x = e.let_var("x", self.ty, unit.clone());
            self.term(e, &at, &[], &|e, v| e.push(Stmt::Set(x, v)));
            let v = self.combined(e, Expr::Var(acc), Expr::Var(x));
            e.push(Stmt::Set(acc, v));
            each(e, &at, Expr::Var(acc));
        });
        let (lo, hi, step) = (part.lo.expr.clone(), part.hi.expr.clone(), int_of(ty, 1).expr);
        e.push(Stmt::For { var, lo, hi, step, unroll: Unroll::By(8), body });
    }

    // A block a row, several rows, or a segment of a row.

    /// Elements of a vector: as wide as some read or store allows.
    fn width(&self, cx: &Lowering<'a>) -> i64 {
        let graph = cx.graph;
        let axes = [self.scan.axes[self.scan.along]];
        let reads = reads(graph, self.scan);
        let any = |v: i64| {
            let loads =
                reads.iter().any(|(_, r)| vector_read(graph, cx.home(r.tensor), r, &axes, v).is_some());
            let stores = self.outs().iter().any(|(t, own)| {
                vector_write(graph, cx.home(*t), *t, own, &[own[self.scan.along]], v).is_some()
            });
            self.n % v == 0 && (loads || stores)
        };
        let size = if matches!(self.ty, Ty::F64 | Ty::I64) { 2 } else { 4 };
        let narrow = reads.iter().map(|(_, r)| graph.tensor(r.tensor).dtype.bits()).min().unwrap_or(32);
        let most = if narrow <= 16 { 8 } else { size };
        [8, 4, 2].into_iter().find(|&v| v <= most && any(v)).unwrap_or(1)
    }

    fn held(&self) -> i64 {
        if matches!(self.ty, Ty::F64 | Ty::I64) { HELD / 2 } else { HELD }
    }

    fn by_rows(&self, cx: &mut Lowering<'a>, rows: i64) -> Result<(), Refusal> {
        let mut layout = Layout::new(self.n, self.width(cx), self.held(), 1024);
        layout.per_block = layout.per_block.min((rows as u64).next_power_of_two() as i64);
        while layout.lanes * layout.per_block < 32 {
            layout.per_block *= 2;
        }
        let blocks = (rows + layout.per_block - 1) / layout.per_block;
        let mut e = self.begin(cx, &layout, blocks)?;
        let again = self.n > layout.chunk();
        let unit = self.unit(&mut e);
        let carry = again.then(|| unit.clone());
        let block = self.block(&mut e, layout.clone(), unit, carry, again);
        let base = mul(Expr::Special(Special::BlockX), lit32(layout.per_block as i32));
        let number = e.named("row_at", Ty::I32, add(base, block.row.expr.clone()));
        let (row, valid) = if rows % layout.per_block == 0 {
            (number, None)
        } else {
            let valid = cmp(CmpOp::Lt, number.clone(), lit32(rows as i32));
            let valid = e.named("in_rows", Ty::Bool, valid);
            let last = int_op(IntOp::Min, number, lit32(rows as i32 - 1));
            (e.named("row_of", Ty::I32, last), Some(valid))
        };
        let at = decode(&mut e, Num { expr: row, ty: Ty::I32 }, &self.rows);
        self.bind_rows(&mut e, &at);
        let flow = Vectors::new(self, &mut e, &layout, valid, true);
        let ty = self.position_ty();
        let even = self.n % layout.chunk() == 0;
        block.chunks(&mut e, (int_of(ty, 0), int_of(ty, self.n)), even, &flow, true);
        cx.launch(e);
        Ok(())
    }

    fn by_segments(&self, cx: &mut Lowering<'a>, rows: i64, segments: i64) -> Result<(), Refusal> {
        let dtype = self.dtype(cx.graph);
        let totals = cx.workspace(format!("{}_totals", self.name), dtype, &[rows, segments]);
        self.segments(cx, rows, segments, totals, None)?;
        let before = cx.workspace(format!("{}_before", self.name), dtype, &[rows, segments]);
        self.prefixes(cx, [totals, before], rows, segments)?;
        self.segments(cx, rows, segments, totals, Some(before))
    }

    /// A block a segment: its total, or (with what goes before every segment) its values.
    fn segments(
        &self,
        cx: &mut Lowering<'a>,
        rows: i64,
        segments: i64,
        totals: BufferId,
        before: Option<BufferId>,
    ) -> Result<(), Refusal> {
        let layout = Layout::new(SEGMENT, self.width(cx), self.held(), 256);
        let again = SEGMENT > layout.chunk();
        let mut e = self.begin(cx, &layout, rows * segments)?;
        let mut dims = self.rows.clone();
        dims.push(segments);
        let mut at = decode(&mut e, Num { expr: Expr::Special(Special::BlockX), ty: Ty::I32 }, &dims);
        let number = at.pop().expect("the segments were pushed as a dim");
        let part = self.segment(&mut e, &number, SEGMENT);
        let unit = self.unit(&mut e);
        let first = match before {
            None => unit.clone(),
            Some(buffer) => {
                let p = e.pointer(buffer, false);
                let first = e.let_var("first", self.ty, unit.clone());
                let later = cmp(CmpOp::Gt, to(number, Ty::I32), lit32(0));
                let place = super::scalar::sub(Expr::Special(Special::BlockX), lit32(1));
                let load = Expr::Load(Mem::Global(p), Box::new(place));
                e.if_then(later, |e| e.push(Stmt::Set(first, load)));
                Expr::Var(first)
            }
        };
        self.bind_rows(&mut e, &at);
        let again = again || before.is_none();
        let block = self.block(&mut e, layout.clone(), unit, Some(first), again);
        let flow = Vectors::new(self, &mut e, &layout, None, before.is_some());
        block.chunks(
            &mut e,
            (part.lo, part.hi),
            self.n % SEGMENT == 0 && SEGMENT % layout.chunk() == 0,
            &flow,
            before.is_some(),
        );
        if let (None, Some(carry)) = (before, block.carry) {
            let first = cmp(CmpOp::Eq, Expr::Special(Special::ThreadX), lit32(0));
            let p = e.pointer(totals, true);
            let at = Expr::Special(Special::BlockX);
            e.if_then(first, |e| e.push(Stmt::Store(Mem::Global(p), at, Expr::Var(carry))));
        }
        cx.launch(e);
        Ok(())
    }

    /// The combination of all segments up to each, a block a row.
    fn prefixes(
        &self,
        cx: &mut Lowering<'a>,
        [totals, before]: [BufferId; 2],
        rows: i64,
        segments: i64,
    ) -> Result<(), Refusal> {
        let layout = Layout::new(segments, 1, 8, 256);
        let layout = Layout { per_block: 1, lanes: layout.lanes.max(32), ..layout };
        let mut e = self.begin(cx, &layout, rows)?;
        let again = segments > layout.chunk();
        let unit = self.unit(&mut e);
        let carry = again.then(|| unit.clone());
        let block = self.block(&mut e, layout.clone(), unit, carry, again);
        let base = mul(Expr::Special(Special::BlockX), lit32(segments as i32));
        let base = e.named("base", Ty::I32, base);
        let flow = Totals { from: e.pointer(totals, false), into: e.pointer(before, true), base };
        let range = (int_of(Ty::I32, 0), int_of(Ty::I32, segments));
        block.chunks(&mut e, range, segments % layout.chunk() == 0, &flow, true);
        cx.launch(e);
        Ok(())
    }

    fn block(&self, e: &mut Emit<'a>, layout: Layout, unit: Expr, carry: Option<Expr>, again: bool) -> Block {
        let unit = e.named("unit", self.ty, unit);
        Block::new(e, layout, (self.scan.combine, self.ty, self.dtype(e.graph)), unit, carry, again)
    }

    fn begin(&self, cx: &mut Lowering<'a>, layout: &Layout, blocks: i64) -> Result<Emit<'a>, Refusal> {
        if blocks > MAX_GRID_X {
            return Err(Refusal::new(self.scan.span, format!("{} has too many rows for a grid", self.name)));
        }
        let mut e = cx.emit(&self.name);
        e.kernel.block = [(layout.lanes * layout.per_block) as u32, 1, 1];
        e.kernel.grid = [blocks as u32, 1, 1];
        e.line(self.scan.span);
        Ok(e)
    }
}

/// The reads of the terms, by expression, that are made wherever a term is.
fn reads(graph: &Graph, scan: &Scan) -> Vec<(ExprId, crate::ir::graph::Read)> {
    let roots = scan.cond.into_iter().chain([scan.body]);
    let mut all: Vec<ExprId> = roots.flat_map(|r| crate::pass::inline::below(graph, r)).collect();
    all.sort();
    all.dedup();
    all.into_iter()
        .filter_map(|x| match graph.expr(x) {
            Node::Read(r) => Some((x, r.clone())),
            _ => None,
        })
        .collect()
}

/// A read that comes in vectors.
struct Loaded {
    expr: ExprId,
    read: crate::ir::graph::Read,
    array: ArrayId,
    /// Elements of one load.
    chunk: i64,
}

/// The scan's own terms and results.
struct Vectors<'s, 'a> {
    shape: &'s Shape<'a>,
    width: i64,
    loaded: Vec<Loaded>,
    /// For each thing stored: an array, and the elements of one store, if it can be in vectors.
    outs: Vec<Option<(ArrayId, i64)>>,
    valid: Option<Expr>,
}

impl<'s, 'a> Vectors<'s, 'a> {
    fn new(
        shape: &'s Shape<'a>,
        e: &mut Emit<'a>,
        layout: &Layout,
        valid: Option<Expr>,
        stores: bool,
    ) -> Vectors<'s, 'a> {
        let graph = e.graph;
        let along = shape.scan.axes[shape.scan.along];
        let width = layout.width;
        let mut loaded = Vec::new();
        for (expr, read) in reads(graph, shape.scan) {
            let plain = e.facts.free(expr).contains(&along)
                && crate::pass::bounds::read_is_safe(graph, &read)
                && read.index.iter().all(|&i| !e.facts.may_fault(i) && is_plain(graph, i, &shape.scan.axes));
            let chunk = vector_read(graph, &e.home(read.tensor), &read, &[along], width);
            if let (true, Some(chunk)) = (plain, chunk) {
                let name = graph.tensor(read.tensor).name.clone();
                let len = (layout.vectors * width) as u32;
                let array = e.kernel.array(format!("in_{name}"), Ty::of(graph.ty(expr)), len);
                loaded.push(Loaded { expr, read, array, chunk });
            }
        }
        let outs = if stores { shape.outs() } else { Vec::new() };
        let outs = outs
            .into_iter()
            .map(|(t, own)| {
                let home = e.home(t);
                let chunk = vector_write(graph, &home, t, own, &[own[shape.scan.along]], width)?;
                let ty = Ty::of(graph.tensor(t).dtype.compute());
                Some((e.kernel.array(format!("out_{}", graph.tensor(t).name), ty, width as u32), chunk))
            })
            .collect();
        Vectors { shape, width, loaded, outs, valid }
    }
}

/// Free of reads and folds, and of axes other than these.
fn is_plain(graph: &Graph, id: ExprId, axes: &[AxisId]) -> bool {
    crate::pass::inline::below(graph, id).iter().all(|&x| match graph.expr(x) {
        Node::Read(_) | Node::Fold(_) => false,
        Node::Axis(a) => axes.contains(a),
        _ => true,
    })
}

fn point(first: &Num, i: i64) -> Num {
    arith(IntOp::Add, first.clone(), int_of(first.ty, i))
}

impl<'a> Flow<'a> for Vectors<'_, 'a> {
    fn load(&self, e: &mut Emit<'a>, first: &Num, vector: i64) {
        self.shape.bind_along(e, first);
        for l in &self.loaded {
            let index: Vec<Index> = l.read.index.iter().map(|&i| e.index(i)).collect();
            let offset = e.offset(l.read.tensor, &index);
            let ty = if e.home(l.read.tensor).len > i32::MAX as i64 { Ty::I64 } else { Ty::I32 };
            let offset = e.named("from", ty, offset);
            let mem = Mem::Global(e.tensor_param(l.read.tensor, false));
            for c in 0..self.width / l.chunk {
                let index = arith(IntOp::Add, Num { expr: offset.clone(), ty }, int_of(ty, c * l.chunk)).expr;
                let at = (vector * self.width + c * l.chunk) as u32;
                e.push(Stmt::LoadVec { array: l.array, at, mem, index, count: l.chunk as u32 });
            }
        }
    }

    fn terms(&self, e: &mut Emit<'a>, first: &Num, vector: i64, items: ArrayId) {
        for i in 0..self.width {
            let slot = lit32((vector * self.width + i) as i32);
            let known: Vec<(ExprId, Expr)> =
                self.loaded.iter().map(|l| (l.expr, Expr::Elem(l.array, Box::new(slot.clone())))).collect();
            let set = |e: &mut Emit<'a>, v: Expr| e.push(Stmt::SetElem(items, slot.clone(), v));
            if self.shape.scan.cond.is_some() {
                let unit = self.shape.unit(e);
                e.push(Stmt::SetElem(items, slot.clone(), unit));
            }
            self.shape.term(e, &point(first, i), &known, &set);
        }
    }

    fn results(&self, e: &mut Emit<'a>, first: &Num, vector: i64, items: ArrayId) {
        let work = |e: &mut Emit<'a>| {
            for i in 0..self.width {
                let value = Expr::Elem(items, Box::new(lit32((vector * self.width + i) as i32)));
                self.shape.finish(e, &point(first, i), value, &|e, slot, n| match self.outs[slot] {
                    Some((array, _)) => e.push(Stmt::SetElem(array, lit32(i as i32), n.expr)),
                    None => self.shape.store_here(e, slot, n),
                });
            }
            self.shape.bind_along(e, first);
            for ((target, axes), out) in self.shape.outs().into_iter().zip(&self.outs) {
                let Some((array, chunk)) = *out else { continue };
                let index = map::own_index(e, target, axes);
                let offset = e.offset(target, &index);
                let ty = if e.home(target).len > i32::MAX as i64 { Ty::I64 } else { Ty::I32 };
                let offset = e.named("to", ty, offset);
                let mem = Mem::Global(e.tensor_param(target, true));
                for c in 0..self.width / chunk {
                    let index =
                        arith(IntOp::Add, Num { expr: offset.clone(), ty }, int_of(ty, c * chunk)).expr;
                    e.push(Stmt::StoreVec { mem, index, array, at: (c * chunk) as u32, count: chunk as u32 });
                }
            }
        };
        match self.valid.clone() {
            Some(valid) => e.if_then(valid, work),
            None => e.scope(work),
        }
    }
}

/// Totals of segments in a workspace.
struct Totals {
    from: crate::ir::simt::ParamId,
    into: crate::ir::simt::ParamId,
    base: Expr,
}

impl<'a> Flow<'a> for Totals {
    fn load(&self, _: &mut Emit<'a>, _: &Num, _: i64) {}

    fn terms(&self, e: &mut Emit<'a>, first: &Num, vector: i64, items: ArrayId) {
        let place = add(self.base.clone(), first.expr.clone());
        let x = Expr::Load(Mem::Global(self.from), Box::new(place));
        e.push(Stmt::SetElem(items, lit32(vector as i32), x));
    }

    fn results(&self, e: &mut Emit<'a>, first: &Num, vector: i64, items: ArrayId) {
        let place = add(self.base.clone(), first.expr.clone());
        let v = Expr::Elem(items, Box::new(lit32(vector as i32)));
        e.push(Stmt::Store(Mem::Global(self.into), place, v));
    }
}
