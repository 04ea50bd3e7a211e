//! Products with weights of 4 bits on the simulator against the reference.

use super::*;
use crate::ir::graph::Word;
use crate::ir::tile::Arrange;

/// How a weight comes from its code.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// T(code)
    Plain,
    /// T(code · s[n, k / G])
    Scale,
    /// T((code − z[n, k / G]) · s[n, k / G])
    Zero,
    /// T((code − 8) · s[k / G, n] + b[k / G, n])
    Shift,
}

pub(super) struct Case {
    pub dtype: DType,
    pub code: DType,
    pub kind: Kind,
    /// y[n, m] = Σ w · x, with the weights as A.
    pub turned: bool,
}

pub(super) fn plan_of(c: &Case, (m, n, k, group): (i64, i64, i64, i64)) -> Plan {
    let mut g = G::default();
    let x = g.input("x", c.dtype, &[m, k]);
    let w = g.input("w", c.code, &[n, k]);
    let y = g.result("y", c.dtype, &if c.turned { [n, m] } else { [m, n] });
    let (am, em) = g.axis("m", m);
    let (an, en) = g.axis("n", n);
    let (ak, ek) = g.axis("k", k);
    let size = g.g.int(group);
    let at = g.call(Func::Div, &[ek, size]);
    let rx = g.read(x, &[em, ek]);
    let rw = g.read(w, &[en, ek]);
    let float = |g: &mut G, e: ExprId| g.g.add(Expr::Cast(e), Ty::F32, Span::default());
    let weight = match c.kind {
        Kind::Plain => float(&mut g, rw),
        Kind::Scale | Kind::Zero => {
            let s = g.input("s", c.dtype, &[n, k / group]);
            let rs = g.read(s, &[en, at]);
            let code = if matches!(c.kind, Kind::Zero) {
                let z = g.input("z", DType::U4, &[n, k / group]);
                let rz = g.read(z, &[en, at]);
                g.call(Func::Sub, &[rw, rz])
            } else {
                rw
            };
            let code = float(&mut g, code);
            g.mul(code, rs)
        }
        Kind::Shift => {
            let s = g.input("s", c.dtype, &[k / group, n]);
            let b = g.input("b", c.dtype, &[k / group, n]);
            let (rs, rb) = (g.read(s, &[at, en]), g.read(b, &[at, en]));
            let eight = g.g.add(Expr::Lit(crate::vocab::dtype::Value::I32(8)), Ty::I32, Span::default());
            let code = g.call(Func::Sub, &[rw, eight]);
            let code = float(&mut g, code);
            let scaled = g.mul(code, rs);
            g.call(Func::Add, &[scaled, rb])
        }
    };
    let weight = g.g.add(Expr::Round(c.dtype, Rounding::Fixed, weight), Ty::F32, Span::default());
    let body = if c.turned { g.mul(weight, rx) } else { g.mul(rx, weight) };
    let value = g.sum(&[ak], body);
    g.define(y, &if c.turned { [an, am] } else { [am, an] }, value);
    g.plan()
}

/// Whether the kernel for weights of 4 bits is taken.
fn is_codes(plan: &Plan, schedule: &Schedule) -> bool {
    let tiles = crate::lower::tiles(plan, target("sm_90a"), schedule).expect("it lowers");
    tiles.iter().filter_map(|t| t.2.as_ref()).any(|t| matches!(t.arrange, Arrange::Codes { .. }))
}

/// The segments, warps and passes where each lane streams its own codes.
fn streams(plan: &Plan) -> Option<(u32, u32, u32)> {
    let tiles = crate::lower::tiles(plan, target("sm_90a"), &Schedule::default()).expect("it lowers");
    tiles.iter().filter_map(|t| t.2.as_ref()).find_map(|t| match t.arrange {
        Arrange::Stream { segments, warps, passes } => Some((segments, warps, passes)),
        _ => None,
    })
}

fn streamed(c: &Case, sizes: (i64, i64, i64, i64)) {
    let plan = plan_of(c, sizes);
    assert!(streams(&plan).is_some(), "not streamed: {sizes:?}");
    for t in ["sm_80", "sm_90a"] {
        check_as(&plan, t, &Schedule::default(), &inputs(&plan.graph, 5));
    }
}

