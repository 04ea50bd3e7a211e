//! Facts about expressions that several passes ask for: free axes, work, tensors read, whether a fault can start there.
//!
//! Every question is answered once an expression (they are interned), so asking is cheap.

use crate::ir::graph::*;
use crate::lower::fold_pattern::{self, Chain};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Answers by expression. Valid while the graph only grows.
#[derive(Default)]
pub struct Facts {
    free: Known<Rc<BTreeSet<AxisId>>>,
    work: Known<f64>,
    folds: Known<bool>,
    checked: Known<bool>,
    reads: Known<Rc<BTreeSet<TensorId>>>,
    speculable: Known<bool>,
    read_list: Known<Rc<Vec<Read>>>,
    /// The sites of a definition's folds, by its axes and value (`rows::fold_sites`).
    pub fold_sites: FxHashMap<(Vec<AxisId>, ExprId), Rc<Vec<super::sites::Site>>>,
    chains: FxHashMap<(TensorId, Vec<AxisId>, ExprId), Result<Rc<Chain>, String>>,
}

/// One answer for each expression, by its number.
struct Known<T>(Vec<Option<T>>);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Known(Vec::new())
    }
}

impl<T> Known<T> {
    fn get(&self, e: &ExprId) -> Option<&T> {
        self.0.get(e.0 as usize)?.as_ref()
    }

    fn insert(&mut self, e: ExprId, value: T) {
        let at = e.0 as usize;
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        self.0[at] = Some(value);
    }
}

/// The union of sets, shared with one of them that holds the others.
fn union<T: Ord + Copy>(parts: Vec<Rc<BTreeSet<T>>>) -> Rc<BTreeSet<T>> {
    let Some(largest) = parts.iter().max_by_key(|p| p.len()).cloned() else { return Rc::default() };
    let holds = |p: &Rc<BTreeSet<T>>| Rc::ptr_eq(p, &largest) || p.is_subset(&largest);
    if parts.iter().all(holds) {
        return largest;
    }
    Rc::new(parts.iter().flat_map(|p| p.iter().copied()).collect())
}

impl Facts {
    /// The axes an expression depends on and does not bind.
    pub fn free(&mut self, g: &Graph, e: ExprId) -> Rc<BTreeSet<AxisId>> {
        if let Some(f) = self.free.get(&e) {
            return f.clone();
        }
        let mut parts: Vec<_> = g.children(e).into_iter().map(|c| self.free(g, c)).collect();
        if let Expr::Axis(a) = g.expr(e) {
            parts.push(Rc::new(BTreeSet::from([*a])));
        }
        let mut set = union(parts);
        if let Expr::Fold(f) = g.expr(e)
            && f.axes.iter().any(|a| set.contains(a))
        {
            set = Rc::new(set.iter().copied().filter(|a| !f.axes.contains(a)).collect());
        }
        self.free.insert(e, set.clone());
        set
    }

    /// Scalar operations to evaluate it once: shared parts count once, a fold's loop whole. Ranges that depend on
    /// data or outer axes count with [`points`].
    pub fn work(&mut self, g: &Graph, e: ExprId) -> f64 {
        if let Some(&w) = self.work.get(&e) {
            return w;
        }
        let mut seen = FxHashSet::default();
        let mut stack = vec![e];
        let mut total = 0.0;
        while let Some(x) = stack.pop() {
            if !seen.insert(x) {
                continue;
            }
            if let Expr::Fold(f) = g.expr(x) {
                let inner: f64 = f.cond.into_iter().chain([f.body]).map(|c| self.work(g, c)).sum();
                total += volume(g, &f.axes) * (inner + 1.0);
            } else {
                total += own_work(g.expr(x));
                stack.extend(g.children(x));
            }
        }
        self.work.insert(e, total);
        total
    }

    /// Does it hold a fold?
    pub fn has_fold(&mut self, g: &Graph, e: ExprId) -> bool {
        if let Some(&h) = self.folds.get(&e) {
            return h;
        }
        let h = matches!(g.expr(e), Expr::Fold(_)) || g.children(e).into_iter().any(|c| self.has_fold(g, c));
        self.folds.insert(e, h);
        h
    }

    /// Does it hold a read that is checked as it is made?
    pub fn has_checked(&mut self, g: &Graph, e: ExprId) -> bool {
        if let Some(&h) = self.checked.get(&e) {
            return h;
        }
        let own = matches!(g.expr(e), Expr::Read(Read { access: Access::Checked, .. }));
        let h = own || g.children(e).into_iter().any(|c| self.has_checked(g, c));
        self.checked.insert(e, h);
        h
    }

