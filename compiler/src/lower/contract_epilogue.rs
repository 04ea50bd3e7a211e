//! The epilogue: from accumulators to the statements' values, stored straight from registers, or through a workspace
//! where blocks share a sum.

use super::contract_coords::{
    Known, Place as Where, axis_values, bind, bind_values, both, digits, flat, plus, row,
};
use super::contract_loads::{guarded, zero};
use super::contract_mma::Accumulators;
use super::contract_operand::{Ground, gcd};
use super::contract_pattern::{ContractShape, Contraction, Digit};
use super::map::own_index;
use super::scalar::{Emit, Num, add, arith, cmp, int_of, lit32, not, widen};
use crate::ir::graph::{Define, Graph, Stmt as GraphStmt};
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Mem, ParamId, Stmt, Ty, Unroll, VarId};
use crate::ir::tile::Tile;
use crate::vocab::dtype::{self, Value};
use crate::vocab::func::Func;

/// What the epilogue of a shape needs.
pub struct Epilogue<'x> {
    pub shape: &'x ContractShape,
    pub tile: &'x Tile,
}

/// Where an element's digits come from.
pub(super) struct Point<'p> {
    pub m: &'p [Num],
    pub n: &'p [Num],
    pub batch: &'p [Num],
}

pub(super) fn define<'g>(graph: &'g Graph, shape: &ContractShape, s: usize) -> Option<&'g Define> {
    match &graph.stmts[shape.stmts[s].stmt] {
        GraphStmt::Define(d) => Some(d),
        _ => None,
    }
}

impl<'x> Epilogue<'x> {
    /// Stores the statements' values of a block.
    pub fn store(&self, e: &mut Emit, ground: &Ground, place: &Where, accs: &[ArrayId]) {
        let acc = Accumulators::of(self.tile);
        let stash = self.together(e, ground, acc.width);
        self.rows(e, place, &acc, &mut |e, r, at| {
            let m = digits(e, &self.tile.m, &self.shape.m, at);
            self.groups(e, &acc, &mut |e, g| {
                let column = e.named("column", Ty::I32, acc.column(g.clone()));
                let sum = |w: u32| {
                    let at = acc.index(r.clone(), g.clone(), w);
                    accs.iter().map(|&a| Expr::Elem(a, Box::new(at.clone()))).collect::<Vec<_>>()
                };
                self.neighbours(e, place, &m, column, (acc.width, stash.as_deref()), &sum);
            });
        });
    }

    /// The arrays from which `width` neighbouring columns are stored together, where they lie so.
    pub(super) fn together(&self, e: &mut Emit, ground: &Ground, width: u32) -> Option<Vec<ArrayId>> {
        (width > 1 && self.vector(ground, width as i64)).then(|| self.stash(e, width))
    }

