//! The C header of a package: tables for `girih_launch.h`, and a function that launches by sizes.

use super::law::Law;
use super::manifest::{ArgRow, Bucket, Manifest, MapRow, ParamRow, Place, StepRow};
use girih_compiler::vocab::dtype::DType;
use std::fmt::Write;

pub const LAUNCHER: &str = include_str!("girih_launch.h");

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
    ranges(m, &name, &mut s);
    let rows = (0..m.buckets.len()).map(|i| format!("GIRIH_{name}_{i}"));
    let _ = writeln!(s, "static const girih_bucket girih_{name}_buckets[] = {{");
    for (i, row) in rows.enumerate() {
        let _ = writeln!(s, "    {},", bucket_row(i, &m.buckets[i], &row));
    }
    let _ = writeln!(s, "}};");
    let _ = writeln!(
        s,
        "static const girih_package girih_{name} = {{ \"{}\", {}, {}, {}, {}, {}, girih_{name}_sizes, girih_{name}_ranges, girih_{name}_buckets }};\n#endif",
        m.op,
        m.sizes.len(),
        m.arguments.len(),
        m.scalars.len(),
        m.ranges.len(),
        m.buckets.len()
    );
    s
}

/// The sizes that each range admits, and the bucket of each combination.
fn ranges(m: &Manifest, name: &str, s: &mut String) {
    for (i, r) in m.ranges.iter().enumerate() {
        let row = format!("GIRIH_{name}_range{i}");
        let _ =
            writeln!(s, "static const int64_t {row}[] = {{ {}0 }};", ints(r.sizes.iter().flatten().copied()));
        let _ = writeln!(s, "static const int16_t {row}_at[] = {{ {}-1 }};", ints(r.buckets.iter().copied()));
        let laws: Vec<String> = (0..m.sizes.len())
            .map(|at| match r.derived.get(&at) {
                Some(l) => law(l, &format!("{row}_{at}"), s),
                None => "{ 0, 0, 0, -1, {{ 0, 0, 0 }}, 0 }".into(),
            })
            .collect();
        if !r.derived.is_empty() {
            let _ = writeln!(s, "static const girih_law {row}_law[] = {{ {} }};", laws.join(", "));
        }
    }
    let _ = writeln!(s, "static const girih_range girih_{name}_ranges[] = {{");
    for (i, r) in m.ranges.iter().enumerate() {
        let row = format!("GIRIH_{name}_range{i}");
        let law = if r.derived.is_empty() { "0".to_string() } else { format!("{row}_law") };
        let _ = writeln!(s, "    {{ {row}, {row}_at, {}, {law} }},", r.buckets.len());
    }
    let _ = writeln!(s, "}};");
}

/// A law's row; its table, if it has one, is written before it under this name.
fn law(law: &Law, name: &str, s: &mut String) -> String {
    match law {
        Law::Terms { plus, times, factors, most } => {
            let rows: Vec<String> =
                factors.iter().map(|f| format!("{{ {}, {}, {} }}", f.size, f.add, f.per)).collect();
            let rows = if rows.is_empty() { "{ 0, 0, 0 }".into() } else { rows.join(", ") };
            let most = most.unwrap_or(i64::MAX);
            format!("{{ {plus}, {times}, {most}, {}, {{ {rows} }}, 0 }}", factors.len())
        }
        Law::Table(values) => {
            let _ =
                writeln!(s, "static const int64_t {name}_table[] = {{ {}0 }};", ints(values.iter().copied()));
            format!("{{ 0, 0, 0, 0, {{ {{ 0, 0, 0 }} }}, {name}_table }}")
        }
    }
}

