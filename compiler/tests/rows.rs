//! Rows that begin anywhere between two aligned places, in the simulator against the reference.

mod common;

use common::{Case, check, data};
use girih_compiler::ir::program::Program;
use girih_compiler::vocab::dtype::DType;

/// Whether rows are loaded by vectors that begin before them.
fn leads(program: &Program) -> bool {
    program.kernels.iter().any(|k| k.vars.iter().any(|v| v.name == "lead"))
}

const OPS: [&str; 6] = [
    "op f[M, N](x: T[M, N]) -> (y: T[M, N]) { y[m, n] = softmax[n](x[m, n]) }",
    "op f[M, N](x: T[M, N]) -> (y: i64[M]) { y[m] = argmax[n](x[m, n]) }",
    "op f[M, N](x: T[M, N]) -> (y: f32[M]) { y[m] = logsumexp[n](x[m, n]) }",
    "op f[M, N](x: T[M, N]) -> (y: e4m3[M, N], s: f32[M]) {
        s[m] = max[n](abs(x[m, n])) / 448.0
        y[m, n] = x[m, n] / s[m]
    }",
    "op f[M, N](x: T[M, N]) -> (a: T[M], b: f32[M]) { a[m] = min[n](x[m, n])  b[m] = sum[n](x[m, n] ** 2) }",
    "op f[M, N](x: T[M, N]) -> (y: T[M, N]) {
        r[m] = rsqrt(mean[n](x[m, n] ** 2) + 1e-6)
        y[m, n] = x[m, n] * r[m] * (n % 5)
    }",
];

#[test]
fn rows_of_odd_length_are_loaded_by_vectors() {
    for text in OPS {
        for dtype in [DType::BF16, DType::F32] {
            let text = text.replace("T[", &format!("{}[", dtype.name()));
            // Few rows, many rows a block, several rounds with some inside, vectors that end with the tensor.
            for (m, n) in [(3, 77), (9, 1001), (270, 51), (270, 2051), (2, 4099)] {
                let program = check(&Case::new(&text).tensor("x", data(dtype, &[m, n])));
                assert!(leads(&program), "{text} {m} {n}");
            }
            // Aligned rows, and such as are too short, go on as they were.
            for (m, n) in [(5, 128), (40, 7)] {
                assert!(
                    !leads(&check(&Case::new(&text).tensor("x", data(dtype, &[m, n])))),
                    "{text} {m} {n}"
                );
            }
        }
    }
}

#[test]
fn rows_of_odd_length_stay_in_registers_and_clusters() {
    let text = OPS[0].replace("T[", "f32[");
    for (hold, n) in [
        ("hold = registers threads = 64", 1003),
        ("hold = cluster cluster n = 2", 1501),
        ("hold = stream", 3001),
    ] {
        let text = format!("{text}\ntile f {{ {hold} }}");
        assert!(leads(&check(&Case::new(&text).tensor("x", data(DType::F32, &[3, n])))), "{hold}");
    }
    let text = OPS[0].replace("T[", "f16[");
    for (hold, n) in [("hold = registers threads = 64", 1003), ("hold = cluster cluster n = 4", 3003)] {
        let text = format!("{text}\ntile f {{ {hold} }}");
        assert!(leads(&check(&Case::new(&text).tensor("x", data(DType::F16, &[3, n])))), "{hold}");
    }
}

#[test]
fn boxes_that_are_one_run_are_rows() {
    let text = "op f[B, C, S](x: f16[B, C, S], w: f16[C]) -> (y: f16[B, C, S], t: f32) {
        mu[b] = mean[c, s](x[b, c, s])
        v[b] = mean[c, s]((x[b, c, s] - mu[b]) ** 2)
        y[b, c, s] = (x[b, c, s] - mu[b]) * rsqrt(v[b] + 1e-5) * w[c]
        t = sum[b, c, s](x[b, c, s])
    }";
    for dims in [[6, 7, 49], [6, 15, 49], [3, 3, 25], [2, 5, 1001]] {
        let case = Case::new(text).tensor("x", data(DType::F16, &dims));
        assert!(leads(&check(&case.tensor("w", data(DType::F16, &dims[1..2])))), "{dims:?}");
    }
}

/// What a program's kernels are named.
fn kernels(program: &Program) -> Vec<&str> {
    program.kernels.iter().map(|k| k.name.as_str()).collect()
}

#[test]
fn what_reads_a_scan_at_the_point_before_is_made_with_it() {
    let ops = [
        "op f[M, N](x: f32[M, N]) -> (y: f32[M, N]) { c[m, n] = cumsum[n](x[m, n])  y[m, n] = (c[m, n-1] else 0) }",
        "op f[M, N](x: f32[M, N]) -> (y: f32[M, N], z: f32[M, N]) {
            c[m, n] = cummax[n](x[m, n])
            y[m, n] = (c[m, n-1] else -7) - c[m, n]
            z[m, n] = if n == 0 then x[m, n] else c[m, n-1]
        }",
    ];
    for text in ops {
        // Lanes of a warp, one block, several chunks or segments of a row.
        for (m, n) in [(5, 7), (3, 77), (3, 128), (2, 5001), (1, 40000)] {
            let program = check(&Case::new(text).tensor("x", data(DType::F32, &[m, n])));
            assert_eq!(program.kernels.len(), 1, "{n}: {:?}", kernels(&program));
        }
    }
    let recurrence = "op f[M, N](x: f32[M, N]) -> (y: f32[M, N]) {
        s: f32[m, n] = (s[m, n+1] else 0.5) * 0.9 + x[m, n]
        y[m, n] = s[m, n+1] else 2
    }";
    for n in [77, 3000] {
        check(&Case::new(recurrence).tensor("x", data(DType::F32, &[3, n])));
    }
    let across = "op f[B, T, D](x: f32[B, T, D]) -> (y: f32[B, T, D]) {
        c[b, t, d] = cumsum[t](x[b, t, d])
        y[b, t, d] = c[b, t-1, d] else 3
    }";
    for dims in [[2, 37, 64], [1, 70, 8200], [3, 200, 32]] {
        check(&Case::new(across).tensor("x", data(DType::F32, &dims)));
    }
}

