//! Products of at most 8 rows with weights of 4 bits: a stream of codes for each lane, and nothing that warps wait for.
//!
//! The few rows stand in registers for the whole kernel, so each warp has terms of its own and passes over the block's
//! rows of weights. A column of `mma.sync` is a row of the few and a run of 128 terms ("segment") of it, a row of it a row
//! of weights and such a run; products whose runs are not the same are thrown away. So one row of 8 segments fills the
//! instruction's 8 columns, and a warp reads 512 neighbouring bytes of a row of codes. Each lane copies the codes it needs
//! itself into shared memory, some steps ahead.

use super::codes_loop::{call, elem, whole_sum};
use super::codes_table::Table;
use super::contract_codes::{Codes, Lines, STREAM_SEGMENT as SEGMENT, sides, starts};
use super::contract_coords::{Place as Where, modulo, over, plus, times};
use super::contract_epilogue::Epilogue;
use super::contract_pattern::{ContractShape, Digit};
use super::scalar::{Emit, and, cast, cmp, int_op, lit32};
use crate::ir::simt::{
    ArrayId, CmpOp, Expr, IntOp, Intrinsic, Mem, ParamId, Place, SharedId, ShuffleKind, Special, Stmt, Ty,
    Unroll,
};
use crate::ir::tile::{Arrange, Side, Tile};
use crate::vocab::dtype::{self, DType, Value};
use crate::vocab::func::Func;

/// Words of a lane's run of codes, and of the 32 terms of the few rows beside it.
const RUN: i64 = 4;
const TERMS: u32 = 16;
/// Steps that are copied before the table is made: enough on the way to hide its loads.
const BEFORE_TABLE: u32 = 2;
/// Threads that add the warps' sums of a point.
const ADDERS: u32 = 8;

pub struct CodesStream<'x> {
    codes: &'x Codes,
    shape: &'x ContractShape,
    tile: &'x Tile,
    ring: SharedId,
    sums: SharedId,
    table: Table<'x>,
    w: ParamId,
    x: ParamId,
    segments: u32,
    warps: u32,
    passes: u32,
}

struct Lane {
    thread: Expr,
    warp: Expr,
    /// Of a quad: which of its lanes.
    t: Expr,
    /// The segment of the quad, and its row of weights in a step or its row of the few.
    segment: Expr,
    sub: Expr,
}

/// Elements between two points' sums: their adders' reads meet no bank twice.
pub fn sums_pitch(parts: u32) -> u32 {
    parts + (ADDERS + 32 - parts % 32) % 32
}

