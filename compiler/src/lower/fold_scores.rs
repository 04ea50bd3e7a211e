//! Form `fold`, the scores: from the accumulators of the first product to what the exponential takes, with what does
//! not count at −inf, and which steps a block has at all.

use super::contract_coords::{Known, axis_values, fold_op, modulo, over, plus, times};
use super::fold_pattern::{Bound, Chain};
use super::scalar::{Emit, Num, and, cmp, int_op, lit32};
use crate::ir::graph::{AxisId, Expr as Node, ExprId, Graph};
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Special, Ty};
use crate::ir::tile::Tile;
use crate::vocab::dtype::Value;
use crate::vocab::func::Func;
use std::collections::BTreeSet;

pub const MINUS_INFINITY: Expr = Expr::Lit(Value::F32(f32::NEG_INFINITY));

pub struct Scores<'x> {
    pub chain: &'x Chain,
    /// Terms of a step.
    step: i64,
    /// The axes that scores depend on beside the product.
    axes: BTreeSet<AxisId>,
    /// First and last row of the block, where bounds move with the row.
    first_row: Expr,
    last_row: Expr,
    /// What all scores that count are multiplied with at last, left to the exponential, and its expression.
    scale: (f32, Option<ExprId>),
    /// Divisions by constants: what is divided, and by what to multiply. The weights are rounded to 16 bits, so
    /// nothing that scores lead to can tell.
    divisions: Vec<(ExprId, ExprId, f32)>,
}

/// What a thread knows of its place.
pub struct Thread<'p> {
    pub batch: &'p [Num],
    /// The digits of its two rows.
    pub rows: &'p [Vec<Num>; 2],
    /// The first column of its pairs.
    pub column: Expr,
}

