//! The model beside times that were recorded on an H200 (`tests/data`): how well it ranks configurations, and how far
//! from the best are its pick and the forms' own choice, which an untuned start uses. `PRINT=1` prints every row.

use girih_autotune::report::rank_correlation;
use girih_autotune::{model, prune};
use girih_compiler::lower::Schedule;
use girih_compiler::pass::ast_to_graph::{Bindings, bind};
use girih_compiler::pass::graph_to_plan::{PlanOptions, plan};
use girih_compiler::pass::module;
use girih_compiler::vocab::target::Target;
use girih_dsl::source::Sources;
use serde::Deserialize;
use std::collections::BTreeMap;

const KINDS: &str = include_str!("../../src/bench/kinds.tile");
const RECORDED: &str = include_str!("../../tests/data/tuning-nvidia-h200.jsonl");

#[derive(Deserialize)]
struct Row {
    op: String,
    dims: BTreeMap<String, i64>,
    consts: BTreeMap<String, String>,
    schedule: String,
    us: f64,
}

/// Predicted and measured times of each workload, by its name.
fn workloads() -> BTreeMap<String, Vec<(f64, f64, String)>> {
    let mut sources = Sources::default();
    let module =
        module::load("kinds.tile", KINDS, &mut sources, &|_| Err("no files".into())).expect("it loads");
    let target = *Target::parse("sm_90a").expect("a target of the table");
    let print = std::env::var_os("PRINT").is_some();
    let mut plans = BTreeMap::new();
    let mut all: BTreeMap<String, Vec<(f64, f64, String)>> = BTreeMap::new();
    for row in RECORDED.lines().map(|l| serde_json::from_str::<Row>(l).expect("a row")) {
        let name = format!("{} {:?} {:?}", row.op, row.dims, row.consts);
        let plan = plans.entry(name.clone()).or_insert_with(|| {
            let bindings =
                Bindings { dims: row.dims.clone(), consts: row.consts.clone(), ..Bindings::default() };
            plan(&bind(&module, &row.op, &bindings).expect("it binds").graph, &PlanOptions::default())
        });
        let schedule = Schedule::parse(&row.schedule).expect("a schedule");
        // A form may refuse today what it took when this was recorded.
        let Ok(program) = prune::judge(plan, &target, &schedule) else { continue };
        let predicted = model::predict(&program, &target);
        if print {
            println!("{name} {predicted:.1} {:.1} {:?}", row.us, row.schedule);
            for k in model::times(&program, &target) {
                println!(
                    "    {} {:.1} us, {} waves of {}, {:?}",
                    k.kernel,
                    k.seconds * 1e6,
                    k.waves,
                    k.resident,
                    k.parts.iter().map(|p| (p.0, (p.1 * k.waves * 1e6).round())).collect::<Vec<_>>()
                );
            }
        }
        all.entry(name).or_default().push((predicted, row.us, row.schedule));
    }
    all
}

/// So much faster the model must think something than the forms' own choice before its word would count: what it says
/// of small differences is noise.
const SURE: f64 = 0.3;

/// A workload's rows, beside the best: the forms' own choice, the model's pick, and its pick where it is sure.
struct Judged {
    name: String,
    own: Option<f64>,
    pick: f64,
    sure: f64,
    correlation: f64,
    rows: usize,
}

fn judged() -> Vec<Judged> {
    let judge = |(name, rows): (String, Vec<(f64, f64, String)>)| {
        let pairs: Vec<(f64, f64)> = rows.iter().map(|r| (r.0, r.1)).collect();
        // Where the plan has changed since, none of its settings stands any more.
        let correlation = rank_correlation(&pairs)?;
        let best = rows.iter().map(|r| r.1).fold(f64::INFINITY, f64::min);
        let pick = rows.iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
        let own = rows.iter().find(|r| r.2.is_empty());
        let sure = own.filter(|own| pick.0 > own.0 * (1.0 - SURE)).unwrap_or(pick);
        let (own, pick, sure) = (own.map(|r| r.1 / best), pick.1 / best, sure.1 / best);
        println!(
            "{name}: {} rows, rank correlation {correlation:.2}, of the best: own choice {own:.3?}, model's pick {pick:.3}, \
             where it is sure {sure:.3}",
            rows.len()
        );
        Some(Judged { name, own, pick, sure, correlation, rows: rows.len() })
    };
    let all: Vec<Judged> = workloads().into_iter().filter_map(judge).collect();
    assert!(all.len() >= 10, "only {} workloads still have the kernels that were recorded", all.len());
    all
}

