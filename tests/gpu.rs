//! What needs a GPU: the run time's own cases. Without one, each is named and counted as ignored.

use girih::execute::{Inputs, RunOptions};
use girih::runtime::launch::{Arguments, Prepared};
use girih::{Compiled, Device, DeviceBuffer, DevicePointer, Kernel, Stream, random};
#[path = "faults/mod.rs"]
mod cases;

use libtest_mimic::{Arguments as Options, Failed, Trial};
use std::time::Instant;

type Test = Result<(), Failed>;

/// Name, and the test on a device.
const TESTS: [(&str, fn(&Device) -> Test); 17] = [
    ("programs_are_right", programs_are_right),
    ("rank_0", rank_0),
    ("empty_launch_between_full_ones", empty_launch_between_full_ones),
    ("misaligned_memory", misaligned_memory),
    ("aligned_and_misaligned_in_turn", aligned_and_misaligned_in_turn),
    ("wrong_arguments_are_named", wrong_arguments_are_named),
    ("overlap_with_what_is_written_is_refused", overlap_with_what_is_written_is_refused),
    ("gather_out_of_range_is_a_fault", gather_out_of_range_is_a_fault),
    ("the_callers_stream_and_workspace", the_callers_stream_and_workspace),
    ("dropped_right_after_the_launch", dropped_right_after_the_launch),
    ("sixteen_threads", sixteen_threads),
    ("captured_in_a_graph", captured_in_a_graph),
    ("guard_bands_stay", guard_bands_stay),
    ("small_and_large_shared_memory_in_turn", small_and_large_shared_memory_in_turn),
    ("repeats_bit_for_bit", repeats_bit_for_bit),
    ("a_launch_takes_little_host_time", a_launch_takes_little_host_time),
    ("a_package_runs_without_the_compiler", a_package_runs_without_the_compiler),
];

fn main() {
    let options = Options::from_args();
    let device = match Device::cuda(0) {
        Ok(d) => Some(d),
        Err(e) => {
            println!("no GPU, so {} tests are skipped: {e}", TESTS.len() + cases::CASES.len());
            None
        }
    };
    let skipped = device.is_none();
    let trials = TESTS.into_iter().map(|(name, test)| {
        let device = device.clone();
        let run = move || device.as_ref().map_or(Ok(()), test);
        Trial::test(name, run).with_ignored_flag(skipped)
    });
    // The known faults' cases; their texts are in this program, which needs no file of the repository.
    let faults = cases::CASES.iter().map(|&(name, text)| {
        let device = device.clone();
        let run = move || device.as_ref().map_or(Ok(()), |d| Ok(cases::run(name, text, d)?));
        Trial::test(format!("case_{name}"), run).with_ignored_flag(skipped)
    });
    libtest_mimic::run(&options, trials.chain(faults).collect()).exit();
}

const SCALE: &str = "op scale[N](x: f32[N], a: f32 = 2) -> (y: f32[N]) { y[i] = a * x[i] + 1 }";
const GATHER: &str = "op gather[V, T](t: f32[V], ids: i64[T]) -> (y: f32[T]) {\n    y[i] = t[ids[i]]\n}";
const MATMUL: &str =
    "op mm[M, N, K](a: f16[M, K], b: f16[K, N]) -> (c: f16[M, N]) { c[m, n] = sum[k](a[m, k] * b[k, n]) }";

fn compiled(device: &Device, text: &str, dims: &[(&str, i64)]) -> Result<Compiled, Failed> {
    let mut op = Kernel::from_text("test.tile", text)?.only_op()?;
    for (name, n) in dims {
        op = op.dim(name, *n);
    }
    Ok(op.compile(device)?)
}

fn random_inputs(c: &Compiled, seed: u64) -> Result<Inputs, Failed> {
    let mut inputs = Inputs::default();
    for t in c.bound().inputs() {
        inputs.tensors.insert(t.name.clone(), random::tensor(t, seed)?);
    }
    Ok(inputs)
}

