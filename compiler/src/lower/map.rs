//! Form `map`: definitions over the same axes, a thread a point.
//!
//! All values of a point are computed before any is stored, so that a kernel may write an `inout` in place.

use super::index::{Interval, reads};
use super::read::Index;
use super::scalar::{Emit, Num, arith, cmp, int_of, times};
use super::{
    Choice, Lowering, MAX_GRID_X, Refusal, home, map_block, map_flat, map_stencil, map_tile, map_vec,
    map_window,
};
use crate::ir::graph::{AxisId, Define, Graph, Stmt, TensorId};
use crate::ir::plan::PlanKernel;
use crate::ir::simt::{CmpOp, IntOp, Ty};
use girih_dsl::ast::Span;

/// Threads of a block.
pub const THREADS: i64 = 256;

pub fn lower<'a>(cx: &mut Lowering<'a>, k: &'a PlanKernel) -> Result<(), Refusal> {
    let graph = cx.graph;
    let defines: Vec<&'a Define> = k
        .stmts
        .iter()
        .filter_map(|&s| match &graph.stmts[s] {
            Stmt::Define(d) => Some(d),
            _ => None,
        })
        .collect();
    for group in groups(graph, &defines) {
        points(cx, &k.name, group)?;
    }
    Ok(())
}

/// Runs of definitions that can share a launch: of one shape, and each reads the others only at its own point.
pub fn groups<'d, 'a>(graph: &Graph, defines: &'d [&'a Define]) -> Vec<&'d [&'a Define]> {
    let mut found = Vec::new();
    let mut first = 0;
    for i in 1..=defines.len() {
        if i == defines.len() || !joins(graph, &defines[first..i], defines[i]) {
            found.push(&defines[first..i]);
            first = i;
        }
    }
    found.retain(|g| !g.is_empty());
    found
}

fn joins(graph: &Graph, before: &[&Define], d: &Define) -> bool {
    let dims = |t: TensorId| (&graph.tensor(t).dims, &graph.tensor(t).lo);
    if dims(before[0].target) != dims(d.target) {
        return false;
    }
    let stmt = Stmt::Define(d.clone());
    reads(graph, &stmt)
        .iter()
        .filter(|(_, r)| before.iter().any(|b| b.target == r.tensor))
        .all(|(_, r)| home::identity(graph, r, &d.axes))
}

fn points<'a>(cx: &mut Lowering<'a>, name: &str, group: &[&'a Define]) -> Result<(), Refusal> {
    let graph = cx.graph;
    let Some(first) = group.first() else { return Ok(()) };
    let t = graph.tensor(first.target);
    let packed = group.iter().any(|d| graph.tensor(d.target).dtype.bits() == 4) && !t.dims.is_empty();
    let blocks = map_block::asked(cx, name, first);
    if packed {
        return match blocks {
            None => bytes(cx, name, group),
            Some(_) => Err(map_block::not_packed(first.span, name)),
        };
    }
    if let Some(blocks) = blocks {
        return map_block::points(cx, name, group, &blocks);
    }
    if let Some(window) = map_window::find(cx, name, group) {
        return map_window::points(cx, name, group[0], &window);
    }
    if let Some(turn) = map_tile::find(cx, name, group) {
        return map_tile::points(cx, name, group, turn);
    }
    if let Some(stencil) = map_stencil::find(cx, name, group) {
        return map_stencil::points(cx, name, group, &stencil);
    }
    let width = map_vec::width(cx, name, group)?;
    if let Some(flat) = map_flat::width(cx, name, group, width) {
        return map_flat::points(cx, name, group, flat);
    }
    if width > 1 {
        return map_vec::points(cx, name, group, width);
    }
    launch_points(cx, name, &t.dims, first.span, |e, at| {
        let at = coordinates(e, first.target, at);
        point(e, group, &at);
    })
}

