//! Reads: indices to places, with what happens outside.

use super::compile::{Code, Compiler};
use super::num::{B, F, I, Num};
use super::world::{Env, FaultKind, RunFault, Stored, World};
use crate::ir::graph::{Access, AxisId, Expr, ExprId, Graph, Read, TensorId};
use crate::vocab::dtype::{Ty, Value};
use crate::vocab::func::Func;
use girih_dsl::ast::Span;

/// An index: affine in axes, or any expression.
pub enum Index {
    Affine(i64, Vec<(AxisId, i64)>),
    Code(Box<dyn Fn(&World, &mut Env) -> I + Send + Sync>),
}

/// Indices into one tensor.
pub struct Place {
    pub tensor: TensorId,
    pub index: Vec<Index>,
}

/// Where indices lead.
pub enum Located {
    At(usize),
    /// The first dim that is outside.
    Outside(usize),
    /// Some index is open.
    Open,
}

/// `c + Σ k·axis`, if the expression is that.
pub fn affine(g: &Graph, id: ExprId) -> Option<(i64, Vec<(AxisId, i64)>)> {
    match g.expr(id) {
        Expr::Lit(Value::I64(v)) => Some((*v, Vec::new())),
        Expr::Axis(a) => Some((0, vec![(*a, 1)])),
        Expr::Call(Func::Add, args) => combine(g, args, 1),
        Expr::Call(Func::Sub, args) => combine(g, args, -1),
        Expr::Call(Func::Neg, args) => scale(affine(g, args[0])?, -1),
        Expr::Call(Func::Mul, args) => {
            let (a, b) = (affine(g, args[0])?, affine(g, args[1])?);
            match (a.1.is_empty(), b.1.is_empty()) {
                (true, _) => scale(b, a.0),
                (_, true) => scale(a, b.0),
                _ => None,
            }
        }
        _ => None,
    }
}

fn scale(a: (i64, Vec<(AxisId, i64)>), k: i64) -> Option<(i64, Vec<(AxisId, i64)>)> {
    let terms: Option<Vec<_>> = a.1.into_iter().map(|(x, c)| Some((x, c.checked_mul(k)?))).collect();
    Some((a.0.checked_mul(k)?, terms?))
}

fn combine(g: &Graph, args: &[ExprId], sign: i64) -> Option<(i64, Vec<(AxisId, i64)>)> {
    let mut a = affine(g, args[0])?;
    let b = scale(affine(g, args[1])?, sign)?;
    a.0 = a.0.checked_add(b.0)?;
    for (x, k) in b.1 {
        match a.1.iter_mut().find(|t| t.0 == x) {
            Some(t) => t.1 = t.1.checked_add(k)?,
            None => a.1.push((x, k)),
        }
    }
    Some(a)
}

impl Index {
    pub fn new(c: &mut Compiler, id: ExprId) -> Index {
        match affine(c.g, id) {
            Some((k, terms)) => Index::Affine(k, terms),
            None => Index::Code(c.code(id).int()),
        }
    }

    #[inline]
    pub fn value(&self, w: &World, env: &mut Env) -> I {
        match self {
            Index::Affine(k, terms) => {
                I::exact(terms.iter().fold(*k, |sum, &(a, c)| sum.wrapping_add(c.wrapping_mul(env.axis(a)))))
            }
            Index::Code(f) => f(w, env),
        }
    }
}

impl Place {
    pub fn new(c: &mut Compiler, tensor: TensorId, index: &[ExprId]) -> Place {
        Place { tensor, index: index.iter().map(|&i| Index::new(c, i)).collect() }
    }

    #[inline]
    pub fn locate(&self, w: &World, env: &mut Env) -> Located {
        let t = w.tensor(self.tensor);
        let mut at = 0;
        for (d, index) in self.index.iter().enumerate() {
            let i = index.value(w, env);
            if i.e != 0 {
                return Located::Open;
            }
            let k = i.v.wrapping_sub(t.lo[d]);
            if k < 0 || k >= t.dims[d] {
                return Located::Outside(d);
            }
            at += k as usize * t.strides[d];
        }
        Located::At(at)
    }

