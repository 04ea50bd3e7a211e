//! What is known where an expression stands, and proofs of linear inequalities from it.
//!
//! A fact is a linear form over atoms (axes, reads, and whatever is not linear) that is ≥ 0. A goal is proven if its
//! range is, or if a positive combination with facts has a range that is.

use super::interval::{self, Iv};
use crate::ir::graph::*;
use crate::vocab::func::Func;
use rustc_hash::FxHashMap as HashMap;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Σ coefficient · atom + constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lin {
    pub terms: BTreeMap<ExprId, i128>,
    pub c: i128,
}

impl Lin {
    pub fn constant(c: i128) -> Lin {
        Lin { terms: BTreeMap::new(), c }
    }

    fn atom(e: ExprId) -> Lin {
        Lin { terms: BTreeMap::from([(e, 1)]), c: 0 }
    }

    /// `self + k · o`
    pub fn plus(&self, o: &Lin, k: i128) -> Lin {
        let mut out = self.clone();
        out.c = out.c.saturating_add(o.c.saturating_mul(k));
        for (&e, &v) in &o.terms {
            let now = out.terms.remove(&e).unwrap_or(0).saturating_add(v.saturating_mul(k));
            if now != 0 {
                out.terms.insert(e, now);
            }
        }
        out
    }

    fn times(&self, k: i128) -> Lin {
        Lin::constant(0).plus(self, k)
    }

    pub fn shift(mut self, by: i128) -> Lin {
        self.c = self.c.saturating_add(by);
        self
    }
}

/// What is known of a tensor's values.
#[derive(Clone, Debug, Default)]
pub struct Values {
    pub range: Option<Iv>,
    /// All values in row-major order, where they depend on axes, sizes and constants only and are not many.
    pub table: Option<Rc<Vec<Option<i64>>>>,
    /// Depends on axes, sizes and constants only.
    pub closed: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Prover {
    pub facts: Vec<Lin>,
    unequal: Vec<Lin>,
    /// The conditions themselves, with their side, for the trial of points.
    pub conds: Vec<(ExprId, bool)>,
    /// By tensor.
    pub tensors: Vec<Values>,
    pub nested: u32,
    pub memo: RefCell<HashMap<ExprId, Iv>>,
    /// Steps that one proof may still take.
    fuel: Cell<u32>,
}

/// A state to go back to.
#[derive(Clone, Copy)]
pub struct Mark {
    facts: usize,
    unequal: usize,
    conds: usize,
}

impl Prover {
    pub fn mark(&self) -> Mark {
        Mark { facts: self.facts.len(), unequal: self.unequal.len(), conds: self.conds.len() }
    }

    pub fn release(&mut self, m: Mark) {
        if self.facts.len() != m.facts {
            self.memo.borrow_mut().clear();
        }
        self.facts.truncate(m.facts);
        self.unequal.truncate(m.unequal);
        self.conds.truncate(m.conds);
    }

    /// Drops what speaks of an axis.
    pub fn forget(&mut self, g: &Graph, axis: AxisId) {
        let mut free = crate::pass::facts::Facts::default();
        let mut speaks = |e: ExprId| free.free(g, e).contains(&axis);
        self.conds.retain(|&(c, _)| !speaks(c));
        self.facts.retain(|f| !f.terms.keys().any(|&e| speaks(e)));
        self.unequal.retain(|f| !f.terms.keys().any(|&e| speaks(e)));
        self.memo.borrow_mut().clear();
    }

    /// Takes a condition as true, or as false.
    pub fn assume(&mut self, g: &Graph, cond: ExprId, positive: bool) {
        self.conds.push((cond, positive));
        self.learn(g, cond, positive, 0);
        self.sharpen(g);
    }

    /// Takes a linear form as ≥ 0.
    pub fn know(&mut self, lin: Lin) {
        if !lin.terms.is_empty() && !self.facts.contains(&lin) {
            self.facts.push(lin);
            self.memo.borrow_mut().clear();
        }
    }

