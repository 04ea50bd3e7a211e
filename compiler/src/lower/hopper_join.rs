//! Sums that the blocks of a cluster share on sm_90a: each has a part of a tile's terms, and they add their parts through
//! each other's shared memory.
//!
//! Each block finishes an equal share of the tile's columns. A thread has the same rows and columns in every block, so it
//! sends what it has of another's share to the same place there, where the same thread adds all parts in the blocks' order.

use super::contract_coords::{Place as Where, modulo, plus, times};
use super::contract_epilogue::unrolled;
use super::contract_mma::Accumulators;
use super::hopper_loop::call;
use super::scalar::{Emit, cast, cmp, int_op, lit32};
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Intrinsic, Mem, SharedId, Special, Stmt, Ty};
use crate::ir::tile::{Arrange, Tile};
use crate::vocab::dtype::DType;
use crate::vocab::func::Func;

pub struct Join<'x> {
    tile: &'x Tile,
    /// The tile with the columns of a share.
    pub share: Tile,
    received: SharedId,
    barrier: SharedId,
    own: ArrayId,
    threads: u32,
}

/// Bytes that a block receives.
pub fn bytes(m: u32, n: u32, blocks: u32) -> u32 {
    m * n / blocks * (blocks - 1) * 4
}

/// Nanoseconds that it takes: each pair of sums is counted on one barrier, about one in three nanoseconds.
pub fn nanoseconds(m: u32, n: u32, blocks: u32) -> f64 {
    if blocks > 1 { 500.0 + 3.0 * (bytes(m, n, blocks) / 8) as f64 } else { 0.0 }
}

