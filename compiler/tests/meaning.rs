//! What programs mean, against closed forms: text to graph to the CPU reference.

mod common;

use common::{Case, near, numbers};
use girih_compiler::host::HostTensor;
use girih_compiler::reference::FaultKind;
use girih_compiler::vocab::dtype::{DType, Value};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

#[test]
fn division_floors_with_literals_and_loaded_values() {
    let pairs =
        [(-6, 5), (6, -5), (-7, 3), (-1, 3), (5, -3), (-5, 2), (-1, 4), (i32::MIN as i64, -1), (7, 0)];
    let (a, b): (Vec<i64>, Vec<i64>) = pairs.iter().copied().unzip();
    let text = "op f[N](a: i32[N], b: i32[N]) -> (q: i32[N], r: i32[N]) {\n q[i] = a[i] / b[i]\n r[i] = a[i] % b[i]\n}";
    let case = Case::new(text).ints("a", DType::I32, &[9], &a).ints("b", DType::I32, &[9], &b);
    let q = [-2.0, -2.0, -3.0, -1.0, -2.0, -3.0, -1.0, i32::MIN as f64, 0.0];
    let r = [4.0, -4.0, 2.0, 2.0, -1.0, 1.0, 3.0, 0.0, 7.0];
    assert_eq!(case.values("q"), q);
    assert_eq!(case.values("r"), r);
    // Written out, −2³¹ is the i64 2³¹ negated, and does not wrap.
    let folded: Vec<String> =
        (0..7).map(|i| format!("if i == {i} then ({}) / ({}) else ", pairs[i].0, pairs[i].1)).collect();
    let text = format!("op f[N](a: i32[N]) -> (q: i32[N]) {{ q[i] = {}0 * a[i] }}", folded.concat());
    assert_eq!(Case::new(&text).ints("a", DType::I32, &[9], &a).values("q")[..7], q[..7]);
}

#[test]
fn int4_decodes_every_code() {
    let bytes: Vec<u8> = (0..=255).collect();
    let packed = HostTensor::new(DType::I4, vec![256, 2], bytes).expect("256 bytes");
    let case =
        Case::new("op f[M, N](x: i4[M, N]) -> (y: i32[M, N]) { y[i, j] = x[i, j] }").tensor("x", packed);
    let want: Vec<f64> = (0..256).flat_map(|b| [b & 15, b >> 4]).map(|n: i32| ((n ^ 8) - 8) as f64).collect();
    assert_eq!(case.values("y"), want);
}

#[test]
fn e4m3_saturates_at_its_top() {
    let x = [448.0, 464.0, 465.0, 1000.0, -1000.0, INF, NAN, 256.0, 300.0, 320.0];
    let case = Case::new("op f[N](x: f32[N]) -> (y: e4m3[N]) { y[i] = x[i] }").f32("x", &[10], &x);
    near(&case.values("y"), &[448.0, 448.0, 448.0, 448.0, -448.0, 448.0, NAN, 256.0, 288.0, 320.0], 0.0);
}

const SOFTMAX: &str = "op f[M, N](x: f32[M, N]) -> (y: f32[M, N], l: f32[M]) {\n y[i, j] = softmax[j](x[i, j])\n \
                       l[i] = logsumexp[j](x[i, j])\n}";

#[test]
fn softmax_over_infinities() {
    let rows = [1.0, -INF, -INF, -INF, INF, 1.0, 0.0, 2.0, -INF, -INF, -INF, -INF, NAN, 0.0, 1.0, 2.0];
    let case = Case::new(SOFTMAX).f32("x", &[4, 4], &rows);
    let y = case.values("y");
    assert_eq!(y[..4], [1.0, 0.0, 0.0, 0.0]);
    assert!(y[4..8].iter().any(|v| v.is_nan()));
    assert_eq!(y[8..12], [0.0; 4]);
    assert!(y[12..].iter().all(|v| v.is_nan()));
    near(&case.values("l"), &[1.0, INF, -INF, NAN], 1e-7);
}

const ATTENTION: &str = "op f[S, T, D](q: f32[S, D], k: f32[T, D], v: f32[T, D]) -> (o: f32[S, D]) {
    s[i, j] = sum[d](q[i, d] * k[j, d])
    p[i, j] = softmax[j](if j > i + T - S then -inf else s[i, j])
    o[i, d] = sum[j](p[i, j] * v[j, d])
}";

