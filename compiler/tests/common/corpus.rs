//! The corpus: its entries, bound, with inputs.
#![allow(dead_code)]

use girih_compiler::host::HostTensor;
use girih_compiler::ir::graph::Role;
use girih_compiler::pass::ast_to_graph::{Bindings, Bound, bind};
use girih_compiler::pass::module;
use girih_compiler::reference::Inputs;
use girih_compiler::vocab::dtype::DType;
use girih_dsl::diagnostic::Diagnostic;
use girih_dsl::source::Sources;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus")
}

/// Every entry.
pub fn all() -> Vec<Value> {
    let text =
        std::fs::read_to_string(root().join("manifest.json")).expect("the manifest is in the repository");
    serde_json::from_str(&text).expect("the manifest is JSON")
}

/// The entries that are to be accepted; `ONLY` in the environment picks those whose name starts with it.
pub fn entries() -> Vec<Value> {
    let only = std::env::var("ONLY").unwrap_or_default();
    let accepted = all().into_iter().filter(|e| e.get("refuse").is_none());
    accepted.filter(|e| e["name"].as_str().is_some_and(|n| n.starts_with(&only))).collect()
}

/// The sizes, consts and input dtypes of an entry.
pub fn bindings(entry: &Value) -> Bindings {
    let mut b = Bindings::default();
    for (k, v) in entry["dims"].as_object().expect("dims") {
        b.dims.insert(k.clone(), v.as_i64().expect("a dim"));
    }
    for (k, v) in entry["consts"].as_object().expect("consts") {
        b.consts.insert(k.clone(), v.to_string());
    }
    for (k, v) in entry["inputs"].as_object().expect("inputs") {
        let dims =
            v["shape"].as_array().expect("a shape").iter().map(|d| d.as_i64().expect("a dim")).collect();
        b.inputs
            .insert(k.clone(), (DType::parse(v["dtype"].as_str().expect("a dtype")).expect("known"), dims));
    }
    b
}

/// The text that an entry is of.
pub fn text(entry: &Value) -> String {
    let file = entry["tile_file"].as_str().expect("a file");
    std::fs::read_to_string(root().join(file)).expect("the file is in the repository")
}

/// What binding an entry gives, with its sources.
pub fn attempt(entry: &Value) -> (Sources, Result<Bound, Vec<Diagnostic>>) {
    let file = entry["tile_file"].as_str().expect("a file");
    let text = text(entry);
    let mut sources = Sources::default();
    let loaded = module::load(file, &text, &mut sources, &|_| Err("no imports here".into()));
    let bound = loaded.and_then(|m| bind(&m, entry["op"].as_str().expect("an op"), &bindings(entry)));
    (sources, bound)
}

/// An entry's graph.
pub fn bound(entry: &Value) -> Bound {
    attempt(entry).1.unwrap_or_else(|d| panic!("{}: {}", entry["name"], d[0].message))
}

/// Small values, the same each run; integers inside their declared range, else below 3.
pub fn inputs(b: &Bound) -> Inputs {
    let mut out = Inputs::default();
    for (n, t) in b.graph.tensors.iter().enumerate() {
        if !matches!(t.role, Role::Input | Role::Inout) || t.version > 0 {
            continue;
        }
        let count: i64 = t.dims.iter().product();
        let noise = |i: i64| ((i * 2_654_435_761 + n as i64 * 40_503) >> 7) & 0xffff;
        let data = if t.dtype.is_float() {
            let values: Vec<f64> = (0..count).map(|i| noise(i) as f64 / 20_000.0 - 1.5).collect();
            HostTensor::from_f64(t.dtype, &t.dims, &values)
        } else {
            let (lo, hi) = t.range.unwrap_or((0, if t.dtype == DType::Bool { 2 } else { 3 }));
            let span = (hi - lo).max(1);
            let values: Vec<i64> =
                (0..count).map(|i| lo + if t.unique { i % span } else { noise(i) % span }).collect();
            HostTensor::from_i64(t.dtype, &t.dims, &values)
        };
        out.tensors.insert(t.name.clone(), data);
    }
    for (id, v) in &b.scalars {
        if let Some(v) = v {
            out.scalars.insert(b.graph.scalars[id.0 as usize].name.clone(), *v);
        }
    }
    out
}
