//! The space of a plan: for each kernel, the settings that its form leaves open on the target, narrowed by the op's
//! `tile` blocks. It is read off the lowering (`lower::space` and `schedule::choices`), so that a setting which a form
//! gains is searched without a change here.
//!
//! A point of a kernel's space is a number in mixed radix: a digit for each setting, 0 where the form chooses by
//! itself. So 0 is the form's own choice, and among equals the least number wins.

use girih_compiler::ir::graph::Word;
use girih_compiler::ir::plan::{Form, Plan};
use girih_compiler::lower::schedule::{choices, word_text};
use girih_compiler::lower::{Choice, Refusal, Schedule, plan_to_program};
use girih_compiler::vocab::target::Target;
use std::fmt;

/// Every kernel's settings with the values that they may have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Space {
    pub kernels: Vec<KernelSpace>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct KernelSpace {
    pub kernel: String,
    pub form: Form,
    pub choices: Vec<Choice>,
}

/// No value of a setting that a `tile` block names can be had.
#[derive(Clone, Debug, PartialEq)]
pub struct Empty {
    pub kernel: String,
    /// `block m`, if one setting is to blame.
    pub setting: Option<String>,
    pub why: Refusal,
}

impl Space {
    /// The space of a plan on a target.
    pub fn of(plan: &Plan, target: &Target) -> Space {
        let kernels = plan.kernels.iter().map(|k| KernelSpace {
            kernel: k.name.clone(),
            form: k.form,
            choices: choices(plan, k, target),
        });
        Space { kernels: kernels.collect() }
    }

    /// Whether any point is left: a setting none of whose values the lowering takes, whatever the others are, is told
    /// by its name.
    pub fn check(&self, plan: &Plan, target: &Target) -> Result<(), Box<Empty>> {
        let accepts = |s: &Schedule| plan_to_program(plan, target, s);
        let Err(first) = accepts(&Schedule::default()) else { return Ok(()) };
        for k in &self.kernels {
            let mut last = None;
            let fits = k.points().filter(|p| *p > 0).take(TRIED).any(|p| match accepts(&k.schedule(p)) {
                Ok(_) => true,
                Err(why) => {
                    last = Some(why);
                    false
                }
            });
            let blamed = last.as_ref().and_then(|w| w.setting.clone()).or(first.setting.clone());
            let named = last.as_ref().is_some_and(|w| w.kernel.as_ref() == Some(&k.kernel));
            let own = named
                || blamed
                    .as_ref()
                    .is_none_or(|b| k.choices.iter().any(|c| c.name() == *b || b.starts_with(&c.key)));
            if !fits && own && (last.is_some() || self.kernels.len() == 1) {
                // What the blocks say themselves is to blame, not what was tried beside it.
                let why = if first.setting.is_some() { first } else { last.unwrap_or(first) };
                return Err(Box::new(Empty { kernel: k.kernel.clone(), setting: why.setting.clone(), why }));
            }
        }
        Ok(())
    }

    /// Points of all kernels' spaces together.
    pub fn size(&self) -> u64 {
        self.kernels.iter().map(KernelSpace::size).fold(0, u64::saturating_add)
    }
}

/// Points that are tried before a space counts as empty.
const TRIED: usize = 4096;

impl KernelSpace {
    /// Points: each setting's values, or none of them.
    pub fn size(&self) -> u64 {
        self.choices.iter().fold(1u64, |n, c| n.saturating_mul(c.values.len() as u64 + 1))
    }

    /// All points in ascending order.
    pub fn points(&self) -> impl Iterator<Item = u64> + use<> {
        0..self.size()
    }

    pub fn digits(&self, mut point: u64) -> Vec<usize> {
        let digit = |c: &Choice| {
            let n = c.values.len() as u64 + 1;
            let d = point % n;
            point /= n;
            d as usize
        };
        self.choices.iter().map(digit).collect()
    }

    pub fn point(&self, digits: &[usize]) -> u64 {
        let radix = self.choices.iter().map(|c| c.values.len() as u64 + 1);
        radix.zip(digits).rev().fold(0, |n, (r, &d)| n * r + d as u64)
    }

    /// The settings of a point.
    pub fn schedule(&self, point: u64) -> Schedule {
        let mut schedule = Schedule::default();
        self.add(point, &mut schedule);
        schedule
    }

    /// Adds a point's settings to a schedule of other kernels.
    pub fn add(&self, point: u64, schedule: &mut Schedule) {
        for (c, d) in self.choices.iter().zip(self.digits(point)) {
            if d > 0 {
                schedule.set(&self.kernel, &c.key, &c.axis, c.values[d - 1].clone());
            }
        }
    }

