//! Operands that lie badly are copied to a workspace before the product, where the copy costs less than it saves:
//! rows whose pitch is not a multiple of 16 bytes get one that is, operands that must run along K and do not are
//! turned, and few channels are padded so that they can be copied in whole runs.
//!
//! A packed operand is its tensor with another home while the kernel is lowered, so that nothing else knows of it.
//! What is added along the innermost dim is zero; where both operands of a sum are padded along the same fold axis,
//! the axis runs over the zeros too, so that no term needs a mask.

use super::contract_operand::{Ground, Source, stored};
use super::contract_pattern::{ContractShape, Contraction, Digit};
use super::contract_tile::{self, Choice, Wishes, choose};
use super::forced::{Gain, is_forced};
use super::home::Home;
use super::index::Interval;
use super::map::launch_points;
use super::read::Index;
use super::scalar::{Emit, Num, arith, cmp, int_of, lit32};
use super::{Lowering, Refusal};
use crate::ir::graph::{AxisId, Expr as GraphExpr, ExprId, Graph, TensorId};
use crate::ir::program::BufferId;
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Mem, Stmt, Ty};
use crate::ir::tile::{Load, Math};
use crate::vocab::dtype::DType;
use girih_dsl::ast::Span;

/// Floating-point operations per microsecond, in 10⁶, of a main loop whose operands are loaded element by element, and
/// with copies of 16 and of 4 bytes, as measured on an H200; between them, a guess.
const BY_ELEMENT: f64 = 28.0;
const BY_HALF: f64 = 200.0;
const BY_WORD: f64 = 60.0;
const BY_CHUNK: f64 = 370.0;
/// Elements that a multiprocessor and a thread load one by one in a microsecond, from the same measurements: few rows are
/// limited by these, not by their products.
const ELEMENTS: f64 = 1800.0;
const OF_A_THREAD: f64 = 16.0;
/// Floating-point operations of the main loop of sm_90a in a microsecond, in 10⁶.
const BY_BOX: f64 = 500.0;
/// Bytes per microsecond that a copy moves and microseconds that a launch costs: both assumed, on the careful side.
const COPY: f64 = 2.5e6;
const LAUNCH: f64 = 4.0;

/// An operand's other home.
#[derive(Clone, Debug, PartialEq)]
pub struct Pack {
    pub tensor: TensorId,
    /// The home; its buffer is not made yet.
    pub home: Home,
    /// The dim that is innermost there, and its padded extent.
    pub inner: usize,
    extent: i64,
}

impl Pack {
    /// The innermost dim's extent with its padding.
    pub fn padded(&self) -> i64 {
        self.extent
    }
}

/// The dim that is innermost in a packed operand.
#[derive(Clone, Copy, PartialEq)]
pub enum Inner {
    /// What it is now, else the longest of the sum's.
    Now,
    /// That of the longest fold axis there.
    Longest,
    /// That of the longest axis of the operand's own side.
    Own,
    /// That of the fold axis of this number.
    Term(usize),
}

/// A home that comes later among the candidates must be better than the earlier one by this factor: 4095 × 4097 × 4099
/// took 350 µs with both operands turned, for 0.3% fewer bytes, and 252 with rows made longer as they lie.
const NO_WORSE: f64 = 0.97;

/// Fold axes below which their terms do not make lines.
const LEAST_LINE: i64 = 32;

/// The packs that pay most for a kernel, the shape they leave, and the choice made for it.
pub fn pack(
    cx: &Lowering,
    shape: &mut ContractShape,
    wishes: &Wishes,
) -> Result<(Choice, Vec<Pack>), Refusal> {
    let home = |t: TensorId| cx.home(t).clone();
    let ground = Ground { graph: cx.graph, facts: &cx.facts, shape, home: &home };
    let plain = choose(&ground, cx.target, wishes)?;
    let mut inner =
        vec![(Inner::Now, false), (Inner::Longest, false), (Inner::Own, false), (Inner::Own, true)];
    if let [c] = &shape.folds[..] {
        let alone = |k: &usize| c.k[*k].extent >= LEAST_LINE || indexes_alone(cx.graph, c, *k);
        inner.extend((0..c.k.len()).filter(alone).map(|k| (Inner::Term(k), true)));
    }
    let mut seen: Vec<Vec<Pack>> = Vec::new();
    let mut best: Option<(f64, (Choice, Vec<Pack>, ContractShape))> = None;
    for inner in inner {
        let packs = wanted(&ground, &plain, inner);
        if packs.is_empty() || seen.contains(&packs) {
            continue;
        }
        seen.push(packs.clone());
        let Some((time, choice, padded)) = packed(cx, shape, wishes, &ground, &packs, inner.0) else {
            continue;
        };
        // An operand that is turned costs more than its bytes say.
        let least = best
            .as_ref()
            .map_or(if is_forced(Gain::Packs) { f64::MAX } else { main(cx, shape, &plain) }, |b| {
                b.0 * NO_WORSE
            });
        if time < least {
            best = Some((time, (choice, packs, padded)));
        }
    }
    let Some((_, (choice, packs, padded))) = best else { return Ok((plain, Vec::new())) };
    *shape = padded;
    Ok((choice, packs))
}

