//! Reads of tensors: their names, the number and type of their indices, and whether these are in bounds.

use super::build;
use super::elab::{Elab, Kind, Meaning, MemberRead, Order, View};
use super::points::{Program, Search, Trial};
use super::typ::{Typ, Val};
use super::ways::Leaving;
use crate::ir::graph::*;
use crate::vocab::dtype::{Ty, Value};
use crate::vocab::func::Func;
use girih_dsl::ast::{self, BinOp, ExprKind, Name, Span};
use girih_dsl::diagnostic::Diagnostic;
use std::collections::BTreeSet;

impl Elab<'_> {
    /// `name` or `name[index]`, with the `else` that follows.
    pub fn read(
        &mut self,
        name: &Name,
        index: Option<&[ast::Expr]>,
        els: Option<&ast::Expr>,
        span: Span,
    ) -> Val {
        if let Some(v) = self.plain_name(name) {
            let d = match index {
                Some(i) if !i.is_empty() => Diagnostic::error(
                    "E0106",
                    span,
                    format!("`{}` is a number, it takes no index", name.text),
                )
                .help(format!("write {}", name.text)),
                _ if els.is_some() => Diagnostic::error(
                    "E0106",
                    span,
                    format!("`{}` is a number, it is always there", name.text),
                )
                .help("leave the `else` out"),
                _ => return v,
            };
            return self.wrong(d);
        }
        let Some(view) = self.view(name) else { return self.poison() };
        let index = index.unwrap_or_default();
        if view.typ == Typ::Error {
            // Its definition was wrong, which has been reported.
            self.indices(index);
            return self.poison();
        }
        if index.len() != view.sym.len() {
            let form = self.likely_indices(&view);
            return self.wrong(count_of_indices(name, index.len(), &form, span));
        }
        let Some(written) = self.indices(index) else {
            els.map(|d| self.expr(d));
            return self.poison();
        };
        let mut full = self.lead_of(&view);
        let lead = full.len();
        full.extend(written);
        self.note_member_read(&view, &full, span);
        match els {
            None => {
                let access = self.access(&view, &full, lead, index, name, false);
                self.read_as(&view, full, access, span)
            }
            Some(d) => self.with_default(&view, full, lead, d, span),
        }
    }

    pub fn read_else(&mut self, read: &ast::Expr, default: &ast::Expr, span: Span) -> Val {
        let mut inner = read;
        while let ExprKind::Paren(a) = &inner.kind {
            inner = a;
        }
        match &inner.kind {
            ExprKind::Read { name, index } => self.read(name, index.as_deref(), Some(default), span),
            _ => {
                let d = Diagnostic::error("E0106", span, "`else` follows a single read of a tensor");
                self.wrong(d.help("write (x[i-1] else 0)"))
            }
        }
    }

    /// The tensor a name means, or the report that it means none.
    pub fn view(&mut self, name: &Name) -> Option<View> {
        if let Some(Meaning::Tensor(v)) = self.frame().names.get(&name.text) {
            return Some(v.clone());
        }
        if let Some(v) = self.const_table(name) {
            return Some(v);
        }
        let d = self.unknown_name(name);
        self.report(d);
        None
    }

    fn unknown_name(&self, name: &Name) -> Diagnostic {
        let frame = self.frame();
        if self.recurrence.as_ref().is_some_and(|r| r.names.contains(&name.text)) {
            let what =
                format!("`{}` is read before or in its definition, so its dtype must be written", name.text);
            return Diagnostic::error("E0405", name.span, what).help(match self.recurred(&name.text) {
                Some(form) => format!("write its dtype, and where it starts: `{form}`"),
                None => format!("write {}: f32[…] = …", name.text),
            });
        }
        if let Some(&at) = frame.taken.get(&name.text) {
            let d = Diagnostic::error(
                "E0115",
                name.span,
                format!("`{}` is used above its definition", name.text),
            );
            return d.also(at, "defined here").help("move the definition up, above its first use");
        }
        let known = frame.names.keys().chain(frame.axes.iter().map(|b| &b.name));
        let near =
            girih_dsl::foreign::value(&name.text).or_else(|| nearest(&name.text, known.map(String::as_str)));
        let d = Diagnostic::error("E0102", name.span, format!("nothing here is called `{}`", name.text));
        if let Some(dtype) = self.frame().dtypes.get(&name.text) {
            let what = format!("`{}` is declared a dtype here ({})", name.text, dtype.name());
            return Diagnostic::error("E0102", name.span, what).help(format!(
                "a size is a name alone, it is always a whole number: op name[{}](…)",
                name.text
            ));
        }
        if let Some(help) = girih_dsl::foreign::absent(&name.text) {
            return d.help(help);
        }
        if girih_dsl::foreign::is_fold(&name.text) {
            return d.help(format!("it is a fold, of an axis and a value: {}[k](x[k])", name.text));
        }
        if let Some((fold, form)) = self.beyond_its_fold(&name.text) {
            return d.help(format!(
                "`{}` is bound inside `{fold}` only: put what uses it there, `{form}`, or give it a fold of its own",
                name.text
            ));
        }
        if near.is_none_or(|n| n.len() < 3)
            && let Some(form) = self.summed(&name.text)
        {
            return d.help(format!(
                "`{}` does not stand on the left: fold it away, `{form}`, or put it there, so that there is one value for each {0}",
                name.text
            ));
        }
        match near {
            Some(n) => d.help(format!("did you mean `{n}`?")),
            None if name.text.starts_with(|c: char| c.is_ascii_uppercase()) => {
                d.help(format!("if `{0}` is a size, name it at the start: op name[{0}](…)", name.text))
            }
            None => d.help(match girih_dsl::foreign::function(&name.text) {
                Some(help) => help,
                None if name.text.chars().count() > 2 && !self.stands_as_index(&name.text) => format!(
                    "declare it: a parameter `{0}: f32`, or a constant of the file, `const {0} = 0.5`",
                    name.text
                ),
                None => format!(
                    "an axis stands on the left side, `y[{0}]`, or in a fold, `sum[{0}](x[{0}])`; a number is a parameter, \
                     `{0}: f32`",
                    name.text
                ),
            }),
        }
    }

    /// Indices as I64 expressions.
    pub fn indices(&mut self, index: &[ast::Expr]) -> Option<Vec<ExprId>> {
        let all: Vec<Option<ExprId>> = index.iter().map(|i| self.int_expr(i)).collect();
        all.into_iter().collect()
    }

    /// An integer expression, as I64.
    pub fn int_expr(&mut self, e: &ast::Expr) -> Option<ExprId> {
        let v = self.expr(e);
        match v.typ {
            Typ::Error => None,
            t if t.is_int() => Some(build::cast(&mut self.g, v.id, Ty::I64, e.span)),
            t => {
                let d = Diagnostic::error(
                    "E0308",
                    e.span,
                    format!("an index is an integer, this is {}", t.name()),
                );
                self.report(d.help(self.as_an_index(e, t)));
                None
            }
        }
    }

    /// The help for an index of another type.
    fn as_an_index(&self, e: &ast::Expr, t: Typ) -> String {
        let text = girih_dsl::print_expr(e);
        if t == Typ::Bool {
            return format!("write i32({text})");
        }
        if let ExprKind::Read { name, .. } = &e.kind
            && let Some(Meaning::Tensor(v)) = self.frame().names.get(&name.text)
            && matches!(v.kind, Kind::Input | Kind::Inout)
        {
            return format!(
                "declare `{}` as integers, i32 or i64, where it is a parameter; or write i32(floor({text}))",
                name.text
            );
        }
        // `H/2.0`
        let mut whole = text.clone();
        each_float(e, &mut |f| {
            if let Some(int) = f.strip_suffix(".0") {
                whole = whole.replace(f, int);
            }
        });
        match whole != text && !whole.contains('.') {
            true => format!("whole numbers divide to whole numbers: write {whole}"),
            false => format!("write i32(floor({text}))"),
        }
    }

    fn read_as(&mut self, view: &View, index: Vec<ExprId>, access: Access, span: Span) -> Val {
        let one = |tensor: TensorId, s: &mut Self| {
            let ty = s.g.tensor(tensor).dtype.compute();
            s.g.add(Expr::Read(Read { tensor, index: index.clone(), access }), ty, span)
        };
        let id = one(view.id, self);
        match view.typ {
            Typ::Open => {
                let wide = one(view.wide, self);
                Val::open(id, wide)
            }
            t => Val::new(t, id),
        }
    }

    /// `x[…] else d`
    fn with_default(
        &mut self,
        view: &View,
        index: Vec<ExprId>,
        lead: usize,
        default: &ast::Expr,
        span: Span,
    ) -> Val {
        let proven = (0..index.len()).all(|d| self.is_inside(view.id, &index, d));
        let member = view.early;
        self.dead += proven as u32;
        let d = self.expr(default);
        self.dead -= proven as u32;
        let read = self.read_as(view, index.clone(), Access::Proven, span);
        let t = self.meet(read, d, span);
        let (kept, d) = (self.convert(read, t, span), self.convert(d, t, span));
        if t == Typ::Error || kept.typ == Typ::Error || d.typ == Typ::Error {
            return self.poison();
        }
        if proven && !member {
            return kept;
        }
        if read.typ == t {
            let id = self.read_as(view, index.clone(), Access::Else(d.id), span).id;
            let wide = match t {
                Typ::Open => self.read_as(view, index, Access::Else(d.wide), span).wide,
                _ => id,
            };
            return Val { typ: t, id, wide, divided: false };
        }
        let c = self.inside(view.id, &index[lead..], lead, span);
        self.choose(c, kept, d, span)
    }

    /// The condition that indices are in bounds.
    pub fn inside(&mut self, tensor: TensorId, index: &[ExprId], first: usize, span: Span) -> Val {
        let mut all = self.bool(true).id;
        for (i, &e) in index.iter().enumerate() {
            let t = self.g.tensor(tensor);
            let (lo, n) = (t.lo[first + i], t.dims[first + i]);
            let (lo, hi) = (self.g.int(lo), self.g.int(lo + n));
            let above = build::call(&mut self.g, Func::Le, vec![lo, e], span);
            let below = build::call(&mut self.g, Func::Lt, vec![e, hi], span);
            let both = build::and(&mut self.g, above, below, span);
            all = build::and(&mut self.g, all, both, span);
        }
        Val::new(Typ::Bool, all)
    }

    fn is_inside(&self, tensor: TensorId, index: &[ExprId], dim: usize) -> bool {
        let t = self.g.tensor(tensor);
        self.prover.in_range(&self.g, index[dim], t.lo[dim], t.lo[dim] + t.dims[dim])
    }

    /// What is known of a read's indices; an index that can be outside is an error.
    pub fn access(
        &mut self,
        view: &View,
        index: &[ExprId],
        lead: usize,
        written: &[ast::Expr],
        name: &Name,
        stored: bool,
    ) -> Access {
        if self.dead > 0 || self.prover.is_dead(&self.g, self.scope.iter().copied()) {
            return Access::Proven;
        }
        let mut access = Access::Proven;
        for dim in 0..index.len() {
            if self.is_inside(view.id, index, dim) {
                continue;
            }
            let t = self.g.tensor(view.id);
            let inside = (t.lo[dim], t.lo[dim] + t.dims[dim]);
            match self.try_points(index[dim], inside) {
                Trial::AllInside => {}
                Trial::Outside(at, value) if !self.lenient => {
                    let (leading, own) = (dim < lead, dim.saturating_sub(lead));
                    let (index, point) = (index[dim], &at[..]);
                    let l = Leaving { name, view, written, at: own, index, inside, point, value, stored };
                    let d = self.outside(&l, leading);
                    self.report(d);
                }
                _ => {
                    access = Access::Checked;
                    let span = if dim >= lead { written[dim - lead].span } else { name.span };
                    if let Some(d) = self.declared_outside(name, index[dim], inside, span).filter(|_| !stored)
                    {
                        self.report(d);
                    }
                }
            }
        }
        access
    }

    /// Tries the points of an index that is made of axes, sizes and constants.
    pub fn try_points(&mut self, index: ExprId, inside: (i64, i64)) -> Trial {
        if self.reads_data(index) {
            return Trial::Undecided;
        }
        let mut axes: BTreeSet<AxisId> = self.free_axes(index);
        if axes.iter().any(|a| !self.is_plain_axis(*a)) {
            return Trial::Undecided;
        }
        // Conditions that speak of these axes narrow them, and so do the axes that ranges speak of.
        loop {
            let before = axes.len();
            for (c, _) in self.prover.conds.clone() {
                let of = self.free_axes(c);
                if of.iter().any(|a| axes.contains(a)) && of.iter().all(|a| self.is_plain_axis(*a)) {
                    axes.extend(of);
                }
            }
            for a in axes.clone() {
                let (lo, hi) = (self.g.axis(a).lo, self.g.axis(a).hi);
                axes.extend(self.free_axes(lo));
                axes.extend(self.free_axes(hi));
            }
            if axes.len() == before {
                break;
            }
        }
        let order: Vec<AxisId> = self.scope.iter().copied().filter(|a| axes.contains(a)).collect();
        if order.len() != axes.len() {
            return Trial::Undecided;
        }
        let mut program = Program::new();
        let place = program.add(&self.g, &self.prover, index);
        let conds: Vec<(usize, bool)> = self
            .prover
            .conds
            .iter()
            .map(|&(c, side)| (program.add(&self.g, &self.prover, c), side))
            .collect();
        let mut bounds = Vec::new();
        for &a in &order {
            let (lo, hi) = (self.g.axis(a).lo, self.g.axis(a).hi);
            bounds.push((program.add(&self.g, &self.prover, lo), program.add(&self.g, &self.prover, hi)));
        }
        let (g, program, conds, axes, bounds) = (&self.g, &program, &conds[..], &order[..], &bounds[..]);
        Search { g, axes, program, bounds, conds, index: place, inside, limit: self.trial }.run()
    }

    /// Is the axis's range made of axes, sizes and constants?
    fn is_plain_axis(&self, a: AxisId) -> bool {
        let x = self.g.axis(a);
        !self.reads_data(x.lo)
            && !self.reads_data(x.hi)
            && [x.lo, x.hi]
                .iter()
                .all(|&e| self.free_axes(e).iter().all(|&b| b != a && self.is_plain_axis(b)))
    }

    /// Does it depend on inputs, run-time scalars, or definitions that do?
    pub fn reads_data(&self, e: ExprId) -> bool {
        let mut seen = std::collections::HashSet::new();
        let mut stack = vec![e];
        while let Some(e) = stack.pop() {
            if !seen.insert(e) {
                continue;
            }
            match self.g.expr(e) {
                Expr::Scalar(_) | Expr::Param(_) => return true,
                Expr::Read(r) if !self.prover.tensors[r.tensor.0 as usize].closed => return true,
                _ => {}
            }
            stack.extend(self.g.children(e));
        }
        false
    }

    /// The axes that an expression depends on and does not bind.
    pub fn free_axes(&self, e: ExprId) -> BTreeSet<AxisId> {
        let (mut free, mut inner) = (BTreeSet::new(), BTreeSet::new());
        let mut seen = std::collections::HashSet::new();
        let mut stack = vec![e];
        while let Some(e) = stack.pop() {
            if !seen.insert(e) {
                continue;
            }
            match self.g.expr(e) {
                Expr::Axis(a) => {
                    free.insert(*a);
                }
                // Axes are bound once, so no axis is both inside and outside of its fold.
                Expr::Fold(f) => inner.extend(f.axes.iter().copied()),
                _ => {}
            }
            stack.extend(self.g.children(e));
        }
        &free - &inner
    }

    /// The report for an index that leaves its dim; a leading one of an op that is repeated has no `at`.
    fn outside(&mut self, l: &Leaving, leading: bool) -> Diagnostic {
        let (name, at, inside) = (l.name, l.point, l.inside);
        let span = if leading { name.span } else { l.written[l.at].span };
        let place: Vec<String> = at.iter().map(|&(a, v)| format!("{} = {v}", self.g.axis(a).name)).collect();
        let place = if place.is_empty() { String::new() } else { format!(" at {}", place.join(", ")) };
        let which = match l.written.len() {
            _ if leading => "a leading index".to_string(),
            0 | 1 => "the index".to_string(),
            _ => format!("index {}", l.at + 1),
        };
        let how = if l.stored { "written" } else { "read" };
        let what = format!(
            "`{}` is {how} outside{place}: {which} is {}, the axis is {}..{}",
            name.text, l.value, inside.0, inside.1
        );
        let what = what + &self.for_sample();
        let ways = match leading {
            true => "give the axis a range that stays inside, or clamp the index".to_string(),
            false => self.other_dim(l).unwrap_or_else(|| self.ways_out(l)),
        };
        Diagnostic::error("E0203", span, what).label(format!("{}{place}", l.value)).help(ways)
    }

    /// A warning for an index that is data whose declared values reach beyond the dim, where nothing around it that
    /// speaks of data could keep them out.
    fn declared_outside(
        &self,
        name: &Name,
        index: ExprId,
        inside: (i64, i64),
        span: Span,
    ) -> Option<Diagnostic> {
        let mut data = index;
        while let Expr::Cast(e) = self.g.expr(data) {
            data = *e;
        }
        let Expr::Read(r) = self.g.expr(data) else { return None };
        let of = self.g.tensor(r.tensor);
        let (lo, hi) = of.range?;
        let guarded = self.prover.conds.iter().any(|&(c, _)| self.reads_data(c))
            || self.scope.iter().any(|&a| !self.is_plain_axis(a));
        if guarded || lo >= inside.0 && hi <= inside.1 {
            return None;
        }
        let worst = if hi > inside.1 { hi - 1 } else { lo };
        let what = format!(
            "`{}` may be {worst} by its declaration, the axis of `{}` is {}..{}{}",
            of.name,
            name.text,
            inside.0,
            inside.1,
            self.for_sample()
        );
        let d = Diagnostic::warning("W0004", span, what).also(of.span, "declared here");
        Some(d.help("declare the values that there are (`in 0..N` ends before N), or give the read a default: (x[i] else 0)"))
    }

    /// The help for an index that is just an axis, which ranges over something else than the dim.
    fn other_dim(&self, l: &Leaving) -> Option<String> {
        let Expr::Axis(a) = self.g.expr(l.index) else { return None };
        super::scan::bare(&l.written[l.at])?;
        let (ranges, has) = (self.sym_of_axis(*a).1, l.view.sym.get(l.at)?.1.clone());
        let (ranges, has) = (ranges.to_string(), has.to_string());
        let one = |s: &str| !s.is_empty() && s != "0";
        // With sizes from 1 up `2*N <= N` never holds.
        let never = self.sym_of_axis(*a).1.sub(&l.view.sym.get(l.at)?.1).is_a_sum();
        (one(&ranges) && one(&has) && ranges != has).then(|| {
            let axis = &self.g.axis(*a).name;
            let fits = match never {
                true => format!("give the axis that range, `{axis} in 0..{has}`, or the read a default, `({} else 0)`", l.whole()),
                false => format!("exchange the indices, use an axis over {has}, or write `where {ranges} <= {has}` after the op's results if it always fits"),
            };
            format!("{axis} ranges over {ranges}, and `{}` has {has} there: {fits}", l.name.text)
        })
    }

    /// Keeps what the classification of a recurrence needs: how the indices stand to the reader's axes.
    fn note_member_read(&mut self, view: &View, index: &[ExprId], span: Span) {
        let Some(r) = &self.recurrence else { return };
        let Some(target) = r.members.iter().position(|(t, _)| *t == view.id) else { return };
        if self.dead > 0 || self.prover.is_dead(&self.g, self.scope.iter().copied()) {
            return;
        }
        let reader = r.current;
        let (names, mine) = (r.members[target].1.clone(), r.members[reader].1.clone());
        let mut order = Vec::new();
        for (&i, n) in index.iter().zip(&names) {
            let own = self.scope.iter().copied().find(|&a| self.g.axis(a).name == *n && mine.contains(n));
            let o = match own {
                Some(a) => self.order_of(i, a),
                None => Order::Unknown,
            };
            order.push((n.clone(), o));
        }
        if let Some(r) = &mut self.recurrence {
            r.reads.push(MemberRead { reader, target, order, span });
        }
    }

    fn order_of(&mut self, index: ExprId, axis: AxisId) -> Order {
        let a = self.g.axis_expr(axis);
        let d = self.prover.lin(&self.g, a).plus(&self.prover.lin(&self.g, index), -1);
        let back = super::prove::Lin::constant(0).plus(&d, -1);
        if d.terms.is_empty() && d.c == 0 {
            return Order::Equal;
        }
        let (less, greater) = (d.clone().shift(-1), back.clone().shift(-1));
        if self.prover.proves(&self.g, &less) {
            Order::Less
        } else if self.prover.proves(&self.g, &greater) {
            Order::Greater
        } else if self.prover.proves(&self.g, &d) && self.prover.proves(&self.g, &back) {
            Order::Equal
        } else {
            Order::Unknown
        }
    }

    /// A const list as a tensor with one axis.
    fn const_table(&mut self, name: &Name) -> Option<View> {
        use crate::pass::module::Found;
        let module = self.module;
        let (unit, c) = match module.constant(self.frame().unit, &name.text) {
            Found::One(c) => c,
            Found::Clash(a, b) => {
                let d =
                    Diagnostic::error("E0109", name.span, format!("both {a} and {b} have `{}`", name.text));
                self.report(d.help("give your own const this name"));
                return None;
            }
            Found::None => return None,
        };
        let ast::ConstValue::Array { items, .. } = &c.value else { return None };
        let key = (unit, name.text.clone());
        if let Some(v) = self.tables.get(&key) {
            return Some(v.clone());
        }
        let values =
            self.closed(unit, &c.name, |s| items.iter().map(|i| (s.expr(i), i.span)).collect::<Vec<_>>())?;
        let view = self.make_table(c, &values)?;
        self.tables.insert(key, view.clone());
        Some(view)
    }

    fn make_table(&mut self, c: &ast::Constant, values: &[(Val, Span)]) -> Option<View> {
        use super::poly::Poly;
        let mut typ = Typ::Lit;
        for (v, span) in values {
            let one = Val::new(typ, v.id);
            typ = if v.typ == Typ::Bool && typ == Typ::Lit { Typ::Bool } else { self.meet(one, *v, *span) };
        }
        let declared = match &c.dtype {
            Some(d) => Some(self.dtype(d)?),
            None => None,
        };
        let typ = match (declared, typ) {
            (_, Typ::Error) => return None,
            (Some(d), _) if d.is_int() => Typ::Index,
            (Some(d), _) => Typ::of(d.compute()),
            (None, Typ::Lit) => Typ::Index,
            (None, t) => t,
        };
        let n = values.len() as i64;
        let make = |s: &mut Self, dtype: crate::vocab::dtype::DType| -> Option<TensorId> {
            let mut all = Vec::new();
            for (v, span) in values {
                let id = s.store(*v, dtype, &c.name.text, *span)?;
                let id = build::round(&mut s.g, dtype, id, *span);
                match build::literal(&s.g, id) {
                    Some(v) => all.push(v),
                    None => {
                        let d = Diagnostic::error("E0511", *span, "a const is made of literals and consts");
                        s.report(d.help("leave out what is only known at run time"));
                        return None;
                    }
                }
            }
            Some(s.table(&c.name.text, dtype, all, c.span))
        };
        let dtype = declared.unwrap_or(typ.ty().stored());
        let id = make(self, dtype)?;
        let wide = if typ == Typ::Open { make(self, crate::vocab::dtype::DType::F64)? } else { id };
        let sym = vec![(Poly::default(), Poly::constant(n))];
        Some(View { id, wide, typ, lead: Vec::new(), sym, kind: Kind::Table, early: false, span: c.span })
    }

    fn table(
        &mut self,
        name: &str,
        dtype: crate::vocab::dtype::DType,
        values: Vec<Value>,
        span: Span,
    ) -> TensorId {
        let n = values.len() as i64;
        let ints: Option<Vec<i64>> =
            (!dtype.is_float()).then(|| values.iter().map(|v| crate::host::as_i64(*v)).collect());
        let known = super::prove::Values {
            range: ints.as_ref().and_then(|v| Some((*v.iter().min()? as i128, *v.iter().max()? as i128))),
            table: ints.map(|v| std::rc::Rc::new(v.into_iter().map(Some).collect())),
            closed: true,
        };
        let t = super::stmt::tensor(name, dtype, vec![n], vec![0], Role::Table, span);
        let target = self.tensor(t, known);
        self.g.stmts.push(Stmt::Table { target, values });
        target
    }

    /// An operator on two index expressions.
    pub fn index_op(&mut self, op: BinOp, a: ExprId, b: ExprId, span: Span) -> ExprId {
        let (a, b) = (Val::new(Typ::Index, a), Val::new(Typ::Index, b));
        self.operate(op, a, b, span).id
    }
}

