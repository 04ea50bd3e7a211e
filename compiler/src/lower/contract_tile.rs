//! Chooses the tile level of a `contract` kernel: blocks, warps, stages, shared layouts and how operands are loaded,
//! by the settings where they speak and by a small cost model where they do not.

use super::contract_operand::{Ground, PlainRead, Source, atom_k, math, stored};
use super::contract_pattern::{ContractShape, Contraction, Digit, Factor, KAxis};
use super::{Refusal, Schedule};
use crate::ir::graph::{AxisId, Word};
use crate::ir::layout::{CHUNK, SharedTile};
use crate::ir::tile::*;
use crate::vocab::dtype::{DType, Ty};
use crate::vocab::target::Target;
use girih_dsl::ast::Span;

/// Registers a thread may spend on accumulators.
const MAX_ACCUMULATORS: u32 = 128;
/// The same for multiply-adds: two blocks to a multiprocessor hide more than a larger tile saves.
const MAX_FMA_ACCUMULATORS: u32 = 64;
/// Registers of a block, and what a thread needs beside accumulators and fragments.
const REGISTERS: u32 = 65536;
const OTHER_REGISTERS: u32 = 44;
/// Terms that one serial chain of float additions may have (half of what the language allows).
pub(super) const MAX_CHAIN: i64 = 1 << 15;

/// A chosen tile, and what the loaders need beside it.
#[derive(Clone, Debug)]
pub struct Choice {
    pub tile: Tile,
    pub folds: Vec<FoldChoice>,
}

#[derive(Clone, Debug)]
pub struct FoldChoice {
    /// The fold axes, outermost first, as the terms are numbered.
    pub k: Vec<KAxis>,
    pub a: Source,
    pub b: Source,
}

/// The settings that speak of a kernel.
pub struct Wishes<'a> {
    pub schedule: &'a Schedule,
    pub kernel: &'a str,
    pub span: Span,
}

impl Wishes<'_> {
    pub fn int(&self, key: &str, axis: &str) -> Result<Option<i64>, Refusal> {
        match self.schedule.get(self.kernel, key, axis) {
            None => Ok(None),
            Some(Word::Int(v)) if *v >= 1 => Ok(Some(*v)),
            Some(_) => Err(self.refuse(key, axis, "takes a number of at least 1")),
        }
    }

    pub fn refuse(&self, key: &str, axis: &str, why: &str) -> Refusal {
        let name = if axis.is_empty() { key.to_string() } else { format!("{key} {axis}") };
        Refusal::new(self.span, format!("`{name}` of {}: {why}", self.kernel)).setting(name)
    }

    fn warps(&self) -> Result<Option<u32>, Refusal> {
        let warps = [("warps", 1, 1), ("warpgroups", 4, 1), ("threads", 1, 32)];
        for (key, times, per) in warps {
            let Some(v) = self.int(key, "")? else { continue };
            if v % per != 0 || v * times / per > 32 {
                return Err(self.refuse(key, "", "a block has whole warps, at most 32 of them"));
            }
            return Ok(Some((v * times / per) as u32));
        }
        Ok(None)
    }

    pub fn swizzle(&self) -> Result<i64, Refusal> {
        match self.schedule.get(self.kernel, "order", "") {
            None => Ok(8),
            Some(Word::Name(n)) if n == "rows" || n == "plain" => Ok(1),
            Some(Word::Apply(f, n)) if f == "swizzle" && matches!(**n, Word::Int(v) if v >= 1) => match **n {
                Word::Int(v) => Ok(v),
                _ => Ok(1),
            },
            Some(_) => Err(self.refuse("order", "", "write `swizzle(n)` with n at least 1")),
        }
    }

    /// How many blocks take tile after tile where there are more tiles; `None`: a block for each tile.
    pub fn persistent(&self, sms: u32) -> Result<Option<i64>, Refusal> {
        match self.schedule.get(self.kernel, "persistent", "") {
            None => Ok(Some(sms as i64)),
            Some(Word::Name(n)) if n == "on" => Ok(Some(sms as i64)),
            Some(Word::Name(n)) if n == "off" => Ok(None),
            Some(Word::Int(v)) if *v >= 1 => Ok(Some(*v)),
            Some(_) => Err(self.refuse("persistent", "", "write `on`, `off` or a number of blocks")),
        }
    }

    /// Blocks of a cluster, by axis.
    pub fn clusters(&self) -> Result<Vec<(String, i64)>, Refusal> {
        let Some(settings) = self.schedule.kernels.get(self.kernel) else { return Ok(Vec::new()) };
        let axes = settings.keys().filter(|(key, _)| key == "cluster").map(|(_, axis)| axis);
        axes.map(|a| Ok((a.clone(), self.int("cluster", a)?.unwrap_or(1)))).collect()
    }

    /// Whether the block's threads are said in another way than by warpgroups.
    pub fn names_threads(&self) -> bool {
        ["warps", "threads"].iter().any(|key| self.schedule.get(self.kernel, key, "").is_some())
    }

    /// Blocks that are to share a fold axis.
    pub fn split(&self) -> Result<Option<i64>, Refusal> {
        let mut wished = None;
        if let Some(settings) = self.schedule.kernels.get(self.kernel) {
            for (_, axis) in settings.keys().filter(|(key, _)| key == "split") {
                wished = self.int("split", axis)?.max(wished);
            }
        }
        Ok(wished)
    }

    pub fn fast(&self) -> bool {
        matches!(self.schedule.get(self.kernel, "accumulate", ""), Some(Word::Name(n)) if n == "fast")
    }
}

