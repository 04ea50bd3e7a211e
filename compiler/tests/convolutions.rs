//! Convolutions that are lowered in parts or by windows: transposed ones and gradients phase by phase, depthwise ones and
//! pooling as maps, at sizes that divide nothing, with infinities and NaN where they must leave no trace.

#[path = "common/words.rs"]
mod words;

use girih_compiler::host::HostTensor;
use girih_compiler::ir::graph::{Graph, Role, Word};
use girih_compiler::ir::plan::Form;
use girih_compiler::ir::simt::Stmt;
use girih_compiler::lower::simt_to_cuda::print;
use girih_compiler::lower::{Schedule, plan_to_program};
use girih_compiler::pass::graph_to_plan::{PlanOptions, plan};
use girih_compiler::reference::{self, Inputs};
use girih_compiler::sim::{self, SimOptions};
use girih_compiler::vocab::dtype::DType;
use girih_compiler::vocab::target::Target;
use girih_dsl::source::Sources;
use words::graph;

/// Values of both signs that repeat at different lengths, and `strange` ones here and there.
fn inputs(g: &Graph, strange: &[f64]) -> Inputs {
    let mut all = Inputs::default();
    for (n, t) in g.tensors.iter().enumerate().filter(|(_, t)| t.role == Role::Input) {
        let period = 89 + 14 * n as i64;
        let value = |i: i64| match strange.get((i / 31) as usize % 7) {
            Some(v) if i % 31 == 5 => *v,
            _ => ((i * 37 + 11) % period - period / 2) as f64 / 32.0,
        };
        let values: Vec<f64> = (0..t.dims.iter().product()).map(value).collect();
        all.tensors.insert(t.name.clone(), HostTensor::from_f64(t.dtype, &t.dims, &values));
    }
    all
}

/// Runs on the simulator as planned, compares, and gives the number of kernels.
fn agrees(g: &Graph, form: Form, schedule: &Schedule, target: &str, strange: &[f64]) -> usize {
    agrees_on(g, form, schedule, target, &inputs(g, strange))
}

