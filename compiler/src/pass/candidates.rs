//! What inside a statement could be stored: reductions, roundings, values with several uses and values that do not change
//! along some axis of the loops around them.

use super::facts::{self, Facts};
use super::{cost, sites};
use crate::ir::graph::*;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// The free axes of an expression in the order in which it speaks of them: the same for equal shapes.
pub fn appearing(g: &Graph, facts: &mut Facts, e: ExprId) -> Vec<AxisId> {
    let free = facts.free(g, e);
    let mut order = Vec::new();
    let mut seen = FxHashSet::default();
    let mut stack = vec![e];
    while let Some(x) = stack.pop() {
        if !seen.insert(x) {
            continue;
        }
        if let Expr::Axis(a) = g.expr(x)
            && free.contains(a)
        {
            order.push(*a);
        }
        stack.extend(g.children(x).into_iter().rev());
    }
    order
}

/// Looks for values whose loops around them make no difference to them, for roundings, folds and shared values.
struct Walk<'a> {
    g: &'a Graph,
    facts: &'a mut Facts,
    seen: FxHashSet<(ExprId, Vec<AxisId>)>,
    found: BTreeMap<ExprId, f64>,
}

/// The values inside a statement that could be stored, with the most that storing each can gain, in microseconds.
pub fn of(g: &Graph, facts: &mut Facts, s: &Stmt) -> BTreeMap<ExprId, f64> {
    let mut walk = Walk { g, facts, seen: FxHashSet::default(), found: BTreeMap::new() };
    let axes = sites::stmt_axes(s);
    for e in facts::roots(s) {
        walk.go(e, &axes, None);
    }
    walk.found
}

impl Walk<'_> {
    /// `around`: the node above at the same scope.
    fn go(&mut self, e: ExprId, scope: &[AxisId], around: Option<ExprId>) {
        if self.facts.reads(self.g, e).is_empty() {
            return;
        }
        let again = !self.seen.insert((e, scope.to_vec()));
        if self.is_candidate(e, around, again) {
            let free = self.facts.free(self.g, e);
            let inner: Vec<AxisId> = scope.iter().copied().filter(|a| !free.contains(a)).collect();
            let own: Vec<AxisId> = free.iter().copied().collect();
            let repeat = facts::volume(self.g, &inner);
            let work = self.facts.work(self.g, e) * facts::volume(self.g, &own) * repeat;
            let rounded = matches!(self.g.expr(e), Expr::Round(..));
            if repeat > 1.0 || again || rounded || matches!(self.g.expr(e), Expr::Fold(_)) {
                self.found.insert(e, cost::compute(work) * 1e6);
            }
        }
        if again {
            return;
        }
        match self.g.expr(e) {
            Expr::Fold(f) => {
                let scope: Vec<AxisId> = scope.iter().chain(&f.axes).copied().collect();
                f.cond.into_iter().chain([f.body]).for_each(|c| self.go(c, &scope, None));
            }
            _ => self.g.children(e).into_iter().for_each(|c| self.go(c, scope, Some(e))),
        }
    }

    fn is_candidate(&mut self, e: ExprId, around: Option<ExprId>, again: bool) -> bool {
        let wider = around.is_none_or(|p| self.facts.free(self.g, p) != self.facts.free(self.g, e));
        match self.g.expr(e) {
            Expr::Read(_) | Expr::Lit(_) | Expr::Axis(_) => false,
            Expr::Cast(a) if matches!(self.g.expr(*a), Expr::Read(_)) => false,
            Expr::Fold(_) | Expr::Round(..) => true,
            _ => wider || again,
        }
    }
}
