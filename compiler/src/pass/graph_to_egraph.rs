//! graph → egraph: the values of all statements as terms over named axes.
//!
//! An axis with a literal range is named by that range and a rank: a statement's axes in their order, a fold's by
//! the smallest rank that nothing in it depends on. So equal folds are one class, in whatever statement they stand.
//! A fold with another range is opaque: it is carried through as it is.

use super::facts::{self, Facts};
use super::sites;
use crate::ir::graph::*;
use crate::rules;
use crate::rules::analysis::{self, Axis};
use crate::rules::term::{How, Op, Term};
use crate::vocab::dtype::Ty;
use egg::{Id, RecExpr};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};

/// The e-graph of some statements, and how to come back.
pub struct Values {
    pub egraph: rules::Graph,
    /// For each statement, the axes' names and the class of each root, in order.
    pub stmts: Vec<StmtValues>,
    /// Opaque folds: the expression, and the axes that its children stand for.
    pub opaque: Vec<(ExprId, Vec<AxisId>)>,
    /// Where in the source a class first came from.
    pub spans: FxHashMap<Id, girih_dsl::ast::Span>,
    /// The expression that a class first came from, with its free axes by their names: for tests that compare all of
    /// a class.
    #[cfg(test)]
    pub origins: BTreeMap<Id, Origin>,
}

impl Values {
    /// Finds spans by the classes as they are now.
    pub fn canonical_spans(&mut self) {
        let mut spans: Vec<_> = std::mem::take(&mut self.spans).into_iter().collect();
        spans.sort_by_key(|s| std::cmp::Reverse(s.0));
        self.spans = spans.into_iter().map(|(id, span)| (self.egraph.find(id), span)).collect();
    }
}

#[cfg(test)]
pub struct Origin {
    pub expr: ExprId,
    pub axes: Vec<(u32, AxisId)>,
}

pub struct StmtValues {
    pub stmt: usize,
    pub parts: Vec<PartValues>,
}

/// The roots that share one set of axes (a statement, or a member of a recurrence).
pub struct PartValues {
    pub axes: BTreeMap<u32, AxisId>,
    pub roots: Vec<Id>,
}

/// Terms of these statements. Reads of tensors are leaves.
pub fn build(g: &Graph, stmts: &[usize], explain: bool) -> Values {
    let mut terms = Terms::new(g, explain);
    terms.stmts(g, stmts);
    terms.values
}

/// Turns the expressions of a graph, which may grow, into terms of one e-graph.
pub struct Terms {
    pub values: Values,
    facts: Facts,
    /// Names of the axes in scope, and the classes found so far in this part.
    env: FxHashMap<AxisId, u32>,
    done: FxHashMap<ExprId, Id>,
    /// Definitions that are opened: a read of one is made one with what it is made of.
    opens: FxHashMap<TensorId, Define>,
    opened: FxHashSet<(TensorId, Vec<u32>)>,
    /// Numbers of opaque folds at axes of these names.
    opaque: FxHashMap<(ExprId, Vec<u32>), u32>,
    depth: usize,
    /// The definition that was looked at last, by its target and value.
    last: Option<(TensorId, ExprId)>,
}

/// Nodes of an e-graph beyond which no more definitions are opened.
const MOST_OPEN: usize = 40_000;
/// Definitions that are opened one in another.
const DEEPEST: usize = 16;

impl Terms {
    pub fn new(g: &Graph, explain: bool) -> Terms {
        let analysis = analysis::Facts {
            tensors: g.tensors.iter().map(|t| t.dtype).collect(),
            scalars: g.scalars.iter().map(|s| s.dtype).collect(),
            fold_fns: g.fold_fns.iter().map(|f| f.ty).collect(),
            ..analysis::Facts::default()
        };
        let egraph = rules::Graph::new(analysis);
        let egraph = if explain {
            egraph.with_explanations_enabled().without_explanation_length_optimization()
        } else {
            egraph
        };
        let values = Values {
            egraph,
            stmts: Vec::new(),
            opaque: Vec::new(),
            spans: FxHashMap::default(),
            #[cfg(test)]
            origins: BTreeMap::new(),
        };
        Terms {
            values,
            facts: Facts::default(),
            env: FxHashMap::default(),
            done: FxHashMap::default(),
            opens: FxHashMap::default(),
            opened: FxHashSet::default(),
            opaque: FxHashMap::default(),
            depth: 0,
            last: None,
        }
    }

