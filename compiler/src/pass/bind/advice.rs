//! What to write for a statement that was meant as a step of a loop: an accumulator as a fold, a state as a recurrence. The
//! texts are made of the author's own statements.

use super::elab::Elab;
use super::scan;
use girih_dsl::ast::*;
use girih_dsl::print_expr;

/// What a statement adds to the value so far.
struct Step<'a> {
    fold: &'static str,
    body: &'a Expr,
    /// `if cond then t + body else t`
    cond: Option<&'a Expr>,
}

impl<'m> Elab<'m> {
    /// The statements of the op at hand whose only target is `name`, in order.
    fn statements_of(&self, name: &str) -> Vec<(&'m Stmt, &'m Target)> {
        let Some(op) = self.ops.last() else { return Vec::new() };
        let one = |s: &'m Stmt| match &s.targets[..] {
            [t] if t.name.text == name => Some((s, t)),
            _ => None,
        };
        op.body.iter().filter_map(one).collect()
    }

    /// `t[m] = sum[n](x[m, n])` for `t[m] = t[m] + x[m, n]`, `t[m] += x[m, n]` and their like, with what stands before them.
    pub fn accumulated(&self, name: &str) -> Option<String> {
        let all = self.statements_of(name);
        let (at, step) = all.iter().enumerate().rev().find_map(|(i, (s, t))| Some((i, step_of(s, t)?)))?;
        let (s, t) = all[at];
        let mut left: Vec<String> = t.slots.iter().flatten().map(slot_text).collect();
        let update = s.assign != Assign::Set;
        let mut own: Vec<&str> = Vec::new();
        t.slots.iter().flatten().for_each(|slot| match slot {
            Slot::Axis(n, _) => own.push(&n.text),
            Slot::Expr(e) => scan::each_name(e, &mut |n| own.push(&n.text)),
        });
        let mut free = self.free_names(step.body);
        step.cond.iter().for_each(|c| free.extend(self.free_names(c)));
        free.retain(|n| !own.contains(n));
        let mut seen: Vec<&str> = Vec::new();
        free.retain(|n| {
            !seen.contains(n) && {
                seen.push(n);
                true
            }
        });
        // An accumulator without axes belongs to each point of the statements that read it.
        if left.is_empty() && !update {
            let readers = self.ops.last()?.body.iter().filter(|r| {
                !r.targets.iter().any(|t| t.name.text == name)
                    && scan::reads_of(r).iter().any(|n| n.text == name)
            });
            let outer: Vec<&str> = readers
                .flat_map(|r| &r.targets)
                .flat_map(|t| t.slots.iter().flatten())
                .filter_map(slot_axis)
                .collect();
            left.extend(free.iter().filter(|n| outer.contains(n)).map(|n| n.to_string()));
            free.retain(|n| !outer.contains(n));
        }
        if free.is_empty() {
            return None;
        }
        let cond = step.cond.map_or(String::new(), |c| format!(" where {}", print_expr(c)));
        let folded = format!("{}[{}{cond}]({})", step.fold, free.join(", "), print_expr(step.body));
        let target = target_text(name, &left);
        // A statement above that is kept gives the start.
        let declared = self.frame().results.contains_key(name);
        if update && (at > 0 || declared && own.len() < left.len()) {
            let op = match s.assign {
                Assign::Max => "max=",
                Assign::Min => "min=",
                _ => "+=",
            };
            return Some(format!("{target} {op} {folded}"));
        }
        let start = (at > 0).then(|| &all[0].0.value).filter(|v| !is_unit(v, step.fold));
        Some(match (start.map(print_expr), step.fold) {
            (None, _) => format!("{target} = {folded}"),
            (Some(s), "sum") => format!("{target} = {s} + {folded}"),
            (Some(s), "prod") => format!("{target} = {s} * {folded}"),
            (Some(s), f) => format!("{target} = {f}({s}, {folded})"),
        })
    }

    /// The whole number by which a local without a dtype is defined first.
    pub fn whole_start(&self, name: &str) -> Option<&'m str> {
        let all = self.statements_of(name);
        let (s, t) = all.first()?;
        match &s.value.kind {
            ExprKind::Int(text) if t.dtype.is_none() && !self.frame().results.contains_key(name) => {
                Some(text)
            }
            _ => None,
        }
    }

    /// `h: f32[t] = if t == 0 then 0 else 0.9 * h[t - 1] + x[t]` for a start and a step in two statements.
    pub fn recurred(&self, name: &str) -> Option<String> {
        let all = self.statements_of(name);
        let (s, t) = all.iter().copied().find(|(s, _)| scan::reads_of(s).iter().any(|n| n.text == name))?;
        let left: Vec<String> = t.slots.iter().flatten().map(slot_text).collect();
        let read = first_read(&s.value, name)?;
        let dim = read.iter().zip(&left).position(|(r, l)| print_expr(r) != *l)?;
        let axis = t.slots.iter().flatten().nth(dim).and_then(slot_axis)?;
        let declared = self.frame().results.contains_key(name);
        let dtype = t.dtype.as_ref().map_or("f32", |d| d.text.as_str());
        let target = match declared {
            true => format!("{name}[{}]", left.join(", ")),
            false => format!("{name}: {dtype}[{}]", left.join(", ")),
        };
        let start = all.iter().find(|(o, _)| !std::ptr::eq(*o, s));
        let value = print_expr(&s.value);
        Some(match start {
            Some((o, first)) => {
                let at = first.slots.iter().flatten().nth(dim).map_or("0".to_string(), slot_text);
                let at = if at == axis { "0".to_string() } else { at };
                format!("{target} = if {axis} == {at} then {} else {value}", print_expr(&o.value))
            }
            None => {
                let text = format!("{name}[{}]", read.iter().map(print_expr).collect::<Vec<_>>().join(", "));
                let started = value.contains(&format!("{text} else"));
                let value = if started { value } else { value.replace(&text, &format!("({text} else 0)")) };
                format!("{target} = {value}")
            }
        })
    }

    /// `y[m] = sum[n](x[m, n])` for a statement whose right side has axes that stand nowhere else.
    pub fn summed(&self, axis: &str) -> Option<String> {
        let s = self.at_hand?;
        let [t] = &s.targets[..] else { return None };
        if let Some(form) = self.accumulated(&t.name.text) {
            return Some(form);
        }
        let own: Vec<&str> = t.slots.iter().flatten().filter_map(slot_axis).collect();
        let mut free = self.free_names(&s.value);
        free.retain(|n| !own.contains(n));
        free.dedup();
        let plain = t.slots.iter().flatten().all(|slot| slot_axis(slot).is_some());
        if !plain || free != [axis] || s.cond.is_some() || !is_index(&s.value, axis) {
            return None;
        }
        Some(format!("{} = sum[{axis}]({})", written(t), print_expr(&s.value)))
    }

    /// Does the statement at hand index something by the name alone?
    pub fn stands_as_index(&self, name: &str) -> bool {
        self.at_hand.is_some_and(|s| is_index(&s.value, name))
    }

    /// `sum[n](x[m, n])` and `y[m] = sum[n](x[m, n] * w[n])` for `y[m] = sum[n](x[m, n]) * w[n]`.
    pub fn beyond_its_fold(&self, axis: &str) -> Option<(String, String)> {
        let s = self.at_hand?;
        let [t] = &s.targets[..] else { return None };
        let ExprKind::Binary(op @ (BinOp::Mul | BinOp::Div), a, b) = &s.value.kind else { return None };
        let fold_of = |e: &'_ Expr| match &e.kind {
            ExprKind::Fold { name, binders, cond: None, body }
                if binders.iter().any(|b| b.name.text == axis) =>
            {
                Some((name.text.clone(), print_expr(e), print_expr(body)))
            }
            _ => None,
        };
        let (fold, written_fold, inside, first, other) = match (fold_of(a), fold_of(b)) {
            (Some((f, w, i)), None) => (f, w, i, true, b),
            (None, Some((f, w, i))) if *op == BinOp::Mul => (f, w, i, false, a),
            _ => return None,
        };
        let head = written_fold.strip_suffix(&format!("({inside})"))?.to_string();
        let sign = if *op == BinOp::Mul { "*" } else { "/" };
        let factor = |text: String| {
            if text.contains([' ']) && !text.ends_with(')') { format!("({text})") } else { text }
        };
        let (inside, other) = (factor(inside), print_expr(other));
        let body =
            if first { format!("{inside} {sign} {other}") } else { format!("{other} {sign} {inside}") };
        (fold == "sum").then(|| (written_fold, format!("{} = {head}({body})", written(t))))
    }

    /// `y[b[i]] max= x[i]` for `y[b[i]] = max(y[b[i]], x[i])`, `y[b[i]] += x[i]` for `y[b[i]] = sum[i](x[i])`.
    pub fn updated(&self, s: &Stmt, t: &Target) -> Option<String> {
        let op = |fold: &str| match fold {
            "sum" => Some("+="),
            "max" => Some("max="),
            "min" => Some("min="),
            _ => None,
        };
        if let Some(step) = combined(&s.value, &written(t)).filter(|s| s.cond.is_none()) {
            return Some(format!("{} {} {}", written(t), op(step.fold)?, print_expr(step.body)));
        }
        let ExprKind::Fold { name, binders, cond: None, body } = &s.value.kind else { return None };
        let mut left: Vec<&str> = Vec::new();
        t.slots.iter().flatten().for_each(|slot| {
            if let Slot::Expr(e) = slot {
                scan::each_name(e, &mut |n| left.push(&n.text));
            }
        });
        let all = binders.iter().all(|b| left.contains(&b.name.text.as_str()));
        all.then(|| Some(format!("{} {} {}", written(t), op(&name.text)?, print_expr(body)))).flatten()
    }

    /// Names in an expression that could be axes and that no fold in it binds.
    fn free_names<'e>(&self, e: &'e Expr) -> Vec<&'e str> {
        let mut out = Vec::new();
        self.add_free(e, &mut Vec::new(), &mut out);
        out
    }

    fn add_free<'e>(&self, e: &'e Expr, bound: &mut Vec<&'e str>, out: &mut Vec<&'e str>) {
        let before = bound.len();
        if let ExprKind::Fold { binders, .. } = &e.kind {
            bound.extend(binders.iter().map(|b| b.name.text.as_str()));
        }
        if let ExprKind::Read { name, index: None } = &e.kind
            && !bound.contains(&name.text.as_str())
            && self.could_be_an_axis(&name.text)
            && name.text.starts_with(|c: char| c.is_lowercase() || c == '_')
        {
            out.push(&name.text);
        }
        scan::children(e).into_iter().for_each(|c| self.add_free(c, bound, out));
        bound.truncate(before);
    }

    fn sizes_of_op(&self) -> Vec<&'m str> {
        let sizes = self.ops.last().map_or(&[][..], |op| &op.sizes);
        let numbers = sizes.iter().filter(|s| !matches!(s.kind, SizeKind::DType(_) | SizeKind::DTypeSet(..)));
        numbers.map(|s| s.name.text.as_str()).collect()
    }

    /// The size that is called like an axis: K for k.
    pub fn size_like(&self, axis: &str) -> Option<&'m str> {
        let like = axis.to_uppercase();
        self.sizes_of_op().into_iter().find(|s| *s == like)
    }

    /// The value of the statement at hand, if that is what stands there.
    pub fn value_at(&self, span: Span) -> String {
        let value = self.at_hand.filter(|s| s.value.span == span).map(|s| print_expr(&s.value));
        value.filter(|v| v.len() < 60).unwrap_or_else(|| "…".into())
    }

    /// What an axis is added to a multiple of: k for j in `x[i*k + j]`.
    fn stride_beside(&self, axis: &str) -> Option<String> {
        fn find(e: &Expr, axis: &str) -> Option<Expr> {
            if let ExprKind::Binary(BinOp::Add, a, b) = &e.kind
                && let Some(many) = [(a, b), (b, a)]
                    .into_iter()
                    .find_map(|(one, many)| scan::bare(one).is_some_and(|n| n.text == axis).then_some(many))
                && let ExprKind::Binary(BinOp::Mul, x, y) = &many.kind
            {
                let plain = |e: &Expr| {
                    matches!(e.kind, ExprKind::Int(_))
                        || scan::bare(e)
                            .is_some_and(|n| n.text.len() > 1 || n.text.starts_with(char::is_uppercase))
                };
                return [y, x].into_iter().find(|e| plain(e)).or(Some(y)).map(|e| (**e).clone());
            }
            scan::children(e).into_iter().find_map(|c| find(c, axis))
        }
        find(&self.at_hand?.value, axis).map(|e| print_expr(&e))
    }

    /// The size by which a statement reads the last element along a dim of the target at hand: `s[steps, i]`.
    fn last_read(&self, axis: &str) -> Option<&'m str> {
        let [t] = &self.at_hand?.targets[..] else { return None };
        let dim = t.slots.iter().flatten().position(|s| slot_axis(s) == Some(axis))?;
        let reads = self.ops.last()?.body.iter().filter_map(|s| first_read(&s.value, &t.name.text));
        let mut names = reads.filter_map(|r| scan::bare(r.get(dim)?)).map(|n| n.text.as_str());
        names.find(|n| self.sizes_of_op().contains(n))
    }

    /// A range for an axis that nothing gives one: `k in 0..K`, where the op has a size that is called like it.
    pub fn likely_range(&self, axis: &str) -> String {
        let sizes = self.sizes_of_op();
        if let Some(size) = self.last_read(axis) {
            return format!("`{axis} in 0..{size} + 1`");
        }
        if let Some(stride) = self.stride_beside(axis).filter(|s| *s != axis) {
            return format!("`{axis} in 0..{stride}`");
        }
        match self.size_like(axis) {
            Some(size) => format!("`{axis} in 0..{size}`"),
            None if sizes.is_empty() => format!("`{axis} in 0..4`, say"),
            None if sizes.len() == 1 => format!("`{axis} in 0..{}`", sizes[0]),
            None => {
                format!("`{axis} in 0..{}`, with one of the sizes {} or a number", sizes[0], sizes.join(", "))
            }
        }
    }

    /// The index by which a statement reads a tensor at one of its dims, if that is a name alone.
    pub fn read_by(&self, name: &str, dim: usize) -> Option<&'m str> {
        let reads = self.ops.last()?.body.iter().filter_map(|s| first_read(&s.value, name));
        reads.filter_map(|r| scan::bare(r.get(dim)?)).map(|n| n.text.as_str()).next()
    }

    /// A size of the op, to show how a range is written.
    pub fn first_size(&self) -> &str {
        self.ops.last().and_then(|op| op.sizes.first()).map_or("N", |s| &s.name.text)
    }

    /// The help for a statement that needs a range for an axis.
    pub fn range_help(&self, axis: &str) -> String {
        let target = self.at_hand.and_then(|s| match &s.targets[..] {
            [t] => Some(&t.name.text),
            _ => None,
        });
        if let Some(name) = target {
            if let Some(form) = self.accumulated(name) {
                return match form.contains("= ")
                    && !form.contains("+= ")
                    && !form.contains("max= ")
                    && !form.contains("min= ")
                {
                    true => format!("nothing is set up before a fold: write `{form}` alone"),
                    false => format!("write its range, {}; then `{form}`", self.likely_range(axis)),
                };
            }
            if let Some(form) = self.recurred(name).filter(|_| self.statements_of(name).len() > 1) {
                return format!("a recurrence is one statement: write `{form}`");
            }
        }
        if let Some(form) = self.at_hand.and_then(|s| self.map_of_another_axis(&s.value, axis)) {
            return format!("a map along an axis keeps it: write {form}");
        }
        format!(
            "no dim is indexed by {axis} alone: write its range where it is bound, {}",
            self.likely_range(axis)
        )
    }
}

