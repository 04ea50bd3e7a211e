//! One tuning: workers are started, the space is searched, what was found is kept, what was wrong is reported.

use super::store;
use super::worker::bind;
use crate::device::{Device, DeviceName, parse_target};
use crate::error::{Error, Result};
use crate::kernel::BoundOp;
use crate::pipeline::{Fusion, PLANS};
use girih_autotune::database::{Database, Key, Record};
use girih_autotune::measure::{Answers, Pool, Starter, Worker};
use girih_autotune::protocol::*;
use girih_autotune::search::{self, Bench, Found, Options, Problem};
use girih_autotune::space::Space;
use girih_compiler::ir::plan::Form;
use girih_compiler::ir::plan_text;
use girih_compiler::lower::Schedule;
use girih_compiler::vocab::target::Target;
use girih_runtime::cache::digest;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What is tuned, and how.
#[derive(Clone, Debug)]
pub struct Request {
    pub job: Job,
    /// `sim`, or GPUs that share the work.
    pub devices: Vec<String>,
    pub options: Options,
    pub budget: Option<Duration>,
    /// How workers are started.
    pub starter: Starter,
    /// Processes that compile.
    pub compilers: usize,
    /// Tune what is already known.
    pub force: bool,
    /// Where bug reports go.
    pub bugs: Option<PathBuf>,
}

/// What a tuning gave.
#[derive(Clone, Debug)]
pub struct Tuned {
    pub key: Key,
    pub target: Target,
    pub record: Option<Record>,
    /// It was in the database.
    pub known: bool,
    pub found: Found,
    pub spaces: Vec<(String, Space)>,
    pub seconds: f64,
    /// Seconds until the workers were ready.
    pub started: f64,
    /// The budget ended the search.
    pub out_of_time: bool,
    pub notes: Vec<String>,
    /// Folders of bug reports.
    pub bugs: Vec<PathBuf>,
}

/// Something to show while it goes on.
#[derive(Clone, Debug)]
pub struct Progress {
    pub done: usize,
    pub failed: usize,
    pub best_us: Option<f64>,
    pub last: String,
}

/// Searches, and keeps the winner in the database.
pub fn tune(request: &Request, database: &Database, see: &mut dyn FnMut(&Progress)) -> Result<Tuned> {
    search_for(request, database, false, see)
}

/// The same with every candidate compiled by NVRTC first, even though the simulator needs no cubin.
pub fn tune_compiling(request: &Request, database: &Database) -> Result<Tuned> {
    search_for(request, database, true, &mut |_| ())
}

fn search_for(
    request: &Request,
    database: &Database,
    always_compile: bool,
    see: &mut dyn FnMut(&Progress),
) -> Result<Tuned> {
    let start = Instant::now();
    let bound = bind(&request.job)?;
    let deadline = request.budget.map(|b| start + b);
    let simulated = request.devices.iter().all(|d| d == "sim");
    check_space(&request.job, &bound, simulated)?;
    let mut benches: Vec<Worker> = request
        .devices
        .iter()
        .map(|d| {
            Worker::new(
                &request.starter,
                Job { device: d.clone(), compile_only: false, ..request.job.clone() },
            )
        })
        .collect();
    let (ready, mut notes) = start_all(&mut benches)?;
    let target =
        Target { sms: ready.limits.0, shared_per_block: ready.limits.1, ..parse_target(&ready.target)? };
    let key = store::key_for(&bound, &ready.device, &target);
    let plans = plans(&bound, target)?;
    let spaces: Vec<(String, Space)> =
        plans.iter().map(|(name, plan)| (name.clone(), Space::of(plan, &target))).collect();
    let mut tuned = Tuned {
        key,
        target,
        record: None,
        known: false,
        found: Found::default(),
        spaces,
        seconds: 0.0,
        started: start.elapsed().as_secs_f64(),
        out_of_time: false,
        notes: Vec::new(),
        bugs: Vec::new(),
    };
    let before = database.get(&tuned.key, &mut notes);
    let (before, stale) = match before {
        Some(record) if is_current(&bound, target, &record) => (Some(record), false),
        other => (None, other.is_some()),
    };
    if !request.force && request.options.shard.is_none() {
        if let Some(record) = before {
            return Ok(Tuned { record: Some(record), known: true, notes, ..tuned });
        }
        if stale {
            let why = "of other code, which this compiler does not make: it is tuned again";
            notes.push(format!("the record that was there is {why}"));
        }
    }
    let compile = Job {
        compile_only: true,
        target: Some(ready.target.clone()),
        limits: Some(ready.limits),
        ..request.job.clone()
    };
    let compilers = if simulated && !always_compile { 0 } else { request.compilers };
    let compilers = (0..compilers).map(|_| Worker::new(&request.starter, compile.clone())).collect();
    let pool = Pool { compilers, benches, deadline, strict: true, alone: false };
    let mut seen = Seen { pool, end: deadline, done: 0, failed: 0, best: None, see };
    let sources = bound.op().kernel().sources();
    // A part of a space measures that part alone.
    let known = before.filter(|_| request.options.shard.is_none()).map(|r| r.configuration);
    let problem = Problem { plans, target, sources, known };
    let options = Options { exact: simulated, ..request.options.clone() };
    tuned.found = search::search(&problem, &options, &mut seen);
    let lost: u32 = seen.pool.benches.iter().chain(&seen.pool.compilers).map(|w| w.lost).sum();
    if lost > 0 {
        notes.push(format!("{lost} worker processes were lost and replaced"));
    }
    drop(seen);
    if let Some(Err(f)) = tuned.found.default.map(|d| &tuned.found.trials[d].result) {
        notes.push(format!("the forms' own choice failed, {f}"));
    }
    tuned.seconds = start.elapsed().as_secs_f64();
    tuned.out_of_time = deadline.is_some_and(|d| Instant::now() >= d);
    tuned.bugs = report_bugs(request, &tuned.found);
    tuned.record = record(&tuned, options.seed);
    if let Some(known) = faster(&tuned, database).filter(|known| is_current(&bound, target, known)) {
        let whose = match request.options.shard {
            Some(_) => "another part of the space has",
            None => "the record that was there is of",
        };
        notes.push(format!(
            "{whose} a faster one, {:.2} us, which stays: {}",
            known.us,
            one_line(&known.configuration)
        ));
        tuned.record = Some(known);
    } else if let Some(record) = &tuned.record {
        let kept = database.put(&tuned.key, record);
        match kept {
            Ok(Some(_)) => {}
            Ok(None) => notes.push("there is no store to keep it in (see girih doctor)".into()),
            Err(e) => notes.push(format!("it could not be kept: {e}")),
        }
    }
    tuned.notes = notes;
    Ok(tuned)
}

