//! Form `scatter`: updates.
//!
//! The new version begins as the base (in the same memory, or copied) or as the unit. Then, by what is known:
//! - points that meet in no element: each is combined and stored at once;
//! - `=`: each element gets the number of its last point (an atomic maximum), and that point alone stores;
//! - integers of 32 and 64 bits: atomics, whose result does not depend on the order; where many points meet in few
//!   elements, each block has its own in shared memory first (`scatter_private.rs`);
//! - the greatest or least of floats, and sums in any order where that is asked for: atomics too;
//! - else: the points are sorted by the element they meet (stably), and each element's points are combined in
//!   their order, in the compute type, and rounded once. So runs repeat bit for bit.
//!   Where elements are not many more than points, a thread an element does that (`scatter_ranges.rs`).
//!
//! Axes that index a dim on their own and nothing else beside the value need no sorting: they stay an axis of the work.

use super::index::Interval;
use super::map::{bind_axes, count, launch_points};
use super::read::{Index, to};
use super::scalar::{Emit, Num, add, and, arith, cmp, int_of, int_op, lit32};
use super::sort::sort_rows;
use super::{Lowering, Refusal, home, scatter_private as private, scatter_ranges as ranges};
use crate::ir::graph::{
    AxisId, Base, Combine, Expr as Node, ExprId, Graph, Stmt as GraphStmt, TensorId, Update, UpdateOp, Word,
};
use crate::ir::plan::PlanKernel;
use crate::ir::program::{BufferId, FaultKind, Step};
use crate::ir::simt::{AtomicOp, CmpOp, Expr, IntOp, Mem, Stmt, Ty, VarId};
use crate::vocab::dtype::{DType, Value};
use crate::vocab::monoid::Monoid;

pub fn lower<'a>(cx: &mut Lowering<'a>, k: &'a PlanKernel) -> Result<(), Refusal> {
    let graph = cx.graph;
    for &s in &k.stmts {
        if let GraphStmt::Update(u) = &graph.stmts[s] {
            Scatter { name: k.name.clone(), u, dims: dims_of(graph, u) }.lower(cx)?;
        }
    }
    Ok(())
}

fn dims_of(graph: &Graph, u: &Update) -> Vec<i64> {
    u.axes.iter().map(|&a| graph.extent(a).unwrap_or(0)).collect()
}

pub(super) struct Scatter<'a> {
    pub name: String,
    pub u: &'a Update,
    /// Extents of the statement's axes.
    pub dims: Vec<i64>,
}

/// What a launch does for each point that is taken and inside.
type AtPoint<'f, 'a> = &'f mut dyn FnMut(&mut Emit<'a>, &[Index]);

impl<'a> Scatter<'a> {
    fn lower(&self, cx: &mut Lowering<'a>) -> Result<(), Refusal> {
        self.begin(cx)?;
        let points = count(&self.dims, self.u.span, &self.name)?;
        if points == 0 {
            return Ok(());
        }
        let dtype = cx.graph.tensor(self.u.target).dtype;
        match self.u.op {
            // Without elements every point is outside, and only says so.
            _ if self.u.distinct || cx.graph.tensor(self.u.target).dims.contains(&0) => self.direct(cx),
            UpdateOp::Set => self.last_wins(cx, points),
            _ if matches!(dtype, DType::I32 | DType::I64) => match private::bins(cx, self, points) {
                Some(blocks) => self.privately(cx, points, blocks),
                None => self.atomics(cx),
            },
            _ if matches!(dtype, DType::F32 | DType::F64) && self.any_order(cx) => {
                let extreme = matches!(self.u.op, UpdateOp::Max | UpdateOp::Min);
                match private::bins(cx, self, points).filter(|_| extreme) {
                    Some(blocks) => self.privately(cx, points, blocks),
                    None => self.atomics(cx),
                }
            }
            _ => self.sorted(cx),
        }
    }

