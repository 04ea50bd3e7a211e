//! `girih doctor`: what is there, and what is wrong with the remedy.

use super::Outcome;
use girih::tune::store;
use girih_runtime::error::version_text;
use girih_runtime::nvrtc::{Nvrtc, arch_number};
use girih_runtime::{Cache, DeviceInfo, device, driver};
use serde::Serialize;

#[derive(Serialize)]
struct Report {
    version: &'static str,
    driver: Option<String>,
    gpus: Vec<Gpu>,
    nvrtc: Option<NvrtcReport>,
    cache: CacheReport,
    /// What is wrong, each with its remedy.
    problems: Vec<String>,
    /// What a run with `--device auto` uses.
    auto: &'static str,
}

#[derive(Serialize)]
struct Gpu {
    ordinal: usize,
    name: String,
    compute: String,
    target: Option<&'static str>,
    sms: u32,
    memory_bytes: u64,
}

#[derive(Serialize)]
struct NvrtcReport {
    path: String,
    version: String,
    archs: Vec<u32>,
}

#[derive(Serialize)]
struct CacheReport {
    path: Option<String>,
    cubins: usize,
    /// Of the cubins.
    bytes: u64,
    /// Tuning records, which lie in a folder of their own in it.
    records: usize,
    corrupt: usize,
}

pub fn doctor(json: bool) -> Outcome {
    let report = examine();
    if json {
        println!("{}", serde_json::to_string_pretty(&report).expect("a plain structure"));
    } else {
        print(&report);
    }
    Outcome::Right
}

fn examine() -> Report {
    let mut problems = Vec::new();
    let mut note = |e: girih_runtime::Error| problems.push(e.to_string());
    let driver = driver::start().map_err(&mut note).ok();
    let devices = driver.map(|_| device::list().map_err(&mut note).unwrap_or_default()).unwrap_or_default();
    let nvrtc = Nvrtc::get().map_err(&mut note).ok();
    if driver.is_some() && devices.is_empty() {
        problems.push("the driver shows no GPU (CUDA_VISIBLE_DEVICES may hide it): use --device sim".into());
    }
    problems.extend(devices.iter().filter_map(|d| unusable(d, nvrtc)));
    let (cache, trouble) = examine_cache();
    problems.extend(trouble);
    let usable = nvrtc.is_some() && devices.iter().any(|d| unusable(d, nvrtc).is_none());
    Report {
        version: env!("CARGO_PKG_VERSION"),
        driver: driver.map(version_text),
        gpus: devices.into_iter().map(gpu).collect(),
        nvrtc: nvrtc.map(|n| NvrtcReport {
            path: n.path().display().to_string(),
            version: format!("{}.{}", n.version().0, n.version().1),
            archs: n.archs().to_vec(),
        }),
        cache,
        problems,
        auto: if usable { "cuda" } else { "sim" },
    }
}

/// Why a device cannot be compiled for.
fn unusable(d: &DeviceInfo, nvrtc: Option<&Nvrtc>) -> Option<String> {
    let target = match d.target() {
        Ok(t) => t,
        Err(e) => return Some(e.to_string()),
    };
    let nvrtc = nvrtc?;
    if arch_number(target.name).is_some_and(|a| nvrtc.archs().contains(&a)) {
        return None;
    }
    nvrtc.check_arch(target.name).err().map(|e| e.to_string())
}

fn gpu(d: DeviceInfo) -> Gpu {
    let target = d.target().ok().map(|t| t.name);
    let compute = format!("{}.{}", d.compute.0, d.compute.1);
    Gpu { ordinal: d.ordinal, name: d.name, compute, target, sms: d.sms, memory_bytes: d.memory }
}

fn examine_cache() -> (CacheReport, Option<String>) {
    let cache = Cache::user();
    let health = cache.health();
    let path = cache.dir().map(|d| d.display().to_string());
    let report = CacheReport {
        path,
        cubins: health.entries,
        bytes: health.bytes,
        records: store::own().all(&mut Vec::new()).len(),
        corrupt: health.corrupt,
    };
    let trouble = match (cache.note(), health.corrupt) {
        (Some(note), _) => Some(format!("{note}: set GIRIH_CACHE to a folder that can be written")),
        (None, 0) => None,
        (None, n) => {
            Some(format!("{n} cache entries are damaged: they will be made again when they are needed"))
        }
    };
    (report, trouble)
}

/// `1 cubin`, `2 cubins`.
fn counted(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn print(r: &Report) {
    println!("girih   {}", r.version);
    println!("driver  {}", r.driver.as_ref().map_or("none".into(), |v| format!("CUDA {v}")));
    for g in &r.gpus {
        let memory = g.memory_bytes >> 30;
        let target = g.target.unwrap_or("not supported");
        println!(
            "gpu {}   {}, {} SMs, {memory} GiB, compute {} ({target})",
            g.ordinal, g.name, g.sms, g.compute
        );
    }
    if r.gpus.is_empty() {
        println!("gpu     none");
    }
    match &r.nvrtc {
        Some(n) => {
            let archs: Vec<String> = n.archs.iter().map(u32::to_string).collect();
            println!("nvrtc   {} at {}, for sm_{}", n.version, n.path, archs.join(" "));
        }
        None => println!("nvrtc   none"),
    }
    let c = &r.cache;
    match &c.path {
        Some(path) => println!(
            "cache   {path}: {}, {:.1} MB; {}",
            counted(c.cubins, "cubin"),
            c.bytes as f64 / 1e6,
            counted(c.records, "tuning record")
        ),
        None => println!("cache   none"),
    }
    println!("auto    --device auto means {}", r.auto);
    for p in &r.problems {
        println!("! {p}");
    }
}
