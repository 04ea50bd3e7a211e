//! Chained products with carried state: what becomes one kernel and what does not, and that its results are those of
//! the graph as written, on sizes that divide nothing, rows that see nothing, and with infinities and NaN.

#[path = "common/words.rs"]
mod words;

use girih_compiler::host::HostTensor;
use girih_compiler::ir::graph::Graph;
use girih_compiler::ir::plan::Form;
use girih_compiler::lower::{Schedule, plan_to_program};
use girih_compiler::pass::graph_to_plan::{PlanOptions, plan};
use girih_compiler::reference::{self, Inputs};
use girih_compiler::sim::{self, SimOptions};
use girih_compiler::vocab::target::Target;
use words::graph;

/// Values of both signs that repeat at different lengths; integers within their declared range.
fn inputs(g: &Graph) -> Inputs {
    let mut all = Inputs::default();
    for (n, t) in
        g.tensors.iter().enumerate().filter(|(_, t)| t.role == girih_compiler::ir::graph::Role::Input)
    {
        let points: i64 = t.dims.iter().product();
        let period = 97 + 12 * n as i64;
        let value = |i: i64| match t.range {
            Some((lo, hi)) => (lo + i * 7 % (hi - lo)) as f64,
            None => ((i * 37 + 11) % period - period / 2) as f64 / 24.0,
        };
        let values: Vec<f64> = (0..points).map(value).collect();
        all.tensors.insert(t.name.clone(), HostTensor::from_f64(t.dtype, &t.dims, &values));
    }
    all
}

fn is_chained(g: &Graph) -> bool {
    plan(g, &PlanOptions::default()).kernels.iter().any(|k| k.form == Form::Fold)
}

fn agrees(g: &Graph, inputs: &Inputs) {
    agrees_under(g, inputs, &Schedule::default(), 384);
}

