//! Levels as text, for `girih emit` and `girih why`.

use girih_compiler::ir::graph::TensorId;
use girih_compiler::ir::plan::{Form, Plan};
use girih_compiler::ir::plan_text;
use girih_compiler::ir::program::{Arg, BufferId, BufferRole, Program, Step};
use girih_compiler::ir::simt_text;
use girih_compiler::ir::tile::Tile;
use girih_compiler::pass::facts::Facts;
use girih_compiler::pass::graph_to_plan::Alternative;
use std::fmt::Write;

/// The kernels of a plan, with what each defines, what fusing saved, and the plan's graph.
pub fn plan(p: &Plan) -> String {
    plan_text::print(p)
}

/// The first plan in short, then as a whole, then what the others are and what the model says that each takes.
pub fn plans(all: &[Alternative]) -> String {
    let Some((best, others)) = all.split_first() else { return String::new() };
    let mut s: String = summary(best).lines().map(|l| format!("// {l}\n")).collect();
    for other in others {
        let _ = writeln!(s, "// another plan {}", in_short(other));
    }
    let notes = decisions(&best.plan);
    s + &plan(&Plan { notes, ..best.plan.clone() })
}

/// `103.3 us by the model, 136.0 MiB of values not stored: row h, contract a`
fn in_short(a: &Alternative) -> String {
    let kernels: Vec<String> =
        a.plan.kernels.iter().map(|k| format!("{} {}", k.form.name(), k.name)).collect();
    let saved = bytes(a.plan.bytes_saved);
    format!("{:.1} us by the model, {saved} of values not stored: {}", a.us, kernels.join(", "))
}

/// The kernels of a plan, each with its form, what it reads and what it writes.
fn summary(a: &Alternative) -> String {
    let p = &a.plan;
    let many = if p.kernels.len() == 1 { "1 kernel".into() } else { format!("{} kernels", p.kernels.len()) };
    let saved = bytes(p.bytes_saved);
    let mut s = format!(
        "{many}, {:.1} us by the model, which measures nothing; {saved} of values are never stored\n",
        a.us
    );
    for (i, k) in p.kernels.iter().enumerate() {
        let _ = writeln!(s, "{} {} ({}): {}", i + 1, k.name, k.form.name(), form_text(k.form));
        let (reads, writes) = traffic(p, i);
        let named = |all: &[TensorId]| {
            let one = |t: &TensorId| {
                format!(
                    "{} {}{:?}",
                    p.graph.tensor(*t).name,
                    p.graph.tensor(*t).dtype.name(),
                    p.graph.tensor(*t).dims
                )
            };
            let total = all.iter().map(|&t| size_of(p, t)).sum();
            match all.is_empty() {
                true => "nothing".to_string(),
                false => format!("{} ({})", all.iter().map(one).collect::<Vec<_>>().join(", "), bytes(total)),
            }
        };
        let _ = writeln!(s, "    reads {}; writes {}", named(&reads), named(&writes));
    }
    s
}

/// The tensors that a kernel reads and does not make, and those that it makes, each once.
fn traffic(p: &Plan, kernel: usize) -> (Vec<TensorId>, Vec<TensorId>) {
    let mut facts = Facts::default();
    let stmts = || p.kernels[kernel].stmts.iter().map(|&i| &p.graph.stmts[i]);
    let writes: Vec<TensorId> = stmts().flat_map(|s| s.targets()).collect();
    let mut reads: Vec<TensorId> = stmts().flat_map(|s| facts.stmt_reads(&p.graph, s)).collect();
    reads.sort_unstable();
    reads.dedup();
    reads.retain(|t| !writes.contains(t));
    (reads, writes)
}

fn size_of(p: &Plan, t: TensorId) -> i64 {
    let t = p.graph.tensor(t);
    let values = t.dims.iter().fold(1i64, |n, d| n.saturating_mul(*d));
    values.saturating_mul(i64::from(t.dtype.bits())) / 8
}

/// `136.0 MiB`
fn bytes(n: i64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} bytes") } else { format!("{value:.1} {}", units[unit]) }
}

/// The notes that hold in the plan: of each value the last decision, and nothing of steps that were undone later.
fn decisions(p: &Plan) -> Vec<String> {
    let stored: Vec<&str> =
        p.graph.stmts.iter().flat_map(|s| s.targets()).map(|t| p.graph.tensor(t).name.as_str()).collect();
    let kernels: Vec<&str> = p.kernels.iter().map(|k| k.name.as_str()).collect();
    let mut kept: Vec<(String, String)> = Vec::new();
    for note in p.notes.iter().rev() {
        let (head, _) = note.split_once(": ").unwrap_or((note, ""));
        let (about, holds) =
            match (head.strip_suffix(" is stored"), head.strip_suffix(" is computed where it is read")) {
                (Some(value), _) => (value, stored.contains(&value)),
                (_, Some(value)) => (value, !stored.contains(&value)),
                _ => match (
                    head.strip_suffix(" are two kernels"),
                    head.strip_suffix(" is a kernel apart from what it is made of"),
                ) {
                    (Some(two), _) => (head, two.split(" and ").all(|k| kernels.contains(&k))),
                    (_, Some(one)) => (head, kernels.contains(&one)),
                    _ => (note.as_str(), true),
                },
            };
        if holds && kept.iter().all(|(known, _)| known != about) {
            kept.push((about.to_string(), tempered(note)));
        }
    }
    kept.into_iter().rev().map(|(_, note)| note).collect()
}

