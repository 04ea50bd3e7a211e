//! Tensors in host memory and the codecs of their dtypes.
//!
//! Bytes are as a safetensors file or the device has them: little endian, contiguous in row-major order, `i4` and
//! `u4` two a byte (low nibble first), each row (last dim) starting a byte. Conversions follow LANGUAGE.md section 5
//! and round once, also from f64 and i64.

use crate::vocab::dtype::{DType, Ty, Value};
use half::{bf16, f16};
use std::sync::LazyLock;

/// A contiguous tensor in host memory.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    pub dtype: DType,
    pub dims: Vec<i64>,
    pub data: Vec<u8>,
}

impl HostTensor {
    /// All bytes zero.
    pub fn zeros(dtype: DType, dims: &[i64]) -> HostTensor {
        HostTensor { dtype, dims: dims.to_vec(), data: vec![0; dtype.bytes(dims).max(0) as usize] }
    }

    /// Takes bytes as stored; `None` if their number does not fit.
    pub fn new(dtype: DType, dims: Vec<i64>, data: Vec<u8>) -> Option<HostTensor> {
        (data.len() as i64 == dtype.bytes(&dims)).then_some(HostTensor { dtype, dims, data })
    }

    /// From values in row-major order, each rounded to `dtype`. Missing values are 0.
    pub fn from_values(dtype: DType, dims: &[i64], values: impl IntoIterator<Item = Value>) -> HostTensor {
        let mut t = HostTensor::zeros(dtype, dims);
        let len = t.len();
        for (i, v) in values.into_iter().take(len).enumerate() {
            t.set(i, v);
        }
        t
    }

    pub fn from_f64(dtype: DType, dims: &[i64], values: &[f64]) -> HostTensor {
        HostTensor::from_values(dtype, dims, values.iter().map(|&v| Value::F64(v)))
    }

