//! Values of rows that a chain's kernel knows anyway join it (`lower/fold_beside`): the logarithm of the sum of a
//! softmax as a second result, its greatest score, its sum.
//!
//! Kernels are grouped by then, so such values stand in a kernel of their own that reads the scores, which a product
//! made and stored for it alone; perhaps the chain reads them there. Both are opened until everything is made of the
//! scores' own factors. If the chain is one then, and each value is made of what it keeps, product and rows go away.

use super::facts::Facts;
use super::inline;
use crate::ir::graph::*;
use crate::ir::plan::*;
use crate::lower::{fold_beside, fold_pattern};
use std::collections::BTreeSet;

/// Rounds of opening.
const UP: usize = 8;

/// Joins what can be joined to the chains among the kernels.
pub fn join(g: &mut Graph, kernels: &mut Vec<PlanKernel>, notes: &mut Vec<String>) {
    let chains: Vec<String> =
        kernels.iter().filter(|k| k.form == Form::Fold).map(|k| k.name.clone()).collect();
    for name in chains {
        while let Some(at) = kernels.iter().position(|k| k.name == name)
            && (0..kernels.len()).any(|other| other != at && joined(g, kernels, at, other, notes))
        {}
    }
}

fn define(g: &Graph, i: usize) -> Option<Define> {
    match &g.stmts[i] {
        Stmt::Define(d) => Some(d.clone()),
        _ => None,
    }
}

/// Joins kernel `other` to the chain's kernel `at`, if that may be.
fn joined(
    g: &mut Graph,
    kernels: &mut Vec<PlanKernel>,
    at: usize,
    other: usize,
    notes: &mut Vec<String>,
) -> bool {
    if !matches!(kernels[other].form, Form::Row | Form::Map) {
        return false;
    }
    let rows: Option<Vec<Define>> = kernels[other].stmts.iter().map(|&i| define(g, i)).collect();
    let (Some(rows), Some(d)) = (rows, define(g, kernels[at].stmts[0])) else { return false };
    // A row has fewer axes than the chain's result.
    if rows.iter().any(|r| r.axes.len() >= d.axes.len())
        || !rows.iter().any(|r| fold_beside::is_of_folds(g, r))
    {
        return false;
    }
    let Some(opened) = open(g, kernels, at, other) else { return false };
    let names: Vec<String> = opened.targets.iter().map(|&t| g.tensor(t).name.clone()).collect();
    notes.push(format!(
        "{} and {} are one kernel: both are made of its rows",
        names.join(", "),
        kernels[at].name
    ));
    replace(g, kernels, opened, (at, other));
    true
}

fn open(g: &Graph, kernels: &[PlanKernel], at: usize, other: usize) -> Option<Opened> {
    let mut facts = Facts::default();
    let mut t = g.clone();
    let chain = kernels[at].stmts[0];
    let own: Vec<usize> = kernels[other].stmts.iter().copied().chain([chain]).collect();
    let rows: BTreeSet<TensorId> = kernels[other].stmts.iter().flat_map(|&i| g.stmts[i].targets()).collect();
    // Products for these alone.
    let scores: Vec<usize> = (0..g.stmts.len())
        .filter(|&i| {
            let Some(p) = define(g, i) else { return false };
            let read_by = |j: &usize| facts.stmt_reads(g, &g.stmts[*j]).contains(&p.target);
            let readers: Vec<usize> = (0..g.stmts.len()).filter(read_by).collect();
            g.tensor(p.target).role == Role::Local
                && !readers.is_empty()
                && readers.iter().all(|j| own.contains(j))
                && inline::is_contraction(g, &mut facts, p.value)
        })
        .collect();
    for _ in 0..UP {
        let mut changed = false;
        for &reader in &own {
            for from in kernels[other].stmts.iter().copied().chain(scores.iter().copied()) {
                let target = define(&t, from)?.target;
                if from != reader && facts.stmt_reads(&t, &t.stmts[reader]).contains(&target) {
                    inline::put_in_one(&mut t, &mut facts, from, reader).ok()?;
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    let d = define(&t, chain)?;
    let found = fold_pattern::takes(&t, &d).ok()?;
    let wanted = |target: TensorId, facts: &mut Facts| {
        let read = (0..t.stmts.len())
            .any(|j| !own.contains(&j) && facts.stmt_reads(&t, &t.stmts[j]).contains(&target));
        read || t.outputs.iter().any(|o| o.tensor == target)
    };
    let mut targets: Vec<TensorId> = rows.into_iter().filter(|&r| wanted(r, &mut facts)).collect();
    // What was there before may be.
    for before in &kernels[at].stmts[1..] {
        targets.push(define(&t, *before)?.target);
    }
    for &i in &own[..own.len() - 1] {
        let r = define(&t, i)?;
        if targets.contains(&r.target) {
            fold_beside::of(&t, &d, &found, &r).ok()?;
        }
    }
    for &i in &kernels[at].stmts[1..] {
        fold_beside::of(&t, &d, &found, &define(&t, i)?).ok()?;
    }
    // The joint kernel stands where the first of the two does, or the last, if what it reads is made between.
    let (first, last) = (at.min(other), at.max(other));
    let reads: BTreeSet<TensorId> = own.iter().flat_map(|&i| facts.stmt_reads(&t, &t.stmts[i])).collect();
    let all: BTreeSet<TensorId> = targets.iter().copied().chain([d.target]).collect();
    let between: Vec<usize> = kernels[first + 1..last].iter().flat_map(|k| k.stmts.clone()).collect();
    let between = || between.iter().filter(|j| !scores.contains(j));
    let makes = between().any(|&j| t.stmts[j].targets().iter().any(|m| reads.contains(m)));
    let wants = between().any(|&j| !facts.stmt_reads(&t, &t.stmts[j]).is_disjoint(&all));
    match (makes, wants) {
        (true, true) => None,
        (true, false) => Some(Opened { graph: t, targets, place: last }),
        _ => Some(Opened { graph: t, targets, place: first }),
    }
}

/// The graph with a chain and the values of its rows opened.
struct Opened {
    graph: Graph,
    /// The values of rows that are wanted.
    targets: Vec<TensorId>,
    /// Which kernel's place the joint one takes.
    place: usize,
}

/// Puts the opened graph in place: kernels without statements go, the joint one stands where both can.
fn replace(g: &mut Graph, kernels: &mut Vec<PlanKernel>, opened: Opened, (at, other): (usize, usize)) {
    let of = |k: &PlanKernel, g: &Graph| -> Vec<Vec<TensorId>> {
        k.stmts.iter().map(|&i| g.stmts[i].targets()).collect()
    };
    let chain = g.stmts[kernels[at].stmts[0]].targets();
    let mut all: Vec<Vec<Vec<TensorId>>> = kernels.iter().map(|k| of(k, g)).collect();
    all[at] = std::iter::once(chain).chain(opened.targets.iter().map(|&t| vec![t])).collect();
    all[other].clear();
    *g = opened.graph;
    inline::drop_unread(g, &mut Facts::default(), &BTreeSet::new());
    let place = |t: &Vec<TensorId>| g.stmts.iter().position(|s| s.targets() == *t);
    for (k, stmts) in kernels.iter_mut().zip(&all) {
        k.stmts = stmts.iter().filter_map(place).collect();
    }
    let joint = kernels.remove(at);
    kernels.insert(opened.place, joint);
    kernels.retain(|k| !k.stmts.is_empty());
}
