//! What the operands of a sum of products are: which instruction their values fit, and whether a tile of them can
//! be copied from memory as it lies.

use super::contract_pattern::{ContractShape, Contraction, Digit, Factor};
use super::index::{Facts, Interval};
use super::{contract_bounds, contract_padding};
use crate::ir::graph::{Access, AxisId, Expr, ExprId, Graph, TensorId};
use crate::ir::tile::{Math, MmaKind};
use crate::vocab::dtype::{DType, Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::target::Target;
use std::collections::BTreeMap;

use super::home::Home;

/// Whether every value of an expression is exactly a value of a float dtype.
pub fn fits(g: &Graph, facts: &Facts, id: ExprId, dtype: DType) -> bool {
    let sub = |id: &ExprId| fits(g, facts, *id, dtype);
    match g.expr(id) {
        Expr::Read(r) => {
            let default = match r.access {
                Access::Else(d) => sub(&d),
                _ => true,
            };
            default && holds(dtype, g.tensor(r.tensor).dtype)
        }
        Expr::Round(d, ..) => holds(dtype, *d),
        Expr::Call(Func::Tf32, a) => sub(&a[0]) || holds_tf32(dtype),
        Expr::Call(Func::Neg | Func::Abs, a) if dtype.is_float() => sub(&a[0]),
        Expr::Call(Func::Max | Func::Min, a) => a.iter().all(sub),
        Expr::Select(_, a, b) => sub(a) && sub(b),
        Expr::Lit(v) => literal_fits(*v, dtype),
        Expr::Cast(a) if g.ty(*a).is_int() && g.ty(id).is_float() => {
            let i = facts.interval(*a);
            let most = 1i64 << dtype.row().mantissa;
            i.lo >= -most && i.hi <= most && (i.hi.max(-i.lo) as f64) <= largest(dtype)
        }
        _ => false,
    }
}

fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::E4M3 => 448.0,
        DType::E5M2 => 57344.0,
        DType::F16 => 65504.0,
        _ => 3e38,
    }
}

fn literal_fits(v: Value, dtype: DType) -> bool {
    let wide = match v {
        Value::F32(v) => v,
        _ => return false,
    };
    match dtype {
        DType::F16 => half::f16::from_f32(wide).to_f32().to_bits() == wide.to_bits(),
        DType::BF16 => half::bf16::from_f32(wide).to_f32().to_bits() == wide.to_bits(),
        DType::F32 => true,
        // Zero and one are the literals that occur (defaults, masks); others take a wider instruction.
        _ => wide == 0.0 || wide == 1.0,
    }
}

/// Whether `outer` has all values of `inner`.
fn holds(outer: DType, inner: DType) -> bool {
    outer == inner
        || matches!(
            (outer, inner),
            (DType::F16 | DType::BF16, DType::E4M3 | DType::E5M2)
                | (DType::F32, DType::F16 | DType::BF16 | DType::E4M3 | DType::E5M2)
        )
}

fn holds_tf32(outer: DType) -> bool {
    outer == DType::F32
}

/// Whether every value is exactly a tf32 value.
fn fits_tf32(g: &Graph, facts: &Facts, id: ExprId) -> bool {
    let sub = |id: &ExprId| fits_tf32(g, facts, *id);
    fits(g, facts, id, DType::F16)
        || fits(g, facts, id, DType::BF16)
        || match g.expr(id) {
            Expr::Call(Func::Tf32, _) => true,
            Expr::Call(Func::Neg | Func::Abs, a) => sub(&a[0]),
            Expr::Call(Func::Max | Func::Min, a) => a.iter().all(sub),
            Expr::Select(_, a, b) => sub(a) && sub(b),
            _ => false,
        }
}

/// The narrowest of i8 and u8 that holds all values of a factor.
fn byte(facts: &Facts, f: &Factor) -> Option<DType> {
    let [e] = f.exprs[..] else { return None };
    let i = facts.interval(e).union(Interval::point(0));
    let in_dtype = |d| {
        let all = Interval::of_dtype(d);
        i.lo >= all.lo && i.hi <= all.hi
    };
    [DType::I8, DType::U8].into_iter().find(|&d| in_dtype(d))
}

