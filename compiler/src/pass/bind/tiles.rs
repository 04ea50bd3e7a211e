//! `tile` and `profile` blocks: known keys, axes and values.
//!
//! A setting is a row of [`KEYS`]; adding one is adding its row (and teaching the lowering).

use super::elab::Elab;
use super::scan;
use crate::ir::graph::{self, TileBlock, Word};
use crate::pass::ast_to_graph::listed_or;
use crate::pass::module::{Callable, Found, Module};
use crate::vocab::dtype::DType;
use crate::vocab::target::{TARGETS, Target};
use girih_dsl::ast::*;
use girih_dsl::diagnostic::Diagnostic;
use std::collections::BTreeSet;

/// What a setting's values are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    /// Integers in this range.
    Int(i64, i64),
    /// `swizzle(n)`, or a word.
    Order,
    Word(&'static [&'static str]),
    /// Names of definitions.
    Definitions,
}

/// Whether a setting speaks of axes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Axes {
    No,
    /// Of the definition's left-hand side.
    Left,
    /// Of its folds and recurrences.
    Along,
    /// Of either.
    Any,
}

/// Whether a `tile` block has this setting.
pub fn is_setting(key: &str) -> bool {
    KEYS.iter().chain([&ACCUMULATE]).any(|k| k.0 == key)
}

/// The names of all settings.
pub fn setting_names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().chain([&ACCUMULATE]).map(|k| k.0)
}

const KEYS: [(&str, Axes, Values); 16] = [
    ("block", Axes::Left, Values::Int(1, 1 << 20)),
    ("step", Axes::Along, Values::Int(1, 1 << 20)),
    ("split", Axes::Along, Values::Int(1, 1 << 16)),
    ("stages", Axes::No, Values::Int(1, 16)),
    ("warps", Axes::No, Values::Int(1, 32)),
    ("warpgroups", Axes::No, Values::Int(1, 8)),
    ("threads", Axes::No, Values::Int(1, 1024)),
    ("cluster", Axes::Left, Values::Int(1, 16)),
    ("order", Axes::No, Values::Order),
    ("persistent", Axes::No, Values::Word(&["on", "off"])),
    ("vector", Axes::No, Values::Int(1, 32)),
    ("hold", Axes::No, Values::Word(&["registers", "cluster", "stream"])),
    ("unroll", Axes::Any, Values::Int(1, 1024)),
    ("store", Axes::No, Values::Definitions),
    ("inline", Axes::No, Values::Definitions),
    ("atomic", Axes::No, Values::Word(&["any"])),
];

/// `accumulate = fast` stands apart so that the table above stays one line a row.
const ACCUMULATE: (&str, Axes, Values) = ("accumulate", Axes::No, Values::Word(&["fast"]));

/// A range in a setting may have this many values.
const MAX_CHOICES: i64 = 65536;

impl<'m> Elab<'m> {
    /// Notes the tile blocks that speak of an op, and of those that it calls.
    pub fn tiles(&mut self, op: &'m Op) {
        let mut diags = Vec::new();
        for item in &self.module.root().file.items {
            if let Item::Tile(t) = item {
                op_of(self.module, &t.op, &mut diags);
            }
        }
        said_once(self.module, &mut diags);
        diags.into_iter().for_each(|d| self.report(d));
        let mut out = self.tiles_of(op);
        for called in std::mem::take(&mut self.called) {
            let own = self.tiles_of(called).into_iter();
            out.extend(own.map(|t| TileBlock { of: Some(called.span), ..t }));
        }
        out.iter_mut().for_each(|t| t.settings.retain(|s| !self.is_of_a_point(s)));
        self.g.tiles = out;
    }

