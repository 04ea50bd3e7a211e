//! Form `sort`: stable argsort along an axis, and the sorting of keys that `scatter` needs too.
//!
//! Rows that fit a block's shared memory are sorted there by digits (`sort_radix.rs`), longer ones of 32-bit keys in global
//! memory (`sort_long.rs`). For others, keys are computed into a workspace. A block sorts a run of a row in shared memory (bitonic, on key and position
//! together: a strict total order, so the result is stable and the same in every run); longer rows are merged from
//! sorted runs, each element finding its place by a binary search in the neighbouring run. Where only the first
//! places of long rows are read, those alone are found (`sort_select.rs`).

use super::map::{bind_axes, count, launch_points};
use super::read::{Index, to};
use super::scalar::{Emit, Num, add, and, arith, cast, cmp, int_of, int_op, lit32, mul, not, sub};
use super::sort_long::{self, Rows};
use super::{Choice, Lowering, MAX_GRID_X, Refusal, sort_radix, sort_segments, sort_select};
use crate::ir::graph::{Sort, Stmt as GraphStmt};
use crate::ir::plan::PlanKernel;
use crate::ir::program::{Arg, BufferId, Launch, Step};
use crate::ir::simt::{CmpOp, Expr, IntOp, Mem, SharedId, Special, Stmt, Ty, Unroll};
use crate::vocab::dtype::{DType, Value};
use crate::vocab::func::Func;
use girih_dsl::ast::Span;

/// Elements that a block sorts in shared memory.
const RUN: i64 = 2048;
/// Elements of a row up to which each counts those before it.
const COUNTED: i64 = 48;

pub fn lower<'a>(cx: &mut Lowering<'a>, k: &'a PlanKernel) -> Result<(), Refusal> {
    let graph = cx.graph;
    for &s in &k.stmts {
        if let GraphStmt::Sort(sort) = &graph.stmts[s] {
            let way = Way::of(cx, &k.name, sort)?;
            argsort(cx, &k.name, sort, way)?;
        }
    }
    Ok(())
}

/// Dims of the other axes, then the sorted one.
fn row_major(dims: &[i64], along: usize) -> Vec<i64> {
    let mut d = dims.to_vec();
    let n = d.remove(along);
    d.push(n);
    d
}

/// How rows are sorted, with what is set.
enum Way {
    /// The first places only, each row in so many segments.
    Select { places: i64, segments: Option<i64> },
    /// In a block's shared memory.
    Radix { warps: Option<i64> },
    /// In global memory, so many keys of a long row in a tile.
    Rows { tile: Option<i64> },
}

impl Way {
    fn of(cx: &Lowering<'_>, name: &str, sort: &Sort) -> Result<Way, Refusal> {
        let refuse = |why: String, key: &str| Err(Refusal::new(sort.span, why).setting(key));
        let axis = &cx.graph.axis(sort.axes[sort.along]).name;
        let (step, split) = (cx.schedule.int(name, "step", axis), cx.schedule.int(name, "split", axis));
        let threads = match cx.schedule.block_threads(name) {
            Some(_) => Some(super::map::threads(cx, name, 0, sort.span)?),
            None => None,
        };
        let t = cx.graph.tensor(sort.target);
        let n = t.dims[sort.along];
        let rows = t.dims.iter().product::<i64>() / n.max(1);
        // A few long rows leave most of the device idle with a block each.
        let few = rows < 32 && n > 16384;
        let warps = threads.map(|t| t / 32);
        let way = if let Some(places) = sort_select::first_places(cx, sort) {
            Way::Select { places, segments: split }
        } else if n > COUNTED && !few && step.is_none() && sort_radix::takes(cx, sort, warps) {
            Way::Radix { warps }
        } else {
            Way::Rows { tile: step.filter(|s| *s < n) }
        };
        let selects = matches!(way, Way::Select { .. });
        if !selects && split.is_some_and(|s| s != 1) {
            return refuse(
                "only where the first few of a sorted row are wanted is it cut in segments".into(),
                "split",
            );
        }
        if let Way::Select { places, segments: Some(s) } = way
            && !sort_segments::Cut::fits(rows, n, places, s)
        {
            let why =
                format!("{s} segments of {n} elements are too short for the first {places}, or too many");
            return refuse(why, "split");
        }
        match (step, &way) {
            (Some(s), Way::Rows { tile: Some(_) }) if !sort_long::TILES.contains(&s) => {
                refuse(format!("a tile has {:?} keys, not {s}", sort_long::TILES), "step")
            }
            (Some(s), _) if selects && s < n => refuse("the first few are found in one pass".into(), "step"),
            _ => Ok(way),
        }
    }
}

