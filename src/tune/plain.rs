//! The plainest program of an op: each statement a kernel, sums as loops in a thread. Candidates on a GPU are compared
//! with its results.

use crate::device::Device;
use crate::error::Result;
use crate::execute::Compiled;
use crate::kernel::BoundOp;
use crate::pipeline::Fusion;
use girih_compiler::ir::graph::{Expr, Stmt, Word};
use girih_compiler::ir::plan::{Form, Plan, PlanKernel};
use girih_compiler::lower::Schedule;
use girih_compiler::pass::inline::below;

/// Points of a box along the last two axes: a warp's lanes share four rows and eight columns of what a sum reads, where
/// lanes along one axis would each look at a row of their own (33 cache lines a term instead of 12).
const BOX: [i64; 2] = [32, 8];

/// Compiles it.
pub fn compile(bound: &BoundOp, device: &Device) -> Result<Compiled> {
    let plain = bound.with_form(Form::Map).with_fusion(Fusion::Apart).with_schedule(Default::default());
    let boxed = plain.with_schedule(boxes(&plain.plan(device)?));
    // A box that cannot be had is no reason to compare with nothing.
    boxed.compile_as_is(device).or_else(|_| plain.compile_as_is(device))
}

/// Boxes for kernels that sum at each point of two axes.
fn boxes(plan: &Plan) -> Schedule {
    let mut schedule = Schedule::default();
    for k in plan.kernels.iter().filter(|k| k.form == Form::Map) {
        for (axis, n) in last_axes(plan, k).into_iter().zip(BOX) {
            schedule.set(&k.name, "block", &axis, Word::Int(n));
        }
    }
    schedule
}

/// The names of the last two axes of a kernel that is one sum; none of others.
fn last_axes(plan: &Plan, k: &PlanKernel) -> Vec<String> {
    let [s] = k.stmts[..] else { return Vec::new() };
    let Stmt::Define(d) = &plan.graph.stmts[s] else { return Vec::new() };
    let sums = below(&plan.graph, d.value).into_iter().any(|e| matches!(plan.graph.expr(e), Expr::Fold(_)));
    match &d.axes[..] {
        [.., m, n] if sums => [m, n].map(|&a| plan.graph.axis(a).name.clone()).to_vec(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::{Inputs, RunOptions};
    use crate::kernel::Kernel;
    use crate::random;
    use girih_compiler::reference;

    const TEXT: &str = "op f[M, N, K](x: f32[M, K], w: f32[N, K]) -> (y: f32[M, N], top: f32[M]) {
        y[m, n] = sum[k](x[m, k] * w[n, k])
        top[m] = max[n](y[m, n])
    }";

    /// Others than sums over two axes have no boxes; both are right at sizes that no box divides.
    #[test]
    fn sums_over_two_axes_are_made_in_boxes() {
        let op = Kernel::from_text("f.tile", TEXT).unwrap().op("f").unwrap();
        let bound = op.dim("M", 37).dim("N", 21).dim("K", 50).bind().unwrap();
        let compiled = compile(&bound, &Device::sim()).unwrap();
        let code = compiled.lowered().unwrap().cuda.clone();
        assert_eq!(code.matches("for (int point").count(), 1, "{code}");
        let tensors = bound.inputs().map(|t| (t.name.clone(), random::tensor(t, 3).unwrap())).collect();
        let inputs = Inputs { tensors, ..Inputs::default() };
        let right = reference::run(bound.graph(), &inputs).unwrap().outputs;
        let ran = compiled.run(&inputs, &RunOptions { poison: true, ..RunOptions::default() }).unwrap();
        for (name, want) in &right {
            reference::compare(want, &ran.outputs[name]).unwrap_or_else(|m| panic!("{name}: {m}"));
        }
    }
}
