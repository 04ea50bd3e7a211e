//! Operators as people write them: text → plan (fused and not) → program → simulator, against the reference.

use super::*;
use crate::host::HostTensor;
use crate::ir::graph::{Role, Tensor};
use crate::ir::plan::PlanKernel;
use crate::lower::{Schedule, plan_to_program};
use crate::pass::ast_to_graph::{Bindings, bind};
use crate::pass::module;
use crate::vocab::dtype::Value;
use girih_dsl::source::Sources;

/// Binds the one op of a text at these sizes.
pub fn graph(text: &str, op: &str, dims: &[(&str, i64)]) -> Graph {
    let mut sources = Sources::default();
    let m = module::load("t.tile", text, &mut sources, &|_| Err("no imports here".into()));
    let dims = dims.iter().map(|(k, v)| (k.to_string(), *v)).collect();
    let bound = m.and_then(|m| bind(&m, op, &Bindings { dims, ..Bindings::default() }));
    match bound {
        Ok(b) => b.graph,
        Err(d) => panic!("{op}: {:?}", d.iter().map(|d| &d.message).collect::<Vec<_>>()),
    }
}

/// Values for an input: within the declared range, distinct where declared so, else small and of both signs.
pub fn values(t: &Tensor, seed: i64) -> HostTensor {
    let n: i64 = t.dims.iter().product();
    let mix = |i: i64| (i * 7919 + seed * 104_729 + (i * i) % 31) % 1009;
    match t.range {
        Some((lo, hi)) if t.unique => {
            let all: Vec<i64> = (0..n).map(|i| (lo.max(0) + (i * 5 + 3) % hi.max(1)) % hi).collect();
            HostTensor::from_i64(t.dtype, &t.dims, &all)
        }
        Some((lo, hi)) => {
            let all: Vec<i64> = (0..n).map(|i| lo + mix(i) % (hi - lo)).collect();
            HostTensor::from_i64(t.dtype, &t.dims, &all)
        }
        None => {
            let all: Vec<f64> = (0..n).map(|i| (mix(i) % 17 - 8) as f64 / 4.0).collect();
            HostTensor::from_f64(t.dtype, &t.dims, &all)
        }
    }
}

/// The fault that a run with these values of `p` ends in.
fn fault(text: &str, op: &str, n: i64, p: &[i64]) -> Option<(usize, i64)> {
    let g = graph(text, op, &[("N", n)]);
    let mut inputs = Inputs::default();
    for t in g.tensors.iter().filter(|t| t.role == Role::Input) {
        let v = if t.name == "p" { HostTensor::from_i64(t.dtype, &t.dims, p) } else { values(t, 1) };
        inputs.tensors.insert(t.name.clone(), v);
    }
    simulate(&g, &inputs, &[]).err().and_then(|e| e.fault)
}

#[test]
fn declared_values_are_checked() {
    let unique = "op u[N](x: f32[N], p: i32[N] in -1..N unique) -> (y: f32[N]) {
        y[i] = 0
        y[p[i]] = x[i] where p[i] >= 0
    }";
    assert_eq!(fault(unique, "u", 4, &[3, 1, 0, 2]), None);
    assert_eq!(fault(unique, "u", 4, &[3, -1, 0, -1]), None);
    assert_eq!(fault(unique, "u", 4, &[3, 1, 0, 1]).map(|f| f.1), Some(1));
    assert_eq!(fault(unique, "u", 4, &[3, 1, 0, 4]).map(|f| f.1), Some(4));
    let range = "op r[N](x: f32[N], p: i32[N] in 0..N) -> (y: f32[N]) { y[i] = x[p[i]] }";
    assert_eq!(fault(range, "r", 4, &[3, 1, 0, 1]), None);
    assert_eq!(fault(range, "r", 4, &[3, 1, -7, 1]).map(|f| f.1), Some(-7));
}

