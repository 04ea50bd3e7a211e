//! What is known of every e-class: its type, the axes it depends on, its value if it is constant, whether a fault
//! can start in it.

use super::Graph;
use super::term::{Op, Term};
use crate::vocab::dtype::{DType, Ty, Value};
use crate::vocab::func::Meaning;
use egg::{Analysis, DidMerge, Id};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// An axis of the e-graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Axis {
    /// Literal range; axes with another range keep their own name and are never renamed.
    pub range: Option<(i64, i64)>,
    /// Rank among axes of this range, or the graph's own number of the axis.
    pub rank: u32,
}

/// The analysis: the tables that terms refer to.
#[derive(Default, Clone, Debug)]
pub struct Facts {
    pub axes: Vec<Axis>,
    /// A name for each of them, for what is made of them.
    pub axis_names: Vec<String>,
    /// Their numbers.
    pub numbers: FxHashMap<Axis, u32>,
    /// dtypes of tensors and scalars, by number.
    pub tensors: Vec<DType>,
    pub scalars: Vec<DType>,
    /// Types of the bodies of the user's folds, by number.
    pub fold_fns: Vec<Ty>,
    /// Types of opaque folds, and whether a fault can start in them.
    pub opaque: Vec<(Ty, bool)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// `None` for a parameter of a fold function.
    pub ty: Option<Ty>,
    pub free: BTreeSet<u32>,
    pub constant: Option<Value>,
    /// May evaluating it record a fault?
    pub faults: bool,
    /// Does some form of it hold a sum?
    pub has_sum: bool,
}

impl Facts {
    /// The number of an axis; a new one is called `name`.
    pub fn axis(&mut self, axis: Axis, name: &str) -> u32 {
        if let Some(&n) = self.numbers.get(&axis) {
            return n;
        }
        let n = self.axes.len() as u32;
        self.axes.push(axis.clone());
        self.axis_names.push(name.to_string());
        self.numbers.insert(axis, n);
        n
    }

    /// The axis of this range of the smallest rank that is none of `used`.
    pub fn unused(&mut self, range: Option<(i64, i64)>, used: &BTreeSet<u32>, name: &str) -> u32 {
        let known =
            |rank: &u32| self.numbers.get(&Axis { range, rank: *rank }).is_some_and(|n| used.contains(n));
        let rank = (0..).find(|rank| !known(rank)).expect("ranks do not end");
        self.axis(Axis { range, rank }, name)
    }

    pub fn range(&self, axis: u32) -> Option<(i64, i64)> {
        self.axes[axis as usize].range
    }
}

impl Analysis<Term> for Facts {
    type Data = Known;

    fn make(graph: &mut Graph, node: &Term, _: Id) -> Known {
        let constant = constant(graph, node);
        let mut free = BTreeSet::new();
        let mut faults = matches!(node.op, Op::Read(_, super::term::How::Checked));
        if let Op::Opaque(n) = node.op {
            faults = graph.analysis.opaque.get(n as usize).is_none_or(|o| o.1);
        }
        let mut has_sum = false;
        for &c in &node.children {
            let d = &graph[c].data;
            free.extend(&d.free);
            faults |= d.faults;
            has_sum |= d.has_sum;
        }
        if let Op::Axis(a) = node.op {
            free.insert(a);
        }
        if let Some((combine, axes, ..)) = node.fold_parts() {
            has_sum |= combine == crate::ir::graph::Combine::Builtin(crate::vocab::monoid::Monoid::Sum);
            for &a in axes {
                free.retain(|x| axis_of(graph, a) != Some(*x));
            }
        }
        if constant.is_some() {
            free.clear();
        }
        Known { ty: type_of(graph, node), free, constant, faults, has_sum }
    }

    fn merge(&mut self, a: &mut Known, b: Known) -> DidMerge {
        let before = a.clone();
        a.ty = a.ty.or(b.ty);
        a.constant = a.constant.or(b.constant);
        a.free = a.free.intersection(&b.free).copied().collect();
        a.faults |= b.faults;
        a.has_sum |= b.has_sum;
        let theirs = *a != b;
        DidMerge(*a != before, theirs)
    }

    fn modify(graph: &mut Graph, id: Id) {
        if let Some(v) = graph[id].data.constant
            && !graph[id].nodes.iter().any(|n| matches!(n.op, Op::Lit(..)))
        {
            let lit = graph.add(Term::lit(v));
            graph.union_trusted(id, lit, "constant folding");
        }
    }
}

/// The axis that a class names.
pub fn axis_of(graph: &Graph, id: Id) -> Option<u32> {
    graph[id].nodes.iter().find_map(|n| match n.op {
        Op::Axis(a) => Some(a),
        _ => None,
    })
}

/// A value that follows exactly from constants: literals, and functions whose results are exactly defined.
fn constant(graph: &Graph, node: &Term) -> Option<Value> {
    match node.op {
        Op::Lit(ty, bits) => Some(Value::of_bits(ty, bits)),
        Op::Call(f) => {
            let args: Vec<Value> =
                node.children.iter().map(|&c| graph[c].data.constant).collect::<Option<_>>()?;
            match f.row().meaning {
                Meaning::Exact(eval) if f.row().rounded => Some(eval(&args)),
                _ => None,
            }
        }
        Op::Select => {
            let taken = if graph[node.children[0]].data.constant? == Value::Bool(true) { 1 } else { 2 };
            graph[node.children[taken]].data.constant
        }
        Op::Round(d, _) => {
            let Value::F32(v) = graph[node.children[0]].data.constant? else { return None };
            rounded(d, v).map(Value::F32)
        }
        _ => None,
    }
}

/// An f32 rounded to one of the 16-bit floats.
fn rounded(d: DType, v: f32) -> Option<f32> {
    match d {
        DType::F16 => Some(half::f16::from_f32(v).to_f32()),
        DType::BF16 => Some(half::bf16::from_f32(v).to_f32()),
        _ => None,
    }
}

fn type_of(graph: &Graph, node: &Term) -> Option<Ty> {
    let child = |i: usize| graph[node.children[i]].data.ty;
    match node.op {
        Op::Lit(ty, _) | Op::Cast(ty) => Some(ty),
        Op::Axis(_) => Some(Ty::I64),
        Op::Scalar(s) => Some(graph.analysis.scalars.get(s as usize)?.compute()),
        Op::Param(_) => None,
        Op::Read(t, _) => Some(graph.analysis.tensors.get(t as usize)?.compute()),
        Op::Round(d, _) => Some(d.compute()),
        Op::Opaque(n) => graph.analysis.opaque.get(n as usize).map(|o| o.0),
        Op::Select => child(1).or_else(|| child(2)),
        Op::Call(f) => result_of(f, child(0)),
        Op::Fold { combine, .. } => match combine {
            crate::ir::graph::Combine::Builtin(m) => Some(m.result(child(node.children.len() - 1)?)),
            crate::ir::graph::Combine::Fn(f) => graph.analysis.fold_fns.get(f.0 as usize).copied(),
        },
    }
}

fn result_of(f: crate::vocab::func::Func, first: Option<Ty>) -> Option<Ty> {
    use crate::vocab::func::Law;
    match (f.row().law, first) {
        (Law::Compare, _) => Some(Ty::Bool),
        (Law::Random(ty), _) => Some(ty),
        (Law::ToBits, Some(Ty::F64)) => Some(Ty::I64),
        (Law::ToBits, _) => Some(Ty::I32),
        (Law::OfBits, Some(Ty::I64)) => Some(Ty::F64),
        (Law::OfBits, _) => Some(Ty::F32),
        (_, ty) => ty,
    }
}
