//! Terms: values over named axes. A value is a function from its axes to scalars, so terms have no binders but
//! folds, and a fold's axes are children, so that patterns can speak of them.
//!
//! Two axes with one name are one axis: the way in names them by range and smallest free rank, so that equal folds
//! are equal terms whatever they were called.

use crate::ir::graph::{Combine, Rounding};
use crate::vocab::dtype::{DType, Ty, Value};
use crate::vocab::func::{FUNCS, Func};
use crate::vocab::monoid::Monoid;
use egg::{FromOp, Id, Language};
use std::fmt;

/// How a read is made; `Else` has its default as last child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum How {
    Proven,
    Checked,
    Else,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// A literal by its bits.
    Lit(Ty, u64),
    /// A named axis: a number in the table of the analysis.
    Axis(u32),
    Scalar(u32),
    Param(u8),
    /// Children: the indices, then the default.
    Read(u32, How),
    Call(Func),
    Cast(Ty),
    Round(DType, Rounding),
    Select,
    /// A fold whose ranges depend on data or other axes: nothing looks inside. Children: the axes it depends on.
    Opaque(u32),
    /// Children: `axes` axes, the condition if there is one, the body.
    Fold {
        combine: Combine,
        axes: u8,
        cond: bool,
    },
}

/// A node of the e-graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Term {
    pub op: Op,
    pub children: Vec<Id>,
}

impl Term {
    pub fn new(op: Op, children: Vec<Id>) -> Term {
        Term { op, children }
    }

    pub fn lit(v: Value) -> Term {
        let (ty, bits) = v.key();
        Term { op: Op::Lit(ty, bits), children: Vec::new() }
    }

    pub fn call(f: Func, children: Vec<Id>) -> Term {
        Term { op: Op::Call(f), children }
    }

    /// A fold's axes, condition and body.
    pub fn fold_parts(&self) -> Option<(Combine, &[Id], Option<Id>, Id)> {
        let Op::Fold { combine, axes, cond } = self.op else { return None };
        let axes = axes as usize;
        let body = *self.children.last()?;
        Some((combine, &self.children[..axes], cond.then(|| self.children[axes]), body))
    }

    pub fn fold(combine: Combine, axes: &[Id], cond: Option<Id>, body: Id) -> Term {
        let op = Op::Fold { combine, axes: axes.len() as u8, cond: cond.is_some() };
        Term { op, children: axes.iter().copied().chain(cond).chain([body]).collect() }
    }
}

impl Language for Term {
    type Discriminant = Op;

    fn discriminant(&self) -> Op {
        self.op
    }

    fn matches(&self, other: &Self) -> bool {
        self.op == other.op && self.children.len() == other.children.len()
    }

    fn children(&self) -> &[Id] {
        &self.children
    }

    fn children_mut(&mut self) -> &mut [Id] {
        &mut self.children
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.op {
            Op::Lit(ty, bits) => match Value::of_bits(ty, bits) {
                Value::Bool(v) => write!(f, "{v}"),
                Value::I32(v) => write!(f, "{v}i32"),
                Value::I64(v) => write!(f, "{v}"),
                Value::F32(v) => write!(f, "{v:?}f32"),
                Value::F64(v) => write!(f, "{v:?}f64"),
            },
            Op::Axis(a) => write!(f, "@{a}"),
            Op::Scalar(s) => write!(f, "scalar{s}"),
            Op::Param(p) => write!(f, "param{p}"),
            Op::Read(t, how) => write!(f, "read{t}{}", suffix(how)),
            Op::Call(func) => write!(f, "{}", call_name(func)),
            Op::Cast(ty) => write!(f, "cast_{}", ty.name()),
            Op::Round(d, Rounding::Fixed) => write!(f, "round_{}", d.name()),
            Op::Round(d, Rounding::Movable) => write!(f, "local_{}", d.name()),
            Op::Select => write!(f, "select"),
            Op::Opaque(n) => write!(f, "opaque{n}"),
            Op::Fold { combine, axes, cond } => {
                let name = match combine {
                    Combine::Builtin(m) => m.name().to_string(),
                    Combine::Fn(n) => format!("fold{}", n.0),
                };
                write!(f, "{name}/{axes}{}", if cond { "?" } else { "" })
            }
        }
    }
}

fn suffix(how: How) -> &'static str {
    match how {
        How::Proven => "",
        How::Checked => "!",
        How::Else => "?",
    }
}

/// A function's name in patterns: its own, but for the two minuses.
fn call_name(f: Func) -> &'static str {
    match f {
        Func::Neg => "neg",
        f => f.row().name,
    }
}

const MONOIDS: [Monoid; 8] = [
    Monoid::Sum,
    Monoid::Prod,
    Monoid::Max,
    Monoid::Min,
    Monoid::Any,
    Monoid::All,
    Monoid::ArgMax,
    Monoid::ArgMin,
];

impl FromOp for Term {
    type Error = String;

    /// What patterns may name: functions, `select`, `cast_TY`, `round_DT`, `MONOID/N`.
    fn from_op(op: &str, children: Vec<Id>) -> Result<Self, String> {
        let fold = || {
            let (name, n) = op.split_once('/')?;
            let m = MONOIDS.into_iter().find(|m| m.name() == name)?;
            Some(Op::Fold { combine: Combine::Builtin(m), axes: n.parse().ok()?, cond: false })
        };
        let call = || {
            FUNCS
                .iter()
                .find(|r| call_name(r.func) == op && r.arity as usize == children.len())
                .map(|r| Op::Call(r.func))
        };
        let cast = || {
            let name = op.strip_prefix("cast_")?;
            [Ty::Bool, Ty::I32, Ty::I64, Ty::F32, Ty::F64]
                .into_iter()
                .find(|t| t.name() == name)
                .map(Op::Cast)
        };
        let rounding = |prefix, how| DType::parse(op.strip_prefix(prefix)?).map(|d| Op::Round(d, how));
        let round = || rounding("round_", Rounding::Fixed).or_else(|| rounding("local_", Rounding::Movable));
        let select = || (op == "select" && children.len() == 3).then_some(Op::Select);
        let found = select().or_else(call).or_else(fold).or_else(cast).or_else(round);
        found.map(|op| Term { op, children }).ok_or_else(|| format!("no term is called {op}"))
    }
}
