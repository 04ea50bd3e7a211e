//! One form after the other, on hand-made graphs.

use super::build::*;
use super::*;
use crate::ir::graph::*;
use crate::vocab::dtype::{DType, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use girih_dsl::ast::Span;

/// y[i, j] = x[i, j] * x[i, j] + b[j]
fn elementwise(dtype: DType, m: i64, n: i64) -> Graph {
    let mut g = Graph::default();
    let x = tensor(&mut g, "x", dtype, &[m, n], Role::Input);
    let b = tensor(&mut g, "b", DType::F32, &[n], Role::Input);
    let y = tensor(&mut g, "y", dtype, &[m, n], Role::Result);
    let (ax, i) = axes(&mut g, &[m, n]);
    let v = at(&mut g, x, &i);
    let b = at(&mut g, b, &i[1..]);
    let v = call(&mut g, Func::Mul, &[v, v]);
    let v = call(&mut g, Func::Add, &[v, b]);
    define(&mut g, y, &ax, v);
    g
}

#[test]
fn map_of_every_width_and_dtype() {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::E4M3] {
        for (m, n) in [(1, 1), (3, 5), (0, 4), (300, 512), (1000, 257)] {
            let g = elementwise(dtype, m, n);
            let x = HostTensor::from_f64(dtype, &[m, n], &pattern(m * n));
            let b = HostTensor::from_f64(DType::F32, &[n], &pattern(n));
            check(&g, &inputs(&[("x", x), ("b", b)]));
        }
    }
}

#[test]
fn packed_targets_own_whole_bytes() {
    for n in [1, 6, 7] {
        let mut g = Graph::default();
        let x = tensor(&mut g, "x", DType::I4, &[3, n], Role::Input);
        let y = tensor(&mut g, "y", DType::I4, &[3, n], Role::Result);
        let (ax, i) = axes(&mut g, &[3, n]);
        let v = at(&mut g, x, &i);
        let v = call(&mut g, Func::Neg, &[v]);
        define(&mut g, y, &ax, v);
        let values: Vec<i64> = (0..3 * n).map(|i| i % 16 - 8).collect();
        check(&g, &inputs(&[("x", HostTensor::from_i64(DType::I4, &[3, n], &values))]));
    }
}

/// y[i] = (x[i-1] else 7) + x[i]
#[test]
fn reads_outside_take_their_default() {
    let mut g = Graph::default();
    let x = tensor(&mut g, "x", DType::F32, &[9], Role::Input);
    let y = tensor(&mut g, "y", DType::F32, &[9], Role::Result);
    let (ax, i) = axes(&mut g, &[9]);
    let one = g.int(1);
    let before = call(&mut g, Func::Sub, &[i[0], one]);
    let seven = f32(&mut g, 7.0);
    let a = read(&mut g, x, &[before], Access::Else(seven));
    let b = at(&mut g, x, &i);
    let v = call(&mut g, Func::Add, &[a, b]);
    define(&mut g, y, &ax, v);
    check(&g, &inputs(&[("x", HostTensor::from_f64(DType::F32, &[9], &pattern(9)))]));
}

/// y[i] = x[ids[i]], checked
fn gather(ids: &[i64], range: Option<(i64, i64)>) -> Result<SimOutcome, sim::SimError> {
    let n = ids.len() as i64;
    let mut g = Graph::default();
    let x = tensor(&mut g, "x", DType::F32, &[5], Role::Input);
    let t = tensor(&mut g, "ids", DType::I64, &[n], Role::Input);
    g.tensors[t.0 as usize].range = range;
    let y = tensor(&mut g, "y", DType::F32, &[n], Role::Result);
    let (ax, i) = axes(&mut g, &[n]);
    let id = at(&mut g, t, &i);
    let access = if range.is_some() { Access::Proven } else { Access::Checked };
    let v = read(&mut g, x, &[id], access);
    define(&mut g, y, &ax, v);
    let inputs = inputs(&[
        ("x", HostTensor::from_f64(DType::F32, &[5], &pattern(5))),
        ("ids", HostTensor::from_i64(DType::I64, &[n], ids)),
    ]);
    simulate(&g, &inputs, &[])
}

