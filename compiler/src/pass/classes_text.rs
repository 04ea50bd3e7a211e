//! The e-graph of a program as text for people: each statement as it is written, what else its values may be made of and
//! by which rules, which values are held by other statements, then the classes.

use super::classes::{Classes, Place, rules_of};
use super::extract::Label;
use super::facts::Facts;
use crate::ir::graph::*;
use crate::ir::graph_text::formula;
use crate::rules::term::{How, Op, Term};
use crate::rules::{self, Class};
use egg::Id;
use std::fmt::Write;

/// Statements beyond which nothing is explained: each explanation is an e-graph of its own.
const EXPLAINED: usize = 64;

/// The e-graph of a graph's statements after saturation.
pub fn describe(g: &Graph) -> String {
    let mut g = g.clone();
    let mut classes = Classes::of(&g);
    let mut out = String::new();
    let [before, after] = classes.grown;
    let count = classes.graph().number_of_classes();
    let _ = writeln!(out, "{before} terms became {after} in {count} classes by the rules");
    let mut facts = Facts::default();
    for i in 0..g.stmts.len() {
        statement(&mut g, &mut classes, &mut facts, i, &mut out);
    }
    let _ = writeln!(out, "\nclasses, a value each: every term of a class may stand for it");
    Table { g: &g, classes: &classes }.write(&mut out);
    out
}

fn statement(g: &mut Graph, classes: &mut Classes, facts: &mut Facts, i: usize, out: &mut String) {
    let Stmt::Define(d) = g.stmts[i].clone() else {
        let names: Vec<&str> = g.stmts[i].targets().iter().map(|&t| g.tensor(t).name.as_str()).collect();
        let _ = writeln!(out, "\n{} is no definition", names.join(", "));
        return;
    };
    let names: Vec<&str> = d.axes.iter().map(|&a| g.axis(a).name.as_str()).collect();
    let _ = writeln!(out, "\n{}[{}] = {}", g.tensor(d.target).name, names.join(", "), formula(g, d.value));
    let places = classes.places(g, i, &d);
    if let Some(l) = places.iter().find(|p| p.expr == d.value).and_then(|p| p.label) {
        let _ = writeln!(out, "    {}", label_text(&l));
    }
    // The whole value first.
    places.iter().rev().for_each(|p| others(g, classes, facts, p, out));
}

/// What else may stand at a place.
fn others(g: &mut Graph, classes: &mut Classes, facts: &mut Facts, p: &Place, out: &mut String) {
    for (_, label, to) in classes.spellings(g, facts, p) {
        let rules = if g.stmts.len() > EXPLAINED { Vec::new() } else { rules_of(g, &(p.stmt, p.expr, to)) };
        let by: Vec<String> = rules.iter().map(|r| format!("{r} ({})", class_of(r))).collect();
        let _ = writeln!(out, "  {} may be", formula(g, p.expr));
        let _ = writeln!(out, "    {}", formula(g, to));
        let _ = writeln!(out, "    {}", label_text(&label));
        if !by.is_empty() {
            let _ = writeln!(out, "    by {}", by.join(", "));
        }
    }
}

fn class_of(rule: &str) -> &'static str {
    rules::classes().into_iter().find(|c| c.0 == rule).map_or(Class::Exact, |c| c.1).name()
}

fn label_text(l: &Label) -> String {
    let passes = match l.passes {
        0 => "no reduction".to_string(),
        1 => "one reduction".to_string(),
        n => format!("{n} reductions one after the other"),
    };
    format!("{:.3e} operations, {passes}, {:.3e} bytes looked at", l.work, l.bytes)
}

struct Table<'a> {
    g: &'a Graph,
    classes: &'a Classes,
}

impl Table<'_> {
    fn write(&self, out: &mut String) {
        let graph = self.classes.graph();
        let mut ids: Vec<Id> = graph.classes().map(|c| c.id).collect();
        ids.sort();
        for id in ids.into_iter().filter(|&id| self.leaf(id).is_none()) {
            let data = &graph[id].data;
            let axes: Vec<String> = data.free.iter().map(|&a| self.axis(a)).collect();
            let ty = data.ty.map_or("", |t| t.name());
            let mut nodes: Vec<String> = graph[id].nodes.iter().map(|n| self.node(n)).collect();
            nodes.sort();
            let _ = writeln!(out, "e{id} {ty}[{}] = {}", axes.join(", "), nodes.join(" | "));
        }
    }

    /// The name of an axis, with its number where others have the name too.
    fn axis(&self, a: u32) -> String {
        let names = &self.classes.graph().analysis.axis_names;
        let name = &names[a as usize];
        if names.iter().filter(|n| *n == name).count() > 1 { format!("{name}@{a}") } else { name.clone() }
    }

    /// What needs no line of its own.
    fn leaf(&self, id: Id) -> Option<String> {
        let leaf = |n: &Term| match n.op {
            Op::Axis(a) => Some(self.axis(a)),
            Op::Lit(..) | Op::Param(_) => Some(n.to_string()),
            Op::Scalar(s) => Some(self.g.scalars[s as usize].name.clone()),
            _ => None,
        };
        self.classes.graph()[id].nodes.iter().find_map(leaf)
    }

    fn node(&self, t: &Term) -> String {
        let graph = self.classes.graph();
        let child = |&c: &Id| self.leaf(c).unwrap_or_else(|| format!("e{}", graph.find(c)));
        let all: Vec<String> = t.children.iter().map(child).collect();
        match t.op {
            Op::Read(n, How::Else) => {
                let (last, index) = all.split_last().expect("a read with a default has it");
                format!("{}[{}] else {last}", self.g.tensor(TensorId(n)).name, index.join(", "))
            }
            Op::Read(n, _) => format!("{}[{}]", self.g.tensor(TensorId(n)).name, all.join(", ")),
            Op::Call(f) if all.len() == 2 && !f.name().starts_with(char::is_alphabetic) => {
                format!("{} {} {}", all[0], f.name(), all[1])
            }
            Op::Call(f) => format!("{}({})", f.name(), all.join(", ")),
            Op::Cast(ty) => format!("{}({})", ty.name(), all.join(", ")),
            Op::Round(d, _) => format!("{}({})", d.name(), all.join(", ")),
            Op::Select => format!("if {} then {} else {}", all[0], all[1], all[2]),
            Op::Fold { combine, axes, cond } => {
                let name = match combine {
                    Combine::Builtin(m) => m.name().to_string(),
                    Combine::Fn(f) => self.g.fold_fn(f).name.clone(),
                };
                let (axes, rest) = all.split_at(axes as usize);
                let cond = if cond { format!(" where {}", rest[0]) } else { String::new() };
                format!("{name}[{}{cond}]({})", axes.join(", "), rest[rest.len() - 1])
            }
            _ => format!("{t}({})", all.join(", ")),
        }
    }
}
