//! Numbers with bounds: a value, and beside it how far a right implementation may be away (running error analysis).
//!
//! Floats are carried in f64, unrounded; integers are exact. `e` is the bound: infinite where anything is admitted,
//! NaN and infinity included. A NaN or an infinity with `e` = 0 is definite. What each operation may add follows
//! LANGUAGE.md section 8.

use crate::vocab::dtype::{DType, Ty};
use crate::vocab::func::{Func, FuncRow, Spread};
use crate::vocab::meaning;

/// A float and the bound on its error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct F {
    pub v: f64,
    pub e: f64,
}

/// An integer; `e` > 0 where a float decision behind it is open, `ANY` where nothing is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct I {
    pub v: i64,
    pub e: i64,
}

/// A truth value; not `sure` where a comparison's bound cannot decide.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct B {
    pub v: bool,
    pub sure: bool,
}

/// A value of any type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Num {
    F(F),
    I(I),
    B(B),
}

/// The bound of an integer of which nothing is known.
pub const ANY: i64 = i64::MAX;
const INF: f64 = f64::INFINITY;
/// Relative error of the evaluator's own f64 operations.
const OWN: f64 = 1.0 / (1u64 << 53) as f64;

/// What rounding to a float type does to a value.
#[derive(Clone, Copy, Debug)]
pub struct Precision {
    pub ty: Ty,
    /// Half a unit in the last place, relative.
    pub u: f64,
    /// Half of the least subnormal.
    pub tiny: f64,
    /// Values from here on round to infinity.
    pub top: f64,
    /// Significant bits.
    pub bits: i32,
}

pub const F32: Precision = Precision {
    ty: Ty::F32,
    u: 1.0 / (1u64 << 24) as f64,
    tiny: 7.1e-46,
    top: 340282356779733661637539395458142568448.0,
    bits: 24,
};
pub const F64: Precision = Precision { ty: Ty::F64, u: OWN, tiny: 5e-324, top: f64::INFINITY, bits: 53 };

pub fn precision(ty: Ty) -> Precision {
    if ty == Ty::F64 { F64 } else { F32 }
}

impl F {
    pub fn exact(v: f64) -> F {
        F { v, e: 0.0 }
    }

    pub fn any(v: f64) -> F {
        F { v, e: INF }
    }

    fn lo(self) -> f64 {
        if self.e == 0.0 { self.v } else { self.v - self.e }
    }

    fn hi(self) -> f64 {
        if self.e == 0.0 { self.v } else { self.v + self.e }
    }

    /// `v`, with the bound widened so that it reaches both ends.
    pub fn hull(v: f64, lo: f64, hi: f64) -> F {
        if v.is_nan() || lo.is_nan() || hi.is_nan() {
            return F { v, e: if v.is_nan() && lo.is_nan() && hi.is_nan() { 0.0 } else { INF } };
        }
        F { v, e: reach(v, lo).max(reach(v, hi)) }
    }

    /// May be zero, but is not exactly it.
    fn straddles_zero(self) -> bool {
        self.e > 0.0 && self.v.abs() <= self.e
    }

    /// A finite value, whatever the bound admits.
    fn is_bounded(self) -> bool {
        self.v.is_finite() && self.e < INF
    }

    /// Either of two.
    pub fn either(self, other: F) -> F {
        if self.v.is_nan() && other.v.is_nan() {
            return F { v: self.v, e: self.e.max(other.e) };
        }
        let e = self.e.max(reach(self.v, other.v) + other.e);
        F { v: self.v, e: if e.is_nan() { INF } else { e } }
    }
}

fn reach(v: f64, to: f64) -> f64 {
    if v == to { 0.0 } else { (to - v).abs() }
}

impl I {
    pub fn exact(v: i64) -> I {
        I { v, e: 0 }
    }

    pub fn any(v: i64) -> I {
        I { v, e: ANY }
    }

    pub fn hull(v: i64, lo: i64, hi: i64) -> I {
        let e = (hi as i128 - v as i128).max(v as i128 - lo as i128).max(0);
        I { v, e: e.min(ANY as i128) as i64 }
    }

