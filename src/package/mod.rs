//! `girih build`: an op for given buckets of sizes as a folder that runs without the compiler. It holds a cubin and its
//! readable CUDA text for each bucket, `manifest.json`, and a C header with a small launcher. [`Package`] loads the same
//! folder from Rust.

mod c;
pub mod manifest;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::execute::{Compiled, is_given};
use crate::kernel::Op;
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
use manifest::{Argument, Bucket, Manifest, Scalar};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Builds an op at several points into a folder; gives the files that were written.
pub fn build(ops: &[Op], file: &Path, target: Target, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut manifest: Option<Manifest> = None;
    let mut files = Vec::new();
    let mut write = |name: &str, bytes: &[u8]| -> Result<()> {
        std::fs::create_dir_all(folder).map_err(|e| Error::file(folder, e.to_string()))?;
        let path = folder.join(name);
        write_atomically(&path, bytes).map_err(|e| Error::file(&path, format!("cannot be written: {e}")))?;
        files.push(path);
        Ok(())
    };
    for op in ops {
        let bound = op.bind()?;
        let device = Device::Simulator(target);
        let (choice, record) = choice(&bound, file, &target)?;
        let chosen = record.as_ref().and_then(|r| configured(&bound, &r.configuration));
        let (choice, compiled) = match chosen.map(|b| b.compile_as_is(&device)) {
            Some(Ok(c)) if choice != "tuned" || record.as_ref().is_some_and(|r| is_code(&c, r)) => {
                (choice, c)
            }
            // A stale record, or one that does not compile any more.
            _ => ("own".to_string(), bound.compile_as_is(&device)?),
        };
        let made = one(&compiled, &choice, record.as_ref(), &target)?;
        let head = manifest.get_or_insert_with(|| head(&compiled, &target));
        if head.arguments != arguments(&compiled) || head.sizes.len() != made.bucket.sizes.len() {
            let what =
                "its arguments or dtypes differ between the points: build them into folders of their own";
            return Err(Error::argument(op.name(), what));
        }
        if head.buckets.iter().any(|b| b.sizes == made.bucket.sizes) {
            continue;
        }
        write(&made.bucket.cubin, &made.cubin)?;
        write(&made.bucket.source, made.source.as_bytes())?;
        head.buckets.push(made.bucket);
    }
    let manifest = manifest.ok_or_else(|| Error::argument("op", "there is nothing to build"))?;
    let text = serde_json::to_string_pretty(&manifest).map_err(|e| Error::file(folder, e.to_string()))?;
    write("manifest.json", (text + "\n").as_bytes())?;
    write("girih_launch.h", c::LAUNCHER.as_bytes())?;
    write(&format!("{}.h", manifest.op), c::header(&manifest).as_bytes())?;
    Ok(files)
}

struct Made {
    bucket: Bucket,
    cubin: Vec<u8>,
    source: String,
}

fn one(compiled: &Compiled, choice: &str, record: Option<&Record>, target: &Target) -> Result<Made> {
    let bound = compiled.bound();
    let lowered = compiled.lowered().ok_or_else(|| Error::Refused("nothing was lowered".into()))?;
    let made = cubin(bound.op().name(), &lowered.cuda, target.name, &Cache::user())?;
    let graph = bound.graph();
    let sizes: Vec<(String, i64)> = graph.sizes.clone();
    let shape = sizes.iter().map(|(k, n)| format!("{k}{n}")).collect::<Vec<_>>().join("_");
    let name = if shape.is_empty() { graph.op.clone() } else { format!("{}_{shape}", graph.op) };
    let (buffers, kernels, steps) = manifest::rows(&lowered.program, &compiled.alignment());
    let settings = bound.op().settings().to_string();
    let used = record.filter(|_| choice != "own");
    let bucket = Bucket {
        cubin: format!("{name}.cubin"),
        source: format!("{name}.cu"),
        name,
        sizes: sizes.iter().map(|s| s.1).collect(),
        consts: graph.consts.iter().map(|(n, v)| (n.clone(), format!("{v:?}"))).collect(),
        choice: choice.into(),
        fusion: used.map_or(String::new(), |r| r.configuration.fusion.clone()),
        schedule: settings,
        tuned_us: used.filter(|_| choice == "tuned").map(|r| r.us),
        workspace: compiled.workspace_bytes(),
        buffers,
        kernels,
        steps,
        faults: lowered.program.faults.len(),
    };
    Ok(Made { bucket, cubin: made.code, source: lowered.cuda.clone() })
}