    /// Stores neighbouring columns of a row from the block's `column` on.
    pub(super) fn neighbours(
        &self,
        e: &mut Emit,
        place: &Where,
        m: &[Num],
        column: Expr,
        (width, together): (u32, Option<&[ArrayId]>),
        sum: &dyn Fn(u32) -> Vec<Expr>,
    ) {
        if let Some(stash) = together {
            let (at, ok) = row(e, &self.tile.n, &place.n, column);
            return when(e, ok, |e| self.vector_group(e, place, m, &at, stash, width, sum));
        }
        for w in 0..width {
            e.scope(|e| {
                let (at, ok) = row(e, &self.tile.n, &place.n, plus(column.clone(), lit32(w as i32)));
                when(e, ok, |e| {
                    let n = digits(e, &self.tile.n, &self.shape.n, &at);
                    self.element(e, &Point { m, n: &n, batch: &place.batch }, sum(w), None);
                });
            });
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn vector_group(
        &self,
        e: &mut Emit,
        place: &Where,
        m: &[Num],
        at: &[Expr],
        stash: &[ArrayId],
        width: u32,
        sum: &dyn Fn(u32) -> Vec<Expr>,
    ) {
        let graph = e.graph;
        for w in 0..width {
            e.scope(|e| {
                let mut at = at.to_vec();
                if let Some(last) = at.last_mut() {
                    *last = plus(last.clone(), lit32(w as i32));
                }
                let n = digits(e, &self.tile.n, &self.shape.n, &at);
                self.element(e, &Point { m, n: &n, batch: &place.batch }, sum(w), Some((stash, w)));
            });
        }
        for (s, &array) in stash.iter().enumerate() {
            let Some(d) = define(graph, self.shape, s) else { continue };
            e.scope(|e| {
                let n = digits(e, &self.tile.n, &self.shape.n, at);
                bind(e, self.shape, s, Known { batch: &place.batch, m, n: &n });
                let index = own_index(e, d.target, &d.axes);
                let index = e.offset(d.target, &index);
                let mem = Mem::Global(e.tensor_param(d.target, true));
                e.push(Stmt::StoreVec { mem, index, array, at: 0, count: width });
            });
        }
    }

    /// One array of values for each statement.
    fn stash(&self, e: &mut Emit, width: u32) -> Vec<ArrayId> {
        let ty = |s| define(e.graph, self.shape, s).map_or(Ty::F32, |d| Ty::of(e.graph.ty(d.value)));
        let types: Vec<Ty> = (0..self.shape.stmts.len()).map(ty).collect();
        types.into_iter().map(|ty| e.kernel.array("out", ty, width)).collect()
    }

    /// Whether every statement's groups of `width` columns lie together, aligned, all inside or all outside.
    fn vector(&self, ground: &Ground, width: i64) -> bool {
        let graph = ground.graph;
        let (Some(dim), Some(digit)) = (self.tile.n.dims.last(), self.shape.n.last()) else { return false };
        let whole = digit.stride == 1 && digit.extent % width == 0 && dim.block % width == 0;
        let one = |s: usize| {
            let Some(d) = define(graph, self.shape, s) else { return false };
            let home = (ground.home)(d.target);
            let dtype = graph.tensor(d.target).dtype;
            let bytes = dtype.bits() as i64 * width / 8;
            let strides = ground.strides(d.target);
            let lows = self.others_are_multiples(&strides, digit.out, width);
            // The compute type's array is stored in its own width or narrowed by the store.
            matches!(bytes, 4 | 8 | 16)
                && strides.get(digit.out) == Some(&1)
                && lows
                && home.align as i64 % bytes == 0
        };
        whole && (0..self.shape.stmts.len()).all(one)
    }

    /// Digits other than the innermost move the place by multiples of `width`.
    fn others_are_multiples(&self, strides: &[i64], inner: usize, width: i64) -> bool {
        let digits = self.shape.batch.iter().chain(&self.shape.m).chain(&self.shape.n);
        digits
            .filter(|d| !(d.out == inner && d.stride == 1))
            .all(|d| gcd(strides[d.out] * d.stride, width) == width || d.extent <= 1)
    }

    /// Runs `f` for each of a thread's rows that is a point of the output, with its coordinates.
    fn rows(
        &self,
        e: &mut Emit,
        place: &Where,
        acc: &Accumulators,
        f: &mut dyn FnMut(&mut Emit, Expr, &[Expr]),
    ) {
        unrolled(e, "row", acc.rows, |e, r| {
            let local = e.named("at_row", Ty::I32, acc.row(r.clone()));
            let (at, mut ok) = row(e, &self.tile.m, &place.m, local.clone());
            if let Some(chosen) = &place.chosen {
                ok = both(ok, Some(chosen.takes(local)));
            }
            when(e, ok, |e| f(e, r, &at));
        });
    }

    fn groups(&self, e: &mut Emit, acc: &Accumulators, f: &mut dyn FnMut(&mut Emit, Expr)) {
        unrolled(e, "group", acc.groups, |e, g| f(e, g));
    }

    /// The statements' values at a point, stored, or set aside in `stash`.
    pub(super) fn element(&self, e: &mut Emit, p: &Point, sums: Vec<Expr>, stash: Option<(&[ArrayId], u32)>) {
        let graph = e.graph;
        let known = Known { batch: p.batch, m: p.m, n: p.n };
        let several = self.shape.stmts.len() > 1;
        let axes = axis_values(e, self.shape, known);
        let mut values = Vec::new();
        for s in 0..self.shape.stmts.len() {
            let Some(d) = define(graph, self.shape, s) else { continue };
            e.line(d.span);
            bind_values(e, self.shape, s, &axes);
            for (c, sum) in self.shape.folds.iter().zip(&sums).filter(|(c, _)| c.stmt == s) {
                let sum = finished(e, c, sum.clone());
                e.bind(c.fold, sum);
            }
            let n = Num { expr: e.value(d.value), ty: Ty::of(graph.ty(d.value)) };
            let n = if several { e.rounded(graph.tensor(d.target).dtype, n) } else { n };
            let n = Num { expr: e.named("y", n.ty, n.expr), ty: n.ty };
            if several {
                e.forward(d.target, &d.axes, n.clone());
            }
            values.push((s, d, n));
        }
        for (s, d, n) in values {
            match stash {
                Some((arrays, w)) => e.push(Stmt::SetElem(arrays[s], lit32(w as i32), n.expr)),
                None => {
                    let index = own_index(e, d.target, &d.axes);
                    e.store(d.target, &index, n.expr);
                }
            }
            if several {
                e.unforward(d.target);
            }
        }
    }

    /// Stores a block's accumulators as partial sums.
    pub fn store_partial(&self, e: &mut Emit, place: &Where, accs: &[ArrayId], work: &[ParamId]) {
        let acc = Accumulators::of(self.tile);
        let (m, n) = (self.tile.m.points(), self.tile.n.points());
        let wide = self.partials() > i32::MAX as i64;
        // Two neighbours lie together, both inside or both outside.
        let last = self.tile.n.dims.last();
        let even =
            last.is_some_and(|d| d.extent % 2 == 0 && d.block % 2 == 0) && n % 2 == 0 && acc.width == 2;
        let four = |c: &&Contraction| matches!(Ty::of(c.ty), Ty::F32 | Ty::I32);
        let types: Vec<Ty> = self.shape.folds.iter().filter(four).map(|c| Ty::of(c.ty)).collect();
        let even = even && types.len() == accs.len() && !self.rows_fastest();
        let pairs: Vec<ArrayId> =
            if even { types.iter().map(|&ty| e.kernel.array("pair", ty, 2)).collect() } else { Vec::new() };
        self.rows(e, place, &acc, &mut |e, r, at| {
            let at_m = flat(&self.tile.m, at);
            let line = self.partial_start(place, wide, m * n);
            let line =
                if self.rows_fastest() { line } else { arith(IntOp::Add, line, times_n(at_m.clone(), n)) };
            let line = Num { expr: e.named("line", line.ty, line.expr), ty: line.ty };
            self.groups(e, &acc, &mut |e, g| {
                let column = e.named("column", Ty::I32, acc.column(g.clone()));
                if !pairs.is_empty() {
                    let (at, ok) = row(e, &self.tile.n, &place.n, column);
                    return when(e, ok, |e| {
                        let to = arith(IntOp::Add, line.clone(), flat(&self.tile.n, &at));
                        for ((&a, &p), &pair) in accs.iter().zip(work).zip(&pairs) {
                            for w in 0..2 {
                                let v = Expr::Elem(a, Box::new(acc.index(r.clone(), g.clone(), w)));
                                e.push(Stmt::SetElem(pair, lit32(w as i32), v));
                            }
                            let (mem, index) = (Mem::Global(p), to.expr.clone());
                            e.push(Stmt::StoreVec { mem, index, array: pair, at: 0, count: 2 });
                        }
                    });
                }
                for w in 0..acc.width {
                    e.scope(|e| {
                        let (at, ok) = row(e, &self.tile.n, &place.n, plus(column.clone(), lit32(w as i32)));
                        when(e, ok, |e| {
                            let at_n = flat(&self.tile.n, &at);
                            let within = match self.rows_fastest() {
                                true => arith(IntOp::Add, times_n(at_n, m), at_m.clone()),
                                false => at_n,
                            };
                            let to = arith(IntOp::Add, line.clone(), within);
                            for (&a, &p) in accs.iter().zip(work) {
                                let v = Expr::Elem(a, Box::new(acc.index(r.clone(), g.clone(), w)));
                                e.push(Stmt::Store(Mem::Global(p), to.expr.clone(), v));
                            }
                        });
                    });
                }
            });
        });
    }

    /// Partial sums in all.
    pub fn partials(&self) -> i64 {
        self.tile.split * self.tile.batch * self.tile.m.points() * self.tile.n.points()
    }

    /// Whether the result's neighbours are neighbours along M; partial sums lie like the result.
    pub(super) fn rows_fastest(&self) -> bool {
        let last = |digits: &[Digit]| digits.iter().filter(|d| d.extent > 1).map(|d| d.out).max();
        last(&self.shape.m) > last(&self.shape.n)
    }

    /// Where the partial sum of a row and a column of the output stands.
    pub(super) fn partial(&self, place: &Where, m: Expr, n: Expr) -> Expr {
        let (rows, columns) = (self.tile.m.points(), self.tile.n.points());
        let line = self.partial_start(place, self.partials() > i32::MAX as i64, rows * columns);
        let number = |expr| Num { expr, ty: Ty::I32 };
        let (outer, inner) = match self.rows_fastest() {
            true => (times_n(number(n), rows), number(m)),
            false => (times_n(number(m), columns), number(n)),
        };
        arith(IntOp::Add, arith(IntOp::Add, line, outer), inner).expr
    }

    /// The first partial sum of a block's part and batch, of `points` each.
    fn partial_start(&self, place: &Where, wide: bool, points: i64) -> Num {
        let n = |x: &Expr| Num { expr: x.clone(), ty: Ty::I32 };
        let ty = if wide { Ty::I64 } else { Ty::I32 };
        let part = if wide { widen(n(&place.part)) } else { n(&place.part) };
        let line = arith(IntOp::Mul, part, int_of(ty, self.tile.batch));
        let line = arith(IntOp::Add, line, n(&place.batch_number));
        arith(IntOp::Mul, line, int_of(ty, points))
    }

    /// A thread a point: adds the parts in order, then the epilogue.
    pub fn reduce(&self, e: &mut Emit, number: Num, work: &[ParamId]) {
        let (b, m, n) = (self.tile.batch, self.tile.m.points(), self.tile.n.points());
        let wide = self.partials() > i32::MAX as i64;
        let turned = self.rows_fastest();
        let mut at = super::map::decode(e, number.clone(), &if turned { [b, n, m] } else { [b, m, n] });
        if turned {
            at.swap(1, 2);
        }
        let narrow = |n: &Num| match n.ty {
            Ty::I64 => Num { expr: super::scalar::cast(Ty::I32, n.expr.clone()), ty: Ty::I32 },
            _ => n.clone(),
        };
        let at: Vec<Num> = at.iter().map(narrow).collect();
        let part = e.kernel.var("part", Ty::I32);
        let ty = if wide { Ty::I64 } else { Ty::I32 };
        let from = {
            let p = Num { expr: Expr::Var(part), ty: Ty::I32 };
            let p = if wide { widen(p) } else { p };
            let step = arith(IntOp::Mul, p, int_of(ty, b * m * n));
            arith(IntOp::Add, step, number.clone()).expr
        };
        let sums: Vec<VarId> =
            self.shape.folds.iter().map(|c| e.let_var("sum", Ty::of(c.ty), zero(c.ty))).collect();
        let term = |(i, c): (usize, &Contraction)| {
            let v = Expr::Load(Mem::Global(work[i]), Box::new(from.clone()));
            let old = Expr::Var(sums[i]);
            let sum = match c.ty.is_float() {
                true => Expr::Call(Func::Add, vec![old, v]),
                false => add(old, v),
            };
            Stmt::Set(sums[i], sum)
        };
        let body = self.shape.folds.iter().enumerate().map(term).collect();
        let hi = lit32(self.tile.split as i32);
        let unroll = Unroll::Auto;
        e.push(Stmt::For { var: part, lo: lit32(0), hi, step: lit32(1), unroll, body });
        let digits_of = |e: &mut Emit, digits: &[Digit], n: &Num| {
            let extents: Vec<i64> = digits.iter().map(|d| d.extent).collect();
            super::map::decode(e, n.clone(), &extents)
        };
        let batch = digits_of(e, &self.shape.batch, &at[0]);
        let m = digits_of(e, &self.shape.m, &at[1]);
        let n = digits_of(e, &self.shape.n, &at[2]);
        let sums = sums.into_iter().map(Expr::Var).collect();
        self.element(e, &Point { m: &m, n: &n, batch: &batch }, sums, None);
    }
}

fn times_n(line: Num, n: i64) -> Num {
    let by = int_of(line.ty, n);
    arith(IntOp::Mul, line, by)
}

/// A sum under its guards and with what was hoisted out of it.
fn finished(e: &mut Emit, c: &Contraction, sum: Expr) -> Expr {
    let ty = Ty::of(c.ty);
    let mut sum = e.named("sum", ty, sum);
    if !c.result_guards.is_empty() {
        let out = e.kernel.var("sum", ty);
        e.push(Stmt::Let(out, zero(c.ty)));
        guarded(e, &c.result_guards, &mut |e| e.push(Stmt::Set(out, sum.clone())));
        sum = Expr::Var(out);
    }
    for h in &c.hoisted {
        let by = e.value(h.expr);
        let func = if h.divide { Func::Div } else { Func::Mul };
        sum = Expr::Call(func, vec![sum, by]);
    }
    let sum = e.named("sum", ty, sum);
    if c.masked { exactly(e, c, sum) } else { sum }
}

/// A sum, as its definition says where it is not finite.
fn exactly(e: &mut Emit, c: &Contraction, sum: Expr) -> Expr {
    let most = match c.ty {
        dtype::Ty::F64 => Value::F64(f64::MAX),
        _ => Value::F32(f32::MAX),
    };
    let ty = Ty::of(c.ty);
    let out = e.let_var("exact", ty, sum.clone());
    let finite = cmp(CmpOp::Le, Expr::Call(Func::Abs, vec![sum]), Expr::Lit(most));
    e.if_then(not(finite), |e| {
        let value = e.value(c.fold);
        e.push(Stmt::Set(out, value));
    });
    Expr::Var(out)
}

/// `f` where the condition holds, in a scope of its own.
pub(super) fn when(e: &mut Emit, ok: Option<Expr>, f: impl FnOnce(&mut Emit)) {
    match ok {
        Some(cond) => e.if_then(cond, f),
        None => e.scope(f),
    }
}

/// A loop that is unrolled.
pub(super) fn unrolled(e: &mut Emit, name: &str, count: u32, mut f: impl FnMut(&mut Emit, Expr)) {
    if count == 1 {
        return e.scope(|e| f(e, lit32(0)));
    }
    let var = e.kernel.var(name, Ty::I32);
    let body = e.block(|e| f(e, Expr::Var(var)));
    let hi = lit32(count as i32);
    e.push(Stmt::For { var, lo: lit32(0), hi, step: lit32(1), unroll: Unroll::Full, body });
}
