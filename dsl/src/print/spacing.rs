//! What stands between two words of one line.
//!
//! An operator is written tight (`i-1`, `2*pad`) or with spaces, as its author chose; but within one expression an operator
//! that binds no tighter than one with spaces has spaces too, so that spacing never belies precedence. Comparisons and logic
//! always have spaces.

use super::marks::{Mark, Role};
use crate::ast::BinOp;

/// Between a word and the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    None,
    Space,
    /// Between two settings of a line.
    Wide,
    /// Before a comment at the end of a line: as many as the author has, so that columns of comments stay.
    Exactly(usize),
}

impl Gap {
    pub fn width(self) -> usize {
        match self {
            Gap::None => 0,
            Gap::Space => 1,
            Gap::Wide => 3,
            Gap::Exactly(n) => n,
        }
    }
}

/// The gap before each word.
pub fn gaps(marks: &[Mark]) -> Vec<Gap> {
    let tight = tight_operators(marks);
    let mut out = Vec::with_capacity(marks.len());
    let mut previous: Option<usize> = None;
    for (i, mark) in marks.iter().enumerate() {
        out.push(match previous {
            None => Gap::None,
            Some(p) => gap(&marks[p], mark, tight[p] || tight[i]),
        });
        previous = Some(i);
    }
    out
}

fn gap(left: &Mark, right: &Mark, tight: bool) -> Gap {
    let spaced = |yes: bool| if yes { Gap::Space } else { Gap::None };
    if right.role == Role::Setting && left.role != Role::BlockOpen {
        return Gap::Wide;
    }
    if left.is_comment() || right.is_comment() {
        return Gap::Exactly((right.token.start - left.token.end).clamp(1, 40));
    }
    if left.role == Role::BlockOpen && right.role == Role::BlockClose {
        return Gap::None;
    }
    if left.role == Role::Binary || right.role == Role::Binary {
        return spaced(!tight);
    }
    if matches!(left.role, Role::BlockOpen | Role::Keyword)
        || matches!(right.role, Role::BlockOpen | Role::BlockClose)
    {
        return Gap::Space;
    }
    match (left.text, right.text) {
        (_, "," | ")" | "]" | "}" | ":" | "." | ".." | "..=") => Gap::None,
        ("(" | "[" | "{" | "." | ".." | "..=", _) => Gap::None,
        _ if left.role == Role::Prefix => Gap::None,
        ("max" | "min", "=") if left.role == Role::Assign => Gap::None,
        (_, "[" | "(") => spaced(!(left.ends_operand() && left.text != "->")),
        _ => Gap::Space,
    }
}

/// The operators of one expression at one bracket level.
#[derive(Default)]
struct Run {
    operators: Vec<usize>,
}

/// Which operators have no spaces around them.
fn tight_operators(marks: &[Mark]) -> Vec<bool> {
    let mut tight = vec![false; marks.len()];
    let mut runs: Vec<Run> = vec![Run::default()];
    for (i, mark) in marks.iter().enumerate() {
        if mark.is_comment() {
            continue;
        }
        if mark.opens() {
            runs.push(Run::default());
        } else if mark.closes() {
            // A right text has a run for each bracket; the outermost one stays.
            if let Some(run) = runs.pop() {
                run.settle(marks, &mut tight);
            }
            if runs.is_empty() {
                runs.push(Run::default());
            }
        } else if mark.role == Role::Binary && precedence(mark.text) > LOGIC {
            if let Some(run) = runs.last_mut() {
                run.operators.push(i);
            }
        } else if ends_run(mark)
            && let Some(run) = runs.last_mut()
        {
            std::mem::take(run).settle(marks, &mut tight);
        }
    }
    for run in runs {
        run.settle(marks, &mut tight);
    }
    tight
}

/// Comparisons and what binds less tightly.
const LOGIC: u8 = 3;

fn precedence(operator: &str) -> u8 {
    BinOp::ALL.into_iter().find(|op| op.spelling() == operator).map_or(0, BinOp::precedence)
}

/// Words between two expressions.
fn ends_run(mark: &Mark) -> bool {
    matches!(mark.role, Role::Item | Role::Stmt | Role::Setting | Role::Assign | Role::Keyword | Role::Binary)
        || matches!(mark.text, "," | "=" | "+=" | ".." | "..=" | ":" | "->")
}

impl Run {
    /// Decides for the operators of the run: those written with spaces have them, and so have those around them.
    fn settle(self, marks: &[Mark], tight: &mut [bool]) {
        let touches = |a: usize, b: usize| marks[a].token.end == marks[b].token.start;
        let written_tight = |i: usize| touches(i - 1, i) && i + 1 < marks.len() && touches(i, i + 1);
        let levels: Vec<u8> = self.operators.iter().map(|i| precedence(marks[*i].text)).collect();
        let mut spaced: Vec<bool> = self.operators.iter().map(|i| !written_tight(*i)).collect();
        // An operator with spaces makes those with spaces that have it in an operand, and they those around them.
        let mut todo: Vec<usize> = (0..spaced.len()).filter(|i| spaced[*i]).collect();
        while let Some(inner) = todo.pop() {
            for outer in around(&levels, inner) {
                if !std::mem::replace(&mut spaced[outer], true) {
                    todo.push(outer);
                }
            }
        }
        for (operator, spaced) in self.operators.into_iter().zip(spaced) {
            tight[operator] = !spaced;
        }
    }
}

/// The nearest operators on either side that have this one in an operand.
fn around(levels: &[u8], inner: usize) -> impl Iterator<Item = usize> {
    let level = levels[inner];
    let left = levels[..inner].iter().rposition(|l| *l < level);
    // Operators of one level group from the left.
    let right = levels[inner + 1..].iter().position(|l| *l <= level).map(|n| inner + 1 + n);
    left.into_iter().chain(right)
}
