//! What a recognised product is: its sides, its sums, and their factors.

use super::contract_pattern::below;
use super::index::Facts;
use crate::ir::graph::{AxisId, Combine, Expr, ExprId, Fold, Graph};
use crate::vocab::dtype::{DType, Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use std::collections::BTreeSet;

/// Which side of the product an output axis belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Batch,
    M,
    N,
}

/// A kernel that `contract` can lower.
#[derive(Clone, Debug)]
pub struct ContractShape {
    /// The output axes, shared by all statements by position.
    pub axes: Vec<OutAxis>,
    pub stmts: Vec<StmtShape>,
    pub batch: Vec<Digit>,
    pub m: Vec<Digit>,
    pub n: Vec<Digit>,
    pub folds: Vec<Contraction>,
    /// Where B is chosen by data that depends on the row.
    pub selector: Option<Selector>,
}

/// An index in B whose value is read from memory for each row: the sums' B is the same for rows of equal value.
#[derive(Clone, Debug, PartialEq)]
pub struct Selector {
    pub expr: ExprId,
    /// Position of its statement in `ContractShape::stmts`.
    pub stmt: usize,
    /// Rows without one of these do not look at the sum.
    pub guards: Vec<Guard>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OutAxis {
    pub name: String,
    pub lo: i64,
    pub extent: i64,
}

/// A statement, by its index in the graph, and its own ids of the output axes.
#[derive(Clone, Debug)]
pub struct StmtShape {
    pub stmt: usize,
    pub axes: Vec<AxisId>,
}

/// A part of an output axis: the axis's value is `lo` plus the sum of its digits, each times its stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digit {
    /// Position among the output axes.
    pub out: usize,
    pub stride: i64,
    pub extent: i64,
}

/// One sum of products.
#[derive(Clone, Debug)]
pub struct Contraction {
    /// Position of its statement in `ContractShape::stmts`.
    pub stmt: usize,
    pub fold: ExprId,
    pub ty: Ty,
    pub k: Vec<KAxis>,
    pub a: Factor,
    pub b: Factor,
    /// Factors of the sum that do not change along it.
    pub hoisted: Vec<Hoisted>,
    /// The sum is 0 where one of these does not hold.
    pub result_guards: Vec<Guard>,
    /// Whether one factor alone is 0 where a condition leaves a term out: a sum that is not finite then says nothing, as
    /// the other factor may be infinite or NaN there.
    pub masked: bool,
    /// Factors that blocks of terms share.
    pub blocks: Option<Blocks>,
}

/// A sum that was written as one of scaled sums: `sum[g](s[g] * sum[i](…))`. The scales are factors of A and B like the
/// others; a main loop that knows of blocks leaves them out and multiplies by them once a block.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocks {
    /// The first so many fold axes number the blocks.
    pub outer: usize,
    pub scales: Vec<ExprId>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct KAxis {
    pub axis: AxisId,
    pub name: String,
    pub lo: i64,
    pub extent: i64,
}

/// One side: the product of some expressions, 0 (and nothing read) where a guard does not hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Factor {
    pub exprs: Vec<ExprId>,
    pub guards: Vec<Guard>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hoisted {
    pub expr: ExprId,
    /// Divide by it.
    pub divide: bool,
}

/// A condition on a term.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Guard {
    /// The expression has this value.
    Is(ExprId, bool),
    /// axis ≥ bound
    AtLeast(AxisId, ExprId),
    /// axis < bound
    Below(AxisId, ExprId),
}

impl ContractShape {
    /// Whether a condition leaves terms out of a sum by one factor alone.
    pub fn is_masked(&self) -> bool {
        self.folds.iter().any(|f| f.masked)
    }

    pub fn points(digits: &[Digit]) -> i64 {
        digits.iter().map(|d| d.extent).product()
    }

