//! Packages: what a folder holds, one code for all sizes of a range, and C programs that launch it.

use super::{MAP, Place, holds};
use girih::{Device, Inputs, Kernel};
use libtest_mimic::Failed;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Three kinds of steps: kernels with scalars, a product through tensor maps, and an update.
const PACKED: &str = "op f[M, N, K](x: bf16[M, K], w: bf16[N, K], a: f32 = 2) -> (y: bf16[M, N], t: f32[N]) {
    y[m, n] = a * sum[k](x[m, k] * w[n, k])
    t[n] = sum[k](w[n, k])
}
profile f M = 1..=300 at {128, 256}, N = 128, K = 128
";

/// Builds `PACKED`; `None` without NVRTC.
fn packed(place: &Place) -> Result<Option<PathBuf>, Failed> {
    if girih::runtime::locate::nvrtc().is_err() {
        eprintln!("skipped: packages need NVRTC");
        return Ok(None);
    }
    place.says(&["build", "f.tile", "--target", "sm_90a", "-o", "package"])?;
    Ok(Some(place.dir.join("package")))
}

pub fn package() -> Result<(), Failed> {
    let place = Place::new("package", PACKED);
    let Some(folder) = packed(&place)? else { return Ok(()) };
    let text = std::fs::read_to_string(folder.join("manifest.json"))?;
    let manifest: serde_json::Value = serde_json::from_str(&text)?;
    let schema = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/manifest.schema.json"))?;
    fits(&manifest, &serde_json::from_str(&schema)?, "manifest")?;
    let read = girih::package::read_manifest(&folder).map_err(|e| e.to_string())?;
    holds(read.ranges.len() == 2, "two points with their ranges")?;
    let [m, n, k] = ["M", "N", "K"].map(|s| read.sizes.iter().position(|x| x == s).unwrap_or(0));
    let at = |rows: i64| {
        let mut sizes = vec![0; 3];
        (sizes[m], sizes[n], sizes[k]) = (rows, 128, 128);
        sizes
    };
    for rows in 1..=300 {
        let (number, bucket) = read.bucket_at(&at(rows)).ok_or_else(|| format!("none for {rows}"))?;
        holds(read.find(&at(rows)) == Some(number), "one answer")?;
        let y = bucket.buffers.iter().find(|b| b.argument.as_deref() == Some("y")).ok_or("no y")?;
        holds(y.bytes == 2 * 128 * rows && y.dims == [rows, 128], format!("{rows}: {:?}", y.dims))?;
    }
    holds(read.find(&at(301)).is_none() && read.find(&at(0)).is_none(), "outside of the range")?;
    let told = girih::package::no_bucket(&read, &at(301)).to_string();
    holds(told.contains("M=1..=128") && told.contains("M=129..=300"), told)?;
    for b in &read.buckets {
        holds(folder.join(&b.cubin).exists() && folder.join(&b.source).exists(), &b.name)?;
        let program = girih::package::manifest::program(&read, b)?;
        let (buffers, kernels, steps) = girih::package::manifest::rows(&program, &Default::default());
        holds(
            steps == b.steps && kernels.len() == b.kernels.len() && buffers.len() == b.buffers.len(),
            "it reads back",
        )?;
    }
    // What is damaged or of another version is refused.
    std::fs::write(folder.join("manifest.json"), text.replacen("\"version\": 2", "\"version\": 9", 1))?;
    holds(girih::package::read_manifest(&folder).is_err(), "another version is refused")
}

/// Neither its records nor a lock file that it wrote.
pub fn no_simulated_choice() -> Result<(), Failed> {
    let place = Place::new("simulated", MAP);
    if girih::runtime::locate::nvrtc().is_err() {
        eprintln!("skipped: packages need NVRTC");
        return Ok(());
    }
    let sized = ["f.tile", "--dim", "N=500"];
    place.says(&[&["tune"][..], &sized, &["--device", "sim", "--trials", "3", "--freeze"]].concat())?;
    place.says(&[&["run"][..], &sized, &["--device", "sim", "--locked"]].concat())?;
    place.says(&[&["build"][..], &sized, &["--target", "sm_90a", "-o", "package"]].concat())?;
    let manifest = girih::package::read_manifest(&place.dir.join("package")).map_err(|e| e.to_string())?;
    holds(manifest.buckets.iter().all(|b| b.choice == "own" && b.tuned_us.is_none()), "the forms choose")
}

