//! What a kernel costs in the model: its launch, and the larger of the time to move its bytes and the time to do its
//! work.
//!
//! Every value that a kernel reads or writes counts once, of a tensor only the part that it looks at; a row that
//! several passes read and that no block can hold counts once a pass. Work is counted where it is done: a row's
//! reductions once a row, a contraction's sums at the rate of its instruction, the operands it computes once for each
//! tile that needs them, anything else at every point.

use super::cost;
use super::facts::{self, Facts};
use super::rows;
use crate::ir::graph::*;
use crate::ir::plan::Form;
use crate::lower::contract_pattern::{self, ContractShape, Contraction, Factor};
use crate::lower::{contract_codes, contract_phases};
use crate::vocab::dtype::DType;
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet};

/// Microseconds of one kernel.
pub fn kernel(g: &Graph, facts: &mut Facts, stmts: &[usize], form: Form) -> f64 {
    let bytes = traffic(g, facts, stmts);
    let seconds = match form {
        Form::Contract => contract(g, facts, stmts, bytes),
        Form::Fold => fold(g, facts, stmts, bytes),
        Form::Row => row(g, facts, stmts, bytes),
        _ => None,
    };
    (cost::LAUNCH + seconds.unwrap_or_else(|| points(g, facts, stmts, bytes))) * 1e6
}

/// Bytes that a kernel reads and that it writes.
#[derive(Clone, Copy)]
struct Traffic {
    read: f64,
    written: f64,
}

fn traffic(g: &Graph, facts: &mut Facts, stmts: &[usize]) -> Traffic {
    let own: BTreeSet<TensorId> = stmts.iter().flat_map(|&s| g.stmts[s].targets()).collect();
    let mut parts: BTreeMap<TensorId, f64> = BTreeMap::new();
    let mut seen = FxHashSet::default();
    for e in stmts.iter().flat_map(|&s| facts::roots(&g.stmts[s])) {
        let mut stack = vec![e];
        while let Some(x) = stack.pop() {
            if !seen.insert(x) {
                continue;
            }
            if let Expr::Read(r) = g.expr(x)
                && !own.contains(&r.tensor)
            {
                *parts.entry(r.tensor).or_default() += touched(g, facts, r);
            }
            stack.extend(g.children(x));
        }
    }
    let read = parts.into_iter().map(|(t, points)| stored_bytes(g, t, points.min(size(g, t)))).sum();
    let written = own.into_iter().map(|t| stored_bytes(g, t, size(g, t))).sum();
    Traffic { read, written }
}

fn size(g: &Graph, t: TensorId) -> f64 {
    g.tensor(t).dims.iter().map(|&n| n as f64).product()
}

fn stored_bytes(g: &Graph, t: TensorId, points: f64) -> f64 {
    points * g.tensor(t).dtype.bits() as f64 / 8.0
}

/// Elements of its tensor that a read looks at, at most.
fn touched(g: &Graph, facts: &mut Facts, r: &Read) -> f64 {
    let dims = g.tensor(r.tensor).dims.clone();
    let along = |(&n, &i): (&i64, &ExprId)| -> f64 {
        let free: Vec<AxisId> = facts.free(g, i).iter().copied().collect();
        facts::volume(g, &free).min(n as f64)
    };
    dims.iter().zip(&r.index).map(along).product()
}

/// How much of the device so many threads keep busy.
fn busy(threads: f64) -> f64 {
    (threads / cost::BUSY_THREADS).clamp(1.0 / cost::BUSY_THREADS, 1.0)
}

/// A thread a point, whatever the form: everything is evaluated there.
fn points(g: &Graph, facts: &mut Facts, stmts: &[usize], bytes: Traffic) -> f64 {
    let (mut work, mut threads, mut serial) = (0.0, 1.0f64, 0.0f64);
    for &s in stmts {
        let axes = match &g.stmts[s] {
            Stmt::Recur(r) => r.members.first().map_or_else(Vec::new, |d| d.axes.clone()),
            s => super::sites::stmt_axes(s),
        };
        let n = facts::volume(g, &axes);
        threads = threads.max(n);
        for e in facts::roots(&g.stmts[s]) {
            work += n * facts.work(g, e);
            serial = serial.max(longest_loop(g, e));
        }
    }
    let part = busy(threads);
    let moved = cost::memory(bytes.read + bytes.written) / part;
    moved.max(cost::compute(work) / part).max(serial * cost::SERIAL)
}

/// Terms of the longest nest of loops that one point runs.
fn longest_loop(g: &Graph, e: ExprId) -> f64 {
    let outer = super::inline::outer_folds(g, e);
    let nest = |f: &ExprId| match g.expr(*f) {
        Expr::Fold(fold) => facts::volume(g, &fold.axes) * longest_loop(g, fold.body).max(1.0),
        _ => 1.0,
    };
    outer.iter().map(nest).fold(0.0, f64::max)
}

