//! Scalar functions: one row each.
//!
//! A function maps values of compute types to one value of a compute type; its type law is in [`Law`]. The row holds
//! what the CPU needs: the exact-type meaning (simulator, constant folding), and how an error of an operand spreads
//! (the reference's bound). The meanings stand in `meaning.rs`, the random numbers in `random.rs`, the CUDA spelling
//! in the printer's table.

use super::dtype::{Ty, Value};
use super::{meaning, random};

/// Every scalar function of the language, after resolution. `gelu` and its like are written in the language
/// (see `dsl/std/prelude`), so they do not stand here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Func {
    // arithmetic, of two equal types
    Add,
    Sub,
    Mul,
    /// Floats: IEEE. Integers: floor; x/0 is 0, MIN/−1 wraps.
    Div,
    /// Floats: sign of the divisor. Integers: floor; x%0 is x.
    Rem,
    /// Propagates NaN; −0 < +0.
    Min,
    Max,
    Pow,
    Atan2,
    Copysign,
    // integers and bits (bool too where it makes sense: And, Or, Xor, Not)
    And,
    Or,
    Xor,
    Not,
    /// 0 for a count below 0 or at least the width.
    Shl,
    /// As `Shl`; −1 for a negative value.
    Shr,
    // comparisons: two equal types to bool
    Eq,
    Ne,
    Lt,
    Le,
    // one operand
    Neg,
    Abs,
    Sign,
    Sqrt,
    Rsqrt,
    Exp,
    Exp2,
    Expm1,
    Log,
    Log2,
    Log10,
    Log1p,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Erf,
    Erfc,
    Floor,
    Ceil,
    Trunc,
    /// Ties to even.
    Round,
    IsNan,
    IsInf,
    IsFinite,
    /// f32 rounded to 11 significant bits, nearest even.
    Tf32,
    /// f32 → i32, f64 → i64.
    Bits,
    FromBits,
    /// (float, i32) → float
    Ldexp,
    /// a·b + c with one rounding.
    Fma,
    // Philox4x32-10: (seed: i64, counter: i64)
    /// f32 in [0, 1)
    Uniform,
    /// f32
    Normal,
    /// i64 in 0..2³²
    RandBits,
}

/// How the type of the result follows from the operands'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// All operands of one type among those allowed; the result has it too.
    Same,
    /// All operands of one type; the result is bool.
    Compare,
    /// Float to the integer of its width.
    ToBits,
    /// Integer to the float of its width.
    OfBits,
    /// (float, i32) to the float.
    Scale,
    /// (i64, i64) to this type.
    Random(Ty),
}

/// Which types the operands may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    Float,
    Int,
    Number,
    IntOrBool,
    Any,
}

/// How a function's result moves when its operands move within their bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Monotone over its domain: the ends of the operand's interval give the ends of the result's.
    Monotone,
    /// |f(a) − f(b)| ≤ c·|a − b|, and never more than the second number.
    Lipschitz(f64, f64),
    /// The reference has its own rule.
    Own,
}

/// What a function computes.
#[derive(Clone, Copy)]
pub enum Meaning {
    /// A function of one float: f32 operands are computed in f64 and rounded.
    Float1(fn(f64) -> f64),
    Float2(fn(f64, f64) -> f64),
    /// On values of exact types.
    Exact(fn(&[Value]) -> Value),
}

/// One row a function.
pub struct FuncRow {
    pub func: Func,
    /// Its name in the language, or its operator.
    pub name: &'static str,
    pub arity: u8,
    pub domain: Domain,
    pub law: Law,
    pub meaning: Meaning,
    pub spread: Spread,
    /// An implementation is exactly rounded (no error of a function beside the rounding).
    pub rounded: bool,
    /// Work beside an f32 addition.
    pub cost: f32,
}

const fn exact(
    func: Func,
    name: &'static str,
    arity: u8,
    domain: Domain,
    law: Law,
    eval: fn(&[Value]) -> Value,
    cost: f32,
) -> FuncRow {
    FuncRow {
        func,
        name,
        arity,
        domain,
        law,
        meaning: Meaning::Exact(eval),
        spread: Spread::Own,
        rounded: true,
        cost,
    }
}

const fn float(func: Func, name: &'static str, f: fn(f64) -> f64, spread: Spread, cost: f32) -> FuncRow {
    FuncRow {
        func,
        name,
        arity: 1,
        domain: Domain::Float,
        law: Law::Same,
        meaning: Meaning::Float1(f),
        spread,
        rounded: false,
        cost,
    }
}

const fn float2(func: Func, name: &'static str, f: fn(f64, f64) -> f64, cost: f32) -> FuncRow {
    FuncRow {
        func,
        name,
        arity: 2,
        domain: Domain::Float,
        law: Law::Same,
        meaning: Meaning::Float2(f),
        spread: Spread::Own,
        rounded: false,
        cost,
    }
}