/// Chooses the tile for a shape.
pub fn choose(ground: &Ground, target: &Target, wishes: &Wishes) -> Result<Choice, Refusal> {
    let shape = ground.shape;
    let maths = maths(ground, target, wishes);
    let drafts: Vec<Draft> =
        shape.folds.iter().zip(&maths).map(|(c, &m)| draft(ground, c, m, wishes)).collect();
    let limits = Limits::of(&maths);
    let mut best: Option<(f64, Choice)> = None;
    let mut refusal = None;
    for (bm, bn) in blocks(shape, wishes, &limits)? {
        match build(ground, target, wishes, &drafts, &limits, (bm, bn)) {
            Ok(choice) => {
                let cost = cost(&choice.tile, target);
                if best.as_ref().is_none_or(|(c, _)| cost < *c) {
                    best = Some((cost, choice));
                }
            }
            Err(r) => refusal = Some(r),
        }
    }
    best.map(|(_, c)| c).ok_or_else(|| {
        refusal.unwrap_or_else(|| Refusal::new(wishes.span, "no tile of this kernel fits the target"))
    })
}

/// One instruction for each sum; all with the same accumulator layout.
fn maths(ground: &Ground, target: &Target, wishes: &Wishes) -> Vec<Math> {
    let of = |c| math(ground.graph, ground.facts, c, target, wishes.fast());
    let all: Vec<Math> = ground.shape.folds.iter().map(of).collect();
    if all.iter().any(|m| matches!(m, Math::Fma(_))) {
        return ground.shape.folds.iter().map(|c| Math::Fma(c.ty)).collect();
    }
    all
}

/// What is fixed about a sum before the block is.
struct Draft {
    math: Math,
    k: Vec<KAxis>,
    step: Option<i64>,
    a: Lie,
    b: Lie,
}

/// How one operand lies in memory.
struct Lie {
    source: Source,
    name: String,
    dtype: DType,
    /// The direction in which its elements are neighbours in memory: K?
    along_k: bool,
    /// The output axis or fold axis of the neighbours, for plain reads with any.
    run: Option<AxisId>,
    /// Whether only terms within bounds count.
    bounded: bool,
}

fn draft(ground: &Ground, c: &Contraction, math: Math, wishes: &Wishes) -> Draft {
    let (da, db) = stored(math);
    let shape = ground.shape;
    let lie = |f: &Factor, dtype, rows: &[Digit]| lie(ground, c, f, dtype, rows);
    let (a, b) = (lie(&c.a, da, &shape.m), lie(&c.b, db, &shape.n));
    let (k, step) = order_k(c, &a, &b, wishes);
    Draft { math, k, step, a, b }
}

