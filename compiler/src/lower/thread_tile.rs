//! Form `thread` where the steps lie along memory: lanes that each walked their own row would read and write a line for every
//! element. A warp takes 32 rows; what they read is copied some tiles of 32 steps ahead to a ring in shared memory, and what
//! they make leaves through a tile there, both along the rows. The steps themselves are those of the definition, in order.

use super::hopper_loop::call;
use super::map::decode;
use super::read::{Index, to};
use super::recur::{Parts, point_index};
use super::row_layout::vector_write;
use super::scalar::{Emit, Num, add, and, arith, cmp, int_of, int_op, lit32, mul, sub};
use super::scan_flow::{chunk_of, is_plain};
use super::thread::{self, Regs};
use super::{Lowering, MAX_GRID_X};
use crate::ir::graph::{Access, AxisId, Expr as Node, ExprId, Read, TensorId};
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Intrinsic, Mem, SharedId, Special, Stmt, Ty, Unroll};
use std::collections::BTreeMap;

const LANES: i64 = 32;
/// Steps of a tile.
const STEPS: i64 = 32;
/// Steps that a lane loads and stores together.
const GROUP: i64 = 8;
/// Bytes that a multiprocessor should have under way, and the places of a ring.
const UNDER_WAY: i64 = 64 << 10;
const PLACES: std::ops::RangeInclusive<i64> = 3..=12;
/// Multiprocessors, about.
const PROCESSORS: i64 = 132;
/// Bytes of shared memory that a block may take.
const MOST: i64 = 160 << 10;
/// Registers for the places of a lane's copies.
const MOST_COPIES: i64 = 40;
/// Bytes of the widest copy.
const COPY: i64 = 16;

/// A tensor's tile: 32 rows of `STEPS` elements at a pitch that is an odd number of 16 bytes, so that lanes meet in no bank.
struct Side<'a> {
    tensor: TensorId,
    /// A read that the tile takes the place of; none for what is stored.
    read: Option<(ExprId, &'a Read)>,
    /// The axes that the tensor's index is written in, and which of them the steps are.
    member: usize,
    /// Bytes of an element, elements of a copy.
    size: i64,
    chunk: i64,
}

impl Side<'_> {
    /// Elements from a row of the tile to the next.
    fn pitch(&self) -> i64 {
        let bytes = STEPS * self.size;
        (bytes + if bytes / COPY % 2 == 0 { COPY } else { 0 }) / self.size
    }

    fn tile(&self) -> i64 {
        LANES * self.pitch()
    }

    /// Lanes that copy a row together.
    fn lanes(&self) -> i64 {
        STEPS / self.chunk
    }
}

pub(super) struct Tiles<'a> {
    reads: Vec<Side<'a>>,
    writes: Vec<Side<'a>>,
    rows: i64,
    n: i64,
    places: i64,
}

