//! The host's side of a simulated run: buffers, steps in order, blocks in parallel, outputs and reports.

use super::block::{Block, Global, LaunchCx};
use super::cluster::{self, Member};
use super::code::{Code, Op};
use super::compile::compile;
use super::memory::{Buffer, TAGS};
use super::report::{Conflict, Counters, KernelReport, Kind, SimError};
use super::resident;
use crate::host::HostTensor;
use crate::ir::program::{self, Arg, BufferRole, Launch, Program, Step};
use crate::ir::simt::{Kernel, ParamKind, TensorMap};
use crate::ir::simt_verify;
use crate::reference::Inputs;
use crate::vocab::dtype::Value;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Look for races and uninitialised reads (bounds are always checked).
    pub checks: bool,
    /// Rounds of `While` loops that a warp may run in one block.
    pub loop_limit: u64,
}

impl Default for SimOptions {
    fn default() -> SimOptions {
        SimOptions { checks: true, loop_limit: 100_000_000 }
    }
}

#[derive(Clone, Debug, Default)]
pub struct SimOutcome {
    /// Results and inouts by name.
    pub outputs: BTreeMap<String, HostTensor>,
    pub kernels: Vec<KernelReport>,
}

/// Races are not looked for in buffers of more granules (16 bytes of shadow each).
const TRACKED: usize = 1 << 26;

/// Runs a program on the CPU.
pub fn run(program: &Program, inputs: &Inputs, options: &SimOptions) -> Result<SimOutcome, SimError> {
    let mut run = Run::new(program, inputs, options)?;
    // A fault explains what went wrong after it (a declared uniqueness that does not hold becomes a race).
    let done = run.steps(&program.steps, None);
    run.recorded_fault()?;
    done?;
    let mut outcome = SimOutcome { outputs: run.outputs()?, kernels: Vec::new() };
    for (i, counters) in run.counters.iter().enumerate() {
        outcome.kernels.push(report(&program.kernels[i], &run.codes[i], counters, run.launches[i]));
    }
    Ok(outcome)
}

struct Run<'a> {
    program: &'a Program,
    options: &'a SimOptions,
    scalars: Vec<Value>,
    codes: Vec<Code>,
    buffers: Vec<Buffer>,
    counters: Vec<Counters>,
    launches: Vec<u64>,
    tag: u64,
}

