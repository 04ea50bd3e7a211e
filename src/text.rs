//! Levels as text, for `girih emit` and `girih why`.

use girih_compiler::ir::graph::Graph;
use girih_compiler::ir::plan::Plan;
use girih_compiler::ir::program::Program;
use std::fmt::Write;

/// The graph.
pub fn graph(g: &Graph) -> String {
    format!("{g:#?}\n")
}

/// The kernels of a plan, with what each defines, and the bytes that fusing saved.
pub fn plan(p: &Plan) -> String {
    let mut s = String::new();
    for k in &p.kernels {
        let _ = writeln!(s, "kernel {} ({})", k.name, k.form.name());
        for &i in &k.stmts {
            for t in p.graph.stmts[i].targets() {
                let t = p.graph.tensor(t);
                let _ = writeln!(s, "  {}: {}{:?}", t.name, t.dtype.name(), t.dims);
            }
        }
    }
    let _ = writeln!(s, "{} bytes of values are not stored", p.bytes_saved);
    s
}

/// What was fused, what not and why, and which rules led there.
pub fn notes(p: &Plan) -> String {
    if p.notes.is_empty() { "nothing was rewritten\n".into() } else { p.notes.join("\n") + "\n" }
}

/// A program: its buffers, kernels and steps.
pub fn program(p: &Program) -> String {
    format!("{p:#?}\n")
}
