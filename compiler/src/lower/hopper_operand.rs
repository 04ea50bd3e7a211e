//! What operand kinds ask of the Hopper loop: where an instruction's sums go.
//!
//! Tensor cores add 8-bit floats in fewer bits than f32, and cut what they add of others off: sums that are to be as
//! good as those of f32 multiply-adds are added to accumulators outside of them, each step (of 128 terms of 8 bits) or
//! every second one (of 32 terms of f32).

use super::contract_coords::{modulo, plus};
use super::contract_mma;
use super::scalar::{Emit, cmp, lit32};
use crate::ir::simt::{ArrayId, CmpOp, Expr, Ty};

/// The accumulators of a thread, and those from which they are promoted.
pub struct Sums {
    acc: ArrayId,
    step: Option<ArrayId>,
    len: u32,
    /// Steps between promotions.
    every: i64,
}

impl Sums {
    pub fn new(e: &mut Emit, acc: ArrayId, len: u32, promote: bool, halves: bool) -> Sums {
        let step = promote.then(|| e.kernel.array("short", Ty::F32, len));
        Sums { acc, step, len, every: if halves { 2 } else { 1 } }
    }

    /// Where the instructions add.
    pub fn of_step(&self) -> ArrayId {
        self.step.unwrap_or(self.acc)
    }

    /// Whether step `it`'s first instruction adds to what is there, where sums are promoted.
    pub fn fresh(&self, it: &Expr) -> Option<Expr> {
        self.step.map(|_| modulo(it.clone(), self.every))
    }

    /// acc += step, after step `it` of `count` if it is the time.
    pub fn promote(&self, e: &mut Emit, it: &Expr, count: &Expr) {
        let Some(step) = self.step else { return };
        if self.every == 1 {
            return contract_mma::promote(e, step, self.acc, self.len);
        }
        let last = cmp(CmpOp::Eq, plus(it.clone(), lit32(1)), count.clone());
        let due = cmp(CmpOp::Eq, modulo(it.clone(), self.every), lit32(self.every as i32 - 1));
        let due = Expr::Or(Box::new(due), Box::new(last));
        e.if_then(due, |e| contract_mma::promote(e, step, self.acc, self.len));
    }
}
