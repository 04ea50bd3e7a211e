//! The values of a program as classes of one e-graph in which a read of a definition is one with what the definition is
//! made of: what the search for stored values (`stored`) chooses from beyond what the statements say as they stand.
//!
//! A value that a statement holds may be there in another spelling (a term of its class that costs less in something
//! than the one that stands there), or may be stored already by another statement, however that spells it and whatever
//! it calls its axes. The e-graph only says what is equal; what is better the search asks the model.

use super::class_key::{self, Key};
use super::egraph_to_plan::{self, Env, value_of_node};
use super::extract::{self, Choice, Label, Labels};
use super::facts::Facts;
use super::graph_to_egraph::Terms;
use super::inline;
use crate::ir::graph::*;
use crate::rules::term::{How, Op, Term};
use crate::rules::{self, Class};
use egg::{Id, Language};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// An expression of a statement (named by its first target), and the one that may take its place.
pub type Change = (TensorId, ExprId, ExprId);

/// The e-graph of a program's statements.
pub struct Classes {
    terms: Terms,
    choice: Choice,
    labels: Labels,
    keys: FxHashMap<Id, Option<Rc<Key>>>,
    /// Where each statement stands.
    at: FxHashMap<TensorId, usize>,
    /// Tensors that are updated in place: what reads them must stay where it is.
    updated: BTreeSet<TensorId>,
    /// Terms before the rules and after.
    pub grown: [usize; 2],
}

/// A tensor that holds a class.
struct Stored {
    tensor: TensorId,
    at: usize,
    /// For each of its dims, which of the key's axes it is.
    dims: Vec<usize>,
}

/// An expression of a statement.
pub struct Place {
    pub stmt: TensorId,
    at: usize,
    pub expr: ExprId,
    class: Id,
    axes: Env,
    /// Of the term that stands there.
    pub label: Option<Label>,
}

impl Classes {
    /// Saturates the values of all statements.
    pub fn of(g: &Graph) -> Classes {
        let mut terms = Terms::new(g, false);
        terms.open(g);
        let all: Vec<usize> = (0..g.stmts.len()).collect();
        terms.stmts(g, &all);
        let written = extract::terms(&terms.values.egraph);
        let written_terms = written.len();
        let rules = rules::rules_of_search(Class::Reassociates);
        egraph_to_plan::saturate(&mut terms.values, &rules);
        terms.values.canonical_spans();
        let now = |t: Term| t.map_children(|c| terms.values.egraph.find(c));
        let written = written.into_iter().map(now).collect();
        let opens = |n: u32| terms.opens(TensorId(n));
        let choice =
            extract::choose_as_written(&terms.values.egraph, &written).without(&terms.values.egraph, &opens);
        let at = g.stmts.iter().enumerate().flat_map(|(i, s)| s.targets().into_iter().map(move |t| (t, i)));
        let updates = g.stmts.iter().filter_map(|s| match s {
            Stmt::Update(Update { base: Base::Tensor(t), .. }) => Some(*t),
            _ => None,
        });
        Classes {
            grown: [written_terms, terms.values.egraph.total_number_of_nodes()],
            choice,
            labels: Labels::default(),
            keys: FxHashMap::default(),
            at: at.collect(),
            updated: updates.collect(),
            terms,
        }
    }

    /// The e-graph.
    pub fn graph(&self) -> &rules::Graph {
        &self.terms.values.egraph
    }

    /// The key of what an expression of a definition is, and the axes that it depends on in the key's order: equal keys,
    /// equal values. `None` where the class depends on fewer axes than the expression names.
    pub fn key_at(&mut self, g: &Graph, d: &Define, e: ExprId) -> Option<(String, Vec<AxisId>)> {
        self.terms.look_at(g, d);
        let (id, axes) = self.terms.place(g, e)?;
        let key = self.key(id)?;
        let own: Vec<AxisId> = key.axes.iter().map(|a| axes.get(a).copied()).collect::<Option<_>>()?;
        (own.len() == axes.len()).then(|| (key.text.clone(), own))
    }

