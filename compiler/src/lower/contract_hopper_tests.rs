//! The main loop of sm_90a on the simulator against the reference.

use super::*;
use crate::ir::graph::Word;
use crate::ir::simt::{Intrinsic, Stmt as Simt};
use crate::lower::forced::{self, Gain};

/// Whether a program multiplies by warpgroups.
pub(super) fn is_hopper(plan: &Plan, schedule: &Schedule) -> bool {
    is_hopper_of(plan, schedule, false)
}

/// The same with the first operand in shared memory or in `registers`.
pub(super) fn is_hopper_of(plan: &Plan, schedule: &Schedule, registers: bool) -> bool {
    fn has(stmts: &[Simt], registers: bool) -> bool {
        stmts.iter().any(|s| match s {
            Simt::Intrinsic { op: Intrinsic::Wgmma { .. }, .. } => !registers,
            Simt::Intrinsic { op: Intrinsic::WgmmaRegs { .. }, .. } => registers,
            Simt::If { then, otherwise, .. } => has(then, registers) || has(otherwise, registers),
            Simt::For { body, .. } => has(body, registers),
            _ => false,
        })
    }
    let program = plan_to_program(plan, target("sm_90a"), schedule).expect("it lowers");
    program.kernels.iter().any(|k| has(&k.body, registers))
}

pub(super) fn hopper_as(plan: &Plan, schedule: &Schedule) {
    let mut schedule = schedule.clone();
    if schedule.get("y", "warpgroups", "").is_none() {
        let groups = if schedule.int("y", "block", "m") == Some(64) { 1 } else { 2 };
        schedule.set("y", "warpgroups", "", Word::Int(groups));
    }
    let schedule = &schedule;
    assert!(is_hopper(plan, schedule), "not by warpgroups: {schedule}");
    check_as(plan, "sm_90a", schedule, &inputs(&plan.graph, 7));
}

fn hopper(plan: &Plan) {
    hopper_as(plan, &Schedule::default());
}

const BF16: (DType, DType, DType) = (DType::BF16, DType::BF16, DType::BF16);

#[test]
fn every_layout_of_both_halves() {
    for layout in LAYOUTS {
        hopper(&matmul(F16, (128, 64, 128), layout));
        hopper(&matmul(BF16, (72, 136, 72), layout));
    }
}

#[test]
fn sizes_that_divide_nothing() {
    hopper(&matmul(BF16, (131, 67, 104), NT));
    hopper(&matmul(F16, (65, 129, 72), NT));
    // Along the rows a line must be whole 16 bytes, along K only its pitch.
    hopper(&matmul(BF16, (136, 72, 67), LAYOUTS[3]));
    // Pitches that are not: the other main loop.
    let asked = with(Schedule::default(), "y", &[("warpgroups", "", 2)]);
    assert!(!is_hopper(&matmul(BF16, (128, 128, 100), NT), &asked));
}

#[test]
fn eight_bit_floats() {
    use DType::{E4M3, E5M2, F32};
    let mut fast = Schedule::default();
    fast.set("y", "accumulate", "", Word::Name("fast".into()));
    for (a, b) in [(E4M3, E4M3), (E5M2, E4M3), (E4M3, E5M2), (E5M2, E5M2)] {
        let plan = matmul((a, b, F32), (72, 136, 320), NT);
        hopper(&plan);
        hopper_as(&plan, &fast);
    }
    let plan = matmul((E4M3, E4M3, DType::BF16), (131, 203, 400), NT);
    for (m, n) in [(128, 192), (128, 128), (128, 88), (64, 192), (64, 64)] {
        hopper_as(&plan, &with(Schedule::default(), "y", &[("block", "m", m), ("block", "n", n)]));
    }
    hopper_as(&plan, &with(fast, "y", &[("block", "m", 256), ("block", "n", 128)]));
    hopper_as(&plan, &with(Schedule::default(), "y", &[("split", "k", 2)]));
}

#[test]
fn integers() {
    use DType::{I8, I32, U8};
    for (a, b) in [(I8, I8), (U8, I8), (I8, U8), (U8, U8)] {
        hopper(&matmul((a, b, I32), (72, 136, 320), NT));
    }
    let plan = matmul((I8, I8, I32), (131, 203, 400), NT);
    for (m, n) in [(128, 256), (128, 96), (256, 128), (64, 64)] {
        hopper_as(&plan, &with(Schedule::default(), "y", &[("block", "m", m), ("block", "n", n)]));
    }
    hopper_as(&plan, &with(Schedule::default(), "y", &[("split", "k", 2)]));
}

#[test]
fn eight_bit_operands_that_lie_along_rows_or_at_odd_pitches_are_packed() {
    for layout in LAYOUTS {
        for shape in [(72, 136, 320), (67, 131, 77)] {
            let packed = forced::force(Gain::Packs, true);
            hopper(&matmul((DType::E4M3, DType::E4M3, DType::F32), shape, layout));
            hopper(&matmul((DType::I8, DType::I8, DType::I32), shape, layout));
            forced::force(Gain::Packs, packed);
        }
    }
}

