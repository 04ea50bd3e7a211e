//! The kernel of `contract_codes`: a ring of codes and of the other operand's rows, the table of the groups' constants,
//! dequantisation in registers, and the sums' way out through shared memory.

use super::codes_table::Table;
use super::contract_codes::{CHUNK, Codes, WARPS, sides, starts};
use super::contract_coords::{Place as Where, digits, modulo, over, plus, times};
use super::contract_epilogue::{Epilogue, Point};
use super::contract_pattern::{ContractShape, Digit};
use super::scalar::{Emit, and, cast, cmp, int_op, lit32};
use crate::ir::simt::{
    ArrayId, CmpOp, Expr, IntOp, Intrinsic, Mem, ParamId, Place, SharedId, Special, Stmt, Ty, Unroll, VarId,
};
use crate::ir::tile::{Side, Tile};
use crate::vocab::dtype::{self, DType, Value};
use crate::vocab::func::Func;

/// Words of 4 bytes of a row's run of 16 bytes.
const RUN: i64 = 4;

pub struct CodesLoop<'x> {
    codes: &'x Codes,
    shape: &'x ContractShape,
    tile: &'x Tile,
    ring: SharedId,
    table: Table<'x>,
    w: ParamId,
    x: ParamId,
}

/// Where a thread is.
struct Lane {
    thread: Expr,
    /// Of a quad: which of its lanes, and which quad.
    t: Expr,
    g: Expr,
    /// The warp's place along the weights' rows and along the terms.
    across: Expr,
    along: Expr,
}

/// The chunks of terms of a block.
struct Chunks {
    first: Expr,
    end: Expr,
}

/// Registers of a warp's math.
struct Frags {
    codes: ArrayId,
    a: ArrayId,
    x: ArrayId,
    b: ArrayId,
    acc: ArrayId,
}

pub fn call(e: &mut Emit, op: Intrinsic, outs: Vec<Place>, args: Vec<Expr>) {
    e.push(Stmt::Intrinsic { op, outs, args });
}

pub fn elem(array: ArrayId, i: u32) -> Expr {
    Expr::Elem(array, Box::new(lit32(i as i32)))
}

/// Words of a stage's codes, and of the whole stage.
fn code_words(codes: &Codes) -> u32 {
    WARPS * codes.tiles * 2 * 32 * RUN as u32
}

fn stage(codes: &Codes) -> u32 {
    code_words(codes) + codes.warps().1 * 8 * codes.columns * 16 * RUN as u32
}

