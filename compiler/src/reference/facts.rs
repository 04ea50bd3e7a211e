//! What the evaluator knows of each expression before it runs: the axes it depends on, how often it is used, and
//! where the first rounding that a value reaches is narrow on every path (LANGUAGE.md section 8, functions).

use crate::ir::graph::{Access, AxisId, Base, Combine, Expr, ExprId, Graph, Recur, Stmt, TensorId, Update};
use crate::vocab::dtype::{DType, Ty};
use crate::vocab::func::Func;
use std::collections::{BTreeSet, HashSet};

/// Facts of every expression of a graph, by id.
pub struct Facts {
    /// Axes that stand free in it.
    pub axes: Vec<BTreeSet<AxisId>>,
    /// It reads a member of a recurrence (of any).
    pub members: Vec<bool>,
    /// It stands in a fold function.
    pub params: Vec<bool>,
    /// Nodes that have it as a child, and statements that have it as a root.
    pub uses: Vec<u32>,
    /// Work to evaluate it once, roughly in scalar operations (folds count for many).
    pub cost: Vec<f64>,
    /// A function here may err by 2⁻¹⁵.
    pub narrow: Vec<bool>,
    /// Its value is that of a dtype of 16 (8) bits or fewer.
    pub bits: Vec<u32>,
    /// It holds an exponential of a difference, or reads a tensor that does.
    pub exponential: Vec<bool>,
    /// A condition may make it −inf.
    masked: Vec<bool>,
    /// It is a weight that a condition may make 0, so that what it is multiplied with may be skipped.
    pub skippable: Vec<bool>,
}

/// Tensors whose values carry a fact of the same name.
#[derive(Default)]
struct Carriers {
    members: HashSet<TensorId>,
    exponential: HashSet<TensorId>,
    masked: HashSet<TensorId>,
    skippable: HashSet<TensorId>,
}

pub fn is_narrow(dtype: DType) -> bool {
    dtype.is_float() && dtype.bits() <= 16
}

/// The expressions that a statement evaluates itself: value, condition, indices.
pub fn roots(stmt: &Stmt) -> Vec<ExprId> {
    match stmt {
        Stmt::Define(d) => vec![d.value],
        Stmt::Scan(s) => s.cond.into_iter().chain([s.body]).collect(),
        Stmt::Sort(s) => vec![s.key],
        Stmt::Recur(r) => r.members.iter().map(|d| d.value).collect(),
        Stmt::Update(u) => u.index.iter().copied().chain(u.cond).chain([u.value]).collect(),
        Stmt::Table { .. } => Vec::new(),
    }
}

/// The statement's root that is stored, with the tensor it is stored in.
fn stored(stmt: &Stmt) -> Vec<(ExprId, TensorId)> {
    match stmt {
        Stmt::Define(d) => vec![(d.value, d.target)],
        Stmt::Scan(s) => vec![(s.body, s.target)],
        Stmt::Recur(r) => r.members.iter().map(|d| (d.value, d.target)).collect(),
        Stmt::Update(u) => vec![(u.value, u.target)],
        Stmt::Sort(_) | Stmt::Table { .. } => Vec::new(),
    }
}

impl Facts {
    pub fn of(g: &Graph) -> Facts {
        let n = g.exprs.len();
        let mut f = Facts {
            axes: vec![BTreeSet::new(); n],
            members: vec![false; n],
            params: vec![false; n],
            uses: vec![0; n],
            cost: vec![0.0; n],
            narrow: vec![true; n],
            bits: vec![64; n],
            exponential: vec![false; n],
            masked: vec![false; n],
            skippable: vec![false; n],
        };
        let members: HashSet<TensorId> = g.stmts.iter().filter_map(recur).flat_map(targets).collect();
        let mut carriers = Carriers { members, ..Carriers::default() };
        let mut done = vec![false; n];
        for stmt in &g.stmts {
            for root in roots(stmt) {
                f.visit(g, root, &carriers, &mut done);
                f.uses[root.0 as usize] += 1;
            }
            for (root, tensor) in stored(stmt) {
                for (of, carriers) in [
                    (&f.exponential, &mut carriers.exponential),
                    (&f.masked, &mut carriers.masked),
                    (&f.skippable, &mut carriers.skippable),
                ] {
                    if of[root.0 as usize] {
                        carriers.insert(tensor);
                    }
                }
            }
        }
        for function in &g.fold_fns {
            for root in [function.body, function.unit] {
                f.visit(g, root, &carriers, &mut done);
            }
        }
        narrow(g, &mut f.narrow);
        f
    }

