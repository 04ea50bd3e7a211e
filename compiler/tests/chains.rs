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

/// A cast rounds where it is written (LANGUAGE.md lets only a local's rounding move), so its terms are made before they are
/// summed; one of what a local has rounded already changes nothing.
#[test]
fn casts_stay_where_they_are() {
    let by_hand = |weight: &str, after: &str| {
        format!(
            "m[i] = max[j](s[i, j])
             z[i] = sum[j](exp(s[i, j] - m[i]))
             o[i, e] = sum[j](bf16({weight}) * v[j, e]){after}"
        )
    };
    let words = "S=256 L=300 D=64 E=64";
    for rest in [
        "p[i, j] = softmax[j](s[i, j])
         o[i, e] = sum[j](bf16(p[i, j]) * v[j, e])",
        "p[i, j] = softmax[j where mask[i, j]](s[i, j])
         o[i, e] = sum[j where mask[i, j]](bf16(p[i, j]) * v[j, e])",
        &by_hand("exp(s[i, j] - m[i]) / z[i]", ""),
        &by_hand("exp(s[i, j] - m[i])", " / z[i]"),
        "p: f16[i, j] = bf16(softmax[j](s[i, j]))
         o[i, e] = sum[j](p[i, j] * v[j, e])",
    ] {
        let g = graph(&head(rest), "t", words);
        let p = plan(&g, &PlanOptions::default());
        assert!(p.kernels.iter().all(|k| k.form != Form::Fold), "{rest}\n{}", p.notes.join("\n"));
        let target = Target::parse("sm_90a").expect("a target of the table");
        let program = plan_to_program(&p, target, &Schedule::default()).expect("it lowers");
        let given = inputs(&g);
        let got = sim::run(&program, &given, &SimOptions::default()).unwrap_or_else(|e| panic!("{e}"));
        let want = reference::run(&g, &given).expect("no fault");
        reference::compare(&want.outputs["o"], &got.outputs["o"]).unwrap_or_else(|m| panic!("{rest}: {m}"));
    }
    let twice = "p: bf16[i, j] = softmax[j](s[i, j])
         o[i, e] = sum[j](bf16(p[i, j]) * v[j, e])";
    check(&head(twice), WORDS);
}

/// What a chain keeps of its rows is stored by its kernel: the logarithm of the sum, in the ways it is written, over rows
/// in another order, where blocks share terms and where a row sees nothing.
#[test]
fn values_of_rows_beside() {
    let by_name = "o[i, e] = sum[j](p[i, j] * v[j, e])
         lse[i] = logsumexp[j](s[i, j])";
    let by_hand = "o[i, e] = sum[j](p[i, j] * v[j, e])
         lse[i] = (max[j](s[i, j]) + log(sum[j](exp(s[i, j] - max[t](s[i, t]))))) * 0.5";
    let twice = "o[i, e] = sum[j](p[i, j] * v[j, e])
         lse[i] = logsumexp[j](s[i, j])
         more[i] = bf16(lse[i]) - sink[0]";
    for (rest, words, split) in
        [(by_name, WORDS, 1), (by_hand, WORDS, 1), (twice, WORDS, 1), (by_name, WORDS, 2)]
    {
        let text = head(&format!("p: bf16[i, j] = softmax[j](s[i, j])\n{rest}"));
        let more = if rest == twice { ", more: f32[S]" } else { "" };
        let text = text.replace("(o: bf16[S, E])", &format!("(o: bf16[S, E], lse: f32[S]{more})"));
        let g = graph(&text, "t", words);
        let p = plan(&g, &PlanOptions::default());
        assert!(
            p.kernels.iter().any(|k| k.form == Form::Fold && k.stmts.len() > 1),
            "{words}: {rest}\n{}",
            p.notes.join("\n")
        );
        assert!(p.kernels.iter().all(|k| k.form != Form::Contract));
        let schedule = Schedule::parse(&format!("o.split j = {split}")).expect("a schedule");
        agrees(&g, &inputs(&g));
        agrees_under(&g, &inputs(&g), &schedule, 384);
    }
    let grouped = GROUPED.replace("-> (o: bf16[B, H*G, S, E])", "-> (o: bf16[B, H*G, S, E], lse: f32[S, B, H*G])").replace(
        "o[b, h, i, e] =",
        "lse[i, b, h] = logsumexp[j](if causal && j > i + L - S then -inf else s[b, h, i, j])\n o[b, h, i, e] =",
    );
    for words in
        ["B=2 H=1 G=2 S=131 L=140 D=32 E=32 causal=true", "B=1 H=1 G=2 S=180 L=140 D=32 E=32 causal=true"]
    {
        let g = graph(&grouped, "t", words);
        let p = plan(&g, &PlanOptions::default());
        assert_eq!(p.kernels.len(), 1, "{}", p.notes.join("\n"));
        agrees(&g, &inputs(&g));
    }
}

