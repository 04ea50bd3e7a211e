//! What a configuration is expected to lose at a shape that was not tuned, by the model.

use super::choose::configured;
use crate::device::Device;
use crate::error::Result;
use crate::kernel::BoundOp;
use girih_autotune::protocol::Configuration;
use girih_autotune::space::Space;
use girih_autotune::{model, prune};
use girih_compiler::lower::Schedule;
use girih_compiler::vocab::target::Target;

/// Points of each kernel's space that the model looks at.
const LOOKED_AT: u64 = 64;

/// How much longer an op is predicted to take under a configuration than under the best that the model finds (0.1: a
/// tenth longer), `None` where the configuration is refused at this shape.
pub fn expected(bound: &BoundOp, target: &Target, c: &Configuration) -> Result<Option<f64>> {
    let device = Device::Simulator(*target);
    let time = |b: &BoundOp, s: &Schedule| -> Result<Option<f64>> {
        Ok(prune::judge(&b.plan(&device)?, target, s).ok().map(|p| model::predict(&p, target)))
    };
    let Some(other) = configured(bound, c) else { return Ok(None) };
    let Some(own) = time(&other, other.op().settings())? else { return Ok(None) };
    let plan = bound.plan(&device)?;
    let mut best = own;
    for k in &Space::of(&plan, target).kernels {
        let step = k.size().div_ceil(LOOKED_AT).max(1);
        for p in (0..k.size()).step_by(step as usize) {
            if let Ok(program) = prune::judge(&plan, target, &k.schedule(p)) {
                best = best.min(model::predict(&program, target));
            }
        }
    }
    Ok(Some(own / best - 1.0))
}
