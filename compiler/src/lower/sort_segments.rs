//! The first few of long rows where rows are few, or so long that a bound from a sample admits too many: a block a
//! segment finds the segment's first few, then a block a row the first of these. Rank keys hold positions, so ties go by
//! position as if the row were in one piece.

use super::Lowering;
use super::map;
use super::scalar::{Emit, Num, add, arith, cmp, int_of, int_op, lit32, lit64, mul};
use super::sort_filter::Keys;
use super::sort_select::{Shared, THREADS, first_of, load, put, room, sort_candidates, store, strided};
use crate::ir::graph::Sort;
use crate::ir::program::BufferId;
use crate::ir::simt::{CmpOp, Expr, IntOp, Mem, Special, Stmt, Ty, Unroll};
use crate::vocab::dtype::DType;

/// Blocks that keep the device busy.
const ENOUGH: i64 = 264;
/// Elements of a segment at least, and segments of a row at most.
const SHORT: i64 = 8192;
const MOST: i64 = 128;
/// Results of segments that a block looks through.
const RESULTS: i64 = 8192;
/// Elements for each that the sample's bound admits by chance, and how many may be admitted in all.
const CHANCE: i64 = 1024;
/// Of the room for candidates, what may be expected to be taken.
const FULL: f64 = 0.83;

/// How each row is cut.
pub struct Cut {
    rows: i64,
    n: i64,
    segments: i64,
    /// Elements of a segment; the last has fewer.
    len: i64,
}

impl Cut {
    /// Whether rows can be cut in so many segments.
    pub fn fits(rows: i64, n: i64, places: i64, segments: i64) -> bool {
        let most = (n / SHORT.max(2 * room(places))).clamp(1, MOST);
        (1..=most).contains(&segments) && rows.saturating_mul(segments) <= super::MAX_GRID_X
    }

    /// `asked`: segments, if so many are asked for.
    pub fn new(rows: i64, n: i64, places: i64, asked: Option<i64>) -> Option<Cut> {
        let busy = ENOUGH / rows.max(1);
        let admitted = (FULL * room(places) as f64) as i64;
        let sure = n / (CHANCE * (admitted - places * 13 / 10).max(1)) + 1;
        let sure = if sure > 1 { sure } else { 0 };
        let few = (RESULTS / places).max(4);
        let most = (n / SHORT.max(2 * room(places))).min(MOST);
        let segments = asked.unwrap_or(busy.min(few).max(sure)).min(most);
        if segments < 2 || rows * segments > super::MAX_GRID_X {
            return None;
        }
        let len = (n + segments - 1) / segments;
        let len = (len + 7) / 8 * 8;
        let segments = (n + len - 1) / len;
        Some(Cut { rows, n, segments, len })
    }
}

pub fn lower<'a>(cx: &mut Lowering<'a>, name: &str, sort: &'a Sort, places: i64, cut: &Cut) {
    let mut dims = cx.graph.tensor(sort.target).dims.clone();
    dims.remove(sort.along);
    let found = cx.workspace(format!("{name}_found"), DType::I64, &[cut.rows, cut.segments, places]);
    of_segments(cx, name, sort, (&dims, places), cut, found);
    let mut e = begin(cx, name, sort, cut.rows);
    let block = Expr::Special(Special::BlockX);
    let at = map::decode(&mut e, Num { expr: block.clone(), ty: Ty::I32 }, &dims);
    let shared = merge(&mut e, block, places, cut, found);
    put(&mut e, sort, &at, shared, places);
    cx.launch(e);
}

fn begin<'a>(cx: &mut Lowering<'a>, name: &str, sort: &'a Sort, blocks: i64) -> Emit<'a> {
    let mut e = cx.emit(name);
    e.kernel.block = [THREADS as u32, 1, 1];
    e.kernel.grid = [blocks as u32, 1, 1];
    e.line(sort.span);
    e
}

