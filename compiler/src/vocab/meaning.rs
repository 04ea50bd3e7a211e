//! What the scalar functions compute on values of exact types (LANGUAGE.md sections 7 and 8).

use super::dtype::Value;
use crate::host::round_to;
use std::cmp::Ordering;

/// Operands that do not fit the law do not pass the graph's verifier.
fn misfit(name: &str, args: &[Value]) -> ! {
    unreachable!("`{name}` of {args:?}: the graph's verifier lets no such operands through")
}

macro_rules! arithmetic {
    ($name:ident, $i32:expr, $i64:expr, $f32:expr, $f64:expr) => {
        pub fn $name(args: &[Value]) -> Value {
            match *args {
                [Value::I32(a), Value::I32(b)] => Value::I32($i32(a, b)),
                [Value::I64(a), Value::I64(b)] => Value::I64($i64(a, b)),
                [Value::F32(a), Value::F32(b)] => Value::F32($f32(a, b)),
                [Value::F64(a), Value::F64(b)] => Value::F64($f64(a, b)),
                _ => misfit(stringify!($name), args),
            }
        }
    };
}

arithmetic!(add, i32::wrapping_add, i64::wrapping_add, |a: f32, b| a + b, |a: f64, b| a + b);
arithmetic!(sub, i32::wrapping_sub, i64::wrapping_sub, |a: f32, b| a - b, |a: f64, b| a - b);
arithmetic!(mul, i32::wrapping_mul, i64::wrapping_mul, |a: f32, b| a * b, |a: f64, b| a * b);
arithmetic!(div, |a, b| floor_div(a as i64, b as i64) as i32, floor_div, |a: f32, b| a / b, |a: f64, b| a
    / b);
arithmetic!(
    rem,
    |a, b| floor_rem(a as i64, b as i64) as i32,
    floor_rem,
    |a, b| float_rem(a as f64, b as f64) as f32,
    float_rem
);
arithmetic!(min, i32::min, i64::min, |a, b| float_min(a as f64, b as f64) as f32, float_min);
arithmetic!(max, i32::max, i64::max, |a, b| float_max(a as f64, b as f64) as f32, float_max);

/// Floor division; x/0 is 0, MIN/−1 wraps.
pub fn floor_div(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    let q = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
}

/// The remainder of floor division; x%0 is x.
pub fn floor_rem(a: i64, b: i64) -> i64 {
    if b == 0 {
        return a;
    }
    let r = a.wrapping_rem(b);
    if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
}

/// Remainder with the sign of the divisor, zeros too.
pub fn float_rem(a: f64, b: f64) -> f64 {
    let r = a % b;
    if r == 0.0 {
        0f64.copysign(b)
    } else if (r < 0.0) != (b < 0.0) {
        r + b
    } else {
        r
    }
}

/// Propagates NaN; −0 < +0.
pub fn float_max(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        return f64::NAN;
    }
    if a.total_cmp(&b) == Ordering::Less { b } else { a }
}

/// Propagates NaN; −0 < +0.
pub fn float_min(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        return f64::NAN;
    }
    if a.total_cmp(&b) == Ordering::Greater { b } else { a }
}

macro_rules! bitwise {
    ($name:ident, $op:tt) => {
        pub fn $name(args: &[Value]) -> Value {
            match *args {
                [Value::Bool(a), Value::Bool(b)] => Value::Bool(a $op b),
                [Value::I32(a), Value::I32(b)] => Value::I32(a $op b),
                [Value::I64(a), Value::I64(b)] => Value::I64(a $op b),
                _ => misfit(stringify!($name), args),
            }
        }
    };
}

bitwise!(and, &);
bitwise!(or, |);
bitwise!(xor, ^);

pub fn not(args: &[Value]) -> Value {
    match *args {
        [Value::Bool(a)] => Value::Bool(!a),
        [Value::I32(a)] => Value::I32(!a),
        [Value::I64(a)] => Value::I64(!a),
        _ => misfit("!", args),
    }
}

/// 0 for a count below 0 or at least the width.
pub fn shl(args: &[Value]) -> Value {
    match *args {
        [Value::I32(a), Value::I32(n)] => Value::I32(if (0..32).contains(&n) { a << n } else { 0 }),
        [Value::I64(a), Value::I64(n)] => Value::I64(if (0..64).contains(&n) { a << n } else { 0 }),
        _ => misfit("<<", args),
    }
}

/// As `shl`, but −1 for a negative value.
pub fn shr(args: &[Value]) -> Value {
    match *args {
        [Value::I32(a), Value::I32(n)] => Value::I32(a >> if (0..32).contains(&n) { n } else { 31 }),
        [Value::I64(a), Value::I64(n)] => Value::I64(a >> if (0..64).contains(&n) { n } else { 63 }),
        _ => misfit(">>", args),
    }
}

