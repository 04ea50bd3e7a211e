//! One bucket of a profile as code that takes any sizes inside its range.
//!
//! The op is lowered at every size of the range, under the bucket's settings. Sizes whose programs differ in nothing but numbers
//! share a kernel that gets these numbers as arguments (`lower::arguments`), so that at each size it is the very
//! program that was lowered for that size. How the numbers follow from the sizes is found from all of them (`law`).

use super::law::Law;
use super::manifest::{self, ArgRow, Bucket, ParamRow, Place, Range, StepRow, Varying};
use crate::error::{Error, Result};
use crate::kernel::{BoundOp, Op};
use crate::pipeline::Fusion;
use girih_autotune::space::Space;
use girih_autotune::{model, prune};
use girih_compiler::ir::graph::Word;
use girih_compiler::ir::plan::Plan;
use girih_compiler::ir::program::{Arg, Program, Step};
use girih_compiler::ir::simt::{Kernel, ParamKind};
use girih_compiler::lower::arguments::{self, Number};
use girih_compiler::lower::{Schedule, plan_to_program, simt_to_cuda};
use girih_compiler::vocab::dtype::Value;
use girih_compiler::vocab::target::Target;
use girih_runtime::launch::workspace_bytes;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};

/// An op at a point of a profile, and the sizes around it that it stands for: least and greatest by name.
#[derive(Clone, Debug)]
pub struct Point {
    pub op: Op,
    pub covers: Vec<(String, i64, i64)>,
}

impl From<Op> for Point {
    fn from(op: Op) -> Point {
        Point { op, covers: Vec::new() }
    }
}

/// Combinations of sizes that are lowered for one point.
const MOST_SIZES: u64 = 1 << 16;
/// Kernels that one range may fall into.
const MOST_PARTS: usize = 64;

/// Code for some sizes of a range, with the bucket's numbers at the first of them.
pub struct Part {
    pub bucket: Bucket,
    pub program: Program,
    pub cuda: String,
}

impl Part {
    /// The program as it is launched at other sizes: `bucket` is this part's, with its numbers there.
    pub fn program_at(&self, bucket: &Bucket) -> Program {
        let mut p = self.program.clone();
        for (b, row) in p.buffers.iter_mut().zip(&bucket.buffers) {
            b.dims = row.dims.clone();
            b.bytes = row.bytes;
        }
        for (k, row) in p.kernels.iter_mut().zip(&bucket.kernels) {
            k.grid = row.grid;
            for (param, row) in k.params.iter_mut().zip(&row.params) {
                if let (ParamKind::TensorMap(m), ParamRow::TensorMap(row)) = (&mut param.kind, row) {
                    (m.offset, m.dims, m.strides) = (row.offset, row.dims.clone(), row.strides.clone());
                }
            }
        }
        let bytes: Vec<i64> = bucket.buffers.iter().map(|b| b.bytes).collect();
        set_steps(&mut p.steps, &bucket.steps, &bytes, &mut p.kernels);
        p
    }
}

fn set_steps(steps: &mut [Step], rows: &[StepRow], bytes: &[i64], kernels: &mut [Kernel]) {
    for (s, row) in steps.iter_mut().zip(rows) {
        match (s, row) {
            (Step::Launch(l), StepRow::Launch { args, .. }) => {
                for (i, (a, row)) in l.args.iter_mut().zip(args).enumerate() {
                    let param = &mut kernels[l.kernel].params[i].kind;
                    match (a, row, param) {
                        (Arg::Const(v), ArgRow::Value(bits), _) => *v = Value::of_bits(v.ty(), *bits),
                        (Arg::Buffer(b), _, ParamKind::Pointer { dtype, len, .. }) => {
                            *len = bytes[b.0 as usize] * 8 / i64::from(dtype.bits());
                        }
                        _ => {}
                    }
                }
            }
            (Step::Repeat { count, steps }, StepRow::Repeat { count: n, steps: rows }) => {
                *count = *n;
                set_steps(steps, rows, bytes, kernels);
            }
            _ => {}
        }
    }
}

/// A range with its parts; the range's bucket numbers count from 0.
pub struct Covered {
    pub range: Range,
    pub parts: Vec<Part>,
}

