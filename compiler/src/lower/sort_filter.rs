//! The first few of a sorted row in one pass: a bound from a sample of the row, then the elements up to the bound.
//!
//! The sample is `GROUPS` runs of neighbours that lie evenly over the row; of each run the least key counts. The bound is
//! one of these, so far up that it is expected to admit more elements than are wanted, and fewer than there is
//! room for. Whether it did is known after the pass: if not, the row is narrowed digit by digit (`sort_select.rs`). Sample,
//! bound and candidates depend on the data alone.

use super::map;
use super::read::{Index, to};
use super::scalar::{Emit, Num, add, arith, cast, cmp, int_of, int_op, lit32, mul};
use super::scan_flow::loadable;
use super::sort_select::{POSITION, Shared, THREADS, load, sort_candidates, store, strided, unsigned};
use crate::ir::graph::{Expr as Node, ExprId, Read, Sort};
use crate::ir::simt::{ArrayId, AtomicOp, CmpOp, Expr, IntOp, Mem, Stmt, Ty, Unroll, VarId};
use crate::vocab::dtype;

/// Runs of the sample, and elements of each.
const GROUPS: i64 = 256;
const RUN: i64 = 16;
/// Vectors that a thread has on their way.
const AHEAD: i64 = 4;

/// A row's keys, vector by vector.
pub struct Keys<'a> {
    sort: &'a Sort,
    /// The row's other coordinates.
    at: Vec<Num>,
    /// Elements that are looked at: the row's, or those of a segment.
    n: i64,
    /// Where the segment begins, and its vectors that are in the row.
    segment: Option<(Expr, Expr)>,
    width: i64,
    loads: Vec<(ExprId, Read, i64)>,
    ty: Ty,
}

