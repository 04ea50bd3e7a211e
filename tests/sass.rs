//! What NVRTC makes of the default product of 16-bit floats on sm_90a: no GPU is needed. Without NVRTC the tests say so
//! and do nothing else; without cuobjdump what its text would show is looked for in the PTX.

use girih_runtime::nvrtc::Nvrtc;
use std::path::PathBuf;
use std::process::Command;

const PRODUCT: &str = "op mm[M, N, K](x: bf16[M, K], w: bf16[N, K]) -> (y: bf16[M, N]) {
    y[m, n] = sum[k](x[m, k] * w[n, k])
}
";

/// What a strided convolution's gradient to its input is: its phases have unlike numbers of taps.
const PHASES: &str =
    "op gx[N, P, C, F](dy: f16[N, P, P, F], w: f16[F, 3, 3, C]) -> (dx: f16[N, 2*P, 2*P, C]) {
    dx[n, i, j, c] = sum[f, r, s where (i + 1 - r) % 2 == 0 && (j + 1 - s) % 2 == 0](
        (dy[n, (i + 1 - r)/2, (j + 1 - s)/2, f] else 0) * w[f, r, s, c])
}
";

/// Passes over a tile, one for each group that its rows are of.
const GROUPED: &str =
    "op grouped[R, E, N, K](x: bf16[R, K], w: bf16[E, N, K], off: i32[E] in 0..=R) -> (y: bf16[R, N]) {
    g[r in 0..R] = min(sum[e](i32(off[e] <= r)), E - 1)
    y[r, n] = sum[k](x[r, k] * w[g[r], n, k])
}
";

fn emit(file: &PathBuf, size: i64, stage: &str) -> Result<String, String> {
    emit_with(file, &["M", "N", "K"].map(|d| (d, size)), stage)
}

fn emit_with(file: &PathBuf, dims: &[(&str, i64)], stage: &str) -> Result<String, String> {
    let dims = dims.iter().map(|(d, n)| format!("--dim={d}={n}"));
    let out = Command::new(env!("CARGO_BIN_EXE_girih"))
        .arg("emit")
        .arg(file)
        .args(dims)
        .args(["--target", "sm_90a", "--stage", stage])
        .output()
        .expect("the program starts");
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
    }
}

#[test]
fn the_default_product_multiplies_copies_and_stores_as_hopper_can() {
    let nvrtc = match Nvrtc::get() {
        Ok(n) => n,
        Err(e) => {
            assert!(std::env::var_os("GIRIH_NEED_NVRTC").is_none(), "{e}");
            return eprintln!("skipped: {e}");
        }
    };
    let file = std::env::temp_dir().join(format!("girih-sass-{}.tile", std::process::id()));
    std::fs::write(&file, PRODUCT).expect("the folder for temporary files takes one");
    for size in [2048, 8192] {
        let cuda = emit(&file, size, "cuda").expect("it lowers");
        let report = nvrtc.compile("mm", &cuda, "sm_90a").expect("it compiles").report;
        assert_eq!(report.spills(), 0, "{report:?}");
        let (text, wanted) = match emit(&file, size, "sass") {
            Ok(sass) => (sass, ["HGMMA", "UTMALDG", "UTMASTG", "STSM"]),
            Err(why) => {
                assert!(why.contains("cuobjdump"), "{why}");
                eprintln!("the PTX alone: {why}");
                let ptx = emit(&file, size, "ptx").expect("it compiles");
                let store = "cp.async.bulk.tensor.2d.global.shared::cta";
                (ptx, ["wgmma.mma_async", "cp.async.bulk.tensor.2d.shared::cluster", store, "stmatrix"])
            }
        };
        for word in wanted {
            assert!(text.contains(word), "no {word} at {size}");
        }
        assert!(!text.contains("LDL") && !text.contains("STL"), "local memory at {size}");
    }
    let _ = std::fs::remove_file(&file);
}

/// Blocks that do not know how many steps they have: ptxas says (C75xx) where it waits for each product of matrices.
#[test]
fn no_products_wait_for_each_other_where_the_number_of_steps_is_not_known() {
    let Ok(nvrtc) = Nvrtc::get() else { return eprintln!("skipped: no NVRTC") };
    let programs = [
        ("split", PRODUCT, &[("M", 512), ("N", 512), ("K", 65536)][..]),
        ("grouped", GROUPED, &[("R", 8192), ("E", 8), ("N", 14336), ("K", 4096)][..]),
        ("phases", PHASES, &[("N", 32), ("P", 14), ("C", 128), ("F", 256)][..]),
    ];
    for (name, text, dims) in programs {
        let file = std::env::temp_dir().join(format!("girih-sass-{name}-{}.tile", std::process::id()));
        std::fs::write(&file, text).expect("the folder for temporary files takes one");
        let cuda = emit_with(&file, dims, "cuda").expect("it lowers");
        assert!(cuda.contains("wgmma.mma_async"), "{name} is not by warpgroups");
        let report = nvrtc.compile(name, &cuda, "sm_90a").expect("it compiles").report;
        assert_eq!(report.lost_speed, Vec::<String>::new(), "{name}");
        assert_eq!(report.spills(), 0, "{name} spills");
        let _ = std::fs::remove_file(&file);
    }
}
