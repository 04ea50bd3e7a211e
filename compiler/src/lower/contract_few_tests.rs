//! Products with few rows on the simulator against the reference.

use super::hopper::{is_hopper, is_hopper_of};
use super::*;
use crate::ir::tile::Arrange;

/// The block's sides where the kernel for few rows is taken: the weights' rows are M.
fn block(plan: &Plan, schedule: &Schedule) -> Option<(u32, u32, i64, u32)> {
    let tiles = crate::lower::tiles(plan, target("sm_90a"), schedule).expect("it lowers");
    let tile = tiles.into_iter().find_map(|t| t.2).filter(|t| t.arrange == Arrange::Groups { m: 1 })?;
    Some((tile.m.block, tile.n.block, tile.split, tile.cluster))
}

fn few(plan: &Plan, schedule: &Schedule) {
    assert!(is_hopper(plan, schedule), "not by warpgroups");
    check_as(plan, "sm_90a", schedule, &inputs(&plan.graph, 3));
}

const BF16: (DType, DType, DType) = (DType::BF16, DType::BF16, DType::BF16);

#[test]
fn few_rows_on_either_side_and_every_layout() {
    // Along the few rows copies are of 64, so that loop has to be asked for.
    let asked = with(Schedule::default(), "y", &[("warpgroups", "", 1)]);
    for layout in LAYOUTS {
        let plan = matmul(BF16, (24, 520, 520), layout);
        let b_along_k = if layout.a_k_last { 24 } else { 64 };
        assert_eq!(block(&plan, &asked).map(|b| (b.0, b.1)), Some((64, b_along_k)));
        assert_eq!(is_hopper(&plan, &Schedule::default()), layout.a_k_last);
        few(&plan, &asked);
        few(&matmul(F16, (520, 24, 520), layout), &asked);
    }
    let plan = matmul(BF16, (24, 520, 520), LAYOUTS[2]);
    check_as(&plan, "sm_90a", &Schedule::default(), &inputs(&plan.graph, 3));
    assert!(is_hopper(&matmul(BF16, (32, 520, 520), LAYOUTS[2]), &Schedule::default()));
}

#[test]
fn sizes_that_divide_nothing() {
    for (m, n, k) in [(1, 513, 520), (7, 575, 1000), (33, 641, 576), (127, 514, 512), (600, 5, 2048)] {
        few(&matmul(BF16, (m, n, k), NT), &Schedule::default());
    }
}

#[test]
fn floats_of_eight_bits_are_promoted() {
    let dtypes = (DType::E4M3, DType::E4M3, DType::BF16);
    for (m, n, k) in [(16, 520, 1040), (7, 515, 2048), (640, 48, 1024)] {
        let plan = matmul(dtypes, (m, n, k), NT);
        assert_eq!(block(&plan, &Schedule::default()).map(|b| b.0), Some(64), "{m}×{n}×{k}");
        few(&plan, &Schedule::default());
    }
}

#[test]
fn settings_are_followed() {
    let plan = matmul(BF16, (40, 770, 1096), NT);
    for settings in [
        &[("stages", "", 2)][..],
        &[("split", "k", 3)],
        &[("cluster", "n", 1), ("stages", "", 5)],
        &[("block", "n", 64), ("block", "m", 40), ("warpgroups", "", 1)],
    ] {
        few(&plan, &with(Schedule::default(), "y", settings));
    }
    // Pairs of blocks share the copies of the few rows: 14 tiles of 64.
    let plan = matmul(BF16, (48, 880, 520), NT);
    for split in [1, 2] {
        let pairs = with(Schedule::default(), "y", &[("cluster", "n", 2), ("split", "k", split)]);
        assert_eq!(block(&plan, &pairs), Some((64, 48, split, 2)));
        few(&plan, &pairs);
    }
    // Other blocks: the usual loop.
    let other = with(Schedule::default(), "y", &[("block", "n", 128)]);
    assert_eq!(block(&plan, &other).filter(|b| b.1 == 48), None);
}

