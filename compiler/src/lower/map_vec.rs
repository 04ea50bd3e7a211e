//! Form `map`, vectorised: a thread takes a few neighbours along the last axis, loads and stores them as one access
//! where layout, alignment and extents are known to allow it, and computes what they share once.

use super::home::Home;
use super::map::{coordinates, launch_points, values};
use super::read::Index;
use super::scalar::{Emit, Num, arith, int_of, lit32};
use super::{Lowering, Refusal};
use crate::ir::graph::{Access, AxisId, Define, Expr as Node, ExprId, Graph, Read};
use crate::ir::simt::{ArrayId, Expr, IntOp, Mem, Stmt, Ty};
use crate::vocab::dtype::DType;
use std::collections::BTreeSet;

/// Threads below which wider accesses cost more parallelism than they save.
const ENOUGH: i64 = 1 << 15;
/// Nodes of a body up to which it is repeated for each neighbour.
const NODES: usize = 160;

/// Neighbours that a thread takes.
pub fn width(cx: &Lowering<'_>, name: &str, group: &[&Define]) -> Result<i64, Refusal> {
    let most = legal_width(cx, group);
    if let Some(wish) = cx.schedule.int(name, "vector", "") {
        // A wish: where the layout does not allow it, the widest that it does.
        return if wish > 0 && wish & (wish - 1) == 0 {
            Ok(wish.min(most))
        } else {
            let why = format!("vector = {wish} is no width of {name}: write 1, 2, 4 or 8");
            Err(Refusal::new(group[0].span, why).setting("vector"))
        };
    }
    let points: i64 = cx.graph.tensor(group[0].target).dims.iter().product();
    let mut v = most;
    while v > 1 && points / v < ENOUGH {
        v /= 2;
    }
    Ok(v)
}

/// The most neighbours that all stores allow.
pub fn legal_width(cx: &Lowering<'_>, group: &[&Define]) -> i64 {
    let graph = cx.graph;
    let t = graph.tensor(group[0].target);
    let Some(&n) = t.dims.last() else { return 1 };
    let folds = group.iter().any(|d| nodes(graph, d.value).is_none_or(|n| n > NODES));
    if folds || n < 2 {
        return 1;
    }
    let least = group.iter().map(|d| graph.tensor(d.target).dtype.bits()).min().unwrap_or(128);
    let mut v = (128 / least.max(16)) as i64;
    let fits = |v: i64| {
        n % v == 0
            && group.iter().all(|d| aligned(cx.home(d.target), graph.tensor(d.target).dtype, &t.dims, v))
    };
    while v > 1 && !fits(v) {
        v /= 2;
    }
    v
}

/// Whether `v` neighbours along the last dim stand side by side and aligned, wherever they begin at a multiple of `v`.
fn aligned(home: &Home, dtype: DType, dims: &[i64], v: i64) -> bool {
    let Some((last, outer)) = home.strides.split_last() else { return false };
    let bytes = access(dtype, v) as i64 * dtype.bits() as i64 / 8;
    let per_row = outer.iter().zip(dims).all(|(s, &n)| n == 1 || s % v == 0);
    *last == 1 && per_row && bytes >= 4 && home.align as i64 % bytes == 0
}

/// Elements of one access: at most 16 bytes.
fn access(dtype: DType, v: i64) -> u32 {
    (v as u32).min(128 / dtype.bits())
}

/// Number of nodes of an expression; `None` if it has a fold.
fn nodes(graph: &Graph, root: ExprId) -> Option<usize> {
    let mut seen = BTreeSet::new();
    let mut todo = vec![root];
    while let Some(id) = todo.pop() {
        if seen.insert(id) {
            if matches!(graph.expr(id), Node::Fold(_)) {
                return None;
            }
            todo.extend(graph.children(id));
        }
    }
    Some(seen.len())
}

/// A read that is loaded for all neighbours at once.
struct Loaded {
    id: ExprId,
    array: ArrayId,
    ty: Ty,
}

pub fn points<'a>(cx: &mut Lowering<'a>, name: &str, group: &[&'a Define], v: i64) -> Result<(), Refusal> {
    let graph = cx.graph;
    let first = group[0];
    let mut dims = graph.tensor(first.target).dims.clone();
    if let Some(last) = dims.last_mut() {
        *last /= v;
    }
    launch_points(cx, name, &dims, first.span, |e, at| {
        let mut at = at.to_vec();
        let last = at.pop().expect("a vectorised target has a last axis");
        let n = arith(IntOp::Mul, last.clone(), int_of(last.ty, v));
        let n = Num { expr: e.named("at", n.ty, n.expr), ty: n.ty };
        at.push(n);
        let at = coordinates(e, first.target, &at);
        lanes(e, group, &at, v);
    })
}

