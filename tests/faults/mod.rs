//! Cases: known faults of systems like this one, each a `.tile` file with three ops. `inputs` makes the inputs and
//! `expected` the results by a closed form, both by their definitions; `case` is compiled and run. Comments at the
//! head say at which sizes and consts, and what else there is to know:
//!
//! ```text
//! // A24 · its title
//! //: run N=8192            sizes and consts of a run, in the simulator and on a GPU
//! //: gpu N=100000          of a run on a GPU only
//! //: tolerance 1e-5        relative to 1 + |expected|; without it results are equal. `run … tolerance=1e-5` for one
//! //: each                  under every schedule that is accepted, not only the default
//! //: refused TEXT          the case is refused, in words that hold TEXT
//! //: fault TEXT            its run ends in a fault, in words that hold TEXT
//! ```
//!
//! A case without an op `expected` is compared with its definition alone.

use girih::{BoundOp, Device, HostTensor, Inputs, Kernel, Op, RunOptions, random};
use girih_compiler::host::as_f64;
use girih_compiler::lower::schedules;
use std::collections::BTreeMap;

/// Name and text of every case.
macro_rules! cases {
    ($($name:literal),* $(,)?) => {
        pub const CASES: &[(&str, &str)] = &[$(($name, include_str!(concat!($name, ".tile")))),*];
    };
}
include!("list.rs");

/// What the head of a case says.
#[derive(Clone, Default)]
struct Head {
    runs: Vec<BTreeMap<String, String>>,
    gpu: Vec<BTreeMap<String, String>>,
    tolerance: f64,
    each: bool,
    refused: Option<String>,
    fault: Option<String>,
}

fn head(text: &str) -> Result<Head, String> {
    let mut head = Head::default();
    let pairs = |rest: &str| {
        rest.split_whitespace().filter_map(|p| p.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect()
    };
    for line in text.lines().filter_map(|l| l.strip_prefix("//: ")) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "run" => head.runs.push(pairs(rest)),
            "gpu" => head.gpu.push(pairs(rest)),
            "tolerance" => head.tolerance = rest.parse().map_err(|_| format!("no tolerance: {rest}"))?,
            "each" => head.each = true,
            "refused" => head.refused = Some(rest.into()),
            "fault" => head.fault = Some(rest.into()),
            _ => return Err(format!("a head does not say `{word}`")),
        }
    }
    if head.runs.is_empty() && head.gpu.is_empty() {
        head.runs.push(BTreeMap::new());
    }
    Ok(head)
}

/// Runs a case on a device.
pub fn run(name: &str, text: &str, device: &Device) -> Result<(), String> {
    let head = head(text)?;
    let on_gpu = matches!(device, Device::Cuda(_));
    let mut runs = head.runs.iter().chain(head.gpu.iter().filter(|_| on_gpu));
    runs.try_for_each(|given| at(name, text, &head, given, device).map_err(|e| format!("{given:?}: {e}")))
}

/// The op of this name with those of the given values that it takes; none if there is no such op.
fn op(kernel: &Kernel, name: &str, given: &BTreeMap<String, String>) -> Option<Op> {
    let mut op = kernel.op(name).ok()?;
    for (key, value) in given {
        if op.ast().sizes.iter().any(|s| s.name.text == *key) && value.parse::<i64>().is_ok() {
            op = op.dim(key, value.parse().expect("tried just now"));
        } else if op.ast().sizes.iter().any(|s| s.name.text == *key)
            || op.ast().params.iter().any(|p| p.name.text == *key)
        {
            op = op.constant(key, value);
        }
    }
    Some(op)
}

/// The results of an op without inputs, by its definition.
fn defined(op: Op) -> Result<BTreeMap<String, HostTensor>, String> {
    let compiled = op.compile(&Device::Reference).map_err(|e| e.to_string())?;
    let ran = compiled.run(&Inputs::default(), &RunOptions::default()).map_err(|e| e.to_string())?;
    Ok(ran.outputs)
}

