//! Rows across the blocks of a cluster.

use super::rows::{data, softmax};
use super::*;
use crate::ir::graph::Graph;
use crate::ir::program::Program;
use crate::ir::simt::{Intrinsic, Stmt as Simt};
use crate::sim::Kind;
use crate::vocab::dtype::DType;

const N: i64 = 32768;

/// Softmax of one long row, as one kernel.
fn program(dtype: DType, n: i64, settings: &[(&str, i64)]) -> (Graph, Program) {
    let g = softmax(dtype, 1, n);
    // One row alone would be planned as kernels of several blocks: here it stands for many.
    let mut plan = plan(&g, &PlanOptions { fuse: false, ..PlanOptions::default() });
    plan.kernels[0].form = Form::Row;
    let mut schedule = Schedule::default();
    for (key, v) in settings {
        schedule.set(&plan.kernels[0].name, key, "", crate::ir::graph::Word::Int(*v));
    }
    let target = Target::parse("sm_90a").expect("a target of the table");
    (g, plan_to_program(&plan, target, &schedule).expect("it lowers"))
}

fn right(dtype: DType, n: i64, settings: &[(&str, i64)], blocks: u32) {
    let (g, program) = program(dtype, n, settings);
    assert_eq!(program.kernels[0].cluster[0], blocks, "{n} {settings:?}");
    let inputs = inputs(&[("x", data(dtype, &[1, n]))]);
    let want = reference::run(&g, &inputs).expect("no fault");
    let got = sim::run(&program, &inputs, &SimOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    if let Err(m) = reference::compare(&want.outputs["y"], &got.outputs["y"]) {
        panic!("{n} {settings:?}: {m}");
    }
}

#[test]
fn long_rows_are_shared_by_a_cluster() {
    right(DType::BF16, N, &[], 8);
    right(DType::F32, 16392, &[], 8);
    right(DType::BF16, 20001, &[], 8);
    right(DType::BF16, 1000, &[], 1);
    for blocks in [2, 4, 8] {
        right(DType::BF16, 1032, &[("cluster", blocks)], blocks as u32);
        right(DType::F32, 77, &[("cluster", blocks), ("threads", 64)], blocks as u32);
    }
}

/// What the simulator says of the kernel without some of its operations.
fn without(wanted: fn(Intrinsic) -> bool) -> Kind {
    let (_, mut program) = program(DType::BF16, N, &[]);
    fn walk(stmts: &mut Vec<Simt>, wanted: fn(Intrinsic) -> bool) {
        stmts.retain(|s| !matches!(s, Simt::Intrinsic { op, .. } if wanted(*op)));
        for s in stmts {
            if let Simt::If { then, .. } = s {
                walk(then, wanted);
            }
        }
    }
    walk(&mut program.kernels[0].body, wanted);
    let inputs = inputs(&[("x", data(DType::BF16, &[1, N]))]);
    sim::run(&program, &inputs, &SimOptions::default()).expect_err("what is missing is found").kind
}

#[test]
fn what_is_missing_is_found() {
    let cluster = |op| matches!(op, Intrinsic::ClusterArrive | Intrinsic::ClusterWait);
    assert_eq!(without(cluster), Kind::Uninitialised);
    assert_eq!(without(|op| op == Intrinsic::ClusterArrive), Kind::DivergentBarrier);
    assert_eq!(without(|op| op == Intrinsic::MbarrierExpect), Kind::Deadlock);
    assert_eq!(without(|op| matches!(op, Intrinsic::StoreAsync { .. })), Kind::Deadlock);
    let kind = without(|op| op == Intrinsic::MbarrierWait);
    assert!(matches!(kind, Kind::Race | Kind::Uninitialised), "{kind:?}");
}
