//! Operators of every kind, at sizes that are zero, one, prime and larger than a tile: each file is well formed, checks,
//! and each op gives on the simulator what the definition says. A line `// at: M=1 N=7; M=130 N=70` above an op says
//! where; capitals are sizes, the rest consts and dtypes. Builds without optimisation take every second point.

use girih::execute::{Inputs, RunOptions};
use girih::{Device, Kernel, random};
use std::path::{Path, PathBuf};

/// Points of one op: its name, and the assignments of each.
struct Tried {
    op: String,
    points: Vec<Vec<(String, String)>>,
}

fn tried(text: &str) -> Vec<Tried> {
    let mut out = Vec::new();
    let mut points = Vec::new();
    for line in text.lines() {
        if let Some(list) = line.strip_prefix("// at: ") {
            let assign = |w: &str| w.split_once('=').map(|(k, v)| (k.to_string(), v.to_string()));
            points = list.split(';').map(|p| p.split_whitespace().filter_map(assign).collect()).collect();
        } else if let Some(rest) = line.strip_prefix("op ") {
            let op = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            if !points.is_empty() {
                out.push(Tried { op: op.to_string(), points: std::mem::take(&mut points) });
            }
        }
    }
    out
}

/// What is wrong with an op at a point.
fn run(kernel: &Kernel, op: &str, point: &[(String, String)], seed: u64) -> Result<(), String> {
    let mut op = kernel.op(op).map_err(|e| e.to_string())?;
    for (name, value) in point {
        op = match value.parse() {
            Ok(n) if name.starts_with(char::is_uppercase) => op.dim(name, n),
            _ => op.constant(name, value),
        };
    }
    let bound = op.bind().map_err(|e| e.to_string())?;
    let mut inputs = Inputs::default();
    for t in bound.inputs() {
        inputs.tensors.insert(t.name.clone(), random::tensor(t, seed).map_err(|e| e.to_string())?);
    }
    let compiled = bound.compile(&Device::sim()).map_err(|e| e.to_string())?;
    let ran = compiled.run(&inputs, &RunOptions { poison: true, timed: 0 }).map_err(|e| e.to_string())?;
    for c in compiled.check(&inputs, &ran.outputs).map_err(|e| e.to_string())? {
        if let Err(e) = &c.result {
            return Err(format!("{}: {e}", c.name));
        }
    }
    Ok(())
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let entries = std::fs::read_dir(folder).expect("the folder is in the repository");
    let mut all: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    all.sort();
    all
}

#[test]
fn operators_of_every_kind_are_right_on_the_simulator() {
    let mut wrong = String::new();
    let mut count = 0;
    for file in files() {
        let name = file.file_name().expect("a file").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).expect("a program is text");
        let once = girih::format(&name, &text).unwrap_or_else(|e| panic!("{e}"));
        let twice = girih::format(&name, &once).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(once, twice, "{name}: formatting is no fixed point");
        let kernel = Kernel::from_text(&name, &text).unwrap_or_else(|e| panic!("{e}"));
        if let Err(e) = kernel.check(false) {
            wrong += &format!("{e}\n");
        }
        for t in tried(&text) {
            for (seed, point) in
                t.points.iter().enumerate().filter(|(n, _)| !cfg!(debug_assertions) || n % 2 == 0)
            {
                count += 1;
                if let Err(e) = run(&kernel, &t.op, point, seed as u64) {
                    wrong += &format!("{name}: {} at {point:?}: {e}\n", t.op);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count > 250, "only {count}");
}

/// The form of each kernel of an op, by name.
fn forms(text: &str, dims: &[(&str, i64)]) -> Vec<String> {
    let kernel = Kernel::from_text("forms.tile", text).unwrap_or_else(|e| panic!("{e}"));
    let op = kernel.only_op().unwrap_or_else(|e| panic!("{e}"));
    let op = dims.iter().fold(op, |op, (name, n)| op.dim(name, *n));
    let plan = op.bind().and_then(|b| b.plan(&Device::sim())).unwrap_or_else(|e| panic!("{e}"));
    plan.kernels.iter().map(|k| k.form.name().to_string()).collect()
}

#[test]
fn recurrences_that_may_reassociate_are_scans_where_that_pays() {
    let rows = |step: &str| {
        format!("op r[B, T](a: f32[B, T], x: f32[B, T]) -> (h: f32[B, T]) {{ h[b, t] = {step} }}")
    };
    let few = [("B", 4), ("T", 1000)];
    for step in [
        "a[b, t] * (h[b, t-1] else 1) + x[b, t]",
        "x[b, t] - a[b, t] * (if t == 0 then 0.5 else h[b, t-1])",
        "a[b, t] * (h[b, t+1] else 0)",
        "max((h[b, t-1] else -inf), x[b, t])",
        "if a[b, t] > 0 then (h[b, t-1] else 0) + x[b, t] else (h[b, t-1] else 0)",
    ] {
        assert_eq!(forms(&rows(step), &few), ["scan"], "{step}");
    }
    for step in [
        "tanh((h[b, t-1] else 0) + x[b, t])",
        "(h[b, t-2] else 0) + x[b, t]",
        "(h[b, t-1] else 0) * (h[b, t-1] else 0) + x[b, t]",
        "x[b, t] + (if a[b, t] > 0 then 0 else (h[b, t-1] else 0))",
        "a[b, t] / (1 + (h[b, t-1] else 0))",
    ] {
        assert_eq!(forms(&rows(step), &few), ["thread"], "{step}");
    }
    // Few steps, and many rows whose neighbours lie side by side, are loops in a thread.
    let step = "a[b, t] * (h[b, t-1] else 1) + x[b, t]";
    assert_eq!(forms(&rows(step), &[("B", 4), ("T", 20)]), ["thread"]);
    let middle =
        "op r[T, D](x: f32[T, D]) -> (h: f32[T, D]) { h[t, d] = 0.5 * (h[t-1, d] else 0) + x[t, d] }";
    assert_eq!(forms(middle, &[("T", 1000), ("D", 64)]), ["scan"]);
    assert_eq!(forms(middle, &[("T", 1000), ("D", 200_000)]), ["thread"]);
    // A state that is rounded at each step keeps its order.
    let half = "op r[T](x: f16[T]) -> (h: f16[T]) { h[t] = 0.5 * (h[t-1] else 0) + x[t] }";
    assert_eq!(forms(half, &[("T", 1000)]), ["thread"]);
}