    /// From now on reads of what these statements define are one with their values, where no fault can start in those.
    pub fn open(&mut self, g: &Graph) {
        for s in &g.stmts {
            if let Stmt::Define(d) = s
                && !self.facts.has_checked(g, d.value)
            {
                self.opens.insert(d.target, d.clone());
            }
        }
    }

    /// Terms of these statements.
    pub fn stmts(&mut self, g: &Graph, stmts: &[usize]) {
        for &s in stmts {
            let parts = self.stmt(g, &g.stmts[s]);
            self.values.stmts.push(StmtValues { stmt: s, parts });
        }
        rules::rebuild(&mut self.values.egraph);
    }

    fn stmt(&mut self, g: &Graph, s: &Stmt) -> Vec<PartValues> {
        match s {
            Stmt::Recur(r) => r.members.iter().map(|d| self.part(g, &d.axes, &[d.value])).collect(),
            Stmt::Table { .. } => Vec::new(),
            s => vec![self.part(g, &sites::stmt_axes(s), &facts::roots(s))],
        }
    }

    /// Makes a definition the part that was looked at last.
    pub fn look_at(&mut self, g: &Graph, d: &Define) {
        if self.last != Some((d.target, d.value)) {
            self.part(g, &d.axes, &[d.value]);
            self.last = Some((d.target, d.value));
        }
    }

    /// The classes of some values over the same axes.
    pub fn part(&mut self, g: &Graph, axes: &[AxisId], roots: &[ExprId]) -> PartValues {
        self.last = None;
        self.env.clear();
        self.done.clear();
        let mut named = BTreeMap::new();
        for (i, &a) in axes.iter().enumerate() {
            let range = g.axis_range(a);
            let rank = match range {
                Some(_) => axes[..i].iter().filter(|&&b| g.axis_range(b) == range).count() as u32,
                None => a.0,
            };
            let n = self.axis(g, Axis { range, rank }, a);
            self.env.insert(a, n);
            named.insert(n, a);
        }
        let roots = roots.iter().map(|&e| self.expr(g, e)).collect();
        PartValues { axes: named, roots }
    }

    /// The class of an expression of the part that was looked at last, with its free axes by their names.
    pub fn place(&mut self, g: &Graph, e: ExprId) -> Option<(Id, BTreeMap<u32, AxisId>)> {
        let id = self.values.egraph.find(*self.done.get(&e)?);
        let free = self.facts.free(g, e);
        let axes = free.iter().map(|a| Some((*self.env.get(a)?, *a))).collect::<Option<_>>()?;
        Some((id, axes))
    }

    /// The term that an expression of the part that was looked at last is, whatever else its class holds.
    pub fn node(&mut self, g: &Graph, e: ExprId) -> Option<Term> {
        self.done.contains_key(&e).then(|| self.make(g, e)).map(|t| {
            let egraph = &self.values.egraph;
            Term::new(t.op, t.children.iter().map(|&c| egraph.find(c)).collect())
        })
    }

    /// An expression of the part that was looked at last, written out.
    pub fn written(&mut self, g: &Graph, e: ExprId) -> RecExpr<Term> {
        let mut out = RecExpr::default();
        self.write(g, e, &mut FxHashMap::default(), &mut out);
        out
    }

