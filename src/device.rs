//! Where a program runs: on a GPU, on the simulator, or by the definition itself.

use crate::error::{Error, Result};
use girih_compiler::vocab::target::{TARGETS, Target};
use girih_runtime as runtime;
use std::fmt;

/// What is simulated and emitted for if nothing else is said.
pub const DEFAULT_TARGET: &str = "sm_90a";

#[derive(Clone, Debug)]
pub enum Device {
    /// The definition, evaluated on the CPU: slow and obvious.
    Reference,
    /// The generated thread program, executed on the CPU.
    Simulator(Target),
    Cuda(runtime::Device),
}

impl Device {
    /// The simulator of the default target.
    pub fn sim() -> Device {
        Device::Simulator(*Target::parse(DEFAULT_TARGET).expect("it is in the table"))
    }

    /// A GPU by its number.
    pub fn cuda(ordinal: usize) -> Result<Device> {
        Ok(Device::Cuda(runtime::Device::open(ordinal)?))
    }

    /// The first GPU where there is one that can be compiled for, otherwise the simulator.
    pub fn auto() -> Device {
        let usable = || -> Result<Device> {
            let device = runtime::Device::open(0)?;
            device.info().target()?;
            runtime::locate::nvrtc()?;
            Ok(Device::Cuda(device))
        };
        usable().unwrap_or_else(|_| Device::sim())
    }

    /// Opens a device by its name; the simulator takes `target`.
    pub fn open(name: DeviceName, target: Option<Target>) -> Result<Device> {
        let simulator = || target.map_or_else(Device::sim, Device::Simulator);
        let device = match name {
            DeviceName::Sim => simulator(),
            DeviceName::Ref => Device::Reference,
            DeviceName::Cuda(n) => Device::cuda(n)?,
            DeviceName::Auto => match Device::auto() {
                Device::Simulator(_) => simulator(),
                gpu => gpu,
            },
        };
        match (&device, target) {
            (Device::Cuda(_), Some(t)) if t.name != device.target()?.name => {
                let what = format!("{} is not what {device} is: leave it out, or use --device sim", t.name);
                Err(Error::argument("target", what))
            }
            _ => Ok(device),
        }
    }

    /// What is compiled for it.
    pub fn target(&self) -> Result<Target> {
        match self {
            Device::Reference => Device::sim().target(),
            Device::Simulator(t) => Ok(*t),
            Device::Cuda(d) => Ok(d.info().target()?),
        }
    }
}

/// What the command line calls a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceName {
    Auto,
    Sim,
    Ref,
    Cuda(usize),
}

impl DeviceName {
    /// `auto`, `sim`, `ref`, `cuda` or `cuda:1`.
    pub fn parse(text: &str) -> Result<DeviceName> {
        match text {
            "auto" => Ok(DeviceName::Auto),
            "sim" => Ok(DeviceName::Sim),
            "ref" => Ok(DeviceName::Ref),
            "cuda" => Ok(DeviceName::Cuda(0)),
            _ => text.strip_prefix("cuda:").and_then(|n| n.parse().ok()).map(DeviceName::Cuda).ok_or_else(
                || {
                    Error::argument(
                        "device",
                        format!("there is no {text}: write auto, sim, ref, cuda or cuda:N"),
                    )
                },
            ),
        }
    }
}

/// A row of the target table by its name.
pub fn parse_target(name: &str) -> Result<Target> {
    Target::parse(name).copied().ok_or_else(|| {
        let known = TARGETS.map(|t| t.name).join(", ");
        let meant =
            Target::called(name).map_or(String::new(), |t| format!("it is {t}: write --target {t}; "));
        Error::argument("target", format!("there is no target {name}: {meant}choose one of {known}"))
    })
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Reference => write!(f, "ref"),
            Device::Simulator(t) => write!(f, "sim ({})", t.name),
            Device::Cuda(d) => write!(f, "cuda:{} ({})", d.info().ordinal, d.info().name),
        }
    }
}
