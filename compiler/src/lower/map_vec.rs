//! Form `map`, vectorised: a thread takes a few neighbours along the last axis, loads and stores them as one access
//! where layout, alignment and extents are known to allow it, and computes what they share once.

use super::home::Home;
use super::map::{self, coordinates, values};
use super::map_lanes::{Lanes, gcd};
use super::read::Index;
use super::scalar::{Emit, Num, arith, cast, int_of, lit32, lit64, times};
use super::{Lowering, Refusal, unaligned};
use crate::ir::graph::{Access, AxisId, Define, Expr as Node, ExprId, Graph, Read, TensorId};
use crate::ir::simt::{ArrayId, Expr, IntOp, Intrinsic, Mem, Place, Stmt, Ty};
use crate::vocab::dtype::{DType, Value};
use crate::vocab::func::Func;
use std::collections::BTreeSet;

/// Threads below which wider accesses cost more parallelism than they save.
pub(super) const ENOUGH: i64 = 1 << 15;
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

/// The most neighbours that all stores allow, of bodies that are worth repeating.
pub fn legal_width(cx: &Lowering<'_>, group: &[&Define]) -> i64 {
    if group.iter().all(|d| small(cx.graph, d.value)) { store_width(cx, group) } else { 1 }
}

/// The most neighbours that all stores allow.
pub(super) fn store_width(cx: &Lowering<'_>, group: &[&Define]) -> i64 {
    let graph = cx.graph;
    let t = graph.tensor(group[0].target);
    let Some(&n) = t.dims.last() else { return 1 };
    if n < 2 {
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
pub(super) fn aligned(home: &Home, dtype: DType, dims: &[i64], v: i64) -> bool {
    let Some((last, outer)) = home.strides.split_last() else { return false };
    let bytes = access(dtype, v) as i64 * dtype.bits() as i64 / 8;
    let per_row = outer.iter().zip(dims).all(|(s, &n)| n == 1 || s % v == 0);
    *last == 1 && per_row && bytes >= 4 && home.align as i64 % bytes == 0
}

/// Elements of one access: at most 16 bytes.
pub(super) fn access(dtype: DType, v: i64) -> u32 {
    (v as u32).min(128 / dtype.bits())
}

/// Whether a body is worth repeating for each neighbour: no folds, few nodes.
pub(super) fn small(graph: &Graph, value: ExprId) -> bool {
    nodes(graph, value).is_some_and(|n| n <= NODES)
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
#[derive(Clone, Copy)]
pub(super) struct Loaded {
    pub id: ExprId,
    pub array: ArrayId,
    /// The first neighbour's place in the array.
    pub at: i64,
    pub ty: Ty,
}

/// Conditions that all neighbours share and that are branched on around them, at most.
const BRANCHES: u32 = 2;

/// The neighbours of one thread.
struct Points<'g, 'a> {
    group: &'g [&'a Define],
    /// The first neighbour's coordinates.
    at: &'g [Num],
    v: i64,
    /// The values, for each definition.
    outs: &'g [ArrayId],
}

pub fn points<'a>(cx: &mut Lowering<'a>, name: &str, group: &[&'a Define], v: i64) -> Result<(), Refusal> {
    let graph = cx.graph;
    let first = group[0];
    let mut dims = graph.tensor(first.target).dims.clone();
    let halves = halves(cx, group, v);
    let last = dims.last_mut().expect("a vectorised target has a last axis");
    let (extent, half) = (*last, *last / 2);
    *last /= if halves.is_some() { 2 * v } else { v };
    // As many bytes a block either way.
    let threads = if halves.is_some() { map::THREADS / 2 } else { map::THREADS };
    map::launch_blocks(cx, name, &dims, threads, first.span, |e, at| {
        let mut at = at.to_vec();
        let last = at.pop().expect("a vectorised target has a last axis");
        let n = times(last, v, extent);
        let n = Num { expr: e.named("at", n.ty, n.expr), ty: n.ty };
        at.push(n);
        let Some(conds) = halves else {
            let at = coordinates(e, first.target, &at);
            return lanes(e, group, &at, v, &[]);
        };
        for upper in [false, true] {
            e.scope(|e| {
                conds.iter().for_each(|&(c, below)| e.bind(c, Expr::Lit(Value::Bool(below != upper))));
                let last = at.last_mut().expect("pushed above");
                if upper {
                    *last = arith(IntOp::Add, last.clone(), int_of(last.ty, half));
                }
                let at = coordinates(e, first.target, &at);
                lanes(e, group, &at, v, &[]);
            });
        }
    })
}

/// Where the halves of the last axis are computed differently from the same reads: the conditions that tell them
/// apart, each with its value in the lower half. A thread then takes neighbours in both halves, and reads once.
fn halves(cx: &Lowering<'_>, group: &[&Define], v: i64) -> Option<Vec<(ExprId, bool)>> {
    let graph = cx.graph;
    let mut conds: Vec<(ExprId, bool)> = Vec::new();
    for d in group {
        let axis = *d.axes.last()?;
        let (lo, n) = graph.axis_range(axis)?;
        if lo != 0 || n % (2 * v) != 0 {
            return None;
        }
        let lanes = Lanes { graph, facts: &cx.facts, axis, v };
        let find = |id: ExprId| match graph.expr(id) {
            Node::Select(c, a, b) => {
                let from: BTreeSet<_> = read_from(graph, *a);
                let both = read_from(graph, *b).intersection(&from).next().is_some();
                both.then(|| Some((*c, lanes.below(*c, n / 2)?))).flatten()
            }
            _ => None,
        };
        conds.extend(unconditional(graph, d.value).into_iter().find_map(find));
    }
    (conds.len() == group.len()).then_some(conds)
}

/// The tensors that an expression reads.
fn read_from(graph: &Graph, root: ExprId) -> BTreeSet<crate::ir::graph::TensorId> {
    let reads = crate::pass::inline::below(graph, root).into_iter();
    reads
        .filter_map(|id| match graph.expr(id) {
            Node::Read(r) => Some(r.tensor),
            _ => None,
        })
        .collect()
}

/// Computes and stores `v` neighbours; what `loaded` names was loaded already.
pub(super) fn lanes<'a>(e: &mut Emit<'a>, group: &[&'a Define], at: &[Num], v: i64, loaded: &[Loaded]) {
    let (_, outer) = at.split_last().expect("a vectorised target has a last axis");
    for d in group {
        for (&a, n) in d.axes.iter().zip(outer) {
            e.bind_axis(a, n.expr.clone(), n.ty);
        }
    }
    let outs: Vec<ArrayId> = group.iter().map(|d| out_array(e, d, v)).collect();
    branches(e, &Points { group, at, v, outs: &outs }, loaded, BRANCHES);
    for (d, &array) in group.iter().zip(&outs) {
        store(e, d, array, at, v);
    }
}

/// An array for a definition's values at `v` neighbours.
pub(super) fn out_array(e: &mut Emit<'_>, d: &Define, v: i64) -> ArrayId {
    let t = e.graph.tensor(d.target);
    e.kernel.array(&t.name, Ty::of(t.dtype.compute()), v as u32)
}

/// Branches on the conditions that all neighbours share, so that what they guard is loaded for all at once.
fn branches<'a>(e: &mut Emit<'a>, p: &Points<'_, 'a>, loaded: &[Loaded], budget: u32) {
    let loaded = load(e, p, loaded);
    let Some((axis, cond)) = (budget > 0).then(|| shared_condition(e, p)).flatten() else {
        return compute(e, p, &loaded);
    };
    let last = &p.at[p.at.len() - 1];
    let c = e.scope(|e| {
        e.bind_axis(axis, last.expr.clone(), last.ty);
        let c = e.value(cond);
        e.named("c", Ty::Bool, c)
    });
    let (loaded_then, loaded_else) = load_either(e, p, &loaded, cond, &c);
    let side = |taken: bool| {
        let loaded = if taken { loaded_then.clone() } else { loaded_else.clone() };
        move |e: &mut Emit<'a>| {
            e.bind(cond, Expr::Lit(Value::Bool(taken)));
            branches(e, p, &loaded, budget - 1);
        }
    };
    e.if_else(c, side(true), side(false));
}