impl<'x> CodesLoop<'x> {
    pub fn new(e: &mut Emit, codes: &'x Codes, shape: &'x ContractShape) -> CodesLoop<'x> {
        let tile = &codes.choice.tile;
        let w = e.bits_of(codes.w.tensor, DType::I32);
        let x = e.tensor_param(codes.x.tensor, false);
        let words = codes.stages() * stage(codes);
        let ring = e.kernel.shared("ring", DType::I32, words, 128);
        let table = Table::new(e, codes, shape);
        CodesLoop { codes, shape, tile, ring, table, w, x }
    }

    /// Words of a stage.
    fn stage(&self) -> u32 {
        stage(self.codes)
    }

    fn tokens(&self) -> u32 {
        8 * self.codes.columns
    }

    /// Rows of the other operand that are copied; the rest of a block's are zero.
    fn used(&self) -> i64 {
        self.sides()[1].0.points().min(self.tokens() as i64)
    }

    /// Accumulators of a thread for one set of sums; with few columns there are two sets, so that an instruction does
    /// not wait for the one before.
    fn set(&self) -> u32 {
        self.codes.tiles * self.codes.columns * 4
    }

    fn sets(&self) -> u32 {
        if self.codes.columns <= 2 { 2 } else { 1 }
    }

    /// The sides of the weights' rows and of the other operand's.
    fn sides(&self) -> [(&Side, &[Digit]); 2] {
        sides(self.codes, self.tile, self.shape)
    }

    pub fn emit(&self, e: &mut Emit, place: &Where, work: &[ParamId]) {
        let lane = self.lane(e);
        let chunks = self.chunks(e, place);
        let len = self.sets() * self.set();
        let acc = e.kernel.array("acc", Ty::F32, len);
        super::contract_mma::clear(e, acc, len, dtype::Ty::F32);
        self.blank(e, &lane);
        let ahead = self.codes.stages() - 1;
        let fill = e.kernel.var("fill", Ty::I32);
        let body = e.block(|e| {
            self.issue(e, place, &lane, &chunks, &Expr::Var(fill), &Expr::Var(fill));
            call(e, Intrinsic::CpAsyncCommit, vec![], vec![]);
        });
        repeat(e, fill, lit32(ahead as i32), body);
        let threads = (Expr::Special(Special::ThreadX), 32 * WARPS);
        self.table.fill(e, place, &times(chunks.first.clone(), CHUNK), threads);
        self.steps(e, place, &lane, &chunks, acc);
        self.out(e, place, &lane, acc, work);
    }

    fn lane(&self, e: &mut Emit) -> Lane {
        let thread = e.named("thread", Ty::I32, Expr::Special(Special::ThreadX));
        let lane = e.named("lane", Ty::I32, Expr::Special(Special::Lane));
        let warp = e.named("warp", Ty::I32, Expr::Special(Special::Warp));
        let (across, _) = self.codes.warps();
        Lane {
            thread,
            t: e.named("t", Ty::I32, modulo(lane.clone(), 4)),
            g: e.named("g", Ty::I32, over(lane, 4)),
            across: e.named("across", Ty::I32, modulo(warp.clone(), across as i64)),
            along: e.named("along", Ty::I32, over(warp, across as i64)),
        }
    }

    fn chunks(&self, e: &mut Emit, place: &Where) -> Chunks {
        let all = self.codes.terms / CHUNK;
        if self.tile.split == 1 {
            return Chunks { first: lit32(0), end: lit32(all as i32) };
        }
        let per = (all + self.tile.split - 1) / self.tile.split;
        let first = e.named("first", Ty::I32, times(place.part.clone(), per));
        let end = int_op(IntOp::Min, plus(first.clone(), lit32(per as i32)), lit32(all as i32));
        Chunks { first, end: e.named("end", Ty::I32, end) }
    }

    /// Starts the copies of step `it` to a stage.
    fn issue(&self, e: &mut Emit, place: &Where, lane: &Lane, chunks: &Chunks, it: &Expr, slot: &Expr) {
        let along = self.codes.warps().1 as i64;
        let base = e.named("base", Ty::I32, times(slot.clone(), self.stage() as i64));
        let first = e.named("chunk0", Ty::I32, plus(chunks.first.clone(), times(it.clone(), along)));
        e.scope(|e| self.issue_codes(e, place, lane, chunks, &first, &base));
        e.scope(|e| self.issue_rows(e, place, lane, chunks, &first, &base));
    }

    fn issue_codes(
        &self,
        e: &mut Emit,
        place: &Where,
        lane: &Lane,
        chunks: &Chunks,
        first: &Expr,
        base: &Expr,
    ) {
        let lines = &self.codes.w;
        let (start, _) = starts(self.codes, place);
        let rows = self.sides()[0].0.points();
        let chunk = e.named("chunk", Ty::I32, plus(first.clone(), lane.along.clone()));
        let there = cmp(CmpOp::Lt, chunk.clone(), chunks.end.clone());
        let valid = Expr::Select(Box::new(there), Box::new(lit32(16)), Box::new(lit32(0)));
        let valid = e.named("valid", Ty::I32, valid);
        let term = plus(times(chunk, CHUNK / 8), times(lane.t.clone(), RUN));
        let last = (self.codes.terms / 8 - RUN) as i32;
        let term = e.named("term", Ty::I32, int_op(IntOp::Min, term, lit32(last)));
        for i in 0..2 * self.codes.tiles {
            let row = self.row(lane, i);
            let row = int_op(IntOp::Min, plus(start.clone(), row), lit32(rows as i32 - 1));
            let index =
                plus(times(row, lines.pitch / 8), plus(term.clone(), lit32((lines.offset / 8) as i32)));
            let to = Expr::SharedAddr(self.ring, Box::new(plus(base.clone(), self.own_run(lane, i))));
            let op = Intrinsic::CpAsync { mem: self.w, bytes: 16 };
            call(e, op, vec![], vec![to, index, valid.clone()]);
        }
    }

    /// The block's row of a lane's `i`th run: rows g and g + 8 of each tile of 16.
    fn row(&self, lane: &Lane, i: u32) -> Expr {
        let first = plus(times(lane.across.clone(), 16 * self.codes.tiles as i64), lane.g.clone());
        plus(first, lit32(8 * i as i32))
    }

    /// The place of a lane's `i`th run in a stage.
    fn own_run(&self, lane: &Lane, i: u32) -> Expr {
        let (warp, number) = (over(lane.thread.clone(), 32), modulo(lane.thread.clone(), 32));
        let run = plus(times(warp, 2 * self.codes.tiles as i64), lit32(i as i32));
        plus(times(run, 32 * RUN), times(number, RUN))
    }

    fn issue_rows(
        &self,
        e: &mut Emit,
        place: &Where,
        lane: &Lane,
        chunks: &Chunks,
        first: &Expr,
        base: &Expr,
    ) {
        let (tokens, along) = (self.used(), self.codes.warps().1 as i64);
        let (_, start) = starts(self.codes, place);
        let lines = &self.codes.x;
        let threads = 32 * WARPS as i64;
        let pieces = 16 * tokens * along;
        for j in 0..(pieces + threads - 1) / threads {
            let number = plus(lane.thread.clone(), lit32((j * threads) as i32));
            let copy = |e: &mut Emit| {
                let number = e.named("number", Ty::I32, number.clone());
                let piece = e.named("piece", Ty::I32, modulo(number.clone(), 16));
                let token = e.named("token", Ty::I32, modulo(over(number.clone(), 16), tokens));
                let at = over(number, 16 * tokens);
                let chunk = e.named("chunk", Ty::I32, plus(first.clone(), at.clone()));
                let row = plus(start.clone(), token.clone());
                let ok = and(
                    cmp(CmpOp::Lt, row.clone(), lit32(self.sides()[1].0.points() as i32)),
                    cmp(CmpOp::Lt, chunk.clone(), chunks.end.clone()),
                );
                let ok = e.named("ok", Ty::Bool, ok);
                let pick =
                    |a: Expr, b: i32| Expr::Select(Box::new(ok.clone()), Box::new(a), Box::new(lit32(b)));
                let term = plus(times(chunk, CHUNK), times(piece.clone(), 8));
                let index = plus(times(row, lines.pitch), plus(term, lit32(lines.offset as i32)));
                let to = plus(self.x_run(base, &at, &token), times(swizzled(&piece, &token), RUN));
                let to = Expr::SharedAddr(self.ring, Box::new(to));
                let op = Intrinsic::CpAsync { mem: self.x, bytes: 16 };
                call(e, op, vec![], vec![to, pick(index, 0), pick(lit32(16), 0)]);
            };
            if (j + 1) * threads > pieces {
                e.if_then(cmp(CmpOp::Lt, number.clone(), lit32(pieces as i32)), copy);
            } else {
                e.scope(copy);
            }
        }
    }

    /// Zeros for rows that are never copied.
    fn blank(&self, e: &mut Emit, lane: &Lane) {
        let (used, tokens, along) = (self.used(), self.tokens() as i64, self.codes.warps().1 as i64);
        let spare = tokens - used;
        if spare == 0 {
            return;
        }
        let zeros = e.kernel.array("zeros", Ty::I32, 4);
        (0..4).for_each(|i| e.push(Stmt::SetElem(zeros, lit32(i), lit32(0))));
        let var = e.kernel.var("run", Ty::I32);
        let body = e.block(|e| {
            let number = over(Expr::Var(var), 16);
            let token = plus(modulo(number.clone(), spare), lit32(used as i32));
            let at = modulo(over(number.clone(), spare), along);
            let base = times(over(number, spare * along), self.stage() as i64);
            let index = plus(self.x_run(&base, &at, &token), times(modulo(Expr::Var(var), 16), RUN));
            let mem = Mem::Shared(self.ring);
            e.push(Stmt::StoreVec { mem, index, array: zeros, at: 0, count: 4 });
        });
        let hi = lit32((16 * spare * along * self.codes.stages() as i64) as i32);
        let (lo, step) = (lane.thread.clone(), lit32(32 * WARPS as i32));
        e.push(Stmt::For { var, lo, hi, step, unroll: Unroll::None, body });
    }

    /// Where a token's 16 runs of a chunk stand.
    fn x_run(&self, base: &Expr, along: &Expr, token: &Expr) -> Expr {
        let line = plus(times(along.clone(), self.tokens() as i64), token.clone());
        plus(plus(base.clone(), lit32(code_words(self.codes) as i32)), times(line, 16 * RUN))
    }

    fn steps(&self, e: &mut Emit, place: &Where, lane: &Lane, chunks: &Chunks, acc: ArrayId) {
        let (stages, along) = (self.codes.stages(), self.codes.warps().1 as i64);
        let frags = Frags {
            codes: e.kernel.array("codes", Ty::I32, 8 * self.codes.tiles),
            a: e.kernel.array("a_frag", Ty::U32, 8 * self.codes.tiles),
            x: e.kernel.array("x_run", Ty::I32, 4),
            b: e.kernel.array("b_frag", Ty::U32, 4),
            acc,
        };
        let left = int_op(IntOp::Sub, chunks.end.clone(), chunks.first.clone());
        let count = over(plus(left, lit32(along as i32 - 1)), along);
        let count = e.named("count", Ty::I32, count);
        let read = e.let_var("read", Ty::I32, lit32(0));
        let write = e.let_var("write", Ty::I32, lit32(stages as i32 - 1));
        let it = e.kernel.var("it", Ty::I32);
        let body = e.block(|e| {
            call(e, Intrinsic::CpAsyncWait(stages as u8 - 2), vec![], vec![]);
            e.push(Stmt::Barrier);
            let next = e.named("next", Ty::I32, plus(Expr::Var(it), lit32(stages as i32 - 1)));
            self.issue(e, place, lane, chunks, &next, &Expr::Var(write));
            call(e, Intrinsic::CpAsyncCommit, vec![], vec![]);
            let chunk = plus(chunks.first.clone(), times(Expr::Var(it), along));
            let chunk = e.named("chunk", Ty::I32, plus(chunk, lane.along.clone()));
            let there = cmp(CmpOp::Lt, chunk.clone(), chunks.end.clone());
            e.if_then(there, |e| self.multiply(e, lane, chunks, &chunk, &Expr::Var(read), &frags));
            for var in [read, write] {
                e.push(Stmt::Set(var, plus(Expr::Var(var), lit32(1))));
                let last = cmp(CmpOp::Eq, Expr::Var(var), lit32(stages as i32));
                e.push(Stmt::If { cond: last, then: vec![Stmt::Set(var, lit32(0))], otherwise: Vec::new() });
            }
        });
        repeat(e, it, count, body);
        call(e, Intrinsic::CpAsyncWait(0), vec![], vec![]);
        e.push(Stmt::Barrier);
    }

    /// A warp's products of a chunk.
    fn multiply(&self, e: &mut Emit, lane: &Lane, chunks: &Chunks, chunk: &Expr, slot: &Expr, f: &Frags) {
        let base = e.named("base", Ty::I32, times(slot.clone(), self.stage() as i64));
        let mem = Mem::Shared(self.ring);
        let runs = 2 * self.codes.tiles;
        for i in 0..runs {
            let index = plus(base.clone(), self.own_run(lane, i));
            e.push(Stmt::LoadVec { array: f.codes, at: 4 * i, mem, index, count: 4 });
        }
        let constants: Vec<Vec<Expr>> = (0..runs).map(|i| self.of_run(e, lane, chunks, chunk, i)).collect();
        for q in 0..4 {
            for i in 0..runs {
                self.dequantise(e, f, i, q, &constants[i as usize]);
            }
            for column in 0..self.codes.columns {
                self.products(e, lane, &base, f, q, column);
            }
        }
    }

    /// What a run's codes are moved, scaled and shifted by.
    fn of_run(&self, e: &mut Emit, lane: &Lane, chunks: &Chunks, chunk: &Expr, i: u32) -> Vec<Expr> {
        let term = plus(times(chunk.clone(), CHUNK), times(lane.t.clone(), 32));
        let first = times(chunks.first.clone(), CHUNK);
        self.table.entry(e, &first, term, self.row(lane, i))
    }

    /// Four pairs of weights of word `q` of run `i`: codes 2j and 2j + 1 in register 4 · i + j.
    fn dequantise(&self, e: &mut Emit, f: &Frags, i: u32, q: u32, constants: &[Expr]) {
        let word = e.named("word", Ty::U32, cast(Ty::U32, elem(f.codes, 4 * i + q)));
        let upper = e.named("upper", Ty::U32, int_op(IntOp::Shr, word.clone(), Expr::U32(4)));
        for j in 0..4 {
            let selector = Expr::U32(0x4400 + 0x1111 * j);
            let to = Place::Elem(f.a, 4 * i + j);
            self.table.weights(e, (&word, &upper), selector, constants, to);
        }
    }

    /// The products of word `q`'s 8 terms of every lane with 8 of the other operand's rows.
    fn products(&self, e: &mut Emit, lane: &Lane, base: &Expr, f: &Frags, q: u32, column: u32) {
        let token = plus(lane.g.clone(), lit32(8 * column as i32));
        let piece = plus(times(lane.t.clone(), 4), lit32(q as i32));
        let index = plus(self.x_run(base, &lane.along, &token), times(swizzled(&piece, &token), RUN));
        e.push(Stmt::LoadVec { array: f.x, at: 0, mem: Mem::Shared(self.ring), index, count: 4 });
        (0..4).for_each(|i| e.push(Stmt::SetElem(f.b, lit32(i as i32), cast(Ty::U32, elem(f.x, i)))));
        for tile in 0..self.codes.tiles {
            for i in 0..2 {
                let a = |run: u32, j: u32| elem(f.a, 4 * (2 * tile + run) + 2 * i + j);
                let mut args =
                    vec![a(0, 0), a(1, 0), a(0, 1), a(1, 1), elem(f.b, 2 * i), elem(f.b, 2 * i + 1)];
                let set = i % self.sets() * self.set();
                let first = set + (tile * self.codes.columns + column) * 4;
                args.extend((0..4).map(|w| elem(f.acc, first + w)));
                let outs = (0..4).map(|w| Place::Elem(f.acc, first + w)).collect();
                call(e, Intrinsic::MmaM16N8K16 { dtype: self.codes.dtype }, outs, args);
            }
        }
    }

    /// The warps' sums meet in the ring, and each thread finishes some points.
    fn out(&self, e: &mut Emit, place: &Where, lane: &Lane, acc: ArrayId, work: &[ParamId]) {
        let (rows, tokens, along) = (self.codes.rows() as i64, self.tokens() as i64, self.codes.warps().1);
        let of_part = |along: Expr| times(along, rows * tokens);
        for tile in 0..self.codes.tiles {
            for column in 0..self.codes.columns {
                for w in 0..4 {
                    let row = self.row(lane, 2 * tile + w / 2);
                    let token = plus(times(lane.t.clone(), 2), lit32((8 * column + w % 2) as i32));
                    let at = plus(plus(of_part(lane.along.clone()), times(token, rows)), row);
                    let i = (tile * self.codes.columns + column) * 4 + w;
                    let sets = (0..self.sets()).map(|s| elem(acc, s * self.set() + i));
                    let v = sets.reduce(|a, b| Expr::Call(Func::Add, vec![a, b]));
                    let v = v.unwrap_or(Expr::Lit(Value::F32(0.0)));
                    e.push(Stmt::Store(Mem::Shared(self.ring), at, Expr::Bitcast(Ty::I32, Box::new(v))));
                }
            }
        }
        e.push(Stmt::Barrier);
        let (start, others) = starts(self.codes, place);
        let point = e.kernel.var("point", Ty::I32);
        let body = e.block(|e| {
            let point = Expr::Var(point);
            let sum = (0..along).map(|i| {
                let at = plus(point.clone(), of_part(lit32(i as i32)));
                Expr::Bitcast(Ty::F32, Box::new(Expr::Load(Mem::Shared(self.ring), Box::new(at))))
            });
            let sum = sum.reduce(|a, b| Expr::Call(Func::Add, vec![a, b]));
            let sum = e.named("total", Ty::F32, sum.unwrap_or(Expr::Lit(Value::F32(0.0))));
            let row = e.named("row", Ty::I32, plus(start.clone(), modulo(point.clone(), rows)));
            let token = e.named("token", Ty::I32, plus(others.clone(), over(point, rows)));
            let [(w, _), (x, _)] = self.sides();
            let ok = and(
                cmp(CmpOp::Lt, row.clone(), lit32(w.points() as i32)),
                cmp(CmpOp::Lt, token.clone(), lit32(x.points() as i32)),
            );
            e.if_then(ok, |e| self.finish(e, place, row, token, sum, work));
        });
        let (lo, hi) = (lane.thread.clone(), lit32((rows * tokens) as i32));
        let step = lit32(32 * WARPS as i32);
        e.push(Stmt::For { var: point, lo, hi, step, unroll: Unroll::None, body });
    }

    fn finish(&self, e: &mut Emit, place: &Where, row: Expr, token: Expr, sum: Expr, work: &[ParamId]) {
        let (m, n) = if self.codes.first { (row, token) } else { (token, row) };
        let epilogue = Epilogue { shape: self.shape, tile: self.tile };
        if let (true, [work]) = (self.tile.split > 1, work) {
            let at = epilogue.partial(place, m, n);
            return e.push(Stmt::Store(Mem::Global(*work), at, sum));
        }
        whole_sum(e, &epilogue, place, (m, n), sum);
    }
}

/// Stores the whole sum of a point.
pub fn whole_sum(e: &mut Emit, epilogue: &Epilogue, place: &Where, (m, n): (Expr, Expr), sum: Expr) {
    let m = digits(e, &epilogue.tile.m, &epilogue.shape.m, &[m]);
    let n = digits(e, &epilogue.tile.n, &epilogue.shape.n, &[n]);
    epilogue.element(e, &Point { m: &m, n: &n, batch: &place.batch }, vec![sum], None);
}

/// Where a chunk's run of 16 bytes stands among its row's: the runs that the quads' lanes read at once lie together, and
/// those of the next row in the other half of the banks.
fn swizzled(piece: &Expr, token: &Expr) -> Expr {
    let turned = plus(times(modulo(piece.clone(), 4), 4), over(piece.clone(), 4));
    int_op(IntOp::Xor, turned, times(modulo(token.clone(), 2), 4))
}

fn repeat(e: &mut Emit, var: VarId, hi: Expr, body: Vec<Stmt>) {
    e.push(Stmt::For { var, lo: lit32(0), hi, step: lit32(1), unroll: Unroll::None, body });
}
