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
    no(GROUPED, "B=1 H=1 G=1 S=64 L=256 D=64 E=64");
    no(GROUPED, "B=1 H=1 G=1 S=256 L=256 D=80 E=80");
    // Not rounded: no tensor core takes the weights.
    no(&GROUPED.replace("p: bf16[", "p["), "B=1 H=1 G=1 S=256 L=256 D=64 E=64");
    // Weights of another kind: their sum does not scale with the greatest score.
    no(&GROUPED.replace("softmax[j](", "exp("), "B=1 H=1 G=1 S=256 L=256 D=64 E=64");
    // A tile block speaks of a kernel of one of the values.
    let tiled = format!("{GROUPED}\ntile t {{ store = {{p}} }}");
    no(&tiled, "B=1 H=1 G=1 S=256 L=256 D=64 E=64");
    // Targets without warpgroup instructions.
    let g = graph(GROUPED, "t", "B=1 H=1 G=1 S=256 L=256 D=64 E=64");
    assert!(is_chained(&g));
    let apart = plan(&g, &PlanOptions { chain: false, ..PlanOptions::default() });
    assert_eq!(apart.kernels.len(), 3);
}