impl<'a> Keys<'a> {
    /// `n`: elements of the row.
    pub fn new(e: &Emit<'a>, sort: &'a Sort, at: &[Num], n: i64) -> Keys<'a> {
        let graph = e.graph;
        let along = sort.axes[sort.along];
        let mut all = crate::pass::inline::below(graph, sort.key);
        all.sort();
        all.dedup();
        let reads: Vec<(ExprId, Read)> = all
            .into_iter()
            .filter_map(|x| match graph.expr(x) {
                Node::Read(r) => Some((x, r.clone())),
                _ => None,
            })
            .collect();
        let loads = |v: i64| -> Vec<(ExprId, Read, i64)> {
            let found = reads
                .iter()
                .filter_map(|(x, r)| Some((*x, r.clone(), loadable(e, *x, r, &sort.axes, along, v)?)));
            found.collect()
        };
        let width = [8, 4, 2].into_iter().find(|&v| n % v == 0 && !loads(v).is_empty()).unwrap_or(1);
        let ty = match graph.ty(sort.key) {
            dtype::Ty::F32 => Ty::F32,
            _ => Ty::I32,
        };
        let loads = if width > 1 { loads(width) } else { Vec::new() };
        Keys { sort, at: at.to_vec(), n, segment: None, width, loads, ty }
    }

    /// Those of a segment of the row: `len` elements, a multiple of 8, from `first` on, as far as there are so many.
    pub fn segment(self, e: &mut Emit<'a>, first: Expr, len: i64) -> Keys<'a> {
        let left = super::scalar::sub(lit32(self.n as i32), first.clone());
        let inside = int_op(IntOp::Min, left, lit32(len as i32));
        let vectors = int_op(IntOp::Div, inside, lit32(self.width as i32));
        let vectors = e.named("vectors", Ty::I32, vectors);
        Keys { n: len, segment: Some((first, vectors)), ..self }
    }

    /// Elements that there are.
    pub fn count(&self) -> Expr {
        match &self.segment {
            Some((_, vectors)) => mul(vectors.clone(), lit32(self.width as i32)),
            None => lit32(self.n as i32),
        }
    }

    /// The position of the first in the row.
    pub fn from(&self) -> Expr {
        self.segment.as_ref().map_or(lit32(0), |s| s.0.clone())
    }

    /// A vector that exists, and whether it is the one asked for, if that is in question.
    fn existing(&self, e: &mut Emit<'a>, vector: Expr) -> (Expr, Option<Expr>) {
        let vector = e.named("vector", Ty::I32, vector);
        let Some((_, vectors)) = &self.segment else { return (vector, None) };
        let inside = cmp(CmpOp::Lt, vector.clone(), vectors.clone());
        let inside = e.named("inside", Ty::Bool, inside);
        let last = int_op(IntOp::Min, vector, super::scalar::sub(vectors.clone(), lit32(1)));
        (e.named("vector", Ty::I32, last), Some(inside))
    }

    /// The position in the row of a vector's first element.
    fn first(&self, vector: &Expr) -> Expr {
        let first = mul(vector.clone(), lit32(self.width as i32));
        match &self.segment {
            Some((from, _)) => add(from.clone(), first),
            None => first,
        }
    }

    fn vectors(&self) -> i64 {
        self.n / self.width
    }

    fn arrays(&self, e: &mut Emit<'a>) -> Vec<ArrayId> {
        let width = self.width as u32;
        let array = |(x, _, _): &(ExprId, Read, i64)| e.kernel.array("in", Ty::of(e.graph.ty(*x)), width);
        self.loads.iter().map(array).collect()
    }

    fn coordinates(&self, position: Expr) -> Vec<Num> {
        let mut own = self.at.clone();
        own.insert(self.sort.along, Num { expr: position, ty: Ty::I32 });
        own
    }

    /// Starts the loads of a vector.
    fn load(&self, e: &mut Emit<'a>, vector: &Expr, arrays: &[ArrayId]) {
        let first = e.named("first", Ty::I32, self.first(vector));
        e.scope(|e| {
            map::bind_axes(e, &self.sort.axes, &self.coordinates(first));
            for ((_, read, chunk), &array) in self.loads.iter().zip(arrays) {
                let index: Vec<Index> = read.index.iter().map(|&i| e.index(i)).collect();
                let offset = e.offset(read.tensor, &index);
                let ty = e.home(read.tensor).index_ty();
                let offset = Num { expr: e.named("from", ty, offset), ty };
                let mem = Mem::Global(e.tensor_param(read.tensor, false));
                for c in 0..self.width / chunk {
                    let index = arith(IntOp::Add, offset.clone(), int_of(ty, c * chunk)).expr;
                    let at = (c * chunk) as u32;
                    e.push(Stmt::LoadVec { array, at, mem, index, count: *chunk as u32 });
                }
            }
        });
    }

    /// The key of a vector's `i`-th element, with its position.
    fn key(&self, e: &mut Emit<'a>, vector: &Expr, i: i64, arrays: &[ArrayId]) -> (Expr, Expr) {
        let at = add(self.first(vector), lit32(i as i32));
        let at = e.named("at", Ty::I32, at);
        let key = e.scope(|e| {
            map::bind_axes(e, &self.sort.axes, &self.coordinates(at.clone()));
            for ((x, _, _), &array) in self.loads.iter().zip(arrays) {
                e.bind(*x, Expr::Elem(array, Box::new(lit32(i as i32))));
            }
            let key = e.value(self.sort.key);
            let key = if e.graph.ty(self.sort.key) == dtype::Ty::Bool { cast(Ty::I32, key) } else { key };
            Expr::Var(e.let_var("key", self.ty, key))
        });
        (key, at)
    }

    fn bits(&self, e: &mut Emit<'a>, key: Expr) -> Expr {
        let ty = if self.ty == Ty::F32 { dtype::Ty::F32 } else { dtype::Ty::I32 };
        unsigned(e, key, ty)
    }

    /// The key that has these bits. NaN, to which no key compares, for the bits of NaN.
    fn of_bits(&self, bits: Expr) -> Expr {
        const TOP: u32 = 1 << 31;
        let xor = |b: u32| int_op(IntOp::Xor, bits.clone(), Expr::U32(b));
        if self.ty != Ty::F32 {
            return cast(Ty::I32, xor(TOP));
        }
        let positive = cmp(CmpOp::Ge, bits.clone(), Expr::U32(TOP));
        let plain = Expr::Select(Box::new(positive), Box::new(xor(TOP)), Box::new(xor(u32::MAX)));
        Expr::Bitcast(Ty::F32, Box::new(plain))
    }
}

/// Which of the sample's runs, in order, gives the bound.
fn bound_at(n: i64, places: i64) -> i64 {
    /// So few runs below the bound are chance: fewer elements than are wanted would be admitted too often.
    const SURE: f64 = 9.0;
    // The part of the row that is to be admitted, a little more than is wanted, and of the runs that then have such an
    // element.
    let part = (1.3 * places as f64 / n as f64 + 4.0 / (GROUPS * RUN) as f64).min(1.0);
    let runs = GROUPS as f64 * (1.0 - (1.0 - part).powi(RUN as i32));
    (runs.ceil().max(SURE) as i64).min(GROUPS - 1)
}