/// y[m, n] = relu(Σ x·g) · Σ x·u
fn gated((m, n, k): (i64, i64, i64), layout: Layout, dtype: DType) -> Plan {
    let mut g = G::default();
    let x = g.input("a", dtype, &if layout.a_k_last { [m, k] } else { [k, m] });
    let y = g.result("y", DType::BF16, &[m, n]);
    let (am, em) = g.axis("m", m);
    let (an, en) = g.axis("n", n);
    let sums = ["b", "c"].map(|name| {
        let w = g.input(name, dtype, &if layout.b_k_last { [n, k] } else { [k, n] });
        let (ak, ek) = g.axis("k", k);
        let rx = g.read(x, &if layout.a_k_last { [em, ek] } else { [ek, em] });
        let rw = g.read(w, &if layout.b_k_last { [en, ek] } else { [ek, en] });
        let body = g.mul(rx, rw);
        g.sum(&[ak], body)
    });
    let relu = g.call(Func::Max, &[sums[0], sums[1]]);
    let value = g.mul(relu, sums[1]);
    g.define(y, &[am, an], value);
    g.plan()
}

#[test]
fn two_sums_that_share_an_operand() {
    for (layout, shape) in
        LAYOUTS.into_iter().zip([(72, 136, 72), (67, 72, 136), (136, 72, 72), (72, 72, 200)])
    {
        hopper(&gated(shape, layout, DType::BF16));
    }
    hopper(&gated((67, 131, 160), NT, DType::E4M3));
    let split = with(Schedule::default(), "y", &[("split", "k", 2), ("block", "m", 64), ("block", "n", 64)]);
    hopper_as(&gated((64, 72, 320), NT, DType::F16), &split);
}

/// y[m, n] = Σ_g sx[m, g] · sw[n/wide, g] · Σ_i x[m, g·G + i] · w[n, g·G + i]
fn blocks((m, n, blocks, terms): (i64, i64, i64, i64), wide: i64, dtype: DType) -> Plan {
    let mut g = G::default();
    let k = blocks * terms;
    let (x, w) = (g.input("a", dtype, &[m, k]), g.input("b", DType::E4M3, &[n, k]));
    let sx = g.input("sx", DType::F32, &[m, blocks]);
    let sw = g.input("sw", DType::F32, &[(n + wide - 1) / wide, blocks]);
    let y = g.result("y", DType::BF16, &[m, n]);
    let ((am, em), (an, en)) = (g.axis("m", m), g.axis("n", n));
    let ((ag, eg), (ai, ei)) = (g.axis("g", blocks), g.axis("i", terms));
    let size = g.g.int(terms);
    let first = g.mul(eg, size);
    let at = g.call(Func::Add, &[first, ei]);
    let (rx, rw) = (g.read(x, &[em, at]), g.read(w, &[en, at]));
    let body = g.mul(rx, rw);
    let inner = g.sum(&[ai], body);
    let by = g.g.int(wide);
    let column = if wide == 1 { en } else { g.call(Func::Div, &[en, by]) };
    let (rsx, rsw) = (g.read(sx, &[em, eg]), g.read(sw, &[column, eg]));
    let scale = g.mul(rsx, rsw);
    let body = g.mul(scale, inner);
    let value = g.sum(&[ag], body);
    g.define(y, &[am, an], value);
    g.plan()
}

#[test]
fn scales_of_blocks_are_met_as_sums_leave_the_tensor_cores() {
    use DType::{E4M3, E5M2};
    hopper(&blocks((72, 136, 3, 128), 128, E4M3));
    hopper(&blocks((131, 203, 2, 256), 64, E5M2));
    // Each column has its own.
    hopper(&blocks((72, 136, 3, 128), 1, E4M3));
    let plan = blocks((200, 264, 5, 128), 128, E4M3);
    let block = |m, n| with(Schedule::default(), "y", &[("block", "m", m), ("block", "n", n)]);
    for (m, n) in [(128, 128), (64, 64), (256, 64)] {
        hopper_as(&plan, &block(m, n));
    }
    hopper_as(&plan, &with(block(128, 128), "y", &[("persistent", "", 1)]));
    hopper_as(&plan, &with(block(64, 128), "y", &[("split", "g", 2)]));
    let mut fast = Schedule::default();
    fast.set("y", "accumulate", "", Word::Name("fast".into()));
    hopper_as(&plan, &fast);
    // Blocks that are no whole steps are sums of their own.
    assert!(super::super::contract::recognise(&blocks((72, 136, 3, 64), 128, E4M3).graph, &[0]).is_err());
    // Other targets take the scales as factors of the operands.
    for target in ["sm_80", "sm_89"] {
        check(&blocks((40, 72, 2, 128), 128, E4M3), target);
    }
}

