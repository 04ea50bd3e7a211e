//! `girih bench`: the peers' suite, or one's own op, timed on a GPU with a cold L2.

use super::args::BenchArgs;
use super::{Outcome, color, run};
use girih::bench::kinds::{self, Case, Workload, case};
use girih::bench::{self, Checked, KINDS_TEXT, Timing};
use girih::{Compiled, Device, Error, Kernel, Result};
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::path::Path;

pub fn bench(args: &BenchArgs) -> Result<Outcome> {
    match (&args.suite, &args.op) {
        (Some(suite), _) => bench_suite(args, suite),
        (None, _) if args.only.is_some() => Err(Error::argument("only", super::args::ONLY)),
        (None, Some(op)) => bench_own(args, op),
        (None, None) => Err(Error::argument("bench", "give a FILE with an op, or --suite FILE")),
    }
}

fn bench_suite(args: &BenchArgs, path: &Path) -> Result<Outcome> {
    let device = Device::open(args.device, None)?;
    let kernel = Kernel::from_text("kinds.tile", KINDS_TEXT)?;
    let mut out =
        args.out.as_ref().map(|p| File::create(p).map_err(|e| Error::file(p, e.to_string()))).transpose()?;
    let mut outcome = Outcome::Right;
    for w in &kinds::suite(path, args.only.as_deref())? {
        let row = measure(&kernel, w, &device, args.no_check).unwrap_or_else(|e| {
            eprintln!("{}: {e}", w.id);
            outcome = Outcome::Wrong;
            json!({ "id": w.id, "peer": "girih", "error": e.text() })
        });
        match &mut out {
            Some(file) => writeln!(file, "{row}").map_err(|e| Error::argument("out", e.to_string()))?,
            None => super::print(&format!("{row}\n")),
        }
    }
    Ok(outcome)
}

fn measure(kernel: &Kernel, w: &Workload, device: &Device, no_check: bool) -> Result<serde_json::Value> {
    let case = case(w)?;
    if !no_check && let Some(wrong) = bench::check(kernel, &case, device)? {
        return Err(Error::Wrong(wrong));
    }
    let compiled = bench::op_of(kernel, &case)?.compile(device)?;
    let timing = bench::time(&compiled, &case)?;
    eprint!("{}", line(&w.id, &compiled, &case, &timing));
    let us = |d: std::time::Duration| (d.as_secs_f64() * 1e8).round() / 100.0;
    Ok(json!({
        "id": w.id, "peer": "girih", "us": us(timing.median), "lo": us(timing.least), "hi": us(timing.greatest),
        "bytes": compiled.bytes(), "flop": case.flop,
    }))
}

fn line(id: &str, compiled: &Compiled, case: &Case, t: &Timing) -> String {
    let s = t.median.as_secs_f64();
    let forms = compiled.lowered().map_or(String::new(), |l| {
        l.program.forms.iter().map(|f| f.form.name()).collect::<Vec<_>>().join("+")
    });
    let (gbs, tflops) = (compiled.bytes() as f64 / s / 1e9, case.flop as f64 / s / 1e12);
    format!(
        "{id:44} {:>10.1} us {gbs:>7.0} GB/s {tflops:>7.1} TFLOP/s  {forms} ({} calls)\n",
        s * 1e6,
        t.calls
    )
}

/// What the device's data sheet allows beside what was reached: the memory's rate for the bytes that must move once, the
/// fastest units' rate for the products, whichever takes longer.
fn roofline(compiled: &Compiled, t: &Timing) -> String {
    let (Device::Cuda(gpu), Ok(target)) = (compiled.device(), compiled.device().target()) else {
        return String::new();
    };
    let info = gpu.info();
    let memory = compiled.bytes() as f64 / info.bandwidth;
    let products = compiled.work().cycles(&target) / (info.sms as f64 * info.clock);
    let (least, by) = if products > memory { (products, "the tensor cores") } else { (memory, "memory") };
    format!(
        "  roofline: {:.1} us, set by {by} ({:.0} GB/s and {:.0} MHz by the data sheet); reached {:.0}% of it\n",
        least * 1e6,
        info.bandwidth / 1e9,
        info.clock / 1e6,
        100.0 * least / t.median.as_secs_f64()
    )
}

fn bench_own(args: &BenchArgs, op: &super::args::OpArgs) -> Result<Outcome> {
    let device = Device::open(args.device, op.target)?;
    let bound = run::scheduled(run::choose(op)?.bind()?, op.schedule.as_deref())?;
    eprint!("{}", bound.warnings(color()));
    run::say_fewer_parts(op, &bound, &device)?;
    // What cannot be timed need not be checked.
    let checked = match args.no_check || !matches!(device, Device::Cuda(_)) {
        true => None,
        false => Some(bench::check_own(bound.op(), &device)?),
    };
    if let Some(Checked::Wrong(wrong)) = checked {
        return Err(Error::Wrong(wrong));
    }
    let compiled = bound.compile(&device)?;
    let case = bench::own_case(&bound);
    let timing = bench::time(&compiled, &case)?;
    super::print(&line(&case.op, &compiled, &case, &timing));
    super::print(&roofline(&compiled, &timing));
    super::print(&match checked {
        Some(Checked::At(sizes)) => format!("  right, as the definition says, at {sizes}\n"),
        Some(Checked::Not(why)) => format!("  not checked: {why}\n"),
        _ => String::new(),
    });
    Ok(Outcome::Right)
}
