//! Accumulators of folds and scans: push terms in order, ask for the result at any time.
//!
//! A float sum's bound is that of any order with no serial chain beyond 2¹⁶ terms; sums whose partial results are
//! exact in every order (whole numbers of one unit, small enough) are exact.

use super::num::{self, ANY, B, F, I, Num, Precision};
use crate::vocab::dtype::Ty;
use crate::vocab::monoid::Monoid;

const INF: f64 = f64::INFINITY;
/// The longest serial chain of a sum.
const CHAIN: f64 = 65536.0;

/// What a sum may err beyond its additions.
#[derive(Clone, Copy, Debug, Default)]
pub struct SumLaw {
    /// Terms are products of 16-bit values: tensor cores.
    pub tensor16: bool,
    /// Terms are products of 8-bit floats: a narrower accumulator for up to 128 terms.
    pub tensor8: bool,
    /// Runs beside the maximum it depends on, rescaled as that moves.
    pub rescaled: bool,
}

/// A float sum.
#[derive(Clone, Copy, Debug)]
pub struct Sum {
    pub v: f64,
    /// Σ|x| of finite terms.
    pub abs: f64,
    pub e: f64,
    pub n: u64,
    /// Exponent of the lowest bit set in any term; terms not exact clear `whole`.
    low: i32,
    whole: bool,
    /// Some term is an infinity or a NaN.
    odd: bool,
}

impl Default for Sum {
    fn default() -> Sum {
        Sum { v: 0.0, abs: 0.0, e: 0.0, n: 0, low: i32::MAX, whole: true, odd: false }
    }
}

/// Exponent of the lowest bit set.
fn low_bit(v: f64) -> i32 {
    if v == 0.0 {
        return i32::MAX;
    }
    let bits = v.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32;
    exponent - 1075 + ((bits | 1 << 52) & ((1 << 53) - 1)).trailing_zeros() as i32
}

impl Sum {
    #[inline]
    pub fn push(&mut self, x: F) {
        self.v = if self.n == 0 { x.v } else { self.v + x.v };
        self.add(x.v.abs());
        self.e += x.e;
        self.n += 1;
        if self.whole {
            self.low = self.low.min(low_bit(x.v));
            self.whole = x.e == 0.0 && x.v.is_finite();
        }
    }

    #[inline]
    fn add(&mut self, size: f64) {
        if size < INF {
            self.abs += size;
        } else {
            self.odd = true;
        }
    }

    /// A product of exact values.
    #[inline]
    pub fn push_product(&mut self, x: f64, y: f64, p: &Precision) {
        let v = x * y;
        if self.whole {
            // A product that its type does not hold is rounded, or not: it ends the exact part.
            self.push(p.addend(F::exact(x), F::exact(y)));
            return;
        }
        self.v += v;
        self.add(v.abs());
        if v.abs() < INF {
            self.e += v.abs() * (p.u + f64::EPSILON / 2.0);
        }
        self.n += 1;
    }

    pub fn result(&self, p: &Precision, law: SumLaw) -> F {
        let Sum { v, abs, e, n, .. } = *self;
        if n <= 1 {
            return if v.is_finite() && v.abs() >= p.top { p.bounded(v, e) } else { F { v, e } };
        }
        if v.is_infinite() && self.odd && abs + e.min(abs) >= p.top {
            // The finite terms alone may leave the range on the other side, before or after they meet the infinity.
            return F::any(v);
        }
        if v.is_nan() || self.odd || abs == INF {
            return F { v, e: if e < INF { 0.0 } else { INF } };
        }
        // Tensor cores add 8-bit products with fewer bits than a whole sum may need.
        if self.whole && !law.tensor8 && (abs == 0.0 || abs.log2() < (self.low.max(-1000) + p.bits) as f64) {
            return F::exact(v);
        }
        let n = n as f64;
        let chain = n.min(CHAIN) + n / CHAIN + 2.0 + if law.rescaled { 4.0 * n.min(32.0) } else { 0.0 };
        let tensor = if law.tensor16 { (n / 8.0 + 1.0) * 2f64.powi(-23) } else { 0.0 }
            + if law.tensor8 { 2f64.powi(-12) } else { 0.0 };
        let own = n * 2f64.powi(-53);
        let bound = e + (abs + e) * (chain * p.u + tensor + own) + n * p.tiny;
        if abs + bound >= p.top && (v.abs() < abs || v.abs() - bound < p.top) {
            // A partial result may leave the range, or the sum is at its border.
            return F::any(v);
        }
        p.bounded(v, bound)
    }
}

/// A float product.
#[derive(Clone, Copy, Debug)]
pub struct Prod {
    f: F,
    n: u64,
    /// log₂ of the factors above and below 1.
    up: f64,
    down: f64,
}