fn lie(ground: &Ground, c: &Contraction, f: &Factor, dtype: DType, rows: &[Digit]) -> Lie {
    let (source, bounded) = ground.source_in_bounds(c, f, dtype);
    let name = name_of(ground, f);
    if let Source::Plain(p) = &source {
        let k = p.k.iter().filter(|(_, s)| *s == 1).map(|(a, _)| *a);
        let k = k.max_by_key(|a| c.k.iter().find(|k| k.axis == *a).map_or(0, |k| k.extent));
        let stmt = &ground.shape.stmts[c.stmt];
        let row = rows.last().filter(|d| d.stride == 1).map(|d| stmt.axes[d.out]);
        let row = row.filter(|&a| ground.along(p, a) == Some(1));
        let along_k = k.is_some() || row.is_none();
        return Lie { name, dtype, along_k, run: k.or(row), source, bounded };
    }
    Lie { along_k: ground.prefers_k(c, f, rows), run: None, source, name, dtype, bounded }
}

fn name_of(ground: &Ground, f: &Factor) -> String {
    let mut todo = f.exprs.clone();
    let mut names = Vec::new();
    while let Some(id) = todo.pop() {
        todo.extend(ground.graph.children(id));
        if let crate::ir::graph::Expr::Read(r) = ground.graph.expr(id) {
            let name = ground.graph.tensor(r.tensor).name.clone();
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    if names.is_empty() { "computed".into() } else { names.join(", ") }
}

/// The order of the fold axes: those with a `step` innermost, then the one along which an operand is contiguous.
fn order_k(c: &Contraction, a: &Lie, b: &Lie, wishes: &Wishes) -> (Vec<KAxis>, Option<i64>) {
    let step = |k: &KAxis| wishes.schedule.int(wishes.kernel, "step", &k.name).filter(|&v| v >= 1);
    let run = [a, b].into_iter().filter(|l| l.along_k).find_map(|l| l.run);
    let mut k = c.k.clone();
    k.sort_by_key(|k| (step(k).is_some(), Some(k.axis) == run));
    let steps: Vec<i64> = k.iter().filter_map(step).collect();
    let product = steps.iter().copied().reduce(|a, b| a.saturating_mul(b));
    (k, product)
}

/// What an instruction sets for blocks.
struct Limits {
    mma: bool,
    ty: Ty,
    folds: u32,
    promote: bool,
}

impl Limits {
    fn of(maths: &[Math]) -> Limits {
        let mma = maths.iter().all(|m| matches!(m, Math::Mma { .. }));
        let ty = maths.iter().find_map(|m| match m {
            Math::Fma(ty) => Some(*ty),
            _ => None,
        });
        Limits {
            mma,
            ty: ty.unwrap_or(Ty::F32),
            folds: maths.len() as u32,
            promote: maths.iter().any(|m| matches!(m, Math::Mma { promote: true, .. })),
        }
    }

    fn accumulators(&self) -> u32 {
        let wide = if matches!(self.ty, Ty::F64 | Ty::I64) && !self.mma { 2 } else { 1 };
        wide * self.folds * if self.promote { 2 } else { 1 }
    }
}

/// A side cut as the settings say: each axis with its block if one is set, otherwise all as one number.
fn side(
    digits: &[Digit],
    shape: &ContractShape,
    wishes: &Wishes,
) -> Result<(Vec<TileDim>, Option<i64>), Refusal> {
    let name = |d: &Digit| shape.axes[d.out].name.clone();
    let wish = |d: &Digit| wishes.int("block", &shape.axes[d.out].name);
    let blocks: Vec<Option<i64>> = digits.iter().map(wish).collect::<Result<_, _>>()?;
    let extent = digits.iter().map(|d| d.extent).product();
    if digits.len() <= 1 || blocks.iter().all(Option::is_none) {
        let names: Vec<String> = digits.iter().map(name).collect();
        let dim = TileDim { name: names.join("·"), digits: 0..digits.len(), extent, block: 0 };
        return Ok((vec![dim], blocks.first().copied().flatten()));
    }
    let dim = |(i, d): (usize, &Digit)| {
        let block = blocks[i].unwrap_or(1).min(d.extent.max(1));
        TileDim { name: name(d), digits: i..i + 1, extent: d.extent, block }
    };
    let dims: Vec<TileDim> = digits.iter().enumerate().map(dim).collect();
    let block = dims.iter().map(|d| d.block).product();
    Ok((dims, Some(block)))
}

/// The blocks to weigh against each other.
fn blocks(shape: &ContractShape, wishes: &Wishes, limits: &Limits) -> Result<Vec<(i64, i64)>, Refusal> {
    let (_, m) = side(&shape.m, shape, wishes)?;
    let (_, n) = side(&shape.n, shape, wishes)?;
    let sizes: &[i64] = match (limits.mma, limits.ty) {
        (true, _) => &[16, 32, 64, 128, 256],
        (false, Ty::F32 | Ty::I32) => &[16, 32, 64, 128],
        _ => &[16, 32, 64],
    };
    let of = |wish: Option<i64>, points: i64| -> Vec<i64> {
        match wish {
            Some(b) => vec![b],
            // One size above the points is enough.
            None => {
                let enough = sizes.iter().copied().find(|&s| s >= points).unwrap_or(i64::MAX);
                sizes.iter().copied().filter(|&s| s <= enough).collect()
            }
        }
    };
    let (ms, ns) = (of(m, ContractShape::points(&shape.m)), of(n, ContractShape::points(&shape.n)));
    for (b, key) in ms.iter().chain(&ns).map(|b| (b, "block")) {
        if *b > 1024 {
            return Err(wishes.refuse(key, "", "a block of the output has at most 1024 points along M or N"));
        }
    }
    Ok(ms.iter().flat_map(|&m| ns.iter().map(move |&n| (m, n))).collect())
}

fn build(
    ground: &Ground,
    target: &Target,
    wishes: &Wishes,
    drafts: &[Draft],
    limits: &Limits,
    (bm, bn): (i64, i64),
) -> Result<Choice, Refusal> {
    let shape = ground.shape;
    let (arrange, m, n, threads) = arrange(bm, bn, limits, wishes)?;
    let cut = |digits: &[Digit], used: i64, block: u32| -> Result<Side, Refusal> {
        let (mut dims, _) = side(digits, shape, wishes)?;
        dims.iter_mut().filter(|d| d.block == 0).for_each(|d| d.block = used);
        Ok(Side { dims, block })
    };
    let sides = (cut(&shape.m, bm, m)?, cut(&shape.n, bn, n)?);
    let batch = ContractShape::points(&shape.batch);
    let folds = pipelines(ground, target, wishes, drafts, &sides)?;
    let split = split(&folds, &sides, batch, target, wishes, limits)?;
    let shared_bytes = folds.iter().map(|f| f.stages * f.stage_bytes()).max().unwrap_or(0);
    let name = wishes.kernel.to_string();
    let swizzle = wishes.swizzle()?;
    let (m, n) = sides;
    let (resident, staging, cluster) = (None, 0, 1);
    let tile = Tile {
        name,
        batch,
        m,
        n,
        arrange,
        threads,
        split,
        swizzle,
        folds,
        shared_bytes,
        resident,
        staging,
        boxes: false,
        cluster,
        tail: None,
        join: 1,
        across: false,
    };
    tile.verify().map_err(|e| Refusal::new(wishes.span, e))?;
    let source = |d: &Draft| FoldChoice { k: d.k.clone(), a: d.a.source.clone(), b: d.b.source.clone() };
    Ok(Choice { tile, folds: drafts.iter().map(source).collect() })
}

fn arrange(bm: i64, bn: i64, limits: &Limits, wishes: &Wishes) -> Result<(Arrange, u32, u32, u32), Refusal> {
    let warps = wishes.warps()?;
    let found = if limits.mma {
        arrange_warps(bm as u32, bn as u32, warps, limits)
    } else {
        arrange_threads(bm as u32, bn as u32, warps, limits)
    };
    found.ok_or_else(|| {
        let why = format!("a block of {bm} × {bn} does not fit the registers of the threads it may have");
        match warps {
            Some(_) => wishes.refuse("warps", "", &why),
            None => wishes.refuse("block", "", &why),
        }
    })
}

/// Warps so that the block is padded least, then so that they read least shared memory for their share.
fn arrange_warps(bm: u32, bn: u32, warps: Option<u32>, limits: &Limits) -> Option<(Arrange, u32, u32, u32)> {
    let counts: Vec<u32> = warps.map_or(vec![1, 2, 4, 8, 16], |w| vec![w]);
    let mut best = None;
    for w in counts {
        for wm in (1..=w).filter(|wm| w % wm == 0) {
            let wn = w / wm;
            let (m, n) = (bm.next_multiple_of(16 * wm), bn.next_multiple_of(16 * wn));
            let (tm, tn) = (m / wm, n / wn);
            let registers = tm * tn / 32 * limits.accumulators();
            // Fragments of both operands, twice, and addresses.
            let all = registers + (tm + tn) / 16 * 8 + OTHER_REGISTERS;
            if registers > MAX_ACCUMULATORS || all * w * 32 > REGISTERS {
                continue;
            }
            // Enough warps to hide latency where the block is large; a warp's tile near 64 × 64 otherwise.
            let idle = if warps.is_none() && registers < 16 && w > 4 { 1 } else { 0 };
            let few = if warps.is_none() && w < 4 && m * n >= 32 * 32 { 1 } else { 0 };
            let traffic = (tm + tn) * w;
            let key = (m * n, few + idle, traffic, w);
            if best.as_ref().is_none_or(|(k, _)| key < *k) {
                best = Some((key, (Arrange::Warps { m: wm, n: wn }, m, n, w * 32)));
            }
        }
    }
    best.map(|(_, b)| b)
}

/// Threads so that each has a tile near 8 × 8, and there are enough of them.
fn arrange_threads(
    bm: u32,
    bn: u32,
    warps: Option<u32>,
    limits: &Limits,
) -> Option<(Arrange, u32, u32, u32)> {
    let vector = if matches!(limits.ty, Ty::F64 | Ty::I64) { 2 } else { 4 };
    let mut best = None;
    for (tm, tn) in [1, 2, 4, 8, 16].into_iter().flat_map(|a| [1, 2, 4, 8, 16].map(|b| (a, b))) {
        for cols in [4, 8, 16, 32] {
            let n = bn.next_multiple_of(tn * cols);
            // Whole warps: rows in multiples of what is left of 32.
            let unit = (32 / cols).max(1) * tm;
            let m = bm.next_multiple_of(unit);
            let (rows, threads) = (m / tm, m / tm * (n / tn));
            let real_cols = n / tn;
            let registers = tm * tn * limits.accumulators();
            let all = registers + tm + tn + OTHER_REGISTERS;
            let most = if warps.is_some() { MAX_ACCUMULATORS } else { MAX_FMA_ACCUMULATORS * limits.folds };
            if threads > 1024
                || registers > most.min(MAX_ACCUMULATORS)
                || threads % 32 != 0
                || all * threads > REGISTERS
            {
                continue;
            }
            if warps.is_some_and(|w| w * 32 != threads) {
                continue;
            }
            let few = warps.is_none() && threads < 128.min((bm * bn).div_ceil(4).next_multiple_of(32));
            let many = warps.is_none() && threads > 256;
            let traffic = (tm + tn) * threads;
            let key = (m * n, few || many, traffic, registers, tn.abs_diff(tm), cols.abs_diff(16));
            if best.as_ref().is_none_or(|(k, _)| key < *k) {
                let (vm, vn) = (vector.min(tm), vector.min(tn));
                let a = Arrange::Threads { rows, cols: real_cols, tm, tn, vm, vn };
                best = Some((key, (a, m, n, threads)));
            }
        }
    }
    best.map(|(_, b)| b)
}

/// The main loops, with as many stages as fit.
fn pipelines(
    ground: &Ground,
    target: &Target,
    wishes: &Wishes,
    drafts: &[Draft],
    sides: &(Side, Side),
) -> Result<Vec<FoldTile>, Refusal> {
    let wished = wishes.int("stages", "")?;
    if wished.is_some_and(|s| s > 32) {
        return Err(wishes.refuse("stages", "", "at most 32"));
    }
    // Where rows choose B, a block keeps their choices beside the tiles.
    let choices = if ground.shape.selector.is_some() { sides.0.block * 8 } else { 0 };
    let limit = target.shared_per_block - choices;
    let of = |d: &Draft| -> Result<FoldTile, Refusal> {
        let mut last = None;
        for step in steps(d) {
            let mut fold = pipeline(ground, target, wishes, d, sides, step)?;
            let fit = limit / fold.stage_bytes().max(1);
            let most = (fold.steps().max(1) as u32).min(4);
            // A register-staged operand gains nothing from a deep ring.
            let want = wished.map_or(most.min(fit.max(1)), |s| s as u32);
            fold.stages = want;
            if want > fit {
                last = Some(over(wishes, want * fold.stage_bytes(), limit, target));
                continue;
            }
            if wished.is_none() && want < most.min(3) && last.is_none() && d.step.is_none() {
                last = Some(over(wishes, 3 * fold.stage_bytes(), limit, target));
                continue;
            }
            return Ok(fold);
        }
        let fallback = steps(d).last().copied().unwrap_or(1);
        let mut fold = pipeline(ground, target, wishes, d, sides, fallback)?;
        fold.stages = wished.map_or((limit / fold.stage_bytes().max(1)).clamp(1, 2), |s| s as u32);
        match fold.stages * fold.stage_bytes() > limit {
            true => {
                Err(last.unwrap_or_else(|| over(wishes, fold.stages * fold.stage_bytes(), limit, target)))
            }
            false => Ok(fold),
        }
    };
    drafts.iter().map(of).collect()
}

fn over(wishes: &Wishes, needed: u32, limit: u32, target: &Target) -> Refusal {
    let message = format!(
        "{} needs {needed} bytes of shared memory, and a block has {limit} on {}: make `block` or `step` smaller, or \
         use fewer `stages`",
        wishes.kernel, target.name
    );
    Refusal::new(wishes.span, message).setting("stages")
}

/// The steps to try, the best first.
fn steps(d: &Draft) -> Vec<i64> {
    if let Some(step) = d.step {
        return vec![step];
    }
    let terms: i64 = d.k.iter().map(|k| k.extent).product();
    let atom = atom_k(d.math);
    match d.math {
        // Two bytes: 64 terms are a 128-byte row.
        Math::Mma { .. } | Math::Wgmma { .. } => {
            [4, 2, 1].iter().map(|n| n * atom).filter(|&s| s == atom || s < 2 * terms).collect()
        }
        Math::Fma(Ty::F64 | Ty::I64) => vec![8],
        Math::Fma(_) => {
            if terms <= 8 {
                vec![8]
            } else {
                vec![16, 8]
            }
        }
    }
}

fn pipeline(
    ground: &Ground,
    target: &Target,
    wishes: &Wishes,
    d: &Draft,
    (m, n): &(Side, Side),
    step: i64,
) -> Result<FoldTile, Refusal> {
    if step > 1024 {
        return Err(wishes.refuse("step", "", "a step has at most 1024 terms"));
    }
    let slot = (step as u32).next_multiple_of(atom_k(d.math) as u32);
    let vector = wishes.int("vector", "")?;
    let cx = Placing { ground, target, math: d.math, k: &d.k, step, slot, vector };
    Ok(FoldTile {
        terms: d.k.iter().map(|k| k.extent).product(),
        step,
        slot,
        stages: 1,
        math: d.math,
        a: cx.operand(&d.a, m, &ground.shape.m),
        b: cx.operand(&d.b, n, &ground.shape.n),
    })
}

struct Placing<'a, 'b, 'g> {
    ground: &'a Ground<'b, 'g>,
    target: &'a Target,
    math: Math,
    k: &'a [KAxis],
    step: i64,
    slot: u32,
    vector: Option<i64>,
}

impl Placing<'_, '_, '_> {
    fn operand(&self, lie: &Lie, side: &Side, digits: &[Digit]) -> Operand {
        let size = lie.dtype.bits() / 8;
        let chunked = matches!(self.math, Math::Mma { .. });
        // Only 16-bit matrices can be transposed on the way to registers.
        let k_major = chunked && (lie.along_k || size != 2);
        let place = if !chunked {
            Place::Rows { rows: self.slot, pitch: side.block + 16 / size }
        } else if k_major {
            Place::Chunks(SharedTile::conflict_free(side.block, self.slot * size / CHUNK))
        } else {
            Place::Chunks(SharedTile::conflict_free(self.slot, side.block * size / CHUNK))
        };
        let load = self.load(lie, side, digits, k_major, size);
        Operand { name: lie.name.clone(), dtype: lie.dtype, k_major, place, load }
    }

    fn load(&self, lie: &Lie, side: &Side, digits: &[Digit], k_major: bool, size: u32) -> Load {
        let computed = Load::Elements { lanes_along_k: lie.along_k };
        let Source::Plain(p) = &lie.source else { return computed };
        // A run along K may cross a bound.
        if lie.bounded && (lie.along_k || k_major) {
            return computed;
        }
        // Rows of the FMA layout run along M or N: what is contiguous along K is moved element by element.
        let crosses = !matches!(self.math, Math::Mma { .. }) && lie.along_k;
        let bytes = if crosses {
            size
        } else if lie.along_k != k_major && matches!(self.math, Math::Mma { .. }) {
            return computed;
        } else {
            self.widest(lie, p, side, digits, size)
        };
        match (bytes >= 4, self.target.cp_async) {
            (true, true) => Load::Async(bytes),
            (true, false) => Load::Vector(bytes),
            _ => computed,
        }
    }

    /// The most bytes that every run of the operand can be copied in at once; 0 if there are no runs.
    fn widest(&self, lie: &Lie, p: &PlainRead, side: &Side, digits: &[Digit], size: u32) -> u32 {
        let Some(run) = lie.run else { return if size >= 4 { size } else { 0 } };
        let align = (self.ground.home)(p.tensor).align as i64;
        // Where the batch holds the rest of the axis, each matrix starts at a multiple of the digit's extent.
        let divided = digits.last().is_some_and(|d| self.ground.shape.batch.iter().any(|b| b.out == d.out));
        let fits = |bytes: u32| {
            let unit = (bytes / size) as i64;
            let inner =
                if lie.along_k { self.k_runs(unit, run) } else { row_runs(side, digits, unit, divided) };
            unit >= 1
                && inner
                && self.vector.is_none_or(|v| unit <= v.max((4 / size as i64).max(1)))
                && align % bytes as i64 == 0
                && self.ground.divisor(p, run, unit) % unit == 0
                && (unit == 1 || self.ground.run_is_inside(p, run))
        };
        [16, 8, 4].into_iter().find(|&b| b >= size && fits(b)).unwrap_or(0)
    }

    /// Whether the terms fall into runs of `unit` neighbours along the innermost fold axis.
    fn k_runs(&self, unit: i64, run: AxisId) -> bool {
        let Some(inner) = self.k.last() else { return false };
        let whole = self.k.len() == 1 || inner.extent % unit == 0;
        unit == 1 || inner.axis == run && self.step % unit == 0 && self.slot as i64 % unit == 0 && whole
    }
}

