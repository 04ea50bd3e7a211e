//! plan: a few kernels, each a set of statements that run together, with the form that will lower it.
//!
//! The e-graph and the extraction rewrite the graph's statements: values that are not worth storing are inlined
//! into their readers, folds worth storing become definitions. So a plan is a graph again, whose every target is
//! stored, and a grouping of its statements into kernels.
//!
//! Invariants: every statement of the graph stands in exactly one kernel; kernels stand in an order in which they
//! can run; the statements of a kernel that reads another's result come after it.

use super::graph::Graph;

#[derive(Clone, Debug)]
pub struct Plan {
    pub graph: Graph,
    pub kernels: Vec<PlanKernel>,
    /// Bytes of values that the graph defines and the plan does not store, written and read once each.
    pub bytes_saved: i64,
    /// For `girih why`: what was fused, what was not and why not, which rules led here.
    pub notes: Vec<String>,
}

impl Plan {
    /// The plan of a graph of one statement.
    pub fn of_statement(graph: Graph, name: impl Into<String>, form: Form) -> Plan {
        let kernel = PlanKernel { name: name.into(), stmts: vec![0], form };
        Plan { graph, kernels: vec![kernel], bytes_saved: 0, notes: Vec::new() }
    }
}

#[derive(Clone, Debug)]
pub struct PlanKernel {
    /// The last target's name, made unique.
    pub name: String,
    /// Indices into `graph.stmts`, ascending.
    pub stmts: Vec<usize>,
    pub form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    /// Elementwise: one or more definitions over the same axes, without folds worth cooperating on.
    Map,
    /// Reductions with a block (or warp) a row, and maps over the same row.
    Row,
    /// Sums of products through shared-memory tiles, with fused prologue and epilogue.
    Contract,
    /// Chained products with carried state: one pass over the terms of the second, whose first factor are weights of
    /// the first's results.
    Fold,
    Scan,
    Scatter,
    Sort,
    /// Fallbacks for recurrences: a loop in a thread, a loop in a block, a launch a step.
    Thread,
    Block,
    Step,
}

impl Form {
    /// Every form, for what reads one by its name.
    pub const ALL: [Form; 10] = [
        Form::Map,
        Form::Row,
        Form::Contract,
        Form::Fold,
        Form::Scan,
        Form::Scatter,
        Form::Sort,
        Form::Thread,
        Form::Block,
        Form::Step,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Form::Map => "map",
            Form::Row => "row",
            Form::Contract => "contract",
            Form::Fold => "fold",
            Form::Scan => "scan",
            Form::Scatter => "scatter",
            Form::Sort => "sort",
            Form::Thread => "thread",
            Form::Block => "block",
            Form::Step => "step",
        }
    }
}
