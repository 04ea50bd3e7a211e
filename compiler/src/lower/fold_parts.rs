//! Form `fold`, sums of parts: where there are fewer blocks of rows than multiprocessors, several blocks share the terms
//! of each, and a second kernel brings their greatest scores to one, adds their sums in order and evaluates what
//! follows.

use super::contract_coords::{Known, axis_values, bind_values, plus};
use super::contract_epilogue::{Epilogue, Point};
use super::contract_pattern::ContractShape;
use super::fold_beside::OfRow;
use super::fold_loop::{Parts, exp2, factor};
use super::fold_pattern::Chain;
use super::fold_scores::{self, MINUS_INFINITY};
use super::map::{decode, launch_points};
use super::scalar::{Num, cmp, int_op, lit32, not};
use super::{Lowering, Refusal};
use crate::ir::graph::Define;
use crate::ir::plan::PlanKernel;
use crate::ir::program::BufferId;
use crate::ir::simt::{AtomicOp, CmpOp, Expr, IntOp, Mem, Stmt, Ty, Unroll};
use crate::ir::tile::Tile;
use crate::vocab::dtype::{DType, Value};
use crate::vocab::func::Func;

/// Workspace for the parts of a chain.
pub fn workspace(cx: &mut Lowering, k: &PlanKernel, tile: &Tile, beside: bool) -> Parts<BufferId> {
    let rows = tile.split * tile.batch * tile.m.points();
    let mut one = |what: &str, n: i64| cx.workspace(format!("{}_{what}", k.name), DType::F32, &[n]);
    let accs = one("parts", rows * tile.n.points());
    let [tops, sums] = ["tops", "sums"].map(|what| one(what, rows));
    Parts { accs, tops, sums, most: beside.then(|| one("most", rows)) }
}

