//! Scans and sorts inside expressions: each becomes a statement of its own on a hidden local, which is read where it stood.
//!
//! The hidden local lies over plain ranges. Where an axis has a range that depends on data or on other axes, a plain one around
//! it takes its place, and a condition keeps what is outside from being read.

use super::build;
use super::elab::Elab;
use super::typ::{Typ, Val};
use crate::ir::graph::*;
use crate::pass::subst::Subst;
use crate::vocab::dtype::{Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use girih_dsl::ast::{BinOp, Name, Span};
use girih_dsl::diagnostic::Diagnostic;

/// A body over a plain range around one that depends on data or other axes.
struct Boxed {
    axis: AxisId,
    /// The plain range's first point.
    start: i64,
    /// The range itself.
    lo: ExprId,
    hi: ExprId,
    /// A point is in the range, and meets the condition there was.
    cond: ExprId,
    body: Val,
}

/// What is around a hoisted body.
struct Around {
    /// Its axes, all of plain ranges.
    axes: Vec<AxisId>,
    /// The axes that they stand for where its value is read.
    outside: Vec<AxisId>,
    guard: Option<ExprId>,
    /// Puts its axes into expressions.
    renamed: Subst,
}

/// Where a hoisted statement's value is read: its axes, which of them is the mapped one, the indices, the conditions
/// around.
struct Place<'a> {
    axes: &'a [AxisId],
    at: usize,
    index: &'a [ExprId],
    /// The part's first point there.
    lo: ExprId,
    guard: Option<ExprId>,
}