/// Every schedule that the forms accept gives an admitted result.
#[test]
fn every_schedule_is_right() {
    let text = "op e[M, N](x: f16[M, N], b: f32[N]) -> (y: f16[M, N]) { y[m, n] = x[m, n] * b[n] + 1.0 }
    tile e { threads = {64, 128} vector = {1, 4, 8} }";
    let g = graph(text, "e", &[("M", 37), ("N", 64)]);
    let mut inputs = Inputs::default();
    for (i, t) in g.tensors.iter().enumerate().filter(|(_, t)| t.role == Role::Input) {
        inputs.tensors.insert(t.name.clone(), values(t, i as i64));
    }
    let want = reference::run(&g, &inputs).expect("no fault");
    let plan = plan(&g, &PlanOptions::default());
    let target = Target::parse("sm_80").expect("a target of the table");
    let all = crate::lower::schedules(&plan, target);
    assert_eq!(all.len(), 7, "the one by itself, and two by three: {all:?}");
    let mut bodies = std::collections::BTreeSet::new();
    for s in &all {
        assert_eq!(Schedule::parse(&s.to_string()).as_ref(), Ok(s));
        let program = plan_to_program(&plan, target, s).expect("schedules are accepted");
        bodies.insert(format!("{:?}", program.kernels));
        let got = sim::run(&program, &inputs, &SimOptions::default()).expect("it runs");
        reference::compare(&want.outputs["y"], &got.outputs["y"]).unwrap_or_else(|m| panic!("{s}: {m}"));
    }
    assert!(bodies.len() >= 6, "the settings make different kernels: {}", bodies.len());
}

fn check_text(text: &str, op: &str, dims: &[(&str, i64)]) {
    let g = graph(text, op, dims);
    let mut inputs = Inputs::default();
    for (i, t) in g.tensors.iter().enumerate() {
        if matches!(t.role, Role::Input | Role::Inout) && t.version == 0 {
            inputs.tensors.insert(t.name.clone(), values(t, i as i64));
        }
    }
    for s in &g.scalars {
        inputs.scalars.insert(s.name.clone(), s.default.unwrap_or(Value::F32(0.5)));
    }
    let want = reference::run(&g, &inputs).unwrap_or_else(|e| panic!("{op} {dims:?}: {e:?}"));
    for fuse in [false, true] {
        let plan = plan(&g, &PlanOptions { fuse, ..PlanOptions::default() });
        let target = Target::parse("sm_80").expect("a target of the table");
        let program = plan_to_program(&plan, target, &Schedule::default())
            .unwrap_or_else(|r| panic!("{op} {dims:?}: {}", r.message));
        let got = sim::run(&program, &inputs, &SimOptions::default())
            .unwrap_or_else(|e| panic!("{op} {dims:?} fuse {fuse}: {e}"));
        for (name, want) in &want.outputs {
            if let Err(m) = reference::compare(want, &got.outputs[name]) {
                panic!("{op} {dims:?} fuse {fuse}: {name}: {m}");
            }
        }
    }
}

#[test]
fn inouts_are_updated_as_if_in_order() {
    let shift = "op shift[N](inout x: f32[N]) { x[i] = (x[i-1] else 0) + 1 }";
    check_text(shift, "shift", &[("N", 700)]);
    let broadcast = "op b[M, N](inout t: f32[M], x: f32[M, N]) -> (y: f32[M, N]) {
        y[i, j] = t[i] + x[i, j]
        t[i] = -t[i]
    }";
    check_text(broadcast, "b", &[("M", 5), ("N", 70)]);
    let swap = "op swap[N](inout a: f16[N], inout b: f16[N]) { c[i] = a[i] a[i] = b[i] b[i] = c[i] }";
    check_text(swap, "swap", &[("N", 33)]);
    let packed = "op p[M, N](inout q: i4[M, N], ids: i32[M] in 0..M) { q[ids[m], n] += q[m, n] }";
    check_text(packed, "p", &[("M", 6), ("N", 5)]);
    let part = "op part[N](inout x: f32[N, N]) { x[i, j in 0..2] max= x[j, i] + 0.5 }";
    check_text(part, "part", &[("N", 7)]);
}