/// Where the launcher keeps what a place of the manifest means: table, row, field and its bytes. A place of a kernel's map is one
/// of each launch's.
fn fields(place: Place, b: &Bucket) -> Vec<(&'static str, usize, String, u32)> {
    let maps = |kernel: usize, param: usize, field: String| {
        let all = maps(b).into_iter().enumerate();
        let of = all.filter(move |(_, m)| m.kernel == kernel && m.param == param);
        of.map(|(i, _)| ("MAPS", i, field.clone(), 8)).collect::<Vec<_>>()
    };
    match place {
        Place::Bytes { buffer } => vec![("BUFFERS", buffer, "girih_buffer, bytes".into(), 8)],
        Place::Grid { kernel, dim } => vec![("KERNELS", kernel, format!("girih_kernel, grid[{dim}]"), 4)],
        Place::MapOffset { kernel, param } => maps(kernel, param, "girih_map, offset".into()),
        Place::MapDim { kernel, param, dim } => maps(kernel, param, format!("girih_map, dims[{dim}]")),
        Place::MapStride { kernel, param, dim } => maps(kernel, param, format!("girih_map, strides[{dim}]")),
        Place::Argument { launch, argument } => {
            let before: usize = launches(&b.steps).iter().take(launch).map(|l| l.1.len()).sum();
            vec![("ARGS", before + argument, "girih_arg, value".into(), 8)]
        }
        Place::Count { repeat } => {
            let steps = flat(&b.steps);
            let mut repeats = steps.iter().enumerate().filter(|(_, s)| matches!(s, StepRow::Repeat { .. }));
            repeats
                .nth(repeat)
                .map(|(i, _)| ("STEPS", i, "girih_step, a".to_string(), 8))
                .into_iter()
                .collect()
        }
        // Dims are for people; the workspace follows from the buffers.
        Place::Dim { .. } | Place::Workspace => Vec::new(),
    }
}

fn varying(b: &Bucket, name: &str, s: &mut String) -> usize {
    let mut rows = Vec::new();
    for (i, v) in b.varying.iter().enumerate() {
        let fields = fields(v.place, b);
        if fields.is_empty() {
            continue;
        }
        let law = law(&v.law, &format!("{name}_{i}"), s);
        for (table, row, field, bytes) in fields {
            rows.push(format!("{{ GIRIH_{table}, {row}, offsetof({field}), {bytes}, {law} }}"));
        }
    }
    let _ = writeln!(s, "static const girih_varying {name}_varying[] = {{");
    rows.iter().for_each(|r| {
        let _ = writeln!(s, "    {r},");
    });
    let _ = writeln!(s, "    {{ 0, 0, 0, 0, {{ 0, 0, 0, 0, {{ {{ 0, 0, 0 }} }}, 0 }} }} }};");
    rows.len()
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
    let varied: usize = b.varying.iter().map(|v| fields(v.place, b).len()).sum();
    let fault =
        b.buffers.iter().position(|f| f.role == "fault").filter(|_| b.faults > 0).map_or(-1, |p| p as i64);
    format!(
        "{{ \"{}\", \"{}\", {}, {}, {}, {}, {}, {varied}, {fault}, {name}_buffer, {name}_kernel, {name}_map, {name}_step, {name}_arg, {name}_varying }} /* {i} */",
        b.name,
        b.cubin,
        b.buffers.len(),
        b.kernels.len(),
        maps(b).len(),
        flat(&b.steps).len(),
        launches(&b.steps).iter().map(|l| l.1.len()).sum::<usize>()
    )
}

/// A launch's parameter that is a tensor map, and the buffer that it is over.
struct Mapped {
    kernel: usize,
    param: usize,
    buffer: u32,
    map: MapRow,
}

fn maps(b: &Bucket) -> Vec<Mapped> {
    let mut found = Vec::new();
    for (kernel, args) in launches(&b.steps) {
        for (param, (p, a)) in b.kernels[kernel].params.iter().zip(args).enumerate() {
            if let (ParamRow::TensorMap(m), ArgRow::Buffer(buffer)) = (p, a) {
                found.push(Mapped { kernel, param, buffer: *buffer, map: m.clone() });
            }
        }
    }
    found
}

/// Steps in order, those of a repeat behind it.
fn flat(steps: &[StepRow]) -> Vec<&StepRow> {
    let mut all = Vec::new();
    for s in steps {
        all.push(s);
        if let StepRow::Repeat { steps, .. } = s {
            all.extend(flat(steps));
        }
    }
    all
}

fn launches(steps: &[StepRow]) -> Vec<(usize, &[ArgRow])> {
    let launch = |s| match s {
        &StepRow::Launch { kernel, ref args } => Some((kernel, &args[..])),
        _ => None,
    };
    flat(steps).into_iter().filter_map(launch).collect()
}