/// Whether the rows of a block fall into runs of `unit` neighbours along the innermost digit.
fn row_runs(side: &Side, digits: &[Digit], unit: i64, divided: bool) -> bool {
    let (Some(dim), Some(digit)) = (side.dims.last(), digits.last()) else { return false };
    let whole = dim.digits.len() == 1 && !divided || digit.extent % unit == 0;
    unit == 1 || dim.block % unit == 0 && side.block as i64 % unit == 0 && whole
}

/// Blocks along K: as set; otherwise enough to fill the GPU where tiles are few and sums long.
fn split(
    folds: &[FoldTile],
    (m, n): &(Side, Side),
    batch: i64,
    target: &Target,
    wishes: &Wishes,
    limits: &Limits,
) -> Result<i64, Refusal> {
    let steps = folds.iter().map(|f| f.steps()).max().unwrap_or(0).max(1);
    let wished = wishes.split()?;
    let float = !matches!(limits.ty, Ty::I32 | Ty::I64);
    let longest = folds.iter().map(|f| f.terms).max().unwrap_or(0);
    let least = if float && !limits.mma { (longest + MAX_CHAIN - 1) / MAX_CHAIN } else { 1 };
    if let Some(s) = wished {
        return Ok(s.min(steps).max(least));
    }
    let tiles = (batch * m.tiles() * n.tiles()).max(1);
    let room = 2 * target.sms as i64 / tiles;
    // A part should have enough steps to pay for the second kernel.
    let worth = steps / 8;
    Ok(room.min(worth).clamp(1, 32).max(least).min(steps))
}

