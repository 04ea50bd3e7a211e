//! Expressions are built here, and folded where all parts are constants.
//!
//! Folding is exact for integers, comparisons and `+ - * /`; float functions are computed in f64 and rounded once.

use crate::host;
use crate::ir::graph::*;
use crate::vocab::dtype::{DType, Ty, Value};
use crate::vocab::func::Func;
use girih_dsl::ast::Span;

/// The type of a call's result.
pub fn result_ty(func: Func, args: &[Ty]) -> Ty {
    use Func::*;
    match (func, args.first()) {
        (Eq | Ne | Lt | Le | IsNan | IsInf | IsFinite, _) => Ty::Bool,
        (Uniform | Normal, _) => Ty::F32,
        (RandBits, _) => Ty::I64,
        (Bits, Some(Ty::F64)) => Ty::I64,
        (Bits, _) => Ty::I32,
        (FromBits, Some(Ty::I64)) => Ty::F64,
        (FromBits, _) => Ty::F32,
        (_, Some(&t)) => t,
        (_, None) => Ty::I64,
    }
}

pub fn literal(g: &Graph, e: ExprId) -> Option<Value> {
    if let Expr::Lit(v) = g.expr(e) { Some(*v) } else { None }
}

pub fn literal_int(g: &Graph, e: ExprId) -> Option<i64> {
    match literal(g, e)? {
        Value::I64(v) => Some(v),
        Value::I32(v) => Some(v as i64),
        _ => None,
    }
}

pub fn literal_bool(g: &Graph, e: ExprId) -> Option<bool> {
    if let Some(Value::Bool(b)) = literal(g, e) { Some(b) } else { None }
}

pub fn call(g: &mut Graph, func: Func, args: Vec<ExprId>, span: Span) -> ExprId {
    let values: Option<Vec<Value>> = args.iter().map(|&a| literal(g, a)).collect();
    if let Some(v) = values.and_then(|v| eval(func, &v)) {
        return g.add(Expr::Lit(v), v.ty(), span);
    }
    if let Some(e) = neutral(g, func, &args) {
        return e;
    }
    let tys: Vec<Ty> = args.iter().map(|&a| g.ty(a)).collect();
    g.add(Expr::Call(func, args), result_ty(func, &tys), span)
}

/// `x + 0`, `x * 1`, `x / 1` and their like on integers, and `&&` with a constant.
fn neutral(g: &Graph, func: Func, args: &[ExprId]) -> Option<ExprId> {
    let [a, b] = args else { return None };
    if !g.ty(*a).is_int() {
        return None;
    }
    match (func, literal_int(g, *a), literal_int(g, *b)) {
        (Func::Add | Func::Sub | Func::Shl | Func::Shr, _, Some(0)) => Some(*a),
        (Func::Mul | Func::Div, _, Some(1)) => Some(*a),
        (Func::Add, Some(0), _) | (Func::Mul, Some(1), _) => Some(*b),
        (Func::Mul, _, Some(0)) => Some(*b),
        (Func::Mul, Some(0), _) => Some(*a),
        _ => None,
    }
}

pub fn cast(g: &mut Graph, e: ExprId, ty: Ty, span: Span) -> ExprId {
    if g.ty(e) == ty {
        return e;
    }
    if let Some(v) = literal(g, e) {
        return g.add(Expr::Lit(host::convert(v, ty)), ty, span);
    }
    // A choice between literals stays one: `if c then 1 else 0` needs no conversion at run time.
    if let Expr::Select(c, a, b) = *g.expr(e)
        && literal(g, a).is_some()
        && (literal(g, b).is_some() || matches!(g.expr(b), Expr::Select(..)))
    {
        let (a, b) = (cast(g, a, ty, span), cast(g, b, ty, span));
        return g.add(Expr::Select(c, a, b), ty, span);
    }
    g.add(Expr::Cast(e), ty, span)
}

/// A rounding to a dtype; the operand has its compute type, or is f64 for a narrower float.
pub fn round(g: &mut Graph, dtype: DType, e: ExprId, span: Span) -> ExprId {
    let ty = dtype.compute();
    if dtype == ty.stored() {
        return cast(g, e, ty, span);
    }
    if let Some(v) = literal(g, e) {
        return g.add(Expr::Lit(host::round(v, dtype)), ty, span);
    }
    g.add(Expr::Round(dtype, Rounding::Fixed, e), ty, span)
}

