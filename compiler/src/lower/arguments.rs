//! Numbers of a kernel's text as arguments, so that one kernel holds for many sizes.
//!
//! Sizes are numbers from the graph on, so two sizes give two programs. Often these differ in nothing but numbers: trip
//! counts, strides, bounds. [`shape`] takes a program apart into what a compiled kernel fixes (its text without
//! these numbers) and the numbers, in order; programs of equal shapes become one with [`lift`], whose kernels get the
//! numbers that differ as scalars. It is the very program of a size if it is launched with that size's numbers: nothing is proved
//! or guessed about sizes.
//!
//! A number stays in the text where a register's place or an unrolled loop hangs on it.

use super::unused::{operands, parts};
use crate::ir::program::{Arg, Program, Step};
use crate::ir::simt::*;
use crate::vocab::dtype::Value;
use std::collections::BTreeSet;
use std::fmt::Write;

/// What a kernel's code fixes, and its other numbers in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    pub text: String,
    pub numbers: Vec<Number>,
}

/// A number of a kernel's text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Value(Value),
    /// An unsigned word.
    Word(u32),
}

impl Number {
    fn of(e: &Expr) -> Option<Number> {
        match e {
            Expr::Lit(v) => Some(Number::Value(*v)),
            Expr::U32(w) => Some(Number::Word(*w)),
            _ => None,
        }
    }

    pub fn ty(self) -> Ty {
        match self {
            Number::Value(v) => Ty::of(v.ty()),
            Number::Word(_) => Ty::U32,
        }
    }

    /// As an argument, whose low bytes are the number.
    fn value(self) -> Value {
        match self {
            Number::Value(v) => v,
            Number::Word(w) => Value::I32(w as i32),
        }
    }

    /// Eight bytes whose low ones are the number.
    pub fn bits(self) -> i64 {
        match self.value() {
            Value::I32(n) => n.into(),
            other => other.key().1 as i64,
        }
    }
}

/// Takes a kernel apart. What is given at launch (grid, lengths, places of tensor maps) is in neither part.
pub fn shape(kernel: &Kernel) -> Shape {
    let mut k = kernel.clone();
    let mut numbers = Vec::new();
    each_number(&mut k, &mut |e| {
        numbers.extend(Number::of(e));
        match e {
            Expr::Lit(v) => *v = zero(*v),
            other => *other = Expr::U32(0),
        }
    });
    k.grid = [0; 3];
    for p in &mut k.params {
        match &mut p.kind {
            ParamKind::Pointer { len, .. } => *len = 0,
            ParamKind::TensorMap(m) => {
                m.offset = 0;
                m.dims.iter_mut().chain(&mut m.strides).for_each(|n| *n = 0);
            }
            ParamKind::Scalar(_) => {}
        }
    }
    let mut text = String::new();
    let _ = write!(text, "{k:?}");
    Shape { text, numbers }
}

/// A program whose kernels take some of their numbers as arguments. `slots` says for each kernel and number which
/// argument it becomes, counted from 0 among the new ones; `None` leaves it in the text. The new program is launched with the
/// numbers of the one that is given.
pub fn lift(program: &Program, slots: &[Vec<Option<usize>>]) -> Program {
    let mut lifted = program.clone();
    let mut more: Vec<Vec<Number>> = Vec::new();
    for (k, slots) in lifted.kernels.iter_mut().zip(slots) {
        more.push(one(k, slots));
    }
    add_arguments(&mut lifted.steps, &more);
    lifted
}

/// Gives a kernel its arguments; their values.
fn one(k: &mut Kernel, slots: &[Option<usize>]) -> Vec<Number> {
    let count = slots.iter().flatten().max().map_or(0, |m| m + 1);
    let first = k.params.len() as u32;
    let mut values = vec![None; count];
    let mut at = slots.iter();
    each_number(k, &mut |e| {
        let slot = at.next().copied().flatten();
        if let Some(slot) = slot {
            values[slot] = Number::of(e);
            *e = Expr::Param(ParamId(first + slot as u32));
        }
    });
    let values: Vec<Number> = values.into_iter().map(|v| v.unwrap_or(Number::Word(0))).collect();
    for (i, v) in values.iter().enumerate() {
        k.param(format!("n{i}"), ParamKind::Scalar(v.ty()));
    }
    values
}

fn add_arguments(steps: &mut [Step], more: &[Vec<Number>]) {
    for s in steps {
        match s {
            Step::Launch(l) => l.args.extend(more[l.kernel].iter().map(|v| Arg::Const(v.value()))),
            Step::Repeat { steps, .. } => add_arguments(steps, more),
            Step::Fill { .. } | Step::Copy { .. } => {}
        }
    }
}

