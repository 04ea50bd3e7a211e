//! Form `map`, neighbourhoods: where a value is made of several elements of a tensor near its own place (stencils),
//! a thread takes a few rows of vectors, loads all elements near them once, and computes from registers.
//!
//! Say the last axis is q, and the reads differ in the outermost axis p. A thread takes `rows` neighbours along p and
//! `v` along q. For each offset along the outer axes there is a window of elements along q, loaded by the widest
//! accesses that are aligned and inside; a read of the point (r, lane) is an element of a window. Threads of a block lie
//! over q and the axis before it, so that what the windows of neighbouring threads share is in the L1 cache.

use super::index::Interval;
use super::map::{self, coordinates};
use super::map_border::{self, Along, Border, Rule};
use super::map_vec::{self, Loaded};
use super::read::Index;
use super::scalar::{Emit, Num, and, arith, cmp, int_of};
use super::{Lowering, MAX_GRID_X, Refusal};
use crate::ir::graph::{Define, Expr as Node, ExprId, Graph, TensorId};
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Mem, Special, Stmt, Ty, Unroll};
use std::collections::BTreeMap;

/// Points below which one row a thread gives more threads.
const ENOUGH: i64 = 1 << 21;
/// Registers for windows.
const REGISTERS: i64 = 96;
/// Threads of a block.
const THREADS: i64 = 256;

/// A read near the point: its offsets along the target's axes.
struct Near {
    id: ExprId,
    tensor: TensorId,
    offsets: Vec<i64>,
}

/// Elements along q that a thread loads for one place along the outer axes.
#[derive(Clone)]
struct Window {
    tensor: TensorId,
    /// Offsets along the outer axes from the thread's first row.
    outer: Vec<i64>,
    /// From here, relative to the thread's first point, in accesses of `wide` elements.
    from: i64,
    wide: i64,
    accesses: i64,
    /// Elements of them that are used.
    needed: i64,
}

pub struct Stencil {
    reads: Vec<Near>,
    borders: BTreeMap<TensorId, Border>,
    windows: Vec<Window>,
    /// The axis that rows are taken along.
    p: usize,
    rows: i64,
    v: i64,
}

impl Stencil {
    /// The name of the axis that a thread takes rows along.
    pub fn axis<'a>(&self, cx: &Lowering<'a>, group: &[&Define]) -> &'a str {
        &cx.graph.axis(group[0].axes[self.p]).name
    }
}

/// The map as a stencil, if it is one.
pub fn find(cx: &Lowering<'_>, name: &str, group: &[&Define]) -> Option<Stencil> {
    let graph = cx.graph;
    let t = graph.tensor(group[0].target);
    let points: i64 = t.dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d))?;
    let set = ["threads", "vector"].iter().any(|k| cx.schedule.int(name, k, "").is_some());
    let small = group.iter().all(|d| map_vec::small(graph, d.value));
    if set || points > i32::MAX as i64 || t.dims.len() < 2 || !small {
        return None;
    }
    let v = map_vec::legal_width(cx, group);
    let mut borders = BTreeMap::new();
    let reads: Vec<Near> = group.iter().flat_map(|d| near(cx, group, d, &mut borders)).collect();
    // The first axis along which reads of one tensor differ.
    let differs = |axis: usize| {
        reads.iter().any(|a| reads.iter().any(|b| a.tensor == b.tensor && a.offsets[axis] != b.offsets[axis]))
    };
    let p = (0..t.dims.len() - 1).find(|&axis| differs(axis))?;
    // Accesses of a row where each read is made for itself.
    let alone =
        reads.iter().map(|r| if r.offsets.last().is_some_and(|o| o % v == 0) { 1 } else { v }).sum::<i64>();
    // `unroll i = 4`: rows of a thread along i.
    let wish = cx.schedule.int(name, "unroll", &graph.axis(group[0].axes[p]).name);
    let usual = |&rows: &i64| wish.is_some() || points >= ENOUGH && t.dims[p] >= 4 * rows;
    let rows = wish.map_or(vec![8, 4, 2], |n| vec![n]);
    let (rows, windows) = rows.into_iter().filter(|&n| n > 1).filter(usual).find_map(|rows| {
        let windows = windows(cx, &reads, &borders, group[0], p, rows, v)?;
        let registers: i64 = windows.iter().map(|w| w.needed).sum();
        let accesses: i64 = windows.iter().map(|w| w.accesses).sum();
        let pays = wish.is_some() || 2 * alone * rows >= 3 * accesses;
        (registers <= REGISTERS && pays).then_some((rows, windows))
    })?;
    Some(Stencil { reads, borders, windows, p, rows, v })
}

