//! Operands that only have to be turned are copied as the map `to[…, c] = from[…]`, which goes through tiles in shared
//! memory where neighbours in one are not neighbours in the other.

use super::contract_pack::Pack;
use super::home::Home;
use super::{Lowering, Refusal, map};
use crate::ir::graph::*;
use crate::ir::plan::{Form, Plan};
use crate::vocab::dtype::DType;
use girih_dsl::ast::Span;

/// A dim of both: extent, elements between neighbours in the source and in the copy.
pub type Dim = (i64, i64, i64);

/// Launches the copy, if nothing but the order of dims changes.
pub fn copy(
    cx: &mut Lowering<'_>,
    name: &str,
    p: &Pack,
    from: &Home,
    to: &Home,
    span: Span,
) -> Option<Result<(), Refusal>> {
    let t = cx.graph.tensor(p.tensor);
    let n = t.dims[p.inner];
    let whole = p.home.len == t.dims.iter().product::<i64>() && from.dtype == to.dtype && from.ring.is_none();
    if !whole || from.strides[p.inner] == 1 || n < 2 || to.dtype.bits() < 8 {
        return None;
    }
    let dims = dims(&t.dims, p, from, to)?;
    let (mut graph, [source, target]) = graph(&dims, to.dtype, &t.name, span);
    graph.op = cx.graph.op.clone();
    let plan = Plan::of_statement(graph, name, Form::Map);
    let lie = |home: &Home, stride: fn(&Dim) -> i64| Home {
        strides: dims.iter().map(stride).collect(),
        ..home.clone()
    };
    Some(cx.within(&plan, |inner| {
        inner.set_home(source, lie(from, |d| d.1));
        inner.set_home(target, lie(to, |d| d.2));
        map::lower(inner, &plan.kernels[0])
    }))
}

/// The dims of a copy, the innermost of the copy last: neighbours that are one number on both sides as one. `None`: there
/// is but one.
pub fn dims(extents: &[i64], p: &Pack, from: &Home, to: &Home) -> Option<Vec<Dim>> {
    let mut dims: Vec<Dim> = Vec::new();
    for d in (0..extents.len()).filter(|&d| d != p.inner && extents[d] > 1) {
        let this = (extents[d], from.strides[d], to.strides[d]);
        match dims.last_mut() {
            Some(o) if o.1 == this.0 * this.1 && o.2 == this.0 * this.2 => {
                *o = (o.0 * this.0, this.1, this.2);
            }
            _ => dims.push(this),
        }
    }
    dims.push((extents[p.inner], from.strides[p.inner], 1));
    (dims.len() > 1).then_some(dims)
}

/// `to[i…] = from[i…]` over these dims.
fn graph(dims: &[Dim], dtype: DType, name: &str, span: Span) -> (Graph, [TensorId; 2]) {
    let mut g = Graph::default();
    let extents: Vec<i64> = dims.iter().map(|d| d.0).collect();
    for (name, role) in [(name.to_string(), Role::Input), (format!("{name}_packed"), Role::Local)] {
        g.tensors.push(Tensor {
            name,
            version: 0,
            dtype,
            dims: extents.clone(),
            lo: vec![0; dims.len()],
            role,
            range: None,
            unique: false,
            cast: false,
            strides: Vec::new(),
            align: 0,
            span,
        });
    }
    let (source, target) = (TensorId(0), TensorId(1));
    let axis = |(i, &n): (usize, &i64)| {
        let (lo, hi) = (g.int(0), g.int(n));
        g.new_axis(format!("d{i}"), lo, hi, span)
    };
    let axes: Vec<AxisId> = extents.iter().enumerate().map(axis).collect();
    let index = axes.iter().map(|&a| g.axis_expr(a)).collect();
    let read = Expr::Read(Read { tensor: source, index, access: Access::Proven });
    let value = g.add(read, dtype.compute(), span);
    g.stmts.push(Stmt::Define(Define { target, axes, value, span }));
    (g, [source, target])
}
