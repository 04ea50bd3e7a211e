//! Form `fold`: chained products with carried state. `fold_pattern` recognises them; `fold_loop` makes one pass over
//! the terms of the second product for a block of rows.

use super::contract_pattern::ContractShape;
use super::fold_loop::FoldLoop;
use super::fold_pattern::{self, Chain};
use super::{Lowering, MAX_GRID_X, Refusal, contract, map};
use crate::ir::graph::{Define, Stmt as GraphStmt, TensorId};
use crate::ir::plan::PlanKernel;
use crate::ir::tile::{Arrange, Side, Tile, TileDim};
use crate::vocab::target::Target;

/// Whether a target has what the form needs.
pub fn is_on(target: &Target) -> bool {
    target.wgmma && target.tma
}

pub fn lower<'a>(cx: &mut Lowering<'a>, k: &'a PlanKernel) -> Result<(), Refusal> {
    let [stmt] = k.stmts[..] else { return map::lower(cx, k) };
    let GraphStmt::Define(d) = &cx.graph.stmts[stmt] else { return map::lower(cx, k) };
    let chain = chain(cx, d, stmt);
    match chain {
        Some(chain) => build(cx, k, d, &chain),
        // Where it does not lie as it was planned, or on other targets, it is a product whose factor is evaluated.
        None => contract::lower(cx, k).or_else(|_| map::lower(cx, k)),
    }
}

fn chain(cx: &Lowering, d: &Define, stmt: usize) -> Option<Chain> {
    let home = |t: TensorId| cx.home(t).clone();
    let found = is_on(cx.target).then(|| fold_pattern::recognise(cx.graph, &cx.facts, d, &home));
    let mut chain = found?.ok()?;
    chain.outer.stmts[0].stmt = stmt;
    chain.inner.stmts[0].stmt = stmt;
    Some(chain)
}

/// Rows and terms of a step, and stages, so that a block's matrices fit its shared memory.
const ROWS: u32 = 128;
pub const STEP: u32 = 128;
pub const STAGES: u32 = 2;

fn tile(k: &PlanKernel, chain: &Chain) -> Tile {
    let side = |digits: usize, extent: i64, block: u32, name: &str| {
        let dim = TileDim { name: name.into(), digits: 0..digits, extent, block: block as i64 };
        Side { dims: vec![dim], block }
    };
    let [rows, _, _, columns] = chain.sizes();
    let groups = ROWS / 64;
    Tile {
        name: k.name.clone(),
        batch: ContractShape::points(&chain.outer.batch),
        m: side(chain.outer.m.len(), rows, ROWS, "rows"),
        n: side(chain.outer.n.len(), columns, columns as u32, "columns"),
        arrange: Arrange::Groups { m: groups },
        threads: 128 * (groups + 1),
        split: 1,
        swizzle: 1,
        folds: Vec::new(),
        resident: None,
        cluster: 1,
        staging: 0,
        boxes: false,
        tail: None,
        join: 1,
        shared_bytes: 0,
    }
}

fn build<'a>(cx: &mut Lowering<'a>, k: &'a PlanKernel, d: &Define, chain: &Chain) -> Result<(), Refusal> {
    let tile = tile(k, chain);
    let blocks = tile.batch.checked_mul(tile.m.tiles()).filter(|&n| n <= MAX_GRID_X);
    let Some(blocks) = blocks else {
        return Err(Refusal::new(d.span, "the product needs more blocks than a grid may have"));
    };
    let mut e = cx.emit(&k.name);
    e.kernel.grid = [blocks as u32, 1, 1];
    e.kernel.block = [tile.threads, 1, 1];
    e.kernel.min_blocks = 1;
    let home = |t: TensorId| cx.home(t).clone();
    e.line(d.span);
    FoldLoop::new(&mut e, chain, &tile).emit(&mut e, &cx.facts, &home);
    cx.launch(e);
    Ok(())
}
