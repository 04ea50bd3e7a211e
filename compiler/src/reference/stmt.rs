//! Statements: each evaluates its expressions at all its points and stores what they give.

use super::acc::Acc;
use super::compile::{Code, Compiler, number};
use super::facts::{Facts, is_narrow};
use super::fold::{apply, slack};
use super::num::{self, B, F, I, Num};
use super::read::{Located, Place, any};
use super::world::{Env, FaultKind, RunFault, Stored, World};
use crate::ir::graph::*;
use crate::vocab::dtype::{DType, Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use rayon::prelude::*;
use std::collections::HashMap;

/// First value and count of each axis, which for statements are literal.
struct Box_ {
    axes: Vec<AxisId>,
    lo: Vec<i64>,
    n: Vec<i64>,
}

impl Box_ {
    fn new(g: &Graph, axes: impl IntoIterator<Item = AxisId>) -> Box_ {
        let axes: Vec<AxisId> = axes.into_iter().collect();
        let ranges: Vec<(i64, i64)> = axes
            .iter()
            .map(|&a| g.axis_range(a).expect("statement axes have literal ranges (graph invariant)"))
            .collect();
        Box_ {
            axes,
            lo: ranges.iter().map(|r| r.0).collect(),
            n: ranges.iter().map(|r| (r.1 - r.0).max(0)).collect(),
        }
    }

    fn len(&self) -> usize {
        self.n.iter().product::<i64>() as usize
    }

    fn enter(&self, point: usize, env: &mut Env) {
        let mut at = point as i64;
        for d in (0..self.axes.len()).rev() {
            env.axes[self.axes[d].0 as usize] = self.lo[d] + at % self.n[d];
            at /= self.n[d];
        }
    }
}

/// Points below this count are not worth a thread.
const SMALL: usize = 64;

/// Visits all points in row-major order, in parallel; each adds what it likes to the list.
fn visit<T: Send>(
    w: &World,
    space: &Box_,
    axes: usize,
    memos: usize,
    fixed: &[(AxisId, i64)],
    f: impl Fn(&World, &mut Env, &mut Vec<T>) + Sync,
) -> Result<Vec<T>, RunFault> {
    let len = space.len();
    let chunk = (len / (rayon::current_num_threads() * 8)).max(SMALL);
    let run = |start: usize| {
        let mut env = Env::new(axes, memos);
        fixed.iter().for_each(|&(a, v)| env.axes[a.0 as usize] = v);
        let mut out = Vec::new();
        for point in start..(start + chunk).min(len) {
            space.enter(point, &mut env);
            f(w, &mut env, &mut out);
            if env.fault.is_some() {
                break;
            }
        }
        env.fault.map_or(Ok(out), Err)
    };
    let parts: Vec<Result<Vec<T>, RunFault>> = if len <= chunk {
        (0..len).step_by(chunk.max(1)).map(run).collect()
    } else {
        (0..len.div_ceil(chunk)).into_par_iter().map(|c| run(c * chunk)).collect()
    };
    let mut all = Vec::with_capacity(len);
    for part in parts {
        all.extend(part?);
    }
    Ok(all)
}

/// Executes the statements of one graph.
pub struct Machine<'g> {
    pub w: World<'g>,
    pub facts: &'g Facts,
}

/// How the value of a definition goes into its tensor.
struct Store {
    target: TensorId,
    from: Ty,
    dtype: DType,
    /// Also keep what it was before the rounding.
    keep_wide: bool,
    /// The rounding may have moved across a scaling: relative error.
    moved: f64,
}