    pub fn from_i64(dtype: DType, dims: &[i64], values: &[i64]) -> HostTensor {
        HostTensor::from_values(dtype, dims, values.iter().map(|&v| Value::I64(v)))
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.dims.iter().product::<i64>().max(0) as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The row-major position of an index; `None` outside.
    pub fn linear(&self, index: &[i64]) -> Option<usize> {
        linear(&self.dims, index)
    }

    /// The index of a row-major position.
    pub fn index_of(&self, linear: usize) -> Vec<i64> {
        index_of(&self.dims, linear)
    }

    /// The element at a row-major position, in the dtype's compute type.
    pub fn get(&self, i: usize) -> Value {
        let d = &self.data;
        match self.dtype {
            DType::F64 => Value::F64(f64::from_le_bytes(bytes(d, i))),
            DType::F32 => Value::F32(f32::from_le_bytes(bytes(d, i))),
            DType::F16 => Value::F32(f16::from_le_bytes(bytes(d, i)).to_f32()),
            DType::BF16 => Value::F32(bf16::from_le_bytes(bytes(d, i)).to_f32()),
            DType::E4M3 => Value::F32(E4M3.decode(d[i])),
            DType::E5M2 => Value::F32(E5M2.decode(d[i])),
            DType::I64 => Value::I64(i64::from_le_bytes(bytes(d, i))),
            DType::I32 => Value::I32(i32::from_le_bytes(bytes(d, i))),
            DType::I16 => Value::I32(i16::from_le_bytes(bytes(d, i)) as i32),
            DType::I8 => Value::I32(d[i] as i8 as i32),
            DType::U8 => Value::I32(d[i] as i32),
            DType::I4 => Value::I32(((self.nibble(i) ^ 8) as i32) - 8),
            DType::U4 => Value::I32(self.nibble(i) as i32),
            DType::Bool => Value::Bool(d[i] != 0),
        }
    }

    /// Stores a value, rounded to the dtype as a conversion does.
    pub fn set(&mut self, i: usize, value: Value) {
        let v = round(value, self.dtype);
        let d = &mut self.data;
        match (self.dtype, v) {
            (DType::F64, Value::F64(v)) => put(d, i, v.to_le_bytes()),
            (DType::F32, Value::F32(v)) => put(d, i, v.to_le_bytes()),
            (DType::F16, Value::F32(v)) => put(d, i, f16::from_f32(v).to_le_bytes()),
            (DType::BF16, Value::F32(v)) => put(d, i, bf16::from_f32(v).to_le_bytes()),
            (DType::E4M3, Value::F32(v)) => d[i] = E4M3.encode(v as f64),
            (DType::E5M2, Value::F32(v)) => d[i] = E5M2.encode(v as f64),
            (DType::I64, Value::I64(v)) => put(d, i, v.to_le_bytes()),
            (DType::I32, Value::I32(v)) => put(d, i, v.to_le_bytes()),
            (DType::I16, Value::I32(v)) => put(d, i, (v as i16).to_le_bytes()),
            (DType::I8 | DType::U8, Value::I32(v)) => d[i] = v as u8,
            (DType::I4 | DType::U4, Value::I32(v)) => self.set_nibble(i, v as u8 & 15),
            (DType::Bool, Value::Bool(v)) => d[i] = v as u8,
            (dtype, v) => unreachable!("round gives {} in its compute type, not {v:?}", dtype.name()),
        }
    }

    /// The first byte of an element, and for a packed one whether it is the high nibble.
    pub fn place(&self, i: usize) -> (usize, Option<bool>) {
        match self.dtype.bits() {
            4 => {
                let (byte, shift) = self.nibble_place(i);
                (byte, Some(shift > 0))
            }
            bits => (i * bits as usize / 8, None),
        }
    }

    /// Byte and shift of a packed element: rows start at bytes.
    fn nibble_place(&self, i: usize) -> (usize, u32) {
        let row = self.dims.last().map_or(1, |&n| n.max(1) as usize);
        let (r, c) = (i / row, i % row);
        (r * row.div_ceil(2) + c / 2, 4 * (c as u32 % 2))
    }

    fn nibble(&self, i: usize) -> u8 {
        let (byte, shift) = self.nibble_place(i);
        self.data[byte] >> shift & 15
    }

    fn set_nibble(&mut self, i: usize, v: u8) {
        let (byte, shift) = self.nibble_place(i);
        self.data[byte] = self.data[byte] & !(15 << shift) | v << shift;
    }
}

/// The row-major position of an index in these dims; `None` outside.
pub fn linear(dims: &[i64], index: &[i64]) -> Option<usize> {
    let mut at = 0i64;
    for (&n, &i) in dims.iter().zip(index) {
        if i < 0 || i >= n {
            return None;
        }
        at = at * n + i;
    }
    Some(at as usize)
}

/// The index of a row-major position in these dims.
pub fn index_of(dims: &[i64], linear: usize) -> Vec<i64> {
    let mut at = linear as i64;
    let mut index = vec![0; dims.len()];
    for (slot, &n) in index.iter_mut().zip(dims).rev() {
        let n = n.max(1);
        *slot = at % n;
        at /= n;
    }
    index
}

fn bytes<const N: usize>(data: &[u8], i: usize) -> [u8; N] {
    data[i * N..(i + 1) * N].try_into().expect("the slice has N bytes")
}

fn put<const N: usize>(data: &mut [u8], i: usize, v: [u8; N]) {
    data[i * N..(i + 1) * N].copy_from_slice(&v);
}

/// Conversion to another compute type: integers saturate, floats to integers truncate and saturate, NaN gives 0,
/// anything to bool is `!= 0`.
pub fn convert(value: Value, ty: Ty) -> Value {
    match ty {
        Ty::Bool => Value::Bool(match value {
            Value::Bool(b) => b,
            Value::I32(v) => v != 0,
            Value::I64(v) => v != 0,
            Value::F32(v) => v != 0.0,
            Value::F64(v) => v != 0.0,
        }),
        Ty::I32 => Value::I32(match value {
            Value::F32(v) => v as i32,
            Value::F64(v) => v as i32,
            v => as_i64(v).clamp(i32::MIN as i64, i32::MAX as i64) as i32,
        }),
        Ty::I64 => Value::I64(as_i64(value)),
        Ty::F32 => Value::F32(match value {
            Value::F32(v) => v,
            Value::F64(v) => v as f32,
            v => as_i64(v) as f32,
        }),
        Ty::F64 => Value::F64(match value {
            Value::F32(v) => v as f64,
            Value::F64(v) => v,
            v => as_i64(v) as f64,
        }),
    }
}

/// As an i64, by the rules of a conversion.
pub fn as_i64(value: Value) -> i64 {
    match value {
        Value::Bool(b) => b as i64,
        Value::I32(v) => v as i64,
        Value::I64(v) => v,
        Value::F32(v) => v as i64,
        Value::F64(v) => v as i64,
    }
}

/// As an f64: exact but for large i64 values.
pub fn as_f64(value: Value) -> f64 {
    match value {
        Value::Bool(b) => b as i64 as f64,
        Value::I32(v) => v as f64,
        Value::I64(v) => v as f64,
        Value::F32(v) => v as f64,
        Value::F64(v) => v,
    }
}

/// Rounds a value of any compute type to a dtype, once, and gives it in the dtype's compute type.
pub fn round(value: Value, dtype: DType) -> Value {
    match dtype {
        DType::F64 | DType::F32 | DType::I64 | DType::I32 | DType::Bool => convert(value, dtype.compute()),
        DType::F16 | DType::BF16 | DType::E4M3 | DType::E5M2 => match value {
            Value::F32(v) if dtype == DType::F16 => Value::F32(f16::from_f32(v).to_f32()),
            Value::F32(v) if dtype == DType::BF16 => Value::F32(bf16::from_f32(v).to_f32()),
            Value::I64(v) => Value::F32(round_narrow(sticky_f64(v), dtype)),
            v => Value::F32(round_narrow(as_f64(v), dtype)),
        },
        DType::I16 | DType::I8 | DType::U8 | DType::I4 | DType::U4 => {
            let (lo, hi) = dtype.row().int_range;
            Value::I32(as_i64(value).clamp(lo, hi) as i32)
        }
    }
}

/// An i64 as an f64 that rounds to fewer bits as the i64 would (round to odd).
pub fn sticky_f64(v: i64) -> f64 {
    let m = v.unsigned_abs();
    if m < 1 << 53 {
        return v as f64;
    }
    let odd = m & !0x7ff | if m & 0x7ff != 0 { 0x800 } else { 0 };
    (odd as f64).copysign(v as f64)
}

/// Rounds to a float dtype of 16 or 8 bits.
pub fn round_narrow(v: f64, dtype: DType) -> f32 {
    match dtype {
        DType::E4M3 => E4M3.round(v),
        DType::E5M2 => E5M2.round(v),
        _ => {
            let row = dtype.row();
            let r = round_to(v.abs(), row.mantissa as i32, row.min_exponent);
            let top = if dtype == DType::F16 { 65504.0 } else { f32::MAX as f64 };
            (if r > top { f32::INFINITY } else { r as f32 }).copysign(v as f32)
        }
    }
}

/// Rounds a value to `p` significant bits, nearest even, with exponents no less than `min_exponent`.
pub fn round_to(v: f64, p: i32, min_exponent: i32) -> f64 {
    if v == 0.0 || !v.is_finite() {
        return v;
    }
    let exponent = (v.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    let q = exponent.max(min_exponent) - (p - 1);
    (v * power_of_two(-q)).round_ties_even() * power_of_two(q)
}

/// 2^k for a normal result.
fn power_of_two(k: i32) -> f64 {
    f64::from_bits(((k + 1023) as u64) << 52)
}

/// An 8-bit float dtype that saturates.
struct Mini {
    mantissa: i32,
    min_exponent: i32,
    top: f64,
    nan: u8,
    table: [f32; 256],
}

static E4M3: LazyLock<Mini> = LazyLock::new(|| Mini::new(DType::E4M3, 448.0));
static E5M2: LazyLock<Mini> = LazyLock::new(|| Mini::new(DType::E5M2, 57344.0));

impl Mini {
    fn new(dtype: DType, top: f64) -> Mini {
        let row = dtype.row();
        let mut m = Mini {
            mantissa: row.mantissa as i32,
            min_exponent: row.min_exponent,
            top,
            nan: 0x7f,
            table: [0.0; 256],
        };
        for code in 0..=255u8 {
            m.table[code as usize] = m.value(code, dtype);
        }
        m
    }

    fn value(&self, code: u8, dtype: DType) -> f32 {
        let stored = self.mantissa - 1;
        let (e, f) = ((code & 0x7f) as i32 >> stored, (code as i32 & ((1 << stored) - 1)) as f64);
        let last = 0x7f >> stored;
        let v = match (dtype, code & 0x7f) {
            (DType::E4M3, 0x7f) => f64::NAN,
            (DType::E5M2, _) if e == last => {
                if f == 0.0 {
                    f64::INFINITY
                } else {
                    f64::NAN
                }
            }
            _ if e == 0 => f * power_of_two(self.min_exponent - stored),
            _ => (f + (1 << stored) as f64) * power_of_two(self.min_exponent + e - 1 - stored),
        };
        (if code > 0x7f { -v } else { v }) as f32
    }

    fn decode(&self, code: u8) -> f32 {
        self.table[code as usize]
    }

    fn round(&self, v: f64) -> f32 {
        let r = round_to(v.abs(), self.mantissa, self.min_exponent).min(self.top);
        if v.is_nan() { f32::NAN } else { r.copysign(v) as f32 }
    }

    fn encode(&self, v: f64) -> u8 {
        if v.is_nan() {
            return self.nan;
        }
        let a = self.round(v).abs() as f64;
        let stored = self.mantissa - 1;
        let e = ((a.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(self.min_exponent);
        // With the hidden bit in it, the significand itself carries the step from subnormal to normal.
        let k = (a * power_of_two(stored - e)) as i32;
        let code = ((e - self.min_exponent) << stored) + k;
        code as u8 | if v.is_sign_negative() { 0x80 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every finite non-negative value of a format, written from the format's definition.
    fn formula(exponent_bits: u32, mantissa_bits: u32, codes: std::ops::RangeInclusive<u32>) -> Vec<f64> {
        let bias = (1i32 << (exponent_bits - 1)) - 1;
        codes
            .map(|c| {
                let (e, m) = ((c >> mantissa_bits) as i32, (c & ((1 << mantissa_bits) - 1)) as f64);
                let unit = 2f64.powi(-(mantissa_bits as i32));
                if e == 0 { m * unit * 2f64.powi(1 - bias) } else { (1.0 + m * unit) * 2f64.powi(e - bias) }
            })
            .collect()
    }

    fn decode(dtype: DType, code: u8) -> f64 {
        as_f64(HostTensor::new(dtype, vec![], vec![code]).expect("one byte").get(0))
    }

    fn encode(dtype: DType, v: f64) -> u8 {
        let mut t = HostTensor::zeros(dtype, &[]);
        t.set(0, Value::F64(v));
        t.data[0]
    }

    fn check_mini(dtype: DType, exponent_bits: u32, last: u32) {
        let values = formula(exponent_bits, 7 - exponent_bits, 0..=last);
        for (code, &v) in values.iter().enumerate() {
            for (sign, bit) in [(1.0, 0u8), (-1.0, 0x80)] {
                let c = code as u8 | bit;
                assert_eq!(
                    decode(dtype, c).to_bits(),
                    (sign * v).to_bits(),
                    "{} decode {c:#x}",
                    dtype.name()
                );
                assert_eq!(encode(dtype, sign * v), c, "{} encode {}", dtype.name(), sign * v);
            }
        }
        for code in 0..last as usize {
            let (lo, hi) = (values[code], values[code + 1]);
            let mid = (lo + hi) / 2.0;
            let even = if code % 2 == 0 { code } else { code + 1 };
            assert_eq!(encode(dtype, mid) as usize, even, "midpoint {mid}");
            assert_eq!(encode(dtype, f64::from_bits(mid.to_bits() - 1)) as usize, code, "below {mid}");
            assert_eq!(encode(dtype, f64::from_bits(mid.to_bits() + 1)) as usize, code + 1, "above {mid}");
        }
        let top = last as u8;
        for v in [values[last as usize] * 1.01, 1e30, f64::INFINITY] {
            assert_eq!(encode(dtype, v), top);
            assert_eq!(encode(dtype, -v), top | 0x80);
        }
        assert!(decode(dtype, encode(dtype, f64::NAN)).is_nan());
        assert_eq!(encode(dtype, 1e-40), 0);
        assert_eq!(encode(dtype, -0.0), 0x80);
    }

    #[test]
    fn e4m3_is_its_definition() {
        check_mini(DType::E4M3, 4, 0x7e);
        assert!(decode(DType::E4M3, 0x7f).is_nan() && decode(DType::E4M3, 0xff).is_nan());
        // 464 is halfway between 448 and the 480 that the format does not have.
        assert_eq!(decode(DType::E4M3, encode(DType::E4M3, 464.0)), 448.0);
    }

    #[test]
    fn e5m2_is_its_definition() {
        check_mini(DType::E5M2, 5, 0x7b);
        assert_eq!(decode(DType::E5M2, 0x7c), f64::INFINITY);
        assert_eq!(decode(DType::E5M2, 0xfc), f64::NEG_INFINITY);
        assert!((0x7d..=0x7f).all(|c| decode(DType::E5M2, c).is_nan()));
    }

    #[test]
    fn int4_has_all_codes_in_both_places() {
        for byte in 0..=255u8 {
            let t = HostTensor::new(DType::I4, vec![2], vec![byte]).expect("one byte");
            let u = HostTensor::new(DType::U4, vec![2], vec![byte]).expect("one byte");
            for (i, n) in [(0, byte & 15), (1, byte >> 4)] {
                let signed = if n < 8 { n as i32 } else { n as i32 - 16 };
                assert_eq!(t.get(i), Value::I32(signed));
                assert_eq!(u.get(i), Value::I32(n as i32));
                let mut back = HostTensor::zeros(DType::I4, &[2]);
                back.set(i, Value::I32(signed));
                assert_eq!(back.data[0] >> (4 * i), n);
            }
        }
    }

    #[test]
    fn packed_rows_start_at_bytes() {
        let values: Vec<i64> = (0..6).collect();
        let t = HostTensor::from_i64(DType::U4, &[2, 3], &values);
        assert_eq!(t.data, [0x10, 0x02, 0x43, 0x05]);
        assert_eq!((0..6).map(|i| as_i64(t.get(i))).collect::<Vec<_>>(), values);
    }

    #[test]
    fn integers_saturate() {
        for (dtype, v, want) in [
            (DType::I4, 100, 7),
            (DType::I4, -100, -8),
            (DType::U4, -1, 0),
            (DType::U4, 16, 15),
            (DType::I8, 1 << 40, 127),
            (DType::U8, -5, 0),
            (DType::I16, 40000, 32767),
            (DType::I32, i64::MIN, i32::MIN as i64),
        ] {
            assert_eq!(as_i64(round(Value::I64(v), dtype)), want, "{} of {v}", dtype.name());
        }
        assert_eq!(round(Value::F64(300.7), DType::U8), Value::I32(255));
        assert_eq!(round(Value::F64(-2.9), DType::I8), Value::I32(-2));
        assert_eq!(round(Value::F32(f32::NAN), DType::I32), Value::I32(0));
        assert_eq!(round(Value::F64(1e30), DType::I64), Value::I64(i64::MAX));
    }

    #[test]
    fn f64_rounds_once() {
        // Just above a tie of f16: through f32 the excess would be lost, and the tie would go down to even.
        let v = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(round(Value::F64(v), DType::F16), Value::F32(1.0 + 2f32.powi(-10)));
        let v = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
        assert_eq!(round(Value::F64(v), DType::BF16), Value::F32(1.0 + 2f32.powi(-7)));
        let i = (1i64 << 62) + (1 << 54) + 1;
        assert_eq!(round(Value::I64(i), DType::BF16), Value::F32(2f32.powi(62) + 2f32.powi(55)));
        assert_eq!(round(Value::F64(65519.999), DType::F16), Value::F32(65504.0));
        assert_eq!(round(Value::F64(65520.0), DType::F16), Value::F32(f32::INFINITY));
        assert_eq!(round(Value::F64(3.4e38), DType::BF16), Value::F32(f32::INFINITY));
    }

    #[test]
    fn halves_agree_with_their_definition() {
        let finite = formula(5, 10, 0..=0x7bff);
        for (code, pair) in finite.windows(2).enumerate() {
            let mid = (pair[0] + pair[1]) / 2.0;
            let even = if code % 2 == 0 { pair[0] } else { pair[1] };
            assert_eq!(as_f64(round(Value::F64(mid), DType::F16)), even);
            assert_eq!(as_f64(round(Value::F64(mid * (1.0 + 1e-12)), DType::F16)), pair[1]);
            assert_eq!(as_f64(round(Value::F64(-pair[0]), DType::F16)), -pair[0]);
        }
    }

    #[test]
    fn every_bit_pattern_survives() {
        for code in 0..=0xffffu16 {
            for dtype in [DType::F16, DType::BF16, DType::I16] {
                let t = HostTensor::new(dtype, vec![1], code.to_le_bytes().to_vec()).expect("two bytes");
                if as_f64(t.get(0)).is_nan() {
                    continue;
                }
                let mut back = HostTensor::zeros(dtype, &[1]);
                back.set(0, t.get(0));
                assert_eq!(back.data, t.data, "{} {code:#x}", dtype.name());
            }
        }
    }
}
