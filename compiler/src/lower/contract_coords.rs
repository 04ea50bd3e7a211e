//! Where a block's rows and columns are: from a tile's number and a place in it to the digits of the output axes,
//! and the axes' values bound for the emitter.

use super::contract_pattern::{ContractShape, Digit, OutAxis};
use super::contract_tail::Shared;
use super::map::decode;
use super::scalar::{Emit, Num, add, and, arith, cmp, int_of, int_op, lit32, mul, sub};
use crate::ir::simt::{CmpOp, Expr, IntOp, Mem, ParamId, SharedId, Special, Ty};
use crate::ir::tile::{Side, Tile};

/// `a op b` on I32 with what is known folded away.
pub fn fold_op(op: IntOp, a: Expr, b: Expr) -> Expr {
    use crate::vocab::dtype::Value::I32;
    match (op, &a, &b) {
        (IntOp::Add | IntOp::Sub, _, Expr::Lit(I32(0))) => a,
        (IntOp::Add, Expr::Lit(I32(0)), _) => b,
        (IntOp::Mul | IntOp::Div, _, Expr::Lit(I32(1))) => a,
        (IntOp::Mul, Expr::Lit(I32(1)), _) => b,
        (IntOp::Mul | IntOp::And, _, Expr::Lit(I32(0))) => lit32(0),
        (IntOp::Rem, _, Expr::Lit(I32(1))) => lit32(0),
        (IntOp::Xor | IntOp::Shr, _, Expr::Lit(I32(0))) => a,
        (IntOp::Add, Expr::Lit(I32(x)), Expr::Lit(I32(y))) => lit32(x + y),
        (IntOp::Mul, Expr::Lit(I32(x)), Expr::Lit(I32(y))) => lit32(x * y),
        (IntOp::Div, Expr::Lit(I32(x)), Expr::Lit(I32(y))) if *x >= 0 && *y > 0 => lit32(x / y),
        (IntOp::Rem, Expr::Lit(I32(x)), Expr::Lit(I32(y))) if *x >= 0 && *y > 0 => lit32(x % y),
        (IntOp::Min, Expr::Lit(I32(x)), Expr::Lit(I32(y))) => lit32(*x.min(y)),
        _ => int_op(op, a, b),
    }
}

pub fn plus(a: Expr, b: Expr) -> Expr {
    fold_op(IntOp::Add, a, b)
}

pub fn times(a: Expr, b: i64) -> Expr {
    fold_op(IntOp::Mul, a, lit32(b as i32))
}

pub fn over(a: Expr, b: i64) -> Expr {
    fold_op(IntOp::Div, a, lit32(b as i32))
}

pub fn modulo(a: Expr, b: i64) -> Expr {
    fold_op(IntOp::Rem, a, lit32(b as i32))
}

/// Conjunction of what is not known to hold.
pub fn both(a: Option<Expr>, b: Option<Expr>) -> Option<Expr> {
    match (a, b) {
        (Some(a), Some(b)) => Some(and(a, b)),
        (a, b) => a.or(b),
    }
}

/// What a block knows of its place in the grid.
#[derive(Clone)]
pub struct Place {
    /// Digits of the batch axes.
    pub batch: Vec<Num>,
    /// The batch's number.
    pub batch_number: Expr,
    /// First coordinate of the block along each dim of a side.
    pub m: Vec<Expr>,
    pub n: Vec<Expr>,
    /// The part of the fold axis, where it is split.
    pub part: Expr,
    /// Where B is chosen by the row: what each row of the block chooses, and the choice that is being made.
    pub chosen: Option<Chosen>,
    /// Where the tile may be one of a last wave whose sums are shared.
    pub tail: Option<Shared>,
}

/// The pass of a block whose rows choose B.
#[derive(Clone)]
pub struct Chosen {
    pub rows: Choices,
    /// The choice whose pass it is.
    pub now: Expr,
}

/// Where the choices of a block's rows are.
#[derive(Clone)]
pub enum Choices {
    Shared(SharedId),
    /// From this element on.
    Global(ParamId, Num),
}

impl Chosen {
    /// Whether a row of the block is of this pass.
    pub fn takes(&self, row: Expr) -> Expr {
        let own = match &self.rows {
            Choices::Shared(s) => Expr::Load(Mem::Shared(*s), Box::new(row)),
            Choices::Global(p, base) => {
                let at = arith(IntOp::Add, base.clone(), Num { expr: row, ty: Ty::I32 });
                Expr::Load(Mem::Global(*p), Box::new(at.expr))
            }
        };
        cmp(CmpOp::Eq, own, self.now.clone())
    }
}

