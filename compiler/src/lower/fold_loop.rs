//! Form `fold`, the loop on sm_90a: one warpgroup copies boxes, the others each take 64 rows.
//!
//! A warpgroup keeps its rows' accumulators, the greatest score so far and the sum of the weights in registers. In
//! step j it starts the scores of step j, then the second product of the weights of step j − 1, and works on the
//! scores while that runs: greatest score of each row, weights e^(score − greatest), and the factor e^(old − new)
//! by which sum and accumulators shrink. The weights of a step are the next second product's first operand as they
//! are, in registers. Where a row has met no score yet, the greatest is −inf and the factor is 0.

use super::contract_coords::{Place as Where, digits, modulo, over, plus, times};
use super::contract_mma::{self, Accumulators};
use super::fold_boxes::{Boxes, LINE};
use super::fold_form::Layout;
use super::fold_matrix::{ATOM, Matrix};
use super::fold_pattern::Chain;
use super::fold_scores::{MINUS_INFINITY, Scores, Thread, lane_column, term};
use super::home::Home;
use super::hopper_loop::call;
use super::hopper_ring::Cursor;
use super::index::Facts;
use super::map::decode;
use super::scalar::{Emit, Num, cast, cmp, int_op, lit32, sub};
use crate::ir::graph::TensorId;
use crate::ir::simt::{
    ArrayId, CmpOp, Expr, IntOp, Intrinsic, ParamId, Place, SharedId, ShuffleKind, Special, Stmt, Ty, Unroll,
    VarId,
};
use crate::ir::tile::{Arrange, Tile};
use crate::pass::cascade;
use crate::vocab::approx::Approx;
use crate::vocab::dtype::{self, DType, Value};
use crate::vocab::func::Func;

/// Registers of a thread that loads.
const LOADING: u16 = 24;
const ZERO: Expr = Expr::Lit(Value::F32(0.0));

pub struct FoldLoop<'x> {
    pub(super) chain: &'x Chain,
    pub(super) tile: &'x Tile,
    layout: Layout,
    /// The factors of the products that scores are the sum of.
    factors: Vec<[Matrix<'x>; 2]>,
    v: Matrix<'x>,
    barriers: SharedId,
    groups: u32,
}

/// Which barrier of a stage.
#[derive(Clone, Copy)]
enum Gate {
    ScoresFull,
    ScoresEmpty,
    TermsFull,
    TermsEmpty,
}

/// Where the results of a block go.
pub enum Goes {
    /// To the statement's target; with flags of the rows that are not finite.
    Whole(Option<ParamId>),
    /// Sums over a part of the terms, to be combined by another kernel; flags of rows that it sets are cleared.
    Parts(Parts<ParamId>, Option<ParamId>),
}

/// For each part and row the accumulators, the greatest score and the sum of the weights.
#[derive(Clone, Copy)]
pub struct Parts<T> {
    pub accs: T,
    pub tops: T,
    pub sums: T,
    /// The greatest products as they are, where values of the rows are made of them.
    pub most: Option<T>,
}

/// A tile of the grid.
pub(super) struct Task<'x> {
    pub place: Where,
    pub scores: Scores<'x>,
    /// First step and number of steps.
    first: Expr,
    count: Expr,
    /// How often the rows' barriers have been passed, modulo 2.
    parity: Expr,
}

/// A thread's registers.
pub(super) struct State {
    pub acc: ArrayId,
    scores: ArrayId,
    weights: ArrayId,
    /// The greatest score of each of its rows times log₂ e; −inf if there is none yet.
    pub top: [VarId; 2],
    /// The sum of its own weights of each row.
    pub sum: [VarId; 2],
    /// The greatest product, where values of the rows are made of it.
    pub most: Option<[VarId; 2]>,
}

/// What a step's exponentials are made with.
struct Exponentials<'x> {
    scores: &'x Scores<'x>,
    thread: &'x Thread,
    j0: &'x Expr,
    scale: Expr,
    /// Minus the greatest score of each row.
    base: [Expr; 2],
}

pub(super) fn f32_call(f: Func, args: Vec<Expr>) -> Expr {
    Expr::Call(f, args)
}

pub fn exp2(x: Expr) -> Expr {
    Expr::Approx(Approx::Exp2, vec![x])
}

