//! Form `row`: a group of threads computes the reductions of a row together, then what is mapped over the row.
//!
//! The kernel runs in passes over the row, one for each level of reductions and one for the maps. What several
//! passes read is held in registers where it fits (read once); otherwise each pass reads it again. Threads lie
//! along the row where the row is contiguous (a warp or more a row, 16-byte loads), and along neighbouring rows
//! where those are (column reductions). Partial results are combined in a fixed order, so runs repeat bit for bit.

use super::row_layout::Layout;
use super::row_pass::{Item, Kind, Pass};
use super::row_reduce::Lanes;
use super::row_resident;
use super::scalar::{Emit, Num, arith, cmp, int_of};
use super::{Lowering, Refusal, map, row_layout, row_lead, row_online, row_pass, row_split, row_stage};
use crate::ir::graph::{AxisId, Combine, Define, Expr as Node, Graph, Role, Stmt, TensorId};
use crate::ir::plan::PlanKernel;
use crate::ir::simt::{CmpOp, Expr, IntOp, SharedId, Special, Ty};
use crate::pass::facts::Facts;
use crate::pass::rows::{self, Member, Rows};
use std::collections::{BTreeMap, BTreeSet};

pub fn lower<'a>(cx: &mut Lowering<'a>, k: &'a PlanKernel) -> Result<(), Refusal> {
    let graph = cx.graph;
    let mut facts = Facts::default();
    let rows = rows::analyse(graph, &mut facts, &k.stmts).map_err(|why| {
        let span = define(graph, k.stmts[0]).map_or_else(Default::default, |d| d.span);
        Refusal::new(span, format!("{} cannot be reduced row by row: {why}", k.name))
    })?;
    if rows.count() == 0.0 {
        return Ok(());
    }
    let passes = passes(graph, &rows);
    match row_split::wanted(cx, k, &rows, &passes)? {
        Some(split) => row_split::lower(cx, k, &rows, &passes, &split),
        None => whole_rows(cx, k, &rows, &passes),
    }
}

/// Every row in one block (or part of one).
fn whole_rows<'a>(
    cx: &mut Lowering<'a>,
    k: &'a PlanKernel,
    rows: &Rows,
    passes: &[Pass<'a>],
) -> Result<(), Refusal> {
    let mut layout = row_layout::choose(cx, k, rows, passes)?;
    let online = if layout.held || !rows.held.is_empty() {
        None
    } else {
        row_online::joined(cx, passes, layout.columns)
    };
    let passes = online.as_deref().unwrap_or(passes);
    if online.is_some() {
        layout = row_layout::choose(cx, k, rows, passes)?;
    }
    let staged = row_stage::find(cx, &k.name, rows, passes, &layout);
    if let Some(s) = &staged {
        layout = s.layout.clone();
    }
    let stored = stored_targets(cx.graph, &k.stmts);
    let e = cx.emit(&k.name);
    let mut row = Row::start(e, rows, layout);
    row.stored = stored.clone();
    if let Some(s) = &staged {
        s.bring(&mut row);
    }
    row.lanes.begin(&mut row.e);
    row_resident::load_resident(&mut row, passes);
    row.lanes.meet(&mut row.e);
    row.finish_members(0, &stored);
    for (i, pass) in passes.iter().enumerate() {
        row_pass::run(&mut row, pass);
        // Further passes of this level may have what its members read of each other.
        let left = passes.get(i + 1).map_or(usize::MAX, |next| next.level);
        row.finish_members(left.min(pass.level + 1 + usize::from(pass.online)), &stored);
    }
    if let Some(s) = &staged {
        s.take(&mut row);
    }
    cx.launch(row.e);
    Ok(())
}

/// The settings of a row kernel with the values worth trying.
pub fn space(graph: &Graph, k: &PlanKernel) -> Vec<super::Choice> {
    match rows::analyse(graph, &mut Facts::default(), &k.stmts) {
        Ok(rows) => row_layout::space(graph, &rows),
        Err(_) => Vec::new(),
    }
}

/// The definition that is statement `s` of a row kernel.
pub(super) fn define(graph: &Graph, s: usize) -> Option<&Define> {
    match &graph.stmts[s] {
        Stmt::Define(d) => Some(d),
        _ => None,
    }
}

/// The targets of a kernel that something outside it needs.
pub(super) fn stored_targets(graph: &Graph, stmts: &[usize]) -> BTreeSet<TensorId> {
    let mut facts = Facts::default();
    let mut needed: BTreeSet<TensorId> = graph.outputs.iter().map(|o| o.tensor).collect();
    for (i, s) in graph.stmts.iter().enumerate() {
        if !stmts.contains(&i) {
            needed.extend(facts.stmt_reads(graph, s));
        }
    }
    let targets = stmts.iter().flat_map(|&s| graph.stmts[s].targets());
    targets.filter(|&t| needed.contains(&t) || graph.tensor(t).role != Role::Local).collect()
}

