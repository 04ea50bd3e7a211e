//! Schedules: the choices that the lowering leaves open, by kernel, key and axis.

use super::{Refusal, settings};
use crate::ir::graph::{AxisId, Expr, ExprId, Graph, Stmt, TensorId, TileBlock, Word};
use crate::ir::plan::{Plan, PlanKernel};
use crate::vocab::target::Target;
use girih_dsl::ast::Span;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Settings of each kernel of a plan. What is not set is chosen by the form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    pub kernels: BTreeMap<String, BTreeMap<(String, String), Word>>,
}

impl Schedule {
    /// A kernel's setting; `axis` is empty for settings without one.
    pub fn get(&self, kernel: &str, key: &str, axis: &str) -> Option<&Word> {
        self.kernels.get(kernel)?.get(&(key.to_string(), axis.to_string()))
    }

    /// A setting that is a number.
    pub fn int(&self, kernel: &str, key: &str, axis: &str) -> Option<i64> {
        match self.get(kernel, key, axis)? {
            Word::Int(v) => Some(*v),
            _ => None,
        }
    }

    /// Threads of a block as `threads`, `warps` or `warpgroups` say, with the key that says it.
    pub fn block_threads(&self, kernel: &str) -> Option<(i64, &'static str)> {
        self.said_threads(kernel).next()
    }

    /// The same for each of the keys that is set.
    pub fn said_threads(&self, kernel: &str) -> impl Iterator<Item = (i64, &'static str)> {
        let keys = [("threads", 1), ("warps", 32), ("warpgroups", 128)];
        keys.into_iter()
            .filter_map(|(key, each)| Some((self.int(kernel, key, "")?.saturating_mul(each), key)))
    }

    pub fn set(&mut self, kernel: &str, key: &str, axis: &str, value: Word) {
        let settings = self.kernels.entry(kernel.to_string()).or_default();
        settings.insert((key.to_string(), axis.to_string()), value);
    }

    /// Reads the text that `Display` writes: a line `kernel.key axis = value` or `kernel.key = value` each.
    pub fn parse(text: &str) -> Result<Schedule, String> {
        let mut schedule = Schedule::default();
        for (i, line) in text.lines().enumerate() {
            let line = line.split("//").next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let row = parse_line(line)
                .ok_or_else(|| format!("line {}: write `kernel.key axis = value`, not `{line}`", i + 1))?;
            if !crate::pass::bind::tiles::is_setting(&row.1) {
                let known: Vec<&str> = crate::pass::bind::tiles::setting_names().collect();
                let known = known.join(", ");
                return Err(format!("line {}: there is no setting `{}`: there are {known}", i + 1, row.1));
            }
            if schedule.get(&row.0, &row.1, &row.2).is_some() {
                let said = settings::named(&row.1, &row.2);
                return Err(format!("line {}: `{}.{said}` is said twice: leave one of them", i + 1, row.0));
            }
            schedule.set(&row.0, &row.1, &row.2, row.3);
        }
        Ok(schedule)
    }
}

fn parse_line(line: &str) -> Option<(String, String, String, Word)> {
    let (left, right) = line.split_once('=')?;
    let mut words = left.split_whitespace();
    let (kernel, key) = words.next()?.rsplit_once('.')?;
    let axis = words.next().unwrap_or("");
    let none_left = words.next().is_none() && !kernel.is_empty() && !key.is_empty();
    none_left.then_some(())?;
    Some((kernel.to_string(), key.to_string(), axis.to_string(), parse_word(right.trim(), 0)?))
}

/// Words hold words at most this deep: `swizzle(8)` is one.
const DEEPEST: usize = 8;