#[test]
fn scans_of_what_is_taken_backwards_run_from_the_end() {
    let terms = [
        "cumsum[n](x[m, N - 1 - n])",
        "cummax[n](x[m, N - 1 - n])",
        "cumsum[n where x[m, N - 1 - n] > 0](x[m, N - 1 - n] * 2)",
    ];
    for term in terms {
        let text = format!(
            "op f[M, N](x: f32[M, N]) -> (y: f32[M, N]) {{
                c[m in 0..M, n in 0..N] = {term}
                y[m, n] = c[m, N - 1 - n]
            }}"
        );
        for (m, n) in [(3, 77), (2, 3001)] {
            let program = check(&Case::new(&text).tensor("x", data(DType::F32, &[m, n])));
            assert_eq!(program.kernels.len(), 1, "{term} {n}: {:?}", kernels(&program));
        }
    }
    // What is read both ways stays as it is written.
    let text = "op f[M, N](x: f32[M, N]) -> (y: f32[M, N]) {
        c[m in 0..M, n in 0..N] = cumsum[n](x[m, N - 1 - n])
        y[m, n] = c[m, N - 1 - n] - c[m, n]
    }";
    check(&Case::new(text).tensor("x", data(DType::F32, &[3, 300])));
}

#[test]
fn rows_that_one_statement_reads_are_one_kernel() {
    let text = "op f[M, N](x: bf16[M, N], t: bf16[M, N]) -> (y: f32[M]) {
        a[m] = logsumexp[n](x[m, n])
        b[m] = logsumexp[n](t[m, n])
        y[m] = sum[n](exp(t[m, n] - b[m]) * ((t[m, n] - b[m]) - (x[m, n] - a[m])))
    }";
    for (m, n) in [(70, 2000), (70, 777), (66, 20000)] {
        let case = Case::new(text).tensor("x", data(DType::BF16, &[m, n]));
        let program = check(&case.tensor("t", data(DType::BF16, &[m, n])));
        assert_eq!(program.kernels.len(), 1, "{n}: {:?}", kernels(&program));
    }
}

#[test]
fn what_is_reduced_beside_a_maximum_goes_along_with_its_sum() {
    let rows = "op f[M, N](x: bf16[M, N]) -> (y: f32[M], s: f32[M]) {
        y[m] = logsumexp[n](x[m, n])
        s[m] = mean[n](x[m, n])
    }";
    for n in [1100, 40000, 3001] {
        check(&Case::new(rows).tensor("x", data(DType::BF16, &[3, n])));
    }
    let columns = "op f[B, C, S](x: f16[B, C, S]) -> (y: f32[B, S], i: i64[B, S]) {
        y[b, s] = logsumexp[c](x[b, c, s])
        i[b, s] = argmax[c](x[b, c, s])
    }";
    for (c, s) in [(100, 70), (1001, 300)] {
        check(&Case::new(columns).tensor("x", data(DType::F16, &[2, c, s])));
    }
    let search = "op f[M, N](x: f32[M, N]) -> (y: i64[M]) { y[m] = argmin[n](x[m, n]) }";
    for n in [256, 2000, 2048, 1001] {
        check(&Case::new(search).tensor("x", data(DType::F32, &[301, n])));
    }
}

#[test]
fn conditions_of_a_row_are_asked_once() {
    let text = "op f[M, N](x: bf16[M, N], l: i64[M]) -> (y: bf16[M, N], s: f32[M]) {
        y[m, n] = if l[m] == -1 then 0 else softmax[n](x[m, n]) - f32(n == l[m])
        s[m] = if l[m] == -1 then 0 else sum[n](x[m, n])
    }";
    for n in [500, 3001, 20000] {
        let case = Case::new(text).tensor("x", data(DType::BF16, &[3, n]));
        check(&case.ints("l", DType::I64, &[3], &[-1, 4, 499]));
    }
}

#[test]
fn rows_that_leave_threads_idle_take_fewer() {
    let text = "op f[M, N](x: bf16[M, N], w: bf16[N]) -> (y: bf16[M, N]) {
        mu[m] = mean[n](x[m, n])
        v[m] = mean[n]((x[m, n] - mu[m]) ** 2)
        y[m, n] = (x[m, n] - mu[m]) * rsqrt(v[m] + 1e-5) * w[n]
    }";
    for (n, threads) in [(5120, 256), (4096, 256), (3072, 128)] {
        let case = Case::new(text).tensor("x", data(DType::BF16, &[300, n]));
        let program = check(&case.tensor("w", data(DType::BF16, &[n])));
        assert_eq!(program.kernels[0].block[0], threads, "{n}");
    }
}