/// Whether a value fits the part of JSON Schema that the schema uses.
fn fits(v: &serde_json::Value, schema: &serde_json::Value, at: &str) -> Result<(), Failed> {
    let named = |t: &str| match t {
        "object" => v.is_object(),
        "array" => v.is_array(),
        "string" => v.is_string(),
        "integer" => v.is_i64() || v.is_u64(),
        "number" => v.is_number(),
        "null" => v.is_null(),
        "boolean" => v.is_boolean(),
        _ => false,
    };
    let right = match &schema["type"] {
        serde_json::Value::String(t) => named(t),
        serde_json::Value::Array(all) => all.iter().any(|t| named(t.as_str().unwrap_or(""))),
        _ => true,
    };
    holds(right, format!("{at}: {v} is no {}", schema["type"]))?;
    if let Some(all) = schema["enum"].as_array() {
        holds(all.contains(v), format!("{at}: {v} is none of {all:?}"))?;
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        holds(v.get(name.as_str().unwrap_or("")).is_some(), format!("{at} lacks {name}"))?;
    }
    for (name, inner) in v.as_object().into_iter().flatten() {
        match schema["properties"].get(name) {
            Some(s) => fits(inner, s, &format!("{at}.{name}"))?,
            None => {
                holds(schema["additionalProperties"] != false, format!("{at}: {name} is not in the schema"))?
            }
        }
    }
    match schema.get("items") {
        Some(s) => v.as_array().into_iter().flatten().try_for_each(|i| fits(i, s, &format!("{at}[]"))),
        None => Ok(()),
    }
}

/// Forms whose text holds sizes in different ways, each over a range that meets tails, vectors, and single rows.
const RANGED: [(&str, &[(&str, i64)], [&str; 2], i64, i64); 7] = [
    (
        "op f[M, N](x: f32[M, N]) -> (y: f32[M, N]) { y[m, n] = exp(x[m, n]) / M }",
        &[("N", 24)],
        ["M", ""],
        1,
        40,
    ),
    (
        "op f[M, N](x: bf16[M, N]) -> (y: bf16[M, N]) { y[m, n] = softmax[n](x[m, n]) }",
        &[("N", 96)],
        ["M", ""],
        1,
        50,
    ),
    ("op f[M, N](x: f32[M, N]) -> (y: f32[M]) { y[m] = mean[n](x[m, n]) }", &[("M", 5)], ["N", ""], 60, 100),
    // So many lengths that rows cannot be held in registers, of which each length has its own number.
    (
        "op f[M, N](x: f32[M, N]) -> (y: f32[M, N]) { y[m, n] = x[m, n] / sum[k](x[m, k]) }",
        &[("M", 3)],
        ["N", ""],
        1,
        700,
    ),
    (
        "op f[M, N, K](x: bf16[M, K], w: bf16[N, K]) -> (y: bf16[M, N]) { y[m, n] = sum[k](x[m, k] * w[n, k]) }",
        &[("N", 64), ("K", 64)],
        ["M", ""],
        1,
        140,
    ),
    ("op f[M, N](x: f32[M, N]) -> (y: f32[M, N]) { y[m, n] = cumsum[n](x[m, n]) }", &[], ["M", "N"], 3, 9),
    (
        "op f[N](x: f32[N]) -> (y: f32[2*N]) where N % 2 == 0 { y[i in 0..2*N] = x[i / 2] }",
        &[],
        ["N", ""],
        1,
        30,
    ),
];

