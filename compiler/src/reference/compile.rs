//! Expressions to closures: each expression is compiled once and then evaluated at many points.

use super::acc::SumLaw;
use super::facts::Facts;
use super::fold;
use super::num::{self, B, F, I, Num};
use super::read;
use super::world::{Env, World};
use crate::ir::graph::{AxisId, Expr, ExprId, FoldFnId, Graph};
use crate::vocab::dtype::{DType, Ty, Value};
use crate::vocab::func::{Func, Meaning};
use crate::vocab::{meaning, random};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

type Eval<T> = Box<dyn Fn(&World, &mut Env) -> T + Send + Sync>;

/// A compiled expression, by its type.
pub enum Code {
    F(Eval<F>),
    I(Eval<I>),
    B(Eval<B>),
}

impl Code {
    #[inline]
    pub fn run(&self, w: &World, env: &mut Env) -> Num {
        match self {
            Code::F(f) => Num::F(f(w, env)),
            Code::I(f) => Num::I(f(w, env)),
            Code::B(f) => Num::B(f(w, env)),
        }
    }

    pub fn float(self) -> Eval<F> {
        match self {
            Code::F(f) => f,
            _ => unreachable!("the verifier lets no other type stand here"),
        }
    }

    pub fn int(self) -> Eval<I> {
        match self {
            Code::I(f) => f,
            _ => unreachable!("the verifier lets no other type stand here"),
        }
    }

    pub fn truth(self) -> Eval<B> {
        match self {
            Code::B(f) => f,
            _ => unreachable!("the verifier lets no other type stand here"),
        }
    }

    /// From a function that gives a value of this type.
    pub fn of(ty: Ty, f: impl Fn(&World, &mut Env) -> Num + Send + Sync + 'static) -> Code {
        const TYPE: &str = "the type of an expression is that of its node";
        match ty {
            Ty::Bool => Code::B(Box::new(move |w, env| match f(w, env) {
                Num::B(x) => x,
                x => unreachable!("{TYPE}: {x:?}"),
            })),
            Ty::I32 | Ty::I64 => Code::I(Box::new(move |w, env| match f(w, env) {
                Num::I(x) => x,
                x => unreachable!("{TYPE}: {x:?}"),
            })),
            Ty::F32 | Ty::F64 => Code::F(Box::new(move |w, env| match f(w, env) {
                Num::F(x) => x,
                x => unreachable!("{TYPE}: {x:?}"),
            })),
        }
    }
}

/// A literal or scalar as a number.
pub fn number(v: Value) -> Num {
    match v {
        Value::Bool(b) => Num::B(B::exact(b)),
        Value::I32(_) | Value::I64(_) => Num::I(I::exact(crate::host::as_i64(v))),
        Value::F32(_) | Value::F64(_) => Num::F(F::exact(crate::host::as_f64(v))),
    }
}

pub struct Compiler<'a> {
    pub g: &'a Graph,
    pub facts: &'a Facts,
    /// Axes bound around the expression, outermost first.
    pub context: Vec<AxisId>,
    /// How many of them are the statement's own.
    points: usize,
    /// The memory of each expression that has one.
    slots: HashMap<ExprId, usize>,
    /// Compiled expressions that are used more than once, with what was bound around them.
    shared: HashMap<(ExprId, Vec<AxisId>), Arc<Code>>,
}

/// Below this many operations remembering costs more than it saves.
const WORTH_REMEMBERING: f64 = 12.0;
/// Values kept of one expression.
const MOST_REMEMBERED: usize = 1 << 20;