/// Packed targets: a thread owns a whole byte, so two points along the last axis.
fn bytes<'a>(cx: &mut Lowering<'a>, name: &str, group: &[&'a Define]) -> Result<(), Refusal> {
    let first = group[0];
    let t = cx.graph.tensor(first.target);
    let mut dims = t.dims.clone();
    let extent = dims.pop().expect("a packed target has an axis");
    dims.push((extent + 1) / 2);
    launch_points(cx, name, &dims, first.span, |e, at| {
        for lane in 0..2 {
            let mut at = at.to_vec();
            let last = at.pop().expect("the dims have a last one");
            let n = times(last, 2, extent);
            let n = arith(IntOp::Add, n.clone(), int_of(n.ty, lane));
            let last = Num { expr: e.named("at", n.ty, n.expr), ty: n.ty };
            at.push(last.clone());
            let one = |e: &mut Emit<'a>| {
                let at = coordinates(e, first.target, &at);
                point(e, group, &at);
            };
            if extent % 2 != 0 && lane > 0 {
                let inside = cmp(CmpOp::Lt, last.expr, int_of(last.ty, extent).expr);
                e.if_then(inside, one);
            } else {
                e.scope(one);
            }
        }
    })
}

/// Launches a kernel with a thread for each point of a box; `f` gets its coordinates, from 0.
pub fn launch_points<'a>(
    cx: &mut Lowering<'a>,
    name: &str,
    dims: &[i64],
    span: Span,
    f: impl FnOnce(&mut Emit<'a>, &[Num]),
) -> Result<(), Refusal> {
    launch_blocks(cx, name, dims, THREADS, span, f)
}

/// The same in blocks of `usual` threads, where nothing else is set.
pub fn launch_blocks<'a>(
    cx: &mut Lowering<'a>,
    name: &str,
    dims: &[i64],
    usual: i64,
    span: Span,
    f: impl FnOnce(&mut Emit<'a>, &[Num]),
) -> Result<(), Refusal> {
    let threads = count(dims, span, name)?;
    if threads == 0 {
        return Ok(());
    }
    let width = self::threads(cx, name, usual, span)?;
    let mut e = cx.emit(name);
    grid(&mut e, threads, width, span)?;
    e.line(span);
    let id = e.thread_number(threads);
    let inside = cmp(CmpOp::Lt, id.expr.clone(), int_of(id.ty, threads).expr);
    e.if_then(inside, |e| {
        let at = decode(e, id, dims);
        f(e, &at);
    });
    cx.launch(e);
    Ok(())
}

/// Number of points of a box.
pub fn count(dims: &[i64], span: Span, name: &str) -> Result<i64, Refusal> {
    let n = dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d));
    n.filter(|&n| n < 1 << 48).ok_or_else(|| Refusal::new(span, format!("{name} has too many elements")))
}

/// Threads of a block: as set, or `usual`.
pub fn threads(cx: &Lowering<'_>, kernel: &str, usual: i64, span: Span) -> Result<i64, Refusal> {
    match cx.schedule.block_threads(kernel) {
        None => Ok(usual),
        Some((n, _)) if (32..=1024).contains(&n) && n % 32 == 0 => Ok(n),
        Some((n, key)) => {
            let why = format!("{n} threads do not fit: a block has 32 to 1024, a multiple of 32");
            Err(Refusal::new(span, why).setting(key))
        }
    }
}

/// The settings that a map leaves open.
pub fn space(cx: &Lowering<'_>, k: &PlanKernel) -> Vec<Choice> {
    let graph = cx.graph;
    let wide = k.stmts.iter().any(|&s| match &graph.stmts[s] {
        Stmt::Define(d) => graph.tensor(d.target).dims.last().is_some_and(|n| n % 2 == 0),
        _ => false,
    });
    let mut space = vec![Choice::ints("threads", "", &[64, 128, 256, 512])];
    if wide {
        space.push(Choice::ints("vector", "", &[1, 2, 4, 8]));
    }
    let define = |&s: &usize| match &graph.stmts[s] {
        Stmt::Define(d) => Some(d),
        _ => None,
    };
    let defines: Vec<&Define> = k.stmts.iter().filter_map(define).collect();
    let mut along: Vec<&str> = Vec::new();
    for group in groups(graph, &defines) {
        let axis = map_stencil::find(cx, &k.name, group).map(|s| s.axis(cx, group));
        along.extend(axis.filter(|a| !along.contains(a)));
    }
    space.extend(along.into_iter().map(|axis| Choice::ints("unroll", axis, &[1, 2, 4, 8])));
    space
}

