//! Operands whose places are a function of a place that the sum's axes move evenly: `x[n, min(max(p + r - 1, 0), H - 1), c]`,
//! `x[n, (p + r - 1)/2, c]`. Loaded element by element such a product is slow, so the operand is copied first, a place for each value of `p + r - 1`; then it is read as any
//! convolution's. Rows that are found through data (`x[token[m], k]`) are copied in the order of their readers, so that boxes
//! can take them.

use super::contract_pattern::{ContractShape, Contraction, Digit, Factor, below};
use super::contract_phases::build;
use super::home::{Home, contiguous};
use super::hopper_gather::{Affine, affine};
use super::{Lowering, Refusal, contract, map};
use crate::ir::graph::*;
use crate::ir::plan::{Form, Plan, PlanKernel};
use crate::ir::program::BufferId;
use crate::pass::subst::Subst;
use girih_dsl::ast::Span;
use std::collections::BTreeMap;

/// Multiply-adds beside which the copy is small, and how many times as large as the tensor it may be.
const LEAST_WORK: f64 = 5e7;
const MOST_COPIED: i64 = 16;
/// Rows and columns from which gathered rows are copied.
const LEAST_SIDE: i64 = 64;

/// A read with other places.
struct Regular {
    read: ExprId,
    of: Read,
    /// For each dim whose index is a function: what it is a function of, and that one's interval.
    inner: Vec<(usize, ExprId, i64, i64)>,
}

/// Lowers a product so, if one of its operands is read like that and it is large.
pub fn lower(
    cx: &mut Lowering<'_>,
    k: &PlanKernel,
    shape: &ContractShape,
    span: Span,
) -> Option<Result<(), Refusal>> {
    let ([s], [c]) = (&k.stmts[..], &shape.folds[..]) else { return None };
    let Stmt::Define(d) = &cx.graph.stmts[*s] else { return None };
    let sides = [&shape.batch, &shape.m, &shape.n];
    let points: f64 = sides.iter().map(|d| ContractShape::points(d) as f64).product();
    if points * (c.terms() as f64) < LEAST_WORK {
        return None;
    }
    let read = |f: &Factor| f.exprs.first().copied().filter(|_| f.exprs.len() == 1 && f.guards.is_empty());
    let evenly = || {
        let found = [&c.a, &c.b].into_iter().find_map(|f| regular(cx, c, read(f)?));
        found.filter(|_| shape.selector.is_none())
    };
    // Rows that are found through data: of the operand that no row chooses.
    let sides = [(&c.a, &shape.m), (&c.b, &shape.n)];
    let mut sides = sides.into_iter().take(if shape.selector.is_some() { 1 } else { 2 });
    let found = sides.find_map(|(f, rows)| gathered(cx, c, d, shape, rows, read(f)?)).or_else(evenly)?;
    let (product, copied) = product(cx.graph, d, &found, &k.name);
    let (before, own) = before(cx.graph, &found, &product.graph, copied, &k.name, span);
    let t = product.graph.tensor(copied);
    let (len, dtype) = (t.dims.iter().product::<i64>(), t.dtype);
    let strides = contiguous(dtype, &t.dims);
    let buffer: BufferId = cx.workspace(format!("{}_{}", k.name, t.name), dtype, &[len]);
    let home = Home { buffer, dtype, strides, len, align: 256, ring: None };
    let from = cx.home(found.of.tensor).clone();
    let done = cx.within(&before, |inner| {
        inner.set_home(own[0], from);
        inner.set_home(own[1], home.clone());
        map::lower(inner, &before.kernels[0])
    });
    if done.is_err() {
        return Some(done);
    }
    Some(cx.within(&product, |inner| {
        inner.parts = None;
        inner.set_home(copied, home);
        contract::lower(inner, &product.kernels[0])
    }))
}

/// The read, if it is one of whole elements some of whose indices are functions of evenly moved ones.
fn regular(cx: &Lowering<'_>, c: &Contraction, id: ExprId) -> Option<Regular> {
    let g = cx.graph;
    let Expr::Read(r) = g.expr(id) else { return None };
    let t = g.tensor(r.tensor);
    let zero = match r.access {
        Access::Proven => true,
        Access::Else(d) => matches!(g.expr(d), Expr::Lit(v) if v.key().1 == 0),
        _ => false,
    };
    if !zero || t.dtype.bits() < 8 || t.range.is_some() || t.dims.contains(&0) {
        return None;
    }
    let mut inner = Vec::new();
    let mut grown = 1i64;
    for (d, &index) in r.index.iter().enumerate() {
        if affine(g, index).is_some() {
            continue;
        }
        // What the rows alone move (`h/4`) needs no copy: it is found once a row.
        let at = argument(g, index)?;
        let terms = affine(g, at)?.axes;
        if !c.k.iter().any(|k| terms.get(&k.axis).is_some_and(|v| *v != 0)) {
            return None;
        }
        let range = cx.facts.interval(at);
        let extent = range.hi.checked_sub(range.lo)?.checked_add(1)?;
        grown = grown.checked_mul((extent + t.dims[d] - 1) / t.dims[d])?;
        inner.push((d, at, range.lo, range.hi));
    }
    (!inner.is_empty() && grown <= MOST_COPIED).then_some(Regular { read: id, of: r.clone(), inner })
}