    fn learn(&mut self, g: &Graph, cond: ExprId, positive: bool, depth: u32) {
        if depth > 64 {
            return;
        }
        match g.expr(cond) {
            Expr::Call(Func::Not, args) => self.learn(g, args[0], !positive, depth + 1),
            Expr::Call(f, args) if g.ty(args[0]).is_int() => {
                let (a, b) = (self.lin(g, args[0]), self.lin(g, args[1]));
                let d = b.plus(&a, -1);
                match (f, positive) {
                    (Func::Lt, true) => self.know(d.shift(-1)),
                    (Func::Lt, false) => self.know(d.times(-1)),
                    (Func::Le, true) => self.know(d),
                    (Func::Le, false) => self.know(d.times(-1).shift(-1)),
                    (Func::Eq, true) | (Func::Ne, false) => {
                        self.know(d.clone());
                        self.know(d.times(-1));
                    }
                    (Func::Eq, false) | (Func::Ne, true) => self.unequal.push(d),
                    _ => {}
                }
            }
            &Expr::Select(a, b, c) => {
                use super::build::literal_bool;
                // a && b is Select(a, b, false); a || b is Select(a, true, b).
                if positive && literal_bool(g, c) == Some(false) {
                    self.learn(g, a, true, depth + 1);
                    self.learn(g, b, true, depth + 1);
                }
                if !positive && literal_bool(g, b) == Some(true) {
                    self.learn(g, a, false, depth + 1);
                    self.learn(g, c, false, depth + 1);
                }
            }
            _ => {}
        }
    }

    /// `d ≠ 0` and `d ≥ 0` give `d ≥ 1`.
    fn sharpen(&mut self, g: &Graph) {
        for i in 0..self.unequal.len() {
            let d = self.unequal[i].clone();
            let back = d.times(-1);
            if self.proves(g, &d) {
                self.know(d.shift(-1));
            } else if self.proves(g, &back) {
                self.know(back.shift(-1));
            }
        }
    }

    /// The facts of an axis whose range is not literal.
    pub fn enter_axis(&mut self, g: &mut Graph, a: AxisId) {
        if g.axis_range(a).is_none() {
            let (lo, hi) = (self.lin(g, g.axis(a).lo), self.lin(g, g.axis(a).hi));
            let axis = Lin::atom(g.axis_expr(a));
            self.know(axis.plus(&lo, -1));
            self.know(hi.plus(&axis, -1).shift(-1));
        }
    }

    /// What the single-term facts say of an atom.
    pub fn refined(&self, e: ExprId) -> Iv {
        let mut v = (i128::MIN, i128::MAX);
        for f in self.facts.iter().filter(|f| f.terms.len() == 1) {
            if let Some(&k) = f.terms.get(&e) {
                if k > 0 {
                    v.0 = v.0.max(-interval::floor_div(f.c, k));
                } else {
                    v.1 = v.1.min(interval::floor_div(f.c, -k));
                }
            }
        }
        v
    }

    /// An integer expression as a linear form.
    pub fn lin(&self, g: &Graph, e: ExprId) -> Lin {
        let all = interval::of_type(g.ty(e));
        match g.expr(e) {
            Expr::Lit(_) => Lin::constant(self.iv(g, e).0),
            Expr::Call(f @ (Func::Add | Func::Sub | Func::Mul | Func::Neg), args) => {
                let raw = self.raw(g, e);
                if raw.0 < all.0 || raw.1 > all.1 {
                    return Lin::atom(e);
                }
                let a = self.lin(g, args[0]);
                let b = args.get(1).map(|&b| self.lin(g, b));
                match (f, b) {
                    (Func::Add, Some(b)) => a.plus(&b, 1),
                    (Func::Sub, Some(b)) => a.plus(&b, -1),
                    (Func::Neg, _) => a.times(-1),
                    (Func::Mul, Some(b)) if b.terms.is_empty() => a.times(b.c),
                    (Func::Mul, Some(b)) if a.terms.is_empty() => b.times(a.c),
                    _ => Lin::atom(e),
                }
            }
            Expr::Cast(a) if g.ty(*a) == crate::vocab::dtype::Ty::I32 => self.lin(g, *a),
            _ => Lin::atom(e),
        }
    }

    fn least(&self, g: &Graph, l: &Lin) -> i128 {
        l.terms.iter().fold(l.c, |acc, (&e, &k)| {
            let (lo, hi) = self.iv(g, e);
            acc.saturating_add(k.saturating_mul(if k > 0 { lo } else { hi }))
        })
    }