/// The tiles of a recurrence, if all of its states stay in registers and its steps lie along memory.
pub(super) fn find<'a>(
    cx: &Lowering<'a>,
    p: &Parts<'a>,
    states: &BTreeMap<TensorId, i64>,
    outer: &[i64],
) -> Option<Tiles<'a>> {
    let members = &p.recur.members;
    let (step, n) = (p.recur.steps.first()?, p.steps.first()?.count);
    let rows: i64 = outer.iter().product();
    let fits = members.iter().all(|d| states.contains_key(&d.target)) && n >= 2 * STEPS && rows > 0;
    if !fits || (rows + LANES - 1) / LANES > MAX_GRID_X || n >= 1 << 30 || cx.target.compute < (8, 0) {
        return None;
    }
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for (m, d) in members.iter().enumerate() {
        let at = step.position[m];
        if at + 1 != d.axes.len() {
            return None;
        }
        let home = cx.home(d.target);
        if home.ring.is_none() {
            let widths = widths(home.dtype.bits() as i64 / 8);
            let fit = |&v: &i64| match v {
                1 => home.strides[at] == 1,
                v => vector_write(cx.graph, home, d.target, &d.axes, &[d.axes[at]], v) == Some(v),
            };
            let (chunk, size) = (widths.into_iter().find(fit)?, home.dtype.bits() as i64 / 8);
            writes.push(Side { tensor: d.target, read: None, member: m, size, chunk });
        }
        for expr in crate::pass::inline::below(cx.graph, d.value) {
            let Node::Read(read) = cx.graph.expr(expr) else { continue };
            if states.contains_key(&read.tensor)
                || reads.iter().any(|r: &Side| r.read.is_some_and(|r| r.0 == expr))
            {
                continue;
            }
            if let Some(side) = ahead(cx, (expr, read), &d.axes, m) {
                reads.push(side);
            }
        }
    }
    let copies: i64 = reads.iter().map(Side::lanes).sum();
    let bytes = |s: &[Side]| s.iter().map(|s| s.tile() * s.size).sum::<i64>();
    let (tile, out) = (bytes(&reads), bytes(&writes));
    let each = ((rows + LANES - 1) / LANES + PROCESSORS - 1) / PROCESSORS;
    if tile == 0 || copies > MOST_COPIES || tile * PLACES.start() + out > MOST {
        return None;
    }
    let most = ((MOST - out) / tile).min(*PLACES.end());
    let places = (UNDER_WAY / each / tile).clamp(*PLACES.start(), most);
    Some(Tiles { reads, writes, rows, n, places })
}

/// Elements of a copy of 16, 8 or 4 bytes.
fn widths(size: i64) -> Vec<i64> {
    [16, 8, 4].into_iter().filter(|b| size > 0 && b / size > 0).map(|b| b / size).collect()
}

/// A read whose elements of a row follow each other in memory as the steps do.
fn ahead<'a>(
    cx: &Lowering<'a>,
    (expr, read): (ExprId, &'a Read),
    axes: &[AxisId],
    member: usize,
) -> Option<Side<'a>> {
    let home = cx.home(read.tensor);
    let (along, size) = (*axes.last()?, home.dtype.bits() as i64 / 8);
    let fit = |&v: &i64| match v {
        1 => single(cx, (expr, read), axes, along),
        v => chunk_of(cx.graph, &cx.facts, home, (expr, read), axes, along, v) == Some(v),
    };
    let chunk = widths(size).into_iter().find(fit)?;
    Some(Side { tensor: read.tensor, read: Some((expr, read)), member, size, chunk })
}

/// The same where rows begin anywhere, and elements are copied one by one.
fn single(cx: &Lowering<'_>, (expr, read): (ExprId, &Read), axes: &[AxisId], along: AxisId) -> bool {
    let (graph, home) = (cx.graph, cx.home(read.tensor));
    let plain = |(d, &i): (usize, &ExprId)| match graph.expr(i) {
        Node::Axis(a) if *a == along => home.strides[d] == 1,
        _ => is_plain(graph, i, axes) && !cx.facts.free(i).contains(&along) && !cx.facts.may_fault(i),
    };
    read.access == Access::Proven
        && graph.tensor(read.tensor).range.is_none()
        && crate::pass::bounds::read_is_safe(graph, read)
        && cx.facts.free(expr).contains(&along)
        && read.index.iter().enumerate().all(plain)
}

/// A side in the kernel: its shared memory, its elements' array, and where the copies of each lane's rows begin.
struct Placed<'s, 'a> {
    side: &'s Side<'a>,
    shared: SharedId,
    mem: Mem,
    array: ArrayId,
    /// For each turn of the warp the first element of the lane's row, and whether that row exists.
    from: Vec<(Expr, Option<Expr>)>,
    ty: Ty,
    /// The lane's first row and element in the tile.
    row: Expr,
    column: Expr,
}

