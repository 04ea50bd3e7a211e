//! Programs with mistakes anywhere: words of the corpus are dropped, doubled, swapped or replaced by words of others.
//! Whatever comes out is accepted or refused with a diagnostic; nothing panics or hangs.

use girih_compiler::pass::{check, module};
use girih_dsl::source::Sources;
use std::path::Path;

/// A small generator of numbers, so that every run tries the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

fn words(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for c in text.lines().filter(|l| !l.starts_with("//")).flat_map(|l| l.chars().chain(['\n'])) {
        let wordy = |c: char| c.is_alphanumeric() || c == '_';
        match out.last_mut() {
            Some(last) if wordy(c) && last.chars().all(wordy) => last.push(c),
            _ => out.push(c.to_string()),
        }
    }
    out
}

fn mutate(dice: &mut Dice, own: &[String], others: &[String]) -> String {
    let mut w = own.to_vec();
    for _ in 0..1 + dice.below(3) {
        let at = dice.below(w.len());
        match dice.below(5) {
            0 => {
                w.remove(at);
            }
            1 => w.insert(at, w[at].clone()),
            2 => {
                let other = dice.below(w.len());
                w.swap(at, other);
            }
            3 => w[at] = others[dice.below(others.len())].clone(),
            _ => w[at] = own[dice.below(own.len())].clone(),
        }
        if w.is_empty() {
            break;
        }
    }
    w.concat()
}

#[test]
fn mistakes_anywhere_are_met_by_diagnostics() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/given");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the corpus")
        .map(|e| e.expect("a readable folder").path())
        .collect();
    files.sort();
    let texts: Vec<Vec<String>> =
        files.iter().map(|p| words(&std::fs::read_to_string(p).expect("a readable file"))).collect();
    let all: Vec<String> = texts.concat();
    let rounds: usize = std::env::var("ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(3);
    let mut dice = Dice(7);
    let (mut refused, mut total) = (0, 0);
    for own in (0..rounds).flat_map(|_| &texts) {
        let text = mutate(&mut dice, own, &all);
        let mut sources = Sources::default();
        let diags = match module::load("m.tile", &text, &mut sources, &|_| Err("no imports".into())) {
            Ok(m) => check::check(&m, &sources),
            Err(d) => d,
        };
        total += 1;
        refused += usize::from(!diags.is_empty());
        for d in &diags {
            assert!((d.span.end as usize) <= sources.get(d.span.file).text.len(), "{d:?} in\n{text}");
            assert!(d.help.is_some(), "{d:?} has no remedy");
        }
        girih_dsl::render(&sources, &diags, false);
    }
    assert!(refused * 2 > total, "only {refused} of {total} were refused: the mutations are too mild");
}
