//! The C functions of what `engine` carries out, around their PTX.

use crate::ir::simt::{Intrinsic, Ty};
use crate::vocab::dtype::DType;

/// The C name of an intrinsic's function.
pub fn name(op: Intrinsic) -> String {
    match op {
        Intrinsic::MbarrierInit => "mbarrier_init".into(),
        Intrinsic::MbarrierArrive => "mbarrier_arrive".into(),
        Intrinsic::MbarrierArriveAt => "mbarrier_arrive_at".into(),
        Intrinsic::MbarrierExpect => "mbarrier_expect".into(),
        Intrinsic::MbarrierWait => "mbarrier_wait".into(),
        Intrinsic::FenceMbarrierInit => "fence_mbarrier_init".into(),
        Intrinsic::FenceProxyAsync => "fence_proxy_async".into(),
        Intrinsic::TmaLoad { rank, .. } => format!("tma_load_{rank}d"),
        Intrinsic::TmaMulticast { rank, .. } => format!("tma_multicast_{rank}d"),
        Intrinsic::TmaPixels { rank, multicast: false, .. } => format!("tma_pixels_{rank}d"),
        Intrinsic::TmaPixels { rank, multicast: true, .. } => format!("tma_pixels_multicast_{rank}d"),
        Intrinsic::TmaStore { rank, .. } => format!("tma_store_{rank}d"),
        Intrinsic::BulkCommit => "bulk_commit".into(),
        Intrinsic::BulkWait(n) => format!("bulk_wait<{n}>"),
        Intrinsic::WgmmaFence => "wgmma_fence".into(),
        Intrinsic::WgmmaCommit => "wgmma_commit".into(),
        Intrinsic::WgmmaWait(n) => format!("wgmma_wait<{n}>"),
        Intrinsic::WgmmaRegs { dtype, n, trans } => {
            format!("wgmma_regs_m64n{n}k16_{}_{}", dtype.name(), if trans { 't' } else { 'n' })
        }
        Intrinsic::Wgmma { dtypes: [a, b], n, trans } => {
            let lie = trans.map(|t| if t { 't' } else { 'n' });
            let k = 256 / a.bits();
            format!("wgmma_m64n{n}k{k}_{}_{}_{}{}", a.name(), b.name(), lie[0], lie[1])
        }
        Intrinsic::SetMaxRegisters { more, count } => {
            format!("{}_registers<{count}>", if more { "more" } else { "fewer" })
        }
        Intrinsic::NamedBarrier { threads } => format!("named_barrier<{threads}>"),
        Intrinsic::ClusterArrive => "cluster_arrive".into(),
        Intrinsic::ClusterWait => "cluster_wait".into(),
        Intrinsic::StoreAsync { wide } => format!("store_async_{}", if wide { 64 } else { 32 }),
        _ => String::new(),
    }
}