impl Machine<'_> {
    pub fn run(&mut self, stmt: &Stmt) -> Result<(), RunFault> {
        match stmt {
            Stmt::Define(d) => self.define(d),
            Stmt::Scan(s) => self.scan(s),
            Stmt::Sort(s) => self.sort(s),
            Stmt::Recur(r) => self.recur(r),
            Stmt::Update(u) => self.update(u),
            Stmt::Table { target, values } => {
                let mut t = Stored::zeros(self.w.graph, *target);
                let dtype = self.w.graph.tensor(*target).dtype;
                for (i, &v) in values.iter().enumerate().take(t.data.len()) {
                    t.data.set(i, num::round(number(v), v.ty(), dtype));
                }
                self.put(*target, t);
                Ok(())
            }
        }
    }

    fn put(&mut self, id: TensorId, t: Stored) {
        self.w.tensors[id.0 as usize] = Some(t);
    }

    fn store(&self, value: ExprId, target: TensorId, axes: usize) -> Store {
        let g = self.w.graph;
        let t = g.tensor(target);
        let (from, dtype) = (g.ty(value), t.dtype);
        let output = g.outputs.iter().any(|o| o.tensor == target);
        let keep_wide = output && dtype.is_float() && from.is_float() && dtype != from.stored();
        let moves = t.role == Role::Local && is_narrow(dtype) && self.scaled(value, axes);
        let moved = if moves { 0.5f64.powi(dtype.row().mantissa as i32) } else { 0.0 };
        Store { target, from, dtype, keep_wide, moved }
    }

    /// A product, a quotient or an exponential with a factor that is the same along some axis of the statement.
    fn scaled(&self, value: ExprId, axes: usize) -> bool {
        let g = self.w.graph;
        let common = |e: ExprId| self.facts.axes[e.0 as usize].len() < axes;
        match g.expr(value) {
            Expr::Call(Func::Mul, args) => args.iter().any(|&a| common(a)),
            Expr::Call(Func::Div, args) => common(args[1]),
            // The exponential of a shift is a scaled exponential.
            Expr::Call(Func::Exp | Func::Exp2, args) => match g.expr(args[0]) {
                Expr::Call(Func::Sub, args) => args.iter().any(|&a| common(a)),
                _ => false,
            },
            Expr::Select(_, a, b) => self.scaled(*a, axes) || self.scaled(*b, axes),
            _ => false,
        }
    }

    fn define(&mut self, d: &Define) -> Result<(), RunFault> {
        let (w, g) = (&self.w, self.w.graph);
        let mut c = Compiler::new(g, self.facts, &d.axes);
        let code = c.code(d.value);
        let space = Box_::new(g, d.axes.iter().copied());
        let values =
            visit(w, &space, g.axes.len(), c.memos(), &[], |w, env, out| out.push(code.run(w, env)))?;
        let store = self.store(d.value, d.target, d.axes.len());
        let mut t = Stored::zeros(g, d.target);
        for (i, v) in values.into_iter().enumerate() {
            store.set(&mut t, i, v);
        }
        self.put(d.target, t);
        Ok(())
    }

    fn scan(&mut self, s: &Scan) -> Result<(), RunFault> {
        let g = self.w.graph;
        let mut c = Compiler::new(g, self.facts, &s.axes);
        let (cond, body) = (s.cond.map(|e| c.code(e)), c.code(s.body));
        let law = c.sum_law(s.body);
        let function = match s.combine {
            Combine::Fn(f) => Some(c.fold_fn(f)),
            Combine::Builtin(_) => None,
        };
        let along = s.axes[s.along];
        let line = Box_::new(g, [along]);
        let others = Box_::new(g, s.axes.iter().copied().filter(|&a| a != along));
        let body_ty = g.ty(s.body);
        let walk = |w: &World, env: &mut Env, out: &mut Vec<Num>| match (&function, s.combine) {
            (Some((f, unit)), _) => scan_fn(w, env, &line, cond.as_ref(), &body, f, unit, out),
            (None, Combine::Builtin(m)) => {
                let mut acc = Acc::new(m, body_ty, law);
                for p in 0..line.len() {
                    line.enter(p, env);
                    let taken = taken(cond.as_ref(), w, env);
                    if taken.v || !taken.sure {
                        let x = body.run(w, env);
                        let at = env.axis(along);
                        if taken.sure { acc.push(x, at) } else { acc.push_open(x, at) }
                    }
                    out.push(acc.result());
                }
            }
            (None, Combine::Fn(_)) => unreachable!("a fold function was compiled above"),
        };
        let values = visit(&self.w, &others, g.axes.len(), c.memos(), &[], walk)?;
        let ty = match s.combine {
            Combine::Builtin(m) => m.result(body_ty),
            Combine::Fn(_) => body_ty,
        };
        let mut store = self.store(s.body, s.target, s.axes.len());
        store.from = ty;
        self.put_lines(&store, s.along, &line, values);
        Ok(())
    }

    /// Values line by line into a tensor whose axis `along` they run over.
    fn put_lines(&mut self, store: &Store, along: usize, line: &Box_, values: Vec<Num>) {
        let mut t = Stored::zeros(self.w.graph, store.target);
        let inner: usize = t.dims[along + 1..].iter().product::<i64>() as usize;
        let n = line.len();
        for (k, v) in values.into_iter().enumerate() {
            let (row, p) = (k / n, k % n);
            let at = row / inner * inner * n + p * inner + row % inner;
            store.set(&mut t, at, v);
        }
        self.put(store.target, t);
    }

    fn sort(&mut self, s: &Sort) -> Result<(), RunFault> {
        let g = self.w.graph;
        let mut c = Compiler::new(g, self.facts, &s.axes);
        let key = c.code(s.key);
        let along = s.axes[s.along];
        let line = Box_::new(g, [along]);
        let others = Box_::new(g, s.axes.iter().copied().filter(|&a| a != along));
        let values = visit(&self.w, &others, g.axes.len(), c.memos(), &[], |w, env, out| {
            let mut keys = Vec::with_capacity(line.len());
            for p in 0..line.len() {
                line.enter(p, env);
                keys.push(key.run(w, env));
            }
            out.extend(order(&keys, line.lo[0]).into_iter().map(Num::I));
        })?;
        let dtype = g.tensor(s.target).dtype;
        let store = Store { target: s.target, from: Ty::I64, dtype, keep_wide: false, moved: 0.0 };
        self.put_lines(&store, s.along, &line, values);
        Ok(())
    }

    fn recur(&mut self, r: &Recur) -> Result<(), RunFault> {
        let g = self.w.graph;
        for d in &r.members {
            self.put(d.target, Stored::zeros(g, d.target));
        }
        let members: Vec<Member> =
            r.members.iter().enumerate().map(|(m, d)| Member::new(self, r, m, d)).collect();
        self.step(r, &members, &mut Vec::new())?;
        if let ([d], [step]) = (&r.members[..], &r.steps[..])
            && reassociates(g, d)
        {
            // In another order as many roundings meet in a value as a tree of the steps is high.
            let steps = g.tensor(d.target).dims[step.position[0]].max(1) as f64;
            self.cover(d.target, step);
            self.widen(d.target, 1.0 + steps.log2());
        }
        Ok(())
    }

    /// Where some steps of a line rounded, those that happened not to may round in another order.
    fn cover(&mut self, id: TensorId, step: &StepAxis) {
        let dims = &self.w.graph.tensor(id).dims;
        let (n, run) = (dims[step.position[0]], dims[step.position[0] + 1..].iter().product::<i64>());
        let u = num::precision(self.w.graph.tensor(id).dtype.compute()).u;
        let Some(t) = &mut self.w.tensors[id.0 as usize] else { return };
        let lines = if n == 0 || run == 0 { 0 } else { t.data.len() as i64 / n };
        for line in 0..lines {
            let at =
                |k: i64| (line / run * n + if step.descending { n - 1 - k } else { k }) * run + line % run;
            let rounded = |k: i64| matches!(t.data.get(at(k) as usize), Num::F(x) if x.e > 0.0);
            if !(0..n).any(rounded) {
                continue;
            }
            let mut top = 0f64;
            for k in 0..n {
                let Num::F(x) = t.data.get(at(k) as usize) else { return };
                top = top.max(if x.v.is_finite() { x.v.abs() } else { 0.0 });
                // Two terms have one order.
                if k > 1 && x.e == 0.0 && x.v.is_finite() {
                    t.data.set(at(k) as usize, Num::F(F { v: x.v, e: top * u }));
                }
            }
        }
    }

    /// Allows a tensor's values to err so many times as much.
    fn widen(&mut self, id: TensorId, times: f64) {
        let Some(t) = &mut self.w.tensors[id.0 as usize] else { return };
        for i in 0..t.data.len() {
            if let Num::F(x) = t.data.get(i)
                && x.e > 0.0
            {
                t.data.set(i, Num::F(F { v: x.v, e: x.e * times }));
            }
        }
    }

    /// The steps in lexicographic order; at each, the members in theirs.
    fn step(&mut self, r: &Recur, members: &[Member], at: &mut Vec<i64>) -> Result<(), RunFault> {
        let Some(axis) = r.steps.get(at.len()) else {
            return members.iter().try_for_each(|m| self.step_member(m, at));
        };
        let d = at.len();
        let lo = members.iter().map(|m| m.steps[d].1).min().unwrap_or(0);
        let hi = members.iter().map(|m| m.steps[d].2).max().unwrap_or(0);
        for k in 0..(hi - lo).max(0) {
            at.push(if axis.descending { hi - 1 - k } else { lo + k });
            self.step(r, members, at)?;
            at.pop();
        }
        Ok(())
    }

    fn step_member(&mut self, m: &Member, at: &[i64]) -> Result<(), RunFault> {
        if m.steps.iter().zip(at).any(|(s, &v)| v < s.1 || v >= s.2) {
            return Ok(());
        }
        let fixed: Vec<(AxisId, i64)> = m.steps.iter().zip(at).map(|(s, &v)| (s.0, v)).collect();
        let axes = self.w.graph.axes.len();
        let values =
            visit(&self.w, &m.rest, axes, m.memos, &fixed, |w, env, out: &mut Vec<(usize, Num)>| {
                let place =
                    m.axes.iter().zip(&m.place).map(|(&a, &(lo, s))| (env.axis(a) - lo) as usize * s).sum();
                out.push((place, m.code.run(w, env)));
            })?;
        let t = self.w.tensors[m.store.target.0 as usize].as_mut().expect("made before the steps");
        for (i, v) in values {
            m.store.set(t, i, v);
        }
        self.w.epoch += 1;
        Ok(())
    }

    fn update(&mut self, u: &Update) -> Result<(), RunFault> {
        let g = self.w.graph;
        let target = g.tensor(u.target);
        let mut t = Stored::zeros(g, u.target);
        let compute = target.dtype.compute();
        let monoid = match u.op {
            UpdateOp::Set => None,
            UpdateOp::Add => Some(Monoid::Sum),
            UpdateOp::Max => Some(Monoid::Max),
            UpdateOp::Min => Some(Monoid::Min),
        };
        match u.base {
            Base::Tensor(b) => t.data = self.w.tensor(b).data.clone(),
            Base::Unit => fill_unit(&mut t, monoid.unwrap_or(Monoid::Sum), target.dtype),
        }
        self.put(u.target, t.clone());
        let points = self.points(u, compute)?;
        let store = self.store(u.value, u.target, u.axes.len());
        if store.keep_wide {
            t.wide = Some(Box::new(t.data.clone()));
        }
        let store = Store { from: compute, moved: 0.0, ..store };
        match monoid {
            None => points.iter().for_each(|p| p.assign(&mut t, &store)),
            Some(m) => combine(&mut t, &store, m, matches!(u.base, Base::Tensor(_)), &points),
        }
        self.put(u.target, t);
        Ok(())
    }

    fn points(&self, u: &Update, compute: Ty) -> Result<Vec<Point>, RunFault> {
        let g = self.w.graph;
        let mut c = Compiler::new(g, self.facts, &u.axes);
        let cond = u.cond.map(|e| c.code(e));
        let place = Place::new(&mut c, u.target, &u.index);
        let code = c.code(u.value);
        let from = g.ty(u.value);
        // A plain assignment rounds once, from the value's own type.
        let to = if u.op == UpdateOp::Set { from } else { compute };
        let space = Box_::new(g, u.axes.iter().copied());
        let kind: fn(i64, i64) -> FaultKind = if u.proven {
            |lo, hi| FaultKind::Unproven { lo, hi }
        } else {
            |lo, hi| FaultKind::Write { lo, hi }
        };
        visit(&self.w, &space, g.axes.len(), c.memos(), &[], |w, env, out| {
            let taken = taken(cond.as_ref(), w, env);
            if taken.sure && !taken.v {
                return;
            }
            env.trying += !taken.sure as u32;
            let (places, sure) = match place.locate(w, env) {
                Located::At(i) => (Some(vec![i]), true),
                Located::Outside(d) => {
                    place.fault(w, env, d, u.span, kind);
                    (Some(Vec::new()), true)
                }
                Located::Open => (place.candidates(w, env).map(|c| c.0), false),
            };
            let value = num::convert(code.run(w, env), from, to);
            env.trying -= !taken.sure as u32;
            out.push(Point { places, value, from: to, sure: sure && taken.sure });
        })
    }
}