pub(super) fn unrolled(e: &mut Emit, name: &str, count: u32, f: impl FnOnce(&mut Emit, Expr)) {
    let var = e.kernel.var(name, Ty::I32);
    let body = e.block(|e| f(e, Expr::Var(var)));
    let hi = lit32(count as i32);
    e.push(Stmt::For { var, lo: lit32(0), hi, step: lit32(1), unroll: Unroll::Full, body });
}

impl<'x> FoldLoop<'x> {
    /// Declares shared memory and tensor maps, and initialises the barriers.
    pub fn new(e: &mut Emit, chain: &'x Chain, tile: &'x Tile, layout: Layout) -> FoldLoop<'x> {
        let Arrange::Groups { m: groups } = tile.arrange else {
            unreachable!("`fold_form` makes these tiles alone")
        };
        let columns = chain.sizes()[3];
        let Layout { step, stages, .. } = layout;
        let resident = tile.resident.is_some();
        let lines = |n: i64| ((n + LINE - 1) / LINE * LINE) as u32;
        // Where columns are contiguous, they come in lines.
        let across = if chain.v.k_major { tile.n.block } else { lines(columns) };
        let mut matrix = |boxes: &'x Boxes, name: &str, rows: u32, terms: u32, stages: u32| {
            let shared =
                e.kernel.shared(format!("{name}_tile"), chain.dtype, stages * rows * terms, ATOM as u32);
            let map = e.tensor_map(boxes.tensor, None, &format!("{name}_map"), boxes.map(rows));
            Matrix { boxes, shared, map, rows, terms }
        };
        let mut factors = Vec::new();
        for (n, p) in chain.products.iter().enumerate() {
            let name = |of: &str| if n == 0 { of.to_string() } else { format!("{of}{n}") };
            let terms = lines(p.shape.folds[0].terms());
            let a = matrix(&p.a, &name("a"), tile.m.block, terms, 1);
            factors.push([a, matrix(&p.b, &name("b"), step, terms, stages)]);
        }
        let v = matrix(&chain.v, "v", across, step, stages);
        let barriers = e.kernel.shared("barriers", DType::I64, 4 * stages + 1 + resident as u32, 8);
        let main = FoldLoop { chain, tile, layout, factors, v, barriers, groups };
        main.init(e);
        main
    }

    fn init(&self, e: &mut Emit) {
        let first = cmp(CmpOp::Eq, Expr::Special(Special::ThreadX), lit32(0));
        e.if_then(first, |e| {
            let stages = self.layout.stages;
            for at in 0..4 * stages + 1 + self.tile.resident.is_some() as u32 {
                let given_back = (at / stages) % 2 == 1 && at < 4 * stages || at > 4 * stages;
                let count = if given_back { 4 * self.groups } else { 1 };
                let address = Expr::SharedAddr(self.barriers, Box::new(lit32(at as i32)));
                call(e, Intrinsic::MbarrierInit, vec![address, Expr::U32(count)]);
            }
            call(e, Intrinsic::FenceMbarrierInit, Vec::new());
        });
        e.push(Stmt::Barrier);
    }

    fn gate(&self, gate: Gate, slot: &Expr) -> Expr {
        let at = plus(slot.clone(), lit32((gate as u32 * self.layout.stages) as i32));
        Expr::SharedAddr(self.barriers, Box::new(at))
    }

    fn rows_full(&self) -> Expr {
        Expr::SharedAddr(self.barriers, Box::new(lit32(4 * self.layout.stages as i32)))
    }

    /// Where a block takes one tile after the other: its rows may be copied over.
    fn rows_empty(&self) -> Expr {
        Expr::SharedAddr(self.barriers, Box::new(lit32(4 * self.layout.stages as i32 + 1)))
    }

    /// The whole kernel after `new`.
    pub fn emit(&self, e: &mut Emit, facts: &Facts, home: &dyn Fn(TensorId) -> Home, goes: &Goes) {
        let only = self.tile.resident.is_none().then(|| self.task(e, Expr::Special(Special::BlockX)));
        // Equal over a warp, said so that it is kept in a uniform register.
        let group = e.kernel.var("group", Ty::I32);
        let value = over(Expr::Special(Special::Warp), 4);
        e.push(Stmt::Shuffle { var: group, kind: ShuffleKind::Index, value, lane: lit32(0) });
        let loads = cmp(CmpOp::Eq, Expr::Var(group), lit32(0));
        // Two warpgroups alone need not share.
        let shares = self.groups > 1;
        e.if_else(
            loads,
            |e| {
                if shares {
                    call(e, Intrinsic::SetMaxRegisters { more: false, count: LOADING }, Vec::new());
                }
                let one = cmp(CmpOp::Eq, Expr::Special(Special::ThreadX), lit32(0));
                e.if_then(one, |e| {
                    let c = self.tile.resident.map(|_| Cursor::new(e, 1));
                    self.each_task(e, &only, &mut |e, task| self.load(e, task, c));
                });
            },
            |e| {
                if shares {
                    let count = self.layout.registers() as u16;
                    call(e, Intrinsic::SetMaxRegisters { more: true, count }, Vec::new());
                }
                let cursors = self.tile.resident.map(|_| [Cursor::new(e, 0), Cursor::new(e, 0)]);
                self.each_task(e, &only, &mut |e, task| {
                    let (state, thread) = self.multiply(e, &Expr::Var(group), task, cursors);
                    self.store(e, facts, home, goes, task, &state, &thread);
                });
            },
        );
    }

    /// The rows and steps of a tile of the grid.
    fn task(&self, e: &mut Emit, block: Expr) -> Task<'x> {
        let place = self.locate(e, block);
        let scores = Scores::new(e, self.chain, self.tile, self.layout.step, &place.m[0]);
        let (first, count) = scores.steps(e, &place.part);
        Task { place, scores, first, count, parity: Expr::U32(0) }
    }

    /// The block's only tile, or one after the other. Where the number of steps grows with the row, every other one is
    /// counted from the end, so that who begins with a long one ends with a short one.
    fn each_task(&self, e: &mut Emit, only: &Option<Task<'x>>, f: &mut dyn FnMut(&mut Emit, &Task<'x>)) {
        let (Some(blocks), None) = (self.tile.resident.map(i64::from), only) else {
            return only.iter().for_each(|task| f(e, task));
        };
        let tiles = self.tile.batch * self.tile.m.tiles();
        let turn = e.kernel.var("turn", Ty::I32);
        let body = e.block(|e| {
            let odd = e.named("odd", Ty::I32, modulo(Expr::Var(turn), 2));
            let block = || Expr::Special(Special::BlockX);
            let within = match self.chain.grows() {
                true => {
                    let back = sub(lit32(blocks as i32 - 1), block());
                    let is_odd = cmp(CmpOp::Ne, odd.clone(), lit32(0));
                    Expr::Select(Box::new(is_odd), Box::new(back), Box::new(block()))
                }
                false => block(),
            };
            let id = e.named("id", Ty::I32, plus(times(Expr::Var(turn), blocks), within));
            let mut one = |e: &mut Emit| {
                let parity = e.named("turn_parity", Ty::U32, cast(Ty::U32, odd.clone()));
                let task = Task { parity, ..self.task(e, id.clone()) };
                f(e, &task);
            };
            match tiles % blocks {
                0 => one(e),
                _ => e.if_then(cmp(CmpOp::Lt, id.clone(), lit32(tiles as i32)), one),
            }
        });
        let (lo, hi) = (lit32(0), lit32(((tiles + blocks - 1) / blocks) as i32));
        e.push(Stmt::For { var: turn, lo, hi, step: lit32(1), unroll: Unroll::None, body });
    }

    /// The block's rows. Where the number of steps grows with the row, the longest come first: at the end of the batch
    /// those of several members together, so that no multiprocessor has a long one left when the others have none.
    fn locate(&self, e: &mut Emit, block: Expr) -> Where {
        let tiles = self.tile.m.tiles();
        let parts = self.tile.split;
        let (part, id) = match parts {
            1 => (lit32(0), block),
            _ => {
                let part = e.named("part", Ty::I32, modulo(block.clone(), parts));
                (part, e.named("id", Ty::I32, over(block, parts)))
            }
        };
        let together = self.tile.swizzle;
        let alone = self.tile.batch - together;
        let (mut number, mut batch) = match self.tile.batch {
            1 => (id.clone(), lit32(0)),
            _ => (modulo(id.clone(), tiles), over(id.clone(), tiles)),
        };
        if together > 1 {
            let early = cmp(CmpOp::Lt, id.clone(), lit32((alone * tiles) as i32));
            let early = e.named("early", Ty::Bool, early);
            let within = e.named("within", Ty::I32, sub(id, lit32((alone * tiles) as i32)));
            let within = int_op(IntOp::Max, within, lit32(0));
            let or =
                |own: Expr, late: Expr| Expr::Select(Box::new(early.clone()), Box::new(own), Box::new(late));
            number = or(number, over(within.clone(), together));
            batch = or(batch, plus(modulo(within, together), lit32(alone as i32)));
        }
        let number = e.named("tile", Ty::I32, number);
        let number = if self.chain.grows() { sub(lit32(tiles as i32 - 1), number) } else { number };
        let batch_number = e.named("batch", Ty::I32, batch);
        let extents: Vec<i64> = self.chain.outer.batch.iter().map(|d| d.extent).collect();
        let batch = decode(e, Num { expr: batch_number.clone(), ty: Ty::I32 }, &extents);
        let m0 = e.named("m0", Ty::I32, times(number, self.tile.m.block as i64));
        Where { batch, batch_number, m: vec![m0], n: vec![lit32(0)], part, chosen: None, tail: None }
    }

    fn wait(&self, e: &mut Emit, gate: Gate, c: Cursor) {
        let args = vec![self.gate(gate, &Expr::Var(c.slot)), Expr::Var(c.parity)];
        call(e, Intrinsic::MbarrierWait, args);
    }

    /// A warp is done with a stage.
    fn give_back(&self, e: &mut Emit, gate: Gate, c: Cursor) {
        self.arrive(e, self.gate(gate, &Expr::Var(c.slot)));
    }

    /// One lane of a warp arrives.
    fn arrive(&self, e: &mut Emit, barrier: Expr) {
        let first_lane = cmp(CmpOp::Eq, Expr::Special(Special::Lane), lit32(0));
        e.if_then(first_lane, |e| call(e, Intrinsic::MbarrierArrive, vec![barrier]));
    }

    /// One thread: waits for free stages, says how many bytes will come, and starts the copies.
    fn load(&self, e: &mut Emit, task: &Task, cursor: Option<Cursor>) {
        let Task { place, first, count, parity, .. } = task;
        if self.tile.resident.is_some() {
            let free = int_op(IntOp::Xor, parity.clone(), Expr::U32(1));
            call(e, Intrinsic::MbarrierWait, vec![self.rows_empty(), free]);
        }
        let full = e.named("rows_full", Ty::U32, self.rows_full());
        let rows: Vec<&Matrix> = self.factors.iter().map(|f| &f[0]).collect();
        let bytes = |all: &[&Matrix]| Expr::U32(all.iter().map(|m| m.bytes()).sum());
        call(e, Intrinsic::MbarrierExpect, vec![full.clone(), bytes(&rows)]);
        rows.iter().for_each(|a| a.copy(e, &lit32(0), &full, &place.m[0], &lit32(0), place));
        let terms: Vec<&Matrix> = self.factors.iter().map(|f| &f[1]).collect();
        let c = cursor.unwrap_or_else(|| Cursor::new(e, 1));
        let var = e.kernel.var("it", Ty::I32);
        let body = e.block(|e| {
            let slot = Expr::Var(c.slot);
            let j0 =
                e.named("j0", Ty::I32, times(plus(first.clone(), Expr::Var(var)), self.layout.step as i64));
            for (matrices, full, empty, row, term) in [
                (&terms[..], Gate::ScoresFull, Gate::ScoresEmpty, j0.clone(), lit32(0)),
                (&[&self.v][..], Gate::TermsFull, Gate::TermsEmpty, lit32(0), j0.clone()),
            ] {
                self.wait(e, empty, c);
                let full = e.named("full", Ty::U32, self.gate(full, &slot));
                call(e, Intrinsic::MbarrierExpect, vec![full.clone(), bytes(matrices)]);
                matrices.iter().for_each(|m| m.copy(e, &slot, &full, &row, &term, place));
            }
            c.advance(e, self.layout.stages);
        });
        let (lo, step) = (lit32(0), lit32(1));
        e.push(Stmt::For { var, lo, hi: count.clone(), step, unroll: Unroll::None, body });
    }

    fn multiply(
        &self,
        e: &mut Emit,
        group: &Expr,
        task: &Task,
        cursors: Option<[Cursor; 2]>,
    ) -> (State, Thread) {
        let Task { place, scores, first, count, parity } = task;
        let columns = self.tile.n.block;
        let acc = e.kernel.array("acc", Ty::F32, columns / 2);
        contract_mma::clear(e, acc, columns / 2, dtype::Ty::F32);
        let two = |e: &mut Emit, name: &str, v: Expr| [(); 2].map(|()| e.let_var(name, Ty::F32, v.clone()));
        let state = State {
            acc,
            scores: e.kernel.array("scores", Ty::F32, self.layout.step / 2),
            weights: e.kernel.array("weights", Ty::U32, self.layout.step / 4 * self.chain.pieces),
            top: two(e, "top", MINUS_INFINITY),
            sum: two(e, "sum", ZERO),
            most: (!self.chain.beside.is_empty()).then(|| two(e, "most", MINUS_INFINITY)),
        };
        let tops = state.top;
        let rows = [0, 1].map(|r| self.row_digits(e, place, r));
        let column = e.named("column", Ty::I32, lane_column());
        let thread = Thread { batch: place.batch.clone(), rows, column };
        let mine = int_op(IntOp::Sub, group.clone(), lit32(1));
        let mine = e.named("rows", Ty::I32, times(mine, 64 * LINE));
        if let Some(state) = &self.chain.cascade.state
            && let Some(least) = state.least
        {
            for r in 0..2 {
                let least = scores.of_row(e, least, &thread, r);
                let scaled = f32_call(Func::Mul, vec![least, log2(state)]);
                e.push(Stmt::Set(tops[r], scaled));
            }
        }
        let factors: Vec<[Expr; 2]> = (self.factors.iter())
            .map(|[a, b]| [a.descriptor(e, "a_matrix", &mine), b.descriptor(e, "b_matrix", &lit32(0))])
            .collect();
        let v = self.v.descriptor(e, "v_matrix", &lit32(0));
        call(e, Intrinsic::MbarrierWait, vec![self.rows_full(), parity.clone()]);
        let [at, before] = cursors.unwrap_or_else(|| [(); 2].map(|()| Cursor::new(e, 0)));

        // The first step has no weights before it.
        self.wait(e, Gate::ScoresFull, at);
        call(e, Intrinsic::WgmmaFence, Vec::new());
        self.start_scores(e, &factors, at, &state);
        call(e, Intrinsic::WgmmaWait(0), Vec::new());
        self.give_back(e, Gate::ScoresEmpty, at);
        at.advance(e, self.layout.stages);
        let j0 = e.named("j0", Ty::I32, times(first.clone(), self.layout.step as i64));
        e.scope(|e| {
            self.weigh(e, scores, &thread, &j0, &state);
            self.pack(e, &state);
        });

        let var = e.kernel.var("it", Ty::I32);
        let body = e.block(|e| {
            self.wait(e, Gate::ScoresFull, at);
            call(e, Intrinsic::WgmmaFence, Vec::new());
            self.start_scores(e, &factors, at, &state);
            self.wait(e, Gate::TermsFull, before);
            call(e, Intrinsic::WgmmaFence, Vec::new());
            self.start_terms(e, &v, before, &state);
            call(e, Intrinsic::WgmmaWait(1), Vec::new());
            self.give_back(e, Gate::ScoresEmpty, at);
            at.advance(e, self.layout.stages);
            let j0 =
                e.named("j0", Ty::I32, times(plus(first.clone(), Expr::Var(var)), self.layout.step as i64));
            let factors = self.weigh(e, scores, &thread, &j0, &state);
            call(e, Intrinsic::WgmmaWait(0), Vec::new());
            self.give_back(e, Gate::TermsEmpty, before);
            before.advance(e, self.layout.stages);
            if let Some(factors) = factors {
                self.scale(e, state.acc, &factors);
            }
            self.pack(e, &state);
        });
        let (lo, step) = (lit32(1), lit32(1));
        e.push(Stmt::For { var, lo, hi: count.clone(), step, unroll: Unroll::None, body });

        let resident = self.tile.resident.is_some();
        if resident {
            // All scores are made.
            self.arrive(e, self.rows_empty());
        }
        self.wait(e, Gate::TermsFull, before);
        call(e, Intrinsic::WgmmaFence, Vec::new());
        self.start_terms(e, &v, before, &state);
        call(e, Intrinsic::WgmmaWait(0), Vec::new());
        if resident {
            self.give_back(e, Gate::TermsEmpty, before);
            before.advance(e, self.layout.stages);
        }
        (state, thread)
    }

    fn row_digits(&self, e: &mut Emit, place: &Where, r: i32) -> Vec<Num> {
        let local = Accumulators::of(self.tile).row(lit32(r));
        let rows = self.tile.m.points();
        let mut at = plus(place.m[0].clone(), local);
        if rows % self.tile.m.block as i64 != 0 {
            at = int_op(IntOp::Min, at, lit32(rows as i32 - 1));
        }
        let at = e.named("row", Ty::I32, at);
        let digits = digits(e, &self.tile.m, &self.chain.outer.m, &[at]);
        digits.into_iter().map(|d| Num { expr: e.named("row", d.ty, d.expr), ty: d.ty }).collect()
    }

    /// The products of a step's scores.
    fn start_scores(&self, e: &mut Emit, factors: &[[Expr; 2]], at: Cursor, s: &State) {
        let mut more = false;
        for ([a, b], [first_a, first_b]) in self.factors.iter().zip(factors) {
            let stage = e.named("b_stage", Ty::U64, b.stage(first_b, at));
            let trans = [!a.boxes.k_major, !b.boxes.k_major];
            let op = Intrinsic::Wgmma { dtypes: [self.chain.dtype; 2], n: self.layout.step as u16, trans };
            for kk in 0..a.boxes.terms().div_ceil(16) {
                let args = vec![a.terms_on(first_a, kk), b.terms_on(&stage, kk), lit32(more as i32)];
                let outs = (0..self.layout.step / 2).map(|i| Place::Elem(s.scores, i)).collect();
                e.push(Stmt::Intrinsic { op, outs, args });
                more = true;
            }
        }
        call(e, Intrinsic::WgmmaCommit, Vec::new());
    }

    /// The second product of the weights at hand.
    fn start_terms(&self, e: &mut Emit, v: &Expr, at: Cursor, s: &State) {
        let stage = e.named("v_stage", Ty::U64, self.v.stage(v, at));
        let (n, trans) = (self.tile.n.block as u16, !self.v.boxes.k_major);
        let op = Intrinsic::WgmmaRegs { dtype: self.chain.dtype, n, trans };
        for kk in 0..self.layout.step / 16 {
            // The least first.
            for piece in (0..self.chain.pieces).rev() {
                let first = piece * self.layout.step / 4 + 4 * kk;
                let weight = |i: u32| Expr::Elem(s.weights, Box::new(lit32((first + i) as i32)));
                let mut args: Vec<Expr> = (0..4).map(weight).collect();
                args.extend([self.v.terms_on(&stage, kk), lit32(1)]);
                let outs = (0..self.tile.n.block / 2).map(|i| Place::Elem(s.acc, i)).collect();
                e.push(Stmt::Intrinsic { op, outs, args });
            }
        }
        call(e, Intrinsic::WgmmaCommit, Vec::new());
    }

    /// Scores to weights, in place; the greatest scores and sums follow. Gives each row's factor.
    fn weigh(
        &self,
        e: &mut Emit,
        scores: &Scores,
        thread: &Thread,
        j0: &Expr,
        s: &State,
    ) -> Option<[Expr; 2]> {
        let state = self.chain.cascade.state.as_ref();
        let top = [(); 2].map(|()| e.let_var("greatest", Ty::F32, MINUS_INFINITY));
        let groups = self.layout.step / 8;
        let pass = |e: &mut Emit, whole: bool| {
            unrolled(e, "g", groups, |e, g| {
                scores.emit(e, s.scores, &g, j0, thread, whole, &mut |e, r, at, value| {
                    e.push(Stmt::SetElem(s.scores, at, value.clone()));
                    if state.is_some() {
                        let greater = f32_call(Func::Max, vec![Expr::Var(top[r]), value]);
                        e.push(Stmt::Set(top[r], greater));
                    }
                });
            });
        };
        match scores.whole(e, j0) {
            None => pass(e, true),
            Some(c) => {
                let then = e.block(|e| pass(e, true));
                let otherwise = e.block(|e| pass(e, false));
                e.push(Stmt::If { cond: c, then, otherwise });
            }
        }
        // Weights without a state are what was evaluated.
        let state = state?;
        // Exponentials are powers of two.
        let scale = log2_of(state) * scores.scale() as f64;
        let scale = || Expr::Lit(Value::F32(scale as f32));
        let mut factors = Vec::new();
        let mut base = Vec::new();
        for r in 0..2 {
            self.over_lanes(e, top[r], Func::Max);
            if let Some(most) = s.most {
                let greater = f32_call(Func::Max, vec![Expr::Var(most[r]), Expr::Var(top[r])]);
                e.push(Stmt::Set(most[r], greater));
            }
            let scaled = f32_call(Func::Mul, vec![Expr::Var(top[r]), scale()]);
            let new = f32_call(Func::Max, vec![Expr::Var(s.top[r]), scaled]);
            let new = e.named("new_top", Ty::F32, new);
            let none = cmp(CmpOp::Eq, new.clone(), MINUS_INFINITY);
            let safe = Expr::Select(Box::new(none), Box::new(ZERO), Box::new(new.clone()));
            let safe = e.named("base", Ty::F32, safe);
            let factor = exp2(f32_call(Func::Sub, vec![Expr::Var(s.top[r]), safe.clone()]));
            let factor = e.named("factor", Ty::F32, factor);
            e.push(Stmt::Set(s.top[r], new));
            let shrunk = f32_call(Func::Mul, vec![Expr::Var(s.sum[r]), factor.clone()]);
            e.push(Stmt::Set(s.sum[r], shrunk));
            base.push(e.named("minus", Ty::F32, f32_call(Func::Neg, vec![safe])));
            factors.push(factor);
        }
        let exponentials =
            Exponentials { scores, thread, j0, scale: scale(), base: [base[0].clone(), base[1].clone()] };
        if scores.has_randoms() {
            unrolled(e, "pair", groups / 2, |e, pair| {
                e.scope(|e| {
                    let first = e.named("g", Ty::I32, times(pair, 2));
                    let words = scores.words(e, j0, &first, thread);
                    for n in 0..2 {
                        let g = plus(first.clone(), lit32(n as i32));
                        self.weights(e, &exponentials, s, &g, Some((words, n)));
                    }
                });
            });
        } else {
            unrolled(e, "g", groups, |e, g| self.weights(e, &exponentials, s, &g, None));
        }
        Some([factors[0].clone(), factors[1].clone()])
    }

    /// The scores of a group of columns to weights. Random words: of two groups, and which of them it is.
    fn weights(&self, e: &mut Emit, of: &Exponentials, s: &State, g: &Expr, words: Option<(ArrayId, usize)>) {
        let Exponentials { scores, thread, j0, scale, base } = of;
        let divisor = self.chain.cascade.state.as_ref().and_then(|s| s.divisor);
        for r in 0..2usize {
            for w in 0..2 {
                let at = plus(times(g.clone(), 4), lit32(2 * r as i32 + w));
                let score = Expr::Elem(s.scores, Box::new(at.clone()));
                let x = f32_call(Func::Fma, vec![score, scale.clone(), base[r].clone()]);
                let weight = e.let_var("weight", Ty::F32, exp2(x));
                if let Some(d) = divisor.and_then(|d| d.rounded) {
                    let full = Num { expr: Expr::Var(weight), ty: Ty::F32 };
                    let rounded = e.rounded(d, full).expr;
                    e.push(Stmt::Set(weight, rounded));
                }
                if divisor.is_some() {
                    let sum = f32_call(Func::Add, vec![Expr::Var(s.sum[r]), Expr::Var(weight)]);
                    e.push(Stmt::Set(s.sum[r], sum));
                }
                e.scope(|e| {
                    let mut value = Expr::Var(weight);
                    if scores.has_more() {
                        if let Some((words, group)) = words {
                            scores.bind_words(e, words, r, group, w);
                        }
                        value = scores.weight(e, value, term(j0, g, thread, w), thread, r);
                    }
                    e.push(Stmt::SetElem(s.scores, at, value));
                });
            }
        }
    }

    /// Combines over the four lanes that share a row.
    pub(super) fn over_lanes(&self, e: &mut Emit, v: VarId, f: Func) {
        for mask in [1, 2] {
            let other = e.kernel.var("other", Ty::F32);
            let (kind, value) = (ShuffleKind::Xor, Expr::Var(v));
            e.push(Stmt::Shuffle { var: other, kind, value, lane: lit32(mask) });
            e.push(Stmt::Set(v, f32_call(f, vec![Expr::Var(v), Expr::Var(other)])));
        }
    }

    fn scale(&self, e: &mut Emit, acc: ArrayId, factors: &[Expr; 2]) {
        unrolled(e, "g", self.tile.n.block / 8, |e, g| {
            for (r, factor) in factors.iter().enumerate() {
                for w in 0..2 {
                    let at = plus(times(g.clone(), 4), lit32(2 * r as i32 + w));
                    let old = Expr::Elem(acc, Box::new(at.clone()));
                    e.push(Stmt::SetElem(acc, at, f32_call(Func::Mul, vec![old, factor.clone()])));
                }
            }
        });
    }

    /// The weights as the second product takes them.
    fn pack(&self, e: &mut Emit, s: &State) {
        unrolled(e, "x", self.layout.step / 4, |e, x| {
            let score = |w: i32| {
                let at = plus(times(x.clone(), 2), lit32(w));
                Box::new(Expr::Elem(s.scores, Box::new(at)))
            };
            for piece in 0..self.chain.pieces {
                let pair = Expr::Pack2(self.chain.dtype, score(0), score(1));
                let at = plus(x.clone(), lit32((piece * self.layout.step / 4) as i32));
                e.push(Stmt::SetElem(s.weights, at, pair));
                // What the pieces so far leave, exactly.
                for w in (0..2).filter(|_| piece + 1 < self.chain.pieces) {
                    let whole = *score(w);
                    let rounded = e.rounded(self.chain.dtype, Num { expr: whole.clone(), ty: Ty::F32 }).expr;
                    let at = plus(times(x.clone(), 2), lit32(w));
                    let rest = f32_call(Func::Sub, vec![whole, rounded]);
                    let rest = e.named("rest", Ty::F32, rest);
                    e.push(Stmt::SetElem(s.scores, at, rest));
                }
            }
        });
    }

    /// Divides by the sum of the weights.
    pub(super) fn finish(&self, e: &mut Emit, s: &State, scores: &Scores, thread: &Thread) {
        let Some(state) = &self.chain.cascade.state else { return };
        if state.divisor.is_none() && state.guard {
            return;
        }
        let factors = [0, 1].map(|r| {
            if state.divisor.is_some() {
                self.over_lanes(e, s.sum[r], Func::Add);
            }
            let extra = state.divisor.and_then(|d| d.extra).map(|x| scores.of_row(e, x, thread, r));
            factor(e, state, &Expr::Var(s.top[r]), Expr::Var(s.sum[r]), extra)
        });
        self.scale(e, s.acc, &factors);
    }
}