/// Emits the decoding of the block's number.
pub fn locate(e: &mut Emit, shape: &ContractShape, tile: &Tile) -> Place {
    locate_at(e, shape, tile, over(Expr::Special(Special::BlockX), (tile.cluster * tile.join) as i64))
}

/// Emits the decoding of a tile's number.
pub fn locate_at(e: &mut Emit, shape: &ContractShape, tile: &Tile, id: Expr) -> Place {
    let (mt, nt) = tile.groups();
    let in_batch = e.named("tile", Ty::I32, modulo_all(id.clone(), mt * nt, tile.batch * tile.split));
    let rest = if tile.batch * tile.split == 1 { lit32(0) } else { over(id, mt * nt) };
    let rest = e.named("rest", Ty::I32, rest);
    let (part, batch_number) = if tile.split == 1 {
        (lit32(0), rest)
    } else {
        let part = e.named("part", Ty::I32, modulo(rest.clone(), tile.split));
        (part, e.named("batch", Ty::I32, over(rest, tile.split)))
    };
    let down = if tile.across { 1 } else { tile.cluster as i64 };
    let (mi, ni) = raster(e, in_batch, mt, nt, (tile.swizzle / down).max(1));
    let dims: Vec<i64> = shape.batch.iter().map(|d| d.extent).collect();
    let batch = decode(e, Num { expr: batch_number.clone(), ty: Ty::I32 }, &dims);
    let member = |i: Expr| match tile.cluster as i64 {
        1 => i,
        n => plus(times(i, n), modulo(Expr::Special(Special::BlockX), n)),
    };
    let (mi, ni) = if tile.across { (mi, member(ni)) } else { (member(mi), ni) };
    let m = starts(e, &tile.m, mi, "m0");
    let n = starts(e, &tile.n, ni, "n0");
    Place { batch, batch_number, m, n, part, chosen: None, tail: None }
}

/// `a % n`, or `a` itself where there is nothing above.
fn modulo_all(a: Expr, n: i64, above: i64) -> Expr {
    if above == 1 { a } else { modulo(a, n) }
}

/// Tiles are walked down groups of rows, so that the blocks that run together share operands. The last group has
/// the rows that are left, so every tile is met once.
fn raster(e: &mut Emit, id: Expr, mt: i64, nt: i64, group: i64) -> (Expr, Expr) {
    if mt == 1 {
        return (lit32(0), id);
    }
    if nt == 1 {
        return (id, lit32(0));
    }
    if group == 1 {
        let m = e.named("tile_m", Ty::I32, over(id.clone(), nt));
        return (m, e.named("tile_n", Ty::I32, modulo(id, nt)));
    }
    let group = group.min(mt);
    let width = group * nt;
    let first = e.named("group", Ty::I32, times(over(id.clone(), width), group));
    let left = sub(lit32(mt as i32), first.clone());
    let rows = match mt % group {
        0 => lit32(group as i32),
        _ => e.named("rows", Ty::I32, int_op(IntOp::Min, left, lit32(group as i32))),
    };
    let within = e.named("within", Ty::I32, modulo(id, width));
    let m = add(first, int_op(IntOp::Rem, within.clone(), rows.clone()));
    let m = e.named("tile_m", Ty::I32, m);
    (m, e.named("tile_n", Ty::I32, int_op(IntOp::Div, within, rows)))
}

fn starts(e: &mut Emit, side: &Side, tile: Expr, name: &str) -> Vec<Expr> {
    let mut rest = tile;
    let mut at = vec![lit32(0); side.dims.len()];
    for (i, dim) in side.dims.iter().enumerate().rev() {
        let number = if i == 0 { rest.clone() } else { modulo(rest.clone(), dim.tiles()) };
        at[i] = e.named(name, Ty::I32, times(number, dim.block));
        if i > 0 {
            rest = e.named("rest", Ty::I32, over(rest, dim.tiles()));
        }
    }
    at
}

