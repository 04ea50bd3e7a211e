//! What pure operations mean on lanes: scalar functions at each type, machine arithmetic, casts, packing.
//!
//! Common functions have a direct form here that runs over 32 lanes at once; the others evaluate the vocabulary's
//! row lane by lane. The tests compare the direct forms with the rows.

use super::code::{Class, Width};
use super::codec;
use super::lanes::*;
use crate::host;
use crate::ir::simt::{CmpOp, IntOp, Ty};
use crate::vocab::approx::{Approx, Near};
use crate::vocab::dtype::{self, DType, Value};
use crate::vocab::func::{Func, Meaning};

/// A scalar function at operand types (all of one type but for `ldexp`).
pub fn call(func: Func, tys: &[Ty]) -> (Box<PureFn>, Class) {
    let direct = match tys[0] {
        Ty::F32 => f32_call(func),
        Ty::F64 => f64_call(func),
        Ty::I32 => i32_call(func),
        Ty::I64 => i64_call(func),
        Ty::Bool => bool_call(func),
        Ty::U32 | Ty::U64 => None,
    };
    let class = if tys[0] == Ty::F32 || tys[0] == Ty::F64 { Class::Float } else { Class::Int };
    match direct {
        Some(f) => (f, class),
        None => (by_row(func, tys.to_vec()), Class::Function),
    }
}

/// An approximate function.
pub fn approx(f: Approx) -> Box<PureFn> {
    match f.row().meaning {
        Near::One(f) => map1(f),
        Near::Two(f) => map2(f),
    }
}

fn f32_call(func: Func) -> Option<Box<PureFn>> {
    Some(match func {
        Func::Add => map2(|a: f32, b: f32| a + b),
        Func::Sub => map2(|a: f32, b: f32| a - b),
        Func::Mul => map2(|a: f32, b: f32| a * b),
        Func::Div => map2(|a: f32, b: f32| a / b),
        Func::Min => map2(min32),
        Func::Max => map2(max32),
        Func::Fma => fma32(),
        Func::Neg => map1(|a: f32| -a),
        Func::Abs => map1(f32::abs),
        Func::Sqrt => map1(f32::sqrt),
        Func::Floor => map1(f32::floor),
        Func::Ceil => map1(f32::ceil),
        Func::Trunc => map1(f32::trunc),
        Func::Round => map1(f32::round_ties_even),
        Func::Copysign => map2(f32::copysign),
        Func::Bits => copy::<u32>(),
        Func::Eq => test2(|a: f32, b: f32| a == b),
        Func::Ne => test2(|a: f32, b: f32| a != b),
        Func::Lt => test2(|a: f32, b: f32| a < b),
        Func::Le => test2(|a: f32, b: f32| a <= b),
        Func::IsNan => test1(f32::is_nan),
        Func::IsInf => test1(f32::is_infinite),
        Func::IsFinite => test1(f32::is_finite),
        _ => return None,
    })
}

fn f64_call(func: Func) -> Option<Box<PureFn>> {
    Some(match func {
        Func::Add => map2(|a: f64, b: f64| a + b),
        Func::Sub => map2(|a: f64, b: f64| a - b),
        Func::Mul => map2(|a: f64, b: f64| a * b),
        Func::Div => map2(|a: f64, b: f64| a / b),
        Func::Min => map2(min64),
        Func::Max => map2(max64),
        Func::Fma => map3(f64::mul_add),
        Func::Neg => map1(|a: f64| -a),
        Func::Abs => map1(f64::abs),
        Func::Sqrt => map1(f64::sqrt),
        Func::Floor => map1(f64::floor),
        Func::Ceil => map1(f64::ceil),
        Func::Trunc => map1(f64::trunc),
        Func::Round => map1(f64::round_ties_even),
        Func::Copysign => map2(f64::copysign),
        Func::Bits => copy::<u64>(),
        Func::Eq => test2(|a: f64, b: f64| a == b),
        Func::Ne => test2(|a: f64, b: f64| a != b),
        Func::Lt => test2(|a: f64, b: f64| a < b),
        Func::Le => test2(|a: f64, b: f64| a <= b),
        Func::IsNan => test1(f64::is_nan),
        Func::IsInf => test1(f64::is_infinite),
        Func::IsFinite => test1(f64::is_finite),
        _ => return None,
    })
}

