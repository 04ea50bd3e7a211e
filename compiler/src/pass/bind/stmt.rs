//! Statements: their order, the axes on their left, definitions.

use super::build;
use super::elab::{Elab, Kind, Meaning, View};
use super::fold::AxisRange;
use super::points::{Point, Program};
use super::poly::Poly;
use super::prove::Values;
use super::scan;
use super::typ::{Typ, Val};
use crate::ir::graph::{self, AxisId, Define, ExprId, Role, Tensor, TensorId};
use crate::pass::module::{Callable, Found};
use crate::vocab::dtype::DType;
use girih_dsl::ast::*;
use girih_dsl::diagnostic::Diagnostic;
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};
use std::rc::Rc;

/// `1 axis`, `2 axes`.
pub fn axes(n: usize) -> String {
    if n == 1 { "1 axis".into() } else { format!("{n} axes") }
}

/// A tensor with contiguous strides.
pub fn tensor(name: &str, dtype: DType, dims: Vec<i64>, lo: Vec<i64>, role: Role, span: Span) -> Tensor {
    let mut strides = vec![1i64; dims.len()];
    for i in (0..dims.len().saturating_sub(1)).rev() {
        strides[i] = strides[i + 1].saturating_mul(dims[i + 1].max(1));
    }
    Tensor {
        name: name.into(),
        version: 0,
        dtype,
        dims,
        lo,
        role,
        range: None,
        unique: false,
        cast: false,
        strides,
        align: 256,
        span,
    }
}

/// Where a statement started.
pub struct Begun {
    scope: usize,
    mark: super::prove::Mark,
}

/// A slot of a left-hand side.
pub enum Left<'a> {
    /// An axis alone, with the range that is written.
    Axis(&'a Name, Option<&'a Range>),
    Index(&'a Expr),
}

/// An axis of a statement before it is bound.
pub struct LeftAxis {
    pub name: Name,
    pub range: AxisRange,
}

impl<'m> Elab<'m> {
    /// The statements of an op, in an order in which they can run.
    pub fn body(&mut self, op: &'m Op) {
        self.ops.push(op);
        self.statements(op);
        self.ops.pop();
    }

    fn statements(&mut self, op: &'m Op) {
        let order = Order::of(self, op);
        let mut waiting: Vec<usize> = Vec::new();
        let mut done: HashSet<usize> = HashSet::default();
        for i in 0..op.body.len() {
            // A recurrence stands where its last member does.
            if order.members(i).last() == Some(&i) {
                waiting.push(i);
            }
            while let Some(at) = waiting.iter().position(|&w| order.is_ready(w, &done)) {
                let next = waiting.remove(at);
                self.unit(op, &order, next);
                done.extend(order.members(next));
            }
        }
        for i in waiting {
            self.unit(op, &order, i);
        }
    }

    /// A statement, or the recurrence that it is the last of.
    fn unit(&mut self, op: &'m Op, order: &Order, i: usize) {
        match order.group_of.get(&i) {
            Some(members) => {
                let stmts: Vec<&'m Stmt> = members.iter().map(|&m| &op.body[m]).collect();
                self.recurrence(&stmts);
            }
            None => self.statement(&op.body[i]),
        }
    }

