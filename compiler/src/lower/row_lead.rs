//! Row kernels: rows whose elements are one run of memory, but begin anywhere between two aligned places.
//!
//! A vector is 16 bytes from an aligned place. The first one of a row has `lead` elements that belong before the row,
//! the last one may go beyond its end: point 0 is the first vector's element `lead`. All loads and full stores are aligned;
//! points outside the row are left out, which has to be asked in the first and the last rounds only. What is loaded
//! outside the row is other elements of the same tensor.
//!
//! Reads and writes whose rows begin at the same distance from an aligned place take part; others are made element by
//! element.

use super::home::Home;
use super::map;
use super::read::to;
use super::row_layout::reads;
use super::row_pass::{Item, Kind, Pass, Rounds};
use super::row_resident::load_chunks;
use super::row_store::store_chunks;
use super::scalar::{Emit, Num, add, arith, cast, cmp, int_of, lit32};
use super::{Lowering, row, unaligned};
use crate::ir::graph::{Access, AxisId, Define, Expr as Node, ExprId, Graph, Read, TensorId};
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Mem, ParamKind, Stmt, Ty};
use crate::pass::inline::below;
use crate::pass::shape;
use crate::vocab::dtype::{DType, Value};
use std::collections::BTreeMap;

/// Points of the shortest row that is worth it.
const LEAST: i64 = 48;
/// What starts are told apart by: elements of the longest vector.
const MOST: i64 = 8;

/// Where rows begin.
#[derive(Clone, Debug, PartialEq)]
pub struct Lead {
    /// Elements of a vector.
    pub v: i64,
    start: Start,
}

/// The place of a row's first element, as far as it matters: a sum of values times what stands here, modulo `MOST`.
#[derive(Clone, Debug)]
struct Start {
    terms: Vec<(Term, i64)>,
    constant: i64,
    /// Equal keys, equal starts.
    key: String,
}

impl PartialEq for Start {
    fn eq(&self, other: &Start) -> bool {
        self.key == other.key
    }
}

#[derive(Clone, Copy, Debug)]
enum Term {
    Index(ExprId),
    Row(AxisId),
}

/// The start that most reads and writes of these passes have, where vectors of what rows allow (`vector`) are short.
pub fn find(cx: &Lowering<'_>, passes: &[Pass<'_>], vector: i64) -> Option<Lead> {
    let dims = passes.first()?.dims.clone()?;
    let points = row::points(&passes.first()?.dims)?;
    let alike = passes.iter().all(|p| p.dims.as_ref() == Some(&dims) && !p.ordered);
    if !alike || points < LEAST {
        return None;
    }
    let mut found: BTreeMap<String, (usize, u32, u32, Start)> = BTreeMap::new();
    for item in passes.iter().flat_map(|p| &p.items) {
        let mut note = |id: TensorId, start: Option<Start>| {
            let (Some(s), bits) = (start, cx.graph.tensor(id).dtype.bits()) else { return };
            let entry = found.entry(s.key.clone()).or_insert((0, 128, 8, s));
            *entry = (entry.0 + 1, entry.1.min(bits), entry.2.max(bits), entry.3.clone());
        };
        for (_, r) in reads(cx.graph, item) {
            note(r.tensor, of_read(cx.graph, cx.home(r.tensor), item, &r));
        }
        if let Kind::Map { define } = &item.kind {
            note(define.target, of_write(cx.graph, cx.home(define.target), item, define));
        }
    }
    let (_, least, _, start) = found.into_values().max_by_key(|f| f.0)?;
    let v = (128 / least as i64).min(MOST);
    (v > 1 && vector * least as i64 <= 32).then_some(Lead { v, start })
}

/// Elements of one access of a read that begins as the rows do.
pub fn chunk_of_read(lead: &Lead, graph: &Graph, home: &Home, item: &Item<'_>, r: &Read) -> Option<i64> {
    let same = of_read(graph, home, item, r)? == lead.start;
    same.then(|| lead.v.min(128 / graph.tensor(r.tensor).dtype.bits() as i64))
}