    pub fn either(self, other: I) -> I {
        if self.e == ANY || other.e == ANY {
            return I::any(self.v);
        }
        let (lo, hi) = (other.v.saturating_sub(other.e), other.v.saturating_add(other.e));
        let out = I::hull(self.v, lo.min(self.v), hi.max(self.v));
        I { v: self.v, e: out.e.max(self.e) }
    }

    /// The values admitted, if they are few.
    pub fn candidates(self) -> Option<std::ops::RangeInclusive<i64>> {
        (self.e <= 8).then(|| self.v.saturating_sub(self.e)..=self.v.saturating_add(self.e))
    }
}

impl B {
    pub fn exact(v: bool) -> B {
        B { v, sure: true }
    }

    pub fn either(self, other: B) -> B {
        B { v: self.v, sure: self.sure && other.sure && self.v == other.v }
    }

    pub fn and(self, o: B) -> B {
        let sure = (self.sure && o.sure) || (self.sure && !self.v) || (o.sure && !o.v);
        B { v: self.v && o.v, sure }
    }

    pub fn or(self, o: B) -> B {
        self.not().and(o.not()).not()
    }

    pub fn not(self) -> B {
        B { v: !self.v, sure: self.sure }
    }
}

impl Num {
    pub fn either(self, other: Num) -> Num {
        match (self, other) {
            (Num::F(a), Num::F(b)) => Num::F(a.either(b)),
            (Num::I(a), Num::I(b)) => Num::I(a.either(b)),
            (Num::B(a), Num::B(b)) => Num::B(a.either(b)),
            (a, _) => a,
        }
    }
}

impl Precision {
    pub fn holds(&self, v: f64) -> bool {
        self.ty == Ty::F64 || (v as f32) as f64 == v
    }

    /// The value rounded to this type.
    pub fn round(&self, v: f64) -> f64 {
        if self.ty == Ty::F64 { v } else { (v as f32) as f64 }
    }

    /// The result of an operation: `v`, which operands within their bounds move by at most `e`, and which a rounding
    /// relative to `scale` moves too unless it is `exact` and the type holds it.
    fn settle(&self, v: f64, e: f64, exact: bool, scale: f64) -> F {
        if v.is_nan() {
            return F { v, e: if e < INF { 0.0 } else { INF } };
        }
        if e == 0.0 && exact && self.holds(v) {
            return F::exact(v);
        }
        self.bounded(v, e + scale * (self.u + OWN) + self.tiny)
    }

    /// `v` with the bound `e`, where the type's range ends.
    pub fn bounded(&self, v: f64, e: f64) -> F {
        if !(e < INF) {
            return F::any(v);
        }
        let a = v.abs();
        if a - e >= self.top || a == INF {
            return F::exact(INF.copysign(v));
        }
        if a + e >= self.top || a >= self.top { F::any(v) } else { F { v, e } }
    }

    /// A product that goes into a sum. One beyond the type's range keeps its size: a fused multiply-add rounds only the
    /// sum, which may be inside again.
    pub fn addend(&self, a: F, b: F) -> F {
        let v = a.v * b.v;
        let rounded = self.mul(a, b);
        if rounded.v.is_finite() || rounded.e > 0.0 || !v.is_finite() {
            return rounded;
        }
        F { v, e: part(a.v, b.e) + part(b.v, a.e) + a.e * b.e + v.abs() * (self.u + OWN) }
    }

    /// Is it a product beyond the range, as `addend` gives it?
    fn is_beyond(&self, x: F) -> bool {
        x.v.is_finite() && x.e < INF && x.v.abs() >= self.top
    }

    /// `wide`: an operand is itself a sum, so that another order could have a larger partial result.
    pub fn add(&self, a: F, b: F, wide: bool) -> F {
        let v = a.v + b.v;
        if self.is_beyond(a) || self.is_beyond(b) {
            let least = if v.is_infinite() { INF } else { v.abs() - v.abs() * self.u };
            let certain = a.e + b.e < INF && least - (a.e + b.e) >= self.top;
            // Of two that are beyond on either side one may be rounded, to an infinity, and the other not.
            let opposed = a.v.abs() >= self.top && b.v.abs() >= self.top && a.v * b.v < 0.0;
            return if certain && !opposed { F::exact(INF.copysign(v)) } else { F::any(v) };
        }
        let t = v - a.v;
        let residual = (a.v - (v - t)) + (b.v - t);
        let scale = if wide { a.v.abs() + b.v.abs() } else { v.abs() };
        if v.is_infinite() && (a.v.is_infinite() || b.v.is_infinite()) {
            return F { v, e: if a.e + b.e < INF { 0.0 } else { INF } };
        }
        self.settle(v, a.e + b.e, residual == 0.0, scale)
    }

