//! Statements of other languages and what they are here.

use super::statement;

/// The op's head, the statement, and what comes of it.
const CASES: &[(&str, &str, &str)] = &[
    ("x: f32[M, N]) -> (y: f32[M]", "y = np.sum(x, axis=-1)", "y[m] = sum[n](x[m, n])"),
    ("x: f32[M, N]) -> (y: f32[M]", "y[m] = x.sum(axis=1)", "y[m] = sum[n](x[m, n])"),
    ("x: f32[M, N]) -> (y: f32[M]", "y[m] = x.sum(axis=1)[m]", "y[m] = sum[n](x[m, n])"),
    ("x: f32[M, N]) -> (y: f32[M]", "y[m] = sum(n, x[m, n])", "y[m] = sum[n](x[m, n])"),
    ("x: f32[M, N]) -> (y: f32[M]", "y[m] = sum(n in 1..N, x[m, n])", "y[m] = sum[n in 1..N](x[m, n])"),
    ("x: f32[M, N]) -> (y: f32[M]", "y[m] = tl.sum(x[m, n], axis=1)", "y[m] = sum[n](x[m, n])"),
    ("x: f32[M, N]) -> (y: f32[M]", "y[m] = sum(x[m, :])", "y[m] = sum[n](x[m, n])"),
    ("x: f32[M, N]) -> (y: f32[M, N]", "y = torch.softmax(x, dim=-1)", "y[m, n] = softmax[n](x[m, n])"),
    (
        "x: f32[M, N]) -> (y: f32[M, N]",
        "y[m, n] = F.softmax(x[m, n], dim=0)",
        "y[m, n] = softmax[m](x[m, n])",
    ),
    (
        "x: f32[M, N]) -> (y: f32[M]",
        "y = np.var(x, axis=1)",
        "y[m] = mean[n]((x[m, n] - mean[i](x[m, i])) ** 2)",
    ),
    ("x: f32[N]) -> (y: f32[N - 1]", "y = x[1:] - x[:-1]", "y[i] = x[i + 1] - x[i]"),
    ("x: f32[M], z: f32[N]) -> (y: f32[M, N]", "y = x[:, None] * z[None, :]", "y[m, n] = x[m] * z[n]"),
    ("x: f32[N]) -> (y: f32[N]", "y = np.where(x > 0, x, 0)", "y[n] = if x[n] > 0 then x[n] else 0"),
    ("a: f32[M, K], b: f32[N, K]) -> (c: f32[M, N]", "c = a @ b.T", "c[m, n] = sum[k](a[m, k] * b[n, k])"),
    (
        "a: f32[M, K], b: f32[K, N]) -> (c: f32[M, N]",
        "c = np.einsum(\"mk,kn->mn\", a, b)",
        "c[m, n] = sum[k](a[m, k] * b[k, n])",
    ),
    (
        "x: f32[B, H*D]) -> (y: f32[B, H, D]",
        "y = rearrange(x, \"b (h d) -> b h d\")",
        "y[b, h, d] = x[b, h*D + d]",
    ),
    (
        "x: f32[M, N]) -> (y: f32[M], i: i32[M]",
        "y, i = x.max(dim=1)",
        "y[m] = max[n](x[m, n])  i[m] = argmax[n](x[m, n])",
    ),
    ("x: f32[N]) -> (y: f32[N]", "y = np.sort(x)", "order[i] = argsort[i](x[i])  y[n] = x[order[n]]"),
    (
        "x: f32[N]) -> (y: f32[N]",
        "if (x[i] > 0) { y[i] = x[i]; } else { y[i] = 0; }",
        "y[i] = if x[i] > 0 then x[i] else 0",
    ),
    ("x: f32[N]) -> (y: f32[N]", "for (int i = 0; i < N; i++) { y[i] = x[i]; }", "y[i] = x[i]"),
    ("x: f32[N], b: i32[N]) -> (h: f32[B]", "atomicAdd(&h[b[i]], x[i])", "h[b[i]] += x[i]"),
    ("x: f32[N]) -> (y: f16[N]", "y[i] = x[i].to(torch.float16)", "y[i] = f16(x[i])"),
    ("x: f32[N]) -> (y: f32[N]", "y[i] = x[i] > 0 ? x[i] : 0.0f", "y[i] = if x[i] > 0 then x[i] else 0.0"),
];

#[test]
fn statements_of_other_languages_are_rewritten() {
    for (head, foreign, ours) in CASES {
        let text = format!("op f[B, H, D, M, N, K]({head}) {{\n    {foreign}\n}}\n");
        let at = text.find(foreign).expect("it is in the text");
        let found = statement(&text, at + 1, false).map(|e| e.text);
        assert_eq!(found.as_deref(), Some(*ours), "{foreign}");
    }
}

#[test]
fn what_is_right_is_left_alone() {
    let text = "op f[N](x: f32[N]) -> (y: f32[N]) {\n    y[i] = relu(x[i])\n}\n";
    assert_eq!(statement(text, text.find("relu").expect("it is there"), false), None);
}

/// Values within values are looked at again and again: statements of any depth and length end soon, with or without a guess.
#[test]
fn deep_and_long_statements_end() {
    let deep = |n: usize| format!("{}x{}", "np.sum(".repeat(n), ", axis=1)".repeat(n));
    let long = ["np.sum(x, axis=1)"; 200].join(" + ");
    for value in [deep(16), deep(60), deep(3000), long] {
        let text = format!("op f[M, N](x: f32[M, N]) -> (y: f32[M]) {{\n    y = {value}\n}}\n");
        let began = std::time::Instant::now();
        let at = text.find("np").expect("it stands there");
        super::guess(&text, at, "");
        assert!(began.elapsed().as_secs() < 5, "{}", &text[..80]);
    }
}
