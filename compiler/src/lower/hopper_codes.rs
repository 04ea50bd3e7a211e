//! Products of a few rows with weights of 4 bits on sm_90a: one thread copies boxes of codes and of the few rows into a ring
//! of stages, and warpgroups make `wgmma`'s first operand of the codes, in registers.
//!
//! The weights' rows are the rows of the instruction, 64 for each warpgroup. For 16 terms a lane needs two neighbouring codes
//! of each of four words, a byte whose place depends on the lane alone, so the few rows need no permutation. Two sets of
//! registers take turns: while the products of one are under way, the other is filled.

use super::codes_table::Table;
use super::contract_codes::{Codes, STEP};
use super::contract_coords::{Place as Where, modulo, over, plus, times};
use super::contract_epilogue::Epilogue;
use super::contract_operand::{Ground, gcd};
use super::contract_pattern::ContractShape;
use super::hopper_loop::{Steps, call};
use super::hopper_ring::{ATOM, Cursor};
use super::scalar::{Emit, and, cast, cmp, int_op, lit32, lit64};
use crate::ir::simt::{
    ArrayId, CmpOp, Expr, IntOp, Intrinsic, Mem, ParamId, Place, SharedId, ShuffleKind, Special, Stmt,
    Swizzle, TensorMap, Ty, Unroll,
};
use crate::ir::tile::{Arrange, Tile};
use crate::vocab::dtype::DType;

/// Terms of a line of the few rows, and lines of a stage.
const LINE: i64 = 64;
const LINES: i64 = STEP / LINE;