#[test]
fn split_f32() {
    forced::force(Gain::Splits, true);
    for (layout, shape) in
        LAYOUTS.into_iter().zip([(72, 136, 132), (67, 131, 133), (136, 72, 132), (64, 128, 200)])
    {
        let plan = matmul(F32, shape, layout);
        assert!(is_hopper(&plan, &Schedule::default()), "not split: {shape:?}");
        // Parts of operands whose terms are not neighbours go through tiles in shared memory.
        let program = plan_to_program(&plan, target("sm_90a"), &Schedule::default()).expect("it lowers");
        let mut parts = program.kernels.iter().filter(|k| k.name.contains("split"));
        assert_eq!(parts.any(|k| !k.shared.is_empty()), layout != NT, "{shape:?}");
        let mut given = inputs(&plan.graph, 7);
        check_as(&plan, "sm_90a", &Schedule::default(), &given);
        // A number without parts: the product is made again.
        let a = given.tensors.get_mut("a").expect("an input");
        a.set(3, crate::vocab::dtype::Value::F32(f32::INFINITY));
        check_as(&plan, "sm_90a", &Schedule::default(), &given);
    }
    forced::force(Gain::Splits, false);
}

#[test]
fn every_block() {
    let plan = matmul(BF16, (72, 136, 72), NT);
    let blocks = [
        (128, 256),
        (128, 192),
        (256, 128),
        (128, 64),
        (64, 256),
        (64, 128),
        (128, 88),
        (256, 168),
        (256, 192),
    ];
    for (m, n) in blocks {
        hopper_as(&plan, &with(Schedule::default(), "y", &[("block", "m", m), ("block", "n", n)]));
    }
    for layout in LAYOUTS {
        let plan = matmul(F16, (136, 136, 72), layout);
        hopper_as(&plan, &with(Schedule::default(), "y", &[("block", "m", 256), ("block", "n", 128)]));
    }
}

#[test]
fn stages_wrap_and_sums_split() {
    let plan = matmul(BF16, (64, 64, 640), NT);
    for stages in [2, 3, 5] {
        hopper_as(&plan, &with(Schedule::default(), "y", &[("stages", "", stages)]));
    }
    for split in [2, 3, 4] {
        hopper_as(&plan, &with(Schedule::default(), "y", &[("split", "k", split)]));
    }
    let mut schedule = with(Schedule::default(), "y", &[("warpgroups", "", 1)]);
    hopper_as(&plan, &schedule);
    schedule.set("y", "order", "", Word::Name("rows".into()));
    hopper_as(&plan, &schedule);
}

#[test]
fn batches_and_epilogues() {
    for k_last in [true, false] {
        let (b, m, n, k) = (3, 72, 64, 72);
        let mut g = G::default();
        let x = g.input("a", DType::BF16, &[b, m, k]);
        let w = g.input("b", DType::BF16, &if k_last { [b, n, k] } else { [b, k, n] });
        let bias = g.input("c", DType::F32, &[n]);
        let y = g.result("y", DType::F32, &[b, m, n]);
        let (ab, eb) = g.axis("b", b);
        let (am, em) = g.axis("m", m);
        let (an, en) = g.axis("n", n);
        let (ak, ek) = g.axis("k", k);
        let rx = g.read(x, &[eb, em, ek]);
        let rw = g.read(w, &if k_last { [eb, en, ek] } else { [eb, ek, en] });
        let body = g.mul(rx, rw);
        let sum = g.sum(&[ak], body);
        let rb = g.read(bias, &[en]);
        let value = g.call(Func::Add, &[sum, rb]);
        g.define(y, &[ab, am, an], value);
        hopper(&g.plan());
    }
}

#[test]
fn blocks_take_tile_after_tile() {
    let blocks = |m, n, resident| {
        with(Schedule::default(), "y", &[("block", "m", m), ("block", "n", n), ("persistent", "", resident)])
    };
    // Two pieces a warpgroup, one, three; results of 2 and 4 bytes; edges everywhere.
    hopper_as(&matmul(BF16, (264, 136, 200), NT), &blocks(128, 128, 2));
    hopper_as(&matmul(BF16, (200, 200, 136), NT), &blocks(64, 64, 3));
    hopper_as(&matmul(BF16, (136, 392, 72), NT), &blocks(128, 192, 1));
    hopper_as(&matmul(F16, (264, 136, 72), NT), &blocks(128, 96, 2));
    hopper_as(&matmul(F16, (520, 136, 72), NT), &blocks(256, 128, 2));
    // Pieces that overlap.
    hopper_as(&matmul(BF16, (136, 200, 72), NT), &blocks(128, 96, 2));
    hopper_as(&matmul(BF16, (136, 200, 72), NT), &blocks(64, 80, 3));
    hopper_as(&matmul((DType::BF16, DType::BF16, DType::F32), (136, 200, 72), NT), &blocks(128, 88, 2));
    hopper_as(&matmul(BF16, (136, 360, 72), NT), &blocks(128, 176, 1));
    // Lines of 64 and of 32 bytes.
    hopper_as(&matmul(BF16, (136, 72, 72), NT), &blocks(64, 40, 3));
    hopper_as(&matmul(BF16, (136, 72, 72), NT), &blocks(64, 24, 3));
    let split = with(blocks(64, 64, 3), "y", &[("split", "k", 3)]);
    hopper_as(&matmul(BF16, (136, 136, 264), NT), &split);
}