/// Scores that are a sum of products, with keys that heads share and matrices of different sizes.
#[test]
fn scores_of_several_products() {
    let text = "
op t[B, H, S, D, R, E](q: bf16[B, H, S, D], k: bf16[B, H, S, D], x: bf16[B, H, S, R], y: bf16[B, S, R], v: bf16[B, H, S, E])
    -> (o: bf16[B, H, S, E])
{
    s[b, h, i, j] = (sum[d](q[b, h, i, d] * k[b, h, j, d]) + sum[r](x[b, h, i, r] * y[b, j, r])) / sqrt(D + R)
    p: bf16[b, h, i, j] = softmax[j where j <= i](s[b, h, i, j])
    o[b, h, i, e] = sum[j](p[b, h, i, j] * v[b, h, j, e])
}";
    check(text, "B=2 H=2 S=140 D=64 R=32 E=64");
    check(text, "B=1 H=2 S=131 D=96 R=64 E=80");
    let shared = "
op t[B, H, L, D, R](q: bf16[B, H, D], k: bf16[B, L, D], x: bf16[B, H, R], y: bf16[B, L, R]) -> (o: bf16[B, H, D]) {
    s[b, h, j] = sum[r](x[b, h, r] * y[b, j, r]) + sum[d](q[b, h, d] * k[b, j, d])
    p: bf16[b, h, j] = softmax[j](s[b, h, j] * 0.125)
    o[b, h, e] = sum[j](p[b, h, j] * k[b, j, e])
}";
    let g = graph(shared, "t", "B=2 H=12 L=300 D=64 R=16");
    agrees_under(&g, &inputs(&g), &Schedule::default(), 256);
}

/// Random words that four terms share, and such that none do.
#[test]
fn dropout() {
    let text = |counter: &str| {
        head(&format!(
            "p[i, j] = softmax[j where j <= i + 60](s[i, j])
             w: bf16[i, j] = if uniform(7, {counter}) < 0.3 then 0.0 else p[i, j] / 0.7
             o[i, e] = sum[j](w[i, j] * v[j, e])"
        ))
    };
    for (counter, shared) in
        [("i * L + j", true), ("(i + 3) * L + j + 8", true), ("i * L + j + 1", false), ("j * S + i", false)]
    {
        let g = graph(&text(counter), "t", "S=131 L=204 D=64 E=64");
        agrees(&g, &inputs(&g));
        let p = plan(&g, &PlanOptions::default());
        let target = Target::parse("sm_90a").expect("a target of the table");
        let program = plan_to_program(&p, target, &Schedule::default()).expect("it lowers");
        let words = program.kernels.iter().flat_map(|k| &k.arrays).any(|a| a.name == "words");
        assert_eq!(words, shared, "{counter}");
    }
}

/// A single row has no axis; heads that ask once are rows of their own.
#[test]
fn one_row() {
    for words in ["B=2 H=70 G=1 S=1 L=150 D=64 E=64", "B=1 H=64 G=1 S=1 L=515 D=64 E=32 causal=true"] {
        let g = graph(GROUPED, "t", words);
        agrees_under(&g, &inputs(&g), &Schedule::default(), 256);
    }
}

