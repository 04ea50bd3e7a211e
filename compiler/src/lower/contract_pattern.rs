//! Recognises sums of products that the form `contract` takes, and says why not where it does not.
//!
//! A kernel's statements share their output axes. Each `Fold(Sum, K axes, product)` in their values is split into
//! an A part and a B part: M axes stand in A alone, N axes in B alone, batch axes in both or in neither. What does
//! not change along the fold is hoisted out of it; conditions become guards of the parts, in both where a term that
//! is not taken must leave no trace of the other factor's NaN or infinity.

use super::contract_shape::{self, divisor};
pub use super::contract_shape::{
    Blocks, ContractShape, Contraction, Digit, Factor, Guard, Hoisted, KAxis, OutAxis, Part, Selector,
    StmtShape,
};
use super::home::identity;
use super::index::Facts;
use crate::ir::graph::{Access, AxisId, Combine, Define, Expr, ExprId, Fold, Graph, Stmt, TensorId};
use crate::vocab::dtype::{Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use std::collections::BTreeSet;

/// Values of an axis that bounds terms, up to which they may be products of their own.
const FEW_BOUNDS: i64 = 8;

/// The shape of these statements as one `contract` kernel, or why there is none. Products without an M or an N axis
/// are left to other forms.
pub fn recognise(graph: &Graph, stmts: &[usize]) -> Result<ContractShape, String> {
    let shape = recognise_any(graph, &Facts::new(graph), stmts)?;
    if shape.m.is_empty() || shape.n.is_empty() {
        return Err("one factor has all axes of the output: a reduction, not a matrix product".into());
    }
    Ok(shape)
}

/// Whether a definition that may not stand in the graph yet could be a `contract` kernel of its own, and why not.
/// `any`: also if it has no M or no N axis.
pub fn takes(graph: &Graph, define: &Define, any: bool) -> Result<ContractShape, String> {
    let shape = shape(graph, &Facts::new(graph), &[0], vec![define])?;
    if !any && (shape.m.is_empty() || shape.n.is_empty()) {
        return Err("one factor has all axes of the output: a reduction, not a matrix product".into());
    }
    Ok(shape)
}

/// Whether these statements of a graph could be one `contract` kernel.
pub fn joins(graph: &Graph, stmts: &[usize]) -> Result<(), String> {
    recognise_any(graph, &Facts::new(graph), stmts).map(|_| ())
}

/// As `recognise`, taking products without an M or N axis too.
pub fn recognise_any(graph: &Graph, facts: &Facts, stmts: &[usize]) -> Result<ContractShape, String> {
    shape(graph, facts, stmts, defines(graph, stmts)?)
}

fn shape(
    graph: &Graph,
    facts: &Facts,
    stmts: &[usize],
    defines: Vec<&Define>,
) -> Result<ContractShape, String> {
    if defines.iter().any(|d| graph.tensor(d.target).dtype.bits() < 8) {
        return Err("results of four bits share bytes".into());
    }
    let axes = out_axes(graph, &defines)?;
    own_points(graph, &defines)?;
    let mut raws = Vec::new();
    for (s, define) in defines.iter().enumerate() {
        let mut walk = Walk { graph, facts, stmt: s, path: Vec::new(), raws: &mut raws };
        walk.visit(define.value)?;
    }
    if raws.is_empty() {
        return Err("no sum of products".into());
    }
    let mut cx = Split { graph, facts, defines: &defines, selector: None };
    let found = cx.choose(&raws, &axes);
    let (parts, folds) = match found {
        Ok(found) if [Part::M, Part::N].iter().all(|p| found.0.contains(p)) => found,
        found => cx.choose_selected(&raws, &axes).map_or(found, Ok)?,
    };
    let digits = cx.digits(&parts, &folds, &axes);
    let of = |part| digits.iter().filter(|(p, _)| *p == part).map(|(_, d)| *d).collect();
    let stmts = stmts.iter().zip(&defines).map(|(&stmt, d)| StmtShape { stmt, axes: d.axes.clone() });
    let selector =
        cx.selector.map(|expr| Selector { expr, stmt: raws[0].stmt, guards: raws[0].path.clone() });
    Ok(ContractShape {
        selector,
        axes,
        stmts: stmts.collect(),
        batch: of(Part::Batch),
        m: of(Part::M),
        n: of(Part::N),
        folds,
    })
}

fn defines<'a>(graph: &'a Graph, stmts: &[usize]) -> Result<Vec<&'a Define>, String> {
    let define = |&s: &usize| match &graph.stmts[s] {
        Stmt::Define(d) => Ok(d),
        _ => Err("a statement that is no definition".to_string()),
    };
    let all: Vec<_> = stmts.iter().map(define).collect::<Result<_, _>>()?;
    if all.is_empty() { Err("no statements".into()) } else { Ok(all) }
}

