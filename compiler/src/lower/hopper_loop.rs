//! The main loop on sm_90a: one warpgroup copies boxes of both operands into a ring of stages, the others multiply what
//! is there, each 64 rows (or 128) of the block.
//!
//! Each stage has two mbarriers. `full` completes when both operands' bytes have landed, `empty` when every
//! multiplying warp has retired the products that read the stage. One group of products stays under way while the
//! next is issued, so a stage is given back one step after its products were issued.

use super::contract_coords::{Place as Where, modulo, over, plus, times};
use super::contract_hopper::Hopper;
use super::contract_mma;
use super::hopper_gather::{Boxes, LINE, Part, Terms};
use super::hopper_operand::Sums;
use super::map::decode;
use super::scalar::{Emit, Num, and, cast, cmp, int_op, lit32, lit64};
use crate::ir::simt::{
    ArrayId, CmpOp, Expr, IntOp, Intrinsic, ParamId, Place, SharedId, ShuffleKind, Special, Stmt, Ty, Unroll,
    VarId,
};
use crate::ir::tile::{Arrange, Math, Tile};
use crate::vocab::dtype::{self, DType};

/// Registers a thread of each role has, where two warpgroups multiply: 40 + 2 · 232 ≤ 512.
const LOADING: u16 = 40;
const MULTIPLYING: u16 = 232;
/// A term beyond all others, at 16 bytes.
const FAR: i32 = 1 << 28;
/// Bytes between atoms of 8 lines of 128 bytes.
const ATOM: u64 = 1024;

pub struct HopperLoop<'x> {
    tile: &'x Tile,
    terms: &'x Terms,
    a: Operand<'x>,
    b: Operand<'x>,
    barriers: SharedId,
    dtypes: [DType; 2],
    promote: bool,
    groups: u32,
}

struct Operand<'x> {
    boxes: &'x Boxes,
    shared: SharedId,
    map: ParamId,
    /// Bytes of a stage.
    bytes: u32,
    /// Rows of the block.
    rows: u32,
    /// Bytes of a line of terms.
    line: u32,
    /// Bytes of an element.
    size: u32,
}

/// What the coordinates of copies are made of: a block's digits, and those of a line of terms.
struct Known<'k> {
    place: &'k Where,
    start: &'k Expr,
    digits: &'k [Num],
    inner: Expr,
    outer: Vec<Num>,
}

/// The range of steps of a block.
pub struct Steps {
    pub first: Expr,
    pub count: Expr,
}

/// A place in the ring: which stage, and the parity of its phase.
struct Cursor {
    slot: VarId,
    parity: VarId,
}

fn call(e: &mut Emit, op: Intrinsic, args: Vec<Expr>) {
    e.push(Stmt::Intrinsic { op, outs: Vec::new(), args });
}

impl<'x> HopperLoop<'x> {
    /// Declares shared memory and tensor maps, and initialises the barriers.
    pub fn new(e: &mut Emit, h: &'x Hopper) -> HopperLoop<'x> {
        let tile = &h.choice.tile;
        let fold = &tile.folds[0];
        let (Math::Wgmma { dtypes, promote }, Arrange::Groups { m: groups }) = (fold.math, tile.arrange)
        else {
            unreachable!("`contract_hopper` makes these tiles alone")
        };
        let operand =
            |e: &mut Emit, op: &crate::ir::tile::Operand, boxes: &'x Boxes, name: &str, rows: u32| {
                let bytes = op.place.bytes(op.dtype);
                let len = fold.stages * bytes * 8 / op.dtype.bits();
                let shared = e.kernel.shared(format!("{name}_tile"), op.dtype, len, ATOM as u32);
                let map = e.tensor_map(boxes.tensor, &format!("{name}_map"), boxes.map.clone());
                let size = op.dtype.bits() / 8;
                Operand { boxes, shared, map, bytes, rows, line: h.terms.line as u32 * size, size }
            };
        let a = operand(e, &fold.a, &h.a, "a", tile.m.block);
        let b = operand(e, &fold.b, &h.b, "b", tile.n.block);
        let barriers = e.kernel.shared("barriers", DType::I64, 2 * fold.stages, 8);
        let main = HopperLoop { tile, terms: &h.terms, a, b, barriers, dtypes, promote, groups };
        main.init(e);
        main
    }

    fn stages(&self) -> u32 {
        self.tile.folds[0].stages
    }