    /// Does a setting speak of an axis that has one point at most? It asks for nothing.
    fn is_of_a_point(&self, s: &graph::Setting) -> bool {
        let Some(name) = &s.axis else { return false };
        let mut named = self.g.axes.iter().enumerate().filter(|(_, a)| a.name == *name).peekable();
        let short =
            |i: usize| self.g.axis_range(graph::AxisId(i as u32)).is_some_and(|(lo, hi)| hi - lo <= 1);
        named.peek().is_some() && named.all(|(i, _)| short(i))
    }

    fn tiles_of(&mut self, op: &'m Op) -> Vec<TileBlock> {
        let module = self.module;
        let mut out = Vec::new();
        // The root file's own blocks come last: they count more than those of the files that it imports.
        for (n, unit) in module.units.iter().enumerate().rev() {
            for item in &unit.file.items {
                if let Item::Tile(t) = item
                    && t.op.text == op.name.text
                    && names(module, n, t, op)
                {
                    let mut diags = Vec::new();
                    out.push(block(op, t, &mut diags));
                    diags.into_iter().for_each(|d| self.report(d));
                }
            }
        }
        // So does what is said of one definition, or of some targets.
        out.sort_by_key(|t| (t.def.is_some(), !t.targets.is_empty()));
        out
    }
}

/// Is this the op that a block of a file names?
fn names(module: &Module, unit: usize, t: &Tile, op: &Op) -> bool {
    match module.callable(unit, None, &t.op.text) {
        Found::One(Callable::Op(_, found)) => std::ptr::eq(found, op),
        _ => true,
    }
}

/// Checks all `tile` and `profile` blocks of the root file.
pub fn check_blocks(module: &Module) -> Vec<Diagnostic> {
    let mut diags = Vec::new();
    for item in &module.root().file.items {
        match item {
            Item::Tile(t) => {
                if let Some(op) = op_of(module, &t.op, &mut diags) {
                    block(op, t, &mut diags);
                }
            }
            Item::Profile(p) => {
                if let Some(op) = op_of(module, &p.op, &mut diags) {
                    profile(op, p, &mut diags);
                }
            }
            _ => {}
        }
    }
    said_once(module, &mut diags);
    diags
}

/// A setting as it was said: op, definition, key, axis.
type Said<'m> = (&'m str, Option<&'m str>, &'m str, Option<&'m str>);

/// Reports what the blocks of the root file say twice of the same kernels on the same target. What is said without
/// targets may be said again for some.
fn said_once(module: &Module, diags: &mut Vec<Diagnostic>) {
    let mut said: Vec<(Said, &[Name], Span)> = Vec::new();
    let blocks = module.root().file.items.iter().filter_map(|i| match i {
        Item::Tile(t) => Some(t),
        _ => None,
    });
    for t in blocks {
        for s in &t.settings {
            for (axis, at) in places(s) {
                let what =
                    (t.op.text.as_str(), t.def.as_ref().map(|d| d.text.as_str()), s.key.text.as_str(), axis);
                let meets = |others: &[Name]| {
                    let common = |a: &Name| others.iter().any(|b| same_target(&a.text, &b.text));
                    t.targets.iter().any(common) || t.targets.is_empty() && others.is_empty()
                };
                if let Some((.., first)) = said.iter().find(|(w, targets, _)| *w == what && meets(targets)) {
                    let axis = axis.map_or(String::new(), |a| format!(" {a}"));
                    let d = Diagnostic::error("E0610", at, format!("`{}{axis}` is said twice", s.key.text));
                    let help =
                        "several values are one set: {64, 128}; for other targets write `tile … for sm_XX`";
                    diags.push(d.also(*first, "first here").help(help));
                    continue;
                }
                said.push((what, &t.targets, at));
            }
        }
    }
}

/// The axes that a setting speaks of, with their places.
fn places(s: &Setting) -> Vec<(Option<&str>, Span)> {
    match &s.value {
        SettingValue::One(_) => vec![(None, s.span)],
        SettingValue::Axes(all) => all.iter().map(|(a, _)| (Some(a.text.as_str()), a.span)).collect(),
    }
}

