//! Form `map`, windows: sums (or maxima) over a few neighbours of each point, as in depthwise convolution and pooling.
//!
//! A thread takes `v` points along the last axis and `rows` along an axis whose windows overlap. Runs of elements along the
//! last axis are loaded by wide accesses, each once for all points of the thread whose windows have it, and zeros (the
//! read's default) stand for what is outside. Axes of the window by which neighbours differ are written out, so that every
//! element has a fixed place in registers; others are loops.

use super::hopper_gather::{Affine, affine};
use super::map::{coordinates, launch_points};
use super::map_vec::{self, Loaded};
use super::read::Index;
use super::scalar::{Emit, Num, and, arith, cmp, int_of, lit32};
use super::{Lowering, Refusal};
use crate::ir::graph::*;
use crate::ir::plan::PlanKernel;
use crate::ir::simt::{ArrayId, CmpOp, Expr as Simt, IntOp, Mem, Stmt as SimtStmt, Ty, Unroll};
use crate::pass::inline::{below, outer_folds};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use std::collections::BTreeMap;

/// Terms of all points of a thread that are written out, at most.
const TERMS: i64 = 2048;
/// Taps of a window.
const TAPS: i64 = 128;
/// Registers of accumulators and loaded elements.
const REGISTERS: i64 = 128;
/// Threads below which more of them are worth more than what one thread shares.
const ENOUGH: i64 = 1 << 15;
/// Rows of a thread, best first.
const ROWS: [i64; 6] = [4, 5, 7, 3, 2, 1];

/// A read of the window's body.
struct Tap {
    id: ExprId,
    /// Its indices, where it runs along the last axis; `None`: it is the same for all neighbours.
    runs: Option<Vec<Affine>>,
}

pub struct Window {
    fold: ExprId,
    taps: Vec<Tap>,
    /// Position of the axis that rows are taken along.
    along: usize,
    rows: i64,
    v: i64,
    /// Axes of the window that are written out, and those that are loops.
    flat: Vec<AxisId>,
    looped: Vec<AxisId>,
}

/// Elements that a thread loads in a row.
struct Segment {
    read: usize,
    /// Where the rows and the window's axes put it, dim by dim but for the last.
    key: Vec<i64>,
    /// A point that reads of it: row, values of `flat`.
    row: i64,
    at: Vec<i64>,
    /// Elements from the first neighbour's, both included.
    span: (i64, i64),
}

/// Lowers a kernel of one such definition, if it is one.
pub fn lower<'a>(cx: &mut Lowering<'a>, k: &'a PlanKernel) -> Option<Result<(), Refusal>> {
    let [s] = k.stmts[..] else { return None };
    let Stmt::Define(d) = &cx.graph.stmts[s] else { return None };
    let w = find(cx, &k.name, &[d])?;
    Some(points(cx, &k.name, d, &w))
}

