//! Products of a few rows with weights of 4 bits on sm_90a: one thread copies boxes of codes and of the few rows into a ring
//! of stages, and warpgroups make `wgmma`'s first operand of the codes, in registers.
//!
//! The weights' rows are the rows of the instruction, 64 for each warpgroup. For 16 terms a lane needs two neighbouring codes
//! of each of four words, a byte whose place depends on the lane alone, so the few rows need no permutation. Two sets of
//! registers take turns: while the products of one are under way, the other is filled.
//!
//! Two warpgroups may share the terms of the same rows: each has stages of its own in turn, and the first adds both sums.
//!
//! The blocks of a cluster have neighbouring rows of weights and the same of the other operand: each copies a part of these to
//! all, as in the loop of other products.

use super::codes_ahead::{Ahead, Own};
use super::codes_table::Table;
use super::contract_codes::Codes;
use super::contract_coords::{Place as Where, modulo, over, plus, times};
use super::contract_epilogue::Epilogue;
use super::contract_operand::{Ground, gcd};
use super::contract_pattern::ContractShape;
use super::hopper_loop::{LOADING, MULTIPLYING, Steps, call};
use super::hopper_ring::{ATOM, Cursor};
use super::hopper_store::Staging;
use super::scalar::{Emit, and, cast, cmp, int_op, lit32, lit64};
use crate::ir::simt::{
    ArrayId, CmpOp, Expr, IntOp, Intrinsic, Mem, ParamId, Place, SharedId, ShuffleKind, Special, Stmt,
    Swizzle, TensorMap, Ty, Unroll,
};
use crate::ir::tile::{Arrange, Tile};
use crate::vocab::dtype::DType;
use crate::vocab::func::Func;

/// Terms of a line of the other operand's rows.
const LINE: i64 = 64;

pub struct HopperCodes<'x> {
    codes: &'x Codes,
    shape: &'x ContractShape,
    tile: &'x Tile,
    ahead: Ahead<'x>,
    /// Terms of a stage.
    step: i64,
    /// Where warpgroups that share the terms leave their sums.
    sums: Option<SharedId>,
    w: SharedId,
    x: SharedId,
    w_map: ParamId,
    x_map: ParamId,
    barriers: SharedId,
    groups: u32,
}

/// The constants of a group, for each of a lane's two rows.
type Constants = [Vec<Expr>; 2];

/// What a multiplying thread knows of itself.
struct Lane {
    /// Its first row of the block, and that row's number within eight.
    row: Expr,
    eighth: Expr,
    selector: Expr,
    acc: ArrayId,
    /// Two sets of the first operand's registers for 64 terms.
    a: ArrayId,
    /// Two sets of codes.
    words: ArrayId,
}