impl<'a> Run<'a> {
    fn new(program: &'a Program, inputs: &Inputs, options: &'a SimOptions) -> Result<Run<'a>, SimError> {
        let mut codes = Vec::new();
        for kernel in &program.kernels {
            let name = &kernel.name;
            let malformed = |m: String| SimError::host(Kind::Malformed, format!("kernel {name}: {m}"));
            simt_verify::verify(kernel).map_err(malformed)?;
            codes.push(compile(kernel).map_err(malformed)?);
        }
        let scalars = scalars(program, inputs)?;
        let mut buffers = Vec::new();
        let uses = uses(program);
        for (b, (granule, written)) in program.buffers.iter().zip(uses) {
            let mut buffer = make_buffer(b, granule, inputs)?;
            if written && options.checks && buffer.bytes >> granule <= TRACKED {
                buffer.track();
            }
            buffers.push(buffer);
        }
        let counters = codes.iter().map(|c| Counters::new(c.ops.len())).collect();
        let launches = vec![0; codes.len()];
        Ok(Run { program, options, scalars, codes, buffers, counters, launches, tag: 0 })
    }

    fn steps(&mut self, steps: &[Step], counter: Option<i64>) -> Result<(), SimError> {
        for step in steps {
            match step {
                Step::Launch(launch) => self.launch(launch, counter)?,
                Step::Fill { buffer, byte } => {
                    let buffer = &self.buffers[buffer.0 as usize];
                    buffer.fill(&vec![*byte; buffer.bytes]);
                }
                Step::Copy { from, to } => {
                    self.buffers[to.0 as usize].copy_from(&self.buffers[from.0 as usize]);
                }
                Step::Repeat { count, steps } => {
                    for i in 0..*count {
                        self.steps(steps, Some(i))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn launch(&mut self, launch: &Launch, counter: Option<i64>) -> Result<(), SimError> {
        self.tag += 1;
        if self.tag > TAGS {
            self.buffers.iter().for_each(Buffer::forget);
            self.tag = 1;
        }
        let kernel = &self.program.kernels[launch.kernel];
        let code = &self.codes[launch.kernel];
        let cx = self.context(kernel, launch, counter)?;
        let counters = run_grid(code, &cx, self.options.checks)?;
        self.counters[launch.kernel].add(&counters);
        self.launches[launch.kernel] += 1;
        Ok(())
    }

    fn context(
        &self,
        kernel: &'a Kernel,
        launch: &Launch,
        counter: Option<i64>,
    ) -> Result<LaunchCx<'_>, SimError> {
        let malformed =
            |m: String| SimError::host(Kind::Malformed, format!("launch of {}: {m}", kernel.name));
        if launch.args.len() != kernel.params.len() {
            return Err(malformed(format!(
                "{} arguments for {} parameters",
                launch.args.len(),
                kernel.params.len()
            )));
        }
        let mut globals = Vec::new();
        let mut scalars = Vec::new();
        let mut maps = Vec::new();
        for (param, arg) in kernel.params.iter().zip(&launch.args) {
            let (id, bits) = match arg {
                Arg::Buffer(b) => (b.0 as usize, 0),
                Arg::Scalar(s) => (0, value_bits(self.scalars[s.0 as usize])),
                Arg::Const(v) => (0, value_bits(*v)),
                Arg::Counter => (0, counter.unwrap_or(0) as u64),
            };
            let (len, elem) = match param.kind {
                ParamKind::Pointer { dtype, len, .. } => (len, dtype.bits()),
                ParamKind::Scalar(_) => (0, 8),
                ParamKind::TensorMap(ref t) => (map_elements(t), t.dtype.bits()),
            };
            maps.push(match &param.kind {
                ParamKind::TensorMap(t) => Some(t),
                _ => None,
            });
            let buffer =
                self.buffers.get(id).ok_or_else(|| malformed(format!("{} has no buffer", param.name)))?;
            if (len * elem as i64 + 7) / 8 > buffer.bytes as i64 {
                let bytes = buffer.bytes;
                return Err(malformed(format!(
                    "{} has {len} elements, its buffer {bytes} bytes",
                    param.name
                )));
            }
            globals.push(Global { name: param.name.clone(), buffer, len, bits: elem });
            scalars.push(bits);
        }
        let blocks: u64 = kernel.grid.iter().map(|&n| n as u64).product();
        Ok(LaunchCx {
            kernel: &kernel.name,
            grid: kernel.grid,
            block: kernel.block,
            cluster: kernel.cluster.iter().map(|&n| n.max(1)).product(),
            tag: self.tag,
            globals,
            scalars,
            maps,
            fences: (0..blocks).map(|_| AtomicU32::new(0)).collect(),
            loop_limit: self.options.loop_limit,
        })
    }

    /// The fault that a kernel has recorded, if any.
    fn recorded_fault(&self) -> Result<(), SimError> {
        for (b, buffer) in self.program.buffers.iter().zip(&self.buffers) {
            if b.role != BufferRole::Fault {
                continue;
            }
            let (site, value) = (buffer.word64(0).load(Relaxed), buffer.word64(8).load(Relaxed) as i64);
            let Some(row) = (site as usize).checked_sub(1).and_then(|i| self.program.faults.get(i)) else {
                continue;
            };
            let mut e = SimError::host(Kind::Fault, row.diagnostic(value, &[]).message);
            e.span = Some(row.span);
            e.fault = Some((site as usize - 1, value));
            return Err(e);
        }
        Ok(())
    }

    fn outputs(&self) -> Result<BTreeMap<String, HostTensor>, SimError> {
        let mut out = BTreeMap::new();
        for (b, buffer) in self.program.buffers.iter().zip(&self.buffers) {
            let (BufferRole::Output(name) | BufferRole::Inout(_, name)) = &b.role else { continue };
            let data = buffer.to_vec();
            let tensor = HostTensor::new(b.dtype, b.dims.clone(), data).ok_or_else(|| {
                SimError::host(Kind::Malformed, format!("buffer {} has not the bytes of its dims", b.name))
            })?;
            written_throughout(name, &tensor, buffer)?;
            out.insert(name.clone(), tensor);
        }
        Ok(out)
    }
}

fn written_throughout(name: &str, t: &HostTensor, buffer: &Buffer) -> Result<(), SimError> {
    for i in 0..t.len() {
        let (byte, nibble) = t.place(i);
        if !buffer.is_valid(byte, nibble.map_or(3, |high| 1 << high as u8)) {
            let index: Vec<String> = t.index_of(i).iter().map(i64::to_string).collect();
            let message = format!("{name}[{}] is written by no kernel", index.join(", "));
            return Err(SimError::host(Kind::Unwritten, message));
        }
    }
    Ok(())
}

fn scalars(program: &Program, inputs: &Inputs) -> Result<Vec<Value>, SimError> {
    let mut out = Vec::new();
    for (name, dtype) in &program.scalars {
        let value = inputs.scalars.get(name);
        let value =
            value.ok_or_else(|| SimError::host(Kind::Input, format!("the scalar {name} is not given")))?;
        out.push(crate::host::round(*value, *dtype));
    }
    Ok(out)
}

/// Elements of a buffer from its start to the end of what a tensor map covers.
fn map_elements(t: &TensorMap) -> i64 {
    let steps: i64 = t.dims.iter().skip(1).zip(&t.strides).map(|(n, s)| (n - 1) * s).sum();
    let size = (t.dtype.bits() / 8).max(1) as i64;
    (t.offset + steps) / size + t.dims.first().copied().unwrap_or(0)
}

/// For each buffer: log2 of the shadow's granule, and whether a kernel writes it.
fn uses(program: &Program) -> Vec<(u32, bool)> {
    let log = |bits: u32| (bits.max(8) / 8).trailing_zeros();
    let mut uses: Vec<(u32, bool)> = program.buffers.iter().map(|b| (log(b.dtype.bits()), false)).collect();
    let mut work: Vec<&Step> = program.steps.iter().collect();
    while let Some(step) = work.pop() {
        match step {
            Step::Repeat { steps, .. } => work.extend(steps),
            Step::Launch(launch) => {
                let kernel = program.kernels.get(launch.kernel);
                for (param, arg) in kernel.iter().flat_map(|k| &k.params).zip(&launch.args) {
                    let (dtype, written) = match &param.kind {
                        ParamKind::Pointer { dtype, written, .. } => (*dtype, *written),
                        ParamKind::TensorMap(t) => {
                            (t.dtype, kernel.is_some_and(|k| k.stores_boxes(&param.name)))
                        }
                        ParamKind::Scalar(_) => continue,
                    };
                    if let Arg::Buffer(b) = arg {
                        let entry = &mut uses[b.0 as usize];
                        entry.0 = entry.0.min(log(dtype.bits()));
                        entry.1 |= written;
                    }
                }
            }
            _ => {}
        }
    }
    uses
}

fn make_buffer(b: &program::Buffer, granule: u32, inputs: &Inputs) -> Result<Buffer, SimError> {
    let bytes = b.bytes.max(0) as usize;
    let given = match &b.role {
        BufferRole::Input(_) => Some(&b.name),
        BufferRole::Inout(_, name) => Some(name),
        _ => None,
    };
    let buffer = Buffer::new(bytes, granule, matches!(b.role, BufferRole::Input(_) | BufferRole::Fault));
    match (&b.role, given) {
        (BufferRole::Constant(data), _) => buffer.fill(data),
        (_, Some(name)) => {
            let t = inputs.tensors.get(name);
            let t = t.ok_or_else(|| SimError::host(Kind::Input, format!("the input {name} is not given")))?;
            if t.dtype != b.dtype || t.data.len() != bytes {
                let (want, got) = (b.dtype.name(), t.dtype.name());
                let message = format!("{name} is {got} of {} bytes, not {want} of {bytes}", t.data.len());
                return Err(SimError::host(Kind::Input, message));
            }
            buffer.fill(&t.data);
        }
        _ => {}
    }
    Ok(buffer)
}

fn value_bits(v: Value) -> u64 {
    match v {
        Value::Bool(b) => b as u64,
        Value::I32(v) => v as u32 as u64,
        Value::I64(v) => v as u64,
        Value::F32(v) => v.to_bits() as u64,
        Value::F64(v) => v.to_bits(),
    }
}

/// Runs all blocks; of several errors the lowest block's is told.
fn run_grid(code: &Code, cx: &LaunchCx, checks: bool) -> Result<Counters, SimError> {
    if cx.cluster > 1 {
        return run_clusters(code, cx, checks);
    }
    if code.awaits {
        return resident::run(code, cx, checks);
    }
    let blocks = cx.fences.len() as u64;
    let failed = AtomicU64::new(u64::MAX);
    let first: Mutex<Option<(u64, SimError)>> = Mutex::new(None);
    let make = || (Block::new(code, cx, checks), Vec::new());
    let step = |(block, warps): &mut (Block, Vec<_>), i: u64| {
        if i < failed.load(Relaxed)
            && let Err(e) = block.run(i, warps)
        {
            failed.fetch_min(i, Relaxed);
            // A poisoned lock means that another block panicked, which rayon passes on anyway.
            let mut first = first.lock().unwrap_or_else(|p| p.into_inner());
            if first.as_ref().is_none_or(|f| i < f.0) {
                *first = Some((i, e));
            }
        }
    };
    let counters = if blocks <= 1 {
        let mut state = make();
        (0..blocks).for_each(|i| step(&mut state, i));
        state.0.counters
    } else {
        let each = (blocks as usize / (8 * rayon::current_num_threads())).max(1);
        let sum = |mut a: Counters, b: Counters| {
            a.add(&b);
            a
        };
        (0..blocks as usize)
            .into_par_iter()
            .with_min_len(each)
            .fold(make, |mut state, i| {
                step(&mut state, i as u64);
                state
            })
            .map(|(block, _)| block.counters)
            .reduce(|| Counters::new(code.ops.len()), sum)
    };
    match first.into_inner().unwrap_or_else(|p| p.into_inner()) {
        Some((_, e)) => Err(e),
        None => Ok(counters),
    }
}

/// Runs all clusters, one after the other: there are few in what is simulated.
fn run_clusters(code: &Code, cx: &LaunchCx, checks: bool) -> Result<Counters, SimError> {
    let mut members: Vec<Member> =
        (0..cx.cluster).map(|_| Member::new(Block::new(code, cx, checks))).collect();
    for first in (0..cx.fences.len() as u64).step_by(cx.cluster as usize) {
        cluster::run(&mut members, first)?;
    }
    let mut sum = Counters::new(code.ops.len());
    members.iter().for_each(|m| sum.add(&m.block.counters));
    Ok(sum)
}

fn report(kernel: &Kernel, code: &Code, counters: &Counters, launches: u64) -> KernelReport {
    let mut report = KernelReport {
        kernel: kernel.name.clone(),
        launches,
        global_read: counters.global_read,
        global_written: counters.global_written,
        operations: counters.operations,
        ..KernelReport::default()
    };
    for (pc, &(wavefronts, ideal)) in counters.sites.iter().enumerate() {
        report.shared_wavefronts += wavefronts;
        report.shared_ideal += ideal;
        if wavefronts > ideal {
            let span = code.span_table[code.spans[pc] as usize];
            let span = (span != Default::default()).then_some(span);
            report.conflicts.push(Conflict { span, array: array_of(code, pc), wavefronts, ideal });
        }
    }
    report
}

/// The shared array that an operation names.
fn array_of(code: &Code, pc: usize) -> String {
    use super::code::Space;
    let (Op::Load { place, .. }
    | Op::Store { place, .. }
    | Op::LoadVec { place, .. }
    | Op::StoreVec { place, .. }
    | Op::Atomic { place, .. }) = &code.ops[pc]
    else {
        return "shared memory".into();
    };
    match place.space {
        Space::Shared { array, .. } => code.shared[array as usize].2.clone(),
        Space::Global(_) => String::new(),
    }
}