    /// One statement that is not part of a recurrence.
    fn statement(&mut self, s: &'m Stmt) {
        let outer = self.at_hand.replace(s);
        let scope = self.begin();
        if let Some((unit, op, args)) = self.op_call(&s.value) {
            self.op_call_stmt(s, unit, op, args);
        } else if let Some(d) = self.unknown_op(&s.value) {
            self.report(d);
            s.targets.iter().for_each(|t| self.give_up(s, t));
        } else if s.targets.len() > 1
            && let ExprKind::Call { lib: None, name, .. } = &s.value.kind
            && matches!(self.module.callable(self.frame().unit, None, &name.text), Found::None)
        {
            let d = Diagnostic::error("E0108", name.span, format!("there is no op `{}`", name.text));
            let known = self.module.callable_names(self.frame().unit);
            let near = super::read::nearest(&name.text, known);
            self.report(match near {
                Some(n) => d.help(format!("did you mean `{n}`?")),
                None => {
                    d.help("only ops have several results: write op name[…](…) -> (a: f32, b: f32) { … }")
                }
            });
            s.targets.iter().for_each(|t| self.give_up(s, t));
        } else if let [t] = &s.targets[..] {
            self.assignment(s, t);
        } else {
            let d = Diagnostic::error("E0408", s.span, "several targets take the results of an op call");
            self.report(d.help("write one statement for each"));
            s.targets.iter().for_each(|t| self.give_up(s, t));
        }
        self.end(scope);
        self.at_hand = outer;
    }

    /// Starts a statement: the axes over which the op is repeated are its outermost ones.
    pub fn begin(&mut self) -> Begun {
        let begun = Begun { scope: self.scope.len(), mark: self.prover.mark() };
        let lead = self.frame().lead.clone();
        let now: Vec<AxisId> = lead.iter().map(|&a| self.axis_like(a)).collect();
        self.scope.extend(&now);
        self.frame_mut().lead_now = now;
        begun
    }

    pub fn end(&mut self, begun: Begun) {
        self.scope.truncate(begun.scope);
        self.prover.release(begun.mark);
        let frame = self.frame_mut();
        frame.axes.clear();
        (frame.left, frame.local) = (0, false);
    }

