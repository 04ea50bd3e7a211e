//! Row kernels: combining what the threads of a row found, in a fixed order.
//!
//! Threads along a row combine by shuffles inside a warp, then through shared memory; threads of a column through
//! shared memory alone. Every thread ends with the result. Functions of the user are combined in the order of the
//! row; for the built-in monoids any fixed order will do.

use super::fold::Acc;
use super::row_cluster::Cluster;
use super::row_layout::Layout;
use super::scalar::{Emit, Num, add, and, arith, cmp, int_of, lit32, mul, not};
use crate::ir::graph::Combine;
use crate::ir::simt::{CmpOp, Expr, IntOp, Mem, ShuffleKind, Special, Stmt, Ty, Unroll};
use crate::vocab::dtype::DType;
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;

/// Where a thread stands: its row in the block, its place in the row.
#[derive(Clone)]
pub struct Lanes {
    pub row: Num,
    /// The thread's place among all of the row's.
    pub lane: Num,
    /// Its place among those of its block.
    own: Num,
    lanes: i64,
    cluster: Option<Cluster>,
    per_block: i64,
    columns: bool,
}

impl Lanes {
    pub fn new(e: &mut Emit<'_>, layout: &Layout) -> Lanes {
        let thread = Num { expr: Expr::Special(Special::ThreadX), ty: Ty::I32 };
        let by = if layout.columns { layout.per_block } else { layout.lanes };
        let quotient = arith(IntOp::Div, thread.clone(), int_of(Ty::I32, by));
        let rest = match by {
            1 => int_of(Ty::I32, 0),
            _ => arith(IntOp::Rem, thread, int_of(Ty::I32, by)),
        };
        let (row, lane) = if layout.columns { (rest, quotient) } else { (quotient, rest) };
        let row = Num { expr: e.named("row_in_block", Ty::I32, row.expr), ty: Ty::I32 };
        let lane = Num { expr: e.named("lane", Ty::I32, lane.expr), ty: Ty::I32 };
        let own = lane.clone();
        let cluster = (layout.cluster > 1).then(|| Cluster::new(e, layout.cluster));
        let lane = cluster.as_ref().map_or(lane, |c| c.lane(e, &own, layout.lanes));
        let Layout { lanes, per_block, columns, .. } = *layout;
        Lanes { row, lane, own, lanes, cluster, per_block, columns }
    }

    /// All threads of a block along x as those of one row.
    pub fn of_block(threads: i64) -> Lanes {
        let lane = Num { expr: Expr::Special(Special::ThreadX), ty: Ty::I32 };
        let row = int_of(Ty::I32, 0);
        let own = lane.clone();
        Lanes { row, lane, own, lanes: threads, cluster: None, per_block: 1, columns: false }
    }

    /// Before the first use of the cluster: what its blocks need of each other.
    pub fn begin(&self, e: &mut Emit<'_>) {
        if let Some(c) = &self.cluster {
            c.begin(e);
        }
    }

    /// The cluster's blocks are all there.
    pub fn meet(&self, e: &mut Emit<'_>) {
        if let Some(c) = &self.cluster {
            c.meet(e);
        }
    }

    /// Combines the accumulators of each row's threads; afterwards every thread of the row holds the result.
    pub fn reduce(&self, e: &mut Emit<'_>, accs: &[Acc]) {
        // A pass of maps alone: its threads need not wait for each other.
        if accs.is_empty() {
            return;
        }
        self.in_block(e, accs);
        if let Some(c) = &self.cluster {
            c.combine(e, accs, &self.own);
        }
    }

    fn in_block(&self, e: &mut Emit<'_>, accs: &[Acc]) {
        if self.lanes == 1 {
            return;
        }
        if self.columns {
            return self.through_shared(e, accs, self.lanes, true);
        }
        accs.iter().for_each(|a| self.in_warp(e, a));
        if self.lanes > 32 {
            self.through_shared(e, accs, self.lanes / 32, false);
        }
    }