/// The reads of a definition that stand at its own axes plus literals and are surely done, with what their borders are.
fn near(
    cx: &Lowering<'_>,
    group: &[&Define],
    d: &Define,
    borders: &mut BTreeMap<TensorId, Border>,
) -> Vec<Near> {
    let graph = cx.graph;
    let own: Vec<TensorId> = group.iter().map(|d| d.target).collect();
    let mut found = Vec::new();
    for id in map_vec::unconditional(graph, d.value) {
        let Node::Read(r) = graph.expr(id) else { continue };
        let (t, home) = (graph.tensor(r.tensor), cx.home(r.tensor));
        let plain = t.range.is_none() && t.dtype.bits() >= 16 && home.strides.last() == Some(&1);
        let whole = t.dtype.bits() <= 32 && home.len <= i32::MAX as i64 && !t.dims.contains(&0);
        if !plain || !whole || own.contains(&r.tensor) {
            continue;
        }
        let Some((offsets, border)) = map_border::offsets(cx, id, r, &d.axes) else { continue };
        if map_border::merge(graph, borders, r.tensor, &border) {
            found.push(Near { id, tensor: r.tensor, offsets });
        }
    }
    found
}

/// What a thread loads for `rows` rows of `v` points.
fn windows(
    cx: &Lowering<'_>,
    reads: &[Near],
    borders: &BTreeMap<TensorId, Border>,
    d: &Define,
    p: usize,
    rows: i64,
    v: i64,
) -> Option<Vec<Window>> {
    let mut spans: BTreeMap<(TensorId, Vec<i64>), (i64, i64)> = BTreeMap::new();
    for r in reads {
        let (&last, outer) = r.offsets.split_last()?;
        for row in 0..rows {
            let mut outer = outer.to_vec();
            outer[p] += row;
            let span = spans.entry((r.tensor, outer)).or_insert((last, last + v - 1));
            *span = (span.0.min(last), span.1.max(last + v - 1));
        }
    }
    let window = |((tensor, outer), (lo, hi)): ((TensorId, Vec<i64>), (i64, i64))| {
        let sides = borders.get(&tensor).and_then(|b| b.sides.last().copied()).unwrap_or_default();
        let fits = |wide: &i64| aligned(cx, tensor, sides, d, v, *wide, (lo, hi));
        let shape = |wide: i64| {
            let from = lo.div_euclid(wide) * wide;
            let accesses = (hi - from) / wide + 1;
            Window { tensor, outer: outer.clone(), from, wide, accesses, needed: hi - lo + 1 }
        };
        [1, 2, 4, 8]
            .into_iter()
            .filter(fits)
            .map(shape)
            .min_by_key(|w| (w.accesses, std::cmp::Reverse(w.wide)))
    };
    spans.into_iter().map(window).collect()
}

/// Whether a window can be loaded in accesses of `wide` elements, all inside.
fn aligned(
    cx: &Lowering<'_>,
    tensor: TensorId,
    sides: [Option<map_border::Rule>; 2],
    d: &Define,
    v: i64,
    wide: i64,
    (lo, hi): (i64, i64),
) -> bool {
    let (t, home) = (cx.graph.tensor(tensor), cx.home(tensor));
    let bytes = wide * t.dtype.bits() as i64 / 8;
    if wide == 1 {
        return true;
    }
    let Some((first, end)) = d.axes.last().and_then(|&a| cx.graph.axis_range(a)) else { return false };
    let (Some(&t_lo), Some(&t_n)) = (t.lo.last(), t.dims.last()) else { return false };
    let from = lo.div_euclid(wide) * wide;
    let last = from + (hi - from) / wide * wide + wide - 1;
    // The last vector of a row begins at end − v.
    // An access is inside or, where there is a rule for that, outside: never part of it.
    let low = first + from >= t_lo || sides[0].is_some();
    let inside = low && (end - v + last < t_lo + t_n || sides[1].is_some() && t_n % wide == 0);
    let outer = home.strides.iter().zip(&t.dims).rev().skip(1);
    let pitch = outer.filter(|(_, n)| **n > 1).all(|(s, _)| s % wide == 0);
    let start = v % wide == 0 && (first - t_lo) % wide == 0;
    (4..=16).contains(&bytes) && inside && pitch && start && home.align as i64 % bytes == 0
}

