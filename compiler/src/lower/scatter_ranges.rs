//! Sorted points of a scatter, where elements are not many more than they: a thread an element (and place of the plain
//! axes) instead of one a point. Each element knows where its points begin and end; of an element with many points, every
//! stretch that begins at a multiple of `STRETCH` is summed by a thread of its own first, so that a few elements with all
//! the points are no serial work. What is combined in which order hangs on the sorted points alone.

use super::map::launch_points;
use super::read::to;
use super::scalar::{Emit, Num, add, and, cmp, int_of, int_op, lit32, mul};
use super::scatter::{Head, Scatter, Split, linear};
use super::{Lowering, Refusal};
use crate::ir::program::{BufferId, Step};
use crate::ir::simt::{CmpOp, Expr, IntOp, Mem, ParamId, Stmt, Ty, Unroll, VarId};
use crate::vocab::dtype::{DType, Value};

/// Sorted points that one thread combines.
const STRETCH: i64 = 256;
/// Elements for each point, at most.
const SPARSE: i64 = 4;

/// The sorted points, and the places among them where each element's begin and end.
#[derive(Clone, Copy)]
pub(super) struct Sorted {
    pub keys: BufferId,
    pub order: BufferId,
    pub n: i64,
    pub elements: i64,
}

#[derive(Clone, Copy)]
struct Ranges {
    starts: BufferId,
    ends: BufferId,
    /// Sums of stretches that begin inside an element's points.
    stretches: BufferId,
}

/// Whether elements are few enough, and numbers fit.
pub(super) fn takes(n: i64, elements: i64) -> bool {
    elements <= SPARSE * n && elements < i32::MAX as i64 && n < i32::MAX as i64 / 4
}

fn get(p: ParamId, at: Expr) -> Expr {
    Expr::Load(Mem::Global(p), Box::new(at))
}

fn min(a: Expr, b: Expr) -> Expr {
    int_op(IntOp::Min, a, b)
}

impl Sorted {
    /// The element of the point at a sorted place.
    fn key(&self, e: &mut Emit<'_>, place: Expr) -> Expr {
        let (keys, order) = (e.pointer(self.keys, false), e.pointer(self.order, false));
        let point = Expr::Var(e.let_var("point", Ty::I32, get(order, place)));
        Expr::Var(e.let_var("key", Ty::I32, get(keys, point)))
    }

    /// Whether a place's element is not `key`.
    fn differs(&self, e: &mut Emit<'_>, exists: Expr, place: Expr, key: &Expr) -> Expr {
        let differs = e.let_var("differs", Ty::Bool, Expr::Lit(Value::Bool(true)));
        e.if_then(exists, |e| {
            let other = self.key(e, place);
            e.push(Stmt::Set(differs, cmp(CmpOp::Ne, other, key.clone())));
        });
        Expr::Var(differs)
    }
}