fn out_axes(graph: &Graph, defines: &[&Define]) -> Result<Vec<OutAxis>, String> {
    let axis = |&a: &AxisId| {
        let (lo, hi) = graph.axis_range(a).ok_or("an output axis without a literal range")?;
        Ok(OutAxis { name: graph.axis(a).name.clone(), lo, extent: (hi - lo).max(0) })
    };
    let of = |d: &&Define| d.axes.iter().map(axis).collect::<Result<Vec<_>, String>>();
    let first = of(&defines[0])?;
    for d in &defines[1..] {
        let other = of(d)?;
        let same = other.len() == first.len()
            && other.iter().zip(&first).all(|(a, b)| (a.lo, a.extent) == (b.lo, b.extent));
        if !same {
            return Err("statements over different axes".into());
        }
    }
    Ok(first)
}

/// Statements read each other's values at their own point only.
fn own_points(graph: &Graph, defines: &[&Define]) -> Result<(), String> {
    for (s, d) in defines.iter().enumerate() {
        let earlier: Vec<TensorId> = defines[..s].iter().map(|d| d.target).collect();
        for r in reads_of(graph, d.value) {
            if earlier.contains(&r.tensor) && !identity(graph, r, &d.axes) {
                let name = &graph.tensor(r.tensor).name;
                return Err(format!("`{name}` is made in this kernel and read at another point"));
            }
        }
    }
    Ok(())
}

pub(super) fn below(graph: &Graph, root: ExprId) -> BTreeSet<ExprId> {
    let mut seen = BTreeSet::new();
    let mut todo = vec![root];
    while let Some(id) = todo.pop() {
        if seen.insert(id) {
            todo.extend(graph.children(id));
        }
    }
    seen
}

fn reads_of(graph: &Graph, root: ExprId) -> Vec<&crate::ir::graph::Read> {
    let read = |id| match graph.expr(id) {
        Expr::Read(r) => Some(r),
        _ => None,
    };
    below(graph, root).into_iter().filter_map(read).collect()
}

/// A fold found in an epilogue, with the conditions on the way to it.
struct Raw {
    stmt: usize,
    fold: ExprId,
    k: Vec<KAxis>,
    /// Conditions of the fold itself, and of its axes' ranges.
    masks: Vec<Guard>,
    /// Conditions under which the epilogue looks at the sum.
    path: Vec<Guard>,
    /// Whether the sum stands below the default of an `else` read, whose condition has no expression.
    hidden: bool,
    factors: Vec<ExprId>,
    hoisted: Vec<Hoisted>,
    blocks: Option<Blocks>,
}

struct Walk<'a, 'g> {
    graph: &'g Graph,
    facts: &'a Facts<'g>,
    stmt: usize,
    /// Conditions on the way, outermost first; `None`: one without an expression.
    path: Vec<Option<Guard>>,
    raws: &'a mut Vec<Raw>,
}

impl Walk<'_, '_> {
    fn visit(&mut self, id: ExprId) -> Result<(), String> {
        match self.graph.expr(id) {
            Expr::Fold(f) => return self.fold(id, f),
            Expr::Select(c, a, b) => {
                let (c, a, b) = (*c, *a, *b);
                self.visit(c)?;
                self.under(Some(Guard::Is(c, true)), a)?;
                return self.under(Some(Guard::Is(c, false)), b);
            }
            Expr::Read(r) => {
                if let Access::Else(d) = r.access {
                    self.under(None, d)?;
                }
                let index = r.index.clone();
                return index.into_iter().try_for_each(|i| self.visit(i));
            }
            _ => {}
        }
        self.graph.children(id).into_iter().try_for_each(|c| self.visit(c))
    }

    fn under(&mut self, guard: Option<Guard>, id: ExprId) -> Result<(), String> {
        self.path.push(guard);
        let done = self.visit(id);
        self.path.pop();
        done
    }