fn agrees_on(g: &Graph, form: Form, schedule: &Schedule, target: &str, data: &Inputs) -> usize {
    let p = plan(g, &PlanOptions::default());
    assert_eq!(p.kernels.iter().map(|k| k.form).collect::<Vec<_>>(), [form], "{}", p.notes.join("\n"));
    let target = Target::parse(target).expect("a target of the table");
    let program = plan_to_program(&p, target, schedule).unwrap_or_else(|r| panic!("{}", r.message));
    let got = sim::run(&program, data, &SimOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let want = reference::run(g, data).expect("no fault");
    for (name, want) in &want.outputs {
        reference::compare(want, &got.outputs[name]).unwrap_or_else(|m| panic!("{name}: {m}"));
    }
    program.kernels.len()
}

fn transposed(text: &str, words: &str, kernels: usize) {
    let g = graph(text, "t", words);
    for target in ["sm_80", "sm_90a"] {
        for strange in [&[][..], &[f64::NAN, f64::INFINITY]] {
            assert_eq!(agrees(&g, Form::Contract, &Schedule::default(), target, strange), kernels, "{words}");
        }
    }
}

const BY_TWO: &str = "
op t[N, C, H, W, F, R, S](x: f16[N, H, W, C], w: f16[C, R, S, F], b: f16[F])
    -> (y: f16[N, (H - 1)*2 - 1 + R, (W - 1)*2 - 1 + S, F])
{
    y[n, p, q, f] = relu(b[f] + sum[r, s, c where (p + 1 - r) % 2 == 0 && (q + 1 - s) % 2 == 0](
        (x[n, (p + 1 - r)/2, (q + 1 - s)/2, c] else 0) * w[c, r, s, f]))
}";

#[test]
fn transposed_by_two() {
    for taps in ["R=3 S=3", "R=4 S=2", "R=1 S=5"] {
        transposed(BY_TWO, &format!("N=2 C=16 H=5 W=6 F=24 {taps}"), 4);
    }
}

/// What follows the product in a result of f32 is as exact as anywhere, down to gelu's tail of subnormals: the kernels of the
/// phases have the statement alone, without its readers and without the result's name.
#[test]
fn transposed_with_a_tail_in_f32() {
    let text = BY_TWO.replace("(y: f16", "(y: f32").replace("relu(b[f]", "gelu(b[f] - 10.5");
    let g = graph(&text, "t", "N=2 C=4 H=5 W=6 F=8 R=3 S=3");
    agrees(&g, Form::Contract, &Schedule::default(), "sm_90a", &[]);
    let p = plan(&g, &PlanOptions::default());
    let target = Target::parse("sm_90a").expect("a target of the table");
    let program =
        plan_to_program(&p, target, &Schedule::default()).unwrap_or_else(|r| panic!("{}", r.message));
    let cuda = print(&program, target, &Sources::default());
    assert!(cuda.contains("erfcf(") && !cuda.contains("erfc_near("), "{cuda}");
}

#[test]
fn transposed_through_warpgroups() {
    let g = graph(BY_TWO, "t", "N=2 C=64 H=6 W=7 F=64 R=3 S=3");
    let mut s = Schedule::default();
    s.set("y", "warpgroups", "", Word::Int(1));
    // Phases of unequal taps are one kernel, whose blocks count their own steps.
    assert_eq!(agrees(&g, Form::Contract, &s, "sm_90a", &[f64::NAN]), 1);
}

/// As many taps in every phase: one kernel, the phases' numbers in its batch.
#[test]
fn transposed_evenly() {
    let text = BY_TWO.replace("(H - 1)*2 - 1", "(H - 1)*2 - 2").replace("(W - 1)*2 - 1", "(W - 1)*2 - 2");
    for taps in ["R=4 S=4", "R=2 S=4"] {
        transposed(&text, &format!("N=2 C=16 H=5 W=6 F=24 {taps}"), 1);
        let g = graph(&text, "t", &format!("N=2 C=64 H=6 W=7 F=64 {taps}"));
        let mut s = Schedule::default();
        s.set("y", "warpgroups", "", Word::Int(1));
        assert_eq!(agrees(&g, Form::Contract, &s, "sm_90a", &[f64::NAN]), 1);
    }
    let three = "
op t[N, C, L, F](x: f16[N, L, C], w: f16[6, C, F]) -> (y: f16[N, L*3, F]) {
    y[n, p, f] = sum[c, r in 0..6 where (p + 3 - r) % 3 == 0]((x[n, (p + 3 - r)/3, c] else 0) * w[r, c, f])
}";
    transposed(three, "N=2 C=16 L=11 F=8", 1);
}

#[test]
fn gradients_to_the_filters() {
    let text = |st: i64| {
        format!(
            "
op t[N, C, H, W, F, R, S](x: f16[N, H, W, C], dy: f16[N, (H + 2 - R)/{st} + 1, (W + 2 - S)/{st} + 1, F])
    -> (dw: f16[F, R, S, C])
{{
    dw[f, r, s, c] = sum[n, p, q](dy[n, p, q, f] * (x[n, p*{st} + r - 1, q*{st} + s - 1, c] else 0))
}}"
        )
    };
    for (st, words) in [(1, "N=3 C=64 H=9 W=7 F=64 R=3 S=3"), (2, "N=2 C=128 H=11 W=10 F=72 R=3 S=2")] {
        let g = graph(&text(st), "t", words);
        for split in [1, 3] {
            let mut s = Schedule::default();
            s.set("dw", "warpgroups", "", Word::Int(1));
            s.set("dw", "split", "q", Word::Int(split));
            let p = plan(&g, &PlanOptions::default());
            let program =
                plan_to_program(&p, Target::parse("sm_90a").expect("a target"), &s).expect("it lowers");
            assert!(program.kernels[0].block[0] == 256, "{words}: not by warpgroups");
            agrees(&g, Form::Contract, &s, "sm_90a", &[]);
        }
    }
}

/// Channels first: both operands are turned, to channels last.
#[test]
fn gradients_to_the_filters_channels_first() {
    let text = "
op t[N, C, H, W, F, R, S](x: bf16[N, C, H, W], dy: bf16[N, F, H + 3 - R, W + 3 - S]) -> (dw: bf16[F, C, R, S])
{
    dw[f, c, r, s] = sum[n, p, q](dy[n, f, p, q] * (x[n, c, p + r - 1, q + s - 1] else 0))
}";
    let g = graph(text, "t", "N=13 C=64 H=15 W=17 F=72 R=3 S=3");
    let s = Schedule::default();
    let kernels = agrees(&g, Form::Contract, &s, "sm_90a", &[]);
    assert!((3..=4).contains(&kernels), "two copies, the product, perhaps a sum of its parts: {kernels}");
    agrees(&g, Form::Contract, &s, "sm_80", &[]);
}

/// Phases of unlike numbers of taps, some of none, which are one kernel; operands are turned once where boxes need it.
#[test]
fn gradients_to_the_input_channels_first() {
    let text = "
op t[N, C, H, W, F, R, P, Q](dy: f16[N, F, P, Q], w: f16[F, C, R, R]) -> (dx: f16[N, C, H, W])
    where P == (H + 2*(R/2) - R)/2 + 1, Q == (W + 2*(R/2) - R)/2 + 1
{
    dx[n, c, i, j] = sum[f, r, s where (i + R/2 - r) % 2 == 0 && (j + R/2 - s) % 2 == 0](
        (dy[n, f, (i + R/2 - r)/2, (j + R/2 - s)/2] else 0) * w[f, c, r, s])
}";
    let mut s = Schedule::default();
    s.set("dx", "warpgroups", "", Word::Int(1));
    for (words, kernels) in
        [("N=3 C=136 H=16 W=20 F=64 R=1 P=8 Q=10", 1), ("N=3 C=72 H=8 W=10 F=64 R=3 P=4 Q=5", 3)]
    {
        let g = graph(text, "t", words);
        assert_eq!(agrees(&g, Form::Contract, &s, "sm_90a", &[f64::NAN]), kernels, "{words}");
    }
}

/// Data say which terms each group has: none, one, some that are no multiple of a step, and all that are left.
#[test]
fn gradients_to_grouped_weights() {
    for (dtype, between) in
        [("f16", "start[e] <= m && m < start[e + 1]"), ("f32", "start[e] < m + 1 && m + 1 <= start[e + 1]")]
    {
        let text = format!(
            "
op t[M, N, K, E](x: {dtype}[M, K], dy: {dtype}[M, N], start: i32[E + 1] in 0..=M) -> (dw: {dtype}[E, N, K]) {{
    dw[e, n, k] = sum[m where {between}](dy[m, n] * x[m, k])
}}"
        );
        let g = graph(&text, "t", "M=333 N=72 K=40 E=5");
        for starts in [[0, 100, 100, 101, 250, 333], [7, 8, 64, 128, 130, 131], [0, 0, 0, 333, 333, 333]] {
            let mut data = inputs(&g, &[f64::NAN]);
            data.tensors.insert("start".into(), HostTensor::from_i64(DType::I32, &[6], &starts));
            for target in ["sm_80", "sm_90a"] {
                agrees_on(&g, Form::Contract, &Schedule::default(), target, &data);
            }
        }
    }
}

/// Groups of few channels, some together as one product; what is infinite in one group is not met by another's.
#[test]
fn groups_of_few_channels() {
    let text = "
op t[N, H, W, C, F, R, S](x: bf16[N, H, W, C], w: bf16[F, R, S, C/16], b: bf16[F]) -> (y: bf16[N, H + 3 - R, W + 3 - S, F]) {
    y[n, p, q, f] = relu(b[f] + sum[r, s, c](
        (x[n, p + r - 1, q + s - 1, f/(F/16)*(C/16) + c] else 0) * w[f, r, s, c]))
}";
    for words in ["N=5 H=33 W=35 C=128 F=128 R=3 S=3", "N=5 H=35 W=37 C=64 F=256 R=3 S=4"] {
        let g = graph(text, "t", words);
        for strange in [&[][..], &[f64::NAN, f64::INFINITY]] {
            let kernels = agrees(&g, Form::Contract, &Schedule::default(), "sm_90a", strange);
            assert_eq!(
                kernels, 4,
                "{words}: a flag, the filters spread out, the product, and the product as it was"
            );
        }
    }
}

/// Borders that repeat, or places twice as dense: the input is copied place by place before.
#[test]
fn places_that_are_functions_of_even_ones() {
    for (rows, columns, out) in [
        ("min(max(p + r - 1, 0), H - 1)", "(q + s + W - 1) % W", "H, W"),
        ("(p + r - 1)/2", "(q + s - 1)/2", "2*H, 2*W"),
    ] {
        let text = format!(
            "
op t[N, H, W, C, F, R, S](x: f16[N, H, W, C], w: f16[F, R, S, C]) -> (y: f16[N, {out}, F]) {{
    y[n, p, q, f] = sum[r, s, c]((x[n, {rows}, {columns}, c] else 0) * w[f, r, s, c])
}}"
        );
        let g = graph(&text, "t", "N=5 H=21 W=23 C=64 F=72 R=3 S=3");
        assert_eq!(agrees(&g, Form::Contract, &Schedule::default(), "sm_90a", &[f64::NAN]), 2, "{rows}");
    }
}

#[test]
fn transposed_in_one_and_three_dims() {
    let line = "
op t[N, C, L, F, R](x: f32[N, C, L], w: f32[C, F, R]) -> (y: f32[N, F, (L - 1)*3 + R]) {
    y[n, f, p] = sum[c, r](if (p - r) % 3 == 0 then (x[n, c, (p - r)/3] else 0) * w[c, f, r] else 0)
}";
    transposed(line, "N=2 C=9 L=11 F=13 R=5", 3);
    let room = "
op t[N, C, D, H, W, F, A](x: bf16[N, C, D, H, W], w: bf16[C, F, A, A, A])
    -> (y: bf16[N, F, (D - 1)*2 + A, (H - 1)*2 + A, (W - 1)*2 + A])
{
    y[n, f, o, p, q] = sum[c, a, r, s where (o - a) % 2 == 0 && (p - r) % 2 == 0 && (q - s) % 2 == 0](
        (x[n, c, (o - a)/2, (p - r)/2, (q - s)/2] else 0) * w[c, f, a, r, s])
}";
    transposed(room, "N=1 C=8 D=2 H=3 W=2 F=9 A=3", 8);
}

#[test]
fn gradients_to_the_input() {
    // Steps that taps do not divide, dilated taps, and a step of one.
    let text = |st: i64, dil: i64| {
        format!(
            "
op t[N, C, H, F, R](dy: f16[N, (H + 2 - {dil}*(R - 1) - 1)/{st} + 1, F], w: f16[F, R, C]) -> (dx: f16[N, H, C]) {{
    dx[n, i, c] = sum[f, r where (i + 1 - {dil}*r) % {st} == 0](
        (dy[n, (i + 1 - {dil}*r)/{st}, f] else 0) * w[f, r, c])
}}"
        )
    };
    for (st, dil) in [(1, 1), (2, 1), (3, 2), (4, 2), (2, 2), (3, 3), (2, 4)] {
        transposed(&text(st, dil), "N=3 C=17 H=19 F=12 R=3", st as usize);
    }
}

fn has_vectors(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|s| match s {
        Stmt::LoadVec { .. } => true,
        Stmt::If { then, otherwise, .. } => has_vectors(then) || has_vectors(otherwise),
        Stmt::For { body, .. } => has_vectors(body),
        _ => false,
    })
}