    fn visit(&mut self, g: &Graph, id: ExprId, carriers: &Carriers, done: &mut [bool]) {
        let i = id.0 as usize;
        if std::mem::replace(&mut done[i], true) {
            return;
        }
        let mut axes = BTreeSet::new();
        let mut cost = 1.0;
        for child in g.children(id) {
            self.visit(g, child, carriers, done);
            let c = child.0 as usize;
            self.uses[c] += 1;
            axes.extend(self.axes[c].iter().copied());
            self.members[i] |= self.members[c];
            self.params[i] |= self.params[c];
            self.exponential[i] |= self.exponential[c];
            cost += self.cost[c];
        }
        match g.expr(id) {
            Expr::Axis(a) => {
                axes.insert(*a);
                cost = 0.5;
            }
            Expr::Param(_) => self.params[i] = true,
            Expr::Read(r) => {
                self.members[i] |= carriers.members.contains(&r.tensor);
                self.exponential[i] |= carriers.exponential.contains(&r.tensor);
            }
            Expr::Call(func, _) => {
                cost += func.row().cost as f64;
                self.exponential[i] |= matches!(func, Func::Exp | Func::Exp2);
            }
            Expr::Fold(fold) => {
                fold.axes.iter().for_each(|a| {
                    axes.remove(a);
                });
                let points: f64 = fold.axes.iter().map(|&a| g.extent(a).unwrap_or(64) as f64).product();
                cost *= points.max(1.0);
            }
            _ => {}
        }
        self.masked[i] = self.is_masked(g, id, carriers);
        self.skippable[i] = self.is_skippable(g, id, carriers);
        self.bits[i] = self.bits_of(g, id);
        self.axes[i] = axes;
        self.cost[i] = cost;
    }

    fn is_masked(&self, g: &Graph, id: ExprId, carriers: &Carriers) -> bool {
        let of = |e: &ExprId| self.masked[e.0 as usize];
        match g.expr(id) {
            Expr::Select(_, a, b) => [a, b].into_iter().any(|&e| is(g, e, f64::NEG_INFINITY) || of(&e)),
            Expr::Call(_, args) => args.iter().any(of),
            Expr::Cast(a) | Expr::Round(_, _, a) => of(a),
            Expr::Read(r) => carriers.masked.contains(&r.tensor),
            _ => false,
        }
    }

    fn is_skippable(&self, g: &Graph, id: ExprId, carriers: &Carriers) -> bool {
        let of = |e: &ExprId| self.skippable[e.0 as usize];
        match g.expr(id) {
            Expr::Call(Func::Exp | Func::Exp2, args) => self.masked[args[0].0 as usize],
            Expr::Call(Func::Mul, args) => args.iter().any(of),
            Expr::Call(Func::Div, args) => of(&args[0]),
            // A `where` of the softmax. (That no score is above −inf is no condition of the program.)
            Expr::Select(c, a, b) => {
                let guard = matches!(g.expr(*c), Expr::Call(Func::Eq, x) if x.iter().any(|&e| is(g, e, f64::NEG_INFINITY)));
                let weight = |x: &ExprId, y: &ExprId| is(g, *x, 0.0) && self.exponential[y.0 as usize];
                of(a) || of(b) || !guard && (weight(a, b) || weight(b, a))
            }
            Expr::Cast(a) | Expr::Round(_, _, a) => of(a),
            Expr::Read(r) => carriers.skippable.contains(&r.tensor),
            _ => false,
        }
    }

    /// Bits of the narrowest dtype that its values are known to be of.
    fn bits_of(&self, g: &Graph, id: ExprId) -> u32 {
        let of = |e: ExprId| self.bits[e.0 as usize];
        match g.expr(id) {
            Expr::Read(r) => {
                let own = g.tensor(r.tensor).dtype.bits();
                match r.access {
                    Access::Else(d) => own.max(of(d)),
                    _ => own,
                }
            }
            Expr::Round(dtype, ..) => dtype.bits(),
            Expr::Call(Func::Tf32, _) => 16,
            Expr::Call(Func::Neg | Func::Abs, args) => of(args[0]),
            Expr::Cast(a) => of(*a),
            Expr::Select(_, a, b) => of(*a).max(of(*b)),
            Expr::Lit(v) => match crate::host::as_f64(*v) {
                x if x == 0.0 || x.abs() == 1.0 => 4,
                _ => 64,
            },
            _ => 64,
        }
    }
}

fn is(g: &Graph, e: ExprId, v: f64) -> bool {
    matches!(g.expr(e), Expr::Lit(x) if g.ty(e).is_float() && crate::host::as_f64(*x) == v)
}

