//! Where lines break and how far they are indented.
//!
//! The author's breaks are kept where a line may break; items, statements and comments start lines of their own; a line that is
//! too long is broken at the outermost place that fits. Every decision depends only on the words before it and on breaks that
//! are written out, so formatting again gives the same.

use super::marks::{Mark, Role};
use super::spacing::Gap;
use super::{INDENT, WIDTH};

/// Lines that start deeper than this are not aligned with what they continue.
const MAX_ALIGN: usize = 24;

/// A break one bracket further out is better than any inside it.
const DEPTH: usize = 64;
/// After the `=` of a statement: worse than before its operators, better than within an `if`.
const AFTER_ASSIGN: usize = 20;

pub fn layout(marks: &[Mark], gaps: &[Gap]) -> String {
    let mut layout = Layout {
        marks,
        gaps,
        out: String::new(),
        column: 0,
        line_indent: 0,
        unit_indent: 0,
        brackets: Vec::new(),
        ifs: Vec::new(),
    };
    let breaks = breaks(marks, gaps);
    let mut start = 0;
    while start < marks.len() {
        let end = (start + 1..marks.len()).find(|i| breaks[*i]).unwrap_or(marks.len());
        layout.line(start, end);
        start = end;
    }
    if !layout.out.is_empty() {
        layout.out.push('\n');
    }
    layout.out
}

/// Before which words a line starts whatever its length.
fn breaks(marks: &[Mark], gaps: &[Gap]) -> Vec<bool> {
    let mut out = vec![false; marks.len()];
    let mut expanded = false;
    let mut hanging: Vec<bool> = Vec::new();
    for i in 1..marks.len() {
        let (before, mark) = (&marks[i - 1], &marks[i]);
        if before.role == Role::BlockOpen {
            expanded = is_expanded(marks, gaps, i - 1);
        }
        if before.opens() && before.role != Role::BlockOpen {
            hanging.push(mark.token.first && !mark.closes());
        }
        let closes_hanging = mark.closes() && mark.role != Role::BlockClose && hanging.pop().unwrap_or(false);
        out[i] = match mark.role {
            Role::Comment => mark.token.first,
            Role::Item => true,
            Role::Stmt | Role::BlockClose => expanded,
            Role::Setting => expanded && (mark.token.first || before.role == Role::BlockOpen),
            _ => closes_hanging || mark.token.first && may_break(before, mark, gaps[i]),
        } || before.is_comment();
    }
    out
}

/// Whether a block has lines of its own: unless its whole item was written on one line, fits there, and has one statement.
fn is_expanded(marks: &[Mark], gaps: &[Gap], open: usize) -> bool {
    let close =
        (open + 1..marks.len()).find(|i| marks[*i].role == Role::BlockClose).unwrap_or(marks.len() - 1);
    let item = (0..open).rev().find(|i| marks[*i].role == Role::Item).unwrap_or(open);
    let statements = marks[open..close].iter().filter(|m| m.role == Role::Stmt).count();
    let broken = marks[item + 1..=close].iter().any(|m| m.token.first || m.is_comment());
    let width = (item..=close).map(|i| marks[i].text.chars().count() + gaps[i].width()).sum::<usize>();
    close > open + 1 && (statements > 1 || broken || width > WIDTH)
}

/// Whether the author may have a line start between the two, where `gap` is on one line.
fn may_break(left: &Mark, right: &Mark, gap: Gap) -> bool {
    if left.opens() {
        return true;
    }
    if right.closes() {
        return false;
    }
    if matches!(right.role, Role::Binary | Role::BlockOpen) || matches!(left.role, Role::Binary) {
        return true;
    }
    if right.head && right.depth == 0 && right.text == "(" {
        return true;
    }
    !(left.role == Role::Prefix
        || matches!(right.text, "," | ":" | "." | ".." | "..=")
        || matches!(right.text, "(" | "[") && gap == Gap::None
        || matches!(left.text, ":" | "." | ".." | "..=")
        || right.role == Role::Assign
        || right.text == "="
        || left.role == Role::Item)
}

/// An open bracket.
#[derive(Clone, Copy)]
struct Bracket {
    /// A line was broken right after it.
    hanging: bool,
    /// The indentation of the line that it stands on.
    base: usize,
}

