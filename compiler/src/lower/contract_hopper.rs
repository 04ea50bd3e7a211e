//! The `contract` form on sm_90a: which products go through copies of boxes (TMA) and warpgroups' matrix instructions
//! (wgmma), and with which tile.
//!
//! An operand qualifies if it is a plain read of a tensor of 16- or 8-bit elements whose place is affine in the product's
//! axes and that `hopper_gather` knows how to copy: boxes of rows (M or N) and K, one of the two contiguous (of 8-bit
//! elements K), the other in steps of 16 bytes; or pixels in a row. What a copy covers beyond the operand is zero, so
//! sizes that divide nothing need no more than that.

use super::contract_border::Border;
use super::contract_operand::{Ground, Source};
use super::contract_pattern::{self, ContractShape, Contraction, Digit};
use super::contract_tile::{Choice, FoldChoice, Wishes};
use super::hopper_cost::{BLOCKS, FEW_STEPS, LINES, MEMORY, PER_NANOSECOND, second, through_shared};
use super::hopper_gather::{self, Boxes, Form, LINE, Terms};
use super::hopper_scales::Scales;
use super::hopper_store::{Lines, Output};
use super::{Refusal, contract_codes, contract_few, contract_operand, contract_tail};
use super::{hopper_cost, hopper_join, hopper_pixels, hopper_ragged};
use crate::ir::graph::{Graph, TensorId, Word};
use crate::ir::program::BufferId;
use crate::ir::tile::*;
use crate::vocab::dtype::{DType, Ty};
use crate::vocab::target::Target;

/// Bytes of shared memory left for barriers and alignment.
pub(super) const SPARE: u32 = 2048;
/// Rows or columns below which the other main loop is taken, the same for the larger of both, and terms, unless the
/// settings ask for this one.
pub(super) const LEAST: i64 = 64;
const LEAST_LARGER: i64 = 128;
/// Stages beyond which staging tiles are worth more; one more where a block has but one tile (2048³ took 28.0 µs with four and
/// 28.4 with three), or copies are its time.
const ENOUGH: u32 = 3;
const LEAST_TERMS: i64 = 128;
/// Rows and columns from which any terms are enough.
const LEAST_WIDE: i64 = 128;

/// Accumulators that a thread has room for, where so many warpgroups multiply; windows are worth giving three of them the
/// registers of the one that loads.
fn room(groups: u32, windows: bool) -> u32 {
    match (groups > 2, windows) {
        (true, false) => 64,
        (true, true) => 96,
        (false, _) => 192,
    }
}

/// A tile with what its copies need.
pub struct Hopper {
    pub choice: Choice,
    pub terms: Terms,
    /// Matrices that are copied together: B's of several sums, the parts of f32 operands.
    pub a: Vec<Boxes>,
    pub b: Vec<Boxes>,
    /// How results are stored as boxes, where they can be.
    pub output: Option<Output>,
    /// What blocks of terms are multiplied by.
    pub scales: Option<Scales>,
    /// What it is thought to take, to be compared with others of the same product.
    pub cost: f64,
    /// What is set if a sum is NaN.
    pub note: Option<BufferId>,
}

/// Copies to read instead of tensors as they lie.
#[derive(Clone, Copy, Default)]
pub struct Copies<'x> {
    pub borders: &'x [Border],
    /// f32 tensors that lie in two parts: bytes from the greater to the smaller.
    pub halves: &'x [(TensorId, i64)],
    /// Whether readers add the parts of a sum that blocks share.
    pub parts: bool,
}

/// What the instructions take.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Kind {
    dtypes: [DType; 2],
    pub promote: bool,
    /// Sums that share A.
    folds: u32,
}

impl Kind {
    fn of(
        ground: &Ground,
        target: &Target,
        wishes: &Wishes,
        c: &Contraction,
        copies: Copies,
    ) -> Option<Kind> {
        let math = contract_operand::math(ground.graph, ground.facts, c, target, wishes.fast());
        let folds = ground.shape.folds.len() as u32;
        let kind = |dtypes, promote| Some(Kind { dtypes, promote, folds });
        match math {
            Math::Mma { kind: MmaKind::Half(d), promote } => kind([d, d], promote),
            Math::Mma { kind: MmaKind::Byte(a, b), promote } => kind([a, b], promote),
            Math::Fma(Ty::F32) if !copies.halves.is_empty() => kind([DType::F32; 2], true),
            _ => None,
        }
    }