    pub fn values(&self, w: &World, env: &mut Env) -> Vec<I> {
        self.index.iter().map(|i| i.value(w, env)).collect()
    }

    /// Reports that dim `d` is outside.
    pub fn fault(&self, w: &World, env: &mut Env, d: usize, span: Span, kind: fn(i64, i64) -> FaultKind) {
        let index: Vec<i64> = self.values(w, env).iter().map(|i| i.v).collect();
        let (t, stored) = (w.graph.tensor(self.tensor), w.tensor(self.tensor));
        let kind = kind(stored.lo[d], stored.lo[d] + stored.dims[d]);
        let value = index[d];
        env.report(|| RunFault { kind, tensor: t.name.clone(), dim: d, index, value, span });
    }

    /// Every place that open indices admit, if they are few; `false` beside them if one may be outside.
    pub fn candidates(&self, w: &World, env: &mut Env) -> Option<(Vec<usize>, bool)> {
        let t = w.tensor(self.tensor);
        let mut places = vec![0usize];
        let mut inside = true;
        for (d, i) in self.values(w, env).into_iter().enumerate() {
            let mut next = Vec::new();
            for k in i.candidates()? {
                let k = k.wrapping_sub(t.lo[d]);
                if k < 0 || k >= t.dims[d] {
                    inside = false;
                } else {
                    next.extend(places.iter().map(|p| p + k as usize * t.strides[d]));
                }
            }
            if next.len() > 256 {
                return None;
            }
            places = next;
        }
        Some((places, inside))
    }
}

/// What a read outside gives: NaN, 0, false.
fn outside(ty: Ty) -> Num {
    match ty {
        Ty::Bool => Num::B(B::exact(false)),
        Ty::I32 | Ty::I64 => Num::I(I::exact(0)),
        Ty::F32 | Ty::F64 => Num::F(F::exact(f64::NAN)),
    }
}

/// Of which nothing is known.
pub fn any(n: Num) -> Num {
    match n {
        Num::F(x) => Num::F(F::any(x.v)),
        Num::I(x) => Num::I(I::any(x.v)),
        Num::B(x) => Num::B(B { v: x.v, sure: false }),
    }
}

/// The value where an index is open: any of the few it may be, or anything.
fn open(place: &Place, w: &World, env: &mut Env, t: &Stored, default: Option<&Code>, ty: Ty) -> Num {
    let found = place.candidates(w, env);
    let default = default.map(|d| {
        env.trying += 1;
        let v = d.run(w, env);
        env.trying -= 1;
        v
    });
    let Some((places, inside)) = found else { return any(outside(ty)) };
    let mut values = places.iter().map(|&p| t.data.get(p));
    let Some(first) = values.next() else { return default.unwrap_or(any(outside(ty))) };
    let out = values.fold(first, Num::either);
    match (inside, default) {
        (true, _) => out,
        (false, Some(d)) => out.either(d),
        (false, None) => any(out),
    }
}

/// A read of a tensor.
pub fn code(c: &mut Compiler, r: &Read, id: ExprId) -> Code {
    let (ty, span) = (c.g.ty(id), c.g.span(id));
    let place = Place::new(c, r.tensor, &r.index);
    let default = match r.access {
        Access::Else(d) => Some(c.code(d)),
        _ => None,
    };
    let kind: fn(i64, i64) -> FaultKind = match r.access {
        Access::Proven => |lo, hi| FaultKind::Unproven { lo, hi },
        _ => |lo, hi| FaultKind::Read { lo, hi },
    };
    Code::of(ty, move |w, env| {
        let t = w.tensor(place.tensor);
        match (place.locate(w, env), &default) {
            (Located::At(i), _) => t.data.get(i),
            (Located::Outside(_), Some(d)) => d.run(w, env),
            (Located::Outside(d), None) if env.trying == 0 => {
                place.fault(w, env, d, span, kind);
                outside(ty)
            }
            (Located::Outside(_), None) => any(outside(ty)),
            (Located::Open, d) => open(&place, w, env, t, d.as_ref(), ty),
        }
    })
}
