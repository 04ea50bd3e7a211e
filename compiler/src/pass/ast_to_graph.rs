//! ast → graph: an op of a module, bound to sizes, dtypes and consts.
//!
//! Everything symbolic ends here: sizes become numbers, op calls are inlined, axes get their ranges, types are decided,
//! reads are proven in bounds (or marked as checked), statements are put in an order in which they can run.

use super::bind::elab::{Declared, Elab, Frame, Kind, Meaning, View};
use super::bind::prove::Values;
use super::bind::sizes::Given;
use super::bind::typ::{Typ, Val};
use super::bind::{build, compact, stmt};
use super::module::Module;
use crate::host;
use crate::ir::graph::{Expr as Node, Graph, Output, Role, Scalar, ScalarId};
use crate::vocab::dtype::{DType, Value};
use girih_dsl::ast::*;
use girih_dsl::diagnostic::{Diagnostic, Severity};
use std::collections::BTreeMap;

/// What is given from outside. All parts are optional, as long as everything follows.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    /// Sizes (`--dim`).
    pub dims: BTreeMap<String, i64>,
    /// Const parameters, dtype parameters and run-time scalars (`--const`), as written.
    pub consts: BTreeMap<String, String>,
    /// Dtype and dims of inputs.
    pub inputs: BTreeMap<String, (DType, Vec<i64>)>,
}

/// An op for one choice of sizes, dtypes and consts.
#[derive(Clone, Debug)]
pub struct Bound {
    pub graph: Graph,
    /// Run-time scalars with their values: given, or the default.
    pub scalars: Vec<(ScalarId, Option<Value>)>,
    pub warnings: Vec<Diagnostic>,
}

/// Stack of the thread that binds: expressions may nest deeply.
const STACK: usize = 256 << 20;

/// Runs on a thread with a stack for deep expressions.
pub(crate) fn with_stack<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| {
        let spawned = std::thread::Builder::new().stack_size(STACK).spawn_scoped(s, f);
        match spawned.map(|t| t.join()) {
            Ok(Ok(v)) => v,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(e) => panic!("a thread cannot be started: {e}"),
        }
    })
}

/// Binds the op of this name.
pub fn bind(module: &Module, op: &str, bindings: &Bindings) -> Result<Bound, Vec<Diagnostic>> {
    with_stack(|| bind_here(module, op, bindings, |_| {}))
}

/// Binds on this thread; `set` chooses how strict the binding is.
pub(crate) fn bind_here(
    module: &Module,
    op: &str,
    bindings: &Bindings,
    set: impl FnOnce(&mut Elab),
) -> Result<Bound, Vec<Diagnostic>> {
    let Some((unit, op)) = module.op(op) else { return Err(vec![no_such_op(module, op)]) };
    let mut e = Elab::new(module);
    set(&mut e);
    e.frames.push(Frame { unit, ..Frame::default() });
    e.g.op = op.name.text.clone();
    let scalars = run(&mut e, op, bindings);
    let (errors, warnings): (Vec<_>, Vec<_>) = e.diags.drain(..).partition(|d| d.severity == Severity::Error);
    match scalars {
        Some(scalars) if errors.is_empty() => {
            // Of a sample only the diagnostics are wanted.
            let graph = if e.sample.is_some() { Graph::default() } else { compact::compact(&e.g) };
            debug_assert_eq!(crate::ir::graph_verify::verify(&graph), Ok(()), "{}", graph.op);
            Ok(Bound { graph, scalars, warnings })
        }
        _ => {
            let mut all = errors;
            if all.is_empty() {
                let what = format!("`{}` cannot be bound", op.name.text);
                all.push(
                    Diagnostic::error("E0599", op.name.span, what)
                        .help("this is a defect of the compiler: report it"),
                );
            }
            all.extend(warnings);
            Err(all)
        }
    }
}

/// Names for a message: the first ones.
pub fn listed(names: &[&str]) -> String {
    const MOST: usize = 12;
    match names.len() {
        n if n > MOST => format!("{}, … ({n} in all)", names[..MOST].join(", ")),
        _ => names.join(", "),
    }
}

/// `start` with the names, or what to say where there are none.
pub fn listed_or<'a>(start: &str, none: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { none.to_string() } else { format!("{start} {}", listed(&names)) }
}

fn no_such_op(module: &Module, name: &str) -> Diagnostic {
    let at = Span::default();
    let d = Diagnostic::error("E0512", at, format!("there is no op `{name}`"));
    let known: Vec<&str> = module.ops().map(|o| o.name.text.as_str()).collect();
    match known.is_empty() {
        true => d.help("the file defines no op: write op name[sizes](…) -> (…) { … }"),
        false => d.help(format!("the ops are {}", listed(&known))),
    }
}