/// Compiles, runs on random inputs over poisoned memory, and compares with the definition.
fn check(device: &Device, text: &str, dims: &[(&str, i64)]) -> Test {
    let c = compiled(device, text, dims)?;
    let inputs = random_inputs(&c, 7)?;
    let ran = c.run(&inputs, &RunOptions { poison: true, timed: 0 })?;
    for comparison in c.check(&inputs, &ran.outputs)? {
        comparison.result.map_err(|m| Failed::from(format!("{text} {dims:?}: {}: {m}", comparison.name)))?;
    }
    Ok(())
}

fn floats(buffer: &DeviceBuffer) -> Result<Vec<f32>, Failed> {
    let bytes = buffer.to_vec()?;
    Ok(bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect())
}

fn upload(device: &Device, values: &[f32]) -> Result<DeviceBuffer, Failed> {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Ok(DeviceBuffer::from_bytes(gpu(device), &bytes)?)
}

fn gpu(device: &Device) -> &girih::runtime::Device {
    let Device::Cuda(gpu) = device else { unreachable!("the tests run on a GPU only") };
    gpu
}

fn ensure(right: bool, what: impl Into<String>) -> Test {
    if right { Ok(()) } else { Err(Failed::from(what.into())) }
}

/// The words of an error that must be there.
fn ensure_error<T>(result: Result<T, girih::Error>, words: &[&str]) -> Test {
    let Err(e) = result else { return Err(Failed::from(format!("accepted, and should say {words:?}"))) };
    let text = e.to_string();
    ensure(words.iter().all(|w| text.contains(w)), format!("{text}: should say {words:?}"))
}

fn programs_are_right(device: &Device) -> Test {
    for n in [1, 31, 32, 1000, 100_003] {
        check(device, SCALE, &[("N", n)])?;
    }
    check(
        device,
        "op softmax[M, N](x: f32[M, N]) -> (y: f32[M, N]) { y[m, n] = softmax[n](x[m, n]) }",
        &[("M", 7), ("N", 1031)],
    )?;
    for (m, n, k) in [(1, 1, 1), (33, 29, 17), (128, 128, 128), (100, 99, 101)] {
        check(device, MATMUL, &[("M", m), ("N", n), ("K", k)])?;
    }
    check(device, "op cum[T](x: f32[T]) -> (y: f32[T]) { y[t] = cumsum[t](x[t]) }", &[("T", 10_000)])?;
    check(
        device,
        "op hist[N, B](ids: i32[N] in 0..B) -> (h: i32[B]) { h[ids[i]] += 1 }",
        &[("N", 5000), ("B", 37)],
    )
}

fn rank_0(device: &Device) -> Test {
    check(
        device,
        "op total[M, N](x: f32[M, N]) -> (s: f32[]) { s = sum[m, n](x[m, n]) }",
        &[("M", 3), ("N", 4)],
    )?;
    let both = "op both[M, N](x: f32[M, N], c: f32[]) -> (y: f32[M, N]) { s = sum[m, n](x[m, n]) y[m, n] = s * x[m, n] + c }";
    check(device, both, &[("M", 3), ("N", 4)])
}

fn empty_launch_between_full_ones(device: &Device) -> Test {
    for n in [4, 0, 4] {
        check(device, SCALE, &[("N", n)])?;
    }
    check(device, MATMUL, &[("M", 5), ("N", 7), ("K", 0)])
}

/// `scale` of a part of a larger buffer to a part of another.
fn scale_at(c: &Compiled, x: DevicePointer, y: DevicePointer) -> Test {
    let stream = c.device().stream()?;
    let mut launch = c.prepare(&[("x", x), ("y", y)], &[])?;
    launch.launch(&stream)?;
    stream.synchronize()?;
    Ok(launch.status()?)
}

fn misaligned_memory(device: &Device) -> Test {
    const N: usize = 1024;
    let c = compiled(device, SCALE, &[("N", N as i64)])?;
    let values: Vec<f32> = (0..N + 4).map(|i| i as f32).collect();
    let x = upload(device, &values)?;
    for (dx, dy) in [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (0, 2), (0, 3), (1, 3)] {
        let y = upload(device, &vec![f32::NAN; N + 4])?;
        scale_at(&c, x.pointer().offset(4 * dx), y.pointer().offset(4 * dy))?;
        let got = floats(&y)?;
        let right = (0..N).all(|i| got[i + dy as usize] == 2.0 * (i as f32 + dx as f32) + 1.0);
        let rest = (0..dy as usize).chain(N + dy as usize..N + 4).all(|i| got[i].is_nan());
        ensure(right && rest, format!("offsets {dx} and {dy}"))?;
    }
    Ok(())
}

