//! Form `fold`: chained products with carried state. `fold_pattern` recognises them; `fold_loop` makes one pass over
//! the terms of the second product for a block of rows.

use super::contract_pattern::ContractShape;
use super::contract_tile::Wishes;
use super::fold_boxes::LINE;
use super::fold_loop::{FoldLoop, Goes, Parts};
use super::fold_pattern::{self, Chain};
use super::{Lowering, MAX_GRID_X, Refusal, contract, fold_beside, fold_exact, fold_parts, fold_turns, map};
use crate::ir::graph::{Define, Graph, Stmt as GraphStmt, TensorId};
use crate::ir::plan::PlanKernel;
use crate::ir::tile::{Arrange, Side, Tile, TileDim};
use crate::vocab::target::Target;

/// Whether a target has what the form needs.
pub fn is_on(target: &Target) -> bool {
    target.wgmma && target.tma
}

pub fn lower<'a>(cx: &mut Lowering<'a>, k: &'a PlanKernel) -> Result<(), Refusal> {
    let graph = cx.graph;
    let defines: Vec<&Define> = k.stmts.iter().filter_map(|&s| define(graph, s)).collect();
    let (Some(&d), true) = (defines.first(), defines.len() == k.stmts.len()) else {
        return map::lower(cx, k);
    };
    match chain(cx, &defines, k.stmts[0]) {
        Some(chain) => build(cx, k, d, &chain),
        // Where it does not lie as it was planned, or on other targets, it is a product whose factor is evaluated.
        None => contract::lower(cx, k).or_else(|_| map::lower(cx, k)),
    }
}

fn define(graph: &Graph, stmt: usize) -> Option<&Define> {
    match &graph.stmts[stmt] {
        GraphStmt::Define(d) => Some(d),
        _ => None,
    }
}

/// The chain that the first definition is, with the others as values of its rows.
fn chain(cx: &Lowering, defines: &[&Define], stmt: usize) -> Option<Chain> {
    let (&d, beside) = defines.split_first()?;
    let home = |t: TensorId| cx.home(t).clone();
    let found = is_on(cx.target).then(|| fold_pattern::recognise(cx.graph, &cx.facts, d, &home));
    let mut chain = found?.ok()?;
    chain.outer.stmts[0].stmt = stmt;
    chain.products.iter_mut().for_each(|p| p.shape.stmts[0].stmt = stmt);
    let beside = beside.iter().map(|r| fold_beside::of(cx.graph, d, &chain, r));
    chain.beside = beside.collect::<Result<_, _>>().ok()?;
    Some(chain)
}

/// Rows of a block, terms of a step, and stages of the copies that run ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub rows: u32,
    pub step: u32,
    pub stages: u32,
    /// Blocks that share the terms.
    pub split: u32,
    /// Blocks that take one tile after the other; `None`: a block a tile.
    pub resident: Option<u32>,
}

/// What the form chooses by itself: a block's matrices fit its shared memory for all columns that it takes.
const OWN: Layout = Layout { rows: 128, step: 128, stages: 2, split: 1, resident: None };
/// The same where a third warpgroup finds registers: its tensor cores wait less for exponentials.
const NARROW: Layout = Layout { rows: 192, stages: 4, ..OWN };
/// Where the wider matrices leave less room.
const SHORT: [Layout; 2] = [Layout { step: 64, stages: 3, ..OWN }, Layout { step: 64, ..OWN }];
/// A few rows: the more copies under way, the better.
const FEW: [Layout; 4] = [
    Layout { rows: 64, stages: 4, ..OWN },
    Layout { rows: 64, stages: 3, ..OWN },
    Layout { rows: 64, ..OWN },
    Layout { rows: 64, step: 64, ..OWN },
];
const ROWS: [i64; 3] = [64, 128, 192];
const STEPS: [i64; 3] = [64, 128, 192];
const STAGES: [i64; 3] = [2, 3, 4];
const SPLITS: [i64; 6] = [1, 2, 4, 8, 16, 32];
/// Registers that a thread needs beside its accumulators, scores and weights.
const OTHERS: i64 = 24;
/// Bytes of shared memory that are kept free for barriers and alignment.
const SPARE: i64 = 2048;

