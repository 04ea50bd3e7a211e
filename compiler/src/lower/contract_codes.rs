//! Products of a few rows with weights of 4 bits, dequantised in registers.
//!
//! Such a product is a stream of weights, so it is laid out for that: the weights' rows are the rows of `mma.sync`, each
//! lane copies 16 bytes (32 codes) of a row at a time through a ring in shared memory, and makes the instruction's
//! operand of them with bit operations. The order of terms within an instruction is free: lane t of a quad takes 32
//! neighbouring terms of both operands. The few rows
//! of the other operand stand in the ring too, shared by the block's warps.
//!
//! A weight is `T((code − zero) · scale + shift)`, T f16 or bf16, with zero, scale and shift that do not change over
//! groups of 32 terms or more; they are evaluated once a group into a table in shared memory. `code − zero` is exact in T, and
//! one fused multiply-add rounds to T.

use super::contract_coords::Place as Where;
use super::contract_operand::{Ground, PlainRead, Source, fits, gcd};
use super::contract_pattern::{ContractShape, Contraction, Digit, Factor};
use super::contract_tile::{Choice, FoldChoice, Wishes};
use super::hopper_gather::Form;
use super::hopper_store::Output;
use super::index::Facts;
use crate::ir::graph::{Access, AxisId, Expr, ExprId, Graph, TensorId};
use crate::ir::tile::*;
use crate::vocab::dtype::{DType, Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::target::Target;

/// Terms that a warp takes in a step: a run of 32 for each lane of a quad.
pub const CHUNK: i64 = 128;
/// Warps of a block, and blocks of a multiprocessor (half for two tiles of a warp): while one waits, another computes.
pub const WARPS: u32 = 8;
pub const BLOCKS: i64 = 2;
/// Rows of the other operand for which each lane streams its own codes, and terms of a segment of that loop.
const MOST_STREAMED: i64 = 8;
pub const STREAM_SEGMENT: i64 = 128;
/// The most rows of the other operand. Of how many on weights are better dequantised once, for all tiles, the plan's model
/// says.
pub const MOST_TOKENS: i64 = 4096;
/// Rows of the other operand that a block takes at most.
const MOST_COLUMNS: u32 = 64;

/// A weight as an expression of its code.
#[derive(Clone, Debug, Default)]
pub struct Weight {
    /// An integer that may depend on the group, and one that does not.
    pub zero: Option<ExprId>,
    pub offset: i64,
    pub scale: Option<ExprId>,
    pub shift: Option<ExprId>,
    /// Terms over which these do not change; 0: they do not depend on the term.
    pub group: i64,
}

/// Rows of neighbouring terms in memory, in elements.
#[derive(Clone, Debug)]
pub struct Lines {
    pub tensor: TensorId,
    pub offset: i64,
    pub pitch: i64,
}

/// A product that this kernel takes.
pub struct Codes {
    pub choice: Choice,
    pub dtype: DType,
    pub signed: bool,
    pub weight: Weight,
    /// Whether the weights are A.
    pub first: bool,
    pub w: Lines,
    pub x: Lines,
    pub k: AxisId,
    pub terms: i64,
    /// Tiles of 16 rows of a warp.
    pub tiles: u32,
    /// Groups of 8 rows of the other operand.
    pub columns: u32,
    /// Groups of terms that a block may meet.
    pub groups: i64,
    /// Blocks that share a multiprocessor.
    pub together: u32,
    /// Warpgroups of the loop of sm_90a that share the terms of the same rows.
    pub sharing: u32,
    /// How the loop of sm_90a stores whole sums as boxes, where it can.
    pub output: Option<Output>,
}

impl Codes {
    /// Warps side by side along the weights' rows, and along the terms.
    pub fn warps(&self) -> (u32, u32) {
        match self.choice.tile.arrange {
            Arrange::Codes { rows, terms } => (rows, terms),
            _ => (WARPS, 1),
        }
    }

    pub fn rows(&self) -> u32 {
        match self.choice.tile.arrange {
            Arrange::Groups { m } => 64 * m,
            Arrange::Stream { .. } if self.first => self.choice.tile.m.block,
            Arrange::Stream { .. } => self.choice.tile.n.block,
            _ => 16 * self.tiles * self.warps().0,
        }
    }

    pub fn stages(&self) -> u32 {
        self.choice.tile.folds[0].stages
    }

    pub(super) fn with(mut self, tile: Tile, c: &Contraction) -> Codes {
        let folds = vec![FoldChoice { k: c.k.clone(), a: Source::Computed, b: Source::Computed }];
        self.choice = Choice { tile, folds };
        self
    }

    /// Constants of a group that stand in the table.
    pub(super) fn constants(&self) -> i64 {
        [self.weight.zero, self.weight.scale, self.weight.shift].iter().flatten().count() as i64
    }

    /// Groups that a block of so many terms may meet.
    fn groups_of(&self, terms: i64) -> i64 {
        let group = if self.weight.group == 0 { self.terms } else { self.weight.group };
        (terms + group - 1) / group + if terms % group == 0 { 0 } else { 1 }
    }
}

/// Whether a definition's product would be taken: what can be said before tensors have homes.
pub fn suits(g: &Graph, shape: &ContractShape) -> bool {
    let [c] = &shape.folds[..] else { return false };
    if !has_codes(g, &c.a) && !has_codes(g, &c.b) {
        return false;
    }
    let points = |d: &[Digit]| ContractShape::points(d);
    let facts = Facts::new(g);
    points(&shape.batch) == 1
        && [(&c.a, &shape.m, &shape.n), (&c.b, &shape.n, &shape.m)].iter().any(|(f, rows, others)| {
            let [k] = &c.k[..] else { return false };
            let half =
                [DType::F16, DType::BF16].into_iter().any(|t| weight(g, &facts, f, t, k.axis).is_some());
            half && points(rows) >= 16
                && points(others) <= MOST_TOKENS
                && k.extent % CHUNK == 0
                && k.extent > 0
        })
}

/// Whether a product's operands have any codes of 4 bits.
pub fn any(g: &Graph, shape: &ContractShape) -> bool {
    shape.folds.iter().any(|c| has_codes(g, &c.a) || has_codes(g, &c.b))
}

fn has_codes(g: &Graph, f: &Factor) -> bool {
    let mut todo = f.exprs.clone();
    while let Some(id) = todo.pop() {
        todo.extend(g.children(id));
        if let Expr::Read(r) = g.expr(id)
            && g.tensor(r.tensor).dtype.bits() == 4
        {
            return true;
        }
    }
    false
}

/// The kernel for a shape, if it is one of these.
pub fn choose(ground: &Ground, target: &Target, wishes: &Wishes) -> Option<Codes> {
    let shape = ground.shape;
    let [c] = &shape.folds[..] else { return None };
    let [k] = &c.k[..] else { return None };
    let takes = target.cp_async && target.mma_bf16 && c.ty == Ty::F32 && shape.selector.is_none();
    if !takes
        || k.lo != 0
        || k.extent <= 0
        || k.extent % CHUNK != 0
        || ContractShape::points(&shape.batch) != 1
    {
        return None;
    }
    [false, true].into_iter().find_map(|first| {
        let mut codes = of_side(ground, wishes, c, first)?;
        let (rows, tokens) = if first { (&shape.m, &shape.n) } else { (&shape.n, &shape.m) };
        let asked = StreamAsked::of(shape, wishes, rows)?;
        let tile = best_stream(ground, target, wishes, &mut codes, (rows, tokens), &asked);
        let tile =
            tile.or_else(|| best(ground, target, wishes, &mut codes, rows, tokens).filter(|_| !asked.any()))?;
        Some(codes.with(tile, c))
    })
}

/// The settings that speak of the loop whose lanes stream their own codes.
#[derive(Default)]
struct StreamAsked {
    block: Option<i64>,
    stages: Option<i64>,
}

impl StreamAsked {
    /// `None`: there are others.
    fn of(shape: &ContractShape, wishes: &Wishes, rows: &[Digit]) -> Option<StreamAsked> {
        let mut asked = StreamAsked::default();
        for (key, axis) in wishes.schedule.kernels.get(wishes.kernel).iter().flat_map(|s| s.keys()) {
            let value = wishes.int(key, axis).ok()?;
            match (key.as_str(), rows) {
                ("stages", _) => asked.stages = value,
                ("block", [row]) if *axis == shape.axes[row.out].name => asked.block = value,
                _ => return None,
            }
        }
        Some(asked)
    }

    fn any(&self) -> bool {
        self.block.is_some() || self.stages.is_some()
    }
}

pub(super) fn of_side(ground: &Ground, wishes: &Wishes, c: &Contraction, first: bool) -> Option<Codes> {
    let (g, shape, k) = (ground.graph, ground.shape, &c.k[0]);
    let (f, other) = if first { (&c.a, &c.b) } else { (&c.b, &c.a) };
    let (rows, tokens) = if first { (&shape.m, &shape.n) } else { (&shape.n, &shape.m) };
    if !has_codes(g, f) || ContractShape::points(tokens) > MOST_TOKENS {
        return None;
    }
    let (dtype, x) =
        [DType::BF16, DType::F16].into_iter().find_map(|d| match ground.source(c, other, d) {
            Source::Plain(p) if p.checks.is_empty() => Some((d, p)),
            _ => None,
        })?;
    let (weight, read) = weight(g, ground.facts, f, dtype, k.axis)?;
    let Expr::Read(r) = g.expr(read) else { return None };
    let t = g.tensor(r.tensor);
    if (ground.home)(r.tensor).dtype != t.dtype {
        return None;
    }
    let codes = PlainRead { tensor: r.tensor, index: r.index.clone(), k: Vec::new(), checks: Vec::new() };
    let w = lines(ground, c, &codes, rows, t.dtype)?;
    let x = lines(ground, c, &x, tokens, dtype)?;
    Some(Codes {
        choice: Choice { tile: empty(wishes), folds: Vec::new() },
        dtype,
        signed: t.dtype == DType::I4,
        weight,
        first,
        w,
        x,
        k: k.axis,
        terms: k.extent,
        tiles: 1,
        columns: 1,
        groups: 0,
        together: 1,
        sharing: 1,
        output: None,
    })
}

/// Rows of neighbouring terms that start at multiples of 16 bytes.
fn lines(ground: &Ground, c: &Contraction, p: &PlainRead, rows: &[Digit], dtype: DType) -> Option<Lines> {
    let (offset, pitch) = Form::new(ground, c, p, rows, &[])?.rows_of_terms()?;
    let unit = 128 / dtype.bits() as i64;
    let len = (ground.home)(p.tensor).len;
    let aligned = offset >= 0 && offset % unit == 0 && pitch % unit == 0 && len < 1 << 31;
    aligned.then_some(Lines { tensor: p.tensor, offset, pitch })
}

/// A factor as a weight of this dtype, and the read of its code.
fn weight(g: &Graph, facts: &Facts, f: &Factor, dtype: DType, k: AxisId) -> Option<(Weight, ExprId)> {
    let [id] = f.exprs[..] else { return None };
    if !f.guards.is_empty() {
        return None;
    }
    let mut w = Weight::default();
    let inner = match g.expr(id) {
        Expr::Round(d, _, inner) if *d == dtype => *inner,
        Expr::Cast(_) => id,
        _ => return None,
    };
    let read = affine(g, facts, inner, k, &mut w)?;
    let parts = [w.zero, w.scale, w.shift];
    let mut group = 0;
    for &part in parts.iter().flatten() {
        group = gcd(group, period(g, part, k)?);
    }
    w.group = group;
    let exact = [w.scale, w.shift].iter().flatten().all(|&e| fits(g, facts, e, dtype));
    let zero = w.zero.map(|z| facts.interval(z));
    let near = zero.is_none_or(|z| z.lo >= -112 && z.hi <= 112) && (-112..=112).contains(&w.offset);
    (exact && near && group % 32 == 0).then_some((w, read))
}

/// Takes `(code − zero) · scale + shift` apart, from outside in.
fn affine(g: &Graph, facts: &Facts, id: ExprId, k: AxisId, w: &mut Weight) -> Option<ExprId> {
    let along = |e: ExprId| code(g, facts, e, k);
    match g.expr(id) {
        Expr::Call(Func::Add, a) if w.shift.is_none() && w.scale.is_none() && g.ty(id).is_float() => {
            let (inner, shift) = if holds_code(g, facts, a[0], k) { (a[0], a[1]) } else { (a[1], a[0]) };
            w.shift = Some(shift);
            affine(g, facts, inner, k, w)
        }
        Expr::Call(Func::Mul, a) if w.scale.is_none() && g.ty(id).is_float() => {
            let (inner, scale) = if holds_code(g, facts, a[0], k) { (a[0], a[1]) } else { (a[1], a[0]) };
            w.scale = Some(scale);
            affine(g, facts, inner, k, w)
        }
        Expr::Cast(a) if g.ty(id) == Ty::F32 && g.ty(*a) == Ty::I32 => match g.expr(*a) {
            Expr::Call(Func::Sub, b) => {
                match g.expr(b[1]) {
                    Expr::Lit(Value::I32(v)) => w.offset = *v as i64,
                    Expr::Lit(Value::I64(v)) => w.offset = *v,
                    _ => w.zero = Some(b[1]),
                }
                along(b[0])
            }
            _ => along(*a),
        },
        _ => None,
    }
}

fn holds_code(g: &Graph, facts: &Facts, id: ExprId, k: AxisId) -> bool {
    code(g, facts, id, k).is_some() || g.children(id).iter().any(|&c| holds_code(g, facts, c, k))
}

/// A read of a 4-bit tensor whose last index is the fold axis.
fn code(g: &Graph, facts: &Facts, id: ExprId, k: AxisId) -> Option<ExprId> {
    let Expr::Read(r) = g.expr(id) else { return None };
    let t = g.tensor(r.tensor);
    let (&last, others) = r.index.split_last()?;
    let along = matches!(g.expr(last), Expr::Axis(a) if *a == k);
    let alone = others.iter().all(|&i| !facts.free(i).contains(&k));
    let proven = matches!(r.access, Access::Proven);
    (t.dtype.bits() == 4 && t.range.is_none() && proven && along && alone).then_some(id)
}

/// The terms over which an expression does not change, from multiples of them on; 0: it depends on none.
fn period(g: &Graph, id: ExprId, k: AxisId) -> Option<i64> {
    match g.expr(id) {
        Expr::Axis(a) => (*a != k).then_some(0),
        Expr::Fold(_) => None,
        Expr::Read(r) if !matches!(r.access, Access::Proven) => None,
        Expr::Call(Func::Div, a) if is_axis(g, a[0], k) => match g.expr(a[1]) {
            Expr::Lit(Value::I64(n)) if *n > 0 => Some(*n),
            Expr::Lit(Value::I32(n)) if *n > 0 => Some(*n as i64),
            _ => None,
        },
        _ => g.children(id).into_iter().try_fold(0, |n, c| Some(gcd(n, period(g, c, k)?))),
    }
}

fn is_axis(g: &Graph, id: ExprId, k: AxisId) -> bool {
    match g.expr(id) {
        Expr::Axis(a) => *a == k,
        Expr::Cast(a) => is_axis(g, *a, k),
        _ => false,
    }
}

fn empty(wishes: &Wishes) -> Tile {
    Tile {
        name: wishes.kernel.to_string(),
        batch: 1,
        m: Side { dims: Vec::new(), block: 0 },
        n: Side { dims: Vec::new(), block: 0 },
        arrange: Arrange::Codes { rows: WARPS, terms: 1 },
        threads: 32 * WARPS,
        split: 1,
        swizzle: 1,
        folds: Vec::new(),
        shared_bytes: 0,
        resident: None,
        staging: 0,
        boxes: false,
        tail: None,
        join: 1,
        across: false,
        cluster: 1,
    }
}

/// The block by which a multiprocessor's share is moved soonest.
fn best(
    ground: &Ground,
    target: &Target,
    wishes: &Wishes,
    codes: &mut Codes,
    rows: &[Digit],
    tokens: &[Digit],
) -> Option<Tile> {
    /// Bytes that a multiprocessor gets from memory in a nanosecond; twice that from the L2 cache.
    const RATE: f64 = 30.0;
    /// A second kernel, in nanoseconds.
    const SECOND: f64 = 3000.0;
    let (n, t) = (ContractShape::points(rows), ContractShape::points(tokens));
    let columns = ((t as u32).div_ceil(8)).min(MOST_COLUMNS / 8);
    // Many rows of the other operand: each of its registers serves two tiles, and there is room for one block.
    let tiles = if columns > 4 { 2 } else { 1 };
    let resident = BLOCKS / tiles as i64;
    let chunks = codes.terms / CHUNK;
    let tables = codes.constants();
    let mut best: Option<(f64, Tile, i64)> = None;
    for (across, split) in [8u32, 4, 2, 1].into_iter().flat_map(|w| [1i64, 2, 4, 8, 16].map(|s| (w, s))) {
        let along = WARPS / across;
        let block = 16 * tiles * across;
        if split > 1 && chunks / split < 4 * along as i64 {
            continue;
        }
        let per = (chunks + split - 1) / split;
        let groups = codes.groups_of(per * CHUNK);
        let table = 4 * tables * groups * block as i64;
        let stage = 16 * 32 * WARPS as i64 * 2 * tiles as i64 + 256 * (8 * columns * along) as i64;
        let sums = 4 * (along * 8 * columns * block) as i64;
        let room = target.shared_per_block as i64 / resident - 1024 - table;
        let stages = (room / stage).min(10).min(per / along as i64 + 2);
        if stages < 3 || stages * stage < sums {
            continue;
        }
        let blocks =
            ((n + block as i64 - 1) / block as i64) * ((t + 8 * columns as i64 - 1) / (8 * columns) as i64);
        let slots = resident * target.sms as i64;
        let waves = ((blocks * split + slots - 1) / slots * resident) as f64;
        let used = t.min(8 * columns as i64);
        let bytes = block as f64 / 2.0 + used as f64;
        let parts =
            if split > 1 { SECOND + (split * n * t * 8) as f64 / (RATE * target.sms as f64) } else { 0.0 };
        let cost = waves * bytes * (per * CHUNK) as f64 / RATE + parts;
        if best.as_ref().is_none_or(|b| cost < b.0) {
            codes.tiles = tiles;
            let tile = tile(
                ground,
                wishes,
                codes,
                (rows, block),
                (tokens, 8 * columns),
                along,
                stages as u32,
                split,
            );
            let shared_bytes = (stages * stage + table) as u32;
            best = Some((cost, Tile { shared_bytes, ..tile }, groups));
        }
    }
    let (_, tile, groups) = best?;
    (codes.tiles, codes.columns, codes.groups) = (tiles, columns, groups);
    Some(tile)
}

/// The block for at most 8 rows of the other operand, where the rows of weights make enough blocks.
fn best_stream(
    ground: &Ground,
    target: &Target,
    wishes: &Wishes,
    codes: &mut Codes,
    (rows, tokens): (&[Digit], &[Digit]),
    asked: &StreamAsked,
) -> Option<Tile> {
    /// Bytes that a multiprocessor gets in a nanosecond, and nanoseconds until a copy is there, until a block is
    /// started, and of a wave's start and end.
    const RATE: f64 = 31.8;
    const LATENCY: f64 = 1500.0;
    const BLOCK: f64 = 80.0;
    const WAVE: f64 = 1500.0;
    const MOST_WARPS: i64 = 16;
    const MOST_PASSES: i64 = 4;
    const MOST_STAGES: i64 = 8;
    let (n, t) = (ContractShape::points(rows), ContractShape::points(tokens));
    if !(1..=MOST_STREAMED).contains(&t) {
        return None;
    }
    let all = codes.terms / STREAM_SEGMENT;
    let below = 1 << (63 - all.leading_zeros());
    let segments = (8 / (t as u64).next_power_of_two() as i64).min(below);
    // Warps and passes that cover the terms with the least beyond them.
    let covers = (1..=MOST_WARPS).map(|w| (w, (all + w * segments - 1) / (w * segments)));
    let (warps, passes) = covers
        .filter(|c| c.1 <= MOST_PASSES)
        .min_by_key(|&(w, p)| 1000 * w * p * segments / all + 20 * p + (w - 8).abs())?;
    let (unit, threads) = (16 / segments, 32 * warps);
    let registers = 48 + 16 * passes;
    let groups = codes.groups_of(codes.terms);
    let sms = target.sms as i64;
    let mut best: Option<(f64, i64, i64, i64)> = None;
    for block in (1..=128 / unit).map(|i| i * unit).filter(|b| asked.block.is_none_or(|a| a == *b)) {
        let blocks = (n + block - 1) / block;
        let each = (blocks + sms - 1) / sms;
        let fit = (65536 / (threads * registers)).min(target.threads_per_sm as i64 / threads);
        let resident = fit.min(each).max(1);
        let pitch = super::codes_stream::sums_pitch((warps * segments) as u32) as i64;
        let table = 4 * codes.constants() * super::codes_table::pitch(groups) * block;
        let room = (target.shared_per_sm as i64 / resident).min(target.shared_per_block as i64);
        let room = room - 2048 - table - 4 * t * block * pitch;
        let slot = 1024 * warps * passes;
        let fit = (room / slot).min(block / unit);
        let stages = asked.stages.unwrap_or(fit.min(MOST_STAGES));
        if stages < 1 || stages > fit || 2 * blocks < sms && asked.block.is_none() {
            continue;
        }
        let rate = RATE.min((resident * stages * slot) as f64 / LATENCY);
        let waves = (each + resident - 1) / resident;
        let bytes = (each * block * (codes.terms / 2 + 2 * codes.constants() * groups)) as f64;
        let cost = bytes / rate + each as f64 * BLOCK + waves as f64 * WAVE;
        if best.is_none_or(|b| cost < b.0) {
            best = Some((cost, block, stages, resident));
        }
    }
    let (_, block, stages, resident) = best?;
    (codes.groups, codes.together) = (groups, resident as u32);
    let tile = tile(ground, wishes, codes, (rows, block as u32), (tokens, t as u32), 1, stages as u32, 1);
    let (segments, warps, passes) = (segments as u32, warps as u32, passes as u32);
    Some(of_stream(tile, codes, Arrange::Stream { segments, warps, passes }))
}

/// A tile of the loop with a ring of both operands as one whose lanes stream their own codes.
fn of_stream(mut tile: Tile, codes: &Codes, arrange: Arrange) -> Tile {
    let Arrange::Stream { segments, warps, passes } = arrange else { return tile };
    let step = warps * passes * segments * STREAM_SEGMENT as u32;
    let fold = &mut tile.folds[0];
    (fold.step, fold.slot) = (step as i64, step);
    let (w, x) = if codes.first { (&mut fold.a, &mut fold.b) } else { (&mut fold.b, &mut fold.a) };
    w.place = Place::Rows { rows: 16 / segments, pitch: step };
    x.place = Place::Registers;
    let shared_bytes = fold.stages * fold.stage_bytes();
    Tile { arrange, threads: 32 * warps, shared_bytes, ..tile }
}

#[allow(clippy::too_many_arguments)]
pub(super) fn tile(
    ground: &Ground,
    wishes: &Wishes,
    codes: &Codes,
    (rows, block): (&[Digit], u32),
    (tokens, columns): (&[Digit], u32),
    along: u32,
    stages: u32,
    split: i64,
) -> Tile {
    let side = |digits: &[Digit], block: u32| {
        let names: Vec<&str> = digits.iter().map(|d| ground.shape.axes[d.out].name.as_str()).collect();
        let extent = ContractShape::points(digits);
        let dim = TileDim { name: names.join("·"), digits: 0..digits.len(), extent, block: block as i64 };
        Side { dims: vec![dim], block }
    };
    let step = CHUNK * along as i64;
    let operand = |lines: &Lines, dtype: DType, rows: u32| Operand {
        name: ground.graph.tensor(lines.tensor).name.clone(),
        dtype,
        k_major: true,
        place: Place::Rows { rows, pitch: step as u32 },
        load: Load::Async(16),
    };
    let code = if codes.signed { DType::I4 } else { DType::U4 };
    let (w, x) = (operand(&codes.w, code, block), operand(&codes.x, codes.dtype, columns));
    let (rows, tokens) = (side(rows, block), side(tokens, columns));
    let (m, n, a, b) = if codes.first { (rows, tokens, w, x) } else { (tokens, rows, x, w) };
    let math = Math::Mma { kind: MmaKind::Half(codes.dtype), promote: false };
    let fold = FoldTile { terms: codes.terms, step, slot: step as u32, stages, math, a, b };
    let arrange = Arrange::Codes { rows: WARPS / along, terms: along };
    Tile { m, n, arrange, split, folds: vec![fold], ..empty(wishes) }
}

/// The sides of the weights' rows and of the other operand's.
pub fn sides<'s>(codes: &Codes, tile: &'s Tile, shape: &'s ContractShape) -> [(&'s Side, &'s [Digit]); 2] {
    let (m, n) = ((&tile.m, &shape.m[..]), (&tile.n, &shape.n[..]));
    if codes.first { [m, n] } else { [n, m] }
}

/// Where a block's rows of weights, and of the other operand, start.
pub fn starts<'p>(codes: &Codes, place: &'p Where) -> (&'p crate::ir::simt::Expr, &'p crate::ir::simt::Expr) {
    if codes.first { (&place.m[0], &place.n[0]) } else { (&place.n[0], &place.m[0]) }
}
