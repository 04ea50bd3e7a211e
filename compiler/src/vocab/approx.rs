//! Approximate functions of f32: one row each, with its helper in CUDA and the same formula on the CPU.
//!
//! Where the first rounding that a value reaches is to 16 or 8 bits on every path, a function or a division may err
//! by 2⁻¹⁵ relative, and results below the least normal f32 may be 0 (LANGUAGE.md section 8). Each row keeps that on
//! its whole domain, infinities and NaN included, and gives an infinity only where the function does. `log` and its
//! like have no row: the hardware's errs by more near 1; `rsqrt`'s usual spelling is one instruction already.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Approx {
    Exp,
    Exp2,
    Sqrt,
    Tanh,
    Erf,
    Erfc,
    /// a / b.
    Div,
    /// a / b where b is from 1 to 2¹²⁰ (or NaN).
    DivByLarge,
}

#[derive(Clone, Copy)]
pub enum Near {
    One(fn(f32) -> f32),
    Two(fn(f32, f32) -> f32),
}

pub struct ApproxRow {
    pub approx: Approx,
    /// Its helper in `cuda_prelude.rs`, and its name in simt's text.
    pub name: &'static str,
    /// The helper's formula on the CPU, with exact-to-rounding hardware functions.
    pub meaning: Near,
}

/// What a row may err by, relative.
pub const ERROR: f64 = 1.0 / 32768.0;

const fn one(approx: Approx, name: &'static str, f: fn(f32) -> f32) -> ApproxRow {
    ApproxRow { approx, name, meaning: Near::One(f) }
}

const fn two(approx: Approx, name: &'static str, f: fn(f32, f32) -> f32) -> ApproxRow {
    ApproxRow { approx, name, meaning: Near::Two(f) }
}

/// In the order of the enum (tested below).
pub static APPROXES: [ApproxRow; 8] = [
    one(Approx::Exp, "exp_near", exp),
    one(Approx::Exp2, "exp2_near", exp2),
    one(Approx::Sqrt, "sqrt_near", f32::sqrt),
    one(Approx::Tanh, "tanh_near", tanh),
    one(Approx::Erf, "erf_near", erf),
    one(Approx::Erfc, "erfc_near", erfc),
    two(Approx::Div, "div_near", |a, b| a / b),
    two(Approx::DivByLarge, "div_by_large", |a, b| a * rcp(b)),
];

impl Approx {
    pub fn row(self) -> &'static ApproxRow {
        &APPROXES[self as usize]
    }

    pub fn parse(name: &str) -> Option<Approx> {
        APPROXES.iter().find(|r| r.name == name).map(|r| r.approx)
    }

    pub fn arity(self) -> usize {
        match self.row().meaning {
            Near::One(_) => 1,
            Near::Two(_) => 2,
        }
    }
}

/// `ex2.approx.ftz`, `rcp.approx.ftz`: results below the least normal are 0.
fn flushed(v: f32) -> f32 {
    if v.abs() < f32::MIN_POSITIVE { 0f32.copysign(v) } else { v }
}

fn exp2(a: f32) -> f32 {
    flushed((flushed(a) as f64).exp2() as f32)
}

fn rcp(a: f32) -> f32 {
    flushed((1.0 / flushed(a) as f64) as f32)
}

/// The product rounded toward zero, so that the power of two overflows only where the exponential does.
fn exp(a: f32) -> f32 {
    let exact = a as f64 * std::f32::consts::LOG2_E as f64;
    let near = exact as f32;
    let outward = near.is_finite() && (near as f64).abs() > exact.abs();
    exp2(if outward { f32::from_bits(near.to_bits() - 1) } else { near })
}

/// A series near 0, `1 − 2/(e^{2|x|} + 1)` elsewhere.
fn tanh(x: f32) -> f32 {
    let (a, s) = (x.abs(), x * x);
    let p = s.mul_add(-17.0 / 315.0, 2.0 / 15.0).mul_add(s, -1.0 / 3.0);
    let small = (x * s).mul_add(p, x);
    let large = rcp(exp2(a * (2.0 * std::f32::consts::LOG2_E)) + 1.0).mul_add(-2.0, 1.0);
    if a < 0.25 { small } else { large.copysign(x) }
}