pub fn select(g: &mut Graph, c: ExprId, a: ExprId, b: ExprId, span: Span) -> ExprId {
    match literal_bool(g, c) {
        Some(true) => return a,
        Some(false) => return b,
        None if a == b && !matches!(g.expr(a), Expr::Read(_)) => return a,
        None => {}
    }
    if literal_bool(g, a) == Some(true) && literal_bool(g, b) == Some(false) {
        return c;
    }
    let ty = g.ty(a);
    g.add(Expr::Select(c, a, b), ty, span)
}

pub fn and(g: &mut Graph, a: ExprId, b: ExprId, span: Span) -> ExprId {
    let no = g.lit(Value::Bool(false));
    select(g, a, b, no, span)
}

pub fn or(g: &mut Graph, a: ExprId, b: ExprId, span: Span) -> ExprId {
    let yes = g.lit(Value::Bool(true));
    select(g, a, yes, b, span)
}

pub fn not(g: &mut Graph, a: ExprId, span: Span) -> ExprId {
    if let Expr::Call(Func::Not, args) = g.expr(a) {
        return args[0];
    }
    call(g, Func::Not, vec![a], span)
}

/// The value of a call with constant operands, where this stage computes it.
pub fn eval(func: Func, v: &[Value]) -> Option<Value> {
    match v.first()?.ty() {
        Ty::Bool => eval_bool(func, v),
        Ty::I64 => eval_int(func, v, 64),
        Ty::I32 => eval_int(func, v, 32),
        Ty::F64 | Ty::F32 => eval_float(func, v),
    }
}

fn eval_bool(func: Func, v: &[Value]) -> Option<Value> {
    let b = |i: usize| if let Some(Value::Bool(b)) = v.get(i) { Some(*b) } else { None };
    Some(Value::Bool(match func {
        Func::Not => !b(0)?,
        Func::Eq => b(0)? == b(1)?,
        Func::Ne | Func::Xor => b(0)? != b(1)?,
        Func::And => b(0)? && b(1)?,
        Func::Or => b(0)? || b(1)?,
        _ => return None,
    }))
}

/// Floor division; x/0 is 0, MIN/−1 wraps.
pub fn floor_div(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    let q = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
}

/// Floor remainder; x%0 is x.
pub fn floor_rem(a: i64, b: i64) -> i64 {
    a.wrapping_sub(floor_div(a, b).wrapping_mul(b))
}

pub fn shift_left(a: i64, n: i64, width: i64) -> i64 {
    if (0..width).contains(&n) { a.wrapping_shl(n as u32) } else { 0 }
}

pub fn shift_right(a: i64, n: i64, width: i64) -> i64 {
    match (0..width).contains(&n) {
        true => a >> n,
        false if a < 0 => -1,
        false => 0,
    }
}

/// Integer functions on i64; `None` for what is not one.
pub fn int_func(func: Func, a: i64, b: i64, width: i64) -> Option<i64> {
    Some(match func {
        Func::Add => a.wrapping_add(b),
        Func::Sub => a.wrapping_sub(b),
        Func::Mul => a.wrapping_mul(b),
        Func::Div => floor_div(a, b),
        Func::Rem => floor_rem(a, b),
        Func::Min => a.min(b),
        Func::Max => a.max(b),
        Func::And => a & b,
        Func::Or => a | b,
        Func::Xor => a ^ b,
        Func::Shl => shift_left(a, b, width),
        Func::Shr => shift_right(a, b, width),
        Func::Not => !a,
        Func::Neg => a.wrapping_neg(),
        Func::Abs => a.wrapping_abs(),
        Func::Sign => a.signum(),
        _ => return None,
    })
}

pub fn int_compare(func: Func, a: i64, b: i64) -> Option<bool> {
    Some(match func {
        Func::Eq => a == b,
        Func::Ne => a != b,
        Func::Lt => a < b,
        Func::Le => a <= b,
        _ => return None,
    })
}

fn eval_int(func: Func, v: &[Value], width: i64) -> Option<Value> {
    let int = |i: usize| v.get(i).copied().map_or(0, host::as_i64);
    let (a, b) = (int(0), int(1));
    if let Some(c) = int_compare(func, a, b) {
        return Some(Value::Bool(c));
    }
    let r = int_func(func, a, b, width)?;
    Some(if width == 32 { Value::I32(r as i32) } else { Value::I64(r) })
}

/// −0 < +0, NaN wins.
fn float_min(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        return f64::NAN;
    }
    if a < b || (a == b && a.is_sign_negative()) { a } else { b }
}

