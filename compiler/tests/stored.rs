//! Choosing what is stored: where the choice value by value goes wrong, where it must stay, and the suite of the
//! benchmarks, which the search must not make worse in the model.

#[path = "common/words.rs"]
mod words;

use girih_compiler::host::HostTensor;
use girih_compiler::ir::graph::{Expr, Graph, Role, Stmt};
use girih_compiler::ir::plan::{Form, Plan};
use girih_compiler::lower::{Schedule, plan_to_program};
use girih_compiler::pass::graph_to_plan::{PlanOptions, cost, egraph_text, plan, plans};
use girih_compiler::pass::{facts, inline};
use girih_compiler::reference::{self, Inputs};
use girih_compiler::sim::{self, SimOptions};
use girih_compiler::vocab::target::Target;
use std::collections::BTreeSet;
use std::path::Path;
use words::graph;

fn greedy(g: &Graph) -> Plan {
    plan(g, &PlanOptions { search: false, ..PlanOptions::default() })
}

fn found(g: &Graph) -> Plan {
    plan(g, &PlanOptions::default())
}

fn forms(p: &Plan) -> Vec<&'static str> {
    p.kernels.iter().map(|k| k.form.name()).collect()
}

fn stored(p: &Plan) -> Vec<String> {
    let targets = p.graph.stmts.iter().filter(|s| matches!(s, Stmt::Define(_))).flat_map(Stmt::targets);
    targets.map(|t| p.graph.tensor(t).name.clone()).collect()
}

const TWICE: &str = "
op twice[M, N, K](x: bf16[M, K], a: bf16[N, K], b: bf16[N, K]) -> (y: bf16[M, N], z: bf16[M, N]) {
    y[m, n] = sum[k](bf16(gelu(x[m, k])) * a[n, k])
    z[m, n] = sum[k](bf16(gelu(x[m, k])) * b[n, k])
}";

/// The program names no value for what both products start from; the planner makes one.
#[test]
fn an_expensive_operand_of_two_products_is_stored_once() {
    let g = graph(TWICE, "twice", "M=4096 N=4096 K=4096");
    let (before, after) = (greedy(&g), found(&g));
    assert_eq!(stored(&before), ["y", "z"]);
    assert_eq!(forms(&after), ["map", "contract"], "{}", after.notes.join("\n"));
    assert!(cost(&after) < 0.8 * cost(&before), "{} and {}", cost(&before), cost(&after));
}

#[test]
fn a_cheap_broadcast_is_computed_again() {
    let text = "
op spread[M, N](a: f32[M], b: f32[N], x: f32[M, N]) -> (y: f32[M, N], z: f32[M, N]) {
    s[m, n] = a[m] + b[n]
    y[m, n] = x[m, n] * s[m, n]
    z[m, n] = x[m, n] - s[m, n]
}";
    let p = found(&graph(text, "spread", "M=8192 N=8192"));
    assert_eq!(stored(&p), ["y", "z"]);
    assert_eq!(forms(&p), ["map"]);
    assert_eq!(p.bytes_saved, 2 * 4 * 8192 * 8192);
}

const SIBLINGS: &str = "
op qkv[T, D](x: bf16[T, D], wq: bf16[D, D], wk: bf16[D, D], wv: bf16[D, D]) -> (q: bf16[T, D], k: bf16[T, D], v: bf16[T, D]) {
    q[t, d] = sum[i](x[t, i] * wq[d, i])
    k[t, d] = sum[i](x[t, i] * wk[d, i])
    v[t, d] = sum[i](x[t, i] * wv[d, i])
}";

/// Small products that share an operand are one launch; of large ones two share the registers of a tile.
#[test]
fn small_sibling_products_share_a_kernel() {
    assert_eq!(forms(&found(&graph(SIBLINGS, "qkv", "T=128 D=256"))), ["contract"]);
    assert_eq!(forms(&found(&graph(SIBLINGS, "qkv", "T=4096 D=4096"))), ["contract"; 2]);
}

/// A reduction that two statements use is neither computed per point nor a kernel of its own.
#[test]
fn a_reduction_used_twice_joins_its_readers() {
    let text = "
op both[M, N](x: f32[M, N]) -> (y: f32[M, N], z: f32[M, N]) {
    s[m] = sum[n](x[m, n])
    y[m, n] = x[m, n] / s[m]
    z[m, n] = x[m, n] - s[m]
}";
    let p = found(&graph(text, "both", "M=4096 N=4096"));
    assert_eq!(forms(&p), ["row"], "{}", p.notes.join("\n"));
}

