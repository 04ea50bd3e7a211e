//! Row kernels: random words of neighbouring points, a Philox block for four of them.

use super::map_vec;
use super::row::Row;
use super::row_layout;
use super::row_pass::{Item, Kind, Pass, Rounds, bind_point};
use super::scalar::{Emit, Num};
use crate::ir::graph::{AxisId, Expr as Node, ExprId};
use crate::ir::simt::{ArrayId, Expr};
use crate::vocab::func::Func;
use std::cell::Cell;

/// A random function of an item, whose words for a thread's turn are made at once.
pub(super) struct Random {
    pub item: usize,
    expr: ExprId,
    func: Func,
    /// The words, once they are made.
    words: Cell<Option<ArrayId>>,
}

impl Random {
    /// Binds its value at the `inner`-th point of the turn, if there are words.
    pub fn bind(&self, e: &mut Emit<'_>, inner: &Expr) {
        if let Some(words) = self.words.get() {
            let word = Expr::Elem(words, Box::new(inner.clone()));
            let value: Num = map_vec::random_value(e, self.func, word);
            e.bind_num(self.expr, value);
        }
    }
}

/// The random functions of a pass that may be made by vectors.
pub(super) fn found(row: &Row<'_, '_>, pass: &Pass<'_>, rounds: &Rounds) -> Vec<Random> {
    if rounds.vector % 4 != 0 || rounds.lead.is_some() {
        return Vec::new();
    }
    let of_item = |(i, item): (usize, &Item<'_>)| -> Vec<Random> {
        let calls = row_layout::below_item(row.graph, item).into_iter();
        let random = |e: ExprId| match row.graph.expr(e) {
            Node::Call(func @ (Func::Uniform | Func::RandBits), _) => {
                Some(Random { item: i, expr: e, func: *func, words: Cell::new(None) })
            }
            _ => None,
        };
        calls.filter_map(random).collect()
    };
    pass.items.iter().enumerate().flat_map(of_item).collect()
}

/// Makes the words of a turn, where their counters run with the row.
pub(super) fn make<'a>(
    row: &mut Row<'a, '_>,
    pass: &Pass<'a>,
    rounds: &Rounds,
    randoms: &[Random],
    base: &Num,
) {
    for r in randoms {
        let item = &pass.items[r.item];
        let (Some(&axis), Node::Call(_, args)) = (item.axes.last(), row.graph.expr(r.expr)) else { continue };
        if matches!(&item.kind, Kind::Fold { fold, .. } if fold.axes != item.axes) {
            continue;
        }
        let known = |a: &AxisId| item.axes.contains(a) || item.rows.contains(a);
        if !args.iter().all(|&x| row.e.facts.free(x).iter().all(known)) {
            continue;
        }
        let words = row.e.scope(|e| {
            bind_point(e, rounds, item, base);
            let last = e.axis_value(axis).cloned()?;
            map_vec::random_words(e, r.expr, r.func, args, axis, &last, rounds.vector).map(|l| l.array)
        });
        r.words.set(words);
    }
}
