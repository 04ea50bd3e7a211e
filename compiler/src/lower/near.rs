//! Emit, the approximate functions: where they are allowed, and which one is used.
//!
//! Allowed is what the reference allows (its analysis decides here too, on the plan's graph). Rewriting may have
//! split the uses of one value over several expressions: those that came from one place in the source decide
//! together, so that a value is never better in one use than in another.

use super::index::Facts;
use super::scalar::{Emit, Num};
use crate::ir::graph::{Combine, Expr as Node, ExprId, Fold, Graph};
use crate::ir::simt::{Expr, Ty};
use crate::pass::shape;
use crate::reference::facts::relaxed;
use crate::vocab::approx::Approx;
use crate::vocab::dtype::{self, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use std::collections::HashSet;

/// Of each expression: whether it may be approximate.
pub fn near(graph: &Graph) -> Vec<bool> {
    let mut near = relaxed(graph);
    let place = |i: usize| graph.exprs[i].span;
    let asked = |i: usize| matches!(&graph.exprs[i].expr, Node::Call(f, _) if approximate(*f).is_some());
    let exact: HashSet<_> = (0..near.len()).filter(|&i| asked(i) && !near[i]).map(place).collect();
    for (i, near) in near.iter_mut().enumerate() {
        *near &= asked(i) && graph.exprs[i].ty == dtype::Ty::F32 && !exact.contains(&place(i));
    }
    near
}

fn approximate(f: Func) -> Option<Approx> {
    match f {
        Func::Exp => Some(Approx::Exp),
        Func::Exp2 => Some(Approx::Exp2),
        Func::Sqrt => Some(Approx::Sqrt),
        Func::Tanh => Some(Approx::Tanh),
        Func::Erf => Some(Approx::Erf),
        Func::Erfc => Some(Approx::Erfc),
        Func::Div => Some(Approx::Div),
        _ => None,
    }
}

impl Emit<'_> {
    /// An approximate call, where one is allowed.
    pub(super) fn near_call(&self, id: ExprId, f: Func, args: &[ExprId], values: &[Expr]) -> Option<Num> {
        if f == Func::Div && self.graph.ty(id) == dtype::Ty::F32 {
            let r = reciprocal(self.graph, args[1], self.facts.near(id));
            if let Some(r) = r {
                let r = Expr::Lit(Value::F32(r));
                return Some(Num { expr: Expr::Call(Func::Mul, vec![values[0].clone(), r]), ty: Ty::F32 });
            }
        }
        if !self.facts.near(id) {
            return None;
        }
        let found = match approximate(f)? {
            Approx::Div if self.large(args[1]) => Approx::DivByLarge,
            found => found,
        };
        Some(Num { expr: Expr::Approx(found, values.to_vec()), ty: Ty::F32 })
    }

    /// Whether a value is from 1 to 2¹²⁰, or NaN.
    fn large(&self, id: ExprId) -> bool {
        let (lo, hi) = range(self.graph, id, 8);
        lo >= 1.0 && hi <= 2f64.powi(100)
    }
}

/// What multiplies instead of a division by a literal: exactly for a power of two; else, where it may be
/// approximate, rounded toward zero, so that no product overflows that the quotient does not.
fn reciprocal(graph: &Graph, by: ExprId, near: bool) -> Option<f32> {
    let Node::Lit(Value::F32(c)) = graph.expr(by) else { return None };
    let exact = 1.0 / *c as f64;
    let r = exact as f32;
    if !(r.is_normal() && c.is_normal()) {
        return None;
    }
    let power = c.to_bits() & 0x7f_ffff == 0;
    let outward = (r as f64).abs() > exact.abs();
    match (power, near) {
        (true, _) => Some(r),
        (false, true) => Some(if outward { f32::from_bits(r.to_bits() - 1) } else { r }),
        (false, false) => None,
    }
}

/// Bounds of a float's value where it is not NaN, looking a few operators deep; a little wider than the exact ones.
fn range(graph: &Graph, id: ExprId, depth: u32) -> (f64, f64) {
    const ALL: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);
    if depth == 0 {
        return ALL;
    }
    let of = |id: ExprId| range(graph, id, depth - 1);
    match graph.expr(id) {
        Node::Lit(Value::F32(v)) if !v.is_nan() => (*v as f64, *v as f64),
        Node::Select(_, a, b) => {
            let (a, b) = (of(*a), of(*b));
            (a.0.min(b.0), a.1.max(b.1))
        }
        Node::Call(f, args) => match (f, args.iter().map(|&a| of(a)).collect::<Vec<_>>().as_slice()) {
            (Func::Neg, [a]) => (-a.1, -a.0),
            (Func::Abs, [a]) => (a.0.max(-a.1).max(0.0), a.0.abs().max(a.1.abs())),
            // exp(±0) is 1, and smaller arguments give no more.
            (Func::Exp, [a]) => (0.0, if a.1 <= 0.0 { 1.0 } else { f64::INFINITY }),
            (Func::Add, [a, b]) => (a.0 + b.0, a.1 + b.1),
            (Func::Max, [a, b]) => (a.0.max(b.0), a.1.max(b.1)),
            (Func::Min, [a, b]) => (a.0.min(b.0), a.1.min(b.1)),
            _ => ALL,
        },
        Node::Fold(f) if is_softmax_sum(graph, f) => (1.0, 2f64.powi(64)),
        _ => ALL,
    }
}

/// Is it a sum of exp(x − m) over the points of m, the greatest x? One of its terms is 1, if there are any; where there are
/// none m is −∞, and nothing is divided by it.
fn is_softmax_sum(graph: &Graph, sum: &Fold) -> bool {
    let Node::Call(Func::Exp, arg) = graph.expr(sum.body) else { return false };
    let Node::Call(Func::Sub, ab) = graph.expr(arg[0]) else { return false };
    let Node::Fold(top) = graph.expr(ab[1]) else { return false };
    let kinds = (sum.combine, top.combine);
    let of = |id: ExprId, f: &Fold| shape::key(graph, id, &f.axes);
    kinds == (Combine::Builtin(Monoid::Sum), Combine::Builtin(Monoid::Max))
        && of(ab[0], sum) == of(top.body, top)
        && sum.cond.map(|c| of(c, sum)) == top.cond.map(|c| of(c, top))
        && sum.axes.iter().map(|&a| graph.axis_range(a)).eq(top.axes.iter().map(|&a| graph.axis_range(a)))
        && sum.axes.iter().all(|&a| graph.axis_range(a).is_some())
}

impl Facts<'_> {
    /// Whether a function or a division may be approximate here.
    pub fn near(&self, id: ExprId) -> bool {
        self.nears()[id.0 as usize]
    }
}
