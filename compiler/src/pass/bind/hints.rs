//! Helps that show the user's own expression as it should be written.

use super::elab::{Elab, Meaning, View};
use super::poly::Poly;
use crate::ir::graph::AxisId;
use crate::pass::module::Found;
use girih_dsl::ast::*;
use girih_dsl::diagnostic::Diagnostic;
use girih_dsl::print_expr;

/// A text with one word for another.
pub fn renamed(text: &str, from: &str, to: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in text.chars().chain(Some(' ')) {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        out += if word == from { to } else { &word };
        word.clear();
        out.push(c);
    }
    out.pop();
    out
}

/// Folds that keep their axis.
pub const ALONG: [&str; 6] = ["softmax", "cumsum", "cumprod", "cummax", "cummin", "argsort"];

impl Elab<'_> {
    /// `sum[k](x[m, k])` for `sum(x, axis = 1)`, `sum(x[m])` or `sum(x[m, k])`.
    pub fn fold_form(&self, name: &str, args: &[Arg]) -> Option<String> {
        let first = &args.first()?.value;
        let (axes, body) = match self.whole_rows(first) {
            Some((tensor, form)) => (form.clone(), format!("{tensor}[{}]", form.join(", "))),
            None => {
                (super::sizes::names_in(first).into_iter().map(String::from).collect(), print_expr(first))
            }
        };
        let mut axes: Vec<String> = axes.into_iter().filter(|a| self.could_be_an_axis(a)).collect();
        let along = ALONG.contains(&name);
        axes.retain(|a| along == self.bound(a).is_some());
        axes.dedup();
        if along || name.starts_with("arg") {
            axes.drain(..axes.len().saturating_sub(1));
        }
        (!axes.is_empty()).then(|| format!("{name}[{}]({body})", axes.join(", ")))
    }

    /// The help for a fold that is written like a function.
    pub fn fold_help(&self, name: &str, args: &[Arg]) -> String {
        match self.fold_form(name, args) {
            Some(form) => format!("write {form}"),
            None => match args.first().and_then(|a| self.over_an_axis(&a.value)) {
                Some((axes, body)) => format!("write {name}[{axes}]({body})"),
                None => format!("write {name}[k](x[k])"),
            },
        }
    }

    /// The axes and the body of a fold of an expression: whole tensors in it get indices, else its last axis at hand,
    /// which a fold cannot bind again, another name.
    fn over_an_axis(&self, e: &Expr) -> Option<(String, String)> {
        let mut whole: Vec<(String, Vec<String>)> = Vec::new();
        self.each_whole(e, &mut whole);
        let text = print_expr(e);
        if let Some((_, form)) = whole.first() {
            let indexed = |text: String, (t, form): &(String, Vec<String>)| {
                renamed(&text, t, &format!("{t}[{}]", form.join(", ")))
            };
            let free: Vec<String> = form.iter().filter(|a| self.bound(a).is_none()).cloned().collect();
            return (!free.is_empty()).then(|| (free.join(", "), whole.iter().fold(text, indexed)));
        }
        let axis = super::sizes::names_in(e).into_iter().rfind(|n| self.bound(n).is_some())?;
        let taken = |l: &str| self.bound(l).is_some() || self.frame().taken.contains_key(l);
        let other = ["k", "j", "l", "i"].into_iter().find(|l| !taken(l))?;
        Some((other.to_string(), renamed(&text, axis, other)))
    }

    /// `write y[i] = x[i] * 2` for `y = x * 2`, where the tensors have as many axes as the target; a call that there is
    /// none of has its own help.
    pub fn element_form(&self, s: &Stmt, t: &Target, rank: usize) -> Option<String> {
        if let Some(slots) = t.slots.as_deref().filter(|s| !s.is_empty()) {
            return self.more_axes(s, t, slots, rank.checked_sub(slots.len())?);
        }
        let letters = &["i", "j", "k", "l", "m", "n"][..rank.min(6)];
        let indices = letters.join(", ");
        if let ExprKind::Call { lib: None, name, args } = &s.value.kind {
            let whole = matches!(&args[..], [a] if self.whole_rows(&a.value).is_some_and(|(_, form)| form.len() == rank));
            if let Some(along) = ALONG.iter().find(|a| **a == name.text).filter(|_| whole) {
                let last = letters.last()?;
                return Some(format!(
                    "write {}[{indices}] = {along}[{last}]({}[{indices}])",
                    t.name.text,
                    print_expr(&args[0].value)
                ));
            }
            let known = !matches!(self.module.callable(self.frame().unit, None, &name.text), Found::None);
            if !known && !super::call::is_built_in(&name.text) {
                return girih_dsl::foreign::function(&name.text);
            }
        }
        let mut whole: Vec<(String, Vec<String>)> = Vec::new();
        self.each_whole(&s.value, &mut whole);
        let itself = whole.iter().any(|(name, _)| *name == t.name.text);
        if whole.is_empty() || itself || whole.iter().any(|(_, form)| form.len() != rank) {
            return None;
        }
        let value = whole.iter().fold(print_expr(&s.value), |text, (name, _)| {
            renamed(&text, name, &format!("{name}[{indices}]"))
        });
        Some(format!("write {}[{indices}] = {value}", t.name.text))
    }

    /// `write y[n, j] = x[ids[n], j]` for `y[n] = x[ids[n]]`, where each tensor lacks the same number of axes.
    fn more_axes(&self, s: &Stmt, t: &Target, slots: &[Slot], missing: usize) -> Option<String> {
        let mut reads: Vec<(String, usize)> = Vec::new();
        self.each_part(&s.value, &mut reads);
        if missing == 0 || reads.is_empty() || reads.iter().any(|(_, lacks)| *lacks != missing) {
            return None;
        }
        let letters = ["j", "k", "l", "i", "p", "q"];
        let more: Vec<&str> =
            letters.into_iter().filter(|l| self.could_be_an_axis(l)).take(missing).collect();
        let more = more.join(", ");
        let wider = |text: &str| format!("{}, {more}]", text.strip_suffix(']').unwrap_or(text));
        let value =
            reads.iter().fold(print_expr(&s.value), |value, (read, _)| value.replace(read, &wider(read)));
        let own: Vec<String> = slots.iter().map(super::advice::slot_text).collect();
        Some(format!("write {}[{}, {more}] = {value}", t.name.text, own.join(", ")))
    }

    /// Reads of tensors with some of their indices, and how many they lack.
    fn each_part(&self, e: &Expr, out: &mut Vec<(String, usize)>) {
        if let ExprKind::Read { name, index: Some(index) } = &e.kind
            && let Some(Meaning::Tensor(view)) = self.frame().names.get(&name.text)
            && view.sym.len() > index.len()
            && !index.is_empty()
        {
            let read = (print_expr(e), view.sym.len() - index.len());
            if !out.contains(&read) {
                out.push(read);
            }
        }
        super::scan::children(e).into_iter().for_each(|c| self.each_part(c, out));
    }

    /// `softmax[j](s[i, j])` for `softmax[k](s[i, k])` in a statement that has j on its left and nothing else that uses it.
    pub fn along_the_left(&self, fold: &Name, axis: &Name, body: &Expr) -> Option<String> {
        let [t] = &self.at_hand?.targets[..] else { return None };
        let mut left = t.slots.iter().flatten().filter_map(super::advice::slot_axis);
        let names = super::sizes::names_in(body);
        let own = left.rfind(|n| !names.contains(n))?;
        Some(format!("{}[{own}]({})", fold.text, renamed(&print_expr(body), &axis.text, own)))
    }

    /// Tensors that stand in an expression without any index.
    fn each_whole(&self, e: &Expr, out: &mut Vec<(String, Vec<String>)>) {
        if let ExprKind::Read { index: None, .. } = &e.kind
            && let Some(row) = self.whole_rows(e).filter(|row| !out.contains(row))
        {
            out.push(row);
        }
        super::scan::children(e).into_iter().for_each(|c| self.each_whole(c, out));
    }

    /// A read of a tensor with too few or too many indices, somewhere in an expression: the report of it, where `axis` is
    /// taken for the first index that is missing.
    pub fn miscounted(&self, e: &Expr, axis: &str) -> Option<Diagnostic> {
        if let ExprKind::Read { name, index } = &e.kind
            && let index = index.as_deref().unwrap_or_default()
            && let Some(Meaning::Tensor(view)) = self.frame().names.get(&name.text)
            && view.sym.len() > index.len()
        {
            let mut form = self.likely_indices(view);
            for (place, e) in form.iter_mut().zip(index) {
                *place = print_expr(e);
            }
            form[index.len()] = axis.to_string();
            return Some(super::read::count_of_indices(name, index.len(), &form, e.span));
        }
        super::scan::children(e).into_iter().find_map(|c| self.miscounted(c, axis))
    }

    /// A tensor of which axes are left out, with an index for each of its dims.
    pub fn whole_rows(&self, e: &Expr) -> Option<(String, Vec<String>)> {
        let ExprKind::Read { name, index } = &e.kind else { return None };
        let Some(Meaning::Tensor(view)) = self.frame().names.get(&name.text) else { return None };
        let written = index.as_deref().unwrap_or_default();
        if written.len() >= view.sym.len() {
            return None;
        }
        let mut form = self.likely_indices(view);
        for (place, e) in form.iter_mut().zip(written) {
            *place = print_expr(e);
        }
        Some((name.text.clone(), form))
    }

    /// A name that is an axis, or means nothing else.
    pub fn could_be_an_axis(&self, name: &str) -> bool {
        let frame = self.frame();
        self.bound(name).is_some()
            || !frame.names.contains_key(name)
                && !frame.taken.contains_key(name)
                && matches!(self.module.constant(frame.unit, name), Found::None)
    }

    /// An index for each dim of a tensor: the axis at hand that ranges over it, else a letter.
    pub fn likely_indices(&self, view: &View) -> Vec<String> {
        let mut free: Vec<&AxisId> = self.scope.iter().collect();
        let mut letters = ["i", "j", "k", "l", "m", "n"].iter().filter(|l| self.bound(l).is_none()).cycle();
        let one = |dim: &(Poly, Poly)| {
            if dim.0.as_const() == Some(0) && dim.1.as_const() == Some(1) {
                return "0".to_string();
            }
            let fits = |a: &&AxisId| self.same(&self.sym_of_axis(**a).1, &dim.1);
            let letter = letters.next().map_or("i", |l| l);
            match free.iter().position(fits) {
                Some(at) => self.g.axis(*free.remove(at)).name.to_string(),
                None => letter.to_string(),
            }
        };
        view.sym.iter().map(one).collect()
    }

    /// A tensor that is called like a function, somewhere in an expression: `x(i, j)`.
    pub fn called_tensor<'e>(&self, e: &'e Expr) -> Option<(&'e Name, &'e [Arg])> {
        match &e.kind {
            ExprKind::Call { lib: None, name, args }
                if matches!(self.frame().names.get(&name.text), Some(Meaning::Tensor(_)))
                    && !super::call::is_built_in(&name.text) =>
            {
                Some((name, args))
            }
            _ => super::scan::children(e).into_iter().find_map(|c| self.called_tensor(c)),
        }
    }

    /// The help for the left side of a tensor with other axes: `y[i, j] = …`.
    pub fn left_form(name: &str, rank: usize) -> String {
        let letters = ["i", "j", "k", "l", "m", "n"];
        let all: Vec<&str> = letters.iter().cycle().take(rank).copied().collect();
        match rank {
            0 => format!("it is declared a number: write {name} = …, or declare its dims, {name}: f32[M, N]"),
            _ => format!("write {name}[{}] = …: one index for each axis of its declaration", all.join(", ")),
        }
    }
}
