//! Form `contract`: sums of products through shared-memory tiles, with fused prologue and epilogue.
//!
//! `contract_pattern` recognises the shape, `contract_tile` chooses the tile level (printed by `emit --stage tile`),
//! and here it becomes a kernel: a block makes one tile of the output; its operands come in steps along the fold
//! through a ring of stages in shared memory; the epilogue is evaluated on the accumulators. Where blocks share a
//! sum, their parts go to a workspace and a second kernel adds them in order.

use super::codes_loop::CodesLoop;
use super::codes_stream::CodesStream;
use super::contract_codes::{self, Codes};
use super::contract_coords::{Place as Where, locate, locate_at, modulo, plus, times};
use super::contract_epilogue::Epilogue;
use super::contract_groups::{self, Groups};
use super::contract_hopper::{self, Copies, Hopper};
use super::contract_loads::Loader;
use super::contract_mma::{self, Accumulators, Registers, Tiles};
use super::contract_operand::Ground;
use super::contract_pattern::{ContractShape, Part, recognise_any};
use super::contract_split::{self, Split};
use super::contract_tile::{Choice, FoldChoice, Wishes};
use super::home::Home;
use super::hopper_codes::HopperCodes;
use super::hopper_join::Join;
use super::hopper_loop::{Around, HopperLoop, Steps};
use super::hopper_store::Staging;
use super::scalar::{Emit, add, cmp, int_of, int_op, lit32};
use super::{
    Lowering, MAX_GRID_X, Refusal, Schedule, codes_groups, contract_border, contract_bounds, contract_boxes,
    contract_few, contract_pack, contract_padding, contract_phases, contract_regular, contract_select,
    contract_tail, map,
};
use crate::ir::graph::{Graph, Stmt as GraphStmt, TensorId, Word};
use crate::ir::plan::PlanKernel;
use crate::ir::program::BufferId;
use crate::ir::simt::{
    ArrayId, CmpOp, Expr, IntOp, Intrinsic, Mem, SharedId, Special, Stmt, Ty, Unroll, VarId,
};
use crate::ir::tile::{Arrange, FoldTile, Load, Math, Tile};
use crate::vocab::dtype::DType;
use girih_dsl::ast::Span;

pub use super::contract_pattern::recognise;

/// Points along one side that 32-bit coordinates can number, tiles' edges included.
const MAX_POINTS: i64 = i32::MAX as i64 - 4096;

pub fn lower<'a>(cx: &mut Lowering<'a>, k: &'a PlanKernel) -> Result<(), Refusal> {
    let first = cx.program.kernels.len();
    kernels(cx, k)?;
    // What follows a copy or a part of the same product need not wait for its own launch too.
    cx.launched_ahead(first + 1);
    Ok(())
}

fn kernels<'a>(cx: &mut Lowering<'a>, k: &'a PlanKernel) -> Result<(), Refusal> {
    let span = span(cx.graph, k);
    let found = shape(cx, k, span);
    if contract_phases::before(&found)
        && let Some(done) = contract_phases::lower(cx, k)
    {
        return done;
    }
    let mut shape = found?;
    if shape.axes.iter().any(|a| a.extent == 0) {
        return Ok(());
    }
    let wishes = Wishes { schedule: cx.schedule, kernel: &k.name, span };
    if let Some(codes) = codes_choice(cx, &mut shape, &wishes)? {
        return lower_codes(cx, k, &shape, &codes, span);
    }
    if let Some(h) = hopper_choice(cx, &|t| cx.home(t).clone(), &mut shape, &wishes)? {
        return lower_choice(cx, k, &shape, &h.choice, Some(&h), span);
    }
    if let Some(done) = contract_regular::lower(cx, k, &shape, span) {
        return done;
    }
    if let Some(groups) = Groups::of(cx, k, &shape, &wishes)
        && let Some(done) = groups.lower(cx, &k.name, span)
    {
        return done;
    }
    if let Some((mut h, borders)) = contract_border::choose(cx, &shape, &wishes)? {
        for b in &borders {
            let buffer = contract_border::copy(cx, &k.name, b, span)?;
            for boxes in h.a.iter_mut().chain(&mut h.b).filter(|x| x.tensor == b.tensor) {
                boxes.buffer = Some(buffer);
            }
        }
        return lower_choice(cx, k, &shape, &h.choice, Some(&h), span);
    }
    if let Some(split) = contract_split::choose(cx, &shape, &wishes)? {
        return lower_split(cx, k, &shape, &split, span);
    }
    let (choice, packs) = contract_pack::pack(cx, &mut shape, &wishes)?;
    contract_boxes::with_packs(cx, &k.name, &packs, span, |cx| {
        // What was packed may lie as boxes want it now.
        let hopper = match packs.is_empty() {
            true => None,
            false => hopper_choice(cx, &|t| cx.home(t).clone(), &mut shape, &wishes)?,
        };
        let choice = hopper.as_ref().map_or(&choice, |h| &h.choice);
        lower_choice(cx, k, &shape, choice, hopper.as_ref(), span)
    })
}

