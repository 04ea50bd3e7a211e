//! What must be told, or stay bounded, before a compiler for the GPU is asked: shared memory, threads, unrolling, names.

mod common;

use common::Case;
use girih_compiler::ir::program::Program;
use girih_compiler::lower::simt_to_cuda::print;
use girih_compiler::lower::{Refusal, Schedule, plan_to_program};
use girih_compiler::pass::graph_to_plan::{PlanOptions, plan};
use girih_compiler::vocab::target::{TARGETS, Target};
use girih_dsl::source::Sources;

fn lower(case: &Case, target: &Target) -> Result<Program, Refusal> {
    let graph = case.graph().unwrap_or_else(|e| panic!("{}\n{e}", case.text));
    plan_to_program(&plan(&graph, &PlanOptions::default()), target, &Schedule::default())
}

fn target(name: &str) -> &'static Target {
    Target::parse(name).expect("a target of the table")
}

#[test]
fn shared_memory_is_counted_before_nvrtc_is_asked() {
    let settings = [
        ("f32", 128, 128, 32, 4),
        ("f16", 256, 256, 64, 3),
        ("f16", 128, 256, 64, 4),
        ("f16", 64, 64, 32, 3),
    ];
    let mut refused = 0;
    for (dtype, m, n, k, stages) in settings {
        let text = format!(
            "op f[M, N, K](a: {dtype}[M, K], b: {dtype}[N, K]) -> (c: {dtype}[M, N]) {{\n c[m, n] = sum[k](a[m, k] * b[n, k])\n}}
            tile f {{ block m = {m}, n = {n} step k = {k} stages = {stages} }}"
        );
        let case = Case::new(&text).dim("M", 1024).dim("N", 1024).dim("K", 512);
        for t in TARGETS.iter().filter(|t| t.cp_async) {
            match lower(&case, t) {
                Ok(program) => {
                    for k in &program.kernels {
                        assert!(k.shared_bytes() <= t.shared_per_block, "{} on {}", k.shared_bytes(), t.name);
                    }
                }
                Err(why) => {
                    refused += 1;
                    assert!(why.setting.is_some(), "{}: {}", t.name, why.message);
                    let counted = why.message.contains(&t.shared_per_block.to_string());
                    assert!(counted || why.message.contains("registers"), "{}: {}", t.name, why.message);
                }
            }
        }
    }
    assert!(refused > 2, "the large tiles fit no small device: {refused}");
}

#[test]
fn launch_bounds_are_printed() {
    let text =
        "op f[N](x: f32[N]) -> (y: f32[N]) {\n y[i] = erf(x[i]) * tanh(x[i])\n}\ntile f { threads = 1024 }";
    let program = lower(&Case::new(text).dim("N", 5000), target("sm_80")).expect("it lowers");
    let cuda = print(&program, target("sm_80"), &Sources::default());
    assert!(cuda.contains("__launch_bounds__(1024"), "{cuda}");
}

#[test]
fn unrolling_has_a_limit() {
    let text = |n: i64| {
        format!(
            "op f[N](x: f32[N, 2000]) -> (y: f32[N]) {{\n y[i] = x[i, 0] + sum[k in 1..17](sin(x[i, k]) * x[i, k * 2])\n}}
            tile f {{ unroll k = {n} }}"
        )
    };
    let case = |n| Case::new(&text(n)).dim("N", 7);
    let program = lower(&case(16), target("sm_80")).expect("16 copies are few");
    assert!(print(&program, target("sm_80"), &Sources::default()).contains("#pragma unroll 16"));
    let why = lower(&case(1024), target("sm_80")).expect_err("1024 copies are many");
    assert_eq!(why.setting.as_deref(), Some("unroll k"));
    assert!(why.message.contains("statements"), "{}", why.message);
}

/// Words that mean something in C++ or CUDA.
const WORDS: &str = "alignas asm auto bool break case catch char class const constexpr continue decltype default delete do double
    enum explicit export extern float for friend goto inline int long mutable namespace new noexcept nullptr operator private
    protected public register return short signed sizeof static struct switch template this throw try typedef typeid typename
    union unsigned using virtual void volatile while xor __global__ __shared__ __device__ __launch_bounds__ threadIdx blockIdx
    blockDim gridDim warpSize half half2 float4 dim3 uint size_t printf assert malloc free memcpy main NULL INFINITY NAN
    atomicAdd expf rsqrtf fmaf y0 j1 jn clock linux unix";

#[test]
fn every_reserved_word_is_a_name() {
    for word in WORDS.split_whitespace() {
        // As op, size, tensor, local and axis in turn: each is a name of its own.
        let text = format!(
            "op {word}[{word}N](a_{word}: f32[{word}N], {word}: f32[{word}N]) -> (r: f32[{word}N], s: f32) {{
                t{word}[ax] = {word}[ax] + a_{word}[ax]
                r[ax] = t{word}[ax] * 2
                s = sum[k](r[k])
            }}
            op g[N](x: f32[N, 5]) -> (y: f32[N]) {{ y[i] = x[i, 0] + sum[{word} in 1..4](x[i, {word}]) }}
            op h[N](x: f32[N, 5]) -> (y: f32[N]) {{ {word}[i] = sum[k in 1..4](x[i, k]) y[i] = {word}[i] / (1 + abs({word}[i])) }}"
        );
        for op in ["g", "h", word] {
            let from = text.find(&format!("op {op}[")).expect("it is there");
            let end = text[from + 3..].find("op ").map_or(text.len(), |i| from + 3 + i);
            let size = if op == word { format!("{word}N") } else { "N".into() };
            let program = lower(&Case::new(&text[from..end]).dim(&size, 6), target("sm_80"));
            let program = program.unwrap_or_else(|e| panic!("{word}: {}", e.message));
            let cuda = print(&program, target("sm_80"), &Sources::default());
            for line in cuda.lines().filter(|l| !l.trim_start().starts_with("//")) {
                for ty in ["int ", "float ", "i64 ", "bool ", "* ", "__restrict__ "] {
                    let declared = [" =", ";", ",", ")", "["].map(|end| format!("{ty}{word}{end}"));
                    assert!(!declared.iter().any(|d| line.contains(d)), "{op} declares {word}: {line}");
                }
            }
        }
    }
}

/// Chains that associativity and commutativity would blow up stay one kernel, planned at once.
#[test]
fn long_chains_stay_small() {
    let start = std::time::Instant::now();
    for n in [4, 16, 64] {
        let sum: Vec<String> = (0..n).map(|i| format!("x{i}[i]")).collect();
        let params: Vec<String> = (0..n).map(|i| format!("x{i}: f32[N]")).collect();
        let text = format!(
            "op f[N]({}) -> (y: f32[N]) {{\n y[i] = {} + x0[i] * 0 * x1[i] * 0\n}}",
            params.join(", "),
            sum.join(" + ")
        );
        let graph = Case::new(&text).dim("N", 9).graph().unwrap_or_else(|e| panic!("{e}"));
        let plan = plan(&graph, &PlanOptions::default());
        assert_eq!(plan.kernels.len(), 1, "{n} terms");
        assert!(plan.graph.exprs.len() < 12 * n + 60, "{n} terms became {} nodes", plan.graph.exprs.len());
    }
    assert!(start.elapsed().as_secs() < 60, "planning took {:?}", start.elapsed());
}