/// The settings of a sort's kernel with the values worth trying.
pub fn space(cx: &Lowering<'_>, k: &PlanKernel) -> Vec<Choice> {
    let mut sorts = k.stmts.iter().filter_map(|&s| match &cx.graph.stmts[s] {
        GraphStmt::Sort(sort) => Some(sort),
        _ => None,
    });
    let Some(sort) = sorts.next_back() else { return Vec::new() };
    let t = cx.graph.tensor(sort.target);
    let n = t.dims[sort.along];
    let rows = t.dims.iter().product::<i64>() / n.max(1);
    let axis = &cx.graph.axis(sort.axes[sort.along]).name;
    let threads: Vec<i64> = [64, 128, 256, 512, 1024].to_vec();
    match Way::of(cx, &k.name, sort) {
        Ok(Way::Select { places, .. }) => {
            let all = [1, 2, 4, 8, 16, 32, 64, 128].into_iter();
            let fit: Vec<i64> = all.filter(|&s| sort_segments::Cut::fits(rows, n, places, s)).collect();
            vec![Choice::ints("split", axis, &fit)]
        }
        Ok(Way::Radix { .. }) => {
            let fit: Vec<i64> =
                threads.into_iter().filter(|t| sort_radix::takes(cx, sort, Some(t / 32))).collect();
            let mut space = vec![Choice::ints("threads", "", &fit)];
            space.extend((n > sort_long::LONG).then(|| Choice::ints("step", axis, &sort_long::TILES)));
            space
        }
        Ok(Way::Rows { .. }) => {
            let mut space = vec![Choice::ints("threads", "", &threads)];
            space.extend((n > sort_long::LONG).then(|| Choice::ints("step", axis, &sort_long::TILES)));
            space
        }
        Err(_) => Vec::new(),
    }
}

fn argsort<'a>(cx: &mut Lowering<'a>, name: &str, sort: &'a Sort, way: Way) -> Result<(), Refusal> {
    let graph = cx.graph;
    let t = graph.tensor(sort.target);
    let dims = row_major(&t.dims, sort.along);
    if count(&dims, sort.span, name)? == 0 {
        return Ok(());
    }
    let tile = match way {
        Way::Select { places, segments } => {
            sort_select::lower(cx, name, sort, places, segments);
            return Ok(());
        }
        Way::Radix { warps } => {
            sort_radix::lower(cx, name, sort, warps);
            return Ok(());
        }
        Way::Rows { tile } => tile,
    };
    let n = *dims.last().expect("a sorted tensor has an axis");
    let rows: i64 = dims[..dims.len() - 1].iter().product();
    let keys = keys(cx, name, sort, &dims)?;
    let order = sort_rows(cx, name, keys, (rows, n), (64, tile), sort.span)?;
    launch_points(cx, name, &dims, sort.span, |e, at| {
        let place = linear(at, &dims);
        let p = e.pointer(order, false);
        let found = e.let_var("at", Ty::I32, Expr::Load(Mem::Global(p), Box::new(place.expr)));
        let lo = t.lo[sort.along];
        let value = arith(IntOp::Add, Num { expr: Expr::Var(found), ty: Ty::I32 }, int_of(Ty::I32, lo));
        let value = e.rounded(t.dtype, value);
        let index = target_index(t, sort.along, at);
        e.store(sort.target, &index, value.expr);
    })
}

/// The element of the target at coordinates of which the sorted axis is the last.
pub fn target_index(t: &crate::ir::graph::Tensor, along: usize, at: &[Num]) -> Vec<Index> {
    let mut at = at.to_vec();
    let last = at.pop().expect("a sorted tensor has an axis");
    at.insert(along, last);
    at.into_iter()
        .enumerate()
        .map(|(d, n)| Index {
            num: arith(IntOp::Add, n.clone(), int_of(n.ty, t.lo[d])),
            range: super::index::Interval::new(t.lo[d], t.lo[d] + t.dims[d] - 1),
        })
        .collect()
}

fn linear(at: &[Num], dims: &[i64]) -> Num {
    let total: i64 = dims.iter().product();
    let ty = if total <= i32::MAX as i64 { Ty::I32 } else { Ty::I64 };
    let mut sum = int_of(ty, 0);
    for (n, &d) in at.iter().zip(dims) {
        sum = arith(IntOp::Mul, sum, int_of(ty, d));
        sum = arith(IntOp::Add, sum, Num { expr: to(n.clone(), ty), ty });
    }
    sum
}