#[test]
fn gathers_fault_outside_and_touch_nothing() {
    assert!(gather(&[0, 4, 2], None).is_ok());
    assert!(gather(&[0, 4, 2], Some((0, 5))).is_ok());
    for bad in [-1, 5, 1 << 32, i64::MIN] {
        for range in [None, Some((0, 5))] {
            let e = gather(&[0, bad, 2], range).expect_err("an index is outside");
            assert_eq!(e.fault.map(|f| f.1), Some(bad), "{e}");
        }
    }
}

fn reduce(m: Monoid, dtype: DType, dims: &[i64], data: &[f64]) -> SimOutcome {
    let mut g = Graph::default();
    let x = tensor(&mut g, "x", dtype, dims, Role::Input);
    let out = m.result(dtype.compute()).stored();
    let y = tensor(&mut g, "y", out, &dims[..1], Role::Result);
    let (ax, i) = axes(&mut g, dims);
    let v = at(&mut g, x, &i);
    let v = fold(&mut g, m, &ax[1..], None, v);
    let outer = vec![ax[0]];
    define(&mut g, y, &outer, v);
    check_as(&g, &inputs(&[("x", HostTensor::from_f64(dtype, dims, data))]), &[("y", Form::Map)])
}

#[test]
fn folds_of_every_monoid() {
    for n in [0, 1, 11, 33] {
        for m in [Monoid::Sum, Monoid::Prod, Monoid::Max, Monoid::Min] {
            for dtype in [DType::F32, DType::I32, DType::BF16, DType::I64, DType::F64] {
                reduce(m, dtype, &[4, n], &pattern(4 * n));
            }
        }
        for m in [Monoid::Any, Monoid::All] {
            reduce(m, DType::Bool, &[4, n], &pattern(4 * n));
        }
    }
    for m in [Monoid::ArgMax, Monoid::ArgMin] {
        reduce(m, DType::F32, &[4, 40], &pattern(160));
        reduce(m, DType::F32, &[1, 3], &[f64::NEG_INFINITY; 3]);
        reduce(m, DType::F32, &[1, 4], &[1.0, f64::NAN, 9.0, f64::NAN]);
    }
}

#[test]
fn ties_take_the_lowest_index() {
    let mut row = vec![0.0; 8192];
    for i in [7, 130, 4097] {
        row[i] = 5.0;
    }
    let got = reduce(Monoid::ArgMax, DType::F32, &[1, 8192], &row);
    assert_eq!(got.outputs["y"].get(0), Value::I64(7));
    let got = reduce(Monoid::ArgMax, DType::F32, &[1, 8192], &vec![0.0; 8192]);
    assert_eq!(got.outputs["y"].get(0), Value::I64(0));
}

#[test]
fn long_sums_have_no_long_chain() {
    let got = reduce(Monoid::Sum, DType::BF16, &[1, 70000], &vec![1.0; 70000]);
    assert_eq!(got.outputs["y"].get(0), Value::F32(70000.0));
    reduce(Monoid::Sum, DType::F32, &[2, 40, 700, 2], &pattern(2 * 40 * 700 * 2));
}

fn scan(m: Monoid, dtype: DType, dims: &[i64], along: usize, masked: bool) {
    let mut g = Graph::default();
    let x = tensor(&mut g, "x", dtype, dims, Role::Input);
    let y = tensor(&mut g, "y", dtype, dims, Role::Result);
    let (ax, i) = axes(&mut g, dims);
    let body = at(&mut g, x, &i);
    let cond = masked.then(|| {
        let (two, zero) = (g.int(2), g.int(0));
        let odd = call(&mut g, Func::Rem, &[i[along], two]);
        call(&mut g, Func::Ne, &[odd, zero])
    });
    let combine = Combine::Builtin(m);
    g.stmts.push(Stmt::Scan(Scan { target: y, axes: ax, along, combine, cond, body, span: Span::default() }));
    let n = dims.iter().product();
    check(&g, &inputs(&[("x", HostTensor::from_f64(dtype, dims, &pattern(n)))]));
}

