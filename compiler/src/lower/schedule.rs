//! Schedules: the choices that the lowering leaves open, by kernel, key and axis.

use crate::ir::graph::{AxisId, Expr, Graph, Stmt, TileBlock, Word};
use crate::ir::plan::{Plan, PlanKernel};
use crate::vocab::target::Target;
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
    Some((kernel.to_string(), key.to_string(), axis.to_string(), parse_word(right.trim())?))
}

fn parse_word(text: &str) -> Option<Word> {
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
    Some(Word::Apply(head.trim().to_string(), Box::new(parse_word(inner.trim())?)))
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
}

/// The settings of the op's `tile` blocks that speak of a kernel on a target, later ones before earlier ones.
fn written(plan: &Plan, k: &PlanKernel, target: &Target) -> Vec<Choice> {
    let mut found: Vec<Choice> = Vec::new();
    for tile in plan.graph.tiles.iter().filter(|t| speaks(plan, k, target, t)) {
        for s in &tile.settings {
            let axis = s.axis.clone().unwrap_or_default();
            if !axis.is_empty() && !has_axis(&plan.graph, k, &axis) {
                continue;
            }
            found.retain(|c| c.key != s.key || c.axis != axis);
            found.push(Choice { key: s.key.clone(), axis, values: s.choices.clone() });
        }
    }
    found
}

fn speaks(plan: &Plan, k: &PlanKernel, target: &Target, tile: &TileBlock) -> bool {
    let on = |name: &String| target.name == name || target.name.strip_suffix('a') == Some(name);
    let of = |def: &String| {
        let targets = k.stmts.iter().flat_map(|&s| plan.graph.stmts[s].targets());
        targets.into_iter().any(|t| plan.graph.tensor(t).name == *def)
    };
    (tile.targets.is_empty() || tile.targets.iter().any(on)) && tile.def.as_ref().is_none_or(of)
}

/// Whether a statement of the kernel, or a fold in it, has an axis of this name.
fn has_axis(graph: &Graph, k: &PlanKernel, name: &str) -> bool {
    let named = |a: &AxisId| graph.axis(*a).name == name;
    k.stmts.iter().any(|&s| {
        let own = match &graph.stmts[s] {
            Stmt::Define(d) => d.axes.iter().any(named),
            Stmt::Scan(s) => s.axes.iter().any(named),
            Stmt::Sort(s) => s.axes.iter().any(named),
            Stmt::Update(u) => u.axes.iter().any(named),
            Stmt::Recur(r) => r.members.iter().any(|d| d.axes.iter().any(named)),
            Stmt::Table { .. } => false,
        };
        own || folds(graph, &graph.stmts[s]).iter().any(named)
    })
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

/// A schedule with what the `tile` blocks say added where it says nothing. Of several values the first counts.
pub fn effective(plan: &Plan, target: &Target, schedule: &Schedule) -> Schedule {
    let mut all = schedule.clone();
    for k in &plan.kernels {
        for c in written(plan, k, target) {
            if let (Some(v), None) = (c.values.first(), all.get(&k.name, &c.key, &c.axis)) {
                all.set(&k.name, &c.key, &c.axis, v.clone());
            }
        }
    }
    all
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
    }
}