/// The same under a schedule, which makes blocks of so many threads.
fn agrees_under(g: &Graph, inputs: &Inputs, schedule: &Schedule, threads: u32) {
    let p = plan(g, &PlanOptions::default());
    let forms: Vec<_> = p.kernels.iter().map(|k| k.form.name()).collect();
    assert!(forms.contains(&"fold"), "{forms:?}\n{}", p.notes.join("\n"));
    let target = Target::parse("sm_90a").expect("a target of the table");
    let program = plan_to_program(&p, target, schedule).expect("it lowers");
    assert!(program.kernels.iter().any(|k| k.block[0] == threads), "not by warpgroups");
    let got = sim::run(&program, inputs, &SimOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let want = reference::run(g, inputs).expect("no fault");
    for (name, want) in &want.outputs {
        reference::compare(want, &got.outputs[name]).unwrap_or_else(|m| panic!("{name}: {m}"));
    }
}

fn check(text: &str, words: &str) {
    let g = graph(text, "t", words);
    agrees(&g, &inputs(&g));
}

const GROUPED: &str = "
op t[B, H, G, S, L, D, E](q: bf16[B, H*G, S, D], k: bf16[B, H, L, D], v: bf16[B, H, L, E], causal: const bool = false)
    -> (o: bf16[B, H*G, S, E])
{
    s[b, h, i, j] = sum[d](q[b, h, i, d] * k[b, h/G, j, d]) / sqrt(D)
    p: bf16[b, h, i, j] = softmax[j](if causal && j > i + L - S then -inf else s[b, h, i, j])
    o[b, h, i, e] = sum[j](p[b, h, i, j] * v[b, h/G, j, e])
}";

#[test]
fn sizes_that_divide_nothing() {
    check(GROUPED, "B=1 H=1 G=1 S=129 L=300 D=64 E=64");
    check(GROUPED, "B=2 H=1 G=1 S=128 L=128 D=64 E=128");
    check(GROUPED, "B=1 H=2 G=1 S=131 L=261 D=128 E=64");
}

/// Rows of a block, terms of a step and stages as settings say.
#[test]
fn settings_change_the_block_and_not_the_results() {
    let all = ["step j = 64", "step j = 192", "stages = 3", "step j = 64\no.stages = 4", "block i = 192"];
    for words in ["B=1 H=1 G=1 S=200 L=389 D=64 E=64", "B=1 H=1 G=2 S=100 L=150 D=64 E=64 causal=true"] {
        let g = graph(GROUPED, "t", words);
        for text in all {
            let schedule = Schedule::parse(&format!("o.{text}")).expect("a schedule");
            let threads = if text.starts_with("block") { 512 } else { 384 };
            agrees_under(&g, &inputs(&g), &schedule, threads);
        }
    }
}

/// What does not fit, and what the form does not know, is refused by its name.
#[test]
fn settings_that_cannot_be_are_refused() {
    let g = graph(GROUPED, "t", "B=1 H=1 G=1 S=256 L=256 D=128 E=128");
    let p = plan(&g, &PlanOptions::default());
    let target = Target::parse("sm_90a").expect("a target of the table");
    for (text, why) in [
        ("o.stages = 4", "shared memory"),
        ("o.block i = 192", "registers"),
        ("o.step j = 96", "64, 128, 192"),
        ("o.block b = 2", "innermost rows"),
    ] {
        let refused = plan_to_program(&p, target, &Schedule::parse(text).expect("a schedule"));
        let refused = refused.expect_err(text);
        assert!(refused.message.contains(why), "{text}: {}", refused.message);
        assert!(refused.setting.is_some(), "{text}");
    }
    let whole = Schedule::parse("o.block e = 128").expect("a schedule");
    assert!(plan_to_program(&p, target, &whole).is_ok(), "a block has all columns");
}

#[test]
fn heads_that_share_keys() {
    check(GROUPED, "B=1 H=2 G=3 S=50 L=140 D=64 E=64");
    check(GROUPED, "B=1 H=1 G=2 S=128 L=256 D=64 E=64 causal=true");
    check(GROUPED, "B=1 H=1 G=2 S=100 L=150 D=64 E=64 causal=true");
}

/// More rows than keys: the first rows see none and are 0. Fewer: every row sees some.
#[test]
fn rows_that_see_nothing() {
    check(GROUPED, "B=1 H=1 G=1 S=300 L=130 D=64 E=64 causal=true");
    check(GROUPED, "B=1 H=1 G=1 S=140 L=400 D=64 E=64 causal=true");
}

#[test]
fn conditions_on_what_is_taken() {
    let window = "
op t[S, L](q: f16[S, 64], k: f16[L, 64], v: f16[L, 64]) -> (o: f16[S, 64]) {
    s[i, j] = sum[d](q[i, d] * k[j, d]) * 0.25
    p: f16[i, j] = softmax[j where i - 70 < j <= i + 9](s[i, j])
    o[i, e] = sum[j](p[i, j] * v[j, e])
}";
    check(window, "S=300 L=290");
    let padded = "
op t[B, S, L](q: bf16[B, S, 64], k: bf16[B, L, 64], v: bf16[B, L, 64], len: i32[B] in 0..=L) -> (o: bf16[B, S, 64]) {
    s[b, i, j] = sum[d](q[b, i, d] * k[b, j, d])
    p: bf16[b, i, j] = softmax[j where j < len[b]](s[b, i, j])
    o[b, i, e] = sum[j](p[b, i, j] * v[b, j, e])
}";
    check(padded, "B=3 S=130 L=200");
}

/// Scores with a bias, a soft cap and another order of dims; a second product read through a transposed matrix; an
/// epilogue.
#[test]
fn scores_and_results_with_more_to_them() {
    let text = "
op t[S, L, H](q: bf16[S, H, 64], k: bf16[L, H, 64], v: bf16[H, 64, L], bias: f32[H, S, L], g: bf16[S, H, 64])
    -> (o: bf16[S, H, 64])
{
    s[h, i, j] = 30 * tanh(sum[d](q[i, h, d] * k[j, h, d]) / 8 / 30) + bias[h, i, j]
    p: bf16[h, i, j] = softmax[j](s[h, i, j])
    o[i, h, e] = sum[j](p[h, i, j] * v[h, e, j]) * sigmoid(g[i, h, e])
}";
    check(text, "S=140 L=264 H=2");
}

#[test]
fn infinities_and_nan() {
    let g = graph(GROUPED, "t", "B=1 H=1 G=1 S=128 L=256 D=64 E=64");
    let mut with = inputs(&g);
    let mut q: Vec<f64> = (0..128 * 64).map(|i| (i % 13) as f64 / 8.0 - 0.7).collect();
    q[64 * 3] = f64::NAN;
    q[64 * 5] = f64::INFINITY;
    with.tensors.insert("q".into(), HostTensor::from_f64(g.tensors[0].dtype, &[1, 1, 128, 64], &q));
    agrees(&g, &with);
}

/// What is no cascade, or too small, or rounded elsewhere, stays apart.
#[test]
fn others_stay_apart() {
    let no = |text: &str, words: &str| {
        let g = graph(text, "t", words);
        assert!(!is_chained(&g), "{words} {text}");
    };
    no(GROUPED, "B=1 H=1 G=1 S=64 L=100 D=64 E=64");
    no(GROUPED, "B=1 H=1 G=1 S=256 L=256 D=264 E=64");
    no(GROUPED, "B=1 H=1 G=1 S=256 L=256 D=60 E=64");
    // Not rounded: three numbers of f16 are no f32.
    let text = GROUPED.replace("p: bf16[", "p[").replace("bf16[", "f16[");
    no(&text, "B=1 H=1 G=1 S=256 L=256 D=64 E=64");
    // Factors after a rounding cannot move below it.
    no(
        &GROUPED.replace("(p[b, h, i, j] *", "(bf16(p[b, h, i, j] * 0.5) *"),
        "B=1 H=1 G=1 S=256 L=256 D=64 E=64",
    );
    // Divided by a sum of other terms.
    let other = GROUPED.replace("softmax[j](", "1.0 / sum[t](exp(s[b, h, i, t])) * exp(");
    no(&other, "B=1 H=1 G=1 S=256 L=256 D=64 E=64");
    // A tile block speaks of a kernel of one of the values.
    let tiled = format!("{GROUPED}\ntile t {{ store = {{p}} }}");
    no(&tiled, "B=1 H=1 G=1 S=256 L=256 D=64 E=64");
    // Targets without warpgroup instructions.
    let g = graph(GROUPED, "t", "B=1 H=1 G=1 S=256 L=256 D=64 E=64");
    assert!(is_chained(&g));
    let apart = plan(&g, &PlanOptions { chain: false, ..PlanOptions::default() });
    assert_eq!(apart.kernels.len(), 3);
}

/// One head: how the weights come from the scores `s`, and how they meet the values.
fn head(weights: &str) -> String {
    format!(
        "op t[S, L, D, E](q: bf16[S, D], k: bf16[L, D], v: bf16[L, E], len: i32[1] in 150..=L, qid: i32[S] in 0..3, id: i32[L] in 0..3,
            mask: bool[S, L], bias: bf16[S, L], sink: f32[1]) -> (o: bf16[S, E]) {{
            s[i, j] = sum[d](q[i, d] * k[j, d]) / sqrt(D)
            {weights}
        }}"
    )
}

