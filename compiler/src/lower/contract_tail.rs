//! The last wave of a persistent product: where fewer tiles are left than there are blocks, several blocks share the sum of
//! each, and a second kernel adds their parts in order.

use super::contract_coords::{Place, digits, locate_at, modulo, over, plus, row, times};
use super::contract_epilogue::{Epilogue, unrolled, when};
use super::contract_mma::Accumulators;
use super::contract_operand::Ground;
use super::contract_pattern::ContractShape;
use super::hopper_loop::Steps;
use super::map;
use super::scalar::{Emit, cmp, int_of, int_op, lit32};
use super::{Lowering, Refusal};
use crate::ir::graph::TensorId;
use crate::ir::plan::PlanKernel;
use crate::ir::program::BufferId;
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Mem, ParamId, Special, Stmt, Ty};
use crate::ir::tile::{Tail, Tile};
use crate::vocab::func::Func;
use girih_dsl::ast::Span;

/// The fewest steps that a part has.
const LEAST: i64 = 8;

/// What a block knows of a piece of the last wave.
#[derive(Clone)]
pub struct Shared {
    /// Whether it is one, and the number of its tile among those that are shared.
    pub is: Expr,
    tile: Expr,
}

/// How the last wave of `tiles` is shared, where `blocks` take tile after tile of so many steps each.
pub fn of(tiles: i64, blocks: i64, steps: i64) -> Option<Tail> {
    let left = tiles % blocks;
    if left == 0 || tiles < blocks {
        return None;
    }
    let most = (blocks / left).min(steps / LEAST);
    // Every part has steps.
    let split = (2..=most).rev().find(|s| (s - 1) * ((steps + s - 1) / s) < steps)?;
    Some(Tail { first: tiles - left, split })
}

/// The partial sums of the last wave.
pub fn partials(tile: &Tile, tail: &Tail) -> i64 {
    tile.cluster as i64 * tail.parts(tile.tiles()) * (tile.m.block * tile.n.block) as i64
}

/// The place of a piece of work, and its steps.
pub fn locate(e: &mut Emit, shape: &ContractShape, tile: &Tile, tail: &Tail, number: Expr) -> (Place, Steps) {
    let all = tile.folds[0].steps();
    let per = (all + tail.split - 1) / tail.split;
    let is = e.named("shared", Ty::Bool, cmp(CmpOp::Ge, number.clone(), lit32(tail.first as i32)));
    let pick = |a: Expr, b: Expr| Expr::Select(Box::new(is.clone()), Box::new(a), Box::new(b));
    let piece = int_op(IntOp::Max, plus(number.clone(), lit32(-tail.first as i32)), lit32(0));
    let piece = e.named("piece", Ty::I32, piece);
    let own = e.named("shared_tile", Ty::I32, over(piece.clone(), tail.split));
    let part = e.named("part", Ty::I32, modulo(piece, tail.split));
    let id = pick(plus(own.clone(), lit32(tail.first as i32)), number);
    let id = e.named("tile_id", Ty::I32, id);
    let mut place = locate_at(e, shape, tile, id);
    let first = e.named("first", Ty::I32, times(part.clone(), per));
    let left = int_op(IntOp::Sub, lit32(all as i32), first.clone());
    let count = pick(int_op(IntOp::Min, left, lit32(per as i32)), lit32(all as i32));
    let count = e.named("count", Ty::I32, count);
    place.part = part;
    place.tail = Some(Shared { is, tile: own });
    (place, Steps { first, count })
}

/// Stores a block's accumulators as partial sums.
pub fn store(e: &mut Emit, tile: &Tile, tail: &Tail, place: &Place, acc: ArrayId, work: ParamId) {
    let Some(shared) = &place.tail else { return };
    let layout = Accumulators::of(tile);
    let rank = modulo(Expr::Special(Special::BlockX), tile.cluster as i64);
    let number = plus(times(shared.tile.clone(), tile.cluster as i64), rank);
    let line = plus(times(number, tail.split), place.part.clone());
    let base = e.named("base", Ty::I32, times(line, (tile.m.block * tile.n.block) as i64));
    let pair = e.kernel.array("pair", Ty::F32, 2);
    unrolled(e, "row", layout.rows, |e, r| {
        let at = times(layout.row(r.clone()), tile.n.block as i64);
        let at = e.named("line", Ty::I32, plus(base.clone(), at));
        unrolled(e, "group", layout.groups, |e, g| {
            for w in 0..2 {
                let v = Expr::Elem(acc, Box::new(layout.index(r.clone(), g.clone(), w)));
                e.push(Stmt::SetElem(pair, lit32(w as i32), v));
            }
            let index = plus(at.clone(), layout.column(g));
            e.push(Stmt::StoreVec { mem: Mem::Global(work), index, array: pair, at: 0, count: 2 });
        });
    });
}

