//! How much multiplying an op's definition asks for, for reports: achieved operations a second and the share of the
//! roofline. Counted on the graph as it was written, so that no schedule and no rewriting changes the number.
//!
//! What counts is a sum of products of which neither factor varies along all the axes of the other: a contraction.
//! Everything else is bound by bytes and is not counted. A sum whose range hangs on data or on an outer axis counts as
//! long as its axis may be at most; masked points count too.

use crate::ir::graph::{AxisId, Combine, Expr, ExprId, Graph, Stmt};
use crate::pass::bounds::interval;
use crate::vocab::dtype::DType;
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use crate::vocab::target::Target;
use std::collections::{BTreeSet, HashSet};

/// The contractions of a graph: operations (a multiplication and an addition are two), by the wider operand's dtype.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    pub products: Vec<(DType, f64)>,
}

impl Work {
    pub fn flop(&self) -> f64 {
        self.products.iter().map(|p| p.1).sum()
    }

    /// The least clock cycles of one multiprocessor times multiprocessors that the products need.
    pub fn cycles(&self, target: &Target) -> f64 {
        self.products.iter().map(|(dtype, flop)| flop / target.products_per_clock(*dtype)).sum()
    }
}

/// What the definitions of a graph multiply.
pub fn work(graph: &Graph) -> Work {
    let mut work = Work::default();
    let mut add = |id: ExprId, axes: &[AxisId]| walk(graph, id, axes, &mut HashSet::new(), &mut work);
    for stmt in &graph.stmts {
        match stmt {
            Stmt::Define(d) => add(d.value, &d.axes),
            Stmt::Recur(r) => r.members.iter().for_each(|d| add(d.value, &d.axes)),
            Stmt::Update(u) => add(u.value, &u.axes),
            Stmt::Scan(s) => add(s.body, &s.axes),
            Stmt::Sort(s) => add(s.key, &s.axes),
            Stmt::Table { .. } => {}
        }
    }
    work
}

/// Every expression once: parts may be shared.
fn walk(graph: &Graph, id: ExprId, around: &[AxisId], seen: &mut HashSet<ExprId>, work: &mut Work) {
    if !seen.insert(id) {
        return;
    }
    let mut inside = around.to_vec();
    if let Expr::Fold(fold) = graph.expr(id) {
        inside.extend(&fold.axes);
        if fold.combine == Combine::Builtin(Monoid::Sum)
            && let Some(dtype) = product(graph, fold.body, &inside)
        {
            let points: f64 = inside.iter().map(|a| greatest_extent(graph, *a)).product();
            work.products.push((dtype, 2.0 * points));
        }
    }
    graph.children(id).into_iter().for_each(|c| walk(graph, c, &inside, seen, work));
}

/// Of an axis with a literal range its extent; of another, what its upper bound may be at most where that is plain to see.
fn greatest_extent(graph: &Graph, axis: AxisId) -> f64 {
    let range = graph.extent(axis).or_else(|| {
        let (lo, hi) = (interval(graph, graph.axis(axis).lo)?.0, interval(graph, graph.axis(axis).hi)?.1);
        i64::try_from((hi - lo).max(0)).ok()
    });
    range.map_or(0.0, |n| n as f64)
}

/// The wider operand's dtype if `body` is a contraction's product.
fn product(graph: &Graph, body: ExprId, axes: &[AxisId]) -> Option<DType> {
    match graph.expr(body) {
        Expr::Cast(a) | Expr::Round(_, _, a) => product(graph, *a, axes),
        Expr::Select(_, a, b) => product(graph, *a, axes).or_else(|| product(graph, *b, axes)),
        Expr::Call(Func::Mul, args) => {
            let (a, b) = (factor(graph, args[0], axes), factor(graph, args[1], axes));
            let contracts = !a.axes.is_subset(&b.axes) && !b.axes.is_subset(&a.axes);
            let inner = || product(graph, args[0], axes).or_else(|| product(graph, args[1], axes));
            let wider = a.dtype.zip(b.dtype).map(|(a, b)| if a.bits() >= b.bits() { a } else { b });
            if contracts { wider } else { inner() }
        }
        _ => None,
    }
}

#[derive(Default)]
struct Factor {
    seen: HashSet<ExprId>,
    axes: BTreeSet<AxisId>,
    /// Of the read along the most axes.
    dtype: Option<DType>,
    widest: usize,
}

fn factor(graph: &Graph, id: ExprId, axes: &[AxisId]) -> Factor {
    let mut f = Factor::default();
    gather(graph, id, axes, &mut f);
    f
}

fn gather(graph: &Graph, id: ExprId, axes: &[AxisId], f: &mut Factor) {
    if !f.seen.insert(id) {
        return;
    }
    match graph.expr(id) {
        Expr::Axis(a) if axes.contains(a) => drop(f.axes.insert(*a)),
        Expr::Read(r) if r.index.len() > f.widest => {
            f.widest = r.index.len();
            f.dtype = Some(graph.tensor(r.tensor).dtype);
        }
        _ => {}
    }
    graph.children(id).into_iter().for_each(|c| gather(graph, c, axes, f));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::ast_to_graph::{Bindings, bind};
    use crate::pass::module::load;
    use girih_dsl::source::Sources;

    fn products(text: &str, dims: &[(&str, i64)]) -> Vec<(DType, f64)> {
        let mut sources = Sources::default();
        let module =
            load("t.tile", text, &mut sources, &|_| Err("no imports".into())).expect("the text is right");
        let dims = dims.iter().map(|(n, v)| (n.to_string(), *v)).collect();
        let bound =
            bind(&module, "f", &Bindings { dims, ..Bindings::default() }).expect("the sizes are right");
        work(&bound.graph).products
    }

    #[test]
    fn contractions_count_by_the_wider_operand() {
        let mm = "op f[M, N, K](x: bf16[M, K], w: bf16[N, K]) -> (y: bf16[M, N]) { y[m, n] = 2 * sum[k](x[m, k] * w[n, k]) }";
        assert_eq!(products(mm, &[("M", 3), ("N", 5), ("K", 7)]), [(DType::BF16, 210.0)]);
        let w8 = "op f[M, N, K](x: f16[M, K], w: i8[N, K], s: f32[N]) -> (y: f16[M, N]) \
                  { y[m, n] = sum[k](x[m, k] * (w[n, k] * s[n])) }";
        assert_eq!(products(w8, &[("M", 3), ("N", 5), ("K", 7)]), [(DType::F16, 210.0)]);
    }

    #[test]
    fn a_reduction_of_rows_is_no_contraction() {
        let rows =
            "op f[M, N](x: f32[M, N], g: f32[N]) -> (y: f32[M]) { y[m] = sum[n](x[m, n] * x[m, n] * g[n]) }";
        assert_eq!(products(rows, &[("M", 3), ("N", 5)]), []);
    }
}