/// By what a row's accumulators are multiplied at last. Rows without any score are 0, or NaN where nothing guards
/// against that.
pub fn factor(e: &mut Emit, state: &cascade::State, top: &Expr, sum: Expr, extra: Option<Expr>) -> Expr {
    let one = Expr::Lit(Value::F32(1.0));
    let mut by = one.clone();
    let mut none = cmp(CmpOp::Eq, top.clone(), MINUS_INFINITY);
    if state.divisor.is_some() {
        let sum = match extra {
            None => sum,
            Some(x) => {
                let minus = f32_call(Func::Neg, vec![top.clone()]);
                let x = f32_call(Func::Fma, vec![x, log2(state), minus]);
                e.named("sum", Ty::F32, f32_call(Func::Add, vec![sum, exp2(x)]))
            }
        };
        if state.guard {
            none = cmp(CmpOp::Eq, sum.clone(), ZERO);
        }
        by = e.named("inverse", Ty::F32, f32_call(Func::Div, vec![one, sum]));
    }
    let nothing = if state.guard { ZERO } else { Expr::Lit(Value::F32(f32::NAN)) };
    e.named("by", Ty::F32, Expr::Select(Box::new(none), Box::new(nothing), Box::new(by)))
}

/// By what a score is multiplied so that its exponential is a power of two.
fn log2_of(state: &cascade::State) -> f64 {
    if state.base2 { 1.0 } else { std::f64::consts::LOG2_E }
}

fn log2(state: &cascade::State) -> Expr {
    Expr::Lit(Value::F32(log2_of(state) as f32))
}