/// Elements of K that one instruction takes.
pub fn atom_k(math: Math) -> i64 {
    match math {
        Math::Mma { kind: MmaKind::Half(_) | MmaKind::HalfK8, .. } => 16,
        Math::Mma { kind: MmaKind::Tf32, .. } => 8,
        Math::Mma { kind: MmaKind::Byte(..), .. } => 32,
        Math::Wgmma { dtypes, .. } => 256 / dtypes[0].bits() as i64,
        Math::Fma(_) => 1,
    }
}

/// The dtypes that A and B have in shared memory.
pub fn stored(math: Math) -> (DType, DType) {
    match math {
        Math::Mma { kind: MmaKind::Half(d), .. } => (d, d),
        Math::Mma { kind: MmaKind::HalfK8, .. } => (DType::F16, DType::F16),
        Math::Mma { kind: MmaKind::Tf32, .. } => (DType::F32, DType::F32),
        Math::Mma { kind: MmaKind::Byte(a, b), .. } => (a, b),
        Math::Wgmma { dtypes: [a, b], .. } => (a, b),
        Math::Fma(ty) => (ty.stored(), ty.stored()),
    }
}

/// The instruction for one sum on a target.
pub fn math(g: &Graph, facts: &Facts, c: &Contraction, target: &Target, fast: bool) -> Math {
    let plain = Math::Fma(c.ty);
    let ([a], [b]) = (&c.a.exprs[..], &c.b.exprs[..]) else { return plain };
    let both = |d| fits(g, facts, *a, d) && fits(g, facts, *b, d);
    let mma = |kind| Math::Mma { kind, promote: false };
    match c.ty {
        Ty::I32 if target.mma_i8 && target.cp_async => match (byte(facts, &c.a), byte(facts, &c.b)) {
            (Some(x), Some(y)) => mma(MmaKind::Byte(x, y)),
            _ => plain,
        },
        Ty::F32 => {
            let fp8 = |e| [DType::E4M3, DType::E5M2].into_iter().find(|&d| fits(g, facts, e, d));
            if target.mma_fp8
                && let (Some(x), Some(y)) = (fp8(*a), fp8(*b))
            {
                Math::Mma { kind: MmaKind::Byte(x, y), promote: !fast }
            } else if target.mma_f16 && both(DType::F16) {
                mma(if target.cp_async { MmaKind::Half(DType::F16) } else { MmaKind::HalfK8 })
            } else if target.mma_bf16 && both(DType::BF16) {
                mma(MmaKind::Half(DType::BF16))
            } else if target.mma_tf32 && fits_tf32(g, facts, *a) && fits_tf32(g, facts, *b) {
                mma(MmaKind::Tf32)
            } else {
                plain
            }
        }
        _ => plain,
    }
}

/// A factor that is a read whose place in memory is linear in the fold's axes.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainRead {
    pub tensor: TensorId,
    pub index: Vec<ExprId>,
    /// Elements that one step along each fold axis moves.
    pub k: Vec<(AxisId, i64)>,
    /// Dims whose index may be outside (then the element is 0), with what each fold axis adds to the index.
    pub checks: Vec<(usize, Vec<(AxisId, i64)>)>,
}

/// How a factor's elements lie in memory.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    Plain(PlainRead),
    /// Evaluated element by element.
    Computed,
}

/// What the analysis of a factor needs to know.
pub struct Ground<'a, 'g> {
    pub graph: &'g Graph,
    pub facts: &'a Facts<'g>,
    pub shape: &'a ContractShape,
    pub home: &'a dyn Fn(TensorId) -> Home,
}

impl Ground<'_, '_> {
    /// Whether a factor whose shared-memory elements are `dtype` can be copied as it lies.
    pub fn source(&self, c: &Contraction, f: &Factor, dtype: DType) -> Source {
        self.plain(c, f, dtype).map_or(Source::Computed, Source::Plain)
    }

