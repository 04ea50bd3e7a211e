//! Cascades: a sum along an axis whose terms depend on other folds along that axis.
//!
//! Written as it is, such a sum needs a pass for each fold below it. It needs one if the sum so far can be corrected
//! whenever the running value of a fold below it changes. How a term answers to such a change is derived from its
//! parts by a table of laws, in which U does not depend on the folds, and P depends on them but not on the axis:
//!
//! | term | law |
//! |---|---|
//! | U − P | shift by −P |
//! | exp of a shift by −P | scale by e^(−P) |
//! | scale / P | scale, a divisor that the sum may be divided by at its end |
//! | P = identity ? 0 : scale | scale: nothing is taken where the fold has met nothing |
//! | c ? scale : 0 | scale, of the terms that c takes |
//! | rounding of a scale | scale (LANGUAGE.md: a rounding may move across a scaling that is common to its row) |
//!
//! A shift is taken only by the greatest of the terms that it shifts: then no exponential exceeds 1 and the factor
//! from an old to a new greatest value, e^(old − new), is at most 1. A divisor must be a sum that scales alike.

use super::facts::Facts;
use super::shape;
use crate::ir::graph::*;
use crate::vocab::dtype::{DType, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;

/// The terms of a sum that can be carried along with the greatest of their exponents.
#[derive(Clone, Debug)]
pub struct Cascade {
    /// What is shifted, at the sum's axis.
    pub score: ExprId,
    /// Only these terms are taken.
    pub taken: Option<ExprId>,
    /// The greatest score.
    pub top: ExprId,
    /// The sum of the exponentials, which divides every term.
    pub sum: Option<ExprId>,
    /// What each term is rounded to.
    pub rounded: Option<DType>,
}

/// How a term changes with the folds that it depends on.
enum Law {
    Free,
    Fixed,
    /// (what is shifted, by minus what)
    Shift(ExprId, ExprId),
    Scale(Scale),
}

struct Scale {
    score: ExprId,
    by: ExprId,
    over: Vec<ExprId>,
    taken: Option<ExprId>,
    guard: bool,
    rounded: Option<DType>,
}

/// The cascade that a factor of a sum along `axis` is, or why it is none.
pub fn of_term(g: &Graph, facts: &mut Facts, term: ExprId, axis: AxisId) -> Result<Cascade, String> {
    let mut cx = Derive { g, facts, axis };
    let Law::Scale(s) = cx.law(term)? else { return Err("its terms do not scale".into()) };
    cx.check_top(&s)?;
    let sum = match s.over[..] {
        [] => None,
        [sum] => Some(cx.check_sum(&s, sum)?),
        _ => return Err("more than one divisor".into()),
    };
    if sum.is_none() || !s.guard {
        return Err("weights that are not divided by their sum".into());
    }
    Ok(Cascade { score: s.score, taken: s.taken, top: s.by, sum, rounded: s.rounded })
}

struct Derive<'a> {
    g: &'a Graph,
    facts: &'a mut Facts,
    axis: AxisId,
}