    fn fold(&mut self, id: ExprId, outer: &Fold) -> Result<(), String> {
        let path: Vec<Guard> = self.path.iter().copied().flatten().collect();
        let hidden = self.path.iter().any(Option::is_none);
        if let Some(raw) = self.raws.iter_mut().find(|r| r.fold == id && r.stmt == self.stmt) {
            // Looked at from two places: only what holds at both may be assumed.
            raw.path.retain(|g| path.contains(g));
            raw.hidden |= hidden;
            return Ok(());
        }
        let mut raw = Raw {
            stmt: self.stmt,
            fold: id,
            k: Vec::new(),
            masks: Vec::new(),
            path,
            hidden,
            factors: Vec::new(),
            hoisted: Vec::new(),
            blocks: None,
        };
        let mut body = id;
        let mut next = Some(outer);
        let mut blocks: Option<Blocks> = None;
        while let Some(f) = next {
            if f.combine != Combine::Builtin(Monoid::Sum) {
                return Err("a fold other than a sum".into());
            }
            f.axes.iter().try_for_each(|&a| self.k_axis(a, &mut raw))?;
            f.cond.iter().for_each(|&c| conjuncts(self.graph, c, &mut raw.masks));
            body = f.body;
            next = match self.graph.expr(body) {
                Expr::Fold(inner) => Some(inner),
                _ => None,
            };
            if let (None, None, Some((inner, scales))) = (
                next,
                &blocks,
                contract_shape::scaled(self.graph, self.facts, body, &raw.k, !raw.masks.is_empty()),
            ) {
                blocks = Some(Blocks { outer: raw.k.len(), scales });
                next = Some(inner);
            }
        }
        if !matches!(self.graph.ty(id), Ty::F32 | Ty::F64 | Ty::I32 | Ty::I64) {
            return Err("a sum of another type".into());
        }
        let always = raw.masks.is_empty() && raw.k.iter().all(|k| k.extent > 0);
        self.factors(body, &mut raw, always)?;
        if let Some(mut blocks) = blocks {
            for s in std::mem::take(&mut blocks.scales) {
                let own = raw.factors.len();
                self.factors(s, &mut raw, always)?;
                blocks.scales.extend(&raw.factors[own..]);
            }
            raw.blocks = Some(blocks).filter(|b| !b.scales.is_empty());
        }
        self.raws.push(raw);
        Ok(())
    }

    fn k_axis(&self, axis: AxisId, raw: &mut Raw) -> Result<(), String> {
        let a = self.graph.axis(axis);
        let name = a.name.clone();
        if let Some((lo, hi)) = self.graph.axis_range(axis) {
            raw.k.push(KAxis { axis, name, lo, extent: (hi - lo).max(0) });
            return Ok(());
        }
        let hull = self.facts.axis(axis);
        let extent = hull.hi.checked_sub(hull.lo).and_then(|n| n.checked_add(1));
        let extent = extent.filter(|&n| n <= 1 << 30).ok_or("a fold axis of unknown length")?;
        let is_literal = |id| matches!(self.graph.expr(id), Expr::Lit(_));
        if !is_literal(a.lo) {
            raw.masks.push(Guard::AtLeast(axis, a.lo));
        }
        if !is_literal(a.hi) {
            raw.masks.push(Guard::Below(axis, a.hi));
        }
        raw.k.push(KAxis { axis, name, lo: hull.lo, extent: extent.max(0) });
        Ok(())
    }

    /// Splits a product into its factors, those first that do not change along the fold.
    fn factors(&self, id: ExprId, raw: &mut Raw, always: bool) -> Result<(), String> {
        let g = self.graph;
        let changes = |id: ExprId| {
            let free = self.facts.free(id);
            raw.k.iter().any(|k| free.contains(&k.axis))
        };
        if !changes(id) && !matches!(g.expr(id), Expr::Call(Func::Mul, _)) {
            // A factor that is looked at under a condition must be safe to evaluate without it.
            let movable = always && (raw.path.is_empty() && !raw.hidden || is_safe(g, self.facts, id));
            if movable {
                raw.hoisted.push(Hoisted { expr: id, divide: false });
            } else {
                raw.factors.push(id);
            }
            return Ok(());
        }
        match g.expr(id) {
            Expr::Call(Func::Mul, args) => {
                args.clone().into_iter().try_for_each(|a| self.factors(a, raw, always))
            }
            Expr::Call(Func::Div, args)
                if g.ty(id).is_float() && !changes(args[1]) && always && is_safe(g, self.facts, args[1]) =>
            {
                let (over, by) = (args[0], args[1]);
                raw.hoisted.push(Hoisted { expr: by, divide: true });
                self.factors(over, raw, always)
            }
            Expr::Select(c, taken, other) if is_zero(g, *other) && is_product(g, *taken) => {
                let (c, taken) = (*c, *taken);
                conjuncts(g, c, &mut raw.masks);
                self.factors(taken, raw, false)
            }
            _ => {
                if below(g, id).iter().any(|&e| matches!(g.expr(e), Expr::Fold(_))) {
                    return Err("a factor that is itself a fold".into());
                }
                raw.factors.push(id);
                Ok(())
            }
        }
    }
}

