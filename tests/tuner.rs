//! The whole tuner without a GPU: on the simulator's counters, with worker processes, a store and a lock file.
//!
//! This program is also the worker of its own tests: `--worker PLANT` serves as `girih tune-worker` does, with a fault
//! planted in the configuration whose schedule is the planted text.

use girih::tune::run::{Request, Tuned, all_failed, tune};
use girih::tune::worker::{Plant, serve};
use girih::{Device, HostTensor, Inputs, Kernel, RunOptions};
use girih_autotune::database::{Database, Key, Record};
use girih_autotune::measure::{Limits, Starter};
use girih_autotune::protocol::{self, FailureKind, Job, Task};
use girih_autotune::search::Options;
use girih_compiler::ir::program::Program;
use girih_compiler::ir::simt::{Expr, IntOp, Stmt};
use girih_compiler::vocab::dtype::{DType, Value};
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

#[path = "tuner/packages.rs"]
mod packages;

fn main() {
    let mut words = std::env::args().skip_while(|a| a != "--worker");
    if let Some(fault) = words.nth(1) {
        let text = std::env::args().skip_while(|a| a != "--worker").nth(2).unwrap_or_default();
        let mut plant = Planted { fault, text };
        let served = serve(std::io::stdin().lock(), std::io::stdout(), &mut plant);
        std::process::exit(i32::from(served.is_err()));
    }
    let trials = vec![
        Trial::test("a_tuning_is_kept_and_used", kept_and_used),
        Trial::test("an_op_that_updates_in_place_is_tuned_on_copies", in_place),
        Trial::test("a_fast_but_wrong_candidate_is_reported_and_never_wins", wrong),
        Trial::test("every_candidate_fails", every_candidate_fails),
        Trial::test("a_candidate_that_faults_costs_itself_only", || {
            planted_in_one("fault", FailureKind::Fault)
        }),
        Trial::test("a_candidate_that_crashes_costs_itself_only", || {
            planted_in_one("crash", FailureKind::Crash)
        }),
        Trial::test("a_candidate_that_hangs_costs_itself_only", || planted_in_one("hang", FailureKind::Hang)),
        Trial::test("an_endless_compile_is_cut", endless_compile),
        Trial::test("a_lock_file_allows_nothing_else", locked),
        Trial::test("a_run_never_measures", no_tune_mode),
        Trial::test("other_plans_are_searched_kept_and_used", other_plans),
        Trial::test("parts_of_a_space_are_merged", shards),
        Trial::test("a_shipped_store_lies_under_the_users", layered),
        Trial::test("what_is_no_store_or_record_is_refused", wrong_words),
        Trial::test("a_better_record_stays", better_stays),
        Trial::test("sixteen_processes_tune_into_one_store", sixteen_processes),
        Trial::test("killing_the_tuner_loses_nothing", killed),
        Trial::test("profiles_are_tuned_and_neighbours_used", profiles),
        Trial::test("a_look_up_takes_less_than_a_microsecond", dispatch),
        Trial::test("a_package_holds_all_that_its_schema_wants", packages::package),
        Trial::test("what_the_simulator_chose_enters_no_package", packages::no_simulated_choice),
        Trial::test("one_code_takes_all_sizes_of_a_bucket", packages::sizes_as_arguments),
        Trial::test("a_c_program_finds_its_numbers_by_its_sizes", packages::c_numbers),
        Trial::test("a_c_program_launches_a_package", packages::c_program),
        Trial::test("a_compiler_that_crashes_or_hangs_is_an_error", compiler_dies),
        Trial::test("a_gpu_is_timed_with_a_cold_cache", cold),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A fault for the configuration with this schedule (empty: for all).
struct Planted {
    fault: String,
    text: String,
}

impl Planted {
    fn is_in(&self, r: &protocol::Request) -> bool {
        self.text.is_empty() || r.configuration.schedule.trim() == self.text
    }
}

impl Plant for Planted {
    fn before(&mut self, r: &protocol::Request) {
        if !self.is_in(r) {
            return;
        }
        match (self.fault.as_str(), &r.task) {
            ("crash", Task::Measure { .. }) => std::process::abort(),
            ("hang", Task::Measure { .. }) | ("slow", Task::Compile) => {
                std::thread::sleep(Duration::from_secs(600))
            }
            _ => {}
        }
    }

    fn change(&mut self, r: &protocol::Request, program: &mut Program) -> bool {
        if !self.is_in(r) {
            return false;
        }
        let k = &mut program.kernels[0];
        match self.fault.as_str() {
            // Faster than the sum, and wrong.
            "wrong" => each_store(&mut k.body, &|s| match s {
                Stmt::Store(_, _, v) => *v = Expr::Lit(Value::F32(0.25)),
                Stmt::StoreVec { index, .. } => *index = Expr::Lit(Value::I32(0)),
                _ => {}
            }),
            "fault" => each_store(&mut k.body, &|s| {
                if let Stmt::Store(_, index, _) | Stmt::StoreVec { index, .. } = s {
                    let far = Expr::Lit(Value::I32(1 << 28));
                    *index = Expr::Int(IntOp::Add, Box::new(index.clone()), Box::new(far));
                }
            }),
            _ => return false,
        }
        true
    }
}

/// Changes every store.
fn each_store(body: &mut [Stmt], change: &dyn Fn(&mut Stmt)) {
    for s in body {
        match s {
            Stmt::For { body, .. } | Stmt::While { body, .. } => each_store(body, change),
            Stmt::If { then, otherwise, .. } => {
                each_store(then, change);
                each_store(otherwise, change);
            }
            other => change(other),
        }
    }
}

const MAP: &str = "op f[N](x: f32[N]) -> (y: f32[N]) { y[i] = 2 * x[i] + 1 }\n";

struct Place {
    dir: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Place {
    fn new(name: &str, text: &str) -> Place {
        let dir = std::env::temp_dir().join(format!("girih-tuner-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("the temporary folder can be written");
        std::fs::write(dir.join("f.tile"), text).expect("the temporary folder can be written");
        Place { dir }
    }

    fn file(&self) -> PathBuf {
        self.dir.join("f.tile")
    }

    fn database(&self) -> Database {
        Database::new(Some(self.dir.join("cache/tuned")), Vec::new())
    }

    /// `girih` with this place's store.
    fn girih(&self, arguments: &[&str]) -> Command {
        let mut c = Command::new(env!("CARGO_BIN_EXE_girih"));
        c.args(arguments).current_dir(&self.dir).env("GIRIH_CACHE", self.dir.join("cache"));
        c
    }

    fn says(&self, arguments: &[&str]) -> Result<String, Failed> {
        let out = self.girih(arguments).output()?;
        let (out_text, err) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        match out.status.success() {
            true => Ok(format!("{out_text}{err}")),
            false => Err(format!("{arguments:?}: {err}{out_text}").into()),
        }
    }

    fn request(&self, n: i64, plant: &[&str]) -> Result<Request, Failed> {
        let mut command = vec![std::env::current_exe()?.into_os_string()];
        command.push("--worker".into());
        command.extend(plant.iter().map(std::ffi::OsString::from));
        Ok(Request {
            job: Job {
                file: self.file().display().to_string(),
                op: "f".into(),
                dims: [("N".to_string(), n)].into(),
                device: "sim".into(),
                ..Job::default()
            },
            devices: vec!["sim".into()],
            options: Options { trials: Some(30), shard: None, seed: 0, exhaustive: None, exact: true },
            budget: None,
            starter: Starter {
                command,
                limits: Limits { run: Duration::from_secs(20), ..Limits::default() },
            },
            compilers: 0,
            force: false,
            bugs: Some(self.dir.join("bugs")),
        })
    }

    fn tune(&self, request: &Request) -> Result<Tuned, Failed> {
        tune(request, &self.database(), &mut |_| ()).map_err(|e| e.to_string().into())
    }
}

fn record(t: &Tuned) -> Result<&Record, Failed> {
    t.record.as_ref().ok_or_else(|| all_failed(t).to_string().into())
}

fn holds(what: bool, why: impl std::fmt::Display) -> Result<(), Failed> {
    if what { Ok(()) } else { Err(why.to_string().into()) }
}

fn kept_and_used() -> Result<(), Failed> {
    let place = Place::new("kept", MAP);
    let first = place.says(&[
        "tune", "f.tile", "--dim", "N=5000", "--device", "sim", "--trials", "12", "--report", "r.html",
    ])?;
    holds(first.contains("measured") && first.contains("best"), &first)?;
    let page = std::fs::read_to_string(place.dir.join("r.html"))?;
    holds(page.contains("<svg") && page.contains("Roofline") && !page.contains("http"), &page)?;
    let again = place.says(&["tune", "f.tile", "--dim", "N=5000", "--device", "sim"])?;
    holds(again.contains("known"), &again)?;
    let run = place.says(&["run", "f.tile", "--dim", "N=5000", "--device", "sim", "--check"])?;
    holds(run.contains("tuned: ") && run.contains("check y: right"), &run)?;
    // Neither where the file lies nor a comment in it makes a record stale; a `tile` block is another question.
    std::fs::create_dir_all(place.dir.join("elsewhere"))?;
    let moved = |name: &str, text: String| -> Result<String, Failed> {
        std::fs::write(place.dir.join(name), text)?;
        place.says(&["run", name, "--dim", "N=5000", "--device", "sim", "--check"])
    };
    let run = moved("elsewhere/g.tile", format!("// a comment\n\n{MAP}"))?;
    holds(run.contains("tuned: ") && run.contains("check y: right"), &run)?;
    let run = moved("pinned.tile", format!("{MAP}\ntile f {{ threads = 64 }}\n"))?;
    holds(!run.contains("tuned") && run.contains("block 64x"), &run)?;
    let list = place.says(&["db", "list"])?;
    holds(list.contains("N=5000"), &list)?;
    place.says(&["db", "export", "shipped"])?;
    let shipped = place
        .girih(&["run", "f.tile", "--dim", "N=5000", "--device", "sim"])
        .env("GIRIH_CACHE", place.dir.join("empty"))
        .env("GIRIH_TUNED", place.dir.join("shipped"))
        .output()?;
    let shipped = String::from_utf8_lossy(&shipped.stdout).into_owned();
    holds(shipped.contains("tuned: "), &shipped)?;
    let space = place.says(&["tune", "f.tile", "--dim", "N=5000", "--space"])?;
    holds(space.contains("threads = {"), &space)?;
    // Another text of the program is another key; damage is a miss with a note.
    for e in place.database().all(&mut Vec::new()) {
        std::fs::write(&e.path, b"damaged")?;
    }
    let run = place.says(&["run", "f.tile", "--dim", "N=5000", "--device", "sim"])?;
    holds(run.contains("is no tuning record") && !run.contains("tuned: "), &run)
}

/// Fault C01.
fn in_place() -> Result<(), Failed> {
    let place =
        Place::new("in-place", "op f[N](inout x: f32[N]) { x[i] = if x[i] > 0 then x[i] else 0.5 * x[i] }");
    let tuned = place.tune(&place.request(999, &["none"])?)?;
    record(&tuned)?;
    holds(tuned.found.trials.len() > 3, "several candidates ran")?;
    let kernel = Kernel::load(place.file()).map_err(|e| e.to_string())?;
    let op = kernel.op("f").and_then(|op| op.dim("N", 999).bind()).map_err(|e| e.to_string())?;
    let (choice, device) = (&record(&tuned)?.configuration, Device::sim());
    let op = girih::tune::choose::configured(&op, choice).ok_or("the record is no configuration")?;
    let compiled = op.compile(&device).map_err(|e| e.to_string())?;
    for _ in 0..2 {
        let x = HostTensor::from_f64(DType::F32, &[999], &vec![-1.0; 999]);
        let inputs = Inputs { tensors: [("x".to_string(), x)].into(), ..Inputs::default() };
        let ran = compiled.run(&inputs, &RunOptions::default()).map_err(|e| e.to_string())?;
        let right = HostTensor::from_f64(DType::F32, &[999], &vec![-0.5; 999]);
        holds(ran.outputs["x"] == right, "every value is -0.5")?;
    }
    Ok(())
}

/// Fault C03.
fn wrong() -> Result<(), Failed> {
    let place = Place::new("wrong", MAP);
    let tuned = place.tune(&place.request(4096, &["wrong", "y.threads = 64"])?)?;
    let best = record(&tuned)?;
    holds(best.configuration.schedule.trim() != "y.threads = 64", &best.configuration.schedule)?;
    let wrong =
        tuned.found.trials.iter().filter(|t| matches!(&t.result, Err(f) if f.kind == FailureKind::Wrong));
    holds(wrong.count() > 0 && !tuned.bugs.is_empty(), "the wrong ones are known")?;
    for file in ["op.tile", "schedule.txt", "report.txt"] {
        holds(tuned.bugs[0].join(file).exists(), file)?;
    }
    let report = std::fs::read_to_string(tuned.bugs[0].join("report.txt"))?;
    holds(report.contains("seed 0") && report.contains("wrong"), &report)
}

/// Fault C05.
fn every_candidate_fails() -> Result<(), Failed> {
    let place = Place::new("all", MAP);
    let tuned = place.tune(&place.request(4096, &["crash", ""])?)?;
    holds(tuned.record.is_none(), "nothing won")?;
    let text = all_failed(&tuned).to_string();
    holds(text.matches("crashes").count() == tuned.found.trials.len(), &text)?;
    holds(place.database().all(&mut Vec::new()).is_empty(), "nothing was kept")?;
    // The forms' own choice still runs.
    let run = place.says(&["run", "f.tile", "--dim", "N=4096", "--device", "sim", "--check"])?;
    holds(run.contains("right"), &run)
}

/// Faults C11 and C19: planted in one of the candidates.
fn planted_in_one(fault: &str, kind: FailureKind) -> Result<(), Failed> {
    for planted in ["threads = 64", "threads = 512"] {
        let place = Place::new(&format!("{fault}-{}", &planted[10..]), MAP);
        let text = format!("y.{planted}");
        let mut request = place.request(4096, &[fault, &text])?;
        request.starter.limits.run = Duration::from_secs(if fault == "hang" { 3 } else { 20 });
        let tuned = place.tune(&request)?;
        let best = record(&tuned)?;
        let failed: Vec<_> = tuned.found.trials.iter().filter(|t| t.result.is_err()).collect();
        holds(failed.len() == 1, format!("{} failed under {planted}", failed.len()))?;
        holds(
            failed.iter().all(|t| matches!(&t.result, Err(f) if f.kind == kind)),
            format!("{:?}", failed[0].result),
        )?;
        holds(tuned.found.trials.len() > 8 && best.us > 0.0, "the others were measured")?;
    }
    Ok(())
}

/// Fault C19, while compiling. Only where NVRTC is: the others are really compiled.
fn endless_compile() -> Result<(), Failed> {
    if girih::runtime::locate::nvrtc().is_err() {
        eprintln!("skipped: an_endless_compile_is_cut needs NVRTC");
        return Ok(());
    }
    let place = Place::new("slow", MAP);
    let mut request = place.request(4096, &["slow", "y.threads = 64"])?;
    request.starter.limits.compile = Duration::from_secs(8);
    request.options.trials = Some(14);
    let mut pool_request = request.clone();
    pool_request.compilers = 1;
    let tuned =
        girih::tune::run::tune_compiling(&pool_request, &place.database()).map_err(|e| e.to_string())?;
    let slow = tuned
        .found
        .trials
        .iter()
        .filter(|t| matches!(&t.result, Err(f) if f.kind == FailureKind::SlowCompile));
    holds(slow.count() == 1 && tuned.record.is_some(), "the others were measured")
}

fn locked() -> Result<(), Failed> {
    let place = Place::new("locked", MAP);
    let missing =
        place.girih(&["run", "f.tile", "--dim", "N=100", "--device", "sim", "--locked"]).output()?;
    holds(!missing.status.success(), "there is no lock file yet")?;
    place.says(&["tune", "f.tile", "--dim", "N=100", "--device", "sim", "--trials", "4", "--freeze"])?;
    let run = place.says(&["run", "f.tile", "--dim", "N=100", "--device", "sim", "--locked", "--check"])?;
    holds(run.contains("locked: "), &run)?;
    for (other, word) in
        [(&["--dim", "N=101"][..], "N=101"), (&["--dim", "N=100", "--target", "sm_80"][..], "sm_80")]
    {
        let refused =
            place.girih(&[&["run", "f.tile", "--device", "sim", "--locked"][..], other].concat()).output()?;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        holds(!refused.status.success() && said.contains(word) && said.contains("--freeze"), &said)?;
    }
    std::fs::write(place.file(), MAP.replace("+ 1", "+ 3"))?;
    let refused =
        place.girih(&["run", "f.tile", "--dim", "N=100", "--device", "sim", "--locked"]).output()?;
    holds(String::from_utf8_lossy(&refused.stderr).contains("another text"), "another text is refused")
}

/// Fault C17: only `tune` measures, so ranks that run cannot disagree about who does.
fn no_tune_mode() -> Result<(), Failed> {
    let place = Place::new("no-tune", MAP);
    place.says(&["run", "f.tile", "--dim", "N=100", "--device", "sim"])?;
    holds(!place.dir.join("cache/tuned").exists(), "a run keeps no record")
}

const NORM: &str = "op f[M, N](x: f32[M, N]) -> (y: f32[M, N]) {
    mu[m] = mean[n](x[m, n])
    var[m] = mean[n]((x[m, n] - mu[m]) ** 2)
    y[m, n] = (x[m, n] - mu[m]) * rsqrt(var[m] + 1e-5)
}
";

/// A plan that is not the search's own is a coordinate of the space: tried, kept, run, frozen and built.
fn other_plans() -> Result<(), Failed> {
    let place = Place::new("plans", NORM);
    let text = |e: girih::Error| Failed::from(e.to_string());
    let kernel = Kernel::load(place.file()).map_err(text)?;
    let op = kernel.op("f").map_err(text)?.dim("M", 64).dim("N", 100);
    let (bound, device) = (op.bind().map_err(text)?, Device::sim());
    let plans = girih::tune::run::plans(&bound, device.target().map_err(text)?).map_err(text)?;
    let other = plans.iter().map(|p| p.0.clone()).find(|n| n.starts_with("plan "));
    let fusion = other.ok_or("the op has no other plan")?;
    let mut request = place.request(100, &["none"])?;
    request.job.dims.insert("M".into(), 64);
    let tuned = place.tune(&request)?;
    let tried = tuned.found.trials.iter().filter(|t| t.configuration.fusion == fusion && t.us().is_some());
    holds(tried.count() > 0, "the other plan is tried")?;

    let configuration = protocol::Configuration { fusion: fusion.clone(), schedule: String::new() };
    let configured = girih::tune::choose::configured(&bound, &configuration).ok_or("no configuration")?;
    let (made, own) =
        (configured.compile_as_is(&device).map_err(text)?, bound.compile_as_is(&device).map_err(text)?);
    let code = |c: &girih::Compiled| c.lowered().map(|l| l.cuda.clone()).unwrap_or_default();
    holds(code(&made) != code(&own), "the other plan is another program")?;
    let digest = girih::runtime::cache::code_digest(&code(&made));
    let record = Record { configuration, us: 1.0, code: digest, ..Record::default() };
    place.database().put(&tuned.key, &record)?;
    let sizes = ["--dim", "M=64", "--dim", "N=100"];
    let on_sim = [&["run", "f.tile", "--device", "sim", "--check"][..], &sizes].concat();
    let run = place.says(&on_sim)?;
    holds(run.contains("tuned: 1.0 us") && run.contains("right"), &run)?;
    girih::tune::lock::freeze(&place.file(), &tuned.key, &record).map_err(text)?;
    let run = place.says(&[&on_sim[..], &["--locked"]].concat())?;
    holds(run.contains("locked: 1.0 us") && run.contains("right"), &run)?;
    if girih::runtime::locate::nvrtc().is_err() {
        eprintln!("skipped: the package of other_plans_are_searched_kept_and_used needs NVRTC");
        return Ok(());
    }
    let built = || -> Result<girih::package::manifest::Bucket, Failed> {
        place.says(&[&["build", "f.tile", "--target", "sm_90a", "-o", "package"][..], &sizes].concat())?;
        let manifest = girih::package::read_manifest(&place.dir.join("package")).map_err(text)?;
        manifest.buckets.into_iter().next().ok_or_else(|| "no bucket".into())
    };
    // What the simulator's counters chose is not for a GPU.
    let bucket = built()?;
    holds(
        bucket.choice == "own" && bucket.fusion.is_empty(),
        format!("{} {}", bucket.choice, bucket.fusion),
    )?;
    let mut key = tuned.key.clone();
    key.device = "NVIDIA H200, 132 SMs, 139 GiB, driver 13000".into();
    girih::tune::lock::freeze(&place.file(), &key, &record).map_err(text)?;
    let bucket = built()?;
    holds(bucket.fusion == fusion && bucket.choice == "tuned", &bucket.fusion)
}

/// Parts of a space tuned into stores of their own, and into one: the fastest of all is what is left.
fn shards() -> Result<(), Failed> {
    let place = Place::new("shards", MAP);
    let tune = |part: &str, cache: &str| -> Result<f64, Failed> {
        let words =
            ["tune", "f.tile", "--dim", "N=70000", "--device", "sim", "--exhaustive", "40", "--shard", part];
        let out = place.girih(&words).env("GIRIH_CACHE", place.dir.join(cache)).output()?;
        holds(out.status.success(), String::from_utf8_lossy(&out.stderr))?;
        let all = Database::new(Some(place.dir.join(cache).join("tuned")), Vec::new()).all(&mut Vec::new());
        holds(all.len() == 1, "one record")?;
        Ok(all[0].record.us)
    };
    let (one, two) = (tune("1/2", "one")?, tune("2/2", "two")?);
    let said = place.says(&["db", "merge", "one", "two"])?;
    holds(said.contains("one: 1 taken") && said.contains("two: "), &said)?;
    let merged = place.database().all(&mut Vec::new());
    holds(merged.len() == 1 && merged[0].record.us == one.min(two), format!("{one} and {two}"))?;
    let again = place.says(&["db", "merge", "one", "two"])?;
    holds(again.matches("0 taken, 1 known as good").count() == 2, &again)?;
    // The same into one store: the slower part does not replace the faster one.
    let (first, second) = (tune("1/2", "shared")?, tune("2/2", "shared")?);
    holds(first == one && second == one.min(two), format!("{first} then {second}, of {one} and {two}"))
}

/// A read-only store is used, and neither changed nor preferred to the user's own.
fn layered() -> Result<(), Failed> {
    let place = Place::new("layered", MAP);
    place.says(&["tune", "f.tile", "--dim", "N=640", "--device", "sim", "--trials", "4"])?;
    place.says(&["db", "export", "shipped"])?;
    place.says(&["db", "prune", "--all"])?;
    let shipped = place.dir.join("shipped");
    let files = || -> Result<Vec<_>, Failed> {
        let all = Database::new(None, vec![shipped.clone()]).all(&mut Vec::new());
        holds(all.len() == 1, "the shipped store has one record")?;
        all.iter().map(|e| Ok((e.path.clone(), std::fs::read(&e.path)?))).collect()
    };
    let before = files()?;
    let lists = std::env::join_paths([place.dir.join("is-not-there"), shipped.clone()])?;
    let says = |words: &[&str]| -> Result<String, Failed> {
        let out = place.girih(words).env("GIRIH_TUNED", &lists).output()?;
        holds(out.status.success(), String::from_utf8_lossy(&out.stderr))?;
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let run = ["run", "f.tile", "--dim", "N=640", "--device", "sim"];
    let used = says(&run)?;
    holds(used.contains("tuned: "), used)?;
    let known = says(&["tune", "f.tile", "--dim", "N=640", "--device", "sim"])?;
    holds(known.contains("known"), known)?;
    // The user's own record comes first.
    says(&["tune", "f.tile", "--dim", "N=640", "--device", "sim", "--trials", "4", "--force"])?;
    let own = place.database().all(&mut Vec::new());
    let (entry, mut record) = (own.first().ok_or("it is kept in the user's store")?, own[0].record.clone());
    record.us = 123.0;
    place.database().put(&entry.key, &record)?;
    let used = says(&run)?;
    holds(used.contains("tuned: 123.0 us"), used)?;
    says(&["db", "prune", "--all"])?;
    holds(files()? == before, "the shipped store is as it was")?;
    let used = says(&run)?;
    holds(used.contains("tuned: ") && !used.contains("123.0"), used)
}

/// Wrong words on the command line are refused with the remedy, and nothing is written.
fn wrong_words() -> Result<(), Failed> {
    let place = Place::new("words", MAP);
    let refused = |words: &[&str], part: &str| -> Result<(), Failed> {
        let out = place.girih(words).output()?;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        holds(!out.status.success() && said.contains(part), format!("{words:?}: {said}"))
    };
    let tune =
        |more: &[&'static str]| [&["tune", "f.tile", "--dim", "N=64", "--device", "sim"][..], more].concat();
    for part in ["0/2", "3/2", "x", "1", "1/0"] {
        refused(&tune(&["--shard", part]), "I/N")?;
    }
    refused(&tune(&["--budget", "soon"]), "budget")?;
    refused(&tune(&["--budget", "1ms"]), "give at least --budget")?;
    refused(&tune(&["--schedule", "s.txt"]), "tile block")?;
    refused(&tune(&["--only", "softmax"]), "--suite")?;
    refused(&tune(&["--space", "--report", "r.html"]), "--report")?;
    std::fs::write(place.dir.join("suite.json"), "[]")?;
    refused(&["tune", "f.tile", "--suite", "suite.json", "--only", "f"], "none of 0 workloads")?;
    let environment = |name: &str, value: &str| -> Result<String, Failed> {
        let out = place.girih(&tune(&["--space"])).env(name, value).output()?;
        Ok(format!("{} {}", out.status.success(), String::from_utf8_lossy(&out.stderr)))
    };
    for name in ["GIRIH_COMPILE_LIMIT", "GIRIH_CACHE_MAX"] {
        let said = environment(name, "10 min")?;
        holds(said.starts_with("false") && said.contains(&format!("{name}: `10 min`")), said)?;
    }
    let said = environment("GIRIH_TUNED", "/is/not/there")?;
    holds(said.starts_with("true") && said.contains("/is/not/there, which is no folder"), said)?;
    refused(&["tune", "f.tile", "--dim", "N=64", "--device", "sim,cuda:0"], "cuda:0,cuda:1")?;
    refused(&["db", "merge", "is-not-there"], "no folder")?;
    refused(&["db", "merge"], "FOLDERS")?;
    refused(&["db", "show", "abc"], "girih db list")?;
    std::fs::write(place.dir.join("f.lock"), "{ \"version\": 1 }")?;
    refused(&["run", "f.tile", "--dim", "N=64", "--device", "sim", "--locked"], "--freeze")?;
    std::fs::write(place.dir.join("f.lock"), "{ \"version\": 7, \"entries\": [] }")?;
    refused(&["run", "f.tile", "--dim", "N=64", "--device", "sim", "--locked"], "format 7")?;
    holds(place.database().all(&mut Vec::new()).is_empty(), "nothing is kept")?;
    // Damaged records of another store are told and not taken.
    let folder = place.dir.join("other").join("0123456789abcdef0123456789abcdef");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("0123456789abcdef0123456789abcdef"), b"nothing")?;
    let said = place.says(&["db", "merge", "other"])?;
    holds(said.contains("0 taken") && said.contains("is no tuning record"), said)
}

/// Damaged files in the store, and its records.
fn look(place: &Place) -> Result<usize, Failed> {
    let mut notes = Vec::new();
    let all = place.database().all(&mut notes);
    holds(notes.is_empty(), format!("{notes:?}"))?;
    Ok(all.len())
}

/// A tuning that comes to less than the record that is there leaves it, and says so; one that comes to it measures it again.
fn better_stays() -> Result<(), Failed> {
    let place = Place::new("better", MAP);
    let tune = ["tune", "f.tile", "--dim", "N=65", "--device", "sim"];
    place.says(&tune)?;
    let only = || -> Result<(Key, Record), Failed> {
        let all = place.database().all(&mut Vec::new());
        holds(all.len() == 1, all.len())?;
        Ok((all[0].key.clone(), all[0].record.clone()))
    };
    let (key, best) = only()?;
    holds(!best.configuration.schedule.is_empty(), "the forms' own choice is not the best here")?;
    let said = place.says(&[&tune[..], &["--force", "--trials", "1"]].concat())?;
    holds(said.contains("a faster one") && only()?.1 == best, &said)?;
    // With room for it, it is measured beside the others, whatever its record says.
    place.database().put(&key, &Record { us: 1e-3, ..best.clone() })?;
    place.says(&[&tune[..], &["--force", "--trials", "6"]].concat())?;
    let (_, again) = only()?;
    holds(again.configuration == best.configuration && again.us == best.us, format!("{again:?}"))
}

/// Fault C09: as many processes at once, each shape by several of them.
fn sixteen_processes() -> Result<(), Failed> {
    let place = Place::new("sixteen", MAP);
    for round in 0..rounds("GIRIH_ROUNDS", 2)? {
        let start = |n: u64| {
            let size = format!("N={}", 64 + n % 2);
            let arguments = ["tune", "f.tile", "--dim", &size, "--device", "sim", "--trials", "4", "--force"];
            place.girih(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
        };
        let children: Vec<_> = (0..16).map(start).collect::<Result<_, _>>()?;
        for c in children {
            let out = c.wait_with_output()?;
            holds(out.status.success(), String::from_utf8_lossy(&out.stderr))?;
        }
        holds(look(&place)? == 2, format!("two shapes are known after round {round}"))?;
    }
    Ok(())
}

/// How often, if the environment says more than what every run of the tests has the time for.
fn rounds(name: &str, usual: u64) -> Result<u64, Failed> {
    match std::env::var(name) {
        Ok(said) => said.parse().map_err(|_| format!("{name}: `{said}` is no number of rounds").into()),
        Err(_) => Ok(usual),
    }
}

/// Killed at moments that are spread over a tuning of several shapes: what was finished stays, nothing is damaged.
/// `GIRIH_KILLS` says how often.
fn killed() -> Result<(), Failed> {
    let rounds = rounds("GIRIH_KILLS", 50)?;
    let text = format!(
        "{MAP}profile f N = {{{}}}\n",
        (100..140).map(|n| n.to_string()).collect::<Vec<_>>().join(", ")
    );
    let place = Place::new("killed", &text);
    let mut before = 0;
    let tune = ["tune", "f.tile", "--device", "sim", "--trials", "2"];
    for round in 0..rounds {
        // Some rounds write again what is known, so that kills meet writers whatever was finished before.
        let again = if round % 2 == 1 { &["--force"][..] } else { &[] };
        let mut child =
            place.girih(&[&tune[..], again].concat()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        std::thread::sleep(Duration::from_millis(20 + round * 7919 % 400));
        child.kill()?;
        child.wait()?;
        let now = look(&place)?;
        holds(now >= before, format!("{before} were known and now {now}"))?;
        before = now;
    }
    holds(before > 0, "something was finished in between")
}

fn profiles() -> Result<(), Failed> {
    let place = Place::new("profiles", &format!("{MAP}profile f N = 1..=9000 at {{500, 4000}}\n"));
    let said = place.says(&["tune", "f.tile", "--device", "sim", "--trials", "4"])?;
    holds(said.contains("expected to lose"), &said)?;
    holds(look(&place)? == 2, "both points are known")?;
    let near = place.says(&["run", "f.tile", "--dim", "N=3500", "--device", "sim", "--check"])?;
    holds(near.contains("right"), &near)?;
    let far = place.says(&["run", "f.tile", "--dim", "N=7", "--device", "sim", "--check"])?;
    holds(far.contains("right") && !far.contains("tuned"), &far)
}

fn dispatch() -> Result<(), Failed> {
    let kernel = Kernel::from_text("f.tile", MAP).map_err(|e| e.to_string())?;
    let mut shapes = girih::tune::choose::Dispatch::new(&kernel, "f", &["N"], &[], &Device::sim())
        .map_err(|e| e.to_string())?;
    for n in [16, 100, 4000] {
        shapes.get(&[n]).map_err(|e| e.to_string())?;
    }
    let start = std::time::Instant::now();
    const TIMES: u32 = 30_000;
    for i in 0..TIMES {
        let n = [16, 100, 4000][i as usize % 3];
        std::hint::black_box(shapes.get(&[n]).map_err(|e| e.to_string())?);
    }
    let each = start.elapsed() / TIMES;
    // Without optimisation it says little.
    let most = Duration::from_nanos(if cfg!(debug_assertions) { 20_000 } else { 1_000 });
    holds(each < most, format!("{each:?}"))
}

/// An NVRTC of the newest version whose compile does as `DIES` says.
const FAKE_NVRTC: &str = r#"
#include <stdlib.h>
#include <unistd.h>
int nvrtcVersion(int *a, int *b) { *a = 13; *b = 0; return 0; }
int nvrtcGetNumSupportedArchs(int *n) { *n = 1; return 0; }
int nvrtcGetSupportedArchs(int *a) { a[0] = 90; return 0; }
int nvrtcCreateProgram(void **p, const char *s, const char *n, int c, const char *const *h, const char *const *i) { (void)s; (void)n; (void)c; (void)h; (void)i; *p = 0; return 0; }
int nvrtcDestroyProgram(void **p) { (void)p; return 0; }
int nvrtcCompileProgram(void *p, int n, const char *const *o) { (void)p; (void)n; (void)o; if (getenv("DIES")[0] == 'h') for (;;) pause(); abort(); }
int nvrtcGetProgramLogSize(void *p, size_t *n) { (void)p; *n = 0; return 0; }
int nvrtcGetProgramLog(void *p, char *t) { (void)p; (void)t; return 0; }
int nvrtcGetCUBINSize(void *p, size_t *n) { (void)p; *n = 0; return 0; }
int nvrtcGetCUBIN(void *p, char *t) { (void)p; (void)t; return 0; }
int nvrtcGetPTXSize(void *p, size_t *n) { (void)p; *n = 0; return 0; }
int nvrtcGetPTX(void *p, char *t) { (void)p; (void)t; return 0; }
const char *nvrtcGetErrorString(int e) { (void)e; return "fake"; }
"#;

/// Fault C19, outside of the tuner: a crash or an endless compile is one error, and the program lives.
fn compiler_dies() -> Result<(), Failed> {
    let place = Place::new("dies", MAP);
    std::fs::write(place.dir.join("fake.c"), FAKE_NVRTC)?;
    let words = ["-shared", "-fPIC", "-o", "libnvrtc.so", "fake.c"];
    match Command::new("cc").args(words).current_dir(&place.dir).status() {
        Ok(made) => holds(made.success(), "the library is made")?,
        Err(_) => {
            eprintln!("skipped: a_compiler_that_crashes_or_hangs_is_an_error needs cc");
            return Ok(());
        }
    }
    let commands: [&[&str]; 2] = [
        &["emit", "f.tile", "--dim", "N=64", "--stage", "ptx"],
        &["build", "f.tile", "--dim", "N=64", "--target", "sm_90a", "-o", "package"],
    ];
    for (dies, words) in [("crash", "crashed"), ("hang", "did not end within 1 s")] {
        for command in commands {
            let start = std::time::Instant::now();
            let out = place
                .girih(command)
                .env("GIRIH_NVRTC", place.dir.join("libnvrtc.so"))
                .env("GIRIH_COMPILE_LIMIT", "1")
                .env("DIES", dies)
                .output()?;
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            holds(out.status.code() == Some(1), format!("{command:?}: {:?} {said}", out.status))?;
            holds(said.contains(words) && said.contains("while it compiled f"), &said)?;
            holds(said.starts_with("error: ") && said.trim_end().lines().count() == 1, said)?;
            holds(start.elapsed() < Duration::from_secs(60), "it ends")?;
        }
    }
    Ok(())
}

/// Fault C13: warm, a reader of 8 MiB would be far faster than memory allows.
fn cold() -> Result<(), Failed> {
    if girih::runtime::device::count().unwrap_or(0) == 0 {
        eprintln!("skipped: a_gpu_is_timed_with_a_cold_cache needs a GPU");
        return Ok(());
    }
    let place = Place::new("cold", MAP);
    let n = 2 << 20;
    let dim = format!("N={n}");
    let said = place.says(&["tune", "f.tile", "--dim", &dim, "--device", "cuda", "--budget", "10s"])?;
    let best =
        said.split("best ").nth(1).and_then(|t| t.split(' ').next()).and_then(|t| t.parse::<f64>().ok());
    let best = best.ok_or_else(|| said.clone())?;
    let bytes = 8.0 * n as f64;
    holds(bytes / best < 6e6, format!("{:.0} GB/s is no device memory's speed", bytes / best / 1e3))?;
    holds(said.contains("made cold with"), said)
}