fn eval_float(func: Func, v: &[Value]) -> Option<Value> {
    let f = |i: usize| v.get(i).copied().map_or(0.0, host::as_f64);
    let (a, b) = (f(0), f(1));
    let narrow = v[0].ty() == Ty::F32;
    match func {
        Func::Eq => return Some(Value::Bool(a == b)),
        Func::Ne => return Some(Value::Bool(a != b)),
        Func::Lt => return Some(Value::Bool(a < b)),
        Func::Le => return Some(Value::Bool(a <= b)),
        Func::IsNan => return Some(Value::Bool(a.is_nan())),
        Func::IsInf => return Some(Value::Bool(a.is_infinite())),
        Func::IsFinite => return Some(Value::Bool(a.is_finite())),
        Func::Bits if narrow => return Some(Value::I32((a as f32).to_bits() as i32)),
        Func::Bits => return Some(Value::I64(a.to_bits() as i64)),
        _ => {}
    }
    let r = match func {
        Func::Add => a + b,
        Func::Sub => a - b,
        Func::Mul => a * b,
        Func::Div => a / b,
        Func::Rem => {
            let r = libm::fmod(a, b);
            let r = if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r };
            if r == 0.0 { libm::copysign(0.0, b) } else { r }
        }
        Func::Min => float_min(a, b),
        Func::Max => -float_min(-a, -b),
        Func::Fma if !narrow => libm::fma(a, b, f(2)),
        _ => eval_function(func, a, b)?,
    };
    Some(if narrow { Value::F32(r as f32) } else { Value::F64(r) })
}

fn eval_function(func: Func, a: f64, b: f64) -> Option<f64> {
    Some(match func {
        Func::Neg => -a,
        Func::Abs => a.abs(),
        Func::Sign if a == 0.0 || a.is_nan() => a,
        Func::Sign => a.signum(),
        Func::Pow => libm::pow(a, b),
        Func::Atan2 => libm::atan2(a, b),
        Func::Copysign => libm::copysign(a, b),
        Func::Sqrt => libm::sqrt(a),
        Func::Rsqrt => 1.0 / libm::sqrt(a),
        Func::Exp => libm::exp(a),
        Func::Exp2 => libm::exp2(a),
        Func::Expm1 => libm::expm1(a),
        Func::Log => libm::log(a),
        Func::Log2 => libm::log2(a),
        Func::Log10 => libm::log10(a),
        Func::Log1p => libm::log1p(a),
        Func::Sin => libm::sin(a),
        Func::Cos => libm::cos(a),
        Func::Tan => libm::tan(a),
        Func::Asin => libm::asin(a),
        Func::Acos => libm::acos(a),
        Func::Atan => libm::atan(a),
        Func::Sinh => libm::sinh(a),
        Func::Cosh => libm::cosh(a),
        Func::Tanh => libm::tanh(a),
        Func::Erf => libm::erf(a),
        Func::Erfc => libm::erfc(a),
        Func::Floor => a.floor(),
        Func::Ceil => a.ceil(),
        Func::Trunc => a.trunc(),
        Func::Round => libm::rint(a),
        _ => return None,
    })
}

/// The value of an integer as written: digits, `_`, `0x`. `None` if it does not fit 64 bits.
pub fn int_text(text: &str) -> Option<i64> {
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    match digits.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    }
}

/// The value of an integer literal.
pub fn literal_int_text(e: &girih_dsl::ast::Expr) -> Option<i64> {
    if let girih_dsl::ast::ExprKind::Int(text) = &e.kind { int_text(text) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_floors() {
        for (a, b, q, r) in [(-6, 5, -2, 4), (6, -5, -2, -4), (-7, 3, -3, 2), (7, 0, 0, 7), (-1, 3, -1, 2)] {
            assert_eq!((floor_div(a, b), floor_rem(a, b)), (q, r), "{a} by {b}");
        }
        assert_eq!(floor_div(i64::MIN, -1), i64::MIN);
    }

    #[test]
    fn shifts_past_the_width_are_defined() {
        assert_eq!(shift_left(1, 64, 64), 0);
        assert_eq!(shift_left(1, -1, 64), 0);
        assert_eq!(shift_right(-5, 99, 64), -1);
        assert_eq!(eval(Func::Shl, &[Value::I32(1), Value::I32(31)]), Some(Value::I32(i32::MIN)));
    }
}