#[test]
fn blocks_of_a_cluster_share_copies() {
    let pairs = |m: i64, n: i64, more: &[(&str, &str, i64)]| {
        let first =
            with(Schedule::default(), "y", &[("block", "m", m), ("block", "n", n), ("cluster", "m", 2)]);
        with(first, "y", more)
    };
    let shares = |plan: &Plan, schedule: &Schedule| {
        let program = plan_to_program(plan, target("sm_90a"), schedule).expect("it lowers");
        assert_eq!(program.kernels[0].cluster, [2, 1, 1]);
        hopper_as(plan, schedule);
    };
    // One step and more than the ring has; edges; both ways to lie; tile after tile; split sums; four blocks.
    shares(&matmul(BF16, (256, 64, 64), NT), &pairs(128, 64, &[]));
    shares(&matmul(BF16, (200, 136, 520), NT), &pairs(128, 128, &[("stages", "", 3)]));
    shares(
        &matmul(BF16, (248, 264, 136), LAYOUTS[0]),
        &pairs(64, 128, &[("persistent", "", 2), ("stages", "", 2)]),
    );
    shares(&matmul(F16, (256, 192, 136), NT), &pairs(128, 96, &[("persistent", "", 2)]));
    shares(&matmul(BF16, (128, 64, 264), NT), &pairs(64, 64, &[("split", "k", 2)]));
    // Copies of 64 along the rows are shared by terms, whatever the columns: one and two of a block's are for nothing.
    for (m, layout) in [(248, LAYOUTS[1]), (250, LAYOUTS[1]), (248, LAYOUTS[3])] {
        shares(&matmul(BF16, (m, 184, 136), layout), &pairs(128, 144, &[("persistent", "", 2)]));
        shares(&matmul(F16, (m, 168, 200), layout), &pairs(128, 80, &[("stages", "", 2)]));
    }
    // Three tiles are two pairs, of which one has a block without a tile.
    for (layout, m, n) in [(NT, 264, 200), (LAYOUTS[1], 296, 136), (LAYOUTS[2], 264, 131)] {
        shares(&matmul(BF16, (m, n, 136), layout), &pairs(128, 128, &[]));
        shares(&matmul(BF16, (m, n, 200), layout), &pairs(128, 64, &[("persistent", "", 2)]));
    }
    let four = with(pairs(64, 80, &[]), "y", &[("cluster", "m", 4)]);
    hopper_as(&matmul(BF16, (250, 72, 200), LAYOUTS[1]), &four);
    let four = with(pairs(64, 64, &[]), "y", &[("cluster", "m", 4)]);
    hopper_as(&matmul(BF16, (250, 72, 200), NT), &four);
}

#[test]
fn blocks_of_a_cluster_share_the_first_operand() {
    let pairs = |m: i64, n: i64, more: &[(&str, &str, i64)]| {
        let first =
            with(Schedule::default(), "y", &[("block", "m", m), ("block", "n", n), ("cluster", "n", 2)]);
        with(first, "y", more)
    };
    let shares = |plan: &Plan, schedule: &Schedule| {
        let program = plan_to_program(plan, target("sm_90a"), schedule).expect("it lowers");
        assert_eq!(program.kernels[0].cluster, [2, 1, 1]);
        hopper_as(plan, schedule);
    };
    shares(&matmul(BF16, (64, 128, 64), NT), &pairs(64, 64, &[]));
    shares(&matmul(BF16, (200, 248, 520), NT), &pairs(128, 128, &[("stages", "", 3)]));
    for layout in LAYOUTS {
        shares(
            &matmul(BF16, (264, 248, 136), layout),
            &pairs(128, 64, &[("persistent", "", 4), ("stages", "", 2)]),
        );
    }
    shares(&matmul(F16, (136, 200, 136), NT), &pairs(256, 64, &[("persistent", "", 2)]));
    shares(&matmul(BF16, (64, 128, 264), NT), &pairs(64, 64, &[("split", "k", 2)]));
    shares(&matmul(BF16, (72, 184, 136), LAYOUTS[3]), &pairs(64, 64, &[]));
    shares(&matmul(BF16, (72, 323, 3000), NT), &pairs(64, 64, &[("persistent", "", 4)]));
    // Three tiles by two clusters: the last wave's sums are shared.
    shares(&matmul(BF16, (130, 250, 3000), NT), &pairs(64, 128, &[("persistent", "", 4)]));
    shares(&gated((136, 128, 72), NT, DType::BF16), &pairs(128, 64, &[]));
    let four = with(pairs(64, 64, &[]), "y", &[("cluster", "n", 4)]);
    hopper_as(&matmul(BF16, (72, 250, 200), NT), &four);
}

