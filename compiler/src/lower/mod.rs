//! plan → program: buffers, kernels and launches. Each kernel form has a file; `scalar.rs` turns graph expressions
//! into simt inside a kernel under construction.
//!
//! What a lowered program promises:
//! - Every stored tensor has one home (a buffer with strides). Versions of an updated tensor share a home where no
//!   later statement reads the old version; a new value of an `inout` is written in place only by a kernel that
//!   reads the old one at the same point alone, otherwise beside it and copied back at the end.
//! - A kernel is launched with at least one block; work of size zero is no launch.
//! - Each place that may fault has a row in `program.faults`.

pub mod arguments;
mod arith;
pub mod block;
mod check;
mod codes_ahead;
mod codes_groups;
mod codes_loop;
mod codes_stream;
mod codes_table;
pub mod contract;
mod contract_border;
mod contract_bounds;
mod contract_boxes;
pub mod contract_codes;
mod contract_coords;
mod contract_epilogue;
mod contract_few;
mod contract_groups;
mod contract_hopper;
mod contract_loads;
mod contract_mma;
mod contract_operand;
mod contract_pack;
mod contract_padding;
pub mod contract_pattern;
pub mod contract_phases;
mod contract_regular;
mod contract_select;
mod contract_shape;
mod contract_split;
mod contract_split_turn;
mod contract_tail;
#[cfg(test)]
mod contract_tests;
mod contract_tile;
mod contract_tile_of;
mod contract_turn;
mod cuda_expr;
mod cuda_names;
mod cuda_prelude;
mod fold;
pub mod fold_beside;
mod fold_boxes;
mod fold_exact;
pub mod fold_form;
mod fold_loop;
mod fold_matrix;
mod fold_parts;
pub mod fold_pattern;
mod fold_scores;
mod fold_store;
mod fold_turns;
mod forced;
mod home;
mod hopper_codes;
mod hopper_cost;
mod hopper_gather;
mod hopper_index;
mod hopper_join;
mod hopper_lanes;
mod hopper_loop;
mod hopper_operand;
mod hopper_pixels;
mod hopper_ragged;
mod hopper_ring;
mod hopper_scales;
mod hopper_store;
pub mod index;
mod keep;
pub mod map;
mod map_block;
mod map_border;
mod map_flat;
mod map_lanes;
mod map_stencil;
mod map_tile;
mod map_tile_odd;
mod map_vec;
mod map_window;
mod near;
pub mod overflow;
pub mod read;
mod recur;
mod row;
mod row_argmax;
mod row_cluster;
mod row_guard;
mod row_layout;
mod row_lead;
mod row_made;
mod row_online;
mod row_open;
mod row_pass;
mod row_random;
mod row_reduce;
mod row_resident;
mod row_split;
mod row_stage;
mod row_store;
pub mod scalar;
pub mod scan;
mod scan_ahead;
mod scan_before;
mod scan_block;
mod scan_flow;
mod scan_law;
mod scan_ring;
mod scan_space;
pub mod scan_step;
pub mod scatter;
mod scatter_private;
mod scatter_ranges;
pub mod schedule;
mod settings;
pub mod simt_to_cuda;
pub mod sort;
mod sort_filter;
mod sort_long;
mod sort_radix;
mod sort_segments;
mod sort_select;
pub mod step;
pub mod step_split;
pub mod thread;
mod thread_tile;
mod unaligned;
mod unused;

use crate::ir::graph::{Graph, TensorId};
use crate::ir::plan::{Form, Plan, PlanKernel};
use crate::ir::program::{Arg, Buffer, BufferId, BufferRole, FaultSite, FormRow, Launch, Program, Step};
use crate::ir::simt::{Intrinsic, Kernel, Stmt};
use crate::ir::tile::Tile;
use crate::vocab::dtype::DType;
use crate::vocab::target::Target;
use girih_dsl::ast::Span;
use girih_dsl::diagnostic::Diagnostic;
use index::Facts;
use scalar::Emit;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

pub use home::{Home, identity as reads_at};
pub use scan_before::reads_before;
pub use schedule::{Choice, Schedule, schedules};

