//! Few channels: a convolution over an image of at most 8 channels has pixels that are too short to be copied one by one.
//! Both operands are copied first, channels padded with zeros to 4 or 8 and innermost, the image with a border of
//! zeros as wide as the filter reaches. Nothing is then read outside, and a line of the filter, all its columns and
//! channels, is one run of memory, at every place of the filter's window. Where the window moves by two lines, two lines
//! lie together, a pixel of one beside that of the other: a run then has two lines of the filter.

use super::contract_hopper::{self, Copies, Hopper};
use super::contract_operand::{Ground, PlainRead, Source};
use super::contract_pattern::{ContractShape, Contraction, Factor};
use super::contract_tile::Wishes;
use super::index::Interval;
use super::map::launch_points;
use super::read::Index;
use super::scalar::{Emit, Num, and, arith, cmp, int_of, lit32};
use super::{Lowering, Refusal};
use crate::ir::graph::{Expr as GraphExpr, TensorId};
use crate::ir::program::BufferId;
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Mem, Stmt, Ty};
use crate::vocab::dtype::DType;
use girih_dsl::ast::Span;

/// Channels that are padded.
const MOST: i64 = 8;
/// Elements of a copy's 16 bytes, and the multiple of elements that lines start at.
const CHUNK: i64 = 8;
/// Floating-point operations of a product that two more launches are small beside.
const LEAST_WORK: f64 = 1e9;

/// An operand's copy.
#[derive(Clone, Debug)]
pub struct Border {
    pub tensor: TensorId,
    /// First index and extent of each dim.
    pub dims: Vec<(i64, i64)>,
    /// Elements.
    pub strides: Vec<i64>,
    len: i64,
    /// The dim of channels, which is innermost, and that of the filter's columns, which is next to it.
    channel: usize,
    run: usize,
    /// Channels of a pixel, padding included.
    pixel: i64,
    /// The dim of which some neighbours lie together, pixel by pixel, and how many. Its stride is that of so many.
    pub fold: Option<(usize, i64)>,
}

/// The tile of a product that the main loop of sm_90a takes with both operands copied, and its copies.
pub fn choose(
    cx: &Lowering,
    shape: &ContractShape,
    wishes: &Wishes,
) -> Result<Option<(Hopper, [Border; 2])>, Refusal> {
    let home = |t: TensorId| cx.home(t).clone();
    let ground = Ground { graph: cx.graph, facts: &cx.facts, shape, home: &home };
    let Some((borders, padded)) = borders(&ground, wishes) else { return Ok(None) };
    let ground = Ground { shape: &padded, ..ground };
    let found = contract_hopper::choose(
        &ground,
        cx.target,
        wishes,
        Copies { borders: &borders, ..Copies::default() },
    )?;
    // Padding of lines and channels is work.
    let most = 4 * shape.folds[0].terms();
    Ok(found.filter(|h| h.terms.padded() <= most).map(|h| (h, borders)))
}

/// The copies of both operands, and the shape with padded channels.
fn borders(ground: &Ground, wishes: &Wishes) -> Option<([Border; 2], ContractShape)> {
    let shape = ground.shape;
    let [c] = &shape.folds[..] else { return None };
    let points: f64 =
        [&shape.batch, &shape.m, &shape.n].iter().map(|d| ContractShape::points(d) as f64).product();
    let asked = wishes.schedule.get(wishes.kernel, "warpgroups", "").is_some();
    if shape.selector.is_some() || 2.0 * points * (c.terms() as f64) < LEAST_WORK && !asked {
        return None;
    }
    let (a, b) = (plain(ground, c, &c.a)?, plain(ground, c, &c.b)?);
    let channel = (0..c.k.len()).find(|&k| {
        let alone = |p: &PlainRead| own_dim(ground, c, p, k).is_some();
        (2..=MOST).contains(&c.k[k].extent) && alone(&a) && alone(&b)
    })?;
    // The filter's columns: alone in one operand, beside rows of the output in the other.
    let columns = (0..c.k.len()).rev().filter(|&k| k != channel && c.k[k].extent > 1);
    let (run, step) = columns.filter_map(|k| Some((k, beside(ground, c, &a, &b, k)?))).next()?;
    let pixel = [2, 4, 8].into_iter().find(|p| *p >= c.k[channel].extent && step * p % CHUNK == 0)?;
    // Lines of the filter that lie together: as many as the window moves by.
    let lines = (0..c.k.len()).filter(|&k| k != channel && k != run && c.k[k].extent > 1);
    let mut lines = lines.filter_map(|k| Some((k, beside(ground, c, &a, &b, k)?)));
    let fold = lines.find(|&(_, by)| by > 1 && CHUNK % (by * pixel) == 0);
    let border = |p: &PlainRead| Border::new(ground, c, p, [channel, run], pixel, fold);
    let borders = [border(&a)?, border(&b)?];
    if borders[0].tensor == borders[1].tensor {
        return None;
    }
    let mut padded = shape.clone();
    let k = &mut padded.folds[0].k;
    k[channel].extent = pixel;
    if let Some((line, by)) = fold {
        // The line of the filter as two axes: groups of lines, and the line within one (`Form` knows it as the last).
        k[line].extent = (k[line].extent + by - 1) / by;
        let within = k[line].clone();
        k.push(super::contract_pattern::KAxis { lo: 0, extent: by, ..within });
    }
    Some((borders, padded))
}

