//! Emit, the arithmetic: calls, conversions, roundings and choices.
//!
//! Integer arithmetic whose operands and result are known to fit runs in 32 bits; `/` and `%` are plain machine
//! operations (or shifts and masks) where the signs are known, and the flooring functions otherwise.

use super::index::Interval;
use super::scalar::{Emit, Num, arith, compare, int, widen};
use crate::ir::graph::{Expr as Node, ExprId};
use crate::ir::simt::{CmpOp, Expr, IntOp, Stmt, Ty};
use crate::vocab::dtype::{self, DType, Value};
use crate::vocab::func::Func;

/// Nodes that a branch may have and still be computed whether it is taken or not.
const EAGER_NODES: usize = 6;

impl<'a> Emit<'a> {
    pub(super) fn call(&mut self, id: ExprId, f: Func, args: &[ExprId]) -> Num {
        let of = self.graph.ty(args[0]);
        match of {
            dtype::Ty::Bool => self.bool_call(id, f, args),
            _ if of.is_int() => self.int_call(id, f, args),
            _ => self.float_call(id, f, args),
        }
    }

    fn float_call(&mut self, id: ExprId, f: Func, args: &[ExprId]) -> Num {
        let ty = Ty::of(self.graph.ty(id));
        let values: Vec<Expr> = args.iter().map(|&a| self.value(a)).collect();
        if let Some(n) = self.near_call(id, f, args, &values) {
            return n;
        }
        let expr = match comparison(f) {
            Some(op) => pair(values, |a, b| Expr::Compare(op, a, b)),
            None => Expr::Call(f, values),
        };
        Num { expr, ty }
    }

    fn bool_call(&mut self, id: ExprId, f: Func, args: &[ExprId]) -> Num {
        let ty = Ty::of(self.graph.ty(id));
        let values: Vec<Expr> = args.iter().map(|&a| self.value(a)).collect();
        let expr = match f {
            Func::And => pair(values, Expr::And),
            Func::Or => pair(values, Expr::Or),
            Func::Xor => pair(values, |a, b| Expr::Compare(CmpOp::Ne, a, b)),
            Func::Not => Expr::Not(Box::new(values.into_iter().next().expect("one operand"))),
            Func::Eq | Func::Ne => {
                let op = if f == Func::Eq { CmpOp::Eq } else { CmpOp::Ne };
                pair(values, |a, b| Expr::Compare(op, a, b))
            }
            _ => Expr::Call(f, values),
        };
        Num { expr, ty }
    }

    fn int_call(&mut self, id: ExprId, f: Func, args: &[ExprId]) -> Num {
        let nums: Vec<Num> = args.iter().map(|&a| self.num(a)).collect();
        if let Some(op) = comparison(f) {
            let (a, b) = two(nums);
            return Num { expr: compare(op, a, b), ty: Ty::Bool };
        }
        let of = self.graph.ty(args[0]);
        let narrow = of == dtype::Ty::I32
            || self.facts.interval(id).fits_i32() && nums.iter().all(|n| n.ty == Ty::I32);
        let nums: Vec<Num> = if narrow { nums } else { nums.into_iter().map(widen).collect() };
        let ty = if narrow { Ty::I32 } else { Ty::I64 };
        match machine(f) {
            Some(op) => {
                let (a, b) = two(nums);
                arith(op, a, b)
            }
            None => match f {
                Func::Div | Func::Rem => self.divide(f, args, nums, ty),
                Func::Shl | Func::Shr => self.shift(f, args, nums, ty),
                Func::Neg => arith(IntOp::Sub, zero(ty), nums.into_iter().next().expect("one operand")),
                _ => self.int_function(id, f, nums, ty),
            },
        }
    }