    /// The shape with the outermost digit of a side as part of the batch, if the side has more than that.
    pub fn with_batch(&self, part: Part) -> Option<ContractShape> {
        let mut other = self.clone();
        let side = if part == Part::M { &mut other.m } else { &mut other.n };
        let at = side.iter().position(|d| d.extent > 1)?;
        if side[at + 1..].iter().all(|d| d.extent <= 1) {
            return None;
        }
        other.batch.push(side.remove(at));
        Some(other)
    }
}

impl Contraction {
    pub fn terms(&self) -> i64 {
        self.k.iter().map(|k| k.extent).product()
    }

    /// The sum without the scales of its blocks.
    pub fn unscaled(&self) -> Contraction {
        let mut bare = self.clone();
        if let Some(blocks) = bare.blocks.take() {
            for side in [&mut bare.a, &mut bare.b] {
                side.exprs.retain(|e| !blocks.scales.contains(e));
            }
        }
        bare
    }
}

/// The inner sum of a block of 8-bit floats and what it is multiplied by, where `body` is that. Only sums that differ
/// at all points and blocks count: others are made once and read by many.
pub(super) fn scaled<'g>(
    g: &'g Graph,
    facts: &Facts<'g>,
    body: ExprId,
    outer: &[KAxis],
    masked: bool,
) -> Option<(&'g Fold, Vec<ExprId>)> {
    /// Terms after which sums of 8-bit floats leave the tensor cores anyway.
    const BLOCK: i64 = 128;
    let (mut parts, mut todo) = (Vec::new(), vec![body]);
    while let Some(id) = todo.pop() {
        match g.expr(id) {
            Expr::Call(Func::Mul, args) => todo.extend(args.iter().rev()),
            _ => parts.push(id),
        }
    }
    let folds = |id: ExprId| below(g, id).iter().any(|&e| matches!(g.expr(e), Expr::Fold(_)));
    let (sums, scales): (Vec<ExprId>, Vec<ExprId>) = parts.into_iter().partition(|&id| folds(id));
    let [sum] = sums[..] else { return None };
    let Expr::Fold(inner) = g.expr(sum) else { return None };
    let byte = |id: &ExprId| match g.expr(*id) {
        Expr::Read(r) => matches!(g.tensor(r.tensor).dtype, DType::E4M3 | DType::E5M2),
        _ => false,
    };
    let product = matches!(g.expr(inner.body), Expr::Call(Func::Mul, args) if args.iter().all(byte));
    let mut terms = inner.axes.iter().map(|&a| g.axis_range(a).map(|(lo, hi)| hi - lo));
    let terms = terms.try_fold(1i64, |n, e| e.map(|e| n.saturating_mul(e)))?;
    let (known, open) = (facts.free(sum), facts.free(body));
    let own = !masked && inner.cond.is_none() && inner.combine == Combine::Builtin(Monoid::Sum);
    let all = open.iter().all(|a| known.contains(a)) && outer.iter().all(|k| known.contains(&k.axis));
    (own && all && product && terms > 0 && terms % BLOCK == 0).then_some((inner, scales))
}

/// The constant by which factors divide an axis wherever they use it.
pub(super) fn divisor(g: &Graph, exprs: &[ExprId], axis: AxisId) -> Option<i64> {
    let nodes: BTreeSet<ExprId> = exprs.iter().flat_map(|&e| below(g, e)).collect();
    let is_axis = |id: ExprId| matches!(g.expr(id), Expr::Axis(a) if *a == axis);
    let mut by = None;
    for &id in &nodes {
        let children = g.children(id);
        if !children.iter().any(|&c| is_axis(c)) {
            continue;
        }
        let Expr::Call(Func::Div, args) = g.expr(id) else { return None };
        let Expr::Lit(Value::I64(n)) = g.expr(args[1]) else { return None };
        if !is_axis(args[0]) || by.is_some_and(|b| b != *n) {
            return None;
        }
        by = Some(*n);
    }
    if nodes.iter().any(|&id| is_axis(id)) && exprs.iter().any(|&e| is_axis(e)) {
        return None;
    }
    by
}
