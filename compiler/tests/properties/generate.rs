//! Random well-typed programs as `.tile` text: a few statements over one box of M × N points, drawn so that every
//! choice shrinks towards something smaller. Names and operands are resolved when the text is written, so that any
//! part may be left out.

use proptest::prelude::*;
use std::fmt::Write;

/// A scalar expression at a point (i, j). Numbers choose among what there is when the text is written.
#[derive(Clone, Debug)]
pub enum E {
    /// A tensor at [i, j].
    X(usize),
    /// The vector v at [j].
    V,
    /// A value of the row, r[i].
    R(usize),
    Lit(i8),
    I,
    J,
    Un(usize, Box<E>),
    Bin(usize, Box<E>, Box<E>),
    If(usize, Box<E>, Box<E>, Box<E>, Box<E>),
}

/// A statement. The first ones make a tensor of M × N points, `Fold` and `Best` one of M points.
#[derive(Clone, Debug)]
pub enum S {
    Map(E, usize),
    Along(usize, E),
    Stencil(i8, i8, usize, E),
    Gather(usize, E),
    Flip(usize),
    Mat(usize),
    Recur(E, E),
    Scatter(usize, E),
    Sorted(usize, E),
    Fold { fold: usize, range: usize, cond: Option<E>, body: E },
    Best(bool, E),
}

#[derive(Clone, Debug)]
pub struct Program {
    pub m: i64,
    pub n: i64,
    pub whole: bool,
    /// Dtypes of the inputs and results, by number.
    pub dtypes: Vec<usize>,
    pub stmts: Vec<S>,
}

const SIZES: [i64; 10] = [1, 2, 3, 5, 0, 7, 13, 17, 32, 33];
const FLOATS: [&str; 4] = ["f32", "f16", "bf16", "f64"];
const STORED: [&str; 6] = ["f32", "f16", "bf16", "f64", "e4m3", "e5m2"];
const LOCAL: [&str; 6] = ["", ": f32", ": bf16", "", ": f16", ""];
const WHOLE: [&str; 4] = ["i32", "i8", "u8", "i16"];
const WHOLE_STORED: [&str; 4] = ["i32", "i64", "i8", "u8"];

const FLOAT_UNARY: [&str; 20] = [
    "-(@)",
    "abs(@)",
    "relu(@)",
    "tanh(@)",
    "sigmoid(@)",
    "exp(min(@, 3.0))",
    "sqrt(abs(@))",
    "rsqrt(abs(@) + 0.5)",
    "log1p(abs(@))",
    "sin(@)",
    "gelu(@)",
    "silu(@)",
    "floor(@)",
    "round(@)",
    "bf16(@)",
    "f16(@)",
    "tf32(f32(@))",
    "clamp(@, -1.0, 2.0)",
    "sign(@)",
    "(@) ** 2",
];
const FLOAT_BINARY: [&str; 8] = [
    "@ + #",
    "@ - #",
    "@ * #",
    "max(@, #)",
    "min(@, #)",
    "@ / (abs(#) + 0.5)",
    "copysign(@, #)",
    "fma(@, #, 0.25)",
];
const WHOLE_UNARY: [&str; 6] = ["-(@)", "abs(@)", "!(@)", "sign(@)", "clamp(@, -3, 9)", "(@) ** 2"];
const WHOLE_BINARY: [&str; 12] = [
    "@ + #",
    "@ - #",
    "@ * #",
    "max(@, #)",
    "min(@, #)",
    "(@) / (#)",
    "(@) % (#)",
    "(@) & (#)",
    "(@) | (#)",
    "(@) ^ (#)",
    "(@) << (#)",
    "(@) >> (#)",
];
const COMPARE: [&str; 4] = ["<", "<=", ">", "!="];
const FLOAT_FOLDS: [&str; 6] = ["sum", "max", "min", "mean", "logsumexp", "prod"];
const WHOLE_FOLDS: [&str; 4] = ["sum", "max", "min", "prod"];
const FLOAT_ALONG: [&str; 4] = ["softmax", "cumsum", "cummax", "cummin"];
const WHOLE_ALONG: [&str; 3] = ["cumsum", "cummax", "cummin"];
const RANGES: [&str; 4] = ["", " in 1..N", " in 0..min(i + 1, N)", " in N/2..N"];

fn any_index() -> impl Strategy<Value = usize> {
    0..64usize
}

pub fn expr() -> impl Strategy<Value = E> {
    let leaf = prop_oneof![
        4 => any_index().prop_map(E::X),
        1 => Just(E::V),
        1 => any_index().prop_map(E::R),
        1 => (-4..=4i8).prop_map(E::Lit),
        1 => Just(E::J),
        1 => Just(E::I),
    ];
    leaf.prop_recursive(3, 10, 4, |inner| {
        let one = || inner.clone().prop_map(Box::new);
        prop_oneof![
            3 => (any_index(), one()).prop_map(|(f, a)| E::Un(f, a)),
            4 => (any_index(), one(), one()).prop_map(|(f, a, b)| E::Bin(f, a, b)),
            1 => (any_index(), one(), one(), one(), one()).prop_map(|(c, a, b, x, y)| E::If(c, a, b, x, y)),
        ]
    })
}

