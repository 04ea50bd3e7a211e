//! `girih run`: inputs from files or made up, on a device, with a report, a check and an output file.

use super::args::{OpArgs, RunArgs};
use super::report::{self, Report, Row};
use super::{Outcome, color};
use girih::execute::{Inputs, RunOptions};
use girih::files::{self, Stored};
use girih::{BoundOp, Device, Error, Kernel, Op, Result, inputs, random};
use girih_compiler::host::HostTensor;
use girih_compiler::ir::graph::Word;
use girih_compiler::lower::schedule::spoken;
use girih_compiler::lower::{Schedule, schedules};
use girih_compiler::vocab::dtype::DType;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub fn run(args: &RunArgs) -> Result<Outcome> {
    args.output_file.as_deref().map_or(Ok(()), can_be_written)?;
    let given = read_inputs(args)?;
    let op = with_shapes(choose(&args.op)?, &given)?;
    let device = Device::open(args.device, args.op.target)?;
    let bound = op.bind()?;
    eprint!("{}", bound.warnings(color()));
    say_unused_form(&args.op, &bound, &device)?;
    let made = make_inputs(&bound, given, args.seed)?;
    let each = args.op.schedule.as_deref() == Some("each");
    let mut finished = Vec::new();
    let mut refused = None;
    for (schedule, bound) in schedules_of(bound, &device, args.op.schedule.as_deref())? {
        let named = schedule.clone().unwrap_or_default();
        say_fewer_parts(&args.op, &bound, &device)?;
        let (report, outputs) = match run_one(&bound, &device, &made, args, schedule) {
            // One that is illegal on the target says nothing of the others.
            Err(Error::Refused(why)) if each => {
                eprintln!("refused: {named}: {why}");
                refused = Some(Error::Refused(why));
                continue;
            }
            other => other?,
        };
        if !args.json {
            super::print(&report.text());
        }
        finished.push((report, outputs));
    }
    if let (true, Some(why)) = (finished.is_empty(), refused) {
        return Err(why);
    }
    if args.json {
        super::print(&report::json(finished.iter().map(|f| &f.0)));
    }
    if finished.iter().any(|f| f.0.wrong()) {
        return Ok(Outcome::Wrong);
    }
    if let Some(path) = &args.output_file {
        for (i, (report, outputs)) in finished.iter().enumerate() {
            let path = numbered(path, i);
            files::write_safetensors(&path, outputs)?;
            if finished.len() > 1 {
                eprintln!("note: {} holds the outputs under {}", path.display(), report.schedule());
            }
        }
    }
    Ok(Outcome::Right)
}

/// Before anything is computed: whether outputs will find their place.
fn can_be_written(path: &Path) -> Result<()> {
    if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy") || e.eq_ignore_ascii_case("npz")) {
        let named = path.with_extension("safetensors");
        let what = format!("outputs are written as safetensors: write --output-file {}", named.display());
        return Err(Error::file(path, what));
    }
    match path.parent().filter(|p| !p.as_os_str().is_empty() && !p.is_dir()) {
        Some(folder) => Err(Error::file(path, format!("there is no folder {}", folder.display()))),
        None => Ok(()),
    }
}

/// The file for the outputs of the i-th schedule: `out.safetensors`, `out.2.safetensors`, …
fn numbered(path: &Path, i: usize) -> PathBuf {
    if i == 0 {
        return path.to_path_buf();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let end = path.extension().map_or(String::new(), |e| format!(".{}", e.to_string_lossy()));
    path.with_file_name(format!("{stem}.{}{end}", i + 1))
}

type Outputs = BTreeMap<String, HostTensor>;

fn run_one(
    bound: &BoundOp,
    device: &Device,
    made: &Made,
    args: &RunArgs,
    schedule: Option<String>,
) -> Result<(Report, Outputs)> {
    let compiled = match args.locked {
        true => girih::tune::lock::compile(&args.op.file, bound, device)?,
        false => bound.compile(device)?,
    };
    let ran = compiled.run(&made.inputs, &RunOptions { poison: args.check, timed: TIMED });
    let ran = ran.map_err(|e| made_up(e, bound, made))?;
    let checks = if args.check { compiled.check(&made.inputs, &ran.outputs)? } else { Vec::new() };
    Ok((Report::new(&compiled, &ran, &checks, &made.rows, schedule), ran.outputs))
}

/// After a fault: whole numbers that were made up without knowing what they index.
fn made_up(e: girih::Error, bound: &BoundOp, made: &Made) -> girih::Error {
    let girih::Error::Fault(text) = e else { return e };
    let random = |name: &str| made.rows.iter().any(|r| r.name == name && r.from.starts_with("random"));
    let whole = |d: DType| !d.is_float() && d != DType::Bool;
    let found = bound.graph().tensors.iter().find(|t| whole(t.dtype) && t.range.is_none() && random(&t.name));
    girih::Error::Fault(match found {
        Some(t) => format!(
            "{text}\n  = help: `{0}` was made up: say what it may hold (`{0}: {1}[…] in 0..N`), or give it with --input",
            t.name,
            t.dtype.name()
        ),
        None => text,
    })
}

/// Runs on a GPU beside the first, whose median is the time told.
const TIMED: u32 = 10;

/// A size or const has one value.
fn once<'a>(names: impl Iterator<Item = &'a String>) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Error::argument(name, "it is given twice: give it once"));
        }
    }
    Ok(())
}

