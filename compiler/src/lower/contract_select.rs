//! Products whose B is chosen by data that depends on the row (grouped products, experts): a block reads what its
//! rows choose, and makes one pass for each value among them, in ascending order, which stores the rows that chose
//! it. Where all rows of a tile agree, that is one pass like any other; results do not depend on the order of rows.

use super::Lowering;
use super::contract_coords::{
    Choices, Chosen, Known, Place, bind as bind_digits, digits, modulo, over, plus, row, times,
};
use super::contract_loads::guarded;
use super::contract_pattern::{ContractShape, Selector};
use super::map::decode;
use super::scalar::{Emit, Num, and, cast, cmp, lit32, lit64, widen};
use crate::ir::program::BufferId;
use crate::ir::simt::{CmpOp, Expr, Mem, ParamId, SharedId, Special, Stmt, Ty, Unroll, VarId};
use crate::ir::tile::Tile;
use crate::vocab::dtype::DType;
use girih_dsl::ast::Span;

/// What rows that do not look at the sum choose: they are stored by a pass without terms.
const NONE: i64 = i64::MIN + 1;
/// What rows beyond the output choose.
const OUTSIDE: i64 = i64::MAX;

/// Emits `pass` in a loop over the choices of the block's rows.
pub fn each_choice(
    e: &mut Emit,
    shape: &ContractShape,
    tile: &Tile,
    selector: &Selector,
    place: &mut Place,
    pass: impl FnOnce(&mut Emit, &Place),
) {
    let choices = e.kernel.shared("choices", DType::I64, tile.m.block, 16);
    read_choices(e, shape, tile, selector, place, choices, tile.threads);
    e.push(Stmt::Barrier);
    let now = e.let_var("choice", Ty::I64, lit64(i64::MIN));
    next(e, tile, choices, now);
    place.chosen = Some(Chosen { rows: Choices::Shared(choices), now: Expr::Var(now) });
    let body = e.block(|e| {
        // The tiles of the pass before are still being read.
        e.push(Stmt::Barrier);
        pass(e, place);
        next(e, tile, choices, now);
    });
    e.push(Stmt::While { cond: cmp(CmpOp::Lt, Expr::Var(now), lit64(OUTSIDE)), body });
}