#[test]
fn scans_of_every_shape() {
    for n in [0, 1, 31, 64, 128, 129, 1000, 1025, 5000] {
        scan(Monoid::Sum, DType::F32, &[n], 0, false);
        scan(Monoid::Sum, DType::I32, &[3, n], 1, true);
        scan(Monoid::Max, DType::F16, &[n, 3], 0, true);
    }
    scan(Monoid::Sum, DType::I64, &[50_000], 0, false);
    scan(Monoid::Sum, DType::F32, &[2, 50_000], 1, true);
    scan(Monoid::Sum, DType::F32, &[9000, 40], 1, false);
    scan(Monoid::Prod, DType::F64, &[2, 3, 4], 1, false);
    // Vectors of 16 bits, several rows a block with some missing, chunks with a carry, a middle axis in segments.
    scan(Monoid::Sum, DType::BF16, &[7, 64], 1, true);
    scan(Monoid::Max, DType::F16, &[3, 4096], 1, false);
    scan(Monoid::Min, DType::F32, &[3, 8200], 1, false);
    scan(Monoid::Sum, DType::I64, &[2, 20_000], 1, true);
    scan(Monoid::Sum, DType::F32, &[2, 300, 64], 1, true);
    scan(Monoid::Sum, DType::I64, &[2, 33_000], 1, true);
}

fn sort(dtype: DType, dims: &[i64], along: usize, data: &[f64]) -> SimOutcome {
    let mut g = Graph::default();
    let x = tensor(&mut g, "x", dtype, dims, Role::Input);
    let y = tensor(&mut g, "y", DType::I64, dims, Role::Result);
    let (ax, i) = axes(&mut g, dims);
    let key = at(&mut g, x, &i);
    g.stmts.push(Stmt::Sort(Sort { target: y, axes: ax, along, key, span: Span::default() }));
    check(&g, &inputs(&[("x", HostTensor::from_f64(dtype, dims, data))]))
}

#[test]
fn sorts_of_every_length() {
    for n in [0, 1, 2, 3, 7, 64, 65, 2048, 2049, 5000] {
        sort(DType::F32, &[n], 0, &pattern(n));
        sort(DType::I32, &[2, n], 1, &pattern(2 * n));
        sort(DType::BF16, &[n, 2], 0, &pattern(2 * n));
    }
    let odd = [f64::NAN, 0.0, -0.0, f64::INFINITY, f64::NAN, f64::NEG_INFINITY, 0.0];
    let got = sort(DType::F64, &[7], 0, &odd);
    let order: Vec<i64> = (0..7).map(|i| crate::host::as_i64(got.outputs["y"].get(i))).collect();
    assert_eq!(order, [5, 1, 2, 6, 3, 0, 4]);
}

/// y[ids[t], d] op= x[t, d] where ids[t] >= 0, from a base of ones.
fn scatter(op: UpdateOp, dtype: DType, v: i64, d: i64, ids: &[i64], unit: bool) -> Graph {
    let n = ids.len() as i64;
    let mut g = Graph::default();
    let x = tensor(&mut g, "x", dtype, &[n, d], Role::Input);
    let t = tensor(&mut g, "ids", DType::I32, &[n], Role::Input);
    let base = tensor(&mut g, "base", dtype, &[v, d], Role::Input);
    let y0 = tensor(&mut g, "y", dtype, &[v, d], Role::Local);
    let y = tensor(&mut g, "y", dtype, &[v, d], Role::Result);
    let (ax, i) = axes(&mut g, &[v, d]);
    let one = at(&mut g, base, &i);
    define(&mut g, y0, &ax, one);
    let (ax, i) = axes(&mut g, &[n, d]);
    let id = at(&mut g, t, &i[..1]);
    let zero = g.lit(Value::I32(0));
    let cond = Some(call(&mut g, Func::Le, &[zero, id]));
    let value = at(&mut g, x, &i);
    let wide = g.add(Expr::Cast(id), crate::vocab::dtype::Ty::I64, Span::default());
    let index = vec![wide, i[1]];
    let base = if unit { Base::Unit } else { Base::Tensor(y0) };
    let u = Update {
        target: y,
        base,
        axes: ax,
        index,
        proven: false,
        distinct: false,
        op,
        cond,
        value,
        span: Span::default(),
    };
    g.stmts.push(Stmt::Update(u));
    g
}

