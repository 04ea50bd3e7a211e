//! Walks over syntax: names that are read, and the dims that an axis indexes on its own.

use super::elab::{Elab, Meaning};
use super::fold::AxisRange;
use super::poly::Poly;
use crate::pass::module::Found;
use girih_dsl::ast::*;
use girih_dsl::diagnostic::Diagnostic;

/// The parts of an expression, in order.
pub fn children(e: &Expr) -> Vec<&Expr> {
    match &e.kind {
        ExprKind::Read { index, .. } => index.iter().flatten().collect(),
        ExprKind::Call { args, .. } => args.iter().map(|a| &a.value).collect(),
        ExprKind::Fold { binders, cond, body, .. } => {
            let ranges = binders.iter().filter_map(|b| b.range.as_ref());
            let mut out: Vec<&Expr> = ranges.flat_map(|r| [&*r.lo, &*r.hi]).collect();
            out.extend(cond.as_deref());
            out.push(body);
            out
        }
        ExprKind::Unary(_, a) | ExprKind::Paren(a) => vec![a],
        ExprKind::Binary(_, a, b) | ExprKind::Else(a, b) => vec![a, b],
        ExprKind::Chain(parts, _) => parts.iter().collect(),
        ExprKind::If(c, a, b) => vec![c, a, b],
        _ => Vec::new(),
    }
}

/// Every value name in an expression, tensors and axes included.
pub fn each_name<'a>(e: &'a Expr, f: &mut impl FnMut(&'a Name)) {
    let mut stack = vec![e];
    while let Some(e) = stack.pop() {
        if let ExprKind::Read { name, .. } = &e.kind {
            f(name);
        }
        stack.extend(children(e).into_iter().rev());
    }
}

/// Every name that a statement reads: on its right side, in its ranges, indices and condition.
pub fn reads_of(s: &Stmt) -> Vec<&Name> {
    let mut out = Vec::new();
    let mut add = |e| each_name(e, &mut |n| out.push(n));
    add(&s.value);
    s.cond.iter().for_each(&mut add);
    for slot in s.targets.iter().flat_map(|t| t.slots.iter().flatten()) {
        match slot {
            Slot::Axis(_, r) => {
                add(&r.lo);
                add(&r.hi);
            }
            Slot::Expr(e) => add(e),
        }
    }
    out
}

/// The axes that a statement binds for certain: with a range on its left side, or by a fold.
pub fn written_axes(s: &Stmt) -> Vec<&str> {
    fn folds<'a>(e: &'a Expr, out: &mut Vec<&'a str>) {
        if let ExprKind::Fold { binders, .. } = &e.kind {
            out.extend(binders.iter().map(|b| b.name.text.as_str()));
        }
        children(e).into_iter().for_each(|c| folds(c, out));
    }
    let mut out = Vec::new();
    for slot in s.targets.iter().flat_map(|t| t.slots.iter().flatten()) {
        if let Slot::Axis(n, _) = slot {
            out.push(n.text.as_str());
        }
    }
    folds(&s.value, &mut out);
    s.cond.iter().for_each(|c| folds(c, &mut out));
    out
}

/// The name, if an expression is just one.
pub fn bare(e: &Expr) -> Option<&Name> {
    match &e.kind {
        ExprKind::Paren(a) => bare(a),
        ExprKind::Read { name, index: None } => Some(name),
        _ => None,
    }
}

/// A place where an axis indexes a dim on its own.
struct Plain<'a> {
    tensor: &'a Name,
    dim: usize,
    /// In a read with an `else`.
    guarded: bool,
}

fn plain_uses<'a>(e: &'a Expr, axis: &str, guarded: bool, out: &mut Vec<Plain<'a>>) {
    if let ExprKind::Read { name, index: Some(index) } = &e.kind {
        for (dim, i) in index.iter().enumerate() {
            match bare(i) {
                Some(n) if n.text == axis => out.push(Plain { tensor: name, dim, guarded }),
                _ => plain_uses(i, axis, false, out),
            }
        }
        return;
    }
    if let ExprKind::Else(read, default) = &e.kind {
        let mut inner = &**read;
        while let ExprKind::Paren(a) = &inner.kind {
            inner = a;
        }
        plain_uses(inner, axis, true, out);
        plain_uses(default, axis, false, out);
        return;
    }
    let keeps = matches!(e.kind, ExprKind::Paren(_));
    for c in children(e) {
        plain_uses(c, axis, keeps && guarded, out);
    }
}

