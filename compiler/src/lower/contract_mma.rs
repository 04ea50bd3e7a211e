//! The math of one step: fragments from shared memory to registers, `mma.sync` or fused multiply-adds, and where the
//! accumulators of a thread stand in the block.

use super::contract_coords::{modulo, over, plus, times};
use super::contract_operand::atom_k;
use super::hopper_loop;
use super::scalar::{Emit, int_op, lit32};
use crate::ir::layout::SharedTile;
use crate::ir::simt::{
    ArrayId, Expr, IntOp, Intrinsic, Mem, Place as Out, SharedId, Special, Stmt, Ty, Unroll,
};
use crate::ir::tile::{Arrange, FoldTile, Math, MmaKind, Operand, Place, Tile};
use crate::vocab::dtype;
use crate::vocab::func::Func;

/// Terms after which fp8 products move to the f32 accumulator.
const PROMOTE: i64 = 128;

/// A thread's accumulators: rows, each with groups of neighbouring columns.
#[derive(Clone, Copy)]
pub struct Accumulators {
    pub rows: u32,
    pub groups: u32,
    /// Neighbouring columns of a group.
    pub width: u32,
    arrange: Arrange,
    block: (u32, u32),
}

impl Accumulators {
    pub fn of(tile: &Tile) -> Accumulators {
        let block = (tile.m.block, tile.n.block);
        let (rows, groups, width) = match tile.arrange {
            Arrange::Warps { m, n } => (block.0 / m / 8, block.1 / n / 8, 2),
            Arrange::Groups { m } => (block.0 / m / 32, block.1 / 8, 2),
            Arrange::Threads { tm, tn, vn, .. } => (tm, tn / vn, vn),
            // These sums meet in shared memory.
            Arrange::Codes { .. } | Arrange::Stream { .. } => (0, 0, 1),
        };
        Accumulators { rows, groups, width, arrange: tile.arrange, block }
    }

    pub fn len(&self) -> u32 {
        self.rows * self.groups * self.width
    }

    /// The block's row of a thread's row `r`.
    pub fn row(&self, r: Expr) -> Expr {
        match self.arrange {
            Arrange::Warps { n, m } => {
                let warp = times(over(Expr::Special(Special::Warp), n as i64), (self.block.0 / m) as i64);
                plus(plus(warp, times(r, 8)), over(Expr::Special(Special::Lane), 4))
            }
            Arrange::Groups { m } => hopper_loop::row(self.block.0, m, r),
            Arrange::Codes { .. } | Arrange::Stream { .. } => r,
            Arrange::Threads { rows, cols, vm, .. } => {
                let thread = times(over(Expr::Special(Special::ThreadX), cols as i64), vm as i64);
                let run = times(over(r.clone(), vm as i64), (rows * vm) as i64);
                plus(plus(run, thread), modulo(r, vm as i64))
            }
        }
    }

    /// The block's first column of a thread's group `g`.
    pub fn column(&self, g: Expr) -> Expr {
        match self.arrange {
            Arrange::Warps { n, .. } => {
                let warp = times(modulo(Expr::Special(Special::Warp), n as i64), (self.block.1 / n) as i64);
                plus(plus(warp, times(g, 8)), times(modulo(Expr::Special(Special::Lane), 4), 2))
            }
            Arrange::Codes { .. } | Arrange::Stream { .. } => g,
            Arrange::Groups { .. } => plus(times(g, 8), times(modulo(Expr::Special(Special::Lane), 4), 2)),
            Arrange::Threads { cols, vn, .. } => {
                let thread = times(modulo(Expr::Special(Special::ThreadX), cols as i64), vn as i64);
                plus(times(g, (cols * vn) as i64), thread)
            }
        }
    }