    fn int_function(&mut self, id: ExprId, f: Func, nums: Vec<Num>, ty: Ty) -> Num {
        let keeps = matches!(f, Func::Abs | Func::Sign | Func::Not | Func::Min | Func::Max | Func::Pow);
        let result = Ty::of(self.graph.ty(id));
        if keeps {
            return Num { expr: Expr::Call(f, nums.into_iter().map(|n| n.expr).collect()), ty };
        }
        // Anything else has operands of the types that its law says (`randbits`: I64).
        let wide = self.graph.children(id).iter().map(|&a| self.graph.ty(a)).collect::<Vec<_>>();
        let values = nums
            .into_iter()
            .zip(wide)
            .map(|(n, t)| if t == dtype::Ty::I64 { widen(n).expr } else { n.expr })
            .collect();
        Num { expr: Expr::Call(f, values), ty: result }
    }

    fn divide(&mut self, f: Func, args: &[ExprId], nums: Vec<Num>, ty: Ty) -> Num {
        let (ia, ib) = (self.facts.interval(args[0]), self.facts.interval(args[1]));
        let (a, b) = two(nums);
        if ib.lo == ib.hi && ib.lo > 0 && ib.lo.count_ones() == 1 {
            // Flooring by a power of two, whatever the sign.
            return match f {
                _ if ib.lo == 1 && f == Func::Div => a,
                Func::Div => arith(IntOp::Shr, a, typed(ty, ib.lo.trailing_zeros() as i64)),
                _ => arith(IntOp::And, a, typed(ty, ib.lo - 1)),
            };
        }
        if ia.lo >= 0 && ib.lo > 0 {
            if f == Func::Rem && ia.hi < ib.lo {
                return a;
            }
            return arith(if f == Func::Div { IntOp::Div } else { IntOp::Rem }, a, b);
        }
        Num { expr: Expr::Call(f, vec![a.expr, b.expr]), ty }
    }

    fn shift(&mut self, f: Func, args: &[ExprId], nums: Vec<Num>, ty: Ty) -> Num {
        let count = self.facts.interval(args[1]);
        let width = if self.graph.ty(args[0]) == dtype::Ty::I32 { 32 } else { 64 };
        let (a, b) = two(nums);
        let width = if ty == Ty::I32 { 32.min(width) } else { width };
        if count.lo >= 0 && count.hi < width {
            return arith(if f == Func::Shl { IntOp::Shl } else { IntOp::Shr }, a, b);
        }
        if width == 32 && self.graph.ty(args[0]) == dtype::Ty::I64 {
            // The function's own width rule is that of 64 bits.
            return Num { expr: Expr::Call(f, vec![widen(a).expr, widen(b).expr]), ty: Ty::I64 };
        }
        Num { expr: Expr::Call(f, vec![a.expr, b.expr]), ty }
    }

    pub(super) fn cast(&mut self, ty: dtype::Ty, a: ExprId) -> Num {
        let from = self.graph.ty(a);
        let n = self.num(a);
        match (from, ty) {
            _ if from == ty => n,
            (dtype::Ty::I32, dtype::Ty::I64) => n,
            (dtype::Ty::I64, dtype::Ty::I32) if n.ty == Ty::I32 => n,
            // Held in 32 bits.
            (dtype::Ty::Bool, dtype::Ty::I64) => {
                Num { expr: Expr::Cast(Ty::I32, Box::new(n.expr)), ty: Ty::I32 }
            }
            _ => Num { expr: Expr::Cast(Ty::of(ty), Box::new(n.expr)), ty: Ty::of(ty) },
        }
    }

    pub(super) fn round(&mut self, d: DType, a: ExprId) -> Num {
        let n = self.num(a);
        let same = self.graph.ty(a) == d.compute();
        let inside = d.is_int() && same && within(self.facts.interval(a), Interval::of_dtype(d));
        if inside || d == self.graph.ty(a).stored() {
            return n;
        }
        self.rounded(d, n)
    }