struct Layout<'m> {
    marks: &'m [Mark<'m>],
    gaps: &'m [Gap],
    out: String,
    column: usize,
    line_indent: usize,
    /// The indentation of the item, statement or setting that is being written.
    unit_indent: usize,
    brackets: Vec<Bracket>,
    /// The columns of the `if`s of this unit, each with the number of brackets around it.
    ifs: Vec<(usize, usize)>,
}

impl Layout<'_> {
    /// Writes one line, or several if it is too long.
    fn line(&mut self, start: usize, end: usize) {
        let mut start = start;
        loop {
            let indent = self.indent(start);
            match self.overlong(start, end, indent) {
                Some(split) => {
                    self.write(start, split, indent);
                    start = split;
                }
                None => {
                    self.write(start, end, indent);
                    return;
                }
            }
        }
    }

    fn width(&self, i: usize) -> usize {
        self.marks[i].text.chars().count()
    }

    /// Where to break a line that is too long: at the outermost place, the last one there that fits; if none fits, at the first.
    fn overlong(&self, start: usize, end: usize, indent: usize) -> Option<usize> {
        let code_end = if self.marks[end - 1].is_comment() { end - 1 } else { end };
        let mut column = indent;
        let mut best: Option<(usize, usize)> = None;
        for i in start..code_end {
            if i > start {
                column += self.gaps[i].width();
                let rank = self.rank(i, start);
                if rank < usize::MAX && best.is_none_or(|(r, _)| rank <= r && column <= WIDTH) {
                    best = Some((rank, i));
                }
            }
            column += self.width(i);
            if let Some((_, split)) = best.filter(|_| column > WIDTH) {
                return Some(split);
            }
        }
        None
    }

    /// How good a place before this word is to break a line; less is better. `from`: where the line starts.
    fn rank(&self, i: usize, from: usize) -> usize {
        let (before, mark) = (&self.marks[i - 1], &self.marks[i]);
        let outside = mark.depth * DEPTH + if mark.in_index && !mark.head { 2 * DEPTH } else { 0 };
        match mark.text {
            _ if mark.is_comment() || before.is_comment() => usize::MAX,
            "->" | "{" if mark.head && mark.depth == 0 => 0,
            "(" if mark.head && mark.depth == 0 => {
                if before.text == "]" && self.long_before(i) {
                    2
                } else {
                    usize::MAX
                }
            }
            _ if mark.role == Role::Setting => 0,
            "else" | "where" => outside + 1,
            _ if before.text == "=" && mark.depth == 0 && !mark.head => AFTER_ASSIGN,
            _ if !may_break(before, mark, self.gaps[i]) || before.opens() || before.role == Role::Keyword => {
                usize::MAX
            }
            _ if before.text == "," => outside + 2,
            _ if mark.role == Role::Binary && self.gaps[i] == Gap::Space => {
                outside + self.operator_rank(i, from)
            }
            _ => usize::MAX,
        }
    }

    /// Looser operators first; those within a branch of an `if` of the line last.
    fn operator_rank(&self, i: usize, from: usize) -> usize {
        let depth = self.marks[i].depth;
        let turn = self.marks[from..i]
            .iter()
            .rev()
            .find(|m| m.depth == depth && matches!(m.text, "if" | "then" | "else"));
        let inside = match turn.map(|m| m.text) {
            None => 0,
            Some("if") => 3 * DEPTH,
            Some(_) => AFTER_ASSIGN,
        };
        let level = crate::ast::BinOp::ALL.iter().find(|op| op.spelling() == self.marks[i].text);
        3 + level.map_or(0, |op| usize::from(op.precedence())) + inside
    }

    /// Enough of an op's head stands before the parameters to put them on a line of their own.
    fn long_before(&self, i: usize) -> bool {
        let head = self.marks[..i].iter().rposition(|m| m.role == Role::Item).unwrap_or(i);
        (head..i).map(|i| self.width(i) + self.gaps[i].width()).sum::<usize>() > 30
    }

    /// The indentation of a line that starts with this word. Brackets before it are on the stack.
    fn indent(&mut self, start: usize) -> usize {
        let own = (start..self.marks.len()).find(|i| !self.marks[*i].is_comment());
        let Some(next) = own else { return 0 };
        if start != next {
            return self.comment_indent(next);
        }
        let mark = &self.marks[start];
        match mark.role {
            Role::Item | Role::BlockClose => self.unit(0),
            Role::BlockOpen => 0,
            Role::Stmt | Role::Setting => self.unit(INDENT),
            _ => self.continued(start),
        }
    }

    /// A comment stands as deep as what it stands above.
    fn comment_indent(&self, next: usize) -> usize {
        match self.marks[next].role {
            Role::Item => 0,
            Role::Stmt | Role::Setting | Role::BlockClose => INDENT,
            _ => self.continued(next),
        }
    }

    fn unit(&mut self, indent: usize) -> usize {
        self.unit_indent = indent;
        self.ifs.clear();
        indent
    }

    /// The indentation of a line within an item or a statement.
    fn continued(&self, start: usize) -> usize {
        let mark = &self.marks[start];
        if let Some(bracket) = self.brackets.last().filter(|b| b.hanging) {
            let before = self.marks[..start].iter().rev().find(|m| !m.is_comment());
            let element = before.is_some_and(|m| m.text == "," && m.depth == mark.depth || m.opens());
            return match mark.closes() {
                true => bracket.base,
                false if element => bracket.base + INDENT,
                false => self.aligned(mark).unwrap_or(bracket.base + 2 * INDENT),
            };
        }
        if mark.head {
            return if mark.depth == 0 { INDENT } else { 2 * INDENT };
        }
        self.aligned(mark).unwrap_or_else(|| self.within_if() + INDENT)
    }

    /// What a line that goes on is indented from: its `if`, if lines are aligned with that, or its statement.
    fn within_if(&self) -> usize {
        let column = self.ifs.last().map(|(column, _)| *column).filter(|column| *column <= MAX_ALIGN);
        column.unwrap_or(self.unit_indent)
    }

    /// `then` and `else` stand under their `if`.
    fn aligned(&self, mark: &Mark) -> Option<usize> {
        if !matches!(mark.text, "then" | "else") {
            return None;
        }
        let inner = self.ifs.last().filter(|(_, depth)| *depth == self.brackets.len())?;
        Some(inner.0).filter(|column| *column <= MAX_ALIGN)
    }

    /// Writes the words of one line.
    fn write(&mut self, start: usize, end: usize, indent: usize) {
        self.new_line(start, indent);
        for i in start..end {
            if i > start {
                let gap = self.gaps[i].width();
                self.out.extend(std::iter::repeat_n(' ', gap));
                self.column += gap;
            }
            self.note(i, i + 1 == end);
            self.out.push_str(self.marks[i].text);
            self.column += self.width(i);
        }
    }

    fn new_line(&mut self, start: usize, indent: usize) {
        if !self.out.is_empty() {
            self.out.push('\n');
            if self.blank_above(start) {
                self.out.push('\n');
            }
        }
        self.out.extend(std::iter::repeat_n(' ', indent));
        (self.column, self.line_indent) = (indent, indent);
    }

    /// The author's empty line, but none at the ends of a block or within a statement.
    fn blank_above(&self, start: usize) -> bool {
        let own = self.marks[start..].iter().find(|m| !m.is_comment());
        let starts_unit =
            own.is_none_or(|m| matches!(m.role, Role::Item | Role::Stmt | Role::Setting | Role::BlockClose));
        let before = &self.marks[start - 1];
        let mark = &self.marks[start];
        mark.blank_above && starts_unit && before.role != Role::BlockOpen && mark.role != Role::BlockClose
    }

    /// Keeps track of brackets and `if`s. `last`: the word ends its line.
    fn note(&mut self, i: usize, last: bool) {
        let mark = &self.marks[i];
        if mark.is_comment() {
            return;
        }
        if mark.opens() && mark.role != Role::BlockOpen {
            self.brackets.push(Bracket { hanging: last, base: self.line_indent });
        } else if mark.closes() && mark.role != Role::BlockClose {
            self.brackets.pop();
            self.ifs.retain(|(_, depth)| *depth <= self.brackets.len());
        } else if matches!(mark.text, ",") {
            self.ifs.retain(|(_, depth)| *depth < self.brackets.len());
        } else if mark.text == "if" {
            self.note_if(i);
        }
    }

    /// An `if` after an `else` lines up with the `if` of that `else`.
    fn note_if(&mut self, i: usize) {
        let chained = i > 0 && self.marks[i - 1].text == "else";
        let outer = self.ifs.last().filter(|(_, depth)| *depth == self.brackets.len()).copied();
        match outer {
            Some(outer) if chained => self.ifs.push(outer),
            _ => self.ifs.push((self.column, self.brackets.len())),
        }
    }
}