/// Keys in a workspace, the sorted axis innermost. Bools become 0 and 1.
fn keys<'a>(cx: &mut Lowering<'a>, name: &str, sort: &'a Sort, dims: &[i64]) -> Result<BufferId, Refusal> {
    let dtype = match cx.graph.ty(sort.key).stored() {
        DType::Bool => DType::I32,
        d => d,
    };
    let keys = cx.workspace(format!("{name}_keys"), dtype, dims);
    launch_points(cx, name, dims, sort.span, |e, at| {
        let mut own = at.to_vec();
        let last = own.pop().expect("a sorted tensor has an axis");
        own.insert(sort.along, last);
        bind_axes(e, &sort.axes, &own);
        let key = e.value(sort.key);
        let key = if dtype == DType::I32 && e.graph.ty(sort.key) == crate::vocab::dtype::Ty::Bool {
            cast(Ty::I32, key)
        } else {
            key
        };
        let place = linear(at, dims);
        let p = e.pointer(keys, true);
        e.push(Stmt::Store(Mem::Global(p), place.expr, key));
    })?;
    Ok(keys)
}

/// The positions (I32) of each row's elements in ascending order of their keys: stable, NaN last. `keys` is
/// `[rows, n]`, of a compute type's dtype. Integers that are 0 or above say how many `bits` they have at most. Long rows
/// are sorted by tiles of so many keys.
pub fn sort_rows(
    cx: &mut Lowering<'_>,
    name: &str,
    keys: BufferId,
    (rows, n): (i64, i64),
    (bits, tile): (u32, Option<i64>),
    span: Span,
) -> Result<BufferId, Refusal> {
    let dtype = cx.program.buffers[keys.0 as usize].dtype;
    let held = tile.map_or(sort_long::HELD, |t| t / sort_long::THREADS);
    let all = Rows { keys, dtype, rows, n, bits, held };
    if all.are_long() {
        return sort_long::sort(cx, name, all, span);
    }
    let runs = (n + RUN - 1) / RUN;
    if n > i32::MAX as i64 / 4 || rows.saturating_mul(runs) > MAX_GRID_X {
        return Err(Refusal::new(span, format!("{name}: the rows to sort are too long or too many")));
    }
    let order = cx.workspace(format!("{name}_order"), DType::I32, &[rows, n]);
    if n <= COUNTED {
        count_before(cx, name, (keys, dtype, order), rows, n, span)?;
        return Ok(order);
    }
    sort_runs(cx, name, (keys, dtype, order), rows, n, span);
    if runs == 1 {
        return Ok(order);
    }
    let other = cx.workspace(format!("{name}_order2"), DType::I32, &[rows, n]);
    merge_runs(cx, name, (keys, dtype), [order, other], rows, n, span)
}

/// A key and the position it stands at.
#[derive(Clone)]
struct Item {
    key: Expr,
    at: Expr,
}

/// Whether `a` comes before `b`: a strict total order, since positions differ.
fn before(ty: Ty, a: &Item, b: &Item) -> Expr {
    let lt = |x: &Expr, y: &Expr| cmp(CmpOp::Lt, x.clone(), y.clone());
    let mut less = lt(&a.key, &b.key);
    let mut greater = lt(&b.key, &a.key);
    if matches!(ty, Ty::F32 | Ty::F64) {
        let nan = |x: &Expr| Expr::Call(Func::IsNan, vec![x.clone()]);
        less = or(less, and(nan(&b.key), not(nan(&a.key))));
        greater = or(greater, and(nan(&a.key), not(nan(&b.key))));
    }
    or(less, and(not(greater), lt(&a.at, &b.at)))
}

fn or(a: Expr, b: Expr) -> Expr {
    Expr::Or(Box::new(a), Box::new(b))
}

