//! Intervals of integer expressions, from axis ranges, dtypes and declared ranges.

use crate::ir::graph::*;
use crate::vocab::dtype::{Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use rustc_hash::FxHashMap;

/// A closed interval, in i128 so that sums and products of i64 ends do not wrap.
pub type Interval = (i128, i128);

/// Where an integer expression's values lie (closed); `None` if nothing better than the type is known.
pub fn interval(g: &Graph, e: ExprId) -> Option<Interval> {
    Intervals { g, known: FxHashMap::default() }.of(e)
}

/// Is every index of a read inside its dim whatever path leads to it?
pub fn read_is_safe(g: &Graph, r: &Read) -> bool {
    let t = g.tensor(r.tensor);
    r.index.iter().enumerate().all(|(d, &i)| index_is_safe(g, i, t.lo[d], t.dims[d]))
}

/// Is an index inside `lo..lo + extent`, whatever path leads to it?
pub fn index_is_safe(g: &Graph, index: ExprId, lo: i64, extent: i64) -> bool {
    interval(g, index).is_some_and(|(a, b)| a >= lo as i128 && b < lo as i128 + extent as i128)
}

/// One question's answers so far: expressions share parts, each is looked at once.
struct Intervals<'a> {
    g: &'a Graph,
    known: FxHashMap<ExprId, Option<Interval>>,
}

impl Intervals<'_> {
    fn of(&mut self, e: ExprId) -> Option<Interval> {
        if let Some(&known) = self.known.get(&e) {
            return known;
        }
        let found = self.compute(e).filter(|&i| fits(self.g.ty(e), i));
        self.known.insert(e, found);
        found
    }

    fn compute(&mut self, e: ExprId) -> Option<Interval> {
        let g = self.g;
        match g.expr(e) {
            Expr::Lit(Value::I64(v)) => Some((*v as i128, *v as i128)),
            Expr::Lit(Value::I32(v)) => Some((*v as i128, *v as i128)),
            Expr::Axis(a) => self.axis(*a),
            Expr::Scalar(s) => g.scalars[s.0 as usize].range.map(half_open),
            Expr::Read(r) => self.read(r),
            Expr::Call(f, args) => self.call(*f, args),
            Expr::Cast(a) if g.ty(*a).is_int() => self.of(*a),
            Expr::Cast(a) if g.ty(*a) == Ty::Bool => Some((0, 1)),
            Expr::Select(_, a, b) => join(self.of(*a)?, self.of(*b)?),
            Expr::Fold(f) => self.fold(f),
            _ => None,
        }
    }

    fn axis(&mut self, a: AxisId) -> Option<Interval> {
        let lo = self.of(self.g.axis(a).lo)?.0;
        let hi = self.of(self.g.axis(a).hi)?.1 - 1;
        (lo <= hi).then_some((lo, hi))
    }

    fn read(&mut self, r: &Read) -> Option<Interval> {
        let t = self.g.tensor(r.tensor);
        let own = match t.range {
            // A checked read gives 0 outside the tensor.
            Some(range) => half_open(range),
            None if t.dtype.is_int() => {
                let (lo, hi) = t.dtype.row().int_range;
                (lo as i128, hi as i128)
            }
            None => return None,
        };
        match r.access {
            Access::Proven => Some(own),
            Access::Checked => join(own, (0, 0)),
            Access::Else(d) => join(own, self.of(d)?),
        }
    }

    fn fold(&mut self, f: &Fold) -> Option<Interval> {
        match f.combine {
            Combine::Builtin(Monoid::ArgMax | Monoid::ArgMin) => join(self.axis(f.axes[0])?, (-1, -1)),
            _ => None,
        }
    }

    fn call(&mut self, f: Func, args: &[ExprId]) -> Option<Interval> {
        if !self.g.ty(args[0]).is_int() {
            return None;
        }
        let a = self.of(args[0]);
        let b = args.get(1).map(|&b| self.of(b));
        match (f, a, b.flatten()) {
            (Func::Add, Some(a), Some(b)) => Some((a.0 + b.0, a.1 + b.1)),
            (Func::Sub, Some(a), Some(b)) => Some((a.0 - b.1, a.1 - b.0)),
            (Func::Mul, Some(a), Some(b)) => hull(&[a.0 * b.0, a.0 * b.1, a.1 * b.0, a.1 * b.1]),
            (Func::Neg, Some(a), _) => Some((-a.1, -a.0)),
            (Func::Abs, Some(a), _) => Some((
                if a.0 <= 0 && a.1 >= 0 { 0 } else { a.0.abs().min(a.1.abs()) },
                a.0.abs().max(a.1.abs()),
            )),
            (Func::Div, Some(a), Some(b)) if b.0 > 0 => {
                let q = |x: i128, y: i128| x.div_euclid(y);
                hull(&[q(a.0, b.0), q(a.0, b.1), q(a.1, b.0), q(a.1, b.1)])
            }
            (Func::Rem, Some(a), Some(b)) if b.0 > 0 && a.0 >= 0 && a.1 < b.0 => Some(a),
            (Func::Rem, _, Some(b)) if b.0 > 0 => Some((0, b.1 - 1)),
            (Func::Min, Some(a), Some(b)) => Some((a.0.min(b.0), a.1.min(b.1))),
            (Func::Max, Some(a), Some(b)) => Some((a.0.max(b.0), a.1.max(b.1))),
            (Func::And, Some(a), _) if a.0 >= 0 => Some((0, a.1)),
            (Func::And, _, Some(b)) if b.0 >= 0 => Some((0, b.1)),
            (Func::Or | Func::Xor, Some(a), Some(b)) if a.0 >= 0 && b.0 >= 0 => {
                Some((0, below_power(a.1.max(b.1))))
            }
            (Func::Shr, Some(a), Some(b)) if a.0 >= 0 && b.0 >= 0 && b.1 < 32 => {
                Some((a.0 >> b.1, a.1 >> b.0))
            }
            (Func::Shl, Some(a), Some(b)) if a.0 >= 0 && b.0 >= 0 && b.1 < 32 => {
                Some((a.0 << b.0, a.1 << b.1))
            }
            _ => None,
        }
    }
}

fn half_open((lo, hi): (i64, i64)) -> Interval {
    (lo as i128, hi as i128 - 1)
}

/// The greatest number with no more bits.
fn below_power(v: i128) -> i128 {
    (1i128 << (128 - v.leading_zeros())) - 1
}

fn hull(v: &[i128]) -> Option<Interval> {
    Some((*v.iter().min()?, *v.iter().max()?))
}

fn join(a: Interval, b: Interval) -> Option<Interval> {
    Some((a.0.min(b.0), a.1.max(b.1)))
}

fn fits(ty: Ty, (lo, hi): Interval) -> bool {
    match ty {
        Ty::I32 => lo >= i32::MIN as i128 && hi <= i32::MAX as i128,
        Ty::I64 => lo >= i64::MIN as i128 && hi <= i64::MAX as i128,
        _ => false,
    }
}
