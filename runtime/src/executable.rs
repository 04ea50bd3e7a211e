//! A program whose kernels are loaded on a device.

use crate::compile::Cubin;
use crate::device::Device;
use crate::driver::check;
use crate::error::{Error, Result};
use crate::nvrtc::CompileReport;
use cudarc::driver::sys::{self, CUfunction_attribute as Attribute};
use girih_compiler::ir::program::Program;
use girih_compiler::ir::simt::Kernel;
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// Dynamic shared memory that a kernel may have without asking.
const SHARED_WITHOUT_ASKING: u32 = 48 << 10;

/// A loaded program. Clones share the module; usable from every thread.
#[derive(Clone, Debug)]
pub struct Executable(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    program: Arc<Program>,
    report: CompileReport,
    kernels: Vec<LoadedKernel>,
    module: Arc<Module>,
}

/// A kernel as the driver wants it launched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadedKernel {
    pub function: sys::CUfunction,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: Option<[u32; 3]>,
    /// Launched before the kernel before it has ended.
    pub early: bool,
    pub shared: u32,
}

// SAFETY: functions belong to a module and may be launched from any thread on which its context is current.
unsafe impl Send for Loaded {}
unsafe impl Sync for Loaded {}

#[derive(Debug)]
struct Module {
    device: Device,
    raw: sys::CUmodule,
}

// SAFETY: a module may be used and unloaded from any thread on which its context is current, and each use enters it.
unsafe impl Send for Module {}
unsafe impl Sync for Module {}

impl Drop for Module {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: loaded by `Module::load`, unloaded once.
            unsafe { sys::cuModuleUnload(self.raw) };
        }
    }
}

impl Module {
    fn load(device: &Device, cubin: &[u8]) -> Result<Module> {
        let _entered = device.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the image is a whole cubin, as NVRTC made it or as a checked cache entry held it.
        check("cuModuleLoadData", unsafe {
            sys::cuModuleLoadData(&mut raw, cubin.as_ptr().cast::<c_void>())
        })?;
        Ok(Module { device: device.clone(), raw })
    }

    fn function(&self, name: &str) -> Result<sys::CUfunction> {
        let c_name = CString::new(name).map_err(|_| Error::argument(name, "a kernel's name holds a NUL"))?;
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is live and its context current.
        check("cuModuleGetFunction", unsafe {
            sys::cuModuleGetFunction(&mut function, self.raw, c_name.as_ptr())
        })?;
        Ok(function)
    }
}

impl Executable {
    /// Loads a program's cubin. What the device cannot launch is refused here, by kernel and number.
    pub fn load(device: &Device, program: Arc<Program>, cubin: &Cubin) -> Result<Executable> {
        for kernel in &program.kernels {
            check_limits(kernel, device)?;
        }
        let module = Arc::new(Module::load(device, &cubin.code)?);
        let _entered = device.enter()?;
        let kernels = program.kernels.iter().map(|k| load_kernel(&module, k)).collect::<Result<_>>()?;
        Ok(Executable(Arc::new(Loaded { program, report: cubin.report.clone(), kernels, module })))
    }

    /// The same code launched by another program, whose kernels are these but for what is given at launch.
    pub fn with_program(&self, program: Arc<Program>) -> Result<Executable> {
        if program.kernels.len() != self.0.kernels.len() {
            return Err(Error::argument(&program.name, "its kernels are not those that are loaded"));
        }
        for kernel in &program.kernels {
            check_limits(kernel, self.device())?;
        }
        let kernels =
            self.0.kernels.iter().zip(&program.kernels).map(|(k, p)| LoadedKernel { grid: p.grid, ..*k });
        let kernels = kernels.collect();
        let (report, module) = (self.0.report.clone(), self.0.module.clone());
        Ok(Executable(Arc::new(Loaded { program, report, kernels, module })))
    }

    pub fn program(&self) -> &Program {
        &self.0.program
    }

    pub fn device(&self) -> &Device {
        &self.0.module.device
    }

    /// What NVRTC said about the kernels.
    pub fn report(&self) -> &CompileReport {
        &self.0.report
    }

    pub(crate) fn kernel(&self, index: usize) -> LoadedKernel {
        self.0.kernels[index]
    }
}

fn check_limits(kernel: &Kernel, device: &Device) -> Result<()> {
    let limit = |what, needs: u64, has: u64| {
        if needs <= has {
            return Ok(());
        }
        Err(Error::Resource { kernel: kernel.name.clone(), what, needs, has })
    };
    limit("bytes of shared memory", kernel.shared_bytes().into(), device.info().shared_per_block.into())?;
    limit("threads of a block", kernel.threads().into(), 1024)?;
    limit("blocks along x", kernel.grid[0].into(), (1 << 31) - 1)?;
    limit("blocks along y", kernel.grid[1].into(), 65535)?;
    limit("blocks along z", kernel.grid[2].into(), 65535)
}

/// Finds the function and raises its shared-memory limit. The limit belongs to this function of this context, and
/// nobody else has seen the function yet, so there is no race and no flag.
fn load_kernel(module: &Module, kernel: &Kernel) -> Result<LoadedKernel> {
    let function = module.function(&kernel.name)?;
    let shared = kernel.dynamic_shared_bytes();
    if shared > SHARED_WITHOUT_ASKING {
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is live and its context current.
        check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(function, attribute, shared as i32) })?;
    }
    let cluster = Some(kernel.cluster).filter(|c| c.iter().product::<u32>() > 1);
    let early = kernel.starts_early();
    Ok(LoadedKernel { function, grid: kernel.grid, block: kernel.block, cluster, early, shared })
}