    /// A value rounded once to a dtype, in the dtype's compute type.
    pub fn rounded(&self, d: DType, n: Num) -> Num {
        let ty = Ty::of(d.compute());
        match (n.ty, ty) {
            _ if d != d.compute().stored() => Num { expr: Expr::Round(d, Box::new(n.expr)), ty },
            (a, b) if a == b => n,
            (Ty::I32, Ty::I64) => widen(n),
            _ => Num { expr: Expr::Cast(ty, Box::new(n.expr)), ty },
        }
    }

    /// The value of an expression as a store to this dtype takes it: in the dtype's compute type. The store itself
    /// rounds, unless a wider value has to be rounded at once.
    pub fn stored_value(&mut self, d: DType, id: ExprId) -> Num {
        let n = self.num(id);
        let ty = Ty::of(d.compute());
        match n.ty {
            t if t == ty => n,
            _ => self.rounded(d, n),
        }
    }

    pub(super) fn select(&mut self, id: ExprId, c: ExprId, a: ExprId, b: ExprId) -> Num {
        if let Some(taken) = self.known_bool(c) {
            let ty = self.held(id);
            return Num { expr: self.num_as(if taken { a } else { b }, ty), ty };
        }
        let lit = |v: bool| Node::Lit(Value::Bool(v));
        let cond = self.value(c);
        let (cheap_a, cheap_b) = (self.cheap(a), self.cheap(b));
        if cheap_a && *self.graph.expr(b) == lit(false) {
            let a = self.value(a);
            return Num { expr: Expr::And(Box::new(cond), Box::new(a)), ty: Ty::Bool };
        }
        if cheap_b && *self.graph.expr(a) == lit(true) {
            let b = self.value(b);
            return Num { expr: Expr::Or(Box::new(cond), Box::new(b)), ty: Ty::Bool };
        }
        let ty = self.held(id);
        if cheap_a && cheap_b {
            let (a, b) = (self.num_as(a, ty), self.num_as(b, ty));
            return Num { expr: Expr::Select(Box::new(cond), Box::new(a), Box::new(b)), ty };
        }
        self.branch(cond, ty, a, b, cheap_b)
    }

    /// One branch or the other, by an `if` that sets a variable.
    fn branch(&mut self, cond: Expr, ty: Ty, a: ExprId, b: ExprId, cheap_b: bool) -> Num {
        let out = self.kernel.var("sel", ty);
        let first = if cheap_b { self.num_as(b, ty) } else { default_of(ty) };
        self.push(Stmt::Let(out, first));
        let then = self.block(|e| {
            let v = e.num_as(a, ty);
            e.push(Stmt::Set(out, v));
        });
        let otherwise = if cheap_b {
            Vec::new()
        } else {
            self.block(|e| {
                let v = e.num_as(b, ty);
                e.push(Stmt::Set(out, v));
            })
        };
        self.push(Stmt::If { cond, then, otherwise });
        Num { expr: Expr::Var(out), ty }
    }

    /// The register type that holds an expression's value.
    pub fn held(&self, id: ExprId) -> Ty {
        match self.graph.ty(id) {
            dtype::Ty::I64 if self.facts.interval(id).fits_i32() => Ty::I32,
            ty => Ty::of(ty),
        }
    }

    /// The value of an expression in the register type that `held` says (or a wider one).
    pub fn num_as(&mut self, id: ExprId, ty: Ty) -> Expr {
        let n = self.num(id);
        match (n.ty, ty) {
            (x, y) if x == y => n.expr,
            (Ty::I32, Ty::I64) => widen(n).expr,
            (_, ty) => Expr::Cast(ty, Box::new(n.expr)),
        }
    }

    /// Whether computing it always costs little and does no harm: no reads, folds or faults.
    pub(super) fn cheap(&self, id: ExprId) -> bool {
        let mut budget = EAGER_NODES;
        self.spend(id, &mut budget)
    }