fn recur(stmt: &Stmt) -> Option<&Recur> {
    match stmt {
        Stmt::Recur(r) => Some(r),
        _ => None,
    }
}

fn targets(r: &Recur) -> impl Iterator<Item = TensorId> {
    r.members.iter().map(|d| d.target)
}

/// Of each expression: whether a function or a division in it may err by 2⁻¹⁵.
pub fn relaxed(g: &Graph) -> Vec<bool> {
    let mut relaxed = vec![true; g.exprs.len()];
    narrow(g, &mut relaxed);
    relaxed
}

/// Fills `narrow`: false wherever one path reaches another rounding, or none.
fn narrow(g: &Graph, f: &mut [bool]) {
    let read = read_by_statements(g);
    let mut tensors: Vec<bool> = g
        .tensors
        .iter()
        .enumerate()
        .map(|(i, t)| is_narrow(t.dtype) || t.dtype == DType::F32 && read.contains(&i))
        .collect();
    for out in &g.outputs {
        let t = out.tensor.0 as usize;
        tensors[t] = is_narrow(g.tensors[t].dtype);
    }
    for stmt in g.stmts.iter().rev() {
        if let Some(r) = recur(stmt) {
            targets(r).for_each(|t| tensors[t.0 as usize] &= is_narrow(g.tensor(t).dtype));
        }
        let value: Vec<(ExprId, bool)> = stored(stmt)
            .into_iter()
            .map(|(e, t)| (e, is_narrow(g.tensor(t).dtype) || tensors[t.0 as usize]))
            .collect();
        for root in roots(stmt) {
            let flag = value.iter().find(|(e, _)| *e == root).is_some_and(|v| v.1);
            mark(g, f, &mut tensors, root, flag);
        }
    }
    for function in &g.fold_fns {
        mark(g, f, &mut tensors, function.body, false);
        mark(g, f, &mut tensors, function.unit, false);
    }
    // What nothing reached was never asked.
}

/// Tensors that some statement reads. What none does ends here: in a graph of one kernel's statement the readers, or the
/// caller, are elsewhere.
fn read_by_statements(g: &Graph) -> HashSet<usize> {
    let mut work: Vec<ExprId> = g.stmts.iter().flat_map(roots).collect();
    let (mut seen, mut read) = (HashSet::new(), HashSet::new());
    while let Some(id) = work.pop() {
        if !seen.insert(id) {
            continue;
        }
        if let Expr::Read(r) = g.expr(id) {
            read.insert(r.tensor.0 as usize);
        }
        work.extend(g.children(id));
    }
    let bases = g.stmts.iter().filter_map(|s| match s {
        Stmt::Update(Update { base: Base::Tensor(t), .. }) => Some(t.0 as usize),
        _ => None,
    });
    read.extend(bases);
    read
}

/// A path with `flag` reaches `id`; false is passed on once.
fn mark(g: &Graph, f: &mut [bool], tensors: &mut [bool], id: ExprId, flag: bool) {
    let mut seen = HashSet::new();
    let mut work = vec![(id, flag)];
    while let Some((id, flag)) = work.pop() {
        if !seen.insert((id, flag)) {
            continue;
        }
        f[id.0 as usize] &= flag;
        if let Expr::Read(r) = g.expr(id) {
            let t = &g.tensors[r.tensor.0 as usize];
            if !flag && !is_narrow(t.dtype) {
                tensors[r.tensor.0 as usize] = false;
            }
        }
        for (n, child) in g.children(id).into_iter().enumerate() {
            work.push((child, passes(g, id, child, n, flag)));
        }
    }
}

/// The flag of the n-th child of a node with this flag.
fn passes(g: &Graph, id: ExprId, child: ExprId, n: usize, flag: bool) -> bool {
    if g.ty(child) != Ty::F32 {
        return false;
    }
    match g.expr(id) {
        Expr::Round(dtype, ..) => is_narrow(*dtype),
        Expr::Read(r) => flag && n >= r.index.len(),
        Expr::Call(func, _) => {
            flag && func.result(&vec![Ty::F32; func.row().arity as usize]) == Some(Ty::F32)
        }
        Expr::Cast(_) => flag && g.ty(id) == Ty::F32,
        Expr::Select(..) => flag && n > 0,
        Expr::Fold(fold) => match fold.combine {
            Combine::Builtin(m) => flag && m.result(Ty::F32) == Ty::F32 && child == fold.body,
            Combine::Fn(_) => false,
        },
        _ => false,
    }
}
