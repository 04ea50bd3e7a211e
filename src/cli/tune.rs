//! `girih tune`, and the worker that it starts.

use super::Outcome;
use super::args::{OpArgs, TuneArgs};
use super::run::choose;
use girih::bench::{self, kinds};
use girih::device::DeviceName;
use girih::package::Point;
use girih::tune::run::{self, Progress, Request, Tuned, one_line};
use girih::tune::worker::{Nothing, serve};
use girih::tune::{lock, profile, store};
use girih::{Device, Error, Kernel, Op, Result};
use girih_autotune::database::Record;
use girih_autotune::measure::{Limits, Starter};
use girih_autotune::protocol::Job;
use girih_autotune::search::Options;
use girih_autotune::{fixed, model, prune, space::Space};
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Write;

pub fn worker() -> Result<Outcome> {
    serve(std::io::stdin().lock(), std::io::stdout(), &mut Nothing)?;
    Ok(Outcome::Right)
}

pub fn tune(args: &TuneArgs) -> Result<Outcome> {
    if args.op.schedule.is_some() || args.op.form.is_some() {
        let remedy = "tune searches settings and forms itself: narrow them with a tile block";
        return Err(Error::argument(if args.op.form.is_some() { "form" } else { "schedule" }, remedy));
    }
    if let Some(suite) = &args.suite {
        return tune_suite(args, suite);
    }
    if args.only.is_some() {
        return Err(Error::argument("only", super::args::ONLY));
    }
    let points = covered(&args.op)?;
    if args.space {
        let point = points.first().ok_or_else(|| Error::argument("op", "there is none"))?;
        super::print(&space_text(args, &point.op)?);
        return Ok(Outcome::Right);
    }
    let several = points.len() > 1;
    let mut tuned = Vec::new();
    for point in &points {
        tuned.push((point.op.clone(), tune_one(args, &point.op, several)?));
        if point.count() > 1 {
            super::print(&format!(
                "  in a package these settings stand for {}, measured or not; sizes may get kernels of their own\n",
                point.text()
            ));
        }
    }
    between(&tuned)?;
    Ok(Outcome::Right)
}

/// Tunes each workload of a suite; one that cannot be tuned is told, and the others go on.
fn tune_suite(args: &TuneArgs, suite: &std::path::Path) -> Result<Outcome> {
    let kernel = Kernel::load(&args.op.file)?;
    let mut outcome = Outcome::Right;
    let mut records = Vec::new();
    for w in kinds::suite(suite, args.only.as_deref())? {
        let op = kinds::case(&w).and_then(|case| bench::op_of(&kernel, &case));
        let done = op.and_then(|op| match args.space {
            true => space_text(args, &op).map(|text| super::print(&format!("{}\n{text}", w.id))),
            false => tune_one(args, &op, true).map(|tuned| records.extend(tuned.record)),
        });
        match done {
            Ok(()) => {}
            Err(e) => {
                eprintln!("{}: {e}", w.id);
                outcome = Outcome::Wrong;
            }
        }
    }
    if !args.space {
        super::print(&over_all(&records));
    }
    Ok(outcome)
}