    fn spend(&self, id: ExprId, budget: &mut usize) -> bool {
        if self.is_known(id) || self.certain.contains(&id) {
            return true;
        }
        let free = match self.graph.expr(id) {
            Node::Lit(_) | Node::Axis(_) | Node::Param(_) => true,
            Node::Scalar(s) => self.graph.scalars[s.0 as usize].range.is_none(),
            Node::Read(_) | Node::Fold(_) => return false,
            Node::Call(f, args) => {
                !heavy(*f, self.graph.ty(args[0]))
                    || self.facts.near(id) && matches!(f, Func::Exp | Func::Exp2 | Func::Div | Func::Sqrt)
            }
            Node::Cast(_) | Node::Round(..) | Node::Select(..) => true,
        };
        if !free || *budget == 0 {
            return false;
        }
        *budget -= 1;
        self.graph.children(id).iter().all(|&c| self.spend(c, budget))
    }
}

/// Functions that cost much more than an addition.
fn heavy(f: Func, of: dtype::Ty) -> bool {
    match f {
        Func::Add | Func::Sub | Func::Mul | Func::Min | Func::Max | Func::Neg | Func::Abs | Func::Fma => {
            false
        }
        Func::And | Func::Or | Func::Xor | Func::Not | Func::Shl | Func::Shr | Func::Sign => false,
        Func::Eq | Func::Ne | Func::Lt | Func::Le | Func::IsNan | Func::IsInf | Func::IsFinite => false,
        Func::Div | Func::Rem => !of.is_int(),
        Func::Copysign | Func::Floor | Func::Ceil | Func::Trunc | Func::Round => false,
        Func::Bits | Func::FromBits | Func::Tf32 => false,
        _ => true,
    }
}

fn comparison(f: Func) -> Option<CmpOp> {
    match f {
        Func::Eq => Some(CmpOp::Eq),
        Func::Ne => Some(CmpOp::Ne),
        Func::Lt => Some(CmpOp::Lt),
        Func::Le => Some(CmpOp::Le),
        _ => None,
    }
}

/// The machine operation that means the same on integers, whatever the operands.
fn machine(f: Func) -> Option<IntOp> {
    match f {
        Func::Add => Some(IntOp::Add),
        Func::Sub => Some(IntOp::Sub),
        Func::Mul => Some(IntOp::Mul),
        Func::Min => Some(IntOp::Min),
        Func::Max => Some(IntOp::Max),
        Func::And => Some(IntOp::And),
        Func::Or => Some(IntOp::Or),
        Func::Xor => Some(IntOp::Xor),
        _ => None,
    }
}

fn within(a: Interval, b: Interval) -> bool {
    a.lo >= b.lo && a.hi <= b.hi
}

fn zero(ty: Ty) -> Num {
    typed(ty, 0)
}

fn typed(ty: Ty, v: i64) -> Num {
    if ty == Ty::I64 { widen(int(v)) } else { int(v) }
}

fn two(nums: Vec<Num>) -> (Num, Num) {
    let mut it = nums.into_iter();
    let mut next = || it.next().expect("the function's law says two operands");
    (next(), next())
}

fn pair(values: Vec<Expr>, f: impl FnOnce(Box<Expr>, Box<Expr>) -> Expr) -> Expr {
    let mut it = values.into_iter();
    let mut next = || Box::new(it.next().expect("the function's law says two operands"));
    let (a, b) = (next(), next());
    f(a, b)
}

/// A value of a register type to begin a variable with.
pub fn default_of(ty: Ty) -> Expr {
    match ty {
        Ty::Bool => Expr::Lit(Value::Bool(false)),
        Ty::I32 => Expr::Lit(Value::I32(0)),
        Ty::U32 => Expr::U32(0),
        Ty::I64 => Expr::Lit(Value::I64(0)),
        Ty::U64 => Expr::Cast(Ty::U64, Box::new(Expr::Lit(Value::I64(0)))),
        Ty::F32 => Expr::Lit(Value::F32(0.0)),
        Ty::F64 => Expr::Lit(Value::F64(0.0)),
    }
}
