//! Clocks of a GPU, and why they are held down, through NVML where it is there.

use crate::device::Device;
use libloading::Library;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

type Handle = *mut c_void;

/// A loaded NVML and a device's handle.
pub struct Clocks {
    clock: unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> c_int,
    reasons: unsafe extern "C" fn(Handle, *mut c_ulonglong) -> c_int,
    temperature: unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> c_int,
    handle: Handle,
    // Keeps the function pointers valid.
    _library: Library,
}

/// One look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Of the multiprocessors, in MHz.
    pub clock: u32,
    /// NVML's bits.
    pub reasons: u64,
    /// In °C.
    pub temperature: u32,
}

/// NVML's bits that mean a clock below what was asked for, and their names.
const HELD: [(u64, &str); 4] = [
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x20, "thermal limit"),
    (0x40, "hardware thermal limit"),
];

impl Clocks {
    /// `None` where NVML is not there or does not know the device.
    pub fn of(device: &Device) -> Option<Clocks> {
        // SAFETY: NVML's own entry points, by the signatures of its header; the library is kept.
        unsafe {
            let library = Library::new("libnvidia-ml.so.1").ok()?;
            let init = *library.get::<unsafe extern "C" fn() -> c_int>(b"nvmlInit_v2\0").ok()?;
            let find = *library
                .get::<unsafe extern "C" fn(*const u8, *mut Handle) -> c_int>(
                    b"nvmlDeviceGetHandleByPciBusId_v2\0",
                )
                .ok()?;
            let clock = *library.get(b"nvmlDeviceGetClockInfo\0").ok()?;
            let reasons = *library.get(b"nvmlDeviceGetCurrentClocksThrottleReasons\0").ok()?;
            let temperature = *library.get(b"nvmlDeviceGetTemperature\0").ok()?;
            let mut handle = std::ptr::null_mut();
            let bus = device.pci_bus_id()?;
            if init() != 0 || find(bus.as_ptr(), &mut handle) != 0 {
                return None;
            }
            Some(Clocks { clock, reasons, temperature, handle, _library: library })
        }
    }

    pub fn read(&self) -> Option<Reading> {
        const SM: c_uint = 1;
        const GPU: c_uint = 0;
        let (mut clock, mut reasons, mut temperature) = (0, 0, 0);
        // SAFETY: the handle is live as long as the library.
        let codes = unsafe {
            [
                (self.clock)(self.handle, SM, &mut clock),
                (self.reasons)(self.handle, &mut reasons),
                (self.temperature)(self.handle, GPU, &mut temperature),
            ]
        };
        (codes == [0; 3]).then_some(Reading { clock, reasons, temperature })
    }
}

impl Reading {
    /// What happened to the clock since an earlier look, if it matters to a measurement.
    pub fn note_since(&self, before: &Reading) -> Option<String> {
        let held: Vec<&str> = HELD.iter().filter(|(bit, _)| self.reasons & bit != 0).map(|h| h.1).collect();
        let moved = self.clock.abs_diff(before.clock) * 20 > before.clock.max(1);
        (moved || !held.is_empty()).then(|| {
            let why = if held.is_empty() { String::new() } else { format!(", held by {}", held.join(", ")) };
            format!("clock {} to {} MHz, {} °C{why}", before.clock, self.clock, self.temperature)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_clock_is_no_note() {
        let calm = Reading { clock: 1980, reasons: 0, temperature: 40 };
        assert_eq!(calm.note_since(&calm), None);
        let slow = Reading { clock: 1500, reasons: 0x24, temperature: 88 };
        let note = slow.note_since(&calm).unwrap();
        assert!(note.contains("1980 to 1500") && note.contains("power cap, thermal limit"), "{note}");
    }
}
