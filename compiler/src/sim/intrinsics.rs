//! Intrinsics: one row each with its C name, its PTX and its meaning on the CPU side by side.
//!
//! Fragment layouts are those of the PTX ISA ("Matrix fragments for mma"): with g = lane / 4 and t = lane % 4, the
//! functions `a`, `b` and `c` of a [`Shape`] give (row, column) of element i of a lane's fragment.
//!
//! Rounding of mma: products are exact; one instruction's products and its accumulator are summed in f64 and
//! rounded once to f32. (The hardware truncates more; LANGUAGE.md section 8 allows it 2⁻²³·Σ|ab| a step.) f64 uses
//! fused multiply-adds in the order of k; integers wrap.

use super::block::Block;
use super::cluster::place;
use super::code::{Out, Space};
use super::codec;
use super::engine;
use super::engine_ptx;
pub use super::engine_ptx::{definition_of_named, named_declaration, named_read, named_registers};
use super::lanes::{LANES, Reg, lanes};
use super::report::{Fail, Kind};
use super::resident;
use super::shared::{self, Shared};
use super::warp::{Stop, Warp};
use crate::ir::simt::Intrinsic;
use crate::vocab::dtype::DType;
use crate::vocab::random;

type Result<T> = std::result::Result<T, Fail>;

/// A matrix instruction: its extents and where a lane's elements lie.
pub struct Shape {
    pub name: &'static str,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a_dtype: DType,
    pub b_dtype: DType,
    /// What accumulates: F32, I32 or F64.
    pub sum: DType,
    /// Registers of each operand.
    pub regs: [usize; 3],
    a: Place,
    b: Place,
    c: Place,
    /// The instruction with its types, as PTX has it.
    ptx: &'static str,
}

/// (g, t, i) to (row, column).
type Place = fn(usize, usize, usize) -> (usize, usize);

/// The accumulator of m16n8*: rows g and g + 8, two columns.
const C16X8: Place = |g, t, i| (g + 8 * (i / 2), 2 * t + i % 2);

const fn half(name: &'static str, dtype: DType, ptx: &'static str) -> Shape {
    Shape {
        name,
        m: 16,
        n: 8,
        k: 16,
        a_dtype: dtype,
        b_dtype: dtype,
        sum: DType::F32,
        regs: [4, 2, 4],
        a: |g, t, i| (g + 8 * (i / 2 % 2), 2 * t + i % 2 + 8 * (i / 4)),
        b: |g, t, i| (2 * t + i % 2 + 8 * (i / 2), g),
        c: C16X8,
        ptx,
    }
}

const fn byte(name: &'static str, a_dtype: DType, b_dtype: DType, sum: DType, ptx: &'static str) -> Shape {
    Shape {
        name,
        m: 16,
        n: 8,
        k: 32,
        a_dtype,
        b_dtype,
        sum,
        regs: [4, 2, 4],
        a: |g, t, i| (g + 8 * (i / 4 % 2), 4 * t + i % 4 + 16 * (i / 8)),
        b: |g, t, i| (4 * t + i % 4 + 16 * (i / 4), g),
        c: C16X8,
        ptx,
    }
}

