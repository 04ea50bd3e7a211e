//! Candidates on a GPU. Inputs are never harmed: what an op updates is a copy, restored before each run. Results and
//! workspace are filled with NaN patterns first and compared afterwards with those of the plainest program (each
//! statement a kernel, sums as loops in a thread), which is itself compared with the definition at a small shape.
//! The L2 cache is cold before each timed call.

use crate::bench;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::execute::Compiled;
use crate::kernel::{BoundOp, Kernel};
use crate::launch::Launch;
use girih_autotune::protocol::Sample;
use girih_compiler::vocab::dtype::{DType, Value};
use girih_runtime::clocks::Clocks;
use girih_runtime::timer::Timer;
use girih_runtime::{DeviceBuffer, DevicePointer, Stream};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const TEXT: &str = include_str!("measure.tile");
/// At least this much is written to make the L2 cold, and a multiple of what the device has.
const FLUSH_BYTES: u64 = 256 << 20;
/// A configuration is not timed longer than this.
const MOST: Duration = Duration::from_millis(1000);
/// Roundings that fall to the other side under another order of additions: a part of the elements.
const FLIPS: f64 = 1e-4;

pub struct Gpu {
    device: Device,
    stream: Stream,
    timer: Timer,
    clocks: Option<Clocks>,
    flush: DeviceBuffer,
    /// As they were made.
    inputs: BTreeMap<String, DeviceBuffer>,
    /// What candidates write: results, and copies of what they update.
    written: BTreeMap<String, Written>,
    pub notes: Vec<String>,
}

struct Written {
    dtype: DType,
    memory: DeviceBuffer,
    /// What it should hold.
    right: DeviceBuffer,
    /// The mean size of its values.
    mean: f64,
    inout: bool,
}

