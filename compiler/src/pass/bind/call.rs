//! Calls in expressions: built-in functions (a table), casts, and fns, whose bodies are built where they are called.

use super::build;
use super::elab::{Elab, Frame, Meaning};
use super::fold::is_fold;
use super::typ::{Typ, Val};
use crate::pass::module::{Callable, Found};
use crate::vocab::dtype::{DType, Ty};
use crate::vocab::func::Func;
use girih_dsl::ast::*;
use girih_dsl::diagnostic::Diagnostic;

/// How a built-in function treats its arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// n floats of one type give that type.
    Float(usize),
    /// A float gives a bool.
    Test,
    /// A number gives its type.
    Number,
    /// Two or more numbers give the type in which they meet.
    Many,
    Clamp,
    CeilDiv,
    Ldexp,
    Tf32,
    Bits,
    FromBits,
    /// (seed, counter)
    Random,
}

const FUNCTIONS: [(&str, Func, Shape); 44] = [
    ("abs", Func::Abs, Shape::Number),
    ("sign", Func::Sign, Shape::Number),
    ("min", Func::Min, Shape::Many),
    ("max", Func::Max, Shape::Many),
    ("clamp", Func::Max, Shape::Clamp),
    ("cdiv", Func::Div, Shape::CeilDiv),
    ("sqrt", Func::Sqrt, Shape::Float(1)),
    ("rsqrt", Func::Rsqrt, Shape::Float(1)),
    ("exp", Func::Exp, Shape::Float(1)),
    ("exp2", Func::Exp2, Shape::Float(1)),
    ("expm1", Func::Expm1, Shape::Float(1)),
    ("log", Func::Log, Shape::Float(1)),
    ("log2", Func::Log2, Shape::Float(1)),
    ("log10", Func::Log10, Shape::Float(1)),
    ("log1p", Func::Log1p, Shape::Float(1)),
    ("sin", Func::Sin, Shape::Float(1)),
    ("cos", Func::Cos, Shape::Float(1)),
    ("tan", Func::Tan, Shape::Float(1)),
    ("asin", Func::Asin, Shape::Float(1)),
    ("acos", Func::Acos, Shape::Float(1)),
    ("atan", Func::Atan, Shape::Float(1)),
    ("atan2", Func::Atan2, Shape::Float(2)),
    ("sinh", Func::Sinh, Shape::Float(1)),
    ("cosh", Func::Cosh, Shape::Float(1)),
    ("tanh", Func::Tanh, Shape::Float(1)),
    ("erf", Func::Erf, Shape::Float(1)),
    ("erfc", Func::Erfc, Shape::Float(1)),
    ("pow", Func::Pow, Shape::Float(2)),
    ("fma", Func::Fma, Shape::Float(3)),
    ("copysign", Func::Copysign, Shape::Float(2)),
    ("ldexp", Func::Ldexp, Shape::Ldexp),
    ("floor", Func::Floor, Shape::Float(1)),
    ("ceil", Func::Ceil, Shape::Float(1)),
    ("trunc", Func::Trunc, Shape::Float(1)),
    ("round", Func::Round, Shape::Float(1)),
    ("isnan", Func::IsNan, Shape::Test),
    ("isinf", Func::IsInf, Shape::Test),
    ("isfinite", Func::IsFinite, Shape::Test),
    ("tf32", Func::Tf32, Shape::Tf32),
    ("bits", Func::Bits, Shape::Bits),
    ("frombits", Func::FromBits, Shape::FromBits),
    ("uniform", Func::Uniform, Shape::Random),
    ("normal", Func::Normal, Shape::Random),
    ("randbits", Func::RandBits, Shape::Random),
];

/// Does a name stand for a function or a fold without an import?
pub fn is_built_in(name: &str) -> bool {
    is_fold(name) || FUNCTIONS.iter().any(|f| f.0 == name)
}

