//! Updates, as versions.
//!
//! Over plain axes an update is a definition of the next version (a choice between the new and the old value);
//! otherwise it is a scatter.

use super::build;
use super::elab::{Elab, Kind, Meaning, View};
use super::fold::AxisRange;
use super::prove::Values;
use super::scan;
use super::stmt::{Left, LeftAxis};
use super::typ::Typ;
use crate::ir::graph::{self, Access, AxisId, Base, Define, Expr as Node, ExprId, Read, TensorId, UpdateOp};
use crate::vocab::func::Func;
use girih_dsl::ast::*;
use girih_dsl::diagnostic::Diagnostic;
use girih_dsl::print_expr;

impl<'m> Elab<'m> {
    /// `name[…] op value where cond`. `old`: `None` where a result starts at its unit.
    pub fn update(&mut self, s: &'m Stmt, t: &'m Target, old: Option<View>) {
        let fresh = old.is_none();
        let Some(view) = old.or_else(|| self.unit_view(s, t)) else { return self.give_up(s, t) };
        if let Some(d) = &t.dtype {
            let e = Diagnostic::error("E0412", d.span, format!("`{}` has its dtype already", t.name.text));
            self.report(e.also(view.span, "here").help("leave the dtype out"));
            return;
        }
        let slots = self.slots(t);
        if slots.len() != view.sym.len() {
            let rank = view.sym.len();
            let what = format!("`{}` has {}, not {}", t.name.text, super::stmt::axes(rank), slots.len());
            let form = self.element_form(s, t, rank).unwrap_or_else(|| Self::left_form(&t.name.text, rank));
            self.report(Diagnostic::error("E0106", t.span, what).help(form));
            return;
        }
        if !self.may_update(&view, t) {
            return;
        }
        let mut names: Vec<&str> = Vec::new();
        let plain = slots.iter().all(|l| match l {
            Left::Axis(n, _) => {
                let new = !names.contains(&n.text.as_str());
                names.push(&n.text);
                new
            }
            Left::Index(_) => false,
        });
        let whole = slots.iter().all(|l| matches!(l, Left::Axis(_, None)));
        if plain && whole && s.assign == Assign::Set && s.cond.is_none() && !fresh && view.kind != Kind::Inout
        {
            let what = format!("`{}` is defined twice", t.name.text);
            let help = self.second_definition(s, t);
            self.report(
                Diagnostic::error("E0401", t.name.span, what).also(view.span, "first here").help(help),
            );
            return;
        }
        match plain {
            true => self.plain_update(s, t, &view, fresh, &slots),
            false => self.scatter(s, t, &view, fresh, &slots),
        }
        if !self.frame().names.contains_key(&t.name.text) {
            self.frame_mut().names.insert(t.name.text.clone(), Meaning::Tensor(view));
        }
    }

    /// The help for a second definition of a name.
    fn second_definition(&self, s: &Stmt, t: &Target) -> String {
        let name = &t.name.text;
        if let Some(form) = self.accumulated(name) {
            return format!("a fold says it in one statement: write `{form}` alone");
        }
        if let Some(form) = self.recurred(name) {
            return format!("a recurrence is one statement: write `{form}`");
        }
        match super::scan::reads_of(s).iter().any(|n| n.text == *name) {
            true => {
                let slots: Vec<String> = t.slots.iter().flatten().map(super::advice::slot_text).collect();
                let left = super::advice::target_text(&format!("{name}2"), &slots);
                let value = print_expr(&s.value);
                format!(
                    "a name has one value: give the second one a name of its own, `{left} = {value}`, and read that below"
                )
            }
            false => {
                "a name is defined once: give the second one another name, or update it (+=, a part, `where`)"
                    .into()
            }
        }
    }

    /// The help for an update of a local that nothing defines.
    fn undefined_update(&self, t: &Target) -> String {
        let name = &t.name.text;
        if let Some(form) = self.recurred(name) {
            return format!("a recurrence is one statement: write `{form}`");
        }
        if let Some(form) = self.accumulated(name)
            && !t.slots.iter().flatten().any(|s| matches!(s, Slot::Expr(e) if super::scan::bare(e).is_none()))
        {
            let form = form.replacen("+= ", "= ", 1).replacen("max= ", "= ", 1).replacen("min= ", "= ", 1);
            return format!("a fold says it: write `{form}`");
        }
        let letters = ["i", "j", "k", "l", "m", "n"];
        let slots = t.slots.iter().flatten().zip(letters).enumerate().map(|(dim, (s, letter))| match s {
            Slot::Axis(n, r) => format!("{} in {}..{}", n.text, print_expr(&r.lo), print_expr(&r.hi)),
            Slot::Expr(e) if super::scan::bare(e).is_some() => print_expr(e),
            Slot::Expr(_) => match self.read_by(name, dim) {
                Some(axis) => {
                    self.size_like(axis).map_or(format!("{axis} in 0..{}", self.first_size()), |size| {
                        format!("{axis} in 0..{size}")
                    })
                }
                None => format!("{letter} in 0..{}", self.first_size()),
            },
        });
        let slots: Vec<String> = slots.collect();
        let first = if slots.is_empty() { name.clone() } else { format!("{name}[{}]", slots.join(", ")) };
        format!(
            "define it over all its axes first, each with its size: `{first} = 0.0`; or update a result of the op"
        )
    }