    pub fn mul(&self, a: F, b: F) -> F {
        let v = a.v * b.v;
        if a.e == 0.0 && b.e == 0.0 {
            let exact = v.is_infinite() || a.v.mul_add(b.v, -v) == 0.0;
            // f64 products below its normal range may hide what they lose.
            return self.settle(v, 0.0, exact && (v.abs() > 1e-290 || a.v == 0.0 || b.v == 0.0), v.abs());
        }
        let is = |x: F, what: fn(f64) -> bool| x.e == 0.0 && what(x.v);
        if is(a, f64::is_nan) || is(b, f64::is_nan) {
            return F::exact(v);
        }
        // A certain zero stays one.
        if (is(a, |v| v == 0.0) && b.is_bounded()) || (is(b, |v| v == 0.0) && a.is_bounded()) {
            return F::exact(v);
        }
        if a.v.is_infinite() || b.v.is_infinite() {
            let open = a.straddles_zero() || b.straddles_zero() || !(a.e + b.e < INF);
            return F { v, e: if open { INF } else { 0.0 } };
        }
        if (a.v.abs() - a.e) * (b.v.abs() - b.e).max(0.0) >= self.top && a.v.abs() > a.e {
            return F::exact(INF.copysign(v));
        }
        let e = part(a.v, b.e) + part(b.v, a.e) + a.e * b.e;
        self.settle(v, if e.is_nan() { INF } else { e }, false, v.abs())
    }

    /// `units`: how often half a unit in the last place this division may err (1; 3 by a reciprocal).
    pub fn div(&self, a: F, b: F, units: f64, relative: f64) -> F {
        let v = a.v / b.v;
        if a.e == 0.0 && b.e == 0.0 {
            if v.is_nan() || b.v == 0.0 || a.v == 0.0 || a.v.is_infinite() || b.v.is_infinite() {
                return F::exact(v);
            }
            if units == 1.0 && relative == 0.0 {
                let r = self.round(v);
                return if r.abs() >= self.top { F::exact(INF.copysign(v)) } else { F::exact(r) };
            }
        }
        if v.is_nan() || b.straddles_zero() || !(a.e + b.e < INF) {
            return F { v, e: if v.is_nan() && a.e + b.e < INF && !b.straddles_zero() { 0.0 } else { INF } };
        }
        if a == F::exact(0.0) && b.is_bounded() && b.v != 0.0 {
            return F::exact(v);
        }
        if a.v.is_infinite() || b.v.is_infinite() || b.v == 0.0 {
            return F { v, e: if b.v == 0.0 && a.straddles_zero() { INF } else { 0.0 } };
        }
        let e = (a.e + v.abs() * b.e) / (b.v.abs() - b.e);
        let floor = if relative > 0.0 { f32::MIN_POSITIVE as f64 } else { 0.0 };
        self.bounded(v, e + v.abs() * (units * self.u + OWN + relative) + self.tiny + floor)
    }

    pub fn rem(&self, a: F, b: F) -> F {
        let v = meaning::float_rem(a.v, b.v);
        if a.e == 0.0 && b.e == 0.0 {
            return F::exact(self.round(v));
        }
        let k = (a.v / b.v).floor();
        let same = !b.straddles_zero()
            && [(a.lo(), b.lo()), (a.lo(), b.hi()), (a.hi(), b.lo()), (a.hi(), b.hi())]
                .iter()
                .all(|(x, y)| (x / y).floor() == k);
        let e = if same { a.e + k.abs() * b.e } else { b.v.abs() + b.e };
        self.settle(v, if v.is_nan() { a.e + b.e } else { e }, false, v.abs())
    }

    pub fn fma(&self, a: F, b: F, c: F) -> F {
        if a.e == 0.0 && b.e == 0.0 && c.e == 0.0 {
            return F::exact(match self.ty {
                Ty::F64 => a.v.mul_add(b.v, c.v),
                _ => (a.v as f32).mul_add(b.v as f32, c.v as f32) as f64,
            });
        }
        self.add(self.addend(a, b), c, false)
    }

