//! The run time: NVRTC, the cubin cache, devices, buffers and launches. The only crate that knows the driver.

pub mod cache;
pub mod error;
pub mod locate;
pub mod nvrtc;

pub use error::{Error, Result};
