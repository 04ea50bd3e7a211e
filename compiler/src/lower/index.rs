//! Facts about expressions that the lowering needs: intervals of integer values (which index arithmetic fits 32
//! bits, which guards are idle), axes that occur free, what may fault, how often a node is used.
//!
//! Intervals are inclusive. They hold for every value that the lowered program computes: a value read from an
//! input with a declared range is checked and replaced where it is read, so the declared range is a fact after it.

use crate::ir::graph::{
    Access, AxisId, Base, Combine, Expr, ExprId, Fold, Graph, Read, ScalarId, Stmt, TensorId, UpdateOp,
};
use crate::vocab::dtype::{DType, Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// Inclusive bounds of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    pub lo: i64,
    pub hi: i64,
}

impl Interval {
    pub const FULL: Interval = Interval { lo: i64::MIN, hi: i64::MAX };

    pub fn new(lo: i64, hi: i64) -> Interval {
        Interval { lo, hi }
    }

    pub fn point(v: i64) -> Interval {
        Interval { lo: v, hi: v }
    }

    /// All values of an integer (or bool) compute type.
    pub fn of_type(ty: Ty) -> Interval {
        match ty {
            Ty::Bool => Interval::new(0, 1),
            Ty::I32 => Interval::new(i32::MIN as i64, i32::MAX as i64),
            _ => Interval::FULL,
        }
    }

    /// All values of an integer dtype.
    pub fn of_dtype(dtype: DType) -> Interval {
        let (lo, hi) = dtype.row().int_range;
        Interval { lo, hi }
    }

    pub fn fits_i32(self) -> bool {
        self.lo >= i32::MIN as i64 && self.hi <= i32::MAX as i64
    }

    pub fn union(self, o: Interval) -> Interval {
        Interval { lo: self.lo.min(o.lo), hi: self.hi.max(o.hi) }
    }

    /// `None` if the two share no value.
    pub fn meet(self, o: Interval) -> Option<Interval> {
        let (lo, hi) = (self.lo.max(o.lo), self.hi.min(o.hi));
        (lo <= hi).then_some(Interval { lo, hi })
    }

    /// Clamped into `o`, as a saturating conversion does.
    pub fn saturate(self, o: Interval) -> Interval {
        Interval { lo: self.lo.clamp(o.lo, o.hi), hi: self.hi.clamp(o.lo, o.hi) }
    }

    /// From exact bounds; everything of `ty` if they leave it, for then the value may wrap.
    fn exact(lo: i128, hi: i128, ty: Ty) -> Interval {
        let all = Interval::of_type(ty);
        if lo < all.lo as i128 || hi > all.hi as i128 { all } else { Interval::new(lo as i64, hi as i64) }
    }

    fn corners(self, o: Interval, ty: Ty, f: impl Fn(i128, i128) -> i128) -> Interval {
        let (a, b, c, d) = (self.lo as i128, self.hi as i128, o.lo as i128, o.hi as i128);
        let all = [f(a, c), f(a, d), f(b, c), f(b, d)];
        let lo = all.iter().min().expect("four corners");
        let hi = all.iter().max().expect("four corners");
        Interval::exact(*lo, *hi, ty)
    }
}

/// Facts about one graph, found when they are asked for.
pub struct Facts<'a> {
    graph: &'a Graph,
    /// The statement that defines each tensor.
    definer: HashMap<TensorId, usize>,
    uses: OnceCell<Vec<u32>>,
    intervals: RefCell<HashMap<ExprId, Interval>>,
    tensors: RefCell<HashMap<TensorId, Interval>>,
    axes: RefCell<HashMap<ExprId, Rc<BTreeSet<AxisId>>>>,
    params: RefCell<HashMap<ExprId, bool>>,
    faults: RefCell<HashMap<ExprId, bool>>,
    relaxed: OnceCell<Vec<bool>>,
}