/// The passes over the row, in order: reductions by level, then maps.
fn passes<'a>(graph: &'a Graph, rows: &Rows) -> Vec<Pass<'a>> {
    let mut out: Vec<Pass<'a>> = Vec::new();
    let last = rows.levels();
    for level in 0..=last {
        for (m, member) in rows.members.iter().enumerate() {
            for f in member.folds.iter().filter(|f| f.level == level) {
                let Node::Fold(fold) = graph.expr(f.expr) else { continue };
                let kind = Kind::Fold { expr: f.expr, fold, guard: f.guard.clone() };
                let item = Item { rows: rows.members[m].rows.clone(), axes: fold.axes.clone(), kind };
                let ordered = matches!(fold.combine, Combine::Fn(_));
                add(graph, &mut out, item, level, ordered);
            }
        }
        for member in rows.members.iter().filter(|m| !m.inner.is_empty()) {
            let Some(define) = define(graph, member.stmt) else { continue };
            // What is read back is made as soon as it can be, all else at the end.
            if level != if rows.held.contains(&define.target) { member.ready } else { last } {
                continue;
            }
            let kind = Kind::Map { define };
            let item = Item { rows: member.rows.clone(), axes: member.inner.clone(), kind };
            add(graph, &mut out, item, level, false);
        }
    }
    out
}

/// Joins a pass of this level over the same points, or makes one.
fn add<'a>(graph: &Graph, passes: &mut Vec<Pass<'a>>, item: Item<'a>, level: usize, ordered: bool) {
    let dims: Option<Vec<i64>> = item.axes.iter().map(|&a| graph.extent(a)).collect();
    let same =
        |p: &&mut Pass<'a>| p.level == level && p.dims == dims && dims.is_some() && p.ordered == ordered;
    match passes.iter_mut().find(same) {
        Some(p) => p.items.push(item),
        None => passes.push(Pass { level, dims, ordered, online: false, items: vec![item] }),
    }
}

/// A row kernel under construction.
pub(super) struct Row<'a, 'r> {
    pub e: Emit<'a>,
    pub graph: &'a Graph,
    pub rows: &'r Rows,
    pub layout: Layout,
    pub lanes: Lanes,
    /// The thread's row, by number.
    pub number: Num,
    /// What holds of threads whose row exists; `None` if all do.
    pub valid: Option<Expr>,
    /// Elements before the row in its first vector, where rows begin between aligned places.
    pub lead: Option<Expr>,
    /// Targets that are stored in shared memory first, with the elements of a block.
    pub outs: BTreeMap<TensorId, (SharedId, i64)>,
    /// Arrays that hold what several passes read.
    pub resident: Vec<row_resident::Resident>,
    /// Arrays that hold what is mapped over the row and read back.
    pub made: BTreeMap<TensorId, row_resident::Held>,
    /// Targets that something outside the kernel needs.
    pub stored: BTreeSet<TensorId>,
    done: Vec<bool>,
}

impl<'a, 'r> Row<'a, 'r> {
    /// Sets the grid, and binds the row axes of every member to the thread's row.
    pub fn start(mut e: Emit<'a>, rows: &'r Rows, layout: Layout) -> Row<'a, 'r> {
        let graph = e.graph;
        let threads = layout.lanes * layout.per_block;
        e.kernel.block = [threads as u32, 1, 1];
        let blocks = (layout.rows + layout.per_block - 1) / layout.per_block * layout.cluster;
        e.kernel.grid = [blocks as u32, 1, 1];
        e.kernel.cluster = [layout.cluster as u32, 1, 1];
        e.kernel.min_blocks = layout.together;
        let first = define(graph, rows.members[0].stmt).expect("row kernels hold definitions");
        e.line(first.span);
        let lanes = Lanes::new(&mut e, &layout);
        let (number, valid) = row_number(&mut e, &layout, &lanes);
        let dims: Vec<i64> = rows.ranges.iter().map(|(lo, hi)| hi - lo).collect();
        let at = map::decode(&mut e, number.clone(), &dims);
        for m in &rows.members {
            bind_rows(&mut e, m, &at);
        }
        let done = vec![false; rows.members.len()];
        let lead = layout.lead.as_ref().map(|l| row_lead::value(&mut e, l));
        Row {
            e,
            graph,
            rows,
            layout,
            lanes,
            number,
            valid,
            lead,
            outs: BTreeMap::new(),
            resident: Vec::new(),
            made: BTreeMap::new(),
            stored: BTreeSet::new(),
            done,
        }
    }

