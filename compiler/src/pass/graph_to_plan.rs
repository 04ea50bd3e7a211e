//! graph → plan: which values are stored, and which statements run together.
//!
//! Values that cost less to compute again than to store go into their readers (`inline`); the e-graph
//! simplifies what stands then (`egraph_to_plan`); reductions that would be
//! computed again and again become definitions (`hoist`). From there a search in a model of the device looks for a better
//! set of stored values (`stored`); what is left is grouped into kernels (`group`).

use super::facts::Facts;
use super::{beside, boxed, egraph_to_plan, group, hoist, inline, stored};
use crate::ir::graph::*;
use crate::ir::plan::*;
use crate::lower::contract_codes;
use crate::lower::contract_pattern::{self, ContractShape};
use crate::lower::contract_phases;
use crate::rules::Class;
use crate::vocab::dtype::DType;
use girih_dsl::ast::Span;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// What the caller may ask of the planner.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// Lower reductions with this form wherever it can take them, whatever the planner would choose.
    pub force: Option<Form>,
    /// Inline, rewrite and merge. Off: each statement is a kernel.
    pub fuse: bool,
    /// Search for a better set of stored values than the one chosen value by value.
    pub search: bool,
    /// Chain products with carried state (the form `fold`), which not every target has.
    pub chain: bool,
}

impl Default for PlanOptions {
    fn default() -> Self {
        PlanOptions { force: None, fuse: true, search: true, chain: true }
    }
}

/// Plans a bound graph.
pub fn plan(graph: &Graph, options: &PlanOptions) -> Plan {
    if !options.fuse {
        return each_statement(graph.clone(), options);
    }
    let mut notes = Vec::new();
    let graph = &in_groups(graph);
    let mut wishes = inline::Wishes::of(graph);
    wishes.products = products(graph);
    let mut found = graph.clone();
    boxed::box_sums(&mut found);
    let takes = remembering(options.force);
    inline::inline(&mut found, &wishes, &takes, &mut notes);
    super::mirror::turn(&mut found);
    egraph_to_plan::simplify(&mut found, Class::Reassociates, &mut notes);
    hoist::hoist(&mut found, &takes, &mut notes);
    found = super::compact::compact(found, graph.tensors.len());
    if options.search && options.force.is_none() {
        // What a tile block says of a value's kernel holds for a kernel of that value.
        let chain = options.chain && graph.tiles.is_empty();
        found = search(found, graph, &wishes, chain, &mut notes);
    }
    finish(found, graph, options, notes)
}

/// The graph without reductions of one term, and with the axes split that are seen in groups.
fn in_groups(graph: &Graph) -> Graph {
    let mut g = graph.clone();
    super::unit_folds::remove(&mut g);
    super::split_axes::split(&mut g);
    super::compact::compact(g, graph.tensors.len())
}

/// Groups what is to be stored into kernels.
fn finish(mut found: Graph, written: &Graph, options: &PlanOptions, mut notes: Vec<String>) -> Plan {
    let takes = remembering(options.force);
    let mut kernels = group::group(&found, options.force, &takes, &mut notes);
    if options.force.is_none() && options.chain && found.tiles.is_empty() {
        beside::join(&mut found, &mut kernels, &mut notes);
    }
    let mut said = BTreeSet::new();
    notes.retain(|n| said.insert(n.clone()));
    let bytes_saved = (moved(written) - moved(&found)).max(0);
    Plan { graph: found, kernels, bytes_saved, notes }
}

/// A plan with what the model says that it takes, in microseconds.
pub struct Alternative {
    pub plan: Plan,
    pub us: f64,
}

