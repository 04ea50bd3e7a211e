//! Hoisting: folds that would be computed again and again where they stand become stored definitions.
//!
//! A fold is hoisted only if it may be evaluated at all points of its free axes whatever conditions stand around it
//! ([`sites::speculable`]) and those axes have fixed ranges. Its value is stored unrounded, so nothing changes but where it
//! is computed.

use super::cost;
use super::facts::{self, Facts};
use super::group;
use super::inline::{self, outer_folds};
use super::rows;
use super::sites::{self, Site};
use super::subst::Subst;
use crate::ir::graph::*;
use crate::vocab::dtype::Value;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// What hoisting asks about contractions: whether the form takes a definition as it is.
pub type Takes<'a> = &'a dyn Fn(&Graph, &Define) -> bool;

/// What earlier runs over the same growing graph found.
#[derive(Default)]
pub struct Known {
    /// Definitions made so far by the shape of their value, free of axis names: equal values are stored once. They may
    /// be out of use in the graph at hand.
    made: BTreeMap<String, (TensorId, Stmt)>,
    /// What was chosen in statements of this content.
    chosen: FxHashMap<group::Content, Vec<ExprId>>,
}

/// Hoists in every statement, and in what is hoisted.
pub fn hoist(g: &mut Graph, takes: Takes, notes: &mut Vec<String>) {
    let end = g.stmts.len();
    let mut facts = Facts::default();
    let mut known = Known::default();
    Pass { g, facts: &mut facts, takes, notes, known: &mut known }.over(0, end);
}

/// What hoisting works on.
pub struct Pass<'a> {
    pub g: &'a mut Graph,
    pub facts: &'a mut Facts,
    pub takes: Takes<'a>,
    pub notes: &'a mut Vec<String>,
    pub known: &'a mut Known,
}

/// Sees to it that a definition stands before statement `i`. Gives how many statements came in before `i`.
pub fn place(g: &mut Graph, i: usize, stmt: &Stmt) -> usize {
    let targets = stmt.targets();
    match g.stmts.iter().position(|s| s.targets() == targets) {
        Some(at) if at < i => 0,
        Some(at) => {
            let moved = g.stmts.remove(at);
            g.stmts.insert(i, moved);
            1
        }
        None => {
            g.stmts.insert(i, stmt.clone());
            1
        }
    }
}