/// One point of an update: where it may write, and what.
struct Point {
    /// `None`: anywhere.
    places: Option<Vec<usize>>,
    value: Num,
    from: Ty,
    sure: bool,
}

impl Point {
    fn places(&self, n: usize) -> Vec<usize> {
        self.places.clone().unwrap_or_else(|| (0..n).collect())
    }

    fn assign(&self, t: &mut Stored, store: &Store) {
        for i in self.places(t.data.len()) {
            let old = t.data.get(i);
            let old_wide = t.wide.as_ref().map(|w| w.get(i));
            let new = Store { from: self.from, ..*store };
            new.set(t, i, self.value);
            if !self.sure {
                let v = t.data.get(i).either(old);
                t.data.set(i, v);
                if let (Some(w), Some(old)) = (&mut t.wide, old_wide) {
                    let v = w.get(i).either(old);
                    w.set(i, v);
                }
            }
        }
    }
}

/// `+=`, `max=`, `min=`: all points that meet in an element, combined in the compute type and rounded once.
fn combine(t: &mut Stored, store: &Store, monoid: Monoid, with_base: bool, points: &[Point]) {
    let mut sums: HashMap<usize, Acc> = HashMap::new();
    let n = t.data.len();
    for p in points {
        for i in p.places(n) {
            let acc = sums.entry(i).or_insert_with(|| {
                let mut acc = Acc::new(monoid, store.from, Default::default());
                if with_base {
                    acc.push(t.data.get(i), 0);
                }
                acc
            });
            if p.sure { acc.push(p.value, 0) } else { acc.push_open(p.value, 0) }
        }
    }
    for (i, acc) in sums {
        store.set(t, i, acc.result());
    }
}

