//! Timing an op on a GPU as `tests/peers/peers.py` times its peers: cold L2 (a buffer larger than it is cleared before
//! each call), device events around one call, medians; random normal data, made on the device.

pub mod kinds;

use crate::error::{Error, Result};
use crate::execute::is_given;
use crate::tune::small::{self, POINTS};
use crate::{BoundOp, Compiled, Device, HostTensor, Inputs, Kernel, Op, RunOptions, Value, random};
use girih_compiler::host::as_f64;
use girih_compiler::ir::graph::Tensor;
use girih_compiler::vocab::dtype::DType;
use girih_runtime::timer::Timer;
use girih_runtime::{DeviceBuffer, Stream};
use kinds::Case;
use std::collections::BTreeMap;
use std::time::Duration;

/// The operators of the peers' workloads.
pub const KINDS_TEXT: &str = include_str!("kinds.tile");

/// More than any GPU's L2.
const FLUSH_BYTES: u64 = 256 << 20;
/// Time spent on warming up and on measuring, and the number of measured calls.
const WARM: Duration = Duration::from_millis(20);
const MEASURE: Duration = Duration::from_millis(60);
const CALLS: (u32, u32) = (20, 1000);
/// A call that takes longer than this is not measured 20 times.
const SLOW: Duration = Duration::from_millis(100);

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub median: Duration,
    pub least: Duration,
    pub greatest: Duration,
    pub calls: u32,
}

/// The op of `kinds.tile` that a case names, with its sizes.
pub fn op_of(kernel: &Kernel, case: &Case) -> Result<Op> {
    let op = kernel.op(&case.op)?;
    let op = case.dims.iter().fold(op, |op, (name, n)| op.dim(name, *n));
    Ok(case.consts.iter().fold(op, |op, (name, value)| op.constant(name, value)))
}

/// Times a compiled op with a cold L2.
pub fn time(compiled: &Compiled, case: &Case) -> Result<Timing> {
    let Device::Cuda(gpu) = compiled.device() else {
        return Err(Error::argument(
            "device",
            "only a GPU is timed, and there is none here; girih run … --device sim --check needs none",
        ));
    };
    let stream = Stream::new(gpu)?;
    let memory = memory(compiled, case)?;
    let names: Vec<_> = memory.iter().map(|(n, b)| (n.as_str(), b.pointer())).collect();
    let mut launch = compiled.prepare(&names, &[])?;
    let timer = Timer::new(&stream)?;
    launch.launch(&stream)?;
    stream.synchronize()?;
    launch.status()?;
    let estimate = timer.time(&stream, || launch.launch(&stream))?.max(Duration::from_micros(1));
    let calls = |budget: Duration| (budget.as_nanos() / estimate.as_nanos()) as u32;
    for _ in 0..calls(WARM) {
        launch.launch(&stream)?;
    }
    let flush = DeviceBuffer::new(gpu, FLUSH_BYTES)?;
    let least = if estimate > SLOW { 3 } else { CALLS.0 };
    let mut times = Vec::new();
    for _ in 0..calls(MEASURE).clamp(least, CALLS.1) {
        flush.fill(0, &stream)?;
        times.push(timer.time(&stream, || launch.launch(&stream))?);
    }
    times.sort();
    let (median, greatest) = (times[times.len() / 2], times[times.len() - 1]);
    Ok(Timing { median, least: times[0], greatest, calls: times.len() as u32 })
}

/// Compares the op at small sizes of the same classes with the definition, on the same device. What is wrong, if anything.
pub fn check(kernel: &Kernel, case: &Case, device: &Device) -> Result<Option<String>> {
    let small = reduced(case);
    let compiled = op_of(kernel, &small)?.compile(device)?;
    let mut inputs = Inputs::default();
    for t in compiled.bound().inputs() {
        inputs.tensors.insert(t.name.clone(), host_tensor(t, &small)?);
    }
    let wrong = first_wrong(&compiled, &inputs, &run(&compiled, &inputs)?)?;
    Ok(wrong.map(|(name, why)| format!("{name} is wrong at {:?}: {why}", small.dims)))
}

/// What an op makes where memory held something else before.
fn run(compiled: &Compiled, inputs: &Inputs) -> Result<BTreeMap<String, HostTensor>> {
    Ok(compiled.run(inputs, &RunOptions { poison: true, timed: 0 })?.outputs)
}

/// The first output that is not what the definition says, and how it is not.
fn first_wrong(
    compiled: &Compiled,
    inputs: &Inputs,
    outputs: &BTreeMap<String, HostTensor>,
) -> Result<Option<(String, String)>> {
    let mut checks = compiled.check(inputs, outputs)?.into_iter();
    Ok(checks.find_map(|c| Some((c.name, c.result.err()?.to_string()))))
}