/// How threads lie over the points: `q` vectors and `j` places of the axis before it (unless that is p) a block.
struct Lie {
    q: i64,
    j: i64,
    /// Of what else there is, places a block.
    more: i64,
    /// Blocks along each axis of the target.
    blocks: Vec<i64>,
}

fn lie(s: &Stencil, dims: &[i64]) -> Lie {
    let last = dims.len() - 1;
    let vectors = dims[last] / s.v;
    let power = |n: i64| (n.max(1) as u64).next_power_of_two() as i64;
    let plane = last >= 1 && last - 1 != s.p;
    let q = power(vectors).min(if plane { 32 } else { THREADS });
    let j = if plane { (THREADS / q).min(power(dims[last - 1])) } else { 1 };
    let mut blocks = dims.to_vec();
    let up = |n: i64, by: i64| (n + by - 1) / by;
    blocks[s.p] = up(dims[s.p], s.rows);
    blocks[last] = up(vectors, q);
    if plane {
        blocks[last - 1] = up(dims[last - 1], j);
    }
    let total: i64 = blocks.iter().product();
    let more = (THREADS / 2 / (q * j)).min(power(total)).max(1);
    Lie { q, j, more, blocks }
}

pub fn points<'a>(
    cx: &mut Lowering<'a>,
    name: &str,
    group: &[&'a Define],
    s: &Stencil,
) -> Result<(), Refusal> {
    let first = group[0];
    let dims = cx.graph.tensor(first.target).dims.clone();
    let lie = lie(s, &dims);
    let total = map::count(&lie.blocks, first.span, name)?;
    if total == 0 {
        return Ok(());
    }
    if total > MAX_GRID_X {
        return Err(Refusal::new(
            first.span,
            "the work needs more blocks than a grid may have: make the tensor smaller",
        ));
    }
    cx.unrolled.insert(cx.graph.axis(first.axes[s.p]).name.clone());
    let mut e = cx.emit(name);
    e.kernel.block = [(lie.q * lie.j * lie.more) as u32, 1, 1];
    e.kernel.grid = [((total + lie.more - 1) / lie.more) as u32, 1, 1];
    e.line(first.span);
    let (at, inside) = place(&mut e, s, &lie, &dims);
    let work = e.block(|e| rows(e, group, s, &at, &dims));
    match inside {
        Some(cond) => e.push(Stmt::If { cond, then: work, otherwise: Vec::new() }),
        None => work.into_iter().for_each(|w| e.push(w)),
    }
    cx.launch(e);
    Ok(())
}

