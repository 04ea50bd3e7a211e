//! tile: one `contract` kernel as operations of a block on tiles, with their memory spaces and layouts.
//!
//! Made by `lower/contract_tile.rs` from a recognised shape, a target and the settings; the simt level is written
//! from it and decides nothing more about shapes, layouts or the pipeline.
//!
//! Invariants (checked by `verify`): the used part of a block is not larger than the block; blocks are multiples of
//! what the warps' atoms cover; the shared tiles of one stage hold the block; `shared_bytes` is their sum.

use super::layout::SharedTile;
use crate::vocab::dtype::{DType, Ty};
use std::fmt;

/// A kernel at block level.
#[derive(Clone, Debug, PartialEq)]
pub struct Tile {
    pub name: String,
    pub batch: i64,
    pub m: Side,
    pub n: Side,
    pub arrange: Arrange,
    pub threads: u32,
    /// Blocks that share one fold axis; their partial sums are added in order by a second kernel.
    pub split: i64,
    /// Row tiles that are walked together, so that their operands stay in the cache.
    pub swizzle: i64,
    pub folds: Vec<FoldTile>,
    pub shared_bytes: u32,
    /// Blocks (or clusters of them) that take tile after tile while there are any, or else one for each tile.
    pub resident: Option<u32>,
    /// The tiles of the last wave, if blocks share their sums.
    pub tail: Option<Tail>,
    /// Blocks of a cluster: they make tiles that are neighbours along M, and each copies its part of B for all.
    pub cluster: u32,
    /// Whether they are neighbours along N instead, and each copies its part of A.
    pub across: bool,
    /// Blocks of a cluster that have a part of a tile's terms each and add their sums; `split` counts clusters.
    pub join: u32,
    /// Bytes of shared memory through which results go to memory; 0: they are stored from registers.
    pub staging: u32,
    /// Whether they go on as boxes; else lanes store them line by line.
    pub boxes: bool,
}

/// A last wave with fewer tiles than blocks that take them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    /// Tiles (or clusters' worth of them) before it.
    pub first: i64,
    /// Blocks that share the sum of each of its tiles.
    pub split: i64,
}

impl Tail {
    /// Pieces of the last wave, of so many tiles in all.
    pub fn parts(&self, tiles: i64) -> i64 {
        (tiles - self.first) * self.split
    }
}

/// The output along M or N, cut into tiles.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    pub dims: Vec<TileDim>,
    /// Rows (or columns) of a block, rounded up to what the atoms cover.
    pub block: u32,
}

/// Some digits of the output axes as one number, cut into blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct TileDim {
    pub name: String,
    /// Positions in the shape's digits of this side.
    pub digits: std::ops::Range<usize>,
    pub extent: i64,
    pub block: i64,
}

/// How the block's accumulator is spread over threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrange {
    /// `m` × `n` warps, each with atoms of 16 × 8.
    Warps { m: u32, n: u32 },
    /// `m` warpgroups of 64 rows (or some times that) each, beside one that loads.
    Groups { m: u32 },
    /// `rows` warps along the rows of 4-bit weights, `terms` along the terms, whose sums meet in shared memory.
    Codes { rows: u32, terms: u32 },
    /// `warps` warps along the terms of 4-bit weights, each with `segments` runs of 128 terms at a time, in `passes`.
    Stream { segments: u32, warps: u32, passes: u32 },
    /// `rows` × `cols` threads, each with `tm` × `tn` elements in runs of `vm` and `vn`.
    Threads { rows: u32, cols: u32, tm: u32, tn: u32, vm: u32, vn: u32 },
}

/// One sum of products: its main loop.
#[derive(Clone, Debug, PartialEq)]
pub struct FoldTile {
    /// Terms in all, terms of a step, and the step rounded up to the atom.
    pub terms: i64,
    pub step: i64,
    pub slot: u32,
    pub stages: u32,
    pub math: Math,
    pub a: Operand,
    pub b: Operand,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Math {
    /// `mma.sync` whose atom takes 32 bytes of K from each operand.
    Mma { kind: MmaKind, promote: bool },
    /// `wgmma` of 32 bytes of K, operands (of these dtypes) in shared memory. `promote`: each step's sums are added to
    /// f32 accumulators outside the tensor cores.
    Wgmma { dtypes: [DType; 2], promote: bool },
    /// Fused multiply-adds in registers.
    Fma(Ty),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmaKind {
    /// m16n8k16 of f16 or bf16.
    Half(DType),
    /// Two m16n8k8 of f16, for sm_75.
    HalfK8,
    /// m16n8k8
    Tf32,
    /// m16n8k32 of e4m3, e5m2, i8, u8.
    Byte(DType, DType),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// For printing.
    pub name: String,
    /// What its elements are in shared memory.
    pub dtype: DType,
    /// Whether K (else M or N) is the contiguous direction in shared memory.
    pub k_major: bool,
    pub place: Place,
    pub load: Load,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// 16-byte chunks, swizzled for `ldmatrix`.
    Chunks(SharedTile),
    /// Lines of 128 bytes in atoms of 8, swizzled for `wgmma`.
    Lines(u32),
    /// `rows` rows (K) of elements, `pitch` elements apart.
    Rows { rows: u32, pitch: u32 },
    /// Nowhere: it is loaded once and kept in registers.
    Registers,
}

/// How a tile comes to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// `cp.async` of this many bytes.
    Async(u32),
    /// Vector loads of this many bytes to registers, stored after the math.
    Vector(u32),
    /// Boxes through a tensor map, by one thread.
    Boxes,
    /// Pixels in a row through a tensor map, by one thread.
    Pixels,
    /// Each element is evaluated; neighbouring lanes along K or not.
    Elements { lanes_along_k: bool },
}

impl Side {
    pub fn tiles(&self) -> i64 {
        self.dims.iter().map(|d| d.tiles()).product()
    }

