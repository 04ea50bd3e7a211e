//! The epilogue's way out on sm_90a: rounded values go to a staging tile in shared memory, and from there as boxes to
//! the result (TMA stores).
//!
//! Each multiplying warpgroup has staging tiles (`slots`) of 64 rows × one line, written in turn. 16-bit values are
//! written by `stmatrix`, others in pairs. Chunks of 16 bytes are swizzled as the tensor map says, so that neither
//! side meets bank conflicts.
//!
//! Before a tile that another piece has used is written again, its leader waits until the store has read it.
//!
//! Results whose lines begin anywhere (an odd pitch) are no boxes. Each warp then stores its own 16 rows from the staging
//! tile (`hopper_lanes`), a line with neighbouring lanes, which from the instructions' layout would be eight lines at once.

use super::contract_coords::{Place as Where, both, digits, fold_op, modulo, over, plus, row, times};
use super::contract_epilogue::{Epilogue, Point, define, unrolled, when};
use super::contract_mma::Accumulators;
use super::contract_operand::Ground;
use super::contract_pattern::{ContractShape, Digit};
use super::hopper_gather::flat_step;
use super::hopper_loop::call;
use super::hopper_ring::ATOM;
use super::scalar::{Emit, cast, cmp, int_op, lit32};
use crate::ir::graph::{Role, TensorId};
use crate::ir::simt::{
    ArrayId, CmpOp, Expr, IntOp, Intrinsic, Mem, ParamId, SharedId, Special, Stmt, Swizzle, TensorMap, Ty,
};
use crate::ir::tile::{Arrange, Tile};
use crate::vocab::dtype::{self, DType, Value};

/// Rows of a piece.
const ROWS: u32 = 64;

/// A result that boxes can be stored to.
pub struct Lines {
    tensor: TensorId,
    dtype: DType,
    /// Bytes.
    offset: i64,
    pitch: i64,
    rows: i64,
    columns: i64,
    /// Batch digits that move it: number, extent, bytes.
    batch: Vec<(usize, i64, i64)>,
    /// Whether they are boxes; else lanes store them.
    boxes: bool,
    /// Whether a line runs along the rows.
    turned: bool,
}

/// How a tile is stored.
pub struct Output {
    tensor: TensorId,
    pub(super) map: TensorMap,
    pub(super) columns: u32,
    slots: u32,
    batch: Vec<usize>,
    pub(super) boxes: bool,
    turned: bool,
}

impl Lines {
    /// The result of a product's only statement, if its columns (or its rows) are neighbours.
    pub fn of(ground: &Ground) -> Option<Lines> {
        let shape = ground.shape;
        let [_] = &shape.stmts[..] else { return None };
        let d = define(ground.graph, shape, 0)?;
        let t = ground.graph.tensor(d.target);
        let home = (ground.home)(d.target);
        let fresh = matches!(t.role, Role::Result | Role::Local) && t.version == 0;
        let kind = matches!(t.dtype, DType::BF16 | DType::F16 | DType::F32);
        if !fresh || !kind || home.dtype != t.dtype || ground.graph.ty(d.value) != dtype::Ty::F32 {
            return None;
        }
        let size = t.dtype.bits() as i64 / 8;
        let step = |d: &Digit| home.strides.get(d.out).map(|s| s * d.stride);
        let steps = |digits: &[Digit]| {
            digits.iter().map(|d| step(d).map(|s| (d.extent, s))).collect::<Option<Vec<(i64, i64)>>>()
        };
        let along_n = flat_step(&steps(&shape.n)?)?;
        // Rows that are not one number (every second pixel) are stored line by line.
        let rows_apart = flat_step(&steps(&shape.m)?);
        let along_m = rows_apart.unwrap_or(0);
        let lows = shape.axes.iter().zip(&home.strides).zip(&t.lo).map(|((a, s), lo)| (a.lo - lo) * s);
        let offset = lows.sum::<i64>() * size;
        let (rows, columns) = (ContractShape::points(&shape.m), ContractShape::points(&shape.n));
        let turned = along_n != 1;
        let (near, far, lines) = if turned { (along_m, along_n, columns) } else { (along_n, along_m, rows) };
        let pitch = if lines == 1 { 16 } else { far * size };
        let batch = steps(&shape.batch)?.into_iter().enumerate().filter(|(_, (extent, _))| *extent > 1);
        let batch: Vec<_> = batch.map(|(i, (extent, s))| (i, extent, s * size)).collect();
        let fits = |bytes: i64| bytes > 0 && bytes % 16 == 0 && bytes < 1 << 40;
        let boxes = rows_apart.is_some()
            && fits(pitch)
            && batch.len() <= 3
            && batch.iter().all(|b| fits(b.2))
            && offset >= 0
            && offset % 16 == 0
            && home.align % 16 == 0;
        let (tensor, dtype) = (d.target, t.dtype);
        let lines = Lines { tensor, dtype, offset, pitch, rows, columns, batch, boxes, turned };
        // Matrices of 8 × 8 are turned on their way to shared memory, if they are of 16 bits.
        (near == 1 && (!turned || boxes && size == 2)).then_some(lines)
    }