/// `sm_90` covers `sm_90a`.
fn same_target(a: &str, b: &str) -> bool {
    a == b || a.strip_suffix('a') == Some(b) || b.strip_suffix('a') == Some(a)
}

fn op_of<'m>(module: &'m Module, name: &Name, diags: &mut Vec<Diagnostic>) -> Option<&'m Op> {
    let found = module.op(&name.text);
    if found.is_none() {
        let known: Vec<&str> = module.ops().map(|o| o.name.text.as_str()).collect();
        let d = Diagnostic::error("E0601", name.span, format!("there is no op `{}`", name.text));
        let near = super::read::nearest(&name.text, known.iter().copied());
        diags.push(match near {
            Some(n) => d.help(format!("did you mean `{n}`?")),
            None => d.help(listed_or("the ops are", "the file defines no op", known.iter().copied())),
        });
    }
    found.map(|f| f.1)
}

/// A block's settings; what is wrong is reported and left out.
fn block(op: &Op, t: &Tile, diags: &mut Vec<Diagnostic>) -> TileBlock {
    for target in &t.targets {
        if Target::parse(&target.text).is_none() {
            let known: Vec<&str> = TARGETS.iter().map(|t| t.name).collect();
            let d = Diagnostic::error("E0602", target.span, format!("`{}` is no target", target.text));
            let meant = Target::called(&target.text).map_or(String::new(), |t| format!("write `{t}`; "));
            diags.push(d.help(format!("{meant}the targets are {}", known.join(", "))));
        }
    }
    let stmts: Vec<&Stmt> = match &t.def {
        Some(d) => op.body.iter().filter(|s| s.targets.iter().any(|t| t.name.text == d.text)).collect(),
        None => op.body.iter().collect(),
    };
    if let Some(d) = t.def.as_ref().filter(|_| stmts.is_empty()) {
        let known: BTreeSet<&str> =
            op.body.iter().flat_map(|s| &s.targets).map(|t| t.name.text.as_str()).collect();
        let e = Diagnostic::error("E0603", d.span, format!("`{}` defines no `{}`", op.name.text, d.text));
        diags.push(e.help(listed_or("it defines", "it has no statements", known.into_iter())));
    }
    let axes = AxisNames::of(op, t.def.as_ref(), &stmts);
    let mut settings = Vec::new();
    for s in &t.settings {
        setting(op, s, &axes, t.def.is_none() || !stmts.is_empty(), &mut settings, diags);
    }
    contradictions(&settings, diags);
    TileBlock {
        def: t.def.as_ref().map(|d| d.text.clone()),
        at: t.def.iter().flat_map(|_| stmts.iter().map(|s| s.span)).collect(),
        of: None,
        targets: t.targets.iter().map(|t| t.text.clone()).collect(),
        settings,
    }
}

/// What is to be stored and never to be.
fn contradictions(settings: &[graph::Setting], diags: &mut Vec<Diagnostic>) {
    let of = |key: &'static str| settings.iter().filter(move |s| s.key == key);
    for inline in of("inline") {
        for store in of("store") {
            for both in inline.choices.iter().filter(|c| store.choices.contains(c)) {
                let Word::Name(name) = both else { continue };
                let what = format!("`{name}` cannot be stored and computed where it is read at once");
                let d = Diagnostic::error("E0607", inline.span, what).also(store.span, "stored here");
                diags.push(d.help(format!("leave `{name}` out of one of the two")));
            }
        }
    }
}

/// The axes that a block may name.
struct AxisNames {
    left: BTreeSet<String>,
    along: BTreeSet<String>,
    any: BTreeSet<String>,
}