/// Every float literal in an expression, as written.
fn each_float(e: &ast::Expr, f: &mut impl FnMut(&str)) {
    if let ExprKind::Float(text) = &e.kind {
        f(text);
    }
    super::scan::children(e).into_iter().for_each(|c| each_float(c, f));
}

pub fn count_of_indices(name: &Name, written: usize, form: &[String], span: Span) -> Diagnostic {
    let rank = form.len();
    let axes = if rank == 1 { "axis" } else { "axes" };
    let (code, what) = match written {
        0 => ("E0105", format!("`{}` has {rank} {axes}", name.text)),
        1 => ("E0106", format!("`{}` has {rank} {axes}, but 1 index", name.text)),
        n => ("E0106", format!("`{}` has {rank} {axes}, but {n} indices", name.text)),
    };
    let form = if rank == 0 { name.text.clone() } else { format!("{}[{}]", name.text, form.join(", ")) };
    Diagnostic::error(code, span, what).help(format!("write {form}"))
}

/// The known name that is nearest to a mistyped one.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Of short names every other one is near: a wrong guess misleads more than none.
    let limit = name.chars().count() / 3;
    let near = |d: usize, k: &str| d > 0 && d <= limit && 2 * d < k.chars().count();
    known.map(|k| (distance(name, k), k)).filter(|(d, k)| near(*d, k)).min().map(|(_, k)| k)
}

/// The same for names of ops, which are longer: words that one of them adds count once.
pub fn nearest_name<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |w: &str| w.replace('_', "").to_lowercase();
    let word = plain(name);
    let mut best: Option<(usize, &str)> = None;
    for k in known {
        let d = distance(&word, &plain(k));
        if d <= (word.len() / 4).max(1) && word.len() > 3 && best.is_none_or(|b| d < b.0) {
            best = Some((d, k));
        }
    }
    best.map(|b| b.1)
}

/// Edit distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let next = (row[j + 1] + 1).min(row[j] + 1).min(diagonal + usize::from(x != *y));
            diagonal = std::mem::replace(&mut row[j + 1], next);
        }
    }
    row[b.len()]
}