    /// The op that a right-hand side calls.
    fn op_call<'a>(&self, e: &'a Expr) -> Option<(usize, &'m Op, &'a [Arg])> {
        match &e.kind {
            ExprKind::Paren(a) => self.op_call(a),
            ExprKind::Call { lib, name, args } => {
                let lib = lib.as_ref().map(|l| l.text.as_str());
                match self.module.callable(self.frame().unit, lib, &name.text) {
                    Found::One(Callable::Op(unit, op)) => Some((unit, op, args)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The report for a call that names nothing here: `nn.relu(x[b])`, or what a library has that is not imported.
    fn unknown_op(&self, e: &Expr) -> Option<Diagnostic> {
        match &e.kind {
            ExprKind::Paren(a) => self.unknown_op(a),
            ExprKind::Call { lib: None, name, args } if !super::call::is_built_in(&name.text) => {
                // The search through the library's texts comes last: it takes long.
                let whole = args.iter().any(|a| self.whole_rows(&a.value).is_some());
                match self.module.callable(self.frame().unit, None, &name.text) {
                    Found::None if whole || girih_dsl::library_with(&name.text).is_some() => {
                        Some(self.unknown_callable(None, name, args))
                    }
                    _ => None,
                }
            }
            ExprKind::Call { lib: Some(lib), name, args } => {
                match self.module.callable(self.frame().unit, Some(&lib.text), &name.text) {
                    Found::None => Some(self.unknown_callable(Some(lib), name, args)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn assignment(&mut self, s: &'m Stmt, t: &'m Target) {
        let known = match self.frame().names.get(&t.name.text) {
            Some(Meaning::Value(..)) => {
                let d = Diagnostic::error(
                    "E0409",
                    t.name.span,
                    format!("`{}` is a number, nothing can be stored in it", t.name.text),
                );
                return self.report(d.help("define a local of another name"));
            }
            Some(Meaning::Tensor(v)) => Some(v.clone()),
            None => None,
        };
        match known {
            Some(v) if v.kind == Kind::Input => {
                let d = Diagnostic::error(
                    "E0409",
                    t.name.span,
                    format!("`{}` is an input, it keeps its value", t.name.text),
                );
                self.report(
                    d.also(v.span, "declared here")
                        .help("declare it `inout`, or define a local of another name"),
                );
            }
            // Its definition was wrong, which has been reported.
            Some(v) if v.typ == Typ::Error => {}
            Some(v) => self.update(s, t, Some(v)),
            None if s.assign != Assign::Set || self.is_partial(s, t) => self.update(s, t, None),
            None => self.definition(s, t),
        }
    }

    /// Not a definition: a condition, or an index that is not an axis.
    fn is_partial(&self, s: &Stmt, t: &Target) -> bool {
        s.cond.is_some() || self.slots(t).iter().any(|l| matches!(l, Left::Index(_)))
    }

    /// What stands on the left.
    pub fn slots<'a>(&self, t: &'a Target) -> Vec<Left<'a>> {
        t.slots
            .iter()
            .flatten()
            .map(|s| match s {
                Slot::Axis(n, r) => Left::Axis(n, Some(r)),
                Slot::Expr(e) => match scan::bare(e) {
                    Some(n) if self.is_new(n) => Left::Axis(n, None),
                    _ => Left::Index(e),
                },
            })
            .collect()
    }

    /// A name that means nothing else, so an axis.
    fn is_new(&self, n: &Name) -> bool {
        !self.frame().names.contains_key(&n.text)
            && !self.frame().taken.contains_key(&n.text)
            && matches!(self.module.constant(self.frame().unit, &n.text), Found::None)
    }

    /// The axes on the left of a definition. `dims`: of a declared result.
    pub fn left_axes(&mut self, s: &Stmt, t: &Target, dims: Option<&[AxisRange]>) -> Option<Vec<LeftAxis>> {
        let slots = self.slots(t);
        if let Some(dims) = dims
            && dims.len() != slots.len()
        {
            let d = Diagnostic::error(
                "E0106",
                t.span,
                format!("`{}` has {}, not {}", t.name.text, axes(dims.len()), slots.len()),
            );
            let one = |d: &AxisRange| d.sym.1.as_const() == Some(1);
            let number = slots.is_empty() && dims.iter().all(one);
            let form = match number {
                true => Some(format!(
                    "it holds one value: declare it a number, `{}: f32`, or write {0}[i] = …",
                    t.name.text
                )),
                false => self.element_form(s, t, dims.len()),
            };
            self.report(d.help(form.unwrap_or_else(|| Self::left_form(&t.name.text, dims.len()))));
            return None;
        }
        let mut out: Vec<LeftAxis> = Vec::new();
        let mut ok = true;
        for (i, slot) in slots.iter().enumerate() {
            let Left::Axis(name, written) = slot else { return None };
            if written.is_some() && !self.not_taken(name) {
                ok = false;
                continue;
            }
            if let Some(first) = out.iter().find(|a| a.name.text == name.text) {
                let d = Diagnostic::error(
                    "E0104",
                    name.span,
                    format!("`{}` stands twice on the left", name.text),
                );
                self.report(
                    d.also(first.name.span, "first here")
                        .help("give each axis its own name; a diagonal is `if i == j`"),
                );
                ok = false;
                continue;
            }
            let range = match (written, dims) {
                (Some(r), _) => self.written_left(name, r),
                (None, Some(d)) => Some(AxisRange { lo: d[i].lo, hi: d[i].hi, sym: d[i].sym.clone() }),
                (None, None) => self.inferred(name, &[&s.value], s.cond.as_ref()),
            };
            match range {
                Some(range) => out.push(LeftAxis { name: (*name).clone(), range }),
                None => ok = false,
            }
        }
        ok.then_some(out)
    }

    /// A range on the left: of sizes and constants only.
    pub fn written_left(&mut self, name: &Name, r: &Range) -> Option<AxisRange> {
        let other = scan_names(r).into_iter().find(|n| self.is_new(n)).map(|n| n.text.clone());
        let literal = match &other {
            Some(_) => None,
            None => {
                let range = self.range(r)?;
                let lo = build::literal_int(&self.g, range.lo);
                lo.zip(build::literal_int(&self.g, range.hi)).map(|(lo, hi)| (range, lo, hi))
            }
        };
        if let Some((range, lo, hi)) = literal {
            // An empty range is kept as lo..lo, so that extents are never negative.
            let hi = self.g.int(hi.max(lo));
            return Some(AxisRange { hi, ..range });
        }
        let on = other.unwrap_or_else(|| "data".to_string());
        let what = format!("the range of {} depends on {on}", name.text);
        let d = Diagnostic::error("E0204", r.span, what);
        self.report(
            d.help("on the left, ranges use sizes and constants: use a box and `if`, or offsets in folds"),
        );
        None
    }

    pub fn bind_left(&mut self, axes: &[LeftAxis]) -> Vec<AxisId> {
        let mut ids = Vec::new();
        for a in axes {
            let id = self.axis(&a.name.text, a.range.lo, a.range.hi, a.range.sym.clone(), a.name.span);
            self.bind_axis(&a.name.text, id, a.name.span);
            ids.push(id);
        }
        self.frame_mut().left = self.frame().axes.len();
        ids
    }

    /// The dims of a declared result as ranges of axes.
    pub fn declared_dims(&mut self, name: &str) -> Option<(DType, Vec<AxisRange>)> {
        let d = self.frame().results.get(name)?.clone();
        let zero = self.g.int(0);
        let mut dims = Vec::new();
        for (&n, sym) in d.dims.iter().zip(&d.sym) {
            dims.push(AxisRange { lo: zero, hi: self.g.int(n), sym: sym.clone() });
        }
        Some((d.dtype, dims))
    }

    /// The dtype written on a target; of a result it must be the declared one.
    pub fn target_dtype(&mut self, t: &Target, declared: Option<DType>) -> Option<Option<DType>> {
        let Some(written) = &t.dtype else { return Some(declared) };
        let d = self.dtype(written)?;
        match declared {
            Some(r) if r != d => {
                let e = Diagnostic::error(
                    "E0412",
                    written.span,
                    format!("`{}` is declared {}", t.name.text, r.name()),
                );
                self.report(e.help("leave the dtype out here"));
                None
            }
            _ => Some(Some(d)),
        }
    }

    fn definition(&mut self, s: &'m Stmt, t: &'m Target) {
        let declared = self.declared_dims(&t.name.text);
        self.frame_mut().local = declared.is_none();
        let dims = declared.as_ref().map(|d| &d.1[..]);
        let axes = self.left_axes(s, t, dims);
        let dtype = self.target_dtype(t, declared.as_ref().map(|d| d.0));
        let Some(axes) = axes else { return self.give_up(s, t) };
        if let Some(dims) = dims {
            self.covers(t, &axes, dims);
        }
        let ids = self.bind_left(&axes);
        let v = self.expr(&s.value);
        let Some(dtype) = dtype else { return self.give_up(s, t) };
        if v.typ == Typ::Error {
            return self.give_up_typed(t, &axes, dtype, v);
        }
        if self.define(t, &axes, &ids, dtype, v, s.value.span).is_none() {
            self.give_up_typed(t, &axes, dtype, v);
        }
    }

    /// A result's definition covers its domain exactly.
    pub fn covers(&mut self, t: &Target, axes: &[LeftAxis], dims: &[AxisRange]) {
        for (a, d) in axes.iter().zip(dims) {
            if a.range.lo == d.lo && a.range.hi == d.hi {
                continue;
            }
            let lit = |s: &Self, e| build::literal_int(&s.g, e).unwrap_or_default();
            let (lo, hi, n) = (lit(self, a.range.lo), lit(self, a.range.hi), lit(self, d.hi));
            if hi - lo == 0 && n == 0 {
                continue;
            }
            let what = format!(
                "`{}` must be defined for {} in 0..{n}, this is {lo}..{hi}",
                t.name.text, a.name.text
            );
            let e = Diagnostic::error("E0402", a.name.span, what + &self.for_sample());
            let left: Vec<&str> = axes.iter().map(|a| a.name.text.as_str()).collect();
            self.report(e.help(format!(
                "define all of it, by a choice: `{}[{}] = if {} <= {} < {} then … else 0`; or define it (= 0) and update a part below",
                t.name.text,
                left.join(", "),
                a.range.sym.0,
                a.name.text,
                a.range.sym.1
            )));
        }
    }

    /// After an error: the name is known from here on, so that its uses are not reported too.
    pub fn give_up(&mut self, _s: &Stmt, t: &Target) {
        let span = t.name.span;
        let rank = t.slots.as_ref().map_or(0, Vec::len);
        let poison = self.poison();
        let unknown = tensor(&t.name.text, DType::F32, vec![0; rank], vec![0; rank], Role::Local, span);
        let id = self.tensor(unknown, Values::default());
        let sym: Vec<_> =
            (0..rank).map(|_| (Poly::default(), Poly::var(format!("?{}", self.fresh())))).collect();
        let kind = Kind::Local;
        let view = View { id, wide: id, typ: poison.typ, lead: Vec::new(), sym, kind, early: true, span };
        self.frame_mut().names.insert(t.name.text.clone(), Meaning::Tensor(view));
    }

    fn give_up_typed(&mut self, t: &Target, axes: &[LeftAxis], dtype: Option<DType>, v: Val) {
        let typ = match dtype {
            Some(d) => Typ::of(d.compute()),
            None if v.typ == Typ::Lit => Typ::Index,
            None => v.typ,
        };
        let view = self.new_tensor(t, axes, dtype, typ);
        self.frame_mut().names.insert(t.name.text.clone(), Meaning::Tensor(view));
    }

    /// A tensor for a target: with the axes over which the op is repeated in front.
    pub fn new_tensor(&mut self, t: &Target, axes: &[LeftAxis], dtype: Option<DType>, typ: Typ) -> View {
        let (mut dims, mut lo) = self.lead_dims();
        for a in axes {
            let first = build::literal_int(&self.g, a.range.lo).unwrap_or(0);
            let end = build::literal_int(&self.g, a.range.hi).unwrap_or(0);
            lo.push(first);
            dims.push((end - first).max(0));
        }
        let sym = axes.iter().map(|a| a.range.sym.clone()).collect();
        let dtype = dtype.unwrap_or(typ.ty().stored());
        self.make_view(&t.name, dtype, dims, lo, sym, typ)
    }

    /// Extents and first indices of the axes over which the op is repeated.
    pub fn lead_dims(&self) -> (Vec<i64>, Vec<i64>) {
        let ranges = self.frame().lead.iter().filter_map(|&a| self.g.axis_range(a));
        ranges.map(|(lo, hi)| ((hi - lo).max(0), lo)).unzip()
    }

    pub fn make_view(
        &mut self,
        name: &Name,
        dtype: DType,
        dims: Vec<i64>,
        lo: Vec<i64>,
        sym: Vec<(Poly, Poly)>,
        typ: Typ,
    ) -> View {
        let is_result = self.frame().results.contains_key(&name.text);
        let full = format!("{}{}", self.frame().prefix, name.text);
        let role = if is_result && self.frames.len() == 1 { Role::Result } else { Role::Local };
        let one = |s: &mut Self, dtype| {
            let t = tensor(&full, dtype, dims.clone(), lo.clone(), role, name.span);
            s.tensor(t, Values::default())
        };
        let id = one(self, dtype);
        let wide = if typ == Typ::Open { one(self, DType::F64) } else { id };
        let lead = self.lead_exprs();
        let kind = if is_result { Kind::Result } else { Kind::Local };
        View { id, wide, typ, lead, sym, kind, early: false, span: name.span }
    }

    /// The axes over which the op is repeated, as indices of its locals.
    pub fn lead_exprs(&mut self) -> Vec<ExprId> {
        let lead = self.frame().lead.clone();
        lead.into_iter().map(|a| self.g.axis_expr(a)).collect()
    }

    /// Defines a target by a value over bound axes.
    pub fn define(
        &mut self,
        t: &Target,
        axes: &[LeftAxis],
        ids: &[AxisId],
        dtype: Option<DType>,
        v: Val,
        span: Span,
    ) -> Option<View> {
        let typ = match dtype {
            Some(d) => Typ::of(d.compute()),
            None if v.typ == Typ::Lit => Typ::Index,
            None => v.typ,
        };
        let value = match dtype {
            Some(d) => self.store(v, d, &t.name.text, span)?,
            None => v.id,
        };
        let view = self.new_tensor(t, axes, dtype, typ);
        let all: Vec<AxisId> = self.frame().lead_now.iter().chain(ids).copied().collect();
        let known = self.values_of(value, &all, view.id);
        self.prover.tensors[view.id.0 as usize] = known;
        let put = |s: &mut Self, target, value| {
            s.g.stmts.push(graph::Stmt::Define(Define { target, axes: all.clone(), value, span: t.span }));
        };
        put(self, view.id, value);
        if typ == Typ::Open {
            put(self, view.wide, v.wide);
        }
        self.frame_mut().names.insert(t.name.text.clone(), Meaning::Tensor(view.clone()));
        Some(view)
    }

    /// What is known of the values that a definition gives.
    pub fn values_of(&mut self, value: ExprId, axes: &[AxisId], target: TensorId) -> Values {
        let closed = !self.reads_data(value);
        if !self.g.ty(value).is_int() {
            return Values { closed, ..Values::default() };
        }
        let stored = super::interval::of_dtype(self.g.tensor(target).dtype);
        let (lo, hi) = self.prover.iv(&self.g, value);
        let mut range = (lo.clamp(stored.0, stored.1), hi.clamp(stored.0, stored.1));
        let table = if closed { self.table_of(value, axes, stored) } else { None };
        if let Some(t) = &table
            && let Some(all) = t.iter().copied().collect::<Option<Vec<i64>>>()
            && let (Some(&a), Some(&b)) = (all.iter().min(), all.iter().max())
        {
            range = (a as i128, b as i128);
        }
        Values { range: Some(range), table, closed }
    }

    /// All values, if they are not many.
    fn table_of(
        &mut self,
        value: ExprId,
        axes: &[AxisId],
        stored: (i128, i128),
    ) -> Option<Rc<Vec<Option<i64>>>> {
        let ranges: Option<Vec<(i64, i64)>> = axes.iter().map(|&a| self.g.axis_range(a)).collect();
        let ranges = ranges?;
        let points = ranges.iter().try_fold(1i64, |n, r| n.checked_mul((r.1 - r.0).max(0)))?;
        if points > 1 << 14 {
            return None;
        }
        let mut program = Program::new();
        let root = program.add(&self.g, &self.prover, value);
        let mut fuel = 1 << 20;
        let mut out = Vec::with_capacity(points as usize);
        let mut at: Vec<i64> = ranges.iter().map(|r| r.0).collect();
        for _ in 0..points {
            let mut point: Point = axes.iter().copied().zip(at.iter().copied()).collect();
            let v = program.run(&mut point, &mut fuel)[root];
            out.push(v.map(|v| v.clamp(stored.0 as i64, stored.1 as i64)));
            for d in (0..at.len()).rev() {
                at[d] += 1;
                if at[d] < ranges[d].1 {
                    break;
                }
                at[d] = ranges[d].0;
            }
        }
        Some(Rc::new(out))
    }
}

fn scan_names(r: &Range) -> Vec<&Name> {
    let mut out = Vec::new();
    scan::each_name(&r.lo, &mut |n| out.push(n));
    scan::each_name(&r.hi, &mut |n| out.push(n));
    out
}

/// Which statements form recurrences, and which wait for which.
struct Order {
    /// Statements that need each other (or themselves), by statement; in the order of the text.
    group_of: HashMap<usize, Rc<Vec<usize>>>,
    /// The definitions that a statement reads or updates.
    waits: Vec<Vec<usize>>,
}

impl Order {
    fn of(e: &Elab, op: &Op) -> Order {
        let mut first: HashMap<&str, usize> = HashMap::default();
        for (i, s) in op.body.iter().enumerate() {
            for t in &s.targets {
                if !e.frame().names.contains_key(&t.name.text) {
                    first.entry(&t.name.text).or_insert(i);
                }
            }
        }
        let mut waits = Vec::new();
        let mut itself = Vec::new();
        for (i, s) in op.body.iter().enumerate() {
            let mut reads = scan::reads_of(s);
            // An axis that is named like a tensor is reported where it stands: it is no read.
            let axes = scan::written_axes(s);
            reads.retain(|n| !axes.contains(&n.text.as_str()));
            let own: Vec<&str> = s.targets.iter().map(|t| t.name.text.as_str()).collect();
            let defines = own.iter().any(|n| first.get(n) == Some(&i)) && s.assign == Assign::Set;
            itself.push(defines && reads.iter().any(|n| own.contains(&n.text.as_str())));
            let names = reads.iter().map(|n| n.text.as_str()).chain(own);
            let mut w: Vec<usize> = names.filter_map(|n| first.get(n).copied()).filter(|&d| d != i).collect();
            w.sort_unstable();
            w.dedup();
            waits.push(w);
        }
        let groups = components(&waits);
        let mut group_of = HashMap::default();
        for g in groups {
            if g.len() > 1 || itself[g[0]] {
                let g = Rc::new(g);
                g.iter().for_each(|&i| {
                    group_of.insert(i, g.clone());
                });
            }
        }
        Order { group_of, waits }
    }

    /// The statements that run with this one.
    fn members(&self, i: usize) -> Vec<usize> {
        self.group_of.get(&i).map_or_else(|| vec![i], |g| g.to_vec())
    }

    /// Is all there that is read? What is read above its definition is waited for only where a recurrence defines it:
    /// any other such read is an error.
    fn is_ready(&self, i: usize, done: &HashSet<usize>) -> bool {
        let own = self.members(i);
        own.iter()
            .flat_map(|&m| &self.waits[m])
            .all(|d| done.contains(d) || own.contains(d) || (*d > i && !self.group_of.contains_key(d)))
    }
}

/// Strongly connected components of "reads", each in ascending order (Kosaraju, without recursion).
fn components(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let n = edges.len();
    let mut back = vec![Vec::new(); n];
    edges.iter().enumerate().for_each(|(i, to)| to.iter().for_each(|&j| back[j].push(i)));
    let walk = |start: usize, edges: &[Vec<usize>], seen: &mut Vec<bool>, out: &mut Vec<usize>| {
        let mut stack = vec![(start, 0)];
        seen[start] = true;
        while let Some((v, k)) = stack.pop() {
            match edges[v].get(k) {
                Some(&w) => {
                    stack.push((v, k + 1));
                    if !seen[w] {
                        seen[w] = true;
                        stack.push((w, 0));
                    }
                }
                None => out.push(v),
            }
        }
    };
    let (mut order, mut seen) = (Vec::new(), vec![false; n]);
    (0..n).for_each(|i| {
        if !seen[i] {
            walk(i, edges, &mut seen, &mut order);
        }
    });
    let (mut out, mut seen) = (Vec::new(), vec![false; n]);
    for &i in order.iter().rev() {
        if !seen[i] {
            let mut one = Vec::new();
            walk(i, &back, &mut seen, &mut one);
            one.sort_unstable();
            out.push(one);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::components;

    #[test]
    fn statements_that_need_each_other_are_one_group() {
        let mut c = components(&[vec![2], vec![0], vec![1], vec![], vec![3]]);
        c.sort();
        assert_eq!(c, vec![vec![0, 1, 2], vec![3], vec![4]]);
    }
}
