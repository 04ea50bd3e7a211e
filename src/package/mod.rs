//! `girih build`: an op for given buckets of sizes as a folder that runs without the compiler. It holds a cubin and its
//! readable CUDA text for each bucket, `manifest.json`, and a C header with a small launcher. [`Package`] loads the same
//! folder from Rust.

mod c;
pub mod law;
pub mod manifest;
pub mod ranges;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::execute::is_given;
use crate::kernel::{BoundOp, Op};
use crate::tune::choose::{configured, is_code};
use crate::tune::{lock, store};
use girih_autotune::database::{Entry, Key, Record, nearest};
use girih_compiler::vocab::dtype::Value;
use girih_compiler::vocab::target::Target;
use girih_runtime::cache::write_atomically;
use girih_runtime::compile::{Cubin, cubin};
use girih_runtime::launch::{Arguments, Prepared};
use girih_runtime::nvrtc::CompileReport;
use girih_runtime::{Cache, DevicePointer, Executable};
use manifest::{Argument, Bucket, Manifest, Range, Scalar};
use ranges::Covered;
pub use ranges::Point;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Builds an op for several points and what they cover into a folder; gives the files that were written.
pub fn build(points: &[Point], file: &Path, target: Target, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut manifest: Option<Manifest> = None;
    let mut files = Vec::new();
    let mut write = |name: &str, bytes: &[u8]| -> Result<()> {
        std::fs::create_dir_all(folder).map_err(|e| Error::file(folder, e.to_string()))?;
        let path = folder.join(name);
        write_atomically(&path, bytes).map_err(|e| Error::file(&path, format!("cannot be written: {e}")))?;
        files.push(path);
        Ok(())
    };
    for point in points {
        let chosen = chosen(&point.op, file, &target)?;
        let head = manifest.get_or_insert_with(|| head(&chosen.bound, &target));
        if head.arguments != arguments(&chosen.bound) || head.sizes.len() != chosen.bound.graph().sizes.len()
        {
            let what =
                "its arguments or dtypes differ between the points: build them into folders of their own";
            return Err(Error::argument(point.op.name(), what));
        }
        let Covered { mut range, parts } = ranges::cover(point, &chosen.bound, &target)?;
        if head.ranges.iter().any(|r| r.sizes == range.sizes) {
            continue;
        }
        let first = head.buckets.len() as i64;
        range.buckets.iter_mut().filter(|b| **b >= 0).for_each(|b| *b += first);
        let count = parts.len();
        for (i, part) in parts.into_iter().enumerate() {
            let name = bucket_name(head, &range, (count > 1).then_some(i));
            let made = cubin(point.op.name(), &part.cuda, target.name, &Cache::user())?;
            let bucket = chosen.told(Bucket { name, ..part.bucket });
            write(&bucket.cubin, &made.code)?;
            write(&bucket.source, part.cuda.as_bytes())?;
            head.buckets.push(bucket);
        }
        head.ranges.push(range);
    }
    let manifest = manifest.ok_or_else(|| Error::argument("op", "there is nothing to build"))?;
    let text = serde_json::to_string_pretty(&manifest).map_err(|e| Error::file(folder, e.to_string()))?;
    write("manifest.json", (text + "\n").as_bytes())?;
    write("girih_launch.h", c::LAUNCHER.as_bytes())?;
    write(&format!("{}.h", manifest.op), c::header(&manifest).as_bytes())?;
    Ok(files)
}

/// `f_M17-512_N4096`, and which of its parts.
fn bucket_name(m: &Manifest, range: &Range, part: Option<usize>) -> String {
    let size = |(name, [lo, hi]): (&String, &[i64; 2])| match lo == hi {
        true => format!("_{name}{lo}"),
        false => format!("_{name}{lo}-{hi}"),
    };
    let shape: String = m.sizes.iter().zip(&range.sizes).map(size).collect();
    let part = part.map_or(String::new(), |i| format!("_{}", i + 1));
    format!("{}{shape}{part}", m.op)
}

/// A point's op under what was chosen for it, and where that comes from.
struct Chosen {
    bound: BoundOp,
    choice: String,
    record: Option<Record>,
}

fn chosen(op: &Op, file: &Path, target: &Target) -> Result<Chosen> {
    let bound = op.bind()?;
    if !op.settings().kernels.is_empty() {
        return Ok(Chosen { bound, choice: "given".into(), record: None });
    }
    let device = Device::Simulator(*target);
    let (choice, record) = choice(&bound, file, target)?;
    let configured = record.as_ref().and_then(|r| configured(&bound, &r.configuration));
    let fits = |b: &BoundOp| match (b.compile_as_is(&device), &record) {
        (Ok(c), Some(r)) => choice != "tuned" || is_code(&c, r),
        _ => false,
    };
    Ok(match configured.filter(fits) {
        Some(bound) => Chosen { bound, choice, record },
        // A stale record, or one that does not compile any more.
        None => Chosen { bound, choice: "own".into(), record: None },
    })
}

