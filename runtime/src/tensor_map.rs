//! Tensor maps: what copies of boxes know of their tensor, encoded by the driver once for each prepared launch.

use crate::buffer::DevicePointer;
use crate::driver::check;
use crate::error::{Error, Result};
use cudarc::driver::sys;
use girih_compiler::ir::simt::{Pixels, Swizzle, TensorMap};
use girih_compiler::vocab::dtype::DType;

/// Encodes a map over a buffer.
pub(crate) fn encode(map: &TensorMap, buffer: DevicePointer) -> Result<sys::CUtensorMap> {
    // SAFETY: all-zero is a valid value of this plain C struct, which the driver overwrites.
    let mut encoded: sys::CUtensorMap = unsafe { std::mem::zeroed() };
    let dims: Vec<u64> = map.dims.iter().map(|&d| d as u64).collect();
    let strides: Vec<u64> = map.strides.iter().map(|&s| s as u64).collect();
    if let Some(pixels) = &map.pixels {
        return encode_pixels(map, pixels, buffer, &dims, &strides);
    }
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

/// Bytes of a tensor below which drivers up to [`LAST_WRONG`] set a bit of its map that must be clear.
const SMALL: i64 = 1 << 17;
const LAST_WRONG: i32 = 13010;

fn encode_pixels(
    map: &TensorMap,
    pixels: &Pixels,
    buffer: DevicePointer,
    dims: &[u64],
    strides: &[u64],
) -> Result<sys::CUtensorMap> {
    // SAFETY: all-zero is a valid value of this plain C struct, which the driver overwrites.
    let mut encoded: sys::CUtensorMap = unsafe { std::mem::zeroed() };
    let steps: Vec<u32> = [1].into_iter().chain(pixels.step.iter().copied()).chain([1]).collect();
    // SAFETY: the arrays have the rank's entries (one stride less, two corners' entries less) and live through the
    // call; the driver keeps the address as a number.
    check("cuTensorMapEncodeIm2col", unsafe {
        sys::cuTensorMapEncodeIm2col(
            &mut encoded,
            data_type(map.dtype)?,
            map.dims.len() as u32,
            (buffer.address + map.offset as u64) as *mut std::ffi::c_void,
            dims.as_ptr(),
            strides.as_ptr(),
            pixels.lower.as_ptr(),
            pixels.upper.as_ptr(),
            map.extent[0],
            map.extent[1],
            steps.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle(map.swizzle),
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    })?;
    let mut version = 0;
    // SAFETY: the pointer is to a local that outlives the call.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) })?;
    let last = map.dims.iter().skip(1).zip(&map.strides).map(|(n, s)| (n - 1) * s).sum::<i64>();
    let bytes = last + map.dims[0] * map.dtype.bits() as i64 / 8;
    if version <= LAST_WRONG && bytes < SMALL {
        encoded.opaque[1] &= !(1 << 21);
    }
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