/// Integers start at the dtype's least or greatest value, floats at the unit.
fn fill_unit(t: &mut Stored, monoid: Monoid, dtype: DType) {
    let unit = match monoid.unit(dtype.compute()) {
        Value::I32(v) => Value::I64(match monoid {
            Monoid::Sum => 0,
            _ if v > 0 => i64::MAX,
            _ => i64::MIN,
        }),
        v => v,
    };
    let n = num::round(number(unit), unit.ty(), dtype);
    for i in 0..t.data.len() {
        t.data.set(i, n);
    }
}

fn taken(cond: Option<&Code>, w: &World, env: &mut Env) -> B {
    match cond.map(|c| c.run(w, env)) {
        None => B::exact(true),
        Some(Num::B(b)) => b,
        Some(n) => unreachable!("a condition is bool, not {n:?}: the verifier lets no other through"),
    }
}

impl Store {
    fn set(&self, t: &mut Stored, i: usize, v: Num) {
        let mut r = num::round(v, self.from, self.dtype);
        if let (true, Num::F(a), Num::F(x)) = (self.moved > 0.0, v, &mut r)
            && x.v.is_finite()
        {
            let tiny = 2f64.powi(self.dtype.row().min_exponent - self.dtype.row().mantissa as i32);
            let e = (x.v - a.v).abs() + a.v.abs() * self.moved * 1.01 + a.e + tiny;
            *x = F { v: x.v, e: if a.v == 0.0 && a.e == 0.0 { 0.0 } else { x.e.max(e) } };
        }
        t.data.set(i, r);
        if self.keep_wide {
            let n = t.data.len();
            let wide = t.wide.get_or_insert_with(|| Box::new(super::world::Data::zeros(DType::F64, n)));
            wide.set(i, v);
        }
    }
}

