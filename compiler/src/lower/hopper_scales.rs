//! Scales that blocks of terms share (`sum[g](s[m, g] * t[n, g] * sum[i](a * b))`), in the main loop on sm_90a: a step's
//! sums, which are to leave the tensor cores anyway, are multiplied by their scales as they are added to the accumulators.
//!
//! A thread reads the scales of its rows and columns while the step's products run.

use super::contract_coords::{Known, Place as Where, bind, clamp, digits, over, plus, row};
use super::contract_epilogue::unrolled;
use super::contract_mma::Accumulators;
use super::contract_pattern::{ContractShape, Contraction, Digit, KAxis};
use super::contract_shape::divisor;
use super::hopper_gather::Terms;
use super::map::decode;
use super::scalar::{Emit, Num, lit32};
use crate::ir::graph::{ExprId, Graph};
use crate::ir::simt::{ArrayId, Expr, Stmt, Ty};
use crate::ir::tile::{Side, Tile};
use crate::vocab::dtype::Value;
use crate::vocab::func::Func;

/// Columns of a tile that may each have scales of their own.
pub const MOST_COLUMNS: i64 = 128;

#[derive(Clone)]
pub struct Scales {
    stmt: usize,
    rows: Vec<ExprId>,
    columns: Vec<ExprId>,
    /// The axes that number the blocks.
    blocks: Vec<KAxis>,
    /// Steps of a block.
    steps: i64,
    /// So many neighbouring columns have the same scales; `None`: each has its own.
    shared: Option<i64>,
}

impl Scales {
    /// The scales of a sum whose terms are walked as `terms` says, if a step is of one block.
    pub fn new(g: &Graph, shape: &ContractShape, c: &Contraction, terms: &Terms) -> Option<Scales> {
        let blocks = c.blocks.as_ref()?;
        let (outer, inner) = c.k.split_at(blocks.outer);
        let inner: i64 = inner.iter().map(|k| k.extent).product();
        let in_order = terms.outer().is_empty() && terms.inner().axes.is_sorted();
        if !in_order || inner % terms.step != 0 {
            return None;
        }
        let of = |exprs: &[ExprId]| -> Vec<ExprId> {
            exprs.iter().copied().filter(|e| blocks.scales.contains(e)).collect()
        };
        let (rows, columns) = (of(&c.a.exprs), of(&c.b.exprs));
        let shared = match &shape.n[..] {
            [n] if shape.axes[n.out].lo == 0 && n.stride == 1 => {
                divisor(g, &columns, shape.stmts[c.stmt].axes[n.out])
            }
            _ => None,
        };
        let shared = if columns.is_empty() { Some(1 << 30) } else { shared };
        Some(Scales {
            stmt: c.stmt,
            rows,
            columns,
            blocks: outer.to_vec(),
            steps: inner / terms.step,
            shared,
        })
    }

    /// Whether a tile of so many columns is one that this goes with.
    pub fn takes(&self, columns: u32) -> bool {
        match self.shared {
            Some(n) => n % columns as i64 == 0,
            None => columns as i64 <= MOST_COLUMNS,
        }
    }
}

/// The scales of a thread's rows and columns, in registers.
pub struct Scaled<'x> {
    scales: &'x Scales,
    shape: &'x ContractShape,
    tile: &'x Tile,
    rows: ArrayId,
    /// Of its columns, where they do not share them.
    columns: Option<ArrayId>,
}