impl Prod {
    fn push(&mut self, p: &Precision, x: F) {
        self.f = if self.n == 0 { x } else { p.mul(self.f, x) };
        self.n += 1;
        let l = x.v.abs().log2();
        if l.is_finite() {
            self.up += l.max(0.0);
            self.down += l.min(0.0);
        }
    }

    fn result(&self, p: &Precision) -> F {
        let top = p.top.log2();
        let f = self.f;
        if f.v.is_finite() && f.v != 0.0 && (self.up >= top || self.down <= 2.0 - top) {
            return F::any(f.v);
        }
        F { v: f.v, e: if self.n > 2 { 2.0 * f.e } else { f.e } }
    }
}

/// argmax or argmin so far.
#[derive(Clone, Debug, Default)]
pub struct Best {
    seen: Vec<(i64, F)>,
    /// Terms that are certain integers, which a float may not hold.
    whole: Vec<(i64, i64)>,
}

impl Best {
    /// The first NaN, otherwise the lowest index among greatest; any index whose value may be greatest is admitted.
    fn result(&self, max: bool) -> I {
        if self.whole.len() == self.seen.len() {
            return self.first_integer(max);
        }
        let mut best: Option<(i64, F)> = None;
        let mut floor = -INF;
        for &(i, x) in &self.seen {
            let k = if max { x.v } else { -x.v };
            if x.v.is_nan() {
                return I { v: i, e: if self.seen.iter().any(|s| s.1.e == INF) { ANY } else { 0 } };
            }
            if best.is_none_or(|(_, b)| k > if max { b.v } else { -b.v }) {
                best = Some((i, x));
            }
            floor = floor.max(k - x.e);
        }
        let Some((at, top)) = best else { return I::exact(-1) };
        let (mut lo, mut hi) = (at, at);
        for &(i, x) in &self.seen {
            let k = if max { x.v } else { -x.v };
            // One expression at equal operands gives equal values.
            let tie = x.e == top.e && x.v == top.v;
            let beaten = x.e == 0.0 && top.e == 0.0;
            if k + x.e >= floor && (i == at || !(tie || beaten)) {
                lo = lo.min(i);
                hi = hi.max(i);
            }
        }
        I::hull(at, lo, hi)
    }

    /// The first of the greatest or least; -1 if there is nothing.
    fn first_integer(&self, max: bool) -> I {
        let mut best: Option<(i64, i64)> = None;
        for &(i, x) in &self.whole {
            if best.is_none_or(|(_, b)| if max { x > b } else { x < b }) {
                best = Some((i, x));
            }
        }
        I::exact(best.map_or(-1, |b| b.0))
    }
}

/// An accumulator of a built-in monoid.
#[derive(Clone, Debug)]
pub enum Acc {
    Sum(Precision, SumLaw, Sum),
    Prod(Precision, Prod),
    Pick { max: bool, n: u64, f: F },
    Int { monoid: Monoid, ty: Ty, i: I },
    Arg { max: bool, best: Best },
    Bool { any: bool, b: B },
}

impl Acc {
    pub fn new(monoid: Monoid, ty: Ty, law: SumLaw) -> Acc {
        let p = num::precision(ty);
        let unit = monoid.unit(ty);
        match monoid {
            Monoid::ArgMax | Monoid::ArgMin => {
                Acc::Arg { max: monoid == Monoid::ArgMax, best: Best::default() }
            }
            Monoid::Any | Monoid::All => {
                Acc::Bool { any: monoid == Monoid::Any, b: B::exact(monoid == Monoid::All) }
            }
            _ if !ty.is_float() => Acc::Int { monoid, ty, i: I::exact(crate::host::as_i64(unit)) },
            Monoid::Sum => Acc::Sum(p, law, Sum::default()),
            Monoid::Prod => Acc::Prod(p, Prod { f: F::exact(1.0), n: 0, up: 0.0, down: 0.0 }),
            Monoid::Max | Monoid::Min => {
                Acc::Pick { max: monoid == Monoid::Max, n: 0, f: F::exact(crate::host::as_f64(unit)) }
            }
        }
    }