/// Whether a fold axis is an index of both factors by itself, as channels are.
fn indexes_alone(graph: &Graph, c: &Contraction, k: usize) -> bool {
    [&c.a, &c.b].iter().all(|f| match f.exprs[..] {
        [id] => match graph.expr(id) {
            GraphExpr::Read(r) => {
                r.index.iter().any(|&i| matches!(graph.expr(i), GraphExpr::Axis(a) if *a == c.k[k].axis))
            }
            _ => false,
        },
        _ => false,
    })
}

/// The choice with packed operands and the shape that they leave, if all is copied in whole runs; first the microseconds
/// that it takes.
fn packed(
    cx: &Lowering,
    shape: &ContractShape,
    wishes: &Wishes,
    ground: &Ground,
    packs: &[Pack],
    inner: Inner,
) -> Option<(f64, Choice, ContractShape)> {
    let mut padded = shape.clone();
    pad_terms(cx.graph, ground, &mut padded, packs);
    innermost_last(ground, &mut padded, packs);
    let other = |t: TensorId| {
        packs.iter().find(|p| p.tensor == t).map_or_else(|| (ground.home)(t), |p| p.home.clone())
    };
    let ground = Ground { graph: cx.graph, facts: &cx.facts, shape: &padded, home: &other };
    let choice = choose(&ground, cx.target, wishes).ok()?;
    let hopper = super::contract::hopper_choice(cx, &other, &mut padded.clone(), wishes).ok()?;
    let time = match &hopper {
        Some(h) => work(shape) * h.choice.tile.folds[0].terms as f64 / by_boxes(h) / 1e6,
        // Rows in runs are as good for the other main loop only where they are channels, which it cannot tell.
        None if cx.target.wgmma && inner == Inner::Own => return None,
        None if all_copied(&choice) => main(cx, shape, &choice),
        None => return None,
    };
    Some((time + copies(cx.graph, packs), choice, padded))
}

/// Floating-point operations of the main loop of sm_90a in a microsecond, in 10⁶: short lines are slower to copy.
fn by_boxes(h: &super::contract_hopper::Hopper) -> f64 {
    BY_BOX * (h.terms.line as f64 / h.terms.step as f64).sqrt()
}

/// Operands of tensor-core sums that could be copied in larger pieces from another home, whose innermost dim is said; with
/// `both` the sum's other operand, too, if that lies otherwise. Empty where all are copied in such pieces as they lie.
fn wanted(ground: &Ground, choice: &Choice, (inner, both): (Inner, bool)) -> Vec<Pack> {
    let mut packs: Vec<Pack> = Vec::new();
    let wide = |load: Load| matches!(load, Load::Async(16) | Load::Vector(_));
    if choice.tile.folds.iter().all(|f| wide(f.a.load) && wide(f.b.load)) {
        return packs;
    }
    for (i, c) in ground.shape.folds.iter().enumerate() {
        let fold = &choice.tile.folds[i];
        if !matches!(fold.math, Math::Mma { .. }) {
            return Vec::new();
        }
        let (da, db) = stored(fold.math);
        let own = [&ground.shape.m, &ground.shape.n].map(|side| {
            let axes = &ground.shape.stmts[c.stmt].axes;
            side.iter().map(|d| (axes[d.out], d.extent)).collect::<Vec<_>>()
        });
        for (load, source, dtype, own) in
            [(fold.a.load, &choice.folds[i].a, da, &own[0]), (fold.b.load, &choice.folds[i].b, db, &own[1])]
        {
            let (Source::Plain(p), false) = (source, wide(load) && !both) else { continue };
            if packs.iter().any(|q| q.tensor == p.tensor) {
                continue;
            }
            let pack = other_home(ground, c, p.tensor, (&p.index, own), dtype, inner);
            let lies = |q: &Pack| wide(load) && ground.strides(p.tensor)[q.inner] == 1;
            packs.extend(pack.filter(|q| !lies(q)));
        }
    }
    packs
}