fn stmt() -> impl Strategy<Value = S> {
    prop_oneof![
        4 => (expr(), any_index()).prop_map(|(e, d)| S::Map(e, d)),
        2 => (any_index(), expr()).prop_map(|(f, e)| S::Along(f, e)),
        2 => (-2..=2i8, -2..=2i8, any_index(), expr()).prop_map(|(a, b, x, e)| S::Stencil(a, b, x, e)),
        1 => (any_index(), expr()).prop_map(|(x, e)| S::Gather(x, e)),
        1 => any_index().prop_map(S::Flip),
        2 => any_index().prop_map(S::Mat),
        1 => (expr(), expr()).prop_map(|(a, b)| S::Recur(a, b)),
        1 => (any_index(), expr()).prop_map(|(o, e)| S::Scatter(o, e)),
        1 => (any_index(), expr()).prop_map(|(x, e)| S::Sorted(x, e)),
        3 => (any_index(), any_index(), proptest::option::of(expr()), expr())
            .prop_map(|(fold, range, cond, body)| S::Fold { fold, range, cond, body }),
        1 => (any::<bool>(), expr()).prop_map(|(max, e)| S::Best(max, e)),
    ]
}

pub fn program() -> impl Strategy<Value = Program> {
    let size = || (0..SIZES.len()).prop_map(|i| SIZES[i]);
    let whole = prop_oneof![4 => Just(false), 1 => Just(true)];
    let dtypes = proptest::collection::vec(any_index(), 6);
    (size(), size(), whole, dtypes, proptest::collection::vec(stmt(), 1..5)).prop_map(
        |(m, n, whole, dtypes, stmts)| {
            // Over an empty axis argmax is refused.
            let n = if stmts.iter().any(|s| matches!(s, S::Best(..))) { n.max(1) } else { n };
            Program { m, n, whole, dtypes, stmts }
        },
    )
}

/// Writes a program's text.
struct Writer<'a> {
    p: &'a Program,
    /// Tensors of M × N points, and of M points, so far.
    boxes: Vec<String>,
    rows: Vec<String>,
    body: String,
    fresh: usize,
}

impl Program {
    pub fn inputs(&self) -> Vec<(&'static str, &'static str, Vec<i64>)> {
        let d = |k: usize| pick(if self.whole { &WHOLE } else { &FLOATS }, self.dtypes[k]);
        vec![
            ("x0", d(0), vec![self.m, self.n]),
            ("x1", d(1), vec![self.m, self.n]),
            ("v", d(2), vec![self.n]),
            ("w", d(3), vec![self.n, self.n]),
            ("ids", "i64", vec![self.m]),
        ]
    }

    pub fn text(&self) -> String {
        let mut w = Writer {
            p: self,
            boxes: vec!["x0".into(), "x1".into()],
            rows: Vec::new(),
            body: String::new(),
            fresh: 0,
        };
        self.stmts.iter().for_each(|s| w.stmt(s));
        let stored: &[&str] = if self.whole { &WHOLE_STORED } else { &STORED };
        let mut results = format!("y: {}[M, N]", pick(stored, self.dtypes[4]));
        let last = w.boxes.last().cloned().unwrap_or_default();
        let _ = writeln!(w.body, "    y[i, j] = {last}[i, j]");
        if let Some(row) = w.rows.last() {
            let _ = write!(results, ", z: {}[M]", pick(stored, self.dtypes[5]));
            let _ = writeln!(w.body, "    z[i] = {row}[i]");
        }
        let params: Vec<String> = self
            .inputs()
            .iter()
            .map(|(name, dtype, _)| match *name {
                "ids" => "ids: i64[M] in 0..M".to_string(),
                "v" => format!("v: {dtype}[N]"),
                "w" => format!("w: {dtype}[N, N]"),
                _ => format!("{name}: {dtype}[M, N]"),
            })
            .collect();
        format!("op random[M, N]({}) -> ({results}) {{\n{}}}\n", params.join(", "), w.body)
    }
}

fn pick<'a>(from: &[&'a str], k: usize) -> &'a str {
    from[k % from.len()]
}

