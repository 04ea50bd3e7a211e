//! Levels as text, for `girih emit` and `girih why`.

use girih_compiler::ir::plan::{Form, Plan};
use girih_compiler::ir::plan_text;
use girih_compiler::ir::program::{Arg, BufferId, BufferRole, Program, Step};
use girih_compiler::ir::simt_text;
use girih_compiler::ir::tile::Tile;
use girih_compiler::pass::graph_to_plan::Alternative;
use std::fmt::Write;

/// The kernels of a plan, with what each defines, what fusing saved, and the plan's graph.
pub fn plan(p: &Plan) -> String {
    plan_text::print(p)
}

/// The first plan, then what the others are and what the model says that each takes.
pub fn plans(all: &[Alternative]) -> String {
    let Some((best, others)) = all.split_first() else { return String::new() };
    let mut s = plan(&best.plan);
    let line = |a: &Alternative| {
        let kernels: Vec<String> =
            a.plan.kernels.iter().map(|k| format!("{} {}", k.form.name(), k.name)).collect();
        format!("{:.1} us, {} bytes saved: {}", a.us, a.plan.bytes_saved, kernels.join(", "))
    };
    let _ = writeln!(s, "// in the model {}", line(best));
    for other in others {
        let _ = writeln!(s, "// another plan {}", line(other));
    }
    s
}

/// The kernels, and what was fused, what not and why, and which rules led there.
pub fn notes(p: &Plan) -> String {
    let mut s = String::from("kernels, in the order of their launch:\n");
    for k in &p.kernels {
        let _ = writeln!(s, "  {} ({}): {}", k.name, k.form.name(), form_text(k.form));
    }
    if p.notes.is_empty() {
        return s + "nothing was rewritten\n";
    }
    s += "what was decided, in order; a later line about a value counts more. A value that is stored goes to memory, others are\n\
          computed again by each kernel that reads them; what a line says of time is a model's, nothing was measured:\n";
    p.notes.iter().for_each(|n| {
        let _ = writeln!(s, "  {n}");
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
