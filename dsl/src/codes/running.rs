//! E07xx: compiling and running.

use super::Code;

pub const ROWS: &[Code] = &[
    Code {
        code: "E0701",
        title: "read outside of a tensor",
        text: "An index through data, or another definition, is checked as it is read. Outside, no memory is touched, no output counts, and
the run ends. Declared values are checked before anything is computed, and prove the reads.

wrong, where ids holds V or more:
    op f[V, T](table: f32[V], ids: i64[T]) -> (y: f32[T]) {
        y[t] = table[ids[t]]
    }

right, if such values are a mistake of the caller:
    op f[V, T](table: f32[V], ids: i64[T] in 0..V) -> (y: f32[T]) {
        y[t] = table[ids[t]]
    }

right, if they stand for nothing:
    y[t] = (table[ids[t]] else 0)
",
    },
    Code {
        code: "E0702",
        title: "write outside of a tensor",
        text: "An update's index through data is checked as it is written. Outside, nothing is written, no output counts, an `inout` is then
undefined, and the run ends. `where` leaves points out.

wrong, where ids holds V or more:
    op f[V, T](dy: f32[T], ids: i64[T]) -> (dt: f32[V]) {
        dt[ids[t]] += dy[t]
    }

right:
    dt[ids[t]] += dy[t] where 0 <= ids[t] < V
",
    },
    Code {
        code: "E0703",
        title: "value outside of its declared range",
        text: "What a tensor or a number is declared to hold is checked when it is given: reads through it are proven by it. A range `lo..hi` ends
before hi, `lo..=hi` at it.

wrong, where a value of ids is -1:
    op f[V, T](dy: f32[T], ids: i64[T] in 0..V) -> (dt: f32[V]) { dt[ids[t]] += dy[t] }

right:
    op f[V, T](dy: f32[T], ids: i64[T] in -1..V) -> (dt: f32[V]) { dt[ids[t]] += dy[t] where ids[t] >= 0 }
",
    },
    Code {
        code: "E0704",
        title: "value that occurs twice in a unique tensor",
        text: "A tensor that is declared `unique` holds no value twice, -1 and other values out of its range aside: updates through it then need
no order.

wrong, where p holds a value twice:
    op f[N](x: f32[N], p: i64[N] in 0..N unique) -> (y: f32[N]) {
        y[i] = 0
        y[p[i]] = x[i]
    }

right, where the last one is meant to count:
    op f[N](x: f32[N], p: i64[N] in 0..N) -> (y: f32[N]) {
        y[i] = 0
        y[p[i]] = x[i]
    }
",
    },
];
