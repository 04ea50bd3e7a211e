//! The ways out for an index that leaves its tensor, in the author's own names: the size that the dim has, the condition
//! that keeps the index inside, a `where` that makes it fit.

use super::elab::{Elab, View};
use super::poly::Poly;
use super::scan;
use crate::ir::graph::{AxisId, ExprId};
use girih_dsl::ast::{BinOp, Expr, ExprKind, Name, UnOp};
use girih_dsl::print_expr;

/// An index that can be outside of its dim.
pub struct Leaving<'a> {
    pub name: &'a Name,
    pub view: &'a View,
    /// All indices as they are written, and which of them leaves.
    pub written: &'a [Expr],
    pub at: usize,
    pub index: ExprId,
    pub inside: (i64, i64),
    /// The point at which it does.
    pub point: &'a [(AxisId, i64)],
    pub value: i64,
    pub stored: bool,
}

/// A fold: its name, `sum[r in 0..3`, what it folds.
struct Around<'e> {
    name: &'e str,
    head: String,
    body: String,
}

impl Leaving<'_> {
    fn past(&self) -> bool {
        self.value >= self.inside.1
    }

    fn this(&self) -> &Expr {
        &self.written[self.at]
    }

    /// The read with another text for the index.
    fn read_with(&self, index: &str) -> String {
        let mut all: Vec<String> = self.written.iter().map(print_expr).collect();
        all[self.at] = index.into();
        format!("{}[{}]", self.name.text, all.join(", "))
    }

    fn read(&self) -> String {
        self.read_with(&print_expr(self.this()))
    }

    /// The read as it is written.
    pub fn whole(&self) -> String {
        self.read()
    }
}