#[test]
fn clusters_that_cannot_be_are_refused() {
    let refused = |dims, settings: &[(&str, &str, i64)], why: &str| {
        let schedule = with(Schedule::default(), "y", settings);
        let refusal = plan_to_program(&matmul(BF16, dims, NT), target("sm_90a"), &schedule);
        let refusal = refusal.expect_err("a cluster that cannot be");
        assert!(refusal.message.contains(why), "{}", refusal.message);
    };
    refused((128, 256, 256), &[("cluster", "m", 2), ("block", "m", 128)], "tiles must be as many");
    refused((256, 128, 256), &[("cluster", "n", 2), ("block", "n", 128)], "tiles must be as many");
    refused((256, 256, 256), &[("cluster", "k", 2)], "along the sides");
    refused((256, 256, 256), &[("cluster", "n", 2), ("cluster", "m", 2)], "other operand's copies");
    refused((256, 256, 256), &[("cluster", "m", 3)], "1, 2, 4 or 8");
    refused((256, 256, 256), &[("cluster", "m", 2), ("warps", "", 8)], "main loop of sm_90a");
}

#[test]
fn what_is_missing_in_a_cluster_is_found() {
    let plan = matmul(BF16, (128, 64, 512), NT);
    let settings = [
        ("warpgroups", "", 1),
        ("block", "m", 64),
        ("block", "n", 64),
        ("stages", "", 2),
        ("cluster", "m", 2),
    ];
    let changed = |change: &dyn Fn(&mut Vec<Simt>)| changed_of(&plan, &settings, change);
    // The blocks do not wait for each other's barriers to be there.
    let kind =
        changed(&|s| s.retain(|s| !matches!(op(s), Some(Intrinsic::ClusterArrive | Intrinsic::ClusterWait))));
    assert!(matches!(kind, sim::Kind::Uninitialised | sim::Kind::Race), "{kind:?}");
    // Copies do not wait for a free stage: neither block's own nor the other's.
    let kind = changed(&|stmts| {
        let loads = stmts.iter().any(|s| matches!(op(s), Some(Intrinsic::TmaMulticast { .. })));
        stmts.retain(|s| !(loads && op(s) == Some(Intrinsic::MbarrierWait)));
    });
    assert_eq!(kind, sim::Kind::Race);
    // A block ends while the other still gives stages back to it.
    let kind = changed(&|stmts| {
        let loads = |s: &[Simt]| {
            s.iter().any(|s| matches!(op(s), Some(Intrinsic::TmaMulticast { .. } | Intrinsic::Wgmma { .. })))
        };
        let drains = |s: &Simt| matches!(s, Simt::For { body, .. } if !loads(body) && body.iter().any(|s| op(s) == Some(Intrinsic::MbarrierWait)));
        stmts.retain(|s| !drains(s));
    });
    assert_eq!(kind, sim::Kind::Race);
}

#[test]
fn results_go_out_as_boxes_where_they_can() {
    let stores = |plan: &Plan| {
        let schedule = with(Schedule::default(), "y", &[("warpgroups", "", 2)]);
        let program = plan_to_program(plan, target("sm_90a"), &schedule).expect("it lowers");
        program.kernels.iter().any(|k| k.params.iter().any(|p| k.stores_boxes(&p.name)))
    };
    assert!(stores(&matmul(BF16, (72, 136, 72), NT)));
    assert!(stores(&matmul(F16, (72, 200, 72), NT)));
    // A pitch of 268 bytes is no multiple of 16.
    let odd = matmul(BF16, (72, 134, 72), NT);
    assert!(!stores(&odd));
    hopper(&odd);
}

#[test]
fn results_that_are_no_boxes_go_out_line_by_line() {
    let blocks = |m, n, resident| {
        with(Schedule::default(), "y", &[("block", "m", m), ("block", "n", n), ("persistent", "", resident)])
    };
    for n in [129, 134, 131] {
        for out in [DType::BF16, DType::F32] {
            let plan = matmul((DType::BF16, DType::BF16, out), (150, n, 72), NT);
            hopper(&plan);
            hopper_as(&plan, &blocks(128, 128, 1));
            hopper_as(&plan, &blocks(128, 88, 2));
            hopper_as(&plan, &blocks(64, 40, 2));
        }
    }
    hopper_as(&matmul(F16, (264, 67, 72), NT), &blocks(256, 64, 1));
    // What the lanes of a warp wrote is read by others.
    let plan = matmul(BF16, (64, 133, 64), NT);
    let settings = [("warpgroups", "", 1), ("block", "m", 64), ("block", "n", 128)];
    let kind = changed_of(&plan, &settings, &|stmts| stmts.retain(|s| !matches!(s, Simt::WarpBarrier)));
    assert_eq!(kind, sim::Kind::Race);
}

