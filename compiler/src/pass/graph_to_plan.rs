//! graph → plan: which values are stored, and which statements run together.

use super::facts::Facts;
use super::forms;
use crate::ir::graph::*;
use crate::ir::plan::*;
use std::collections::BTreeSet;

/// What the caller may ask of the planner.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// Lower reductions with this form wherever it can take them, whatever the planner would choose.
    pub force: Option<Form>,
    /// Inline, rewrite and merge. Off: each statement is a kernel.
    pub fuse: bool,
}

impl Default for PlanOptions {
    fn default() -> Self {
        PlanOptions { force: None, fuse: true }
    }
}

/// Plans a bound graph.
pub fn plan(graph: &Graph, options: &PlanOptions) -> Plan {
    each_statement(graph.clone(), options)
}

/// Each statement a kernel of its own.
fn each_statement(graph: Graph, options: &PlanOptions) -> Plan {
    let mut facts = Facts::default();
    let mut kernels = Vec::new();
    let mut names = Names::default();
    for (i, s) in graph.stmts.iter().enumerate() {
        if let Some(form) = forms::of_stmt(&graph, &mut facts, s, options.force) {
            let name = names.fresh(&last_name(&graph, s));
            kernels.push(PlanKernel { name, stmts: vec![i], form });
        }
    }
    Plan { graph, kernels, bytes_saved: 0, notes: Vec::new() }
}

fn last_name(g: &Graph, s: &Stmt) -> String {
    s.targets().last().map_or_else(String::new, |&t| g.tensor(t).name.clone())
}

/// Hands out kernel names, each once.
#[derive(Default)]
struct Names {
    used: BTreeSet<String>,
}

impl Names {
    fn fresh(&mut self, wish: &str) -> String {
        let mut name = wish.to_string();
        let mut n = 1;
        while !self.used.insert(name.clone()) {
            n += 1;
            name = format!("{wish}_{n}");
        }
        name
    }
}
