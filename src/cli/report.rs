//! What `girih run` tells: for people, and with `--json` for programs.

use girih::execute::{Comparison, Compiled, Origin, Ran};
use girih_compiler::reference::Report as Right;
use girih_compiler::vocab::dtype::DType;
use serde::Serialize;
use std::fmt::Write;

#[derive(Serialize)]
pub struct Report {
    op: String,
    device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<String>,
    sizes: Vec<(String, i64)>,
    inputs: Vec<Row>,
    outputs: Vec<Row>,
    kernels: Vec<KernelRow>,
    /// Seconds; device time on a GPU.
    seconds: f64,
    bytes: i64,
    gb_per_s: f64,
    /// Nothing of it on the reference, which compiles nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    choice: Option<ChoiceRow>,
    compile: CompileRow,
    checks: Vec<CheckRow>,
    notes: Vec<String>,
}

/// What was chosen, and by whom.
#[derive(Serialize)]
struct ChoiceRow {
    /// `own` (the forms chose), `given`, `record`, `nearest record` or `lock`
    origin: &'static str,
    /// How much is fused: `searched`, `direct`, `apart`, `plan 2`
    fusion: String,
    /// Settings, a line each; what is not here the forms chose.
    settings: Vec<String>,
    /// Microseconds of the record or lock when it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    tuned_us: Option<f64>,
    /// The shape of the nearest record.
    #[serde(skip_serializing_if = "Option::is_none")]
    tuned_at: Option<String>,
}

/// Seconds of the compile.
#[derive(Serialize)]
struct CompileRow {
    lookup: f64,
    lower: f64,
    cubin: f64,
    cubin_from_cache: bool,
    load: f64,
}

#[derive(Clone, Serialize)]
pub struct Row {
    pub name: String,
    dtype: &'static str,
    dims: Vec<i64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub from: String,
}

#[derive(Serialize)]
struct KernelRow {
    name: String,
    form: &'static str,
    launches: Vec<LaunchRow>,
}

#[derive(Serialize)]
struct LaunchRow {
    kernel: String,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    registers: Option<u32>,
}

#[derive(Serialize)]
struct CheckRow {
    name: String,
    right: bool,
    text: String,
    /// The greatest error, as a part of what is allowed.
    error_to_bound: Option<f64>,
    first_wrong: Option<Vec<i64>>,
}

impl Row {
    pub fn new(name: &str, dtype: DType, dims: &[i64], from: String) -> Row {
        Row { name: name.to_string(), dtype: dtype.name(), dims: dims.to_vec(), from }
    }

    fn text(&self) -> String {
        let dims: Vec<String> = self.dims.iter().map(i64::to_string).collect();
        format!("{}: {}[{}]", self.name, self.dtype, dims.join(", "))
    }
}

impl Report {
    pub fn new(
        c: &Compiled,
        ran: &Ran,
        checks: &[Comparison],
        inputs: &[Row],
        schedule: Option<String>,
    ) -> Report {
        let seconds = ran.time.as_secs_f64();
        let bytes = c.bytes();
        Report {
            op: c.bound().op().name().to_string(),
            device: c.device().to_string(),
            schedule,
            sizes: c.bound().graph().sizes.clone(),
            inputs: inputs.to_vec(),
            outputs: in_order(c, ran),
            kernels: kernels(c),
            seconds,
            bytes,
            gb_per_s: if seconds > 0.0 { bytes as f64 / seconds / 1e9 } else { 0.0 },
            choice: c.lowered().map(|_| choice_row(c)),
            compile: compile_row(c),
            checks: checks.iter().map(check_row).collect(),
            notes: ran.notes.clone(),
        }
    }

    pub fn wrong(&self) -> bool {
        self.checks.iter().any(|c| !c.right)
    }

    /// The words for its schedule.
    pub fn schedule(&self) -> &str {
        self.schedule.as_deref().unwrap_or("the default schedule")
    }