impl Layout {
    /// The form's own choice: more rows a block where they fit, and where every multiprocessor has several blocks to go.
    fn own(chain: &Chain, target: &Target) -> Layout {
        let blocks = ContractShape::points(&chain.outer.batch) * (chain.sizes()[0] / NARROW.rows as i64);
        let many = blocks >= 4 * target.sms as i64;
        let first = if many { NARROW } else { OWN };
        let few: &[Layout] = if chain.sizes()[0] <= 64 { &FEW } else { &[] };
        let mut all = few.iter().copied().chain([first, OWN]).chain(SHORT);
        let mut own = all.find(|l| l.why_not(chain, target).is_none()).unwrap_or(OWN);
        own.split = own.best_split(chain, target);
        own.resident = fold_turns::best(chain, &own, target);
        own
    }

    fn best_split(&self, chain: &Chain, target: &Target) -> u32 {
        let [rows, _, terms, _] = chain.sizes();
        let (block, step) = (self.rows as i64, self.step as i64);
        let tiles = ContractShape::points(&chain.outer.batch) * ((rows + block - 1) / block);
        let steps = (terms as f64 * chain.share() / step as f64).ceil() as i64;
        fold_parts::best(chain, tiles, steps, target.sms as i64)
    }

    /// Tiles of the grid, where none share terms.
    pub fn tiles(&self, chain: &Chain) -> i64 {
        let rows = self.rows as i64;
        ContractShape::points(&chain.outer.batch) * ((chain.sizes()[0] + rows - 1) / rows)
    }

    /// Registers of a thread that multiplies: the warpgroups share those of a multiprocessor with the one that loads.
    pub fn registers(&self) -> u32 {
        if self.rows / 64 > 2 { 160 } else { 240 }
    }

    fn needs(&self, what: &str) -> String {
        let Layout { rows, step, stages, .. } = self;
        format!("{rows} rows by steps of {step} terms in {stages} stages need {what}")
    }

    /// Why a block cannot have this layout, if it cannot.
    fn why_not(&self, chain: &Chain, target: &Target) -> Option<String> {
        let columns = chain.sizes()[3];
        let (rows, step, stages) = (self.rows as i64, self.step as i64, self.stages as i64);
        let lines = |n: i64| (n + LINE - 1) / LINE * LINE;
        let terms: i64 = chain.products.iter().map(|p| lines(p.shape.folds[0].terms())).sum();
        let across = lines(columns);
        let registers = columns / 2 + step / 2 + step / 4 * chain.pieces as i64 + OTHERS;
        if registers > self.registers() as i64 {
            return Some(format!("{registers} registers for a thread that has {}", self.registers()));
        }
        let bytes = 2 * (rows * terms + stages * step * (terms + across)) + SPARE;
        let room = target.shared_per_block as i64;
        (bytes > room).then(|| format!("{bytes} bytes of shared memory in a block that has {room}"))
    }
}

/// The settings that the form follows, with the values worth trying.
pub fn space(graph: &Graph, k: &PlanKernel, target: &Target) -> Vec<super::Choice> {
    let Some(d) = k.stmts.first().and_then(|&s| define(graph, s)) else { return Vec::new() };
    let Some(chain) = is_on(target).then(|| fold_pattern::takes(graph, d).ok()).flatten() else {
        return Vec::new();
    };
    let (rows, term) = axes(&chain);
    let mut space =
        vec![super::Choice::ints("step", &term, &STEPS), super::Choice::ints("stages", "", &STAGES)];
    space.push(super::Choice::ints("split", &term, &SPLITS));
    space.extend(rows.map(|rows| super::Choice::ints("block", &rows, &ROWS)));
    space
}

/// The names of the innermost axis of the rows, and of the terms.
fn axes(chain: &Chain) -> (Option<String>, String) {
    let rows = chain.outer.m.last().map(|d| chain.outer.axes[d.out].name.clone());
    (rows, chain.fold().k[0].name.clone())
}

