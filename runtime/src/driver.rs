//! The CUDA driver: is it there, does it start, and its calls as typed results.
//!
//! cudarc loads libcuda at the first call and panics when it or one of its functions is missing. So everything
//! goes through [`start`], which looks for the library first and asks its version before anything newer is called.

use crate::error::{Error, Result};
use cudarc::driver::sys::{self, CUresult};
use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

/// The oldest driver with every function that is used (`1000 * major + 10 * minor`).
pub const OLDEST: i32 = 12080;

/// Starts the driver once in this process, and tells the CUDA version that it supports.
pub fn start() -> Result<i32> {
    static STARTED: OnceLock<Result<i32>> = OnceLock::new();
    STARTED.get_or_init(try_start).clone()
}

fn try_start() -> Result<i32> {
    // SAFETY: loads the library, which has no preconditions.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error::NoDriver { why: "libcuda.so was not found".into() });
    }
    let mut version = 0;
    // SAFETY: the library is there; both functions are in every version of it.
    let codes = unsafe { [sys::cuDriverGetVersion(&mut version), sys::cuInit(0)] };
    if codes[0] == CUresult::CUDA_SUCCESS && version < OLDEST {
        return Err(Error::DriverTooOld { has: version, needs: OLDEST });
    }
    match codes.into_iter().find(|&c| c != CUresult::CUDA_SUCCESS) {
        None => Ok(version),
        Some(code) => {
            let (name, text) = words(code);
            Err(Error::NoDriver { why: format!("libcuda does not start: {name} ({text})") })
        }
    }
}

/// A driver call's result.
pub(crate) fn check(call: &'static str, code: CUresult) -> Result<()> {
    if code == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let (name, text) = words(code);
    Err(Error::Driver { call, name, text })
}

/// The driver's name and description of an error.
fn words(code: CUresult) -> (String, String) {
    let ask = |f: unsafe fn(CUresult, *mut *const c_char) -> CUresult| {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the driver stores a pointer to a static string, or null for a code that it does not know.
        unsafe {
            f(code, &mut text);
            if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        }
    };
    (ask(sys::cuGetErrorName), ask(sys::cuGetErrorString))
}
