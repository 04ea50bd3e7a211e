//! How a scan puts two stretches of its axis together: values by a monoid, or steps `h → a·h + b` as pairs (a, b).

use super::read::to;
use super::row_reduce::shuffle;
use super::scalar::{Emit, Num, cmp, int_op, lit32};
use crate::ir::graph::Combine;
use crate::ir::simt::{CmpOp, Expr, IntOp, ShuffleKind, Special, Stmt, Ty, VarId};
use crate::vocab::dtype::{DType, Value};
use crate::vocab::func::Func;

/// The operation. It is associative; the order of operands is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    Fold(Combine),
    /// First this stretch, then that one: `(a₁, b₁)` and `(a₂, b₂)` give `(a₁·a₂, a₂·b₁ + b₂)`.
    Affine,
}

/// A law on registers of one type.
#[derive(Clone, Debug)]
pub struct Algebra {
    pub law: Law,
    pub ty: Ty,
    /// What partial results are kept as.
    pub dtype: DType,
    /// The empty stretch, one value a component.
    pub unit: Vec<Expr>,
}

impl Algebra {
    /// Values that make up a partial result; the last is the result itself.
    pub fn components(&self) -> usize {
        self.unit.len()
    }

    /// First `a`, then `b`.
    pub fn both(&self, e: &mut Emit<'_>, a: &[Expr], b: &[Expr]) -> Vec<Expr> {
        match self.law {
            Law::Fold(_) => vec![self.result(e, a, b)],
            Law::Affine => {
                let factor = Expr::Call(Func::Mul, vec![a[0].clone(), b[0].clone()]);
                vec![factor, self.result(e, a, b)]
            }
        }
    }

    /// The result alone of `both`.
    pub fn result(&self, e: &mut Emit<'_>, a: &[Expr], b: &[Expr]) -> Expr {
        let num = |x: &Expr| Num { expr: x.clone(), ty: self.ty };
        match self.law {
            Law::Fold(c) => to(e.combined(c, num(&a[0]), num(&b[0])), self.ty),
            Law::Affine if matches!(self.ty, Ty::F32 | Ty::F64) => {
                Expr::Call(Func::Fma, vec![b[0].clone(), a[1].clone(), b[1].clone()])
            }
            Law::Affine => {
                let scaled = Expr::Call(Func::Mul, vec![b[0].clone(), a[1].clone()]);
                Expr::Call(Func::Add, vec![scaled, b[1].clone()])
            }
        }
    }

    /// In variables that may be set.
    pub fn vars(&self, e: &mut Emit<'_>, name: &str, values: Vec<Expr>) -> Vec<VarId> {
        values.into_iter().map(|v| e.let_var(name, self.ty, v)).collect()
    }

    /// `values` where a condition holds, else the empty stretch.
    pub fn or_unit(&self, cond: &Expr, values: Vec<Expr>) -> Vec<Expr> {
        let pick =
            |(v, u): (Expr, &Expr)| Expr::Select(Box::new(cond.clone()), Box::new(v), Box::new(u.clone()));
        values.into_iter().zip(&self.unit).map(pick).collect()
    }

    pub fn shuffled(&self, e: &mut Emit<'_>, values: &[VarId], kind: ShuffleKind, lane: &Expr) -> Vec<Expr> {
        values.iter().map(|&v| shuffle(e, self.ty, Expr::Var(v), kind, lane)).collect()
    }

    /// Inclusive scan of a value over `side` neighbouring lanes.
    pub fn warp_scan(&self, e: &mut Emit<'_>, sum: &[VarId], side: i64) {
        let lane = int_op(IntOp::And, Expr::Special(Special::Lane), lit32(side as i32 - 1));
        let lane = if side == 1 { lit32(0) } else { e.named("lane", Ty::I32, lane) };
        let mut step = 1;
        while step < side {
            let left = self.shuffled(e, sum, ShuffleKind::Up, &lit32(step as i32));
            let far = cmp(CmpOp::Ge, lane.clone(), lit32(step as i32));
            e.if_then(far, |e| {
                let v = self.both(e, &left, &values(sum));
                // All are made before one is set.
                let v = if v.len() > 1 { values(&self.vars(e, "next", v)) } else { v };
                sum.iter().zip(v).for_each(|(&s, v)| e.push(Stmt::Set(s, v)));
            });
            step *= 2;
        }
    }

    /// In variables, so that they may be used many times.
    pub fn named(&self, e: &mut Emit<'_>, name: &str, values: Vec<Expr>) -> Vec<Expr> {
        values.into_iter().map(|v| e.named(name, self.ty, v)).collect()
    }
}

pub fn values(vars: &[VarId]) -> Vec<Expr> {
    vars.iter().map(|&v| Expr::Var(v)).collect()
}

/// The step `h → h` as a pair.
pub fn identity(ty: Ty) -> Vec<Expr> {
    let lit = |n: i32| {
        Expr::Lit(match ty {
            Ty::F32 => Value::F32(n as f32),
            Ty::F64 => Value::F64(n as f64),
            Ty::I64 => Value::I64(n as i64),
            _ => Value::I32(n),
        })
    };
    vec![lit(1), lit(0)]
}
