//! Compiled programs, and running them from host memory.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::kernel::BoundOp;
use crate::pipeline::Lowered;
use girih_compiler::host::HostTensor;
use girih_compiler::ir::graph::{Role, Tensor};
use girih_compiler::ir::program::{BufferRole, FaultKind, Program};
use girih_compiler::reference::{self, RunFault};
use girih_compiler::sim::{self, SimError};
use girih_dsl::ast::Span;
use girih_dsl::diagnostic::Diagnostic;
use girih_dsl::source::Sources;
use girih_runtime::compile::{Cubin, cubin};
use girih_runtime::launch::{Arguments, Prepared, argument_name};
use girih_runtime::timer::{Timer, median};
use girih_runtime::{Cache, DeviceBuffer, Executable, Stream};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Tensors and scalars by name.
pub type Inputs = reference::Inputs;

/// An op compiled for a device.
#[derive(Clone, Debug)]
pub struct Compiled {
    bound: BoundOp,
    device: Device,
    lowered: Option<Lowered>,
    loaded: Option<Executable>,
    variants: Variants,
    notes: Vec<String>,
    times: CompileTimes,
    origin: Origin,
}

/// Where a configuration comes from.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Origin {
    /// Nothing was said and nothing is known: the forms choose.
    #[default]
    Own,
    /// Settings, a form or a way to fuse that the caller gave.
    Given,
    /// The record of this op, shape and device, with its time in microseconds.
    Record(f64),
    /// The record of this other shape, of which the model thinks no worse than of the forms' own choice.
    NearestRecord(String),
    /// The lock file, with the time that it holds.
    Lock(f64),
}

impl Origin {
    /// `own`, `given`, `record`, `nearest record` or `lock`.
    pub fn name(&self) -> &'static str {
        match self {
            Origin::Own => "own",
            Origin::Given => "given",
            Origin::Record(_) => "record",
            Origin::NearestRecord(_) => "nearest record",
            Origin::Lock(_) => "lock",
        }
    }
}

/// Where the time of a compile went.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompileTimes {
    /// Finding out what was tuned.
    pub lookup: Duration,
    /// From the graph to CUDA text.
    pub lower: Duration,
    /// From CUDA text to a cubin: NVRTC, or the cache.
    pub cubin: Duration,
    pub from_cache: bool,
    /// Loading the cubin into the driver.
    pub load: Duration,
}

/// Executables for memory that is aligned to less, by the alignment of each argument that is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variants(Arc<Mutex<BTreeMap<BTreeMap<String, u32>, Executable>>>);

impl Variants {
    pub fn get_or_make(
        &self,
        key: &BTreeMap<String, u32>,
        make: impl FnOnce() -> Result<Executable>,
    ) -> Result<Executable> {
        // A thread that panicked while it compiled left the map as it was.
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = map.get(key) {
            return Ok(found.clone());
        }
        let made = make()?;
        map.insert(key.clone(), made.clone());
        Ok(made)
    }
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Results, and the new values of `inout`s, by name.
    pub outputs: BTreeMap<String, HostTensor>,
    /// Device time of one run on a GPU, wall-clock time elsewhere.
    pub time: Duration,
    pub notes: Vec<String>,
}

/// How to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// Fill results and workspace with NaN patterns first, so that what is not written shows.
    pub poison: bool,
    /// Further runs whose median time is told (on a GPU).
    pub timed: u32,
}

/// Further runs for the sake of the time stop after this.
const TIMING_BUDGET: Duration = Duration::from_millis(500);

impl Compiled {
    pub(crate) fn for_reference(bound: &BoundOp) -> Result<Compiled> {
        let bound = bound.clone();
        Ok(Compiled {
            bound,
            device: Device::Reference,
            lowered: None,
            loaded: None,
            variants: Variants::default(),
            notes: Vec::new(),
            times: CompileTimes::default(),
            origin: Origin::Own,
        })
    }

