//! Sums whose terms are chosen by a remainder, as several sums without that condition: the phases of a transposed
//! convolution, of a strided convolution's gradient.
//!
//! In `y[p] = sum[r where (p + c - r) % s == 0](x[(p + c - r)/s] * w[r])` the points of one remainder p % s look at the
//! same taps, every s-th one. With p = s·i + a and r = s·t + b the condition always holds, the quotient is i - t and a
//! constant, and the sum is a plain convolution over the points i: a kernel for each remainder, which stores every s-th
//! point. Taps that do not reach a point are no terms of its sum, whatever their values.

use super::contract_pack::Pack;
use super::contract_pattern::{self, ContractShape};
use super::hopper_gather::{Affine, affine};
use super::{Home, Lowering, Refusal, contract, contract_boxes};
use crate::ir::graph::*;
use crate::ir::plan::{Form, Plan, PlanKernel};
use crate::pass::inline::outer_folds;
use crate::pass::subst::{Subst, map_children};
use crate::vocab::dtype::{Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use std::collections::{BTreeMap, HashMap};

/// Phases beyond which their launches cost more than they are worth.
const MOST: i64 = 16;

/// One kernel of a sum in phases.
pub struct Phase {
    /// A plan of the kernel alone.
    pub plan: Plan,
    /// The tensor that the graph's target is there, and the axes along which it has every `period`-th point:
    /// (dim, period), in order.
    view: Option<(TensorId, Vec<(usize, i64)>)>,
}

impl Phase {
    /// The product that it is.
    pub fn shape(&self) -> Option<ContractShape> {
        let Stmt::Define(d) = &self.plan.graph.stmts[0] else { return None };
        contract_pattern::takes(&self.plan.graph, d, true).ok()
    }
}

/// The phases of a definition, if it has any and each is a product.
pub fn split(g: &Graph, d: &Define, name: &str) -> Option<Vec<Phase>> {
    let periods = periods(g, d)?;
    if let Some(all) = phase(g, d, &periods, Phases::Even, name).filter(|p| p.shape().is_some()) {
        return Some(vec![all]);
    }
    let count: i64 = periods.values().product();
    let mut phases = Vec::new();
    for number in 0..count {
        let mut rest = number;
        let digits = periods.values().rev().map(|&n| (rest % n, rest /= n).0);
        let mut at: Vec<i64> = digits.collect();
        at.reverse();
        let points = |(&p, &n): (&usize, &i64), a: i64| (g.tensor(d.target).dims[p] - a + n - 1) / n;
        if periods.iter().zip(&at).any(|(p, &a)| points(p, a) <= 0) {
            continue;
        }
        let phase = phase(g, d, &periods, Phases::One(&at), name)?;
        phase.shape()?;
        phases.push(phase);
    }
    Some(phases)
}

/// Whether phases are looked for before a kernel is taken as the product that it is, if it is one: a remainder in the
/// condition masks no term where it chooses among sums.
pub fn before(found: &Result<ContractShape, Refusal>) -> bool {
    found.as_ref().map_or(true, ContractShape::is_masked)
}

/// Lowers a kernel phase by phase, if it has phases, or all at once where the main loop counts each phase's terms. Copies
/// of operands are shared.
pub fn lower(cx: &mut Lowering<'_>, k: &PlanKernel) -> Option<Result<(), Refusal>> {
    let [s] = k.stmts[..] else { return None };
    let Stmt::Define(d) = &cx.graph.stmts[s] else { return None };
    let phases = split(cx.graph, d, &k.name)?;
    if phases.len() > 1
        && let Some(p) = phase(cx.graph, d, &periods(cx.graph, d)?, Phases::Ragged, &k.name)
        && let Some(done) = one(cx, d, &p, contract_boxes::lower_by_boxes)
    {
        return Some(done);
    }
    let around = cx.packed.replace(Vec::new());
    let done = phases.iter().try_for_each(|p| one(cx, d, p, contract::lower));
    cx.packed = around;
    Some(done)
}

/// What `f` makes of a kernel's first phase, if it has phases.
pub fn first<R>(
    cx: &mut Lowering<'_>,
    k: &PlanKernel,
    f: impl for<'b> FnOnce(&mut Lowering<'b>, &'b PlanKernel) -> R,
) -> Option<R> {
    let [s] = k.stmts[..] else { return None };
    let Stmt::Define(d) = &cx.graph.stmts[s] else { return None };
    let phases = split(cx.graph, d, &k.name)?;
    Some(one(cx, d, phases.first()?, f))
}

/// Lowers one phase by `f`.
fn one<R>(
    cx: &mut Lowering<'_>,
    d: &Define,
    p: &Phase,
    f: impl for<'b> FnOnce(&mut Lowering<'b>, &'b PlanKernel) -> R,
) -> R {
    let own = cx.home(d.target).clone();
    let packed = cx.packed.take();
    let (done, packed) = cx.within(&p.plan, |inner| {
        (inner.parts, inner.packed) = (None, packed);
        if let Some((t, periods)) = &p.view {
            inner.set_home(*t, view(&own, periods));
        }
        (f(inner, &p.plan.kernels[0]), inner.packed.take())
    });
    cx.packed = packed;
    done
}

/// A tensor's home with some dims as two: every `period`-th place, and the place within a period.
pub(super) fn view(own: &Home, periods: &[(usize, i64)]) -> Home {
    let mut strides = Vec::new();
    for (d, &s) in own.strides.iter().enumerate() {
        match periods.iter().find(|p| p.0 == d) {
            Some((_, n)) => strides.extend([s * n, s]),
            None => strides.push(s),
        }
    }
    Home { strides, ..own.clone() }
}

/// Copies that phases share: an operand's pack, and where it is.
pub type Shared = Option<Vec<(Pack, Home)>>;

/// For each output axis (by position) that a remainder speaks of, its divisor.
fn periods(g: &Graph, d: &Define) -> Option<BTreeMap<usize, i64>> {
    let mut found = BTreeMap::new();
    for e in outer_folds(g, d.value) {
        let Expr::Fold(f) = g.expr(e) else { continue };
        for c in conditions(g, f).0 {
            let Some((at, by)) = remainder(g, c) else { continue };
            let outs = (0..d.axes.len()).filter(|&p| at.axes.get(&d.axes[p]).is_some_and(|v| *v != 0));
            let Ok([p]) = <[usize; 1]>::try_from(outs.collect::<Vec<_>>()) else { continue };
            if *found.entry(p).or_insert(by) != by {
                return None;
            }
        }
    }
    let ranged = d.axes.iter().all(|&a| g.axis_range(a).is_some());
    let count = found.values().try_fold(1i64, |n, &by| n.checked_mul(by));
    (ranged && !found.is_empty() && count.is_some_and(|n| n <= MOST)).then_some(found)
}

/// `e % n == 0` as e and n, where e is affine and n > 0.
fn remainder(g: &Graph, c: ExprId) -> Option<(Affine, i64)> {
    let Expr::Call(Func::Eq, args) = g.expr(c) else { return None };
    let zero = |id: ExprId| integer(g, id) == Some(0);
    let rem = match args[..] {
        [a, b] if zero(b) => a,
        [a, b] if zero(a) => b,
        _ => return None,
    };
    let Expr::Call(Func::Rem, args) = g.expr(rem) else { return None };
    let by = integer(g, args[1]).filter(|&n| n > 0)?;
    Some((affine(g, args[0])?, by))
}

fn integer(g: &Graph, id: ExprId) -> Option<i64> {
    match g.expr(id) {
        Expr::Lit(Value::I64(v)) => Some(*v),
        Expr::Lit(Value::I32(v)) => Some(*v as i64),
        _ => None,
    }
}

/// The conditions under which a sum's terms count, and the terms: `if c then a else 0` is a term where c holds.
fn conditions(g: &Graph, f: &Fold) -> (Vec<ExprId>, ExprId) {
    let (mut conds, mut body) = (Vec::new(), f.body);
    f.cond.iter().for_each(|&c| conjuncts(g, c, &mut conds));
    while let (Combine::Builtin(Monoid::Sum), Expr::Select(c, a, zero)) = (f.combine, g.expr(body))
        && contract_pattern::is_zero(g, *zero)
    {
        conjuncts(g, *c, &mut conds);
        body = *a;
    }
    (conds, body)
}

/// The conditions that must all hold for `c` to hold.
fn conjuncts(g: &Graph, c: ExprId, out: &mut Vec<ExprId>) {
    match g.expr(c) {
        Expr::Select(a, b, no) if matches!(g.expr(*no), Expr::Lit(Value::Bool(false))) => {
            conjuncts(g, *a, out);
            conjuncts(g, *b, out);
        }
        _ => out.push(c),
    }
}

/// Which points a kernel has.
#[derive(Clone, Copy, PartialEq)]
enum Phases<'x> {
    /// Those with these remainders.
    One(&'x [i64]),
    /// All, if every phase has as many terms.
    Even,
    /// All; the phase's number says how many terms there are.
    Ragged,
}

/// The kernel of the points with these remainders, or of all points, if all remainders choose as many terms.
fn phase(graph: &Graph, d: &Define, periods: &BTreeMap<usize, i64>, at: Phases, name: &str) -> Option<Phase> {
    let mut g = graph.clone();
    let mut axes = Vec::new();
    let mut moved = Vec::new();
    let mut split: Vec<(usize, i64)> = Vec::new();
    for (p, &axis) in d.axes.iter().enumerate() {
        let Some((i, by)) = periods.iter().enumerate().find(|(_, x)| *x.0 == p).map(|(i, x)| (i, *x.1))
        else {
            axes.push(axis);
            continue;
        };
        if by == 1 {
            axes.push(axis);
            continue;
        }
        let (lo, hi) = g.axis_range(axis)?;
        // Where the phases are one kernel, their number is an axis.
        let (first, end) = match at {
            Phases::One(at) => (at[i], at[i] + 1),
            _ if (hi - lo) % by == 0 => (0, by),
            _ => return None,
        };
        let count = (hi - lo - first + by - 1) / by;
        let (each, within) = (range(&mut g, axis, 0, count), range(&mut g, axis, first, end));
        let step = match at {
            Phases::One(_) => Affine { axes: BTreeMap::from([(each, by)]), constant: lo + first },
            _ => Affine { axes: BTreeMap::from([(each, by), (within, 1)]), constant: lo },
        };
        moved.push((axis, build(&mut g, &step)));
        axes.extend([each, within]);
        split.push((p, by));
    }
    let target = if split.is_empty() { d.target } else { viewed(&mut g, d.target, &split) };
    let mut value = Subst::of_axes(&mut g, moved).apply(&mut g, d.value);
    for e in outer_folds(&g, value) {
        if let Some(to) = chosen_terms(&mut g, e, at)? {
            value = Subst::of_exprs([(e, to)]).apply(&mut g, value);
        }
    }
    let view = (!split.is_empty()).then_some((target, split));
    g.stmts = vec![Stmt::Define(Define { target, axes, value, span: d.span })];
    g.outputs.clear();
    Some(Phase { plan: Plan::of_statement(g, name, Form::Contract), view })
}

/// A new axis like another over a literal range.
pub(super) fn range(g: &mut Graph, like: AxisId, lo: i64, hi: i64) -> AxisId {
    let (name, span) = (g.axis(like).name.clone(), g.axis(like).span);
    let (lo, hi) = (g.int(lo), g.int(hi));
    g.new_axis(name, lo, hi, span)
}

/// The target with some dims as two.
pub(super) fn viewed(g: &mut Graph, target: TensorId, split: &[(usize, i64)]) -> TensorId {
    let mut t = g.tensor(target).clone();
    let (mut dims, mut lo) = (Vec::new(), Vec::new());
    for d in 0..t.dims.len() {
        match split.iter().find(|s| s.0 == d) {
            Some((_, by)) => {
                dims.extend([(t.dims[d] + by - 1) / by, *by]);
                lo.extend([0, 0]);
            }
            None => {
                dims.push(t.dims[d]);
                lo.push(t.lo[d]);
            }
        }
    }
    (t.dims, t.lo) = (dims, lo);
    t.strides.clear();
    g.tensors.push(t);
    TensorId(g.tensors.len() as u32 - 1)
}

/// A fold over the terms alone that its remainders choose: `None` where that cannot be said, `Some(None)` where there are
/// no remainders.
fn chosen_terms(g: &mut Graph, e: ExprId, phases: Phases) -> Option<Option<ExprId>> {
    let Expr::Fold(f) = g.expr(e).clone() else { return Some(None) };
    let (conds, body) = conditions(g, &f);
    let (mut kept, mut moved) = (Vec::new(), Vec::new());
    let mut axes = f.axes.clone();
    for &c in &conds {
        let Some((at, by)) = remainder(g, c) else {
            kept.push(c);
            continue;
        };
        // What is a multiple of the divisor does not count.
        let counts = at.axes.iter().filter(|(_, v)| *v % by != 0).map(|(&a, &v)| (a, v));
        let counts: Vec<(AxisId, i64)> = counts.collect();
        let (own, around): (Vec<_>, Vec<_>) = counts.into_iter().partition(|(a, _)| f.axes.contains(a));
        let is_new = |a: &AxisId| moved.iter().all(|m: &(AxisId, ExprId)| m.0 != *a);
        let (axis, coefficient) = match own[..] {
            [] if around.is_empty() && at.constant.rem_euclid(by) == 0 => continue,
            // The phase alone decides: all terms or none, of any axis.
            [] => {
                let spoken = |a: &AxisId| is_new(a) && at.axes.contains_key(a);
                let axis = f.axes.iter().copied().find(spoken);
                (axis.or_else(|| f.axes.iter().copied().find(is_new))?, 0)
            }
            [(axis, v)] if moved.iter().all(|m: &(AxisId, ExprId)| m.0 != axis) => (axis, v),
            _ => return None,
        };
        if f.combine != Combine::Builtin(Monoid::Sum) {
            return None;
        }
        let terms = |constant: i64| chosen(g, axis, coefficient, constant, by);
        let mut count = Affine { axes: BTreeMap::new(), constant: 0 };
        let (first, by_phase, step) = match around[..] {
            [] => {
                let (first, step, terms) = terms(at.constant)?;
                count.constant = terms;
                (first, None, step)
            }
            [(phase, v)] => {
                let (lo, hi) = g.axis_range(phase)?;
                let all = (lo..hi).map(|n| terms(at.constant + v * n)).collect::<Option<Vec<_>>>()?;
                let (first, step, terms) = *all.first()?;
                let next = *all.get(1)?;
                let (more, longer) = (next.0 - first, next.2 - terms);
                let line = |n: i64| (first + more * n, step, terms + longer * n);
                let even = (0..).zip(&all).all(|(n, x)| *x == line(n));
                if !even || lo != 0 || longer != 0 && phases != Phases::Ragged {
                    return None;
                }
                count = Affine { axes: BTreeMap::from([(phase, longer)]), constant: terms };
                (first, Some((phase, more)), step)
            }
            _ => return None,
        };
        let (name, of) = (g.axis(axis).name.clone(), g.axis(axis).span);
        let (none, end) = (g.int(0), build(g, &count));
        let fresh = g.new_axis(name, none, end, of);
        let mut to = Affine { axes: BTreeMap::from([(fresh, step)]), constant: first };
        to.axes.extend(by_phase);
        moved.push((axis, build(g, &to)));
        axes.iter_mut().filter(|a| **a == axis).for_each(|a| *a = fresh);
    }
    if kept.len() == conds.len() {
        return Some(None);
    }
    let (ty, span) = (g.ty(e), g.span(e));
    let map: Vec<(ExprId, ExprId)> = moved.iter().map(|&(a, to)| (g.axis_expr(a), to)).collect();
    let mut subst = Subst::of_exprs(map);
    let body = subst.apply(g, body);
    let body = divided(g, body, &mut HashMap::new());
    let mut cond = None;
    for c in kept.into_iter().rev() {
        let c = subst.apply(g, c);
        let c = divided(g, c, &mut HashMap::new());
        cond = Some(match cond {
            None => c,
            Some(rest) => {
                let no = g.lit(Value::Bool(false));
                g.add(Expr::Select(c, rest, no), Ty::Bool, span)
            }
        });
    }
    Some(Some(g.add(Expr::Fold(Fold { combine: f.combine, axes, cond, body }), ty, span)))
}

/// The values of an axis for which `coefficient · value + constant` is a multiple of `by`: the first, the step from one to
/// the next, and how many.
fn chosen(g: &Graph, axis: AxisId, coefficient: i64, constant: i64, by: i64) -> Option<(i64, i64, i64)> {
    let (lo, hi) = g.axis_range(axis)?;
    let reaches = |r: i64| (constant + coefficient * r).rem_euclid(by) == 0;
    let first = (lo..lo + by).find(|&r| reaches(r));
    let step = first.map_or(by, |first| (1..=by).find(|s| reaches(first + s)).unwrap_or(by));
    let first = first.unwrap_or(hi).max(lo);
    Some((first, step, ((hi - first + step - 1) / step).max(0)))
}

/// Quotients of what is a multiple of the divisor, written out.
fn divided(g: &mut Graph, e: ExprId, done: &mut HashMap<ExprId, ExprId>) -> ExprId {
    if let Some(&to) = done.get(&e) {
        return to;
    }
    let to = match exact_quotient(g, e) {
        Some(at) => build(g, &at),
        None => {
            let expr = map_children(g.expr(e).clone(), &mut |c| divided(g, c, done));
            let (ty, span) = (g.ty(e), g.span(e));
            g.add(expr, ty, span)
        }
    };
    done.insert(e, to);
    to
}

fn exact_quotient(g: &Graph, e: ExprId) -> Option<Affine> {
    let Expr::Call(Func::Div, args) = g.expr(e) else { return None };
    let by = integer(g, args[1]).filter(|&n| n > 0 && g.ty(e) == Ty::I64)?;
    let mut at = affine(g, args[0])?;
    let whole = at.constant % by == 0 && at.axes.values().all(|v| v % by == 0);
    at.axes.values_mut().for_each(|v| *v /= by);
    at.constant /= by;
    whole.then_some(at)
}

/// An affine index as an expression.
pub(super) fn build(g: &mut Graph, at: &Affine) -> ExprId {
    let mut sum: Option<ExprId> = None;
    let mut add = |g: &mut Graph, f: Func, x: ExprId| {
        sum = Some(match sum {
            None if f == Func::Add => x,
            None => g.add(Expr::Call(Func::Neg, vec![x]), Ty::I64, Default::default()),
            Some(s) => g.add(Expr::Call(f, vec![s, x]), Ty::I64, Default::default()),
        });
    };
    for (&axis, &by) in at.axes.iter().filter(|a| *a.1 != 0) {
        let mut x = g.axis_expr(axis);
        if by.abs() != 1 {
            let by = g.int(by.abs());
            x = g.add(Expr::Call(Func::Mul, vec![x, by]), Ty::I64, Default::default());
        }
        add(g, if by < 0 { Func::Sub } else { Func::Add }, x);
    }
    if at.constant != 0 {
        let c = g.int(at.constant.abs());
        add(g, if at.constant < 0 { Func::Sub } else { Func::Add }, c);
    }
    sum.unwrap_or_else(|| g.int(0))
}