    /// A view of a result that no statement has defined yet.
    fn unit_view(&mut self, s: &Stmt, t: &Target) -> Option<View> {
        let Some(d) = self.frame().results.get(&t.name.text).cloned() else {
            let d = Diagnostic::error(
                "E0403",
                t.name.span,
                format!("`{}` is updated, but not defined above", t.name.text),
            );
            self.report(d.help(self.undefined_update(t)));
            return None;
        };
        if s.assign == Assign::Set {
            let what = format!("the first statement for `{}` must define all of it", t.name.text);
            let size = t.slots.iter().flatten().find_map(|slot| match slot {
                Slot::Expr(e) => super::scan::bare(e).filter(|n| self.frame().names.contains_key(&n.text)),
                Slot::Axis(..) => None,
            });
            let recurrence = self.recurred(&t.name.text);
            let help = match size {
                _ if recurrence.is_some() => {
                    format!("a recurrence is one statement: write `{}`", recurrence.unwrap_or_default())
                }
                Some(n) if s.cond.is_none() => format!(
                    "`{0}` means something already: an axis has a name of its own, such as `{1}`",
                    n.text,
                    n.text.to_lowercase() + if n.text == n.text.to_lowercase() { "0" } else { "" }
                ),
                _ if s.cond.is_some() => {
                    let cond = s.cond.as_ref().map(print_expr).unwrap_or_default();
                    format!(
                        "all its points are defined: write `{} = if {cond} then {} else 0`; `where` leaves points of an update out",
                        super::advice::written(t),
                        print_expr(&s.value)
                    )
                }
                _ if d.sym.is_empty() => {
                    format!("it is declared a number: write `{} = {}`", t.name.text, print_expr(&s.value))
                }
                _ => match self.updated(s, t) {
                    Some(update) => format!("points that may meet are combined: write `{update}`"),
                    None => {
                        let letters = ["j", "k", "l", "p", "q", "r"].into_iter();
                        let free: Vec<&str> =
                            letters.filter(|l| self.could_be_an_axis(l)).take(d.sym.len()).collect();
                        format!(
                            "define all of it by plain axes first: write `{}[{}] = 0` above it",
                            t.name.text,
                            free.join(", ")
                        )
                    }
                },
            };
            self.report(Diagnostic::error("E0402", t.span, what).help(help));
            return None;
        }
        let (mut dims, mut lo) = self.lead_dims();
        dims.extend(&d.dims);
        lo.resize(dims.len(), 0);
        let view = self.make_view(&t.name, d.dtype, dims, lo, d.sym, Typ::of(d.dtype.compute()));
        Some(view)
    }

    /// In an op that is repeated, an update concerns the own part of each repetition.
    fn may_update(&mut self, view: &View, t: &Target) -> bool {
        let lead = self.lead_exprs();
        if view.kind == Kind::Table {
            let d = Diagnostic::error("E0409", t.name.span, format!("`{}` is a constant", t.name.text));
            self.report(d.help("define a local"));
            return false;
        }
        if view.lead != lead {
            let what = format!(
                "`{}` is shared by the repetitions of this op, so it cannot be updated in it",
                t.name.text
            );
            self.report(
                Diagnostic::error("E0407", t.span, what)
                    .help("index the argument by the axes over which the op is repeated"),
            );
            return false;
        }
        true
    }

    /// The next version of a tensor.
    pub fn next_version(&mut self, view: &View, fresh: bool) -> TensorId {
        if fresh {
            return view.id;
        }
        let mut t = self.g.tensor(view.id).clone();
        t.version += 1;
        if !matches!(t.role, graph::Role::Result) {
            t.role = graph::Role::Local;
        }
        t.range = None;
        t.unique = false;
        self.tensor(t, Values::default())
    }