    pub(crate) fn new(
        bound: &BoundOp,
        device: &Device,
        lowered: Lowered,
        lower: Duration,
    ) -> Result<Compiled> {
        let mut notes = Vec::new();
        let mut times = CompileTimes { lower, ..CompileTimes::default() };
        let loaded = match device {
            Device::Cuda(gpu) => {
                let arch = gpu.info().target()?.name;
                let start = Instant::now();
                let cubin = cubin(bound.op().name(), &lowered.cuda, arch, &Cache::user())?;
                (times.cubin, times.from_cache) = (start.elapsed(), cubin.from_cache);
                notes.extend(cubin_notes(&cubin));
                let start = Instant::now();
                let executable = Executable::load(gpu, lowered.program.clone(), &cubin)?;
                times.load = start.elapsed();
                Some(executable)
            }
            _ => None,
        };
        Ok(Compiled {
            bound: bound.clone(),
            device: device.clone(),
            lowered: Some(lowered),
            loaded,
            variants: Variants::default(),
            notes,
            times,
            origin: Origin::Own,
        })
    }

    pub fn bound(&self) -> &BoundOp {
        &self.bound
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Where its configuration comes from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(crate) fn with_origin(mut self, origin: Origin) -> Compiled {
        self.origin = origin;
        self
    }

    /// The same with more to say.
    pub(crate) fn with_notes(mut self, notes: Vec<String>) -> Compiled {
        self.notes.extend(notes);
        self
    }

    /// The same after so long a look for what was tuned.
    pub(crate) fn with_lookup(mut self, lookup: Duration) -> Compiled {
        self.times.lookup = lookup;
        self
    }

    /// What there is to say about it: spills, speed that the compiler lost, no cache.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Where the time of the compile went.
    pub fn times(&self) -> CompileTimes {
        self.times
    }

    /// Plan, program and CUDA text; not for the reference.
    pub fn lowered(&self) -> Option<&Lowered> {
        self.lowered.as_ref()
    }

    /// The program on its GPU, if it was compiled for one.
    pub fn executable(&self) -> Option<&Executable> {
        self.loaded.as_ref()
    }

    /// Bytes of inputs that are read and results that are written, once each.
    pub fn bytes(&self) -> i64 {
        let graph = self.bound.graph();
        let inputs = graph.tensors.iter().filter(|t| is_given(t));
        let outputs = graph.outputs.iter().map(|o| graph.tensor(o.tensor));
        inputs.chain(outputs).map(|t| t.dtype.bytes(&t.dims)).sum()
    }

    /// The contractions that the op asks for.
    pub fn work(&self) -> girih_compiler::pass::work::Work {
        girih_compiler::pass::work::work(self.bound.graph())
    }

    /// Runs on host tensors. Scalars that are not given take their defaults.
    pub fn run(&self, inputs: &Inputs, options: &RunOptions) -> Result<Ran> {
        let inputs = self.complete(inputs)?;
        let mut ran = match (&self.device, &self.lowered, &self.loaded) {
            (Device::Simulator(_), Some(lowered), _) => self.simulate(lowered, &inputs, options)?,
            (Device::Cuda(_), _, Some(executable)) => self.launch(executable, &inputs, options)?,
            _ => self.refer(&inputs)?,
        };
        ran.notes.splice(0..0, self.notes.iter().cloned());
        Ok(ran)
    }

    /// Compares outputs with the definition, on the same inputs.
    pub fn check(&self, inputs: &Inputs, outputs: &BTreeMap<String, HostTensor>) -> Result<Vec<Comparison>> {
        let right = reference::run(self.bound.graph(), &self.complete(inputs)?)
            .map_err(|f| self.reference_fault(&f))?;
        let compare = |name: &String| {
            let missing = || Error::Wrong(format!("{name} is missing"));
            let got = outputs.get(name).ok_or_else(missing)?;
            let checked = right.outputs.get(name).ok_or_else(missing)?;
            Ok(Comparison { name: name.clone(), result: reference::compare(checked, got) })
        };
        self.bound.graph().outputs.iter().map(|o| compare(&o.name)).collect()
    }

    /// Given tensors checked against the parameters, scalars with their defaults.
    fn complete(&self, inputs: &Inputs) -> Result<Inputs> {
        let graph = self.bound.graph();
        let mut all = inputs.clone();
        let (known, open) = self.bound.scalars();
        for (name, value) in known {
            all.scalars.entry(name).or_insert(value);
        }
        if let Some(name) = open.iter().find(|n| !all.scalars.contains_key(*n)) {
            return Err(Error::argument(
                name,
                format!("it is a scalar without a default: give it with --const {name}=…"),
            ));
        }
        for t in graph.tensors.iter().filter(|t| is_given(t)) {
            let given =
                all.tensors.get(&t.name).ok_or_else(|| Error::argument(&t.name, "it is not given"))?;
            if given.dtype != t.dtype || given.dims != t.dims {
                let (a, b) = (given.dtype.name(), t.dtype.name());
                let what = format!("it is {a}{:?} and {b}{:?} is wanted", given.dims, t.dims);
                return Err(Error::argument(&t.name, what));
            }
        }
        Ok(all)
    }

    fn refer(&self, inputs: &Inputs) -> Result<Ran> {
        let start = Instant::now();
        let outcome = reference::run(self.bound.graph(), inputs).map_err(|f| self.reference_fault(&f))?;
        let outputs = outcome.outputs.into_iter().map(|(n, c)| (n, c.tensor)).collect();
        Ok(Ran { outputs, time: start.elapsed(), notes: Vec::new() })
    }

    fn simulate(&self, lowered: &Lowered, inputs: &Inputs, _: &RunOptions) -> Result<Ran> {
        reference::bearable(self.bound.graph()).map_err(|f| self.reference_fault(&f))?;
        let start = Instant::now();
        let outcome = sim::run(&lowered.program, inputs, &sim::SimOptions::default())
            .map_err(|e| self.simulator_error(lowered, &e))?;
        let conflicts = outcome.kernels.iter().flat_map(|k| k.conflicts.iter().map(|c| (&k.kernel, c)));
        let notes = conflicts.map(|(k, c)| conflict_text(self.sources(), k, c)).collect();
        Ok(Ran { outputs: outcome.outputs, time: start.elapsed(), notes })
    }

    fn launch(&self, executable: &Executable, inputs: &Inputs, options: &RunOptions) -> Result<Ran> {
        let gpu = executable.device();
        let stream = Stream::new(gpu)?;
        let memory = self.upload(executable, inputs)?;
        let mut arguments = Arguments { scalars: inputs.scalars.clone(), ..Arguments::default() };
        arguments.buffers = memory.iter().map(|(n, b)| (n.clone(), b.pointer())).collect();
        arguments.alignment = self.alignment();
        let mut prepared = Prepared::new(executable, &arguments)?;
        if options.poison {
            prepared.poison(0xff, &stream)?;
        }
        let timer = Timer::new(&stream)?;
        let mut time = timer.time(&stream, || prepared.launch(&stream))?;
        stream.synchronize()?;
        if let Some(fault) = prepared.fault()? {
            return Err(self.fault(executable.program(), fault.site, fault.value));
        }
        let outputs = download(executable, &memory)?;
        let mut times = Vec::new();
        let start = Instant::now();
        while times.len() < options.timed as usize && start.elapsed() < TIMING_BUDGET {
            times.push(timer.time(&stream, || prepared.launch(&stream))?);
        }
        if !times.is_empty() {
            time = median(&mut times);
        }
        Ok(Ran { outputs, time, notes: Vec::new() })
    }

    /// Device memory for every argument; inputs uploaded, results as they come.
    fn upload(&self, executable: &Executable, inputs: &Inputs) -> Result<BTreeMap<String, DeviceBuffer>> {
        let mut memory = BTreeMap::new();
        for buffer in &executable.program().buffers {
            let Some(name) = argument_name(buffer) else { continue };
            let made = match &buffer.role {
                BufferRole::Output(_) => DeviceBuffer::new(executable.device(), buffer.bytes as u64)?,
                _ => {
                    let given =
                        inputs.tensors.get(name).ok_or_else(|| Error::argument(name, "it is not given"))?;
                    DeviceBuffer::from_bytes(executable.device(), &given.data)?
                }
            };
            memory.insert(name.to_string(), made);
        }
        Ok(memory)
    }

    /// Alignment in bytes that the program was compiled for, by argument.
    pub fn alignment(&self) -> BTreeMap<String, u32> {
        self.bound.alignment()
    }

    pub(crate) fn variants(&self) -> &Variants {
        &self.variants
    }

    pub(crate) fn sources(&self) -> &Sources {
        self.bound.op().kernel().sources()
    }

    /// A recorded fault, with its place.
    pub(crate) fn fault(&self, program: &Program, site: usize, value: i64) -> Error {
        match program.faults.get(site) {
            Some(row) => {
                let mut d = row.diagnostic(value, &[]);
                // The program knows the read that a declaration proves; the declaration itself is meant.
                let declared = matches!(row.what, FaultKind::Declared | FaultKind::NotUnique);
                let given = self.bound.inputs().find(|t| declared && t.name == row.tensor);
                d.span = given.map_or(d.span, |t| t.span);
                self.shown(d)
            }
            None => Error::Simulator(format!("fault {site} is none of the program's, value {value}")),
        }
    }

    fn reference_fault(&self, fault: &RunFault) -> Error {
        match fault.diagnostic() {
            Some(d) => self.shown(d),
            None => Error::Fault(format!("{}{fault}", place(self.sources(), Some(fault.span)))),
        }
    }

    /// A fault with its line.
    fn shown(&self, d: Diagnostic) -> Error {
        Error::Fault(girih_dsl::render(self.sources(), &[d], false).trim_end().to_string())
    }

    fn simulator_error(&self, lowered: &Lowered, e: &SimError) -> Error {
        if let Some((site, value)) = e.fault {
            return self.fault(&lowered.program, site, value);
        }
        let other = match e.other {
            Some(span) => format!(", the other at {}", self.sources().place(span)),
            None => String::new(),
        };
        Error::Simulator(format!("{}{e}{other}", place(self.sources(), e.span)))
    }
}

/// `file:line: `, where there is one.
pub(crate) fn place(sources: &Sources, span: Option<Span>) -> String {
    let known = span.filter(|s| (s.file as usize) < sources.len() && s.end > 0);
    known.map_or(String::new(), |s| format!("{}: ", sources.place(s)))
}

/// Whether the caller gives it.
pub(crate) fn is_given(t: &Tensor) -> bool {
    matches!(t.role, Role::Input | Role::Inout) && t.version == 0
}

/// One output against the definition.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub name: String,
    pub result: std::result::Result<reference::Report, reference::Mismatch>,
}

