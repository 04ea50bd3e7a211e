//! Maps in the shapes that the lowering treats in its own ways, in the simulator against the reference: vectors with
//! conditions, random words by the block, tiles that turn, approximate functions.

mod common;

use common::{Case, check, data};
use girih_compiler::ir::program::Program;
use girih_compiler::ir::simt::{Expr, Intrinsic, Mem, Stmt};
use girih_compiler::vocab::dtype::{DType, Value};

/// Whether any statement of the program is one that `f` knows.
fn has(program: &Program, f: &dyn Fn(&Stmt) -> bool) -> bool {
    fn any(stmts: &[Stmt], f: &dyn Fn(&Stmt) -> bool) -> bool {
        stmts.iter().any(|s| {
            f(s) || match s {
                Stmt::If { then, otherwise, .. } => any(then, f) || any(otherwise, f),
                Stmt::For { body, .. } | Stmt::While { body, .. } => any(body, f),
                _ => false,
            }
        })
    }
    program.kernels.iter().any(|k| any(&k.body, f))
}

fn single_loads(program: &Program) -> bool {
    has(program, &|s| matches!(s, Stmt::Let(_, Expr::Load(Mem::Global(_), _))))
}

#[test]
fn transposes_move_vectors_on_both_sides() {
    let text = "op f[M, N](x: T[M, N]) -> (y: T[N, M]) { y[n, m] = x[m, n] }";
    for dtype in [DType::BF16, DType::F32, DType::I8, DType::F64] {
        for (m, n) in [(128, 128), (200, 136), (131, 67), (64, 40), (33, 160)] {
            let text = text.replace('T', dtype.name());
            let program = check(&Case::new(&text).tensor("x", data(dtype, &[m, n])));
            assert!(has(&program, &|s| matches!(s, Stmt::Barrier)), "{m} {n}");
            // Rows of odd length: vectors from any place, of 16 and 32 bits.
            let any_place = matches!(dtype, DType::BF16 | DType::F32);
            assert_eq!(single_loads(&program), n % 2 != 0 && !any_place, "{} {m} {n}", dtype.name());
        }
    }
}

#[test]
fn turned_rows_may_begin_anywhere() {
    let text = "op f[B, M, N](x: T[B, M, N], z: f32[M]) -> (y: U[B, N, M], v: T[B, N, M]) {
        y[b, n, m] = x[b, m, n] * 2 + z[m]
        v[b, n, m] = x[b, m, n]
    }";
    for (t, u) in [(DType::BF16, "f32"), (DType::F32, "f16"), (DType::F16, "f16")] {
        let text = text.replace("T[", &format!("{}[", t.name())).replace("U[", &format!("{u}["));
        for dims in [[2, 131, 67], [3, 64, 33], [1, 33, 64], [2, 257, 129], [1, 40, 40]] {
            let case =
                Case::new(&text).tensor("x", data(t, &dims)).tensor("z", data(DType::F32, &dims[1..2]));
            let program = check(&case);
            assert!(has(&program, &|s| matches!(s, Stmt::StoreVec { mem: Mem::Global(_), .. })), "{dims:?}");
        }
    }
}

#[test]
fn turned_reads_stand_beside_others() {
    let texts = [
        "op f[A, B, C, D](x: f16[A, B, C, D]) -> (y: f16[D, B, A, C]) { y[d, b, a, c] = x[a, b, c, d] }",
        "op f[A, B, C, D](x: f16[A, B, C, D], z: f16[D]) -> (y: f32[B, D, A, C], v: f16[B, D, A, C]) {
            y[b, d, a, c] = x[a, b, c, d] + z[d]
            v[b, d, a, c] = y[b, d, a, c] * 2
         }",
    ];
    for text in texts {
        let case = Case::new(text).tensor("x", data(DType::F16, &[3, 2, 40, 64]));
        let case = if text.contains("z:") { case.tensor("z", data(DType::F16, &[64])) } else { case };
        let program = check(&case);
        assert!(has(&program, &|s| matches!(s, Stmt::Barrier)));
    }
}

#[test]
fn vectors_branch_on_what_they_share() {
    let rope =
        "op f[S, D](x: bf16[S, D], c: bf16[S, D/2], s: bf16[S, D/2]) -> (y: bf16[S, D]) where D % 2 == 0 {
        y[i, d] = if d < D/2 then x[i, d] * c[i, d] - x[i, d + D/2] * s[i, d]
                  else x[i, d] * c[i, d - D/2] + x[i, d - D/2] * s[i, d - D/2]
    }";
    let half = || data(DType::BF16, &[2048, 64]);
    let case = Case::new(rope).tensor("x", data(DType::BF16, &[2048, 128]));
    let program = check(&case.tensor("c", half()).tensor("s", half()));
    assert!(!single_loads(&program));
    // Both lie beside each other along the last axis; 24 is a multiple of the vector, 20 only of half of it.
    for (n, single) in [(24, false), (20, true)] {
        let text = "op f[M, A, B](a: f16[M, A], b: f16[M, B]) -> (y: f16[M, A + B]) {
            y[m, n] = if n < A then a[m, n] else b[m, n - A]
        }";
        let case = Case::new(text).tensor("a", data(DType::F16, &[8192, n]));
        let program = check(&case.tensor("b", data(DType::F16, &[8192, 48 - n])));
        assert_eq!(single_loads(&program), single, "{n}");
    }
}

