//! The invariants that head `graph.rs`, checked.

use super::graph::*;
use crate::vocab::dtype::{DType, Ty};
use crate::vocab::func::Func;
use std::collections::{HashMap, HashSet};

/// All invariants that a graph breaks, one line each.
pub fn verify(g: &Graph) -> Result<(), Vec<String>> {
    let mut v = Verifier {
        g,
        wrong: Vec::new(),
        bound: HashMap::new(),
        defined: HashSet::new(),
        seen: HashSet::new(),
    };
    v.run();
    if v.wrong.is_empty() { Ok(()) } else { Err(v.wrong) }
}

struct Verifier<'a> {
    g: &'a Graph,
    wrong: Vec<String>,
    /// Where each axis is bound: a statement's number, or a fold.
    bound: HashMap<AxisId, String>,
    defined: HashSet<TensorId>,
    /// Expressions looked at in the statement at hand, with nothing but their axes in view.
    seen: HashSet<ExprId>,
}

impl Verifier<'_> {
    fn say(&mut self, what: impl Into<String>) {
        if self.wrong.len() < 50 {
            self.wrong.push(what.into());
        }
    }

    fn run(&mut self) {
        if !self.ids_in_range() {
            return;
        }
        self.bind_axes();
        for (i, t) in self.g.tensors.iter().enumerate() {
            if t.dims.len() != t.lo.len() || t.dims.len() != t.strides.len() || t.dims.iter().any(|&d| d < 0)
            {
                self.say(format!("tensor {}: dims, first indices and strides do not fit", t.name));
            }
            if matches!(t.role, Role::Input | Role::Inout) {
                self.defined.insert(TensorId(i as u32));
            }
        }
        for f in &self.g.fold_fns {
            for e in [f.body, f.unit] {
                if self.g.ty(e) != f.ty {
                    self.say(format!("fold fn {}: not of its type", f.name));
                }
                self.seen.clear();
                self.expr(e, &mut Vec::new());
            }
        }
        for (i, s) in self.g.stmts.iter().enumerate() {
            self.seen.clear();
            self.stmt(i, s);
        }
        for o in &self.g.outputs {
            if !self.defined.contains(&o.tensor) {
                self.say(format!("output {} is never defined", o.name));
            }
        }
    }

    fn ids_in_range(&mut self) -> bool {
        let g = self.g;
        let (ne, nt, na) = (g.exprs.len(), g.tensors.len(), g.axes.len());
        let mut bad = Vec::new();
        for (i, node) in g.exprs.iter().enumerate() {
            let ok = match &node.expr {
                Expr::Axis(a) => (a.0 as usize) < na,
                Expr::Scalar(s) => (s.0 as usize) < g.scalars.len(),
                Expr::Read(r) => (r.tensor.0 as usize) < nt,
                Expr::Fold(f) => {
                    f.axes.iter().all(|a| (a.0 as usize) < na)
                        && match f.combine {
                            Combine::Fn(f) => (f.0 as usize) < g.fold_fns.len(),
                            Combine::Builtin(_) => true,
                        }
                }
                _ => true,
            };
            // A node is made of nodes that stood before it.
            if !ok || g.children(ExprId(i as u32)).iter().any(|c| c.0 as usize >= i) {
                bad.push(format!("expression {i} names something that is not there"));
            }
        }
        for a in &g.axes {
            if a.lo.0 as usize >= ne || a.hi.0 as usize >= ne {
                bad.push(format!("the range of {} is not there", a.name));
            }
        }
        for (i, s) in g.stmts.iter().enumerate() {
            let (tensors, axes, exprs) = parts(s);
            let ok = tensors.iter().all(|t| (t.0 as usize) < nt)
                && axes.iter().all(|a| (a.0 as usize) < na)
                && exprs.iter().all(|e| (e.0 as usize) < ne);
            if !ok {
                bad.push(format!("statement {i} names something that is not there"));
            }
        }
        let here = |t: TensorId| (t.0 as usize) < nt;
        if g.fold_fns.iter().any(|f| f.body.0 as usize >= ne || f.unit.0 as usize >= ne)
            || g.outputs.iter().any(|o| !here(o.tensor) || o.inout.is_some_and(|t| !here(t)))
        {
            bad.push("an output or a fold fn names something that is not there".into());
        }
        let ok = bad.is_empty();
        bad.into_iter().for_each(|b| self.say(b));
        ok
    }

    /// Every axis is bound by one statement or one fold.
    fn bind_axes(&mut self) {
        let mut all: Vec<(AxisId, String)> = Vec::new();
        for (i, s) in self.g.stmts.iter().enumerate() {
            let axes: Vec<AxisId> = match s {
                Stmt::Define(d) => d.axes.clone(),
                Stmt::Scan(s) => s.axes.clone(),
                Stmt::Sort(s) => s.axes.clone(),
                Stmt::Recur(r) => r.members.iter().flat_map(|d| d.axes.clone()).collect(),
                Stmt::Update(u) => u.axes.clone(),
                Stmt::Table { .. } => Vec::new(),
            };
            all.extend(axes.into_iter().map(|a| (a, format!("statement {i}"))));
        }
        for (i, node) in self.g.exprs.iter().enumerate() {
            if let Expr::Fold(f) = &node.expr {
                all.extend(f.axes.iter().map(|&a| (a, format!("fold {i}"))));
            }
        }
        for (a, by) in all {
            if let Some(first) = self.bound.insert(a, by.clone()) {
                let name = self.g.axis(a).name.clone();
                self.say(format!("axis {name} ({}) is bound by {first} and by {by}", a.0));
            }
        }
    }

    fn stmt(&mut self, i: usize, s: &Stmt) {
        match s {
            Stmt::Define(d) => {
                self.define(d);
                self.target(i, d.target);
            }
            Stmt::Scan(s) => {
                self.covers(s.target, &s.axes);
                let mut scope = s.axes.clone();
                self.exprs([Some(s.body), s.cond], &mut scope);
                self.fits(s.target, s.body);
                if s.along >= s.axes.len() {
                    self.say(format!("statement {i}: no axis to scan along"));
                }
                self.target(i, s.target);
            }
            Stmt::Sort(s) => {
                self.covers(s.target, &s.axes);
                self.exprs([Some(s.key), None], &mut s.axes.clone());
                if s.along >= s.axes.len() || !self.g.tensor(s.target).dtype.is_int() {
                    self.say(format!("statement {i}: a sort gives positions along one of its axes"));
                }
                self.target(i, s.target);
            }
            Stmt::Recur(r) => {
                r.members.iter().for_each(|d| self.target(i, d.target));
                for d in &r.members {
                    self.seen.clear();
                    self.define(d);
                }
                let fits = |s: &StepAxis| {
                    s.position.len() == r.members.len()
                        && s.position.iter().zip(&r.members).all(|(&p, d)| p < d.axes.len())
                };
                if r.members.is_empty() || !r.steps.iter().all(fits) {
                    self.say(format!("statement {i}: its step axes do not fit its members"));
                }
            }
            Stmt::Update(u) => self.update(i, u),
            Stmt::Table { target, values } => {
                let t = self.g.tensor(*target);
                if t.dims != [values.len() as i64] || values.iter().any(|v| v.ty() != t.dtype.compute()) {
                    self.say(format!("table {}: its values do not fit", t.name));
                }
                self.target(i, *target);
            }
        }
    }

    fn target(&mut self, i: usize, t: TensorId) {
        if !self.defined.insert(t) {
            let name = self.g.tensor(t).name.clone();
            self.say(format!("statement {i} defines {name} ({}) again", t.0));
        }
    }

    fn define(&mut self, d: &Define) {
        self.covers(d.target, &d.axes);
        self.fits(d.target, d.value);
        self.exprs([Some(d.value), None], &mut d.axes.clone());
    }

    /// The axes run over exactly the tensor's domain.
    fn covers(&mut self, t: TensorId, axes: &[AxisId]) {
        let t = self.g.tensor(t);
        let domain: Vec<Option<(i64, i64)>> =
            t.lo.iter().zip(&t.dims).map(|(&l, &n)| Some((l, l + n))).collect();
        let ranges: Vec<Option<(i64, i64)>> = axes.iter().map(|&a| self.g.axis_range(a)).collect();
        if domain != ranges {
            self.say(format!("{}: its axes {ranges:?} are not its domain {domain:?}", t.name));
        }
    }

    fn fits(&mut self, t: TensorId, value: ExprId) {
        let t = self.g.tensor(t);
        if self.g.ty(value) != t.dtype.compute() {
            self.say(format!("{}: {} is stored in {}", t.name, self.g.ty(value).name(), t.dtype.name()));
        }
    }

    fn update(&mut self, i: usize, u: &Update) {
        let t = self.g.tensor(u.target);
        if u.index.len() != t.dims.len() || u.index.iter().any(|&e| self.g.ty(e) != Ty::I64) {
            self.say(format!("statement {i}: the indices of {} do not fit", t.name));
        }
        self.fits(u.target, u.value);
        if let Base::Tensor(b) = u.base {
            let base = self.g.tensor(b);
            if base.dims != t.dims || base.dtype != t.dtype || !self.defined.contains(&b) {
                self.say(format!("statement {i}: the version before of {} does not fit", t.name));
            }
        }
        if u.axes.iter().any(|&a| self.g.axis_range(a).is_none()) {
            self.say(format!("statement {i}: an axis has no literal range"));
        }
        let mut scope = u.axes.clone();
        self.exprs([Some(u.value), u.cond], &mut scope);
        for &e in &u.index {
            self.expr(e, &mut scope);
        }
        if let Some(c) = u.cond.filter(|&c| self.g.ty(c) != Ty::Bool) {
            self.say(format!("statement {i}: its condition ({}) is not bool", c.0));
        }
        self.target(i, u.target);
    }

    fn exprs(&mut self, all: [Option<ExprId>; 2], scope: &mut Vec<AxisId>) {
        for e in all.into_iter().flatten() {
            self.expr(e, scope);
        }
    }

    fn expr(&mut self, e: ExprId, scope: &mut Vec<AxisId>) {
        // Axes are bound once, so what was in order once is in order again in this statement.
        if !self.seen.insert(e) {
            return;
        }
        let node = &self.g.exprs[e.0 as usize];
        let tys: Vec<Ty> = match &node.expr {
            Expr::Call(_, args) => args.iter().map(|&a| self.g.ty(a)).collect(),
            _ => Vec::new(),
        };
        let ok = match &node.expr {
            Expr::Lit(v) => v.ty() == node.ty,
            Expr::Axis(a) => {
                if !scope.contains(a) {
                    self.say(format!("axis {} is read where it is not bound", self.g.axis(*a).name));
                }
                node.ty == Ty::I64
            }
            Expr::Scalar(s) => self.g.scalars[s.0 as usize].dtype.compute() == node.ty,
            Expr::Read(r) => self.read(r, node.ty),
            Expr::Call(f, _) => law(*f, &tys) == Some(node.ty),
            Expr::Cast(a) => self.g.ty(*a) != node.ty,
            Expr::Round(d, _, a) => node.ty == d.compute() && rounds(*d, self.g.ty(*a)),
            Expr::Select(c, a, b) => {
                self.g.ty(*c) == Ty::Bool && self.g.ty(*a) == node.ty && self.g.ty(*b) == node.ty
            }
            Expr::Fold(f) => self.fold_types(f, node.ty),
            Expr::Param(i) => *i < 2,
        };
        if !ok {
            self.say(format!("expression {} ({:?}) has no type law: {}", e.0, node.expr, node.ty.name()));
        }
        if let Expr::Fold(f) = &node.expr {
            let depth = scope.len();
            for &a in &f.axes {
                let (lo, hi) = (self.g.axis(a).lo, self.g.axis(a).hi);
                self.expr(lo, scope);
                self.expr(hi, scope);
                if self.g.ty(lo) != Ty::I64 || self.g.ty(hi) != Ty::I64 {
                    self.say(format!("the range of {} is not I64", self.g.axis(a).name));
                }
                scope.push(a);
            }
            self.exprs([f.cond, Some(f.body)], scope);
            scope.truncate(depth);
        } else {
            for c in self.g.children(e) {
                self.expr(c, scope);
            }
        }
    }

    fn read(&mut self, r: &Read, ty: Ty) -> bool {
        let t = self.g.tensor(r.tensor);
        if !self.defined.contains(&r.tensor) {
            self.say(format!("{} ({}) is read before it is defined", t.name, r.tensor.0));
        }
        let default = match r.access {
            Access::Else(d) => self.g.ty(d) == ty,
            _ => true,
        };
        r.index.len() == t.dims.len()
            && r.index.iter().all(|&i| self.g.ty(i) == Ty::I64)
            && ty == t.dtype.compute()
            && default
    }

    fn fold_types(&self, f: &Fold, ty: Ty) -> bool {
        let body = self.g.ty(f.body);
        let cond = f.cond.is_none_or(|c| self.g.ty(c) == Ty::Bool);
        cond && !f.axes.is_empty()
            && match f.combine {
                Combine::Builtin(m) => m.result(body) == ty,
                Combine::Fn(x) => self.g.fold_fn(x).ty == body && body == ty,
            }
    }
}