#[test]
fn rows_that_see_no_key_are_zero() {
    let case = Case::new(ATTENTION).f32("q", &[5, 1], &[0.3; 5]).f32("k", &[2, 1], &[1.0; 2]).f32(
        "v",
        &[2, 1],
        &[7.0; 2],
    );
    near(&case.values("o"), &[0.0, 0.0, 0.0, 7.0, 7.0], 1e-6);
}

#[test]
fn causal_attention_of_uniform_weights() {
    let n = 17;
    let v: Vec<f64> = (0..n).map(|j| j as f64).collect();
    let case = Case::new(ATTENTION).f32("q", &[n, 1], &vec![1.0; n as usize]).f32(
        "k",
        &[n, 1],
        &vec![0.0; n as usize],
    );
    let want: Vec<f64> = (0..n).map(|i| i as f64 / 2.0).collect();
    near(&case.f32("v", &[n, 1], &v).values("o"), &want, 1e-6);
}

#[test]
fn argmax_takes_the_lowest_index() {
    let mut x = vec![0.0; 8192];
    [7, 130, 4097].iter().for_each(|&i: &usize| x[i] = 5.0);
    let text = "op f[M, N](x: f32[M, N]) -> (a: i64[M], b: i64[M]) {\n a[i] = argmax[j](x[i, j])\n b[i] = argmin[j](x[i, j])\n}";
    let case = Case::new(text).f32("x", &[1, 8192], &x);
    assert_eq!((case.values("a"), case.values("b")), (vec![7.0], vec![0.0]));
}

#[test]
fn long_sums_of_halves() {
    for (dtype, n, want) in [("f16", 4096, 4096.0), ("f16", 20000, 20000.0), ("bf16", 70000, 70144.0)] {
        let text = format!(
            "op f[N](x: {dtype}[N]) -> (s: {dtype}, m: {dtype}) {{\n s = sum[i](x[i])\n m = mean[i](x[i])\n}}"
        );
        let x = HostTensor::from_i64(DType::parse(dtype).expect("a dtype"), &[n], &vec![1; n as usize]);
        let case = Case::new(&text).tensor("x", x);
        assert_eq!((case.values("s"), case.values("m")), (vec![want], vec![1.0]));
    }
}

#[test]
fn variance_with_a_large_mean() {
    let text = "op f[N](x: f32[N]) -> (y: f32[N]) {
        u = mean[i](x[i])
        v = mean[i]((x[i] - u) ** 2)
        y[i] = (x[i] - u) / sqrt(v + 1e-5)
    }";
    for (mean, want) in [(0.0, -1.3416), (100.0, -1.3415), (1000.0, -1.3415), (10000.0, -1.3313)] {
        let x: Vec<f64> = (0..16).map(|i| (mean as f32 + i as f32 * 0.001) as f64).collect();
        let y = Case::new(text).f32("x", &[16], &x).values("y");
        assert!((y[0] - want).abs() < 2e-4, "{mean}: {}", y[0]);
    }
}

#[test]
fn scans_keep_the_order_of_operands() {
    let text = "op f[N](x: f32[N]) -> (h: f32[N]) { h[t] = 0.5 * (h[t-1] else 0) + x[t] }";
    let h = Case::new(text).f32("x", &[64], &[1.0; 64]).values("h");
    let want: Vec<f64> = (1..=64).map(|t| 2.0 * (1.0 - 0.5f64.powi(t))).collect();
    near(&h, &want, 1e-7);
    // The last one that is not 0: associative, not commutative.
    let text = "fn last(a, b) from 0 = if b == 0 then a else b\n\
                op f[N](x: i32[N]) -> (y: i32) { y = last[i](x[i]) }";
    assert_eq!(Case::new(text).ints("x", DType::I32, &[5], &[3, 0, 7, 5, 0]).values("y"), [5.0]);
}