impl Elab<'_> {
    /// `softmax[j](s[i, j])` where a statement with j on its left says `softmax[k](s[i, k])`.
    fn map_of_another_axis(&self, e: &Expr, axis: &str) -> Option<String> {
        if let ExprKind::Fold { name, binders, body, .. } = &e.kind
            && let [b] = &binders[..]
            && super::hints::ALONG.contains(&name.text.as_str())
            && b.name.text != axis
        {
            return Some(format!(
                "{}[{axis}]({})",
                name.text,
                super::hints::renamed(&print_expr(body), &b.name.text, axis)
            ));
        }
        scan::children(e).into_iter().find_map(|c| self.map_of_another_axis(c, axis))
    }
}

/// `t[m, n]`, `t`.
pub fn target_text(name: &str, left: &[String]) -> String {
    if left.is_empty() { name.to_string() } else { format!("{name}[{}]", left.join(", ")) }
}

/// A statement's target as it is written, without ranges.
pub fn written(t: &Target) -> String {
    target_text(&t.name.text, &t.slots.iter().flatten().map(slot_text).collect::<Vec<_>>())
}

/// A slot without its range.
pub fn slot_text(slot: &Slot) -> String {
    match slot {
        Slot::Axis(n, _) => n.text.clone(),
        Slot::Expr(e) => print_expr(e),
    }
}

