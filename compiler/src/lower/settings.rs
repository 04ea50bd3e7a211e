//! Which settings a kernel follows: what is written is followed by its form, or refused with the reason.
//!
//! A setting of a `tile` block speaks of the kernels that have its axis (and compute its definition). Those whose form
//! follows it do; if none of them can, the program is refused. A setting of a schedule speaks of one kernel.

use super::contract_pattern;
use super::schedule::{Schedule, makes_along, speaks_along, spoken, unheard, word_text};
use super::{Lowering, Refusal};
use crate::ir::graph::{AxisId, Expr, ExprId, Graph, Stmt as GraphStmt, Word};
use crate::ir::plan::{Form, Plan, PlanKernel};
use crate::ir::simt::{Kernel, Stmt, Unroll};
use crate::pass::inline::below;
use crate::vocab::target::Target;
use girih_dsl::ast::Span;

/// A key with the forms that follow it, and what it is good for.
struct Row {
    key: &'static str,
    forms: &'static [Form],
    what: &'static str,
}

const BY_THREADS: &[Form] = &[
    Form::Map,
    Form::Row,
    Form::Contract,
    Form::Scan,
    Form::Sort,
    Form::Scatter,
    Form::Thread,
    Form::Block,
    Form::Step,
];

/// Wishes and permissions (`vector`, `atomic`, `accumulate`) and what the planner follows (`store`, `inline`) have no row.
const ROWS: &[Row] = &[
    Row {
        key: "block",
        forms: &[Form::Map, Form::Row, Form::Contract, Form::Fold],
        what: "a tile of the output",
    },
    Row {
        key: "step",
        forms: &[Form::Contract, Form::Fold, Form::Scan, Form::Sort],
        what: "a product's loop through shared memory, or what a block takes of a scan or sort at a time",
    },
    Row {
        key: "split",
        forms: &[Form::Contract, Form::Fold, Form::Scan, Form::Sort],
        what: "a product whose blocks share a sum, or a scan or sort whose rows are cut",
    },
    Row { key: "stages", forms: &[Form::Contract, Form::Fold], what: "a product's copies that run ahead" },
    Row { key: "order", forms: &[Form::Contract], what: "a product's tiles" },
    Row { key: "threads", forms: BY_THREADS, what: "the threads of a block" },
    Row { key: "warps", forms: BY_THREADS, what: "the threads of a block" },
    Row { key: "warpgroups", forms: BY_THREADS, what: "the threads of a block" },
    Row { key: "unroll", forms: &Form::ALL, what: "a loop in a thread" },
    Row { key: "cluster", forms: &[Form::Row, Form::Contract], what: "blocks that share a row, or copies" },
    Row { key: "hold", forms: &[Form::Row], what: "what several passes over a row read" },
    Row {
        key: "persistent",
        forms: &[Form::Contract, Form::Fold],
        what: "blocks that take one tile after the other",
    },
];

/// Values that ask for what happens anyway where no form follows the key.
fn asks_nothing(key: &str, value: &Word) -> bool {
    match (key, value) {
        ("split" | "cluster" | "unroll" | "stages", Word::Int(1)) => true,
        ("order", Word::Name(n)) => n == "rows",
        ("persistent", Word::Name(n)) => n == "off",
        _ => false,
    }
}

/// Does a form follow a key?
pub fn follows(form: Form, key: &str) -> bool {
    ROWS.iter().find(|r| r.key == key).is_none_or(|r| r.forms.contains(&form))
}

/// Is a statement one point, of sums of one term? Such sizes leave nothing to set, and a block written for others holds.
fn is_one_term(graph: &Graph, s: usize) -> bool {
    let GraphStmt::Define(d) = &graph.stmts[s] else { return false };
    let one = |a: &AxisId| graph.axis_range(*a).is_some_and(|(lo, hi)| hi - lo <= 1);
    let fold = |e: ExprId| match graph.expr(e) {
        Expr::Fold(f) => f.axes.iter().all(one),
        _ => true,
    };
    d.axes.iter().all(one) && below(graph, d.value).into_iter().all(fold)
}

