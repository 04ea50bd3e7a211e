//! A key of a class that does not depend on how its axes are called: equal keys, equal values. It is the text of the
//! chosen term, with axes numbered as they come; the operands of a commutative function come in an order of their own.

use super::extract::Choice;
use crate::rules::Graph;
use crate::rules::analysis::axis_of;
use crate::rules::term::{Op, Term};
use crate::vocab::func::Func;
use egg::Id;
use rustc_hash::{FxHashMap, FxHasher};
use std::fmt::Write;
use std::hash::{Hash, Hasher};

/// The key, and the names of the axes that the class depends on in the order in which it speaks of them.
pub struct Key {
    pub text: String,
    pub axes: Vec<u32>,
}

/// The key of a class. Its own term is none of those that `passes` over, if there is another.
pub fn key(g: &Graph, choice: &Choice, id: Id, passes: &dyn Fn(&Term) -> bool) -> Option<Key> {
    let id = g.find(id);
    let mut w = Writer {
        g,
        choice,
        out: String::new(),
        free: Vec::new(),
        scopes: vec![Scope::default()],
        next: 0,
        shapes: FxHashMap::default(),
    };
    let best = choice.term(g, id)?;
    let other = |t: &&Term| !passes(t);
    let own = if passes(best) {
        let nodes = g[id].nodes.iter().filter(other);
        let cost = |t: &Term| t.children.iter().map(|&c| choice.cost(g, c)).sum::<Option<f64>>();
        let costed = nodes.filter_map(|t| Some((cost(t)?, t)));
        costed.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1))).map_or(best, |(_, t)| t)
    } else {
        best
    };
    w.term(own)?;
    Some(Key { text: w.out, axes: w.free })
}

/// What is bound by one fold, and the classes that depend on it.
#[derive(Default)]
struct Scope {
    bound: Vec<(u32, usize)>,
    done: FxHashMap<Id, usize>,
}

struct Writer<'a> {
    g: &'a Graph,
    choice: &'a Choice,
    out: String,
    free: Vec<u32>,
    scopes: Vec<Scope>,
    next: usize,
    /// What a class looks like when all axes of a range are one.
    shapes: FxHashMap<Id, u64>,
}

impl Writer<'_> {
    fn class(&mut self, id: Id) -> Option<usize> {
        let id = self.g.find(id);
        let binds = |s: &Scope| s.bound.iter().any(|b| self.g[id].data.free.contains(&b.0));
        let level = self.scopes.iter().rposition(binds).unwrap_or(0);
        if let Some(&n) = self.scopes[level].done.get(&id) {
            return Some(n);
        }
        let term = self.choice.term(self.g, id)?;
        let n = self.term(term)?;
        self.scopes[level].done.insert(id, n);
        Some(n)
    }

    fn term(&mut self, term: &Term) -> Option<usize> {
        let text = match term.op {
            Op::Axis(a) => self.axis(a),
            Op::Fold { .. } => self.fold(term)?,
            _ => {
                let children: Vec<Id> = self.in_order(term);
                let children = children.into_iter().map(|c| self.class(c)).collect::<Option<Vec<_>>>()?;
                format!("{term}{children:?}")
            }
        };
        let n = self.next;
        self.next += 1;
        let _ = write!(self.out, "{n}={text};");
        Some(n)
    }

    fn axis(&mut self, a: u32) -> String {
        for s in self.scopes.iter().rev() {
            if let Some(b) = s.bound.iter().find(|b| b.0 == a) {
                return format!("b{}", b.1);
            }
        }
        let n = self.free.iter().position(|&f| f == a).unwrap_or_else(|| {
            self.free.push(a);
            self.free.len() - 1
        });
        format!("a{n}{:?}", self.g.analysis.range(a))
    }

    fn fold(&mut self, term: &Term) -> Option<String> {
        let (_, axes, cond, body) = term.fold_parts()?;
        let names: Vec<u32> = axes.iter().map(|&a| axis_of(self.g, a)).collect::<Option<_>>()?;
        let first = self.next;
        self.next += names.len();
        let bound = names.iter().enumerate().map(|(i, &a)| (a, first + i)).collect();
        self.scopes.push(Scope { bound, done: FxHashMap::default() });
        let cond = match cond {
            Some(c) => Some(self.class(c)?),
            None => None,
        };
        let body = self.class(body)?;
        self.scopes.pop();
        let ranges: Vec<_> = names.iter().map(|&a| self.g.analysis.range(a)).collect();
        Some(format!("{term}{first}{ranges:?}{cond:?}{body}"))
    }

    /// Children, those of a commutative function by what they look like.
    fn in_order(&mut self, term: &Term) -> Vec<Id> {
        let mut children = term.children.clone();
        if matches!(term.op, Op::Call(Func::Add | Func::Mul | Func::Max | Func::Min)) {
            children.sort_by_key(|&c| self.shape(c));
        }
        children
    }

    fn shape(&mut self, id: Id) -> u64 {
        let id = self.g.find(id);
        if let Some(&s) = self.shapes.get(&id) {
            return s;
        }
        let mut h = FxHasher::default();
        if let Some(term) = self.choice.term(self.g, id) {
            match term.op {
                Op::Axis(a) => self.g.analysis.range(a).hash(&mut h),
                op => op.hash(&mut h),
            }
            self.in_order(term).into_iter().for_each(|c| self.shape(c).hash(&mut h));
        }
        let s = h.finish();
        self.shapes.insert(id, s);
        s
    }
}