/// The map as windows, if it is one.
pub fn find(cx: &Lowering<'_>, name: &str, group: &[&Define]) -> Option<Window> {
    let [d] = group else { return None };
    let graph = cx.graph;
    let t = graph.tensor(d.target);
    let count: i64 = t.dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d))?;
    let folds = outer_folds(graph, d.value);
    let [fold] = folds[..] else { return None };
    let Expr::Fold(f) = graph.expr(fold) else { return None };
    let plain = matches!(f.combine, Combine::Builtin(Monoid::Sum | Monoid::Prod | Monoid::Max | Monoid::Min));
    let float = matches!(Ty::of(graph.ty(fold)), Ty::F32 | Ty::F64);
    if count == 0 || count > i32::MAX as i64 || t.dims.len() < 2 || !plain || !float || f.cond.is_some() {
        return None;
    }
    let extents: Vec<i64> = f.axes.iter().map(|&a| graph.extent(a)).collect::<Option<_>>()?;
    if extents.contains(&0) || !outer_folds(graph, f.body).is_empty() {
        return None;
    }
    let last = *d.axes.last()?;
    let taps = taps(cx, d, f, last)?;
    let mut flat: Vec<AxisId> = Vec::new();
    let runs = || taps.iter().filter_map(|t| t.runs.as_ref());
    for at in runs() {
        let inner = at.last()?;
        flat.extend(f.axes.iter().filter(|a| inner.axes.contains_key(a)));
    }
    let (along, across) = shared_axis(d, f, runs())?;
    let rows: &[i64] = if across.is_empty() { &[1] } else { &ROWS };
    flat.extend(across);
    flat.sort();
    flat.dedup();
    let moved = runs().any(|at| at.iter().any(|i| f.axes.iter().any(|a| i.axes.contains_key(a))));
    let looped = f.axes.iter().copied().filter(|a| !flat.contains(a)).collect();
    let most = map_vec::store_width(cx, group);
    let mut w = Window { fold, taps, along, rows: 1, v: most, flat, looped };
    let wishes = wishes(cx, name, &graph.axis(d.axes[along]).name)?;
    match wishes.0 {
        Some(v) => w.v = v.min(most),
        None => {
            while w.v > 1 && count / w.v < ENOUGH {
                w.v /= 2;
            }
        }
    }
    let rows = wishes.1.as_ref().map_or(rows, std::slice::from_ref);
    let fits = |w: &Window| {
        let terms: i64 = w.flat.iter().filter_map(|&a| graph.extent(a)).product();
        let threads = count / (w.rows * w.v);
        t.dims[along] % w.rows == 0
            && terms * w.rows * w.v <= TERMS
            && (w.rows == 1 || wishes.1.is_some() || threads >= ENOUGH)
            && w.registers(cx, d) <= REGISTERS
    };
    w.rows = rows.iter().copied().find(|&rows| {
        w.rows = rows;
        fits(&w)
    })?;
    let few = extents.iter().product::<i64>() <= TAPS;
    (moved && few && w.v > 1).then_some(w)
}

/// What the settings say of the points of a thread: `vector = 8`, `unroll p = 4` along the axis of rows. `None`: they say
/// more than windows follow.
fn wishes(cx: &Lowering<'_>, name: &str, along: &str) -> Option<(Option<i64>, Option<i64>)> {
    let said = cx.schedule.kernels.get(name).into_iter().flatten();
    let known = |(k, axis): (&str, &str)| k == "vector" || k == "unroll" && axis == along;
    let (v, rows) = (cx.schedule.int(name, "vector", ""), cx.schedule.int(name, "unroll", along));
    let powers = v.is_none_or(|v| (1..=8).contains(&v) && v & (v - 1) == 0);
    let all = said.map(|(key, _)| key).all(|(k, axis)| known((k, axis)));
    (all && powers && rows.is_none_or(|n| n > 0)).then_some((v, rows))
}

/// The reads of a window's body: along the last axis by steps, or the same for all neighbours.
fn taps(cx: &Lowering<'_>, d: &Define, f: &Fold, last: AxisId) -> Option<Vec<Tap>> {
    let graph = cx.graph;
    let mut taps = Vec::new();
    for id in below(graph, f.body) {
        let Expr::Read(r) = graph.expr(id) else { continue };
        let t = graph.tensor(r.tensor);
        let home = cx.home(r.tensor);
        let simple = match r.access {
            Access::Proven => true,
            Access::Else(x) => matches!(graph.expr(x), Expr::Lit(_)),
            Access::Checked => false,
        };
        let nested =
            r.index.iter().any(|&i| below(graph, i).iter().any(|&x| matches!(graph.expr(x), Expr::Read(_))));
        if !simple || nested || r.tensor == d.target || t.range.is_some() || t.dims.contains(&0) {
            return None;
        }
        if !r.index.iter().any(|&i| cx.facts.free(i).contains(&last)) {
            taps.push(Tap { id, runs: None });
            continue;
        }
        let at: Vec<Affine> = r.index.iter().map(|&i| affine(graph, i)).collect::<Option<_>>()?;
        let (inner, outer) = at.split_last()?;
        let step = *inner.axes.get(&last)?;
        let own = inner.axes.iter().all(|(a, v)| *a == last || *v == 0 || f.axes.contains(a));
        let still = outer.iter().all(|i| !i.axes.contains_key(&last));
        let wide = (16..=32).contains(&t.dtype.bits())
            && home.strides.last() == Some(&1)
            && home.len <= i32::MAX as i64;
        if !(1..=4).contains(&step)
            || !own
            || !still
            || !wide
            || t.lo.last() != Some(&0)
            || home.dtype != t.dtype
        {
            return None;
        }
        taps.push(Tap { id, runs: Some(at) });
    }
    Some(taps)
}

