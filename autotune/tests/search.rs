//! The search against benches that are made up: times from a formula, failures where a test wants them.

use girih_autotune::fixed;
use girih_autotune::measure::Answers;
use girih_autotune::protocol::*;
use girih_autotune::prune;
use girih_autotune::search::{Bench, Found, Options, Problem, search};
use girih_autotune::space::Space;
use girih_compiler::ir::plan::Plan;
use girih_compiler::lower::{Schedule, plan_to_program};
use girih_compiler::pass::ast_to_graph::{Bindings, bind};
use girih_compiler::pass::graph_to_plan::{PlanOptions, plan};
use girih_compiler::pass::module;
use girih_compiler::vocab::target::Target;
use girih_dsl::source::Sources;
use std::collections::{BTreeMap, BTreeSet};

const MAP: &str = "op f[N](x: f32[N]) -> (y: f32[N]) { y[i] = 2 * x[i] }";
const PRODUCT: &str =
    "op f[M, N, K](x: bf16[M, K], w: bf16[N, K]) -> (y: bf16[M, N]) { y[m, n] = sum[k](x[m, k] * w[n, k]) }";

fn planned(text: &str, dims: &[(&str, i64)]) -> (Plan, Sources) {
    let mut sources = Sources::default();
    let module = module::load("f.tile", text, &mut sources, &|_| Err("no files".into())).expect("it loads");
    let dims = dims.iter().map(|(k, n)| (k.to_string(), *n)).collect();
    let bound = bind(&module, "f", &Bindings { dims, ..Bindings::default() }).expect("it binds");
    (plan(&bound.graph, &PlanOptions::default()), sources)
}

fn target() -> Target {
    *Target::parse("sm_90a").expect("a target of the table")
}

const OPTIONS: Options = Options { trials: Some(60), shard: None, seed: 1, exhaustive: None, exact: false };

/// Answers by a formula; counts what it was asked.
struct Made<F: FnMut(&Request) -> Result<Done, Failure>> {
    answer: F,
    asked: usize,
}

impl<F: FnMut(&Request) -> Result<Done, Failure>> Bench for Made<F> {
    fn run(&mut self, requests: Vec<Request>) -> Answers {
        self.asked += requests.len();
        requests.iter().map(|r| (r.id, (self.answer)(r))).collect()
    }

    fn over(&self) -> bool {
        false
    }
}

fn us(us: f64) -> Result<Done, Failure> {
    Ok(Done::Measured(Sample { us, least: us, greatest: us, calls: 7, ..Sample::default() }))
}

fn run(
    text: &str,
    dims: &[(&str, i64)],
    options: &Options,
    answer: impl FnMut(&Request) -> Result<Done, Failure>,
) -> Found {
    let (plan, sources) = planned(text, dims);
    let problem =
        Problem { plans: vec![(String::new(), plan)], target: target(), sources: &sources, known: None };
    search(&problem, options, &mut Made { answer, asked: 0 })
}

const TWO: &str = "op f[M, N](x: f32[M, N]) -> (y: f32[M], z: f32[N]) {
    y[m] = sum[n](x[m, n])
    z[n] = 2 * x[0, n]
}";

/// Each kernel gets its share of the budget by measured time, the slowest first, and none is left out.
#[test]
fn a_budget_is_shared_between_kernels() {
    let (plan, sources) = planned(TWO, &[("M", 512), ("N", 4096)]);
    assert_eq!(plan.kernels.len(), 2, "the test wants two kernels");
    let names: Vec<String> = plan.kernels.iter().map(|k| k.name.clone()).collect();
    let program = prune::judge(&plan, &target(), &Schedule::default()).expect("it lowers");
    let simt = |name: &str| {
        let row = program.forms.iter().find(|f| f.kernel == name).expect("a kernel");
        program.kernels[row.simt[0]].name.clone()
    };
    for slow in 0..2 {
        let times = [(simt(&names[slow]), 30.0), (simt(&names[1 - slow]), 10.0)];
        let mut touched: BTreeMap<String, usize> = BTreeMap::new();
        let mut first = None;
        let mut answer = |r: &Request| match r.task {
            Task::Parts => Ok(Done::Parts(times.clone().into())),
            _ => {
                let set = |name: &&String| r.configuration.schedule.contains(&format!("{name}."));
                let named: Vec<&String> = names.iter().filter(set).collect();
                // The fixed default sets both.
                if let [one] = named[..] {
                    first.get_or_insert(one.clone());
                }
                named.into_iter().for_each(|n| *touched.entry(n.clone()).or_default() += 1);
                us(40.0 + r.id as f64)
            }
        };
        let problem = Problem {
            plans: vec![(String::new(), plan.clone())],
            target: target(),
            sources: &sources,
            known: None,
        };
        let options = Options { trials: Some(20), ..OPTIONS };
        search(&problem, &options, &mut Made { answer: &mut answer, asked: 0 });
        assert_eq!(first.as_ref(), Some(&names[slow]), "the slowest first");
        assert!(names.iter().all(|n| touched.get(n).is_some_and(|&t| t >= 3)), "{touched:?}");
        assert!(touched[&names[slow]] > touched[&names[1 - slow]], "{touched:?}");
    }
}