/// The C function of an intrinsic, around its PTX.
pub fn definition(op: Intrinsic) -> String {
    let function = |head: &str, comment: &str, ptx: &str, operands: &str| {
        format!(
            "// {comment}\n{head} {{\n    asm volatile(\"{ptx}\" :: {operands}{}\"memory\");\n}}\n",
            if operands.is_empty() { ": " } else { " : " }
        )
        .replace("::  :", ":::")
    };
    let plain = |params: &str, comment: &str, ptx: &str, operands: &str| {
        let name = name(op);
        function(&format!("__device__ __forceinline__ void {name}({params})"), comment, ptx, operands)
    };
    let numbered = |comment: &str, ptx: &str| {
        let name = name(op);
        let name = name.split('<').next().unwrap_or("");
        let head = format!("template <int N> __device__ __forceinline__ void {name}()");
        function(&head, comment, ptx, "\"n\"(N)")
    };
    match op {
        Intrinsic::MbarrierInit => plain(
            "u32 barrier, u32 count",
            "A barrier whose phases are of `count` arrivals.",
            "mbarrier.init.shared::cta.b64 [%0], %1;",
            "\"r\"(barrier), \"r\"(count)",
        ),
        Intrinsic::MbarrierArrive => {
            plain("u32 barrier", "Arrives.", "mbarrier.arrive.shared::cta.b64 _, [%0];", "\"r\"(barrier)")
        }
        Intrinsic::MbarrierArriveAt => plain(
            "u32 barrier, u32 block",
            "Arrives at this barrier of another block of the cluster.",
            "{ .reg .b32 a; mapa.shared::cluster.u32 a, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [a]; }",
            "\"r\"(barrier), \"r\"(block)",
        ),
        Intrinsic::MbarrierExpect => plain(
            "u32 barrier, u32 bytes",
            "Arrives; the phase also waits for so many bytes of copies.",
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;",
            "\"r\"(barrier), \"r\"(bytes)",
        ),
        Intrinsic::MbarrierWait => "// Waits until the phase of this parity has completed.\n\
             __device__ __forceinline__ void mbarrier_wait(u32 barrier, u32 parity) {\n    \
             u32 done;\n    do {\n        \
             asm volatile(\"{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; \
             selp.u32 %0, 1, 0, p; }\"\n            \
             : \"=r\"(done) : \"r\"(barrier), \"r\"(parity) : \"memory\");\n    } while (!done);\n}\n"
            .into(),
        Intrinsic::FenceMbarrierInit => plain(
            "",
            "Makes initialised barriers known to copies.",
            "fence.mbarrier_init.release.cluster;",
            "",
        ),
        Intrinsic::FenceProxyAsync => plain(
            "",
            "What ordinary stores wrote to shared memory is seen by copies and matrix instructions.",
            "fence.proxy.async.shared::cta;",
            "",
        ),
        Intrinsic::TmaLoad { rank, .. } => tma_load_definition(rank as usize, false),
        Intrinsic::TmaMulticast { rank, .. } => tma_load_definition(rank as usize, true),
        Intrinsic::TmaPixels { rank, multicast, .. } => tma_pixels_definition(rank as usize, multicast),
        Intrinsic::TmaStore { rank, .. } => tma_store_definition(rank as usize),
        Intrinsic::BulkCommit => {
            plain("", "Closes this thread's group of stores.", "cp.async.bulk.commit_group;", "")
        }
        Intrinsic::BulkWait(_) => numbered(
            "Waits until at most N of this thread's groups of stores have still to read shared memory.",
            "cp.async.bulk.wait_group.read %0;",
        ),
        Intrinsic::WgmmaFence => plain(
            "",
            "Before matrix instructions: registers are as written.",
            "wgmma.fence.sync.aligned;",
            "",
        ),
        Intrinsic::WgmmaCommit => {
            plain("", "Closes a group of matrix instructions.", "wgmma.commit_group.sync.aligned;", "")
        }
        Intrinsic::WgmmaWait(_) => numbered(
            "Waits until at most N groups of matrix instructions are under way.",
            "wgmma.wait_group.sync.aligned %0;",
        ),
        Intrinsic::SetMaxRegisters { more, .. } => numbered(
            "The warpgroup's registers a thread from here on.",
            if more { "setmaxnreg.inc.sync.aligned.u32 %0;" } else { "setmaxnreg.dec.sync.aligned.u32 %0;" },
        ),
        Intrinsic::NamedBarrier { .. } => "// A barrier of N threads.\n\
             template <int N> __device__ __forceinline__ void named_barrier(u32 id) {\n    \
             asm volatile(\"bar.sync %0, %1;\" :: \"r\"(id), \"n\"(N) : \"memory\");\n}\n"
            .into(),
        Intrinsic::Wgmma { dtypes, n, trans } => wgmma_definition(dtypes, n as usize, trans, None),
        Intrinsic::WgmmaRegs { dtype, n, trans } => wgmma_regs_definition(dtype, n as usize, trans),
        Intrinsic::ClusterArrive => plain(
            "",
            "Arrives at the cluster's barrier; of memory, only initialised barriers are ordered.",
            "barrier.cluster.arrive.relaxed.aligned;",
            "",
        ),
        Intrinsic::ClusterWait => {
            plain("", "Waits for the cluster's threads.", "barrier.cluster.wait.acquire.aligned;", "")
        }
        Intrinsic::StoreAsync { wide } => store_async_definition(wide),
        _ => String::new(),
    }
}

fn store_async_definition(wide: bool) -> String {
    let (bits, ty, kind) = if wide { (64, "u64", "l") } else { (32, "u32", "r") };
    format!(
        "// Stores to this place in another block of the cluster, counted on that block's barrier.\n\
         __device__ __forceinline__ void store_async_{bits}(u32 to, u32 barrier, u32 block, {ty} value) {{\n    \
         asm volatile(\"{{ .reg .b32 a, b; mapa.shared::cluster.u32 a, %0, %2; mapa.shared::cluster.u32 b, %1, %2; \"\n        \
         \"st.async.shared::cluster.mbarrier::complete_tx::bytes.b{bits} [a], %3, [b]; }}\"\n        \
         :: \"r\"(to), \"r\"(barrier), \"r\"(block), \"{kind}\"(value) : \"memory\");\n}}\n"
    )
}