fn at(
    name: &str,
    text: &str,
    head: &Head,
    given: &BTreeMap<String, String>,
    device: &Device,
) -> Result<(), String> {
    let loaded = Kernel::from_text(&format!("{name}.tile"), text);
    let bound = loaded.and_then(|k| {
        let case = k.op("case")?;
        op(&k, case.name(), given).expect("looked up just now").bind()
    });
    if let Some(said) = &head.refused {
        let refused = bound.and_then(|b| b.compile(device)).map(|_| ());
        return ends_with(refused, said);
    }
    let bound = bound.map_err(|e| e.to_string())?;
    let kernel = bound.op().kernel();
    let mut inputs = Inputs::default();
    if let Some(made) = op(kernel, "inputs", given) {
        inputs.tensors = defined(made)?;
    }
    for t in bound.inputs().filter(|t| !inputs.tensors.contains_key(&t.name)).collect::<Vec<_>>() {
        inputs.tensors.insert(t.name.clone(), random::tensor(t, 5).map_err(|e| e.to_string())?);
    }
    let expected = op(kernel, "expected", given).map(defined).transpose()?.unwrap_or_default();
    let tolerance = given.get("tolerance").and_then(|t| t.parse().ok());
    let head = &Head { tolerance: tolerance.unwrap_or(head.tolerance), ..head.clone() };
    for bound in scheduled(&bound, head, device)? {
        one(&bound, head, &inputs, &expected, device)
            .map_err(|e| format!("{e}\nunder {:?}", bound.op().settings().to_string()))?;
    }
    Ok(())
}

fn scheduled(bound: &BoundOp, head: &Head, device: &Device) -> Result<Vec<BoundOp>, String> {
    if !head.each || matches!(device, Device::Reference) {
        return Ok(vec![bound.clone()]);
    }
    let plan = bound.plan(device).map_err(|e| e.to_string())?;
    let all = schedules(&plan, &device.target().map_err(|e| e.to_string())?);
    Ok(all.into_iter().map(|s| bound.with_schedule(s)).collect())
}

fn one(
    bound: &BoundOp,
    head: &Head,
    inputs: &Inputs,
    expected: &BTreeMap<String, HostTensor>,
    device: &Device,
) -> Result<(), String> {
    let compiled = bound.compile(device).map_err(|e| e.to_string())?;
    let ran = compiled.run(inputs, &RunOptions { poison: true, timed: 0 });
    if let Some(said) = &head.fault {
        return ends_with(ran.map(|_| ()), said);
    }
    let ran = ran.map_err(|e| e.to_string())?;
    for (name, want) in expected {
        let got = ran.outputs.get(name).ok_or_else(|| format!("there is no output {name}"))?;
        equal(name, got, want, head.tolerance)?;
    }
    // The definition of a large case takes longer than all the rest.
    if expected.is_empty() || !matches!(device, Device::Cuda(_)) {
        for c in compiled.check(inputs, &ran.outputs).map_err(|e| e.to_string())? {
            c.result.map_err(|m| format!("{} against its definition: {m}", c.name))?;
        }
    }
    Ok(())
}

fn equal(name: &str, got: &HostTensor, want: &HostTensor, tolerance: f64) -> Result<(), String> {
    if got.dims != want.dims {
        return Err(format!("{name} is {:?} and {:?} is expected", got.dims, want.dims));
    }
    for i in 0..want.len() {
        let (g, w) = (as_f64(got.get(i)), as_f64(want.get(i)));
        let same = g == w || g.is_nan() && w.is_nan() || (g - w).abs() <= tolerance * (1.0 + w.abs());
        if !same {
            return Err(format!("{name}: element {i} is {g} and {w} is expected"));
        }
    }
    Ok(())
}

fn ends_with(result: girih::Result<()>, said: &str) -> Result<(), String> {
    match result {
        Ok(()) => Err(format!("it should end with an error that says {said}")),
        Err(e) if e.to_string().contains(said) => Ok(()),
        Err(e) => Err(format!("it should say {said}: {e}")),
    }
}