    /// The error that a function of the table may make at a result.
    fn function_error(&self, row: &FuncRow, v: f64, relaxed: bool) -> f64 {
        if row.rounded {
            return v.abs() * (self.u + OWN) + self.tiny;
        }
        let ulps = v.abs() * (8.0 * self.u + OWN) + 8.0 * self.tiny;
        if relaxed { ulps.max(v.abs() / 32768.0) + f32::MIN_POSITIVE as f64 } else { ulps }
    }

    /// A function of one float.
    pub fn call1(&self, row: &FuncRow, f: fn(f64) -> f64, a: F, relaxed: bool) -> F {
        let v = f(a.v);
        let stepped = matches!(row.func, Func::Floor | Func::Ceil | Func::Trunc | Func::Round | Func::Tf32);
        if a.v.is_nan() || (a.e == 0.0 && (v.is_nan() || v.is_infinite() || a.v.is_infinite())) {
            return F { v, e: if a.e < INF { 0.0 } else { INF } };
        }
        if a.e == 0.0 && stepped {
            return F::exact(v);
        }
        if a.e == 0.0 && row.func == Func::Sqrt && !relaxed {
            return F::exact(self.round(v));
        }
        let moved = if a.e == 0.0 { F::exact(v) } else { self.spread1(row, f, a, v) };
        if stepped {
            return moved;
        }
        let err = if row.func == Func::Sqrt && relaxed {
            v.abs() / 32768.0 + f32::MIN_POSITIVE as f64
        } else {
            self.function_error(row, v, relaxed)
        };
        self.bounded(v, moved.e + err)
    }

    fn spread1(&self, row: &FuncRow, f: fn(f64) -> f64, a: F, v: f64) -> F {
        if !(a.e < INF) {
            return F::any(v);
        }
        match (row.spread, row.func) {
            (Spread::Lipschitz(c, most), _) => F { v, e: (c * a.e).min(most) },
            (_, Func::Cosh) => {
                let least = if a.straddles_zero() { 1.0 } else { v };
                let e = F::hull(v, f(a.lo()), f(a.hi())).e.max(v - least);
                F { v, e }
            }
            (_, Func::Tan) => {
                let branch = |x: f64| (x / std::f64::consts::PI + 0.5).floor();
                if branch(a.lo()) == branch(a.hi()) { F::hull(v, f(a.lo()), f(a.hi())) } else { F::any(v) }
            }
            (_, Func::Rsqrt) if a.straddles_zero() => F::any(v),
            _ => F::hull(v, f(a.lo()), f(a.hi())),
        }
    }

    /// pow and atan2.
    pub fn call2(&self, row: &FuncRow, f: fn(f64, f64) -> f64, a: F, b: F, relaxed: bool) -> F {
        let v = f(a.v, b.v);
        if a.e == 0.0 && b.e == 0.0 && !v.is_finite() {
            return F::exact(v);
        }
        let moved = if a.e == 0.0 && b.e == 0.0 {
            F::exact(v)
        } else if !(a.e + b.e < INF) {
            F::any(v)
        } else if row.func == Func::Atan2 {
            spread_atan2(a, b, v)
        } else {
            spread_pow(a, b, v)
        };
        self.bounded(v, moved.e + self.function_error(row, v, relaxed))
    }

    pub fn ldexp(&self, a: F, k: I) -> F {
        let scale = |x: f64| libm::ldexp(x, k.v.clamp(-5000, 5000) as i32);
        if k.e != 0 {
            return F::any(scale(a.v));
        }
        let v = scale(a.v);
        if a.v.is_infinite() || a.v.is_nan() {
            return F { v, e: a.e };
        }
        if a.e == 0.0 {
            let r = self.round(v);
            return F::exact(if r.abs() >= self.top { INF.copysign(v) } else { r });
        }
        self.settle(v, scale(a.e), false, v.abs())
    }
}

fn part(v: f64, e: f64) -> f64 {
    if e == 0.0 { 0.0 } else { v.abs() * e }
}

fn spread_atan2(a: F, b: F, v: f64) -> F {
    let turn = 2.0 * std::f64::consts::PI;
    let near = a.v.hypot(b.v) - a.e - b.e;
    let cut = b.lo() <= 0.0 && a.straddles_zero();
    F { v, e: if cut || near <= 0.0 { turn } else { ((a.e + b.e) / near).min(turn) } }
}

