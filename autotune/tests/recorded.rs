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
        let name = format!("{} {:?}", row.op, row.dims);
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

/// What an untuned start uses must be near the best that was measured, and no worse founded than the model's pick.
#[test]
fn the_forms_own_choice_is_near_the_best() {
    let (mut bad, mut own_all, mut pick_all, mut judged) = (Vec::new(), 0.0, 0.0, 0);
    for (name, rows) in workloads() {
        let Some(own) = rows.iter().find(|r| r.2.is_empty()).map(|r| r.1) else { continue };
        let best = rows.iter().map(|r| r.1).fold(f64::INFINITY, f64::min);
        let pick = rows.iter().min_by(|a, b| a.0.total_cmp(&b.0)).expect("rows").1;
        println!("{name}: own {:.3}, model's pick {:.3} of the best", own / best, pick / best);
        own_all += (own / best).ln();
        pick_all += (pick / best).ln();
        judged += 1;
        if own > 1.15 * best {
            bad.push(name);
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
    let mean = |sum: f64| (sum / f64::from(judged)).exp();
    println!("{judged} workloads: own {:.3}, model's pick {:.3}", mean(own_all), mean(pick_all));
    assert!(judged >= 5 && mean(own_all) <= mean(pick_all) + 0.01, "the model's pick should be used instead");
}

#[test]
fn the_model_ranks_what_was_measured() {
    let (mut bad, mut judged) = (Vec::new(), 0);
    for (name, rows) in workloads() {
        let pairs: Vec<(f64, f64)> = rows.iter().map(|r| (r.0, r.1)).collect();
        // Where the plan has changed since, none of its settings stands any more.
        let Some(correlation) = rank_correlation(&pairs) else { continue };
        judged += 1;
        let pick = rows.iter().min_by(|a, b| a.0.total_cmp(&b.0)).expect("rows").1;
        let best = rows.iter().map(|r| r.1).fold(f64::INFINITY, f64::min);
        let line = format!(
            "{name}: {} rows, rank correlation {correlation:.2}, pick {pick:.1} us, best {best:.1} us",
            rows.len()
        );
        println!("{line}");
        if correlation < 0.4 || pick > 1.15 * best {
            bad.push(line);
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(judged >= 5, "only {judged} workloads still have the kernels that were recorded");
}
