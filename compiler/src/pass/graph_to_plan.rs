//! graph → plan: which values are stored, and which statements run together.
//!
//! Values that cost less to compute again than to store go into their readers (`inline`); the e-graph
//! simplifies what stands then (`egraph_to_plan`); reductions that would be
//! computed again and again become definitions (`hoist`); what is left is grouped into kernels (`group`).

use super::{egraph_to_plan, group, hoist, inline};
use crate::ir::graph::*;
use crate::ir::plan::*;
use crate::lower::contract_pattern::{self, ContractShape};
use crate::rules::Class;

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
    let mut graph = graph.clone();
    let mut notes = Vec::new();
    let mut saved = 0;
    let takes = |g: &Graph, d: &Define| contracts(g, d, options.force);
    if options.fuse {
        let wishes = inline::Wishes::of(&graph);
        saved += inline::inline(&mut graph, &wishes, &takes, &mut notes);
        egraph_to_plan::simplify(&mut graph, Class::Reassociates, &mut notes);
        saved -= hoist::hoist(&mut graph, &wishes, &takes, &mut notes);
        graph = super::compact::compact(graph);
        let kernels = group::group(&graph, options.force, &takes, &mut notes);
        return Plan { graph, kernels, bytes_saved: saved.max(0), notes };
    }
    each_statement(graph, options)
}

/// The e-graph that a graph's plan goes through, as text.
pub fn egraph_text(graph: &Graph, options: &PlanOptions) -> String {
    let mut graph = graph.clone();
    let wishes = inline::Wishes::of(&graph);
    let takes = |g: &Graph, d: &Define| contracts(g, d, options.force);
    inline::inline(&mut graph, &wishes, &takes, &mut Vec::new());
    super::graph_to_egraph::describe(&graph)
}

/// Would the contract form take this definition as it is? Products of tiny matrices are loops in a thread, unless the
/// form is forced.
fn contracts(g: &Graph, d: &Define, force: Option<Form>) -> bool {
    let any = force == Some(Form::Contract);
    // Most definitions have no fold; recognising costs more than seeing that.
    !inline::outer_folds(g, d.value).is_empty()
        && contract_pattern::takes(g, d, any).is_ok_and(|s| any || is_large(&s))
}

/// Both operands are used again, and there is a tile's worth of work.
fn is_large(s: &ContractShape) -> bool {
    const TILE: i64 = 64;
    let (m, n) = (ContractShape::points(&s.m), ContractShape::points(&s.n));
    m > 1 && n > 1 && m * n >= TILE && s.folds.iter().any(|f| f.terms() >= 8)
}

/// Each statement a kernel of its own.
fn each_statement(graph: Graph, options: &PlanOptions) -> Plan {
    let mut facts = super::facts::Facts::default();
    let mut kernels = Vec::new();
    let mut names = group::Names::default();
    for (i, s) in graph.stmts.iter().enumerate() {
        let form = match s {
            Stmt::Define(d) => Some(super::forms::of_define(
                &graph,
                &mut facts,
                i,
                d,
                options.force,
                contracts(&graph, d, options.force),
            )),
            s => super::forms::of_stmt(&graph, &mut facts, s, options.force),
        };
        if let Some(form) = form {
            kernels.push(PlanKernel {
                name: names.fresh(&group::last_name(&graph, s)),
                stmts: vec![i],
                form,
            });
        }
    }
    Plan { graph, kernels, bytes_saved: 0, notes: Vec::new() }
}
