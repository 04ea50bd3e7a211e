//! Form `contract`: the tile level of a kernel as it is printed.

use super::contract::{codes_choice, hopper_choice, shape, span};
use super::contract_groups::Groups;
use super::contract_pattern::ContractShape;
use super::contract_tile::Wishes;
use super::{Lowering, Refusal, contract_border, contract_pack, contract_phases, contract_split};
use crate::ir::graph::TensorId;
use crate::ir::plan::PlanKernel;
use crate::ir::tile::Tile;
use girih_dsl::ast::Span;

/// The tile level of a kernel, for printing; of a sum in phases that of the first.
pub fn tile(cx: &mut Lowering<'_>, k: &PlanKernel) -> Result<Tile, Refusal> {
    let span = span(cx.graph, k);
    let found = shape(cx, k, span);
    if contract_phases::before(&found)
        && let Some(tile) = contract_phases::first(cx, k, tile)
    {
        return tile;
    }
    let shape = found?;
    match tile_of_groups(cx, k, &shape, span) {
        Some(tile) => Ok(tile),
        None => tile_of(cx, k, shape, span),
    }
}

/// The tile of the product that groups are together, if they are one.
fn tile_of_groups(cx: &mut Lowering<'_>, k: &PlanKernel, shape: &ContractShape, span: Span) -> Option<Tile> {
    let wishes = Wishes { schedule: cx.schedule, kernel: &k.name, span };
    let own = hopper_choice(cx, &|t| cx.home(t).clone(), &mut shape.clone(), &wishes).ok()?;
    own.is_none().then(|| Groups::of(cx, k, shape, &wishes)?.tile(cx)).flatten()
}

fn tile_of(cx: &Lowering<'_>, k: &PlanKernel, mut shape: ContractShape, span: Span) -> Result<Tile, Refusal> {
    let wishes = Wishes { schedule: cx.schedule, kernel: &k.name, span };
    if let Some(codes) = codes_choice(cx, &mut shape, &wishes)? {
        return Ok(codes.choice.tile);
    }
    if let Some(h) = hopper_choice(cx, &|t| cx.home(t).clone(), &mut shape, &wishes)? {
        return Ok(h.choice.tile);
    }
    if let Some((h, _)) = contract_border::choose(cx, &shape, &wishes)? {
        return Ok(h.choice.tile);
    }
    if let Some(split) = contract_split::choose(cx, &shape, &wishes)? {
        return Ok(split.hopper.choice.tile);
    }
    let (choice, packs) = contract_pack::pack(cx, &mut shape, &wishes)?;
    if packs.is_empty() || shape.selector.is_some() {
        return Ok(choice.tile);
    }
    let home = |t: TensorId| {
        packs.iter().find(|p| p.tensor == t).map_or_else(|| cx.home(t).clone(), |p| p.home.clone())
    };
    let hopper = hopper_choice(cx, &home, &mut shape, &wishes)?;
    Ok(hopper.map_or(choice.tile, |h| h.choice.tile))
}