fn run(e: &mut Elab, op_name: &Op, bindings: &Bindings) -> Option<Vec<(ScalarId, Option<Value>)>> {
    // The op again, with the module's lifetime.
    let module = e.module;
    let (_, op) = module.op(&op_name.name.text)?;
    if op.results.is_empty() && !op.params.iter().any(|p| p.inout) {
        let d = Diagnostic::error("E0413", op.name.span, format!("`{}` computes nothing", op.name.text));
        e.report(d.help("declare what it gives: -> (y: f32[N]), or what it changes: inout x: f32[N]"));
        return None;
    }
    let given = e.given(op, bindings)?;
    e.bind_header(op, &given)?;
    let scalars = e.params(op, bindings)?;
    e.declare_results(op)?;
    e.body(op);
    e.finish(op);
    Some(scalars)
}

impl<'m> Elab<'m> {
    /// Sorts what is given by what the op declares.
    fn given(&mut self, op: &'m Op, b: &Bindings) -> Option<Given> {
        let mut given = Given::default();
        for (name, &n) in &b.dims {
            let size = op.sizes.iter().find(|s| s.name.text == *name);
            if !size.is_some_and(|s| matches!(s.kind, SizeKind::Plain | SizeKind::Derived(_))) {
                self.no_size(op, name, n, size);
                return None;
            }
            given.sizes.insert(name.clone(), (n, None));
        }
        for (name, (dtype, dims)) in &b.inputs {
            let Some(p) = op.params.iter().find(|p| p.name.text == *name && p.dims.is_some()) else {
                let d = Diagnostic::error(
                    "E0508",
                    op.name.span,
                    format!("`{}` has no input `{name}`", op.name.text),
                );
                let known = op.params.iter().filter(|p| p.dims.is_some()).map(|p| p.name.text.as_str());
                self.report(d.help(listed_or("its inputs are", "it has no inputs: leave it out", known)));
                return None;
            };
            let rank = p.dims.as_ref().map_or(0, Vec::len);
            if rank != dims.len() {
                let what = format!("`{name}` has {rank} axes, but {} are given: {dims:?}", dims.len());
                self.report(Diagnostic::error("E0509", p.name.span, what).help("give a tensor of this rank"));
                return None;
            }
            given.dtypes.insert(name.clone(), *dtype);
            given.shapes.insert(name.clone(), (dims.clone(), None));
        }
        for (name, text) in &b.consts {
            self.given_const(op, name, text, &mut given)?;
        }
        Some(given)
    }

    /// A number is given for what is no size.
    fn no_size(&mut self, op: &Op, name: &str, value: i64, found: Option<&Size>) {
        if let Some(s) = found
            && let Some(allowed) = self.kind(&s.kind)
        {
            let d = Diagnostic::error(
                "E0508",
                s.name.span,
                format!("`{name}` of `{}` is a dtype parameter, no size", op.name.text),
            );
            let one = allowed.first().map_or("f32", |d| d.name());
            self.report(d.help(format!("give it a dtype: --const {name}={one}")));
            return;
        }
        let is_size = |s: &&Size| matches!(s.kind, SizeKind::Plain | SizeKind::Derived(_));
        let known: Vec<&str> = op.sizes.iter().filter(is_size).map(|s| s.name.text.as_str()).collect();
        let d = Diagnostic::error("E0508", op.name.span, format!("`{}` has no size `{name}`", op.name.text));
        if let Some(p) = op.params.iter().find(|p| p.name.text == name) {
            let help = match p.dims.is_some() {
                true => format!(
                    "it is a tensor, whose dims are sizes: give these, or the tensor by --input {name}=FILE.npy"
                ),
                false => format!(
                    "it is a {}: give it with --const {name}={value}",
                    if p.is_const { "const" } else { "scalar" }
                ),
            };
            self.report(d.also(p.name.span, "declared here").help(help));
            return;
        }
        if let Some(near) = known.iter().find(|k| k.eq_ignore_ascii_case(name)) {
            self.report(d.help(format!("did you mean `{near}`? Write --dim {near}={value}")));
            return;
        }
        self.report(d.help(match known.is_empty() {
            true => "it has no sizes: leave it out".to_string(),
            false => format!("its sizes are {}", known.join(", ")),
        }));
    }