impl Elab<'_> {
    /// What to write instead.
    pub fn ways_out(&mut self, l: &Leaving) -> String {
        let (first, end) = self.dim_in_words(l);
        let this = print_expr(l.this());
        if let Some(help) = self.whole_groups(l, &end) {
            return help;
        }
        if l.point.is_empty() {
            // `x[M]` where m is an axis.
            let lower = this.to_lowercase();
            let axis = (this == end && self.bound(&lower).is_some()).then_some(lower);
            return constant_index(l, &this, &end, axis);
        }
        let stays = self.stays_inside(l, &first, &end);
        if l.stored {
            let update = self.at_hand.filter(|s| s.cond.is_none());
            let text = update.map(|s| {
                format!("{} {} {} where {stays}", l.read(), s.assign.spelling(), print_expr(&s.value))
            });
            return match text.filter(|t| t.len() < 90) {
                Some(text) => format!("leave the points outside out: `{text}`"),
                None => format!("leave the points outside out: end the statement with `where {stays}`"),
            };
        }
        let mut ways = Vec::new();
        if l.view.early {
            ways.push(format!("write its start as a default, `({} else 0)`", l.read()));
            ways.push(format!("or as a choice, `if {stays} then {} else 0`", l.read()));
            return ways.join(", ");
        }
        if let Some(mirrored) = self.mirrored(l, &end) {
            ways.push(format!("the last index is {}: write `{mirrored}`; or", less_one(&end)));
        }
        let fold = self.fold_around(l);
        let float = self.g.tensor(l.view.id).dtype.compute().is_float();
        let border = match fold.as_ref().map(|f| f.name) {
            Some("max" | "logsumexp" | "argmax") if float => Some("-inf"),
            Some("min" | "argmin") if float => Some("inf"),
            Some("prod") => Some("1"),
            Some("max" | "min" | "argmax" | "argmin" | "mean" | "any" | "all") => None,
            _ => Some("0"),
        };
        if let Some(border) = border {
            ways.push(format!("give the read a default, `({} else {border})`", l.read()));
        }
        ways.push(match fold {
            Some(f) => format!("leave its term out, `{} where {stays}]({})`", f.head, f.body),
            None => format!("guard it, `if {stays} then {} else 0`", l.read()),
        });
        if let Some(range) = self.shorter_range(l, &end) {
            ways.push(format!("give the axis a range, `{range}`"));
        }
        ways.push(match l.past() {
            true => format!("or clamp the index, `min({this}, {})`", less_one(&end)),
            false => format!("or clamp the index, `max({this}, {first})`"),
        });
        let text = ways.join(", ");
        text.replace("; or, ", "; or ")
    }

    /// The ends of the dim as the author says them; numbers, where no name is known.
    fn dim_in_words(&self, l: &Leaving) -> (String, String) {
        let sayable = |p: Option<&Poly>, number: i64| {
            let text = p.map(Poly::to_string).filter(|t| !t.contains(['?', '#']));
            text.unwrap_or_else(|| number.to_string())
        };
        let dim = l.view.sym.get(l.at);
        (sayable(dim.map(|d| &d.0), l.inside.0), sayable(dim.map(|d| &d.1), l.inside.1))
    }

    /// `x[m, k/GS]`, which leaves where the last group is not whole.
    fn whole_groups(&mut self, l: &Leaving, end: &str) -> Option<String> {
        let (ExprKind::Binary(BinOp::Div, of, by), true) = (&unwrapped(l.this()).kind, l.past()) else {
            return None;
        };
        let axis = scan::bare(of).and_then(|n| self.bound(&n.text))?.id;
        let (all, by_poly) = (self.sym_of_axis(axis).1, self.poly(by));
        let dim = l.view.sym.get(l.at)?.1.clone();
        let (whole, by) = (all.to_string(), print_expr(by));
        if whole.contains(['?', '#']) || end.contains(['?', '#']) {
            return None;
        }
        let default = format!("or give the read a default: ({} else 0)", l.read());
        let exact = match (dim == all.div(&by_poly), by_poly == all.div(&dim)) {
            (true, _) => Some(by.clone()),
            (_, true) => Some(end.to_string()),
            _ => None,
        };
        Some(match exact {
            Some(parts) => format!(
                "say that the groups are whole, `where {} % {parts} == 0` after the op's results, {default}",
                factor(&whole)
            ),
            None => {
                format!(
                    "say that there are enough, `where cdiv({whole}, {by}) <= {end}` after the op's results, {default}"
                )
            }
        })
    }

    /// The condition under which the index is inside, as one would write it.
    fn stays_inside(&self, l: &Leaving, first: &str, end: &str) -> String {
        let this = print_expr(l.this());
        let lin = self.prover.lin(&self.g, l.index);
        let (lo, hi) = (l.inside.0 as i128, l.inside.1 as i128);
        let above = self.prover.proves(&self.g, &lin.clone().shift(-lo));
        let below = self.prover.proves(&self.g, &super::prove::Lin::constant(hi - 1).plus(&lin, -1));
        match (above, below) {
            (false, true) => match at_least_zero(l.this()).filter(|_| first == "0") {
                Some(text) => text,
                None => format!("{this} >= {first}"),
            },
            (true, false) => less_than(l.this(), end),
            _ => format!("{first} <= {this} < {end}"),
        }
    }

    /// `x[N - 1 - i]` for `x[N - i]`.
    fn mirrored(&self, l: &Leaving, end: &str) -> Option<String> {
        let (plus, minus) = terms(l.this());
        let exact = plus.len() == 1 && plus[0] == end && !minus.is_empty() && l.value == l.inside.1;
        exact.then(|| l.read_with(&format!("{end} - 1 - {}", minus.join(" - "))))
    }

    /// Does a fold of the statement bind an axis of the index?
    fn folded_over(&self, l: &Leaving) -> bool {
        let folds = self.frame().axes.get(self.frame().left..).unwrap_or_default();
        let mut found = false;
        scan::each_name(l.this(), &mut |n| found |= folds.iter().any(|b| b.name == n.text));
        found
    }

    /// The innermost fold that binds an axis of the index.
    fn fold_around(&self, l: &Leaving) -> Option<Around<'_>> {
        fn find<'e>(e: &'e Expr, names: &[&str]) -> Option<Around<'e>> {
            if let Some(inner) = scan::children(e).into_iter().find_map(|c| find(c, names)) {
                return Some(inner);
            }
            let ExprKind::Fold { name, binders, cond: None, body } = &e.kind else { return None };
            let text = |b: &girih_dsl::ast::Binder| match &b.range {
                Some(r) => {
                    let dots = if r.closed { "..=" } else { ".." };
                    format!("{} in {}{dots}{}", b.name.text, print_expr(&r.lo), print_expr(&r.hi))
                }
                None => b.name.text.clone(),
            };
            let all: Vec<String> = binders.iter().map(text).collect();
            let binds = binders.iter().any(|b| names.contains(&b.name.text.as_str()));
            binds.then(|| Around {
                name: &name.text,
                head: format!("{}[{}", name.text, all.join(", ")),
                body: print_expr(body),
            })
        }
        let names = super::sizes::names_in(l.this());
        self.folded_over(l).then(|| find(&self.at_hand?.value, &names)).flatten()
    }

    /// `i in 0..N - 1` for `x[i + 1]`, where the axis is a fold's or a local's and has the dim's range.
    fn shorter_range(&self, l: &Leaving, end: &str) -> Option<String> {
        let (plus, minus) = terms(l.this());
        let axes: Vec<&String> = plus.iter().filter(|t| self.bound(t).is_some()).collect();
        let [axis] = axes[..] else { return None };
        let bound = self.bound(axis)?;
        let same = self.same(&self.sym_of_axis(bound.id).1, &l.view.sym.get(l.at)?.1);
        let rest: Vec<&String> = plus.iter().filter(|t| *t != axis).collect();
        let constant = |t: &String| self.bound(t).is_none() && !t.contains(['[', '(', '*', '/', '%']);
        let free = self.folded_over(l) || self.frame().local;
        if !same || !free || plus.iter().any(|t| t.contains('?')) {
            return None;
        }
        match (rest[..].is_empty(), &minus[..]) {
            (true, [step]) if constant(step) && !l.past() => Some(format!("{axis} in {step}..{end}")),
            (false, []) if rest.len() == 1 && constant(rest[0]) && l.past() => {
                Some(format!("{axis} in 0..{end} - {}", rest[0]))
            }
            _ => None,
        }
    }
}

