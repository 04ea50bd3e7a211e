//! The kernel of sm_90a for weights of 4 bits: whether it takes a product, and its block.
//!
//! The weights' rows are the rows of `wgmma`, 64 a warpgroup, and the other operand's are its columns, up to 256 a block. Which
//! block is done first is counted: bytes that a multiprocessor takes in, codes that its warps turn into weights, products.

use super::Refusal;
use super::codes_ahead;
use super::contract_codes::{Codes, MOST_TOKENS, of_side, tile};
use super::contract_operand::Ground;
use super::contract_pattern::{ContractShape, Digit};
use super::contract_tile::Wishes;
use super::hopper_loop::MULTIPLYING;
use super::hopper_store::{Lines, Output};
use crate::ir::tile::*;
use crate::vocab::dtype::Ty;
use crate::vocab::target::Target;

/// Terms of a stage: a line of 128 bytes of codes, or half of one where the other operand's lines are many.
const STEPS: [i64; 2] = [256, 128];
/// Rows of the other operand, and the rows of weights and the terms from which on. Fewer rows of the other operand are no slower
/// in the older loop.
const WIDE: std::ops::RangeInclusive<i64> = 9..=MOST_TOKENS;
const LEAST_ROWS: i64 = 512;
const LEAST_TERMS: i64 = 512;
/// The most columns of an instruction.
const MOST_COLUMNS: i64 = 256;
/// Registers of a thread that multiplies, beside accumulators and the table's.
const REGISTERS: i64 = 76;

/// The kernel of sm_90a for a shape whose A are the weights, if it is worth it or asked for.
pub fn choose(ground: &Ground, target: &Target, wishes: &Wishes) -> Result<Option<Codes>, Refusal> {
    let shape = ground.shape;
    let ([c], true) = (&shape.folds[..], target.wgmma && target.tma) else { return Ok(None) };
    let [k] = &c.k[..] else { return Ok(None) };
    let takes = c.ty == Ty::F32 && shape.selector.is_none() && ContractShape::points(&shape.batch) == 1;
    if !takes || k.lo != 0 || k.extent <= 0 || STEPS.iter().all(|s| k.extent % s != 0) {
        return Ok(None);
    }
    let Some(asked) = Asked::of(shape, wishes, &k.name)? else { return Ok(None) };
    let points = |d: &[Digit]| ContractShape::points(d);
    let few = points(&shape.n);
    let asked_for = asked.any && (few >= *WIDE.start() || asked.groups_or_split);
    let worth = few >= *WIDE.start() && points(&shape.m) >= LEAST_ROWS && k.extent >= LEAST_TERMS;
    if few > *WIDE.end() || !(worth || asked_for) {
        return Ok(None);
    }
    let Some(mut codes) = of_side(ground, wishes, c, true) else { return Ok(None) };
    let Some(draft) = best(target, &codes, (points(&shape.m), few), &asked) else { return Ok(None) };
    (codes.together, codes.sharing) = (draft.together as u32, draft.sharing as u32);
    let mut tile = draft.tile(ground, wishes, &codes);
    codes.output = output(ground, &tile, &codes);
    (tile.staging, tile.boxes) =
        codes.output.as_ref().map_or((0, false), |o| (o.bytes(draft.groups as u32), true));
    Ok(Some(codes.with(tile, c)))
}

/// How whole sums leave: as boxes, through the ring's stages of the other operand, which nothing fills again.
fn output(ground: &Ground, tile: &Tile, codes: &Codes) -> Option<Output> {
    let Arrange::Groups { m: groups } = tile.arrange else { return None };
    let lines = Lines::of(ground).filter(|_| tile.split == 1)?;
    let output = lines.output((tile.m.block, tile.n.block), groups, u32::MAX)?;
    output.in_stages(codes.dtype).then_some(output)
}

/// The settings that speak of this loop.
struct Asked {
    any: bool,
    /// Only this loop has these.
    groups_or_split: bool,
    groups: Option<i64>,
    sharing: Option<i64>,
    columns: Option<i64>,
    split: Option<i64>,
    stages: Option<i64>,
    step: Option<i64>,
    cluster: Option<i64>,
}

