//! Form `map`, turned, where the rows of the targets begin anywhere between two aligned places: of each row of a tile the
//! aligned vectors inside it are stored as such, and what is before and behind them, a vector in all, element by element.

use super::index::Interval;
use super::map;
use super::map_tile::{Block, shift, sum};
use super::map_vec::{self, Loaded};
use super::read::Index;
use super::scalar::{Emit, Num, add, and, arith, cmp, int_of, lit32, mul, sub};
use crate::ir::graph::Define;
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Mem, SharedId, Special, Stmt, Ty, Unroll};

pub fn compute<'a>(b: &Block<'_, 'a>, e: &mut Emit<'a>, stages: &[SharedId]) {
    let (tile, v) = (b.tile, b.tile.v);
    let whole = tile.tq / v - 1;
    // The aligned vectors, then the edges.
    items(b, e, whole, &|e, p, along, head, n| {
        let row = add(head, mul(n, lit32(v as i32)));
        let row = e.named("row", Ty::I32, row);
        vector(b, e, stages, p, along, &row);
    });
    items(b, e, v, &|e, p, along, head, n| {
        let before = cmp(CmpOp::Lt, n.clone(), head);
        let behind = add(n.clone(), lit32((whole * v) as i32));
        let row = Expr::Select(Box::new(before), Box::new(n), Box::new(behind));
        let row = e.named("row", Ty::I32, row);
        let q = add(b.q0.expr.clone(), row.clone());
        let inside = cmp(CmpOp::Lt, q, lit32(last(b) as i32));
        e.if_then(inside, |e| element(b, e, stages, p, along, &row));
    });
}

/// The extent along q.
fn last(b: &Block<'_, '_>) -> i64 {
    b.extents[1]
}

/// `f` for each row of the tile and each of `each` items of it: the row's coordinate and place in the tile, elements before
/// its first aligned place, and the item's number.
#[allow(clippy::type_complexity)]
fn items<'a>(
    b: &Block<'_, 'a>,
    e: &mut Emit<'a>,
    each: i64,
    f: &dyn Fn(&mut Emit<'a>, &Expr, &Expr, Expr, Expr),
) {
    let (tile, v) = (b.tile, b.tile.v);
    // Eight vectors of a row, which stand in other banks, then the next rows.
    let all = (each as u64).next_power_of_two() as i64;
    let low = all.min(8);
    let total = tile.tp * all;
    let i = e.kernel.var("i", Ty::I32);
    let body = e.block(|e| {
        let n = sum(Expr::Special(Special::ThreadX), mul(Expr::Var(i), lit32(tile.threads as i32)));
        let n = Num { expr: e.named("n", Ty::I32, n), ty: Ty::I32 };
        let op = |op, n: &Num, by: i64| arith(op, n.clone(), int_of(Ty::I32, by));
        let along = op(IntOp::Rem, &op(IntOp::Div, &n, low), tile.tp);
        let along = e.named("along", Ty::I32, along.expr);
        let high = op(IntOp::Mul, &op(IntOp::Div, &n, low * tile.tp), low);
        let item = arith(IntOp::Add, op(IntOp::Rem, &n, low), high);
        let item = e.named("item", Ty::I32, item.expr);
        let (p, inside) = b.row(e, &along);
        let more = total % tile.threads != 0 || all != each;
        let here = more.then(|| cmp(CmpOp::Lt, item.clone(), lit32(each as i32)));
        let work = |e: &mut Emit<'a>| {
            let at = b.at(p.clone(), b.q0.expr.clone());
            let at = map::coordinates(e, b.group[0].target, &at);
            let first = place(e, b.group[0], &at);
            let off = Expr::Int(IntOp::And, Box::new(first.expr), Box::new(int_of(first.ty, v - 1).expr));
            let off = super::read::to(Num { expr: off, ty: first.ty }, Ty::I32);
            let head =
                Expr::Int(IntOp::And, Box::new(sub(lit32(v as i32), off)), Box::new(lit32(v as i32 - 1)));
            let head = e.named("head", Ty::I32, head);
            f(e, &p, &along, head, item.clone());
        };
        match here.into_iter().chain(inside).reduce(and) {
            Some(cond) => e.if_then(cond, work),
            None => e.scope(work),
        }
    });
    let count = (total + tile.threads - 1) / tile.threads;
    let (lo, hi, step) = (lit32(0), lit32(count as i32), lit32(1));
    e.push(Stmt::For { var: i, lo, hi, step, unroll: Unroll::Auto, body });
}