#[test]
fn last_waves_are_shared() {
    for (sizes, settings) in [
        // Nine tiles for seven blocks; two columns of three tiles for two clusters of two.
        ((130, 130, 3000), &[("block", "m", 64), ("block", "n", 64), ("persistent", "", 7)][..]),
        (
            (256, 130, 3000),
            &[("block", "m", 128), ("block", "n", 64), ("persistent", "", 4), ("cluster", "m", 2)],
        ),
    ] {
        let plan = matmul(BF16, sizes, NT);
        let schedule = with(Schedule::default(), "y", settings);
        let tiles = crate::lower::tiles(&plan, target("sm_90a"), &schedule).expect("it lowers");
        let tail = tiles.iter().find_map(|t| t.2.as_ref()).and_then(|t| t.tail);
        assert!(tail.is_some_and(|t| t.split > 1 && t.first > 0), "{sizes:?}: {tail:?}");
        few(&plan, &schedule);
    }
    // One that settings say is not shared.
    let settings = [("block", "m", 64), ("block", "n", 64), ("persistent", "", 7), ("split", "k", 1)];
    let plan = matmul(BF16, (130, 130, 3000), NT);
    let tiles = crate::lower::tiles(&plan, target("sm_90a"), &with(Schedule::default(), "y", &settings));
    assert!(tiles.expect("it lowers").iter().all(|t| t.2.as_ref().is_none_or(|t| t.tail.is_none())));
}

#[test]
fn clusters_add_their_sums() {
    for (sizes, block, split) in
        [((200, 203, 1096), Some(64), 2), ((16, 520, 1040), None, 2), ((30, 519, 2056), None, 4)]
    {
        let mut settings = vec![("split", "k", split)];
        settings.extend(block.into_iter().flat_map(|b| [("block", "m", b), ("block", "n", b)]));
        let schedule = with(Schedule::default(), "y", &settings);
        let plan = matmul(BF16, sizes, NT);
        let tiles = crate::lower::tiles(&plan, target("sm_90a"), &schedule).expect("it lowers");
        let join = tiles.iter().find_map(|t| t.2.as_ref()).map(|t| (t.join as i64, t.split));
        assert_eq!(join, Some((split, 1)), "{sizes:?}");
        few(&plan, &schedule);
    }
}

#[test]
fn weights_of_four_bits() {
    use super::codes::{Case, Kind, plan_of};
    let codes = |case: &Case, sizes, settings: &[(&str, &str, i64)]| {
        let plan = plan_of(case, sizes);
        let schedule = with(Schedule::default(), "y", settings);
        assert!(is_hopper_of(&plan, &schedule, true), "not from registers: {sizes:?}");
        check_as(&plan, "sm_90a", &schedule, &inputs(&plan.graph, 5));
    };
    let (half, brain) = (DType::F16, DType::BF16);
    for (kind, code) in [
        (Kind::Plain, DType::I4),
        (Kind::Scale, DType::I4),
        (Kind::Scale, DType::U4),
        (Kind::Zero, DType::U4),
        (Kind::Shift, DType::U4),
    ] {
        for (dtype, turned) in [(half, false), (brain, true)] {
            codes(&Case { dtype, code, kind, turned }, (3, 70, 768, 64), &[("warpgroups", "", 1)]);
        }
    }
    let case = Case { dtype: brain, code: DType::U4, kind: Kind::Shift, turned: false };
    for (sizes, settings) in [
        ((9, 513, 512, 128), &[][..]),
        ((20, 600, 768, 32), &[("split", "k", 2)]),
        ((65, 130, 1536, 128), &[("warpgroups", "", 2), ("split", "k", 3)]),
        ((16, 300, 1024, 512), &[("warpgroups", "", 4), ("stages", "", 2)]),
        ((9, 70, 512, 256), &[("block", "n", 64), ("split", "k", 2)]),
        // Several chunks of constants, of groups that no step is a multiple of as well; pairs of blocks; several tiles of columns.
        ((48, 256, 2048, 32), &[("warpgroups", "", 2), ("cluster", "n", 2), ("split", "k", 1)]),
        ((72, 192, 1536, 96), &[("block", "m", 24), ("step", "k", 128), ("split", "k", 2)]),
        ((130, 128, 1152, 64), &[("cluster", "n", 2), ("warpgroups", "", 1), ("stages", "", 3)]),
        ((144, 100, 1024, 32), &[("block", "m", 144), ("step", "k", 128), ("split", "k", 1)]),
        ((250, 512, 512, 128), &[]),
        // Two warpgroups share the terms.
        ((24, 200, 2048, 32), &[("block", "n", 64), ("warpgroups", "", 2), ("split", "k", 1)]),
        (
            (64, 128, 1536, 64),
            &[("block", "n", 64), ("warpgroups", "", 2), ("split", "k", 2), ("cluster", "n", 2)],
        ),
    ] {
        codes(&case, sizes, settings);
    }
}