fn lanes<'a>(e: &mut Emit<'a>, group: &[&'a Define], at: &[Num], v: i64) {
    let graph = e.graph;
    let (last, outer) = at.split_last().expect("a vectorised target has a last axis");
    let inner: BTreeSet<AxisId> = group.iter().filter_map(|d| d.axes.last().copied()).collect();
    for d in group {
        for (&a, n) in d.axes.iter().zip(outer) {
            e.bind_axis(a, n.expr.clone(), n.ty);
        }
    }
    let own: Vec<_> = group.iter().map(|d| d.target).collect();
    let mut loaded = Vec::new();
    for d in group {
        let axis = *d.axes.last().expect("a vectorised target has a last axis");
        for id in unconditional(graph, d.value) {
            let Node::Read(r) = graph.expr(id) else { continue };
            if loaded.iter().all(|l: &Loaded| l.id != id) && !own.contains(&r.tensor) {
                loaded.extend(vector_read(e, id, r, axis, last, v));
            }
        }
        e.hoist_shared(d.value, &inner);
    }
    let outs: Vec<ArrayId> = group
        .iter()
        .map(|d| {
            let t = graph.tensor(d.target);
            e.kernel.array(&t.name, Ty::of(t.dtype.compute()), v as u32)
        })
        .collect();
    for lane in 0..v {
        e.scope(|e| {
            let here = arith(IntOp::Add, last.clone(), int_of(last.ty, lane));
            let here = Num { expr: e.named("ax", here.ty, here.expr), ty: here.ty };
            for l in &loaded {
                let Node::Read(r) = graph.expr(l.id) else { continue };
                let x = Expr::Elem(l.array, Box::new(lit32(lane as i32)));
                let x = Num { expr: Expr::Var(e.let_var("x", l.ty, x)), ty: l.ty };
                let n = e.after_load(r.tensor, x, graph.span(l.id));
                e.bind_num(l.id, n);
            }
            let mut point = outer.to_vec();
            point.push(here);
            let found = values(e, group, &point);
            for ((d, n), &out) in group.iter().zip(found).zip(&outs) {
                e.push(Stmt::SetElem(out, lit32(lane as i32), n.expr));
                e.unforward(d.target);
            }
        });
    }
    for (d, &array) in group.iter().zip(&outs) {
        store(e, d, array, at, v);
    }
}

fn store(e: &mut Emit<'_>, d: &Define, array: ArrayId, at: &[Num], v: i64) {
    let t = e.graph.tensor(d.target);
    let index: Vec<Index> = at
        .iter()
        .enumerate()
        .map(|(i, n)| Index {
            num: n.clone(),
            range: super::index::Interval::new(t.lo[i], t.lo[i] + t.dims[i] - 1),
        })
        .collect();
    let place = e.offset(d.target, &index);
    let mem = Mem::Global(e.tensor_param(d.target, true));
    let count = access(t.dtype, v);
    for part in 0..v as u32 / count {
        let index = shifted(&e.home(d.target), place.clone(), part * count);
        e.push(Stmt::StoreVec { mem, index, array, at: part * count, count });
    }
}

fn shifted(home: &Home, place: Expr, by: u32) -> Expr {
    let ty = if home.len > i32::MAX as i64 { Ty::I64 } else { Ty::I32 };
    arith(IntOp::Add, Num { expr: place, ty }, int_of(ty, by as i64)).expr
}

/// Loads all neighbours of a read, if its last index is the axis and the others do not depend on it.
fn vector_read(e: &mut Emit<'_>, id: ExprId, r: &Read, axis: AxisId, last: &Num, v: i64) -> Option<Loaded> {
    let graph = e.graph;
    let t = graph.tensor(r.tensor);
    let (&inner, outer) = r.index.split_last()?;
    let plain = matches!(graph.expr(inner), Node::Axis(a) if *a == axis);
    let apart = outer.iter().all(|&i| !e.facts.free(i).contains(&axis));
    let from = t.lo.last()? % v == 0;
    let proven = r.access == Access::Proven && !t.dims.contains(&0);
    if !plain || !apart || !from || !proven || !aligned(&e.home(r.tensor), t.dtype, &t.dims, v) {
        return None;
    }
    let lo = graph.axis_range(axis)?.0;
    if lo % v != 0 || outer.iter().any(|&i| e.facts.may_fault(i)) {
        return None;
    }
    let mut index: Vec<Index> = outer.iter().map(|&i| e.index(i)).collect();
    index.push(Index { num: last.clone(), range: e.facts.interval(inner) });
    let place = e.offset(r.tensor, &index);
    let ty = Ty::of(t.dtype.compute());
    let array = e.kernel.array(&t.name, ty, v as u32);
    let mem = Mem::Global(e.tensor_param(r.tensor, false));
    let count = access(t.dtype, v);
    for part in 0..v as u32 / count {
        let index = shifted(&e.home(r.tensor), place.clone(), part * count);
        e.push(Stmt::LoadVec { array, at: part * count, mem, index, count });
    }
    Some(Loaded { id, array, ty })
}

/// The parts of an expression that are evaluated whenever it is.
fn unconditional(graph: &Graph, root: ExprId) -> Vec<ExprId> {
    let mut seen = BTreeSet::new();
    let mut order = Vec::new();
    let mut todo = vec![root];
    while let Some(id) = todo.pop() {
        if !seen.insert(id) {
            continue;
        }
        order.push(id);
        match graph.expr(id) {
            Node::Select(c, ..) => todo.push(*c),
            Node::Read(r) => todo.extend(&r.index),
            Node::Fold(_) => {}
            _ => todo.extend(graph.children(id)),
        }
    }
    order
}