/// Packs that let every operand of the sums lie along K, for the main loop of sm_90a.
pub fn for_boxes(cx: &Lowering, shape: &ContractShape) -> Vec<Pack> {
    let home = |t: TensorId| cx.home(t).clone();
    let ground = Ground { graph: cx.graph, facts: &cx.facts, shape, home: &home };
    let mut packs: Vec<Pack> = Vec::new();
    for c in &shape.folds {
        let bounded = super::hopper_ragged::bounds(&ground, c);
        let c = bounded.as_ref().map_or(c, |b| &b.0);
        for f in [&c.a, &c.b] {
            for dtype in [DType::F16, DType::BF16] {
                let Source::Plain(p) = ground.source(c, f, dtype) else { continue };
                let pack = other_home(&ground, c, p.tensor, (&p.index, &[]), dtype, Inner::Longest);
                let turned = |q: &Pack| ground.strides(p.tensor)[q.inner] != 1;
                let new = packs.iter().all(|q| q.tensor != p.tensor);
                packs.extend(pack.filter(|q| new && turned(q)));
            }
        }
    }
    packs
}

/// The home for an operand: contiguous along the dim that is said, or along K where it must be. `own`: the output axes of
/// its side and their extents.
pub fn other_home(
    ground: &Ground,
    c: &Contraction,
    tensor: TensorId,
    (index, own): (&[ExprId], &[(AxisId, i64)]),
    dtype: DType,
    inner: Inner,
) -> Option<Pack> {
    let t = ground.graph.tensor(tensor);
    let strides = ground.strides(tensor);
    let now = (0..t.dims.len()).find(|&d| strides[d] == 1);
    let one = |d: usize, a: AxisId| {
        ground.linear(index[d], &[a]).is_some_and(|m| m.get(&a).is_some_and(|v| *v == 1))
    };
    let along = |d: usize| c.k.iter().filter(|k| one(d, k.axis)).map(|k| k.extent).max();
    let longest = |along: &dyn Fn(usize) -> Option<i64>| {
        (0..t.dims.len()).filter_map(|d| Some((along(d)?, d))).max().map(|(_, d)| d)
    };
    let k_dim = longest(&along);
    let inner = match inner {
        _ if dtype.bits() != 16 => k_dim?,
        Inner::Now => now.or(k_dim)?,
        Inner::Longest => k_dim?,
        Inner::Own => longest(&|d| own.iter().filter(|a| one(d, a.0)).map(|a| a.1).max())?,
        Inner::Term(k) => (0..t.dims.len()).find(|&d| one(d, c.k[k].axis))?,
    };
    let size = (dtype.bits() / 8) as i64;
    let n = t.dims[inner];
    let extent = match n {
        // A few channels: the terms they add cost more than narrower copies.
        1..=2 => return None,
        3..=4 if size == 2 => 4,
        n if n * size <= 128 => round_up(n, 16 / size),
        n => round_up(n, 32 / size),
    };
    let mut strides = vec![1; t.dims.len()];
    let mut step = extent;
    for d in (0..t.dims.len()).rev().filter(|&d| d != inner) {
        strides[d] = step;
        step = step.checked_mul(t.dims[d])?;
    }
    let home = Home { buffer: BufferId(u32::MAX), dtype, strides, len: step, align: 256, ring: None };
    Some(Pack { tensor, home, inner, extent })
}

fn round_up(n: i64, unit: i64) -> i64 {
    (n + unit - 1) / unit * unit
}

/// Lets fold axes run to the padded extent where all sums' operands are zero there.
fn pad_terms(graph: &Graph, ground: &Ground, shape: &mut ContractShape, packs: &[Pack]) {
    for c in &mut shape.folds {
        let room = |e: &[ExprId], k: &super::contract_pattern::KAxis| -> Option<i64> {
            let [id] = e else { return None };
            let GraphExpr::Read(r) = graph.expr(*id) else { return None };
            let p = packs.iter().find(|p| p.tensor == r.tensor)?;
            let t = graph.tensor(r.tensor);
            let whole = t.dims[p.inner] == k.extent && t.lo[p.inner] == 0 && k.lo == 0;
            let others = r
                .index
                .iter()
                .enumerate()
                .all(|(d, &i)| d == p.inner || !ground.facts.free(i).contains(&k.axis));
            let alone = matches!(graph.expr(r.index[p.inner]), GraphExpr::Axis(a) if *a == k.axis);
            (whole && others && alone).then_some(p.extent)
        };
        let (a, b) = (c.a.exprs.clone(), c.b.exprs.clone());
        for k in &mut c.k {
            if let (Some(x), Some(y)) = (room(&a, k), room(&b, k)) {
                k.extent = round_up(k.extent, if k.extent <= 4 { 4 } else { 8 }).min(x).min(y);
            }
        }
    }
}

