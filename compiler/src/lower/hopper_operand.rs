//! What operand kinds ask of the Hopper loop: where an instruction's sums go.

use super::contract_mma;
use super::scalar::Emit;
use crate::ir::simt::{ArrayId, Ty};

/// The accumulators of a thread, and those of one step where tensor cores do not add in full f32 (8-bit floats).
pub struct Sums {
    acc: ArrayId,
    step: Option<ArrayId>,
    len: u32,
}

impl Sums {
    pub fn new(e: &mut Emit, acc: ArrayId, len: u32, promote: bool) -> Sums {
        let step = promote.then(|| e.kernel.array("short", Ty::F32, len));
        Sums { acc, step, len }
    }

    /// Where the instructions add.
    pub fn of_step(&self) -> ArrayId {
        self.step.unwrap_or(self.acc)
    }

    /// Whether the `kk`th instruction of a step adds to what is there.
    pub fn scale(&self, kk: u32) -> i32 {
        (self.step.is_none() || kk > 0) as i32
    }

    /// acc += step
    pub fn promote(&self, e: &mut Emit) {
        if let Some(step) = self.step {
            contract_mma::promote(e, step, self.acc, self.len);
        }
    }
}
