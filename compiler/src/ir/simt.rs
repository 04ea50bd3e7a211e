//! simt: one kernel shaped like CUDA: threads, explicit barriers, temporaries, index arithmetic, named intrinsics.
//!
//! The printer (`lower/simt_to_cuda.rs`) prints each statement as one line or block and decides nothing; the
//! simulator (`sim/`) executes the same value, warp by warp. So what is tested on the CPU is what runs on the GPU.
//!
//! Invariants (checked by `simt_verify.rs`): every variable is declared once in a scope (by `Let`, `For`, or as the
//! result of a shuffle, ballot, atomic or intrinsic) and before its uses;
//! types agree exactly (no implicit conversions); collective statements (barriers, shuffles, mma, ldmatrix) stand
//! where control flow is uniform for their participants (the simulator checks that as it runs); constant indices
//! are in bounds.

use crate::vocab::approx::Approx;
use crate::vocab::dtype::{DType, Value};
use crate::vocab::func::Func;
use girih_dsl::ast::Span;

/// A register's type. `U32` holds bit patterns: packed halves, fragments, shared-memory addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ty {
    Bool,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VarId(pub u32);
/// A per-thread array in registers (indexed by constants after unrolling) or, where indexed at run time, in local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArrayId(pub u32);
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SharedId(pub u32);
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParamId(pub u32);

#[derive(Clone, Debug, Default)]
pub struct Kernel {
    /// A C identifier, already mangled.
    pub name: String,
    pub params: Vec<Param>,
    pub vars: Vec<Var>,
    pub arrays: Vec<Array>,
    pub shared: Vec<Shared>,
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    /// `__launch_bounds__(threads, min_blocks)`; 0 leaves the second out.
    pub min_blocks: u32,
    /// Parameters whose elements the kernel reads once, beside others that it reads again: their vectors of 16 bytes take no
    /// place in the L1 cache.
    pub once: Vec<ParamId>,
    /// It makes good what a kernel before it could not promise, and mostly finds nothing to do: models count its launch.
    pub rare: bool,
    pub body: Vec<Stmt>,
}

#[derive(Clone, Debug)]
pub struct Param {
    pub name: String,
    pub kind: ParamKind,
}

#[derive(Clone, Debug)]
pub enum ParamKind {
    /// A device pointer to `len` elements; `written` tells `const T* __restrict__` from `T*`.
    Pointer {
        dtype: DType,
        len: i64,
        written: bool,
    },
    Scalar(Ty),
    /// A tensor map by value, over the buffer that is its argument.
    TensorMap(TensorMap),
}

/// What a copy of boxes (TMA) knows of its tensor. Dim 0 is innermost and contiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMap {
    pub dtype: DType,
    /// Bytes from the buffer's start to the first element: a multiple of 16.
    pub offset: i64,
    /// Elements along each dim, at most 5 dims. What a box covers beyond them is read as zero and not written.
    pub dims: Vec<i64>,
    /// Bytes between neighbours along each dim but the first: multiples of 16.
    pub strides: Vec<i64>,
    /// Elements of a box along each dim, at most 256. With `pixels`: along dim 0, and how many pixels.
    pub extent: Vec<u32>,
    pub swizzle: Swizzle,
    /// Boxes of pixels in a row instead of boxes along all dims.
    pub pixels: Option<Pixels>,
}

/// Pixels in a row (im2col): from a first one, along dim 1 inside a window, then to the window's next line, and so on
/// through all dims but the last, along which it goes on without a window. Each pixel's elements are read where an
/// offset moves it, zero outside of the tensor. One entry for each dim between the first and the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    /// First place of the window.
    pub lower: Vec<i32>,
    /// What the window ends behind (or before) the tensor's end.
    pub upper: Vec<i32>,
    /// From a place to the next.
    pub step: Vec<u32>,
}

/// How 16-byte chunks of a box's rows are permuted in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Swizzle {
    None,
    B32,
    B64,
    B128,
}

impl Swizzle {
    /// Bytes of a row.
    pub fn width(self) -> u32 {
        match self {
            Swizzle::None => 16,
            Swizzle::B32 => 32,
            Swizzle::B64 => 64,
            Swizzle::B128 => 128,
        }
    }

    /// Where a byte of the plain layout goes: the chunk's number is combined with that of its 128-byte line.
    pub fn place(self, address: u32) -> u32 {
        address ^ (address >> 7 & (self.width() / 16 - 1)) << 4
    }
}