    fn key(&mut self, id: Id) -> Option<Rc<Key>> {
        let id = self.terms.values.egraph.find(id);
        if let Some(known) = self.keys.get(&id) {
            return known.clone();
        }
        let opens = |t: &Term| matches!(t.op, Op::Read(n, How::Proven) if self.terms.opens(TensorId(n)));
        let key = class_key::key(&self.terms.values.egraph, &self.choice, id, &opens).map(Rc::new);
        self.keys.insert(id, key.clone());
        key
    }

    /// All changes of one kind that the classes offer: those that make a value that is stored somewhere a read of it, then
    /// other spellings. Each list is one move: the same value wherever it stands.
    pub fn changes(&mut self, g: &mut Graph, facts: &mut Facts) -> Vec<Vec<Change>> {
        let mut places = Vec::new();
        let mut stored: BTreeMap<String, Stored> = BTreeMap::new();
        let mut shared: BTreeMap<String, Vec<Change>> = BTreeMap::new();
        for i in 0..g.stmts.len() {
            let Stmt::Define(d) = g.stmts[i].clone() else { continue };
            if facts.has_checked(g, d.value) {
                continue;
            }
            let here = self.places(g, i, &d);
            for p in &here {
                if let Some((text, change)) = self.share(g, p, &d, &stored) {
                    shared.entry(text).or_default().push(change);
                }
            }
            if let Some((text, s)) = self.stored(g, i, &d) {
                stored.entry(text).or_insert(s);
            }
            places.extend(here);
        }
        let mut spelled: BTreeMap<(String, usize), Vec<Change>> = BTreeMap::new();
        for p in &places {
            for (n, _, to) in self.spellings(g, facts, p) {
                let Some(key) = self.key(p.class) else { continue };
                spelled.entry((key.text.clone(), n)).or_default().push((p.stmt, p.expr, to));
            }
        }
        let mut all: Vec<Vec<Change>> = shared.into_values().chain(spelled.into_values()).collect();
        // In the order of the program.
        all.sort();
        all
    }

    /// What a definition is made of.
    pub fn places(&mut self, g: &Graph, i: usize, d: &Define) -> Vec<Place> {
        self.terms.look_at(g, d);
        let mut below = inline::below(g, d.value);
        below.sort();
        let simple = |e: ExprId| g.children(e).is_empty() || matches!(g.expr(e), Expr::Read(_));
        let mut found = Vec::new();
        for expr in below.into_iter().filter(|&e| !simple(e)) {
            let Some((class, axes)) = self.terms.place(g, expr) else { continue };
            let node = self.terms.node(g, expr);
            let egraph = &self.terms.values.egraph;
            let label = node.and_then(|n| self.choice.label(egraph, class, &n, &mut self.labels));
            found.push(Place { stmt: d.target, at: i, expr, class, axes, label });
        }
        found
    }

    /// What a definition stores.
    fn stored(&mut self, g: &Graph, i: usize, d: &Define) -> Option<(String, Stored)> {
        if !matches!(g.tensor(d.target).role, Role::Local | Role::Result) || self.updated.contains(&d.target)
        {
            return None;
        }
        let (text, axes) = self.stored_key(g, d)?;
        let dims = d.axes.iter().map(|a| axes.iter().position(|b| a == b)).collect::<Option<Vec<usize>>>()?;
        (!dims.is_empty()).then_some((text, Stored { tensor: d.target, at: i, dims }))
    }

    /// The key of a definition's value as its tensor gives it back.
    fn stored_key(&mut self, g: &Graph, d: &Define) -> Option<(String, Vec<AxisId>)> {
        let (text, axes) = self.key_at(g, d, d.value)?;
        let (class, names) = self.terms.place(g, d.value)?;
        match self.terms.known_stored(g, d.target, class, g.ty(d.value)) {
            Some(id) if self.choice.term(&self.terms.values.egraph, id).is_some() => {
                let key = self.key(id)?;
                let axes = key.axes.iter().map(|a| names.get(a).copied()).collect::<Option<_>>()?;
                Some((key.text.clone(), axes))
            }
            _ => Some((format!("{} of {text}", g.tensor(d.target).dtype.name()), axes)),
        }
    }

