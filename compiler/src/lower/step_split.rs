//! Steps whose points sum much: the sums of a step become kernels of their own, in the form that suits them (products
//! of matrices on tensor cores, rows by blocks), and the step reads them.
//!
//! The graph is rewritten: a sum that many points make becomes a definition over the member's axes but the steps,
//! with the step's number as a run-time scalar in place of the step axes; the member reads it. A sum reads members at
//! earlier steps, or members that stand before, so it can run just before its member.

use super::index::reads;
use super::recur::{Parts, StepBox, parts};
use super::{Refusal, contract_pattern};
use crate::ir::graph::*;
use crate::ir::plan::{Form, Plan, PlanKernel};
use crate::pass::subst::Subst;
use crate::pass::{facts, forms, inline, sites};
use crate::vocab::dtype::{DType, Ty};
use crate::vocab::func::Func;
use std::collections::BTreeSet;

/// Terms of a sum from which on it is worth a launch: over all its points.
const WORTH: f64 = 16384.0;
/// And at each point.
const LONG: f64 = 16.0;

/// A recurrence whose long sums are definitions.
pub struct Split {
    pub plan: Plan,
    /// The kernel that is left of the recurrence.
    pub kernel: PlanKernel,
    /// For each member, the kernels that run before it.
    pub before: Vec<Vec<PlanKernel>>,
    /// What stands for the step's number in them.
    pub step: ScalarId,
    /// The definitions' targets.
    pub sums: Vec<TensorId>,
}

/// Terms that the sums of one step have, over all points of an independent part: what a block would add alone.
pub fn terms_of_a_part(g: &Graph, r: &Recur, free: &[Vec<usize>]) -> f64 {
    let mut most = 0.0f64;
    for (m, d) in r.members.iter().enumerate() {
        let stepped: Vec<usize> = r.steps.iter().map(|s| s.position[m]).collect();
        let own: BTreeSet<AxisId> = (0..d.axes.len())
            .filter(|p| !stepped.contains(p) && !free[m].contains(p))
            .map(|p| d.axes[p])
            .collect();
        for e in inline::outer_folds(g, d.value) {
            let Expr::Fold(f) = g.expr(e) else { continue };
            let fixed = f.axes.iter().all(|&a| g.axis_range(a).is_some());
            if !fixed {
                continue;
            }
            let free = facts::Facts::default().free(g, e);
            let points: f64 = own.iter().filter(|a| free.contains(a)).map(|&a| facts::points(g, a)).product();
            most = most.max(points * facts::volume(g, &f.axes));
        }
    }
    most
}

/// Takes the long sums out of a recurrence, if it has any.
pub fn split(plan: &Plan, k: &PlanKernel) -> Result<Option<Split>, Refusal> {
    let p = parts(&plan.graph, k)?;
    let at = k.stmts.iter().position(|&s| matches!(plan.graph.stmts[s], Stmt::Recur(_)));
    let Some(at) = at.map(|i| k.stmts[i]) else { return Ok(None) };
    let chosen: Vec<Vec<ExprId>> =
        (0..p.recur.members.len()).map(|m| long_sums(&plan.graph, &p, m)).collect();
    if chosen.iter().all(Vec::is_empty) {
        return Ok(None);
    }
    let mut g = plan.graph.clone();
    let step = scalar(&mut g, p.span);
    let mut recur = p.recur.clone();
    let mut before = Vec::new();
    let mut sums = Vec::new();
    for (m, folds) in chosen.iter().enumerate() {
        let mut own = Vec::new();
        for &e in folds {
            let (s, value) = lift(&mut g, &p, m, e, step);
            sums.push(s);
            let stmt = g.stmts.len() - 1;
            let mut subst = Subst::of_exprs([(e, value)]);
            recur.members[m].value = subst.apply(&mut g, recur.members[m].value);
            let name = format!("{}_sum", k.name);
            own.push(PlanKernel { name, stmts: vec![stmt], form: form(&g, stmt) });
        }
        before.push(own);
    }
    absorb(&mut g, at, &mut recur, &mut before);
    g.stmts[at] = Stmt::Recur(recur);
    let kernels = before.iter().flatten().cloned().collect();
    let plan = Plan { graph: g, kernels, bytes_saved: 0, notes: Vec::new() };
    Ok(Some(Split { plan, kernel: k.clone(), before, step, sums }))
}