/// Is it a function of numbers?
fn is_function(name: &str) -> bool {
    FUNCTIONS.iter().any(|f| f.0 == name)
}

/// Arguments as they are written, named ones left out.
fn arguments(args: &[Arg]) -> String {
    let all: Vec<String> =
        args.iter().filter(|a| a.name.is_none()).map(|a| girih_dsl::print_expr(&a.value)).collect();
    all.join(", ")
}

/// `a, b` for two arguments.
fn parameters(n: usize) -> String {
    let names = ["a", "b", "c", "d", "e", "f"];
    if n == 1 { "x".into() } else { names[..n.min(6)].join(", ") }
}

/// The sentence that says where a name comes from.
fn to_import(library: Option<&str>) -> String {
    library.map_or(String::new(), |l| format!(" The library `{l}` has it: write `import {l}` at the top"))
}

impl Shape {
    fn takes(self, n: usize) -> bool {
        match self {
            Shape::Float(k) => n == k,
            Shape::Many => n >= 2,
            Shape::Clamp => n == 3,
            Shape::CeilDiv | Shape::Ldexp | Shape::Random => n == 2,
            Shape::Test | Shape::Number | Shape::Tf32 | Shape::Bits | Shape::FromBits => n == 1,
        }
    }

    fn count(self) -> &'static str {
        match self {
            Shape::Float(2) | Shape::CeilDiv | Shape::Ldexp | Shape::Random => "two arguments",
            Shape::Float(3) | Shape::Clamp => "three arguments",
            Shape::Many => "two or more arguments",
            _ => "one argument",
        }
    }
}

impl<'m> Elab<'m> {
    pub fn call(&mut self, lib: Option<&Name>, name: &Name, args: &[Arg], span: Span) -> Val {
        let (module, unit) = (self.module, self.frame().unit);
        let d = match module.callable(unit, lib.map(|l| l.text.as_str()), &name.text) {
            Found::One(Callable::Fn(u, f)) => return self.call_fn(u, f, args, span),
            Found::One(Callable::Op(_, op)) => {
                let d = Diagnostic::error(
                    "E0114",
                    span,
                    format!("`{}` is an op: its call is a whole right-hand side", name.text),
                );
                d.also(op.name.span, "defined here")
                    .help(format!("write t[…] = {}(…) as a statement, then read t", name.text))
            }
            Found::Clash(a, b) => {
                Diagnostic::error("E0109", name.span, format!("both {a} and {b} have `{}`", name.text))
                    .help(format!("write {a}.{0} or {b}.{0}", name.text))
            }
            Found::None => match self.built_in(lib, name, args, span) {
                Some(v) => return v,
                None => self.unknown_callable(lib, name, args),
            },
        };
        // Of a fold written like a function, the axes in its argument mean nothing yet.
        let like_a_fold = name.text.split_once('_').map_or(name.text.as_str(), |n| n.0);
        if !is_fold(like_a_fold) {
            for a in args {
                // An op of that name would have taken whole tensors.
                let whole = super::scan::bare(&a.value).and_then(|n| self.frame().names.get(&n.text));
                if !matches!(whole, Some(super::elab::Meaning::Tensor(_))) {
                    self.expr(&a.value);
                }
            }
        }
        self.wrong(d)
    }

