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
    /// What each class costs if no definition were stored.
    opened: FxHashMap<Id, f64>,
}

/// What tells the terms of a class apart, each over all points of its axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Label {
    /// Operations, if every class below is computed once for each point of the axes it depends on.
    pub work: f64,
    /// Folds that must end before others begin.
    pub passes: u32,
    /// Bytes that are read.
    pub bytes: f64,
    /// The work if no definition were stored: another term may make one that is dear superfluous.
    pub opened: f64,
}

impl Label {
    /// Is it no better than another in anything?
    pub fn is_beaten_by(&self, other: &Label) -> bool {
        let close = |a: f64, b: f64| b <= a * (1.0 + 1e-9);
        close(self.work, other.work)
            && other.passes <= self.passes
            && close(self.bytes, other.bytes)
            && close(self.opened, other.opened)
    }
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

    /// The label of a term of a class, with the chosen terms below it; `None` if it may not be chosen.
    pub fn label(&self, g: &rules::Graph, class: Id, node: &Term, known: &mut Labels) -> Option<Label> {
        let (inside, own) = legal(g, class, node)?;
        let mut label = Label { work: own, passes: 0, bytes: 0.0, opened: own };
        for &c in node.children() {
            let below = self.below(g, g.find(c), known)?;
            label.work += below.work;
            label.passes = label.passes.max(below.passes);
            label.bytes += below.bytes;
            label.opened += self.opened.get(&g.find(c)).copied().unwrap_or(below.work);
        }
        match node.op {
            Op::Fold { .. } | Op::Opaque(_) => label.passes += 1,
            Op::Read(t, _) => {
                label.opened = self.opened.get(&g.find(class)).copied().unwrap_or(label.opened);
                let bits = g.analysis.tensors.get(t as usize).map_or(32, |d| d.bits());
                label.bytes += inside * bits as f64 / 8.0;
            }
            _ => {}
        }
        Some(label)
    }

    fn below(&self, g: &rules::Graph, id: Id, known: &mut Labels) -> Option<Label> {
        if let Some(&l) = known.of.get(&id) {
            return Some(l);
        }
        let term = self.term(g, id)?;
        let label = self.label(g, id, term, known)?;
        known.of.insert(id, label);
        Some(label)
    }

    /// The terms of a class that no other beats in everything, with the chosen terms below them: a few, those of least
    /// work first.
    pub fn terms(&self, g: &rules::Graph, id: Id, known: &mut Labels) -> Vec<(Label, Term)> {
        const MOST: usize = 4;
        let id = g.find(id);
        let nodes = g[id].nodes.iter();
        let chosen = self.term(g, id);
        let mut all: Vec<(Label, Term)> =
            nodes.filter_map(|n| Some((self.label(g, id, n, known)?, n.clone()))).collect();
        all.sort_by(|a, b| {
            let by = |l: &Label| (l.passes, l.bytes);
            let (x, y) = (by(&a.0), by(&b.0));
            a.0.work
                .total_cmp(&b.0.work)
                .then(x.0.cmp(&y.0))
                .then(x.1.total_cmp(&y.1))
                .then((Some(&a.1) != chosen, &a.1).cmp(&(Some(&b.1) != chosen, &b.1)))
        });
        let mut kept: Vec<(Label, Term)> = Vec::new();
        for (label, term) in all {
            if kept.len() < MOST && !kept.iter().any(|k| label.is_beaten_by(&k.0)) {
                kept.push((label, term));
            }
        }
        kept
    }
}

/// Labels of the chosen terms, as far as they were asked for.
#[derive(Default)]
pub struct Labels {
    of: FxHashMap<Id, Label>,
}

/// A term that may be chosen.
struct Candidate<'a> {
    class: Id,
    node: &'a Term,
    children: Vec<Id>,
    own: f64,
    new: bool,
}

/// Chooses a term for every class.
pub fn choose(g: &rules::Graph) -> Choice {
    choose_as_written(g, &FxHashSet::default())
}

/// The terms of an e-graph.
pub fn terms(g: &rules::Graph) -> Vec<Term> {
    g.classes().flat_map(|c| c.nodes.iter().cloned()).collect()
}

/// Chooses a term for every class; of those that cost the same one of these, of the classes as they are now.
pub fn choose_as_written(g: &rules::Graph, written: &FxHashSet<Term>) -> Choice {
    let best = cheapest(g, written, &|_| true);
    Choice { best, opened: FxHashMap::default() }
}

impl Choice {
    /// The same, with what the classes cost without reads of some tensors.
    pub fn without(mut self, g: &rules::Graph, opens: &dyn Fn(u32) -> bool) -> Choice {
        let keep = |t: &Term| !matches!(t.op, Op::Read(n, _) if opens(n));
        self.opened =
            cheapest(g, &FxHashSet::default(), &keep).into_iter().map(|(id, (cost, _))| (id, cost)).collect();
        self
    }
}

/// Of each class the cheapest of some terms, with its cost.
fn cheapest(
    g: &rules::Graph,
    written: &FxHashSet<Term>,
    keep: &dyn Fn(&Term) -> bool,
) -> FxHashMap<Id, (f64, Term)> {
    let mut ids: Vec<Id> = g.classes().map(|c| c.id).collect();
    ids.sort();
    let mut all: Vec<Candidate> = Vec::new();
    for &class in &ids {
        for node in g[class].nodes.iter().filter(|n| keep(n)) {
            let Some((_, own)) = legal(g, class, node) else { continue };
            let children = node.children().iter().map(|&c| g.find(c)).collect();
            all.push(Candidate { class, node, children, own, new: !written.contains(node) });
        }
    }
    let mut best: FxHashMap<Id, (f64, (bool, &Term))> = FxHashMap::default();
    loop {
        let mut changed = false;
        for c in &all {
            let below = c.children.iter().try_fold(0.0, |sum, id| Some(sum + best.get(id)?.0));
            let Some(cost) = below.map(|b| b + c.own) else { continue };
            let better = match best.get(&c.class) {
                Some((known, t)) => cost < *known * (1.0 - 1e-12) || (cost <= *known && (c.new, c.node) < *t),
                None => true,
            };
            if better {
                best.insert(c.class, (cost, (c.new, c.node)));
                changed = true;
            }
        }
        if !changed {
            return best.into_iter().map(|(id, (cost, (_, t)))| (id, (cost, t.clone()))).collect();
        }
    }
}

/// Points at which a term is evaluated, and its own work there; `None` if it depends on axes that its class does not.
fn legal(g: &rules::Graph, class: Id, node: &Term) -> Option<(f64, f64)> {
    let mut free: BTreeSet<u32> = BTreeSet::new();
    node.children().iter().for_each(|&c| free.extend(&g[c].data.free));
    let inside = points(g, &free);
    if let Some((_, axes, ..)) = node.fold_parts() {
        for &a in axes {
            free.retain(|&x| crate::rules::analysis::axis_of(g, a) != Some(x));
        }
    }
    let constant = matches!(node.op, Op::Axis(_)) || g[class].data.constant.is_some();
    (constant || free.is_subset(&g[class].data.free)).then(|| (inside, own(node) * inside))
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
        Op::Cast(_) | Op::Round(..) | Op::Select => 1.0,
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