/// A map by windows, with so many points of a thread along the last axis and along `axis`.
fn windows(text: &str, words: &str, settings: &[(i64, &str, i64)]) {
    let g = graph(text, "t", words);
    for &(v, axis, rows) in settings {
        let mut s = Schedule::default();
        s.set("y", "vector", "", Word::Int(v));
        if rows > 0 {
            s.set("y", "unroll", axis, Word::Int(rows));
        }
        for strange in [&[][..], &[f64::NAN, f64::INFINITY]] {
            agrees(&g, Form::Map, &s, "sm_90a", strange);
        }
        let p = plan(&g, &PlanOptions::default());
        let target = Target::parse("sm_90a").expect("a target of the table");
        let program = plan_to_program(&p, target, &s).expect("it lowers");
        assert!(has_vectors(&program.kernels[0].body), "{words}: element by element");
    }
}

#[test]
fn depthwise_channels_last() {
    let text = |st: i64, pad: i64, dil: i64| {
        format!(
            "
op t[N, H, W, C, R, S](x: f16[N, H, W, C], w: f16[R, S, C], b: f16[C])
    -> (y: f16[N, (H + 2*{pad} - {dil}*(R - 1) - 1)/{st} + 1, (W + 2*{pad} - {dil}*(S - 1) - 1)/{st} + 1, C])
{{
    y[n, p, q, c] = relu(b[c] + sum[r, s]((x[n, p*{st} + r*{dil} - {pad}, q*{st} + s*{dil} - {pad}, c] else 0) * w[r, s, c]))
}}"
        )
    };
    windows(
        &text(1, 1, 1),
        "N=2 H=6 W=5 C=24 R=3 S=3",
        &[(8, "p", 0), (8, "p", 3), (4, "p", 2), (2, "p", 6)],
    );
    windows(&text(2, 1, 1), "N=1 H=11 W=7 C=8 R=3 S=2", &[(8, "p", 2), (4, "p", 3)]);
    windows(&text(1, 2, 2), "N=1 H=8 W=9 C=16 R=3 S=3", &[(8, "p", 4)]);
    windows(&text(1, 0, 1), "N=1 H=8 W=9 C=16 R=5 S=1", &[(8, "p", 4)]);
}