    fn in_warp(&self, e: &mut Emit<'_>, acc: &Acc) {
        let width = self.lanes.min(32);
        let ordered = matches!(acc.combine, Combine::Fn(_));
        let mut step = 1;
        while step < width {
            let kind = if ordered { ShuffleKind::Down } else { ShuffleKind::Xor };
            let other = self.shuffled(e, acc, kind, lit32(step as i32));
            combine(e, acc, &other);
            step *= 2;
        }
        if ordered {
            // The first thread has it all, in order.
            let lane = Expr::Special(Special::Lane);
            let first = super::scalar::int_op(IntOp::And, lane, lit32(!(width as i32 - 1)));
            let all = self.shuffled(e, acc, ShuffleKind::Index, first);
            e.push(Stmt::Set(acc.var, all.value));
        }
    }

    fn shuffled(&self, e: &mut Emit<'_>, acc: &Acc, kind: ShuffleKind, lane: Expr) -> Found {
        let value = shuffle(e, acc.ty, Expr::Var(acc.var), kind, &lane);
        let at = acc.at.map(|(at, ty)| shuffle(e, ty, Expr::Var(at), kind, &lane));
        Found { value, at }
    }

    /// `parts` partial results of each row meet in shared memory; every thread combines them in order.
    fn through_shared(&self, e: &mut Emit<'_>, accs: &[Acc], parts: i64, by_thread: bool) {
        let slots: Vec<Slots> = accs.iter().map(|a| Slots::new(e, a, parts * self.per_block)).collect();
        let row = self.row.expr.clone();
        let (place, writes) = if by_thread {
            (add(mul(self.own.expr.clone(), lit32(self.per_block as i32)), row.clone()), None)
        } else {
            let warp = arith(IntOp::Div, self.own.clone(), int_of(Ty::I32, 32));
            let first = cmp(CmpOp::Eq, Expr::Special(Special::Lane), lit32(0));
            (add(mul(row.clone(), lit32(parts as i32)), warp.expr), Some(first))
        };
        let place = e.named("slot", Ty::I32, place);
        let write = |e: &mut Emit<'_>| slots.iter().zip(accs).for_each(|(s, a)| s.write(e, a, &place));
        match writes {
            Some(cond) => e.if_then(cond, write),
            None => write(e),
        }
        e.push(Stmt::Barrier);
        let at = |part: Expr| {
            if by_thread {
                add(mul(part, lit32(self.per_block as i32)), row.clone())
            } else {
                add(mul(row.clone(), lit32(parts as i32)), part)
            }
        };
        for (s, a) in slots.iter().zip(accs) {
            s.take(e, a, &at(lit32(0)));
        }
        let part = e.kernel.var("part", Ty::I32);
        let body = e.block(|e| {
            let from = e.named("from", Ty::I32, at(Expr::Var(part)));
            for (s, a) in slots.iter().zip(accs) {
                let other = s.read(e, &from);
                combine(e, a, &other);
            }
        });
        e.push(Stmt::For {
            var: part,
            lo: lit32(1),
            hi: lit32(parts as i32),
            step: lit32(1),
            unroll: Unroll::Auto,
            body,
        });
    }
}

/// Another thread's partial result.
pub struct Found {
    pub value: Expr,
    pub at: Option<Expr>,
}

/// Shared memory for one accumulator's partial results.
pub struct Slots {
    pub value: crate::ir::simt::SharedId,
    pub at: Option<crate::ir::simt::SharedId>,
    ty: Ty,
    at_ty: Option<Ty>,
}

impl Slots {
    pub fn new(e: &mut Emit<'_>, acc: &Acc, len: i64) -> Slots {
        let value = e.kernel.shared("partials", stored(acc.ty), len as u32, 16);
        let at = acc.at.map(|(_, ty)| e.kernel.shared("places", stored(ty), len as u32, 16));
        Slots { value, at, ty: acc.ty, at_ty: acc.at.map(|a| a.1) }
    }

    fn write(&self, e: &mut Emit<'_>, acc: &Acc, place: &Expr) {
        e.push(Stmt::Store(Mem::Shared(self.value), place.clone(), Expr::Var(acc.var)));
        if let (Some(s), Some((at, _))) = (self.at, acc.at) {
            e.push(Stmt::Store(Mem::Shared(s), place.clone(), Expr::Var(at)));
        }
    }