pub struct HopperCodes<'x> {
    codes: &'x Codes,
    shape: &'x ContractShape,
    tile: &'x Tile,
    table: Table<'x>,
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
        let w = e.kernel.shared("w_tile", DType::I32, stages * rows * 32, ATOM);
        let x = e.kernel.shared("x_tile", codes.dtype, stages * n * STEP as u32, ATOM);
        let map = |dtype: DType, offset: i64, dims: Vec<i64>, pitch: i64, extent: Vec<u32>| TensorMap {
            dtype,
            offset,
            dims,
            strides: vec![pitch.max(16)],
            extent,
            swizzle: Swizzle::B128,
            pixels: None,
        };
        let (cw, cx) = (&codes.w, &codes.x);
        let w_dims = vec![codes.terms / 2, tile.m.points()];
        let w_map = map(DType::U8, cw.offset / 2, w_dims, cw.pitch / 2, vec![128, rows]);
        let x_dims = vec![codes.terms, tile.n.points()];
        let x_map = map(codes.dtype, cx.offset * 2, x_dims, cx.pitch * 2, vec![LINE as u32, n]);
        let w_map = e.tensor_map(cw.tensor, None, "w_map", w_map);
        let x_map = e.tensor_map(cx.tensor, None, "x_map", x_map);
        let barriers = e.kernel.shared("barriers", DType::I64, 2 * stages, 8);
        let table = Table::new(e, codes, shape);
        HopperCodes { codes, shape, tile, table, w, x, w_map, x_map, barriers, groups }
    }

    fn stages(&self) -> u32 {
        self.codes.stages()
    }

    /// The whole kernel after `new`.
    pub fn emit(&self, e: &mut Emit, ground: &Ground, place: &Where, work: &[ParamId]) {
        let acc = e.kernel.array("acc", Ty::F32, self.tile.n.block / 2);
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
                let one = cmp(CmpOp::Eq, Expr::Special(Special::ThreadX), lit32(0));
                e.if_then(one, |e| self.load(e, place, &steps));
            },
            |e| {
                self.multiply(e, place, &steps, acc);
                let epilogue = Epilogue { shape: self.shape, tile: self.tile };
                match self.tile.split {
                    1 => epilogue.store(e, ground, place, &[acc]),
                    _ => epilogue.store_partial(e, place, &[acc], work),
                }
            },
        );
    }

    fn init(&self, e: &mut Emit) {
        let first = cmp(CmpOp::Eq, Expr::Special(Special::ThreadX), lit32(0));
        e.if_then(first, |e| {
            for s in 0..self.stages() {
                for (at, count) in [(s, 1), (s + self.stages(), 4 * self.groups)] {
                    let address = Expr::SharedAddr(self.barriers, Box::new(lit32(at as i32)));
                    call(e, Intrinsic::MbarrierInit, vec![address, Expr::U32(count)]);
                }
            }
            call(e, Intrinsic::FenceMbarrierInit, Vec::new());
        });
        e.push(Stmt::Barrier);
    }

    fn steps(&self, e: &mut Emit, place: &Where) -> Steps {
        let all = self.codes.terms / STEP;
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
        self.each_step(e, steps, |e, it| {
            let slot = Expr::Var(c.slot);
            call(e, Intrinsic::MbarrierWait, vec![self.barrier(&slot, true), Expr::Var(c.parity)]);
            let full = e.named("full", Ty::U32, self.barrier(&slot, false));
            let bytes = rows * STEP / 2 + n * STEP * 2;
            call(e, Intrinsic::MbarrierExpect, vec![full.clone(), Expr::U32(bytes as u32)]);
            let step = e.named("step", Ty::I32, plus(steps.first.clone(), it));
            let to = Expr::SharedAddr(self.w, Box::new(times(slot.clone(), rows * 32)));
            let at = vec![to, full.clone(), times(step.clone(), STEP / 2), place.m[0].clone()];
            call(e, Intrinsic::TmaLoad { map: self.w_map, rank: 2 }, at);
            for line in 0..LINES {
                let to = plus(times(slot.clone(), n * STEP), lit32((line * n * LINE) as i32));
                let to = Expr::SharedAddr(self.x, Box::new(to));
                let term = plus(times(step.clone(), STEP), lit32((line * LINE) as i32));
                let at = vec![to, full.clone(), term, place.n[0].clone()];
                call(e, Intrinsic::TmaLoad { map: self.x_map, rank: 2 }, at);
            }
            c.advance(e, self.stages());
        });
    }

    fn multiply(&self, e: &mut Emit, place: &Where, steps: &Steps, acc: ArrayId) {
        let thread = int_op(IntOp::Sub, Expr::Special(Special::ThreadX), lit32(128));
        let thread = e.named("thread", Ty::I32, thread);
        let threads = 128 * self.groups;
        let first = e.named("first_term", Ty::I32, times(steps.first.clone(), STEP));
        self.table.fill(e, place, &first, (thread.clone(), threads));
        call(e, Intrinsic::NamedBarrier { threads: threads as u16 }, vec![Expr::U32(1)]);
        let lane = || Expr::Special(Special::Lane);
        let eighth = e.named("eighth", Ty::I32, over(lane(), 4));
        let row = plus(times(over(thread, 32), 16), eighth.clone());
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
        let base = int_op(IntOp::Shr, Expr::SharedAddr(self.x, Box::new(lit32(0))), Expr::U32(4));
        let base = e.named("x_matrix", Ty::U32, int_op(IntOp::Or, Expr::U32(1 << 16), base));
        let c = Cursor::new(e, 0);
        let before = e.let_var("before", Ty::I32, lit32(0));
        self.each_step(e, steps, |e, it| {
            let slot = Expr::Var(c.slot);
            call(e, Intrinsic::MbarrierWait, vec![self.barrier(&slot, false), Expr::Var(c.parity)]);
            let moved = cast(Ty::U32, times(slot.clone(), self.tile.n.block as i64 * STEP / 8));
            let x = e.named("x_stage", Ty::U32, int_op(IntOp::Add, base.clone(), moved));
            let later = e.named("later", Ty::Bool, cmp(CmpOp::Gt, it.clone(), lit32(0)));
            let mut constants = self.codes(e, &me, &first, (&it, &slot), 0);
            for quarter in 0..LINES as u32 {
                // The next codes are on their way while these are turned into weights.
                let last = quarter + 1 == LINES as u32;
                let next =
                    if last { Vec::new() } else { self.codes(e, &me, &first, (&it, &slot), quarter + 1) };
                self.weights(e, &me, quarter, &constants);
                constants = next;
                self.products(e, &me, &x, quarter, &later);
                if quarter == 0 {
                    // The step before is done with its stage.
                    self.release(e, Expr::Var(before), later.clone());
                }
            }
            e.push(Stmt::Set(before, slot));
            c.advance(e, self.stages());
        });
        call(e, Intrinsic::WgmmaWait(0), Vec::new());
    }

    fn release(&self, e: &mut Emit, slot: Expr, when: Expr) {
        let first = and(when, cmp(CmpOp::Eq, Expr::Special(Special::Lane), lit32(0)));
        e.if_then(first, |e| call(e, Intrinsic::MbarrierArrive, vec![self.barrier(&slot, true)]));
    }

    /// Loads the codes of 64 terms, and the constants of their groups: for each 32 terms those of both rows.
    fn codes(
        &self,
        e: &mut Emit,
        me: &Lane,
        first: &Expr,
        (it, slot): (&Expr, &Expr),
        quarter: u32,
    ) -> Vec<Constants> {
        let rows = self.tile.m.block as i64;
        // Terms over which the constants do not change.
        let unit = gcd(self.codes.weight.group, STEP);
        let mut constants: Vec<Constants> = Vec::new();
        for half in 0..2u32 {
            let chunk = 2 * quarter + half;
            let own = |i: u32| plus(me.row.clone(), lit32(8 * i as i32));
            let term = chunk as i64 * 32;
            let at = plus(plus(first.clone(), times(it.clone(), STEP)), lit32(term as i32));
            constants.push(match constants.last() {
                Some(same) if term % unit != 0 => same.clone(),
                _ => [0, 1].map(|i| self.table.entry(e, first, at.clone(), own(i))),
            });
            for i in 0..2u32 {
                let place = int_op(IntOp::Xor, me.eighth.clone(), lit32(chunk as i32));
                let index = plus(times(slot.clone(), rows * 32), times(own(i), 32));
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
                    self.table.weights(e, (&own, &upper), me.selector.clone(), constants, to);
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
