//! Inlining: definitions whose values are cheaper to compute where they are read than to store.
//!
//! What stays as it was: every rounding (a written dtype becomes a `Round` node), every fault (a value with checked
//! reads is inlined only where the copy, or the definition itself, still makes them all), and which points are
//! evaluated under a condition. A value is never moved past an update of what it reads.

use super::bounds;
use super::cost;
use super::facts::{self, Facts};
use super::sites::{self, Site};
use super::subst::Subst;
use crate::ir::graph::*;
use crate::vocab::dtype::{Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use girih_dsl::ast::Span;
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet};

/// What the `tile` blocks say about storing, by tensor.
#[derive(Default)]
pub struct Wishes {
    pub store: BTreeSet<TensorId>,
    pub inline: BTreeSet<TensorId>,
    /// What is to be made by a product's tiles: no reduction goes into its operands.
    pub products: BTreeSet<TensorId>,
}

impl Wishes {
    pub fn of(g: &Graph) -> Wishes {
        let within =
            |t: &Tensor, op: Span| t.span.file == op.file && op.start <= t.span.start && t.span.end <= op.end;
        let ids = || (0..g.tensors.len() as u32).map(TensorId);
        let named = |key: &str| {
            let says = |tile: &TileBlock, t: &Tensor, name: &str| match tile.of {
                None => t.name == name,
                Some(op) => t.name.rsplit('.').next() == Some(name) && within(t, op),
            };
            let of = |&t: &TensorId| {
                let t = g.tensor(t);
                g.tiles.iter().any(|tile| {
                    let words = tile.settings.iter().filter(|s| s.key == key).flat_map(|s| &s.choices);
                    words.into_iter().any(|w| matches!(w, Word::Name(n) if says(tile, t, n)))
                })
            };
            ids().filter(of).collect()
        };
        Wishes { store: named("store"), inline: named("inline"), products: BTreeSet::new() }
    }
}

/// Inlines what pays, in statement order, then drops what nothing reads any more.
pub fn inline(
    g: &mut Graph,
    wishes: &Wishes,
    takes: &dyn Fn(&Graph, &Define) -> bool,
    notes: &mut Vec<String>,
) {
    let mut facts = Facts::default();
    let mut all = Readers::of(g, &mut facts);
    for i in 0..g.stmts.len() {
        let Stmt::Define(d) = g.stmts[i].clone() else { continue };
        let readers = all.readers(d.target);
        if readers.is_empty() {
            continue;
        }
        let plan = Candidate::new(g, &mut facts, i, &d, readers);
        match plan.verdict(g, &mut facts, wishes, takes) {
            Ok(why) => {
                plan.apply(g);
                plan.readers.iter().for_each(|&j| all.read_again(g, &mut facts, j));
                notes.push(format!("{} is computed where it is read: {why}", name(g, d.target)));
            }
            Err(why) => notes.push(format!("{} is stored: {why}", name(g, d.target))),
        }
    }
    drop_unread(g, &mut facts, &BTreeSet::new());
}

/// Puts the definition that is statement `i` into all its readers, whether it pays or not, and gives their targets; or
/// says why that may not be done. The definition itself stays.
pub fn put_in(g: &mut Graph, facts: &mut Facts, i: usize, wishes: &Wishes) -> Result<Vec<TensorId>, String> {
    let Stmt::Define(d) = g.stmts[i].clone() else { return Err("it is no definition".into()) };
    if wishes.store.contains(&d.target) {
        return Err("a tile block says so".into());
    }
    let readers = readers(g, facts, d.target);
    if readers.is_empty() {
        return Err("it is a result that nothing reads".into());
    }
    if readers.iter().any(|&j| matches!(g.stmts[j], Stmt::Recur(_))) {
        return Err("a recurrence reads it".into());
    }
    let elsewhere = readers.iter().any(|&j| !matches!(g.stmts[j], Stmt::Define(_)));
    if elsewhere && facts.has_fold(g, d.value) {
        return Err("a reduction that is read by more than definitions".into());
    }
    let targets: Vec<TensorId> = readers.iter().flat_map(|&j| g.stmts[j].targets()).collect();
    if facts.has_fold(g, d.value) && targets.iter().any(|t| wishes.products.contains(t)) {
        return Err("a tile block asks for its reader as a product".into());
    }
    let plan = Candidate::new(g, facts, i, &d, readers);
    plan.legal(g, facts)?;
    plan.small(g)?;
    plan.product_stays_whole(g, facts)?;
    plan.apply(g);
    Ok(targets)
}