impl AxisNames {
    fn of(op: &Op, def: Option<&Name>, stmts: &[&Stmt]) -> AxisNames {
        // Without a definition, `block` speaks of the last result; an op without results, of what it updates.
        let last = op.results.last().map(|r| r.name.text.as_str());
        let mut left = BTreeSet::new();
        let mut any = BTreeSet::new();
        for s in stmts {
            for t in &s.targets {
                let names: BTreeSet<String> = t.slots.iter().flatten().flat_map(slot_names).collect();
                any.extend(names.iter().cloned());
                if def.is_some() || last.is_none_or(|l| l == t.name.text) {
                    left.extend(names);
                }
            }
        }
        // What a definition reads may be computed in its kernel, so a kernel's folds may be anyone's.
        let mut along = recurrence_axes(op);
        op.body.iter().for_each(|s| folds(&s.value, &mut along));
        any.extend(along.iter().cloned());
        AxisNames { left, along, any }
    }
}

/// The axes along which recurrences step: where a definition is read before it is made, at another index.
fn recurrence_axes(op: &Op) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for (i, s) in op.body.iter().enumerate().filter(|(_, s)| s.assign == Assign::Set) {
        for t in &s.targets {
            for reader in &op.body[..=i] {
                steps(&reader.value, t, &mut out);
            }
        }
    }
    out
}

fn steps(e: &Expr, t: &girih_dsl::ast::Target, out: &mut BTreeSet<String>) {
    if let ExprKind::Read { name, index: Some(index) } = &e.kind
        && name.text == t.name.text
    {
        let slots = t.slots.iter().flatten();
        let moved = slots.zip(index).filter(|(slot, i)| match (slot_names(slot).as_slice(), scan::bare(i)) {
            ([own], Some(n)) => *own != n.text,
            _ => true,
        });
        out.extend(moved.flat_map(|(slot, _)| slot_names(slot)));
    }
    scan::children(e).into_iter().for_each(|c| steps(c, t, out));
}

fn slot_names(slot: &Slot) -> Vec<String> {
    match slot {
        Slot::Axis(n, _) => vec![n.text.clone()],
        Slot::Expr(e) => {
            let mut names = Vec::new();
            scan::each_name(e, &mut |n| names.push(n.text.clone()));
            names
        }
    }
}

fn folds(e: &Expr, out: &mut BTreeSet<String>) {
    if let ExprKind::Fold { binders, .. } = &e.kind {
        out.extend(binders.iter().map(|b| b.name.text.clone()));
    }
    scan::children(e).into_iter().for_each(|c| folds(c, out));
}

