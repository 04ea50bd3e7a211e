//! The laws: every scalar rule on every combination of awkward values, every fold rule and every class of whole
//! graphs in the reference.

#[path = "../../tests/common/corpus.rs"]
mod corpus;
#[allow(dead_code)]
#[path = "../../../tests/library/samples.rs"]
mod samples;

use super::analysis::Facts;
use super::term::Term;
use super::*;
use crate::host::HostTensor;
use crate::ir::graph::{self as ir, AxisId, ExprId, Role, TensorId};
use crate::lower::tests::build::*;
use crate::lower::tests::pattern;
use crate::pass::ast_to_graph::{Bound, bind};
use crate::pass::classes_text;
use crate::pass::egraph_to_plan::value_of_node;
use crate::pass::extract::{self, Choice};
use crate::pass::graph_to_egraph::{self, Origin, Terms, Values};
use crate::pass::subst::Subst;
use crate::reference::{self, Inputs};
use crate::vocab::dtype::{DType, Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use egg::{ENodeOrVar, PatternAst};
use std::collections::BTreeMap;

fn vars(p: &PatternAst<Term>) -> Vec<Var> {
    let mut out = Vec::new();
    for n in p.as_ref() {
        if let ENodeOrVar::Var(v) = n
            && !out.contains(v)
        {
            out.push(*v);
        }
    }
    out
}

fn awkward(ty: Ty) -> Vec<Value> {
    match ty {
        Ty::Bool => vec![Value::Bool(false), Value::Bool(true)],
        Ty::I32 => [0, 1, -1, 7, i32::MIN, i32::MAX].map(Value::I32).to_vec(),
        Ty::I64 => [0, 1, -1, 7, i64::MIN, i64::MAX].map(Value::I64).to_vec(),
        Ty::F32 => [0.0, -0.0, 1.0, -1.0, 1.1, -3.4e38, 1e-45, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]
            .map(Value::F32)
            .to_vec(),
        Ty::F64 => [0.0, -0.0, 1.0, 1.1, -1e308, 5e-324, f64::INFINITY, f64::NAN].map(Value::F64).to_vec(),
    }
}

/// NaN equals NaN whatever its bits.
fn alike(a: Value, b: Value) -> bool {
    match (a, b) {
        (Value::F32(a), Value::F32(b)) if a.is_nan() => b.is_nan(),
        (Value::F64(a), Value::F64(b)) if a.is_nan() => b.is_nan(),
        _ => a == b,
    }
}

/// Every way to give the variables values of these types, each at its place.
fn assignments(types: &[Ty]) -> Vec<Vec<Value>> {
    types.iter().fold(vec![Vec::new()], |all, &ty| {
        all.iter()
            .flat_map(|a| awkward(ty).into_iter().map(move |v| a.iter().copied().chain([v]).collect()))
            .collect()
    })
}

/// Both sides of a rule at these values, if it applies there.
fn sides(
    row: &Row,
    from: &Pattern<Term>,
    to: &Pattern<Term>,
    vars: &[Var],
    values: &[Value],
) -> Option<(Value, Value)> {
    let mut graph = Graph::new(Facts::default());
    let mut subst = egg::Subst::default();
    for (&var, &v) in vars.iter().zip(values) {
        let id = graph.add(Term::lit(v));
        subst.insert(var, id);
    }
    if !(row.when)(&Known { graph: &graph, subst: &subst }) {
        return None;
    }
    let a = graph.add_instantiation(&from.ast, &subst);
    let b = graph.add_instantiation(&to.ast, &subst);
    graph.rebuild();
    Some((graph[a].data.constant?, graph[b].data.constant?))
}

fn fits(from: &Pattern<Term>, types: &BTreeTypes) -> bool {
    // The types of a pattern's operands must fit each function's law.
    let nodes = from.ast.as_ref();
    let mut of: Vec<Option<Ty>> = Vec::new();
    for n in nodes {
        let ty = match n {
            ENodeOrVar::Var(v) => types.iter().find(|t| t.0 == *v).map(|t| t.1),
            ENodeOrVar::ENode(t) => {
                let args: Option<Vec<Ty>> = t.children.iter().map(|c| of[usize::from(*c)]).collect();
                match (t.op, args) {
                    (term::Op::Call(f), Some(args)) => f.result(&args),
                    (term::Op::Select, Some(a)) => (a[0] == Ty::Bool && a[1] == a[2]).then(|| a[1]),
                    (term::Op::Round(d, _), Some(a)) => (a[0] == d.compute()).then(|| a[0]),
                    _ => None,
                }
            }
        };
        of.push(ty);
    }
    of.last().is_some_and(Option::is_some) && of.iter().all(Option::is_some)
}

type BTreeTypes = Vec<(Var, Ty)>;

#[test]
fn exact_scalar_rules_hold_bit_for_bit() {
    let types = [Ty::Bool, Ty::I32, Ty::I64, Ty::F32, Ty::F64];
    for row in scalar::TABLE.iter().chain(&scalar::ORDERS).filter(|r| r.class == Class::Exact) {
        let from: Pattern<Term> = row.from.parse().expect(row.from);
        let to: Pattern<Term> = row.to.parse().expect(row.to);
        let vars = vars(&from.ast);
        let mut tried = 0;
        // Variables have one type, but for a condition.
        for ty in types {
            for cond in [ty, Ty::Bool] {
                let of: Vec<Ty> =
                    vars.iter().map(|v| if v.to_string() == "?c" { cond } else { ty }).collect();
                if !fits(&from, &vars.iter().copied().zip(of.iter().copied()).collect()) {
                    continue;
                }
                for values in assignments(&of) {
                    if let Some((a, b)) = sides(row, &from, &to, &vars, &values) {
                        assert!(alike(a, b), "{}: {values:?}: {a:?} is not {b:?}", row.name);
                        tried += 1;
                    }
                }
            }
        }
        // Roundings to 8 bits are not folded: the congruence test looks at those.
        assert!(
            tried > 0 || row.name.contains("e4m3") || row.name.contains("e5m2"),
            "{} was never tried",
            row.name
        );
    }
}

#[test]
fn every_rule_is_built() {
    assert_eq!(rules_of_search(Class::Relaxed).len(), classes().len());
    assert!(rules(Class::Relaxed).len() < classes().len());
    assert!(rules(Class::Exact).len() < rules(Class::Reassociates).len());
}

/// A definition of every term of every class (the terms below it as extraction takes them), all of which must agree
/// with the expression that the class came from, or, where a rule made it, with the term that extraction takes. Gives
/// how many terms were compared, and how many of them rules had made.
fn congruent(g: &ir::Graph, inputs: &Inputs, most: Class) -> (usize, usize) {
    let all: Vec<usize> = (0..g.stmts.len()).collect();
    let mut terms = Terms::new(g, false);
    terms.open(g);
    terms.stmts(g, &all);
    let mut values = terms.values;
    saturate(&mut values.egraph, &rules_of_search(most), Limits::default());
    let choice = extract::choose(&values.egraph);
    let mut trial = g.clone();
    trial.outputs.clear();
    let mut pairs = Vec::new();
    let origins: BTreeMap<Id, &Origin> =
        values.origins.iter().rev().map(|(id, o)| (values.egraph.find(*id), o)).collect();
    let mut ids: Vec<Id> = values.egraph.classes().map(|c| c.id).collect();
    ids.sort();
    let mut made = 0;
    for id in ids {
        let nodes = values.egraph[id].nodes.clone();
        let simple = |n: &Term| n.children.is_empty();
        if nodes.len() < 2 && nodes.iter().all(simple) {
            continue;
        }
        made += nodes.len() - 1;
        let (want, names) = match origins.get(&id) {
            Some(o) => (original(&mut trial, o), o.axes.iter().map(|a| a.0).collect::<Vec<_>>()),
            None => {
                let names: Vec<u32> = values.egraph[id].data.free.iter().copied().collect();
                let best = choice.term(&values.egraph, id).cloned();
                let want = best.and_then(|b| output(&mut trial, &values, &choice, id, &b, &names));
                (want, names)
            }
        };
        let Some(want) = want else { continue };
        for n in &nodes {
            if let Some(got) = output(&mut trial, &values, &choice, id, n, &names) {
                pairs.push((want.clone(), got));
            }
        }
    }
    let out = reference::run(&trial, inputs).unwrap_or_else(|f| panic!("{}: {f:?}", g.op));
    for (want, got) in &pairs {
        if let Err(m) = reference::compare(&out.outputs[want], &out.outputs[got].tensor) {
            panic!("{want} and {got}: {m}\n{}", classes_text::describe(g));
        }
    }
    (pairs.len(), made)
}

/// A range, of a large one the last points: a term is evaluated at some points of its axes.
fn some(range: (i64, i64), axes: usize) -> (i64, i64) {
    /// Points at which a term is evaluated, about.
    const POINTS: f64 = 400.0;
    let most = POINTS.powf(1.0 / axes.max(1) as f64).max(2.0) as i64;
    (range.0.max(range.1 - most), range.1)
}

/// A result over axes of these ranges, or a part of them; what `value` says of them is stored, unless it may not be evaluated everywhere.
fn result(
    g: &mut ir::Graph,
    name: &str,
    ty: Ty,
    ranges: &[(i64, i64)],
    value: impl FnOnce(&mut ir::Graph, &[AxisId]) -> Option<ExprId>,
) -> Option<String> {
    let ranges: Vec<(i64, i64)> = ranges.iter().map(|&r| some(r, ranges.len())).collect();
    let dims: Vec<i64> = ranges.iter().map(|(lo, hi)| (hi - lo).max(0)).collect();
    let name = format!("{name}_{}", g.tensors.len());
    let target = tensor(g, &name, ty.stored(), &dims, Role::Result);
    g.tensors[target.0 as usize].lo = ranges.iter().map(|r| r.0).collect();
    let axes: Vec<AxisId> = ranges
        .iter()
        .map(|&(lo, hi)| {
            let (lo, hi) = (g.int(lo), g.int(hi));
            g.new_axis("i", lo, hi, Default::default())
        })
        .collect();
    // What stands under a condition may be evaluated only there.
    let value = value(g, &axes).filter(|&v| crate::pass::sites::speculable(g, v));
    let Some(value) = value else {
        g.outputs.pop();
        return None;
    };
    define(g, target, &axes, value);
    Some(name)
}

/// A result that holds the expression that a class came from.
fn original(g: &mut ir::Graph, o: &Origin) -> Option<String> {
    let ranges: Vec<(i64, i64)> = o.axes.iter().map(|a| g.axis_range(a.1)).collect::<Option<_>>()?;
    let free = crate::pass::facts::Facts::default().free(g, o.expr).len();
    if free != o.axes.len() {
        return None;
    }
    let (e, axes) = (o.expr, o.axes.clone());
    result(g, "e", g.ty(e), &ranges, |g, own| {
        let map: Vec<(AxisId, ExprId)> =
            axes.iter().zip(own).map(|(from, &to)| (from.1, g.axis_expr(to))).collect();
        Some(if map.is_empty() { e } else { Subst::of_axes(g, map).apply(g, e) })
    })
}

/// A result that holds a term at every point of these axes.
fn output(
    g: &mut ir::Graph,
    values: &Values,
    choice: &Choice,
    id: Id,
    node: &Term,
    names: &[u32],
) -> Option<String> {
    let free = &values.egraph[id].data.free;
    if !free.iter().all(|a| names.contains(a)) {
        return None;
    }
    let ranges: Vec<(i64, i64)> =
        names.iter().map(|&a| values.egraph.analysis.range(a)).collect::<Option<_>>()?;
    let ty = values.egraph[id].data.ty?;
    result(g, "t", ty, &ranges, |g, axes| {
        let env = names.iter().copied().zip(axes.iter().copied()).collect();
        value_of_node(g, values, choice, id, node, &env)
    })
}

/// Scalar operations that the statements of a graph take, and that all their parts take by themselves where they are
/// evaluated.
fn size(g: &ir::Graph) -> (f64, f64) {
    let mut facts = crate::pass::facts::Facts::default();
    let (mut all, mut parts) = (0.0, 0.0);
    for s in &g.stmts {
        let points = crate::pass::facts::volume(g, &crate::pass::sites::stmt_axes(s));
        for e in crate::pass::facts::roots(s) {
            all += points * facts.work(g, e);
            for part in crate::pass::inline::below(g, e) {
                let free: Vec<AxisId> = facts.free(g, part).iter().copied().collect();
                let extent =
                    |a: &AxisId| g.axis_range(*a).map(|r| some(r, free.len())).map_or(1, |(lo, hi)| hi - lo);
                let points: f64 = free.iter().map(|a| extent(a).max(0) as f64).product();
                parts += points * facts.work(g, part);
            }
        }
    }
    (all, parts)
}

/// What congruence was looked at.
#[derive(Debug, Default)]
struct Tried {
    operators: usize,
    terms: usize,
    made: usize,
    large: Vec<String>,
}

impl Tried {
    /// A program as it is written and with its definitions put together as the planner does it.
    fn program(&mut self, name: &str, b: &Bound) {
        /// Scalar operations: of the program itself, of its terms at the points at which they are evaluated.
        const WORK: f64 = 1.5e8;
        const TERMS: f64 = 2e8;
        let mut together = b.graph.clone();
        let no = |_: &ir::Graph, _: &ir::Define| false;
        crate::pass::inline::inline(&mut together, &Default::default(), &no, &mut Vec::new());
        let together = crate::pass::compact::compact(together, b.graph.tensors.len());
        let changed = together.stmts.len() != b.graph.stmts.len();
        for g in [Some(&b.graph), changed.then_some(&together)].into_iter().flatten() {
            let (whole, each) = size(g);
            if whole > WORK || each > TERMS {
                self.large.push(format!("{name} ({whole:.0} and {each:.0} operations)"));
                continue;
            }
            let inputs = corpus::inputs(b);
            if let Err(fault) = reference::run(g, &inputs) {
                assert!(reference::run(&b.graph, &inputs).is_err(), "{name}: {fault:?}");
                continue;
            }
            let (compared, by_rules) = congruent(g, &inputs, Class::Reassociates);
            self.operators += 1;
            self.terms += compared;
            self.made += by_rules;
        }
    }

    fn holds(&self, operators: usize, terms: usize, made: usize, large: usize) {
        let enough = self.operators >= operators && self.terms >= terms && self.made >= made;
        eprintln!("{self:?}");
        assert!(enough && self.large.len() <= large, "{self:?}");
    }
}

/// Every operator of the corpus.
#[test]
fn the_corpus_is_congruent() {
    let mut tried = Tried::default();
    for e in corpus::entries() {
        tried.program(e["name"].as_str().expect("a name"), &corpus::bound(&e));
    }
    tried.holds(240, 3700, 1000, 2);
}

/// Every operator of the library.
#[test]
fn the_library_is_congruent() {
    let mut tried = Tried::default();
    for module in girih_dsl::library_names() {
        let mut sources = girih_dsl::source::Sources::default();
        let text = girih_dsl::library(module).expect("a listed module has a text");
        let loaded = crate::pass::module::load(module, text, &mut sources, &|_| Err("no files here".into()));
        let loaded = loaded.unwrap_or_else(|d| panic!("{module}: {}", d[0].message));
        for op in loaded.ops() {
            let bindings = samples::bindings(op, "f32", samples::Sizes::Odd);
            let odd = bind(&loaded, &op.name.text, &bindings);
            let bound = odd.or_else(|_| {
                bind(&loaded, &op.name.text, &samples::bindings(op, "f32", samples::Sizes::Even))
            });
            let bound = bound.unwrap_or_else(|d| panic!("{module}.{}: {}", op.name.text, d[0].message));
            tried.program(&format!("{module}.{}", op.name.text), &bound);
        }
    }
    tried.holds(250, 4000, 1000, 1);
}

fn x_of(dims: &[i64]) -> (ir::Graph, TensorId, Vec<AxisId>, Vec<ExprId>) {
    let mut g = ir::Graph::default();
    let x = tensor(&mut g, "x", DType::F32, dims, Role::Input);
    let (ax, i) = axes(&mut g, dims);
    (g, x, ax, i)
}

fn run(g: &ir::Graph, dims: &[(&str, &[i64])], most: Class) -> usize {
    let mut inputs = Inputs::default();
    for (name, d) in dims {
        let n: i64 = d.iter().product();
        let dtype = g.tensors.iter().find(|t| t.name == *name).map_or(DType::F32, |t| t.dtype);
        inputs.tensors.insert(name.to_string(), HostTensor::from_f64(dtype, d, &pattern(n)));
    }
    congruent(g, &inputs, most).1
}

/// y = Σₖ Σₗ (x[m, k] · w[k, l] / 3): the nested sums merge, the divisor moves out, the product splits.
#[test]
fn sums_of_products_agree_in_every_order() {
    let (mut g, x, ax, i) = x_of(&[3, 5]);
    let w = tensor(&mut g, "w", DType::F32, &[5, 4], Role::Input);
    let y = tensor(&mut g, "y", DType::F32, &[3], Role::Result);
    let l = axis(&mut g, "l", 4);
    let lv = g.axis_expr(l);
    let (a, b) = (at(&mut g, x, &i), at(&mut g, w, &[i[1], lv]));
    let three = f32(&mut g, 3.0);
    let v = call(&mut g, Func::Mul, &[a, b]);
    let v = call(&mut g, Func::Div, &[v, three]);
    let v = fold(&mut g, Monoid::Sum, &[l], None, v);
    let v = fold(&mut g, Monoid::Sum, &ax[1..], None, v);
    define(&mut g, y, &ax[..1], v);
    let z = tensor(&mut g, "z", DType::F32, &[3], Role::Result);
    let (bx, j) = axes(&mut g, &[3, 5, 4]);
    let (a, b) = (at(&mut g, x, &j[..2]), at(&mut g, w, &j[1..]));
    let v = call(&mut g, Func::Mul, &[a, b]);
    let v = fold(&mut g, Monoid::Sum, &bx[1..], None, v);
    define(&mut g, z, &bx[..1], v);
    let text = classes_text::describe(&g);
    for rule in ["split-sum", "factor-out-of-sum", "merge-folds"] {
        assert!(text.contains(rule), "no {rule} in\n{text}");
    }
    assert!(run(&g, &[("x", &[3, 5]), ("w", &[5, 4])], Class::Reassociates) > 3);
}

/// max and min of scaled values, of values that do not change, nested; sums of what does not change.
#[test]
fn folds_agree_with_what_they_become() {
    for m in [Monoid::Max, Monoid::Min, Monoid::Sum] {
        let (mut g, x, ax, i) = x_of(&[3, 4, 5]);
        let y = tensor(&mut g, "y", DType::F32, &[3], Role::Result);
        let z = tensor(&mut g, "z", DType::F32, &[3, 4], Role::Result);
        let half = f32(&mut g, 0.5);
        let v = at(&mut g, x, &i);
        let v = call(&mut g, Func::Mul, &[v, half]);
        let inner = fold(&mut g, m, &ax[2..], None, v);
        define(&mut g, z, &ax[..2], inner);
        let (bx, j) = axes(&mut g, &[3, 4, 5]);
        let v = at(&mut g, x, &j);
        let v = call(&mut g, Func::Div, &[v, half]);
        let v = fold(&mut g, m, &bx[2..], None, v);
        let v = fold(&mut g, m, &bx[1..2], None, v);
        let k = axis(&mut g, "k", 7);
        let v = fold(&mut g, m, &[k], None, v);
        define(&mut g, y, &bx[..1], v);
        assert!(run(&g, &[("x", &[3, 4, 5])], Class::Reassociates) > 2, "{m:?}");
    }
}

/// The same softmax twice under other axis names is one set of classes, and roundings stay.
#[test]
fn equal_folds_are_one_class() {
    let mut g = ir::Graph::default();
    let x = tensor(&mut g, "x", DType::BF16, &[3, 8], Role::Input);
    for name in ["y", "z"] {
        let y = tensor(&mut g, name, DType::BF16, &[3, 8], Role::Result);
        let (ax, i) = axes(&mut g, &[3, 8]);
        let k = axis(&mut g, "k", 8);
        let kv = g.axis_expr(k);
        let inner = at(&mut g, x, &[i[0], kv]);
        let e = call(&mut g, Func::Exp, &[inner]);
        let sum = fold(&mut g, Monoid::Sum, &[k], None, e);
        let v = at(&mut g, x, &i);
        let v = call(&mut g, Func::Exp, &[v]);
        let v = call(&mut g, Func::Div, &[v, sum]);
        let v = g.add(ir::Expr::Round(DType::BF16, ir::Rounding::Fixed, v), Ty::F32, Default::default());
        let v = g.add(ir::Expr::Round(DType::BF16, ir::Rounding::Fixed, v), Ty::F32, Default::default());
        define(&mut g, y, &ax, v);
    }
    let values = graph_to_egraph::build(&g, &[0, 1], false);
    let root = |s: usize| values.egraph.find(values.stmts[s].parts[0].roots[0]);
    assert_eq!(root(0), root(1));
    run(&g, &[("x", &[3, 8])], Class::Reassociates);
}

/// Chains and zeros do not blow up, and two runs do the same.
#[test]
fn growth_is_bounded_and_repeats() {
    let (mut g, x, ax, i) = x_of(&[4]);
    let y = tensor(&mut g, "y", DType::F32, &[4], Role::Result);
    let zero = f32(&mut g, 0.0);
    let mut v = at(&mut g, x, &i);
    for n in 0..64 {
        let other = if n % 3 == 0 { call(&mut g, Func::Mul, &[v, zero]) } else { v };
        v = call(&mut g, Func::Add, &[v, other]);
    }
    define(&mut g, y, &ax, v);
    let grow = || {
        let mut values = graph_to_egraph::build(&g, &[0], false);
        let rounds = saturate(&mut values.egraph, &rules(Class::Reassociates), Limits::default());
        (values.egraph.total_number_of_nodes(), rounds)
    };
    assert!(grow().0 < 400 && grow().1 < 8, "{:?}", grow());
    assert_eq!(classes_text::describe(&g), classes_text::describe(&g));
}
