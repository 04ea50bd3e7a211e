//! Op calls: the called op's statements are built in place, with the axes over which the call is repeated in front.

use super::build;
use super::elab::{Elab, Frame, Kind, Meaning, View};
use super::poly::Poly;
use super::sizes::Given;
use super::stmt::{Left, LeftAxis};
use super::typ::{Typ, Val};
use crate::ir::graph::{self, Access, AxisId, Define, Expr as Node, ExprId, Read, Role};
use crate::pass::ast_to_graph::listed_or;
use crate::pass::subst::Subst;
use crate::vocab::dtype::DType;
use girih_dsl::ast::*;
use girih_dsl::diagnostic::Diagnostic;
use rustc_hash::FxHashMap as HashMap;

/// An argument of a call.
enum Argument {
    Tensor(View),
    Number(Val),
}

impl<'m> Elab<'m> {
    /// `y[b], z[b] = f(x[b], w, eps = 1e-6)`
    pub fn op_call_stmt(&mut self, s: &'m Stmt, unit: usize, op: &'m Op, args: &[Arg]) {
        if self.try_op_call(s, unit, op, args).is_none() {
            for t in &s.targets {
                if !self.frame().names.contains_key(&t.name.text) {
                    self.give_up(s, t);
                }
            }
        }
    }

    fn try_op_call(&mut self, s: &'m Stmt, unit: usize, op: &'m Op, args: &[Arg]) -> Option<()> {
        let key = format!("op {unit} {}", op.name.text);
        if self.frames.len() > 24 {
            self.report(super::elab::too_much(s.value.span));
            return None;
        }
        if self.calls.contains(&key) {
            let d = Diagnostic::error("E0113", s.value.span, format!("`{}` calls itself", op.name.text));
            self.report(
                d.also(op.name.span, "defined here")
                    .help("ops are not recursive: write a recurrence over an axis"),
            );
            return None;
        }
        self.check_call(s, op, args)?;
        let axes = self.call_axes(s, args)?;
        let ids = self.bind_left(&axes);
        let lead: Vec<AxisId> = self.frame().lead_now.iter().chain(&ids).copied().collect();
        let mut given = Given { call: Some(s.value.span), ..Given::default() };
        let values = self.arguments(op, args, &lead, &mut given)?;
        let prefix = format!("{}{}.", self.frame().prefix, op.name.text);
        let call = given.call;
        self.frames.push(Frame { unit, prefix, lead: lead.clone(), call, ..Frame::default() });
        self.calls.push(key);
        if !self.called.iter().any(|o| std::ptr::eq(*o, op)) {
            self.called.push(op);
        }
        let equal = self.equal.len();
        let scope = std::mem::take(&mut self.scope);
        let outer = self.recurrence.take();
        let results = self.called_body(op, &given, values);
        self.recurrence = outer;
        self.scope = scope;
        self.equal.truncate(equal);
        self.calls.pop();
        let frame = self.frames.pop()?;
        let results = results?;
        self.take_back(op, args, &frame);
        for (t, v) in s.targets.iter().zip(results) {
            self.take_result(t, &axes, v)?;
        }
        Some(())
    }

    fn check_call(&mut self, s: &Stmt, op: &Op, args: &[Arg]) -> Option<()> {
        if op.results.is_empty() && s.assign == Assign::Set && s.cond.is_none() {
            return self.check_changed(s, op, args);
        }
        let d = if s.assign != Assign::Set {
            Diagnostic::error("E0408", s.assign_span, "the results of an op call are defined, not added")
                .help("define a local by the call, then update with it")
        } else if let Some(c) = &s.cond {
            Diagnostic::error("E0408", c.span, "an op call takes no `where`")
                .help("write it into the op, or use `if` on its result")
        } else if s.targets.len() != op.results.len() {
            let what = format!(
                "`{}` has {} results, but {} targets take them",
                op.name.text,
                op.results.len(),
                s.targets.len()
            );
            Diagnostic::error("E0408", s.span, what).help("write one target for each result")
        } else {
            return Some(());
        };
        self.report(d.also(op.name.span, "the op"));
        None
    }

