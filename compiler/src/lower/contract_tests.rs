//! `contract` on the simulator against the reference: layouts, dtypes, shapes, epilogues, convolutions, schedules.

use super::contract::with;
use super::{Schedule, plan_to_program};
use crate::host::HostTensor;
use crate::ir::graph::*;
use crate::ir::plan::{Form, Plan, PlanKernel};
use crate::lower::forced::{self, Gain};
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
            cast: false,
            strides: Vec::new(),
            align: 16,
            span: Span::default(),
        });
        let id = TensorId(self.g.tensors.len() as u32 - 1);
        if role == Role::Result {
            self.g.outputs.push(Output { name: name.into(), tensor: id, inout: None, shape: None });
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
#[derive(Clone, Copy, Debug, PartialEq)]
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
    for shape in [(1, 1, 1), (33, 29, 17), (17, 1, 5), (1, 70, 131), (70, 65, 35), (3, 5, 0), (64, 7, 8)] {
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
            let plan = matmul(F16, (32, 16, 120), NT);
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
                let plan = matmul(dtypes, (50, 90, 40), LAYOUTS[1]);
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
        for (dtypes, shape) in [(F16, (128, 256, 64)), (F32, (64, 64, 32)), (F16, (16, 64, 256))] {
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

fn lit(g: &mut G, v: f32) -> ExprId {
    g.g.lit(crate::vocab::dtype::Value::F32(v))
}

fn round(g: &mut G, dtype: DType, id: ExprId) -> ExprId {
    let ty = g.g.ty(id);
    g.g.add(Expr::Round(dtype, Rounding::Fixed, id), ty, Span::default())
}

fn cast(g: &mut G, ty: Ty, id: ExprId) -> ExprId {
    g.g.add(Expr::Cast(id), ty, Span::default())
}

fn select(g: &mut G, c: ExprId, a: ExprId, b: ExprId) -> ExprId {
    let ty = g.g.ty(a);
    g.g.add(Expr::Select(c, a, b), ty, Span::default())
}

/// Linear with bias, a residual and two results: y = max(x·wᵀ + b[n], 0) + r[m, n], z = y · 2 in another dtype.
fn linear(m: i64, n: i64, k: i64) -> Plan {
    let mut g = G::default();
    let x = g.input("x", DType::BF16, &[m, k]);
    let w = g.input("w", DType::BF16, &[n, k]);
    let b = g.input("b", DType::BF16, &[n]);
    let r = g.input("r", DType::BF16, &[m, n]);
    let y = g.result("y", DType::BF16, &[m, n]);
    let z = g.result("z", DType::F32, &[m, n]);
    let ((am, em), (an, en), (ak, ek)) = (g.axis("m", m), g.axis("n", n), g.axis("k", k));
    let (rx, rw) = (g.read(x, &[em, ek]), g.read(w, &[en, ek]));
    let body = g.mul(rx, rw);
    let sum = g.sum(&[ak], body);
    let (rb, rr, zero) = (g.read(b, &[en]), g.read(r, &[em, en]), lit(&mut g, 0.0));
    let v = g.call(Func::Add, &[sum, rb]);
    let v = g.call(Func::Max, &[v, zero]);
    let v = g.call(Func::Add, &[v, rr]);
    g.define(y, &[am, an], v);
    let ((bm, fm), (bn, fn_)) = (g.axis("m", m), g.axis("n", n));
    let (ry, two) = (g.read(y, &[fm, fn_]), lit(&mut g, 2.0));
    let v = g.mul(ry, two);
    g.define(z, &[bm, bn], v);
    g.plan()
}

#[test]
fn epilogues_read_and_write_several_tensors() {
    for (m, n, k) in [(64, 64, 64), (33, 50, 40), (16, 128, 512)] {
        check(&linear(m, n, k), "sm_90a");
        let plan = linear(m, n, k);
        let s = with(Schedule::default(), "y", &[("split", "k", 2), ("step", "k", 16)]);
        let got = check_as(&plan, "sm_80", &s, &inputs(&plan.graph, 9));
        assert_eq!(got.kernels.len(), 2, "a second kernel adds the parts");
    }
}

/// silu-like gate: y = sum(x·wg) · sum(x·wu), two sums in one kernel.
#[test]
fn two_sums_share_a_kernel() {
    for dtype in [DType::BF16, DType::F32] {
        let mut g = G::default();
        let (m, n, k) = (40, 48, 70);
        let x = g.input("x", dtype, &[m, k]);
        let (wg, wu) = (g.input("wg", dtype, &[n, k]), g.input("wu", dtype, &[k, n]));
        let y = g.result("y", dtype, &[m, n]);
        let ((am, em), (an, en)) = (g.axis("m", m), g.axis("n", n));
        let ((ak, ek), (al, el)) = (g.axis("k", k), g.axis("l", k));
        let (a, b) = (g.read(x, &[em, ek]), g.read(wg, &[en, ek]));
        let body = g.mul(a, b);
        let gate = g.sum(&[ak], body);
        let (a, b) = (g.read(x, &[em, el]), g.read(wu, &[el, en]));
        let body = g.mul(a, b);
        let up = g.sum(&[al], body);
        let v = g.mul(gate, up);
        g.define(y, &[am, an], v);
        check(&g.plan(), "sm_90a");
    }
}

/// s[b, h, i, j] = sum[d](q[b, h, i, d] · k[b, h/G, j, d]) / c: the heads of a group become rows of one product.
#[test]
fn shared_heads_are_rows_of_one_product() {
    let mut g = G::default();
    let (b, h, group, s, t, d) = (2, 4, 2, 10, 24, 32);
    let q = g.input("q", DType::BF16, &[b, h, s, d]);
    let k = g.input("k", DType::BF16, &[b, h / group, t, d]);
    let y = g.result("y", DType::F32, &[b, h, s, t]);
    let ((ab, eb), (ah, eh), (ai, ei), (aj, ej)) =
        (g.axis("b", b), g.axis("h", h), g.axis("i", s), g.axis("j", t));
    let (ad, ed) = g.axis("d", d);
    let by = g.g.int(group);
    let kv = g.call(Func::Div, &[eh, by]);
    let (rq, rk) = (g.read(q, &[eb, eh, ei, ed]), g.read(k, &[eb, kv, ej, ed]));
    let body = g.mul(rq, rk);
    let sum = g.sum(&[ad], body);
    let c = lit(&mut g, 5.656);
    let v = g.call(Func::Div, &[sum, c]);
    g.define(y, &[ab, ah, ai, aj], v);
    let plan = g.plan();
    let shape = super::contract::recognise(&plan.graph, &[0]).expect("a product");
    let extents = |d: &[super::contract_pattern::Digit]| d.iter().map(|d| d.extent).collect::<Vec<_>>();
    assert_eq!(
        (extents(&shape.batch), extents(&shape.m), extents(&shape.n)),
        (vec![2, 2], vec![2, 10], vec![24])
    );
    for t in ["sm_75", "sm_90a"] {
        check(&plan, t);
    }
}

/// Convolution of `groups` groups; channels last or not.
fn conv(dtype: DType, last: bool, stride: i64, pad: i64, groups: i64) -> Plan {
    conv_of(dtype, last, stride, pad, groups, 8)
}

fn conv_of(dtype: DType, last: bool, stride: i64, pad: i64, groups: i64, c: i64) -> Plan {
    let mut g = G::default();
    let (n, hw, f, r) = (2, 9, 12, 3);
    let out = (hw + 2 * pad - r) / stride + 1;
    let (cg, fg) = (c / groups, f / groups);
    let x = g.input("x", dtype, &if last { [n, hw, hw, c] } else { [n, c, hw, hw] });
    let w = g.input("w", dtype, &if last { [f, r, r, cg] } else { [f, cg, r, r] });
    let y = g.result("y", dtype, &if last { [n, out, out, f] } else { [n, f, out, out] });
    let ((an, en), (af, ef), (ap, ep), (aq, eq)) =
        (g.axis("n", n), g.axis("f", f), g.axis("p", out), g.axis("q", out));
    let ((ac, ec), (ar, er), (as_, es)) = (g.axis("c", cg), g.axis("r", r), g.axis("s", r));
    let place = |g: &mut G, p, r| {
        let (st, pd) = (g.g.int(stride), g.g.int(pad));
        let at = g.mul(p, st);
        let at = g.call(Func::Add, &[at, r]);
        g.call(Func::Sub, &[at, pd])
    };
    let (ih, iw) = (place(&mut g, ep, er), place(&mut g, eq, es));
    let channel = if groups == 1 {
        ec
    } else {
        let (per, cgl) = (g.g.int(fg), g.g.int(cg));
        let group = g.call(Func::Div, &[ef, per]);
        let first = g.mul(group, cgl);
        g.call(Func::Add, &[first, ec])
    };
    let zero = lit(&mut g, 0.0);
    let index = if last { [en, ih, iw, channel] } else { [en, channel, ih, iw] };
    let rx = g.access(x, &index, Access::Else(zero));
    let rw = g.read(w, &if last { [ef, er, es, ec] } else { [ef, ec, er, es] });
    let body = g.mul(rx, rw);
    let v = g.sum(&[ac, ar, as_], body);
    g.define(y, &if last { [an, ap, aq, af] } else { [an, af, ap, aq] }, v);
    g.plan()
}

#[test]
fn convolutions() {
    for dtype in [DType::F16, DType::F32] {
        for last in [false, true] {
            for (stride, pad, groups) in [(1, 1, 1), (2, 1, 1), (1, 0, 2), (2, 2, 4), (1, 1, 4)] {
                let plan = conv(dtype, last, stride, pad, groups);
                check(&plan, "sm_80");
                if groups == 1 {
                    check(&plan, "sm_75");
                    let s = [("block", "f", 8), ("block", "q", 4), ("block", "p", 2), ("step", "c", 8)];
                    check_as(&plan, "sm_80", &with(Schedule::default(), "y", &s), &inputs(&plan.graph, 4));
                }
            }
        }
    }
}

/// Weights of four bits, dequantised in the prologue: w4 · scale rounded to bf16.
#[test]
fn weights_are_dequantised_in_the_prologue() {
    let mut g = G::default();
    let (m, n, k, q) = (20, 40, 64, 16);
    let x = g.input("x", DType::BF16, &[m, k]);
    let w = g.input("w", DType::U4, &[n, k]);
    let scale = g.input("scale", DType::BF16, &[n, k / q]);
    let zero = g.input("zero", DType::U4, &[n, k / q]);
    let y = g.result("y", DType::BF16, &[m, n]);
    let ((am, em), (an, en), (ak, ek)) = (g.axis("m", m), g.axis("n", n), g.axis("k", k));
    let per = g.g.int(q);
    let eg = g.call(Func::Div, &[ek, per]);
    let (rx, rw) = (g.read(x, &[em, ek]), g.read(w, &[en, ek]));
    let (rs, rz) = (g.read(scale, &[en, eg]), g.read(zero, &[en, eg]));
    let v = g.call(Func::Sub, &[rw, rz]);
    let v = cast(&mut g, Ty::F32, v);
    let v = g.mul(v, rs);
    let v = round(&mut g, DType::BF16, v);
    let body = g.mul(rx, v);
    let v = g.sum(&[ak], body);
    g.define(y, &[am, an], v);
    let plan = g.plan();
    for t in ["sm_75", "sm_80", "sm_90a"] {
        check(&plan, t);
    }
}

/// Terms that a condition leaves out leave no trace of what lies there.
#[test]
fn masked_terms_are_not_read() {
    for dtype in [DType::F16, DType::F32] {
        let mut g = G::default();
        let (b, m, n, k) = (3, 20, 24, 40);
        let p = g.input("p", dtype, &[b, m, k]);
        let v = g.input("v", dtype, &[b, k, n]);
        let len = g.input("len", DType::I32, &[b]);
        g.g.tensors[len.0 as usize].range = Some((0, k + 1));
        let y = g.result("y", DType::F32, &[b, m, n]);
        let ((ab, eb), (am, em), (an, en), (ak, ek)) =
            (g.axis("b", b), g.axis("m", m), g.axis("n", n), g.axis("k", k));
        let rl = g.read(len, &[eb]);
        let rl = cast(&mut g, Ty::I64, rl);
        let cond = g.call(Func::Lt, &[ek, rl]);
        let (rp, rv) = (g.read(p, &[eb, em, ek]), g.read(v, &[eb, ek, en]));
        let body = g.mul(rp, rv);
        let sum = g.fold(&[ak], Some(cond), body);
        g.define(y, &[ab, am, an], sum);
        let plan = g.plan();
        let mut data = inputs(&plan.graph, 2);
        data.tensors.insert("len".into(), HostTensor::from_i64(DType::I32, &[b], &[0, 7, 40]));
        for name in ["p", "v"] {
            let t = data.tensors.get_mut(name).expect("an input");
            for i in 0..t.len() {
                let at = t.index_of(i);
                let term = if name == "p" { at[2] } else { at[1] };
                if term >= [0, 7, 40][at[0] as usize] {
                    t.set(i, crate::vocab::dtype::Value::F32(f32::NAN));
                }
            }
        }
        check_as(&plan, "sm_80", &Schedule::default(), &data);
    }
}

/// A condition on M and K alone cannot keep the other factor's NaN out: not for this form.
#[test]
fn what_is_no_product_is_said() {
    let mut g = G::default();
    let (m, n, k) = (8, 8, 8);
    let (a, b) = (g.input("a", DType::F32, &[m, k]), g.input("b", DType::F32, &[k, n]));
    let y = g.result("y", DType::F32, &[m, n]);
    let ((am, em), (an, en), (ak, ek)) = (g.axis("m", m), g.axis("n", n), g.axis("k", k));
    let (ra, rb) = (g.read(a, &[em, ek]), g.read(b, &[ek, en]));
    let body = g.mul(ra, rb);
    let both = g.call(Func::Add, &[em, en]);
    let cond = g.call(Func::Le, &[ek, both]);
    let v = g.fold(&[ak], Some(cond), body);
    g.define(y, &[am, an], v);
    let why = super::contract::recognise(&g.g, &[0]).expect_err("a mask of rows and columns");
    assert!(why.contains("left out by a condition"), "{why}");
    let z = g.result("z", DType::F32, &[m, n]);
    let d = g.call(Func::Sub, &[ra, rb]);
    let body = g.mul(d, d);
    let v = g.sum(&[ak], body);
    g.define(z, &[am, an], v);
    assert!(super::contract::recognise(&g.g, &[1]).is_err());
}

/// A sum that is looked at under a condition on M: the rows without it are not read.
#[test]
fn conditions_around_a_sum() {
    let mut g = G::default();
    let (m, n, k) = (20, 24, 40);
    let a = g.input("a", DType::F16, &[m, k]);
    let b = g.input("b", DType::F16, &[n, k]);
    let y = g.result("y", DType::F32, &[m, n]);
    let ((am, em), (an, en), (ak, ek)) = (g.axis("m", m), g.axis("n", n), g.axis("k", k));
    let five = g.g.int(5);
    let cond = g.call(Func::Le, &[five, em]);
    let before = g.call(Func::Sub, &[em, five]);
    // In bounds only where the condition holds.
    let (ra, rb) = (g.read(a, &[before, ek]), g.read(b, &[en, ek]));
    let body = g.mul(ra, rb);
    let sum = g.sum(&[ak], body);
    let other = lit(&mut g, -1.0);
    let v = select(&mut g, cond, sum, other);
    g.define(y, &[am, an], v);
    check(&g.plan(), "sm_80");
}

/// A long chain of f32 additions is cut into parts.
#[test]
fn long_sums_are_split() {
    let plan = matmul(F32, (2, 3, 70_000), NT);
    let got = check(&plan, "sm_80");
    assert_eq!(got.kernels.len(), 2);
}

/// Batch beyond 65535 and tiny products.
#[test]
fn many_batches() {
    let mut g = G::default();
    let (b, m, n, k) = (65_537, 1, 2, 1);
    let (x, w) = (g.input("x", DType::F16, &[b, m, k]), g.input("w", DType::F16, &[b, k, n]));
    let y = g.result("y", DType::F16, &[b, m, n]);
    let ((ab, eb), (am, em), (an, en), (ak, ek)) =
        (g.axis("b", b), g.axis("m", m), g.axis("n", n), g.axis("k", k));
    let (rx, rw) = (g.read(x, &[eb, em, ek]), g.read(w, &[eb, ek, en]));
    let body = g.mul(rx, rw);
    let v = g.sum(&[ak], body);
    g.define(y, &[ab, am, an], v);
    check(&g.plan(), "sm_80");
}

/// Beyond 2³¹ elements offsets are 64-bit; a kernel's types still agree.
#[test]
fn big_tensors_take_wide_offsets() {
    for layout in LAYOUTS {
        for dtypes in [F16, F32] {
            for (m, n, k) in [(524_289, 32, 8192), (64, 65_537, 65_536)] {
                let plan = matmul(dtypes, (m, n, k), layout);
                for t in ["sm_75", "sm_90a"] {
                    let program = plan_to_program(&plan, target(t), &Schedule::default()).expect("lowers");
                    for kernel in &program.kernels {
                        crate::ir::simt_verify::verify(kernel)
                            .unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
                    }
                    let text = super::simt_to_cuda::print(&program, target(t), &Default::default());
                    let text = text.replace("typedef long long i64;", "");
                    assert!(
                        text.contains("i64"),
                        "{layout:?} {dtypes:?} {m} {n} {k} {t}: no 64-bit offset\n{text}"
                    );
                }
            }
        }
    }
}

/// Runs `f` with operands packed wherever they can be, whether that pays or not.
fn packed<R>(f: impl FnOnce() -> R) -> R {
    forced::force(Gain::Packs, true);
    let r = f();
    forced::force(Gain::Packs, false);
    r
}

/// Operands with odd pitches, and those that do not run along K where the instruction wants it, are packed.
#[test]
fn operands_that_lie_badly_are_packed() {
    use DType::{E4M3, F32 as Single, I8, U8};
    for layout in LAYOUTS {
        for (m, n, k) in [(33, 29, 17), (70, 65, 35), (9, 131, 203), (64, 71, 99)] {
            let got = packed(|| check(&matmul(F16, (m, n, k), layout), "sm_90a"));
            assert!(got.kernels.len() > 1, "{layout:?} {m} {n} {k}: nothing was packed");
        }
        for dtypes in [(E4M3, E4M3, Single), (I8, I8, DType::I32), (U8, I8, DType::I32)] {
            let got = packed(|| check(&matmul(dtypes, (40, 36, 70), layout), "sm_90a"));
            assert!(got.kernels.len() > 1, "{layout:?} {dtypes:?}: nothing was packed");
        }
    }
}

/// x·xᵀ reads one tensor on both sides; with a residual of the same tensor in the epilogue.
#[test]
fn a_packed_tensor_may_be_read_twice() {
    let mut g = G::default();
    let n = 45;
    let x = g.input("x", DType::F16, &[n, n]);
    let y = g.result("y", DType::F16, &[n, n]);
    let ((am, em), (an, en), (ak, ek)) = (g.axis("m", n), g.axis("n", n), g.axis("k", n));
    let (ra, rb, rr) = (g.read(x, &[em, ek]), g.read(x, &[en, ek]), g.read(x, &[em, en]));
    let body = g.mul(ra, rb);
    let sum = g.sum(&[ak], body);
    let v = g.call(Func::Add, &[sum, rr]);
    g.define(y, &[am, an], v);
    let plan = g.plan();
    let got = packed(|| check(&plan, "sm_90a"));
    assert_eq!(got.kernels.len(), 2, "one copy and the product");
}

#[test]
fn packed_convolutions() {
    for channels in [3, 5, 12] {
        for last in [false, true] {
            for (stride, pad, groups) in [(1, 1, 1), (2, 2, 1), (2, 1, 3)] {
                if channels % groups != 0 {
                    continue;
                }
                let plan = conv_of(DType::F16, last, stride, pad, groups, channels);
                packed(|| check(&plan, "sm_90a"));
            }
        }
    }
}

/// y[m, n] = sum[k](x[m, k] · w[g[m], n, k]), or 0 where g[m] is no expert if `guarded`.
fn experts(dtype: DType, (m, n, k): (i64, i64, i64), e: i64, guarded: bool) -> Plan {
    let mut g = G::default();
    let x = g.input("x", dtype, &[m, k]);
    let w = g.input("w", dtype, &[e, n, k]);
    let of = g.input("g", DType::I32, &[m]);
    g.g.tensors[of.0 as usize].range = Some((0, e + 1));
    let y = g.result("y", DType::F32, &[m, n]);
    let ((am, em), (an, en), (ak, ek)) = (g.axis("m", m), g.axis("n", n), g.axis("k", k));
    let own = g.read(of, &[em]);
    let own = cast(&mut g, Ty::I64, own);
    let (rx, rw) = (g.read(x, &[em, ek]), g.read(w, &[own, en, ek]));
    let body = g.mul(rx, rw);
    let mut value = g.sum(&[ak], body);
    if guarded {
        let (count, other) = (g.g.int(e), lit(&mut g, -2.0));
        let there = g.call(Func::Lt, &[own, count]);
        value = select(&mut g, there, value, other);
    }
    g.define(y, &[am, an], value);
    g.plan()
}

/// Rows choose their B: sorted, all alike, or in any order; some look at no sum.
#[test]
fn rows_choose_their_matrix() {
    let (m, n, k) = (75, 40, 56);
    let orders: [fn(i64) -> i64; 4] = [|i| i / 30, |_| 1, |i| (i * 7 + i / 5) % 3, |i| i / 64 * 2];
    for dtype in [DType::F16, DType::F32] {
        for guarded in [false, true] {
            let plan = experts(dtype, (m, n, k), 3, guarded);
            super::contract::recognise(&plan.graph, &[0]).expect("a product");
            for order in orders {
                for split in [1, 2] {
                    let mut data = inputs(&plan.graph, 8);
                    let gone = |i: i64| if guarded && i % 11 == 0 { 3 } else { order(i) };
                    let chosen: Vec<i64> = (0..m).map(gone).collect();
                    data.tensors.insert("g".into(), HostTensor::from_i64(DType::I32, &[m], &chosen));
                    let s = with(Schedule::default(), "y", &[("split", "k", split), ("block", "m", 32)]);
                    check_as(&plan, "sm_90a", &s, &data);
                }
            }
        }
    }
}
#[path = "contract_codes_tests.rs"]
mod codes;
#[path = "contract_conv_tests.rs"]
mod conv;
#[path = "contract_few_tests.rs"]
mod few;
#[path = "contract_hopper_tests.rs"]
mod hopper;