fn zero(v: Value) -> Value {
    Value::of_bits(v.ty(), 0)
}

/// Calls `f` with every number that may be an argument, in order; takes remarks out, which may tell sizes.
fn each_number(k: &mut Kernel, f: &mut dyn FnMut(&mut Expr)) {
    let fixed = places(k);
    let mut body = std::mem::take(&mut k.body);
    Numbers { fixed, f }.body(&mut body);
    k.body = body;
}

/// Variables that a register's place is computed from.
fn places(k: &Kernel) -> BTreeSet<VarId> {
    let mut found = BTreeSet::new();
    // What such a variable is made of counts, too; a definition stands before its use.
    loop {
        let before = found.len();
        collect(&k.body, &mut found);
        if found.len() == before {
            return found;
        }
    }
}

fn collect(stmts: &[Stmt], found: &mut BTreeSet<VarId>) {
    for s in stmts {
        for operand in operands(s) {
            crate::ir::simt_verify::visit(operand, &mut |e| {
                if let Expr::Elem(_, index) = e {
                    variables(index, found);
                }
            });
        }
        match s {
            Stmt::SetElem(_, index, _) => variables(index, found),
            Stmt::Let(v, e) | Stmt::Set(v, e) if found.contains(v) => variables(e, found),
            _ => {}
        }
        parts(s).into_iter().for_each(|body| collect(body, found));
    }
}

fn variables(e: &Expr, found: &mut BTreeSet<VarId>) {
    crate::ir::simt_verify::visit(e, &mut |e| {
        if let Expr::Var(v) = e {
            found.insert(*v);
        }
    });
}

struct Numbers<'f> {
    fixed: BTreeSet<VarId>,
    f: &'f mut dyn FnMut(&mut Expr),
}

impl Numbers<'_> {
    fn body(&mut self, stmts: &mut Vec<Stmt>) {
        stmts.retain(|s| !matches!(s, Stmt::Comment(_)));
        stmts.iter_mut().for_each(|s| self.stmt(s));
    }

    fn stmt(&mut self, s: &mut Stmt) {
        match s {
            Stmt::Let(v, e) | Stmt::Set(v, e) => {
                if !self.fixed.contains(v) {
                    self.expr(e);
                }
            }
            Stmt::SetElem(_, _, e) | Stmt::Fault { value: e, .. } | Stmt::Ballot { pred: e, .. } => {
                self.expr(e)
            }
            Stmt::LoadVec { index: e, .. } | Stmt::StoreVec { index: e, .. } => self.expr(e),
            Stmt::Store(_, a, b) | Stmt::Atomic { index: a, value: b, .. } => {
                self.expr(a);
                self.expr(b);
            }
            // Which lane is asked is the exchange's own pattern.
            Stmt::Shuffle { value, .. } => self.expr(value),
            Stmt::For { var, lo, hi, step, unroll, body } => {
                if *unroll != Unroll::Full && !self.fixed.contains(var) {
                    [lo, hi, step].into_iter().for_each(|e| self.expr(e));
                }
                self.body(body);
            }
            Stmt::While { cond, body } => {
                self.expr(cond);
                self.body(body);
            }
            Stmt::If { cond, then, otherwise } => {
                self.expr(cond);
                self.body(then);
                self.body(otherwise);
            }
            Stmt::Intrinsic { args, .. } => args.iter_mut().for_each(|e| self.expr(e)),
            Stmt::Barrier | Stmt::WarpBarrier | Stmt::Fence | Stmt::Line(_) | Stmt::Comment(_) => {}
        }
    }

    fn expr(&mut self, e: &mut Expr) {
        match e {
            Expr::Lit(Value::Bool(_)) => {}
            Expr::Lit(_) | Expr::U32(_) => (self.f)(e),
            Expr::Var(_) | Expr::Param(_) | Expr::Special(_) | Expr::Elem(..) => {}
            Expr::Load(_, a)
            | Expr::Not(a)
            | Expr::Cast(_, a)
            | Expr::Round(_, a)
            | Expr::Bitcast(_, a)
            | Expr::Unpack2(_, _, a)
            | Expr::SharedAddr(_, a) => self.expr(a),
            Expr::Int(_, a, b)
            | Expr::Compare(_, a, b)
            | Expr::And(a, b)
            | Expr::Or(a, b)
            | Expr::Pack2(_, a, b) => {
                self.expr(a);
                self.expr(b);
            }
            Expr::Select(c, a, b) => {
                self.expr(c);
                self.expr(a);
                self.expr(b);
            }
            Expr::Call(_, args) | Expr::Approx(_, args) => args.iter_mut().for_each(|a| self.expr(a)),
        }
    }
}
