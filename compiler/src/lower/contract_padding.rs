//! Conditions that say no more than that a read is inside its tensor: `if 0 <= p + r - 1 && p + r - 1 < H then x[p + r - 1] * w[r] else 0`
//! is `(x[p + r - 1] else 0) * w[r]`, whose operand is copied as it lies, with zeros beyond its bounds. Where the other factor is infinite or
//! NaN the two differ: then a sum is NaN, which is noted, and a kernel that ends at once otherwise makes all as it was written.

use super::contract_operand::Ground;
use super::contract_pattern::{ContractShape, Factor, Guard, conjuncts, is_zero};
use super::contract_tile::{self, Choice, Wishes};
use super::hopper_gather::affine;
use super::index::Facts;
use super::{Lowering, contract_split};
use crate::ir::graph::{AxisId, Expr, ExprId, Graph, Read, TensorId, Word};
use crate::ir::plan::PlanKernel;
use crate::vocab::func::Func;
use girih_dsl::ast::Span;
use std::collections::BTreeMap;

/// A product whose sums are noted where they are NaN.
pub struct Noted {
    /// The product without looking at its sums one by one.
    pub product: ContractShape,
    /// The product as it was written.
    pub plain: Choice,
}

/// The product of a kernel whose conditions are the bounds of what it reads.
pub fn noted(cx: &Lowering<'_>, k: &PlanKernel, shape: &ContractShape, span: Span) -> Option<Noted> {
    let [c] = &shape.folds[..] else { return None };
    let bounds = |f: &Factor| {
        let [id] = f.exprs[..] else { return false };
        let Some((read, _)) = selected(cx.graph, id) else { return false };
        f.guards.is_empty() || are_bounds(cx.graph, &cx.facts, read, &f.guards)
    };
    if !c.masked || !bounds(&c.a) || !bounds(&c.b) || !contract_split::fresh(cx, shape) {
        return None;
    }
    let mut schedule = super::Schedule::default();
    schedule.set(&k.name, "split", &c.k.last()?.name, Word::Int(1));
    let wishes = Wishes { schedule: &schedule, kernel: &k.name, span };
    let home = |t: TensorId| cx.home(t).clone();
    let ground = Ground { graph: cx.graph, facts: &cx.facts, shape, home: &home };
    let plain = contract_tile::choose(&ground, cx.target, &wishes).ok().filter(|p| p.tile.split == 1)?;
    let mut product = shape.clone();
    product.folds[0].masked = false;
    Some(Noted { product, plain })
}

/// A linear form: coefficients that are not 0, and a constant.
type Form = (BTreeMap<AxisId, i64>, i64);

/// A read with the condition under which it is looked at, 0 being the value otherwise.
pub fn selected(g: &Graph, id: ExprId) -> Option<(&Read, Vec<Guard>)> {
    match g.expr(id) {
        Expr::Read(r) => Some((r, Vec::new())),
        Expr::Select(c, taken, other) if is_zero(g, *other) => {
            let Expr::Read(r) = g.expr(*taken) else { return None };
            let mut guards = Vec::new();
            conjuncts(g, *c, &mut guards);
            Some((r, guards))
        }
        _ => None,
    }
}

/// Whether the guards hold just where a read is inside its tensor.
pub fn are_bounds(g: &Graph, facts: &Facts, r: &Read, guards: &[Guard]) -> bool {
    let t = g.tensor(r.tensor);
    let mut wanted: Vec<Form> = Vec::new();
    for (d, &index) in r.index.iter().enumerate() {
        let (lo, hi) = (t.lo[d], t.lo[d] + t.dims[d] - 1);
        let range = facts.interval(index);
        let at = form(g, index);
        if range.lo < lo {
            let Some(at) = &at else { return false };
            wanted.push(plus(at, 1, -lo));
        }
        if range.hi > hi {
            let Some(at) = &at else { return false };
            wanted.push(plus(at, -1, hi));
        }
    }
    let mut met = vec![false; wanted.len()];
    for guard in guards {
        let Guard::Is(cond, true) = *guard else { return false };
        let Expr::Call(f @ (Func::Le | Func::Lt), args) = g.expr(cond) else { return false };
        let strict = (*f == Func::Lt) as i64;
        let [a, b] = [args[0], args[1]].map(|i| facts.interval(i));
        if b.lo.checked_sub(a.hi).is_some_and(|least| least >= strict) {
            continue;
        }
        let (Some(a), Some(b)) = (form(g, args[0]), form(g, args[1])) else { return false };
        let (mut axes, constant) = plus(&b, 1, -strict - a.1);
        a.0.iter().for_each(|(axis, by)| *axes.entry(*axis).or_insert(0) -= by);
        axes.retain(|_, by| *by != 0);
        let Some(at) = wanted.iter().position(|w| *w == (axes.clone(), constant)) else { return false };
        met[at] = true;
    }
    met.into_iter().all(|m| m)
}

fn form(g: &Graph, id: ExprId) -> Option<Form> {
    if !g.ty(id).is_int() {
        return None;
    }
    let a = affine(g, id)?;
    Some((a.axes.into_iter().filter(|(_, by)| *by != 0).collect(), a.constant))
}

/// A form times `by`, and a constant.
fn plus(f: &Form, by: i64, constant: i64) -> Form {
    (f.0.iter().map(|(axis, v)| (*axis, v * by)).collect(), f.1 * by + constant)
}