/// Whether it is the literal 0 (+0 of floats).
pub(super) fn is_zero(g: &Graph, id: ExprId) -> bool {
    match g.expr(id) {
        Expr::Lit(Value::F32(v)) => v.to_bits() == 0,
        Expr::Lit(Value::F64(v)) => v.to_bits() == 0,
        Expr::Lit(Value::I32(v)) => *v == 0,
        Expr::Lit(Value::I64(v)) => *v == 0,
        _ => false,
    }
}

fn is_product(g: &Graph, id: ExprId) -> bool {
    matches!(g.expr(id), Expr::Call(Func::Mul, _))
}

/// The conditions that must all hold for `c` to hold.
pub(super) fn conjuncts(g: &Graph, c: ExprId, out: &mut Vec<Guard>) {
    match g.expr(c) {
        Expr::Select(a, b, no) if matches!(g.expr(*no), Expr::Lit(Value::Bool(false))) => {
            conjuncts(g, *a, out);
            conjuncts(g, *b, out);
        }
        _ => out.push(Guard::Is(c, true)),
    }
}

/// Whether every read below is in bounds whatever the conditions around it: shown by the axes' ranges alone.
fn is_safe(g: &Graph, facts: &Facts, root: ExprId) -> bool {
    reads_of(g, root).iter().all(|r| match r.access {
        Access::Else(_) => true,
        Access::Checked => false,
        Access::Proven => {
            let t = g.tensor(r.tensor);
            r.index.iter().enumerate().all(|(d, &i)| {
                let lo = t.lo.get(d).copied().unwrap_or(0);
                let at = facts.interval(i);
                at.lo >= lo && at.hi < lo + t.dims[d]
            })
        }
    })
}

struct Split<'a, 'g> {
    graph: &'g Graph,
    facts: &'a Facts<'g>,
    defines: &'a [&'g Define],
    /// An expression that counts as known, whatever it depends on.
    selector: Option<ExprId>,
}

impl Split<'_, '_> {
    /// The output axes (by position) that an expression of statement `stmt` depends on.
    fn outs(&self, stmt: usize, id: ExprId) -> BTreeSet<usize> {
        let axes = self.defines[stmt].axes.iter().enumerate();
        let Some(known) = self.selector else {
            let free = self.facts.free(id);
            return axes.filter(|(_, a)| free.contains(a)).map(|(p, _)| p).collect();
        };
        let (mut seen, mut todo) = (BTreeSet::new(), vec![id]);
        while let Some(id) = todo.pop() {
            if id != known && seen.insert(id) {
                todo.extend(self.graph.children(id));
            }
        }
        let met = |a: AxisId| seen.iter().any(|&id| matches!(self.graph.expr(id), Expr::Axis(b) if *b == a));
        axes.filter(|(_, a)| met(**a)).map(|(p, _)| p).collect()
    }