/// The outermost axis of the target along which windows overlap, and the window's axes beside it; without one the
/// outermost.
fn shared_axis<'x>(
    d: &Define,
    f: &Fold,
    runs: impl Iterator<Item = &'x Vec<Affine>>,
) -> Option<(usize, Vec<AxisId>)> {
    let mut found: BTreeMap<usize, Vec<AxisId>> = BTreeMap::new();
    for at in runs {
        let (_, outer) = at.split_last()?;
        for i in outer {
            let outs = (0..d.axes.len() - 1).filter(|&p| i.axes.contains_key(&d.axes[p]));
            let Ok([p]) = <[usize; 1]>::try_from(outs.collect::<Vec<_>>()) else { continue };
            let taps = f.axes.iter().filter(|a| i.axes.contains_key(a));
            let taps: Vec<AxisId> = taps.copied().collect();
            if !taps.is_empty() {
                found.entry(p).or_default().extend(taps);
            }
        }
    }
    Some(found.into_iter().next().unwrap_or((0, Vec::new())))
}

impl Window {
    /// All values of the axes that are written out.
    fn places(&self, graph: &Graph) -> Vec<Vec<i64>> {
        let mut all = vec![Vec::new()];
        for &a in &self.flat {
            let (lo, hi) = graph.axis_range(a).unwrap_or((0, 0));
            all = all
                .into_iter()
                .flat_map(|p: Vec<i64>| (lo..hi).map(move |v| [&p[..], &[v]].concat()))
                .collect();
        }
        all
    }

    /// Whether the rows of a thread read different elements by a tap.
    fn differs(&self, d: &Define, tap: &Tap) -> bool {
        tap.runs.iter().flatten().any(|i| i.axes.contains_key(&d.axes[self.along]))
    }

    /// What the thread loads for each value of the looped axes, or for one place of the others what all rows share.
    fn segments(&self, d: &Define, places: &[Vec<i64>], shared: bool) -> Vec<Segment> {
        let mut all: Vec<Segment> = Vec::new();
        let last = d.axes[d.axes.len() - 1];
        for (read, tap) in self.taps.iter().enumerate() {
            let Some(at) = tap.runs.as_ref().filter(|_| self.differs(d, tap) != shared) else { continue };
            for place in places {
                let moved = |i: &Affine| -> i64 {
                    let of = |(k, a)| i.axes.get(a).unwrap_or(&0) * place[k];
                    self.flat.iter().enumerate().map(of).sum()
                };
                let inner = &at[at.len() - 1];
                let first = moved(inner) + inner.constant;
                let span = (first, first + inner.axes[&last] * (self.v - 1));
                for row in 0..self.rows {
                    let step = |i: &Affine| i.axes.get(&d.axes[self.along]).unwrap_or(&0) * row;
                    let key: Vec<i64> = at[..at.len() - 1].iter().map(|i| moved(i) + step(i)).collect();
                    match all.iter_mut().find(|s| s.read == read && s.key == key) {
                        Some(s) => s.span = (s.span.0.min(span.0), s.span.1.max(span.1)),
                        None => all.push(Segment { read, key, row, at: place.clone(), span }),
                    }
                }
            }
        }
        all
    }

    fn registers(&self, cx: &Lowering<'_>, d: &Define) -> i64 {
        let places = self.places(cx.graph);
        let (own, shared) = (self.segments(d, &places, false), self.segments(d, &places[..1], true));
        let loaded = own.iter().chain(&shared).map(|s| s.span.1 - s.span.0 + 1).sum::<i64>();
        loaded + self.rows * self.v
    }
}