/// A kernel that lists the choices of each tile's rows, where one thread could not find them while it copies. For each
/// tile of rows: how many there are, they themselves in ascending order, and each row's own.
pub fn list(
    cx: &mut Lowering,
    name: &str,
    shape: &ContractShape,
    tile: &Tile,
    selector: &Selector,
    span: Span,
) -> BufferId {
    let block = tile.m.block;
    let tiles = tile.batch * tile.m.tiles();
    let buffer = cx.workspace(format!("{name}_choices"), DType::I64, &[tiles * entry(tile)]);
    let mut e = cx.emit(&format!("{name}_choose"));
    e.kernel.grid = [tiles as u32, 1, 1];
    e.kernel.block = [block, 1, 1];
    e.line(span);
    let to = Mem::Global(e.pointer(buffer, true));
    let id = Expr::Special(Special::BlockX);
    let batch_number = e.named("batch", Ty::I32, over(id.clone(), tile.m.tiles()));
    let m0 = e.named("m0", Ty::I32, times(modulo(id.clone(), tile.m.tiles()), block as i64));
    let dims: Vec<i64> = shape.batch.iter().map(|d| d.extent).collect();
    let batch = decode(&mut e, Num { expr: batch_number.clone(), ty: Ty::I32 }, &dims);
    let (m, n, part) = (vec![m0], vec![lit32(0)], lit32(0));
    let place = Place { batch, batch_number, m, n, part, chosen: None, tail: None };
    let choices = e.kernel.shared("choices", DType::I64, block, 16);
    let firsts = e.kernel.shared("firsts", DType::I32, block, 16);
    read_choices(&mut e, shape, tile, selector, &place, choices, block);
    e.push(Stmt::Barrier);
    let me = || Expr::Special(Special::ThreadX);
    let load = |s: SharedId, at: Expr| Expr::Load(Mem::Shared(s), Box::new(at));
    let own = e.named("own", Ty::I64, load(choices, me()));
    let first = e.let_var("first", Ty::I32, lit32(1));
    let gone = cmp(CmpOp::Eq, own.clone(), lit64(OUTSIDE));
    e.if_then(gone, |e| e.push(Stmt::Set(first, lit32(0))));
    rows(&mut e, block, |e, row| {
        let before = and(cmp(CmpOp::Lt, row.clone(), me()), cmp(CmpOp::Eq, load(choices, row), own.clone()));
        e.if_then(before, |e| e.push(Stmt::Set(first, lit32(0))));
    });
    e.push(Stmt::Store(Mem::Shared(firsts), me(), Expr::Var(first)));
    e.push(Stmt::Barrier);
    let count = e.let_var("count", Ty::I32, lit32(0));
    let rank = e.let_var("rank", Ty::I32, lit32(0));
    rows(&mut e, block, |e, row| {
        let new = cmp(CmpOp::Ne, load(firsts, row.clone()), lit32(0));
        e.if_then(new, |e| {
            e.push(Stmt::Set(count, plus(Expr::Var(count), lit32(1))));
            let less = cmp(CmpOp::Lt, load(choices, row), own.clone());
            e.if_then(less, |e| e.push(Stmt::Set(rank, plus(Expr::Var(rank), lit32(1)))));
        });
    });
    let base = e.named("base", Ty::I32, times(id, entry(tile)));
    let at = |x: Expr, more: i64| plus(plus(base.clone(), x), lit32(more as i32));
    let is_first = cmp(CmpOp::Ne, Expr::Var(first), lit32(0));
    e.if_then(is_first, |e| e.push(Stmt::Store(to, at(Expr::Var(rank), 1), own.clone())));
    e.if_then(cmp(CmpOp::Eq, me(), lit32(0)), |e| {
        e.push(Stmt::Store(to, base.clone(), cast(Ty::I64, Expr::Var(count))));
    });
    e.push(Stmt::Store(to, at(me(), 1 + block as i64), own));
    cx.launch(e);
    buffer
}

fn rows(e: &mut Emit, block: u32, f: impl FnOnce(&mut Emit, Expr)) {
    let var = e.kernel.var("row", Ty::I32);
    let body = e.block(|e| f(e, Expr::Var(var)));
    let hi = lit32(block as i32);
    e.push(Stmt::For { var, lo: lit32(0), hi, step: lit32(1), unroll: Unroll::By(8), body });
}

/// Elements of a tile's part of the list.
fn entry(tile: &Tile) -> i64 {
    1 + 2 * tile.m.block as i64
}

/// The first element of a tile's part of the list.
fn listed(tile: &Tile, place: &Place) -> Expr {
    let number = plus(
        times(place.batch_number.clone(), tile.m.tiles()),
        over(place.m[0].clone(), tile.m.block as i64),
    );
    times(number, entry(tile))
}

/// Emits `pass` in a loop over the listed choices of a tile's rows.
pub fn each_listed(
    e: &mut Emit,
    tile: &Tile,
    list: ParamId,
    place: &mut Place,
    pass: &mut dyn FnMut(&mut Emit, &Place),
) {
    let base = e.named("listed", Ty::I32, listed(tile, place));
    let load = |at: Expr| Expr::Load(Mem::Global(list), Box::new(at));
    let hi = e.named("passes", Ty::I32, cast(Ty::I32, load(base.clone())));
    let var = e.kernel.var("pass", Ty::I32);
    let body = e.block(|e| {
        let now = load(plus(plus(base.clone(), Expr::Var(var)), lit32(1)));
        let now = e.named("choice", Ty::I64, now);
        let own = Num { expr: plus(base.clone(), lit32(1 + tile.m.block as i32)), ty: Ty::I32 };
        place.chosen = Some(Chosen { rows: Choices::Global(list, own), now });
        pass(e, place);
    });
    e.push(Stmt::For { var, lo: lit32(0), hi, step: lit32(1), unroll: Unroll::None, body });
}