/// Each range is covered by few kernels; each size's launch of them is right on the simulator.
pub fn sizes_as_arguments() -> Result<(), Failed> {
    let target = Device::sim().target().map_err(|e| e.to_string())?;
    for (text, fixed, free, lo, hi) in RANGED {
        let op = Kernel::from_text("f.tile", text).and_then(|k| k.only_op()).map_err(|e| e.to_string())?;
        let op = fixed.iter().fold(op, |op, (name, n)| op.dim(name, *n));
        let free: Vec<&str> = free.into_iter().filter(|n| !n.is_empty()).collect();
        let at = |n: i64| free.iter().fold(op.clone(), |op, name| op.dim(name, n));
        let covers = free.iter().map(|name| (name.to_string(), lo, hi)).collect();
        let point = girih::package::Point { op: at(hi), covers };
        let bound = point.op.bind().map_err(|e| e.to_string())?;
        let covered = girih::package::ranges::cover(&point, &bound, &target).map_err(|e| e.to_string())?;
        let parts = covered.parts.len();
        let combinations = point.count();
        eprintln!("{parts} kernels for {combinations} sizes: {text}");
        holds((parts as u64) < combinations, format!("{parts} kernels for {combinations} sizes of {text}"))?;
        let mut manifest = girih::package::manifest::Manifest {
            sizes: bound.graph().sizes.iter().map(|s| s.0.clone()).collect(),
            ..Default::default()
        };
        manifest.ranges.push(covered.range);
        manifest.buckets = covered.parts.iter().map(|p| p.bucket.clone()).collect();
        for n in [lo, lo + 1, (lo + hi) / 2 - 1, (lo + hi) / 2, hi - 1, hi] {
            // A `where` that does not hold is a hole.
            let Ok(bound) = at(n).bind() else {
                let sizes = vec![n; manifest.sizes.len()];
                holds(manifest.find(&sizes).is_none(), format!("{n} is a hole of {text}"))?;
                continue;
            };
            let sizes: Vec<i64> = bound.graph().sizes.iter().map(|s| s.1).collect();
            let found = manifest.bucket_at(&sizes).ok_or_else(|| format!("none for {sizes:?} of {text}"))?;
            let program = covered.parts[found.0].program_at(&found.1);
            let mut inputs = Inputs::default();
            for t in bound.inputs() {
                inputs
                    .tensors
                    .insert(t.name.clone(), girih::random::tensor(t, 3).map_err(|e| e.to_string())?);
            }
            let want = girih_compiler::reference::run(bound.graph(), &inputs).map_err(|e| e.to_string())?;
            let got = girih_compiler::sim::run(&program, &inputs, &Default::default())
                .map_err(|e| format!("{sizes:?} of {text}: {e}"))?;
            for (name, want) in &want.outputs {
                girih_compiler::reference::compare(want, &got.outputs[name])
                    .map_err(|m| format!("{name} at {sizes:?} of {text}: {m}"))?;
            }
        }
    }
    Ok(())
}

/// Prints what the launcher finds for every size, then how long a look-up takes.
const C_NUMBERS: &str = r#"
#include <time.h>
#include "f.h"
int main(void) {
    int64_t sizes[3] = { 0, 128, 128 };
    girih_sized at;
    for (int m = 1; m <= 300; m++) {
        sizes[0] = m;
        if (girih_size(&girih_f, sizes, &at)) return printf("error: %s\n", girih_error()), 1;
        printf("%d %s", m, at.bucket->name);
        for (int k = 0; k < at.bucket->kernels; k++) printf(" %u,%u,%u", at.kernel[k].grid[0], at.kernel[k].grid[1], at.kernel[k].grid[2]);
        for (int b = 0; b < at.bucket->buffers; b++) printf(" %lld", (long long)at.buffer[b].bytes);
        for (int a = 0; a < at.bucket->args; a++) if (at.arg[a].kind == GIRIH_VALUE) printf(" %lld", (long long)at.arg[a].value);
        printf("\n");
        girih_unsize(&at);
    }
    sizes[0] = 301;
    if (!girih_size(&girih_f, sizes, &at)) return printf("301 is outside\n"), 1;
    printf("%s\n", girih_error());
    struct timespec from, to;
    long found = 0, times = 1000000;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (long i = 0; i < times; i++) {
        sizes[0] = 1 + i % 300;
        found += girih_look(&girih_f, sizes, 0) != 0;
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%ld found, %.1f ns each\n", found, ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / (double)times);
    return 0;
}
"#;

/// The C side and the Rust side read the same numbers from one package, without a GPU.
pub fn c_numbers() -> Result<(), Failed> {
    use girih::package::manifest::{ArgRow, StepRow};
    let place = Place::new("numbers", PACKED);
    let Some((folder, out)) = c_run(&place, C_NUMBERS)? else { return Ok(()) };
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    holds(out.status.success(), &said)?;
    let manifest = girih::package::read_manifest(&folder).map_err(|e| e.to_string())?;
    let mut lines = said.lines();
    for m in 1..=300i64 {
        let (_, b) = manifest.bucket_at(&[m, 128, 128]).ok_or("no bucket")?;
        let mut want = format!("{m} {}", b.name);
        b.kernels.iter().for_each(|k| want += &format!(" {},{},{}", k.grid[0], k.grid[1], k.grid[2]));
        b.buffers.iter().for_each(|f| want += &format!(" {}", f.bytes));
        for s in &b.steps {
            let StepRow::Launch { args, .. } = s else { continue };
            for a in args {
                if let ArgRow::Value(v) = a {
                    want += &format!(" {}", *v as i64);
                }
            }
        }
        let line = lines.next().unwrap_or_default();
        holds(line == want, format!("C reads {line}, Rust {want}"))?;
    }
    let refused = lines.next().unwrap_or_default();
    holds(refused.contains("M=301") && refused.contains("M=129..=300"), refused)?;
    let time = lines.next().unwrap_or_default();
    eprintln!("a look-up in C: {time}");
    let each =
        time.split("found, ").nth(1).and_then(|t| t.split(' ').next()).and_then(|t| t.parse::<f64>().ok());
    holds(time.starts_with("1000000 found") && each.is_some_and(|ns| ns < 1000.0), time)
}

/// Builds `PACKED`, compiles a C program beside it and runs it with the package's folder; `None` where there is no NVRTC or no C
/// compiler.
fn c_run(place: &Place, program: &str) -> Result<Option<(PathBuf, std::process::Output)>, Failed> {
    if Command::new("cc").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: a C program needs cc");
        return Ok(None);
    }
    let Some(folder) = packed(place)? else { return Ok(None) };
    std::fs::write(place.dir.join("main.c"), program)?;
    let words =
        ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", "main", "main.c", "-Ipackage", "-ldl"];
    let out = Command::new("cc").args(words).current_dir(&place.dir).output()?;
    holds(out.status.success(), String::from_utf8_lossy(&out.stderr))?;
    let out = Command::new(place.dir.join("main")).arg(&folder).output()?;
    Ok(Some((folder, out)))
}