    /// Whether floats may be combined as they come: their greatest is the same in any order, their sum where that is
    /// allowed. What a tensor holds before may be a NaN with a sign, which atomic operations do not keep.
    fn any_order(&self, cx: &Lowering<'a>) -> bool {
        match self.u.op {
            UpdateOp::Max | UpdateOp::Min => self.u.base == Base::Unit,
            _ => matches!(cx.schedule.get(&self.name, "atomic", ""), Some(Word::Name(n)) if n == "any"),
        }
    }

    // The first value.

    fn begin(&self, cx: &mut Lowering<'a>) -> Result<(), Refusal> {
        let (to, t) = (cx.home(self.u.target).clone(), cx.graph.tensor(self.u.target));
        match self.u.base {
            Base::Tensor(base) => {
                let from = cx.home(base).clone();
                if from.buffer == to.buffer || t.dims.contains(&0) {
                    return Ok(());
                }
                if from.strides == to.strides && from.dtype == to.dtype {
                    cx.step(Step::Copy { from: from.buffer, to: to.buffer });
                    return Ok(());
                }
                copy(cx, &self.name, base, self.u.target)
            }
            Base::Unit if matches!(self.u.op, UpdateOp::Set | UpdateOp::Add) => {
                cx.step(Step::Fill { buffer: to.buffer, byte: 0 });
                Ok(())
            }
            Base::Unit => self.fill(cx),
        }
    }

    /// −∞ or +∞ (integers: the dtype's least or greatest).
    fn fill(&self, cx: &mut Lowering<'a>) -> Result<(), Refusal> {
        let value = self.end(cx.graph);
        each_element(cx, &self.name, self.u.target, |e, index| {
            e.store(self.u.target, index, Expr::Lit(value));
        })
    }

    /// What a maximum or minimum begins with.
    pub fn end(&self, graph: &Graph) -> Value {
        let t = graph.tensor(self.u.target);
        let high = self.u.op == UpdateOp::Min;
        let (lo, hi) = t.dtype.row().int_range;
        let end = if high { hi } else { lo };
        match Ty::of(t.dtype.compute()) {
            Ty::F64 => Value::F64(if high { f64::INFINITY } else { f64::NEG_INFINITY }),
            Ty::F32 => Value::F32(if high { f32::INFINITY } else { f32::NEG_INFINITY }),
            Ty::I64 => Value::I64(end),
            Ty::Bool => Value::Bool(high),
            _ => Value::I32(end as i32),
        }
    }

    // Points.

    /// A launch over the statement's points.
    fn points(&self, cx: &mut Lowering<'a>, f: AtPoint<'_, 'a>) -> Result<(), Refusal> {
        launch_points(cx, &self.name, &self.dims, self.u.span, |e, at| {
            bind_axes(e, &self.u.axes, at);
            self.taken(e, f);
        })
    }

    /// `f` where the condition holds and the element exists; a fault where it does not.
    pub fn taken(&self, e: &mut Emit<'a>, f: AtPoint<'_, 'a>) {
        match self.u.cond {
            Some(c) => {
                let cond = e.value(c);
                e.if_then(cond, |e| self.inside(e, f));
            }
            None => self.inside(e, f),
        }
    }

    fn inside(&self, e: &mut Emit<'a>, f: AtPoint<'_, 'a>) {
        let index: Vec<Index> = self.u.index.iter().map(|&i| e.index(i)).collect();
        let guards = if self.u.proven { Vec::new() } else { e.guards(self.u.target, &index) };
        if guards.is_empty() {
            return f(e, &index);
        }
        let mut all = guards.iter().map(|g| g.1.clone());
        let first = all.next().expect("there is a guard");
        let cond = all.fold(first, and);
        let (target, span) = (self.u.target, self.u.span);
        e.if_else(cond, |e| f(e, &index), |e| e.report(target, &index, guards, FaultKind::Write, span));
    }

    pub fn combine(&self) -> Option<Combine> {
        match self.u.op {
            UpdateOp::Set => None,
            UpdateOp::Add => Some(Combine::Builtin(Monoid::Sum)),
            UpdateOp::Max => Some(Combine::Builtin(Monoid::Max)),
            UpdateOp::Min => Some(Combine::Builtin(Monoid::Min)),
        }
    }

