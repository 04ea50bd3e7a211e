//! The operator library: every module checks without an error, and every op of it binds to a graph that holds its
//! invariants.

use girih_compiler::pass::{check, module};
use girih_dsl::diagnostic::{Diagnostic, Severity};
use girih_dsl::source::Sources;

fn shown(sources: &Sources, d: &Diagnostic) -> String {
    let help = d.help.as_deref().unwrap_or("");
    format!(
        "{} {} {}\n    {}\n    {help}\n",
        sources.place(d.span),
        d.code,
        d.message,
        sources.snippet(d.span)
    )
}

#[test]
fn the_library_checks() {
    let mut wrong = String::new();
    for name in girih_dsl::library_names() {
        let mut sources = Sources::default();
        let text = girih_dsl::library(name).expect("a listed module has a text");
        match module::load(name, text, &mut sources, &|_| Err("no files here".into())) {
            Ok(m) => {
                let start = std::time::Instant::now();
                let diags = check::check(&m, &sources);
                eprintln!("{name}: {} ops in {:?}", m.ops().count(), start.elapsed());
                for d in diags.iter().filter(|d| d.severity == Severity::Error) {
                    wrong += &shown(&sources, d);
                }
            }
            Err(d) => d.iter().for_each(|d| wrong += &shown(&sources, d)),
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