impl Pass<'_> {
    /// Hoists in these statements, and in what is hoisted from them.
    pub fn over(&mut self, first: usize, end: usize) {
        let (mut i, mut end) = (first, end);
        while i < end.min(self.g.stmts.len()) {
            match self.chosen(i) {
                chosen if chosen.is_empty() => i += 1,
                chosen => end += self.lift(i, &chosen),
            }
        }
    }

    /// Lifts the products that stand inside other folds of a statement.
    pub fn products_inside(&mut self, i: usize) {
        let s = self.g.stmts[i].clone();
        let sites: Vec<Site> = rows::fold_sites(self.g, self.facts, &s).iter().cloned().collect();
        let mut inside: Vec<ExprId> = Vec::new();
        for site in sites.iter().filter(|x| !x.folds.is_empty()) {
            if self.may_lift(&s, site) && inline::is_contraction(self.g, self.facts, site.expr) {
                inside.push(site.expr);
            }
        }
        let inside = self.outermost(inside);
        if !inside.is_empty() {
            self.lift(i, &inside);
        }
    }

    /// Those that are in none of the others, each once.
    fn outermost(&self, all: Vec<ExprId>) -> Vec<ExprId> {
        let below = |&e: &ExprId| inline::below(self.g, e).into_iter().filter(move |&x| x != e);
        let inside: BTreeSet<ExprId> = all.iter().flat_map(below).collect();
        let mut all: Vec<ExprId> = all.into_iter().filter(|e| !inside.contains(e)).collect();
        all.sort();
        all.dedup();
        all
    }

    fn chosen(&mut self, i: usize) -> Vec<ExprId> {
        let content = group::content(self.g, [i]);
        if let Some(chosen) = self.known.chosen.get(&content) {
            return chosen.clone();
        }
        let chosen = self.choose(i);
        self.known.chosen.insert(content, chosen.clone());
        chosen
    }

    /// The folds of a statement that should be hoisted next.
    fn choose(&mut self, i: usize) -> Vec<ExprId> {
        let s = self.g.stmts[i].clone();
        let sites: Vec<Site> = rows::fold_sites(self.g, self.facts, &s)
            .iter()
            .filter(|x| self.may_lift(&s, x))
            .cloned()
            .collect();
        if sites.is_empty() {
            return Vec::new();
        }
        let chosen = match &s {
            Stmt::Define(d) => self.choose_in_define(i, d, &sites),
            _ => self.choose_elsewhere(&sites),
        };
        // A fold in a fold that goes goes with it, and is looked at there.
        self.outermost(chosen)
    }

    fn may_lift(&mut self, s: &Stmt, site: &Site) -> bool {
        let members: Vec<TensorId> = if let Stmt::Recur(_) = s { s.targets() } else { Vec::new() };
        let reads = self.facts.reads(self.g, site.expr);
        let ranged = self.facts.free(self.g, site.expr).iter().all(|&a| self.g.axis_range(a).is_some());
        ranged && !members.iter().any(|m| reads.contains(m)) && self.facts.speculable(self.g, site.expr)
    }

    /// Is the fold the only thing of the statement, at the same points?
    fn is_whole(&self, d: &Define, e: ExprId) -> bool {
        d.value == e
    }

    fn choose_in_define(&mut self, i: usize, d: &Define, sites: &[Site]) -> Vec<ExprId> {
        let outer: Vec<ExprId> = outer_folds(self.g, d.value);
        let liftable = |e: &ExprId| sites.iter().any(|s| s.expr == *e);
        let narrow: Vec<ExprId> = outer.iter().copied().filter(|&e| self.repeat(&d.axes, e) > 1.0).collect();
        if !narrow.is_empty() && self.narrow_must_go(i, d, &outer, &narrow) {
            let go: Vec<ExprId> =
                narrow.into_iter().filter(liftable).filter(|&e| !self.is_whole(d, e)).collect();
            if !go.is_empty() {
                self.notes.push(format!(
                    "{}: a reduction that is the same for many of its points is computed first",
                    self.name(d.target)
                ));
                return go;
            }
        }
        if (self.takes)(self.g, d) {
            return Vec::new();
        }
        let products = self.products(d, &outer, &liftable);
        if !products.is_empty() {
            self.notes
                .push(format!("{}: a product of matrices inside it has its own kernel", self.name(d.target)));
            return products;
        }
        let first = self.first_passes(i, d, &liftable);
        if !first.is_empty() {
            self.notes
                .push(format!("{}: few long rows, a kernel for each pass over them", self.name(d.target)));
            return first;
        }
        let row: BTreeSet<AxisId> = rows::row_axes(self.g, self.facts, d).into_iter().collect();
        self.nested(d, sites, &row)
    }

    /// Outer folds that depend on fewer axes than the statement: a block a row computes them once, unless there are
    /// folds at every point too, or too few rows, or rows that differ.
    fn narrow_must_go(&mut self, i: usize, d: &Define, outer: &[ExprId], narrow: &[ExprId]) -> bool {
        if narrow.len() < outer.len() {
            return true;
        }
        let Ok(found) = rows::analyse(self.g, self.facts, &[i]) else { return true };
        let rows: f64 = found.count();
        let uneven = narrow.iter().any(|&e| {
            let row = &found.members[0].rows;
            self.repeat(row, e) > 1.0 && self.facts.work(self.g, e) > 64.0
        });
        uneven
            || rows::few_columns(self.g, self.facts, &found)
            || !rows::is_busy(
                rows,
                rows::row_points(self.g, &found).max(facts::volume(self.g, &d.axes) / rows.max(1.0)),
            )
    }

    /// For few long rows, which several blocks share: the reductions that others need first, each to be a kernel.
    fn first_passes(&mut self, i: usize, d: &Define, liftable: &dyn Fn(&ExprId) -> bool) -> Vec<ExprId> {
        let Ok(found) = rows::analyse(self.g, self.facts, &[i]) else { return Vec::new() };
        if found.levels() < 2 || rows::keep_busy(self.g, self.facts, &found) {
            return Vec::new();
        }
        let folds = found.members.iter().flat_map(|m| &m.folds).filter(|f| f.level == 0).map(|f| f.expr);
        folds.filter(|e| liftable(e) && !self.is_whole(d, *e)).collect()
    }

    /// Products of matrices that stand beside something no contraction takes.
    fn products(&mut self, d: &Define, outer: &[ExprId], liftable: &dyn Fn(&ExprId) -> bool) -> Vec<ExprId> {
        outer
            .iter()
            .copied()
            .filter(|&e| {
                !self.is_whole(d, e) && liftable(&e) && inline::is_contraction(self.g, self.facts, e)
            })
            .collect()
    }

    /// Folds inside folds. Those of the row stay (the block computes them once); others are computed by one thread
    /// for each point around, which is fine for few.
    fn nested(&mut self, _: &Define, sites: &[Site], row: &BTreeSet<AxisId>) -> Vec<ExprId> {
        let mut go = Vec::new();
        for s in sites.iter().filter(|s| !s.folds.is_empty()) {
            if self.facts.free(self.g, s.expr).is_subset(row) {
                continue;
            }
            let work = self.facts.work(self.g, s.expr);
            let repeat = self.repeat(&s.scope, s.expr);
            if self.pays(s.expr, work, repeat) {
                go.push(s.expr);
            }
        }
        go
    }

    /// In scans, sorts, updates and recurrences.
    fn choose_elsewhere(&mut self, sites: &[Site]) -> Vec<ExprId> {
        let mut go = Vec::new();
        for s in sites {
            let work = self.facts.work(self.g, s.expr);
            let repeat = self.repeat(&s.scope, s.expr);
            if self.pays(s.expr, work, repeat) {
                go.push(s.expr);
            }
        }
        go
    }

    /// Storing costs a write and reads; leaving it costs the same work again, and a long loop in one thread.
    fn pays(&mut self, e: ExprId, work: f64, repeat: f64) -> bool {
        const LONG: f64 = 512.0;
        let free: Vec<AxisId> = self.facts.free(self.g, e).iter().copied().collect();
        let points = facts::volume(self.g, &free);
        let bytes = points * 8.0;
        let again = cost::compute(points * work * (repeat - 1.0));
        work >= LONG || again > cost::memory(bytes) + cost::LAUNCH
    }

    /// How many times a fold is computed over where a scope's axes make no difference to it.
    fn repeat(&mut self, scope: &[AxisId], e: ExprId) -> f64 {
        let free = self.facts.free(self.g, e);
        scope.iter().filter(|a| !free.contains(a)).map(|&a| facts::points(self.g, a)).product()
    }

    fn name(&self, t: TensorId) -> String {
        self.g.tensor(t).name.clone()
    }

    /// Puts definitions of these folds before statement `i`, and reads of them in it. Gives how many came in.
    fn lift(&mut self, i: usize, folds: &[ExprId]) -> usize {
        let mut map = Vec::new();
        let mut new = Vec::new();
        for &e in folds {
            let free: Vec<AxisId> = self.free_in_order(i, e);
            let (tensor, stmt) = self.definition(i, e, &free);
            if !new.iter().any(|s: &Stmt| s.targets() == stmt.targets()) {
                new.push(stmt);
            }
            map.push((e, read_at(self.g, tensor, e, &free)));
        }
        let mut s = self.g.stmts[i].clone();
        let mut subst = Subst::of_exprs(map);
        facts::map_roots(&mut s, &mut |e| subst.apply(self.g, e));
        self.g.stmts[i] = s;
        new.iter().rev().map(|s| place(self.g, i, s)).sum()
    }

    fn definition(&mut self, i: usize, e: ExprId, free: &[AxisId]) -> (TensorId, Stmt) {
        let key = super::shape::key(self.g, e, free);
        if let Some(made) = self.known.made.get(&key) {
            return made.clone();
        }
        let target = *self.g.stmts[i].targets().last().expect("statements with folds have targets");
        let word = match self.g.expr(e) {
            Expr::Fold(Fold { combine: Combine::Builtin(m), .. }) => m.name().to_string(),
            _ => "fold".to_string(),
        };
        let name = format!("{}.{word}{}", self.name(target), self.known.made.len());
        let made = define(self.g, name, e, free);
        self.known.made.insert(key, made.clone());
        made
    }

    /// Free axes in the order of the statement's axes, then of the folds around.
    fn free_in_order(&mut self, i: usize, e: ExprId) -> Vec<AxisId> {
        let free = self.facts.free(self.g, e);
        let axes = match &self.g.stmts[i] {
            Stmt::Recur(r) => r.members.iter().flat_map(|d| d.axes.clone()).collect(),
            s => sites::stmt_axes(s),
        };
        let mut order: Vec<AxisId> = axes.into_iter().filter(|a| free.contains(a)).collect();
        order.extend(free.iter().copied().filter(|a| !order.contains(a)).collect::<Vec<_>>());
        order
    }
}