    /// Matrices that an operand of f32 is copied as.
    pub fn parts(&self) -> u32 {
        if self.dtypes[0] == DType::F32 { 2 } else { 1 }
    }
}

/// What a block is chosen for.
pub(super) struct Question<'q, 'g> {
    pub ground: &'q Ground<'q, 'g>,
    pub c: &'q Contraction,
    pub target: &'q Target,
    pub wishes: &'q Wishes<'q>,
    pub kind: Kind,
    pub terms: &'q Terms,
    pub a: &'q Boxes,
    pub b: &'q Boxes,
    pub lines: Option<&'q Lines>,
    pub scales: Option<&'q Scales>,
    /// Whether a cluster's blocks may add the parts of a sum.
    pub joins: bool,
}

/// Who chooses the block.
pub(super) type Pick = dyn Fn(&Question) -> Result<Option<Draft>, Refusal>;

/// The boxes of one sum's operands, and where their elements come from.
struct Operands {
    terms: Terms,
    a: Boxes,
    b: Boxes,
    choice: FoldChoice,
}

/// The tile of a product that this main loop takes, or `None`.
pub fn choose(
    ground: &Ground,
    target: &Target,
    wishes: &Wishes,
    copies: Copies,
) -> Result<Option<Hopper>, Refusal> {
    choose_by(ground, target, wishes, copies, &best)
}

/// As `choose`, with the block that `pick` says.
pub(super) fn choose_by(
    ground: &Ground,
    target: &Target,
    wishes: &Wishes,
    copies: Copies,
    pick: &Pick,
) -> Result<Option<Hopper>, Refusal> {
    let whole = ground.shape;
    let bare =
        ContractShape { folds: whole.folds.iter().map(Contraction::unscaled).collect(), ..whole.clone() };
    let ground = &Ground { graph: ground.graph, facts: ground.facts, shape: &bare, home: ground.home };
    let shape = ground.shape;
    let good = |c: &Contraction| matches!(c.ty, Ty::F32 | Ty::I32) && c.ty == shape.folds[0].ty;
    if !target.wgmma || !target.tma || !shape.folds.iter().all(good) || wishes.names_threads() {
        return Ok(None);
    }
    let Some(c) = shape.folds.first() else { return Ok(None) };
    let Some(kind) = Kind::of(ground, target, wishes, c, copies) else { return Ok(None) };
    let all = shape.folds.iter().map(|c| {
        let same = Kind::of(ground, target, wishes, c, copies) == Some(kind);
        if same { operands(ground, c, kind, copies) } else { None }
    });
    let Some(all) = all.collect::<Option<Vec<Operands>>>() else { return Ok(None) };
    let one = |o: &Operands| o.terms == all[0].terms && o.a == all[0].a && o.b.k_major == all[0].b.k_major;
    if !all.iter().all(one) {
        return Ok(None);
    }
    let scaled = whole.folds.iter().any(|c| c.blocks.is_some());
    let scales = Scales::new(ground.graph, whole, &whole.folds[0], &all[0].terms);
    if scaled && (scales.is_none() || whole.folds.len() > 1 || kind.dtypes[0].bits() != 8) {
        return Ok(None);
    }
    let kind = Kind { promote: kind.promote || scaled, ..kind };
    let lines = Lines::of(ground);
    let Operands { terms, a, b, .. } = &all[0];
    let one_sum = kind.folds == 1 && c.ty == Ty::F32 && shape.selector.is_none() && terms.ragged.is_empty();
    let joins = target.clusters && one_sum && !copies.parts;
    let (lies, scales_of) = (lines.as_ref(), scales.as_ref());
    let question =
        Question { ground, c, target, wishes, kind, terms, a, b, lines: lies, scales: scales_of, joins };
    let Some(draft) = pick(&question)? else { return Ok(None) };
    let staged = lines.filter(|_| draft.staging > 0);
    let output = staged.and_then(|l| l.output((draft.m, draft.n), draft.groups, draft.staging));
    let terms = all[0].terms.clone();
    let line = terms.line;
    let boxes = |o: &Boxes, rows: u32, shares: u32| o.clone().with_rows(rows, line, shares);
    let (of_a, of_b) = if draft.across { (draft.cluster, 1) } else { (1, draft.cluster) };
    let a = halves(boxes(&all[0].a, draft.m, of_a), copies);
    let b = all.iter().flat_map(|o| halves(boxes(&o.b, draft.n, of_b), copies)).collect::<Vec<_>>();
    let tile = tile(ground, wishes, &draft, kind, &terms, &a[0], &b)?;
    let folds = all.iter().map(|o| o.choice.clone()).collect();
    let (note, cost) = (None, draft.cost);
    Ok(Some(Hopper { choice: Choice { tile, folds }, terms, a, b, output, scales, cost, note }))
}

