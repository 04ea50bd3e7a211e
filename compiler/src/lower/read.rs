//! Emit, reads and writes of tensors: offsets, guards, defaults and faults.

use super::arith::default_of;
use super::home::Home;
use super::index::Interval;
use super::scalar::{Emit, Num, and, arith, cast, compare, int, int_of, lit64, not, sub, widen};
use crate::ir::graph::{Access, ExprId, Read, TensorId};
use crate::ir::program::FaultKind;
use crate::ir::simt::{CmpOp, Expr, IntOp, Mem, Stmt, Ty};
use crate::vocab::dtype::{self, Value};
use girih_dsl::ast::Span;

/// One index of a read or write, with what is known of it.
pub struct Index {
    pub num: Num,
    pub range: Interval,
}

impl<'a> Emit<'a> {
    pub(super) fn read(&mut self, r: &Read, span: Span) -> Num {
        if let Some(n) = self.staged(r) {
            return n;
        }
        let index: Vec<Index> = r.index.iter().map(|&i| self.index(i)).collect();
        let guards = match r.access {
            Access::Proven => Vec::new(),
            _ => self.guards(r.tensor, &index),
        };
        if self.graph.tensor(r.tensor).dims.contains(&0) {
            return self.read_empty(r, &index, &guards, span);
        }
        if guards.is_empty() {
            return self.load(r.tensor, &index, span);
        }
        match r.access {
            Access::Else(d) => self.read_or(r.tensor, &index, guards, d, span),
            _ => self.read_checked(r.tensor, &index, guards, span),
        }
    }

    /// An index expression, in a variable.
    pub fn index(&mut self, id: ExprId) -> Index {
        let n = self.num(id);
        let expr = self.named("i", n.ty, n.expr);
        Index { num: Num { expr, ty: n.ty }, range: self.facts.interval(id) }
    }

    /// For each dim whose index may be outside: the dim and the condition that it is inside.
    pub fn guards(&mut self, tensor: TensorId, index: &[Index]) -> Vec<(usize, Expr)> {
        let t = self.graph.tensor(tensor);
        let dims = t.dims.iter().zip(&t.lo);
        dims.zip(index).enumerate().filter_map(|(d, ((&n, &lo), i))| Some((d, inside(i, lo, n)?))).collect()
    }

    /// A read of a tensor without elements: nothing is inside.
    fn read_empty(&mut self, r: &Read, index: &[Index], guards: &[(usize, Expr)], span: Span) -> Num {
        let ty = self.element_ty(r.tensor);
        match r.access {
            Access::Else(d) => self.num(d),
            Access::Checked => {
                let dim = guards.first().map_or(0, |g| g.0);
                self.fault(r.tensor, dim, FaultKind::Read, span, index[dim].num.clone());
                outside(ty)
            }
            Access::Proven => outside(ty),
        }
    }

    fn read_or(
        &mut self,
        tensor: TensorId,
        index: &[Index],
        guards: Vec<(usize, Expr)>,
        default: ExprId,
        span: Span,
    ) -> Num {
        let narrow = self.element_interval(tensor).union(self.facts.interval(default)).fits_i32();
        let ty = match self.graph.ty(default) {
            dtype::Ty::I64 if narrow => Ty::I32,
            t => Ty::of(t),
        };
        let out = self.kernel.var("x", ty);
        let eager = self.cheap(default);
        let first = if eager { self.num_as(default, ty) } else { default_of(ty) };
        self.push(Stmt::Let(out, first));
        let then = self.block(|e| {
            let n = e.load(tensor, index, span);
            e.push(Stmt::Set(out, to(n, ty)));
        });
        let otherwise = if eager {
            Vec::new()
        } else {
            self.block(|e| {
                let v = e.num_as(default, ty);
                e.push(Stmt::Set(out, v));
            })
        };
        self.push(Stmt::If { cond: all(&guards), then, otherwise });
        Num { expr: Expr::Var(out), ty }
    }

