//! Recurrences that run in order, by tiles along memory.

mod common;

use common::{Case, check, data};
use girih_compiler::ir::program::Program;
use girih_compiler::vocab::dtype::DType;

/// Whether steps come from tiles in shared memory.
fn tiled(program: &Program) -> bool {
    program.kernels.iter().any(|k| k.shared.iter().any(|s| s.name.starts_with("tile_")))
}

#[test]
fn steps_along_memory_go_through_tiles() {
    let texts = [
        "op f[M, N](x: f32[M, N], g: bool[M, N]) -> (y: f32[M, N]) {
            y: f32[m, t] = (if g[m, t] then 0 else (y[m, t-1] else 0)) + x[m, t]
        }",
        "op f[M, N](x: f32[M, N], g: u8[M, N]) -> (y: f32[M, N], c: i32[M, N]) {
            c: i32[m, t] = if g[m, t] > 100 then 0 else (c[m, t-1] else 0) + 1
            y: f32[m, t] = if c[m, t] % 3 == 0 then x[m, t] else (y[m, t-2] else 1) * 0.5 + x[m, t]
        }",
        "op f[M, N](x: f32[M, N], g: bf16[M, N]) -> (y: bf16[M, N]) {
            y[m, t] = max((y[m, t+1] else x[m, 0]) * g[m, t], x[m, t])
        }",
    ];
    for (text, dtype) in texts.into_iter().zip([DType::Bool, DType::U8, DType::BF16]) {
        // Whole tiles, a tile with a rest, rows that do not fill a warp, two warps.
        for (m, n) in [(32, 64), (33, 80), (3, 112), (40, 208)] {
            let case = Case::new(text).tensor("x", data(DType::F32, &[m, n]));
            assert!(tiled(&check(&case.tensor("g", data(dtype, &[m, n])))), "{text} {m} {n}");
        }
        // Few steps, and rows that begin where no copy may.
        for (m, n) in [(5, 32), (5, 101)] {
            let case = Case::new(text).tensor("x", data(DType::F32, &[m, n]));
            check(&case.tensor("g", data(dtype, &[m, n])));
        }
    }
}

#[test]
fn single_elements_are_copied_and_last_steps_alone_are_stored() {
    let text = "op f[A, B, N](x: f32[A, B, N]) -> (y: f32[A, B], z: f32[A, B, N]) {
        s: f32[a, b, t] = max((s[a, b, t-1] else 0) * 0.5, x[a, b, t])
        y[a, b] = s[a, b, N-1]
        z[a, b, t] = (z[a, b, t-1] else 1) * x[a, b, t] + abs((z[a, b, t-1] else 1))
    }";
    for n in [67, 99, 128] {
        assert!(tiled(&check(&Case::new(text).tensor("x", data(DType::F32, &[3, 13, n])))), "{n}");
    }
}

#[test]
fn places_are_looked_for_along_columns_too() {
    let text = "op f[B, C, S](x: f32[B, C, S]) -> (y: i64[B, S]) { y[b, s] = argmin[c](x[b, c, s]) }";
    check(&Case::new(text).tensor("x", data(DType::F32, &[300, 64, 33])));
}
