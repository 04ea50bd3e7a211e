//! Products with few rows on sm_90a: a stream of the other operand, and the block is made for that.
//!
//! The many rows (weights, as a rule) are the rows of `wgmma`, 64 a block, and the few are its columns, in steps of 8; where the
//! few stand on the other side of the product, its sides change places. A block has one warpgroup that multiplies and as many
//! stages as give its multiprocessor enough bytes on their way. Where the few rows are a good part of what a block
//! reads, two blocks of a cluster share their copies. Sums are shared by blocks where the rows give too few of them.

use super::contract_hopper::{Draft, Hopper, Question, SPARE, clusters_fit, wished_block};
use super::contract_pattern::{ContractShape, Digit};
use super::contract_tile::Wishes;
use super::forced::{Gain, is_forced};
use super::hopper_gather::LINE;
use super::index::Facts;
use super::{Refusal, hopper_join};
use crate::ir::graph::{Expr as GraphExpr, Graph, Stmt as GraphStmt};
use crate::vocab::dtype::Ty;

/// The most rows that are few, and the fewest rows and terms of the other operand.
const MOST: i64 = 64;
const LEAST_ROWS: i64 = 512;
const LEAST_TERMS: i64 = 512;
/// Rows of a block.
const ROWS: i64 = 64;
/// Bytes a nanosecond: from memory, from the L2 cache, and what one multiprocessor takes at most.
const MEMORY: f64 = 4200.0;
const CACHE: f64 = 6000.0;
const OWN: f64 = 70.0;
/// Nanoseconds of a second kernel.
const SECOND: f64 = 3500.0;
/// Stages beyond which more are not on their way sooner.
const MOST_STAGES: u32 = 16;

/// The same product with its two sides, and so its operands, in each other's place.
pub fn turned(shape: &ContractShape) -> ContractShape {
    let mut other = shape.clone();
    std::mem::swap(&mut other.m, &mut other.n);
    other.folds.iter_mut().for_each(|c| std::mem::swap(&mut c.a, &mut c.b));
    other
}

/// The shape with the few rows as columns, if there are few and the rest is worth it.
pub fn sides(shape: &ContractShape) -> Option<ContractShape> {
    let (rows, columns) = (ContractShape::points(&shape.m), ContractShape::points(&shape.n));
    let [c] = &shape.folds[..] else { return None };
    let worth = rows.min(columns) <= MOST
        && rows.max(columns) >= LEAST_ROWS
        && rows.max(columns) >= 2 * rows.min(columns)
        && c.terms() >= LEAST_TERMS
        && shape.selector.is_none();
    worth.then(|| if rows < columns { turned(shape) } else { shape.clone() })
}

/// The block for a product whose few rows are columns.
pub(super) fn pick(q: &Question) -> Result<Option<Draft>, Refusal> {
    let shape = q.ground.shape;
    let (rows, few) = (ContractShape::points(&shape.m), ContractShape::points(&shape.n));
    let unit = if q.c.ty == Ty::I32 { 16 } else { 8 };
    let n = if q.b.k_major { (few + unit - 1) / unit * unit } else { (few + 63) / 64 * 64 };
    let Some(asked) = Asked::of(q, n)?.filter(|_| q.terms.ragged.is_empty()) else { return Ok(None) };
    let line = LINE * q.kind.parts();
    let (batch, steps) = (ContractShape::points(&shape.batch), q.terms.steps());
    let tiles = batch * ((rows + ROWS - 1) / ROWS);
    let mut best: Option<(f64, Draft)> = None;
    let splits = asked.split.map_or((1..=32.min((steps / 8).max(1))).collect(), |s| vec![s.min(steps)]);
    // Blocks of a cluster share the copies of the few rows, or a tile's terms.
    let clusters = [(1i64, 1i64), (2, 1), (1, 2), (1, 4)];
    for ((cluster, join), parts) in clusters.into_iter().flat_map(|c| splits.iter().map(move |&s| (c, s))) {
        let split = parts / join;
        let joins = q.joins && asked.cluster.is_none() && n % (8 * join) == 0;
        if join > 1 && (!joins || parts != join || !clusters_fit(q, tiles * split, join)) {
            continue;
        }
        let pairs = (rows + ROWS - 1) / ROWS % cluster == 0 && q.b.k_major && n % (8 * cluster) == 0;
        let can =
            cluster == 1 || pairs && q.target.clusters && q.b.map.pixels.is_none() && q.b.digits.is_empty();
        if !can || asked.cluster.is_some_and(|c| c != cluster) {
            continue;
        }
        let blocks = tiles * parts;
        let per = (steps + parts - 1) / parts;
        let stage = (ROWS + n) as u32 * line;
        let spare = SPARE + hopper_join::bytes(ROWS as u32, n as u32, join as u32);
        let together = if blocks > q.target.sms as i64 { 2 } else { 1 };
        let fit =
            (q.target.shared_per_sm.min(q.target.shared_per_block * together) / together - spare) / stage;
        let stages = asked.stages.unwrap_or(fit.min(MOST_STAGES));
        if stages < 2 || stages > fit {
            continue;
        }
        let one = (per * (ROWS + n / cluster)) as f64 * line as f64;
        let once = (batch * steps * (rows + few)) as f64 * line as f64;
        let most = (blocks + q.target.sms as i64 - 1) / q.target.sms as i64;
        let stream = [once / MEMORY, one * blocks as f64 / CACHE, one * most as f64 / OWN];
        let sums = (split * batch * rows * few * 8) as f64 / CACHE;
        let second = if split > 1 { SECOND + sums } else { 0.0 }
            + hopper_join::nanoseconds(ROWS as u32, n as u32, join as u32);
        // Blocks of a cluster wait for each other.
        let cost = stream.into_iter().fold(0.0, f64::max) * (0.97 + 0.03 * cluster as f64) + second;
        if best.as_ref().is_none_or(|b| cost < b.0) {
            let (m, n, cluster, join) = (ROWS as u32, n as u32, cluster as u32, join as u32);
            // One tile a block, by one warpgroup, whose results go to memory as they are.
            let draft = Draft { m, n, groups: 1, stages, split, join, cluster, cost, ..Draft::default() };
            best = Some((cost, draft));
        }
    }
    Ok(best.map(|b| b.1))
}

