//! Rules on folds: appliers, because they speak of axis sets and of what a product holds.
//!
//! All of them look at folds without a condition over axes of literal, non-empty ranges: then every factor that is
//! moved out would have been evaluated inside, too.

use super::analysis::axis_of;
use super::term::{Op, Term};
use super::{Class, Graph, Rule};
use crate::ir::graph::Combine;
use crate::vocab::dtype::{Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use egg::{Applier, Id, PatternAst, Rewrite, SearchMatches, Searcher, Subst, Symbol, Var};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// One row: looks at one fold and gives what it is equal to.
pub struct FoldRow {
    pub name: &'static str,
    pub class: Class,
    rewrite: fn(&mut Graph, &Fold) -> Option<Id>,
}

/// A fold without a condition over non-empty axes.
pub struct Fold {
    pub monoid: Monoid,
    pub axes: Vec<Id>,
    pub body: Id,
    pub class: Id,
}

pub static TABLE: [FoldRow; 7] = [
    // maxₖ a = a, minₖ a = a, anyₖ a = a, allₖ a = a, where k is not free in a
    FoldRow { name: "fold-of-constant", class: Class::Exact, rewrite: of_constant },
    // maxₖ (c · a) = c · maxₖ a and maxₖ (a / c) = (maxₖ a) / c for a constant c > 0 (rounding is monotone)
    FoldRow { name: "scale-out-of-max", class: Class::Exact, rewrite: scale_out_of_max },
    // ⊕ₖ ⊕ₗ a = ⊕₍ₖ,ₗ₎ a for max, min, any, all
    FoldRow { name: "merge-exact-folds", class: Class::Exact, rewrite: |g, f| merge(g, f, false) },
    // Σₖ a = count(k) · a, where k is not free in a
    FoldRow { name: "sum-of-constant", class: Class::Reassociates, rewrite: sum_of_constant },
    // Σₖ Σₗ a = Σ₍ₖ,ₗ₎ a, Πₖ Πₗ a = Π₍ₖ,ₗ₎ a
    FoldRow { name: "merge-folds", class: Class::Reassociates, rewrite: |g, f| merge(g, f, true) },
    // Σₖ (c · a) = c · Σₖ a and Σₖ (a / c) = (Σₖ a) / c, where k is not free in c
    FoldRow { name: "factor-out-of-sum", class: Class::Reassociates, rewrite: factor_out },
    // Σ₍ₖ,ₗ₎ (a · b) = Σₖ (a · Σₗ b), where l is not free in a
    FoldRow { name: "split-sum", class: Class::Reassociates, rewrite: split },
];

/// Other orders of nested sums: which costs less depends on what is stored, so only the search for stored values asks.
pub static ORDERS: [FoldRow; 2] = [
    // Σₗ (Σₖ a + b) = Σₗ Σₖ a + Σₗ b, and with −
    FoldRow { name: "sums-apart", class: Class::Reassociates, rewrite: apart },
    // Σₗ ((Σₖ a · b) · c) = Σₖ (a · Σₗ (b · c)), where l is not free in a, nor k in c
    FoldRow { name: "regroup-sums", class: Class::Reassociates, rewrite: regroup },
];

pub fn rules(most: Class) -> impl Iterator<Item = Rule> {
    TABLE.iter().filter(move |r| r.class <= most).map(rule)
}

pub fn rules_of_search(most: Class) -> impl Iterator<Item = Rule> {
    ORDERS.iter().filter(move |r| r.class <= most).map(rule)
}

fn rule(row: &FoldRow) -> Rule {
    Rewrite::new(row.name, Folds, Apply { rewrite: row.rewrite }).expect("the applier asks for no variables")
}

/// Finds classes that hold folds.
struct Folds;

impl Searcher<Term, super::analysis::Facts> for Folds {
    fn search_eclass_with_limit(
        &self,
        graph: &Graph,
        class: Id,
        _: usize,
    ) -> Option<SearchMatches<'_, Term>> {
        let holds = graph[class].nodes.iter().any(|n| matches!(n.op, Op::Fold { cond: false, .. }));
        holds.then(|| SearchMatches { eclass: class, substs: vec![Subst::default()], ast: None })
    }

    fn vars(&self) -> Vec<Var> {
        Vec::new()
    }
}

struct Apply {
    rewrite: fn(&mut Graph, &Fold) -> Option<Id>,
}

impl Applier<Term, super::analysis::Facts> for Apply {
    fn apply_one(
        &self,
        graph: &mut Graph,
        class: Id,
        _: &Subst,
        _: Option<&PatternAst<Term>>,
        name: Symbol,
    ) -> Vec<Id> {
        let mut changed = Vec::new();
        for fold in folds_of(graph, class) {
            if let Some(to) = (self.rewrite)(graph, &fold)
                && graph.union_trusted(class, to, name)
            {
                changed.push(class);
            }
        }
        changed
    }
}