fn plain(ground: &Ground, c: &Contraction, f: &Factor) -> Option<PlainRead> {
    let [id] = f.exprs[..] else { return None };
    let GraphExpr::Read(r) = ground.graph.expr(id) else { return None };
    let dtype = ground.graph.tensor(r.tensor).dtype;
    match ground.source(c, f, dtype) {
        Source::Plain(p) if matches!(dtype, DType::F16 | DType::BF16) => Some(p),
        _ => None,
    }
}

/// The dim whose index is this fold axis and nothing else, all of it.
fn own_dim(ground: &Ground, c: &Contraction, p: &PlainRead, k: usize) -> Option<usize> {
    let k = &c.k[k];
    let t = ground.graph.tensor(p.tensor);
    let of = |d: usize| ground.facts.free(p.index[d]).contains(&k.axis);
    let mut with = (0..p.index.len()).filter(|&d| of(d));
    let d = with.next().filter(|_| with.next().is_none())?;
    let alone = matches!(ground.graph.expr(p.index[d]), GraphExpr::Axis(a) if *a == k.axis);
    (alone && (t.lo[d], t.dims[d]) == (k.lo, k.extent)).then_some(d)
}

/// The only dim in which a fold axis stands, where a step of it is one element of the dim.
fn only_dim(ground: &Ground, c: &Contraction, p: &PlainRead, k: usize) -> Option<usize> {
    let axis = c.k[k].axis;
    let mut with = (0..p.index.len()).filter(|&d| ground.facts.free(p.index[d]).contains(&axis));
    let d = with.next().filter(|_| with.next().is_none())?;
    let linear = ground.linear(p.index[d], &[axis])?;
    (linear.get(&axis) == Some(&1)).then_some(d)
}

/// The step of the output's rows along the dim in which the filter's columns stand, if they do in one operand.
fn beside(ground: &Ground, c: &Contraction, a: &PlainRead, b: &PlainRead, k: usize) -> Option<i64> {
    let shape = ground.shape;
    let axes = &shape.stmts[c.stmt].axes;
    let step = |p: &PlainRead, digits: &[super::contract_pattern::Digit]| -> Option<i64> {
        let d = only_dim(ground, c, p, k)?;
        let steps = digits.iter().map(|x| ground.linear(p.index[d], &[axes[x.out]]));
        let steps: Vec<i64> =
            steps.map(|l| Some(l?.into_values().next().unwrap_or(0))).collect::<Option<_>>()?;
        Some(steps.into_iter().find(|&s| s > 0).unwrap_or(0))
    };
    let steps = [step(a, &shape.m)?, step(b, &shape.n)?];
    match steps {
        [s, 0] | [0, s] if s > 0 => Some(s),
        _ => None,
    }
}

