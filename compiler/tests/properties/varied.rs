//! What a run may vary beside the program: how the inputs lie in memory, and the schedule. A failure is written as files
//! that `girih run` takes.

use super::common::Case;
use girih_compiler::host::HostTensor;
use girih_compiler::ir::graph::{Graph, Role, TileBlock, Word};
use girih_compiler::ir::plan::Plan;
use girih_compiler::lower::{Schedule, space};
use girih_compiler::reference::Inputs;
use girih_compiler::vocab::target::Target;
use std::fmt::Write;
use std::path::PathBuf;

/// A stream of small numbers for one run.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n.max(1)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// Gives inputs of two axes a pitch, or lays them down by columns; those of one axis a step. The memory for them, with
/// every byte that is no element's set.
pub fn lay_out(graph: &mut Graph, inputs: &Inputs, dice: &mut Dice) -> Inputs {
    let mut memory = inputs.clone();
    for t in graph.tensors.iter_mut().filter(|t| t.role == Role::Input && t.dtype.bits() >= 8) {
        let strides = match t.dims[..] {
            [n] if n > 0 => vec![dice.pick(&[1, 1, 2, 3])],
            [m, n] if m * n > 0 => {
                dice.pick(&[vec![n, 1], vec![n + 1, 1], vec![n + 8, 1], vec![1, m], vec![1, m + 3]])
            }
            _ => continue,
        };
        let own = &inputs.tensors[&t.name];
        let size = t.dtype.bits() as usize / 8;
        let end: i64 = t.dims.iter().zip(&strides).map(|(n, s)| (n - 1) * s).sum();
        let mut data = vec![0xff; (end as usize + 1) * size];
        for i in 0..own.len() {
            let (mut rest, mut at) = (i as i64, 0);
            for (n, s) in t.dims.iter().zip(&strides).rev() {
                at += rest % n * s;
                rest /= n;
            }
            data[at as usize * size..][..size].copy_from_slice(&own.data[i * size..][..size]);
        }
        memory.tensors.insert(t.name.clone(), HostTensor { dtype: t.dtype, dims: vec![end + 1], data });
        (t.strides, t.align) = (strides, size as u32);
    }
    memory
}

/// Settings of a `tile` block over the last result's axes; legal ones and others.
pub fn tile(dice: &mut Dice) -> TileBlock {
    let mut settings = Vec::new();
    let mut put = |key: &str, axis: Option<&str>, values: &[i64]| {
        settings.push(girih_compiler::ir::graph::Setting {
            key: key.into(),
            axis: axis.map(str::to_string),
            choices: values.iter().map(|&v| Word::Int(v)).collect(),
            span: Default::default(),
        });
    };
    let sizes = [1, 2, 7, 8, 16, 24, 32, 64];
    for axis in ["i", "j"] {
        if dice.below(2) == 0 {
            put("block", Some(axis), &[dice.pick(&sizes), dice.pick(&sizes)]);
        }
    }
    match dice.below(4) {
        0 => put("threads", None, &[dice.pick(&[32, 64, 96, 256, 1024])]),
        1 => put("warps", None, &[dice.pick(&[1, 2, 3, 8])]),
        2 => put("unroll", Some("k"), &[dice.pick(&[1, 2, 5])]),
        _ => {}
    }
    TileBlock { def: None, at: Vec::new(), of: None, targets: Vec::new(), settings }
}

/// Values for some of the settings that the forms leave open.
pub fn schedule(plan: &Plan, target: &Target, dice: &mut Dice) -> Schedule {
    let mut schedule = Schedule::default();
    for k in &plan.kernels {
        for c in space(plan, k, target) {
            if dice.below(3) > 0 {
                schedule.set(&k.name, &c.key, &c.axis, dice.pick(&c.values));
            }
        }
    }
    schedule
}

/// Writes a failure under `target/failures`, the smallest last, and says how it is run again.
pub fn keep(case: &Case, target: &str, tile: Option<&TileBlock>, schedule: &Schedule, said: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/failures");
    let name = said.bytes().fold(0xcbf2_9ce4u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let stem = folder.join(format!("case-{:04x}", name & 0xffff));
    let file = |end: &str| stem.with_extension(end);
    let mut command = format!("girih run {} --device sim --target {target} --check", file("tile").display());
    for (size, n) in &case.bindings.dims {
        let _ = write!(command, " --dim {size}={n}");
    }
    let _ = std::fs::create_dir_all(&folder);
    for (name, t) in &case.inputs.tensors {
        let path = file(&format!("{name}.npy"));
        if std::fs::write(&path, npy(t)).is_ok() {
            let _ = write!(command, " --input {name}={}", path.display());
        }
    }
    if !schedule.kernels.is_empty() && std::fs::write(file("schedule"), schedule.to_string()).is_ok() {
        let _ = write!(command, " --schedule {}", file("schedule").display());
    }
    let settings: Vec<String> = tile.iter().flat_map(|t| &t.settings).map(setting).collect();
    let block = if settings.is_empty() {
        String::new()
    } else {
        format!("tile random {{ {} }}\n", settings.join(" "))
    };
    let said: String = said.lines().map(|l| format!("// {l}\n")).collect();
    let _ = std::fs::write(file("tile"), format!("// {command}\n{said}{}\n{block}", case.text));
    command
}

fn setting(s: &girih_compiler::ir::graph::Setting) -> String {
    let values: Vec<String> =
        s.choices.iter().map(|w| if let Word::Int(v) = w { v.to_string() } else { "?".into() }).collect();
    format!("{} {} = {{{}}}", s.key, s.axis.as_deref().unwrap_or(""), values.join(", "))
}

fn npy(t: &HostTensor) -> Vec<u8> {
    let descr = match t.dtype.name() {
        "f64" => "<f8",
        "f32" => "<f4",
        "f16" => "<f2",
        "bf16" => "<V2",
        "i64" => "<i8",
        "i32" => "<i4",
        "i16" => "<i2",
        "i8" => "|i1",
        "bool" => "|b1",
        "e4m3" | "e5m2" => "|V1",
        _ => "|u1",
    };
    let dims: String = t.dims.iter().map(|n| format!("{n}, ")).collect();
    let head =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}").replace(", )", ",)");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&(head.len() as u16 + 1).to_le_bytes());
    bytes.extend_from_slice(head.as_bytes());
    bytes.push(b'\n');
    bytes.extend_from_slice(&t.data);
    bytes
}