fn head(compiled: &Compiled, target: &Target) -> Manifest {
    let bound = compiled.bound();
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
        arguments: arguments(compiled),
        scalars: graph.scalars.iter().map(scalar).collect(),
        buckets: Vec::new(),
    }
}

/// Inputs in the op's order, then results.
fn arguments(compiled: &Compiled) -> Vec<Argument> {
    let graph = compiled.bound().graph();
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
fn choice(bound: &crate::kernel::BoundOp, file: &Path, target: &Target) -> Result<(String, Option<Record>)> {
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

/// Buckets that an error lists.
const LISTED: usize = 16;

/// A folder that `girih build` wrote, loaded for a GPU. Needs neither NVRTC nor the program's text.
pub struct Package {
    folder: PathBuf,
    manifest: Manifest,
    device: girih_runtime::Device,
    /// Buckets by their sizes, and what was loaded of them.
    by_sizes: HashMap<Vec<i64>, usize>,
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
        let sizes = manifest.buckets.iter().enumerate().map(|(i, b)| (b.sizes.clone(), i));
        let (by_sizes, folder) = (sizes.collect(), folder.as_ref().to_path_buf());
        Ok(Package { folder, manifest, device: gpu.clone(), by_sizes, loaded: Mutex::default() })
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The bucket for these sizes, by its number in the manifest. Takes well under a microsecond.
    pub fn bucket(&self, sizes: &[i64]) -> Option<usize> {
        self.by_sizes.get(sizes).copied()
    }

    /// A bucket's code, which is loaded the first time.
    fn executable(&self, number: usize) -> Result<Executable> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(executable) = loaded.get(&number) {
            return Ok(executable.clone());
        }
        let bucket = &self.manifest.buckets[number];
        let path = self.folder.join(&bucket.cubin);
        let code = std::fs::read(&path).map_err(|e| Error::file(&path, e.to_string()))?;
        let program = manifest::program(&self.manifest, bucket).map_err(|e| Error::file(&self.folder, e))?;
        let cubin = Cubin { code, report: CompileReport::default(), from_cache: true, note: None };
        let executable = Executable::load(&self.device, Arc::new(program), &cubin)?;
        loaded.insert(number, executable.clone());
        Ok(executable)
    }

    /// The sizes that there are, for who asked for others.
    fn no_bucket(&self, sizes: &[i64]) -> Error {
        let m = &self.manifest;
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
        let named = |sizes: &[i64]| {
            let all: Vec<String> = m.sizes.iter().zip(sizes).map(|(n, v)| format!("{n}={v}")).collect();
            all.join(" ")
        };
        let known: Vec<String> = m.buckets.iter().take(LISTED).map(|b| named(&b.sizes)).collect();
        let more = m.buckets.len().saturating_sub(LISTED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let what = format!(
            "{} is no bucket of {}: kernels hold for their exact sizes, and there are {}{more}; add it to the op's profile block and build again",
            named(sizes),
            m.op,
            known.join(", ")
        );
        Error::argument("sizes", what)
    }

    /// A launch for a bucket's sizes, in the manifest's order.
    pub fn prepare(
        &self,
        sizes: &[i64],
        memory: &[(&str, DevicePointer)],
        scalars: &[(&str, Value)],
    ) -> Result<Prepared> {
        let number = self.bucket(sizes).ok_or_else(|| self.no_bucket(sizes))?;
        let executable = self.executable(number)?;
        let bucket = &self.manifest.buckets[number];
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