    /// The register type of values and of elements.
    pub fn ty(&self, g: &Graph) -> Ty {
        Ty::of(g.tensor(self.u.target).dtype.compute())
    }

    /// The value in the target's compute type.
    pub fn value(&self, e: &mut Emit<'a>) -> Num {
        let dtype = e.graph.tensor(self.u.target).dtype;
        let n = match self.u.op {
            UpdateOp::Set => e.stored_value(dtype, self.u.value),
            _ => {
                let n = e.num(self.u.value);
                e.rounded(dtype.compute().stored(), n)
            }
        };
        Num { expr: e.named("v", n.ty, n.expr), ty: n.ty }
    }

    fn direct(&self, cx: &mut Lowering<'a>) -> Result<(), Refusal> {
        self.points(cx, &mut |e, index| {
            let new = self.value(e);
            let new = match self.combine() {
                Some(c) => {
                    let old = self.old(e, index);
                    e.combined(c, old, new)
                }
                None => new,
            };
            e.store(self.u.target, index, new.expr);
        })
    }

    /// The element as it stands in memory.
    pub fn old(&self, e: &mut Emit<'a>, index: &[Index]) -> Num {
        let ty = self.ty(e.graph);
        let at = e.offset(self.u.target, index);
        let p = e.tensor_param(self.u.target, true);
        let v = e.let_var("old", ty, Expr::Load(Mem::Global(p), Box::new(at)));
        Num { expr: Expr::Var(v), ty }
    }

    pub fn atomic(&self) -> AtomicOp {
        match self.u.op {
            UpdateOp::Max => AtomicOp::Max,
            UpdateOp::Min => AtomicOp::Min,
            _ => AtomicOp::Add,
        }
    }

    fn atomics(&self, cx: &mut Lowering<'a>) -> Result<(), Refusal> {
        let op = self.atomic();
        self.points(cx, &mut |e, index| {
            let value = self.value(e).expr;
            let at = e.offset(self.u.target, index);
            let mem = Mem::Global(e.tensor_param(self.u.target, true));
            e.push(Stmt::Atomic { op, mem, index: at, value, old: None });
        })
    }

    // `=` with points that may meet.

    fn last_wins(&self, cx: &mut Lowering<'a>, points: i64) -> Result<(), Refusal> {
        let home = cx.home(self.u.target).clone();
        let narrow = points <= i32::MAX as i64;
        let (dtype, ty) = if narrow { (DType::I32, Ty::I32) } else { (DType::I64, Ty::I64) };
        let winner = cx.workspace(format!("{}_last", self.name), dtype, &[home.len]);
        cx.step(Step::Fill { buffer: winner, byte: 0xff });
        self.points(cx, &mut |e, index| {
            let value = self.number(e, ty);
            let at = e.offset(self.u.target, index);
            let mem = Mem::Global(e.pointer(winner, true));
            e.push(Stmt::Atomic { op: AtomicOp::Max, mem, index: at, value, old: None });
        })?;
        self.points(cx, &mut |e, index| {
            let own = self.number(e, ty);
            let at = e.offset(self.u.target, index);
            let p = e.pointer(winner, false);
            let last = Expr::Load(Mem::Global(p), Box::new(at));
            e.if_then(cmp(CmpOp::Eq, last, own), |e| {
                let v = self.value(e);
                e.store(self.u.target, index, v.expr);
            });
        })
    }

    /// The point's number in row-major order of the axes.
    fn number(&self, e: &mut Emit<'a>, ty: Ty) -> Expr {
        let mut sum = int_of(ty, 0);
        for (&a, &n) in self.u.axes.iter().zip(&self.dims) {
            let v = from_zero(e, a);
            sum = arith(IntOp::Mul, sum, int_of(ty, n));
            sum = arith(IntOp::Add, sum, Num { expr: to(v, ty), ty });
        }
        e.named("point", ty, sum.expr)
    }