pub fn slot_axis(slot: &Slot) -> Option<&str> {
    match slot {
        Slot::Axis(n, _) => Some(&n.text),
        Slot::Expr(e) => scan::bare(e).map(|n| n.text.as_str()),
    }
}

/// What a statement combines with its own value, if it is a step of an accumulator.
fn step_of<'a>(s: &'a Stmt, t: &Target) -> Option<Step<'a>> {
    let folded = |fold| Some(Step { fold, body: &s.value, cond: s.cond.as_ref() });
    match s.assign {
        Assign::Add => return folded("sum"),
        Assign::Max => return folded("max"),
        Assign::Min => return folded("min"),
        Assign::Set => {}
    }
    combined(&s.value, &written(t))
}

fn combined<'a>(e: &'a Expr, itself: &str) -> Option<Step<'a>> {
    let is_itself = |e: &Expr| print_expr(e) == itself;
    let step = |fold, body| Some(Step { fold, body, cond: None });
    match &e.kind {
        ExprKind::Paren(a) => combined(a, itself),
        ExprKind::Binary(op @ (BinOp::Add | BinOp::Mul), a, b) => {
            let fold = if *op == BinOp::Add { "sum" } else { "prod" };
            match (is_itself(a), is_itself(b)) {
                (true, false) => step(fold, b),
                (false, true) => step(fold, a),
                _ => None,
            }
        }
        ExprKind::Call { lib: None, name, args } if args.len() == 2 => {
            let fold = ["max", "min"].into_iter().find(|f| *f == name.text)?;
            match (is_itself(&args[0].value), is_itself(&args[1].value)) {
                (true, false) => step(fold, &args[1].value),
                (false, true) => step(fold, &args[0].value),
                _ => None,
            }
        }
        ExprKind::If(c, a, b) if is_itself(b) => Some(Step { cond: Some(c), ..combined(a, itself)? }),
        _ => None,
    }
}

/// Does a fold give the same with this start and without it?
fn is_unit(e: &Expr, fold: &str) -> bool {
    let text = print_expr(e);
    match fold {
        "sum" => matches!(text.as_str(), "0" | "0.0"),
        "prod" => matches!(text.as_str(), "1" | "1.0"),
        "max" => text == "-inf",
        _ => text == "inf",
    }
}

/// Does a name stand alone as an index?
fn is_index(e: &Expr, axis: &str) -> bool {
    let here = match &e.kind {
        ExprKind::Read { index: Some(index), .. } => {
            index.iter().any(|i| scan::bare(i).is_some_and(|n| n.text == axis))
        }
        _ => false,
    };
    here || scan::children(e).into_iter().any(|c| is_index(c, axis))
}

/// The indices of the first read of a name.
fn first_read<'a>(e: &'a Expr, name: &str) -> Option<&'a [Expr]> {
    match &e.kind {
        ExprKind::Read { name: n, index: Some(index) } if n.text == name => Some(index),
        _ => scan::children(e).into_iter().find_map(|c| first_read(c, name)),
    }
}