    /// Place of (row, group, column in the group) in the accumulator array.
    pub fn index(&self, r: Expr, g: Expr, w: u32) -> Expr {
        match self.arrange {
            Arrange::Warps { .. } | Arrange::Groups { .. } => {
                let atom = plus(times(over(r.clone(), 2), self.groups as i64), g);
                plus(plus(times(atom, 4), times(modulo(r, 2), 2)), lit32(w as i32))
            }
            Arrange::Codes { .. } | Arrange::Stream { .. } => r,
            Arrange::Threads { tn, .. } => {
                plus(plus(times(r, tn as i64), times(g, self.width as i64)), lit32(w as i32))
            }
        }
    }
}

/// The two operands' tiles in shared memory.
pub struct Tiles {
    pub a: SharedId,
    pub b: SharedId,
    /// Byte addresses (U32) of their first stage's lane parts, for `ldmatrix`; one for each K atom (or each row of
    /// atoms, where the operand is not K-major).
    lanes: Option<[Vec<Expr>; 2]>,
}

/// Emits what `ldmatrix` needs that does not change along the fold.
pub fn prepare(e: &mut Emit, tile: &Tile, fold: &FoldTile, a: SharedId, b: SharedId) -> Tiles {
    let (Math::Mma { .. }, Arrange::Warps { m, n }) = (fold.math, tile.arrange) else {
        return Tiles { a, b, lanes: None };
    };
    let warp = e.named("warp", Ty::I32, Expr::Special(Special::Warp));
    let rows_a = times(over(warp.clone(), n as i64), (tile.m.block / m) as i64);
    let rows_b = times(modulo(warp, n as i64), (tile.n.block / n) as i64);
    let lanes_a = lane_addresses(e, "a", &fold.a, fold, a, rows_a, tile.m.block / m / 16, true);
    let lanes_b = lane_addresses(e, "b", &fold.b, fold, b, rows_b, tile.n.block / n / 16, false);
    Tiles { a, b, lanes: Some([lanes_a, lanes_b]) }
}

/// The address each lane gives `ldmatrix.x4`: four 8 × 16-byte matrices are 16 rows × 32 bytes of K. A has the
/// upper rows second, B the upper half of K second.
#[allow(clippy::too_many_arguments)]
fn lane_addresses(
    e: &mut Emit,
    name: &str,
    op: &Operand,
    fold: &FoldTile,
    shared: SharedId,
    first_row: Expr,
    atoms: u32,
    is_a: bool,
) -> Vec<Expr> {
    let Place::Chunks(t) = op.place else { return Vec::new() };
    let lane = e.named(&format!("{name}_lane_number"), Ty::I32, Expr::Special(Special::Lane));
    let low = || modulo(lane.clone(), 8);
    let eights = e.named(&format!("{name}_matrix_low"), Ty::I32, modulo(over(lane.clone(), 8), 2));
    let sixteens = e.named(&format!("{name}_matrix_high"), Ty::I32, over(lane.clone(), 16));
    // Which bit of the matrix number moves along rows (M or N), and which along K.
    let (row_bit, k_bit) = if is_a { (eights, sixteens) } else { (sixteens, eights) };
    let base = Expr::SharedAddr(shared, Box::new(lit32(0)));
    let base = e.named(&format!("{name}_shared"), Ty::U32, base);
    let row = match op.k_major {
        true => plus(first_row.clone(), plus(low(), times(row_bit.clone(), 8))),
        false => plus(low(), times(k_bit.clone(), 8)),
    };
    let row = e.named(&format!("{name}_lane_row"), Ty::I32, row);
    let mut address = |row: Expr, chunk: Expr| {
        let at = times(plus(times(row.clone(), t.pitch as i64), swizzle(&t, row, chunk)), 16);
        let at = int_op(IntOp::Add, base.clone(), super::scalar::cast(Ty::U32, at));
        e.named(&format!("{name}_lane"), Ty::U32, at)
    };
    if op.k_major {
        let atoms_k = fold.slot / atom_k(fold.math) as u32;
        (0..atoms_k).map(|kk| address(row.clone(), plus(lit32(2 * kk as i32), k_bit.clone()))).collect()
    } else {
        let first = || over(first_row.clone(), 8);
        (0..atoms)
            .map(|i| address(row.clone(), plus(plus(first(), lit32(2 * i as i32)), row_bit.clone())))
            .collect()
    }
}

