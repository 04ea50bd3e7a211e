//! The simulator's speed, and that a matmul through tensor cores is right on it. The limits hold in release builds;
//! in others the tests check results only.

#[path = "simt/build.rs"]
mod build;

use build::*;
use girih_compiler::host::HostTensor;
use girih_compiler::ir::simt::*;
use girih_compiler::lower::{Schedule, plan_to_program};
use girih_compiler::pass::ast_to_graph::{Bindings, bind};
use girih_compiler::pass::graph_to_plan::{PlanOptions, plan};
use girih_compiler::pass::module;
use girih_compiler::reference::{self, Inputs};
use girih_compiler::sim::{self, SimOptions};
use girih_compiler::vocab::dtype::{DType, Value};
use girih_compiler::vocab::func::Func;
use girih_compiler::vocab::target::Target;
use girih_dsl::source::Sources;
use std::time::{Duration, Instant};

fn within(limit: Duration, start: Instant, what: &str) {
    let took = start.elapsed();
    println!("{what}: {took:?}");
    assert!(cfg!(debug_assertions) || took < limit, "{what} took {took:?}, more than {limit:?}");
}

const MATMUL: &str = "op mm[M, N, K](x: bf16[M, K], w: bf16[N, K]) -> (y: bf16[M, N]) {
    y[m, n] = sum[k](x[m, k] * w[n, k])
}";

#[test]
fn a_matmul_through_tensor_cores() {
    let mut sources = Sources::default();
    let module =
        module::load("mm.tile", MATMUL, &mut sources, &|_| Err("no imports".into())).expect("it parses");
    let x = HostTensor::from_f64(DType::BF16, &[128, 128], &pattern(128 * 128, 7));
    let w = HostTensor::from_f64(DType::BF16, &[128, 128], &pattern(128 * 128, 11));
    let bindings = Bindings {
        inputs: [("x", &x), ("w", &w)].map(|(n, t)| (n.to_string(), (t.dtype, t.dims.clone()))).into(),
        ..Bindings::default()
    };
    let graph = bind(&module, "mm", &bindings).expect("it binds").graph;
    let plan = plan(&graph, &PlanOptions::default());
    let target = Target::parse("sm_80").expect("a target of the table");
    let program = plan_to_program(&plan, target, &Schedule::default()).expect("it lowers");
    let tensors = [("x".to_string(), x), ("w".to_string(), w)].into();
    let inputs = Inputs { tensors, ..Inputs::default() };
    let start = Instant::now();
    let got = sim::run(&program, &inputs, &SimOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    within(Duration::from_secs(2), start, "matmul of 128 x 128 x 128");
    let want = reference::run(&graph, &inputs).expect("no fault");
    if let Err(m) = reference::compare(&want.outputs["y"], &got.outputs["y"]) {
        panic!("{m}");
    }
    let mma = got.kernels.iter().map(|k| k.operations[8]).sum::<u64>();
    assert!(mma >= 128 * 128 * 128 / (16 * 8 * 16), "{mma} mma");
}

fn pattern(n: i64, step: i64) -> Vec<f64> {
    (0..n).map(|i| ((i * 37 + step * (i / 128)) % 23 - 11) as f64 / 8.0).collect()
}

/// A serial loop in one thread, as a recurrence lowers to.
#[test]
fn a_long_loop_in_one_thread() {
    let n = 200_000;
    let mut k = kernel(1, 1);
    let x = Mem::Global(pointer(&mut k, "x", DType::F32, n, false));
    let y = Mem::Global(pointer(&mut k, "y", DType::F32, n, true));
    let (h, j) = (k.var("h", Ty::F32), k.var("j", Ty::I32));
    k.body = vec![
        Stmt::Let(h, f(0.0)),
        repeat(
            j,
            i(n as i32),
            vec![
                Stmt::Set(h, call(Func::Fma, vec![v(h), f(0.5), load(x, v(j))])),
                Stmt::Store(y, v(j), v(h)),
            ],
        ),
    ];
    let x = HostTensor::from_values(DType::F32, &[n], (0..n).map(|_| Value::F32(1.0)));
    let start = Instant::now();
    let out = run(&program(k), &[("x", x)]).expect("no error");
    within(Duration::from_millis(500), start, "200,000 steps in one thread");
    assert_eq!(floats(&out.outputs["y"])[n as usize - 1], 2.0);
}
