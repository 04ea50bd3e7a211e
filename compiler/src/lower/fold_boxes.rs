//! Matrices of the form `fold` as boxes (TMA): which reads of 16-bit floats qualify, and their tensor maps.
//!
//! A matrix is a plain read whose place is affine in the product's axes: rows and terms each as one number, one of the
//! two contiguous, the other in steps of 16 bytes, batch axes in any such steps. A box is 64 contiguous elements of
//! some rows (or of 64 terms, where the rows are contiguous); what it covers beyond the matrix is zero.

use super::contract_operand::{Ground, PlainRead};
use super::contract_pattern::{ContractShape, Contraction, Digit};
use super::hopper_gather::flat_step;
use crate::ir::graph::{AxisId, Expr, ExprId, TensorId};
use crate::ir::simt::{Swizzle, TensorMap};
use crate::vocab::dtype::{DType, Value};
use crate::vocab::func::Func;
use std::collections::BTreeMap;

/// Elements of a line of 128 bytes.
pub const LINE: i64 = 64;

/// One matrix.
pub struct Boxes {
    pub tensor: TensorId,
    dtype: DType,
    /// Whether the terms (else the rows) are contiguous.
    pub k_major: bool,
    /// Bytes.
    offset: i64,
    rows: i64,
    terms: i64,
    /// Bytes between neighbours along the direction that is not contiguous.
    pitch: i64,
    /// Batch digits that move it: number, extent, bytes.
    batch: Vec<(usize, i64, i64)>,
}

/// The matrix that a read is, if boxes can copy it. `k` is the axis of the terms.
pub fn of(
    ground: &Ground,
    c: &Contraction,
    p: &PlainRead,
    rows: &[Digit],
    k: AxisId,
    dtype: DType,
) -> Option<Boxes> {
    let home = (ground.home)(p.tensor);
    if !p.checks.is_empty() || home.align % 16 != 0 || home.ring.is_some() {
        return None;
    }
    let shape = ground.shape;
    let size = dtype.bits() as i64 / 8;
    let (mut parts, mut offset) = place(ground, c, p)?;
    let mut take = |part: Part| parts.remove(&part).unwrap_or(0);
    // Fold axes start at their lowest values.
    let steps: Vec<i64> = c.k.iter().map(|k| take(Part::Term(k.axis))).collect();
    offset += c.k.iter().zip(&steps).map(|(k, by)| k.lo * by).sum::<i64>();
    let along_k = c.k.iter().position(|x| x.axis == k).map(|i| steps[i])?;
    let row_steps: Vec<_> = rows.iter().map(|d| (d.extent, take(Part::Digit(d.out, d.stride)))).collect();
    let along_rows = flat_step(&row_steps)?;
    let batch = shape.batch.iter().enumerate();
    let batch: Vec<_> =
        batch.map(|(i, d)| (i, d.extent, take(Part::Digit(d.out, d.stride)) * size)).collect();
    if parts.values().any(|&by| by != 0) {
        return None;
    }
    let (terms, rows) = (c.terms(), ContractShape::points(rows));
    let k_major = along_k == 1;
    let (inner, pitch) = if k_major { (along_k, along_rows) } else { (along_rows, along_k) };
    // A single line has no neighbour.
    let pitch = if (if k_major { rows } else { terms }) == 1 { 16 } else { pitch * size };
    let batch: Vec<_> = batch.into_iter().filter(|b| b.1 > 1 && b.2 != 0).collect();
    let fits = |bytes: i64| bytes > 0 && bytes % 16 == 0 && bytes < 1 << 40;
    let good = inner == 1
        && fits(pitch)
        && batch.len() <= 3
        && batch.iter().all(|b| fits(b.2))
        && offset >= 0
        && offset * size % 16 == 0;
    let offset = offset * size;
    good.then_some(Boxes { tensor: p.tensor, dtype, k_major, offset, rows, terms, pitch, batch })
}

/// What an index is a sum of: digits of the output's axes (axis, stride), and fold axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Digit(usize, i64),
    Term(AxisId),
}

type Sum = (BTreeMap<Part, i64>, i64);

/// Elements that each part moves a read, and the rest.
fn place(ground: &Ground, c: &Contraction, p: &PlainRead) -> Option<Sum> {
    let t = ground.graph.tensor(p.tensor);
    let mut all: Sum = (BTreeMap::new(), 0);
    for ((&i, stride), lo) in p.index.iter().zip(ground.strides(p.tensor)).zip(&t.lo) {
        if stride != 0 {
            add(&mut all, sum(ground, c, i)?, stride);
            all.1 -= stride * lo;
        }
    }
    Some(all)
}