/// Lets the axis along which a packed operand's rows are neighbours now be the last of its side.
fn innermost_last(ground: &Ground, shape: &mut ContractShape, packs: &[Pack]) {
    for c in shape.folds.clone() {
        let axes = shape.stmts[c.stmt].axes.clone();
        for (f, side) in [(&c.a, &mut shape.m), (&c.b, &mut shape.n)] {
            let [id] = f.exprs[..] else { continue };
            let GraphExpr::Read(r) = ground.graph.expr(id) else { continue };
            let Some(p) = packs.iter().find(|p| p.tensor == r.tensor) else { continue };
            let near = |d: &Digit| matches!(ground.graph.expr(r.index[p.inner]), GraphExpr::Axis(a) if *a == axes[d.out]);
            if let Some(at) = side.iter().position(near) {
                let digit = side.remove(at);
                side.push(digit);
            }
        }
    }
}

/// Whether every operand is copied as it lies: only then may terms run over padding.
fn all_copied(choice: &Choice) -> bool {
    let wide = |l: Load| matches!(l, Load::Async(8 | 16));
    choice.tile.folds.iter().all(|f| wide(f.a.load) && wide(f.b.load))
}

/// Twice the results of a sum: floating-point operations for each of its terms.
fn work(shape: &ContractShape) -> f64 {
    2.0 * [&shape.batch, &shape.m, &shape.n].iter().map(|d| ContractShape::points(d) as f64).product::<f64>()
}

/// Microseconds of a choice's main loop.
fn main(cx: &Lowering, shape: &ContractShape, choice: &Choice) -> f64 {
    let tile = &choice.tile;
    if let Some(short) = contract_tile::short(tile, cx.target) {
        return short / 1000.0;
    }
    let waves = (tile.count() as f64 / cx.target.sms as f64).max(1.0);
    let rows = |block: u32, load: Load| if matches!(load, Load::Elements { .. }) { block } else { 0 };
    let folds = tile.folds.iter().map(|f| {
        let slowest = [f.a.load, f.b.load].map(speed).into_iter().fold(f64::MAX, f64::min);
        let one_by_one = rows(tile.m.block, f.a.load) + rows(tile.n.block, f.b.load);
        let elements = one_by_one as f64 * f.terms as f64 / tile.split as f64;
        let rate = (OF_A_THREAD * tile.threads as f64 * waves).min(ELEMENTS);
        (work(shape) * f.terms as f64 / slowest / 1e6).max(waves * elements / rate)
    });
    folds.sum()
}

/// Microseconds of copies.
fn copies(graph: &Graph, packs: &[Pack]) -> f64 {
    let one = |p: &Pack| {
        let from = graph.tensor(p.tensor).dims.iter().product::<i64>();
        (from + p.home.len) as f64 * p.home.dtype.bits() as f64 / 8.0 / COPY + LAUNCH
    };
    packs.iter().map(one).sum()
}

fn speed(load: Load) -> f64 {
    match load {
        Load::Async(16) | Load::Vector(16) => BY_CHUNK,
        Load::Async(8) | Load::Vector(8) => BY_HALF,
        Load::Async(_) | Load::Vector(_) => BY_WORD,
        Load::Elements { .. } => BY_ELEMENT,
        Load::Boxes | Load::Pixels => BY_CHUNK,
    }
}

/// Launches the copies and gives the tensors their other homes; returns those they had.
pub fn apply(
    cx: &mut Lowering<'_>,
    name: &str,
    packs: &[Pack],
    span: Span,
) -> Result<Vec<(TensorId, Home)>, Refusal> {
    let mut own = Vec::new();
    for p in packs {
        let same = |q: &Pack| q.tensor == p.tensor && q.inner == p.inner && q.home.strides == p.home.strides;
        if let Some((_, home)) = cx.packed.iter().flatten().find(|q| same(&q.0)).cloned() {
            own.push((p.tensor, std::mem::replace(cx.home_mut(p.tensor), home)));
            continue;
        }
        let t = cx.graph.tensor(p.tensor);
        let (label, dtype) = (format!("{}_packed", t.name), p.home.dtype);
        let buffer = cx.workspace(label.clone(), dtype, &[p.home.len]);
        let home = Home { buffer, ..p.home.clone() };
        copy(cx, &format!("{name}_pack_{}", t.name), p, &home, &label, span)?;
        cx.packed.iter_mut().for_each(|all| all.push((p.clone(), home.clone())));
        own.push((p.tensor, std::mem::replace(cx.home_mut(p.tensor), home)));
    }
    Ok(own)
}