pub(super) fn lower<'a>(
    cx: &mut Lowering<'a>,
    p: &Parts<'a>,
    (name, outer): (&str, &[i64]),
    tiles: &Tiles<'a>,
) {
    let mut e = cx.emit(name);
    let states = thread::states(cx.graph, p);
    e.kernel.block = [LANES as u32, 1, 1];
    e.kernel.grid = [((tiles.rows + LANES - 1) / LANES) as u32, 1, 1];
    e.line(p.span);
    let first = mul(Expr::Special(Special::BlockX), lit32(LANES as i32));
    let first = e.named("first", Ty::I32, first);
    let ins: Vec<Placed> = tiles.reads.iter().map(|s| place(&mut e, p, (s, outer, tiles), &first)).collect();
    let outs: Vec<Placed> =
        tiles.writes.iter().map(|s| place(&mut e, p, (s, outer, tiles), &first)).collect();
    let own = add(first, Expr::Special(Special::Lane));
    let own = e.named("row", Ty::I32, own);
    let valid = tiles.inside(&own);
    let own = tiles.clamped(&mut e, own);
    let free = decode(&mut e, Num { expr: own, ty: Ty::I32 }, outer);
    let vars = thread::declare(&mut e, &states);
    for k in 0..tiles.places - 1 {
        tiles.copy(&mut e, p, &ins, &lit32(k as i32), &lit32(k as i32));
    }
    let at = e.let_var("place", Ty::I32, lit32(0));
    let var = e.kernel.var("tile", Ty::I32);
    let body = e.block(|e| {
        call(e, Intrinsic::CpAsyncWait(tiles.places as u8 - 2), Vec::new());
        e.push(Stmt::WarpBarrier);
        let before = cmp(CmpOp::Eq, Expr::Var(at), lit32(0));
        let last = lit32(tiles.places as i32 - 1);
        let unused = Expr::Select(Box::new(before), Box::new(last), Box::new(sub(Expr::Var(at), lit32(1))));
        let unused = e.named("free", Ty::I32, unused);
        tiles.copy(e, p, &ins, &add(Expr::Var(var), lit32(tiles.places as i32 - 1)), &unused);
        let start = tiles.start(e, p, Expr::Var(var));
        steps(e, p, tiles, (&ins, &outs), (&start, at), (&free, &valid), &vars);
        e.push(Stmt::WarpBarrier);
        outs.iter().for_each(|o| tiles.store(e, o, &start));
        let next = add(Expr::Var(at), lit32(1));
        let wrapped = cmp(CmpOp::Eq, next.clone(), lit32(tiles.places as i32));
        e.push(Stmt::Set(at, Expr::Select(Box::new(wrapped), Box::new(lit32(0)), Box::new(next))));
    });
    let (lo, hi, step) = (lit32(0), lit32(tiles.count() as i32), lit32(1));
    e.push(Stmt::For { var, lo, hi, step, unroll: Unroll::None, body });
    call(&mut e, Intrinsic::CpAsyncWait(0), Vec::new());
    vars.keys().for_each(|&t| e.unstage(t));
    cx.launch(e);
}