    // Sorted by element.

    fn sorted(&self, cx: &mut Lowering<'a>) -> Result<(), Refusal> {
        let split = Split::new(cx, self.u);
        let t = cx.graph.tensor(self.u.target);
        let n = count(&split.dims(&self.dims, &split.keyed), self.u.span, &self.name)?;
        let elements: i64 = split.dest.iter().map(|&d| t.dims[d]).product();
        let wide = elements >= i32::MAX as i64;
        let dtype = if wide { DType::I64 } else { DType::I32 };
        let keys = cx.workspace(format!("{}_keys", self.name), dtype, &[1, n]);
        self.keys(cx, &split, keys, elements)?;
        let bits = i64::BITS - elements.leading_zeros();
        let order = sort_rows(cx, &self.name, keys, (1, n), (bits, None), self.u.span)?;
        if !wide && ranges::takes(n, elements) {
            return self.by_element(cx, &split, ranges::Sorted { keys, order, n, elements });
        }
        self.reduce(cx, &split, (keys, dtype, order), n, elements)
    }

    /// Each keyed point's element (among the dims that are not plain), or `elements` where the point is not taken.
    fn keys(
        &self,
        cx: &mut Lowering<'a>,
        split: &Split,
        keys: BufferId,
        elements: i64,
    ) -> Result<(), Refusal> {
        let dims = split.dims(&self.dims, &split.keyed);
        let dtype = cx.program.buffers[keys.0 as usize].dtype;
        let ty = Ty::of(dtype.compute());
        launch_points(cx, &self.name, &dims, self.u.span, |e, at| {
            let p = e.pointer(keys, true);
            let place = e.kernel.var("key", ty);
            e.push(Stmt::Let(place, int_of(ty, elements).expr));
            let number = linear(at, &dims);
            let number = e.named("point", number.ty, number.expr);
            split.bind(e, &self.u.axes, &split.keyed, at);
            // The plain axes are bound to their first value: neither the condition nor the keyed indices see them.
            split.bind_first(e, &self.u.axes, &self.dims);
            self.taken(e, &mut |e, index| {
                let t = e.graph.tensor(self.u.target);
                let mut key = int_of(ty, 0);
                for &d in &split.dest {
                    let i = Num { expr: to(index[d].num.clone(), ty), ty };
                    key = arith(IntOp::Mul, key, int_of(ty, t.dims[d]));
                    key = arith(IntOp::Add, key, arith(IntOp::Sub, i, int_of(ty, t.lo[d])));
                }
                e.push(Stmt::Set(place, key.expr));
            });
            e.push(Stmt::Store(Mem::Global(p), number, Expr::Var(place)));
        })
    }