/// Loads what both sides of a branch read from one tensor, at places that the condition chooses: where neighbouring
/// threads part, the loads of both sides are under way together.
fn load_either<'a>(
    e: &mut Emit<'a>,
    p: &Points<'_, 'a>,
    loaded: &[Loaded],
    cond: ExprId,
    c: &Expr,
) -> (Vec<Loaded>, Vec<Loaded>) {
    let last = &p.at[p.at.len() - 1];
    let own: Vec<_> = p.group.iter().map(|d| d.target).collect();
    let (mut then, mut otherwise) = (loaded.to_vec(), loaded.to_vec());
    for d in p.group {
        let axis = *d.axes.last().expect("a vectorised target has a last axis");
        let mut sides = [true, false].map(|side| {
            e.scope(|e| {
                e.bind(cond, Expr::Lit(Value::Bool(side)));
                let open = |id: &ExprId| loaded.iter().all(|l| l.id != *id);
                let ids: Vec<ExprId> = taken(e, d.value).into_iter().filter(open).collect();
                let wide = |id: ExprId| match e.graph.expr(id) {
                    Node::Read(r) if !own.contains(&r.tensor) && harmless(e, r) => {
                        Some((id, r, vector_plan(e, r, axis, p.v).filter(|&n| n > 1)?))
                    }
                    _ => None,
                };
                ids.into_iter().filter_map(wide).collect::<Vec<_>>()
            })
        });
        for (id, r, count) in std::mem::take(&mut sides[0]) {
            // The same read first, else any of this tensor.
            let pair = |f: &dyn Fn(&(ExprId, &Read, i64)) -> bool| sides[1].iter().position(f);
            let same = pair(&|o| o.0 == id);
            let like = || pair(&|o| o.1.tensor == r.tensor && o.2 == count);
            let Some(other) = same.or_else(like) else { continue };
            let (other, o, _) = sides[1].remove(other);
            let at = |e: &mut Emit<'a>, r: &Read, side: bool| {
                e.scope(|e| {
                    e.bind(cond, Expr::Lit(Value::Bool(side)));
                    vector_place(e, r, axis, last)
                })
            };
            let mut place = at(e, r, true);
            if other != id {
                let b = at(e, o, false);
                let ty = e.home(r.tensor).index_ty();
                let chosen = Expr::Select(Box::new(c.clone()), Box::new(place), Box::new(b));
                place = e.named("place", ty, chosen);
            }
            let (array, ty) = vector_load(e, r, place, p.v, count);
            then.push(Loaded { id, array, at: 0, ty });
            otherwise.push(Loaded { id: other, array, at: 0, ty });
        }
    }
    (then, otherwise)
}

