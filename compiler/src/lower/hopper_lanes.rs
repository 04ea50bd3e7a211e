//! The epilogue's way out on sm_90a where results are no boxes: a warp stores the 16 rows of a piece that it put into
//! the staging tile, row by row, neighbouring lanes neighbouring columns.
//!
//! 16-bit values go in pairs. A line that begins in the middle of a pair has one value before the first pair and one after
//! the last.

use super::contract_coords::{Known, bind, digits, modulo, over, plus, row, times};
use super::contract_epilogue::{define, when};
use super::contract_pattern::ContractShape;
use super::hopper_store::{Piece, Staging, warp_row};
use super::map::own_index;
use super::read::to;
use super::scalar::{Emit, Num, add, and, cast, cmp, int_op, lit32};
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Mem, Special, Stmt, Ty, Unroll};

/// Rows of a piece that a warp stores.
const ROWS: i32 = 16;
/// Rows whose loads are under way at once.
const TOGETHER: u32 = 4;

/// A line of the result.
struct Line {
    to: Mem,
    /// The element at which it begins.
    first: Num,
    /// Its first element in the staging tile, and what its chunks are combined with.
    staged: Expr,
    turn: Expr,
    /// Columns that are there.
    columns: Expr,
}

impl Staging<'_> {
    /// Stores a warp's rows of a piece.
    pub(super) fn by_lanes(&self, e: &mut Emit, shape: &ContractShape, p: &Piece) {
        let pair = e.kernel.array("neighbours", Ty::F32, 2);
        let var = e.kernel.var("line", Ty::I32);
        let body = e.block(|e| {
            let own = plus(warp_row(), Expr::Var(var));
            let local = plus(self.first_row(p), own.clone());
            let local = e.named("at_row", Ty::I32, local);
            let (at, ok) = row(e, &self.tile.m, &p.place.m, local);
            when(e, ok, |e| {
                let Some(line) = self.line(e, shape, p, &at, own) else { return };
                match self.output.map.dtype.bits() {
                    16 => self.pairs(e, &line, pair),
                    _ => {
                        let column = Expr::Special(Special::Lane);
                        let there = cmp(CmpOp::Lt, column.clone(), line.columns.clone());
                        e.if_then(there, |e| self.single(e, &line, column));
                    }
                }
            });
        });
        let (hi, unroll) = (lit32(ROWS), Unroll::By(TOGETHER));
        e.push(Stmt::For { var, lo: lit32(0), hi, step: lit32(1), unroll, body });
    }

    fn line(&self, e: &mut Emit, shape: &ContractShape, p: &Piece, m: &[Expr], own: Expr) -> Option<Line> {
        let d = define(e.graph, shape, 0)?;
        let side = &self.tile.n;
        let (n, _) = row(e, side, &p.place.n, self.first_column(p.piece.clone()));
        let left = int_op(IntOp::Sub, lit32(side.points() as i32), n[0].clone());
        let columns = int_op(IntOp::Min, left, lit32(self.output.columns as i32));
        let columns = e.named("columns", Ty::I32, columns);
        let m = digits(e, &self.tile.m, &shape.m, m);
        let n = digits(e, side, &shape.n, &n);
        bind(e, shape, 0, Known { batch: &p.place.batch, m: &m, n: &n });
        let index = own_index(e, d.target, &d.axes);
        let first = e.offset(d.target, &index);
        let ty = if e.home(d.target).len > i32::MAX as i64 { Ty::I64 } else { Ty::I32 };
        let first = Num { expr: e.named("first", ty, first), ty };
        let staged = plus(self.start(p), times(own.clone(), self.output.columns as i64));
        let staged = e.named("staged_line", Ty::I32, staged);
        let turn = e.named("turn", Ty::I32, self.turn(modulo(own, 8)));
        let to = Mem::Global(e.tensor_param(d.target, true));
        Some(Line { to, first, staged, turn, columns })
    }

    /// A value of the line.
    fn value(&self, line: &Line, column: Expr) -> Expr {
        let chunk = 128 / self.output.map.dtype.bits() as i64;
        let at = times(int_op(IntOp::Xor, over(column.clone(), chunk), line.turn.clone()), chunk);
        let at = plus(plus(line.staged.clone(), at), modulo(column, chunk));
        Expr::Load(Mem::Shared(self.shared), Box::new(at))
    }

    fn single(&self, e: &mut Emit, line: &Line, column: Expr) {
        let to = add(line.first.expr.clone(), to(Num { expr: column.clone(), ty: Ty::I32 }, line.first.ty));
        e.push(Stmt::Store(line.to, to, self.value(line, column)));
    }

    fn pairs(&self, e: &mut Emit, line: &Line, pair: ArrayId) {
        let first = cast(Ty::I32, line.first.expr.clone());
        let shift = e.named("shift", Ty::I32, int_op(IntOp::And, first, lit32(1)));
        let lane = || Expr::Special(Special::Lane);
        let column = e.named("column", Ty::I32, plus(times(lane(), 2), shift.clone()));
        let both = cmp(CmpOp::Lt, plus(column.clone(), lit32(1)), line.columns.clone());
        e.if_else(
            both,
            |e| {
                for w in 0..2 {
                    let value = self.value(line, plus(column.clone(), lit32(w)));
                    e.push(Stmt::SetElem(pair, lit32(w), value));
                }
                let at = to(Num { expr: column.clone(), ty: Ty::I32 }, line.first.ty);
                let index = add(line.first.expr.clone(), at);
                e.push(Stmt::StoreVec { mem: line.to, index, array: pair, at: 0, count: 2 });
            },
            |e| {
                let one = cmp(CmpOp::Lt, column.clone(), line.columns.clone());
                e.if_then(one, |e| self.single(e, line, column.clone()));
            },
        );
        let before = and(cmp(CmpOp::Eq, lane(), lit32(31)), cmp(CmpOp::Eq, shift, lit32(1)));
        let before = and(before, cmp(CmpOp::Gt, line.columns.clone(), lit32(0)));
        e.if_then(before, |e| self.single(e, line, lit32(0)));
    }
}