    /// A thread for each sorted point and each place of the plain axes; the first point of an element combines all.
    fn reduce(
        &self,
        cx: &mut Lowering<'a>,
        split: &Split,
        (keys, dtype, order): (BufferId, DType, BufferId),
        n: i64,
        elements: i64,
    ) -> Result<(), Refusal> {
        let key_ty = Ty::of(dtype.compute());
        let plain = split.dims(&self.dims, &split.plain);
        let dims = [vec![n], plain].concat();
        launch_points(cx, &self.name, &dims, self.u.span, |e, at| {
            let (p_keys, p_order) = (e.pointer(keys, false), e.pointer(order, false));
            let load = move |e: &mut Emit<'a>, s: Expr| {
                let at = Expr::Load(Mem::Global(p_order), Box::new(s));
                let at = Expr::Var(e.let_var("point", Ty::I32, at));
                let key = Expr::Load(Mem::Global(p_keys), Box::new(at.clone()));
                (at, Expr::Var(e.let_var("key", key_ty, key)))
            };
            let head = Head { split, load: &load, n, elements, key_ty };
            let s = to(at[0].clone(), Ty::I32);
            let s = e.named("s", Ty::I32, s);
            self.element(e, &head, s, &at[1..]);
        })
    }

    /// If the sorted place `s` is the first of its element: combines the element's points and stores.
    fn element(&self, e: &mut Emit<'a>, head: &Head<'_, 'a>, s: Expr, plain: &[Num]) {
        let (_, key) = (head.load)(e, s.clone());
        let first = e.let_var("first", Ty::Bool, Expr::Lit(Value::Bool(true)));
        e.if_then(cmp(CmpOp::Gt, s.clone(), lit32(0)), |e| {
            let (_, before) = (head.load)(e, add(s.clone(), lit32(-1)));
            e.push(Stmt::Set(first, cmp(CmpOp::Ne, before, key.clone())));
        });
        let real = cmp(CmpOp::Lt, key.clone(), int_of(head.key_ty, head.elements).expr);
        e.if_then(and(Expr::Var(first), real), |e| self.segment(e, head, s, key, plain));
    }

    fn segment(&self, e: &mut Emit<'a>, head: &Head<'_, 'a>, s: Expr, key: Expr, plain: &[Num]) {
        let index = self.element_index(e, head, key.clone(), plain);
        let ty = self.ty(e.graph);
        let old = self.old(e, &index);
        let acc = e.let_var("acc", ty, old.expr);
        let at = e.let_var("i", Ty::I32, s);
        let go = e.let_var("go", Ty::Bool, Expr::Lit(Value::Bool(true)));
        let body = e.block(|e| {
            // Points of one element in pieces, so that no chain of additions is long.
            let part = self.combine().map(|c| {
                let unit = e.unit(c, e.graph.tensor(self.u.target).dtype.compute(), ty);
                e.let_var("part", ty, unit)
            });
            let stop = e.let_var(
                "stop",
                Ty::I32,
                int_op(IntOp::Min, add(Expr::Var(at), lit32(512)), lit32(head.n as i32)),
            );
            let inner = e.block(|e| {
                let (point, own) = (head.load)(e, Expr::Var(at));
                let same = cmp(CmpOp::Eq, own, key.clone());
                e.if_else(
                    same,
                    |e| {
                        self.take(e, head, point, plain, part.unwrap_or(acc));
                        e.push(Stmt::Set(at, add(Expr::Var(at), lit32(1))));
                    },
                    |e| e.push(Stmt::Set(go, Expr::Lit(Value::Bool(false)))),
                );
            });
            let more = and(Expr::Var(go), cmp(CmpOp::Lt, Expr::Var(at), Expr::Var(stop)));
            e.push(Stmt::While { cond: more, body: inner });
            if let (Some(c), Some(part)) = (self.combine(), part) {
                let (a, b) = (Num { expr: Expr::Var(acc), ty }, Num { expr: Expr::Var(part), ty });
                let v = e.combined(c, a, b);
                e.push(Stmt::Set(acc, v.expr));
            }
        });
        let more = and(Expr::Var(go), cmp(CmpOp::Lt, Expr::Var(at), lit32(head.n as i32)));
        e.push(Stmt::While { cond: more, body });
        e.store(self.u.target, &index, Expr::Var(acc));
    }

    /// Combines one point's value into `acc`.
    pub fn take(&self, e: &mut Emit<'a>, head: &Head<'_, 'a>, point: Expr, plain: &[Num], acc: VarId) {
        let ty = self.ty(e.graph);
        let dims = head.split.dims(&self.dims, &head.split.keyed);
        let at = super::map::decode(e, Num { expr: point, ty: Ty::I32 }, &dims);
        head.split.bind(e, &self.u.axes, &head.split.keyed, &at);
        head.split.bind(e, &self.u.axes, &head.split.plain, plain);
        let v = self.value(e);
        let new = match self.combine() {
            Some(c) => e.combined(c, Num { expr: Expr::Var(acc), ty }, v),
            None => v,
        };
        e.push(Stmt::Set(acc, new.expr));
    }

    /// The target's index from a key and the plain axes' coordinates.
    pub fn element_index(
        &self,
        e: &mut Emit<'a>,
        head: &Head<'_, 'a>,
        key: Expr,
        plain: &[Num],
    ) -> Vec<Index> {
        let t = e.graph.tensor(self.u.target);
        let dest: Vec<i64> = head.split.dest.iter().map(|&d| t.dims[d]).collect();
        let at = super::map::decode(e, Num { expr: key, ty: head.key_ty }, &dest);
        let mut index: Vec<Option<Num>> = vec![None; t.dims.len()];
        for (&d, n) in head.split.dest.iter().zip(at) {
            index[d] = Some(arith(IntOp::Add, n.clone(), int_of(n.ty, t.lo[d])));
        }
        for (d, slot) in index.iter_mut().enumerate() {
            if slot.is_none()
                && let Node::Axis(a) = e.graph.expr(self.u.index[d])
            {
                let pos = self.u.axes.iter().position(|b| b == a);
                let k = head.split.plain.iter().position(|&p| Some(p) == pos);
                let lo = e.graph.axis_range(*a).map_or(0, |r| r.0);
                *slot = k.map(|k| arith(IntOp::Add, plain[k].clone(), int_of(plain[k].ty, lo)));
            }
        }
        index
            .into_iter()
            .enumerate()
            .map(|(d, n)| Index {
                num: n.unwrap_or_else(|| int_of(Ty::I32, t.lo[d])),
                range: Interval::new(t.lo[d], t.lo[d] + t.dims[d] - 1),
            })
            .collect()
    }
}

