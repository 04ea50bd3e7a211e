//! Convolutions of many small groups on sm_90a: some groups together are one product, whose filters are 0 where they meet
//! channels of another group. The filters are spread out by a kernel before.
//!
//! A sum then has terms that the definition does not have: 0 times a value of another group, which is NaN where that
//! is infinite or NaN. So a sum that is NaN is noted, and where there is one, a kernel that ends at once otherwise makes
//! all sums again as they were written.

use super::contract_epilogue::unrolled;
use super::contract_pack::Pack;
use super::contract_pattern::{ContractShape, Digit};
use super::contract_phases::{build, range, view, viewed};
use super::contract_tile::{Choice, Wishes};
use super::home::{Home, contiguous};
use super::hopper_gather::Affine;
use super::hopper_index::Index;
use super::scalar::{Emit, cmp, lit32};
use super::{Lowering, Refusal, contract, contract_boxes, contract_pack, contract_split, map};
use crate::ir::graph::*;
use crate::ir::plan::{Form, Plan, PlanKernel};
use crate::ir::program::BufferId;
use crate::ir::simt::{ArrayId, AtomicOp, CmpOp, Expr as Simt, Mem, ParamId, Stmt as SimtStmt, Ty as SimtTy};
use crate::ir::tile::Tile;
use crate::pass::subst::Subst;
use crate::vocab::dtype::{DType, Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use girih_dsl::ast::Span;
use std::collections::BTreeMap;

/// Channels and filters of a group that are few, and those that groups have together.
const FEW: i64 = 64;
const MOST: i64 = 128;
/// Multiply-adds beside which the spread filters and the further launches are small.
const LEAST_WORK: f64 = 5e7;

/// A product of groups.
pub struct Groups {
    /// The graph with the dense product, its tensor of results, the one that this stands for, and the spread filters.
    plan: Plan,
    target: TensorId,
    results: TensorId,
    spread: TensorId,
    /// The kernel that spreads the filters, and its own tensors: what is read and what is written.
    before: Plan,
    own: [TensorId; 2],
    weights: TensorId,
    /// The dim of filters in the results, and how many are together.
    filters: (usize, i64),
    /// The product as it was written, with the copies of its operands.
    plain: (ContractShape, Choice, Vec<Pack>),
}

/// What a sum of groups looks like.
struct Parts {
    /// The axis of filters, groups, filters and channels of each.
    axis: AxisId,
    groups: i64,
    filters: i64,
    channels: i64,
    /// The fold axis of channels.
    channel: AxisId,
    fold: ExprId,
    x: Read,
    /// The dim of channels.
    x_dim: usize,
    w: Read,
    w_filter: usize,
    w_channel: usize,
    /// Position of the filters among the output axes.
    out: usize,
}

impl Groups {
    /// The groups of a kernel, if it has such and the product of some together is one for the main loop of sm_90a.
    pub fn of(
        cx: &mut Lowering<'_>,
        k: &PlanKernel,
        shape: &ContractShape,
        wishes: &Wishes,
    ) -> Option<Groups> {
        let set = wishes.schedule.kernels.get(wishes.kernel).is_some_and(|s| !s.is_empty());
        if !cx.target.wgmma || set || !contract_split::fresh(cx, shape) {
            return None;
        }
        let [s] = k.stmts[..] else { return None };
        let Stmt::Define(d) = &cx.graph.stmts[s] else { return None };
        let parts = Parts::of(cx.graph, d, shape)?;
        let points: f64 =
            [&shape.batch, &shape.m, &shape.n].iter().map(|d| ContractShape::points(d) as f64).product();
        if points * (shape.folds[0].terms() as f64) < LEAST_WORK {
            return None;
        }
        let mut own = shape.clone();
        let (plain, packs) =
            contract_pack::pack(cx, &mut own, wishes).ok().filter(|c| c.0.tile.split == 1)?;
        let plain = (own, plain, packs);
        let together = together(&parts)?;
        let (plan, target, spread) = dense(cx.graph, d, &parts, together, &k.name)?;
        let (before, own) = spreading(cx.graph, &parts, together, &plan.graph, spread, &k.name, d.span);
        let (filters, results) = ((parts.out, together * parts.filters), d.target);
        Some(Groups { plan, target, results, spread, before, own, weights: parts.w.tensor, filters, plain })
    }

    /// Lowers the kernel so, if the main loop of sm_90a takes the dense product.
    pub fn lower(&self, cx: &mut Lowering<'_>, name: &str, span: Span) -> Option<Result<(), Refusal>> {
        let mut home = self.spread_home();
        let (own, mut hopper, packs) =
            self.dense(cx, &home, |inner, kernel| contract_boxes::by_boxes(inner, kernel))?;
        let label = format!("{name}_{}", self.plan.graph.tensor(self.spread).name);
        home.buffer = cx.workspace(label, home.dtype, &[home.len]);
        let around = cx.packed.replace(Vec::new());
        let flag = contract_split::begin(cx, name, span);
        let done = flag.and_then(|flag| {
            self.spread(cx, &home)?;
            hopper.note = Some(flag);
            self.dense(cx, &home, |inner, kernel| {
                contract_boxes::lower_boxes(inner, kernel, &own, &hopper, &packs)
            })?;
            let (shape, plain, packs) = &self.plain;
            contract_boxes::with_packs(cx, &format!("{name}_exact"), packs, span, |cx| {
                contract::exact(cx, name, shape, plain, flag);
                Ok(())
            })
        });
        cx.packed = around;
        Some(done)
    }

    /// The tile of the dense product, if the main loop of sm_90a takes it.
    pub fn tile(&self, cx: &mut Lowering<'_>) -> Option<Tile> {
        let home = self.spread_home();
        let found = self.dense(cx, &home, |inner, kernel| contract_boxes::by_boxes(inner, kernel));
        found.map(|f| f.1.choice.tile)
    }

    /// Where the spread filters are, in a buffer that is not made yet.
    fn spread_home(&self) -> Home {
        let t = self.plan.graph.tensor(self.spread);
        let strides = contiguous(t.dtype, &t.dims);
        let len = t.dims.iter().product();
        Home { buffer: BufferId(u32::MAX), dtype: t.dtype, strides, len, align: 256, ring: None }
    }

    /// Runs `f` over the dense product's graph.
    fn dense<R>(
        &self,
        cx: &mut Lowering<'_>,
        spread: &Home,
        f: impl for<'b> FnOnce(&mut Lowering<'b>, &'b PlanKernel) -> R,
    ) -> R {
        let results = view(cx.home(self.results), &[self.filters]);
        let packed = cx.packed.take();
        let (done, packed) = cx.within(&self.plan, |inner| {
            (inner.parts, inner.packed) = (None, packed);
            inner.set_home(self.target, results);
            inner.set_home(self.spread, spread.clone());
            (f(inner, &self.plan.kernels[0]), inner.packed.take())
        });
        cx.packed = packed;
        done
    }

    /// Launches the kernel that spreads the filters out.
    fn spread(&self, cx: &mut Lowering<'_>, to: &Home) -> Result<(), Refusal> {
        let from = cx.home(self.weights).clone();
        cx.within(&self.before, |inner| {
            inner.set_home(self.own[0], from);
            inner.set_home(self.own[1], to.clone());
            map::lower(inner, &self.before.kernels[0])
        })
    }
}

/// How many groups are together: as many as fill lines and the instructions' columns.
fn together(p: &Parts) -> Option<i64> {
    let good = |n: &i64| {
        let (channels, filters) = (n * p.channels, n * p.filters);
        p.groups % n == 0 && channels.max(filters) <= MOST && channels % 32 == 0 && filters >= FEW
    };
    (2..=p.groups).filter(good).min_by_key(|n| n * p.channels)
}

impl Parts {
    fn of(g: &Graph, d: &Define, shape: &ContractShape) -> Option<Parts> {
        let [c] = &shape.folds[..] else { return None };
        let [batch] = shape.batch.iter().filter(|b| b.extent > 1).collect::<Vec<&Digit>>()[..] else {
            return None;
        };
        let (filters, groups, out) = (batch.stride, batch.extent, batch.out);
        let axis = d.axes[out];
        if filters <= 1
            || filters >= FEW
            || shape.axes[out].lo != 0
            || filters * groups != shape.axes[out].extent
        {
            return None;
        }
        let Expr::Fold(f) = g.expr(c.fold) else { return None };
        let plain = f.combine == Combine::Builtin(Monoid::Sum) && f.cond.is_none() && c.ty == Ty::F32;
        let read = |f: &super::contract_pattern::Factor| match f.exprs[..] {
            [id] if f.guards.is_empty() => match g.expr(id) {
                Expr::Read(r) => Some(r.clone()),
                _ => None,
            },
            _ => None,
        };
        let (a, b) = (read(&c.a)?, read(&c.b)?);
        let product = matches!(g.expr(f.body), Expr::Call(Func::Mul, args)
            if [&c.a, &c.b].iter().all(|f| args.contains(&f.exprs[0])));
        if !plain || !product || !c.hoisted.is_empty() || !c.result_guards.is_empty() || a.tensor == b.tensor
        {
            return None;
        }
        let quotient = |r: &Read| {
            (0..r.index.len()).find_map(|dim| {
                let at = Index::of(g, r.index[dim])?;
                let by = *at.quotients.get(&(axis, filters))?;
                let [(&channel, &1)] = at.axes.iter().collect::<Vec<_>>()[..] else { return None };
                (at.quotients.len() == 1 && at.constant == 0).then_some((dim, channel, by))
            })
        };
        let (x, w, (x_dim, channel, channels)) = match (quotient(&a), quotient(&b)) {
            (Some(at), None) => (a, b, at),
            (None, Some(at)) => (b, a, at),
            _ => return None,
        };
        let alone = |a: AxisId| w.index.iter().position(|&i| matches!(g.expr(i), Expr::Axis(b) if *b == a));
        let (w_filter, w_channel) = (alone(axis)?, alone(channel)?);
        let whole = f.axes.contains(&channel) && g.axis_range(channel) == Some((0, channels));
        let few = (2..FEW).contains(&channels) && w.access == Access::Proven;
        let half =
            [x.tensor, w.tensor].iter().all(|&t| matches!(g.tensor(t).dtype, DType::F16 | DType::BF16));
        let dims = g.tensor(w.tensor).lo.iter().all(|&lo| lo == 0);
        (whole && few && half && dims).then_some(Parts {
            axis,
            groups,
            filters,
            channels,
            channel,
            fold: c.fold,
            x,
            x_dim,
            w,
            w_filter,
            w_channel,
            out,
        })
    }
}

/// The kernel of dense products over so many groups together.
fn dense(
    graph: &Graph,
    d: &Define,
    p: &Parts,
    together: i64,
    name: &str,
) -> Option<(Plan, TensorId, TensorId)> {
    let mut g = graph.clone();
    let (slabs, filters, channels) = (p.groups / together, together * p.filters, together * p.channels);
    let (slab, own) = (range(&mut g, p.axis, 0, slabs), range(&mut g, p.axis, 0, filters));
    let all = range(&mut g, p.channel, 0, channels);
    let sum = |g: &mut Graph, by: i64, rest: AxisId| {
        build(g, &Affine { axes: BTreeMap::from([(slab, by), (rest, 1)]), constant: 0 })
    };
    // The filters, spread out: as they were, with a slab for the filter, its number there, and the slab's channels last.
    let spread = spread_tensor(&mut g, p, slabs, filters, channels);
    let (at_slab, at_own, at_channel) = (g.axis_expr(slab), g.axis_expr(own), g.axis_expr(all));
    let mut index = vec![at_slab, at_own];
    index.extend((0..p.w.index.len()).filter(|&i| i != p.w_filter && i != p.w_channel).map(|i| p.w.index[i]));
    index.push(at_channel);
    let Expr::Fold(f) = g.expr(p.fold).clone() else { return None };
    let (ty, span) = (g.ty(p.fold), g.span(p.fold));
    let w_ty = g.tensor(p.w.tensor).dtype.compute();
    let w = g.add(Expr::Read(Read { tensor: spread, index, access: Access::Proven }), w_ty, span);
    let mut x = p.x.clone();
    x.index[p.x_dim] = sum(&mut g, channels, all);
    let x = g.add(Expr::Read(x), w_ty, span);
    let Expr::Call(Func::Mul, args) = g.expr(f.body).clone() else { return None };
    let first_is_x = matches!(g.expr(args[0]), Expr::Read(r) if r.tensor == p.x.tensor);
    let args = if first_is_x { vec![x, w] } else { vec![w, x] };
    let body_ty = g.ty(f.body);
    let body = g.add(Expr::Call(Func::Mul, args), body_ty, span);
    let axes = f.axes.iter().map(|&a| if a == p.channel { all } else { a }).collect();
    let fold = g.add(Expr::Fold(Fold { body, axes, ..f }), ty, span);
    let place = sum(&mut g, filters, own);
    let mut subst = Subst::of_axes(&mut g, [(p.axis, place)]);
    subst.put(p.fold, fold);
    let value = subst.apply(&mut g, d.value);
    let target = viewed(&mut g, d.target, &[(p.out, filters)]);
    let mut axes = d.axes.clone();
    axes.splice(p.out..p.out + 1, [slab, own]);
    g.stmts = vec![Stmt::Define(Define { target, axes, value, span: d.span })];
    g.outputs.clear();
    Some((Plan::of_statement(g, name, Form::Contract), target, spread))
}

fn spread_tensor(g: &mut Graph, p: &Parts, slabs: i64, filters: i64, channels: i64) -> TensorId {
    let mut t = g.tensor(p.w.tensor).clone();
    let mut dims = vec![slabs, filters];
    dims.extend((0..t.dims.len()).filter(|&i| i != p.w_filter && i != p.w_channel).map(|i| t.dims[i]));
    dims.push(channels);
    t.name = format!("{}_spread", t.name);
    (t.lo, t.dims, t.role, t.version) = (vec![0; dims.len()], dims, Role::Local, 0);
    t.strides.clear();
    g.tensors.push(t);
    TensorId(g.tensors.len() as u32 - 1)
}

/// The kernel `spread[slab, f, …, c] = if c is of f's group then w[…] else 0`, and its two tensors.
fn spreading(
    graph: &Graph,
    p: &Parts,
    together: i64,
    dense: &Graph,
    spread: TensorId,
    name: &str,
    span: Span,
) -> (Plan, [TensorId; 2]) {
    let mut g = Graph::default();
    g.op = graph.op.clone();
    g.tensors = vec![graph.tensor(p.w.tensor).clone(), dense.tensor(spread).clone()];
    (g.tensors[0].role, g.tensors[0].version) = (Role::Input, 0);
    let (source, target) = (TensorId(0), TensorId(1));
    let dims = g.tensors[1].dims.clone();
    let axis = |(i, &n): (usize, &i64)| {
        let (lo, hi) = (g.int(0), g.int(n));
        g.new_axis(format!("d{i}"), lo, hi, span)
    };
    let axes: Vec<AxisId> = dims.iter().enumerate().map(axis).collect();
    let at: Vec<ExprId> = axes.iter().map(|&a| g.axis_expr(a)).collect();
    let channel = at[at.len() - 1];
    let mut call = |f: Func, a: ExprId, n: i64, ty: Ty| {
        let n = g.int(n);
        g.add(Expr::Call(f, vec![a, n]), ty, span)
    };
    let group = call(Func::Div, channel, p.channels, Ty::I64);
    let own = call(Func::Div, at[1], p.filters, Ty::I64);
    let within = call(Func::Rem, channel, p.channels, Ty::I64);
    let first = call(Func::Mul, at[0], together * p.filters, Ty::I64);
    let filter = g.add(Expr::Call(Func::Add, vec![first, at[1]]), Ty::I64, span);
    let mut taps = at[2..at.len() - 1].iter();
    let index = (0..p.w.index.len()).map(|i| match i {
        _ if i == p.w_filter => filter,
        _ if i == p.w_channel => within,
        // As many dims are left as there are axes.
        _ => taps.next().copied().unwrap_or(filter),
    });
    let index: Vec<ExprId> = index.collect();
    let ty = g.tensor(source).dtype.compute();
    let read = g.add(Expr::Read(Read { tensor: source, index, access: Access::Proven }), ty, span);
    let same = g.add(Expr::Call(Func::Eq, vec![group, own]), Ty::Bool, span);
    let zero = g.lit(Value::F32(0.0));
    let value = g.add(Expr::Select(same, read, zero), ty, span);
    g.stmts.push(Stmt::Define(Define { target, axes, value, span }));
    (Plan::of_statement(g, format!("{name}_spread"), Form::Map), [source, target])
}

/// Notes in `flag` if one of a thread's sums is NaN.
pub fn note(e: &mut Emit, acc: ArrayId, len: u32, flag: ParamId) {
    let odd = e.let_var("odd", SimtTy::Bool, Simt::Lit(Value::Bool(false)));
    unrolled(e, "i", len, |e, i| {
        let sum = Simt::Elem(acc, Box::new(i));
        let nan = cmp(CmpOp::Ne, sum.clone(), sum);
        e.push(SimtStmt::Set(odd, Simt::Or(Box::new(Simt::Var(odd)), Box::new(nan))));
    });
    e.if_then(Simt::Var(odd), |e| {
        let (mem, old) = (Mem::Global(flag), None);
        e.push(SimtStmt::Atomic { op: AtomicOp::Or, mem, index: lit32(0), value: lit32(1), old });
    });
}