impl Writer<'_> {
    fn name(&mut self, letter: &str) -> String {
        self.fresh += 1;
        format!("{letter}{}", self.fresh)
    }

    fn zero(&self) -> &'static str {
        if self.p.whole { "0" } else { "0.0" }
    }

    fn x(&self, k: usize) -> &str {
        &self.boxes[k % self.boxes.len()]
    }

    fn stmt(&mut self, s: &S) {
        let whole = self.p.whole;
        match s {
            S::Map(e, d) => {
                let e = self.expr(e);
                let dtype = if whole { "" } else { pick(&LOCAL, *d) };
                self.define(dtype, &e);
            }
            S::Along(f, e) => {
                let f = pick(if whole { &WHOLE_ALONG } else { &FLOAT_ALONG }, *f);
                let e = format!("{f}[j]({})", self.expr(e));
                self.define("", &e);
            }
            S::Stencil(a, b, x, e) => {
                let (x, zero) = (self.x(*x), self.zero());
                let e = format!("({x}[i + ({a}), j + ({b})] else {zero}) + {}", self.expr(e));
                self.define("", &e);
            }
            S::Gather(x, e) => {
                let e = format!("{}[ids[i], j] + {}", self.x(*x), self.expr(e));
                self.define("", &e);
            }
            S::Flip(x) => {
                let e = format!("{}[M - 1 - i, N - 1 - j]", self.x(*x));
                self.define("", &e);
            }
            S::Mat(x) => {
                let e = format!("sum[k]({}[i, k] * w[j, k])", self.x(*x));
                self.define("", &e);
            }
            S::Recur(a, b) => self.recur(a, b),
            S::Scatter(op, e) => self.scatter(*op, e),
            S::Sorted(x, e) => {
                let o = self.name("o");
                let e = self.expr(e);
                let _ = writeln!(self.body, "    {o}[i in 0..M, j in 0..N] = argsort[j]({e})");
                let e = format!("{}[i, {o}[i, j]]", self.x(*x));
                self.define("", &e);
            }
            S::Fold { fold, range, cond, body } => {
                let r = self.name("r");
                let fold = pick(if whole { &WHOLE_FOLDS } else { &FLOAT_FOLDS }, *fold);
                let cond = cond.as_ref().map(|c| format!(" where {} > {}", self.expr(c), self.zero()));
                let (range, body) = (pick(&RANGES, *range), self.expr(body));
                let range = if range.is_empty() { " in 0..N" } else { range };
                let _ = writeln!(
                    self.body,
                    "    {r}[i in 0..M] = {fold}[j{range}{}]({body})",
                    cond.unwrap_or_default()
                );
                self.rows.push(r);
            }
            S::Best(max, e) => {
                let r = self.name("r");
                let f = if *max { "argmax" } else { "argmin" };
                let e = self.expr(e);
                let cast = if whole { "i32" } else { "f32" };
                let _ = writeln!(self.body, "    {r}[i in 0..M] = {cast}({f}[j in 0..N]({e}))");
                self.rows.push(r);
            }
        }
    }

    fn define(&mut self, dtype: &str, e: &str) {
        let t = self.name("t");
        let _ = writeln!(self.body, "    {t}{dtype}[i in 0..M, j in 0..N] = {e}");
        self.boxes.push(t);
    }

    fn recur(&mut self, a: &E, b: &E) {
        let t = self.name("t");
        let (a, b) = (self.expr(a), self.expr(b));
        let (dtype, half) = if self.p.whole { ("i32", "3") } else { ("f32", "0.5") };
        // An f64 would be rounded at each step to the state's f32; the same for whole numbers.
        let _ = writeln!(
            self.body,
            "    {t}: {dtype}[i in 0..M, j in 0..N] = {half} * ({t}[i-1, j] else {dtype}({a})) + {dtype}({b})"
        );
        self.boxes.push(t);
    }

    fn scatter(&mut self, op: usize, e: &E) {
        let t = self.name("t");
        let e = self.expr(e);
        let dtype = if self.p.whole { "i32" } else { "f32" };
        let op = pick(&["+=", "max=", "min=", "="], op);
        let zero = self.zero();
        let _ = writeln!(self.body, "    {t}: {dtype}[i in 0..M, j in 0..N] = {zero}");
        let _ = writeln!(self.body, "    {t}[ids[i], j] {op} {e}");
        self.boxes.push(t);
    }

    fn expr(&self, e: &E) -> String {
        let whole = self.p.whole;
        match e {
            E::X(k) => format!("{}[i, j]", self.x(*k)),
            E::V => "v[j]".into(),
            E::R(k) if self.rows.is_empty() => format!("{}[i, j]", self.x(*k)),
            E::R(k) => format!("{}[i]", self.rows[k % self.rows.len()]),
            E::Lit(v) if whole => format!("({v})"),
            E::Lit(v) => format!("({:.2})", *v as f64 * 0.75),
            E::I if whole => "i32(i)".into(),
            E::J if whole => "i32(j)".into(),
            E::I => "(0.5 * i)".into(),
            E::J => "(0.25 * j)".into(),
            E::Un(f, a) => {
                let f = pick(if whole { &WHOLE_UNARY } else { &FLOAT_UNARY }, *f);
                format!("({})", f.replace('@', &self.expr(a)))
            }
            E::Bin(f, a, b) => {
                let f = pick(if whole { &WHOLE_BINARY } else { &FLOAT_BINARY }, *f);
                let (a, b) = (self.expr(a), self.expr(b));
                let text: String = f.split('@').collect::<Vec<_>>().join(&a);
                format!("({})", text.replace('#', &b))
            }
            E::If(c, a, b, x, y) => {
                let c = pick(&COMPARE, *c);
                let [a, b, x, y] = [a, b, x, y].map(|e| self.expr(e));
                format!("(if {a} {c} {b} then {x} else {y})")
            }
        }
    }
}
