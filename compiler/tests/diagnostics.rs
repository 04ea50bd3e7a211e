//! Diagnostics: one case a file under `cases/diagnostics/`, one check for all.
//!
//! A case is a program, a line `---`, and what is reported. Its first line says what is run:
//! `// run: check`, or `// run: bind OP N=3 k:2 x=f32[4, 5]` (sizes, consts, inputs), or `// run: lower OP N=3` (for
//! sm_90a), or `// run: fault OP N=3` (on the reference, and the same code and place on the simulator, where integers are
//! 2, 3, 4, 2, 3, 4 and so on). `BLESS=1` writes the reports anew.

use girih_compiler::host::HostTensor;
use girih_compiler::ir::graph::{Graph, Role};
use girih_compiler::lower::{Schedule, plan_to_program};
use girih_compiler::pass::ast_to_graph::{Bindings, bind};
use girih_compiler::pass::graph_to_plan::{PlanOptions, plan};
use girih_compiler::pass::{check, module};
use girih_compiler::reference::{self, Inputs};
use girih_compiler::sim::{self, SimOptions};
use girih_compiler::vocab::dtype::{DType, Value};
use girih_compiler::vocab::target::Target;
use girih_dsl::diagnostic::Diagnostic;
use girih_dsl::source::Sources;
use std::path::{Path, PathBuf};

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/diagnostics");
    let entries = std::fs::read_dir(folder).expect("the folder of cases is in the repository");
    let mut all: Vec<PathBuf> = entries.map(|e| e.expect("a readable folder").path()).collect();
    all.retain(|p| p.extension().is_some_and(|e| e == "case"));
    all.sort();
    all
}

/// `N=3 k:2 x=f32[4, 5]`
fn bindings(words: &str) -> Bindings {
    let mut b = Bindings::default();
    for word in words.split_whitespace() {
        if let Some((name, value)) = word.split_once(':') {
            b.consts.insert(name.into(), value.into());
            continue;
        }
        let (name, value) = word.split_once('=').expect("name=value");
        match value.split_once('[') {
            Some((dtype, dims)) => {
                let dims = dims.trim_end_matches(']').split(',').filter(|d| !d.is_empty());
                let dims = dims.map(|d| d.parse().expect("a dim")).collect();
                b.inputs.insert(name.into(), (DType::parse(dtype).expect("a dtype"), dims));
            }
            None => {
                b.dims.insert(name.into(), value.parse().expect("a size"));
            }
        }
    }
    b
}

/// What a case reports, as a person sees it.
fn report(text: &str) -> String {
    let mut sources = Sources::default();
    // The files that there are to import: one imports itself, two have a name in common.
    let read = |path: &str| match path {
        "self.tile" => Ok("import \"self.tile\"".to_string()),
        "one.tile" => Ok("fn same(x) = x + 1".to_string()),
        "two.tile" => Ok("fn same(x) = x + 2".to_string()),
        _ => Err("there is no such file".to_string()),
    };
    let diags: Vec<Diagnostic> = match module::load("case.tile", text, &mut sources, &read) {
        Err(d) => d,
        Ok(m) => {
            let run = text
                .lines()
                .next()
                .and_then(|l| l.strip_prefix("// run: "))
                .expect("a first line `// run: …`");
            let (how, rest) = run.split_once(' ').unwrap_or((run, ""));
            let (op, words) = rest.split_once(' ').unwrap_or((rest, ""));
            match how {
                "bind" => bind(&m, op, &bindings(words)).map_or_else(|d| d, |b| b.warnings),
                "lower" => lower(&bind(&m, op, &bindings(words)).expect("it binds").graph),
                "fault" => vec![fault(&bind(&m, op, &bindings(words)).expect("it binds").graph)],
                _ => check::check(&m, &sources),
            }
        }
    };
    girih_dsl::render(&sources, &diags, false)
}

/// What is said of a graph's settings when it is lowered.
fn lower(graph: &Graph) -> Vec<Diagnostic> {
    let target = Target::parse("sm_90a").expect("a target of the table");
    let plan = plan(graph, &PlanOptions::default());
    let done = plan_to_program(&plan, target, &Schedule::default());
    done.err().map(|why| why.diagnostic()).into_iter().collect()
}

/// The fault that a run ends in.
fn fault(graph: &Graph) -> Diagnostic {
    let mut inputs = Inputs::default();
    for t in graph.tensors.iter().filter(|t| t.role == Role::Input) {
        let mut h = HostTensor::zeros(t.dtype, &t.dims);
        let ints = t.dtype.is_int();
        (0..h.len())
            .for_each(|i| h.set(i, if ints { Value::I64(2 + i as i64 % 3) } else { Value::F64(1.0) }));
        inputs.tensors.insert(t.name.clone(), h);
    }
    let found = reference::run(graph, &inputs).expect_err("a fault").diagnostic().expect("a place");
    let target = Target::parse("sm_90a").expect("a target of the table");
    let program = plan_to_program(&plan(graph, &PlanOptions::default()), target, &Schedule::default());
    let program = program.expect("it lowers");
    let stopped = sim::run(&program, &inputs, &SimOptions::default()).expect_err("a fault");
    let (site, value) = stopped.fault.expect("a fault of the program");
    let there = program.faults[site].diagnostic(value, &[]);
    assert_eq!(there.code, found.code);
    // Of a declaration the program knows the read that it proves.
    assert!(there.span == found.span || ["E0703", "E0704"].contains(&there.code), "{there:?}");
    found
}

#[test]
fn every_case_reports_what_it_says() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = String::new();
    for path in cases() {
        let text = std::fs::read_to_string(&path).expect("a readable case");
        let (program, expected) = text.split_once("\n---\n").expect("a line `---`");
        let got = report(program);
        let got = got.trim_end();
        let name = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
        let code = name.split('_').next().unwrap_or_default().to_uppercase();
        if !got.contains(&code) {
            wrong += &format!("{name} does not report {code}:\n{got}\n\n");
        }
        if bless {
            std::fs::write(&path, format!("{program}\n---\n{got}\n")).expect("a writable case");
        } else if got != expected.trim_end() {
            wrong += &format!("{name} reports\n{got}\n\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}(BLESS=1 writes the reports anew)");
}

/// Codes as they stand in the sources of the semantic analysis.
fn codes_in(folder: &Path, out: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            codes_in(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).expect("a readable source");
            let words = text.split('"').filter(|w| w.len() == 5 && w.starts_with(['E', 'W']));
            out.extend(words.filter(|w| w[1..].chars().all(|c| c.is_ascii_digit())).map(str::to_string));
        }
    }
}

#[test]
fn every_code_has_its_long_text_and_a_case() {
    let mut codes = Vec::new();
    for folder in ["src/pass", "src/lower", "src/ir"] {
        codes_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut codes);
    }
    codes.extend(girih_dsl::codes::all().map(|r| r.code.to_string()).filter(|c| !c.starts_with("E00")));
    codes.sort();
    codes.dedup();
    assert!(codes.len() > 50, "only {} codes were found", codes.len());
    let cases: Vec<String> = cases()
        .iter()
        .filter_map(|p| Some(p.file_stem()?.to_str()?.split('_').next()?.to_uppercase()))
        .collect();
    // It reports a defect.
    let without_case = ["E0599"];
    for code in codes {
        assert!(girih_dsl::codes::find(&code).is_some(), "{code} has no row in dsl/src/codes");
        assert!(cases.contains(&code) || without_case.contains(&code.as_str()), "{code} has no case");
    }
}