const WORDS: &str = "S=131 L=200 D=64 E=64";

/// Conditions on scores, weights and values, in the ways they are written.
#[test]
fn masks() {
    for text in [
        "p: bf16[i, j] = softmax[j where j <= i + L - S](s[i, j])
         o[i, e] = sum[j where j <= i + L - S](p[i, j] * v[j, e])",
        "p: bf16[i, j] = softmax[j](if j <= i then s[i, j] else -inf)
         o[i, e] = sum[j where j <= i](p[i, j] * v[j, e])",
        "p: bf16[i, j] = softmax[j where j <= i](s[i, j])
         o[i, e] = sum[j](if j <= i then p[i, j] * v[j, e] else 0.0)",
        "p: bf16[i, j] = softmax[j where j <= i](s[i, j])
         o[i, e] = sum[j in 0..=i](p[i, j] * v[j, e])",
        "p: bf16[i, j] = softmax[j](s[i, j])
         o[i, e] = sum[j where i - 60 < j <= i + 9](p[i, j] * v[j, e])",
        "p: bf16[i, j] = softmax[j where j < len[0]](s[i, j])
         o[i, e] = sum[j where j < len[0]](p[i, j] * v[j, e])",
        "p: bf16[i, j] = softmax[j where qid[i] == id[j] && j <= i](s[i, j])
         o[i, e] = sum[j where qid[i] == id[j] && j <= i](p[i, j] * v[j, e])",
        "p: bf16[i, j] = softmax[j where mask[i, j]](s[i, j])
         w: bf16[i, j] = if mask[i, j] then p[i, j] else 0.0
         o[i, e] = sum[j](w[i, j] * v[j, e])",
        "p: bf16[i, j] = softmax[j where j <= i && (j < 4 || i - j < 50)](s[i, j] + bias[i, j])
         o[i, e] = sum[j](p[i, j] * v[j, e])",
    ] {
        check(&head(text), WORDS);
    }
}