/// Lowers a map of windows.
pub fn points<'a>(cx: &mut Lowering<'a>, name: &str, d: &'a Define, w: &Window) -> Result<(), Refusal> {
    let mut dims = cx.graph.tensor(d.target).dims.clone();
    let last = dims.len() - 1;
    cx.unrolled.insert(cx.graph.axis(d.axes[w.along]).name.clone());
    dims[w.along] /= w.rows;
    dims[last] /= w.v;
    launch_points(cx, name, &dims, d.span, |e, at| {
        let mut at = at.to_vec();
        for (p, by) in [(w.along, w.rows), (last, w.v)] {
            let n = arith(IntOp::Mul, at[p].clone(), int_of(at[p].ty, by));
            at[p] = Num { expr: e.named("at", n.ty, n.expr), ty: n.ty };
        }
        let base = coordinates(e, d.target, &at);
        let acc = gather(e, d, w, &base);
        let ty = Ty::of(e.graph.ty(w.fold));
        for row in 0..w.rows {
            e.scope(|e| {
                let mut here = base.clone();
                here[w.along] = arith(IntOp::Add, here[w.along].clone(), int_of(here[w.along].ty, row));
                let sums = Loaded { id: w.fold, array: acc, at: row * w.v, ty };
                map_vec::lanes(e, &[d], &here, w.v, &[sums]);
            });
        }
    })
}

/// The folds of all points of a thread, row by row.
fn gather<'a>(e: &mut Emit<'a>, d: &'a Define, w: &Window, base: &[Num]) -> ArrayId {
    let Expr::Fold(f) = e.graph.expr(w.fold) else { unreachable!("`find` looked at it") };
    let ty = Ty::of(e.graph.ty(w.fold));
    let acc = e.kernel.array("acc", ty, (w.rows * w.v) as u32);
    let unit = e.unit(f.combine, e.graph.ty(f.body), ty);
    for i in 0..w.rows * w.v {
        e.push(SimtStmt::SetElem(acc, lit32(i as i32), unit.clone()));
    }
    e.scope(|e| {
        for (p, (&a, n)) in d.axes.iter().zip(base).enumerate() {
            if p != w.along && p + 1 != d.axes.len() {
                e.bind_axis(a, n.expr.clone(), n.ty);
            }
        }
        nest(e, d, f, w, base, acc, 0);
    });
    acc
}

/// Loops over the axes that are not written out.
fn nest<'a>(e: &mut Emit<'a>, d: &'a Define, f: &Fold, w: &Window, base: &[Num], acc: ArrayId, depth: usize) {
    let Some(&axis) = w.looped.get(depth) else { return terms(e, d, f, w, base, acc) };
    let (lo, hi) = e.graph.axis_range(axis).expect("`find` asked for literal ranges");
    let var = e.kernel.var("tap", Ty::I32);
    let body = e.block(|e| {
        e.bind_axis(axis, Simt::Var(var), Ty::I32);
        nest(e, d, f, w, base, acc, depth + 1);
    });
    let terms: i64 = w.flat.iter().chain(&w.looped).filter_map(|&a| e.graph.extent(a)).product();
    let unroll = if terms * w.rows * w.v <= TERMS { Unroll::Full } else { Unroll::None };
    let (lo, hi, step) = (lit32(lo as i32), lit32(hi as i32), lit32(1));
    e.push(SimtStmt::For { var, lo, hi, step, unroll, body });
}

/// A loaded segment: its elements from `from` on.
struct Held {
    read: usize,
    key: Vec<i64>,
    array: ArrayId,
    from: i64,
}

/// One after the other, from a number on, in variables.
fn count<'a>(e: &mut Emit<'a>, from: &Num, n: i64) -> Vec<Num> {
    let one = |i| {
        let at = arith(IntOp::Add, from.clone(), int_of(from.ty, i));
        Num { expr: e.named("at", at.ty, at.expr), ty: at.ty }
    };
    (0..n).map(one).collect()
}

