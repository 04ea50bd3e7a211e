//! E01xx: names, imports and axes.

use super::Code;

pub const ROWS: &[Code] = &[
    Code {
        code: "E0101",
        title: "item defined twice",
        text: "A file may define a callable once and a constant once. Callables (ops, fns) and values are two spaces and never clash.

wrong:
    fn twice(x) = x * 2
    fn twice(x) = x + x

right:
    fn twice(x) = x * 2
    fn double(x) = x + x
",
    },
    Code {
        code: "E0102",
        title: "unknown name",
        text: "A value name must be a size, a parameter, a result, a local, a constant or an axis that is bound here. An axis is bound on
the left of its statement or by a fold around the place.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = x[i] * scal
    }

right:
    y[i] = x[i] * scale
",
    },
    Code {
        code: "E0103",
        title: "axis named like a tensor, size or constant",
        text: "One value name has one meaning in an op, so an axis needs a name of its own.

wrong:
    op f[M, N](x: f32[M, N], w: f32[N]) -> (y: f32[M]) {
        y[m] = sum[w](x[m, w])
    }

right:
    y[m] = sum[n](x[m, n])
",
    },
    Code {
        code: "E0104",
        title: "axis bound twice",
        text: "A fold may not bind an axis that is bound around it already, and an axis stands once on the left. Two folds side by side may
use the same name.

wrong:
    op f[N](e: f32[N]) -> (y: f32[N]) {
        y[n] = e[n] / sum[n](e[n])
    }

right:
    y[n] = e[n] / sum[k](e[k])
",
    },
    Code {
        code: "E0105",
        title: "tensor without its indices",
        text: "A bare tensor name is the whole tensor, which only an op call takes. Nothing broadcasts by itself: index each operand, and
leave out the axes that it does not have.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = x * 2
    }

right:
    y[i] = x[i] * 2
",
    },
    Code {
        code: "E0106",
        title: "wrong number of indices",
        text: "A tensor takes one index for each of its axes; a number takes none.

wrong:
    op f[M, N](x: f32[M, N]) -> (y: f32[M]) {
        y[m] = sum[n](x[n])
    }

right:
    y[m] = sum[n](x[m, n])
",
    },
    Code {
        code: "E0108",
        title: "unknown function or fold",
        text: "What stands before `(` or `[…](` is a function, a fold, an op, a fn or a dtype.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = sqr(x[i])
    }

right:
    y[i] = sqrt(x[i])
",
    },
    Code {
        code: "E0109",
        title: "two imports clash",
        text: "Two imported files define this name. Your own definition would win; otherwise say which one is meant.

wrong:
    import nn
    import attention
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = x[i]
    }

right:
    y[i] = nn.scale(x[i])
",
    },
    Code {
        code: "E0110",
        title: "name declared twice in an op",
        text: "Sizes, parameters and results of an op have names of their own.

wrong:
    op f[N](x: f32[N], x: f32[N]) -> (y: f32[N]) {
        y[i] = x[i]
    }

right:
    op f[N](x: f32[N], z: f32[N]) -> (y: f32[N]) { y[i] = x[i] + z[i] }
",
    },
    Code {
        code: "E0111",
        title: "wrong number of arguments",
        text: "A call gives each parameter once; those with a default may be left out in an op call.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = clamp(x[i], 0)
    }

right:
    y[i] = clamp(x[i], 0, 1)
",
    },
    Code {
        code: "E0112",
        title: "named argument that is none",
        text: "Functions and fns take their arguments by position; ops by position or by the name of a parameter or size.

wrong:
    fn twice(x) = x * 2
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = twice(x = x[i])
    }

right:
    y[i] = twice(x[i])
",
    },
    Code {
        code: "E0113",
        title: "recursion",
        text: "Ops, fns and constants are not recursive. What depends on itself is a recurrence over an axis: a definition that reads itself
at an earlier point.

wrong:
    fn fact(n) = if n < 2 then 1 else n * fact(n - 1)
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = x[i] * fact(i)
    }

right:
    p: f32[i in 0..N] = if i == 0 then 1 else i * p[i-1]
",
    },
    Code {
        code: "E0114",
        title: "op call inside an expression",
        text: "The call of an op is the whole right-hand side of a statement.

wrong:
    op half[N](x: f32[N]) -> (y: f32[N]) { y[i] = x[i] / 2 }
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = 1 + half(x)
    }

right:
    h = half(x)
    y[i] = 1 + h[i]
",
    },
    Code {
        code: "E0115",
        title: "name used above its definition",
        text: "Names are used below their definition. Only definitions that need each other may read what stands below, at an earlier point.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = t[i] + 1
        t[i] = x[i] * 2
    }

right:
    t[i] = x[i] * 2
    y[i] = t[i] + 1
",
    },
    Code {
        code: "E0116",
        title: "fn without a unit used as a fold",
        text: "A fold starts from a unit, with f(unit, b) = b.

wrong:
    fn join(a, b) = a + b
    op f[M, N](x: f32[M, N]) -> (y: f32[M]) {
        y[m] = join[n](x[m, n])
    }

right:
    fn join(a, b) from 0 = a + b
",
    },
    Code {
        code: "E0121",
        title: "unknown library",
        text: "`import name` takes a library that comes with the compiler; a file is imported by its path in quotes.

wrong:
    import mylib

right:
    import \"mylib.tile\"
",
    },
    Code {
        code: "E0122",
        title: "imported file cannot be read",
        text: "The path is relative to the file that imports.

wrong:
    import \"missing.tile\"

right:
    import \"layers/linear.tile\"
",
    },
    Code {
        code: "E0123",
        title: "circular imports",
        text: "Files may not import each other in a circle, since no order of them would make sense.

wrong:
    import \"self.tile\"

right:
    import \"common.tile\"   // what both need
",
    },
    Code {
        code: "E0130",
        title: "nested too deeply",
        text: "Expressions, fns and op calls may nest some hundred levels, and an op may expand to half a million nodes.

wrong:
    fn a0(x) = x
    fn a1(x) = a0(x) + a0(x + 1)
    fn a2(x) = a1(x) + a1(x + 1)
    fn a3(x) = a2(x) + a2(x + 1)
    fn a4(x) = a3(x) + a3(x + 1)
    fn a5(x) = a4(x) + a4(x + 1)
    fn a6(x) = a5(x) + a5(x + 1)
    fn a7(x) = a6(x) + a6(x + 1)
    fn a8(x) = a7(x) + a7(x + 1)
    fn a9(x) = a8(x) + a8(x + 1)
    fn a10(x) = a9(x) + a9(x + 1)
    fn a11(x) = a10(x) + a10(x + 1)
    fn a12(x) = a11(x) + a11(x + 1)
    fn a13(x) = a12(x) + a12(x + 1)
    fn a14(x) = a13(x) + a13(x + 1)
    fn a15(x) = a14(x) + a14(x + 1)
    fn a16(x) = a15(x) + a15(x + 1)
    fn a17(x) = a16(x) + a16(x + 1)
    fn a18(x) = a17(x) + a17(x + 1)
    fn a19(x) = a18(x) + a18(x + 1)
    fn a20(x) = a19(x) + a19(x + 1)
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = a20(x[i])
    }

right:
    s[i] = a10(x[i])
    y[i] = a10(s[i])
",
    },
];
