//! Random programs: they bind, their text survives the formatter, the reference runs without a panic.
//!
//! A failure shrinks and prints the `.tile` text with its inputs.

#[path = "../common/mod.rs"]
mod common;
mod generate;

use common::Case;
use generate::Program;
use girih_compiler::host::HostTensor;
use girih_compiler::vocab::dtype::{DType, Value};
use girih_compiler::vocab::random;
use proptest::prelude::*;

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

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn random_programs_bind_and_run(p in generate::program(), seed in 0..1000i64) {
        let case = case(&p, seed);
        let graph = match case.graph() {
            Ok(g) => g,
            Err(said) => return Err(TestCaseError::fail(format!("{}\n{said}", case.text))),
        };
        let out = girih_compiler::reference::run(&graph, &case.inputs);
        let out = out.map_err(|f| TestCaseError::fail(format!("{}\n{f}", case.text)))?;
        for (name, y) in &out.outputs {
            let own = girih_compiler::reference::compare(y, &y.tensor);
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