    fn became(&mut self, t: &Target, view: &View, id: TensorId) {
        // An open local that is updated is f32 from here on.
        let typ = if view.typ == Typ::Open { Typ::F32 } else { view.typ };
        let next = View { id, wide: id, typ, ..view.clone() };
        self.frame_mut().names.insert(t.name.text.clone(), Meaning::Tensor(next));
    }

    fn plain_update(&mut self, s: &'m Stmt, t: &'m Target, view: &View, fresh: bool, slots: &[Left]) {
        let full = self.g.tensor(view.id).clone();
        let lead = view.lead.len();
        let mut ids = Vec::new();
        let mut within: Option<ExprId> = None;
        for (i, slot) in slots.iter().enumerate() {
            let Left::Axis(name, range) = slot else { continue };
            let (lo, hi) = (full.lo[lead + i], full.lo[lead + i] + full.dims[lead + i]);
            let part = match range {
                Some(r) => {
                    if !self.not_taken(name) {
                        return;
                    }
                    let Some(part) = self.written_left(name, r) else { return };
                    Some(part)
                }
                None => None,
            };
            let (first, end) = (self.g.int(lo), self.g.int(hi));
            let sym = match &part {
                Some(p) => p.sym.clone(),
                None => view.sym[i].clone(),
            };
            let id = self.axis(&name.text, first, end, sym, name.span);
            self.bind_axis(&name.text, id, name.span);
            ids.push(id);
            if let Some(p) = part
                && let Some(c) = self.within(t, name, id, &p, (lo, hi))
            {
                self.prover.assume(&self.g, c, true);
                within = Some(match within {
                    Some(x) => build::and(&mut self.g, x, c, name.span),
                    None => c,
                });
            }
        }
        self.frame_mut().left = self.frame().axes.len();
        let mark = self.prover.mark();
        let cond = self.update_condition(s);
        let v = self.expr(&s.value);
        self.prover.release(mark);
        let (Some(cond), false) = (cond, v.typ == Typ::Error) else { return };
        let all = match (within, cond) {
            (Some(a), Some(b)) => Some(build::and(&mut self.g, a, b, s.span)),
            (a, b) => a.or(b),
        };
        let axes: Vec<AxisId> = self.frame().lead_now.iter().chain(&ids).copied().collect();
        let index: Vec<ExprId> = axes.iter().map(|&a| self.g.axis_expr(a)).collect();
        let Some(value) = self.store(v, full.dtype, &t.name.text, s.value.span) else { return };
        let old = match fresh {
            true => self.unit_of(s.assign, &full),
            false => {
                let read = Read { tensor: view.id, index, access: Access::Proven };
                self.g.add(Node::Read(read), full.dtype.compute(), t.span)
            }
        };
        let combined = match (s.assign, fresh) {
            (Assign::Set, _) | (_, true) => value,
            (op, false) => build::call(&mut self.g, function(op), vec![old, value], s.span),
        };
        let value = match all {
            Some(c) => build::select(&mut self.g, c, combined, old, s.span),
            None => combined,
        };
        let target = self.next_version(view, fresh);
        let known = self.values_of(value, &axes, target);
        self.prover.tensors[target.0 as usize] = known;
        self.g.stmts.push(graph::Stmt::Define(Define { target, axes, value, span: s.span }));
        self.became(t, view, target);
    }

    /// The condition of an update: `Some(None)` if it has none, `None` after a report.
    fn update_condition(&mut self, s: &Stmt) -> Option<Option<ExprId>> {
        let Some(c) = &s.cond else { return Some(None) };
        let v = self.condition(c);
        if v.typ == Typ::Error {
            return None;
        }
        self.prover.assume(&self.g, v.id, true);
        Some(Some(v.id).filter(|&e| build::literal_bool(&self.g, e) != Some(true)))
    }

    /// The condition that an axis lies in a part of its dim; `None` if it is all of it.
    fn within(
        &mut self,
        t: &Target,
        name: &Name,
        id: AxisId,
        part: &AxisRange,
        dim: (i64, i64),
    ) -> Option<ExprId> {
        let lo = build::literal_int(&self.g, part.lo)?;
        let hi = build::literal_int(&self.g, part.hi)?;
        if hi > lo && (lo < dim.0 || hi > dim.1) && !self.lenient {
            let what = format!(
                "`{}` has the axis {}..{}, but {} is in {lo}..{hi}",
                t.name.text, dim.0, dim.1, name.text
            );
            self.report(
                Diagnostic::error("E0203", name.span, what).help("give it a range inside of the axis"),
            );
        }
        if lo <= dim.0 && hi >= dim.1 {
            return None;
        }
        let axis = self.g.axis_expr(id);
        let above = build::call(&mut self.g, Func::Le, vec![part.lo, axis], name.span);
        let below = build::call(&mut self.g, Func::Lt, vec![axis, part.hi], name.span);
        Some(build::and(&mut self.g, above, below, name.span))
    }