/// Blocks that take one tile after the other: equal ones, such as grow with the row, a last turn that not all have, and
/// rows of several heads.
#[test]
fn tile_after_tile() {
    for (words, blocks) in [
        ("B=1 H=3 G=1 S=200 L=260 D=64 E=64", 4),
        ("B=1 H=2 G=1 S=300 L=300 D=64 E=64 causal=true", 3),
        ("B=1 H=2 G=2 S=140 L=400 D=64 E=32 causal=true", 2),
        ("B=5 H=1 G=1 S=40 L=130 D=64 E=64", 2),
    ] {
        let g = graph(GROUPED, "t", words);
        let schedule = Schedule::parse(&format!("o.persistent = {blocks}")).expect("a schedule");
        let threads = if words.contains("S=40") { 256 } else { 384 };
        agrees_under(&g, &inputs(&g), &schedule, threads);
        let target = Target::parse("sm_90a").expect("a target of the table");
        let p = plan(&g, &PlanOptions::default());
        let program = plan_to_program(&p, target, &schedule).expect("it lowers");
        assert_eq!(program.kernels[0].grid[0], blocks, "{words}");
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

/// A weight that a condition made 0 may be left out, or be multiplied with what is infinite or NaN: each element may be
/// as either says, and as nothing else. Weights that are 0 for other reasons are no such weights.
#[test]
fn what_may_be_skipped_is_open_and_no_more() {
    let open = "op t[S, L](q: f16[S, 16], k: f16[L, 16], v: f16[L, 16], n: i32[S]) -> (o: f16[S, 16]) {
        s[i, j] = sum[d](q[i, d] * k[j, d])
        p: f16[i, j] = softmax[j](if j < n[i] && j <= i then s[i, j] else -inf)
        o[i, e] = sum[j](p[i, j] * v[j, e])
    }";
    let g = graph(open, "t", "S=140 L=260");
    let with = |v: &dyn Fn(i64, i64) -> f64, n: &dyn Fn(i64) -> f64| {
        let mut with = inputs(&g);
        let v: Vec<f64> = (0..260 * 16).map(|at| v(at / 16, at % 16)).collect();
        let n: Vec<f64> = (0..140).map(n).collect();
        with.tensors.insert("v".into(), HostTensor::from_f64(g.tensors[2].dtype, &[260, 16], &v));
        with.tensors.insert("n".into(), HostTensor::from_f64(g.tensors[3].dtype, &[140], &n));
        with
    };
    let usual = |j: i64, e: i64| ((j * 5 + e) % 17) as f64 / 8.0 - 1.0;
    // Seen by no row, by rows beyond 100, in the first step of 128 terms and behind it; rows 7, 14, … see nothing.
    let v = |j: i64, e: i64| match (j, e) {
        (135.., 3) | (50, 5) => f64::NAN,
        (100, 7) => f64::INFINITY,
        _ => usual(j, e),
    };
    let n = |i: i64| if i % 7 == 0 { 0.0 } else { (40 + i) as f64 };
    agrees(&g, &with(&v, &n));
    let want = reference::run(&g, &with(&v, &n)).expect("no fault").outputs.remove("o").expect("o is made");
    let at = |i: i64, e: i64| (i * 16 + e) as usize;
    let changed = |places: &[(usize, f64)]| {
        let mut values: Vec<f64> =
            (0..140 * 16).map(|x| girih_compiler::host::as_f64(want.tensor.get(x))).collect();
        places.iter().for_each(|&(x, v)| values[x] = v);
        HostTensor::from_f64(want.tensor.dtype, &want.tensor.dims, &values)
    };
    let right = |places: &[(usize, f64)]| reference::compare(&want, &changed(places)).is_ok();
    let skipped = want.skipped.as_ref().expect("a reading that skips");
    let without = |i, e| skipped.wide[at(i, e)];
    assert!(right(&[]));
    // Row 20 does not see term 50: NaN or the sum of the others. Row 7 sees nothing: NaN or 0.
    assert!(without(20, 5).is_finite() && right(&[(at(20, 5), without(20, 5))]));
    assert!(right(&[(at(7, 3), 0.0)]) && right(&[(at(7, 3), 0.0), (at(14, 3), f64::NAN)]));
    assert!(!right(&[(at(20, 5), without(20, 5) + 0.5)]) && !right(&[(at(7, 3), 0.25)]));
    // Row 60 does see it; nothing is infinite or NaN in column 0.
    assert!(!right(&[(at(60, 5), 0.0)]) && !right(&[(at(60, 0), f64::NAN)]));
    // A bias of −inf is no condition.
    let bias = "op t[S, L](p: f32[S, L], b: f32[S, L], v: f32[L, 4]) -> (o: f32[S, 4]) {
        o[i, e] = sum[j](softmax[j](p[i, j] + b[i, j]) * v[j, e])
    }";
    let g = graph(bias, "t", "S=2 L=3");
    let mut with = inputs(&g);
    let of = |dims: &[i64], values: &[f64]| HostTensor::from_f64(g.tensors[0].dtype, dims, values);
    let inf = f64::INFINITY;
    with.tensors.insert("b".into(), of(&[2, 3], &[0.0, -inf, 0.0, 0.0, 0.0, 0.0]));
    with.tensors
        .insert("v".into(), of(&[3, 4], &[1.0, 1.0, 1.0, 1.0, inf, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]));
    let want = reference::run(&g, &with).expect("no fault").outputs.remove("o").expect("o is made");
    assert!(want.skipped.is_none() && want.wide[0].is_nan() && want.bound[0] == 0.0);
}

/// Rows that are not finite are evaluated again where blocks share the terms too.
#[test]
fn values_left_out_of_shared_terms_do_not_show() {
    let text = "p: bf16[i, j] = softmax[j where j < len[0]](s[i, j])
         o[i, e] = sum[j where j < len[0]](p[i, j] * v[j, e])";
    let g = graph(&head(text), "t", "S=20 L=700 D=8 E=8");
    let mut with = inputs(&g);
    let mut v: Vec<f64> = (0..700 * 8).map(|i| (i % 19) as f64 / 8.0 - 1.0).collect();
    v[8 * 655..].fill(f64::NAN);
    v[8 * 20 + 4] = f64::INFINITY;
    let len = HostTensor::from_f64(girih_compiler::vocab::dtype::DType::I32, &[1], &[652.0]);
    with.tensors.insert("len".into(), len);
    with.tensors.insert("v".into(), HostTensor::from_f64(g.tensors[2].dtype, &[700, 8], &v));
    let schedule = Schedule::parse("o.split j = 4").expect("a schedule");
    agrees_under(&g, &with, &schedule, 256);
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