/// Outer folds of a member that many threads should share, and that may be evaluated at every point.
fn long_sums(g: &Graph, p: &Parts<'_>, m: usize) -> Vec<ExprId> {
    let d = &p.recur.members[m];
    let t = g.tensor(d.target);
    let every_step = p.recur.steps.iter().zip(&p.steps).all(|(s, b)| {
        let at = s.position[m];
        t.lo[at] == b.lo && t.dims[at] == b.count
    });
    if !every_step {
        return Vec::new();
    }
    let mut facts = facts::Facts::default();
    let mut folds = inline::outer_folds(g, d.value);
    folds.sort();
    folds.dedup();
    folds.retain(|&e| {
        let Expr::Fold(f) = g.expr(e) else { return false };
        let free = facts.free(g, e);
        let points: f64 = rest(p, m).filter(|a| free.contains(a)).map(|a| facts::points(g, a)).product();
        let terms = facts::volume(g, &f.axes);
        f.axes.iter().all(|&a| g.axis_range(a).is_some())
            && free.iter().all(|a| d.axes.contains(a))
            && terms >= LONG
            && points * terms >= WORTH
            && sites::speculable(g, e)
    });
    folds
}

/// A member's axes but the steps.
fn rest<'p>(p: &'p Parts<'_>, m: usize) -> impl Iterator<Item = AxisId> + 'p {
    let stepped: Vec<usize> = p.recur.steps.iter().map(|s| s.position[m]).collect();
    let axes = &p.recur.members[m].axes;
    (0..axes.len()).filter(move |i| !stepped.contains(i)).map(|i| axes[i])
}

fn scalar(g: &mut Graph, span: girih_dsl::ast::Span) -> ScalarId {
    g.scalars.push(Scalar { name: "step".into(), dtype: DType::I64, default: None, range: None, span });
    ScalarId(g.scalars.len() as u32 - 1)
}

/// Appends the definition of a fold at one step; gives its target, and the read that takes the fold's place.
fn lift(g: &mut Graph, p: &Parts<'_>, m: usize, e: ExprId, step: ScalarId) -> (TensorId, ExprId) {
    let d = &p.recur.members[m];
    let span = g.span(e);
    let free = facts::Facts::default().free(g, e);
    let own: Vec<AxisId> = rest(p, m).filter(|a| free.contains(a)).collect();
    let mut map: Vec<(AxisId, ExprId)> = Vec::new();
    for (s, value) in step_values(g, &p.steps, step).into_iter().enumerate() {
        map.push((d.axes[p.recur.steps[s].position[m]], value));
    }
    let mut axes = Vec::new();
    let (mut dims, mut lo) = (Vec::new(), Vec::new());
    for &a in &own {
        let (first, beyond) = g.axis_range(a).expect("a member's axes have literal ranges");
        let from = g.axis(a).clone();
        let fresh = g.new_axis(from.name, from.lo, from.hi, from.span);
        let value = g.axis_expr(fresh);
        map.push((a, value));
        axes.push(fresh);
        dims.push(beyond - first);
        lo.push(first);
    }
    let value = Subst::of_axes(g, map).apply(g, e);
    let ty = g.ty(e);
    let name = format!("{}_sum", g.tensor(d.target).name);
    g.tensors.push(Tensor {
        name,
        version: 0,
        dtype: ty.stored(),
        dims,
        lo,
        role: Role::Local,
        range: None,
        unique: false,
        cast: false,
        strides: Vec::new(),
        align: 256,
        span,
    });
    let target = TensorId(g.tensors.len() as u32 - 1);
    g.stmts.push(Stmt::Define(Define { target, axes, value, span }));
    let index = own.iter().map(|&a| g.axis_expr(a)).collect();
    let read = g.add(Expr::Read(Read { tensor: target, index, access: Access::Proven }), ty, span);
    (target, read)
}