/// Short rows: a thread an element, which counts the elements that come before its own.
fn count_before(
    cx: &mut Lowering<'_>,
    name: &str,
    (keys, dtype, order): (BufferId, DType, BufferId),
    rows: i64,
    n: i64,
    span: Span,
) -> Result<(), Refusal> {
    let ty = Ty::of(dtype.compute());
    launch_points(cx, name, &[rows, n], span, |e, at| {
        let (p, out) = (e.pointer(keys, false), e.pointer(order, true));
        let base = row_base(e, to(at[0].clone(), Ty::I32), rows, n);
        let i = to(at[1].clone(), Ty::I32);
        let i = e.named("i", Ty::I32, i);
        let key = |at: &Expr| Expr::Load(Mem::Global(p), Box::new(offset(&base, at.clone())));
        let own = Item { key: Expr::Var(e.let_var("key", ty, key(&i))), at: i.clone() };
        let place = e.let_var("before", Ty::I32, lit32(0));
        let var = e.kernel.var("j", Ty::I32);
        let body = e.block(|e| {
            let at = Expr::Var(var);
            let other = Item { key: Expr::Var(e.let_var("other", ty, key(&at))), at };
            let one =
                Expr::Select(Box::new(before(ty, &other, &own)), Box::new(lit32(1)), Box::new(lit32(0)));
            e.push(Stmt::Set(place, add(Expr::Var(place), one)));
        });
        let (lo, hi, step) = (lit32(0), lit32(n as i32), lit32(1));
        e.push(Stmt::For { var, lo, hi, step, unroll: Unroll::Auto, body });
        e.push(Stmt::Store(Mem::Global(out), offset(&base, Expr::Var(place)), i));
    })
}

// Runs in shared memory.

/// Sorts each run of each row; positions go to `order`.
fn sort_runs(
    cx: &mut Lowering<'_>,
    name: &str,
    (keys, dtype, order): (BufferId, DType, BufferId),
    rows: i64,
    n: i64,
    span: Span,
) {
    let runs = (n + RUN - 1) / RUN;
    let size = (n.min(RUN) as u64).next_power_of_two().max(2) as i64;
    let threads = (size / 2).clamp(32, 512);
    let ty = Ty::of(dtype.compute());
    let mut e = cx.emit(name);
    e.kernel.block = [threads as u32, 1, 1];
    e.kernel.grid = [(rows * runs) as u32, 1, 1];
    e.line(span);
    let (p, out) = (e.pointer(keys, false), e.pointer(order, true));
    let s_key = e.kernel.shared("keys", dtype, size as u32, 16);
    let s_at = e.kernel.shared("places", DType::I32, size as u32, 16);
    let block = Expr::Special(Special::BlockX);
    let run = e.let_var("run", Ty::I32, int_op(IntOp::Rem, block.clone(), lit32(runs as i32)));
    let row = e.let_var("row", Ty::I32, int_op(IntOp::Div, block, lit32(runs as i32)));
    let first = e.let_var("first", Ty::I32, mul(Expr::Var(run), lit32(RUN as i32)));
    let base = row_base(&mut e, Expr::Var(row), rows, n);
    strided(&mut e, size, threads, |e, i| {
        let at = e.let_var("at", Ty::I32, add(Expr::Var(first), i.clone()));
        let here = cmp(CmpOp::Lt, Expr::Var(at), lit32(n as i32));
        let key = e.let_var("key", ty, super::arith::default_of(ty));
        let place = offset(&base, Expr::Var(at));
        e.if_then(here, |e| e.push(Stmt::Set(key, Expr::Load(Mem::Global(p), Box::new(place)))));
        e.push(Stmt::Store(Mem::Shared(s_key), i.clone(), Expr::Var(key)));
        e.push(Stmt::Store(Mem::Shared(s_at), i, Expr::Var(at)));
    });
    e.push(Stmt::Barrier);
    bitonic(&mut e, (s_key, s_at, ty), size, threads, n);
    strided(&mut e, size, threads, |e, i| {
        let at = e.let_var("at", Ty::I32, add(Expr::Var(first), i.clone()));
        let here = cmp(CmpOp::Lt, Expr::Var(at), lit32(n as i32));
        let place = offset(&base, Expr::Var(at));
        let found = Expr::Load(Mem::Shared(s_at), Box::new(i));
        e.if_then(here, |e| e.push(Stmt::Store(Mem::Global(out), place, found)));
    });
    cx.launch(e);
}

/// Where a row begins, in the index type that the whole fits.
fn row_base(e: &mut Emit<'_>, row: Expr, rows: i64, n: i64) -> Num {
    let ty = if rows * n <= i32::MAX as i64 { Ty::I32 } else { Ty::I64 };
    let row = to(Num { expr: row, ty: Ty::I32 }, ty);
    let v = e.let_var("base", ty, mul(row, int_of(ty, n).expr));
    Num { expr: Expr::Var(v), ty }
}

fn offset(base: &Num, at: Expr) -> Expr {
    add(base.expr.clone(), to(Num { expr: at, ty: Ty::I32 }, base.ty))
}