    fn read_checked(
        &mut self,
        tensor: TensorId,
        index: &[Index],
        guards: Vec<(usize, Expr)>,
        span: Span,
    ) -> Num {
        let mut result = outside(self.element_ty(tensor));
        if result.ty == Ty::I64 && self.element_interval(tensor).union(Interval::point(0)).fits_i32() {
            result = int(0);
        }
        let ty = result.ty;
        let out = self.kernel.var("x", ty);
        self.push(Stmt::Let(out, result.expr));
        let cond = all(&guards);
        let then = self.block(|e| {
            let n = e.load(tensor, index, span);
            e.push(Stmt::Set(out, to(n, ty)));
        });
        let otherwise = self.block(|e| e.report(tensor, index, guards, FaultKind::Read, span));
        self.push(Stmt::If { cond, then, otherwise });
        Num { expr: Expr::Var(out), ty }
    }

    /// Records a fault for each index that is outside (the first of them is kept).
    pub fn report(
        &mut self,
        tensor: TensorId,
        index: &[Index],
        guards: Vec<(usize, Expr)>,
        what: FaultKind,
        span: Span,
    ) {
        for (d, ok) in guards {
            let value = index[d].num.clone();
            self.if_then(not(ok), |e| e.fault(tensor, d, what, span, value));
        }
    }

    /// The element at indices that are inside, checked against the declared range.
    pub fn load(&mut self, tensor: TensorId, index: &[Index], span: Span) -> Num {
        let ty = self.element_ty(tensor);
        let at = self.offset(tensor, index);
        let param = self.tensor_param(tensor, false);
        let loaded = Expr::Load(Mem::Global(param), Box::new(at));
        let n = Num { expr: Expr::Var(self.let_var("x", ty, loaded)), ty };
        self.after_load(tensor, n, span)
    }

    /// Checks a loaded element against the declared range, and holds it in 32 bits if it fits.
    pub fn after_load(&mut self, tensor: TensorId, n: Num, span: Span) -> Num {
        let t = self.graph.tensor(tensor);
        let n = match t.range {
            Some((lo, hi)) if !covers(lo, hi, Interval::of_dtype(t.dtype)) => {
                let inside = Interval::new(lo, hi.saturating_sub(1));
                self.checked(n, inside, |e, v| e.fault(tensor, 0, FaultKind::Declared, span, v))
            }
            _ => n,
        };
        if n.ty == Ty::I64 && self.element_interval(tensor).fits_i32() {
            let v = self.let_var("x", Ty::I32, cast(Ty::I32, n.expr));
            return Num { expr: Expr::Var(v), ty: Ty::I32 };
        }
        n
    }

    fn element_ty(&self, tensor: TensorId) -> Ty {
        Ty::of(self.graph.tensor(tensor).dtype.compute())
    }

    fn element_interval(&self, tensor: TensorId) -> Interval {
        self.facts.tensor(tensor)
    }

    /// The element's place in its buffer, of indices that are inside: I32 where the buffer allows, else I64.
    pub fn offset(&mut self, tensor: TensorId, index: &[Index]) -> Expr {
        let home = self.home(tensor);
        self.offset_in(&home, tensor, index)
    }