/// A flag of few terms that every point of a row needs costs less than a kernel that stores it.
#[test]
fn a_short_reduction_is_computed_where_it_is_read() {
    let text = "
op pick[R, E, N](x: f32[R, N], off: i32[E] in 0..=R) -> (y: f32[R, N]) {
    g[r in 0..R] = sum[e](i32(off[e] <= r))
    y[r, n] = x[r, n] * f32(g[r])
}";
    let g = graph(text, "pick", "R=64 E=4 N=64");
    assert!(cost(&found(&g)) <= cost(&greedy(&g)));
    assert_eq!(found(&g).kernels.len(), 1);
}

/// What a tile block says stands.
#[test]
fn tile_blocks_are_obeyed() {
    let inlined = format!("{TWICE}\ntile twice {{ inline = {{h}} }}")
        .replace(
            "y[m, n] = sum[k](bf16(gelu(x[m, k]))",
            "h: bf16[m, k] = gelu(x[m, k])\n    y[m, n] = sum[k](h[m, k]",
        )
        .replace("sum[k](bf16(gelu(x[m, k]))", "sum[k](h[m, k]");
    let p = found(&graph(&inlined, "twice", "M=4096 N=4096 K=4096"));
    assert_eq!(stored(&p), ["y", "z"], "{}", p.notes.join("\n"));
    let kept = inlined.replace("inline", "store");
    let p = found(&graph(&kept, "twice", "M=64 N=64 K=64"));
    assert!(stored(&p).contains(&"h".into()));
}

/// Operators of the benchmarks at their sizes, with the forms they must have.
const SUITE: &[(&str, &str, &[Form])] = {
    use Form::*;
    &[
        ("gemm_nt", "T=bf16 M=8192 N=8192 K=8192", &[Contract]),
        ("gemm_nt", "T=f32 M=4096 N=4096 K=4096", &[Contract]),
        ("linear_gelu", "T=bf16 M=8192 N=4096 K=4096", &[Contract]),
        ("swiglu_up", "T=bf16 M=8192 N=14336 K=4096", &[Contract]),
        ("swiglu_up", "T=bf16 M=512 N=1024 K=512", &[Contract]),
        ("gemm_fp8", "M=8192 N=8192 K=8192", &[Contract]),
        ("gemm_i8", "M=8192 N=8192 K=8192", &[Contract]),
        ("w4_gemm", "M=16 N=8192 K=8192 GS=128", &[Contract]),
        ("bmm", "T=bf16 B=64 M=1024 N=1024 K=1024", &[Contract]),
        ("conv", "T=f16 N=64 H=56 W=56 C=64 F=64 R=3 S=3 st=1 pad=1", &[Contract]),
        ("attention", "T=bf16 B=4 H=32 G=1 S=4096 L=4096 D=128 causal=true", &[Fold]),
        ("rope", "T=bf16 B=4 H=32 S=4096 D=128", &[Map]),
        ("softmax", "T=bf16 M=65536 N=4096", &[Row]),
        ("rmsnorm", "T=bf16 M=32768 N=4096", &[Row]),
        ("layernorm", "T=bf16 M=32768 N=4096", &[Row]),
        ("add_rmsnorm", "T=bf16 M=32768 N=4096", &[Row]),
        ("silu_mul", "T=bf16 M=16384 N=14336", &[Map]),
        ("gelu_bias", "T=bf16 M=16384 N=16384", &[Map]),
        ("rowsum", "T=f32 M=8192 N=16384", &[Row]),
        ("colsum", "T=f32 M=8192 N=16384", &[Row]),
        ("argmax", "T=bf16 M=4096 N=128256", &[Row]),
        ("cumsum", "T=f32 M=4096 N=32768", &[Scan]),
        ("transpose", "T=bf16 M=16384 N=16384", &[Map]),
        ("logsumexp_ce", "T=bf16 M=8192 N=128256", &[Row]),
        ("quant_e4m3_row", "T=bf16 M=16384 N=8192", &[Row]),
        ("dropout_add", "T=bf16 M=16384 N=8192", &[Map]),
        ("stencil_2d5", "T=f32 N=8192", &[Map]),
    ]
};

#[test]
fn the_suite_keeps_its_forms_and_gets_no_worse() {
    let kinds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/bench/kinds.tile");
    let text = std::fs::read_to_string(kinds).expect("the benchmarks' operators are in the repository");
    for (op, words, want) in SUITE {
        let g = graph(&text, op, words);
        let (before, after) = (greedy(&g), found(&g));
        let got: Vec<Form> = after.kernels.iter().map(|k| k.form).collect();
        let (a, b) = (cost(&before), cost(&after));
        assert!(b <= a + 1e-9, "{op} {words}: {a} us became {b} us");
        assert_eq!(&got, want, "{op} {words}: {a} us, {b} us\n{}", after.notes.join("\n"));
    }
}

