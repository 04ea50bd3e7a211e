//! Row kernels: which statements a block a row can run together, and what it reduces in which order.
//!
//! A statement's *row axes* are those its folds depend on; its other axes (*inner*) are mapped over the row. A fold
//! is *row-level* if it depends on row axes only: the block computes it once a row, together. Row-level folds stand
//! in levels: one may use those of the levels below. Both the planner, which asks whether a group is one kernel, and
//! the lowering, which needs to know how, ask here.
//!
//! A definition over the row may be read back by what follows it, at its own point: the thread that made the value has
//! it (*held*), in a register or where it stored it.

use super::facts::{self, Facts};
use super::inline::outer_folds;
use super::sites::{self, Site};
use crate::ir::graph::*;
use crate::vocab::monoid::Monoid;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// One statement of a row kernel.
#[derive(Clone, Debug)]
pub struct Member {
    /// Index into `graph.stmts`; always a `Define`.
    pub stmt: usize,
    /// Its axes that are the kernel's rows, in the kernel's order.
    pub rows: Vec<AxisId>,
    /// Its other axes, in its order.
    pub inner: Vec<AxisId>,
    /// Its row-level folds, every one after those it uses.
    pub folds: Vec<RowFold>,
    /// Passes over the row after which its value is known (at each point, if it has inner axes).
    pub ready: usize,
}

/// A fold that a block computes once a row.
#[derive(Clone, Debug)]
pub struct RowFold {
    pub expr: ExprId,
    /// Passes over the row that must come before it.
    pub level: usize,
    /// It is evaluated only where all of these (which depend on row axes only) have these values.
    pub guard: Vec<(ExprId, bool)>,
}

/// A group of statements as one row kernel.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Ranges of the row axes.
    pub ranges: Vec<(i64, i64)>,
    pub members: Vec<Member>,
    /// Targets over the row that other members read at their own points.
    pub held: BTreeSet<TensorId>,
}

impl Rows {
    pub fn count(&self) -> f64 {
        self.ranges.iter().map(|(lo, hi)| (hi - lo).max(0) as f64).product()
    }

    /// Passes over the row before the last maps.
    pub fn levels(&self) -> usize {
        let folds = self.members.iter().flat_map(|m| &m.folds).map(|f| f.level + 1);
        let maps = self.members.iter().filter(|m| !m.inner.is_empty()).map(|m| m.ready);
        folds.chain(maps).max().unwrap_or(0)
    }
}

/// Looks at a group of statements; says why it is no row kernel if it is none.
pub fn analyse(g: &Graph, facts: &mut Facts, stmts: &[usize]) -> Result<Rows, String> {
    let defines: Vec<(usize, &Define)> = stmts.iter().map(|&s| as_define(g, s)).collect::<Result<_, _>>()?;
    let first = defines.iter().position(|(_, d)| facts.has_fold(g, d.value)).ok_or("no reduction")?;
    let rows = row_axes(g, facts, defines[first].1);
    let ranges = rows
        .iter()
        .map(|&a| g.axis_range(a).ok_or("a row axis without a fixed range".to_string()))
        .collect::<Result<Vec<_>, _>>()?;
    let mut group = Group {
        g,
        facts,
        ranges: &ranges,
        anchors: Vec::new(),
        levels: BTreeMap::new(),
        held: BTreeSet::new(),
    };
    let mut aligned = vec![(defines[first], rows.clone())];
    group.anchors.push((defines[first].1, rows));
    // What is aligned by a statement behind it waits for that one.
    let mut rest: Vec<_> = (0..defines.len()).filter(|&i| i != first).map(|i| defines[i]).collect();
    while !rest.is_empty() {
        let mut left = Vec::new();
        let mut why = String::new();
        let before = rest.len();
        for (s, d) in rest {
            match group.align(d) {
                Ok(rows) => {
                    group.anchors.push((d, rows.clone()));
                    aligned.push(((s, d), rows));
                }
                Err(e) => {
                    why = e;
                    left.push((s, d));
                }
            }
        }
        if left.len() == before {
            return Err(why);
        }
        rest = left;
    }
    // From here on as they run: each after those that it reads.
    aligned.sort_by_key(|((s, _), _)| *s);
    group.anchors.clear();
    let members =
        aligned.into_iter().map(|((s, d), rows)| group.member(s, d, rows)).collect::<Result<_, _>>()?;
    let held = group.held;
    Ok(Rows { ranges, members, held })
}

fn as_define(g: &Graph, s: usize) -> Result<(usize, &Define), String> {
    match &g.stmts[s] {
        Stmt::Define(d) => Ok((s, d)),
        _ => Err("not a definition".into()),
    }
}