/// A note without a time that no kernel would ever take: the model counts what is computed again and again.
fn tempered(note: &str) -> String {
    let times = |n: &str| -> Option<(f64, f64)> {
        let (stored, other) = n.split_once("its kernels take ")?.1.split_once(" us if it is stored, ")?;
        Some((stored.parse().ok()?, other.split_once(" us if not")?.0.parse().ok()?))
    };
    let Some((stored, other)) = times(note) else { return note.to_string() };
    let (less, more) = (stored.min(other), stored.max(other));
    if more < 100.0 * less {
        return note.to_string();
    }
    let head = note.split_once("its kernels take ").map_or("", |h| h.0);
    let (this, that) =
        if stored < other { ("if it is stored", "if not") } else { ("if not", "if it is stored") };
    format!("{head}its kernels take {less:.1} us {this}, more than 100 times as long {that}")
}

/// The kernels, and what was fused, what not and why, and which rules led there.
pub fn why(all: &[Alternative]) -> String {
    let Some((best, others)) = all.split_first() else { return String::new() };
    let mut s = summary(best);
    let notes = decisions(&best.plan);
    s += match notes.is_empty() {
        true => "nothing was rewritten\n",
        false => {
            "why: what is stored goes to memory, other values are computed again by each kernel that reads them; times are a \
             model's\n"
        }
    };
    notes.iter().for_each(|n| {
        let _ = writeln!(s, "  {n}");
    });
    if !others.is_empty() {
        s += "other plans, which `girih tune` tries too:\n";
    }
    others.iter().for_each(|o| {
        let _ = writeln!(s, "  {}", in_short(o));
    });
    s
}

/// What a kernel of a form does.
fn form_text(form: Form) -> &'static str {
    match form {
        Form::Map => "each thread makes points of its own",
        Form::Row => "a warp, a block or a cluster makes a row, with its sums and maxima",
        Form::Contract => {
            "sums of products by tiles in shared memory, on tensor cores where the dtypes allow it"
        }
        Form::Fold => "two chained products in one pass, as attention has them",
        Form::Scan => "a running sum, or another associative recurrence, in parallel",
        Form::Scatter => "updates through computed indices",
        Form::Sort => "sorts rows",
        Form::Thread => "a recurrence, a loop in each thread",
        Form::Block => "a recurrence, a loop in each block",
        Form::Step => "a recurrence, a launch for each step",
    }
}

/// A program: its buffers, kernels and steps.
pub fn program(p: &Program) -> String {
    let mut s = String::new();
    for b in &p.buffers {
        let role = match &b.role {
            BufferRole::Input(_) => "in".into(),
            BufferRole::Inout(_, name) => format!("inout {name}"),
            BufferRole::Output(name) => format!("out {name}"),
            BufferRole::Workspace => "workspace".into(),
            BufferRole::Constant(_) => "constant".into(),
            BufferRole::Fault => "fault".into(),
        };
        let _ =
            writeln!(s, "// buffer {}: {}{:?}, {} bytes, {role}", b.name, b.dtype.name(), b.dims, b.bytes);
    }
    steps(p, &p.steps, 0, &mut s);
    for k in &p.kernels {
        let _ = write!(s, "\n{}", simt_text::print(k));
    }
    s
}

/// What the host does, one line a step.
fn steps(p: &Program, all: &[Step], depth: usize, s: &mut String) {
    let name = |b: &BufferId| &p.buffers[b.0 as usize].name;
    let gap = "  ".repeat(depth);
    for step in all {
        let _ = match step {
            Step::Launch(l) => {
                writeln!(s, "// {gap}launch {}({})", p.kernels[l.kernel].name, arguments(p, &l.args))
            }
            Step::Fill { buffer, byte } => writeln!(s, "// {gap}fill {} with byte {byte}", name(buffer)),
            Step::Copy { from, to } => writeln!(s, "// {gap}copy {} to {}", name(from), name(to)),
            Step::Repeat { count, .. } => writeln!(s, "// {gap}repeat {count} times"),
        };
        if let Step::Repeat { steps: inner, .. } = step {
            steps(p, inner, depth + 1, s);
        }
    }
}

fn arguments(p: &Program, args: &[Arg]) -> String {
    let one = |a: &Arg| match a {
        Arg::Buffer(b) => p.buffers[b.0 as usize].name.clone(),
        Arg::Scalar(i) => p.scalars[i.0 as usize].0.clone(),
        Arg::Const(v) => format!("{v:?}"),
        Arg::Counter => "counter".into(),
    };
    args.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The tile level; kernels of the other forms go straight to threads.
pub fn tiles(all: &[(String, Form, Option<Tile>)]) -> String {
    let one = |(name, form, tile): &(String, Form, Option<Tile>)| match tile {
        Some(t) => t.to_string(),
        None => format!("kernel {name} ({}): lowered to threads without a tile level\n", form.name()),
    };
    all.iter().map(one).collect()
}