/// How one's own op was compared with its definition.
#[derive(Clone, Debug, PartialEq)]
pub enum Checked {
    /// It is right at these sizes.
    At(String),
    /// What is wrong, and where.
    Wrong(String),
    /// It was not compared, and why.
    Not(String),
}

/// Compares one's own op with its definition at the largest of small sizes of the same classes that it takes, under its
/// settings.
pub fn check_own(op: &Op, device: &Device) -> Result<Checked> {
    let mut why = "it takes no small sizes".to_string();
    for small in small::shapes(&op.bindings().dims).filter(|s| s.points <= POINTS) {
        let at = small.dims.iter().fold(op.clone(), |op, (name, n)| op.dim(name, *n));
        match check_at(&at, device) {
            Ok(None) => return Ok(Checked::At(small.name)),
            Ok(Some(wrong)) => return Ok(Checked::Wrong(format!("{wrong}, at {}", small.name))),
            Err(
                e @ (Error::Program { .. } | Error::Argument { .. } | Error::Refused(_) | Error::Fault(_)),
            ) => {
                let text = e.text();
                why = format!("at {}: {}", small.name, text.lines().next().unwrap_or("refused"));
            }
            Err(e) => return Err(e),
        }
    }
    Ok(Checked::Not(why))
}

/// What is wrong with an op on random inputs, if anything.
fn check_at(op: &Op, device: &Device) -> Result<Option<String>> {
    let compiled = op.compile(device)?;
    let mut inputs = Inputs::default();
    for t in compiled.bound().inputs() {
        inputs.tensors.insert(t.name.clone(), random::tensor(t, 0)?);
    }
    inputs.scalars.extend(compiled.bound().scalars().0);
    wrong(&compiled, &inputs, &run(&compiled, &inputs)?)
}

/// The same as text.
fn wrong(
    compiled: &Compiled,
    inputs: &Inputs,
    outputs: &BTreeMap<String, HostTensor>,
) -> Result<Option<String>> {
    Ok(first_wrong(compiled, inputs, outputs)?.map(|(name, why)| format!("{name}: {why}")))
}

/// The same workload with every large size made small; what it is modulo 16 stays, since alignment hangs on it.
fn reduced(case: &Case) -> Case {
    let shrink = |n: i64| if n > 48 { 32 + n % 16 } else { n };
    let mut small = case.clone();
    small.dims.iter_mut().for_each(|(_, n)| *n = shrink(*n));
    let size = |name: &str| small.dims.iter().find(|d| d.0 == name).map_or(1, |d| d.1);
    // Top-k takes no more than there are.
    let most = if case.op == "topk" { size("N") } else { i64::MAX };
    small.dims.iter_mut().filter(|d| d.0 == "K").for_each(|(_, k)| *k = (*k).min(most));
    let size = |name: &str| small.dims.iter().find(|d| d.0 == name).map_or(1, |d| d.1);
    let step = size("R") / size("E").max(1);
    small.ramps.iter_mut().for_each(|(_, s)| *s = step);
    small
}

/// Device memory for every argument.
fn memory(compiled: &Compiled, case: &Case) -> Result<BTreeMap<String, DeviceBuffer>> {
    let Device::Cuda(gpu) = compiled.device() else { return Ok(BTreeMap::new()) };
    let graph = compiled.bound().graph();
    let mut memory = given(compiled.bound(), compiled.device(), case)?;
    for out in graph.outputs.iter().filter(|o| o.inout.is_none()) {
        let t = graph.tensor(out.tensor);
        memory.insert(out.name.clone(), DeviceBuffer::new(gpu, t.dtype.bytes(&t.dims) as u64)?);
    }
    Ok(memory)
}

/// Device memory with random values for what the caller of an op gives.
pub(crate) fn inputs_on_device(bound: &BoundOp, device: &Device) -> Result<BTreeMap<String, DeviceBuffer>> {
    given(bound, device, &own_case(bound))
}