impl<'a> Compiler<'a> {
    pub fn new(g: &'a Graph, facts: &'a Facts, context: &[AxisId]) -> Compiler<'a> {
        Compiler {
            g,
            facts,
            context: context.to_vec(),
            points: context.len(),
            slots: HashMap::new(),
            shared: HashMap::new(),
        }
    }

    /// How many memories its code wants.
    pub fn memos(&self) -> usize {
        self.slots.len()
    }

    pub fn code(&mut self, id: ExprId) -> Code {
        let i = id.0 as usize;
        let leaf = matches!(self.g.expr(id), Expr::Lit(_) | Expr::Axis(_) | Expr::Param(_) | Expr::Scalar(_));
        if leaf || self.facts.uses[i] < 2 {
            return self.fresh(id);
        }
        let key = (id, self.context.clone());
        let shared = match self.shared.get(&key) {
            Some(code) => code.clone(),
            None => {
                let code = Arc::new(self.fresh(id));
                self.shared.insert(key, code.clone());
                code
            }
        };
        Code::of(self.g.ty(id), move |w, env| shared.run(w, env))
    }

    /// Compiles an expression, with a memory where it is worth one.
    fn fresh(&mut self, id: ExprId) -> Code {
        let code = self.node(id);
        let i = id.0 as usize;
        let fold = matches!(self.g.expr(id), Expr::Fold(_));
        let invariant = fold && self.facts.axes[i].len() < self.context.len();
        let shared = self.facts.uses[i] > 1 && !matches!(self.g.expr(id), Expr::Read(_));
        if self.facts.params[i] || !(invariant || shared) || self.facts.cost[i] < WORTH_REMEMBERING {
            return code;
        }
        self.remember(id, code)
    }

    /// Keeps the last value, or all of them where the axes it depends on are not the outermost.
    fn remember(&mut self, id: ExprId, code: Code) -> Code {
        let free: Vec<AxisId> = self.facts.axes[id.0 as usize].iter().copied().collect();
        let outer: BTreeSet<AxisId> = self.context.iter().take(free.len()).copied().collect();
        let all = free.len() < self.context.len() && !free.iter().all(|a| outer.contains(a));
        let epoch = self.facts.members[id.0 as usize];
        // One memory for all the places where it stands: what it depends on is the same in all.
        let next = self.slots.len();
        let slot = *self.slots.entry(id).or_insert(next);
        Code::of(self.g.ty(id), move |w, env| {
            let mut key = std::mem::take(&mut env.key);
            key.clear();
            key.extend(free.iter().map(|&a| env.axis(a)));
            if epoch {
                key.push(w.epoch as i64);
            }
            if let Some((k, v)) = &env.memo[slot].last
                && *k == key
            {
                let v = *v;
                env.key = key;
                return v;
            }
            if all && let Some(&v) = env.memo[slot].all.get(&key) {
                env.key = key;
                return v;
            }
            let v = code.run(w, env);
            if env.trying == 0 {
                if all {
                    if env.memo[slot].all.len() > MOST_REMEMBERED {
                        env.memo[slot].all.clear();
                    }
                    env.memo[slot].all.insert(key.clone(), v);
                }
                env.memo[slot].last = Some((key, v));
            }
            v
        })
    }

    fn node(&mut self, id: ExprId) -> Code {
        let g = self.g;
        let ty = g.ty(id);
        match g.expr(id) {
            Expr::Lit(v) => constant(number(*v)),
            Expr::Axis(a) => {
                let a = *a;
                Code::I(Box::new(move |_, env| I::exact(env.axis(a))))
            }
            Expr::Scalar(s) => {
                let s = s.0 as usize;
                Code::of(ty, move |w, _| number(w.scalars[s]))
            }
            Expr::Param(n) => {
                let n = *n as usize;
                Code::of(ty, move |_, env| env.params[n])
            }
            Expr::Read(r) => read::code(self, r, id),
            Expr::Call(func, args) => self.call(id, *func, args),
            Expr::Cast(a) => self.cast(*a, ty),
            Expr::Round(dtype, _, a) => self.round(*dtype, *a),
            Expr::Select(c, a, b) => self.select(*c, *a, *b),
            Expr::Fold(f) => fold::code(self, f, id),
        }
    }

    fn select(&mut self, c: ExprId, a: ExprId, b: ExprId) -> Code {
        let ty = self.g.ty(a);
        let c = self.code(c).truth();
        let (a, b) = (self.code(a), self.code(b));
        Code::of(ty, move |w, env| {
            let c = c(w, env);
            let (yes, no) = if c.v { (&a, &b) } else { (&b, &a) };
            if c.sure {
                return yes.run(w, env);
            }
            env.trying += 1;
            let out = yes.run(w, env).either(no.run(w, env));
            env.trying -= 1;
            out
        })
    }

    fn cast(&mut self, a: ExprId, ty: Ty) -> Code {
        let from = self.g.ty(a);
        let code = self.code(a);
        convert(code, from, ty)
    }

    fn round(&mut self, dtype: DType, a: ExprId) -> Code {
        // From a wider type it rounds once.
        let from = self.g.ty(a);
        let code = self.code(a);
        round(code, from, dtype)
    }

    fn call(&mut self, id: ExprId, func: Func, args: &[ExprId]) -> Code {
        let ty = self.g.ty(args[0]);
        match ty {
            _ if func == Func::Ldexp => {
                let p = num::precision(ty);
                let (a, k) = (self.code(args[0]).float(), self.code(args[1]).int());
                Code::F(Box::new(move |w, env| p.ldexp(a(w, env), k(w, env))))
            }
            Ty::F32 | Ty::F64 => self.float_call(id, func, args),
            Ty::I32 | Ty::I64 => self.int_call(func, args, ty),
            Ty::Bool => self.bool_call(func, args),
        }
    }

    fn float_call(&mut self, id: ExprId, func: Func, args: &[ExprId]) -> Code {
        let ty = self.g.ty(args[0]);
        let p = num::precision(ty);
        let row = func.row();
        let relaxed = self.facts.narrow[id.0 as usize] && ty == Ty::F32;
        if let Meaning::Float1(f) = row.meaning {
            let a = self.code(args[0]).float();
            return Code::F(Box::new(move |w, env| p.call1(row, f, a(w, env), relaxed)));
        }
        if let Meaning::Float2(f) = row.meaning {
            let (a, b) = (self.code(args[0]).float(), self.code(args[1]).float());
            return Code::F(Box::new(move |w, env| p.call2(row, f, a(w, env), b(w, env), relaxed)));
        }
        if args.len() == 1 {
            return self.float_unary(func, args[0]);
        }
        let wide = args.iter().any(|&a| self.is_sum(a) || self.facts.members[a.0 as usize]);
        let units = if self.common(args[1]) { 3.0 } else { 1.0 };
        let relative = if relaxed { 1.0 / 32768.0 } else { 0.0 };
        let summed = matches!(func, Func::Add | Func::Sub);
        let mut operand = |e: ExprId| if summed { self.addend(e) } else { self.code(e) }.float();
        let (a, b) = (operand(args[0]), operand(args[1]));
        match func {
            Func::Add => Code::F(Box::new(move |w, env| p.add(a(w, env), b(w, env), wide))),
            Func::Sub => Code::F(Box::new(move |w, env| {
                let (a, b) = (a(w, env), b(w, env));
                p.add(a, F { v: -b.v, e: b.e }, wide)
            })),
            Func::Mul => {
                let weight = self.weight(args);
                Code::F(Box::new(move |w, env| {
                    let (a, b) = (a(w, env), b(w, env));
                    if leaves_out(w, weight, a, b) { F::exact(0.0) } else { p.mul(a, b) }
                }))
            }
            Func::Div => Code::F(Box::new(move |w, env| p.div(a(w, env), b(w, env), units, relative))),
            Func::Rem => Code::F(Box::new(move |w, env| p.rem(a(w, env), b(w, env)))),
            Func::Max => Code::F(Box::new(move |w, env| num::pick(a(w, env), b(w, env), true))),
            Func::Min => Code::F(Box::new(move |w, env| num::pick(a(w, env), b(w, env), false))),
            Func::Copysign => Code::F(Box::new(move |w, env| num::copysign(a(w, env), b(w, env)))),
            Func::Fma => {
                let c = self.code(args[2]).float();
                Code::F(Box::new(move |w, env| p.fma(a(w, env), b(w, env), c(w, env))))
            }
            _ => Code::B(Box::new(move |w, env| num::compare(func, a(w, env), b(w, env)))),
        }
    }

    /// What is added up: a product is perhaps not rounded before.
    pub fn addend(&mut self, id: ExprId) -> Code {
        let Expr::Call(Func::Mul, args) = self.g.expr(id) else { return self.code(id) };
        if self.g.ty(id) != Ty::F32 {
            return self.code(id);
        }
        let args = args.clone();
        let weight = self.weight(&args);
        let (a, b) = (self.code(args[0]).float(), self.code(args[1]).float());
        Code::F(Box::new(move |w, env| {
            let (a, b) = (a(w, env), b(w, env));
            if leaves_out(w, weight, a, b) { F::exact(0.0) } else { num::F32.addend(a, b) }
        }))
    }

    /// Which of two factors, if one, is a weight that a condition may make 0.
    pub fn weight(&self, args: &[ExprId]) -> Option<usize> {
        let of = |n: usize| self.facts.skippable[args[n].0 as usize];
        match (of(0), of(1)) {
            (true, false) => Some(0),
            (false, true) => Some(1),
            _ => None,
        }
    }

    fn float_unary(&mut self, func: Func, arg: ExprId) -> Code {
        let ty = self.g.ty(arg);
        let a = self.code(arg).float();
        match func {
            Func::Neg => Code::F(Box::new(move |w, env| {
                let a = a(w, env);
                F { v: -a.v, e: a.e }
            })),
            Func::Abs => Code::F(Box::new(move |w, env| {
                let a = a(w, env);
                F { v: a.v.abs(), e: a.e }
            })),
            Func::Sign => Code::F(Box::new(move |w, env| num::sign(a(w, env)))),
            Func::Bits => Code::I(Box::new(move |w, env| {
                let a = a(w, env);
                let bits = |v: f64| match ty {
                    Ty::F64 => v.to_bits() as i64,
                    _ => (v as f32).to_bits() as i32 as i64,
                };
                if a.e == 0.0 { I::exact(bits(a.v)) } else { I::any(bits(a.v)) }
            })),
            _ => Code::B(Box::new(move |w, env| num::classify(func, a(w, env)))),
        }
    }

    /// It is a sum or difference itself.
    fn is_sum(&self, id: ExprId) -> bool {
        matches!(self.g.expr(id), Expr::Call(Func::Add | Func::Sub, _))
    }

    /// The same all along some axis around it, so that a division may multiply by its reciprocal: anything in a fold,
    /// what is read or folded elsewhere. (A power of two has an exact reciprocal.)
    fn common(&self, id: ExprId) -> bool {
        let in_fold = self.context.len() > self.points;
        let (constant, even) = match self.g.expr(id) {
            Expr::Lit(v) => (true, crate::host::as_f64(*v).to_bits() & ((1 << 52) - 1) == 0),
            Expr::Scalar(_) => (true, false),
            _ => (false, false),
        };
        !even && (in_fold || !constant) && self.facts.axes[id.0 as usize].len() < self.context.len()
    }

    fn int_call(&mut self, func: Func, args: &[ExprId], ty: Ty) -> Code {
        let a = self.code(args[0]).int();
        let Some(&second) = args.get(1) else { return int_unary(func, a, ty) };
        let b = self.code(second).int();
        macro_rules! op {
            ($f:expr) => {{
                let f = $f;
                Code::I(Box::new(move |w, env| {
                    num::int_call(a(w, env), b(w, env), |x, y| num::wrap(f(x, y), ty))
                }))
            }};
        }
        macro_rules! test {
            ($f:expr) => {
                Code::B(Box::new(move |w, env| num::int_compare(a(w, env), b(w, env), $f)))
            };
        }
        let width = if ty == Ty::I32 { 32 } else { 64 };
        match func {
            Func::Add => Code::I(Box::new(move |w, env| num::int_add(a(w, env), b(w, env), ty))),
            Func::Sub => op!(i64::wrapping_sub),
            Func::Mul => op!(i64::wrapping_mul),
            Func::Div => op!(meaning::floor_div),
            Func::Rem => op!(meaning::floor_rem),
            Func::Min => op!(i64::min),
            Func::Max => op!(i64::max),
            Func::And => op!(|x, y| x & y),
            Func::Or => op!(|x, y| x | y),
            Func::Xor => op!(|x, y| x ^ y),
            Func::Shl => op!(move |x: i64, n: i64| if (0..width).contains(&n) { x << n } else { 0 }),
            Func::Shr => op!(move |x: i64, n: i64| x >> if (0..width).contains(&n) { n } else { width - 1 }),
            Func::RandBits => op!(|s, c| random::randbits(s, c) as i64),
            Func::Eq => test!(|x, y| x == y),
            Func::Ne => test!(|x, y| x != y),
            Func::Lt => test!(|x, y| x < y),
            Func::Le => test!(|x, y| x <= y),
            Func::Uniform => Code::F(Box::new(move |w, env| {
                let (s, c) = (a(w, env), b(w, env));
                let v = random::uniform(s.v, c.v);
                if s.e == 0 && c.e == 0 { F::exact(v) } else { F { v, e: 1.0 } }
            })),
            Func::Normal => Code::F(Box::new(move |w, env| {
                let (s, c) = (a(w, env), b(w, env));
                let v = random::normal(s.v, c.v);
                let open = s.e != 0 || c.e != 0;
                if open { F::any(v) } else { normal_bound(v) }
            })),
            _ => unreachable!("{func:?} takes no integers: the verifier lets none through"),
        }
    }

    fn bool_call(&mut self, func: Func, args: &[ExprId]) -> Code {
        let a = self.code(args[0]).truth();
        let Some(&second) = args.get(1) else {
            return Code::B(Box::new(move |w, env| a(w, env).not()));
        };
        let b = self.code(second).truth();
        Code::B(Box::new(move |w, env| {
            let (a, b) = (a(w, env), b(w, env));
            let sure = a.sure && b.sure;
            match func {
                Func::And => a.and(b),
                Func::Or => a.or(b),
                Func::Xor | Func::Ne => B { v: a.v != b.v, sure },
                Func::Eq => B { v: a.v == b.v, sure },
                Func::Lt => B { v: !a.v & b.v, sure },
                _ => B { v: a.v <= b.v, sure },
            }
        }))
    }

    /// A fold function's body and unit.
    pub fn fold_fn(&mut self, id: FoldFnId) -> (Code, Code) {
        let f = self.g.fold_fn(id);
        (self.code(f.body), self.code(f.unit))
    }

    /// What a sum of this body may err beyond its additions.
    pub fn sum_law(&self, body: ExprId) -> SumLaw {
        let rescaled = self.facts.exponential[body.0 as usize];
        let bits = match self.g.expr(body) {
            Expr::Call(Func::Mul, args) if self.g.ty(body) == Ty::F32 => {
                args.iter().map(|a| self.facts.bits[a.0 as usize]).max().unwrap_or(64)
            }
            _ => 64,
        };
        SumLaw { tensor16: bits <= 16, tensor8: bits <= 8, rescaled }
    }
}