fn i32_call(func: Func) -> Option<Box<PureFn>> {
    Some(match func {
        Func::Add => map2(i32::wrapping_add),
        Func::Sub => map2(i32::wrapping_sub),
        Func::Mul => map2(i32::wrapping_mul),
        Func::Div => map2(|a: i32, b: i32| floor_div(a as i64, b as i64) as i32),
        Func::Rem => map2(|a: i32, b: i32| floor_rem(a as i64, b as i64) as i32),
        Func::Min => map2(i32::min),
        Func::Max => map2(i32::max),
        Func::And => map2(|a: i32, b: i32| a & b),
        Func::Or => map2(|a: i32, b: i32| a | b),
        Func::Xor => map2(|a: i32, b: i32| a ^ b),
        Func::Not => map1(|a: i32| !a),
        Func::Neg => map1(i32::wrapping_neg),
        Func::Abs => map1(i32::wrapping_abs),
        Func::FromBits => copy::<u32>(),
        Func::Eq => test2(|a: i32, b: i32| a == b),
        Func::Ne => test2(|a: i32, b: i32| a != b),
        Func::Lt => test2(|a: i32, b: i32| a < b),
        Func::Le => test2(|a: i32, b: i32| a <= b),
        _ => return None,
    })
}

fn i64_call(func: Func) -> Option<Box<PureFn>> {
    Some(match func {
        Func::Add => map2(i64::wrapping_add),
        Func::Sub => map2(i64::wrapping_sub),
        Func::Mul => map2(i64::wrapping_mul),
        Func::Div => map2(floor_div),
        Func::Rem => map2(floor_rem),
        Func::Min => map2(i64::min),
        Func::Max => map2(i64::max),
        Func::And => map2(|a: i64, b: i64| a & b),
        Func::Or => map2(|a: i64, b: i64| a | b),
        Func::Xor => map2(|a: i64, b: i64| a ^ b),
        Func::Not => map1(|a: i64| !a),
        Func::Neg => map1(i64::wrapping_neg),
        Func::Abs => map1(i64::wrapping_abs),
        Func::FromBits => copy::<u64>(),
        Func::Eq => test2(|a: i64, b: i64| a == b),
        Func::Ne => test2(|a: i64, b: i64| a != b),
        Func::Lt => test2(|a: i64, b: i64| a < b),
        Func::Le => test2(|a: i64, b: i64| a <= b),
        _ => return None,
    })
}

fn bool_call(func: Func) -> Option<Box<PureFn>> {
    Some(match func {
        Func::And => logic(|a, b| a & b),
        Func::Or => logic(|a, b| a | b),
        Func::Xor | Func::Ne => logic(|a, b| a ^ b),
        Func::Not => logic(|a, _| !a),
        Func::Eq => logic(|a, b| !(a ^ b)),
        Func::Lt => logic(|a, b| !a & b),
        Func::Le => logic(|a, b| !a | b),
        _ => return None,
    })
}

/// Propagates NaN; −0 < +0 (equal values differ at most in their sign bit).
fn min32(a: f32, b: f32) -> f32 {
    if a < b || a.is_nan() {
        a
    } else if a == b {
        f32::from_bits(a.to_bits() | b.to_bits())
    } else {
        b
    }
}

fn max32(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() {
        a
    } else if a == b {
        f32::from_bits(a.to_bits() & b.to_bits())
    } else {
        b
    }
}

fn min64(a: f64, b: f64) -> f64 {
    if a < b || a.is_nan() {
        a
    } else if a == b {
        f64::from_bits(a.to_bits() | b.to_bits())
    } else {
        b
    }
}

fn max64(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() {
        a
    } else if a == b {
        f64::from_bits(a.to_bits() & b.to_bits())
    } else {
        b
    }
}

/// Floors; x/0 is 0, MIN/−1 wraps.
fn floor_div(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    let q = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
}

/// Sign of the divisor; x%0 is x.
fn floor_rem(a: i64, b: i64) -> i64 {
    if b == 0 {
        return a;
    }
    let r = a.wrapping_rem(b);
    if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx,fma")]
fn fma32_lanes(d: &mut [f32; LANES], a: &[f32; LANES], b: &[f32; LANES], c: &[f32; LANES]) {
    for i in 0..LANES {
        d[i] = a[i].mul_add(b[i], c[i]);
    }
}

/// With the machine's fma where it has one; `mul_add` is exact everywhere, but slow without.
fn fma32() -> Box<PureFn> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("fma") && std::arch::is_x86_feature_detected!("avx") {
        return Box::new(|regs, d, [a, b, c], _| {
            let (a, b, c) = (*regs.get::<f32>(a), *regs.get::<f32>(b), *regs.get::<f32>(c));
            // SAFETY: the machine has both features (checked where this closure is made).
            unsafe { fma32_lanes(regs.get_mut::<f32>(d), &a, &b, &c) }
        });
    }
    map3(f32::mul_add)
}

