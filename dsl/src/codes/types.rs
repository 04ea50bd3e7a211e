//! E03xx: types and conversions.

use super::Code;

pub const ROWS: &[Code] = &[
    Code {
        code: "E0301",
        title: "integer too large",
        text: "Integers have 64 bits.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = x[i] * 99999999999999999999
    }

right:
    y[i] = x[i] * 1e20
",
    },
    Code {
        code: "E0302",
        title: "bool meets a number",
        text: "bool meets only bool, so that a comparison never turns into a number by accident.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = x[i] * (x[i] > 0)
    }

right:
    y[i] = if x[i] > 0 then x[i] else 0
    y[i] = x[i] * i32(x[i] > 0)
",
    },
    Code {
        code: "E0303",
        title: "integer division meets a float",
        text: "`/` of integers floors. Its result never turns into a float by itself, since 1/N * x would be 0.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = 1/N * x[i]
    }

right:
    y[i] = 1.0/N * x[i]
    y[i] = x[i] / N
",
    },
    Code {
        code: "E0304",
        title: "float stored in an integer",
        text: "A float becomes an integer only by a word, which says how it is rounded.

wrong:
    op f[N](x: f32[N]) -> (y: i8[N]) {
        y[i] = x[i] * 2.0
    }

right:
    y[i] = i8(round(x[i] * 2.0))
",
    },
    Code {
        code: "E0305",
        title: "condition that is not bool",
        text: "Conditions of `if`, `where`, `&&` and `||` are bool.

wrong:
    op f[N](x: i32[N]) -> (y: i32[N]) {
        y[i] = if x[i] then 1 else 0
    }

right:
    y[i] = if x[i] != 0 then 1 else 0
",
    },
    Code {
        code: "E0306",
        title: "operand of the wrong kind",
        text: "`& | ^ << >>` and cdiv work on integers, tf32 on f32, the random functions on an integer seed and counter.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = x[i] & 3
    }

right:
    y[i] = i32(x[i]) & 3
",
    },
    Code {
        code: "E0307",
        title: "exponent of an integer",
        text: "An integer takes a literal exponent from 0 to 64; `a ** 3` multiplies.

wrong:
    op f[N](x: i32[N]) -> (y: i32[N]) {
        y[i] = 2 ** x[i]
    }

right:
    y[i] = 1 << x[i]
",
    },
    Code {
        code: "E0308",
        title: "index that is not an integer",
        text: "Indices, ranges and dims are integers.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = x[0.5 * i]
    }

right:
    y[i] = x[i / 2]
",
    },
    Code {
        code: "E0309",
        title: "unknown dtype",
        text: "The dtypes are f64 f32 f16 bf16 e4m3 e5m2 i64 i32 i16 i8 u8 i4 u4 bool, and the dtype parameters of the op.

wrong:
    op f[N](x: float32[N]) -> (y: f32[N]) {
        y[i] = x[i]
    }

right:
    op f[N](x: f32[N]) -> (y: f32[N]) { y[i] = x[i] }
",
    },
    Code {
        code: "E0310",
        title: "fold function of another type",
        text: "A fn that folds gives the type of its arguments.

wrong:
    fn more(a, b) from 0.0 = a + b * 0.5
    op f[N](x: i32[N]) -> (y: f32) {
        y = more[i](x[i])
    }

right:
    y = more[i](f32(x[i]))
",
    },
];