    /// How a block of `groups` warpgroups stores its tile, in the longest lines that it has the columns for.
    /// `room`: bytes for staging tiles that are there anyway.
    pub fn output(&self, (m, n): (u32, u32), groups: u32, room: u32) -> Option<Output> {
        let size = self.dtype.bits() / 8;
        let lines = [Swizzle::B128, Swizzle::B64, Swizzle::B32];
        let swizzle = lines.into_iter().find(|s| s.width() / size <= n)?;
        let (swizzle, columns) = match self.turned {
            true if n.is_multiple_of(16) => (Swizzle::B128, n.min(64)),
            true => return None,
            false => (swizzle, swizzle.width() / size),
        };
        let order =
            |across: i64, down: i64| if self.turned { vec![down, across] } else { vec![across, down] };
        let extent = order(columns as i64, ROWS as i64);
        let mut map = TensorMap {
            dtype: self.dtype,
            offset: self.offset,
            dims: order(self.columns, self.rows),
            strides: vec![self.pitch],
            extent: extent.into_iter().map(|n| n as u32).collect(),
            swizzle,
            pixels: None,
        };
        for (_, extent, bytes) in &self.batch {
            map.dims.push(*extent);
            map.strides.push(*bytes);
            map.extent.push(1);
        }
        let pieces = m / groups / ROWS * n.div_ceil(columns);
        let batch = self.batch.iter().map(|b| b.0).collect();
        // A tile for each piece needs no waiting in between.
        let all = groups * pieces * map.bytes();
        let slots = match self.boxes {
            true if pieces <= 4 && all <= room => pieces,
            true => pieces.min(2),
            false => 1,
        };
        let (tensor, boxes, turned) = (self.tensor, self.boxes, self.turned);
        Some(Output { tensor, map, columns, slots, batch, boxes, turned })
    }
}

impl Output {
    /// Whether all pieces may be staged at once in stages of elements of `dtype`.
    pub fn in_stages(&self, dtype: DType) -> bool {
        self.boxes && self.map.dtype == dtype && self.map.bytes().is_multiple_of(ATOM)
    }

    /// Bytes of the staging tiles of all warpgroups.
    pub fn bytes(&self, groups: u32) -> u32 {
        groups * self.slots * self.map.bytes()
    }
}

/// The staging tiles of a kernel under construction.
pub struct Staging<'x> {
    pub(super) output: &'x Output,
    pub(super) tile: &'x Tile,
    pub(super) shared: SharedId,
    /// Of the result, where it is stored as boxes.
    map: Option<ParamId>,
    groups: u32,
}

/// Where a piece goes.
pub(super) struct Piece<'p> {
    /// Its accumulators, where PTX names their registers.
    taken: Option<ArrayId>,
    pub place: &'p Where,
    group: &'p Expr,
    part: Expr,
    pub piece: Expr,
    slot: Expr,
}

