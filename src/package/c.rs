//! The C header of a package: tables for `girih_launch.h`, and a function that launches by sizes.

use super::manifest::{ArgRow, Bucket, Manifest, ParamRow, StepRow};
use girih_compiler::vocab::dtype::DType;
use std::fmt::Write;

pub const LAUNCHER: &str = include_str!("girih_launch.h");

const PART: i64 = 256;

/// The header of an op.
pub fn header(m: &Manifest) -> String {
    let name = plain(&m.op);
    let mut s = String::new();
    let _ = writeln!(
        s,
        "/* {} for {}, made by girih {}. Sizes: {}.",
        m.op,
        m.target,
        m.girih,
        m.sizes.join(", ")
    );
    let _ = writeln!(s, " * Device addresses, in order:");
    for a in &m.arguments {
        let _ = writeln!(s, " *   {} {} ({})", a.name, a.dtype, a.role);
    }
    for v in &m.scalars {
        let _ = writeln!(s, " * Scalar {}: the bits of its {}, in 64.", v.name, v.dtype);
    }
    let _ = writeln!(
        s,
        " * girih_open(&girih_{name}, DIR), then girih_prepare, girih_run, girih_status, girih_free. */"
    );
    let guard = name.to_uppercase();
    let _ = writeln!(s, "#ifndef GIRIH_{guard}_H\n#define GIRIH_{guard}_H\n#include \"girih_launch.h\"\n");
    for (i, b) in m.buckets.iter().enumerate() {
        bucket(m, i, b, &name, &mut s);
    }
    let _ = writeln!(
        s,
        "static const char *const girih_{name}_sizes[] = {{ {} 0 }};",
        list(m.sizes.iter().map(|n| format!("\"{n}\"")))
    );
    let rows = (0..m.buckets.len()).map(|i| format!("GIRIH_{name}_{i}"));
    let _ = writeln!(s, "static const girih_bucket girih_{name}_buckets[] = {{");
    for (i, row) in rows.enumerate() {
        let _ = writeln!(s, "    {},", bucket_row(i, &m.buckets[i], &row));
    }
    let _ = writeln!(s, "}};");
    let _ = writeln!(
        s,
        "static const girih_package girih_{name} = {{ \"{}\", {}, {}, {}, {}, girih_{name}_sizes, girih_{name}_buckets }};\n#endif",
        m.op,
        m.sizes.len(),
        m.arguments.len(),
        m.scalars.len(),
        m.buckets.len()
    );
    s
}

fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.map(|i| i + ", ").collect()
}

fn ints(v: impl Iterator<Item = i64>) -> String {
    list(v.map(|n| n.to_string()))
}

fn bucket_row(i: usize, b: &Bucket, name: &str) -> String {
    let fault =
        b.buffers.iter().position(|f| f.role == "fault").filter(|_| b.faults > 0).map_or(-1, |p| p as i64);
    format!(
        "{{ \"{}\", \"{}\", {name}_size, {}, {}, {}, {}, {fault}, {name}_buffer, {name}_kernel, {name}_map, {name}_step, {} }} /* {i} */",
        b.name,
        b.cubin,
        b.buffers.len(),
        b.kernels.len(),
        maps(b).len(),
        flat_count(&b.steps),
        placed(b).1
    )
}

/// Where each buffer of the launch's own lies in the workspace, and its size.
fn placed(b: &Bucket) -> (Vec<i64>, i64) {
    let mut at = 0;
    let place = |f: &super::manifest::Buffer| {
        let here = at;
        if f.argument.is_none() {
            at += (f.bytes.max(32) + PART - 1) / PART * PART;
        }
        here
    };
    let all = b.buffers.iter().map(place).collect();
    (all, at)
}

