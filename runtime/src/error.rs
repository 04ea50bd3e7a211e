//! What can go wrong at run time. Every variant says what is wrong and what to do about it.

use std::fmt;
use std::path::PathBuf;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// libcuda is not there, or does not start.
    NoDriver { why: String },
    /// The driver's CUDA version is older than this program needs. Versions as `1000 * major + 10 * minor`.
    DriverTooOld { has: i32, needs: i32 },
    /// There is no such GPU.
    NoDevice { ordinal: usize, count: usize },
    /// No libnvrtc was found; the places that were looked at.
    NoNvrtc { looked: Vec<PathBuf> },
    /// A libnvrtc that is there cannot be used.
    BadNvrtc { path: PathBuf, why: String },
    /// The loaded NVRTC does not know the architecture.
    UnknownArch { arch: String, known: Vec<u32>, version: (i32, i32) },
    /// NVRTC refused the source.
    Compile(Box<CompileError>),
    /// NVRTC crashed, or did not end in time, in the process that it was given.
    CompilerDied { program: String, path: PathBuf, how: String },
    /// A driver call failed.
    Driver { call: &'static str, name: String, text: String },
    /// An argument of a launch does not fit, by the user's name.
    Argument { name: String, what: String },
    /// A kernel needs more of something than the device has.
    Resource { kernel: String, what: &'static str, needs: u64, has: u64 },
    /// Reading a file of the run time's own failed.
    Io { path: PathBuf, why: String },
}

/// Source that NVRTC refused: the operator, the options, the first error's line, and the whole log.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileError {
    pub program: String,
    pub options: Vec<String>,
    /// 1-based line of the generated source and its text.
    pub line: Option<(usize, String)>,
    pub log: String,
}

impl Error {
    pub fn argument(name: impl Into<String>, what: impl Into<String>) -> Error {
        Error::Argument { name: name.into(), what: what.into() }
    }
}

/// `13.0` from 13000.
pub fn version_text(v: i32) -> String {
    format!("{}.{}", v / 1000, v % 1000 / 10)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoDriver { why } => write!(
                f,
                "no CUDA driver: {why}. Install the NVIDIA driver, or use --device sim, which needs none"
            ),
            Error::DriverTooOld { has, needs } => write!(
                f,
                "the NVIDIA driver supports CUDA {} and CUDA {} is needed: update the driver, or use --device sim",
                version_text(*has),
                version_text(*needs)
            ),
            Error::NoDevice { ordinal, count } => write!(
                f,
                "there is no GPU {ordinal}: the driver shows {count} (CUDA_VISIBLE_DEVICES may hide some). Choose another, or use --device sim"
            ),
            Error::NoNvrtc { looked } => write!(
                f,
                "NVRTC (libnvrtc.so) was not found in {} places: `pip install nvidia-cuda-nvrtc`, or set GIRIH_NVRTC to the library \
                 or its folder",
                looked.len()
            ),
            Error::BadNvrtc { path, why } => write!(
                f,
                "{} cannot be used as NVRTC: {why}. Install nvidia-cuda-nvrtc 13 or set GIRIH_NVRTC to another",
                path.display()
            ),
            Error::UnknownArch { arch, known, version } => {
                let list: Vec<String> = known.iter().map(|a| format!("sm_{a}")).collect();
                write!(
                    f,
                    "NVRTC {}.{} does not know {arch} (it knows {}): choose --target among these, or install an NVRTC that knows it",
                    version.0,
                    version.1,
                    list.join(", ")
                )
            }
            Error::Compile(e) => write!(f, "{e}"),
            Error::CompilerDied { program, path, how } => write!(
                f,
                "NVRTC {how} while it compiled {program}: {}. Nothing was kept. Try another NVRTC (GIRIH_NVRTC), or other settings \
                 (--schedule, a tile block), and report it with the .tile file; GIRIH_COMPILE_LIMIT gives it more seconds",
                path.display()
            ),
            Error::Driver { call, name, text } => write!(f, "{call} failed: {name} ({text})"),
            Error::Argument { name, what } => write!(f, "argument {name}: {what}"),
            Error::Resource { kernel, what, needs, has } => {
                write!(f, "kernel {kernel} needs {needs} of {what} and the device has {has}")
            }
            Error::Io { path, why } => write!(f, "{}: {why}", path.display()),
        }
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "NVRTC refused the code generated for {} ({})", self.program, self.options.join(" "))?;
        if let Some((line, text)) = &self.line {
            writeln!(f, "  line {line}: {}", text.trim())?;
        }
        for line in self.log.lines().take(12) {
            writeln!(f, "  {line}")?;
        }
        write!(f, "This is a fault of the compiler, not of the program: please report it with the .tile file")
    }
}

impl std::error::Error for Error {}
