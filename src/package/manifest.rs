//! `manifest.json`: what a package holds and how it is launched, for programs to read. `docs/manifest.schema.json` is
//! its schema. Everything that a launch needs is in it, so that a program can be rebuilt from it without the compiler.

use super::law::Law;
use girih_compiler::ir::graph::{ScalarId, TensorId};
use girih_compiler::ir::program::{self, Arg, BufferId, BufferRole, Program};
use girih_compiler::ir::simt::{
    Intrinsic, Kernel, Param, ParamKind, Pixels, Shared, Stmt, Swizzle, TensorMap, Ty,
};
use girih_compiler::vocab::dtype::{DType, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const VERSION: u32 = 2;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub version: u32,
    pub girih: String,
    pub op: String,
    pub target: String,
    /// Names of the sizes, in the order of a bucket's.
    pub sizes: Vec<String>,
    pub arguments: Vec<Argument>,
    pub scalars: Vec<Scalar>,
    pub ranges: Vec<Range>,
    pub buckets: Vec<Bucket>,
}

/// Sizes that a package covers: all combinations, but for those that the op itself refuses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// Least and greatest of each size, in the manifest's order.
    pub sizes: Vec<[i64; 2]>,
    /// Of a size that follows from the others, by its place: how.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub derived: BTreeMap<usize, Law>,
    /// The bucket of each combination, the last size changing fastest: -1 where there is none. One number stands for all.
    pub buckets: Vec<i64>,
}

impl Range {
    /// Which combination these sizes are.
    fn place(&self, sizes: &[i64]) -> Option<usize> {
        let mut place = 0usize;
        for (i, (&n, &[lo, hi])) in sizes.iter().zip(&self.sizes).enumerate() {
            if n < lo || n > hi {
                return None;
            }
            if !self.derived.contains_key(&i) {
                place = place * (hi - lo + 1) as usize + (n - lo) as usize;
            }
        }
        Some(place)
    }

    fn bucket_at(&self, place: usize) -> Option<usize> {
        let number = if self.buckets.len() == 1 { self.buckets[0] } else { *self.buckets.get(place)? };
        usize::try_from(number).ok()
    }

    /// The bucket for these sizes.
    pub fn bucket(&self, sizes: &[i64]) -> Option<usize> {
        let place = self.place(sizes)?;
        let found = self.bucket_at(place)?;
        let follows = |(&i, law): (&usize, &Law)| law.at(sizes, self.before(place, None)) == Some(sizes[i]);
        self.derived.iter().all(follows).then_some(found)
    }

    /// Combinations before one that have a bucket, or this bucket.
    fn before(&self, place: usize, bucket: Option<usize>) -> usize {
        let counts = |p: &usize| self.bucket_at(*p).is_some_and(|b| bucket.is_none_or(|w| w == b));
        match self.buckets.len() {
            1 => place,
            _ => (0..place).filter(counts).count(),
        }
    }
}

impl Manifest {
    /// The bucket for these sizes, by its number. Takes well under a microsecond.
    pub fn find(&self, sizes: &[i64]) -> Option<usize> {
        if sizes.len() != self.sizes.len() {
            return None;
        }
        self.ranges.iter().find_map(|r| r.bucket(sizes))
    }

    /// A bucket as it stands at these sizes.
    pub fn bucket_at(&self, sizes: &[i64]) -> Option<(usize, Bucket)> {
        let range = self.ranges.iter().find(|r| r.bucket(sizes).is_some())?;
        let number = range.bucket(sizes)?;
        let mut bucket = self.buckets.get(number)?.clone();
        let place = range.before(range.place(sizes)?, Some(number));
        let laws: BTreeMap<Place, &Law> = bucket.varying.iter().map(|v| (v.place, &v.law)).collect();
        let mut values = BTreeMap::new();
        for (at, law) in laws {
            values.insert(at, law.at(sizes, place)?);
        }
        each_number(&mut bucket, &mut |at, n| values.get(&at).copied().unwrap_or(n));
        bucket.sizes = sizes.to_vec();
        Some((number, bucket))
    }
}

/// A number of a bucket that sizes may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    Dim {
        buffer: usize,
        dim: usize,
    },
    Bytes {
        buffer: usize,
    },
    Grid {
        kernel: usize,
        dim: usize,
    },
    MapOffset {
        kernel: usize,
        param: usize,
    },
    MapDim {
        kernel: usize,
        param: usize,
        dim: usize,
    },
    MapStride {
        kernel: usize,
        param: usize,
        dim: usize,
    },
    /// Of a launch, counted in order.
    Argument {
        launch: usize,
        argument: usize,
    },
    /// How often the n-th repeat runs.
    Count {
        repeat: usize,
    },
    Workspace,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Varying {
    pub place: Place,
    pub law: Law,
}