/// Why a kernel cannot follow a setting, if it cannot.
pub fn why_not(graph: &Graph, k: &PlanKernel, key: &str, axis: &str, value: &Word) -> Option<String> {
    if asks_nothing(key, value) || k.stmts.iter().all(|&s| is_one_term(graph, s)) {
        return None;
    }
    if let (true, Word::Int(v @ ..1)) = (matches!(key, "step" | "block"), value) {
        return Some(format!("{v} is no number of points: it is at least 1"));
    }
    // One tile of the whole axis is no cut.
    if key == "step"
        && let (Word::Int(v), Some(n)) = (value, super::schedule::longest_fold(graph, k, axis))
        && *v >= n
    {
        return None;
    }
    let (name, form) = (&k.name, k.form.name());
    if !follows(k.form, key) {
        let row = ROWS.iter().find(|r| r.key == key)?;
        let keys: Vec<&str> = ROWS.iter().filter(|r| r.forms.contains(&k.form)).map(|r| r.key).collect();
        let wanted = match row.forms {
            [] => format!("no form makes {} yet", row.what),
            _ => format!("kernel `{name}` is a {form}, and the setting is for {}", row.what),
        };
        return Some(format!("{wanted}; a {form} follows {}", keys.join(", ")));
    }
    if k.form == Form::Contract && key == "block" {
        let shape = contract_pattern::recognise_any(graph, &super::Facts::new(graph), &k.stmts).ok()?;
        let batch = shape.batch.iter().any(|d| shape.axes[d.out].name == axis);
        let tiled = shape.m.iter().chain(&shape.n).any(|d| shape.axes[d.out].name == axis);
        if batch && !tiled && *value != Word::Int(1) {
            return Some(format!("both factors have the axis {axis}: a block makes one of its points"));
        }
    }
    None
}

/// What is written must be followed by a kernel that it speaks of; what a schedule says, by its kernel.
pub fn check(plan: &Plan, target: &Target, asked: &Schedule) -> Result<(), Refusal> {
    // Empty results have no kernels.
    if let Some(s) = unheard(plan, target).first()
        && !plan.kernels.is_empty()
    {
        let names = plan.kernels.iter().map(|k| format!("`{}` ({})", k.name, k.form.name()));
        let why = format!("no kernel has it to cut: there are {}", names.collect::<Vec<_>>().join(", "));
        return Err(Refusal::new(s.span, why).setting(named(&s.choice.key, &s.choice.axis)));
    }
    for s in &spoken(plan, target) {
        let mut why = None;
        let followed = s.kernels.iter().any(|&k| {
            let reason = s
                .choice
                .values
                .iter()
                .map(|v| why_not(&plan.graph, &plan.kernels[k], &s.choice.key, &s.choice.axis, v));
            let reasons: Vec<Option<String>> = reason.collect();
            let free = reasons.iter().any(Option::is_none);
            why = why.take().or(reasons.into_iter().flatten().next());
            free
        });
        if !followed && let Some(why) = why {
            return Err(Refusal::new(s.span, why).setting(named(&s.choice.key, &s.choice.axis)));
        }
    }
    for (kernel, settings) in &asked.kernels {
        let Some(k) = plan.kernels.iter().find(|k| k.name == *kernel) else {
            let known: Vec<&str> = plan.kernels.iter().map(|k| k.name.as_str()).collect();
            let why =
                format!("the schedule speaks of a kernel `{kernel}`; the kernels are {}", known.join(", "));
            return Err(Refusal::new(Span::default(), why));
        };
        for ((key, axis), value) in settings {
            let cut = key == "block" && !axis.is_empty();
            let known = speaks_along(&plan.graph, k, key, axis)
                && !(cut && !makes_along(&plan.graph, k, axis))
                || super::space(plan, k, target).iter().any(|c| c.key == *key && c.axis == *axis);
            if !known {
                let why = format!(
                    "kernel `{kernel}` {} no axis `{axis}`",
                    match key.as_str() {
                        "step" | "split" => "folds",
                        _ => "has",
                    }
                );
                return Err(Refusal::new(first_span(&plan.graph, k), why).setting(named(key, axis)));
            }
            if let Some(why) = why_not(&plan.graph, k, key, axis, value) {
                return Err(Refusal::new(first_span(&plan.graph, k), why).setting(named(key, axis)));
            }
        }
    }
    Ok(())
}

/// The threads of a block may be said in several ways, of one block or of two: they must say the same.
pub fn agree(cx: &Lowering<'_>, k: &PlanKernel) -> Result<(), Refusal> {
    let mut said = cx.schedule.said_threads(&k.name);
    let Some((threads, first)) = said.next() else { return Ok(()) };
    match said.find(|s| s.0 != threads) {
        None => Ok(()),
        Some((others, key)) => {
            let what = |n: i64, key: &str| format!("`{key}` says {n} threads");
            let why = format!("{}, but {} for the same block", what(others, key), what(threads, first));
            Err(Refusal::new(first_span(cx.graph, k), why).setting(key))
        }
    }
}

