//! Expressions: operators, conditions and names.

use super::build;
use super::elab::{Elab, Meaning};
use super::typ::{Typ, Val};
use crate::pass::module::Found;
use crate::vocab::dtype::{DType, Ty, Value};
use crate::vocab::func::Func;
use girih_dsl::ast::*;
use girih_dsl::diagnostic::Diagnostic;
use girih_dsl::print_expr;

impl<'m> Elab<'m> {
    /// Builds an expression. What is wrong is reported, and gives a value of type `Error`.
    pub fn expr(&mut self, e: &Expr) -> Val {
        match self.deeper(e.span, |s| Some(s.expr_at(e))) {
            Some(v) => v,
            None => self.poison(),
        }
    }

    fn expr_at(&mut self, e: &Expr) -> Val {
        let span = e.span;
        match &e.kind {
            ExprKind::Int(text) => match build::int_text(text) {
                Some(v) => Val { typ: Typ::Lit, ..self.int(v) },
                None => self.wrong(too_large(text, span)),
            },
            ExprKind::Float(text) => {
                let digits: String = text.chars().filter(|c| *c != '_').collect();
                self.float(digits.parse().unwrap_or(f64::NAN))
            }
            ExprKind::Bool(b) => self.bool(*b),
            ExprKind::Inf => self.float(f64::INFINITY),
            ExprKind::Nan => self.float(f64::NAN),
            ExprKind::Pi => self.float(std::f64::consts::PI),
            ExprKind::Paren(a) => self.expr(a),
            ExprKind::Read { name, index } => self.read(name, index.as_deref(), None, span),
            ExprKind::Else(read, default) => self.read_else(read, default, span),
            ExprKind::Call { lib, name, args } => self.call(lib.as_ref(), name, args, span),
            ExprKind::Fold { name, binders, cond, body } => {
                self.fold(name, binders, cond.as_deref(), body, span)
            }
            ExprKind::Unary(op, a) => self.unary(*op, a, span),
            ExprKind::Binary(op, a, b) => self.binary(*op, a, b, span),
            ExprKind::Chain(parts, ops) => self.chain(parts, ops, span),
            ExprKind::If(c, a, b) => self.if_else(c, a, b, span),
        }
    }

    fn unary(&mut self, op: UnOp, a: &Expr, span: Span) -> Val {
        if op == UnOp::Neg
            && let ExprKind::Int(text) = &a.kind
        {
            // −2⁶³ is a number, though 2⁶³ is none.
            let digits: String = text.chars().filter(|c| *c != '_').collect();
            if digits.parse::<u64>() == Ok(1 << 63) {
                return Val { typ: Typ::Lit, ..self.int(i64::MIN) };
            }
        }
        let v = self.expr(a);
        match (op, v.typ) {
            (_, Typ::Error) => v,
            (UnOp::Not, Typ::Bool) => {
                let id = build::not(&mut self.g, v.id, span);
                Val::new(Typ::Bool, id)
            }
            (UnOp::Not, t) if t.is_int() => self.apply(Func::Not, &[v], t, span),
            (UnOp::Neg, t) if t != Typ::Bool => {
                Val { divided: v.divided, ..self.apply(Func::Neg, &[v], t, span) }
            }
            (UnOp::Not, t) => {
                let d = Diagnostic::error(
                    "E0306",
                    span,
                    format!("`!` works on bool and on integers, not on {}", t.name()),
                );
                self.wrong(d.help("write a comparison: x == 0.0"))
            }
            (UnOp::Neg, _) => {
                let d = Diagnostic::error("E0302", span, "a bool has no negative");
                self.wrong(d.help("write !c, or -i32(c)"))
            }
        }
    }

    fn binary(&mut self, op: BinOp, a: &Expr, b: &Expr, span: Span) -> Val {
        match op {
            BinOp::And | BinOp::Or => self.logic(op == BinOp::And, a, b, span),
            BinOp::Pow => self.power(a, b, span),
            _ => {
                let (x, y) = (self.expr(a), self.expr(b));
                let divided = matches!(op, BinOp::Div | BinOp::Rem);
                let zero = divided && x.typ.is_int() && build::literal_int_text(b) == Some(0);
                if zero {
                    let given = if op == BinOp::Div { "0" } else { "what is divided" };
                    let d =
                        Diagnostic::warning("W0006", span, format!("division by 0: this is always {given}"));
                    self.report(d.help("divide by another number, or leave the division out"));
                }
                self.operate(op, x, y, span)
            }
        }
    }

