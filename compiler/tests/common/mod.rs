//! Text to graph to reference, for tests.
#![allow(dead_code)]

use girih_compiler::host::{HostTensor, as_f64};
use girih_compiler::ir::graph::Graph;
use girih_compiler::pass::ast_to_graph::{Bindings, bind};
use girih_compiler::pass::module;
use girih_compiler::reference::{self, Inputs, Outcome, RunFault};
use girih_compiler::vocab::dtype::{DType, Value};
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