fn swizzle(t: &SharedTile, row: Expr, chunk: Expr) -> Expr {
    if t.mask == 0 {
        return chunk;
    }
    let row = if t.shift == 0 { row } else { over(row, 1 << t.shift) };
    int_op(IntOp::Xor, chunk, int_op(IntOp::And, row, lit32(t.mask as i32)))
}

/// Sets all accumulators to zero.
pub fn clear(e: &mut Emit, acc: ArrayId, len: u32, ty: dtype::Ty) {
    let i = e.kernel.var("i", Ty::I32);
    let body = vec![Stmt::SetElem(acc, Expr::Var(i), super::contract_loads::zero(ty))];
    e.push(full(i, len, body));
}

fn full(var: crate::ir::simt::VarId, count: u32, body: Vec<Stmt>) -> Stmt {
    Stmt::For { var, lo: lit32(0), hi: lit32(count as i32), step: lit32(1), unroll: Unroll::Full, body }
}

/// Registers of one sum's math.
pub struct Registers {
    pub acc: ArrayId,
    a: ArrayId,
    b: ArrayId,
    /// What fp8 products gather in before they are promoted.
    short: Option<ArrayId>,
}

impl Registers {
    pub fn new(e: &mut Emit, tile: &Tile, fold: &FoldTile, ty: dtype::Ty, acc: ArrayId) -> Registers {
        match (fold.math, tile.arrange) {
            (Math::Mma { promote, .. }, Arrange::Warps { m, n }) => {
                let (am, an) = (tile.m.block / m / 16, tile.n.block / n / 16);
                // Two sets, so that the next atom's fragments load while this one multiplies.
                let sets = if fold.slot as i64 > atom_k(fold.math) { 2 } else { 1 };
                let short = promote.then(|| e.kernel.array("short", Ty::F32, am * an * 8));
                let a = e.kernel.array("a_frag", Ty::U32, sets * am * 4);
                Registers { acc, a, b: e.kernel.array("b_frag", Ty::U32, sets * an * 4), short }
            }
            (_, Arrange::Threads { tm, tn, .. }) => {
                let a = e.kernel.array("a_frag", Ty::of(ty), tm);
                Registers { acc, a, b: e.kernel.array("b_frag", Ty::of(ty), tn), short: None }
            }
            (_, _) => Registers { acc, a: acc, b: acc, short: None },
        }
    }
}

/// Multiplies the tiles of stage `slot` (I32).
pub fn step(e: &mut Emit, tile: &Tile, fold: &FoldTile, tiles: &Tiles, r: &Registers, slot: &Expr) {
    match (fold.math, tile.arrange, &tiles.lanes) {
        (Math::Mma { kind, .. }, Arrange::Warps { m, n }, Some(lanes)) => {
            let atoms = (tile.m.block / m / 16, tile.n.block / n / 16);
            mma_step(e, fold, kind, lanes, r, slot, atoms);
        }
        (Math::Fma(ty), Arrange::Threads { .. }, _) => fma_step(e, tile, fold, tiles, r, slot, ty),
        _ => {}
    }
}