/// The parts of an operand.
fn halves(o: Boxes, copies: Copies) -> Vec<Boxes> {
    let Some((_, bytes)) = copies.halves.iter().find(|h| h.0 == o.tensor) else { return vec![o] };
    let mut small = o.clone();
    small.map.offset += bytes;
    vec![o, small]
}

fn operands(ground: &Ground, c: &Contraction, kind: Kind, copies: Copies) -> Option<Operands> {
    let (shape, dtypes, borders) = (ground.shape, kind.dtypes, copies.borders);
    let bounded = hopper_ragged::bounds(ground, c);
    let (c, bounds) = bounded.as_ref().map_or((c, Vec::new()), |(c, bounds)| (c, bounds.clone()));
    let operand = |f, rows: &[Digit], dtype| match ground.source(c, f, dtype) {
        Source::Plain(p) => Form::new(ground, c, &p, rows, borders).map(|o| (o, Source::Plain(p))),
        Source::Computed => None,
    };
    let (a, a_source) = operand(&c.a, &shape.m, dtypes[0])?;
    let (b, b_source) = operand(&c.b, &shape.n, dtypes[1])?;
    let (terms, a, b) = copied(c, &a, &b, bounds)?;
    let split = |o: &Boxes| copies.halves.iter().any(|h| h.0 == o.tensor);
    if kind.parts() == 2 && !(split(&a) && split(&b)) {
        return None;
    }
    let choice = FoldChoice { k: c.k.clone(), a: a_source, b: b_source };
    Some(Operands { terms, a, b, choice })
}

/// The order of terms, and the copies of both operands.
fn copied(
    c: &Contraction,
    a: &Form,
    b: &Form,
    bounds: Vec<hopper_ragged::Ragged>,
) -> Option<(Terms, Boxes, Boxes)> {
    let plain = bounds.is_empty();
    let terms = hopper_gather::terms(c, [a, b]).with_bounds(bounds)?;
    if let (Some(a), Some(b)) = (a.boxes(c, &terms), b.boxes(c, &terms)) {
        return Some((terms, a, b));
    }
    let terms = hopper_pixels::terms(c, [a, b]).filter(|_| plain)?;
    let boxes = |f: &Form| f.plain(c, &terms).or_else(|| hopper_pixels::boxes(f, c, &terms));
    let (a, b) = (boxes(a)?, boxes(b)?);
    Some((terms, a, b))
}

/// A block and its pipeline.
#[derive(Clone, Copy, Default)]
pub(super) struct Draft {
    pub m: u32,
    pub n: u32,
    pub groups: u32,
    pub stages: u32,
    pub split: i64,
    /// Bytes through which results are stored, and whether as boxes.
    pub staging: u32,
    pub boxes: bool,
    pub resident: Option<u32>,
    /// Whose last wave is shared.
    pub tail: Option<Tail>,
    /// Blocks of a cluster that share a tile's terms.
    pub join: u32,
    pub cluster: u32,
    /// Whether they are neighbours along the columns.
    pub across: bool,
    pub cost: f64,
}