/// Where the results of a row's (or segment's) begin.
fn base(e: &mut Emit<'_>, number: Expr, each: i64) -> Num {
    let number = super::read::to(Num { expr: number, ty: Ty::I32 }, Ty::I64);
    let base = arith(IntOp::Mul, Num { expr: number, ty: Ty::I64 }, int_of(Ty::I64, each));
    Num { expr: e.named("base", Ty::I64, base.expr), ty: Ty::I64 }
}

fn place(base: &Num, at: Expr) -> Expr {
    add(base.expr.clone(), super::read::to(Num { expr: at, ty: Ty::I32 }, Ty::I64))
}

/// The rank keys of each segment's first few, in order.
fn of_segments<'a>(
    cx: &mut Lowering<'a>,
    name: &str,
    sort: &'a Sort,
    (dims, places): (&[i64], i64),
    cut: &Cut,
    found: BufferId,
) {
    let mut e = begin(cx, &format!("{name}_segments"), sort, cut.rows * cut.segments);
    let block = Expr::Special(Special::BlockX);
    let row = int_op(IntOp::Div, block.clone(), lit32(cut.segments as i32));
    let row = e.named("row", Ty::I32, row);
    let segment = int_op(IntOp::Rem, block.clone(), lit32(cut.segments as i32));
    let from = e.named("from", Ty::I32, mul(segment, lit32(cut.len as i32)));
    let at = map::decode(&mut e, Num { expr: row, ty: Ty::I32 }, dims);
    let keys = Keys::new(&e, sort, &at, cut.n).segment(&mut e, from, cut.len);
    let shared = first_of(&mut e, sort, &at, &keys, places);
    let p = e.pointer(found, true);
    let base = base(&mut e, block, places);
    strided(&mut e, lit32(places as i32), Unroll::None, |e, j| {
        let own = load(shared.candidates, j.clone());
        e.push(Stmt::Store(Mem::Global(p), place(&base, j), own));
    });
    cx.launch(e);
}

/// The first few of all that a row's segments found: as many as there is room for, sorted; then the rest beside those kept.
fn merge(e: &mut Emit<'_>, row: Expr, places: i64, cut: &Cut, found: BufferId) -> Shared {
    let all = cut.segments * places;
    let shared = Shared {
        bins: e.kernel.shared("bins", DType::I32, 1, 16),
        sums: e.kernel.shared("sums", DType::I32, 1, 16),
        state: e.kernel.shared("state", DType::I32, 1, 16),
        candidates: e.kernel.shared("candidates", DType::I64, room(places) as u32, 16),
        room: room(places),
    };
    let p = e.pointer(found, false);
    let base = base(e, row, all);
    let fresh = shared.room - places;
    // The first round has nothing to keep.
    let var = e.kernel.var("first", Ty::I32);
    let count = e.let_var("count", Ty::I32, lit32(shared.room as i32));
    strided(e, lit32(places as i32), Unroll::None, |e, j| store(e, shared.candidates, j, lit64(i64::MAX)));
    let body = e.block(|e| {
        strided(e, lit32(fresh as i32), Unroll::By(4), |e, j| {
            let at = e.named("at", Ty::I32, add(Expr::Var(var), j.clone()));
            let own = e.let_var("own", Ty::I64, lit64(i64::MAX));
            let there = cmp(CmpOp::Lt, at.clone(), lit32(all as i32));
            let got = Expr::Load(Mem::Global(p), Box::new(place(&base, at)));
            e.if_then(there, |e| e.push(Stmt::Set(own, got)));
            store(e, shared.candidates, add(j, lit32(places as i32)), Expr::Var(own));
        });
        e.push(Stmt::Barrier);
        sort_candidates(e, shared, count);
    });
    let (lo, hi, step) = (lit32(0), lit32(all as i32), lit32(fresh as i32));
    e.push(Stmt::For { var, lo, hi, step, unroll: Unroll::None, body });
    shared
}