/// An f32 product on tensor cores, and again by multiply-adds where numbers could not be split.
fn lower_split<'a>(
    cx: &mut Lowering<'a>,
    k: &'a PlanKernel,
    shape: &ContractShape,
    split: &Split,
    span: Span,
) -> Result<(), Refusal> {
    let (own, flag) = contract_split::apply(cx, &k.name, split, span)?;
    let done = lower_choice(cx, k, shape, &split.hopper.choice, Some(&split.hopper), span);
    own.into_iter().for_each(|(t, home)| *cx.home_mut(t) = home);
    done?;
    exact(cx, &k.name, shape, &split.plain, flag);
    Ok(())
}

/// Launches a kernel that makes a product as it was written, if there is a reason.
pub(super) fn exact(
    cx: &mut Lowering<'_>,
    name: &str,
    shape: &ContractShape,
    plain: &Choice,
    flag: BufferId,
) {
    let tile = &plain.tile;
    let mut e = cx.emit(&format!("{name}_exact"));
    e.kernel.grid = [tile.count() as u32, 1, 1];
    e.kernel.block = [tile.threads, 1, 1];
    e.kernel.min_blocks = 1;
    let noted = Expr::Load(Mem::Global(e.pointer(flag, false)), Box::new(lit32(0)));
    e.if_then(cmp(CmpOp::Ne, noted, lit32(0)), |e| build(cx, e, shape, plain, &[]));
    cx.launch(e);
}

pub(super) fn lower_choice<'a>(
    cx: &mut Lowering<'a>,
    k: &'a PlanKernel,
    shape: &ContractShape,
    choice: &Choice,
    hopper: Option<&Hopper>,
    span: Span,
) -> Result<(), Refusal> {
    if let Some(noted) = hopper.and_then(|_| contract_padding::noted(cx, k, shape, span)) {
        let flag = contract_split::begin(cx, &k.name, span)?;
        lower_noting(cx, k, &noted.product, choice, hopper, Some(flag), span)?;
        exact(cx, &k.name, shape, &noted.plain, flag);
        return Ok(());
    }
    lower_noting(cx, k, shape, choice, hopper, hopper.and_then(|h| h.note), span)
}

/// Lowers a choice whose sums are noted in `note` if one is NaN.
fn lower_noting<'a>(
    cx: &mut Lowering<'a>,
    k: &'a PlanKernel,
    shape: &ContractShape,
    choice: &Choice,
    hopper: Option<&Hopper>,
    note: Option<BufferId>,
    span: Span,
) -> Result<(), Refusal> {
    let tile = &choice.tile;
    let wishes = Wishes { schedule: cx.schedule, kernel: &k.name, span };
    if let (None, Some((axis, n))) = (hopper, wishes.clusters()?.into_iter().find(|c| c.1 > 1)) {
        let why = format!(
            "{n} blocks can share copies only in the main loop of sm_90a, which does not take this product"
        );
        return Err(wishes.refuse("cluster", &axis, &why));
    }
    let asked = cx.schedule.get(&k.name, "persistent", "");
    if hopper.is_none() && asked.is_some_and(|w| !matches!(w, Word::Name(n) if n == "off")) {
        let why = "blocks take one tile after the other only in the main loop of sm_90a, which does not take this product";
        return Err(wishes.refuse("persistent", "", why));
    }
    let (m, n) = tile.groups();
    let blocks = [tile.batch, tile.split, (tile.cluster * tile.join) as i64, m, n];
    let blocks = blocks.iter().try_fold(1i64, |n, &b| n.checked_mul(b)).filter(|&n| n <= MAX_GRID_X);
    let Some(blocks) = blocks else {
        return Err(Refusal::new(span, "the product needs more blocks than a grid may have").setting("block"));
    };
    let list = match (hopper, &shape.selector) {
        (Some(_), Some(selector)) => Some(contract_select::list(cx, &k.name, shape, tile, selector, span)),
        _ => None,
    };
    let mut e = cx.emit(&k.name);
    e.kernel.grid = [tile.resident.map_or(blocks as u32, |n| n * tile.cluster), 1, 1];
    e.kernel.cluster = [tile.cluster * tile.join, 1, 1];
    e.kernel.block = [tile.threads, 1, 1];
    // Two small blocks share a multiprocessor, where their registers let them.
    let two =
        hopper.is_some() && tile.threads <= 256 && 2 * (tile.shared_bytes + 2048) <= cx.target.shared_per_sm;
    e.kernel.min_blocks = if two { 2 } else { 1 };
    let work = workspaces(cx, &mut e, shape, tile);
    match hopper {
        Some(h) => build_hopper(cx, &mut e, shape, (h, note), &work, list),
        None => build(cx, &mut e, shape, choice, &work),
    }
    if e.kernel.shared_bytes() > cx.target.shared_per_block {
        let (needed, limit) = (e.kernel.shared_bytes(), cx.target.shared_per_block);
        let message = format!(
            "{} needs {needed} bytes of shared memory, and a block has {limit} on {}: make `block` or `step` smaller",
            k.name, cx.target.name
        );
        return Err(Refusal::new(span, message).setting("block"));
    }
    cx.launch(e);
    if let (Some(tail), &[work]) = (&tile.tail, &work[..]) {
        return contract_tail::reduce(cx, k, shape, (tile, tail), work, span);
    }
    if tile.split > 1 && (note.is_some() || !leave_parts(cx, k, shape, tile, &work)) {
        reduce(cx, k, shape, tile, &work, span)?;
    }
    Ok(())
}

