//! The simulator's bytecode: flat operations over the registers of a warp.
//!
//! Structured control flow is a stack of masks: `If`, `Else`, `EndIf` and the loop operations push, switch and pop
//! it and jump over parts that no lane takes. An operation's index is its program counter; `spans` says which
//! source place it comes from, so errors and costs are named by it.

use super::lanes::{PureFn, Reg};
use crate::ir::simt::{AtomicOp, IntOp, Intrinsic, ShuffleKind, Special, Ty};
use crate::vocab::dtype::DType;
use girih_dsl::ast::Span;

pub struct Code {
    pub ops: Vec<Op>,
    /// For each operation, an index into `span_table`.
    pub spans: Vec<u32>,
    pub span_table: Vec<Span>,
    pub rows: usize,
    pub consts: Vec<(Reg, Const)>,
    pub specials: Vec<(Special, Reg)>,
    /// Scalar parameters: number, register, type.
    pub scalars: Vec<(usize, Reg, Ty)>,
    /// Elements of all per-thread arrays.
    pub elems: usize,
    pub shared_bytes: usize,
    /// Warps are ordered by barriers of their own too (mbarriers, named barriers), not all at once alone.
    pub ordered_apart: bool,
    /// Blocks wait for each other.
    pub awaits: bool,
    /// log2 of the shadow's granule in shared memory.
    pub shared_granule: u32,
    /// (first byte, bytes) of each shared array, and its name.
    pub shared: Vec<(u32, u32, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Const {
    Word(u32),
    Wide(u64),
    Mask(u32),
}

/// How a register lies in its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    Word,
    Wide,
    Mask,
}

impl Width {
    pub fn of(ty: Ty) -> Width {
        match ty {
            Ty::Bool => Width::Mask,
            Ty::I32 | Ty::U32 | Ty::F32 => Width::Word,
            Ty::I64 | Ty::U64 | Ty::F64 => Width::Wide,
        }
    }

    pub fn rows(self) -> u32 {
        match self {
            Width::Wide => 2,
            _ => 1,
        }
    }
}

/// A memory operand: where, which element, of which dtype.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub space: Space,
    pub dtype: DType,
    pub index: Reg,
    /// The index is I64 (otherwise I32).
    pub wide: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Space {
    /// Parameter number.
    Global(u16),
    /// Number of the shared array, its first byte and its elements.
    Shared { array: u16, base: u32, len: u32 },
}

/// A per-thread array: first register, first element in the shadow, length, width of an element.
#[derive(Clone, Copy, Debug)]
pub struct ArrayRef {
    pub reg: Reg,
    pub elem: u32,
    pub len: u32,
    pub width: Width,
}

impl ArrayRef {
    pub fn at(self, i: u32) -> Reg {
        self.reg + i * self.width.rows()
    }
}

/// A register operand of an intrinsic, with the array element (for the shadow) that it is, if any.
#[derive(Clone, Copy, Debug)]
pub struct Out {
    pub reg: Reg,
    pub elem: Option<u32>,
}

pub enum Op {
    /// Writes all lanes, or with `keep` only the active ones.
    Pure {
        f: Box<PureFn>,
        d: Reg,
        args: [Reg; 3],
        keep: Option<Width>,
        class: Class,
    },
    Blend {
        width: Width,
        d: Reg,
        s: Reg,
    },
    /// Division and shifts that must be in their domain.
    Int {
        op: IntOp,
        ty: Ty,
        d: Reg,
        a: Reg,
        b: Reg,
    },
    CheckElem {
        array: u32,
        elem: u32,
    },
    MarkElem {
        elem: u32,
    },
    ReadElem {
        d: Reg,
        array: ArrayRef,
        id: u32,
        index: Reg,
    },
    WriteElem {
        s: Reg,
        array: ArrayRef,
        id: u32,
        index: Reg,
    },
    Load {
        d: Reg,
        place: Place,
    },
    Store {
        s: Reg,
        place: Place,
    },
    LoadVec {
        array: ArrayRef,
        at: u32,
        count: u32,
        raw: bool,
        place: Place,
    },
    StoreVec {
        array: ArrayRef,
        at: u32,
        count: u32,
        raw: bool,
        place: Place,
    },
    If {
        cond: Reg,
        otherwise: u32,
    },
    Else {
        end: u32,
    },
    EndIf,
    Enter,
    ForTest {
        var: Reg,
        hi: Reg,
        wide: bool,
        end: u32,
    },
    ForStep {
        var: Reg,
        step: Reg,
        wide: bool,
        back: u32,
    },
    WhileTest {
        cond: Reg,
        end: u32,
    },
    Jump {
        to: u32,
    },
    Barrier,
    WarpBarrier,
    Fence,
    Shuffle {
        d: Reg,
        kind: ShuffleKind,
        width: Width,
        s: Reg,
        lane: Reg,
    },
    Ballot {
        d: Reg,
        pred: Reg,
    },
    Atomic {
        op: AtomicOp,
        place: Place,
        value: Reg,
        old: Option<Reg>,
    },
    Intrinsic {
        op: Intrinsic,
        outs: Vec<Out>,
        args: Vec<Reg>,
    },
    Fault {
        fault: u16,
        site: u32,
        value: Reg,
        ty: Ty,
    },
    End,
}

/// Classes of executed operations, for the cost report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Move,
    Int,
    Float,
    Function,
    Convert,
    Memory,
    Control,
    Sync,
    Mma,
}

pub const CLASSES: usize = CLASS_NAMES.len();

/// In the order of the enum.
pub const CLASS_NAMES: [&str; 9] =
    ["move", "int", "float", "function", "convert", "memory", "control", "sync", "mma"];

impl Op {
    pub fn class(&self) -> Class {
        match self {
            Op::Pure { class, .. } => *class,
            Op::Blend { .. } | Op::ReadElem { .. } | Op::WriteElem { .. } => Class::Move,
            Op::Int { .. } => Class::Int,
            Op::Load { .. }
            | Op::Store { .. }
            | Op::LoadVec { .. }
            | Op::StoreVec { .. }
            | Op::Atomic { .. } => Class::Memory,
            Op::Intrinsic { op, .. } => match op {
                Intrinsic::CpAsync { .. }
                | Intrinsic::LdMatrix { .. }
                | Intrinsic::TmaLoad { .. }
                | Intrinsic::TmaPixels { .. }
                | Intrinsic::StoreAsync { .. }
                | Intrinsic::TmaMulticast { .. }
                | Intrinsic::TmaStore { .. }
                | Intrinsic::StMatrix { .. } => Class::Memory,
                Intrinsic::Philox | Intrinsic::HalfFma { .. } | Intrinsic::BytePermute => Class::Int,
                Intrinsic::Wgmma { .. } | Intrinsic::WgmmaRegs { .. } => Class::Mma,
                op if super::intrinsics::shape(*op).is_some() => Class::Mma,
                _ => Class::Sync,
            },
            Op::Barrier | Op::WarpBarrier | Op::Fence | Op::Shuffle { .. } | Op::Ballot { .. } => Class::Sync,
            _ => Class::Control,
        }
    }
}
