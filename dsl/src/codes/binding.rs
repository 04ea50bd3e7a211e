//! E05xx: sizes, consts and inputs of a run.

use super::Code;

pub const ROWS: &[Code] = &[
    Code {
        code: "E0501",
        title: "size without a value",
        text: "A size is bound by a dim of an input that is this size alone, then by dims that are linear in it. Others are given.

wrong:
    op f[N, P](x: f32[N]) -> (y: f32[P]) {
        y[p in 0..P] = x[p * N / P]
    }

right:
    girih run f.tile --op f --dim P=8
",
    },
    Code {
        code: "E0502",
        title: "dims do not agree",
        text: "Sizes are bound by dims that are a size alone; every other dim must then agree.

wrong:
    op f[N](x: f32[N], z: f32[N]) -> (y: f32[N]) {
        y[i] = x[i] + z[i]
    }

right:
    give tensors of one length
",
    },
    Code {
        code: "E0503",
        title: "dim that cannot be solved",
        text: "A dim that is linear in one unknown size binds it, if it divides.

wrong:
    op f[N](x: f32[3*N]) -> (y: f32[N]) {
        y[i] = x[3*i]
    }

right:
    give a dim that is a multiple of 3
",
    },
    Code {
        code: "E0504",
        title: "negative dim",
        text: "No size and no dim may be negative; 0 is allowed.

wrong:
    op f[N, R](x: f32[N], w: f32[R]) -> (y: f32[N - R + 1]) {
        y[i] = sum[r](x[i + r] * w[r])
    }

right:
    an input that is at least as long as the window
",
    },
    Code {
        code: "E0505",
        title: "condition of an op is false",
        text: "Every `where` of an op must hold for the sizes and consts at hand.

wrong:
    op f[N, G](x: f32[N]) -> (y: f32[G]) where N % G == 0 {
        y[g in 0..G] = sum[i in 0..N/G](x[g*(N/G) + i])
    }

right:
    sizes that meet it
",
    },
    Code {
        code: "E0506",
        title: "const without a value",
        text: "A const parameter without a default is given.

wrong:
    op f[N](x: f32[N], k: const i32) -> (y: f32[N]) {
        y[i] = x[i] * k
    }

right:
    girih run f.tile --op f --const k=3
",
    },
    Code {
        code: "E0507",
        title: "dtype does not fit",
        text: "A tensor has the dtype that is declared; a dtype parameter is one dtype of its kind, the same for all tensors that use it.

wrong:
    op f[T: float, N](x: T[N], z: T[N]) -> (y: T[N]) {
        y[i] = x[i] + z[i]
    }

right:
    give tensors of one dtype
",
    },
    Code {
        code: "E0508",
        title: "no such size, input or const",
        text: "What is given must be declared by the op.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = x[i]
    }

right:
    girih run f.tile --op f --dim N=4
",
    },
    Code {
        code: "E0509",
        title: "wrong rank",
        text: "An input has as many axes as its declaration.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = x[i]
    }

right:
    give a tensor with one axis
",
    },
    Code {
        code: "E0510",
        title: "not a value of its dtype",
        text: "A const or scalar is given as a literal that its dtype can hold, within its declared range.

wrong:
    op f[N](x: f32[N], k: const i8) -> (y: f32[N]) {
        y[i] = x[i] * k
    }

right:
    --const k=100
",
    },
    Code {
        code: "E0511",
        title: "not known before the kernel is compiled",
        text: "Dims, sizes, consts and defaults are made of literals, sizes and consts.

wrong:
    op f[N](x: f32[N], s: i32, y0: f32[N * s]) -> (y: f32[N]) {
        y[i] = x[i]
    }

right:
    op f[N](x: f32[N], s: const i32, y0: f32[N * s]) -> (y: f32[N]) { y[i] = x[i] }
",
    },
    Code {
        code: "E0512",
        title: "no such op",
        text: "The op that is asked for is not in the file.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = x[i]
    }

right:
    girih run f.tile --op f
",
    },
    Code {
        code: "E0513",
        title: "dtype parameter without a dtype",
        text: "A dtype parameter is bound by an input that has it, or given.

wrong:
    op f[T: float, N](x: T[N]) -> (y: T[N]) {
        y[i] = x[i]
    }

right:
    girih run f.tile --op f --const T=bf16
",
    },
    Code {
        code: "E0514",
        title: "tensor too large",
        text: "A tensor has at most 2⁵⁶ elements, and a size fits in 64 bits.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = x[i]
    }

right:
    smaller sizes
",
    },
    Code {
        code: "E0599",
        title: "defect of the compiler",
        text: "The binding stopped without saying why. Please report it with the file, and with the sizes:

    girih check my.tile
",
    },
];