pub(super) fn span(graph: &Graph, k: &PlanKernel) -> Span {
    match k.stmts.first().map(|&s| &graph.stmts[s]) {
        Some(GraphStmt::Define(d)) => d.span,
        _ => Span::default(),
    }
}

pub(super) fn shape<'a>(cx: &Lowering<'a>, k: &PlanKernel, span: Span) -> Result<ContractShape, Refusal> {
    let shape = recognise_any(cx.graph, &cx.facts, &k.stmts).map_err(|why| {
        Refusal::new(span, format!("{} is no product for the form `contract`: {why}", k.name))
    })?;
    let most = [&shape.m, &shape.n, &shape.batch].into_iter().map(|d| ContractShape::points(d)).max();
    let terms = shape.folds.iter().map(|c| c.terms()).max();
    if most.max(terms).is_some_and(|n| n > MAX_POINTS) {
        return Err(Refusal::new(span, "more than 2³¹ points along one side of a product"));
    }
    Ok(shape)
}

/// The tile where the main loop of sm_90a takes the product. Rows that are not one number are tried with the outermost
/// digit as part of the batch.
pub(super) fn hopper_choice(
    cx: &Lowering,
    home: &dyn Fn(TensorId) -> Home,
    shape: &mut ContractShape,
    wishes: &Wishes,
) -> Result<Option<Hopper>, Refusal> {
    let copies = Copies { parts: cx.parts.is_some(), ..Copies::default() };
    let choose = |shape: &ContractShape| {
        let ground = Ground { graph: cx.graph, facts: &cx.facts, shape, home };
        contract_hopper::choose(&ground, cx.target, wishes, copies)
    };
    // Readers that add a split sum's parts themselves want them as the result lies.
    if let (Some(few), true) = (contract_few::sides(shape), cx.parts.is_none()) {
        let ground = Ground { graph: cx.graph, facts: &cx.facts, shape: &few, home };
        let pick = &contract_few::pick;
        let found = contract_hopper::choose_by(&ground, cx.target, wishes, Copies::default(), pick)?;
        // Windows read their rows again and again: they are no stream, and larger blocks pay where their columns are full.
        let windows = |h: &Hopper| {
            h.a[0].map.pixels.is_some() && ContractShape::points(&few.n) >= contract_hopper::LEAST
        };
        if found.as_ref().is_some_and(|h| contract_few::wastes(wishes, &few, h)) {
            return Ok(None);
        }
        if found.as_ref().is_some_and(|h| !windows(h)) {
            *shape = few;
            return Ok(found);
        }
    }
    let own = choose(shape)?;
    let other = contract_few::turned(shape);
    if cx.parts.is_none()
        && contract_few::may_turn(cx.graph, &cx.facts, shape, wishes, own.as_ref())
        && let Some(t) = choose(&other)?
        && contract_few::turns(&t, own.as_ref())
    {
        *shape = other;
        return Ok(Some(t));
    }
    if own.is_some() {
        return Ok(own);
    }
    for part in [Part::N, Part::M] {
        let Some(other) = shape.with_batch(part) else { continue };
        if let Some(h) = choose(&other)? {
            *shape = other;
            return Ok(Some(h));
        }
    }
    Ok(None)
}