impl<'x> Join<'x> {
    /// Declares what it needs, and initialises the barrier; the cluster's blocks meet afterwards.
    pub fn new(e: &mut Emit, tile: &'x Tile) -> Join<'x> {
        let Arrange::Groups { m: groups } = tile.arrange else {
            unreachable!("`contract_hopper` makes these tiles alone")
        };
        let mut share = tile.clone();
        // Its columns start within a tile, so what is outside is still asked of the whole tile's columns.
        share.n.block /= tile.join;
        let bytes = bytes(tile.m.block, tile.n.block, tile.join);
        let received = e.kernel.shared("received", DType::F32, bytes / 4, 16);
        let barrier = e.kernel.shared("received_all", DType::I64, 1, 8);
        let own = e.kernel.array("own", Ty::F32, Accumulators::of(&share).len());
        let join = Join { tile, share, received, barrier, own, threads: 128 * groups };
        let first = cmp(CmpOp::Eq, Expr::Special(Special::ThreadX), lit32(0));
        e.if_then(first, |e| {
            call(e, Intrinsic::MbarrierInit, vec![join.all(), Expr::U32(1)]);
            call(e, Intrinsic::FenceMbarrierInit, Vec::new());
            call(e, Intrinsic::MbarrierExpect, vec![join.all(), Expr::U32(bytes)]);
        });
        join
    }

    fn all(&self) -> Expr {
        Expr::SharedAddr(self.barrier, Box::new(lit32(0)))
    }

    /// Where a pair of this thread stands among those that came from a block (the own left out).
    fn place(&self, slot: Expr, r: &Expr, g: &Expr) -> Expr {
        let layout = Accumulators::of(&self.share);
        let pairs = (layout.rows * layout.groups) as i64;
        let pair = plus(times(r.clone(), layout.groups as i64), g.clone());
        let thread = int_op(IntOp::Sub, Expr::Special(Special::ThreadX), lit32(128));
        let line = times(plus(times(slot, pairs), pair), self.threads as i64);
        times(plus(line, thread), 2)
    }

    /// Adds the parts; the sums of this block's share, and where they are.
    pub fn add(&self, e: &mut Emit, place: &Where, acc: ArrayId) -> (ArrayId, Where) {
        let rank = modulo(Expr::Special(Special::BlockX), self.tile.join as i64);
        let rank = e.named("rank", Ty::I32, rank);
        let (whole, share) = (Accumulators::of(self.tile), Accumulators::of(&self.share));
        let of = |q: u32, r: &Expr, g: &Expr, w: u32| {
            let column = plus(g.clone(), lit32((q * share.groups) as i32));
            Expr::Elem(acc, Box::new(whole.index(r.clone(), column, w)))
        };
        for q in 0..self.tile.join {
            let mine = cmp(CmpOp::Eq, rank.clone(), lit32(q as i32));
            e.if_else(
                mine,
                |e| {
                    each(e, &share, |e, r, g| {
                        for w in 0..2 {
                            let v = of(q, r, g, w);
                            e.push(Stmt::SetElem(self.own, share.index(r.clone(), g.clone(), w), v));
                        }
                    });
                },
                |e| {
                    let after = cmp(CmpOp::Gt, rank.clone(), lit32(q as i32));
                    let before = plus(rank.clone(), lit32(-1));
                    let slot = Expr::Select(Box::new(after), Box::new(before), Box::new(rank.clone()));
                    let slot = e.named("slot", Ty::I32, slot);
                    each(e, &share, |e, r, g| {
                        let word = |w| cast(Ty::U64, Expr::Bitcast(Ty::U32, Box::new(of(q, r, g, w))));
                        let high = int_op(IntOp::Shl, word(1), cast(Ty::U64, lit32(32)));
                        let value = int_op(IntOp::Or, word(0), high);
                        let to = Expr::SharedAddr(self.received, Box::new(self.place(slot.clone(), r, g)));
                        let args = vec![to, self.all(), Expr::U32(q), value];
                        call(e, Intrinsic::StoreAsync { wide: true }, args);
                    });
                },
            );
        }
        call(e, Intrinsic::MbarrierWait, vec![self.all(), Expr::U32(0)]);
        self.sum(e, &rank);
        let mut own = place.clone();
        let moved = times(rank, self.share.n.block as i64);
        own.n[0] = e.named("n_share", Ty::I32, plus(own.n[0].clone(), moved));
        (self.own, own)
    }

    /// own = the parts of all blocks, in their order.
    fn sum(&self, e: &mut Emit, rank: &Expr) {
        let share = Accumulators::of(&self.share);
        let pair = e.kernel.array("part", Ty::F32, 2 * self.tile.join);
        each(e, &share, |e, r, g| {
            let index = |w: u32| share.index(r.clone(), g.clone(), w);
            for from in 0..self.tile.join {
                let mine = cmp(CmpOp::Eq, rank.clone(), lit32(from as i32));
                let at = 2 * from;
                e.if_else(
                    mine,
                    |e| {
                        for w in 0..2 {
                            let v = Expr::Elem(self.own, Box::new(index(w)));
                            e.push(Stmt::SetElem(pair, lit32((at + w) as i32), v));
                        }
                    },
                    |e| {
                        let after = cmp(CmpOp::Lt, rank.clone(), lit32(from as i32));
                        let (less, same) = (lit32(from as i32 - 1), lit32(from as i32));
                        let slot = Expr::Select(Box::new(after), Box::new(less), Box::new(same));
                        let index = self.place(slot, r, g);
                        let mem = Mem::Shared(self.received);
                        e.push(Stmt::LoadVec { array: pair, at, mem, index, count: 2 });
                    },
                );
            }
            for w in 0..2 {
                let part = |i: u32| Expr::Elem(pair, Box::new(lit32((2 * i + w) as i32)));
                let sum = (1..self.tile.join).fold(part(0), |a, i| Expr::Call(Func::Add, vec![a, part(i)]));
                e.push(Stmt::SetElem(self.own, index(w), sum));
            }
        });
    }
}

/// Each pair of a thread: its row, and its group of columns.
fn each(e: &mut Emit, layout: &Accumulators, mut f: impl FnMut(&mut Emit, &Expr, &Expr)) {
    unrolled(e, "row", layout.rows, |e, r| {
        unrolled(e, "group", layout.groups, |e, g| f(e, &r, &g));
    });
}