/// The thread's first point, from 0, and what tells that it is inside along q and the axis before it.
fn place(e: &mut Emit<'_>, s: &Stencil, lie: &Lie, dims: &[i64]) -> (Vec<Num>, Option<Expr>) {
    let int = |expr: Expr| Num { expr, ty: Ty::I32 };
    let last = dims.len() - 1;
    let mut block = int(e.named("block", Ty::I32, Expr::Special(Special::BlockX)));
    let mut thread = int(Expr::Special(Special::ThreadX));
    let mut conds = Vec::new();
    if lie.more > 1 {
        let of = |op| arith(op, thread.clone(), int_of(Ty::I32, lie.q * lie.j));
        let (own, rest) = (of(IntOp::Div), of(IntOp::Rem));
        let first = arith(IntOp::Mul, block, int_of(Ty::I32, lie.more));
        block = int(e.named("place", Ty::I32, arith(IntOp::Add, first, own).expr));
        thread = int(e.named("thread", Ty::I32, rest.expr));
        let total: i64 = lie.blocks.iter().product();
        if total % lie.more != 0 {
            conds.push(cmp(CmpOp::Lt, block.expr.clone(), int_of(Ty::I32, total).expr));
        }
    }
    let mut at = map::decode(e, block, &lie.blocks);
    let tq = arith(IntOp::Rem, thread.clone(), int_of(Ty::I32, lie.q));
    let tj = arith(IntOp::Div, thread, int_of(Ty::I32, lie.q));
    let mut inner = |e: &mut Emit<'_>, d: usize, by: i64, t: Num, n: i64| {
        let x = arith(IntOp::Add, arith(IntOp::Mul, at[d].clone(), int_of(Ty::I32, by)), t);
        let x = int(e.named("at", Ty::I32, x.expr));
        if n % by != 0 {
            conds.push(cmp(CmpOp::Lt, x.expr.clone(), int_of(Ty::I32, n).expr));
        }
        at[d] = x;
    };
    inner(e, last, lie.q, tq, dims[last] / s.v);
    if lie.j > 1 {
        inner(e, last - 1, lie.j, tj, dims[last - 1]);
    }
    for (d, by) in [(last, s.v), (s.p, s.rows)] {
        let x = arith(IntOp::Mul, at[d].clone(), int_of(Ty::I32, by));
        at[d] = int(e.named("first", Ty::I32, x.expr));
    }
    (at, conds.into_iter().reduce(and))
}

/// A thread's rows: all from windows where all are there, else one by one.
fn rows<'a>(e: &mut Emit<'a>, group: &[&'a Define], s: &Stencil, at: &[Num], dims: &[i64]) {
    let whole = |e: &mut Emit<'a>| {
        let arrays = load(e, group[0], s, at);
        for row in 0..s.rows {
            e.scope(|e| {
                let mut at = at.to_vec();
                at[s.p] = arith(IntOp::Add, at[s.p].clone(), int_of(Ty::I32, row));
                let at = coordinates(e, group[0].target, &at);
                map_vec::lanes(e, group, &at, s.v, &loaded(e.graph, s, &arrays, row));
            });
        }
    };
    if dims[s.p] % s.rows == 0 {
        return whole(e);
    }
    let full = cmp(CmpOp::Le, at[s.p].expr.clone(), int_of(Ty::I32, dims[s.p] - s.rows).expr);
    e.if_else(full, whole, |e| {
        let row = e.kernel.var("row", Ty::I32);
        let body = e.block(|e| {
            let mut at = at.to_vec();
            at[s.p] = Num { expr: Expr::Var(row), ty: Ty::I32 };
            let at = coordinates(e, group[0].target, &at);
            map_vec::lanes(e, group, &at, s.v, &[]);
        });
        let (lo, hi, step) = (at[s.p].expr.clone(), int_of(Ty::I32, dims[s.p]).expr, int_of(Ty::I32, 1).expr);
        e.push(Stmt::For { var: row, lo, hi, step, unroll: Unroll::None, body });
    });
}

/// Loads the windows.
fn load(e: &mut Emit<'_>, d: &Define, s: &Stencil, at: &[Num]) -> Vec<ArrayId> {
    let base = coordinates(e, d.target, at);
    let last = d.axes.len() - 1;
    // The values that the coordinates of a first point have.
    let range = |k: usize| {
        let (lo, hi) = e.graph.axis_range(d.axes[k]).unwrap_or_default();
        let more = if k == last {
            s.v
        } else if k == s.p {
            s.rows
        } else {
            1
        };
        (lo, hi - more)
    };
    let ranges: Vec<(i64, i64)> = (0..=last).map(range).collect();
    let none = Border::default();
    let one = |e: &mut Emit<'_>, w: &Window| {
        let border = s.borders.get(&w.tensor).unwrap_or(&none);
        e.scope(|e| window(e, w, border, &base, &ranges))
    };
    s.windows.iter().map(|w| one(e, w)).collect()
}

