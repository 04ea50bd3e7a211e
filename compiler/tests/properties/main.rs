//! Random programs: they bind, their text survives the formatter, the reference runs without a panic, and what is
//! lowered from them, run in the simulator, is within the reference's bound.
//!
//! A failure shrinks, and is written under `target/failures` with the command that runs it again.

#[path = "../common/mod.rs"]
mod common;
mod generate;
mod varied;

use common::Case;
use generate::Program;
use girih_compiler::host::HostTensor;
use girih_compiler::ir::graph::TileBlock;
use girih_compiler::lower::{Schedule, plan_to_program};
use girih_compiler::pass::graph_to_plan::{PlanOptions, plan};
use girih_compiler::reference;
use girih_compiler::sim::{self, SimOptions};
use girih_compiler::vocab::dtype::{DType, Value};
use girih_compiler::vocab::random;
use girih_compiler::vocab::target::Target;
use proptest::prelude::*;
use varied::Dice;

/// A number of an input: small, with a few zeros and ties among them.
fn number(seed: i64, c: i64, whole: bool) -> Value {
    let v = random::normal(seed, c);
    match random::randbits(seed + 100, c) % 16 {
        0 => Value::F64(0.0),
        1 => Value::F64(1.0),
        _ if whole => Value::F64((v * 5.0).round()),
        _ => Value::F64(v),
    }
}

/// The program with inputs drawn by a seed.
pub fn case(p: &Program, seed: i64) -> Case {
    let mut case = Case::new(&p.text()).dim("M", p.m).dim("N", p.n);
    for (k, (name, dtype, dims)) in p.inputs().into_iter().enumerate() {
        let dtype = DType::parse(dtype).expect("the generator names dtypes");
        let len = dims.iter().product::<i64>();
        let seed = seed + k as i64;
        let values = (0..len).map(|c| match name {
            "ids" => Value::I64(random::randbits(seed, c) as i64 % p.m.max(1)),
            _ => number(seed, c, p.whole),
        });
        case = case.tensor(name, HostTensor::from_values(dtype, &dims, values));
    }
    case
}

fn config(cases: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|s| s.parse().ok()).unwrap_or(cases);
    ProptestConfig { cases, max_shrink_iters: 2000, failure_persistence: None, ..ProptestConfig::default() }
}

/// What is wrong with the lowered program; `None` if nothing is.
fn simulated(case: &Case, target: &'static str, fuse: bool) -> Option<String> {
    simulated_as(case, target, fuse, None)
}

/// As `simulated`; with dice, strides, a `tile` block and a schedule vary too. A schedule may be refused, in words.
fn simulated_as(case: &Case, target: &'static str, fuse: bool, mut dice: Option<Dice>) -> Option<String> {
    let tile = dice.as_mut().and_then(|d| (d.below(2) == 0).then(|| varied::tile(d)));
    let mut schedule = Schedule::default();
    let wrong = simulate(case, target, fuse, dice, tile.as_ref(), &mut schedule)?;
    let said = format!("on {target}, fuse {fuse}: {wrong}");
    let command = varied::keep(case, target, tile.as_ref(), &schedule, &said);
    Some(format!("{}\n{said}\n{command}", case.text))
}