impl TensorMap {
    /// Bytes of a box, as they are counted on its barrier.
    pub fn bytes(&self) -> u32 {
        self.extent.iter().product::<u32>() * self.dtype.bits() / 8
    }
}

#[derive(Clone, Debug)]
pub struct Var {
    pub name: String,
    pub ty: Ty,
}

#[derive(Clone, Debug)]
pub struct Array {
    pub name: String,
    pub ty: Ty,
    pub len: u32,
    /// Registers that the PTX of the text names, so that matrix instructions do not take each as an operand (which
    /// compilers are slow with). Only constants index them.
    pub named: bool,
}

#[derive(Clone, Debug)]
pub struct Shared {
    pub name: String,
    pub dtype: DType,
    /// Elements.
    pub len: u32,
    /// Bytes; at least the element's size.
    pub align: u32,
}

/// Where a load reads or a store writes. Indices count elements of the memory's dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mem {
    Global(ParamId),
    Shared(SharedId),
}

#[derive(Clone, Debug)]
pub enum Expr {
    Lit(Value),
    /// A bit pattern.
    U32(u32),
    Var(VarId),
    /// A scalar parameter.
    Param(ParamId),
    Special(Special),
    /// One element of a per-thread array; the index is I32.
    Elem(ArrayId, Box<Expr>),
    /// Loads an element and converts it to the dtype's compute type (bf16 → f32, i8 → i32, …).
    /// The index is I32 or I64. Packed 4-bit dtypes count nibbles.
    Load(Mem, Box<Expr>),
    /// A scalar function of the vocabulary at operand types that fit its law (I32, I64, F32, F64, Bool).
    Call(Func, Vec<Expr>),
    /// An approximate function of F32 operands.
    Approx(Approx, Vec<Expr>),
    /// Plain machine arithmetic on I32, I64, U32, U64, for indices: U32 and U64 wrap, I32 and I64 must not overflow
    /// (they print as C's signed operators; the functions `Func::Add` and so on wrap). Div and Rem only of
    /// non-negative operands by positive ones; shift counts are below the width.
    Int(IntOp, Box<Expr>, Box<Expr>),
    /// `a < b` and its like on registers of one type.
    Compare(CmpOp, Box<Expr>, Box<Expr>),
    /// Eager: both sides are evaluated (no loads that could be out of bounds).
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
    /// Both eager.
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    /// Conversion with the language's meaning (saturating, NaN to 0, `!= 0`), among Bool, I32, I64, F32, F64, and
    /// plainly between I32/U32/I64/U64 (bits kept or truncated).
    Cast(Ty, Box<Expr>),
    /// Rounds a compute-type value to a dtype and back.
    Round(DType, Box<Expr>),
    /// Reinterprets 32 or 64 bits.
    Bitcast(Ty, Box<Expr>),
    /// Rounds two F32 to a 16-bit float dtype and packs them: first in the low half. U32.
    Pack2(DType, Box<Expr>, Box<Expr>),
    /// Element 0 or 1 of a packed U32 of a 16-bit float dtype, as F32.
    Unpack2(DType, u8, Box<Expr>),
    /// Byte address of an element in the shared window (U32), for ldmatrix, cp.async, mbarriers, descriptors.
    SharedAddr(SharedId, Box<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntOp {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    And,
    Or,
    Xor,
    Shl,
    /// Logical on U32/U64, arithmetic on I32/I64.
    Shr,
    Min,
    Max,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CmpOp {
    Lt,
    Le,
    Gt,
    Ge,
    Eq,
    Ne,
}

/// All I32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Special {
    ThreadX,
    ThreadY,
    ThreadZ,
    BlockX,
    BlockY,
    BlockZ,
    /// threadIdx.x % 32 and threadIdx.x / 32, for blocks along x only.
    Lane,
    Warp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unroll {
    /// Left to the compiler.
    Auto,
    /// `#pragma unroll`; trip count constant.
    Full,
    By(u32),
    /// `#pragma unroll 1`
    None,
}

#[derive(Clone, Debug)]
pub enum Stmt {
    /// Declares and sets.
    Let(VarId, Expr),
    Set(VarId, Expr),
    SetElem(ArrayId, Expr, Expr),
    /// Converts a compute-type value to the memory's dtype (rounding, saturating) and stores it.
    Store(Mem, Expr, Expr),
    /// Loads `count` consecutive elements (aligned to their total size: 4, 8 or 16 bytes) into `array[at..]`,
    /// converted to the array's type (compute type), or raw as U32 words if the array is U32.
    LoadVec {
        array: ArrayId,
        at: u32,
        mem: Mem,
        index: Expr,
        count: u32,
    },
    StoreVec {
        mem: Mem,
        index: Expr,
        array: ArrayId,
        at: u32,
        count: u32,
    },
    /// lo, hi and step are of the variable's type (I32 or I64); hi is evaluated once.
    For {
        var: VarId,
        lo: Expr,
        hi: Expr,
        step: Expr,
        unroll: Unroll,
        body: Vec<Stmt>,
    },
    While {
        cond: Expr,
        body: Vec<Stmt>,
    },
    If {
        cond: Expr,
        then: Vec<Stmt>,
        otherwise: Vec<Stmt>,
    },
    /// `__syncthreads()`
    Barrier,
    /// `__syncwarp()`
    WarpBarrier,
    /// `__threadfence()`
    Fence,
    /// var = the value of `value` at lane `lane` (or lane ^ mask) of the full warp.
    Shuffle {
        var: VarId,
        kind: ShuffleKind,
        value: Expr,
        lane: Expr,
    },
    /// var = bit i set where lane i's predicate holds (U32). Full warp.
    Ballot {
        var: VarId,
        pred: Expr,
    },
    /// Atomic on I32, I64, F32 or F64 memory; `old` gets the old value.
    Atomic {
        op: AtomicOp,
        mem: Mem,
        index: Expr,
        value: Expr,
        old: Option<VarId>,
    },
    /// A named intrinsic with register operands (`sim/intrinsics.rs` has the table).
    Intrinsic {
        op: Intrinsic,
        outs: Vec<Place>,
        args: Vec<Expr>,
    },
    /// Records a fault unless one is recorded: site number, dim and value. `fault` is the pointer parameter.
    Fault {
        fault: ParamId,
        site: u32,
        value: Expr,
    },
    /// Asks the simulator to treat what follows as coming from this source place; printed as a comment.
    Line(Span),
    Comment(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShuffleKind {
    Index,
    Xor,
    /// From lane − n; lanes below n keep their own.
    Up,
    Down,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicOp {
    Add,
    /// Of floats too, as `max` and `min` are defined; the memory must not hold a NaN whose sign is set.
    Min,
    Max,
    Or,
    Exchange,
}

/// Where an intrinsic puts a result.
#[derive(Clone, Debug)]
pub enum Place {
    Var(VarId),
    /// `array[index]`, constant.
    Elem(ArrayId, u32),
}

/// One row each in `sim/intrinsics.rs`: name, operands, PTX, CPU meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Intrinsic {
    /// args: shared address (U32), global pointer element: see `CpAsync` statements below. (dst SharedAddr, src Load address)
    /// `cp.async.cg/ca.shared.global [dst], [src], bytes, valid`: args = SharedAddr, index into `mem`, valid bytes (I32).
    /// Bytes 4, 8 or 16; bytes beyond `valid` are zero.
    CpAsync {
        mem: ParamId,
        bytes: u8,
    },
    CpAsyncCommit,
    /// Waits until at most n groups are in flight.
    CpAsyncWait(u8),
    /// outs: 1, 2 or 4 U32; args: shared address of this lane's row.
    LdMatrix {
        count: u8,
        trans: bool,
    },
    /// Stores 8 × 8 matrices of 16-bit elements as `LdMatrix` loads them. args: shared address of this lane's row,
    /// then `count` U32.
    StMatrix {
        count: u8,
        trans: bool,
    },
    /// D(4 F32) = A(4 U32) · B(2 U32) + C(4 F32); m16n8k16 of f16 or bf16.
    MmaM16N8K16 {
        dtype: DType,
    },
    /// m16n8k8 of f16 (sm_75): A 2 U32, B 1 U32.
    MmaM16N8K8F16,
    /// m16n8k32 of e4m3/e5m2 to F32, or i8/u8 to I32: A 4, B 2, C 4.
    MmaM16N8K32 {
        a: DType,
        b: DType,
    },
    /// m16n8k8 of tf32: A 4 U32, B 2 U32, C 4 F32.
    MmaM16N8K8Tf32,
    /// m8n8k4 of f64: A 1, B 1, C 2 F64.
    MmaM8N8K4F64,
    /// Fused multiply-adds of two f16 or bf16 packed in a word: a · b + c, rounded once. args: a, b, c (U32); out U32.
    HalfFma {
        dtype: DType,
    },
    /// Four bytes of eight, those of a (0–3) and b (4–7), picked by the selector's nibbles, lowest first.
    /// args: a, b, selector (U32); out U32.
    BytePermute,
    /// The four words of a Philox4x32-10 block: 4 U32 of (key, block), both I64.
    Philox,
    /// Waits until the kernels before this one in the stream have ended and what they wrote is seen; from here on the
    /// next one may start. Stands first in a body: such a kernel is launched before the one before it has ended.
    GridWait,
    /// Gives a word to the other blocks of the grid: its place (an I64, 0 before) says that it is there, and holds it.
    /// args: index, word (U32).
    PublishWord {
        mem: ParamId,
    },
    /// Waits until so many neighbouring words are published, by whatever block. args: index of the first, how many of
    /// them are wanted (I32; the others are 0, and not looked at); outs: `count` U32.
    AwaitWords {
        mem: ParamId,
        count: u8,
    },
    /// Of the warp's lanes with the same low bits: how many stand before this one, how many there are.
    /// args: a U32 below 2^bits; outs: 2 I32. Full warp.
    MatchDigit {
        bits: u8,
    },
    /// args: shared address of an 8-byte barrier, arrivals that complete a phase (U32).
    MbarrierInit,
    /// args: address.
    MbarrierArrive,
    /// Arrives, and the phase also waits for so many bytes of copies. args: address, bytes (U32).
    MbarrierExpect,
    /// Waits until the phase of this parity has completed. args: address, parity (U32).
    MbarrierWait,
    /// Makes initialised barriers known to copies.
    FenceMbarrierInit,
    /// What ordinary stores wrote to shared memory is seen by copies and matrix instructions that read it.
    FenceProxyAsync,
    /// Copies a box to shared memory; its bytes are counted on a barrier when they are there.
    /// args: shared address, barrier's address (U32), coordinates of the box (I32, innermost first).
    TmaLoad {
        map: ParamId,
        rank: u8,
    },
    /// The same for pixels in a row. args: shared address, barrier's address (U32), coordinates of the first pixel
    /// (I32, innermost first), offsets of all along the dims between the first and the last (I32, not negative); with
    /// `multicast` a bit for each block of the cluster that they go to (U32).
    TmaPixels {
        map: ParamId,
        rank: u8,
        multicast: bool,
    },
    /// Copies a box from shared memory; of what it covers beyond the tensor nothing is written. args: shared address
    /// (U32), coordinates of the box (I32, innermost first, not negative).
    TmaStore {
        map: ParamId,
        rank: u8,
    },
    /// Closes this thread's group of stores of boxes.
    BulkCommit,
    /// Waits until at most n of this thread's groups of stores have still to read shared memory.
    BulkWait(u8),
    /// Before the first of some matrix instructions: registers are as the program says.
    WgmmaFence,
    WgmmaCommit,
    /// Waits until at most n groups of matrix instructions are under way.
    WgmmaWait(u8),
    /// m64nNkK of a warpgroup, K of 32 bytes: outs are N / 2 sums (F32, of 8-bit integers I32), neighbours in one
    /// array, that accumulate (in and out). args: descriptors of A and B (U64), scale of the accumulator (I32: 0 or 1).
    Wgmma {
        /// A's and B's dtypes: both f16, both bf16, both f32 (as tf32), or 8-bit floats or integers.
        dtypes: [DType; 2],
        n: u16,
        /// Whether an operand lies along M or N (else along K).
        trans: [bool; 2],
    },
    /// As `Wgmma` with A in registers: a warp's 16 rows, as `MmaM16N8K16` has them.
    /// args: 4 U32 of A, descriptor of B (U64), scale of the accumulator (I32: 0 or 1).
    WgmmaRegs {
        dtype: DType,
        n: u16,
        /// Whether B lies along N (else along K).
        trans: bool,
    },
    /// Gives registers of a warpgroup back, or takes more.
    SetMaxRegisters {
        more: bool,
        count: u16,
    },
    /// A barrier of some warps. args: its number (U32, 1–15).
    NamedBarrier {
        threads: u16,
    },
    /// Arrives at the barrier of the block's cluster (along x). Orders initialised mbarriers, and no other memory.
    ClusterArrive,
    /// Waits until all threads of the cluster have arrived.
    ClusterWait,
    /// Arrives at the same barrier of a block of the cluster. args: address of the own block's barrier, the block's
    /// number in the cluster (U32).
    MbarrierArriveAt,
    /// As `TmaLoad`, to the same place of several blocks of the cluster, counted on the same barrier of each. A last
    /// argument has a bit for each block (U32).
    TmaMulticast {
        map: ParamId,
        rank: u8,
    },
    /// Stores 4 bytes, or 8, to the same place of another block of the cluster, and counts them on its mbarrier.
    /// args: shared address, barrier's address (U32; of the own block: the other's are the same), the other block's
    /// number in the cluster (U32), the value (U32 or U64).
    StoreAsync {
        wide: bool,
    },
}

impl Kernel {
    pub fn var(&mut self, name: impl Into<String>, ty: Ty) -> VarId {
        self.vars.push(Var { name: name.into(), ty });
        VarId(self.vars.len() as u32 - 1)
    }

    pub fn array(&mut self, name: impl Into<String>, ty: Ty, len: u32) -> ArrayId {
        self.arrays.push(Array { name: name.into(), ty, len, named: false });
        ArrayId(self.arrays.len() as u32 - 1)
    }

    /// An array whose registers PTX names.
    pub fn named_registers(&mut self, name: impl Into<String>, ty: Ty, len: u32) -> ArrayId {
        let array = self.array(name, ty, len);
        self.arrays[array.0 as usize].named = true;
        array
    }

    pub fn shared(&mut self, name: impl Into<String>, dtype: DType, len: u32, align: u32) -> SharedId {
        self.shared.push(Shared { name: name.into(), dtype, len, align });
        SharedId(self.shared.len() as u32 - 1)
    }

    pub fn param(&mut self, name: impl Into<String>, kind: ParamKind) -> ParamId {
        self.params.push(Param { name: name.into(), kind });
        ParamId(self.params.len() as u32 - 1)
    }

    /// Whether some statement, at any depth, is as `is` says.
    pub fn any(&self, is: &dyn Fn(&Stmt) -> bool) -> bool {
        fn below(stmts: &[Stmt], is: &dyn Fn(&Stmt) -> bool) -> bool {
            stmts.iter().any(|s| {
                is(s)
                    || match s {
                        Stmt::For { body, .. } | Stmt::While { body, .. } => below(body, is),
                        Stmt::If { then, otherwise, .. } => below(then, is) || below(otherwise, is),
                        _ => false,
                    }
            })
        }
        below(&self.body, is)
    }

    /// Whether boxes are stored through a parameter.
    pub fn stores_boxes(&self, param: &str) -> bool {
        self.any(&|s| match s {
            Stmt::Intrinsic { op: Intrinsic::TmaStore { map, .. }, .. } => {
                self.params.get(map.0 as usize).is_some_and(|p| p.name == param)
            }
            _ => false,
        })
    }

    pub fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// The first byte of each shared array, with every array at its alignment, in order.
    pub fn shared_offsets(&self) -> Vec<u32> {
        let mut at = 0u32;
        let mut offsets = Vec::new();
        for s in &self.shared {
            at = at.next_multiple_of(s.align.max(1));
            offsets.push(at);
            at += s.bytes();
        }
        offsets
    }

    /// Bytes of shared memory.
    pub fn shared_bytes(&self) -> u32 {
        self.shared_offsets().last().zip(self.shared.last()).map_or(0, |(at, s)| at + s.bytes())
    }

    /// Whether it may be launched before the kernel before it has ended, for it waits by itself.
    pub fn starts_early(&self) -> bool {
        matches!(self.body.first(), Some(Stmt::Intrinsic { op: Intrinsic::GridWait, .. }))
    }

    /// Bytes of dynamic shared memory to launch with: all of it where it does not fit what a kernel may declare.
    pub fn dynamic_shared_bytes(&self) -> u32 {
        match self.shared_bytes() {
            bytes if bytes > STATIC_SHARED => bytes,
            _ => 0,
        }
    }
}

/// Shared memory that a kernel may declare; more is given at launch.
pub const STATIC_SHARED: u32 = 48 << 10;

impl Shared {
    pub fn bytes(&self) -> u32 {
        (self.len * self.dtype.bits()).div_ceil(8)
    }
}

impl Ty {
    pub fn of(ty: crate::vocab::dtype::Ty) -> Ty {
        use crate::vocab::dtype::Ty as T;
        match ty {
            T::Bool => Ty::Bool,
            T::I32 => Ty::I32,
            T::I64 => Ty::I64,
            T::F32 => Ty::F32,
            T::F64 => Ty::F64,
        }
    }
}