impl Elab<'_> {
    /// The range of an axis by the dims that it indexes on its own.
    pub fn inferred(&mut self, axis: &Name, bodies: &[&Expr], cond: Option<&Expr>) -> Option<AxisRange> {
        let mut uses = Vec::new();
        bodies.iter().chain(&cond).for_each(|b| plain_uses(b, &axis.text, false, &mut uses));
        let mut dims: Vec<(bool, &Name, AxisRange)> = Vec::new();
        let mut unknown = None;
        for u in uses {
            if unknown.is_none() && self.is_unknown(u.tensor) {
                unknown = Some(u.tensor);
            }
            if let Some(Meaning::Tensor(v)) = self.frame().names.get(&u.tensor.text)
                && v.typ == super::typ::Typ::Error
            {
                // Its definition was wrong, which has been reported.
                return None;
            }
            if let Some(range) = self.dim_of(u.tensor, u.dim) {
                dims.push((u.guarded, u.tensor, range));
            }
        }
        if dims.iter().any(|d| !d.0) {
            dims.retain(|d| !d.0);
        }
        if dims.is_empty()
            && let Some(name) = unknown
        {
            // The name is the mistake; the range would follow from it.
            self.view(name);
            return None;
        }
        if dims.is_empty()
            && let Some((name, args)) = bodies.iter().find_map(|b| self.called_tensor(b))
            && matches!(self.module.callable(self.frame().unit, None, &name.text), Found::None)
        {
            let d = self.unknown_callable(None, name, args);
            self.report(d);
            return None;
        }
        if dims.is_empty()
            && let Some(d) = bodies.iter().find_map(|b| self.miscounted(b, &axis.text))
        {
            self.report(d);
            return None;
        }
        let Some((_, first, _)) = dims.first() else {
            let d = Diagnostic::error(
                "E0202",
                axis.span,
                format!("nothing says what `{}` ranges over", axis.text),
            );
            self.report(d.help(self.range_help(&axis.text)));
            return None;
        };
        let first = *first;
        let differs = dims.iter().position(|(_, _, r)| {
            let base = &dims[0].2.sym;
            !self.same(&base.0, &r.sym.0) || !self.same(&base.1, &r.sym.1)
        });
        if let Some(other) = differs {
            let (name, sym) = (dims[other].1, &dims[other].2.sym);
            let what = format!(
                "`{}` ranges over {} in {}, and over {} in {}",
                axis.text,
                shown(&dims[0].2.sym),
                first.text,
                shown(sym),
                name.text
            );
            let d = Diagnostic::error("E0201", axis.span, what);
            let d = d.also(first.span, shown(&dims[0].2.sym)).also(name.span, shown(sym));
            let help = format!(
                "are the indices in the right order? else write `{} in lo..hi`, or say that the sizes are equal: where … == …",
                axis.text
            );
            self.report(d.help(help));
            return None;
        }
        Some(dims.swap_remove(0).2)
    }

    /// Does the name mean nothing here, or nothing yet?
    fn is_unknown(&self, name: &Name) -> bool {
        use crate::pass::module::Found;
        let member = self.recurrence.as_ref().is_some_and(|r| r.dims.iter().any(|(n, _)| *n == name.text));
        !member
            && !self.frame().names.contains_key(&name.text)
            && self.bound(&name.text).is_none()
            && matches!(self.module.constant(self.frame().unit, &name.text), Found::None)
    }

    /// The range of one dim of a tensor that is defined by now.
    fn dim_of(&mut self, name: &Name, dim: usize) -> Option<AxisRange> {
        if let Some(r) = &self.recurrence
            && let Some(at) = r.dims.iter().position(|(n, _)| *n == name.text)
        {
            // A member counts below its definition.
            return if at < r.current { r.dims[at].1.get(dim).cloned() } else { None };
        }
        let view = match self.frame().names.get(&name.text) {
            Some(Meaning::Tensor(v)) => v.clone(),
            Some(_) => return None,
            None => {
                self.tables.iter().find(|(k, _)| k.1 == name.text).map(|(_, v)| v.clone()).or_else(|| {
                    let known = matches!(
                        self.module.constant(self.frame().unit, &name.text),
                        crate::pass::module::Found::One(_)
                    );
                    if known { self.view(name) } else { None }
                })?
            }
        };
        if view.early {
            return None;
        }
        let sym = view.sym.get(dim)?.clone();
        let t = self.g.tensor(view.id);
        let at = t.dims.len() - view.sym.len() + dim;
        let (lo, hi) = (t.lo[at], t.lo[at] + t.dims[at]);
        Some(AxisRange { lo: self.g.int(lo), hi: self.g.int(hi), sym })
    }
}

/// A range as people write it: `N`, or `1..N`.
fn shown(sym: &(Poly, Poly)) -> String {
    match sym.0.as_const() {
        Some(0) => sym.1.to_string(),
        _ => format!("{}..{}", sym.0, sym.1),
    }
}