/// Is something set that a map in a product's place would not follow?
pub fn need_a_product(schedule: &Schedule, k: &PlanKernel) -> bool {
    let settings = schedule.kernels.get(&k.name).into_iter().flatten();
    let mut settings = settings.filter(|((key, _), value)| !asks_nothing(key, value));
    settings.any(|((key, _), _)| !follows(Form::Map, key))
}

/// A setting as it is written, without its value.
pub fn named(key: &str, axis: &str) -> String {
    if axis.is_empty() { key.to_string() } else { format!("{key} {axis}") }
}

fn first_span(graph: &Graph, k: &PlanKernel) -> Span {
    match k.stmts.first().map(|&s| &graph.stmts[s]) {
        Some(GraphStmt::Define(d)) => d.span,
        Some(s) => s.targets().first().map_or(Span::default(), |&t| graph.tensor(t).span),
        None => Span::default(),
    }
}

/// Statements that an unrolled loop may become: a compiler's time grows faster than they do.
const MOST_UNROLLED: usize = 2048;

/// Statements of the longest loop over an axis.
fn longest(kernel: &Kernel, stmts: &[Stmt], axis: &str) -> usize {
    let inner = |s: &Stmt| -> usize {
        match s {
            Stmt::For { var, body, .. } if kernel.vars[var.0 as usize].name == axis => count(body),
            Stmt::For { body, .. } | Stmt::While { body, .. } => longest(kernel, body, axis),
            Stmt::If { then, otherwise, .. } => {
                longest(kernel, then, axis).max(longest(kernel, otherwise, axis))
            }
            _ => 0,
        }
    };
    stmts.iter().map(inner).max().unwrap_or(0)
}

fn count(stmts: &[Stmt]) -> usize {
    let one = |s: &Stmt| match s {
        Stmt::For { body, .. } | Stmt::While { body, .. } => 1 + count(body),
        Stmt::If { then, otherwise, .. } => 1 + count(then) + count(otherwise),
        _ => 1,
    };
    stmts.iter().map(one).sum()
}

/// Sets `unroll` on the loops of the kernels made since `first`.
pub fn unroll(cx: &mut Lowering<'_>, k: &PlanKernel, first: usize) -> Result<(), Refusal> {
    let Some(settings) = cx.schedule.kernels.get(&k.name) else { return Ok(()) };
    for ((key, axis), value) in settings.iter().filter(|s| s.0.0 == "unroll") {
        let Word::Int(n) = value else { continue };
        let mut loops = 0;
        for kernel in &mut cx.program.kernels[first..] {
            let mut body = std::mem::take(&mut kernel.body);
            let size = (*n as usize).saturating_mul(longest(kernel, &body, axis));
            if *n > 1 && size > MOST_UNROLLED {
                let why = format!(
                    "{n} copies of the loop over {axis} would be {size} statements: take at most {MOST_UNROLLED}"
                );
                return Err(Refusal::new(first_span(cx.graph, k), why).setting(named(key, axis)));
            }
            loops += unrolled(kernel, &mut body, axis, *n as u32);
            kernel.body = body;
        }
        if loops == 0 && *n != 1 && !cx.unrolled.contains(axis) {
            let why =
                format!("no thread of kernel `{}` has a loop over {axis} ({})", k.name, word_text(value));
            return Err(Refusal::new(first_span(cx.graph, k), why).setting(named(key, axis)));
        }
    }
    Ok(())
}

fn unrolled(kernel: &Kernel, stmts: &mut [Stmt], axis: &str, n: u32) -> usize {
    let mut found = 0;
    for s in stmts {
        match s {
            Stmt::For { var, unroll, body, .. } => {
                if kernel.vars[var.0 as usize].name == axis {
                    *unroll = if n == 1 { Unroll::None } else { Unroll::By(n) };
                    found += 1;
                }
                found += unrolled(kernel, body, axis, n);
            }
            Stmt::While { body, .. } => found += unrolled(kernel, body, axis, n),
            Stmt::If { then, otherwise, .. } => {
                found += unrolled(kernel, then, axis, n) + unrolled(kernel, otherwise, axis, n);
            }
            _ => {}
        }
    }
    found
}
