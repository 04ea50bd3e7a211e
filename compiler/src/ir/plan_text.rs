//! The plan as text, and back.
//!
//! A line for each kernel, one for what is saved, one for each note, then the graph:
//! `print(&read(&print(p))?) == print(p)`.

use super::graph_text;
use super::plan::{Form, Plan, PlanKernel};
use std::fmt::Write;

pub fn print(p: &Plan) -> String {
    let mut s = String::new();
    for k in &p.kernels {
        let stmts: Vec<String> = k.stmts.iter().map(usize::to_string).collect();
        let targets = k.stmts.iter().flat_map(|&i| p.graph.stmts[i].targets());
        let defined: Vec<String> = targets
            .map(|t| p.graph.tensor(t))
            .map(|t| format!("{}: {}{:?}", t.name, t.dtype.name(), t.dims))
            .collect();
        let _ =
            writeln!(s, "kernel {} {} {} // {}", k.form.name(), stmts.join(","), k.name, defined.join(", "));
    }
    let _ = writeln!(s, "saved {} // bytes of values that are not stored", p.bytes_saved);
    for n in &p.notes {
        let _ = writeln!(s, "note {n}");
    }
    s + "graph\n" + &graph_text::print(&p.graph)
}

/// Reads what `print` writes.
pub fn read(text: &str) -> Result<Plan, String> {
    let (head, graph) =
        text.split_once("\ngraph\n").ok_or("a plan ends with a line `graph` and its graph")?;
    let graph = graph_text::read(graph)?;
    let mut p = Plan { graph, kernels: Vec::new(), bytes_saved: 0, notes: Vec::new() };
    for (i, line) in head.lines().enumerate() {
        read_line(&mut p, line).ok_or_else(|| format!("line {}: `{line}` is no line of a plan", i + 1))?;
    }
    Ok(p)
}

fn read_line(p: &mut Plan, line: &str) -> Option<()> {
    let (word, rest) = line.split_once(' ')?;
    match word {
        "note" => p.notes.push(rest.to_string()),
        "saved" => p.bytes_saved = rest.split(' ').next()?.parse().ok()?,
        "kernel" => p.kernels.push(kernel(p, rest)?),
        _ => return None,
    }
    Some(())
}

fn kernel(p: &Plan, rest: &str) -> Option<PlanKernel> {
    let (what, _) = rest.split_once(" // ")?;
    let mut words = what.splitn(3, ' ');
    let word = words.next()?;
    let form = Form::ALL.into_iter().find(|f| f.name() == word)?;
    let stmts: Vec<usize> = words.next()?.split(',').map(|n| n.parse().ok()).collect::<Option<_>>()?;
    let name = words.next()?.to_string();
    stmts.iter().all(|&i| i < p.graph.stmts.len()).then_some(PlanKernel { name, stmts, form })
}
