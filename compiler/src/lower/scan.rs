//! Form `scan`: prefix combinations along one axis, and what is mapped over the same points.
//!
//! Along the contiguous axis a block takes a row, or several short ones (`scan_block.rs`); long axes with few rows
//! are cut in segments, a block each, in one pass (`scan_ahead.rs`). Along another axis neighbouring threads take
//! neighbouring rows: each its whole row, of which much is copied ahead (`scan_ring.rs`), or, where rows are few or reads not
//! of that kind, a segment of it: their totals first, then each segment with the combination of all before it. The order of
//! operands is kept, and is the same in every run.
//!
//! A product of factors may leave the range of a float where the serial definition stays inside it, and an infinite
//! factor times a carry of 0 is NaN. No such value becomes finite again by the law, so the last pass notes results that are
//! not finite; where there are any, a last kernel computes all again, point after point. It ends at once otherwise.

use super::map::{self, count, decode, launch_points};
use super::read::to;
use super::row_layout::{vector_read, vector_write};
use super::scalar::{Emit, Num, add, and, arith, cmp, compare, int_of, int_op, lit32, mul, not};
use super::scan_before::{Here, looks_before, read_before};
use super::scan_block::{Block, Layout};
use super::scan_flow::Vectors;
use super::scan_law::{self, Algebra, Law, values};
use super::scan_space::{Asked, is_across};
use super::scan_step::{self, Linear};
use super::{Lowering, MAX_GRID_X, Refusal};
use crate::ir::graph::{
    AxisId, Combine, Define, Expr as Node, ExprId, Graph, Read, Role, Scan, Stmt as GraphStmt, TensorId,
};
use crate::ir::plan::PlanKernel;
use crate::ir::program::BufferId;
use crate::ir::simt::{AtomicOp, CmpOp, Expr, IntOp, Mem, ParamId, Special, Stmt, Ty, Unroll, VarId};
use crate::vocab::dtype::{self, DType, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use girih_dsl::ast::Span;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Elements that a thread holds.
const HELD: i64 = 32;
/// Terms that may be combined one after the other.
const CHAIN: i64 = 1 << 16;
/// Threads that keep the device busy.
const ENOUGH_THREADS: i64 = 1 << 17;

pub fn lower<'a>(cx: &mut Lowering<'a>, k: &'a PlanKernel) -> Result<(), Refusal> {
    let graph = cx.graph;
    let stored = super::row::stored_targets(graph, &k.stmts);
    for &s in &k.stmts {
        let (axes, along, span, terms): (&[AxisId], _, _, _) = match &graph.stmts[s] {
            GraphStmt::Scan(s) => (&s.axes, s.along, s.span, Terms::Fold(s)),
            GraphStmt::Recur(r) => {
                let Some(l) = scan_step::recognise(graph, r) else {
                    let why = format!("{} is no scan: write its step as `a * prev + e`", k.name);
                    return Err(Refusal::new(r.members[0].span, why));
                };
                (&l.define.axes, l.along, l.define.span, Terms::Steps(l))
            }
            _ => continue,
        };
        let target = graph.stmts[s].targets()[0];
        let maps = k.stmts.iter().filter_map(|&s| super::row::define(graph, s)).collect();
        count(&graph.tensor(target).dims, span, &k.name)?;
        let stored = stored.contains(&target);
        let shape = Shape::new(graph, k, (target, axes, along, span), terms, maps, stored);
        shape.asked(cx)?.lower(cx)?;
    }
    Ok(())
}

/// What is combined.
enum Terms<'a> {
    Fold(&'a Scan),
    Steps(Linear<'a>),
}

/// One scan, taken apart.
pub(super) struct Shape<'a> {
    pub name: String,
    pub target: TensorId,
    pub axes: &'a [AxisId],
    /// Position in `axes`.
    pub along: usize,
    pub span: Span,
    terms: Terms<'a>,
    /// Definitions at the scan's points that read it there.
    pub maps: Vec<&'a Define>,
    /// Something else reads the scan itself.
    stored: bool,
    /// A definition mapped over it reads it at the point before.
    pub looks_before: bool,
    /// Extents of the other axes.
    pub rows: Vec<i64>,
    lo: i64,
    pub n: i64,
    pub ty: Ty,
    /// Not 0 once a result is not finite, where the law may make that of finite steps.
    flag: Option<BufferId>,
    pub asked: Asked,
}