/// The value of each step axis, from the number of the step.
fn step_values(g: &mut Graph, steps: &[StepBox], step: ScalarId) -> Vec<ExprId> {
    let span = Default::default();
    let mut rest = g.add(Expr::Scalar(step), Ty::I64, span);
    let mut values = Vec::new();
    for (s, b) in steps.iter().enumerate().rev() {
        let n = g.int(b.count.max(1));
        let call = |g: &mut Graph, f, a, b| g.add(Expr::Call(f, vec![a, b]), Ty::I64, span);
        let here = if s == 0 { rest } else { call(g, Func::Rem, rest, n) };
        rest = if s == 0 { rest } else { call(g, Func::Div, rest, n) };
        let value = if b.descending {
            let last = g.int(b.lo + b.count - 1);
            call(g, Func::Sub, last, here)
        } else if b.lo != 0 {
            let lo = g.int(b.lo);
            call(g, Func::Add, here, lo)
        } else {
            here
        };
        values.push(value);
    }
    values.reverse();
    values
}

/// Puts members that only others read, at their own step, into these, where little is computed again: a launch less.
fn absorb(g: &mut Graph, at: usize, r: &mut Recur, before: &mut Vec<Vec<PlanKernel>>) {
    let mut m = 0;
    while m < r.members.len() {
        if !may_go(g, at, r, m) {
            m += 1;
            continue;
        }
        let gone = r.members.remove(m);
        for d in &mut r.members {
            let mut into = Subst::of_exprs([]);
            let all: Vec<(ExprId, Read)> =
                reads(g, &Stmt::Define(d.clone())).into_iter().map(|(e, r)| (e, r.clone())).collect();
            for (e, read) in all {
                if read.tensor == gone.target {
                    let map: Vec<_> = gone.axes.iter().copied().zip(read.index).collect();
                    let value = Subst::of_axes(g, map).apply(g, gone.value);
                    into.put(e, value);
                }
            }
            d.value = into.apply(g, d.value);
        }
        r.steps.iter_mut().for_each(|s| {
            s.position.remove(m);
        });
        let mut first = before.remove(m);
        if let Some(next) = before.get_mut(m) {
            first.append(next);
            *next = first;
        }
    }
}

fn may_go(g: &Graph, at: usize, r: &Recur, m: usize) -> bool {
    /// Operations of a value that may be computed at each of a few reads.
    const WORK: f64 = 32.0;
    const READS: usize = 8;
    let d = &r.members[m];
    let t = g.tensor(d.target);
    let mut facts = facts::Facts::default();
    let elsewhere = g
        .stmts
        .iter()
        .enumerate()
        .any(|(i, s)| i != at && reads(g, s).iter().any(|(_, read)| read.tensor == d.target));
    let plain = t.role == Role::Local
        && g.outputs.iter().all(|o| o.tensor != d.target)
        && t.dtype == g.ty(d.value).stored()
        && !facts.has_fold(g, d.value)
        && facts.work(g, d.value) <= WORK;
    if elsewhere || !plain {
        return false;
    }
    let mut count = 0;
    for (k, reader) in r.members.iter().enumerate() {
        for (_, read) in reads(g, &Stmt::Define(reader.clone())) {
            if read.tensor != d.target {
                continue;
            }
            let now = r.steps.iter().all(|s| {
                let own = reader.axes[s.position[k]];
                matches!(g.expr(read.index[s.position[m]]), Expr::Axis(a) if *a == own)
            });
            if k <= m || !now || read.access != Access::Proven {
                return false;
            }
            count += 1;
        }
    }
    (1..=READS).contains(&count)
}

fn form(g: &Graph, stmt: usize) -> Form {
    let Stmt::Define(d) = &g.stmts[stmt] else { return Form::Map };
    let contracts = contract_pattern::takes(g, d, false).is_ok();
    forms::of_define(g, &mut facts::Facts::default(), stmt, d, None, contracts)
}