fn spread_pow(a: F, b: F, v: f64) -> F {
    if a.straddles_zero() && !(b.e == 0.0 && b.v > 0.0 && b.v.fract() == 0.0) {
        return F::any(v);
    }
    let mut out = F::exact(v);
    for (x, y) in [(a.lo(), b.lo()), (a.lo(), b.hi()), (a.hi(), b.lo()), (a.hi(), b.hi())] {
        out = F { v, e: out.e.max(F::hull(v, x.powf(y), x.powf(y)).e) };
    }
    if a.straddles_zero() { F { v, e: out.e.max(v.abs()) } } else { out }
}

/// max, or min with `sign` −1.
pub fn pick(a: F, b: F, max: bool) -> F {
    let f = if max { meaning::float_max } else { meaning::float_min };
    if (a.v.is_nan() && a.e == 0.0) || (b.v.is_nan() && b.e == 0.0) {
        return F::exact(f64::NAN);
    }
    let v = f(a.v, b.v);
    if a.e == 0.0 && b.e == 0.0 {
        return F::exact(v);
    }
    if !(a.e + b.e < INF) {
        return F::any(v);
    }
    F::hull(v, f(a.lo(), b.lo()), f(a.hi(), b.hi()))
}

pub fn copysign(a: F, b: F) -> F {
    let v = a.v.copysign(b.v);
    if b.straddles_zero() || b.e == INF { F { v, e: 2.0 * a.v.abs() + a.e } } else { F { v, e: a.e } }
}

pub fn sign(a: F) -> F {
    if a.e == INF {
        return F::any(meaning::float_sign(a.v));
    }
    F::hull(meaning::float_sign(a.v), meaning::float_sign(a.lo()), meaning::float_sign(a.hi()))
}

/// A comparison of floats.
pub fn compare(func: Func, a: F, b: F) -> B {
    let v = match func {
        Func::Eq => a.v == b.v,
        Func::Ne => a.v != b.v,
        Func::Lt => a.v < b.v,
        _ => a.v <= b.v,
    };
    if (a.v.is_nan() && a.e == 0.0) || (b.v.is_nan() && b.e == 0.0) {
        return B::exact(func == Func::Ne);
    }
    let apart = (a.v - b.v).abs();
    // Infinities are definite, so against a finite value they decide.
    B { v, sure: (a.e == 0.0 && b.e == 0.0) || (a.e + b.e < INF && apart > a.e + b.e) }
}

/// isnan, isinf, isfinite.
pub fn classify(func: Func, a: F) -> B {
    let v = match func {
        Func::IsNan => a.v.is_nan(),
        Func::IsInf => a.v.is_infinite(),
        _ => a.v.is_finite(),
    };
    B { v, sure: a.e < INF }
}

/// Rounds to a float dtype: the interval's ends round to the ends of the result's.
pub fn round_float(a: F, dtype: DType) -> F {
    let f = |v: f64| round_f64(v, dtype);
    let v = f(a.v);
    if a.e == 0.0 || a.v.is_nan() {
        return F { v, e: a.e };
    }
    if a.e == INF {
        return F::any(v);
    }
    F::hull(v, f(a.lo()), f(a.hi()))
}

/// A float rounded to a float dtype.
pub fn round_f64(v: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F64 => v,
        DType::F32 => (v as f32) as f64,
        _ => crate::host::round_narrow(v, dtype) as f64,
    }
}

/// Integers saturate.
pub fn clamp_int(a: I, lo: i64, hi: i64) -> I {
    let v = a.v.clamp(lo, hi);
    if a.e == 0 {
        return I::exact(v);
    }
    if a.e == ANY {
        return I::hull(v, lo, hi);
    }
    I::hull(v, a.v.saturating_sub(a.e).clamp(lo, hi), a.v.saturating_add(a.e).clamp(lo, hi))
}

/// Floats to integers truncate and saturate; NaN gives 0.
pub fn float_to_int(a: F, lo: i64, hi: i64) -> I {
    let f = |v: f64| (v as i64).clamp(lo, hi);
    if a.e == 0.0 {
        return I::exact(f(a.v));
    }
    if a.e == INF || a.v.is_nan() {
        return I::hull(f(a.v), lo, hi);
    }
    I::hull(f(a.v), f(a.lo()), f(a.hi()))
}