impl<'x> CodesStream<'x> {
    pub fn new(e: &mut Emit, codes: &'x Codes, shape: &'x ContractShape) -> Option<CodesStream<'x>> {
        let tile = &codes.choice.tile;
        let Arrange::Stream { segments, warps, passes } = tile.arrange else { return None };
        let w = e.bits_of(codes.w.tensor, DType::I32);
        let x = e.bits_of(codes.x.tensor, DType::I32);
        let words = codes.stages() * warps * passes * 2 * 32 * RUN as u32;
        let ring = e.kernel.shared("ring", DType::I32, words, 128);
        let pitch = sums_pitch(warps * segments);
        let sums = e.kernel.shared("sums", DType::F32, tokens(codes, tile) * codes.rows() * pitch, 16);
        let table = Table::by_rows(e, codes, shape);
        Some(CodesStream { codes, shape, tile, ring, sums, table, w, x, segments, warps, passes })
    }

    pub fn emit(&self, e: &mut Emit, place: &Where) {
        let lane = self.lane(e);
        let stages = self.codes.stages();
        let first = BEFORE_TABLE.min(stages);
        self.ahead(e, place, &lane, 0..first);
        self.table.fill(e, place, &lit32(0), (lane.thread.clone(), 32 * self.warps));
        self.ahead(e, place, &lane, first..stages);
        let few = self.few(e, place, &lane);
        e.push(Stmt::Barrier);
        self.steps(e, place, &lane, few);
        e.push(Stmt::Barrier);
        self.out(e, place, &lane);
    }

    fn lane(&self, e: &mut Emit) -> Lane {
        let thread = e.named("thread", Ty::I32, Expr::Special(Special::ThreadX));
        let lane = e.named("lane", Ty::I32, Expr::Special(Special::Lane));
        let warp = e.named("warp", Ty::I32, Expr::Special(Special::Warp));
        let g = e.named("g", Ty::I32, over(lane.clone(), 4));
        Lane {
            thread,
            warp,
            t: e.named("t", Ty::I32, modulo(lane, 4)),
            segment: e.named("segment", Ty::I32, modulo(g.clone(), self.segments as i64)),
            sub: e.named("sub", Ty::I32, over(g, self.segments as i64)),
        }
    }

    /// The sides of the weights' rows and of the few.
    fn sides(&self) -> [(&Side, &[Digit]); 2] {
        sides(self.codes, self.tile, self.shape)
    }

    /// Rows of weights of a step.
    fn rows(&self) -> i64 {
        16 / self.segments as i64
    }

    fn count(&self) -> i64 {
        self.codes.rows() as i64 / self.rows()
    }

    /// The block's row of a lane in a step; `half`: of the first or the second eight rows of the instruction.
    fn row(&self, lane: &Lane, step: &Expr, half: i64) -> Expr {
        plus(times(step.clone(), self.rows()), plus(lane.sub.clone(), lit32((half * self.rows() / 2) as i32)))
    }

    /// The first of a lane's 32 terms in a pass.
    fn term(&self, lane: &Lane, pass: u32) -> Expr {
        let warp = plus(lane.warp.clone(), lit32((pass * self.warps) as i32));
        let segment = plus(times(warp, self.segments as i64), lane.segment.clone());
        plus(times(segment, SEGMENT), times(lane.t.clone(), 32))
    }

    /// Whether every lane has terms in a pass.
    fn full(&self, pass: u32) -> bool {
        ((pass + 1) * self.warps * self.segments) as i64 * SEGMENT <= self.codes.terms
    }

    /// Starts the copies of the first steps.
    fn ahead(&self, e: &mut Emit, place: &Where, lane: &Lane, steps: std::ops::Range<u32>) {
        if steps.is_empty() {
            return;
        }
        let var = e.kernel.var("fill", Ty::I32);
        let body = e.block(|e| {
            self.issue(e, place, lane, &Expr::Var(var), &Expr::Var(var));
            call(e, Intrinsic::CpAsyncCommit, vec![], vec![]);
        });
        let (lo, hi) = (lit32(steps.start as i32), lit32(steps.end as i32));
        e.push(Stmt::For { var, lo, hi, step: lit32(1), unroll: Unroll::None, body });
    }

    /// The place of a lane's run in the ring.
    fn run(&self, lane: &Lane, slot: &Expr, pass: u32, half: u32) -> Expr {
        let each = self.warps as i64 * 32 * RUN;
        let slot = times(slot.clone(), each * 2 * self.passes as i64);
        plus(plus(slot, times(lane.thread.clone(), RUN)), lit32(((2 * pass + half) as i64 * each) as i32))
    }

    fn issue(&self, e: &mut Emit, place: &Where, lane: &Lane, step: &Expr, slot: &Expr) {
        let lines = &self.codes.w;
        let (start, _) = starts(self.codes, place);
        let rows = self.sides()[0].0.points();
        for half in 0..2 {
            let row = plus(start.clone(), self.row(lane, step, half));
            let row = e.named("row", Ty::I32, int_op(IntOp::Min, row, lit32(rows as i32 - 1)));
            for pass in 0..self.passes {
                let (term, valid) = self.place(e, lane, pass);
                let index = plus(over(term, 8), lit32((lines.offset / 8) as i32));
                let index = plus(times(row.clone(), lines.pitch / 8), index);
                let to = Expr::SharedAddr(self.ring, Box::new(self.run(lane, slot, pass, half as u32)));
                let op = Intrinsic::CpAsync { mem: self.w, bytes: 16 };
                call(e, op, vec![], vec![to, index, valid]);
            }
        }
    }

    /// A lane's first term in a pass, inside the row, and the bytes of its codes that are there.
    fn place(&self, e: &mut Emit, lane: &Lane, pass: u32) -> (Expr, Expr) {
        let term = self.term(lane, pass);
        if self.full(pass) {
            return (term, lit32(16));
        }
        let term = e.named("term", Ty::I32, term);
        let there = cmp(CmpOp::Lt, term.clone(), lit32(self.codes.terms as i32));
        let valid = Expr::Select(Box::new(there), Box::new(lit32(16)), Box::new(lit32(0)));
        (int_op(IntOp::Min, term, lit32(self.codes.terms as i32 - 32)), valid)
    }

    /// The few rows' terms of each lane: in each word of 8, terms j and j + 4 as a pair, as their codes come.
    fn few(&self, e: &mut Emit, place: &Where, lane: &Lane) -> ArrayId {
        let few = e.kernel.array("few", Ty::U32, TERMS * self.passes);
        let line = e.kernel.array("line", Ty::I32, RUN as u32);
        let Lines { offset, pitch, .. } = self.codes.x;
        let (_, start) = starts(self.codes, place);
        let own = e.named("own", Ty::I32, plus(start.clone(), lane.sub.clone()));
        let used = self.sides()[1].0.points();
        for pass in 0..self.passes {
            let (term, _) = self.place(e, lane, pass);
            let from = plus(times(own.clone(), pitch), plus(term, lit32(offset as i32)));
            let from = e.named("from", Ty::I32, over(from, 2));
            let here = self.is_there(lane, pass, &own, used);
            for q in 0..4 {
                let load = |e: &mut Emit| {
                    let index = plus(from.clone(), lit32(4 * q));
                    e.push(Stmt::LoadVec { array: line, at: 0, mem: Mem::Global(self.x), index, count: 4 });
                };
                match &here {
                    None => load(e),
                    Some(ok) => {
                        (0..4).for_each(|i| e.push(Stmt::SetElem(line, lit32(i), lit32(0))));
                        e.if_then(ok.clone(), load);
                    }
                }
                for j in 0..4 {
                    let word = |i: u32| cast(Ty::U32, elem(line, i));
                    let selector = Expr::U32(if j % 2 == 0 { 0x5410 } else { 0x7632 });
                    let to = Place::Elem(few, TERMS * pass + 4 * q as u32 + j);
                    call(e, Intrinsic::BytePermute, vec![to], vec![word(j / 2), word(j / 2 + 2), selector]);
                }
            }
        }
        few
    }

    /// Whether a lane has a row of the few and terms; `None`: every lane has.
    fn is_there(&self, lane: &Lane, pass: u32, own: &Expr, used: i64) -> Option<Expr> {
        let block = 8 / self.segments as i64;
        let row = (used % block != 0).then(|| cmp(CmpOp::Lt, own.clone(), lit32(used as i32)));
        let end = lit32(self.codes.terms as i32);
        let term = (!self.full(pass)).then(|| cmp(CmpOp::Lt, self.term(lane, pass), end));
        super::contract_coords::both(row, term)
    }

    fn steps(&self, e: &mut Emit, place: &Where, lane: &Lane, few: ArrayId) {
        let stages = self.codes.stages();
        let acc = e.kernel.array("acc", Ty::F32, 8);
        let codes = e.kernel.array("codes", Ty::I32, 2 * RUN as u32);
        let frag = e.kernel.array("a_frag", Ty::U32, 8);
        let slot = e.let_var("slot", Ty::I32, lit32(0));
        let var = e.kernel.var("it", Ty::I32);
        let it = Expr::Var(var);
        let body = e.block(|e| {
            call(e, Intrinsic::CpAsyncWait(stages as u8 - 1), vec![], vec![]);
            super::contract_mma::clear(e, acc, 8, dtype::Ty::F32);
            for pass in 0..self.passes {
                self.pass(e, lane, &it, &Expr::Var(slot), pass, (few, codes, frag, acc));
            }
            let next = e.named("next", Ty::I32, plus(it.clone(), lit32(stages as i32)));
            e.if_then(cmp(CmpOp::Lt, next.clone(), lit32(self.count() as i32)), |e| {
                self.issue(e, place, lane, &next, &Expr::Var(slot));
            });
            call(e, Intrinsic::CpAsyncCommit, vec![], vec![]);
            self.keep(e, lane, &it, acc);
            e.push(Stmt::Set(slot, plus(Expr::Var(slot), lit32(1))));
            let last = cmp(CmpOp::Eq, Expr::Var(slot), lit32(stages as i32));
            e.push(Stmt::If { cond: last, then: vec![Stmt::Set(slot, lit32(0))], otherwise: Vec::new() });
        });
        let (lo, hi) = (lit32(0), lit32(self.count() as i32));
        e.push(Stmt::For { var, lo, hi, step: lit32(1), unroll: Unroll::None, body });
        call(e, Intrinsic::CpAsyncWait(0), vec![], vec![]);
    }

    /// The products of a step's codes of one pass.
    fn pass(
        &self,
        e: &mut Emit,
        lane: &Lane,
        it: &Expr,
        slot: &Expr,
        pass: u32,
        (few, codes, frag, acc): (ArrayId, ArrayId, ArrayId, ArrayId),
    ) {
        let mem = Mem::Shared(self.ring);
        for half in 0..2 {
            let index = self.run(lane, slot, pass, half);
            e.push(Stmt::LoadVec { array: codes, at: half * RUN as u32, mem, index, count: 4 });
        }
        let (term, _) = self.place(e, lane, pass);
        let constants =
            [0, 1].map(|half| self.table.entry(e, &lit32(0), term.clone(), self.row(lane, it, half)));
        for q in 0..4 {
            for half in 0..2 {
                let word = cast(Ty::U32, elem(codes, half * RUN as u32 + q));
                let word = e.named("word", Ty::U32, word);
                for j in 0..4 {
                    let codes = match j {
                        0 => word.clone(),
                        _ => int_op(IntOp::Shr, word.clone(), Expr::U32(4 * j)),
                    };
                    let to = Place::Elem(frag, 4 * half + j);
                    self.table.weights_of(e, codes, &constants[half as usize], to);
                }
            }
            for i in 0..2 {
                let a = |half: u32, j: u32| elem(frag, 4 * half + 2 * i + j);
                let b = |j: u32| elem(few, TERMS * pass + 4 * q + 2 * i + j);
                let mut args = vec![a(0, 0), a(1, 0), a(0, 1), a(1, 1), b(0), b(1)];
                args.extend((0..4).map(|w| elem(acc, 4 * i + w)));
                let outs = (0..4).map(|w| Place::Elem(acc, 4 * i + w)).collect();
                call(e, Intrinsic::MmaM16N8K16 { dtype: self.codes.dtype }, outs, args);
            }
        }
    }

    /// Where a point's sums stand.
    fn at(&self, token: Expr, row: Expr) -> Expr {
        let point = plus(times(token, self.codes.rows() as i64), row);
        times(point, sums_pitch(self.warps * self.segments) as i64)
    }

    /// A step's sums whose segments are the same, to shared memory.
    fn keep(&self, e: &mut Emit, lane: &Lane, it: &Expr, acc: ArrayId) {
        let segments = self.segments as i64;
        let own = plus(times(lane.warp.clone(), segments), lane.segment.clone());
        for column in 0..2 {
            let number = plus(times(lane.t.clone(), 2), lit32(column));
            let token = over(number.clone(), segments);
            let same = cmp(CmpOp::Eq, modulo(number, segments), lane.segment.clone());
            let there = cmp(CmpOp::Lt, token.clone(), lit32(tokens(self.codes, self.tile) as i32));
            e.if_then(and(same, there), |e| {
                for half in 0..2 {
                    let at = plus(self.at(token.clone(), self.row(lane, it, half)), own.clone());
                    let i = 2 * half as u32 + column as u32;
                    let sum = Expr::Call(Func::Add, vec![elem(acc, i), elem(acc, 4 + i)]);
                    e.push(Stmt::Store(Mem::Shared(self.sums), at, sum));
                }
            });
        }
    }

    /// Some threads add each point's sums and finish it.
    fn out(&self, e: &mut Emit, place: &Where, lane: &Lane) {
        let parts = self.warps * self.segments;
        let adders = (0..).map(|i| ADDERS >> i).find(|a| parts.is_multiple_of(*a)).unwrap_or(1);
        let (rows, threads) = (self.codes.rows() as i64, 32 * self.warps);
        let points = tokens(self.codes, self.tile) as i64 * rows;
        let (start, others) = starts(self.codes, place);
        let var = e.kernel.var("number", Ty::I32);
        let body = e.block(|e| {
            let number = plus(Expr::Var(var), lane.thread.clone());
            let point = over(number.clone(), adders as i64);
            let point = int_op(IntOp::Min, point, lit32(points as i32 - 1));
            let point = e.named("point", Ty::I32, point);
            let part = e.named("part", Ty::I32, modulo(number.clone(), adders as i64));
            let pitch = sums_pitch(parts) as i64;
            let sum = (0..parts / adders).map(|i| {
                let at = plus(plus(times(point.clone(), pitch), part.clone()), lit32((i * adders) as i32));
                Expr::Load(Mem::Shared(self.sums), Box::new(at))
            });
            let sum = sum.reduce(|a, b| Expr::Call(Func::Add, vec![a, b]));
            let total = e.let_var("total", Ty::F32, sum.unwrap_or(Expr::Lit(Value::F32(0.0))));
            let mut mask = adders / 2;
            while mask > 0 {
                let other = e.let_var("other", Ty::F32, Expr::Lit(Value::F32(0.0)));
                let (kind, value) = (ShuffleKind::Xor, Expr::Var(total));
                e.push(Stmt::Shuffle { var: other, kind, value, lane: lit32(mask as i32) });
                let both = Expr::Call(Func::Add, vec![Expr::Var(total), Expr::Var(other)]);
                e.push(Stmt::Set(total, both));
                mask /= 2;
            }
            let row = e.named("row", Ty::I32, plus(start.clone(), modulo(point.clone(), rows)));
            let token = e.named("token", Ty::I32, plus(others.clone(), over(point, rows)));
            let [(w, _), (x, _)] = self.sides();
            let ok = [
                cmp(CmpOp::Lt, number, lit32((points * adders as i64) as i32)),
                cmp(CmpOp::Eq, part, lit32(0)),
                cmp(CmpOp::Lt, row.clone(), lit32(w.points() as i32)),
                cmp(CmpOp::Lt, token.clone(), lit32(x.points() as i32)),
            ];
            let ok = ok.into_iter().reduce(and).unwrap_or(Expr::Lit(Value::Bool(true)));
            e.if_then(ok, |e| self.finish(e, place, row, token, Expr::Var(total)));
        });
        let (hi, step) = (lit32((points * adders as i64) as i32), lit32(threads as i32));
        e.push(Stmt::For { var, lo: lit32(0), hi, step, unroll: Unroll::None, body });
    }

    fn finish(&self, e: &mut Emit, place: &Where, row: Expr, token: Expr, sum: Expr) {
        let (m, n) = if self.codes.first { (row, token) } else { (token, row) };
        let epilogue = Epilogue { shape: self.shape, tile: self.tile };
        whole_sum(e, &epilogue, place, (m, n), sum);
    }
}

/// Rows of the few in a block.
fn tokens(codes: &Codes, tile: &Tile) -> u32 {
    if codes.first { tile.n.block } else { tile.m.block }
}