fn parse_word(text: &str, depth: usize) -> Option<Word> {
    if depth > DEEPEST {
        return None;
    }
    if let Ok(v) = text.parse() {
        return Some(Word::Int(v));
    }
    let name = |s: &str| s.chars().all(|c| c.is_alphanumeric() || c == '_') && !s.is_empty();
    if name(text) {
        return Some(Word::Name(text.to_string()));
    }
    let (head, rest) = text.split_once('(')?;
    let inner = rest.strip_suffix(')')?;
    name(head.trim()).then_some(())?;
    Some(Word::Apply(head.trim().to_string(), Box::new(parse_word(inner.trim(), depth + 1)?)))
}

/// A value as a `tile` block writes it.
pub fn word_text(w: &Word) -> String {
    match w {
        Word::Int(v) => v.to_string(),
        Word::Name(n) => n.clone(),
        Word::Apply(f, a) => format!("{f}({})", word_text(a)),
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kernel, settings) in &self.kernels {
            for ((key, axis), value) in settings {
                let gap = if axis.is_empty() { "" } else { " " };
                writeln!(f, "{kernel}.{key}{gap}{axis} = {}", word_text(value))?;
            }
        }
        Ok(())
    }
}

/// One setting of a kernel with the values that it may have.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    pub key: String,
    /// Empty for settings without an axis.
    pub axis: String,
    pub values: Vec<Word>,
}

impl Choice {
    /// A choice among numbers.
    pub fn ints(key: &str, axis: &str, values: &[i64]) -> Choice {
        let values = values.iter().map(|&v| Word::Int(v)).collect();
        Choice { key: key.into(), axis: axis.into(), values }
    }

    /// Whether a refusal speaks of it: `block m`, or `block` where the form does not know for which axis.
    pub fn is_named(&self, setting: &str) -> bool {
        setting == self.key || setting == settings::named(&self.key, &self.axis)
    }
}

/// A written setting with the kernels (by number) that it speaks of.
#[derive(Clone, Debug)]
pub struct Spoken {
    pub choice: Choice,
    pub kernels: Vec<usize>,
    /// Another block says more of one of its kernels.
    pub overruled: bool,
    pub span: Span,
}

/// The settings of the `tile` blocks for a target; of two for the same kernel the later one counts. Those of called ops
/// may speak of no kernel.
pub fn spoken(plan: &Plan, target: &Target) -> Vec<Spoken> {
    let mut found = said(plan, target);
    found.retain(|s| !s.kernels.is_empty());
    found
}

/// The settings of the op's own blocks that speak of no kernel.
pub fn unheard(plan: &Plan, target: &Target) -> Vec<Spoken> {
    let mut found = said(plan, target);
    let own = |span: Span| {
        plan.graph.tiles.iter().any(|t| t.of.is_none() && t.settings.iter().any(|s| s.span == span))
    };
    found.retain(|s| s.kernels.is_empty() && !s.overruled && own(s.span));
    found
}

fn said(plan: &Plan, target: &Target) -> Vec<Spoken> {
    let mut found: Vec<Spoken> = Vec::new();
    let on = |name: &String| target.name == name || target.name.strip_suffix('a') == Some(name);
    for tile in plan.graph.tiles.iter().filter(|t| t.targets.is_empty() || t.targets.iter().any(on)) {
        let own = (0..plan.kernels.len()).filter(|&k| speaks(&plan.graph, &plan.kernels[k], tile));
        let own: Vec<usize> = own.collect();
        for s in &tile.settings {
            let axis = s.axis.clone().unwrap_or_default();
            let of = |&k: &usize| {
                let kernel = &plan.kernels[k];
                let last = matches!(s.key.as_str(), "block" | "cluster") && tile.def.is_none();
                let along = speaks_along(&plan.graph, kernel, &s.key, &axis);
                along && (!last || tile.of.is_some() || makes_last(plan, k))
            };
            let kernels: Vec<usize> = own.iter().copied().filter(of).collect();
            for f in found.iter_mut().filter(|f| f.choice.key == s.key && f.choice.axis == axis) {
                f.overruled |= f.kernels.iter().any(|k| kernels.contains(k));
                f.kernels.retain(|k| !kernels.contains(k));
            }
            let choice = Choice { key: s.key.clone(), axis, values: s.choices.clone() };
            found.push(Spoken { choice, kernels, overruled: false, span: s.span });
        }
    }
    found
}

