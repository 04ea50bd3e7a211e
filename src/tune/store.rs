//! Where tuning records are, and what they are found by.

use crate::device::Device;
use crate::error::Result;
use crate::kernel::BoundOp;
use girih_autotune::database::{Database, Key};
use girih_compiler::ir::graph_text;
use girih_compiler::vocab::target::Target;
use girih_runtime::cache::digest;
use girih_runtime::{Cache, locate, nvrtc};
use std::path::PathBuf;

/// The user's records, in the folder of the cubins, over the read-only stores that `GIRIH_TUNED` lists (as `PATH` lists
/// folders) and the one that was shipped beside the program.
pub fn database() -> Database {
    let own = folder();
    let listed = std::env::var_os("GIRIH_TUNED").unwrap_or_default();
    let mut shipped: Vec<PathBuf> =
        std::env::split_paths(&listed).filter(|p| !p.as_os_str().is_empty()).collect();
    let beside =
        std::env::current_exe().ok().and_then(|e| Some(e.parent()?.parent()?.join("share/girih/tuned")));
    shipped.extend(beside.filter(|p| p.is_dir()));
    Database::new(own, shipped)
}

/// The user's records alone.
pub fn own() -> Database {
    Database::new(folder(), Vec::new())
}

fn folder() -> Option<PathBuf> {
    Cache::user().dir().map(|d| d.join("tuned"))
}

/// The key of an op on a device.
pub fn key(bound: &BoundOp, device: &Device) -> Result<Key> {
    Ok(key_for(bound, &description(device)?, &device.target()?))
}

/// The same for a device that is only known by its description.
pub fn key_for(bound: &BoundOp, device: &str, target: &Target) -> Key {
    let graph = bound.graph();
    let argument =
        |t: &girih_compiler::ir::graph::Tensor| format!("{} {} {}", t.name, t.dtype.name(), t.align);
    Key {
        op: bound.op().name().to_string(),
        text: digest(bound.op().kernel().plain_text().as_bytes()),
        consts: graph.consts.iter().map(|(n, v)| (n.clone(), format!("{v:?}"))).collect(),
        arguments: bound.inputs().map(argument).collect(),
        device: device.to_string(),
        target: target.name.to_string(),
        compiler: compiler(device, target),
        meaning: digest(without_places(&graph_text::print(graph)).as_bytes()),
        dims: graph.sizes.iter().cloned().collect(),
    }
}

/// What tells a device from another one for which the same choice need not hold.
pub fn description(device: &Device) -> Result<String> {
    Ok(match device {
        Device::Cuda(gpu) => {
            let i = gpu.info();
            format!("{}, {} SMs, {} GiB, driver {}", i.name, i.sms, i.memory >> 30, i.driver)
        }
        other => format!("sim {}", other.target()?.name),
    })
}

/// Versions that a choice depends on. The simulator needs no NVRTC.
fn compiler(device: &str, target: &Target) -> String {
    let version = env!("CARGO_PKG_VERSION");
    if device.starts_with("sim ") {
        return format!("girih {version}");
    }
    let library = locate::nvrtc().map_or_else(|_| "none".into(), |p| locate::fingerprint(&p));
    format!("girih {version}, nvrtc {library}, {}", nvrtc::options(target.name).join(" "))
}

/// A graph's text without the places in the source, which comments and spaces move.
fn without_places(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (i, part) in text.split('@').enumerate() {
        let kept = match i {
            0 => part,
            _ => part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ':'),
        };
        out += kept;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;

    fn key_of(text: &str, m: i64, consts: &[(&str, &str)]) -> Key {
        let op = Kernel::from_text("f.tile", text).unwrap().only_op().unwrap();
        let op = consts.iter().fold(op.dim("M", m).dim("N", 8), |op, (k, v)| op.constant(k, v));
        key(&op.bind().unwrap(), &Device::sim()).unwrap()
    }

    const TEXT: &str = "op f[T: float, M, N](x: T[M, N]) -> (y: T[M]) { y[m] = sum[n](x[m, n]) }";

    /// Fault C07: what must differ and what must not.
    #[test]
    fn keys_differ_by_what_matters_and_by_nothing_else() {
        let base = key_of(TEXT, 16, &[("T", "f16")]);
        let spaced = TEXT.replace(" { ", "  {\n // a remark\n ").replace("op f", "/// What it is.\nop  f");
        assert_eq!(base, key_of(&spaced, 16, &[("T", "f16")]), "cosmetic edits keep the key");
        assert_ne!(base, key_of(TEXT, 17, &[("T", "f16")]), "another size");
        assert_eq!(base.family(), key_of(TEXT, 17, &[("T", "f16")]).family());
        assert_ne!(base, key_of(TEXT, 16, &[("T", "bf16")]), "another dtype");
        assert_ne!(base.family(), key_of(TEXT, 16, &[("T", "bf16")]).family());
        let transposed = TEXT.replace("x: T[M, N]", "x: T[N, M]").replace("x[m, n]", "x[n, m]");
        assert_ne!(base, key_of(&transposed, 16, &[("T", "f16")]), "a transposed operand");
        let other = TEXT.replace("sum[n](x[m, n])", "sum[n](x[m, n] * 2)");
        assert_ne!(base.family(), key_of(&other, 16, &[("T", "f16")]).family(), "another meaning");
        let tiled = format!("{TEXT}\ntile f {{ threads = 64 }}");
        assert_ne!(base, key_of(&tiled, 16, &[("T", "f16")]), "another tile block");
        assert_ne!(
            base.family(),
            key_of(&tiled, 16, &[("T", "f16")]).family(),
            "what is near must obey its pins"
        );
        let bound = Kernel::from_text("f.tile", TEXT)
            .unwrap()
            .only_op()
            .unwrap()
            .dim("M", 16)
            .dim("N", 8)
            .constant("T", "f16");
        let bound = bound.bind().unwrap();
        let target = *Target::parse("sm_90a").unwrap();
        let on = |d: &str| key_for(&bound, d, &target);
        assert_ne!(
            on("NVIDIA H200, 132 SMs, 139 GiB, driver 13000"),
            on("NVIDIA H200, 66 SMs, 70 GiB, driver 13000")
        );
        assert_ne!(
            on("NVIDIA H200, 132 SMs, 139 GiB, driver 13000"),
            on("NVIDIA H200, 132 SMs, 139 GiB, driver 12090")
        );
        let narrow = bound.with_alignment(&[("x".to_string(), 2)].into());
        assert_ne!(key_for(&narrow, "d", &target), on("d"), "another alignment");
    }
}