fn window(e: &mut Emit<'_>, w: &Window, border: &Border, base: &[Num], ranges: &[(i64, i64)]) -> ArrayId {
    let graph = e.graph;
    let t = graph.tensor(w.tensor);
    let ty = Ty::of(t.dtype.compute());
    let array = e.kernel.array(&t.name, ty, (w.wide * w.accesses) as u32);
    let mem = Mem::Global(e.tensor_param(w.tensor, false));
    let last = base.len() - 1;
    let along = |k: usize, from: i64, to: i64| {
        let range = (ranges[k].0 + from, ranges[k].1 + to);
        Along { t, axis: k, sides: border.sides.get(k).copied().unwrap_or_default(), range }
    };
    let mut there: Option<Expr> = None;
    let mut index: Vec<Index> = Vec::new();
    for (k, (n, &by)) in base.iter().zip(w.outer.iter().chain([&w.from])).enumerate() {
        let mut num = arith(IntOp::Add, n.clone(), int_of(n.ty, by));
        if k < last && border.any(k) {
            let side = along(k, by, by);
            num = Num { expr: e.named("near", num.ty, num.expr), ty: num.ty };
            there = there.into_iter().chain(side.inside(&num, &[Rule::Fill])).reduce(and);
            num = side.moved(e, num);
        }
        index.push(Index { num, range: Interval::new(t.lo[k], t.lo[k] + t.dims[k] - 1) });
    }
    let there = there.map(|c| e.named("there", Ty::Bool, c));
    let first = index[last].num.clone();
    let place = e.offset(w.tensor, &index);
    let place = Num { expr: e.named("near", Ty::I32, place), ty: Ty::I32 };
    for i in 0..w.accesses {
        let step = i * w.wide;
        let index = arith(IntOp::Add, place.clone(), int_of(Ty::I32, step)).expr;
        let side = along(last, w.from + step, w.from + step + w.wide - 1);
        let q = arith(IntOp::Add, first.clone(), int_of(first.ty, step));
        let near = side.inside(&q, &[Rule::Fill, Rule::Clamp, Rule::Wrap]);
        let cond = there.iter().cloned().chain(near.clone()).reduce(and);
        let load = match w.wide {
            1 => Stmt::SetElem(array, int_of(Ty::I32, step).expr, Expr::Load(mem, Box::new(index))),
            n => Stmt::LoadVec { array, at: step as u32, mem, index, count: n as u32 },
        };
        let Some(cond) = cond else {
            e.push(load);
            continue;
        };
        let otherwise = e.block(|e| {
            let zero = map_border::default(e, border, ty);
            for lane in 0..w.wide {
                let at = int_of(Ty::I32, step + lane).expr;
                e.push(Stmt::SetElem(array, at.clone(), zero.clone()));
                if near.is_none() {
                    continue;
                }
                let own = along(last, w.from + step + lane, w.from + step + lane);
                let x = arith(IntOp::Add, q.clone(), int_of(q.ty, lane));
                let filled = own.inside(&x, &[Rule::Fill]);
                let cond = there.iter().cloned().chain(filled).reduce(and);
                let load = e.block(|e| {
                    let moved = own.moved(e, x.clone());
                    let by = arith(IntOp::Sub, moved, first.clone());
                    let index = arith(IntOp::Add, place.clone(), by).expr;
                    e.push(Stmt::SetElem(array, at, Expr::Load(mem, Box::new(index))));
                });
                match cond {
                    Some(cond) => e.push(Stmt::If { cond, then: load, otherwise: Vec::new() }),
                    None => load.into_iter().for_each(|s| e.push(s)),
                }
            }
        });
        e.push(Stmt::If { cond, then: vec![load], otherwise });
    }
    array
}

/// The reads of a row, as elements of the windows.
fn loaded(graph: &Graph, s: &Stencil, arrays: &[ArrayId], row: i64) -> Vec<Loaded> {
    s.reads
        .iter()
        .filter_map(|r| {
            let (last, outer) = r.offsets.split_last()?;
            let mut outer = outer.to_vec();
            outer[s.p] += row;
            let i = s.windows.iter().position(|w| w.tensor == r.tensor && w.outer == outer)?;
            let ty = Ty::of(graph.tensor(r.tensor).dtype.compute());
            Some(Loaded { id: r.id, array: arrays[i], at: last - s.windows[i].from, ty })
        })
        .collect()
}
