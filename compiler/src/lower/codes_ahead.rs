//! The constants of groups of weights beside the loop of sm_90a, a chunk of steps ahead.
//!
//! Each warp evaluates what its own 16 rows need, so that no other warp has to be waited for: while the steps of a chunk are
//! multiplied, the loads of the next one's constants are under way to registers, and go to the other half of the warp's table
//! when the chunk is done.

use super::codes_table::Table;
use super::contract_codes::Codes;
use super::contract_coords::{Place as Where, modulo, over, plus, times};
use super::contract_operand::gcd;
use super::scalar::{Emit, and, cast, cmp, int_op, lit32};
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Mem, SharedId, Special, Stmt, Ty};
use crate::vocab::dtype::DType;

/// Rows of a warp.
const ROWS: i64 = 16;
/// Groups, and terms, that a chunk has where there are so many; half of them where a step has products enough to hide the loads,
/// and stages leave little room.
const GROUPS: i64 = 8;
const TERMS: i64 = 512;
const MANY_COLUMNS: i64 = 128;

/// The steps whose constants are in the table together.
#[derive(Clone, Copy)]
pub struct Chunk {
    steps: i64,
    /// Groups that they may meet, in pairs: a warp has two for each row.
    groups: i64,
    /// Whether chunks begin with a group.
    aligned: bool,
    /// Whether there are several.
    several: bool,
}

impl Chunk {
    /// `per`: steps of a warp, whose first is a multiple of them; `columns`: of its instructions; `split`: parts of the terms.
    pub fn of(codes: &Codes, step: i64, columns: i64, per: i64, split: i64) -> Chunk {
        let group = match codes.weight.group {
            0 => return Chunk { steps: per, groups: 2, aligned: true, several: false },
            group => group,
        };
        // Steps after which a group begins.
        let unit = group / gcd(group, step);
        let part = if columns > MANY_COLUMNS { 2 } else { 1 };
        let wanted = (GROUPS * group).max(TERMS) / part / step;
        let steps = ((wanted / unit).max(1) * unit).min(per);
        let several = steps < per;
        let aligned = (split == 1 || per * step % group == 0) && (!several || steps % unit == 0);
        let met = (steps * step + group - 1) / group + if aligned { 0 } else { 1 };
        Chunk { steps, groups: (met + 1) / 2 * 2, aligned, several }
    }

    /// Bytes of the tables of so many warpgroups.
    pub fn bytes(&self, codes: &Codes, warpgroups: i64) -> i64 {
        4 * warpgroups * 4 * self.words(codes)
    }

    /// Words of a warp.
    fn words(&self, codes: &Codes) -> i64 {
        let halves = if self.several { 2 } else { 1 };
        halves * codes.constants() * self.groups * ROWS
    }

    /// Registers in which the next chunk's constants are held.
    pub fn held(&self, codes: &Codes) -> i64 {
        if self.several { codes.constants() * self.groups / 2 } else { 0 }
    }
}

pub struct Ahead<'x> {
    codes: &'x Codes,
    pub table: Table<'x>,
    chunk: Chunk,
    step: i64,
    shared: Option<SharedId>,
}

/// A multiplying warp's place in the table.
pub struct Own<'p> {
    place: &'p Where,
    /// The block's first row of the warp, and its number among those that multiply.
    row: Expr,
    base: Expr,
    /// The warp's first step and its steps.
    first: Expr,
    count: Expr,
    held: Option<ArrayId>,
}

