//! Row kernels with few, long rows: several blocks share a row.
//!
//! A first kernel leaves each block's partial results in a workspace, a second combines them in order and finishes
//! the statements. So a sum over all of a large tensor uses the whole device and still repeats bit for bit.

use super::fold::Acc;
use super::row::{self, Row, points};
use super::row_layout::{self, Layout};
use super::row_pass::{self, Item, Kind, Pass};
use super::row_reduce::{self, Found};
use super::scalar::{Num, add, cmp, lit32, mul};
use super::{Lowering, Refusal};
use crate::ir::plan::PlanKernel;
use crate::ir::program::BufferId;
use crate::ir::simt::{CmpOp, Expr, Mem, Special, Stmt, Ty, Unroll};
use crate::pass::rows::Rows;
use crate::vocab::dtype::DType;

const ENOUGH_ROWS: i64 = 96;
const LONG_ROW: i64 = 32768;
/// The same for rows whose neighbours are neighbours in memory: there are more of them than of others.
const LONG_COLUMN: i64 = 4096;
const MOST_ROWS: i64 = 1 << 15;
/// Blocks that keep a device busy, and that need no help.
const ENOUGH_BLOCKS: i64 = 264;
const COLUMN_BLOCKS: i64 = 1056;
const MOST_PARTS: i64 = 1024;

/// How rows are split.
pub struct Split {
    layout: Layout,
    parts: i64,
}

/// Few rows, each long, and one pass of reductions over them: how they are split.
pub fn wanted<'a>(
    cx: &Lowering<'a>,
    k: &'a PlanKernel,
    rows: &Rows,
    passes: &[Pass<'a>],
) -> Result<Option<Split>, Refusal> {
    let plain = passes.iter().all(|p| {
        p.level == 0
            && !p.ordered
            && p.dims.is_some()
            && p.items.iter().all(|i| matches!(i.kind, Kind::Fold { .. }))
    });
    let longest = passes.iter().filter_map(|p| points(&p.dims)).max().unwrap_or(0);
    if !plain || rows.count() >= MOST_ROWS as f64 || longest < LONG_COLUMN {
        return Ok(None);
    }
    let (count, layout) = (rows.count() as i64, row_layout::choose(cx, k, rows, passes)?);
    if !layout.columns {
        let few = count < ENOUGH_ROWS && longest >= LONG_ROW;
        let layout = Layout { per_block: 1, lanes: 256, ..layout };
        return Ok(few.then(|| Split { layout, parts: parts(longest, count) }));
    }
    // Blocks of neighbouring columns; a part has a few rounds at least.
    let layout = Layout { lanes: 8, per_block: 32, ..layout };
    let blocks = (count + layout.per_block - 1) / layout.per_block;
    if blocks >= ENOUGH_BLOCKS {
        return Ok(None);
    }
    let parts = (COLUMN_BLOCKS / blocks).min(longest / (layout.lanes * 32)).clamp(1, MOST_PARTS);
    Ok((parts > 1).then_some(Split { layout, parts }))
}

pub fn lower<'a>(
    cx: &mut Lowering<'a>,
    k: &'a PlanKernel,
    rows: &Rows,
    passes: &[Pass<'a>],
    split: &Split,
) -> Result<(), Refusal> {
    let Split { layout, parts } = split;
    let slots = partials(cx, k, rows, passes, layout, *parts)?;
    let layout = Layout { per_block: 1, columns: false, ..layout.clone() };
    finish(cx, k, rows, passes, &layout, *parts, &slots)
}

/// Blocks that share a row: enough for the device, each with enough to do.
fn parts(points: i64, rows: i64) -> i64 {
    const BLOCKS: i64 = 528;
    const LEAST: i64 = 8192;
    (BLOCKS / rows.max(1)).min((points + LEAST - 1) / LEAST).clamp(1, MOST_PARTS)
}

/// A fold's partial results: values, and places for argmax and argmin.
struct Slots {
    value: BufferId,
    at: Option<BufferId>,
}

fn dtype_of(ty: Ty) -> DType {
    match ty {
        Ty::Bool => DType::Bool,
        Ty::I32 | Ty::U32 => DType::I32,
        Ty::I64 | Ty::U64 => DType::I64,
        Ty::F32 => DType::F32,
        Ty::F64 => DType::F64,
    }
}