#[inline]
fn leaves_out(w: &World, weight: Option<usize>, a: F, b: F) -> bool {
    match weight {
        None => false,
        Some(0) => w.leaves_out(a, b),
        Some(_) => w.leaves_out(b, a),
    }
}

/// log, sqrt and cos of f32 each err by 4 units in the last place of their results; the cosine's argument is rounded.
fn normal_bound(v: f64) -> F {
    num::F32.bounded(v, v.abs() * 20.0 * num::F32.u + 8.0 * num::F32.u)
}

fn constant(n: Num) -> Code {
    match n {
        Num::F(x) => Code::F(Box::new(move |_, _| x)),
        Num::I(x) => Code::I(Box::new(move |_, _| x)),
        Num::B(x) => Code::B(Box::new(move |_, _| x)),
    }
}

fn int_unary(func: Func, a: Eval<I>, ty: Ty) -> Code {
    let f: fn(i64) -> i64 = match func {
        Func::Neg => i64::wrapping_neg,
        Func::Abs => i64::wrapping_abs,
        Func::Sign => i64::signum,
        Func::Not => |x| !x,
        Func::FromBits => {
            return Code::F(Box::new(move |w, env| {
                let a = a(w, env);
                let v = match ty {
                    Ty::I64 => f64::from_bits(a.v as u64),
                    _ => f32::from_bits(a.v as u32) as f64,
                };
                if a.e == 0 { F::exact(v) } else { F::any(v) }
            }));
        }
        _ => unreachable!("{func:?} takes no integer: the verifier lets none through"),
    };
    Code::I(Box::new(move |w, env| num::int_call(a(w, env), I::exact(0), |x, _| num::wrap(f(x), ty))))
}

/// Conversion between compute types.
fn convert(code: Code, from: Ty, to: Ty) -> Code {
    if from == to {
        return code;
    }
    Code::of(to, move |w, env| num::convert(code.run(w, env), from, to))
}

/// Rounding to a dtype, from any compute type, once.
fn round(code: Code, from: Ty, dtype: DType) -> Code {
    Code::of(dtype.compute(), move |w, env| num::round(code.run(w, env), from, dtype))
}
