//! Tensor maps: what copies of boxes know of their tensor, encoded by the driver once for each prepared launch.

use crate::buffer::DevicePointer;
use crate::driver::check;
use crate::error::{Error, Result};
use cudarc::driver::sys;
use girih_compiler::ir::simt::{Swizzle, TensorMap};
use girih_compiler::vocab::dtype::DType;

/// Encodes a map over a buffer.
pub(crate) fn encode(map: &TensorMap, buffer: DevicePointer) -> Result<sys::CUtensorMap> {
    // SAFETY: all-zero is a valid value of this plain C struct, which the driver overwrites.
    let mut encoded: sys::CUtensorMap = unsafe { std::mem::zeroed() };
    let dims: Vec<u64> = map.dims.iter().map(|&d| d as u64).collect();
    let strides: Vec<u64> = map.strides.iter().map(|&s| s as u64).collect();
    let steps = vec![1u32; map.dims.len()];
    // SAFETY: the arrays have the rank's entries (one stride less) and live through the call; the driver keeps the
    // address as a number.
    check("cuTensorMapEncodeTiled", unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut encoded,
            data_type(map.dtype)?,
            map.dims.len() as u32,
            (buffer.address + map.offset as u64) as *mut std::ffi::c_void,
            dims.as_ptr(),
            strides.as_ptr(),
            map.extent.as_ptr(),
            steps.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle(map.swizzle),
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    })?;
    Ok(encoded)
}

fn data_type(dtype: DType) -> Result<sys::CUtensorMapDataType> {
    use sys::CUtensorMapDataType as T;
    match dtype {
        DType::F16 => Ok(T::CU_TENSOR_MAP_DATA_TYPE_FLOAT16),
        DType::BF16 => Ok(T::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16),
        DType::F32 => Ok(T::CU_TENSOR_MAP_DATA_TYPE_FLOAT32),
        DType::F64 => Ok(T::CU_TENSOR_MAP_DATA_TYPE_FLOAT64),
        d if d.bits() == 8 => Ok(T::CU_TENSOR_MAP_DATA_TYPE_UINT8),
        d => Err(Error::argument("tensor map", format!("boxes of {} are not copied", d.name()))),
    }
}

fn swizzle(s: Swizzle) -> sys::CUtensorMapSwizzle {
    use sys::CUtensorMapSwizzle as S;
    match s {
        Swizzle::None => S::CU_TENSOR_MAP_SWIZZLE_NONE,
        Swizzle::B32 => S::CU_TENSOR_MAP_SWIZZLE_32B,
        Swizzle::B64 => S::CU_TENSOR_MAP_SWIZZLE_64B,
        Swizzle::B128 => S::CU_TENSOR_MAP_SWIZZLE_128B,
    }
}
