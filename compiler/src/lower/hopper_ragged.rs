//! Sums of which the batch says how many terms there are: the phases of a strided convolution's gradient, which have
//! unlike numbers of taps. A block's steps are those of its own batch.

use super::contract_coords::{Place as Where, modulo, over, plus, times};
use super::contract_operand::Ground;
use super::contract_pattern::{Contraction, Guard};
use super::hopper_gather::{Group, Terms, affine};
use super::scalar::{Emit, Num, int_op, lit32};
use crate::ir::simt::{Expr, IntOp, Ty};

/// How many values a fold axis has: a constant and multiples of digits of the batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Ragged {
    /// Its position among the fold axes; of an order of terms, among the outer groups.
    pub at: usize,
    constant: i64,
    by: Vec<(usize, i64)>,
}

/// The sum without conditions that only bound fold axes by the batch, and those bounds.
pub fn bounds(ground: &Ground, c: &Contraction) -> Option<(Contraction, Vec<Ragged>)> {
    let mut plain = c.clone();
    if c.a.guards.is_empty() || c.a.guards != c.b.guards {
        return None;
    }
    plain.a.guards.clear();
    plain.b.guards.clear();
    let bound = |g: &Guard| {
        let Guard::Below(axis, hi) = *g else { return None };
        let at = c.k.iter().position(|k| k.axis == axis)?;
        let count = affine(ground.graph, hi)?;
        let mut r = Ragged { at, constant: count.constant - c.k[at].lo, by: Vec::new() };
        for (axis, by) in count.axes.into_iter().filter(|x| x.1 != 0) {
            let shape = ground.shape;
            let mine = |d: &super::contract_pattern::Digit| {
                let out = &shape.axes[d.out];
                shape.stmts[c.stmt].axes[d.out] == axis && d.stride == 1 && d.extent == out.extent
            };
            let digit = shape.batch.iter().position(mine)?;
            r.constant += by * shape.axes[shape.batch[digit].out].lo;
            r.by.push((digit, by));
        }
        Some(r)
    };
    let all = c.a.guards.iter().map(bound).collect::<Option<Vec<_>>>()?;
    Some((plain, all))
}

impl Terms {
    /// The order of terms with some groups' bounds, if they can be followed: groups of one axis around the lines, and
    /// lines as long as a step.
    pub fn with_bounds(mut self, bounds: Vec<Ragged>) -> Option<Terms> {
        // An axis that has one value or none is no number of lines so far.
        let new = |t: &Terms, b: &Ragged| t.groups.iter().all(|g| !g.axes.contains(&b.at));
        for b in &bounds {
            if new(&self, b) {
                self.groups.insert(0, Group { axes: vec![b.at], extent: 1 });
            }
        }
        for b in bounds {
            let at = self.outer().iter().position(|g| g.axes == [b.at])?;
            self.ragged.push(Ragged { at, ..b });
        }
        (self.ragged.is_empty() || self.slabs() == 1).then_some(self)
    }

    /// How many values each outer group has in a block's batch.
    fn counts(&self, e: &mut Emit, place: &Where) -> Vec<Expr> {
        let mut count = |(i, all): (usize, i64)| {
            let Some(r) = self.ragged.iter().find(|r| r.at == i) else { return lit32(all as i32) };
            let sum = r.by.iter().fold(lit32(r.constant as i32), |sum, &(digit, by)| {
                plus(times(place.batch[digit].expr.clone(), by), sum)
            });
            e.named("taps", Ty::I32, sum)
        };
        self.outer().iter().map(|g| g.extent).enumerate().map(&mut count).collect()
    }

    /// The steps of a block, where the batch says how many.
    pub fn own_steps(&self, e: &mut Emit, place: &Where) -> Option<Expr> {
        if self.ragged.is_empty() {
            return None;
        }
        let all = self.counts(e, place).into_iter().reduce(product)?;
        Some(e.named("count", Ty::I32, times(all, self.chunks())))
    }

    /// The values of the outer groups from their number.
    pub fn own_digits(&self, e: &mut Emit, place: &Where, number: Expr) -> Vec<Num> {
        let counts = self.counts(e, place);
        let mut rest = number;
        let mut at = Vec::new();
        for (i, n) in counts.into_iter().enumerate().rev() {
            let digit = if i == 0 { rest.clone() } else { remainder(rest.clone(), n.clone()) };
            at.push(Num { expr: e.named("r", Ty::I32, digit), ty: Ty::I32 });
            rest = e.named("q", Ty::I32, quotient(rest, n));
        }
        at.reverse();
        at
    }
}

fn known(e: &Expr) -> Option<i64> {
    match e {
        Expr::Lit(crate::vocab::dtype::Value::I32(n)) => Some(*n as i64),
        _ => None,
    }
}

fn product(a: Expr, b: Expr) -> Expr {
    match (known(&a), known(&b)) {
        (_, Some(n)) => times(a, n),
        (Some(n), _) => times(b, n),
        _ => int_op(IntOp::Mul, a, b),
    }
}

fn quotient(a: Expr, n: Expr) -> Expr {
    match known(&n) {
        Some(n) => over(a, n),
        None => int_op(IntOp::Div, a, n),
    }
}

fn remainder(a: Expr, n: Expr) -> Expr {
    match known(&n) {
        Some(n) => modulo(a, n),
        None => int_op(IntOp::Rem, a, n),
    }
}
