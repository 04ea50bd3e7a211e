//! Recurrences: definitions that read themselves, or each other, at earlier points.

use super::advice::written;
use super::elab::{Elab, Meaning, MemberRead, Order, Recurrence, View};
use super::stmt::{Left, LeftAxis};
use super::typ::Typ;
use crate::ir::graph::{self, AxisId, Define, Recur, StepAxis, TensorId};
use crate::vocab::dtype::DType;
use girih_dsl::ast::*;
use girih_dsl::diagnostic::Diagnostic;

/// A tensor that does not exist yet.
const NONE: TensorId = TensorId(u32::MAX);

/// A member before its value is built.
struct Member<'m> {
    stmt: &'m Stmt,
    target: &'m Target,
    axes: Vec<LeftAxis>,
    dtype: Option<DType>,
}

impl<'m> Elab<'m> {
    /// Statements that need each other, in the order of the text.
    pub fn recurrence(&mut self, stmts: &[&'m Stmt]) {
        let outer = self.recurrence.replace(Recurrence::default());
        let members: Vec<Option<Member>> = stmts.iter().map(|s| self.member(s)).collect();
        let members: Option<Vec<Member>> = members.into_iter().collect();
        let Some(members) = members else {
            self.recurrence = outer;
            for s in stmts {
                s.targets.iter().for_each(|t| self.give_up(s, t));
            }
            return;
        };
        let views: Vec<Option<View>> = members.iter().map(|m| self.announce(m)).collect();
        let defines = self.members(&members, views);
        let reads = std::mem::replace(&mut self.recurrence, outer).map(|r| r.reads).unwrap_or_default();
        for m in &members {
            if let Some(Meaning::Tensor(v)) = self.frame_mut().names.get_mut(&m.target.name.text) {
                v.early = false;
            }
        }
        let Some(defines) = defines else { return };
        if let Some(steps) = self.steps(&members, reads) {
            self.warn_narrow(&members);
            let lead = self.frame().lead.len();
            let steps = steps.into_iter().map(|(name, descending)| StepAxis {
                position: members
                    .iter()
                    .map(|m| lead + m.axes.iter().position(|a| a.name.text == name).unwrap_or(0))
                    .collect(),
                descending,
            });
            let steps = steps.collect();
            self.g.stmts.push(graph::Stmt::Recur(Recur { members: defines, steps }));
        }
    }

    /// Checks that a statement can be a member, and finds its axes.
    fn member(&mut self, s: &'m Stmt) -> Option<Member<'m>> {
        let [t] = &s.targets[..] else {
            let d =
                Diagnostic::error("E0410", s.span, "the results of an op call are used in its own arguments");
            self.report(d.help("ops are not recursive: write the recurrence in one op"));
            return None;
        };
        if self.calls_op(&s.value) {
            let d = Diagnostic::error(
                "E0410",
                s.span,
                format!("`{}` is an argument of the call that defines it", t.name.text),
            );
            self.report(d.help("give the result another name, or write the recurrence in one op"));
            return None;
        }
        let plain = self.slots(t).iter().all(|l| matches!(l, Left::Axis(..)));
        if !plain && self.is_named_like_its_axis(t) {
            return None;
        }
        if !plain || s.assign != Assign::Set || s.cond.is_some() {
            let what = format!(
                "`{}` reads itself, so it must be defined by plain axes and without `where`",
                t.name.text
            );
            let help = match (plain, s.assign == Assign::Set) {
                (true, true) => "put the condition into an `if` on the right".to_string(),
                (true, false) => format!("write `{} = …` with all of the right side", written(t)),
                _ if self.updated(s, t).is_some() => {
                    format!("combining with what is there is an update: write `{}`", self.updated(s, t).unwrap_or_default())
                }
                _ => match self.recurred(&t.name.text) {
                    Some(form) => format!("a recurrence is one statement at plain axes: write `{form}`"),
                    None => "write it at plain axes, and read the point before: `h: f32[t] = (h[t-1] else 0) + x[t]`".into(),
                },
            };
            self.report(Diagnostic::error("E0403", t.span, what).help(help));
            return None;
        }
        self.at_hand = Some(s);
        let begun = self.begin();
        let declared = self.declared_dims(&t.name.text);
        let dims = declared.as_ref().map(|d| &d.1[..]);
        let axes = self.left_axes(s, t, dims);
        if let (Some(axes), Some(dims)) = (&axes, dims) {
            self.covers(t, axes, dims);
        }
        self.end(begun);
        let dtype = self.target_dtype(t, declared.as_ref().map(|d| d.0))?;
        let dims = axes.iter().flatten().map(|a| a.range.clone()).collect();
        if let Some(r) = &mut self.recurrence {
            r.dims.push((t.name.text.clone(), dims));
            r.current = r.dims.len();
        }
        Some(Member { stmt: s, target: t, axes: axes?, dtype })
    }

    /// `m[m] = …`: the report that an axis has the name of a tensor.
    fn is_named_like_its_axis(&mut self, t: &Target) -> bool {
        let own = t.slots.iter().flatten().find_map(|slot| match slot {
            Slot::Expr(e) => super::scan::bare(e).filter(|n| n.text == t.name.text),
            Slot::Axis(..) => None,
        });
        let Some(n) = own else { return false };
        let what = format!("`{}` names the tensor and its axis", n.text);
        let d = Diagnostic::error("E0103", n.span, what).also(t.name.span, "the tensor");
        let renamed = super::hints::renamed(&written(t), &n.text, &format!("{}0", n.text)).replacen(
            &format!("{}0", n.text),
            &n.text,
            1,
        );
        self.report(d.help(format!("give the axis, or the tensor, another name: `{renamed} = …`")));
        true
    }

    fn calls_op(&self, e: &Expr) -> bool {
        use crate::pass::module::{Callable, Found};
        match &e.kind {
            ExprKind::Paren(a) => self.calls_op(a),
            ExprKind::Call { lib, name, .. } => {
                let lib = lib.as_ref().map(|l| l.text.as_str());
                matches!(
                    self.module.callable(self.frame().unit, lib, &name.text),
                    Found::One(Callable::Op(..))
                )
            }
            _ => false,
        }
    }

    /// Makes a member with a dtype readable before it is defined.
    fn announce(&mut self, m: &Member) -> Option<View> {
        let view = m.dtype.map(|d| View {
            early: true,
            ..self.new_tensor(m.target, &m.axes, Some(d), Typ::of(d.compute()))
        });
        if let Some(v) = &view {
            self.frame_mut().names.insert(m.target.name.text.clone(), Meaning::Tensor(v.clone()));
        }
        let lead = self.frame().lead.clone();
        let mut names: Vec<String> = lead.iter().map(|&a| self.g.axis(a).name.clone()).collect();
        names.extend(m.axes.iter().map(|a| a.name.text.clone()));
        if let Some(r) = &mut self.recurrence {
            r.members.push((view.as_ref().map_or(NONE, |v| v.id), names));
            r.names.push(m.target.name.text.clone());
        }
        view
    }

    /// Builds the values of all members.
    fn members(&mut self, members: &[Member<'m>], views: Vec<Option<View>>) -> Option<Vec<Define>> {
        let mut defines = Vec::new();
        let mut ok = true;
        for (i, (m, view)) in members.iter().zip(views).enumerate() {
            if let Some(r) = &mut self.recurrence {
                r.current = i;
            }
            self.at_hand = Some(m.stmt);
            let begun = self.begin();
            let ids = self.bind_left(&m.axes);
            let v = self.expr(&m.stmt.value);
            let axes: Vec<AxisId> = self.frame().lead_now.iter().chain(&ids).copied().collect();
            self.end(begun);
            let view = match view {
                Some(v) => v,
                // Read only by members below it: its type is that of its value.
                None => {
                    let typ = match v.typ {
                        Typ::Open => Typ::F32,
                        Typ::Lit => Typ::Index,
                        t => t,
                    };
                    let view = View { early: true, ..self.new_tensor(m.target, &m.axes, None, typ) };
                    if let Some(r) = &mut self.recurrence {
                        r.members[i].0 = view.id;
                    }
                    self.frame_mut().names.insert(m.target.name.text.clone(), Meaning::Tensor(view.clone()));
                    view
                }
            };
            let dtype = self.g.tensor(view.id).dtype;
            match self.store(v, dtype, &m.target.name.text, m.stmt.value.span) {
                Some(value) => defines.push(Define { target: view.id, axes, value, span: m.stmt.span }),
                None => ok = false,
            }
        }
        ok.then_some(defines)
    }

    /// The step axes, outermost first: on each, all reads that are left are at the same or at an earlier index (or all
    /// at the same or a later one), and some are not at the same.
    fn steps(&mut self, members: &[Member], mut left: Vec<MemberRead>) -> Option<Vec<(String, bool)>> {
        let shared: Vec<String> = members[0]
            .axes
            .iter()
            .map(|a| a.name.text.clone())
            .filter(|n| members.iter().all(|m| m.axes.iter().any(|a| a.name.text == *n)))
            .collect();
        let mut steps: Vec<(String, bool)> = Vec::new();
        let open = |r: &MemberRead| r.target >= r.reader;
        while left.iter().any(open) {
            let mut best: Option<(usize, &String, bool)> = None;
            for n in shared.iter().filter(|n| steps.iter().all(|s| s.0 != **n)) {
                for descending in [false, true] {
                    if let Some(gain) = gain(&left, n, descending)
                        && best.is_none_or(|b| gain > b.0)
                    {
                        best = Some((gain, n, descending));
                    }
                }
            }
            let Some((_, name, descending)) = best else {
                self.refuse(members, &left, &shared);
                return None;
            };
            left.retain(|r| order_on(r, name) == Order::Equal);
            steps.push((name.clone(), descending));
        }
        Some(steps)
    }

    fn refuse(&mut self, members: &[Member], left: &[MemberRead], shared: &[String]) {
        let Some(bad) = left.iter().find(|r| r.target >= r.reader) else { return };
        let name = &members[bad.target].target.name;
        let both = shared.iter().find(|n| {
            let has = |o: Order| left.iter().any(|r| order_on(r, n) == o);
            has(Order::Less) && has(Order::Greater)
        });
        let what = match both {
            Some(axis) => format!(
                "`{}` is read at earlier and at later {axis}: a recurrence goes one way along each axis",
                name.text
            ),
            None if members.len() > 1 && shared.is_empty() => {
                format!("`{}` and the definitions it needs share no axis to step along", name.text)
            }
            None => format!(
                "`{}` is read at a point that is not provably earlier: that is no recurrence",
                name.text
            ),
        };
        let mut d = Diagnostic::error("E0404", bad.span, what).also(name.span, "defined here");
        if let Some(axis) = both
            && let Some(other) = left.iter().find(|r| order_on(r, axis) == Order::Greater)
        {
            d = d.also(other.span, "a later point");
        }
        let itself = !bad.order.is_empty() && bad.order.iter().all(|(_, o)| *o == Order::Equal);
        let help = match (itself && members.len() == 1, self.accumulated(&name.text)) {
            (true, Some(form)) => format!("a fold says it: write `{form}`"),
            (true, None) => format!(
                "it reads itself at the same point: read the one before, `({} else 0)`; to change what is there already, declare \
                 `inout {}` among the parameters",
                one_before(members[0].target),
                name.text
            ),
            _ => "read it at a smaller index on one axis (or a larger one, in all reads), or give the old state a name of its own".into(),
        };
        self.report(d.help(help));
    }

    /// A state that is rounded to 16 or 8 bits at each step.
    fn warn_narrow(&mut self, members: &[Member]) {
        for m in members {
            if let Some(d) = m.dtype.filter(|d| d.is_float() && d.bits() < 32) {
                let what = format!("`{}` is rounded to {} at each step", m.target.name.text, d.name());
                let w = Diagnostic::warning("W0001", m.target.name.span, what);
                self.report(w.help("carry the state in f32, and round it where it is stored"));
            }
        }
    }
}

/// `y[t - 1]` for the target `y[t]`.
fn one_before(t: &Target) -> String {
    let text = written(t);
    match text.find([',', ']']) {
        Some(at) => format!("{} - 1{}", &text[..at], &text[at..]),
        None => text,
    }
}

fn order_on(r: &MemberRead, axis: &str) -> Order {
    r.order.iter().find(|(n, _)| n == axis).map_or(Order::Unknown, |(_, o)| *o)
}

/// How many of the reads that need it a step along an axis settles; `None` if it is no step for all of them.
fn gain(left: &[MemberRead], axis: &str, descending: bool) -> Option<usize> {
    let earlier = if descending { Order::Greater } else { Order::Less };
    let mut gain = 0;
    for r in left {
        match order_on(r, axis) {
            Order::Equal => {}
            o if o == earlier => gain += usize::from(r.target >= r.reader),
            _ => return None,
        }
    }
    (gain > 0).then_some(gain)
}