/// Whether a read's place may be computed, though not used, where the read is not done: nothing is read for it, and it
/// does not leave 32 bits.
fn harmless(e: &Emit<'_>, r: &Read) -> bool {
    let home = e.home(r.tensor);
    let reach = |(&i, &stride): (&ExprId, &i64)| {
        let at = e.facts.interval(i);
        (at.lo as i128).abs().max((at.hi as i128).abs()) * stride as i128
    };
    let most: i128 = r.index.iter().zip(&home.strides).map(reach).sum();
    most < i32::MAX as i128 && r.index.iter().all(|&i| !reads_any(e.graph, i))
}

/// A condition of a choice between what is worth not reading.
fn shared_condition(e: &Emit<'_>, p: &Points<'_, '_>) -> Option<(AxisId, ExprId)> {
    for d in p.group {
        let axis = *d.axes.last().expect("a vectorised target has a last axis");
        let lanes = Lanes { graph: e.graph, facts: &e.facts, axis, v: p.v };
        for id in taken(e, d.value) {
            let Node::Select(c, a, b) = e.graph.expr(id) else { continue };
            let open = !matches!(e.graph.expr(*c), Node::Lit(_)) && !e.is_known(*c);
            let reads = reads_any(e.graph, *a) || reads_any(e.graph, *b);
            if open && reads && lanes.steady(*c) && !e.facts.may_fault(*c) {
                return Some((axis, *c));
            }
        }
    }
    None
}