/// Sets a one-dimensional grid with a thread for each of `threads` points, `width` of them a block.
pub fn grid(e: &mut Emit<'_>, threads: i64, width: i64, span: Span) -> Result<(), Refusal> {
    let width = width.min((threads + 31) / 32 * 32);
    let blocks = (threads + width - 1) / width;
    if blocks > MAX_GRID_X {
        return Err(Refusal::new(
            span,
            "the work needs more blocks than a grid may have: make the tensor smaller",
        ));
    }
    e.kernel.block = [width as u32, 1, 1];
    e.kernel.grid = [blocks as u32, 1, 1];
    Ok(())
}

/// A point of a box from its row-major number; each coordinate is from 0.
pub fn decode(e: &mut Emit<'_>, number: Num, dims: &[i64]) -> Vec<Num> {
    let mut rest = number;
    let mut at = vec![int_of(rest.ty, 0); dims.len()];
    for d in (0..dims.len()).rev() {
        if dims[d] == 1 {
            continue;
        }
        let outermost = dims[..d].iter().all(|&n| n == 1);
        if outermost {
            at[d] = rest.clone();
            break;
        }
        let n = int_of(rest.ty, dims[d]);
        let r = arith(IntOp::Rem, rest.clone(), n.clone());
        at[d] = Num { expr: e.named("r", r.ty, r.expr), ty: r.ty };
        let q = arith(IntOp::Div, rest, n);
        rest = Num { expr: e.named("q", q.ty, q.expr), ty: q.ty };
    }
    at
}

/// The values of a definition's axes, from coordinates that count from 0.
pub fn coordinates(e: &mut Emit<'_>, target: TensorId, at: &[Num]) -> Vec<Num> {
    let lo = e.graph.tensor(target).lo.clone();
    at.iter()
        .zip(lo)
        .map(|(n, lo)| {
            let v = arith(IntOp::Add, n.clone(), int_of(n.ty, lo));
            Num { expr: e.named("ax", v.ty, v.expr), ty: v.ty }
        })
        .collect()
}

/// All values at a point, then all stores. The group's axes have the same values, so that what one defines is
/// what the next reads.
pub(super) fn point(e: &mut Emit<'_>, group: &[&Define], at: &[Num]) {
    let values = values(e, group, at);
    for (d, n) in group.iter().zip(values) {
        let index = own_index(e, d.target, &d.axes);
        e.store(d.target, &index, n.expr);
        e.unforward(d.target);
    }
}

/// The values at a point; axes that are bound already keep theirs.
pub fn values(e: &mut Emit<'_>, group: &[&Define], at: &[Num]) -> Vec<Num> {
    let graph = e.graph;
    let mut values = Vec::new();
    for d in group {
        e.line(d.span);
        for (&a, n) in d.axes.iter().zip(at) {
            if e.axis_value(a).is_none() {
                e.bind_axis(a, n.expr.clone(), n.ty);
            }
        }
        let dtype = graph.tensor(d.target).dtype;
        e.certain = map_vec::unconditional(graph, d.value).into_iter().collect();
        let v = e.stored_value(dtype, d.value);
        let v = if group.len() > 1 { e.rounded(dtype, v) } else { v };
        let n = Num { expr: e.named("y", v.ty, v.expr), ty: v.ty };
        e.certain.clear();
        e.forward(d.target, &d.axes, n.clone());
        values.push(n);
    }
    values
}

/// Binds axes to coordinates that count from 0.
pub fn bind_axes(e: &mut Emit<'_>, axes: &[AxisId], at: &[Num]) {
    for (&a, n) in axes.iter().zip(at) {
        let lo = e.graph.axis_range(a).map_or(0, |r| r.0);
        let shifted = arith(IntOp::Add, n.clone(), int_of(n.ty, lo));
        let expr = e.named("ax", shifted.ty, shifted.expr);
        e.bind_axis(a, expr, shifted.ty);
    }
}

/// The index of a definition's own element.
pub fn own_index(e: &Emit<'_>, target: TensorId, axes: &[AxisId]) -> Vec<Index> {
    let t = e.graph.tensor(target);
    axes.iter()
        .enumerate()
        .map(|(d, a)| Index {
            num: e.axis_value(*a).cloned().unwrap_or_else(|| int_of(Ty::I32, t.lo[d])),
            range: Interval::new(t.lo[d], t.lo[d] + t.dims[d] - 1),
        })
        .collect()
}