/// Weights without `softmax`: their sum divided by after it or before, kept in another form, or not at all.
#[test]
fn weights_by_hand() {
    for text in [
        "m[i] = max[j](s[i, j])
         w[i, j] = exp(s[i, j] - m[i])
         z[i] = sum[j](w[i, j])
         p: bf16[i, j] = w[i, j] / z[i]
         o[i, e] = sum[j](p[i, j] * v[j, e])",
        "m[i] = max[j](s[i, j])
         w: bf16[i, j] = exp(s[i, j] - m[i])
         z[i] = sum[j](w[i, j])
         o[i, e] = sum[j](w[i, j] * v[j, e]) / z[i]",
        "m[i] = max[j where j <= i](s[i, j])
         z[i] = sum[j where j <= i](exp2(s[i, j] - m[i]))
         p: bf16[i, j] = exp2(s[i, j] - m[i]) / z[i]
         o[i, e] = sum[j where j <= i](p[i, j] * v[j, e])",
        "m[i] = max(max[j](s[i, j]), sink[0])
         z[i] = sum[j](exp(s[i, j] - m[i])) + exp(sink[0] - m[i])
         p: bf16[i, j] = exp(s[i, j] - m[i]) / z[i]
         o[i, e] = sum[j](p[i, j] * v[j, e])",
        "m[i] = logsumexp[j](s[i, j])
         p: bf16[i, j] = exp(s[i, j] - m[i])
         o[i, e] = sum[j](p[i, j] * v[j, e])",
        "p[i, j] = softmax[j](s[i, j])
         w: bf16[i, j] = if uniform(7, i * L + j) < 0.1 then 0.0 else p[i, j] / 0.9
         o[i, e] = sum[j](w[i, j] * v[j, e])",
        "p: bf16[i, j] = sigmoid(s[i, j] - 5.0)
         o[i, e] = sum[j](p[i, j] * v[j, e])",
        "p: bf16[i, j] = if j <= i then s[i, j] * 0.99 ** (i - j) else 0.0
         o[i, e] = sum[j](p[i, j] * v[j, e])",
    ] {
        check(&head(text), WORDS);
    }
}

/// Weights that are not rounded, and scores that are.
#[test]
fn roundings() {
    for text in [
        "p[i, j] = softmax[j](s[i, j])
         o[i, e] = sum[j](p[i, j] * v[j, e])",
        "r: bf16[i, j] = sum[d](q[i, d] * k[j, d])
         p: bf16[i, j] = softmax[j](r[i, j] / 8)
         o[i, e] = sum[j](p[i, j] * v[j, e])",
    ] {
        check(&head(text), WORDS);
    }
}