/// Every value of `x` and `w` is 1, so that every result is known: y = a * K, t = K.
const C_PROGRAM: &str = r#"
#include "f.h"
int main(int count, char **words) {
    const char *dir = count > 1 ? words[1] : "package";
    static const int64_t rows[6] = { 256, 1, 77, 128, 129, 300 };
    int64_t sizes[3] = { 256, 128, 128 };
    float a = 2;
    uint64_t scalar = 0, address[4] = { 0, 0, 0, 0 };
    size_t bytes[4] = { 2 * 300 * 128, 2 * 128 * 128, 2 * 300 * 128, 4 * 128 };
    unsigned short *x = malloc(bytes[0]), *y = malloc(bytes[0]);
    float *t = malloc(bytes[3]);
    memcpy(&scalar, &a, 4);
    for (int i = 0; i < 300 * 128; i++) x[i] = 0x3f80;
    girih_op *op = girih_open(&girih_f, dir);
    if (!op) return printf("no launch: %s\n", girih_error()), 2;
    girih_driver *d = &op->cuda;
    for (int i = 0; i < 4; i++) if (d->MemAlloc(&address[i], bytes[i])) return 3;
    if (d->MemcpyHtoD(address[0], x, bytes[0]) || d->MemcpyHtoD(address[1], x, bytes[1])) return 3;
    for (int n = 0; n < 6; n++) {
        int all = (int)rows[n] * 128;
        memset(y, 255, bytes[2]);
        if (d->MemcpyHtoD(address[2], y, bytes[2])) return 3;
        sizes[0] = rows[n];
        girih_prepared *p = girih_prepare(op, sizes, address, &scalar);
        if (!p || girih_run(p, 0) || d->StreamSynchronize(0) || girih_status(p)) return printf("error: %s\n", girih_error()), 1;
        if (d->MemcpyDtoH(y, address[2], bytes[2]) || d->MemcpyDtoH(t, address[3], bytes[3])) return 3;
        for (int i = 0; i < 300 * 128; i++) if (y[i] != (i < all ? 0x4380 : 0xffff)) return printf("wrong: y[%d] = %x of %d rows\n", i, y[i], (int)rows[n]), 1;
        for (int i = 0; i < 128; i++) if (t[i] != 128) return printf("wrong: t[%d] = %f\n", i, t[i]), 1;
        girih_free(p);
    }
    sizes[0] = 301;
    if (girih_prepare(op, sizes, address, &scalar)) return printf("wrong: 301 is outside\n"), 1;
    if (!strstr(girih_error(), "M=1..=128") || !strstr(girih_error(), "M=129..=300")) return printf("wrong: %s\n", girih_error()), 1;
    printf("right\n");
    return 0;
}
"#;

/// Compiled wherever there is a C compiler; run where there is a GPU of the target.
pub fn c_program() -> Result<(), Failed> {
    let place = Place::new("c", PACKED);
    let Some((_, out)) = c_run(&place, C_PROGRAM)? else { return Ok(()) };
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let gpu = girih::runtime::device::list().ok().and_then(|all| Some(all.first()?.target().ok()?.name));
    match gpu {
        Some("sm_90a") => holds(said.contains("right"), said),
        _ => {
            eprintln!("skipped: the run of a_c_program_launches_a_package needs an sm_90 GPU");
            holds(out.status.code().is_some() && !said.contains("wrong"), said)
        }
    }
}
