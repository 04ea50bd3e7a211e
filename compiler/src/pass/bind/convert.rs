//! Conversions between types, and functions applied to values of one type (LANGUAGE.md, section 5).

use super::build;
use super::elab::Elab;
use super::typ::{Typ, Val};
use crate::host;
use crate::ir::graph::*;
use crate::vocab::dtype::{DType, Ty, Value};
use crate::vocab::func::Func;
use girih_dsl::ast::Span;
use girih_dsl::diagnostic::Diagnostic;

impl Elab<'_> {
    /// Converts where the language does so by itself: to the type in which operands meet.
    pub fn convert(&mut self, v: Val, to: Typ, span: Span) -> Val {
        if v.typ == to || v.typ == Typ::Error {
            return v;
        }
        if v.typ == Typ::Bool || to == Typ::Bool {
            return self.wrong(bool_meets(v.typ, to, span));
        }
        if v.divided && to.is_float() {
            return self.wrong(integer_division(span));
        }
        match (v.typ, to) {
            (_, Typ::Error) => self.poison(),
            (Typ::Open, Typ::F64) => Val::new(Typ::F64, v.wide),
            (Typ::Open, _) => Val::new(to, v.id),
            (_, Typ::Open) => {
                let wide = build::cast(&mut self.g, v.id, Ty::F64, span);
                let id = self.narrow(wide, |g| build::cast(g, v.id, Ty::F32, span));
                Val::open(id, wide)
            }
            _ => {
                let id = build::cast(&mut self.g, v.id, to.ty(), span);
                Val { divided: v.divided, ..Val::new(to, id) }
            }
        }
    }

    /// The f32 form of an open float: a constant is rounded from its f64 value.
    fn narrow(&mut self, wide: ExprId, otherwise: impl FnOnce(&mut Graph) -> ExprId) -> ExprId {
        match build::literal(&self.g, wide) {
            Some(Value::F64(v)) => self.g.lit(Value::F32(v as f32)),
            _ => otherwise(&mut self.g),
        }
    }

    /// The type in which two values meet. A literal that does not fit i32 is i64.
    pub fn meet(&mut self, a: Val, b: Val, span: Span) -> Typ {
        let Some(t) = a.typ.meet(b.typ) else {
            self.report(bool_meets(a.typ, b.typ, span));
            return Typ::Error;
        };
        let big = |v: Val| {
            v.typ == Typ::Lit && build::literal_int(&self.g, v.id).is_some_and(|i| i32::try_from(i).is_err())
        };
        if t == Typ::I32 && (big(a) || big(b)) { Typ::I64 } else { t }
    }

    /// Applies a function to values that have one type; the result has type `to`.
    pub fn apply(&mut self, func: Func, args: &[Val], to: Typ, span: Span) -> Val {
        if args.iter().any(|a| a.typ == Typ::Error) {
            return self.poison();
        }
        let ids: Vec<ExprId> = args.iter().map(|a| a.id).collect();
        if args.iter().all(|a| a.typ != Typ::Open) {
            let id = build::call(&mut self.g, func, ids, span);
            return Val::new(to, id);
        }
        let wides: Vec<ExprId> = args.iter().map(|a| a.wide).collect();
        let wide = build::call(&mut self.g, func, wides, span);
        if to == Typ::Open {
            let id = self.narrow(wide, |g| build::call(g, func, ids, span));
            return Val::open(id, wide);
        }
        // A comparison or test: of constants in f64, otherwise in f32.
        let id = match build::literal(&self.g, wide) {
            Some(_) => wide,
            None => build::call(&mut self.g, func, ids, span),
        };
        Val::new(to, id)
    }

    pub fn choose(&mut self, c: Val, a: Val, b: Val, span: Span) -> Val {
        let t = self.meet(a, b, span);
        let (a, b) = (self.convert(a, t, span), self.convert(b, t, span));
        if [c.typ, a.typ, b.typ].contains(&Typ::Error) {
            return self.poison();
        }
        let id = build::select(&mut self.g, c.id, a.id, b.id, span);
        let wide = match t {
            Typ::Open => build::select(&mut self.g, c.id, a.wide, b.wide, span),
            _ => id,
        };
        Val { typ: t, id, wide, divided: a.divided || b.divided }
    }

    /// A cast that is written: `bf16(x)`, `i8(x)`, `bool(x)`.
    pub fn cast(&mut self, v: Val, dtype: DType, span: Span) -> Val {
        if v.typ == Typ::Error {
            return v;
        }
        let id = self.rounded(v, dtype, span);
        Val::new(Typ::of(dtype.compute()), id)
    }

    /// A value rounded to a dtype, in its compute type; from a wider type it is rounded once.
    fn rounded(&mut self, v: Val, dtype: DType, span: Span) -> ExprId {
        let to = dtype.compute();
        let from = if v.typ == Typ::Open && to == Ty::F64 { v.wide } else { v.id };
        let ty = self.g.ty(from);
        if dtype == to.stored() {
            return build::cast(&mut self.g, from, to, span);
        }
        if to != Ty::F32 {
            let id = build::cast(&mut self.g, from, to, span);
            return build::round(&mut self.g, dtype, id, span);
        }
        let exact = v.typ == Typ::Open && build::literal(&self.g, v.wide).is_some();
        let source = match ty {
            _ if exact => v.wide,
            Ty::F32 | Ty::F64 => from,
            Ty::Bool => build::cast(&mut self.g, from, Ty::F32, span),
            Ty::I32 | Ty::I64 => {
                // Exact in f32 below 2²⁴, otherwise through f64.
                let (lo, hi) = self.prover.iv(&self.g, from);
                let small = lo >= -(1 << 24) && hi <= 1 << 24;
                build::cast(&mut self.g, from, if small { Ty::F32 } else { Ty::F64 }, span)
            }
        };
        build::round(&mut self.g, dtype, source, span)
    }

    /// A value as it is stored in a tensor of `dtype`, in its compute type. The tensor rounds it, unless it is wider.
    pub fn store(&mut self, v: Val, dtype: DType, name: &str, span: Span) -> Option<ExprId> {
        if v.typ == Typ::Error {
            return None;
        }
        let bool_in = v.typ == Typ::Bool;
        if bool_in != (dtype == DType::Bool) {
            let d = Diagnostic::error(
                "E0302",
                span,
                format!("`{name}` is {}, this is {}", dtype.name(), v.typ.name()),
            );
            let help = match bool_in {
                true => {
                    format!("write {}({})", if dtype.is_float() { "f32" } else { "i32" }, self.value_at(span))
                }
                false => "write a comparison: … != 0".to_string(),
            };
            self.report(d.help(help));
            return None;
        }
        if v.typ.is_float() && dtype.is_int() {
            let what = format!(
                "`{name}` is {}, this is a float: a float becomes an integer only by a word",
                dtype.name()
            );
            let value = self.value_at(span);
            let mut help =
                format!("write {0}(round({value})) for the nearest, {0}({value}) to truncate", dtype.name());
            if let Some(start) = self.whole_start(name) {
                help = format!(
                    "`{name}` holds whole numbers since it starts as {start}: write {start}.0 there; or {help}"
                );
            }
            self.report(Diagnostic::error("E0304", span, what).help(help));
            return None;
        }
        if v.divided && dtype.is_float() {
            self.report(integer_division(span));
            return None;
        }
        let from = if v.typ == Typ::Open && dtype == DType::F64 { v.wide } else { v.id };
        let exact = v.typ == Typ::Open && build::literal(&self.g, v.wide).is_some();
        let (have, want) = (self.g.ty(from), dtype.compute());
        if have == want && !exact {
            return Some(from);
        }
        if dtype.is_float() {
            return Some(self.rounded(v, dtype, span));
        }
        Some(build::cast(&mut self.g, from, want, span))
    }

    /// The value of a constant expression; `None` if it is none.
    pub fn constant(&self, v: Val, dtype: DType) -> Option<Value> {
        let id = if v.typ == Typ::Open { v.wide } else { v.id };
        Some(host::round(build::literal(&self.g, id)?, dtype))
    }
}

fn bool_meets(a: Typ, b: Typ, span: Span) -> Diagnostic {
    let other = if a == Typ::Bool { b } else { a };
    Diagnostic::error("E0302", span, format!("a bool meets only bool, not {}", other.name()))
        .help("write i32(c) for 0 or 1, or `if c then … else …`")
}

fn integer_division(span: Span) -> Diagnostic {
    Diagnostic::error(
        "E0303",
        span,
        "integer division never turns into a float by itself: 1/N is 0 for N > 1",
    )
    .label("the quotient of integers is floored")
    .help("write 1.0/N to divide floats, or f32(1/N) if the floor is meant")
}
