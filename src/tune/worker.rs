//! The tuner's worker: a process that compiles, runs, checks and times configurations of one op, so that a crash, a
//! hang or an illegal access costs that configuration only. It speaks `girih_autotune::protocol` on its standard
//! input and output.

use super::gpu::Gpu;
use super::sim::Sim;
use super::small;
use crate::device::{Device, DeviceName, parse_target};
use crate::error::{Error, Result};
use crate::execute::Compiled;
use crate::kernel::{BoundOp, Kernel};
use crate::pipeline::{self, Fusion, Lowered};
use girih_autotune::protocol::*;
use girih_compiler::ir::plan::Plan;
use girih_compiler::ir::program::Program;
use girih_compiler::lower::{Schedule, simt_to_cuda};
use girih_compiler::pass::graph_to_plan::signature;
use girih_compiler::vocab::target::Target;
use girih_runtime::Cache;
use girih_runtime::cache::code_digest;
use girih_runtime::compile::cubin;
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::time::Duration;

/// What a test plants in a worker. The product's own does nothing.
pub trait Plant {
    /// Called before a request is answered.
    fn before(&mut self, _: &Request) {}

    /// May change what was generated; says whether it did.
    fn change(&mut self, _: &Request, _: &mut Program) -> bool {
        false
    }
}

/// Nothing is planted.
pub struct Nothing;

impl Plant for Nothing {}

/// Answers requests until the input ends, or until the device is of no more use.
pub fn serve(input: impl BufRead, mut output: impl Write, plant: &mut dyn Plant) -> Result<()> {
    let mut lines = input.lines();
    let broken = |e: &dyn std::fmt::Display| Error::argument("tune-worker", format!("broken line: {e}"));
    let Some(first) = lines.next() else { return Ok(()) };
    let job: Job = serde_json::from_str(&first.map_err(|e| broken(&e))?).map_err(|e| broken(&e))?;
    let mut say = |reply: &Reply| -> Result<()> {
        let text = serde_json::to_string(reply).map_err(|e| broken(&e))?;
        writeln!(output, "{text}").and_then(|()| output.flush()).map_err(|e| broken(&e))
    };
    let mut worker = match Worker::new(job) {
        Ok(worker) => worker,
        Err(e) => return say(&Reply::Failed { id: 0, failure: failure(&e) }),
    };
    say(&Reply::Ready(worker.ready()))?;
    for line in lines {
        let request: Request =
            serde_json::from_str(&line.map_err(|e| broken(&e))?).map_err(|e| broken(&e))?;
        plant.before(&request);
        match worker.answer(&request, plant) {
            Ok(done) => say(&Reply::Done { id: request.id, done })?,
            Err(e) => {
                let failure = failure(&e);
                let dead = is_sticky(&e);
                say(&Reply::Failed { id: request.id, failure })?;
                if dead {
                    // The context is lost: the tuner starts another worker.
                    std::process::exit(3);
                }
            }
        }
    }
    Ok(())
}

/// What an error says about a configuration.
fn failure(e: &Error) -> Failure {
    let kind = match e {
        Error::Refused(_) => FailureKind::Refused,
        Error::Fault(_) | Error::Simulator(_) => FailureKind::Fault,
        Error::Wrong(_) => FailureKind::Wrong,
        Error::Runtime(girih_runtime::Error::Compile(_)) => FailureKind::Compile,
        Error::Runtime(girih_runtime::Error::Resource { .. }) => FailureKind::Memory,
        Error::Runtime(girih_runtime::Error::Driver { name, .. }) => match name.as_str() {
            "CUDA_ERROR_OUT_OF_MEMORY" | "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" => FailureKind::Memory,
            _ if STICKY.contains(&name.as_str()) => FailureKind::Fault,
            _ => FailureKind::Other,
        },
        _ => FailureKind::Other,
    };
    Failure::new(kind, e.text())
}

/// Driver errors after which a context does nothing more.
const STICKY: [&str; 9] = [
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_LAUNCH_TIMEOUT",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA_ERROR_ASSERT",
];

fn is_sticky(e: &Error) -> bool {
    matches!(e, Error::Runtime(girih_runtime::Error::Driver { name, .. }) if STICKY.contains(&name.as_str()))
}