/// A record that is there by now, which is faster than what was found and was not measured beside it: of another part of
/// the space, of another process, or of an earlier tuning that this one's budget did not come to.
fn faster(tuned: &Tuned, database: &Database) -> Option<Record> {
    let known = database.get(&tuned.key, &mut Vec::new())?;
    let beside = |t: &search::Trial| t.us().is_some() && t.configuration == known.configuration;
    let measured = tuned.found.trials.iter().any(beside);
    let found = tuned.record.as_ref()?;
    (!measured && known.us <= found.us).then_some(known)
}

/// A `tile` block that leaves nothing is told before a worker is started.
fn check_space(job: &Job, bound: &BoundOp, simulated: bool) -> Result<()> {
    let target = match job.target.as_deref().map(parse_target).transpose()? {
        Some(t) => t,
        None if simulated => Device::sim().target()?,
        None => return Ok(()),
    };
    let plan = bound.plan(&Device::Simulator(target))?;
    Space::of(&plan, &target).check(&plan, &target).map_err(|e| Error::Refused(e.to_string()))
}

/// Starts every bench; those that cannot are left out as long as one can.
fn start_all(benches: &mut Vec<Worker>) -> Result<(Ready, Vec<String>)> {
    let mut answers: Vec<std::result::Result<Ready, Failure>> = Vec::new();
    std::thread::scope(|s| {
        let threads: Vec<_> = benches.iter_mut().map(|w| s.spawn(move || w.start())).collect();
        let join = |t: std::thread::ScopedJoinHandle<'_, _>| {
            t.join().unwrap_or_else(|_| Err(Failure::new(FailureKind::Other, "it panicked")))
        };
        answers = threads.into_iter().map(join).collect();
    });
    let mut notes = Vec::new();
    let first = answers.iter().find_map(|a| a.as_ref().ok()).cloned();
    let Some(first) = first else {
        let why = answers.into_iter().find_map(|a| a.err()).map_or("no device".into(), |f| f.reason);
        return Err(Error::argument("device", why));
    };
    notes.extend(first.notes.iter().cloned());
    let mut fit = answers.iter().map(|a| match a {
        Ok(r) if r.device == first.device => true,
        Ok(r) => {
            notes.push(format!("{} is another kind of device and is left out", r.device));
            false
        }
        Err(f) => {
            notes.push(format!("a device is left out: {f}"));
            false
        }
    });
    benches.retain(|_| fit.next().unwrap_or(false));
    Ok((first, notes))
}

