//! Axes in groups: where a reduction takes its terms in groups of an axis (`x[m, g*G + k]` over k) and a definition
//! reads the groups' values at `n/G`, n is split into g and k, and so are the tensors that it indexes.
//!
//! A tensor whose dim N is seen as N/G and G has the same elements in the same places. After the split the definition's
//! group is an axis of its own, so that reduction and definition are over equal rows: quantisation by groups and group
//! norms are one kernel. Only this graph of the plan changes; the caller's shapes stay.

use super::inline::below;
use super::subst::map_children;
use crate::ir::graph::*;
use crate::vocab::dtype::{Ty, Value};
use crate::vocab::func::Func;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A tensor's dim.
type Dim = (TensorId, usize);

/// Splits axes by one size of groups, if there is something to gain.
pub fn split(g: &mut Graph) {
    // What a tile block says of an axis would have no place.
    if !g.tiles.is_empty() {
        return;
    }
    let Some((seeds, by)) = wanted(g) else { return };
    let mut found = Split { by, dims: BTreeSet::new(), axes: BTreeSet::new() };
    if seeds.iter().any(|&d| !found.take(g, d)) {
        return;
    }
    // What else the split axes index goes with them where that is possible.
    for d in found.beside(g) {
        let mut tried = found.clone();
        if tried.take(g, d) && tried.axes == found.axes {
            found = tried;
        }
    }
    found.apply(g);
}

/// The dims that reductions take in groups, with the groups' size: those whose groups' values are read at `n/G` beside them.
fn wanted(g: &Graph) -> Option<(BTreeSet<Dim>, i64)> {
    let mut seeds: BTreeMap<i64, BTreeSet<Dim>> = BTreeMap::new();
    let mut quotients = BTreeSet::new();
    for d in g.stmts.iter().filter_map(define) {
        let all = below(g, d.value);
        for &e in &all {
            if let Expr::Fold(f) = g.expr(e) {
                let reads = below(g, f.body).into_iter().filter_map(|x| read(g, x));
                for (t, i, index) in reads.flat_map(indices) {
                    let digits = digits(g, index).filter(|(_, _, k)| f.axes.contains(k));
                    if let Some((_, by, _)) = digits {
                        seeds.entry(by).or_default().insert((t, i));
                    }
                }
            }
            if let Some((a, by)) = quotient(g, e).filter(|(a, _)| d.axes.contains(a)) {
                quotients.insert((d.target, a, by));
            }
        }
    }
    // The definition reads both the grouped tensor and what stands at `n/G`.
    let reads_seed = |(target, a, by): &(TensorId, AxisId, i64)| {
        let d = g.stmts.iter().filter_map(define).find(|d| d.target == *target);
        let all = d.map(|d| below(g, d.value)).unwrap_or_default();
        let mut reads = all.into_iter().filter_map(|x| read(g, x)).flat_map(indices);
        let found = reads.find(|(t, i, index)| {
            seeds.get(by).is_some_and(|s| s.contains(&(*t, *i)))
                && matches!(g.expr(*index), Expr::Axis(x) if x == a)
        });
        found.map(|_| *by)
    };
    let by = quotients.iter().find_map(reads_seed)?;
    Some((seeds.remove(&by)?, by))
}

#[derive(Clone)]
struct Split {
    by: i64,
    dims: BTreeSet<Dim>,
    /// Axes of definitions.
    axes: BTreeSet<AxisId>,
}

impl Split {
    /// Takes a dim, with the axes that index it and the targets that these make; says whether all can be split.
    fn take(&mut self, g: &Graph, dim: Dim) -> bool {
        let (t, i) = dim;
        let tensor = g.tensor(t);
        let plain = tensor.lo[i] == 0 && tensor.dims[i] % self.by == 0 && tensor.dims[i] >= self.by;
        let role = matches!(tensor.role, Role::Input | Role::Result | Role::Local);
        let others = self.dims.iter().any(|d| d.0 == t && d.1 != i);
        if self.dims.contains(&dim) {
            return true;
        }
        if !plain || !role || others || tensor.dtype.bits() < 8 || tensor.range.is_some() {
            return false;
        }
        self.dims.insert(dim);
        g.stmts.iter().all(|s| self.reads_of(g, s, dim) && self.definition_of(s, dim))
    }

