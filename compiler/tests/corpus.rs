//! The corpus: every accepted entry binds to a graph that holds its invariants, every refused one is refused where and
//! as the manifest says.

#[path = "common/corpus.rs"]
mod corpus;

use corpus::{all, attempt};
use girih_dsl::diagnostic::Diagnostic;
use girih_dsl::source::Sources;
use serde_json::Value;

fn shown(sources: &Sources, d: &[Diagnostic]) -> String {
    let one = |d: &Diagnostic| format!("  {} {} {}\n", sources.place(d.span), d.code, d.message);
    d.iter().map(one).collect()
}

#[test]
fn every_accepted_entry_binds() {
    let mut wrong = String::new();
    let mut count = 0;
    for entry in all().iter().filter(|e| e.get("refuse").is_none()) {
        count += 1;
        let (sources, bound) = attempt(entry);
        match bound {
            Err(d) => wrong += &format!("{}:\n{}", entry["name"], shown(&sources, &d)),
            Ok(b) => {
                if let Err(broken) = girih_compiler::ir::graph_verify::verify(&b.graph) {
                    wrong += &format!("{}: {broken:#?}\n", entry["name"]);
                }
                let text = girih_compiler::ir::graph_text::print(&b.graph);
                match girih_compiler::ir::graph_text::read(&text) {
                    Ok(g) if girih_compiler::ir::graph_text::print(&g) == text => {}
                    Ok(_) => wrong += &format!("{}: reads back as another graph\n", entry["name"]),
                    Err(e) => wrong += &format!("{}: does not read back: {e}\n", entry["name"]),
                }
                let outputs = entry["outputs"].as_object().expect("outputs");
                for (name, spec) in outputs {
                    let Some(o) = b.graph.outputs.iter().find(|o| o.name == *name) else {
                        wrong += &format!("{}: no output {name}\n", entry["name"]);
                        continue;
                    };
                    let t = b.graph.tensor(o.tensor);
                    let shape: Vec<i64> =
                        spec["shape"].as_array().expect("a shape").iter().filter_map(Value::as_i64).collect();
                    if t.dims != shape || Some(t.dtype.name()) != spec["dtype"].as_str() {
                        wrong += &format!("{}: {name} is {} {:?}\n", entry["name"], t.dtype.name(), t.dims);
                    }
                }
            }
        }
    }
    assert!(count > 200, "the manifest holds {count} accepted entries");
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn every_refused_entry_is_refused_in_its_line() {
    let mut wrong = String::new();
    for entry in all().iter().filter(|e| e.get("refuse").is_some()) {
        let line = entry["refuse"]["line"].as_u64().expect("a line") as usize;
        let (sources, bound) = attempt(entry);
        match (bound, line) {
            // Line 0: a fault at run time.
            (Ok(_), 0) => {}
            (Ok(_), _) => wrong += &format!("{} is accepted\n", entry["name"]),
            (Err(d), _) => {
                if !d.iter().any(|d| sources.line_column(d.span).0 == line) {
                    wrong += &format!("{} names another line:\n{}", entry["name"], shown(&sources, &d));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