impl Chosen {
    /// A bucket with what was chosen, and the names of its files.
    fn told(&self, bucket: Bucket) -> Bucket {
        let used = self.record.as_ref();
        Bucket {
            cubin: format!("{}.cubin", bucket.name),
            source: format!("{}.cu", bucket.name),
            choice: self.choice.clone(),
            fusion: used.map_or(String::new(), |r| r.configuration.fusion.clone()),
            schedule: self.bound.op().settings().to_string(),
            tuned_us: used.filter(|_| self.choice == "tuned").map(|r| r.us),
            ..bucket
        }
    }
}

fn head(bound: &BoundOp, target: &Target) -> Manifest {
    let graph = bound.graph();
    let known: BTreeMap<String, Value> = bound.scalars().0.into_iter().collect();
    let scalar = |s: &girih_compiler::ir::graph::Scalar| Scalar {
        name: s.name.clone(),
        dtype: s.dtype.name().into(),
        default: known.get(&s.name).map(|v| v.key().1),
    };
    Manifest {
        version: manifest::VERSION,
        girih: env!("CARGO_PKG_VERSION").into(),
        op: graph.op.clone(),
        target: target.name.into(),
        sizes: graph.sizes.iter().map(|s| s.0.clone()).collect(),
        arguments: arguments(bound),
        scalars: graph.scalars.iter().map(scalar).collect(),
        ranges: Vec::new(),
        buckets: Vec::new(),
    }
}

/// Inputs in the op's order, then results.
fn arguments(bound: &BoundOp) -> Vec<Argument> {
    let graph = bound.graph();
    let inout = |name: &str| graph.outputs.iter().any(|o| o.inout.is_some() && o.name == name);
    let given = graph.tensors.iter().filter(|t| is_given(t)).map(|t| Argument {
        name: t.name.clone(),
        dtype: t.dtype.name().into(),
        role: if inout(&t.name) { "inout" } else { "input" }.into(),
    });
    let made = graph.outputs.iter().filter(|o| o.inout.is_none()).map(|o| Argument {
        name: o.name.clone(),
        dtype: graph.tensor(o.tensor).dtype.name().into(),
        role: "output".into(),
    });
    given.chain(made).collect()
}

/// What is known of an op on any GPU of the target: the lock file's word, a record, the nearest record, nothing. What the
/// simulator's counters chose is no choice for a GPU.
fn choice(bound: &BoundOp, file: &Path, target: &Target) -> Result<(String, Option<Record>)> {
    let key = store::key_for(bound, "", target);
    let same = |k: &Key| {
        k.op == key.op
            && k.text == key.text
            && k.consts == key.consts
            && k.arguments == key.arguments
            && k.target == key.target
    };
    let gpu = |k: &Key| !k.device.starts_with("sim ");
    let mut locked = lock::entries(file)?.into_iter().filter(|(k, _)| gpu(k));
    if let Some((_, record)) = locked.find(|(k, _)| same(k) && k.meaning == key.meaning) {
        return Ok(("tuned".into(), Some(record)));
    }
    let all = store::database().all(&mut Vec::new());
    let measured: Vec<Entry> = all.into_iter().filter(|e| same(&e.key) && gpu(&e.key)).collect();
    if let Some(entry) = measured.iter().find(|e| e.key.meaning == key.meaning) {
        return Ok(("tuned".into(), Some(entry.record.clone())));
    }
    Ok(match nearest(&key.dims, &measured).filter(|n| n.0 <= 2.0) {
        Some((_, entry)) => ("near".into(), Some(entry.record.clone())),
        None => ("own".into(), None),
    })
}

/// Ranges that an error lists.
const LISTED: usize = 16;

/// A folder that `girih build` wrote, loaded for a GPU. Needs neither NVRTC nor the program's text.
pub struct Package {
    folder: PathBuf,
    manifest: Manifest,
    device: girih_runtime::Device,
    /// What was loaded, by the bucket.
    loaded: Mutex<HashMap<usize, Executable>>,
}