fn setting(
    op: &Op,
    s: &Setting,
    axes: &AxisNames,
    known_def: bool,
    out: &mut Vec<graph::Setting>,
    diags: &mut Vec<Diagnostic>,
) {
    let rows = KEYS.iter().chain([&ACCUMULATE]);
    let Some(&(key, wants, values)) = rows.clone().find(|k| k.0 == s.key.text) else {
        let known: Vec<&str> = rows.map(|k| k.0).collect();
        let d = Diagnostic::error("E0604", s.key.span, format!("there is no setting `{}`", s.key.text));
        let foreign = girih_dsl::foreign::setting(&s.key.text);
        diags.push(match super::read::nearest(&s.key.text, known.iter().copied()) {
            _ if axes.any.contains(&s.key.text) => d.help(format!(
                "is `{0}` an axis of the setting before? then a comma is missing: block m = 128, {0} = 64",
                s.key.text
            )),
            _ if foreign.is_some() => d.help(foreign.unwrap_or_default()),
            Some(n) => d.help(format!("did you mean `{n}`?")),
            None => d.help(format!("the settings are {}", known.join(", "))),
        });
        return;
    };
    let mut put = |axis: Option<&Name>, choice: &Choice| {
        let mut choices = Vec::new();
        words(choice, key, values, op, &mut choices, diags);
        let axis = axis.map(|a| a.text.clone());
        out.push(graph::Setting { key: key.into(), axis, choices, span: s.span });
    };
    match (&s.value, wants) {
        (SettingValue::One(c), Axes::No) => put(None, c),
        (SettingValue::One(_), _) => {
            let of = if wants == Axes::Along { &axes.along } else { &axes.left };
            let axis = of.iter().next().map_or("m", String::as_str);
            let d = Diagnostic::error("E0605", s.span, format!("`{key}` is said of axes"));
            diags.push(d.help(format!("write {key} {axis} = …")));
        }
        (SettingValue::Axes(_), Axes::No) => {
            let d = Diagnostic::error("E0605", s.span, format!("`{key}` is not said of an axis"));
            diags.push(d.help(format!("write {key} = …")));
        }
        (SettingValue::Axes(all), _) => {
            let known = match wants {
                Axes::Left => &axes.left,
                Axes::Along => &axes.along,
                _ => &axes.any,
            };
            for (axis, c) in all {
                put(Some(axis), c);
            }
            for (axis, _) in all.iter().filter(|(a, _)| known_def && !known.contains(&a.text)) {
                let what = match wants == Axes::Along && axes.any.contains(&axis.text) {
                    true => {
                        format!("nothing is folded along `{}`: `{key}` cuts folds and recurrences", axis.text)
                    }
                    false => format!("`{key}` knows no axis `{}` here", axis.text),
                };
                let d = Diagnostic::error("E0606", axis.span, what);
                let names: Vec<&str> = known.iter().map(String::as_str).collect();
                if let Some(meant) = names.iter().find(|n| n.eq_ignore_ascii_case(&axis.text)) {
                    diags.push(
                        d.help(format!("a block speaks of axes, not of sizes: write {key} {meant} = …")),
                    );
                    continue;
                }
                if wants == Axes::Left && axes.along.contains(&axis.text) {
                    let others = names.join(", ");
                    diags.push(
                        d.help(format!("cut what is folded by step {} = …; {key} has {others}", axis.text)),
                    );
                    continue;
                }
                let left = axes.left.contains(&axis.text);
                diags.push(d.help(match names.is_empty() {
                    true if left => format!("cut `{0}` with block {0} = …", axis.text),
                    true => "take it out: there is no such axis".to_string(),
                    false if left => {
                        format!("cut `{0}` with block {0} = …; {key} has {1}", axis.text, names.join(", "))
                    }
                    false => format!("the axes are {}", names.join(", ")),
                }));
            }
        }
    }
}

/// Every value that a choice allows.
fn words(c: &Choice, key: &str, values: Values, op: &Op, out: &mut Vec<Word>, diags: &mut Vec<Diagnostic>) {
    let bad = |span: Span, what: String, help: String| Diagnostic::error("E0607", span, what).help(help);
    match (c, values) {
        (Choice::Set(all, _), _) => all.iter().for_each(|c| words(c, key, values, op, out, diags)),
        (Choice::Int(v, span), Values::Int(lo, hi)) => match (lo..=hi).contains(v) {
            true => out.push(Word::Int(*v)),
            false => diags.push(bad(*span, format!("`{key}` cannot be {v}"), format!("it is {lo} to {hi}"))),
        },
        (Choice::Range(a, b, span), Values::Int(lo, hi)) => {
            if a > b {
                let what = format!("the range {a}..={b} is empty: its end lies below its start");
                diags.push(bad(*span, what, format!("write {b}..={a}")));
                return;
            }
            if *a < lo || *b > hi || b - a >= MAX_CHOICES {
                diags.push(bad(*span, format!("`{key}` cannot be {a}..={b}"), format!("it is {lo} to {hi}")));
                return;
            }
            out.extend((*a..=*b).map(Word::Int));
        }
        (Choice::Word(n), Values::Word(known)) => match known.contains(&n.text.as_str()) {
            true => out.push(Word::Name(n.text.clone())),
            false => {
                let help = format!("it is {}", known.join(" or "));
                diags.push(bad(n.span, format!("`{key}` cannot be `{}`", n.text), help));
            }
        },
        (Choice::Word(n), Values::Definitions) => {
            let known = op.body.iter().flat_map(|s| &s.targets).any(|t| t.name.text == n.text);
            match known {
                true => out.push(Word::Name(n.text.clone())),
                false => {
                    let what = format!("`{}` defines no `{}`", op.name.text, n.text);
                    diags.push(Diagnostic::error("E0603", n.span, what).help("name a local or a result"));
                }
            }
        }
        (Choice::Word(n), Values::Order) if n.text == "rows" => out.push(Word::Name(n.text.clone())),
        (Choice::Apply(f, inner), Values::Order) if f.text == "swizzle" => {
            let mut ns = Vec::new();
            words(inner, key, Values::Int(1, 1024), op, &mut ns, diags);
            out.extend(ns.into_iter().map(|n| Word::Apply("swizzle".into(), Box::new(n))));
        }
        (c, _) => {
            let help = match values {
                Values::Int(lo, hi) => format!("it is a number, {lo} to {hi}"),
                Values::Order => "it is rows, or swizzle(8)".to_string(),
                Values::Word(known) => format!("it is {}", known.join(" or ")),
                Values::Definitions => "it names definitions: {h, g}".to_string(),
            };
            diags.push(bad(choice_span(c), format!("this is no value for `{key}`"), help));
        }
    }
}