    /// 0, −inf or +inf; for integers the dtype's least and greatest.
    fn unit_of(&mut self, op: Assign, t: &graph::Tensor) -> ExprId {
        let ty = t.dtype.compute();
        let (lo, hi) = t.dtype.row().int_range;
        let (int, float) = match op {
            Assign::Max => (lo, f64::NEG_INFINITY),
            Assign::Min => (hi, f64::INFINITY),
            _ => (0, 0.0),
        };
        let v = match ty.is_float() {
            true => crate::vocab::dtype::Value::F64(float),
            false => crate::vocab::dtype::Value::I64(int),
        };
        self.g.lit(crate::host::convert(v, ty))
    }

    /// An update by indices that are not plain axes.
    fn scatter(&mut self, s: &'m Stmt, t: &'m Target, view: &View, fresh: bool, slots: &[Left]) {
        let Some(axes) = self.scatter_axes(s, view, slots) else { return };
        let ids = self.bind_left(&axes);
        let mark = self.prover.mark();
        let cond = self.update_condition(s);
        let mut index = Vec::new();
        let mut written: Vec<Expr> = Vec::new();
        for slot in slots {
            match slot {
                Left::Axis(n, _) => {
                    let id = self.bound(&n.text).map(|b| b.id);
                    index.push(id.map(|id| self.g.axis_expr(id)));
                    written.push(Expr {
                        kind: ExprKind::Read { name: (*n).clone(), index: None },
                        span: n.span,
                    });
                }
                Left::Index(e) => {
                    index.push(self.int_expr(e));
                    written.push((*e).clone());
                }
            }
        }
        let v = self.expr(&s.value);
        let index: Option<Vec<ExprId>> = index.into_iter().collect();
        let value = match v.typ {
            Typ::Error => None,
            _ => {
                let dtype = self.g.tensor(view.id).dtype;
                self.store(v, dtype, &t.name.text, s.value.span)
            }
        };
        let (Some(own), Some(cond), Some(value)) = (index, cond, value) else {
            self.prover.release(mark);
            return;
        };
        let mut full = self.lead_of(view);
        let lead = full.len();
        full.extend(own);
        let proven = self.access(view, &full, lead, &written, &t.name, true) == Access::Proven;
        let all: Vec<AxisId> = self.frame().lead_now.iter().chain(&ids).copied().collect();
        let distinct = self.is_distinct(&full, &all);
        self.prover.release(mark);
        let base = if fresh { Base::Unit } else { Base::Tensor(view.id) };
        let target = self.next_version(view, fresh);
        let old = match fresh {
            true => None,
            false => self.prover.tensors[view.id.0 as usize].range,
        };
        if s.assign == Assign::Set
            && let Some(old) = old
        {
            let new = self.prover.iv(&self.g, value);
            self.prover.tensors[target.0 as usize].range = Some(super::interval::union(old, new));
        }
        self.g.stmts.push(graph::Stmt::Update(graph::Update {
            target,
            base,
            axes: all,
            index: full,
            proven,
            distinct,
            op: operator(s.assign),
            cond,
            value,
            span: s.span,
        }));
        self.became(t, view, target);
    }

    /// The axes of a scatter, in the order in which they appear on the left.
    fn scatter_axes(&mut self, s: &Stmt, view: &View, slots: &[Left]) -> Option<Vec<LeftAxis>> {
        let mut names: Vec<(&Name, Option<&Range>, Option<usize>)> = Vec::new();
        let mut again: Option<&Name> = None;
        for (dim, slot) in slots.iter().enumerate() {
            match slot {
                Left::Axis(n, r) => match names.iter_mut().find(|(m, ..)| m.text == n.text) {
                    Some(known) => {
                        if r.is_some() {
                            again = Some(n);
                        }
                        known.2 = known.2.or(Some(dim));
                    }
                    None => names.push((n, *r, Some(dim))),
                },
                Left::Index(e) => scan::each_name(e, &mut |n| {
                    if self.is_axis_name(n)
                        && !names.iter().any(|(m, ..)| m.text == n.text)
                        && !binds(e, &n.text)
                    {
                        names.push((n, None, None));
                    }
                }),
            }
        }
        if let Some(n) = again {
            let d = Diagnostic::error("E0104", n.span, format!("`{}` stands twice on the left", n.text));
            self.report(d.help("write its range where it stands first"));
            return None;
        }
        let left: Vec<&Expr> =
            slots.iter().filter_map(|l| if let Left::Index(e) = l { Some(*e) } else { None }).collect();
        let mut out = Vec::new();
        let mut ok = true;
        for (name, written, dim) in names {
            let range = match (written, dim) {
                (Some(r), _) if self.not_taken(name) => self.written_left(name, r),
                (Some(_), _) => None,
                (None, Some(dim)) => {
                    let t = self.g.tensor(view.id);
                    let at = view.lead.len() + dim;
                    let (lo, hi) = (t.lo[at], t.lo[at] + t.dims[at]);
                    let (lo, hi) = (self.g.int(lo), self.g.int(hi));
                    Some(AxisRange { lo, hi, sym: view.sym[dim].clone() })
                }
                (None, None) => {
                    let mut bodies = left.clone();
                    bodies.push(&s.value);
                    self.inferred(name, &bodies, s.cond.as_ref())
                }
            };
            match range {
                Some(range) => out.push(LeftAxis { name: name.clone(), range }),
                None => ok = false,
            }
        }
        ok.then_some(out)
    }