#[test]
fn random_words_are_drawn_by_the_block() {
    let text = "op f[M, N](x: bf16[M, N], seed: i64) -> (y: bf16[M, N], w: i64[M, N]) {
        y[m, n] = if uniform(seed, m*N + n) >= 0.1 then x[m, n] / 0.9 else 0
        w[m, n] = randbits(seed, m*N + n + 4)
    }";
    for (n, whole) in [(512, true), (510, false)] {
        let case = Case::new(text).tensor("x", data(DType::BF16, &[256, n]));
        let program = check(&case.scalar("seed", Value::I64(-3)));
        assert_eq!(has(&program, &|s| matches!(s, Stmt::Intrinsic { op: Intrinsic::Philox, .. })), whole);
    }
}

#[test]
fn functions_are_approximate_where_the_first_rounding_is_narrow() {
    let text = "op f[N](x: X[N]) -> (y: Y[N], z: Y[N]) {
        y[n] = tanh(x[n]) + erf(x[n]) * exp2(x[n]) + sqrt(abs(x[n])) / x[n]
        z[n] = gelu(x[n]) + silu(x[n]) / 0.7
    }";
    let approximate = |program: &Program| {
        let mut found = false;
        for k in &program.kernels {
            found |= format!("{:?}", k.body).contains("Approx(");
        }
        found
    };
    for (y, near) in [("bf16", true), ("f16", true), ("e4m3", true), ("f32", false)] {
        let text = text.replace('X', "bf16").replace('Y', y);
        let program = check(&Case::new(&text).tensor("x", data(DType::BF16, &[6000])));
        assert_eq!(approximate(&program), near, "{y}");
    }
    // A conversion to an integer, a comparison, an f32 result: one such use, and the value is exact in all.
    for other in ["e[n]", "i32(e[n])", "if e[n] > 1 then 1 else 0"] {
        let text = format!(
            "op f[N](x: bf16[N]) -> (y: bf16[N], z: f32[N]) {{\n e[n] = exp(x[n])\n y[n] = e[n]\n z[n] = {other}\n}}"
        );
        let program = check(&Case::new(&text).tensor("x", data(DType::BF16, &[6000])));
        assert!(!approximate(&program), "{other}");
    }
}

#[test]
fn neighbourhoods_are_loaded_once() {
    let five = "op f[N, M](x: T[N, M]) -> (y: T[N - 2, M - 2]) {
        y[i, j] = 0.2 * (x[i + 1, j + 1] + x[i, j + 1] + x[i + 2, j + 1] + x[i + 1, j] + x[i + 1, j + 2])
    }
    tile f { unroll i = ROWS }";
    let seven = "op f[N, M](x: T[4, N, M]) -> (y: T[2, N - 2, M - 2]) {
        y[i, j, k] = x[i + 1, j + 1, k + 1] * 0.4 + x[i, j + 1, k + 1] + x[i + 2, j + 1, k + 1]
                     + x[i + 1, j, k + 1] + x[i + 1, j + 2, k + 1] + x[i + 1, j + 1, k] + x[i + 1, j + 1, k + 2]
    }
    tile f { unroll i = ROWS }";
    for dtype in [DType::F32, DType::BF16] {
        for (n, m) in [(10, 66), (11, 67), (23, 10), (37, 130), (3, 3), (9, 258)] {
            for (text, dims) in [(five, vec![n, m]), (seven, vec![4, n, m])] {
                // Eight elements of 16 bits a vector leave registers for two rows.
                for rows in if dtype == DType::F32 { &["2", "4"][..] } else { &["2"] } {
                    let text = text.replace("ROWS", rows).replace("T[", &format!("{}[", dtype.name()));
                    check(&Case::new(&text).tensor("x", data(dtype, &dims)));
                }
            }
        }
    }
}

#[test]
fn halves_of_rows_are_computed_together() {
    let text = "op f[S, D](x: T[S, D], c: T[S, D/2]) -> (y: T[S, D]) where D % 2 == 0 {
        y[i, d] = if d < D/2 then x[i, d] * c[i, d] - x[i, d + D/2]
                  else x[i, d] + x[i, d - D/2] * c[i, d - D/2]
    }";
    for dtype in [DType::F32, DType::BF16] {
        for d in [2, 16, 30, 64, 128, 256] {
            let case = Case::new(&text.replace("T[", &format!("{}[", dtype.name())));
            check(&case.tensor("x", data(dtype, &[1100, d])).tensor("c", data(dtype, &[1100, d / 2])));
        }
    }
}