    /// A read of the tensor that holds what stands at a place.
    fn share(
        &mut self,
        g: &mut Graph,
        p: &Place,
        d: &Define,
        stored: &BTreeMap<String, Stored>,
    ) -> Option<(String, Change)> {
        let whole = p.expr == d.value;
        let dear = p.label.is_some_and(|l| l.passes > 0) || matches!(g.expr(p.expr), Expr::Round(..));
        if !whole && !dear {
            return None;
        }
        let (text, axes) = if whole {
            self.stored_key(g, d)?
        } else {
            let key = self.key(p.class)?;
            (key.text.clone(), key.axes.iter().map(|a| p.axes.get(a).copied()).collect::<Option<_>>()?)
        };
        let s = stored.get(&text).filter(|s| s.at < p.at)?;
        let index = s.dims.iter().map(|&n| g.axis_expr(axes[n])).collect();
        let (ty, span) = (g.tensor(s.tensor).dtype.compute(), g.span(p.expr));
        // What a definition's value is not yet rounded to, its tensor is.
        if !whole && ty != g.ty(p.expr) {
            return None;
        }
        let read = g.add(Expr::Read(Read { tensor: s.tensor, index, access: Access::Proven }), ty, span);
        (read != p.expr).then_some((text, (p.stmt, p.expr, read)))
    }

    /// Other spellings of what stands at a place that cost less in something, by number.
    pub fn spellings(&mut self, g: &mut Graph, facts: &mut Facts, p: &Place) -> Vec<(usize, Label, ExprId)> {
        let egraph = &self.terms.values.egraph;
        let class = &egraph[p.class];
        if class.nodes.len() < 2 || class.data.faults || class.data.constant.is_some() {
            return Vec::new();
        }
        let terms = self.choice.terms(egraph, p.class, &mut self.labels);
        let mut found = Vec::new();
        for (n, (label, term)) in terms.into_iter().enumerate() {
            if p.label.is_some_and(|own| label.is_beaten_by(&own)) {
                continue;
            }
            if matches!(term.op, Op::Read(t, _) if self.at.get(&TensorId(t)).is_some_and(|&i| i >= p.at)) {
                continue;
            }
            let to = value_of_node(g, &self.terms.values, &self.choice, p.class, &term, &p.axes);
            let Some(to) = to.filter(|&to| to != p.expr && self.may_stand(g, facts, p, to)) else { continue };
            found.push((n, label, to));
        }
        found
    }

    /// Is all that an expression reads there before the statement, and may it be evaluated wherever the statement is?
    fn may_stand(&self, g: &Graph, facts: &mut Facts, p: &Place, e: ExprId) -> bool {
        let known = facts.reads(g, p.expr);
        let ready = |t: &TensorId| self.at.get(t).is_none_or(|&i| i < p.at);
        let still = |t: &TensorId| known.contains(t) || !self.updated.contains(t);
        facts.reads(g, e).iter().all(|t| ready(t) && still(t)) && facts.speculable(g, e)
    }
}

/// The rules that lead from what a statement holds to what takes its place, in an e-graph of their own, for explanations
/// are dear; none for what is large.
pub fn rules_of(g: &Graph, change: &Change) -> Vec<String> {
    const LARGE: usize = 1000;
    let (target, from, to) = *change;
    let defines = |s: &&Stmt| s.targets().contains(&target);
    let Some(Stmt::Define(d)) = g.stmts.iter().find(defines) else { return Vec::new() };
    let nodes = inline::below(g, d.value).len() + inline::below(g, to).len();
    if nodes > LARGE {
        return Vec::new();
    }
    let mut terms = Terms::new(g, true);
    terms.open(g);
    terms.part(g, &d.axes, &[d.value, to]);
    rules::rebuild(&mut terms.values.egraph);
    egraph_to_plan::saturate(&mut terms.values, &rules::rules_of_search(Class::Reassociates));
    // With the whole value first: axes of folds around are in scope then.
    let ids = terms.part(g, &d.axes, &[d.value, from, to]).roots;
    let egraph = &terms.values.egraph;
    if egraph.find(ids[1]) != egraph.find(ids[2]) {
        return Vec::new();
    }
    let (from, to) = (terms.written(g, from), terms.written(g, to));
    extract::rules_between(&mut terms.values.egraph, &from, &to)
}