fn conflict_text(sources: &Sources, kernel: &str, c: &sim::Conflict) -> String {
    let (at, array) = (place(sources, c.span), &c.array);
    format!("{at}bank conflicts on {array} in {kernel}: {} wavefronts for {}", c.wavefronts, c.ideal)
}

fn cubin_notes(cubin: &Cubin) -> Vec<String> {
    let mut notes: Vec<String> = cubin.note.iter().cloned().collect();
    if cubin.report.spills() > 0 {
        notes.push(format!("the kernels spill {} bytes of registers", cubin.report.spills()));
    }
    notes.extend(cubin.report.lost_speed.iter().map(|l| format!("NVRTC: {l}")));
    notes
}

fn download(
    executable: &Executable,
    memory: &BTreeMap<String, DeviceBuffer>,
) -> Result<BTreeMap<String, HostTensor>> {
    let mut outputs = BTreeMap::new();
    for buffer in &executable.program().buffers {
        if let (BufferRole::Output(name) | BufferRole::Inout(_, name), Some(m)) =
            (&buffer.role, argument_name(buffer).and_then(|n| memory.get(n)))
        {
            let data = m.to_vec()?;
            let tensor = HostTensor { dtype: buffer.dtype, dims: buffer.dims.clone(), data };
            outputs.insert(name.clone(), tensor);
        }
    }
    Ok(outputs)
}