/// `for i in thread..size step threads`
fn strided<'a>(e: &mut Emit<'a>, size: i64, threads: i64, f: impl FnOnce(&mut Emit<'a>, Expr)) {
    let var = e.kernel.var("i", Ty::I32);
    let body = e.block(|e| f(e, Expr::Var(var)));
    let (lo, hi) = (Expr::Special(Special::ThreadX), lit32(size as i32));
    e.push(Stmt::For { var, lo, hi, step: lit32(threads as i32), unroll: Unroll::None, body });
}

/// Sorts `size` (a power of two) items in shared memory. Positions at or after `n` are padding and come last.
fn bitonic(e: &mut Emit<'_>, (s_key, s_at, ty): (SharedId, SharedId, Ty), size: i64, threads: i64, n: i64) {
    let width = e.let_var("width", Ty::I32, lit32(2));
    let outer = e.block(|e| {
        let gap = e.let_var("gap", Ty::I32, int_op(IntOp::Div, Expr::Var(width), lit32(2)));
        let inner = e.block(|e| {
            strided(e, size / 2, threads, |e, t| {
                // Pair t: the lower element's number has a 0 where the gap has its bit.
                let low = int_op(IntOp::Rem, t.clone(), Expr::Var(gap));
                let i = add(mul(sub(t, low.clone()), lit32(2)), low);
                let i = Expr::Var(e.let_var("i", Ty::I32, i));
                let j = Expr::Var(e.let_var("j", Ty::I32, add(i.clone(), Expr::Var(gap))));
                let bit = int_op(IntOp::And, i.clone(), Expr::Var(width));
                let up = Expr::Var(e.let_var("up", Ty::Bool, cmp(CmpOp::Eq, bit, lit32(0))));
                exchange(e, (s_key, s_at, ty), i, j, up, n);
            });
            e.push(Stmt::Barrier);
            e.push(Stmt::Set(gap, int_op(IntOp::Div, Expr::Var(gap), lit32(2))));
        });
        e.push(Stmt::While { cond: cmp(CmpOp::Gt, Expr::Var(gap), lit32(0)), body: inner });
        e.push(Stmt::Set(width, mul(Expr::Var(width), lit32(2))));
    });
    e.push(Stmt::While { cond: cmp(CmpOp::Le, Expr::Var(width), lit32(size as i32)), body: outer });
}

/// Puts two items in order (ascending if `up`).
fn exchange(
    e: &mut Emit<'_>,
    (s_key, s_at, ty): (SharedId, SharedId, Ty),
    i: Expr,
    j: Expr,
    up: Expr,
    n: i64,
) {
    let a = fetch(e, (s_key, s_at, ty), i.clone());
    let b = fetch(e, (s_key, s_at, ty), j.clone());
    let inside = |x: &Item| cmp(CmpOp::Lt, x.at.clone(), lit32(n as i32));
    // b before a; padding is after all else.
    let wrong = and(inside(&b), or(not(inside(&a)), before(ty, &b, &a)));
    let wrong = Expr::Var(e.let_var("wrong", Ty::Bool, wrong));
    let differ = Expr::Compare(CmpOp::Eq, Box::new(wrong), Box::new(up));
    e.if_then(differ, |e| {
        put(e, (s_key, s_at), i, &b);
        put(e, (s_key, s_at), j, &a);
    });
}

fn fetch(e: &mut Emit<'_>, (s_key, s_at, ty): (SharedId, SharedId, Ty), i: Expr) -> Item {
    let key = e.let_var("key", ty, Expr::Load(Mem::Shared(s_key), Box::new(i.clone())));
    let at = e.let_var("place", Ty::I32, Expr::Load(Mem::Shared(s_at), Box::new(i)));
    Item { key: Expr::Var(key), at: Expr::Var(at) }
}

fn put(e: &mut Emit<'_>, (s_key, s_at): (SharedId, SharedId), i: Expr, item: &Item) {
    e.push(Stmt::Store(Mem::Shared(s_key), i.clone(), item.key.clone()));
    e.push(Stmt::Store(Mem::Shared(s_at), i, item.at.clone()));
}

// Merging runs.