impl<'x> Scores<'x> {
    pub fn new(e: &mut Emit, chain: &'x Chain, tile: &Tile, step: u32, m0: &Expr) -> Scores<'x> {
        let mut axes = BTreeSet::new();
        let product = chain.inner.folds[0].fold;
        let scale = scale(e.graph, chain.cascade.score, product);
        let mut divisions = Vec::new();
        let mut todo: Vec<ExprId> = chain.cascade.taken.into_iter().chain([chain.cascade.score]).collect();
        let mut seen = BTreeSet::new();
        while let Some(x) = todo.pop() {
            if x == product || !seen.insert(x) {
                continue;
            }
            if let Node::Axis(a) = e.graph.expr(x) {
                axes.insert(*a);
            }
            if let (Some((left, by)), false) = (division(e.graph, x), scale.1 == Some(x)) {
                divisions.push((x, left, by));
            }
            todo.extend(e.graph.children(x));
        }
        divisions.sort_by_key(|d| d.0);
        let (rows, block) = (tile.m.points(), tile.m.block as i64);
        let inner = chain.outer.m.last().map_or(1, |d| d.extent);
        let (first_row, last_row) = if inner == rows || inner % block == 0 {
            let first = e.named("first_row", Ty::I32, modulo_unless(m0.clone(), inner, rows));
            let last = plus(first.clone(), lit32(block as i32 - 1));
            let last =
                if inner % block == 0 { last } else { int_op(IntOp::Min, last, lit32(inner as i32 - 1)) };
            (first, e.named("last_row", Ty::I32, last))
        } else {
            (lit32(0), lit32(inner as i32 - 1))
        };
        Scores { chain, step: step.into(), axes, first_row, last_row, scale, divisions }
    }

    /// What the exponential multiplies its operand with.
    pub fn scale(&self) -> f32 {
        self.scale.0
    }

    fn terms(&self) -> i64 {
        self.chain.sizes()[2]
    }

    /// The first place that counts (or the last, for an upper bound) over these rows.
    fn place(&self, b: &Bound, row: &Expr) -> Expr {
        let at = lit32(b.at.clamp(-(1 << 30), 1 << 30) as i32);
        if b.row { plus(row.clone(), at) } else { at }
    }

    /// First step and number of steps of the block: those in which a score may count, at least one.
    pub fn steps(&self, e: &mut Emit) -> (Expr, Expr) {
        let step = self.step;
        let all = (self.terms() + step - 1) / step;
        let (mut first, mut end) = (lit32(0), lit32(all as i32));
        for b in &self.chain.bounds {
            let row = if b.upper { &self.last_row } else { &self.first_row };
            let place = int_op(IntOp::Max, self.place(b, row), lit32(0));
            if b.upper {
                let behind = plus(over(place, step), lit32(1));
                end = int_op(IntOp::Min, end, behind);
            } else {
                first = int_op(IntOp::Max, first, over(place, step));
            }
        }
        let last = lit32(all as i32 - 1);
        if !self.chain.bounds.is_empty() {
            first = int_op(IntOp::Min, first, last);
        }
        let first = e.named("first", Ty::I32, first);
        let count = fold_op(IntOp::Sub, end, first.clone());
        let count = if self.chain.bounds.is_empty() { count } else { int_op(IntOp::Max, count, lit32(1)) };
        (first, e.named("count", Ty::I32, count))
    }

    /// Whether every score of a step from term `j0` counts as far as its place says; `None`: that is known.
    pub fn whole(&self, e: &mut Emit, j0: &Expr) -> Option<Expr> {
        let mut all: Option<Expr> = None;
        let mut need = |c: Expr| {
            all = Some(match all.take() {
                Some(a) => and(a, c),
                None => c,
            });
        };
        let last = plus(j0.clone(), lit32(self.step as i32 - 1));
        if self.terms() % self.step != 0 {
            need(cmp(CmpOp::Lt, last.clone(), lit32(self.terms() as i32)));
        }
        for b in &self.chain.bounds {
            let row = if b.upper { &self.first_row } else { &self.last_row };
            let place = self.place(b, row);
            need(match b.upper {
                true => cmp(CmpOp::Le, last.clone(), place),
                false => cmp(CmpOp::Ge, j0.clone(), place),
            });
        }
        all.map(|c| e.named("whole", Ty::Bool, c))
    }

    /// Turns the products of a step into scores, and gives the greatest of each row so far through `top`.
    pub fn emit(
        &self,
        e: &mut Emit,
        acc: ArrayId,
        group: &Expr,
        j0: &Expr,
        thread: &Thread,
        whole: bool,
        each: &mut dyn FnMut(&mut Emit, usize, Expr, Expr),
    ) {
        for r in 0..2 {
            for w in 0..2 {
                e.scope(|e| {
                    let at = plus(times(group.clone(), 4), lit32(2 * r as i32 + w));
                    let j = plus(
                        plus(j0.clone(), times(group.clone(), 8)),
                        plus(thread.column.clone(), lit32(w)),
                    );
                    let product = Expr::Elem(acc, Box::new(at.clone()));
                    let value = self.value(e, product, j, thread, r, whole);
                    let value = e.named("score", Ty::F32, value);
                    each(e, r, at, value);
                });
            }
        }
    }

    fn value(&self, e: &mut Emit, product: Expr, j: Expr, thread: &Thread, r: usize, whole: bool) -> Expr {
        let chain = self.chain;
        let ragged = !whole && self.terms() % self.step != 0;
        let k = &chain.outer.folds[0].k[0];
        let uses_term = self.axes.contains(&k.axis);
        let j = if uses_term || ragged { e.named("term", Ty::I32, j) } else { j };
        if !self.axes.is_empty() {
            let inside = if ragged {
                int_op(IntOp::Min, j.clone(), lit32(self.terms() as i32 - 1))
            } else {
                j.clone()
            };
            let inside = if uses_term { e.named("term", Ty::I32, inside) } else { lit32(0) };
            let column = [Num { expr: inside, ty: Ty::I32 }];
            let known = Known { batch: thread.batch, m: &thread.rows[r], n: &column };
            let values = axis_values(e, &chain.inner, known);
            for (&axis, value) in chain.inner.stmts[0].axes.iter().zip(&values) {
                if let Some(v) = value.as_ref().filter(|_| self.axes.contains(&axis)) {
                    e.bind_axis(axis, v.expr.clone(), v.ty);
                }
            }
        }
        if whole {
            for b in &chain.bounds {
                let known = Expr::Lit(Value::Bool(b.counts));
                e.bind_num(b.cond, Num { expr: known, ty: Ty::Bool });
            }
        }
        let product = e.named("product", Ty::F32, product);
        e.bind(chain.inner.folds[0].fold, product.clone());
        if let Some(scaled) = self.scale.1 {
            e.bind(scaled, product);
        }
        for &(id, left, by) in &self.divisions {
            let left = e.value(left);
            let quotient = Expr::Call(Func::Mul, vec![left, Expr::Lit(Value::F32(by))]);
            let quotient = e.named("quotient", Ty::F32, quotient);
            e.bind(id, quotient);
        }
        let mut value = e.value(chain.cascade.score);
        if let Some(taken) = chain.cascade.taken {
            let c = e.value(taken);
            if !matches!(c, Expr::Lit(Value::Bool(true))) {
                value = Expr::Select(Box::new(c), Box::new(value), Box::new(MINUS_INFINITY));
            }
        }
        if ragged {
            let inside = cmp(CmpOp::Lt, j, lit32(self.terms() as i32));
            value = Expr::Select(Box::new(inside), Box::new(value), Box::new(MINUS_INFINITY));
        }
        value
    }
}

/// A positive constant that the score is the product times, where it counts.
fn scale(g: &Graph, score: ExprId, product: ExprId) -> (f32, Option<ExprId>) {
    let literal = |e: ExprId| match g.expr(e) {
        Node::Lit(Value::F32(v)) => Some(*v),
        _ => None,
    };
    let infinite = |e: ExprId| literal(e) == Some(f32::NEG_INFINITY);
    let mut e = score;
    while let Node::Select(_, a, b) = g.expr(e) {
        e = match (infinite(*a), infinite(*b)) {
            (true, false) => *b,
            (false, true) => *a,
            _ => return (1.0, None),
        };
    }
    let by = match g.expr(e) {
        Node::Call(Func::Div, a) if a[0] == product => literal(a[1]).map(|v| 1.0 / v),
        Node::Call(Func::Mul, a) if a[0] == product => literal(a[1]),
        Node::Call(Func::Mul, a) if a[1] == product => literal(a[0]),
        _ => None,
    };
    match by {
        Some(v) if v > 0.0 && v.is_normal() => (v, Some(e)),
        _ => (1.0, None),
    }
}

/// A division of floats by a constant whose reciprocal is ordinary.
fn division(g: &Graph, e: ExprId) -> Option<(ExprId, f32)> {
    let Node::Call(Func::Div, a) = g.expr(e) else { return None };
    let Node::Lit(Value::F32(v)) = g.expr(a[1]) else { return None };
    let by = 1.0 / v;
    (v.is_normal() && by.is_normal()).then_some((a[0], by))
}

fn modulo_unless(a: Expr, n: i64, all: i64) -> Expr {
    if n == all { a } else { modulo(a, n) }
}

/// The first of a lane's columns.
pub fn lane_column() -> Expr {
    times(modulo(Expr::Special(Special::Lane), 4), 2)
}