/// The same settings at every shape, legal at each; a `tile` block is stronger.
#[test]
fn the_fixed_default_does_not_look_at_the_shape() {
    let of = |text: &str, m: i64, n: i64| {
        let (plan, _) = planned(text, &[("M", m), ("N", n), ("K", 512)]);
        let schedule = fixed::schedule(&plan, &target(), &Space::of(&plan, &target()));
        prune::judge(&plan, &target(), &schedule).expect("it is legal");
        schedule
    };
    let one = of(PRODUCT, 4096, 1024);
    assert_eq!(one, of(PRODUCT, 1000, 8192));
    let text = one.to_string();
    for part in
        ["block m = 128", "block n = 128", "step k = 64", "stages = 4", "cluster m = 1", "split k = 1"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let pinned = of(&format!("{PRODUCT}\ntile f {{ block m = 64 }}"), 4096, 1024).to_string();
    assert!(!pinned.contains("block m = 128") && pinned.contains("block n = 128"), "{pinned}");
}

/// Measured beside the winner in one run: the forms' own choice, the fixed default, and the model's pick.
#[test]
fn what_is_told_beside_the_winner_is_measured() {
    let found =
        run(PRODUCT, &[("M", 512), ("N", 512), ("K", 512)], &OPTIONS, |r| us(50.0 + (r.id % 7) as f64));
    for trial in [found.default, found.fixed, found.model] {
        let trial = &found.trials[trial.expect("it is among the trials")];
        assert!(trial.us().is_some(), "{:?}", trial.configuration);
    }
}

/// Other plans that are nearly as fast are searched, too, and win if they are faster in the end.
#[test]
fn other_plans_are_searched() {
    let (plan, sources) = planned(MAP, &[("N", 1 << 16)]);
    // The same text twice is one candidate: the second plan must differ.
    let (other, _) = planned(&MAP.replace("2 *", "3 *"), &[("N", 1 << 16)]);
    let plans = vec![("searched".to_string(), plan), ("plan 1".to_string(), other)];
    let problem = Problem { plans, target: target(), sources: &sources, known: None };
    let answer = |r: &Request| {
        let other = r.configuration.fusion == "plan 1";
        us(match (other, setting(r, "y.threads")) {
            (true, Some(64)) => 5.0,
            (true, _) => 11.0,
            (false, _) => 10.0,
        })
    };
    let found = search(&problem, &Options { trials: None, ..OPTIONS }, &mut Made { answer, asked: 0 });
    let best = &found.trials[found.best.expect("there is one")];
    assert_eq!((best.configuration.fusion.as_str(), best.us()), ("plan 1", Some(5.0)));
}

/// What is hopeless is told so to the bench, and an exhaustive search measures everything.
#[test]
fn hopeless_candidates_are_cut() {
    let mut cuts = Vec::new();
    let answer = |r: &Request| {
        if let Task::Measure { cut, .. } = r.task {
            cuts.push(cut);
        }
        us(10.0)
    };
    run(MAP, &[("N", 1 << 16)], &OPTIONS, answer);
    assert_eq!(cuts[0], None, "nothing is known at first");
    assert!(cuts.iter().flatten().all(|c| *c == 15.0) && cuts.iter().flatten().count() > 3, "{cuts:?}");
}

/// A value of a kernel's setting in a request.
fn setting(r: &Request, name: &str) -> Option<i64> {
    let line = r.configuration.schedule.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(" = "));
    line.and_then(|v| v.parse().ok())
}