fn tma_load_definition(rank: usize, multicast: bool) -> String {
    let params: String = (0..rank).map(|i| format!(", int x{i}")).collect();
    let places: Vec<String> = (0..rank).map(|i| format!("%{}", i + 3)).collect();
    let operands: String = (0..rank).map(|i| format!(", \"r\"(x{i})")).collect();
    let (name, what, suffix, blocks, mask, operand) = match multicast {
        false => ("load", "shared memory; its bytes are counted on the barrier", "", "", String::new(), ""),
        true => (
            "multicast",
            "these blocks of the cluster, counted on the barrier of each",
            ".multicast::cluster",
            ", u32 blocks",
            format!(", %{}", rank + 3),
            ", \"h\"((unsigned short)blocks)",
        ),
    };
    format!(
        "// Copies the box at these coordinates to {what}.\n\
         __device__ __forceinline__ void tma_{name}_{rank}d(u32 to, u32 barrier, const TensorMap* map{params}{blocks}) {{\n    \
         asm volatile(\"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{suffix} \
         [%0], [%1, {{{}}}], [%2]{mask};\"\n        \
         :: \"r\"(to), \"l\"(map), \"r\"(barrier){operands}{operand} : \"memory\");\n}}\n",
        places.join(", ")
    )
}

fn tma_store_definition(rank: usize) -> String {
    let params: String = (0..rank).map(|i| format!(", int x{i}")).collect();
    let places: Vec<String> = (0..rank).map(|i| format!("%{}", i + 2)).collect();
    let operands: String = (0..rank).map(|i| format!(", \"r\"(x{i})")).collect();
    format!(
        "// Copies the box at these coordinates from shared memory.\n\
         __device__ __forceinline__ void tma_store_{rank}d(u32 from, const TensorMap* map{params}) {{\n    \
         asm volatile(\"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%1, {{{}}}], [%0];\"\n        \
         :: \"r\"(from), \"l\"(map){operands} : \"memory\");\n}}\n",
        places.join(", ")
    )
}

fn tma_pixels_definition(rank: usize, multicast: bool) -> String {
    let inner = rank - 2;
    let params: String = (0..rank).map(|i| format!(", int x{i}")).collect();
    let offsets: String = (0..inner).map(|i| format!(", int o{i}")).collect();
    let list = |from: usize, n: usize| -> String {
        (from..from + n).map(|i| format!("%{i}")).collect::<Vec<_>>().join(", ")
    };
    let (places, moves) = (list(3, rank), list(3 + rank, inner));
    let operands: String = (0..rank).map(|i| format!(", \"r\"(x{i})")).collect();
    let shorts: String = (0..inner).map(|i| format!(", \"h\"((unsigned short)o{i})")).collect();
    let (name, to, suffix, blocks, mask, operand) = match multicast {
        false => ("", "", "", "", String::new(), ""),
        true => (
            "_multicast",
            " to these blocks of the cluster",
            ".multicast::cluster",
            ", u32 blocks",
            format!(", %{}", 3 + rank + inner),
            ", \"h\"((unsigned short)blocks)",
        ),
    };
    format!(
        "// Copies pixels in a row from this one on{to}, all moved by the offsets; their bytes are counted on the barrier.\n\
         __device__ __forceinline__ void tma_pixels{name}_{rank}d(u32 to, u32 barrier, const TensorMap* map{params}{offsets}{blocks}) {{\n    \
         asm volatile(\"cp.async.bulk.tensor.{rank}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes{suffix} \
         [%0], [%1, {{{places}}}], [%2], {{{moves}}}{mask};\"\n        \
         :: \"r\"(to), \"l\"(map), \"r\"(barrier){operands}{shorts}{operand} : \"memory\");\n}}\n"
    )
}

/// How PTX names an operand of a matrix instruction.
fn ptx_type(dtype: DType) -> &'static str {
    match dtype {
        DType::I8 => "s8",
        DType::F32 => "tf32",
        d => d.name(),
    }
}

fn wgmma_regs_definition(dtype: DType, n: usize, trans: bool) -> String {
    let regs = n / 2;
    let places: Vec<String> = (0..regs).map(|i| format!("%{i}")).collect();
    let outs: Vec<String> = (0..regs).map(|i| format!("\"+f\"(d[{i}])")).collect();
    let a: Vec<String> = (0..4).map(|i| format!("%{}", regs + i)).collect();
    let ty = dtype.name();
    format!(
        "// d = a * b + scale * d over the warpgroup's 64x{n}x16, a in registers.\n\
         __device__ __forceinline__ void {}(float* d, u32 a0, u32 a1, u32 a2, u32 a3, u64 b, int scale) {{\n    \
         asm volatile(\"{{ .reg .pred p; setp.ne.b32 p, %{}, 0; \"\n        \
         \"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{ty}.{ty} {{{}}}, {{{}}}, %{}, p, 1, 1, {}; }}\"\n        \
         : {}\n        : \"r\"(a0), \"r\"(a1), \"r\"(a2), \"r\"(a3), \"l\"(b), \"r\"(scale));\n}}\n",
        name(Intrinsic::WgmmaRegs { dtype, n: n as u16, trans }),
        regs + 5,
        places.join(", "),
        a.join(", "),
        regs + 4,
        trans as u8,
        outs.join(", ")
    )
}