fn given(bound: &BoundOp, device: &Device, case: &Case) -> Result<BTreeMap<String, DeviceBuffer>> {
    let Device::Cuda(gpu) = device else { return Ok(BTreeMap::new()) };
    let mut memory = BTreeMap::new();
    for (i, t) in bound.graph().tensors.iter().filter(|t| is_given(t)).enumerate() {
        let seed = ("seed", Value::I64(i as i64));
        let made = match t.dtype {
            _ if t.dims.is_empty() => DeviceBuffer::from_bytes(gpu, &host_tensor(t, case)?.data)?,
            d if d.is_float() => {
                let scale = ("scale", Value::F32(scale(case, &t.name) as f32));
                on_device(device, t, "random", &[seed, scale])?
            }
            DType::Bool => on_device(device, t, "coins", &[seed])?,
            _ => DeviceBuffer::from_bytes(gpu, &host_tensor(t, case)?.data)?,
        };
        memory.insert(t.name.clone(), made);
    }
    Ok(memory)
}

fn scale(case: &Case, name: &str) -> f64 {
    case.scales.iter().find(|s| s.0 == name).map_or(1.0, |s| s.1)
}

/// Random data by the product itself, as an op of the kinds makes them.
fn on_device(device: &Device, t: &Tensor, op: &str, scalars: &[(&str, Value)]) -> Result<DeviceBuffer> {
    let Device::Cuda(gpu) = device else { return Err(Error::argument(&t.name, "there is no GPU")) };
    let n = t.dims.iter().product();
    let op = Kernel::from_text("kinds.tile", KINDS_TEXT)?.op(op)?;
    let op = if t.dtype.is_float() { op.constant("T", t.dtype.name()) } else { op };
    let fill = op.dim("N", n).compile(device)?;
    let buffer = DeviceBuffer::new(gpu, t.dtype.bytes(&t.dims) as u64)?;
    let stream = Stream::new(gpu)?;
    fill.prepare(&[("x", buffer.pointer())], scalars)?.launch(&stream)?;
    stream.synchronize()?;
    Ok(buffer)
}

fn host_tensor(t: &Tensor, case: &Case) -> Result<HostTensor> {
    if let Some((_, step)) = case.ramps.iter().find(|r| r.0 == t.name) {
        let mut out = HostTensor::zeros(t.dtype, &t.dims);
        (0..out.len()).for_each(|i| out.set(i, Value::I64((i as i64 + 1) * step)));
        return Ok(out);
    }
    let mut made = random::tensor(t, 0)?;
    let s = scale(case, &t.name);
    if s != 1.0 && t.dtype != DType::Bool {
        (0..made.len()).for_each(|i| {
            let v = as_f64(made.get(i)) * s;
            made.set(i, Value::F64(v));
        });
    }
    Ok(made)
}

/// The case of one's own op, as it was bound.
pub fn own_case(bound: &BoundOp) -> Case {
    let flop = girih_compiler::pass::work::work(bound.graph()).flop();
    Case { op: bound.op().name().to_string(), flop: flop as i64, ..Case::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str, dims: &[(&str, i64)]) -> Checked {
        let op = Kernel::from_text("f.tile", text).and_then(|k| k.only_op()).expect("it is right");
        let op = dims.iter().fold(op, |op, (name, n)| op.dim(name, *n));
        check_own(&op, &Device::sim()).expect("it runs")
    }

    #[test]
    fn ones_own_op_is_compared_at_small_sizes_or_it_is_told_why_not() {
        let sum = "op f[M, N](x: f32[M, N]) -> (y: f32[M]) { y[m] = sum[n](x[m, n]) }";
        assert_eq!(checked(sum, &[("M", 4099), ("N", 100_000)]), Checked::At("M=155 N=152".into()));
        assert_eq!(checked(sum, &[("M", 3), ("N", 7)]), Checked::At("M=3 N=7".into()));
        let large = sum.replace("{ y", "where N > 1000 { y");
        let not = checked(&large, &[("M", 4), ("N", 4096)]);
        assert!(matches!(&not, Checked::Not(why) if why.contains("N=16")), "{not:?}");
    }

    #[test]
    fn a_wrong_result_is_told() {
        let text = "op f[N](x: f32[N]) -> (y: f32[N]) { y[i] = 2 * x[i] }";
        let op =
            Kernel::from_text("f.tile", text).and_then(|k| k.only_op()).expect("it is right").dim("N", 100);
        let compiled = op.compile(&Device::sim()).expect("it compiles");
        let mut inputs = Inputs::default();
        for t in compiled.bound().inputs() {
            inputs.tensors.insert(t.name.clone(), random::tensor(t, 0).expect("it is small"));
        }
        let mut outputs = compiled.run(&inputs, &RunOptions::default()).expect("it runs").outputs;
        outputs.get_mut("y").expect("the result").set(7, Value::F64(1e9));
        assert!(
            wrong(&compiled, &inputs, &outputs).expect("it compares").is_some_and(|w| w.starts_with("y: "))
        );
    }
}