/// Nanoseconds of a kernel whose sum is a step or two by `mma.sync`: a block's start, then the loads and the results of a
/// thread, one after the other in straight code that is fetched for them alone. From some 40 tiles of seven products
/// on an H200, which it meets within 25%.
pub fn short(tile: &Tile, target: &Target) -> Option<f64> {
    const STEPS: i64 = 2;
    const START: f64 = 1500.0;
    const LOADED: f64 = 50.0;
    const STORED: f64 = 45.0;
    /// Results in a nanosecond and multiprocessor that are stored one by one, as they are where lines are odd.
    const ONE_BY_ONE: f64 = 1.8;
    let tensor_cores = |f: &FoldTile| matches!(f.math, Math::Mma { .. });
    if !matches!(tile.arrange, Arrange::Warps { .. })
        || tile.split > 1
        || !tile.folds.iter().all(|f| tensor_cores(f) && f.steps() <= STEPS)
    {
        return None;
    }
    let threads = tile.threads as f64;
    let loads = |f: &FoldTile, o: &Operand, rows: u32| {
        let together = match o.load {
            Load::Async(bytes) | Load::Vector(bytes) => (bytes * 8 / o.dtype.bits()).max(1),
            _ => 1,
        };
        f.steps() as f64 * (rows * f.slot) as f64 / together as f64 / threads
    };
    let of = |f: &FoldTile| loads(f, &f.a, tile.m.block) + loads(f, &f.b, tile.n.block);
    let loaded: f64 = tile.folds.iter().map(of).sum();
    let stored = (tile.m.block * tile.n.block) as f64 / threads;
    let registers = 14.0 + stored * tile.folds.len() as f64 + loaded / 2.0;
    let fit = (REGISTERS as f64 / (threads * registers)).min(2048.0 / threads).min(16.0);
    let per_sm = fit.min((target.shared_per_sm / tile.shared_bytes.max(1024)) as f64).max(1.0).floor();
    let sms = target.sms as f64;
    let blocks = (tile.batch * tile.m.tiles() * tile.n.tiles()) as f64;
    let waves = (blocks / (sms * per_sm)).max(1.0);
    let points = (tile.batch * tile.m.points() * tile.n.points()) as f64;
    let stores = if tile.n.points() % 2 == 1 { points / (ONE_BY_ONE * sms) } else { 0.0 };
    Some((waves * (START + LOADED * loaded + STORED * stored)).max(stores))
}