/// Puts definition `i` into one of its readers alone; or says why that may not be done. Other readers go on reading it.
pub fn put_in_one(g: &mut Graph, facts: &mut Facts, i: usize, reader: usize) -> Result<(), String> {
    let Stmt::Define(d) = g.stmts[i].clone() else { return Err("it is no definition".into()) };
    let plan = Candidate::new(g, facts, i, &d, vec![reader]);
    plan.legal(g, facts)?;
    plan.apply(g);
    Ok(())
}

fn name(g: &Graph, t: TensorId) -> &str {
    &g.tensor(t).name
}

/// The statements that read a tensor.
fn readers(g: &Graph, facts: &mut Facts, t: TensorId) -> Vec<usize> {
    (0..g.stmts.len()).filter(|&j| facts.stmt_reads(g, &g.stmts[j]).contains(&t)).collect()
}

/// Who reads what, kept up to date as statements change.
pub struct Readers {
    of: BTreeMap<TensorId, BTreeSet<usize>>,
    reads: Vec<BTreeSet<TensorId>>,
}

impl Readers {
    pub fn of(g: &Graph, facts: &mut Facts) -> Readers {
        let mut all = Readers { of: BTreeMap::new(), reads: vec![BTreeSet::new(); g.stmts.len()] };
        (0..g.stmts.len()).for_each(|j| all.read_again(g, facts, j));
        all
    }

    /// The statements that read a tensor, ascending.
    pub fn readers(&self, t: TensorId) -> Vec<usize> {
        self.of.get(&t).map_or_else(Vec::new, |r| r.iter().copied().collect())
    }

    /// Statement `j` has changed.
    fn read_again(&mut self, g: &Graph, facts: &mut Facts, j: usize) {
        let now = facts.stmt_reads(g, &g.stmts[j]);
        for t in std::mem::replace(&mut self.reads[j], now.clone()).difference(&now) {
            if let Some(readers) = self.of.get_mut(t) {
                readers.remove(&j);
            }
        }
        now.into_iter().for_each(|t| {
            self.of.entry(t).or_default().insert(j);
        });
    }
}

/// A definition and everything that reads it.
struct Candidate {
    stmt: usize,
    define: Define,
    readers: Vec<usize>,
    /// For each reader, the sites of its reads of the target.
    sites: BTreeMap<usize, Vec<Site>>,
    kept: bool,
}

impl Candidate {
    fn new(g: &Graph, facts: &mut Facts, stmt: usize, d: &Define, readers: Vec<usize>) -> Candidate {
        let sites = readers.iter().map(|&j| (j, read_sites(g, facts, &g.stmts[j], d.target))).collect();
        let kept = g.outputs.iter().any(|o| o.tensor == d.target);
        Candidate { stmt, define: d.clone(), readers, sites, kept }
    }

    /// Inline it? With the reason, either way.
    fn verdict(
        &self,
        g: &mut Graph,
        facts: &mut Facts,
        wishes: &Wishes,
        takes: &dyn Fn(&Graph, &Define) -> bool,
    ) -> Result<String, String> {
        if wishes.store.contains(&self.define.target) {
            return Err("a tile block says so".into());
        }
        self.legal(g, facts)?;
        if wishes.inline.contains(&self.define.target) {
            return Ok("a tile block says so".into());
        }
        if facts.has_fold(g, self.define.value) {
            self.fold_pays(g, facts, takes)
        } else {
            self.map_pays(g, facts)
        }
    }