/// The same for a definition's own elements.
pub fn chunk_of_write(lead: &Lead, graph: &Graph, home: &Home, item: &Item<'_>, d: &Define) -> Option<i64> {
    let same = of_write(graph, home, item, d)? == lead.start;
    same.then(|| lead.v.min(128 / graph.tensor(d.target).dtype.bits() as i64))
}

/// The same for a read that begins elsewhere: two loads, and shifts.
pub fn any_place(lead: &Lead, graph: &Graph, home: &Home, item: &Item<'_>, r: &Read) -> Option<i64> {
    of_read(graph, home, item, r)?;
    let v = unaligned::width(graph.tensor(r.tensor).dtype, home.len, home.align)?;
    (v <= lead.v).then_some(v)
}

fn of_read(graph: &Graph, home: &Home, item: &Item<'_>, r: &Read) -> Option<Start> {
    if r.access != Access::Proven || graph.tensor(r.tensor).range.is_some() {
        return None;
    }
    let own = |&i: &ExprId| match graph.expr(i) {
        Node::Axis(a) => Some((Term::Row(*a), Some(*a))),
        _ => {
            let moves = |&x: &ExprId| matches!(graph.expr(x), Node::Axis(a) if item.axes.contains(a));
            (!below(graph, i).iter().any(moves)).then_some((Term::Index(i), None))
        }
    };
    let index: Vec<_> = r.index.iter().map(own).collect::<Option<_>>()?;
    start(graph, home, r.tensor, item, &index)
}

fn of_write(graph: &Graph, home: &Home, item: &Item<'_>, d: &Define) -> Option<Start> {
    let index: Vec<_> = d.axes.iter().map(|&a| (Term::Row(a), Some(a))).collect();
    start(graph, home, d.target, item, &index)
}

/// The start of a tensor's row, if the box of the item's axes is one run of its elements.
fn start(
    graph: &Graph,
    home: &Home,
    tensor: TensorId,
    item: &Item<'_>,
    index: &[(Term, Option<AxisId>)],
) -> Option<Start> {
    let t = graph.tensor(tensor);
    let bits = t.dtype.bits() as i64;
    let plain = home.ring.is_none() && home.dtype == t.dtype && bits >= 8 && home.align >= 16;
    if !plain || index.len() != t.dims.len() {
        return None;
    }
    let mut run = 1;
    let mut constant = 0i64;
    for &a in item.axes.iter().rev() {
        let (lo, hi) = graph.axis_range(a)?;
        let mut at = (0..t.dims.len()).filter(|&d| index[d].1 == Some(a));
        let d = at.next()?;
        if at.next().is_some() || hi - lo > 1 && home.strides[d] != run {
            return None;
        }
        constant += (lo - t.lo[d]) * home.strides[d];
        run *= hi - lo;
    }
    let (mut terms, mut keys) = (Vec::new(), Vec::new());
    for (d, &(term, axis)) in index.iter().enumerate() {
        let step = home.strides[d].rem_euclid(MOST);
        if axis.is_some_and(|a| item.axes.contains(&a)) || t.dims[d] <= 1 || step == 0 {
            continue;
        }
        constant -= t.lo[d] * step;
        terms.push((term, step));
        keys.push(match term {
            Term::Row(a) => format!("{:?}*{step}", item.rows.iter().position(|&r| r == a)?),
            Term::Index(i) => format!("{}*{step}", shape::key(graph, i, &item.rows)),
        });
    }
    keys.sort();
    let constant = constant.rem_euclid(MOST);
    Some(Start { terms, constant, key: format!("{keys:?}{constant}") })
}

/// Elements before the row in its first vector.
pub fn value(e: &mut Emit<'_>, lead: &Lead) -> Expr {
    let mut sum = int_of(Ty::I32, lead.start.constant % lead.v);
    let mask = |n: Num, by: i64| {
        let low = Expr::Int(IntOp::And, Box::new(n.expr), Box::new(int_of(n.ty, by - 1).expr));
        Num { expr: to(Num { expr: low, ty: n.ty }, Ty::I32), ty: Ty::I32 }
    };
    for &(term, step) in &lead.start.terms {
        if step % lead.v == 0 {
            continue;
        }
        let n = match term {
            Term::Index(i) => e.index(i).num,
            Term::Row(a) => e.axis_value(a).cloned().unwrap_or_else(|| int_of(Ty::I32, 0)),
        };
        sum = arith(IntOp::Add, sum, arith(IntOp::Mul, mask(n, lead.v), int_of(Ty::I32, step % lead.v)));
    }
    match sum.expr {
        Expr::Lit(_) => sum.expr,
        _ => {
            let low = mask(sum, lead.v).expr;
            e.named("lead", Ty::I32, low)
        }
    }
}