    /// The same where bounds of the fold's axes are all that a factor's conditions say; whether there are any.
    pub fn source_in_bounds(&self, c: &Contraction, f: &Factor, dtype: DType) -> (Source, bool) {
        if f.guards.is_empty() || contract_bounds::bounds(self, c, f).is_none() {
            return (self.source(c, f, dtype), false);
        }
        let bare = Factor { exprs: f.exprs.clone(), guards: Vec::new() };
        (self.source(c, &bare, dtype), true)
    }

    fn plain(&self, c: &Contraction, f: &Factor, dtype: DType) -> Option<PlainRead> {
        let g = self.graph;
        let [id] = f.exprs[..] else { return None };
        let (r, mut guards) = contract_padding::selected(g, id)?;
        guards.extend(f.guards.iter().copied());
        let padded = !guards.is_empty() && contract_padding::are_bounds(g, self.facts, r, &guards);
        let t = g.tensor(r.tensor);
        let zero_else = match r.access {
            Access::Proven => padded,
            Access::Else(d) if matches!(g.expr(d), Expr::Lit(v) if v.key().1 == 0) => true,
            _ => return None,
        };
        let empty = t.dims.contains(&0);
        if !guards.is_empty() && !padded
            || t.dtype != dtype
            || t.range.is_some()
            || empty
            || t.dtype.bits() < 8
        {
            return None;
        }
        // What is read in an index does not change along the fold (else it is not linear): it is read once a row.
        if r.index.iter().any(|&i| self.has_fold(i)) {
            return None;
        }
        let axes: Vec<AxisId> = c.k.iter().map(|k| k.axis).collect();
        let per_dim: Vec<_> = r.index.iter().map(|&i| self.linear(i, &axes)).collect::<Option<_>>()?;
        let strides = self.strides(r.tensor);
        let moved = |a: AxisId| -> i64 {
            per_dim.iter().zip(&strides).map(|(co, s)| co.get(&a).unwrap_or(&0) * s).sum()
        };
        let outside = |d: usize| {
            let at = self.facts.interval(r.index[d]);
            at.lo < t.lo[d] || at.hi >= t.lo[d] + t.dims[d]
        };
        let checks = (0..t.dims.len())
            .filter(|&d| zero_else && outside(d))
            .map(|d| (d, axes.iter().map(|a| (*a, *per_dim[d].get(a).unwrap_or(&0))).collect()))
            .collect();
        Some(PlainRead {
            tensor: r.tensor,
            index: r.index.clone(),
            k: axes.iter().map(|&a| (a, moved(a))).collect(),
            checks,
        })
    }

    fn has_fold(&self, id: ExprId) -> bool {
        matches!(self.graph.expr(id), Expr::Fold(_))
            || self.graph.children(id).iter().any(|&c| self.has_fold(c))
    }

    /// Strides with those of dims of size 1, which never count, as 0.
    pub fn strides(&self, tensor: TensorId) -> Vec<i64> {
        let dims = &self.graph.tensor(tensor).dims;
        let home = (self.home)(tensor);
        home.strides.iter().zip(dims).map(|(&s, &n)| if n <= 1 { 0 } else { s }).collect()
    }

    /// The coefficients of some axes in an index that is linear in them.
    pub fn linear(&self, id: ExprId, axes: &[AxisId]) -> Option<BTreeMap<AxisId, i64>> {
        let g = self.graph;
        let free = self.facts.free(id);
        if !axes.iter().any(|a| free.contains(a)) {
            return Some(BTreeMap::new());
        }
        match g.expr(id) {
            Expr::Axis(a) => Some(BTreeMap::from([(*a, 1)])),
            Expr::Cast(a) if g.ty(*a).is_int() && g.ty(id).is_int() => self.linear(*a, axes),
            Expr::Call(Func::Neg, a) => Some(scaled(self.linear(a[0], axes)?, -1)),
            Expr::Call(f @ (Func::Add | Func::Sub), a) => {
                let mut sum = self.linear(a[0], axes)?;
                let sign = if *f == Func::Sub { -1 } else { 1 };
                for (axis, v) in self.linear(a[1], axes)? {
                    *sum.entry(axis).or_insert(0) += sign * v;
                }
                Some(sum)
            }
            Expr::Call(Func::Mul, a) => match (self.literal(a[0]), self.literal(a[1])) {
                (Some(v), _) => Some(scaled(self.linear(a[1], axes)?, v)),
                (_, Some(v)) => Some(scaled(self.linear(a[0], axes)?, v)),
                _ => None,
            },
            _ => None,
        }
    }