impl<'x> Ahead<'x> {
    pub fn new(e: &mut Emit, codes: &'x Codes, table: Table<'x>, warpgroups: u32) -> Ahead<'x> {
        let tile = &codes.choice.tile;
        let fold = &tile.folds[0];
        let per = (codes.terms / fold.step + tile.split - 1) / tile.split;
        let (per, shares) = (per / codes.sharing as i64, tile.split * codes.sharing as i64);
        let chunk = Chunk::of(codes, fold.step, tile.n.block as i64, per, shares);
        let words = (4 * warpgroups as i64 * chunk.words(codes)) as u32;
        let shared = (words > 0).then(|| e.kernel.shared("table", DType::I32, words, 16));
        Ahead { codes, table, chunk, step: fold.step, shared }
    }

    /// Evaluates the first chunk's constants. `thread`: a number of this thread among those that multiply.
    pub fn begin<'p>(
        &self,
        e: &mut Emit,
        place: &'p Where,
        thread: &Expr,
        (first, count): (&Expr, &Expr),
    ) -> Own<'p> {
        let warp = over(thread.clone(), 32);
        let of_rows = modulo(warp.clone(), self.codes.rows() as i64 / ROWS);
        let row = e.named("warp_row", Ty::I32, times(of_rows, ROWS));
        let base = e.named("own_table", Ty::I32, times(warp, self.chunk.words(self.codes)));
        let registers = (self.codes.constants() * self.chunk.groups / 2) as u32;
        let held = self.shared.map(|_| e.kernel.array("ahead", Ty::F32, registers));
        let own = Own { place, row, base, first: first.clone(), count: count.clone(), held };
        self.load(e, &own, &lit32(0));
        self.store(e, &own, &lit32(0));
        own
    }

    /// Starts the loads of a lane's constants of the chunk that begins at the block's step `step`: of row lane % 16 and groups
    /// two apart.
    fn load(&self, e: &mut Emit, own: &Own, step: &Expr) {
        let Some(held) = own.held else { return };
        let lane = || Expr::Special(Special::Lane);
        let each = self.codes.constants();
        let from = times(plus(own.first.clone(), step.clone()), self.step);
        let from = e.named("first_group", Ty::I32, over(from, self.table.group()));
        let (start, _) = super::contract_codes::starts(self.codes, own.place);
        for j in 0..self.chunk.groups / 2 {
            e.scope(|e| {
                let group = plus(from.clone(), plus(over(lane(), ROWS), lit32(2 * j as i32)));
                let term = times(group, self.table.group());
                let row = plus(plus(start.clone(), own.row.clone()), modulo(lane(), ROWS));
                for (i, v) in self.table.evaluate(e, own.place, row, term).into_iter().enumerate() {
                    e.push(Stmt::SetElem(held, lit32((j * each) as i32 + i as i32), v));
                }
            });
        }
    }

    /// Puts what was loaded into a half of the table.
    fn store(&self, e: &mut Emit, own: &Own, half: &Expr) {
        let (Some(table), Some(held)) = (self.shared, own.held) else { return };
        let each = self.codes.constants();
        let lane = Expr::Special(Special::Lane);
        let base = plus(plus(own.base.clone(), lane), self.of_half(half));
        for (j, i) in (0..self.chunk.groups / 2).flat_map(|j| (0..each).map(move |i| (j, i))) {
            let v = Expr::Elem(held, Box::new(lit32((j * each + i) as i32)));
            let to = plus(plus(base.clone(), lit32((2 * ROWS * j) as i32)), self.of_constant(i as usize));
            e.push(Stmt::Store(Mem::Shared(table), to, self.table.word(v)));
        }
        e.push(Stmt::WarpBarrier);
    }

    fn of_constant(&self, constant: usize) -> Expr {
        lit32((constant as i64 * self.chunk.groups * ROWS) as i32)
    }

    fn of_half(&self, half: &Expr) -> Expr {
        times(half.clone(), self.codes.constants() * self.chunk.groups * ROWS)
    }

    /// At the beginning of the block's step `it`: starts the loads of the next chunk's constants, if this one begins.
    pub fn ahead(&self, e: &mut Emit, own: &Own, it: &Expr) {
        if !self.chunk.several {
            return;
        }
        let next = e.named("next_chunk", Ty::I32, plus(it.clone(), lit32(self.chunk.steps as i32)));
        let begins = cmp(CmpOp::Eq, modulo(it.clone(), self.chunk.steps), lit32(0));
        let there = cmp(CmpOp::Lt, next.clone(), own.count.clone());
        e.if_then(and(begins, there), |e| self.load(e, own, &next));
    }

    /// At the end of step `it`: puts them into the table, if the chunk is done.
    pub fn done(&self, e: &mut Emit, own: &Own, it: &Expr) {
        if !self.chunk.several {
            return;
        }
        let next = plus(it.clone(), lit32(1));
        let ends = cmp(CmpOp::Eq, modulo(next.clone(), self.chunk.steps), lit32(0));
        let there = cmp(CmpOp::Lt, next.clone(), own.count.clone());
        e.if_then(and(ends, there), |e| {
            let half = modulo(over(next, self.chunk.steps), 2);
            let half = e.named("half", Ty::I32, half);
            self.store(e, own, &half);
        });
    }

    /// What the codes of a row of the warp are moved, scaled and shifted by from `term` of the block's step `it` on.
    pub fn entry(&self, e: &mut Emit, own: &Own, (it, term): (&Expr, i64), row: &Expr) -> Vec<Expr> {
        let Some(table) = self.shared else { return Vec::new() };
        let group = self.table.group();
        let within = if self.chunk.several { modulo(it.clone(), self.chunk.steps) } else { it.clone() };
        let number = if self.chunk.aligned {
            over(plus(times(within, self.step), lit32(term as i32)), group)
        } else {
            let step = plus(own.first.clone(), it.clone());
            let chunk = int_op(IntOp::Sub, step.clone(), within);
            let at = over(plus(times(step, self.step), lit32(term as i32)), group);
            int_op(IntOp::Sub, at, over(times(chunk, self.step), group))
        };
        let at = plus(plus(own.base.clone(), times(number, ROWS)), row.clone());
        let at = match self.chunk.several {
            true => plus(at, self.of_half(&modulo(over(it.clone(), self.chunk.steps), 2))),
            false => at,
        };
        let at = e.named("entry", Ty::I32, at);
        let constants = 0..self.codes.constants() as usize;
        let load = |i: usize| {
            let word = Expr::Load(Mem::Shared(table), Box::new(plus(at.clone(), self.of_constant(i))));
            e.named("constant", Ty::U32, cast(Ty::U32, word))
        };
        constants.map(load).collect()
    }
}