    /// As `choose`, where an index that is read from memory keeps the factors from falling into two sides.
    fn choose_selected(&mut self, raws: &[Raw], axes: &[OutAxis]) -> Option<(Vec<Part>, Vec<Contraction>)> {
        let first = raws.first()?;
        if raws.iter().any(|r| r.stmt != first.stmt || r.path != first.path) {
            return None;
        }
        for (factor, index) in self.selectors(first) {
            self.selector = None;
            let rows = self.outs(first.stmt, index);
            self.selector = Some(index);
            let Ok((mut parts, mut folds)) = self.choose(raws, axes) else { continue };
            let [a, b] = [Part::M, Part::N].map(|p| parts.iter().filter(|&&q| q == p).count());
            if a == 0 || b == 0 {
                continue;
            }
            // The selected operand is B, and its selector depends on rows alone.
            if folds.iter().all(|c| c.a.exprs.contains(&factor)) {
                folds.iter_mut().for_each(|c| std::mem::swap(&mut c.a, &mut c.b));
                for p in &mut parts {
                    *p = match *p {
                        Part::M => Part::N,
                        Part::N => Part::M,
                        Part::Batch => Part::Batch,
                    };
                }
            }
            let by_row =
                rows.iter().all(|&p| parts[p] != Part::N) && rows.iter().any(|&p| parts[p] == Part::M);
            if by_row
                && folds.iter().all(|c| c.b.exprs.iter().any(|&e| below(self.graph, e).contains(&index)))
            {
                return Some((parts, folds));
            }
        }
        self.selector = None;
        None
    }

    /// Indices of factors that are read from memory and do not change along the sum, if a factor has one such.
    fn selectors(&self, raw: &Raw) -> Vec<(ExprId, ExprId)> {
        let of = |&f: &ExprId| {
            let Expr::Read(r) = self.graph.expr(f) else { return None };
            let data = |&d: &usize| !reads_of(self.graph, r.index[d]).is_empty();
            let found: Vec<usize> = (0..r.index.len()).filter(data).collect();
            let [dim] = found[..] else { return None };
            let index = r.index[dim];
            // Where most rows choose for themselves, a pass would make one row of its tile.
            let rows = self.outs(raw.stmt, index).into_iter();
            let rows = rows.filter_map(|p| self.graph.axis_range(self.defines[raw.stmt].axes[p]));
            let rows = rows.fold(1i64, |n, (lo, hi)| n.saturating_mul(hi - lo));
            if rows / 2 < self.graph.tensor(r.tensor).dims[dim] {
                return None;
            }
            let free = self.facts.free(index);
            let still = raw.k.iter().all(|k| !free.contains(&k.axis));
            let folds = below(self.graph, index).iter().any(|&e| matches!(self.graph.expr(e), Expr::Fold(_)));
            (still && !folds).then_some((f, index))
        };
        raw.factors.iter().filter_map(of).collect()
    }

    fn guard_expr(guard: Guard) -> ExprId {
        match guard {
            Guard::Is(e, _) | Guard::AtLeast(_, e) | Guard::Below(_, e) => e,
        }
    }

    /// Tries the ways to share out the factors of the first sum, best first; the other sums must fit.
    fn choose(&self, raws: &[Raw], axes: &[OutAxis]) -> Result<(Vec<Part>, Vec<Contraction>), String> {
        let mut ways = self.ways(&raws[0], axes)?;
        ways.sort_by_key(|(cost, _)| *cost);
        let mut why = String::from("the factors do not fall into two sides");
        for (_, parts) in ways {
            match raws.iter().map(|raw| self.fit(raw, &parts)).collect() {
                Ok(folds) => return Ok((parts, folds)),
                Err(e) => why = e,
            }
        }
        Err(why)
    }