    pub fn unknown_callable(&self, lib: Option<&Name>, name: &Name, args: &[Arg]) -> Diagnostic {
        let unit = self.frame().unit;
        if let Some(lib) = lib {
            let tensor = matches!(self.frame().names.get(&lib.text), Some(Meaning::Tensor(_)));
            let what = match self.module.imports_as(unit, &lib.text) {
                false if tensor => format!("`{}` is a tensor: it has no functions of its own", lib.text),
                true => format!("`{}` has no `{}`", lib.text, name.text),
                false => format!("`{}` is not imported", lib.text),
            };
            let d = Diagnostic::error("E0108", lib.span.to(name.span), what);
            if girih_dsl::library(&lib.text).is_none() {
                return d.help(self.without_library(name, args));
            }
            let near = super::read::nearest_name(&name.text, girih_dsl::library_items(&lib.text));
            return d.help(match (girih_dsl::library_has(&lib.text, &name.text), near) {
                (true, _) => format!("write `import {}` at the top", lib.text),
                (false, Some(n)) if self.module.imports_as(unit, &lib.text) => {
                    format!("did you mean `{}.{n}`?", lib.text)
                }
                (false, Some(n)) => format!("write `import {0}` at the top, and {0}.{n}", lib.text),
                (false, None) => self.by_another_name(name, args),
            });
        }
        if is_fold(&name.text) {
            let what = format!("`{}` is a fold: its axes stand in brackets", name.text);
            let d = Diagnostic::error("E0108", name.span, what);
            return d.help(self.fold_help(&name.text, args));
        }
        let kind = if args.iter().any(|a| self.whole_rows(&a.value).is_some()) { "op" } else { "function" };
        let d = Diagnostic::error("E0108", name.span, format!("there is no {kind} `{}`", name.text));
        if let Some(library) = girih_dsl::library_with(&name.text) {
            return d.help(format!("the library `{library}` has it: write `import {library}` at the top"));
        }
        if let Some(Meaning::Tensor(view)) = self.frame().names.get(&name.text) {
            let form = self.likely_indices(view).join(", ");
            return d.help(format!("`{0}` is a tensor, indices stand in brackets: {0}[{form}]", name.text));
        }
        d.help(self.by_another_name(name, args))
    }

    /// The help for a name that nothing here has: what it is called, or how it is written.
    fn by_another_name(&self, name: &Name, args: &[Arg]) -> String {
        let word = name.text.as_str();
        let called = |ours: &str| format!("it is called `{ours}` here: write {ours}({})", arguments(args));
        if let Some((ours, library)) = self.spelled_like(word) {
            return format!("did you mean `{ours}`?{}", to_import(library));
        }
        let known = |w: &str| {
            is_built_in(w) || matches!(self.module.callable(self.frame().unit, None, w), Found::One(_))
        };
        if let Some(ours) = girih_dsl::foreign::renamed_function(word, &known) {
            let fold = is_fold(&ours) && (args.len() < 2 || !is_function(&ours));
            return if fold { self.fold_help(&ours, args) } else { called(&ours) };
        }
        if let Some((fold, axis)) = word.split_once('_').filter(|(fold, _)| is_fold(fold)) {
            let body = args.first().map_or("…".to_string(), |a| girih_dsl::print_expr(&a.value));
            return format!("the axes of a fold stand in brackets: write {fold}[{axis}]({body})");
        }
        if let Some(help) = girih_dsl::foreign::function(word) {
            return help;
        }
        let known = FUNCTIONS.iter().map(|f| f.0).chain(self.module.callable_names(self.frame().unit));
        if let Some(n) = super::read::nearest(word, known) {
            return format!("did you mean `{n}`?");
        }
        if self.frame().names.contains_key(word) {
            return format!("`{word}` is a tensor or a number: its elements are read by {word}[…]");
        }
        match self.op_like(word) {
            Some((op, library)) => format!("did you mean `{op}`?{}", to_import(library)),
            None if args.iter().any(|a| self.whole_rows(&a.value).is_some()) => {
                format!(
                    "define it: op {word}[…](…) -> (…) {{ … }}, or see the libraries: {}",
                    super::super::module::libraries()
                )
            }
            None => format!("define it beside the op: fn {word}({}) = …", parameters(args.len())),
        }
    }

    /// A callable whose name differs in case and `_` alone, and the library that is to be imported for it.
    fn spelled_like(&self, word: &str) -> Option<(&str, Option<&'static str>)> {
        let plain = |w: &str| w.replace('_', "").to_lowercase();
        let mut here = FUNCTIONS.iter().map(|f| f.0).chain(self.module.callable_names(self.frame().unit));
        if let Some(n) = here.find(|n| plain(n) == plain(word)) {
            return Some((n, None));
        }
        girih_dsl::library_names()
            .find_map(|l| girih_dsl::library_items(l).find(|n| plain(n) == plain(word)).map(|n| (n, Some(l))))
    }

