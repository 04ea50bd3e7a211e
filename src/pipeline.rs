//! The way through, one function, one line a stage.
//!
//! ```text
//! text → ast → graph → egraph → plan → tile → simt → cuda → cubin → launch
//! ```

use crate::error::{Error, Result};
use crate::execute::place;
use girih_compiler::ir::graph::Graph;
use girih_compiler::ir::plan::{Form, Plan};
use girih_compiler::ir::program::Program;
use girih_compiler::ir::simt_verify;
use girih_compiler::lower::{self, Refusal, Schedule};
use girih_compiler::pass::graph_to_plan::{self, PlanOptions};
use girih_compiler::vocab::target::Target;
use girih_dsl::source::Sources;
use std::sync::Arc;

/// What is chosen beside the program and its sizes.
#[derive(Clone, Debug)]
pub struct Options {
    pub target: Target,
    /// Settings on top of the program's `tile` blocks.
    pub schedule: Schedule,
    /// Lower kernels in this form where it can take them.
    pub form: Option<Form>,
}

impl Options {
    pub fn for_target(target: Target) -> Options {
        Options { target, schedule: Schedule::default(), form: None }
    }
}

/// What a graph was compiled to.
#[derive(Clone, Debug)]
pub struct Lowered {
    pub plan: Plan,
    pub program: Arc<Program>,
    pub cuda: String,
}

/// A graph to CUDA text. `see` gets each level as it is made.
pub fn graph_to_cuda(
    graph: &Graph,
    sources: &Sources,
    options: &Options,
    see: &mut dyn FnMut(Level<'_>),
) -> Result<Lowered> {
    see(Level::Graph(graph));
    let plan = graph_to_plan::plan(graph, &PlanOptions { force: options.form, ..PlanOptions::default() });
    see(Level::Plan(&plan));
    let program = plan_to_program(&plan, sources, options)?;
    see(Level::Simt(&program));
    let cuda = lower::simt_to_cuda::print(&program, &options.target, sources);
    see(Level::Cuda(&cuda));
    Ok(Lowered { plan, program: Arc::new(program), cuda })
}

/// A stage's result, borrowed from the way through.
pub enum Level<'a> {
    Graph(&'a Graph),
    Plan(&'a Plan),
    Simt(&'a Program),
    Cuda(&'a str),
}

/// The plan of a graph under the same options.
pub fn graph_to_plan(graph: &Graph, options: &Options) -> Plan {
    graph_to_plan::plan(graph, &PlanOptions { force: options.form, ..PlanOptions::default() })
}

fn plan_to_program(plan: &Plan, sources: &Sources, options: &Options) -> Result<Program> {
    let program =
        lower::plan_to_program(plan, &options.target, &options.schedule).map_err(|r| refused(&r, sources))?;
    if cfg!(debug_assertions) {
        for kernel in &program.kernels {
            simt_verify::verify(kernel)
                .map_err(|why| Error::Refused(format!("kernel {}: {why}", kernel.name)))?;
        }
    }
    Ok(program)
}

fn refused(r: &Refusal, sources: &Sources) -> Error {
    let setting = r.setting.as_ref().map_or(String::new(), |s| format!("{s}: "));
    Error::Refused(format!("{}{setting}{}", place(sources, Some(r.span)), r.message))
}
