//! Tiles of the operands, from global to shared memory: `cp.async` or vector loads where a factor can be copied as it
//! lies, element by element (the fused prologue) where it is computed.
//!
//! What lies outside the operand, beyond the fold's last term or under a guard is zero in shared memory, in both
//! operands, and is not read.

use super::contract_bounds::{self, Range};
use super::contract_coords::{
    Known, Place as Where, bind, both, clamp, digits, modulo, over, plus, row, scaled, times,
};
use super::contract_operand::{Ground, PlainRead, Source};
use super::contract_pattern::{ContractShape, Contraction, Digit, Factor, Guard, KAxis};
use super::map::decode;
use super::read::Index;
use super::scalar::{Emit, Num, add, and, arith, cmp, int_of, int_op, lit32, not, sub};
use crate::ir::graph::AxisId;
use crate::ir::simt::{
    ArrayId, CmpOp, Expr, IntOp, Intrinsic, Mem, SharedId, Special, Stmt, Ty, Unroll, VarId,
};
use crate::ir::tile::{FoldTile, Load, Operand, Place, Side};
use crate::vocab::dtype::{self, Value};
use crate::vocab::func::Func;

/// One operand's loader.
pub struct Loader<'x> {
    pub shape: &'x ContractShape,
    pub c: &'x Contraction,
    pub factor: &'x Factor,
    pub k: &'x [KAxis],
    pub source: &'x Source,
    pub fold: &'x FoldTile,
    pub op: &'x Operand,
    pub side: &'x Side,
    pub rows: &'x [Digit],
    /// Whether this is A: rows run along M.
    pub is_a: bool,
    pub shared: SharedId,
    pub threads: u32,
    state: State,
}

/// What is computed once, before the main loop.
#[derive(Default)]
struct State {
    unit: u32,
    /// Row (M or N) and term that a thread's first unit has, within the tile.
    mn0: Option<Expr>,
    k0: Option<Expr>,
    /// Offset of each unit's row (one for all if `linear` or if a thread has one row).
    linear: Option<i64>,
    base: Option<Expr>,
    offsets: Option<ArrayId>,
    checks: Vec<ArrayId>,
    inside: Option<ArrayId>,
    /// Terms that count, of axes of which not all do.
    ranges: Vec<Range>,
    stage: Option<ArrayId>,
}

/// How a tile's units are dealt to threads.
#[derive(Clone, Copy, PartialEq)]
enum Deal {
    /// Neighbouring threads along K, `n` units a row.
    AlongK(u32),
    /// Eight threads along K, then along M or N: free of bank conflicts when rows of the tile run along M or N.
    Mixed,
    /// Neighbouring threads along M or N, `n` units a row.
    AlongRows(u32),
}