/// Tensor maps: a launch's parameter and the buffer that it is over.
fn maps(b: &Bucket) -> Vec<(u32, super::manifest::MapRow)> {
    let mut found = Vec::new();
    each_launch(&b.steps, &mut |kernel, args| {
        for (p, a) in b.kernels[kernel].params.iter().zip(args) {
            if let (ParamRow::TensorMap(m), ArgRow::Buffer(i)) = (p, a) {
                found.push((*i, m.clone()));
            }
        }
    });
    found
}

fn each_launch(steps: &[StepRow], see: &mut dyn FnMut(usize, &[ArgRow])) {
    for s in steps {
        match s {
            StepRow::Launch { kernel, args } => see(*kernel, args),
            StepRow::Repeat { steps, .. } => each_launch(steps, see),
            StepRow::Fill { .. } | StepRow::Copy { .. } => {}
        }
    }
}

fn flat_count(steps: &[StepRow]) -> usize {
    let inner = |s: &StepRow| match s {
        StepRow::Repeat { steps, .. } => 1 + flat_count(steps),
        _ => 1,
    };
    steps.iter().map(inner).sum()
}

fn bucket(m: &Manifest, i: usize, b: &Bucket, name: &str, s: &mut String) {
    let name = format!("GIRIH_{name}_{i}");
    let _ = writeln!(s, "/* {}: {} */", b.name, b.choice);
    let _ = writeln!(s, "static const int64_t {name}_size[] = {{ {}0 }};", ints(b.sizes.iter().copied()));
    let (offsets, _) = placed(b);
    for (n, f) in b.buffers.iter().enumerate().filter(|(_, f)| !f.data.is_empty()) {
        let bytes = ints(f.data.iter().map(|&x| i64::from(x)));
        let _ = writeln!(s, "static const unsigned char {name}_data{n}[] = {{ {bytes}}};");
    }
    let _ = writeln!(s, "static const girih_buffer {name}_buffer[] = {{");
    for (n, f) in b.buffers.iter().enumerate() {
        let at = f.argument.as_ref().and_then(|a| m.arguments.iter().position(|x| x.name == *a));
        let data = if f.data.is_empty() { "0".into() } else { format!("{name}_data{n}") };
        let role = format!("GIRIH_{}", f.role.to_uppercase());
        let at = at.map_or(-1, |p| p as i64);
        let _ = writeln!(
            s,
            "    {{ \"{}\", {role}, {}, {at}, {}, {data}, {} }},",
            f.name, f.bytes, offsets[n], f.align
        );
    }
    let _ = writeln!(s, "}};\nstatic const girih_kernel {name}_kernel[] = {{");
    for k in &b.kernels {
        let three = |v: [u32; 3]| format!("{{ {}, {}, {} }}", v[0], v[1], v[2]);
        // What a kernel declares itself is not given at launch.
        let dynamic = if k.shared > girih_compiler::ir::simt::STATIC_SHARED { k.shared } else { 0 };
        let (grid, block, cluster) = (three(k.grid), three(k.block), three(k.cluster.map(|c| c.max(1))));
        let _ = writeln!(s, "    {{ \"{}\", {grid}, {block}, {cluster}, {dynamic} }},", k.name);
    }
    let _ = writeln!(
        s,
        "    {{ 0, {{ 0 }}, {{ 0 }}, {{ 0 }}, 0 }} }};\nstatic const girih_map {name}_map[] = {{"
    );
    for (buffer, m) in maps(b) {
        let _ = writeln!(s, "    {},", map(buffer, &m));
    }
    let _ = writeln!(s, "    {{ 0 }} }};");
    let mut lines = Vec::new();
    let mut counts = (0, 0);
    steps(&b.steps, b, &name, &mut counts, &mut lines, s);
    let _ = writeln!(s, "static const girih_step {name}_step[] = {{");
    lines.iter().for_each(|l| {
        let _ = writeln!(s, "    {l},");
    });
    let _ = writeln!(s, "    {{ 0, 0, 0, 0, 0 }} }};\n");
}