fn mma_step(
    e: &mut Emit,
    fold: &FoldTile,
    kind: MmaKind,
    lanes: &[Vec<Expr>; 2],
    r: &Registers,
    slot: &Expr,
    (am, an): (u32, u32),
) {
    let stage = |e: &mut Emit, op: &Operand, name: &str| {
        let at = times(slot.clone(), op.place.bytes(op.dtype) as i64);
        e.named(name, Ty::U32, super::scalar::cast(Ty::U32, at))
    };
    let (a_stage, b_stage) = (stage(e, &fold.a, "a_stage"), stage(e, &fold.b, "b_stage"));
    let atoms_k = fold.slot / atom_k(fold.math) as u32;
    let sets = if atoms_k > 1 { 2 } else { 1 };
    let load = |e: &mut Emit, kk: u32| {
        let set = kk % sets;
        for i in 0..am {
            fragment(e, &fold.a, &lanes[0], &a_stage, kk, i, r.a, (set * am + i) * 4);
        }
        for j in 0..an {
            fragment(e, &fold.b, &lanes[1], &b_stage, kk, j, r.b, (set * an + j) * 4);
        }
    };
    let per = (PROMOTE / atom_k(fold.math)) as u32;
    let acc = r.short.unwrap_or(r.acc);
    load(e, 0);
    for kk in 0..atoms_k {
        if kk + 1 < atoms_k && sets == 2 {
            load(e, kk + 1);
        }
        if r.short.is_some() && kk % per == 0 {
            clear(e, acc, am * an * 8, dtype::Ty::F32);
        }
        let set = kk % sets;
        for i in 0..am {
            for j in 0..2 * an {
                let (a, b) = ((set * am + i) * 4, (set * an * 2 + j) * 2);
                atom(e, kind, (r.a, a), (r.b, b), (acc, (i * 2 * an + j) * 4));
            }
        }
        if r.short.is_some() && ((kk + 1) % per == 0 || kk + 1 == atoms_k) {
            promote(e, acc, r.acc, am * an * 8);
        }
    }
}

/// to = from, from one element on.
pub fn copy(e: &mut Emit, from: ArrayId, at: u32, to: ArrayId, len: u32) {
    let i = e.kernel.var("i", Ty::I32);
    let value = Expr::Elem(from, Box::new(plus(Expr::Var(i), lit32(at as i32))));
    e.push(full(i, len, vec![Stmt::SetElem(to, Expr::Var(i), value)]));
}

/// acc += short
pub fn promote(e: &mut Emit, short: ArrayId, acc: ArrayId, len: u32) {
    let i = e.kernel.var("i", Ty::I32);
    let at = |a| Expr::Elem(a, Box::new(Expr::Var(i)));
    let sum = Expr::Call(Func::Add, vec![at(acc), at(short)]);
    e.push(full(i, len, vec![Stmt::SetElem(acc, Expr::Var(i), sum)]));
}

/// 16 rows × 32 bytes of K of an operand to four registers.
#[allow(clippy::too_many_arguments)]
fn fragment(e: &mut Emit, op: &Operand, lanes: &[Expr], stage: &Expr, kk: u32, i: u32, to: ArrayId, at: u32) {
    let Place::Chunks(t) = op.place else { return };
    let pitch = t.pitch * 16;
    let (lane, offset) = if op.k_major {
        (&lanes[kk as usize], i * 16 * pitch)
    } else {
        (&lanes[i as usize], kk * 16 * pitch)
    };
    let mut address = int_op(IntOp::Add, lane.clone(), stage.clone());
    if offset != 0 {
        address = int_op(IntOp::Add, address, Expr::U32(offset));
    }
    let outs = (0..4).map(|w| Out::Elem(to, at + w)).collect();
    let op = Intrinsic::LdMatrix { count: 4, trans: !op.k_major };
    e.push(Stmt::Intrinsic { op, outs, args: vec![address] });
}