/// A block (or part of one) a row: its reductions are made once.
fn row(g: &Graph, facts: &mut Facts, stmts: &[usize], bytes: Traffic) -> Option<f64> {
    let found = rows::analyse(g, facts, stmts).ok()?;
    let once: BTreeSet<ExprId> = found.members.iter().flat_map(|m| &m.folds).map(|f| f.expr).collect();
    let rows = found.count();
    let mut work = 0.0;
    for &f in &once {
        let Expr::Fold(fold) = g.expr(f) else { continue };
        let each: f64 = fold.cond.into_iter().chain([fold.body]).map(|e| work_above(g, e, &once)).sum();
        work += rows * facts::volume(g, &fold.axes) * (each + 1.0);
    }
    for m in &found.members {
        let Stmt::Define(d) = &g.stmts[m.stmt] else { continue };
        work += facts::volume(g, &d.axes) * work_above(g, d.value, &once);
    }
    let length = rows::row_points(g, &found);
    let mapped = found.members.iter().any(|m| facts::volume(g, &m.inner) > 1.0);
    let passes = (found.levels() + usize::from(mapped)).max(1) as f64;
    let reads = if length <= cost::RESIDENT { 1.0 } else { passes };
    // Long rows that are reduced in one pass are split over blocks.
    let split = passes <= 1.0 && length >= cost::SPLIT_ROW;
    let most = match split {
        true => cost::BUSY_THREADS,
        false if rows::few_columns(g, facts, &found) => 32.0,
        false => 1024.0,
    };
    let lanes = (length / 8.0).clamp(1.0, most);
    let part = busy(rows * lanes);
    let moved = cost::memory(bytes.read * reads + bytes.written) / part;
    Some(moved.max(cost::compute(work) / part).max(length / lanes * passes * cost::SERIAL))
}

/// Work of one evaluation, without some folds that are made elsewhere.
fn work_above(g: &Graph, e: ExprId, without: &BTreeSet<ExprId>) -> f64 {
    let mut seen = FxHashSet::default();
    let mut stack = vec![e];
    let mut total = 0.0;
    while let Some(x) = stack.pop() {
        if without.contains(&x) || !seen.insert(x) {
            continue;
        }
        if let Expr::Fold(f) = g.expr(x) {
            let each: f64 = f.cond.into_iter().chain([f.body]).map(|e| work_above(g, e, without)).sum();
            total += facts::volume(g, &f.axes) * (each + 1.0);
        } else {
            total += facts::own_work(g.expr(x));
            stack.extend(g.children(x));
        }
    }
    total
}

/// Terms that a block takes at least where blocks share a sum.
const SHARE: f64 = 512.0;

/// Tiles of the output, each a block's.
fn contract(g: &Graph, facts: &mut Facts, stmts: &[usize], bytes: Traffic) -> Option<f64> {
    let index = crate::lower::index::Facts::new(g);
    let Ok(shape) = contract_pattern::recognise_any(g, &index, stmts) else { return in_phases(g, stmts) };
    let [batch, m, n] = [&shape.batch, &shape.m, &shape.n].map(|d| ContractShape::points(d) as f64);
    let tiles = batch * (m / cost::TILE).ceil() * (n / cost::TILE).ceil();
    // Blocks share a sum where there are few tiles.
    let terms = shape.folds.iter().map(Contraction::terms).max().unwrap_or(1) as f64;
    let blocks = tiles * (terms / SHARE).clamp(1.0, (2.0 * cost::SMS / tiles).max(1.0));
    let part = (blocks / cost::SMS).min(1.0);
    let codes = contract_codes::suits(g, &shape);
    let (mut seconds, mut work, mut slowest) = (0.0, 0.0, 1.0f64);
    for c in shape.folds.iter().map(Contraction::unscaled) {
        let (c, terms) = (&c, c.terms() as f64);
        let (a, b) = (operand(g, &c.a), operand(g, &c.b));
        let computed = a.is_none() || b.is_none();
        let dtype = instruction(g, c, a, b);
        let slowed = if computed && !codes { cost::COMPUTED_OPERAND } else { 1.0 };
        slowest = slowest.min(slowed);
        let mut rate = cost::products(dtype) * if codes { cost::CODES } else { slowed };
        if !share_a(g, &shape) {
            rate *= cost::SEVERAL_SUMS.powi(shape.folds.len() as i32 - 1);
        }
        let pad = |x: f64| if x < 16.0 { 16.0 } else { x };
        seconds += 2.0 * batch * pad(m) * pad(n) * terms / rate / part;
        if !codes {
            work += prologue(g, facts, &c.a, batch * m * terms, n);
            work += prologue(g, facts, &c.b, batch * n * terms, m);
        }
    }
    let sums: BTreeSet<ExprId> = shape.folds.iter().map(|c| c.fold).collect();
    for &s in stmts {
        let Stmt::Define(d) = &g.stmts[s] else { continue };
        work += facts::volume(g, &d.axes) * work_above(g, d.value, &sums);
    }
    let moved = cost::memory(bytes.read + bytes.written) / part / slowest;
    Some(moved.max(seconds + cost::compute(work) / part))
}