#[allow(clippy::too_many_arguments)]
fn scan_fn(
    w: &World,
    env: &mut Env,
    line: &Box_,
    cond: Option<&Code>,
    body: &Code,
    f: &Code,
    unit: &Code,
    out: &mut Vec<Num>,
) {
    let mut acc: Option<Num> = None;
    for p in 0..line.len() {
        line.enter(p, env);
        let taken = taken(cond, w, env);
        if taken.v || !taken.sure {
            let x = body.run(w, env);
            let next = match acc {
                None => x,
                Some(a) => apply(f, a, x, w, env),
            };
            acc = Some(if taken.sure { next } else { any(next) });
        }
        let now = match acc {
            Some(a) => slack(a),
            None => unit.run(w, env),
        };
        out.push(now);
    }
}

/// May the steps of a recurrence be taken in another order: `prev ⊕ e` and `a * prev + e` on a state of a compute type?
fn reassociates(g: &Graph, d: &Define) -> bool {
    let dtype = g.tensor(d.target).dtype;
    dtype == dtype.compute().stored() && dtype.is_float() && is_step(g, d.target, d.value)
}

fn is_step(g: &Graph, state: TensorId, e: ExprId) -> bool {
    let with = |e: &ExprId| reads_state(g, state, *e);
    match g.expr(e) {
        Expr::Read(r) => r.tensor == state,
        Expr::Select(c, a, b) => !with(c) && [a, b].into_iter().all(|x| !with(x) || is_step(g, state, *x)),
        Expr::Call(
            Func::Add | Func::Sub | Func::Mul | Func::Neg | Func::Fma | Func::Max | Func::Min,
            args,
        ) => {
            let states: Vec<&ExprId> = args.iter().filter(|a| with(a)).collect();
            states.len() == 1 && is_step(g, state, *states[0])
        }
        _ => false,
    }
}