#[test]
fn depthwise_channels_first() {
    let text = |st: i64| {
        format!(
            "
op t[N, C, H, W, R, S](x: f16[N, C, H, W], w: f16[C, R, S])
    -> (y: f16[N, C, (H + 2 - R)/{st} + 1, (W + 2 - S)/{st} + 1])
{{
    y[n, c, p, q] = sum[r, s]((x[n, c, p*{st} + r - 1, q*{st} + s - 1] else 0) * w[c, r, s])
}}"
        )
    };
    windows(&text(1), "N=2 C=3 H=6 W=16 R=3 S=3", &[(8, "p", 2), (4, "p", 3), (2, "p", 0)]);
    windows(&text(1), "N=1 C=2 H=5 W=12 R=2 S=3", &[(4, "p", 0)]);
    windows(&text(2), "N=1 C=5 H=9 W=32 R=3 S=3", &[(8, "p", 0), (2, "p", 0)]);
}

#[test]
fn pooling() {
    let most = "
op t[N, C, H, W](x: f16[N, C, H, W]) -> (y: f16[N, C, (H + 1)/2, (W + 1)/2]) {
    y[n, c, p, q] = max[r in 0..3, s in 0..3](x[n, c, 2*p + r - 1, 2*q + s - 1] else -inf)
}";
    windows(most, "N=2 C=3 H=8 W=32", &[(8, "p", 2), (4, "p", 4)]);
    let mean = "
op t[N, H, W, C](x: bf16[N, H, W, C]) -> (y: bf16[N, H, W, C]) {
    y[n, p, q, c] = sum[r in 0..3, s in 0..3](x[n, p + r - 1, q + s - 1, c] else 0) / 9
}";
    windows(mean, "N=1 H=7 W=5 C=16", &[(8, "p", 7), (2, "p", 0)]);
}

