//! Plans of the corpus: every statement in one kernel, kernels in an order in which they can run, the same values as the
//! graph that was bound, in the reference and as a program in the simulator. The kernels and their forms are fixed in
//! `cases/plan/corpus.txt` (`BLESS=1` rewrites it).

use girih_compiler::host::HostTensor;
use girih_compiler::ir::graph::{Graph, Role, TensorId};
use girih_compiler::ir::plan::{Form, Plan};
use girih_compiler::ir::{graph_verify, plan_text};
use girih_compiler::lower::{Schedule, plan_to_program};
use girih_compiler::pass::ast_to_graph::{Bindings, Bound, bind};
use girih_compiler::pass::facts::Facts;
use girih_compiler::pass::graph_to_plan::{PlanOptions, plan};
use girih_compiler::pass::module;
use girih_compiler::reference::{self, Inputs};
use girih_compiler::sim::{self, SimOptions};
use girih_compiler::vocab::dtype::DType;
use girih_compiler::vocab::target::Target;
use girih_dsl::source::Sources;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus")
}

fn entries() -> Vec<Value> {
    let text =
        std::fs::read_to_string(root().join("manifest.json")).expect("the manifest is in the repository");
    let all: Vec<Value> = serde_json::from_str(&text).expect("the manifest is JSON");
    let only = std::env::var("ONLY").unwrap_or_default();
    let accepted = all.into_iter().filter(|e| e.get("refuse").is_none());
    accepted.filter(|e| e["name"].as_str().is_some_and(|n| n.starts_with(&only))).collect()
}

fn bindings(entry: &Value) -> Bindings {
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

fn bound(entry: &Value) -> Bound {
    let file = entry["tile_file"].as_str().expect("a file");
    let text = std::fs::read_to_string(root().join(file)).expect("the file is in the repository");
    let mut sources = Sources::default();
    let loaded = module::load(file, &text, &mut sources, &|_| Err("no imports here".into()));
    let bound = loaded.and_then(|m| bind(&m, entry["op"].as_str().expect("an op"), &bindings(entry)));
    bound.unwrap_or_else(|d| panic!("{}: {}", entry["name"], d[0].message))
}

/// Small values, the same each run; integers inside their declared range, else below 3.
fn inputs(b: &Bound) -> Inputs {
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

/// Each statement in one kernel; what a statement reads is an input or written by an earlier kernel or statement.
fn holds_together(p: &Plan) -> Result<(), String> {
    let g: &Graph = &p.graph;
    graph_verify::verify(g).map_err(|why| format!("malformed: {}", why.join("; ")))?;
    let text = plan_text::print(p);
    let back = plan_text::read(&text)?;
    if plan_text::print(&back) != text {
        return Err("the plan's text does not read back".into());
    }
    let mut facts = Facts::default();
    let mut ready: BTreeSet<TensorId> = (0..g.tensors.len() as u32)
        .map(TensorId)
        .filter(|&t| matches!(g.tensor(t).role, Role::Input | Role::Inout | Role::Table))
        .collect();
    let mut seen = BTreeSet::new();
    for k in &p.kernels {
        for &s in &k.stmts {
            let own = g.stmts[s].targets();
            for t in facts.stmt_reads(g, &g.stmts[s]) {
                if !ready.contains(&t) && !own.contains(&t) {
                    return Err(format!("{} reads {} too early", k.name, g.tensor(t).name));
                }
            }
            ready.extend(own);
            if !seen.insert(s) {
                return Err(format!("statement {s} stands twice"));
            }
        }
    }
    let tables =
        g.stmts.iter().filter(|s| matches!(s, girih_compiler::ir::graph::Stmt::Table { .. })).count();
    if seen.len() + tables != g.stmts.len() { Err("a statement is in no kernel".into()) } else { Ok(()) }
}

fn line(entry: &Value, p: &Plan) -> String {
    let kernels: Vec<String> = p
        .kernels
        .iter()
        .map(|k| {
            let more = if k.stmts.len() > 1 { format!(" x{}", k.stmts.len()) } else { String::new() };
            format!("{} {}{more}", k.name, k.form.name())
        })
        .collect();
    format!("{}: {}", entry["name"].as_str().expect("a name"), kernels.join(", "))
}

fn agree(want: &reference::Outcome, what: &str, got: &dyn Fn(&str) -> HostTensor) -> Result<(), String> {
    for (name, want) in &want.outputs {
        reference::compare(want, &got(name)).map_err(|m| format!("{what} {name}: {m}"))?;
    }
    Ok(())
}

#[test]
fn plans_keep_the_meaning() {
    let mut wrong = String::new();
    for entry in entries() {
        let b = bound(&entry);
        let p = plan(&b.graph, &PlanOptions::default());
        let inputs = inputs(&b);
        let before = reference::run(&b.graph, &inputs);
        let after = reference::run(&p.graph, &inputs);
        let done = holds_together(&p).and_then(|()| match (before, after) {
            (Ok(want), Ok(got)) => agree(&want, "plan", &|n| got.outputs[n].tensor.clone()),
            (Err(_), Err(_)) => Ok(()),
            (Ok(_), Err(e)) => Err(format!("the plan faults: {e:?}")),
            (Err(e), Ok(_)) => Err(format!("the plan does not fault: {e:?}")),
        });
        if std::env::var("NOTES").is_ok() {
            eprintln!("{}\n  {}", line(&entry, &p), p.notes.join("\n  "));
        }
        if let Err(e) = done {
            let _ = writeln!(wrong, "{}: {e}", line(&entry, &p));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Plans every entry under these options and runs its program against the graph as written.
fn programs_agree(options: &PlanOptions) {
    let mut wrong = String::new();
    let target = Target::parse("sm_90a").expect("a target of the table");
    for entry in entries() {
        let b = bound(&entry);
        let p = plan(&b.graph, options);
        let inputs = inputs(&b);
        let Ok(want) = reference::run(&b.graph, &inputs) else { continue };
        let done = plan_to_program(&p, target, &Schedule::default())
            .map_err(|r| format!("refused: {}", r.message))
            .and_then(|program| {
                sim::run(&program, &inputs, &SimOptions::default()).map_err(|e| e.to_string())
            })
            .and_then(|out| agree(&want, "program", &|n| out.outputs[n].clone()));
        if let Err(e) = done {
            let _ = writeln!(wrong, "{}: {e}", line(&entry, &p));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn programs_agree_with_the_graph_as_written() {
    programs_agree(&PlanOptions::default());
}

#[test]
fn unfused_programs_agree() {
    programs_agree(&PlanOptions { fuse: false, force: None });
}

#[test]
fn programs_of_forced_forms_agree() {
    for form in [Form::Contract, Form::Row, Form::Map] {
        programs_agree(&PlanOptions { fuse: true, force: Some(form) });
    }
}

#[test]
fn the_corpus_has_these_kernels() {
    if std::env::var("ONLY").is_ok() {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/plan/corpus.txt");
    let mut got = String::new();
    for entry in entries() {
        got += &line(&entry, &plan(&bound(&entry).graph, &PlanOptions::default()));
        got.push('\n');
    }
    if std::env::var("BLESS").is_ok() {
        std::fs::write(&path, &got).expect("the case can be written");
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(want, got, "BLESS=1 rewrites {}", path.display());
}
