//! Row kernels: what is mapped over the row and read back at the same point by later passes.
//!
//! The thread that made a value reads it back, since all passes over a box deal its points out alike. Values are held in
//! registers beside what is loaded once, if all fit; otherwise they are read from where they were stored.

use super::home::Home;
use super::row::Row;
use super::row_layout;
use super::row_pass::{Pass, Rounds};
use super::row_resident::{Held, Look, Shared, key};
use super::scalar::{Emit, Num, add, lit32, mul};
use crate::ir::graph::{Define, TensorId};
use crate::ir::simt::{ArrayId, Expr, Stmt, Ty, VarId};
use crate::vocab::dtype::DType;
use std::collections::BTreeMap;

/// What passes over a box make that later ones read: a read of each with its item, and how it can be held.
pub fn of_box<'a>(
    look: Look<'_, 'a>,
    passes: &[Pass<'a>],
    dims: &[i64],
    layout: &row_layout::Layout,
    home: &dyn Fn(TensorId) -> Home,
) -> Vec<(Shared<'a>, Option<DType>)> {
    let mut found: BTreeMap<TensorId, (Shared<'a>, Option<DType>)> = BTreeMap::new();
    let boxed = passes.iter().filter(|p| p.dims.as_deref() == Some(dims) && !p.ordered);
    for item in boxed.flat_map(|p| &p.items) {
        for (e, r) in row_layout::reads(look.graph, item) {
            if look.rows.held.contains(&r.tensor) && !found.contains_key(&r.tensor) {
                let dtype = look.graph.tensor(r.tensor).dtype;
                let two =
                    matches!(dtype, DType::F16 | DType::BF16) && by_vectors(look, r.tensor, layout, home);
                let read = (key(look.graph, item, e), item.clone(), e, r.clone());
                found.insert(r.tensor, (read, two.then_some(dtype)));
            }
        }
    }
    found.into_values().collect()
}

/// Is a target made in floats of 32 bits and stored by whole vectors of an even length?
fn by_vectors(
    look: Look<'_, '_>,
    target: TensorId,
    layout: &row_layout::Layout,
    home: &dyn Fn(TensorId) -> Home,
) -> bool {
    let written = look.rows.members.iter().find_map(|m| {
        let d = super::row::define(look.graph, m.stmt).filter(|d| d.target == target)?;
        let ty = Ty::of(look.graph.ty(d.value));
        let v = layout.vector;
        let chunk = row_layout::vector_write(look.graph, &home(target), target, &d.axes, &m.inner, v)?;
        Some(ty == Ty::F32 && chunk % 2 == 0)
    });
    layout.lead.is_none() && written == Some(true)
}

/// Is a map's target needed in memory? Not if it is only read back, from registers.
pub(super) fn is_stored(row: &Row<'_, '_>, d: &Define) -> bool {
    row.stored.contains(&d.target) || !row.made.contains_key(&d.target)
}

/// Where values are read back from memory: whether the thread has a row of its own. One beyond the rows looks at the last
/// row, whose values another thread stores.
pub(super) fn owner(row: &Row<'_, '_>) -> Option<Expr> {
    let back = row.rows.held.iter().any(|t| !row.made.contains_key(t));
    row.valid.clone().filter(|_| back)
}

/// A turn's values, two a register.
pub(super) fn hold_packed(
    e: &mut Emit<'_>,
    rounds: &Rounds,
    round: VarId,
    dtype: DType,
    from: ArrayId,
    to: ArrayId,
) {
    let pairs = rounds.vector / 2;
    let turn = super::read::to(Num { expr: Expr::Var(round), ty: rounds.ty }, Ty::I32);
    let first = mul(turn, lit32(pairs as i32));
    for i in 0..pairs {
        let half = |k: i64| Box::new(Expr::Elem(from, Box::new(lit32((2 * i + k) as i32))));
        let word = Expr::Pack2(dtype, half(0), half(1));
        e.push(Stmt::SetElem(to, add(first.clone(), lit32(i as i32)), word));
    }
}

/// Keeps one value, rounded as its dtype has it.
pub(super) fn hold(row: &mut Row<'_, '_>, d: &Define, held: Held, slot: &Expr, value: Num) {
    let rounded = row.e.rounded(row.graph.tensor(d.target).dtype, value);
    row.e.push(Stmt::SetElem(held.array, slot.clone(), rounded.expr));
}