/// The tensors, axes and expressions that a statement names.
fn parts(s: &Stmt) -> (Vec<TensorId>, Vec<AxisId>, Vec<ExprId>) {
    let mut tensors = s.targets();
    let (axes, exprs): (Vec<AxisId>, Vec<ExprId>) = match s {
        Stmt::Define(d) => (d.axes.clone(), vec![d.value]),
        Stmt::Scan(s) => (s.axes.clone(), s.cond.into_iter().chain([s.body]).collect()),
        Stmt::Sort(s) => (s.axes.clone(), vec![s.key]),
        Stmt::Recur(r) => (
            r.members.iter().flat_map(|d| d.axes.iter().copied()).collect(),
            r.members.iter().map(|d| d.value).collect(),
        ),
        Stmt::Update(u) => {
            if let Base::Tensor(t) = u.base {
                tensors.push(t);
            }
            (u.axes.clone(), u.index.iter().copied().chain(u.cond).chain([u.value]).collect())
        }
        Stmt::Table { .. } => (Vec::new(), Vec::new()),
    };
    (tensors, axes, exprs)
}

/// May a value of this type be rounded to a dtype: its compute type, or f64 to a narrower float.
fn rounds(d: DType, from: Ty) -> bool {
    from == d.compute() || (d.is_float() && from == Ty::F64)
}

