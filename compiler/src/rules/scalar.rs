//! Rules on scalars: patterns with conditions. `?a`, `?b`, `?c` are values, the constants are named by what is asked
//! of them.

use super::Class::{Exact, Relaxed};
use super::{Known, Row};
use crate::vocab::dtype::{Ty, Value};

const fn row(
    name: &'static str,
    class: super::Class,
    from: &'static str,
    to: &'static str,
    when: super::When,
) -> Row {
    Row { name, class, from, to, when }
}

pub static TABLE: [Row; 51] = [
    // a · 1 = 1 · a = a / 1 = a
    row("mul-one", Exact, "(* ?a ?one)", "?a", |k| is(k, "?one", 1.0)),
    row("one-mul", Exact, "(* ?one ?a)", "?a", |k| is(k, "?one", 1.0)),
    row("div-one", Exact, "(/ ?a ?one)", "?a", |k| is(k, "?one", 1.0)),
    // a − 0 = a (+0 for floats); a + (−0) = a; integers: a + 0 = a
    row("sub-zero", Exact, "(- ?a ?zero)", "?a", |k| is_positive_zero(k, "?zero")),
    row("add-zero", Exact, "(+ ?a ?zero)", "?a", |k| adds_nothing(k, "?zero")),
    row("zero-add", Exact, "(+ ?zero ?a)", "?a", |k| adds_nothing(k, "?zero")),
    // integers: a · 0 = 0, a − a = 0
    row("int-mul-zero", Exact, "(* ?a ?zero)", "?zero", |k| {
        int(k, "?a") && is(k, "?zero", 0.0) && !k.facts("?a").faults
    }),
    row("int-zero-mul", Exact, "(* ?zero ?a)", "?zero", |k| {
        int(k, "?a") && is(k, "?zero", 0.0) && !k.facts("?a").faults
    }),
    // −(−a) = a; a − (−b) = a + b; a + (−b) = a − b
    row("neg-neg", Exact, "(neg (neg ?a))", "?a", always),
    row("sub-neg", Exact, "(- ?a (neg ?b))", "(+ ?a ?b)", always),
    row("add-neg", Exact, "(+ ?a (neg ?b))", "(- ?a ?b)", always),
    // (−a) · (−b) = a · b; (−a) / (−b) = a / b (floats: integer quotients floor)
    row("mul-neg-neg", Exact, "(* (neg ?a) (neg ?b))", "(* ?a ?b)", always),
    row("div-neg-neg", Exact, "(/ (neg ?a) (neg ?b))", "(/ ?a ?b)", |k| float(k, "?a")),
    // |−a| = |a|, | |a| | = |a|; (−a)² = a² follows from mul-neg-neg
    row("abs-neg", Exact, "(abs (neg ?a))", "(abs ?a)", always),
    row("abs-abs", Exact, "(abs (abs ?a))", "(abs ?a)", always),
    // max(a, a) = a, min(a, a) = a
    row("max-same", Exact, "(max ?a ?a)", "?a", always),
    row("min-same", Exact, "(min ?a ?a)", "?a", always),
    // max(max(a, b), b) = max(a, b)
    row("max-absorb", Exact, "(max (max ?a ?b) ?b)", "(max ?a ?b)", always),
    row("min-absorb", Exact, "(min (min ?a ?b) ?b)", "(min ?a ?b)", always),
    // if true then a else b = a; if false then a else b = b; if c then a else a = a
    row("select-true", Exact, "(select ?c ?a ?b)", "?a", |k| truth(k, "?c") == Some(true)),
    row("select-false", Exact, "(select ?c ?a ?b)", "?b", |k| truth(k, "?c") == Some(false)),
    row("select-same", Exact, "(select ?c ?a ?a)", "?a", |k| !k.facts("?c").faults),
    // if !c then a else b = if c then b else a
    row("select-not", Exact, "(select (! ?c) ?a ?b)", "(select ?c ?b ?a)", always),
    // if c then (if c then a else b) else d = if c then a else d, and on the other side
    row("select-again", Exact, "(select ?c (select ?c ?a ?b) ?d)", "(select ?c ?a ?d)", always),
    row("select-still", Exact, "(select ?c ?a (select ?c ?b ?d))", "(select ?c ?a ?d)", always),
    // if c then true else false = c
    row("select-bool", Exact, "(select ?c ?t ?f)", "?c", |k| {
        truth(k, "?t") == Some(true) && truth(k, "?f") == Some(false)
    }),
    // rounding twice to one dtype = rounding once, whichever may move
    row("round-bf16-twice", Exact, "(round_bf16 (round_bf16 ?a))", "(round_bf16 ?a)", always),
    row("round-bf16-local-twice", Exact, "(local_bf16 (local_bf16 ?a))", "(local_bf16 ?a)", always),
    row("round-bf16-in-local", Exact, "(local_bf16 (round_bf16 ?a))", "(round_bf16 ?a)", always),
    row("round-bf16-of-local", Exact, "(round_bf16 (local_bf16 ?a))", "(local_bf16 ?a)", always),
    row("round-f16-twice", Exact, "(round_f16 (round_f16 ?a))", "(round_f16 ?a)", always),
    row("round-f16-local-twice", Exact, "(local_f16 (local_f16 ?a))", "(local_f16 ?a)", always),
    row("round-f16-in-local", Exact, "(local_f16 (round_f16 ?a))", "(round_f16 ?a)", always),
    row("round-f16-of-local", Exact, "(round_f16 (local_f16 ?a))", "(local_f16 ?a)", always),
    row("round-e4m3-twice", Exact, "(round_e4m3 (round_e4m3 ?a))", "(round_e4m3 ?a)", always),
    row("round-e4m3-local-twice", Exact, "(local_e4m3 (local_e4m3 ?a))", "(local_e4m3 ?a)", always),
    row("round-e4m3-in-local", Exact, "(local_e4m3 (round_e4m3 ?a))", "(round_e4m3 ?a)", always),
    row("round-e4m3-of-local", Exact, "(round_e4m3 (local_e4m3 ?a))", "(local_e4m3 ?a)", always),
    row("round-e5m2-twice", Exact, "(round_e5m2 (round_e5m2 ?a))", "(round_e5m2 ?a)", always),
    row("round-e5m2-local-twice", Exact, "(local_e5m2 (local_e5m2 ?a))", "(local_e5m2 ?a)", always),
    row("round-e5m2-in-local", Exact, "(local_e5m2 (round_e5m2 ?a))", "(round_e5m2 ?a)", always),
    row("round-e5m2-of-local", Exact, "(round_e5m2 (local_e5m2 ?a))", "(local_e5m2 ?a)", always),
    // an f16 value that is rounded to f16 after its sign changed is exact; so is |a|
    row("round-f16-neg", Exact, "(round_f16 (neg (round_f16 ?a)))", "(neg (round_f16 ?a))", always),
    row("local-f16-neg", Exact, "(local_f16 (neg (local_f16 ?a)))", "(neg (local_f16 ?a))", always),
    row("round-f16-neg-in-local", Exact, "(local_f16 (neg (round_f16 ?a)))", "(neg (round_f16 ?a))", always),
    row("round-bf16-neg", Exact, "(round_bf16 (neg (round_bf16 ?a)))", "(neg (round_bf16 ?a))", always),
    row("local-bf16-neg", Exact, "(local_bf16 (neg (local_bf16 ?a)))", "(neg (local_bf16 ?a))", always),
    row(
        "round-bf16-neg-in-local",
        Exact,
        "(local_bf16 (neg (round_bf16 ?a)))",
        "(neg (round_bf16 ?a))",
        always,
    ),
    // log(exp a) = a; exp a / exp b = exp(a − b); a / √b = a · rsqrt b
    row("log-exp", Relaxed, "(log (exp ?a))", "?a", always),
    row("exp-div", Relaxed, "(/ (exp ?a) (exp ?b))", "(exp (- ?a ?b))", always),
    row("div-sqrt", Relaxed, "(/ ?a (sqrt ?b))", "(* ?a (rsqrt ?b))", always),
];