fn aligned_and_misaligned_in_turn(device: &Device) -> Test {
    let c = compiled(device, SCALE, &[("N", 512)])?;
    let x = upload(device, &(0..516).map(|i| i as f32).collect::<Vec<_>>())?;
    for turn in 0..4u64 {
        let y = upload(device, &[f32::NAN; 512])?;
        scale_at(&c, x.pointer().offset(4 * (turn % 2)), y.pointer())?;
        ensure(floats(&y)?[0] == 1.0 + 2.0 * (turn % 2) as f32, format!("turn {turn}"))?;
    }
    Ok(())
}

fn wrong_arguments_are_named(device: &Device) -> Test {
    let c = compiled(device, SCALE, &[("N", 256)])?;
    // Longer than is wanted, so that it is the alignment that is wrong of what begins two bytes on.
    let (x, y) = (upload(device, &[0.0; 257])?, upload(device, &[0.0; 256])?);
    let (x, y) = (DevicePointer { bytes: 1024, ..x.pointer() }, y.pointer());
    let host = [0f32; 256];
    let mistakes: [(DevicePointer, &[&str]); 4] = [
        (DevicePointer { address: host.as_ptr() as u64, bytes: 1024 }, &["x", "device memory"]),
        (DevicePointer { address: 0, bytes: 1024 }, &["x", "null"]),
        (DevicePointer { bytes: 1020, ..x }, &["x", "1020", "1024"]),
        (DevicePointer { address: x.address + 2, bytes: 1024 }, &["x", "multiple of 4"]),
    ];
    for (wrong, words) in mistakes {
        ensure_error(c.prepare(&[("x", wrong), ("y", y)], &[]), words)?;
    }
    ensure_error(c.prepare(&[("y", y)], &[]), &["x", "not given"])?;
    ensure_error(c.prepare(&[("x", x), ("y", y), ("z", y)], &[]), &["z", "no such argument"])?;
    let wrong = [("a", girih_compiler::vocab::dtype::Value::I32(1))];
    ensure_error(c.prepare(&[("x", x), ("y", y)], &wrong), &["a", "i32", "f32"])
}

fn overlap_with_what_is_written_is_refused(device: &Device) -> Test {
    let c = compiled(device, SCALE, &[("N", 256)])?;
    let memory = upload(device, &[0.0; 384])?;
    let (x, y) = (memory.pointer(), memory.pointer().offset(512));
    ensure_error(c.prepare(&[("x", x), ("y", y)], &[]), &["y", "overlaps", "x"])
}

fn gather_out_of_range_is_a_fault(device: &Device) -> Test {
    let c = compiled(device, GATHER, &[("V", 10), ("T", 100)])?;
    let mut inputs = random_inputs(&c, 3)?;
    let ids: Vec<i64> = (0..100).map(|i| if i == 57 { 10 } else { i % 10 }).collect();
    let tensor = |v: &[i64]| {
        girih_compiler::host::HostTensor::from_i64(girih_compiler::vocab::dtype::DType::I64, &[100], v)
    };
    inputs.tensors.insert("ids".into(), tensor(&ids));
    ensure_error(c.run(&inputs, &RunOptions::default()), &["test.tile:2", "t", "10"])?;
    let good: Vec<i64> = ids.iter().map(|i| i % 10).collect();
    inputs.tensors.insert("ids".into(), tensor(&good));
    c.run(&inputs, &RunOptions::default())?;
    Ok(())
}

