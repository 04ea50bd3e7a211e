//! Device memory, pinned host memory, and copies between them.

use crate::device::Device;
use crate::driver::check;
use crate::error::{Error, Result};
use crate::stream::Stream;
use cudarc::driver::sys;
use std::ffi::c_void;

/// Device memory that is freed when dropped. The driver frees it only when the work that was launched before is
/// done, so a buffer may be dropped right after a launch.
#[derive(Debug)]
pub struct DeviceBuffer {
    device: Device,
    address: u64,
    bytes: u64,
}

/// A part of device memory that somebody else keeps alive: an address and a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicePointer {
    pub address: u64,
    pub bytes: u64,
}

impl DevicePointer {
    /// The part that begins `offset` bytes in.
    pub fn offset(self, offset: u64) -> DevicePointer {
        let offset = offset.min(self.bytes);
        DevicePointer { address: self.address + offset, bytes: self.bytes - offset }
    }

    /// Whether both have a byte in common.
    pub fn overlaps(self, other: DevicePointer) -> bool {
        self.bytes > 0
            && other.bytes > 0
            && self.address < other.address + other.bytes
            && other.address < self.address + self.bytes
    }
}

/// The largest power of two, up to 16, that divides an address: on all 64 bits of it.
pub fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(4)
}

impl DeviceBuffer {
    /// Uninitialised memory, aligned to 256 bytes. A length of 0 still has an address.
    pub fn new(device: &Device, bytes: u64) -> Result<DeviceBuffer> {
        let _entered = device.enter()?;
        let mut address = 0;
        // SAFETY: the context is current.
        check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&mut address, bytes.max(1) as usize) })?;
        Ok(DeviceBuffer { device: device.clone(), address, bytes })
    }

    /// Memory with these contents.
    pub fn from_bytes(device: &Device, bytes: &[u8]) -> Result<DeviceBuffer> {
        let buffer = DeviceBuffer::new(device, bytes.len() as u64)?;
        buffer.upload(bytes)?;
        Ok(buffer)
    }

    pub fn pointer(&self) -> DevicePointer {
        DevicePointer { address: self.address, bytes: self.bytes }
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Copies host bytes to the start of the buffer; done on return.
    pub fn upload(&self, bytes: &[u8]) -> Result<()> {
        self.room(bytes.len())?;
        upload(&self.device, self.pointer(), bytes)
    }

    /// Copies the start of the buffer to host bytes; done on return.
    pub fn download(&self, bytes: &mut [u8]) -> Result<()> {
        self.room(bytes.len())?;
        download(&self.device, self.pointer(), bytes)
    }

    /// Copies the whole of it to the start of another buffer of the same device; ordered on the stream.
    pub fn copy_to(&self, other: &DeviceBuffer, stream: &Stream) -> Result<()> {
        other.room(self.bytes as usize)?;
        if self.bytes == 0 {
            return Ok(());
        }
        let _entered = self.device.enter()?;
        // SAFETY: both are live and long enough.
        check("cuMemcpyDtoDAsync", unsafe {
            sys::cuMemcpyDtoDAsync_v2(other.address, self.address, self.bytes as usize, stream.raw())
        })
    }

    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.bytes as usize];
        self.download(&mut bytes)?;
        Ok(bytes)
    }

    /// Sets every byte; ordered on the stream.
    pub fn fill(&self, byte: u8, stream: &Stream) -> Result<()> {
        if self.bytes == 0 {
            return Ok(());
        }
        let _entered = self.device.enter()?;
        // SAFETY: the memory is ours and has that many bytes.
        check("cuMemsetD8Async", unsafe {
            sys::cuMemsetD8Async(self.address, byte, self.bytes as usize, stream.raw())
        })
    }

    fn room(&self, bytes: usize) -> Result<()> {
        if bytes as u64 <= self.bytes {
            return Ok(());
        }
        Err(Error::argument("buffer", format!("it has {} bytes and {bytes} were to be copied", self.bytes)))
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: allocated by `new`, freed once; an error (a dead context) leaves nothing to do.
            unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

pub(crate) fn upload(device: &Device, to: DevicePointer, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let _entered = device.enter()?;
    // SAFETY: the caller has checked that the device memory is that long.
    check("cuMemcpyHtoD", unsafe {
        sys::cuMemcpyHtoD_v2(to.address, bytes.as_ptr().cast::<c_void>(), bytes.len())
    })?;
    // The call returns when pageable memory has been staged, before the device has it, and streams that do not wait for
    // the default one could read what was there before.
    // SAFETY: the context is current; null is its default stream.
    check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(std::ptr::null_mut()) })
}

