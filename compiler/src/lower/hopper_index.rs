//! Indices of operands of the main loop of sm_90a: sums of axes and of quotients of axes, as digits of the product's sides move
//! them. A group of filters is such a quotient: `x[n, p, q, f/F*C + c]`.

use super::contract_pattern::Digit;
use super::contract_shape::OutAxis;
use super::hopper_gather::affine;
use crate::ir::graph::{AxisId, Expr, ExprId, Graph};
use crate::vocab::func::Func;
use std::collections::BTreeMap;

/// An index that may have quotients of axes: what each axis adds, what each quotient (axis, divisor) does, and the rest.
#[derive(Default)]
pub struct Index {
    pub axes: BTreeMap<AxisId, i64>,
    pub quotients: BTreeMap<(AxisId, i64), i64>,
    pub constant: i64,
}

impl Index {
    pub fn of(g: &Graph, id: ExprId) -> Option<Index> {
        let mut at = Index::default();
        at.add(g, id, 1)?;
        at.axes.retain(|_, by| *by != 0);
        at.quotients.retain(|_, by| *by != 0);
        Some(at)
    }

    fn add(&mut self, g: &Graph, id: ExprId, by: i64) -> Option<()> {
        if let Some(a) = affine(g, id) {
            self.constant += by * a.constant;
            a.axes.into_iter().for_each(|(axis, v)| *self.axes.entry(axis).or_insert(0) += by * v);
            return Some(());
        }
        let literal = |id: ExprId| affine(g, id).filter(|a| a.axes.is_empty()).map(|a| a.constant);
        match g.expr(id) {
            Expr::Cast(a) if g.ty(*a).is_int() && g.ty(id).is_int() => self.add(g, *a, by),
            Expr::Call(Func::Neg, a) => self.add(g, a[0], -by),
            Expr::Call(f @ (Func::Add | Func::Sub), a) => {
                self.add(g, a[0], by)?;
                self.add(g, a[1], if *f == Func::Sub { -by } else { by })
            }
            Expr::Call(Func::Mul, a) => match (literal(a[0]), literal(a[1])) {
                (Some(v), _) => self.add(g, a[1], by * v),
                (_, Some(v)) => self.add(g, a[0], by * v),
                _ => None,
            },
            Expr::Call(Func::Div, a) => {
                let (Expr::Axis(axis), Some(n)) = (g.expr(a[0]), literal(a[1]).filter(|&n| n > 0)) else {
                    return None;
                };
                *self.quotients.entry((*axis, n)).or_insert(0) += by;
                Some(())
            }
            _ => None,
        }
    }

    /// What a step of a digit of an axis adds.
    pub fn by(&self, axis: AxisId, d: &Digit) -> Option<i64> {
        let plain = self.axes.get(&axis).unwrap_or(&0) * d.stride;
        self.quotients.iter().filter(|(q, _)| q.0 == axis).try_fold(plain, |sum, (&(_, n), by)| {
            match d.stride % n {
                0 => Some(sum + by * (d.stride / n)),
                // A digit of the remainder.
                _ if n % (d.stride * d.extent) == 0 => Some(sum),
                _ => None,
            }
        })
    }

    /// Takes an axis out whose digits are known, all of those that count, and gives what its lowest value adds.
    pub fn settle<'d>(
        &mut self,
        axis: AxisId,
        out: &OutAxis,
        digits: impl Iterator<Item = &'d Digit>,
    ) -> Option<i64> {
        let digits: Vec<&Digit> = digits.collect();
        // How many values digits in steps of `n` or more have.
        let known = |n: i64| digits.iter().filter(|d| d.stride % n == 0).map(|d| d.extent).product::<i64>();
        let plain = self.axes.remove(&axis);
        if plain.is_some() && known(1) != out.extent {
            return None;
        }
        let all: Vec<(AxisId, i64)> = self.quotients.keys().copied().filter(|q| q.0 == axis).collect();
        for q in all {
            if out.lo != 0 || known(q.1) * q.1 < out.extent {
                return None;
            }
            self.quotients.remove(&q);
        }
        Some(plain.unwrap_or(0) * out.lo)
    }
}