/// The plan that the model takes for the best, then up to `most` − 1 others, by what the model says that they take: plans
/// one choice away from the best, and those of simpler searches. All are right; the model may be wrong about their order.
pub fn plans(graph: &Graph, options: &PlanOptions, most: usize) -> Vec<Alternative> {
    /// Plans that take longer than the best by more than this are not worth a trial.
    const WORST: f64 = 3.0;
    let of = |plan: Plan| Alternative { us: cost(&plan), plan };
    let best = of(plan(graph, options));
    if most <= 1 || !options.fuse || !options.search || options.force.is_some() {
        return vec![best];
    }
    let mut others: Vec<Alternative> = neighbours(&best.plan, graph, options);
    let simpler =
        [PlanOptions { search: false, ..options.clone() }, PlanOptions { chain: false, ..options.clone() }];
    others.extend(simpler.iter().map(|o| of(plan(graph, o))));
    others.retain(|a| a.us <= WORST * best.us);
    others.sort_by(|a, b| a.us.total_cmp(&b.us));
    let mut seen = BTreeSet::from([signature(&best.plan)]);
    let mut all = vec![best];
    all.extend(others.into_iter().filter(|a| seen.insert(signature(&a.plan))).take(most - 1));
    all
}

/// What tells plans apart: each kernel's form, and what it stores.
pub fn signature(p: &Plan) -> Vec<(Form, Vec<String>)> {
    let stored = |k: &PlanKernel| {
        let targets = k.stmts.iter().flat_map(|&s| p.graph.stmts[s].targets());
        targets.map(|t| p.graph.tensor(t).name.clone()).collect()
    };
    p.kernels.iter().map(|k| (k.form, stored(k))).collect()
}

fn neighbours(best: &Plan, written: &Graph, options: &PlanOptions) -> Vec<Alternative> {
    /// Beyond this a program has too many choices to look at each for itself.
    const LARGE: usize = 64;
    if best.graph.stmts.len() > LARGE {
        return Vec::new();
    }
    let takes = remembering(None);
    let wishes = inline::Wishes::of(written);
    let chain = options.chain && written.tiles.is_empty();
    let mut g = best.graph.clone();
    let found = stored::neighbours(&mut g, &wishes, &takes, &names(written), chain);
    let plan_of = |stmts: Vec<Stmt>| {
        let mut g = g.clone();
        g.stmts = stmts;
        let g = super::compact::compact(g, written.tensors.len());
        let plan = finish(g, written, options, best.notes.clone());
        Alternative { us: cost(&plan), plan }
    };
    found.into_iter().map(plan_of).collect()
}

/// The better of what stands and what the search for stored values leads to.
fn search(
    found: Graph,
    written: &Graph,
    wishes: &inline::Wishes,
    chain: bool,
    notes: &mut Vec<String>,
) -> Graph {
    let takes = remembering(None);
    let mut better = found.clone();
    let mut said = notes.clone();
    if !stored::choose(&mut better, wishes, &takes, &names(written), chain, &mut said) {
        *notes = said;
        return found;
    }
    // What came together may be simplified further.
    let mut simpler = better.clone();
    egraph_to_plan::simplify(&mut simpler, Class::Reassociates, &mut said);
    hoist::hoist(&mut simpler, &takes, &mut Vec::new());
    let of = |g: Graph| {
        let g = super::compact::compact(g, written.tensors.len());
        (stored::total(&g, &remembering(None)), g)
    };
    let (first, better, simpler) = (of(found), of(better), of(simpler));
    let better = if simpler.0 < better.0 { simpler } else { better };
    // What the model sees no difference in, the search had its reasons for.
    if better.0 <= first.0 {
        *notes = said;
        return better.1;
    }
    first.1
}

/// The program's definitions by where their values stand.
fn names(g: &Graph) -> BTreeMap<Span, String> {
    let defines = g.stmts.iter().filter_map(|s| if let Stmt::Define(d) = s { Some(d) } else { None });
    defines.map(|d| (g.span(d.value), g.tensor(d.target).name.clone())).collect()
}

/// Bytes of the locals that a graph stores, written and read once each.
fn moved(g: &Graph) -> i64 {
    let targets = g.stmts.iter().filter(|s| !matches!(s, Stmt::Table { .. })).flat_map(Stmt::targets);
    let locals = targets.map(|t| g.tensor(t)).filter(|t| t.role == Role::Local);
    locals.map(|t| 2 * t.dtype.bytes(&t.dims)).sum()
}

