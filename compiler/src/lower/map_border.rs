//! Neighbourhoods at the border: what a read near the point gives where it leaves the tensor. The reads of one tensor share
//! a rule for each side of each axis, so that the elements that a thread has loaded serve all of them.

use super::Lowering;
use super::map_lanes::Lanes;
use super::scalar::{Emit, Num, and, arith, cmp, int_of};
use crate::ir::graph::{Access, AxisId, Expr as Node, ExprId, Graph, Read, Tensor, TensorId};
use crate::ir::simt::{CmpOp, Expr, IntOp, Ty};
use crate::pass::inline::below;
use crate::vocab::dtype::Value;
use crate::vocab::func::Func;
use std::collections::BTreeMap;

/// What stands beyond one side of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// The outermost element.
    Clamp,
    /// The elements of the other end.
    Wrap,
    /// A default.
    Fill,
}

/// The rules of a tensor: below and beyond each of its axes, where a read leaves it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Border {
    pub sides: Vec<[Option<Rule>; 2]>,
    /// The default, a constant.
    pub fill: Option<ExprId>,
}

impl Border {
    /// Whether anything but a default is asked for along an axis, or a default.
    pub fn any(&self, axis: usize) -> bool {
        self.sides.get(axis).is_some_and(|s| s.iter().any(Option::is_some))
    }
}

/// An index as an axis plus a literal, with the rules that it has of its own.
fn index(graph: &Graph, lanes: &Lanes<'_>, id: ExprId, lo: i64, n: i64) -> Option<(i64, [Option<Rule>; 2])> {
    let int = |e: ExprId| match graph.expr(e) {
        Node::Lit(Value::I64(v)) => Some(*v),
        Node::Lit(Value::I32(v)) => Some(*v as i64),
        _ => None,
    };
    if let Node::Call(f @ (Func::Max | Func::Min | Func::Rem), args) = graph.expr(id)
        && let [a, b] = args[..]
    {
        let (inner, bound) = match (int(a), int(b)) {
            (None, Some(c)) => (a, c),
            (Some(c), None) if *f != Func::Rem => (b, c),
            _ => return None,
        };
        let (offset, rules) = index(graph, lanes, inner, lo, n)?;
        return match f {
            Func::Max if bound == lo && rules[0].is_none() => Some((offset, [Some(Rule::Clamp), rules[1]])),
            Func::Min if bound == lo + n - 1 && rules[1].is_none() => {
                Some((offset, [rules[0], Some(Rule::Clamp)]))
            }
            Func::Rem if bound == n && lo == 0 && rules == [None; 2] => Some((offset, [Some(Rule::Wrap); 2])),
            _ => None,
        };
    }
    let run = lanes.run(id)?;
    (run.multiple == 0).then_some((run.literal, [None; 2]))
}

/// The offsets of a read from its definition's axes, and the rules where it leaves the tensor.
pub fn offsets(cx: &Lowering<'_>, id: ExprId, r: &Read, axes: &[AxisId]) -> Option<(Vec<i64>, Border)> {
    let graph = cx.graph;
    let t = graph.tensor(r.tensor);
    let fill = match r.access {
        Access::Proven => None,
        Access::Else(d) => Some(d),
        Access::Checked => return None,
    };
    if r.index.len() != axes.len() || fill.is_some_and(|d| !constant(graph, d) || graph.ty(d) != graph.ty(id))
    {
        return None;
    }
    let mut found = Vec::new();
    let mut border = Border::default();
    for (d, (&i, &axis)) in r.index.iter().zip(axes).enumerate() {
        let lanes = Lanes { graph, facts: &cx.facts, axis, v: 1 };
        let (offset, own) = index(graph, &lanes, i, t.lo[d], t.dims[d])?;
        let (lo, hi) = graph.axis_range(axis)?;
        let leaves = [lo + offset < t.lo[d], hi - 1 + offset >= t.lo[d] + t.dims[d]];
        let rule = |side: usize| match (leaves[side], own[side], fill) {
            (false, ..) => Some(None),
            (true, Some(rule), _) => Some(Some(rule)),
            (true, None, Some(_)) => Some(Some(Rule::Fill)),
            (true, None, None) => None,
        };
        border.sides.push([rule(0)?, rule(1)?]);
        // Around the end once.
        if leaves.contains(&true) && offset.abs() >= t.dims[d] {
            return None;
        }
        found.push(offset);
    }
    let fills = border.sides.iter().flatten().any(|&r| r == Some(Rule::Fill));
    border.fill = fill.filter(|_| fills);
    Some((found, border))
}

