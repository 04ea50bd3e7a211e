//! egraph → plan, first half: what the e-graph found goes back into the graph's statements. Which of the values are
//! stored is then chosen on the graph (`inline`, `hoist`, `group`).

use super::extract::{self, Choice};
use super::facts;
use super::graph_to_egraph::{self, PartValues, Values};
use super::subst::Subst;
use crate::ir::graph::*;
use crate::rules::term::{How, Op};
use crate::rules::{self, Class, Limits};
use egg::Id;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Statements that share an e-graph: equal values of neighbours are found, and big programs stay fast.
const CLUSTER_NODES: usize = 4000;

/// Rewrites the values of all statements with the rules up to a class.
pub fn simplify(g: &mut Graph, most: Class, notes: &mut Vec<String>) {
    let rules = rules::rules(most);
    for cluster in clusters(g) {
        let mut values = graph_to_egraph::build(g, &cluster, false);
        saturate(&mut values, &rules);
        let choice = extract::choose(&values.egraph);
        values.canonical_spans();
        write_back(g, &mut values, &choice, &rules, notes);
    }
}

pub fn saturate(values: &mut Values, rules: &[rules::Rule]) {
    let before = values.egraph.total_number_of_nodes();
    let limits = Limits { nodes: before * 4 + 1000, ..Limits::default() };
    rules::saturate(&mut values.egraph, rules, limits);
}

/// Runs of statements of limited size.
fn clusters(g: &Graph) -> Vec<Vec<usize>> {
    let mut out: Vec<Vec<usize>> = Vec::new();
    let mut size = usize::MAX;
    for (i, s) in g.stmts.iter().enumerate() {
        let nodes: usize = facts::roots(s).into_iter().map(|e| super::inline::below(g, e).len()).sum();
        if size.saturating_add(nodes) > CLUSTER_NODES {
            out.push(Vec::new());
            size = 0;
        }
        size += nodes;
        if let Some(last) = out.last_mut() {
            last.push(i);
        }
    }
    out
}

fn write_back(
    g: &mut Graph,
    values: &mut Values,
    choice: &Choice,
    rules: &[rules::Rule],
    notes: &mut Vec<String>,
) {
    let stmts = std::mem::take(&mut values.stmts);
    for s in &stmts {
        let mut new = Vec::new();
        for part in &s.parts {
            let mut back = Back { g, values, choice, done: FxHashMap::default() };
            let rebuilt: Option<Vec<ExprId>> = part.roots.iter().map(|&r| back.root(part, r)).collect();
            new.push(rebuilt);
        }
        // A class without a term to choose: the statement stays as it was.
        let Some(new) = new.into_iter().collect::<Option<Vec<_>>>() else { continue };
        let roots = s.parts.iter().flat_map(|p| &p.roots);
        let changed = roots
            .copied()
            .any(|r| choice.expr(&values.egraph, r).is_some_and(|to| values.egraph.id_to_expr(r) != to));
        if changed {
            note(g, s.stmt, rules, notes);
        }
        let mut flat = new.into_iter().flatten();
        let mut stmt = g.stmts[s.stmt].clone();
        facts::map_roots(&mut stmt, &mut |e| flat.next().unwrap_or(e));
        g.stmts[s.stmt] = stmt;
    }
    values.stmts = stmts;
}

/// Says which rules change a statement: found out in an e-graph of its own, for explanations are dear.
fn note(g: &Graph, stmt: usize, rules: &[rules::Rule], notes: &mut Vec<String>) {
    const LARGE: usize = 1000;
    let nodes: usize =
        facts::roots(&g.stmts[stmt]).into_iter().map(|e| super::inline::below(g, e).len()).sum();
    if nodes > LARGE {
        return;
    }
    let mut values = graph_to_egraph::build(g, &[stmt], true);
    saturate(&mut values, rules);
    let choice = extract::choose(&values.egraph);
    let mut used: Vec<String> = Vec::new();
    let roots: Vec<Id> = values.stmts.iter().flat_map(|s| &s.parts).flat_map(|p| p.roots.clone()).collect();
    for root in roots {
        let from = values.egraph.id_to_expr(root);
        let Some(to) = choice.expr(&values.egraph, root) else { continue };
        if from != to {
            let rules = extract::rules_between(&mut values.egraph, &from, &to);
            used.extend(rules.into_iter().filter(|r| !used.contains(r)).collect::<Vec<_>>());
        }
    }
    if !used.is_empty() {
        let names: Vec<&str> = g.stmts[stmt].targets().iter().map(|&t| g.tensor(t).name.as_str()).collect();
        notes.push(format!("{} was rewritten by {}", names.join(", "), used.join(", ")));
    }
}

/// Terms back to expressions. Each fold gets axes of its own; equal terms at equal axes are one expression.
struct Back<'a> {
    g: &'a mut Graph,
    values: &'a Values,
    choice: &'a Choice,
    done: FxHashMap<(Id, Vec<(u32, AxisId)>), ExprId>,
}

