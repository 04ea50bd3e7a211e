//! Form `scan`: what a kernel's settings may be.

use super::scan_step;
use super::{Choice, MAX_GRID_X};
use crate::ir::graph::{Graph, Stmt};
use crate::ir::plan::PlanKernel;

/// What is set of a scan's kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// Of a block.
    pub threads: Option<i64>,
    /// Points of a row that a block takes at a time.
    pub step: Option<i64>,
    /// Parts that a row is cut in.
    pub split: Option<i64>,
}

/// Whether rows lie along another axis than the contiguous one, so that threads take neighbouring rows.
pub(super) fn is_across(dims: &[i64], along: usize, rows: i64) -> bool {
    let inner = dims[along + 1..].iter().product::<i64>();
    rows > MAX_GRID_X || inner > 1 && (dims[along] <= 32 || inner >= 32)
}

/// The settings of a scan's kernel with the values worth trying.
pub fn space(graph: &Graph, k: &PlanKernel) -> Vec<Choice> {
    let mut scans = k.stmts.iter().filter_map(|&s| match &graph.stmts[s] {
        Stmt::Scan(s) => Some((s.target, s.along)),
        Stmt::Recur(r) => scan_step::recognise(graph, r).map(|l| (l.define.target, l.along)),
        _ => None,
    });
    let Some((target, along)) = scans.next_back() else { return Vec::new() };
    let t = graph.tensor(target);
    let n = t.dims[along];
    let rows = t.dims.iter().product::<i64>() / n.max(1);
    let axis = graph.stmts.iter().find_map(|s| match s {
        Stmt::Scan(s) if s.target == target => Some(s.axes[along]),
        Stmt::Recur(r) => r.members.iter().find(|d| d.target == target).map(|d| d.axes[along]),
        _ => None,
    });
    let name = axis.map_or(String::new(), |a| graph.axis(a).name.clone());
    if is_across(&t.dims, along, rows) {
        let parts: Vec<i64> = [1, 2, 4, 8, 16, 32, 64].into_iter().filter(|p| 2 * p <= n).collect();
        return vec![
            Choice::ints("threads", "", &[32, 64, 128, 256, 512]),
            Choice::ints("split", &name, &parts),
        ];
    }
    let mut space = vec![Choice::ints("threads", "", &[64, 128, 256, 512, 1024])];
    let most = [1024, 2048, 4096, 8192, 16384, 32768];
    let steps: Vec<i64> = most.into_iter().filter(|&s| s < 2 * n).collect();
    if !steps.is_empty() {
        space.push(Choice::ints("step", &name, &steps));
    }
    space
}
