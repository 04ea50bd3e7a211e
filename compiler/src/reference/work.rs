//! How much an evaluation takes: what would not end in a lifetime is refused before it starts.

use super::fault;
use super::world::{FaultKind, RunFault};
use crate::ir::graph::{AxisId, Expr, ExprId, Graph, Stmt};
use std::collections::{BTreeSet, HashMap};

/// Evaluations of an expression, at most: hours on many cores.
const MOST: f64 = (1u64 << 42) as f64;

/// Refuses a graph some statement of which evaluates more than anyone waits for.
pub fn bearable(g: &Graph) -> Result<(), RunFault> {
    for s in &g.stmts {
        let work = of_stmt(g, s);
        if work > MOST
            && let Some(&target) = s.targets().last()
        {
            let t = g.tensor(target);
            let what = format!(
                "{} would take {work:.1e} evaluations, and a CPU evaluates at most {MOST:.1e} of one definition: make the \
                 sizes smaller, or run it on a GPU without a check",
                t.name
            );
            return Err(fault(FaultKind::Input(what), &t.name, Vec::new(), 0, t.span));
        }
    }
    Ok(())
}

fn of_stmt(g: &Graph, s: &Stmt) -> f64 {
    let mut work = Work { g, free: HashMap::new(), folds: 0.0 };
    let mut sum = |axes: &[AxisId], root: ExprId| {
        work.free(root);
        work.points(axes)
    };
    let points: f64 = match s {
        Stmt::Define(d) => sum(&d.axes, d.value),
        Stmt::Scan(s) => sum(&s.axes, s.body),
        Stmt::Sort(s) => sum(&s.axes, s.key),
        Stmt::Update(u) => sum(&u.axes, u.value),
        Stmt::Recur(r) => r.members.iter().map(|d| sum(&d.axes, d.value)).sum(),
        Stmt::Table { .. } => 0.0,
    };
    points + work.folds
}

/// Counts evaluations. A reduction is evaluated once for each value of the axes that it depends on; the rest of an
/// expression is a handful of operations a point. Exact but for ranges that depend on data.
struct Work<'a> {
    g: &'a Graph,
    free: HashMap<ExprId, BTreeSet<AxisId>>,
    folds: f64,
}

impl Work<'_> {
    fn points<'x>(&self, axes: impl IntoIterator<Item = &'x AxisId>) -> f64 {
        axes.into_iter().map(|&a| self.g.extent(a).unwrap_or(1) as f64).product()
    }

    /// The axes that an expression depends on; reductions that are new are counted.
    fn free(&mut self, e: ExprId) -> BTreeSet<AxisId> {
        if let Some(found) = self.free.get(&e) {
            return found.clone();
        }
        let below: Vec<BTreeSet<AxisId>> = self.g.children(e).into_iter().map(|c| self.free(c)).collect();
        let mut found: BTreeSet<AxisId> = below.into_iter().flatten().collect();
        match self.g.expr(e) {
            Expr::Axis(a) => {
                found.insert(*a);
            }
            Expr::Fold(f) => {
                found.extend(&f.axes);
                self.folds += self.points(&found);
                f.axes.iter().for_each(|a| {
                    found.remove(a);
                });
            }
            _ => {}
        }
        self.free.insert(e, found.clone());
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::graph::{Combine, Define, Fold, Role, Tensor, TensorId};
    use crate::vocab::dtype::{DType, Ty, Value};
    use crate::vocab::monoid::Monoid;
    use girih_dsl::ast::Span;

    fn graph(n: i64) -> Graph {
        let mut g = Graph::default();
        let at = Span::default();
        let (lo, hi) = (g.int(0), g.int(n));
        let axes = vec![g.new_axis("i", lo, hi, at), g.new_axis("j", lo, hi, at)];
        let body = g.lit(Value::F32(1.0));
        let fold = Fold { combine: Combine::Builtin(Monoid::Sum), axes, cond: None, body };
        let value = g.add(Expr::Fold(fold), Ty::F32, at);
        g.tensors.push(Tensor {
            name: "y".into(),
            version: 0,
            dtype: DType::F32,
            dims: Vec::new(),
            lo: Vec::new(),
            role: Role::Result,
            range: None,
            unique: false,
            cast: false,
            strides: Vec::new(),
            align: 4,
            span: at,
        });
        g.stmts.push(Stmt::Define(Define { target: TensorId(0), axes: Vec::new(), value, span: at }));
        g
    }

    #[test]
    fn what_nobody_waits_for_is_refused() {
        assert!(bearable(&graph(1000)).is_ok());
        let why = bearable(&graph(2_000_000_000)).expect_err("4e18 terms").to_string();
        assert!(why.contains("4.0e18") && why.contains("sizes smaller"), "{why}");
    }
}
