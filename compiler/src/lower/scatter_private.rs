//! Many points that meet in few elements (histograms, counts, the greatest of each class): every block combines its points
//! in shared memory, then what it has with the elements. Integers wrap, and the greatest and least of floats are the same
//! in any order, so the result does not depend on it.

use super::map::{bind_axes, decode};
use super::scalar::{Emit, Num, add, arith, cmp, int_of, lit32, mul};
use super::scatter::Scatter;
use super::{Lowering, Refusal};
use crate::ir::graph::UpdateOp;
use crate::ir::simt::{CmpOp, Expr, IntOp, Mem, SharedId, Special, Stmt, Ty, Unroll};
use crate::vocab::dtype::{DType, Value};

const THREADS: i64 = 1024;
/// Points of a thread that are read together.
const EACH: i64 = 8;
/// Bytes of the elements, at most, and up to which two blocks fit a multiprocessor.
const MOST: i64 = 160 << 10;
const TWICE: i64 = 100 << 10;
/// Multiprocessors, about; and blocks from which on it is worth it.
const DEVICE: i64 = 132;
const ENOUGH: i64 = 16;

/// Blocks, if each should have elements of its own.
pub(super) fn bins(cx: &Lowering<'_>, s: &Scatter<'_>, points: i64) -> Option<i64> {
    let home = cx.home(s.u.target);
    let bytes = home.len * home.dtype.bits() as i64 / 8;
    let in_place = home.dtype == cx.graph.tensor(s.u.target).dtype;
    let room = MOST.min(cx.target.shared_per_block as i64);
    if !in_place || bytes > room || home.len == 0 {
        return None;
    }
    let most = if bytes <= TWICE { 2 * DEVICE } else { DEVICE };
    let blocks = (points / (2 * home.len)).min(points / (THREADS * EACH)).min(most);
    (blocks >= ENOUGH).then_some(blocks)
}

impl<'a> Scatter<'a> {
    pub(super) fn privately(&self, cx: &mut Lowering<'a>, points: i64, blocks: i64) -> Result<(), Refusal> {
        let home = cx.home(self.u.target).clone();
        let mut e = cx.emit(&self.name);
        e.kernel.block = [THREADS as u32, 1, 1];
        e.kernel.grid = [blocks as u32, 1, 1];
        e.line(self.u.span);
        let bins = e.kernel.shared("bins", home.dtype, home.len as u32, 16);
        let unit = Expr::Lit(self.unit(cx));
        each_bin(&mut e, home.len, |e, i| e.push(Stmt::Store(Mem::Shared(bins), i, unit.clone())));
        e.push(Stmt::Barrier);
        let ty = if points + blocks * THREADS * EACH <= i32::MAX as i64 { Ty::I32 } else { Ty::I64 };
        let own = add(mul(Expr::Special(Special::BlockX), lit32((THREADS * EACH) as i32)), thread());
        let own = super::read::to(Num { expr: own, ty: Ty::I32 }, ty);
        let own = e.named("own", ty, own);
        let var = e.kernel.var("point", ty);
        let body = e.block(|e| self.round(e, bins, &Num { expr: Expr::Var(var), ty }, points));
        let (hi, step) = (int_of(ty, points).expr, int_of(ty, blocks * THREADS * EACH).expr);
        e.push(Stmt::For { var, lo: own, hi, step, unroll: Unroll::None, body });
        e.push(Stmt::Barrier);
        let all = Mem::Global(e.tensor_param(self.u.target, true));
        each_bin(&mut e, home.len, |e, i| {
            let had = e.let_var("had", self.ty(e.graph), Expr::Load(Mem::Shared(bins), Box::new(i.clone())));
            e.if_then(cmp(CmpOp::Ne, Expr::Var(had), unit.clone()), |e| {
                let value = Expr::Var(had);
                e.push(Stmt::Atomic { op: self.atomic(), mem: all, index: i, value, old: None });
            });
        });
        cx.launch(e);
        Ok(())
    }

    /// Some points of a thread: where they go and their values, then the atomic operations.
    fn round(&self, e: &mut Emit<'a>, bins: SharedId, first: &Num, points: i64) {
        let ty = self.ty(e.graph);
        let places = e.kernel.array("places", Ty::I32, EACH as u32);
        let held = e.kernel.array("values", ty, EACH as u32);
        for u in 0..EACH {
            let slot = lit32(u as i32);
            let point = arith(IntOp::Add, first.clone(), int_of(first.ty, u * THREADS));
            let inside = cmp(CmpOp::Lt, point.expr.clone(), int_of(point.ty, points).expr);
            let inside = e.named("inside", Ty::Bool, inside);
            let last = arith(IntOp::Min, point, int_of(first.ty, points - 1));
            let last = Num { expr: e.named("at", last.ty, last.expr), ty: last.ty };
            e.push(Stmt::SetElem(places, slot.clone(), lit32(-1)));
            e.push(Stmt::SetElem(held, slot.clone(), super::arith::default_of(ty)));
            e.scope(|e| {
                let at = decode(e, last, &self.dims);
                bind_axes(e, &self.u.axes, &at);
                self.taken(e, &mut |e, index| {
                    let value = self.value(e).expr;
                    let at = e.offset(self.u.target, index);
                    e.push(Stmt::SetElem(held, slot.clone(), value));
                    let here = Expr::Select(Box::new(inside.clone()), Box::new(at), Box::new(lit32(-1)));
                    e.push(Stmt::SetElem(places, slot.clone(), here));
                });
            });
        }
        for u in 0..EACH {
            let elem = |a| Expr::Elem(a, Box::new(lit32(u as i32)));
            let there = cmp(CmpOp::Ge, elem(places), lit32(0));
            e.if_then(there, |e| {
                let (mem, index, value) = (Mem::Shared(bins), elem(places), elem(held));
                e.push(Stmt::Atomic { op: self.atomic(), mem, index, value, old: None });
            });
        }
    }

    /// What combines with nothing to nothing.
    fn unit(&self, cx: &Lowering<'a>) -> Value {
        match (self.u.op, cx.graph.tensor(self.u.target).dtype) {
            (UpdateOp::Max | UpdateOp::Min, _) => self.end(cx.graph),
            (_, DType::I64) => Value::I64(0),
            _ => Value::I32(0),
        }
    }
}

fn thread() -> Expr {
    Expr::Special(Special::ThreadX)
}

/// `for i in thread..len step threads`
fn each_bin<'a>(e: &mut Emit<'a>, len: i64, f: impl FnOnce(&mut Emit<'a>, Expr)) {
    let var = e.kernel.var("i", Ty::I32);
    let body = e.block(|e| f(e, Expr::Var(var)));
    let (hi, step) = (lit32(len as i32), lit32(THREADS as i32));
    e.push(Stmt::For { var, lo: thread(), hi, step, unroll: Unroll::None, body });
}