fn the_callers_stream_and_workspace(device: &Device) -> Test {
    let text = "op two[M, N](x: f32[M, N]) -> (y: f32[M, N]) { s[m] = sum[n](x[m, n]) t = max[m](s[m]) y[m, n] = x[m, n] * t }";
    let c = compiled(device, text, &[("M", 64), ("N", 64)])?;
    let (x, y) = (upload(device, &[1.0; 4096])?, upload(device, &[0.0; 4096])?);
    let workspace = DeviceBuffer::new(gpu(device), c.workspace_bytes())?;
    let stream = Stream::new(gpu(device))?;
    let memory = [("x", x.pointer()), ("y", y.pointer())];
    let mut launch = c.prepare_in(&memory, &[], Some(workspace.pointer()))?;
    launch.launch(&stream)?;
    stream.synchronize()?;
    launch.status()?;
    ensure(floats(&y)?.iter().all(|&v| v == 64.0), "wrong values")?;
    let small = DevicePointer { bytes: c.workspace_bytes() - 1, ..workspace.pointer() };
    ensure_error(c.prepare_in(&memory, &[], Some(small)), &["workspace", "needed"])
}

fn dropped_right_after_the_launch(device: &Device) -> Test {
    let c = compiled(device, SCALE, &[("N", 1 << 20)])?;
    for round in 0..50 {
        let stream = device.stream()?;
        let y = upload(device, &vec![0.0; 1 << 20])?;
        {
            let x = upload(device, &vec![round as f32; 1 << 20])?;
            let mut launch = c.prepare(&[("x", x.pointer()), ("y", y.pointer())], &[])?;
            launch.launch(&stream)?;
        }
        let _other = upload(device, &vec![-1.0; 1 << 20])?;
        stream.synchronize()?;
        ensure(floats(&y)?.iter().all(|&v| v == 2.0 * round as f32 + 1.0), format!("round {round}"))?;
    }
    Ok(())
}

fn sixteen_threads(device: &Device) -> Test {
    let c = compiled(device, SCALE, &[("N", 1000)])?;
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..16)
            .map(|t| {
                let (c, device) = (&c, device);
                s.spawn(move || -> Test {
                    let x = upload(device, &vec![t as f32; 1000])?;
                    for _ in 0..60 {
                        let y = upload(device, &vec![0.0; 1000])?;
                        scale_at(c, x.pointer(), y.pointer())?;
                        ensure(
                            floats(&y)?.iter().all(|&v| v == 2.0 * t as f32 + 1.0),
                            format!("thread {t}"),
                        )?;
                    }
                    Ok(())
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|t| t.join().unwrap_or_else(|_| Err(Failed::from("a thread panicked"))))
    })
}

fn captured_in_a_graph(device: &Device) -> Test {
    let c = compiled(device, SCALE, &[("N", 1000)])?;
    let (x, y) = (upload(device, &[3.0; 1000])?, upload(device, &[0.0; 1000])?);
    let stream = device.stream()?;
    let graph = c.prepare(&[("x", x.pointer()), ("y", y.pointer())], &[])?.into_graph()?;
    for value in [5.0f32, 9.0] {
        x.upload(&value.to_le_bytes().repeat(1000))?;
        graph.launch(&stream)?;
        stream.synchronize()?;
        ensure(floats(&y)?.iter().all(|&v| v == 2.0 * value + 1.0), format!("{value}"))?;
    }
    Ok(())
}

/// Bytes around the arguments are not touched, and what lies beyond an input is not used.
fn guard_bands_stay(device: &Device) -> Test {
    let (m, n, k) = (65usize, 37usize, 51usize);
    let c = compiled(device, MATMUL, &[("M", m as i64), ("N", n as i64), ("K", k as i64)])?;
    let nan = [0xff, 0x7e];
    let one = [0x00, 0x3c];
    let band = |values: usize| [nan.repeat(1024), one.repeat(values), nan.repeat(1024)].concat();
    let a = DeviceBuffer::from_bytes(gpu(device), &band(m * k))?;
    let b = DeviceBuffer::from_bytes(gpu(device), &band(k * n))?;
    let out = DeviceBuffer::from_bytes(gpu(device), &band(m * n))?;
    let at = |buffer: &DeviceBuffer| buffer.pointer().offset(2048);
    let stream = device.stream()?;
    let mut launch = c.prepare(&[("a", at(&a)), ("b", at(&b)), ("c", at(&out))], &[])?;
    launch.launch(&stream)?;
    stream.synchronize()?;
    let got = out.to_vec()?;
    let (before, rest) = got.split_at(2048);
    let (inside, after) = rest.split_at(2 * m * n);
    // 51 in f16.
    ensure(inside.chunks_exact(2).all(|v| v == [0x60, 0x52]), "wrong values")?;
    ensure(before.chunks_exact(2).chain(after.chunks_exact(2)).all(|v| v == nan), "a guard band was written")
}