/// The ways to fuse that give different plans, the search's own first.
pub fn plans(bound: &BoundOp, target: Target) -> Result<Vec<(String, girih_compiler::ir::plan::Plan)>> {
    let device = Device::Simulator(target);
    let mut found: Vec<(String, String, _)> = Vec::new();
    let mut ways = Vec::new();
    for fusion in Fusion::ALL {
        ways.push((fusion.name(), bound.with_fusion(fusion).plan(&device)?));
    }
    let others = bound.plans(&device, PLANS)?.into_iter().enumerate().skip(1);
    ways.extend(others.map(|(n, other)| (Fusion::Plan(n as u8).name(), other.plan)));
    for (name, plan) in ways {
        let text = plan_text::print(&plan);
        if found.iter().all(|(_, t, _)| *t != text) {
            found.push((name, text, plan));
        }
    }
    Ok(found.into_iter().map(|(name, _, plan)| (name, plan)).collect())
}

/// Whether a record speaks of the code that would be generated now.
fn is_current(bound: &BoundOp, target: Target, record: &Record) -> bool {
    let made = super::choose::configured(bound, &record.configuration)
        .and_then(|b| b.compile_as_is(&Device::Simulator(target)).ok());
    made.is_some_and(|c| super::choose::is_code(&c, record))
}

fn record(tuned: &Tuned, seed: u64) -> Option<Record> {
    let found = &tuned.found;
    let best = &found.trials[found.best?];
    let sample = best.result.as_ref().ok()?;
    let us = |trial: Option<usize>| trial.and_then(|t| found.trials[t].us()).unwrap_or(0.0);
    Some(Record {
        configuration: best.configuration.clone(),
        us: sample.us,
        default_us: us(found.default),
        fixed_us: us(found.fixed),
        model_us: us(found.model),
        predicted_us: best.predicted,
        trials: found.trials.len(),
        failed: found.trials.iter().filter(|t| t.result.is_err()).count(),
        seed,
        code: sample.code.clone(),
        seconds: tuned.seconds,
        notes: sample.notes.iter().chain(&found.notes).cloned().collect(),
    })
}

/// The pool, watched.
struct Seen<'a> {
    pool: Pool,
    /// Of the whole budget; the pool's own deadline is that of the part at hand.
    end: Option<Instant>,
    done: usize,
    failed: usize,
    best: Option<f64>,
    see: &'a mut dyn FnMut(&Progress),
}

impl Bench for Seen<'_> {
    fn run(&mut self, requests: Vec<girih_autotune::protocol::Request>) -> Answers {
        let Seen { pool, done, failed, best, see, .. } = self;
        // A winner is checked, late or not.
        let last = requests.iter().all(|r| r.task == Task::Tail);
        let deadline = if last { pool.deadline.take() } else { None };
        let answers = pool.run(requests, &mut |_, answer| {
            *done += 1;
            let last = match answer {
                Ok(Done::Measured(s)) => {
                    *best = Some(best.map_or(s.us, |b| b.min(s.us)));
                    format!("{:.2} us", s.us)
                }
                Ok(_) => String::new(),
                Err(f) => {
                    *failed += 1;
                    f.to_string()
                }
            };
            see(&Progress { done: *done, failed: *failed, best_us: *best, last });
        });
        pool.deadline = pool.deadline.or(deadline);
        answers
    }

    fn run_on_one(&mut self, requests: Vec<girih_autotune::protocol::Request>) -> Answers {
        self.pool.alone = true;
        let answers = self.run(requests);
        self.pool.alone = false;
        answers
    }

    fn allow(&mut self, share: f64) {
        let now = Instant::now();
        self.pool.deadline = self.end.map(|end| now + end.saturating_duration_since(now).mul_f64(share));
    }

    fn over(&self) -> bool {
        self.pool.deadline.is_some_and(|d| Instant::now() >= d)
    }
}

/// A folder for each configuration with wrong values: the program, the configuration, the seed, what was seen.
fn report_bugs(request: &Request, found: &Found) -> Vec<PathBuf> {
    let Some(bugs) = &request.bugs else { return Vec::new() };
    let wrong = found.trials.iter().filter_map(|t| match &t.result {
        Err(f) if f.kind == FailureKind::Wrong => Some((t, f)),
        _ => None,
    });
    let write = |(trial, failure): (&search::Trial, &Failure)| {
        let job = &request.job;
        let name = digest(format!("{job:?}{:?}", trial.configuration).as_bytes());
        let folder = bugs.join(format!("{}-{}", job.op, &name[..12]));
        let given = |m: &std::collections::BTreeMap<String, String>, flag: &str| {
            m.iter().map(|(k, v)| format!(" --{flag} {k}={v}")).collect::<String>()
        };
        let dims = job.dims.iter().map(|(k, v)| (k.clone(), v.to_string())).collect();
        let text = format!(
            "{failure}\n\nseed {}\nfusion {}\n\ngirih run op.tile --op {}{}{} --seed {} --schedule schedule.txt --check\n",
            job.seed,
            trial.configuration.fusion,
            job.op,
            given(&dims, "dim"),
            given(&job.consts, "const"),
            job.seed
        );
        std::fs::create_dir_all(&folder).ok()?;
        std::fs::copy(Path::new(&job.file), folder.join("op.tile")).ok()?;
        std::fs::write(folder.join("schedule.txt"), &trial.configuration.schedule).ok()?;
        std::fs::write(folder.join("report.txt"), text).ok()?;
        Some(folder)
    };
    wrong.filter_map(write).collect()
}

