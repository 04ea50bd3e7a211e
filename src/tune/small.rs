//! A small shape of a job's op, whose sizes divide no tile, where the definition can be evaluated.

use super::worker::bind;
use crate::error::{Error, Result};
use crate::execute::{Compiled, Inputs, RunOptions};
use crate::kernel::BoundOp;
use crate::random;
use girih_autotune::protocol::Job;
use girih_compiler::host::HostTensor;
use girih_compiler::reference;
use std::collections::BTreeMap;

/// Sizes above the first are made the second, and what they are modulo the third is kept, since alignment hangs on it.
const SHRINK: [(i64, i64, i64); 4] = [(256, 152, 8), (64, 72, 8), (48, 32, 16), (16, 16, 8)];
/// Points of all axes together that are evaluated without a wait.
pub(crate) const POINTS: f64 = 6e6;

pub struct Small {
    pub bound: BoundOp,
    inputs: Inputs,
    right: BTreeMap<String, reference::Checked>,
    name: String,
}

impl Small {
    pub fn new(job: &Job) -> Result<Small> {
        let (bound, name) = shape(job)?;
        let mut inputs = Inputs::default();
        for t in bound.inputs() {
            inputs.tensors.insert(t.name.clone(), random::tensor(t, job.seed)?);
        }
        for (scalar, value) in bound.scalars().0 {
            inputs.scalars.insert(scalar, value);
        }
        let right = reference::run(bound.graph(), &inputs).map_err(|f| Error::Fault(f.to_string()))?.outputs;
        Ok(Small { bound, inputs, right, name })
    }

    /// Runs what was compiled for this shape. Says so.
    pub fn check(&self, compiled: &Compiled) -> Result<String> {
        let ran = compiled.run(&self.inputs, &RunOptions { poison: true, timed: 0 })?;
        self.compare(&ran.outputs)?;
        Ok(format!("right at {}", self.name))
    }

    pub fn shape(&self) -> &str {
        &self.name
    }

    fn compare(&self, outputs: &BTreeMap<String, HostTensor>) -> Result<()> {
        for (name, want) in &self.right {
            let got = outputs.get(name).ok_or_else(|| Error::Wrong(format!("{name} is missing")))?;
            reference::compare(want, got)
                .map_err(|m| Error::Wrong(format!("{name} at {}: {m}", self.name)))?;
        }
        Ok(())
    }
}

/// The largest of the small shapes that binds.
fn shape(job: &Job) -> Result<(BoundOp, String)> {
    let mut last = None;
    for Shape { dims, name, points } in shapes(&job.dims) {
        let bound = match bind(&Job { dims, ..job.clone() }) {
            Ok(bound) => bound,
            Err(_) => continue,
        };
        last = Some((bound, name));
        if points <= POINTS {
            break;
        }
    }
    last.map_or_else(|| bind(job).map(|b| (b, "its own shape".into())), Ok)
}

/// Sizes made smaller, as words too, and the points of all of them together.
pub(crate) struct Shape {
    pub dims: BTreeMap<String, i64>,
    pub name: String,
    pub points: f64,
}

/// Small shapes of the same classes, the largest first.
pub(crate) fn shapes(dims: &BTreeMap<String, i64>) -> impl Iterator<Item = Shape> {
    SHRINK.into_iter().map(move |(above, base, keep)| {
        let shrink = |n: i64| if n > above { base + n % keep } else { n };
        let dims: BTreeMap<String, i64> = dims.iter().map(|(k, n)| (k.clone(), shrink(*n))).collect();
        let name = dims.iter().map(|(k, n)| format!("{k}={n}")).collect::<Vec<_>>().join(" ");
        let points = dims.values().map(|&n| n.max(1) as f64).product();
        Shape { dims, name, points }
    })
}