fn constant(graph: &Graph, id: ExprId) -> bool {
    let plain =
        |&x: &ExprId| matches!(graph.expr(x), Node::Lit(_) | Node::Cast(_) | Node::Call(Func::Neg, _));
    below(graph, id).iter().all(plain)
}

/// Takes a read's rules into its tensor's, if they agree.
pub fn merge(graph: &Graph, all: &mut BTreeMap<TensorId, Border>, tensor: TensorId, new: &Border) -> bool {
    let Some(old) = all.get_mut(&tensor) else {
        all.insert(tensor, new.clone());
        return true;
    };
    let pairs = || old.sides.iter().flatten().zip(new.sides.iter().flatten());
    let rules = pairs().all(|(a, b)| a.is_none() || b.is_none() || a == b);
    let value = |id: ExprId| crate::pass::shape::key(graph, id, &[]);
    let fills = match (old.fill, new.fill) {
        (Some(a), Some(b)) => value(a) == value(b),
        _ => true,
    };
    if !rules || !fills {
        return false;
    }
    for (a, b) in old.sides.iter_mut().flatten().zip(new.sides.iter().flatten()) {
        *a = a.or(*b);
    }
    old.fill = old.fill.or(new.fill);
    true
}

/// A place along an axis, which may leave the tensor for some of the values `from..=to` that it has.
pub struct Along<'a> {
    pub t: &'a Tensor,
    pub axis: usize,
    pub sides: [Option<Rule>; 2],
    pub range: (i64, i64),
}

impl Along<'_> {
    /// The bounds that the place may leave, each with its rule.
    fn left(&self) -> [Option<Rule>; 2] {
        let (lo, n) = (self.t.lo[self.axis], self.t.dims[self.axis]);
        let beyond = [self.range.0 < lo, self.range.1 >= lo + n];
        [self.sides[0].filter(|_| beyond[0]), self.sides[1].filter(|_| beyond[1])]
    }

    /// The condition that the place is inside of the sides with these rules.
    pub fn inside(&self, x: &Num, rules: &[Rule]) -> Option<Expr> {
        let (lo, n) = (self.t.lo[self.axis], self.t.dims[self.axis]);
        let [below, beyond] = self.left().map(|r| r.is_some_and(|r| rules.contains(&r)));
        let low = below.then(|| cmp(CmpOp::Ge, x.expr.clone(), int_of(x.ty, lo).expr));
        let high = beyond.then(|| cmp(CmpOp::Lt, x.expr.clone(), int_of(x.ty, lo + n).expr));
        low.into_iter().chain(high).reduce(and)
    }

    /// The place of the element that stands there, where that is not a default.
    pub fn moved(&self, e: &mut Emit<'_>, x: Num) -> Num {
        let (lo, n) = (self.t.lo[self.axis], self.t.dims[self.axis]);
        let ty = x.ty;
        let mut x = x;
        for (side, rule) in self.left().into_iter().enumerate() {
            let (end, op, by, out) = match side {
                0 => (lo, IntOp::Max, n, CmpOp::Lt),
                _ => (lo + n - 1, IntOp::Min, -n, CmpOp::Gt),
            };
            let moved = match rule {
                Some(Rule::Clamp) => arith(op, x.clone(), int_of(ty, end)).expr,
                Some(Rule::Wrap) => {
                    let there = arith(IntOp::Add, x.clone(), int_of(ty, by)).expr;
                    let out = cmp(out, x.expr.clone(), int_of(ty, end).expr);
                    Expr::Select(Box::new(out), Box::new(there), Box::new(x.expr.clone()))
                }
                Some(Rule::Fill) | None => continue,
            };
            x = Num { expr: e.named("near", ty, moved), ty };
        }
        x
    }
}

/// The default in a register of this type.
pub fn default(e: &mut Emit<'_>, border: &Border, ty: Ty) -> Expr {
    match border.fill {
        Some(d) => e.num_as(d, ty),
        None => super::arith::default_of(ty),
    }
}