/// What the model says that a plan's kernels take, in microseconds.
pub fn cost(p: &Plan) -> f64 {
    let mut facts = Facts::default();
    p.kernels.iter().map(|k| super::model::kernel(&p.graph, &mut facts, &k.stmts, k.form)).sum()
}

/// `contracts` for the expressions of one graph, which may grow.
fn remembering(force: Option<Form>) -> impl Fn(&Graph, &Define) -> bool {
    let known: RefCell<(Facts, FxHashMap<(TensorId, Vec<AxisId>, ExprId), bool>)> = RefCell::default();
    move |g, d| {
        let (facts, known) = &mut *known.borrow_mut();
        let key = (d.target, d.axes.clone(), d.value);
        *known.entry(key).or_insert_with(|| contracts(g, facts, d, force))
    }
}

/// The e-graph that a graph's plan goes through, as text.
pub fn egraph_text(graph: &Graph, options: &PlanOptions) -> String {
    let mut graph = in_groups(graph);
    let wishes = inline::Wishes::of(&graph);
    let takes = remembering(options.force);
    inline::inline(&mut graph, &wishes, &takes, &mut Vec::new());
    super::classes_text::describe(&graph)
}

/// Would the contract form take this definition as it is? Products of tiny matrices are loops in a thread, unless the
/// form is forced.
fn contracts(g: &Graph, facts: &mut Facts, d: &Define, force: Option<Form>) -> bool {
    // Most definitions have no fold; recognising costs more than seeing that.
    let folds = inline::outer_folds(g, d.value);
    let any = force == Some(Form::Contract) || asks_for_a_product(g, d, &folds);
    !folds.is_empty()
        && (contract_pattern::takes(g, d, true)
            .is_ok_and(|s| any || is_large(g, &s) || is_column(g, &s) || contract_codes::suits(g, &s))
            || facts.chain(g, d).is_ok()
            || in_phases(g, d, any))
}

/// Is the definition a product in each of its phases?
fn in_phases(g: &Graph, d: &Define, any: bool) -> bool {
    let phases = contract_phases::split(g, d, "").unwrap_or_default();
    phases.iter().filter_map(|p| p.shape()).any(|s| any || is_large(g, &s))
}

/// The definitions that `tile` blocks ask for as products.
fn products(g: &Graph) -> BTreeSet<TensorId> {
    if g.tiles.is_empty() {
        return BTreeSet::new();
    }
    let defines = g.stmts.iter().filter_map(|s| if let Stmt::Define(d) = s { Some(d) } else { None });
    let asked = defines.filter(|d| asks_for_a_product(g, d, &inline::outer_folds(g, d.value)));
    asked.map(|d| d.target).collect()
}

/// Does a `tile` block say of this definition what only a product's tiles can follow?
fn asks_for_a_product(g: &Graph, d: &Define, folds: &[ExprId]) -> bool {
    if g.tiles.is_empty() {
        return false;
    }
    let within = |a: Span, b: Span| a.file == b.file && b.start <= a.start && a.end <= b.end;
    let axis_name = |a: &AxisId| g.axis(*a).name.as_str();
    let folded = |name: &str| {
        let axes =
            folds.iter().filter_map(|&f| if let Expr::Fold(f) = g.expr(f) { Some(&f.axes) } else { None });
        axes.flatten().any(|a| axis_name(a) == name)
    };
    let more = |w: &Word| !matches!(w, Word::Int(1)) && !matches!(w, Word::Name(n) if n == "rows");
    let speaks = |t: &&TileBlock| {
        let own = t.of.is_none_or(|op| within(d.span, op));
        let computes = |f: &ExprId| t.at.iter().any(|&at| within(g.span(*f), at));
        own && t.def.as_ref().is_none_or(|n| g.tensor(d.target).name == *n || folds.iter().any(computes))
    };
    g.tiles.iter().filter(speaks).any(|t| {
        let left = |s: &&Setting| {
            s.key == "block" && s.axis.as_ref().is_some_and(|n| d.axes.iter().any(|a| axis_name(a) == n))
        };
        let along = |s: &Setting| match (s.key.as_str(), &s.axis) {
            ("step" | "split", Some(axis)) => folded(axis) && s.choices.iter().any(more),
            ("stages" | "order", None) => t.def.is_some() && s.choices.iter().all(more),
            _ => false,
        };
        t.settings.iter().any(along) || t.settings.iter().filter(left).count() > 1
    })
}

