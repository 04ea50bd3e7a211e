//! The way through, one function, one line a stage.
//!
//! ```text
//! text → ast → graph → egraph → plan → tile → simt → cuda → cubin → launch
//! ```

use crate::error::{Error, Result};
use crate::execute::place;
use girih_compiler::ir::graph::{Graph, TileBlock};
use girih_compiler::ir::plan::{Form, Plan};
use girih_compiler::ir::program::Program;
use girih_compiler::ir::tile::Tile;
use girih_compiler::ir::{graph_verify, simt_verify};
use girih_compiler::lower::{self, Refusal, Schedule};
use girih_compiler::pass::graph_to_plan::{self, Alternative, PlanOptions};
use girih_compiler::vocab::target::Target;
use girih_dsl::source::Sources;
use std::borrow::Cow;
use std::sync::Arc;

/// What is chosen beside the program and its sizes.
#[derive(Clone, Debug)]
pub struct Options {
    pub target: Target,
    /// Settings on top of the program's `tile` blocks.
    pub schedule: Schedule,
    /// Lower kernels in this form where it can take them.
    pub form: Option<Form>,
    /// How much is fused.
    pub fusion: Fusion,
}

/// How much a plan fuses: alternatives that the tuner measures beside each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fusion {
    /// The planner's whole search.
    #[default]
    Searched,
    /// What was chosen value by value, without the search from there.
    Direct,
    /// A kernel for each statement.
    Apart,
    /// The search's n-th alternative, from 1; 0 is `Searched`.
    Plan(u8),
}

/// Plans that the search gives beside each other, its best among them.
pub const PLANS: usize = 8;

impl Fusion {
    pub const ALL: [Fusion; 3] = [Fusion::Searched, Fusion::Direct, Fusion::Apart];

    /// The named ways first, then the search's alternatives: those that exist and differ are tuned.
    pub fn each() -> impl Iterator<Item = Fusion> {
        Fusion::ALL.into_iter().chain((1..PLANS as u8).map(Fusion::Plan))
    }

    /// `searched`, `direct`, `apart`, or `plan 2`.
    pub fn name(self) -> String {
        match self {
            Fusion::Searched => "searched".into(),
            Fusion::Direct => "direct".into(),
            Fusion::Apart => "apart".into(),
            Fusion::Plan(n) => format!("plan {n}"),
        }
    }

    pub fn parse(name: &str) -> Option<Fusion> {
        Fusion::each().find(|f| f.name() == name)
    }

    pub fn plan_options(self, force: Option<Form>) -> PlanOptions {
        let (fuse, search) = (self != Fusion::Apart, matches!(self, Fusion::Searched | Fusion::Plan(_)));
        PlanOptions { force, fuse, search, ..PlanOptions::default() }
    }
}

impl Options {
    pub fn for_target(target: Target) -> Options {
        Options { target, schedule: Schedule::default(), form: None, fusion: Fusion::default() }
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
    verify_graph(graph, "graph")?;
    let plan = graph_to_plan(graph, options);
    see(Level::Plan(&plan));
    plan_to_cuda(plan, sources, options, see)
}

/// The rest of the way, from a plan on.
pub fn plan_to_cuda(
    plan: Plan,
    sources: &Sources,
    options: &Options,
    see: &mut dyn FnMut(Level<'_>),
) -> Result<Lowered> {
    verify_graph(&plan.graph, "plan")?;
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

/// What the planner is told of a target.
pub fn plan_options(options: &Options) -> PlanOptions {
    let chain = lower::fold_form::is_on(&options.target);
    PlanOptions { chain, ..options.fusion.plan_options(options.form) }
}

/// The plan of a graph under the same options. Of an alternative that this graph has not, the search's best.
pub fn graph_to_plan(graph: &Graph, options: &Options) -> Plan {
    if let Fusion::Plan(n) = options.fusion
        && let Some(other) = graph_to_plans(graph, options, PLANS).into_iter().nth(n.into())
    {
        return other.plan;
    }
    graph_to_plan::plan(&for_target(graph, options), &plan_options(options))
}

/// The graph without what its `tile` blocks say of other targets: that does not choose what is stored here.
fn for_target<'a>(graph: &'a Graph, options: &Options) -> Cow<'a, Graph> {
    let name = options.target.name;
    let of_another = |t: &TileBlock| {
        let on = |n: &String| n == name || name.strip_suffix('a') == Some(n);
        !t.targets.is_empty() && !t.targets.iter().any(on)
    };
    if !graph.tiles.iter().any(of_another) {
        return Cow::Borrowed(graph);
    }
    let mut graph = graph.clone();
    graph.tiles.retain(|t| !of_another(t));
    Cow::Owned(graph)
}

/// The best plan and others, under the same options.
pub fn graph_to_plans(graph: &Graph, options: &Options, most: usize) -> Vec<Alternative> {
    graph_to_plan::plans(&for_target(graph, options), &plan_options(options), most)
}

/// The tile level of a graph's kernels: name and form of each, and the level where the form has one.
pub fn graph_to_tiles(
    graph: &Graph,
    sources: &Sources,
    options: &Options,
) -> Result<Vec<(String, Form, Option<Tile>)>> {
    let plan = graph_to_plan(graph, options);
    lower::tiles(&plan, &options.target, &options.schedule).map_err(|r| refused(&r, sources))
}

fn plan_to_program(plan: &Plan, sources: &Sources, options: &Options) -> Result<Program> {
    let lowered = lower::plan_to_program(plan, &options.target, &options.schedule);
    let program = lowered.map_err(|r| refused(&r, sources))?;
    verify_kernels(&program)?;
    Ok(program)
}

/// The verifiers run between the stages of debug builds: a failure is a fault of the stage before.
fn verify_graph(graph: &Graph, level: &str) -> Result<()> {
    if !cfg!(debug_assertions) {
        return Ok(());
    }
    graph_verify::verify(graph)
        .map_err(|why| Error::Refused(format!("the {level} is malformed: {}", why.join("; "))))
}

fn verify_kernels(program: &Program) -> Result<()> {
    let kernels = if cfg!(debug_assertions) { &program.kernels[..] } else { &[] };
    kernels.iter().try_for_each(|k| {
        simt_verify::verify(k).map_err(|why| Error::Refused(format!("kernel {} is malformed: {why}", k.name)))
    })
}

fn refused(r: &Refusal, sources: &Sources) -> Error {
    if r.setting.is_some() {
        return Error::Refused(girih_dsl::render(sources, &[r.diagnostic()], false).trim_end().to_string());
    }
    Error::Refused(format!("{}{}", place(sources, Some(r.span)), r.message))
}
