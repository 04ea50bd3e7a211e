//! A key of an expression that does not depend on how its axes are named: equal keys, equal values.

use crate::ir::graph::*;
use rustc_hash::FxHashMap;
use std::fmt::Write;

/// The key of `e` with its free axes in this order. Shared parts are written once and referred to by number.
pub fn key(g: &Graph, e: ExprId, free: &[AxisId]) -> String {
    let mut k = Key { g, axes: FxHashMap::default(), done: FxHashMap::default(), out: String::new() };
    for &a in free {
        let range = g.axis_range(a);
        let n = k.axes.len();
        k.axes.insert(a, n);
        let _ = write!(k.out, "{range:?};");
    }
    k.go(e);
    k.out
}

struct Key<'a> {
    g: &'a Graph,
    axes: FxHashMap<AxisId, usize>,
    done: FxHashMap<ExprId, usize>,
    out: String,
}

impl Key<'_> {
    fn go(&mut self, e: ExprId) -> usize {
        if let Some(&n) = self.done.get(&e) {
            return n;
        }
        let text = match self.g.expr(e).clone() {
            Expr::Axis(a) => format!("a{:?}", self.axes.get(&a)),
            Expr::Fold(f) => {
                let mut ranges = Vec::new();
                for &a in &f.axes {
                    ranges.push((self.go(self.g.axis(a).lo), self.go(self.g.axis(a).hi)));
                    let n = self.axes.len();
                    self.axes.insert(a, n);
                }
                let cond = f.cond.map(|c| self.go(c));
                let body = self.go(f.body);
                let axes: Vec<_> = f.axes.iter().map(|a| self.axes[a]).collect();
                format!("{:?}{axes:?}{ranges:?}{cond:?}{body}", f.combine)
            }
            Expr::Read(r) => {
                let index: Vec<_> = r.index.iter().map(|&i| self.go(i)).collect();
                let access = match r.access {
                    Access::Else(d) => format!("else{}", self.go(d)),
                    other => format!("{other:?}"),
                };
                format!("{:?}{index:?}{access}", r.tensor)
            }
            Expr::Lit(v) => format!("{:?}", v.key()),
            Expr::Call(f, args) => {
                let args: Vec<_> = args.iter().map(|&a| self.go(a)).collect();
                format!("{f:?}{args:?}")
            }
            Expr::Cast(a) => format!("cast{}", self.go(a)),
            Expr::Round(d, how, a) => format!("{d:?}{how:?}{}", self.go(a)),
            Expr::Select(c, a, b) => format!("if{}_{}_{}", self.go(c), self.go(a), self.go(b)),
            Expr::Scalar(s) => format!("{s:?}"),
            Expr::Param(p) => format!("p{p}"),
        };
        let n = self.done.len();
        let _ = write!(self.out, "{n}={text}:{:?};", self.g.ty(e));
        self.done.insert(e, n);
        n
    }
}
