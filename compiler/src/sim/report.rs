//! What a simulated run tells: errors with their place, and the cost of each source line.

use super::code::CLASSES;
use girih_dsl::ast::Span;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    OutOfBounds,
    Uninitialised,
    Race,
    DivergentBarrier,
    /// All warps wait for what none will do.
    Deadlock,
    /// A warp-wide operation under a partial mask.
    PartialWarp,
    Misaligned,
    /// A division or shift outside of its domain.
    Arithmetic,
    /// A `While` that does not end.
    Runaway,
    /// An output element that no kernel wrote.
    Unwritten,
    /// The program itself is malformed.
    Malformed,
    /// Missing or unfitting inputs.
    Input,
    /// The program's own checks recorded a fault (see [`SimError::fault`]).
    Fault,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::OutOfBounds => "out-of-bounds access",
            Kind::Uninitialised => "read of uninitialised memory",
            Kind::Race => "data race",
            Kind::DivergentBarrier => "divergent barrier",
            Kind::Deadlock => "deadlock",
            Kind::PartialWarp => "warp-wide operation under a partial mask",
            Kind::Misaligned => "misaligned access",
            Kind::Arithmetic => "arithmetic outside of its domain",
            Kind::Runaway => "loop without end",
            Kind::Unwritten => "output not written",
            Kind::Malformed => "malformed program",
            Kind::Input => "input",
            Kind::Fault => "fault",
        }
    }
}

/// The first error of a run.
#[derive(Clone, Debug)]
pub struct SimError {
    pub kind: Kind,
    /// Empty outside of kernels.
    pub kernel: String,
    pub block: [u32; 3],
    /// Thread number in the block.
    pub thread: u32,
    pub message: String,
    /// The `.tile` place of the statement, and of the other access of a race.
    pub span: Option<Span>,
    pub other: Option<Span>,
    /// For [`Kind::Fault`]: the site's number in the program, and the value.
    pub fault: Option<(usize, i64)>,
}

impl SimError {
    /// An error that is no kernel's.
    pub fn host(kind: Kind, message: impl Into<String>) -> SimError {
        SimError {
            kind,
            kernel: String::new(),
            block: [0; 3],
            thread: 0,
            message: message.into(),
            span: None,
            other: None,
            fault: None,
        }
    }
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.message)?;
        if !self.kernel.is_empty() {
            let [x, y, z] = self.block;
            write!(f, " (kernel {}, block ({x}, {y}, {z}), thread {})", self.kernel, self.thread)?;
        }
        Ok(())
    }
}

impl std::error::Error for SimError {}

/// An error inside a warp, before it has its kernel's and block's names.
#[derive(Debug)]
pub struct Fail(pub Box<FailInfo>);

#[derive(Debug)]
pub struct FailInfo {
    pub kind: Kind,
    pub lane: usize,
    pub message: String,
    pub other: Option<Span>,
}

impl Fail {
    pub fn new(kind: Kind, lane: usize, message: impl Into<String>) -> Fail {
        Fail(Box::new(FailInfo { kind, lane, message: message.into(), other: None }))
    }

    pub fn with_other(mut self, span: Option<Span>) -> Fail {
        self.0.other = span;
        self
    }
}

/// What one kernel cost over all its launches.
#[derive(Clone, Debug, Default)]
pub struct KernelReport {
    pub kernel: String,
    pub launches: u64,
    /// Bytes moved to and from global memory, in whole 32-byte sectors, without caches.
    pub global_read: u64,
    pub global_written: u64,
    pub shared_wavefronts: u64,
    /// The least the same accesses could take.
    pub shared_ideal: u64,
    /// Executed warp operations by class, in the order of `code::Class`.
    pub operations: [u64; CLASSES],
    /// Shared accesses that took more wavefronts than needed.
    pub conflicts: Vec<Conflict>,
}

/// Bank conflicts of one access site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub span: Option<Span>,
    pub array: String,
    pub wavefronts: u64,
    pub ideal: u64,
}

/// Costs while they are counted, for one block or several.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    pub global_read: u64,
    pub global_written: u64,
    pub operations: [u64; CLASSES],
    /// For each operation: wavefronts and the least possible.
    pub sites: Vec<(u64, u64)>,
}

impl Counters {
    pub fn new(ops: usize) -> Counters {
        Counters { sites: vec![(0, 0); ops], ..Counters::default() }
    }

    #[inline(always)]
    pub fn shared(&mut self, pc: usize, cost: u32, ideal: u32) {
        let site = &mut self.sites[pc];
        site.0 += cost as u64;
        site.1 += ideal as u64;
    }

    pub fn add(&mut self, other: &Counters) {
        self.global_read += other.global_read;
        self.global_written += other.global_written;
        for (a, b) in self.operations.iter_mut().zip(&other.operations) {
            *a += b;
        }
        for (a, b) in self.sites.iter_mut().zip(&other.sites) {
            a.0 += b.0;
            a.1 += b.1;
        }
    }
}
