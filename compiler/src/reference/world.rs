//! What an evaluation sees: the tensors so far, the scalars, the values of axes; and how it reports a fault.

use super::num::{B, F, I, Num};
use crate::ir::graph::{AxisId, Graph, TensorId};
use crate::ir::program;
use crate::vocab::dtype::{DType, Value};
use girih_dsl::ast::Span;
use girih_dsl::diagnostic::Diagnostic;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFault {
    pub kind: FaultKind,
    /// The tensor (or scalar) by its name.
    pub tensor: String,
    /// The dim whose index is outside.
    pub dim: usize,
    /// The whole index that was read or written, or the place of the value.
    pub index: Vec<i64>,
    /// The index that is outside, or the value that is not allowed.
    pub value: i64,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// An index through data is outside of `lo..hi`.
    Read {
        lo: i64,
        hi: i64,
    },
    Write {
        lo: i64,
        hi: i64,
    },
    /// A value is outside of its declared range.
    Range {
        lo: i64,
        hi: i64,
    },
    /// A value of a `unique` tensor occurs twice.
    NotUnique,
    /// An input is missing, or does not have the dtype and dims of the graph.
    Input(String),
    /// A read that was proven is outside: a fault of the compiler.
    Unproven {
        lo: i64,
        hi: i64,
    },
}

impl RunFault {
    /// The fault as the other executions report it; `None` where it speaks of no place in the program.
    pub fn diagnostic(&self) -> Option<Diagnostic> {
        let (what, lo, hi) = match self.kind {
            FaultKind::Read { lo, hi } => (program::FaultKind::Read, lo, hi),
            FaultKind::Write { lo, hi } => (program::FaultKind::Write, lo, hi),
            FaultKind::Range { lo, hi } => (program::FaultKind::Declared, lo, hi),
            FaultKind::NotUnique => (program::FaultKind::NotUnique, 0, 0),
            FaultKind::Input(_) | FaultKind::Unproven { .. } => return None,
        };
        let site =
            program::FaultSite { tensor: self.tensor.clone(), dim: self.dim, lo, hi, span: self.span, what };
        Some(site.diagnostic(self.value, &self.index))
    }
}

impl std::fmt::Display for RunFault {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let RunFault { tensor, dim, value, .. } = self;
        let index: Vec<String> = self.index.iter().map(i64::to_string).collect();
        let at = format!("{tensor}[{}]", index.join(", "));
        match &self.kind {
            FaultKind::Read { lo, hi } => {
                write!(f, "{at} is read outside of {tensor}: index {dim} is {value}, not in {lo}..{hi}")
            }
            FaultKind::Write { lo, hi } => {
                write!(f, "{at} is written outside of {tensor}: index {dim} is {value}, not in {lo}..{hi}")
            }
            FaultKind::Range { lo, hi } if self.index.is_empty() => {
                write!(f, "{tensor} is {value}, outside of its declared range {lo}..{hi}")
            }
            FaultKind::Range { lo, hi } => {
                write!(f, "{at} is {value}, outside of its declared range {lo}..{hi}")
            }
            FaultKind::NotUnique => {
                write!(f, "{at} is {value}, which occurs before, but {tensor} is declared unique")
            }
            FaultKind::Input(what) => f.write_str(what),
            FaultKind::Unproven { lo, hi } => {
                write!(
                    f,
                    "{at} was proven in bounds, but index {dim} is {value}, not in {lo}..{hi} (a fault of the compiler)"
                )
            }
        }
    }
}

impl std::error::Error for RunFault {}

/// Elements with their bounds; a missing bound is 0 throughout.
#[derive(Clone, Debug)]
pub enum Data {
    F { v: Vec<f64>, e: Option<Vec<f64>> },
    I { v: Vec<i64>, e: Option<Vec<i64>> },
    B { v: Vec<bool>, open: Option<Vec<bool>> },
}

/// A tensor as the evaluator keeps it.
#[derive(Clone, Debug)]
pub struct Stored {
    pub dims: Vec<i64>,
    pub lo: Vec<i64>,
    pub strides: Vec<usize>,
    pub data: Data,
    /// Before the rounding to the dtype: value and bound. Kept where the dtype is narrower than the value.
    pub wide: Option<Box<Data>>,
}

impl Data {
    pub fn zeros(dtype: DType, n: usize) -> Data {
        if dtype.is_float() {
            Data::F { v: vec![0.0; n], e: None }
        } else if dtype == DType::Bool {
            Data::B { v: vec![false; n], open: None }
        } else {
            Data::I { v: vec![0; n], e: None }
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Data::F { v, .. } => v.len(),
            Data::I { v, .. } => v.len(),
            Data::B { v, .. } => v.len(),
        }
    }

