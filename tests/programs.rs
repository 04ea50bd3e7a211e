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