    /// An op without results gives back what it changes: its targets are its `inout` arguments, in order.
    fn check_changed(&mut self, s: &Stmt, op: &Op, args: &[Arg]) -> Option<()> {
        let wanted: Vec<&str> = changed(op, args).into_iter().map(|(_, n)| n.text.as_str()).collect();
        if wanted.iter().eq(s.targets.iter().map(|t| &t.name.text)) {
            return Some(());
        }
        let what = format!("`{}` has no results: it changes its inout arguments", op.name.text);
        let d = Diagnostic::error("E0408", s.span, what).also(op.name.span, "the op");
        self.report(d.help(match wanted.is_empty() {
            true => "give it the tensors to change".to_string(),
            false => format!("write {} = {}(…)", wanted.join(", "), op.name.text),
        }));
        None
    }

    /// The axes over which the call is repeated.
    fn call_axes(&mut self, s: &'m Stmt, args: &[Arg]) -> Option<Vec<LeftAxis>> {
        let first = s.targets.first()?;
        let bodies: Vec<&Expr> = args.iter().map(|a| &a.value).collect();
        let mut out: Vec<LeftAxis> = Vec::new();
        for slot in self.slots(first) {
            let Left::Axis(name, written) = slot else {
                let d = Diagnostic::error("E0408", first.span, "an op call is repeated over plain axes");
                self.report(d.help("name an axis for each leading index"));
                return None;
            };
            let range = match written {
                Some(r) => {
                    if !self.not_taken(name) {
                        return None;
                    }
                    self.written_left(name, r)?
                }
                None => self.inferred(name, &bodies, None)?,
            };
            out.push(LeftAxis { name: name.clone(), range });
        }
        for t in &s.targets[1..] {
            let same = self
                .slots(t)
                .iter()
                .zip(&out)
                .all(|(l, a)| matches!(l, Left::Axis(n, _) if n.text == a.name.text));
            if !same || self.slots(t).len() != out.len() {
                let d = Diagnostic::error(
                    "E0408",
                    t.span,
                    "all targets of an op call have the same leading axes",
                );
                self.report(d.help("write the same axes on each"));
                return None;
            }
        }
        Some(out)
    }

    /// The arguments by parameter, with the sizes and consts that are given by name.
    fn arguments(
        &mut self,
        op: &'m Op,
        args: &[Arg],
        lead: &[AxisId],
        given: &mut Given,
    ) -> Option<HashMap<String, Argument>> {
        let mut out = HashMap::default();
        let mut position = 0;
        let mut ok = true;
        for a in args {
            let param = match &a.name {
                None => {
                    position += 1;
                    op.params.get(position - 1)
                }
                Some(n) => op.params.iter().find(|p| p.name.text == n.text),
            };
            let Some(p) = param else {
                ok &= self.size_argument(op, a, given).is_some();
                continue;
            };
            if out.contains_key(&p.name.text) || given.consts.contains_key(&p.name.text) {
                let d = Diagnostic::error("E0111", a.value.span, format!("`{}` is given twice", p.name.text));
                self.report(d.help("give each parameter once"));
                ok = false;
                continue;
            }
            given.spans.insert(p.name.text.clone(), a.value.span);
            ok &= self.argument(p, a, lead, given, &mut out).is_some();
        }
        for p in &op.params {
            let missing = !out.contains_key(&p.name.text) && !given.consts.contains_key(&p.name.text);
            if ok && missing && p.default.is_none() && !p.is_const {
                let what = format!("`{}` needs the argument `{}`", op.name.text, p.name.text);
                let d = Diagnostic::error("E0111", given.call.unwrap_or(p.name.span), what);
                self.report(d.also(p.name.span, "this one").help("give it by position or by name"));
                ok = false;
            }
        }
        ok.then_some(out)
    }

    /// `T = 5` for a size that no input binds, or `D = bf16` for a dtype parameter.
    fn size_argument(&mut self, op: &Op, a: &Arg, given: &mut Given) -> Option<()> {
        let Some(name) = &a.name else {
            let what = format!("`{}` takes {} arguments", op.name.text, op.params.len());
            self.report(
                Diagnostic::error("E0111", a.value.span, what).help("leave this one out, or name it"),
            );
            return None;
        };
        let Some(size) = op.sizes.iter().find(|s| s.name.text == name.text) else {
            let d = Diagnostic::error(
                "E0112",
                name.span,
                format!("`{}` has no parameter `{}`", op.name.text, name.text),
            );
            let known = op.params.iter().map(|p| p.name.text.as_str());
            let near = super::read::nearest(&name.text, known.clone());
            self.report(match near {
                Some(n) => d.help(format!("did you mean `{n}`?")),
                None => d.help(listed_or("its parameters are", "it has no parameters", known)),
            });
            return None;
        };
        if !matches!(size.kind, SizeKind::Plain | SizeKind::Derived(_)) {
            let n = super::scan::bare(&a.value)?.clone();
            let d = self.dtype(&n)?;
            given.types.insert(name.text.clone(), d);
            return Some(());
        }
        let id = self.int_expr(&a.value)?;
        let poly = self.poly(&a.value);
        let Some(v) = build::literal_int(&self.g, id) else {
            let d =
                Diagnostic::error("E0511", a.value.span, format!("the size `{}` must be known", name.text));
            self.report(d.help("use sizes, consts and literals"));
            return None;
        };
        given.sizes.insert(name.text.clone(), (v, Some(poly)));
        Some(())
    }