/// The part of the rows that a thread or block takes.
struct Part {
    /// Position of the first point, and of the first beyond.
    lo: Num,
    hi: Num,
}

impl<'a> Shape<'a> {
    fn new(
        graph: &'a Graph,
        k: &PlanKernel,
        (target, axes, along, span): (TensorId, &'a [AxisId], usize, Span),
        terms: Terms<'a>,
        maps: Vec<&'a Define>,
        stored: bool,
    ) -> Shape<'a> {
        let t = graph.tensor(target);
        let mut rows = t.dims.clone();
        let n = rows.remove(along);
        let lo = t.lo[along];
        let ty = Ty::of(match &terms {
            Terms::Fold(s) => graph.ty(s.body),
            Terms::Steps(l) => graph.ty(l.define.value),
        });
        let backwards = matches!(&terms, Terms::Steps(l) if l.descending);
        let looks_before = maps.iter().any(|m| looks_before(graph, m, target, along, backwards));
        Shape {
            name: k.name.clone(),
            target,
            axes,
            along,
            span,
            terms,
            maps,
            stored,
            looks_before,
            rows,
            lo,
            n,
            ty,
            flag: None,
            asked: Asked::default(),
        }
    }

    /// The same under what is set; what no path of a scan can follow is refused.
    fn asked(mut self, cx: &Lowering<'a>) -> Result<Shape<'a>, Refusal> {
        let refuse = |why: String, key: &str| Err(Refusal::new(self.span, why).setting(key));
        let axis = &cx.graph.axis(self.axes[self.along]).name;
        let rows: i64 = self.rows.iter().product();
        let across = is_across(&cx.graph.tensor(self.target).dims, self.along, rows);
        let threads = match cx.schedule.block_threads(&self.name) {
            Some(_) => Some(map::threads(cx, &self.name, 0, self.span)?),
            None => None,
        };
        let (step, split) =
            (cx.schedule.int(&self.name, "step", axis), cx.schedule.int(&self.name, "split", axis));
        if let (Some(t), false) = (threads, across)
            && t.count_ones() != 1
        {
            return refuse(format!("{t} threads cannot share a row evenly: take a power of two"), "threads");
        }
        if across && step.is_some_and(|s| s < self.n) {
            return refuse(
                format!("a thread scans its part of {axis} in one go: cut it with `split`"),
                "step",
            );
        }
        if !across && split.is_some_and(|s| s != 1) {
            return refuse(format!("blocks that share a row follow from `step {axis}`"), "split");
        }
        if split.is_some_and(|s| 2 * s > self.n.max(2)) {
            return refuse(format!("{axis} has {} points: take fewer parts", self.n), "split");
        }
        let (held, most) = self.held();
        if let (Some(s), false) = (step, across)
            && s < self.n
        {
            let threads = threads.unwrap_or(most.min(256));
            let each = s / threads;
            if s % threads != 0 || each.count_ones() != 1 || each > held {
                let why = format!(
                    "{s} points for {threads} threads: each takes a power of two of them, {held} at most"
                );
                return refuse(why, "step");
            }
        }
        self.asked = Asked { threads, step: step.filter(|_| !across), split };
        Ok(self)
    }

    /// The roots of the terms: the condition, if there is one, and the value.
    pub fn roots(&self) -> (Option<ExprId>, ExprId) {
        match &self.terms {
            Terms::Fold(s) => (s.cond, s.body),
            Terms::Steps(l) => (None, l.define.value),
        }
    }

    /// From the last point to the first.
    pub fn backwards(&self) -> bool {
        matches!(&self.terms, Terms::Steps(l) if l.descending)
    }

    pub fn law(&self) -> Law {
        match &self.terms {
            Terms::Fold(s) => Law::Fold(s.combine),
            Terms::Steps(l) => l.law,
        }
    }

    fn lower(mut self, cx: &mut Lowering<'a>) -> Result<(), Refusal> {
        let rows: i64 = self.rows.iter().product();
        if rows == 0 || self.n == 0 {
            return Ok(());
        }
        let serial = !matches!(self.terms, Terms::Fold(_)) || self.n <= CHAIN;
        let free = self.asked.threads.is_none() && self.asked.split.is_none();
        if let Some(ring) = self.ring(cx, rows).filter(|_| serial && free) {
            return self.by_ring(cx, rows, &ring);
        }
        if !self.multiplies() {
            return self.lower_rows(cx, rows);
        }
        if self.n < 2 || !self.fresh(cx.graph) {
            return self.serial(cx, None);
        }
        let flag = cx.workspace(format!("{}_unbounded", self.name), DType::I32, &[1]);
        launch_points(cx, &format!("{}_begin", self.name), &[1], self.span, |e, _| {
            let mem = Mem::Global(e.pointer(flag, true));
            e.push(Stmt::Store(mem, lit32(0), lit32(0)));
        })?;
        self.flag = Some(flag);
        self.lower_rows(cx, rows)?;
        self.serial(cx, self.flag)
    }

    /// Whether factors that are floats are multiplied with each other.
    fn multiplies(&self) -> bool {
        let product = matches!(self.law(), Law::Affine | Law::Fold(Combine::Builtin(Monoid::Prod)));
        product && matches!(self.ty, Ty::F32 | Ty::F64)
    }

    /// Whether the results may be written twice: what they hold before is not read.
    fn fresh(&self, graph: &Graph) -> bool {
        self.outs().iter().all(|&(t, _)| {
            let t = graph.tensor(t);
            matches!(t.role, Role::Result | Role::Local) && t.version == 0
        })
    }

    /// Notes results that are not finite.
    pub fn note(&self, e: &mut Emit<'a>, results: &[Expr]) {
        let Some(flag) = self.flag else { return };
        let most = match self.ty {
            Ty::F64 => Value::F64(f64::MAX),
            _ => Value::F32(f32::MAX),
        };
        // NaN is not less either.
        let finite = |x: &Expr| cmp(CmpOp::Le, Expr::Call(Func::Abs, vec![x.clone()]), Expr::Lit(most));
        let Some(all) = results.iter().map(finite).reduce(and) else { return };
        e.if_then(not(all), |e| {
            let mem = Mem::Global(e.pointer(flag, true));
            e.push(Stmt::Atomic { op: AtomicOp::Or, mem, index: lit32(0), value: lit32(1), old: None });
        });
    }

    /// A thread a row, by the definition itself; where a flag is given, only if it is set.
    fn serial(&self, cx: &mut Lowering<'a>, flag: Option<BufferId>) -> Result<(), Refusal> {
        let name = if flag.is_some() { format!("{}_serial", self.name) } else { self.name.clone() };
        launch_points(cx, &name, &self.rows, self.span, |e, at| {
            let all = |e: &mut Emit<'a>| {
                let ty = self.position_ty();
                let part = Part { lo: int_of(ty, 0), hi: int_of(ty, self.n) };
                self.bind_rows(e, at);
                let algebra = self.algebra(e);
                let first = self.start(e).unwrap_or(algebra.unit.clone());
                let acc = self.vars(e, "acc", first);
                let finish = |e: &mut Emit<'a>, at: &Num, v: Here| {
                    self.finish(e, at, v, &|e, slot, n| self.store_here(e, slot, n));
                };
                match &self.terms {
                    Terms::Fold(_) => self.walk(e, &algebra, &part, &acc, &finish),
                    Terms::Steps(l) => self.steps(e, l, &part, acc[acc.len() - 1], &finish),
                }
            };
            match flag {
                Some(flag) => {
                    let noted = Expr::Load(Mem::Global(e.pointer(flag, false)), Box::new(lit32(0)));
                    e.if_then(cmp(CmpOp::Ne, noted, lit32(0)), all);
                }
                None => all(e),
            }
        })
    }

    /// Step after step as they are written.
    fn steps(
        &self,
        e: &mut Emit<'a>,
        l: &Linear<'a>,
        part: &Part,
        state: VarId,
        each: &dyn Fn(&mut Emit<'a>, &Num, Here),
    ) {
        let ty = part.lo.ty;
        let var = e.kernel.var("i", ty);
        let body = e.block(|e| {
            self.step(e, l, &Num { expr: Expr::Var(var), ty }, state, each);
        });
        let (lo, hi, step) = (part.lo.expr.clone(), part.hi.expr.clone(), int_of(ty, 1).expr);
        e.push(Stmt::For { var, lo, hi, step, unroll: Unroll::None, body });
    }

    /// One step as it is written.
    fn step(
        &self,
        e: &mut Emit<'a>,
        l: &Linear<'a>,
        at: &Num,
        state: VarId,
        each: &dyn Fn(&mut Emit<'a>, &Num, Here),
    ) {
        let before = self.before(e, state);
        e.scope(|e| {
            self.bind_along(e, at);
            e.stage(self.target, Rc::new(move |_: &mut Emit<'a>, _: &Read| Some(Expr::Var(state))));
            let v = e.num_as(l.define.value, self.ty);
            e.unstage(self.target);
            e.push(Stmt::Set(state, v));
        });
        each(e, at, Here { value: Expr::Var(state), before });
    }

    /// The scan so far, before the next point is taken, if it is asked for.
    pub fn before(&self, e: &mut Emit<'a>, state: VarId) -> Option<Expr> {
        self.looks_before.then(|| Expr::Var(e.let_var("last", self.ty, Expr::Var(state))))
    }

    /// Whether terms are worth making apart from their combination, which then is as it is written.
    pub fn has_terms(&self, graph: &Graph) -> bool {
        match &self.terms {
            // Little is done to a scan's term: as fast by one warp.
            Terms::Fold(_) => false,
            Terms::Steps(l) => l.is_plain(graph),
        }
    }

    /// The point at a position, in order: a term, or a step as it is written.
    pub fn next(
        &self,
        e: &mut Emit<'a>,
        algebra: &Algebra,
        at: &Num,
        acc: &[VarId],
        each: &dyn Fn(&mut Emit<'a>, &Num, Here),
    ) {
        match &self.terms {
            Terms::Fold(_) => self.next_term(e, algebra, at, acc, each),
            Terms::Steps(l) => {
                self.step(e, l, at, *acc.last().expect("an algebra has a component"), each);
            }
        }
    }

    fn next_term(
        &self,
        e: &mut Emit<'a>,
        algebra: &Algebra,
        at: &Num,
        acc: &[VarId],
        each: &dyn Fn(&mut Emit<'a>, &Num, Here),
    ) {
        let x = algebra.vars(e, "x", algebra.unit.clone());
        self.term(e, at, &[], &|e, v| {
            x.iter().zip(v).for_each(|(&x, v)| e.push(Stmt::Set(x, v)));
        });
        let state = *acc.last().expect("an algebra has a component");
        let before = self.before(e, state);
        self.take(e, algebra, acc, &values(&x));
        each(e, at, Here { value: Expr::Var(state), before });
    }

    fn lower_rows(&self, cx: &mut Lowering<'a>, rows: i64) -> Result<(), Refusal> {
        if is_across(&cx.graph.tensor(self.target).dims, self.along, rows) {
            return self.by_threads(cx, rows);
        }
        match self.one_pass(cx, rows) {
            Some(split) => self.by_segments(cx, rows, &split),
            None => self.by_rows(cx, rows),
        }
    }

    /// Binds the axes other than the scan's.
    pub fn bind_rows(&self, e: &mut Emit<'a>, at: &[Num]) {
        let t = e.graph.tensor(self.target);
        let others = (0..t.dims.len()).filter(|&d| d != self.along);
        for (d, n) in others.zip(at) {
            let v = arith(IntOp::Add, n.clone(), int_of(n.ty, t.lo[d]));
            let v = Num { expr: e.named("ax", v.ty, v.expr), ty: v.ty };
            self.bind_everywhere(e, d, &v);
        }
        let along: BTreeSet<AxisId> = [self.axes[self.along]].into();
        let (cond, body) = self.roots();
        if let Terms::Fold(_) = self.terms {
            e.hoist(cond.unwrap_or(body), &along, true, &mut BTreeSet::new());
        }
    }

    /// The axis at this place of the scan, and of the definitions mapped over it.
    pub fn bind_everywhere(&self, e: &mut Emit<'a>, d: usize, v: &Num) {
        e.bind_axis(self.axes[d], v.expr.clone(), v.ty);
        for m in &self.maps {
            if m.axes[d] != self.axes[d] && e.axis_value(m.axes[d]).is_none() {
                e.bind_axis(m.axes[d], v.expr.clone(), v.ty);
            }
        }
    }

    pub fn bind_along(&self, e: &mut Emit<'a>, at: &Num) {
        let v = match self.backwards() {
            true => arith(IntOp::Sub, int_of(at.ty, self.lo + self.n - 1), at.clone()),
            false => arith(IntOp::Add, at.clone(), int_of(at.ty, self.lo)),
        };
        let v = Num { expr: e.named("t", v.ty, v.expr), ty: v.ty };
        self.bind_everywhere(e, self.along, &v);
    }

    /// The term at a position (from 0) that is inside, if the condition holds there: a value a component.
    pub fn term(
        &self,
        e: &mut Emit<'a>,
        at: &Num,
        known: &[(ExprId, Expr)],
        set: &dyn Fn(&mut Emit<'a>, Vec<Expr>),
    ) {
        e.scope(|e| {
            self.bind_along(e, at);
            known.iter().for_each(|(id, v)| e.bind(*id, v.clone()));
            let scan = match &self.terms {
                Terms::Fold(scan) => scan,
                Terms::Steps(l) => {
                    let v = l.emit(e, l.define.value, self.ty);
                    return set(e, v);
                }
            };
            let body = |e: &mut Emit<'a>| {
                let v = e.num_as(scan.body, self.ty);
                set(e, vec![v]);
            };
            match scan.cond {
                Some(c) => {
                    let c = e.value(c);
                    e.if_then(c, body);
                }
                None => body(e),
            }
        });
    }

    /// What goes before the first point, if that is something.
    pub fn start(&self, e: &mut Emit<'a>) -> Option<Vec<Expr>> {
        let Terms::Steps(l) = &self.terms else { return None };
        let init = l.init?;
        let v = e.scope(|e| {
            self.bind_along(e, &int_of(self.position_ty(), 0));
            let v = e.num_as(init, self.ty);
            e.let_var("start", self.ty, v)
        });
        let mut start = self.algebra(e).unit;
        *start.last_mut().expect("an algebra has a component") = Expr::Var(v);
        Some(start)
    }

    /// The values to store at a position: the scan's own, if it is stored, then the maps'.
    pub fn finish(&self, e: &mut Emit<'a>, at: &Num, here: Here, store: &dyn Fn(&mut Emit<'a>, usize, Num)) {
        e.scope(|e| {
            self.bind_along(e, at);
            let dtype = e.graph.tensor(self.target).dtype;
            let own = e.rounded(dtype, Num { expr: here.value, ty: self.ty });
            let own = Num { expr: e.named("y", own.ty, own.expr), ty: own.ty };
            e.forward(self.target, self.axes, own.clone());
            if let Some(before) = here.before {
                let before = e.rounded(dtype, Num { expr: before, ty: self.ty });
                let before = Num { expr: e.named("last", before.ty, before.expr), ty: before.ty };
                let first = compare(CmpOp::Eq, at.clone(), int_of(at.ty, 0));
                e.stage(
                    self.target,
                    Rc::new(move |e: &mut Emit<'a>, r: &Read| read_before(e, r, &before, &first)),
                );
            }
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
            e.unforward(self.target);
            if self.looks_before {
                e.unstage(self.target);
            }
            self.maps.iter().for_each(|m| e.unforward(m.target));
        });
    }

    /// What is stored: target and axes.
    pub fn outs(&self) -> Vec<(crate::ir::graph::TensorId, &'a [AxisId])> {
        let own = self.stored.then_some((self.target, self.axes));
        own.into_iter().chain(self.maps.iter().map(|m| (m.target, &m.axes[..]))).collect()
    }

    /// Stores at the bound axes.
    pub fn store_here(&self, e: &mut Emit<'a>, slot: usize, value: Num) {
        let (target, axes) = self.outs()[slot];
        let index = map::own_index(e, target, axes);
        match e.home(target).ring {
            // The last step alone is kept.
            Some(ring) => {
                let here = index[ring.dim].num.clone();
                let last = compare(CmpOp::Eq, here.clone(), int_of(here.ty, ring.last));
                e.if_then(last, |e| e.store(target, &index, value.expr));
            }
            None => e.store(target, &index, value.expr),
        }
    }

    pub fn algebra(&self, e: &mut Emit<'a>) -> Algebra {
        let (_, root) = self.roots();
        let unit = match self.law() {
            Law::Fold(c) => vec![e.unit(c, e.graph.ty(root), self.ty)],
            Law::Affine => scan_law::identity(self.ty),
        };
        let unit = unit.into_iter().map(|u| e.named("unit", self.ty, u)).collect();
        Algebra { law: self.law(), ty: self.ty, dtype: self.dtype(e.graph), unit }
    }

    pub fn position_ty(&self) -> Ty {
        if self.n < i32::MAX as i64 / 2 { Ty::I32 } else { Ty::I64 }
    }

    pub fn dtype(&self, graph: &Graph) -> dtype::DType {
        graph.ty(self.roots().1).stored()
    }

    // A thread a row, or a segment of one; neighbouring threads have neighbouring rows.

    fn by_threads(&self, cx: &mut Lowering<'a>, rows: i64) -> Result<(), Refusal> {
        const SHORT: i64 = 64;
        let wanted = (ENOUGH_THREADS / rows).min(self.n / SHORT).min(256);
        let wanted = self.asked.split.unwrap_or(wanted);
        if wanted < 2 {
            return self.columns(cx, 1, self.n, &[]);
        }
        let each = (self.n + wanted - 1) / wanted;
        let segments = (self.n + each - 1) / each;
        let totals = self.totals(cx, &[segments, rows]);
        let dims = [&[segments], &self.rows[..]].concat();
        launch_points(cx, &self.name, &dims, self.span, |e, at| {
            let part = self.segment(e, &at[0], each);
            self.bind_rows(e, &at[1..]);
            let algebra = self.algebra(e);
            let acc = self.vars(e, "acc", algebra.unit.clone());
            self.walk(e, &algebra, &part, &acc, &|_, _, _| {});
            let place = self.place_of(e, at, rows);
            for (&buffer, &acc) in totals.iter().zip(&acc) {
                let p = e.pointer(buffer, true);
                e.push(Stmt::Store(Mem::Global(p), place.expr.clone(), Expr::Var(acc)));
            }
        })?;
        launch_points(cx, &self.name, &[rows], self.span, |e, at| {
            let p: Vec<_> = totals.iter().map(|&b| e.pointer(b, true)).collect();
            let algebra = self.algebra(e);
            let acc = self.vars(e, "acc", algebra.unit.clone());
            let ty = if rows * segments < i32::MAX as i64 { Ty::I32 } else { Ty::I64 };
            let var = e.kernel.var("s", ty);
            let body = e.block(|e| {
                let place = add(mul(Expr::Var(var), int_of(ty, rows).expr), to(at[0].clone(), ty));
                let place = e.named("at", ty, place);
                let load = |p: &ParamId| Expr::Load(Mem::Global(*p), Box::new(place.clone()));
                let x: Vec<Expr> = p.iter().map(load).collect();
                let x = values(&self.vars(e, "x", x));
                for (&p, &acc) in p.iter().zip(&acc) {
                    e.push(Stmt::Store(Mem::Global(p), place.clone(), Expr::Var(acc)));
                }
                self.take(e, &algebra, &acc, &x);
            });
            let (lo, hi, step) = (int_of(ty, 0).expr, int_of(ty, segments).expr, int_of(ty, 1).expr);
            e.push(Stmt::For { var, lo, hi, step, unroll: Unroll::None, body });
        })?;
        self.columns(cx, segments, each, &totals)
    }

    /// A workspace a component.
    fn totals(&self, cx: &mut Lowering<'a>, dims: &[i64]) -> Vec<BufferId> {
        let components = if self.law() == Law::Affine { 2 } else { 1 };
        let dtype = self.dtype(cx.graph);
        (0..components).map(|_| cx.workspace(format!("{}_totals", self.name), dtype, dims)).collect()
    }

    fn vars(&self, e: &mut Emit<'a>, name: &str, values: Vec<Expr>) -> Vec<VarId> {
        values.into_iter().map(|v| e.let_var(name, self.ty, v)).collect()
    }

    /// Takes a term into a partial result.
    fn take(&self, e: &mut Emit<'a>, algebra: &Algebra, acc: &[VarId], x: &[Expr]) {
        let next = algebra.both(e, &values(acc), x);
        let next = if next.len() > 1 { values(&self.vars(e, "next", next)) } else { next };
        acc.iter().zip(next).for_each(|(&a, n)| e.push(Stmt::Set(a, n)));
    }

    /// The last pass, from what goes before each segment.
    fn columns(
        &self,
        cx: &mut Lowering<'a>,
        segments: i64,
        each: i64,
        before: &[BufferId],
    ) -> Result<(), Refusal> {
        let dims = [&[segments], &self.rows[..]].concat();
        let rows: i64 = self.rows.iter().product();
        launch_points(cx, &self.name, &dims, self.span, |e, at| {
            let part = self.segment(e, &at[0], each);
            let algebra = self.algebra(e);
            let mut first = algebra.unit.clone();
            if !before.is_empty() {
                let place = self.place_of(e, at, rows);
                first = before
                    .iter()
                    .map(|&buffer| {
                        let p = e.pointer(buffer, false);
                        Expr::Load(Mem::Global(p), Box::new(place.expr.clone()))
                    })
                    .collect();
            }
            self.bind_rows(e, &at[1..]);
            if let Some(start) = self.start(e) {
                let all = self.vars(e, "first", first);
                first = if before.is_empty() { start } else { algebra.both(e, &start, &values(&all)) };
            }
            let acc = self.vars(e, "acc", first);
            self.walk(e, &algebra, &part, &acc, &|e, at, v| {
                self.note(e, std::slice::from_ref(&v.value));
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
        algebra: &Algebra,
        part: &Part,
        acc: &[VarId],
        each: &dyn Fn(&mut Emit<'a>, &Num, Here),
    ) {
        let ty = part.lo.ty;
        let var = e.kernel.var("i", ty);
        let body = e.block(|e| self.next_term(e, algebra, &Num { expr: Expr::Var(var), ty }, acc, each));
        let (lo, hi, step) = (part.lo.expr.clone(), part.hi.expr.clone(), int_of(ty, 1).expr);
        e.push(Stmt::For { var, lo, hi, step, unroll: Unroll::By(8), body });
    }

    // A block a row, several rows, or a segment of a row.

    /// Elements of a vector: as wide as some read or store allows.
    pub fn width(&self, cx: &Lowering<'a>) -> i64 {
        let graph = cx.graph;
        let axes = [self.axes[self.along]];
        let reads = self.reads(graph);
        let any = |v: i64| {
            let loads =
                reads.iter().any(|(_, r)| vector_read(graph, cx.home(r.tensor), r, &axes, v).is_some());
            let stores = self
                .outs()
                .iter()
                .any(|(t, own)| vector_write(graph, cx.home(*t), *t, own, &[own[self.along]], v).is_some());
            self.n % v == 0 && (loads || stores)
        };
        let size = if matches!(self.ty, Ty::F64 | Ty::I64) { 2 } else { 4 };
        let narrow = reads.iter().map(|(_, r)| graph.tensor(r.tensor).dtype.bits()).min().unwrap_or(32);
        let most = if narrow <= 16 { 8 } else { size };
        [8, 4, 2].into_iter().find(|&v| v <= most && any(v)).unwrap_or(1)
    }

    /// Elements that a thread holds, and most threads of a block. Pairs take twice the registers, beside the values that
    /// they are made of.
    pub fn held(&self) -> (i64, i64) {
        let wide = if matches!(self.ty, Ty::F64 | Ty::I64) { 2 } else { 1 };
        if self.law() == Law::Affine { (HELD / 4 / wide, 512) } else { (HELD / wide, 1024) }
    }

    /// How a block of so many threads at most lies over rows, within what is set.
    pub fn layout(&self, width: i64, most: i64) -> Layout {
        let own = self.held().0;
        let threads = self.asked.threads.unwrap_or(most);
        let each =
            |step: i64| (step / self.asked.threads.unwrap_or(most.min(256))).clamp(width, own.max(width));
        let held = self.asked.step.filter(|s| *s < self.n).map_or(own, each);
        let threads = if held < own { threads.min(self.asked.threads.unwrap_or(256)) } else { threads };
        Layout::new(self.n, width, held, threads, self.asked.threads)
    }

    fn by_rows(&self, cx: &mut Lowering<'a>, rows: i64) -> Result<(), Refusal> {
        let mut layout = self.layout(self.width(cx), self.held().1);
        layout.per_block = layout.per_block.min((rows as u64).next_power_of_two() as i64);
        while layout.lanes * layout.per_block < 32 {
            layout.per_block *= 2;
        }
        let blocks = (rows + layout.per_block - 1) / layout.per_block;
        let mut e = self.begin(cx, &layout, blocks)?;
        let again = self.n > layout.chunk();
        let base = mul(Expr::Special(Special::BlockX), lit32(layout.per_block as i32));
        let own = arith(IntOp::Div, thread(), int_of(Ty::I32, layout.lanes)).expr;
        let number = e.named("row_at", Ty::I32, add(base, own));
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
        let algebra = self.algebra(&mut e);
        let carry = self.start(&mut e).or_else(|| again.then(|| algebra.unit.clone()));
        let block = Block::new(&mut e, layout.clone(), algebra, carry, again);
        let flow = Vectors::new(self, &mut e, &layout, valid);
        let ty = self.position_ty();
        let even = self.n % layout.chunk() == 0;
        block.chunks(&mut e, (int_of(ty, 0), int_of(ty, self.n)), even, &flow);
        cx.launch(e);
        Ok(())
    }

    /// The reads of the terms, by expression, that are made wherever a term is.
    pub fn reads(&self, graph: &Graph) -> Vec<(ExprId, crate::ir::graph::Read)> {
        let (cond, body) = self.roots();
        let mut all: Vec<ExprId> =
            cond.into_iter().chain([body]).flat_map(|r| crate::pass::inline::below(graph, r)).collect();
        all.sort();
        all.dedup();
        all.into_iter()
            .filter_map(|x| match graph.expr(x) {
                Node::Read(r) if r.tensor != self.target => Some((x, r.clone())),
                _ => None,
            })
            .collect()
    }

    pub fn begin(&self, cx: &mut Lowering<'a>, layout: &Layout, blocks: i64) -> Result<Emit<'a>, Refusal> {
        if blocks > MAX_GRID_X {
            return Err(Refusal::new(self.span, format!("{} has too many rows for a grid", self.name)));
        }
        let mut e = cx.emit(&self.name);
        e.kernel.block = [(layout.lanes * layout.per_block) as u32, 1, 1];
        e.kernel.grid = [blocks as u32, 1, 1];
        e.line(self.span);
        Ok(e)
    }
}

fn thread() -> Num {
    Num { expr: Expr::Special(Special::ThreadX), ty: Ty::I32 }
}
