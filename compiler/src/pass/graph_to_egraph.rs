//! graph → egraph: the values of all statements as terms over named axes.
//!
//! An axis with a literal range is named by that range and a rank: a statement's axes in their order, a fold's by
//! the smallest rank that nothing in it depends on. So equal folds are one class, in whatever statement they stand.
//! A fold with another range is opaque: it is carried through as it is.

use super::facts::{self, Facts};
use super::sites;
use crate::ir::graph::*;
use crate::rules::analysis::{self, Axis};
use crate::rules::term::{How, Op, Term};
use crate::rules::{self, Class, Limits};
use egg::Id;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::fmt::Write;

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
    /// A name for the axes that folds bind, by number.
    pub axis_names: Vec<String>,
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

/// Terms of these statements.
pub fn build(g: &Graph, stmts: &[usize], explain: bool) -> Values {
    let analysis = analysis::Facts {
        axes: Vec::new(),
        tensors: g.tensors.iter().map(|t| t.dtype).collect(),
        scalars: g.scalars.iter().map(|s| s.dtype).collect(),
        fold_fns: g.fold_fns.iter().map(|f| f.ty).collect(),
        opaque: Vec::new(),
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
        axis_names: Vec::new(),
    };
    let mut b = Builder {
        g,
        facts: Facts::default(),
        values,
        known: BTreeMap::new(),
        env: FxHashMap::default(),
        done: FxHashMap::default(),
    };
    for &s in stmts {
        let parts = b.stmt(&g.stmts[s]);
        b.values.stmts.push(StmtValues { stmt: s, parts });
    }
    rules::rebuild(&mut b.values.egraph);
    b.values
}

struct Builder<'a> {
    g: &'a Graph,
    facts: Facts,
    values: Values,
    known: BTreeMap<Axis, u32>,
    env: FxHashMap<AxisId, u32>,
    done: FxHashMap<ExprId, Id>,
}

impl Builder<'_> {
    fn stmt(&mut self, s: &Stmt) -> Vec<PartValues> {
        match s {
            Stmt::Recur(r) => r.members.iter().map(|d| self.part(&d.axes, &[d.value])).collect(),
            Stmt::Table { .. } => Vec::new(),
            s => vec![self.part(&sites::stmt_axes(s), &facts::roots(s))],
        }
    }

    fn part(&mut self, axes: &[AxisId], roots: &[ExprId]) -> PartValues {
        self.env.clear();
        self.done.clear();
        let mut named = BTreeMap::new();
        for (i, &a) in axes.iter().enumerate() {
            let range = self.g.axis_range(a);
            let rank = match range {
                Some(_) => axes[..i].iter().filter(|&&b| self.g.axis_range(b) == range).count() as u32,
                None => a.0,
            };
            let n = self.axis(Axis { range, rank }, a);
            self.env.insert(a, n);
            named.insert(n, a);
        }
        let roots = roots.iter().map(|&e| self.expr(e)).collect();
        PartValues { axes: named, roots }
    }

    fn axis(&mut self, axis: Axis, like: AxisId) -> u32 {
        if let Some(&n) = self.known.get(&axis) {
            return n;
        }
        let n = self.values.egraph.analysis.axes.len() as u32;
        self.values.egraph.analysis.axes.push(axis.clone());
        self.values.axis_names.push(self.g.axis(like).name.clone());
        self.known.insert(axis, n);
        n
    }

    fn add(&mut self, op: Op, children: Vec<Id>) -> Id {
        self.values.egraph.add(Term::new(op, children))
    }

    fn expr(&mut self, e: ExprId) -> Id {
        if let Some(&id) = self.done.get(&e) {
            return id;
        }
        let id = self.term(e);
        self.values.spans.entry(id).or_insert(self.g.span(e));
        #[cfg(test)]
        if !self.values.origins.contains_key(&id) {
            let free = self.facts.free(self.g, e);
            let axes = free.iter().filter_map(|a| Some((*self.env.get(a)?, *a))).collect();
            self.values.origins.insert(id, Origin { expr: e, axes });
        }
        self.done.insert(e, id);
        id
    }

    fn term(&mut self, e: ExprId) -> Id {
        let g = self.g;
        match g.expr(e) {
            Expr::Lit(v) => self.values.egraph.add(Term::lit(*v)),
            Expr::Axis(a) => {
                let n = self.name_of(*a);
                self.add(Op::Axis(n), vec![])
            }
            Expr::Scalar(s) => self.add(Op::Scalar(s.0), vec![]),
            Expr::Param(p) => self.add(Op::Param(*p), vec![]),
            Expr::Read(r) => {
                let (how, default) = match r.access {
                    Access::Proven => (How::Proven, None),
                    Access::Checked => (How::Checked, None),
                    Access::Else(d) => (How::Else, Some(d)),
                };
                let children = r.index.iter().copied().chain(default).map(|c| self.expr(c)).collect();
                self.add(Op::Read(r.tensor.0, how), children)
            }
            Expr::Call(f, args) => {
                let args = args.iter().map(|&a| self.expr(a)).collect();
                self.add(Op::Call(*f), args)
            }
            Expr::Cast(a) => {
                let a = self.expr(*a);
                self.add(Op::Cast(g.ty(e)), vec![a])
            }
            Expr::Round(d, a) => {
                let a = self.expr(*a);
                self.add(Op::Round(*d), vec![a])
            }
            Expr::Select(c, a, b) => {
                let parts = [*c, *a, *b].map(|x| self.expr(x));
                self.add(Op::Select, parts.to_vec())
            }
            Expr::Fold(f) => self.fold(e, f),
        }
    }

    /// The name of an axis in scope; one that is not (inside a range) keeps its own.
    fn name_of(&mut self, a: AxisId) -> u32 {
        match self.env.get(&a) {
            Some(&n) => n,
            None => self.axis(Axis { range: None, rank: a.0 }, a),
        }
    }

    fn fold(&mut self, e: ExprId, f: &Fold) -> Id {
        let free: Vec<AxisId> = self.facts.free(self.g, e).iter().copied().collect();
        let literal = f.axes.iter().all(|&a| self.g.axis_range(a).is_some());
        if !literal || f.axes.len() > u8::MAX as usize {
            let children = free.iter().map(|&a| self.name_of(a)).collect::<Vec<_>>();
            let children = children.into_iter().map(|n| self.add(Op::Axis(n), vec![])).collect();
            let fault = self.facts.has_checked(self.g, e);
            self.values.egraph.analysis.opaque.push((self.g.ty(e), fault));
            self.values.opaque.push((e, free));
            return self.add(Op::Opaque(self.values.opaque.len() as u32 - 1), children);
        }
        let mut used: Vec<u32> = free.iter().map(|&a| self.name_of(a)).collect();
        let mut axes = Vec::new();
        for &a in &f.axes {
            let range = self.g.axis_range(a);
            let free_rank = (0..).map(|rank| Axis { range, rank });
            let pick = free_rank.into_iter().find(|x| self.known.get(x).is_none_or(|n| !used.contains(n)));
            let n = self.axis(pick.expect("ranks do not end"), a);
            used.push(n);
            self.env.insert(a, n);
            axes.push(self.add(Op::Axis(n), vec![]));
        }
        let cond = f.cond.map(|c| self.expr(c));
        let body = self.expr(f.body);
        self.values.egraph.add(Term::fold(f.combine, &axes, cond, body))
    }
}

