//! What is kept of a recurrence: where nothing but its last step is read afterwards, the states that its steps look back
//! at, in a ring, instead of all of them.

use super::index::reads;
use super::thread::offset;
use crate::ir::graph::{AxisId, Expr, Graph, Recur, Role, Stmt, TensorId};
use crate::ir::plan::{Form, Plan};
use crate::pass::{facts::Facts, inline};
use crate::vocab::dtype::Value;

/// A tensor of which some steps are kept. The last step stands at the front, so that what reads it afterwards needs to
/// know nothing of the ring.
#[derive(Clone, Debug, PartialEq)]
pub struct Ring {
    /// The step axis.
    pub dim: usize,
    /// Steps kept: a power of two.
    pub depth: i64,
    /// The axis's value at the last step.
    pub last: i64,
    pub descending: bool,
}

/// The ring in which a member of the recurrence that is statement `s` may live.
pub fn ring(plan: &Plan, s: usize, target: TensorId) -> Option<Ring> {
    let g = &plan.graph;
    let Stmt::Recur(r) = &g.stmts[s] else { return None };
    let [step] = &r.steps[..] else { return None };
    let m = r.members.iter().position(|d| d.target == target)?;
    let t = g.tensor(target);
    let dim = step.position[m];
    let same_box = r.members.iter().enumerate().all(|(k, d)| {
        let (own, p) = (g.tensor(d.target), step.position[k]);
        (own.lo[p], own.dims[p]) == (t.lo[dim], t.dims[dim])
    });
    let local = t.role == Role::Local && g.outputs.iter().all(|o| o.tensor != target);
    if !same_box || !local || t.dtype.bits() < 8 || t.dims.contains(&0) {
        return None;
    }
    let last = if step.descending { t.lo[dim] } else { t.lo[dim] + t.dims[dim] - 1 };
    if !only_last(g, s, target, dim, last) {
        return None;
    }
    let form = plan.kernels.iter().find(|k| k.stmts.contains(&s))?.form;
    let back = match form {
        Form::Scan => 0,
        Form::Thread | Form::Block => farthest(g, r, target)?,
        // Sums of a step are kernels of their own, which know nothing of rings.
        Form::Step if !read_in_sums(g, r, target) => farthest(g, r, target)?,
        _ => return None,
    };
    let depth = (back as u64 + 1).next_power_of_two() as i64;
    (depth < t.dims[dim]).then_some(Ring { dim, depth, last, descending: step.descending })
}

/// Do all other statements read the tensor at its last step alone?
fn only_last(g: &Graph, s: usize, target: TensorId, dim: usize, last: i64) -> bool {
    let others = g.stmts.iter().enumerate().filter(|(i, _)| *i != s);
    others
        .flat_map(|(_, stmt)| reads(g, stmt))
        .filter(|(_, r)| r.tensor == target)
        .all(|(_, r)| matches!(g.expr(r.index[dim]), Expr::Lit(Value::I64(v)) if *v == last))
}

/// How many steps back members read the tensor, if all those are fixed.
fn farthest(g: &Graph, r: &Recur, target: TensorId) -> Option<i64> {
    let step = &r.steps[0];
    let m = r.members.iter().position(|d| d.target == target)?;
    let mut most = 0;
    for (k, d) in r.members.iter().enumerate() {
        let axes: [AxisId; 1] = [d.axes[step.position[k]]];
        for (_, read) in reads(g, &Stmt::Define(d.clone())) {
            if read.tensor == target {
                let by = offset(g, read.index[step.position[m]], &axes)?;
                let back = if step.descending { by } else { -by };
                most = most.max((back >= 0).then_some(back)?);
            }
        }
    }
    Some(most)
}

fn read_in_sums(g: &Graph, r: &Recur, target: TensorId) -> bool {
    let mut facts = Facts::default();
    let folds = r.members.iter().flat_map(|d| inline::outer_folds(g, d.value));
    folds.into_iter().any(|f| facts.reads(g, f).contains(&target))
}
