//! Substitution: axes by expressions, expressions by expressions.
//!
//! Invariant kept: an axis is bound once. Where axes are replaced, a fold whose parts change gets fresh axes; one that
//! does not change stays the same node. Where expressions are replaced, folds keep their axes, for the new expressions
//! may speak of them.

use crate::ir::graph::*;
use rustc_hash::FxHashMap;

/// One simultaneous substitution, with what it has done so far.
#[derive(Default)]
pub struct Subst {
    done: FxHashMap<ExprId, ExprId>,
    /// Folds keep their axes: what is put in for an expression speaks of the axes around it.
    keeps_axes: bool,
}

impl Subst {
    /// Replaces each axis by an expression.
    pub fn of_axes(g: &mut Graph, map: impl IntoIterator<Item = (AxisId, ExprId)>) -> Subst {
        let mut s = Subst::default();
        for (axis, to) in map {
            let from = g.axis_expr(axis);
            s.done.insert(from, to);
        }
        s
    }

    /// Replaces whole expressions.
    pub fn of_exprs(map: impl IntoIterator<Item = (ExprId, ExprId)>) -> Subst {
        Subst { done: map.into_iter().collect(), keeps_axes: true }
    }

    /// Replaces one more expression from now on.
    pub fn put(&mut self, from: ExprId, to: ExprId) {
        self.done.insert(from, to);
    }

    pub fn apply(&mut self, g: &mut Graph, e: ExprId) -> ExprId {
        if let Some(&to) = self.done.get(&e) {
            return to;
        }
        let to = self.rebuild(g, e);
        self.done.insert(e, to);
        to
    }

    fn rebuild(&mut self, g: &mut Graph, e: ExprId) -> ExprId {
        if let Expr::Fold(f) = g.expr(e).clone() {
            return self.fold(g, e, f);
        }
        let expr = map_children(g.expr(e).clone(), &mut |c| self.apply(g, c));
        let (ty, span) = (g.ty(e), g.span(e));
        g.add(expr, ty, span)
    }

    /// A fold is rebuilt with fresh axes if anything in it changes.
    fn fold(&mut self, g: &mut Graph, e: ExprId, f: Fold) -> ExprId {
        if !self.changes(g, e) {
            return e;
        }
        let mut axes = Vec::new();
        let mut moved = Vec::new();
        for &a in &f.axes {
            let (lo, hi) = (g.axis(a).lo, g.axis(a).hi);
            let (new_lo, new_hi) = (self.apply(g, lo), self.apply(g, hi));
            if self.keeps_axes && (lo, hi) == (new_lo, new_hi) {
                axes.push(a);
                continue;
            }
            let (name, span) = (g.axis(a).name.clone(), g.axis(a).span);
            let fresh = g.new_axis(name, new_lo, new_hi, span);
            let (from, to) = (g.axis_expr(a), g.axis_expr(fresh));
            if self.keeps_axes {
                moved.push((a, to));
            } else {
                self.done.insert(from, to);
            }
            axes.push(fresh);
        }
        let mut cond = f.cond.map(|c| self.apply(g, c));
        let mut body = self.apply(g, f.body);
        if !moved.is_empty() {
            let mut rename = Subst::of_axes(g, moved);
            cond = cond.map(|c| rename.apply(g, c));
            body = rename.apply(g, body);
        }
        let (ty, span) = (g.ty(e), g.span(e));
        g.add(Expr::Fold(Fold { combine: f.combine, axes, cond, body }), ty, span)
    }

    /// Would anything below change?
    fn changes(&self, g: &Graph, e: ExprId) -> bool {
        let mut seen = rustc_hash::FxHashSet::default();
        let mut stack = vec![e];
        while let Some(x) = stack.pop() {
            if !seen.insert(x) {
                continue;
            }
            match self.done.get(&x) {
                Some(&to) if to != x => return true,
                Some(_) => {}
                None => stack.extend(g.children(x)),
            }
        }
        false
    }
}

/// The same node over other children (a fold's axes stay: for folds use [`Subst`]).
pub fn map_children(expr: Expr, f: &mut dyn FnMut(ExprId) -> ExprId) -> Expr {
    match expr {
        Expr::Lit(_) | Expr::Axis(_) | Expr::Scalar(_) | Expr::Param(_) => expr,
        Expr::Read(r) => {
            let index = r.index.into_iter().map(&mut *f).collect();
            let access = match r.access {
                Access::Else(d) => Access::Else(f(d)),
                other => other,
            };
            Expr::Read(Read { tensor: r.tensor, index, access })
        }
        Expr::Call(func, args) => Expr::Call(func, args.into_iter().map(f).collect()),
        Expr::Cast(a) => Expr::Cast(f(a)),
        Expr::Round(d, how, a) => Expr::Round(d, how, f(a)),
        Expr::Select(c, a, b) => {
            let c = f(c);
            let a = f(a);
            let b = f(b);
            Expr::Select(c, a, b)
        }
        Expr::Fold(fold) => {
            let cond = fold.cond.map(&mut *f);
            let body = f(fold.body);
            Expr::Fold(Fold { cond, body, ..fold })
        }
    }
}
