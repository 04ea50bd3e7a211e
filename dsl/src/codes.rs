//! The registry of diagnostic codes: one row each, with a title and the long text that `girih explain CODE` prints.
//!
//! A code never changes its meaning and is never used again. To add one, add a row to the table of its group; the text says
//! what is wrong and why it is refused, then shows a wrong example and the right one.
//!
//! | codes | table | about |
//! |---|---|---|
//! | E00xx | `syntax` | text and grammar |
//! | E01xx | `names` | names, imports, axes |
//! | E02xx | `ranges` | ranges and bounds |
//! | E03xx | `types` | types and conversions |
//! | E04xx | `statements` | definitions, recurrences, updates, op calls |
//! | E05xx | `binding` | sizes, consts and inputs of a run |
//! | E06xx | `schedule` | `tile` and `profile` |
//! | E07xx | `running` | compiling and running |
//! | W0xxx | `warnings` | right, but perhaps not meant |

mod binding;
mod names;
mod ranges;
mod running;
mod schedule;
mod statements;
mod syntax;
mod types;
mod warnings;

/// One code.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    pub code: &'static str,
    /// A few words: the kind of mistake, without the user's names.
    pub title: &'static str,
    /// What is wrong, a wrong example, the right one.
    pub text: &'static str,
}

/// All tables, in the order of their codes.
const TABLES: [&[Code]; 9] = [
    syntax::ROWS,
    names::ROWS,
    ranges::ROWS,
    types::ROWS,
    statements::ROWS,
    binding::ROWS,
    schedule::ROWS,
    running::ROWS,
    warnings::ROWS,
];

/// Every code there is.
pub fn all() -> impl Iterator<Item = &'static Code> {
    TABLES.into_iter().flatten()
}

/// The row of a code, written in either case.
pub fn find(code: &str) -> Option<&'static Code> {
    all().find(|row| row.code.eq_ignore_ascii_case(code))
}

/// The long text of a code.
pub fn explain(code: &str) -> Option<&'static str> {
    find(code).map(|row| row.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_in_their_tables() {
        let mut seen = std::collections::BTreeSet::new();
        for (n, table) in TABLES.iter().enumerate() {
            for row in *table {
                assert!(seen.insert(row.code), "{} twice", row.code);
                let prefix = if n == 8 { "W0".to_string() } else { format!("E0{n}") };
                assert!(row.code.starts_with(&prefix) && row.code.len() == 5, "{} in table {n}", row.code);
                assert!(!row.title.ends_with('.') && !row.title.is_empty(), "{}: title", row.code);
                assert!(
                    row.text.ends_with('\n') && row.text.contains("    "),
                    "{}: text without an example",
                    row.code
                );
            }
        }
    }

    #[test]
    fn finds_in_either_case() {
        assert!(explain("e0005").is_some_and(|text| text == explain("E0005").unwrap_or("")));
        assert!(explain("E9999").is_none());
    }
}
