//! W0xxx: right, but perhaps not meant.

use super::Code;

pub const ROWS: &[Code] = &[
    Code {
        code: "W0001",
        title: "state rounded at each step",
        text: "The state of a recurrence is rounded to 16 or 8 bits at each step, so errors grow with the number of steps. Carry it in f32 and
round where it is stored, unless that is what you want.

wrong:
    op f[N](x: bf16[N]) -> (y: bf16[N]) {
        y[t] = (y[t-1] else 0) + x[t]
    }

right:
    s: f32[t] = (s[t-1] else 0) + x[t]
    y[t] = s[t]
",
    },
    Code {
        code: "W0002",
        title: "imported twice",
        text: "One import is enough.

wrong:
    import nn
    import nn

right:
    import nn
",
    },
    Code {
        code: "W0003",
        title: "index outside with some sizes",
        text: "With the sizes shown, which meet every `where` of the op, the index leaves its axis, so a run with them is refused. Say which sizes
are meant by a `where`, or give the read a guard or an `else`.

wrong:
    op f[M, N](x: f32[M, N], b: f32[N]) -> (y: f32[M, N]) {
        y[m, n] = x[m, n] + b[m]
    }

right, if the bias belongs to the columns:
    y[m, n] = x[m, n] + b[n]

right, if there are always fewer results than values:
    op first[N, K](x: f32[N]) -> (y: f32[K]) where K <= N {
        y[k] = x[k]
    }

A number in an index says something of a size too: x[2] needs three elements.

right:
    op third[N](x: f32[N]) -> (y: f32) where N > 2 {
        y = x[2]
    }
",
    },
    Code {
        code: "W0005",
        title: "a comment that looks like a divisor",
        text: "`//` starts a comment, as in C; integers are divided by `/`, which rounds down.

wrong, if x[i / 2] is meant:
    y[i] = x[i // 2
    ]

right:
    y[i] = x[i / 2]
",
    },
    Code {
        code: "W0006",
        title: "division by 0",
        text: "An integer divided by 0 is 0, and its remainder is itself: both are defined, and here they are all that can come out.

wrong:
    y[i] = x[i / 0]

right:
    y[i] = x[i / 2]
",
    },
    Code {
        code: "W0007",
        title: "local that nothing reads",
        text: "A definition that no statement reads, and that is no result, has no effect. Perhaps another name was meant where it should be read. A
name that begins with `_` is not reported.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        mu = mean[i](x[i])
        y[i] = x[i] * 2
    }

right:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        mu = mean[i](x[i])
        y[i] = x[i] - mu
    }
",
    },
    Code {
        code: "W0004",
        title: "declared values outside of the axis",
        text: "The values that are declared for an index reach beyond the axis that it indexes. A run that meets such a value ends in a fault. Declare
the values that there are (a range `0..V` ends before V), guard the read, or give it an `else`.

wrong:
    op embed[V, T, D](table: f16[V, D], ids: i64[T] in 0..=V) -> (y: f16[T, D]) {
        y[t, d] = table[ids[t], d]
    }

right:
    op embed[V, T, D](table: f16[V, D], ids: i64[T] in 0..V) -> (y: f16[T, D]) {
        y[t, d] = table[ids[t], d]
    }
",
    },
];
