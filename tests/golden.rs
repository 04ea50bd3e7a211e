//! Every operator of the corpus, and some of the library at large sizes, generated for every target and compiled by NVRTC: no errors, no spills, no lines
//! that mean lost speed. Needs no GPU; without NVRTC each operator is named and counted as ignored.

use girih::runtime::nvrtc::{Nvrtc, arch_number};
use girih::{BoundOp, Device, Kernel, Op};
use girih_compiler::vocab::dtype::DType;
use girih_compiler::vocab::target::TARGETS;
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn main() {
    let options = Arguments::from_args();
    let nvrtc = Nvrtc::get();
    if let Err(e) = &nvrtc {
        assert!(std::env::var_os("GIRIH_NEED_NVRTC").is_none(), "{e}");
        println!("no NVRTC, so generated kernels are not compiled: {e}");
    }
    let skipped = nvrtc.is_err();
    let mut seen = BTreeSet::new();
    let first = entries().into_iter().filter(|e| seen.insert(text(e, "op")));
    let trials = first
        .map(|e| Trial::test(text(&e, "op"), move || golden(&op(&e)?.bind()?)).with_ignored_flag(skipped));
    let large = LARGE.iter().map(|&(module, name, given)| {
        let test = move || golden(&large(module, name, given)?.bind()?);
        Trial::test(format!("{module}.{name} {given}"), test).with_ignored_flag(skipped)
    });
    libtest_mimic::run(&options, trials.chain(large).collect()).exit();
}

/// Operators of the library at sizes that they are used at: the default configurations of large kernels.
const LARGE: &[(&str, &str, &str)] = &[
    ("linalg", "matmul", "T=bf16 M=4096 N=4096 K=4096"),
    ("linalg", "matmul", "T=f16 M=1000 N=999 K=1001"),
    ("linalg", "matmul", "T=f32 M=2048 N=2048 K=2048"),
    ("linalg", "matmul_nt", "T=bf16 M=512 N=4096 K=1024"),
    ("nn", "softmax_rows", "T=bf16 M=4096 N=4096"),
    ("nn", "rmsnorm", "T=bf16 M=4096 N=4096"),
    ("nn", "layernorm", "T=bf16 M=4096 N=4096"),
    ("attention", "attention", "T=bf16 B=2 H=4 G=4 S=1024 L=1024 D=128 E=128"),
    ("conv", "conv2d", "T=f16 N=8 C=64 H=56 W=56 F=64 R=3 S=3 pad=1"),
    ("conv", "conv2d_grouped", "T=f16 N=8 C=256 H=28 W=28 F=256 R=3 S=3 groups=32 pad=1"),
    ("conv", "conv2d_grad_w", "T=bf16 N=32 C=64 H=56 W=56 F=64 R=3 S=3 P=56 Q=56 pad=1"),
    ("conv", "conv2d_grad_x", "T=f16 N=8 C=128 H=28 W=28 F=256 R=3 S=3 P=14 Q=14 stride=2 pad=1"),
];

/// An op of the library with sizes, dtypes and consts as `NAME=VALUE`; numbers that are sizes bind those.
fn large(module: &str, name: &str, given: &str) -> Result<Op, Failed> {
    let library = girih_dsl::library(module).ok_or("no such module")?;
    let mut op = Kernel::from_text(&format!("{module}.tile"), library)?.op(name)?;
    for (key, value) in given.split_whitespace().filter_map(|g| g.split_once('=')) {
        let size = op.ast().sizes.iter().any(|s| s.name.text == key);
        op = match value.parse() {
            Ok(n) if size => op.dim(key, n),
            _ => op.constant(key, value),
        };
    }
    Ok(op)
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

/// The entries of the given half that are to be accepted.
fn entries() -> Vec<Value> {
    let manifest = std::fs::read_to_string(corpus().join("manifest.json")).expect("the corpus is there");
    let all: Vec<Value> = serde_json::from_str(&manifest).expect("the manifest is JSON");
    all.into_iter().filter(|e| e["split"] == "given" && e.get("refuse").is_none()).collect()
}

fn text(e: &Value, key: &str) -> String {
    e[key].as_str().unwrap_or_default().to_string()
}

/// The op of an entry with everything that the entry gives.
fn op(e: &Value) -> Result<Op, Failed> {
    let mut op = Kernel::load(corpus().join(text(e, "tile_file")))?.op(&text(e, "op"))?;
    for (name, n) in e["dims"].as_object().into_iter().flatten() {
        op = op.dim(name, n.as_i64().ok_or("a dim is no integer")?);
    }
    for (name, value) in e["consts"].as_object().into_iter().flatten() {
        op = op.constant(name, value.as_str().map_or(value.to_string(), str::to_string));
    }
    for (name, input) in e["inputs"].as_object().into_iter().flatten() {
        let dtype = DType::parse(&text(input, "dtype")).ok_or("no such dtype")?;
        let dims = input["shape"].as_array().into_iter().flatten().filter_map(Value::as_i64);
        op = op.input(name, dtype, &dims.collect::<Vec<_>>());
    }
    Ok(op)
}

fn golden(bound: &BoundOp) -> Result<(), Failed> {
    let nvrtc = Nvrtc::get()?;
    for target in TARGETS {
        if !arch_number(target.name).is_some_and(|a| nvrtc.archs().contains(&a)) {
            continue;
        }
        let compiled =
            bound.compile(&Device::Simulator(target)).map_err(|e| format!("{}: {e}", target.name))?;
        let lowered = compiled.lowered().ok_or("nothing was lowered")?;
        if lowered.program.kernels.is_empty() {
            continue;
        }
        let report = nvrtc.compile(bound.op().name(), &lowered.cuda, target.name)?.report;
        if report.spills() > 0 || !report.lost_speed.is_empty() {
            return Err(format!(
                "{}: {} bytes spilled, {:?}",
                target.name,
                report.spills(),
                report.lost_speed
            )
            .into());
        }
    }
    Ok(())
}