/// Geometric means of what the other choices take beside the best.
fn over_all(records: &[Record]) -> String {
    let mut text = String::new();
    for (what, us) in OTHERS {
        let logs: Vec<f64> = records.iter().filter(|r| us(r) > 0.0).map(|r| (us(r) / r.us).ln()).collect();
        let mean = (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp();
        let _ =
            writeln!(text, "{:+.1}% {what}, in the geometric mean of {}", 100.0 * (mean - 1.0), logs.len());
    }
    text
}

/// What the model expects to be lost between the points of a profile, where runs take the nearest record.
fn between(tuned: &[(Op, Tuned)]) -> Result<()> {
    let Some((first, _)) = tuned.first() else { return Ok(()) };
    for (name, (lo, hi)) in profile::ranges(first.kernel(), first.name()) {
        let size = |op: &Op| op.bindings().dims.get(&name).copied();
        let mut known: Vec<(i64, &Op, &Tuned)> =
            tuned.iter().filter_map(|(op, t)| Some((size(op)?, op, t))).collect();
        known.sort_by_key(|k| k.0);
        known.dedup_by_key(|k| k.0);
        let ends = [lo].into_iter().chain(known.iter().map(|k| k.0)).chain([hi]);
        let ends: Vec<i64> = ends.collect();
        for pair in ends.windows(2).filter(|p| p[1] > p[0] + 1) {
            let middle = (pair[0].max(1) as f64 * pair[1] as f64).sqrt() as i64;
            let near = known.iter().min_by_key(|k| (k.0 - middle).abs());
            let Some((at, op, t)) = near else { continue };
            let Some(record) = &t.record else { continue };
            let bound = (*op).clone().dim(&name, middle).bind()?;
            let text = match girih::tune::loss::expected(&bound, &t.target, &record.configuration)? {
                Some(loss) => format!("expected to lose {:.0}%", 100.0 * loss),
                None => "refused there; the forms choose".into(),
            };
            super::print(&format!("at {name}={middle} the choice for {name}={at} is {text}\n"));
        }
    }
    Ok(())
}

/// The op at the sizes that are given, else at each point of its profiles, with the sizes that a point stands for but for
/// those that are given.
pub fn covered(args: &OpArgs) -> Result<Vec<Point>> {
    let op = choose(args)?;
    op.kernel().check_profiles(op.name())?;
    let given = |name: &str| args.dims.iter().any(|d| d.0 == name) || args.consts.iter().any(|c| c.0 == name);
    let is_size = |name: &str| op.ast().sizes.iter().any(|s| s.name.text == name);
    let with = |point: &profile::Point| {
        point.iter().filter(|(name, _)| !given(name)).fold(op.clone(), |op, (name, value)| {
            match value.parse() {
                Ok(n) if is_size(name) => op.dim(name, n),
                _ => op.constant(name, value),
            }
        })
    };
    let mut made: Vec<Point> = Vec::new();
    for (point, around) in profile::points_and_ranges(op.kernel(), op.name()) {
        let ranges = around.into_iter().filter(|(name, _)| is_size(name) && !given(name));
        let point =
            Point { op: with(&point), covers: ranges.map(|(name, (lo, hi))| (name, lo, hi)).collect() };
        if !made.iter().any(|m| bound_alike(&m.op, &point.op)) {
            made.push(point);
        }
    }
    Ok(if made.is_empty() { vec![op.into()] } else { made })
}

fn bound_alike(a: &Op, b: &Op) -> bool {
    let (a, b) = (a.bindings(), b.bindings());
    a.dims == b.dims && a.consts == b.consts
}

fn request(args: &TuneArgs, op: &Op) -> Result<Request> {
    let program = std::env::current_exe().map_err(|e| Error::argument("girih", e.to_string()))?;
    let bindings = op.bindings();
    let cores = std::thread::available_parallelism().map_or(2, |n| n.get());
    Ok(Request {
        job: Job {
            file: args.op.file.display().to_string(),
            op: op.name().to_string(),
            dims: bindings.dims.clone(),
            consts: bindings.consts.clone(),
            target: args.op.target.map(|t| t.name.to_string()),
            seed: args.seed,
            ..Job::default()
        },
        devices: run::devices(&args.device)?,
        options: Options {
            trials: args.trials,
            shard: args.shard,
            seed: args.seed,
            exhaustive: args.exhaustive,
            exact: false,
        },
        budget: args.budget,
        starter: Starter { command: vec![program.into(), "tune-worker".into()], limits: Limits::default() },
        compilers: cores.saturating_sub(1).clamp(1, 12),
        force: args.force,
        bugs: store::database().own().and_then(|d| Some(d.parent()?.join("bugs"))),
    })
}

fn tune_one(args: &TuneArgs, op: &Op, several: bool) -> Result<Tuned> {
    let request = request(args, op)?;
    let bar = bar(args);
    let mut see = |p: &Progress| {
        bar.set_position(p.done as u64);
        let best = p.best_us.map_or(String::new(), |b| format!("best {b:.2} us"));
        bar.set_message(format!("{best}, {} failed, last: {}", p.failed, first_line(&p.last)));
    };
    let tuned = run::tune(&request, &store::database(), &mut see)?;
    bar.finish_and_clear();
    let Some(record) = &tuned.record else { return Err(run::all_failed(&tuned)) };
    super::print(&text(&tuned));
    if let Some(path) = &args.log {
        log(path, op, &tuned, several)?;
    }
    if let Some(path) = &args.report {
        let path = if several { report_name(path, &tuned) } else { path.clone() };
        let page = girih_autotune::report::page(&girih::tune::report::tuning(&tuned));
        std::fs::write(&path, page).map_err(|e| Error::file(&path, format!("cannot be written: {e}")))?;
        super::print(&format!("  report {}\n", path.display()));
    }
    if args.freeze {
        let path = lock::freeze(&args.op.file, &tuned.key, record)?;
        super::print(&format!("  frozen in {}\n", path.display()));
    }
    Ok(tuned)
}

/// A report's name for one of several points.
fn report_name(path: &std::path::Path, tuned: &Tuned) -> std::path::PathBuf {
    let shape: String = tuned.key.shape().chars().map(|c| if c == ' ' { '_' } else { c }).collect();
    let stem = path.file_stem().map_or(String::new(), |s| s.to_string_lossy().into_owned());
    path.with_file_name(format!("{stem}-{shape}.html"))
}

fn bar(args: &TuneArgs) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {elapsed} {pos} measured, {wide_msg}");
    let bar = match args.trials {
        Some(n) => ProgressBar::new(n.into()),
        None => ProgressBar::new_spinner(),
    };
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("")
}