    /// An operator on values.
    pub fn operate(&mut self, op: BinOp, x: Val, y: Val, span: Span) -> Val {
        let t = self.meet(x, y, span);
        if t == Typ::Error {
            return self.poison();
        }
        if let Some((func, swap)) = comparison(op) {
            if t == Typ::Bool && !matches!(func, Func::Eq | Func::Ne) {
                let d = Diagnostic::error("E0302", span, "bools have no order");
                return self.wrong(d.help("compare them by == and !=, or write i32(c)"));
            }
            let (x, y) = (self.convert(x, t, span), self.convert(y, t, span));
            let args = if swap { [y, x] } else { [x, y] };
            return self.apply(func, &args, Typ::Bool, span);
        }
        let Some((func, kind)) = arithmetic(op) else { return self.poison() };
        if t == Typ::Bool {
            let d = match kind {
                Operands::Integers => {
                    Diagnostic::error("E0302", span, "`& | ^ << >>` work on integers, these are bool").help(
                        match op {
                            BinOp::BitAnd => "write `&&`",
                            BinOp::BitOr => "write `||`",
                            BinOp::BitXor => "write `!=` for exclusive or",
                            _ => "write `i32(c)` for 0 or 1",
                        },
                    )
                }
                Operands::Numbers => Diagnostic::error("E0302", span, "arithmetic on bool")
                    .help("write i32(c) for 0 or 1, or `if c then … else …`"),
            };
            return self.wrong(d);
        }
        if kind == Operands::Integers && !t.is_int() {
            let d = Diagnostic::error(
                "E0306",
                span,
                format!("`& | ^ << >>` work on integers, this is {}", t.name()),
            );
            return self.wrong(d.help(match op {
                BinOp::BitXor => "a power is x ** 2; for the bits of a float write bits(x)",
                _ => "write i32(x), or bits(x) for the bits of a float",
            }));
        }
        let (x, y) = (self.convert(x, t, span), self.convert(y, t, span));
        let divided = t.is_int() && is_divided(op, x, y);
        Val { divided, ..self.apply(func, &[x, y], t, span) }
    }

    /// `&&` and `||`: the right side is read under the left one.
    fn logic(&mut self, and: bool, a: &Expr, b: &Expr, span: Span) -> Val {
        let x = self.condition(a);
        let known = build::literal_bool(&self.g, x.id);
        let y = self.under(x, and, known == Some(!and), |s| s.condition(b));
        if x.typ == Typ::Error || y.typ == Typ::Error {
            return self.poison();
        }
        let id = match and {
            true => build::and(&mut self.g, x.id, y.id, span),
            false => build::or(&mut self.g, x.id, y.id, span),
        };
        Val::new(Typ::Bool, id)
    }

    /// Does something where a condition holds (or not). Dead: where it never does.
    pub fn under<T>(&mut self, c: Val, positive: bool, dead: bool, f: impl FnOnce(&mut Self) -> T) -> T {
        let mark = self.prover.mark();
        if c.typ == Typ::Bool {
            self.prover.assume(&self.g, c.id, positive);
        }
        self.dead += dead as u32;
        let r = f(self);
        self.dead -= dead as u32;
        self.prover.release(mark);
        r
    }

    /// An expression that must be bool.
    pub fn condition(&mut self, e: &Expr) -> Val {
        let v = self.expr(e);
        if matches!(v.typ, Typ::Bool | Typ::Error) {
            return v;
        }
        let d = Diagnostic::error("E0305", e.span, format!("a condition is bool, this is {}", v.typ.name()));
        self.wrong(d.help(match &e.kind {
            ExprKind::Binary(..) | ExprKind::If(..) | ExprKind::Chain(..) => {
                format!("write a comparison: `({}) != 0`", print_expr(e))
            }
            _ => format!("write a comparison: `{} != 0`", print_expr(e)),
        }))
    }