    #[inline]
    pub fn get(&self, i: usize) -> Num {
        match self {
            Data::F { v, e } => Num::F(F { v: v[i], e: e.as_ref().map_or(0.0, |e| e[i]) }),
            Data::I { v, e } => Num::I(I { v: v[i], e: e.as_ref().map_or(0, |e| e[i]) }),
            Data::B { v, open } => Num::B(B { v: v[i], sure: open.as_ref().is_none_or(|o| !o[i]) }),
        }
    }

    pub fn set(&mut self, i: usize, x: Num) {
        let n = self.len();
        match (self, x) {
            (Data::F { v, e }, Num::F(x)) => {
                v[i] = x.v;
                if x.e != 0.0 || e.is_some() {
                    e.get_or_insert_with(|| vec![0.0; n])[i] = x.e;
                }
            }
            (Data::I { v, e }, Num::I(x)) => {
                v[i] = x.v;
                if x.e != 0 || e.is_some() {
                    e.get_or_insert_with(|| vec![0; n])[i] = x.e;
                }
            }
            (Data::B { v, open }, Num::B(x)) => {
                v[i] = x.v;
                if !x.sure || open.is_some() {
                    open.get_or_insert_with(|| vec![false; n])[i] = !x.sure;
                }
            }
            (_, x) => {
                unreachable!("{x:?} is stored in a tensor of another type: the statement converts first")
            }
        }
    }
}

impl Stored {
    pub fn zeros(g: &Graph, id: TensorId) -> Stored {
        let t = g.tensor(id);
        let mut strides = vec![1usize; t.dims.len()];
        for d in (0..t.dims.len().saturating_sub(1)).rev() {
            strides[d] = strides[d + 1] * t.dims[d + 1].max(0) as usize;
        }
        let n = t.dims.iter().product::<i64>().max(0) as usize;
        let lo = if t.lo.is_empty() { vec![0; t.dims.len()] } else { t.lo.clone() };
        Stored { dims: t.dims.clone(), lo, strides, data: Data::zeros(t.dtype, n), wide: None }
    }
}

/// What does not change while a statement is evaluated.
pub struct World<'g> {
    pub graph: &'g Graph,
    pub tensors: Vec<Option<Stored>>,
    pub scalars: Vec<Value>,
    /// Counts changes of tensors within a recurrence, so that remembered values are forgotten.
    pub epoch: u64,
    /// Whether terms whose weight a condition made 0 are left out.
    pub skips: bool,
    /// Whether that would make a difference: the other factor of such a term was not finite.
    pub differs: AtomicBool,
}

impl World<'_> {
    #[inline]
    pub fn tensor(&self, id: TensorId) -> &Stored {
        self.tensors[id.0 as usize].as_ref().expect("statements stand in an order in which they can run")
    }

    /// Whether the product of a weight that a condition may make 0 and another factor is left out.
    #[inline]
    pub fn leaves_out(&self, weight: F, other: F) -> bool {
        let differs = weight == F::exact(0.0) && !other.v.is_finite();
        if differs {
            self.differs.store(true, Ordering::Relaxed);
        }
        differs && self.skips
    }
}

/// A remembered value of an expression.
#[derive(Default)]
pub struct Memo {
    pub last: Option<(Vec<i64>, Num)>,
    pub all: HashMap<Vec<i64>, Num>,
}

/// One evaluation's own state.
pub struct Env {
    pub axes: Vec<i64>,
    /// Operands of the fold function that is being evaluated.
    pub params: [Num; 2],
    /// Above 0 while a branch is evaluated that perhaps is not taken: no faults then.
    pub trying: u32,
    pub fault: Option<RunFault>,
    pub memo: Vec<Memo>,
    pub key: Vec<i64>,
}

impl Env {
    pub fn new(axes: usize, memos: usize) -> Env {
        Env {
            axes: vec![0; axes],
            params: [Num::B(B::exact(false)); 2],
            trying: 0,
            fault: None,
            memo: std::iter::repeat_with(Memo::default).take(memos).collect(),
            key: Vec::new(),
        }
    }

    #[inline]
    pub fn axis(&self, a: AxisId) -> i64 {
        self.axes[a.0 as usize]
    }

    /// Keeps the first fault.
    pub fn report(&mut self, fault: impl FnOnce() -> RunFault) {
        if self.trying == 0 && self.fault.is_none() {
            self.fault = Some(fault());
        }
    }
}
