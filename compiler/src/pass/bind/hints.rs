//! Helps that show the user's own expression as it should be written.

use super::elab::{Elab, Meaning, View};
use super::poly::Poly;
use crate::ir::graph::AxisId;
use crate::pass::module::Found;
use girih_dsl::ast::*;
use girih_dsl::print_expr;

/// Folds that keep their axis.
const ALONG: [&str; 6] = ["softmax", "cumsum", "cumprod", "cummax", "cummin", "argsort"];

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
            None => format!("write {name}[k](x[k])"),
        }
    }

    /// A tensor of which axes are left out, with an index for each of its dims.
    fn whole_rows(&self, e: &Expr) -> Option<(String, Vec<String>)> {
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
    fn could_be_an_axis(&self, name: &str) -> bool {
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
            0 => format!("it is a number: write {name} = …"),
            _ => format!("write {name}[{}] = …: one index for each axis of its declaration", all.join(", ")),
        }
    }

    /// The ways out for an index that leaves its tensor, in the user's words.
    pub fn ways_out(
        &self,
        name: &Name,
        written: &[Expr],
        at: usize,
        axis: Option<&str>,
        past: bool,
    ) -> String {
        let index: Vec<String> = written.iter().map(print_expr).collect();
        let read = format!("{}[{}]", name.text, index.join(", "));
        let this = &index[at];
        let Some(axis) = axis else {
            return match this.starts_with('-') {
                true => format!("indices count from 0, the last is the size less one: {}[N-1]", name.text),
                false => format!("give the read a default: ({read} else 0)"),
            };
        };
        // An axis that is taken away leaves the tensor at its other end.
        let (range, guard) = match past != this.contains(&format!("- {axis}")) {
            true => (format!("{axis} in 0..N-1"), format!("if {axis} < N-1 then …")),
            false => (format!("{axis} in 1..N"), format!("if {axis} > 0 then …")),
        };
        let clamp = if past { format!("min({this}, N-1)") } else { format!("max({this}, 0)") };
        format!(
            "give the read a default, `({read} else 0)`; guard it (`{guard}`), give the axis a range (`{range}`), or clamp \
             the index (`{clamp}`)"
        )
    }
}