impl Point {
    /// Combinations of the sizes that it covers.
    pub fn count(&self) -> u64 {
        let each = self.covers.iter().map(|(_, lo, hi)| (hi - lo + 1).max(0) as u64);
        each.fold(1, u64::saturating_mul)
    }

    /// The n-th combination, the last size changing fastest.
    fn sizes(&self, n: u64) -> Vec<(&str, i64)> {
        let mut rest = n;
        let digit = |(_, lo, hi): &(String, i64, i64)| {
            let count = (hi - lo + 1) as u64;
            let at = lo + (rest % count) as i64;
            rest /= count;
            at
        };
        let values: Vec<i64> = self.covers.iter().rev().map(digit).collect();
        self.covers.iter().map(|c| c.0.as_str()).zip(values.into_iter().rev()).collect()
    }

    fn at(&self, n: u64) -> Op {
        self.sizes(n).into_iter().fold(self.op.clone(), |op, (name, value)| op.dim(name, value))
    }

    /// `M=17..=512`
    pub fn text(&self) -> String {
        let part = |(name, lo, hi): &(String, i64, i64)| match lo == hi {
            true => format!("{name}={lo}"),
            false => format!("{name}={lo}..={hi}"),
        };
        self.covers.iter().map(part).collect::<Vec<_>>().join(" ")
    }
}

/// A program taken apart: what its code and launches fix, and the numbers of each kernel and of the launches.
struct Sized {
    sizes: Vec<i64>,
    key: (u64, u64),
    kernels: Vec<Vec<Number>>,
    launches: Vec<(Place, i64)>,
}

/// Lowers a point's range under the settings of its configured op.
pub fn cover(point: &Point, configured: &BoundOp, target: &Target) -> Result<Covered> {
    // Combinations are counted in the order of the graph's sizes.
    let order = |name: &String| configured.graph().sizes.iter().position(|s| s.0 == *name);
    let mut point = point.clone();
    point.covers.sort_by_key(|c| order(&c.0));
    let point = &point;
    if point.count() > MOST_SIZES {
        let what = format!(
            "{} has {} sizes, and a bucket covers at most {MOST_SIZES}: give more points (`at {{…}}`) or a smaller range",
            point.text(),
            point.count()
        );
        return Err(Error::argument("profile", what));
    }
    let schedule = explicit(configured, target)?;
    let fusion = configured.op().chosen_fusion();
    let mut lowered = lower_all(point, &schedule, Some(configured), fusion, target)?;
    if lowered.shapes() > MOST_PARTS {
        lowered = lower_all(point, &schedule, None, fusion, target)?;
    }
    if lowered.shapes() > MOST_PARTS {
        // A row that is held in registers has as many of them as it is long.
        let streamed = streamed(configured, &schedule, target)?;
        lowered = lower_all(point, &streamed, None, fusion, target)?;
    }
    if lowered.shapes() > MOST_PARTS {
        let what = format!(
            "the sizes in {} make {} different kernels, and a bucket holds at most {MOST_PARTS}: give more points (`at {{…}}`) or a smaller range",
            point.text(),
            lowered.shapes()
        );
        return Err(Error::argument("profile", what));
    }
    let Lowered { sized, programs } = lowered;
    let mut numbers: HashMap<(u64, u64), usize> = HashMap::new();
    let mut members: Vec<Vec<&Sized>> = Vec::new();
    let mut places = Vec::new();
    for s in &sized {
        let Some(s) = s else {
            places.push(-1);
            continue;
        };
        let n = *numbers.entry(s.key).or_insert(members.len());
        if n == members.len() {
            members.push(Vec::new());
        }
        members[n].push(s);
        places.push(n as i64);
    }
    let part = |of: &Vec<&Sized>| part(of, &programs[&of[0].key], configured, target);
    let parts: Vec<Part> = members.iter().map(part).collect();
    if places.iter().all(|p| *p == places[0]) {
        places.truncate(1);
    }
    let range = range(point, configured, &sized, places);
    Ok(Covered { range, parts })
}