    fn legal(&self, g: &Graph, facts: &mut Facts) -> Result<(), String> {
        let value = self.define.value;
        let reads = facts.reads(g, value);
        let last = *self.readers.last().expect("a candidate has readers");
        for u in self.stmt + 1..=last {
            if let Stmt::Update(Update { base: Base::Tensor(t), .. }) = &g.stmts[u]
                && reads.contains(t)
            {
                return Err(format!("{} is updated before it is read", name(g, *t)));
            }
        }
        let mut sites = self.sites.values().flatten();
        if sites.clone().any(|s| matches!(g.expr(s.expr), Expr::Read(Read { access: Access::Checked, .. }))) {
            return Err("it is read at indices that are checked as they are read".into());
        }
        if self
            .readers
            .iter()
            .any(|&j| matches!(&g.stmts[j], Stmt::Update(u) if u.base == Base::Tensor(self.define.target)))
        {
            return Err("it is updated".into());
        }
        if facts.has_checked(g, value) && !self.kept && !sites.any(|s| s.always() && self.covers(g, s)) {
            return Err("its reads are checked, and no reader makes them all".into());
        }
        Ok(())
    }

    /// Does this read visit every point of the target, each once?
    fn covers(&self, g: &Graph, site: &Site) -> bool {
        let Expr::Read(r) = g.expr(site.expr) else { return false };
        let t = g.tensor(self.define.target);
        let mut seen = BTreeSet::new();
        let plain = r.index.iter().enumerate().all(|(d, &i)| match g.expr(i) {
            Expr::Axis(a) => seen.insert(*a) && g.axis_range(*a) == Some((t.lo[d], t.lo[d] + t.dims[d])),
            _ => false,
        });
        plain && seen.len() == site.scope.len()
    }

    /// A reduction is inlined only as what its one reader starts from, at the same points.
    fn fold_pays(
        &self,
        g: &mut Graph,
        facts: &mut Facts,
        takes: &dyn Fn(&Graph, &Define) -> bool,
    ) -> Result<String, String> {
        let [reader] = self.readers[..] else { return Err("a reduction with several readers".into()) };
        if self.kept {
            return Err("a reduction that is a result".into());
        }
        let Stmt::Define(d) = g.stmts[reader].clone() else {
            return Err("a reduction read by an update or scan".into());
        };
        let sites = &self.sites[&reader];
        let same = sites.iter().all(|s| s.expr == sites[0].expr && self.covers(g, s));
        if !same {
            return Err("a reduction that its reader reads more than once a point".into());
        }
        if !sites.iter().any(Site::always) {
            return Err("a reduction that is read under a condition".into());
        }
        if !folds_span(g, facts, self.define.value, &self.define.axes) {
            return Err("a reduction that is the same along some axes of its definition".into());
        }
        let trial = Define { value: self.substitute(g, d.value), ..d.clone() };
        if takes(g, &trial) || (!facts.has_fold(g, d.value) && !is_contraction(g, facts, self.define.value)) {
            return Ok(format!("the reduction ends in {}", name(g, d.target)));
        }
        Err(format!("{} cannot start from this reduction in one kernel", name(g, d.target)))
    }

    /// The copies must not make the program grow without bound.
    fn small(&self, g: &Graph) -> Result<(), String> {
        /// Most nodes that the copies of one value may add.
        const MOST_NODES: usize = 512;
        /// Most nodes of one value that goes elsewhere: each that it goes through copies it.
        const LARGEST: usize = 512;
        let copies: usize = self.sites.values().map(|s| distinct(s)).sum();
        let nodes = dag_size(g, self.define.value);
        if nodes > LARGEST {
            return Err(format!("a value of {nodes} operations"));
        }
        if copies > 1 && copies * nodes > MOST_NODES {
            return Err(format!("{copies} copies of {nodes} operations each"));
        }
        Ok(())
    }