    fn init(&self, e: &mut Emit) {
        let first = cmp(CmpOp::Eq, Expr::Special(Special::ThreadX), lit32(0));
        e.if_then(first, |e| {
            for s in 0..self.stages() {
                let warps = 4 * self.groups;
                for (at, count) in [(s, 1), (s + self.stages(), warps)] {
                    let address = Expr::SharedAddr(self.barriers, Box::new(lit32(at as i32)));
                    call(e, Intrinsic::MbarrierInit, vec![address, Expr::U32(count)]);
                }
            }
            call(e, Intrinsic::FenceMbarrierInit, Vec::new());
        });
        e.push(Stmt::Barrier);
    }

    /// The whole kernel after `new`: the loading warpgroup, and the others with the epilogue after their products.
    pub fn emit(
        &self,
        e: &mut Emit,
        place: &Where,
        steps: &Steps,
        acc: ArrayId,
        epilogue: impl FnOnce(&mut Emit),
    ) {
        // Equal over a warp, said so that it is kept in a uniform register.
        let group = e.kernel.var("group", Ty::I32);
        let value = over(Expr::Special(Special::Warp), 4);
        e.push(Stmt::Shuffle { var: group, kind: ShuffleKind::Index, value, lane: lit32(0) });
        let loads = cmp(CmpOp::Eq, Expr::Var(group), lit32(0));
        let balance = self.groups == 2;
        e.if_else(
            loads,
            |e| {
                if balance {
                    call(e, Intrinsic::SetMaxRegisters { more: false, count: LOADING }, Vec::new());
                }
                let one = cmp(CmpOp::Eq, Expr::Special(Special::ThreadX), lit32(0));
                e.if_then(one, |e| self.load(e, place, steps));
            },
            |e| {
                if balance {
                    call(e, Intrinsic::SetMaxRegisters { more: true, count: MULTIPLYING }, Vec::new());
                }
                self.multiply(e, &Expr::Var(group), steps, acc);
                epilogue(e);
            },
        );
    }

    fn cursor(&self, e: &mut Emit, parity: u32) -> Cursor {
        let slot = e.let_var("slot", Ty::I32, lit32(0));
        Cursor { slot, parity: e.let_var("parity", Ty::U32, Expr::U32(parity)) }
    }

    fn advance(&self, e: &mut Emit, c: &Cursor) {
        e.push(Stmt::Set(c.slot, plus(Expr::Var(c.slot), lit32(1))));
        let last = cmp(CmpOp::Eq, Expr::Var(c.slot), lit32(self.stages() as i32));
        e.if_then(last, |e| {
            e.push(Stmt::Set(c.slot, lit32(0)));
            e.push(Stmt::Set(c.parity, int_op(IntOp::Xor, Expr::Var(c.parity), Expr::U32(1))));
        });
    }

    fn full(&self, slot: &Expr) -> Expr {
        Expr::SharedAddr(self.barriers, Box::new(slot.clone()))
    }

    fn empty(&self, slot: &Expr) -> Expr {
        Expr::SharedAddr(self.barriers, Box::new(plus(slot.clone(), lit32(self.stages() as i32))))
    }

    fn steps_loop(&self, e: &mut Emit, count: &Expr, f: impl FnOnce(&mut Emit, Expr)) {
        let var = e.kernel.var("it", Ty::I32);
        let body = e.block(|e| f(e, Expr::Var(var)));
        let (lo, step) = (lit32(0), lit32(1));
        e.push(Stmt::For { var, lo, hi: count.clone(), step, unroll: Unroll::None, body });
    }

    /// One thread: waits for a free stage, says how many bytes will come, and starts the copies.
    fn load(&self, e: &mut Emit, place: &Where, steps: &Steps) {
        let operands = [(&self.a, &place.m[0]), (&self.b, &place.n[0])];
        let digits = operands.map(|(op, start)| {
            let start = Num { expr: start.clone(), ty: Ty::I32 };
            if op.boxes.digits.is_empty() { Vec::new() } else { decode(e, start, &op.boxes.digits) }
        });
        let c = self.cursor(e, 1);
        self.steps_loop(e, &steps.count, |e, it| {
            let slot = Expr::Var(c.slot);
            call(e, Intrinsic::MbarrierWait, vec![self.empty(&slot), Expr::Var(c.parity)]);
            let full = e.named("full", Ty::U32, self.full(&slot));
            let bytes = Expr::U32(self.a.bytes + self.b.bytes);
            call(e, Intrinsic::MbarrierExpect, vec![full.clone(), bytes]);
            let step = plus(steps.first.clone(), it);
            for slab in 0..self.terms.slabs() {
                let (inner, outer) = self.line(e, &step, slab);
                for ((op, start), digits) in operands.iter().zip(&digits) {
                    let known = Known { place, start, digits, inner: inner.clone(), outer: outer.clone() };
                    op.copy(e, &slot, &full, slab as u32, &known);
                }
            }
            self.advance(e, &c);
        });
    }