    /// May it be evaluated where the program does not evaluate it? Its reads are in bounds whatever led to them, and none
    /// can fault.
    pub fn speculable(&mut self, g: &Graph, e: ExprId) -> bool {
        if let Some(&yes) = self.speculable.get(&e) {
            return yes;
        }
        let own = match g.expr(e) {
            Expr::Read(Read { access: Access::Checked, .. }) => false,
            Expr::Read(r) if r.access == Access::Proven => super::bounds::read_is_safe(g, r),
            _ => true,
        };
        let yes = own && g.children(e).into_iter().all(|c| self.speculable(g, c));
        self.speculable.insert(e, yes);
        yes
    }

    /// The tensors it reads.
    pub fn reads(&mut self, g: &Graph, e: ExprId) -> Rc<BTreeSet<TensorId>> {
        if let Some(r) = self.reads.get(&e) {
            return r.clone();
        }
        let mut parts: Vec<_> = g.children(e).into_iter().map(|c| self.reads(g, c)).collect();
        if let Expr::Read(r) = g.expr(e) {
            parts.push(Rc::new(BTreeSet::from([r.tensor])));
        }
        let set = union(parts);
        self.reads.insert(e, set.clone());
        set
    }

    /// Every read in it, by the number of its expression.
    pub fn reads_in(&mut self, g: &Graph, e: ExprId) -> Rc<Vec<Read>> {
        if let Some(known) = self.read_list.get(&e) {
            return known.clone();
        }
        let mut all = super::inline::below(g, e);
        all.sort();
        let read = |x: ExprId| if let Expr::Read(r) = g.expr(x) { Some(r.clone()) } else { None };
        let found: Rc<Vec<Read>> = Rc::new(all.into_iter().filter_map(read).collect());
        self.read_list.insert(e, found.clone());
        found
    }

    /// The chain of two products that a definition is, or why it is none.
    pub fn chain(&mut self, g: &Graph, d: &Define) -> Result<Rc<Chain>, String> {
        let key = (d.target, d.axes.clone(), d.value);
        let found = self.chains.entry(key).or_insert_with(|| fold_pattern::takes(g, d).map(Rc::new));
        found.clone()
    }

    /// Every tensor that a statement reads, the base of an update too.
    pub fn stmt_reads(&mut self, g: &Graph, s: &Stmt) -> BTreeSet<TensorId> {
        let mut set = BTreeSet::new();
        for e in roots(s) {
            set.extend(self.reads(g, e).iter().copied());
        }
        if let Stmt::Update(Update { base: Base::Tensor(t), .. }) = s {
            set.insert(*t);
        }
        set
    }
}

/// Scalar operations of one node.
pub fn own_work(e: &Expr) -> f64 {
    match e {
        Expr::Lit(_) | Expr::Axis(_) | Expr::Scalar(_) | Expr::Param(_) => 0.0,
        Expr::Call(f, _) => f.row().cost as f64,
        _ => 1.0,
    }
}

/// Points of an axis; a guess where its range depends on data or outer axes.
pub fn points(g: &Graph, a: AxisId) -> f64 {
    const UNKNOWN: f64 = 64.0;
    g.extent(a).map_or(UNKNOWN, |n| n as f64)
}

/// The product of the extents of axes with literal ranges.
pub fn volume(g: &Graph, axes: &[AxisId]) -> f64 {
    axes.iter().map(|&a| points(g, a)).product()
}

/// The expressions a statement evaluates at its points.
pub fn roots(s: &Stmt) -> Vec<ExprId> {
    match s {
        Stmt::Define(d) => vec![d.value],
        Stmt::Scan(s) => s.cond.into_iter().chain([s.body]).collect(),
        Stmt::Sort(s) => vec![s.key],
        Stmt::Recur(r) => r.members.iter().map(|d| d.value).collect(),
        Stmt::Update(u) => u.index.iter().copied().chain(u.cond).chain([u.value]).collect(),
        Stmt::Table { .. } => Vec::new(),
    }
}

/// Rewrites the expressions a statement evaluates.
pub fn map_roots(s: &mut Stmt, f: &mut dyn FnMut(ExprId) -> ExprId) {
    match s {
        Stmt::Define(d) => d.value = f(d.value),
        Stmt::Scan(s) => {
            s.cond = s.cond.map(&mut *f);
            s.body = f(s.body);
        }
        Stmt::Sort(s) => s.key = f(s.key),
        Stmt::Recur(r) => r.members.iter_mut().for_each(|d| d.value = f(d.value)),
        Stmt::Update(u) => {
            u.index.iter_mut().for_each(|i| *i = f(*i));
            u.cond = u.cond.map(&mut *f);
            u.value = f(u.value);
        }
        Stmt::Table { .. } => {}
    }
}