    fn is_axis_name(&self, n: &Name) -> bool {
        use crate::pass::module::Found;
        !self.frame().names.contains_key(&n.text)
            && !self.frame().taken.contains_key(&n.text)
            && matches!(self.module.constant(self.frame().unit, &n.text), Found::None)
    }

    /// Do no two points meet in one element? Proven for affine indices in mixed radix, and by `unique`.
    fn is_distinct(&mut self, index: &[ExprId], axes: &[AxisId]) -> bool {
        let mut left: Vec<AxisId> = axes.iter().copied().filter(|&a| self.g.extent(a) != Some(1)).collect();
        for &e in index {
            let free = self.free_axes(e);
            let own: Vec<AxisId> = free.iter().copied().filter(|a| left.contains(a)).collect();
            if own.is_empty() {
                continue;
            }
            // Axes that an earlier dim has fixed may stand here too: they only shift this one.
            if self.is_injective(e, &own) || self.is_unique_read(e, &own) {
                left.retain(|a| !own.contains(a));
            }
        }
        left.is_empty()
    }

    /// c + Σ k·a in which each step is larger than all smaller ones together.
    fn is_injective(&mut self, e: ExprId, own: &[AxisId]) -> bool {
        let lin = self.prover.lin(&self.g, e);
        let mut steps: Vec<(i128, i128)> = Vec::new();
        for &a in own {
            let atom = self.g.axis_expr(a);
            let (Some(&k), Some(n)) = (lin.terms.get(&atom), self.g.extent(a)) else { return false };
            steps.push((k.abs(), n as i128));
        }
        let others = lin
            .terms
            .keys()
            .filter(|&&t| !own.iter().any(|&a| matches!(self.g.expr(t), Node::Axis(b) if *b == a)));
        if others.into_iter().any(|&t| self.free_axes(t).iter().any(|a| own.contains(a))) {
            return false;
        }
        steps.sort_unstable();
        let mut reach = 0i128;
        steps.into_iter().all(|(k, n)| {
            let ok = k > reach;
            reach += k * (n - 1).max(0);
            ok
        })
    }

    /// A read of an input whose values are declared `unique`, at plain axes.
    fn is_unique_read(&self, e: ExprId, own: &[AxisId]) -> bool {
        let inner = match self.g.expr(e) {
            Node::Cast(a) => *a,
            _ => e,
        };
        let Node::Read(r) = self.g.expr(inner) else { return false };
        if !self.g.tensor(r.tensor).unique {
            return false;
        }
        let mut seen = Vec::new();
        r.index.iter().all(|&i| match self.g.expr(i) {
            Node::Axis(a) if own.contains(a) && !seen.contains(a) => {
                seen.push(*a);
                true
            }
            Node::Lit(_) => true,
            _ => false,
        }) && seen.len() == own.len()
    }
}

/// Is the name bound by a fold inside of the expression?
fn binds(e: &Expr, name: &str) -> bool {
    let own =
        matches!(&e.kind, ExprKind::Fold { binders, .. } if binders.iter().any(|b| b.name.text == name));
    own || scan::children(e).into_iter().any(|c| binds(c, name))
}

fn function(op: Assign) -> Func {
    match op {
        Assign::Max => Func::Max,
        Assign::Min => Func::Min,
        _ => Func::Add,
    }
}

fn operator(op: Assign) -> UpdateOp {
    match op {
        Assign::Set => UpdateOp::Set,
        Assign::Add => UpdateOp::Add,
        Assign::Max => UpdateOp::Max,
        Assign::Min => UpdateOp::Min,
    }
}
