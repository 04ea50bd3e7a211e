//! Text to graph to reference, for tests.
#![allow(dead_code)]

use girih_compiler::host::{HostTensor, as_f64};
use girih_compiler::ir::graph::Graph;
use girih_compiler::ir::program::Program;
use girih_compiler::lower::{Schedule, plan_to_program};
use girih_compiler::pass::ast_to_graph::{Bindings, bind};
use girih_compiler::pass::graph_to_plan::{PlanOptions, plan};
use girih_compiler::pass::module;
use girih_compiler::reference::{self, Inputs, Outcome, RunFault};
use girih_compiler::sim::{self, SimOptions};
use girih_compiler::vocab::dtype::{DType, Value};
use girih_compiler::vocab::target::Target;
use girih_dsl::diagnostic::Diagnostic;
use girih_dsl::source::Sources;

/// A program's text with what it is bound to.
#[derive(Clone, Default)]
pub struct Case {
    pub text: String,
    pub bindings: Bindings,
    pub inputs: Inputs,
}

impl Case {
    pub fn new(text: &str) -> Case {
        Case { text: text.into(), ..Case::default() }
    }

    pub fn tensor(mut self, name: &str, t: HostTensor) -> Case {
        self.bindings.inputs.insert(name.into(), (t.dtype, t.dims.clone()));
        self.inputs.tensors.insert(name.into(), t);
        self
    }

    pub fn f32(self, name: &str, dims: &[i64], values: &[f64]) -> Case {
        self.tensor(name, HostTensor::from_f64(DType::F32, dims, values))
    }

    pub fn ints(self, name: &str, dtype: DType, dims: &[i64], values: &[i64]) -> Case {
        self.tensor(name, HostTensor::from_i64(dtype, dims, values))
    }

    pub fn dim(mut self, name: &str, n: i64) -> Case {
        self.bindings.dims.insert(name.into(), n);
        self
    }

    pub fn constant(mut self, name: &str, value: &str) -> Case {
        self.bindings.consts.insert(name.into(), value.into());
        self
    }

    pub fn scalar(mut self, name: &str, value: Value) -> Case {
        self.inputs.scalars.insert(name.into(), value);
        self
    }

    pub fn graph(&self) -> Result<Graph, String> {
        let mut sources = Sources::default();
        let none = |name: &str| Err(format!("no file {name}"));
        let said = |sources: &Sources, d: Vec<Diagnostic>| girih_dsl::render(sources, &d, false);
        let module =
            module::load("case.tile", &self.text, &mut sources, &none).map_err(|d| said(&sources, d))?;
        let op = module.ops().last().map(|o| o.name.text.clone()).ok_or("no op")?;
        let bound = bind(&module, &op, &self.bindings).map_err(|d| said(&sources, d))?;
        Ok(bound.graph)
    }

    pub fn run(&self) -> Result<Outcome, RunFault> {
        let graph = self.graph().unwrap_or_else(|e| panic!("{}\n{e}", self.text));
        reference::run(&graph, &self.inputs)
    }

    /// An output's values.
    pub fn values(&self, name: &str) -> Vec<f64> {
        let out = self.run().unwrap_or_else(|e| panic!("{}\n{e}", self.text));
        numbers(&out.outputs[name].tensor)
    }
}

pub fn numbers(t: &HostTensor) -> Vec<f64> {
    (0..t.len()).map(|i| as_f64(t.get(i))).collect()
}

pub fn near(got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let same = g == w || (g.is_nan() && w.is_nan()) || (g - w).abs() <= tolerance * (1.0 + w.abs());
        assert!(same, "at {i}: {g} for {w}\n{got:?}\n{want:?}");
    }
}

/// Uneven values of both signs.
pub fn data(dtype: DType, dims: &[i64]) -> HostTensor {
    let n: i64 = dims.iter().product();
    let values: Vec<f64> = (0..n).map(|i| ((i * 7919 + 13) % 2003 - 1001) as f64 / 217.0).collect();
    HostTensor::from_f64(dtype, dims, &values)
}

/// The program for sm_90a as it is planned, after it gave on the simulator what the definition says.
pub fn check(case: &Case) -> Program {
    let graph = case.graph().unwrap_or_else(|e| panic!("{}\n{e}", case.text));
    let plan = plan(&graph, &PlanOptions::default());
    let target = Target::parse("sm_90a").expect("a target of the table");
    let program =
        plan_to_program(&plan, target, &Schedule::default()).expect("a form takes every definition");
    let want = reference::run(&graph, &case.inputs).expect("no fault");
    let got = sim::run(&program, &case.inputs, &SimOptions::default())
        .unwrap_or_else(|e| panic!("{}\n{e}", case.text));
    for (name, want) in &want.outputs {
        reference::compare(want, &got.outputs[name]).unwrap_or_else(|m| panic!("{}\n{name}: {m}", case.text));
    }
    program
}
