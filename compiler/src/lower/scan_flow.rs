//! Where a scan's terms come from and its results go: vectors of tensors.

use super::home::Home;
use super::index::Facts;
use super::map;
use super::read::Index;
use super::row_layout::{vector_read, vector_write};
use super::scalar::{Emit, Num, arith, int_of, lit32};
use super::scan::Shape;
use super::scan_before::Here;
use super::scan_block::{Flow, Layout};
use crate::ir::graph::{AxisId, Expr as Node, ExprId, Graph};
use crate::ir::simt::{ArrayId, Expr, IntOp, Mem, Stmt, Ty};

/// A read that comes in vectors.
struct Loaded {
    expr: ExprId,
    read: crate::ir::graph::Read,
    array: ArrayId,
    /// Elements of one load.
    chunk: i64,
}

/// The scan's own terms and results.
pub(super) struct Vectors<'s, 'a> {
    shape: &'s Shape<'a>,
    width: i64,
    loaded: Vec<Loaded>,
    /// For each thing stored: an array, and the elements of one store, if it can be in vectors.
    outs: Vec<Option<(ArrayId, i64)>>,
    valid: Option<Expr>,
}

impl<'s, 'a> Vectors<'s, 'a> {
    pub fn new(
        shape: &'s Shape<'a>,
        e: &mut Emit<'a>,
        layout: &Layout,
        valid: Option<Expr>,
    ) -> Vectors<'s, 'a> {
        let graph = e.graph;
        let along = shape.axes[shape.along];
        let width = layout.width;
        let mut loaded = Vec::new();
        for (expr, read) in shape.reads(graph) {
            if let Some(chunk) = loadable(e, expr, &read, shape.axes, along, width) {
                let name = graph.tensor(read.tensor).name.clone();
                let len = (layout.vectors * width) as u32;
                let array = e.kernel.array(format!("in_{name}"), Ty::of(graph.ty(expr)), len);
                loaded.push(Loaded { expr, read, array, chunk });
            }
        }
        let outs = shape
            .outs()
            .into_iter()
            .map(|(t, own)| {
                let home = e.home(t);
                let chunk = vector_write(graph, &home, t, own, &[own[shape.along]], width)?;
                let ty = Ty::of(graph.tensor(t).dtype.compute());
                Some((e.kernel.array(format!("out_{}", graph.tensor(t).name), ty, width as u32), chunk))
            })
            .collect();
        Vectors { shape, width, loaded, outs, valid }
    }
}

/// Elements of one load, if a read at these axes may come in vectors of `width` along one of them, wherever its value is
/// wanted.
pub(super) fn loadable(
    e: &Emit<'_>,
    expr: ExprId,
    read: &crate::ir::graph::Read,
    axes: &[AxisId],
    along: AxisId,
    width: i64,
) -> Option<i64> {
    chunk_of(e.graph, &e.facts, &e.home(read.tensor), (expr, read), axes, along, width)
}

/// The same, before there is an emitter.
pub(super) fn chunk_of(
    graph: &Graph,
    facts: &Facts<'_>,
    home: &Home,
    (expr, read): (ExprId, &crate::ir::graph::Read),
    axes: &[AxisId],
    along: AxisId,
    width: i64,
) -> Option<i64> {
    let plain = facts.free(expr).contains(&along)
        && crate::pass::bounds::read_is_safe(graph, read)
        && read.index.iter().all(|&i| !facts.may_fault(i) && is_plain(graph, i, axes));
    if !plain {
        return None;
    }
    vector_read(graph, home, read, &[along], width)
}

/// Free of reads and folds, and of axes other than these.
pub(super) fn is_plain(graph: &Graph, id: ExprId, axes: &[AxisId]) -> bool {
    crate::pass::inline::below(graph, id).iter().all(|&x| match graph.expr(x) {
        Node::Read(_) | Node::Fold(_) => false,
        Node::Axis(a) => axes.contains(a),
        _ => true,
    })
}

fn point(first: &Num, i: i64) -> Num {
    arith(IntOp::Add, first.clone(), int_of(first.ty, i))
}