/// The range's sizes in the graph's order; what the profile does not name follows from the rest.
fn range(point: &Point, configured: &BoundOp, sized: &[Option<Sized>], buckets: Vec<i64>) -> Range {
    let names = &configured.graph().sizes;
    let all: Vec<&Sized> = sized.iter().flatten().collect();
    let named = |i: usize| point.covers.iter().find(|c| c.0 == names[i].0);
    let given: Vec<Vec<i64>> = all
        .iter()
        .map(|s| s.sizes.iter().enumerate().map(|(i, &n)| if named(i).is_some() { n } else { 0 }).collect())
        .collect();
    let mut derived = BTreeMap::new();
    let mut sizes = Vec::new();
    for i in 0..names.len() {
        let values: Vec<i64> = all.iter().map(|s| s.sizes[i]).collect();
        let (lo, hi) = (values.iter().min().copied(), values.iter().max().copied());
        let [lo, hi] = [lo, hi].map(|n| n.unwrap_or(0));
        sizes.push(named(i).map_or([lo, hi], |c| [c.1, c.2]));
        if named(i).is_none() && lo != hi {
            derived.insert(i, Law::of(&given, &values));
        }
    }
    Range { sizes, derived, buckets }
}

/// One program of each shape, with the alignment of its arguments.
type Programs = HashMap<(u64, u64), (Program, BTreeMap<String, u32>)>;

/// Every combination of a point's sizes.
struct Lowered {
    sized: Vec<Option<Sized>>,
    programs: Programs,
}

impl Lowered {
    fn shapes(&self) -> usize {
        self.programs.len()
    }
}

/// A schedule whose rows are read once more instead of held.
fn streamed(bound: &BoundOp, schedule: &Schedule, target: &Target) -> Result<Schedule> {
    let plan = bound.plan(&crate::device::Device::Simulator(*target))?;
    let mut schedule = schedule.clone();
    for k in &Space::of(&plan, target).kernels {
        let stream = Word::Name("stream".into());
        if k.choices.iter().any(|c| c.key == "hold" && c.values.contains(&stream)) {
            // What else was chosen for rows that are held does not suit.
            if let Some(settings) = schedule.kernels.get_mut(&k.kernel) {
                settings.retain(|(key, _), _| key == "threads");
            }
            schedule.set(&k.kernel, "hold", "", stream);
        }
    }
    Ok(schedule)
}

/// Every combination, on all processors; `None` where the op refuses the sizes (a `where` that does not hold).
fn lower_all(
    point: &Point,
    schedule: &Schedule,
    measured: Option<&BoundOp>,
    fusion: Fusion,
    target: &Target,
) -> Result<Lowered> {
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get() as u64).min(point.count());
    let work = |first: u64| -> Result<(Vec<(u64, Sized)>, Programs)> {
        let mut done = Vec::new();
        let mut programs = Programs::new();
        for n in (first..point.count()).step_by(workers as usize) {
            let Ok(bound) = point.at(n).bind() else { continue };
            let bound = bound.with_fusion(fusion);
            let program = better(&bound, schedule, measured, target)?;
            let sized = sized(&bound, &program);
            programs.entry(sized.key).or_insert_with(|| (program, bound.alignment()));
            done.push((n, sized));
        }
        Ok((done, programs))
    };
    let mut all: Vec<Option<Sized>> = (0..point.count()).map(|_| None).collect();
    let mut programs = Programs::new();
    std::thread::scope(|scope| -> Result<()> {
        let spawn =
            |first| std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, move || work(first));
        let threads: Vec<_> = (0..workers).map(spawn).collect();
        for t in threads {
            let joined = t.map_err(|e| Error::Refused(format!("no thread to lower on: {e}")))?.join();
            let (done, more) = joined.unwrap_or_else(|fault| std::panic::resume_unwind(fault))?;
            done.into_iter().for_each(|(n, s)| all[n as usize] = Some(s));
            // Which of equal shapes stays does not matter: they differ in numbers, which are told apart.
            more.into_iter().for_each(|(k, p)| {
                programs.entry(k).or_insert(p);
            });
        }
        Ok(())
    })?;
    Ok(Lowered { sized: all, programs })
}

/// Room for the recursion over deeply nested expressions.
const STACK: usize = 64 << 20;

/// So many times as long the model must think that settings of another size take before the forms choose here: what it says of
/// small differences is noise, and each other choice is a kernel of its own.
const SURE: f64 = 1.3;

