//! Folds: loops over axes into an accumulator.

use super::acc::{Acc, Sum};
use super::compile::{Code, Compiler};
use super::num::{self, B, F, I, Num, Precision};
use super::read::{Index, Place, any};
use super::world::{Data, Env, World};
use crate::ir::graph::{Access, AxisId, Combine, Expr, ExprId, Fold, Read};
use crate::vocab::dtype::Ty;
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;

/// Axes with their ranges, and the condition.
pub struct Space {
    pub axes: Vec<(AxisId, Index, Index)>,
    pub cond: Option<Code>,
}

impl Space {
    /// Binds the axes in the compiler's context: the caller unbinds them.
    pub fn new(c: &mut Compiler, axes: &[AxisId], cond: Option<ExprId>) -> Space {
        let mut ranges = Vec::new();
        for &a in axes {
            let (lo, hi) = (c.g.axis(a).lo, c.g.axis(a).hi);
            ranges.push((a, Index::new(c, lo), Index::new(c, hi)));
            c.context.push(a);
        }
        Space { axes: ranges, cond: cond.map(|e| c.code(e)) }
    }

    /// Visits the points in order; `false` from `visit` ends. The third argument says that the point is surely taken.
    /// Gives false if a range itself is open.
    pub fn walk(&self, w: &World, env: &mut Env, visit: &mut dyn FnMut(&World, &mut Env, bool)) -> bool {
        self.level(0, w, env, visit)
    }

    fn level(
        &self,
        d: usize,
        w: &World,
        env: &mut Env,
        visit: &mut dyn FnMut(&World, &mut Env, bool),
    ) -> bool {
        let Some((axis, lo, hi)) = self.axes.get(d) else {
            self.point(w, env, visit);
            return true;
        };
        let (lo, hi) = (lo.value(w, env), hi.value(w, env));
        let mut known = lo.e == 0 && hi.e == 0;
        for i in lo.v..hi.v {
            env.axes[axis.0 as usize] = i;
            known &= self.level(d + 1, w, env, visit);
        }
        known
    }

    #[inline]
    fn point(&self, w: &World, env: &mut Env, visit: &mut dyn FnMut(&World, &mut Env, bool)) {
        let taken = match &self.cond {
            None => B::exact(true),
            Some(c) => truth(c.run(w, env)),
        };
        if taken.sure {
            if taken.v {
                visit(w, env, true);
            }
        } else {
            env.trying += 1;
            visit(w, env, false);
            env.trying -= 1;
        }
    }
}

fn truth(n: Num) -> B {
    match n {
        Num::B(b) => b,
        n => unreachable!("a condition is bool, not {n:?}: the verifier lets no other through"),
    }
}

/// A fold as a value.
pub fn code(c: &mut Compiler, f: &Fold, id: ExprId) -> Code {
    let depth = c.context.len();
    let space = Space::new(c, &f.axes, f.cond);
    let body_ty = c.g.ty(f.body);
    let dot = dot(c, f, body_ty);
    let body = match f.combine {
        Combine::Builtin(Monoid::Sum) => c.addend(f.body),
        _ => c.code(f.body),
    };
    c.context.truncate(depth);
    let ty = c.g.ty(id);
    let last = *f.axes.last().expect("a fold binds an axis");
    match f.combine {
        Combine::Builtin(monoid) => {
            let law = if monoid == Monoid::Sum { c.sum_law(f.body) } else { Default::default() };
            Code::of(ty, move |w, env| {
                if let Some(dot) = &dot
                    && let Some(sum) = dot.run(w, env)
                {
                    return Num::F(sum.result(&dot.precision, law));
                }
                let mut acc = Acc::new(monoid, body_ty, law);
                let known = space.walk(w, env, &mut |w, env, sure| {
                    let x = body.run(w, env);
                    let at = env.axis(last);
                    if sure { acc.push(x, at) } else { acc.push_open(x, at) }
                });
                if known { acc.result() } else { any(acc.result()) }
            })
        }
        Combine::Fn(function) => {
            let (combine, unit) = c.fold_fn(function);
            Code::of(ty, move |w, env| {
                let mut acc: Option<Num> = None;
                let mut all = true;
                let known = space.walk(w, env, &mut |w, env, sure| {
                    let x = body.run(w, env);
                    all &= sure;
                    acc = Some(match acc {
                        None => x,
                        Some(a) => apply(&combine, a, x, w, env),
                    });
                });
                let out = acc.unwrap_or_else(|| unit.run(w, env));
                if known && all { slack(out) } else { any(out) }
            })
        }
    }
}

