//! The run time: NVRTC, the cubin cache, devices, buffers and launches. The only crate that knows the driver.

pub mod buffer;
pub mod cache;
pub mod child;
pub mod clocks;
pub mod compile;
pub mod device;
pub mod driver;
pub mod error;
pub mod executable;
pub mod graph;
pub mod launch;
pub mod locate;
pub mod nvrtc;
pub mod stream;
mod tensor_map;
pub mod timer;

pub use buffer::{DeviceBuffer, DevicePointer, PinnedBuffer};
pub use cache::Cache;
pub use device::{Device, DeviceInfo};
pub use error::{Error, Result};
pub use executable::Executable;
pub use graph::Graph;
pub use launch::{Arguments, Fault, Prepared};
pub use stream::{Event, Stream};