const MONOTONE: Spread = Spread::Monotone;
const WAVE: Spread = Spread::Lipschitz(1.0, 2.0);

/// In the order of the enum (tested below).
pub static FUNCS: [FuncRow; 58] = [
    exact(Func::Add, "+", 2, Domain::Number, Law::Same, meaning::add, 1.0),
    exact(Func::Sub, "-", 2, Domain::Number, Law::Same, meaning::sub, 1.0),
    exact(Func::Mul, "*", 2, Domain::Number, Law::Same, meaning::mul, 1.0),
    exact(Func::Div, "/", 2, Domain::Number, Law::Same, meaning::div, 8.0),
    exact(Func::Rem, "%", 2, Domain::Number, Law::Same, meaning::rem, 10.0),
    exact(Func::Min, "min", 2, Domain::Number, Law::Same, meaning::min, 1.0),
    exact(Func::Max, "max", 2, Domain::Number, Law::Same, meaning::max, 1.0),
    float2(Func::Pow, "pow", f64::powf, 30.0),
    float2(Func::Atan2, "atan2", f64::atan2, 25.0),
    exact(Func::Copysign, "copysign", 2, Domain::Float, Law::Same, meaning::copysign, 1.0),
    exact(Func::And, "&", 2, Domain::IntOrBool, Law::Same, meaning::and, 1.0),
    exact(Func::Or, "|", 2, Domain::IntOrBool, Law::Same, meaning::or, 1.0),
    exact(Func::Xor, "^", 2, Domain::IntOrBool, Law::Same, meaning::xor, 1.0),
    exact(Func::Not, "!", 1, Domain::IntOrBool, Law::Same, meaning::not, 1.0),
    exact(Func::Shl, "<<", 2, Domain::Int, Law::Same, meaning::shl, 2.0),
    exact(Func::Shr, ">>", 2, Domain::Int, Law::Same, meaning::shr, 2.0),
    exact(Func::Eq, "==", 2, Domain::Any, Law::Compare, meaning::eq, 1.0),
    exact(Func::Ne, "!=", 2, Domain::Any, Law::Compare, meaning::ne, 1.0),
    exact(Func::Lt, "<", 2, Domain::Number, Law::Compare, meaning::lt, 1.0),
    exact(Func::Le, "<=", 2, Domain::Number, Law::Compare, meaning::le, 1.0),
    exact(Func::Neg, "-", 1, Domain::Number, Law::Same, meaning::neg, 1.0),
    exact(Func::Abs, "abs", 1, Domain::Number, Law::Same, meaning::abs, 1.0),
    exact(Func::Sign, "sign", 1, Domain::Number, Law::Same, meaning::sign, 2.0),
    FuncRow { rounded: true, ..float(Func::Sqrt, "sqrt", f64::sqrt, MONOTONE, 8.0) },
    float(Func::Rsqrt, "rsqrt", meaning::rsqrt, MONOTONE, 4.0),
    float(Func::Exp, "exp", f64::exp, MONOTONE, 5.0),
    float(Func::Exp2, "exp2", f64::exp2, MONOTONE, 4.0),
    float(Func::Expm1, "expm1", f64::exp_m1, MONOTONE, 12.0),
    float(Func::Log, "log", f64::ln, MONOTONE, 6.0),
    float(Func::Log2, "log2", f64::log2, MONOTONE, 5.0),
    float(Func::Log10, "log10", f64::log10, MONOTONE, 6.0),
    float(Func::Log1p, "log1p", f64::ln_1p, MONOTONE, 12.0),
    float(Func::Sin, "sin", f64::sin, WAVE, 15.0),
    float(Func::Cos, "cos", f64::cos, WAVE, 15.0),
    float(Func::Tan, "tan", f64::tan, Spread::Own, 25.0),
    float(Func::Asin, "asin", f64::asin, MONOTONE, 15.0),
    float(Func::Acos, "acos", f64::acos, MONOTONE, 15.0),
    float(Func::Atan, "atan", f64::atan, MONOTONE, 15.0),
    float(Func::Sinh, "sinh", f64::sinh, MONOTONE, 15.0),
    float(Func::Cosh, "cosh", f64::cosh, Spread::Own, 12.0),
    float(Func::Tanh, "tanh", f64::tanh, MONOTONE, 12.0),
    float(Func::Erf, "erf", libm::erf, MONOTONE, 20.0),
    float(Func::Erfc, "erfc", libm::erfc, MONOTONE, 25.0),
    FuncRow { rounded: true, ..float(Func::Floor, "floor", f64::floor, MONOTONE, 1.0) },
    FuncRow { rounded: true, ..float(Func::Ceil, "ceil", f64::ceil, MONOTONE, 1.0) },
    FuncRow { rounded: true, ..float(Func::Trunc, "trunc", f64::trunc, MONOTONE, 1.0) },
    FuncRow { rounded: true, ..float(Func::Round, "round", f64::round_ties_even, MONOTONE, 1.0) },
    exact(Func::IsNan, "isnan", 1, Domain::Float, Law::Compare, meaning::is_nan, 1.0),
    exact(Func::IsInf, "isinf", 1, Domain::Float, Law::Compare, meaning::is_inf, 1.0),
    exact(Func::IsFinite, "isfinite", 1, Domain::Float, Law::Compare, meaning::is_finite, 1.0),
    FuncRow { rounded: true, ..float(Func::Tf32, "tf32", meaning::tf32, MONOTONE, 2.0) },
    exact(Func::Bits, "bits", 1, Domain::Float, Law::ToBits, meaning::bits, 1.0),
    exact(Func::FromBits, "frombits", 1, Domain::Int, Law::OfBits, meaning::from_bits, 1.0),
    exact(Func::Ldexp, "ldexp", 2, Domain::Any, Law::Scale, meaning::ldexp, 4.0),
    exact(Func::Fma, "fma", 3, Domain::Float, Law::Same, meaning::fma, 1.0),
    exact(Func::Uniform, "uniform", 2, Domain::Int, Law::Random(Ty::F32), random::uniform_value, 60.0),
    FuncRow {
        rounded: false,
        ..exact(Func::Normal, "normal", 2, Domain::Int, Law::Random(Ty::F32), random::normal_value, 90.0)
    },
    exact(Func::RandBits, "randbits", 2, Domain::Int, Law::Random(Ty::I64), random::randbits_value, 60.0),
];