/// A fold function of two values.
pub fn apply(combine: &Code, a: Num, b: Num, w: &World, env: &mut Env) -> Num {
    let outer = std::mem::replace(&mut env.params, [a, b]);
    let out = combine.run(w, env);
    env.params = outer;
    out
}

/// Another order of combination may err as much again.
pub fn slack(n: Num) -> Num {
    match n {
        Num::F(x) => Num::F(F { v: x.v, e: 2.0 * x.e }),
        n => n,
    }
}

/// A sum of products (or of single reads) whose indices are affine: the usual inner loop, run on slices.
struct Dot {
    precision: Precision,
    /// Outer axes of the fold, and the inner one.
    outer: Vec<(AxisId, Index, Index)>,
    inner: (AxisId, Index, Index),
    a: Place,
    b: Place,
}

/// A place along the inner axis: first element and step.
struct Run<'a> {
    v: &'a [f64],
    at: i64,
    step: i64,
}

fn dot(c: &mut Compiler, f: &Fold, ty: Ty) -> Option<Dot> {
    if f.combine != Combine::Builtin(Monoid::Sum) || f.cond.is_some() || !ty.is_float() {
        return None;
    }
    let Expr::Call(Func::Mul, args) = c.g.expr(f.body) else { return None };
    if c.weight(args).is_some() {
        return None;
    }
    let (a, b) = (plain(c, args[0])?, plain(c, args[1])?);
    let mut ranges: Vec<(AxisId, Index, Index)> = Vec::new();
    for &axis in &f.axes {
        let (lo, hi) = (c.g.axis(axis).lo, c.g.axis(axis).hi);
        ranges.push((axis, Index::new(c, lo), Index::new(c, hi)));
    }
    let inner = ranges.pop()?;
    Some(Dot { precision: num::precision(ty), outer: ranges, inner, a, b })
}

/// A proven read with affine indices.
fn plain(c: &mut Compiler, id: ExprId) -> Option<Place> {
    let Expr::Read(Read { tensor, index, access: Access::Proven }) = c.g.expr(id) else { return None };
    let place = Place::new(c, *tensor, index);
    place.index.iter().all(|i| matches!(i, Index::Affine(..))).then_some(place)
}

impl Dot {
    /// `None` where it does not apply: the plain loop says why.
    fn run(&self, w: &World, env: &mut Env) -> Option<Sum> {
        let mut sum = Sum::default();
        self.level(0, w, env, &mut sum)?;
        Some(sum)
    }

    fn level(&self, d: usize, w: &World, env: &mut Env, sum: &mut Sum) -> Option<()> {
        let Some((axis, lo, hi)) = self.outer.get(d) else { return self.line(w, env, sum) };
        let (lo, hi) = (lo.value(w, env), hi.value(w, env));
        if lo.e != 0 || hi.e != 0 {
            return None;
        }
        for i in lo.v..hi.v {
            env.axes[axis.0 as usize] = i;
            self.level(d + 1, w, env, sum)?;
        }
        Some(())
    }

    fn line(&self, w: &World, env: &mut Env, sum: &mut Sum) -> Option<()> {
        let (axis, lo, hi) = &self.inner;
        let (lo, hi): (I, I) = (lo.value(w, env), hi.value(w, env));
        if lo.e != 0 || hi.e != 0 {
            return None;
        }
        if hi.v <= lo.v {
            return Some(());
        }
        let a = run(&self.a, *axis, lo.v, hi.v, w, env)?;
        let b = run(&self.b, *axis, lo.v, hi.v, w, env)?;
        for k in 0..hi.v - lo.v {
            let (x, y) = (a.v[(a.at + k * a.step) as usize], b.v[(b.at + k * b.step) as usize]);
            sum.push_product(x, y, &self.precision);
        }
        Some(())
    }
}

/// Both ends of the line are in bounds, and the tensor is exact.
fn run<'a>(p: &Place, axis: AxisId, lo: i64, hi: i64, w: &'a World, env: &mut Env) -> Option<Run<'a>> {
    let t = w.tensor(p.tensor);
    let Data::F { v, e: None } = &t.data else { return None };
    let (mut at, mut step) = (0, 0);
    for (d, index) in p.index.iter().enumerate() {
        env.axes[axis.0 as usize] = lo;
        let first = index.value(w, env).v - t.lo[d];
        env.axes[axis.0 as usize] = hi - 1;
        let end = index.value(w, env).v - t.lo[d];
        if first.min(end) < 0 || first.max(end) >= t.dims[d] {
            return None;
        }
        at += first * t.strides[d] as i64;
        if hi - lo > 1 {
            step += (end - first) / (hi - 1 - lo) * t.strides[d] as i64;
        }
    }
    Some(Run { v, at, step })
}