    /// The first term of a step's line within the innermost group, and the values of the outer groups.
    fn line(&self, e: &mut Emit, step: &Expr, slab: i64) -> (Expr, Vec<Num>) {
        let terms = self.terms;
        let slabs = terms.slabs();
        let number = plus(times(step.clone(), slabs), lit32(slab as i32));
        if terms.outer().is_empty() {
            return (e.named("k0", Ty::I32, times(number, terms.line)), Vec::new());
        }
        let number = e.named("line", Ty::I32, number);
        let inner = e.named("k0", Ty::I32, times(modulo(number.clone(), terms.chunks()), terms.line));
        let outer = e.named("outer", Ty::I32, over(number.clone(), terms.chunks()));
        let extents: Vec<i64> = terms.outer().iter().map(|g| g.extent).collect();
        let outer = decode(e, Num { expr: outer, ty: Ty::I32 }, &extents);
        if terms.lines() % slabs == 0 {
            return (inner, outer);
        }
        // Lines beyond the last are zero in both operands.
        let there = cmp(CmpOp::Lt, number, lit32(terms.lines() as i32));
        let far = Expr::Select(Box::new(there), Box::new(inner), Box::new(lit32(FAR)));
        (e.named("k0", Ty::I32, far), outer)
    }

    fn multiply(&self, e: &mut Emit, group: &Expr, steps: &Steps, acc: ArrayId) {
        let len = self.tile.m.block / self.groups / 64 * self.tile.n.block / 2;
        let ty = if self.dtypes[0].is_float() { dtype::Ty::F32 } else { dtype::Ty::I32 };
        contract_mma::clear(e, acc, len, ty);
        let sums = Sums::new(e, acc, len, self.promote);
        let mine = int_op(IntOp::Sub, group.clone(), lit32(1));
        let mine = e.named("rows", Ty::I32, times(mine, (self.tile.m.block / self.groups) as i64));
        let a = self.a.descriptor(e, "a_matrix", &mine);
        let b = self.b.descriptor(e, "b_matrix", &lit32(0));
        let c = self.cursor(e, 0);
        let before = e.let_var("before", Ty::I32, lit32(0));
        let first_lane = cmp(CmpOp::Eq, Expr::Special(Special::Lane), lit32(0));
        self.steps_loop(e, &steps.count, |e, it| {
            let slot = Expr::Var(c.slot);
            call(e, Intrinsic::MbarrierWait, vec![self.full(&slot), Expr::Var(c.parity)]);
            let a_stage = e.named("a_stage", Ty::U64, self.a.stage(&a, &slot));
            let b_stage = e.named("b_stage", Ty::U64, self.b.stage(&b, &slot));
            call(e, Intrinsic::WgmmaFence, Vec::new());
            for kk in 0..4 {
                self.products(e, &a_stage, &b_stage, kk, &sums);
            }
            call(e, Intrinsic::WgmmaCommit, Vec::new());
            if self.promote {
                call(e, Intrinsic::WgmmaWait(0), Vec::new());
                e.if_then(first_lane.clone(), |e| {
                    call(e, Intrinsic::MbarrierArrive, vec![self.empty(&slot)]);
                });
                sums.promote(e);
                return self.advance(e, &c);
            }
            call(e, Intrinsic::WgmmaWait(1), Vec::new());
            // The step before is done with its stage.
            let release = and(cmp(CmpOp::Gt, it, lit32(0)), first_lane.clone());
            e.if_then(release, |e| {
                call(e, Intrinsic::MbarrierArrive, vec![self.empty(&Expr::Var(before))]);
            });
            e.push(Stmt::Set(before, slot));
            self.advance(e, &c);
        });
        call(e, Intrinsic::WgmmaWait(0), Vec::new());
    }

    /// The products of 32 bytes of terms: one instruction for each 64 rows.
    fn products(&self, e: &mut Emit, a: &Expr, b: &Expr, kk: u32, sums: &Sums) {
        let n = self.tile.n.block;
        let trans = [!self.a.boxes.k_major, !self.b.boxes.k_major];
        for part in 0..self.tile.m.block / self.groups / 64 {
            let at = |op: &Operand, base: &Expr, part: u32| {
                let bytes = op.terms_offset(kk) + op.rows_offset() * part;
                int_op(IntOp::Add, base.clone(), cast(Ty::U64, lit64(bytes as i64 / 16)))
            };
            let args = vec![at(&self.a, a, part), at(&self.b, b, 0), lit32(sums.scale(kk))];
            let outs = (0..n / 2).map(|i| Place::Elem(sums.of_step(), part * n / 2 + i)).collect();
            let op = Intrinsic::Wgmma { dtypes: self.dtypes, n: n as u16, trans };
            e.push(Stmt::Intrinsic { op, outs, args });
        }
    }
}