impl Vectors<'_, '_> {
    /// The position of a vector's first element in memory.
    fn lowest(&self, first: &Num) -> Num {
        if self.shape.backwards() { point(first, self.width - 1) } else { first.clone() }
    }

    /// Where the `i`-th point of a vector stands in memory.
    fn in_memory(&self, i: i64) -> i64 {
        if self.shape.backwards() { self.width - 1 - i } else { i }
    }
}

impl<'a> Flow<'a> for Vectors<'_, 'a> {
    fn load(&self, e: &mut Emit<'a>, first: &Num, vector: i64) {
        self.shape.bind_along(e, &self.lowest(first));
        for l in &self.loaded {
            let index: Vec<Index> = l.read.index.iter().map(|&i| e.index(i)).collect();
            let offset = e.offset(l.read.tensor, &index);
            let ty = e.home(l.read.tensor).index_ty();
            let offset = e.named("from", ty, offset);
            let mem = Mem::Global(e.tensor_param(l.read.tensor, false));
            for c in 0..self.width / l.chunk {
                let index = arith(IntOp::Add, Num { expr: offset.clone(), ty }, int_of(ty, c * l.chunk)).expr;
                let at = (vector * self.width + c * l.chunk) as u32;
                e.push(Stmt::LoadVec { array: l.array, at, mem, index, count: l.chunk as u32 });
            }
        }
    }

    fn terms(&self, e: &mut Emit<'a>, first: &Num, vector: i64, items: &[ArrayId]) {
        for i in 0..self.width {
            let slot = lit32((vector * self.width + i) as i32);
            let from = lit32((vector * self.width + self.in_memory(i)) as i32);
            let known: Vec<(ExprId, Expr)> =
                self.loaded.iter().map(|l| (l.expr, Expr::Elem(l.array, Box::new(from.clone())))).collect();
            let set = |e: &mut Emit<'a>, v: Vec<Expr>| {
                items.iter().zip(v).for_each(|(&a, v)| e.push(Stmt::SetElem(a, slot.clone(), v)));
            };
            if self.shape.roots().0.is_some() {
                let unit = self.shape.algebra(e).unit;
                set(e, unit);
            }
            self.shape.term(e, &point(first, i), &known, &set);
        }
    }

    fn results(&self, e: &mut Emit<'a>, first: &Num, vector: i64, items: &[ArrayId], before: &Expr) {
        let result = *items.last().expect("an algebra has a component");
        let work = |e: &mut Emit<'a>| {
            let value = |i: i64| Expr::Elem(result, Box::new(lit32((vector * self.width + i) as i32)));
            self.shape.note(e, &(0..self.width).map(value).collect::<Vec<_>>());
            for i in 0..self.width {
                let ahead = if i == 0 { before.clone() } else { value(i - 1) };
                let here = Here { value: value(i), before: self.shape.looks_before.then_some(ahead) };
                let slot_of = lit32(self.in_memory(i) as i32);
                self.shape.finish(e, &point(first, i), here, &|e, slot, n| match self.outs[slot] {
                    Some((array, _)) => e.push(Stmt::SetElem(array, slot_of.clone(), n.expr)),
                    None => self.shape.store_here(e, slot, n),
                });
            }
            self.shape.bind_along(e, &self.lowest(first));
            for ((target, axes), out) in self.shape.outs().into_iter().zip(&self.outs) {
                let Some((array, chunk)) = *out else { continue };
                let index = map::own_index(e, target, axes);
                let offset = e.offset(target, &index);
                let ty = e.home(target).index_ty();
                let offset = e.named("to", ty, offset);
                let mem = Mem::Global(e.tensor_param(target, true));
                for c in 0..self.width / chunk {
                    let index =
                        arith(IntOp::Add, Num { expr: offset.clone(), ty }, int_of(ty, c * chunk)).expr;
                    e.push(Stmt::StoreVec { mem, index, array, at: (c * chunk) as u32, count: chunk as u32 });
                }
            }
        };
        match self.valid.clone() {
            Some(valid) => e.if_then(valid, work),
            None => e.scope(work),
        }
    }
}
