//! Row kernels: conditions of the row, which are asked once and not at every point.

use super::fold::Acc;
use super::row::Row;
use super::row_pass::{Item, Kind, Pass, Rounds, guard_of, rounds_of};
use crate::ir::graph::{Expr as Node, ExprId};
use crate::ir::simt::{Expr, Stmt, Ty};
use crate::pass::inline::below;
use crate::vocab::dtype::Value;

/// The rounds of a pass; a condition of its only item that knows nothing of the place in the row is asked around them.
pub(super) fn rounds<'a>(row: &mut Row<'a, '_>, pass: &Pass<'a>, rounds: &Rounds, accs: &[Option<Acc>]) {
    let [item] = &pass.items[..] else { return rounds_of(row, pass, rounds, accs) };
    if let Some(cond) = guard_of(&mut row.e, item) {
        let mut open = pass.clone();
        if let Kind::Fold { guard, .. } = &mut open.items[0].kind {
            guard.clear();
        }
        let then = side(row, None, &open, rounds, accs);
        return row.e.push(Stmt::If { cond, then, otherwise: Vec::new() });
    }
    let Some(c) = condition(row, item) else { return rounds_of(row, pass, rounds, accs) };
    let cond = row.e.value(c);
    let cond = row.e.named("c", Ty::Bool, cond);
    let [then, otherwise] = [true, false].map(|taken| side(row, Some((c, taken)), pass, rounds, accs));
    row.e.push(Stmt::If { cond, then, otherwise });
}

/// The rounds where a condition is known.
fn side<'a>(
    row: &mut Row<'a, '_>,
    known: Option<(ExprId, bool)>,
    pass: &Pass<'a>,
    rounds: &Rounds,
    accs: &[Option<Acc>],
) -> Vec<Stmt> {
    row.e.open();
    if let Some((c, taken)) = known {
        row.e.bind(c, Expr::Lit(Value::Bool(taken)));
    }
    rounds_of(row, pass, rounds, accs);
    row.e.close()
}

/// The condition of a map that chooses between two values for all of the row.
fn condition(row: &Row<'_, '_>, item: &Item<'_>) -> Option<ExprId> {
    let Kind::Map { define } = &item.kind else { return None };
    /// Nodes of the lesser side: the passes over the row are written for both.
    const FEW: usize = 8;
    let Node::Select(c, a, b) = row.graph.expr(define.value) else { return None };
    let size = |e: &ExprId| below(row.graph, *e).len();
    if size(a).min(size(b)) > FEW {
        return None;
    }
    let of_row = row.e.facts.free(*c).iter().all(|a| item.rows.contains(a));
    (of_row && !row.e.facts.may_fault(*c)).then_some(*c)
}