/// Highest power first.
const ERF: [f32; 6] = [-1.0 / 1320.0, 1.0 / 216.0, -1.0 / 42.0, 0.1, -1.0 / 3.0, 1.0];

fn erf(x: f32) -> f32 {
    let (a, s) = (x.abs(), x * x);
    let p = ERF.iter().skip(1).fold(ERF[0], |p, &c| p.mul_add(s, c));
    let small = x * std::f32::consts::FRAC_2_SQRT_PI * p;
    if a < 0.5 { small } else { (1.0 - erfc(a)).copysign(x) }
}

/// Chebyshev's fit of `ln(erfc(z)/t) + z²` in `t = 1/(1 + z/2)` (Numerical Recipes, `erfcc`: 1.2e-7 relative).
const ERFC: [f32; 10] = [
    0.170_872_77,
    -0.822_152_23,
    1.488_515_9,
    -1.135_204,
    0.278_868_07,
    -0.186_288_06,
    0.096_784_18,
    0.374_091_96,
    1.000_023_7,
    -1.265_512_2,
];

fn erfc(x: f32) -> f32 {
    let a = x.abs();
    let t = rcp(a.mul_add(0.5, 1.0));
    let p = ERFC.iter().skip(1).fold(ERFC[0], |p, &c| p.mul_add(t, c));
    let r = t * exp((-a).mul_add(a, p));
    if x < 0.0 { 2.0 - r } else { r }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_enum_order() {
        for (i, row) in APPROXES.iter().enumerate() {
            assert_eq!(row.approx as usize, i, "{}", row.name);
            assert_eq!(Approx::parse(row.name), Some(row.approx));
        }
    }

    fn check(name: &str, x: f32, got: f32, exact: f64) {
        if !exact.is_finite() || exact == 0.0 || got.is_infinite() {
            let rounded = exact as f32;
            let same = got == rounded || got.is_nan() && rounded.is_nan();
            assert!(same, "{name}({x:e}) = {got:e}, not {rounded:e}");
            return;
        }
        let err = (got as f64 - exact).abs();
        // The hardware's own functions err by up to 2⁻²² more.
        let most = exact.abs() * (ERROR - 3.0 * 2f64.powi(-22)) + f32::MIN_POSITIVE as f64;
        assert!(err <= most, "{name}({x:e}) = {got:e}, not {exact:e}: {:e} relative", err / exact.abs());
    }

    #[test]
    fn rows_of_one_operand_keep_the_error_over_all_floats() {
        let exact: [fn(f64) -> f64; 6] = [f64::exp, f64::exp2, f64::sqrt, f64::tanh, libm::erf, libm::erfc];
        let special =
            [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 88.722_83, 88.722_84, -87.4, 0.25, 0.5];
        for (row, exact) in APPROXES.iter().zip(exact) {
            let Near::One(f) = row.meaning else { panic!("{} takes two operands", row.name) };
            let spread = (0..=u32::MAX).step_by(6151).map(f32::from_bits);
            // Where the functions are neither flat nor off the scale.
            let dense = (0..200_000).map(|i| (i - 100_000) as f32 * 1.3e-4);
            let near = (0..20_000).map(|i| (i - 10_000) as f32 * 0.0151);
            for x in spread.chain(dense).chain(near).chain(special) {
                check(row.name, x, f(x), exact(x as f64));
            }
        }
    }

    #[test]
    fn exponentials_overflow_only_where_exp_does() {
        let top = 88.722_84_f32.to_bits();
        for bits in top - 2000..top + 2000 {
            let x = f32::from_bits(bits);
            check("exp_near", x, exp(x), (x as f64).exp());
        }
    }

    #[test]
    fn divisions_by_large_numbers_keep_the_error() {
        for i in 0..20_000u32 {
            let a = f32::from_bits(i.wrapping_mul(0x9e37_79b9));
            let b = f32::from_bits(0x3f80_0000 + i.wrapping_mul(0x85eb_ca6b) % 0x3c00_0000);
            check("div_by_large", a, a * rcp(b), a as f64 / b as f64);
        }
    }
}