/// Loads what all neighbours surely read, and what lies under conditions that they do not share where it is inside
/// whatever the condition says. Random words are made a block of four at once.
fn load<'a>(e: &mut Emit<'a>, p: &Points<'_, 'a>, before: &[Loaded]) -> Vec<Loaded> {
    let graph = e.graph;
    let last = &p.at[p.at.len() - 1];
    let inner: BTreeSet<AxisId> = p.group.iter().filter_map(|d| d.axes.last().copied()).collect();
    let own: Vec<_> = p.group.iter().map(|d| d.target).collect();
    let mut loaded = before.to_vec();
    for d in p.group {
        let axis = *d.axes.last().expect("a vectorised target has a last axis");
        let sure: BTreeSet<ExprId> = taken(e, d.value).into_iter().collect();
        for id in sure.iter().copied().chain(under_own_conditions(e, d.value, axis, p.v)) {
            if loaded.iter().any(|l: &Loaded| l.id == id) {
                continue;
            }
            match graph.expr(id) {
                Node::Read(r) if !own.contains(&r.tensor) => {
                    let free = sure.contains(&id) || always_inside(e, r);
                    loaded.extend(free.then(|| vector_read(e, id, r, axis, last, p.v)).flatten());
                }
                Node::Call(f @ (Func::Uniform | Func::RandBits), args) => {
                    loaded.extend(random_words(e, id, *f, args, axis, last, p.v));
                }
                _ => {}
            }
        }
        e.hoist_shared(d.value, &inner);
    }
    loaded
}

/// Binds what was loaded at a neighbour.
pub(super) fn bind_lane(e: &mut Emit<'_>, loaded: &[Loaded], lane: i64) {
    let graph = e.graph;
    for l in loaded {
        let x = Expr::Elem(l.array, Box::new(lit32((l.at + lane) as i32)));
        let n = match graph.expr(l.id) {
            Node::Read(r) => {
                let x = Num { expr: Expr::Var(e.let_var("x", l.ty, x)), ty: l.ty };
                e.after_load(r.tensor, x, graph.span(l.id))
            }
            Node::Call(f, _) => random_value(e, *f, x),
            Node::Fold(_) => Num { expr: x, ty: l.ty },
            _ => continue,
        };
        e.bind_num(l.id, n);
    }
}