/// Devices by their names: `auto` is every GPU that is there, else the simulator.
pub fn devices(text: &str) -> Result<Vec<String>> {
    if text == "auto" {
        return Ok(match Device::auto() {
            Device::Cuda(_) => vec!["cuda:0".into()],
            _ => vec!["sim".into()],
        });
    }
    if text == "cuda" {
        return Ok(vec!["cuda:0".into()]);
    }
    let all: Vec<String> = text.split(',').map(str::to_string).collect();
    for name in &all {
        match DeviceName::parse(name)? {
            DeviceName::Sim if all.len() == 1 => {}
            DeviceName::Cuda(_) => {}
            _ => return Err(Error::argument("device", "write sim, cuda, or GPUs as cuda:0,cuda:1")),
        }
    }
    Ok(all)
}

/// Why nothing was kept, in one error: the budget was too small for a single measurement, or every configuration failed,
/// with its reason.
pub fn all_failed(tuned: &Tuned) -> Error {
    let op = format!("{} at {}", tuned.key.op, tuned.key.shape());
    let (found, seconds) = (&tuned.found, tuned.seconds);
    if found.trials.is_empty() && tuned.out_of_time {
        return Error::Refused(format!(
            "{op}: the budget was spent after {seconds:.1} s, before anything was measured: {:.1} s went into starting the workers, the \
             inputs and the results to compare with, so give at least --budget {}s",
            tuned.started,
            (2.0 * tuned.started + 1.0).ceil()
        ));
    }
    if found.trials.is_empty() {
        return Error::Refused(format!(
            "{op}: no configuration was tried, and nothing was kept: give at least --trials 1"
        ));
    }
    let mut text = format!("{op}: every configuration failed, and nothing was kept");
    for t in found.trials.iter().take(50) {
        if let Err(f) = &t.result {
            text += &format!("\n  {}: {f}", one_line(&t.configuration));
        }
    }
    for (why, n) in &found.pruned {
        text += &format!("\n  {n} without compiling: {why}");
    }
    Error::Refused(text)
}

/// `searched; y.block m = 128; y.stages = 3`
pub fn one_line(c: &Configuration) -> String {
    let settings: Vec<&str> = c.schedule.lines().collect();
    let settings = if settings.is_empty() { "the forms' own choices".into() } else { settings.join("; ") };
    match c.fusion.as_str() {
        "" | "searched" => settings,
        other => format!("{other}: {settings}"),
    }
}

/// A configuration as it can be pasted: a `tile` block, or why none can say it and what does.
pub fn to_paste(tuned: &Tuned, c: &Configuration) -> String {
    let schedule = Schedule::parse(&c.schedule).unwrap_or_default();
    match no_tile_block(tuned, c, &schedule) {
        None => girih_autotune::space::tile_block(&tuned.key.op, tuned.target.name, &schedule),
        Some(why) => {
            let file = match c.fusion.as_str() {
                "" | "searched" => ", or give these lines to --schedule",
                _ => "",
            };
            let mut text =
                format!("// no tile block: {why}. Freeze it (--freeze, then girih run --locked){file}:\n");
            schedule.to_string().lines().for_each(|l| text += &format!("//   {l}\n"));
            text
        }
    }
}

/// Why no `tile` block can say a configuration.
fn no_tile_block(tuned: &Tuned, c: &Configuration, schedule: &Schedule) -> Option<String> {
    if !matches!(c.fusion.as_str(), "" | "searched") {
        return Some(format!("the winner fuses otherwise ({}), and blocks do not choose plans", c.fusion));
    }
    let word = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if let Some(hidden) = schedule.kernels.keys().find(|k| !word(k)) {
        return Some(format!("kernel {hidden} has no name in the program"));
    }
    let own = tuned.spaces.iter().find(|s| s.0 == "searched").or(tuned.spaces.first());
    let mut folds = own.into_iter().flat_map(|s| &s.1.kernels).filter(|k| k.form == Form::Fold);
    let fold = folds.find(|k| schedule.kernels.contains_key(&k.kernel))?;
    Some(format!("a block that speaks of {} keeps its chained products apart", fold.kernel))
}
