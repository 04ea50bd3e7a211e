//! Compaction: a graph with only the expressions that its statements use.
//!
//! Later passes count an expression's uses, so what rewriting left behind must go.

use super::facts;
use super::subst::map_children;
use crate::ir::graph::*;
use std::collections::{BTreeSet, HashMap};

/// The same graph without unused expressions, and without those tensors from number `fixed` on that nothing defines.
/// Other tensors and axes keep their ids; an axis that nothing uses gets an empty range.
pub fn compact(mut old: Graph, fixed: usize) -> Graph {
    let tensors = drop_undefined(&mut old, fixed);
    let mut new = Graph::default();
    new.op = old.op.clone();
    new.sizes = old.sizes.clone();
    new.consts = old.consts.clone();
    new.tensors = old.tensors.clone();
    new.scalars = old.scalars.clone();
    new.axes = old.axes.clone();
    new.outputs = old.outputs.clone();
    new.tiles = old.tiles.clone();
    let nothing = new.int(0);
    for a in &mut new.axes {
        (a.lo, a.hi) = (nothing, nothing);
    }
    let axes = vec![false; old.axes.len()];
    let mut copy = Copy { old: &old, new: &mut new, done: HashMap::new(), axes, tensors: &tensors };
    let fold_fns = old
        .fold_fns
        .iter()
        .map(|f| FoldFn { name: f.name.clone(), body: copy.expr(f.body), unit: copy.expr(f.unit), ty: f.ty })
        .collect();
    let mut stmts = old.stmts.clone();
    for s in &mut stmts {
        axes_of(s).into_iter().for_each(|a| copy.axis(a));
        facts::map_roots(s, &mut |e| copy.expr(e));
    }
    new.fold_fns = fold_fns;
    new.stmts = stmts;
    new
}

/// Removes the tensors from `fixed` on that have no definition; the statements are renumbered at once. Gives each old
/// tensor's new number, for the reads.
fn drop_undefined(g: &mut Graph, fixed: usize) -> Vec<TensorId> {
    let defined: BTreeSet<TensorId> = g.stmts.iter().flat_map(Stmt::targets).collect();
    let mut to = Vec::new();
    let mut kept = Vec::new();
    for (i, t) in std::mem::take(&mut g.tensors).into_iter().enumerate() {
        to.push(TensorId(kept.len() as u32));
        if i < fixed || defined.contains(&TensorId(i as u32)) {
            kept.push(t);
        }
    }
    g.tensors = kept;
    for s in &mut g.stmts {
        if let Stmt::Define(d) = s {
            d.target = to[d.target.0 as usize];
        }
    }
    to
}

fn axes_of(s: &Stmt) -> Vec<AxisId> {
    match s {
        Stmt::Recur(r) => r.members.iter().flat_map(|d| d.axes.clone()).collect(),
        s => super::sites::stmt_axes(s),
    }
}

struct Copy<'a> {
    old: &'a Graph,
    new: &'a mut Graph,
    done: HashMap<ExprId, ExprId>,
    axes: Vec<bool>,
    tensors: &'a [TensorId],
}

impl Copy<'_> {
    fn axis(&mut self, a: AxisId) {
        let at = a.0 as usize;
        if std::mem::replace(&mut self.axes[at], true) {
            return;
        }
        let (lo, hi) = (self.old.axes[at].lo, self.old.axes[at].hi);
        let (lo, hi) = (self.expr(lo), self.expr(hi));
        (self.new.axes[at].lo, self.new.axes[at].hi) = (lo, hi);
    }

    fn expr(&mut self, e: ExprId) -> ExprId {
        if let Some(&to) = self.done.get(&e) {
            return to;
        }
        match self.old.expr(e) {
            Expr::Axis(a) => self.axis(*a),
            Expr::Fold(f) => f.axes.iter().for_each(|&a| self.axis(a)),
            _ => {}
        }
        let mut node = map_children(self.old.expr(e).clone(), &mut |c| self.expr(c));
        if let Expr::Read(r) = &mut node {
            r.tensor = self.tensors[r.tensor.0 as usize];
        }
        let to = self.new.add(node, self.old.ty(e), self.old.span(e));
        self.done.insert(e, to);
        to
    }
}