    /// The reads of a dim in a statement: in groups, or by an axis of a definition that can be split.
    fn reads_of(&mut self, g: &Graph, s: &Stmt, (t, i): Dim) -> bool {
        let roots = super::facts::roots(s);
        let all: BTreeSet<ExprId> = roots.iter().flat_map(|&r| below(g, r)).collect();
        for r in all.iter().filter_map(|&e| read(g, e)).filter(|r| r.tensor == t) {
            let in_groups = digits(g, r.index[i]).is_some_and(|(_, by, _)| by == self.by);
            let ok = match g.expr(r.index[i]) {
                _ if r.access != Access::Proven => false,
                _ if in_groups => true,
                Expr::Axis(a) => self.axis(g, s, *a),
                _ => false,
            };
            if !ok {
                return false;
            }
        }
        true
    }

    fn axis(&mut self, g: &Graph, s: &Stmt, a: AxisId) -> bool {
        let Some(d) = define(s) else { return false };
        let Some(place) = d.axes.iter().position(|x| *x == a) else { return false };
        if self.axes.contains(&a) {
            return true;
        }
        let ranges = below(g, d.value).into_iter().filter_map(|e| match g.expr(e) {
            Expr::Fold(f) => Some(&f.axes),
            _ => None,
        });
        let mut ends = ranges.flatten().flat_map(|&k| [g.axis(k).lo, g.axis(k).hi]);
        if ends.any(|e| below(g, e).iter().any(|&x| matches!(g.expr(x), Expr::Axis(b) if *b == a))) {
            return false;
        }
        self.axes.insert(a);
        self.take(g, (d.target, place))
    }

    /// The definition of a dim's tensor, whose axis there is split.
    fn definition_of(&mut self, s: &Stmt, (t, i): Dim) -> bool {
        match s {
            _ if !s.targets().contains(&t) => true,
            Stmt::Define(d) => {
                self.axes.insert(d.axes[i]);
                true
            }
            _ => false,
        }
    }

    /// Further dims that split axes index plainly.
    fn beside(&self, g: &Graph) -> BTreeSet<Dim> {
        let roots = g.stmts.iter().filter_map(define).map(|d| d.value);
        let all: BTreeSet<ExprId> = roots.flat_map(|r| below(g, r)).collect();
        let reads = all.into_iter().filter_map(|e| read(g, e)).flat_map(indices);
        let own = reads.filter(|(_, _, x)| matches!(g.expr(*x), Expr::Axis(a) if self.axes.contains(a)));
        own.map(|(t, i, _)| (t, i)).filter(|d| !self.dims.contains(d)).collect()
    }

    fn apply(&self, g: &mut Graph) {
        let mut pairs: HashMap<AxisId, (AxisId, AxisId)> = HashMap::new();
        let (zero, by) = (g.int(0), g.int(self.by));
        for &a in &self.axes {
            let Some((_, n)) = g.axis_range(a) else { continue };
            let groups = g.int(n / self.by);
            let (name, span) = (g.axis(a).name.clone(), g.axis(a).span);
            let outer = g.new_axis(format!("{name}_group"), zero, groups, span);
            pairs.insert(a, (outer, g.new_axis(name, zero, by, span)));
        }
        let mut done = HashMap::new();
        let mut stmts = g.stmts.clone();
        for s in &mut stmts {
            super::facts::map_roots(s, &mut |e| self.rewritten(g, &pairs, &mut done, e));
            if let Stmt::Define(d) = s {
                let two = |a: &AxisId| pairs.get(a).map_or(vec![*a], |&(outer, inner)| vec![outer, inner]);
                d.axes = d.axes.iter().flat_map(two).collect();
            }
        }
        g.stmts = stmts;
        for &(t, i) in &self.dims {
            let dims = g.tensor(t).dims.clone();
            g.outputs.iter_mut().filter(|o| o.tensor == t).for_each(|o| o.shape = Some(dims.clone()));
            let t = &mut g.tensors[t.0 as usize];
            t.dims.splice(i..=i, [t.dims[i] / self.by, self.by]);
            t.lo.insert(i, 0);
            if let Some(&step) = t.strides.get(i) {
                t.strides.insert(i, step * self.by);
            }
        }
    }