/// The axes of a definition that its outermost folds depend on (all of them if it has no other axes to map over).
pub fn row_axes(g: &Graph, facts: &mut Facts, d: &Define) -> Vec<AxisId> {
    let mut used = BTreeSet::new();
    for f in outer_folds(g, d.value) {
        used.extend(facts.free(g, f).iter().copied());
    }
    d.axes.iter().copied().filter(|a| used.contains(a)).collect()
}

struct Group<'a> {
    g: &'a Graph,
    facts: &'a mut Facts,
    ranges: &'a [(i64, i64)],
    /// Members so far: definition, and row axes.
    anchors: Vec<(&'a Define, Vec<AxisId>)>,
    /// Levels that the targets' values take: passes before they are known.
    levels: BTreeMap<TensorId, usize>,
    held: BTreeSet<TensorId>,
}

impl<'a> Group<'a> {
    /// Which axes of `d` are the kernel's rows: told by the targets it reads, by who reads it, else by an input it shares.
    fn align(&mut self, d: &Define) -> Result<Vec<AxisId>, String> {
        let mut map: Vec<Option<AxisId>> = vec![None; self.ranges.len()];
        let reads = self.facts.reads_in(self.g, d.value);
        for (target, rows) in self.anchors.iter().map(|(d, r)| (*d, r)) {
            for r in reads.iter().filter(|r| r.tensor == target.target) {
                for (k, row) in rows.iter().enumerate() {
                    let place =
                        target.axes.iter().position(|a| a == row).expect("rows are axes of the definition");
                    note(self.g, &mut map[k], r.index[place], d)?;
                }
            }
        }
        if map.iter().any(Option::is_none) {
            self.align_by_readers(d, &mut map);
        }
        if map.iter().any(Option::is_none) {
            self.align_by_inputs(d, &reads, &mut map);
        }
        let rows: Vec<AxisId> = map.into_iter().collect::<Option<_>>().ok_or("rows that do not line up")?;
        let distinct: BTreeSet<_> = rows.iter().collect();
        let same = rows.iter().zip(self.ranges).all(|(&a, &r)| self.g.axis_range(a) == Some(r));
        if !same || distinct.len() != rows.len() {
            return Err("rows of other sizes".into());
        }
        Ok(rows)
    }

    fn align_by_readers(&mut self, d: &Define, map: &mut [Option<AxisId>]) {
        for (reader, rows) in &self.anchors {
            let reads = self.facts.reads_in(self.g, reader.value);
            for r in reads.iter().filter(|r| r.tensor == d.target) {
                for (&index, &own) in r.index.iter().zip(&d.axes) {
                    if let Expr::Axis(a) = self.g.expr(index)
                        && let Some(k) = rows.iter().position(|r| r == a)
                    {
                        map[k].get_or_insert(own);
                    }
                }
            }
        }
    }

    fn align_by_inputs(&mut self, d: &Define, reads: &[Read], map: &mut [Option<AxisId>]) {
        for (other, rows) in &self.anchors {
            for theirs in self.facts.reads_in(self.g, other.value).iter() {
                for ours in reads.iter().filter(|r| r.tensor == theirs.tensor) {
                    for (&i, &j) in theirs.index.iter().zip(&ours.index) {
                        let (Expr::Axis(a), Expr::Axis(b)) = (self.g.expr(i), self.g.expr(j)) else {
                            continue;
                        };
                        if let Some(k) = rows.iter().position(|r| r == a)
                            && d.axes.contains(b)
                        {
                            map[k].get_or_insert(*b);
                        }
                    }
                }
            }
        }
    }

    fn member(&mut self, stmt: usize, d: &'a Define, rows: Vec<AxisId>) -> Result<Member, String> {
        if self.g.tensor(d.target).dtype.bits() < 8 {
            return Err("two of its results share a byte".into());
        }
        self.check_reads(d, &rows)?;
        let own: BTreeSet<AxisId> = rows.iter().copied().collect();
        for f in outer_folds(self.g, d.value) {
            if self.facts.free(self.g, f).iter().any(|a| d.axes.contains(a) && !own.contains(a)) {
                return Err("a reduction that depends on more than the row".into());
            }
        }
        let folds = self.row_folds(&Stmt::Define(d.clone()), &own)?;
        let inner: Vec<AxisId> = d.axes.iter().copied().filter(|a| !own.contains(a)).collect();
        let level = folds.iter().map(|f| f.level + 1).max().unwrap_or(0);
        let read_level =
            self.facts.reads(self.g, d.value).iter().filter_map(|t| self.levels.get(t)).max().copied();
        let ready = level.max(read_level.unwrap_or(0));
        // What is mapped over the row takes a pass itself.
        self.levels.insert(d.target, ready + usize::from(!inner.is_empty()));
        self.anchors.push((d, rows.clone()));
        Ok(Member { stmt, rows, inner, folds, ready })
    }