/// Any function, lane by lane, by the vocabulary's row.
fn by_row(func: Func, tys: Vec<Ty>) -> Box<PureFn> {
    if let (Meaning::Float1(f), Ty::F32) = (func.row().meaning, tys[0]) {
        return Box::new(move |regs, d, [a, ..], mask| {
            for lane in lanes(mask) {
                regs.get_mut::<f32>(d)[lane] = f(regs.get::<f32>(a)[lane] as f64) as f32;
            }
        });
    }
    Box::new(move |regs, d, args, mask| {
        let mut values = [Value::I32(0); 3];
        for lane in lanes(mask) {
            for (i, &ty) in tys.iter().enumerate() {
                values[i] = value(regs, args[i], ty, lane);
            }
            set_value(regs, d, lane, func.eval(&values[..tys.len()]));
        }
    })
}

/// One lane of a register as a value (U32 and U64 as the signed type of their width).
pub fn value(regs: &Regs, r: Reg, ty: Ty, lane: usize) -> Value {
    match ty {
        Ty::Bool => Value::Bool(regs.mask(r) >> lane & 1 != 0),
        Ty::I32 | Ty::U32 => Value::I32(regs.get::<i32>(r)[lane]),
        Ty::I64 | Ty::U64 => Value::I64(regs.get::<i64>(r)[lane]),
        Ty::F32 => Value::F32(regs.get::<f32>(r)[lane]),
        Ty::F64 => Value::F64(regs.get::<f64>(r)[lane]),
    }
}

pub fn set_value(regs: &mut Regs, r: Reg, lane: usize, value: Value) {
    match value {
        Value::Bool(b) => {
            let mask = regs.mask(r) & !(1 << lane) | (b as u32) << lane;
            regs.set_mask(r, mask);
        }
        Value::I32(v) => regs.get_mut::<i32>(r)[lane] = v,
        Value::I64(v) => regs.get_mut::<i64>(r)[lane] = v,
        Value::F32(v) => regs.get_mut::<f32>(r)[lane] = v,
        Value::F64(v) => regs.get_mut::<f64>(r)[lane] = v,
    }
}

/// Machine arithmetic that cannot fail; `None` for division and shifts, which the interpreter checks.
pub fn int(op: IntOp, ty: Ty) -> Option<Box<PureFn>> {
    Some(match (op, ty) {
        (IntOp::Div | IntOp::Rem | IntOp::Shl | IntOp::Shr, _) => return None,
        (IntOp::Add, Ty::I32 | Ty::U32) => map2(u32::wrapping_add),
        (IntOp::Sub, Ty::I32 | Ty::U32) => map2(u32::wrapping_sub),
        (IntOp::Mul, Ty::I32 | Ty::U32) => map2(u32::wrapping_mul),
        (IntOp::And, Ty::I32 | Ty::U32) => map2(|a: u32, b: u32| a & b),
        (IntOp::Or, Ty::I32 | Ty::U32) => map2(|a: u32, b: u32| a | b),
        (IntOp::Xor, Ty::I32 | Ty::U32) => map2(|a: u32, b: u32| a ^ b),
        (IntOp::Min, Ty::I32) => map2(i32::min),
        (IntOp::Max, Ty::I32) => map2(i32::max),
        (IntOp::Min, Ty::U32) => map2(u32::min),
        (IntOp::Max, Ty::U32) => map2(u32::max),
        (IntOp::Add, _) => map2(u64::wrapping_add),
        (IntOp::Sub, _) => map2(u64::wrapping_sub),
        (IntOp::Mul, _) => map2(u64::wrapping_mul),
        (IntOp::And, _) => map2(|a: u64, b: u64| a & b),
        (IntOp::Or, _) => map2(|a: u64, b: u64| a | b),
        (IntOp::Xor, _) => map2(|a: u64, b: u64| a ^ b),
        (IntOp::Min, Ty::I64) => map2(i64::min),
        (IntOp::Max, Ty::I64) => map2(i64::max),
        (IntOp::Min, _) => map2(u64::min),
        (IntOp::Max, _) => map2(u64::max),
    })
}