/// Does a kernel have the axis that a setting speaks of?
pub fn speaks_along(graph: &Graph, kernel: &PlanKernel, key: &str, axis: &str) -> bool {
    match key {
        "step" | "split" => steps_along(graph, kernel, axis),
        _ => axis.is_empty() || has_axis(graph, kernel, axis),
    }
}

/// The values of the written settings that a kernel's form can follow.
fn written(plan: &Plan, k: &PlanKernel, target: &Target) -> Vec<Choice> {
    let number = plan.kernels.iter().position(|other| other.name == k.name);
    let spoken = spoken(plan, target).into_iter().filter(|s| s.kernels.iter().any(|&n| Some(n) == number));
    let mut found: Vec<Choice> = Vec::new();
    for Spoken { mut choice, .. } in spoken {
        let (key, axis) = (choice.key.clone(), choice.axis.clone());
        choice.values.retain(|v| settings::why_not(&plan.graph, k, &key, &axis, v).is_none());
        found.extend(Some(choice).filter(|c| !c.values.is_empty()));
    }
    found
}

/// Does a kernel make the last result (or, of an op without results, anything that is kept)?
fn makes_last(plan: &Plan, k: usize) -> bool {
    let results: Vec<TensorId> =
        plan.graph.outputs.iter().filter(|o| o.inout.is_none()).map(|o| o.tensor).collect();
    let Some(last) = results.last() else { return true };
    plan.kernels[k].stmts.iter().any(|&s| plan.graph.stmts[s].targets().contains(last))
}

fn speaks(graph: &Graph, k: &PlanKernel, tile: &TileBlock) -> bool {
    let within = |a: Span, b: Span| a.file == b.file && b.start <= a.start && a.end <= b.end;
    if let Some(op) = tile.of
        && !k.stmts.iter().all(|&s| span_of(graph, &graph.stmts[s]).is_some_and(|s| within(s, op)))
    {
        return false;
    }
    let Some(def) = &tile.def else { return true };
    let named = |s: &Stmt| tile.of.is_none() && s.targets().iter().any(|&t| graph.tensor(t).name == *def);
    k.stmts.iter().map(|&s| &graph.stmts[s]).any(|s| {
        // A definition that is computed where it is read has left its folds and functions there.
        named(s) || computed(graph, s).iter().any(|&e| tile.at.iter().any(|&at| within(graph.span(e), at)))
    })
}

fn span_of(graph: &Graph, s: &Stmt) -> Option<Span> {
    match s {
        Stmt::Define(d) => Some(d.span),
        s => s.targets().first().map(|&t| graph.tensor(t).span),
    }
}

/// What a statement computes: its expressions that are no leaves.
fn computed(graph: &Graph, s: &Stmt) -> Vec<ExprId> {
    let mut seen = BTreeSet::new();
    let mut todo = super::index::roots(s);
    while let Some(id) = todo.pop() {
        if !graph.children(id).is_empty() && seen.insert(id) {
            todo.extend(graph.children(id));
        }
    }
    seen.into_iter().collect()
}

/// Whether a statement of the kernel, or a fold in it, has an axis of this name.
fn has_axis(graph: &Graph, k: &PlanKernel, name: &str) -> bool {
    let mut folded = k.stmts.iter().flat_map(|&s| folds(graph, &graph.stmts[s]));
    makes_along(graph, k, name) || folded.any(|a| graph.axis(a).name == name)
}