#[test]
fn activations_keep_their_tails() {
    let x = [13.24, 20.0, 40.0, -13.24, -40.0, 100.0, -100.0];
    let text = "op f[N](x: f32[N]) -> (a: f32[N], b: f32[N], c: f32[N], d: f32[N]) {\n a[i] = gelu_tanh(x[i])\n \
                b[i] = tanh(x[i])\n c[i] = sigmoid(x[i])\n d[i] = silu(x[i])\n}";
    let case = Case::new(text).f32("x", &[7], &x);
    let a = case.values("a");
    near(&a[..3], &x[..3], 1e-6);
    near(&a[3..5], &[0.0, 0.0], 1e-6);
    near(&case.values("b")[5..], &[1.0, -1.0], 0.0);
    near(&case.values("c")[5..], &[1.0, 0.0], 1e-30);
    near(&case.values("d")[5..], &[100.0, 0.0], 1e-30);
}

#[test]
fn padding_never_wins_a_maximum() {
    let text = "op f[N](x: f32[N]) -> (y: f32[N + 1]) { y[i] = max[r in 0..2](x[i + r - 1] else -inf) }";
    assert_eq!(Case::new(text).f32("x", &[2], &[-1.0, -2.0]).values("y"), [-1.0, -1.0, -2.0]);
    let text = "op f[H, W](x: f32[H, W]) -> (y: f32[H, W]) {
        y[i, j] = sum[a in 0..3, b in 0..3](x[i + a - 1, j + b - 1] else 0) / 9
    }";
    let y = Case::new(text).f32("x", &[4, 4], &[1.0; 16]).values("y");
    near(&[y[0], y[1], y[5]], &[4.0 / 9.0, 6.0 / 9.0, 1.0], 1e-6);
}

#[test]
fn sliding_windows_count_the_current_token() {
    let text =
        "op f[N](v: f32[N], w: const i32) -> (o: f32[N]) { o[i] = mean[j in max(0, i - w + 1)..=i](v[j]) }";
    let v: Vec<f64> = (0..10).map(f64::from).collect();
    for w in 1..=12 {
        let o = Case::new(text).f32("v", &[10], &v).constant("w", &w.to_string()).values("o");
        let want: Vec<f64> = (0..10i32).map(|i| (i.max(0) + (i - w + 1).max(0)) as f64 / 2.0).collect();
        near(&o, &want, 1e-6);
    }
}

#[test]
fn scatters_combine_all_points_and_round_once() {
    let text = "op f[V, T](ids: i64[T] in -1..V, x: f32[T]) -> (s: f16[V], m: f32[V], c: i32[V]) {
        s[ids[t]] += x[t] where ids[t] >= 0
        m[ids[t]] max= x[t] where ids[t] >= 0
        c[ids[t]] += 1 where ids[t] >= 0
    }";
    let ids = [0, 2, -1, 2, 0, 0];
    let x = [2048.0, 1.0, 9.0, -3.0, 1.0, 1.0];
    let case = Case::new(text).ints("ids", DType::I64, &[6], &ids).f32("x", &[6], &x).dim("V", 4);
    // One rounding: 2048 + 1 + 1 in f16 steps would stay 2048.
    assert_eq!(case.values("s"), [2050.0, 0.0, -2.0, 0.0]);
    assert_eq!(case.values("m"), [2048.0, -INF, 1.0, -INF]);
    assert_eq!(case.values("c"), [3.0, 0.0, 2.0, 0.0]);
}

