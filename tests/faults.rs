//! Known faults of systems like this one as cases (see `faults/mod.rs` for their form), on the reference and in the
//! simulator for targets with and without asynchronous copies. `tests/gpu.rs` runs the same on a GPU.
//! `faults/table.txt` says which test covers which case.

#[path = "faults/mod.rs"]
mod cases;

use girih::Device;
use girih_compiler::vocab::target::Target;
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::Path;

/// All of them take minutes in an unoptimised build: `cargo test --release --test faults`.
const TARGETS: &[&str] = if cfg!(debug_assertions) { &["sm_90a"] } else { &["sm_75", "sm_80", "sm_90a"] };

fn main() {
    let mut trials: Vec<Trial> =
        cases::CASES.iter().map(|&(name, text)| Trial::test(name, move || everywhere(name, text))).collect();
    trials.push(Trial::test("every_row_of_the_table_names_a_test", table_holds));
    trials.push(Trial::test("every_case_is_in_the_list", list_is_whole));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn everywhere(name: &str, text: &str) -> Result<(), Failed> {
    if !text.contains("//: refused") {
        cases::run(name, text, &Device::Reference).map_err(|e| format!("reference: {e}"))?;
    }
    for target in TARGETS {
        let device = Device::Simulator(*Target::parse(target).expect("a target of the table"));
        cases::run(name, text, &device).map_err(|e| format!("{target}: {e}"))?;
    }
    Ok(())
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A row: the case's id, then tests as `FILE::name`; those of `tests/faults` by the file's name alone.
fn table_holds() -> Result<(), Failed> {
    let table = std::fs::read_to_string(root().join("tests/faults/table.txt"))?;
    for row in table.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let mut words = row.split_whitespace();
        let id = words.next().unwrap_or_default();
        let tests: Vec<&str> = words.collect();
        if tests.is_empty() {
            return Err(format!("{id} names no test").into());
        }
        for test in tests {
            let known = match test.split_once("::") {
                Some((file, name)) => std::fs::read_to_string(root().join(file))
                    .map_err(|e| format!("{id}: {file}: {e}"))?
                    .contains(name),
                None => cases::CASES.iter().any(|(name, _)| *name == test),
            };
            if !known {
                return Err(format!("{id}: there is no test {test}").into());
            }
        }
    }
    Ok(())
}

fn list_is_whole() -> Result<(), Failed> {
    for file in std::fs::read_dir(root().join("tests/faults"))?.flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        if let Some(case) = name.strip_suffix(".tile")
            && !cases::CASES.iter().any(|(c, _)| *c == case)
        {
            return Err(format!("{name} is not in tests/faults/list.rs").into());
        }
    }
    Ok(())
}