/// Neighbouring columns of a thread of the second kernel.
const WIDTH: u32 = 4;

/// The second kernel: a thread some neighbouring columns of a row of the shared tiles.
pub fn reduce<'a>(
    cx: &mut Lowering<'a>,
    k: &'a PlanKernel,
    shape: &ContractShape,
    (tile, tail): (&Tile, &Tail),
    work: BufferId,
    span: Span,
) -> Result<(), Refusal> {
    let size = (tile.m.block * tile.n.block / WIDTH) as i64;
    let groups = partials(tile, tail) / tail.split / WIDTH as i64;
    let mut e = cx.emit(&format!("{}_add", k.name));
    map::grid(&mut e, groups, map::THREADS, span)?;
    e.line(span);
    let work = e.pointer(work, false);
    let number = e.thread_number(groups);
    let inside = cmp(CmpOp::Lt, number.expr.clone(), int_of(number.ty, groups).expr);
    let home = |t: TensorId| cx.home(t).clone();
    let ground = Ground { graph: cx.graph, facts: &cx.facts, shape, home: &home };
    e.if_then(inside, |e| {
        let number = e.named("number", Ty::I32, super::scalar::cast(Ty::I32, number.expr));
        let own = e.named("shared_tile", Ty::I32, over(number.clone(), size));
        let within = e.named("within", Ty::I32, times(modulo(number, size), WIDTH as i64));
        let place = place_of(e, shape, (tile, tail), &own);
        let columns = tile.n.block as i64;
        let (m_at, m_ok) = row(e, &tile.m, &place.m, over(within.clone(), columns));
        when(e, m_ok, |e| {
            let sum = sums(e, (tile, tail), (own, within.clone()), work);
            let m = digits(e, &tile.m, &shape.m, &m_at);
            let column = e.named("column", Ty::I32, modulo(within, columns));
            let epilogue = Epilogue { shape, tile };
            let stash = epilogue.together(e, &ground, WIDTH);
            epilogue.neighbours(e, &place, &m, column, (WIDTH, stash.as_deref()), &|w| {
                vec![Expr::Elem(sum, Box::new(lit32(w as i32)))]
            });
        });
    });
    cx.launch(e);
    Ok(())
}

/// Where a shared tile is.
fn place_of(e: &mut Emit, shape: &ContractShape, (tile, tail): (&Tile, &Tail), own: &Expr) -> Place {
    let cluster = tile.cluster as i64;
    let id = plus(over(own.clone(), cluster), lit32(tail.first as i32));
    let mut place = locate_at(e, shape, tile, id);
    // The tiles of a cluster are neighbours, and this block is none of it.
    let (side, at) = match tile.across {
        true => (&tile.n, &mut place.n[0]),
        false => (&tile.m, &mut place.m[0]),
    };
    let rank = times(modulo(own.clone(), cluster), side.block as i64);
    let stranger = times(modulo(Expr::Special(Special::BlockX), cluster), side.block as i64);
    if cluster > 1 {
        *at = plus(int_op(IntOp::Sub, at.clone(), stranger), rank);
    }
    place
}

/// The sums of a thread's columns: the parts are read at once and added in order.
fn sums(e: &mut Emit, (tile, tail): (&Tile, &Tail), (own, within): (Expr, Expr), work: ParamId) -> ArrayId {
    let size = (tile.m.block * tile.n.block) as i64;
    let first = e.named("first", Ty::I32, plus(times(own, tail.split * size), within));
    let parts = e.kernel.array("parts", Ty::F32, WIDTH * tail.split as u32);
    for i in 0..tail.split {
        let index = plus(first.clone(), lit32((i * size) as i32));
        let at = i as u32 * WIDTH;
        e.push(Stmt::LoadVec { array: parts, at, mem: Mem::Global(work), index, count: WIDTH });
    }
    let total = e.kernel.array("total", Ty::F32, WIDTH);
    for w in 0..WIDTH {
        let part = |i: i64| Expr::Elem(parts, Box::new(lit32((i as u32 * WIDTH + w) as i32)));
        let sum = (0..tail.split).map(part).reduce(|a, b| Expr::Call(Func::Add, vec![a, b]));
        e.push(Stmt::SetElem(total, lit32(w as i32), sum.unwrap_or(lit32(0))));
    }
    total
}
