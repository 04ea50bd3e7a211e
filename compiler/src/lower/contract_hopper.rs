//! The `contract` form on sm_90a: which products go through copies of boxes (TMA) and warpgroups' matrix instructions
//! (wgmma), and with which tile.
//!
//! An operand qualifies if it is a plain read of a tensor of 16- or 8-bit elements whose place is affine in the product's
//! axes: rows (M or N) and K each as one number, one of the two contiguous (of 8-bit elements K), the other in steps of
//! 16 bytes, batch axes in any such steps. What a box covers beyond the operand is zero, so sizes that divide nothing need no more than that.

use super::contract_operand::{Ground, PlainRead, Source};
use super::contract_pattern::{ContractShape, Contraction, Digit};
use super::contract_tile::{Choice, FoldChoice, Wishes};
use super::{Refusal, contract_operand};
use crate::ir::graph::{AxisId, Expr, ExprId, TensorId};
use crate::ir::simt::{Swizzle, TensorMap};
use crate::ir::tile::*;
use crate::vocab::dtype::{DType, Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::target::Target;
use std::collections::BTreeMap;

/// Bytes of a step's terms: a line.
const LINE: u32 = 128;
/// Accumulators that a thread has room for.
const ROOM: u32 = 192;
/// Bytes of shared memory left for barriers and alignment.
const SPARE: u32 = 2048;
/// Rows or columns below which the other main loop is taken, and terms, unless the settings ask for this one.
const LEAST: i64 = 128;
const LEAST_TERMS: i64 = 128;

/// A tile with what its copies need.
pub struct Hopper {
    pub choice: Choice,
    pub a: Boxes,
    pub b: Boxes,
}

/// How the boxes of one operand are copied.
#[derive(Clone, Debug)]
pub struct Boxes {
    pub tensor: TensorId,
    pub map: TensorMap,
    /// Whether K (else M or N) is contiguous.
    pub k_major: bool,
    /// The batch digits that are dims 2, 3 and 4 of the map.
    pub batch: Vec<usize>,
}

impl Boxes {
    /// Boxes of one stage.
    pub fn count(&self, rows: u32) -> u32 {
        if self.k_major { 1 } else { rows / 64 }
    }
}

/// The tile of a product that this main loop takes, or `None`.
pub fn choose(ground: &Ground, target: &Target, wishes: &Wishes) -> Result<Option<Hopper>, Refusal> {
    let [c] = &ground.shape.folds[..] else { return Ok(None) };
    if !target.wgmma || !target.tma || !matches!(c.ty, Ty::F32 | Ty::I32) || wishes.names_threads() {
        return Ok(None);
    }
    let math = contract_operand::math(ground.graph, ground.facts, c, target, wishes.fast());
    let Math::Mma { kind, promote } = math else { return Ok(None) };
    let dtypes = match kind {
        MmaKind::Half(d) => [d, d],
        MmaKind::Byte(a, b) => [a, b],
        _ => return Ok(None),
    };
    let Some(k) = one_axis(c) else { return Ok(None) };
    let shape = ground.shape;
    let operand = |f, rows: &[Digit], dtype| match ground.source(c, f, dtype) {
        Source::Plain(p) => operand(ground, c, &p, rows, c.k[k].axis, dtype).map(|o| (o, Source::Plain(p))),
        Source::Computed => None,
    };
    let (Some((a, a_source)), Some((b, b_source))) =
        (operand(&c.a, &shape.m, dtypes[0]), operand(&c.b, &shape.n, dtypes[1]))
    else {
        return Ok(None);
    };
    let Some(draft) = best(ground, c, target, wishes, promote, &a, &b)? else { return Ok(None) };
    let tile = tile(ground, c, wishes, &draft, promote, &a, &b)?;
    let boxes = |o: &Operand2, rows: u32| o.boxes(rows);
    let folds = vec![FoldChoice { k: c.k.clone(), a: a_source, b: b_source }];
    let (a, b) = (boxes(&a, draft.m), boxes(&b, draft.n));
    Ok(Some(Hopper { choice: Choice { tile, folds }, a, b }))
}

/// The only fold axis with more than one value.
fn one_axis(c: &Contraction) -> Option<usize> {
    let mut long = (0..c.k.len()).filter(|&i| c.k[i].extent > 1);
    let first = long.next()?;
    long.next().is_none().then_some(first)
}

/// An operand as two dims and its batch dims, before the tile is known.
struct Operand2 {
    tensor: TensorId,
    name: String,
    dtype: DType,
    k_major: bool,
    /// Bytes.
    offset: i64,
    rows: i64,
    terms: i64,
    /// Bytes between neighbours along the direction that is not contiguous.
    pitch: i64,
    /// Batch digits that move it: number, extent, bytes.
    batch: Vec<(usize, i64, i64)>,
}

fn operand(
    ground: &Ground,
    c: &Contraction,
    p: &PlainRead,
    rows: &[Digit],
    k: AxisId,
    dtype: DType,
) -> Option<Operand2> {
    if !p.checks.is_empty() || (ground.home)(p.tensor).align % 16 != 0 {
        return None;
    }
    let shape = ground.shape;
    let size = dtype.bits() as i64 / 8;
    let mut place = affine_place(ground, p)?;
    let mut offset = place.constant;
    // Every axis starts at its lowest value.
    let mut take = |axis: AxisId, lo: i64| {
        let by = place.axes.remove(&axis).unwrap_or(0);
        offset += by * lo;
        by
    };
    let steps: Vec<i64> = c.k.iter().map(|k| take(k.axis, k.lo)).collect();
    let along_k = c.k.iter().position(|x| x.axis == k).map(|i| steps[i])?;
    let mut step_of = |d: &Digit| -> Option<i64> {
        let out = &shape.axes[d.out];
        let whole = d.stride == 1 && d.extent == out.extent;
        whole.then(|| take(shape.stmts[c.stmt].axes[d.out], out.lo))
    };
    let row_steps: Vec<i64> = rows.iter().map(&mut step_of).collect::<Option<_>>()?;
    let batch_steps: Vec<i64> = shape.batch.iter().map(&mut step_of).collect::<Option<_>>()?;
    let along_rows = flat_step(rows, &row_steps)?;
    if place.axes.values().any(|&by| by != 0) {
        return None;
    }
    let (terms, rows) = (c.terms(), ContractShape::points(rows));
    let k_major = along_k == 1;
    let (inner, pitch) = if k_major { (along_k, along_rows) } else { (along_rows, along_k) };
    // A single line has no neighbour.
    let pitch = if (if k_major { rows } else { terms }) == 1 { 16 } else { pitch * size };
    let batch = shape.batch.iter().zip(&batch_steps).enumerate();
    let batch = batch.filter(|(_, (d, s))| d.extent > 1 && **s != 0);
    let batch: Vec<_> = batch.map(|(i, (d, s))| (i, d.extent, s * size)).collect();
    let fits = |bytes: i64| bytes > 0 && bytes % 16 == 0 && bytes < 1 << 40;
    let good = inner == 1
        && (k_major || size == 2)
        && fits(pitch)
        && batch.len() <= 3
        && batch.iter().all(|b| fits(b.2))
        && offset >= 0
        && offset * size % 16 == 0;
    let name = ground.graph.tensor(p.tensor).name.clone();
    let offset = offset * size;
    good.then_some(Operand2 { tensor: p.tensor, name, dtype, k_major, offset, rows, terms, pitch, batch })
}

impl Operand2 {
    /// Terms of a step.
    fn step(&self) -> i64 {
        (LINE * 8 / self.dtype.bits()) as i64
    }

    fn boxes(&self, block: u32) -> Boxes {
        let mut map = TensorMap {
            dtype: self.dtype,
            offset: self.offset,
            dims: if self.k_major { vec![self.terms, self.rows] } else { vec![self.rows, self.terms] },
            strides: vec![self.pitch],
            extent: vec![self.step() as u32, if self.k_major { block } else { self.step() as u32 }],
            swizzle: Swizzle::B128,
            pixels: None,
        };
        for (_, extent, bytes) in &self.batch {
            map.dims.push(*extent);
            map.strides.push(*bytes);
            map.extent.push(1);
        }
        let batch = self.batch.iter().map(|b| b.0).collect();
        Boxes { tensor: self.tensor, map, k_major: self.k_major, batch }
    }

    fn place(&self, block: u32) -> Operand {
        // Lines of 64 elements: along K for each row, or along the rows for each term.
        let lines = if self.k_major { block } else { block / 64 * self.step() as u32 };
        let (name, dtype, k_major) = (self.name.clone(), self.dtype, self.k_major);
        Operand { name, dtype, k_major, place: Place::Lines(lines), load: Load::Boxes }
    }
}

/// The step of one number made of all digits, if there is one.
fn flat_step(digits: &[Digit], steps: &[i64]) -> Option<i64> {
    let mut expected = None;
    let mut inner = None;
    for (d, &step) in digits.iter().zip(steps).rev().filter(|(d, _)| d.extent > 1) {
        if expected.is_some_and(|e| e != step) {
            return None;
        }
        inner = inner.or(Some(step));
        expected = Some(step * d.extent);
    }
    Some(inner.unwrap_or(1))
}

/// A place in a tensor: elements that each axis moves, and the rest.
struct Affine {
    axes: BTreeMap<AxisId, i64>,
    constant: i64,
}

fn affine_place(ground: &Ground, p: &PlainRead) -> Option<Affine> {
    let t = ground.graph.tensor(p.tensor);
    let mut sum = Affine { axes: BTreeMap::new(), constant: 0 };
    for ((&i, stride), lo) in p.index.iter().zip(ground.strides(p.tensor)).zip(&t.lo) {
        if stride != 0 {
            let one = affine(ground, i)?;
            sum.constant += stride * (one.constant - lo);
            for (axis, by) in one.axes {
                *sum.axes.entry(axis).or_insert(0) += stride * by;
            }
        }
    }
    Some(sum)
}

fn affine(ground: &Ground, id: ExprId) -> Option<Affine> {
    let g = ground.graph;
    let constant = |v: i64| Some(Affine { axes: BTreeMap::new(), constant: v });
    let scaled = |mut a: Affine, by: i64| {
        a.axes.values_mut().for_each(|v| *v *= by);
        a.constant *= by;
        a
    };
    match g.expr(id) {
        Expr::Axis(a) => Some(Affine { axes: BTreeMap::from([(*a, 1)]), constant: 0 }),
        Expr::Lit(Value::I64(v)) => constant(*v),
        Expr::Lit(Value::I32(v)) => constant(*v as i64),
        Expr::Cast(a) if g.ty(*a).is_int() && g.ty(id).is_int() => affine(ground, *a),
        Expr::Call(Func::Neg, a) => Some(scaled(affine(ground, a[0])?, -1)),
        Expr::Call(f @ (Func::Add | Func::Sub), a) => {
            let mut sum = affine(ground, a[0])?;
            let other = scaled(affine(ground, a[1])?, if *f == Func::Sub { -1 } else { 1 });
            sum.constant += other.constant;
            for (axis, by) in other.axes {
                *sum.axes.entry(axis).or_insert(0) += by;
            }
            Some(sum)
        }
        Expr::Call(Func::Mul, a) => {
            let (x, y) = (affine(ground, a[0])?, affine(ground, a[1])?);
            match (x.axes.is_empty(), y.axes.is_empty()) {
                (true, _) => Some(scaled(y, x.constant)),
                (_, true) => Some(scaled(x, y.constant)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// A block and its pipeline.
#[derive(Clone, Copy)]
struct Draft {
    m: u32,
    n: u32,
    groups: u32,
    stages: u32,
    split: i64,
}

/// (rows, columns, warpgroups that multiply, share of the tensor cores' speed that the tile reaches).
const BLOCKS: [(u32, u32, u32, f64); 9] = [
    (128, 256, 2, 1.0),
    (128, 192, 2, 0.96),
    (256, 128, 2, 0.98),
    (128, 128, 2, 0.90),
    (128, 64, 2, 0.62),
    (64, 256, 1, 0.70),
    (64, 192, 1, 0.65),
    (64, 128, 1, 0.55),
    (64, 64, 1, 0.38),
];

/// The best tile that fits the settings, if this main loop is the right one.
fn best(
    ground: &Ground,
    c: &Contraction,
    target: &Target,
    wishes: &Wishes,
    promote: bool,
    a: &Operand2,
    b: &Operand2,
) -> Result<Option<Draft>, Refusal> {
    let shape = ground.shape;
    let wish = |digits: &[Digit]| -> Result<Option<Option<i64>>, Refusal> {
        let blocks = digits.iter().map(|d| wishes.int("block", &shape.axes[d.out].name));
        let blocks: Vec<Option<i64>> = blocks.collect::<Result<_, _>>()?;
        // Blocks of several axes are cut by the other main loop.
        Ok(match &blocks[..] {
            [one] => Some(*one),
            all if all.iter().all(Option::is_none) => Some(None),
            _ => None,
        })
    };
    let (Some(m), Some(n)) = (wish(&shape.m)?, wish(&shape.n)?) else { return Ok(None) };
    let groups = wishes.int("warpgroups", "")?;
    let steps: Vec<Option<i64>> =
        c.k.iter().map(|k| wishes.int("step", &k.name)).collect::<Result<_, _>>()?;
    if steps.iter().flatten().any(|&s| s != a.step()) || shape.m.is_empty() || shape.n.is_empty() {
        return Ok(None);
    }
    let asked = m.is_some() || n.is_some() || groups.is_some();
    if !asked && (a.rows < LEAST || b.rows < LEAST || c.terms() < LEAST_TERMS) {
        return Ok(None);
    }
    let split = wishes.split()?;
    let stages = wishes.int("stages", "")?;
    let limit = target.shared_per_block - SPARE;
    let batch = ContractShape::points(&shape.batch);
    let mut best: Option<(f64, Draft)> = None;
    // The instructions of integers take columns in steps of 16.
    let unit = if c.ty == Ty::I32 { 16 } else { 8 };
    let columns: Vec<u32> = n.map_or(vec![], |n| vec![n as u32]);
    let wished = columns.iter().flat_map(|&n| [(64, n, 1, 0.5), (128, n, 2, 0.9)]);
    let wished =
        wished.filter(|w| w.1.is_multiple_of(unit) && w.1 <= 256 && !BLOCKS.iter().any(|b| b.1 == w.1));
    for (bm, bn, wg, speed) in BLOCKS.into_iter().chain(wished) {
        let fits = m.is_none_or(|m| m == bm as i64)
            && n.is_none_or(|n| n == bn as i64)
            && groups.is_none_or(|g| g == wg as i64)
            && (b.k_major || bn % 64 == 0)
            && bm / wg * bn / 128 * if promote { 2 } else { 1 } <= ROOM;
        let fit = limit / ((bm + bn) * LINE);
        let all = (c.terms() + a.step() - 1) / a.step();
        let count = stages.map_or(fit.min(6), |s| s as u32);
        if !fits || count > fit || count < 2 {
            continue;
        }
        let tiles = batch * (a.rows + bm as i64 - 1) / bm as i64 * ((b.rows + bn as i64 - 1) / bn as i64);
        let room = (target.sms as i64 / tiles.max(1)).min(all / 8).clamp(1, 32);
        let mut parts = split.map_or(vec![1, room], |s| vec![s.min(all)]);
        parts.dedup();
        for split in parts {
            let waves = (tiles * split + target.sms as i64 - 1) / target.sms as i64;
            let steps = (all + split - 1) / split;
            // A tile's fixed cost is that of a few steps; a second kernel costs its launch.
            let one = (bm * bn) as f64 / speed * (steps + 6) as f64;
            let extra = if split > 1 { (128 * 256 * 24) as f64 } else { 0.0 };
            let cost = waves as f64 * one + extra;
            if best.as_ref().is_none_or(|(c, _)| cost < *c) {
                best = Some((cost, Draft { m: bm, n: bn, groups: wg, stages: count, split }));
            }
        }
    }
    Ok(best.map(|b| b.1))
}

fn tile(
    ground: &Ground,
    c: &Contraction,
    wishes: &Wishes,
    d: &Draft,
    promote: bool,
    a: &Operand2,
    b: &Operand2,
) -> Result<Tile, Refusal> {
    let shape = ground.shape;
    let side = |digits: &[Digit], block: u32| {
        let names: Vec<&str> = digits.iter().map(|d| shape.axes[d.out].name.as_str()).collect();
        let extent = ContractShape::points(digits);
        let dim = TileDim { name: names.join("·"), digits: 0..digits.len(), extent, block: block as i64 };
        Side { dims: vec![dim], block }
    };
    let fold = FoldTile {
        terms: c.terms(),
        step: a.step(),
        slot: a.step() as u32,
        stages: d.stages,
        math: Math::Wgmma { dtypes: [a.dtype, b.dtype], promote },
        a: a.place(d.m),
        b: b.place(d.n),
    };
    let tile = Tile {
        name: wishes.kernel.to_string(),
        batch: ContractShape::points(&shape.batch),
        m: side(&shape.m, d.m),
        n: side(&shape.n, d.n),
        arrange: Arrange::Groups { m: d.groups },
        threads: 128 * (d.groups + 1),
        split: d.split,
        swizzle: wishes.swizzle()?,
        shared_bytes: d.stages * fold.stage_bytes() + 16 * d.stages,
        folds: vec![fold],
    };
    tile.verify().map_err(|e| Refusal::new(wishes.span, e))?;
    Ok(tile)
}