#[test]
fn recurrences_of_many_kinds() {
    let two = "op two[T, N](x: f32[T, N]) -> (a: f32[T, N], b: f32[T, N]) {
        a[t, n] = 0.5 * (b[t-1, n] else 1) + x[t, n]
        b[t, n] = 0.25 * a[t, n] - (a[t-2, n] else x[0, n])
    }";
    check_text(two, "two", &[("T", 9), ("N", 40)]);
    let last = "op last[T, N](x: f32[T, N]) -> (y: f32[N]) {
        z: f32[t, n] = 0.9 * (z[t-1, n] else 0) + x[t, n]
        y[n] = z[T-1, n]
    }";
    check_text(last, "last", &[("T", 30), ("N", 3)]);
    let back = "op back[T](x: f64[T]) -> (y: f64[T]) { y[t] = x[t] - 0.5 * (y[t+1] else 0) }";
    check_text(back, "back", &[("T", 100)]);
    let edit = "op edit[M, N](a: i32[M], b: i32[N]) -> (d: i32[M+1, N+1]) {
        d[i, j] = if i == 0 then i32(j) else if j == 0 then i32(i)
                  else min(d[i-1, j] + 1, d[i, j-1] + 1, d[i-1, j-1] + (if a[i-1] == b[j-1] then 0 else 1))
    }";
    check_text(edit, "edit", &[("M", 12), ("N", 9)]);
    let heat = "op heat[T, N](u0: f32[N]) -> (u: f32[T, N]) {
        u[t, i] = if t == 0 then u0[i]
                  else u[t-1, i] + 0.1 * (u[t-1, (i-1) % N] - 2 * u[t-1, i] + u[t-1, (i+1) % N])
    }";
    check_text(heat, "heat", &[("T", 6), ("N", 50)]);
    check_text(heat, "heat", &[("T", 3), ("N", 9000)]);
    let packed = "op acc[T, N](x: i4[T, N]) -> (y: i4[T, N]) { y[t, n] = (y[t-1, n] else 0) + x[t, n] }";
    check_text(packed, "acc", &[("T", 5), ("N", 7)]);
}

/// A step's long sums are kernels of their own: of earlier steps, of members before, in both directions of time.
#[test]
fn steps_with_products() {
    let lstm = "op lstm[T, B, H](x: f16[T, B, H], wi: f16[4, H, H], wh: f16[4, H, H]) -> (y: f16[T, B, H]) {
        z[t, b, g, j] = sum[k](x[t, b, k] * wi[g, j, k]) + sum[k]((y[t-1, b, k] else 0) * wh[g, j, k])
        c: f32[t, b, j] = sigmoid(z[t, b, 1, j]) * (c[t-1, b, j] else 0) + sigmoid(z[t, b, 0, j]) * tanh(z[t, b, 2, j])
        y[t, b, j] = sigmoid(z[t, b, 3, j]) * tanh(c[t, b, j])
    }";
    let back = "op back[T, H](x: f32[T, H], w: f32[H, H]) -> (y: f32[T, H]) {
        h[t, j] = tanh(x[t, j] + 0.125 * sum[k]((y[t+1, k] else 0) * w[j, k]))
        y[t, j] = 0.5 * h[t, j] + 0.125 * sum[k](h[t, k] * w[k, j])
    }";
    let sizes: [(&str, &str, &[(&str, i64)]); 2] =
        [(lstm, "lstm", &[("T", 3), ("B", 5), ("H", 48)]), (back, "back", &[("T", 3), ("H", 130)])];
    for (text, op, dims) in sizes {
        let g = graph(text, op, dims);
        let mut given = Inputs::default();
        for (i, t) in g.tensors.iter().enumerate().filter(|(_, t)| t.role == Role::Input) {
            given.tensors.insert(t.name.clone(), values(t, i as i64));
        }
        check_as(&g, &given, &[("y", Form::Step)]);
        let plan = plan(&g, &PlanOptions { fuse: false, ..PlanOptions::default() });
        assert_eq!(plan.kernels.len(), 1);
        let k = PlanKernel { form: Form::Step, ..plan.kernels[0].clone() };
        let split = crate::lower::step_split::split(&plan, &k).expect("a recurrence").expect("long sums");
        assert_eq!(split.sums.len(), 2);
    }
}

