//! Scans: what reads them at the point before its own (exclusive scans, differences).

use super::scalar::{Emit, Num};
use crate::ir::graph::{Access, AxisId, Define, Expr as Node, Graph, Read, TensorId};
use crate::ir::simt::Expr;
use crate::pass::{inline::below, sites};

/// The scan at a point.
#[derive(Clone)]
pub(super) struct Here {
    pub value: Expr,
    /// At the point before, if something reads it there; whatever that is at the first.
    pub before: Option<Expr>,
}

/// Does a definition read a scan at the point before its own?
pub(super) fn looks_before(graph: &Graph, d: &Define, scan: TensorId, along: usize, backwards: bool) -> bool {
    below(graph, d.value).into_iter().any(|x| match graph.expr(x) {
        Node::Read(r) if r.tensor == scan => reads_before(graph, r, &d.axes, along, backwards),
        _ => false,
    })
}

/// Is a scan along the axis at this place read, by a definition with these axes, at the point before its own?
pub fn reads_before(graph: &Graph, r: &Read, axes: &[AxisId], along: usize, backwards: bool) -> bool {
    let back = if backwards { 1 } else { -1 };
    let by = |d: usize| super::thread::offset(graph, r.index[d], &[axes[d]]);
    let otherwise = match r.access {
        Access::Proven => true,
        // It is evaluated at every point.
        Access::Else(d) => sites::speculable(graph, d),
        _ => false,
    };
    otherwise
        && r.index.len() == axes.len()
        && (0..axes.len()).all(|d| by(d) == Some(if d == along { back } else { 0 }))
}

/// What a read of the point before gives.
pub(super) fn read_before<'a>(e: &mut Emit<'a>, r: &Read, before: &Num, first: &Expr) -> Option<Expr> {
    let Access::Else(d) = r.access else { return Some(before.expr.clone()) };
    let other = e.num_as(d, before.ty);
    Some(Expr::Select(Box::new(first.clone()), Box::new(other), Box::new(before.expr.clone())))
}