/// Few rows, and terms that several blocks share.
#[test]
fn few_rows_and_shared_terms() {
    let few = |words: &str, parts: bool| {
        let g = graph(GROUPED, "t", words);
        let p = plan(&g, &PlanOptions::default());
        let target = Target::parse("sm_90a").expect("a target of the table");
        let program = plan_to_program(&p, target, &Schedule::default()).expect("it lowers");
        assert_eq!(program.kernels.len(), 1 + parts as usize, "{words}");
        agrees_under(&g, &inputs(&g), &Schedule::default(), 256);
    };
    few("B=1 H=1 G=4 S=16 L=2600 D=64 E=64", true);
    few("B=1 H=1 G=3 S=20 L=2050 D=64 E=32 causal=true", true);
    let hand = "m[i] = max(max[j](s[i, j]), sink[0])
         z[i] = sum[j](exp(s[i, j] - m[i])) + exp(sink[0] - m[i])
         p: bf16[i, j] = exp(s[i, j] - m[i]) / z[i]
         o[i, e] = sum[j where j < len[0]](p[i, j] * v[j, e])";
    for (text, words) in [(hand, "S=40 L=1030 D=16 E=16"), (hand, "S=130 L=1030 D=16 E=16")] {
        let g = graph(&head(text), "t", words);
        let schedule = Schedule::parse("o.split j = 4").expect("a schedule");
        let threads = if words.starts_with("S=4") { 256 } else { 384 };
        agrees_under(&g, &inputs(&g), &schedule, threads);
    }
}

/// What a condition leaves out of the second product does not show, be it infinite or NaN.
#[test]
fn values_left_out_do_not_show() {
    for text in [
        "p: bf16[i, j] = softmax[j where j <= i](s[i, j])
         o[i, e] = sum[j where j <= i](p[i, j] * v[j, e])",
        "p: bf16[i, j] = softmax[j where j < len[0]](s[i, j])
         o[i, e] = sum[j where j < len[0]](p[i, j] * v[j, e])",
    ] {
        let g = graph(&head(text), "t", "S=130 L=200 D=8 E=8");
        let mut with = inputs(&g);
        let mut v: Vec<f64> = (0..200 * 8).map(|i| (i % 19) as f64 / 8.0 - 1.0).collect();
        v[8 * 120 + 3] = f64::NAN;
        v[8 * 199 + 6] = f64::INFINITY;
        v[8 * 128..8 * 129].fill(f64::NEG_INFINITY);
        let len = HostTensor::from_f64(girih_compiler::vocab::dtype::DType::I32, &[1], &[150.0]);
        with.tensors.insert("len".into(), len);
        with.tensors.insert("v".into(), HostTensor::from_f64(g.tensors[2].dtype, &[200, 8], &v));
        agrees(&g, &with);
    }
}

/// Where no kernel takes the chain, a condition that only the weights have still leaves a product of matrices.
#[test]
fn masked_products() {
    let text = "p: bf16[i, j] = softmax[j where j <= i](s[i, j])
         o[i, e] = sum[j where j <= i](p[i, j] * v[j, e])";
    let g = graph(&head(text), "t", "S=70 L=150 D=16 E=24");
    let mut with = inputs(&g);
    let mut v: Vec<f64> = (0..150 * 24).map(|i| (i % 19) as f64 / 8.0 - 1.0).collect();
    v[24 * 60 + 3] = f64::NAN;
    v[24 * 100 + 5] = f64::INFINITY;
    with.tensors.insert("v".into(), HostTensor::from_f64(g.tensors[2].dtype, &[150, 24], &v));
    let force = Some(Form::Contract);
    let p = plan(&g, &PlanOptions { chain: false, force, ..PlanOptions::default() });
    let forms: Vec<_> = p.kernels.iter().map(|k| k.form.name()).collect();
    assert_eq!(forms, ["contract", "row", "contract"]);
    for target in ["sm_80", "sm_90a"] {
        let target = Target::parse(target).expect("a target of the table");
        let program = plan_to_program(&p, target, &Schedule::default()).expect("it lowers");
        let got = sim::run(&program, &with, &SimOptions::default()).unwrap_or_else(|e| panic!("{e}"));
        let want = reference::run(&g, &with).expect("no fault");
        reference::compare(&want.outputs["o"], &got.outputs["o"]).unwrap_or_else(|m| panic!("{m}"));
    }
}

