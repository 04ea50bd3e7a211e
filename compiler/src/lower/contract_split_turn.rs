//! The parts of f32 operands whose terms are not neighbours: a block brings a tile through shared memory, so that both
//! the operand and its parts move in whole lines.
//!
//! Let q be the terms and p what is contiguous in the operand. A tile is `tq` rows of `tp` neighbours along p, each as
//! much longer than that as lets the threads of a warp read down its columns from different banks.

use super::contract_epilogue::when;
use super::contract_pack::Pack;
use super::contract_split::{RUN, Target};
use super::contract_turn::Dim;
use super::fold_loop::unrolled;
use super::home::Home;
use super::map::{count, decode};
use super::scalar::{Emit, Num, add, and, arith, cmp, int_of, lit32, mul, widen};
use super::{Lowering, MAX_GRID_X, Refusal, contract_split, contract_turn};
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Mem, SharedId, Special, Stmt, Ty};
use crate::vocab::dtype::{DType, Value};
use girih_dsl::ast::Span;

const THREADS: i64 = 256;
/// Elements of a tile, the most along each side, and extents below which tiles are mostly edge.
const ELEMENTS: i64 = 4096;
const MOST_TERMS: i64 = 32;
const MOST_LANES: i64 = 256;
const LEAST_TERMS: i64 = 8;
const LEAST_LANES: i64 = 32;

struct Tile {
    tp: i64,
    tq: i64,
    /// Places p and q, and q with its padding.
    extents: [i64; 2],
    padded: i64,
}

impl Tile {
    fn new(extents: [i64; 2], padded: i64) -> Tile {
        let tq = (padded as u64).next_power_of_two().min(MOST_TERMS as u64) as i64;
        Tile { tp: (ELEMENTS / tq).min(MOST_LANES), tq, extents, padded }
    }

    /// Elements from one row to the next.
    fn pitch(&self) -> i64 {
        self.tp + 32 / self.tq
    }

    fn blocks(&self) -> [i64; 2] {
        [(self.extents[0] + self.tp - 1) / self.tp, (self.padded + self.tq - 1) / self.tq]
    }
}

/// Launches the kernel that makes the parts, if the operand has to be turned and tiles pay.
pub fn parts(
    cx: &mut Lowering<'_>,
    name: &str,
    p: &Pack,
    to: &Target,
    span: Span,
) -> Option<Result<(), Refusal>> {
    let from = cx.home(p.tensor).clone();
    let t = cx.graph.tensor(p.tensor);
    if from.strides[p.inner] == 1 || from.ring.is_some() || from.dtype != DType::F32 {
        return None;
    }
    let mut dims = contract_turn::dims(&t.dims, p, &from, to.home)?;
    let (terms, along, _) = dims.pop()?;
    let lanes = dims.iter().position(|d| d.1 == 1)?;
    let lanes = dims.remove(lanes);
    if terms < LEAST_TERMS || lanes.0 < LEAST_LANES {
        return None;
    }
    let tile = Tile::new([lanes.0, terms], p.padded());
    let mut grid: Vec<i64> = dims.iter().map(|d| d.0).collect();
    grid.extend(tile.blocks());
    let total = count(&grid, span, name).ok().filter(|&n| n <= MAX_GRID_X)?;
    let sides = [lanes, (terms, along, 1)];
    let mut e = cx.emit(name);
    e.kernel.block = [THREADS as u32, 1, 1];
    e.kernel.grid = [total as u32, 1, 1];
    e.line(span);
    to.know(&mut e);
    Turn { tile, dims, sides, from: &from, to }.emit(&mut e, &grid, &t.name);
    cx.launch(e);
    Some(Ok(()))
}

struct Turn<'x> {
    tile: Tile,
    /// Those that no tile runs along, then p and q.
    dims: Vec<Dim>,
    sides: [Dim; 2],
    from: &'x Home,
    to: &'x Target<'x>,
}