impl Elab<'_> {
    /// Makes a scan (or a sort) a statement of its own, and reads it here.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn hoist(
        &mut self,
        name: &Name,
        axis: AxisId,
        outer: AxisId,
        cond: Option<ExprId>,
        e: Val,
        scan: Option<Monoid>,
        span: Span,
    ) -> Val {
        let t = if e.typ == Typ::Lit { Typ::Index } else { e.typ };
        let boxed = self.boxed(axis, cond, e, span);
        let (axis, cond, e) = boxed.as_ref().map_or((axis, cond, e), |b| (b.axis, Some(b.cond), b.body));
        let around = match self.boxes_around([Some(e.id), cond], axis, outer, span) {
            Ok(around) => around,
            Err(a) => {
                let axis = self.g.axis(a).name.clone();
                let what =
                    format!("`{}` under {axis}, whose range depends on data that may be anything", name.text);
                let d = Diagnostic::error("E0207", name.span, what);
                return self.wrong(d.help(
                    "declare the values of the data (start: i32[B] in 0..N), or give it a definition over axes with plain ranges",
                ));
            }
        };
        let Around { axes, outside, guard, renamed } = around;
        let mut s = renamed;
        let (id, wide) = (s.apply(&mut self.g, e.id), s.apply(&mut self.g, e.wide));
        let e = Val { id, wide, ..e };
        let cond = cond.map(|c| s.apply(&mut self.g, c));
        let lo = boxed.as_ref().map(|b| b.lo);
        let boxed = boxed.map(|mut b| {
            [b.lo, b.hi] = [b.lo, b.hi].map(|x| s.apply(&mut self.g, x));
            b
        });
        if self.reads_member(&[Some(e.id), Some(e.wide), cond]) {
            let what = format!("`{}` cannot read what the recurrence around it defines", name.text);
            let d = Diagnostic::error("E0411", name.span, what);
            return self
                .wrong(d.help("write the scan as a recurrence too, or as a fold over earlier points"));
        }
        let sorted = scan.is_none();
        let result = if sorted { Typ::Index } else { t };
        let id = self.hoisted_stmt(name, &axes, axis, guard, cond, e.id, scan, span);
        let wide = match result {
            Typ::Open => self.hoisted_stmt(name, &axes, axis, guard, cond, e.wide, scan, span),
            _ => id,
        };
        let index: Vec<ExprId> = outside.iter().map(|&a| self.g.axis_expr(a)).collect();
        let read = |s: &mut Self, tensor: TensorId| {
            let ty = s.g.tensor(tensor).dtype.compute();
            s.g.add(Expr::Read(Read { tensor, index: index.clone(), access: Access::Proven }), ty, span)
        };
        if let (Some(b), Some(lo), true) = (boxed, lo, sorted) {
            let at = axes.iter().position(|&a| a == axis).unwrap_or(0);
            let place = Place { axes: &axes, at, index: &index, lo, guard };
            return self.sorted_part(name, &b, id, place, span);
        }
        let (id, wide) = (read(self, id), read(self, wide));
        Val { typ: result, id, wide, divided: false }
    }

    /// A sort over a part of a plain range: `order` is that of the whole range by keys; sorted once more, stably, by
    /// whether a position is outside, it starts with the part. (Keys alone do not tell: NaN is one too.)
    fn sorted_part(&mut self, name: &Name, part: &Boxed, order: TensorId, place: Place, span: Span) -> Val {
        let own: Vec<ExprId> = place.axes.iter().map(|&a| self.g.axis_expr(a)).collect();
        let read = |s: &mut Self, tensor: TensorId, index: Vec<ExprId>| {
            s.g.add(Expr::Read(Read { tensor, index, access: Access::Proven }), Ty::I64, span)
        };
        let position = read(self, order, own);
        let inside = self.between(part.lo, position, part.hi, span);
        let (first, last) = (self.g.int(0), self.g.int(1));
        let key = build::select(&mut self.g, inside, first, last, span);
        let parts = self.hoisted_stmt(name, place.axes, part.axis, place.guard, None, key, None, span);
        // The j-th of the part is the j-th of the whole, counted from the first position of each.
        let mut index = place.index.to_vec();
        let within = self.index_op(BinOp::Sub, index[place.at], place.lo, span);
        let start = self.g.int(part.start);
        index[place.at] = self.index_op(BinOp::Add, within, start, span);
        index[place.at] = read(self, parts, index.clone());
        let id = read(self, order, index);
        Val::new(Typ::Index, id)
    }

    /// `lo <= at && at < hi`
    fn between(&mut self, lo: ExprId, at: ExprId, hi: ExprId, span: Span) -> ExprId {
        let from = build::call(&mut self.g, Func::Le, vec![lo, at], span);
        let upto = build::call(&mut self.g, Func::Lt, vec![at, hi], span);
        build::and(&mut self.g, from, upto, span)
    }

    /// The axes of a hoisted body. One whose range depends on data or other axes is replaced by a plain one around it, with a
    /// condition that holds inside the range and stands before all others. Such an axis is given back if nothing bounds it.
    fn boxes_around(
        &mut self,
        parts: [Option<ExprId>; 2],
        axis: AxisId,
        outer: AxisId,
        span: Span,
    ) -> Result<Around, AxisId> {
        let mut ranges: Option<ExprId> = None;
        let mut done: Vec<AxisId> = Vec::new();
        let (axes, guard) = loop {
            let (axes, guard) = self.hoisted_axes(&[parts[0], parts[1], ranges], axis, outer);
            let loose = |a: &&AxisId| self.g.axis_range(**a).is_none() && !done.contains(a);
            let Some(&a) = axes.iter().find(loose) else { break (axes, guard) };
            if a == axis {
                return Err(a);
            }
            done.push(a);
            let [lo, hi] = [self.g.axis(a).lo, self.g.axis(a).hi];
            let [lo, hi] = [lo, hi].map(|x| build::cast(&mut self.g, x, Ty::I64, span));
            let at = self.g.axis_expr(a);
            let inside = self.between(lo, at, hi, span);
            ranges = Some(match ranges {
                // The ranges further out first: this one may read what they keep inside.
                Some(r) => build::and(&mut self.g, inside, r, span),
                None => inside,
            });
        };
        let mut pairs = Vec::new();
        let mut own = axes.clone();
        for a in done {
            let (lo, hi) = self.hull(a).ok_or(a)?;
            let (first, end) = (self.g.int(lo), self.g.int(hi));
            let name = self.g.axis(a).name.clone();
            let plain = self.axis(&name, first, end, Default::default(), span);
            own.iter_mut().filter(|x| **x == a).for_each(|x| *x = plain);
            pairs.push((a, self.g.axis_expr(plain)));
        }
        let mut renamed = Subst::of_axes(&mut self.g, pairs);
        let guard = match (ranges, guard) {
            (Some(r), Some(c)) => Some(build::and(&mut self.g, r, c, span)),
            (r, c) => r.or(c),
        };
        let guard = guard.map(|c| renamed.apply(&mut self.g, c));
        let outside = axes.iter().map(|&a| if a == axis { outer } else { a }).collect();
        Ok(Around { axes: own, outside, guard, renamed })
    }

    /// The plain range around that of an axis, if it is not too wide.
    fn hull(&self, a: AxisId) -> Option<(i64, i64)> {
        /// Points of the plain range, at most.
        const MOST: i128 = 1 << 28;
        let (lo, hi) = (self.g.axis(a).lo, self.g.axis(a).hi);
        let (least, most) = (self.prover.iv(&self.g, lo).0, self.prover.iv(&self.g, hi).1);
        if most - least > MOST {
            return None;
        }
        Some((i64::try_from(least).ok()?, i64::try_from(most.max(least)).ok()?))
    }

    /// A scan or sort over a range that depends on data or outer axes passes over the points of a plain one that are
    /// outside. `None` where the range is plain, or may be anything.
    fn boxed(&mut self, axis: AxisId, cond: Option<ExprId>, e: Val, span: Span) -> Option<Boxed> {
        if self.g.axis_range(axis).is_some() {
            return None;
        }
        let (start, end) = self.hull(axis)?;
        let (lo, hi) = (self.g.axis(axis).lo, self.g.axis(axis).hi);
        let name = self.g.axis(axis).name.clone();
        let (first, end) = (self.g.int(start), self.g.int(end));
        let plain = self.axis(&name, first, end, Default::default(), span);
        let here = self.g.axis_expr(plain);
        let mut s = Subst::of_axes(&mut self.g, [(axis, here)]);
        let (id, wide) = (s.apply(&mut self.g, e.id), s.apply(&mut self.g, e.wide));
        let also = cond.map(|c| s.apply(&mut self.g, c));
        let [lo, hi] = [lo, hi].map(|x| build::cast(&mut self.g, x, Ty::I64, span));
        let mut cond = self.between(lo, here, hi, span);
        if let Some(c) = also {
            cond = build::and(&mut self.g, cond, c, span);
        }
        Some(Boxed { axis: plain, start, lo, hi, cond, body: Val { id, wide, ..e } })
    }

    /// The axes that a hoisted body depends on, in the order of the scope, with the mapped axis at its outer one's place;
    /// and the conditions around that speak of them.
    fn hoisted_axes(
        &mut self,
        parts: &[Option<ExprId>],
        axis: AxisId,
        outer: AxisId,
    ) -> (Vec<AxisId>, Option<ExprId>) {
        let mut free = std::collections::BTreeSet::new();
        parts.iter().flatten().for_each(|&e| free.extend(self.free_axes(e)));
        let mut guards: Vec<(ExprId, bool)> = Vec::new();
        loop {
            let before = (free.len(), guards.len());
            for (c, side) in self.prover.conds.clone() {
                let of = self.free_axes(c);
                let concerns = of.is_empty() || of.iter().any(|a| free.contains(a));
                if concerns && !of.contains(&outer) && !guards.contains(&(c, side)) {
                    free.extend(of);
                    guards.push((c, side));
                }
            }
            if before == (free.len(), guards.len()) {
                break;
            }
        }
        let order = self.scope.clone();
        let axes = order
            .into_iter()
            .filter_map(|a| match a {
                a if a == outer => Some(axis),
                a => free.contains(&a).then_some(a),
            })
            .collect();
        let mut all: Option<ExprId> = None;
        for (c, side) in guards {
            let c = if side { c } else { build::not(&mut self.g, c, Span::default()) };
            all = Some(match all {
                Some(x) => build::and(&mut self.g, x, c, Span::default()),
                None => c,
            });
        }
        (axes, all)
    }

    #[allow(clippy::too_many_arguments)]
    fn hoisted_stmt(
        &mut self,
        name: &Name,
        axes: &[AxisId],
        axis: AxisId,
        guard: Option<ExprId>,
        cond: Option<ExprId>,
        body: ExprId,
        scan: Option<Monoid>,
        span: Span,
    ) -> TensorId {
        // The statement binds axes of its own.
        let mut s = Subst::default();
        let own: Vec<AxisId> = axes.iter().map(|&a| self.renamed(a, &mut s)).collect();
        let along = axes.iter().position(|&a| a == axis).unwrap_or(0);
        let [guard, cond] = [guard, cond].map(|c| c.map(|c| s.apply(&mut self.g, c)));
        let body = s.apply(&mut self.g, body);
        let ranges: Vec<(i64, i64)> = own.iter().filter_map(|&a| self.g.axis_range(a)).collect();
        let lo = ranges.iter().map(|r| r.0).collect();
        let dims = ranges.iter().map(|r| (r.1 - r.0).max(0)).collect();
        let ty = if scan.is_some() { self.g.ty(body) } else { Ty::I64 };
        let hidden = format!("{}#{}", name.text, self.fresh());
        let t = super::stmt::tensor(&hidden, ty.stored(), dims, lo, Role::Local, span);
        let positions = ranges.get(along).map(|r| (r.0 as i128, r.1 as i128 - 1));
        let known =
            super::prove::Values { range: positions.filter(|_| scan.is_none()), ..Default::default() };
        let target = self.tensor(t, known);
        let stmt = match scan {
            Some(m) => {
                let cond = match (guard, cond) {
                    (Some(a), Some(b)) => Some(build::and(&mut self.g, a, b, span)),
                    (a, b) => a.or(b),
                };
                Stmt::Scan(Scan { target, axes: own, along, combine: Combine::Builtin(m), cond, body, span })
            }
            None => {
                // Where the guard is false, or the condition, nothing is read: such points come last.
                let mut key = body;
                for c in [cond, guard].into_iter().flatten() {
                    let last = greatest(&mut self.g, key);
                    key = build::select(&mut self.g, c, key, last, span);
                }
                Stmt::Sort(Sort { target, axes: own, along, key, span })
            }
        };
        self.g.stmts.push(stmt);
        target
    }

    /// Does it read a member of the recurrence at hand?
    fn reads_member(&self, parts: &[Option<ExprId>]) -> bool {
        let Some(r) = &self.recurrence else { return false };
        let mut facts = crate::pass::facts::Facts::default();
        parts
            .iter()
            .flatten()
            .any(|&e| facts.reads(&self.g, e).iter().any(|t| r.members.iter().any(|m| m.0 == *t)))
    }
}

/// What sorts last: NaN, or the greatest integer.
fn greatest(g: &mut Graph, like: ExprId) -> ExprId {
    let v = match g.ty(like) {
        Ty::F32 => Value::F32(f32::NAN),
        Ty::F64 => Value::F64(f64::NAN),
        Ty::I32 => Value::I32(i32::MAX),
        Ty::I64 => Value::I64(i64::MAX),
        Ty::Bool => Value::Bool(true),
    };
    g.lit(v)
}