/// Conditions that say no more than that a read is inside: the operand is copied with zeros beyond its bounds, and sums that are NaN are
/// made again as they were written.
#[test]
fn padding_that_is_written_as_a_condition() {
    let op = |sum: &str| {
        format!(
            "op t[N, H, W, C, F](x: f16[N, H, W, C], w: f16[F, 3, 3, C]) -> (y: f16[N, H, W, F]) {{ y[n, p, q, f] = {sum} }}"
        )
    };
    let inside = "0 <= p + r - 1 && p + r - 1 < H && 0 <= q + s - 1 && q + s - 1 < W";
    let product = "x[n, p + r - 1, q + s - 1, c] * w[f, r, s, c]";
    let words = "N=3 H=9 W=7 C=64 F=72";
    let same = "p + r >= 1 && p + r <= H && q + s > 0 && q + s < W + 1 && r < 3";
    let sums = [
        (format!("sum[r, s, c](if {inside} then {product} else 0)"), 3),
        (format!("sum[r, s, c where {same}]({product})"), 3),
        (format!("sum[r, s, c]((if {inside} then x[n, p + r - 1, q + s - 1, c] else 0) * w[f, r, s, c])"), 1),
        // A row less than there is: no bounds of the tensor.
        (format!("sum[r, s, c](if {inside} && p + r < H then {product} else 0)"), 1),
    ];
    for (sum, kernels) in sums {
        let g = graph(&op(&sum), "t", words);
        for strange in [&[][..], &[f64::NAN, f64::INFINITY]] {
            assert_eq!(agrees(&g, Form::Contract, &Schedule::default(), "sm_90a", strange), kernels, "{sum}");
        }
        agrees(&g, Form::Contract, &Schedule::default(), "sm_80", &[f64::INFINITY]);
    }
}