/// An index without axes: `x[m, -1]`, `x[N]`, `x[2]`.
fn constant_index(l: &Leaving, this: &str, end: &str, axis: Option<String>) -> String {
    if let Some(back) = this.strip_prefix('-') {
        let last = l.read_with(&format!("{end} - {back}"));
        return format!("indices count from 0, the last is the size less one: write {last}");
    }
    if let Some(axis) = axis.filter(|_| l.past()) {
        return format!("`{this}` is the size, its axis is `{axis}`: write {}", l.read_with(&axis));
    }
    if l.past() && this.replace(' ', "") == end.replace(' ', "") {
        return format!(
            "indices count from 0, the last is {}: write {}",
            less_one(end),
            l.read_with(&less_one(end))
        );
    }
    if l.past() && !end.starts_with(|c: char| c.is_ascii_digit()) {
        return format!(
            "say that there are enough, `where {end} > {this}` after the op's results, or give the read a default: ({} else 0)",
            l.read()
        );
    }
    format!("give the read a default: ({} else 0)", l.read())
}

fn unwrapped(e: &Expr) -> &Expr {
    match &e.kind {
        ExprKind::Paren(a) => unwrapped(a),
        _ => e,
    }
}

/// In parentheses, if it is a sum or a product.
fn factor(text: &str) -> String {
    if text.contains([' ', '*', '/']) { format!("({text})") } else { text.into() }
}

/// `N - 1`, `3` for 4.
fn less_one(end: &str) -> String {
    match end.parse::<i64>() {
        Ok(n) => (n - 1).to_string(),
        Err(_) => format!("{end} - 1"),
    }
}

/// The terms of a sum, those that are added and those that are taken away.
fn terms(e: &Expr) -> (Vec<String>, Vec<String>) {
    fn walk(e: &Expr, plus: bool, out: &mut (Vec<String>, Vec<String>)) {
        match &e.kind {
            ExprKind::Paren(a) => walk(a, plus, out),
            ExprKind::Unary(UnOp::Neg, a) => walk(a, !plus, out),
            ExprKind::Binary(op @ (BinOp::Add | BinOp::Sub), a, b) => {
                walk(a, plus, out);
                walk(b, plus == (*op == BinOp::Add), out);
            }
            _ if plus => out.0.push(print_expr(e)),
            _ => out.1.push(print_expr(e)),
        }
    }
    let mut out = (Vec::new(), Vec::new());
    walk(e, true, &mut out);
    out
}

/// `i >= r` for the index `i - r`.
fn at_least_zero(e: &Expr) -> Option<String> {
    let (plus, minus) = terms(e);
    (!plus.is_empty() && !minus.is_empty()).then(|| format!("{} >= {}", plus.join(" + "), minus.join(" + ")))
}

/// `i + 1 < N`; `i > 0` for the index `N - i` and the dim N.
fn less_than(e: &Expr, end: &str) -> String {
    let (mut plus, minus) = terms(e);
    match plus.iter().position(|t| t == end).filter(|_| !minus.is_empty()) {
        Some(at) => {
            plus.remove(at);
            match plus.is_empty() {
                true => format!("{} > 0", minus.join(" + ")),
                false => format!("{} > {}", minus.join(" + "), plus.join(" + ")),
            }
        }
        None => format!("{} < {end}", print_expr(e)),
    }
}
