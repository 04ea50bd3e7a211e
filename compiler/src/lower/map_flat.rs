//! Form `map`, flat: targets that are contiguous are one run of elements, so a thread takes neighbours of that run, from
//! the end of one row into the next. What is read at the same point of a tensor that lies alike is loaded and stored by
//! aligned vectors, whatever the length of a row; the rest is read element by element.

use super::home;
use super::map::{self, coordinates, count, decode, launch_points, values};
use super::map_vec::{self, Loaded, access, vector_load};
use super::scalar::{Emit, Num, arith, cmp, int_of, lit32};
use super::{Lowering, Refusal};
use crate::ir::graph::{Access, Define, Expr as Node, ExprId, Graph, Read, TensorId};
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Stmt, Ty, Unroll};
use std::collections::BTreeSet;

/// Neighbours that a thread takes of the run, where that is more than `width`, what rows alone allow.
pub fn width(cx: &Lowering<'_>, name: &str, group: &[&Define], width: i64) -> Option<i64> {
    let graph = cx.graph;
    let t = graph.tensor(group[0].target);
    if t.dims.is_empty() || !group.iter().all(|d| map_vec::small(graph, d.value)) {
        return None;
    }
    let least = group.iter().map(|d| graph.tensor(d.target).dtype.bits()).min()?;
    let most = cx.schedule.int(name, "vector", "").unwrap_or(8);
    let mut v = ((128 / least.max(16)) as i64).min(most);
    let total = count(&t.dims, group[0].span, name).ok()?;
    let fits = |v: i64| group.iter().all(|d| lies(cx, d.target, &t.dims, v));
    while v > 1 && (total / v < map_vec::ENOUGH || !fits(v)) {
        v /= 2;
    }
    (v > width).then_some(v)
}

/// Whether a tensor is one run of elements of these extents, in which each `v` from a multiple of `v` on are aligned.
fn lies(cx: &Lowering<'_>, id: TensorId, dims: &[i64], v: i64) -> bool {
    let (t, home) = (cx.graph.tensor(id), cx.home(id));
    let bytes = access(t.dtype, v) as i64 * t.dtype.bits() as i64 / 8;
    let plain = t.dims == dims && home.strides == home::contiguous(t.dtype, dims);
    plain && t.dtype.bits() >= 8 && bytes >= 4 && home.align as i64 % bytes == 0
}

/// The reads of a group at its own point, of tensors that lie as its targets do.
fn alike<'a>(cx: &Lowering<'a>, group: &[&'a Define], v: i64) -> Vec<(ExprId, &'a Read)> {
    let graph: &'a Graph = cx.graph;
    let own: Vec<TensorId> = group.iter().map(|d| d.target).collect();
    let t = graph.tensor(own[0]);
    let mut found: Vec<(ExprId, &'a Read)> = Vec::new();
    for d in group {
        let point = |r: &Read| {
            r.access == Access::Proven
                && home::identity(graph, r, &d.axes)
                && graph.tensor(r.tensor).lo == t.lo
                && lies(cx, r.tensor, &t.dims, v)
        };
        for id in map_vec::unconditional(graph, d.value) {
            match graph.expr(id) {
                Node::Read(r) if !own.contains(&r.tensor) && point(r) => found.push((id, r)),
                _ => {}
            }
        }
    }
    found.sort_by_key(|f| f.0);
    found.dedup_by_key(|f| f.0);
    found
}

pub fn points<'a>(cx: &mut Lowering<'a>, name: &str, group: &[&'a Define], v: i64) -> Result<(), Refusal> {
    let first = group[0];
    let dims = cx.graph.tensor(first.target).dims.clone();
    let total = count(&dims, first.span, name)?;
    let reads = alike(cx, group, v);
    launch_points(cx, name, &[(total + v - 1) / v], first.span, |e, at| {
        let ty = if total + v > i32::MAX as i64 { Ty::I64 } else { Ty::I32 };
        let number = Num { expr: super::read::to(at[0].clone(), ty), ty };
        let run = arith(IntOp::Mul, number.clone(), int_of(ty, v));
        let run = Run {
            group,
            reads: &reads,
            dims: &dims,
            v,
            first: Num { expr: e.named("run", ty, run.expr), ty },
        };
        if total % v == 0 {
            return run.whole(e);
        }
        let whole = cmp(CmpOp::Lt, number.expr, int_of(ty, total / v).expr);
        e.if_else(whole, |e| run.whole(e), |e| run.rest(e, total));
    })
}

/// The neighbours of one thread.
struct Run<'g, 'a> {
    group: &'g [&'a Define],
    reads: &'g [(ExprId, &'a Read)],
    dims: &'g [i64],
    v: i64,
    /// The first neighbour's place in the run.
    first: Num,
}