/// A form that was asked for and that no kernel can take.
pub(super) fn say_unused_form(args: &OpArgs, bound: &BoundOp, device: &Device) -> Result<()> {
    let Some(form) = args.form.filter(|_| !matches!(device, Device::Reference)) else { return Ok(()) };
    let plan = bound.plan(device)?;
    if plan.kernels.iter().all(|k| k.form != form) {
        let own: Vec<String> =
            plan.kernels.iter().map(|k| format!("{} is {}", k.name, k.form.name())).collect();
        eprintln!("note: no kernel can take the form {}: {}", form.name(), own.join(", "));
    }
    Ok(())
}

/// A `split` of a schedule file that is more than a sum's steps allow: a product takes what they do.
pub(super) fn say_fewer_parts(args: &OpArgs, bound: &BoundOp, device: &Device) -> Result<()> {
    let file = args.schedule.as_deref().filter(|s| *s != "each" && !matches!(device, Device::Reference));
    let Some(file) = file else { return Ok(()) };
    let (plan, target) = (bound.plan(device)?, device.target()?);
    let spoken = spoken(&plan, &target);
    let wished = |number: usize, name: &str| -> Vec<(String, i64)> {
        let lines = bound.op().settings().kernels.get(name).into_iter().flatten();
        let lines = lines.map(|((key, axis), value)| (key, axis, value));
        let blocks = spoken.iter().filter(|s| s.kernels.contains(&number) && s.choice.values.len() == 1);
        let blocks = blocks.map(|s| (&s.choice.key, &s.choice.axis, &s.choice.values[0]));
        let parts = lines.chain(blocks).filter_map(|(key, axis, value)| match value {
            Word::Int(n) if key == "split" => Some((axis.clone(), *n)),
            _ => None,
        });
        parts.collect()
    };
    for (name, _, tile) in bound.tiles(device)? {
        let Some(tile) = tile else { continue };
        let number = plan.kernels.iter().position(|k| k.name == name).unwrap_or(usize::MAX);
        let parts = tile.split.max(tile.tail.map_or(0, |t| t.split)) * i64::from(tile.join.max(1));
        for (axis, n) in wished(number, &name).into_iter().filter(|w| w.1 > parts) {
            eprintln!(
                "note: {file}: `split {axis} = {n}` is taken as {parts}: the steps of {name} are not enough for more"
            );
        }
    }
    Ok(())
}

/// The text of a schedule file, if it holds `tile` blocks.
fn blocks(asked: Option<&str>) -> Result<Option<String>> {
    let Some(path) = asked.filter(|file| *file != "each").map(Path::new) else { return Ok(None) };
    let text = girih::kernel::read(path)?;
    let code = text.lines().map(str::trim).find(|l| !l.is_empty() && !l.starts_with("//"));
    Ok(code.is_some_and(|l| l.starts_with("tile ")).then_some(text))
}

/// The op that the arguments name, with its sizes, consts and form, under the blocks of a schedule file.
pub fn choose(args: &OpArgs) -> Result<Op> {
    let kernel = match (blocks(args.schedule.as_deref())?, &args.schedule) {
        (Some(text), Some(file)) => Kernel::load_under(&args.file, Path::new(file), &text)?,
        _ => Kernel::load(&args.file)?,
    };
    let mut op = match &args.op {
        Some(name) => kernel.op(name)?,
        None => kernel.only_op()?,
    };
    once(args.dims.iter().map(|d| &d.0))?;
    once(args.consts.iter().map(|c| &c.0))?;
    for (name, value) in &args.dims {
        op = op.dim(name, *value);
    }
    for (name, value) in &args.consts {
        op = op.constant(name, value);
    }
    Ok(match args.form {
        Some(form) => op.form(form),
        None => op,
    })
}

/// An op under the settings of a schedule file, where one is given.
pub fn scheduled(bound: BoundOp, asked: Option<&str>) -> Result<BoundOp> {
    Ok(match settings(asked)? {
        Some(schedule) => bound.with_schedule(schedule),
        None => bound,
    })
}