/// A function's limit of shared memory is its own, and raised by whichever thread comes first.
fn small_and_large_shared_memory_in_turn(device: &Device) -> Test {
    let tiled = |m: i64, n: i64, k: i64| {
        let text = format!("{MATMUL}\ntile mm {{ block m = {m}, n = {n} step k = {k} stages = 3 }}");
        compiled(device, &text, &[("M", 256), ("N", 256), ("K", 256)])
    };
    let turns = [tiled(64, 64, 32)?, tiled(128, 128, 64)?, tiled(64, 64, 32)?];
    let threads = |c: &Compiled| -> Test {
        let inputs = random_inputs(c, 9)?;
        let first = c.run(&inputs, &RunOptions { poison: true, timed: 0 })?.outputs;
        for comparison in c.check(&inputs, &first)? {
            comparison.result.map_err(|m| Failed::from(format!("{}: {m}", comparison.name)))?;
        }
        Ok(())
    };
    std::thread::scope(|s| {
        let all: Vec<_> = turns.iter().cycle().take(16).map(|c| s.spawn(|| threads(c))).collect();
        all.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| Err(Failed::from("a thread panicked"))))
    })
}

fn repeats_bit_for_bit(device: &Device) -> Test {
    let scatter = "op add[N, B](x: f32[N], ids: i32[N] in 0..B) -> (h: f32[B]) { h[ids[i]] += x[i] }";
    let c = compiled(device, scatter, &[("N", 20_000), ("B", 16)])?;
    let inputs = random_inputs(&c, 5)?;
    let first = c.run(&inputs, &RunOptions::default())?.outputs;
    for _ in 0..20 {
        ensure(c.run(&inputs, &RunOptions::default())?.outputs == first, "two runs differ")?;
    }
    Ok(())
}

fn a_launch_takes_little_host_time(device: &Device) -> Test {
    let c = compiled(device, SCALE, &[("N", 256)])?;
    let (x, y) = (upload(device, &[3.0; 256])?, upload(device, &[0.0; 256])?);
    let executable = c.executable().expect("compiled for a GPU");
    let mut arguments = Arguments::default();
    arguments.buffers.insert("x".into(), x.pointer());
    arguments.buffers.insert("y".into(), y.pointer());
    arguments.scalars.insert("a".into(), girih_compiler::vocab::dtype::Value::F32(2.0));
    let mut prepared = Prepared::new(executable, &arguments)?;
    let stream = device.stream()?;
    let mut times: Vec<f64> = (0..20_000)
        .map(|i| {
            if i % 500 == 0 {
                stream.synchronize()?;
            }
            let start = Instant::now();
            prepared.launch(&stream)?;
            Ok(start.elapsed().as_secs_f64() * 1e6)
        })
        .collect::<Result<_, girih::runtime::Error>>()?;
    times.sort_by(f64::total_cmp);
    let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    let bare = bare_launch_us(device)?;
    println!(
        "host time of a launch: median {p50:.2} µs, 99 % below {p99:.2} µs; of the driver's own: median {bare:.2} µs"
    );
    ensure(p50 <= bare + 1.0, format!("median {p50:.2} µs, the driver's own {bare:.2} µs"))
}