/// A sum in phases: a kernel for each.
fn in_phases(g: &Graph, stmts: &[usize]) -> Option<f64> {
    let [s] = stmts[..] else { return None };
    let Stmt::Define(d) = &g.stmts[s] else { return None };
    let phases = contract_phases::split(g, d, "")?;
    let one = |p: &contract_phases::Phase| kernel(&p.plan.graph, &mut Facts::default(), &[0], Form::Contract);
    // The caller counts a launch.
    Some(phases.iter().map(one).sum::<f64>() / 1e6 - cost::LAUNCH)
}

/// Whether two sums read the same matrix as their A, as it lies: then one instruction makes both.
fn share_a(g: &Graph, shape: &ContractShape) -> bool {
    let tensor = |c: &Contraction| match c.a.exprs[..] {
        [e] => match g.expr(e) {
            Expr::Read(r) if c.a.guards.is_empty() => Some(r.tensor),
            _ => None,
        },
        _ => None,
    };
    let first = tensor(&shape.folds[0]);
    let plain = |c: &Contraction| operand(g, &c.b).is_some() && tensor(c) == first;
    shape.folds.len() == 2 && first.is_some() && shape.folds.iter().all(plain)
}

/// Two products, one after the other, in blocks of rows.
fn fold(g: &Graph, facts: &mut Facts, stmts: &[usize], bytes: Traffic) -> Option<f64> {
    // Values of its rows that stand beside cost their bytes.
    let Stmt::Define(d) = &g.stmts[*stmts.first()?] else { return None };
    let chain = facts.chain(g, d).ok()?;
    let [rows, inner, terms, columns] = chain.sizes().map(|n| n as f64);
    let batch = ContractShape::points(&chain.outer.batch) as f64;
    let block = if rows <= cost::TILE / 2.0 { cost::TILE / 2.0 } else { cost::TILE };
    let tiles = batch * (rows / block).ceil();
    let padded = (rows / block).ceil() * block;
    // Blocks share the terms where there are few tiles.
    let blocks = tiles * (terms / SHARE).clamp(1.0, (cost::SMS / tiles).max(1.0));
    let part = (blocks / cost::SMS).min(1.0);
    // A block's border adds about a tile's worth of what counts.
    let share = (chain.share() + cost::TILE / terms).min(1.0);
    let products = 2.0 * batch * padded * terms * (inner + columns * chain.pieces as f64) * share;
    let seconds = products / (cost::products(chain.dtype) * cost::CHAINED);
    let moved = cost::memory(bytes.read + bytes.written);
    let again = if chain.strict || blocks > tiles { cost::LAUNCH } else { 0.0 };
    Some(moved.max(seconds) / part + again)
}

/// Work on an operand: each element once for every tile along the other side.
fn prologue(g: &Graph, facts: &mut Facts, f: &Factor, elements: f64, other: f64) -> f64 {
    let work: f64 = f.exprs.iter().filter(|&&e| plain(g, e).is_none()).map(|&e| facts.work(g, e)).sum();
    work * elements * (other / cost::TILE).max(1.0)
}

/// The dtype of an operand that is loaded as it lies; `None` for a computed one.
fn operand(g: &Graph, f: &Factor) -> Option<DType> {
    match f.exprs[..] {
        [e] if f.guards.is_empty() => plain(g, e),
        _ => None,
    }
}

fn plain(g: &Graph, e: ExprId) -> Option<DType> {
    match g.expr(e) {
        Expr::Read(r) => Some(g.tensor(r.tensor).dtype),
        Expr::Cast(a) => plain(g, *a),
        _ => None,
    }
}

/// The wider of what the operands are rounded to.
fn instruction(g: &Graph, c: &Contraction, a: Option<DType>, b: Option<DType>) -> DType {
    let side = |known: Option<DType>, f: &Factor| known.unwrap_or_else(|| rounded(g, f, c));
    let (a, b) = (side(a, &c.a), side(b, &c.b));
    if a.bits() >= b.bits() { a } else { b }
}

/// What a computed operand is rounded to: what its one factor says.
fn rounded(g: &Graph, f: &Factor, c: &Contraction) -> DType {
    match f.exprs[..] {
        [e] => match g.expr(e) {
            Expr::Round(d, ..) => *d,
            Expr::Read(_) | Expr::Cast(_) => plain(g, e).unwrap_or(c.ty.stored()),
            _ => g.ty(e).stored(),
        },
        _ => c.ty.stored(),
    }
}