/// The settings of a schedule file; `None` without one, or where it holds `tile` blocks, which the op has already.
pub(super) fn settings(asked: Option<&str>) -> Result<Option<Schedule>> {
    match asked {
        None => Ok(None),
        Some("each") => Err(Error::argument("schedule", "each is for run: name a file here")),
        Some(_) if blocks(asked)?.is_some() => Ok(None),
        Some(file) => {
            let path = Path::new(file);
            let schedule = Schedule::parse(&girih::kernel::read(path)?).map_err(|e| Error::file(path, e))?;
            Ok(Some(schedule))
        }
    }
}

/// The schedules to run, each with the words for it: the default, one from a file, or each that the forms accept.
pub(super) fn schedules_of(
    bound: BoundOp,
    device: &Device,
    asked: Option<&str>,
) -> Result<Vec<(Option<String>, BoundOp)>> {
    match asked {
        None => Ok(vec![(None, bound)]),
        Some("each") => {
            let all = schedules(&bound.plan(device)?, &device.target()?).into_iter();
            Ok(all.map(|s| (Some(one_line(&s)), bound.with_schedule(s))).collect())
        }
        Some(file) => Ok(vec![(Some(file.to_string()), scheduled(bound, Some(file))?)]),
    }
}

fn one_line(s: &Schedule) -> String {
    let text = s.to_string();
    if text.is_empty() { "default".into() } else { text.lines().collect::<Vec<_>>().join("; ") }
}

/// Reads every input that a file gives.
fn read_inputs(args: &RunArgs) -> Result<BTreeMap<String, Given>> {
    let mut all = BTreeMap::new();
    if let Some(path) = &args.input_file {
        for (name, stored) in files::read_safetensors(path)? {
            all.insert(name, Given { stored, from: path.display().to_string(), named: false });
        }
    }
    for (i, (name, from)) in args.inputs.iter().enumerate() {
        if let Some((_, other)) = args.inputs[..i].iter().find(|other| other.0 == *name) {
            let what = format!("it is given twice, as {other} and as {from}: leave one of them");
            return Err(Error::argument(format!("input {name}"), what));
        }
        let stored = read_input(from).map_err(|e| Error::argument(format!("input {name}"), e.text()))?;
        all.insert(name.clone(), Given { stored, from: from.clone(), named: true });
    }
    Ok(all)
}

struct Given {
    stored: Stored,
    from: String,
    /// By `--input`, so that it must be a parameter; a file may hold more than is wanted.
    named: bool,
}

/// `a.npy` or `w.safetensors:key`.
fn read_input(from: &str) -> Result<Stored> {
    if let Some((path, key)) = from.rsplit_once(':').filter(|(p, _)| p.ends_with(".safetensors")) {
        return files::read_safetensor(Path::new(path), key);
    }
    let path = PathBuf::from(from);
    match path.extension().and_then(|e| e.to_str()) {
        Some("npy") => files::read_npy(&path),
        Some("safetensors") => Err(Error::file(&path, "say which tensor: FILE.safetensors:KEY")),
        _ => Err(Error::file(&path, "is neither FILE.npy nor FILE.safetensors:KEY")),
    }
}

/// Lets the inputs' shapes bind sizes.
fn with_shapes(mut op: Op, given: &BTreeMap<String, Given>) -> Result<Op> {
    for (name, g) in given {
        let parameter = match inputs::tensor_parameter(op.ast(), name) {
            Ok(p) => p,
            Err(e) if g.named => return Err(e),
            Err(_) => {
                eprintln!("note: {}: {name} is not an input of {} and is not used", g.from, op.name());
                continue;
            }
        };
        let bindings = op.bindings();
        let shape = inputs::shape_of(parameter, &g.stored, &bindings.dims, &bindings.consts);
        let shape = shape.map_err(|e| Error::argument(format!("input {name}={}", g.from), e.text()))?;
        if let Some((dtype, dims)) = shape {
            op = op.input(name, dtype, &dims);
        }
    }
    Ok(op)
}

/// Inputs for a run, and where each came from.
struct Made {
    inputs: Inputs,
    rows: Vec<Row>,
}

fn make_inputs(bound: &BoundOp, mut given: BTreeMap<String, Given>, seed: u64) -> Result<Made> {
    let mut made = Made { inputs: Inputs::default(), rows: Vec::new() };
    for o in &bound.graph().outputs {
        random::has_room(bound.graph().tensor(o.tensor))?;
    }
    for t in bound.inputs() {
        let (tensor, from) = match given.remove(&t.name) {
            Some(g) => {
                let named = format!("input {}={}", t.name, g.from);
                (inputs::fit(t, g.stored).map_err(|e| Error::argument(named, e.text()))?, g.from)
            }
            None => (random::tensor(t, seed)?, format!("random, seed {seed}")),
        };
        made.rows.push(Row::new(&t.name, t.dtype, &t.dims, from));
        made.inputs.tensors.insert(t.name.clone(), tensor);
    }
    Ok(made)
}
