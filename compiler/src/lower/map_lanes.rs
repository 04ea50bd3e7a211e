//! What is the same for, or runs evenly over, the neighbours that a thread of a vectorised map takes: `v` points
//! whose last axis begins at a multiple of `v`.

use super::index::Facts;
use crate::ir::graph::{AxisId, Expr as Node, ExprId, Graph};
use crate::vocab::dtype::Value;
use crate::vocab::func::Func;

/// `v` neighbours along an axis.
#[derive(Clone, Copy)]
pub struct Lanes<'a> {
    pub graph: &'a Graph,
    pub facts: &'a Facts<'a>,
    pub axis: AxisId,
    pub v: i64,
}

/// `axis + literal + rest`, the rest being a multiple of `multiple` (0: there is none).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    pub literal: i64,
    pub multiple: i64,
}

impl Run {
    /// What the first lane's value is a multiple of, at least (of powers of two up to `v`).
    pub fn align(&self, v: i64) -> i64 {
        gcd(gcd(self.literal, self.multiple), v)
    }
}

impl Lanes<'_> {
    /// Whether all lanes have the same value.
    pub fn steady(&self, id: ExprId) -> bool {
        if !self.facts.free(id).contains(&self.axis) {
            return true;
        }
        let all = || self.graph.children(id).iter().all(|&c| self.steady(c));
        match self.graph.expr(id) {
            Node::Axis(_) | Node::Fold(_) => false,
            Node::Call(Func::Div, args) => match (self.run(args[0]), self.literal(args[1])) {
                (Some(r), Some(c)) if c > 0 => c % self.v == 0 && r.align(self.v) == self.v,
                _ => all(),
            },
            Node::Call(f @ (Func::Lt | Func::Le), args) => self.threshold(*f, args) || all(),
            _ => all(),
        }
    }

    /// Whether a comparison changes between vectors only.
    fn threshold(&self, f: Func, args: &[ExprId]) -> bool {
        let strict = f == Func::Lt;
        let at = match (self.run(args[0]), self.literal(args[1]), self.literal(args[0]), self.run(args[1])) {
            // axis + r < c, or ≤ c: true below c, or c + 1.
            (Some(r), Some(c), ..) if r.multiple % self.v == 0 => c + !strict as i64 - r.literal,
            // c < axis + r, or c ≤: true from c + 1, or c.
            (_, _, Some(c), Some(r)) if r.multiple % self.v == 0 => c + strict as i64 - r.literal,
            _ => return false,
        };
        at % self.v == 0
    }

    /// Whether a condition tells the points below `at` from those above: its value below.
    pub fn below(&self, cond: ExprId, at: i64) -> Option<bool> {
        let Node::Call(f @ (Func::Lt | Func::Le), args) = self.graph.expr(cond) else { return None };
        let plain = |id| self.run(id) == Some(Run { literal: 0, multiple: 0 });
        let strict = (*f == Func::Lt) as i64;
        match (self.literal(args[0]), self.literal(args[1])) {
            // axis < c, or ≤ c.
            (None, Some(c)) if plain(args[0]) && c + 1 - strict == at => Some(true),
            // c < axis, or c ≤.
            (Some(c), None) if plain(args[1]) && c + strict == at => Some(false),
            _ => None,
        }
    }

    /// The value as the axis plus something that all lanes share.
    pub fn run(&self, id: ExprId) -> Option<Run> {
        match self.graph.expr(id) {
            Node::Axis(a) if *a == self.axis => Some(Run { literal: 0, multiple: 0 }),
            Node::Cast(a) if self.graph.ty(id).is_int() => self.run(*a),
            Node::Call(Func::Add, args) => {
                self.sum(args[0], args[1], 1).or_else(|| self.sum(args[1], args[0], 1))
            }
            Node::Call(Func::Sub, args) => self.sum(args[0], args[1], -1),
            // Within a vector the remainder does not wrap.
            Node::Call(Func::Rem, args) => {
                let (r, c) = (self.run(args[0])?, self.literal(args[1])?);
                let whole = c > 0 && c % self.v == 0 && r.align(self.v) == self.v;
                whole.then_some(Run { literal: 0, multiple: self.v })
            }
            _ => None,
        }
    }

    fn sum(&self, run: ExprId, rest: ExprId, sign: i64) -> Option<Run> {
        let r = self.run(run)?;
        if let Some(c) = self.literal(rest) {
            return Some(Run { literal: r.literal.checked_add(sign * c)?, ..r });
        }
        self.steady(rest).then(|| Run { multiple: gcd(r.multiple, self.multiple(rest)), ..r })
    }

    /// What a value that all lanes share is a multiple of, in every vector.
    fn multiple(&self, id: ExprId) -> i64 {
        match self.graph.expr(id) {
            Node::Cast(a) => self.multiple(*a),
            Node::Call(Func::Add | Func::Sub, a) => gcd(self.multiple(a[0]), self.multiple(a[1])),
            Node::Call(Func::Mul, a) => self.multiple(a[0]).saturating_mul(self.multiple(a[1])).max(1),
            Node::Call(Func::Shl, a) => match self.literal(a[1]) {
                Some(k @ 0..=31) => self.multiple(a[0]).saturating_mul(1 << k).max(1),
                _ => 1,
            },
            _ => self.literal(id).map_or(1, i64::abs),
        }
    }

    fn literal(&self, id: ExprId) -> Option<i64> {
        match self.graph.expr(id) {
            Node::Lit(Value::I64(v)) if v.abs() < 1 << 62 => Some(*v),
            Node::Lit(Value::I32(v)) => Some(*v as i64),
            _ => None,
        }
    }
}

pub fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as i64
}