/// Rows that are held two elements a register, and rows too long to be held: maximum and sum in one pass.
#[test]
fn long_rows() {
    let softmax = "op s[M, N](x: T[M, N]) -> (y: T[M, N]) { y[m, n] = softmax[n](x[m, n]) }";
    let lse = "op l[M, N](x: T[M, N], t: i32[M] in 0..N) -> (y: f32[M]) { y[m] = logsumexp[n](x[m, n]) - x[m, t[m]] }";
    let norm = "op n[M, N](x: T[M, N], w: T[N]) -> (y: T[M, N]) {
        mu[m] = mean[n](x[m, n])
        v[m] = mean[n]((x[m, n] - mu[m]) ** 2)
        y[m, n] = (x[m, n] - mu[m]) * rsqrt(v[m] + 1e-5) * w[n]
    }";
    let holes = "op h[M, N](x: T[M, N]) -> (y: T[M, N]) { y[m, n] = softmax[n](if n % 3 == m then x[m, n] else -inf) }";
    let of = |text: &str, dtype: &str| text.replace("T[", &format!("{dtype}["));
    check_text(&of(softmax, "bf16"), "s", &[("M", 300), ("N", 520)]);
    check_text(&of(norm, "f16"), "n", &[("M", 270), ("N", 2600)]);
    check_text(&of(softmax, "f32"), "s", &[("M", 2), ("N", 36_000)]);
    check_text(&of(softmax, "f32"), "s", &[("M", 1), ("N", 33_001)]);
    check_text(&of(lse, "bf16"), "l", &[("M", 2), ("N", 66_000)]);
    check_text(&of(holes, "f32"), "h", &[("M", 4), ("N", 33_000)]);
}

#[test]
fn scans_and_sorts_in_use() {
    let scan = "fn last(a, b) from 0 = if b == 0 then a else b
    op s[B, N](x: i32[B, N]) -> (y: f32[B, N], c: i8[B, N]) {
        y[b, n] = cumsum[n](f32(x[b, n]) where x[b, n] > 0)
        c[b, n] = i8(cummax[n](x[b, n]))
    }";
    let scan = scan.replace("(f32(x[b, n]) where x[b, n] > 0)", "(if x[b, n] > 0 then f32(x[b, n]) else 0)");
    check_text(&scan, "s", &[("B", 3), ("N", 300)]);
    let mapped = "op m[B, N](x: bf16[B, N]) -> (y: bf16[B, N], z: f32[B, N], e: f32[B, N]) {
        s[b, n] = cumsum[n](x[b, n])
        y[b, n] = s[b, n] * 0.5
        z[b, n] = s[b, n] + x[b, n] + y[b, n]
        e[b, n] = s[b, n-1] else 0
    }";
    check_text(mapped, "m", &[("B", 3), ("N", 264)]);
    check_text(mapped, "m", &[("B", 2), ("N", 33)]);
    let top = "op top[T, E, K](s: bf16[T, E]) -> (v: bf16[T, K], id: i32[T, K]) {
        order[t, e] = argsort[e](-s[t, e])
        v[t, k] = s[t, order[t, k]]
        id[t, k] = order[t, k]
    }";
    check_text(top, "top", &[("T", 5), ("E", 60), ("K", 4)]);
    check_text(top, "top", &[("T", 2), ("E", 3000), ("K", 7)]);
    // Few distinct values: ties go by position, through the digits of the position.
    check_text(top, "top", &[("T", 3), ("E", 5000), ("K", 50)]);
    check_text(top, "top", &[("T", 1), ("E", 9001), ("K", 1000)]);
    let along = "op first[E, T](s: i32[E, T]) -> (id: i32[3, T]) {
        order[e, t] = argsort[e](s[e, t])
        id[k, t] = order[k, t]
    }";
    check_text(along, "first", &[("E", 4200), ("T", 2)]);
    let odd = "op odd[N](x: f32[N]) -> (o: i4[N]) { r[i in 0..N] = argsort[i](x[i]) o[i] = r[i] }";
    check_text(odd, "odd", &[("N", 8)]);
}