    /// Rows of a block that hold points.
    pub fn used(&self) -> i64 {
        self.dims.iter().map(|d| d.block).product()
    }

    pub fn points(&self) -> i64 {
        self.dims.iter().map(|d| d.extent).product()
    }
}

impl TileDim {
    pub fn tiles(&self) -> i64 {
        (self.extent + self.block - 1) / self.block
    }
}

impl Place {
    /// Bytes of one stage.
    pub fn bytes(&self, dtype: DType) -> u32 {
        match self {
            Place::Chunks(t) => t.bytes(),
            Place::Lines(lines) => lines * 128,
            Place::Rows { rows, pitch } => rows * pitch * dtype.bits() / 8,
            Place::Registers => 0,
        }
    }
}

impl FoldTile {
    /// Bytes of one stage of both operands.
    pub fn stage_bytes(&self) -> u32 {
        self.a.place.bytes(self.a.dtype) + self.b.place.bytes(self.b.dtype)
    }

    pub fn steps(&self) -> i64 {
        (self.terms + self.step - 1) / self.step
    }
}

impl Tile {
    /// Tiles along both sides, those that a cluster makes together as one. The last cluster may reach beyond the side.
    pub fn groups(&self) -> (i64, i64) {
        let along = |side: &Side, n: u32| (side.tiles() + n as i64 - 1) / n as i64;
        let (m, n) = if self.across { (1, self.cluster) } else { (self.cluster, 1) };
        (along(&self.m, m), along(&self.n, n))
    }

    /// Tiles in all; those that a cluster makes together count once.
    pub fn tiles(&self) -> i64 {
        let (m, n) = self.groups();
        self.batch * self.split * m * n
    }

    /// The pieces of work that blocks take: tiles, and parts of those of the last wave.
    pub fn count(&self) -> i64 {
        self.tail.map_or(self.tiles(), |t| t.first + t.parts(self.tiles()))
    }