impl<'x> Staging<'x> {
    pub fn new(e: &mut Emit, tile: &'x Tile, output: &'x Output) -> Staging<'x> {
        let Arrange::Groups { m: groups } = tile.arrange else {
            unreachable!("`contract_hopper` makes these tiles alone")
        };
        let dtype = output.map.dtype;
        let len = output.bytes(groups) * 8 / dtype.bits();
        let shared = e.kernel.shared("staging", dtype, len, ATOM);
        Staging::within(e, tile, output, (shared, groups))
    }

    /// With staging tiles for so many warpgroups at the beginning of shared memory that is free by then.
    pub fn within(
        e: &mut Emit,
        tile: &'x Tile,
        output: &'x Output,
        (shared, groups): (SharedId, u32),
    ) -> Staging<'x> {
        let map = || e.tensor_map(output.tensor, None, "out_map", output.map.clone());
        let map = output.boxes.then(map);
        Staging { output, tile, shared, map, groups }
    }

    fn parts(&self) -> u32 {
        self.tile.m.block / self.groups / ROWS
    }

    fn pieces(&self) -> u32 {
        self.tile.n.block.div_ceil(self.output.columns)
    }

    /// The first column of a piece. The last one ends with the tile, and may make columns of the one before again.
    pub(super) fn first_column(&self, piece: Expr) -> Expr {
        let (n, columns) = (self.tile.n.block, self.output.columns);
        let first = times(piece, columns as i64);
        match n.is_multiple_of(columns) {
            true => first,
            false => fold_op(IntOp::Min, first, lit32((n - columns) as i32)),
        }
    }

    /// Stores a warpgroup's part of a tile.
    pub fn store(&self, e: &mut Emit, epilogue: &Epilogue, place: &Where, accs: &[ArrayId], group: &Expr) {
        let (all, slots) = (self.parts() * self.pieces(), self.output.slots);
        if self.tile.resident.is_some() && self.map.is_some() {
            // The tile before may still be read.
            self.finish(e);
            self.meet(e, group);
        }
        let acc = &e.kernel.arrays[accs[0].0 as usize];
        let (named, ty) = (acc.named, acc.ty);
        let taken = named.then(|| e.kernel.array("taken", ty, self.output.columns / 2));
        let at = |number: &Expr| {
            let pieces = self.pieces() as i64;
            let (part, piece) = (over(number.clone(), pieces), modulo(number.clone(), pieces));
            Piece { taken, place, group, part, piece, slot: modulo(number.clone(), slots as i64) }
        };
        let each = |e: &mut Emit, f: &dyn Fn(&mut Emit, Expr)| match named {
            true => (0..all).for_each(|i| e.scope(|e| f(e, lit32(i as i32)))),
            false => unrolled(e, "piece", all, f),
        };
        let fill = |e: &mut Emit, piece: &Piece, free: &dyn Fn(&mut Emit)| {
            taken.iter().for_each(|&taken| self.take(e, piece, accs[0], taken));
            self.fill(e, epilogue, piece, accs, free);
        };
        let Some(map) = self.map else {
            return each(e, &|e, number| {
                let piece = at(&number);
                fill(e, &piece, &|e| e.push(Stmt::WarpBarrier));
                e.push(Stmt::WarpBarrier);
                self.by_lanes(e, epilogue.shape, &piece);
            });
        };
        let written = |e: &mut Emit| {
            call(e, Intrinsic::FenceProxyAsync, Vec::new());
            self.meet(e, group);
        };
        if slots == all {
            each(e, &|e, number| fill(e, &at(&number), &|_| ()));
            written(e);
            return e.if_then(leader(), |e| {
                each(e, &|e, number| self.send(e, map, &at(&number)));
                call(e, Intrinsic::BulkCommit, Vec::new());
            });
        }
        each(e, &|e, number| {
            let piece = at(&number);
            fill(e, &piece, &|e| self.free(e, &number, group));
            written(e);
            e.if_then(leader(), |e| {
                self.send(e, map, &piece);
                call(e, Intrinsic::BulkCommit, Vec::new());
            });
        });
    }

    /// Waits until the piece that used the staging tile of piece `number` before has left it.
    fn free(&self, e: &mut Emit, number: &Expr, group: &Expr) {
        let slots = self.output.slots;
        let wait = |e: &mut Emit| {
            let left = slots as u8 - 1;
            e.if_then(leader(), |e| call(e, Intrinsic::BulkWait(left), Vec::new()));
            self.meet(e, group);
        };
        match number {
            Expr::Lit(Value::I32(n)) if *n < slots as i32 => {}
            Expr::Lit(_) => wait(e),
            _ => e.if_then(cmp(CmpOp::Ge, number.clone(), lit32(slots as i32)), wait),
        }
    }

    /// Copies the accumulators of a piece of known number.
    fn take(&self, e: &mut Emit, p: &Piece, acc: ArrayId, taken: ArrayId) {
        let layout = Accumulators::of(self.tile);
        let first = over(self.first_column(p.piece.clone()), 8);
        for i in 0..self.output.columns / 2 {
            let (g, h, w) = (i / 4, i / 2 % 2, i % 2);
            let r = plus(times(p.part.clone(), 2), lit32(h as i32));
            let from = layout.index(r, plus(first.clone(), lit32(g as i32)), w);
            e.push(Stmt::SetElem(taken, lit32(i as i32), Expr::Elem(acc, Box::new(from))));
        }
    }

    /// Waits until shared memory is not read any more.
    pub fn finish(&self, e: &mut Emit) {
        if self.map.is_none() {
            return;
        }
        e.if_then(leader(), |e| call(e, Intrinsic::BulkWait(0), Vec::new()));
    }

    fn meet(&self, e: &mut Emit, group: &Expr) {
        call(e, Intrinsic::NamedBarrier { threads: 128 }, vec![cast(Ty::U32, group.clone())]);
    }

    /// The first element of a piece's staging tile.
    pub(super) fn start(&self, p: &Piece) -> Expr {
        let group = int_op(IntOp::Sub, p.group.clone(), lit32(1));
        let slot = plus(times(group, self.output.slots as i64), p.slot.clone());
        times(slot, (ROWS * self.output.columns) as i64)
    }

    fn send(&self, e: &mut Emit, map: ParamId, p: &Piece) {
        let from = Expr::SharedAddr(self.shared, Box::new(self.start(p)));
        let x = plus(p.place.n[0].clone(), self.first_column(p.piece.clone()));
        let y = plus(p.place.m[0].clone(), self.first_row(p));
        let mut args = if self.output.turned { vec![from, y, x] } else { vec![from, x, y] };
        args.extend(self.output.batch.iter().map(|&d| cast(Ty::I32, p.place.batch[d].expr.clone())));
        let op = Intrinsic::TmaStore { map, rank: self.output.map.dims.len() as u8 };
        call(e, op, args);
    }

    /// The block's row at which a piece begins.
    pub(super) fn first_row(&self, p: &Piece) -> Expr {
        let group = int_op(IntOp::Sub, p.group.clone(), lit32(1));
        let rows = times(group, (self.tile.m.block / self.groups) as i64);
        plus(rows, times(p.part.clone(), ROWS as i64))
    }

    /// Which chunk of a line a row's chunks are combined with, for rows that are equal to `row` up to 8.
    pub(super) fn turn(&self, row: Expr) -> Expr {
        let width = self.output.map.swizzle.width() as i64;
        over(row, 128 / width)
    }

    /// Puts the values of a piece into its staging tile, once it is `free`.
    fn fill(&self, e: &mut Emit, epilogue: &Epilogue, p: &Piece, accs: &[ArrayId], free: &dyn Fn(&mut Emit)) {
        let groups = self.output.columns / 8;
        let half = self.output.map.dtype.bits() == 16;
        let pair = e.kernel.array("out", Ty::F32, 2);
        let packed = half.then(|| e.kernel.array("packed", Ty::U32, 2 * groups));
        if !half {
            free(e);
        }
        unrolled(e, "half", 2, |e, h| {
            let r = plus(times(p.part.clone(), 2), h.clone());
            let local = e.named("at_row", Ty::I32, Accumulators::of(self.tile).row(r.clone()));
            let (at, ok) = row(e, &self.tile.m, &p.place.m, local);
            unrolled(e, "group", groups, |e, g| {
                let sums = |w: u32| self.sums(p, accs, &h, &g, w);
                self.pair(e, epilogue, p, &g, (&at, ok.clone()), &sums, pair);
                match packed {
                    Some(packed) => {
                        let elem = |i: i32| Box::new(Expr::Elem(pair, Box::new(lit32(i))));
                        let word = Expr::Pack2(self.output.map.dtype, elem(0), elem(1));
                        e.push(Stmt::SetElem(packed, plus(times(g, 2), h.clone()), word));
                    }
                    None => self.put_pair(e, p, &h, &g, pair),
                }
            });
        });
        if let Some(packed) = packed {
            free(e);
            match self.output.turned {
                true => self.put_turned_matrices(e, p, packed),
                false => self.put_matrices(e, p, packed),
            }
        }
    }

    /// The sums of a piece's row (`h`: of the two that a thread has), group of columns, and column of it.
    fn sums(&self, p: &Piece, accs: &[ArrayId], h: &Expr, g: &Expr, w: u32) -> Vec<Expr> {
        if let Some(taken) = p.taken {
            let index = plus(plus(times(g.clone(), 4), times(h.clone(), 2)), lit32(w as i32));
            return vec![Expr::Elem(taken, Box::new(index))];
        }
        let r = plus(times(p.part.clone(), 2), h.clone());
        let g = plus(over(self.first_column(p.piece.clone()), 8), g.clone());
        let index = Accumulators::of(self.tile).index(r, g, w);
        accs.iter().map(|&a| Expr::Elem(a, Box::new(index.clone()))).collect()
    }

    /// A thread's two neighbouring values.
    #[allow(clippy::too_many_arguments)]
    fn pair(
        &self,
        e: &mut Emit,
        epilogue: &Epilogue,
        p: &Piece,
        g: &Expr,
        (at, in_rows): (&[Expr], Option<Expr>),
        sums: &dyn Fn(u32) -> Vec<Expr>,
        pair: ArrayId,
    ) {
        let layout = Accumulators::of(self.tile);
        let g = plus(over(self.first_column(p.piece.clone()), 8), g.clone());
        let column = e.named("column", Ty::I32, layout.column(g));
        let whole = self.tile.n.points() % 2 == 0;
        for w in 0..2 {
            e.scope(|e| {
                let side = &self.tile.n;
                let (n_at, in_columns) = if whole {
                    // Both columns are inside, or none is.
                    let (mut n_at, ok) = row(e, side, &p.place.n, column.clone());
                    n_at[0] = plus(n_at[0].clone(), lit32(w));
                    (n_at, ok)
                } else {
                    row(e, side, &p.place.n, plus(column.clone(), lit32(w)))
                };
                let ok = both(in_rows.clone(), in_columns);
                if ok.is_some() {
                    e.push(Stmt::SetElem(pair, lit32(w), super::contract_loads::zero(dtype::Ty::F32)));
                }
                when(e, ok, |e| {
                    let m = digits(e, &self.tile.m, &epilogue.shape.m, at);
                    let n = digits(e, side, &epilogue.shape.n, &n_at);
                    let point = Point { m: &m, n: &n, batch: &p.place.batch };
                    epilogue.element(e, &point, sums(w as u32), Some((&[pair], w as u32)));
                });
            });
        }
    }

    /// Two values of 4 bytes.
    fn put_pair(&self, e: &mut Emit, p: &Piece, h: &Expr, g: &Expr, pair: ArrayId) {
        let lane = || Expr::Special(Special::Lane);
        let below = over(lane(), 4);
        let line = plus(plus(warp_row(), times(h.clone(), 8)), below.clone());
        let turn = int_op(IntOp::Xor, over(modulo(lane(), 4), 2), self.turn(below));
        let turn = e.named("turn", Ty::I32, turn);
        let chunk = int_op(IntOp::Xor, times(g.clone(), 2), turn);
        let index = plus(self.start(p), times(line, self.output.columns as i64));
        let index = plus(plus(index, times(chunk, 4)), times(modulo(lane(), 2), 2));
        let mem = Mem::Shared(self.shared);
        e.push(Stmt::StoreVec { mem, index, array: pair, at: 0, count: 2 });
    }

    /// Four matrices of 8 × 8 at a time: the upper and the lower half of 16 rows, of two groups of columns.
    fn put_matrices(&self, e: &mut Emit, p: &Piece, packed: ArrayId) {
        let lane = || Expr::Special(Special::Lane);
        let line = plus(warp_row(), modulo(lane(), 16));
        let start = plus(self.start(p), times(line, self.output.columns as i64));
        let base = Expr::SharedAddr(self.shared, Box::new(start));
        let base = e.named("staged", Ty::U32, base);
        let turn = int_op(IntOp::Xor, over(lane(), 16), self.turn(modulo(lane(), 8)));
        let turn = e.named("turn", Ty::I32, times(turn, 16));
        unrolled(e, "matrices", self.output.columns / 16, |e, i| {
            let moved = int_op(IntOp::Xor, turn.clone(), times(i.clone(), 32));
            let mut args = vec![int_op(IntOp::Add, base.clone(), cast(Ty::U32, moved))];
            let word = |j| Expr::Elem(packed, Box::new(plus(times(i.clone(), 4), lit32(j))));
            args.extend((0..4).map(word));
            call(e, Intrinsic::StMatrix { count: 4, trans: false }, args);
        });
    }
}