    fn literal(&self, id: ExprId) -> Option<i64> {
        match self.graph.expr(id) {
            Expr::Lit(Value::I64(v)) => Some(*v),
            Expr::Lit(Value::I32(v)) => Some(*v as i64),
            Expr::Cast(a) => self.literal(*a),
            _ => None,
        }
    }

    /// Elements that one step along an output axis moves, if the place is linear in it.
    pub fn along(&self, p: &PlainRead, axis: AxisId) -> Option<i64> {
        let strides = self.strides(p.tensor);
        p.index.iter().zip(&strides).try_fold(0, |sum, (&i, s)| {
            if *s == 0 {
                return Some(sum);
            }
            Some(sum + self.linear(i, &[axis])?.get(&axis).unwrap_or(&0) * s)
        })
    }

    /// A number that divides every place that the read starts a run along `run` at, where the steps along `run`
    /// are multiples of `unit` elements.
    pub fn divisor(&self, p: &PlainRead, run: AxisId, unit: i64) -> i64 {
        let strides = self.strides(p.tensor);
        let lo = &self.graph.tensor(p.tensor).lo;
        p.index
            .iter()
            .zip(&strides)
            .zip(lo)
            .map(|((&i, &s), &lo)| s * gcd(self.multiple(i, run, unit), lo))
            .fold(0, gcd)
    }

    fn multiple(&self, id: ExprId, run: AxisId, unit: i64) -> i64 {
        let sub = |id: ExprId| self.multiple(id, run, unit);
        match self.graph.expr(id) {
            Expr::Lit(Value::I64(v)) => v.abs(),
            Expr::Lit(Value::I32(v)) => (*v as i64).abs(),
            Expr::Axis(a) if *a == run => gcd(unit, self.graph.axis_range(*a).map_or(1, |r| r.0)),
            Expr::Cast(a) => sub(*a),
            Expr::Call(Func::Neg, a) => sub(a[0]),
            Expr::Call(Func::Add | Func::Sub, a) => gcd(sub(a[0]), sub(a[1])),
            Expr::Call(Func::Mul, a) => sub(a[0]).saturating_mul(sub(a[1])),
            _ => 1,
        }
    }

    /// Whether the runs along an axis stay inside: no dim that may be outside depends on it.
    pub fn run_is_inside(&self, p: &PlainRead, axis: AxisId) -> bool {
        p.checks.iter().all(|(d, _)| !self.facts.free(p.index[*d]).contains(&axis))
    }

    /// Which of the two directions a computed factor's largest read runs along: K?
    pub fn prefers_k(&self, c: &Contraction, f: &Factor, rows: &[Digit]) -> bool {
        let stmt = &self.shape.stmts[c.stmt];
        let mut best = (0, true);
        let mut todo: Vec<ExprId> = f.exprs.clone();
        while let Some(id) = todo.pop() {
            todo.extend(self.graph.children(id));
            let Expr::Read(r) = self.graph.expr(id) else { continue };
            let size: i64 = self.graph.tensor(r.tensor).dims.iter().product();
            let strides = self.strides(r.tensor);
            let step = |axis: AxisId| -> i64 {
                let co =
                    |i: &ExprId| self.linear(*i, &[axis]).and_then(|m| m.get(&axis).copied()).unwrap_or(0);
                r.index.iter().zip(&strides).map(|(i, s)| co(i) * s).sum::<i64>().abs()
            };
            let k = c.k.iter().map(|k| step(k.axis)).filter(|&s| s > 0).min().unwrap_or(i64::MAX);
            let m = rows.last().map_or(i64::MAX, |d| step(stmt.axes[d.out]));
            let m = if m == 0 { i64::MAX } else { m };
            if size > best.0 {
                best = (size, k <= m);
            }
        }
        best.1
    }
}

fn scaled(mut m: BTreeMap<AxisId, i64>, by: i64) -> BTreeMap<AxisId, i64> {
    m.values_mut().for_each(|v| *v *= by);
    m
}

pub fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
