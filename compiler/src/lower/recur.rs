//! What the three forms of recurrences share: the box of steps, and one member's definition at one point.

use super::Refusal;
use super::index::Interval;
use super::map::count;
use super::read::Index;
use super::scalar::{Emit, Num, and, arith, compare, int_of};
use crate::ir::graph::{Define, Graph, Recur, Stmt};
use crate::ir::plan::PlanKernel;
use crate::ir::simt::{CmpOp, Expr, IntOp, Stmt as Simt, Ty, Unroll};
use crate::pass::{facts, forms};
use girih_dsl::ast::Span;

/// One axis of the steps: the union of its members' ranges, in its order.
#[derive(Clone, Copy, Debug)]
pub struct StepBox {
    pub lo: i64,
    pub count: i64,
    pub descending: bool,
}

impl StepBox {
    /// The axis's value at the `i`-th step.
    pub fn value(self, i: Num) -> Num {
        if self.descending {
            arith(IntOp::Sub, int_of(i.ty, self.lo + self.count - 1), i)
        } else {
            arith(IntOp::Add, i.clone(), int_of(i.ty, self.lo))
        }
    }
}

/// A recurrence taken apart.
pub struct Parts<'a> {
    pub recur: &'a Recur,
    pub steps: Vec<StepBox>,
    /// For each member, the positions of its axes that are independent (the same number for all), and of the others
    /// that are no steps.
    pub free: Vec<Vec<usize>>,
    pub coupled: Vec<Vec<usize>>,
    pub span: Span,
}

/// The recurrence of a kernel.
pub fn parts<'a>(graph: &'a Graph, k: &PlanKernel) -> Result<Parts<'a>, Refusal> {
    let recur = k.stmts.iter().find_map(|&s| match &graph.stmts[s] {
        Stmt::Recur(r) => Some(r),
        _ => None,
    });
    let Some(recur) = recur else {
        return Err(Refusal::new(Span::default(), format!("kernel {} has no recurrence", k.name)));
    };
    let steps = (0..recur.steps.len()).map(|s| step_box(graph, recur, s)).collect();
    let free = forms::independent_axes(graph, &mut facts::Facts::default(), recur);
    let coupled = (0..recur.members.len())
        .map(|m| {
            let stepped: Vec<usize> = recur.steps.iter().map(|s| s.position[m]).collect();
            let axes = 0..recur.members[m].axes.len();
            axes.filter(|p| !stepped.contains(p) && !free[m].contains(p)).collect()
        })
        .collect();
    Ok(Parts { recur, steps, free, coupled, span: recur.members[0].span })
}

fn step_box(graph: &Graph, r: &Recur, s: usize) -> StepBox {
    let step = &r.steps[s];
    let ranges = r.members.iter().enumerate().map(|(m, d)| own_range(graph, d, step.position[m]));
    let (lo, hi) = ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 0));
    StepBox { lo, count: (hi - lo).max(0), descending: step.descending }
}

/// The range of a definition's axis: that of its tensor's dim.
fn own_range(graph: &Graph, d: &Define, p: usize) -> (i64, i64) {
    let t = graph.tensor(d.target);
    (t.lo[p], t.lo[p] + t.dims[p])
}

impl<'a> Parts<'a> {
    /// Extents of some axes of a member.
    pub fn dims(&self, graph: &Graph, m: usize, positions: &[usize]) -> Vec<i64> {
        let t = graph.tensor(self.recur.members[m].target);
        positions.iter().map(|&p| t.dims[p]).collect()
    }

    /// Number of steps.
    pub fn total(&self, name: &str) -> Result<i64, Refusal> {
        let dims: Vec<i64> = self.steps.iter().map(|s| s.count).collect();
        count(&dims, self.span, name)
    }