#[test]
fn the_last_assignment_wins() {
    let text = "op f[N, T](inout y: f32[N], ids: i32[T] in 0..N, x: f32[T]) { y[ids[t]] = x[t] }";
    let case = Case::new(text)
        .f32("y", &[3], &[9.0, 9.0, 9.0])
        .ints("ids", DType::I32, &[4], &[2, 0, 2, 0])
        .f32("x", &[4], &[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(case.values("y"), [4.0, 9.0, 3.0]);
}

#[test]
fn sorting_is_stable_with_nan_last() {
    let text = "op f[N](x: f32[N]) -> (o: i32[N], d: i32[N]) {\n o[j] = argsort[j](x[j])\n d[j] = argsort[j](-x[j])\n}";
    let case = Case::new(text).f32("x", &[6], &[2.0, NAN, 1.0, 2.0, -INF, 1.0]);
    assert_eq!(case.values("o"), [4.0, 2.0, 5.0, 0.0, 3.0, 1.0]);
    assert_eq!(case.values("d"), [0.0, 3.0, 2.0, 5.0, 4.0, 1.0]);
}

#[test]
fn parts_of_a_row_sort_by_themselves() {
    // NaN inside a part stays before what is outside of it; an empty part gives nothing.
    let text = "op f[N, B](x: f32[N], start: i32[B] in 0..=N) -> (o: i64[B, N]) {\n \
                o[b, n] = max[j in start[b]..(if b == B-1 then N else start[min(b+1, B-1)]) where j == n](argsort[j](x[j]))\n}";
    let x = [NAN, 3.0, NAN, 1.0, 5.0, -INF, 5.0];
    let case = Case::new(text).f32("x", &[7], &x).ints("start", DType::I32, &[4], &[0, 4, 4, 6]);
    let o = case.values("o");
    let none = i64::MIN as f64;
    assert_eq!(o[..7], [3.0, 1.0, 0.0, 2.0, none, none, none]);
    assert_eq!(o[7..14], [none; 7]);
    assert_eq!(o[14..21], [none, none, none, none, 5.0, 4.0, none]);
    assert_eq!(o[21..], [none, none, none, none, none, none, 6.0]);
}

#[test]
fn scans_along_an_axis() {
    let text = "op f[M, N](x: f32[M, N]) -> (s: f32[M, N], p: f32[M, N], m: f32[M, N]) {
        s[i, j] = cumsum[i](x[i, j])
        p[i, j] = cumprod[j](x[i, j])
        m[i, j] = cummax[j](x[i, j])
    }";
    let case = Case::new(text).f32("x", &[2, 3], &[1.0, 2.0, -3.0, 4.0, 5.0, 6.0]);
    assert_eq!(case.values("s"), [1.0, 2.0, -3.0, 5.0, 7.0, 3.0]);
    assert_eq!(case.values("p"), [1.0, 2.0, -6.0, 4.0, 20.0, 120.0]);
    assert_eq!(case.values("m"), [1.0, 2.0, 2.0, 4.0, 5.0, 6.0]);
}

#[test]
fn recurrences_in_two_directions() {
    let text = "op f[M, N](a: i32[M], b: i32[N]) -> (d: i32[M, N]) {
        e: i32[i, j] = if a[i] == b[j] then (e[i-1, j-1] else 0) + 1 else max((e[i-1, j] else 0), (e[i, j-1] else 0))
        d[i, j] = e[i, j]
    }";
    let case =
        Case::new(text).ints("a", DType::I32, &[4], &[1, 2, 3, 4]).ints("b", DType::I32, &[3], &[2, 4, 3]);
    assert_eq!(case.values("d"), [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 1.0, 2.0, 2.0]);
    let text = "op f[N](x: i32[N]) -> (y: i32[N]) { y[i] = x[i] + 2 * (y[i+1] else 0) }";
    assert_eq!(Case::new(text).ints("x", DType::I32, &[3], &[1, 1, 1]).values("y"), [7.0, 3.0, 1.0]);
}

#[test]
fn faults_name_the_place() {
    let text = "op f[V, T](x: f32[V], ids: i64[T]) -> (y: f32[T]) { y[t] = x[ids[t]] }";
    let case = Case::new(text).f32("x", &[3], &[1.0, 2.0, 3.0]).ints("ids", DType::I64, &[2], &[2, 3]);
    let fault = case.run().expect_err("3 is outside");
    assert_eq!(
        (fault.tensor.as_str(), fault.value, &fault.kind),
        ("x", 3, &FaultKind::Read { lo: 0, hi: 3 })
    );
    let at = &text[fault.span.start as usize..fault.span.end as usize];
    assert!(at.contains("x[ids[t]]"), "{at}");
    let text = "op f[V, T](ids: i64[T], x: f32[T]) -> (y: f32[V]) { y[ids[t]] += x[t] }";
    let case =
        Case::new(text).dim("V", 2).ints("ids", DType::I64, &[2], &[0, -1]).f32("x", &[2], &[1.0, 2.0]);
    assert!(matches!(case.run().expect_err("-1 is outside").kind, FaultKind::Write { .. }));
    // A guard that is false reads nothing.
    let text =
        "op f[V, T](x: f32[V], ids: i64[T]) -> (y: f32[T]) { y[t] = if ids[t] < 3 then x[ids[t]] else 0.0 }";
    let case = Case::new(text).f32("x", &[3], &[1.0, 2.0, 3.0]).ints("ids", DType::I64, &[2], &[2, 3]);
    assert_eq!(case.values("y"), [3.0, 0.0]);
}