    /// A product of matrices is made once, where its one reader stands at the same points.
    fn product_stays_whole(&self, g: &Graph, facts: &mut Facts) -> Result<(), String> {
        if !is_contraction(g, facts, self.define.value) {
            return Ok(());
        }
        let [reader] = self.readers[..] else { return Err("a product with several readers".into()) };
        if !self.sites[&reader].iter().all(|s| self.covers(g, s)) {
            return Err("a product that its reader reads more than once a point".into());
        }
        Ok(())
    }

    /// An elementwise value: compare recomputation with memory traffic.
    fn map_pays(&self, g: &Graph, facts: &mut Facts) -> Result<String, String> {
        let t = g.tensor(self.define.target);
        let size: f64 = t.dims.iter().map(|&n| n as f64).product();
        let work = facts.work(g, self.define.value).max(1.0);
        self.small(g)?;
        let evaluations: f64 = self.sites.values().flatten().map(|s| evaluations(g, facts, s)).sum();
        let passes = self.readers.len() as f64 + if self.kept { 0.0 } else { 1.0 };
        let saved =
            cost::memory(t.dtype.bytes(&t.dims) as f64 * passes) + if self.kept { 0.0 } else { cost::LAUNCH };
        let done = if self.kept { 0.0 } else { size };
        let extra = cost::compute((evaluations - done).max(0.0) * work);
        let (saved_us, extra_us) = (saved * 1e6, extra * 1e6);
        if extra <= saved {
            Ok(format!("{extra_us:.1} us of recomputation against {saved_us:.1} us of memory traffic"))
        } else {
            Err(format!("{extra_us:.1} us of recomputation against {saved_us:.1} us of memory traffic"))
        }
    }

    fn apply(&self, g: &mut Graph) {
        for &j in &self.readers {
            let mut s = g.stmts[j].clone();
            facts::map_roots(&mut s, &mut |e| self.substitute(g, e));
            g.stmts[j] = s;
        }
    }

    /// Replaces every read of the target below `e` (a read inside another's index needs a further round).
    fn substitute(&self, g: &mut Graph, e: ExprId) -> ExprId {
        let mut e = e;
        loop {
            let reads = reads_of(g, e, self.define.target);
            if reads.is_empty() {
                return e;
            }
            let map: Vec<(ExprId, ExprId)> = reads.into_iter().map(|r| (r, self.value_at(g, r))).collect();
            e = Subst::of_exprs(map).apply(g, e);
        }
    }

    /// The value that a read of the target has.
    fn value_at(&self, g: &mut Graph, read: ExprId) -> ExprId {
        let Expr::Read(r) = g.expr(read).clone() else { return read };
        let axes: Vec<(AxisId, ExprId)> =
            self.define.axes.iter().copied().zip(r.index.iter().copied()).collect();
        let value = Subst::of_axes(g, axes).apply(g, self.define.value);
        let value = stored_value(g, self.define.target, value);
        match r.access {
            Access::Else(default) => {
                let inside = in_bounds(g, &r);
                match inside {
                    Some(c) => {
                        let (ty, span) = (g.ty(read), g.span(read));
                        g.add(Expr::Select(c, value, default), ty, span)
                    }
                    None => value,
                }
            }
            _ => value,
        }
    }
}

/// A value as it comes back from a tensor: rounded if the tensor's dtype rounds.
pub fn stored_value(g: &mut Graph, t: TensorId, value: ExprId) -> ExprId {
    let (dtype, how) = (g.tensor(t).dtype, g.tensor(t).rounding());
    let span = g.span(value);
    let value =
        if g.ty(value) == dtype.compute() { value } else { g.add(Expr::Cast(value), dtype.compute(), span) };
    if dtype == dtype.compute().stored() {
        value
    } else {
        g.add(Expr::Round(dtype, how, value), dtype.compute(), span)
    }
}

