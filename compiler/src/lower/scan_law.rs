//! How a scan puts two stretches of its axis together: values by a monoid, or steps `h → a·h + b` as pairs (a, b).

use super::read::to;
use super::scalar::{Emit, Num};
use crate::ir::graph::Combine;
use crate::ir::simt::{Expr, Ty};
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

    /// In variables, so that they may be used many times.
    pub fn named(&self, e: &mut Emit<'_>, name: &str, values: Vec<Expr>) -> Vec<Expr> {
        values.into_iter().map(|v| e.named(name, self.ty, v)).collect()
    }
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