fn reads_state(g: &Graph, state: TensorId, e: ExprId) -> bool {
    let mut seen = std::collections::HashSet::new();
    let mut work = vec![e];
    while let Some(e) = work.pop() {
        if matches!(g.expr(e), Expr::Read(r) if r.tensor == state) {
            return true;
        }
        work.extend(g.children(e).into_iter().filter(|c| seen.insert(*c)));
    }
    false
}

/// A member of a recurrence, compiled.
struct Member {
    code: Code,
    memos: usize,
    store: Store,
    axes: Vec<AxisId>,
    /// For each axis: the first index and the stride of its dim.
    place: Vec<(i64, usize)>,
    /// Step axes with their ranges.
    steps: Vec<(AxisId, i64, i64)>,
    /// The other axes.
    rest: Box_,
}

impl Member {
    fn new(m: &Machine, r: &Recur, which: usize, d: &Define) -> Member {
        let g = m.w.graph;
        let positions: Vec<usize> = r.steps.iter().map(|s| s.position[which]).collect();
        let steps = positions.iter().map(|&p| {
            let (lo, hi) =
                g.axis_range(d.axes[p]).expect("statement axes have literal ranges (graph invariant)");
            (d.axes[p], lo, hi)
        });
        let rest: Vec<AxisId> =
            (0..d.axes.len()).filter(|p| !positions.contains(p)).map(|p| d.axes[p]).collect();
        // Outermost first: the steps, then the rest.
        let context: Vec<AxisId> = positions.iter().map(|&p| d.axes[p]).chain(rest.iter().copied()).collect();
        let mut c = Compiler::new(g, m.facts, &context);
        let code = c.code(d.value);
        let t = m.w.tensor(d.target);
        let place = t.lo.iter().copied().zip(t.strides.iter().copied()).collect();
        let store = m.store(d.value, d.target, d.axes.len());
        let steps = steps.collect();
        Member { code, memos: c.memos(), store, axes: d.axes.clone(), place, steps, rest: Box_::new(g, rest) }
    }
}