    /// Values of one a row that are known after `passes` passes: computed by every thread, stored by one.
    pub fn finish_members(&mut self, passes: usize, stored: &BTreeSet<TensorId>) {
        for (i, m) in self.rows.members.iter().enumerate() {
            if self.done[i] || !m.inner.is_empty() || m.ready > passes || self.folds_open(m) {
                continue;
            }
            self.done[i] = true;
            let Some(d) = define(self.graph, m.stmt) else { continue };
            self.one_a_row(d, stored.contains(&d.target));
        }
    }

    fn folds_open(&self, m: &Member) -> bool {
        m.folds.iter().any(|f| !self.e.is_known(f.expr))
    }

    fn one_a_row(&mut self, d: &Define, store: bool) {
        self.e.line(d.span);
        let value = self.e.value(d.value);
        let ty = Ty::of(self.graph.ty(d.value));
        let dtype = self.graph.tensor(d.target).dtype;
        let rounded = self.e.rounded(dtype, Num { expr: value, ty });
        let n = Num { expr: self.e.named("row", ty, rounded.expr), ty };
        self.e.forward(d.target, &d.axes, n.clone());
        if store {
            let first = cmp(CmpOp::Eq, self.lanes.lane.expr.clone(), int_of(Ty::I32, 0).expr);
            let writes = self.and_valid(first);
            let index = map::own_index(&self.e, d.target, &d.axes);
            self.e.if_then(writes, |e| e.store(d.target, &index, n.expr));
        }
    }

    pub fn and_valid(&self, cond: Expr) -> Expr {
        match &self.valid {
            Some(v) => Expr::And(Box::new(cond), Box::new(v.clone())),
            None => cond,
        }
    }
}

/// The thread's row (the last one, for threads beyond the rows), and what tells that it exists.
fn row_number(e: &mut Emit<'_>, layout: &Layout, lanes: &Lanes) -> (Num, Option<Expr>) {
    let wide = layout.rows + layout.per_block > i32::MAX as i64;
    let ty = if wide { Ty::I64 } else { Ty::I32 };
    let block = Num { expr: Expr::Special(Special::BlockX), ty: Ty::I32 };
    let block = arith(IntOp::Div, block, int_of(Ty::I32, layout.cluster)).expr;
    let block = if wide { Expr::Cast(Ty::I64, Box::new(block)) } else { block };
    let base = arith(IntOp::Mul, Num { expr: block, ty }, int_of(ty, layout.per_block));
    let number = arith(IntOp::Add, base, Num { expr: super::read::to(lanes.row.clone(), ty), ty });
    let number = e.named("row_at", ty, number.expr);
    if layout.rows % layout.per_block == 0 {
        return (Num { expr: number, ty }, None);
    }
    let valid = cmp(CmpOp::Lt, number.clone(), int_of(ty, layout.rows).expr);
    let valid = e.named("in_rows", Ty::Bool, valid);
    let last = arith(IntOp::Min, Num { expr: number, ty }, int_of(ty, layout.rows - 1));
    let expr = e.named("row_of", ty, last.expr);
    (Num { expr, ty }, Some(valid))
}

fn bind_rows(e: &mut Emit<'_>, m: &Member, at: &[Num]) {
    let fresh: Vec<(AxisId, Num)> =
        m.rows.iter().copied().zip(at.iter().cloned()).filter(|(a, _)| e.axis_value(*a).is_none()).collect();
    for (a, n) in fresh {
        map::bind_axes(e, &[a], &[n]);
    }
}

/// Number of points of a pass's box, if it has one.
pub(super) fn points(dims: &Option<Vec<i64>>) -> Option<i64> {
    dims.as_ref()?.iter().try_fold(1i64, |n, &d| n.checked_mul(d))
}

/// Evaluates what does not change along the row before the loop over it.
pub(super) fn before_loop(e: &mut Emit<'_>, item: &Item<'_>) {
    let bound: BTreeSet<AxisId> = item.axes.iter().copied().collect();
    let sure = item.axes.iter().all(|&a| e.graph.extent(a).is_some_and(|n| n > 0));
    let (first, sure) = match &item.kind {
        Kind::Fold { fold, guard, .. } => (fold.cond.unwrap_or(fold.body), sure && guard.is_empty()),
        Kind::Map { define } => (define.value, sure),
    };
    e.hoist(first, &bound, sure, &mut BTreeSet::new());
}