/// Division or a shift by a constant that is in the domain for every left operand that is not negative; `None`
/// where the interpreter has to look (a signed left operand of a division).
pub fn int_by(op: IntOp, ty: Ty, by: i64) -> Option<Box<PureFn>> {
    let (word, n) = (by as u32, by as u64);
    let width = crate::ir::simt_verify::bits(ty) as i64;
    Some(match (op, ty) {
        (IntOp::Shl | IntOp::Shr, _) if !(0..width).contains(&by) => return None,
        (IntOp::Div | IntOp::Rem, _) if by <= 0 => return None,
        (IntOp::Shl, Ty::I32 | Ty::U32) => map1(move |a: u32| a << word),
        (IntOp::Shl, _) => map1(move |a: u64| a << n),
        (IntOp::Shr, Ty::I32) => map1(move |a: i32| a >> word),
        (IntOp::Shr, Ty::U32) => map1(move |a: u32| a >> word),
        (IntOp::Shr, Ty::I64) => map1(move |a: i64| a >> n),
        (IntOp::Shr, _) => map1(move |a: u64| a >> n),
        (IntOp::Div, Ty::U32) => map1(move |a: u32| a / word),
        (IntOp::Rem, Ty::U32) => map1(move |a: u32| a % word),
        (IntOp::Div, Ty::U64) => map1(move |a: u64| a / n),
        (IntOp::Rem, Ty::U64) => map1(move |a: u64| a % n),
        _ => return None,
    })
}

/// The same in a cluster, where the number of the block in it stands above the 24 lowest bits, as on the device.
pub fn shared_address_of_block(base: u32, bits: u32, index: Ty, cluster: u32) -> Box<PureFn> {
    let rank = move |block: i32| (block as u32 % cluster) << super::cluster::WINDOW;
    let byte = move |i: i64| base.wrapping_add((i.wrapping_mul(bits as i64) >> 3) as u32);
    match index {
        Ty::I64 => map2(move |i: i64, block: i32| byte(i) | rank(block)),
        _ => map2(move |i: i32, block: i32| byte(i as i64) | rank(block)),
    }
}

/// Byte address of an element of a shared array.
pub fn shared_address(base: u32, bits: u32, index: Ty) -> Box<PureFn> {
    match index {
        Ty::I64 => map1(move |i: i64| base.wrapping_add((i.wrapping_mul(bits as i64) >> 3) as u32)),
        _ => map1(move |i: i32| base.wrapping_add((i as i64 * bits as i64 >> 3) as u32)),
    }
}

pub fn compare(op: CmpOp, ty: Ty) -> Box<PureFn> {
    match ty {
        Ty::Bool => compare_bool(op),
        Ty::I32 => compare_as::<i32>(op),
        Ty::U32 => compare_as::<u32>(op),
        Ty::I64 => compare_as::<i64>(op),
        Ty::U64 => compare_as::<u64>(op),
        Ty::F32 => compare_as::<f32>(op),
        Ty::F64 => compare_as::<f64>(op),
    }
}

fn compare_as<T: Lane + PartialOrd>(op: CmpOp) -> Box<PureFn> {
    match op {
        CmpOp::Lt => test2(|a: T, b: T| a < b),
        CmpOp::Le => test2(|a: T, b: T| a <= b),
        CmpOp::Gt => test2(|a: T, b: T| a > b),
        CmpOp::Ge => test2(|a: T, b: T| a >= b),
        CmpOp::Eq => test2(|a: T, b: T| a == b),
        CmpOp::Ne => test2(|a: T, b: T| a != b),
    }
}

fn compare_bool(op: CmpOp) -> Box<PureFn> {
    match op {
        CmpOp::Lt => logic(|a, b| !a & b),
        CmpOp::Le => logic(|a, b| !a | b),
        CmpOp::Gt => logic(|a, b| a & !b),
        CmpOp::Ge => logic(|a, b| a | !b),
        CmpOp::Eq => logic(|a, b| !(a ^ b)),
        CmpOp::Ne => logic(|a, b| a ^ b),
    }
}

pub fn select_of(ty: Ty) -> Box<PureFn> {
    match Width::of(ty) {
        Width::Mask => select_mask(),
        Width::Word => select::<u32>(),
        Width::Wide => select::<u64>(),
    }
}

pub fn copy_of(width: Width) -> Box<PureFn> {
    match width {
        Width::Mask => logic(|a, _| a),
        Width::Word => copy::<u32>(),
        Width::Wide => copy::<u64>(),
    }
}