fn terms<'a>(e: &mut Emit<'a>, d: &'a Define, f: &Fold, w: &Window, base: &[Num], acc: ArrayId) {
    let places = w.places(e.graph);
    let (rows, lanes) = (count(e, &base[w.along], w.rows), count(e, &base[base.len() - 1], w.v));
    let own: Vec<Held> =
        w.segments(d, &places, false).iter().map(|s| e.scope(|e| load(e, d, w, s, base))).collect();
    let (along, last) = (d.axes[w.along], d.axes[d.axes.len() - 1]);
    let ty = Ty::of(e.graph.ty(w.fold));
    for place in places {
        let shared = w.segments(d, std::slice::from_ref(&place), true);
        let shared = shared.iter().map(|s| e.scope(|e| load(e, d, w, s, base)));
        let shared: Vec<Held> = shared.collect();
        e.scope(|e| {
            w.flat.iter().zip(&place).for_each(|(&a, &v)| e.bind_axis(a, lit32(v as i32), Ty::I32));
            let steady = |e: &mut Emit<'a>| {
                for t in w.taps.iter().filter(|t| t.runs.is_none()) {
                    let free = e.facts.free(t.id);
                    if !free.contains(&along) || e.axis_value(along).is_some() {
                        e.num(t.id);
                    }
                }
            };
            steady(e);
            for (row, at) in rows.iter().enumerate() {
                e.scope(|e| {
                    e.bind_axis(along, at.expr.clone(), at.ty);
                    steady(e);
                    for (lane, at) in lanes.iter().enumerate() {
                        e.scope(|e| {
                            e.bind_axis(last, at.expr.clone(), at.ty);
                            let held = || own.iter().chain(&shared);
                            for (i, t) in w.taps.iter().enumerate() {
                                bind_tap(e, d, w, (i, t), held(), (&place, row as i64, lane as i64));
                            }
                            let i = lit32((row as i64 * w.v + lane as i64) as i32);
                            let so_far = Num { expr: Simt::Elem(acc, Box::new(i.clone())), ty };
                            let sum = match e.product(f.combine, f.body) {
                                Some((a, b)) => {
                                    let (a, b) = (e.value(a), e.value(b));
                                    Num { expr: Simt::Call(Func::Fma, vec![a, b, so_far.expr]), ty }
                                }
                                None => {
                                    let term = e.num(f.body);
                                    let term = Num { expr: super::read::to(term, ty), ty };
                                    e.combined(f.combine, so_far, term)
                                }
                            };
                            e.push(SimtStmt::SetElem(acc, i, sum.expr));
                        });
                    }
                });
            }
        });
    }
}

/// Gives a read its element of a segment.
fn bind_tap<'h>(
    e: &mut Emit<'_>,
    d: &Define,
    w: &Window,
    (number, tap): (usize, &Tap),
    mut held: impl Iterator<Item = &'h Held>,
    (place, row, lane): (&[i64], i64, i64),
) {
    let Some(at) = &tap.runs else { return };
    let moved = |i: &Affine| -> i64 {
        let of = |(k, a)| i.axes.get(a).unwrap_or(&0) * place[k];
        w.flat.iter().enumerate().map(of).sum()
    };
    let (inner, outer) = at.split_last().expect("a read that runs has an index");
    let step = |i: &Affine| i.axes.get(&d.axes[w.along]).unwrap_or(&0) * row;
    let key: Vec<i64> = outer.iter().map(|i| moved(i) + step(i)).collect();
    let h = held.find(|h| h.read == number && h.key == key).expect("every tap has a segment");
    let element = moved(inner) + inner.constant + inner.axes[&d.axes[d.axes.len() - 1]] * lane - h.from;
    let ty = Ty::of(e.graph.ty(tap.id));
    let x = Simt::Elem(h.array, Box::new(lit32(element as i32)));
    e.bind_num(tap.id, Num { expr: x, ty });
}