    fn rewritten(
        &self,
        g: &mut Graph,
        pairs: &HashMap<AxisId, (AxisId, AxisId)>,
        done: &mut HashMap<ExprId, ExprId>,
        e: ExprId,
    ) -> ExprId {
        if let Some(&to) = done.get(&e) {
            return to;
        }
        let (ty, span) = (g.ty(e), g.span(e));
        let part = |g: &mut Graph, f: Func| match g.expr(e) {
            Expr::Call(func, args) if *func == f && literal(g, args[1]) == Some(self.by) => {
                match g.expr(args[0]) {
                    Expr::Axis(a) => pairs.get(a).copied(),
                    _ => None,
                }
            }
            _ => None,
        };
        let to = if let Some((outer, _)) = part(g, Func::Div) {
            g.axis_expr(outer)
        } else if let Some((_, inner)) = part(g, Func::Rem) {
            g.axis_expr(inner)
        } else {
            match g.expr(e).clone() {
                Expr::Axis(a) => match pairs.get(&a) {
                    Some(&(outer, inner)) => {
                        let (outer, inner, by) = (g.axis_expr(outer), g.axis_expr(inner), g.int(self.by));
                        let first = g.add(Expr::Call(Func::Mul, vec![outer, by]), Ty::I64, span);
                        g.add(Expr::Call(Func::Add, vec![first, inner]), Ty::I64, span)
                    }
                    None => e,
                },
                Expr::Read(r) => {
                    let index = r.index.iter().enumerate();
                    let index =
                        index.flat_map(|(i, &x)| self.index(g, pairs, done, (r.tensor, i), x)).collect();
                    let access = match r.access {
                        Access::Else(d) => Access::Else(self.rewritten(g, pairs, done, d)),
                        other => other,
                    };
                    g.add(Expr::Read(Read { tensor: r.tensor, index, access }), ty, span)
                }
                // A fold's axes are its own: none of them is split.
                other => {
                    let expr = map_children(other, &mut |c| self.rewritten(g, pairs, done, c));
                    g.add(expr, ty, span)
                }
            }
        };
        done.insert(e, to);
        to
    }

    /// An index of a dim, as two where the dim is split.
    fn index(
        &self,
        g: &mut Graph,
        pairs: &HashMap<AxisId, (AxisId, AxisId)>,
        done: &mut HashMap<ExprId, ExprId>,
        dim: Dim,
        x: ExprId,
    ) -> Vec<ExprId> {
        if !self.dims.contains(&dim) {
            return vec![self.rewritten(g, pairs, done, x)];
        }
        if let Some((outer, _, k)) = digits(g, x) {
            return vec![self.rewritten(g, pairs, done, outer), g.axis_expr(k)];
        }
        match g.expr(x) {
            Expr::Axis(a) => {
                let (outer, inner) = pairs[a];
                vec![g.axis_expr(outer), g.axis_expr(inner)]
            }
            _ => unreachable!("`take` looked at every read of the dim"),
        }
    }
}

fn define(s: &Stmt) -> Option<&Define> {
    match s {
        Stmt::Define(d) => Some(d),
        _ => None,
    }
}

fn read(g: &Graph, e: ExprId) -> Option<&Read> {
    match g.expr(e) {
        Expr::Read(r) => Some(r),
        _ => None,
    }
}

fn indices(r: &Read) -> impl Iterator<Item = (TensorId, usize, ExprId)> + '_ {
    r.index.iter().enumerate().map(|(i, &x)| (r.tensor, i, x))
}

fn literal(g: &Graph, e: ExprId) -> Option<i64> {
    match g.expr(e) {
        Expr::Lit(Value::I64(n)) => Some(*n),
        _ => None,
    }
}

/// `a / G` of an axis.
fn quotient(g: &Graph, e: ExprId) -> Option<(AxisId, i64)> {
    match g.expr(e) {
        Expr::Call(Func::Div, args) => match g.expr(args[0]) {
            Expr::Axis(a) => literal(g, args[1]).filter(|&n| n > 1).map(|n| (*a, n)),
            _ => None,
        },
        _ => None,
    }
}

/// An index `e·G + k` with k in 0..G: e, G and k.
fn digits(g: &Graph, index: ExprId) -> Option<(ExprId, i64, AxisId)> {
    let Expr::Call(Func::Add, args) = g.expr(index) else { return None };
    let pair = |a: ExprId, b: ExprId| {
        let Expr::Axis(k) = g.expr(b) else { return None };
        let Expr::Call(Func::Mul, f) = g.expr(a) else { return None };
        let scaled = [(f[0], f[1]), (f[1], f[0])].into_iter().find_map(|(e, n)| Some((e, literal(g, n)?)));
        let (e, by) = scaled.filter(|&(_, by)| by > 1 && g.axis_range(*k) == Some((0, by)))?;
        let apart = !below(g, e).iter().any(|&x| matches!(g.expr(x), Expr::Axis(a) if a == k));
        apart.then_some((e, by, *k))
    };
    pair(args[0], args[1]).or_else(|| pair(args[1], args[0]))
}