/// The folds of a class that rules may look at.
fn folds_of(graph: &Graph, class: Id) -> Vec<Fold> {
    let mut found: Vec<Fold> = Vec::new();
    for n in &graph[class].nodes {
        if let Some((Combine::Builtin(monoid), axes, None, body)) = n.fold_parts()
            && axes.iter().all(|&a| is_full(graph, a))
        {
            found.push(Fold { monoid, axes: axes.to_vec(), body, class });
        }
    }
    found
}

fn is_full(graph: &Graph, axis: Id) -> bool {
    axis_of(graph, axis).and_then(|a| graph.analysis.range(a)).is_some_and(|(lo, hi)| lo < hi)
}

fn names(graph: &Graph, axes: &[Id]) -> Vec<u32> {
    axes.iter().filter_map(|&a| axis_of(graph, a)).collect()
}

fn depends(graph: &Graph, id: Id, axes: &[u32]) -> bool {
    axes.iter().any(|a| graph[id].data.free.contains(a))
}

fn is_float(graph: &Graph, id: Id) -> bool {
    graph[id].data.ty.is_some_and(Ty::is_float)
}

fn of_constant(graph: &mut Graph, f: &Fold) -> Option<Id> {
    let keeps = matches!(f.monoid, Monoid::Max | Monoid::Min | Monoid::Any | Monoid::All);
    let axes = names(graph, &f.axes);
    (keeps && !depends(graph, f.body, &axes)).then_some(f.body)
}

fn scale_out_of_max(graph: &mut Graph, f: &Fold) -> Option<Id> {
    if !matches!(f.monoid, Monoid::Max | Monoid::Min) || !is_float(graph, f.body) {
        return None;
    }
    let found = graph[f.body].nodes.iter().find_map(|n| match (n.op, &n.children[..]) {
        (Op::Call(Func::Mul), &[a, c]) if is_positive(graph, c) => Some((Func::Mul, a, c)),
        (Op::Call(Func::Mul), &[c, a]) if is_positive(graph, c) => Some((Func::Mul, a, c)),
        (Op::Call(Func::Div), &[a, c]) if is_positive(graph, c) => Some((Func::Div, a, c)),
        _ => None,
    })?;
    let inner = graph.add(Term::fold(Combine::Builtin(f.monoid), &f.axes, None, found.1));
    Some(graph.add(Term::call(found.0, vec![inner, found.2])))
}

/// A finite constant above 0.
fn is_positive(graph: &Graph, id: Id) -> bool {
    match graph[id].data.constant {
        Some(Value::F32(v)) => v > 0.0 && v.is_finite(),
        Some(Value::F64(v)) => v > 0.0 && v.is_finite(),
        _ => false,
    }
}

/// Folds whose order does not matter even in the last bit.
fn is_exact(graph: &Graph, m: Monoid, body: Id) -> bool {
    match m {
        Monoid::Max | Monoid::Min | Monoid::Any | Monoid::All => true,
        Monoid::Sum | Monoid::Prod => !is_float(graph, body),
        Monoid::ArgMax | Monoid::ArgMin => false,
    }
}

fn merge(graph: &mut Graph, f: &Fold, floats: bool) -> Option<Id> {
    if matches!(f.monoid, Monoid::ArgMax | Monoid::ArgMin) || is_exact(graph, f.monoid, f.body) == floats {
        return None;
    }
    let outer = names(graph, &f.axes);
    let inner = folds_of(graph, f.body)
        .into_iter()
        .find(|g| g.monoid == f.monoid && names(graph, &g.axes).iter().all(|a| !outer.contains(a)))?;
    let axes: Vec<Id> = f.axes.iter().chain(&inner.axes).copied().collect();
    Some(graph.add(Term::fold(Combine::Builtin(f.monoid), &axes, None, inner.body)))
}

fn sum_of_constant(graph: &mut Graph, f: &Fold) -> Option<Id> {
    let axes = names(graph, &f.axes);
    if f.monoid != Monoid::Sum || depends(graph, f.body, &axes) {
        return None;
    }
    let mut count: i64 = 1;
    for &a in &axes {
        let (lo, hi) = graph.analysis.range(a)?;
        count = count.checked_mul(hi - lo)?;
    }
    let n = match graph[f.body].data.ty? {
        Ty::F32 if count < 1 << 24 => Value::F32(count as f32),
        Ty::F64 if count < 1 << 53 => Value::F64(count as f64),
        Ty::I32 => Value::I32(count as i32),
        Ty::I64 => Value::I64(count),
        _ => return None,
    };
    let n = graph.add(Term::lit(n));
    Some(graph.add(Term::call(Func::Mul, vec![n, f.body])))
}