/// The kernel for weights of 4 bits, where the product has such and one takes it; they are A of the shape that is left
/// where it is the one of sm_90a.
pub(super) fn codes_choice(
    cx: &Lowering,
    shape: &mut ContractShape,
    wishes: &Wishes,
) -> Result<Option<Codes>, Refusal> {
    let home = |t: TensorId| cx.home(t).clone();
    if !contract_codes::any(cx.graph, shape) {
        return Ok(None);
    }
    for shape_of in [shape.clone(), contract_few::turned(shape)] {
        let ground = Ground { graph: cx.graph, facts: &cx.facts, shape: &shape_of, home: &home };
        if let Some(codes) = codes_groups::choose(&ground, cx.target, wishes)? {
            *shape = shape_of;
            return Ok(Some(codes));
        }
    }
    let ground = Ground { graph: cx.graph, facts: &cx.facts, shape, home: &home };
    Ok(contract_codes::choose(&ground, cx.target, wishes))
}

/// A kernel whose weights are of 4 bits.
fn lower_codes<'a>(
    cx: &mut Lowering<'a>,
    k: &'a PlanKernel,
    shape: &ContractShape,
    codes: &Codes,
    span: Span,
) -> Result<(), Refusal> {
    let tile = &codes.choice.tile;
    let mut e = cx.emit(&k.name);
    e.kernel.grid = [(tile.split * tile.m.tiles() * tile.n.tiles()) as u32, 1, 1];
    e.kernel.block = [tile.threads, 1, 1];
    e.kernel.cluster = [tile.cluster, 1, 1];
    let work = workspaces(cx, &mut e, shape, tile);
    let place = locate(&mut e, shape, tile);
    e.line(cx.graph.span(shape.folds[0].fold));
    let params: Vec<_> = work.iter().map(|&w| e.pointer(w, true)).collect();
    if let Arrange::Groups { .. } = tile.arrange {
        let home = |t: TensorId| cx.home(t).clone();
        let ground = Ground { graph: cx.graph, facts: &cx.facts, shape, home: &home };
        e.kernel.min_blocks = codes.together;
        HopperCodes::new(&mut e, codes, shape).emit(&mut e, &ground, &place, &params);
    } else if let Some(stream) = CodesStream::new(&mut e, codes, shape) {
        e.kernel.min_blocks = codes.together;
        stream.emit(&mut e, &place);
    } else {
        e.kernel.min_blocks = contract_codes::BLOCKS as u32 / codes.tiles;
        CodesLoop::new(&mut e, codes, shape).emit(&mut e, &place, &params);
    }
    cx.launch(e);
    if tile.split > 1 {
        reduce(cx, k, shape, tile, &work, span)?;
    }
    Ok(())
}

/// A buffer of partial sums for each fold, where blocks share them.
fn workspaces(cx: &mut Lowering, e: &mut Emit, shape: &ContractShape, tile: &Tile) -> Vec<BufferId> {
    let len = match &tile.tail {
        Some(tail) => contract_tail::partials(tile, tail),
        None if tile.split == 1 => return Vec::new(),
        None => Epilogue { shape, tile }.partials(),
    };
    let dtypes: Vec<DType> = shape.folds.iter().map(|c| c.ty.stored()).collect();
    let make = |(i, dtype): (usize, DType)| {
        let name = format!("{}_parts{i}", tile.name);
        let buffer = cx.workspace(name.clone(), dtype, &[len]);
        e.know_buffer(buffer, &name, dtype, len);
        buffer
    };
    dtypes.into_iter().enumerate().map(make).collect()
}

/// Leaves the parts of a split sum to its readers, if those ask for it and the sum is the value as it is stored.
fn leave_parts(
    cx: &mut Lowering,
    k: &PlanKernel,
    shape: &ContractShape,
    tile: &Tile,
    work: &[BufferId],
) -> bool {
    const MOST: i64 = 8;
    let ([s], [c], [buffer]) = (&k.stmts[..], &shape.folds[..], work) else { return false };
    let GraphStmt::Define(d) = &cx.graph.stmts[*s] else { return false };
    let home = cx.home(d.target);
    let mut len = 1;
    let mut plain = home.dtype == c.ty.stored() && d.value == c.fold;
    for digit in shape.batch.iter().chain(&shape.m).chain(&shape.n).rev() {
        plain &= digit.extent <= 1 || home.strides[digit.out] * digit.stride == len;
        len *= digit.extent;
    }
    plain &= c.hoisted.is_empty()
        && c.result_guards.is_empty()
        && !c.masked
        && tile.split <= MOST
        && len == home.len;
    let parts = super::Parts { buffer: *buffer, count: tile.split, len };
    match &mut cx.parts {
        Some(known) if plain => known.insert(d.target, parts).is_none(),
        _ => false,
    }
}

