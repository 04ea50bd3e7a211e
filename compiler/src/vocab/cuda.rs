//! How CUDA C spells scalar functions, casts and dtypes. Helpers named here are defined in `lower/cuda_prelude.rs`.

use super::dtype::DType;
use super::func::Func;
use crate::ir::simt::Ty;

/// How a function of operands is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// `a op b` at a precedence of C (see `Prec`).
    Infix(&'static str, Prec),
    Prefix(&'static str),
    /// A function of CUDA's, which needs no definition.
    Builtin(&'static str),
    /// A function of the prelude.
    Helper(&'static str),
}

/// Precedence of C expressions, loosest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prec {
    Any,
    Ternary,
    Or,
    And,
    BitOr,
    BitXor,
    BitAnd,
    Equal,
    Less,
    Shift,
    Sum,
    Product,
    Unary,
    Primary,
}

impl Prec {
    /// The next tighter one: what the right operand of a left-associative operator needs.
    pub fn tighter(self) -> Prec {
        use Prec::*;
        const ORDER: [Prec; 14] =
            [Any, Ternary, Or, And, BitOr, BitXor, BitAnd, Equal, Less, Shift, Sum, Product, Unary, Primary];
        ORDER[(self as usize + 1).min(ORDER.len() - 1)]
    }
}

pub fn type_name(ty: Ty) -> &'static str {
    match ty {
        Ty::Bool => "bool",
        Ty::I32 => "int",
        Ty::U32 => "u32",
        Ty::I64 => "i64",
        Ty::U64 => "u64",
        Ty::F32 => "float",
        Ty::F64 => "double",
    }
}

/// The C type of stored elements; the prelude has typedefs for those that C does not name.
pub fn stored_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::E4M3 => "e4m3",
        DType::E5M2 => "e5m2",
        DType::I64 => "i64",
        DType::I32 => "int",
        DType::I16 => "i16",
        DType::I8 => "i8",
        DType::U8 => "u8",
        DType::I4 => "i4x2",
        DType::U4 => "u4x2",
        DType::Bool => "b8",
    }
}

/// The spelling of a function at the type of its first operand.
pub fn spelling(func: Func, ty: Ty) -> Spelling {
    let found = match ty {
        Ty::F32 => float(func, true),
        Ty::F64 => float(func, false),
        Ty::Bool => boolean(func),
        Ty::I32 | Ty::U32 => integer(func, true),
        Ty::I64 | Ty::U64 => integer(func, false),
    };
    found.unwrap_or(Spelling::Helper("no_such_function"))
}

fn common(func: Func) -> Option<Spelling> {
    Some(match func {
        Func::Eq => Spelling::Infix("==", Prec::Equal),
        Func::Ne => Spelling::Infix("!=", Prec::Equal),
        Func::Lt => Spelling::Infix("<", Prec::Less),
        Func::Le => Spelling::Infix("<=", Prec::Less),
        _ => return None,
    })
}

fn boolean(func: Func) -> Option<Spelling> {
    Some(match func {
        Func::And => Spelling::Infix("&&", Prec::And),
        Func::Or => Spelling::Infix("||", Prec::Or),
        Func::Xor => Spelling::Infix("!=", Prec::Equal),
        Func::Not => Spelling::Prefix("!"),
        _ => return common(func),
    })
}

fn integer(func: Func, narrow: bool) -> Option<Spelling> {
    let pick = |a, b| Spelling::Helper(if narrow { a } else { b });
    Some(match func {
        // The language's integers wrap; C's signed ones may not.
        Func::Add => pick("add_i32", "add_i64"),
        Func::Sub => pick("sub_i32", "sub_i64"),
        Func::Mul => pick("mul_i32", "mul_i64"),
        Func::Neg => pick("neg_i32", "neg_i64"),
        Func::Abs => pick("abs_i32", "abs_i64"),
        Func::Div => pick("div_i32", "div_i64"),
        Func::Rem => pick("rem_i32", "rem_i64"),
        Func::Sign => pick("sign_i32", "sign_i64"),
        Func::Shl => pick("shl_i32", "shl_i64"),
        Func::Shr => pick("shr_i32", "shr_i64"),
        Func::Min => Spelling::Builtin("min"),
        Func::Max => Spelling::Builtin("max"),
        Func::And => Spelling::Infix("&", Prec::BitAnd),
        Func::Or => Spelling::Infix("|", Prec::BitOr),
        Func::Xor => Spelling::Infix("^", Prec::BitXor),
        Func::Not => Spelling::Prefix("~"),
        Func::FromBits if narrow => Spelling::Builtin("__int_as_float"),
        Func::FromBits => Spelling::Builtin("__longlong_as_double"),
        Func::Uniform => Spelling::Helper("random_uniform"),
        Func::Normal => Spelling::Helper("random_normal"),
        Func::RandBits => Spelling::Helper("random_bits"),
        _ => return common(func),
    })
}