impl Derive<'_> {
    fn law(&mut self, e: ExprId) -> Result<Law, String> {
        if !self.has_state(e) {
            return Ok(Law::Free);
        }
        if !self.facts.free(self.g, e).contains(&self.axis) {
            return Ok(Law::Fixed);
        }
        match self.g.expr(e).clone() {
            Expr::Call(Func::Sub, a) => match (self.law(a[0])?, self.law(a[1])?) {
                (Law::Free, Law::Fixed) => Ok(Law::Shift(a[0], a[1])),
                _ => Err("a difference that no law takes".into()),
            },
            Expr::Call(Func::Exp, a) => match self.law(a[0])? {
                Law::Shift(score, by) => Ok(Law::Scale(Scale {
                    score,
                    by,
                    over: Vec::new(),
                    taken: None,
                    guard: false,
                    rounded: None,
                })),
                _ => Err("an exponential that no law takes".into()),
            },
            Expr::Call(Func::Div, a) => match (self.law(a[0])?, self.law(a[1])?) {
                (Law::Scale(mut s), Law::Fixed) => {
                    s.over.push(a[1]);
                    Ok(Law::Scale(s))
                }
                _ => Err("a quotient that no law takes".into()),
            },
            Expr::Round(d, a) => match self.law(a)? {
                Law::Scale(s) if s.rounded.is_none() => Ok(Law::Scale(Scale { rounded: Some(d), ..s })),
                _ => Err("a rounding that no law takes".into()),
            },
            Expr::Select(c, a, b) => self.select(c, a, b),
            _ => Err("an operation that no law takes".into()),
        }
    }

    fn select(&mut self, c: ExprId, a: ExprId, b: ExprId) -> Result<Law, String> {
        if self.is(a, 0.0)
            && let (Law::Fixed, Law::Scale(s)) = (self.law(c)?, self.law(b)?)
            && self.is_identity_test(c, s.by)
        {
            return Ok(Law::Scale(Scale { guard: true, ..s }));
        }
        if self.is(b, 0.0)
            && let (Law::Free, Law::Scale(s)) = (self.law(c)?, self.law(a)?)
            && s.taken.is_none()
        {
            return Ok(Law::Scale(Scale { taken: Some(c), ..s }));
        }
        Err("a condition that no law takes".into())
    }

    fn is(&self, e: ExprId, v: f32) -> bool {
        matches!(self.g.expr(e), Expr::Lit(Value::F32(x)) if *x == v)
    }

    /// `top == −inf`
    fn is_identity_test(&self, c: ExprId, top: ExprId) -> bool {
        match self.g.expr(c) {
            Expr::Call(Func::Eq, a) => {
                (a[0] == top && self.is(a[1], f32::NEG_INFINITY))
                    || (a[1] == top && self.is(a[0], f32::NEG_INFINITY))
            }
            _ => false,
        }
    }

    /// Does it hold a fold along an axis of the sum's range, outside which the sum's own axis does not reach?
    fn has_state(&mut self, e: ExprId) -> bool {
        super::inline::below(self.g, e).into_iter().any(|x| match self.g.expr(x) {
            Expr::Fold(f) => self.is_along(f) && !self.facts.free(self.g, x).contains(&self.axis),
            _ => false,
        })
    }

    fn is_along(&self, f: &Fold) -> bool {
        matches!(f.axes[..], [a] if self.g.axis_range(a).is_some() && self.g.axis_range(a) == self.g.axis_range(self.axis))
    }

    fn state(&self, e: ExprId, m: Monoid) -> Result<Fold, String> {
        match self.g.expr(e) {
            Expr::Fold(f) if self.is_along(f) && f.combine == Combine::Builtin(m) => Ok(f.clone()),
            _ => Err(format!("what should be its {} is none", m.name())),
        }
    }

    /// Equal but for the axis: `a` along the sum's, `b` along `axis`.
    fn same(&mut self, a: ExprId, b: ExprId, axis: AxisId) -> bool {
        let mut rows: Vec<AxisId> = self.facts.free(self.g, a).iter().copied().collect();
        rows.retain(|&r| r != self.axis);
        let with = |rows: &[AxisId], last| [rows, &[last]].concat();
        shape::key(self.g, a, &with(&rows, self.axis)) == shape::key(self.g, b, &with(&rows, axis))
    }

    fn same_taken(&mut self, a: Option<ExprId>, b: Option<ExprId>, axis: AxisId) -> bool {
        match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => self.same(a, b, axis),
            _ => false,
        }
    }

    fn check_top(&mut self, s: &Scale) -> Result<(), String> {
        let top = self.state(s.by, Monoid::Max)?;
        if self.same(s.score, top.body, top.axes[0]) && self.same_taken(s.taken, top.cond, top.axes[0]) {
            return Ok(());
        }
        Err("what is subtracted is not the greatest of what it is subtracted from".into())
    }

    /// The divisor scales as the terms do.
    fn check_sum(&mut self, s: &Scale, e: ExprId) -> Result<ExprId, String> {
        let sum = self.state(e, Monoid::Sum)?;
        let own = sum.axes[0];
        let taken = self.same_taken(s.taken, sum.cond, own);
        let exp = match self.g.expr(sum.body) {
            Expr::Call(Func::Exp, a) => a[0],
            _ => return Err("a divisor that scales in another way".into()),
        };
        match self.g.expr(exp).clone() {
            Expr::Call(Func::Sub, a) if a[1] == s.by && taken && self.same(s.score, a[0], own) => Ok(e),
            _ => Err("a divisor that scales in another way".into()),
        }
    }
}

/// Is `b`, a condition at the sum's axis, the same as the one that the cascade's terms stand under?
pub fn same_condition(c: &Cascade, b: Option<ExprId>) -> bool {
    b.is_none() || b == c.taken
}