/// The second kernel of a split sum.
fn reduce<'a>(
    cx: &mut Lowering<'a>,
    k: &'a PlanKernel,
    shape: &ContractShape,
    tile: &Tile,
    work: &[BufferId],
    span: Span,
) -> Result<(), Refusal> {
    let points = tile.batch * tile.m.points() * tile.n.points();
    let mut e = cx.emit(&format!("{}_add", k.name));
    map::grid(&mut e, points, map::THREADS, span)?;
    e.line(span);
    let params: Vec<_> = work.iter().map(|&w| e.pointer(w, false)).collect();
    let number = e.thread_number(points);
    let inside = cmp(CmpOp::Lt, number.expr.clone(), int_of(number.ty, points).expr);
    e.if_then(inside, |e| Epilogue { shape, tile }.reduce(e, number, &params));
    cx.launch(e);
    Ok(())
}

fn build(cx: &Lowering, e: &mut Emit, shape: &ContractShape, choice: &Choice, work: &[BufferId]) {
    let home = |t: TensorId| cx.home(t).clone();
    let ground = Ground { graph: cx.graph, facts: &cx.facts, shape, home: &home };
    let mut place = locate(e, shape, &choice.tile);
    match &shape.selector {
        None => pass(e, &ground, choice, &place, work),
        Some(selector) => {
            contract_select::each_choice(e, shape, &choice.tile, selector, &mut place, |e, place| {
                pass(e, &ground, choice, place, work);
            })
        }
    }
}

/// The sums of a block and their epilogue.
fn pass(e: &mut Emit, ground: &Ground, choice: &Choice, place: &Where, work: &[BufferId]) {
    let (tile, shape) = (&choice.tile, ground.shape);
    let len = Accumulators::of(tile).len();
    let mut shared = SharedTiles::default();
    let mut accs = Vec::new();
    for (i, c) in shape.folds.iter().enumerate() {
        let acc = e.kernel.array(if i == 0 { "acc".into() } else { format!("acc{i}") }, Ty::of(c.ty), len);
        contract_mma::clear(e, acc, len, c.ty);
        accs.push(acc);
        if c.terms() > 0 {
            if i > 0 {
                // The tiles of the sum before are still being read.
                e.push(Stmt::Barrier);
            }
            let main = MainLoop { tile, fold: &tile.folds[i], shape, index: i, choice: &choice.folds[i] };
            e.line(ground.graph.span(c.fold));
            e.scope(|e| {
                if let (Some(s), Some(chosen)) = (&shape.selector, &place.chosen) {
                    contract_select::bind(e, s, &chosen.now);
                }
                main.emit(e, ground, place, &mut shared, acc)
            });
        }
    }
    let epilogue = Epilogue { shape, tile };
    if tile.split > 1 {
        let params: Vec<_> = work.iter().map(|&w| e.pointer(w, true)).collect();
        epilogue.store_partial(e, place, &accs, &params);
    } else {
        epilogue.store(e, ground, place, &accs);
    }
}