/// The op of a job, with its sizes and consts.
pub fn bind(job: &Job) -> Result<BoundOp> {
    let mut op = Kernel::load(&job.file)?.op(&job.op)?;
    for (name, n) in &job.dims {
        op = op.dim(name, *n);
    }
    for (name, value) in &job.consts {
        op = op.constant(name, value);
    }
    op.bind()
}

struct Worker {
    job: Job,
    bound: BoundOp,
    target: Target,
    plans: BTreeMap<(String, bool), Plan>,
    on: On,
    small: Option<small::Small>,
}

/// Where candidates run.
enum On {
    Nowhere,
    Sim(Box<Sim>),
    Gpu(Box<Gpu>),
}

impl Worker {
    fn new(job: Job) -> Result<Worker> {
        let bound = bind(&job)?;
        let asked = job.target.as_deref().map(parse_target).transpose()?;
        let (on, target) = match (job.compile_only, job.device.as_str()) {
            (true, _) => {
                let row = asked.map_or_else(|| Device::sim().target(), Ok)?;
                (
                    On::Nowhere,
                    job.limits.map_or(row, |(sms, shared)| Target { sms, shared_per_block: shared, ..row }),
                )
            }
            (false, name) => {
                let device = Device::open(DeviceName::parse(name)?, asked)?;
                let target = device.target()?;
                let on = match device {
                    Device::Cuda(_) => On::Gpu(Box::new(Gpu::new(&bound, &device, job.seed)?)),
                    _ => On::Sim(Box::new(Sim::new(&bound, device, job.seed)?)),
                };
                (on, target)
            }
        };
        Ok(Worker { job, bound, target, plans: BTreeMap::new(), on, small: None })
    }

    fn ready(&self) -> Ready {
        let (device, notes) = match &self.on {
            On::Gpu(gpu) => (gpu.description(), gpu.notes.clone()),
            _ => (format!("sim {}", self.target.name), Vec::new()),
        };
        let target = self.target.name.to_string();
        let limits = (self.target.sms, self.target.shared_per_block);
        Ready { device, target, limits, notes }
    }

    fn answer(&mut self, request: &Request, plant: &mut dyn Plant) -> Result<Done> {
        match request.task {
            Task::Compile => self.compile(request, plant).map(Done::Compiled),
            Task::Measure { calls, cut } => self.measure(request, (calls, cut), plant).map(Done::Measured),
            Task::Parts => self.parts(request, plant).map(Done::Parts),
            Task::Tail => self.tail(request, plant).map(Done::Right),
        }
    }

    /// The op under a configuration.
    fn configured(&self, bound: &BoundOp, c: &Configuration) -> Result<BoundOp> {
        let schedule = Schedule::parse(&c.schedule).map_err(|e| Error::argument("schedule", e))?;
        let fusion = match c.fusion.as_str() {
            "" => Fusion::default(),
            name => {
                Fusion::parse(name).ok_or_else(|| Error::argument("fusion", format!("there is no {name}")))?
            }
        };
        Ok(bound.with_schedule(schedule).with_fusion(fusion))
    }

    fn lower(&mut self, bound: &BoundOp, small: bool, r: &Request, plant: &mut dyn Plant) -> Result<Lowered> {
        let bound = self.configured(bound, &r.configuration)?;
        let device = Device::Simulator(self.target);
        let key = (r.configuration.fusion.clone(), small);
        if !self.plans.contains_key(&key) {
            let plan = if small { self.alike(&bound, &key.0)? } else { bound.plan(&device)? };
            self.plans.insert(key.clone(), plan);
        }
        let sources = bound.op().kernel().sources();
        let options = bound.options(&device)?;
        let mut lowered = pipeline::plan_to_cuda(self.plans[&key].clone(), sources, &options, &mut |_| ())?;
        if plant.change(r, std::sync::Arc::make_mut(&mut lowered.program)) {
            lowered.cuda = simt_to_cuda::print(&lowered.program, &options.target, sources);
        }
        Ok(lowered)
    }