/// The condition that every index of a read is inside its dim; `None` if that is known.
fn in_bounds(g: &mut Graph, r: &Read) -> Option<ExprId> {
    let (lo, dims) = (g.tensor(r.tensor).lo.clone(), g.tensor(r.tensor).dims.clone());
    let mut conds = Vec::new();
    for (d, &i) in r.index.iter().enumerate() {
        if bounds::index_is_safe(g, i, lo[d], dims[d]) {
            continue;
        }
        let range = bounds::interval(g, i);
        let span = g.span(i);
        if range.is_none_or(|(a, _)| a < lo[d] as i128) {
            let low = g.int(lo[d]);
            conds.push(g.add(Expr::Call(Func::Le, vec![low, i]), Ty::Bool, span));
        }
        if range.is_none_or(|(_, b)| b >= (lo[d] + dims[d]) as i128) {
            let high = g.int(lo[d] + dims[d]);
            conds.push(g.add(Expr::Call(Func::Lt, vec![i, high]), Ty::Bool, span));
        }
    }
    conds.into_iter().rev().reduce(|rest, c| {
        let no = g.lit(Value::Bool(false));
        let span = g.span(c);
        g.add(Expr::Select(c, rest, no), Ty::Bool, span)
    })
}

/// Times a value is computed at a site. A contraction computes a tile's operand once for a tile of outputs.
fn evaluations(g: &Graph, facts: &mut Facts, site: &Site) -> f64 {
    const TILE: f64 = 128.0;
    let all = facts::volume(g, &site.scope);
    let in_product = site.folds.iter().any(|&f| is_contraction(g, facts, f));
    if !in_product {
        return all;
    }
    let Expr::Read(r) = g.expr(site.expr) else { return all };
    let mut free: BTreeSet<AxisId> = BTreeSet::new();
    r.index.iter().for_each(|&i| free.extend(facts.free(g, i).iter()));
    let own: f64 = site.scope.iter().filter(|a| free.contains(a)).map(|&a| facts::points(g, a)).product();
    own.max(all / TILE)
}

/// Do all outermost folds of a value depend on all of these axes?
fn folds_span(g: &Graph, facts: &mut Facts, e: ExprId, axes: &[AxisId]) -> bool {
    let all: BTreeSet<AxisId> = axes.iter().copied().filter(|&a| facts::points(g, a) > 1.0).collect();
    outer_folds(g, e).into_iter().all(|f| all.is_subset(&facts.free(g, f)))
}

/// The folds below an expression that stand in no other fold.
pub fn outer_folds(g: &Graph, e: ExprId) -> Vec<ExprId> {
    let mut seen = FxHashSet::default();
    let mut stack = vec![e];
    let mut found = Vec::new();
    while let Some(x) = stack.pop() {
        if !seen.insert(x) {
            continue;
        }
        if matches!(g.expr(x), Expr::Fold(_)) {
            found.push(x);
        } else {
            stack.extend(g.children(x));
        }
    }
    found.sort();
    found
}

/// A sum of products worth shared-memory tiles: operands that are used again along other axes.
pub fn is_contraction(g: &Graph, facts: &mut Facts, e: ExprId) -> bool {
    has_product(g, facts, e, |a, b| a && b)
}

/// A sum of products of which one operand at least is used again: a matrix by a matrix or by a vector.
pub fn is_product_of_matrix(g: &Graph, facts: &mut Facts, e: ExprId) -> bool {
    has_product(g, facts, e, |a, b| a || b)
}

/// Whether a value holds a sum of products along both operands, which `fits` by whether each of them is used again.
fn has_product(g: &Graph, facts: &mut Facts, e: ExprId, fits: impl Fn(bool, bool) -> bool) -> bool {
    outer_folds(g, e).into_iter().any(|f| {
        let Expr::Fold(fold) = g.expr(f) else { return false };
        if fold.combine != Combine::Builtin(Monoid::Sum) {
            return false;
        }
        let all = facts.free(g, fold.body);
        let Some((a, b)) = product(g, fold.body) else { return false };
        let (a, b) = (own_axes(g, a), own_axes(g, b));
        let reused =
            |x: &BTreeSet<AxisId>| all.iter().filter(|v| !x.contains(v)).any(|&v| facts::points(g, v) > 1.0);
        let folded = fold.axes.iter().any(|v| a.contains(v)) && fold.axes.iter().any(|v| b.contains(v));
        folded && fits(reused(&a), reused(&b))
    })
}

