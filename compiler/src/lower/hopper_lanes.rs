//! The epilogue's way out on sm_90a where results are no boxes: a warp stores the 16 rows of a piece that it put into
//! the staging tile, row by row, neighbouring lanes neighbouring columns.
//!
//! 16-bit values go in pairs. A line that begins in the middle of a pair has one value before the first pair and one after
//! the last. Some lines are read from shared memory before the first of them is stored, so that none waits alone.

use super::contract_coords::{Known, bind, clamp, digits, fold_op, modulo, over, plus, row, times};
use super::contract_epilogue::{define, when};
use super::contract_pattern::ContractShape;
use super::hopper_store::{Piece, Staging, warp_row};
use super::map::own_index;
use super::read::to;
use super::scalar::{Emit, Num, add, and, cast, cmp, int_op, lit32};
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Mem, Special, Stmt, Ty, Unroll};

/// Rows of a piece that a warp stores.
const ROWS: i32 = 16;
/// Rows that are read together.
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
    /// The first of a lane's columns, and whether it is the second of a pair.
    column: Expr,
    shift: Expr,
    /// Whether the row is there.
    there: Option<Expr>,
}

impl Staging<'_> {
    /// Stores a warp's rows of a piece.
    pub(super) fn by_lanes(&self, e: &mut Emit, shape: &ContractShape, p: &Piece) {
        let values = e.kernel.array("neighbours", Ty::F32, TOGETHER * self.width());
        let var = e.kernel.var("lines", Ty::I32);
        let each = |e: &mut Emit, f: &dyn Fn(&Self, &mut Emit, &Line, u32)| {
            for i in 0..TOGETHER {
                let own = plus(warp_row(), plus(Expr::Var(var), lit32(i as i32)));
                e.scope(|e| {
                    let Some(line) = self.line(e, shape, p, own) else { return };
                    f(self, e, &line, i * self.width());
                });
            }
        };
        let body = e.block(|e| {
            each(e, &|this, e, line, at| this.read_line(e, line, values, at));
            each(e, &|this, e, line, at| {
                when(e, line.there.clone(), |e| this.store_line(e, line, values, at));
            });
        });
        let (hi, step) = (lit32(ROWS), lit32(TOGETHER as i32));
        e.push(Stmt::For { var, lo: lit32(0), hi, step, unroll: Unroll::None, body });
    }

    /// Neighbouring columns of a lane.
    fn width(&self) -> u32 {
        32 / self.output.map.dtype.bits()
    }

    fn line(&self, e: &mut Emit, shape: &ContractShape, p: &Piece, own: Expr) -> Option<Line> {
        let d = define(e.graph, shape, 0)?;
        let local = e.named("at_row", Ty::I32, plus(self.first_row(p), own.clone()));
        let (m, there) = row(e, &self.tile.m, &p.place.m, local);
        // Lines beyond the last have places too: they must be numbers, though nothing is stored there.
        let rows = self.tile.m.points().max(1);
        let beyond = e.home(d.target).len / rows * self.tile.m.block as i64;
        let m = if e.home(d.target).len + beyond > i32::MAX as i64 { clamp(e, &self.tile.m, m) } else { m };
        let side = &self.tile.n;
        let (n, _) = row(e, side, &p.place.n, self.first_column(p.piece.clone()));
        let left = int_op(IntOp::Sub, lit32(side.points() as i32), n[0].clone());
        let columns = int_op(IntOp::Min, left, lit32(self.output.columns as i32));
        let columns = e.named("columns", Ty::I32, columns);
        let m = digits(e, &self.tile.m, &shape.m, &m);
        let n = digits(e, side, &shape.n, &n);
        bind(e, shape, 0, Known { batch: &p.place.batch, m: &m, n: &n });
        let index = own_index(e, d.target, &d.axes);
        let first = e.offset(d.target, &index);
        let ty = e.home(d.target).index_ty();
        let first = Num { expr: e.named("first", ty, first), ty };
        let staged = plus(self.start(p), times(own.clone(), self.output.columns as i64));
        let staged = e.named("staged_line", Ty::I32, staged);
        let turn = e.named("turn", Ty::I32, self.turn(modulo(own, 8)));
        let to = Mem::Global(e.tensor_param(d.target, true));
        let pairs = self.width() as i64;
        let shift = fold_op(IntOp::And, cast(Ty::I32, first.expr.clone()), lit32(pairs as i32 - 1));
        let shift = e.named("shift", Ty::I32, shift);
        let column = plus(times(Expr::Special(Special::Lane), pairs), shift.clone());
        let column = e.named("column", Ty::I32, column);
        Some(Line { to, first, staged, turn, columns, column, shift, there })
    }

    /// A value of the line.
    fn value(&self, line: &Line, column: Expr) -> Expr {
        let chunk = 128 / self.output.map.dtype.bits() as i64;
        let at = times(int_op(IntOp::Xor, over(column.clone(), chunk), line.turn.clone()), chunk);
        let at = plus(plus(line.staged.clone(), at), modulo(column, chunk));
        Expr::Load(Mem::Shared(self.shared), Box::new(at))
    }

    /// A lane's columns of a line; beyond its end, the last.
    fn read_line(&self, e: &mut Emit, line: &Line, values: ArrayId, at: u32) {
        let last = lit32(self.output.columns as i32 - 1);
        for w in 0..self.width() {
            let column = plus(line.column.clone(), lit32(w as i32));
            let column = e.named("at_column", Ty::I32, int_op(IntOp::Min, column, last.clone()));
            e.push(Stmt::SetElem(values, lit32((at + w) as i32), self.value(line, column)));
        }
    }

    fn store_line(&self, e: &mut Emit, line: &Line, values: ArrayId, at: u32) {
        let one = |e: &mut Emit| {
            let there = cmp(CmpOp::Lt, line.column.clone(), line.columns.clone());
            let value = Expr::Elem(values, Box::new(lit32(at as i32)));
            e.if_then(there, |e| self.single(e, line, line.column.clone(), value));
        };
        if self.width() == 1 {
            return one(e);
        }
        let both = cmp(CmpOp::Lt, plus(line.column.clone(), lit32(1)), line.columns.clone());
        let index = self.index(line, line.column.clone());
        let pair = Stmt::StoreVec { mem: line.to, index, array: values, at, count: 2 };
        e.if_else(both, |e| e.push(pair), one);
        let lane = Expr::Special(Special::Lane);
        let before = and(cmp(CmpOp::Eq, lane, lit32(31)), cmp(CmpOp::Eq, line.shift.clone(), lit32(1)));
        let before = and(before, cmp(CmpOp::Gt, line.columns.clone(), lit32(0)));
        e.if_then(before, |e| self.single(e, line, lit32(0), self.value(line, lit32(0))));
    }

    fn index(&self, line: &Line, column: Expr) -> Expr {
        add(line.first.expr.clone(), to(Num { expr: column, ty: Ty::I32 }, line.first.ty))
    }

    fn single(&self, e: &mut Emit, line: &Line, column: Expr, value: Expr) {
        e.push(Stmt::Store(line.to, self.index(line, column), value));
    }
}
