//! E02xx: ranges and bounds.

use super::Code;

pub const ROWS: &[Code] = &[
    Code {
        code: "E0201",
        title: "axis with two ranges",
        text: "The dims that an axis indexes on its own must be the same expression (or be equal by a `where`). Sizes that agree only by
chance would hide a mistake.

wrong:
    op f[M, K, L](x: f32[M, K], w: f32[L]) -> (y: f32[M]) {
        y[m] = sum[k](x[m, k] * w[k])
    }

right:
    op f[M, K](x: f32[M, K], w: f32[K]) -> (y: f32[M]) { y[m] = sum[k](x[m, k] * w[k]) }
",
    },
    Code {
        code: "E0202",
        title: "axis without a range",
        text: "The range of an axis is what is written, or the dim that it indexes on its own. An index such as x[i + 1] says nothing about
the range of i.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        t[j] = sin(0.5 * j)
        y[i] = x[i] * t[i]
    }

right:
    t[j in 0..N] = sin(0.5 * j)
",
    },
    Code {
        code: "E0203",
        title: "index out of bounds",
        text: "Every index must be in bounds on the path where it is read. Where it is made of axes, sizes and constants this is decided before
anything runs; the message gives a point where it fails.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = x[i] + x[i-1]
    }

right:
    y[i] = x[i] + (x[i-1] else 0)
    y[i] = x[i] + x[max(i-1, 0)]
    y[i] = if i > 0 then x[i] + x[i-1] else x[i]

wrong, the last group may not be whole:
    op g[M, K, GS](w: i8[M, K], s: f32[M, K/GS]) -> (y: f32[M, K]) {
        y[m, k] = w[m, k] * s[m, k/GS]
    }

right:
    op g[M, K, GS](w: i8[M, K], s: f32[M, K/GS]) -> (y: f32[M, K]) where K % GS == 0 {
        y[m, k] = w[m, k] * s[m, k/GS]
    }
"
    },
    Code {
        code: "E0204",
        title: "range that depends on axes or data",
        text: "Ranges on the left use sizes and constants only: a tensor is a box. Ranges of folds may use outer axes and data.

wrong:
    op f[N](x: f32[N, N]) -> (y: f32[N]) {
        t[i in 0..N, j in 0..i] = x[i, j]
        y[i] = sum[j](t[i, j])
    }

right:
    y[i] = sum[j in 0..i](x[i, j])
",
    },
    Code {
        code: "E0205",
        title: "map along an axis that is not bound",
        text: "softmax, cumsum and their like keep their axis, so it must be on the left or bound by a fold around them.

wrong:
    op f[M, N](x: f32[M, N]) -> (y: f32[M]) {
        y[m] = softmax[n](x[m, n])
    }

right:
    y[m, n] = softmax[n](x[m, n])
",
    },
    Code {
        code: "E0206",
        title: "map over another range than its axis",
        text: "A map along an axis covers the whole range of that axis. A condition takes a part.

wrong:
    op f[N](x: f32[N]) -> (y: f32[N]) {
        y[i] = softmax[i in 1..N](x[i])
    }

right:
    y[i] = softmax[i where i >= 1](x[i])
",
    },
    Code {
        code: "E0207",
        title: "scan under a range that may be anything",
        text: "A cumsum or argsort is computed as a tensor of its own, so the ranges of its axes need bounds that are known: sizes and constants, or
data whose values are declared.

wrong:
    op f[N, B, B1](x: f32[N], start: i32[B1]) -> (y: f32[B]) where B1 == B + 1 {
        y[b] = max[j in start[b]..start[b+1]](cumsum[j](x[j]))
    }

right:
    op f[N, B, B1](x: f32[N], start: i32[B1] in 0..=N) -> (y: f32[B]) where B1 == B + 1 {
        y[b] = max[j in start[b]..start[b+1]](cumsum[j](x[j]))
    }
",
    },
    Code {
        code: "E0208",
        title: "argmax over an empty axis",
        text: "argmax and argmin give the index of an element, so there must be one.

wrong:
    op f[N](x: f32[N]) -> (y: i32) {
        y = argmax[i](x[i])
    }

right:
    y = if N > 0 then argmax[i](x[i]) else -1
",
    },
    Code {
        code: "E0209",
        title: "fold over too many axes",
        text: "argmax and argmin give the value of one axis; maps go along one.

wrong:
    op f[M, N](x: f32[M, N]) -> (y: i32) {
        y = argmax[m, n](x[m, n])
    }

right:
    y = argmax[k in 0..M*N](x[k/N, k%N])
",
    },
];