    /// Loops over all steps; `f` gets the number of the step along each step axis.
    pub fn step_loops(&self, e: &mut Emit<'a>, f: &mut dyn FnMut(&mut Emit<'a>, &[Num])) {
        self.loops(e, &mut Vec::new(), f);
    }

    fn loops(&self, e: &mut Emit<'a>, at: &mut Vec<Num>, f: &mut dyn FnMut(&mut Emit<'a>, &[Num])) {
        let Some(step) = self.steps.get(at.len()) else { return f(e, at) };
        let ty = if step.count < i32::MAX as i64 { Ty::I32 } else { Ty::I64 };
        let var = e.kernel.var("step", ty);
        at.push(Num { expr: Expr::Var(var), ty });
        let body = e.block(|e| self.loops(e, at, f));
        at.pop();
        let (lo, hi, one) = (int_of(ty, 0).expr, int_of(ty, step.count).expr, int_of(ty, 1).expr);
        e.push(Simt::For { var, lo, hi, step: one, unroll: Unroll::None, body });
    }

    /// Defines member `m` at the step numbers `at`, with coordinates (from 0) along its free and coupled axes.
    /// `keep` gets the value, rounded to the member's dtype, in the block where it is defined.
    pub fn define(
        &self,
        e: &mut Emit<'a>,
        m: usize,
        at: &[Num],
        free: &[Num],
        coupled: &[Num],
        keep: &mut dyn FnMut(&mut Emit<'a>, Num),
    ) {
        let d = &self.recur.members[m];
        self.define_with(e, m, at, (free, coupled), &mut |e, index, v| {
            store(e, d, index, &v);
            keep(e, v);
        });
    }

    /// The same where `take` gets the value with its index, and stores it.
    pub fn define_with(
        &self,
        e: &mut Emit<'a>,
        m: usize,
        at: &[Num],
        (free, coupled): (&[Num], &[Num]),
        take: &mut dyn FnMut(&mut Emit<'a>, &[Index], Num),
    ) {
        let d = &self.recur.members[m];
        let graph = e.graph;
        e.scope(|e| {
            e.line(d.span);
            let mut inside = None;
            for (s, step) in self.steps.iter().enumerate() {
                let p = self.recur.steps[s].position[m];
                let v = step.value(at[s].clone());
                let v = Num { expr: e.named("t", v.ty, v.expr), ty: v.ty };
                let (lo, hi) = own_range(graph, d, p);
                if lo > step.lo {
                    inside = both(inside, compare(CmpOp::Ge, v.clone(), int_of(v.ty, lo)));
                }
                if hi < step.lo + step.count {
                    inside = both(inside, compare(CmpOp::Lt, v.clone(), int_of(v.ty, hi)));
                }
                e.bind_axis(d.axes[p], v.expr, v.ty);
            }
            let plain = self.free[m].iter().zip(free).chain(self.coupled[m].iter().zip(coupled));
            for (&p, n) in plain {
                let lo = graph.tensor(d.target).lo[p];
                let v = arith(IntOp::Add, n.clone(), int_of(n.ty, lo));
                let v = Num { expr: e.named("ax", v.ty, v.expr), ty: v.ty };
                e.bind_axis(d.axes[p], v.expr, v.ty);
            }
            match inside {
                Some(cond) => e.if_then(cond, |e| value(e, d, take)),
                None => value(e, d, take),
            }
        });
    }
}

fn both(a: Option<Expr>, b: Expr) -> Option<Expr> {
    Some(match a {
        Some(a) => and(a, b),
        None => b,
    })
}

fn value<'a>(e: &mut Emit<'a>, d: &Define, take: &mut dyn FnMut(&mut Emit<'a>, &[Index], Num)) {
    let dtype = e.graph.tensor(d.target).dtype;
    let v = e.stored_value(dtype, d.value);
    let v = e.rounded(dtype, v);
    let v = Num { expr: e.named("y", v.ty, v.expr), ty: v.ty };
    let index = point_index(e, d);
    take(e, &index, v);
}

/// Stores a member's value where it is kept in memory.
pub fn store(e: &mut Emit<'_>, d: &Define, index: &[Index], v: &Num) {
    match e.home(d.target).ring {
        // What is read before the end is in registers.
        Some(ring) if e.is_staged(d.target) => {
            let here = index[ring.dim].num.clone();
            let last = compare(CmpOp::Eq, here.clone(), int_of(here.ty, ring.last));
            e.if_then(last, |e| e.store(d.target, index, v.expr.clone()));
        }
        _ => e.store(d.target, index, v.expr.clone()),
    }
}

/// The element of a definition at its bound axes.
pub fn point_index(e: &Emit<'_>, d: &Define) -> Vec<Index> {
    let t = e.graph.tensor(d.target);
    let at = |(p, a): (usize, &crate::ir::graph::AxisId)| Index {
        num: e.axis_value(*a).cloned().unwrap_or_else(|| int_of(Ty::I32, t.lo[p])),
        range: Interval::new(t.lo[p], t.lo[p] + t.dims[p] - 1),
    };
    d.axes.iter().enumerate().map(at).collect()
}