fn choice_span(c: &Choice) -> Span {
    match c {
        Choice::Set(_, s) | Choice::Range(_, _, s) | Choice::Int(_, s) => *s,
        Choice::Word(n) => n.span,
        Choice::Apply(n, _) => n.span,
    }
}

fn profile(op: &Op, p: &Profile, diags: &mut Vec<Diagnostic>) {
    for b in &p.buckets {
        let size = op.sizes.iter().find(|s| s.name.text == b.name.text);
        let is_type = size.is_some_and(|s| matches!(s.kind, SizeKind::DType(_) | SizeKind::DTypeSet(..)));
        let is_const = op.params.iter().any(|q| q.dims.is_none() && q.name.text == b.name.text);
        if size.is_none() && !is_const {
            let known = op.sizes.iter().map(|s| s.name.text.as_str());
            let d = Diagnostic::error(
                "E0608",
                b.name.span,
                format!("`{}` has no size `{}`", op.name.text, b.name.text),
            );
            diags.push(d.help(listed_or("its sizes are", "it has no sizes", known)));
            continue;
        }
        for c in [Some(&b.values), b.at.as_ref()].into_iter().flatten() {
            bucket_values(c, is_type, is_const, diags);
            bucket_fits(op, &b.name.text, c, diags);
        }
        if let Some(at) = &b.at {
            within(&b.values, at, diags);
        }
    }
}

/// Points to tune at lie within the values that are named.
fn within(values: &Choice, at: &Choice, diags: &mut Vec<Diagnostic>) {
    let Choice::Range(lo, hi, all) = values else { return };
    for (v, span) in numbers(at) {
        if !(*lo..=*hi).contains(&v) {
            let d = Diagnostic::error("E0607", span, format!("{v} is not in {lo}..={hi}"))
                .also(*all, "the values that occur");
            diags.push(d.help(format!("take it out, or widen the range: {}..={}", v.min(*lo), v.max(*hi))));
        }
    }
}

/// The numbers that a choice names one by one.
fn numbers(c: &Choice) -> Vec<(i64, Span)> {
    match c {
        Choice::Set(all, _) => all.iter().flat_map(numbers).collect(),
        Choice::Int(v, span) => vec![(*v, *span)],
        _ => Vec::new(),
    }
}

