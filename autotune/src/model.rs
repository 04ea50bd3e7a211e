//! The analytic model: microseconds of a lowered program without compiling or running it.
//!
//! `walk` counts what one block of each kernel does (bytes, sectors, instructions, products, waits); here that becomes
//! a roofline: a wave of resident blocks takes as long as the busiest of its resources, the grid takes as many waves as
//! it needs, device memory sets a floor under all of them, and each launch costs its own. The constants are one
//! H200's, scaled to the target's multiprocessors.

use crate::walk::{self, Block};
use girih_compiler::ir::program::{Program, Step};
use girih_compiler::ir::simt::{Kernel, ParamKind};
use girih_compiler::sim::KernelReport;
use girih_compiler::vocab::target::Target;

/// Cycles a second under load.
pub const CLOCK: f64 = 1.5e9;
/// Bytes a second from device memory for all multiprocessors of an H200.
pub const MEMORY: f64 = 4.4e12;
/// The same from the L2 cache, for one multiprocessor.
const L2: f64 = 11e12 / 132.0;
/// Warp instructions a cycle that real code issues on one multiprocessor.
const ISSUE: f64 = 4.0;
/// What one warp alone issues.
const WARP: f64 = 0.42;
/// Until a load that was started has arrived, when many are under way.
const LATENCY: f64 = 1.05e-6;
/// A barrier of a block, and the wait for a pipeline's stage.
const BARRIER: f64 = 30e-9;
/// Before a block's first load is under way, and after its last store.
const START: f64 = 0.7e-6;
/// The part of it that a further wave costs where several blocks are resident, which start and end beside each other.
const AGAIN: f64 = 0.15;
/// Steps that wait for each other take longer than alone, since loads queue.
const CHAIN: f64 = 1.5;
/// Products whose results leave the registers without staging hold up the next tile: 16% (8192³) to 25% (convolutions).
const DIRECT: f64 = 1.25;
/// Blocks of a cluster wait for each other.
const CLUSTER: f64 = 1.06;
/// Bytes that the blocks which run at once work on, up to which the L2 cache still has what they read again, and from which
/// on it has none of it.
const KEPT: [f64; 2] = [14e6, 40e6];
/// A kernel after another one; the first one of a program.
const NEXT: f64 = 1.3e-6;
const FIRST: f64 = 2.2e-6;
/// Blocks are handed out one after the other.
const HAND_OUT: f64 = 0.6e-9;
/// Registers that a thread needs beside its arrays.
const OTHER_REGISTERS: u32 = 28;