    /// Assignments of the output axes, with a cost: points of the batch, which each make a product of their own.
    fn ways(&self, raw: &Raw, axes: &[OutAxis]) -> Result<Vec<(i64, Vec<Part>)>, String> {
        let sets: Vec<_> = raw.factors.iter().map(|&f| self.outs(raw.stmt, f)).collect();
        if !(2..=8).contains(&sets.len()) {
            return Err("not a product of two factors that change along the sum".into());
        }
        let last = (0..axes.len()).rev().find(|&p| axes[p].extent > 1);
        // The first factor is on side 0: the other half of the ways are the same with the sides swapped.
        let way = |pick: usize| {
            let side = |s: usize| -> BTreeSet<usize> {
                let on = |i: usize| (pick << 1 >> i & 1) == s;
                sets.iter().enumerate().filter(|(i, _)| on(*i)).flat_map(|(_, set)| set).copied().collect()
            };
            let (a, b) = (side(0), side(1));
            let swap = last.is_some_and(|p| a.contains(&p) && !b.contains(&p));
            let part = |p: usize| match (a.contains(&p), b.contains(&p)) {
                (true, false) => {
                    if swap {
                        Part::N
                    } else {
                        Part::M
                    }
                }
                (false, true) => {
                    if swap {
                        Part::M
                    } else {
                        Part::N
                    }
                }
                _ => Part::Batch,
            };
            let parts: Vec<Part> = (0..axes.len()).map(part).collect();
            parts
        };
        let mut ways: Vec<Vec<Part>> = (1..1usize << (sets.len() - 1)).map(way).collect();
        // Few values of an axis that bounds the terms may be products of their own.
        let bounds = self.bounding(raw);
        if !bounds.is_empty() && bounds.iter().all(|&p| axes[p].extent <= FEW_BOUNDS) {
            let apart = |parts: &Vec<Part>| {
                let part = |p: usize| if bounds.contains(&p) { Part::Batch } else { parts[p] };
                (0..parts.len()).map(part).collect::<Vec<Part>>()
            };
            let new: Vec<Vec<Part>> = ways.iter().map(apart).collect();
            ways.extend(new.into_iter().filter(|w| w.contains(&Part::M) && w.contains(&Part::N)));
        }
        let cost = |parts: &Vec<Part>| {
            let batch = (0..axes.len()).filter(|&p| parts[p] == Part::Batch).map(|p| axes[p].extent.max(1));
            let points = batch.fold(1i64, i64::saturating_mul);
            // Where one factor alone knows the bounds, sums that are not finite are evaluated again.
            let again = bounds.iter().any(|&p| parts[p] != Part::Batch);
            if again { points.saturating_mul(FEW_BOUNDS.pow(2)) } else { points }
        };
        Ok(ways.into_iter().map(|parts| (cost(&parts), parts)).collect())
    }

    /// The output axes that bound a sum's fold axes.
    fn bounding(&self, raw: &Raw) -> BTreeSet<usize> {
        let bounds = raw.masks.iter().filter(|g| matches!(g, Guard::AtLeast(..) | Guard::Below(..)));
        bounds.flat_map(|&g| self.outs(raw.stmt, Self::guard_expr(g))).collect()
    }

    /// Shares out one sum's factors and guards under an assignment.
    fn fit(&self, raw: &Raw, parts: &[Part]) -> Result<Contraction, String> {
        let has = |id: ExprId, part: Part| self.outs(raw.stmt, id).iter().any(|&p| parts[p] == part);
        let (mut a, mut b) = (Factor::default(), Factor::default());
        let mut neutral = Vec::new();
        for &f in &raw.factors {
            match (has(f, Part::M), has(f, Part::N)) {
                (true, true) => return Err(self.mixed(raw, f, parts)),
                (true, false) => a.exprs.push(f),
                (false, true) => b.exprs.push(f),
                (false, false) => neutral.push(f),
            }
        }
        for f in neutral {
            if a.exprs.is_empty() { a.exprs.push(f) } else { b.exprs.push(f) }
        }
        if a.exprs.is_empty() || b.exprs.is_empty() {
            return Err("all factors are on one side".into());
        }
        let mut c = Contraction {
            stmt: raw.stmt,
            fold: raw.fold,
            ty: self.graph.ty(raw.fold),
            k: raw.k.clone(),
            a,
            b,
            hoisted: raw.hoisted.clone(),
            result_guards: Vec::new(),
            masked: false,
            blocks: raw.blocks.clone(),
        };
        if let Some(known) = self.selector {
            return self.fit_selected(raw, known, c);
        }
        for &g in &raw.masks {
            self.mask(raw, g, parts, &mut c)?;
        }
        for (part, factor) in [(Part::N, &mut c.a), (Part::M, &mut c.b)] {
            // A condition may itself be readable only where those before it hold.
            let fits = |&&g: &&Guard| !has(Self::guard_expr(g), part) && self.stands_in(g);
            factor.guards.extend(raw.path.iter().take_while(fits));
        }
        for (factor, name) in [(&c.a, "first"), (&c.b, "second")] {
            let all_applied =
                raw.path.iter().chain(&raw.masks).all(|g| factor.guards.contains(g)) && !raw.hidden;
            if !all_applied && !factor.exprs.iter().all(|&e| is_safe(self.graph, self.facts, e)) {
                return Err(format!(
                    "the {name} factor may only be read under a condition on the other's axes"
                ));
            }
        }
        Ok(c)
    }