/// The C function of a matrix instruction whose accumulators are registers that PTX names, from `array`'s `first` on.
pub fn definition_of_named(op: Intrinsic, array: &str, first: u32) -> String {
    match op {
        Intrinsic::Wgmma { dtypes, n, trans } => {
            wgmma_definition(dtypes, n as usize, trans, Some((array, first)))
        }
        _ => definition(op),
    }
}

/// How a type's registers are declared, what C calls it, and its letter as an operand.
fn register(ty: Ty) -> (&'static str, &'static str, char) {
    match ty {
        Ty::F32 => ("f32", "float", 'f'),
        _ => ("b32", "int", 'r'),
    }
}

/// Declares registers for all of a kernel.
pub fn named_declaration(ty: Ty, array: &str, len: u32) -> String {
    format!("asm volatile(\".reg .{} {array}_<{len}>;\");", register(ty).0)
}

/// Copies register `at` of an array that PTX names to `to`.
pub fn named_read(ty: Ty, array: &str, at: &str, to: &str) -> String {
    let (ptx, _, letter) = register(ty);
    format!("asm volatile(\"mov.{ptx} %0, {array}_{at};\" : \"={letter}\"({to}));")
}

/// Reading and setting one of an array's registers that PTX names.
pub fn named_registers(ty: Ty, array: &str) -> String {
    let (ptx, c, letter) = register(ty);
    format!(
        "// Register I of `{array}`.\n\
         template <int I> __device__ __forceinline__ {c} {array}_at() {{\n    {c} r;\n    \
         asm volatile(\"mov.{ptx} %0, {array}_%1;\" : \"={letter}\"(r) : \"n\"(I));\n    return r;\n}}\n\
         template <int I> __device__ __forceinline__ void {array}_set({c} a) {{\n    \
         asm volatile(\"mov.{ptx} {array}_%1, %0;\" :: \"{letter}\"(a), \"n\"(I));\n}}\n"
    )
}

fn wgmma_definition(dtypes: [DType; 2], n: usize, trans: [bool; 2], named: Option<(&str, u32)>) -> String {
    let regs = n / 2;
    let integer = matches!(dtypes[0], DType::I8 | DType::U8);
    let (c_type, sum, letter) = if integer { ("int", "s32", 'r') } else { ("float", "f32", 'f') };
    // Operands before those of the matrices.
    let before = if named.is_some() { 0 } else { regs };
    let place = |i: usize| match named {
        Some((array, first)) => format!("{array}_{}", first as usize + i),
        None => format!("%{i}"),
    };
    let places: Vec<String> = (0..regs).map(place).collect();
    let outs: Vec<String> = (0..before).map(|i| format!("\"+{letter}\"(d[{i}])")).collect();
    let outs = if outs.is_empty() { String::new() } else { format!("{}\n        ", outs.join(", ")) };
    let (suffix, d) = match named {
        Some((array, first)) => (format!("_{array}_{first}"), String::new()),
        None => (String::new(), format!("{c_type}* d, ")),
    };
    // Integers have no sign operands, and only 16-bit operands can lie along M or N.
    let [a, b] = trans.map(|t| t as u8);
    let rest = match (integer, dtypes[0].bits()) {
        (true, _) => String::new(),
        (false, 16) => format!(", 1, 1, {a}, {b}"),
        _ => ", 1, 1".into(),
    };
    let k = 256 / dtypes[0].bits();
    let [x, y] = dtypes.map(ptx_type);
    format!(
        "// d = a * b + scale * d over the warpgroup's 64x{n}x{k}.\n\
         __device__ __forceinline__ void {}{suffix}({d}u64 a, u64 b, int scale) {{\n    \
         asm volatile(\"{{ .reg .pred p; setp.ne.b32 p, %{}, 0; \"\n        \
         \"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{sum}.{x}.{y} {{{}}}, %{before}, %{}, p{rest}; }}\"\n        \
         : {outs}: \"l\"(a), \"l\"(b), \"r\"(scale));\n}}\n",
        name(Intrinsic::Wgmma { dtypes, n: n as u16, trans }),
        before + 2,
        places.join(", "),
        before + 1,
    )
}