impl Staging<'_> {
    /// The same into lines along the rows: each column of a matrix is 16 bytes of one.
    fn put_turned_matrices(&self, e: &mut Emit, p: &Piece, packed: ArrayId) {
        let lane = || Expr::Special(Special::Lane);
        // Lanes 0 to 7 and 8 to 15 have the columns of the upper and the lower rows, the others those of 8 columns on.
        let line = plus(times(over(lane(), 16), 8), modulo(lane(), 8));
        let chunk = plus(times(modulo(Expr::Special(Special::Warp), 4), 2), modulo(over(lane(), 8), 2));
        let chunk = int_op(IntOp::Xor, chunk, modulo(lane(), 8));
        let start = plus(plus(self.start(p), times(line, ROWS as i64)), times(chunk, 8));
        let base = Expr::SharedAddr(self.shared, Box::new(start));
        let base = e.named("staged", Ty::U32, base);
        unrolled(e, "matrices", self.output.columns / 16, |e, i| {
            let moved = times(i.clone(), 16 * ROWS as i64 * 2);
            let mut args = vec![int_op(IntOp::Add, base.clone(), cast(Ty::U32, moved))];
            let word = |j| Expr::Elem(packed, Box::new(plus(times(i.clone(), 4), lit32(j))));
            args.extend((0..4).map(word));
            call(e, Intrinsic::StMatrix { count: 4, trans: true }, args);
        });
    }
}

/// The first of a warp's 16 rows of a piece.
pub(super) fn warp_row() -> Expr {
    times(modulo(Expr::Special(Special::Warp), 4), 16)
}

/// The thread of a warpgroup that issues its stores.
fn leader() -> Expr {
    cmp(CmpOp::Eq, modulo(Expr::Special(Special::ThreadX), 128), lit32(0))
}