/// A thread a run of the packed innermost dim; neighbouring threads run along what is contiguous in the source.
fn copy(
    cx: &mut Lowering<'_>,
    name: &str,
    p: &Pack,
    to: &Home,
    label: &str,
    span: Span,
) -> Result<(), Refusal> {
    let t = cx.graph.tensor(p.tensor);
    let from = cx.home(p.tensor).clone();
    if let Some(done) = super::contract_turn::copy(cx, name, p, &from, to, span) {
        return done;
    }
    let vector = p.extent.min(128 / to.dtype.bits() as i64);
    let (order, dims) = order(&t.dims, &from, p, vector);
    launch_points(cx, name, &dims, span, |e, at| {
        e.know_buffer(to.buffer, label, to.dtype, to.len);
        let mut place = vec![int_of(Ty::I32, 0); order.len()];
        order.iter().zip(at).for_each(|(&d, n)| place[d] = n.clone());
        let first = arith(IntOp::Mul, place[p.inner].clone(), int_of(place[p.inner].ty, vector));
        place[p.inner] = Num { expr: e.named("first", first.ty, first.expr), ty: first.ty };
        let ty = Ty::of(to.dtype.compute());
        let run = e.kernel.array("run", ty, vector as u32);
        for j in 0..vector {
            element(e, p, &from, &place, run, j);
        }
        let index = indices(e.graph, p.tensor, &place);
        let at = e.offset_in(to, p.tensor, &index);
        let mem = Mem::Global(e.pointer(to.buffer, true));
        e.push(Stmt::StoreVec { mem, index: at, array: run, at: 0, count: vector as u32 });
    })
}

/// The dims of a copy's grid in order, the innermost in runs, and their extents.
pub fn order(dims: &[i64], from: &Home, p: &Pack, run: i64) -> (Vec<usize>, Vec<i64>) {
    let lanes = (0..dims.len()).find(|&d| from.strides[d] == 1 && dims[d] > 1 && d != p.inner);
    let mut order: Vec<usize> =
        (0..dims.len()).filter(|&d| d != p.inner && Some(d) != lanes).chain([p.inner]).collect();
    order.extend(lanes);
    let extent = |&d: &usize| if d == p.inner { p.extent / run } else { dims[d] };
    let extents = order.iter().map(extent).collect();
    (order, extents)
}

/// Whether the source has whole runs of 4 bytes an element, at multiples of 16 bytes.
pub fn in_runs(dims: &[i64], from: &Home, p: &Pack, run: i64) -> bool {
    let others = (0..dims.len()).filter(|&d| d != p.inner && dims[d] > 1);
    let aligned = others.map(|d| from.strides[d]).all(|s| s % run == 0);
    from.strides[p.inner] == 1 && p.extent == dims[p.inner] && aligned && from.align % 16 == 0
}

/// `run[j]`: an element, or zero in the padding.
pub fn element(e: &mut Emit, p: &Pack, from: &Home, place: &[Num], run: ArrayId, j: i64) {
    let mut place = place.to_vec();
    let n = place[p.inner].clone();
    place[p.inner] = if j == 0 { n } else { arith(IntOp::Add, n.clone(), int_of(n.ty, j)) };
    let at = place[p.inner].clone();
    let n = e.graph.tensor(p.tensor).dims[p.inner];
    let load = |e: &mut Emit| {
        let index = indices(e.graph, p.tensor, &place);
        let at = e.offset_in(from, p.tensor, &index);
        let mem = Mem::Global(e.pointer(from.buffer, false));
        e.push(Stmt::SetElem(run, lit32(j as i32), Expr::Load(mem, Box::new(at))));
    };
    if n == p.extent {
        return e.scope(load);
    }
    e.push(Stmt::SetElem(run, lit32(j as i32), super::contract_loads::zero(from.dtype.compute())));
    let inside = cmp(CmpOp::Lt, at.expr, int_of(at.ty, n).expr);
    e.if_then(inside, load);
}

pub fn indices(graph: &Graph, tensor: TensorId, at: &[Num]) -> Vec<Index> {
    let t = graph.tensor(tensor);
    let one = |(d, n): (usize, &Num)| Index {
        num: arith(IntOp::Add, n.clone(), int_of(n.ty, t.lo[d])),
        range: Interval::new(t.lo[d], t.lo[d] + t.dims[d] - 1),
    };
    at.iter().enumerate().map(one).collect()
}