/// The best tile that fits the settings, if this main loop is the right one.
fn best(q: &Question) -> Result<Option<Draft>, Refusal> {
    let &Question { ground, c, target, wishes, kind, terms, a, b, lines, scales, .. } = q;
    let shape = ground.shape;
    let (rows, columns) = (ContractShape::points(&shape.m), ContractShape::points(&shape.n));
    let (Some(m), Some(n)) = (wished_block(q, &shape.m)?, wished_block(q, &shape.n)?) else {
        return Ok(None);
    };
    let groups = wishes.int("warpgroups", "")?;
    let steps: Vec<Option<i64>> =
        c.k.iter().map(|k| wishes.int("step", &k.name)).collect::<Result<_, _>>()?;
    if steps.iter().flatten().any(|&s| s != terms.step)
        || shape.m.is_empty()
        || shape.n.is_empty()
        || c.terms() == 0
    {
        return Ok(None);
    }
    let batch = ContractShape::points(&shape.batch);
    let asked = m.is_some() || n.is_some() || groups.is_some();
    if let Some(n) = b.choices()
        && (!asked && rows / n < LEAST || batch * rows > 1 << 29)
    {
        // Most tiles would be of mixed rows.
        return Ok(None);
    }
    let small = rows.min(columns) < LEAST || rows.max(columns) < LEAST_LARGER;
    // Where the results are most of what is moved, their way out as boxes decides.
    let least = if rows.min(columns) >= LEAST_WIDE { 1 } else { LEAST_TERMS };
    if !asked && (small || c.terms() < least) {
        return Ok(None);
    }
    let split = wishes.split()?;
    let stages = wishes.int("stages", "")?;
    let cluster = wished_cluster(shape, wishes)?;
    if let (Some((n, _)), true) = (cluster.filter(|c| c.0 > 1), shape.selector.is_some()) {
        let why = format!("rows choose their matrix, so {n} blocks have no operand in common");
        return Err(wishes.refuse("cluster", &shape.axes[shape.m[0].out].name, &why));
    }
    let limit = target.shared_per_block - SPARE;
    // No tile is done before both operands have been read; what it computes beside counts a little, to tell tiles apart.
    let bytes = (kind.dtypes[0].bits() / 8 * kind.parts()) as f64;
    let windows = a.map.pixels.is_some() || b.map.pixels.is_some();
    let read =
        (batch * (rows + columns * kind.folds as i64) * c.terms()) as f64 * bytes / MEMORY * PER_NANOSECOND;
    // Sums over several axes may read an element again and again (windows), and wait for memory less.
    let streamed =
        |time: f64, last: f64| if c.k.len() == 1 { time.max(read + 0.1 * time + last) } else { time };
    let mut best: Option<(f64, Draft)> = None;
    // The instructions of integers take columns in steps of 16.
    let unit = if c.ty == Ty::I32 { 16 } else { 8 };
    let own: Vec<u32> = n.map_or(vec![], |n| vec![n as u32]);
    let all = terms.steps();
    // Step costs were measured with one plain sum of 16-bit elements.
    let plain = kind.folds == 1
        && !kind.promote
        && kind.dtypes[0].bits() == 16
        && shape.selector.is_none()
        && batch == 1;
    let tabled = windows || all <= FEW_STEPS || !plain;
    let blocks = hopper_cost::blocks(q, tabled);
    let wished = own.iter().flat_map(|&n| [(64, n, 1, 0.5), (128, n, 2, 0.9), (256, n, 2, 0.9)]);
    let wished = wished.filter(|w| w.1.is_multiple_of(unit) && w.1 <= 256);
    let wished: Vec<_> = wished.filter(|w| !blocks.iter().any(|b| (b.0, b.1) == (w.0, w.1))).collect();
    for (bm, bn, wg, speed) in blocks.into_iter().chain(wished) {
        let fits = m.is_none_or(|m| m == bm as i64)
            && n.is_none_or(|n| n == bn as i64)
            && groups.is_none_or(|g| g == wg as i64)
            && (b.k_major || bn % 64 == 0 || bn % 16 == 0 && b.cuts() && kind.folds * kind.parts() == 1)
            && bm / wg * bn * kind.folds / 128 * if kind.promote { 2 } else { 1 } <= room(wg, windows)
            && (kind.folds == 1 || bm / wg == 64 && bn * kind.folds <= 256)
            && scales.is_none_or(|s| s.takes(bn));
        let slow = all > FEW_STEPS && (a.straddles() || b.straddles());
        if !fits {
            continue;
        }
        let tiles = batch * ((rows + bm as i64 - 1) / bm as i64) * ((columns + bn as i64 - 1) / bn as i64);
        let free = (target.sms as i64 / tiles.max(1)).min(all / 8).clamp(1, 32);
        let own_split = split;
        let shared = shares(split.map(|s| s.min(all)), free, tiles, bn, target, q.joins);
        let pairs = if tabled || cluster.is_some() {
            vec![None]
        } else {
            vec![Some((1, false)), Some((2, false)), Some((2, true))]
        };
        for ((split, join), pair) in shared.into_iter().flat_map(|s| pairs.iter().map(move |&p| (s, p))) {
            if !terms.ragged.is_empty() && (split, join) != (1, 1) {
                continue;
            }
            let parts = split * join as i64;
            let stage = (bm + b.copied_rows(bn) * kind.folds) * LINE * kind.parts();
            // Beside the stages that are asked for, or enough of them.
            let limit = limit.saturating_sub(hopper_join::bytes(bm, bn, join));
            let alone = shape.selector.is_some() || !groups_fill(wg);
            let own = if alone || join > 1 { cluster.or(Some((1, false))) } else { cluster.or(pair) };
            let many = slow || tiles * parts >= target.sms as i64;
            let sides = [(rows, bm), (columns, bn)];
            // The first operand is shared where its lines straddle sectors, which is a block's time, and not the second's.
            let lines_of = |(of_a, of_b): (u32, u32)| {
                a.lines(bm / of_a) + b.lines(b.copied_rows(bn) * kind.folds / of_b)
            };
            let first = slow && lines_of((2, 1)) < lines_of((1, 2));
            if pair.is_some_and(|p| p.0 > 1 && !many) {
                continue;
            }
            let Some((cluster, across)) = clustered(q, own, sides, (many, first)) else {
                continue;
            };
            let along = |side: usize, by: bool| {
                let tiles = (sides[side].0 + sides[side].1 as i64 - 1) / sides[side].1 as i64;
                if by { (tiles as u64).next_multiple_of(cluster as u64) as i64 } else { tiles }
            };
            let tiles = batch * along(0, !across) * along(1, across);
            let resident = resident(wishes, tiles * parts, cluster, target)?;
            // Blocks that take one tile after the other have no registers left for two pieces of so many columns: ptxas spills.
            if m.is_none() && resident.is_some() && bm / wg > 64 && bn > 128 {
                continue;
            }
            if join > 1 && (cluster > 1 || resident.is_some()) {
                continue;
            }
            let enough = if (resident.is_none() || slow) && kind.parts() == 1 { ENOUGH + 1 } else { ENOUGH };
            let room = limit.saturating_sub(stages.map_or(enough, |s| s as u32) * stage);
            let output = lines.filter(|_| parts == 1).and_then(|l| l.output((bm, bn), wg, room));
            let fit = |staging: u32| limit.saturating_sub(staging) / stage;
            let wanted = stages.map_or(3, |s| s as u32);
            let staged = |staging: u32| stages.map_or(fit(staging).min(6), |s| s as u32);
            let boxes = output.as_ref().is_some_and(|o| o.boxes);
            let staging = output.map_or(0, |o| o.bytes(wg));
            let staging = if fit(staging) >= wanted { staging } else { 0 };
            let count = staged(staging);
            if count > fit(staging) || count < 2 {
                continue;
            }
            let at_once = resident.map_or(target.sms as i64, |n| n as i64 * cluster as i64);
            let waves = (tiles * parts + at_once - 1) / at_once;
            let steps = (all + parts - 1) / parts;
            // A tile's fixed cost is that of a few steps; a second kernel costs its launch.
            let like = BLOCKS.iter().find(|b| (b.0, b.1, b.2) == (bm, bn * kind.folds, wg));
            let speed = like.map_or(speed, |b| b.3);
            // Where there are but a step or two, the results' way out is all: those of 128 × 128 overlap theirs best.
            let speed = if all <= FEW_STEPS && (bm, bn) == (128, 128) { 1.05 } else { speed };
            let products = (bm * bn * kind.folds) as f64 / speed;
            let (of_a, of_b) = if across { (cluster, 1) } else { (1, cluster) };
            let copied = lines_of((of_a, of_b));
            let step = match slow {
                _ if !tabled => {
                    let of_block = bm + b.copied_rows(bn) * kind.folds;
                    let straddling = a.straddles() || b.straddles();
                    hopper_cost::step(bm, bn * kind.folds, (of_block, copied), straddling)
                }
                true => products.max(LINES * (copied * kind.parts()) as f64),
                false if windows => products.max(through_shared(bm, bn * kind.folds)),
                false => products,
            };
            let (start, way_out) = match tabled {
                true => (0.0, 6.0 * step),
                false => {
                    let of_block = bm + b.copied_rows(bn) * kind.folds;
                    let way_out = hopper_cost::way_out(bm, bn, staging > 0, boxes);
                    // The way out of a block's last tile has nothing beside it.
                    (hopper_cost::start(of_block) + way_out, way_out)
                }
            };
            let time = |steps: i64| step * steps as f64 + way_out;
            let one = time(steps);
            let extra = if split > 1 { second(split * batch * rows * columns) } else { 0.0 };
            // Steps of windows take less than counted beside it: 1024 → 512, 4×32² took 57 µs in whole sums, 70 in halves.
            let extra = if windows { 1.3 * extra } else { extra };
            let extra = extra + hopper_join::nanoseconds(bm, bn, join) * PER_NANOSECOND;
            // A tile makes a pass for each choice of its rows: one more for each border between groups.
            let passes = 1.0 + b.choices().map_or(0.0, |n| (n * bm as i64) as f64 / rows as f64);
            // What is read last is still to be multiplied and stored.
            let last = if tabled { 0.0 } else { step + way_out };
            let mut cost = streamed(start + waves as f64 * one * passes, last) + extra;
            // Sums of the last wave's tiles may be shared, unless the settings say how many share one.
            let may = parts == 1 && own_split.is_none() && kind.folds == 1 && c.ty == Ty::F32;
            let may = may && terms.ragged.is_empty();
            let work = tiles / cluster as i64;
            let tail = resident.filter(|_| may && shape.selector.is_none());
            let tail = tail.and_then(|n| contract_tail::of(work, n as i64, steps).map(|t| (t, n as i64)));
            let tail = tail.and_then(|(t, n)| {
                let parts = t.parts(work) * (cluster * bm * bn) as i64;
                let whole = start + (t.first / n) as f64 * one;
                let shared = streamed(whole + time((steps + t.split - 1) / t.split), last) + second(parts);
                let better = shared < cost && parts < 1 << 30;
                cost = if better { shared } else { cost };
                better.then_some(t)
            });
            if best.as_ref().is_none_or(|(c, _)| cost < *c) {
                let (m, n, groups, stages) = (bm, bn, wg, count);
                let draft = Draft {
                    m,
                    n,
                    groups,
                    stages,
                    split,
                    staging,
                    boxes,
                    resident,
                    tail,
                    join,
                    cluster,
                    across,
                    cost,
                };
                best = Some((cost, draft));
            }
        }
    }
    if let (None, Some((n, _))) = (&best, cluster.filter(|c| c.0 > 1)) {
        let why = format!("no block of this product goes in clusters of {n}: its tiles must be as many");
        return Err(wishes.refuse("cluster", &shape.axes[shape.m[0].out].name, &why));
    }
    Ok(best.map(|b| b.1))
}