    fn argument(
        &mut self,
        p: &'m Param,
        a: &Arg,
        lead: &[AxisId],
        given: &mut Given,
        out: &mut HashMap<String, Argument>,
    ) -> Option<()> {
        if p.dims.is_some() {
            let view = self.tensor_argument(p, a, lead, given)?;
            out.insert(p.name.text.clone(), Argument::Tensor(view));
            return Some(());
        }
        let v = self.expr(&a.value);
        if v.typ == Typ::Error {
            return None;
        }
        if p.is_const {
            let id = if v.typ == Typ::Open { v.wide } else { v.id };
            let Some(value) = build::literal(&self.g, id) else {
                let d = Diagnostic::error(
                    "E0511",
                    a.value.span,
                    format!("`{}` is a const: its value must be known", p.name.text),
                );
                self.report(d.also(p.name.span, "declared here").help("use sizes, consts and literals"));
                return None;
            };
            if let Some(d) = DType::parse(&p.dtype.text) {
                self.store(v, d, &p.name.text, a.value.span)?;
            }
            let poly = self.poly(&a.value);
            given.consts.insert(p.name.text.clone(), (value, Some(poly)));
            return Some(());
        }
        out.insert(p.name.text.clone(), Argument::Number(v));
        Some(())
    }

    fn tensor_argument(&mut self, p: &'m Param, a: &Arg, lead: &[AxisId], given: &mut Given) -> Option<View> {
        let mut e = &a.value;
        while let ExprKind::Paren(inner) = &e.kind {
            e = inner;
        }
        let ExprKind::Read { name, index } = &e.kind else {
            let d = Diagnostic::error(
                "E0407",
                e.span,
                format!("`{}` takes a tensor: the name of one", p.name.text),
            );
            self.report(
                d.also(p.name.span, "declared here").help("give the expression a name first: t[i, j] = …"),
            );
            return None;
        };
        let view = match self.plain_name(name) {
            Some(_) => {
                let d = Diagnostic::error(
                    "E0407",
                    e.span,
                    format!("`{}` takes a tensor, `{}` is a number", p.name.text, name.text),
                );
                self.report(d.also(p.name.span, "declared here").help("store it in a local first: t = …"));
                return None;
            }
            None => self.view(name)?,
        };
        if view.typ == Typ::Error {
            // Its definition was wrong, which has been reported.
            return None;
        }
        let index = index.as_deref().unwrap_or_default();
        let rank = p.dims.as_ref().map_or(0, Vec::len);
        if view.sym.len() != rank + index.len() {
            let what = format!(
                "`{}` takes a tensor with {rank} {}; `{}` has {}, and {} of them {} indexed",
                p.name.text,
                if rank == 1 { "axis" } else { "axes" },
                name.text,
                view.sym.len(),
                index.len(),
                if index.len() == 1 { "is" } else { "are" },
            );
            let d = Diagnostic::error("E0407", e.span, what).also(p.name.span, "declared here");
            self.report(match view.sym.len() == rank {
                true => d.help(format!("it takes the whole tensor: write `{}` without indices", name.text)),
                false => d.help("index the leading axes over which the op is repeated: f(x[b])"),
            });
            return None;
        }
        if view.typ == Typ::Error {
            return None;
        }
        let own = self.indices(index)?;
        let mut full = self.lead_of(&view);
        let before = full.len();
        full.extend(own);
        let mut view = view;
        if self.access(&view, &full, before, index, name, false) != Access::Proven {
            if p.inout || lead.iter().any(|&a| self.g.axis_range(a).is_none()) {
                let d = Diagnostic::error("E0407", e.span, "a leading index must be provably inside");
                self.report(d.help("copy the rows that the call needs first: t[i, j] = x[ids[i], j]"));
                return None;
            }
            view = self.rows(&view, &full, lead, name);
            full = lead.iter().map(|&a| self.g.axis_expr(a)).collect();
        }
        let t = self.g.tensor(view.id).clone();
        let dims = t.dims[full.len()..].to_vec();
        if t.lo[full.len()..].iter().any(|&l| l != 0) {
            let d =
                Diagnostic::error("E0407", e.span, format!("the axes of `{}` do not start at 0", name.text));
            self.report(d.help("copy the part that the call needs to a local over 0..N first"));
            return None;
        }
        let sym: Vec<(Poly, Poly)> = view.sym[index.len()..].to_vec();
        given.dtypes.insert(p.name.text.clone(), t.dtype);
        given.shapes.insert(p.name.text.clone(), (dims, Some(sym.iter().map(|s| s.1.clone()).collect())));
        let kind = if p.inout { Kind::Inout } else { Kind::Input };
        if p.inout {
            self.check_inout(p, &view, &full, lead, e, name)?;
        }
        let typ = Typ::of(t.dtype.compute());
        let view =
            View { lead: full, sym, kind, early: false, typ, wide: view.id, span: p.name.span, ..view };
        Some(view)
    }

