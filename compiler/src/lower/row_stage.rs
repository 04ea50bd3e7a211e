//! Row kernels: short rows whose length is no multiple of a vector. The rows of a block are one run of memory, which begins at
//! an aligned place: they are brought to shared memory by vectors, computed there element by element, and taken back the
//! same way.

use super::home;
use super::read::to;
use super::row::{Row, points};
use super::row_layout::{Layout, reads};
use super::row_pass::{Item, Kind, Pass};
use super::scalar::{Emit, Num, and, arith, cmp, int_of, lit32};
use super::{Lowering, home::Home};
use crate::ir::graph::{Access, AxisId, Expr as Node, Graph, Read, TensorId};
use crate::ir::simt::{CmpOp, Expr, IntOp, Mem, SharedId, Special, Stmt, Ty};
use crate::pass::rows::Rows;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Points of the longest row that is short.
const LONGEST: i64 = 512;
/// Elements below which there is nothing to gain.
const LEAST: f64 = 65536.0;
const THREADS: i64 = 256;
/// Points that a thread takes of a row.
const EACH: i64 = 8;
/// Bytes of a block's rows.
const BYTES: i64 = 40 << 10;

/// What goes through shared memory.
pub struct Staged {
    pub layout: Layout,
    reads: Vec<TensorId>,
    writes: Vec<TensorId>,
    /// Elements of a block.
    run: i64,
}