/// The setting of a side's block, if there is any; `None`: blocks of several axes are cut by the other main loop.
pub(super) fn wished_block(q: &Question, digits: &[Digit]) -> Result<Option<Option<i64>>, Refusal> {
    let name = |d: &Digit| q.ground.shape.axes[d.out].name.clone();
    let blocks = digits.iter().map(|d| q.wishes.int("block", &name(d)));
    let blocks: Vec<Option<i64>> = blocks.collect::<Result<_, _>>()?;
    Ok(match &blocks[..] {
        [one] => Some(*one),
        all if all.iter().all(Option::is_none) => Some(None),
        _ => None,
    })
}

/// The parts that blocks may share a sum in: clusters, and blocks of one. `free`: blocks for each tile.
fn shares(
    wished: Option<i64>,
    free: i64,
    tiles: i64,
    columns: u32,
    target: &Target,
    joins: bool,
) -> Vec<(i64, u32)> {
    let mut parts = wished.map_or(vec![1, free, free / 2 * 2, free / 4 * 4, free / 8 * 8], |s| vec![s]);
    parts.retain(|&p| p > 0);
    parts.dedup();
    let clusters = |p: i64, join: u32| {
        let whole = columns.is_multiple_of(8 * join);
        // What a cluster leaves to a second kernel gains nothing by it.
        let all = p == join as i64;
        join == 1 || joins && all && whole && fits(target, tiles, join as i64)
    };
    let of =
        |&p: &i64| [1, 2, 4, 8].into_iter().filter(|&j| clusters(p, j)).map(|j| (p / j as i64, j)).collect();
    parts.iter().flat_map(|p| -> Vec<(i64, u32)> { of(p) }).collect()
}