    /// A callable with a name like this one, and the library that is to be imported for it.
    pub fn op_like(&self, word: &str) -> Option<(&str, Option<&'static str>)> {
        if let Some((op, library)) = self.spelled_like(word).filter(|(n, _)| !is_built_in(n)) {
            return Some((op, library));
        }
        let all: Vec<(&str, &'static str)> = girih_dsl::library_names()
            .flat_map(|l| girih_dsl::library_items(l).map(move |n| (n, l)))
            .collect();
        let near = super::read::nearest_name(word, all.iter().map(|(n, _)| *n))?;
        let here = self.module.callable_names(self.frame().unit).any(|n| n == near);
        let library = all.iter().find(|(n, _)| *n == near).map(|(_, l)| *l);
        Some((near, library.filter(|_| !here)))
    }

    /// The help for `np.exp(…)`: what is there without a library.
    fn without_library(&self, name: &Name, args: &[Arg]) -> String {
        let function = FUNCTIONS.iter().any(|f| f.0 == name.text);
        if is_fold(&name.text) && (!function || self.fold_form(&name.text, args).is_some()) {
            return format!("folds need no import: {}", self.fold_help(&name.text, args));
        }
        let unit = self.frame().unit;
        if function || matches!(self.module.callable(unit, None, &name.text), Found::One(_)) {
            return format!("functions need no import: write {}({})", name.text, arguments(args));
        }
        match (girih_dsl::foreign::function(&name.text), girih_dsl::library_with(&name.text)) {
            (Some(help), _) => help,
            (None, Some(library)) => {
                format!(
                    "the library `{library}` has it: write `import {library}` at the top, then {}(…)",
                    name.text
                )
            }
            (None, None) => format!("there is no such library; {}", self.by_another_name(name, args)),
        }
    }

    /// A built-in function or a cast; `None` if the name is neither.
    fn built_in(&mut self, lib: Option<&Name>, name: &Name, args: &[Arg], span: Span) -> Option<Val> {
        if lib.is_some() {
            return None;
        }
        let own = self.frames.iter().rev().find(|f| !f.is_fn).and_then(|f| f.dtypes.get(&name.text).copied());
        if let Some(dtype) = own.or_else(|| DType::parse(&name.text)) {
            return Some(match self.plain_args(name, args, |n| n == 1, "one argument") {
                Some(v) => self.cast(v[0], dtype, span),
                None => self.poison(),
            });
        }
        let &(_, func, shape) = FUNCTIONS.iter().find(|f| f.0 == name.text)?;
        if shape == Shape::Many
            && let Some(ExprKind::Read { name: tensor, index: None }) = args.first().map(|a| &a.value.kind)
            && let Some(form) = self.fold_form(&name.text, args)
        {
            let what =
                format!("`{}` is the whole tensor: `{}` here compares two numbers", tensor.text, name.text);
            let d = Diagnostic::error("E0105", tensor.span, what);
            return Some(self.wrong(d.help(format!("over an axis it is a fold: write {form}"))));
        }
        let Some(v) = self.plain_args(name, args, |n| shape.takes(n), shape.count()) else {
            return Some(self.poison());
        };
        if v.iter().any(|v| v.typ == Typ::Error) {
            return Some(self.poison());
        }
        Some(self.function(func, shape, &v, name, span))
    }

    /// Arguments by position, of the right number.
    fn plain_args(
        &mut self,
        name: &Name,
        args: &[Arg],
        takes: impl Fn(usize) -> bool,
        count: &str,
    ) -> Option<Vec<Val>> {
        let values: Vec<Val> = args.iter().map(|a| self.expr(&a.value)).collect();
        if let Some(named) = args.iter().find_map(|a| a.name.as_ref()) {
            let d = Diagnostic::error(
                "E0112",
                named.span,
                format!("`{}` takes its arguments by position", name.text),
            );
            self.report(d.help(format!("leave `{} =` out", named.text)));
            return None;
        }
        if !takes(values.len()) {
            let d = Diagnostic::error(
                "E0111",
                name.span,
                format!("`{}` takes {count}, not {}", name.text, values.len()),
            );
            self.report(match is_fold(&name.text) {
                true => d.help(format!("over an axis it is a fold: {}", self.fold_help(&name.text, args))),
                false if matches!(name.text.as_str(), "uniform" | "normal" | "randbits") => d.help(format!(
                    "give it a seed and a counter: write `{}(seed, i)`, with a parameter `seed: i64`",
                    name.text
                )),
                false => d.help(format!("give it {count}")),
            });
            return None;
        }
        Some(values)
    }

    fn function(&mut self, func: Func, shape: Shape, v: &[Val], name: &Name, span: Span) -> Val {
        if let Some(b) = v.iter().find(|v| v.typ == Typ::Bool) {
            let what = format!("`{}` works on numbers, this is {}", name.text, b.typ.name());
            return self.wrong(Diagnostic::error("E0302", span, what).help("write i32(c)"));
        }
        match shape {
            Shape::Float(_) | Shape::Test | Shape::Tf32 | Shape::Bits => {
                let mut t = v.iter().fold(Typ::Lit, |t, v| t.meet(v.typ).unwrap_or(Typ::Error)).as_float();
                if shape == Shape::Tf32 || (shape == Shape::Bits && t == Typ::Open) {
                    t = if shape == Shape::Tf32 && t == Typ::F64 { Typ::F64 } else { Typ::F32 };
                }
                if shape == Shape::Tf32 && t == Typ::F64 {
                    let d = Diagnostic::error("E0306", span, "tf32 rounds an f32, this is f64");
                    return self.wrong(d.help("write tf32(f32(x))"));
                }
                let args: Vec<Val> = v.iter().map(|&a| self.convert(a, t, span)).collect();
                let to = match shape {
                    Shape::Test => Typ::Bool,
                    Shape::Bits if t == Typ::F64 => Typ::I64,
                    Shape::Bits => Typ::I32,
                    _ => t,
                };
                self.apply(func, &args, to, span)
            }
            Shape::Number => Val { divided: v[0].divided, ..self.apply(func, v, v[0].typ, span) },
            Shape::Many => self.many(func, v, span),
            Shape::Clamp => {
                let low = self.many(Func::Max, &v[..2], span);
                self.many(Func::Min, &[low, v[2]], span)
            }
            Shape::CeilDiv => self.ceil_div(v, name, span),
            Shape::Ldexp => {
                let t = v[0].typ.as_float();
                let x = self.convert(v[0], t, span);
                if !v[1].typ.is_int() {
                    let d = Diagnostic::error("E0306", span, "the exponent of ldexp is an integer");
                    return self.wrong(d.help("write ldexp(x, i32(n))"));
                }
                let n = build::cast(&mut self.g, v[1].id, Ty::I32, span);
                self.apply_mixed(func, x, n, t, span)
            }
            Shape::FromBits => {
                let t = match v[0].typ {
                    Typ::Lit | Typ::I32 => Typ::I32,
                    Typ::Index | Typ::I64 => Typ::I64,
                    t => {
                        let d = Diagnostic::error(
                            "E0306",
                            span,
                            format!("frombits takes i32 or i64, this is {}", t.name()),
                        );
                        return self.wrong(d.help("write frombits(i32(x))"));
                    }
                };
                let x = self.convert(v[0], t, span);
                self.apply(func, &[x], if t == Typ::I32 { Typ::F32 } else { Typ::F64 }, span)
            }
            Shape::Random => {
                if let Some(bad) = v.iter().find(|v| !v.typ.is_int()) {
                    let what = format!(
                        "`{}` takes an integer seed and counter, this is {}",
                        name.text,
                        bad.typ.name()
                    );
                    return self.wrong(Diagnostic::error("E0306", span, what).help("write i64(x)"));
                }
                let args: Vec<Val> = v.iter().map(|&a| self.convert(a, Typ::I64, span)).collect();
                self.apply(func, &args, if func == Func::RandBits { Typ::I64 } else { Typ::F32 }, span)
            }
        }
    }

    /// A function of a float and an I32, for both forms of an open float.
    fn apply_mixed(&mut self, func: Func, x: Val, n: crate::ir::graph::ExprId, t: Typ, span: Span) -> Val {
        if x.typ == Typ::Error {
            return x;
        }
        let id = build::call(&mut self.g, func, vec![x.id, n], span);
        let wide = match t {
            Typ::Open => build::call(&mut self.g, func, vec![x.wide, n], span),
            _ => id,
        };
        Val { typ: t, id, wide, divided: false }
    }

    fn many(&mut self, func: Func, v: &[Val], span: Span) -> Val {
        let mut acc = v[0];
        for &next in &v[1..] {
            let t = self.meet(acc, next, span);
            let (a, b) = (self.convert(acc, t, span), self.convert(next, t, span));
            acc = Val { divided: a.divided || b.divided, ..self.apply(func, &[a, b], t, span) };
        }
        acc
    }

    /// ⌈a/b⌉ = −⌊−a/b⌋
    fn ceil_div(&mut self, v: &[Val], name: &Name, span: Span) -> Val {
        let t = self.meet(v[0], v[1], span);
        if !t.is_int() {
            let what = format!("`{}` divides integers, this is {}", name.text, t.name());
            return self.wrong(Diagnostic::error("E0306", span, what).help("write ceil(a / b)"));
        }
        let (a, b) = (self.convert(v[0], t, span), self.convert(v[1], t, span));
        let minus = self.apply(Func::Neg, &[a], t, span);
        let q = self.apply(Func::Div, &[minus, b], t, span);
        self.apply(Func::Neg, &[q], t, span)
    }

    fn call_fn(&mut self, unit: usize, f: &'m Function, args: &[Arg], span: Span) -> Val {
        let names: Vec<&str> = f.params.iter().map(|p| p.text.as_str()).collect();
        let count = match names.len() {
            1 => "one argument".to_string(),
            n => format!("{n} arguments ({})", names.join(", ")),
        };
        let Some(values) = self.plain_args(&f.name, args, |n| n == names.len(), &count) else {
            return self.poison();
        };
        self.inline_fn(unit, f, values, span)
    }

    /// The body of a fn for these arguments.
    pub fn inline_fn(&mut self, unit: usize, f: &'m Function, args: Vec<Val>, span: Span) -> Val {
        let key = format!("fn {unit} {}", f.name.text);
        if self.calls.len() > 48 {
            let at = self.sites.first().copied().unwrap_or(span);
            return self.wrong(super::elab::too_much(at));
        }
        if self.calls.contains(&key) {
            let d = Diagnostic::error("E0113", span, format!("`{}` calls itself", f.name.text));
            return self.wrong(
                d.also(f.name.span, "defined here")
                    .help("fns are not recursive: write a recurrence over an axis"),
            );
        }
        let mut frame = Frame { unit, is_fn: true, ..Default::default() };
        for (p, v) in f.params.iter().zip(args) {
            frame.names.insert(p.text.clone(), Meaning::Value(v, None));
            frame.taken.insert(p.text.clone(), p.span);
        }
        self.calls.push(key);
        self.sites.push(span);
        self.frames.push(frame);
        let v = self.expr(&f.body);
        self.frames.pop();
        self.sites.pop();
        self.calls.pop();
        v
    }
}