    /// The plan of the small shape that stores the same values by the same forms as that of the job's shape, wherever it
    /// stands among the alternatives there.
    fn alike(&self, small: &BoundOp, fusion: &str) -> Result<Plan> {
        let device = Device::Simulator(self.target);
        let way = Fusion::parse(fusion).unwrap_or_default();
        let wanted = signature(&self.bound.with_fusion(way).plan(&device)?);
        let own = small.plan(&device)?;
        if signature(&own) == wanted {
            return Ok(own);
        }
        let plans = super::run::plans(small, self.target)?.into_iter().map(|p| p.1);
        Ok(plans.into_iter().find(|p| signature(p) == wanted).unwrap_or(own))
    }

    /// Microseconds of each kernel.
    fn parts(&mut self, r: &Request, plant: &mut dyn Plant) -> Result<BTreeMap<String, f64>> {
        let bound = self.configured(&self.bound, &r.configuration)?;
        let lowered = self.lower(&self.bound.clone(), false, r, plant)?;
        match &mut self.on {
            On::Nowhere => Err(Error::argument("device", "this worker only compiles")),
            On::Sim(sim) => sim.parts(&lowered.program),
            On::Gpu(gpu) => {
                let compiled = Compiled::new(&bound, gpu.device(), lowered, Duration::ZERO)?;
                gpu.parts(&compiled)
            }
        }
    }

    fn compile(&mut self, r: &Request, plant: &mut dyn Plant) -> Result<girih_autotune::protocol::Compiled> {
        let lowered = self.lower(&self.bound.clone(), false, r, plant)?;
        let made = cubin(&self.job.op, &lowered.cuda, self.target.name, &Cache::user())?;
        Ok(girih_autotune::protocol::Compiled {
            registers: made.report.kernels.iter().map(|k| k.registers).max().unwrap_or(0),
            spills: made.report.spills(),
            lost_speed: made.report.lost_speed.clone(),
            milliseconds: made.report.time.as_secs_f64() * 1e3,
            from_cache: made.from_cache,
        })
    }

    fn measure(&mut self, r: &Request, calls: (u32, Option<f64>), plant: &mut dyn Plant) -> Result<Sample> {
        let bound = self.configured(&self.bound, &r.configuration)?;
        let lowered = self.lower(&self.bound.clone(), false, r, plant)?;
        let code = code_digest(&lowered.cuda);
        let sample = match &mut self.on {
            On::Nowhere => return Err(Error::argument("device", "this worker only compiles")),
            On::Sim(sim) => sim.measure(&lowered.program)?,
            On::Gpu(gpu) => {
                let compiled = Compiled::new(&bound, gpu.device(), lowered, Duration::ZERO)?;
                gpu.measure(&compiled, calls)?
            }
        };
        Ok(Sample { code, ..sample })
    }

    /// On a GPU, candidates are compared with the plainest program: it must be right itself.
    fn plain_is_right(&self, small: &small::Small) -> Result<()> {
        let On::Gpu(gpu) = &self.on else { return Ok(()) };
        let checked = small.check(&super::plain::compile(&small.bound, gpu.device())?);
        checked.map(|_| ()).map_err(|e| {
            let why = "the plain program that results are compared with";
            Error::Wrong(format!("{why}: {}", e.text()))
        })
    }

    /// Against the definition, at a small shape whose sizes divide no tile.
    fn tail(&mut self, r: &Request, plant: &mut dyn Plant) -> Result<String> {
        if self.small.is_none() {
            let small = small::Small::new(&self.job)?;
            self.plain_is_right(&small)?;
            self.small = Some(small);
        }
        let Some(small) = &self.small else { return Ok(String::new()) };
        let (bound, shape) = (small.bound.clone(), small.shape().to_string());
        let configured = self.configured(&bound, &r.configuration)?;
        let lowered = match self.lower(&bound, true, r, plant) {
            // What is no legal choice at this shape is never used at it.
            Err(Error::Refused(_)) => return Ok(format!("no small shape: it is no legal choice at {shape}")),
            other => other?,
        };
        let device = match &self.on {
            On::Gpu(gpu) => gpu.device().clone(),
            _ => Device::Simulator(self.target),
        };
        let compiled = Compiled::new(&configured, &device, lowered, Duration::ZERO)?;
        match &self.small {
            Some(small) => small.check(&compiled),
            None => Ok(String::new()),
        }
    }
}
