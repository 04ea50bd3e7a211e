//! Types of expressions while they are built: the compute types, and the two that are not yet decided.

use crate::ir::graph::ExprId;
use crate::vocab::dtype::Ty;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Typ {
    /// Something was wrong and has been reported: meets everything in silence.
    Error,
    Bool,
    /// An integer made of literals only.
    Lit,
    /// Axes, sizes, const integers: exact, 64 bits.
    Index,
    I32,
    I64,
    /// Float literals and float functions of index values: f64 if it meets f64, otherwise f32.
    Open,
    F32,
    F64,
}

/// An expression with its type. An open float is built in both types at once: `id` is its f32 form, `wide` its f64
/// form; what is not used is dropped when the graph is finished. Other types have `wide == id`.
#[derive(Clone, Copy, Debug)]
pub struct Val {
    pub typ: Typ,
    pub id: ExprId,
    pub wide: ExprId,
    /// It is an integer that comes out of a `/`, which never turns into a float by itself.
    pub divided: bool,
}

impl Val {
    pub fn new(typ: Typ, id: ExprId) -> Val {
        Val { typ, id, wide: id, divided: false }
    }

    pub fn open(id: ExprId, wide: ExprId) -> Val {
        Val { typ: Typ::Open, id, wide, divided: false }
    }
}

impl Typ {
    pub fn of(ty: Ty) -> Typ {
        match ty {
            Ty::Bool => Typ::Bool,
            Ty::I32 => Typ::I32,
            Ty::I64 => Typ::I64,
            Ty::F32 => Typ::F32,
            Ty::F64 => Typ::F64,
        }
    }

    /// The compute type (of `id`).
    pub fn ty(self) -> Ty {
        match self {
            Typ::Bool => Ty::Bool,
            Typ::I32 => Ty::I32,
            Typ::Error | Typ::Lit | Typ::Index | Typ::I64 => Ty::I64,
            Typ::Open | Typ::F32 => Ty::F32,
            Typ::F64 => Ty::F64,
        }
    }

    pub fn is_int(self) -> bool {
        matches!(self, Typ::Lit | Typ::Index | Typ::I32 | Typ::I64)
    }

    pub fn is_float(self) -> bool {
        matches!(self, Typ::Open | Typ::F32 | Typ::F64)
    }

    pub fn name(self) -> &'static str {
        match self {
            Typ::Error => "unknown",
            Typ::Bool => "bool",
            Typ::Lit => "an integer literal",
            Typ::Index => "an index",
            Typ::I32 => "i32",
            Typ::I64 => "i64",
            Typ::Open => "a float",
            Typ::F32 => "f32",
            Typ::F64 => "f64",
        }
    }

    /// The type in which two operands meet: the table of section 5. `None`: bool meets only bool.
    pub fn meet(self, other: Typ) -> Option<Typ> {
        use Typ::*;
        Some(match (self, other) {
            (Error, _) | (_, Error) => Error,
            (a, b) if a == b => a,
            (Bool, _) | (_, Bool) => return None,
            (Lit, t) | (t, Lit) => t,
            (F64, _) | (_, F64) => F64,
            (F32, _) | (_, F32) => F32,
            (Index, t) | (t, Index) => match t {
                I32 => I64,
                t => t,
            },
            (Open, _) | (_, Open) => F32,
            (I32 | I64, _) => I64,
        })
    }

    /// The float type a value has when it is used as a float.
    pub fn as_float(self) -> Typ {
        match self {
            Typ::Lit | Typ::Index => Typ::Open,
            Typ::I32 | Typ::I64 => Typ::F32,
            t => t,
        }
    }
}