#[test]
fn scalars_and_their_defaults() {
    let text = "op f[N](x: f32[N], a: f32 = 0.5, n: i32 = 2) -> (y: f32[N]) { y[i] = a * x[i] + n }";
    let case = Case::new(text).f32("x", &[2], &[1.0, 2.0]);
    assert_eq!(case.values("y"), [2.5, 3.0]);
    assert_eq!(case.scalar("a", Value::F32(2.0)).scalar("n", Value::I32(0)).values("y"), [2.0, 4.0]);
}

#[test]
fn empty_folds() {
    let text =
        "op f[M, N](x: f32[M, N]) -> (a: f32[M], b: f32[M], c: f32[M], d: f32[M], e: bool[M], f: f32[M]) {
        a[i] = sum[j](x[i, j])
        b[i] = prod[j](x[i, j])
        c[i] = max[j](x[i, j])
        d[i] = mean[j](x[i, j])
        e[i] = all[j](x[i, j] > 0)
        f[i] = logsumexp[j](x[i, j])
    }";
    let case = Case::new(text).f32("x", &[1, 0], &[]);
    let all: Vec<f64> = ["a", "b", "c", "d", "e", "f"].iter().map(|n| case.values(n)[0]).collect();
    near(&all, &[0.0, 1.0, -INF, NAN, 1.0, -INF], 0.0);
}

#[test]
fn random_numbers_are_philox() {
    let text = "op f[N]() -> (u: f32[N], b: i64[N]) {\n u[i] = uniform(0, i)\n b[i] = randbits(0, i)\n}";
    let case = Case::new(text).dim("N", 4);
    let words = [0x6627_e8d5u32, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
    assert_eq!(case.values("b"), words.map(|w| w as f64));
    assert_eq!(case.values("u"), words.map(|w| (w >> 8) as f64 / (1 << 24) as f64));
}

/// Kernels that reassociate, or take a product and its sum in one rounding, are within the bound; others are not.
#[test]
fn bounds_are_neither_too_tight_nor_too_wide() {
    let n = 384;
    let x: Vec<f64> = (0..n).map(|c| girih_compiler::vocab::random::normal(5, c)).collect();
    let case = Case::new(SOFTMAX).f32("x", &[1, n], &x);
    let out = case.run().expect("no fault");
    let y = &out.outputs["y"];
    let m = x.iter().fold(f32::MIN, |m, &v| m.max(v as f32));
    let weights: Vec<f32> = x.iter().map(|&v| (v as f32 - m).exp()).collect();
    let total: f32 = weights.iter().rev().sum();
    let got = |scale: f32| -> Vec<f64> { weights.iter().map(|w| (w / total * scale) as f64).collect() };
    let host = |v: Vec<f64>| HostTensor::from_f64(DType::F32, &[1, n], &v);
    let report = girih_compiler::reference::compare(y, &host(got(1.0))).expect("within the bound");
    assert_eq!(report.ambiguous, 0);
    assert!(girih_compiler::reference::compare(y, &host(got(1.001))).is_err());
    assert!(numbers(&y.tensor).iter().zip(&y.bound).all(|(v, b)| *b < 1e-4 * v));
}

/// A partial sum in an allowed order may leave the range: beside an infinity, or among finite terms, the result is open.
#[test]
fn partial_sums_that_leave_the_range_are_open() {
    let text = "op f[N](x: f32[N]) -> (y: f32) {\n y = sum[i](x[i])\n}";
    let right = |x: &[f64], got: f64| {
        let out = Case::new(text).f32("x", &[x.len() as i64], x).run().expect("no fault");
        let got = HostTensor::from_f64(DType::F32, &[], &[got]);
        girih_compiler::reference::compare(&out.outputs["y"], &got).is_ok()
    };
    let inf = f64::INFINITY;
    for got in [inf, f64::NAN] {
        assert!(right(&[inf, -3e38, -3e38], got), "{got}");
        assert!(right(&[3e38, 3e38, -3e38, -3e38], got), "{got}");
    }
    assert!(right(&[inf, -1.0, -2.0], inf) && !right(&[inf, -1.0, -2.0], f64::NAN));
    assert!(!right(&[inf, -1.0, -2.0], 3.0) && !right(&[1.0, 2.0, 4.0], inf));
}
