//! An operand of the main loop on sm_90a: its ring of tiles in shared memory, the copies that fill a stage, and the
//! descriptors by which matrix instructions read one.

use super::contract_coords::{Place as Where, modulo, over, plus, times};
use super::hopper_gather::{Boxes, LINE, Part};
use super::hopper_loop::call;
use super::scalar::{Emit, Num, cast, cmp, int_op, lit32, lit64};
use crate::ir::simt::{CmpOp, Expr, IntOp, Intrinsic, ParamId, SharedId, Special, Stmt, Ty, VarId};
use crate::ir::tile;

/// Bytes between atoms of 8 lines of 128 bytes.
pub const ATOM: u32 = 1024;

pub struct Operand<'x> {
    /// Those of the first part; the others' coordinates are the same.
    pub boxes: &'x Boxes,
    pub shared: SharedId,
    /// One for each part: matrices that are copied together and lie one after the other.
    maps: Vec<ParamId>,
    /// Bytes of a stage.
    pub bytes: u32,
    /// Rows of the block, of each part.
    rows: u32,
    /// Blocks of the cluster that copy a share each for all: of the rows, or of a line's terms where the rows are contiguous.
    shares: u32,
    /// Bytes of a line of terms.
    line: u32,
    /// Bytes of an element.
    size: u32,
}

/// A thread's place in a ring: the stage, and the phase that its barriers are in.
#[derive(Clone, Copy)]
pub struct Cursor {
    pub slot: VarId,
    pub parity: VarId,
}

impl Cursor {
    /// At the first stage. Who fills begins with parity 1, since empty stages need no wait in the first round.
    pub fn new(e: &mut Emit, parity: u32) -> Cursor {
        let slot = e.let_var("slot", Ty::I32, lit32(0));
        Cursor { slot, parity: e.let_var("parity", Ty::U32, Expr::U32(parity)) }
    }

    /// On to the next of so many stages.
    pub fn advance(self, e: &mut Emit, stages: u32) {
        self.advance_by(e, 1, stages);
    }

    /// On by some stages, of which there is a multiple.
    pub fn advance_by(self, e: &mut Emit, by: u32, stages: u32) {
        e.push(Stmt::Set(self.slot, plus(Expr::Var(self.slot), lit32(by as i32))));
        let op = if by == 1 { CmpOp::Eq } else { CmpOp::Ge };
        let last = cmp(op, Expr::Var(self.slot), lit32(stages as i32));
        e.if_then(last, |e| {
            let first = plus(Expr::Var(self.slot), lit32(-(stages as i32)));
            e.push(Stmt::Set(self.slot, if by == 1 { lit32(0) } else { first }));
            e.push(Stmt::Set(self.parity, int_op(IntOp::Xor, Expr::Var(self.parity), Expr::U32(1))));
        });
    }
}

/// What the coordinates of copies are made of: a block's digits, and those of a line of terms.
pub struct Known<'k> {
    pub place: &'k Where,
    pub start: &'k Expr,
    pub digits: &'k [Num],
    pub inner: Expr,
    pub outer: Vec<Num>,
}

/// A descriptor as its low half, which moves with what it points to, and its high half, which does not change.
#[derive(Clone)]
pub struct Descriptor {
    low: Expr,
    high: u32,
}

impl Descriptor {
    /// The descriptor so many bytes on.
    pub fn at(&self, bytes: u32) -> Expr {
        let low = match bytes {
            0 => self.low.clone(),
            _ => int_op(IntOp::Add, self.low.clone(), Expr::U32(bytes / 16)),
        };
        let high = cast(Ty::U64, lit64((self.high as i64) << 32));
        int_op(IntOp::Or, high, cast(Ty::U64, low))
    }
}