    fn chain(&mut self, parts: &[Expr], ops: &[BinOp], span: Span) -> Val {
        let mark = self.prover.mark();
        let mut values = Vec::new();
        let mut all: Option<Val> = None;
        for (i, part) in parts.iter().enumerate() {
            values.push(self.expr(part));
            if i == 0 {
                continue;
            }
            let c = self.operate(ops[i - 1], values[i - 1], values[i], span);
            if c.typ == Typ::Bool {
                self.prover.assume(&self.g, c.id, true);
            }
            all = Some(match all {
                None => c,
                Some(x) if x.typ == Typ::Error || c.typ == Typ::Error => self.poison(),
                Some(x) => Val::new(Typ::Bool, build::and(&mut self.g, x.id, c.id, span)),
            });
        }
        self.prover.release(mark);
        all.unwrap_or_else(|| self.poison())
    }

    fn if_else(&mut self, c: &Expr, a: &Expr, b: &Expr, span: Span) -> Val {
        let cond = self.condition(c);
        let known = build::literal_bool(&self.g, cond.id);
        let x = self.under(cond, true, known == Some(false), |s| s.expr(a));
        let y = self.under(cond, false, known == Some(true), |s| s.expr(b));
        self.choose(cond, x, y, span)
    }

    /// `a ** n` multiplies for a literal n ≥ 0; other exponents are `pow`.
    fn power(&mut self, a: &Expr, b: &Expr, span: Span) -> Val {
        let x = self.expr(a);
        let exponent = literal_exponent(b);
        match exponent {
            Some(n) if x.typ != Typ::Bool && (0..=64).contains(&n) => return self.multiply(x, n, span),
            _ if x.typ.is_int() && exponent.is_some_and(|n| n > 64) => {
                let d = Diagnostic::error("E0307", b.span, "an integer's exponent is at most 64");
                return self.wrong(d.help("write f64(x) ** n"));
            }
            _ => {}
        }
        let y = self.expr(b);
        if x.typ == Typ::Error || y.typ == Typ::Error {
            return self.poison();
        }
        if x.typ.is_int() && y.typ.is_int() {
            let d = Diagnostic::error("E0307", b.span, "an integer takes a literal exponent ≥ 0");
            let base = girih_dsl::print_expr(a);
            let float = match a.kind {
                ExprKind::Int(_) => format!("{base}.0"),
                _ => format!("f32({base})"),
            };
            let shift = if base == "2" { ", or 1 << n for a power of two" } else { "" };
            let exponent = girih_dsl::print_expr(b);
            return self.wrong(d.help(format!("write {float} ** {exponent}{shift}")));
        }
        let t = self.meet(x, y, span);
        let (x, y) = (self.convert(x, t, span), self.convert(y, t, span));
        self.apply(Func::Pow, &[x, y], t, span)
    }

    fn multiply(&mut self, x: Val, n: i64, span: Span) -> Val {
        if n == 0 {
            let one = Val { typ: Typ::Lit, ..self.int(1) };
            return self.convert(one, x.typ, span);
        }
        let half = match n {
            1 => return x,
            n => self.multiply(x, n / 2, span),
        };
        let square = self.operate(BinOp::Mul, half, half, span);
        if n % 2 == 1 { self.operate(BinOp::Mul, square, x, span) } else { square }
    }

    /// A name that is not a tensor with axes.
    pub fn plain_name(&mut self, name: &Name) -> Option<Val> {
        if let Some(b) = self.bound(&name.text) {
            let id = b.id;
            let e = self.g.axis_expr(id);
            return Some(Val::new(Typ::Index, e));
        }
        match self.frame().names.get(&name.text) {
            Some(Meaning::Value(v, _)) => {
                let v = *v;
                Some(self.here(v))
            }
            Some(Meaning::Tensor(_)) => None,
            None => self.constant_value(name),
        }
    }

    /// An argument of a repeated op, for the statement at hand.
    fn here(&mut self, v: Val) -> Val {
        if self.frame().lead.is_empty() || build::literal(&self.g, v.id).is_some() {
            return v;
        }
        let mut s = self.to_now();
        Val { id: s.apply(&mut self.g, v.id), wide: s.apply(&mut self.g, v.wide), ..v }
    }

    /// The value of a const item, if the name is one.
    pub fn constant_value(&mut self, name: &Name) -> Option<Val> {
        let unit = self.frame().unit;
        let module = self.module;
        match module.constant(unit, &name.text) {
            Found::One((unit, c)) => match &c.value {
                ConstValue::Expr(e) => Some(self.const_item(unit, c, e)),
                ConstValue::Array { .. } => None,
            },
            _ => None,
        }
    }