impl Operand<'_> {
    /// Starts the copies of a line of terms to one stage.
    fn copy(&self, e: &mut Emit, slot: &Expr, full: &Expr, slab: u32, known: &Known) {
        let (map, rank) = (self.map, self.boxes.map.dims.len() as u8);
        let op = match self.boxes.map.pixels {
            Some(_) => Intrinsic::TmaPixels { map, rank },
            None => Intrinsic::TmaLoad { map, rank },
        };
        for i in 0..self.boxes.count(self.rows) {
            let across =
                if self.boxes.k_major { self.rows * self.line } else { self.line / self.size * LINE };
            let within = (slab * across + i * 64 * LINE) / self.size;
            let elements = plus(times(slot.clone(), (self.bytes / self.size) as i64), lit32(within as i32));
            let to = Expr::SharedAddr(self.shared, Box::new(elements));
            let mut args = vec![to, full.clone()];
            args.extend(self.boxes.coords.iter().map(|c| {
                let part = |&(part, by): &(Part, i64)| times(known.part(part, 64 * i as i32), by);
                c.parts.iter().map(part).fold(lit32(c.constant as i32), |sum, x| plus(x, sum))
            }));
            call(e, op, args);
        }
    }

    /// The descriptor of the first stage, from a row of the block (a multiple of 64) on.
    fn descriptor(&self, e: &mut Emit, name: &str, row: &Expr) -> Expr {
        // Bits: 16–29 the step to the next 64 rows of an operand along M or N, 32–45 that to the next atom, 62 the
        // swizzle of 128 bytes.
        let leading = if self.boxes.k_major { 1 } else { self.rows_offset() as u64 / 16 };
        let (atom, swizzle) = match self.line {
            _ if !self.boxes.k_major => (ATOM, 1u64),
            LINE => (ATOM, 1),
            64 => (ATOM / 2, 2),
            _ => (ATOM / 4, 3),
        };
        let fixed = swizzle << 62 | (atom / 16) << 32 | leading << 16;
        let across = (self.rows_offset() / self.size / 64) as i64;
        let base = Expr::SharedAddr(self.shared, Box::new(times(row.clone(), across)));
        let start = int_op(IntOp::Shr, base, Expr::U32(4));
        let fixed = cast(Ty::U64, lit64(fixed as i64));
        e.named(name, Ty::U64, int_op(IntOp::Or, fixed, cast(Ty::U64, start)))
    }

    fn stage(&self, first: &Expr, slot: &Expr) -> Expr {
        let moved = times(slot.clone(), self.bytes as i64 / 16);
        int_op(IntOp::Add, first.clone(), cast(Ty::U64, moved))
    }

    /// Bytes from the first term to kk times 32 bytes of terms on.
    fn terms_offset(&self, kk: u32) -> u32 {
        if !self.boxes.k_major {
            return kk * 16 * 128;
        }
        kk * 32 / self.line * self.rows * self.line + kk * 32 % self.line
    }

    /// Bytes from 64 rows to the next 64: a line for each row, or one of 128 bytes for each term.
    fn rows_offset(&self) -> u32 {
        64 * if self.boxes.k_major { self.line } else { LINE }
    }
}

impl Known<'_> {
    /// A part of a coordinate, some rows on.
    fn part(&self, part: Part, rows: i32) -> Expr {
        let of = |n: &Num| match n.ty {
            Ty::I32 => n.expr.clone(),
            _ => cast(Ty::I32, n.expr.clone()),
        };
        match part {
            Part::Row => plus(self.start.clone(), lit32(rows)),
            Part::Inner => self.inner.clone(),
            Part::Outer(i) => of(&self.outer[i]),
            Part::Digit(i) => of(&self.digits[i]),
            Part::Batch(i) => of(&self.place.batch[i]),
        }
    }
}

/// The row of the block of a thread's row `r`, and its first column of group `g`, as the instruction lays them out.
pub fn row(block: u32, groups: u32, r: Expr) -> Expr {
    let warp = || int_op(IntOp::Sub, Expr::Special(Special::Warp), lit32(4));
    let group = times(over(warp(), 4), (block / groups) as i64);
    let first = plus(group, times(modulo(warp(), 4), 16));
    let part = plus(times(over(r.clone(), 2), 64), times(modulo(r, 2), 8));
    plus(plus(first, part), over(Expr::Special(Special::Lane), 4))
}