#[test]
fn few_rows_are_streamed() {
    let (half, brain) = (DType::F16, DType::BF16);
    for (i, (kind, code)) in [
        (Kind::Plain, DType::I4),
        (Kind::Scale, DType::U4),
        (Kind::Zero, DType::U4),
        (Kind::Shift, DType::U4),
    ]
    .into_iter()
    .enumerate()
    {
        // One to eight rows: eight to one segments; rows of weights that are no whole blocks.
        for (j, m) in [1, 2, 3, 5].into_iter().enumerate() {
            let (dtype, turned) = if (i + j) % 2 == 0 { (half, false) } else { (brain, true) };
            let group = [32, 64, 128][(i + j) % 3];
            streamed(&Case { dtype, code, kind, turned }, (m, 1100 + 17 * m, 768, group));
        }
    }
}

#[test]
fn streams_by_sizes() {
    let case = Case { dtype: DType::BF16, code: DType::U4, kind: Kind::Shift, turned: false };
    for ((m, n, k), want) in [
        ((1, 8192, 8192), Some((8, 8, 1))),
        ((1, 4096, 14336), Some((8, 14, 1))),
        ((1, 4096, 4096), Some((8, 4, 1))),
        ((4, 8192, 8192), Some((2, 16, 2))),
        ((8, 8192, 8192), Some((1, 16, 4))),
        ((8, 8192, 14336), None),
        ((9, 8192, 8192), None),
        ((1, 64, 8192), None),
    ] {
        assert_eq!(streams(&plan_of(&case, (m, n, k, 128))), want, "{m}×{n}×{k}");
    }
    // Terms that are no whole passes, and several passes.
    for sizes in [(1, 300, 3200, 64), (2, 1100, 128, 32), (6, 1200, 2176, 128)] {
        streamed(&case, sizes);
    }
}

fn codes(c: &Case, sizes: (i64, i64, i64, i64)) {
    let plan = plan_of(c, sizes);
    assert!(is_codes(&plan, &Schedule::default()), "not by codes: {sizes:?}");
    for t in ["sm_80", "sm_90a"] {
        check_as(&plan, t, &Schedule::default(), &inputs(&plan.graph, 5));
    }
}

#[test]
fn every_kind_of_weight() {
    let (half, brain) = (DType::F16, DType::BF16);
    for (kind, code) in [
        (Kind::Plain, DType::I4),
        (Kind::Scale, DType::I4),
        (Kind::Scale, DType::U4),
        (Kind::Zero, DType::U4),
        (Kind::Shift, DType::U4),
    ] {
        for (dtype, turned) in [(half, false), (brain, true)] {
            codes(&Case { dtype, code, kind, turned }, (3, 40, 640, 64));
        }
    }
}

#[test]
fn sizes_around_the_block() {
    let case = Case { dtype: DType::BF16, code: DType::U4, kind: Kind::Shift, turned: false };
    for sizes in [(1, 17, 512, 128), (9, 33, 512, 32), (20, 70, 640, 128), (70, 40, 512, 512)] {
        codes(&case, sizes);
    }
}

#[test]
fn sums_split() {
    let case = Case { dtype: DType::BF16, code: DType::I4, kind: Kind::Scale, turned: false };
    codes(&case, (2, 16, 16384, 128));
}

#[test]
fn others_are_left_to_the_usual_kernel() {
    let case = Case { dtype: DType::BF16, code: DType::I4, kind: Kind::Scale, turned: false };
    // Groups that change within a lane's run; terms that are no whole chunks; a block that was asked for.
    for sizes in [(4, 32, 256, 16), (4, 32, 320, 64)] {
        assert!(!is_codes(&plan_of(&case, sizes), &Schedule::default()));
    }
    let mut schedule = Schedule::default();
    schedule.set("y", "block", "n", Word::Int(64));
    let plan = plan_of(&case, (4, 32, 256, 64));
    assert!(!is_codes(&plan, &schedule));
    check_as(&plan, "sm_90a", &schedule, &inputs(&plan.graph, 5));
}