impl Asked {
    /// `None`: there are others.
    fn of(shape: &ContractShape, wishes: &Wishes, k: &str) -> Result<Option<Asked>, Refusal> {
        let settings = wishes.schedule.kernels.get(wishes.kernel);
        let ([row], [column]) = (&shape.m[..], &shape.n[..]) else { return Ok(None) };
        let (row, column) = (&shape.axes[row.out].name, &shape.axes[column.out].name);
        let known = |(key, axis): &(String, String)| match key.as_str() {
            "warpgroups" | "stages" | "split" => true,
            "block" => axis == row || axis == column,
            "cluster" => axis == row,
            "step" => axis == k,
            _ => false,
        };
        if settings.is_some_and(|s| !s.keys().all(known)) {
            return Ok(None);
        }
        let block = wishes.int("block", row)?;
        let groups = wishes.int("warpgroups", "")?;
        let columns = wishes.int("block", column)?;
        // Warpgroups for which there are no rows share the terms.
        let sharing = groups.map(|g| block.map_or(1, |b| if b > 0 { 64 * g / b } else { 0 }));
        let fits = block.is_none_or(|b| b % 64 == 0)
            && sharing.is_none_or(|s| s > 0 && block.is_none_or(|b| b * s == 64 * groups.unwrap_or(0)))
            && columns.is_none_or(|n| n % 8 == 0 && (8..=MOST_COLUMNS).contains(&n));
        let groups = block.map(|b| b / 64).or(groups);
        let any = settings.is_some_and(|s| !s.is_empty());
        let own = |key: &(String, String)| matches!(key.0.as_str(), "warpgroups" | "split");
        let groups_or_split = settings.is_some_and(|s| s.keys().any(own));
        let (split, stages) = (wishes.split()?, wishes.int("stages", "")?);
        let (step, cluster) = (wishes.int("step", k)?, wishes.int("cluster", row)?);
        Ok(fits.then_some(Asked {
            any,
            groups_or_split,
            groups,
            sharing,
            columns,
            split,
            stages,
            step,
            cluster,
        }))
    }
}

/// A block and its pipeline.
#[derive(Clone, Copy)]
struct Draft {
    groups: i64,
    /// Warpgroups that share the terms of the same rows.
    sharing: i64,
    columns: i64,
    split: i64,
    together: i64,
    step: i64,
    cluster: i64,
    stages: i64,
    /// Bytes of the table of constants, and of the sums that warpgroups add.
    table: i64,
}

/// The block that is expected to be done first.
fn best(target: &Target, codes: &Codes, sides: (i64, i64), asked: &Asked) -> Option<Draft> {
    let one = |wished: Option<i64>, all: Vec<i64>| wished.map_or(all, |w| vec![w]);
    let columns = one(asked.columns, columns(sides.1));
    let splits = one(asked.split, (1..=16).collect());
    let clusters = one(asked.cluster, if target.clusters { vec![1, 2] } else { vec![1] });
    let mut found: Option<(f64, Draft)> = None;
    let warpgroups = one(asked.groups, vec![1, 2, 4]).into_iter();
    let warpgroups = warpgroups.flat_map(|g| one(asked.sharing, vec![1, 2]).into_iter().map(move |s| (g, s)));
    for (groups, sharing) in warpgroups {
        for step in one(asked.step, STEPS.to_vec()) {
            for &columns in &columns {
                for (&split, &cluster) in splits.iter().flat_map(|s| clusters.iter().map(move |c| (s, c))) {
                    for together in [1, 2] {
                        let (stages, table) = (0, 0);
                        let draft =
                            Draft { groups, sharing, columns, split, together, step, cluster, stages, table };
                        let Some(draft) = draft.fitted(target, codes, sides, asked.stages) else { continue };
                        let cost = draft.cost(target, codes, sides);
                        if found.as_ref().is_none_or(|f| cost < f.0) {
                            found = Some((cost, draft));
                        }
                    }
                }
            }
        }
    }
    found.map(|f| f.1)
}

/// The columns of a block that leave the least of its last one empty.
fn columns(few: i64) -> Vec<i64> {
    const LEAST: i64 = 32;
    let tiles = (few + MOST_COLUMNS - 1) / MOST_COLUMNS..=((few + LEAST - 1) / LEAST).min(64);
    let mut all: Vec<i64> = tiles.map(|n| ((few + n - 1) / n + 7) / 8 * 8).collect();
    all.dedup();
    all
}

impl Draft {
    fn rows(&self) -> i64 {
        64 * self.groups
    }

    /// Those that multiply.
    fn warpgroups(&self) -> i64 {
        self.groups * self.sharing
    }

    fn per(&self, codes: &Codes) -> i64 {
        (codes.terms / self.step + self.split - 1) / self.split
    }

    fn blocks(&self, (rows, few): (i64, i64)) -> i64 {
        let tiles = |points: i64, block: i64| (points + block - 1) / block;
        tiles(rows, self.rows()) * tiles(few, self.columns) * self.split
    }