impl<'x> Loader<'x> {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        shape: &'x ContractShape,
        c: &'x Contraction,
        k: &'x [KAxis],
        source: &'x Source,
        fold: &'x FoldTile,
        side: &'x Side,
        is_a: bool,
        shared: SharedId,
        threads: u32,
    ) -> Loader<'x> {
        let (factor, op, rows) = if is_a { (&c.a, &fold.a, &shape.m) } else { (&c.b, &fold.b, &shape.n) };
        let state = State::default();
        let mut l =
            Loader { shape, c, factor, k, source, fold, op, side, rows, is_a, shared, threads, state };
        l.state.unit = l.unit_elements();
        l
    }

    fn size(&self) -> u32 {
        self.op.dtype.bits() / 8
    }

    fn chunked(&self) -> bool {
        matches!(self.op.place, Place::Chunks(_))
    }

    fn unit_elements(&self) -> u32 {
        match self.op.load {
            Load::Async(b) | Load::Vector(b) => b / self.size(),
            Load::Elements { .. } if self.chunked() => (4 / self.size()).max(1),
            // Boxes are not this loader's.
            Load::Elements { .. } | Load::Boxes | Load::Pixels => 1,
        }
    }

    /// Whether a unit's elements are neighbours along K.
    fn unit_along_k(&self) -> bool {
        self.op.k_major
    }

    fn deal(&self) -> Deal {
        let unit = self.state.unit;
        let k_units = if self.unit_along_k() { self.fold.slot / unit } else { self.fold.slot };
        let lanes_along_k = match self.op.load {
            Load::Elements { lanes_along_k } => lanes_along_k,
            Load::Boxes | Load::Pixels => true,
            Load::Async(b) | Load::Vector(b) => {
                // Copies along rows are whole runs; single elements follow memory.
                self.op.k_major || !self.chunked() && b == self.size() && !self.row_is_contiguous()
            }
        };
        if lanes_along_k && (self.chunked() && self.op.k_major || !self.chunked()) {
            if !self.chunked() && self.fold.slot % 8 == 0 { Deal::Mixed } else { Deal::AlongK(k_units) }
        } else {
            let rows = if self.unit_along_k() { self.side.block } else { self.side.block / unit };
            Deal::AlongRows(rows)
        }
    }

    /// The terms of the only fold axis that count, where not all do.
    pub fn range(&self) -> Option<&Range> {
        self.state.ranges.first().filter(|_| self.k.len() == 1)
    }

    /// Whether tiles pass through registers.
    pub fn stages_registers(&self) -> bool {
        self.state.stage.is_some()
    }

    fn row_is_contiguous(&self) -> bool {
        match self.source {
            Source::Plain(p) => p.k.iter().all(|(_, s)| *s != 1),
            Source::Computed => false,
        }
    }

    fn units(&self) -> u32 {
        self.side.block * self.fold.slot / self.state.unit
    }

    fn per_thread(&self) -> u32 {
        self.units().div_ceil(self.threads)
    }

    /// Row and first term of a unit, by its number.
    fn position(&self, u: Expr) -> (Expr, Expr) {
        let unit = self.state.unit as i64;
        let (ku, ru) = if self.unit_along_k() { (unit, 1) } else { (1, unit) };
        match self.deal() {
            Deal::AlongK(n) => (times(over(u.clone(), n as i64), ru), times(modulo(u, n as i64), ku)),
            Deal::AlongRows(n) => (times(modulo(u.clone(), n as i64), ru), times(over(u, n as i64), ku)),
            Deal::Mixed => {
                let block = self.side.block as i64;
                let k = plus(modulo(u.clone(), 8), times(over(u.clone(), 8 * block), 8));
                (modulo(over(u, 8), block), k)
            }
        }
    }

    /// Row and term of a thread's `i`-th unit: those of its first and constants, where units divide evenly.
    fn nth(&self, i: Expr) -> (Expr, Expr) {
        let (Some(mn0), Some(k0)) = (self.state.mn0.clone(), self.state.k0.clone()) else {
            return (lit32(0), lit32(0));
        };
        let (t, unit) = (self.threads, self.state.unit as i64);
        let (ku, ru) = if self.unit_along_k() { (unit, 1) } else { (1, unit) };
        match self.deal() {
            Deal::AlongK(n) if t % n == 0 => (plus(mn0, times(i, (t / n) as i64 * ru)), k0),
            Deal::AlongRows(n) if t % n == 0 => (mn0, plus(k0, times(i, (t / n) as i64 * ku))),
            Deal::Mixed if t % 8 == 0 && self.side.block % (t / 8) == 0 => {
                let (per, rows) = ((self.side.block / (t / 8)) as i64, (t / 8) as i64);
                (plus(mn0, times(modulo(i.clone(), per), rows)), plus(k0, times(over(i, per), 8)))
            }
            _ => self.position(plus(Expr::Special(Special::ThreadX), times(i, t as i64))),
        }
    }

    /// Whether all of a thread's units have one row.
    fn one_row(&self) -> bool {
        matches!(self.deal(), Deal::AlongRows(n) if self.threads % n == 0)
    }

    fn known<'k>(&self, place: &'k Where, values: &'k [Num]) -> Known<'k> {
        match self.is_a {
            true => Known { batch: &place.batch, m: values, n: &[] },
            false => Known { batch: &place.batch, m: &[], n: values },
        }
    }

    fn starts<'k>(&self, place: &'k Where) -> &'k [Expr] {
        if self.is_a { &place.m } else { &place.n }
    }

    /// Emits what does not change along the fold.
    pub fn prepare(&mut self, e: &mut Emit, ground: &Ground, place: &Where) {
        let (mn0, k0) = self.position(Expr::Special(Special::ThreadX));
        let name = if self.is_a { "a" } else { "b" };
        self.state.mn0 = Some(e.named(&format!("{name}_row"), Ty::I32, mn0));
        self.state.k0 = Some(e.named(&format!("{name}_k"), Ty::I32, k0));
        match self.source {
            Source::Plain(p) if !matches!(self.op.load, Load::Elements { .. }) => {
                let bounds = contract_bounds::bounds(ground, self.c, self.factor).unwrap_or_default();
                self.state.ranges = contract_bounds::ranges(e, self.shape, self.c, place, &bounds);
                self.prepare_plain(e, ground, place, p)
            }
            _ => {
                let unit = if self.op.dtype.bits() == 16 { 1 } else { self.state.unit };
                let ty = if self.op.dtype.bits() == 16 { Ty::U32 } else { Ty::of(self.op.dtype.compute()) };
                self.state.stage =
                    Some(e.kernel.array(format!("{name}_stage"), ty, self.per_thread() * unit));
            }
        }
        if let Load::Vector(bytes) = self.op.load {
            let words = self.per_thread() * bytes / 4;
            self.state.stage = Some(e.kernel.array(format!("{name}_stage"), Ty::U32, words));
        }
    }

    /// Whether places need 64 bits, those of rows and terms beyond the ends too, which are found and not read.
    fn wide(&self, e: &Emit, p: &PlainRead) -> bool {
        let up =
            |n: i64, block: i64| ((n + block - 1) / block.max(1) * block.max(1)) as f64 / n.max(1) as f64;
        let rows: f64 = self.side.dims.iter().map(|d| up(d.extent, d.block)).product();
        let block: i64 = self.side.dims.iter().map(|d| d.block).product();
        let rows = rows * up(block, self.side.block as i64);
        let terms = up(self.fold.terms, self.fold.slot as i64);
        e.home(p.tensor).len as f64 * rows * terms > i32::MAX as f64
    }

    fn prepare_plain(&mut self, e: &mut Emit, ground: &Ground, place: &Where, p: &PlainRead) {
        let ty = if self.wide(e, p) { Ty::I64 } else { Ty::I32 };
        let name = if self.is_a { "a" } else { "b" };
        self.state.linear = self.linear_rows(ground, p);
        if self.state.linear.is_some() {
            let at: Vec<Expr> = self.starts(place).to_vec();
            let (base, _) = self.row_offset(e, place, p, at, ty);
            self.state.base = Some(e.named(&format!("{name}_base"), ty, base));
            return;
        }
        let rows = if self.one_row() { 1 } else { self.per_thread() };
        let offsets = e.kernel.array(format!("{name}_offset"), ty, rows);
        let inside = e.kernel.array(format!("{name}_inside"), Ty::Bool, rows);
        let checks: Vec<ArrayId> =
            p.checks.iter().map(|(d, _)| e.kernel.array(format!("{name}_at{d}"), Ty::I32, rows)).collect();
        for i in 0..rows {
            e.scope(|e| {
                let (mut mn, _) = self.nth(lit32(i as i32));
                if self.units() % self.threads != 0 {
                    // Threads without a unit copy nothing, but find a row here, which may read an index.
                    mn = int_op(IntOp::Min, mn, lit32(self.side.block as i32 - 1));
                }
                let (at, ok) = row(e, self.side, self.starts(place), mn);
                let ok = ok.unwrap_or(Expr::Lit(Value::Bool(true)));
                e.push(Stmt::SetElem(inside, lit32(i as i32), ok));
                let at = clamp(e, self.side, at);
                let (offset, starts) = self.row_offset(e, place, p, at, ty);
                e.push(Stmt::SetElem(offsets, lit32(i as i32), offset));
                for (array, start) in checks.iter().zip(starts) {
                    e.push(Stmt::SetElem(*array, lit32(i as i32), start));
                }
            });
        }
        (self.state.offsets, self.state.inside, self.state.checks) = (Some(offsets), Some(inside), checks);
    }

    /// Elements between rows, if rows lie on a line and no index that may be outside depends on the row.
    fn linear_rows(&self, ground: &Ground, p: &PlainRead) -> Option<i64> {
        let one = self.side.dims.len() == 1 && self.rows.len() <= 1 && p.checks.is_empty();
        let stmt = &self.shape.stmts[self.c.stmt];
        match self.rows {
            _ if !one => None,
            [] => Some(0),
            [digit, ..] => Some(ground.along(p, stmt.axes[digit.out])? * digit.stride),
        }
    }

    /// The offset of a row's first term, and its index in each dim that is checked.
    fn row_offset(
        &self,
        e: &mut Emit,
        place: &Where,
        p: &PlainRead,
        at: Vec<Expr>,
        ty: Ty,
    ) -> (Expr, Vec<Expr>) {
        let values = digits(e, self.side, self.rows, &at);
        e.open();
        bind(e, self.shape, self.c.stmt, self.known(place, &values));
        for k in self.k {
            let lo = super::scalar::int(k.lo);
            e.bind_axis(k.axis, lo.expr, lo.ty);
        }
        let index: Vec<Index> = p.index.iter().map(|&i| e.index(i)).collect();
        let offset = e.offset(p.tensor, &index);
        let name = if self.is_a { "a_at" } else { "b_at" };
        let offset = e.named(name, ty, offset);
        let starts = p.checks.iter().map(|(d, _)| {
            let n = &index[*d].num;
            match n.ty {
                Ty::I64 => super::scalar::cast(Ty::I32, n.expr.clone()),
                _ => n.expr.clone(),
            }
        });
        let starts: Vec<Expr> = starts.collect();
        let stmts = e.close();
        stmts.into_iter().for_each(|s| e.push(s));
        (offset, starts)
    }

    /// Starts the copies of the tile whose first term is `k0`, to the stage that starts at element `slot`.
    pub fn issue(&self, e: &mut Emit, place: &Where, k0: &Expr, slot: &Expr) {
        match self.source {
            Source::Plain(p) if !matches!(self.op.load, Load::Elements { .. }) => {
                self.copy(e, place, p, k0, slot)
            }
            _ => self.evaluate(e, place, k0),
        }
    }

    /// Stores what `issue` left in registers.
    pub fn finish(&self, e: &mut Emit, slot: &Expr) {
        let Some(stage) = self.state.stage else { return };
        for i in 0..self.per_thread() {
            let (mn, k) = self.nth(lit32(i as i32));
            let index = plus(slot.clone(), self.shared_index(mn, k));
            let mem = Mem::Shared(self.shared);
            let unit = self.state.unit;
            let store = match self.op.load {
                Load::Vector(b) => Stmt::StoreVec { mem, index, array: stage, at: i * b / 4, count: unit },
                _ if self.op.dtype.bits() == 16 => {
                    Stmt::StoreVec { mem, index, array: stage, at: i, count: unit }
                }
                _ if unit > 1 => Stmt::StoreVec { mem, index, array: stage, at: i * unit, count: unit },
                _ => Stmt::Store(mem, index, Expr::Elem(stage, Box::new(lit32(i as i32)))),
            };
            match self.in_tile(lit32(i as i32)) {
                Some(cond) => e.push(Stmt::If { cond, then: vec![store], otherwise: Vec::new() }),
                None => e.push(store),
            }
        }
    }

    /// The condition that a thread has an `i`-th unit.
    fn in_tile(&self, i: Expr) -> Option<Expr> {
        if self.units() % self.threads == 0 {
            return None;
        }
        let u = plus(Expr::Special(Special::ThreadX), times(i, self.threads as i64));
        Some(cmp(CmpOp::Lt, u, lit32(self.units() as i32)))
    }

    /// Where element (row, term) stands within a stage.
    fn shared_index(&self, mn: Expr, k: Expr) -> Expr {
        match self.op.place {
            Place::Rows { pitch, .. } => plus(times(k, pitch as i64), mn),
            Place::Lines(_) | Place::Registers => {
                unreachable!("lines and registers are filled elsewhere, never by this loader")
            }
            Place::Chunks(t) => {
                let per = (16 / self.size()) as i64;
                let (r, c) = if self.op.k_major { (mn, k) } else { (k, mn) };
                let whole = self.state.unit as i64 % per == 0;
                let chunk = over(c.clone(), per);
                let chunk = swizzled(chunk, r.clone(), t.shift, t.mask);
                let at = times(plus(times(r, t.pitch as i64), chunk), per);
                if whole { at } else { plus(at, modulo(c, per)) }
            }
        }
    }

    fn copy(&self, e: &mut Emit, place: &Where, p: &PlainRead, k0: &Expr, slot: &Expr) {
        let wide = self.wide(e, p);
        let uniform = self.uniform_terms();
        let first = uniform.then(|| self.term(e, k0.clone()));
        let mut same: Option<(Expr, Term)> = None;
        let param = e.tensor_param(p.tensor, false);
        for i in 0..self.per_thread() {
            let (mn, k) = self.nth(lit32(i as i32));
            let again = same.as_ref().filter(|(x, _)| super::scalar::same(x, &k)).map(|(_, t)| t.clone());
            e.open();
            let term = match (&first, again) {
                (Some(first), _) => first.plus(k.clone()),
                (None, Some(term)) => term,
                (None, None) => self.term(e, plus(k0.clone(), k.clone())),
            };
            if first.is_none() && same.is_none() {
                // Terms of a thread's units are often the same: found once, outside this unit's block.
                let stmts = e.close();
                stmts.into_iter().for_each(|s| e.push(s));
                e.open();
                same = Some((k.clone(), term.clone()));
            }
            self.copy_unit(e, place, p, i, mn, k, &term, k0, slot, wide, param);
            let stmts = e.close();
            match self.in_tile(lit32(i as i32)) {
                Some(cond) => e.push(Stmt::If { cond, then: stmts, otherwise: Vec::new() }),
                None => stmts.into_iter().for_each(|s| e.push(s)),
            }
        }
    }

    /// Whether the terms of a tile differ in the innermost fold axis alone.
    fn uniform_terms(&self) -> bool {
        let inner = self.k.last().map_or(1, |k| k.extent);
        self.k.len() == 1 || inner % self.fold.slot as i64 == 0 && self.fold.step == self.fold.slot as i64
    }

    /// The digits of a term's number.
    fn term(&self, e: &mut Emit, number: Expr) -> Term {
        if self.k.len() == 1 {
            return Term { digits: vec![number] };
        }
        let extents: Vec<i64> = self.k.iter().map(|k| k.extent).collect();
        let number = e.named("term", Ty::I32, number);
        let at = decode(e, Num { expr: number, ty: Ty::I32 }, &extents);
        Term { digits: at.into_iter().map(|n| n.expr).collect() }
    }

    /// Σ digit · step over the fold axes.
    fn moved(&self, term: &Term, steps: &[(AxisId, i64)], wide: bool) -> Expr {
        let step = |axis: AxisId| steps.iter().find(|(a, _)| *a == axis).map_or(0, |s| s.1);
        let zero = int_of(if wide { Ty::I64 } else { Ty::I32 }, 0).expr;
        self.k.iter().zip(&term.digits).fold(zero, |sum, (k, d)| match step(k.axis) {
            0 => sum,
            s => {
                let part = scaled(Num { expr: d.clone(), ty: Ty::I32 }, s, wide);
                if wide { add(sum, part) } else { plus(sum, part) }
            }
        })
    }

    #[allow(clippy::too_many_arguments)]
    fn copy_unit(
        &self,
        e: &mut Emit,
        place: &Where,
        p: &PlainRead,
        i: u32,
        mn: Expr,
        k: Expr,
        term: &Term,
        k0: &Expr,
        slot: &Expr,
        wide: bool,
        param: crate::ir::simt::ParamId,
    ) {
        let ty = if wide { Ty::I64 } else { Ty::I32 };
        let join = |a: Expr, b: Expr| if wide { add(a, b) } else { plus(a, b) };
        let at = |a: ArrayId| Expr::Elem(a, Box::new(lit32(if self.one_row() { 0 } else { i as i32 })));
        let (offset, mut ok) = match (&self.state.base, self.state.linear, self.state.offsets) {
            (Some(base), Some(step), _) => {
                let row = Num { expr: mn.clone(), ty: Ty::I32 };
                (join(base.clone(), scaled(row, step, wide)), self.row_inside(place, mn.clone()))
            }
            (_, _, Some(offsets)) => (at(offsets), self.state.inside.map(at)),
            _ => (int_of(ty, 0).expr, None),
        };
        let index = join(offset, self.moved(term, &p.k, wide));
        for ((d, steps), array) in p.checks.iter().zip(&self.state.checks) {
            let t = e.graph.tensor(p.tensor);
            let (lo, hi) = (t.lo[*d], t.lo[*d] + t.dims[*d]);
            let x = e.named("at", Ty::I32, plus(at(*array), self.moved(term, steps, false)));
            let low = cmp(CmpOp::Ge, x.clone(), lit32(lo as i32));
            ok = both(ok, Some(and(low, cmp(CmpOp::Lt, x, lit32(hi as i32)))));
        }
        for r in &self.state.ranges {
            let Some(at) = self.k.iter().position(|k| k.axis == r.axis) else { continue };
            let n = term.digits[at].clone();
            let counts = and(cmp(CmpOp::Ge, n.clone(), r.lo.clone()), cmp(CmpOp::Lt, n, r.hi.clone()));
            ok = both(ok, Some(counts));
        }
        let (valid, some) = self.valid(e, place, &mn, &k, k0);
        ok = both(ok, some);
        let bytes = self.state.unit * self.size();
        let (index, valid) = match ok {
            None => (index, valid.unwrap_or(lit32(bytes as i32))),
            Some(ok) => {
                let ok = e.named("ok", Ty::Bool, ok);
                let pick = |a: Expr, b: Expr| Expr::Select(Box::new(ok.clone()), Box::new(a), Box::new(b));
                let zero = int_of(ty, 0).expr;
                (pick(index, zero), pick(valid.unwrap_or(lit32(bytes as i32)), lit32(0)))
            }
        };
        match self.op.load {
            Load::Vector(_) => self.load_vector(e, i, index, valid, param),
            _ => {
                let to = plus(slot.clone(), self.shared_index(mn, k));
                let to = Expr::SharedAddr(self.shared, Box::new(to));
                let op = Intrinsic::CpAsync { mem: param, bytes: bytes as u8 };
                e.push(Stmt::Intrinsic { op, outs: Vec::new(), args: vec![to, index, valid] });
            }
        }
    }

    fn load_vector(&self, e: &mut Emit, i: u32, index: Expr, valid: Expr, param: crate::ir::simt::ParamId) {
        let Some(stage) = self.state.stage else { return };
        let words = self.state.unit * self.size() / 4;
        let at = i * words;
        let load = Stmt::LoadVec { array: stage, at, mem: Mem::Global(param), index, count: self.state.unit };
        if let Expr::Lit(_) = valid {
            return e.push(load);
        }
        for w in 0..words {
            e.push(Stmt::SetElem(stage, lit32((at + w) as i32), Expr::U32(0)));
        }
        let cond = cmp(CmpOp::Gt, valid, lit32(0));
        e.push(Stmt::If { cond, then: vec![load], otherwise: Vec::new() });
    }

    /// The condition that a row of linear rows is a point of the output.
    fn row_inside(&self, place: &Where, mn: Expr) -> Option<Expr> {
        let dim = &self.side.dims[0];
        let spare = dim.block < self.side.block as i64;
        let used = spare.then(|| cmp(CmpOp::Lt, mn.clone(), lit32(dim.block as i32)));
        let at = plus(self.starts(place)[0].clone(), mn);
        let edge = (dim.extent % dim.block != 0).then(|| cmp(CmpOp::Lt, at, lit32(dim.extent as i32)));
        both(used, edge)
    }

    /// How many bytes of a unit are inside, where that is not all or nothing; and the condition that any are.
    fn valid(
        &self,
        e: &mut Emit,
        place: &Where,
        mn: &Expr,
        k: &Expr,
        k0: &Expr,
    ) -> (Option<Expr>, Option<Expr>) {
        let (unit, fold) = (self.state.unit as i64, self.fold);
        let (step, slot) = (fold.step, fold.slot as i64);
        let along_k = self.unit_along_k() && unit > 1;
        let number = plus(k0.clone(), k.clone());
        let tail = fold.terms % step != 0;
        let mut some = (slot > step).then(|| cmp(CmpOp::Lt, k.clone(), lit32(step as i32)));
        let mut left = None;
        if tail {
            some = both(some, Some(cmp(CmpOp::Lt, number.clone(), lit32(fold.terms as i32))));
            if along_k && fold.terms % unit != 0 {
                left = Some(sub(lit32(fold.terms as i32), number));
            }
        }
        if unit > 1
            && !self.unit_along_k()
            && let Some(dim) = self.side.dims.last()
            && dim.extent % unit != 0
        {
            let (at, _) = row(e, self.side, self.starts(place), mn.clone());
            left = at.into_iter().next_back().map(|x| sub(lit32(dim.extent as i32), x));
        }
        let size = self.size() as i64;
        let bytes = |left: Expr| times(int_op(IntOp::Min, left, lit32(unit as i32)), size);
        (left.map(bytes), some)
    }

    /// Evaluates each element of the tile whose first term is `k0` into registers.
    fn evaluate(&self, e: &mut Emit, place: &Where, k0: &Expr) {
        let Some(stage) = self.state.stage else { return };
        let i = e.kernel.var("i", Ty::I32);
        e.open();
        let body = |e: &mut Emit| {
            let (mn, k) = self.nth(Expr::Var(i));
            let mn = e.named("mn", Ty::I32, mn);
            let k = e.named("k", Ty::I32, k);
            let unit = self.state.unit;
            let values: Vec<Expr> = (0..unit as i64)
                .map(|j| {
                    let along = self.unit_along_k();
                    let step =
                        |x: &Expr, on: bool| if on { plus(x.clone(), lit32(j as i32)) } else { x.clone() };
                    self.element(e, place, step(&mn, !along), step(&k, along), k0)
                })
                .collect();
            if self.op.dtype.bits() == 16 {
                let [a, b] = &values[..] else { return };
                let pair = Expr::Pack2(self.op.dtype, Box::new(a.clone()), Box::new(b.clone()));
                return e.push(Stmt::SetElem(stage, Expr::Var(i), pair));
            }
            for (j, v) in values.into_iter().enumerate() {
                let at = plus(times(Expr::Var(i), unit as i64), lit32(j as i32));
                e.push(Stmt::SetElem(stage, at, v));
            }
        };
        match self.in_tile(Expr::Var(i)) {
            Some(cond) => e.if_then(cond, body),
            None => body(e),
        }
        let body = e.close();
        let (lo, hi) = (lit32(0), lit32(self.per_thread() as i32));
        e.push(Stmt::For { var: i, lo, hi, step: lit32(1), unroll: Unroll::Full, body });
    }

    /// One element: 0 beyond the operand or under a guard.
    fn element(&self, e: &mut Emit, place: &Where, mn: Expr, k: Expr, k0: &Expr) -> Expr {
        let ty = Ty::of(self.c.ty);
        let out = e.kernel.var(if self.is_a { "a" } else { "b" }, ty);
        e.push(Stmt::Let(out, zero(self.c.ty)));
        e.scope(|e| {
            let (at, inside) = row(e, self.side, self.starts(place), mn);
            let fold = self.fold;
            let number = e.named("term", Ty::I32, plus(k0.clone(), k.clone()));
            let in_step = (fold.slot as i64 > fold.step).then(|| cmp(CmpOp::Lt, k, lit32(fold.step as i32)));
            let tail = fold.terms % fold.step != 0;
            let in_sum = tail.then(|| cmp(CmpOp::Lt, number.clone(), lit32(fold.terms as i32)));
            let cond = both(both(inside, in_step), in_sum);
            let body = |e: &mut Emit| {
                let values = digits(e, self.side, self.rows, &at);
                bind(e, self.shape, self.c.stmt, self.known(place, &values));
                let term = self.term(e, number);
                for (axis, d) in self.k.iter().zip(term.digits) {
                    let n = arith(IntOp::Add, Num { expr: d, ty: Ty::I32 }, super::scalar::int(axis.lo));
                    let n = if axis.lo == 0 { term_digit(n) } else { n };
                    let expr = e.named(&axis.name, n.ty, n.expr);
                    e.bind_axis(axis.axis, expr, n.ty);
                }
                guarded(e, &self.factor.guards, &mut |e| self.product(e, out));
            };
            match cond {
                Some(cond) => e.if_then(cond, body),
                None => e.scope(body),
            }
        });
        Expr::Var(out)
    }

    fn product(&self, e: &mut Emit, out: VarId) {
        let values: Vec<Expr> = self.factor.exprs.iter().map(|&x| e.value(x)).collect();
        let all = values.into_iter().reduce(|a, b| Expr::Call(Func::Mul, vec![a, b]));
        e.push(Stmt::Set(out, all.unwrap_or(zero(self.c.ty))));
    }
}