impl Border {
    fn new(
        ground: &Ground,
        c: &Contraction,
        p: &PlainRead,
        [channel, run]: [usize; 2],
        pixel: i64,
        fold: Option<(usize, i64)>,
    ) -> Option<Border> {
        let t = ground.graph.tensor(p.tensor);
        let (channel, run) = (own_dim(ground, c, p, channel)?, only_dim(ground, c, p, run)?);
        let mut dims: Vec<(i64, i64)> = t.lo.iter().copied().zip(t.dims.iter().copied()).collect();
        for (d, _) in &p.checks {
            let at = ground.facts.interval(p.index[*d]);
            dims[*d] = (at.lo, at.hi.checked_sub(at.lo)?.checked_add(1)?);
        }
        dims[channel].1 = pixel;
        let mut folded = None;
        if let Some((line, by)) = fold {
            let d = only_dim(ground, c, p, line).filter(|&d| d != run && d != channel)?;
            // The last group of lines is whole.
            let more = (by - c.k[line].extent % by) % by;
            dims[d].1 = (dims[d].1 + more + by - 1) / by * by;
            folded = Some((d, by));
        }
        let by = folded.map_or(1, |f| f.1);
        let mut strides = vec![1; dims.len()];
        strides[run] = pixel * by;
        let round = |n: i64| (n + CHUNK - 1) / CHUNK * CHUNK;
        let mut step = round(dims[run].1.checked_mul(pixel * by)?);
        for d in (0..dims.len()).rev().filter(|&d| d != run && d != channel) {
            strides[d] = step;
            let groups = if folded.is_some_and(|f| f.0 == d) { dims[d].1 / by } else { dims[d].1 };
            step = step.checked_mul(groups)?;
        }
        let b = Border { tensor: p.tensor, dims, strides, len: step, channel, run, pixel, fold: folded };
        (step < 1 << 40).then_some(b)
    }

    /// Elements of a line: the pixels along the run, of all lines that lie together.
    fn line(&self) -> i64 {
        (self.dims[self.run].1 * self.pixel * self.by() + CHUNK - 1) / CHUNK * CHUNK
    }

    /// Lines that lie together.
    fn by(&self) -> i64 {
        self.fold.map_or(1, |f| f.1)
    }

    /// Elements between lines that lie together.
    pub fn within(&self) -> i64 {
        self.pixel
    }

    fn folds(&self, d: usize) -> bool {
        self.fold.is_some_and(|f| f.0 == d)
    }
}

/// Launches the copy and returns where it is.
pub fn copy(cx: &mut Lowering<'_>, name: &str, b: &Border, span: Span) -> Result<BufferId, Refusal> {
    let t = cx.graph.tensor(b.tensor);
    let (label, dtype) = (format!("{}_padded", t.name), t.dtype);
    let buffer = cx.workspace(label.clone(), dtype, &[b.len]);
    let mut dims: Vec<usize> = (0..b.dims.len()).filter(|&d| d != b.run && d != b.channel).collect();
    let groups = |&d: &usize| if b.folds(d) { b.dims[d].1 / b.by() } else { b.dims[d].1 };
    let mut extents: Vec<i64> = dims.iter().map(groups).collect();
    extents.push(b.line() / CHUNK);
    dims.push(b.run);
    launch_points(cx, &format!("{name}_pad_{}", t.name), &extents, span, |e, at| {
        e.know_buffer(buffer, &label, dtype, b.len);
        let run = e.kernel.array("run", Ty::of(dtype.compute()), CHUNK as u32);
        let chunk = &at[at.len() - 1];
        for line in 0..b.by() {
            let one = |(&d, n): (&usize, &Num)| {
                let n = match b.folds(d) {
                    false => n.clone(),
                    true => {
                        let n = arith(IntOp::Mul, n.clone(), int_of(n.ty, b.by()));
                        arith(IntOp::Add, n.clone(), int_of(n.ty, line))
                    }
                };
                (d, b.index(e, d, &n))
            };
            let outer: Vec<(usize, Num)> =
                dims.iter().zip(at).filter(|(d, _)| **d != b.run).map(one).collect();
            let inside = outer.iter().filter_map(|(d, n)| b.inside(e, *d, n)).reduce(and);
            for j in 0..CHUNK / b.pixel / b.by() {
                b.pixel(e, &outer, inside.clone(), chunk, (j, line), run);
            }
        }
        let ty = chunk.ty;
        let place = dims.iter().zip(at).fold(int_of(ty, 0), |sum, (&d, n)| {
            let step = if d == b.run { CHUNK } else { b.strides[d] };
            arith(IntOp::Add, sum, arith(IntOp::Mul, n.clone(), int_of(wide(ty, b.len), step)))
        });
        let mem = Mem::Global(e.pointer(buffer, true));
        e.push(Stmt::StoreVec { mem, index: place.expr, array: run, at: 0, count: CHUNK as u32 });
    })?;
    Ok(buffer)
}

