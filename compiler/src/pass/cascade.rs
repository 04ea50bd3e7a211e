//! Cascades: a sum along an axis whose terms depend on other folds along that axis.
//!
//! Written as it is, such a sum needs a pass for each fold below it. It needs one if the sum so far can be corrected
//! whenever the running value of a fold below it changes. How a term answers to such a change is derived from its
//! parts by a table of laws, in which U does not depend on the folds, and P depends on them but not on the axis:
//!
//! | term | law |
//! |---|---|
//! | U − P | shift by −P |
//! | exp, exp2 of a shift by −P | scale by e^(−P) |
//! | scale / P | scale, a divisor that the sum may be divided by at its end |
//! | scale · U, scale / U | scale |
//! | P = identity ? 0 : scale | scale: nothing is taken where the fold has met nothing |
//! | c ? scale : 0, c ? 0 : scale | scale, of some of the terms |
//! | rounding of a scale, a local's | scale (LANGUAGE.md: it may move across a scaling that is common to its row) |
//!
//! A shift is taken only by the greatest of the terms that it shifts, alone or with the logarithm of their sum: then
//! no exponential exceeds 1 and the factor from an old to a new greatest value, e^(old − new), is at most 1. The
//! greatest may be of one more value than the terms, which the divisor may count too. A divisor must be a sum that
//! scales alike. A term that depends on no fold along the axis is its own weight.

