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
];
