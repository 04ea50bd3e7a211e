//! What a tile of the main loop on sm_90a is thought to take, for comparing tiles.
//!
//! Costs are in products of a step: those that the tensor cores of a multiprocessor make in a nanosecond are
//! `PER_NANOSECOND`, at the clock that long products run at.

use super::contract_hopper::Question;

/// Bytes a nanosecond that are read from memory by a whole product, its start included.
pub const MEMORY: f64 = 3600.0;
/// Products of a step and a result in a nanosecond: a step of 128 × 256 takes 730 of them.
pub const PER_NANOSECOND: f64 = (128 * 256) as f64 / 730.0;
/// A line of a copy, as the products of so many results and a step: about 0.4 of them a cycle.
pub const LINES: f64 = 80.0;
/// Steps of a tile that is mostly way out.
pub const FEW_STEPS: i64 = 2;

/// (rows, columns, warpgroups that multiply, share of the tensor cores' speed that the tile reaches).
pub const BLOCKS: [(u32, u32, u32, f64); 19] = [
    (128, 256, 2, 1.0),
    (128, 240, 2, 0.99),
    (128, 224, 2, 0.98),
    (128, 208, 2, 0.97),
    (128, 192, 2, 0.96),
    (128, 176, 2, 0.945),
    (128, 160, 2, 0.93),
    (256, 128, 2, 0.98),
    (192, 128, 3, 0.93),
    (128, 144, 2, 0.915),
    (128, 128, 2, 0.90),
    (128, 112, 2, 0.84),
    (128, 96, 2, 0.76),
    (256, 64, 2, 0.70),
    (128, 64, 2, 0.62),
    (64, 256, 1, 0.70),
    (64, 192, 1, 0.65),
    (64, 128, 1, 0.55),
    (64, 64, 1, 0.38),
];

/// The same for windows alone, which wait for copies.
const WINDOWED: [(u32, u32, u32, f64); 1] = [(192, 192, 3, 0.96)];

/// Blocks to weigh, with the share of speed that those of the table reach.
pub fn blocks(q: &Question, few: bool) -> Vec<(u32, u32, u32, f64)> {
    if few {
        let windows = q.a.map.pixels.is_some() || q.b.map.pixels.is_some();
        let more = WINDOWED.into_iter().filter(|_| windows);
        return BLOCKS.into_iter().chain(more).collect();
    }
    // Instructions take columns in steps of 8; copies of an operand along its rows are of 64, of which some may be for nothing.
    let unit = if q.b.k_major && q.c.ty == crate::vocab::dtype::Ty::F32 { 8 } else { 16 };
    let columns = |least: u32, most: u32| (least..=most).rev().filter(move |n| n.is_multiple_of(unit));
    let wide = columns(64, 256).map(|n| (128, n, 2, 1.0));
    let tall = columns(64, 192).map(|n| (256, n, 2, 1.0));
    let others = BLOCKS.into_iter().filter(|b| b.2 != 2).map(|b| (b.0, b.1, b.2, 1.0));
    wide.chain(tall).chain(others).collect()
}

/// Products in a cycle of the tensor cores, as `PER_NANOSECOND` counts them: a step of 128 × 256 in pairs of blocks is 3.5% more
/// than its 1024 cycles, and stands for 32768.
const CYCLE: f64 = 30.9;

/// What a step takes whose products, traffic of shared memory and copied lines run beside each other, none quite free of the
/// others: fourth powers add. `straddling`: lines begin in the middle of sectors.
pub fn step(rows: u32, columns: u32, (of_block, copied): (u32, u32), straddling: bool) -> f64 {
    let products = (rows * columns) as f64 / 32.0;
    // Lines are written, and each instruction reads its 64 rows and, what costs a third, all columns.
    let shared = of_block as f64 + rows as f64 * (1.0 + columns as f64 / 192.0);
    let lines = copied as f64 * if straddling { LINES / CYCLE } else { 1.66 };
    CYCLE * (products.powi(4) + shared.powi(4) + lines.powi(4)).powf(0.25)
}

/// What it takes until the first stage of so many lines is there, from memory.
pub fn start(lines: u32) -> f64 {
    CYCLE * (1200.0 + 5.2 * lines as f64)
}

/// What it takes until a tile's results are on their way: as boxes, line by line, or from registers.
pub fn way_out(rows: u32, columns: u32, staged: bool, boxes: bool) -> f64 {
    let of_results = match (staged, boxes) {
        (true, true) => 1.0,
        (true, false) => 12.0,
        (false, _) => 16.0,
    };
    CYCLE * (400.0 + of_results * (rows * columns) as f64 / 32.0)
}

/// What a second kernel that adds so many partial sums costs, as the products of that many results and steps.
pub fn second(partials: i64) -> f64 {
    /// A launch in nanoseconds, and bytes that are moved in one.
    const LAUNCH: f64 = 3500.0;
    const RATE: f64 = 4500.0;
    PER_NANOSECOND * (LAUNCH + (8 * partials) as f64 / RATE)
}

/// What a step costs shared memory, as products: copies write both operands' lines once, and each instruction of 64 rows
/// reads its rows and all columns, 128 bytes a cycle, in which 32 products of a step are made.
pub fn through_shared(rows: u32, columns: u32) -> f64 {
    let (written, read) = (rows + columns, rows / 16 * (16 + columns / 4));
    32.0 * (written + read) as f64
}