pub fn is_zero(lead: &Expr) -> bool {
    matches!(lead, Expr::Lit(Value::I32(0)))
}

/// Whether a point is in the row.
pub fn inside(rounds: &Rounds, pos: &Num) -> Expr {
    let n = rounds.length();
    if pos.ty == Ty::I32 && n <= i32::MAX as i64 {
        // What is before the row wraps to a large number.
        let at = cast(Ty::U32, pos.expr.clone());
        return Expr::Compare(CmpOp::Lt, Box::new(at), Box::new(Expr::U32(n as u32)));
    }
    let low = cmp(CmpOp::Ge, pos.expr.clone(), int_of(pos.ty, 0).expr);
    super::scalar::and(low, cmp(CmpOp::Lt, pos.expr.clone(), int_of(pos.ty, n).expr))
}

/// The place of the thread's vector in a tensor: the row's first element, and `base`.
fn place(
    e: &mut Emit<'_>,
    item: &Item<'_>,
    base: &Num,
    len: i64,
    first: impl FnOnce(&mut Emit<'_>) -> Expr,
) -> Num {
    let ty = super::home::index_ty(len);
    let zeros: Vec<Num> = item.axes.iter().map(|_| int_of(Ty::I32, 0)).collect();
    map::bind_axes(e, &item.axes, &zeros);
    let first = first(e);
    let first = Num { expr: e.named("start", ty, first), ty };
    let base = Num { expr: to(base.clone(), ty), ty };
    let at = arith(IntOp::Add, first, base);
    Num { expr: e.named("from", ty, at.expr), ty }
}

/// A thread's vector of a read, into an array that may hold two elements a register.
#[allow(clippy::too_many_arguments)]
pub fn load<'a>(
    e: &mut Emit<'a>,
    rounds: &Rounds,
    item: &Item<'a>,
    r: &Read,
    base: &Num,
    array: ArrayId,
    at: i64,
    chunk: i64,
) {
    let home = e.home(r.tensor);
    let from = place(e, item, base, home.len, |e| {
        let index: Vec<_> = r.index.iter().map(|&i| e.index(i)).collect();
        e.offset(r.tensor, &index)
    });
    let ty = from.ty;
    let param = e.tensor_param(r.tensor, false);
    // What this kernel writes may only be read where this row is: the neighbours' elements are other blocks'.
    let own = matches!(e.kernel.params[param.0 as usize].kind, ParamKind::Pointer { written: true, .. });
    let mem = Mem::Global(param);
    let v = rounds.vector;
    let as_rows = rounds.start.as_ref().is_some_and(|l| chunk_of_read(l, e.graph, &home, item, r).is_some());
    if !as_rows && !own {
        return shifted(e, rounds, r, &from, array, at, chunk);
    }
    let vector = |e: &mut Emit<'a>| load_chunks(e, mem, &from, array, at, v, chunk);
    let there = |i: i64| match own {
        true => inside(rounds, &arith(IntOp::Add, base.clone(), int_of(base.ty, i))),
        false => {
            let place = arith(IntOp::Add, from.clone(), int_of(ty, i)).expr;
            cmp(CmpOp::Lt, place, int_of(ty, home.len).expr)
        }
    };
    let singles = |e: &mut Emit<'a>| single_elements(e, r, mem, (&from, v), (array, at), &there);
    match (own, as_rows) {
        (false, _) if !rounds.edge || home.len % v == 0 => vector(e),
        // The tensor's last vector may go beyond its end.
        (false, _) => {
            e.if_else(cmp(CmpOp::Le, from.expr.clone(), int_of(ty, home.len - v).expr), vector, singles)
        }
        (true, true) => e.if_else(whole(rounds, base), vector, singles),
        (true, false) => singles(e),
    }
}

