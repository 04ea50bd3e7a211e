//! Dtypes (what is stored) and compute types (what is computed in), and values of compute types.

/// What a tensor's elements are stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    F64,
    F32,
    F16,
    BF16,
    E4M3,
    E5M2,
    I64,
    I32,
    I16,
    I8,
    U8,
    I4,
    U4,
    Bool,
}

/// What an expression is computed in. Index values (axes, sizes) are `I64` here; the lowering narrows them to
/// 32 bits where their range is known to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ty {
    Bool,
    I32,
    I64,
    F32,
    F64,
}

/// A value of a compute type.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    Bool(bool),
    I32(i32),
    I64(i64),
    F32(f32),
    F64(f64),
}

/// One row a dtype.
pub struct DTypeRow {
    pub dtype: DType,
    /// Its name in the language.
    pub name: &'static str,
    pub bits: u32,
    pub compute: Ty,
    /// Its name in a safetensors file (`i4`/`u4` are stored as `U8`, two a byte).
    pub safetensors: &'static str,
    /// Least and greatest integer; for floats, unused.
    pub int_range: (i64, i64),
    /// Significant bits (with the hidden one), for floats; 0 for others.
    pub mantissa: u32,
    /// Exponent of the smallest normal value, for floats.
    pub min_exponent: i32,
}

const fn float(
    dtype: DType,
    name: &'static str,
    bits: u32,
    compute: Ty,
    st: &'static str,
    mantissa: u32,
    min_exponent: i32,
) -> DTypeRow {
    DTypeRow { dtype, name, bits, compute, safetensors: st, int_range: (0, 0), mantissa, min_exponent }
}

const fn int(
    dtype: DType,
    name: &'static str,
    bits: u32,
    compute: Ty,
    st: &'static str,
    lo: i64,
    hi: i64,
) -> DTypeRow {
    DTypeRow {
        dtype,
        name,
        bits,
        compute,
        safetensors: st,
        int_range: (lo, hi),
        mantissa: 0,
        min_exponent: 0,
    }
}

pub const DTYPES: [DTypeRow; 14] = [
    float(DType::F64, "f64", 64, Ty::F64, "F64", 53, -1022),
    float(DType::F32, "f32", 32, Ty::F32, "F32", 24, -126),
    float(DType::F16, "f16", 16, Ty::F32, "F16", 11, -14),
    float(DType::BF16, "bf16", 16, Ty::F32, "BF16", 8, -126),
    float(DType::E4M3, "e4m3", 8, Ty::F32, "F8_E4M3", 4, -6),
    float(DType::E5M2, "e5m2", 8, Ty::F32, "F8_E5M2", 3, -14),
    int(DType::I64, "i64", 64, Ty::I64, "I64", i64::MIN, i64::MAX),
    int(DType::I32, "i32", 32, Ty::I32, "I32", i32::MIN as i64, i32::MAX as i64),
    int(DType::I16, "i16", 16, Ty::I32, "I16", i16::MIN as i64, i16::MAX as i64),
    int(DType::I8, "i8", 8, Ty::I32, "I8", i8::MIN as i64, i8::MAX as i64),
    int(DType::U8, "u8", 8, Ty::I32, "U8", 0, 255),
    int(DType::I4, "i4", 4, Ty::I32, "U8", -8, 7),
    int(DType::U4, "u4", 4, Ty::I32, "U8", 0, 15),
    int(DType::Bool, "bool", 8, Ty::Bool, "BOOL", 0, 1),
];

impl DType {
    pub fn row(self) -> &'static DTypeRow {
        // The table is in the order of the enum (tested below).
        &DTYPES[self as usize]
    }

    pub fn name(self) -> &'static str {
        self.row().name
    }

    pub fn compute(self) -> Ty {
        self.row().compute
    }

    pub fn bits(self) -> u32 {
        self.row().bits
    }

    pub fn is_float(self) -> bool {
        self.row().mantissa > 0
    }

    pub fn is_int(self) -> bool {
        !self.is_float() && self != DType::Bool
    }

    pub fn parse(name: &str) -> Option<DType> {
        DTYPES.iter().find(|r| r.name == name).map(|r| r.dtype)
    }

    /// Bytes of a contiguous tensor of these dims. Packed dtypes start each row (last dim) at a byte.
    pub fn bytes(self, dims: &[i64]) -> i64 {
        match dims.split_last() {
            None => (self.bits() as i64 + 7) / 8,
            Some((last, rest)) => rest.iter().product::<i64>() * ((last * self.bits() as i64 + 7) / 8),
        }
    }
}

impl Ty {
    pub fn name(self) -> &'static str {
        match self {
            Ty::Bool => "bool",
            Ty::I32 => "i32",
            Ty::I64 => "i64",
            Ty::F32 => "f32",
            Ty::F64 => "f64",
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, Ty::F32 | Ty::F64)
    }

    pub fn is_int(self) -> bool {
        matches!(self, Ty::I32 | Ty::I64)
    }

    /// The dtype that stores this type without a rounding.
    pub fn stored(self) -> DType {
        match self {
            Ty::Bool => DType::Bool,
            Ty::I32 => DType::I32,
            Ty::I64 => DType::I64,
            Ty::F32 => DType::F32,
            Ty::F64 => DType::F64,
        }
    }
}

impl Value {
    pub fn ty(self) -> Ty {
        match self {
            Value::Bool(_) => Ty::Bool,
            Value::I32(_) => Ty::I32,
            Value::I64(_) => Ty::I64,
            Value::F32(_) => Ty::F32,
            Value::F64(_) => Ty::F64,
        }
    }

    /// The bits, so that values can be keys (NaN equals itself, −0 differs from +0).
    pub fn key(self) -> (Ty, u64) {
        let bits = match self {
            Value::Bool(b) => b as u64,
            Value::I32(v) => v as u32 as u64,
            Value::I64(v) => v as u64,
            Value::F32(v) => v.to_bits() as u64,
            Value::F64(v) => v.to_bits(),
        };
        (self.ty(), bits)
    }

    /// The value of a type whose bits [`Value::key`] gives.
    pub fn of_bits(ty: Ty, bits: u64) -> Value {
        match ty {
            Ty::Bool => Value::Bool(bits != 0),
            Ty::I32 => Value::I32(bits as u32 as i32),
            Ty::I64 => Value::I64(bits as i64),
            Ty::F32 => Value::F32(f32::from_bits(bits as u32)),
            Ty::F64 => Value::F64(f64::from_bits(bits)),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Value {}

impl std::hash::Hash for Value {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_enum_order() {
        for (i, row) in DTYPES.iter().enumerate() {
            assert_eq!(row.dtype as usize, i, "{}", row.name);
        }
    }
}