    /// Is `l ≥ 0` proven here?
    pub fn proves(&self, g: &Graph, l: &Lin) -> bool {
        self.fuel.set(400);
        self.search(g, l, 4)
    }

    fn search(&self, g: &Graph, goal: &Lin, depth: u32) -> bool {
        if self.least(g, goal) >= 0 {
            return true;
        }
        if depth == 0 {
            return false;
        }
        let derived: Vec<Lin> = goal.terms.keys().flat_map(|&e| self.derived(g, e)).collect();
        for fact in self.facts.iter().chain(&derived) {
            for (e, &k) in &fact.terms {
                let Some(&mine) = goal.terms.get(e) else { continue };
                if (mine > 0) != (k > 0) {
                    continue;
                }
                if self.fuel.get() == 0 {
                    return false;
                }
                self.fuel.set(self.fuel.get() - 1);
                // |k|·goal − |mine|·fact has no `e`; if it is ≥ 0, so is the goal.
                let next = goal.times(k.abs()).plus(fact, -mine.abs());
                if next.terms.len() <= 8 && self.search(g, &next, depth - 1) {
                    return true;
                }
            }
        }
        false
    }

    /// Facts that an atom carries by what it is.
    fn derived(&self, g: &Graph, e: ExprId) -> Vec<Lin> {
        let Expr::Call(f, args) = g.expr(e) else { return Vec::new() };
        if args.len() != 2 || !g.ty(e).is_int() {
            return Vec::new();
        }
        let (t, a) = (Lin::atom(e), self.lin(g, args[0]));
        let b = self.lin(g, args[1]);
        let divisor = if b.terms.is_empty() { b.c } else { 0 };
        match f {
            // d·t ≤ a ≤ d·t + d − 1
            Func::Div if divisor > 0 => {
                let rest = a.plus(&t, -divisor);
                vec![rest.clone(), rest.times(-1).shift(divisor - 1)]
            }
            // t ≤ a where a ≥ 0
            Func::Rem if divisor > 0 && self.least(g, &a) >= 0 => vec![a.plus(&t, -1)],
            Func::Min => vec![a.plus(&t, -1), b.plus(&t, -1)],
            Func::Max => vec![t.plus(&a, -1), t.plus(&b, -1)],
            _ => Vec::new(),
        }
    }

    /// Is `lo ≤ e < hi` proven here?
    pub fn in_range(&self, g: &Graph, e: ExprId, lo: i64, hi: i64) -> bool {
        let l = self.lin(g, e);
        self.proves(g, &l.clone().shift(-(lo as i128))) && self.proves(g, &l.times(-1).shift(hi as i128 - 1))
    }

    /// Can no point come here, because a range or the facts are empty?
    pub fn is_dead(&self, g: &Graph, axes: impl Iterator<Item = AxisId>) -> bool {
        let mut axes = axes;
        axes.any(|a| g.extent(a) == Some(0)) || self.facts.iter().any(|f| self.least(g, &f.times(-1)) > 0)
    }

    /// A condition's value, if ranges decide it.
    pub fn truth(&self, g: &Graph, e: ExprId) -> Option<bool> {
        use super::build::literal_bool;
        match g.expr(e) {
            Expr::Lit(_) => literal_bool(g, e),
            Expr::Call(Func::Not, args) => self.truth(g, args[0]).map(|b| !b),
            Expr::Call(f, args) if args.len() == 2 && g.ty(args[0]).is_int() => {
                let (a, b) = (self.iv(g, args[0]), self.iv(g, args[1]));
                match f {
                    Func::Lt if a.1 < b.0 => Some(true),
                    Func::Lt if a.0 >= b.1 => Some(false),
                    Func::Le if a.1 <= b.0 => Some(true),
                    Func::Le if a.0 > b.1 => Some(false),
                    Func::Eq | Func::Ne if a.1 < b.0 || b.1 < a.0 => Some(*f == Func::Ne),
                    Func::Eq | Func::Ne if a == b && a.0 == a.1 => Some(*f == Func::Eq),
                    _ => None,
                }
            }
            &Expr::Select(c, a, b) => match self.truth(g, c) {
                Some(true) => self.truth(g, a),
                Some(false) => self.truth(g, b),
                None => {
                    let (a, b) = (self.truth(g, a)?, self.truth(g, b)?);
                    (a == b).then_some(a)
                }
            },
            _ => None,
        }
    }
}