    /// Rows that do not look at the sum choose no B; all others may read both factors.
    fn fit_selected(&self, raw: &Raw, known: ExprId, mut c: Contraction) -> Result<Contraction, String> {
        let other_rows = "B is chosen by data under a condition that is not on the row alone";
        let by_row = |g: &Guard| {
            let free = self.facts.free(Self::guard_expr(*g));
            let rows = self.facts.free(known);
            self.defines[raw.stmt].axes.iter().all(|a| !free.contains(a) || rows.contains(a))
                && self.stands_in(*g)
        };
        if raw.hidden || !raw.masks.is_empty() || !raw.path.iter().all(by_row) {
            return Err(other_rows.into());
        }
        for factor in [&mut c.a, &mut c.b] {
            let chosen = factor.exprs.iter().any(|&e| below(self.graph, e).contains(&known));
            if !chosen && !factor.exprs.iter().all(|&e| is_safe(self.graph, self.facts, e)) {
                factor.guards.extend(raw.path.iter().copied());
            }
        }
        Ok(c)
    }

    /// A condition made of axes and data alone (no fold in it) can be evaluated in a prologue.
    fn stands_in(&self, g: Guard) -> bool {
        !below(self.graph, Self::guard_expr(g)).iter().any(|&e| matches!(self.graph.expr(e), Expr::Fold(_)))
    }

    fn mask(&self, raw: &Raw, g: Guard, parts: &[Part], c: &mut Contraction) -> Result<(), String> {
        let e = Self::guard_expr(g);
        let outs = self.outs(raw.stmt, e);
        let on = |part| outs.iter().any(|&p| parts[p] == part);
        let free = self.facts.free(e);
        let along = !matches!(g, Guard::Is(..)) || raw.k.iter().any(|k| free.contains(&k.axis));
        let (in_a, in_b) = (!on(Part::N), !on(Part::M));
        let float = self.graph.ty(raw.fold).is_float();
        if along && !in_a && !in_b {
            return Err("terms are left out by a condition that neither factor has the axes of".into());
        }
        c.masked |= along && float && !(in_a && in_b);
        if in_a {
            c.a.guards.push(g);
        }
        if in_b {
            c.b.guards.push(g);
        }
        if !along {
            c.result_guards.push(g);
        }
        Ok(())
    }

    fn mixed(&self, raw: &Raw, f: ExprId, parts: &[Part]) -> String {
        let axes = &self.defines[raw.stmt].axes;
        let names = |part| {
            let on = self.outs(raw.stmt, f).into_iter().filter(move |&p| parts[p] == part);
            on.map(|p| format!("`{}`", self.graph.axis(axes[p]).name)).collect::<Vec<_>>().join(", ")
        };
        format!("a factor depends on {} and on {}", names(Part::M), names(Part::N))
    }

    /// The axes as digits: a batch axis that one side knows only through its quotient by a constant is split, so
    /// that its remainder becomes an axis of the other side (grouped convolution, shared heads).
    fn digits(&self, parts: &[Part], folds: &[Contraction], axes: &[OutAxis]) -> Vec<(Part, Digit)> {
        let mut digits = Vec::new();
        for (p, axis) in axes.iter().enumerate() {
            let whole = Digit { out: p, stride: 1, extent: axis.extent };
            match (parts[p], self.quotient(p, folds, axis)) {
                (Part::Batch, Some((by, side))) => {
                    digits.push((Part::Batch, Digit { out: p, stride: by, extent: axis.extent / by }));
                    digits.push((side, Digit { out: p, stride: 1, extent: by }));
                }
                (part, _) => digits.push((part, whole)),
            }
        }
        digits
    }

    /// If every fold has one side that knows axis `p` only divided by the same constant: that constant, and the side
    /// that the remainder belongs to.
    fn quotient(&self, p: usize, folds: &[Contraction], axis: &OutAxis) -> Option<(i64, Part)> {
        let of = |c: &Contraction| {
            let id = self.defines[c.stmt].axes[p];
            let by =
                |f: &Factor| divisor(self.graph, &f.exprs, id).filter(|&n| n > 1 && axis.extent % n == 0);
            match (by(&c.a), by(&c.b)) {
                (Some(n), _) => Some((n, Part::N)),
                (None, Some(n)) => Some((n, Part::M)),
                _ => None,
            }
        };
        let first = of(folds.first()?)?;
        let masked = folds.iter().any(|c| !c.a.guards.is_empty() || !c.b.guards.is_empty());
        (axis.lo == 0 && !masked && self.selector.is_none() && folds.iter().all(|c| of(c) == Some(first)))
            .then_some(first)
    }
}