/// Why a plan cannot be lowered as the schedule asks.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// What is wrong and what to write instead.
    pub message: String,
    /// The setting or the statement it speaks of.
    pub span: Span,
    /// The setting's name (`block m`), if one is to blame.
    pub setting: Option<String>,
    /// The kernel that was being lowered.
    pub kernel: Option<String>,
}

impl Refusal {
    pub fn new(span: Span, message: impl Into<String>) -> Refusal {
        Refusal { message: message.into(), span, setting: None, kernel: None }
    }

    /// As a report, with a code where a setting is to blame.
    pub fn diagnostic(&self) -> Diagnostic {
        let setting = self.setting.as_deref().unwrap_or("the program");
        let d = Diagnostic::error(
            "E0609",
            self.span,
            format!("`{setting}` cannot be followed: {}", self.message),
        );
        d.help(format!("take `{setting}` out, or give it another value"))
    }

    /// Blames a setting.
    pub fn setting(mut self, setting: impl Into<String>) -> Refusal {
        self.setting = Some(setting.into());
        self
    }
}

/// Blocks along x that a grid may have; only x is used for axes of unknown length.
pub const MAX_GRID_X: i64 = i32::MAX as i64;

/// What the kernels of one program share while it is built.
pub struct Lowering<'a> {
    pub plan: &'a Plan,
    pub graph: &'a Graph,
    pub target: &'a Target,
    pub schedule: &'a Schedule,
    pub program: Program,
    pub facts: Rc<Facts<'a>>,
    homes: Rc<BTreeMap<TensorId, Home>>,
    sites: Rc<RefCell<Vec<FaultSite>>>,
    broken: scalar::Broken,
    fault: BufferId,
    /// Where `step` goes: the innermost `Repeat` under construction, or the program.
    open: Vec<Vec<Step>>,
    names: BTreeSet<String>,
    /// Axes along which the form of the kernel under construction has followed `unroll` itself.
    unrolled: BTreeSet<String>,
    /// Sums of which the parts of several blocks are left to their readers to add, where these ask for it.
    parts: Option<BTreeMap<TensorId, Parts>>,
    /// Copies of operands that the kernels under construction share, where there are several of one sum.
    packed: contract_phases::Shared,
}

/// A sum in parts, each laid out as the tensor.
#[derive(Clone, Copy, Debug)]
struct Parts {
    buffer: BufferId,
    count: i64,
    /// Elements of a part.
    len: i64,
}

/// Lowers a plan for a target under a schedule. Of what the `tile` blocks leave open, the first values that fit.
pub fn plan_to_program(plan: &Plan, target: &Target, schedule: &Schedule) -> Result<Program, Refusal> {
    settle(plan, target, schedule).map(|(_, program)| program)
}

/// The schedule as it is followed, and the program.
fn settle(plan: &Plan, target: &Target, schedule: &Schedule) -> Result<(Schedule, Program), Refusal> {
    let refused = |why| schedule::at_its_place(plan, target, why);
    let mut trial = schedule::Trial::new(plan, target, schedule)?;
    let mut first = None;
    loop {
        let whole = trial.schedule();
        match lower_all(plan, target, &whole) {
            Ok(program) => return Ok((whole, program)),
            Err(why) if trial.next(&why) => {
                first.get_or_insert(why);
            }
            Err(why) => return Err(refused(first.unwrap_or(why))),
        }
    }
}

fn lower_all(plan: &Plan, target: &Target, schedule: &Schedule) -> Result<Program, Refusal> {
    let mut cx = Lowering::new(plan, target, schedule);
    check::declared(&mut cx)?;
    for k in &plan.kernels {
        let first = cx.program.kernels.len();
        let done = settings::agree(&cx, k).and_then(|_| cx.lower_kernel(k));
        let done = done.and_then(|_| settings::unroll(&mut cx, k, first));
        done.map_err(|why| Refusal { kernel: Some(k.name.clone()), ..why })?;
        let simt = (first..cx.program.kernels.len()).collect();
        cx.program.forms.push(FormRow { kernel: k.name.clone(), form: k.form, simt });
    }
    cx.copy_back()?;
    cx.sound()?;
    Ok(cx.finish())
}

