//! Recurrences that are scans: one state of a compute type, along one axis, whose step is `prev ⊕ e` with a monoid of the
//! language, or `a·prev + e`. The language lets these reassociate.
//!
//! The state's value at the step before may stand under conditions that do not depend on it (masks), and begins with an
//! `else`, or with a branch that is taken at the first step alone.

use super::scalar::Emit;
use super::scan_law::Law;
use crate::ir::graph::{Access, AxisId, Combine, Define, Expr as Node, ExprId, Graph, Recur};
use crate::ir::simt::{Expr, Stmt, Ty};
use crate::vocab::dtype::{DType, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use std::collections::HashMap;

/// A recurrence that is a scan.
#[derive(Clone, Debug)]
pub struct Linear<'a> {
    pub define: &'a Define,
    /// Position of the step axis.
    pub along: usize,
    pub descending: bool,
    pub law: Law,
    /// What stands for the state before the first step, if a read says so.
    pub init: Option<ExprId>,
    /// Whether an expression reads the state.
    reads: HashMap<ExprId, bool>,
}

/// The recurrence as a scan, if it is one.
pub fn recognise<'a>(g: &'a Graph, r: &'a Recur) -> Option<Linear<'a>> {
    let ([d], [step]) = (&r.members[..], &r.steps[..]) else { return None };
    let dtype = g.tensor(d.target).dtype;
    let ty = g.ty(d.value);
    let numbers = matches!(dtype, DType::F32 | DType::F64 | DType::I32 | DType::I64);
    if !numbers || ty.stored() != dtype {
        return None;
    }
    let mut found = Linear {
        define: d,
        along: step.position[0],
        descending: step.descending,
        law: Law::Affine,
        init: None,
        reads: HashMap::new(),
    };
    found.mark(g, d.value);
    found.init = found.start(g)?;
    let folds = [Monoid::Sum, Monoid::Prod, Monoid::Max, Monoid::Min].map(|m| Law::Fold(Combine::Builtin(m)));
    found.law = folds.into_iter().chain([Law::Affine]).find(|&law| found.takes(g, d.value, law))?;
    Some(found)
}