/// Conversion between compute types.
pub fn convert(n: Num, from: Ty, to: Ty) -> Num {
    match (n, to) {
        (n, to) if from == to => n,
        (Num::F(a), Ty::F64) => Num::F(a),
        (Num::F(a), Ty::F32) => Num::F(round_float(a, DType::F32)),
        (Num::F(a), Ty::Bool) => Num::B(compare(Func::Ne, a, F::exact(0.0))),
        (Num::I(a), Ty::Bool) => Num::B(int_compare(a, I::exact(0), |x, y| x != y)),
        (Num::F(a), _) => {
            let (lo, hi) = to.stored().row().int_range;
            Num::I(float_to_int(a, lo, hi))
        }
        (Num::I(a), Ty::I32 | Ty::I64) => {
            let (lo, hi) = to.stored().row().int_range;
            Num::I(clamp_int(a, lo, hi))
        }
        (Num::I(a), _) => {
            let v = if to == Ty::F32 { (a.v as f32) as f64 } else { a.v as f64 };
            Num::F(F { v, e: open_e(a) })
        }
        (Num::B(a), Ty::F32 | Ty::F64) => {
            Num::F(F { v: a.v as i64 as f64, e: if a.sure { 0.0 } else { 1.0 } })
        }
        (Num::B(a), _) => Num::I(I { v: a.v as i64, e: !a.sure as i64 }),
    }
}

fn open_e(a: I) -> f64 {
    if a.e == ANY { INF } else { a.e as f64 }
}

/// Rounding to a dtype, from any compute type, once; the result is of the dtype's compute type.
pub fn round(n: Num, from: Ty, dtype: DType) -> Num {
    match n {
        // Results of f32 operations carry their rounding in the bound.
        Num::F(a) if dtype.compute() == from && dtype == from.stored() => Num::F(a),
        Num::F(a) if dtype.is_float() => Num::F(round_float(a, dtype)),
        Num::I(a) if is_narrow(dtype) => {
            Num::F(round_float(F { v: crate::host::sticky_f64(a.v), e: open_e(a) }, dtype))
        }
        n if dtype.is_int() => {
            let (lo, hi) = dtype.row().int_range;
            match convert(n, from, if from.is_int() { from } else { Ty::I64 }) {
                Num::I(a) => Num::I(clamp_int(a, lo, hi)),
                n => n,
            }
        }
        n => convert(n, from, dtype.compute()),
    }
}

fn is_narrow(dtype: DType) -> bool {
    dtype.is_float() && dtype.bits() <= 16
}

/// Wraps to 32 bits where the type is i32.
pub fn wrap(v: i64, ty: Ty) -> i64 {
    if ty == Ty::I32 { v as i32 as i64 } else { v }
}

/// A sum of integers: intervals add where nothing wraps.
pub fn int_add(a: I, b: I, ty: Ty) -> I {
    let f = |x: i64, y: i64| wrap(x.wrapping_add(y), ty);
    let v = f(a.v, b.v);
    let e = a.e.saturating_add(b.e);
    let (lo, hi) = ty.stored().row().int_range;
    let (least, most) = (v.checked_sub(e), v.checked_add(e));
    let inside = least.is_some_and(|x| x >= lo) && most.is_some_and(|x| x <= hi);
    if e != 0 && e != ANY && inside && a.v.checked_add(b.v) == Some(v) {
        I { v, e }
    } else {
        int_call(a, b, f)
    }
}

/// A function of one or two integers, tried at every admitted value where those are few.
pub fn int_call(a: I, b: I, f: impl Fn(i64, i64) -> i64) -> I {
    let v = f(a.v, b.v);
    if a.e == 0 && b.e == 0 {
        return I::exact(v);
    }
    let (Some(x), Some(y)) = (a.candidates(), b.candidates()) else { return I::any(v) };
    let (mut lo, mut hi) = (v, v);
    for p in x {
        for q in y.clone() {
            let r = f(p, q);
            lo = lo.min(r);
            hi = hi.max(r);
        }
    }
    I::hull(v, lo, hi)
}