impl<'x> HopperCodes<'x> {
    pub fn new(e: &mut Emit, codes: &'x Codes, shape: &'x ContractShape) -> HopperCodes<'x> {
        let tile = &codes.choice.tile;
        let Arrange::Groups { m: groups } = tile.arrange else {
            unreachable!("`contract_codes` makes these tiles alone")
        };
        let (rows, n, stages) = (tile.m.block, tile.n.block, codes.stages());
        let step = tile.folds[0].step;
        let w = e.kernel.shared("w_tile", DType::I32, stages * rows * step as u32 / 8, ATOM);
        let x = e.kernel.shared("x_tile", codes.dtype, stages * n * step as u32, ATOM);
        let map =
            |dtype: DType, offset: i64, dims: Vec<i64>, pitch: i64, extent: Vec<u32>, swizzle: Swizzle| {
                TensorMap { dtype, offset, dims, strides: vec![pitch.max(16)], extent, swizzle, pixels: None }
            };
        let (cw, cx) = (&codes.w, &codes.x);
        let w_dims = vec![codes.terms / 2, tile.m.points()];
        let line = step as u32 / 2;
        let swizzle = if line == 128 { Swizzle::B128 } else { Swizzle::B64 };
        let w_map = map(DType::U8, cw.offset / 2, w_dims, cw.pitch / 2, vec![line, rows], swizzle);
        let x_dims = vec![codes.terms, tile.n.points()];
        let x_box = vec![LINE as u32, n / tile.cluster];
        let x_map = map(codes.dtype, cx.offset * 2, x_dims, cx.pitch * 2, x_box, Swizzle::B128);
        let w_map = e.tensor_map(cw.tensor, None, "w_map", w_map);
        let x_map = e.tensor_map(cx.tensor, None, "x_map", x_map);
        let barriers = e.kernel.shared("barriers", DType::I64, 2 * stages, 8);
        let ahead = Ahead::new(e, codes, Table::bare(codes, shape), groups * codes.sharing);
        let sums = 64 * n * (codes.sharing - 1);
        let sums = (sums > 0).then(|| e.kernel.shared("sums", DType::F32, sums, 16));
        HopperCodes { codes, shape, tile, ahead, step, sums, w, x, w_map, x_map, barriers, groups }
    }

    fn stages(&self) -> u32 {
        self.codes.stages()
    }

    /// Lines of the other operand's rows of a stage.
    fn lines(&self) -> i64 {
        self.step / LINE
    }

    fn cluster(&self) -> u32 {
        self.tile.cluster
    }

    /// Whether the loading warpgroup leaves registers to the others.
    fn balance(&self) -> bool {
        self.groups * self.codes.sharing == 2 && self.codes.together == 1
    }

    /// The whole kernel after `new`.
    pub fn emit(&self, e: &mut Emit, ground: &Ground, place: &Where, work: &[ParamId]) {
        let acc = e.kernel.array("acc", Ty::F32, self.tile.n.block / 2);
        let staging = |o| Staging::within(e, self.tile, o, (self.x, self.groups));
        let staging = self.codes.output.as_ref().map(staging);
        self.init(e);
        let steps = self.steps(e, place);
        // Equal over a warp, said so that it is kept in a uniform register.
        let group = e.kernel.var("group", Ty::I32);
        let value = over(Expr::Special(Special::Warp), 4);
        e.push(Stmt::Shuffle { var: group, kind: ShuffleKind::Index, value, lane: lit32(0) });
        let loads = cmp(CmpOp::Eq, Expr::Var(group), lit32(0));
        e.if_else(
            loads,
            |e| {
                if self.balance() {
                    call(e, Intrinsic::SetMaxRegisters { more: false, count: LOADING }, Vec::new());
                }
                let one = cmp(CmpOp::Eq, Expr::Special(Special::ThreadX), lit32(0));
                e.if_then(one, |e| self.load(e, place, &steps));
            },
            |e| {
                if self.balance() {
                    call(e, Intrinsic::SetMaxRegisters { more: true, count: MULTIPLYING }, Vec::new());
                }
                self.multiply(e, place, &steps, (&Expr::Var(group), acc));
                let epilogue = Epilogue { shape: self.shape, tile: self.tile };
                self.whole(e, &Expr::Var(group), acc, |e| match (&staging, self.tile.split) {
                    (Some(s), _) => {
                        self.meet(e);
                        s.store(e, &epilogue, place, &[acc], &Expr::Var(group));
                        s.finish(e);
                    }
                    (None, 1) => epilogue.store(e, ground, place, &[acc]),
                    _ => epilogue.store_partial(e, place, &[acc], work),
                });
            },
        );
    }

    /// Adds the sums of warpgroups that share the terms; the first goes on.
    fn whole(&self, e: &mut Emit, group: &Expr, acc: ArrayId, then: impl FnOnce(&mut Emit)) {
        let Some(sums) = self.sums else { return then(e) };
        let len = self.tile.n.block / 2;
        let (thread, sharing) = (modulo(Expr::Special(Special::ThreadX), 128), self.codes.sharing);
        let thread = e.named("of_group", Ty::I32, thread);
        // Neighbouring threads' sums lie together.
        let at = |part: Expr, i: u32| {
            plus(plus(times(part, 128 * len as i64), thread.clone()), lit32(128 * i as i32))
        };
        let elem = |i: u32| Expr::Elem(acc, Box::new(lit32(i as i32)));
        let first = cmp(CmpOp::Eq, group.clone(), lit32(1));
        e.if_else(
            first.clone(),
            |_| (),
            |e| {
                let part = int_op(IntOp::Sub, group.clone(), lit32(2));
                for i in 0..len {
                    e.push(Stmt::Store(Mem::Shared(sums), at(part.clone(), i), elem(i)));
                }
            },
        );
        let threads = 128 * sharing as u16;
        call(e, Intrinsic::NamedBarrier { threads }, vec![Expr::U32(sharing + 1)]);
        e.if_then(first, |e| {
            for part in 0..sharing as i32 - 1 {
                for i in 0..len {
                    let other = Expr::Load(Mem::Shared(sums), Box::new(at(lit32(part), i)));
                    let sum = Expr::Call(Func::Add, vec![elem(i), other]);
                    e.push(Stmt::SetElem(acc, lit32(i as i32), sum));
                }
            }
            then(e);
        });
    }

    /// Waits until every warp's products have read the stages that results go to.
    fn meet(&self, e: &mut Emit) {
        let threads = 128 * self.groups as u16;
        call(e, Intrinsic::NamedBarrier { threads }, vec![Expr::U32(self.groups + 1)]);
    }

    fn init(&self, e: &mut Emit) {
        let first = cmp(CmpOp::Eq, Expr::Special(Special::ThreadX), lit32(0));
        e.if_then(first, |e| {
            for s in 0..self.stages() {
                for (at, count) in [(s, 1), (s + self.stages(), 4 * self.groups * self.cluster())] {
                    let address = Expr::SharedAddr(self.barriers, Box::new(lit32(at as i32)));
                    call(e, Intrinsic::MbarrierInit, vec![address, Expr::U32(count)]);
                }
            }
            call(e, Intrinsic::FenceMbarrierInit, Vec::new());
        });
        e.push(Stmt::Barrier);
        if self.cluster() > 1 {
            call(e, Intrinsic::ClusterArrive, Vec::new());
            call(e, Intrinsic::ClusterWait, Vec::new());
        }
    }

    fn steps(&self, e: &mut Emit, place: &Where) -> Steps {
        let all = self.codes.terms / self.step;
        if self.tile.split == 1 {
            return Steps { first: lit32(0), count: lit32(all as i32) };
        }
        let per = (all + self.tile.split - 1) / self.tile.split;
        let first = e.named("first", Ty::I32, times(place.part.clone(), per));
        let left = int_op(IntOp::Sub, lit32(all as i32), first.clone());
        let count = e.named("count", Ty::I32, int_op(IntOp::Min, left, lit32(per as i32)));
        Steps { first, count }
    }

    fn barrier(&self, slot: &Expr, empty: bool) -> Expr {
        let from = if empty { self.stages() as i32 } else { 0 };
        Expr::SharedAddr(self.barriers, Box::new(plus(slot.clone(), lit32(from))))
    }

    fn each_step(&self, e: &mut Emit, steps: &Steps, f: impl FnOnce(&mut Emit, Expr)) {
        let var = e.kernel.var("it", Ty::I32);
        let body = e.block(|e| f(e, Expr::Var(var)));
        let (lo, hi, step) = (lit32(0), steps.count.clone(), lit32(1));
        e.push(Stmt::For { var, lo, hi, step, unroll: Unroll::None, body });
    }

    /// One thread: waits for a free stage and starts its copies.
    fn load(&self, e: &mut Emit, place: &Where, steps: &Steps) {
        let c = Cursor::new(e, 1);
        let (rows, n) = (self.tile.m.block as i64, self.tile.n.block as i64);
        // This block's share of the other operand's rows.
        let shares = self.cluster() as i64;
        let own = if shares == 1 { lit32(0) } else { modulo(Expr::Special(Special::BlockX), shares) };
        let own = times(own, n / shares);
        let op = match shares {
            1 => Intrinsic::TmaLoad { map: self.x_map, rank: 2 },
            _ => Intrinsic::TmaMulticast { map: self.x_map, rank: 2 },
        };
        self.each_step(e, steps, |e, it| {
            let slot = Expr::Var(c.slot);
            call(e, Intrinsic::MbarrierWait, vec![self.barrier(&slot, true), Expr::Var(c.parity)]);
            let full = e.named("full", Ty::U32, self.barrier(&slot, false));
            let bytes = rows * self.step / 2 + n * self.step * 2;
            call(e, Intrinsic::MbarrierExpect, vec![full.clone(), Expr::U32(bytes as u32)]);
            // Stages go to the warpgroups that share the terms in turn.
            let sharing = self.codes.sharing as i64;
            let number = plus(times(modulo(it.clone(), sharing), self.own_steps()), over(it, sharing));
            let step = e.named("step", Ty::I32, plus(steps.first.clone(), number));
            let to = Expr::SharedAddr(self.w, Box::new(times(slot.clone(), rows * self.step / 8)));
            let at = vec![to, full.clone(), times(step.clone(), self.step / 2), place.m[0].clone()];
            call(e, Intrinsic::TmaLoad { map: self.w_map, rank: 2 }, at);
            for line in 0..self.lines() {
                let to = plus(times(slot.clone(), n * self.step), lit32((line * n * LINE) as i32));
                let to = Expr::SharedAddr(self.x, Box::new(plus(to, times(own.clone(), LINE))));
                let term = plus(times(step.clone(), self.step), lit32((line * LINE) as i32));
                let mut at = vec![to, full.clone(), term, plus(place.n[0].clone(), own.clone())];
                at.extend((shares > 1).then_some(Expr::U32((1 << shares) - 1)));
                call(e, op, at);
            }
            c.advance(e, self.stages());
        });
        if shares > 1 {
            self.drain(e, &c);
        }
    }

    /// Waits until the cluster's blocks have given back every stage: they reach this one's barriers no more.
    fn drain(&self, e: &mut Emit, c: &Cursor) {
        let var = e.kernel.var("stage", Ty::I32);
        let body = e.block(|e| {
            let empty = self.barrier(&Expr::Var(c.slot), true);
            call(e, Intrinsic::MbarrierWait, vec![empty, Expr::Var(c.parity)]);
            c.advance(e, self.stages());
        });
        let hi = lit32(self.stages() as i32);
        e.push(Stmt::For { var, lo: lit32(0), hi, step: lit32(1), unroll: Unroll::None, body });
    }

    /// Steps of each of the warpgroups that share the terms.
    fn own_steps(&self) -> i64 {
        match self.codes.sharing as i64 {
            1 => 0,
            n => self.codes.terms / self.step / self.tile.split / n,
        }
    }

    fn multiply(&self, e: &mut Emit, place: &Where, steps: &Steps, (group, acc): (&Expr, ArrayId)) {
        let sharing = self.codes.sharing;
        let share = int_op(IntOp::Sub, group.clone(), lit32(1));
        let share = if sharing == 1 { lit32(0) } else { e.named("share", Ty::I32, share) };
        let steps = &match sharing {
            1 => Steps { first: steps.first.clone(), count: steps.count.clone() },
            _ => {
                let first = plus(steps.first.clone(), times(share.clone(), self.own_steps()));
                let first = e.named("own_first", Ty::I32, first);
                Steps { first, count: lit32(self.own_steps() as i32) }
            }
        };
        let thread = int_op(IntOp::Sub, Expr::Special(Special::ThreadX), lit32(128));
        let thread = e.named("thread", Ty::I32, thread);
        let own = self.ahead.begin(e, place, &thread, (&steps.first, &steps.count));
        let lane = || Expr::Special(Special::Lane);
        let eighth = e.named("eighth", Ty::I32, over(lane(), 4));
        let warp = modulo(over(thread, 32), self.tile.m.block as i64 / 16);
        let row = plus(times(warp, 16), eighth.clone());
        let byte = times(modulo(lane(), 4), 0x1111);
        let me = Lane {
            row: e.named("own_row", Ty::I32, row),
            eighth,
            selector: e.named("selector", Ty::U32, cast(Ty::U32, plus(byte, lit32(0x4400)))),
            acc,
            a: e.kernel.array("a_frag", Ty::U32, 32),
            words: e.kernel.array("words", Ty::I32, 32),
        };
        // The descriptor's low half: steps to the next atom are in the high one, with the swizzle.
        // In a cluster an address has the block's number above its 24 lowest bits: the start is 14 bits.
        let base = int_op(IntOp::Shr, Expr::SharedAddr(self.x, Box::new(lit32(0))), Expr::U32(4));
        let base = int_op(IntOp::And, base, Expr::U32(0x3fff));
        let base = e.named("x_matrix", Ty::U32, int_op(IntOp::Or, Expr::U32(1 << 16), base));
        let c = Cursor::new(e, 0);
        if sharing > 1 {
            e.push(Stmt::Set(c.slot, share));
        }
        let before = e.let_var("before", Ty::I32, lit32(0));
        self.each_step(e, steps, |e, it| {
            let slot = Expr::Var(c.slot);
            call(e, Intrinsic::MbarrierWait, vec![self.barrier(&slot, false), Expr::Var(c.parity)]);
            let moved = cast(Ty::U32, times(slot.clone(), self.tile.n.block as i64 * self.step / 8));
            let x = e.named("x_stage", Ty::U32, int_op(IntOp::Add, base.clone(), moved));
            let later = e.named("later", Ty::Bool, cmp(CmpOp::Gt, it.clone(), lit32(0)));
            self.ahead.ahead(e, &own, &it);
            let lines = self.lines() as u32;
            let mut constants = self.codes(e, &me, &own, (&it, &slot), 0);
            for quarter in 0..lines {
                // The next codes are on their way while these are turned into weights.
                let last = quarter + 1 == lines;
                let next =
                    if last { Vec::new() } else { self.codes(e, &me, &own, (&it, &slot), quarter + 1) };
                self.weights(e, &me, quarter, &constants);
                constants = next;
                self.products(e, &me, &x, quarter, &later);
                if quarter == 0 {
                    // The step before is done with its stage.
                    self.release(e, Expr::Var(before), later.clone());
                }
            }
            self.ahead.done(e, &own, &it);
            e.push(Stmt::Set(before, slot));
            c.advance_by(e, sharing, self.stages());
        });
        call(e, Intrinsic::WgmmaWait(0), Vec::new());
        if self.cluster() > 1 {
            let some = cmp(CmpOp::Gt, steps.count.clone(), lit32(0));
            self.release(e, Expr::Var(before), some);
        }
    }

    /// Gives a stage back to every block that copies to it.
    fn release(&self, e: &mut Emit, slot: Expr, when: Expr) {
        if self.cluster() > 1 {
            let lane = || Expr::Special(Special::Lane);
            let lanes = and(when, cmp(CmpOp::Lt, lane(), lit32(self.cluster() as i32)));
            return e.if_then(lanes, |e| {
                let at = vec![self.barrier(&slot, true), cast(Ty::U32, lane())];
                call(e, Intrinsic::MbarrierArriveAt, at);
            });
        }
        let first = and(when, cmp(CmpOp::Eq, Expr::Special(Special::Lane), lit32(0)));
        e.if_then(first, |e| call(e, Intrinsic::MbarrierArrive, vec![self.barrier(&slot, true)]));
    }

    /// Loads the codes of 64 terms, and the constants of their groups: for each 32 terms those of both rows.
    fn codes(
        &self,
        e: &mut Emit,
        me: &Lane,
        own: &Own,
        (it, slot): (&Expr, &Expr),
        quarter: u32,
    ) -> Vec<Constants> {
        let rows = self.tile.m.block as i64;
        // Terms over which the constants do not change.
        let unit = gcd(self.codes.weight.group, self.step);
        let line = self.step / 8;
        // Rows whose chunks of 16 bytes lie in the same order.
        let turn = if line == 32 { me.eighth.clone() } else { over(me.eighth.clone(), 2) };
        let mut constants: Vec<Constants> = Vec::new();
        for half in 0..2u32 {
            let chunk = 2 * quarter + half;
            let rows_of = |i: u32| plus(me.row.clone(), lit32(8 * i as i32));
            let term = chunk as i64 * 32;
            constants.push(match constants.last() {
                Some(same) if term % unit != 0 => same.clone(),
                _ => [0, 1].map(|i| {
                    let row = plus(me.eighth.clone(), lit32(8 * i));
                    self.ahead.entry(e, own, (it, term), &row)
                }),
            });
            for i in 0..2u32 {
                let place = int_op(IntOp::Xor, turn.clone(), lit32(chunk as i32));
                let index = plus(times(slot.clone(), rows * line), times(rows_of(i), line));
                let index = plus(index, times(place, 4));
                let at = quarter % 2 * 16 + 8 * half + 4 * i;
                e.push(Stmt::LoadVec { array: me.words, at, mem: Mem::Shared(self.w), index, count: 4 });
            }
        }
        constants
    }

    /// Makes the first operand's registers for 64 terms.
    fn weights(&self, e: &mut Emit, me: &Lane, quarter: u32, constants: &[Constants]) {
        for (half, constants) in (0..2u32).zip(constants) {
            for (i, constants) in (0..2u32).zip(constants) {
                for word in 0..4u32 {
                    let at = quarter % 2 * 16 + 8 * half + 4 * i + word;
                    let own = Expr::Elem(me.words, Box::new(lit32(at as i32)));
                    let own = e.named("word", Ty::U32, cast(Ty::U32, own));
                    let upper = e.named("upper", Ty::U32, int_op(IntOp::Shr, own.clone(), Expr::U32(4)));
                    // Words 0 and 1 are the lower and the upper half of 16 terms, 2 and 3 of the next.
                    let (slice, high) = (2 * half + word / 2, word % 2);
                    let to = Place::Elem(me.a, quarter % 2 * 16 + slice * 4 + 2 * high + i);
                    self.ahead.table.weights(e, (&own, &upper), me.selector.clone(), constants, to);
                }
            }
        }
    }

    /// The products of 64 terms; those of the 64 before are done afterwards.
    fn products(&self, e: &mut Emit, me: &Lane, x: &Expr, quarter: u32, later: &Expr) {
        let n = self.tile.n.block;
        let high = cast(Ty::U64, lit64(((1i64 << 30) | (ATOM as i64 / 16)) << 32));
        call(e, Intrinsic::WgmmaFence, Vec::new());
        for slice in 0..4u32 {
            let moved = quarter * n * LINE as u32 / 8 + 2 * slice;
            let low = int_op(IntOp::Add, x.clone(), Expr::U32(moved));
            let fresh = quarter == 0 && slice == 0;
            let scale = match fresh {
                true => Expr::Select(Box::new(later.clone()), Box::new(lit32(1)), Box::new(lit32(0))),
                false => lit32(1),
            };
            let own = |i: u32| Expr::Elem(me.a, Box::new(lit32((quarter % 2 * 16 + slice * 4 + i) as i32)));
            let mut args: Vec<Expr> = (0..4).map(own).collect();
            args.extend([int_op(IntOp::Or, high.clone(), cast(Ty::U64, low)), scale]);
            let outs = (0..n / 2).map(|i| Place::Elem(me.acc, i)).collect();
            let op = Intrinsic::WgmmaRegs { dtype: self.codes.dtype, n: n as u16, trans: false };
            e.push(Stmt::Intrinsic { op, outs, args });
        }
        call(e, Intrinsic::WgmmaCommit, Vec::new());
        call(e, Intrinsic::WgmmaWait(1), Vec::new());
    }
}