/// The blocks of a cluster share the copies of the windows, or of the filters where the last cluster has a block too many.
#[test]
fn clusters_share_windows_or_filters() {
    for (words, axis) in [
        ("N=3 H=7 W=9 C=64 F=256 R=3 S=3", "f"),
        ("N=3 H=11 W=5 C=40 F=136 R=3 S=1", "f"),
        ("N=3 H=7 W=9 C=64 F=64 R=3 S=3", "n"),
        ("N=5 H=11 W=6 C=40 F=136 R=1 S=3", "n"),
    ] {
        let g = graph(
            "op t[N, H, W, C, F, R, S](x: f16[N, H, W, C], w: f16[F, R, S, C]) -> (y: f16[N, H, W, F]) {
    y[n, p, q, f] = sum[r, s, c]((x[n, p + r - 1, q + s - 1, c] else 0) * w[f, r, s, c])
}",
            "t",
            words,
        );
        for persistent in ["off", "on"] {
            let mut s = Schedule::default();
            s.set("y", "cluster", axis, Word::Int(2));
            s.set("y", "persistent", "", Word::Name(persistent.into()));
            assert_eq!(agrees(&g, Form::Contract, &s, "sm_90a", &[]), 1, "{words}");
            let p = plan(&g, &PlanOptions::default());
            let target = Target::parse("sm_90a").expect("a target of the table");
            let program = plan_to_program(&p, target, &s).expect("it lowers");
            assert_eq!(program.kernels[0].cluster[0], 2);
        }
    }
}

/// Three warpgroups of 64 pixels with all of 192 filters have more registers than their equal share.
#[test]
fn three_warpgroups_with_many_filters() {
    for words in ["L=205 C=64 F=192", "L=390 C=32 F=185"] {
        let g = graph(
            "op t[L, C, F](x: f16[L, C], w: f16[F, 3, C]) -> (y: f16[L, F]) {
    y[p, f] = sum[r, c]((x[p + r - 1, c] else 0) * w[f, r, c])
}",
            "t",
            words,
        );
        let mut s = Schedule::default();
        s.set("y", "block", "p", Word::Int(192));
        s.set("y", "block", "f", Word::Int(192));
        s.set("y", "warpgroups", "", Word::Int(3));
        assert_eq!(agrees(&g, Form::Contract, &s, "sm_90a", &[]), 1, "{words}");
        let p = plan(&g, &PlanOptions::default());
        let target = Target::parse("sm_90a").expect("a target of the table");
        let program = plan_to_program(&p, target, &s).expect("it lowers");
        assert_eq!(program.kernels[0].block[0], 512);
    }
}

/// Rows that are found through data are copied in the order of their readers, also where those choose their matrix.
#[test]
fn gathered_rows_are_copied_before_boxes() {
    let (rows, many) = (130, 50);
    for (text, kernels) in [
        ("op t[M, N, K, B](x: bf16[B, K], w: bf16[N, K], tok: i32[M] in 0..B) -> (y: bf16[M, N]) { y[m, n] = sum[k](x[tok[m], k] * w[n, k]) }", 3),
        ("op t[M, N, K, B](x: bf16[B, K], w: bf16[2, N, K], tok: i32[M] in 0..B, id: i32[M] in 0..2) -> (y: bf16[M, N]) {
            y[m, n] = sum[k](x[tok[m], k] * w[id[m], n, k])
        }", 4),
    ] {
        let g = graph(text, "t", &format!("M={rows} N=96 K=4104 B={many}"));
        let mut data = inputs(&g, &[]);
        let numbers = |n: i64| (0..rows).map(|i| ((i * 29 + 7) % n) as f64).collect::<Vec<f64>>();
        data.tensors.insert("tok".into(), HostTensor::from_f64(DType::I32, &[rows], &numbers(many)));
        if g.tensors.iter().any(|t| t.name == "id") {
            data.tensors.insert("id".into(), HostTensor::from_f64(DType::I32, &[rows], &numbers(2)));
        }
        assert_eq!(agrees_on(&g, Form::Contract, &Schedule::default(), "sm_90a", &data), kernels);
    }
}