/// The same plan each time.
#[test]
fn the_search_is_deterministic() {
    let g = graph(TWICE, "twice", "M=4096 N=4096 K=4096");
    let text = |p: &Plan| girih_compiler::ir::plan_text::print(p);
    assert_eq!(text(&found(&g)), text(&found(&g)));
}

const WAYS: &str = "
op low_rank[M, N, K, R](x: bf16[M, K], a: bf16[K, R], b: bf16[R, N]) -> (y: bf16[M, N]) {
    w[k, n] = sum[r](a[k, r] * b[r, n])
    y[m, n] = sum[k](x[m, k] * w[k, n])
}
op linear_attention[S, D, E](q: bf16[S, D], k: bf16[S, D], v: bf16[S, E]) -> (o: bf16[S, E]) {
    a[i, j] = sum[d](q[i, d] * k[j, d]) / sqrt(D)
    o[i, e] = sum[j](a[i, j] * v[j, e])
}
op both_ways[M, N, K](x: bf16[M, K], w: bf16[N, K]) -> (y: bf16[M, N], z: bf16[N, M]) {
    y[m, n] = sum[k](x[m, k] * w[n, k])
    z[i, j] = sum[l](w[i, l] * x[j, l])
}
op two_means[M, N](x: f32[M, N]) -> (y: f32[M, N], v: f32[M]) {
    mean[m] = sum[n](x[m, n]) / N
    y[m, n] = x[m, n] - mean[m]
    mu[m] = sum[n](x[m, n] / N)
    v[m] = sum[n]((x[m, n] - mu[m]) * (x[m, n] - mu[m])) / N
}
op two_norms[M, N](x: f32[M, N], g: f32[N]) -> (y: f32[M, N], l: f32[M]) {
    s[m] = sum[n](g[n] * x[m, n] * (g[n] * x[m, n])) / 8
    l[m] = sqrt(s[m])
    y[m, n] = x[m, n] * s[m] + sum[k](x[m, k] * g[k] * (x[m, k] * g[k]) / 8)
}
op mean_of_layer[M, N, K](x: f32[M, K], w: f32[N, K], b: f32[N]) -> (y: f32[M]) {
    t[m, n] = sum[k](x[m, k] * w[n, k]) + b[n]
    y[m] = mean[n](t[m, n])
}
op mean_of_shared_layer[M, N, K](x: f32[M, K], w: f32[N, K], b: f32[N]) -> (t: f32[M, N], y: f32[M]) {
    t[m, n] = sum[k](x[m, k] * w[n, k]) + b[n]
    y[m] = mean[n](t[m, n])
}";

fn ways(op: &str, words: &str) -> (Graph, Plan) {
    let g = graph(WAYS, op, words);
    let p = found(&g);
    (g, p)
}

fn says(p: &Plan, all: &[&str]) -> bool {
    p.notes.iter().any(|n| all.iter().all(|part| n.contains(part)))
}

/// The sums of a product with a product change places where that is less work, and only there.
#[test]
fn products_of_products_are_grouped_by_what_they_cost() {
    let (g, p) = ways("low_rank", "M=4096 N=4096 K=4096 R=16");
    assert_eq!(stored(&p).len(), 2, "{}", p.notes.join("\n"));
    assert!(!stored(&p).contains(&"w".into()) && cost(&p) < 0.1 * cost(&greedy(&g)));
    assert!(
        says(&p, &["y is made in another way", "by regroup-sums", "without w"]),
        "{}",
        p.notes.join("\n")
    );
    let (g, p) = ways("low_rank", "M=8192 N=256 K=256 R=256");
    assert_eq!(stored(&p), ["w", "y"], "{}", p.notes.join("\n"));
    assert_eq!(cost(&p), cost(&greedy(&g)));
}

/// The scale between the products does not stand in the way.
#[test]
fn linear_attention_never_makes_its_scores() {
    let (g, p) = ways("linear_attention", "S=16384 D=64 E=64");
    assert!(!stored(&p).contains(&"a".into()), "{}", p.notes.join("\n"));
    assert!(cost(&p) < 0.1 * cost(&greedy(&g)), "{} and {}", cost(&p), cost(&greedy(&g)));
    // Short sequences of wide heads: the scores are the smaller matrix.
    let (_, p) = ways("linear_attention", "S=64 D=512 E=512");
    assert!(stored(&p).contains(&"a".into()), "{}", p.notes.join("\n"));
}

/// A sum along a product's rows is a product with summed weights, a bias apart; one that is stored anyway is read.
#[test]
fn a_sum_along_a_product_sums_the_weights_first() {
    let (g, p) = ways("mean_of_layer", "M=1024 N=4096 K=4096");
    assert!(!stored(&p).contains(&"t".into()), "{}", p.notes.join("\n"));
    assert!(!forms(&p).contains(&"contract") && cost(&p) < 0.3 * cost(&greedy(&g)), "{:?}", forms(&p));
    let (_, p) = ways("mean_of_shared_layer", "M=1024 N=4096 K=4096");
    assert_eq!(stored(&p), ["t", "y"], "{}", p.notes.join("\n"));
}

