//! f32 products on tensor cores: each operand as the sum of two tf32 numbers, the greater rounded to nearest and the
//! rest, and of their four products the three that count.
//!
//! Both parts are made by a kernel before the product, which also turns operands that do not lie along K. Sums are
//! promoted (`hopper_operand`), so that the error is no larger than that of f32 multiply-adds. Numbers that have no such parts
//! (infinities, NaN, and those that round beyond the greatest) are noted there; where there are any, the product is made again
//! by multiply-adds, in a kernel that ends at once otherwise.

use super::contract_hopper::{self, Copies, Hopper};
use super::contract_operand::{Ground, Source};
use super::contract_pack::{Inner, Pack, other_home};
use super::contract_pattern::ContractShape;
use super::contract_tile::{self, Choice, Wishes};
use super::forced::{Gain, is_forced};
use super::home::Home;
use super::map::launch_points;
use super::scalar::{Emit, Num, arith, cmp, int_of, lit32, not};
use super::{Lowering, Refusal, contract_pack, contract_split_turn};
use crate::ir::graph::{Role, Stmt as GraphStmt, TensorId};
use crate::ir::program::BufferId;
use crate::ir::simt::{ArrayId, AtomicOp, CmpOp, Expr, IntOp, Mem, Stmt, Ty};
use crate::ir::tile::Math;
use crate::vocab::dtype::{self, DType, Value};
use crate::vocab::func::Func;
use girih_dsl::ast::Span;

/// Floating-point operations a microsecond, in 10⁶: of multiply-adds and of split products. All of these fit ten products of
/// 33 to 2000 · 10⁶ operations, timed both ways on an H200.
const PLAIN: f64 = 27.0;
const SPLIT: f64 = 100.0;
/// Bytes a microsecond that the copies move.
const COPY: f64 = 2.5e6;
/// Microseconds of the launches: of one kernel or two, and of those with the three further ones.
const PLAIN_LAUNCHES: f64 = 8.5;
const LAUNCHES: f64 = 12.0;
/// Numbers from here on have no parts.
const LIMIT: f32 = 3.4e38;

/// How a product is split.
pub struct Split {
    pub hopper: Hopper,
    /// Homes of the parts: the rest lies after the greater.
    packs: Vec<Pack>,
    /// The product by multiply-adds.
    pub plain: Choice,
}

/// The split of a product, if it pays.
pub fn choose(cx: &Lowering, shape: &ContractShape, wishes: &Wishes) -> Result<Option<Split>, Refusal> {
    let home = |t: TensorId| cx.home(t).clone();
    let ground = Ground { graph: cx.graph, facts: &cx.facts, shape, home: &home };
    let [c] = &shape.folds[..] else { return Ok(None) };
    let set = wishes.schedule.kernels.get(wishes.kernel).is_some_and(|s| !s.is_empty());
    if !cx.target.wgmma || c.ty != dtype::Ty::F32 || shape.selector.is_some() || set || !fresh(cx, shape) {
        return Ok(None);
    }
    let mut packs: Vec<Pack> = Vec::new();
    for f in [&c.a, &c.b] {
        let Source::Plain(p) = ground.source(c, f, DType::F32) else { return Ok(None) };
        if !packs.iter().any(|q| q.tensor == p.tensor) {
            let Some(pack) = other_home(&ground, c, p.tensor, (&p.index, &[]), DType::F32, Inner::Longest)
            else {
                return Ok(None);
            };
            packs.push(pack);
        }
    }
    if !is_forced(Gain::Splits) && !pays(cx, shape, &packs) {
        return Ok(None);
    }
    let mut plain = contract_tile::choose(&ground, cx.target, wishes)?;
    if c.terms() > contract_tile::MAX_CHAIN || !matches!(plain.tile.folds[0].math, Math::Fma(_)) {
        return Ok(None);
    }
    // It runs where a number has no parts, and then needs no second kernel more than it needs to be quick.
    plain.tile.split = 1;
    let other =
        |t: TensorId| packs.iter().find(|p| p.tensor == t).map_or_else(|| home(t), |p| p.home.clone());
    let ground = Ground { home: &other, ..ground };
    let halves: Vec<(TensorId, i64)> = packs.iter().map(|p| (p.tensor, 4 * p.home.len)).collect();
    let copies = Copies { halves: &halves, ..Copies::default() };
    let found = contract_hopper::choose(&ground, cx.target, wishes, copies)?;
    Ok(found.map(|hopper| Split { hopper, packs, plain }))
}

/// Whether the results may be written twice: what they hold before is not read.
pub(super) fn fresh(cx: &Lowering, shape: &ContractShape) -> bool {
    shape.stmts.iter().all(|s| match &cx.graph.stmts[s.stmt] {
        GraphStmt::Define(d) => {
            let t = cx.graph.tensor(d.target);
            matches!(t.role, Role::Result | Role::Local) && t.version == 0
        }
        _ => false,
    })
}

fn pays(cx: &Lowering, shape: &ContractShape, packs: &[Pack]) -> bool {
    let sides = [&shape.batch, &shape.m, &shape.n];
    let points: f64 = sides.iter().map(|d| ContractShape::points(d) as f64).product();
    let flop = 2.0 * points * shape.folds[0].terms() as f64 / 1e6;
    let bytes = |p: &Pack| {
        let from = cx.graph.tensor(p.tensor).dims.iter().product::<i64>();
        4.0 * (from + 2 * p.home.len) as f64
    };
    let copies = packs.iter().map(bytes).sum::<f64>() / COPY + LAUNCHES;
    flop / SPLIT + copies < flop / PLAIN + PLAIN_LAUNCHES
}

