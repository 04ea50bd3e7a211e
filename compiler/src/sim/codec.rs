//! Stored bits to compute-type values and back, in the shape the lanes want: plain functions on bit patterns.
//!
//! The same conversions as `host.rs` (the tests compare them, exhaustively for 8- and 16-bit dtypes); here they
//! work on raw bits so that a warp's lanes convert without building `Value`s.

use crate::vocab::dtype::{DType, Ty};

/// Whether a dtype's compute type is one 32-bit word (f32 or i32).
pub fn is_word(dtype: DType) -> bool {
    matches!(dtype.compute(), Ty::F32 | Ty::I32)
}

/// Stored bits (in the low part of `raw`) to the 32 bits of the compute value; for dtypes with [`is_word`].
pub fn decode(dtype: DType, raw: u32) -> u32 {
    match dtype {
        DType::BF16 => raw << 16,
        DType::F16 => half::f16::from_bits(raw as u16).to_f32().to_bits(),
        DType::E4M3 => decode_e4m3(raw as u8).to_bits(),
        // e5m2 is the upper half of an f16.
        DType::E5M2 => half::f16::from_bits((raw as u16) << 8).to_f32().to_bits(),
        DType::I16 => raw as u16 as i16 as i32 as u32,
        DType::I8 => raw as u8 as i8 as i32 as u32,
        DType::U8 => raw & 0xff,
        DType::I4 => (((raw << 28) as i32) >> 28) as u32,
        DType::U4 => raw & 0xf,
        _ => raw,
    }
}

/// The 32 bits of a compute value to stored bits: rounds to nearest even, saturates.
pub fn encode(dtype: DType, word: u32) -> u32 {
    let float = f32::from_bits(word);
    match dtype {
        DType::BF16 => half::bf16::from_f32(float).to_bits() as u32,
        DType::F16 => half::f16::from_f32(float).to_bits() as u32,
        DType::E4M3 => encode_fp8(float, 3, 7, 448.0, 0x7f),
        DType::E5M2 => encode_fp8(float, 2, 15, 57344.0, 0x7e),
        DType::I16 | DType::I8 | DType::U8 | DType::I4 | DType::U4 => {
            let (lo, hi) = dtype.row().int_range;
            let bits = (word as i32 as i64).clamp(lo, hi) as u32;
            if dtype.bits() < 16 { bits & ((1 << dtype.bits()) - 1) } else { bits & 0xffff }
        }
        _ => word,
    }
}

/// Rounds a compute value to a dtype and back.
pub fn round(dtype: DType, word: u32) -> u32 {
    decode(dtype, encode(dtype, word))
}

fn decode_e4m3(code: u8) -> f32 {
    let sign = if code & 0x80 != 0 { -1.0 } else { 1.0 };
    let (exponent, mantissa) = ((code >> 3) & 15, (code & 7) as f32);
    match (exponent, code & 7) {
        (15, 7) => f32::from_bits(0x7fc0_0000 | (code as u32 & 0x80) << 24),
        (0, _) => sign * mantissa * 2f32.powi(-9),
        _ => sign * (1.0 + mantissa / 8.0) * 2f32.powi(exponent as i32 - 7),
    }
}

/// f32 to an 8-bit float: `mantissa` stored bits, the exponent's `bias`, the greatest finite value, the code of NaN.
/// Saturates, also from infinities.
fn encode_fp8(x: f32, mantissa: u32, bias: i32, max: f32, nan: u32) -> u32 {
    let sign = (x.to_bits() >> 24) & 0x80;
    if x.is_nan() {
        return sign | nan;
    }
    let magnitude = x.abs();
    if magnitude >= max {
        return sign | fp8_code(max, mantissa, bias);
    }
    sign | fp8_code(magnitude, mantissa, bias)
}

fn fp8_code(magnitude: f32, mantissa: u32, bias: i32) -> u32 {
    let exponent = ((magnitude.to_bits() >> 23) as i32 - 127).max(1 - bias);
    // Units in the last place at this exponent: an integer after rounding, exact before (a power-of-two scaling in f64).
    let units = (magnitude as f64 * 2f64.powi(mantissa as i32 - exponent)).round_ties_even() as u32;
    // A subnormal has the exponent field 0 and no hidden bit; a carry out of the mantissa moves into the exponent.
    let field = (exponent + bias - 1) as u32;
    (field << mantissa) + units
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_small_floats_comes_back() {
        for (dtype, codes) in
            [(DType::E4M3, 256u32), (DType::E5M2, 256), (DType::F16, 65536), (DType::BF16, 65536)]
        {
            for code in 0..codes {
                let value = f32::from_bits(decode(dtype, code));
                if value.is_finite() {
                    assert_eq!(encode(dtype, value.to_bits()), code, "{dtype:?} {code:#x}");
                }
            }
        }
    }

    #[test]
    fn fp8_rounds_to_even_and_saturates() {
        let e4m3 = |x: f32| f32::from_bits(round(DType::E4M3, x.to_bits()));
        assert_eq!(e4m3(f32::INFINITY), 448.0);
        assert_eq!(e4m3(-1e9), -448.0);
        assert_eq!(e4m3(464.0), 448.0);
        assert_eq!(e4m3(17.0), 16.0);
        assert_eq!(e4m3(19.0), 20.0);
        assert_eq!(e4m3(2f32.powi(-10)), 0.0);
        assert_eq!(e4m3(1.5 * 2f32.powi(-9)), 2f32.powi(-8));
        assert!(e4m3(f32::NAN).is_nan());
        let e5m2 = |x: f32| f32::from_bits(round(DType::E5M2, x.to_bits()));
        assert_eq!(e5m2(f32::NEG_INFINITY), -57344.0);
        assert_eq!(e5m2(61440.0), 57344.0);
    }
}
