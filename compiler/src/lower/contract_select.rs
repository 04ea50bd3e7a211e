//! Products whose B is chosen by data that depends on the row (grouped products, experts): a block reads what its
//! rows choose, and makes one pass for each value among them, in ascending order, which stores the rows that chose
//! it. Where all rows of a tile agree, that is one pass like any other; results do not depend on the order of rows.

use super::contract_coords::{Known, Place, bind as bind_digits, digits, row};
use super::contract_loads::guarded;
use super::contract_pattern::{ContractShape, Selector};
use super::scalar::{Emit, Num, and, cast, cmp, lit32, lit64, widen};
use crate::ir::simt::{CmpOp, Expr, Mem, SharedId, Special, Stmt, Ty, Unroll, VarId};
use crate::ir::tile::Tile;
use crate::vocab::dtype::DType;

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
    read_choices(e, shape, tile, selector, place, choices);
    e.push(Stmt::Barrier);
    let now = e.let_var("choice", Ty::I64, lit64(i64::MIN));
    next(e, tile, choices, now);
    place.chosen = Some((choices, Expr::Var(now)));
    let body = e.block(|e| {
        // The tiles of the pass before are still being read.
        e.push(Stmt::Barrier);
        pass(e, place);
        next(e, tile, choices, now);
    });
    e.push(Stmt::While { cond: cmp(CmpOp::Lt, Expr::Var(now), lit64(OUTSIDE)), body });
}

/// Each row's choice, to shared memory.
fn read_choices(
    e: &mut Emit,
    shape: &ContractShape,
    tile: &Tile,
    selector: &Selector,
    place: &Place,
    choices: SharedId,
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
    e.push(Stmt::For { var, lo, hi, step: lit32(tile.threads as i32), unroll: Unroll::None, body });
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