/// Walks once through products and quotients and moves out what does not depend on the axes.
fn factor_out(graph: &mut Graph, f: &Fold) -> Option<Id> {
    if f.monoid != Monoid::Sum || !is_float(graph, f.body) {
        return None;
    }
    let axes = names(graph, &f.axes);
    let (rest, moved) = strip(graph, f.body, &axes, 8);
    if moved.is_empty() {
        return None;
    }
    let inner = graph.add(Term::fold(Combine::Builtin(Monoid::Sum), &f.axes, None, rest));
    let mut out = inner;
    for (func, c) in moved {
        out = graph.add(Term::call(func, vec![out, c]));
    }
    Some(out)
}

/// What is left of a product without the factors and divisors that do not depend on the axes, and those.
fn strip(graph: &mut Graph, id: Id, axes: &[u32], depth: usize) -> (Id, Vec<(Func, Id)>) {
    if depth == 0 || !depends(graph, id, axes) {
        return (id, Vec::new());
    }
    let node = graph[id].nodes.iter().find_map(|n| match (n.op, &n.children[..]) {
        (Op::Call(f @ (Func::Mul | Func::Div)), &[a, b]) => Some((f, a, b)),
        _ => None,
    });
    let Some((f, a, b)) = node else { return (id, Vec::new()) };
    if !depends(graph, b, axes) {
        let (rest, mut moved) = strip(graph, a, axes, depth - 1);
        moved.push((f, b));
        return (rest, moved);
    }
    if f == Func::Mul && !depends(graph, a, axes) {
        let (rest, mut moved) = strip(graph, b, axes, depth - 1);
        moved.push((f, a));
        return (rest, moved);
    }
    let (left, mut moved) = strip(graph, a, axes, depth - 1);
    let (right, more) = if f == Func::Mul { strip(graph, b, axes, depth - 1) } else { (b, Vec::new()) };
    moved.extend(more);
    if moved.is_empty() {
        return (id, moved);
    }
    (graph.add(Term::call(f, vec![left, right])), moved)
}

/// Sums over an axis that only one factor of a product has become sums of that factor.
fn split(graph: &mut Graph, f: &Fold) -> Option<Id> {
    if f.monoid != Monoid::Sum || f.axes.len() < 2 || !is_float(graph, f.body) {
        return None;
    }
    let product = graph[f.body].nodes.iter().find_map(|n| match (n.op, &n.children[..]) {
        (Op::Call(Func::Mul), &[a, b]) => Some((a, b)),
        _ => None,
    })?;
    let alone = |graph: &Graph, of: Id, other: Id| -> Vec<Id> {
        let here = |a: &&Id| {
            let n = names(graph, &[**a]);
            depends(graph, of, &n) && !depends(graph, other, &n)
        };
        f.axes.iter().filter(here).copied().collect()
    };
    let (a, b) = product;
    let (of, other) = if alone(graph, b, a).is_empty() { (a, b) } else { (b, a) };
    let inner = alone(graph, of, other);
    let outer: Vec<Id> = f.axes.iter().filter(|x| !inner.contains(x)).copied().collect();
    if inner.is_empty() || outer.is_empty() {
        return None;
    }
    let sum = graph.add(Term::fold(Combine::Builtin(Monoid::Sum), &inner, None, of));
    let body = graph.add(Term::call(Func::Mul, vec![other, sum]));
    Some(graph.add(Term::fold(Combine::Builtin(Monoid::Sum), &outer, None, body)))
}

/// A sum of a sum and another value: each for itself, so that the sums may be taken in another order.
fn apart(graph: &mut Graph, f: &Fold) -> Option<Id> {
    if f.monoid != Monoid::Sum || !is_float(graph, f.body) {
        return None;
    }
    const FEW: usize = 4;
    let (func, a, b) = addends(graph, f.body)
        .into_iter()
        .find(|&(_, a, b)| holds_sum(graph, a, FEW) || holds_sum(graph, b, FEW))?;
    let [a, b] = [a, b].map(|x| graph.add(Term::fold(Combine::Builtin(Monoid::Sum), &f.axes, None, x)));
    Some(graph.add(Term::call(func, vec![a, b])))
}

/// What the sums and differences that a class holds are made of.
fn addends(graph: &Graph, id: Id) -> Vec<(Func, Id, Id)> {
    let two = |n: &Term| match (n.op, &n.children[..]) {
        (Op::Call(func @ (Func::Add | Func::Sub)), &[a, b]) => Some((func, a, b)),
        _ => None,
    };
    graph[id].nodes.iter().filter_map(two).collect()
}

