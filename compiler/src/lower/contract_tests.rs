//! `contract` on the simulator against the reference: layouts, dtypes, shapes, epilogues, convolutions, schedules.

use super::contract::with;
use super::{Schedule, plan_to_program};
use crate::host::HostTensor;
use crate::ir::graph::*;
use crate::ir::plan::{Form, Plan, PlanKernel};
use crate::reference::{self, Inputs};
use crate::sim;
use crate::vocab::dtype::{DType, Ty};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use crate::vocab::target::Target;
use girih_dsl::ast::Span;
use std::collections::BTreeMap;

/// A graph under construction.
#[derive(Default)]
struct G {
    g: Graph,
    stmts: Vec<usize>,
}

impl G {
    fn tensor(&mut self, name: &str, dtype: DType, dims: &[i64], role: Role) -> TensorId {
        self.g.tensors.push(Tensor {
            name: name.into(),
            version: 0,
            dtype,
            dims: dims.to_vec(),
            lo: vec![0; dims.len()],
            role,
            range: None,
            unique: false,
            strides: Vec::new(),
            align: 16,
            span: Span::default(),
        });
        let id = TensorId(self.g.tensors.len() as u32 - 1);
        if role == Role::Result {
            self.g.outputs.push(Output { name: name.into(), tensor: id, inout: None });
        }
        id
    }

    fn input(&mut self, name: &str, dtype: DType, dims: &[i64]) -> TensorId {
        self.tensor(name, dtype, dims, Role::Input)
    }

    fn result(&mut self, name: &str, dtype: DType, dims: &[i64]) -> TensorId {
        self.tensor(name, dtype, dims, Role::Result)
    }

    fn axis(&mut self, name: &str, n: i64) -> (AxisId, ExprId) {
        let (lo, hi) = (self.g.int(0), self.g.int(n));
        let a = self.g.new_axis(name, lo, hi, Span::default());
        (a, self.g.axis_expr(a))
    }

    fn read(&mut self, t: TensorId, index: &[ExprId]) -> ExprId {
        self.access(t, index, Access::Proven)
    }

    fn access(&mut self, t: TensorId, index: &[ExprId], access: Access) -> ExprId {
        let ty = self.g.tensor(t).dtype.compute();
        self.g.add(Expr::Read(Read { tensor: t, index: index.to_vec(), access }), ty, Span::default())
    }

    fn call(&mut self, func: Func, args: &[ExprId]) -> ExprId {
        let types: Vec<Ty> = args.iter().map(|&a| self.g.ty(a)).collect();
        let ty = func.result(&types).expect("the operands fit");
        self.g.add(Expr::Call(func, args.to_vec()), ty, Span::default())
    }

    fn mul(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.call(Func::Mul, &[a, b])
    }

    fn sum(&mut self, axes: &[AxisId], body: ExprId) -> ExprId {
        self.fold(axes, None, body)
    }

    fn fold(&mut self, axes: &[AxisId], cond: Option<ExprId>, body: ExprId) -> ExprId {
        let ty = self.g.ty(body);
        let combine = Combine::Builtin(Monoid::Sum);
        let fold = Fold { combine, axes: axes.to_vec(), cond, body };
        self.g.add(Expr::Fold(fold), ty, Span::default())
    }

    fn define(&mut self, target: TensorId, axes: &[AxisId], value: ExprId) {
        let d = Define { target, axes: axes.to_vec(), value, span: Span::default() };
        self.g.stmts.push(Stmt::Define(d));
        self.stmts.push(self.g.stmts.len() - 1);
    }

    fn plan(self) -> Plan {
        let kernel = PlanKernel { name: "y".into(), stmts: self.stmts, form: Form::Contract };
        Plan { graph: self.g, kernels: vec![kernel], bytes_saved: 0, notes: Vec::new() }
    }
}