/// A thread a point. Notes rows that are not finite, where there are flags.
pub fn combine<'a>(
    cx: &mut Lowering<'a>,
    k: &'a PlanKernel,
    d: &'a Define,
    chain: &Chain,
    tile: &Tile,
    parts: Parts<BufferId>,
    flags: Option<BufferId>,
) -> Result<(), Refusal> {
    let shape = &chain.outer;
    let rows = tile.batch * tile.m.points();
    let columns = tile.n.points();
    launch_points(cx, &format!("{}_add", k.name), &[rows, columns], d.span, |e, at| {
        let Parts { accs, tops, sums, most } = parts;
        let [accs, tops, sums] = [accs, tops, sums].map(|b| Mem::Global(e.pointer(b, false)));
        let row = e.named("row", Ty::I32, at[0].expr.clone());
        let extents: Vec<i64> = shape.batch.iter().chain(&shape.m).map(|d| d.extent).collect();
        let digits = decode(e, Num { expr: row.clone(), ty: Ty::I32 }, &extents);
        let (batch, m) = digits.split_at(shape.batch.len());
        let extents: Vec<i64> = shape.n.iter().map(|d| d.extent).collect();
        let n = decode(e, at[1].clone(), &extents);
        let values = axis_values(e, shape, Known { batch, m, n: &n });

        let split = lit32(tile.split as i32);
        let part = e.kernel.var("part", Ty::I32);
        let line = |part| plus(int_op(IntOp::Mul, Expr::Var(part), lit32(rows as i32)), row.clone());
        let each = |var, body| Stmt::For {
            var,
            lo: lit32(0),
            hi: split.clone(),
            step: lit32(1),
            // The loads of several parts are under way together.
            unroll: Unroll::By(8),
            body,
        };
        let top = e.let_var("top", Ty::F32, MINUS_INFINITY);
        let state = chain.cascade.state.as_ref();
        let most = most.map(|b| Mem::Global(e.pointer(b, false)));
        let greatest = e.let_var("most", Ty::F32, MINUS_INFINITY);
        if state.is_some() {
            let body = e.block(|e| {
                let of = |mem: Mem| Expr::Load(mem, Box::new(line(part)));
                let greater = |var, mem| Stmt::Set(var, Expr::Call(Func::Max, vec![Expr::Var(var), of(mem)]));
                e.push(greater(top, tops));
                if let Some(most) = most {
                    e.push(greater(greatest, most));
                }
            });
            e.push(each(part, body));
        }
        let zero = Expr::Lit(Value::F32(0.0));
        let sum = e.let_var("sum", Ty::F32, zero.clone());
        let acc = e.let_var("acc", Ty::F32, zero.clone());
        let part = e.kernel.var("part", Ty::I32);
        let body = e.block(|e| {
            let line = e.named("line", Ty::I32, line(part));
            let by = match state {
                None => Expr::Lit(Value::F32(1.0)),
                Some(_) => {
                    let own = e.named("own", Ty::F32, Expr::Load(tops, Box::new(line.clone())));
                    let none = cmp(CmpOp::Eq, own.clone(), MINUS_INFINITY);
                    let by = exp2(Expr::Call(Func::Sub, vec![own, Expr::Var(top)]));
                    e.named("by", Ty::F32, Expr::Select(Box::new(none), Box::new(zero.clone()), Box::new(by)))
                }
            };
            if state.is_some() {
                let own = Expr::Load(sums, Box::new(line.clone()));
                e.push(Stmt::Set(sum, Expr::Call(Func::Fma, vec![own, by.clone(), Expr::Var(sum)])));
            }
            let wide = int_op(IntOp::Mul, line, lit32(columns as i32));
            let own = Expr::Load(accs, Box::new(plus(wide, at[1].expr.clone())));
            e.push(Stmt::Set(acc, Expr::Call(Func::Fma, vec![own, by, Expr::Var(acc)])));
        });
        e.push(each(part, body));
        if !chain.beside.is_empty() {
            let first = cmp(CmpOp::Eq, at[1].expr.clone(), lit32(0));
            let scale = fold_scores::scale_of(e.graph, chain).0;
            e.if_then(first, |e| {
                let row = OfRow::new(e, chain, greatest, scale, Expr::Var(sum));
                let known = Known { batch, m, n: &[] };
                chain.beside.iter().for_each(|b| b.store(e, chain, known, &row));
            });
        }

        let mut value = Expr::Var(acc);
        if let Some(state) = state {
            let extra = state.divisor.and_then(|d| d.extra);
            let extra = extra.map(|x| {
                e.scope(|e| {
                    bind_values(e, shape, 0, &values);
                    let value = e.value(x);
                    e.named("of_row", Ty::F32, value)
                })
            });
            let by = factor(e, state, &Expr::Var(top), Expr::Var(sum), extra);
            value = Expr::Call(Func::Mul, vec![value, by]);
        }
        let value = e.named("value", Ty::F32, value);
        if let Some(flags) = flags {
            // As `fold_exact` says.
            let size = Expr::Call(Func::Abs, vec![value.clone()]);
            let finite = cmp(CmpOp::Le, size, Expr::Lit(Value::F32(f32::MAX)));
            let mem = Mem::Global(e.pointer(flags, true));
            e.if_then(not(finite), |e| {
                let (op, index) = (AtomicOp::Or, row.clone());
                e.push(Stmt::Atomic { op, mem, index, value: lit32(1), old: None });
            });
        }
        Epilogue { shape, tile }.element(e, &Point { m, n: &n, batch }, vec![value], None);
    })
}

/// By how many blocks the terms are best shared: each has some steps, and all run at once or in few waves.
pub fn best(chain: &Chain, tiles: i64, steps: i64, sms: i64) -> u32 {
    /// Steps that a block's start and end, and the second kernel, cost.
    const FIXED: i64 = 4;
    /// Steps of a part at least.
    const LEAST: i64 = 4;
    /// Waves from which on the last one costs little.
    const WAVES: i64 = 3;
    let points = ContractShape::points(&chain.outer.batch) * chain.sizes()[0] * chain.sizes()[3];
    if tiles >= WAVES * sms || points >= 1 << 24 {
        return 1;
    }
    let time = |parts: i64| {
        let waves = (tiles * parts + sms - 1) / sms;
        waves * ((steps + parts - 1) / parts + FIXED) + if parts > 1 { FIXED } else { 0 }
    };
    let most = (steps / LEAST).clamp(1, MOST);
    (1..=most).min_by_key(|&p| time(p)).unwrap_or(1) as u32
}

/// Most blocks that share the terms of a block of rows.
pub const MOST: i64 = 64;