/// An op under a bucket's settings, or with what the forms choose at this size where the model thinks far better of it; not at the
/// sizes that the settings were made for.
fn better(
    bound: &BoundOp,
    schedule: &Schedule,
    measured: Option<&BoundOp>,
    target: &Target,
) -> Result<Program> {
    let settled = lower(bound, schedule, target)?;
    if measured.is_none_or(|m| m.graph().sizes == bound.graph().sizes) {
        return Ok(settled);
    }
    let own = lower(bound, &Schedule::default(), target)?;
    let time = |p: &Program| model::predict(p, target);
    Ok(if time(&settled) > SURE * time(&own) { own } else { settled })
}

/// An op at some sizes under settings that were made for others: what is refused here is left to the form.
fn lower(bound: &BoundOp, schedule: &Schedule, target: &Target) -> Result<Program> {
    let plan = bound.plan(&crate::device::Device::Simulator(*target))?;
    let mut schedule = schedule.clone();
    // Kernels that this size does not have need no settings.
    schedule.kernels.retain(|name, _| plan.kernels.iter().any(|k| k.name == *name));
    loop {
        let why = match prune::judge(&plan, target, &schedule) {
            Ok(program) => return Ok(program),
            Err(why) => why,
        };
        if !drop_one(&plan, target, &mut schedule) {
            return Err(Error::Refused(why.reason));
        }
    }
}

/// Takes the setting out that the lowering blames, or else the last one. Whether there was any.
fn drop_one(plan: &Plan, target: &Target, schedule: &mut Schedule) -> bool {
    let blamed = plan_to_program(plan, target, schedule).err().and_then(|r| Some((r.kernel?, r.setting?)));
    let named =
        |key: &str, axis: &str| if axis.is_empty() { key.to_string() } else { format!("{key} {axis}") };
    if let Some((kernel, setting)) = blamed
        && let Some(settings) = schedule.kernels.get_mut(&kernel)
    {
        let before = settings.len();
        settings.retain(|(key, axis), _| named(key, axis) != setting && *key != setting);
        if settings.len() < before {
            return true;
        }
    }
    let Some((_, last)) = schedule.kernels.iter_mut().rfind(|(_, s)| !s.is_empty()) else { return false };
    last.pop_last().is_some()
}

/// The settings that give an op's program, with those written out that its forms chose by themselves: at other sizes they would
/// choose others, and each choice is code of its own.
fn explicit(bound: &BoundOp, target: &Target) -> Result<Schedule> {
    let plan = bound.plan(&crate::device::Device::Simulator(*target))?;
    let mut schedule = bound.op().settings().clone();
    let text = |s: &Schedule| plan_to_program(&plan, target, s).ok().map(|p| code(&p));
    let Some(own) = text(&schedule) else { return Ok(schedule) };
    for k in &Space::of(&plan, target).kernels {
        for c in &k.choices {
            let set = |s: &Schedule| {
                s.kernels.get(&k.kernel).is_some_and(|m| m.contains_key(&(c.key.clone(), c.axis.clone())))
            };
            if set(&schedule) {
                continue;
            }
            let with = |value: &Word| {
                let mut s = schedule.clone();
                s.set(&k.kernel, &c.key, &c.axis, value.clone());
                s
            };
            if let Some(same) = c.values.iter().map(with).find(|s| text(s).as_ref() == Some(&own)) {
                schedule = same;
            }
        }
    }
    Ok(schedule)
}

/// The kernels' text, and their numbers.
fn code(program: &Program) -> (String, Vec<Vec<Number>>) {
    let shapes: Vec<_> = program.kernels.iter().map(arguments::shape).collect();
    let text = shapes.iter().map(|s| s.text.as_str()).collect::<Vec<_>>().join("\n");
    (text, shapes.into_iter().map(|s| s.numbers).collect())
}

