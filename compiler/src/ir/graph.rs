//! graph: typed, shape-checked definitions over named axes, for given sizes, consts and dtypes.
//!
//! Built by `pass/ast_to_graph.rs`. Everything the language resolves is resolved here: op calls are inlined,
//! sizes are numbers, every axis is unique, updates are versions (as in SSA), `mean`, `softmax`, `logsumexp`
//! are written out, statements stand in an order in which they can run.
//!
//! Invariants (checked by `verify`):
//! - Every id is in range; a `Read` has as many indices as its tensor has dims, each of type I64.
//! - An axis is bound once: by one statement's axes or by one fold.
//! - Operand types fit the function's law; `Select` conditions are bool, its branches of one type.
//! - A statement reads tensors that are inputs, or defined by an earlier statement, or (in a `Recur`) by a member.
//! - Every tensor but the inputs is the target of exactly one definition.

use crate::vocab::dtype::{DType, Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use girih_dsl::ast::Span;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub u32);
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AxisId(pub u32);
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExprId(pub u32);
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScalarId(pub u32);
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FoldFnId(pub u32);

#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub op: String,
    /// Sizes with their values, for printing.
    pub sizes: Vec<(String, i64)>,
    /// Const parameters with their values, for printing and for keys.
    pub consts: Vec<(String, Value)>,
    pub tensors: Vec<Tensor>,
    pub scalars: Vec<Scalar>,
    pub axes: Vec<Axis>,
    pub exprs: Vec<ExprNode>,
    pub fold_fns: Vec<FoldFn>,
    pub stmts: Vec<Stmt>,
    /// Results and inouts under the user's names, with the tensor (last version) that holds the value at the end.
    pub outputs: Vec<Output>,
    /// Settings of the op's `tile` blocks.
    pub tiles: Vec<TileBlock>,
    index: FxHashMap<(Expr, Ty), ExprId>,
}

#[derive(Clone, Debug)]
pub struct Output {
    pub name: String,
    pub tensor: TensorId,
    /// The input whose memory the new value takes (`inout`).
    pub inout: Option<TensorId>,
    /// Its dims for the caller, where the tensor has one of them as two.
    pub shape: Option<Vec<i64>>,
}

#[derive(Clone, Debug)]
pub struct Tensor {
    /// The user's name; with the called op's name in front where it was inlined (`gate_up.g`); a later version
    /// of an updated tensor keeps the name.
    pub name: String,
    pub version: u32,
    /// What its elements are rounded to when defined. An unrounded local has its compute type's own dtype.
    pub dtype: DType,
    /// Extents, all ≥ 0. Rank 0 is a scalar.
    pub dims: Vec<i64>,
    /// First index of each dim: 0 but for locals over ranges such as `1..=M`.
    pub lo: Vec<i64>,
    pub role: Role,
    /// Declared value range of an integer input, half-open.
    pub range: Option<(i64, i64)>,
    pub unique: bool,
    /// A local that a pass made of a cast: its rounding is the cast's and stays where it is.
    pub cast: bool,
    /// Elements between neighbours along each dim (inputs only; contiguous by default), and the alignment in
    /// bytes that the first element's address is known to have.
    pub strides: Vec<i64>,
    pub align: u32,
    pub span: Span,
}