fn build_hopper(
    cx: &Lowering,
    e: &mut Emit,
    shape: &ContractShape,
    (h, note): (&Hopper, Option<BufferId>),
    work: &[BufferId],
    list: Option<BufferId>,
) {
    let home = |t: TensorId| cx.home(t).clone();
    let ground = Ground { graph: cx.graph, facts: &cx.facts, shape, home: &home };
    let tile = &h.choice.tile;
    // The sums of several folds lie one after the other, as one instruction makes them.
    let (ty, len) = (Ty::of(shape.folds[0].ty), Accumulators::of(tile).len());
    let all = len * shape.folds.len() as u32;
    let acc = match in_pieces(h, list.is_some() || note.is_some()) {
        true => e.kernel.named_registers("acc", ty, all),
        false => e.kernel.array("acc", ty, all),
    };
    let other = |i| e.kernel.array(format!("acc{i}"), ty, len);
    let accs: Vec<ArrayId> = [acc].into_iter().chain((1..shape.folds.len()).map(other)).collect();
    e.line(cx.graph.span(shape.folds[0].fold));
    let join = (tile.join > 1).then(|| Join::new(e, tile));
    let main = HopperLoop::new(e, h);
    let staging = h.output.as_ref().map(|o| Staging::new(e, tile, o));
    let params: Vec<_> = work.iter().map(|&w| e.pointer(w, true)).collect();
    let epilogue = Epilogue { shape, tile };
    let list = list.map(|l| e.pointer(l, false));
    let pass = |e: &mut Emit, place: &Where, f: &mut dyn FnMut(&mut Emit, &Where, &Steps)| {
        let steps = match h.terms.own_steps(e, place) {
            Some(count) => Steps { first: lit32(0), count },
            None => block_steps(e, tile, &tile.folds[0], place),
        };
        f(e, place, &steps);
    };
    let note = note.map(|flag| e.pointer(flag, true));
    let by_lane = |e: &mut Emit, place: &Where| epilogue.store(e, &ground, place, &accs);
    let around = Around {
        each: &|e, number, f| match list {
            None => match &tile.tail {
                Some(tail) => {
                    let (place, steps) = contract_tail::locate(e, shape, tile, tail, number);
                    f(e, &place, &steps);
                }
                None => {
                    let place = locate_at(e, shape, tile, number);
                    pass(e, &place, f)
                }
            },
            Some(l) => {
                let mut place = locate_at(e, shape, tile, number);
                contract_select::each_listed(e, tile, l, &mut place, &mut |e, place| pass(e, place, f))
            }
        },
        epilogue: &|e, place, group| {
            if let Some(flag) = note {
                contract_groups::note(e, acc, len, flag);
            }
            for (i, &other) in accs.iter().enumerate().skip(1) {
                contract_mma::copy(e, acc, i as u32 * len, other, len);
            }
            if let Some(join) = &join {
                let (own, place) = join.add(e, place, acc);
                let epilogue = Epilogue { shape, tile: &join.share };
                return match tile.split {
                    1 => epilogue.store(e, &ground, &place, &[own]),
                    _ => epilogue.store_partial(e, &place, &[own], &params),
                };
            }
            let whole = |e: &mut Emit| match (&staging, list) {
                _ if tile.split > 1 => epilogue.store_partial(e, place, &accs, &params),
                (Some(s), None) => s.store(e, &epilogue, place, &accs, group),
                // Boxes are stored where all rows are of one pass.
                (Some(s), Some(l)) => {
                    let one = contract_select::one(tile, l, place);
                    e.if_else(one, |e| s.store(e, &epilogue, place, &accs, group), |e| by_lane(e, place));
                }
                (None, _) => by_lane(e, place),
            };
            match (&place.tail, &tile.tail, &params[..]) {
                (Some(shared), Some(tail), &[work]) => {
                    let part = |e: &mut Emit| contract_tail::store(e, tile, tail, place, acc, work);
                    e.if_else(shared.is.clone(), part, whole)
                }
                _ => whole(e),
            }
        },
        finish: &|e| staging.iter().for_each(|s| s.finish(e)),
        shape,
    };
    main.emit(e, acc, &around);
}

/// Whether nothing but staging tiles reads the accumulators, which take pieces whose registers are known.
fn in_pieces(h: &Hopper, looked_at: bool) -> bool {
    let tile = &h.choice.tile;
    let whole = tile.split == 1 && tile.join == 1 && tile.tail.is_none() && h.terms.ragged.is_empty();
    let promoted = matches!(tile.folds[0].math, Math::Wgmma { promote: true, .. });
    whole && !promoted && !looked_at && h.output.is_some() && tile.folds.len() == 1
}

/// Shared arrays, used again by later sums of the same dtype.
#[derive(Default)]
struct SharedTiles {
    made: Vec<(bool, DType, SharedId)>,
}

impl SharedTiles {
    fn get(&mut self, e: &mut Emit, is_a: bool, dtype: DType, bytes: u32) -> SharedId {
        let len = bytes * 8 / dtype.bits();
        if let Some((_, _, id)) = self.made.iter().find(|(a, d, _)| (*a, *d) == (is_a, dtype)) {
            let row = &mut e.kernel.shared[id.0 as usize];
            row.len = row.len.max(len);
            return *id;
        }
        let id = e.kernel.shared(if is_a { "a_tile" } else { "b_tile" }, dtype, len, 128);
        self.made.push((is_a, dtype, id));
        id
    }
}

struct MainLoop<'x> {
    tile: &'x Tile,
    fold: &'x FoldTile,
    shape: &'x ContractShape,
    index: usize,
    choice: &'x FoldChoice,
}