pub(crate) fn download(device: &Device, from: DevicePointer, bytes: &mut [u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let _entered = device.enter()?;
    // SAFETY: the caller has checked that the device memory is that long.
    check("cuMemcpyDtoH", unsafe {
        sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast::<c_void>(), from.address, bytes.len())
    })
}

/// Page-locked host memory, for copies that run beside other work.
#[derive(Debug)]
pub struct PinnedBuffer {
    device: Device,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory, owned; the pointer is not shared.
unsafe impl Send for PinnedBuffer {}

impl PinnedBuffer {
    /// Zeroed.
    pub fn new(device: &Device, bytes: usize) -> Result<PinnedBuffer> {
        let _entered = device.enter()?;
        let mut start: *mut c_void = std::ptr::null_mut();
        // SAFETY: the context is current.
        check("cuMemAllocHost", unsafe { sys::cuMemAllocHost_v2(&mut start, bytes.max(1)) })?;
        // SAFETY: just allocated with that many bytes.
        unsafe { std::ptr::write_bytes(start.cast::<u8>(), 0, bytes) };
        Ok(PinnedBuffer { device: device.clone(), start: start.cast(), bytes })
    }

    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: allocated with that length and initialised.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }

    /// Starts a copy to the device.
    ///
    /// # Safety
    /// The buffer must not be changed or dropped before the stream has reached the copy.
    pub unsafe fn upload_async(&self, to: &DeviceBuffer, stream: &Stream) -> Result<()> {
        to.room(self.bytes)?;
        let _entered = self.device.enter()?;
        // SAFETY: both sides have the length; the caller keeps the host side.
        check("cuMemcpyHtoDAsync", unsafe {
            sys::cuMemcpyHtoDAsync_v2(to.address, self.start.cast(), self.bytes, stream.raw())
        })
    }

    /// Starts a copy from the device.
    ///
    /// # Safety
    /// The buffer must not be read, changed or dropped before the stream has reached the copy.
    pub unsafe fn download_async(&mut self, from: &DeviceBuffer, stream: &Stream) -> Result<()> {
        from.room(self.bytes)?;
        let _entered = self.device.enter()?;
        // SAFETY: both sides have the length; the caller keeps the host side.
        check("cuMemcpyDtoHAsync", unsafe {
            sys::cuMemcpyDtoHAsync_v2(self.start.cast(), from.address, self.bytes, stream.raw())
        })
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: allocated by `new`, freed once.
            unsafe { sys::cuMemFreeHost(self.start.cast()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_looks_at_the_whole_address() {
        assert_eq!(alignment(0x7f00_8000_0000), 16);
        assert_eq!(alignment(0x1_8000_0000), 16);
        assert_eq!(alignment(0x8000_0002), 2);
        for offset in 0..16u64 {
            let wanted = [16, 1, 2, 1, 4, 1, 2, 1, 8, 1, 2, 1, 4, 1, 2, 1][offset as usize];
            assert_eq!(alignment(0x7f12_3456_0000 + offset), wanted, "offset {offset}");
        }
    }

    #[test]
    fn overlap_needs_a_common_byte() {
        let p = |address, bytes| DevicePointer { address, bytes };
        assert!(p(0, 8).overlaps(p(7, 1)) && p(7, 1).overlaps(p(0, 8)));
        assert!(!p(0, 8).overlaps(p(8, 8)) && !p(4, 0).overlaps(p(0, 8)));
    }
}