fn add(to: &mut Sum, from: Sum, by: i64) {
    to.1 += by * from.1;
    for (part, n) in from.0 {
        *to.0.entry(part).or_insert(0) += by * n;
    }
}

fn sum(ground: &Ground, c: &Contraction, id: ExprId) -> Option<Sum> {
    let g = ground.graph;
    match g.expr(id) {
        Expr::Axis(a) => axis(ground, c, *a, |stride, _| Some(stride)),
        Expr::Lit(Value::I64(v)) => Some((BTreeMap::new(), *v)),
        Expr::Lit(Value::I32(v)) => Some((BTreeMap::new(), *v as i64)),
        Expr::Cast(a) if g.ty(*a).is_int() && g.ty(id).is_int() => sum(ground, c, *a),
        Expr::Call(f @ (Func::Add | Func::Sub), a) => {
            let mut all = sum(ground, c, a[0])?;
            add(&mut all, sum(ground, c, a[1])?, if *f == Func::Sub { -1 } else { 1 });
            Some(all)
        }
        Expr::Call(Func::Mul, a) => {
            let (x, y) = (sum(ground, c, a[0])?, sum(ground, c, a[1])?);
            let (of, by) = if x.0.is_empty() { (y, x.1) } else { (x, y.1) };
            let plain = a.iter().any(|&e| matches!(g.expr(e), Expr::Lit(_)));
            let mut all: Sum = (BTreeMap::new(), 0);
            add(&mut all, of, by);
            plain.then_some(all)
        }
        // A quotient or remainder of an axis that its digits divide.
        Expr::Call(f @ (Func::Div | Func::Rem), a) if g.ty(id).is_int() => {
            let (Expr::Axis(x), Expr::Lit(n)) = (g.expr(a[0]), g.expr(a[1])) else { return None };
            let n = match n {
                Value::I64(v) => *v,
                Value::I32(v) => *v as i64,
                _ => return None,
            };
            let whole = *f == Func::Div;
            axis(ground, c, *x, |stride, extent| match () {
                _ if n <= 0 => None,
                _ if stride % n == 0 => Some(if whole { stride / n } else { 0 }),
                _ if stride * extent <= n => Some(if whole { 0 } else { stride }),
                _ => None,
            })
        }
        _ => None,
    }
}

/// A function of an axis by what each digit (stride, extent) adds.
fn axis(ground: &Ground, c: &Contraction, a: AxisId, by: impl Fn(i64, i64) -> Option<i64>) -> Option<Sum> {
    let shape = ground.shape;
    let Some(out) = shape.stmts[c.stmt].axes.iter().position(|&x| x == a) else {
        return Some((BTreeMap::from([(Part::Term(a), by(1, ground.graph.extent(a)?)?)]), 0));
    };
    if shape.axes[out].lo != 0 {
        return None;
    }
    let digits = shape.batch.iter().chain(&shape.m).chain(&shape.n).filter(|d| d.out == out);
    let parts = digits.map(|d| Some((Part::Digit(out, d.stride), by(d.stride, d.extent)?)));
    Some((parts.collect::<Option<_>>()?, 0))
}

impl Boxes {
    /// Terms of the sum.
    pub fn terms(&self) -> u32 {
        self.terms as u32
    }

    /// The tensor map; boxes have this many rows where the terms are contiguous.
    pub fn map(&self, rows: u32) -> TensorMap {
        let line = LINE as u32;
        let mut map = TensorMap {
            dtype: self.dtype,
            offset: self.offset,
            dims: if self.k_major { vec![self.terms, self.rows] } else { vec![self.rows, self.terms] },
            strides: vec![self.pitch],
            extent: vec![line, if self.k_major { rows } else { line }],
            swizzle: Swizzle::B128,
            pixels: None,
        };
        for (_, extent, bytes) in &self.batch {
            map.dims.push(*extent);
            map.strides.push(*bytes);
            map.extent.push(1);
        }
        map
    }

    /// The batch digits that are dims 2, 3 and 4 of the map.
    pub fn batch(&self) -> impl Iterator<Item = usize> + '_ {
        self.batch.iter().map(|b| b.0)
    }
}
