//! Shorthands to write simt kernels by hand.
#![allow(dead_code)]

use girih_compiler::host::HostTensor;
use girih_compiler::ir::graph::TensorId;
use girih_compiler::ir::program::*;
use girih_compiler::ir::simt::*;
use girih_compiler::reference::Inputs;
use girih_compiler::sim::{self, SimError, SimOptions, SimOutcome};
use girih_compiler::vocab::dtype::{DType, Value};
use girih_compiler::vocab::func::Func;
use girih_dsl::ast::Span;

pub fn i(v: i32) -> Expr {
    Expr::Lit(Value::I32(v))
}

pub fn f(v: f32) -> Expr {
    Expr::Lit(Value::F32(v))
}

pub fn v(v: VarId) -> Expr {
    Expr::Var(v)
}

pub fn tid() -> Expr {
    Expr::Special(Special::ThreadX)
}

pub fn bid() -> Expr {
    Expr::Special(Special::BlockX)
}

fn int(op: IntOp, a: Expr, b: Expr) -> Expr {
    Expr::Int(op, Box::new(a), Box::new(b))
}

pub fn add(a: Expr, b: Expr) -> Expr {
    int(IntOp::Add, a, b)
}

pub fn sub(a: Expr, b: Expr) -> Expr {
    int(IntOp::Sub, a, b)
}

pub fn mul(a: Expr, b: Expr) -> Expr {
    int(IntOp::Mul, a, b)
}

pub fn div(a: Expr, b: Expr) -> Expr {
    int(IntOp::Div, a, b)
}

pub fn rem(a: Expr, b: Expr) -> Expr {
    int(IntOp::Rem, a, b)
}

pub fn lt(a: Expr, b: Expr) -> Expr {
    Expr::Compare(CmpOp::Lt, Box::new(a), Box::new(b))
}

pub fn eq(a: Expr, b: Expr) -> Expr {
    Expr::Compare(CmpOp::Eq, Box::new(a), Box::new(b))
}

pub fn call(func: Func, args: Vec<Expr>) -> Expr {
    Expr::Call(func, args)
}

pub fn load(mem: Mem, index: Expr) -> Expr {
    Expr::Load(mem, Box::new(index))
}

pub fn elem(a: ArrayId, index: Expr) -> Expr {
    Expr::Elem(a, Box::new(index))
}

pub fn cond(c: Expr, then: Vec<Stmt>) -> Stmt {
    Stmt::If { cond: c, then, otherwise: vec![] }
}

pub fn repeat(var: VarId, hi: Expr, body: Vec<Stmt>) -> Stmt {
    Stmt::For { var, lo: i(0), hi, step: i(1), unroll: Unroll::Auto, body }
}

/// Line `n` of the test's imagined source.
pub fn line(n: u32) -> Stmt {
    Stmt::Line(span(n))
}

pub fn span(n: u32) -> Span {
    Span { file: 0, start: 10 * n, end: 10 * n + 5 }
}

pub fn kernel(grid: u32, block: u32) -> Kernel {
    Kernel {
        name: "k".into(),
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        cluster: [1; 3],
        ..Kernel::default()
    }
}

pub fn pointer(k: &mut Kernel, name: &str, dtype: DType, len: i64, written: bool) -> ParamId {
    k.param(name, ParamKind::Pointer { dtype, len, written })
}

/// A program of one launch: the pointers that are not written are inputs, the others outputs, under their names.
pub fn program(k: Kernel) -> Program {
    let mut p = Program { name: "p".into(), ..Program::default() };
    let mut args = Vec::new();
    for (n, param) in k.params.iter().enumerate() {
        let ParamKind::Pointer { dtype, len, written } = param.kind else { continue };
        let role = match (written, param.name.as_str()) {
            (_, "fault") => BufferRole::Fault,
            (false, _) => BufferRole::Input(TensorId(n as u32)),
            (true, name) => BufferRole::Output(name.into()),
        };
        let dims = vec![len];
        p.buffers.push(Buffer { name: param.name.clone(), dtype, bytes: dtype.bytes(&dims), dims, role });
        args.push(Arg::Buffer(BufferId(p.buffers.len() as u32 - 1)));
    }
    p.kernels.push(k);
    p.steps.push(Step::Launch(Launch { kernel: 0, args }));
    p
}

pub fn run(p: &Program, inputs: &[(&str, HostTensor)]) -> Result<SimOutcome, SimError> {
    let tensors = inputs.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
    sim::run(p, &Inputs { tensors, ..Inputs::default() }, &SimOptions::default())
}

pub fn floats(t: &HostTensor) -> Vec<f64> {
    (0..t.len()).map(|i| girih_compiler::host::as_f64(t.get(i))).collect()
}