/// Rows without any score, where nothing guards against 0 / 0.
#[test]
fn rows_of_nothing_by_hand() {
    let text = "m[i] = max[j](if j > i + L - S then -inf else s[i, j])
         z[i] = sum[j](exp((if j > i + L - S then -inf else s[i, j]) - m[i]))
         p: bf16[i, j] = exp((if j > i + L - S then -inf else s[i, j]) - m[i]) / z[i]
         o[i, e] = sum[j](p[i, j] * v[j, e])";
    check(&head(text), "S=204 L=200 D=64 E=64");
}

/// Matrices as frameworks lay them out.
#[test]
fn layouts() {
    let middle = "
op t[B, H, G, S, L, D](q: bf16[B, S, H*G, D], k: bf16[B, L, H, D], v: bf16[B, L, H, D]) -> (o: bf16[B, S, H*G, D]) {
    s[b, h, i, j] = sum[d](q[b, i, h, d] * k[b, j, h/G, d]) / sqrt(D)
    p: bf16[b, h, i, j] = softmax[j](if j > i then -inf else s[b, h, i, j])
    o[b, i, h, e] = sum[j](p[b, h, i, j] * v[b, j, h/G, e])
}";
    check(middle, "B=2 H=1 G=2 S=130 L=140 D=64");
    check(middle, "B=1 H=2 G=3 S=129 L=150 D=64");
    let packed = "
op t[B, H, S, D](x: bf16[S, B, 3, H, D]) -> (o: bf16[S, B, H, D]) {
    s[b, h, i, j] = sum[d](x[i, b, 0, h, d] * x[j, b, 1, h, d]) / sqrt(D)
    p: bf16[b, h, i, j] = softmax[j](s[b, h, i, j])
    o[i, b, h, e] = sum[j](p[b, h, i, j] * x[j, b, 2, h, e])
}";
    check(packed, "B=2 H=2 S=131 D=64");
    let transposed = "
op t[S, L, D](q: bf16[D, S], k: bf16[D, L], v: bf16[D, L]) -> (o: bf16[S, D]) {
    s[i, j] = sum[d](q[d, i] * k[d, j]) / sqrt(D)
    p: bf16[i, j] = softmax[j](s[i, j])
    o[i, e] = sum[j](p[i, j] * v[e, j])
}";
    check(transposed, "S=136 L=264 D=72");
}

/// Terms and columns that fill no line of 64, or more than two.
#[test]
fn sizes_of_heads() {
    for words in ["D=32 E=32", "D=80 E=80", "D=192 E=128", "D=8 E=256", "D=256 E=24"] {
        check(GROUPED, &format!("B=1 H=1 G=1 S=129 L=150 {words}"));
    }
}

/// Matrices that are rounded as they are stored first.
#[test]
fn rounded_matrices() {
    let text = "
op t[S, L, D](q: f32[S, D], k: f32[L, D], v: f32[L, D]) -> (o: f32[S, D]) {
    s[i, j] = sum[d](bf16(q[i, d]) * bf16(k[j, d])) / sqrt(D)
    p: bf16[i, j] = softmax[j](s[i, j])
    o[i, e] = sum[j](p[i, j] * bf16(v[j, e]))
}";
    check(text, "S=200 L=300 D=64");
}