/// The settings that a kernel's form leaves open, with the values worth trying.
pub fn space(plan: &Plan, k: &PlanKernel, target: &Target) -> Vec<Choice> {
    match k.form {
        Form::Map => map::space(&Lowering::new(plan, target, &Schedule::default()), k),
        Form::Contract => {
            let found = contract::space(&plan.graph, &k.stmts);
            let found = found.iter().map(|(key, axis, v)| Choice::ints(key, axis, v));
            found.chain(contract_hopper::space(&plan.graph, &k.stmts, target)).collect()
        }
        Form::Row => row::space(&plan.graph, k),
        Form::Fold => fold_form::space(&plan.graph, k, target),
        Form::Scan => scan_space::space(&plan.graph, k),
        Form::Sort => sort::space(&Lowering::new(plan, target, &Schedule::default()), k),
        Form::Block => vec![Choice::ints("threads", "", &[64, 128, 256, 512, 1024])],
        Form::Scatter | Form::Thread | Form::Step => {
            vec![Choice::ints("threads", "", &[64, 128, 256, 512])]
        }
    }
}

/// The tile level of each kernel that has one, for printing.
pub fn tiles(
    plan: &Plan,
    target: &Target,
    schedule: &Schedule,
) -> Result<Vec<(String, Form, Option<Tile>)>, Refusal> {
    let (whole, _) = settle(plan, target, schedule)?;
    let mut cx = Lowering::new(plan, target, &whole);
    let mut tile = |k: &PlanKernel| match k.form {
        Form::Contract => contract_tile_of::tile(&mut cx, k).map(Some),
        _ => Ok(None),
    };
    plan.kernels.iter().map(|k| Ok((k.name.clone(), k.form, tile(k)?))).collect()
}