#[test]
fn the_best_point_is_found_and_the_same_each_time() {
    let cost = |r: &Request| {
        let (bm, stages) = (setting(r, "y.block m").unwrap_or(64), setting(r, "y.stages").unwrap_or(2));
        us(100.0 + (bm - 32).abs() as f64 + 10.0 * (stages - 3).abs() as f64)
    };
    let dims = [("M", 512), ("N", 512), ("K", 512)];
    let one = run(PRODUCT, &dims, &OPTIONS, cost);
    let two = run(PRODUCT, &dims, &OPTIONS, cost);
    let best = &one.trials[one.best.expect("there is one")];
    assert_eq!(best.us(), Some(100.0), "{:?}", best.configuration);
    assert_eq!(best.configuration, two.trials[two.best.expect("there is one")].configuration);
    assert_eq!(one.trials.len(), two.trials.len());
    assert!(one.trials.len() <= 60);
}

/// Fault C15: two configurations within the noise.
#[test]
fn near_ties_do_not_flip() {
    let mut winners: BTreeMap<String, u32> = BTreeMap::new();
    for round in 0..20u64 {
        let mut n = round.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let found = run(MAP, &[("N", 1 << 20)], &OPTIONS, |r| {
            n = n.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let noise = (n >> 40) as f64 / (1u64 << 24) as f64 * 0.006;
            let fast = matches!(setting(r, "y.threads"), Some(128 | 512));
            us(if fast { 10.0 } else { 12.0 } * (1.0 + noise))
        });
        let best = found.trials[found.best.expect("there is one")].configuration.schedule.clone();
        *winners.entry(best).or_default() += 1;
    }
    assert!(winners.values().any(|&n| n >= 19), "{winners:?}");
}

/// Faults C05 and C21: failures are typed and ranked by nothing, wherever they stand.
#[test]
fn failures_never_win() {
    let fail = || Err(Failure::new(FailureKind::Fault, "planted"));
    let all = run(MAP, &[("N", 4096)], &OPTIONS, |_| fail());
    assert_eq!(all.best, None);
    assert!(!all.trials.is_empty() && all.trials.iter().all(|t| t.result.is_err()));
    for planted in 0..6 {
        let mut n = 0;
        let found = run(MAP, &[("N", 4096)], &OPTIONS, |r| {
            n += 1;
            if n - 1 == planted { fail() } else { us(10.0 + r.id as f64) }
        });
        let best = &found.trials[found.best.expect("others are right")];
        assert!(best.us().is_some_and(f64::is_finite), "planted at {planted}");
    }
    // Times that are none.
    for bad in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
        let found = run(MAP, &[("N", 4096)], &OPTIONS, |r| if r.id == 1 { us(bad) } else { us(10.0) });
        assert!(found.best.is_some_and(|b| found.trials[b].us() == Some(10.0)), "{bad}");
    }
}

/// Fault C05 on a device with 8 KB of shared memory: what does not fit is counted with its reason, and no time is made up.
#[test]
fn a_small_device_gets_what_fits_or_nothing() {
    let (plan, sources) = planned(PRODUCT, &[("M", 512), ("N", 512), ("K", 512)]);
    let small = Target { shared_per_block: 8192, shared_per_sm: 8192 + 1024, ..target() };
    let problem =
        Problem { plans: vec![(String::new(), plan.clone())], target: small, sources: &sources, known: None };
    let answer = |_: &Request| us(10.0);
    let found = search(&problem, &Options { trials: Some(20), ..OPTIONS }, &mut Made { answer, asked: 0 });
    assert!(!found.pruned.is_empty(), "something needs more than 8 KB");
    for t in &found.trials {
        let schedule = Schedule::parse(&t.configuration.schedule).expect("a schedule");
        let program = prune::judge(&plan, &small, &schedule).expect("what is measured fits");
        assert!(program.kernels.iter().all(|k| k.shared_bytes() <= 8192), "{}", t.configuration.schedule);
    }
    assert_eq!(found.best.is_some(), found.trials.iter().any(|t| t.us().is_some()));
}

