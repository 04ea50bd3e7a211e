//! What each form leaves open: every point that the lowering takes is right on the simulator, and changes the code.

use super::texts::{graph, values};
use crate::ir::graph::Role;
use crate::ir::plan::Form;
use crate::lower::schedule::Choice;
use crate::lower::{Schedule, plan_to_program, schedules, space};
use crate::pass::graph_to_plan::{PlanOptions, plan};
use crate::reference::{self, Inputs};
use crate::sim::{self, SimOptions};
use crate::vocab::dtype::Value;
use crate::vocab::target::Target;
use std::collections::BTreeSet;

const RECURRENCE: &str = "op f[T, N](u0: f32[N]) -> (u: f32[T, N]) { u[t, i] = if t == 0 then u0[i] else u[t-1, (i+1) % N] * 0.5 + u[t-1, i] }";

/// An op with a kernel of this form, and how many different programs its space makes at least.
const OPS: &[(Form, usize, &str, &str, &[(&str, i64)])] = &[
    (
        Form::Map,
        4,
        "f",
        "op f[M, N](x: f32[M, N]) -> (y: f32[M, N]) { y[m, n] = 2 * x[m, n] + 1 }",
        &[("M", 37), ("N", 66)],
    ),
    (
        Form::Scan,
        6,
        "f",
        "op f[M, N](x: f32[M, N]) -> (y: f32[M, N]) { y[m, n] = cumsum[n](x[m, n]) }",
        &[("M", 3), ("N", 3000)],
    ),
    (Form::Scan, 6, "f", "op f[N](x: bf16[N]) -> (y: f32[N]) { y[n] = cumsum[n](x[n]) }", &[("N", 40000)]),
    (
        Form::Scan,
        8,
        "f",
        "op f[T, N](x: f32[T, N]) -> (y: f32[T, N]) { y[t, n] = cumsum[t](x[t, n]) }",
        &[("T", 67), ("N", 70)],
    ),
    (
        Form::Scan,
        5,
        "f",
        "op f[M, T](x: f32[M, T]) -> (y: f32[M, T]) { y[m, t] = 0.5 * (y[m, t-1] else 0) + x[m, t] }",
        &[("M", 5), ("T", 1111)],
    ),
    (
        Form::Sort,
        3,
        "f",
        "op f[M, N](x: f32[M, N]) -> (y: i32[M, N]) { y[m, n] = argsort[n](x[m, n]) }",
        &[("M", 4), ("N", 900)],
    ),
    (Form::Sort, 4, "f", "op f[N](x: f32[N]) -> (y: i32[N]) { y[n] = argsort[n](x[n]) }", &[("N", 17000)]),
    (
        Form::Sort,
        3,
        "f",
        "op f[M, N](x: f32[M, N]) -> (y: i32[M, 5]) { o[m, n] = argsort[n](x[m, n]) y[m, k] = o[m, k] }",
        &[("M", 2), ("N", 40001)],
    ),
    (
        Form::Scatter,
        3,
        "f",
        "op f[R, V, D](inout t: f32[V, D], ids: i32[R] in 0..V, x: f32[R, D]) { t[ids[r], d] += x[r, d] }",
        &[("R", 40), ("V", 9), ("D", 33)],
    ),
    (Form::Step, 2, "f", RECURRENCE, &[("T", 3), ("N", 9000)]),
    (Form::Block, 2, "f", RECURRENCE, &[("T", 5), ("N", 300)]),
    (
        Form::Thread,
        2,
        "f",
        "op f[T, N](x: f32[T, N]) -> (y: f32[T, N]) { y[t, n] = tanh((y[t-1, n] else 0) + x[t, n]) }",
        &[("T", 6), ("N", 300)],
    ),
    (
        Form::Row,
        6,
        "f",
        "op f[M, N](x: f32[M, N]) -> (y: f32[M, N]) { y[m, n] = softmax[n](x[m, n]) }",
        &[("M", 9), ("N", 500)],
    ),
];