    /// With as many stages as there is room for, if it can be.
    fn fitted(
        mut self,
        target: &Target,
        codes: &Codes,
        (rows, few): (i64, i64),
        stages: Option<i64>,
    ) -> Option<Draft> {
        let all = codes.terms / self.step;
        let per = self.per(codes);
        // Every part has terms.
        let parts = self.split <= all && (self.split - 1) * per < all && codes.terms % self.step == 0;
        let whole = (rows + self.rows() - 1) / self.rows();
        let pairs = self.cluster == 1 || self.cluster == 2 && whole % 2 == 0 && self.columns % 16 == 0;
        let shared = self.sharing == 1
            || self.groups == 1 && self.sharing == 2 && self.split * per == all && per % self.sharing == 0;
        if !parts || !pairs || !shared || !STEPS.contains(&self.step) || !matches!(self.groups, 1 | 2 | 4) {
            return None;
        }
        let (own, shares) = (per / self.sharing, self.split * self.sharing);
        let ahead = codes_ahead::Chunk::of(codes, self.step, self.columns, own, shares);
        let registers = self.columns / 2 + REGISTERS + 2 * codes.constants() + ahead.held(codes);
        let threads = 128 * (self.warpgroups() + 1);
        let have = match (self.warpgroups(), self.together) {
            (2, 1) => MULTIPLYING.into(),
            (_, n) => (65536 / (threads * n) / 8 * 8).min(255),
        };
        let more = self.blocks((rows, few)) > target.sms as i64;
        self.table = ahead.bytes(codes, self.warpgroups()) + (self.sharing - 1) * 256 * self.columns;
        let stage = self.rows() * self.step / 2 + self.columns * self.step * 2;
        let room = (target.shared_per_sm as i64 / self.together).min(target.shared_per_block as i64);
        let room = room - 3072 - self.table;
        self.stages = stages.unwrap_or((room / stage).min(8).min(per + 1).max(2));
        self.stages -= self.stages % self.sharing;
        if stages.is_some_and(|s| s != self.stages) {
            return None;
        }
        let fits = registers <= have && (self.together == 1 || more);
        (fits && self.stages >= 2 && self.stages * stage <= room).then_some(self)
    }

    /// Nanoseconds.
    fn cost(&self, target: &Target, codes: &Codes, (rows, few): (i64, i64)) -> f64 {
        /// Bytes a nanosecond from memory, from the L2 cache, and into one multiprocessor.
        const MEMORY: f64 = 4200.0;
        const CACHE: f64 = 9000.0;
        const OWN: f64 = 55.0;
        /// Nanoseconds until a copy is there, and of a block's start and end.
        const LATENCY: f64 = 700.0;
        const AROUND: f64 = 2500.0;
        /// Codes that a multiprocessor turns into weights in a nanosecond, nanoseconds of 16 terms of a column of an instruction,
        /// and the fewest columns that it takes the time of. One does not go on beside the other, as measured with 64, 128
        /// and 256 columns; a warpgroup alone waits besides.
        const WEIGHTS: f64 = 45.0;
        const COLUMN: f64 = 0.285;
        const FEWEST: i64 = 40;
        const ALONE: f64 = 1.25;
        /// Warpgroups' sums that are added.
        const JOIN: f64 = 400.0;
        /// A second kernel.
        const SECOND: f64 = 3500.0;
        let (sms, per) = (target.sms as i64, self.per(codes));
        let blocks = self.blocks((rows, few));
        let here = ((blocks + sms - 1) / sms).min(self.together);
        let waves = (blocks + sms * self.together - 1) / (sms * self.together);
        let code_bytes = self.rows() * self.step / 2;
        let few_bytes = self.columns * self.step * 2;
        let copies = (here * (code_bytes + few_bytes)) as f64 / OWN;
        let copies = copies.max((LATENCY + copies) / (self.stages - 1) as f64);
        let weights = (here * self.rows() * self.step) as f64 / WEIGHTS;
        let columns = self.columns.max(FEWEST);
        let products = (here * self.groups * self.step / 16 * columns) as f64 * COLUMN;
        let alone = if self.warpgroups() * here == 1 { ALONE } else { 1.0 };
        let computed = alone * (weights + products);
        let looped = (waves * per) as f64 * copies.max(computed);
        let memory = (rows * codes.terms / 2 + 2 * few * codes.terms) as f64 / MEMORY;
        let cache = (blocks * per * (code_bytes + few_bytes / self.cluster)) as f64 / CACHE;
        let parts = if self.split > 1 { SECOND + (self.split * rows * few * 8) as f64 / CACHE } else { 0.0 };
        // A pair of blocks wait for each other.
        let pairs = if self.cluster > 1 { 1.02 } else { 1.0 };
        let joined = (self.sharing - 1) as f64 * JOIN;
        pairs * looped.max(memory).max(cache) + waves as f64 * (AROUND + joined) + parts
    }

    fn tile(&self, ground: &Ground, wishes: &Wishes, codes: &Codes) -> Tile {
        let shape = ground.shape;
        let (rows, columns, stages) = (self.rows() as u32, self.columns as u32, self.stages as u32);
        let mut tile =
            tile(ground, wishes, codes, (&shape.m, rows), (&shape.n, columns), 1, stages, self.split);
        let stage = rows * self.step as u32 / 2 + columns * self.step as u32 * 2;
        let fold = &mut tile.folds[0];
        (fold.step, fold.slot) = (self.step, self.step as u32);
        fold.math = Math::Wgmma { dtypes: [codes.dtype; 2], promote: false };
        fold.a.place = Place::Lines(rows * self.step as u32 / 256);
        fold.b.place = Place::Lines(columns * self.step as u32 / 64);
        (fold.a.load, fold.b.load) = (Load::Boxes, Load::Boxes);
        let shared_bytes = stages * stage + self.table as u32 + 16 * stages;
        let arrange = Arrange::Groups { m: self.groups as u32 };
        let threads = 128 * (self.warpgroups() as u32 + 1);
        Tile { arrange, threads, shared_bytes, cluster: self.cluster as u32, ..tile }
    }
}