/// Whether so many clusters of so many blocks run at once: larger ones do not fill the chip (30 of 4, 15 of 8 on an H200).
fn fits(target: &Target, clusters: i64, blocks: i64) -> bool {
    clusters <= target.sms as i64 / blocks - if blocks > 2 { 2 } else { 0 }
}

/// The same for a question's target.
pub(super) fn clusters_fit(q: &Question, clusters: i64, blocks: i64) -> bool {
    q.target.clusters && fits(q.target, clusters, blocks)
}

/// The blocks (or clusters) that take tile after tile: one for each multiprocessor, if there are more tiles.
fn resident(wishes: &Wishes, tiles: i64, cluster: u32, target: &Target) -> Result<Option<u32>, Refusal> {
    let most = wishes.persistent(target.sms)?.map(|n| (n / cluster as i64).max(1));
    let tiles = tiles / cluster as i64;
    Ok(most.filter(|&n| tiles > n && tiles < 1 << 30).map(|n| n as u32))
}

/// Whether a block fills its multiprocessor's tensor cores, so that sharing copies is worth waiting for each other.
fn groups_fill(groups: u32) -> bool {
    groups == 2
}

/// Blocks of a cluster, and whether they are neighbours along the columns: what the settings say (`None`: this block
/// cannot), else two along the rows where tiles come in pairs and there are `many` of them, or along the columns where they
/// share the `first` operand better. `sides`: points and block.
fn clustered(
    q: &Question,
    wished: Option<(i64, bool)>,
    sides: [(i64, u32); 2],
    (many, first): (bool, bool),
) -> Option<(u32, bool)> {
    let (a, b, target) = (q.a, q.b, q.target);
    let can = |n: u32, across: bool| {
        let (along, shared) = if across { (1, (a, sides[0].1)) } else { (0, (b, sides[1].1)) };
        let (operand, rows) = shared;
        let tiles = (sides[along].0 + sides[along].1 as i64 - 1) / sides[along].1 as i64;
        // One cluster may have a block without a tile.
        let pairs = tiles >= n as i64;
        let copied = operand.map.pixels.is_some() || operand.digits.is_empty();
        pairs && copied && operand.shared(rows, q.terms.line, n)
    };
    let even = |side: (i64, u32)| (side.0 + side.1 as i64 - 1) / side.1 as i64 % 2 == 0;
    // What windows lie along rows are shared where that was seen to help.
    let along_m = (b.map.pixels.is_none() || b.k_major) && even(sides[0]);
    match wished {
        Some((1, _)) => Some((1, false)),
        Some((n, across)) => {
            let n = u32::try_from(n).ok().filter(|&n| matches!(n, 2 | 4 | 8) && can(n, across));
            n.map(|n| (n, across))
        }
        None if target.clusters && many && first && even(sides[1]) && can(2, true) => Some((2, true)),
        None if target.clusters && many && along_m && can(2, false) => Some((2, false)),
        None => Some((1, false)),
    }
}