/// The type of offsets into so many elements.
fn wide(ty: Ty, len: i64) -> Ty {
    if len > i32::MAX as i64 { Ty::I64 } else { ty }
}

impl Border {
    /// The tensor's index at a place of the copy.
    fn index(&self, e: &mut Emit, d: usize, n: &Num) -> Num {
        let n = arith(IntOp::Add, n.clone(), int_of(n.ty, self.dims[d].0));
        Num { expr: e.named("at", n.ty, n.expr), ty: n.ty }
    }

    /// Whether an index is inside the tensor, where that is not known.
    fn inside(&self, e: &Emit, d: usize, n: &Num) -> Option<Expr> {
        let t = e.graph.tensor(self.tensor);
        let (lo, hi) = (t.lo[d], t.lo[d] + t.dims[d]);
        let (first, end) = (self.dims[d].0, self.dims[d].0 + self.dims[d].1);
        let low = (first < lo).then(|| cmp(CmpOp::Ge, n.expr.clone(), int_of(n.ty, lo).expr));
        let high = (end > hi).then(|| cmp(CmpOp::Lt, n.expr.clone(), int_of(n.ty, hi).expr));
        match (low, high) {
            (Some(a), Some(b)) => Some(and(a, b)),
            (a, b) => a.or(b),
        }
    }

    /// One pixel of a chunk, or zeros.
    fn pixel(
        &self,
        e: &mut Emit,
        outer: &[(usize, Num)],
        inside: Option<Expr>,
        chunk: &Num,
        (j, line): (i64, i64),
        run: ArrayId,
    ) {
        let graph = e.graph;
        let t = graph.tensor(self.tensor);
        let zero = super::contract_loads::zero(t.dtype.compute());
        let at = |channel: i64| lit32(((j * self.by() + line) * self.pixel + channel) as i32);
        (0..self.pixel).for_each(|i| e.push(Stmt::SetElem(run, at(i), zero.clone())));
        e.scope(|e| {
            let n = arith(IntOp::Mul, chunk.clone(), int_of(chunk.ty, CHUNK / self.pixel / self.by()));
            let n = arith(IntOp::Add, n, int_of(chunk.ty, j));
            let column = self.index(e, self.run, &n);
            // The line's padding is beyond the run, so its end is always looked at.
            let (lo, hi) = (t.lo[self.run], t.lo[self.run] + t.dims[self.run]);
            let low = cmp(CmpOp::Ge, column.expr.clone(), int_of(column.ty, lo).expr);
            let high = cmp(CmpOp::Lt, column.expr.clone(), int_of(column.ty, hi).expr);
            let cond = inside.into_iter().fold(and(low, high), and);
            e.if_then(cond, |e| {
                let from = e.home(self.tensor).clone();
                for i in 0..t.dims[self.channel] {
                    let index: Vec<Index> = (0..t.dims.len())
                        .map(|d| {
                            let num = match d {
                                _ if d == self.run => column.clone(),
                                _ if d == self.channel => int_of(column.ty, t.lo[d] + i),
                                _ => outer
                                    .iter()
                                    .find(|o| o.0 == d)
                                    .map_or(int_of(Ty::I32, 0), |o| o.1.clone()),
                            };
                            Index { num, range: Interval::new(t.lo[d], t.lo[d] + t.dims[d] - 1) }
                        })
                        .collect();
                    let offset = e.offset_in(&from, self.tensor, &index);
                    let mem = Mem::Global(e.pointer(from.buffer, false));
                    e.push(Stmt::SetElem(run, at(i), Expr::Load(mem, Box::new(offset))));
                }
            });
        });
    }
}