/// A read of a definition made by [`define`], where `e` stood.
pub fn read_at(g: &mut Graph, tensor: TensorId, e: ExprId, free: &[AxisId]) -> ExprId {
    let index = free.iter().map(|&a| g.axis_expr(a)).collect();
    let (ty, span) = (g.ty(e), g.span(e));
    g.add(Expr::Read(Read { tensor, index, access: Access::Proven }), ty, span)
}

/// A new local that holds an expression at every point of its free axes, which have literal ranges. A rounded value is
/// stored in the dtype it is rounded to, any other as it is.
pub fn define(g: &mut Graph, name: String, e: ExprId, free: &[AxisId]) -> (TensorId, Stmt) {
    let range = |a: &AxisId| g.axis_range(*a).expect("the caller asks for literal ranges");
    let (lo, dims): (Vec<i64>, Vec<i64>) =
        free.iter().map(range).map(|(lo, hi)| (lo, (hi - lo).max(0))).unzip();
    let (ty, span) = (g.ty(e), g.span(e));
    let (dtype, cast) = match g.expr(e) {
        Expr::Round(d, how, _) if d.compute() == ty && d.bits() >= 8 => (*d, *how == Rounding::Fixed),
        _ => (ty.stored(), false),
    };
    g.tensors.push(Tensor {
        name,
        version: 0,
        dtype,
        strides: contiguous(&dims),
        dims,
        lo,
        role: Role::Local,
        range: None,
        unique: false,
        cast,
        align: 256,
        span,
    });
    let target = TensorId(g.tensors.len() as u32 - 1);
    let axes: Vec<AxisId> = free.iter().map(|&a| copy_axis(g, a)).collect();
    let map: Vec<(AxisId, ExprId)> = free.iter().copied().zip(axes.iter().map(|&a| g.axis_expr(a))).collect();
    let value = if map.is_empty() { e } else { Subst::of_axes(g, map).apply(g, e) };
    (target, Stmt::Define(Define { target, axes, value, span }))
}

fn copy_axis(g: &mut Graph, a: AxisId) -> AxisId {
    let (lo, hi) = g.axis_range(a).expect("the caller asks for literal ranges");
    let (name, span) = (g.axis(a).name.clone(), g.axis(a).span);
    let (lo, hi) = (g.lit(Value::I64(lo)), g.lit(Value::I64(hi)));
    g.new_axis(name, lo, hi, span)
}

fn contiguous(dims: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; dims.len()];
    for d in (1..dims.len()).rev() {
        strides[d - 1] = strides[d] * dims[d];
    }
    strides
}