impl Package {
    pub fn open(folder: impl AsRef<Path>, device: &Device) -> Result<Package> {
        let Device::Cuda(gpu) = device else {
            return Err(Error::argument("device", "a package holds cubins: it needs a GPU"));
        };
        let manifest = read_manifest(folder.as_ref())?;
        let target = gpu.info().target()?.name;
        if manifest.target != target {
            let what = format!("it was built for {} and the device is {target}", manifest.target);
            return Err(Error::file(folder.as_ref(), what));
        }
        let folder = folder.as_ref().to_path_buf();
        Ok(Package { folder, manifest, device: gpu.clone(), loaded: Mutex::default() })
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The bucket for these sizes, by its number in the manifest. Takes well under a microsecond.
    pub fn bucket(&self, sizes: &[i64]) -> Option<usize> {
        self.manifest.find(sizes)
    }

    /// A bucket's code, which is loaded the first time.
    fn executable(&self, number: usize, bucket: &Bucket) -> Result<Executable> {
        let program = manifest::program(&self.manifest, bucket).map_err(|e| Error::file(&self.folder, e))?;
        let program = Arc::new(program);
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(executable) = loaded.get(&number) {
            return Ok(executable.with_program(program)?);
        }
        let path = self.folder.join(&bucket.cubin);
        let code = std::fs::read(&path).map_err(|e| Error::file(&path, e.to_string()))?;
        let cubin = Cubin { code, report: CompileReport::default(), from_cache: true, note: None };
        let executable = Executable::load(&self.device, program, &cubin)?;
        loaded.insert(number, executable.clone());
        Ok(executable)
    }

    /// A launch for these sizes, in the manifest's order.
    pub fn prepare(
        &self,
        sizes: &[i64],
        memory: &[(&str, DevicePointer)],
        scalars: &[(&str, Value)],
    ) -> Result<Prepared> {
        let found = self.manifest.bucket_at(sizes);
        let (number, bucket) = found.ok_or_else(|| no_bucket(&self.manifest, sizes))?;
        let executable = self.executable(number, &bucket)?;
        let given = |name: &str| scalars.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
        let unknown = scalars.iter().filter(|(n, _)| self.manifest.scalars.iter().all(|s| s.name != *n));
        let defaults = self
            .manifest
            .scalars
            .iter()
            .filter_map(|s| Some((s.name.clone(), given(&s.name).or(s.value())?)));
        let arguments = Arguments {
            buffers: memory.iter().map(|(n, p)| (n.to_string(), *p)).collect(),
            scalars: unknown.map(|(n, v)| (n.to_string(), *v)).chain(defaults).collect(),
            alignment: bucket.buffers.iter().filter_map(|b| Some((b.argument.clone()?, b.align))).collect(),
            workspace: None,
        };
        Ok(Prepared::new(&executable, &arguments)?)
    }
}

/// The ranges that there are, for who asked for other sizes.
pub fn no_bucket(m: &Manifest, sizes: &[i64]) -> Error {
    if sizes.len() != m.sizes.len() {
        let what = format!(
            "{} sizes were given, and {} has {}: {}",
            sizes.len(),
            m.op,
            m.sizes.len(),
            m.sizes.join(", ")
        );
        return Error::argument("sizes", what);
    }
    let one = |(name, [lo, hi]): (&String, &[i64; 2])| match lo == hi {
        true => format!("{name}={lo}"),
        false => format!("{name}={lo}..={hi}"),
    };
    let range = |r: &Range| m.sizes.iter().zip(&r.sizes).map(one).collect::<Vec<_>>().join(" ");
    let asked: Vec<String> = m.sizes.iter().zip(sizes).map(|(n, v)| format!("{n}={v}")).collect();
    let known: Vec<String> = m.ranges.iter().take(LISTED).map(range).collect();
    let more = m.ranges.len().saturating_sub(LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let asked = asked.join(" ");
    let (op, known) = (&m.op, known.join(", "));
    let inside = m.ranges.iter().any(|r| r.sizes.iter().zip(sizes).all(|([lo, hi], n)| lo <= n && n <= hi));
    let what = match inside {
        true => format!(
            "{asked} is refused by {op} itself: a `where` does not hold, or sizes do not follow from each other"
        ),
        false => format!(
            "{asked} is outside of what {op} was built for: {known}{more}; widen its profile block and build again"
        ),
    };
    Error::argument("sizes", what)
}

/// The manifest of a folder.
pub fn read_manifest(folder: &Path) -> Result<Manifest> {
    let path = folder.join("manifest.json");
    let text =
        std::fs::read_to_string(&path).map_err(|e| Error::file(&path, format!("cannot be read: {e}")))?;
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|e| Error::file(&path, format!("is no manifest: {e}")))?;
    match manifest.version {
        manifest::VERSION => Ok(manifest),
        other => Err(Error::file(&path, format!("has version {other} and {} is known", manifest::VERSION))),
    }
}