pub static SHAPES: [Shape; 13] = [
    half("mma_m16n8k16_f16", DType::F16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
    half("mma_m16n8k16_bf16", DType::BF16, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
    Shape {
        name: "mma_m16n8k8_f16",
        m: 16,
        n: 8,
        k: 8,
        a_dtype: DType::F16,
        b_dtype: DType::F16,
        sum: DType::F32,
        regs: [2, 1, 4],
        a: |g, t, i| (g + 8 * (i / 2), 2 * t + i % 2),
        b: |g, t, i| (2 * t + i % 2, g),
        c: C16X8,
        ptx: "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
    },
    Shape {
        name: "mma_m16n8k8_tf32",
        m: 16,
        n: 8,
        k: 8,
        a_dtype: DType::F32,
        b_dtype: DType::F32,
        sum: DType::F32,
        regs: [4, 2, 4],
        a: |g, t, i| (g + 8 * (i % 2), t + 4 * (i / 2)),
        b: |g, t, i| (t + 4 * i, g),
        c: C16X8,
        ptx: "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    },
    Shape {
        name: "mma_m8n8k4_f64",
        m: 8,
        n: 8,
        k: 4,
        a_dtype: DType::F64,
        b_dtype: DType::F64,
        sum: DType::F64,
        regs: [1, 1, 2],
        a: |g, t, _| (g, t),
        b: |g, t, _| (t, g),
        c: |g, t, i| (g, 2 * t + i),
        ptx: "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
    },
    byte(
        "mma_m16n8k32_e4m3_e4m3",
        DType::E4M3,
        DType::E4M3,
        DType::F32,
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
    ),
    byte(
        "mma_m16n8k32_e4m3_e5m2",
        DType::E4M3,
        DType::E5M2,
        DType::F32,
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32",
    ),
    byte(
        "mma_m16n8k32_e5m2_e4m3",
        DType::E5M2,
        DType::E4M3,
        DType::F32,
        "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32",
    ),
    byte(
        "mma_m16n8k32_e5m2_e5m2",
        DType::E5M2,
        DType::E5M2,
        DType::F32,
        "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32",
    ),
    byte(
        "mma_m16n8k32_i8_i8",
        DType::I8,
        DType::I8,
        DType::I32,
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
    ),
    byte(
        "mma_m16n8k32_i8_u8",
        DType::I8,
        DType::U8,
        DType::I32,
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32",
    ),
    byte(
        "mma_m16n8k32_u8_i8",
        DType::U8,
        DType::I8,
        DType::I32,
        "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32",
    ),
    byte(
        "mma_m16n8k32_u8_u8",
        DType::U8,
        DType::U8,
        DType::I32,
        "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32",
    ),
];

/// The matrix instruction that an intrinsic is, if it is one that exists.
pub fn shape(op: Intrinsic) -> Option<&'static Shape> {
    let (k, a, b) = match op {
        Intrinsic::MmaM16N8K16 { dtype } => (16, dtype, dtype),
        Intrinsic::MmaM16N8K8F16 => (8, DType::F16, DType::F16),
        Intrinsic::MmaM16N8K8Tf32 => (8, DType::F32, DType::F32),
        Intrinsic::MmaM8N8K4F64 => (4, DType::F64, DType::F64),
        Intrinsic::MmaM16N8K32 { a, b } => (32, a, b),
        _ => return None,
    };
    SHAPES.iter().find(|s| s.k == k && s.a_dtype == a && s.b_dtype == b)
}

/// The C name of an intrinsic's function in the printed prelude.
pub fn name(op: Intrinsic) -> String {
    match op {
        Intrinsic::CpAsync { bytes, .. } => format!("cp_async_{bytes}"),
        Intrinsic::Philox => "philox_block".into(),
        Intrinsic::HalfFma { dtype } => format!("fma_{}x2", dtype.name()),
        Intrinsic::BytePermute => "byte_permute".into(),
        Intrinsic::MatchDigit { bits } => format!("match_digit<{bits}>"),
        Intrinsic::CpAsyncCommit => "cp_async_commit".into(),
        Intrinsic::GridWait => "grid_wait".into(),
        Intrinsic::PublishWord { .. } => "publish_word".into(),
        Intrinsic::AwaitWords { count, .. } => format!("await_words_{count}"),
        Intrinsic::CpAsyncWait(n) => format!("cp_async_wait<{n}>"),
        Intrinsic::LdMatrix { count, trans } => {
            format!("ldmatrix_x{count}{}", if trans { "_trans" } else { "" })
        }
        Intrinsic::StMatrix { count, trans } => {
            format!("stmatrix_x{count}{}", if trans { "_trans" } else { "" })
        }
        op if engine::takes(op) => engine_ptx::name(op),
        _ => shape(op).map_or("mma_that_does_not_exist", |s| s.name).into(),
    }
}

/// The C function, with its name, that loads 16 bytes past the L1 cache; `ty`: what it gives.
pub fn load_once(ty: &str) -> Option<(String, String)> {
    let (name, part) = match ty {
        "uint4" | "int4" => (format!("load_once_{ty}"), 'r'),
        "float4" => (format!("load_once_{ty}"), 'f'),
        _ => return None,
    };
    let kind = if part == 'r' { "u32" } else { "f32" };
    let definition = format!(
        "// 16 bytes that are read once: they take no place in the L1 cache.\n\
         __device__ __forceinline__ {ty} {name}(const void* p) {{\n    {ty} v;\n    \
         asm(\"ld.global.nc.L1::no_allocate.v4.{kind} {{%0, %1, %2, %3}}, [%4];\" \
         : \"={part}\"(v.x), \"={part}\"(v.y), \"={part}\"(v.z), \"={part}\"(v.w) : \"l\"(p));\n    return v;\n}}\n"
    );
    Some((name, definition))
}

/// The C function of an intrinsic, around its PTX.
pub fn definition(op: Intrinsic) -> String {
    match op {
        Intrinsic::CpAsync { bytes, .. } => {
            // Only 16-byte copies may pass by L1.
            let cache = if bytes == 16 { "cg" } else { "ca" };
            format!(
                "// Copies {bytes} bytes to shared memory while the thread goes on; bytes from `valid` on are zero.\n\
                 __device__ __forceinline__ void cp_async_{bytes}(u32 to, const void* from, int valid) {{\n    \
                 asm volatile(\"cp.async.{cache}.shared.global [%0], [%1], {bytes}, %2;\" \
                 :: \"r\"(to), \"l\"(from), \"r\"(valid) : \"memory\");\n}}\n"
            )
        }
        Intrinsic::Philox => PHILOX.into(),
        Intrinsic::BytePermute => "// Four of the bytes of a and b.\n\
             __device__ __forceinline__ void byte_permute(u32& d, u32 a, u32 b, u32 selector) {\n    \
             d = __byte_perm(a, b, selector);\n}\n"
            .into(),
        Intrinsic::HalfFma { dtype } => {
            let ty = dtype.name();
            format!(
                "// a * b + c of two {ty} in a word.\n\
                 __device__ __forceinline__ void fma_{ty}x2(u32& d, u32 a, u32 b, u32 c) {{\n    \
                 asm(\"fma.rn.{ty}x2 %0, %1, %2, %3;\" : \"=r\"(d) : \"r\"(a), \"r\"(b), \"r\"(c));\n}}\n"
            )
        }
        Intrinsic::MatchDigit { .. } => MATCH_DIGIT.into(),
        Intrinsic::GridWait => {
            "// Waits for the kernels before this one; from here on the next one may start.\n\
             __device__ __forceinline__ void grid_wait() {\n    \
             asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n    \
             asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\");\n}\n"
                .into()
        }
        op @ (Intrinsic::PublishWord { .. } | Intrinsic::AwaitWords { .. }) => resident::definition(op),
        Intrinsic::CpAsyncCommit => "__device__ __forceinline__ void cp_async_commit() {\n    \
             asm volatile(\"cp.async.commit_group;\" ::: \"memory\");\n}\n"
            .into(),
        Intrinsic::CpAsyncWait(_) => {
            "// Waits until at most N of this thread's groups of copies are under way.\n\
             template <int N> __device__ __forceinline__ void cp_async_wait() {\n    \
             asm volatile(\"cp.async.wait_group %0;\" :: \"n\"(N) : \"memory\");\n}\n"
                .into()
        }
        Intrinsic::LdMatrix { count, trans } => ldmatrix_definition(count as usize, trans),
        Intrinsic::StMatrix { count, trans } => stmatrix_definition(count as usize, trans),
        op if engine::takes(op) => engine_ptx::definition(op),
        _ => shape(op).map_or(String::new(), mma_definition),
    }
}

const MATCH_DIGIT: &str = "\
// Of the warp's lanes with the same digit: how many stand before this one, how many there are.
template <int BITS> __device__ __forceinline__ void match_digit(int& before, int& alike, u32 digit) {
    u32 peers = 0xffffffffu, lower;
    #pragma unroll
    for (int i = 0; i < BITS; ++i) {
        const bool set = digit >> i & 1;
        const u32 with = __ballot_sync(0xffffffffu, set);
        peers &= set ? with : ~with;
    }
    asm(\"mov.u32 %0, %%lanemask_lt;\" : \"=r\"(lower));
    before = __popc(peers & lower);
    alike = __popc(peers);
}
";

const PHILOX: &str = "\
// Philox4x32-10: the four words of a block.
__device__ __forceinline__ void philox_block(u32& x, u32& y, u32& z, u32& w, i64 key, i64 block) {
    u32 k0 = u32(key), k1 = u32(key >> 32);
    x = u32(block), y = u32(block >> 32), z = 0, w = 0;
    #pragma unroll
    for (int i = 0; i < 10; ++i) {
        // Spelled in PTX: as 64-bit C the compiler keeps the halves together, at twice the cost.
        u32 lo0, hi0, lo1, hi1;
        asm(\"{ .reg .u64 p; mul.wide.u32 p, %2, 0xd2511f53; mov.b64 {%0, %1}, p; }\" : \"=r\"(lo0), \"=r\"(hi0) : \"r\"(x));
        asm(\"{ .reg .u64 p; mul.wide.u32 p, %2, 0xcd9e8d57; mov.b64 {%0, %1}, p; }\" : \"=r\"(lo1), \"=r\"(hi1) : \"r\"(z));
        x = hi1 ^ y ^ k0, y = lo1, z = hi0 ^ w ^ k1, w = lo0;
        k0 += 0x9e3779b9u, k1 += 0xbb67ae85u;
    }
}
";

fn ldmatrix_definition(count: usize, trans: bool) -> String {
    let params: String = (0..count).map(|i| format!("u32& d{i}, ")).collect();
    let places: Vec<String> = (0..count).map(|i| format!("%{i}")).collect();
    let outs: Vec<String> = (0..count).map(|i| format!("\"=r\"(d{i})")).collect();
    let name = name(Intrinsic::LdMatrix { count: count as u8, trans });
    let suffix = if trans { ".trans" } else { "" };
    format!(
        "// {count} matrices of 8 x 8 halves; lane i gives the address of row i.\n\
         __device__ __forceinline__ void {name}({params}u32 row) {{\n    \
         asm volatile(\"ldmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16 {{{}}}, [%{count}];\" : {} : \"r\"(row) : \"memory\");\n}}\n",
        places.join(", "),
        outs.join(", ")
    )
}

fn stmatrix_definition(count: usize, trans: bool) -> String {
    let params: String = (0..count).map(|i| format!(", u32 d{i}")).collect();
    let places: Vec<String> = (0..count).map(|i| format!("%{}", i + 1)).collect();
    let operands: String = (0..count).map(|i| format!(", \"r\"(d{i})")).collect();
    let name = name(Intrinsic::StMatrix { count: count as u8, trans });
    let suffix = if trans { ".trans" } else { "" };
    format!(
        "// Stores {count} matrices of 8 x 8 halves; lane i gives the address of row i.\n\
         __device__ __forceinline__ void {name}(u32 row{params}) {{\n    \
         asm volatile(\"stmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16 [%0], {{{}}};\" :: \"r\"(row){operands} : \"memory\");\n}}\n",
        places.join(", ")
    )
}

fn mma_definition(s: &Shape) -> String {
    let [na, nb, nc] = s.regs;
    let (sum, constraint) = match s.sum {
        DType::F32 => ("float", "f"),
        DType::F64 => ("double", "d"),
        _ => ("int", "r"),
    };
    let (part, part_constraint) = if s.a_dtype == DType::F64 { ("double", "d") } else { ("u32", "r") };
    let list = |ty: &str, name: &str, n: usize| -> Vec<String> {
        (0..n).map(|i| format!("{ty} {name}{i}")).collect()
    };
    let mut params = list(&format!("{sum}&"), "d", nc);
    params.extend(list(part, "a", na));
    params.extend(list(part, "b", nb));
    params.extend(list(sum, "c", nc));
    let mut at = 0;
    let mut group = |n: usize| {
        let places: Vec<String> = (at..at + n).map(|i| format!("%{i}")).collect();
        at += n;
        format!("{{{}}}", places.join(", "))
    };
    let operands = [group(nc), group(na), group(nb), group(nc)].join(", ");
    let outs: Vec<String> = (0..nc).map(|i| format!("\"={constraint}\"(d{i})")).collect();
    let mut ins: Vec<String> = (0..na).map(|i| format!("\"{part_constraint}\"(a{i})")).collect();
    ins.extend((0..nb).map(|i| format!("\"{part_constraint}\"(b{i})")));
    ins.extend((0..nc).map(|i| format!("\"{constraint}\"(c{i})")));
    format!(
        "// d = a * b + c over the warp's {}x{}x{} fragments.\n__device__ __forceinline__ void {}({}) {{\n    \
         asm volatile(\"{} {};\" : {} : {});\n}}\n",
        s.m,
        s.n,
        s.k,
        s.name,
        params.join(", "),
        s.ptx,
        operands,
        outs.join(", "),
        ins.join(", ")
    )
}

/// A copy under way: it lands when its lane waits for its group.
pub struct AsyncCopy {
    lane: usize,
    group: u32,
    to: usize,
    len: usize,
    data: [u8; 16],
}

impl Block<'_> {
    /// Carries out an intrinsic; gives what the warp has to wait for, if it has to.
    pub fn intrinsic(
        &mut self,
        w: &mut Warp,
        op: Intrinsic,
        outs: &[Out],
        args: &[Reg],
    ) -> Result<Option<Stop>> {
        match op {
            op if engine::takes(op) => return self.engine_intrinsic(w, op, outs, args),
            Intrinsic::CpAsync { mem, bytes } => {
                return self.cp_async(w, mem.0 as u16, bytes as usize, args).map(|()| None);
            }
            // Launches are simulated one after the other.
            Intrinsic::GridWait => return Ok(None),
            Intrinsic::CpAsyncCommit => {
                for i in lanes(w.mask) {
                    w.groups[i] += 1;
                }
                return Ok(None);
            }
            Intrinsic::PublishWord { mem } => self.publish_word(w, mem, args)?,
            Intrinsic::AwaitWords { mem, .. } => {
                if !self.await_words(w, mem, outs, args)? {
                    return Ok(Some(Stop::Words));
                }
            }
            Intrinsic::CpAsyncWait(n) => return self.cp_async_wait(w, n as u32).map(|()| None),
            Intrinsic::Philox => philox(w, outs, args),
            Intrinsic::HalfFma { dtype } => half_fma(dtype, w, outs, args),
            Intrinsic::BytePermute => byte_permute(w, outs, args),
            Intrinsic::MatchDigit { bits } => {
                w.whole("a match of digits")?;
                match_digit(bits, w, outs, args);
            }
            Intrinsic::LdMatrix { count, trans } => self.ldmatrix(w, count as usize, trans, outs, args[0])?,
            Intrinsic::StMatrix { trans, .. } => self.stmatrix(w, trans, args[0], &args[1..])?,
            _ => {
                let shape =
                    shape(op).ok_or_else(|| Fail::new(Kind::Malformed, 0, "an mma that does not exist"))?;
                w.whole("an mma")?;
                mma(shape, w, outs, args);
            }
        }
        for elem in outs.iter().filter_map(|o| o.elem) {
            w.valid[elem as usize] |= w.mask;
        }
        Ok(None)
    }

    /// args: shared address, element index in the parameter, valid bytes.
    fn cp_async(&mut self, w: &mut Warp, param: u16, len: usize, args: &[Reg]) -> Result<()> {
        let global = &self.launch.globals[param as usize];
        let (buffer, total) = (global.buffer, global.len * global.bits as i64 / 8);
        let wide = w.regs.get::<i64>(args[1]);
        for i in lanes(w.mask) {
            let (to, index, valid) =
                (place(w.regs.get::<u32>(args[0])[i]) as usize, wide[i], w.regs.get::<i32>(args[2])[i]);
            let from = index * global.bits as i64 / 8;
            let valid = valid.clamp(0, len as i32) as usize;
            if valid > 0 && (from < 0 || from + valid as i64 > total) {
                let message = format!(
                    "{valid} bytes from index {index} of {}, which has {} elements",
                    global.name, global.len
                );
                return Err(Fail::new(Kind::OutOfBounds, i, message));
            }
            if valid > 0 && from % len as i64 != 0 || !to.is_multiple_of(len) {
                let message = format!(
                    "a copy of {len} bytes from byte {from} of {} to byte {to} of shared memory",
                    global.name
                );
                return Err(Fail::new(Kind::Misaligned, i, message));
            }
            if to + len > self.shared.data.len() {
                let message =
                    format!("a copy to byte {to} of shared memory, which has {}", self.shared.data.len());
                return Err(Fail::new(Kind::OutOfBounds, i, message));
            }
            if valid > 0 && self.checks && buffer.is_checked() {
                let order = self.global_order(w, i);
                let noted = buffer.note_read(from as usize, valid, 3, &order);
                noted.map_err(|f| self.global_fail(super::code::Space::Global(param), i, false, f))?;
            }
            let mut data = [0; 16];
            for (j, byte) in data.iter_mut().enumerate().take(valid) {
                *byte = buffer.word8(from as usize + j).load(std::sync::atomic::Ordering::Relaxed);
            }
            self.land(w, i, to, len, &data)?;
            self.shared.invalidate(to, len);
            self.counters.global_read += 32 * valid.div_ceil(32) as u64;
            w.copies.push(AsyncCopy { lane: i, group: w.groups[i], to, len, data });
        }
        Ok(())
    }

    /// A copy's write to shared memory, as the lane's own.
    fn land(&mut self, w: &Warp, lane: usize, to: usize, len: usize, data: &[u8; 16]) -> Result<()> {
        if self.checks {
            let order = self.shared_order(w, lane);
            let noted = self.shared.note_write(to, len, 3, false, &order);
            noted.map_err(|f| self.shared_fail(Space::Global(0), to, lane, true, f))?;
        }
        self.shared.data[to..to + len].copy_from_slice(&data[..len]);
        Ok(())
    }

    fn cp_async_wait(&mut self, w: &mut Warp, n: u32) -> Result<()> {
        let copies = std::mem::take(&mut w.copies);
        for copy in copies {
            // A lane's group g is the (groups − g)-th last committed; uncommitted copies stay.
            let landed = w.mask >> copy.lane & 1 != 0 && copy.group + n < w.groups[copy.lane];
            if landed {
                self.land(w, copy.lane, copy.to, copy.len, &copy.data)?;
            } else {
                w.copies.push(copy);
            }
        }
        Ok(())
    }

    fn ldmatrix(
        &mut self,
        w: &mut Warp,
        count: usize,
        trans: bool,
        outs: &[Out],
        address: Reg,
    ) -> Result<()> {
        w.whole("ldmatrix")?;
        let rows = self.matrix_rows(w, count, address)?;
        if self.checks {
            for (i, &row) in rows.iter().enumerate().take(8 * count) {
                self.read_shared(w, Space::Global(0), i, row as usize, 16, 3)?;
            }
        }
        for (m, out) in outs.iter().enumerate() {
            *w.regs.get_mut::<u32>(out.reg) = matrix_lanes(&self.shared, &rows[8 * m..8 * m + 8], trans);
        }
        Ok(())
    }

    /// The addresses of the rows of `count` matrices, and what their transfer costs.
    fn matrix_rows(&mut self, w: &Warp, count: usize, address: Reg) -> Result<[u32; LANES]> {
        let rows = w.regs.get::<u32>(address).map(place);
        for (i, &row) in rows.iter().enumerate().take(8 * count) {
            if !row.is_multiple_of(16) || row as usize + 16 > self.shared.data.len() {
                let kind = if row.is_multiple_of(16) { Kind::OutOfBounds } else { Kind::Misaligned };
                let message = format!(
                    "a matrix row at byte {row} of shared memory, which has {}",
                    self.shared.data.len()
                );
                return Err(Fail::new(kind, i, message));
            }
        }
        for m in 0..count {
            let phase: [u32; LANES] = std::array::from_fn(|i| rows[8 * m + i % 8]);
            let (cost, _) = shared::wavefronts(&phase, 0xff, 16);
            self.counters.shared(w.pc, cost, 1);
        }
        Ok(rows)
    }

    /// The opposite of `ldmatrix`.
    fn stmatrix(&mut self, w: &Warp, trans: bool, address: Reg, words: &[Reg]) -> Result<()> {
        w.whole("stmatrix")?;
        let rows = self.matrix_rows(w, words.len(), address)?;
        let has = |s: &(u32, u32, String)| (s.0..s.0 + s.1).contains(&rows[0]);
        let array = self.code.shared.iter().position(has).unwrap_or(0) as u16;
        let space = Space::Shared { array, base: 0, len: 0 };
        for (m, &word) in words.iter().enumerate() {
            let values = *w.regs.get::<u32>(word);
            for (lane, value) in values.into_iter().enumerate() {
                for half in 0..2 {
                    let (r, c) = (lane / 4, 2 * (lane % 4) + half);
                    let (r, c) = if trans { (c, r) } else { (r, c) };
                    let (byte, bits) =
                        (rows[8 * m + r] as usize + 2 * c, (value >> (16 * half)) as u16 as u64);
                    let same = self.fetch(space, byte, 2) == bits;
                    self.note_write(w, space, byte, 2, 3, same, lane)?;
                    self.put(space, byte, 2, bits);
                }
            }
        }
        Ok(())
    }
}

/// One 8×8 matrix of halves over the lanes: lane l has elements (l/4, 2(l%4)) and the next, or with `trans` of the
/// transposed matrix.
fn matrix_lanes(shared: &Shared, rows: &[u32], trans: bool) -> [u32; LANES] {
    let at = |r: usize, c: usize| u16::from_le_bytes(shared.get(rows[r] as usize + 2 * c)) as u32;
    std::array::from_fn(|l| {
        let (r, c) = (l / 4, 2 * (l % 4));
        if trans { at(c, r) | at(c + 1, r) << 16 } else { at(r, c) | at(r, c + 1) << 16 }
    })
}

/// args: a, b, selector.
fn byte_permute(w: &mut Warp, outs: &[Out], args: &[Reg]) {
    let [a, b, selector] = [0, 1, 2].map(|i| *w.regs.get::<u32>(args[i]));
    for lane in lanes(w.mask) {
        let bytes = (b[lane] as u64) << 32 | a[lane] as u64;
        let byte = |i: u32| (bytes >> (8 * (selector[lane] >> (4 * i) & 7)) & 0xff) as u32;
        w.regs.get_mut::<u32>(outs[0].reg)[lane] = (0..4).fold(0, |word, i| word | byte(i) << (8 * i));
    }
}

/// args: a, b, c.
fn half_fma(dtype: DType, w: &mut Warp, outs: &[Out], args: &[Reg]) {
    let words = [0, 1, 2].map(|i| *w.regs.get::<u32>(args[i]));
    for lane in lanes(w.mask) {
        let mut word = 0;
        for shift in [0, 16] {
            let [a, b, c] =
                words.map(|x| f32::from_bits(codec::decode(dtype, x[lane] >> shift & 0xffff)) as f64);
            // The product is exact in f64; its sum is rounded to odd there, so that the second rounding does no harm.
            word |= codec::encode(dtype, round_to_odd(a * b, c).to_bits()) << shift;
        }
        w.regs.get_mut::<u32>(outs[0].reg)[lane] = word;
    }
}

/// a + b in f32, where an inexact sum gets an odd last bit.
fn round_to_odd(a: f64, b: f64) -> f32 {
    let sum = a + b;
    let narrow = sum as f32;
    // What the sum left out (exact for finite sums).
    let lost = if sum.is_finite() { (a - (sum - (sum - a))) + (b - (sum - a)) } else { 0.0 };
    if !narrow.is_finite() || (narrow as f64 == sum && lost == 0.0) || narrow.to_bits() & 1 == 1 {
        return narrow;
    }
    // The neighbour on the other side of the sum is the odd one.
    let above = sum > narrow as f64 || (sum == narrow as f64 && lost > 0.0);
    if narrow == 0.0 {
        return if above { f32::from_bits(1) } else { -f32::from_bits(1) };
    }
    let away = above == (narrow > 0.0);
    f32::from_bits(if away { narrow.to_bits() + 1 } else { narrow.to_bits() - 1 })
}

/// args: key, block.
fn philox(w: &mut Warp, outs: &[Out], args: &[Reg]) {
    let (keys, blocks) = (*w.regs.get::<i64>(args[0]), *w.regs.get::<i64>(args[1]));
    for lane in lanes(w.mask) {
        let words = random::philox(keys[lane] as u64, blocks[lane] as u64);
        for (out, word) in outs.iter().zip(words) {
            w.regs.get_mut::<u32>(out.reg)[lane] = word;
        }
    }
}

fn match_digit(bits: u8, w: &mut Warp, outs: &[Out], args: &[Reg]) {
    let low = (1u64 << bits) as u32 - 1;
    let digits = w.regs.get::<u32>(args[0]).map(|d| d & low);
    for lane in lanes(w.mask) {
        let alike = |up_to: usize| digits[..up_to].iter().filter(|&&d| d == digits[lane]).count() as i32;
        w.regs.get_mut::<i32>(outs[0].reg)[lane] = alike(lane);
        w.regs.get_mut::<i32>(outs[1].reg)[lane] = alike(digits.len());
    }
}

/// args: the registers of A, B and C in order.
fn mma(s: &Shape, w: &mut Warp, outs: &[Out], args: &[Reg]) {
    let (a_regs, rest) = args.split_at(s.regs[0]);
    let (b_regs, c_regs) = rest.split_at(s.regs[1]);
    match s.sum {
        DType::F64 => {
            let (a, b) = (gather(s, w, a_regs, true, f64_element), gather(s, w, b_regs, false, f64_element));
            each_sum(s, |lane, i, row, col| {
                let c = w.regs.get::<f64>(c_regs[i])[lane];
                let sum = (0..s.k).fold(c, |sum, k| a[row * s.k + k].mul_add(b[k * s.n + col], sum));
                (lane, i, sum)
            })
            .into_iter()
            .for_each(|(lane, i, v)| w.regs.get_mut::<f64>(outs[i].reg)[lane] = v);
        }
        DType::F32 => {
            let (a, b) = (gather(s, w, a_regs, true, f32_element), gather(s, w, b_regs, false, f32_element));
            each_sum(s, |lane, i, row, col| {
                let c = w.regs.get::<f32>(c_regs[i])[lane] as f64;
                let sum = (0..s.k).fold(c, |sum, k| sum + a[row * s.k + k] * b[k * s.n + col]);
                (lane, i, sum as f32)
            })
            .into_iter()
            .for_each(|(lane, i, v)| w.regs.get_mut::<f32>(outs[i].reg)[lane] = v);
        }
        _ => {
            let (a, b) = (gather(s, w, a_regs, true, int_element), gather(s, w, b_regs, false, int_element));
            each_sum(s, |lane, i, row, col| {
                let c = w.regs.get::<i32>(c_regs[i])[lane];
                let sum = (0..s.k).fold(c, |sum, k| sum.wrapping_add(a[row * s.k + k] * b[k * s.n + col]));
                (lane, i, sum)
            })
            .into_iter()
            .for_each(|(lane, i, v)| w.regs.get_mut::<i32>(outs[i].reg)[lane] = v);
        }
    }
}

/// The elements of C or D, computed before any is written (outputs may be the inputs' registers).
fn each_sum<T>(s: &Shape, mut f: impl FnMut(usize, usize, usize, usize) -> T) -> Vec<T> {
    let mut all = Vec::with_capacity(LANES * s.regs[2]);
    for lane in 0..LANES {
        for i in 0..s.regs[2] {
            let (row, col) = (s.c)(lane / 4, lane % 4, i);
            all.push(f(lane, i, row, col));
        }
    }
    all
}

/// Matrix A (m × k) or B (k × n) from the lanes' fragments, row-major.
fn gather<T: Copy + Default>(
    s: &Shape,
    w: &Warp,
    regs: &[Reg],
    is_a: bool,
    element: fn(&Warp, &[Reg], DType, usize, usize) -> T,
) -> Vec<T> {
    let (place, dtype, columns) = if is_a { (s.a, s.a_dtype, s.k) } else { (s.b, s.b_dtype, s.n) };
    let rows = if is_a { s.m } else { s.k };
    let each = rows * columns / LANES;
    let mut all = vec![T::default(); rows * columns];
    for lane in 0..LANES {
        for i in 0..each {
            let (row, col) = place(lane / 4, lane % 4, i);
            all[row * columns + col] = element(w, regs, dtype, lane, i);
        }
    }
    all
}

fn f64_element(w: &Warp, regs: &[Reg], _: DType, lane: usize, i: usize) -> f64 {
    w.regs.get::<f64>(regs[i])[lane]
}

fn packed(w: &Warp, regs: &[Reg], dtype: DType, lane: usize, i: usize) -> u32 {
    let each = 32 / dtype.bits() as usize;
    w.regs.get::<u32>(regs[i / each])[lane] >> (i % each * dtype.bits() as usize)
}

fn f32_element(w: &Warp, regs: &[Reg], dtype: DType, lane: usize, i: usize) -> f64 {
    let raw = packed(w, regs, dtype, lane, i);
    match dtype {
        // tf32: the instruction does not read the low 13 bits.
        DType::F32 => f32::from_bits(raw & 0xffff_e000) as f64,
        _ => f32::from_bits(codec::decode(dtype, raw & u32::MAX >> (32 - dtype.bits()))) as f64,
    }
}

fn int_element(w: &Warp, regs: &[Reg], dtype: DType, lane: usize, i: usize) -> i32 {
    codec::decode(dtype, packed(w, regs, dtype, lane, i)) as i32
}
