//! Graphs built by hand against closed forms.

use super::*;

mod build {
    use crate::ir::graph::*;
    use crate::vocab::dtype::*;
    use crate::vocab::func::Func;
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

    pub fn read(g: &mut Graph, t: TensorId, index: &[ExprId], access: Access) -> ExprId {
        let ty = g.tensor(t).dtype.compute();
        g.add(Expr::Read(Read { tensor: t, index: index.to_vec(), access }), ty, Span::default())
    }

    pub fn call(g: &mut Graph, func: Func, args: &[ExprId]) -> ExprId {
        let types: Vec<Ty> = args.iter().map(|&a| g.ty(a)).collect();
        let ty = func.result(&types).expect("the operands fit");
        g.add(Expr::Call(func, args.to_vec()), ty, Span::default())
    }

    pub fn fold(g: &mut Graph, m: crate::vocab::monoid::Monoid, axes: &[AxisId], body: ExprId) -> ExprId {
        let ty = m.result(g.ty(body));
        let f = Fold { combine: Combine::Builtin(m), axes: axes.to_vec(), cond: None, body };
        g.add(Expr::Fold(f), ty, Span::default())
    }

    pub fn define(g: &mut Graph, target: TensorId, axes: &[AxisId], value: ExprId) {
        g.stmts.push(Stmt::Define(Define { target, axes: axes.to_vec(), value, span: Span::default() }));
    }
}

use crate::ir::graph::*;
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use build::*;

fn inputs(tensors: &[(&str, HostTensor)]) -> Inputs {
    Inputs {
        tensors: tensors.iter().map(|(n, t)| (n.to_string(), t.clone())).collect(),
        scalars: BTreeMap::new(),
    }
}

fn values(t: &HostTensor) -> Vec<f64> {
    (0..t.len()).map(|i| crate::host::as_f64(t.get(i))).collect()
}

fn matmul(dtype: DType, m: i64, n: i64, k: i64) -> Graph {
    let mut g = Graph::default();
    let a = tensor(&mut g, "a", dtype, &[m, k], Role::Input);
    let b = tensor(&mut g, "b", dtype, &[k, n], Role::Input);
    let c = tensor(&mut g, "c", dtype, &[m, n], Role::Result);
    let (i, j, l) = (axis(&mut g, "i", m), axis(&mut g, "j", n), axis(&mut g, "k", k));
    let (ei, ej, el) = (g.axis_expr(i), g.axis_expr(j), g.axis_expr(l));
    let x = read(&mut g, a, &[ei, el], Access::Proven);
    let y = read(&mut g, b, &[el, ej], Access::Proven);
    let xy = call(&mut g, Func::Mul, &[x, y]);
    let s = fold(&mut g, Monoid::Sum, &[l], xy);
    define(&mut g, c, &[i, j], s);
    g
}

#[test]
fn all_ones_matmul_is_exact() {
    for dtype in [DType::F16, DType::F32, DType::I32] {
        let g = matmul(dtype, 5, 7, 257);
        let ones = |dims: &[i64]| HostTensor::from_i64(dtype, dims, &vec![1; (dims[0] * dims[1]) as usize]);
        let out = run(&g, &inputs(&[("a", ones(&[5, 257])), ("b", ones(&[257, 7]))])).expect("no fault");
        let c = &out.outputs["c"];
        assert!(c.bound.iter().all(|&b| b == 0.0), "{dtype:?}");
        assert!(c.wide.iter().all(|&v| v == 257.0));
    }
}

#[test]
fn matmul_bound_holds_an_f32_loop() {
    let (m, n, k) = (9, 11, 63);
    let g = matmul(DType::F32, m, n, k);
    let noise =
        |s: i64, len: i64| -> Vec<f64> { (0..len).map(|c| crate::vocab::random::normal(s, c)).collect() };
    let a = HostTensor::from_f64(DType::F32, &[m, k], &noise(1, m * k));
    let b = HostTensor::from_f64(DType::F32, &[k, n], &noise(2, k * n));
    let (av, bv) = (values(&a), values(&b));
    let out = run(&g, &inputs(&[("a", a), ("b", b)])).expect("no fault");
    let mut got = HostTensor::zeros(DType::F32, &[m, n]);
    for i in 0..m {
        for j in 0..n {
            let mut s = 0f32;
            for l in 0..k {
                s += av[(i * k + l) as usize] as f32 * bv[(l * n + j) as usize] as f32;
            }
            got.set((i * n + j) as usize, Value::F32(s));
        }
    }
    let report = compare(&out.outputs["c"], &got).expect("within the bound");
    assert!(report.worst > 0.0 && report.worst < 1.0 && report.ambiguous == 0, "{report:?}");
    got.set(3, Value::F32(crate::host::as_f64(got.get(3)) as f32 * 1.01 + 1e-3));
    assert!(compare(&out.outputs["c"], &got).is_err());
}