    /// As `offset`, for elements of `tensor` that stand in another home.
    pub fn offset_in(&mut self, home: &Home, tensor: TensorId, index: &[Index]) -> Expr {
        let t = self.graph.tensor(tensor);
        let wide = home.len > i32::MAX as i64;
        let ty = if wide { Ty::I64 } else { Ty::I32 };
        let mut sum = int_of(ty, 0);
        for (d, i) in index.iter().enumerate() {
            if let Some(ring) = home.ring.as_ref().filter(|r| r.dim == d && r.depth > 1) {
                let (n, last) = (Num { expr: to(i.num.clone(), ty), ty }, int_of(ty, ring.last));
                let back = if ring.descending { (n, last) } else { (last, n) };
                let slot = arith(IntOp::And, arith(IntOp::Sub, back.0, back.1), int_of(ty, ring.depth - 1));
                let slot = arith(IntOp::Mul, slot, int_of(ty, home.len / ring.depth));
                sum = arith(IntOp::Add, sum, slot);
            }
            if t.dims[d] <= 1 || home.strides[d] == 0 {
                continue;
            }
            let n = Num { expr: to(i.num.clone(), ty), ty };
            let n = arith(IntOp::Sub, n, int_of(ty, t.lo[d]));
            let n = arith(IntOp::Mul, n, int_of(ty, home.strides[d]));
            sum = arith(IntOp::Add, sum, n);
        }
        sum.expr
    }

    /// Stores a value of the dtype's compute type at indices that are inside.
    pub fn store(&mut self, tensor: TensorId, index: &[Index], value: Expr) {
        let at = self.offset(tensor, index);
        let dtype = self.graph.tensor(tensor).dtype;
        let value = if self.home(tensor).dtype == dtype {
            value
        } else {
            self.rounded(dtype, Num { expr: value, ty: Ty::of(dtype.compute()) }).expr
        };
        let param = self.tensor_param(tensor, true);
        self.push(Stmt::Store(Mem::Global(param), at, value));
    }
}

/// A value in another integer width (to 32 bits only where it is known to fit).
pub fn to(n: Num, ty: Ty) -> Expr {
    match (n.ty, ty) {
        (a, b) if a == b => n.expr,
        (Ty::I32, Ty::I64) => widen(n).expr,
        (_, ty) => match n.expr {
            Expr::Lit(Value::I64(v)) if ty == Ty::I32 => int_of(ty, v).expr,
            e => cast(ty, e),
        },
    }
}

/// What a read outside gives: NaN, 0 or false.
fn outside(ty: Ty) -> Num {
    let expr = match ty {
        Ty::F32 => Expr::Lit(Value::F32(f32::NAN)),
        Ty::F64 => Expr::Lit(Value::F64(f64::NAN)),
        _ => default_of(ty),
    };
    Num { expr, ty }
}

fn all(guards: &[(usize, Expr)]) -> Expr {
    let mut it = guards.iter().map(|g| g.1.clone());
    let first = it.next().expect("called with a guard");
    it.fold(first, and)
}

fn covers(lo: i64, hi: i64, all: Interval) -> bool {
    lo <= all.lo && hi.saturating_sub(1) >= all.hi
}

/// The condition that an index is in `lo..lo+n`; `None` if it is known to hold.
fn inside(i: &Index, lo: i64, n: i64) -> Option<Expr> {
    let hi = lo + n;
    let low_ok = i.range.lo >= lo;
    let high_ok = i.range.hi < hi;
    let num = || i.num.clone();
    match (low_ok, high_ok) {
        (true, true) => None,
        (true, false) => Some(compare(CmpOp::Lt, num(), int(hi))),
        (false, true) => Some(compare(CmpOp::Ge, num(), int(lo))),
        (false, false) if num().ty == Ty::I32 && n <= i32::MAX as i64 && lo.unsigned_abs() < 1 << 30 => {
            // One unsigned comparison: what is below `lo` wraps to a large number.
            let from_lo = if lo == 0 { num().expr } else { sub(num().expr, int_of(Ty::I32, lo).expr) };
            let n = Expr::U32(n as u32);
            Some(Expr::Compare(CmpOp::Lt, Box::new(cast(Ty::U32, from_lo)), Box::new(n)))
        }
        (false, false) => {
            let wide = widen(num()).expr;
            let low = Expr::Compare(CmpOp::Ge, Box::new(wide.clone()), Box::new(lit64(lo)));
            let high = Expr::Compare(CmpOp::Lt, Box::new(wide), Box::new(lit64(hi)));
            Some(and(low, high))
        }
    }
}