impl<'x> Scaled<'x> {
    pub fn new(e: &mut Emit, scales: &'x Scales, shape: &'x ContractShape, tile: &'x Tile) -> Scaled<'x> {
        let layout = Accumulators::of(tile);
        let rows = e.kernel.array("row_scales", Ty::F32, layout.rows);
        let own = || e.kernel.array("column_scales", Ty::F32, layout.groups * layout.width);
        let columns = scales.shared.is_none().then(own);
        Scaled { scales, shape, tile, rows, columns }
    }

    /// Reads the scales of a step.
    pub fn load(&self, e: &mut Emit, place: &Where, step: Expr) {
        let layout = Accumulators::of(self.tile);
        e.scope(|e| {
            let block = e.named("block", Ty::I32, over(step, self.scales.steps));
            let extents: Vec<i64> = self.scales.blocks.iter().map(|k| k.extent).collect();
            let at = decode(e, Num { expr: block, ty: Ty::I32 }, &extents);
            for (k, n) in self.scales.blocks.iter().zip(at) {
                e.bind_axis(k.axis, plus(n.expr, lit32(k.lo as i32)), n.ty);
            }
            let common = match self.columns {
                Some(_) => None,
                None => Some(self.columns_value(e, place, lit32(0))),
            };
            let common = common.map(|c| e.named("column_scale", Ty::F32, c));
            unrolled(e, "row", layout.rows, |e, r| {
                let local = e.named("at_row", Ty::I32, layout.row(r.clone()));
                let m = numbers(e, &self.tile.m, &self.shape.m, &place.m, local);
                bind(e, self.shape, self.scales.stmt, Known { batch: &place.batch, m: &m, n: &[] });
                let value = product(e, &self.scales.rows);
                let value = match &common {
                    Some(c) => Expr::Call(Func::Mul, vec![value, c.clone()]),
                    None => value,
                };
                e.push(Stmt::SetElem(self.rows, r, value));
            });
            let Some(columns) = self.columns else { return };
            unrolled(e, "group", layout.groups, |e, g| {
                for w in 0..layout.width {
                    e.scope(|e| {
                        let column = plus(layout.column(g.clone()), lit32(w as i32));
                        let value = self.columns_value(e, place, column);
                        let at = plus(
                            super::contract_coords::times(g.clone(), layout.width as i64),
                            lit32(w as i32),
                        );
                        e.push(Stmt::SetElem(columns, at, value));
                    });
                }
            });
        });
    }

    fn columns_value(&self, e: &mut Emit, place: &Where, column: Expr) -> Expr {
        let mut value = None;
        e.scope(|e| {
            let n = numbers(e, &self.tile.n, &self.shape.n, &place.n, column);
            bind(e, self.shape, self.scales.stmt, Known { batch: &place.batch, m: &[], n: &n });
            value = Some(product(e, &self.scales.columns));
        });
        value.unwrap_or(Expr::Lit(Value::F32(1.0)))
    }

    /// acc += short · scales
    pub fn promote(&self, e: &mut Emit, short: ArrayId, acc: ArrayId) {
        let layout = Accumulators::of(self.tile);
        unrolled(e, "row", layout.rows, |e, r| {
            let own = Expr::Elem(self.rows, Box::new(r.clone()));
            unrolled(e, "group", layout.groups, |e, g| {
                for w in 0..layout.width {
                    let at = layout.index(r.clone(), g.clone(), w);
                    let elem = |a| Expr::Elem(a, Box::new(at.clone()));
                    let scale = match self.columns {
                        None => own.clone(),
                        Some(c) => {
                            let at = plus(
                                super::contract_coords::times(g.clone(), layout.width as i64),
                                lit32(w as i32),
                            );
                            Expr::Call(Func::Mul, vec![own.clone(), Expr::Elem(c, Box::new(at))])
                        }
                    };
                    let sum = Expr::Call(Func::Fma, vec![elem(short), scale, elem(acc)]);
                    e.push(Stmt::SetElem(acc, at, sum));
                }
            });
        });
    }
}

/// The digits of a side at a row (or column) of the block; beyond the edge, those of the last.
fn numbers(e: &mut Emit, side: &Side, of: &[Digit], starts: &[Expr], local: Expr) -> Vec<Num> {
    let (at, _) = row(e, side, starts, local);
    let at = clamp(e, side, at);
    digits(e, side, of, &at)
}

fn product(e: &mut Emit, exprs: &[ExprId]) -> Expr {
    let values: Vec<Expr> = exprs.iter().map(|&x| e.value(x)).collect();
    let all = values.into_iter().reduce(|a, b| Expr::Call(Func::Mul, vec![a, b]));
    all.unwrap_or(Expr::Lit(Value::F32(1.0)))
}