/// An estimate of the time, for comparing tiles: waves of blocks, each with its loads and math.
fn cost(tile: &Tile, target: &Target) -> f64 {
    if let Some(short) = short(tile, target) {
        return short;
    }
    let (m, n) = (tile.m.block as f64, tile.n.block as f64);
    let blocks = (tile.batch * tile.m.tiles() * tile.n.tiles() * tile.split) as f64;
    let per_sm = (target.shared_per_sm / tile.shared_bytes.max(1024))
        .min(REGISTERS / (tile.threads * registers(tile)).max(1))
        .clamp(1, 8) as f64;
    let sms = target.sms as f64;
    let waves = (blocks / (sms * per_sm)).ceil();
    let terms: f64 = tile.folds.iter().map(|f| (f.steps() * f.slot as i64) as f64).sum();
    let terms = terms / tile.split as f64;
    // Small tiles use the tensor cores badly: they wait for shared memory and for loads.
    let math = m * n / 64.0;
    let traffic = (m + n) * 2.0;
    let epilogue = m * n * 4.0 + 20000.0;
    let alone = if blocks < sms * per_sm { (blocks / sms).ceil().min(per_sm) } else { per_sm };
    waves * alone * (terms * (math + traffic) + epilogue) + if tile.split > 1 { 60000.0 } else { 0.0 }
}

/// Registers of a thread, roughly.
fn registers(tile: &Tile) -> u32 {
    let accumulators = tile.m.block * tile.n.block / tile.threads.max(1) * tile.folds.len() as u32;
    (accumulators * 3 / 2 + 48).min(255)
}