/// `x + 0`, which `arith` made, as `x`.
fn term_digit(n: Num) -> Num {
    match n.expr {
        Expr::Int(IntOp::Add, a, _) => Num { expr: *a, ty: n.ty },
        expr => Num { expr, ty: n.ty },
    }
}

/// Runs `f` where all guards hold, evaluating each only where those before it do.
pub fn guarded(e: &mut Emit, guards: &[Guard], f: &mut dyn FnMut(&mut Emit)) {
    let Some((first, rest)) = guards.split_first() else { return f(e) };
    let cond = guard(e, *first);
    e.if_then(cond, |e| guarded(e, rest, f));
}

fn guard(e: &mut Emit, g: Guard) -> Expr {
    let bound = |e: &mut Emit, op: CmpOp, axis: AxisId, bound| {
        let axis = e.axis_value(axis).cloned().unwrap_or_else(|| super::scalar::int(0));
        let bound = e.num(bound);
        super::scalar::compare(op, axis, bound)
    };
    match g {
        Guard::Is(id, true) => e.value(id),
        Guard::Is(id, false) => not(e.value(id)),
        Guard::AtLeast(axis, b) => bound(e, CmpOp::Ge, axis, b),
        Guard::Below(axis, b) => bound(e, CmpOp::Lt, axis, b),
    }
}

/// The zero of a compute type.
pub fn zero(ty: dtype::Ty) -> Expr {
    Expr::Lit(crate::vocab::monoid::Monoid::Sum.unit(ty))
}

/// Chunk `c` of row `r` under a swizzle.
fn swizzled(c: Expr, r: Expr, shift: u32, mask: u32) -> Expr {
    if mask == 0 {
        return c;
    }
    let r = if shift == 0 { r } else { over(r, 1 << shift) };
    int_op(IntOp::Xor, c, int_op(IntOp::And, r, lit32(mask as i32)))
}

/// The digits of a term's number, one for each fold axis.
#[derive(Clone)]
struct Term {
    digits: Vec<Expr>,
}

impl Term {
    /// `n` terms on along the innermost axis, which they do not leave.
    fn plus(&self, n: Expr) -> Term {
        let mut digits = self.digits.clone();
        if let Some(last) = digits.last_mut() {
            *last = plus(last.clone(), n);
        }
        Term { digits }
    }
}
