//! What can be said of a module before sizes are known.
//!
//! Every op of the root file is bound to a few small sizes that meet its conditions, with each kind of dtype it allows.
//! Names, types, ranges and statements come out the same for all sizes; an error that only some sizes have (an index
//! that leaves a tensor for N < 3) is left to the run that has them. Where no sample fits, bounds are not looked at.

use super::ast_to_graph::{Bindings, bind_here, with_stack};
use super::bind::elab::{Elab, Frame};
use super::bind::typ::{Typ, Val};
use super::bind::{scan, sizes, tiles};
use super::module::Module;
use crate::ir::graph::Expr as Node;
use crate::vocab::dtype::{DType, Ty};
use girih_dsl::ast::*;
use girih_dsl::diagnostic::{Diagnostic, Severity};
use girih_dsl::source::Sources;
use std::collections::BTreeMap;

/// Samples that an op is bound to, at least; one for each choice of dtypes.
const SAMPLES: usize = 2;
/// Assignments that are tried to find them.
const TRIES: usize = 48;

/// Everything that is wrong with the root file of a module, in the order of the text.
pub fn check(module: &Module, _sources: &Sources) -> Vec<Diagnostic> {
    let mut all = module.warnings.clone();
    all.extend(tiles::check_blocks(module));
    let items = &module.root().file.items;
    // Items are independent; each thread takes every n-th one.
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(8).min(items.len().max(1));
    let found: Vec<Vec<Diagnostic>> = std::thread::scope(|s| {
        let share =
            |n: usize| items.iter().skip(n).step_by(threads).flat_map(|i| check_item(module, i)).collect();
        let running: Vec<_> = (1..threads).map(|n| s.spawn(move || with_stack(|| share(n)))).collect();
        let mut found = vec![with_stack(|| share(0))];
        for t in running {
            match t.join() {
                Ok(d) => found.push(d),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        found
    });
    all.extend(found.into_iter().flatten());
    all.sort_by(|a, b| (a.span, a.code, &a.message).cmp(&(b.span, b.code, &b.message)));
    all.dedup_by(|a, b| (a.span, a.code, &a.message) == (b.span, b.code, &b.message));
    one_of_a_chain(&mut all);
    all
}

/// What expands to too much makes everything that calls it too much; constants in a circle are all defined by
/// themselves: the first report says it.
fn one_of_a_chain(all: &mut Vec<Diagnostic>) {
    for code in ["E0130", "E0113"] {
        let mut seen = false;
        all.retain(|d| d.code != code || !std::mem::replace(&mut seen, true));
    }
}

fn check_item(module: &Module, item: &Item) -> Vec<Diagnostic> {
    match item {
        Item::Op(op) => check_op(module, op),
        Item::Fn(f) => check_fn(module, f),
        Item::Const(c) => check_const(module, c),
        Item::Import(_) | Item::Tile(_) | Item::Profile(_) => Vec::new(),
    }
}

/// Does a report come from an op call, or what it calls?
fn is_of_a_call(op: &Op, d: &Diagnostic) -> bool {
    !op.span.covers(d.span) || op.body.iter().any(|s| s.span.covers(d.span))
}

/// Says nothing of the op's text, only of the sizes at hand. A call's dtypes and what it leaves out are text.
fn is_about_sizes(op: &Op, d: &Diagnostic) -> bool {
    let of_text = matches!(d.code, "E0501" | "E0506" | "E0507" | "E0508" | "E0509" | "E0513");
    d.code.starts_with("E05") && d.code != "E0511" && !(of_text && is_of_a_call(op, d))
}

/// Could be otherwise with other sizes.
fn depends_on_sizes(op: &Op, d: &Diagnostic) -> bool {
    is_about_sizes(op, d) || matches!(d.code, "E0203" | "E0208" | "E0402")
}

/// What calls found wrong with the sizes of samples that the op itself allows.
#[derive(Default)]
struct CallRefusals {
    /// Samples that the op's own header allows and a call does not.
    samples: usize,
    /// Each with the samples that have it.
    found: Vec<(Diagnostic, usize)>,
}

impl CallRefusals {
    fn add(&mut self, op: &Op, diags: &[Diagnostic]) {
        if diags.iter().any(|d| d.severity == Severity::Error && !is_of_a_call(op, d)) {
            return;
        }
        self.samples += 1;
        for d in diags.iter().filter(|d| d.severity == Severity::Error) {
            let same = |f: &&mut (Diagnostic, usize)| {
                (f.0.code, f.0.span) == (d.code, d.span) && f.0.message == d.message
            };
            match self.found.iter_mut().find(same) {
                Some((_, n)) => *n += 1,
                None => self.found.push((d.clone(), 1)),
            }
        }
    }

    /// What says the same for every sample does not depend on them; dims that disagree for some are worth a warning.
    fn said(self, samples: usize) -> Vec<Diagnostic> {
        let mut said: Vec<Diagnostic> = Vec::new();
        for (d, n) in self.found {
            let known = said.iter().any(|s| s.span == d.span);
            if samples == 0 && n == self.samples && n > 1 {
                said.push(d);
            } else if d.code == "E0502" && !known {
                said.push(for_some_sizes(d));
            }
        }
        said
    }
}

/// What the samples of an op found so far.
#[derive(Default)]
struct Findings {
    samples: usize,
    /// Each with the samples that have it, a bit for each.
    found: Vec<(Diagnostic, u64)>,
}

impl Findings {
    fn add(&mut self, diags: Vec<Diagnostic>) {
        let bit = 1 << self.samples;
        self.samples += 1;
        for d in diags {
            match self.found.iter_mut().find(|(f, _)| f.code == d.code && f.span == d.span) {
                Some((_, samples)) => *samples |= bit,
                None => self.found.push((d, bit)),
            }
        }
    }

    /// An error that no other sizes would mend.
    fn is_certain(&self, op: &Op) -> bool {
        self.found.iter().any(|(d, _)| d.severity == Severity::Error && !depends_on_sizes(op, d))
    }

    /// What depends on sizes is an error if all samples have it, one sample alone saying nothing of other sizes. An index
    /// that leaves its tensor for some sizes only is worth a warning: the run with these sizes will be refused.
    fn said(self, op: &Op) -> Vec<Diagnostic> {
        let all = (1u64 << self.samples) - 1;
        let mut said: Vec<Diagnostic> = Vec::new();
        for (d, samples) in self.found.iter().filter(|(d, _)| !is_about_sizes(op, d)) {
            if !depends_on_sizes(op, d) {
                said.push(d.clone());
                continue;
            }
            let same = |e: &Diagnostic| e.code == d.code && same_place(op, e, d);
            let here = self.found.iter().filter(|(e, _)| same(e)).fold(0, |all, (_, s)| all | s);
            if here == all && self.samples > 1 {
                // As the first sample has it.
                said.extend((samples & 1 != 0).then(|| d.clone()));
            } else if d.code == "E0203" && !said.iter().any(|w| w.code == "W0003" && same_place(op, w, d)) {
                said.push(for_some_sizes(d.clone()));
            }
        }
        said
    }
}

fn for_some_sizes(d: Diagnostic) -> Diagnostic {
    Diagnostic {
        code: "W0003",
        severity: Severity::Warning,
        message: format!("with some sizes, {}", d.message),
        ..d
    }
}

/// Binds the op to a few sizes, each time with the next choice of dtypes.
fn check_op(module: &Module, op: &Op) -> Vec<Diagnostic> {
    let choices = dtype_choices(op);
    let wanted = SAMPLES.max(choices.len());
    let mut findings = Findings::default();
    let mut calls = CallRefusals::default();
    let mut first_refusal = None;
    for n in 0..TRIES {
        let b = sample(op, &choices[findings.samples % choices.len()], n);
        let r = bind_here(module, &op.name.text, &b, |e| {
            e.trial = 1 << 10;
            let sizes: Vec<String> = b.dims.iter().map(|(n, v)| format!("{n} = {v}")).collect();
            e.sample = Some(sizes.join(", ")).filter(|s| !s.is_empty());
        });
        match r {
            Ok(b) => findings.add(b.warnings),
            Err(d) if d.iter().all(|d| is_about_sizes(op, d) || d.severity == Severity::Warning) => {
                calls.add(op, &d);
                first_refusal.get_or_insert(d);
                continue;
            }
            Err(d) => findings.add(d),
        }
        if findings.samples == wanted || findings.is_certain(op) {
            break;
        }
    }
    let of_calls = calls.said(findings.samples);
    if findings.samples > 0 {
        let mut said = findings.said(op);
        let unsaid = |d: &Diagnostic| !said.iter().any(|s| s.span == d.span && s.severity == Severity::Error);
        let more: Vec<Diagnostic> = of_calls.into_iter().filter(unsaid).collect();
        said.extend(more);
        if said.iter().all(|d| d.severity != Severity::Error) {
            let further = further_samples(module, op, &choices[0], &said);
            said.extend(further);
            said.extend(unused(op));
        }
        return said;
    }
    // A condition without sizes is false for all of them.
    let hopeless = |d: &Diagnostic| {
        let mut wheres = op.wheres.iter().filter(|w| w.span == d.span);
        d.code == "E0505" && wheres.any(|w| sizes::names_in(w).is_empty())
    };
    if let Some(refused) = &first_refusal
        && refused.iter().any(hopeless)
    {
        return refused.iter().filter(|d| hopeless(d)).cloned().collect();
    }
    // No sample fits: what does not depend on sizes can still be said.
    let r = bind_here(module, &op.name.text, &sample(op, &choices[0], 0), |e| e.lenient = true);
    let diags = match r {
        Ok(b) => b.warnings,
        Err(d) => d,
    };
    // Here a condition is reported only if no sizes meet it.
    let of_text = |d: &Diagnostic| !depends_on_sizes(op, d) || d.code == "E0505" && !is_of_a_call(op, d);
    diags.into_iter().filter(of_text).chain(of_calls).collect()
}

/// The numbers that indices in an op's statements are made of: whether there are any, and the largest that divides.
#[derive(Default)]
struct Numbers {
    any: bool,
    divisor: Option<i64>,
}

impl Numbers {
    fn of(op: &Op) -> Numbers {
        let mut found = Numbers::default();
        op.body.iter().for_each(|s| found.look(&s.value, false));
        found
    }

    fn look(&mut self, e: &Expr, inside: bool) {
        match &e.kind {
            ExprKind::Int(text) => self.any |= inside && text != "0",
            ExprKind::Binary(BinOp::Div, _, by) if inside => {
                if let ExprKind::Int(text) = &by.kind {
                    self.divisor = self.divisor.max(text.parse().ok());
                }
            }
            _ => {}
        }
        let inside = inside || matches!(e.kind, ExprKind::Read { .. });
        scan::children(e).into_iter().for_each(|c| self.look(c, inside));
    }
}

/// Where indices are made of numbers, `x[2]` or `s[k/32]`: the reads that leave their tensor where every size is 1, or where some
/// sizes are large beside the numbers and others small.
fn further_samples(
    module: &Module,
    op: &Op,
    types: &BTreeMap<String, String>,
    known: &[Diagnostic],
) -> Vec<Diagnostic> {
    /// What is tried stays small.
    const LARGEST: i64 = 4096;
    let numbers = Numbers::of(op);
    let most = numbers.divisor.filter(|n| *n <= LARGEST);
    let small = numbers.any.then_some(None);
    let large = most.into_iter().flat_map(|_| [Some(0), Some(1)]);
    let most = most.unwrap_or(1);
    let mut said: Vec<Diagnostic> = Vec::new();
    for large in small.into_iter().chain(large) {
        let mut b = sample(op, types, 0);
        let sizes = op.sizes.iter().filter(|s| matches!(s.kind, SizeKind::Plain)).enumerate();
        for (i, s) in sizes {
            let n = match large {
                None => 1,
                Some(parity) if i % 2 == parity => 5 * most,
                Some(_) => 2,
            };
            b.dims.insert(s.name.text.clone(), n);
        }
        let r = bind_here(module, &op.name.text, &b, |e| {
            e.trial = 1 << 10;
            let sizes: Vec<String> = b.dims.iter().map(|(n, v)| format!("{n} = {v}")).collect();
            e.sample = Some(sizes.join(", "));
        });
        let Err(found) = r else { continue };
        if found.iter().any(|d| d.severity == Severity::Error && is_about_sizes(op, d)) {
            continue;
        }
        for d in found.into_iter().filter(|d| d.code == "E0203" && op.span.covers(d.span)) {
            if known.iter().chain(&said).all(|s| !same_place(op, s, &d)) {
                said.push(for_some_sizes(d));
            }
        }
    }
    said
}

/// Locals that nothing reads.
fn unused(op: &Op) -> Vec<Diagnostic> {
    let declared = |name: &str| {
        op.results.iter().any(|r| r.name.text == name) || op.params.iter().any(|p| p.name.text == name)
    };
    let read = |name: &str, own: usize| {
        let others = op
            .body
            .iter()
            .enumerate()
            .filter(|(i, s)| *i != own && !s.targets.iter().any(|t| t.name.text == name));
        others.flat_map(|(_, s)| scan::reads_of(s)).any(|n| n.text == name)
    };
    let of = |(i, s): (usize, &Stmt)| {
        let needless = s.targets.iter().all(|t| {
            let name = t.name.text.as_str();
            !name.starts_with('_') && !declared(name) && !read(name, i)
        });
        let first = s.targets.first().filter(|_| needless)?;
        // An update speaks of what was defined above.
        let name = &first.name;
        let known = op.body[..i].iter().any(|b| b.targets.iter().any(|t| t.name.text == name.text));
        let what = format!("nothing reads `{}`", name.text);
        let help =
            format!("take it out, read it below, or make it a result of the op: -> ({}: …)", name.text);
        (!known).then(|| Diagnostic::warning("W0007", name.span, what).help(help))
    };
    op.body.iter().enumerate().filter_map(of).collect()
}

/// Do two reports of different samples speak of one thing? An index that leaves its dim at one axis for these sizes
/// may do so at another for those: what counts is the statement.
fn same_place(op: &Op, a: &Diagnostic, b: &Diagnostic) -> bool {
    let by_statement = matches!(a.code, "E0203" | "W0003");
    a.span == b.span || by_statement && op.body.iter().any(|s| s.span.covers(a.span) && s.span.covers(b.span))
}

/// The dtypes that are tried for the op's dtype parameters, one after the other.
fn dtype_choices(op: &Op) -> Vec<BTreeMap<String, String>> {
    let lists: Vec<(&str, Vec<&str>)> = op
        .sizes
        .iter()
        .filter_map(|s| {
            let list = match &s.kind {
                SizeKind::Plain | SizeKind::Derived(_) => return None,
                SizeKind::DTypeSet(names, _) => names.iter().map(|n| n.text.as_str()).collect(),
                SizeKind::DType(n) => match n.text.as_str() {
                    // One for each compute type, stored narrower where one can be.
                    "float" => vec!["bf16", "f64"],
                    "int" => vec!["i8", "i64"],
                    "any" => vec!["f32", "i32"],
                    one => vec![one],
                },
            };
            Some((s.name.text.as_str(), list))
        })
        .collect();
    let count = lists.iter().map(|l| l.1.len()).max().unwrap_or(1);
    (0..count)
        .map(|i| {
            let pick = |l: &Vec<&str>| l.get(i % l.len().max(1)).map_or(String::new(), |s| s.to_string());
            lists.iter().map(|(n, l)| (n.to_string(), pick(l))).collect()
        })
        .collect()
}

/// The n-th assignment of small numbers to sizes and consts.
fn sample(op: &Op, types: &BTreeMap<String, String>, n: usize) -> Bindings {
    // Different sizes first, so that one is not taken for another, then in the opposite order, so that of two sizes each
    // is once the larger; then small numbers that divide each other.
    const FIRST: [i64; 8] = [5, 7, 3, 4, 6, 2, 11, 8];
    const SECOND: [i64; 8] = [8, 6, 10, 9, 7, 11, 2, 5];
    const SMALL: [i64; 8] = [1, 2, 3, 4, 6, 8, 12, 5];
    let mut state = (n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5DEE_CE66;
    let mut next = |i: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        match n {
            0 => FIRST[i % 8],
            1 => SECOND[i % 8],
            2 => 4,
            3 => 2,
            4 => 1,
            _ => SMALL[(state >> 33) as usize % 8],
        }
    };
    let mut b = Bindings { consts: types.clone(), ..Bindings::default() };
    let mut count = 0;
    for s in op.sizes.iter().filter(|s| matches!(s.kind, SizeKind::Plain)) {
        b.dims.insert(s.name.text.clone(), next(count));
        count += 1;
    }
    for p in op.params.iter().filter(|p| p.is_const && p.default.is_none()) {
        let dtype = DType::parse(&p.dtype.text).unwrap_or(DType::F32);
        let v = next(count);
        count += 1;
        let text = match dtype.compute() {
            Ty::Bool => (v % 2 == 1).to_string(),
            Ty::I32 | Ty::I64 => if n < 5 { (v + n as i64) % 4 } else { v % 5 }.to_string(),
            Ty::F32 | Ty::F64 => "0.5".to_string(),
        };
        b.consts.insert(p.name.text.clone(), text);
    }
    b
}

/// A fn by itself: right if some types of its arguments are.
fn check_fn(module: &Module, f: &Function) -> Vec<Diagnostic> {
    const TYPES: [Typ; 3] = [Typ::F32, Typ::I64, Typ::Bool];
    let params = f.params.len().min(4) as u32;
    let mut first: Option<Vec<Diagnostic>> = None;
    for choice in 0..3usize.pow(params) {
        let mut e = Elab::new(module);
        e.frames.push(Frame::default());
        let types: Vec<Typ> =
            (0..f.params.len()).map(|i| TYPES[choice / 3usize.pow(i.min(3) as u32) % 3]).collect();
        let args = types.iter().enumerate().map(|(i, &t)| {
            let id = e.g.add(Node::Param(i as u8), t.ty(), f.params[i].span);
            Val::new(t, id)
        });
        let args: Vec<Val> = args.collect();
        let Some((_, f)) = own_fn(module, f) else { return Vec::new() };
        e.inline_fn(0, f, args, f.name.span);
        if let Some(unit) = &f.unit {
            e.closed(0, &f.name, |s| s.expr(unit));
        }
        if !e.failed() {
            return Vec::new();
        }
        let too_much = e.diags.iter().any(|d| d.code == "E0130");
        first.get_or_insert(std::mem::take(&mut e.diags));
        // It is as much for other types.
        if too_much {
            break;
        }
    }
    first.unwrap_or_default()
}

/// The fn as the module holds it.
fn own_fn<'m>(module: &'m Module, f: &Function) -> Option<(usize, &'m Function)> {
    use super::module::{Callable, Found};
    match module.callable(0, None, &f.name.text) {
        Found::One(Callable::Fn(unit, f)) => Some((unit, f)),
        _ => None,
    }
}

fn check_const(module: &Module, c: &Constant) -> Vec<Diagnostic> {
    let mut e = Elab::new(module);
    e.frames.push(Frame::default());
    match &c.value {
        ConstValue::Expr(_) => {
            e.constant_value(&c.name);
        }
        ConstValue::Array { .. } => {
            e.view(&c.name);
        }
    }
    e.diags
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn samples_differ() {
        let (file, _) =
            girih_dsl::parse("op f[M, N](x: f32[M, N]) -> (y: f32[M]) { y[m] = sum[n](x[m, n]) }", 0);
        let Some(Item::Op(op)) = file.items.first() else { panic!("an op") };
        let all: HashSet<Vec<i64>> =
            (0..TRIES).map(|n| sample(op, &BTreeMap::new(), n).dims.values().copied().collect()).collect();
        assert!(all.len() > 10);
    }
}