/// Loads a segment by the widest accesses that are aligned; what is outside is the read's default.
fn load<'a>(e: &mut Emit<'a>, d: &Define, w: &Window, s: &Segment, base: &[Num]) -> Held {
    let tap = &w.taps[s.read];
    let Expr::Read(r) = e.graph.expr(tap.id) else { unreachable!("taps are reads") };
    let runs = tap.runs.as_ref().expect("segments are of reads that run");
    let (t, home) = (e.graph.tensor(r.tensor), e.home(r.tensor));
    let (along, last) = (d.axes[w.along], d.axes[d.axes.len() - 1]);
    let step = runs[runs.len() - 1].axes[&last];
    let (first, end) = e.graph.axis_range(last).expect("axes of a map have literal ranges");
    let n = t.dims[t.dims.len() - 1];
    let shape = |wide: i64| {
        let from = s.span.0.div_euclid(wide) * wide;
        (wide, from, (s.span.1 - from) / wide + 1)
    };
    let fits = |&wide: &i64| {
        let whole = n % wide == 0 && (w.v * step) % wide == 0 && (first * step) % wide == 0;
        wide == 1 || whole && map_vec::aligned(&home, t.dtype, &t.dims, wide)
    };
    let all =
        [1, 2, 4, 8].into_iter().filter(|&wide| wide * t.dtype.bits() as i64 <= 128).filter(fits).map(shape);
    let (wide, from, accesses) = all.min_by_key(|x| (x.2, x.0)).expect("single elements always fit");
    // The dims but the last, and the first element.
    let at_row = arith(IntOp::Add, base[w.along].clone(), int_of(base[w.along].ty, s.row));
    let at_row = Num { expr: e.named("row", at_row.ty, at_row.expr), ty: at_row.ty };
    e.bind_axis(along, at_row.expr, at_row.ty);
    let lane = &base[base.len() - 1];
    e.bind_axis(last, lane.expr.clone(), lane.ty);
    w.flat.iter().zip(&s.at).for_each(|(&a, &v)| e.bind_axis(a, lit32(v as i32), Ty::I32));
    let mut index: Vec<Index> = r.index.iter().map(|&i| e.index(i)).collect();
    let inner = index.pop().expect("a read that runs has an index").range;
    let start = arith(IntOp::Mul, lane.clone(), int_of(lane.ty, step));
    let start = arith(IntOp::Add, start, int_of(lane.ty, from));
    let start = Num { expr: e.named("start", start.ty, start.expr), ty: start.ty };
    index.push(Index { num: start.clone(), range: inner });
    let mut inside = None;
    let mut default = super::contract_loads::zero(t.dtype.compute());
    if let Access::Else(x) = r.access {
        let guards = e.guards(r.tensor, &index).into_iter().filter(|g| g.0 + 1 != index.len());
        inside = guards.map(|g| g.1).reduce(and);
        inside = inside.map(|c| e.named("inside", Ty::Bool, c));
        default = e.value(x);
    }
    let low = first * step + from;
    let high = (end - w.v) * step + from + accesses * wide;
    let array = e.kernel.array(&t.name, Ty::of(t.dtype.compute()), (accesses * wide) as u32);
    let place = e.offset(r.tensor, &index);
    let place = Num { expr: e.named("near", Ty::I32, place), ty: Ty::I32 };
    let mem = Mem::Global(e.tensor_param(r.tensor, false));
    for i in 0..accesses {
        let here = arith(IntOp::Add, start.clone(), int_of(start.ty, i * wide));
        let below = (low + i * wide < 0).then(|| cmp(CmpOp::Ge, here.expr.clone(), int_of(here.ty, 0).expr));
        let beyond = high - (accesses - 1 - i) * wide > n;
        let above = beyond.then(|| cmp(CmpOp::Lt, here.expr.clone(), int_of(here.ty, n).expr));
        let cond = inside.clone().into_iter().chain(below).chain(above).reduce(and);
        let index = arith(IntOp::Add, place.clone(), int_of(Ty::I32, i * wide)).expr;
        let access = |e: &mut Emit<'a>| {
            let at = (i * wide) as u32;
            match wide {
                1 => e.push(SimtStmt::SetElem(array, lit32(at as i32), Simt::Load(mem, Box::new(index)))),
                _ => e.push(SimtStmt::LoadVec { array, at, mem, index, count: wide as u32 }),
            }
        };
        match cond {
            None => access(e),
            Some(cond) => {
                for j in i * wide..(i + 1) * wide {
                    e.push(SimtStmt::SetElem(array, lit32(j as i32), default.clone()));
                }
                e.if_then(cond, access);
            }
        }
    }
    Held { read: s.read, key: s.key.clone(), array, from }
}