/// The axes that an expression changes with from point to point: those under an integer quotient (heads that share)
/// do not count.
fn own_axes(g: &Graph, e: ExprId) -> BTreeSet<AxisId> {
    let mut seen = FxHashSet::default();
    let mut stack = vec![e];
    let mut found = BTreeSet::new();
    while let Some(x) = stack.pop() {
        match g.expr(x) {
            _ if !seen.insert(x) => {}
            Expr::Axis(a) => {
                found.insert(*a);
            }
            Expr::Call(Func::Div, _) if g.ty(x).is_int() => {}
            _ => stack.extend(g.children(x)),
        }
    }
    found
}

fn product(g: &Graph, e: ExprId) -> Option<(ExprId, ExprId)> {
    match g.expr(e) {
        Expr::Call(Func::Mul, args) => Some((args[0], args[1])),
        Expr::Cast(a) => product(g, *a),
        // Terms that a condition leaves out.
        Expr::Select(_, a, b) if matches!(g.expr(*b), Expr::Lit(Value::F32(v)) if *v == 0.0) => {
            product(g, *a)
        }
        _ => None,
    }
}

fn read_sites(g: &Graph, facts: &mut Facts, s: &Stmt, t: TensorId) -> Vec<Site> {
    let mut found = Vec::new();
    sites::visit(g, s, &mut |site| {
        if matches!(g.expr(site.expr), Expr::Read(r) if r.tensor == t) {
            found.push(site.clone());
        }
        facts.reads(g, site.expr).contains(&t)
    });
    found
}

fn distinct(sites: &[Site]) -> usize {
    sites.iter().map(|s| s.expr).collect::<BTreeSet<_>>().len()
}

fn reads_of(g: &Graph, e: ExprId, t: TensorId) -> Vec<ExprId> {
    let mut found: Vec<ExprId> = below(g, e);
    found.retain(|&x| matches!(g.expr(x), Expr::Read(r) if r.tensor == t));
    found.sort();
    found
}

/// Every expression reachable, itself included.
pub fn below(g: &Graph, e: ExprId) -> Vec<ExprId> {
    let mut seen = FxHashSet::default();
    let mut stack = vec![e];
    let mut found = Vec::new();
    while let Some(x) = stack.pop() {
        if seen.insert(x) {
            found.push(x);
            stack.extend(g.children(x));
        }
    }
    found
}

fn dag_size(g: &Graph, e: ExprId) -> usize {
    below(g, e).len()
}

/// Removes statements whose targets are locals that nothing reads and that cannot fault; not those of `kept`.
pub fn drop_unread(g: &mut Graph, facts: &mut Facts, kept: &BTreeSet<TensorId>) {
    loop {
        let mut read: BTreeSet<TensorId> =
            g.outputs.iter().map(|o| o.tensor).chain(kept.iter().copied()).collect();
        for s in &g.stmts {
            let targets = s.targets();
            read.extend(facts.stmt_reads(g, s).into_iter().filter(|t| !targets.contains(t)));
        }
        let dead = |s: &Stmt, facts: &mut Facts| {
            s.targets().iter().all(|t| !read.contains(t))
                && facts::roots(s).into_iter().all(|e| !facts.has_checked(g, e))
                && !matches!(s, Stmt::Update(u) if !u.proven)
        };
        let flags: Vec<bool> = g.stmts.iter().map(|s| dead(s, facts)).collect();
        if !flags.contains(&true) {
            return;
        }
        let mut flags = flags.into_iter();
        g.stmts.retain(|_| !flags.next().expect("one flag a statement"));
    }
}
