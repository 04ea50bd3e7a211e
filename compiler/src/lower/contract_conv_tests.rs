//! Convolutions and chosen operands through the main loop of sm_90a, on the simulator against the reference.

use super::hopper::{hopper_as, is_hopper};
use super::*;
use crate::ir::graph::Word;

fn one_group() -> Schedule {
    with(Schedule::default(), "y", &[("warpgroups", "", 1), ("block", "f", 64)])
}

#[test]
fn pixels_in_a_row() {
    for (stride, pad) in [(1, 1), (2, 2), (1, 0), (3, 1)] {
        for channels in [64, 16, 40] {
            hopper_as(&conv_of(DType::F16, true, stride, pad, 1, channels), &one_group());
        }
    }
    // Groups of whole lines of channels; filters of both groups are rows of the block's batch.
    assert!(!is_hopper(&conv_of(DType::F16, true, 1, 1, 2, 8), &Schedule::default()));
}

#[test]
fn channels_first_are_turned() {
    for (stride, pad) in [(1, 1), (2, 0)] {
        let plan = conv_of(DType::BF16, false, stride, pad, 1, 64);
        let mut schedule = Schedule::default();
        schedule.set("y", "warpgroups", "", Word::Int(1));
        packed(|| {
            assert!(is_hopper(&plan, &schedule));
            check_as(&plan, "sm_90a", &schedule, &inputs(&plan.graph, 3))
        });
        let got = packed(|| check(&plan, "sm_80"));
        assert_eq!(got.kernels.len(), 3, "two copies and the product");
    }
}

#[test]
fn few_channels_get_a_border() {
    let mut schedule = Schedule::default();
    schedule.set("y", "warpgroups", "", Word::Int(2));
    for channels in [2, 3, 7] {
        for last in [true, false] {
            // Two channels at every place would be padded to eight.
            let least = if channels == 2 { 2 } else { 1 };
            for (stride, pad) in [(1, 1), (2, 0), (2, 2), (4, 1)].into_iter().filter(|s| s.0 >= least) {
                let plan = conv_of(DType::F16, last, stride, pad, 1, channels);
                assert!(is_hopper(&plan, &schedule), "{channels} {last} {stride} {pad}");
                let got = check_as(&plan, "sm_90a", &schedule, &inputs(&plan.graph, 5));
                assert_eq!(got.kernels.len(), 3, "two copies and the product");
            }
        }
    }
}

#[test]
fn rows_choose_a_box() {
    let (m, n, k) = (150, 72, 136);
    let orders: [fn(i64) -> i64; 4] = [|i| i / 60, |_| 1, |i| (i * 7 + i / 5) % 3, |i| i / 64 * 2 % 3];
    for guarded in [false, true] {
        let plan = experts(DType::F16, (m, n, k), 3, guarded);
        for order in orders {
            for settings in
                [[("block", "m", 64), ("split", "k", 2)], [("block", "m", 128), ("split", "k", 1)]]
            {
                let mut data = inputs(&plan.graph, 8);
                let gone = |i: i64| if guarded && i % 11 == 0 { 3 } else { order(i) };
                let chosen: Vec<i64> = (0..m).map(gone).collect();
                data.tensors.insert("g".into(), HostTensor::from_i64(DType::I32, &[m], &chosen));
                let mut s = with(Schedule::default(), "y", &settings);
                let groups = if s.int("y", "block", "m") == Some(64) { 1 } else { 2 };
                s.set("y", "warpgroups", "", Word::Int(groups));
                assert!(is_hopper(&plan, &s));
                check_as(&plan, "sm_90a", &s, &data);
            }
        }
    }
}
