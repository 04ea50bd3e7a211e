//! The CPU reference: what a graph means.
//!
//! Definitional: statement by statement in the graph's order, each point by evaluating its expression; folds are
//! loops, scans and recurrences run in order. It knows nothing of plans or kernels. Floats are carried unrounded in
//! f64, and beside each value stands a bound on the error that LANGUAGE.md section 8 allows an implementation (see
//! `num`), so that a kernel is right when [`compare`] says so, without a table of tolerances.
//!
//! Strides of inputs are the launch's business: tensors here are contiguous.

mod acc;
mod compare;
mod compile;
pub(crate) mod facts;
mod fold;
mod num;
mod read;
mod stmt;
mod work;
mod world;

pub use compare::{Mismatch, Report, compare};
pub use world::{FaultKind, RunFault};

use crate::host::{HostTensor, as_i64, index_of};
use crate::ir::graph::{Graph, Output, Role, TensorId};
use crate::vocab::dtype::{DType, Value};
use facts::Facts;
use num::Num;
use std::collections::{BTreeMap, HashMap};
use stmt::Machine;
use world::{Data, Stored, World};

/// Tensors and scalars by the user's names. Scalars that are left out take their defaults.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    pub tensors: BTreeMap<String, HostTensor>,
    pub scalars: BTreeMap<String, Value>,
}

/// Results and inouts by name.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub outputs: BTreeMap<String, Checked>,
}

/// A result and what is admitted beside it.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The values, rounded to the dtype.
    pub tensor: HostTensor,
    /// The values before that rounding.
    pub wide: Vec<f64>,
    /// How far a right implementation's value may be from `wide` before it is rounded: 0 for exact integers and
    /// truth values, infinite where anything is admitted.
    pub bound: Vec<f64>,
    /// Elements that a decision left open: their bound is infinite, or more than 0 in an integer or truth value.
    pub ambiguous: usize,
    /// Where it differs: the same with all terms left out whose weight a condition made 0 (LANGUAGE.md section 8,
    /// skipping). Each element may be as either says.
    pub skipped: Option<Box<Checked>>,
}

/// Refuses what a CPU would not end in a day; the simulator is no faster.
pub fn bearable(g: &Graph) -> Result<(), RunFault> {
    work::bearable(g)
}

/// Evaluates a graph.
pub fn run(g: &Graph, inputs: &Inputs) -> Result<Outcome, RunFault> {
    work::bearable(g)?;
    let facts = Facts::of(g);
    let (mut written, differs) = reading(g, &facts, inputs, false)?;
    if differs {
        let (skipped, _) = reading(g, &facts, inputs, true)?;
        for (name, checked) in skipped.outputs {
            let differs = |one: &&mut Checked| !one.is_as(&checked);
            if let Some(one) = written.outputs.get_mut(&name).filter(differs) {
                one.skipped = Some(Box::new(checked));
            }
        }
    }
    Ok(written)
}

/// One reading: with what conditions leave out evaluated or `skips`. And whether that makes a difference somewhere.
fn reading(g: &Graph, facts: &Facts, inputs: &Inputs, skips: bool) -> Result<(Outcome, bool), RunFault> {
    let mut tensors = vec![None; g.tensors.len()];
    for (i, t) in g.tensors.iter().enumerate() {
        if matches!(t.role, Role::Input | Role::Inout) && t.version == 0 {
            tensors[i] = Some(input(g, TensorId(i as u32), inputs)?);
        }
    }
    let scalars = scalars(g, inputs)?;
    let w = World { graph: g, tensors, scalars, epoch: 0, skips, differs: Default::default() };
    let mut machine = Machine { w, facts };
    for stmt in &g.stmts {
        machine.run(stmt)?;
    }
    let outputs = g.outputs.iter().map(|o| (o.name.clone(), checked(g, &machine.w, o))).collect();
    Ok((Outcome { outputs }, machine.w.differs.into_inner()))
}

impl Checked {
    /// The same bits and bounds.
    fn is_as(&self, other: &Checked) -> bool {
        let bits = |x: &[f64]| x.iter().map(|v| v.to_bits()).collect::<Vec<u64>>();
        bits(&self.wide) == bits(&other.wide) && bits(&self.bound) == bits(&other.bound)
    }
}

fn fault(kind: FaultKind, tensor: &str, index: Vec<i64>, value: i64, span: girih_dsl::ast::Span) -> RunFault {
    RunFault { kind, tensor: tensor.to_string(), dim: 0, index, value, span }
}

