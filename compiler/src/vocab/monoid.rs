//! Monoids: what folds and scans combine with.

use super::dtype::{Ty, Value};

/// A built-in monoid. `mean`, `logsumexp` and `softmax` are written out with these when the graph is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Monoid {
    Sum,
    Prod,
    /// Propagates NaN; −0 < +0.
    Max,
    Min,
    Any,
    All,
    /// The axis's value (i64) at the first NaN, otherwise at the lowest index among greatest; −1 when empty.
    ArgMax,
    ArgMin,
}

impl Monoid {
    pub fn name(self) -> &'static str {
        match self {
            Monoid::Sum => "sum",
            Monoid::Prod => "prod",
            Monoid::Max => "max",
            Monoid::Min => "min",
            Monoid::Any => "any",
            Monoid::All => "all",
            Monoid::ArgMax => "argmax",
            Monoid::ArgMin => "argmin",
        }
    }

    /// The value of an empty fold over bodies of type `ty` (for argmax and argmin, the result −1).
    pub fn unit(self, ty: Ty) -> Value {
        match (self, ty) {
            (Monoid::ArgMax | Monoid::ArgMin, _) => Value::I64(-1),
            (Monoid::Any, _) => Value::Bool(false),
            (Monoid::All, _) => Value::Bool(true),
            (Monoid::Sum, Ty::I32) => Value::I32(0),
            (Monoid::Sum, Ty::I64) => Value::I64(0),
            (Monoid::Sum, Ty::F32) => Value::F32(0.0),
            (Monoid::Sum, Ty::F64) => Value::F64(0.0),
            (Monoid::Prod, Ty::I32) => Value::I32(1),
            (Monoid::Prod, Ty::I64) => Value::I64(1),
            (Monoid::Prod, Ty::F32) => Value::F32(1.0),
            (Monoid::Prod, Ty::F64) => Value::F64(1.0),
            (Monoid::Max, Ty::I32) => Value::I32(i32::MIN),
            (Monoid::Max, Ty::I64) => Value::I64(i64::MIN),
            (Monoid::Max, Ty::F32) => Value::F32(f32::NEG_INFINITY),
            (Monoid::Max, Ty::F64) => Value::F64(f64::NEG_INFINITY),
            (Monoid::Min, Ty::I32) => Value::I32(i32::MAX),
            (Monoid::Min, Ty::I64) => Value::I64(i64::MAX),
            (Monoid::Min, Ty::F32) => Value::F32(f32::INFINITY),
            (Monoid::Min, Ty::F64) => Value::F64(f64::INFINITY),
            (_, Ty::Bool) => Value::Bool(false),
        }
    }

    /// The type of the result of a fold over bodies of type `body`.
    pub fn result(self, body: Ty) -> Ty {
        match self {
            Monoid::ArgMax | Monoid::ArgMin => Ty::I64,
            Monoid::Any | Monoid::All => Ty::Bool,
            _ => body,
        }
    }
}