fn float(func: Func, narrow: bool) -> Option<Spelling> {
    let builtin = |a, b| Some(Spelling::Builtin(if narrow { a } else { b }));
    let helper = |a, b| Some(Spelling::Helper(if narrow { a } else { b }));
    match func {
        Func::Add => Some(Spelling::Infix("+", Prec::Sum)),
        Func::Sub => Some(Spelling::Infix("-", Prec::Sum)),
        Func::Mul => Some(Spelling::Infix("*", Prec::Product)),
        Func::Div => Some(Spelling::Infix("/", Prec::Product)),
        Func::Neg => Some(Spelling::Prefix("-")),
        Func::Min => helper("min_f32", "min_f64"),
        Func::Max => helper("max_f32", "max_f64"),
        Func::Rem => helper("rem_f32", "rem_f64"),
        Func::Sign => helper("sign_f32", "sign_f64"),
        Func::IsNan => helper("is_nan_f32", "is_nan_f64"),
        Func::IsInf => helper("is_inf_f32", "is_inf_f64"),
        Func::IsFinite => helper("is_finite_f32", "is_finite_f64"),
        Func::Tf32 => helper("round_tf32", "round_tf32"),
        Func::Abs => builtin("fabsf", "fabs"),
        Func::Fma => builtin("fmaf", "fma"),
        Func::Sqrt => builtin("sqrtf", "sqrt"),
        Func::Rsqrt => builtin("rsqrtf", "rsqrt"),
        Func::Exp => builtin("expf", "exp"),
        Func::Exp2 => builtin("exp2f", "exp2"),
        Func::Expm1 => builtin("expm1f", "expm1"),
        Func::Log => builtin("logf", "log"),
        Func::Log2 => builtin("log2f", "log2"),
        Func::Log10 => builtin("log10f", "log10"),
        Func::Log1p => builtin("log1pf", "log1p"),
        Func::Sin => builtin("sinf", "sin"),
        Func::Cos => builtin("cosf", "cos"),
        Func::Tan => builtin("tanf", "tan"),
        Func::Asin => builtin("asinf", "asin"),
        Func::Acos => builtin("acosf", "acos"),
        Func::Atan => builtin("atanf", "atan"),
        Func::Atan2 => builtin("atan2f", "atan2"),
        Func::Sinh => builtin("sinhf", "sinh"),
        Func::Cosh => builtin("coshf", "cosh"),
        Func::Tanh => builtin("tanhf", "tanh"),
        Func::Erf => builtin("erff", "erf"),
        Func::Erfc => builtin("erfcf", "erfc"),
        Func::Pow => builtin("powf", "pow"),
        Func::Copysign => builtin("copysignf", "copysign"),
        Func::Ldexp => builtin("ldexpf", "ldexp"),
        Func::Floor => builtin("floorf", "floor"),
        Func::Ceil => builtin("ceilf", "ceil"),
        Func::Trunc => builtin("truncf", "trunc"),
        Func::Round => builtin("rintf", "rint"),
        Func::Bits => builtin("__float_as_int", "__double_as_longlong"),
        _ => common(func),
    }
}

/// How a stored element becomes its compute value: the name of a helper, or `None` where C's own conversion does.
pub fn decoder(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F16 => Some("f32_from_f16"),
        DType::BF16 => Some("f32_from_bf16"),
        DType::E4M3 => Some("f32_from_e4m3"),
        DType::E5M2 => Some("f32_from_e5m2"),
        _ => None,
    }
}

/// How a compute value becomes a stored element.
pub fn encoder(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F16 => Some("f16_from_f32"),
        DType::BF16 => Some("bf16_from_f32"),
        DType::E4M3 => Some("e4m3_from_f32"),
        DType::E5M2 => Some("e5m2_from_f32"),
        DType::I16 => Some("saturate_i16"),
        DType::I8 => Some("saturate_i8"),
        DType::U8 => Some("saturate_u8"),
        DType::I4 => Some("saturate_i4"),
        DType::U4 => Some("saturate_u4"),
        _ => None,
    }
}

/// A conversion of the language between two types: a function, or C's functional cast of the type's name.
pub fn cast(from: Ty, to: Ty) -> Spelling {
    match (from, to) {
        (Ty::F32, Ty::I32) => Spelling::Builtin("__float2int_rz"),
        (Ty::F32, Ty::I64) => Spelling::Helper("i64_from_f32"),
        (Ty::F64, Ty::I32) => Spelling::Helper("i32_from_f64"),
        (Ty::F64, Ty::I64) => Spelling::Helper("i64_from_f64"),
        (Ty::F32, Ty::U32) => Spelling::Builtin("__float2uint_rz"),
        (Ty::F32, Ty::U64) => Spelling::Helper("u64_from_f32"),
        (Ty::F64, Ty::U32) => Spelling::Helper("u32_from_f64"),
        (Ty::F64, Ty::U64) => Spelling::Helper("u64_from_f64"),
        (Ty::I64, Ty::I32) => Spelling::Helper("i32_from_i64"),
        _ => Spelling::Builtin(type_name(to)),
    }
}

/// A reinterpretation of bits.
pub fn bitcast(from: Ty, to: Ty) -> &'static str {
    match (from, to) {
        (Ty::F32, Ty::I32) => "__float_as_int",
        (Ty::F32, Ty::U32) => "__float_as_uint",
        (Ty::I32, Ty::F32) => "__int_as_float",
        (Ty::U32, Ty::F32) => "__uint_as_float",
        (Ty::F64, Ty::I64) => "__double_as_longlong",
        (Ty::I64, Ty::F64) => "__longlong_as_double",
        (Ty::F64, Ty::U64) => "u64_bits_of",
        (Ty::U64, Ty::F64) => "f64_of_bits",
        (_, to) => type_name(to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::simt_verify::call_type;
    use crate::vocab::func::FUNCS;

    #[test]
    fn every_function_has_a_spelling_at_every_type_it_takes() {
        for row in &FUNCS {
            for ty in [Ty::Bool, Ty::I32, Ty::I64, Ty::F32, Ty::F64] {
                let mut args = vec![ty; row.arity as usize];
                if row.func == Func::Ldexp {
                    args[1] = Ty::I32;
                }
                if call_type(row.func, &args).is_ok() {
                    let s = spelling(row.func, ty);
                    assert_ne!(s, Spelling::Helper("no_such_function"), "{} at {ty:?}", row.name);
                }
            }
        }
    }
}
