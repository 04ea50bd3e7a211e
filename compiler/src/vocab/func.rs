//! Scalar functions: one row each.
//!
//! A function maps values of compute types to one value of a compute type; its type law is in [`Law`].
//! The CPU meaning for the reference and the simulator, and the CUDA spelling, stand in the same table.

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
    /// Anything odd; see the row's comment and `result`.
    Special,
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
