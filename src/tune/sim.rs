//! Costs without a GPU: the simulator runs a candidate, its outputs are compared with the definition, and its
//! counters give the time that they stand for.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::execute::Inputs;
use crate::kernel::BoundOp;
use crate::random;
use girih_autotune::model;
use girih_autotune::protocol::Sample;
use girih_compiler::ir::program::Program;
use girih_compiler::reference;
use girih_compiler::sim::{self, SimOptions};
use girih_compiler::vocab::target::Target;
use std::collections::BTreeMap;

pub struct Sim {
    target: Target,
    inputs: Inputs,
    right: BTreeMap<String, reference::Checked>,
}

impl Sim {
    pub fn new(bound: &BoundOp, device: Device, seed: u64) -> Result<Sim> {
        let mut inputs = Inputs::default();
        for t in bound.inputs() {
            inputs.tensors.insert(t.name.clone(), random::tensor(t, seed)?);
        }
        let (known, open) = bound.scalars();
        inputs.scalars.extend(known);
        if let Some(name) = open.first() {
            return Err(Error::argument(
                name,
                format!("it is a scalar without a default: give it with --const {name}=…"),
            ));
        }
        let right = reference::run(bound.graph(), &inputs).map_err(|f| Error::Fault(f.to_string()))?.outputs;
        Ok(Sim { target: device.target()?, inputs, right })
    }

    /// One run: every count is exact, so more would say the same.
    pub fn measure(&self, program: &Program) -> Result<Sample> {
        let ran = sim::run(program, &self.inputs, &SimOptions::default())
            .map_err(|e| Error::Simulator(e.to_string()))?;
        for (name, want) in &self.right {
            let got = ran.outputs.get(name).ok_or_else(|| Error::Wrong(format!("{name} is missing")))?;
            reference::compare(want, got).map_err(|m| Error::Wrong(format!("{name}: {m}")))?;
        }
        let us = ran.kernels.iter().map(|k| model::counted(k, program, &self.target)).sum();
        Ok(Sample { us, least: us, greatest: us, calls: 1, ..Sample::default() })
    }

    /// Microseconds of each kernel.
    pub fn parts(&self, program: &Program) -> Result<BTreeMap<String, f64>> {
        let ran = sim::run(program, &self.inputs, &SimOptions::default())
            .map_err(|e| Error::Simulator(e.to_string()))?;
        let us = |k: &sim::KernelReport| model::counted(k, program, &self.target);
        Ok(ran.kernels.iter().map(|k| (k.kernel.clone(), us(k))).collect())
    }
}