impl Tensor {
    /// How a value is rounded that is stored here.
    pub fn rounding(&self) -> Rounding {
        if self.role == Role::Local && !self.cast { Rounding::Movable } else { Rounding::Fixed }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Input,
    /// The value an `inout` has at the start.
    Inout,
    Result,
    Local,
    /// A `const` list: `Tensor` values stand in [`Stmt::Table`].
    Table,
}

/// A scalar given at launch.
#[derive(Clone, Debug)]
pub struct Scalar {
    pub name: String,
    pub dtype: DType,
    /// The default, if it is a constant for these sizes.
    pub default: Option<Value>,
    pub range: Option<(i64, i64)>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct Axis {
    pub name: String,
    /// Half-open: lo..hi. I64 expressions; literals for statement axes and most folds.
    pub lo: ExprId,
    pub hi: ExprId,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct ExprNode {
    pub expr: Expr,
    pub ty: Ty,
    pub span: Span,
}

/// Where a rounding may happen (LANGUAGE.md section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rounding {
    /// Here: a cast that is written, or a result's.
    Fixed,
    /// A local's: it may move across a scaling that is common to its row.
    Movable,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expr {
    Lit(Value),
    /// The axis's value, I64.
    Axis(AxisId),
    Scalar(ScalarId),
    Read(Read),
    Call(Func, Vec<ExprId>),
    /// Conversion to another compute type: integers saturate, floats to integers truncate, saturate, NaN gives 0;
    /// to bool is `!= 0`.
    Cast(ExprId),
    /// A rounding to a dtype and back to its compute type (`bf16(x)`). Operand and result have that compute type
    /// (integers saturate); the operand of a rounding to a float below f32 may also be f64, which is rounded once.
    Round(DType, Rounding, ExprId),
    /// Evaluates only the branch it takes. `a && b` is `Select(a, b, false)`, `a || b` is `Select(a, true, b)`.
    Select(ExprId, ExprId, ExprId),
    Fold(Fold),
    /// Parameter 0 or 1 of a fold function, in its body only.
    Param(u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Read {
    pub tensor: TensorId,
    pub index: Vec<ExprId>,
    pub access: Access,
}

/// What is known of a read's indices, on the path where it is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// In bounds, proven.
    Proven,
    /// Through data: checked as it is read; outside it is NaN (0, false) and a fault.
    Checked,
    /// `x[…] else d`: `d` where any index is outside.
    Else(ExprId),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fold {
    pub combine: Combine,
    /// Bound here. Their ranges may read outer axes and data, and axes before them in this list.
    pub axes: Vec<AxisId>,
    /// Points where it is false are not taken (and `body` is not evaluated there).
    pub cond: Option<ExprId>,
    pub body: ExprId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Combine {
    Builtin(Monoid),
    /// A user's `fn f(a, b) from unit`: associative, not commutative.
    Fn(FoldFnId),
}

#[derive(Clone, Debug)]
pub struct FoldFn {
    pub name: String,
    /// Closed but for `Param(0)` and `Param(1)` (and run-time scalars, sizes).
    pub body: ExprId,
    pub unit: ExprId,
    pub ty: Ty,
}

#[derive(Clone, Debug)]
pub enum Stmt {
    /// `t[axes] = value` at every point; each axis's range is literal and equals the tensor's domain.
    Define(Define),
    /// `t[axes]` at axis `along` = the combination of `body` over all points at or before it along that axis.
    Scan(Scan),
    /// `t[axes]` = the value of axis `along` that stands at this position when sorted ascending by key: stable, NaN last.
    Sort(Sort),
    /// Definitions that read themselves or each other at earlier points.
    Recur(Recur),
    Update(Update),
    /// A tensor of constants.
    Table {
        target: TensorId,
        values: Vec<Value>,
    },
}

#[derive(Clone, Debug)]
pub struct Define {
    pub target: TensorId,
    pub axes: Vec<AxisId>,
    pub value: ExprId,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct Scan {
    pub target: TensorId,
    pub axes: Vec<AxisId>,
    /// Position in `axes`.
    pub along: usize,
    pub combine: Combine,
    pub cond: Option<ExprId>,
    pub body: ExprId,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct Sort {
    pub target: TensorId,
    pub axes: Vec<AxisId>,
    /// Position in `axes`.
    pub along: usize,
    pub key: ExprId,
    pub span: Span,
}

/// Members step together. `steps[s]` names one axis of each member (by position in its `axes`), outermost first;
/// every read of a member by a member is at an earlier point of the steps in lexicographic order, or at the same
/// point and of a member that stands before.
#[derive(Clone, Debug)]
pub struct Recur {
    pub members: Vec<Define>,
    pub steps: Vec<StepAxis>,
}

#[derive(Clone, Debug)]
pub struct StepAxis {
    /// For each member, the position of the axis in its `axes`.
    pub position: Vec<usize>,
    /// From high to low.
    pub descending: bool,
}

/// `target[index] op= value where cond` for every point of `axes`; elements that no point meets keep the base.
#[derive(Clone, Debug)]
pub struct Update {
    /// The new version.
    pub target: TensorId,
    pub base: Base,
    pub axes: Vec<AxisId>,
    /// One for each dim of the target. Out of bounds: nothing is written, and a fault, unless `proven`.
    pub index: Vec<ExprId>,
    pub proven: bool,
    /// No two points that are taken meet in one element.
    pub distinct: bool,
    pub op: UpdateOp,
    pub cond: Option<ExprId>,
    pub value: ExprId,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Base {
    /// The version before.
    Tensor(TensorId),
    /// 0, −inf or +inf by the operator (integers: 0, the dtype's least, greatest).
    Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpdateOp {
    /// The last point in row-major order of the axes wins.
    Set,
    Add,
    Max,
    Min,
}

/// A `tile` block that applies to this op.
#[derive(Clone, Debug)]
pub struct TileBlock {
    /// `tile op.name`
    pub def: Option<String>,
    /// Where that definition's values stand.
    pub at: Vec<Span>,
    /// Where the op stands, if it is called by the one at hand.
    pub of: Option<Span>,
    /// Empty: every target.
    pub targets: Vec<String>,
    pub settings: Vec<Setting>,
}

#[derive(Clone, Debug)]
pub struct Setting {
    pub key: String,
    /// Of the definition the block speaks of; `None` for settings without axes.
    pub axis: Option<String>,
    /// Every value allowed, as written (ranges written out).
    pub choices: Vec<Word>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    Int(i64),
    Name(String),
    Apply(String, Box<Word>),
}

impl Graph {
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.0 as usize]
    }

    pub fn axis(&self, id: AxisId) -> &Axis {
        &self.axes[id.0 as usize]
    }

    pub fn expr(&self, id: ExprId) -> &Expr {
        &self.exprs[id.0 as usize].expr
    }

    pub fn ty(&self, id: ExprId) -> Ty {
        self.exprs[id.0 as usize].ty
    }

    pub fn span(&self, id: ExprId) -> Span {
        self.exprs[id.0 as usize].span
    }

    pub fn fold_fn(&self, id: FoldFnId) -> &FoldFn {
        &self.fold_fns[id.0 as usize]
    }

    /// Interns an expression: equal expressions of one type have one id (and the first one's span).
    pub fn add(&mut self, expr: Expr, ty: Ty, span: Span) -> ExprId {
        match self.index.entry((expr, ty)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let id = ExprId(self.exprs.len() as u32);
                self.exprs.push(ExprNode { expr: new.key().0.clone(), ty, span });
                *new.insert(id)
            }
        }
    }

    pub fn lit(&mut self, value: Value) -> ExprId {
        self.add(Expr::Lit(value), value.ty(), Span::default())
    }

    pub fn int(&mut self, value: i64) -> ExprId {
        self.lit(Value::I64(value))
    }

    pub fn axis_expr(&mut self, axis: AxisId) -> ExprId {
        let span = self.axis(axis).span;
        self.add(Expr::Axis(axis), Ty::I64, span)
    }

    pub fn new_axis(&mut self, name: impl Into<String>, lo: ExprId, hi: ExprId, span: Span) -> AxisId {
        self.axes.push(Axis { name: name.into(), lo, hi, span });
        AxisId(self.axes.len() as u32 - 1)
    }

    /// The literal range of an axis, if it has one.
    pub fn axis_range(&self, axis: AxisId) -> Option<(i64, i64)> {
        let a = self.axis(axis);
        match (self.expr(a.lo), self.expr(a.hi)) {
            (Expr::Lit(Value::I64(lo)), Expr::Lit(Value::I64(hi))) => Some((*lo, *hi)),
            _ => None,
        }
    }

    /// Number of points of an axis with a literal range.
    pub fn extent(&self, axis: AxisId) -> Option<i64> {
        self.axis_range(axis).map(|(lo, hi)| (hi - lo).max(0))
    }

    /// The expressions an expression is made of, in order (a fold's: ranges, condition, body).
    pub fn children(&self, id: ExprId) -> Vec<ExprId> {
        match self.expr(id) {
            Expr::Lit(_) | Expr::Axis(_) | Expr::Scalar(_) | Expr::Param(_) => Vec::new(),
            Expr::Read(r) => {
                let mut c = r.index.clone();
                if let Access::Else(d) = r.access {
                    c.push(d);
                }
                c
            }
            Expr::Call(_, args) => args.clone(),
            Expr::Cast(a) | Expr::Round(_, _, a) => vec![*a],
            Expr::Select(c, a, b) => vec![*c, *a, *b],
            Expr::Fold(f) => {
                let ranges = f.axes.iter().flat_map(|&a| [self.axis(a).lo, self.axis(a).hi]);
                ranges.chain(f.cond).chain([f.body]).collect()
            }
        }
    }
}

impl Stmt {
    /// The tensors it defines.
    pub fn targets(&self) -> Vec<TensorId> {
        match self {
            Stmt::Define(d) => vec![d.target],
            Stmt::Scan(s) => vec![s.target],
            Stmt::Sort(s) => vec![s.target],
            Stmt::Recur(r) => r.members.iter().map(|d| d.target).collect(),
            Stmt::Update(u) => vec![u.target],
            Stmt::Table { target, .. } => vec![*target],
        }
    }
}