/// Calls `f` with every number of a bucket that sizes may change, in order; it gives the new one.
pub fn each_number(b: &mut Bucket, f: &mut dyn FnMut(Place, i64) -> i64) {
    for (buffer, row) in b.buffers.iter_mut().enumerate() {
        for (dim, n) in row.dims.iter_mut().enumerate() {
            *n = f(Place::Dim { buffer, dim }, *n);
        }
        row.bytes = f(Place::Bytes { buffer }, row.bytes);
    }
    for (kernel, row) in b.kernels.iter_mut().enumerate() {
        for (dim, n) in row.grid.iter_mut().enumerate() {
            *n = f(Place::Grid { kernel, dim }, i64::from(*n)) as u32;
        }
        for (param, p) in row.params.iter_mut().enumerate() {
            let ParamRow::TensorMap(m) = p else { continue };
            m.offset = f(Place::MapOffset { kernel, param }, m.offset);
            for (dim, n) in m.dims.iter_mut().enumerate() {
                *n = f(Place::MapDim { kernel, param, dim }, *n);
            }
            for (dim, n) in m.strides.iter_mut().enumerate() {
                *n = f(Place::MapStride { kernel, param, dim }, *n);
            }
        }
    }
    each_step(&mut b.steps, &mut (0, 0), f);
    b.workspace = f(Place::Workspace, b.workspace as i64) as u64;
}

/// `counts` are the launches and repeats before.
fn each_step(steps: &mut [StepRow], counts: &mut (usize, usize), f: &mut dyn FnMut(Place, i64) -> i64) {
    for s in steps {
        match s {
            StepRow::Launch { args, .. } => {
                let launch = counts.0;
                counts.0 += 1;
                for (argument, a) in args.iter_mut().enumerate() {
                    if let ArgRow::Value(bits) = a {
                        *bits = f(Place::Argument { launch, argument }, *bits as i64) as u64;
                    }
                }
            }
            StepRow::Repeat { count, steps } => {
                let repeat = counts.1;
                counts.1 += 1;
                *count = f(Place::Count { repeat }, *count);
                each_step(steps, counts, f);
            }
            StepRow::Fill { .. } | StepRow::Copy { .. } => {}
        }
    }
}

/// What the caller gives, in order. Dims are each bucket's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    pub name: String,
    pub dtype: String,
    /// `input`, `inout` or `output`
    pub role: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scalar {
    pub name: String,
    pub dtype: String,
    /// The bits of its default.
    pub default: Option<u64>,
}