    fn given_const(&mut self, op: &Op, name: &str, text: &str, given: &mut Given) -> Option<()> {
        if op
            .sizes
            .iter()
            .any(|s| s.name.text == *name && !matches!(s.kind, SizeKind::Plain | SizeKind::Derived(_)))
        {
            let Some(d) = DType::parse(text) else {
                let d =
                    Diagnostic::error("E0510", op.name.span, format!("`{text}` is no dtype (for `{name}`)"));
                self.report(d.help(
                    "the dtypes are f64, f32, f16, bf16, e4m3, e5m2, i64, i32, i16, i8, u8, i4, u4, bool",
                ));
                return None;
            };
            given.types.insert(name.into(), d);
            return Some(());
        }
        let Some(p) = op.params.iter().find(|p| p.name.text == *name && p.dims.is_none()) else {
            let d = Diagnostic::error(
                "E0508",
                op.name.span,
                format!("`{}` has no const or scalar `{name}`", op.name.text),
            );
            let known = op.params.iter().filter(|p| p.dims.is_none()).map(|p| p.name.text.as_str());
            let size = op.sizes.iter().any(|s| s.name.text == *name);
            self.report(match size {
                true => d.help(format!("it is a size: give it with --dim {name}={text}")),
                false => d.help(listed_or("it has", "it has none: leave it out", known)),
            });
            return None;
        };
        if p.is_const {
            let v = self.parse_value(p, text)?;
            given.consts.insert(name.into(), (v, None));
        }
        Some(())
    }

    /// A value as written on the command line, for a parameter.
    fn parse_value(&mut self, p: &Param, text: &str) -> Option<Value> {
        let dtype = match DType::parse(&p.dtype.text) {
            Some(d) => d,
            None => self.frame().dtypes.get(&p.dtype.text).copied().unwrap_or(DType::F64),
        };
        let text = text.trim();
        let v = match dtype {
            DType::Bool => match text {
                "true" | "1" => Some(Value::Bool(true)),
                "false" | "0" => Some(Value::Bool(false)),
                _ => None,
            },
            d if d.is_int() => build::int_text(text.strip_prefix('-').unwrap_or(text))
                .map(|v| Value::I64(if text.starts_with('-') { v.wrapping_neg() } else { v })),
            _ => text.parse().ok().map(Value::F64),
        };
        let (lo, hi) = dtype.row().int_range;
        let fits = |v: &Value| !dtype.is_int() || matches!(v, Value::I64(i) if (lo..=hi).contains(i));
        if !v.as_ref().is_some_and(fits) {
            let what = format!("`{text}` is no value for `{}`: {}", p.name.text, dtype.name());
            self.report(
                Diagnostic::error("E0510", p.name.span, what)
                    .help(format!("write --const {}=VALUE", p.name.text)),
            );
            return None;
        }
        v.map(|v| host::round(v, dtype))
    }

    /// Declares inputs and run-time scalars.
    fn params(&mut self, op: &'m Op, b: &Bindings) -> Option<Vec<(ScalarId, Option<Value>)>> {
        let mut scalars = Vec::new();
        let mut ok = true;
        for p in op.params.iter().filter(|p| !p.is_const) {
            ok &= match &p.dims {
                Some(dims) => self.input(p, dims).is_some(),
                None => match self.scalar(p, b.consts.get(&p.name.text)) {
                    Some(s) => {
                        scalars.push(s);
                        true
                    }
                    None => false,
                },
            };
        }
        ok.then_some(scalars)
    }

    fn input(&mut self, p: &'m Param, dims: &'m [Expr]) -> Option<()> {
        let dtype = self.dtype(&p.dtype)?;
        let (dims, sym) = self.dims(&p.name, dims)?;
        if let Some(d) = &p.default {
            let e = Diagnostic::error(
                "E0511",
                d.span,
                format!("`{}` is a tensor, it takes no default", p.name.text),
            );
            self.report(e.help("leave the default out"));
        }
        let role = if p.inout { Role::Inout } else { Role::Input };
        let lo = vec![0; dims.len()];
        let mut t = stmt::tensor(&p.name.text, dtype, dims, lo, role, p.name.span);
        let mut known = Values::default();
        if let Some(r) = &p.range {
            if !dtype.is_int() {
                let e = Diagnostic::error(
                    "E0306",
                    r.span,
                    format!("`{}` is {}: only integers have a range", p.name.text, dtype.name()),
                );
                self.report(e.help("leave the range out"));
                return None;
            }
            let (lo, hi) = self.literal_range(r)?;
            t.range = Some((lo, hi));
            known.range = Some((lo as i128, hi as i128 - 1));
        }
        t.unique = p.unique;
        let id = self.tensor(t, known);
        let kind = if p.inout { Kind::Inout } else { Kind::Input };
        let typ = Typ::of(dtype.compute());
        let view = View { id, wide: id, typ, lead: Vec::new(), sym, kind, early: false, span: p.name.span };
        self.frame_mut().names.insert(p.name.text.clone(), Meaning::Tensor(view));
        Some(())
    }