pub type Env = BTreeMap<u32, AxisId>;

/// One term of a class as an expression, with the chosen terms below it.
pub fn value_of_node(
    g: &mut Graph,
    values: &Values,
    choice: &Choice,
    id: Id,
    node: &rules::term::Term,
    env: &Env,
) -> Option<ExprId> {
    Back { g, values, choice, done: FxHashMap::default() }.node(id, node, env)
}

impl Back<'_> {
    fn root(&mut self, part: &PartValues, root: Id) -> Option<ExprId> {
        self.expr(root, &part.axes)
    }

    fn expr(&mut self, id: Id, env: &Env) -> Option<ExprId> {
        let id = self.values.egraph.find(id);
        let free = &self.values.egraph[id].data.free;
        let key: Vec<(u32, AxisId)> = free.iter().map(|a| Some((*a, *env.get(a)?))).collect::<Option<_>>()?;
        if let Some(&e) = self.done.get(&(id, key.clone())) {
            return Some(e);
        }
        let e = self.build(id, env)?;
        self.done.insert((id, key), e);
        Some(e)
    }

    fn build(&mut self, id: Id, env: &Env) -> Option<ExprId> {
        let term = self.choice.term(&self.values.egraph, id)?.clone();
        self.node(id, &term, env)
    }

    fn node(&mut self, id: Id, term: &rules::term::Term, env: &Env) -> Option<ExprId> {
        let span = self.values.spans.get(&id).copied().unwrap_or_default();
        let c = &term.children;
        let expr = match term.op {
            Op::Lit(ty, bits) => Expr::Lit(crate::vocab::dtype::Value::of_bits(ty, bits)),
            Op::Axis(a) => return Some(self.g.axis_expr(*env.get(&a)?)),
            Op::Scalar(s) => Expr::Scalar(ScalarId(s)),
            Op::Param(p) => Expr::Param(p),
            Op::Read(t, how) => {
                let mut index = self.all(c, env)?;
                let access = match how {
                    How::Proven => Access::Proven,
                    How::Checked => Access::Checked,
                    How::Else => Access::Else(index.pop()?),
                };
                Expr::Read(Read { tensor: TensorId(t), index, access })
            }
            Op::Call(f) => Expr::Call(f, self.all(c, env)?),
            Op::Cast(_) => Expr::Cast(self.expr(c[0], env)?),
            Op::Round(d, how) => Expr::Round(d, how, self.expr(c[0], env)?),
            Op::Select => Expr::Select(self.expr(c[0], env)?, self.expr(c[1], env)?, self.expr(c[2], env)?),
            Op::Opaque(n) => return self.opaque(n, c, env),
            Op::Fold { .. } => return self.fold(term, env, span),
        };
        let ty = self.values.egraph[id].data.ty?;
        Some(self.g.add(expr, ty, span))
    }

    fn all(&mut self, ids: &[Id], env: &Env) -> Option<Vec<ExprId>> {
        ids.iter().map(|&c| self.expr(c, env)).collect()
    }

    /// The fold as it was, at the axes of this place.
    fn opaque(&mut self, n: u32, children: &[Id], env: &Env) -> Option<ExprId> {
        let (e, axes) = self.values.opaque[n as usize].clone();
        let mut map = Vec::new();
        for (from, &c) in axes.into_iter().zip(children) {
            let to = self.expr(c, env)?;
            if !matches!(self.g.expr(to), Expr::Axis(a) if *a == from) {
                map.push((from, to));
            }
        }
        if map.is_empty() { Some(e) } else { Some(Subst::of_axes(self.g, map).apply(self.g, e)) }
    }

    fn fold(&mut self, term: &rules::term::Term, env: &Env, span: girih_dsl::ast::Span) -> Option<ExprId> {
        let (combine, axes, cond, body) = term.fold_parts()?;
        let mut inner = env.clone();
        let mut fresh = Vec::new();
        for &a in axes {
            let name = rules::analysis::axis_of(&self.values.egraph, a)?;
            let (lo, hi) = self.values.egraph.analysis.range(name)?;
            let (lo, hi) = (self.g.int(lo), self.g.int(hi));
            let axis =
                self.g.new_axis(self.values.egraph.analysis.axis_names[name as usize].clone(), lo, hi, span);
            inner.insert(name, axis);
            fresh.push(axis);
        }
        let cond = match cond {
            Some(c) => Some(self.expr(c, &inner)?),
            None => None,
        };
        let body = self.expr(body, &inner)?;
        let ty = match combine {
            Combine::Builtin(m) => m.result(self.g.ty(body)),
            Combine::Fn(f) => self.g.fold_fn(f).ty,
        };
        Some(self.g.add(Expr::Fold(Fold { combine, axes: fresh, cond, body }), ty, span))
    }
}