#[test]
fn borders_of_neighbourhoods_have_rules() {
    let bodies = [
        "x[i, j] + 2 * (x[i - 1, j] else 0) + 3 * (x[i + 1, j] else 0) + 5 * (x[i, j - 1] else 0) + 7 * (x[i, j + 1] else 0)",
        "(x[i - 1, j - 1] else -inf) + (x[i + 2, j + 2] else -inf) + x[i, j]",
        "x[max(i - 1, 0), j] + 2 * x[min(i + 1, H - 1), j] + 3 * x[i, max(j - 2, 0)] + 5 * x[i, min(j + 1, W - 1)]",
        "x[(i - 1) % H, j] + 2 * x[(i + 1) % H, j] + 3 * x[i, (j - 1) % W] + 5 * x[i, (j + 1) % W]",
        "(x[i - 1, j] else 0) + 2 * (x[i + 1, j] else 0) + 3 * x[i, (j - 1) % W] + 5 * x[i, min(j + 1, W - 1)]",
        // Rules that do not agree: not all of these reads share what is loaded.
        "(x[i - 1, j] else 0) + 2 * (x[i - 1, j] else 1) + 3 * x[max(i - 1, 0), j] + 5 * x[(i - 1) % H, j] + (x[i + 1, j] else 3)",
    ];
    for (k, body) in bodies.iter().enumerate() {
        for dtype in [DType::F32, DType::BF16] {
            for (h, w) in [(9, 64), (11, 66), (23, 67), (6, 258), (4, 5), (8, 516)] {
                for rows in ["2", "4"] {
                    let text = format!(
                        "op f[H, W](x: {}[H, W]) -> (y: f32[H, W]) {{ y[i, j] = {body} }}\ntile f {{ unroll i = {rows} }}",
                        dtype.name()
                    );
                    let program = check(&Case::new(&text).tensor("x", data(dtype, &[h, w])));
                    // A thread with windows keeps them in arrays.
                    let windows = program.kernels[0].arrays.iter().filter(|a| a.name == "x").count();
                    assert!(k == 5 || rows != "2" || h < 6 || windows > 2, "{body} {h} {w}");
                }
            }
        }
    }
}

#[test]
fn neighbourhoods_go_on_along_the_outermost_axis() {
    // Large planes: a thread takes rows in several turns.
    let text = "op f[A, H, W](x: f32[A, H, W]) -> (y: f32[A, H, W]) {
        y[k, i, j] = x[k, i, j] + 2 * (x[k - 1, i, j] else 0) + 3 * (x[k + 1, i, j] else 0) + 5 * (x[k, i - 1, j] else 0)
                     + 7 * (x[k, i + 1, j] else 0) + 11 * (x[k, i, j - 1] else 0) + 13 * (x[k, i, j + 1] else 0)
    }
    tile f { unroll k = 2 }";
    for (a, h, w) in [(5, 9, 66), (8, 3, 31)] {
        check(&Case::new(text).tensor("x", data(DType::F32, &[a, h, w])));
    }
}

#[test]
fn rows_of_any_length_are_one_run() {
    let bias = "op f[M, N](x: bf16[M, N], c: bf16[N], s: f32[M]) -> (y: f16[M, N]) { y[m, n] = relu(x[m, n] + c[n]) * s[m] }";
    for (m, n) in [(301, 1001), (30001, 3), (11113, 9), (1, 90001)] {
        let case =
            Case::new(bias).tensor("x", data(DType::BF16, &[m, n])).tensor("c", data(DType::BF16, &[n]));
        let program = check(&case.tensor("s", data(DType::F32, &[m])));
        assert!(has(&program, &|s| matches!(s, Stmt::StoreVec { .. })), "{m} {n}");
    }
    let several = "op f[B, M, N](x: f32[B, M, N]) -> (y: e4m3[B, M, N], z: f32[B, M, N]) {
        y[b, m, n] = x[b, m, n]
        z[b, m, n] = x[b, m, n] * 2 + n + m * 10 + b * 1000
    }";
    for dims in [[3, 101, 999], [301, 101, 5], [2, 1, 131075]] {
        let program = check(&Case::new(several).tensor("x", data(DType::F32, &dims)));
        assert!(has(&program, &|s| matches!(s, Stmt::StoreVec { .. })), "{dims:?}");
    }
    let step = "op f[N](inout p: bf16[N], inout m: f32[N], g: bf16[N]) {
        m[i] = 0.9 * m[i] + 0.1 * g[i]
        p[i] = p[i] - 0.001 * m[i]
    }";
    let case =
        Case::new(step).tensor("p", data(DType::BF16, &[70001])).tensor("m", data(DType::F32, &[70001]));
    check(&case.tensor("g", data(DType::BF16, &[70001])));
}