/// What is told beside the best.
const OTHERS: [(&str, fn(&Record) -> f64); 3] = [
    ("untuned (the forms' own choices)", |r| r.default_us),
    ("the model's choice alone", |r| r.model_us),
    ("the fixed default of each form", |r| r.fixed_us),
];

/// The other choices' times, with how much longer they take than the best.
fn beside_it(r: &Record) -> String {
    let known = OTHERS.iter().map(|(what, us)| (what, us(r))).filter(|o| o.1 > 0.0);
    known.map(|(what, us)| format!("\n  {us:.2} us ({:+.1}%) {what}", 100.0 * (us / r.us - 1.0))).collect()
}

/// What was found, for people.
fn text(tuned: &Tuned) -> String {
    let Some(r) = &tuned.record else { return String::new() };
    let mut s = String::new();
    let known = if tuned.known { " (known; --force tunes again)" } else { "" };
    let _ = writeln!(s, "{} at {} on {}{known}", tuned.key.op, tuned.key.shape(), tuned.key.device);
    let _ = writeln!(s, "  best {:.2} us, predicted {:.2} us{}", r.us, r.predicted_us, beside_it(r));
    let _ = writeln!(s, "  {}", one_line(&r.configuration));
    let found = &tuned.found;
    if !tuned.known {
        let pruned: usize = found.pruned.values().sum();
        let (tried, failed) = (r.trials, r.failed);
        let _ = writeln!(
            s,
            "  {} points looked at, {pruned} pruned, {tried} measured, {failed} failed, in {:.1} s",
            found.lowered, r.seconds
        );
        if let Some(c) = girih::tune::report::rank_correlation(found) {
            let _ = writeln!(s, "  rank correlation of the model with the times: {c:.2}");
        }
    }
    for n in tuned.notes.iter().chain(&r.notes) {
        let _ = writeln!(s, "  note: {n}");
    }
    for b in &tuned.bugs {
        let _ = writeln!(s, "  WRONG VALUES, please report: {}", b.display());
    }
    s + &run::to_paste(tuned, &r.configuration)
}