/// Whether all rows of a tile choose the same.
pub fn one(tile: &Tile, list: ParamId, place: &Place) -> Expr {
    cmp(CmpOp::Eq, Expr::Load(Mem::Global(list), Box::new(listed(tile, place))), lit64(1))
}

/// Each row's choice, to shared memory.
fn read_choices(
    e: &mut Emit,
    shape: &ContractShape,
    tile: &Tile,
    selector: &Selector,
    place: &Place,
    choices: SharedId,
    threads: u32,
) {
    let var = e.kernel.var("row", Ty::I32);
    let body = e.block(|e| {
        let choice = e.let_var("choice", Ty::I64, lit64(OUTSIDE));
        let (at, ok) = row(e, &tile.m, &place.m, Expr::Var(var));
        let find = |e: &mut Emit| {
            let m = digits(e, &tile.m, &shape.m, &at);
            bind_digits(e, shape, selector.stmt, Known { batch: &place.batch, m: &m, n: &[] });
            e.push(Stmt::Set(choice, lit64(NONE)));
            guarded(e, &selector.guards, &mut |e| {
                let n = e.num(selector.expr);
                e.push(Stmt::Set(choice, widen(n).expr));
            });
        };
        match ok {
            Some(cond) => e.if_then(cond, find),
            None => e.scope(find),
        }
        e.push(Stmt::Store(Mem::Shared(choices), Expr::Var(var), Expr::Var(choice)));
    });
    let (lo, hi) = (Expr::Special(Special::ThreadX), lit32(tile.m.block as i32));
    e.push(Stmt::For { var, lo, hi, step: lit32(threads as i32), unroll: Unroll::None, body });
}

/// now = the least choice above it.
fn next(e: &mut Emit, tile: &Tile, choices: SharedId, now: VarId) {
    let least = e.let_var("least", Ty::I64, lit64(OUTSIDE));
    let var = e.kernel.var("row", Ty::I32);
    let body = e.block(|e| {
        let own = Expr::Load(Mem::Shared(choices), Box::new(Expr::Var(var)));
        let own = e.named("own", Ty::I64, own);
        let above = cmp(CmpOp::Gt, own.clone(), Expr::Var(now));
        let less = and(above, cmp(CmpOp::Lt, own.clone(), Expr::Var(least)));
        e.push(Stmt::If { cond: less, then: vec![Stmt::Set(least, own)], otherwise: Vec::new() });
    });
    let (lo, hi) = (lit32(0), lit32(tile.m.block as i32));
    e.push(Stmt::For { var, lo, hi, step: lit32(1), unroll: Unroll::By(8), body });
    e.push(Stmt::Set(now, Expr::Var(least)));
}

/// Gives the selector the value whose pass this is (any value in a pass without terms).
pub fn bind(e: &mut Emit, selector: &Selector, now: &Expr) {
    let none = cmp(CmpOp::Eq, now.clone(), lit64(NONE));
    let value = Expr::Select(Box::new(none), Box::new(lit64(0)), Box::new(now.clone()));
    let value = e.named("chosen", Ty::I64, value);
    let ty = Ty::of(e.graph.ty(selector.expr));
    let expr = if ty == Ty::I64 { value } else { cast(ty, value) };
    e.bind_num(selector.expr, Num { expr, ty });
}

/// A number of steps, or none in a pass without terms.
pub fn unless_none(e: &mut Emit, now: &Expr, count: Expr) -> Expr {
    let none = cmp(CmpOp::Eq, now.clone(), lit64(NONE));
    e.named("count", Ty::I32, Expr::Select(Box::new(none), Box::new(lit32(0)), Box::new(count)))
}