/// The program of a small product, changed.
fn changed(change: &dyn Fn(&mut Vec<Simt>)) -> sim::Kind {
    let plan = matmul(BF16, (64, 64, 512), NT);
    let settings = [("warpgroups", "", 1), ("block", "n", 64), ("stages", "", 3)];
    changed_of(&plan, &settings, change)
}

fn changed_of(plan: &Plan, settings: &[(&str, &str, i64)], change: &dyn Fn(&mut Vec<Simt>)) -> sim::Kind {
    fn walk(stmts: &mut Vec<Simt>, change: &dyn Fn(&mut Vec<Simt>)) {
        change(stmts);
        for s in stmts {
            match s {
                Simt::If { then, otherwise, .. } => {
                    walk(then, change);
                    walk(otherwise, change);
                }
                Simt::For { body, .. } => walk(body, change),
                _ => {}
            }
        }
    }
    let schedule = with(Schedule::default(), "y", settings);
    let mut program = plan_to_program(plan, target("sm_90a"), &schedule).expect("it lowers");
    walk(&mut program.kernels[0].body, change);
    let got = sim::run(&program, &inputs(&plan.graph, 7), &sim::SimOptions::default());
    got.expect_err("what is missing is found").kind
}

fn op(s: &Simt) -> Option<Intrinsic> {
    match s {
        Simt::Intrinsic { op, .. } => Some(*op),
        _ => None,
    }
}

#[test]
fn what_is_missing_when_storing_is_found() {
    let plan = matmul(BF16, (192, 256, 64), NT);
    let settings = [("warpgroups", "", 1), ("block", "m", 64), ("block", "n", 256), ("persistent", "", 1)];
    let without = |wanted: fn(Intrinsic) -> bool| {
        changed_of(&plan, &settings, &|stmts| stmts.retain(|s| !op(s).is_some_and(wanted)))
    };
    assert_eq!(without(|op| op == Intrinsic::FenceProxyAsync), sim::Kind::Race);
    assert_eq!(without(|op| matches!(op, Intrinsic::NamedBarrier { .. })), sim::Kind::Race);
    assert_eq!(without(|op| matches!(op, Intrinsic::BulkWait(_))), sim::Kind::Race);
    assert_eq!(without(|op| op == Intrinsic::BulkCommit), sim::Kind::Race);
}

/// The tile of the product `y`.
fn tile_of(plan: &Plan, schedule: &Schedule) -> crate::ir::tile::Tile {
    let tiles = crate::lower::tiles(plan, target("sm_90a"), schedule).expect("it lowers");
    tiles.into_iter().find_map(|t| t.2).expect("a tile")
}

#[test]
fn sums_of_a_step_or_two_take_small_tiles() {
    let block = |m, n, k, layout| {
        let tile = tile_of(&matmul(BF16, (m, n, k), layout), &Schedule::default());
        (tile.m.block, tile.n.block, tile.threads)
    };
    // As measured: 7.8 µs, where 64 × 128 took 12.2; 9.2 and 17.1 (128 × 256); 5.3 and 7.4 (a warp).
    assert_eq!(block(2049, 257, 33, LAYOUTS[2]), (32, 32, 128));
    assert_eq!(block(11008, 512, 7, NT), (32, 64, 128));
    assert_eq!(block(7, 33, 33, LAYOUTS[2]), (16, 64, 128));
}

#[test]
fn tiles_of_a_batch_are_counted_one_by_one() {
    // 8 tiles of 256 rows of each of 16 products are one wave; as one matrix of 16 · 2048 + 255 rows they would be 129 and more.
    let mut g = G::default();
    let (b, m, n, k) = (16, 2048, 128, 2048);
    let x = g.input("a", DType::BF16, &[b, m, k]);
    let w = g.input("b", DType::BF16, &[b, k, n]);
    let y = g.result("y", DType::BF16, &[b, m, n]);
    let (ab, eb) = g.axis("b", b);
    let (am, em) = g.axis("m", m);
    let (an, en) = g.axis("n", n);
    let (ak, ek) = g.axis("k", k);
    let (rx, rw) = (g.read(x, &[eb, em, ek]), g.read(w, &[eb, ek, en]));
    let body = g.mul(rx, rw);
    let sum = g.sum(&[ak], body);
    g.define(y, &[ab, am, an], sum);
    let tile = tile_of(&g.plan(), &Schedule::default());
    assert_eq!((tile.m.block, tile.n.block, tile.resident), (256, 128, None));
}