    pub fn read(&self, e: &mut Emit<'_>, place: &Expr) -> Found {
        let load = |e: &mut Emit<'_>, s, ty| {
            let v = Expr::Load(Mem::Shared(s), Box::new(place.clone()));
            e.named("other", ty, v)
        };
        let value = load(e, self.value, self.ty);
        let at = self.at.zip(self.at_ty).map(|(s, ty)| load(e, s, ty));
        Found { value, at }
    }

    pub fn take(&self, e: &mut Emit<'_>, acc: &Acc, place: &Expr) {
        let f = self.read(e, place);
        e.push(Stmt::Set(acc.var, f.value));
        if let (Some(v), Some((at, _))) = (f.at, acc.at) {
            e.push(Stmt::Set(at, v));
        }
    }
}

fn stored(ty: Ty) -> DType {
    match ty {
        Ty::Bool => DType::Bool,
        Ty::I32 | Ty::U32 => DType::I32,
        Ty::I64 | Ty::U64 => DType::I64,
        Ty::F32 => DType::F32,
        Ty::F64 => DType::F64,
    }
}

pub fn shuffle(e: &mut Emit<'_>, ty: Ty, value: Expr, kind: ShuffleKind, lane: &Expr) -> Expr {
    if ty == Ty::Bool {
        let v = shuffle(e, Ty::I32, Expr::Cast(Ty::I32, Box::new(value)), kind, lane);
        return cmp(CmpOp::Ne, v, lit32(0));
    }
    let var = e.let_var("other", ty, super::arith::default_of(ty));
    e.push(Stmt::Shuffle { var, kind, value, lane: lane.clone() });
    Expr::Var(var)
}

/// Takes another partial result, which stands after this one, into an accumulator.
pub fn combine(e: &mut Emit<'_>, acc: &Acc, other: &Found) {
    let own = Num { expr: Expr::Var(acc.var), ty: acc.ty };
    match (acc.combine, acc.at, &other.at) {
        (Combine::Builtin(m), Some((at, at_ty)), Some(theirs)) => {
            let nowhere = int_of(at_ty, acc.nowhere).expr;
            let key = e.named("key", acc.ty, other.value.clone());
            let cond = wins(m, acc.ty, (&key, theirs), (&own.expr, &Expr::Var(at)), &nowhere);
            let theirs = theirs.clone();
            e.if_then(cond, |e| {
                e.push(Stmt::Set(acc.var, key));
                e.push(Stmt::Set(at, theirs));
            });
        }
        (c, ..) => {
            let v = e.combined(c, own, Num { expr: other.value.clone(), ty: acc.ty });
            e.push(Stmt::Set(acc.var, v.expr));
        }
    }
}

/// Whether a key at its place beats the best so far at its own: the first NaN, else the lowest index of the best.
fn wins(m: Monoid, ty: Ty, new: (&Expr, &Expr), old: (&Expr, &Expr), nowhere: &Expr) -> Expr {
    let (key, place) = (new.0.clone(), new.1.clone());
    let (best, at) = (old.0.clone(), old.1.clone());
    let op = if m == Monoid::ArgMax { CmpOp::Gt } else { CmpOp::Lt };
    let or = |a, b| Expr::Or(Box::new(a), Box::new(b));
    let earlier = cmp(CmpOp::Lt, place.clone(), at.clone());
    let mut better = or(
        cmp(op, key.clone(), best.clone()),
        and(cmp(CmpOp::Eq, key.clone(), best.clone()), earlier.clone()),
    );
    if matches!(ty, Ty::F32 | Ty::F64) {
        let nan = |e: &Expr| Expr::Call(Func::IsNan, vec![e.clone()]);
        let (kn, bn) = (nan(&key), nan(&best));
        let by_nan = and(kn.clone(), or(not(bn.clone()), earlier));
        better = or(by_nan, and(not(kn), and(not(bn), better)));
    }
    let open = cmp(CmpOp::Eq, at, nowhere.clone());
    and(cmp(CmpOp::Ne, place, nowhere.clone()), or(open, better))
}