/// The other order of two operands: what the search for stored values needs to know that two spellings are one value.
/// The rewriting of single statements does without: it would have nothing to choose by.
pub static ORDERS: [Row; 4] = [
    // a · b = b · a; a + b = b + a; max(a, b) = max(b, a); min(a, b) = min(b, a)
    row("mul-order", Exact, "(* ?a ?b)", "(* ?b ?a)", always),
    row("add-order", Exact, "(+ ?a ?b)", "(+ ?b ?a)", always),
    row("max-order", Exact, "(max ?a ?b)", "(max ?b ?a)", always),
    row("min-order", Exact, "(min ?a ?b)", "(min ?b ?a)", always),
];

fn always(_: &Known<'_>) -> bool {
    true
}

fn int(k: &Known<'_>, var: &str) -> bool {
    k.facts(var).ty.is_some_and(Ty::is_int)
}

fn float(k: &Known<'_>, var: &str) -> bool {
    k.facts(var).ty.is_some_and(Ty::is_float)
}

/// Is it this number, of whatever type? (Zero of either sign.)
fn is(k: &Known<'_>, var: &str, n: f64) -> bool {
    match k.facts(var).constant {
        Some(Value::F32(v)) => v as f64 == n,
        Some(Value::F64(v)) => v == n,
        Some(Value::I32(v)) => v as f64 == n,
        Some(Value::I64(v)) => v as f64 == n,
        _ => false,
    }
}

fn is_positive_zero(k: &Known<'_>, var: &str) -> bool {
    match k.facts(var).constant {
        Some(Value::F32(v)) => v.to_bits() == 0,
        Some(Value::F64(v)) => v.to_bits() == 0,
        Some(Value::I32(0) | Value::I64(0)) => true,
        _ => false,
    }
}

/// −0 of floats, 0 of integers.
fn adds_nothing(k: &Known<'_>, var: &str) -> bool {
    match k.facts(var).constant {
        Some(Value::F32(v)) => v == 0.0 && v.is_sign_negative(),
        Some(Value::F64(v)) => v == 0.0 && v.is_sign_negative(),
        Some(Value::I32(0) | Value::I64(0)) => true,
        _ => false,
    }
}

fn truth(k: &Known<'_>, var: &str) -> Option<bool> {
    match k.facts(var).constant {
        Some(Value::Bool(b)) => Some(b),
        _ => None,
    }
}