fn compute<'a>(e: &mut Emit<'a>, p: &Points<'_, 'a>, loaded: &[Loaded]) {
    let (last, outer) = p.at.split_last().expect("a vectorised target has a last axis");
    for lane in 0..p.v {
        e.scope(|e| {
            let here = arith(IntOp::Add, last.clone(), int_of(last.ty, lane));
            let here = Num { expr: e.named("ax", here.ty, here.expr), ty: here.ty };
            bind_lane(e, loaded, lane);
            let mut point = outer.to_vec();
            point.push(here);
            let found = values(e, p.group, &point);
            for ((d, n), &out) in p.group.iter().zip(found).zip(p.outs) {
                e.push(Stmt::SetElem(out, lit32(lane as i32), n.expr));
                e.unforward(d.target);
            }
        });
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
    store_at(e, d.target, array, place, v);
}

/// Stores `v` neighbours from a place on.
pub(super) fn store_at(e: &mut Emit<'_>, target: TensorId, array: ArrayId, place: Expr, v: i64) {
    let dtype = e.graph.tensor(target).dtype;
    let home = e.home(target);
    let mem = Mem::Global(e.tensor_param(target, true));
    let count = access(dtype, v);
    if count * dtype.bits() < 32 {
        for i in 0..v as u32 {
            let index = shifted(&home, place.clone(), i);
            e.push(Stmt::Store(mem, index, Expr::Elem(array, Box::new(lit32(i as i32)))));
        }
        return;
    }
    for part in 0..v as u32 / count {
        let index = shifted(&home, place.clone(), part * count);
        e.push(Stmt::StoreVec { mem, index, array, at: part * count, count });
    }
}

pub(super) fn shifted(home: &Home, place: Expr, by: u32) -> Expr {
    let ty = home.index_ty();
    arith(IntOp::Add, Num { expr: place, ty }, int_of(ty, by as i64)).expr
}

/// Loads all neighbours of a read, if that can be done by vectors.
fn vector_read(e: &mut Emit<'_>, id: ExprId, r: &Read, axis: AxisId, last: &Num, v: i64) -> Option<Loaded> {
    let count = vector_plan(e, r, axis, v)?;
    let place = vector_place(e, r, axis, last);
    if count == 1 {
        return any_place(e, id, r, place, v);
    }
    let (array, ty) = vector_load(e, r, place, v, count);
    Some(Loaded { id, array, at: 0, ty })
}

/// Neighbours that begin anywhere: two aligned vectors, shifted.
fn any_place(e: &mut Emit<'_>, id: ExprId, r: &Read, place: Expr, v: i64) -> Option<Loaded> {
    let home = e.home(r.tensor);
    let dtype = e.graph.tensor(r.tensor).dtype;
    let wide = unaligned::width(dtype, home.len, home.align)
        .filter(|wide| v % wide == 0 && matches!(dtype, DType::F16 | DType::BF16))?;
    let index_ty = home.index_ty();
    let array = e.kernel.array(&e.graph.tensor(r.tensor).name, Ty::F32, v as u32);
    for part in 0..v / wide {
        let from = shifted(&home, place.clone(), (part * wide) as u32);
        let from = Num { expr: e.named("from", index_ty, from), ty: index_ty };
        let words = unaligned::load(e, r.tensor, &from, wide, false);
        for i in 0..wide {
            let word = Expr::Elem(words, Box::new(lit32(i as i32 / 2)));
            let x = Expr::Unpack2(dtype, (i % 2) as u8, Box::new(word));
            e.push(Stmt::SetElem(array, lit32((part * wide + i) as i32), x));
        }
    }
    Some(Loaded { id, array, at: 0, ty: Ty::F32 })
}

/// Elements of an access (1: it begins anywhere), if a read's last index runs with the axis and the neighbours share the
/// others. Where it begins off the vector's alignment, narrower accesses that are aligned do it.
fn vector_plan(e: &Emit<'_>, r: &Read, axis: AxisId, v: i64) -> Option<i64> {
    let graph = e.graph;
    let t = graph.tensor(r.tensor);
    let (&inner, outer) = r.index.split_last()?;
    let lanes = Lanes { graph, facts: &e.facts, axis, v };
    let run = lanes.run(inner)?;
    let steady = outer.iter().all(|&i| lanes.steady(i));
    let proven = r.access == Access::Proven && !t.dims.contains(&0);
    let faults = r.index.iter().any(|&i| e.facts.may_fault(i));
    if !steady || !proven || faults || graph.axis_range(axis)?.0 % v != 0 {
        return None;
    }
    let mut count = gcd(run.align(v), *t.lo.last()?).min(access(t.dtype, v) as i64);
    while count > 1 && !aligned(&e.home(r.tensor), t.dtype, &t.dims, count) {
        count /= 2;
    }
    Some(count)
}

/// Where the first neighbour's element stands.
fn vector_place(e: &mut Emit<'_>, r: &Read, axis: AxisId, last: &Num) -> Expr {
    e.scope(|e| {
        e.bind_axis(axis, last.expr.clone(), last.ty);
        let index: Vec<Index> = r.index.iter().map(|&i| e.index(i)).collect();
        e.offset(r.tensor, &index)
    })
}

pub(super) fn vector_load(e: &mut Emit<'_>, r: &Read, place: Expr, v: i64, count: i64) -> (ArrayId, Ty) {
    let t = e.graph.tensor(r.tensor);
    let ty = Ty::of(t.dtype.compute());
    let array = e.kernel.array(&t.name, ty, v as u32);
    let mem = Mem::Global(e.tensor_param(r.tensor, false));
    for part in 0..(v / count) as u32 {
        let at = part * count as u32;
        let index = shifted(&e.home(r.tensor), place.clone(), at);
        e.push(Stmt::LoadVec { array, at, mem, index, count: count as u32 });
    }
    (array, ty)
}

/// The random words of all neighbours, where their counters run with the axis from a multiple of 4.
pub(super) fn random_words(
    e: &mut Emit<'_>,
    id: ExprId,
    f: Func,
    args: &[ExprId],
    axis: AxisId,
    last: &Num,
    v: i64,
) -> Option<Loaded> {
    if v % 4 != 0 || !words_run(e, args, axis, v) {
        return None;
    }
    let array = e.kernel.array(f.name(), Ty::U32, v as u32);
    e.scope(|e| {
        if e.axis_value(axis).is_none() {
            e.bind_axis(axis, last.expr.clone(), last.ty);
        }
        let (key, counter) = (e.value(args[0]), e.value(args[1]));
        let first = Expr::Int(IntOp::Shr, Box::new(counter), Box::new(lit64(2)));
        let first = Num { expr: e.named("block", Ty::I64, first), ty: Ty::I64 };
        for part in 0..v / 4 {
            let block = arith(IntOp::Add, first.clone(), int_of(Ty::I64, part)).expr;
            let outs = (0..4).map(|i| Place::Elem(array, 4 * part as u32 + i)).collect();
            let op = Intrinsic::Philox;
            e.push(Stmt::Intrinsic { op, outs, args: vec![key.clone(), block] });
        }
    });
    Some(Loaded { id, array, at: 0, ty: Ty::U32 })
}

/// Whether the counters of a random function run with an axis, from multiples of 4 where the axis has such.
pub(super) fn words_run(e: &Emit<'_>, args: &[ExprId], axis: AxisId, v: i64) -> bool {
    let lanes = Lanes { graph: e.graph, facts: &e.facts, axis, v };
    let whole = lanes.run(args[1]).is_some_and(|run| run.align(4) == 4);
    let from = e.graph.axis_range(axis).is_some_and(|r| r.0 % 4 == 0);
    whole && from && lanes.steady(args[0]) && !args.iter().any(|&a| e.facts.may_fault(a))
}

/// What a random function makes of its word.
pub(super) fn random_value(e: &mut Emit<'_>, f: Func, word: Expr) -> Num {
    if f != Func::Uniform {
        return Num { expr: Expr::Var(e.let_var("w", Ty::I64, cast(Ty::I64, word))), ty: Ty::I64 };
    }
    let high = Expr::Int(IntOp::Shr, Box::new(word), Box::new(Expr::U32(8)));
    let number = cast(Ty::F32, cast(Ty::I32, high));
    let scale = Expr::Lit(Value::F32(1.0 / (1 << 24) as f32));
    let u = e.let_var("u", Ty::F32, Expr::Call(Func::Mul, vec![number, scale]));
    Num { expr: Expr::Var(u), ty: Ty::F32 }
}

/// Whether all indices of a read are inside at every point.
fn always_inside(e: &Emit<'_>, r: &Read) -> bool {
    let t = e.graph.tensor(r.tensor);
    t.range.is_none()
        && r.index.iter().zip(t.dims.iter().zip(&t.lo)).all(|(&i, (&n, &lo))| {
            let at = e.facts.interval(i);
            at.lo >= lo && at.hi < lo + n
        })
}

fn reads_any(graph: &Graph, id: ExprId) -> bool {
    matches!(graph.expr(id), Node::Read(_)) || graph.children(id).iter().any(|&c| reads_any(graph, c))
}

/// The parts of an expression that are evaluated whenever it is.
pub(super) fn unconditional(graph: &Graph, root: ExprId) -> Vec<ExprId> {
    walk(graph, root, &|c| match graph.expr(c) {
        Node::Lit(Value::Bool(b)) => Choice::Known(*b),
        _ => Choice::Open,
    })
}

/// As `unconditional`, with the conditions that are branched on around.
fn taken(e: &Emit<'_>, root: ExprId) -> Vec<ExprId> {
    walk(e.graph, root, &|c| match e.known_bool(c) {
        Some(b) => Choice::Known(b),
        None => Choice::Open,
    })
}

/// The parts that are evaluated at some neighbours and not at others: both sides of conditions they do not share.
fn under_own_conditions(e: &Emit<'_>, root: ExprId, axis: AxisId, v: i64) -> Vec<ExprId> {
    let lanes = Lanes { graph: e.graph, facts: &e.facts, axis, v };
    walk(e.graph, root, &|c| match e.known_bool(c) {
        Some(b) => Choice::Known(b),
        None if lanes.steady(c) => Choice::Open,
        None => Choice::Both,
    })
}

/// Which sides of a choice a walk goes into.
enum Choice {
    Known(bool),
    Open,
    Both,
}

fn walk(graph: &Graph, root: ExprId, choice: &dyn Fn(ExprId) -> Choice) -> Vec<ExprId> {
    let mut seen = BTreeSet::new();
    let mut order = Vec::new();
    let mut todo = vec![root];
    while let Some(id) = todo.pop() {
        if !seen.insert(id) {
            continue;
        }
        order.push(id);
        match graph.expr(id) {
            Node::Select(c, a, b) => {
                todo.push(*c);
                match choice(*c) {
                    Choice::Known(true) => todo.push(*a),
                    Choice::Known(false) => todo.push(*b),
                    Choice::Both => todo.extend([*a, *b]),
                    Choice::Open => {}
                }
            }
            Node::Read(r) => todo.extend(&r.index),
            Node::Fold(_) => {}
            _ => todo.extend(graph.children(id)),
        }
    }
    order
}