/// What finds the elements of sorted points.
pub(super) struct Head<'s, 'a> {
    pub split: &'s Split,
    pub load: &'s dyn Fn(&mut Emit<'a>, Expr) -> (Expr, Expr),
    pub n: i64,
    pub elements: i64,
    pub key_ty: Ty,
}

/// The statement's axes in two: those that the element depends on in a way that needs sorting, and plain ones.
pub(super) struct Split {
    /// Positions in the statement's axes.
    keyed: Vec<usize>,
    pub plain: Vec<usize>,
    /// Dims of the target that are not indexed by a plain axis.
    dest: Vec<usize>,
}

impl Split {
    fn new(cx: &Lowering<'_>, u: &Update) -> Split {
        let graph = cx.graph;
        let plain: Vec<usize> =
            (0..u.axes.len()).filter(|&p| is_plain(graph, &cx.facts, u, u.axes[p])).collect();
        let keyed = (0..u.axes.len()).filter(|p| !plain.contains(p)).collect();
        let by_plain = |id: ExprId| match graph.expr(id) {
            Node::Axis(a) => plain.iter().any(|&p| u.axes[p] == *a),
            _ => false,
        };
        let dest = (0..u.index.len()).filter(|&d| !by_plain(u.index[d])).collect();
        Split { keyed, plain, dest }
    }

    pub fn dims(&self, dims: &[i64], positions: &[usize]) -> Vec<i64> {
        positions.iter().map(|&p| dims[p]).collect()
    }

    fn bind(&self, e: &mut Emit<'_>, axes: &[AxisId], positions: &[usize], at: &[Num]) {
        let axes: Vec<AxisId> = positions.iter().map(|&p| axes[p]).collect();
        bind_axes(e, &axes, at);
    }

    fn bind_first(&self, e: &mut Emit<'_>, axes: &[AxisId], dims: &[i64]) {
        let zeros: Vec<Num> = self.plain.iter().map(|&p| int_of(Ty::I32, 0.min(dims[p]))).collect();
        self.bind(e, axes, &self.plain, &zeros);
    }
}

/// Whether an axis indexes one dim on its own, inside it, and neither another dim nor the condition.
fn is_plain(graph: &Graph, facts: &super::index::Facts<'_>, u: &Update, axis: AxisId) -> bool {
    let own: Vec<usize> = (0..u.index.len())
        .filter(|&d| matches!(graph.expr(u.index[d]), Node::Axis(a) if *a == axis))
        .collect();
    let [own] = own[..] else { return false };
    let t = graph.tensor(u.target);
    let range = facts.axis(axis);
    let fits = range.lo >= t.lo[own] && range.hi < t.lo[own] + t.dims[own];
    let elsewhere = u
        .index
        .iter()
        .enumerate()
        .filter(|&(d, _)| d != own)
        .map(|(_, &i)| i)
        .chain(u.cond)
        .any(|id| facts.free(id).contains(&axis));
    fits && !elsewhere
}