fn bucket(m: &Manifest, i: usize, b: &Bucket, name: &str, s: &mut String) {
    let name = format!("GIRIH_{name}_{i}");
    let _ = writeln!(s, "/* {}: {} */", b.name, b.choice);
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
        let _ = writeln!(s, "    {{ \"{}\", {role}, {}, {at}, {data}, {} }},", f.name, f.bytes, f.align);
    }
    let _ = writeln!(s, "}};\nstatic const girih_kernel {name}_kernel[] = {{");
    for k in &b.kernels {
        let three = |v: [u32; 3]| format!("{{ {}, {}, {} }}", v[0], v[1], v[2]);
        // What a kernel declares itself is not given at launch.
        let dynamic = if k.shared > girih_compiler::ir::simt::STATIC_SHARED { k.shared } else { 0 };
        let (grid, block, cluster) = (three(k.grid), three(k.block), three(k.cluster.map(|c| c.max(1))));
        let early = i32::from(k.early);
        let _ = writeln!(s, "    {{ \"{}\", {grid}, {block}, {cluster}, {dynamic}, {early} }},", k.name);
    }
    let _ = writeln!(
        s,
        "    {{ 0, {{ 0 }}, {{ 0 }}, {{ 0 }}, 0, 0 }} }};\nstatic const girih_map {name}_map[] = {{"
    );
    for m in maps(b) {
        let _ = writeln!(s, "    {},", map(m.buffer, &m.map));
    }
    let _ = writeln!(s, "    {{ 0 }} }};\nstatic const girih_arg {name}_arg[] = {{");
    let mut map = 0;
    for (kernel, args) in launches(&b.steps) {
        for (p, a) in b.kernels[kernel].params.iter().zip(args) {
            let _ = writeln!(s, "    {},", arg(p, a, &mut map));
        }
    }
    let _ = writeln!(s, "    {{ 0, 0, 0 }} }};\nstatic const girih_step {name}_step[] = {{");
    let mut first = 0;
    for step in flat(&b.steps) {
        let _ = writeln!(s, "    {},", step_row(step, &mut first));
    }
    let _ = writeln!(s, "    {{ 0, 0, 0, 0, 0 }} }};");
    varying(b, &name, s);
}

/// An argument; `map` counts the tensor maps before.
fn arg(p: &ParamRow, a: &ArgRow, map: &mut usize) -> String {
    match (p, a) {
        (ParamRow::TensorMap(_), _) => {
            *map += 1;
            format!("{{ GIRIH_MAP, {}, 0 }}", *map - 1)
        }
        (_, ArgRow::Buffer(i)) => format!("{{ GIRIH_BUFFER, {i}, 0 }}"),
        (_, ArgRow::Scalar(i)) => format!("{{ GIRIH_SCALAR, {i}, 0 }}"),
        (_, ArgRow::Value(v)) => format!("{{ GIRIH_VALUE, 0, {v}ull }}"),
        (_, ArgRow::Counter) => "{ GIRIH_COUNTER, 0, 0 }".into(),
    }
}

/// A step; `first` counts the arguments before.
fn step_row(step: &StepRow, first: &mut usize) -> String {
    match step {
        StepRow::Launch { kernel, args } => {
            *first += args.len();
            format!("{{ GIRIH_LAUNCH, {kernel}, 0, {}, {} }}", args.len(), *first - args.len())
        }
        StepRow::Fill { buffer, byte } => format!("{{ GIRIH_FILL, {buffer}, {byte}, 0, 0 }}"),
        StepRow::Copy { from, to } => format!("{{ GIRIH_COPY, {from}, {to}, 0, 0 }}"),
        StepRow::Repeat { count, steps } => {
            format!("{{ GIRIH_REPEAT, {count}, {}, 0, 0 }}", flat(steps).len())
        }
    }
}

/// One row, with what the driver's header calls its numbers.
fn map(buffer: u32, m: &MapRow) -> String {
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
    let element = dtype.map_or(1, |d| i64::from(d.bits()) / 8);
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
        format!("{element} }}"),
    ]
    .join(", ")
}

/// `{ 1, 2 }`, and `{ 0 }` for none.
fn braced(v: impl Iterator<Item = i64>) -> String {
    let all: Vec<String> = v.map(|n| n.to_string()).collect();
    if all.is_empty() { "{ 0 }".into() } else { format!("{{ {} }}", all.join(", ")) }
}