#[test]
fn what_is_missing_is_found() {
    use sim::Kind::{Deadlock, Race, Uninitialised};
    let without = |wanted: fn(&[Simt], usize) -> bool| {
        changed(&|stmts: &mut Vec<Simt>| {
            let keep: Vec<bool> = (0..stmts.len()).map(|i| !wanted(stmts, i)).collect();
            let mut keep = keep.into_iter();
            stmts.retain(|_| keep.next().unwrap_or(true));
        })
    };
    // The copies do not wait for the stage to be free.
    let kind = without(|stmts, i| {
        let loads = stmts.iter().any(|s| matches!(op(s), Some(Intrinsic::TmaLoad { .. })));
        loads && op(&stmts[i]) == Some(Intrinsic::MbarrierWait)
    });
    assert_eq!(kind, Race);
    // The products do not wait for the copies.
    let kind = without(|stmts, i| {
        let loads = stmts.iter().any(|s| matches!(op(s), Some(Intrinsic::TmaLoad { .. })));
        !loads && op(&stmts[i]) == Some(Intrinsic::MbarrierWait)
    });
    assert!(matches!(kind, Race | Uninitialised), "{kind:?}");
    // Stages are given back while products still read them.
    assert_eq!(without(|stmts, i| op(&stmts[i]) == Some(Intrinsic::WgmmaWait(1))), Race);
    // The accumulators are read before they are there.
    assert_eq!(without(|stmts, i| op(&stmts[i]) == Some(Intrinsic::WgmmaWait(0))), Uninitialised);
    // Nobody gives stages back; nobody says how many bytes come.
    assert_eq!(without(|stmts, i| op(&stmts[i]) == Some(Intrinsic::MbarrierArrive)), Deadlock);
    assert_eq!(without(|stmts, i| op(&stmts[i]) == Some(Intrinsic::MbarrierExpect)), Deadlock);
    assert_eq!(without(|stmts, i| op(&stmts[i]) == Some(Intrinsic::WgmmaFence)), Race);
    // One operand's bytes are not counted.
    let kind = changed(&|stmts| {
        for s in stmts {
            if let Simt::Intrinsic { op: Intrinsic::MbarrierExpect, args, .. } = s {
                args[1] = crate::ir::simt::Expr::U32(64 * 128);
            }
        }
    });
    assert!(matches!(kind, Deadlock | Race | Uninitialised), "{kind:?}");
}

#[test]
fn whole_products_name_their_accumulators_in_ptx() {
    use crate::ir::simt::{Expr, Kernel, Ty, Unroll};
    use crate::ir::{simt_text, simt_verify};
    use crate::vocab::dtype::Value;
    let named = |plan: &Plan, schedule: &Schedule| {
        let program = plan_to_program(plan, target("sm_90a"), schedule).expect("it lowers");
        let k = &program.kernels[0];
        let at = k.arrays.iter().position(|a| a.named);
        (k.clone(), at.map(|i| crate::ir::simt::ArrayId(i as u32)))
    };
    let asked = with(Schedule::default(), "y", &[("warpgroups", "", 2)]);
    for (m, n, k) in [(136, 264, 200), (131, 129, 72), (67, 40, 136)] {
        let plan = matmul(BF16, (m, n, k), NT);
        let (kernel, acc) = named(&plan, &asked);
        let acc = acc.expect("whole products do");
        let cuda = super::super::simt_to_cuda::print_kernel(&kernel, target("sm_90a"), &Default::default());
        assert!(cuda.contains(".reg .f32 acc_<") && cuda.contains("mov.f32 %0, acc_0;"), "{cuda}");
        // Only constants say which register.
        let mut bad = kernel.clone();
        let i = bad.var("i", Ty::I32);
        let body = vec![Simt::SetElem(acc, Expr::Var(i), Expr::Lit(Value::F32(0.0)))];
        let [lo, hi, step] = [0, 4, 1].map(|n| Expr::Lit(Value::I32(n)));
        bad.body.push(Simt::For { var: i, lo, hi, step, unroll: Unroll::Full, body });
        let why = simt_verify::verify(&bad).expect_err("a loop's index is none").to_string();
        assert!(why.contains("no constant"), "{why}");
    }
    let mut small =
        Kernel { name: "k".into(), grid: [1; 3], block: [32, 1, 1], cluster: [1; 3], ..Kernel::default() };
    let acc = small.named_registers("acc", Ty::F32, 4);
    small.body = vec![Simt::SetElem(acc, Expr::Lit(Value::I32(2)), Expr::Lit(Value::F32(1.0)))];
    let back = simt_text::parse(&simt_text::print(&small)).expect("its own text is read");
    assert_eq!(format!("{:?}", back[0]), format!("{small:?}"));
    // What is read in loops keeps an array of C's.
    let split = with(asked, "y", &[("split", "k", 2)]);
    assert!(named(&matmul(BF16, (72, 136, 320), NT), &split).1.is_none());
}