/// Shared memory for a side, and where its rows lie.
fn place<'s, 'a>(
    e: &mut Emit<'a>,
    p: &Parts<'a>,
    (side, outer, tiles): (&'s Side<'a>, &[i64], &Tiles<'a>),
    first: &Expr,
) -> Placed<'s, 'a> {
    let (graph, home) = (e.graph, e.home(side.tensor));
    let name = graph.tensor(side.tensor).name.clone();
    let places = if side.read.is_some() { tiles.places } else { 1 };
    let shared =
        e.kernel.shared(format!("tile_{name}"), home.dtype, (places * side.tile()) as u32, COPY as u32);
    let mem = Mem::Global(e.tensor_param(side.tensor, side.read.is_none()));
    let array = e.kernel.array(format!("own_{name}"), Ty::of(home.dtype.compute()), GROUP as u32);
    let ty = home.index_ty();
    let lane = || Expr::Special(Special::Lane);
    let row = int_op(IntOp::Div, lane(), lit32(side.lanes() as i32));
    let row = e.named("row", Ty::I32, row);
    let column = mul(int_op(IntOp::Rem, lane(), lit32(side.lanes() as i32)), lit32(side.chunk as i32));
    let column = e.named("column", Ty::I32, column);
    let together = LANES / side.lanes();
    let from = (0..LANES / together)
        .map(|i| {
            let row = add(first.clone(), add(row.clone(), lit32((i * together) as i32)));
            let row = e.named("row", Ty::I32, row);
            let valid = tiles.inside(&row).map(|v| e.named("in_rows", Ty::Bool, v));
            let row = tiles.clamped(e, row);
            let free = decode(e, Num { expr: row, ty: Ty::I32 }, outer);
            let at = e.let_var("from", ty, int_of(ty, 0).expr);
            e.scope(|e| {
                let index = bound_index(e, p, side, &free);
                let value = e.offset(side.tensor, &index);
                e.push(Stmt::Set(at, value));
            });
            (Expr::Var(at), valid)
        })
        .collect();
    Placed { side, shared, mem, array, from, ty, row, column }
}

/// The index of a side's first step in a row.
fn bound_index<'a>(e: &mut Emit<'a>, p: &Parts<'a>, side: &Side<'a>, free: &[Num]) -> Vec<Index> {
    let d = &p.recur.members[side.member];
    let t = e.graph.tensor(d.target);
    for (&q, n) in p.free[side.member].iter().zip(free) {
        let v = arith(IntOp::Add, n.clone(), int_of(n.ty, t.lo[q]));
        let v = Num { expr: e.named("ax", v.ty, v.expr), ty: v.ty };
        e.bind_axis(d.axes[q], v.expr, v.ty);
    }
    let last = d.axes.len() - 1;
    e.bind_axis(d.axes[last], int_of(Ty::I32, t.lo[last]).expr, Ty::I32);
    match side.read {
        Some((_, read)) => read.index.iter().map(|&i| e.index(i)).collect(),
        None => point_index(e, d),
    }
}

/// The steps of a tile: each group's reads, its steps in their order, its results.
fn steps<'a>(
    e: &mut Emit<'a>,
    p: &Parts<'a>,
    tiles: &Tiles<'a>,
    (ins, outs): (&[Placed<'_, 'a>], &[Placed<'_, 'a>]),
    (start, at): (&Expr, crate::ir::simt::VarId),
    (free, valid): (&[Num], &Option<Expr>),
    vars: &BTreeMap<TensorId, Regs>,
) {
    let descending = p.steps[0].descending;
    let var = e.kernel.var("group", Ty::I32);
    let body = e.block(|e| {
        let group = match descending {
            true => sub(lit32((STEPS - GROUP) as i32), Expr::Var(var)),
            false => Expr::Var(var),
        };
        let group = e.named("group", Ty::I32, group);
        for i in ins {
            let from = mul(Expr::Var(at), lit32(i.side.tile() as i32));
            let index = add(add(from, i.own_row()), group.clone());
            let index = e.named("own", Ty::I32, index);
            i.pieces(|by, count| Stmt::LoadVec {
                array: i.array,
                at: by as u32,
                mem: Mem::Shared(i.shared),
                index: add(index.clone(), lit32(by as i32)),
                count: count as u32,
            })
            .for_each(|s| e.push(s));
        }
        if tiles.n % STEPS != 0 {
            for (o, j) in outs.iter().flat_map(|o| (0..GROUP).map(move |j| (o, j))) {
                let ty = Ty::of(e.graph.tensor(o.side.tensor).dtype.compute());
                e.push(Stmt::SetElem(o.array, lit32(j as i32), super::arith::default_of(ty)));
            }
        }
        for j in 0..GROUP {
            let j = if descending { GROUP - 1 - j } else { j };
            let t = add(start.clone(), add(group.clone(), lit32(j as i32)));
            let t = e.named("at", Ty::I32, t);
            let one = |e: &mut Emit<'a>| one_step(e, p, (ins, outs), (j, &t), (free, valid), vars);
            match tiles.n % STEPS {
                0 => e.scope(one),
                _ => e.if_then(cmp(CmpOp::Lt, t.clone(), lit32(tiles.n as i32)), one),
            }
        }
        for o in outs {
            let index = e.named("own", Ty::I32, add(o.own_row(), group.clone()));
            o.pieces(|by, count| Stmt::StoreVec {
                array: o.array,
                at: by as u32,
                mem: Mem::Shared(o.shared),
                index: add(index.clone(), lit32(by as i32)),
                count: count as u32,
            })
            .for_each(|s| e.push(s));
        }
    });
    let (lo, hi, step) = (lit32(0), lit32(STEPS as i32), lit32(GROUP as i32));
    e.push(Stmt::For { var, lo, hi, step, unroll: Unroll::None, body });
}