/// `v` elements one by one, those that are `there`.
fn single_elements<'a>(
    e: &mut Emit<'a>,
    r: &Read,
    mem: Mem,
    (from, v): (&Num, i64),
    (array, at): (ArrayId, i64),
    there: &dyn Fn(i64) -> Expr,
) {
    let packed = e.kernel.arrays[array.0 as usize].ty == Ty::U32;
    let words = if packed { 2 } else { 1 };
    let dtype = e.graph.tensor(r.tensor).dtype;
    let element = Ty::of(dtype.compute());
    let zero = super::arith::default_of(element);
    let one = |e: &mut Emit<'a>, i: i64| {
        let x = e.let_var("x", element, zero.clone());
        let place = arith(IntOp::Add, from.clone(), int_of(from.ty, i)).expr;
        e.if_then(there(i), |e| e.push(Stmt::Set(x, Expr::Load(mem, Box::new(place)))));
        Expr::Var(x)
    };
    for i in (0..v).step_by(words as usize) {
        let x = one(e, i);
        let x = if packed { Expr::Pack2(dtype, Box::new(x), Box::new(one(e, i + 1))) } else { x };
        e.push(Stmt::SetElem(array, lit32(((at + i) / words) as i32), x));
    }
}

/// A thread's vector of a read that begins elsewhere than the rows do.
fn shifted(e: &mut Emit<'_>, rounds: &Rounds, r: &Read, from: &Num, array: ArrayId, at: i64, chunk: i64) {
    let dtype = e.graph.tensor(r.tensor).dtype;
    let packed = e.kernel.arrays[array.0 as usize].ty == Ty::U32;
    for c in 0..rounds.vector / chunk {
        let place = arith(IntOp::Add, from.clone(), int_of(from.ty, c * chunk));
        let place = Num { expr: e.named("from", from.ty, place.expr), ty: from.ty };
        let words = unaligned::load(e, r.tensor, &place, chunk, rounds.edge);
        let word = |i: i64| Expr::Elem(words, Box::new(lit32(i as i32)));
        let each = chunk / 4;
        for i in 0..if packed { 4 } else { chunk } {
            let (to, value) = match (packed, each) {
                (true, _) => ((at + c * chunk) / 2 + i, word(i)),
                (_, 2) => (at + c * chunk + i, Expr::Unpack2(dtype, (i % 2) as u8, Box::new(word(i / 2)))),
                _ if dtype == DType::F32 => (at + c * chunk + i, Expr::Bitcast(Ty::F32, Box::new(word(i)))),
                _ => (at + c * chunk + i, cast(Ty::I32, word(i))),
            };
            e.push(Stmt::SetElem(array, lit32(to as i32), value));
        }
    }
}

/// Whether all of a vector is in the row.
pub fn whole(rounds: &Rounds, base: &Num) -> Expr {
    let low = cmp(CmpOp::Ge, base.expr.clone(), int_of(base.ty, 0).expr);
    let high = cmp(CmpOp::Le, base.expr.clone(), int_of(base.ty, rounds.length() - rounds.vector).expr);
    super::scalar::and(low, high)
}

/// Stores a thread's vector of values: at once, or (`edge`) those that are in the row.
pub fn store<'a>(
    e: &mut Emit<'a>,
    rounds: &Rounds,
    item: &Item<'a>,
    d: &Define,
    base: &Num,
    array: ArrayId,
    chunk: i64,
) {
    let home = e.home(d.target);
    let from = place(e, item, base, home.len, |e| {
        let index = map::own_index(e, d.target, &d.axes);
        e.offset(d.target, &index)
    });
    let ty = from.ty;
    let mem = Mem::Global(e.tensor_param(d.target, true));
    let next = |by: i64| arith(IntOp::Add, from.clone(), int_of(ty, by)).expr;
    if !rounds.edge {
        return store_chunks(e, mem, &from, array, rounds.vector, chunk);
    }
    for i in 0..rounds.vector {
        let pos = Num { expr: add(base.expr.clone(), int_of(base.ty, i).expr), ty: base.ty };
        let here = inside(rounds, &pos);
        let x = Expr::Elem(array, Box::new(lit32(i as i32)));
        e.if_then(here, |e| e.push(Stmt::Store(mem, next(i), x)));
    }
}