/// Positions in ascending order of key: stable, NaN last. Keys that their bounds cannot tell apart admit each other's
/// positions.
fn order(keys: &[Num], lo: i64) -> Vec<I> {
    let mut index: Vec<usize> = (0..keys.len()).collect();
    index.sort_by(|&a, &b| match (keys[a], keys[b]) {
        (Num::F(a), Num::F(b)) => {
            a.v.is_nan().cmp(&b.v.is_nan()).then(a.v.partial_cmp(&b.v).unwrap_or(std::cmp::Ordering::Equal))
        }
        (Num::I(a), Num::I(b)) => a.v.cmp(&b.v),
        (Num::B(a), Num::B(b)) => a.v.cmp(&b.v),
        _ => std::cmp::Ordering::Equal,
    });
    let value = |i: usize| lo + index[i] as i64;
    let mut out: Vec<I> = (0..index.len()).map(|i| I::exact(value(i))).collect();
    if keys.iter().any(nothing_known) {
        return out.into_iter().map(|i| I::any(i.v)).collect();
    }
    let mut start = 0;
    // The highest end of an interval so far: a run goes on while a key's lower end does not pass it.
    let mut top = f64::NEG_INFINITY;
    // Keys of a run that are all equal were computed alike from equal operands, and tie.
    let (mut open, mut alike) = (false, true);
    for i in 0..=index.len() {
        let span = index.get(i).map(|&k| ends(keys[k]));
        let goes_on = span.is_some_and(|(low, _, e)| i > start && low <= top && (e > 0.0 || open));
        if !goes_on {
            if open && !alike {
                let all = (start..i).map(value);
                let (least, most) = all.fold((i64::MAX, i64::MIN), |(a, b), v| (a.min(v), b.max(v)));
                (start..i).for_each(|p| out[p] = I::hull(value(p), least, most));
            }
            (start, top, open, alike) = (i, f64::NEG_INFINITY, false, true);
        }
        if let Some((_, high, e)) = span {
            alike &= span == index.get(start).map(|&k| ends(keys[k]));
            top = top.max(high);
            open |= e > 0.0;
        }
    }
    out
}

fn nothing_known(n: &Num) -> bool {
    match n {
        Num::F(x) => x.e == f64::INFINITY,
        Num::I(x) => x.e == num::ANY,
        Num::B(x) => !x.sure,
    }
}

/// Lower end, upper end, bound.
fn ends(n: Num) -> (f64, f64, f64) {
    match n {
        Num::F(x) => (x.v - x.e, x.v + x.e, x.e),
        Num::I(x) => ((x.v - x.e) as f64, (x.v + x.e) as f64, x.e as f64),
        Num::B(x) => (x.v as i64 as f64, x.v as i64 as f64, 0.0),
    }
}