fn simulate(
    case: &Case,
    target: &str,
    fuse: bool,
    dice: Option<Dice>,
    tile: Option<&TileBlock>,
    schedule: &mut Schedule,
) -> Option<String> {
    let said = Some::<String>;
    let mut graph = match case.graph() {
        Ok(g) => g,
        Err(e) => return said(e),
    };
    let want = match reference::run(&graph, &case.inputs) {
        Ok(w) => w,
        Err(e) => return said(e.to_string()),
    };
    let target = Target::parse(target).expect("a target of the table");
    let mut memory = case.inputs.clone();
    let varied = dice.is_some();
    if let Some(mut dice) = dice {
        memory = varied::lay_out(&mut graph, &case.inputs, &mut dice);
        graph.tiles.extend(tile.cloned());
        if tile.is_none() {
            let plan = plan(&graph, &PlanOptions { fuse, ..PlanOptions::default() });
            *schedule = varied::schedule(&plan, target, &mut dice);
        }
    }
    let plan = plan(&graph, &PlanOptions { fuse, ..PlanOptions::default() });
    let program = match plan_to_program(&plan, target, schedule) {
        Ok(p) => p,
        Err(e) if varied && e.setting.is_some() && !e.message.is_empty() => return None,
        Err(e) => return said(e.message),
    };
    let got = match sim::run(&program, &memory, &SimOptions::default()) {
        Ok(g) => g,
        Err(e) => return said(e.to_string()),
    };
    for (name, want) in &want.outputs {
        if let Err(e) = reference::compare(want, &got.outputs[name]) {
            return said(format!("{name}: {e}"));
        }
    }
    None
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn random_programs_bind_and_run(p in generate::program(), seed in 0..1000i64) {
        let case = case(&p, seed);
        let graph = match case.graph() {
            Ok(g) => g,
            Err(said) => return Err(TestCaseError::fail(format!("{}\n{said}", case.text))),
        };
        let out = reference::run(&graph, &case.inputs);
        let out = out.map_err(|f| TestCaseError::fail(format!("{}\n{f}", case.text)))?;
        for (name, y) in &out.outputs {
            let own = reference::compare(y, &y.tensor);
            prop_assert!(own.is_ok(), "{}\n{name} does not admit its own value: {}", case.text, own.unwrap_err());
        }
    }

    #[test]
    fn formatting_is_a_fixed_point(p in generate::program()) {
        let text = p.text();
        let once = girih_dsl::format(&text).map_err(|d| TestCaseError::fail(format!("{text}\n{d:?}")))?;
        let twice = girih_dsl::format(&once).map_err(|d| TestCaseError::fail(format!("{once}\n{d:?}")))?;
        prop_assert_eq!(&once, &twice);
    }
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn the_simulator_is_within_the_bound(p in generate::program(), seed in 0..1000i64, old in any::<bool>(), fuse in any::<bool>()) {
        let wrong = simulated(&case(&p, seed), if old { "sm_80" } else { "sm_90a" }, fuse);
        prop_assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    }
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn strides_tile_blocks_and_schedules_change_nothing(p in generate::program(), seed in 0..1000i64, old in any::<bool>(), dice in any::<u64>()) {
        let target = if old { "sm_80" } else { "sm_90a" };
        let wrong = simulated_as(&case(&p, seed), target, true, Some(Dice(dice)));
        prop_assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    }
}

/// A failure can be run again from what is written.
#[test]
fn a_failure_is_kept() {
    let text = "op f[M, N](x0: f32[M, N]) -> (y: f32[M, N]) {\n    y[i, j] = x0[i, j]\n}";
    let x = HostTensor::from_f64(DType::F32, &[1, 2], &[1.0, 2.0]);
    let case = Case::new(text).dim("M", 1).dim("N", 2).tensor("x0", x);
    let tile = varied::tile(&mut Dice(1));
    let command = varied::keep(&case, "sm_80", Some(&tile), &Schedule::default(), "just a test");
    let file = command.split_whitespace().nth(2).expect("girih run FILE");
    let kept = std::fs::read_to_string(file).expect("the file that the command names");
    assert!(kept.starts_with(&format!("// {command}\n// just a test\n{text}")), "{kept}");
    let (_, diagnostics) = girih_dsl::parse(&kept, 0);
    assert!(
        diagnostics.is_empty() && command.contains("--dim M=1") && command.contains("x0.npy"),
        "{command}"
    );
    let _ = std::fs::remove_file(file);
}

/// Counts what goes wrong over many programs, without shrinking: one example of each kind.
#[test]
#[ignore = "a survey, to be read"]
fn survey() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut kinds: std::collections::BTreeMap<String, (usize, String)> = Default::default();
    let count = config(400).cases;
    std::panic::set_hook(Box::new(|p| {
        if std::env::var_os("SAY").is_some() {
            eprintln!("{p}\n{}", std::backtrace::Backtrace::force_capture())
        }
    }));
    for seed in 0..count as i64 {
        let p = generate::program().new_tree(&mut runner).expect("the strategy rejects nothing").current();
        for fuse in [false, true] {
            let target = ["sm_80", "sm_90a"][seed as usize % 2];
            let ran = std::panic::catch_unwind(|| simulated(&case(&p, seed), target, fuse));
            let wrong = match ran {
                Ok(w) => w,
                Err(e) => {
                    let text = e.downcast_ref::<String>().cloned();
                    let text = text.or(e.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default();
                    Some(format!("{}\non {target}, fuse {fuse}: panic: {text}", p.text()))
                }
            };
            let Some(wrong) = wrong else { continue };
            let what = wrong.rsplit("fuse ").next().unwrap_or_default();
            let kind: String = what.chars().filter(|c| !c.is_ascii_digit()).take(48).collect();
            let entry = kinds.entry(kind).or_insert((0, wrong.clone()));
            entry.0 += 1;
            if wrong.len() < entry.1.len() {
                entry.1 = format!("{wrong}\n{} x {}", p.m, p.n);
            }
        }
    }
    let _ = std::panic::take_hook();
    for (n, example) in kinds.values() {
        println!("{n} times:\n{example}\n");
    }
}