impl Linear<'_> {
    /// Notes which expressions read the state.
    fn mark(&mut self, g: &Graph, e: ExprId) -> bool {
        if let Some(&known) = self.reads.get(&e) {
            return known;
        }
        let own = matches!(g.expr(e), Node::Read(r) if r.tensor == self.define.target);
        let below = g.children(e).into_iter().fold(false, |any, c| self.mark(g, c) | any);
        self.reads.insert(e, own || below);
        own || below
    }

    fn has_state(&self, e: ExprId) -> bool {
        self.reads.get(&e).copied().unwrap_or(false)
    }

    /// Whether a step taken as `a·prev + e` rounds as it is written, a fused product apart: no product of a sum.
    pub fn is_plain(&self, g: &Graph) -> bool {
        self.law != Law::Affine || self.no_product_of_sum(g, self.define.value, false)
    }

    fn no_product_of_sum(&self, g: &Graph, e: ExprId, in_product: bool) -> bool {
        if !self.has_state(e) {
            return true;
        }
        match g.expr(e) {
            Node::Select(_, a, b) => {
                self.no_product_of_sum(g, *a, in_product) && self.no_product_of_sum(g, *b, in_product)
            }
            Node::Call(f, args) => {
                let at = (0..args.len()).find(|&i| self.has_state(args[i])).unwrap_or(0);
                let product = *f == Func::Mul || *f == Func::Fma && at < 2;
                let fits = *f == Func::Neg || !in_product;
                fits && self.no_product_of_sum(g, args[at], in_product || product)
            }
            _ => true,
        }
    }

    /// The value that all reads of the state before the first step have; `None` if some read is not of the step before.
    fn start(&self, g: &Graph) -> Option<Option<ExprId>> {
        let mut init: Option<ExprId> = None;
        for (&e, _) in self.reads.iter().filter(|(_, has)| **has) {
            let Node::Read(r) = g.expr(e) else { continue };
            if r.tensor != self.define.target {
                return None;
            }
            let before = r.index.iter().enumerate().all(|(p, &i)| {
                let axis = self.define.axes[p];
                let back = if self.descending { 1 } else { -1 };
                let by = super::thread::offset(g, i, &[axis]);
                by == Some(if p == self.along { back } else { 0 })
            });
            match (before, r.access) {
                (true, Access::Proven) => {}
                (true, Access::Else(d)) if !self.has_state(d) && init.is_none_or(|i| i == d) => {
                    init = Some(d)
                }
                _ => return None,
            }
        }
        Some(init)
    }

    /// Is the value of this type a step of the law? The expression reads the state.
    fn takes(&self, g: &Graph, e: ExprId, law: Law) -> bool {
        match g.expr(e) {
            Node::Read(r) => r.tensor == self.define.target,
            Node::Select(c, a, b) if !self.has_state(*c) => match (self.has_state(*a), self.has_state(*b)) {
                (true, true) => self.takes(g, *a, law) && self.takes(g, *b, law),
                (true, false) => self.first_only(g, *c, false) && self.takes(g, *a, law),
                (false, true) => self.first_only(g, *c, true) && self.takes(g, *b, law),
                (false, false) => false,
            },
            Node::Call(f, args) => {
                let with: Vec<usize> = (0..args.len()).filter(|&i| self.has_state(args[i])).collect();
                let [at] = with[..] else { return false };
                call_is_step(*f, at, law) && self.takes(g, args[at], law)
            }
            _ => false,
        }
    }

    /// Does a condition have this value at the first step, and the other at all others?
    fn first_only(&self, g: &Graph, c: ExprId, value: bool) -> bool {
        let axis = self.define.axes[self.along];
        let Some((lo, hi)) = g.axis_range(axis) else { return false };
        let Node::Call(f, args) = g.expr(c) else { return false };
        let at = |t: i64| -> Option<bool> {
            let x = [side(g, args[0], axis, t)?, side(g, *args.get(1)?, axis, t)?];
            Some(match f {
                Func::Eq => x[0] == x[1],
                Func::Ne => x[0] != x[1],
                Func::Lt => x[0] < x[1],
                Func::Le => x[0] <= x[1],
                _ => return None,
            })
        };
        // Comparisons of the axis with a number: what holds at the second and last step holds between.
        let (first, second, last) = if self.descending { (hi - 1, hi - 2, lo) } else { (lo, lo + 1, hi - 1) };
        let rest = hi - lo <= 1 || at(second) == Some(!value) && at(last) == Some(!value);
        at(first) == Some(value) && rest
    }

    /// The step at the bound axes, one value a component of the law.
    pub fn emit<'e>(&self, e: &mut Emit<'e>, id: ExprId, ty: Ty) -> Vec<Expr> {
        let parts = self.parts(e, id, ty);
        match self.law {
            Law::Affine => {
                let unit = super::scan_law::identity(ty);
                parts.into_iter().zip(unit).map(|(p, u)| p.unwrap_or(u)).collect()
            }
            Law::Fold(c) => {
                let of = e.graph.ty(id);
                let unit = parts[0].is_none().then(|| e.unit(c, of, ty));
                parts.into_iter().map(|p| p.or(unit.clone()).unwrap_or(Expr::Lit(Value::I32(0)))).collect()
            }
        }
    }

    /// The same; `None` is a component of the empty stretch.
    fn parts<'e>(&self, e: &mut Emit<'e>, id: ExprId, ty: Ty) -> Vec<Option<Expr>> {
        let graph = e.graph;
        let pair = self.law == Law::Affine;
        if !self.has_state(id) {
            // The first step: what was before makes no difference.
            let v = Some(e.num_as(id, ty));
            let zero = super::scan_law::identity(ty).swap_remove(1);
            return if pair { vec![Some(zero), v] } else { vec![v] };
        }
        match graph.expr(id) {
            Node::Select(c, a, b) => {
                let cond = e.value(*c);
                let out: Vec<_> = (0..1 + pair as usize).map(|_| e.kernel.var("step", ty)).collect();
                out.iter().for_each(|&v| e.push(Stmt::Let(v, super::arith::default_of(ty))));
                let set = |e: &mut Emit<'e>, id: ExprId| {
                    let values = self.whole(e, id, ty);
                    out.iter().zip(values).for_each(|(&v, x)| e.push(Stmt::Set(v, x)));
                };
                e.if_else(cond, |e| set(e, *a), |e| set(e, *b));
                out.into_iter().map(|v| Some(Expr::Var(v))).collect()
            }
            Node::Call(f, args) => self.call_parts(e, *f, args, ty),
            _ => vec![None; 1 + pair as usize],
        }
    }

    fn whole<'e>(&self, e: &mut Emit<'e>, id: ExprId, ty: Ty) -> Vec<Expr> {
        match self.has_state(id) {
            true => self.emit(e, id, ty),
            false => self.parts(e, id, ty).into_iter().flatten().collect(),
        }
    }

    fn call_parts<'e>(&self, e: &mut Emit<'e>, f: Func, args: &[ExprId], ty: Ty) -> Vec<Option<Expr>> {
        let at = (0..args.len()).find(|&i| self.has_state(args[i])).unwrap_or(0);
        let inner = self.parts(e, args[at], ty);
        let others: Vec<Expr> = (0..args.len()).filter(|&i| i != at).map(|i| e.num_as(args[i], ty)).collect();
        let call = |f, args: Vec<Expr>| Some(Expr::Call(f, args));
        if self.law != Law::Affine {
            let term = inner.into_iter().next().flatten();
            let other = others.into_iter().next().expect("a function of two");
            return vec![match (f, term) {
                (Func::Sub, None) => call(Func::Neg, vec![other]),
                (_, None) => Some(other),
                (_, Some(t)) => call(f, vec![t, other]),
            }];
        }
        let (a, b) = (inner[0].clone(), inner[1].clone());
        let times = |x: Option<Expr>, y: &Expr| x.and_then(|x| call(Func::Mul, vec![x, y.clone()]));
        let (a, b) = match f {
            Func::Neg => {
                let one = super::scan_law::identity(ty).swap_remove(0);
                (call(Func::Neg, vec![a.unwrap_or(one)]), b.and_then(|b| call(Func::Neg, vec![b])))
            }
            Func::Mul => {
                let y = e.named("a", ty, others[0].clone());
                (times(a, &y).or(Some(y.clone())), times(b, &y))
            }
            Func::Fma if at < 2 => {
                let (y, c) = (e.named("a", ty, others[0].clone()), others[1].clone());
                let b = b.map(|b| Expr::Call(Func::Fma, vec![b, y.clone(), c.clone()])).or(Some(c));
                (times(a, &y).or(Some(y.clone())), b)
            }
            Func::Fma => {
                let product = Expr::Call(Func::Mul, others);
                (a, b.and_then(|b| call(Func::Add, vec![product.clone(), b])).or(Some(product)))
            }
            Func::Sub if at == 1 => {
                let one = super::scan_law::identity(ty).swap_remove(0);
                let y = others[0].clone();
                (
                    call(Func::Neg, vec![a.unwrap_or(one)]),
                    b.and_then(|b| call(Func::Sub, vec![y.clone(), b])).or(Some(y)),
                )
            }
            Func::Sub => {
                let y = others[0].clone();
                (a, b.and_then(|b| call(Func::Sub, vec![b, y.clone()])).or(call(Func::Neg, vec![y])))
            }
            _ => {
                let y = others[0].clone();
                (a, b.and_then(|b| call(Func::Add, vec![b, y.clone()])).or(Some(y)))
            }
        };
        vec![a, b]
    }
}

/// Does a call whose operand `at` is a step of the law stay one?
fn call_is_step(f: Func, at: usize, law: Law) -> bool {
    match law {
        Law::Fold(Combine::Builtin(m)) => match m {
            Monoid::Sum => f == Func::Add || f == Func::Sub && at == 0,
            Monoid::Prod => f == Func::Mul,
            Monoid::Max => f == Func::Max,
            Monoid::Min => f == Func::Min,
            _ => false,
        },
        Law::Fold(Combine::Fn(_)) => false,
        Law::Affine => matches!(f, Func::Add | Func::Sub | Func::Mul | Func::Neg | Func::Fma),
    }
}

/// A side of a comparison at a step: a number, or the axis and a number.
fn side(g: &Graph, e: ExprId, axis: AxisId, t: i64) -> Option<i64> {
    match g.expr(e) {
        Node::Lit(Value::I64(v)) => Some(*v),
        Node::Lit(Value::I32(v)) => Some(*v as i64),
        _ => Some(super::thread::offset(g, e, &[axis])? + t),
    }
}