/// Is it a sum over axes, or such a sum and a few values beside it?
fn holds_sum(graph: &Graph, id: Id, depth: usize) -> bool {
    folds_of(graph, id).iter().any(|i| i.monoid == Monoid::Sum)
        || depth > 0
            && addends(graph, id)
                .into_iter()
                .any(|(_, a, b)| holds_sum(graph, a, depth - 1) || holds_sum(graph, b, depth - 1))
}

/// The factors of the products that a class holds.
fn products(graph: &Graph, id: Id) -> Vec<[Id; 2]> {
    let both = |n: &Term| match (n.op, &n.children[..]) {
        (Op::Call(Func::Mul), &[a, b]) => vec![[a, b], [b, a]],
        _ => Vec::new(),
    };
    let mut found: Vec<[Id; 2]> = graph[id].nodes.iter().flat_map(both).collect();
    found.sort();
    found.dedup();
    found
}

/// A sum of products with a sum of products: the other product first.
fn regroup(graph: &mut Graph, f: &Fold) -> Option<Id> {
    if f.monoid != Monoid::Sum || !is_float(graph, f.body) {
        return None;
    }
    let outer = names(graph, &f.axes);
    for [sum, c] in products(graph, f.body) {
        if !depends(graph, c, &outer) {
            continue;
        }
        for inner in folds_of(graph, sum) {
            if inner.monoid != Monoid::Sum {
                continue;
            }
            let free = |graph: &Graph, a: Id, b: Id| !depends(graph, a, &outer) && depends(graph, b, &outer);
            let found = products(graph, inner.body).into_iter().find(|&[a, b]| free(graph, a, b));
            if let Some([a, b]) = found {
                return regrouped(graph, f, &inner, [a, b, c]);
            }
        }
    }
    None
}

fn regrouped(graph: &mut Graph, f: &Fold, inner: &Fold, [a, b, c]: [Id; 3]) -> Option<Id> {
    let (mut a, mut b, mut axes) = (a, b, Vec::new());
    for &k in &inner.axes {
        let name = axis_of(graph, k)?;
        let mut to = name;
        if graph[c].data.free.contains(&name) {
            // The name is taken where the sum goes.
            let mut used: BTreeSet<u32> = names(graph, &f.axes).into_iter().collect();
            used.extend(names(graph, &inner.axes));
            [a, b, c].iter().for_each(|&x| used.extend(&graph[x].data.free));
            let range = graph.analysis.range(name);
            let word = graph.analysis.axis_names[name as usize].clone();
            to = graph.analysis.unused(range, &used, &word);
            let mut renaming = Renaming { from: name, to, done: FxHashMap::default() };
            (a, b) = (renaming.apply(graph, a, DEEP)?, renaming.apply(graph, b, DEEP)?);
        }
        axes.push(graph.add(Term::new(Op::Axis(to), vec![])));
    }
    let body = graph.add(Term::call(Func::Mul, vec![b, c]));
    let first = graph.add(Term::fold(Combine::Builtin(Monoid::Sum), &f.axes, None, body));
    let body = graph.add(Term::call(Func::Mul, vec![a, first]));
    Some(graph.add(Term::fold(Combine::Builtin(Monoid::Sum), &axes, None, body)))
}

/// Terms that are one in another, of which renaming looks at as many.
const DEEP: usize = 32;

/// The same value at another axis.
struct Renaming {
    from: u32,
    to: u32,
    /// `None` for one that is being looked at.
    done: FxHashMap<Id, Option<Id>>,
}

impl Renaming {
    fn apply(&mut self, graph: &mut Graph, id: Id, depth: usize) -> Option<Id> {
        let id = graph.find(id);
        if !graph[id].data.free.contains(&self.from) {
            return Some(id);
        }
        if depth == 0 {
            return None;
        }
        if let Some(&known) = self.done.get(&id) {
            return known;
        }
        self.done.insert(id, None);
        let mut found: Option<Id> = None;
        for node in graph[id].nodes.clone() {
            let Some(new) = self.node(graph, &node, depth) else { continue };
            match found {
                Some(old) => drop(graph.union_trusted(old, new, "renaming")),
                None => found = Some(new),
            }
        }
        self.done.insert(id, found);
        found
    }

    fn node(&mut self, graph: &mut Graph, node: &Term, depth: usize) -> Option<Id> {
        if node.op == Op::Axis(self.from) {
            return Some(graph.add(Term::new(Op::Axis(self.to), vec![])));
        }
        // A fold over an axis of the new name would catch it.
        if let Some((_, axes, ..)) = node.fold_parts()
            && names(graph, axes).contains(&self.to)
        {
            return None;
        }
        let children = node.children.iter().map(|&c| self.apply(graph, c, depth - 1));
        let children = children.collect::<Option<Vec<Id>>>()?;
        Some(graph.add(Term::new(node.op, children)))
    }
}