/// Doubles the sorted runs until each row is one; gives the buffer that holds the result.
fn merge_runs(
    cx: &mut Lowering<'_>,
    name: &str,
    keys: (BufferId, DType),
    [mut from, mut into]: [BufferId; 2],
    rows: i64,
    n: i64,
    span: Span,
) -> Result<BufferId, Refusal> {
    merge_kernel(cx, name, keys, [from, into], rows, n, span)?;
    let kernel = cx.program.kernels.len() - 1;
    let mut width = RUN;
    while width < n {
        if width > RUN {
            let args = vec![
                Arg::Buffer(keys.0),
                Arg::Buffer(from),
                Arg::Buffer(into),
                Arg::Const(Value::I32(width as i32)),
            ];
            cx.step(Step::Launch(Launch { kernel, args }));
        }
        (from, into) = (into, from);
        width *= 2;
    }
    Ok(from)
}

/// One pass: every element goes to its own number plus the number of elements of the other run that come before it.
fn merge_kernel(
    cx: &mut Lowering<'_>,
    name: &str,
    (keys, dtype): (BufferId, DType),
    [from, into]: [BufferId; 2],
    rows: i64,
    n: i64,
    span: Span,
) -> Result<(), Refusal> {
    let ty = Ty::of(dtype.compute());
    let mut e = cx.emit(name);
    super::map::grid(&mut e, rows * n, super::map::THREADS, span)?;
    e.line(span);
    let p_keys = e.pointer(keys, false);
    let p_from = e.pointer(from, false);
    let p_into = e.pointer(into, true);
    let width = e.scalar_param("width", Ty::I32, Arg::Const(Value::I32(RUN as i32)));
    let id = e.thread_number(rows * n);
    let inside = cmp(CmpOp::Lt, id.expr.clone(), int_of(id.ty, rows * n).expr);
    e.if_then(inside, |e| {
        let at = super::map::decode(e, id, &[rows, n]);
        let (row, i) = (to(at[0].clone(), Ty::I32), to(at[1].clone(), Ty::I32));
        let i = e.named("i", Ty::I32, i);
        let base = row_base(e, row, rows, n);
        let item = |e: &mut Emit<'_>, i: Expr| {
            let at = e.let_var("place", Ty::I32, Expr::Load(Mem::Global(p_from), Box::new(offset(&base, i))));
            let key = Expr::Load(Mem::Global(p_keys), Box::new(offset(&base, Expr::Var(at))));
            Item { key: Expr::Var(e.let_var("key", ty, key)), at: Expr::Var(at) }
        };
        let own = item(e, i.clone());
        let both = mul(width.clone(), lit32(2));
        let pair = e.let_var("pair", Ty::I32, sub(i.clone(), int_op(IntOp::Rem, i.clone(), both.clone())));
        let middle = min32(add(Expr::Var(pair), width.clone()), n);
        let middle = e.let_var("middle", Ty::I32, middle);
        let end = e.let_var("end", Ty::I32, min32(add(Expr::Var(pair), both), n));
        let left = e.let_var("left", Ty::Bool, cmp(CmpOp::Lt, i.clone(), Expr::Var(middle)));
        let choose = |a: Expr, b: Expr| Expr::Select(Box::new(Expr::Var(left)), Box::new(a), Box::new(b));
        let start = choose(Expr::Var(middle), Expr::Var(pair));
        let start = e.let_var("start", Ty::I32, start);
        let lo = e.let_var("lo", Ty::I32, Expr::Var(start));
        let hi = e.let_var("hi", Ty::I32, choose(Expr::Var(end), Expr::Var(middle)));
        let body = e.block(|e| {
            let mid = int_op(IntOp::Div, add(Expr::Var(lo), Expr::Var(hi)), lit32(2));
            let mid = Expr::Var(e.let_var("mid", Ty::I32, mid));
            let other = item(e, mid.clone());
            let less = before(ty, &other, &own);
            e.if_else(
                less,
                |e| e.push(Stmt::Set(lo, add(mid.clone(), lit32(1)))),
                |e| e.push(Stmt::Set(hi, mid.clone())),
            );
        });
        e.push(Stmt::While { cond: cmp(CmpOp::Lt, Expr::Var(lo), Expr::Var(hi)), body });
        // Its number in its own run, and how many of the other run come before it.
        let rank = sub(i.clone(), choose(Expr::Var(pair), Expr::Var(middle)));
        let place = add(add(Expr::Var(pair), rank), sub(Expr::Var(lo), Expr::Var(start)));
        let place = e.let_var("to", Ty::I32, place);
        e.push(Stmt::Store(Mem::Global(p_into), offset(&base, Expr::Var(place)), own.at.clone()));
    });
    cx.launch(e);
    Ok(())
}

fn min32(a: Expr, n: i64) -> Expr {
    int_op(IntOp::Min, a, lit32(n as i32))
}