    fn write(
        &mut self,
        g: &Graph,
        e: ExprId,
        known: &mut FxHashMap<ExprId, Id>,
        out: &mut RecExpr<Term>,
    ) -> Id {
        if let Some(&id) = known.get(&e) {
            return id;
        }
        let mut term = self.make(g, e);
        term.children = match g.expr(e) {
            Expr::Fold(f) if term.fold_parts().is_some() => {
                let axes = f.axes.iter().map(|&a| self.name_of(g, a)).collect::<Vec<_>>();
                let axes = axes.into_iter().map(|n| out.add(Term::new(Op::Axis(n), vec![])));
                let mut children: Vec<Id> = axes.collect();
                children.extend(f.cond.into_iter().chain([f.body]).map(|c| self.write(g, c, known, out)));
                children
            }
            Expr::Fold(_) => {
                let free: Vec<AxisId> = self.facts.free(g, e).iter().copied().collect();
                let names = free.into_iter().map(|a| self.name_of(g, a)).collect::<Vec<_>>();
                names.into_iter().map(|n| out.add(Term::new(Op::Axis(n), vec![]))).collect()
            }
            _ => g.children(e).into_iter().map(|c| self.write(g, c, known, out)).collect(),
        };
        let id = out.add(term);
        known.insert(e, id);
        id
    }

    fn axis(&mut self, g: &Graph, axis: Axis, like: AxisId) -> u32 {
        self.values.egraph.analysis.axis(axis, &g.axis(like).name)
    }

    fn add(&mut self, op: Op, children: Vec<Id>) -> Id {
        self.values.egraph.add(Term::new(op, children))
    }

    fn expr(&mut self, g: &Graph, e: ExprId) -> Id {
        if let Some(&id) = self.done.get(&e) {
            return id;
        }
        let term = self.make(g, e);
        let id = self.values.egraph.add(term);
        self.values.spans.entry(id).or_insert(g.span(e));
        #[cfg(test)]
        if !self.values.origins.contains_key(&id) {
            let free = self.facts.free(g, e);
            let axes = free.iter().filter_map(|a| Some((*self.env.get(a)?, *a))).collect();
            self.values.origins.insert(id, Origin { expr: e, axes });
        }
        self.done.insert(e, id);
        if let Expr::Read(r) = g.expr(e) {
            self.look_inside(g, r, id);
        }
        id
    }

    /// Makes a read of a definition one with what the definition is made of, if it is read at plain axes.
    fn look_inside(&mut self, g: &Graph, r: &Read, read: Id) {
        if r.access != Access::Proven || self.depth == DEEPEST || !self.opens.contains_key(&r.tensor) {
            return;
        }
        // Where it may be read only under a condition, it is no value of all points.
        let within = |a: AxisId, of: AxisId| match (g.axis_range(a), g.axis_range(of)) {
            (Some(here), Some(there)) => there.0 <= here.0 && here.1 <= there.1,
            _ => false,
        };
        let name = |(&i, &of): (&ExprId, &AxisId)| match g.expr(i) {
            Expr::Axis(a) if within(*a, of) => self.env.get(a).copied(),
            _ => None,
        };
        let axes = &self.opens[&r.tensor].axes;
        let Some(names) = r.index.iter().zip(axes).map(name).collect::<Option<Vec<u32>>>() else { return };
        let full = self.values.egraph.total_number_of_nodes() > MOST_OPEN;
        if full || !self.opened.insert((r.tensor, names.clone())) {
            return;
        }
        let d = self.opens[&r.tensor].clone();
        let inner = d.axes.iter().copied().zip(names).collect();
        let (env, done) = (std::mem::replace(&mut self.env, inner), std::mem::take(&mut self.done));
        self.depth += 1;
        let value = self.expr(g, d.value);
        self.depth -= 1;
        (self.env, self.done) = (env, done);
        let value = self.stored(g, d.target, value, g.ty(d.value));
        self.values.egraph.union_trusted(read, value, format!("definition of {}", g.tensor(d.target).name));
    }

    /// Are reads of this tensor one with what it is made of?
    pub fn opens(&self, t: TensorId) -> bool {
        self.opens.contains_key(&t)
    }