/// How many nodes and statements use each expression.
fn uses(graph: &Graph) -> Vec<u32> {
    let mut uses = vec![0u32; graph.exprs.len()];
    for id in 0..graph.exprs.len() {
        for child in graph.children(ExprId(id as u32)) {
            uses[child.0 as usize] += 1;
        }
    }
    for root in graph.stmts.iter().flat_map(roots) {
        uses[root.0 as usize] += 1;
    }
    uses
}

impl<'a> Facts<'a> {
    pub fn new(graph: &'a Graph) -> Facts<'a> {
        let definer = graph
            .stmts
            .iter()
            .enumerate()
            .flat_map(|(i, s)| s.targets().into_iter().map(move |t| (t, i)))
            .collect();
        Facts {
            graph,
            definer,
            uses: OnceCell::new(),
            intervals: RefCell::default(),
            tensors: RefCell::default(),
            axes: RefCell::default(),
            params: RefCell::default(),
            faults: RefCell::default(),
            relaxed: OnceCell::new(),
        }
    }

    pub(super) fn nears(&self) -> &[bool] {
        self.relaxed.get_or_init(|| super::near::near(self.graph))
    }

    /// The index of the statement that defines a tensor.
    pub fn definer(&self, tensor: TensorId) -> Option<usize> {
        self.definer.get(&tensor).copied()
    }

    /// How many expressions and statements refer to this one.
    pub fn uses(&self, id: ExprId) -> u32 {
        self.uses.get_or_init(|| uses(self.graph))[id.0 as usize]
    }

    /// Inclusive bounds of an axis's values (of some point, if its range is not empty).
    pub fn axis(&self, axis: AxisId) -> Interval {
        let a = self.graph.axis(axis);
        let (lo, hi) = (self.interval(a.lo), self.interval(a.hi));
        Interval { lo: lo.lo, hi: hi.hi.saturating_sub(1).max(lo.lo) }
    }

    /// Bounds of an integer or bool expression's value.
    pub fn interval(&self, id: ExprId) -> Interval {
        if let Some(&i) = self.intervals.borrow().get(&id) {
            return i;
        }
        let ty = self.graph.ty(id);
        let all = Interval::of_type(ty);
        let found = if ty.is_float() { Interval::FULL } else { self.find(id, ty) };
        let i = found.meet(all).unwrap_or(all);
        self.intervals.borrow_mut().insert(id, i);
        i
    }

    fn find(&self, id: ExprId, ty: Ty) -> Interval {
        match self.graph.expr(id) {
            Expr::Lit(v) => literal(*v),
            Expr::Axis(a) => self.axis(*a),
            Expr::Scalar(s) => self.scalar(*s),
            Expr::Read(r) => self.read(r),
            Expr::Call(f, args) => self.call(*f, args, ty),
            Expr::Cast(a) if self.graph.ty(*a).is_float() => Interval::of_type(ty),
            Expr::Cast(a) if ty == Ty::Bool => {
                let _ = a;
                Interval::of_type(ty)
            }
            Expr::Cast(a) => self.interval(*a).saturate(Interval::of_type(ty)),
            Expr::Round(d, _, a) if d.is_int() => self.interval(*a).saturate(Interval::of_dtype(*d)),
            Expr::Round(..) => Interval::of_type(ty),
            Expr::Select(_, a, b) => self.interval(*a).union(self.interval(*b)),
            Expr::Fold(f) => self.fold(f, ty),
            Expr::Param(_) => Interval::of_type(ty),
        }
    }

    fn scalar(&self, id: ScalarId) -> Interval {
        let s = &self.graph.scalars[id.0 as usize];
        match s.range {
            Some((lo, hi)) if lo < hi => Interval::new(lo, hi - 1),
            _ => Interval::of_dtype(s.dtype),
        }
    }

    fn read(&self, r: &Read) -> Interval {
        let own = self.tensor(r.tensor);
        match r.access {
            Access::Proven => own,
            Access::Checked => own.union(Interval::point(0)),
            Access::Else(d) => own.union(self.interval(d)),
        }
    }

    /// Bounds of every element of a tensor.
    pub fn tensor(&self, id: TensorId) -> Interval {
        if let Some(&i) = self.tensors.borrow().get(&id) {
            return i;
        }
        let t = self.graph.tensor(id);
        let all = Interval::of_dtype(t.dtype);
        // A recurrence reads itself: it is everything until more is known.
        self.tensors.borrow_mut().insert(id, all);
        let found = match (t.range, self.definer(id)) {
            (Some((lo, hi)), _) if lo < hi => Interval::new(lo, hi - 1),
            (_, Some(s)) if t.dtype.is_int() => self.defined(&self.graph.stmts[s], all),
            _ => all,
        };
        let i = found.meet(all).unwrap_or(all);
        self.tensors.borrow_mut().insert(id, i);
        i
    }

    fn defined(&self, stmt: &Stmt, all: Interval) -> Interval {
        match stmt {
            Stmt::Define(d) => self.interval(d.value).saturate(all),
            Stmt::Sort(s) => self.axis(s.axes[s.along]),
            Stmt::Table { values, .. } => {
                values.iter().map(|&v| literal(v)).reduce(Interval::union).unwrap_or(all)
            }
            Stmt::Update(u) if u.op == UpdateOp::Set => {
                let base = match u.base {
                    Base::Tensor(t) => self.tensor(t),
                    Base::Unit => Interval::point(0),
                };
                base.union(self.interval(u.value).saturate(all))
            }
            _ => all,
        }
    }

    fn call(&self, f: Func, args: &[ExprId], ty: Ty) -> Interval {
        let all = Interval::of_type(ty);
        if ty == Ty::Bool || args.iter().any(|&a| self.graph.ty(a).is_float()) {
            return all;
        }
        let a = self.interval(args[0]);
        let b = args.get(1).map_or(Interval::point(0), |&b| self.interval(b));
        match f {
            Func::Add => a.corners(b, ty, |x, y| x + y),
            Func::Sub => a.corners(b, ty, |x, y| x - y),
            Func::Mul => a.corners(b, ty, |x, y| x * y),
            Func::Neg => Interval::exact(-(a.hi as i128), -(a.lo as i128), ty),
            Func::Div if b.lo > 0 => a.corners(b, ty, |x, y| x.div_euclid(y)),
            Func::Rem if b.lo > 0 && a.lo >= 0 => Interval::new(0, a.hi.min(b.hi - 1)),
            Func::Rem if b.lo > 0 => Interval::new(0, b.hi - 1),
            Func::Min => Interval::new(a.lo.min(b.lo), a.hi.min(b.hi)),
            Func::Max => Interval::new(a.lo.max(b.lo), a.hi.max(b.hi)),
            Func::Abs if a.lo > all.lo => {
                let top = a.lo.abs().max(a.hi.abs());
                let least = if a.lo > 0 { a.lo } else { (-a.hi).max(0) };
                Interval::new(least, top)
            }
            Func::Sign => Interval::new(-1, 1),
            Func::And if a.lo >= 0 && b.lo >= 0 => Interval::new(0, a.hi.min(b.hi)),
            Func::And if b.lo >= 0 => Interval::new(0, b.hi),
            Func::And if a.lo >= 0 => Interval::new(0, a.hi),
            Func::Or | Func::Xor if a.lo >= 0 && b.lo >= 0 => Interval::new(0, ones(a.hi | b.hi)),
            Func::Shr if b.lo >= 0 && b == Interval::point(b.lo) => {
                Interval::new(a.lo >> b.lo.min(63), a.hi >> b.lo.min(63))
            }
            Func::Shl if b == Interval::point(b.lo) && (0..32).contains(&b.lo) => {
                a.corners(Interval::point(1 << b.lo), ty, |x, y| x * y)
            }
            Func::RandBits => Interval::new(0, u32::MAX as i64),
            _ => all,
        }
    }

    fn fold(&self, f: &Fold, ty: Ty) -> Interval {
        let all = Interval::of_type(ty);
        let full = f.cond.is_none() && f.axes.iter().all(|&a| self.graph.extent(a).is_some_and(|n| n > 0));
        match f.combine {
            Combine::Builtin(Monoid::ArgMax | Monoid::ArgMin) => {
                let axis = self.axis(f.axes[0]);
                if full { axis } else { axis.union(Interval::point(-1)) }
            }
            Combine::Builtin(Monoid::Max | Monoid::Min) if full => self.interval(f.body),
            Combine::Builtin(Monoid::Sum) => {
                let count = f.axes.iter().try_fold(1i128, |n, &a| Some(n * self.graph.extent(a)? as i128));
                let body = self.interval(f.body);
                match count {
                    Some(n) if n < 1 << 62 => {
                        Interval::exact(n * (body.lo as i128).min(0), n * (body.hi as i128).max(0), ty)
                    }
                    _ => all,
                }
            }
            _ => all,
        }
    }

    /// The axes that occur free in an expression.
    pub fn free(&self, id: ExprId) -> Rc<BTreeSet<AxisId>> {
        if let Some(s) = self.axes.borrow().get(&id) {
            return s.clone();
        }
        let mut set = BTreeSet::new();
        if let Expr::Axis(a) = self.graph.expr(id) {
            set.insert(*a);
        }
        for child in self.graph.children(id) {
            set.extend(self.free(child).iter().copied());
        }
        if let Expr::Fold(f) = self.graph.expr(id) {
            f.axes.iter().for_each(|a| {
                set.remove(a);
            });
        }
        let set = Rc::new(set);
        self.axes.borrow_mut().insert(id, set.clone());
        set
    }

    /// Whether a fold function's parameter occurs in it.
    pub fn has_param(&self, id: ExprId) -> bool {
        self.any(id, &self.params, &|g, id| matches!(g.expr(id), Expr::Param(_)))
    }

    /// Whether evaluating it may record a fault.
    pub fn may_fault(&self, id: ExprId) -> bool {
        self.any(id, &self.faults, &|g, id| match g.expr(id) {
            Expr::Read(r) => r.access == Access::Checked || g.tensor(r.tensor).range.is_some(),
            _ => false,
        })
    }

    fn any(
        &self,
        id: ExprId,
        memo: &RefCell<HashMap<ExprId, bool>>,
        here: &dyn Fn(&Graph, ExprId) -> bool,
    ) -> bool {
        if let Some(&b) = memo.borrow().get(&id) {
            return b;
        }
        let b = here(self.graph, id) || self.graph.children(id).iter().any(|&c| self.any(c, memo, here));
        memo.borrow_mut().insert(id, b);
        b
    }
}

/// The expressions that a statement evaluates.
pub fn roots(stmt: &Stmt) -> Vec<ExprId> {
    match stmt {
        Stmt::Define(d) => vec![d.value],
        Stmt::Scan(s) => s.cond.iter().copied().chain([s.body]).collect(),
        Stmt::Sort(s) => vec![s.key],
        Stmt::Recur(r) => r.members.iter().map(|d| d.value).collect(),
        Stmt::Update(u) => u.index.iter().copied().chain(u.cond).chain([u.value]).collect(),
        Stmt::Table { .. } => Vec::new(),
    }
}

/// Every read that a statement evaluates (each expression once).
pub fn reads<'a>(graph: &'a Graph, stmt: &Stmt) -> Vec<(ExprId, &'a Read)> {
    let mut seen = BTreeSet::new();
    let mut todo = roots(stmt);
    let mut found = Vec::new();
    while let Some(id) = todo.pop() {
        if !seen.insert(id) {
            continue;
        }
        if let Expr::Read(r) = graph.expr(id) {
            found.push((id, r));
        }
        todo.extend(graph.children(id));
    }
    found
}

fn literal(v: Value) -> Interval {
    match v {
        Value::Bool(b) => Interval::point(b as i64),
        Value::I32(v) => Interval::point(v as i64),
        Value::I64(v) => Interval::point(v),
        _ => Interval::FULL,
    }
}

/// The least number of ones that covers a non-negative value.
fn ones(v: i64) -> i64 {
    if v == 0 { 0 } else { (u64::MAX >> v.leading_zeros()) as i64 }
}