impl MainLoop<'_> {
    fn emit(&self, e: &mut Emit, ground: &Ground, place: &Where, shared: &mut SharedTiles, acc: ArrayId) {
        let (fold, tile) = (self.fold, self.tile);
        let bytes = |op: &crate::ir::tile::Operand| fold.stages * op.place.bytes(op.dtype);
        let a = shared.get(e, true, fold.a.dtype, bytes(&fold.a));
        let b = shared.get(e, false, fold.b.dtype, bytes(&fold.b));
        let mut loaders = [self.loader(true, a), self.loader(false, b)];
        loaders.iter_mut().for_each(|l| l.prepare(e, ground, place));
        let tiles = contract_mma::prepare(e, tile, fold, a, b);
        let ty = self.shape.folds[self.index].ty;
        let registers = Registers::new(e, tile, fold, ty, acc);
        let mut steps = block_steps(e, tile, fold, place);
        if let Some(range) = loaders.iter().find_map(|l| l.range()) {
            steps = contract_bounds::narrow(e, steps, range, fold.step);
        }
        let ring = Ring { main: self, loaders: &loaders, place, steps, tiles: &tiles, registers: &registers };
        if fold.stages == 1 { ring.single(e) } else { ring.pipelined(e) }
    }

    fn loader(&self, is_a: bool, shared: SharedId) -> Loader<'_> {
        let c = &self.shape.folds[self.index];
        let (side, source) =
            if is_a { (&self.tile.m, &self.choice.a) } else { (&self.tile.n, &self.choice.b) };
        Loader::new(self.shape, c, &self.choice.k, source, self.fold, side, is_a, shared, self.tile.threads)
    }
}

/// The steps of a block: all, or its part.
fn block_steps(e: &mut Emit, tile: &Tile, fold: &FoldTile, place: &Where) -> Steps {
    let all = fold.steps();
    let live = |e: &mut Emit, count: Expr| match &place.chosen {
        None => count,
        Some(chosen) => contract_select::unless_none(e, &chosen.now, count),
    };
    let (join, parts) = (tile.join as i64, tile.split * tile.join as i64);
    if parts == 1 {
        return Steps { first: lit32(0), count: live(e, lit32(all as i32)) };
    }
    let per = (all + parts - 1) / parts;
    let rank = modulo(Expr::Special(Special::BlockX), join);
    let number = plus(times(place.part.clone(), join), rank);
    let first = e.named("first", Ty::I32, times(number, per));
    let left = int_op(IntOp::Sub, lit32(all as i32), first.clone());
    let count = int_op(IntOp::Max, int_op(IntOp::Min, left, lit32(per as i32)), lit32(0));
    let count = e.named("count", Ty::I32, count);
    Steps { first, count: live(e, count) }
}

/// The ring of stages.
struct Ring<'r, 'x> {
    main: &'r MainLoop<'x>,
    loaders: &'r [Loader<'r>; 2],
    place: &'r Where,
    steps: Steps,
    tiles: &'r Tiles,
    registers: &'r Registers,
}

impl Ring<'_, '_> {
    fn uses_async(&self) -> bool {
        let fold = self.main.fold;
        [&fold.a, &fold.b].iter().any(|o| matches!(o.load, Load::Async(_)))
    }

    fn slots(&self, stage: &Expr) -> [Expr; 2] {
        let fold = self.main.fold;
        [&fold.a, &fold.b].map(|op| {
            let len = op.place.bytes(op.dtype) * 8 / op.dtype.bits();
            times(stage.clone(), len as i64)
        })
    }

    /// Starts the copies of step `number` (from the block's first) to a stage.
    fn issue(&self, e: &mut Emit, number: &Expr, stage: &Expr) {
        let step = plus(self.steps.first.clone(), number.clone());
        let k0 = e.named("k0", Ty::I32, times(step, self.main.fold.step));
        for (loader, slot) in self.loaders.iter().zip(self.slots(stage)) {
            let slot = e.named("slot", Ty::I32, slot);
            e.scope(|e| loader.issue(e, self.place, &k0, &slot));
        }
    }

    /// Stores what the copies left in registers.
    fn finish(&self, e: &mut Emit, stage: &Expr) {
        for (loader, slot) in self.loaders.iter().zip(self.slots(stage)) {
            loader.finish(e, &slot);
        }
    }

    fn commit(&self, e: &mut Emit) {
        if self.uses_async() {
            e.push(Stmt::Intrinsic { op: Intrinsic::CpAsyncCommit, outs: Vec::new(), args: Vec::new() });
        }
    }

    fn wait(&self, e: &mut Emit, left: u32) {
        if self.uses_async() {
            let op = Intrinsic::CpAsyncWait(left as u8);
            e.push(Stmt::Intrinsic { op, outs: Vec::new(), args: Vec::new() });
        }
    }

    fn multiply(&self, e: &mut Emit, stage: &Expr) {
        let main = self.main;
        e.scope(|e| contract_mma::step(e, main.tile, main.fold, self.tiles, self.registers, stage));
    }