fn from_zero(e: &Emit<'_>, axis: AxisId) -> Num {
    let lo = e.graph.axis_range(axis).map_or(0, |r| r.0);
    let v = e.axis_value(axis).cloned().unwrap_or_else(|| int_of(Ty::I32, lo));
    arith(IntOp::Sub, v.clone(), int_of(v.ty, lo))
}

pub(super) fn linear(at: &[Num], dims: &[i64]) -> Num {
    let total: i64 = dims.iter().product();
    let ty = if total <= i32::MAX as i64 { Ty::I32 } else { Ty::I64 };
    let mut sum = int_of(ty, 0);
    for (n, &d) in at.iter().zip(dims) {
        sum = arith(IntOp::Mul, sum, int_of(ty, d));
        sum = arith(IntOp::Add, sum, Num { expr: to(n.clone(), ty), ty });
    }
    sum
}

/// A thread for each element of a tensor (for packed buffers: for each byte, whose elements it takes in turn).
pub fn each_element<'a>(
    cx: &mut Lowering<'a>,
    name: &str,
    tensor: TensorId,
    f: impl Fn(&mut Emit<'a>, &[Index]),
) -> Result<(), Refusal> {
    let t = cx.graph.tensor(tensor);
    let index = |at: &[Num]| -> Vec<Index> {
        at.iter()
            .enumerate()
            .map(|(d, n)| Index {
                num: arith(IntOp::Add, n.clone(), int_of(n.ty, t.lo[d])),
                range: Interval::new(t.lo[d], t.lo[d] + t.dims[d] - 1),
            })
            .collect()
    };
    if cx.home(tensor).dtype.bits() != 4 || t.dims.is_empty() {
        return launch_points(cx, name, &t.dims, t.span, |e, at| f(e, &index(at)));
    }
    let mut dims = t.dims.clone();
    let extent = dims.pop().expect("a packed tensor of rank 0 is taken above");
    dims.push((extent + 1) / 2);
    launch_points(cx, name, &dims, t.span, |e, at| {
        for lane in 0..2 {
            let mut at = at.to_vec();
            let byte = at.pop().expect("the dims have a last one");
            let n = arith(IntOp::Mul, byte.clone(), int_of(byte.ty, 2));
            let n = arith(IntOp::Add, n, int_of(byte.ty, lane));
            let n = Num { expr: e.named("at", n.ty, n.expr), ty: n.ty };
            let inside = cmp(CmpOp::Lt, n.expr.clone(), int_of(n.ty, extent).expr);
            at.push(n);
            match lane {
                0 => e.scope(|e| f(e, &index(&at))),
                _ => e.if_then(inside, |e| f(e, &index(&at))),
            }
        }
    })
}

/// Copies a tensor's elements to a tensor of the same shape and dtype with another layout.
pub fn copy(cx: &mut Lowering<'_>, name: &str, from: TensorId, to: TensorId) -> Result<(), Refusal> {
    let from = cx.home(from).clone();
    copy_from(cx, name, &from, to)
}

/// As `copy`, from a home of no tensor.
pub fn copy_from(cx: &mut Lowering<'_>, name: &str, from: &home::Home, to: TensorId) -> Result<(), Refusal> {
    each_element(cx, name, to, |e, index| {
        let at = e.offset_in(from, to, index);
        let p = e.pointer(from.buffer, false);
        e.store(to, index, Expr::Load(Mem::Global(p), Box::new(at)));
    })
}

/// Whether a layout has no gaps, so that whole buffers may be copied over it.
pub fn is_contiguous(graph: &Graph, home: &home::Home, tensor: TensorId) -> bool {
    let t = graph.tensor(tensor);
    home.strides == home::contiguous(t.dtype, &t.dims)
}
