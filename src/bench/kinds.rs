//! The kinds of workloads that the peers' benchmark knows, each as an operator of `kinds.tile` with its sizes. One row a kind.

use crate::error::{Error, Result};
use regex_lite::Regex;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// One workload of a suite file.
#[derive(Clone, Debug, Deserialize)]
pub struct Workload {
    pub id: String,
    pub kind: String,
    pub args: Vec<Value>,
}

/// An operator with everything that binds it, and its cost as the peers count it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Case {
    pub op: String,
    pub dims: Vec<(&'static str, i64)>,
    pub consts: Vec<(&'static str, String)>,
    pub flop: i64,
    /// Factors on the random normal inputs, by input; 1 for the others.
    pub scales: Vec<(&'static str, f64)>,
    /// Integer inputs with given values: `name[i] = (i + 1) * step`.
    pub ramps: Vec<(&'static str, i64)>,
}

/// The arguments of a workload, read one after the other.
struct Args<'a> {
    workload: &'a Workload,
    next: usize,
}

impl Args<'_> {
    fn value(&mut self) -> Option<&Value> {
        self.next += 1;
        self.workload.args.get(self.next - 1)
    }

    fn int(&mut self) -> Result<i64> {
        let (id, at) = (self.workload.id.clone(), self.next + 1);
        let found = self.value().and_then(Value::as_i64);
        found.ok_or_else(|| Error::argument(id, format!("argument {at} is not a whole number")))
    }

    fn word(&mut self) -> Result<String> {
        let (id, at) = (self.workload.id.clone(), self.next + 1);
        let found = self.value().and_then(Value::as_str).map(str::to_string);
        found.ok_or_else(|| Error::argument(id, format!("argument {at} is not a word")))
    }

    fn int_or(&mut self, default: i64) -> i64 {
        self.value().and_then(Value::as_i64).unwrap_or(default)
    }

    fn word_or(&mut self, default: &str) -> String {
        self.value().and_then(Value::as_str).unwrap_or(default).to_string()
    }

    fn flag(&mut self) -> bool {
        self.value().and_then(Value::as_bool).unwrap_or(false)
    }
}

type Kind = fn(&mut Args) -> Result<Case>;

const KINDS: [(&str, Kind); 16] = [
    ("gemm", gemm),
    ("linear_act", linear_act),
    ("swiglu_up", swiglu_up),
    ("gemm_fp8", gemm_fp8),
    ("gemm_i8", gemm_i8),
    ("w4_gemm", w4_gemm),
    ("rowop", rowop),
    ("rope", rope),
    ("attention", attention),
    ("conv", conv),
    ("bmm", bmm),
    ("grouped", grouped),
    ("stencil", stencil),
    ("sorted_rows", sorted_rows),
    ("embed_grad", embed_grad),
    ("lstm", lstm),
];

/// The workloads of a suite file, those whose names match.
pub fn suite(path: &Path, only: Option<&str>) -> Result<Vec<Workload>> {
    let mut all: Vec<Workload> = serde_json::from_str(&crate::kernel::read(path)?)
        .map_err(|e| Error::file(path, format!("is no suite: {e}")))?;
    let regex = Regex::new(only.unwrap_or(""))
        .map_err(|e| Error::argument("only", format!("is no regular expression: {e}")))?;
    let known = all.len();
    all.retain(|w| regex.is_match(&w.id));
    match (all.is_empty(), only) {
        (true, Some(only)) => {
            Err(Error::argument("only", format!("none of {known} workloads is named like {only}")))
        }
        _ => Ok(all),
    }
}

/// The operator for a workload.
pub fn case(workload: &Workload) -> Result<Case> {
    let kind = KINDS.iter().find(|k| k.0 == workload.kind);
    let known = || KINDS.map(|k| k.0).join(", ");
    let kind = kind.ok_or_else(|| {
        Error::argument(
            &workload.id,
            format!("there is no kind {}: the kinds are {}", workload.kind, known()),
        )
    })?;
    kind.1(&mut Args { workload, next: 0 })
}

fn typed(name: &'static str, dtype: String) -> Vec<(&'static str, String)> {
    vec![(name, dtype)]
}

/// The weights of a sum of K terms are scaled so that the sum stays of the order of 1.
fn weight(name: &'static str, k: i64) -> Vec<(&'static str, f64)> {
    vec![(name, (k.max(1) as f64).powf(-0.5))]
}

fn mnk(a: &mut Args) -> Result<(Vec<(&'static str, i64)>, i64)> {
    let (m, n, k) = (a.int()?, a.int()?, a.int()?);
    Ok((vec![("M", m), ("N", n), ("K", k)], 2 * m * n * k))
}

fn gemm(a: &mut Args) -> Result<Case> {
    let (dims, flop) = mnk(a)?;
    let scales = weight("w", dims[2].1);
    let consts = typed("T", a.word()?);
    Ok(Case { op: format!("gemm_{}", a.word_or("nt")), dims, consts, flop, scales, ..Case::default() })
}

fn linear_act(a: &mut Args) -> Result<Case> {
    let (dims, flop) = mnk(a)?;
    let scales = weight("w", dims[2].1);
    let consts = typed("T", a.word()?);
    Ok(Case { op: format!("linear_{}", a.word()?), dims, consts, flop, scales, ..Case::default() })
}

fn swiglu_up(a: &mut Args) -> Result<Case> {
    let (dims, flop) = mnk(a)?;
    let scales = [weight("g", dims[2].1), weight("u", dims[2].1)].concat();
    let consts = typed("T", a.word()?);
    Ok(Case { op: "swiglu_up".into(), dims, consts, flop: 2 * flop, scales, ..Case::default() })
}

fn gemm_fp8(a: &mut Args) -> Result<Case> {
    let (dims, flop) = mnk(a)?;
    let scales = weight("w", dims[2].1);
    Ok(Case { op: "gemm_fp8".into(), dims, flop, scales, ..Case::default() })
}

fn gemm_i8(a: &mut Args) -> Result<Case> {
    let (dims, flop) = mnk(a)?;
    Ok(Case { op: "gemm_i8".into(), dims, flop, ..Case::default() })
}

fn w4_gemm(a: &mut Args) -> Result<Case> {
    let (mut dims, flop) = mnk(a)?;
    let scales = weight("scale", dims[2].1);
    dims.push(("GS", a.int_or(128)));
    Ok(Case { op: "w4_gemm".into(), dims, flop, scales, ..Case::default() })
}

fn rowop(a: &mut Args) -> Result<Case> {
    let op = a.word()?;
    let dims = vec![("M", a.int()?), ("N", a.int()?)];
    let mut consts = typed("T", a.word()?);
    if op == "dropout_add" {
        consts.push(("seed", "1".into()));
    }
    Ok(Case { op, dims, consts, ..Case::default() })
}

fn rope(a: &mut Args) -> Result<Case> {
    let dims = vec![("B", a.int()?), ("H", a.int()?), ("S", a.int()?), ("D", a.int()?)];
    Ok(Case { op: "rope".into(), dims, consts: typed("T", a.word()?), ..Case::default() })
}

fn attention(a: &mut Args) -> Result<Case> {
    let (b, h, kv, s, t, d) = (a.int()?, a.int()?, a.int()?, a.int()?, a.int()?, a.int()?);
    let causal = a.flag();
    let mut consts = typed("T", a.word()?);
    consts.push(("causal", causal.to_string()));
    let dims = vec![("B", b), ("H", kv), ("G", h / kv.max(1)), ("S", s), ("L", t), ("D", d)];
    let flop = 4 * b * h * s * t * d / if causal { 2 } else { 1 };
    Ok(Case { op: "attention".into(), dims, consts, flop, ..Case::default() })
}

fn conv(a: &mut Args) -> Result<Case> {
    let (n, c, hw, f, r, st, pad) = (a.int()?, a.int()?, a.int()?, a.int()?, a.int()?, a.int()?, a.int()?);
    let p = (hw + 2 * pad - r) / st.max(1) + 1;
    let dims = vec![
        ("N", n),
        ("H", hw),
        ("W", hw),
        ("C", c),
        ("F", f),
        ("R", r),
        ("S", r),
        ("st", st),
        ("pad", pad),
    ];
    let (consts, scales) = (typed("T", a.word()?), weight("w", c * r * r));
    Ok(Case {
        op: "conv".into(),
        dims,
        consts,
        flop: 2 * n * f * p * p * c * r * r,
        scales,
        ..Case::default()
    })
}

fn bmm(a: &mut Args) -> Result<Case> {
    let (b, m, n, k) = (a.int()?, a.int()?, a.int()?, a.int()?);
    let dims = vec![("B", b), ("M", m), ("N", n), ("K", k)];
    let (consts, scales) = (typed("T", a.word()?), weight("w", k));
    Ok(Case { op: "bmm".into(), dims, consts, flop: 2 * b * m * n * k, scales, ..Case::default() })
}

fn grouped(a: &mut Args) -> Result<Case> {
    let (e, m, n, k) = (a.int()?, a.int()?, a.int()?, a.int()?);
    let dims = vec![("R", e * m), ("E", e), ("N", n), ("K", k)];
    let (consts, scales) = (typed("T", a.word()?), weight("w", k));
    let ramps = vec![("off", m)];
    Ok(Case { op: "grouped".into(), dims, consts, flop: 2 * e * m * n * k, scales, ramps })
}

fn stencil(a: &mut Args) -> Result<Case> {
    let op = format!("stencil_{}", a.word()?);
    let dims = vec![("N", a.int()?)];
    Ok(Case { op, dims, consts: typed("T", a.word()?), ..Case::default() })
}

fn sorted_rows(a: &mut Args) -> Result<Case> {
    let op = a.word()?;
    let mut dims = vec![("M", a.int()?), ("N", a.int()?)];
    let consts = typed("T", a.word()?);
    if op == "topk" {
        dims.push(("K", a.int()?));
    }
    Ok(Case { op, dims, consts, ..Case::default() })
}

fn embed_grad(a: &mut Args) -> Result<Case> {
    let dims = vec![("V", a.int()?), ("R", a.int()?), ("D", a.int()?)];
    Ok(Case { op: "embed_grad".into(), dims, consts: typed("T", a.word()?), ..Case::default() })
}

fn lstm(a: &mut Args) -> Result<Case> {
    let (t, b, h) = (a.int()?, a.int()?, a.int()?);
    let dims = vec![("T", t), ("B", b), ("H", h)];
    let scales = [weight("wi", h), weight("wh", h)].concat();
    let consts = typed("X", a.word()?);
    Ok(Case { op: "lstm".into(), dims, consts, flop: 16 * t * b * h * h, scales, ..Case::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kernel;

    #[test]
    fn every_workload_of_the_suite_binds() {
        let suite: Vec<Workload> =
            serde_json::from_str(include_str!("../../tests/peers/suite.json")).expect("the suite is JSON");
        assert!(suite.len() > 60);
        let kernel = Kernel::from_text("kinds.tile", super::super::KINDS_TEXT).expect("kinds.tile is right");
        for w in &suite {
            let bound = super::super::op_of(&kernel, &case(w).expect(&w.id)).and_then(|op| op.bind());
            assert!(bound.is_ok(), "{}: {}", w.id, bound.err().map_or(String::new(), |e| e.text()));
        }
    }

    #[test]
    fn bad_workloads_are_told() {
        let bad = |kind: &str, args: &str| {
            let args = serde_json::from_str(args).expect("written above");
            case(&Workload { id: "w".into(), kind: kind.into(), args }).expect_err("it is wrong").text()
        };
        assert!(bad("gem", "[1]").contains("the kinds are gemm"));
        assert!(bad("gemm", "[1, 2]").contains("argument 3 is not a whole number"));
        assert!(bad("gemm", "[1, 2, 3]").contains("argument 4 is not a word"));
    }
}