    /// Targets of the kernel may be read at the row only, and those over the row at the point that reads them.
    fn check_reads(&mut self, d: &Define, rows: &[AxisId]) -> Result<(), String> {
        for r in self.facts.reads_in(self.g, d.value).iter() {
            let Some((target, theirs)) = self.anchors.iter().find(|(t, _)| t.target == r.tensor) else {
                continue;
            };
            let name = &self.g.tensor(r.tensor).name;
            let mut inner: Vec<(AxisId, ExprId)> = Vec::new();
            let at_row =
                target.axes.iter().zip(&r.index).all(|(a, &i)| match theirs.iter().position(|t| t == a) {
                    Some(k) => matches!(self.g.expr(i), Expr::Axis(x) if *x == rows[k]),
                    None => {
                        inner.push((*a, i));
                        true
                    }
                });
            if !at_row || r.access != Access::Proven {
                return Err(format!("{name} is read at another row"));
            }
            if inner.is_empty() {
                continue;
            }
            if !self.at_own_point(d, rows, &inner) {
                return Err(format!("{name} is read back across the row"));
            }
            self.held.insert(r.tensor);
        }
        Ok(())
    }

    /// Is a target read where the thread that takes a point of `d` (or of one of its reductions) made its value? All
    /// passes deal their points out alike, if they have the same points in the same order.
    fn at_own_point(&mut self, d: &Define, rows: &[AxisId], inner: &[(AxisId, ExprId)]) -> bool {
        let axes: Option<Vec<AxisId>> = inner
            .iter()
            .map(|(_, i)| if let Expr::Axis(a) = self.g.expr(*i) { Some(*a) } else { None })
            .collect();
        let Some(axes) = axes else { return false };
        let range = |a: &AxisId| self.g.axis_range(*a);
        let alike =
            inner.iter().zip(&axes).all(|((own, _), a)| range(own).is_some() && range(own) == range(a));
        let mapped: Vec<AxisId> = d.axes.iter().copied().filter(|a| !rows.contains(a)).collect();
        let own = |x: &ExprId| match self.g.expr(*x) {
            Expr::Fold(f) => f.axes == axes && deals_points_out(f.combine),
            _ => false,
        };
        let folds: Vec<ExprId> = super::inline::below(self.g, d.value).into_iter().filter(own).collect();
        let of_row = |x: ExprId, facts: &mut Facts| facts.free(self.g, x).iter().all(|a| rows.contains(a));
        alike && (mapped == axes || folds.into_iter().any(|x| of_row(x, self.facts)))
    }

    /// The row-level folds of a statement in an order in which they can run.
    fn row_folds(&mut self, s: &Stmt, rows: &BTreeSet<AxisId>) -> Result<Vec<RowFold>, String> {
        let mut found: BTreeMap<ExprId, Vec<(ExprId, bool)>> = BTreeMap::new();
        let reached = fold_sites(self.g, self.facts, s);
        for site in reached.iter() {
            if !self.facts.free(self.g, site.expr).iter().all(|a| rows.contains(a)) {
                continue;
            }
            let guard = self.guard(site, rows)?;
            match found.get_mut(&site.expr) {
                // Reached in two ways: only what both demand can be demanded.
                Some(g) => g.retain(|c| guard.contains(c)),
                None => {
                    found.insert(site.expr, guard);
                }
            }
        }
        for (&e, guard) in &found {
            let mut at = reached.iter().filter(|s| s.expr == e);
            let all_guarded = at.all(|s| !s.partial && s.conds.iter().all(|c| guard.contains(c)));
            if !all_guarded && !self.facts.speculable(self.g, e) {
                return Err("a reduction that may be read out of bounds where its condition is false".into());
            }
        }
        let mut folds = Vec::new();
        let mut levels = BTreeMap::new();
        for &e in found.keys() {
            self.place(e, &found, &mut levels, &mut folds);
        }
        Ok(folds)
    }

    /// The conditions of a site that depend on the row only.
    fn guard(&mut self, site: &Site, rows: &BTreeSet<AxisId>) -> Result<Vec<(ExprId, bool)>, String> {
        let mut guard = site.conds.clone();
        guard.retain(|(c, _)| {
            self.facts.free(self.g, *c).iter().all(|a| rows.contains(a)) && !self.facts.has_fold(self.g, *c)
        });
        Ok(guard)
    }

