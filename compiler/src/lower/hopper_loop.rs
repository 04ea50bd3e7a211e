//! The main loop on sm_90a: one warpgroup copies boxes of both operands into a ring of stages, the others multiply what
//! is there, each 64 rows (or 128) of the block.
//!
//! Each stage has two mbarriers. `full` completes when both operands' bytes have landed, `empty` when every
//! multiplying warp has retired the products that read the stage. One group of products stays under way while the
//! next is issued, so a stage is given back one step after its products were issued.
//!
//! The blocks of a cluster make tiles that are neighbours along M: each copies its part of B to all of them, so a stage
//! is free when the multiplying warps of all have retired it, and a block ends when nobody can reach its barriers.
//!
//! A block takes one tile, or one after the other while there are any (`Tile::resident`). The ring does not end with a
//! tile: copies for the next one start while the last one is multiplied and stored.

use super::contract_coords::{Place as Where, fold_op, modulo, over, plus, times};
use super::contract_hopper::Hopper;
use super::contract_mma;
use super::contract_pattern::ContractShape;
use super::hopper_gather::Terms;
use super::hopper_operand::Sums;
use super::hopper_ring::{Cursor, Descriptor, Known, Operand};
use super::hopper_scales::{Scaled, Scales};
use super::map::decode;
use super::scalar::{Emit, Num, and, cast, cmp, int_op, lit32};
use crate::ir::simt::{
    ArrayId, CmpOp, Expr, IntOp, Intrinsic, Place, SharedId, ShuffleKind, Special, Stmt, Ty, Unroll, VarId,
};
use crate::ir::tile::{Arrange, Math, Side, Tile};
use crate::vocab::dtype::{self, DType, Value};

/// Registers a thread of each role has, where two warpgroups multiply: 40 + 2 · 232 ≤ 512.
pub(super) const LOADING: u16 = 40;
pub(super) const MULTIPLYING: u16 = 232;
/// The same where three multiply and need more than their equal share: 32 + 3 · 160 ≤ 512.
const LOADING_FOR_THREE: u16 = 32;
const MULTIPLYING_OF_THREE: u16 = 160;
/// Columns of 64 rows that fit an equal share of registers.
const EQUAL: u32 = 128;
/// A term beyond all others, at 16 bytes.
const FAR: i32 = 1 << 28;

pub struct HopperLoop<'x> {
    tile: &'x Tile,
    terms: &'x Terms,
    a: Operand<'x>,
    b: Operand<'x>,
    barriers: SharedId,
    dtypes: [DType; 2],
    promote: bool,
    /// Sums that share A, and whether f32 operands come in two parts.
    folds: u32,
    halves: bool,
    groups: u32,
    scales: Option<&'x Scales>,
}

/// The range of steps of a block.
pub struct Steps {
    pub first: Expr,
    pub count: Expr,
}

impl Steps {
    /// Whether it is known that there are any.
    fn some(&self) -> bool {
        matches!(self.count, Expr::Lit(Value::I32(n)) if n > 0)
    }
}

pub type Pass<'f> = dyn FnMut(&mut Emit, &Where, &Steps) + 'f;

/// What goes on beside the products.
pub struct Around<'f> {
    /// Does something for each pass over the tile of a number (most have one): where it is, and its steps.
    pub each: &'f dyn Fn(&mut Emit, Expr, &mut Pass),
    /// What a warpgroup (of number 1 and on) does with its sums.
    pub epilogue: &'f dyn Fn(&mut Emit, &Where, &Expr),
    /// What it does after its last tile.
    pub finish: &'f dyn Fn(&mut Emit),
    /// The shape of the product.
    pub shape: &'f ContractShape,
}

pub fn call(e: &mut Emit, op: Intrinsic, args: Vec<Expr>) {
    e.push(Stmt::Intrinsic { op, outs: Vec::new(), args });
}