    /// The parts of a tensor that leading indices through data choose, copied: each is read where the call stands.
    fn rows(&mut self, view: &View, full: &[ExprId], lead: &[AxisId], name: &Name) -> View {
        let t = self.g.tensor(view.id).clone();
        let mut s = Subst::default();
        let mut axes: Vec<AxisId> = lead.iter().map(|&a| self.renamed(a, &mut s)).collect();
        let mut index: Vec<ExprId> = full.iter().map(|&i| s.apply(&mut self.g, i)).collect();
        for d in full.len()..t.dims.len() {
            let (lo, hi) = (self.g.int(t.lo[d]), self.g.int(t.lo[d] + t.dims[d]));
            let a = self.axis(&format!("i{d}"), lo, hi, (Poly::default(), Poly::default()), name.span);
            axes.push(a);
            index.push(self.g.axis_expr(a));
        }
        let read = Read { tensor: view.id, index, access: Access::Checked };
        let value = self.g.add(Node::Read(read), t.dtype.compute(), name.span);
        let ranges: Vec<(i64, i64)> = axes.iter().filter_map(|&a| self.g.axis_range(a)).collect();
        let (lo, dims) = ranges.iter().map(|r| (r.0, (r.1 - r.0).max(0))).unzip();
        let hidden = format!("{}#{}", name.text, self.fresh());
        let copy = super::stmt::tensor(&hidden, t.dtype, dims, lo, Role::Local, name.span);
        let target = self.tensor(copy, Default::default());
        self.g.stmts.push(graph::Stmt::Define(Define { target, axes, value, span: name.span }));
        View { id: target, wide: target, ..view.clone() }
    }

    /// An `inout` argument is a tensor that may change, each repetition with its own part.
    fn check_inout(
        &mut self,
        p: &Param,
        view: &View,
        full: &[ExprId],
        lead: &[AxisId],
        e: &Expr,
        name: &Name,
    ) -> Option<()> {
        let plain = full.len() == lead.len()
            && full.iter().zip(lead).all(|(&i, &a)| matches!(self.g.expr(i), Node::Axis(b) if *b == a));
        let whole = lead.iter().enumerate().all(|(i, &a)| {
            let t = self.g.tensor(view.id);
            self.g.axis_range(a) == Some((t.lo[i], t.lo[i] + t.dims.get(i).copied().unwrap_or(0)))
        });
        let d = if matches!(view.kind, Kind::Input | Kind::Table) {
            Diagnostic::error(
                "E0409",
                e.span,
                format!("`{}` changes its argument, and `{}` is an input", p.name.text, name.text),
            )
            .help("declare it `inout` here too, or pass a copy")
        } else if !plain || !whole {
            Diagnostic::error(
                "E0407",
                e.span,
                format!("each repetition must update its own part of `{}`", name.text),
            )
            .help("index it by the axes over which the op is repeated, in their order")
        } else {
            return Some(());
        };
        self.report(d.also(p.name.span, "inout here"));
        None
    }

