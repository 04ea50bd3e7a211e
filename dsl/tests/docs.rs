//! What the documentation shows is right: `tile` blocks parse and are in the usual form, the grammar is the compiler's own.

use std::path::PathBuf;

fn page(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The fenced blocks of a kind.
fn blocks<'t>(text: &'t str, kind: &str) -> Vec<&'t str> {
    let fence = format!("```{kind}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap_or("")).collect()
}

#[test]
fn examples_are_right() {
    for (name, least) in
        [("language.md", 3), ("tutorial.md", 6), ("schedule.md", 0), ("semantics.md", 0), ("adding.md", 0)]
    {
        let text = page(name);
        let examples = blocks(&text, "tile");
        assert!(examples.len() >= least, "{name} has {} examples", examples.len());
        for example in examples {
            let formatted = girih_dsl::format(example);
            assert_eq!(formatted.as_deref(), Ok(example), "{name}");
        }
    }
}

#[test]
fn the_grammar_is_the_compilers() {
    let text = page("language.md");
    let grammar = include_str!("../src/grammar.pest");
    let rules = grammar.split_once('\n').map(|(_, rules)| rules);
    assert_eq!(blocks(&text, "pest").first().copied(), rules);
}
