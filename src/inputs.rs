//! From stored tensors to an op's inputs: what the parameter makes of the bytes in a file.

use crate::error::{Error, Result};
use crate::files::{Stored, stored_shape};
use girih_compiler::host::HostTensor;
use girih_compiler::ir::graph::Tensor;
use girih_compiler::vocab::dtype::{DTYPES, DType};
use girih_dsl::ast::{Expr, ExprKind, Op, Param};
use std::collections::BTreeMap;

/// The parameter of this name that is a tensor.
pub fn tensor_parameter<'a>(op: &'a Op, name: &str) -> Result<&'a Param> {
    let tensors = || op.params.iter().filter(|p| p.dims.is_some());
    match op.params.iter().find(|p| p.name.text == name) {
        Some(p) if p.dims.is_some() => Ok(p),
        Some(_) => Err(Error::argument(
            name,
            format!("it is a scalar of {}: give it with --const {name}=…", op.name.text),
        )),
        None => {
            let names: Vec<&str> = tensors().map(|p| p.name.text.as_str()).collect();
            Err(Error::argument(
                name,
                format!("{} has no such input: it has {}", op.name.text, names.join(", ")),
            ))
        }
    }
}

/// Dtype and dims of an input, for binding sizes; `None` where a packed input's last dim is still open.
pub fn shape_of(
    param: &Param,
    stored: &Stored,
    sizes: &BTreeMap<String, i64>,
    consts: &BTreeMap<String, String>,
) -> Result<Option<(DType, Vec<i64>)>> {
    let name = &param.name.text;
    let dtype = dtype_of(param, stored, consts)?;
    let rank = param.dims.as_ref().map_or(0, Vec::len);
    if stored.shape.len() != rank {
        let shape = &stored.shape;
        return Err(Error::argument(
            name,
            format!(
                "its shape {shape:?} has {}, and {rank} are wanted: {name}: {}",
                axes(shape.len()),
                declared(param)
            ),
        ));
    }
    let mut dims = stored.shape.clone();
    if let (4, Some(last)) = (dtype.bits(), dims.last_mut()) {
        let expr = param.dims.as_ref().and_then(|d| d.last());
        match expr.and_then(|e| known(e, sizes)) {
            Some(n) if (n + 1) / 2 == *last => *last = n,
            Some(n) => {
                let what = format!(
                    "its last dim is {n}, which is {} bytes a row, and {last} are given",
                    (n + 1) / 2
                );
                return Err(Error::argument(name, what));
            }
            None => return Ok(None),
        }
    }
    Ok(Some((dtype, dims)))
}

/// `1 axis`, `2 axes`.
fn axes(n: usize) -> String {
    if n == 1 { "1 axis".into() } else { format!("{n} axes") }
}

/// `f32[M, N]`
fn declared(p: &Param) -> String {
    let dims: Vec<String> = p.dims.iter().flatten().map(girih_dsl::print_expr).collect();
    format!("{}[{}]", p.dtype.text, dims.join(", "))
}

/// The dtype that a file's tensor has for this parameter.
fn dtype_of(param: &Param, stored: &Stored, consts: &BTreeMap<String, String>) -> Result<DType> {
    let written = consts.get(&param.dtype.text).unwrap_or(&param.dtype.text);
    match (DType::parse(written), stored.dtypes.first()) {
        (Some(d), _) if stored.dtypes.contains(&d) => Ok(d),
        (Some(d), _) => Err(other_dtype(&param.name.text, stored, d)),
        // A dtype parameter: what the file says.
        (None, Some(&d)) => Ok(d),
        (None, None) => {
            let what = format!(
                "the file holds {}, and the dtypes are {}",
                stored.called,
                DTYPES.map(|r| r.name).join(", ")
            );
            Err(Error::argument(&param.name.text, what))
        }
    }
}

fn other_dtype(name: &str, stored: &Stored, wanted: DType) -> Error {
    let has = stored.dtypes.first().map_or(stored.called.as_str(), |d| d.name());
    let numpy = match wanted {
        DType::F64 => Some("float64"),
        DType::F32 => Some("float32"),
        DType::F16 => Some("float16"),
        DType::I64 => Some("int64"),
        DType::I32 => Some("int32"),
        DType::I16 => Some("int16"),
        DType::I8 => Some("int8"),
        DType::U8 | DType::I4 | DType::U4 => Some("uint8"),
        DType::Bool => Some("bool"),
        _ => None,
    };
    let remedy = match numpy {
        Some(called) => format!("save it as x.astype(np.{called})"),
        None => format!("numpy has no {}: save it as safetensors, by torch", wanted.name()),
    };
    Error::argument(name, format!("the file holds {has} and {} is wanted: {remedy}", wanted.name()))
}

/// The value of a dim that is a size with a known value, or a number.
fn known(e: &Expr, sizes: &BTreeMap<String, i64>) -> Option<i64> {
    match &e.kind {
        ExprKind::Int(text) => text.replace('_', "").parse().ok(),
        ExprKind::Read { name, index: None } => sizes.get(&name.text).copied(),
        ExprKind::Paren(inner) => known(inner, sizes),
        _ => None,
    }
}

/// The tensor that a bound input takes, if the stored one fits.
pub fn fit(t: &Tensor, stored: Stored) -> Result<HostTensor> {
    if !stored.dtypes.contains(&t.dtype) {
        return Err(other_dtype(&t.name, &stored, t.dtype));
    }
    let wanted = stored_shape(t.dtype, &t.dims);
    if stored.shape != wanted {
        return Err(Error::argument(
            &t.name,
            format!("its shape is {:?} and the sizes make it {wanted:?}", stored.shape),
        ));
    }
    HostTensor::new(t.dtype, t.dims.clone(), stored.data)
        .ok_or_else(|| Error::argument(&t.name, "its bytes do not fit its shape"))
}
