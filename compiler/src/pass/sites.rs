//! Where in a statement something is evaluated: in which scope, and whether always.

use super::facts;
use crate::ir::graph::*;
use rustc_hash::FxHashSet;

/// One way to reach an expression from a statement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    pub expr: ExprId,
    /// The statement's axes, then those of the folds around, outermost first.
    pub scope: Vec<AxisId>,
    /// The folds around, outermost first.
    pub folds: Vec<ExprId>,
    /// The conditions under which alone it is evaluated, with the value each must have. A fold around it that may
    /// leave out points by its range is not listed: `partial` is set.
    pub conds: Vec<(ExprId, bool)>,
    pub partial: bool,
}

impl Site {
    /// Is it evaluated at every point of its scope?
    pub fn always(&self) -> bool {
        self.conds.is_empty() && !self.partial
    }
}

/// The axes a statement's expressions may use.
pub fn stmt_axes(s: &Stmt) -> Vec<AxisId> {
    match s {
        Stmt::Define(d) => d.axes.clone(),
        Stmt::Scan(s) => s.axes.clone(),
        Stmt::Sort(s) => s.axes.clone(),
        Stmt::Update(u) => u.axes.clone(),
        Stmt::Recur(_) | Stmt::Table { .. } => Vec::new(),
    }
}

/// Visits every expression of a statement, each way it is reached once. `enter` says whether to look below.
pub fn visit(g: &Graph, s: &Stmt, enter: &mut dyn FnMut(&Site) -> bool) {
    let mut walk = Walk { g, seen: FxHashSet::default(), enter };
    let top = |expr, axes: &[AxisId], conds| Site {
        expr,
        scope: axes.to_vec(),
        folds: vec![],
        conds,
        partial: false,
    };
    match s {
        Stmt::Recur(r) => r.members.iter().for_each(|d| walk.go(top(d.value, &d.axes, vec![]))),
        Stmt::Scan(x) => guarded(&mut walk, &x.axes, x.cond, &[x.body]),
        Stmt::Update(u) => {
            let values: Vec<ExprId> = u.index.iter().copied().chain([u.value]).collect();
            guarded(&mut walk, &u.axes, u.cond, &values);
        }
        _ => facts::roots(s).into_iter().for_each(|e| walk.go(top(e, &stmt_axes(s), vec![]))),
    }
}

fn guarded(walk: &mut Walk, axes: &[AxisId], cond: Option<ExprId>, values: &[ExprId]) {
    let top = |expr, conds| Site { expr, scope: axes.to_vec(), folds: vec![], conds, partial: false };
    cond.into_iter().for_each(|c| walk.go(top(c, vec![])));
    let conds: Vec<(ExprId, bool)> = cond.into_iter().map(|c| (c, true)).collect();
    values.iter().for_each(|&v| walk.go(top(v, conds.clone())));
}

struct Walk<'a> {
    g: &'a Graph,
    seen: FxHashSet<Site>,
    enter: &'a mut dyn FnMut(&Site) -> bool,
}

impl Walk<'_> {
    fn go(&mut self, site: Site) {
        if !self.seen.insert(site.clone()) || !(self.enter)(&site) {
            return;
        }
        match self.g.expr(site.expr) {
            Expr::Select(c, a, b) => {
                self.go(Site { expr: *c, ..site.clone() });
                self.go(branch(&site, *a, *c, true));
                self.go(branch(&site, *b, *c, false));
            }
            Expr::Read(r) => {
                r.index.iter().for_each(|&i| self.go(Site { expr: i, ..site.clone() }));
                if let Access::Else(d) = r.access {
                    self.go(Site { expr: d, partial: true, ..site });
                }
            }
            Expr::Fold(f) => self.fold(&site, f),
            _ => {
                self.g.children(site.expr).into_iter().for_each(|c| self.go(Site { expr: c, ..site.clone() }))
            }
        }
    }

    fn fold(&mut self, site: &Site, f: &Fold) {
        let mut inner = site.clone();
        inner.folds.push(site.expr);
        for &a in &f.axes {
            let (lo, hi) = (self.g.axis(a).lo, self.g.axis(a).hi);
            self.go(Site { expr: lo, ..inner.clone() });
            self.go(Site { expr: hi, ..inner.clone() });
            inner.scope.push(a);
            inner.partial |= self.g.axis_range(a).is_none();
        }
        if let Some(c) = f.cond {
            self.go(Site { expr: c, ..inner.clone() });
            inner.conds.push((c, true));
        }
        self.go(Site { expr: f.body, ..inner });
    }
}

fn branch(site: &Site, expr: ExprId, cond: ExprId, taken: bool) -> Site {
    let mut s = Site { expr, ..site.clone() };
    s.conds.push((cond, taken));
    s
}

/// May an expression be evaluated where the program does not evaluate it? Passes that ask often ask their [`facts::Facts`].
pub fn speculable(g: &Graph, e: ExprId) -> bool {
    facts::Facts::default().speculable(g, e)
}