impl<'a> Run<'_, 'a> {
    fn whole(&self, e: &mut Emit<'a>) {
        let loaded: Vec<Loaded> = self.reads.iter().map(|&(id, r)| self.load(e, id, r)).collect();
        let axes: BTreeSet<_> = self.group.iter().flat_map(|d| d.axes.iter().copied()).collect();
        self.group.iter().for_each(|d| e.hoist_shared(d.value, &axes));
        let outs: Vec<ArrayId> = self.group.iter().map(|d| map_vec::out_array(e, d, self.v)).collect();
        let corner = decode(e, self.first.clone(), self.dims);
        for lane in 0..self.v {
            e.scope(|e| {
                let at = self.lane(e, &corner, lane);
                let at = coordinates(e, self.group[0].target, &at);
                map_vec::bind_lane(e, &loaded, lane);
                let found = values(e, self.group, &at);
                for ((d, n), &out) in self.group.iter().zip(found).zip(&outs) {
                    e.push(Stmt::SetElem(out, lit32(lane as i32), n.expr));
                    e.unforward(d.target);
                }
            });
        }
        for (d, &array) in self.group.iter().zip(&outs) {
            let place = self.place(e, d.target);
            map_vec::store_at(e, d.target, array, place, self.v);
        }
    }

    /// The last, incomplete, neighbours one by one.
    fn rest(&self, e: &mut Emit<'a>, total: i64) {
        let ty = self.first.ty;
        let at = e.kernel.var("at", ty);
        let body = e.block(|e| {
            let at = decode(e, Num { expr: Expr::Var(at), ty }, self.dims);
            let at = coordinates(e, self.group[0].target, &at);
            map::point(e, self.group, &at);
        });
        let (lo, hi, step) = (self.first.expr.clone(), int_of(ty, total).expr, int_of(ty, 1).expr);
        e.push(Stmt::For { var: at, lo, hi, step, unroll: Unroll::None, body });
    }

    /// The run's place in a tensor that lies alike.
    fn place(&self, e: &Emit<'a>, id: TensorId) -> Expr {
        super::read::to(self.first.clone(), e.home(id).index_ty())
    }

    fn load(&self, e: &mut Emit<'a>, id: ExprId, r: &Read) -> Loaded {
        let place = self.place(e, r.tensor);
        let count = access(e.graph.tensor(r.tensor).dtype, self.v) as i64;
        let (array, ty) = vector_load(e, r, place, self.v, count);
        Loaded { id, array, at: 0, ty }
    }

    /// The coordinates of a neighbour: of the first, and a carry where rows hold a whole vector.
    fn lane(&self, e: &mut Emit<'a>, corner: &[Num], lane: i64) -> Vec<Num> {
        let (Some(&n), ty) = (self.dims.last(), self.first.ty) else { return Vec::new() };
        if lane == 0 {
            return corner.to_vec();
        }
        if n < self.v {
            let at = arith(IntOp::Add, self.first.clone(), int_of(ty, lane));
            let at = Num { expr: e.named("at", ty, at.expr), ty };
            return decode(e, at, self.dims);
        }
        let mut at = corner.to_vec();
        let mut carry: Option<Expr> = None;
        for d in (0..at.len()).rev() {
            let add = match &carry {
                None => int_of(ty, lane),
                Some(c) => {
                    let one = Expr::Select(
                        Box::new(c.clone()),
                        Box::new(int_of(ty, 1).expr),
                        Box::new(int_of(ty, 0).expr),
                    );
                    Num { expr: one, ty }
                }
            };
            let next = arith(IntOp::Add, at[d].clone(), add);
            let next = e.named("at", ty, next.expr);
            if self.dims[..d].iter().all(|&n| n == 1) {
                at[d] = Num { expr: next, ty };
                break;
            }
            let over = cmp(CmpOp::Ge, next.clone(), int_of(ty, self.dims[d]).expr);
            let over = e.named("over", Ty::Bool, over);
            let back = arith(IntOp::Sub, Num { expr: next.clone(), ty }, int_of(ty, self.dims[d])).expr;
            let here = Expr::Select(Box::new(over.clone()), Box::new(back), Box::new(next));
            at[d] = Num { expr: e.named("at", ty, here), ty };
            carry = Some(over);
        }
        at
    }
}
