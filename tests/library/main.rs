//! The operator library through every stage: each operator binds for each dtype it takes, and the program that is
//! lowered from it, run in the simulator, agrees with the definition. So does each example of the documentation.
//!
//! One test an operator; `cargo test --test library softmax` runs those with the name.

mod samples;

use girih::{BoundOp, Device, Inputs, Kernel, Op, RunOptions, random};
use girih_compiler::host::{HostTensor, as_i64};
use girih_compiler::vocab::target::Target;
use girih_dsl::ast::SizeKind;
use libtest_mimic::{Arguments, Failed, Trial};
use samples::{DTYPES, Sizes};
use std::collections::BTreeSet;
use std::path::Path;

fn main() {
    let mut programs: Vec<(String, Kernel)> = girih_dsl::library_names()
        .map(|name| {
            let text = girih_dsl::library(name).expect("a module of the list");
            (name.to_string(), loaded(&format!("{name}.tile"), text))
        })
        .collect();
    programs.extend(["language.md", "tutorial.md"].iter().flat_map(|page| examples(page)));
    let ops = programs.iter().flat_map(|(name, k)| k.ops().into_iter().map(move |op| (name, k, op)));
    let trials: Vec<Trial> = ops
        .map(|(name, kernel, op)| {
            let (kernel, own) = (kernel.clone(), op.to_string());
            Trial::test(format!("{name}.{op}"), move || everywhere(&kernel, &own))
        })
        .collect();
    assert!(trials.len() > 200, "only {} operators", trials.len());
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn loaded(name: &str, text: &str) -> Kernel {
    Kernel::from_text(name, text).unwrap_or_else(|e| panic!("{e}"))
}

/// The `tile` blocks of a page that define ops.
fn examples(page: &str) -> Vec<(String, Kernel)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(page);
    let text = std::fs::read_to_string(path).expect("a page of the documentation");
    let blocks = text.split("```tile\n").skip(1).map(|b| b.split("```").next().unwrap_or(""));
    blocks.enumerate().map(|(i, b)| (format!("{page}.{}", i + 1), loaded(page, b))).collect()
}

/// An op at several sizes, for each dtype, on two targets.
fn everywhere(kernel: &Kernel, name: &str) -> Result<(), Failed> {
    let op = kernel.op(name)?;
    let mut seen = BTreeSet::new();
    // All of it takes minutes in an unoptimised build: `cargo test --release --test library`.
    let all = [Sizes::Even, Sizes::Odd, Sizes::One, Sizes::Prime];
    let some = if cfg!(debug_assertions) { &all[..1] } else { &all[..] };
    for &sizes in some {
        for &dtype in if cfg!(debug_assertions) { &dtypes(&op)[..1] } else { dtypes(&op) } {
            let bindings = samples::bindings(op.ast(), dtype, sizes);
            if !seen.insert(format!("{bindings:?}")) {
                continue;
            }
            let mut sized = op.clone();
            for (size, n) in &bindings.dims {
                sized = sized.dim(size, *n);
            }
            for (constant, value) in &bindings.consts {
                sized = sized.constant(constant, value);
            }
            let bound = match sized.bind() {
                Ok(b) => b,
                // What a size alone forbids (a window larger than what it slides over) is said when it binds.
                Err(girih::Error::Program { .. }) if sizes != Sizes::Even => continue,
                Err(e) => return Err(format!("{sizes:?} {dtype}: {e}").into()),
            };
            let target = if sizes == Sizes::Odd { "sm_80" } else { "sm_90a" };
            agrees(&bound, target).map_err(|e| format!("{sizes:?} {dtype} on {target}: {e}"))?;
        }
    }
    Ok(())
}

/// One dtype where none is to be chosen.
fn dtypes(op: &Op) -> &'static [&'static str] {
    let open = |k: &SizeKind| matches!(k, SizeKind::DType(_) | SizeKind::DTypeSet(..));
    if op.ast().sizes.iter().any(|s| open(&s.kind)) { &DTYPES } else { &DTYPES[..1] }
}

fn agrees(bound: &BoundOp, target: &str) -> Result<(), String> {
    let device = Device::Simulator(*Target::parse(target).expect("a target of the table"));
    let compiled = bound.compile(&device).map_err(|e| e.to_string())?;
    let mut inputs = Inputs::default();
    for t in bound.inputs() {
        let mut given = random::tensor(t, 11).map_err(|e| e.to_string())?;
        if let Some(size) = samples::below(bound.op().name(), &t.name) {
            let n = bound.op().bindings().dims[size];
            let values: Vec<i64> = (0..given.len()).map(|i| as_i64(given.get(i)).rem_euclid(n)).collect();
            given = HostTensor::from_i64(t.dtype, &t.dims, &values);
        }
        inputs.tensors.insert(t.name.clone(), given);
    }
    let ran = compiled.run(&inputs, &RunOptions::default()).map_err(|e| e.to_string())?;
    for c in compiled.check(&inputs, &ran.outputs).map_err(|e| e.to_string())? {
        c.result.map_err(|m| format!("{}: {m}", c.name))?;
    }
    Ok(())
}