#[test]
fn updates_that_meet() {
    let ids: Vec<i64> = (0..700).map(|i| (i * i) % 13 - 1).collect();
    for op in [UpdateOp::Set, UpdateOp::Add, UpdateOp::Max, UpdateOp::Min] {
        for dtype in [DType::F32, DType::F16, DType::I32, DType::I64, DType::I8, DType::U4] {
            for unit in [false, true] {
                if unit && op == UpdateOp::Set {
                    continue;
                }
                let g = scatter(op, dtype, 14, 5, &ids, unit);
                let x = HostTensor::from_f64(dtype, &[700, 5], &pattern(3500));
                let base = HostTensor::from_f64(dtype, &[14, 5], &vec![1.0; 70]);
                let t = HostTensor::from_i64(DType::I32, &[700], &ids);
                check(&g, &inputs(&[("x", x), ("base", base), ("ids", t)]));
            }
        }
    }
}

#[test]
fn updates_fault_outside() {
    for op in [UpdateOp::Set, UpdateOp::Add] {
        for dtype in [DType::F32, DType::I32] {
            let g = scatter(op, dtype, 4, 2, &[0, 4, 1], false);
            let x = HostTensor::from_f64(dtype, &[3, 2], &pattern(6));
            let base = HostTensor::from_f64(dtype, &[4, 2], &[1.0; 8]);
            let t = HostTensor::from_i64(DType::I32, &[3], &[0, 4, 1]);
            let e = simulate(&g, &inputs(&[("x", x), ("base", base), ("ids", t)]), &[]);
            assert_eq!(e.expect_err("4 is outside").fault.map(|f| f.1), Some(4));
        }
    }
}

/// h[t, i] = 0.5 * (h[t-1, i] else x[0, i]) + x[t, i]
fn recurrence(t: i64, n: i64, descending: bool, coupled: bool) -> Graph {
    let mut g = Graph::default();
    let x = tensor(&mut g, "x", DType::F32, &[t, n], Role::Input);
    let h = tensor(&mut g, "h", DType::F32, &[t, n], Role::Result);
    let (ax, i) = axes(&mut g, &[t, n]);
    let one = g.int(1);
    let before = call(&mut g, if descending { Func::Add } else { Func::Sub }, &[i[0], one]);
    let zero = g.int(0);
    let start = at(&mut g, x, &[zero, i[1]]);
    let other = if coupled {
        let n1 = g.int(n - 1);
        call(&mut g, Func::Sub, &[n1, i[1]])
    } else {
        i[1]
    };
    let prev = read(&mut g, h, &[before, other], Access::Else(start));
    let half = f32(&mut g, 0.5);
    let prev = call(&mut g, Func::Mul, &[half, prev]);
    let now = at(&mut g, x, &i);
    let value = call(&mut g, Func::Add, &[prev, now]);
    let member = Define { target: h, axes: ax, value, span: Span::default() };
    let steps = vec![StepAxis { position: vec![0], descending }];
    g.stmts.push(Stmt::Recur(Recur { members: vec![member], steps }));
    g
}

#[test]
fn recurrences_in_every_form() {
    for (t, n) in [(1, 1), (10, 3), (7, 40), (0, 3), (20, 700)] {
        let x = HostTensor::from_f64(DType::F32, &[t, n], &pattern(t * n));
        let inputs = inputs(&[("x", x)]);
        for descending in [false, true] {
            for coupled in [false, true] {
                let g = recurrence(t, n, descending, coupled);
                for form in [Form::Thread, Form::Block, Form::Step] {
                    check_as(&g, &inputs, &[("h", form)]);
                }
            }
        }
    }
}