/// A kernel's time and what it came from. Seconds, but for the counts.
#[derive(Clone, Debug, Default)]
pub struct KernelTime {
    pub kernel: String,
    pub seconds: f64,
    /// Times that it is launched.
    pub launches: f64,
    pub waves: f64,
    /// Resident blocks of a multiprocessor.
    pub resident: f64,
    /// Bytes from device memory, and through the L2 cache.
    pub bytes: f64,
    pub through_l2: f64,
    /// Operations of products on tensor cores.
    pub flop: f64,
    /// What a wave waits for most: its name, and each resource's seconds for a wave.
    pub bound: &'static str,
    pub parts: Vec<(&'static str, f64)>,
}

/// Microseconds of a program.
pub fn predict(program: &Program, target: &Target) -> f64 {
    total(&times(program, target))
}

/// Microseconds of all kernels together.
pub fn total(kernels: &[KernelTime]) -> f64 {
    kernels.iter().map(|k| k.seconds * k.launches).sum::<f64>() * 1e6 + FIRST * 1e6
}

/// Each kernel that is launched.
pub fn times(program: &Program, target: &Target) -> Vec<KernelTime> {
    let mut launches = vec![0.0; program.kernels.len()];
    count(&program.steps, 1.0, &mut launches);
    let used = program.kernels.iter().zip(launches).filter(|(_, n)| *n > 0.0);
    used.map(|(k, n)| KernelTime { launches: n, ..kernel(k, target) }).collect()
}

fn count(steps: &[Step], times: f64, launches: &mut [f64]) {
    for step in steps {
        match step {
            Step::Launch(l) => launches[l.kernel] += times,
            Step::Repeat { count: n, steps } => count(steps, times * *n as f64, launches),
            Step::Fill { .. } | Step::Copy { .. } => {}
        }
    }
}

/// Blocks of a kernel that one multiprocessor holds at once; 0 if not one fits.
pub fn resident(k: &Kernel, target: &Target) -> u32 {
    let threads = k.threads().max(1).next_multiple_of(32);
    let shared = target.shared_per_sm / (k.shared_bytes() + 1024);
    let registers = target.registers_per_sm / (registers(k) * threads);
    shared.min(registers).min(target.threads_per_sm / threads).min(32)
}

/// Registers of a thread: its arrays, and a share for everything else.
pub fn registers(k: &Kernel) -> u32 {
    use girih_compiler::ir::simt::Ty;
    // Many packed words are a row that is held, and unpacked where it is used.
    let words = |a: &girih_compiler::ir::simt::Array| match a.ty {
        Ty::I64 | Ty::U64 | Ty::F64 => 2 * a.len,
        Ty::U32 if a.len > 32 => 2 * a.len,
        _ => a.len,
    };
    let arrays: u32 = k.arrays.iter().map(words).sum();
    let most = (65536 / k.threads().max(1)).min(255) / 8 * 8;
    (arrays + OTHER_REGISTERS).next_multiple_of(8).min(most.max(24))
}

fn kernel(k: &Kernel, target: &Target) -> KernelTime {
    let block = busiest(k, target);
    let blocks = k.grid.iter().map(|&n| f64::from(n)).product::<f64>().max(1.0);
    let sms = f64::from(target.sms);
    let fit = f64::from(resident(k, target).max(1));
    let on_each = (blocks / sms).ceil().min(fit);
    let waves = (blocks / (sms * on_each)).ceil();
    let parts = wave(k, &block, on_each);
    let (bound, _) = parts.iter().copied().fold(("nothing", 0.0), |a, b| if b.1 > a.1 { b } else { a });
    let warps = on_each * f64::from(k.threads().div_ceil(32));
    let overlap = if block.asynchronous {
        4.0
    } else {
        (warps / 4.0).log2().min(1.0 + waves.log2()).min(1.5 + on_each.log2()).clamp(1.0, 3.0)
    };
    let busy = together(&parts, overlap);
    let traffic = block.read + block.written;
    let bytes = device_bytes(k, &block, blocks);
    let memory =
        (bytes + read_again(&block, bytes, blocks, on_each * sms)) / (MEMORY * (sms / 132.0).min(1.0));
    let start = START + block.waits * BARRIER / on_each;
    // The start of one wave hides behind the end of another where several blocks are resident.
    let busy = waves * busy + start * if on_each > 1.0 { 1.0 + waves * AGAIN } else { waves };
    let running = together(&[("blocks", busy), ("memory", memory)], overlap);
    let seconds = running + NEXT + blocks * HAND_OUT;
    let bound = if memory > busy { "device memory" } else { bound };
    KernelTime {
        kernel: k.name.clone(),
        seconds,
        launches: 1.0,
        waves,
        resident: on_each,
        bytes,
        through_l2: traffic * blocks,
        flop: block.flop * blocks,
        bound,
        parts,
    }
}

/// Bytes that blocks read again which the L2 cache no longer has. Tiles of products are shared by blocks that run at once
/// and stay there.
fn read_again(block: &Block, bytes: f64, blocks: f64, at_once: f64) -> f64 {
    if block.flop > 0.0 {
        return 0.0;
    }
    let again = (block.params.iter().sum::<f64>() * blocks - bytes).max(0.0);
    let set = bytes / blocks * at_once.min(blocks);
    again * ((set - KEPT[0]) / (KEPT[1] - KEPT[0])).clamp(0.0, 1.0)
}

/// What a block in the middle of the grid does; of blocks that all run at once, the first one's, if that is more: they
/// take tiles in turn, and the first have one more.
fn busiest(k: &Kernel, target: &Target) -> Block {
    let middle = walk::block(k, k.grid.map(|n| i64::from(n / 2)));
    if k.grid.iter().product::<u32>() > target.sms {
        return middle;
    }
    let first = walk::block(k, [0; 3]);
    let work = |b: &Block| b.tensor_cycles + b.instructions;
    if work(&first) > work(&middle) { first } else { middle }
}

/// Bytes that asynchronous copies of a block may have under way: all places of its ring but the one that is read. A ring's
/// barriers are two a place.
fn ahead(k: &Kernel) -> f64 {
    let bytes = |name: &str| -> u32 {
        let all = k.shared.iter().filter(|s| s.name == name);
        all.map(|s| s.len * s.dtype.bits().div_ceil(8)).sum()
    };
    let places = f64::from(bytes("barriers") / 16);
    let ring = f64::from(k.shared_bytes().saturating_sub(bytes("staging") + bytes("barriers")));
    if places >= 2.0 { ring * (places - 1.0) / places } else { ring }
}

/// Resources overlap, but not wholly: what is used nearly as much as the busiest one adds to it, and where few warps are
/// on a multiprocessor, or few blocks follow each other, and load nothing ahead, one thing comes after the other.
fn together(parts: &[(&'static str, f64)], overlap: f64) -> f64 {
    parts.iter().map(|p| p.1.powf(overlap)).sum::<f64>().powf(1.0 / overlap)
}

/// Seconds that each resource of a multiprocessor needs for a wave.
fn wave(k: &Kernel, b: &Block, on_each: f64) -> Vec<(&'static str, f64)> {
    let warps = f64::from(k.threads().div_ceil(32));
    let in_flight = if b.asynchronous { ahead(k) } else { b.in_flight * f64::from(k.threads()) };
    let boxes = k.params.iter().any(|p| k.stores_boxes(&p.name));
    let staged = boxes || k.shared.iter().any(|s| s.name == "staging");
    let direct = if b.asynchronous && !staged { DIRECT } else { 1.0 };
    let direct = if k.cluster.iter().any(|&c| c > 1) { direct * CLUSTER } else { direct };
    let fly = LATENCY / (on_each * in_flight).max(1.0);
    vec![
        ("tensor cores", on_each * b.tensor_cycles * direct / CLOCK),
        ("instructions", on_each * b.instructions / (ISSUE.min(WARP * warps * on_each) * CLOCK)),
        ("shared memory", on_each * b.wavefronts / CLOCK),
        ("L2 cache", on_each * (b.sectors * 32.0).max(b.read + b.written) / L2),
        ("bytes in flight", on_each * b.read * fly),
        ("latency", CHAIN * b.chain / CLOCK),
    ]
}

/// Bytes that come from or go to device memory: of each tensor at most all of it.
fn device_bytes(k: &Kernel, b: &Block, blocks: f64) -> f64 {
    let whole = |i: usize| match &k.params[i].kind {
        ParamKind::Pointer { dtype, len, .. } => *len as f64 * f64::from(dtype.bits()) / 8.0,
        ParamKind::TensorMap(m) => {
            m.dims.iter().map(|&n| n as f64).product::<f64>() * f64::from(m.dtype.bits()) / 8.0
        }
        ParamKind::Scalar(_) => 0.0,
    };
    b.params.iter().enumerate().map(|(i, &bytes)| (bytes * blocks).min(whole(i).max(32.0))).sum()
}

/// Microseconds that the simulator's counts of a kernel stand for.
pub fn counted(report: &KernelReport, program: &Program, target: &Target) -> f64 {
    let Some(k) = program.kernels.iter().find(|k| k.name == report.kernel) else { return 0.0 };
    if report.launches == 0 {
        return 0.0;
    }
    let sms = f64::from(target.sms);
    let blocks = k.grid.iter().map(|&n| f64::from(n)).product::<f64>().max(1.0);
    let spread = blocks.min(sms);
    let launches = report.launches as f64;
    let per = |n: u64| n as f64 / launches;
    let bytes = per(report.global_read + report.global_written);
    let issued: f64 = report.operations.iter().map(|&n| n as f64).sum::<f64>() / launches;
    let busiest = (bytes / (L2 * spread))
        .max(per(report.shared_wavefronts) / (CLOCK * spread))
        .max(issued / (ISSUE * CLOCK * spread));
    launches * (NEXT + START + blocks * HAND_OUT + busiest) * 1e6
}