/// The coordinates of a block's row (or column) along each dim, and the condition that it is a point of the output
/// (`None`: it always is).
pub fn row(e: &mut Emit, side: &Side, starts: &[Expr], local: Expr) -> (Vec<Expr>, Option<Expr>) {
    let mut rest = local;
    let mut at = vec![lit32(0); side.dims.len()];
    let mut ok = None;
    let spare = side.used() < side.block as i64;
    for (i, dim) in side.dims.iter().enumerate().rev() {
        let here = if i == 0 { rest.clone() } else { modulo(rest.clone(), dim.block) };
        if i == 0 && spare {
            ok = both(ok, Some(cmp(CmpOp::Lt, here.clone(), lit32(dim.block as i32))));
        }
        at[i] = e.named("at", Ty::I32, plus(starts[i].clone(), here));
        if dim.extent % dim.block != 0 {
            ok = both(ok, Some(cmp(CmpOp::Lt, at[i].clone(), lit32(dim.extent as i32))));
        }
        if i > 0 {
            rest = e.named("rest", Ty::I32, over(rest, dim.block));
        }
    }
    (at, ok)
}

/// Coordinates clamped to the output, for addresses that are computed whether or not the row is a point.
pub fn clamp(e: &mut Emit, side: &Side, at: Vec<Expr>) -> Vec<Expr> {
    let spare = side.used() < side.block as i64;
    let one = |(i, x): (usize, Expr)| {
        let dim = &side.dims[i];
        if dim.extent % dim.block == 0 && !(spare && i == 0) {
            return x;
        }
        e.named("at", Ty::I32, int_op(IntOp::Min, x, lit32(dim.extent as i32 - 1)))
    };
    at.into_iter().enumerate().map(one).collect()
}

/// The digits of a side, from its coordinates.
pub fn digits(e: &mut Emit, side: &Side, of: &[Digit], at: &[Expr]) -> Vec<Num> {
    let mut out = Vec::new();
    for (dim, x) in side.dims.iter().zip(at) {
        let extents: Vec<i64> = of[dim.digits.clone()].iter().map(|d| d.extent).collect();
        out.extend(decode(e, Num { expr: x.clone(), ty: Ty::I32 }, &extents));
    }
    out
}

/// One number for all coordinates of a side.
pub fn flat(side: &Side, at: &[Expr]) -> Num {
    let number =
        side.dims.iter().zip(at).fold(lit32(0), |sum, (dim, x)| plus(times(sum, dim.extent), x.clone()));
    Num { expr: number, ty: Ty::I32 }
}

/// The digits that are known where an expression is evaluated.
#[derive(Clone, Copy, Default)]
pub struct Known<'a> {
    pub batch: &'a [Num],
    pub m: &'a [Num],
    pub n: &'a [Num],
}

/// The values of the axes of which digits are known, in variables. A digit that is not known counts as 0: the
/// expressions evaluated there do not depend on it.
pub fn axis_values(e: &mut Emit, shape: &ContractShape, known: Known) -> Vec<Option<Num>> {
    let sides = [(&shape.batch, known.batch), (&shape.m, known.m), (&shape.n, known.n)];
    let value = |(p, axis): (usize, &OutAxis)| {
        let parts = sides.iter().flat_map(|(digits, values)| digits.iter().zip(*values));
        let parts = parts.filter(|(d, _)| d.out == p);
        let scaled = parts.map(|(d, v)| Num { expr: times(v.expr.clone(), d.stride), ty: v.ty });
        let sum = scaled.reduce(|a, b| Num { expr: plus(a.expr, b.expr), ty: a.ty })?;
        let value = match axis.lo {
            0 => sum,
            lo => arith(IntOp::Add, sum.clone(), int_of(sum.ty, lo)),
        };
        Some(Num { expr: e.named(&axis.name, value.ty, value.expr), ty: value.ty })
    };
    shape.axes.iter().enumerate().map(value).collect()
}

/// Binds a statement's axes to values.
pub fn bind_values(e: &mut Emit, shape: &ContractShape, stmt: usize, values: &[Option<Num>]) {
    for (&axis, value) in shape.stmts[stmt].axes.iter().zip(values) {
        if let Some(v) = value {
            e.bind_axis(axis, v.expr.clone(), v.ty);
        }
    }
}

/// Binds a statement's axes of which digits are known.
pub fn bind(e: &mut Emit, shape: &ContractShape, stmt: usize, known: Known) {
    let values = axis_values(e, shape, known);
    bind_values(e, shape, stmt, &values);
}

/// `n` in a type wide enough for an offset, times a stride.
pub fn scaled(n: Num, stride: i64, wide: bool) -> Expr {
    match wide {
        false => times(n.expr, stride),
        true => mul(super::scalar::widen(n).expr, super::scalar::lit64(stride)),
    }
}
