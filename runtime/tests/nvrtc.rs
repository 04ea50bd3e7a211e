//! The real NVRTC, where one is found: no GPU is needed. Without one the tests say so and do nothing else; CI
//! installs one first.

use girih_runtime::compile::cubin;
use girih_runtime::nvrtc::{Nvrtc, arch_number};
use girih_runtime::{Cache, Error, locate};
use std::path::{Path, PathBuf};

const SOURCE: &str = r#"
extern "C" __global__ void __launch_bounds__(128) scale(const float* __restrict__ x, float* y, long long n) {
    long long i = (long long)blockIdx.x * 128 + threadIdx.x;
    if (i < n) y[i] = x[i] * 2.0f;
}
"#;

/// The library; with `GIRIH_NEED_NVRTC` set its absence is a failure.
fn nvrtc() -> Option<&'static Nvrtc> {
    match Nvrtc::get() {
        Ok(n) => Some(n),
        Err(e) => {
            assert!(std::env::var_os("GIRIH_NEED_NVRTC").is_none(), "{e}");
            eprintln!("skipped: {e}");
            None
        }
    }
}

fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("girih-nvrtc-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

#[test]
fn compiles_for_every_target_that_it_knows() {
    let Some(nvrtc) = nvrtc() else { return };
    let mut done = 0;
    for target in girih_compiler::vocab::target::TARGETS {
        if !nvrtc.archs().contains(&arch_number(target.name).unwrap()) {
            continue;
        }
        let compiled = nvrtc.compile("scale", SOURCE, target.name).unwrap();
        assert!(compiled.cubin.starts_with(b"\x7fELF"), "{}", target.name);
        let kernel = &compiled.report.kernels[0];
        assert_eq!(kernel.name, "scale");
        assert!(kernel.registers > 0 && compiled.report.spills() == 0, "{:?}", compiled.report);
        done += 1;
    }
    assert!(done >= 6, "only {done} targets");
    let ptx = nvrtc.ptx("scale", SOURCE, "sm_90a").unwrap();
    assert!(ptx.contains(".target sm_90a") && ptx.contains(".entry scale"), "{ptx}");
}

#[test]
fn a_spill_is_seen() {
    let Some(nvrtc) = nvrtc() else { return };
    let many: String = (0..64).map(|i| format!("    acc[{i}] += x[{i} * n] * (float)n;\n")).collect();
    let sum: String = (0..64).map(|i| format!(" + acc[{i}] * acc[{}]", (i * 7) % 64)).collect();
    let source = format!(
        "extern \"C\" __global__ void __launch_bounds__(1024) spill(const float* x, float* y, int n) {{\n\
         float acc[64] = {{}};\nfor (int i = 0; i < n; ++i) {{\n{many} }}\n__syncthreads();\ny[threadIdx.x] = 0.0f{sum};\n}}\n"
    );
    let report = nvrtc.compile("spill", &source, "sm_90a").unwrap().report;
    assert!(report.spills() > 0, "{}", report.log);
}

#[test]
fn a_failure_is_typed_and_leaves_nothing_behind() {
    if nvrtc().is_none() {
        return;
    }
    let dir = folder("failure");
    let cache = Cache::at(&dir, 1 << 20);
    let broken = SOURCE.replace("y[i] = x[i]", "y[i] = z[i]");
    let Error::Compile(e) = cubin("scale", &broken, "sm_90a", &cache).unwrap_err() else {
        panic!("another error")
    };
    assert_eq!(e.line.as_ref().unwrap().0, 4);
    let text = e.to_string();
    assert!(e.program == "scale" && text.contains("z[i]") && text.contains("undefined"), "{text}");
    assert_eq!(cache.health().entries, 0);
    let good = cubin("scale", SOURCE, "sm_90a", &cache).unwrap();
    let again = cubin("scale", SOURCE, "sm_90a", &cache).unwrap();
    assert!(!good.from_cache && again.from_cache && good.code == again.code);
    assert_eq!(good.report.kernels, again.report.kernels);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn an_unknown_architecture_names_both_sides() {
    let Some(nvrtc) = nvrtc() else { return };
    for arch in ["sm_129", "sm_50", "nonsense"] {
        let text = nvrtc.compile("scale", SOURCE, arch).unwrap_err().to_string();
        assert!(text.contains(arch) && text.contains("sm_90") && text.contains("--target"), "{text}");
    }
}

#[test]
fn what_is_no_nvrtc_is_an_error() {
    let dir = folder("fake");
    std::fs::create_dir_all(&dir).unwrap();
    let fake = dir.join("libnvrtc.so.13");
    std::fs::write(&fake, b"not a library").unwrap();
    for path in [fake.as_path(), Path::new("nowhere/libnvrtc.so")] {
        let Err(Error::BadNvrtc { path: named, .. }) = Nvrtc::load(path) else {
            panic!("loaded {}", path.display())
        };
        assert_eq!(named, path);
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn fingerprints_tell_versions_apart() {
    let dir = folder("fingerprint");
    std::fs::create_dir_all(&dir).unwrap();
    let library = dir.join("libnvrtc.so.13");
    std::fs::write(&library, b"library").unwrap();
    let alone = locate::fingerprint(&library);
    std::fs::write(dir.join("libnvrtc-builtins.so.13.0"), b"").unwrap();
    assert_ne!(alone, locate::fingerprint(&library));
    std::fs::remove_dir_all(dir).unwrap();
}
