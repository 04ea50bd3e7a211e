//! Girih compiles a small tiling language to GPU kernels, and runs and checks them.
//!
//! Load a program, choose an op and its sizes, compile it for a device, run it:
//!
//! ```
//! use girih::{Device, HostTensor, Inputs, Kernel, RunOptions};
//! use girih::DType::F32;
//!
//! let text = "op scale[N](x: f32[N], a: f32 = 2) -> (y: f32[N]) { y[i] = a * x[i] }";
//! let kernel = Kernel::from_text("scale.tile", text)?;
//! let scale = kernel.op("scale")?.dim("N", 3).compile(&Device::sim())?;
//! let x = HostTensor::from_f64(F32, &[3], &[1.0, 2.0, 3.0]);
//! let inputs = Inputs { tensors: [("x".into(), x)].into(), ..Inputs::default() };
//! let ran = scale.run(&inputs, &RunOptions::default())?;
//! assert_eq!(ran.outputs["y"], HostTensor::from_f64(F32, &[3], &[2.0, 4.0, 6.0]));
//! # Ok::<(), girih::Error>(())
//! ```
//!
//! What is wrong with a program is told with the place and what to write instead:
//!
//! ```
//! let kernel = girih::Kernel::from_text("f.tile", "op f[N](x: f32[N]) -> (y: f32[N]) { y[i] = z[i] }")?;
//! let wrong = kernel.check(false).unwrap_err();
//! assert!(wrong.to_string().contains("f.tile:1"));
//! # Ok::<(), girih::Error>(())
//! ```
//!
//! On a GPU, a launch takes the caller's device memory and stream. It is checked and bound once, then launched
//! without an allocation, or captured in a CUDA graph:
//!
//! ```no_run
//! use girih::{Device, DeviceBuffer, Kernel, Stream};
//!
//! let device = Device::cuda(0)?;
//! let Device::Cuda(gpu) = &device else { unreachable!() };
//! let scale = Kernel::load("scale.tile")?.op("scale")?.dim("N", 1 << 20).compile(&device)?;
//! let (x, y) = (DeviceBuffer::new(gpu, 4 << 20)?, DeviceBuffer::new(gpu, 4 << 20)?);
//! let stream = Stream::new(gpu)?; // or Stream::from_raw for a stream of another library's
//! let mut launch = scale.prepare(&[("x", x.pointer()), ("y", y.pointer())], &[])?;
//! launch.launch(&stream)?;
//! stream.synchronize()?;
//! launch.status()?; // a fault, if an index through data was out of range
//! # Ok::<(), girih::Error>(())
//! ```

pub mod bench;
pub mod device;
pub mod error;
pub mod execute;
pub mod files;
pub mod inputs;
pub mod kernel;
pub mod launch;
pub mod package;
pub mod pipeline;
pub mod random;
pub mod text;
pub mod tune;

pub use device::Device;
pub use error::{Error, Result};
pub use execute::{Compiled, Inputs, Ran, RunOptions};
pub use girih_compiler::host::HostTensor;
pub use girih_compiler::vocab::dtype::{DType, Value};
pub use girih_runtime as runtime;
pub use girih_runtime::{DeviceBuffer, DevicePointer, Graph, Stream};
pub use kernel::{BoundOp, Kernel, Op};
pub use launch::Launch;

use girih_dsl::source::Sources;

/// A program in the one format; comments are kept.
pub fn format(name: &str, text: &str) -> Result<String> {
    girih_dsl::format(text).map_err(|diagnostics| {
        let mut sources = Sources::default();
        sources.add(name, text);
        Error::Program { text: girih_dsl::render(&sources, &diagnostics, false), diagnostics }
    })
}
