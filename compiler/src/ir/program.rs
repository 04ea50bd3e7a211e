//! program: what the host does: buffers, kernels, and launches in order. Executed by the simulator's executor
//! (`sim/run.rs`) and by the run time (`runtime/src/launch.rs`), from the same value.

use super::graph::{ScalarId, TensorId};
use super::simt;
use crate::vocab::dtype::{DType, Value};
use girih_dsl::diagnostic::Diagnostic;

#[derive(Clone, Debug, Default)]
pub struct Program {
    pub name: String,
    pub buffers: Vec<Buffer>,
    pub kernels: Vec<simt::Kernel>,
    pub steps: Vec<Step>,
    /// One row for each place that may fault; a kernel stores the row's number plus one.
    pub faults: Vec<FaultSite>,
    /// For each kernel of the plan: its name, its form, and the simt kernels it became.
    pub forms: Vec<FormRow>,
    /// The scalars given at launch, in the order of the graph.
    pub scalars: Vec<(String, DType)>,
}

#[derive(Clone, Debug)]
pub struct FormRow {
    pub kernel: String,
    pub form: super::plan::Form,
    pub simt: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

#[derive(Clone, Debug)]
pub struct Buffer {
    pub name: String,
    pub dtype: DType,
    pub dims: Vec<i64>,
    pub bytes: i64,
    pub role: BufferRole,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BufferRole {
    /// Given by the caller and not written.
    Input(TensorId),
    /// Given by the caller and updated; `String` is the parameter's name.
    Inout(TensorId, String),
    /// Returned to the caller under this name.
    Output(String),
    Workspace,
    /// Constant contents, little-endian bytes.
    Constant(Vec<u8>),
    /// Four i64: site + 1 (0: none), index, value, spare. Zeroed before the first step.
    Fault,
}

#[derive(Clone, Debug)]
pub enum Step {
    Launch(Launch),
    /// Sets every byte of a buffer.
    Fill {
        buffer: BufferId,
        byte: u8,
    },
    /// Copies whole buffers of equal size.
    Copy {
        from: BufferId,
        to: BufferId,
    },
    /// Runs the steps `count` times; `Arg::Counter` is 0, 1, … within.
    Repeat {
        count: i64,
        steps: Vec<Step>,
    },
}

#[derive(Clone, Debug)]
pub struct Launch {
    /// Index into `kernels`.
    pub kernel: usize,
    /// One for each parameter of the kernel.
    pub args: Vec<Arg>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    Buffer(BufferId),
    Scalar(ScalarId),
    Const(Value),
    /// The counter of the `Repeat` around (I64).
    Counter,
}

#[derive(Clone, Debug)]
pub struct FaultSite {
    /// Tensor that was to be read or written.
    pub tensor: String,
    /// Which of its indices (0-based), and the extent it must stay under.
    pub dim: usize,
    pub lo: i64,
    pub hi: i64,
    pub span: girih_dsl::ast::Span,
    pub what: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    Read,
    Write,
    /// A value outside its declared range.
    Declared,
    /// A `unique` tensor held a value twice.
    NotUnique,
}

impl FaultSite {
    /// The report of a fault there, for the value that was found; `index` is the whole index where it is known.
    pub fn diagnostic(&self, value: i64, index: &[i64]) -> Diagnostic {
        let FaultSite { tensor, dim, lo, hi, span, .. } = self;
        let listed: Vec<String> = index.iter().map(i64::to_string).collect();
        let (place, rank) = match listed.is_empty() {
            true => (format!("`{tensor}`"), 0),
            false => (format!("`{tensor}[{}]`", listed.join(", ")), listed.len()),
        };
        let axis = match (*hi > *lo, rank) {
            (false, _) => format!("its axis {} has no points", dim + 1),
            (_, 1) => format!("the index is {value}, the axis is {lo}..{hi}"),
            _ => format!("index {} is {value}, the axis is {lo}..{hi}", dim + 1),
        };
        let (code, message, help) = match self.what {
            FaultKind::Read => {
                let help = format!(
                    "mend the data, declare its values (`ids: i64[T] in 0..V`), clamp the index, or give the read a default: ({tensor}[…] else 0)"
                );
                ("E0701", format!("{place} is read outside: {axis}"), help)
            }
            FaultKind::Write => {
                let help = format!(
                    "mend the data, or leave such points out: end the statement with `where {lo} <= e < {hi}`, with index {} of `{tensor}` for e",
                    dim + 1
                );
                ("E0702", format!("{place} is written outside: {axis}"), help)
            }
            FaultKind::Declared => {
                let help = format!("mend the data, or declare what `{tensor}` holds: in lo..hi");
                ("E0703", format!("{place} is {value}, outside of its declared range {lo}..{hi}"), help)
            }
            FaultKind::NotUnique => {
                let help =
                    "give each value once, or take `unique` out: the last write then counts".to_string();
                (
                    "E0704",
                    format!("{place} holds {value} a second time, but `{tensor}` is declared unique"),
                    help,
                )
            }
        };
        Diagnostic::error(code, *span, message).label(format!("{value} here")).help(help)
    }
}