    /// Appends a fold after those it uses; returns its level.
    fn place(
        &mut self,
        e: ExprId,
        all: &BTreeMap<ExprId, Vec<(ExprId, bool)>>,
        levels: &mut BTreeMap<ExprId, usize>,
        out: &mut Vec<RowFold>,
    ) -> usize {
        if let Some(&l) = levels.get(&e) {
            return l;
        }
        let mut level = 0;
        for x in super::inline::below(self.g, e) {
            if x == e {
                continue;
            }
            if all.contains_key(&x) {
                level = level.max(self.place(x, all, levels, out) + 1);
            }
            if let Expr::Read(r) = self.g.expr(x) {
                level = level.max(self.levels.get(&r.tensor).copied().unwrap_or(0));
            }
        }
        levels.insert(e, level);
        out.push(RowFold { expr: e, level, guard: all[&e].clone() });
        level
    }
}

/// Functions of the user take a piece of the row in each thread, and a place is looked for once more at the end.
fn deals_points_out(combine: Combine) -> bool {
    !matches!(combine, Combine::Fn(_) | Combine::Builtin(Monoid::ArgMax | Monoid::ArgMin))
}

fn note(g: &Graph, slot: &mut Option<AxisId>, index: ExprId, d: &Define) -> Result<(), String> {
    match g.expr(index) {
        Expr::Axis(a) if d.axes.contains(a) && slot.is_none_or(|s| s == *a) => {
            *slot = Some(*a);
            Ok(())
        }
        _ => Err("a value of the row is read at another row".into()),
    }
}

/// The sites of all folds of a statement.
pub fn fold_sites(g: &Graph, facts: &mut Facts, s: &Stmt) -> Rc<Vec<Site>> {
    match s {
        Stmt::Define(d) => {
            let key = (d.axes.clone(), d.value);
            if let Some(known) = facts.fold_sites.get(&key) {
                return known.clone();
            }
            let found = Rc::new(look_for_folds(g, facts, s));
            facts.fold_sites.insert(key, found.clone());
            found
        }
        _ => Rc::new(look_for_folds(g, facts, s)),
    }
}

fn look_for_folds(g: &Graph, facts: &mut Facts, s: &Stmt) -> Vec<Site> {
    let mut found = Vec::new();
    sites::visit(g, s, &mut |site| {
        if matches!(g.expr(site.expr), Expr::Fold(_)) {
            found.push(site.clone());
        }
        facts.has_fold(g, site.expr)
    });
    found
}

/// Would a block a row keep the device busy? Few rows must be short, or their work is too little to matter.
pub fn is_busy(rows: f64, inner: f64) -> bool {
    const FEW_ROWS: f64 = 64.0;
    const SHORT: f64 = 131072.0;
    rows >= FEW_ROWS || inner <= SHORT
}

/// Would these rows keep the device busy, each in a block or in part of one?
pub fn keep_busy(g: &Graph, facts: &mut Facts, rows: &Rows) -> bool {
    is_busy(rows.count(), row_points(g, rows)) && !few_columns(g, facts, rows)
}

/// Rows that lie across memory have 32 threads each at most: are they too few and too long for that, where several
/// passes over them keep them from being split over blocks?
pub fn few_columns(g: &Graph, facts: &mut Facts, rows: &Rows) -> bool {
    const ENOUGH: f64 = 4096.0;
    const SHORT: f64 = 4095.0;
    let mapped = rows.members.iter().any(|m| !m.inner.is_empty());
    let passes = rows.levels() + usize::from(mapped);
    if passes < 2 || rows.count() >= ENOUGH || row_points(g, rows) <= SHORT {
        return false;
    }
    let (mut along, mut across) = (0.0, 0.0);
    for m in &rows.members {
        for f in &m.folds {
            let Expr::Fold(fold) = g.expr(f.expr) else { continue };
            for r in facts.reads_in(g, fold.body).iter() {
                let Some(&last) = r.index.last() else { continue };
                let mut free = BTreeSet::new();
                r.index.iter().for_each(|&i| free.extend(facts.free(g, i).iter().copied()));
                let elements = facts::volume(g, &free.into_iter().collect::<Vec<_>>());
                let inner = facts.free(g, last);
                if inner.iter().any(|a| fold.axes.contains(a)) {
                    along += elements;
                } else if inner.iter().any(|a| m.rows.contains(a)) {
                    across += elements;
                }
            }
        }
    }
    across > along
}

/// The greatest number of points that a fold of the row, or the map over it, has.
pub fn row_points(g: &Graph, rows: &Rows) -> f64 {
    let folds = rows.members.iter().flat_map(|m| &m.folds).map(|f| match g.expr(f.expr) {
        Expr::Fold(fold) => facts::volume(g, &fold.axes),
        _ => 1.0,
    });
    let maps = rows.members.iter().map(|m| facts::volume(g, &m.inner));
    folds.chain(maps).fold(1.0, f64::max)
}