/// Launches the kernels that make the parts, and gives the tensors the parts' homes; returns those they had, and the
/// buffer that is not 0 afterwards if a number has no parts.
pub fn apply(
    cx: &mut Lowering<'_>,
    name: &str,
    split: &Split,
    span: Span,
) -> Result<(Vec<(TensorId, Home)>, BufferId), Refusal> {
    let flag = begin(cx, name, span)?;
    let mut own = Vec::new();
    for p in &split.packs {
        let label = format!("{}_parts", cx.graph.tensor(p.tensor).name);
        let buffer = cx.workspace(label.clone(), DType::F32, &[2 * p.home.len]);
        let home = Home { buffer, len: 2 * p.home.len, ..p.home.clone() };
        let to = Target { home: &home, half: p.home.len, label: &label, flag };
        parts(cx, &format!("{name}_split_{}", cx.graph.tensor(p.tensor).name), p, &to, span)?;
        own.push((p.tensor, std::mem::replace(cx.home_mut(p.tensor), home)));
    }
    Ok((own, flag))
}

/// A flag that is 0 before the product begins.
pub(super) fn begin(cx: &mut Lowering<'_>, name: &str, span: Span) -> Result<BufferId, Refusal> {
    let flag = cx.workspace(format!("{name}_unsplit"), DType::I32, &[1]);
    launch_points(cx, &format!("{name}_begin"), &[1], span, |e, _| {
        e.know_buffer(flag, "unsplit", DType::I32, 1);
        let mem = Mem::Global(e.pointer(flag, true));
        e.push(Stmt::Store(mem, lit32(0), lit32(0)));
    })?;
    Ok(flag)
}

/// Where the parts of an operand go.
pub(super) struct Target<'x> {
    /// The greater, and after it the rest, from `half` on.
    pub home: &'x Home,
    pub half: i64,
    pub label: &'x str,
    /// What is set if a number has none.
    pub flag: BufferId,
}

impl Target<'_> {
    /// Lets a kernel use both buffers.
    pub fn know(&self, e: &mut Emit) {
        e.know_buffer(self.home.buffer, self.label, DType::F32, self.home.len);
        e.know_buffer(self.flag, "unsplit", DType::I32, 1);
    }
}

/// Neighbours of the parts' innermost dim that a thread makes at once.
pub(super) const RUN: i64 = 4;

/// The kernel that makes the parts: by tiles, or a thread a run.
fn parts(cx: &mut Lowering<'_>, name: &str, p: &Pack, to: &Target, span: Span) -> Result<(), Refusal> {
    if let Some(done) = contract_split_turn::parts(cx, name, p, to, span) {
        return done;
    }
    let t = cx.graph.tensor(p.tensor);
    let from = cx.home(p.tensor).clone();
    let (order, dims) = contract_pack::order(&t.dims, &from, p, RUN);
    let vector = contract_pack::in_runs(&t.dims, &from, p, RUN);
    launch_points(cx, name, &dims, span, |e, at| {
        to.know(e);
        let mut place = vec![int_of(Ty::I32, 0); order.len()];
        order.iter().zip(at).for_each(|(&d, n)| place[d] = n.clone());
        let first = arith(IntOp::Mul, place[p.inner].clone(), int_of(place[p.inner].ty, RUN));
        place[p.inner] = Num { expr: e.named("first", first.ty, first.expr), ty: first.ty };
        let run = e.kernel.array("run", Ty::F32, RUN as u32);
        let index = contract_pack::indices(e.graph, p.tensor, &place);
        if vector {
            let at = e.offset_in(&from, p.tensor, &index);
            let mem = Mem::Global(e.pointer(from.buffer, false));
            e.push(Stmt::LoadVec { array: run, at: 0, mem, index: at, count: RUN as u32 });
        } else {
            (0..RUN).for_each(|j| contract_pack::element(e, p, &from, &place, run, j));
        }
        let at = e.offset_in(to.home, p.tensor, &index);
        let ty = to.home.index_ty();
        store(e, to, run, Num { expr: at, ty });
    })
}

/// Stores the parts of a run, and notes numbers without any.
pub(super) fn store(e: &mut Emit, to: &Target, run: ArrayId, at: Num) {
    let call = |f, args| Expr::Call(f, args);
    let rest = e.kernel.array("rest", Ty::F32, RUN as u32);
    let mut good: Option<Expr> = None;
    for j in 0..RUN as i32 {
        let x = e.named("x", Ty::F32, Expr::Elem(run, Box::new(lit32(j))));
        let limit = Expr::Lit(Value::F32(LIMIT));
        // NaN is not less either.
        let near = cmp(CmpOp::Lt, call(Func::Abs, vec![x.clone()]), limit);
        good = super::contract_coords::both(good, Some(near));
        let big = e.named("big", Ty::F32, call(Func::Tf32, vec![x.clone()]));
        let small = call(Func::Tf32, vec![call(Func::Sub, vec![x, big.clone()])]);
        e.push(Stmt::SetElem(rest, lit32(j), small));
        e.push(Stmt::SetElem(run, lit32(j), big));
    }
    let ty = at.ty;
    let at = Num { expr: e.named("at", ty, at.expr), ty };
    let mem = Mem::Global(e.pointer(to.home.buffer, true));
    let second = arith(IntOp::Add, at.clone(), int_of(ty, to.half)).expr;
    e.push(Stmt::StoreVec { mem, index: at.expr, array: run, at: 0, count: RUN as u32 });
    e.push(Stmt::StoreVec { mem, index: second, array: rest, at: 0, count: RUN as u32 });
    if let Some(good) = good {
        e.if_then(not(good), |e| {
            let mem = Mem::Global(e.pointer(to.flag, true));
            e.push(Stmt::Atomic { op: AtomicOp::Or, mem, index: lit32(0), value: lit32(1), old: None });
        });
    }
}