#[test]
fn empty_folds_give_their_unit() {
    let g = matmul(DType::F32, 2, 3, 0);
    let empty = |d: &[i64]| HostTensor::zeros(DType::F32, d);
    let out = run(&g, &inputs(&[("a", empty(&[2, 0])), ("b", empty(&[0, 3]))])).expect("no fault");
    assert_eq!(out.outputs["c"].wide, vec![0.0; 6]);
}

fn gather() -> Graph {
    let mut g = Graph::default();
    let x = tensor(&mut g, "x", DType::F32, &[4], Role::Input);
    let ids = tensor(&mut g, "ids", DType::I64, &[3], Role::Input);
    let y = tensor(&mut g, "y", DType::F32, &[3], Role::Result);
    let i = axis(&mut g, "i", 3);
    let e = g.axis_expr(i);
    let id = read(&mut g, ids, &[e], Access::Proven);
    let v = read(&mut g, x, &[id], Access::Checked);
    define(&mut g, y, &[i], v);
    g
}

#[test]
fn a_read_outside_is_a_fault_with_its_place() {
    let x = HostTensor::from_f64(DType::F32, &[4], &[10.0, 11.0, 12.0, 13.0]);
    let ids = |v: &[i64]| HostTensor::from_i64(DType::I64, &[3], v);
    let out = run(&gather(), &inputs(&[("x", x.clone()), ("ids", ids(&[3, 0, 3]))])).expect("no fault");
    assert_eq!(values(&out.outputs["y"].tensor), [13.0, 10.0, 13.0]);
    let fault = run(&gather(), &inputs(&[("x", x), ("ids", ids(&[0, 4, 1]))])).expect_err("4 is outside");
    assert_eq!((fault.tensor.as_str(), fault.dim, fault.value), ("x", 0, 4));
    assert_eq!(fault.kind, FaultKind::Read { lo: 0, hi: 4 });
}

#[test]
fn declared_ranges_and_uniqueness_are_checked() {
    let x = HostTensor::zeros(DType::F32, &[4]);
    let ids = HostTensor::from_i64(DType::I64, &[3], &[1, 1, 2]);
    let mut g = gather();
    g.tensors[1].unique = true;
    let all = inputs(&[("x", x), ("ids", ids)]);
    assert_eq!(run(&g, &all).expect_err("1 twice").kind, FaultKind::NotUnique);
    g.tensors[1].unique = false;
    g.tensors[1].range = Some((0, 2));
    let fault = run(&g, &all).expect_err("2 is outside");
    assert_eq!((fault.index, fault.value), (vec![2], 2));
}

/// f64 rounds to bf16 once, though its compute type is f32.
#[test]
fn stores_round_once() {
    let mut g = Graph::default();
    let x = tensor(&mut g, "x", DType::F64, &[], Role::Input);
    let y = tensor(&mut g, "y", DType::BF16, &[], Role::Result);
    let v = read(&mut g, x, &[], Access::Proven);
    let v =
        g.add(Expr::Round(DType::BF16, Rounding::Fixed, v), crate::vocab::dtype::Ty::F32, Default::default());
    define(&mut g, y, &[], v);
    let x = HostTensor::from_f64(DType::F64, &[], &[1.0 + 2f64.powi(-8) + 2f64.powi(-40)]);
    let out = run(&g, &inputs(&[("x", x)])).expect("no fault");
    assert_eq!(values(&out.outputs["y"].tensor), [1.0 + 2f64.powi(-7)]);
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    for n in [128, 256] {
        let g = matmul(DType::F16, n, n, n);
        let x: Vec<f64> = (0..n * n).map(|c| crate::vocab::random::normal(3, c)).collect();
        let x = HostTensor::from_f64(DType::F16, &[n, n], &x);
        let start = std::time::Instant::now();
        run(&g, &inputs(&[("a", x.clone()), ("b", x)])).expect("no fault");
        println!("{n}: {:?}", start.elapsed());
    }
}