    /// A term, and for argmax and argmin the value of the axis.
    pub fn push(&mut self, x: Num, at: i64) {
        match (self, x) {
            (Acc::Sum(_, _, s), Num::F(x)) => s.push(x),
            (Acc::Prod(p, s), Num::F(x)) => s.push(p, x),
            (Acc::Pick { max, n, f }, Num::F(x)) => {
                *f = if *n == 0 { x } else { num::pick(*f, x, *max) };
                *n += 1;
            }
            (Acc::Int { monoid, ty, i }, Num::I(x)) => *i = push_int(*monoid, *ty, *i, x),
            (Acc::Arg { best, .. }, Num::F(x)) => best.seen.push((at, x)),
            (Acc::Arg { best, .. }, Num::I(x)) => {
                let e = if x.e == ANY { INF } else { x.e as f64 };
                best.whole.extend((x.e == 0).then_some((at, x.v)));
                best.seen.push((at, F { v: x.v as f64, e }));
            }
            (Acc::Bool { any, b }, Num::B(x)) => *b = if *any { b.or(x) } else { b.and(x) },
            (acc, x) => unreachable!("{acc:?} takes no {x:?}: the graph's verifier lets none through"),
        }
    }

    /// A term that is perhaps not taken.
    pub fn push_open(&mut self, x: Num, at: i64) {
        match (&mut *self, x) {
            (Acc::Sum(_, _, s), Num::F(x)) => s.push(F { v: 0.0, e: x.v.abs() + x.e }),
            (Acc::Bool { .. }, Num::B(x)) => self.push(Num::B(B { v: x.v, sure: false }), at),
            (Acc::Pick { .. }, Num::F(x)) | (Acc::Prod(..), Num::F(x)) => self.push(Num::F(F::any(x.v)), at),
            (_, Num::I(x)) => self.push(Num::I(I::any(x.v)), at),
            (_, x) => self.push(x, at),
        }
    }

    pub fn result(&self) -> Num {
        match self {
            Acc::Sum(p, law, s) => Num::F(s.result(p, *law)),
            Acc::Prod(p, s) => Num::F(s.result(p)),
            Acc::Pick { f, .. } => Num::F(*f),
            Acc::Int { i, .. } => Num::I(*i),
            Acc::Arg { max, best } => Num::I(best.result(*max)),
            Acc::Bool { b, .. } => Num::B(*b),
        }
    }
}

fn push_int(monoid: Monoid, ty: Ty, a: I, b: I) -> I {
    if monoid == Monoid::Sum {
        return num::int_add(a, b, ty);
    }
    num::int_call(a, b, |x, y| match monoid {
        Monoid::Prod => num::wrap(x.wrapping_mul(y), ty),
        Monoid::Max => x.max(y),
        _ => x.min(y),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(terms: impl IntoIterator<Item = f64>) -> F {
        let mut s = Sum::default();
        terms.into_iter().for_each(|x| s.push(F::exact(x)));
        s.result(&num::F32, SumLaw::default())
    }

    #[test]
    fn sums_of_whole_numbers_are_exact() {
        assert_eq!(sum((0..5000).map(|_| 1.0)), F::exact(5000.0));
        assert_eq!(sum([0.5, 0.25, -0.75]), F::exact(0.0));
        assert!(sum([1e8, 1.0, -1e8]).e > 0.0);
    }

    #[test]
    fn sums_that_may_overflow_are_open() {
        assert_eq!(sum([3e38, 3e38, -3e38]).e, INF);
        assert_eq!(sum([3e38, 3e38, 3e38]), F::exact(INF));
        assert_eq!(sum([INF, 1.0]), F::exact(INF));
        assert!(sum([INF, -INF]).v.is_nan());
    }

    #[test]
    fn low_bits() {
        assert_eq!(
            [low_bit(1.0), low_bit(0.5), low_bit(3.0), low_bit(4.0), low_bit(-0.75)],
            [0, -1, 0, 2, -2]
        );
    }

    #[test]
    fn argmax_takes_the_first_of_ties_and_the_first_nan() {
        let arg = |xs: &[f64]| {
            let mut a = Acc::new(Monoid::ArgMax, Ty::F32, SumLaw::default());
            xs.iter().enumerate().for_each(|(i, &x)| a.push(Num::F(F::exact(x)), i as i64));
            a.result()
        };
        assert_eq!(arg(&[0.0, 5.0, 5.0]), Num::I(I::exact(1)));
        assert_eq!(arg(&[0.0, f64::NAN, 9.0, f64::NAN]), Num::I(I::exact(1)));
        assert_eq!(arg(&[-INF, -INF]), Num::I(I::exact(0)));
        assert_eq!(arg(&[]), Num::I(I::exact(-1)));
        let mut least = Acc::new(Monoid::ArgMin, Ty::I64, SumLaw::default());
        [(1i64 << 60) + 1, 1 << 60, (1 << 60) + 2]
            .iter()
            .zip(0..)
            .for_each(|(&x, i)| least.push(Num::I(I::exact(x)), i));
        assert_eq!(least.result(), Num::I(I::exact(1)));
    }
}