/// A comparison of integers.
pub fn int_compare(a: I, b: I, f: impl Fn(i64, i64) -> bool) -> B {
    let v = f(a.v, b.v);
    if a.e == 0 && b.e == 0 {
        return B::exact(v);
    }
    if a.e == ANY || b.e == ANY {
        return B { v, sure: false };
    }
    // Each comparison is monotone in the difference, or about equality.
    let (x, y) = (
        [a.v.saturating_sub(a.e), a.v.saturating_add(a.e)],
        [b.v.saturating_sub(b.e), b.v.saturating_add(b.e)],
    );
    let overlap = x[0] <= y[1] && y[0] <= x[1];
    let same = x.iter().all(|&p| y.iter().all(|&q| f(p, q) == v));
    B { v, sure: same && !overlap }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_stay_exact() {
        let (a, b) = (F::exact(3.0), F::exact(5.0));
        assert_eq!(F32.add(a, b, false), F::exact(8.0));
        assert_eq!(F32.mul(a, b), F::exact(15.0));
        assert_eq!(F32.div(F::exact(6.0), a, 1.0, 0.0), F::exact(2.0));
        assert!(F32.mul(F::exact(0.1f32 as f64), F::exact(0.1f32 as f64)).e > 0.0);
    }

    #[test]
    fn bounds_hold_what_f32_gives() {
        let mut x = 0.37f32;
        for _ in 0..2000 {
            x = (x * 1.7 + 0.123) % 3.1 + 0.01;
            let y = 1.0 / (x + 0.3);
            let (fx, fy) = (
                F::exact(x as f64),
                F32.div(F::exact(1.0), F32.add(F::exact(x as f64), F::exact(0.3f32 as f64), false), 1.0, 0.0),
            );
            assert!((y as f64 - fy.v).abs() <= fy.e, "{y} {fy:?}");
            let z = (x * y + y).exp();
            let row = Func::Exp.row();
            let fz = F32.call1(row, f64::exp, F32.add(F32.mul(fx, fy), fy, false), false);
            assert!((z as f64 - fz.v).abs() <= fz.e && fz.e < 1e-4 * fz.v, "{z} {fz:?}");
        }
    }

    #[test]
    fn open_decisions_are_open() {
        let near = F { v: 1.0, e: 1e-7 };
        assert!(!compare(Func::Lt, near, F::exact(1.0)).sure);
        assert!(compare(Func::Lt, near, F::exact(2.0)).sure);
        assert_eq!(float_to_int(F { v: 3.0, e: 1e-7 }, -10, 10), I { v: 3, e: 1 });
        assert_eq!(round_float(F { v: 1.0, e: 1e-7 }, DType::BF16).e, 0.0);
        let tie = 1.0 + 2f64.powi(-8);
        assert_eq!(round_float(F { v: tie, e: 1e-7 }, DType::BF16), F { v: 1.0, e: 2f64.powi(-7) });
    }

    #[test]
    fn infinities_are_definite_where_they_must_be() {
        let huge = F { v: 1e300, e: 1e290 };
        assert_eq!(F64.mul(huge, F { v: -1e300, e: 1e200 }), F::exact(-INF));
        assert_eq!(F64.mul(huge, F { v: 1e200, e: 2e200 }).e, INF);
        let big = F::exact(3e38);
        assert_eq!(F32.add(big, big, false), F::exact(INF));
        assert_eq!(F32.mul(F::exact(INF), F { v: 2.0, e: 0.1 }), F::exact(INF));
        assert_eq!(F32.mul(F::exact(INF), F { v: 0.05, e: 0.1 }).e, INF);
        assert!(F32.add(F::exact(INF), F::exact(-INF), false).v.is_nan());
        let exp = Func::Exp.row();
        assert_eq!(F32.call1(exp, f64::exp, F::exact(-INF), true), F::exact(0.0));
        // A product beyond the range is infinite, unless what is added in the same rounding brings it back.
        let (beyond, less) = (F32.addend(F::exact(2e19), F::exact(2e19)), F::exact(-3e38));
        assert_eq!(F32.mul(F::exact(2e19), F::exact(2e19)), F::exact(INF));
        assert_eq!(F32.add(beyond, less, false).e, INF);
        assert_eq!(F32.add(beyond, F::exact(-1e37), false), F::exact(INF));
        assert_eq!(F32.add(beyond, F::exact(INF), false), F::exact(INF));
    }
}