    pub fn text(&self) -> String {
        let mut s = String::new();
        let sizes: Vec<String> = self.sizes.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let _ = writeln!(s, "{} on {}  {}", self.op, self.device, sizes.join(" "));
        if let Some(schedule) = &self.schedule {
            let _ = writeln!(s, "  schedule {schedule}");
        }
        for row in &self.inputs {
            let _ = writeln!(s, "  in   {}  ({})", row.text(), row.from);
        }
        for row in &self.outputs {
            let _ = writeln!(s, "  out  {}", row.text());
        }
        for k in &self.kernels {
            let _ = writeln!(s, "  kernel {} ({})", k.name, k.form);
            for l in &k.launches {
                let _ = writeln!(s, "    {}", l.text());
            }
        }
        let _ = match self.device.starts_with("cuda") {
            true => writeln!(
                s,
                "  time {}, {} bytes, {:.1} GB/s",
                duration(self.seconds),
                self.bytes,
                self.gb_per_s
            ),
            false => writeln!(s, "  time {} of this machine, {} bytes", duration(self.seconds), self.bytes),
        };
        for c in &self.checks {
            let _ = writeln!(s, "  check {}: {}", c.name, c.text);
        }
        for n in &self.notes {
            let _ = writeln!(s, "  note {n}");
        }
        s
    }
}

/// One report as an object, several as a list.
pub fn json<'a>(reports: impl Iterator<Item = &'a Report>) -> String {
    let all: Vec<&Report> = reports.collect();
    let text = match all[..] {
        [one] => serde_json::to_string_pretty(one),
        _ => serde_json::to_string_pretty(&all),
    };
    text.expect("plain structures") + "\n"
}

impl LaunchRow {
    fn text(&self) -> String {
        let [gx, gy, gz] = self.grid;
        let [bx, by, bz] = self.block;
        let mut s = format!("{}: grid {gx}x{gy}x{gz}, block {bx}x{by}x{bz}", self.kernel);
        if self.shared_bytes > 0 {
            let _ = write!(s, ", {} bytes shared", self.shared_bytes);
        }
        if let Some(r) = self.registers {
            let _ = write!(s, ", {r} registers");
        }
        s
    }
}

fn choice_row(c: &Compiled) -> ChoiceRow {
    let (op, origin) = (c.bound().op(), c.origin());
    ChoiceRow {
        origin: origin.name(),
        fusion: op.chosen_fusion().name(),
        settings: op.settings().to_string().lines().map(str::to_string).collect(),
        tuned_us: match origin {
            Origin::Record(us) | Origin::Lock(us) => Some(*us),
            _ => None,
        },
        tuned_at: match origin {
            Origin::NearestRecord(shape) => Some(shape.clone()),
            _ => None,
        },
    }
}

fn compile_row(c: &Compiled) -> CompileRow {
    let t = c.times();
    let [lookup, lower, cubin, load] = [t.lookup, t.lower, t.cubin, t.load].map(|d| d.as_secs_f64());
    CompileRow { lookup, lower, cubin, cubin_from_cache: t.from_cache, load }
}

fn kernels(c: &Compiled) -> Vec<KernelRow> {
    let Some(lowered) = c.lowered() else { return Vec::new() };
    let program = &lowered.program;
    let reports = c.executable().map(|e| &e.report().kernels[..]).unwrap_or_default();
    let launch = |&i: &usize| {
        let k = &program.kernels[i];
        let registers = reports.iter().find(|r| r.name == k.name).map(|r| r.registers);
        LaunchRow {
            kernel: k.name.clone(),
            grid: k.grid,
            block: k.block,
            shared_bytes: k.shared_bytes(),
            registers,
        }
    };
    let row = |f: &girih_compiler::ir::program::FormRow| KernelRow {
        name: f.kernel.clone(),
        form: f.form.name(),
        launches: f.simt.iter().map(launch).collect(),
    };
    program.forms.iter().map(row).collect()
}

fn check_row(c: &Comparison) -> CheckRow {
    let name = c.name.clone();
    match &c.result {
        Ok(r) => {
            CheckRow { name, right: true, text: right(r), error_to_bound: Some(r.worst), first_wrong: None }
        }
        Err(m) => CheckRow {
            name,
            right: false,
            text: format!("WRONG: {m}"),
            error_to_bound: None,
            first_wrong: Some(m.index.clone()),
        },
    }
}

/// The outputs as the op declares them.
fn in_order(c: &Compiled, ran: &Ran) -> Vec<Row> {
    let made = c.bound().graph().outputs.iter().filter_map(|o| ran.outputs.get_key_value(&o.name));
    made.map(|(n, t)| Row::new(n, t.dtype, &t.dims, String::new())).collect()
}

/// How far a right result is from the definition, beside how far it may be.
fn right(r: &Right) -> String {
    let mut s = match &r.worst_index {
        Some(index) => format!("right, the error is at most {:.3} of what is allowed, at {index:?}", r.worst),
        None => "right, exactly".into(),
    };
    if r.ambiguous > 0 {
        let _ = write!(s, "; {} elements are open", r.ambiguous);
    }
    s
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.1} µs", s * 1e6),
    }
}