/// The settings' blocks of a cluster, and whether they are along the columns.
fn wished_cluster(shape: &ContractShape, wishes: &Wishes) -> Result<Option<(i64, bool)>, Refusal> {
    let mut wished: Option<(i64, bool)> = None;
    for (axis, n) in wishes.clusters()? {
        let of = |digits: &[Digit]| digits.iter().any(|d| shape.axes[d.out].name == axis);
        let (rows, columns) = (of(&shape.m), of(&shape.n));
        if n > 1 && !rows && !columns {
            return Err(wishes.refuse(
                "cluster",
                &axis,
                "blocks share copies only along the sides of a product",
            ));
        }
        if n > 1 && !matches!(n, 2 | 4 | 8) {
            return Err(wishes.refuse("cluster", &axis, "a cluster has 1, 2, 4 or 8 blocks"));
        }
        if let Some((other, _)) = wished.filter(|w| w.0 > 1 && n > 1) {
            let why = format!("{other} blocks are to share the other operand's copies already");
            return Err(wishes.refuse("cluster", &axis, &why));
        }
        wished = Some((n, columns)).filter(|_| rows || columns && n > 1).max(wished);
    }
    Ok(wished)
}

fn tile(
    ground: &Ground,
    wishes: &Wishes,
    d: &Draft,
    kind: Kind,
    terms: &Terms,
    a: &Boxes,
    b: &[Boxes],
) -> Result<Tile, Refusal> {
    let shape = ground.shape;
    let side = |digits: &[Digit], block: u32| {
        let names: Vec<&str> = digits.iter().map(|d| shape.axes[d.out].name.as_str()).collect();
        let extent = ContractShape::points(digits);
        let dim = TileDim { name: names.join("·"), digits: 0..digits.len(), extent, block: block as i64 };
        Side { dims: vec![dim], block }
    };
    let operand = |o: &Boxes, block: u32| {
        let (name, dtype) = (ground.graph.tensor(o.tensor).name.clone(), o.map.dtype);
        let load = if o.map.pixels.is_some() { Load::Pixels } else { Load::Boxes };
        // A line for each row, or for each term and 64 rows.
        Operand { name, dtype, k_major: o.k_major, place: Place::Lines(block * kind.parts()), load }
    };
    let fold = |b: &Boxes| FoldTile {
        terms: terms.padded(),
        step: terms.step,
        slot: terms.step as u32,
        stages: d.stages,
        math: Math::Wgmma { dtypes: kind.dtypes, promote: kind.promote },
        a: operand(a, d.m),
        b: operand(b, b.copied_rows(d.n)),
    };
    let folds: Vec<FoldTile> = b.iter().step_by(kind.parts() as usize).map(fold).collect();
    let stage = (d.m + b[0].copied_rows(d.n) * kind.folds) * LINE * kind.parts();
    let tile = Tile {
        name: wishes.kernel.to_string(),
        batch: ContractShape::points(&shape.batch),
        m: side(&shape.m, d.m),
        n: side(&shape.n, d.n),
        arrange: Arrange::Groups { m: d.groups },
        threads: 128 * (d.groups + 1),
        split: d.split,
        swizzle: wishes.swizzle()?,
        shared_bytes: d.stages * stage + 16 * d.stages + d.staging + hopper_join::bytes(d.m, d.n, d.join),
        resident: d.resident,
        cluster: d.cluster,
        across: d.across,
        staging: d.staging,
        boxes: d.boxes,
        tail: d.tail,
        join: d.join,
        folds,
    };
    tile.verify().map_err(|e| Refusal::new(wishes.span, e))?;
    Ok(tile)
}