/// Numbers that a `where` of the op, or a parameter's range, speaks against.
fn bucket_fits(op: &Op, name: &str, c: &Choice, diags: &mut Vec<Diagnostic>) {
    for (v, span) in numbers(c) {
        let alone = |w: &&Expr| {
            let names = super::sizes::names_in(w);
            !names.is_empty() && names.iter().all(|n| *n == name)
        };
        let wheres = op.wheres.iter().filter(alone);
        let mut refused = wheres.filter(|w| value_at(w, v) == Some(0));
        if let Some(w) = refused.next() {
            let what = format!("`{name}` cannot be {v}: the op says `where {}`", girih_dsl::print_expr(w));
            let d = Diagnostic::error("E0607", span, what).also(w.span, "here");
            diags.push(d.help("name a value that meets the op's conditions"));
        }
        let param = op.params.iter().find(|p| p.name.text == name);
        let plain =
            |r: &&Range| super::sizes::names_in(&r.lo).is_empty() && super::sizes::names_in(&r.hi).is_empty();
        if let Some(range) = param.and_then(|p| p.range.as_ref()).filter(plain)
            && let (Some(lo), Some(hi)) = (value_at(&range.lo, v), value_at(&range.hi, v))
            && !(lo..hi + i64::from(range.closed)).contains(&v)
        {
            let what = format!(
                "`{name}` cannot be {v}: it is declared in {lo}..{}{hi}",
                if range.closed { "=" } else { "" }
            );
            let d = Diagnostic::error("E0607", span, what).also(range.span, "here");
            diags.push(d.help("name a value of its declaration"));
        }
    }
}

/// An expression of one size, for this value of it; comparisons are 0 or 1.
fn value_at(e: &Expr, v: i64) -> Option<i64> {
    let flag = |b: bool| Some(i64::from(b));
    let compare = |op: BinOp, a: i64, b: i64| {
        flag(match op {
            BinOp::Eq => a == b,
            BinOp::Ne => a != b,
            BinOp::Lt => a < b,
            BinOp::Le => a <= b,
            BinOp::Gt => a > b,
            BinOp::Ge => a >= b,
            _ => return None,
        })
    };
    match &e.kind {
        ExprKind::Int(_) => super::build::literal_int_text(e),
        ExprKind::Paren(a) => value_at(a, v),
        ExprKind::Unary(UnOp::Neg, a) => value_at(a, v)?.checked_neg(),
        ExprKind::Read { index: None, .. } => Some(v),
        ExprKind::Chain(parts, ops) => {
            let all: Option<Vec<i64>> = parts.iter().map(|p| value_at(p, v)).collect();
            let all = all?;
            let mut holds = Some(1);
            for (op, pair) in ops.iter().zip(all.windows(2)) {
                holds = Some(holds?.min(compare(*op, pair[0], pair[1])?));
            }
            holds
        }
        ExprKind::Binary(op, a, b) => {
            let (a, b) = (value_at(a, v)?, value_at(b, v)?);
            match op {
                BinOp::Add => a.checked_add(b),
                BinOp::Sub => a.checked_sub(b),
                BinOp::Mul => a.checked_mul(b),
                BinOp::Div if b > 0 => Some(a.div_euclid(b)),
                BinOp::Rem if b > 0 => Some(a.rem_euclid(b)),
                BinOp::And => Some(a.min(b)),
                BinOp::Or => Some(a.max(b)),
                op => compare(*op, a, b),
            }
        }
        _ => None,
    }
}

fn bucket_values(c: &Choice, is_type: bool, is_const: bool, diags: &mut Vec<Diagnostic>) {
    let help = if is_type { "name a dtype" } else { "write a number, a range a..=b, or a set of them" };
    let ok = match c {
        Choice::Set(all, _) => return all.iter().for_each(|c| bucket_values(c, is_type, is_const, diags)),
        Choice::Int(v, _) => !is_type && (is_const || *v >= 0),
        Choice::Range(a, b, _) => !is_type && a <= b && (is_const || *a >= 0),
        Choice::Word(n) if is_type => DType::parse(&n.text).is_some(),
        Choice::Word(n) => is_const && matches!(n.text.as_str(), "true" | "false"),
        Choice::Apply(..) => false,
    };
    if !ok {
        diags.push(
            Diagnostic::error("E0607", choice_span(c), "this is no value for a size or dtype").help(help),
        );
    }
}
