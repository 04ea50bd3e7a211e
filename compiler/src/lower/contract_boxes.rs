//! Products that are only for the main loop of sm_90a, with the copies of operands that it needs: phases whose blocks count
//! their own terms, groups that are one product.

use super::contract_hopper::Hopper;
use super::contract_pack::Pack;
use super::contract_pattern::ContractShape;
use super::contract_tile::Wishes;
use super::{Lowering, Refusal, contract, contract_pack};
use crate::ir::graph::TensorId;
use crate::ir::plan::PlanKernel;
use girih_dsl::ast::Span;

/// Runs `f` while some operands are at their packed homes.
pub fn with_packs<'a>(
    cx: &mut Lowering<'a>,
    name: &str,
    packs: &[Pack],
    span: Span,
    f: impl FnOnce(&mut Lowering<'a>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let own = contract_pack::apply(cx, name, packs, span)?;
    let done = f(cx);
    own.into_iter().for_each(|(t, home)| *cx.home_mut(t) = home);
    done
}

/// Lowers a kernel if the main loop of sm_90a takes it, its operands as they lie or packed.
pub fn lower_by_boxes<'a>(cx: &mut Lowering<'a>, k: &'a PlanKernel) -> Option<Result<(), Refusal>> {
    let (shape, found, packs) = by_boxes(cx, k)?;
    Some(lower_boxes(cx, k, &shape, &found, &packs))
}

/// The product of a kernel as the main loop of sm_90a takes it, with the packs that it needs.
pub fn by_boxes(cx: &Lowering<'_>, k: &PlanKernel) -> Option<(ContractShape, Hopper, Vec<Pack>)> {
    let span = contract::span(cx.graph, k);
    let shape = contract::shape(cx, k, span).ok().filter(|s| s.axes.iter().all(|a| a.extent > 0))?;
    let wishes = Wishes { schedule: cx.schedule, kernel: &k.name, span };
    let mut own = shape.clone();
    if let Some(found) = contract::hopper_choice(cx, &|t| cx.home(t).clone(), &mut own, &wishes).ok()? {
        return Some((own, found, Vec::new()));
    }
    let mut own = shape;
    let packs = contract_pack::for_boxes(cx, &own);
    let other = |t: TensorId| {
        packs.iter().find(|p| p.tensor == t).map_or_else(|| cx.home(t).clone(), |p| p.home.clone())
    };
    let found = contract::hopper_choice(cx, &other, &mut own, &wishes).ok()??;
    Some((own, found, packs))
}

/// Lowers what `by_boxes` found.
pub fn lower_boxes<'a>(
    cx: &mut Lowering<'a>,
    k: &'a PlanKernel,
    shape: &ContractShape,
    found: &Hopper,
    packs: &[Pack],
) -> Result<(), Refusal> {
    let span = contract::span(cx.graph, k);
    with_packs(cx, &k.name, packs, span, |cx| {
        contract::lower_choice(cx, k, shape, &found.choice, Some(found), span)
    })
}