impl<'a> Lowering<'a> {
    fn new(plan: &'a Plan, target: &'a Target, schedule: &'a Schedule) -> Lowering<'a> {
        let graph = &plan.graph;
        let mut program = Program { name: graph.op.clone(), ..Program::default() };
        program.scalars = graph.scalars.iter().map(|s| (s.name.clone(), s.dtype)).collect();
        let homes = Rc::new(home::assign(plan, &mut program));
        program.buffers.push(Buffer {
            name: "fault".into(),
            dtype: DType::I64,
            dims: vec![4],
            bytes: 32,
            role: BufferRole::Fault,
        });
        let fault = BufferId(program.buffers.len() as u32 - 1);
        Lowering {
            plan,
            graph,
            target,
            schedule,
            program,
            facts: Rc::new(Facts::new(graph)),
            homes,
            sites: Rc::default(),
            broken: Rc::default(),
            fault,
            open: vec![Vec::new()],
            names: BTreeSet::new(),
            parts: None,
            packed: None,
            unrolled: BTreeSet::new(),
        }
    }

    /// Threads of most forms would share the bytes of packed targets: those are written one a byte, then packed.
    fn lower_kernel(&mut self, k: &'a PlanKernel) -> Result<(), Refusal> {
        self.unrolled.clear();
        let targets = k.stmts.iter().flat_map(|&s| self.graph.stmts[s].targets());
        let packed: Vec<TensorId> = targets.filter(|&t| self.graph.tensor(t).dtype.bits() == 4).collect();
        if k.form == Form::Map || packed.is_empty() {
            return self.lower_form(k);
        }
        let packed: Vec<(TensorId, Home)> = packed.into_iter().map(|t| (t, self.unpack_home(t))).collect();
        self.lower_form(k)?;
        for (t, own) in packed {
            let bytes = std::mem::replace(self.home_mut(t), own);
            scatter::copy_from(self, &k.name, &bytes, t)?;
        }
        Ok(())
    }

    /// Lets a packed tensor live a byte an element; gives its own home.
    fn unpack_home(&mut self, t: TensorId) -> Home {
        let tensor = self.graph.tensor(t);
        let buffer = self.workspace(format!("{}_bytes", tensor.name), DType::I8, &tensor.dims);
        let strides = home::contiguous(DType::I8, &tensor.dims);
        let len = tensor.dims.iter().product();
        let bytes = Home { buffer, dtype: DType::I8, strides, len, align: 256, ring: None };
        std::mem::replace(self.home_mut(t), bytes)
    }

    /// Runs `f` on a lowering of a rewritten plan that goes on with this one's program.
    fn within<'b, R>(&mut self, plan: &'b Plan, f: impl FnOnce(&mut Lowering<'b>) -> R) -> R
    where
        'a: 'b,
    {
        let mut inner = Lowering {
            plan,
            graph: &plan.graph,
            target: self.target,
            schedule: self.schedule,
            program: std::mem::take(&mut self.program),
            facts: Rc::new(Facts::new(&plan.graph)),
            homes: self.homes.clone(),
            sites: self.sites.clone(),
            broken: self.broken.clone(),
            fault: self.fault,
            open: std::mem::take(&mut self.open),
            names: std::mem::take(&mut self.names),
            parts: Some(BTreeMap::new()),
            packed: None,
            unrolled: BTreeSet::new(),
        };
        let done = f(&mut inner);
        (self.program, self.open, self.names) = (inner.program, inner.open, inner.names);
        done
    }

    /// Where a tensor lives that a rewriting made.
    fn set_home(&mut self, t: TensorId, home: Home) {
        Rc::make_mut(&mut self.homes).insert(t, home);
    }

    /// A contiguous workspace for a tensor that a rewriting made.
    fn new_home(&mut self, t: TensorId) {
        let tensor = self.graph.tensor(t);
        let buffer = self.workspace(tensor.name.clone(), tensor.dtype, &tensor.dims);
        let strides = home::contiguous(tensor.dtype, &tensor.dims);
        let len = tensor.dims.iter().product();
        let home = Home { buffer, dtype: tensor.dtype, strides, len, align: 256, ring: None };
        self.set_home(t, home);
    }

    /// Launches under construction take the counter of the `Repeat` around where they would take this scalar.
    fn count_by(&mut self, scalar: crate::ir::graph::ScalarId) {
        for step in self.open.last_mut().into_iter().flatten() {
            if let Step::Launch(l) = step {
                let counted = l.args.iter_mut().filter(|a| **a == Arg::Scalar(scalar));
                counted.for_each(|a| *a = Arg::Counter);
            }
        }
    }

    fn home_mut(&mut self, t: TensorId) -> &mut Home {
        Rc::make_mut(&mut self.homes).get_mut(&t).expect("every tensor has a home")
    }

    fn lower_form(&mut self, k: &'a PlanKernel) -> Result<(), Refusal> {
        match k.form {
            Form::Map => map::lower(self, k),
            Form::Row => map_window::lower(self, k).unwrap_or_else(|| row::lower(self, k)),
            Form::Scan => scan::lower(self, k),
            Form::Sort => sort::lower(self, k),
            Form::Scatter => scatter::lower(self, k),
            Form::Thread => thread::lower(self, k),
            Form::Block => block::lower(self, k),
            Form::Step => step::lower(self, k),
            Form::Fold => fold_form::lower(self, k),
            // Every definition can be a map: what the pattern does not take is one.
            Form::Contract => contract::lower(self, k).or_else(|why| match why.setting {
                None if settings::need_a_product(self.schedule, k) => Err(why),
                None => map::lower(self, k),
                Some(_) => Err(why),
            }),
        }
    }

    /// A kernel under construction. Its name is made unique and a C identifier.
    pub fn emit(&mut self, name: &str) -> Emit<'a> {
        let name = self.kernel_name(name);
        Emit::new(
            self.graph,
            self.facts.clone(),
            self.homes.clone(),
            self.sites.clone(),
            self.broken.clone(),
            self.fault,
            &self.program.buffers,
            name,
        )
    }

    fn kernel_name(&mut self, name: &str) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let op: String = self.graph.op.chars().map(plain).collect();
        let base: String = format!("girih_{op}_{}", name.chars().map(plain).collect::<String>());
        let numbered = (2..).map(|n| format!("{base}_{n}"));
        let mut wishes = std::iter::once(base.clone()).chain(numbered);
        let free = wishes.find(|w| !self.names.contains(w)).expect("the numbers do not end");
        self.names.insert(free.clone());
        free
    }

    /// Where a tensor's elements live.
    pub fn home(&self, tensor: TensorId) -> &Home {
        &self.homes[&tensor]
    }

    /// A new workspace buffer.
    pub fn workspace(&mut self, name: impl Into<String>, dtype: DType, dims: &[i64]) -> BufferId {
        self.program.buffers.push(Buffer {
            name: name.into(),
            dtype,
            dims: dims.to_vec(),
            bytes: dtype.bytes(dims),
            role: BufferRole::Workspace,
        });
        BufferId(self.program.buffers.len() as u32 - 1)
    }

