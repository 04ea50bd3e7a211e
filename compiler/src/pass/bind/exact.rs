//! Size arithmetic without wrapping, and conditions that no sizes meet.
//!
//! Integers wrap in a kernel; sizes, dims and the conditions on them must not: what does not fit in 64 bits is refused.

use super::build;
use super::elab::{Elab, Meaning};
use super::interval::{Iv, floor_div, of_dtype};
use crate::vocab::dtype::DType;
use crate::vocab::meaning::floor_rem;
use girih_dsl::ast::*;
use girih_dsl::diagnostic::Diagnostic;

/// No size is larger.
const LARGEST: i128 = i64::MAX as i128;

impl<'m> Elab<'m> {
    /// Reports an expression of sizes of which a part does not fit in 64 bits.
    pub fn fits(&mut self, e: &Expr) -> Option<()> {
        let Err(at) = self.exact(e) else { return Some(()) };
        let d = Diagnostic::error("E0514", at, "this size does not fit in 64 bits");
        self.report(d.help("check the sizes and consts it is made of: give smaller ones"));
        None
    }

    /// The number that an expression of sizes is where each step of it fits in 64 bits, if it is one of numbers, names
    /// and integer operators; the step that does not fit.
    fn exact(&self, e: &Expr) -> Result<Option<i64>, Span> {
        match &e.kind {
            ExprKind::Int(text) => Ok(build::int_text(text)),
            ExprKind::Paren(a) => self.exact(a),
            ExprKind::Read { name, index: None } => Ok(match self.frame().names.get(&name.text) {
                Some(Meaning::Value(v, _)) => build::literal_int(&self.g, v.id),
                _ => None,
            }),
            ExprKind::Unary(UnOp::Neg, a) => match self.exact(a)? {
                Some(a) => a.checked_neg().map(Some).ok_or(e.span),
                None => Ok(None),
            },
            ExprKind::Binary(op, a, b) => match (self.exact(a)?, self.exact(b)?) {
                (Some(a), Some(b)) => whole(*op, a, b).ok_or(e.span),
                _ => Ok(None),
            },
            ExprKind::Unary(UnOp::Not, a) => self.each_exact([&**a]),
            ExprKind::Call { args, .. } => self.each_exact(args.iter().map(|a| &a.value)),
            ExprKind::Chain(parts, _) => self.each_exact(parts),
            _ => Ok(None),
        }
    }

    fn each_exact<'a>(&self, parts: impl IntoIterator<Item = &'a Expr>) -> Result<Option<i64>, Span> {
        parts.into_iter().try_fold(None, |_, a| self.exact(a).map(|_| None))
    }

    /// Is the condition false whatever the sizes are?
    pub fn never(&self, op: &Op, e: &Expr) -> bool {
        self.truth(op, e) == Some(false)
    }

    /// What a condition on sizes is for all of them, if that is one thing.
    fn truth(&self, op: &Op, e: &Expr) -> Option<bool> {
        match &e.kind {
            ExprKind::Bool(b) => Some(*b),
            ExprKind::Paren(a) => self.truth(op, a),
            ExprKind::Unary(UnOp::Not, a) => self.truth(op, a).map(|b| !b),
            ExprKind::Binary(BinOp::And, a, b) => match (self.truth(op, a), self.truth(op, b)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
            ExprKind::Binary(BinOp::Or, a, b) => match (self.truth(op, a), self.truth(op, b)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
            ExprKind::Binary(how, a, b) => compare(*how, self.values(op, a)?, self.values(op, b)?),
            ExprKind::Chain(parts, hows) => {
                let all: Vec<Iv> = parts.iter().map(|p| self.values(op, p)).collect::<Option<_>>()?;
                let each = all.windows(2).zip(hows).map(|(w, how)| compare(*how, w[0], w[1]));
                let each: Vec<Option<bool>> = each.collect();
                match each.contains(&Some(false)) {
                    true => Some(false),
                    false => each.iter().all(|t| *t == Some(true)).then_some(true),
                }
            }
            _ => None,
        }
    }

    /// The values that an integer expression of sizes and consts may have.
    fn values(&self, op: &Op, e: &Expr) -> Option<Iv> {
        match &e.kind {
            ExprKind::Int(text) => build::int_text(text).map(|v| (v as i128, v as i128)),
            ExprKind::Paren(a) => self.values(op, a),
            ExprKind::Read { name, index: None } => self.range_of_name(op, &name.text),
            ExprKind::Unary(UnOp::Neg, a) => self.values(op, a).map(|(lo, hi)| (-hi, -lo)),
            ExprKind::Binary(how, a, b) => {
                let ((a0, a1), (b0, b1)) = (self.values(op, a)?, self.values(op, b)?);
                let corners = |f: fn(i128, i128) -> Option<i128>| {
                    let all = [f(a0, b0)?, f(a0, b1)?, f(a1, b0)?, f(a1, b1)?];
                    Some((*all.iter().min()?, *all.iter().max()?))
                };
                match how {
                    BinOp::Add => corners(i128::checked_add),
                    BinOp::Sub => Some((a0.checked_sub(b1)?, a1.checked_sub(b0)?)),
                    BinOp::Mul => corners(i128::checked_mul),
                    BinOp::Div if b0 > 0 => corners(|a, b| Some(floor_div(a, b))),
                    BinOp::Rem if b0 > 0 => Some((0, b1 - 1)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn range_of_name(&self, op: &Op, name: &str) -> Option<Iv> {
        if let Some(size) = op.sizes.iter().find(|s| s.name.text == name) {
            return matches!(size.kind, SizeKind::Plain).then_some((0, LARGEST));
        }
        let p = op.params.iter().find(|p| p.is_const && p.name.text == name)?;
        DType::parse(&p.dtype.text).filter(|d| d.is_int()).map(of_dtype)
    }
}

/// An operator on whole numbers; `None` if the result does not fit, nothing if it is no number.
fn whole(op: BinOp, a: i64, b: i64) -> Option<Option<i64>> {
    Some(Some(match op {
        BinOp::Add => a.checked_add(b)?,
        BinOp::Sub => a.checked_sub(b)?,
        BinOp::Mul => a.checked_mul(b)?,
        BinOp::Pow if b >= 0 => a.checked_pow(u32::try_from(b).ok()?)?,
        BinOp::Div => i64::try_from(floor_div(a as i128, b as i128)).ok()?,
        BinOp::Rem => floor_rem(a, b),
        BinOp::Shl if (0..64).contains(&b) => i64::try_from((a as i128) << b).ok()?,
        _ => return Some(None),
    }))
}

/// A comparison of all values of one range with all of another, if it comes out the same.
fn compare(how: BinOp, a: Iv, b: Iv) -> Option<bool> {
    let decide = |yes: bool, no: bool| (yes || no).then_some(yes);
    match how {
        BinOp::Lt => decide(a.1 < b.0, a.0 >= b.1),
        BinOp::Le => decide(a.1 <= b.0, a.0 > b.1),
        BinOp::Gt => compare(BinOp::Lt, b, a),
        BinOp::Ge => compare(BinOp::Le, b, a),
        BinOp::Eq => decide(a.0 == a.1 && a == b, a.1 < b.0 || b.1 < a.0),
        BinOp::Ne => compare(BinOp::Eq, a, b).map(|same| !same),
        _ => None,
    }
}