/// One input, with its declared range and uniqueness checked.
fn input(g: &Graph, id: TensorId, inputs: &Inputs) -> Result<Stored, RunFault> {
    let t = g.tensor(id);
    let wrong = |what: String| fault(FaultKind::Input(what), &t.name, Vec::new(), 0, t.span);
    let host = inputs.tensors.get(&t.name).ok_or_else(|| wrong(format!("input {} is missing", t.name)))?;
    // A plan may see a dim as two: the same elements in the same places.
    let count = |dims: &[i64]| dims.iter().product::<i64>();
    let in_parts = host.dims.len() < t.dims.len() && count(&host.dims) == count(&t.dims);
    if host.dtype != t.dtype || host.dims != t.dims && !in_parts {
        let (got, want) = (host.dtype.name(), t.dtype.name());
        return Err(wrong(format!("input {} is {got}{:?}, not {want}{:?}", t.name, host.dims, t.dims)));
    }
    let mut stored = Stored::zeros(g, id);
    load(&mut stored.data, host);
    if let Data::I { v, .. } = &stored.data {
        check_values(g, id, v)?;
    }
    Ok(stored)
}

fn load(data: &mut Data, host: &HostTensor) {
    match data {
        Data::F { v, .. } => {
            v.iter_mut().enumerate().for_each(|(i, x)| *x = crate::host::as_f64(host.get(i)))
        }
        Data::I { v, .. } => v.iter_mut().enumerate().for_each(|(i, x)| *x = as_i64(host.get(i))),
        Data::B { v, .. } => v.iter_mut().enumerate().for_each(|(i, x)| *x = as_i64(host.get(i)) != 0),
    }
}

fn check_values(g: &Graph, id: TensorId, values: &[i64]) -> Result<(), RunFault> {
    let t = g.tensor(id);
    let (lo, hi) = t.range.unwrap_or((i64::MIN, i64::MAX));
    let mut seen = std::collections::HashSet::new();
    for (i, &v) in values.iter().enumerate() {
        if t.range.is_some() && !(lo..hi).contains(&v) {
            return Err(fault(FaultKind::Range { lo, hi }, &t.name, index_of(&t.dims, i), v, t.span));
        }
        if t.unique && v >= 0 && !seen.insert(v) {
            return Err(fault(FaultKind::NotUnique, &t.name, index_of(&t.dims, i), v, t.span));
        }
    }
    Ok(())
}

fn scalars(g: &Graph, inputs: &Inputs) -> Result<Vec<Value>, RunFault> {
    let mut out = Vec::new();
    for s in &g.scalars {
        let wrong = |what| fault(FaultKind::Input(what), &s.name, Vec::new(), 0, s.span);
        let value = inputs.scalars.get(&s.name).copied().or(s.default);
        let value = value.ok_or_else(|| wrong(format!("scalar {} has no value and no default", s.name)))?;
        let value = crate::host::round(value, s.dtype);
        if let Some((lo, hi)) = s.range
            && !(lo..hi).contains(&as_i64(value))
        {
            return Err(fault(FaultKind::Range { lo, hi }, &s.name, Vec::new(), as_i64(value), s.span));
        }
        out.push(value);
    }
    Ok(out)
}

fn checked(g: &Graph, w: &World, out: &Output) -> Checked {
    let (t, stored) = (g.tensor(out.tensor), w.tensor(out.tensor));
    let mut tensor = HostTensor::zeros(t.dtype, out.shape.as_ref().unwrap_or(&t.dims));
    let wide = stored.wide.as_deref().unwrap_or(&stored.data);
    let (mut values, mut bounds) = (Vec::with_capacity(wide.len()), Vec::with_capacity(wide.len()));
    let mut ambiguous = 0;
    for i in 0..wide.len() {
        let (v, e, exact) = match wide.get(i) {
            Num::F(x) => (x.v, x.e, Value::F64(x.v)),
            Num::I(x) if x.e == num::ANY => (x.v as f64, f64::INFINITY, Value::I64(x.v)),
            Num::I(x) => (x.v as f64, x.e as f64, Value::I64(x.v)),
            Num::B(x) => (x.v as i64 as f64, if x.sure { 0.0 } else { f64::INFINITY }, Value::Bool(x.v)),
        };
        ambiguous += (e == f64::INFINITY || (e > 0.0 && !t.dtype.is_float())) as usize;
        values.push(v);
        bounds.push(e);
        tensor.set(i, exact);
    }
    Checked { tensor, wide: values, bound: bounds, ambiguous, skipped: None }
}

/// The dtype and dims of each input, by name.
pub fn signature(g: &Graph) -> HashMap<&str, (DType, &[i64])> {
    let inputs = g.tensors.iter().filter(|t| matches!(t.role, Role::Input | Role::Inout) && t.version == 0);
    inputs.map(|t| (t.name.as_str(), (t.dtype, t.dims.as_slice()))).collect()
}

#[cfg(test)]
mod tests;