    /// Appends a step of the host's program.
    pub fn step(&mut self, step: Step) {
        self.open.last_mut().expect("the program's own steps are always open").push(step);
    }

    /// Steps made by `f` run `count` times, with `Arg::Counter` counting.
    pub fn repeat(
        &mut self,
        count: i64,
        f: impl FnOnce(&mut Self) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        self.open.push(Vec::new());
        let done = f(self);
        let steps = self.open.pop().expect("pushed above");
        done?;
        self.start_early(&steps);
        if count > 0 && !steps.is_empty() {
            self.step(Step::Repeat { count, steps });
        }
        Ok(())
    }

    /// Short kernels that follow each other again and again are launched ahead, and wait by themselves.
    fn start_early(&mut self, steps: &[Step]) {
        if self.target.compute < (9, 0) {
            return;
        }
        for step in steps {
            let Step::Launch(l) = step else { continue };
            start_early(&mut self.program.kernels[l.kernel]);
        }
    }

    /// Adds a kernel and its launch, with the arguments that the emitter gathered.
    pub fn launch(&mut self, emit: Emit<'a>) {
        let (kernel, args) = emit.finish();
        self.launch_kernel(kernel, args);
    }

    /// Lets the kernels from a number on, each of which follows another, be launched before that one has ended.
    pub fn launched_ahead(&mut self, first: usize) {
        if self.target.compute >= (9, 0) {
            self.program.kernels.iter_mut().skip(first).for_each(start_early);
        }
    }

    /// As `launch`, for a kernel made by hand. An empty grid is no launch.
    pub fn launch_kernel(&mut self, kernel: Kernel, args: Vec<Arg>) {
        if kernel.grid.contains(&0) {
            return;
        }
        debug_assert_eq!(kernel.params.len(), args.len(), "kernel {}", kernel.name);
        self.program.kernels.push(kernel);
        let kernel = self.program.kernels.len() - 1;
        self.step(Step::Launch(Launch { kernel, args }));
    }

    /// Adds a row for a place that may fault; its number is what `simt::Stmt::Fault` takes.
    pub fn fault_site(&mut self, site: FaultSite) -> u32 {
        let mut sites = self.sites.borrow_mut();
        sites.push(site);
        sites.len() as u32 - 1
    }

    /// New values of `inout`s that were written beside the old ones go to their place.
    fn copy_back(&mut self) -> Result<(), Refusal> {
        for out in &self.graph.outputs {
            let from = self.home(out.tensor).buffer;
            let to = match out.inout {
                Some(t) => self.home(t).buffer,
                None => match home::extra_output(&self.program, &out.name) {
                    Some(b) => b,
                    None => continue,
                },
            };
            if from == to {
                continue;
            }
            match out.inout {
                Some(t) if !scatter::is_contiguous(self.graph, &self.homes[&t], t) => {
                    scatter::copy(self, &out.name, out.tensor, t)?;
                }
                _ => self.step(Step::Copy { from, to }),
            }
        }
        Ok(())
    }

    /// A plan that reads an axis nothing binds has no meaning: no program is better than a wrong one.
    fn sound(&self) -> Result<(), Refusal> {
        match self.broken.borrow().first() {
            None => Ok(()),
            Some((axis, span)) => Err(Refusal::new(
                *span,
                format!(
                    "the plan reads the axis {axis} where nothing binds it: this is a fault of the compiler, please report it"
                ),
            )),
        }
    }

    fn finish(mut self) -> Program {
        self.program.steps = self.open.pop().expect("the program's own steps are always open");
        self.program.faults = self.sites.take();
        self.program.kernels.iter_mut().for_each(unused::remove);
        self.program
    }
}

/// Lets a kernel be launched before the one before it has ended: it waits by itself.
fn start_early(kernel: &mut Kernel) {
    if !kernel.starts_early() {
        let wait = Stmt::Intrinsic { op: Intrinsic::GridWait, outs: Vec::new(), args: Vec::new() };
        kernel.body.insert(0, wait);
    }
}

#[cfg(test)]
pub(crate) mod tests;