/// Every measurement, a JSON value a line.
fn log(path: &std::path::Path, op: &Op, tuned: &Tuned, append: bool) -> Result<()> {
    let mut text = String::new();
    for t in &tuned.found.trials {
        let (us, why) = match &t.result {
            Ok(s) => (Some(s.us), None),
            Err(f) => (None, Some(f.to_string())),
        };
        let row = serde_json::json!({
            "op": tuned.key.op, "dims": tuned.key.dims, "consts": op.bindings().consts, "arguments": tuned.key.arguments,
            "device": tuned.key.device, "fusion": t.configuration.fusion, "schedule": t.configuration.schedule,
            "predicted_us": t.predicted, "us": us, "calls": t.calls, "failure": why,
        });
        text += &format!("{row}\n");
    }
    let failed = |e: std::io::Error| Error::file(path, format!("cannot be written: {e}"));
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .write(true)
        .append(append)
        .truncate(!append)
        .open(path)
        .map_err(failed)?;
    std::io::Write::write_all(&mut file, text.as_bytes()).map_err(failed)
}

/// Points of the space that are listed with their predicted times.
const LISTED: usize = 10;

fn space_text(args: &TuneArgs, op: &Op) -> Result<String> {
    let device = Device::open(DeviceName::Sim, args.op.target)?;
    let (bound, target) = (op.bind()?, device.target()?);
    let plan = bound.plan(&device)?;
    let space = Space::of(&plan, &target);
    space.check(&plan, &target).map_err(|e| Error::Refused(e.to_string()))?;
    let mut text = space.to_string();
    for k in &space.kernels {
        let mut rows = Vec::new();
        let mut refused = 0;
        for p in k.points().take(args.exhaustive.unwrap_or(500) as usize) {
            match prune::judge(&plan, &target, &k.schedule(p)) {
                Ok(program) => rows.push((model::predict(&program, &target), p)),
                Err(_) => refused += 1,
            }
        }
        rows.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        rows.dedup_by(|a, b| a.0 == b.0);
        let _ = writeln!(
            text,
            "kernel {}: of the first {} points {refused} are refused; predicted for the whole op:",
            k.kernel,
            refused + rows.len()
        );
        for (us, p) in rows.iter().take(LISTED) {
            let s = settings(&k.schedule(*p));
            let _ =
                writeln!(text, "  {us:9.2} us  {}", if s.is_empty() { "the form's own choice" } else { &s });
        }
    }
    let fixed = fixed::schedule(&plan, &target, &space);
    if let Ok(program) = prune::judge(&plan, &target, &fixed) {
        let settings = settings(&fixed);
        let _ = writeln!(
            text,
            "the fixed default of each form: {:.2} us  {}",
            model::predict(&program, &target),
            if settings.is_empty() { "no settings" } else { &settings }
        );
    }
    Ok(text + &other_plans(&bound, &target)?)
}

/// A schedule on one line.
fn settings(schedule: &girih_compiler::lower::Schedule) -> String {
    schedule.to_string().lines().collect::<Vec<_>>().join("; ")
}

/// The other plans that are searched, with their kernels.
fn other_plans(bound: &girih::BoundOp, target: &girih_compiler::vocab::target::Target) -> Result<String> {
    let mut text = String::new();
    for (name, plan) in run::plans(bound, *target)?.iter().skip(1) {
        let kernels: Vec<String> =
            plan.kernels.iter().map(|k| format!("{} ({})", k.name, k.form.name())).collect();
        let program = prune::judge(plan, target, &Default::default());
        let us = program.map_or("refused".into(), |p| format!("{:.2} us", model::predict(&p, target)));
        let _ = writeln!(text, "or fused otherwise, {name}: {us}, {}", kernels.join(", "));
    }
    Ok(text)
}
