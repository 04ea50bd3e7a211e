//! Extraction: for each class the term that costs least, if every class is computed once for each point of the axes
//! it depends on. Deterministic: equal costs go to the lesser term.
//!
//! A term may be chosen only if it depends on no axis that its class does not (a class that a rule has shown not to
//! depend on an axis may still hold terms that name it).

use crate::rules;
use crate::rules::term::{Op, Term};
use egg::{Id, Language, RecExpr};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::rc::Rc;

/// The chosen term of each class, with its cost.
pub struct Choice {
    best: FxHashMap<Id, (f64, Term)>,
}

impl Choice {
    /// The chosen term; `None` if the class has none that may be chosen.
    pub fn term(&self, g: &rules::Graph, id: Id) -> Option<&Term> {
        self.best.get(&g.find(id)).map(|b| &b.1)
    }

    pub fn cost(&self, g: &rules::Graph, id: Id) -> Option<f64> {
        self.best.get(&g.find(id)).map(|b| b.0)
    }

    /// The chosen term with everything below it.
    pub fn expr(&self, g: &rules::Graph, id: Id) -> Option<RecExpr<Term>> {
        let root = self.term(g, id)?.clone();
        root.try_build_recexpr(|id| self.term(g, id).cloned().ok_or(())).ok()
    }
}

/// Chooses a term for every class.
pub fn choose(g: &rules::Graph) -> Choice {
    let mut ids: Vec<Id> = g.classes().map(|c| c.id).collect();
    ids.sort();
    let mut best: FxHashMap<Id, (f64, Term)> = FxHashMap::default();
    loop {
        let mut changed = false;
        for &id in &ids {
            for node in &g[id].nodes {
                let Some(cost) = cost(g, id, node, &best) else { continue };
                let better = match best.get(&id) {
                    Some((c, t)) => cost < *c * (1.0 - 1e-12) || (cost <= *c && node < t),
                    None => true,
                };
                if better {
                    best.insert(id, (cost, node.clone()));
                    changed = true;
                }
            }
        }
        if !changed {
            return Choice { best };
        }
    }
}

fn cost(g: &rules::Graph, class: Id, node: &Term, best: &FxHashMap<Id, (f64, Term)>) -> Option<f64> {
    let mut free: BTreeSet<u32> = BTreeSet::new();
    let mut total = 0.0;
    for &c in node.children() {
        let c = g.find(c);
        total += best.get(&c)?.0;
        free.extend(&g[c].data.free);
    }
    let inside = points(g, &free);
    if let Some((_, axes, ..)) = node.fold_parts() {
        for &a in axes {
            free.retain(|&x| crate::rules::analysis::axis_of(g, a) != Some(x));
        }
    }
    let constant = matches!(node.op, Op::Axis(_)) || g[class].data.constant.is_some();
    (constant || free.is_subset(&g[class].data.free)).then_some(total + own(node) * inside)
}

/// Points of axes; a guess for those without a literal range.
fn points(g: &rules::Graph, axes: &BTreeSet<u32>) -> f64 {
    axes.iter().map(|&a| g.analysis.range(a).map_or(64.0, |(lo, hi)| (hi - lo).max(1) as f64)).product()
}

fn own(node: &Term) -> f64 {
    match node.op {
        Op::Lit(..) | Op::Axis(_) | Op::Scalar(_) | Op::Param(_) => 0.01,
        Op::Read(..) => 2.0,
        Op::Call(f) => f.row().cost as f64,
        Op::Cast(_) | Op::Round(_) | Op::Select => 1.0,
        Op::Fold { .. } => 1.0,
        Op::Opaque(_) => 64.0,
    }
}

/// Nodes of a term written out as a tree.
pub fn tree_size(e: &RecExpr<Term>) -> f64 {
    let mut sizes: Vec<f64> = Vec::new();
    for node in e.as_ref() {
        sizes.push(1.0 + node.children().iter().map(|&c| sizes[usize::from(c)]).sum::<f64>());
    }
    sizes.last().copied().unwrap_or(0.0)
}

/// The rules that lead from one term to an equal one, in order, each once; none for terms too large to explain.
pub fn rules_between(g: &mut rules::Graph, from: &RecExpr<Term>, to: &RecExpr<Term>) -> Vec<String> {
    const LARGE: f64 = 3000.0;
    let mut found: Vec<String> = Vec::new();
    if tree_size(from) > LARGE || tree_size(to) > LARGE {
        return found;
    }
    let explanation = g.explain_equivalence(from, to);
    let mut seen = FxHashSet::default();
    explanation.explanation_trees.iter().for_each(|t| collect(t, &mut seen, &mut found));
    found
}

/// Proofs share parts: each is looked at once.
fn collect(
    term: &Rc<egg::TreeTerm<Term>>,
    seen: &mut FxHashSet<*const egg::TreeTerm<Term>>,
    found: &mut Vec<String>,
) {
    if !seen.insert(Rc::as_ptr(term)) {
        return;
    }
    for rule in [term.forward_rule, term.backward_rule].into_iter().flatten() {
        let name = rule.to_string();
        if !found.contains(&name) {
            found.push(name);
        }
    }
    term.child_proofs.iter().flatten().for_each(|c| collect(c, seen, found));
}