/// Runs `f` for each tile of the block.
fn each_tile(e: &mut Emit, tile: &Tile, f: impl FnOnce(&mut Emit, Expr)) {
    let first = over(Expr::Special(Special::BlockX), (tile.cluster * tile.join) as i64);
    let Some(blocks) = tile.resident else { return e.scope(|e| f(e, first)) };
    let var = e.kernel.var("tile_number", Ty::I32);
    let body = e.block(|e| f(e, Expr::Var(var)));
    let (hi, step) = (lit32(tile.count() as i32), lit32(blocks as i32));
    e.push(Stmt::For { var, lo: first, hi, step, unroll: Unroll::None, body });
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
        let (of_a, of_b) = if tile.across { (tile.cluster, 1) } else { (1, tile.cluster) };
        let a = Operand::new(e, &fold.a, &h.a, "a", (tile.m.block, of_a), fold.stages, h.terms.line);
        let copied = h.b[0].copied_rows(tile.n.block);
        let b = Operand::new(e, &fold.b, &h.b, "b", (copied, of_b), fold.stages, h.terms.line);
        let barriers = e.kernel.shared("barriers", DType::I64, 2 * fold.stages, 8);
        let (folds, halves) = (tile.folds.len() as u32, dtypes[0] == DType::F32);
        let main = HopperLoop {
            tile,
            terms: &h.terms,
            a,
            b,
            barriers,
            dtypes,
            promote,
            folds,
            halves,
            groups,
            scales: h.scales.as_ref(),
        };
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
                let warps = 4 * self.groups * self.tile.cluster;
                for (at, count) in [(s, 1), (s + self.stages(), warps)] {
                    let address = Expr::SharedAddr(self.barriers, Box::new(lit32(at as i32)));
                    call(e, Intrinsic::MbarrierInit, vec![address, Expr::U32(count)]);
                }
            }
            call(e, Intrinsic::FenceMbarrierInit, Vec::new());
        });
        e.push(Stmt::Barrier);
        if self.tile.cluster * self.tile.join > 1 {
            call(e, Intrinsic::ClusterArrive, Vec::new());
            call(e, Intrinsic::ClusterWait, Vec::new());
        }
    }

    /// The whole kernel after `new`: the loading warpgroup, and the others with the epilogue after their products.
    pub fn emit(&self, e: &mut Emit, acc: ArrayId, around: &Around) {
        // Equal over a warp, said so that it is kept in a uniform register.
        let group = e.kernel.var("group", Ty::I32);
        let value = over(Expr::Special(Special::Warp), 4);
        e.push(Stmt::Shuffle { var: group, kind: ShuffleKind::Index, value, lane: lit32(0) });
        let loads = cmp(CmpOp::Eq, Expr::Var(group), lit32(0));
        let balance = match self.groups {
            2 => Some((LOADING, MULTIPLYING)),
            3 if self.tile.n.block > EQUAL => Some((LOADING_FOR_THREE, MULTIPLYING_OF_THREE)),
            _ => None,
        };
        e.if_else(
            loads,
            |e| {
                if let Some((count, _)) = balance {
                    call(e, Intrinsic::SetMaxRegisters { more: false, count }, Vec::new());
                }
                let one = cmp(CmpOp::Eq, Expr::Special(Special::ThreadX), lit32(0));
                e.if_then(one, |e| self.load(e, around));
            },
            |e| {
                if let Some((_, count)) = balance {
                    call(e, Intrinsic::SetMaxRegisters { more: true, count }, Vec::new());
                }
                self.multiply(e, &Expr::Var(group), acc, around);
                (around.finish)(e);
            },
        );
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
    fn load(&self, e: &mut Emit, around: &Around) {
        let c = Cursor::new(e, 1);
        each_tile(e, self.tile, |e, number| {
            (around.each)(e, number, &mut |e, place, steps| self.load_pass(e, &c, place, steps));
        });
        if self.tile.cluster > 1 {
            self.drain(e, &c);
        }
    }

    fn load_pass(&self, e: &mut Emit, c: &Cursor, place: &Where, steps: &Steps) {
        let tile = self.tile;
        let starts = [(&place.m[0], &tile.m, !tile.across), (&place.n[0], &tile.n, tile.across)];
        let [m, n] = starts.map(|(start, side, along)| self.inside(e, start, side, along));
        let operands = [(&self.a, &m), (&self.b, &n)];
        let digits = operands.map(|(op, start)| {
            let start = Num { expr: plus(start.clone(), op.first()), ty: Ty::I32 };
            if op.boxes.digits.is_empty() { Vec::new() } else { decode(e, start, &op.boxes.digits) }
        });
        self.steps_loop(e, &steps.count, |e, it| {
            let slot = Expr::Var(c.slot);
            call(e, Intrinsic::MbarrierWait, vec![self.empty(&slot), Expr::Var(c.parity)]);
            let full = e.named("full", Ty::U32, self.full(&slot));
            let bytes = Expr::U32(self.a.bytes + self.b.bytes);
            call(e, Intrinsic::MbarrierExpect, vec![full.clone(), bytes]);
            let step = plus(steps.first.clone(), it);
            for slab in 0..self.terms.slabs() {
                let (inner, outer) = self.line(e, place, &step, slab);
                for ((op, start), digits) in operands.iter().zip(&digits) {
                    let (inner, outer) = (inner.clone(), outer.clone());
                    let known = Known { place, start, digits, inner, outer };
                    op.copy(e, &slot, &full, slab as u32, &known);
                }
            }
            c.advance(e, self.stages());
        });
    }

    /// Where a side's rows are copied from: the last cluster may have blocks beyond the side, which copy its last tile.
    fn inside(&self, e: &mut Emit, start: &Expr, side: &Side, along: bool) -> Expr {
        let whole = side.tiles() % self.tile.cluster as i64 == 0;
        let [dim] = &side.dims[..] else { return start.clone() };
        if !along || whole {
            return start.clone();
        }
        let last = lit32(((side.tiles() - 1) * dim.block) as i32);
        e.named("from", Ty::I32, fold_op(IntOp::Min, start.clone(), last))
    }

    /// The first term of a step's line within the innermost group, and the values of the outer groups.
    fn line(&self, e: &mut Emit, place: &Where, step: &Expr, slab: i64) -> (Expr, Vec<Num>) {
        let terms = self.terms;
        let slabs = terms.slabs();
        let number = plus(times(step.clone(), slabs), lit32(slab as i32));
        if terms.outer().is_empty() {
            return (e.named("k0", Ty::I32, times(number, terms.line)), Vec::new());
        }
        let number = e.named("line", Ty::I32, number);
        let inner = e.named("k0", Ty::I32, times(modulo(number.clone(), terms.chunks()), terms.line));
        let outer = e.named("outer", Ty::I32, over(number.clone(), terms.chunks()));
        if !terms.ragged.is_empty() {
            return (inner, terms.own_digits(e, place, outer));
        }
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

    /// Waits until the cluster's blocks have given back every stage: they reach this one's barriers no more.
    fn drain(&self, e: &mut Emit, c: &Cursor) {
        let var = e.kernel.var("stage", Ty::I32);
        let body = e.block(|e| {
            call(e, Intrinsic::MbarrierWait, vec![self.empty(&Expr::Var(c.slot)), Expr::Var(c.parity)]);
            c.advance(e, self.stages());
        });
        let hi = lit32(self.stages() as i32);
        e.push(Stmt::For { var, lo: lit32(0), hi, step: lit32(1), unroll: Unroll::None, body });
    }

    /// Gives a stage back to every block that copies to it.
    fn release(&self, e: &mut Emit, slot: Expr, when: Option<Expr>) {
        let lane = || Expr::Special(Special::Lane);
        let some = |lanes: Expr| when.map_or(lanes.clone(), |w| and(w, lanes));
        if self.tile.cluster == 1 {
            let first = some(cmp(CmpOp::Eq, lane(), lit32(0)));
            return e.if_then(first, |e| call(e, Intrinsic::MbarrierArrive, vec![self.empty(&slot)]));
        }
        let lanes = some(cmp(CmpOp::Lt, lane(), lit32(self.tile.cluster as i32)));
        e.if_then(lanes, |e| {
            call(e, Intrinsic::MbarrierArriveAt, vec![self.empty(&slot), cast(Ty::U32, lane())]);
        });
    }

    fn multiply(&self, e: &mut Emit, group: &Expr, acc: ArrayId, around: &Around) {
        let mine = int_op(IntOp::Sub, group.clone(), lit32(1));
        let mine = e.named("rows", Ty::I32, times(mine, (self.tile.m.block / self.groups) as i64));
        let a = self.a.descriptor(e, "a_matrix", &mine);
        let b = self.b.descriptor(e, "b_matrix", &lit32(0));
        let c = Cursor::new(e, 0);
        let before = e.let_var("before", Ty::I32, lit32(0));
        let len = self.tile.m.block / self.groups / 64 * self.columns() / 2;
        let ty = if self.dtypes[0].is_float() { dtype::Ty::F32 } else { dtype::Ty::I32 };
        let scaled = self.scales.map(|s| Scaled::new(e, s, around.shape, self.tile));
        let sums = Sums::new(e, acc, len, (self.promote, self.halves), scaled);
        each_tile(e, self.tile, |e, number| {
            (around.each)(e, number, &mut |e, place, steps| {
                // In passes, sums cleared behind the loop are moved about and spill.
                let first = self.promote || !steps.some() && around.shape.selector.is_some();
                if first {
                    contract_mma::clear(e, acc, len, ty);
                }
                self.sum(e, [&a, &b], (&c, before), (place, steps), &sums);
                // Not before the products: ptxas waits for each of them where other code writes what they add to.
                if !first && !steps.some() {
                    let none = cmp(CmpOp::Le, steps.count.clone(), lit32(0));
                    e.if_then(none, |e| contract_mma::clear(e, acc, len, ty));
                }
                (around.epilogue)(e, place, group);
            });
        });
    }

    /// The products of a tile.
    fn sum(
        &self,
        e: &mut Emit,
        ab: [&Descriptor; 2],
        (c, before): (&Cursor, VarId),
        (place, steps): (&Where, &Steps),
        sums: &Sums,
    ) {
        self.steps_loop(e, &steps.count, |e, it| {
            let slot = Expr::Var(c.slot);
            call(e, Intrinsic::MbarrierWait, vec![self.full(&slot), Expr::Var(c.parity)]);
            let a_stage = self.a.stage(e, "a_stage", ab[0], &slot);
            let b_stage = self.b.stage(e, "b_stage", ab[1], &slot);
            let later = cmp(CmpOp::Gt, it.clone(), lit32(0));
            // The first products of a tile, or of what is promoted, replace what the accumulators hold.
            let scale = match sums.fresh(&it) {
                Some(scale) => scale,
                None => Expr::Select(Box::new(later.clone()), Box::new(lit32(1)), Box::new(lit32(0))),
            };
            let scale = e.named("scale", Ty::I32, scale);
            call(e, Intrinsic::WgmmaFence, Vec::new());
            for kk in 0..4 {
                self.products(e, [&a_stage, &b_stage], kk, &scale, sums);
            }
            call(e, Intrinsic::WgmmaCommit, Vec::new());
            if self.promote {
                sums.prepare(e, place, plus(steps.first.clone(), it.clone()));
                call(e, Intrinsic::WgmmaWait(0), Vec::new());
                self.release(e, slot, None);
                sums.promote(e, &it, &steps.count);
                return c.advance(e, self.stages());
            }
            call(e, Intrinsic::WgmmaWait(1), Vec::new());
            // The step before is done with its stage.
            self.release(e, Expr::Var(before), Some(later));
            e.push(Stmt::Set(before, slot));
            c.advance(e, self.stages());
        });
        if self.promote {
            return;
        }
        call(e, Intrinsic::WgmmaWait(0), Vec::new());
        if self.tile.resident.is_some() || self.tile.cluster > 1 || !steps.some() {
            let some = cmp(CmpOp::Gt, steps.count.clone(), lit32(0));
            self.release(e, Expr::Var(before), if steps.some() { None } else { Some(some) });
        }
    }

    /// Columns of all sums.
    fn columns(&self) -> u32 {
        self.tile.n.block * self.folds
    }

    /// The products of 32 bytes of terms: one instruction for each 64 rows, and of f32 one for each pair of parts that
    /// counts. `scale`: of the first of a step.
    fn products(&self, e: &mut Emit, ab: [&Descriptor; 2], kk: u32, scale: &Expr, sums: &Sums) {
        let n = self.columns();
        let trans = [!self.a.boxes.k_major, !self.b.boxes.k_major];
        let pairs: &[(u32, u32)] = if self.halves { &[(1, 0), (0, 1), (0, 0)] } else { &[(0, 0)] };
        for (part, (i, &(x, y))) in (0..self.tile.m.block / self.groups / 64)
            .flat_map(|part| pairs.iter().enumerate().map(move |p| (part, p)))
        {
            let a = self.a.terms_offset(kk) + self.a.part_offset(x) + self.a.rows_offset() * part;
            let b = self.b.terms_offset(kk) + self.b.part_offset(y);
            let first = kk == 0 && i == 0;
            let args = vec![ab[0].at(a), ab[1].at(b), if first { scale.clone() } else { lit32(1) }];
            let outs = (0..n / 2).map(|i| Place::Elem(sums.of_step(), part * n / 2 + i)).collect();
            let op = Intrinsic::Wgmma { dtypes: self.dtypes, n: n as u16, trans };
            e.push(Stmt::Intrinsic { op, outs, args });
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