/// Whether most of what is copied of the few rows is for nothing: along them copies are of 64. The other main loop, whose are
/// of 8, took 15.1 µs and this one 19.7 at 24 × 8192 × 1024, 38.7 and 42.5 at 16 × 11008 × 4096; from 32 on it is the slower.
pub fn wastes(wishes: &Wishes, few: &ContractShape, h: &Hopper) -> bool {
    const FEW: i64 = 24;
    let asked = wishes.schedule.kernels.get(wishes.kernel).is_some_and(|k| !k.is_empty());
    let plain = h.a.iter().chain(&h.b).all(|o| o.map.pixels.is_none() && o.map.dtype.bits() == 16);
    !asked && plain && !h.b[0].k_major && ContractShape::points(&few.n) <= FEW
}

/// What a product whose sides change places has to take of the other's time to be worth it.
const TURNED: f64 = 0.97;
/// The same for windows: 0.93 brought nothing (14² × 256, 28² × 128), 0.92 18% (7² × 512), 0.89 2 to 14% (112² × 128, 224² × 64).
const WINDOWS_TURNED: f64 = 0.925;

/// Whether nothing is read at a point beside the sum, of windows nothing but what one side alone has (a bias), and no setting speaks of
/// sides. `own`: how the main loop takes it as it is.
pub fn may_turn(
    graph: &Graph,
    facts: &Facts,
    shape: &ContractShape,
    wishes: &Wishes,
    own: Option<&Hopper>,
) -> bool {
    let taken = own.is_some();
    let windows = own.is_some_and(has_windows);
    let asked = wishes.schedule.kernels.get(wishes.kernel).is_some_and(|k| !k.is_empty());
    let ([c], [s], None, true) =
        (&shape.folds[..], &shape.stmts[..], &shape.selector, is_forced(Gain::Turns) || taken && !asked)
    else {
        return false;
    };
    let GraphStmt::Define(d) = &graph.stmts[s.stmt] else { return false };
    let mut stack = vec![d.value];
    while let Some(e) = stack.pop() {
        match graph.expr(e) {
            GraphExpr::Read(_) => {
                let free = facts.free(e);
                let on = |digits: &[Digit]| digits.iter().any(|x| free.contains(&d.axes[x.out]));
                if !windows || on(&shape.m) && on(&shape.n) {
                    return false;
                }
            }
            _ if e == c.fold => {}
            _ => stack.extend(graph.children(e)),
        }
    }
    true
}

/// Whether the main loop is better with the sides in each other's place: results leave as boxes, by whole tiles.
pub fn turns(t: &Hopper, own: Option<&Hopper>) -> bool {
    let tile = &t.choice.tile;
    // Several short lines a step wait for their copies, whichever side they are on.
    let windows = has_windows(t);
    let even = t.terms.ragged.is_empty() && !(windows && t.terms.slabs() > 1);
    let limit = if windows { WINDOWS_TURNED } else { TURNED };
    let whole = tile.split == 1 && tile.join == 1 && tile.tail.is_none();
    let better = is_forced(Gain::Turns) || own.is_some_and(|own| t.cost < limit * own.cost);
    better && even && whole && t.output.as_ref().is_some_and(|o| o.boxes)
}

/// Whether an operand is copied as windows.
fn has_windows(h: &Hopper) -> bool {
    h.a.iter().chain(&h.b).any(|o| o.map.pixels.is_some())
}

/// The settings that speak of such a block.
struct Asked {
    split: Option<i64>,
    stages: Option<u32>,
    cluster: Option<i64>,
}

impl Asked {
    /// `None`: they ask for another kernel.
    fn of(q: &Question, n: i64) -> Result<Option<Asked>, Refusal> {
        let shape = q.ground.shape;
        let (Some(m), Some(own)) = (wished_block(q, &shape.m)?, wished_block(q, &shape.n)?) else {
            return Ok(None);
        };
        let mut cluster = None;
        for (axis, by) in q.wishes.clusters()? {
            match shape.m.iter().any(|d| shape.axes[d.out].name == axis) {
                true => cluster = Some(by),
                false if by > 1 => return Ok(None),
                false => {}
            }
        }
        let steps = q.c.k.iter().map(|k| q.wishes.int("step", &k.name)).collect::<Result<Vec<_>, _>>()?;
        let fits = m.is_none_or(|m| m == ROWS)
            && own.is_none_or(|v| v == n)
            && q.wishes.int("warpgroups", "")?.is_none_or(|g| g == 1)
            && steps.into_iter().flatten().all(|s| s == q.terms.step)
            && q.wishes.schedule.get(q.wishes.kernel, "persistent", "").is_none()
            // Two sets of accumulators fit beside each other; scales of blocks and f32 in parts are the other choice's.
            && (!q.kind.promote || q.kind.parts() == 1 && q.scales.is_none());
        let stages = q.wishes.int("stages", "")?.map(|s| s as u32);
        Ok(fits.then_some(Asked { split: q.wishes.split()?, stages, cluster }))
    }
}