/// Fault C03: what is wrong at a shape with tails does not win, however fast it is.
#[test]
fn a_winner_that_is_wrong_at_tails_is_dropped() {
    let found = run(MAP, &[("N", 4096)], &OPTIONS, |r| {
        let wrong = setting(r, "y.threads") == Some(64);
        match r.task {
            Task::Tail if wrong => Err(Failure::new(FailureKind::Wrong, "the tail")),
            Task::Tail => Ok(Done::Right("a small shape".into())),
            _ => us(if wrong { 1.0 } else { 10.0 }),
        }
    });
    let best = &found.trials[found.best.expect("others are right")];
    assert_eq!(best.us(), Some(10.0));
    let dropped =
        found.trials.iter().filter(|t| matches!(&t.result, Err(f) if f.kind == FailureKind::Wrong)).count();
    assert!(dropped >= 1);
}

#[test]
fn a_budget_of_trials_holds() {
    for trials in [1, 2, 5, 17] {
        let options = Options { trials: Some(trials), ..OPTIONS };
        let dims = [("M", 512), ("N", 512), ("K", 512)];
        let found = run(PRODUCT, &dims, &options, |r| us(10.0 + r.id as f64));
        assert!(found.trials.len() <= trials as usize && found.best.is_some(), "{trials}");
    }
}

#[test]
fn shards_cover_the_space_without_overlap() {
    let (plan, sources) = planned(MAP, &[("N", 1 << 16)]);
    let measured = |shard: Option<(u32, u32)>| -> BTreeSet<String> {
        let problem = Problem {
            plans: vec![(String::new(), plan.clone())],
            target: target(),
            sources: &sources,
            known: None,
        };
        let options = Options { trials: None, exhaustive: Some(1000), shard, ..OPTIONS };
        let found = search(&problem, &options, &mut Made { answer: |_: &Request| us(1.0), asked: 0 });
        found.trials.into_iter().map(|t| t.configuration.schedule).filter(|s| !s.is_empty()).collect()
    };
    let whole = measured(None);
    let parts: Vec<BTreeSet<String>> = (1..=3).map(|i| measured(Some((i, 3)))).collect();
    let together: BTreeSet<String> = parts.iter().flatten().cloned().collect();
    // A part may measure another spelling of what is one program.
    assert!(together.len() >= whole.len(), "{} of {}", together.len(), whole.len());
    assert!(parts.iter().all(|p| p.len() < together.len()), "{parts:?}");
}

#[test]
fn what_is_left_after_pruning_lowers_and_fits() {
    let (plan, _) = planned(PRODUCT, &[("M", 500), ("N", 260), ("K", 96)]);
    let space = Space::of(&plan, &target());
    let k = &space.kernels[0];
    let (mut fit, mut refused) = (0, 0);
    for p in k.points().step_by((k.size() / 150).max(1) as usize) {
        match prune::judge(&plan, &target(), &k.schedule(p)) {
            Ok(program) => {
                fit += 1;
                let over =
                    |k: &girih_compiler::ir::simt::Kernel| k.shared_bytes() > target().shared_per_block;
                assert!(!program.kernels.iter().any(over));
            }
            Err(f) => {
                refused += 1;
                assert!(!f.reason.is_empty());
            }
        }
    }
    assert!(fit > 10, "{fit} fit, {refused} refused");
}

/// An empty intersection is told by the setting's name.
#[test]
fn an_empty_space_names_the_setting() {
    let text = format!("{PRODUCT}\ntile f {{ block m = 128, n = 128   step k = 64   stages = 16 }}");
    let (plan, _) = planned(&text, &[("M", 512), ("N", 512), ("K", 512)]);
    let empty = Space::of(&plan, &target()).check(&plan, &target()).expect_err("16 stages never fit");
    let text = empty.to_string();
    assert!(text.contains("stages") && text.contains("kernel y"), "{text}");
    let (plan, _) = planned(PRODUCT, &[("M", 512), ("N", 512), ("K", 512)]);
    assert!(Space::of(&plan, &target()).check(&plan, &target()).is_ok());
}

#[test]
fn a_tile_block_narrows_the_space() {
    let text = format!("{PRODUCT}\ntile f {{ block m = 64   stages = {{2, 3}} }}");
    let (plan, _) = planned(&text, &[("M", 512), ("N", 512), ("K", 512)]);
    let space = Space::of(&plan, &target());
    let values = |key: &str, axis: &str| {
        let c = space.kernels[0].choices.iter().find(|c| c.key == key && c.axis == axis);
        c.map_or(0, |c| c.values.len())
    };
    assert_eq!((values("block", "m"), values("stages", "")), (1, 2));
    assert!(values("block", "n") > 1);
    assert!(plan_to_program(&plan, &target(), &Schedule::default()).is_ok());
}