/// One row, with what the driver's header calls its numbers.
fn map(buffer: u32, m: &super::manifest::MapRow) -> String {
    let dtype = DType::parse(&m.dtype);
    let code = match dtype {
        Some(DType::F16) => 6,
        Some(DType::F32) => 7,
        Some(DType::F64) => 8,
        Some(DType::BF16) => 9,
        _ => 0,
    };
    let swizzle = match m.swizzle {
        32 => 1,
        64 => 2,
        128 => 3,
        _ => 0,
    };
    let (lower, upper, step) = m.pixels.clone().unwrap_or_default();
    let inner = m.pixels.as_ref().map(|_| step);
    let steps: Vec<i64> = match inner {
        Some(step) => [1].into_iter().chain(step.into_iter().map(i64::from)).chain([1]).collect(),
        None => vec![1; m.dims.len()],
    };
    let last: i64 = m.dims.iter().skip(1).zip(&m.strides).map(|(n, s)| (n - 1) * s).sum();
    let bytes = last + m.dims.first().copied().unwrap_or(0) * dtype.map_or(1, |d| i64::from(d.bits()) / 8);
    let wide = |v: &[u32]| braced(v.iter().map(|&x| i64::from(x)));
    let signed = |v: &[i32]| braced(v.iter().map(|&x| i64::from(x)));
    [
        format!("{{ {buffer}, {code}, {}, {swizzle}, {}", m.dims.len(), m.offset),
        braced(m.dims.iter().copied()),
        braced(m.strides.iter().copied()),
        wide(&m.extent),
        i32::from(m.pixels.is_some()).to_string(),
        signed(&lower),
        signed(&upper),
        braced(steps.into_iter()),
        format!("{bytes} }}"),
    ]
    .join(", ")
}

/// `{ 1, 2 }`, and `{ 0 }` for none.
fn braced(v: impl Iterator<Item = i64>) -> String {
    let all: Vec<String> = v.map(|n| n.to_string()).collect();
    if all.is_empty() { "{ 0 }".into() } else { format!("{{ {} }}", all.join(", ")) }
}

fn steps(
    all: &[StepRow],
    b: &Bucket,
    name: &str,
    counts: &mut (usize, usize),
    lines: &mut Vec<String>,
    s: &mut String,
) {
    for step in all {
        match step {
            StepRow::Launch { kernel, args } => {
                let n = counts.0;
                counts.0 += 1;
                let mut row = Vec::new();
                for (p, a) in b.kernels[*kernel].params.iter().zip(args) {
                    row.push(match (p, a) {
                        (ParamRow::TensorMap(_), _) => {
                            counts.1 += 1;
                            format!("{{ GIRIH_MAP, {}, 0 }}", counts.1 - 1)
                        }
                        (_, ArgRow::Buffer(i)) => format!("{{ GIRIH_BUFFER, {i}, 0 }}"),
                        (_, ArgRow::Scalar(i)) => format!("{{ GIRIH_SCALAR, {i}, 0 }}"),
                        (_, ArgRow::Value(v)) => format!("{{ GIRIH_VALUE, 0, {v}ull }}"),
                        (_, ArgRow::Counter) => "{ GIRIH_COUNTER, 0, 0 }".into(),
                    });
                }
                let _ = writeln!(
                    s,
                    "static const girih_arg {name}_args{n}[] = {{ {}{{ 0, 0, 0 }} }};",
                    list(row.into_iter())
                );
                lines.push(format!("{{ GIRIH_LAUNCH, {kernel}, 0, {}, {name}_args{n} }}", args.len()));
            }
            StepRow::Fill { buffer, byte } => lines.push(format!("{{ GIRIH_FILL, {buffer}, {byte}, 0, 0 }}")),
            StepRow::Copy { from, to } => lines.push(format!("{{ GIRIH_COPY, {from}, {to}, 0, 0 }}")),
            StepRow::Repeat { count, steps: inner } => {
                lines.push(format!("{{ GIRIH_REPEAT, {count}, {}, 0, 0 }}", flat_count(inner)));
                steps(inner, b, name, counts, lines, s);
            }
        }
    }
}
