//! Form `fold`, its matrices in shared memory: copies of boxes into stages, and the descriptors that `wgmma` takes.

use super::contract_coords::{Place as Where, plus, times};
use super::fold_boxes::{Boxes, LINE};
use super::hopper_ring::Cursor;
use super::scalar::{Emit, Num, cast, int_op, lit32, lit64};
use crate::ir::simt::{Expr, IntOp, Intrinsic, ParamId, SharedId, Stmt, Ty};

/// Bytes between atoms of 8 lines of 128 bytes.
pub const ATOM: u64 = 1024;

/// A matrix in shared memory.
pub struct Matrix<'x> {
    pub boxes: &'x Boxes,
    pub shared: SharedId,
    pub map: ParamId,
    /// Rows of a block, and terms of a stage.
    pub rows: u32,
    pub terms: u32,
}

impl Matrix<'_> {
    pub fn bytes(&self) -> u32 {
        self.rows * self.terms * 2
    }

    /// Starts the copies to one stage: rows and terms from these on.
    pub fn copy(&self, e: &mut Emit, slot: &Expr, full: &Expr, row: &Expr, term: &Expr, place: &Where) {
        let op = Intrinsic::TmaLoad { map: self.map, rank: self.boxes.map(self.rows).dims.len() as u8 };
        let line = LINE as u32;
        let across = if self.boxes.k_major { 1 } else { self.rows / line };
        for t in 0..self.terms / line {
            for r in 0..across {
                let within = t * self.rows * line + r * line * line;
                let elements =
                    plus(times(slot.clone(), (self.rows * self.terms) as i64), lit32(within as i32));
                let to = Expr::SharedAddr(self.shared, Box::new(elements));
                let row = plus(row.clone(), lit32((r * line) as i32));
                let term = plus(term.clone(), lit32((t * line) as i32));
                let (x, y) = if self.boxes.k_major { (term, row) } else { (row, term) };
                let mut args = vec![to, full.clone(), x, y];
                args.extend(self.boxes.batch().map(|d| cast_i32(&place.batch[d])));
                e.push(Stmt::Intrinsic { op, outs: Vec::new(), args });
            }
        }
    }

    /// The descriptor of the first stage, from some elements on.
    pub fn descriptor(&self, e: &mut Emit, name: &str, from: &Expr) -> Expr {
        // Bits: 16–29 the step to the next 64 rows of a matrix whose rows are contiguous, 32–45 that to the next atom,
        // 62 the swizzle of 128 bytes.
        let leading = if self.boxes.k_major { 1 } else { 64 * 128 / 16 };
        let fixed = 1u64 << 62 | (ATOM / 16) << 32 | leading << 16;
        let base = Expr::SharedAddr(self.shared, Box::new(from.clone()));
        let start = int_op(IntOp::Shr, base, Expr::U32(4));
        let fixed = cast(Ty::U64, lit64(fixed as i64));
        e.named(name, Ty::U64, int_op(IntOp::Or, fixed, cast(Ty::U64, start)))
    }

    pub fn stage(&self, first: &Expr, at: Cursor) -> Expr {
        let moved = times(Expr::Var(at.slot), self.bytes() as i64 / 16);
        int_op(IntOp::Add, first.clone(), cast(Ty::U64, moved))
    }

    /// 16 · kk terms on.
    pub fn terms_on(&self, stage: &Expr, kk: u32) -> Expr {
        let slab = kk / 4 * self.rows * 128;
        let within = kk % 4 * if self.boxes.k_major { 32 } else { 16 * 128 };
        let moved = cast(Ty::U64, lit64((slab + within) as i64 / 16));
        int_op(IntOp::Add, stage.clone(), moved)
    }
}

fn cast_i32(n: &Num) -> Expr {
    match n.ty {
        Ty::I32 => n.expr.clone(),
        _ => cast(Ty::I32, n.expr.clone()),
    }
}