    /// The class of a value as it comes back from a tensor, if some statement speaks of it.
    pub fn known_stored(&self, g: &Graph, t: TensorId, value: Id, ty: Ty) -> Option<Id> {
        let (dtype, how) = (g.tensor(t).dtype, g.tensor(t).rounding());
        let compute = dtype.compute();
        let look = |op: Op, value: Id| self.values.egraph.lookup(Term::new(op, vec![value]));
        let value = if ty == compute { value } else { look(Op::Cast(compute), value)? };
        if dtype == compute.stored() { Some(value) } else { look(Op::Round(dtype, how), value) }
    }

    /// A value as it comes back from a tensor.
    fn stored(&mut self, g: &Graph, t: TensorId, value: Id, ty: Ty) -> Id {
        let (dtype, how) = (g.tensor(t).dtype, g.tensor(t).rounding());
        let compute = dtype.compute();
        let value = if ty == compute { value } else { self.add(Op::Cast(compute), vec![value]) };
        if dtype == compute.stored() { value } else { self.add(Op::Round(dtype, how), vec![value]) }
    }

    fn make(&mut self, g: &Graph, e: ExprId) -> Term {
        let (op, children) = match g.expr(e) {
            Expr::Lit(v) => return Term::lit(*v),
            Expr::Axis(a) => (Op::Axis(self.name_of(g, *a)), vec![]),
            Expr::Scalar(s) => (Op::Scalar(s.0), vec![]),
            Expr::Param(p) => (Op::Param(*p), vec![]),
            Expr::Read(r) => {
                let how = match r.access {
                    Access::Proven => How::Proven,
                    Access::Checked => How::Checked,
                    Access::Else(_) => How::Else,
                };
                (Op::Read(r.tensor.0, how), g.children(e))
            }
            Expr::Call(f, args) => (Op::Call(*f), args.clone()),
            Expr::Cast(a) => (Op::Cast(g.ty(e)), vec![*a]),
            Expr::Round(d, how, a) => (Op::Round(*d, *how), vec![*a]),
            Expr::Select(c, a, b) => (Op::Select, vec![*c, *a, *b]),
            Expr::Fold(f) => return self.fold(g, e, f),
        };
        let children = children.into_iter().map(|c| self.expr(g, c)).collect();
        Term::new(op, children)
    }

    /// The name of an axis in scope; one that is not (inside a range) keeps its own.
    fn name_of(&mut self, g: &Graph, a: AxisId) -> u32 {
        match self.env.get(&a) {
            Some(&n) => n,
            None => self.axis(g, Axis { range: None, rank: a.0 }, a),
        }
    }

    fn fold(&mut self, g: &Graph, e: ExprId, f: &Fold) -> Term {
        let free: Vec<AxisId> = self.facts.free(g, e).iter().copied().collect();
        let literal = f.axes.iter().all(|&a| g.axis_range(a).is_some());
        if !literal || f.axes.len() > u8::MAX as usize {
            return self.opaque(g, e, free);
        }
        let mut used: BTreeSet<u32> = free.iter().map(|&a| self.name_of(g, a)).collect();
        let mut axes = Vec::new();
        for &a in &f.axes {
            let n = self.values.egraph.analysis.unused(g.axis_range(a), &used, &g.axis(a).name);
            used.insert(n);
            self.env.insert(a, n);
            axes.push(self.add(Op::Axis(n), vec![]));
        }
        let cond = f.cond.map(|c| self.expr(g, c));
        let body = self.expr(g, f.body);
        Term::fold(f.combine, &axes, cond, body)
    }

    fn opaque(&mut self, g: &Graph, e: ExprId, free: Vec<AxisId>) -> Term {
        let names: Vec<u32> = free.iter().map(|&a| self.name_of(g, a)).collect();
        let children = names.iter().map(|&n| self.add(Op::Axis(n), vec![])).collect();
        let next = self.values.opaque.len() as u32;
        let n = *self.opaque.entry((e, names)).or_insert(next);
        if n == next {
            let fault = self.facts.has_checked(g, e);
            self.values.egraph.analysis.opaque.push((g.ty(e), fault));
            self.values.opaque.push((e, free));
        }
        Term::new(Op::Opaque(n), children)
    }
}
