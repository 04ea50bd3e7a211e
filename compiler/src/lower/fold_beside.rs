//! Form `fold`, values of rows: a block knows of each row its greatest score and the sum of its weights, so that what
//! is made of these (the logarithm of the sum, for a gradient; both, for parts that are combined later) is stored by
//! the same kernel.

use super::contract_coords::{Known, axis_values};
use super::contract_pattern::ContractShape;
use super::fold_pattern::Chain;
use super::fold_scores::{MINUS_INFINITY, scale_of};
use super::map::point;
use super::scalar::{Emit, Num, cmp, int};
use crate::ir::graph::{AxisId, Combine, Define, Expr as Node, ExprId, Graph};
use crate::ir::simt::{CmpOp, Expr, Ty, VarId};
use crate::pass::{facts, inline, shape};
use crate::vocab::dtype::Value;
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;

/// A definition over the rows of a chain.
pub struct Beside {
    pub define: Define,
    /// For each of its axes, which of the chain's it is.
    places: Vec<usize>,
    /// Its folds that are the greatest score, and those that are the sum.
    tops: Vec<ExprId>,
    sums: Vec<ExprId>,
}

/// What is known of a row when its terms are done.
pub struct OfRow {
    /// The greatest score; −inf where there is none.
    pub top: Expr,
    pub sum: Expr,
}

/// The value of a chain's rows that a definition is, or why it is none.
pub fn of(g: &Graph, d: &Define, chain: &Chain, r: &Define) -> Result<Beside, String> {
    let state = chain.cascade.state.as_ref().ok_or("weights that know nothing of their row")?;
    let divisor = state.divisor.ok_or("weights that are not divided by their sum")?;
    if state.bare_top && scale_of(g, chain).1.is_none() {
        return Err("a greatest value of other scores".into());
    }
    let mut facts = facts::Facts::default();
    let along = g.axis_range(chain.fold().k[0].axis);
    let (mut tops, mut sums, mut places) = (Vec::new(), Vec::new(), None);
    let (mut todo, mut tests) = (vec![r.value], false);
    let mut seen = std::collections::BTreeSet::new();
    while let Some(e) = todo.pop() {
        if !seen.insert(e) {
            continue;
        }
        tests |= matches!(g.expr(e), Node::Call(Func::IsInf, _));
        let Node::Fold(f) = g.expr(e) else {
            todo.extend(g.children(e));
            continue;
        };
        let whose = match f.combine {
            Combine::Builtin(Monoid::Max) => (state.top, &mut tops),
            Combine::Builtin(Monoid::Sum) => (divisor.fold, &mut sums),
            _ => return Err("another fold".into()),
        };
        if !matches!(f.axes[..], [a] if g.axis_range(a) == along) {
            return Err("a fold along another axis".into());
        }
        let found = alike(g, &mut facts, d, whose.0, r, e).ok_or("another fold of the row")?;
        if places.as_ref().is_some_and(|p| *p != found) {
            return Err("folds of different rows".into());
        }
        places = Some(found);
        whose.1.push(e);
    }
    let places = places.ok_or("no fold of the row")?;
    // The sum of nothing is 0; of what is infinite alone it is NaN: who asks sees a difference.
    if chain.cascade.taken.is_some() && !sums.is_empty() && !tests {
        return Err("a sum that may be empty".into());
    }
    let points = |axes: &[AxisId]| axes.iter().map(|&a| g.extent(a).unwrap_or(0)).product::<i64>();
    let rows = ContractShape::points(&chain.outer.batch) * ContractShape::points(&chain.outer.m);
    let columns = |p: &usize| chain.outer.n.iter().any(|n| n.out == *p);
    if points(&r.axes) != rows || places.iter().any(columns) || chain.outer.axes.iter().any(|a| a.lo != 0) {
        return Err("other rows".into());
    }
    Ok(Beside { define: r.clone(), places, tops, sums })
}

/// Which of `d`'s axes the axes of `r` are, if the two folds are one value then.
fn alike(
    g: &Graph,
    facts: &mut facts::Facts,
    d: &Define,
    own: ExprId,
    r: &Define,
    other: ExprId,
) -> Option<Vec<usize>> {
    let free = facts.free(g, own).clone();
    let rows: Vec<usize> = (0..d.axes.len()).filter(|&i| free.contains(&d.axes[i])).collect();
    let wanted = shape::key(g, other, &r.axes);
    let of = |places: &[usize]| places.iter().map(|&p| d.axes[p]).collect::<Vec<_>>();
    let fits = |p: usize, i: usize| g.axis_range(d.axes[p]) == g.axis_range(r.axes[i]);
    // In every order in which the ranges are the same.
    let mut orders: Vec<Vec<usize>> = vec![Vec::new()];
    for i in 0..r.axes.len() {
        let longer = |o: &Vec<usize>| {
            let next = rows.iter().filter(|&&p| !o.contains(&p) && fits(p, i));
            next.map(|&p| [&o[..], &[p]].concat()).collect::<Vec<_>>()
        };
        orders = orders.iter().flat_map(longer).collect();
    }
    if rows.len() != r.axes.len() {
        return None;
    }
    orders.into_iter().find(|o| shape::key(g, own, &of(o)) == wanted)
}

impl Beside {
    /// Stores the value of a row.
    pub fn store(&self, e: &mut Emit, chain: &Chain, known: Known, row: &OfRow) {
        e.scope(|e| {
            let values = axis_values(e, &chain.outer, known);
            let at: Vec<Num> = self.places.iter().map(|&p| values[p].clone().unwrap_or(int(0))).collect();
            self.tops.iter().for_each(|&id| e.bind(id, row.top.clone()));
            self.sums.iter().for_each(|&id| e.bind(id, row.sum.clone()));
            point(e, &[&self.define], &at);
        });
    }
}

impl OfRow {
    /// From the greatest product and the sum in registers.
    pub fn new(e: &mut Emit, chain: &Chain, most: VarId, scale: f32, sum: Expr) -> OfRow {
        let bare = chain.cascade.state.as_ref().is_some_and(|s| s.bare_top);
        let product = Expr::Var(most);
        let by = Expr::Lit(Value::F32(scale));
        let top = if bare || scale == 1.0 { product } else { Expr::Call(Func::Mul, vec![product, by]) };
        let top = e.named("top_score", Ty::F32, top);
        // The weights of a row without any score are 0 / 0.
        let none = cmp(CmpOp::Eq, top.clone(), MINUS_INFINITY);
        let nan = Expr::Lit(Value::F32(f32::NAN));
        let sum = match chain.cascade.taken {
            None => Expr::Select(Box::new(none), Box::new(nan), Box::new(sum)),
            Some(_) => sum,
        };
        OfRow { top, sum: e.named("sum_of_row", Ty::F32, sum) }
    }
}

/// Whether an expression holds a fold at all: what is looked at for a kernel beside a chain.
pub fn is_of_folds(g: &Graph, d: &Define) -> bool {
    !inline::outer_folds(g, d.value).is_empty()
}