/// Median host microseconds of the driver's own launch of an empty kernel with three parameters.
fn bare_launch_us(device: &Device) -> Result<f64, Failed> {
    use cudarc::driver::sys;
    use std::ptr::null_mut;
    let source = "extern \"C\" __global__ void empty(const float* x, float* y, float a) {}";
    let arch = device.target()?.name;
    let cubin = girih::runtime::compile::cubin("empty", source, arch, &girih::runtime::Cache::user())?;
    let ok = |r: sys::CUresult| ensure(r == sys::CUresult::CUDA_SUCCESS, format!("{r:?}"));
    let (mut context, mut module, mut function) = (null_mut(), null_mut(), null_mut());
    let (mut x, mut y, mut a) = (0u64, 0u64, 0f32);
    let mut args = [(&raw mut x).cast(), (&raw mut y).cast(), (&raw mut a).cast()];
    let mut times = Vec::new();
    // SAFETY: plain driver calls on a module that stays loaded; the arguments fit the kernel, which reads none.
    unsafe {
        ok(sys::cuDevicePrimaryCtxRetain(&mut context, 0))?;
        ok(sys::cuCtxSetCurrent(context))?;
        ok(sys::cuModuleLoadData(&mut module, cubin.code.as_ptr().cast()))?;
        ok(sys::cuModuleGetFunction(&mut function, module, c"empty".as_ptr()))?;
        for i in 0..20_000 {
            if i % 500 == 0 {
                ok(sys::cuCtxSynchronize())?;
            }
            let start = Instant::now();
            ok(sys::cuLaunchKernel(
                function,
                1,
                1,
                1,
                256,
                1,
                1,
                0,
                null_mut(),
                args.as_mut_ptr(),
                null_mut(),
            ))?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        ok(sys::cuCtxSynchronize())?;
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Kernels with a scalar, a product through tensor maps, and two buckets: built, opened and launched.
const PACKED: &str = "op f[M, N, K](x: bf16[M, K], w: bf16[N, K], a: f32 = 2) -> (y: bf16[M, N], t: f32[N]) {
    y[m, n] = a * sum[k](x[m, k] * w[n, k])
    t[n] = sum[k](w[n, k])
}";

fn a_package_runs_without_the_compiler(device: &Device) -> Test {
    let folder = std::env::temp_dir().join(format!("girih-package-{}", std::process::id()));
    let kernel = Kernel::from_text("f.tile", PACKED)?;
    let at = |m: i64| Ok::<_, girih::Error>(kernel.op("f")?.dim("M", m).dim("N", 128).dim("K", 128));
    let points = [at(128)?.into(), at(256)?.into()];
    girih::package::build(&points, &folder.join("f.tile"), device.target()?, &folder)?;
    let package = girih::package::Package::open(&folder, device)?;
    let one = |n: usize| vec![0x3f80u16; n].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let stream = Stream::new(gpu(device))?;
    for m in [256i64, 128, 256] {
        let sizes: Vec<i64> =
            package.manifest().sizes.iter().map(|s| if s == "M" { m } else { 128 }).collect();
        let bytes = 2 * 128 * m as u64;
        let (x, w) = (DeviceBuffer::new(gpu(device), bytes)?, DeviceBuffer::new(gpu(device), 2 * 128 * 128)?);
        let (y, t) = (DeviceBuffer::new(gpu(device), bytes)?, DeviceBuffer::new(gpu(device), 4 * 128)?);
        x.upload(&one(128 * m as usize))?;
        w.upload(&one(128 * 128))?;
        let memory = [("x", x.pointer()), ("w", w.pointer()), ("y", y.pointer()), ("t", t.pointer())];
        for scalars in [vec![], vec![("a", girih::Value::F32(2.0))]] {
            let mut launch = package.prepare(&sizes, &memory, &scalars)?;
            launch.poison(0xff, &stream)?;
            launch.launch(&stream)?;
            stream.synchronize()?;
            ensure(launch.fault()?.is_none(), "no fault")?;
            ensure(y.to_vec()?.chunks(2).all(|v| v == [0x80, 0x43]), "y is 256")?;
            ensure(floats(&t)?.iter().all(|&v| v == 128.0), "t is 128")?;
        }
        ensure_error(package.prepare(&sizes, &memory[1..], &[]), &["x"])?;
    }
    let other: Vec<i64> = package.manifest().sizes.iter().map(|_| 7).collect();
    ensure_error(package.prepare(&other, &[], &[]), &["is outside"])?;
    // Which bucket is told in well under a microsecond.
    let sizes: Vec<i64> = package.manifest().buckets[1].sizes.clone();
    let start = Instant::now();
    const TIMES: u32 = 100_000;
    for _ in 0..TIMES {
        ensure(package.bucket(std::hint::black_box(&sizes)) == Some(1), "the second bucket")?;
    }
    let each = start.elapsed() / TIMES;
    println!("a bucket is found in {each:?}");
    ensure(cfg!(debug_assertions) || each.as_nanos() < 1000, format!("{each:?}"))?;
    Ok(std::fs::remove_dir_all(&folder)?)
}