/// How two values of one type compare; `None` where one is NaN.
fn order(name: &str, args: &[Value]) -> Option<Ordering> {
    match *args {
        [Value::Bool(a), Value::Bool(b)] => Some(a.cmp(&b)),
        [Value::I32(a), Value::I32(b)] => Some(a.cmp(&b)),
        [Value::I64(a), Value::I64(b)] => Some(a.cmp(&b)),
        [Value::F32(a), Value::F32(b)] => a.partial_cmp(&b),
        [Value::F64(a), Value::F64(b)] => a.partial_cmp(&b),
        _ => misfit(name, args),
    }
}

pub fn eq(args: &[Value]) -> Value {
    Value::Bool(order("==", args) == Some(Ordering::Equal))
}

pub fn ne(args: &[Value]) -> Value {
    Value::Bool(order("!=", args) != Some(Ordering::Equal))
}

pub fn lt(args: &[Value]) -> Value {
    Value::Bool(order("<", args) == Some(Ordering::Less))
}

pub fn le(args: &[Value]) -> Value {
    Value::Bool(matches!(order("<=", args), Some(Ordering::Less | Ordering::Equal)))
}

macro_rules! unary {
    ($name:ident, $i32:expr, $i64:expr, $f32:expr, $f64:expr) => {
        pub fn $name(args: &[Value]) -> Value {
            match *args {
                [Value::I32(a)] => Value::I32($i32(a)),
                [Value::I64(a)] => Value::I64($i64(a)),
                [Value::F32(a)] => Value::F32($f32(a)),
                [Value::F64(a)] => Value::F64($f64(a)),
                _ => misfit(stringify!($name), args),
            }
        }
    };
}

unary!(neg, i32::wrapping_neg, i64::wrapping_neg, |a: f32| -a, |a: f64| -a);
unary!(abs, i32::wrapping_abs, i64::wrapping_abs, f32::abs, f64::abs);
unary!(sign, i32::signum, i64::signum, |a| float_sign(a as f64) as f32, float_sign);

/// −1, 1, or the operand itself where it is ±0 or NaN.
pub fn float_sign(a: f64) -> f64 {
    if a > 0.0 {
        1.0
    } else if a < 0.0 {
        -1.0
    } else {
        a
    }
}

pub fn copysign(args: &[Value]) -> Value {
    match *args {
        [Value::F32(a), Value::F32(b)] => Value::F32(a.copysign(b)),
        [Value::F64(a), Value::F64(b)] => Value::F64(a.copysign(b)),
        _ => misfit("copysign", args),
    }
}

pub fn rsqrt(a: f64) -> f64 {
    1.0 / a.sqrt()
}

/// 11 significant bits, nearest even, with f32's exponents.
pub fn tf32(a: f64) -> f64 {
    round_to(a, 11, -126)
}

pub fn is_nan(args: &[Value]) -> Value {
    Value::Bool(crate::host::as_f64(args[0]).is_nan())
}

pub fn is_inf(args: &[Value]) -> Value {
    Value::Bool(crate::host::as_f64(args[0]).is_infinite())
}

pub fn is_finite(args: &[Value]) -> Value {
    Value::Bool(crate::host::as_f64(args[0]).is_finite())
}

pub fn bits(args: &[Value]) -> Value {
    match *args {
        [Value::F32(a)] => Value::I32(a.to_bits() as i32),
        [Value::F64(a)] => Value::I64(a.to_bits() as i64),
        _ => misfit("bits", args),
    }
}

pub fn from_bits(args: &[Value]) -> Value {
    match *args {
        [Value::I32(a)] => Value::F32(f32::from_bits(a as u32)),
        [Value::I64(a)] => Value::F64(f64::from_bits(a as u64)),
        _ => misfit("frombits", args),
    }
}

/// x·2ᵏ with one rounding.
pub fn ldexp(args: &[Value]) -> Value {
    match *args {
        // An f32 times 2ᵏ is exact in f64 unless it is far outside of f32's range.
        [Value::F32(a), Value::I32(k)] => Value::F32(libm::ldexp(a as f64, k) as f32),
        [Value::F64(a), Value::I32(k)] => Value::F64(libm::ldexp(a, k)),
        _ => misfit("ldexp", args),
    }
}

pub fn fma(args: &[Value]) -> Value {
    match *args {
        [Value::F32(a), Value::F32(b), Value::F32(c)] => Value::F32(a.mul_add(b, c)),
        [Value::F64(a), Value::F64(b), Value::F64(c)] => Value::F64(a.mul_add(b, c)),
        _ => misfit("fma", args),
    }
}