    /// The point that a schedule's settings of this kernel make; `None` if one of them is outside the space.
    pub fn find(&self, schedule: &Schedule) -> Option<u64> {
        let mut digits = vec![0; self.choices.len()];
        for ((key, axis), value) in schedule.kernels.get(&self.kernel).into_iter().flatten() {
            let at = self.choices.iter().position(|c| c.key == *key && c.axis == *axis)?;
            digits[at] = self.choices[at].values.iter().position(|v| v == value)? + 1;
        }
        Some(self.point(&digits))
    }

    /// Points that differ in one setting, by one step where both have a value, in ascending order.
    pub fn neighbours(&self, point: u64) -> Vec<u64> {
        let digits = self.digits(point);
        let mut found = Vec::new();
        for (i, c) in self.choices.iter().enumerate() {
            let d = digits[i];
            let near: Vec<usize> = match d {
                0 => (1..=c.values.len()).collect(),
                _ => [0, d - 1, d + 1].into_iter().filter(|&n| n <= c.values.len()).collect(),
            };
            for n in near.into_iter().filter(|&n| n != d) {
                let mut other = digits.clone();
                other[i] = n;
                found.push(self.point(&other));
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// `block m`, or `stages`.
pub trait Named {
    fn name(&self) -> String;
}

impl Named for Choice {
    fn name(&self) -> String {
        if self.axis.is_empty() { self.key.clone() } else { format!("{} {}", self.key, self.axis) }
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for k in &self.kernels {
            let points = k.size();
            writeln!(
                f,
                "kernel {} ({}): {points} point{}",
                k.kernel,
                k.form.name(),
                if points == 1 { "" } else { "s" }
            )?;
            for c in &k.choices {
                let values: Vec<String> = c.values.iter().map(word_text).collect();
                match &values[..] {
                    [one] => writeln!(f, "  {} = {one}", c.name())?,
                    many => writeln!(f, "  {} = {{{}}}", c.name(), many.join(", "))?,
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Empty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let setting = self.setting.as_ref().map_or("its settings".into(), |s| format!("`{s}`"));
        write!(
            f,
            "the `tile` blocks leave nothing for kernel {}: no value of {setting} can be had: {}",
            self.kernel, self.why.message
        )
    }
}

/// A kernel's settings as a `tile` block writes them; nothing for none.
pub fn tile_block(op: &str, target: &str, schedule: &Schedule) -> String {
    let target = target.strip_suffix('a').unwrap_or(target);
    let mut text = String::new();
    for (kernel, settings) in schedule.kernels.iter().filter(|(_, s)| !s.is_empty()) {
        text += &format!("tile {op}.{kernel} for {target} {{");
        let mut last = "";
        for ((key, axis), value) in settings {
            let value: String = match value {
                Word::Int(_) | Word::Name(_) | Word::Apply(..) => word_text(value),
            };
            text += match (last == key, axis.is_empty()) {
                (true, _) => ", ",
                (false, _) => "   ",
            };
            if last != key {
                text += key;
                text += " ";
            }
            if !axis.is_empty() {
                text += axis;
                text += " ";
            }
            text += &format!("= {value}");
            last = key;
        }
        text += " }\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> KernelSpace {
        let choices = vec![Choice::ints("block", "m", &[16, 32, 64]), Choice::ints("stages", "", &[2, 3])];
        KernelSpace { kernel: "y".into(), form: Form::Contract, choices }
    }

    #[test]
    fn points_are_numbers_and_back() {
        let s = space();
        assert_eq!(s.size(), 12);
        for p in s.points() {
            assert_eq!(s.point(&s.digits(p)), p);
            assert_eq!(s.find(&s.schedule(p)), Some(p));
        }
        assert!(s.schedule(0).kernels.is_empty());
        let other = Schedule::parse("y.block m = 48").unwrap();
        assert_eq!(s.find(&other), None);
    }

    #[test]
    fn neighbours_differ_in_one_setting() {
        let s = space();
        for p in s.points() {
            for n in s.neighbours(p) {
                let (a, b) = (s.digits(p), s.digits(n));
                assert_eq!(a.iter().zip(&b).filter(|(x, y)| x != y).count(), 1);
            }
        }
        assert_eq!(s.neighbours(s.point(&[2, 0])), [0, 1, 3, 6, 10].map(|p| p).to_vec());
    }

    #[test]
    fn a_tile_block_reads_as_it_is_written() {
        let s = Schedule::parse("y.block m = 64\ny.block n = 128\ny.stages = 3").unwrap();
        assert_eq!(
            tile_block("f", "sm_90a", &s),
            "tile f.y for sm_90 {   block m = 64, n = 128   stages = 3 }\n"
        );
    }
}
