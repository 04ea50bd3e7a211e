//! A short way to write graphs.

use crate::ir::graph::*;
use crate::vocab::dtype::*;
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use girih_dsl::ast::Span;

pub fn tensor(g: &mut Graph, name: &str, dtype: DType, dims: &[i64], role: Role) -> TensorId {
    g.tensors.push(Tensor {
        name: name.into(),
        version: 0,
        dtype,
        dims: dims.to_vec(),
        lo: vec![0; dims.len()],
        role,
        range: None,
        unique: false,
        cast: false,
        strides: Vec::new(),
        align: 16,
        span: Span::default(),
    });
    let id = TensorId(g.tensors.len() as u32 - 1);
    if role == Role::Result {
        g.outputs.push(Output { name: name.into(), tensor: id, inout: None, shape: None });
    }
    id
}

pub fn axis(g: &mut Graph, name: &str, n: i64) -> AxisId {
    let (lo, hi) = (g.int(0), g.int(n));
    g.new_axis(name, lo, hi, Span::default())
}

/// Axes over a tensor's dims, and their values.
pub fn axes(g: &mut Graph, dims: &[i64]) -> (Vec<AxisId>, Vec<ExprId>) {
    let axes: Vec<AxisId> = dims.iter().enumerate().map(|(i, &n)| axis(g, &format!("i{i}"), n)).collect();
    let values = axes.iter().map(|&a| g.axis_expr(a)).collect();
    (axes, values)
}

pub fn read(g: &mut Graph, t: TensorId, index: &[ExprId], access: Access) -> ExprId {
    let ty = g.tensor(t).dtype.compute();
    g.add(Expr::Read(Read { tensor: t, index: index.to_vec(), access }), ty, Span::default())
}

pub fn at(g: &mut Graph, t: TensorId, index: &[ExprId]) -> ExprId {
    read(g, t, index, Access::Proven)
}

pub fn call(g: &mut Graph, func: Func, args: &[ExprId]) -> ExprId {
    let types: Vec<Ty> = args.iter().map(|&a| g.ty(a)).collect();
    let ty = func.result(&types).expect("the operands fit");
    g.add(Expr::Call(func, args.to_vec()), ty, Span::default())
}

pub fn fold(g: &mut Graph, m: Monoid, axes: &[AxisId], cond: Option<ExprId>, body: ExprId) -> ExprId {
    let ty = m.result(g.ty(body));
    let f = Fold { combine: Combine::Builtin(m), axes: axes.to_vec(), cond, body };
    g.add(Expr::Fold(f), ty, Span::default())
}

pub fn define(g: &mut Graph, target: TensorId, axes: &[AxisId], value: ExprId) {
    let axes = axes.to_vec();
    g.stmts.push(Stmt::Define(Define { target, axes, value, span: Span::default() }));
}

pub fn f32(g: &mut Graph, v: f32) -> ExprId {
    g.lit(Value::F32(v))
}
