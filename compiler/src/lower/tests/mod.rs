//! Every form against the reference, in the simulator.

pub mod build;
mod clusters;
mod forms;
mod rows;
mod spaces;
mod texts;

use super::{Schedule, plan_to_program};
use crate::host::HostTensor;
use crate::ir::graph::Graph;
use crate::ir::plan::Form;
use crate::pass::graph_to_plan::{PlanOptions, plan};
use crate::reference::{self, Inputs};
use crate::sim::{self, SimOptions, SimOutcome};
use crate::vocab::target::Target;

pub fn inputs(tensors: &[(&str, HostTensor)]) -> Inputs {
    Inputs {
        tensors: tensors.iter().map(|(n, t)| (n.to_string(), t.clone())).collect(),
        scalars: Default::default(),
    }
}

/// Runs a graph's program in the simulator; the kernel that defines `form.0` must have the form `form.1`.
pub fn simulate(g: &Graph, inputs: &Inputs, forms: &[(&str, Form)]) -> Result<SimOutcome, sim::SimError> {
    let options = PlanOptions { fuse: false, ..PlanOptions::default() };
    let mut plan = plan(g, &options);
    for k in &mut plan.kernels {
        if let Some((_, form)) = forms.iter().find(|(name, _)| *name == k.name) {
            k.form = *form;
        }
    }
    let target = Target::parse("sm_90a").expect("a target of the table");
    let program =
        plan_to_program(&plan, target, &Schedule::default()).expect("every form takes its statement");
    sim::run(&program, inputs, &SimOptions::default())
}

/// The simulated program agrees with the reference.
pub fn check_as(g: &Graph, inputs: &Inputs, forms: &[(&str, Form)]) -> SimOutcome {
    let got = simulate(g, inputs, forms).unwrap_or_else(|e| panic!("{e}"));
    let want = reference::run(g, inputs).expect("no fault");
    for (name, want) in &want.outputs {
        if let Err(m) = reference::compare(want, &got.outputs[name]) {
            panic!("{name}: {m}");
        }
    }
    got
}

pub fn check(g: &Graph, inputs: &Inputs) -> SimOutcome {
    check_as(g, inputs, &[])
}

/// Values that repeat, with both signs, small enough to be exact in every dtype.
pub fn pattern(n: i64) -> Vec<f64> {
    (0..n).map(|i| ((i * 37 + 11) % 23 - 11) as f64 / 4.0).collect()
}