/// The first kernel: a grid of rows × parts, each block with every `parts`-th round.
fn partials<'a>(
    cx: &mut Lowering<'a>,
    k: &'a PlanKernel,
    rows: &Rows,
    passes: &[Pass<'a>],
    layout: &Layout,
    parts: i64,
) -> Result<Vec<Slots>, Refusal> {
    let count = layout.rows;
    let e = cx.emit(&format!("{}_parts", k.name));
    let mut r = Row::start(e, rows, layout.clone());
    let blocks = (count + layout.per_block - 1) / layout.per_block;
    r.e.kernel.grid = [blocks as u32, parts as u32, 1];
    let mut all = Vec::new();
    for pass in passes {
        let accs = row_pass::run_part(&mut r, pass, parts);
        all.extend(accs);
    }
    let mut slots = Vec::new();
    let number = super::read::to(r.number.clone(), Ty::I32);
    let place = add(mul(number, lit32(parts as i32)), Expr::Special(Special::BlockY));
    let place = r.e.named("slot", Ty::I32, place);
    for acc in &all {
        let dims = [count, parts];
        let value = cx.workspace(format!("{}.partials", k.name), dtype_of(acc.ty), &dims);
        let at = acc.at.map(|(_, ty)| cx.workspace(format!("{}.places", k.name), dtype_of(ty), &dims));
        write_slot(&mut r, acc, value, at, &place, count * parts, &k.name);
        slots.push(Slots { value, at });
    }
    cx.launch(r.e);
    Ok(slots)
}

fn write_slot(
    r: &mut Row<'_, '_>,
    acc: &Acc,
    value: BufferId,
    at: Option<BufferId>,
    place: &Expr,
    len: i64,
    name: &str,
) {
    r.e.know_buffer(value, &format!("{name}_partials"), dtype_of(acc.ty), len);
    let to = r.e.pointer(value, true);
    let places = at.zip(acc.at).map(|(b, (_, ty))| {
        r.e.know_buffer(b, &format!("{name}_places"), dtype_of(ty), len);
        r.e.pointer(b, true)
    });
    let first = cmp(CmpOp::Eq, r.lanes.lane.expr.clone(), lit32(0));
    let first = r.and_valid(first);
    r.e.if_then(first, |e| {
        e.push(Stmt::Store(Mem::Global(to), place.clone(), Expr::Var(acc.var)));
        if let (Some(p), Some((at, _))) = (places, acc.at) {
            e.push(Stmt::Store(Mem::Global(p), place.clone(), Expr::Var(at)));
        }
    });
}

/// The second kernel: a block a row combines its parts and finishes the statements.
fn finish<'a>(
    cx: &mut Lowering<'a>,
    k: &'a PlanKernel,
    rows: &Rows,
    passes: &[Pass<'a>],
    layout: &Layout,
    parts: i64,
    slots: &[Slots],
) -> Result<(), Refusal> {
    let stored = row::stored_targets(cx.graph, &k.stmts);
    let e = cx.emit(&k.name);
    let lanes = (parts as u64).next_power_of_two().clamp(32, 256) as i64;
    let mut r = Row::start(e, rows, Layout { lanes, ..layout.clone() });
    let mut slot = slots.iter();
    for pass in passes {
        let accs = row_pass::accumulators(&mut r, pass);
        for (item, acc) in pass.items.iter().zip(&accs) {
            if let (Some(acc), Some(s)) = (acc, slot.next()) {
                gather(&mut r, acc, s, parts, lanes, layout.rows * parts, &k.name);
                let lanes = r.lanes.clone();
                lanes.reduce(&mut r.e, std::slice::from_ref(acc));
                bind(&mut r, item, acc);
            }
        }
    }
    r.finish_members(1, &stored);
    cx.launch(r.e);
    Ok(())
}

/// Each thread takes some of the parts.
fn gather(r: &mut Row<'_, '_>, acc: &Acc, s: &Slots, parts: i64, lanes: i64, len: i64, name: &str) {
    r.e.know_buffer(s.value, &format!("{name}_partials"), dtype_of(acc.ty), len);
    let value = r.e.pointer(s.value, false);
    let places = s.at.zip(acc.at).map(|(b, (_, ty))| {
        r.e.know_buffer(b, &format!("{name}_places"), dtype_of(ty), len);
        (r.e.pointer(b, false), ty)
    });
    let part = r.e.kernel.var("part", Ty::I32);
    let row = Expr::Special(Special::BlockX);
    let body = r.e.block(|e| {
        let place = add(mul(row, lit32(parts as i32)), Expr::Var(part));
        let place = e.named("slot", Ty::I32, place);
        let load = |p| Expr::Load(Mem::Global(p), Box::new(place.clone()));
        let v = e.named("partial", acc.ty, load(value));
        let at = places.map(|(p, ty)| e.named("place", ty, load(p)));
        row_reduce::combine(e, acc, &Found { value: v, at });
    });
    let lane = r.lanes.lane.expr.clone();
    let (hi, step) = (lit32(parts as i32), lit32(lanes as i32));
    r.e.push(Stmt::For { var: part, lo: lane, hi, step, unroll: Unroll::Auto, body });
}

fn bind(r: &mut Row<'_, '_>, item: &Item<'_>, acc: &Acc) {
    if let Kind::Fold { expr, .. } = &item.kind {
        let n = r.e.result(acc);
        let n = Num { expr: r.e.named("total", n.ty, n.expr), ty: n.ty };
        r.e.bind_num(*expr, n);
    }
}