/// The read, if its rows are found through data where they could be rows of boxes: `x[token[m], k]`.
fn gathered(
    cx: &Lowering<'_>,
    c: &Contraction,
    d: &Define,
    shape: &ContractShape,
    rows: &[Digit],
    id: ExprId,
) -> Option<Regular> {
    let g = cx.graph;
    let Expr::Read(r) = g.expr(id) else { return None };
    let t = g.tensor(r.tensor);
    let good = cx.target.wgmma
        && r.access == Access::Proven
        && matches!(t.dtype.bits(), 8 | 16)
        && t.range.is_none()
        && [&shape.m, &shape.n].iter().all(|d| ContractShape::points(d) >= LEAST_SIDE);
    let data: Vec<usize> = (0..r.index.len()).filter(|&i| reads(g, r.index[i])).collect();
    let ([dim], true) = (&data[..], good) else { return None };
    // One axis of the rows alone finds the place.
    let free = cx.facts.free(r.index[*dim]);
    let mut axes = d.axes.iter().enumerate().filter(|(_, a)| free.contains(a));
    let ((out, &axis), None) = (axes.next()?, axes.next()) else { return None };
    let own = rows.iter().any(|x| x.out == out && x.stride == 1 && x.extent == shape.axes[out].extent);
    let others = r.index.iter().enumerate().filter(|(i, _)| i != dim);
    let still = !c.k.iter().any(|k| free.contains(&k.axis))
        && others.clone().all(|(_, &i)| affine(g, i).is_some() && !cx.facts.free(i).contains(&axis));
    let at =
        below(g, r.index[*dim]).into_iter().find(|&e| matches!(g.expr(e), Expr::Axis(a) if *a == axis))?;
    let (lo, extent) = (shape.axes[out].lo, shape.axes[out].extent);
    let inner = vec![(*dim, at, lo, lo + extent - 1)];
    (own && still).then_some(Regular { read: id, of: r.clone(), inner })
}

/// Whether an index is found by a read.
fn reads(g: &Graph, index: ExprId) -> bool {
    below(g, index).into_iter().any(|e| matches!(g.expr(e), Expr::Read(_)))
}

/// The only even part of an index that has axes.
fn argument(g: &Graph, index: ExprId) -> Option<ExprId> {
    let (mut found, mut todo): (Option<ExprId>, Vec<ExprId>) = (None, vec![index]);
    while let Some(id) = todo.pop() {
        match affine(g, id) {
            Some(a) if a.axes.values().all(|v| *v == 0) => {}
            Some(_) if found.is_some_and(|f| f != id) => return None,
            Some(_) => found = Some(id),
            // Axes elsewhere (in reads, in folds) are none that move evenly.
            None if matches!(g.expr(id), Expr::Call(..) | Expr::Cast(_) | Expr::Select(..)) => {
                todo.extend(g.children(id));
            }
            None => return None,
        }
    }
    found
}

/// The kernel with the operand read where it is copied to.
fn product(graph: &Graph, d: &Define, r: &Regular, name: &str) -> (Plan, TensorId) {
    let mut g = graph.clone();
    let mut t = g.tensor(r.of.tensor).clone();
    t.name = format!("{}_copied", t.name);
    (t.role, t.version) = (Role::Local, 0);
    t.strides.clear();
    let mut read = r.of.clone();
    for &(dim, at, lo, hi) in &r.inner {
        (t.lo[dim], t.dims[dim]) = (lo, hi - lo + 1);
        read.index[dim] = at;
    }
    g.tensors.push(t);
    let copied = TensorId(g.tensors.len() as u32 - 1);
    read.tensor = copied;
    let (ty, span) = (g.ty(r.read), g.span(r.read));
    let read = g.add(Expr::Read(read), ty, span);
    let value = Subst::of_exprs([(r.read, read)]).apply(&mut g, d.value);
    g.stmts = vec![Stmt::Define(Define { target: d.target, axes: d.axes.clone(), value, span: d.span })];
    g.outputs.clear();
    (Plan::of_statement(g, name, Form::Contract), copied)
}

/// The kernel that copies, and its two tensors.
fn before(
    graph: &Graph,
    r: &Regular,
    product: &Graph,
    copied: TensorId,
    name: &str,
    span: Span,
) -> (Plan, [TensorId; 2]) {
    let mut g = graph.clone();
    let mut t = product.tensor(copied).clone();
    let lows = std::mem::replace(&mut t.lo, vec![0; t.dims.len()]);
    let dims = t.dims.clone();
    g.tensors.push(t);
    let target = TensorId(g.tensors.len() as u32 - 1);
    let mut axes = Vec::new();
    let mut read = r.of.clone();
    for (d, &n) in dims.iter().enumerate() {
        let (lo, hi) = (g.int(0), g.int(n));
        let axis = g.new_axis(format!("d{d}"), lo, hi, span);
        axes.push(axis);
        let place = build(&mut g, &Affine { axes: BTreeMap::from([(axis, 1)]), constant: lows[d] });
        read.index[d] = match r.inner.iter().find(|i| i.0 == d) {
            Some(&(_, at, _, _)) => Subst::of_exprs([(at, place)]).apply(&mut g, r.of.index[d]),
            None => place,
        };
    }
    let ty = g.ty(r.read);
    let value = g.add(Expr::Read(read), ty, span);
    g.stmts = vec![Stmt::Define(Define { target, axes, value, span })];
    g.outputs.clear();
    (Plan::of_statement(g, format!("{name}_copy"), Form::Map), [r.of.tensor, target])
}