/// Conversion between types: saturating among the language's types, plain among integers of machine types.
pub fn cast(to: Ty, from: Ty) -> Box<PureFn> {
    match (from, to) {
        _ if from == to => copy_of(Width::of(to)),
        (Ty::Bool, Ty::I32 | Ty::U32) => from_mask(0u32, 1),
        (Ty::Bool, Ty::I64 | Ty::U64) => from_mask(0u64, 1),
        (Ty::Bool, Ty::F32) => from_mask(0f32, 1.0),
        (Ty::Bool, _) => from_mask(0f64, 1.0),
        (Ty::F32, Ty::Bool) => test1(|a: f32| a != 0.0),
        (Ty::F64, Ty::Bool) => test1(|a: f64| a != 0.0),
        (Ty::I32 | Ty::U32, Ty::Bool) => test1(|a: u32| a != 0),
        (Ty::I64 | Ty::U64, Ty::Bool) => test1(|a: u64| a != 0),
        (Ty::I32, Ty::U32) | (Ty::U32, Ty::I32) => copy::<u32>(),
        (Ty::I64, Ty::U64) | (Ty::U64, Ty::I64) => copy::<u64>(),
        // i64 to i32 is a conversion of the language: it saturates.
        (Ty::I64, Ty::I32) => map1(|a: i64| a.clamp(i32::MIN as i64, i32::MAX as i64) as i32),
        (Ty::I64 | Ty::U64, Ty::U32 | Ty::I32) => map1(|a: u64| a as u32),
        (Ty::I32, Ty::I64 | Ty::U64) => map1(|a: i32| a as i64),
        (Ty::U32, Ty::I64 | Ty::U64) => map1(|a: u32| a as u64),
        (Ty::I32, Ty::F32) => map1(|a: i32| a as f32),
        (Ty::I32, Ty::F64) => map1(|a: i32| a as f64),
        (Ty::U32, Ty::F32) => map1(|a: u32| a as f32),
        (Ty::U32, Ty::F64) => map1(|a: u32| a as f64),
        (Ty::I64, Ty::F32) => map1(|a: i64| a as f32),
        (Ty::I64, Ty::F64) => map1(|a: i64| a as f64),
        (Ty::U64, Ty::F32) => map1(|a: u64| a as f32),
        (Ty::U64, Ty::F64) => map1(|a: u64| a as f64),
        (Ty::F32, Ty::I32) => map1(|a: f32| a as i32),
        (Ty::F32, Ty::I64) => map1(|a: f32| a as i64),
        (Ty::F32, Ty::U32) => map1(|a: f32| a as u32),
        (Ty::F32, Ty::U64) => map1(|a: f32| a as u64),
        (Ty::F32, _) => map1(|a: f32| a as f64),
        (Ty::F64, Ty::I32) => map1(|a: f64| a as i32),
        (Ty::F64, Ty::I64) => map1(|a: f64| a as i64),
        (Ty::F64, Ty::U32) => map1(|a: f64| a as u32),
        (Ty::F64, Ty::U64) => map1(|a: f64| a as u64),
        (Ty::F64, _) => map1(|a: f64| a as f32),
        // Equal types were taken by the first arm.
        (Ty::I32 | Ty::U32, _) => copy::<u32>(),
        (Ty::I64 | Ty::U64, _) => copy::<u64>(),
    }
}

/// Rounds a value of any compute type to a dtype, once.
pub fn round(to: DType, from: Ty) -> Box<PureFn> {
    let compute = to.compute();
    if Ty::of(compute) == from {
        return match compute {
            dtype::Ty::F32 | dtype::Ty::I32 if to.bits() < 32 => map1(move |w: u32| codec::round(to, w)),
            _ => copy_of(Width::of(from)),
        };
    }
    Box::new(move |regs, d, [a, ..], mask| {
        for lane in lanes(mask) {
            let v = host::round(value(regs, a, from, lane), to);
            set_value(regs, d, lane, v);
        }
    })
}

pub fn pack2(dtype: DType) -> Box<PureFn> {
    map2(move |a: u32, b: u32| codec::encode(dtype, a) | codec::encode(dtype, b) << 16)
}

pub fn unpack2(dtype: DType, half: u8) -> Box<PureFn> {
    let shift = 16 * half as u32;
    map1(move |w: u32| codec::decode(dtype, w >> shift & 0xffff))
}