/// Whether a statement of the kernel has an axis of this name on its left.
pub fn makes_along(graph: &Graph, k: &PlanKernel, name: &str) -> bool {
    let named = |a: &AxisId| graph.axis(*a).name == name;
    k.stmts.iter().any(|&s| match &graph.stmts[s] {
        Stmt::Define(d) => d.axes.iter().any(named),
        Stmt::Scan(s) => s.axes.iter().any(named),
        Stmt::Sort(s) => s.axes.iter().any(named),
        Stmt::Update(u) => u.axes.iter().any(named),
        Stmt::Recur(r) => r.members.iter().any(|d| d.axes.iter().any(named)),
        Stmt::Table { .. } => false,
    })
}

/// Whether a kernel folds an axis of this name, or is a recurrence with it.
fn steps_along(graph: &Graph, k: &PlanKernel, name: &str) -> bool {
    let own = |s: &usize| match &graph.stmts[*s] {
        Stmt::Scan(s) => Some(s.axes[s.along]),
        Stmt::Sort(s) => Some(s.axes[s.along]),
        _ => None,
    };
    if k.stmts.iter().filter_map(own).any(|a| graph.axis(a).name == name) {
        return true;
    }
    let recurs = k.stmts.iter().any(|&s| matches!(&graph.stmts[s], Stmt::Recur(_)));
    let mut folds = k.stmts.iter().flat_map(|&s| folds(graph, &graph.stmts[s]));
    recurs && has_axis(graph, k, name) || folds.any(|a| graph.axis(a).name == name)
}

/// The longest fold of a kernel over an axis of this name, if all are known.
pub fn longest_fold(graph: &Graph, k: &PlanKernel, name: &str) -> Option<i64> {
    let axes = k.stmts.iter().flat_map(|&s| folds(graph, &graph.stmts[s]));
    let extents = axes.filter(|&a| graph.axis(a).name == name).map(|a| graph.extent(a));
    extents.collect::<Option<Vec<i64>>>()?.into_iter().max()
}

/// The axes that folds in a statement bind.
fn folds(graph: &Graph, stmt: &Stmt) -> Vec<AxisId> {
    let mut seen = BTreeSet::new();
    let mut todo = super::index::roots(stmt);
    let mut axes = Vec::new();
    while let Some(id) = todo.pop() {
        if seen.insert(id) {
            if let Expr::Fold(f) = graph.expr(id) {
                axes.extend(&f.axes);
            }
            todo.extend(graph.children(id));
        }
    }
    axes
}

/// What the `tile` blocks say, as it is tried: one value of each setting at a time.
pub struct Trial {
    asked: Schedule,
    /// By kernel: its written settings that the schedule leaves open, and which value is tried.
    open: BTreeMap<String, Vec<(Choice, usize)>>,
    tries: usize,
}

impl Trial {
    /// The first value of each; refused where a setting is followed by none of the kernels that it speaks of.
    pub fn new(plan: &Plan, target: &Target, asked: &Schedule) -> Result<Trial, Refusal> {
        settings::check(plan, target, asked)?;
        let mut open = BTreeMap::new();
        for k in &plan.kernels {
            let left = written(plan, k, target).into_iter();
            let left = left.filter(|c| asked.get(&k.name, &c.key, &c.axis).is_none());
            open.insert(k.name.clone(), left.map(|c| (c, 0)).collect());
        }
        Ok(Trial { asked: asked.clone(), open, tries: 0 })
    }

    /// The schedule with the values at hand.
    pub fn schedule(&self) -> Schedule {
        let mut all = self.asked.clone();
        for (kernel, choices) in &self.open {
            for (c, at) in choices {
                all.set(kernel, &c.key, &c.axis, c.values[*at].clone());
            }
        }
        all
    }

    /// Takes the next values of the kernel that was refused, those of the setting to blame first; false after the last.
    pub fn next(&mut self, why: &Refusal) -> bool {
        self.tries += 1;
        let Some(choices) = why.kernel.as_ref().and_then(|k| self.open.get_mut(k)) else { return false };
        if self.tries > MOST {
            return false;
        }
        let blamed = |c: &Choice| why.setting.as_deref().is_some_and(|s| c.is_named(s));
        let mut order: Vec<usize> = (0..choices.len()).collect();
        order.sort_by_key(|&i| !blamed(&choices[i].0));
        for i in order {
            let (c, at) = &mut choices[i];
            if *at + 1 < c.values.len() {
                *at += 1;
                return true;
            }
            *at = 0;
        }
        false
    }
}