/// The result type of a function for operands of these types; `None` if it does not take them.
pub fn law(f: Func, tys: &[Ty]) -> Option<Ty> {
    use Func::*;
    let (first, arity) = (*tys.first()?, tys.len());
    let same = tys.iter().all(|&t| t == first);
    let (int, float) = (first.is_int(), first.is_float());
    let when = |ok: bool, t: Ty| ok.then_some(t);
    match f {
        Add | Sub | Mul | Div | Rem | Min | Max => when(same && arity == 2 && (int || float), first),
        And | Or | Xor => when(same && arity == 2 && !float, first),
        Shl | Shr => when(same && arity == 2 && int, first),
        Not => when(arity == 1 && !float, first),
        Eq | Ne => when(same && arity == 2, Ty::Bool),
        Lt | Le => when(same && arity == 2 && first != Ty::Bool, Ty::Bool),
        Neg | Abs | Sign => when(arity == 1 && (int || float), first),
        Pow | Atan2 | Copysign => when(same && arity == 2 && float, first),
        Fma => when(same && arity == 3 && float, first),
        IsNan | IsInf | IsFinite => when(arity == 1 && float, Ty::Bool),
        Tf32 => when(arity == 1 && first == Ty::F32, Ty::F32),
        Bits => when(arity == 1 && float, if first == Ty::F64 { Ty::I64 } else { Ty::I32 }),
        FromBits => when(arity == 1 && int, if first == Ty::I64 { Ty::F64 } else { Ty::F32 }),
        Ldexp => when(arity == 2 && float && tys[1] == Ty::I32, first),
        Uniform | Normal => when(tys == [Ty::I64, Ty::I64], Ty::F32),
        RandBits => when(tys == [Ty::I64, Ty::I64], Ty::I64),
        _ => when(arity == 1 && float, first),
    }
}