/// Pseudo-random numbers in [-1, 1), or small integers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as f64 / (1u64 << 30) as f64 - 1.0
    }

    fn tensor(&mut self, dtype: DType, dims: &[i64]) -> HostTensor {
        let n = dims.iter().product::<i64>();
        let scale = if dtype.is_float() { 1.0 } else { 7.0 };
        let one = |_| match dtype {
            DType::U4 | DType::U8 => (self.next() * scale).abs().floor(),
            d if d.is_float() => self.next(),
            _ => (self.next() * scale).round(),
        };
        HostTensor::from_f64(dtype, dims, &(0..n).map(one).collect::<Vec<_>>())
    }
}

fn inputs(g: &Graph, seed: u64) -> Inputs {
    let mut random = Random(seed);
    let tensors = g.tensors.iter().filter(|t| t.role == Role::Input);
    let tensors = tensors.map(|t| (t.name.clone(), random.tensor(t.dtype, &t.dims))).collect();
    Inputs { tensors, scalars: BTreeMap::new() }
}

fn target(name: &str) -> &'static Target {
    Target::parse(name).expect("a known target")
}

/// Lowers, runs and compares; gives the program and the simulator's account.
fn check_as(plan: &Plan, t: &str, schedule: &Schedule, inputs: &Inputs) -> sim::SimOutcome {
    let program = plan_to_program(plan, target(t), schedule).unwrap_or_else(|r| panic!("{t}: {}", r.message));
    let got = sim::run(&program, inputs, &sim::SimOptions::default()).unwrap_or_else(|e| panic!("{t}: {e}"));
    let want = reference::run(&plan.graph, inputs).expect("the reference runs");
    for (name, want) in &want.outputs {
        if let Err(e) = reference::compare(want, &got.outputs[name]) {
            panic!("{t}: {name}: {e}\n{schedule}");
        }
    }
    got
}

fn check(plan: &Plan, t: &str) -> sim::SimOutcome {
    check_as(plan, t, &Schedule::default(), &inputs(&plan.graph, 1))
}

/// Which way round an operand is stored: K last or first.
#[derive(Clone, Copy, Debug)]
struct Layout {
    a_k_last: bool,
    b_k_last: bool,
}

const LAYOUTS: [Layout; 4] = [
    Layout { a_k_last: true, b_k_last: true },
    Layout { a_k_last: true, b_k_last: false },
    Layout { a_k_last: false, b_k_last: true },
    Layout { a_k_last: false, b_k_last: false },
];

/// y[m, n] = Σ a·b
fn matmul(dtypes: (DType, DType, DType), (m, n, k): (i64, i64, i64), layout: Layout) -> Plan {
    let mut g = G::default();
    let dims = |rows: i64, last: bool| if last { [rows, k] } else { [k, rows] };
    let a = g.input("a", dtypes.0, &dims(m, layout.a_k_last));
    let b = g.input("b", dtypes.1, &dims(n, layout.b_k_last));
    let y = g.result("y", dtypes.2, &[m, n]);
    let (am, em) = g.axis("m", m);
    let (an, en) = g.axis("n", n);
    let (ak, ek) = g.axis("k", k);
    let at = |row, last| if last { [row, ek] } else { [ek, row] };
    let ra = g.read(a, &at(em, layout.a_k_last));
    let rb = g.read(b, &at(en, layout.b_k_last));
    let body = g.mul(ra, rb);
    let value = g.sum(&[ak], body);
    g.define(y, &[am, an], value);
    g.plan()
}

const NT: Layout = LAYOUTS[0];
const F16: (DType, DType, DType) = (DType::F16, DType::F16, DType::F16);
const F32: (DType, DType, DType) = (DType::F32, DType::F32, DType::F32);

#[test]
fn halves_in_every_layout_and_on_every_target() {
    for layout in LAYOUTS {
        for t in ["sm_75", "sm_80", "sm_90a"] {
            check(&matmul(F16, (72, 48, 40), layout), t);
        }
    }
}

#[test]
fn odd_shapes() {
    for shape in [(1, 1, 1), (33, 29, 17), (17, 1, 5), (1, 70, 131), (130, 65, 67), (3, 5, 0), (64, 7, 8)] {
        for layout in LAYOUTS {
            check(&matmul(F16, shape, layout), "sm_80");
            check(&matmul(F32, shape, layout), "sm_80");
        }
    }
}