/// A refusal speaks of the place where its setting is written.
pub fn at_its_place(plan: &Plan, target: &Target, mut why: Refusal) -> Refusal {
    if let Some(setting) = &why.setting
        && let Some(s) = spoken(plan, target).iter().rev().find(|s| s.choice.is_named(setting))
    {
        why.span = s.span;
    }
    why
}

/// What a kernel leaves open, narrowed by the `tile` blocks.
pub fn choices(plan: &Plan, k: &PlanKernel, target: &Target) -> Vec<Choice> {
    let written = written(plan, k, target);
    let mut open = super::space(plan, k, target);
    for c in &mut open {
        if let Some(w) = written.iter().find(|w| w.key == c.key && w.axis == c.axis) {
            c.values = w.values.clone();
        }
    }
    // A written set of values is a choice too, whether the form would have tried it or not.
    let more = written.into_iter().filter(|w| w.values.len() > 1);
    let more: Vec<Choice> =
        more.filter(|w| !open.iter().any(|c| c.key == w.key && c.axis == w.axis)).collect();
    open.extend(more);
    open
}

/// Schedules of one kernel that are tried at most.
const MOST: usize = 512;

/// Every schedule that the forms accept for this plan on this target, within the op's `tile` blocks: first the one
/// that the forms choose by themselves, then each combination of one kernel's settings, kernel by kernel.
pub fn schedules(plan: &Plan, target: &Target) -> Vec<Schedule> {
    let mut all = vec![Schedule::default()];
    for k in &plan.kernels {
        let mut own = vec![Schedule::default()];
        for c in choices(plan, k, target) {
            let wider = own.iter().flat_map(|s| {
                c.values.iter().map(|v| {
                    let mut s = s.clone();
                    s.set(&k.name, &c.key, &c.axis, v.clone());
                    s
                })
            });
            let wider: Vec<Schedule> = wider.take(MOST).collect();
            if !wider.is_empty() {
                own = wider;
            }
        }
        all.extend(own.into_iter().filter(|s| !s.kernels.is_empty()));
    }
    all.retain(|s| super::plan_to_program(plan, target, s).is_ok());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_back() {
        let mut s = Schedule::default();
        s.set("y", "block", "m", Word::Int(128));
        s.set("y", "order", "", Word::Apply("swizzle".into(), Box::new(Word::Int(8))));
        s.set("b.h", "persistent", "", Word::Name("on".into()));
        assert_eq!(Schedule::parse(&s.to_string()), Ok(s));
        assert!(Schedule::parse("y block m").is_err());
        assert!(Schedule::parse("y.block m n = 3").is_err());
        assert!(Schedule::parse("y.block m = 3\ny.block m = 4").is_err_and(|e| e.contains("said twice")));
    }

    #[test]
    fn words_that_nest_without_end_are_refused() {
        let deep = format!("y.order = {}8{}", "a(".repeat(200_000), ")".repeat(200_000));
        assert!(Schedule::parse(&deep).is_err());
    }

    proptest::proptest! {
        #[test]
        fn near_misses_never_panic(edits in proptest::collection::vec((0usize..60, proptest::prelude::any::<char>()), 1..4)) {
            let mut text: Vec<char> = "y.block m = 128\nb.h.order = swizzle(8)\nz.persistent = on\n".chars().collect();
            for (at, with) in edits {
                let at = at % text.len();
                text[at] = with;
            }
            let text: String = text.into_iter().collect();
            if let Ok(s) = Schedule::parse(&text) {
                assert_eq!(Schedule::parse(&s.to_string()), Ok(s));
            }
        }
    }
}