/// One 16 × 8 atom: `a` four registers (rows 0–7 and 8–15 of the lower, then of the upper half of K), `b` two.
fn atom(e: &mut Emit, kind: MmaKind, a: (ArrayId, u32), b: (ArrayId, u32), c: (ArrayId, u32)) {
    let elem = |(array, at): (ArrayId, u32), i: u32| Expr::Elem(array, Box::new(lit32((at + i) as i32)));
    let outs = || (0..4).map(|i| Out::Elem(c.0, c.1 + i)).collect::<Vec<_>>();
    let mut emit = |op, a_at: &[u32], b_at: &[u32]| {
        let args = a_at.iter().map(|&i| elem(a, i)).chain(b_at.iter().map(|&i| elem(b, i)));
        let args = args.chain((0..4).map(|i| elem(c, i))).collect();
        e.push(Stmt::Intrinsic { op, outs: outs(), args });
    };
    match kind {
        MmaKind::Half(dtype) => emit(Intrinsic::MmaM16N8K16 { dtype }, &[0, 1, 2, 3], &[0, 1]),
        MmaKind::HalfK8 => {
            emit(Intrinsic::MmaM16N8K8F16, &[0, 1], &[0]);
            emit(Intrinsic::MmaM16N8K8F16, &[2, 3], &[1]);
        }
        MmaKind::Tf32 => emit(Intrinsic::MmaM16N8K8Tf32, &[0, 1, 2, 3], &[0, 1]),
        MmaKind::Byte(x, y) => emit(Intrinsic::MmaM16N8K32 { a: x, b: y }, &[0, 1, 2, 3], &[0, 1]),
    }
}

fn fma_step(
    e: &mut Emit,
    tile: &Tile,
    fold: &FoldTile,
    tiles: &Tiles,
    r: &Registers,
    slot: &Expr,
    ty: dtype::Ty,
) {
    let Arrange::Threads { rows, cols, tm, tn, vm, vn } = tile.arrange else { return };
    let thread = || Expr::Special(Special::ThreadX);
    let kk = e.kernel.var("kk", Ty::I32);
    e.open();
    let mut vectors = |op: &Operand, shared, to, count: u32, v: u32, stride: u32, first: Expr| {
        let Place::Rows { rows: k, pitch } = op.place else { return };
        let stage = times(slot.clone(), (k * pitch) as i64);
        let line = plus(stage, plus(times(Expr::Var(kk), pitch as i64), times(first, v as i64)));
        for g in 0..count / v {
            let index = plus(line.clone(), lit32((g * stride * v) as i32));
            let mem = Mem::Shared(shared);
            let load = match v {
                1 => Stmt::SetElem(to, lit32(g as i32), Expr::Load(mem, Box::new(index))),
                _ => Stmt::LoadVec { array: to, at: g * v, mem, index, count: v },
            };
            e.push(load);
        }
    };
    vectors(&fold.a, tiles.a, r.a, tm, vm, rows, over(thread(), cols as i64));
    vectors(&fold.b, tiles.b, r.b, tn, vn, cols, modulo(thread(), cols as i64));
    let (i, j) = (e.kernel.var("i", Ty::I32), e.kernel.var("j", Ty::I32));
    let at = plus(times(Expr::Var(i), tn as i64), Expr::Var(j));
    let elem = |array, at: Expr| Expr::Elem(array, Box::new(at));
    let (a, b) = (elem(r.a, Expr::Var(i)), elem(r.b, Expr::Var(j)));
    let c = elem(r.acc, at.clone());
    let sum = match ty {
        dtype::Ty::F32 | dtype::Ty::F64 => Expr::Call(Func::Fma, vec![a, b, c]),
        _ => int_op(IntOp::Add, int_op(IntOp::Mul, a, b), c),
    };
    let inner = full(j, tn, vec![Stmt::SetElem(r.acc, at, sum)]);
    e.push(full(i, tm, vec![inner]));
    let body = e.close();
    // A few terms at a time: enough to overlap loads, and quick to compile.
    let unroll = if fold.slot <= 4 { Unroll::Full } else { Unroll::By(4) };
    let hi = lit32(fold.slot as i32);
    e.push(Stmt::For { var: kk, lo: lit32(0), hi, step: lit32(1), unroll, body });
}