impl Turn<'_> {
    fn emit(&self, e: &mut Emit, grid: &[i64], name: &str) {
        let tile = &self.tile;
        let number = Num { expr: e.named("block", Ty::I32, Expr::Special(Special::BlockX)), ty: Ty::I32 };
        let mut at = decode(e, number, grid);
        let mut corner = |e: &mut Emit, side: i64| {
            let n = at.pop().unwrap_or(int_of(Ty::I32, 0));
            let n = arith(IntOp::Mul, n, int_of(Ty::I32, side));
            e.named("corner", n.ty, n.expr)
        };
        let q0 = corner(e, tile.tq);
        let p0 = corner(e, tile.tp);
        let stage = e.kernel.shared(format!("{name}_tile"), DType::F32, (tile.tq * tile.pitch()) as u32, 16);
        self.bring(e, stage, &at, [&p0, &q0]);
        e.push(Stmt::Barrier);
        self.store(e, stage, &at, [&p0, &q0]);
    }

    /// The place of a point in the operand or in a part.
    fn place(&self, len: i64, at: &[Num], own: [Expr; 2], stride: fn(&Dim) -> i64) -> Num {
        let ty = super::home::index_ty(len);
        let wide = |n: Num| if ty == Ty::I64 { widen(n) } else { n };
        let own = own.map(|expr| Num { expr, ty: Ty::I32 });
        let all = self.dims.iter().zip(at).chain(self.sides.iter().zip(&own));
        all.fold(int_of(ty, 0), |sum, (d, n)| {
            arith(IntOp::Add, sum, arith(IntOp::Mul, wide(n.clone()), int_of(ty, stride(d))))
        })
    }

    /// All loads of a thread, then its stores to the tile.
    fn bring(&self, e: &mut Emit, stage: SharedId, at: &[Num], [p0, q0]: [&Expr; 2]) {
        let tile = &self.tile;
        let rows = THREADS / tile.tp;
        let each = tile.tq / rows;
        let op =
            |op, n: i64| Expr::Int(op, Box::new(Expr::Special(Special::ThreadX)), Box::new(lit32(n as i32)));
        let lane = e.named("lane", Ty::I32, op(IntOp::Rem, tile.tp));
        let row = e.named("row", Ty::I32, op(IntOp::Div, tile.tp));
        let held = e.kernel.array("held", Ty::F32, each as u32);
        let p = e.named("p", Ty::I32, add(p0.clone(), lane.clone()));
        let mem = Mem::Global(e.pointer(self.from.buffer, false));
        let [np, nq] = tile.extents;
        unrolled(e, "i", each as u32, |e, i| {
            let own = add(row.clone(), mul(i.clone(), lit32(rows as i32)));
            let q = e.named("q", Ty::I32, add(q0.clone(), own));
            e.push(Stmt::SetElem(held, i.clone(), Expr::Lit(Value::F32(0.0))));
            let inside = inside([(&p, np, tile.tp), (&q, nq, tile.tq)]);
            let from = self.place(self.from.len, at, [p.clone(), q.clone()], |d| d.1);
            let load = Stmt::SetElem(held, i.clone(), Expr::Load(mem, Box::new(from.expr)));
            when(e, inside, |e| e.push(load));
        });
        unrolled(e, "i", each as u32, |e, i| {
            let own = add(row.clone(), mul(i.clone(), lit32(rows as i32)));
            let place = add(mul(own, lit32(tile.pitch() as i32)), lane.clone());
            let x = Expr::Elem(held, Box::new(i.clone()));
            e.push(Stmt::Store(Mem::Shared(stage), place, x));
        });
    }

    fn store(&self, e: &mut Emit, stage: SharedId, at: &[Num], [p0, q0]: [&Expr; 2]) {
        let tile = &self.tile;
        let groups = tile.tq / RUN;
        let each = tile.tp * groups / THREADS;
        let run = e.kernel.array("run", Ty::F32, RUN as u32);
        let body = |e: &mut Emit, i: Expr| {
            let n = add(Expr::Special(Special::ThreadX), mul(i.clone(), lit32(THREADS as i32)));
            let n = e.named("n", Ty::I32, n);
            let op = |op, e: Expr| Expr::Int(op, Box::new(e), Box::new(lit32(groups as i32)));
            let first = e.named("first", Ty::I32, mul(op(IntOp::Rem, n.clone()), lit32(RUN as i32)));
            let lane = e.named("lane", Ty::I32, op(IntOp::Div, n));
            let p = e.named("p", Ty::I32, add(p0.clone(), lane.clone()));
            let q = e.named("q", Ty::I32, add(q0.clone(), first.clone()));
            let inside = inside([(&p, tile.extents[0], tile.tp), (&q, tile.padded, tile.tq)]);
            when(e, inside, |e| {
                self.column(e, stage, run, [first, lane]);
                let place = self.place(self.to.home.len, at, [p, q], |d| d.2);
                contract_split::store(e, self.to, run, place);
            });
        };
        unrolled(e, "i", each as u32, body);
    }

    /// `run`: neighbours along q.
    fn column(&self, e: &mut Emit, stage: SharedId, run: ArrayId, [first, lane]: [Expr; 2]) {
        for j in 0..RUN {
            let row = add(first.clone(), lit32(j as i32));
            let place = add(mul(row, lit32(self.tile.pitch() as i32)), lane.clone());
            let x = Expr::Load(Mem::Shared(stage), Box::new(place));
            e.push(Stmt::SetElem(run, lit32(j as i32), x));
        }
    }
}

/// Whether places lie before the ends of their sides, of which tiles of these lengths are a part.
fn inside(places: [(&Expr, i64, i64); 2]) -> Option<Expr> {
    let cut = places.into_iter().filter(|(_, n, side)| n % side != 0);
    cut.map(|(x, n, _)| cmp(CmpOp::Lt, x.clone(), lit32(n as i32))).reduce(and)
}
