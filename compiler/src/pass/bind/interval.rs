//! Value ranges of integer expressions: closed intervals, in 128 bits so that no bound wraps.

use super::prove::Prover;
use crate::ir::graph::*;
use crate::vocab::dtype::{DType, Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;

/// Least and greatest value. Empty if the first is above the second.
pub type Iv = (i128, i128);

/// All values of an integer or bool type.
pub fn of_type(ty: Ty) -> Iv {
    match ty {
        Ty::Bool => (0, 1),
        Ty::I32 => (i32::MIN as i128, i32::MAX as i128),
        _ => (i64::MIN as i128, i64::MAX as i128),
    }
}

/// All values of a dtype (floats: of their integer conversions).
pub fn of_dtype(dtype: DType) -> Iv {
    if dtype.is_float() {
        return of_type(Ty::I64);
    }
    let (lo, hi) = dtype.row().int_range;
    (lo as i128, hi as i128)
}

pub fn union(a: Iv, b: Iv) -> Iv {
    (a.0.min(b.0), a.1.max(b.1))
}

pub fn meet(a: Iv, b: Iv) -> Iv {
    (a.0.max(b.0), a.1.min(b.1))
}

fn clamp(v: Iv, to: Iv) -> Iv {
    (v.0.clamp(to.0, to.1), v.1.clamp(to.0, to.1))
}

fn inside(v: Iv, all: Iv) -> bool {
    all.0 <= v.0 && v.1 <= all.1
}

pub fn floor_div(a: i128, b: i128) -> i128 {
    if b == 0 { 0 } else { a.div_euclid(b) - i128::from(b < 0 && a.rem_euclid(b) != 0) }
}

fn corners(a: Iv, b: Iv, f: impl Fn(i128, i128) -> i128) -> Iv {
    let all = [f(a.0, b.0), f(a.0, b.1), f(a.1, b.0), f(a.1, b.1)];
    let lo = all.iter().copied().fold(i128::MAX, i128::min);
    (lo, all.iter().copied().fold(i128::MIN, i128::max))
}

fn div(a: Iv, b: Iv) -> Iv {
    if b.0 > 0 || b.1 < 0 {
        return corners(a, b, floor_div);
    }
    let m = a.0.abs().max(a.1.abs()) + 1;
    (-m, m)
}

fn rem(a: Iv, b: Iv) -> Iv {
    if b.0 > 0 {
        return if a.0 >= 0 && a.1 < b.0 { a } else { (0, b.1 - 1) };
    }
    if b.1 < 0 {
        return if a.1 <= 0 && a.0 > b.1 { a } else { (b.0 + 1, 0) };
    }
    // x % 0 is x.
    union(a, ((b.0 + 1).min(0), (b.1 - 1).max(0)))
}

/// The least value of the form 2ᵏ−1 that is not below `v`.
fn mask(v: i128) -> i128 {
    if v <= 0 { 0 } else { (1i128 << (128 - v.leading_zeros()).min(126)) - 1 }
}

fn bits(func: Func, a: Iv, b: Iv) -> Iv {
    match (func, a.0 >= 0, b.0 >= 0) {
        (Func::And, true, true) => (0, a.1.min(b.1)),
        (Func::And, true, false) => (0, a.1),
        (Func::And, false, true) => (0, b.1),
        (Func::Or, true, true) => (a.0.max(b.0), mask(a.1.max(b.1))),
        (_, true, true) => (0, mask(a.1.max(b.1))),
        _ => {
            let m = mask(a.1.max(b.1).max(-a.0.min(b.0) - 1));
            (-m - 1, m)
        }
    }
}

fn shift(func: Func, a: Iv, n: Iv, ty: Ty) -> Iv {
    let width = if ty == Ty::I32 { 32 } else { 64 };
    let whole = n.0 >= 0 && n.1 < width;
    let k = (n.0.clamp(0, width - 1), n.1.clamp(0, width - 1));
    let past = if func == Func::Shr && a.0 < 0 { (-1, 0) } else { (0, 0) };
    let r = match func {
        Func::Shl => corners(a, k, |x, s| x.saturating_mul(1i128 << s)),
        _ => corners(a, k, |x, s| x >> s),
    };
    if whole { r } else { union(r, past) }
}

/// The range of a function of ranges, before it wraps.
pub fn of_call(func: Func, a: Iv, b: Iv, ty: Ty) -> Iv {
    match func {
        Func::Add => (a.0.saturating_add(b.0), a.1.saturating_add(b.1)),
        Func::Sub => (a.0.saturating_sub(b.1), a.1.saturating_sub(b.0)),
        Func::Mul => corners(a, b, i128::saturating_mul),
        Func::Div => div(a, b),
        Func::Rem => rem(a, b),
        Func::Min => (a.0.min(b.0), a.1.min(b.1)),
        Func::Max => (a.0.max(b.0), a.1.max(b.1)),
        Func::And | Func::Or | Func::Xor => bits(func, a, b),
        Func::Shl | Func::Shr => shift(func, a, b, ty),
        Func::Not => (-a.1 - 1, -a.0 - 1),
        Func::Neg => (-a.1, -a.0),
        Func::Abs if a.0 >= 0 => a,
        Func::Abs if a.1 <= 0 => (-a.1, -a.0),
        Func::Abs => (0, a.1.max(-a.0)),
        Func::Sign => (a.0.signum(), a.1.signum()),
        Func::RandBits => (0, u32::MAX as i128),
        _ => of_type(ty),
    }
}

impl Prover {
    /// The range of an integer (or bool, as 0 and 1) expression under the facts that hold here.
    pub fn iv(&self, g: &Graph, e: ExprId) -> Iv {
        if let Some(&v) = self.memo.borrow().get(&e) {
            return v;
        }
        let all = of_type(g.ty(e));
        let raw = self.raw(g, e);
        // A value that leaves its type wraps: then all that is known is the type.
        let v = meet(if raw.0 > raw.1 || inside(raw, all) { raw } else { all }, self.refined(e));
        self.memo.borrow_mut().insert(e, v);
        v
    }

    /// The range before it wraps.
    pub fn raw(&self, g: &Graph, e: ExprId) -> Iv {
        let ty = g.ty(e);
        match g.expr(e) {
            Expr::Lit(Value::I64(v)) => (*v as i128, *v as i128),
            Expr::Lit(Value::I32(v)) => (*v as i128, *v as i128),
            Expr::Lit(Value::Bool(v)) => (*v as i128, *v as i128),
            Expr::Axis(a) => self.axis_iv(g, *a),
            Expr::Scalar(s) => {
                let s = &g.scalars[s.0 as usize];
                s.range.map_or(of_dtype(s.dtype), |(lo, hi)| (lo as i128, hi as i128 - 1))
            }
            Expr::Read(r) => self.read_iv(g, r),
            Expr::Call(f, args) if g.ty(args[0]).is_float() && *f != Func::RandBits => of_type(ty),
            Expr::Call(f, args) if ty.is_int() => {
                let b = args.get(1).map_or((0, 0), |&b| self.iv(g, b));
                of_call(*f, self.iv(g, args[0]), b, ty)
            }
            Expr::Call(..) => self.truth(g, e).map_or((0, 1), |b| (b as i128, b as i128)),
            Expr::Cast(a) if !g.ty(*a).is_float() => clamp(self.iv(g, *a), of_type(ty)),
            Expr::Round(d, _, a) if d.is_int() && g.ty(*a).is_int() => clamp(self.iv(g, *a), of_dtype(*d)),
            Expr::Select(c, a, b) => match self.truth(g, *c) {
                Some(true) => self.iv(g, *a),
                Some(false) => self.iv(g, *b),
                None => union(self.under(g, *c, true, *a), self.under(g, *c, false, *b)),
            },
            Expr::Fold(f) => self.fold_iv(g, f, ty),
            _ => of_type(ty),
        }
    }

    /// The range of `e` where `c` is known.
    fn under(&self, g: &Graph, c: ExprId, positive: bool, e: ExprId) -> Iv {
        if self.nested > 2 {
            return self.iv(g, e);
        }
        let mut inner = self.clone();
        inner.nested += 1;
        inner.assume(g, c, positive);
        inner.iv(g, e)
    }

    fn axis_iv(&self, g: &Graph, a: AxisId) -> Iv {
        match g.axis_range(a) {
            Some((lo, hi)) => (lo as i128, hi as i128 - 1),
            None => (self.iv(g, g.axis(a).lo).0, self.iv(g, g.axis(a).hi).1 - 1),
        }
    }

    fn read_iv(&self, g: &Graph, r: &Read) -> Iv {
        let known = self.tensors.get(r.tensor.0 as usize).and_then(|t| t.range);
        let own = known.unwrap_or_else(|| of_dtype(g.tensor(r.tensor).dtype));
        match r.access {
            Access::Proven => own,
            Access::Checked => union(own, (0, 0)),
            Access::Else(d) => union(own, self.iv(g, d)),
        }
    }

    fn fold_iv(&self, g: &Graph, f: &Fold, ty: Ty) -> Iv {
        let Combine::Builtin(m) = f.combine else { return of_type(ty) };
        let points = f.axes.iter().map(|&a| g.extent(a).map(i128::from)).product::<Option<i128>>();
        let may_be_empty = f.cond.is_some() || points.is_none_or(|p| p == 0);
        let body = if g.ty(f.body).is_float() { of_type(Ty::I64) } else { self.iv(g, f.body) };
        let unit = |v: Value| match v {
            Value::I64(v) => v as i128,
            Value::I32(v) => v as i128,
            _ => 0,
        };
        match m {
            Monoid::Sum => match points {
                Some(p) => {
                    let (lo, hi) = (body.0.saturating_mul(p), body.1.saturating_mul(p));
                    if may_be_empty { (lo.min(0), hi.max(0)) } else { (lo, hi) }
                }
                None => of_type(ty),
            },
            Monoid::Max | Monoid::Min if may_be_empty => {
                let u = unit(m.unit(ty));
                union(body, (u, u))
            }
            Monoid::Max | Monoid::Min => body,
            Monoid::ArgMax | Monoid::ArgMin => {
                let axis = self.axis_iv(g, f.axes[0]);
                if may_be_empty { union(axis, (-1, -1)) } else { axis }
            }
            Monoid::Any | Monoid::All => (0, 1),
            Monoid::Prod => of_type(ty),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_every_value() {
        use crate::pass::bind::build::int_func;
        let funcs = [Func::Add, Func::Sub, Func::Mul, Func::Div, Func::Rem, Func::Min, Func::Max, Func::And];
        let more = [Func::Or, Func::Xor, Func::Shl, Func::Shr];
        for f in funcs.into_iter().chain(more) {
            for (al, ah, bl, bh) in
                [(-5i64, 7, -3, 4), (0, 9, 1, 3), (-8, -2, -4, -1), (3, 3, 0, 2), (0, 6, 5, 8)]
            {
                let r = of_call(f, (al as i128, ah as i128), (bl as i128, bh as i128), Ty::I64);
                for (a, b) in (al..=ah).flat_map(|a| (bl..=bh).map(move |b| (a, b))) {
                    let v = int_func(f, a, b, 64).expect("an integer function") as i128;
                    assert!(r.0 <= v && v <= r.1, "{f:?}({a}, {b}) = {v}, not in {r:?}");
                }
            }
        }
    }
}