    /// Checks the invariants.
    pub fn verify(&self) -> Result<(), String> {
        for (side, name) in [(&self.m, "m"), (&self.n, "n")] {
            if side.used() > side.block as i64 || side.dims.iter().any(|d| d.block < 1) {
                return Err(format!("{name}: {} rows in a block of {}", side.used(), side.block));
            }
        }
        let (m, n) = match self.arrange {
            Arrange::Warps { m, n } => (16 * m, 16 * n),
            Arrange::Groups { m } => (64 * m, 8),
            Arrange::Codes { .. } => (8, 8),
            Arrange::Stream { .. } => (1, 1),
            Arrange::Threads { rows, cols, tm, tn, .. } => (rows * tm, cols * tn),
        };
        if self.m.block % m != 0 || self.n.block % n != 0 {
            return Err(format!("block {}×{} over units of {m}×{n}", self.m.block, self.n.block));
        }
        let bytes = self.folds.iter().map(|f| f.stages * f.stage_bytes()).max().unwrap_or(0);
        if self.cluster < 1 {
            return Err("clusters without blocks".into());
        }
        let bytes = bytes + self.staging;
        if bytes > self.shared_bytes || self.folds.iter().any(|f| f.step > f.slot as i64 || f.stages == 0) {
            return Err(format!("{bytes} bytes of tiles in {} of shared memory", self.shared_bytes));
        }
        Ok(())
    }
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "tile {}: {} threads, {} bytes shared", self.name, self.threads, self.shared_bytes)?;
        writeln!(
            f,
            "  grid batch {} × split {} × m {} × n {}, walked in groups of {} rows of tiles",
            self.batch,
            self.split,
            self.m.tiles(),
            self.n.tiles(),
            self.swizzle
        )?;
        writeln!(f, "  block {} × {}", self.m, self.n)?;
        match self.arrange {
            Arrange::Warps { m, n } => {
                writeln!(f, "  accumulator {m}×{n} warps of {}×{}", self.m.block / m, self.n.block / n)?
            }
            Arrange::Groups { m } => writeln!(
                f,
                "  accumulator {m} warpgroups of {}×{}, beside one that loads",
                self.m.block / m,
                self.n.block
            )?,
            Arrange::Codes { rows, terms } => {
                writeln!(f, "  accumulator {rows} warps along the weights' rows, {terms} along the terms")?
            }
            Arrange::Stream { segments, warps, passes } => {
                let terms = 128 * segments;
                writeln!(f, "  accumulator {warps} warps along the terms, {passes} times {terms} terms each")?
            }
            Arrange::Threads { rows, cols, tm, tn, .. } => {
                writeln!(f, "  accumulator {rows}×{cols} threads of {tm}×{tn}")?
            }
        }
        self.folds.iter().try_for_each(|fold| write!(f, "{fold}"))?;
        if let Some(blocks) = self.resident {
            writeln!(
                f,
                "  {blocks} {} take tile after tile",
                if self.cluster > 1 { "clusters" } else { "blocks" }
            )?;
        }
        if let Some(tail) = self.tail {
            writeln!(
                f,
                "  {} share each tile from number {} on; a second kernel adds their parts",
                tail.split, tail.first
            )?;
        }
        if self.cluster > 1 {
            let (side, operand) = if self.across { ("n", "first") } else { ("m", "second") };
            writeln!(
                f,
                "  clusters of {} along {side} share the copies of the {operand} operand",
                self.cluster
            )?;
        }
        if self.join > 1 {
            writeln!(f, "  clusters of {} share the terms of a tile and add their sums", self.join)?;
        }
        match self.split {
            1 if self.staging > 0 => {
                let as_ = if self.boxes { "boxes" } else { "lines" };
                writeln!(f, "  map epilogue(accumulators) → shared, {} bytes, {as_} → global", self.staging)
            }
            1 => writeln!(f, "  map epilogue(accumulators) → global"),
            _ => writeln!(
                f,
                "  copy accumulators → workspace; a second kernel adds them and maps the epilogue"
            ),
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let dims: Vec<String> =
            self.dims.iter().map(|d| format!("{} {}/{}", d.name, d.block, d.extent)).collect();
        write!(f, "{} ({})", self.block, dims.join(", "))
    }
}

impl fmt::Display for FoldTile {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (steps, stages) = (self.steps(), self.stages);
        writeln!(
            f,
            "  pipeline {stages} stages over {} terms in {steps} steps of {}:",
            self.terms, self.step
        )?;
        writeln!(f, "    copy {}", self.a)?;
        writeln!(f, "    copy {}", self.b)?;
        writeln!(f, "    barrier")?;
        writeln!(f, "    {}", self.math)
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.place == Place::Registers {
            return write!(f, "{} → registers, once", self.name);
        }
        let order = if self.k_major { "k contiguous" } else { "k outermost" };
        write!(f, "{} → shared {} {order}, ", self.name, self.dtype.name())?;
        match self.place {
            Place::Chunks(t) => write!(f, "{t}, ")?,
            Place::Lines(lines) => write!(f, "{lines} lines of 128 bytes, swizzled, ")?,
            Place::Rows { rows, pitch } => write!(f, "{rows} rows of {pitch}, ")?,
            Place::Registers => {}
        }
        match self.load {
            Load::Boxes => write!(f, "boxes through a tensor map"),
            Load::Pixels => write!(f, "pixels in a row through a tensor map"),
            Load::Async(bytes) => write!(f, "cp.async {bytes} bytes"),
            Load::Vector(bytes) => write!(f, "vectors of {bytes} bytes"),
            Load::Elements { lanes_along_k: true } => write!(f, "by element along k"),
            Load::Elements { lanes_along_k: false } => write!(f, "by element"),
        }
    }
}

impl fmt::Display for Math {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Math::Wgmma { dtypes: [a, b], promote } => {
                write!(f, "wgmma m64k{} {}", 256 / a.bits(), a.name())?;
                if a != b {
                    write!(f, " {}", b.name())?;
                }
                if *promote { write!(f, ", promoted to f32 each step") } else { Ok(()) }
            }
            Math::Fma(ty) => write!(f, "fma {}", ty.name()),
            Math::Mma { kind, promote } => {
                match kind {
                    MmaKind::Half(d) => write!(f, "mma m16n8k16 {}", d.name())?,
                    MmaKind::HalfK8 => write!(f, "mma m16n8k8 f16")?,
                    MmaKind::Tf32 => write!(f, "mma m16n8k8 tf32")?,
                    MmaKind::Byte(a, b) => write!(f, "mma m16n8k32 {} {}", a.name(), b.name())?,
                }
                if *promote { write!(f, ", promoted to f32 each step") } else { Ok(()) }
            }
        }
    }
}
