//! Devices: what is there, and a handle whose context every entry point makes current and restores.

use crate::driver::{check, start};
use crate::error::{Error, Result};
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use girih_compiler::vocab::target::Target;
use std::ffi::c_char;
use std::fmt;
use std::sync::Arc;

/// What the driver says about one GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    pub ordinal: usize,
    pub name: String,
    pub compute: (u32, u32),
    pub sms: u32,
    pub memory: u64,
    /// Shared memory that a block may have when it asks for it.
    pub shared_per_block: u32,
    pub l2_bytes: u32,
    /// The greatest clock of the multiprocessors, Hz.
    pub clock: f64,
    /// What the memory's clock and bus width allow, bytes a second.
    pub bandwidth: f64,
    /// The CUDA version that the driver supports, `1000 * major + 10 * minor`.
    pub driver: i32,
}

/// An opened GPU; clones share its context. Usable from every thread.
#[derive(Clone)]
pub struct Device(Arc<Opened>);

struct Opened {
    info: DeviceInfo,
    device: sys::CUdevice,
    context: sys::CUcontext,
}

// SAFETY: a context may be used from any thread on which it is current; `Device::enter` sees to that.
unsafe impl Send for Opened {}
unsafe impl Sync for Opened {}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: retained by `Device::open`, released once.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// Keeps a device's context current on this thread, and puts back what was current before.
pub(crate) struct Entered(std::marker::PhantomData<*const ()>);

impl Drop for Entered {
    fn drop(&mut self) {
        let mut context = std::ptr::null_mut();
        // SAFETY: pops what `Device::enter` pushed on this thread, which the guard cannot leave.
        unsafe { sys::cuCtxPopCurrent_v2(&mut context) };
    }
}

/// Number of GPUs that the driver shows.
pub fn count() -> Result<usize> {
    start()?;
    let mut n = 0;
    // SAFETY: the driver is started.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut n) })?;
    Ok(n.max(0) as usize)
}

/// Every GPU's description.
pub fn list() -> Result<Vec<DeviceInfo>> {
    (0..count()?).map(|i| describe(i).map(|d| d.1)).collect()
}

fn describe(ordinal: usize) -> Result<(sys::CUdevice, DeviceInfo)> {
    let driver = start()?;
    let count = count()?;
    if ordinal >= count {
        return Err(Error::NoDevice { ordinal, count });
    }
    let mut device = 0;
    // SAFETY: the driver is started and the ordinal exists.
    check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal as i32) })?;
    let attribute = |a: Attribute| -> Result<u32> {
        let mut v = 0;
        // SAFETY: `device` is valid.
        check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut v, a, device) })?;
        Ok(v.max(0) as u32)
    };
    let mut memory = 0usize;
    // SAFETY: `device` is valid.
    check("cuDeviceTotalMem", unsafe { sys::cuDeviceTotalMem_v2(&mut memory, device) })?;
    let info = DeviceInfo {
        ordinal,
        name: name(device)?,
        compute: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        sms: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        memory: memory as u64,
        shared_per_block: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
        clock: attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)? as f64 * 1e3,
        // Two transfers a clock.
        bandwidth: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)? as f64
            * 1e3
            * 2.0
            * attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)? as f64
            / 8.0,
        driver,
    };
    Ok((device, info))
}

fn name(device: sys::CUdevice) -> Result<String> {
    let mut text = [0 as c_char; 256];
    // SAFETY: the buffer has the length that is told.
    check("cuDeviceGetName", unsafe { sys::cuDeviceGetName(text.as_mut_ptr(), 256, device) })?;
    let bytes: Vec<u8> = text.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl DeviceInfo {
    /// The row of the target table to compile for, with this device's own numbers.
    pub fn target(&self) -> Result<Target> {
        let (major, minor) = self.compute;
        let row = Target::for_compute(major, minor).ok_or_else(|| Error::UnknownArch {
            arch: format!("sm_{major}{minor} ({})", self.name),
            known: girih_compiler::vocab::target::TARGETS
                .iter()
                .map(|t| t.compute.0 * 10 + t.compute.1)
                .collect(),
            version: (self.driver / 1000, self.driver % 1000 / 10),
        })?;
        let shared = if self.shared_per_block == 0 { row.shared_per_block } else { self.shared_per_block };
        Ok(Target { sms: self.sms, shared_per_block: shared, ..*row })
    }
}

impl Device {
    /// Opens a GPU by its number.
    pub fn open(ordinal: usize) -> Result<Device> {
        let (device, info) = describe(ordinal)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: `device` is valid; the context is released in `Opened::drop`.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) })?;
        Ok(Device(Arc::new(Opened { info, device, context })))
    }

    pub fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// Makes the context current until the guard is dropped.
    pub(crate) fn enter(&self) -> Result<Entered> {
        // SAFETY: the context is live as long as `self`.
        check("cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(self.0.context) })?;
        Ok(Entered(std::marker::PhantomData))
    }

    /// Waits for all work on the device.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: the context is current.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    /// Free and total bytes of memory.
    pub fn memory(&self) -> Result<(u64, u64)> {
        let _entered = self.enter()?;
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: the context is current.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// The PCI bus id as the driver writes it, ended by NUL.
    pub(crate) fn pci_bus_id(&self) -> Option<Vec<u8>> {
        let mut text = [0 as c_char; 32];
        // SAFETY: the device is valid and the buffer has the length that is told.
        let code = unsafe { sys::cuDeviceGetPCIBusId(text.as_mut_ptr(), 32, self.0.device) };
        let bytes = text.iter().map(|&c| c as u8).collect();
        (code == sys::CUresult::CUDA_SUCCESS).then_some(bytes)
    }

    /// Whether both handles are of one GPU.
    pub fn same(&self, other: &Device) -> bool {
        self.0.context == other.0.context
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.info.fmt(f)
    }
}
