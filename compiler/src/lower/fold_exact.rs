//! Form `fold`, rows once more as they are defined.
//!
//! A term that a condition leaves out has the weight 0 in the main loop, which does no harm unless its other factor is
//! infinite or NaN. The loop notes rows whose results are not finite; this kernel evaluates those by their definition
//! and ends at once where there are none.

use super::contract_coords::{Known, axis_values, modulo, over, plus, times};
use super::contract_pattern::ContractShape;
use super::fold_pattern::Chain;
use super::map::{decode, launch_points, point};
use super::scalar::{Emit, Num, cmp, int, lit32};
use super::{Lowering, Refusal};
use crate::ir::graph::Define;
use crate::ir::plan::PlanKernel;
use crate::ir::program::BufferId;
use crate::ir::simt::{CmpOp, Expr, Mem, Stmt, Ty, Unroll};
use crate::vocab::dtype::DType;

const WARP: i64 = 32;

/// The flags of the rows, or nothing where every result may be as the loop has it.
pub fn flags(cx: &mut Lowering, k: &PlanKernel, chain: &Chain) -> Option<BufferId> {
    chain.strict.then(|| cx.workspace(format!("{}_unbounded", k.name), DType::I32, &[all_rows(chain)]))
}

fn all_rows(chain: &Chain) -> i64 {
    ContractShape::points(&chain.outer.batch) * ContractShape::points(&chain.outer.m)
}

/// A warp looks at 32 rows and shares the columns of those that are noted.
pub fn lower<'a>(
    cx: &mut Lowering<'a>,
    k: &'a PlanKernel,
    d: &'a Define,
    chain: &Chain,
    flags: BufferId,
) -> Result<(), Refusal> {
    let (shape, all) = (&chain.outer, all_rows(chain));
    let threads = (all + WARP - 1) / WARP * WARP;
    launch_points(cx, &format!("{}_exact", k.name), &[threads], d.span, |e, at| {
        let noted = Mem::Global(e.pointer(flags, false));
        let first = e.named("first", Ty::I32, times(over(at[0].expr.clone(), WARP), WARP));
        let lane = e.named("lane", Ty::I32, modulo(at[0].expr.clone(), WARP));
        let number = e.kernel.var("number", Ty::I32);
        let body = e.block(|e| {
            let row = e.named("row", Ty::I32, plus(first.clone(), Expr::Var(number)));
            let inside = cmp(CmpOp::Lt, row.clone(), lit32(all as i32));
            let is_noted = cmp(CmpOp::Ne, Expr::Load(noted, Box::new(row.clone())), lit32(0));
            let evaluate = |e: &mut Emit<'a>| {
                let extents: Vec<i64> = shape.batch.iter().chain(&shape.m).map(|d| d.extent).collect();
                let digits = decode(e, Num { expr: row.clone(), ty: Ty::I32 }, &extents);
                let (batch, m) = digits.split_at(shape.batch.len());
                let column = e.kernel.var("column", Ty::I32);
                let body = e.block(|e| {
                    let extents: Vec<i64> = shape.n.iter().map(|d| d.extent).collect();
                    let n = decode(e, Num { expr: Expr::Var(column), ty: Ty::I32 }, &extents);
                    let values = axis_values(e, shape, Known { batch, m, n: &n });
                    let at: Vec<Num> = values.into_iter().map(|v| v.unwrap_or(int(0))).collect();
                    point(e, &[d], &at);
                });
                let hi = lit32(ContractShape::points(&shape.n) as i32);
                let step = lit32(WARP as i32);
                e.push(Stmt::For { var: column, lo: lane.clone(), hi, step, unroll: Unroll::None, body });
            };
            e.if_then(inside, |e| e.if_then(is_noted, evaluate));
        });
        let (hi, step) = (lit32(WARP as i32), lit32(1));
        e.push(Stmt::For { var: number, lo: lit32(0), hi, step, unroll: Unroll::None, body });
    })
}