impl Gpu {
    pub fn new(bound: &BoundOp, device: &Device, _seed: u64) -> Result<Gpu> {
        let Device::Cuda(gpu) = device else { return Err(Error::argument("device", "it is no GPU")) };
        let stream = Stream::new(gpu)?;
        let flush_bytes = FLUSH_BYTES.max(4 * u64::from(gpu.info().l2_bytes));
        let inputs = bench::inputs_on_device(bound, device)?;
        let graph = bound.graph();
        let mut written = BTreeMap::new();
        for out in &graph.outputs {
            let t = graph.tensor(out.tensor);
            let bytes = t.dtype.bytes(&t.dims) as u64;
            let new = || DeviceBuffer::new(gpu, bytes);
            let row = Written {
                dtype: t.dtype,
                memory: new()?,
                right: new()?,
                mean: 0.0,
                inout: out.inout.is_some(),
            };
            written.insert(out.name.clone(), row);
        }
        let mut made = Gpu {
            device: device.clone(),
            timer: Timer::new(&stream)?,
            clocks: Clocks::of(gpu),
            flush: DeviceBuffer::new(gpu, flush_bytes)?,
            stream,
            inputs,
            written,
            notes: vec![format!(
                "L2 of {} MiB made cold with {} MiB",
                gpu.info().l2_bytes >> 20,
                flush_bytes >> 20
            )],
        };
        made.fallback(bound)?;
        Ok(made)
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What tells this GPU from another for which the same choice need not hold.
    pub fn description(&self) -> String {
        let Device::Cuda(gpu) = &self.device else { return String::new() };
        let i = gpu.info();
        format!("{}, {} SMs, {} GiB, driver {}", i.name, i.sms, i.memory >> 30, i.driver)
    }

    /// The right results, by the plainest program.
    fn fallback(&mut self, bound: &BoundOp) -> Result<()> {
        let compiled = super::plain::compile(bound, &self.device)?;
        let start = Instant::now();
        self.run(&compiled)?;
        self.notes.push(format!("the fallback took {:.1} ms", start.elapsed().as_secs_f64() * 1e3));
        for w in self.written.values_mut() {
            w.memory.copy_to(&w.right, &self.stream)?;
            self.stream.synchronize()?;
            w.mean = mean_size(&self.device, &self.stream, w)?;
        }
        Ok(())
    }

    fn restore(&self) -> Result<()> {
        for (name, w) in self.written.iter().filter(|(_, w)| w.inout) {
            if let Some(from) = self.inputs.get(name) {
                from.copy_to(&w.memory, &self.stream)?;
            }
        }
        Ok(())
    }

    fn pointers(&self) -> Vec<(&str, DevicePointer)> {
        let given = self.inputs.iter().filter(|(n, _)| !self.written.contains_key(*n));
        let given = given.map(|(n, b)| (n.as_str(), b.pointer()));
        given.chain(self.written.iter().map(|(n, w)| (n.as_str(), w.memory.pointer()))).collect()
    }

    /// One run on restored, poisoned memory.
    fn run(&self, compiled: &Compiled) -> Result<Launch> {
        let mut launch = compiled.prepare(&self.pointers(), &[])?;
        launch.poison(&self.stream)?;
        self.restore()?;
        launch.launch(&self.stream)?;
        self.stream.synchronize()?;
        launch.status()?;
        Ok(launch)
    }

    /// Runs, compares, and times so many calls: after two that take longer than the cut, no more.
    pub fn measure(&mut self, compiled: &Compiled, (calls, cut): (u32, Option<f64>)) -> Result<Sample> {
        let mut launch = self.run(compiled)?;
        self.compare()?;
        let mut times = Vec::new();
        let before = self.clocks.as_ref().and_then(Clocks::read);
        let start = Instant::now();
        while times.len() < calls.max(1) as usize && (times.len() < 3 || start.elapsed() < MOST) {
            self.restore()?;
            self.flush.fill(0, &self.stream)?;
            times.push(self.timer.time(&self.stream, || launch.launch(&self.stream))?.as_secs_f64() * 1e6);
            if times.len() >= 2 && cut.is_some_and(|cut| times.iter().all(|t| *t > cut)) {
                break;
            }
        }
        times.sort_by(f64::total_cmp);
        let after = self.clocks.as_ref().and_then(Clocks::read);
        let mut notes: Vec<String> = compiled.notes().to_vec();
        if let (Some(a), Some(b)) = (before, after) {
            notes.extend(b.note_since(&a));
        }
        let (us, least, greatest) = (times[times.len() / 2], times[0], times[times.len() - 1]);
        Ok(Sample { us, least, greatest, calls: times.len() as u32, notes, ..Sample::default() })
    }

    /// Microseconds of each kernel by its name, the least of a few runs of all in order.
    pub fn parts(&mut self, compiled: &Compiled) -> Result<BTreeMap<String, f64>> {
        let mut launch = self.run(compiled)?;
        let mut least: BTreeMap<String, f64> = BTreeMap::new();
        for _ in 0..3 {
            self.restore()?;
            let mut run: BTreeMap<String, f64> = BTreeMap::new();
            launch.launch_parts(&self.stream, &mut |names, start| {
                let us = self.timer.time(&self.stream, start)?.as_secs_f64() * 1e6;
                // A loop's kernels share its time.
                for name in names {
                    *run.entry(name.clone()).or_default() += us / names.len() as f64;
                }
                Ok(())
            })?;
            for (name, us) in run {
                least.entry(name).and_modify(|l| *l = l.min(us)).or_insert(us);
            }
        }
        Ok(least)
    }

    /// What was written against what is right.
    fn compare(&self) -> Result<()> {
        for (name, w) in &self.written {
            let (wrong, of) = differing(&self.device, &self.stream, w)?;
            let allowed = if w.dtype.is_float() { of as f64 * FLIPS } else { 0.0 };
            if wrong as f64 > allowed {
                return Err(Error::Wrong(format!(
                    "{wrong} of {of} values of {name} differ from the fallback's"
                )));
            }
        }
        Ok(())
    }
}

/// Bytes of bools and packed integers are compared as they lie.
fn compared_as(w: &Written) -> (DType, i64) {
    let dtype = if w.dtype == DType::Bool || w.dtype.bits() < 8 { DType::U8 } else { w.dtype };
    (dtype, (w.memory.pointer().bytes * 8 / u64::from(dtype.bits())) as i64)
}

/// How many values differ, and of how many.
fn differing(device: &Device, stream: &Stream, w: &Written) -> Result<(i64, i64)> {
    let (dtype, n) = compared_as(w);
    if n == 0 {
        return Ok((0, 0));
    }
    let (rel, near) = if dtype.is_float() { tolerance(dtype, w.mean) } else { (0.0, 0.0) };
    let scalars = [("rel", Value::F32(rel)), ("near", Value::F32(near))];
    let counts = by_part(
        device,
        stream,
        "differs",
        (dtype, n),
        &[("a", &w.memory), ("b", &w.right)],
        ("count", &scalars),
    )?;
    let count = |c: &[u8]| i64::from(i32::from_le_bytes([c[0], c[1], c[2], c[3]]));
    Ok((counts.chunks_exact(4).map(count).sum(), n))
}

/// Relative tolerance, and what is added to it: two units in the last place, and what roundings inside of a sum do on
/// either side (four times their usual size: of millions of values, some are far out).
fn tolerance(dtype: DType, mean: f64) -> (f32, f32) {
    let unit = match dtype {
        DType::F64 | DType::F32 => 2f64.powi(-14),
        DType::F16 => 2f64.powi(-9),
        DType::BF16 => 2f64.powi(-7),
        DType::E4M3 => 2f64.powi(-2),
        _ => 2f64.powi(-1),
    };
    ((2.0 * unit) as f32, (4.0 * unit * mean) as f32)
}

fn mean_size(device: &Device, stream: &Stream, w: &Written) -> Result<f64> {
    let (dtype, n) = compared_as(w);
    if n == 0 || !dtype.is_float() {
        return Ok(0.0);
    }
    let sums = by_part(device, stream, "sizes", (dtype, n), &[("b", &w.right)], ("total", &[]))?;
    let sum = |c: &[u8]| f64::from(f32::from_le_bytes([c[0], c[1], c[2], c[3]]));
    Ok(sums.chunks_exact(4).map(sum).filter(|s| s.is_finite()).sum::<f64>() / n as f64)
}

/// Runs an op of `measure.tile`; gives the bytes of its result, four for each part.
fn by_part(
    device: &Device,
    stream: &Stream,
    op: &str,
    (dtype, n): (DType, i64),
    given: &[(&str, &DeviceBuffer)],
    (result, scalars): (&str, &[(&str, Value)]),
) -> Result<Vec<u8>> {
    let Device::Cuda(gpu) = device else { return Err(Error::argument("device", "it is no GPU")) };
    let op = Kernel::from_text("measure.tile", TEXT)?.op(op)?.dim("N", n).constant("T", dtype.name());
    let op = scalars.iter().fold(op, |op, (name, _)| op.constant(name, 0));
    let compiled = op.compile(device)?;
    let parts = DeviceBuffer::new(gpu, 4 * (n as u64).div_ceil(4096))?;
    let mut memory: Vec<_> = given.iter().map(|(name, b)| (*name, b.pointer())).collect();
    memory.push((result, parts.pointer()));
    compiled.prepare(&memory, scalars)?.launch(stream)?;
    stream.synchronize()?;
    Ok(parts.to_vec()?)
}
