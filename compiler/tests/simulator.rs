//! Hand-written simt kernels on the simulator: meanings, planted faults, costs.

#[path = "simt/build.rs"]
mod build;

use build::*;
use girih_compiler::host::HostTensor;
use girih_compiler::ir::simt::*;
use girih_compiler::sim::Kind;
use girih_compiler::vocab::dtype::DType;
use girih_compiler::vocab::func::Func;

/// y[t] = s[63 - t], through shared memory.
fn reversal(threads: u32, barrier: bool) -> Kernel {
    let mut k = kernel(1, threads);
    let x = Mem::Global(pointer(&mut k, "x", DType::F32, threads as i64, false));
    let y = Mem::Global(pointer(&mut k, "y", DType::F32, threads as i64, true));
    let s = Mem::Shared(k.shared("s", DType::F32, threads, 16));
    k.body = vec![line(1), Stmt::Store(s, tid(), load(x, tid()))];
    if barrier {
        k.body.push(Stmt::Barrier);
    }
    let index = sub(i(threads as i32 - 1), tid());
    k.body.extend([line(2), Stmt::Store(y, tid(), load(s, index))]);
    k
}

fn ramp(n: i64) -> HostTensor {
    HostTensor::from_f64(DType::F32, &[n], &(0..n).map(|i| i as f64).collect::<Vec<_>>())
}

#[test]
fn a_barrier_orders_shared_memory() {
    let out = run(&program(reversal(64, true)), &[("x", ramp(64))]).expect("no error");
    assert_eq!(floats(&out.outputs["y"]), (0..64).map(|i| 63.0 - i as f64).collect::<Vec<_>>());
    assert_eq!(out.kernels[0].global_read, 256);
    assert_eq!(out.kernels[0].shared_wavefronts, 4);
    assert!(out.kernels[0].conflicts.is_empty());
}

#[test]
fn a_missing_barrier_is_a_race() {
    let e = run(&program(reversal(64, false)), &[("x", ramp(64))]).expect_err("a race");
    assert_eq!(e.kind, Kind::Race, "{e}");
    // Warp 0 runs first: its reads come before warp 1's writes.
    assert_eq!((e.span, e.other), (Some(span(1)), Some(span(2))));
}

#[test]
fn a_warp_does_not_run_in_lockstep() {
    let e = run(&program(reversal(32, false)), &[("x", ramp(32))]).expect_err("a race");
    assert_eq!(e.kind, Kind::Race, "{e}");
}

#[test]
fn loops_and_functions() {
    let mut k = kernel(3, 48);
    let n = 130;
    let x = Mem::Global(pointer(&mut k, "x", DType::F32, n, false));
    let y = Mem::Global(pointer(&mut k, "y", DType::F32, n, true));
    let (at, acc, j) = (k.var("at", Ty::I32), k.var("acc", Ty::F32), k.var("j", Ty::I32));
    k.body = vec![
        Stmt::Let(at, add(mul(bid(), i(48)), tid())),
        cond(
            lt(v(at), i(n as i32)),
            vec![
                Stmt::Let(acc, f(0.0)),
                repeat(
                    j,
                    add(v(at), i(1)),
                    vec![Stmt::Set(acc, call(Func::Add, vec![v(acc), load(x, v(j))]))],
                ),
                Stmt::Store(y, v(at), call(Func::Exp, vec![call(Func::Neg, vec![v(acc)])])),
            ],
        ),
    ];
    let out = run(&program(k), &[("x", ramp(n))]).expect("no error");
    for (i, got) in floats(&out.outputs["y"]).into_iter().enumerate() {
        let sum = (i * (i + 1) / 2) as f64;
        assert_eq!(got, (-sum).exp() as f32 as f64, "y[{i}]");
    }
}