/// Where a definition's element stands.
fn place(e: &mut Emit<'_>, d: &Define, at: &[Num]) -> Num {
    let t = e.graph.tensor(d.target);
    let range = |i: usize| Interval::new(t.lo[i], t.lo[i] + t.dims[i] - 1);
    let index: Vec<Index> =
        at.iter().enumerate().map(|(i, n)| Index { num: n.clone(), range: range(i) }).collect();
    let ty = e.home(d.target).index_ty();
    let place = e.offset(d.target, &index);
    Num { expr: e.named("to", ty, place), ty }
}

/// The values of `n` neighbours along q from `row` of the tile on, an array for each definition, and the first's coordinates.
fn values<'a>(
    b: &Block<'_, 'a>,
    e: &mut Emit<'a>,
    stages: &[SharedId],
    p: &Expr,
    along: &Expr,
    row: &Expr,
    n: i64,
) -> (Vec<ArrayId>, Vec<Num>) {
    let q = e.named("q", Ty::I32, add(b.q0.expr.clone(), row.clone()));
    let mut loaded = Vec::new();
    for (r, &stage) in b.turn.reads.iter().zip(stages) {
        let t = e.graph.tensor(r.read.tensor);
        let ty = Ty::of(t.dtype.compute());
        let array = e.kernel.array(&t.name, ty, n as u32);
        for lane in 0..n {
            let here = e.named("row", Ty::I32, sum(row.clone(), lit32(lane as i32)));
            let at = b.place(e, r, here.clone(), shift(here, b.tile.v), along.clone());
            e.push(Stmt::SetElem(array, lit32(lane as i32), Expr::Load(Mem::Shared(stage), Box::new(at))));
        }
        loaded.push(Loaded { id: r.id, array, at: 0, ty });
    }
    let outs: Vec<ArrayId> = b.group.iter().map(|d| map_vec::out_array(e, d, n)).collect();
    let first = b.at(p.clone(), q.clone());
    for lane in 0..n {
        e.scope(|e| {
            let at = b.at(p.clone(), sum(q.clone(), lit32(lane as i32)));
            let at = map::coordinates(e, b.group[0].target, &at);
            map_vec::bind_lane(e, &loaded, lane);
            let found = map::values(e, b.group, &at);
            for ((d, x), &out) in b.group.iter().zip(found).zip(&outs) {
                e.push(Stmt::SetElem(out, lit32(lane as i32), x.expr));
                e.unforward(d.target);
            }
        });
    }
    let first = map::coordinates(e, b.group[0].target, &first);
    (outs, first)
}

/// A vector that begins at an aligned place: at once, but at the end of the targets' rows.
fn vector<'a>(b: &Block<'_, 'a>, e: &mut Emit<'a>, stages: &[SharedId], p: &Expr, along: &Expr, row: &Expr) {
    let (n, v) = (last(b), b.tile.v);
    let q = e.named("end", Ty::I32, add(b.q0.expr.clone(), row.clone()));
    let whole = cmp(CmpOp::Le, q.clone(), lit32((n - v) as i32));
    e.if_else(
        whole,
        |e| {
            let (arrays, at) = values(b, e, stages, p, along, row, v);
            for (d, array) in b.group.iter().zip(arrays) {
                let place = place(e, d, &at);
                map_vec::store_at(e, d.target, array, place.expr, v);
            }
        },
        |e| {
            let lane = e.kernel.var("lane", Ty::I32);
            let body = e.block(|e| {
                let row = e.named("row", Ty::I32, add(row.clone(), Expr::Var(lane)));
                let q = add(b.q0.expr.clone(), row.clone());
                let inside = cmp(CmpOp::Lt, q, lit32(n as i32));
                e.if_then(inside, |e| element(b, e, stages, p, along, &row));
            });
            let (lo, hi, step) = (lit32(0), lit32(v as i32), lit32(1));
            e.push(Stmt::For { var: lane, lo, hi, step, unroll: Unroll::None, body });
        },
    );
}

fn element<'a>(b: &Block<'_, 'a>, e: &mut Emit<'a>, stages: &[SharedId], p: &Expr, along: &Expr, row: &Expr) {
    let (arrays, at) = values(b, e, stages, p, along, row, 1);
    for (d, array) in b.group.iter().zip(arrays) {
        let place = place(e, d, &at);
        let mem = Mem::Global(e.tensor_param(d.target, true));
        e.push(Stmt::Store(mem, place.expr, Expr::Elem(array, Box::new(lit32(0)))));
    }
}
