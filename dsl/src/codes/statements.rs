//! E04xx: definitions, recurrences, updates and op calls.

use super::Code;

pub const ROWS: &[Code] = &[
    Code {
        code: "E0401",
        title: "defined twice",
        text: "A name is defined once, by plain axes. Below that it may be updated: with += and its like, in a part, or under a `where`.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        t[i] = x[i] + 1
        t[i] = x[i] + 2
        y[i] = t[i]
    }

right:
    t[i] = x[i] + 1
    u[i] = x[i] + 2

wrong, an accumulator of a loop:
    op g[M, N](x: f32[M, N]) -> (y: f32[M]) {
        y[m] = 0
        y[m] = y[m] + x[m, n]
    }

right, a fold:
    y[m] = sum[n](x[m, n])

right, a state that steps, start and step in one statement:
    h: f32[t] = if t == 0 then x[0] else 0.9 * h[t-1] + x[t]
",
    },
    Code {
        code: "E0402",
        title: "result not defined exactly",
        text: "The definition of a result covers its domain exactly. A part is an update of what is defined.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i in 1..N] = x[i]
    }

right:
    y[i] = 0
    y[i in 1..N] = x[i]
",
    },
    Code {
        code: "E0403",
        title: "update of what is not defined",
        text: "A local is defined before it is updated; `+=`, `max=` and `min=` may be the first statement of a result.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        t[i] += x[i]
        y[i] = t[i]
    }

right, where points meet in one element:
    t[i in 0..N] = 0.0
    t[ids[i]] += x[i]

right, where they do not:
    t[i] = x[i]
",
    },
    Code {
        code: "E0404",
        title: "not a recurrence",
        text: "A definition may read itself at an earlier point: its axes can be put in an order such that each read has the same index on the
first ones and then a smaller one (or a larger one, in all of them).

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = x[i] + (y[i-1] else 0) + (y[i+1] else 0)
    }

right:
    y[t in 0..N] = x[t] + (y[t-1] else 0)
",
    },
    Code {
        code: "E0405",
        title: "dtype of a recurrence is missing",
        text: "A name that is read before or in its definition must have its dtype written, since its type cannot follow from its value.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        s[i] = (s[i-1] else 0) + x[i]
        y[i] = s[i]
    }

right:
    s: f32[i] = (s[i-1] else 0) + x[i]
",
    },
    Code {
        code: "E0406",
        title: "result never defined",
        text: "Every result of an op is defined by its body.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N], z: f32[N]) {
        y[i] = x[i]
    }

right:
    y[i] = x[i]
    z[i] = -x[i]
",
    },
    Code {
        code: "E0407",
        title: "argument that does not fit",
        text: "Tensor arguments of an op call are names, with leading indices where the op is repeated over axes.

wrong:
    op half[N](x: f32[N]) -> (y: f32[N]) { y[i] = x[i] / 2 }
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y = half(x[i] + 1)
    }

right:
    t[i] = x[i] + 1
    y = half(t)
",
    },
    Code {
        code: "E0408",
        title: "targets of an op call",
        text: "Each result of the call has one target, all with the same leading axes, by `=`.

wrong:
    op two[N](x: f32[N]) -> (a: f32[N], b: f32[N]) {
        a[i] = x[i]
        b[i] = -x[i]
    }
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y = two(x)
    }

right:
    a, b = two(x)
",
    },
    Code {
        code: "E0409",
        title: "assignment to an input",
        text: "Inputs and constants keep their values; an `inout` is updated.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        x[i] = 0
        y[i] = x[i]
    }

right:
    op f[N](inout x: f32[N]) { x[i] = 0 }
",
    },
    Code {
        code: "E0410",
        title: "op call in a recurrence",
        text: "Ops are not recursive, and an op call cannot be one of the definitions that need each other.

wrong:
    op half[N](x: f32[N]) -> (y: f32[N]) { y[i] = x[i] / 2 }
    op f[N](x: f32[N]) -> (y: f32[N]) {
        t = half(t)
        y[i] = t[i]
    }

right:
    t = half(x)
",
    },
    Code {
        code: "E0411",
        title: "scan inside its own recurrence",
        text: "A cumsum or argsort is a statement of its own and runs before the recurrence around it, so it cannot read what that defines.

wrong:
    op f[T, N](x: f32[T, N]) -> (y: f32[T, N]) {
        y[t, n] = cumsum[n]((y[t-1, n] else 0) + x[t, n])
    }

right:
    y[t, n] = sum[k in 0..=n]((y[t-1, k] else 0) + x[t, k])
",
    },
    Code {
        code: "E0412",
        title: "dtypes do not agree",
        text: "A result has its declared dtype, an updated tensor the one it has; the result of an op call is not converted.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y: f16[i] = x[i]
    }

right:
    y[i] = f16(x[i])
",
    },
    Code {
        code: "E0413",
        title: "an op that gives nothing",
        text: "An op has results, or `inout` parameters that it changes. Locals alone are seen by nobody.

wrong:
    op f[N](x: f32[N]) {
        t[i] = 2 * x[i]
    }

right:
    op f[N](x: f32[N]) -> (t: f32[N]) {
        t[i] = 2 * x[i]
    }
",
    },
    Code {
        code: "E0414",
        title: "argument of other dims than the called op's",
        text: "A called op's sizes are bound by its arguments' dims; each further dim must then be the same. Here it is another for all sizes.

wrong:
    op scale[N](x: f32[N], w: f32[N]) -> (y: f32[N]) { y[i] = x[i] * w[i] }
    op f[N](x: f32[N], w: f32[N + 1]) -> (y: f32[N]) {
        y = scale(x, w)
    }

right:
    op f[N](x: f32[N], w: f32[N + 1]) -> (y: f32[N]) {
        v[i in 0..N] = w[i]
        y = scale(x, v)
    }
",
    },
];
