//! Streams and events. A stream may be the caller's own, from whatever library made it.

use crate::device::Device;
use crate::driver::check;
use crate::error::Result;
use cudarc::driver::sys;
use std::ffi::c_void;
use std::time::Duration;

/// A queue of work on one device.
#[derive(Debug)]
pub struct Stream {
    device: Device,
    raw: sys::CUstream,
    owned: bool,
}

// SAFETY: the driver's stream functions may be called from any thread.
unsafe impl Send for Stream {}
unsafe impl Sync for Stream {}

impl Stream {
    /// A new stream that does not wait for the default one.
    pub fn new(device: &Device) -> Result<Stream> {
        let _entered = device.enter()?;
        let mut raw = std::ptr::null_mut();
        const NON_BLOCKING: u32 = 1;
        // SAFETY: the context is current.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut raw, NON_BLOCKING) })?;
        Ok(Stream { device: device.clone(), raw, owned: true })
    }

    /// The device's default stream.
    pub fn default_of(device: &Device) -> Stream {
        Stream { device: device.clone(), raw: std::ptr::null_mut(), owned: false }
    }

    /// A stream that another library made (a `CUstream` or `cudaStream_t`).
    ///
    /// # Safety
    /// It must be a stream of this device's primary context and outlive the result.
    pub unsafe fn from_raw(device: &Device, raw: *mut c_void) -> Stream {
        Stream { device: device.clone(), raw: raw.cast(), owned: false }
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// Whether what is launched on it now becomes part of a graph instead of running.
    pub(crate) fn is_capturing(&self) -> Result<bool> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is live; the driver writes one value.
        check("cuStreamIsCapturing", unsafe { sys::cuStreamIsCapturing(self.raw, &mut status) })?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Waits until all work on it is done.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: the stream is live.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw) })
    }

    /// Lets what follows on this stream wait for what was on the other one when the event was recorded.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: both are live.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.raw, event.raw, 0) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned
            && let Ok(_entered) = self.device.enter()
        {
            // SAFETY: created by `new`, destroyed once; the driver finishes its work first.
            unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}

/// A point in a stream.
#[derive(Debug)]
pub struct Event {
    device: Device,
    raw: sys::CUevent,
}

// SAFETY: the driver's event functions may be called from any thread.
unsafe impl Send for Event {}
unsafe impl Sync for Event {}

impl Event {
    pub fn new(device: &Device) -> Result<Event> {
        let _entered = device.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&mut raw, 0) })?;
        Ok(Event { device: device.clone(), raw })
    }

    pub fn record(&self, stream: &Stream) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: both are live.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.raw, stream.raw()) })
    }

    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: the event is live.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.raw) })
    }

    /// Device time between two events that have passed.
    pub fn elapsed(&self, end: &Event) -> Result<Duration> {
        let _entered = self.device.enter()?;
        let mut ms = 0f32;
        // SAFETY: both are live.
        check("cuEventElapsedTime", unsafe { sys::cuEventElapsedTime_v2(&mut ms, self.raw, end.raw) })?;
        Ok(Duration::from_secs_f64(f64::from(ms.max(0.0)) / 1e3))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: created by `new`, destroyed once.
            unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}