fn sized(bound: &BoundOp, program: &Program) -> Sized {
    let (mut text, kernels) = code(program);
    let mut bucket = bucket(bound, program, &bound.alignment());
    let mut launches = Vec::new();
    manifest::each_number(&mut bucket, &mut |place, n| {
        launches.push((place, n));
        0
    });
    bucket.sizes.clear();
    text += &serde_json::to_string(&bucket).unwrap_or_default();
    let hash = |salt: u8| {
        let mut h = DefaultHasher::new();
        (salt, &text).hash(&mut h);
        h.finish()
    };
    let sizes = bound.graph().sizes.iter().map(|s| s.1).collect();
    Sized { sizes, key: (hash(0), hash(1)), kernels, launches }
}

/// A program's row without what only the package knows.
fn bucket(bound: &BoundOp, program: &Program, align: &BTreeMap<String, u32>) -> Bucket {
    let (buffers, kernels, steps) = manifest::rows(program, align);
    Bucket {
        sizes: bound.graph().sizes.iter().map(|s| s.1).collect(),
        consts: bound.graph().consts.iter().map(|(n, v)| (n.clone(), format!("{v:?}"))).collect(),
        workspace: workspace_bytes(program),
        buffers,
        kernels,
        steps,
        faults: program.faults.len(),
        ..Bucket::default()
    }
}

/// One kernel text for sizes of equal shape, and the laws of its numbers.
fn part(
    of: &[&Sized],
    (program, align): &(Program, BTreeMap<String, u32>),
    configured: &BoundOp,
    target: &Target,
) -> Part {
    let sizes: Vec<Vec<i64>> = of.iter().map(|s| s.sizes.clone()).collect();
    let mut slots = Vec::new();
    let mut columns: Vec<Vec<Vec<i64>>> = Vec::new();
    for k in 0..program.kernels.len() {
        let (slot, column) = arguments_of(of, k);
        slots.push(slot);
        columns.push(column);
    }
    let lifted = arguments::lift(program, &slots);
    let sources = configured.op().kernel().sources();
    let cuda = simt_to_cuda::print(&lifted, target, sources);
    // Names and roles are those of any of the sizes; the numbers are set below.
    let mut row = bucket(configured, &lifted, align);
    let mut varying = Vec::new();
    let mut first: BTreeMap<Place, i64> = of[0].launches.iter().copied().collect();
    let mut vary = |place: Place, values: Vec<i64>| {
        first.insert(place, values[0]);
        if values.iter().any(|v| *v != values[0]) {
            varying.push(Varying { place, law: Law::of(&sizes, &values) });
        }
    };
    for i in 0..of[0].launches.len() {
        vary(of[0].launches[i].0, of.iter().map(|s| s.launches[i].1).collect());
    }
    for (launch, (kernel, before)) in launches(&program.steps).into_iter().enumerate() {
        for (i, values) in columns[kernel].iter().enumerate() {
            vary(Place::Argument { launch, argument: before + i }, values.clone());
        }
    }
    manifest::each_number(&mut row, &mut |place, n| first.get(&place).copied().unwrap_or(n));
    row.sizes = sizes[0].clone();
    row.varying = varying;
    Part { bucket: row, program: lifted, cuda }
}

/// Which numbers of a kernel differ between sizes, and their values: those that agree everywhere are one argument.
fn arguments_of(of: &[&Sized], kernel: usize) -> (Vec<Option<usize>>, Vec<Vec<i64>>) {
    let mut slots = Vec::new();
    let mut columns: Vec<Vec<i64>> = Vec::new();
    let mut types = Vec::new();
    for (i, first) in of[0].kernels[kernel].iter().enumerate() {
        let values: Vec<i64> = of.iter().map(|s| s.kernels[kernel][i].bits()).collect();
        if values.iter().all(|v| *v == values[0]) {
            slots.push(None);
            continue;
        }
        let known = columns.iter().zip(&types).position(|(c, t)| *c == values && *t == first.ty());
        slots.push(Some(known.unwrap_or(columns.len())));
        if known.is_none() {
            columns.push(values);
            types.push(first.ty());
        }
    }
    (slots, columns)
}

/// The kernel of each launch, in order, with the arguments that it had.
fn launches(steps: &[Step]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for s in steps {
        match s {
            Step::Launch(l) => found.push((l.kernel, l.args.len())),
            Step::Repeat { steps, .. } => found.extend(launches(steps)),
            Step::Fill { .. } | Step::Copy { .. } => {}
        }
    }
    found
}
