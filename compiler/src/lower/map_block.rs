//! Form `map` with `block` set: a block makes a box of the output, its threads take the box's points in turns.

use super::map::{self, coordinates, decode, point};
use super::scalar::{Num, add, and, arith, cmp, int_of, lit32};
use super::{Lowering, MAX_GRID_X, Refusal};
use crate::ir::graph::Define;
use crate::ir::simt::{CmpOp, Expr, IntOp, Special, Stmt, Ty, Unroll};
use girih_dsl::ast::Span;

/// Extents of the box that the schedule asks for; an axis without a setting is cut into single points.
pub fn asked(cx: &Lowering<'_>, name: &str, d: &Define) -> Option<Vec<i64>> {
    let dims = &cx.graph.tensor(d.target).dims;
    let set = |&a| cx.schedule.int(name, "block", &cx.graph.axis(a).name);
    let blocks: Vec<Option<i64>> = d.axes.iter().map(set).collect();
    let any = blocks.iter().any(Option::is_some) && !dims.contains(&0);
    any.then(|| blocks.iter().zip(dims).map(|(b, &n)| b.unwrap_or(1).clamp(1, n)).collect())
}

pub fn not_packed(span: Span, name: &str) -> Refusal {
    let axis = "a thread writes whole bytes of packed values: take the setting out";
    Refusal::new(span, format!("kernel `{name}`: {axis}")).setting("block")
}

/// Computes a group's points by boxes.
pub fn points<'a>(
    cx: &mut Lowering<'a>,
    name: &str,
    group: &[&'a Define],
    blocks: &[i64],
) -> Result<(), Refusal> {
    let first = group[0];
    let dims = cx.graph.tensor(first.target).dims.clone();
    map::count(&dims, first.span, name)?;
    let tiles: Vec<i64> = dims.iter().zip(blocks).map(|(n, b)| (n + b - 1) / b).collect();
    let count: i64 = tiles.iter().product();
    let inside: i64 = map::count(blocks, first.span, name)?;
    if count > MAX_GRID_X || inside > i32::MAX as i64 / 2 {
        let why = format!("kernel `{name}` would have {count} blocks of {inside} points: take others");
        return Err(Refusal::new(first.span, why).setting("block"));
    }
    let threads = map::threads(cx, name, map::THREADS, first.span)?.min((inside + 31) / 32 * 32);
    let mut e = cx.emit(name);
    e.kernel.grid = [count as u32, 1, 1];
    e.kernel.block = [threads as u32, 1, 1];
    e.line(first.span);
    let ty = if dims.iter().zip(blocks).all(|(n, b)| n + b < i32::MAX as i64) { Ty::I32 } else { Ty::I64 };
    let block = Num { expr: Expr::Special(Special::BlockX), ty: Ty::I32 };
    let tile = decode(&mut e, block, &tiles);
    let var = e.kernel.var("point", Ty::I32);
    let body = e.block(|e| {
        let own = decode(e, Num { expr: add(Expr::Var(var), lit32(0)), ty: Ty::I32 }, blocks);
        let mut at = Vec::new();
        let mut cond: Option<Expr> = None;
        for (i, (t, o)) in tile.iter().zip(own).enumerate() {
            let t = Num { expr: super::read::to(t.clone(), ty), ty };
            let start = arith(IntOp::Mul, t, int_of(ty, blocks[i]));
            let n = arith(IntOp::Add, start, Num { expr: super::read::to(o, ty), ty });
            let n = Num { expr: e.named("at", ty, n.expr), ty };
            if dims[i] % blocks[i] != 0 {
                let here = cmp(CmpOp::Lt, n.expr.clone(), int_of(ty, dims[i]).expr);
                cond = Some(match cond.take() {
                    Some(c) => and(c, here),
                    None => here,
                });
            }
            at.push(n);
        }
        let one = |e: &mut super::scalar::Emit<'a>| {
            let at = coordinates(e, first.target, &at);
            point(e, group, &at);
        };
        match cond {
            Some(c) => e.if_then(c, one),
            None => one(e),
        }
    });
    let lo = Expr::Special(Special::ThreadX);
    let (hi, step) = (lit32(inside as i32), lit32(threads as i32));
    e.push(Stmt::For { var, lo, hi, step, unroll: Unroll::None, body });
    cx.launch(e);
    Ok(())
}
