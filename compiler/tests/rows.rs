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