impl<'a> Scatter<'a> {
    /// Combines the sorted points of each element.
    pub(super) fn by_element(&self, cx: &mut Lowering<'a>, split: &Split, s: Sorted) -> Result<(), Refusal> {
        let plain = split.dims(&self.dims, &split.plain);
        let count = (s.n + STRETCH - 1) / STRETCH;
        let dtype = cx.graph.tensor(self.u.target).dtype.compute().stored();
        let space = |cx: &mut Lowering<'a>, what: &str, dtype, dims: &[i64]| {
            cx.workspace(format!("{}_{what}", self.name), dtype, dims)
        };
        let r = Ranges {
            starts: space(cx, "starts", DType::I32, &[s.elements]),
            ends: space(cx, "ends", DType::I32, &[s.elements]),
            stretches: space(cx, "stretches", dtype, &[&[count], &plain[..]].concat()),
        };
        cx.step(Step::Fill { buffer: r.starts, byte: 0xff });
        self.ranges(cx, s, r)?;
        self.stretches(cx, split, s, r, &[&[count], &plain[..]].concat())?;
        self.elements(cx, split, s, r, &[&[s.elements], &plain[..]].concat())
    }

    fn ranges(&self, cx: &mut Lowering<'a>, s: Sorted, r: Ranges) -> Result<(), Refusal> {
        launch_points(cx, &self.name, &[s.n], self.u.span, |e, at| {
            let place = to(at[0].clone(), Ty::I32);
            let place = e.named("place", Ty::I32, place);
            let key = s.key(e, place.clone());
            let before = add(place.clone(), lit32(-1));
            let first = s.differs(e, cmp(CmpOp::Gt, place.clone(), lit32(0)), before, &key);
            let after = e.named("after", Ty::I32, add(place.clone(), lit32(1)));
            let inside = cmp(CmpOp::Lt, after.clone(), lit32(s.n as i32));
            let last = s.differs(e, inside, after.clone(), &key);
            let real = cmp(CmpOp::Lt, key.clone(), lit32(s.elements as i32));
            let (starts, ends) = (e.pointer(r.starts, true), e.pointer(r.ends, true));
            let store = |p, v| move |e: &mut Emit<'a>| e.push(Stmt::Store(Mem::Global(p), key, v));
            e.if_then(and(first, real.clone()), store.clone()(starts, place));
            e.if_then(and(last, real), store(ends, after));
        })
    }

    fn stretches(
        &self,
        cx: &mut Lowering<'a>,
        split: &Split,
        s: Sorted,
        r: Ranges,
        dims: &[i64],
    ) -> Result<(), Refusal> {
        launch_points(cx, &self.name, dims, self.u.span, |e, at| {
            let from = mul(to(at[0].clone(), Ty::I32), lit32(STRETCH as i32));
            let from = e.named("from", Ty::I32, from);
            let key = s.key(e, from.clone());
            let real = cmp(CmpOp::Lt, key.clone(), lit32(s.elements as i32));
            let number = linear(at, dims);
            let number = e.named("number", number.ty, number.expr);
            let (starts, ends) = (e.pointer(r.starts, false), e.pointer(r.ends, false));
            let into = e.pointer(r.stretches, true);
            e.if_then(real, |e| {
                let goes_on = cmp(CmpOp::Lt, get(starts, key.clone()), from.clone());
                e.if_then(goes_on, |e| {
                    let acc = self.nothing(e);
                    let end = min(get(ends, key.clone()), add(from.clone(), lit32(STRETCH as i32)));
                    let end = e.named("end", Ty::I32, end);
                    self.points_of(e, split, s, (from, end), &at[1..], acc);
                    e.push(Stmt::Store(Mem::Global(into), number, Expr::Var(acc)));
                });
            });
        })
    }

    fn elements(
        &self,
        cx: &mut Lowering<'a>,
        split: &Split,
        s: Sorted,
        r: Ranges,
        dims: &[i64],
    ) -> Result<(), Refusal> {
        let plain: i64 = dims[1..].iter().product();
        launch_points(cx, &self.name, dims, self.u.span, |e, at| {
            let key = to(at[0].clone(), Ty::I32);
            let key = e.named("key", Ty::I32, key);
            let (starts, ends) = (e.pointer(r.starts, false), e.pointer(r.ends, false));
            let sums = e.pointer(r.stretches, false);
            let start = Expr::Var(e.let_var("start", Ty::I32, get(starts, key.clone())));
            e.if_then(cmp(CmpOp::Ge, start.clone(), lit32(0)), |e| {
                let end = Expr::Var(e.let_var("end", Ty::I32, get(ends, key.clone())));
                let next = add(int_op(IntOp::Div, start.clone(), lit32(STRETCH as i32)), lit32(1));
                let next = e.named("next", Ty::I32, next);
                let own = min(end.clone(), mul(next.clone(), lit32(STRETCH as i32)));
                let own = e.named("own", Ty::I32, own);
                let acc = self.nothing(e);
                self.points_of(e, split, s, (start, own), &at[1..], acc);
                let ty = self.ty(e.graph);
                let var = e.kernel.var("stretch", Ty::I32);
                let body = e.block(|e| {
                    let wide = Num { expr: Expr::Var(var), ty: Ty::I32 };
                    let all = [vec![wide], at[1..].to_vec()].concat();
                    let number = linear(&all, &[&[s.n], &dims[1..]].concat());
                    let number = e.named("number", number.ty, number.expr);
                    let v = Expr::Var(e.let_var("sum", ty, get(sums, number)));
                    self.join(e, acc, v);
                });
                let last = int_op(IntOp::Div, add(end, lit32(STRETCH as i32 - 1)), lit32(STRETCH as i32));
                e.push(Stmt::For { var, lo: next, hi: last, step: lit32(1), unroll: Unroll::By(8), body });
                let load = |_: &mut Emit<'a>, _: Expr| (lit32(0), lit32(0));
                let head = Head { split, load: &load, n: s.n, elements: s.elements, key_ty: Ty::I32 };
                let index = self.element_index(e, &head, key.clone(), &at[1..]);
                let old = self.old(e, &index);
                let all = e.let_var("all", ty, old.expr);
                self.join(e, all, Expr::Var(acc));
                e.store(self.u.target, &index, Expr::Var(all));
            });
            debug_assert!(plain > 0);
        })
    }

    /// What combines with a value to that value.
    fn nothing(&self, e: &mut Emit<'a>) -> VarId {
        let ty = self.ty(e.graph);
        let of = e.graph.tensor(self.u.target).dtype.compute();
        let c = self.combine().expect("what is sorted is combined");
        let unit = e.unit(c, of, ty);
        e.let_var("acc", ty, unit)
    }

    /// `acc`, then `v`.
    fn join(&self, e: &mut Emit<'a>, acc: VarId, v: Expr) {
        let ty = self.ty(e.graph);
        let c = self.combine().expect("what is sorted is combined");
        let new = e.combined(c, Num { expr: Expr::Var(acc), ty }, Num { expr: v, ty });
        e.push(Stmt::Set(acc, new.expr));
    }

    /// Combines the points at sorted places `lo..hi` into `acc`.
    fn points_of(
        &self,
        e: &mut Emit<'a>,
        split: &Split,
        s: Sorted,
        (lo, hi): (Expr, Expr),
        plain: &[Num],
        acc: VarId,
    ) {
        let order = e.pointer(s.order, false);
        let load = |_: &mut Emit<'a>, _: Expr| (lit32(0), lit32(0));
        let head = Head { split, load: &load, n: s.n, elements: s.elements, key_ty: Ty::I32 };
        let var = e.kernel.var("i", Ty::I32);
        let body = e.block(|e| {
            let point = Expr::Var(e.let_var("point", Ty::I32, get(order, Expr::Var(var))));
            self.take(e, &head, point, plain, acc);
        });
        e.push(Stmt::For { var, lo, hi, step: int_of(Ty::I32, 1).expr, unroll: Unroll::By(4), body });
    }
}