#[test]
fn dtypes() {
    use DType::*;
    let rows = [
        (BF16, BF16, BF16),
        (BF16, BF16, F32),
        (F16, BF16, F32),
        (F64, F64, F64),
        (I32, I32, I32),
        (I64, I64, I64),
        (I8, I8, I32),
        (U8, I8, I32),
        (E4M3, E4M3, F32),
        (E4M3, E5M2, BF16),
        (F32, F16, F32),
        (U4, I8, I32),
    ];
    for dtypes in rows {
        for t in ["sm_75", "sm_80", "sm_89"] {
            for layout in LAYOUTS {
                check(&matmul(dtypes, (40, 36, 70), layout), t);
            }
        }
    }
}

#[test]
fn splits_and_steps_are_exact() {
    let ones = |plan: &Plan| {
        let one = |t: &Tensor| {
            HostTensor::from_f64(t.dtype, &t.dims, &vec![1.0; t.dims.iter().product::<i64>() as usize])
        };
        let tensors = plan.graph.tensors.iter().filter(|t| t.role == Role::Input);
        Inputs { tensors: tensors.map(|t| (t.name.clone(), one(t))).collect(), scalars: BTreeMap::new() }
    };
    for step in [8, 16, 24, 32, 40, 48, 56] {
        for split in [1, 2, 3] {
            let plan = matmul(F16, (64, 64, 120), NT);
            let s = with(Schedule::default(), "y", &[("step", "k", step), ("split", "k", split)]);
            check_as(&plan, "sm_80", &s, &ones(&plan));
            let plan = matmul(F32, (33, 20, 50), NT);
            check_as(&plan, "sm_80", &s, &ones(&plan));
        }
    }
}

#[test]
fn blocks_stages_and_warps() {
    for (m, n) in [(16, 24), (64, 16), (7, 100), (128, 64), (40, 48)] {
        for stages in [1, 2, 3, 4] {
            for dtypes in [F16, F32] {
                let plan = matmul(dtypes, (100, 90, 80), LAYOUTS[1]);
                let s = with(
                    Schedule::default(),
                    "y",
                    &[("block", "m", m), ("block", "n", n), ("stages", "", stages)],
                );
                check_as(&plan, "sm_80", &s, &inputs(&plan.graph, 5));
            }
        }
    }
}

#[test]
fn every_tile_is_written_once() {
    for (mt, nt) in [(4, 9), (9, 4), (1, 7), (7, 1), (8, 3), (5, 5)] {
        let plan = matmul(F16, (16 * mt, 16 * nt, 16), NT);
        for group in [1, 2, 3, 8] {
            let mut s = with(Schedule::default(), "y", &[("block", "m", 16), ("block", "n", 16)]);
            s.set("y", "order", "", Word::Apply("swizzle".into(), Box::new(Word::Int(group))));
            check_as(&plan, "sm_80", &s, &inputs(&plan.graph, 3));
        }
    }
}

#[test]
fn default_tiles_have_no_bank_conflicts() {
    for layout in LAYOUTS {
        for (dtypes, shape) in [(F16, (256, 256, 128)), (F32, (128, 128, 64)), (F16, (16, 128, 256))] {
            let got = check(&matmul(dtypes, shape, layout), "sm_90a");
            for k in &got.kernels {
                assert!(k.conflicts.is_empty(), "{dtypes:?} {layout:?} {}: {:?}", k.kernel, k.conflicts);
            }
        }
    }
}

#[test]
fn too_much_shared_memory_is_refused_in_bytes() {
    let plan = matmul(F16, (512, 512, 512), NT);
    let s = with(
        Schedule::default(),
        "y",
        &[("block", "m", 128), ("block", "n", 256), ("step", "k", 64), ("stages", "", 4)],
    );
    let refusal = plan_to_program(&plan, target("sm_89"), &s).expect_err("196608 bytes do not fit");
    assert!(refusal.message.contains("196608") && refusal.message.contains("101376"), "{}", refusal.message);
    assert!(plan_to_program(&plan, target("sm_90a"), &s).is_ok());
}