fn layout(cx: &Lowering, k: &PlanKernel, d: &Define, chain: &Chain) -> Result<Layout, Refusal> {
    let wishes = Wishes { schedule: cx.schedule, kernel: &k.name, span: d.span };
    let (rows, term) = axes(chain);
    let columns = chain.outer.n.last().map(|d| chain.outer.axes[d.out].name.as_str());
    let own = Layout::own(chain, cx.target);
    let mut layout = own;
    let mut last = None;
    for (key, axis) in cx.schedule.kernels.get(&k.name).into_iter().flat_map(|s| s.keys()) {
        let (known, field): (&[i64], _) = match key.as_str() {
            "block" if Some(axis) == rows.as_ref() => (&ROWS, &mut layout.rows),
            "step" if *axis == term => (&STEPS, &mut layout.step),
            "stages" => (&STAGES, &mut layout.stages),
            "split" if *axis == term => (&SPLITS, &mut layout.split),
            "persistent" => continue,
            // A block has all columns.
            "block" if Some(axis.as_str()) == columns && wishes.int(key, axis)? >= Some(chain.sizes()[3]) => {
                continue;
            }
            "block" | "step" => {
                return Err(wishes.refuse(
                    key,
                    axis,
                    "chained products are cut along their innermost rows and their terms alone",
                ));
            }
            _ => continue,
        };
        match wishes.int(key, axis)? {
            Some(n) if known.contains(&n) => *field = n as u32,
            _ => return Err(wishes.refuse(key, axis, &format!("chained products take one of {known:?}"))),
        }
        last = Some((key, axis));
    }
    let tiles = layout.tiles(chain);
    layout.resident = match cx.schedule.get(&k.name, "persistent", "") {
        None if layout == own => own.resident,
        None => fold_turns::best(chain, &layout, cx.target),
        Some(_) => wishes.persistent(cx.target.sms)?.map(|n| n as u32),
    };
    layout.resident = layout.resident.filter(|&n| (n as i64) < tiles && layout.split == 1);
    match last.zip(layout.why_not(chain, cx.target).filter(|_| layout != own)) {
        Some(((key, axis), why)) => Err(wishes.refuse(key, axis, &layout.needs(&why))),
        None => Ok(layout),
    }
}

fn tile(k: &PlanKernel, chain: &Chain, layout: Layout, target: &Target) -> Tile {
    let block = layout.rows;
    let side = |digits: usize, extent: i64, block: u32, name: &str| {
        let dim = TileDim { name: name.into(), digits: 0..digits, extent, block: block as i64 };
        Side { dims: vec![dim], block }
    };
    let [rows, _, _, columns] = chain.sizes();
    let groups = block / 64;
    let batch = ContractShape::points(&chain.outer.batch);
    let tiles = (rows + block as i64 - 1) / block as i64;
    // Members of the batch, its last, whose longest rows come first together: two waves of blocks have them.
    let fills = |n: &i64| n * tiles >= 2 * target.sms as i64;
    let apart = layout.resident.is_none();
    let together = if chain.grows() && apart { (1..=batch).find(fills).unwrap_or(batch) } else { 1 };
    Tile {
        name: k.name.clone(),
        batch,
        m: side(chain.outer.m.len(), rows, block, "rows"),
        n: side(chain.outer.n.len(), columns, (columns as u32).next_multiple_of(8), "columns"),
        arrange: Arrange::Groups { m: groups },
        threads: 128 * (groups + 1),
        split: layout.split as i64,
        swizzle: together,
        folds: Vec::new(),
        resident: layout.resident,
        cluster: 1,
        staging: 0,
        boxes: false,
        tail: None,
        join: 1,
        across: false,
        shared_bytes: 0,
    }
}

fn build<'a>(cx: &mut Lowering<'a>, k: &'a PlanKernel, d: &'a Define, chain: &Chain) -> Result<(), Refusal> {
    let layout = layout(cx, k, d, chain)?;
    let tile = tile(k, chain, layout, cx.target);
    let blocks = tile.batch.checked_mul(tile.m.tiles() * tile.split).filter(|&n| n <= MAX_GRID_X);
    let Some(blocks) = blocks else {
        return Err(Refusal::new(d.span, "the product needs more blocks than a grid may have"));
    };
    let parts = (tile.split > 1).then(|| fold_parts::workspace(cx, k, &tile, !chain.beside.is_empty()));
    let flags = fold_exact::flags(cx, k, chain);
    let mut e = cx.emit(&k.name);
    e.kernel.grid = [tile.resident.unwrap_or(blocks as u32), 1, 1];
    e.kernel.block = [tile.threads, 1, 1];
    e.kernel.min_blocks = 1;
    let home = |t: TensorId| cx.home(t).clone();
    e.line(d.span);
    let flags_of = |e: &mut super::scalar::Emit| flags.map(|f| e.pointer(f, true));
    let goes = match parts {
        Some(Parts { accs, tops, sums, most }) => {
            let [accs, tops, sums] = [accs, tops, sums].map(|b| e.pointer(b, true));
            let most = most.map(|b| e.pointer(b, true));
            Goes::Parts(Parts { accs, tops, sums, most }, flags_of(&mut e))
        }
        None => Goes::Whole(flags_of(&mut e)),
    };
    FoldLoop::new(&mut e, chain, &tile, layout).emit(&mut e, &cx.facts, &home, &goes);
    cx.launch(e);
    if let Some(parts) = parts {
        fold_parts::combine(cx, k, d, chain, &tile, parts, flags)?;
    }
    flags.map_or(Ok(()), |f| fold_exact::lower(cx, k, d, chain, f))
}