impl Domain {
    pub fn allows(self, ty: Ty) -> bool {
        match self {
            Domain::Float => ty.is_float(),
            Domain::Int => ty.is_int(),
            Domain::Number => ty != Ty::Bool,
            Domain::IntOrBool => !ty.is_float(),
            Domain::Any => true,
        }
    }
}

impl Func {
    pub fn row(self) -> &'static FuncRow {
        &FUNCS[self as usize]
    }

    /// Its name in the language, or its operator.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The function that is called by this name (operators are not called).
    pub fn parse(name: &str) -> Option<Func> {
        let called = |r: &&FuncRow| r.name == name && r.name.starts_with(|c: char| c.is_ascii_lowercase());
        FUNCS.iter().find(called).map(|r| r.func)
    }

    /// The type of the result, or `None` if the operands do not fit.
    pub fn result(self, args: &[Ty]) -> Option<Ty> {
        let row = self.row();
        let first = *args.first()?;
        if args.len() != row.arity as usize || !args.iter().all(|&t| row.domain.allows(t)) {
            return None;
        }
        let same = args.iter().all(|&t| t == first);
        match (row.law, first) {
            (Law::Same, _) => same.then_some(first),
            (Law::Compare, _) => same.then_some(Ty::Bool),
            (Law::ToBits, Ty::F64) => Some(Ty::I64),
            (Law::ToBits, _) => Some(Ty::I32),
            (Law::OfBits, Ty::I64) => Some(Ty::F64),
            (Law::OfBits, _) => Some(Ty::F32),
            (Law::Scale, _) => (first.is_float() && args[1] == Ty::I32).then_some(first),
            (Law::Random(ty), _) => (same && first == Ty::I64).then_some(ty),
        }
    }

    /// The value for operands that fit the law (see [`Func::result`]), rounded to the operands' type.
    pub fn eval(self, args: &[Value]) -> Value {
        match self.row().meaning {
            Meaning::Exact(f) => f(args),
            Meaning::Float1(f) => match args[0] {
                Value::F32(a) => Value::F32(f(a as f64) as f32),
                a => Value::F64(f(crate::host::as_f64(a))),
            },
            Meaning::Float2(f) => match (args[0], args[1]) {
                (Value::F32(a), Value::F32(b)) => Value::F32(f(a as f64, b as f64) as f32),
                (a, b) => Value::F64(f(crate::host::as_f64(a), crate::host::as_f64(b))),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn i(v: i32) -> Value {
        Value::I32(v)
    }

    fn f(v: f32) -> Value {
        Value::F32(v)
    }

    #[test]
    fn rows_stand_in_enum_order() {
        assert_eq!(Func::RandBits as usize + 1, FUNCS.len());
        for (n, row) in FUNCS.iter().enumerate() {
            assert_eq!(row.func as usize, n, "{}", row.name);
        }
    }

    #[test]
    fn names_find_functions() {
        assert_eq!(Func::parse("erfc"), Some(Func::Erfc));
        assert_eq!(Func::parse("+"), None);
        assert_eq!(Func::parse("gelu"), None);
    }

    #[test]
    fn integer_division_floors() {
        for (a, b, q, r) in [
            (-6, 5, -2, 4),
            (6, -5, -2, -4),
            (-7, 3, -3, 2),
            (-1, 3, -1, 2),
            (5, -3, -2, -1),
            (-5, 2, -3, 1),
            (-1, 4, -1, 3),
            (7, 0, 0, 7),
            (i32::MIN, -1, i32::MIN, 0),
            (i32::MIN, 2, -(1 << 30), 0),
        ] {
            assert_eq!(Func::Div.eval(&[i(a), i(b)]), i(q), "{a}/{b}");
            assert_eq!(Func::Rem.eval(&[i(a), i(b)]), i(r), "{a}%{b}");
            let wide = [Value::I64(a as i64), Value::I64(b as i64)];
            if b != -1 {
                assert_eq!(Func::Div.eval(&wide), Value::I64(q as i64));
                assert_eq!(Func::Rem.eval(&wide), Value::I64(r as i64));
            }
        }
        assert_eq!(Func::Div.eval(&[Value::I64(i64::MIN), Value::I64(-1)]), Value::I64(i64::MIN));
    }

    #[test]
    fn shifts_by_the_width_or_more_empty_the_value() {
        assert_eq!(Func::Shl.eval(&[i(1), i(31)]), i(i32::MIN));
        assert_eq!(Func::Shl.eval(&[i(1), i(32)]), i(0));
        assert_eq!(Func::Shl.eval(&[i(1), i(-1)]), i(0));
        assert_eq!(Func::Shr.eval(&[i(-8), i(1)]), i(-4));
        assert_eq!(Func::Shr.eval(&[i(-8), i(40)]), i(-1));
        assert_eq!(Func::Shr.eval(&[i(8), i(-1)]), i(0));
        assert_eq!(Func::Shr.eval(&[Value::I64(-8), Value::I64(-1)]), Value::I64(-1));
    }

    #[test]
    fn min_and_max_propagate_nan_and_order_zeros() {
        for func in [Func::Min, Func::Max] {
            for pair in [[f(f32::NAN), f(1.0)], [f(1.0), f(f32::NAN)]] {
                assert!(matches!(func.eval(&pair), Value::F32(v) if v.is_nan()));
            }
        }
        assert_eq!(Func::Max.eval(&[f(-0.0), f(0.0)]), f(0.0));
        assert_eq!(Func::Max.eval(&[f(0.0), f(-0.0)]), f(0.0));
        assert_eq!(Func::Min.eval(&[f(0.0), f(-0.0)]), f(-0.0));
    }

    #[test]
    fn float_remainder_has_the_sign_of_the_divisor() {
        for (a, b, r) in
            [(5.5, 2.0, 1.5), (-5.5, 2.0, 0.5), (5.5, -2.0, -0.5), (4.0, -2.0, -0.0), (-4.0, 2.0, 0.0)]
        {
            assert_eq!(Func::Rem.eval(&[f(a), f(b)]), f(r), "{a} % {b}");
        }
    }

    #[test]
    fn roundings() {
        assert_eq!(Func::Round.eval(&[f(2.5)]), f(2.0));
        assert_eq!(Func::Round.eval(&[f(-0.5)]), f(-0.0));
        // 11 significant bits: 2⁻¹¹ above 1 is a tie, and goes to the even 1.
        assert_eq!(Func::Tf32.eval(&[f(1.0 + 2f32.powi(-11))]), f(1.0));
        assert_eq!(Func::Tf32.eval(&[f(1.0 + 2f32.powi(-11) + 2f32.powi(-20))]), f(1.0 + 2f32.powi(-10)));
        assert_eq!(Func::Bits.eval(&[f(1.0)]), i(0x3f80_0000));
        assert_eq!(Func::FromBits.eval(&[i(0x3f80_0000)]), f(1.0));
        assert_eq!(Func::Ldexp.eval(&[f(1.5), i(-149)]), f(f32::from_bits(2)));
    }

    #[test]
    fn laws() {
        assert_eq!(Func::Add.result(&[Ty::F32, Ty::F32]), Some(Ty::F32));
        assert_eq!(Func::Add.result(&[Ty::F32, Ty::I32]), None);
        assert_eq!(Func::Add.result(&[Ty::Bool, Ty::Bool]), None);
        assert_eq!(Func::Lt.result(&[Ty::I64, Ty::I64]), Some(Ty::Bool));
        assert_eq!(Func::Bits.result(&[Ty::F64]), Some(Ty::I64));
        assert_eq!(Func::Ldexp.result(&[Ty::F64, Ty::I32]), Some(Ty::F64));
        assert_eq!(Func::Uniform.result(&[Ty::I64, Ty::I64]), Some(Ty::F32));
        assert_eq!(Func::Xor.result(&[Ty::Bool, Ty::Bool]), Some(Ty::Bool));
    }
}