/// The settings that this main loop follows beside those of every product, with the values worth trying.
pub fn space(graph: &Graph, stmts: &[usize], target: &Target) -> Vec<super::Choice> {
    let Ok(shape) = contract_pattern::recognise(graph, stmts) else { return Vec::new() };
    let half = |c: &Contraction| c.ty == Ty::F32 || c.ty == Ty::I32;
    if !target.wgmma || !target.tma || !shape.folds.iter().all(half) {
        return Vec::new();
    }
    let name = |digits: &[Digit]| digits.last().map(|d| shape.axes[d.out].name.clone());
    let words = |key: &str, values: Vec<Word>| super::Choice { key: key.into(), axis: String::new(), values };
    let swizzle = |n| Word::Apply("swizzle".into(), Box::new(Word::Int(n)));
    let groups: &[i64] = if contract_codes::any(graph, &shape) { &[1, 2, 4] } else { &[2, 1] };
    let mut space = vec![super::Choice::ints("warpgroups", "", groups)];
    // Blocks share copies along the rows, which are the other side's where those of the result are few.
    let rows = contract_few::sides(&shape).map_or_else(|| name(&shape.m), |few| name(&few.m));
    space.extend(rows.map(|m| super::Choice::ints("cluster", &m, &[1, 2])));
    space.push(words("order", [8, 4, 16].map(swizzle).to_vec()));
    space.push(words("persistent", ["on", "off"].map(|w| Word::Name(w.into())).to_vec()));
    space
}