impl Scalar {
    /// Its default.
    pub fn value(&self) -> Option<Value> {
        Some(Value::of_bits(DType::parse(&self.dtype)?.compute(), self.default?))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    pub name: String,
    /// What the numbers below stand for; `varying` says which of them are others at other sizes.
    pub sizes: Vec<i64>,
    pub consts: BTreeMap<String, String>,
    pub cubin: String,
    pub source: String,
    /// `tuned`, `near` or `own`, the settings, and the time that was measured.
    pub choice: String,
    pub fusion: String,
    pub schedule: String,
    pub tuned_us: Option<f64>,
    pub workspace: u64,
    pub buffers: Vec<Buffer>,
    pub kernels: Vec<KernelRow>,
    pub steps: Vec<StepRow>,
    pub faults: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub varying: Vec<Varying>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Buffer {
    pub name: String,
    pub dtype: String,
    pub dims: Vec<i64>,
    pub bytes: i64,
    /// `input`, `inout`, `output`, `workspace`, `constant` or `fault`
    pub role: String,
    /// Bytes that its address is a multiple of.
    pub align: u32,
    /// The user's name where it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelRow {
    pub name: String,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    /// Bytes of shared memory that it uses.
    pub shared: u32,
    /// It waits itself for the kernel before it, and may be launched before that one has ended.
    #[serde(default)]
    pub early: bool,
    pub params: Vec<ParamRow>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParamRow {
    Pointer,
    Scalar,
    TensorMap(MapRow),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MapRow {
    pub dtype: String,
    pub offset: i64,
    pub dims: Vec<i64>,
    pub strides: Vec<i64>,
    pub extent: Vec<u32>,
    /// Bytes of a row: 16 is none.
    pub swizzle: u32,
    /// Pixels in a row: lower and upper corner, and step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pixels: Option<(Vec<i32>, Vec<i32>, Vec<u32>)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepRow {
    Launch { kernel: usize, args: Vec<ArgRow> },
    Fill { buffer: u32, byte: u8 },
    Copy { from: u32, to: u32 },
    Repeat { count: i64, steps: Vec<StepRow> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgRow {
    Buffer(u32),
    Scalar(u32),
    /// The bits.
    Value(u64),
    Counter,
}

/// A bucket's program: `align` says what each argument's address must be a multiple of.
pub fn rows(p: &Program, align: &BTreeMap<String, u32>) -> (Vec<Buffer>, Vec<KernelRow>, Vec<StepRow>) {
    let buffers = p.buffers.iter().map(|b| buffer(b, align)).collect();
    (buffers, p.kernels.iter().map(kernel).collect(), p.steps.iter().map(step).collect())
}

pub fn role(b: &BufferRole) -> &'static str {
    match b {
        BufferRole::Input(_) => "input",
        BufferRole::Inout(..) => "inout",
        BufferRole::Output(_) => "output",
        BufferRole::Workspace => "workspace",
        BufferRole::Constant(_) => "constant",
        BufferRole::Fault => "fault",
    }
}

fn buffer(b: &program::Buffer, align: &BTreeMap<String, u32>) -> Buffer {
    let argument = girih_runtime::launch::argument_name(b).map(str::to_string);
    let element = b.dtype.bits().div_ceil(8);
    let own = argument.as_ref().and_then(|n| align.get(n)).copied().unwrap_or(element).max(element).min(16);
    let data = match &b.role {
        BufferRole::Constant(bytes) => bytes.clone(),
        _ => Vec::new(),
    };
    Buffer {
        name: b.name.clone(),
        dtype: b.dtype.name().into(),
        dims: b.dims.clone(),
        bytes: b.bytes,
        role: role(&b.role).into(),
        align: own,
        argument,
        data,
    }
}

fn kernel(k: &Kernel) -> KernelRow {
    let params = k.params.iter().map(|p| match &p.kind {
        ParamKind::Pointer { .. } => ParamRow::Pointer,
        ParamKind::Scalar(_) => ParamRow::Scalar,
        ParamKind::TensorMap(m) => ParamRow::TensorMap(MapRow {
            dtype: m.dtype.name().into(),
            offset: m.offset,
            dims: m.dims.clone(),
            strides: m.strides.clone(),
            extent: m.extent.clone(),
            swizzle: m.swizzle.width(),
            pixels: m.pixels.as_ref().map(|p| (p.lower.clone(), p.upper.clone(), p.step.clone())),
        }),
    });
    KernelRow {
        name: k.name.clone(),
        grid: k.grid,
        block: k.block,
        cluster: k.cluster,
        shared: k.shared_bytes(),
        early: k.starts_early(),
        params: params.collect(),
    }
}

fn step(s: &program::Step) -> StepRow {
    match s {
        program::Step::Launch(l) => {
            let arg = |a: &Arg| match a {
                Arg::Buffer(b) => ArgRow::Buffer(b.0),
                Arg::Scalar(s) => ArgRow::Scalar(s.0),
                Arg::Const(v) => ArgRow::Value(v.key().1),
                Arg::Counter => ArgRow::Counter,
            };
            StepRow::Launch { kernel: l.kernel, args: l.args.iter().map(arg).collect() }
        }
        program::Step::Fill { buffer, byte } => StepRow::Fill { buffer: buffer.0, byte: *byte },
        program::Step::Copy { from, to } => StepRow::Copy { from: from.0, to: to.0 },
        program::Step::Repeat { count, steps } => {
            StepRow::Repeat { count: *count, steps: steps.iter().map(step).collect() }
        }
    }
}

/// The program of a bucket again, with kernels that have no bodies: what a launch needs.
pub fn program(m: &Manifest, b: &Bucket) -> Result<Program, String> {
    let dtype = |name: &str| DType::parse(name).ok_or_else(|| format!("there is no dtype {name}"));
    let mut p = Program { name: m.op.clone(), ..Program::default() };
    for s in &m.scalars {
        p.scalars.push((s.name.clone(), dtype(&s.dtype)?));
    }
    for (i, row) in b.buffers.iter().enumerate() {
        let name = row.argument.clone().unwrap_or_default();
        let role = match row.role.as_str() {
            "input" => BufferRole::Input(TensorId(i as u32)),
            "inout" => BufferRole::Inout(TensorId(i as u32), name),
            "output" => BufferRole::Output(name),
            "workspace" => BufferRole::Workspace,
            "constant" => BufferRole::Constant(row.data.clone()),
            "fault" => BufferRole::Fault,
            other => return Err(format!("a buffer is no {other}")),
        };
        let (dtype, dims, bytes) = (dtype(&row.dtype)?, row.dims.clone(), row.bytes);
        p.buffers.push(program::Buffer { name: row.name.clone(), dtype, dims, bytes, role });
    }
    for row in &b.kernels {
        p.kernels.push(bodiless(row, &dtype)?);
    }
    p.steps = b.steps.iter().map(|s| step_back(s, b)).collect::<Result<_, _>>()?;
    let site = program::FaultSite {
        tensor: String::new(),
        dim: 0,
        lo: 0,
        hi: 0,
        span: Default::default(),
        what: program::FaultKind::Read,
    };
    p.faults = vec![site; b.faults];
    Ok(p)
}

fn bodiless(row: &KernelRow, dtype: &dyn Fn(&str) -> Result<DType, String>) -> Result<Kernel, String> {
    let mut k = Kernel {
        name: row.name.clone(),
        grid: row.grid,
        block: row.block,
        cluster: row.cluster,
        ..Kernel::default()
    };
    if row.shared > 0 {
        k.shared.push(Shared { name: "all".into(), dtype: DType::U8, len: row.shared, align: 16 });
    }
    if row.early {
        k.body.push(Stmt::Intrinsic { op: Intrinsic::GridWait, outs: Vec::new(), args: Vec::new() });
    }
    for (i, p) in row.params.iter().enumerate() {
        let kind = match p {
            ParamRow::Pointer => ParamKind::Pointer { dtype: DType::U8, len: 0, written: true },
            ParamRow::Scalar => ParamKind::Scalar(Ty::I64),
            ParamRow::TensorMap(m) => ParamKind::TensorMap(TensorMap {
                dtype: dtype(&m.dtype)?,
                offset: m.offset,
                dims: m.dims.clone(),
                strides: m.strides.clone(),
                extent: m.extent.clone(),
                swizzle: match m.swizzle {
                    32 => Swizzle::B32,
                    64 => Swizzle::B64,
                    128 => Swizzle::B128,
                    _ => Swizzle::None,
                },
                pixels: m.pixels.clone().map(|(lower, upper, step)| Pixels { lower, upper, step }),
            }),
        };
        k.params.push(Param { name: format!("p{i}"), kind });
    }
    Ok(k)
}

/// Numbers that point outside are refused: a manifest is a file like any other.
fn step_back(s: &StepRow, b: &Bucket) -> Result<program::Step, String> {
    let buffer = |i: u32| match (i as usize) < b.buffers.len() {
        true => Ok(BufferId(i)),
        false => Err(format!("there is no buffer {i}")),
    };
    Ok(match s {
        StepRow::Launch { kernel, args } => {
            let row = b.kernels.get(*kernel).ok_or_else(|| format!("there is no kernel {kernel}"))?;
            if row.params.len() != args.len() {
                return Err(format!(
                    "{} takes {} arguments and gets {}",
                    row.name,
                    row.params.len(),
                    args.len()
                ));
            }
            let arg = |a: &ArgRow| {
                Ok::<Arg, String>(match a {
                    ArgRow::Buffer(i) => Arg::Buffer(buffer(*i)?),
                    ArgRow::Scalar(i) => Arg::Scalar(ScalarId(*i)),
                    ArgRow::Value(bits) => Arg::Const(Value::I64(*bits as i64)),
                    ArgRow::Counter => Arg::Counter,
                })
            };
            let args = args.iter().map(arg).collect::<Result<_, _>>()?;
            program::Step::Launch(program::Launch { kernel: *kernel, args })
        }
        StepRow::Fill { buffer: i, byte } => program::Step::Fill { buffer: buffer(*i)?, byte: *byte },
        StepRow::Copy { from, to } => program::Step::Copy { from: buffer(*from)?, to: buffer(*to)? },
        StepRow::Repeat { count, steps } => {
            let steps = steps.iter().map(|s| step_back(s, b)).collect::<Result<_, _>>()?;
            program::Step::Repeat { count: *count, steps }
        }
    })
}