/// Short rows that pay.
pub fn find(
    cx: &Lowering<'_>,
    name: &str,
    rows: &Rows,
    passes: &[Pass<'_>],
    layout: &Layout,
) -> Option<Staged> {
    let dims = passes.first()?.dims.clone()?;
    let n = points(&passes.first()?.dims)?;
    let alike = passes.iter().all(|p| p.dims.as_ref() == Some(&dims) && !p.ordered && !p.online);
    let own = cx.schedule.kernels.get(name).is_some_and(|k| !k.is_empty());
    let small = rows.count() * (n as f64) < LEAST || !(2..=LONGEST).contains(&n);
    if !alike || own || small || !rows.held.is_empty() || layout.columns || layout.cluster > 1 {
        return None;
    }
    let items = || passes.iter().flat_map(|p| &p.items);
    let (mut brought, mut refused) = (BTreeSet::new(), BTreeSet::new());
    for item in items() {
        for (_, r) in reads(cx.graph, item) {
            let fits = whole(cx.graph, cx.home(r.tensor), item, r.tensor, &index_of(cx.graph, &r))
                && plain(cx.graph, &r);
            if fits {
                brought.insert(r.tensor)
            } else {
                refused.insert(r.tensor)
            };
        }
    }
    let own = rows.members.iter().flat_map(|m| cx.graph.stmts[m.stmt].targets());
    // What the kernel makes itself is not there when the rows are brought.
    if own.into_iter().any(|t| brought.contains(&t)) {
        return None;
    }
    let reads: Vec<TensorId> = brought.difference(&refused).copied().collect();
    let taken = items().filter_map(|item| match &item.kind {
        Kind::Map { define } => {
            let index: Vec<_> = define.axes.iter().map(|&a| Some(a)).collect();
            whole(cx.graph, cx.home(define.target), item, define.target, &index).then_some(define.target)
        }
        Kind::Fold { .. } => None,
    });
    let writes: Vec<TensorId> = taken.collect();
    let bits: Vec<i64> =
        reads.iter().chain(&writes).map(|&t| cx.graph.tensor(t).dtype.bits() as i64).collect();
    // Rows that begin at multiples of 8 bytes are as well loaded as they are.
    let odd = reads.iter().any(|&t| n * cx.graph.tensor(t).dtype.bits() as i64 % 64 != 0);
    let least = *bits.iter().min()?;
    let lanes = power((n + EACH - 1) / EACH).clamp(1, 32);
    let per_block = (THREADS / lanes).max(128 / least);
    let run = per_block * n;
    let bytes: i64 = bits.iter().map(|b| run * b / 8).sum();
    if reads.is_empty() || !odd || bytes > BYTES || bits.iter().any(|b| run * b % 128 != 0) {
        return None;
    }
    let layout = Layout { lanes, per_block, held: false, vector: 1, lead: None, ..layout.clone() };
    Some(Staged { layout, reads, writes, run })
}

fn power(n: i64) -> i64 {
    (n.max(1) as u64).next_power_of_two() as i64
}

fn plain(graph: &Graph, r: &Read) -> bool {
    r.access == Access::Proven && graph.tensor(r.tensor).range.is_none()
}

fn index_of(graph: &Graph, r: &Read) -> Vec<Option<AxisId>> {
    let axis = |&i| match graph.expr(i) {
        Node::Axis(a) => Some(*a),
        _ => None,
    };
    r.index.iter().map(axis).collect()
}

/// Whether a tensor is the rows one after the other, each element at its own point.
fn whole(graph: &Graph, home: &Home, item: &Item<'_>, id: TensorId, index: &[Option<AxisId>]) -> bool {
    let t = graph.tensor(id);
    let own: Vec<Option<AxisId>> = item.rows.iter().chain(&item.axes).map(|&a| Some(a)).collect();
    let ranges = item.rows.iter().chain(&item.axes).map(|&a| graph.axis_range(a));
    let box_of = t.lo.iter().zip(&t.dims).map(|(&lo, &n)| Some((lo, lo + n)));
    let bits = t.dtype.bits();
    (8..=32).contains(&bits)
        && index == own
        && ranges.eq(box_of)
        && home.ring.is_none()
        && home.align >= 16
        && home.dtype == t.dtype
        && home.strides == home::contiguous(t.dtype, &t.dims)
}

impl Staged {
    /// Brings the block's rows; reads are then asked of shared memory.
    pub fn bring(&self, row: &mut Row<'_, '_>) {
        for &id in &self.reads {
            let shared = self.memory(row, id);
            self.copy(&mut row.e, id, shared, true);
            let run = self.run;
            let base = move |e: &mut Emit<'_>, ty: Ty| base(e, run, ty);
            row.e.stage(
                id,
                Rc::new(move |e, r| {
                    let index: Vec<_> = r.index.iter().map(|&i| e.index(i)).collect();
                    let at = local(e, id, &index, &base);
                    Some(Expr::Load(Mem::Shared(shared), Box::new(at)))
                }),
            );
        }
        for &id in &self.writes {
            let shared = self.memory(row, id);
            row.outs.insert(id, (shared, self.run));
        }
        row.e.push(Stmt::Barrier);
    }

    /// Takes what was computed back.
    pub fn take(&self, row: &mut Row<'_, '_>) {
        if self.writes.is_empty() {
            return;
        }
        row.e.push(Stmt::Barrier);
        for &id in &self.writes {
            if let Some(&(shared, _)) = row.outs.get(&id) {
                self.copy(&mut row.e, id, shared, false);
            }
        }
    }

    fn memory(&self, row: &mut Row<'_, '_>, id: TensorId) -> SharedId {
        let t = row.graph.tensor(id);
        row.e.kernel.shared(format!("{}_rows", t.name), t.dtype, self.run as u32, 16)
    }

    /// The block's run of a tensor to shared memory, or from it.
    fn copy(&self, e: &mut Emit<'_>, id: TensorId, shared: SharedId, to_shared: bool) {
        let (home, dtype) = (e.home(id), e.graph.tensor(id).dtype);
        let mem = Mem::Global(e.tensor_param(id, !to_shared));
        let v = 128 / dtype.bits() as i64;
        let threads = self.layout.lanes * self.layout.per_block;
        let vectors = self.run / v;
        let each = (vectors + threads - 1) / threads;
        let ty = home.index_ty();
        let base = base(e, self.run, ty);
        let stage = e.kernel.array("words", Ty::U32, 4 * each as u32);
        let (from, into) = if to_shared { (mem, Mem::Shared(shared)) } else { (Mem::Shared(shared), mem) };
        let mut stores = Vec::new();
        for i in 0..each {
            let n = arith(
                IntOp::Add,
                Num { expr: Expr::Special(Special::ThreadX), ty: Ty::I32 },
                int_of(Ty::I32, i * threads),
            );
            let own = arith(IntOp::Mul, n.clone(), int_of(Ty::I32, v));
            let own = e.named("own", Ty::I32, own.expr);
            let place = arith(
                IntOp::Add,
                base.clone(),
                Num { expr: to(Num { expr: own.clone(), ty: Ty::I32 }, ty), ty },
            );
            let place = e.named("place", ty, place.expr);
            let there = ((i + 1) * threads > vectors).then(|| cmp(CmpOp::Lt, n.expr, lit32(vectors as i32)));
            // The last block may have fewer rows.
            let short = home.len % self.run != 0;
            let inside = short.then(|| cmp(CmpOp::Le, place.clone(), int_of(ty, home.len - v).expr));
            let cond = there.clone().into_iter().chain(inside.clone()).reduce(and);
            let (read, write) =
                if to_shared { (place.clone(), own.clone()) } else { (own.clone(), place.clone()) };
            let (array, at, count) = (stage, 4 * i as u32, v as u32);
            let load = Stmt::LoadVec { array, at, mem: from, index: read, count };
            let store = Stmt::StoreVec { mem: into, index: write, array, at, count };
            guarded(e, cond.clone(), load);
            stores.push((cond, store));
            if home.len % v != 0 && short {
                let end = cmp(CmpOp::Gt, place.clone(), int_of(ty, home.len - v).expr);
                let some = cmp(CmpOp::Lt, place.clone(), int_of(ty, home.len).expr);
                let cond = there.into_iter().chain([end, some]).reduce(and);
                // The tensor's last elements: fewer than a vector.
                let rest = e.block(|e| {
                    for k in 0..home.len % v {
                        let place = arith(IntOp::Add, Num { expr: place.clone(), ty }, int_of(ty, k)).expr;
                        let own =
                            arith(IntOp::Add, Num { expr: own.clone(), ty: Ty::I32 }, int_of(Ty::I32, k))
                                .expr;
                        let (read, write) = if to_shared { (place, own) } else { (own, place) };
                        e.push(Stmt::Store(into, write, Expr::Load(from, Box::new(read))));
                    }
                });
                if let Some(cond) = cond {
                    e.push(Stmt::If { cond, then: rest, otherwise: Vec::new() });
                }
            }
        }
        stores.into_iter().for_each(|(cond, s)| guarded(e, cond, s));
    }
}

fn guarded(e: &mut Emit<'_>, cond: Option<Expr>, s: Stmt) {
    match cond {
        Some(cond) => e.push(Stmt::If { cond, then: vec![s], otherwise: Vec::new() }),
        None => e.push(s),
    }
}

/// The first element of the block's run.
fn base(e: &mut Emit<'_>, run: i64, ty: Ty) -> Num {
    let block = to(Num { expr: Expr::Special(Special::BlockX), ty: Ty::I32 }, ty);
    let first = arith(IntOp::Mul, Num { expr: block, ty }, int_of(ty, run));
    Num { expr: e.named("run", ty, first.expr), ty }
}

/// An element's place in the block's run.
fn local(
    e: &mut Emit<'_>,
    id: TensorId,
    index: &[super::read::Index],
    base: &dyn Fn(&mut Emit<'_>, Ty) -> Num,
) -> Expr {
    let ty = e.home(id).index_ty();
    let at = e.offset(id, index);
    let base = base(e, ty);
    let own = arith(IntOp::Sub, Num { expr: at, ty }, base);
    let own = to(own, Ty::I32);
    e.named("own", Ty::I32, own)
}

/// Stores a value at its point, in shared memory.
pub fn store(
    e: &mut Emit<'_>,
    id: TensorId,
    (shared, run): (SharedId, i64),
    index: &[super::read::Index],
    value: Expr,
) {
    let at = local(e, id, index, &|e, ty| base(e, run, ty));
    e.push(Stmt::Store(Mem::Shared(shared), at, value));
}