    /// Binds the header of the called op and builds its body; its results.
    fn called_body(
        &mut self,
        op: &'m Op,
        given: &Given,
        values: HashMap<String, Argument>,
    ) -> Option<Vec<View>> {
        self.bind_header(op, given)?;
        for (name, v) in values {
            let meaning = match v {
                Argument::Tensor(view) => Meaning::Tensor(view),
                Argument::Number(v) => {
                    let p = op.params.iter().find(|p| p.name.text == name)?;
                    let at = given.spans.get(&name).copied().unwrap_or(p.span);
                    Meaning::Value(self.scalar_argument(p, v, at)?, None)
                }
            };
            self.frame_mut().names.insert(name, meaning);
        }
        for p in &op.params {
            if !self.frame().names.contains_key(&p.name.text)
                && let Some(e) = &p.default
            {
                let v = self.expr(e);
                let v = self.scalar_argument(p, v, p.span)?;
                self.frame_mut().names.insert(p.name.text.clone(), Meaning::Value(v, None));
            }
        }
        self.declare_results(op)?;
        let before = self.diags.len();
        self.body(op);
        self.blame_the_call(op, given, before);
        let mut out = Vec::new();
        for r in &op.results {
            match self.frame().names.get(&r.name.text) {
                Some(Meaning::Tensor(v)) => out.push(v.clone()),
                _ => {
                    let d = Diagnostic::error(
                        "E0406",
                        r.name.span,
                        format!("the result `{}` is never defined", r.name.text),
                    );
                    self.report(d.help(format!("write {}[…] = …", r.name.text)));
                    return None;
                }
            }
        }
        Some(out)
    }

    /// Ranges in the called op that come out different because arguments have other dims than it says: the call is at fault.
    fn blame_the_call(&mut self, op: &'m Op, given: &Given, before: usize) {
        let ranges = |d: &Diagnostic| d.code == "E0201" && op.span.covers(d.span);
        if self.diags[before..].iter().any(ranges)
            && let Some(d) = self.argument_of_other_dims(op, given)
        {
            let kept: Vec<Diagnostic> = self.diags.drain(before..).filter(|d| !ranges(d)).collect();
            self.diags.extend(kept);
            self.report(d);
        }
    }

    /// A run-time scalar of an inlined op: the argument, rounded to its dtype.
    fn scalar_argument(&mut self, p: &Param, v: Val, at: Span) -> Option<Val> {
        if v.typ == Typ::Error {
            return None;
        }
        let dtype = self.dtype(&p.dtype)?;
        let id = self.store(v, dtype, &p.name.text, at)?;
        let id = build::round(&mut self.g, dtype, id, p.span);
        Some(Val::new(Typ::of(dtype.compute()), id))
    }

    /// The tensors that `inout` arguments have become.
    fn take_back(&mut self, op: &'m Op, args: &[Arg], frame: &Frame) {
        for (p, name) in changed(op, args) {
            if let Some(Meaning::Tensor(now)) = frame.names.get(&p.name.text)
                && let Some(Meaning::Tensor(own)) = self.frame_mut().names.get_mut(&name.text)
            {
                own.id = now.id;
                own.wide = now.id;
            }
        }
    }