/// A product and the same with its factors and its axes the other way round.
#[test]
fn a_product_is_made_once_however_it_is_written() {
    let (g, p) = ways("both_ways", "M=4096 N=4096 K=4096");
    assert_eq!(forms(&p), ["contract", "map"], "{}", p.notes.join("\n"));
    assert!(cost(&p) < 0.6 * cost(&greedy(&g)));
}

/// One mean, though one statement divides the sum and the other the terms.
#[test]
fn two_spellings_of_a_reduction_are_one_value() {
    for op in ["two_means", "two_norms"] {
        let (g, p) = ways(op, "M=4096 N=4096");
        let sums = |p: &Plan| {
            let all = p.graph.stmts.iter().flat_map(facts::roots);
            let below = all.flat_map(|e| inline::below(&p.graph, e));
            let folds = below.filter(|&e| matches!(p.graph.expr(e), Expr::Fold(_)));
            folds.collect::<BTreeSet<_>>().len()
        };
        assert!(sums(&p) < sums(&greedy(&g)), "{op}: {} sums\n{}", sums(&p), p.notes.join("\n"));
        assert!(cost(&p) <= cost(&greedy(&g)));
    }
}

/// What a definition is rounded to is stored so: no sum goes through it.
#[test]
fn a_rounding_stays_between_two_products() {
    let text = WAYS.replace("    w[k, n] =", "    w: bf16[k, n] =");
    let p = found(&graph(&text, "low_rank", "M=4096 N=4096 K=4096 R=16"));
    assert!(stored(&p).contains(&"w".into()), "{}", p.notes.join("\n"));
}

fn inputs(g: &Graph) -> Inputs {
    let mut all = Inputs::default();
    for t in g.tensors.iter().filter(|t| t.role == Role::Input) {
        let count: i64 = t.dims.iter().product();
        let values: Vec<f64> = (0..count).map(|i| ((i * 7919) % 31) as f64 / 16.0 - 1.0).collect();
        all.tensors.insert(t.name.clone(), HostTensor::from_f64(t.dtype, &t.dims, &values));
    }
    all
}

/// Each plan that the classes offer, in the reference and as a program in the simulator.
#[test]
fn every_spelling_keeps_the_meaning() {
    let target = Target::parse("sm_90a").expect("a target of the table");
    let mut tried = BTreeSet::new();
    for (op, words) in [
        ("low_rank", "M=67 N=45 K=50 R=3"),
        ("low_rank", "M=16 N=16 K=16 R=16"),
        ("linear_attention", "S=70 D=24 E=24"),
        ("both_ways", "M=33 N=33 K=20"),
        ("two_means", "M=5 N=40"),
        ("mean_of_layer", "M=9 N=40 K=33"),
        ("two_norms", "M=5 N=5"),
    ] {
        let g = graph(WAYS, op, words);
        let given = inputs(&g);
        let want = reference::run(&g, &given).expect("no faults");
        for p in plans(&g, &PlanOptions::default(), 8).into_iter().map(|a| a.plan) {
            let text = || format!("{op} {words}: {}\n{}", stored(&p).join(", "), p.notes.join("\n"));
            let planned = reference::run(&p.graph, &given).unwrap_or_else(|_| panic!("{}", text()));
            let program =
                plan_to_program(&p, target, &Schedule::default()).unwrap_or_else(|_| panic!("{}", text()));
            let ran = sim::run(&program, &given, &SimOptions::default())
                .unwrap_or_else(|e| panic!("{e}: {}", text()));
            for (name, right) in &want.outputs {
                let agree = |got: &HostTensor| reference::compare(right, got);
                agree(&planned.outputs[name].tensor).unwrap_or_else(|e| panic!("{name}: {e}: {}", text()));
                agree(&ran.outputs[name])
                    .unwrap_or_else(|e| panic!("{name} in the simulator: {e}: {}", text()));
            }
            tried.insert((op, stored(&p), forms(&p)));
        }
    }
    assert!(tried.len() > 10, "{tried:?}");
}

/// `emit --stage egraph` names the values as the program does, and says what each may be made of and by which rules.
#[test]
fn the_classes_are_told_in_the_words_of_the_program() {
    let g = graph(WAYS, "low_rank", "M=4096 N=4096 K=4096 R=16");
    let text = egraph_text(&g, &PlanOptions::default());
    for part in [
        "y[m, n] = sum[k]((x[m, k] * w[k, n]))",
        "sum[r]((b[r, n] * sum[k]((x[m, k] * a[k, r]))))",
        "by regroup-sums (reassociates)",
        "w[k@3, n]",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
}