/// Leaves all elements up to a bound in `candidates`, padded and sorted, and their number in `count`, which is more than
/// there is room for or fewer than the places if the bound was a bad one.
pub fn filter<'a>(e: &mut Emit<'a>, s: Shared, keys: &Keys<'a>, places: i64, count: VarId, open: VarId) {
    sample(e, s, keys);
    e.push(Stmt::Set(open, lit32(GROUPS as i32)));
    sort_candidates(e, s, open);
    let least = load(s.candidates, lit32(bound_at(keys.n, places) as i32 - 1));
    let bits = int_op(IntOp::Shr, least, super::scalar::lit64(POSITION));
    let bits = Expr::Var(e.let_var("bits", Ty::U32, cast(Ty::U32, bits)));
    let bound = Expr::Var(e.let_var("bound", keys.ty, keys.of_bits(bits)));
    e.push(Stmt::Barrier);
    super::sort_select::clear(e, s);
    e.push(Stmt::Barrier);
    let whole = keys.vectors() / (THREADS * AHEAD) * AHEAD;
    let var = e.kernel.var("turn", Ty::I32);
    let body = e.block(|e| {
        let vectors: Vec<(Expr, Option<Expr>)> = (0..AHEAD)
            .map(|u| {
                let turn = add(Expr::Var(var), lit32(u as i32));
                let v = add(mul(turn, lit32(THREADS as i32)), super::sort_select::thread());
                keys.existing(e, v)
            })
            .collect();
        let arrays: Vec<Vec<ArrayId>> = vectors.iter().map(|_| keys.arrays(e)).collect();
        vectors.iter().zip(&arrays).for_each(|((v, _), a)| keys.load(e, v, a));
        for ((v, inside), a) in vectors.iter().zip(&arrays) {
            match inside {
                Some(inside) => e.if_then(inside.clone(), |e| take(e, s, keys, &bound, v, a)),
                None => take(e, s, keys, &bound, v, a),
            }
        }
    });
    let (lo, hi) = (lit32(0), lit32(whole as i32));
    if whole > 0 {
        e.push(Stmt::For { var, lo, hi, step: lit32(AHEAD as i32), unroll: Unroll::None, body });
    }
    let rest = e.kernel.var("vector", Ty::I32);
    let body = e.block(|e| {
        let arrays = keys.arrays(e);
        keys.load(e, &Expr::Var(rest), &arrays);
        take(e, s, keys, &bound, &Expr::Var(rest), &arrays);
    });
    let lo = add(super::sort_select::thread(), lit32((whole * THREADS) as i32));
    let hi = keys.segment.as_ref().map_or(lit32(keys.vectors() as i32), |s| s.1.clone());
    let step = lit32(THREADS as i32);
    e.push(Stmt::For { var: rest, lo, hi, step, unroll: Unroll::None, body });
    e.push(Stmt::Barrier);
    e.push(Stmt::Set(count, load(s.state, lit32(3))));
    e.push(Stmt::Barrier);
}

/// The least key of each run of the sample, as candidates.
fn sample<'a>(e: &mut Emit<'a>, s: Shared, keys: &Keys<'a>) {
    let apart = keys.vectors() / GROUPS;
    strided(e, lit32(GROUPS as i32), Unroll::Full, |e, group| {
        let least = e.let_var("least", Ty::U32, Expr::U32(u32::MAX));
        let first = mul(group.clone(), lit32(apart as i32));
        let first = e.named("first", Ty::I32, first);
        for v in 0..(RUN / keys.width).clamp(1, apart.max(1)) {
            let (vector, _) = keys.existing(e, add(first.clone(), lit32(v as i32)));
            let arrays = keys.arrays(e);
            keys.load(e, &vector, &arrays);
            for i in 0..keys.width {
                let (key, _) = keys.key(e, &vector, i, &arrays);
                let bits = keys.bits(e, key);
                e.push(Stmt::Set(least, int_op(IntOp::Min, Expr::Var(least), bits)));
            }
        }
        let high = int_op(IntOp::Shl, cast(Ty::I64, Expr::Var(least)), super::scalar::lit64(POSITION));
        let low = to(Num { expr: group.clone(), ty: Ty::I32 }, Ty::I64);
        store(e, s.candidates, group, add(high, low));
    });
    e.push(Stmt::Barrier);
}

/// A vector's elements up to the bound become candidates.
fn take<'a>(e: &mut Emit<'a>, s: Shared, keys: &Keys<'a>, bound: &Expr, vector: &Expr, arrays: &[ArrayId]) {
    let all: Vec<(Expr, Expr)> = (0..keys.width).map(|i| keys.key(e, vector, i, arrays)).collect();
    let under = |key: &Expr| cmp(CmpOp::Le, key.clone(), bound.clone());
    let any = all.iter().map(|(k, _)| under(k)).reduce(|a, b| Expr::Or(Box::new(a), Box::new(b)));
    let any = any.expect("a vector has elements");
    e.if_then(any, |e| {
        for (key, at) in &all {
            e.if_then(under(key), |e| {
                let slot = e.kernel.var("slot", Ty::I32);
                let mem = Mem::Shared(s.state);
                let (index, value, old) = (lit32(3), lit32(1), Some(slot));
                e.push(Stmt::Atomic { op: AtomicOp::Add, mem, index, value, old });
                let room = cmp(CmpOp::Lt, Expr::Var(slot), lit32(s.room as i32));
                e.if_then(room, |e| {
                    let bits = keys.bits(e, key.clone());
                    let high = int_op(IntOp::Shl, cast(Ty::I64, bits), super::scalar::lit64(POSITION));
                    let low = to(Num { expr: at.clone(), ty: Ty::I32 }, Ty::I64);
                    store(e, s.candidates, Expr::Var(slot), add(high, low));
                });
            });
        }
    });
}
