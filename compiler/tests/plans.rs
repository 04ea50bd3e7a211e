//! Plans of the corpus: every statement in one kernel, kernels in an order in which they can run, the same values as the
//! graph that was bound, in the reference and as a program in the simulator. The kernels and their forms are fixed in
//! `cases/plan/corpus.txt` (`BLESS=1` rewrites it).

#[path = "common/corpus.rs"]
mod corpus;

use corpus::{bound, entries, inputs};
use girih_compiler::host::HostTensor;
use girih_compiler::ir::graph::{Graph, Role, TensorId};
use girih_compiler::ir::plan::{Form, Plan};
use girih_compiler::ir::{graph_verify, plan_text};
use girih_compiler::lower::{Schedule, plan_to_program};
use girih_compiler::pass::facts::Facts;
use girih_compiler::pass::graph_to_plan::{PlanOptions, cost, plan};
use girih_compiler::reference;
use girih_compiler::sim::{self, SimOptions};
use girih_compiler::vocab::target::Target;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

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
        let mut b = bound(&entry);
        if options.force.is_some() {
            // Settings are for the form that the kernel has by itself.
            b.graph.tiles.clear();
        }
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
    programs_agree(&PlanOptions { fuse: false, ..PlanOptions::default() });
}

#[test]
fn programs_of_forced_forms_agree() {
    for form in [Form::Contract, Form::Row, Form::Map] {
        programs_agree(&PlanOptions { force: Some(form), ..PlanOptions::default() });
    }
}

/// The search for stored values starts from the choice made value by value and keeps only gains.
#[test]
fn the_search_is_never_worse_in_the_model() {
    let mut wrong = String::new();
    for entry in entries() {
        let b = bound(&entry);
        let greedy = plan(&b.graph, &PlanOptions { search: false, ..PlanOptions::default() });
        let found = plan(&b.graph, &PlanOptions::default());
        let (before, after) = (cost(&greedy), cost(&found));
        if std::env::var("NOTES").is_ok()
            && (before != after || line(&entry, &greedy) != line(&entry, &found))
        {
            eprintln!("{before:.1} us {}", line(&entry, &greedy));
            eprintln!("{after:.1} us {}\n    {}", line(&entry, &found), found.notes.join("\n    "));
        }
        if after > before + 1e-9 {
            let _ = writeln!(wrong, "{}: {before} us became {after} us", line(&entry, &found));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
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