#[test]
fn every_point_of_a_space_is_right() {
    let target = Target::parse("sm_90a").expect("a target of the table");
    for (form, least, op, text, dims) in OPS {
        let g = graph(text, op, dims);
        let plan = plan(&g, &PlanOptions::default());
        let k = plan.kernels.iter().find(|k| k.form == *form);
        let k = k.unwrap_or_else(|| panic!("{text}: {:?}", plan.kernels));
        let open = space(&plan, k, target);
        assert!(open.iter().any(|c| c.values.len() > 1), "{text}: {open:?}");
        let mut inputs = Inputs::default();
        for (i, t) in g.tensors.iter().enumerate() {
            if matches!(t.role, Role::Input | Role::Inout) && t.version == 0 {
                inputs.tensors.insert(t.name.clone(), values(t, i as i64));
            }
        }
        g.scalars.iter().for_each(|s| {
            inputs.scalars.insert(s.name.clone(), s.default.unwrap_or(Value::F32(0.5)));
        });
        let want = reference::run(&g, &inputs).expect("no fault");
        let mut bodies = BTreeSet::new();
        for s in schedules(&plan, target) {
            let program = plan_to_program(&plan, target, &s).expect("schedules are accepted");
            if !bodies.insert(format!("{:?}", program.kernels)) {
                continue;
            }
            let got = sim::run(&program, &inputs, &SimOptions::default())
                .unwrap_or_else(|e| panic!("{text}\n{s}: {e}"));
            for (name, want) in &want.outputs {
                reference::compare(want, &got.outputs[name]).unwrap_or_else(|m| panic!("{text}\n{s}: {m}"));
            }
        }
        assert!(bodies.len() >= *least, "{text}: {} programs", bodies.len());
        each_value_counts(&plan, target, &k.name, &open);
    }
}

/// A value that no schedule takes has no place in a space.
fn each_value_counts(plan: &crate::ir::plan::Plan, target: &Target, kernel: &str, open: &[Choice]) {
    let all = schedules(plan, target);
    for c in open {
        for v in &c.values {
            let alone = || {
                let mut s = Schedule::default();
                s.set(kernel, &c.key, &c.axis, v.clone());
                plan_to_program(plan, target, &s).is_ok()
            };
            let with = all.iter().any(|s| s.get(kernel, &c.key, &c.axis) == Some(v));
            assert!(with || alone(), "{kernel}.{} {} = {v:?} is never taken", c.key, c.axis);
        }
    }
}

/// A `tile` block is obeyed, and what a scan or sort cannot follow is refused by its name.
#[test]
fn blocks_of_scans_and_sorts_are_obeyed() {
    let target = Target::parse("sm_90a").expect("a target of the table");
    let lower = |op: &str, tile: &str, dims: &[(&str, i64)]| {
        let g = graph(&format!("{op}\ntile f {{ {tile} }}"), "f", dims);
        plan_to_program(&plan(&g, &PlanOptions::default()), target, &Schedule::default())
    };
    let scan = "op f[M, N](x: f32[M, N]) -> (y: f32[M, N]) { y[m, n] = cumsum[n](x[m, n]) }";
    let sort = "op f[M, N](x: f32[M, N]) -> (y: i32[M, N]) { y[m, n] = argsort[n](x[m, n]) }";
    let dims: &[(&str, i64)] = &[("M", 2), ("N", 4000)];
    for (op, threads) in [(scan, 128), (sort, 512)] {
        let made = lower(op, &format!("threads = {threads}"), dims).expect("it is followed");
        assert_eq!(made.kernels[0].block, [threads, 1, 1]);
    }
    let made = lower(scan, "threads = 64   step n = 1024", dims).expect("it is followed");
    assert_eq!(made.kernels.last().map(|k| k.grid[0]), Some(8), "two rows of four segments");
    for (op, tile, key) in [
        (scan, "threads = 96", "threads"),
        (scan, "step n = 1000", "step"),
        (scan, "split n = 4", "split"),
        (sort, "step n = 1000", "step"),
        (sort, "split n = 4", "split"),
    ] {
        let why = lower(op, tile, dims).expect_err("it cannot be followed");
        assert!(why.setting.as_deref().is_some_and(|s| s.starts_with(key)), "{tile}: {why:?}");
    }
}