/// One step at a place of its group, with what was copied in the place of reads.
fn one_step<'a>(
    e: &mut Emit<'a>,
    p: &Parts<'a>,
    (ins, outs): (&[Placed<'_, 'a>], &[Placed<'_, 'a>]),
    (j, t): (i64, &Expr),
    (free, valid): (&[Num], &Option<Expr>),
    vars: &BTreeMap<TensorId, Regs>,
) {
    let slot = || lit32(j as i32);
    let number = match p.steps[0].descending {
        true => sub(lit32((p.steps[0].count - 1) as i32), t.clone()),
        false => t.clone(),
    };
    let number = Num { expr: e.named("step", Ty::I32, number), ty: Ty::I32 };
    for i in ins {
        if let Some((expr, _)) = i.side.read {
            let v = Expr::Elem(i.array, Box::new(slot()));
            let v = e.named("in", Ty::of(e.graph.ty(expr)), v);
            e.bind(expr, v);
        }
    }
    vars.iter().for_each(|(&t, regs)| thread::stage(e, p, t, regs.clone(), number.clone()));
    for (m, d) in p.recur.members.iter().enumerate() {
        let out = outs.iter().find(|o| o.side.tensor == d.target);
        let regs = &vars[&d.target];
        p.define_with(e, m, std::slice::from_ref(&number), (free, &[]), &mut |e, index, v| {
            match (out, valid) {
                (Some(o), _) => e.push(Stmt::SetElem(o.array, slot(), v.expr.clone())),
                (None, Some(valid)) => {
                    e.if_then(valid.clone(), |e| super::recur::store(e, d, index, &v));
                }
                (None, None) => super::recur::store(e, d, index, &v),
            }
            let v = to(v, regs.ty);
            e.push(Stmt::Set(regs.now, v));
        });
    }
    vars.values().for_each(|regs| thread::shift(e, regs));
}

impl Placed<'_, '_> {
    /// The first element of the lane's own row in a tile.
    fn own_row(&self) -> Expr {
        mul(Expr::Special(Special::Lane), lit32(self.side.pitch() as i32))
    }

    /// A group's elements as accesses of 16 bytes at most.
    fn pieces<'f>(&self, f: impl Fn(i64, i64) -> Stmt + 'f) -> impl Iterator<Item = Stmt> + 'f {
        let count = GROUP.min(COPY / self.side.size);
        (0..GROUP / count).map(move |i| f(i * count, count))
    }

    /// The lane's element of a turn in the tile.
    fn element(&self, turn: usize) -> Expr {
        let together = LANES / self.side.lanes();
        let row = add(self.row.clone(), lit32((turn as i64 * together) as i32));
        add(mul(row, lit32(self.side.pitch() as i32)), self.column.clone())
    }

    /// A turn's element in memory, from a step on.
    fn address(&self, turn: usize, step: &Expr) -> Expr {
        let step = Num { expr: to(Num { expr: step.clone(), ty: Ty::I32 }, self.ty), ty: self.ty };
        arith(IntOp::Add, Num { expr: self.from[turn].0.clone(), ty: self.ty }, step).expr
    }
}

impl<'a> Tiles<'a> {
    fn count(&self) -> i64 {
        (self.n + STEPS - 1) / STEPS
    }

