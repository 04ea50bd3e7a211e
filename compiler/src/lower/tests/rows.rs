//! Row kernels and whole plans: fused, against the reference of the graph as it was written.

use super::build::*;
use super::*;
use crate::ir::graph::*;
use crate::vocab::dtype::{DType, Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use girih_dsl::ast::Span;

/// Plans with fusion, checks each kernel's form, the plan's graph in the reference, and the program in the simulator.
pub fn planned(g: &Graph, inputs: &Inputs, forms: &[Form]) -> SimOutcome {
    let plan = plan(g, &PlanOptions::default());
    let got: Vec<Form> = plan.kernels.iter().map(|k| k.form).collect();
    assert_eq!(got, forms, "{:#?}", plan.notes);
    let want = reference::run(g, inputs).expect("no fault");
    let rewritten = reference::run(&plan.graph, inputs).expect("no fault in the plan");
    let target = Target::parse("sm_90a").expect("a target of the table");
    let program =
        plan_to_program(&plan, target, &Schedule::default()).expect("every form takes its statement");
    let out = sim::run(&program, inputs, &SimOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    for (name, want) in &want.outputs {
        for (what, got) in [("plan", &rewritten.outputs[name].tensor), ("program", &out.outputs[name])] {
            if let Err(m) = reference::compare(want, got) {
                panic!("{what} {name}: {m}\n{:#?}", plan.notes);
            }
        }
    }
    out
}

pub fn data(dtype: DType, dims: &[i64]) -> HostTensor {
    HostTensor::from_f64(dtype, dims, &pattern(dims.iter().product()))
}

/// A fold over a copy of the last axis of `x[i…, k]`.
fn over_row(
    g: &mut Graph,
    x: TensorId,
    outer: &[ExprId],
    n: i64,
    m: Monoid,
    f: &dyn Fn(&mut Graph, ExprId) -> ExprId,
) -> ExprId {
    let k = axis(g, "k", n);
    let kv = g.axis_expr(k);
    let index: Vec<ExprId> = outer.iter().copied().chain([kv]).collect();
    let v = at(g, x, &index);
    let body = f(g, v);
    fold(g, m, &[k], None, body)
}

/// y[m, n] = exp(x − max x) / Σ exp(x − max x), in one statement.
pub fn softmax(dtype: DType, m: i64, n: i64) -> Graph {
    let mut g = Graph::default();
    let x = tensor(&mut g, "x", dtype, &[m, n], Role::Input);
    let y = tensor(&mut g, "y", dtype, &[m, n], Role::Result);
    let (ax, i) = axes(&mut g, &[m, n]);
    let top = over_row(&mut g, x, &i[..1], n, Monoid::Max, &|_, v| v);
    let e = |g: &mut Graph, v: ExprId| {
        let d = call(g, Func::Sub, &[v, top]);
        call(g, Func::Exp, &[d])
    };
    let sum = over_row(&mut g, x, &i[..1], n, Monoid::Sum, &e);
    let v = at(&mut g, x, &i);
    let v = e(&mut g, v);
    let v = call(&mut g, Func::Div, &[v, sum]);
    define(&mut g, y, &ax, v);
    g
}

#[test]
fn softmax_is_one_row_kernel() {
    for dtype in [DType::F32, DType::BF16] {
        for (m, n) in [(3, 7), (5, 64), (2, 257), (3, 1024), (2, 4096), (1, 9000), (300, 8), (33, 33)] {
            planned(&softmax(dtype, m, n), &inputs(&[("x", data(dtype, &[m, n]))]), &[Form::Row]);
        }
    }
    planned(&softmax(DType::F32, 0, 4), &inputs(&[("x", data(DType::F32, &[0, 4]))]), &[Form::Row]);
    planned(&softmax(DType::F32, 4, 0), &inputs(&[("x", data(DType::F32, &[4, 0]))]), &[Form::Map]);
}

/// mu, var and y of layer norm, as three statements.
fn layer_norm(m: i64, n: i64) -> Graph {
    let mut g = Graph::default();
    let x = tensor(&mut g, "x", DType::F32, &[m, n], Role::Input);
    let w = tensor(&mut g, "w", DType::F32, &[n], Role::Input);
    let mu = tensor(&mut g, "mu", DType::F32, &[m], Role::Local);
    let var = tensor(&mut g, "var", DType::F32, &[m], Role::Local);
    let y = tensor(&mut g, "y", DType::F32, &[m, n], Role::Result);
    let count = f32(&mut g, n as f32);
    let (ax, i) = axes(&mut g, &[m]);
    let sum = over_row(&mut g, x, &i, n, Monoid::Sum, &|_, v| v);
    let mean = call(&mut g, Func::Div, &[sum, count]);
    define(&mut g, mu, &ax, mean);
    let (ax, i) = axes(&mut g, &[m]);
    let mean = at(&mut g, mu, &i);
    let square = |g: &mut Graph, v: ExprId| {
        let d = call(g, Func::Sub, &[v, mean]);
        call(g, Func::Mul, &[d, d])
    };
    let sum = over_row(&mut g, x, &i, n, Monoid::Sum, &square);
    let v = call(&mut g, Func::Div, &[sum, count]);
    define(&mut g, var, &ax, v);
    let (ax, i) = axes(&mut g, &[m, n]);
    let (v, a, b, c) =
        (at(&mut g, x, &i), at(&mut g, mu, &i[..1]), at(&mut g, var, &i[..1]), at(&mut g, w, &i[1..]));
    let eps = f32(&mut g, 1e-5);
    let d = call(&mut g, Func::Sub, &[v, a]);
    let s = call(&mut g, Func::Add, &[b, eps]);
    let s = call(&mut g, Func::Rsqrt, &[s]);
    let v = call(&mut g, Func::Mul, &[d, s]);
    let v = call(&mut g, Func::Mul, &[v, c]);
    define(&mut g, y, &ax, v);
    g
}

#[test]
fn layer_norm_is_one_row_kernel() {
    for (m, n) in [(2, 5), (4, 256), (3, 1000), (2, 3072)] {
        let inputs = inputs(&[("x", data(DType::F32, &[m, n])), ("w", data(DType::F32, &[n]))]);
        planned(&layer_norm(m, n), &inputs, &[Form::Row]);
    }
}

fn reduce(m: Monoid, dtype: DType, dims: &[i64], over: &[usize], values: &[f64], form: Form) -> SimOutcome {
    let mut g = Graph::default();
    let x = tensor(&mut g, "x", dtype, dims, Role::Input);
    let out = m.result(dtype.compute()).stored();
    let (ax, i) = axes(&mut g, dims);
    let folded: Vec<AxisId> = over.iter().map(|&d| ax[d]).collect();
    let kept: Vec<usize> = (0..dims.len()).filter(|d| !over.contains(d)).collect();
    let kept_dims: Vec<i64> = kept.iter().map(|&d| dims[d]).collect();
    let y = tensor(&mut g, "y", out, &kept_dims, Role::Result);
    let v = at(&mut g, x, &i);
    let v = fold(&mut g, m, &folded, None, v);
    let own: Vec<AxisId> = kept.iter().map(|&d| ax[d]).collect();
    define(&mut g, y, &own, v);
    planned(&g, &inputs(&[("x", HostTensor::from_f64(dtype, dims, values))]), &[form])
}

#[test]
fn reductions_along_rows_columns_and_the_middle() {
    let all = |dims: &[i64]| pattern(dims.iter().product());
    for m in [Monoid::Sum, Monoid::Prod, Monoid::Max, Monoid::Min] {
        for dtype in [DType::F32, DType::BF16, DType::I32, DType::I64, DType::F64] {
            reduce(m, dtype, &[5, 48], &[1], &all(&[5, 48]), Form::Row);
            reduce(m, dtype, &[48, 5], &[0], &all(&[48, 5]), Form::Row);
            reduce(m, dtype, &[3, 40, 37], &[1], &all(&[3, 40, 37]), Form::Row);
        }
    }
    for m in [Monoid::Any, Monoid::All] {
        reduce(m, DType::Bool, &[4, 100], &[1], &all(&[4, 100]), Form::Row);
    }
    for m in [Monoid::ArgMax, Monoid::ArgMin] {
        reduce(m, DType::F32, &[4, 1000], &[1], &all(&[4, 1000]), Form::Row);
        reduce(m, DType::F32, &[1000, 4], &[0], &all(&[1000, 4]), Form::Row);
        let mut odd = all(&[2, 200]);
        (odd[77], odd[150], odd[250]) = (f64::NAN, f64::NAN, f64::INFINITY);
        reduce(m, DType::F32, &[2, 200], &[1], &odd, Form::Row);
    }
    reduce(Monoid::Sum, DType::F32, &[6, 5, 40], &[0, 2], &all(&[6, 5, 40]), Form::Row);
}

#[test]
fn few_long_rows_are_shared_by_blocks() {
    let got = reduce(Monoid::Sum, DType::BF16, &[70000], &[0], &vec![1.0; 70000], Form::Row);
    assert_eq!(got.outputs["y"].get(0), Value::F32(70000.0));
    reduce(Monoid::Sum, DType::F32, &[2, 40000], &[1], &pattern(80000), Form::Row);
    let mut far = vec![0.0; 100_001];
    (far[99_999], far[40_000]) = (3.0, 3.0);
    let got = reduce(Monoid::ArgMax, DType::F32, &[100_001], &[0], &far, Form::Row);
    assert_eq!(got.outputs["y"].get(0), Value::I64(40_000));
}

/// y = m + log Σ exp(x − m), m = max x, of one long row: a split kernel for each pass.
#[test]
fn passes_over_a_long_row_are_kernels() {
    let n = 140_000;
    let mut g = Graph::default();
    let x = tensor(&mut g, "x", DType::F32, &[n], Role::Input);
    let y = tensor(&mut g, "y", DType::F32, &[], Role::Result);
    let top = over_row(&mut g, x, &[], n, Monoid::Max, &|_, v| v);
    let sum = over_row(&mut g, x, &[], n, Monoid::Sum, &|g, v| {
        let d = call(g, Func::Sub, &[v, top]);
        call(g, Func::Exp, &[d])
    });
    let v = call(&mut g, Func::Log, &[sum]);
    let v = call(&mut g, Func::Add, &[top, v]);
    define(&mut g, y, &[], v);
    planned(&g, &inputs(&[("x", data(DType::F32, &[n]))]), &[Form::Row, Form::Row]);
}

/// r = Σ|x|, s = max x, and q = x / s, all of a row: siblings and a map share the kernel.
#[test]
fn siblings_share_a_row() {
    let (m, n) = (3, 256);
    let mut g = Graph::default();
    let x = tensor(&mut g, "x", DType::F32, &[m, n], Role::Input);
    let r = tensor(&mut g, "r", DType::F32, &[m], Role::Result);
    let s = tensor(&mut g, "s", DType::F32, &[m], Role::Result);
    let q = tensor(&mut g, "q", DType::BF16, &[m, n], Role::Result);
    let (ax, i) = axes(&mut g, &[m]);
    let sum = over_row(&mut g, x, &i, n, Monoid::Sum, &|g, v| call(g, Func::Abs, &[v]));
    define(&mut g, r, &ax, sum);
    let (ax, i) = axes(&mut g, &[m]);
    let top = over_row(&mut g, x, &i, n, Monoid::Max, &|_, v| v);
    define(&mut g, s, &ax, top);
    let (ax, i) = axes(&mut g, &[m, n]);
    let (v, t) = (at(&mut g, x, &i), at(&mut g, s, &i[..1]));
    let v = call(&mut g, Func::Div, &[v, t]);
    define(&mut g, q, &ax, v);
    planned(&g, &inputs(&[("x", data(DType::F32, &[m, n]))]), &[Form::Row]);
}

/// f(a, b) = b unless it is 0 is associative, not commutative.
#[test]
fn functions_of_the_user_keep_the_order() {
    for n in [1, 31, 33, 1000, 4097] {
        let mut g = Graph::default();
        let x = tensor(&mut g, "x", DType::I32, &[2, n], Role::Input);
        let y = tensor(&mut g, "y", DType::I32, &[2], Role::Result);
        // f(a, b) = if b == 0 then a else b: the last non-zero.
        let (a, b) = (Expr::Param(0), Expr::Param(1));
        let (a, b) = (g.add(a, Ty::I32, Span::default()), g.add(b, Ty::I32, Span::default()));
        let zero = g.lit(Value::I32(0));
        let is = call(&mut g, Func::Eq, &[b, zero]);
        let body = g.add(Expr::Select(is, a, b), Ty::I32, Span::default());
        g.fold_fns.push(FoldFn { name: "last".into(), body, unit: zero, ty: Ty::I32 });
        let (ax, i) = axes(&mut g, &[2, n]);
        let v = at(&mut g, x, &i);
        let f = Fold { combine: Combine::Fn(FoldFnId(0)), axes: vec![ax[1]], cond: None, body: v };
        let v = g.add(Expr::Fold(f), Ty::I32, Span::default());
        define(&mut g, y, &ax[..1], v);
        let values: Vec<i64> = (0..2 * n).map(|i| if i % 7 == 3 { i } else { 0 }).collect();
        let form = if n < 32 { Form::Map } else { Form::Row };
        planned(&g, &inputs(&[("x", HostTensor::from_i64(DType::I32, &[2, n], &values))]), &[form]);
    }
}