    /// Gives a result of a call its name here.
    fn take_result(&mut self, t: &'m Target, axes: &[LeftAxis], v: View) -> Option<()> {
        let tensor = self.g.tensor(v.id).clone();
        let known = self.frame().names.get(&t.name.text).cloned();
        let declared = self.declared_dims(&t.name.text);
        let written = self.target_dtype(t, declared.as_ref().map(|d| d.0))?;
        if let Some(d) = written
            && d != tensor.dtype
        {
            let what = format!("`{}` is {}, but the op gives {}", t.name.text, d.name(), tensor.dtype.name());
            let e = Diagnostic::error("E0412", t.name.span, what).also(v.span, "this result");
            self.report(
                e.help("dtypes must agree: take the result in a local, and convert it in a statement"),
            );
            return None;
        }
        let mut sym: Vec<(Poly, Poly)> = axes.iter().map(|a| a.range.sym.clone()).collect();
        sym.extend(v.sym.iter().cloned());
        let lead = self.lead_exprs();
        let own = tensor.dims[lead.len()..].to_vec();
        // After an error in the called op its dims are not known.
        let fits = v.typ == Typ::Error
            || declared.as_ref().is_none_or(|(_, dims)| {
                dims.len() == own.len()
                    && dims.iter().zip(&own).all(|(d, &n)| build::literal_int(&self.g, d.hi) == Some(n))
            });
        if !fits {
            let listed = |dims: &[(Poly, Poly)]| {
                let dims: Vec<String> = dims.iter().map(|d| d.1.to_string()).collect();
                format!("[{}]", dims.join(", "))
            };
            let gives = listed(&sym);
            let has: Vec<(Poly, Poly)> = declared.iter().flat_map(|d| &d.1).map(|r| r.sym.clone()).collect();
            let what = format!("`{}` is declared {}, but the op gives {gives}", t.name.text, listed(&has));
            let e = Diagnostic::error("E0402", t.name.span, what).also(v.span, "this result");
            self.report(e.help(match has.len() > sym.len() {
                true => {
                    format!("a call repeated over axes has them on its left: write {}[b] = …", t.name.text)
                }
                false => format!("declare it {gives}"),
            }));
            return None;
        }
        match known {
            None => {
                let is_result = declared.is_some() && self.frames.len() == 1;
                // A result that is one of the call's inputs again, or is taken twice, needs a tensor of its own.
                let shared = self.g.tensors[v.id.0 as usize].role == Role::Result;
                let target = &mut self.g.tensors[v.id.0 as usize];
                target.name =
                    format!("{}{}", self.frames.last().map_or("", |f| f.prefix.as_str()), t.name.text);
                if is_result && !shared {
                    target.role = Role::Result;
                }
                let kind = if declared.is_some() { Kind::Result } else { Kind::Local };
                let view = View { lead, sym, kind, early: false, span: t.name.span, ..v };
                self.frame_mut().names.insert(t.name.text.clone(), Meaning::Tensor(view));
            }
            Some(Meaning::Tensor(old)) if matches!(old.kind, Kind::Inout) => {
                self.copy_over(t, &old, &v, tensor.dims)?
            }
            _ => {
                let d =
                    Diagnostic::error("E0401", t.name.span, format!("`{}` has a value already", t.name.text));
                self.report(d.help("take the result in a local of another name"));
                return None;
            }
        }
        Some(())
    }

    /// An `inout` that takes the result of a call: its next version is a copy.
    fn copy_over(&mut self, t: &Target, old: &View, v: &View, dims: Vec<i64>) -> Option<()> {
        let base = self.g.tensor(old.id).clone();
        if base.dims != dims || base.dtype != self.g.tensor(v.id).dtype {
            let d = Diagnostic::error(
                "E0412",
                t.name.span,
                format!("`{}` has another dtype or other dims than the op gives", t.name.text),
            );
            self.report(
                d.also(old.span, "declared here").help("take the result in a local, and update with it"),
            );
            return None;
        }
        let mut axes = Vec::new();
        let mut index = Vec::new();
        for (i, &n) in dims.iter().enumerate() {
            let (lo, hi) = (self.g.int(base.lo[i]), self.g.int(base.lo[i] + n));
            let a = self.axis(&format!("i{i}"), lo, hi, (Poly::default(), Poly::default()), t.span);
            axes.push(a);
            index.push(self.g.axis_expr(a));
        }
        let read = Read { tensor: v.id, index, access: Access::Proven };
        let value = self.g.add(Node::Read(read), base.dtype.compute(), t.span);
        let target = self.next_version(old, false);
        self.g.stmts.push(graph::Stmt::Define(Define { target, axes, value, span: t.span }));
        let view = View { id: target, wide: target, ..old.clone() };
        self.frame_mut().names.insert(t.name.text.clone(), Meaning::Tensor(view));
        Some(())
    }
}

/// The `inout` parameters of a call with the names of the tensors that they change.
fn changed<'a>(op: &'a Op, args: &'a [Arg]) -> Vec<(&'a Param, &'a Name)> {
    let of = |(i, p): (usize, &'a Param)| {
        let by_name = args.iter().find(|a| a.name.as_ref().is_some_and(|n| n.text == p.name.text));
        let arg = by_name.or_else(|| args.iter().filter(|a| a.name.is_none()).nth(i))?;
        match &arg.value.kind {
            ExprKind::Read { name, .. } => Some((p, name)),
            _ => None,
        }
    };
    op.params.iter().enumerate().filter(|(_, p)| p.inout).filter_map(of).collect()
}
