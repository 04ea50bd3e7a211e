//! What operand kinds ask of the Hopper loop: where an instruction's sums go.
//!
//! Tensor cores add 8-bit floats in fewer bits than f32, and cut what they add of others off: sums that are to be as
//! good as those of f32 multiply-adds are added to accumulators outside of them, each step (of 128 terms of 8 bits) or
//! every second one (of 32 terms of f32).

use super::contract_coords::{Place as Where, modulo, plus};
use super::contract_mma;
use super::hopper_scales::Scaled;
use super::scalar::{Emit, cmp, lit32};
use crate::ir::simt::{ArrayId, CmpOp, Expr, Ty};

/// The accumulators of a thread, and those from which they are promoted.
pub struct Sums<'x> {
    acc: ArrayId,
    step: Option<ArrayId>,
    len: u32,
    /// Steps between promotions.
    every: i64,
    /// What a step's sums are multiplied by.
    scaled: Option<Scaled<'x>>,
}

impl<'x> Sums<'x> {
    pub fn new(
        e: &mut Emit,
        acc: ArrayId,
        len: u32,
        (promote, halves): (bool, bool),
        scaled: Option<Scaled<'x>>,
    ) -> Sums<'x> {
        let step = promote.then(|| e.kernel.array("short", Ty::F32, len));
        Sums { acc, step, len, every: if halves { 2 } else { 1 }, scaled }
    }

    /// Where the instructions add.
    pub fn of_step(&self) -> ArrayId {
        self.step.unwrap_or(self.acc)
    }

    /// Whether step `it`'s first instruction adds to what is there, where sums are promoted.
    pub fn fresh(&self, it: &Expr) -> Option<Expr> {
        self.step.map(|_| modulo(it.clone(), self.every))
    }

    /// Reads what step `step` is multiplied by.
    pub fn prepare(&self, e: &mut Emit, place: &Where, step: Expr) {
        self.scaled.iter().for_each(|s| s.load(e, place, step.clone()));
    }

    /// acc += step, after step `it` of `count` if it is the time.
    pub fn promote(&self, e: &mut Emit, it: &Expr, count: &Expr) {
        let Some(step) = self.step else { return };
        if let Some(s) = &self.scaled {
            return s.promote(e, step, self.acc);
        }
        if self.every == 1 {
            return contract_mma::promote(e, step, self.acc, self.len);
        }
        let last = cmp(CmpOp::Eq, plus(it.clone(), lit32(1)), count.clone());
        let due = cmp(CmpOp::Eq, modulo(it.clone(), self.every), lit32(self.every as i32 - 1));
        let due = Expr::Or(Box::new(due), Box::new(last));
        e.if_then(due, |e| contract_mma::promote(e, step, self.acc, self.len));
    }
}