    /// Whether a row exists, where that is in question.
    fn inside(&self, row: &Expr) -> Option<Expr> {
        (self.rows % LANES != 0).then(|| cmp(CmpOp::Lt, row.clone(), lit32(self.rows as i32)))
    }

    fn clamped(&self, e: &mut Emit<'a>, row: Expr) -> Expr {
        if self.rows % LANES == 0 {
            return row;
        }
        let row = int_op(IntOp::Min, row, lit32((self.rows - 1) as i32));
        e.named("row", Ty::I32, row)
    }

    /// The first step of a tile in memory; tiles are counted in the order of the steps.
    fn start(&self, e: &mut Emit<'a>, p: &Parts<'a>, tile: Expr) -> Expr {
        let tile = match p.steps[0].descending {
            true => sub(lit32(self.count() as i32 - 1), tile),
            false => tile,
        };
        e.named("start", Ty::I32, mul(tile, lit32(STEPS as i32)))
    }

    /// Starts the copies of a tile, if there is one.
    fn copy(&self, e: &mut Emit<'a>, p: &Parts<'a>, ins: &[Placed<'_, 'a>], tile: &Expr, place: &Expr) {
        let tile = e.named("ahead", Ty::I32, tile.clone());
        e.if_then(cmp(CmpOp::Lt, tile.clone(), lit32(self.count() as i32)), |e| {
            let start = self.start(e, p, tile);
            for i in ins {
                let step = add(start.clone(), i.column.clone());
                let step = e.named("at", Ty::I32, step);
                let bytes = lit32((i.side.chunk * i.side.size) as i32);
                // What is beyond the last step is zero.
                let (step, valid) = match self.n % STEPS {
                    0 => (step, bytes),
                    _ => {
                        let inside = cmp(CmpOp::Lt, step.clone(), lit32(self.n as i32));
                        let inside = e.named("inside", Ty::Bool, inside);
                        let or_none =
                            |v| Expr::Select(Box::new(inside.clone()), Box::new(v), Box::new(lit32(0)));
                        let step = e.named("at", Ty::I32, or_none(step));
                        (step, e.named("bytes", Ty::I32, or_none(bytes)))
                    }
                };
                let base = mul(place.clone(), lit32(i.side.tile() as i32));
                let base = e.named("base", Ty::I32, base);
                for turn in 0..i.from.len() {
                    let to = add(base.clone(), i.element(turn));
                    let to = Expr::SharedAddr(i.shared, Box::new(to));
                    let Mem::Global(mem) = i.mem else { continue };
                    let op = Intrinsic::CpAsync { mem, bytes: (i.side.chunk * i.side.size) as u8 };
                    let args = vec![to, i.address(turn, &step), valid.clone()];
                    e.push(Stmt::Intrinsic { op, outs: Vec::new(), args });
                }
            }
        });
        call(e, Intrinsic::CpAsyncCommit, Vec::new());
    }

    /// Stores a tile of results.
    fn store(&self, e: &mut Emit<'a>, o: &Placed<'_, 'a>, start: &Expr) {
        let step = e.named("at", Ty::I32, add(start.clone(), o.column.clone()));
        let inside = (self.n % STEPS != 0).then(|| cmp(CmpOp::Lt, step.clone(), lit32(self.n as i32)));
        let count = o.side.chunk as u32;
        let words = e.kernel.array("words", Ty::U32, (o.side.chunk * o.side.size / 4) as u32);
        for turn in 0..o.from.len() {
            let from = e.named("own", Ty::I32, o.element(turn));
            let index = e.named("to", o.ty, o.address(turn, &step));
            let cond = inside.clone().into_iter().chain(o.from[turn].1.clone()).reduce(and);
            let both = |e: &mut Emit<'a>| {
                let (array, at, mem) = (words, 0, Mem::Shared(o.shared));
                e.push(Stmt::LoadVec { array, at, mem, index: from.clone(), count });
                e.push(Stmt::StoreVec { mem: o.mem, index: index.clone(), array, at, count });
            };
            match cond {
                Some(cond) => e.if_then(cond, both),
                None => e.scope(both),
            }
        }
    }
}