/// Workloads whose pick is farther off than 15%, with what bounds it: groups of rows of unequal size, which the walked block
/// does not stand for; 4-bit weights beside 16 rows; a long sum for few tiles, whose wider tiles are slower than the model thinks.
const KNOWN: [(&str, f64); 3] = [
    ("grouped {", 3.1),
    ("w4_gemm {\"GS\": 128, \"K\": 8192, \"M\": 16,", 1.3),
    ("gemm_nt {\"K\": 65536, \"M\": 512,", 1.2),
];

/// How far off a workload's pick may be.
fn allowed(j: &Judged) -> f64 {
    KNOWN.iter().find(|k| j.name.starts_with(k.0)).map_or(1.15, |k| k.1)
}

fn mean(all: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = all.map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

/// What an untuned start uses, the forms' own choices, is near the best that was measured, and better founded than the
/// model's pick: should that turn, the model must choose.
#[test]
fn the_forms_own_choice_is_near_the_best() {
    let all = judged();
    let with_own = || all.iter().filter_map(|j| Some((j, j.own?)));
    let bad: Vec<&str> = with_own().filter(|o| o.1 > 1.16).map(|o| o.0.name.as_str()).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let (own, pick) = (mean(with_own().map(|o| o.1)), mean(with_own().map(|o| o.0.pick)));
    println!("{} workloads: own choice {own:.3}, model's pick {pick:.3}", with_own().count());
    assert!(own <= pick, "own choice {own:.3}, and {pick:.3} for the model's pick");
}

/// The model ranks: over all workloads, and where there are enough rows to say. What it picks alone is within 15% of the best.
#[test]
fn the_model_ranks_what_was_measured() {
    let all = judged();
    let many: Vec<&Judged> = all.iter().filter(|j| j.rows >= 30).collect();
    let correlation = many.iter().map(|j| j.correlation).sum::<f64>() / many.len() as f64;
    println!("rank correlation {correlation:.2} in the mean of {} workloads", many.len());
    assert!(correlation >= 0.6, "{correlation:.2}");
    println!("the model's picks: {:.3} of the best in the geometric mean", mean(all.iter().map(|j| j.pick)));
    let bad: Vec<&str> =
        all.iter().filter(|j| j.pick > allowed(j) || j.sure > allowed(j)).map(|j| j.name.as_str()).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

/// What is not finite is evaluated once more, by a kernel that ends at once where there are none: the model must not count
/// it as if it ran.
#[test]
fn what_is_evaluated_again_as_an_exception_costs_little() {
    let mut sources = Sources::default();
    let module =
        module::load("kinds.tile", KINDS, &mut sources, &|_| Err("no files".into())).expect("it loads");
    let target = *Target::parse("sm_90a").expect("a target of the table");
    let dims = [("M", 4096), ("N", 4096), ("K", 4096)];
    let consts = [("T", "f32")];
    let bindings = Bindings {
        dims: dims.into_iter().map(|(n, v)| (n.to_string(), v)).collect(),
        consts: consts.into_iter().map(|(n, v)| (n.to_string(), v.to_string())).collect(),
        ..Bindings::default()
    };
    let graph = bind(&module, "gemm_nt", &bindings).expect("it binds").graph;
    let plan = plan(&graph, &PlanOptions::default());
    let program = prune::judge(&plan, &target, &Schedule::default()).expect("it lowers");
    let times = model::times(&program, &target);
    let (exact, others): (Vec<_>, Vec<_>) = times.iter().partition(|k| k.kernel.ends_with("_exact"));
    assert!(!exact.is_empty(), "{:?}", times.iter().map(|k| &k.kernel).collect::<Vec<_>>());
    let sum = |all: &[&model::KernelTime]| all.iter().map(|k| k.seconds).sum::<f64>();
    assert!(sum(&exact) < 0.1 * sum(&others), "{} and {}", sum(&exact), sum(&others));
}