    fn const_item(&mut self, unit: usize, c: &Constant, e: &Expr) -> Val {
        let Some(v) = self.closed(unit, &c.name, |s| s.expr(e)) else { return self.poison() };
        let Some(dtype) = c.dtype.as_ref() else { return v };
        let Some(dtype) = self.dtype(dtype) else { return self.poison() };
        self.typed_constant(v, dtype, &c.name.text, e.span).unwrap_or_else(|| self.poison())
    }

    /// A constant with a dtype: an integer is an index, a float has the compute type.
    pub fn typed_constant(&mut self, v: Val, dtype: DType, name: &str, span: Span) -> Option<Val> {
        let id = self.store(v, dtype, name, span)?;
        let id = build::round(&mut self.g, dtype, id, span);
        Some(self.constant_of(id, dtype))
    }

    /// The value as a const of this dtype is seen.
    pub fn constant_of(&mut self, id: crate::ir::graph::ExprId, dtype: DType) -> Val {
        if dtype.is_int() {
            let id = build::cast(&mut self.g, id, Ty::I64, Span::default());
            return Val::new(Typ::Index, id);
        }
        Val::new(Typ::of(dtype.compute()), id)
    }

    /// Reads an expression where no op's names are seen: of a const item.
    pub fn closed<T>(&mut self, unit: usize, name: &Name, f: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let key = format!("const {unit} {}", name.text);
        if self.calls.contains(&key) {
            let d = Diagnostic::error("E0113", name.span, format!("`{}` is defined by itself", name.text));
            self.report(d.help("write its value"));
            return None;
        }
        self.calls.push(key);
        self.frames.push(super::elab::Frame { unit, is_fn: true, ..Default::default() });
        let r = f(self);
        self.frames.pop();
        self.calls.pop();
        Some(r)
    }

    /// A bool literal's value.
    pub fn known_bool(&self, v: Val) -> Option<bool> {
        match build::literal(&self.g, v.id) {
            Some(Value::Bool(b)) if v.typ == Typ::Bool => Some(b),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operands {
    Numbers,
    Integers,
}

/// Is the result a quotient that must not turn into a float: the quotient itself, its multiples, and sums of quotients
/// and literals (`1 - 1/N`). A difference such as `i - H/2` is a position: there the floor is meant.
fn is_divided(op: BinOp, x: Val, y: Val) -> bool {
    let quotient = |v: Val| v.divided || v.typ == Typ::Lit;
    match op {
        BinOp::Div => true,
        BinOp::Mul => x.divided || y.divided,
        BinOp::Add | BinOp::Sub => (x.divided && quotient(y)) || (y.divided && quotient(x)),
        _ => false,
    }
}

/// The function, and whether its operands change places.
fn comparison(op: BinOp) -> Option<(Func, bool)> {
    Some(match op {
        BinOp::Eq => (Func::Eq, false),
        BinOp::Ne => (Func::Ne, false),
        BinOp::Lt => (Func::Lt, false),
        BinOp::Le => (Func::Le, false),
        BinOp::Gt => (Func::Lt, true),
        BinOp::Ge => (Func::Le, true),
        _ => return None,
    })
}

fn arithmetic(op: BinOp) -> Option<(Func, Operands)> {
    Some(match op {
        BinOp::Add => (Func::Add, Operands::Numbers),
        BinOp::Sub => (Func::Sub, Operands::Numbers),
        BinOp::Mul => (Func::Mul, Operands::Numbers),
        BinOp::Div => (Func::Div, Operands::Numbers),
        BinOp::Rem => (Func::Rem, Operands::Numbers),
        BinOp::BitAnd => (Func::And, Operands::Integers),
        BinOp::BitOr => (Func::Or, Operands::Integers),
        BinOp::BitXor => (Func::Xor, Operands::Integers),
        BinOp::Shl => (Func::Shl, Operands::Integers),
        BinOp::Shr => (Func::Shr, Operands::Integers),
        _ => return None,
    })
}

fn literal_exponent(e: &Expr) -> Option<i64> {
    match &e.kind {
        ExprKind::Paren(a) => literal_exponent(a),
        _ => build::literal_int_text(e),
    }
}

fn too_large(text: &str, span: Span) -> Diagnostic {
    Diagnostic::error("E0301", span, format!("`{text}` does not fit 64 bits"))
        .help("write it as a float (1e20), or as a sum of smaller numbers")
}