#[test]
fn operands_along_columns_in_blocks_of_any_16() {
    for layout in LAYOUTS.into_iter().filter(|l| !l.b_k_last) {
        for block in [80, 144, 208] {
            let asked = with(Schedule::default(), "y", &[("block", "m", 128), ("block", "n", block)]);
            hopper_as(&matmul(BF16, (136, 296, 72), layout), &asked);
        }
    }
}

#[test]
fn lines_that_straddle_sectors_are_shared_by_pairs_of_blocks() {
    let cluster = |k: i64| {
        let plan = matmul(BF16, (256, 128, k), NT);
        let asked = with(Schedule::default(), "y", &[("block", "m", 128)]);
        let program = plan_to_program(&plan, target("sm_90a"), &asked).expect("it lowers");
        program.kernels[0].cluster[0].max(1)
    };
    assert_eq!([cluster(136), cluster(128)], [2, 1]);
    hopper(&matmul(BF16, (256, 128, 136), NT));
    // Of both operands the one that straddles.
    let along_n = |m, n| {
        let plan = matmul(BF16, (m, n, 256), LAYOUTS[3]);
        let asked = with(Schedule::default(), "y", &[("block", "m", 128), ("block", "n", 128)]);
        let tile = tile_of(&plan, &asked);
        (tile.cluster, tile.across)
    };
    assert_eq!([along_n(264, 512), along_n(512, 264)], [(2, true), (2, false)]);
    hopper(&matmul(BF16, (264, 512, 256), LAYOUTS[3]));
}

/// The simulator's addresses are the same in each block of a cluster; a device's are not.
#[test]
fn descriptors_have_no_more_of_an_address_than_its_place_in_shared_memory() {
    let asked = with(Schedule::default(), "y", &[("cluster", "m", 2)]);
    let asked = with(asked, "y", &[("block", "m", 128), ("block", "n", 128)]);
    let program = plan_to_program(&matmul(BF16, (256, 128, 128), LAYOUTS[1]), target("sm_90a"), &asked);
    let kernel = &program.expect("it lowers").kernels[0];
    let cuda = super::super::simt_to_cuda::print_kernel(kernel, target("sm_90a"), &Default::default());
    let starts: Vec<&str> = cuda.lines().filter(|l| l.contains("_matrix = ")).collect();
    assert!(
        starts.len() == 2 && starts.iter().all(|l| l.contains("& 0x3fffu") || l.contains("& 16383u")),
        "{starts:?}"
    );
}

/// Whether a program turns matrices on their way to staging tiles, or only stores them.
fn stores_turned(plan: &Plan, schedule: &Schedule) -> bool {
    fn any(stmts: &[Simt]) -> bool {
        stmts.iter().any(|s| match s {
            Simt::Intrinsic { op: Intrinsic::StMatrix { trans, .. }, .. } => *trans,
            Simt::If { then, otherwise, .. } => any(then) || any(otherwise),
            Simt::For { body, .. } => any(body),
            _ => false,
        })
    }
    let program = plan_to_program(plan, target("sm_90a"), schedule).expect("it lowers");
    any(&program.kernels[0].body)
}

#[test]
fn results_whose_neighbours_are_rows_leave_as_boxes_too() {
    let before = forced::force(Gain::Turns, true);
    // Rows of the block are columns of the result.
    for ((rows, columns), (m, n, k)) in [
        ((128, 64), (72, 136, 72)),
        ((128, 208), (211, 264, 136)),
        ((64, 48), (131, 72, 72)),
        ((128, 144), (300, 200, 64)),
    ] {
        let asked = with(Schedule::default(), "y", &[("block", "n", rows), ("block", "m", columns)]);
        let asked = with(asked, "y", &[("warpgroups", "", rows / 64)]);
        for (dtype, layout) in [(F16, NT), (BF16, LAYOUTS[0]), (BF16, LAYOUTS[1])] {
            let plan = matmul(dtype, (m, n, k), layout);
            hopper_as(&plan, &asked);
            assert!(stores_turned(&plan, &asked), "{rows} × {columns}");
        }
    }
    // Rows that are no multiples of 16 bytes are no boxes, so sides stay.
    let asked = with(Schedule::default(), "y", &[("warpgroups", "", 2)]);
    assert!(!stores_turned(&matmul(BF16, (136, 131, 72), NT), &asked));
    forced::force(Gain::Turns, before);
}

#[test]
fn sides_change_places_where_that_fills_tiles_better() {
    // 257 rows are two tiles and one row; as columns they are two blocks of 136.
    let plan = matmul(BF16, (257, 16384, 512), NT);
    assert!(stores_turned(&plan, &Schedule::default()));
    assert!(!stores_turned(&matmul(BF16, (4096, 4096, 4096), NT), &Schedule::default()));
}