    /// One stage: load, multiply, and so on.
    fn single(&self, e: &mut Emit) {
        let it = e.kernel.var("it", Ty::I32);
        let body = e.block(|e| {
            e.push(Stmt::Barrier);
            self.issue(e, &Expr::Var(it), &lit32(0));
            self.finish(e, &lit32(0));
            self.commit(e);
            self.wait(e, 0);
            e.push(Stmt::Barrier);
            self.multiply(e, &lit32(0));
        });
        self.run(e, it, self.steps.count.clone(), body);
    }

    fn run(&self, e: &mut Emit, var: VarId, hi: Expr, body: Vec<Stmt>) {
        e.push(Stmt::For { var, lo: lit32(0), hi, step: lit32(1), unroll: Unroll::None, body });
    }

    /// Several stages: a step's copies start `stages − 1` steps before it is multiplied, into the stage that the
    /// step before read. One barrier a step says both that this step's tiles are there and that the stage is free.
    fn pipelined(&self, e: &mut Emit) {
        let stages = self.main.fold.stages;
        let ahead = stages - 1;
        let fill = e.kernel.var("fill", Ty::I32);
        let body = e.block(|e| {
            let there = cmp(CmpOp::Lt, Expr::Var(fill), self.steps.count.clone());
            e.if_then(there, |e| {
                self.issue(e, &Expr::Var(fill), &Expr::Var(fill));
                self.finish(e, &Expr::Var(fill));
            });
            self.commit(e);
        });
        self.run(e, fill, lit32(ahead as i32), body);
        let read = e.let_var("read", Ty::I32, lit32(0));
        let write = e.let_var("write", Ty::I32, lit32(ahead as i32));
        let it = e.kernel.var("it", Ty::I32);
        let body = e.block(|e| {
            self.wait(e, ahead - 1);
            e.push(Stmt::Barrier);
            let next = e.named("next", Ty::I32, add(Expr::Var(it), lit32(ahead as i32)));
            let more = cmp(CmpOp::Lt, next.clone(), self.steps.count.clone());
            e.if_then(more.clone(), |e| self.issue(e, &next, &Expr::Var(write)));
            self.commit(e);
            self.multiply(e, &Expr::Var(read));
            if self.loaders.iter().any(|l| l.stages_registers()) {
                e.if_then(more, |e| self.finish(e, &Expr::Var(write)));
            }
            for var in [read, write] {
                e.push(Stmt::Set(var, add(Expr::Var(var), lit32(1))));
                let last = cmp(CmpOp::Eq, Expr::Var(var), lit32(stages as i32));
                e.push(Stmt::If { cond: last, then: vec![Stmt::Set(var, lit32(0))], otherwise: Vec::new() });
            }
        });
        self.run(e, it, self.steps.count.clone(), body);
        // No copy may be in flight when the stages are used again.
        self.wait(e, 0);
    }
}

/// The settings of a kernel with the values worth trying, for `--schedule each` and the tuner: (key, axis, values).
pub fn space(graph: &Graph, stmts: &[usize]) -> Vec<(String, String, Vec<i64>)> {
    let Ok(shape) = recognise(graph, stmts) else { return Vec::new() };
    let last = |digits: &[super::contract_pattern::Digit]| {
        digits.last().map(|d| (shape.axes[d.out].name.clone(), d.extent))
    };
    let upto = |most: i64, values: &[i64]| -> Vec<i64> {
        let enough = values.iter().copied().find(|&v| v >= most).unwrap_or(i64::MAX);
        values.iter().copied().filter(|&v| v <= enough).collect()
    };
    let mut space = Vec::new();
    let rows: &[i64] = &[16, 32, 64, 128, 256];
    for (side, values) in [(last(&shape.m), rows), (last(&shape.n), &[16, 32, 64, 128, 192, 256])] {
        space.extend(side.map(|(name, extent)| ("block".into(), name, upto(extent, values))));
    }
    if let Some(k) = shape.folds[0].k.last() {
        space.push(("step".into(), k.name.clone(), upto(k.extent, &[16, 32, 64, 128])));
        space.push(("split".into(), k.name.clone(), upto(k.extent / 64, &[1, 2, 4, 8])));
    }
    space.push(("stages".into(), String::new(), vec![2, 3, 4, 5]));
    space.push(("warps".into(), String::new(), vec![4, 8]));
    space
}

/// A schedule with one kernel's numbers set.
pub fn with(mut schedule: Schedule, kernel: &str, settings: &[(&str, &str, i64)]) -> Schedule {
    for (key, axis, v) in settings {
        schedule.set(kernel, key, axis, crate::ir::graph::Word::Int(*v));
    }
    schedule
}