/// Both operands are used again, and there is a tile's worth of work. A few terms are enough where there are many of
/// both: a thread a point would read each operand once a point.
fn is_large(g: &Graph, s: &ContractShape) -> bool {
    const TILE: i64 = 64;
    const MANY: i64 = 256;
    let (m, n) = (ContractShape::points(&s.m), ContractShape::points(&s.n));
    // Their results are most of what is moved, and must be stored by vectors, or be so many that copies of the operands,
    // for which lines go out whole, cost little beside.
    const COPIED: i64 = 1 << 21;
    let vectors = n % 8 == 0 || m.saturating_mul(n) >= COPIED && halves(g, s);
    let least = if m.min(n) >= MANY && vectors { 5 } else { 8 };
    // Two or three rows or columns of few terms (a depthwise convolution with some filters a channel) are no matrices.
    let thin = m.min(n) <= 3 && s.folds.iter().all(|f| f.terms() < 64);
    m > 1 && n > 1 && m * n >= TILE && !thin && s.folds.iter().any(|f| f.terms() >= least)
}

/// Whether every factor is an element of 16 bits.
fn halves(g: &Graph, s: &ContractShape) -> bool {
    let half = |e: &ExprId| match g.expr(*e) {
        Expr::Read(r) => matches!(g.tensor(r.tensor).dtype, DType::F16 | DType::BF16),
        _ => false,
    };
    s.folds.iter().all(|c| c.a.exprs.iter().chain(&c.b.exprs).all(half))
}

/// A product of a matrix of 16-bit floats, as it lies along its rows, and one vector: blocks that share the sums fill the
/// device where a thread a row does not.
fn is_column(g: &Graph, s: &ContractShape) -> bool {
    const LEAST: i64 = 64;
    const LEAST_TERMS: i64 = 256;
    let [batch, m, n] = [&s.batch, &s.m, &s.n].map(|d| ContractShape::points(d));
    let [c] = &s.folds[..] else { return false };
    let rows = if m > n { &c.a } else { &c.b };
    let [Expr::Read(r)] = rows.exprs.iter().map(|&e| g.expr(e)).collect::<Vec<_>>()[..] else { return false };
    let along =
        matches!(r.index.last().map(|&i| g.expr(i)), Some(Expr::Axis(a)) if c.k.iter().all(|k| k.axis != *a));
    let half = matches!(g.tensor(r.tensor).dtype, DType::F16 | DType::BF16);
    let sides = !s.m.is_empty() && !s.n.is_empty();
    batch == 1 && sides && m.min(n) == 1 && m.max(n) >= LEAST && c.terms() >= LEAST_TERMS && along && half
}

/// Each statement a kernel of its own.
fn each_statement(graph: Graph, options: &PlanOptions) -> Plan {
    let mut facts = Facts::default();
    let mut kernels = Vec::new();
    let mut names = group::Names::default();
    for (i, s) in graph.stmts.iter().enumerate() {
        let form = match s {
            Stmt::Define(d) => {
                let product = contracts(&graph, &mut facts, d, options.force);
                Some(super::forms::of_define(&graph, &mut facts, i, d, options.force, product))
            }
            s => super::forms::of_stmt(&graph, &mut facts, s, options.force),
        };
        if let Some(form) = form {
            kernels.push(PlanKernel {
                name: names.fresh(&group::last_name(&graph, s)),
                stmts: vec![i],
                form,
            });
        }
    }
    Plan { graph, kernels, bytes_saved: 0, notes: Vec::new() }
}
