//! The graph as it is handed on: only what the outputs need, each axis bound once.

use crate::ir::graph::*;
use crate::pass::facts;
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

/// Copies what the outputs need. Inputs and scalars are kept, whether they are read or not.
pub fn compact(old: &Graph) -> Graph {
    let keep = needed(old);
    let mut c = Copy {
        old,
        new: Graph::default(),
        exprs: HashMap::default(),
        axes: HashMap::default(),
        tensors: HashMap::default(),
    };
    c.new.op = old.op.clone();
    c.new.sizes = old.sizes.clone();
    c.new.consts = old.consts.clone();
    c.new.scalars = old.scalars.clone();
    c.new.tiles = old.tiles.clone();
    let mut targets: HashSet<TensorId> = HashSet::default();
    for (i, s) in old.stmts.iter().enumerate() {
        if keep[i] {
            targets.extend(s.targets());
        }
    }
    for (i, t) in old.tensors.iter().enumerate() {
        let id = TensorId(i as u32);
        if targets.contains(&id) || matches!(t.role, Role::Input | Role::Inout) {
            c.new.tensors.push(t.clone());
            c.tensors.insert(id, TensorId(c.new.tensors.len() as u32 - 1));
        }
    }
    for f in &old.fold_fns {
        let (body, unit) = (c.expr(f.body), c.expr(f.unit));
        c.new.fold_fns.push(FoldFn { body, unit, ..f.clone() });
    }
    for (i, s) in old.stmts.iter().enumerate() {
        if keep[i] {
            let s = c.stmt(s);
            c.new.stmts.push(s);
        }
    }
    let map = |t: &TensorId| c.tensors[t];
    c.new.outputs = old
        .outputs
        .iter()
        .map(|o| Output { tensor: map(&o.tensor), inout: o.inout.as_ref().map(map), ..o.clone() })
        .collect();
    c.new
}

/// Which statements the outputs need.
fn needed(g: &Graph) -> Vec<bool> {
    let mut want: HashSet<TensorId> = g.outputs.iter().map(|o| o.tensor).collect();
    let mut keep = vec![false; g.stmts.len()];
    let mut facts = facts::Facts::default();
    for (i, s) in g.stmts.iter().enumerate().rev() {
        if s.targets().iter().any(|t| want.contains(t)) {
            keep[i] = true;
            want.extend(facts.stmt_reads(g, s));
            if let Stmt::Update(Update { base: Base::Tensor(t), .. }) = s {
                want.insert(*t);
            }
        }
    }
    keep
}

struct Copy<'a> {
    old: &'a Graph,
    new: Graph,
    exprs: HashMap<ExprId, ExprId>,
    axes: HashMap<AxisId, AxisId>,
    tensors: HashMap<TensorId, TensorId>,
}

impl Copy<'_> {
    /// Binds axes anew. If they were bound before, what was copied under them is not reused.
    fn bind(&mut self, axes: &[AxisId]) -> Vec<AxisId> {
        if axes.iter().any(|a| self.axes.contains_key(a)) {
            self.exprs.clear();
        }
        let mut out = Vec::new();
        for &a in axes {
            let x = self.old.axis(a).clone();
            let (lo, hi) = (self.expr(x.lo), self.expr(x.hi));
            let id = self.new.new_axis(x.name, lo, hi, x.span);
            self.axes.insert(a, id);
            out.push(id);
        }
        out
    }

    fn expr(&mut self, e: ExprId) -> ExprId {
        if let Some(&to) = self.exprs.get(&e) {
            return to;
        }
        let node = self.old.exprs[e.0 as usize].clone();
        let expr = match node.expr {
            Expr::Axis(a) => Expr::Axis(self.axes[&a]),
            Expr::Read(r) => {
                let index = r.index.iter().map(|&i| self.expr(i)).collect();
                let access = match r.access {
                    Access::Else(d) => Access::Else(self.expr(d)),
                    other => other,
                };
                Expr::Read(Read { tensor: self.tensors[&r.tensor], index, access })
            }
            Expr::Fold(f) => {
                let axes = self.bind(&f.axes);
                let cond = f.cond.map(|c| self.expr(c));
                let body = self.expr(f.body);
                Expr::Fold(Fold { combine: f.combine, axes, cond, body })
            }
            other => crate::pass::subst::map_children(other, &mut |c| self.expr(c)),
        };
        let to = self.new.add(expr, node.ty, node.span);
        self.exprs.insert(e, to);
        to
    }

    fn target(&self, t: TensorId) -> TensorId {
        self.tensors[&t]
    }

    fn define(&mut self, d: &Define) -> Define {
        let axes = self.bind(&d.axes);
        Define { target: self.target(d.target), axes, value: self.expr(d.value), span: d.span }
    }

    fn stmt(&mut self, s: &Stmt) -> Stmt {
        match s {
            Stmt::Define(d) => Stmt::Define(self.define(d)),
            Stmt::Recur(r) => Stmt::Recur(Recur {
                members: r.members.iter().map(|d| self.define(d)).collect(),
                steps: r.steps.clone(),
            }),
            Stmt::Scan(s) => {
                let axes = self.bind(&s.axes);
                let cond = s.cond.map(|c| self.expr(c));
                let body = self.expr(s.body);
                Stmt::Scan(Scan { target: self.target(s.target), axes, cond, body, ..s.clone() })
            }
            Stmt::Sort(s) => {
                let axes = self.bind(&s.axes);
                let key = self.expr(s.key);
                Stmt::Sort(Sort { target: self.target(s.target), axes, key, ..s.clone() })
            }
            Stmt::Update(u) => {
                let axes = self.bind(&u.axes);
                let index = u.index.iter().map(|&i| self.expr(i)).collect();
                let cond = u.cond.map(|c| self.expr(c));
                let value = self.expr(u.value);
                let base = match u.base {
                    Base::Tensor(t) => Base::Tensor(self.target(t)),
                    Base::Unit => Base::Unit,
                };
                Stmt::Update(Update {
                    target: self.target(u.target),
                    base,
                    axes,
                    index,
                    cond,
                    value,
                    ..u.clone()
                })
            }
            Stmt::Table { target, values } => {
                Stmt::Table { target: self.target(*target), values: values.clone() }
            }
        }
    }
}