/// The e-graph of a whole graph after saturation, as text: what each statement became and by which rules, then the classes.
pub fn describe(g: &Graph) -> String {
    let all: Vec<usize> = (0..g.stmts.len()).collect();
    let mut values = build(g, &all, true);
    let before = values.egraph.total_number_of_nodes();
    let rounds = rules::saturate(&mut values.egraph, &rules::rules(Class::Reassociates), Limits::default());
    let choice = super::extract::choose(&values.egraph);
    let mut out = String::new();
    let (after, classes) = (values.egraph.total_number_of_nodes(), values.egraph.number_of_classes());
    let _ =
        writeln!(out, "{before} nodes became {after} in {classes} classes after {rounds} rounds of rules");
    for i in 0..values.stmts.len() {
        let targets = g.stmts[values.stmts[i].stmt].targets();
        let names: Vec<&str> = targets.iter().map(|&t| g.tensor(t).name.as_str()).collect();
        let roots: Vec<Id> = values.stmts[i].parts.iter().flat_map(|p| p.roots.clone()).collect();
        for root in roots {
            describe_root(&mut values, &choice, &names.join(", "), root, &mut out);
        }
    }
    describe_classes(&values, &mut out);
    out
}

fn describe_root(
    values: &mut Values,
    choice: &super::extract::Choice,
    name: &str,
    root: Id,
    out: &mut String,
) {
    let from = values.egraph.id_to_expr(root);
    let Some(to) = choice.expr(&values.egraph, root) else { return };
    let _ = writeln!(out, "\n{name} = {}", text(&from));
    if text(&from) != text(&to) {
        let _ = writeln!(out, "  became {}", text(&to));
        for rule in super::extract::rules_between(&mut values.egraph, &from, &to) {
            let class = rules::classes().into_iter().find(|c| c.0 == rule).map_or("exact", |c| c.1.name());
            let _ = writeln!(out, "  by {rule} ({class})");
        }
    }
}

/// A term as text; a huge one by its size.
fn text(e: &egg::RecExpr<Term>) -> String {
    const LONG: f64 = 1000.0;
    match super::extract::tree_size(e) {
        n if n > LONG => format!("({n:.0} nodes)"),
        _ => e.to_string(),
    }
}

fn describe_classes(values: &Values, out: &mut String) {
    let g = &values.egraph;
    let mut ids: Vec<Id> = g.classes().map(|c| c.id).collect();
    ids.sort();
    let _ = writeln!(out);
    for id in ids {
        let data = &g[id].data;
        let axes: Vec<String> = data.free.iter().map(|&a| axis_text(values, a)).collect();
        let ty = data.ty.map_or("", |t| t.name());
        let mut nodes: Vec<String> = g[id].nodes.iter().map(node_text).collect();
        nodes.sort();
        let _ = writeln!(out, "e{id} {ty}[{}] = {}", axes.join(", "), nodes.join(" | "));
    }
}

fn axis_text(values: &Values, a: u32) -> String {
    let name = &values.axis_names[a as usize];
    match values.egraph.analysis.range(a) {
        Some((lo, hi)) => format!("@{a}:{name} {lo}..{hi}"),
        None => format!("@{a}:{name}"),
    }
}

fn node_text(t: &Term) -> String {
    if t.children.is_empty() {
        return t.to_string();
    }
    let children: Vec<String> = t.children.iter().map(|c| format!("e{c}")).collect();
    format!("({t} {})", children.join(" "))
}
