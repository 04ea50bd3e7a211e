//! What the tuner and its worker processes say to each other: one JSON value a line, on the worker's standard input
//! and output. A worker gets a job, says that it is ready, then answers one request after the other.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is tuned: everything that a worker needs to bind the op again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub file: String,
    pub op: String,
    pub dims: BTreeMap<String, i64>,
    pub consts: BTreeMap<String, String>,
    /// `sim`, or `cuda:N`.
    pub device: String,
    /// What the simulator simulates.
    pub target: Option<String>,
    pub seed: u64,
    /// Only compile: no device is opened.
    pub compile_only: bool,
    /// Multiprocessors and shared memory of a block, where they are known of the device.
    #[serde(default)]
    pub limits: Option<(u32, u32)>,
}

/// A point of the space: how much is fused, and every kernel's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Configuration {
    /// Empty: the planner's own.
    #[serde(default)]
    pub fusion: String,
    /// As a schedule file writes it.
    pub schedule: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// To a cubin in the cache.
    Compile,
    /// Run, compare with the fallback, and time so many calls; after two calls that take longer than `cut`
    /// microseconds, no more.
    Measure {
        calls: u32,
        #[serde(default)]
        cut: Option<f64>,
    },
    /// Time each kernel for itself.
    Parts,
    /// Run at a small shape with tails and compare with the definition.
    Tail,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub id: u64,
    pub task: Task,
    pub configuration: Configuration,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Ready(Ready),
    Done { id: u64, done: Done },
    Failed { id: u64, failure: Failure },
}

/// A worker's first words.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    pub device: String,
    pub target: String,
    /// Its multiprocessors, and bytes of shared memory of a block.
    pub limits: (u32, u32),
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Done {
    Compiled(Compiled),
    Measured(Sample),
    /// Microseconds of each kernel of the generated code, by its name.
    Parts(BTreeMap<String, f64>),
    /// Nothing is wrong at the small shape, in words.
    Right(String),
}

/// What the compiler said of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Compiled {
    /// Of the kernel with the most.
    pub registers: u32,
    pub spills: u32,
    /// Lines of the log that mean lost speed.
    pub lost_speed: Vec<String>,
    pub milliseconds: f64,
    pub from_cache: bool,
}

/// Times of one configuration, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub us: f64,
    pub least: f64,
    pub greatest: f64,
    pub calls: u32,
    /// Of the generated CUDA text: a record holds only for the code that was measured.
    pub code: String,
    /// Clock, throttling, spills.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Why a configuration has no time. It is never ranked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub kind: FailureKind,
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The lowering takes no such settings.
    Refused,
    /// NVRTC refused the code, or it spills.
    Compile,
    /// It took too long to compile.
    SlowCompile,
    /// It took too long to run.
    Hang,
    /// The worker ended: a crash.
    Crash,
    /// Too little memory.
    Memory,
    /// An access out of bounds, or a fault of the program's own.
    Fault,
    /// Other values than the fallback's.
    Wrong,
    /// Anything else.
    Other,
}

impl FailureKind {
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Refused => "refused",
            FailureKind::Compile => "does not compile",
            FailureKind::SlowCompile => "compiles too long",
            FailureKind::Hang => "hangs",
            FailureKind::Crash => "crashes",
            FailureKind::Memory => "out of memory",
            FailureKind::Fault => "illegal access",
            FailureKind::Wrong => "wrong",
            FailureKind::Other => "failed",
        }
    }
}

impl Failure {
    pub fn new(kind: FailureKind, reason: impl Into<String>) -> Failure {
        Failure { kind, reason: reason.into() }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.reason)
    }
}