#[test]
fn updates_in_use() {
    let grad = "op g[V, T, D](dy: f16[T, D], ids: i64[T] in -1..V) -> (d: f32[V, D]) {
        d[ids[t], j] += dy[t, j] where ids[t] >= 0
    }";
    check_text(grad, "g", &[("V", 5), ("T", 90), ("D", 17)]);
    let hist = "op h[N](x: i32[N] in 0..11) -> (c: i32[11], m: f32[11]) {
        c[x[i]] += 1
        m[x[i]] max= f32(i)
    }";
    check_text(hist, "h", &[("N", 500)]);
    let unique = "op u[N](x: f32[N], p: i32[N] in 0..N unique) -> (y: f32[N]) {
        y[i] = 0
        y[p[i]] = x[i]
    }";
    check_text(unique, "u", &[("N", 21)]);
    let conv = "op ct[C, L, F, R](x: f32[C, L], w: f32[C, F, R]) -> (y: f32[F, 2*(L-1) + R]) {
        y[f, 2*i + r] += sum[c](x[c, i] * w[c, f, r])
    }";
    check_text(conv, "ct", &[("C", 3), ("L", 20), ("F", 4), ("R", 5)]);
    let narrow = "op n[N](x: i8[N], k: i32[N] in 0..4) -> (y: i8[4], z: bf16[4]) {
        y[k[i]] += i32(x[i])
        z[k[i]] min= f32(x[i])
    }";
    check_text(narrow, "n", &[("N", 300)]);
}

#[test]
fn folds_over_data_and_odd_ranges() {
    let ragged = "op r[B, N](x: f32[N], s: i32[B+1] in 0..N+1) -> (y: f32[B], n: i64[B]) {
        y[b] = sum[j in s[b]..s[b+1]](x[j])
        n[b] = argmax[j in s[b]..s[b+1]](x[j])
    }";
    check_text(ragged, "r", &[("B", 9), ("N", 50)]);
    let low = "op low[N](x: f32[N]) -> (y: f32[N]) {
        z[i in 1..=N] = x[i-1] * 2
        y[i] = z[i+1] + z[N-i]
    }";
    check_text(low, "low", &[("N", 64)]);
    let func = "fn far(a, b) from 0 = if abs(b) > abs(a) then b else a
    op f[M, N](x: f32[M, N]) -> (y: f32[M], a: bool[M], k: i32[M]) {
        y[m] = far[n](x[m, n])
        a[m] = any[n where n % 3 == 1](x[m, n] > 1.5)
        k[m] = i32(argmin[n in 2..N](x[m, n]))
    }";
    check_text(func, "f", &[("M", 6), ("N", 40)]);
    let random = "op rnd[N](seed: i64) -> (u: f32[N], z: f32[N], r: i64[N]) {
        u[i] = uniform(seed, i)
        z[i] = normal(seed, i)
        r[i] = randbits(seed, i)
    }";
    let g = graph(random, "rnd", &[("N", 77)]);
    let mut inputs = Inputs::default();
    inputs.scalars.insert("seed".into(), Value::I64(-5));
    check(&g, &inputs);
    let floor = "op fl[N](a: i32[N], b: i32[N]) -> (q: i32[N], r: i32[N], s: i32[N]) {
        q[i] = a[i] / (b[i] * 0 + 3)
        r[i] = a[i] % b[i] + a[i] / 4 + a[i] % 8
        s[i] = (a[i] << b[i]) ^ (a[i] >> 1)
    }";
    check_text(floor, "fl", &[("N", 200)]);
}