    fn scalar(&mut self, p: &'m Param, given: Option<&String>) -> Option<(ScalarId, Option<Value>)> {
        let dtype = self.dtype(&p.dtype)?;
        if p.inout {
            let d = Diagnostic::error(
                "E0409",
                p.name.span,
                format!("`{}` is a number, it cannot be inout", p.name.text),
            );
            self.report(d.help(format!("declare it with brackets: {}: {}[]", p.name.text, dtype.name())));
            return None;
        }
        let default = match &p.default {
            None => None,
            Some(e) => {
                let v = self.expr(e);
                self.store(v, dtype, &p.name.text, e.span)?;
                match self.constant(v, dtype) {
                    Some(v) => Some(v),
                    None => {
                        let d = Diagnostic::error(
                            "E0511",
                            e.span,
                            "a default is made of sizes, consts and literals",
                        );
                        self.report(d.help("leave the default out"));
                        return None;
                    }
                }
            }
        };
        let range = match &p.range {
            Some(r) => Some(self.literal_range(r)?),
            None => None,
        };
        let value = match given {
            Some(text) => Some(self.parse_value(p, text)?),
            None => default,
        };
        let id = ScalarId(self.g.scalars.len() as u32);
        self.g.scalars.push(Scalar { name: p.name.text.clone(), dtype, default, range, span: p.name.span });
        let e = self.g.add(Node::Scalar(id), dtype.compute(), p.name.span);
        let v = Val::new(Typ::of(dtype.compute()), e);
        self.frame_mut().names.insert(p.name.text.clone(), Meaning::Value(v, None));
        Some((id, value))
    }

    /// Notes the dtypes and dims of results.
    pub fn declare_results(&mut self, op: &'m Op) -> Option<()> {
        let mut ok = true;
        for r in &op.results {
            let dtype = self.dtype(&r.dtype);
            let dims = self.dims(&r.name, r.dims.as_deref().unwrap_or_default());
            match (dtype, dims) {
                (Some(dtype), Some((dims, sym))) => {
                    let d = Declared { dtype, dims, sym, span: r.name.span };
                    self.frame_mut().results.insert(r.name.text.clone(), d);
                }
                _ => ok = false,
            }
        }
        ok.then_some(())
    }

    /// Outputs, sizes and consts of the graph.
    fn finish(&mut self, op: &'m Op) {
        for r in &op.results {
            match self.frame().names.get(&r.name.text) {
                Some(Meaning::Tensor(v)) => {
                    let tensor = v.id;
                    self.g.outputs.push(Output {
                        name: r.name.text.clone(),
                        tensor,
                        inout: None,
                        shape: None,
                    });
                }
                _ => {
                    let d = Diagnostic::error(
                        "E0406",
                        r.name.span,
                        format!("the result `{}` is never defined", r.name.text),
                    );
                    let help = Elab::left_form(&r.name.text, r.dims.as_ref().map_or(0, Vec::len));
                    self.report(d.help(help));
                }
            }
        }
        for p in op.params.iter().filter(|p| p.inout) {
            let first = self.g.tensors.iter().position(|t| t.role == Role::Inout && t.name == p.name.text);
            if let (Some(Meaning::Tensor(v)), Some(i)) = (self.frame().names.get(&p.name.text), first) {
                let inout = Some(crate::ir::graph::TensorId(i as u32));
                let tensor = v.id;
                self.g.outputs.push(Output { name: p.name.text.clone(), tensor, inout, shape: None });
            }
        }
        self.note_values(op);
        self.tiles(op);
    }

    fn note_values(&mut self, op: &'m Op) {
        let value = |s: &Self, name: &str| match s.frame().names.get(name) {
            Some(Meaning::Value(v, _)) => build::literal(&s.g, v.id),
            _ => None,
        };
        for s in &op.sizes {
            if let Some(Value::I64(v)) = value(self, &s.name.text) {
                self.g.sizes.push((s.name.text.clone(), v));
            }
        }
        for p in op.params.iter().filter(|p| p.is_const) {
            if let Some(v) = value(self, &p.name.text) {
                self.g.consts.push((p.name.text.clone(), v));
            }
        }
    }
}