use super::facts::Facts;
use super::shape;
use crate::ir::graph::*;
use crate::vocab::dtype::{DType, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;

/// Why a term with a cast is not carried along, and what may be written in its place.
const CAST: &str =
    "a cast rounds where it is written; the rounding of a local (`p: bf16[i, j] = …`) may move";

/// The terms of a sum that can be carried along with what they depend on.
#[derive(Clone, Debug)]
pub struct Cascade {
    /// What is shifted, at the sum's axis; without a state the weight itself.
    pub score: ExprId,
    /// Only these terms are taken.
    pub taken: Option<ExprId>,
    pub state: Option<State>,
    /// What each term is rounded to.
    pub rounded: Option<DType>,
    /// The term.
    pub weight: ExprId,
    /// Nodes of the term that are as one of their operands until the sum's end, innermost first.
    pub same: Vec<(ExprId, ExprId)>,
    /// Whether there are factors and conditions beside, so that the term must be evaluated.
    pub more: bool,
}

/// What the terms depend on.
#[derive(Clone, Debug)]
pub struct State {
    /// The exponential in the term, and whether it is a power of two.
    pub exp: ExprId,
    pub base2: bool,
    /// The greatest score, and whether it is that of the scores without the constant that they are scaled by.
    pub top: ExprId,
    pub bare_top: bool,
    /// A score of its own that the greatest is not less than.
    pub least: Option<ExprId>,
    pub divisor: Option<Divisor>,
    /// Whether terms are 0 where no score is above −inf; they are NaN otherwise.
    pub guard: bool,
}

/// A sum of the exponentials.
#[derive(Clone, Copy, Debug)]
pub struct Divisor {
    /// The sum of the terms.
    pub fold: ExprId,
    /// A score that it counts beside the terms.
    pub extra: Option<ExprId>,
    /// What its terms are rounded to.
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

#[derive(Clone)]
struct Scale {
    score: ExprId,
    by: ExprId,
    exp: ExprId,
    over: Vec<ExprId>,
    conds: Vec<(ExprId, ExprId, ExprId)>,
    guard: bool,
    rounded: Option<DType>,
    same: Vec<(ExprId, ExprId)>,
    factors: bool,
}

/// The greatest score as a term is shifted by it.
struct Top {
    fold: ExprId,
    body: Fold,
    least: Option<ExprId>,
    /// The sum in the logarithm that is subtracted too.
    log: Option<ExprId>,
    /// Of the scores without the constant that they are scaled by.
    bare: bool,
}

/// The cascade that a factor of a sum along `axis` is, or why it is none. `values`: conditions under which the sum takes
/// terms; `late`: what the whole sum is divided by.
pub fn of_term(
    g: &Graph,
    facts: &mut Facts,
    term: ExprId,
    axis: AxisId,
    values: &[ExprId],
    late: Option<ExprId>,
) -> Result<Cascade, String> {
    let mut cx = Derive { g, facts, axis };
    match cx.law(term)? {
        Law::Free if late.is_none() => Ok(cx.stateless(term)),
        Law::Scale(s) => cx.cascade(s, term, values, late),
        _ => Err("its terms do not scale".into()),
    }
}

struct Derive<'a> {
    g: &'a Graph,
    facts: &'a mut Facts,
    axis: AxisId,
}

impl Derive<'_> {
    /// A term without a state: a rounding and conditions around what is evaluated.
    fn stateless(&mut self, term: ExprId) -> Cascade {
        let (mut e, mut rounded, mut taken) = (term, None, None);
        loop {
            e = match self.g.expr(e) {
                Expr::Round(d, _, a) if rounded.is_none_or(|before| before == *d) => {
                    rounded = Some(*d);
                    *a
                }
                Expr::Select(c, a, b) if self.is(*b, 0.0) && taken.is_none() => {
                    taken = Some(*c);
                    *a
                }
                _ => break,
            };
        }
        Cascade { score: e, taken, state: None, rounded, weight: term, same: Vec::new(), more: false }
    }

    fn cascade(
        &mut self,
        s: Scale,
        term: ExprId,
        values: &[ExprId],
        late: Option<ExprId>,
    ) -> Result<Cascade, String> {
        let top = self.top(&s)?;
        let over: Vec<ExprId> = s.over.iter().copied().chain(top.log).chain(late).collect();
        let taken = self.taken(&s, &top, values)?;
        let divisor = match over[..] {
            [] => None,
            [sum] => Some(self.divisor(&s, &top, taken, sum)?),
            _ => return Err("more than one divisor".into()),
        };
        let (mut same, mut more) = (s.same.clone(), s.factors);
        for &(cond, node, inner) in &s.conds {
            match taken == Some(cond) {
                true => same.push((node, inner)),
                false => more = true,
            }
        }
        if s.rounded.is_none() && more {
            return Err("weights that are not rounded".into());
        }
        // Expressions below come before those above.
        same.sort();
        let base2 = matches!(self.g.expr(s.exp), Expr::Call(Func::Exp2, _));
        let state = State {
            exp: s.exp,
            base2,
            top: top.fold,
            bare_top: top.bare,
            least: top.least,
            divisor,
            guard: s.guard,
        };
        let Scale { score, rounded, .. } = s;
        Ok(Cascade { score, taken, state: Some(state), rounded, weight: term, same, more })
    }

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
            Expr::Call(Func::Exp | Func::Exp2, a) => match self.law(a[0])? {
                Law::Shift(score, by) => Ok(Law::Scale(Scale {
                    score,
                    by,
                    exp: e,
                    over: Vec::new(),
                    conds: Vec::new(),
                    guard: false,
                    rounded: None,
                    same: Vec::new(),
                    factors: false,
                })),
                _ => Err("an exponential that no law takes".into()),
            },
            Expr::Call(Func::Div, a) => match (self.law(a[0])?, self.law(a[1])?) {
                (Law::Scale(mut s), Law::Fixed) => {
                    s.over.push(a[1]);
                    s.same.push((e, a[0]));
                    Ok(Law::Scale(s))
                }
                (Law::Scale(s), Law::Free) => s.times(),
                _ => Err("a quotient that no law takes".into()),
            },
            Expr::Call(Func::Mul, a) => match (self.law(a[0])?, self.law(a[1])?) {
                (Law::Scale(s), Law::Free) | (Law::Free, Law::Scale(s)) => s.times(),
                _ => Err("a product that no law takes".into()),
            },
            Expr::Round(_, Rounding::Fixed, _) => Err(CAST.into()),
            Expr::Round(d, Rounding::Movable, a) => match self.law(a)? {
                Law::Scale(mut s) if s.rounded.is_none_or(|before| before == d) => {
                    s.same.push((e, a));
                    Ok(Law::Scale(Scale { rounded: Some(d), ..s }))
                }
                _ => Err("a rounding that no law takes".into()),
            },
            Expr::Select(c, a, b) => self.select(e, c, a, b),
            _ => Err("an operation that no law takes".into()),
        }
    }

    fn select(&mut self, e: ExprId, c: ExprId, a: ExprId, b: ExprId) -> Result<Law, String> {
        if self.is(a, 0.0)
            && let (Law::Fixed, Law::Scale(mut s)) = (self.law(c)?, self.law(b)?)
            && self.is_identity_test(c, s.by)
        {
            s.same.push((e, b));
            return Ok(Law::Scale(Scale { guard: true, ..s }));
        }
        if self.is(b, 0.0)
            && let (Law::Free, Law::Scale(mut s)) = (self.law(c)?, self.law(a)?)
        {
            s.conds.push((c, e, a));
            return Ok(Law::Scale(s));
        }
        if self.is(a, 0.0)
            && let (Law::Free, Law::Scale(s)) = (self.law(c)?, self.law(b)?)
        {
            return Ok(Law::Scale(Scale { factors: true, ..s }));
        }
        Err("a condition that no law takes".into())
    }

    fn is(&self, e: ExprId, v: f32) -> bool {
        matches!(self.g.expr(e), Expr::Lit(Value::F32(x)) if *x == v)
    }

    /// `top == −inf`
    fn is_identity_test(&mut self, c: ExprId, top: ExprId) -> bool {
        match self.g.expr(c).clone() {
            Expr::Call(Func::Eq, a) => {
                let tests =
                    |x: ExprId, y: ExprId, s: &mut Self| s.equal(x, top) && s.is(y, f32::NEG_INFINITY);
                tests(a[0], a[1], self) || tests(a[1], a[0], self)
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

    fn fold_of(&self, e: ExprId, m: Monoid) -> Result<Fold, String> {
        match self.g.expr(e) {
            Expr::Fold(f) if self.is_along(f) && f.combine == Combine::Builtin(m) => Ok(f.clone()),
            _ => Err(format!("what should be its {} is none", m.name())),
        }
    }

    /// Equal, whatever the axes of folds within are called.
    fn equal(&mut self, a: ExprId, b: ExprId) -> bool {
        let free: Vec<AxisId> = self.facts.free(self.g, a).iter().copied().collect();
        a == b || shape::key(self.g, a, &free) == shape::key(self.g, b, &free)
    }

    /// Equal but for the axis: `a` along the sum's, `b` along `axis`.
    fn same(&mut self, a: ExprId, b: ExprId, axis: AxisId) -> bool {
        let mut rows: Vec<AxisId> = self.facts.free(self.g, a).iter().copied().collect();
        rows.retain(|&r| r != self.axis);
        let with = |rows: &[AxisId], last| [rows, &[last]].concat();
        shape::key(self.g, a, &with(&rows, self.axis)) == shape::key(self.g, b, &with(&rows, axis))
    }

    /// The greatest score, or with a value beside, or with the logarithm of the sum.
    fn top(&mut self, s: &Scale) -> Result<Top, String> {
        let none = || "what is subtracted is not the greatest of what it is subtracted from".to_string();
        let (mut e, mut log) = (s.by, None);
        // An infinite greatest score is what its own logsumexp is.
        if let Expr::Select(c, a, b) = self.g.expr(e).clone()
            && matches!(self.g.expr(c), Expr::Call(Func::IsInf, x) if x[0] == a)
        {
            let Expr::Call(Func::Add, x) = self.g.expr(b) else { return Err(none()) };
            if !x.contains(&a) {
                return Err(none());
            }
            e = b;
        }
        if let Expr::Call(Func::Add, a) = self.g.expr(e).clone() {
            let is_log = |x: ExprId| match self.g.expr(x) {
                Expr::Call(Func::Log, of) => Some(of[0]),
                _ => None,
            };
            let (top, sum) = match (is_log(a[0]), is_log(a[1])) {
                (None, Some(sum)) => (a[0], sum),
                (Some(sum), None) => (a[1], sum),
                _ => return Err(none()),
            };
            (e, log) = (top, Some(sum));
        }
        let mut least = None;
        if let Expr::Call(Func::Max, a) = self.g.expr(e).clone()
            && let [x, y] = a[..]
        {
            (e, least) = if self.has_state(x) { (x, Some(y)) } else { (y, Some(x)) };
            if least.is_some_and(|l| self.facts.has_fold(self.g, l)) {
                return Err(none());
            }
        }
        // A positive factor of all scores is one of their greatest.
        let (mut score, mut bare) = (s.score, false);
        if let (Some((x, f, by)), Some((y, h, with))) = (self.scaled(score), self.scaled(e))
            && f == h
            && by == with
        {
            (score, e, bare) = (x, y, true);
        }
        let body = self.fold_of(e, Monoid::Max)?;
        match self.same(score, body.body, body.axes[0]) {
            true => Ok(Top { fold: e, body, least, log, bare }),
            false => Err(none()),
        }
    }

    /// A value times or over a positive number, where that is all.
    fn scaled(&self, e: ExprId) -> Option<(ExprId, Func, u32)> {
        let Expr::Call(f @ (Func::Mul | Func::Div), a) = self.g.expr(e) else { return None };
        let number = |e: ExprId| match self.g.expr(e) {
            Expr::Lit(Value::F32(v)) if *v > 0.0 && v.is_finite() => Some(v.to_bits()),
            _ => None,
        };
        match (number(a[0]), number(a[1])) {
            (None, Some(by)) => Some((a[0], *f, by)),
            (Some(by), None) if *f == Func::Mul => Some((a[1], *f, by)),
            _ => None,
        }
    }

    /// Which of the terms' conditions is the one of the greatest.
    fn taken(&mut self, s: &Scale, top: &Top, values: &[ExprId]) -> Result<Option<ExprId>, String> {
        let Some(cond) = top.body.cond else { return Ok(None) };
        let mut all = s.conds.iter().map(|c| c.0).chain(values.iter().copied());
        let found = all.find(|&c| self.same(c, cond, top.body.axes[0]));
        found.map(Some).ok_or_else(|| "a greatest value of other terms".to_string())
    }

    /// The divisor scales as the terms do.
    fn divisor(&mut self, s: &Scale, top: &Top, taken: Option<ExprId>, e: ExprId) -> Result<Divisor, String> {
        let other = || "a divisor that scales in another way".to_string();
        let (mut fold, mut extra) = (e, None);
        if let Expr::Call(Func::Add, a) = self.g.expr(e).clone() {
            let one = |x: ExprId| matches!(self.g.expr(x), Expr::Call(Func::Exp | Func::Exp2, _));
            let (sum, exp) = if one(a[0]) { (a[1], a[0]) } else { (a[0], a[1]) };
            (fold, extra) = (sum, Some(self.shifted(s, top, exp).ok_or_else(other)?));
            if extra.is_some_and(|x| self.facts.has_fold(self.g, x)) {
                return Err(other());
            }
        }
        let sum = self.fold_of(fold, Monoid::Sum)?;
        let own = sum.axes[0];
        let (exp, rounded) = match self.g.expr(sum.body) {
            Expr::Round(d, Rounding::Movable, a) => (*a, Some(*d)),
            _ => (sum.body, None),
        };
        let score = self.shifted(s, top, exp).ok_or_else(other)?;
        let alike = self.same(s.score, score, own)
            && match (taken, sum.cond) {
                (None, None) => true,
                (Some(a), Some(b)) => self.same(a, b, own),
                _ => false,
            };
        if alike { Ok(Divisor { fold, extra, rounded }) } else { Err(other()) }
    }

    /// What an exponential like the terms' is of, before it is shifted by the greatest.
    fn shifted(&mut self, s: &Scale, top: &Top, e: ExprId) -> Option<ExprId> {
        let func = |e: ExprId| match self.g.expr(e) {
            Expr::Call(f @ (Func::Exp | Func::Exp2), a) => Some((*f, a[0])),
            _ => None,
        };
        let ((f, of), (own, _)) = (func(e)?, func(s.exp)?);
        let Expr::Call(Func::Sub, a) = self.g.expr(of).clone() else { return None };
        let whole = match top.log {
            Some(_) => self.equal(a[1], top.fold),
            None => self.equal(a[1], s.by),
        };
        (f == own && whole).then_some(a[0])
    }
}

impl Scale {
    /// Times a factor that is not common to a row: it cannot move across a rounding.
    fn times(self) -> Result<Law, String> {
        match self.rounded {
            None => Ok(Law::Scale(Scale { factors: true, ..self })),
            Some(_) => Err("a factor of what is rounded".into()),
        }
    }
}

/// The conditions that must all hold (or fail, if `counts` is false) for a term to count.
pub fn parts(g: &Graph, cond: ExprId, counts: bool, out: &mut Vec<(ExprId, bool)>) {
    let lit = |e: ExprId, v: bool| matches!(g.expr(e), Expr::Lit(Value::Bool(x)) if *x == v);
    let both = match g.expr(cond) {
        Expr::Select(a, b, c) if counts && lit(*c, false) => [*a, *b],
        Expr::Select(a, b, c) if !counts && lit(*b, true) => [*a, *c],
        _ => return out.push((cond, counts)),
    };
    both.into_iter().for_each(|e| parts(g, e, counts, out));
}

impl Cascade {
    /// Conditions without which a term has no weight.
    pub fn needs(&self, g: &Graph) -> Vec<(ExprId, bool)> {
        let mut found = Vec::new();
        if let Some(c) = self.taken {
            parts(g, c, true, &mut found);
        }
        let nothing = if self.state.is_some() { f32::NEG_INFINITY } else { 0.0 };
        let is_nothing = |e: ExprId| matches!(g.expr(e), Expr::Lit(Value::F32(v)) if *v == nothing);
        let mut e = self.score;
        while let Expr::Select(c, a, b) = g.expr(e) {
            e = match (is_nothing(*a), is_nothing(*b)) {
                (true, false) => {
                    parts(g, *c, false, &mut found);
                    *b
                }
                (false, true) => {
                    parts(g, *c, true, &mut found);
                    *a
                }
                _ => break,
            };
        }
        found
    }

    /// Whether a term has no weight where this condition fails.
    pub fn implies(&self, g: &Graph, cond: ExprId) -> bool {
        let needs = self.needs(g);
        let mut of = Vec::new();
        parts(g, cond, true, &mut of);
        of.iter().all(|part| needs.contains(part) || self.taken == Some(part.0) && part.1)
    }
}