impl<'x> Operand<'x> {
    /// `shares`: blocks of a cluster that copy a share each, for all; `line`: terms of a line.
    pub fn new(
        e: &mut Emit,
        op: &tile::Operand,
        parts: &'x [Boxes],
        name: &str,
        (rows, shares): (u32, u32),
        stages: u32,
        line: i64,
    ) -> Operand<'x> {
        let bytes = rows * LINE * parts.len() as u32;
        let len = stages * bytes * 8 / op.dtype.bits();
        let shared = e.kernel.shared(format!("{name}_tile"), op.dtype, len, ATOM);
        let map = |p: &Boxes| e.tensor_map(p.tensor, p.buffer, &format!("{name}_map"), p.map.clone());
        let maps = parts.iter().map(map).collect();
        let size = op.dtype.bits() / 8;
        Operand { boxes: &parts[0], shared, maps, bytes, rows, shares, line: line as u32 * size, size }
    }

    /// Rows of all parts.
    fn all_rows(&self) -> u32 {
        self.rows * self.maps.len() as u32
    }

    /// Bytes from the first part to another.
    pub fn part_offset(&self, part: u32) -> u32 {
        part * self.rows * if self.boxes.k_major { self.line } else { LINE }
    }

    /// The first row of this block's share.
    pub fn first(&self) -> Expr {
        if self.boxes.k_major { self.share(self.rows) } else { lit32(0) }
    }

    /// The first of this block's share of so many rows, or terms.
    fn share(&self, all: u32) -> Expr {
        match self.shares as i64 {
            1 => lit32(0),
            n => times(modulo(Expr::Special(Special::BlockX), n), (all / self.shares) as i64),
        }
    }

    /// Starts the copies of a line of terms to one stage.
    pub fn copy(&self, e: &mut Emit, slot: &Expr, full: &Expr, slab: u32, known: &Known) {
        (0..self.maps.len()).for_each(|part| self.copy_part(e, slot, full, slab, known, part));
    }

    fn copy_part(&self, e: &mut Emit, slot: &Expr, full: &Expr, slab: u32, known: &Known, part: usize) {
        let (map, rank) = (self.maps[part], self.boxes.map.dims.len() as u8);
        let op = match self.boxes.map.pixels {
            Some(_) => Intrinsic::TmaPixels { map, rank, multicast: self.shares > 1 },
            None if self.shares > 1 => Intrinsic::TmaMulticast { map, rank },
            None => Intrinsic::TmaLoad { map, rank },
        };
        let k_major = self.boxes.k_major;
        let rows = if k_major { self.rows / self.shares } else { self.rows };
        let first = self.first();
        let terms = if k_major { lit32(0) } else { self.share(self.line / self.size) };
        let inner = plus(known.inner.clone(), terms.clone());
        let known = &Known { inner, outer: known.outer.clone(), ..*known };
        for i in 0..self.boxes.count(rows) {
            let across = if k_major { self.all_rows() * self.line } else { self.line / self.size * LINE };
            let within = (slab * across + i * 64 * LINE + self.part_offset(part as u32)) / self.size;
            let elements = plus(times(slot.clone(), (self.bytes / self.size) as i64), lit32(within as i32));
            // Either way a line of it is for a row or for a term.
            let own = plus(first.clone(), terms.clone());
            let own = times(own, (self.rows_offset() / 64 / self.size) as i64);
            let to = Expr::SharedAddr(self.shared, Box::new(plus(elements, own)));
            let mut args = vec![to, full.clone()];
            args.extend(self.boxes.coords.iter().map(|c| {
                let value = |&(p, by): &(Part, i64)| times(known.part(p, &first, 64 * i as i32), by);
                c.parts.iter().map(value).fold(lit32(c.constant as i32), |sum, x| plus(x, sum))
            }));
            if self.shares > 1 {
                args.push(Expr::U32((1 << self.shares) - 1));
            }
            call(e, op, args);
        }
    }

    /// The descriptor of the first stage, from a row of the block (a multiple of 64) on.
    pub fn descriptor(&self, e: &mut Emit, name: &str, row: &Expr) -> Descriptor {
        // Bits: 16–29 the step to the next 64 rows of an operand along M or N, 32–45 that to the next atom, 62 the
        // swizzle.
        let leading = if self.boxes.k_major { 1 } else { self.rows_offset() / 16 };
        let (atom, swizzle) = match self.line {
            _ if !self.boxes.k_major => (ATOM, 1),
            LINE => (ATOM, 1),
            64 => (ATOM / 2, 2),
            _ => (ATOM / 4, 3),
        };
        let across = (self.rows_offset() / self.size / 64) as i64;
        let base = Expr::SharedAddr(self.shared, Box::new(times(row.clone(), across)));
        // In a cluster an address has the block's number above its 24 lowest bits, where a descriptor has other fields: the
        // start is 14 bits.
        let start = int_op(IntOp::And, int_op(IntOp::Shr, base, Expr::U32(4)), Expr::U32(0x3fff));
        let low = e.named(name, Ty::U32, int_op(IntOp::Or, Expr::U32(leading << 16), start));
        Descriptor { low, high: swizzle << 30 | atom / 16 }
    }

    /// The descriptor of another stage.
    pub fn stage(&self, e: &mut Emit, name: &str, first: &Descriptor, slot: &Expr) -> Descriptor {
        let moved = cast(Ty::U32, times(slot.clone(), self.bytes as i64 / 16));
        let low = e.named(name, Ty::U32, int_op(IntOp::Add, first.low.clone(), moved));
        Descriptor { low, high: first.high }
    }

    /// Bytes from the first term to kk times 32 bytes of terms on.
    pub fn terms_offset(&self, kk: u32) -> u32 {
        if !self.boxes.k_major {
            return kk * 16 * 128;
        }
        kk * 32 / self.line * self.all_rows() * self.line + kk * 32 % self.line
    }

    /// Bytes from 64 rows to the next 64: a line for each row, or one of 128 bytes for each term.
    pub fn rows_offset(&self) -> u32 {
        64 * if self.boxes.k_major { self.line } else { LINE }
    }
}

impl Known<'_> {
    fn row(&self, first: &Expr, rows: i32) -> Expr {
        plus(plus(self.start.clone(), first.clone()), lit32(rows))
    }

    /// A part of a coordinate, some rows on.
    fn part(&self, part: Part, first: &Expr, rows: i32) -> Expr {
        let of = |n: &Num| match n.ty {
            Ty::I32 => n.expr.clone(),
            _ => cast(Ty::I32, n.expr.clone()),
        };
        match part {
            Part::Row => self.row(first, rows),
            Part::OfRow(by, n) => modulo(over(self.row(first, rows), by), n),
            Part::OfTerm(by, i64::MAX) => over(self.inner.clone(), by),
            Part::OfTerm(by, n) => modulo(over(self.inner.clone(), by), n),
            Part::Inner => self.inner.clone(),
            Part::Outer(i) => of(&self.outer[i]),
            Part::Digit(i) => of(&self.digits[i]),
            Part::Batch(i) => of(&self.place.batch[i]),
            Part::Chosen => self.place.chosen.as_ref().map_or(lit32(0), |c| cast(Ty::I32, c.now.clone())),
        }
    }
}
