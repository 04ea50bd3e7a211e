//! GPUs as data: one row each.

use crate::vocab::dtype::DType;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// What NVRTC is told: `sm_90a`.
    pub name: &'static str,
    pub compute: (u32, u32),
    /// Shared memory a block may have (opt-in), in bytes.
    pub shared_per_block: u32,
    pub shared_per_sm: u32,
    pub registers_per_sm: u32,
    pub threads_per_sm: u32,
    /// Multiprocessors of the usual part (the device's own number is used when one is there).
    pub sms: u32,
    /// Operations a clock of one multiprocessor's tensor cores on dense 16-bit floats (data sheets: a multiplication and
    /// an addition are two).
    pub half_ops_per_clock: u32,
    pub cp_async: bool,
    pub ldmatrix: bool,
    pub mma_f16: bool,
    pub mma_bf16: bool,
    pub mma_tf32: bool,
    pub mma_fp8: bool,
    pub mma_i8: bool,
    pub mma_f64: bool,
    pub wgmma: bool,
    pub tma: bool,
    pub clusters: bool,
}

const BASE: Target = Target {
    name: "sm_75",
    compute: (7, 5),
    shared_per_block: 64 << 10,
    shared_per_sm: 64 << 10,
    registers_per_sm: 65536,
    threads_per_sm: 1024,
    sms: 72,
    half_ops_per_clock: 1024,
    cp_async: false,
    ldmatrix: true,
    mma_f16: true,
    mma_bf16: false,
    mma_tf32: false,
    mma_fp8: false,
    mma_i8: true,
    mma_f64: false,
    wgmma: false,
    tma: false,
    clusters: false,
};

const SM_80: Target = Target {
    name: "sm_80",
    compute: (8, 0),
    shared_per_block: 163 << 10,
    shared_per_sm: 164 << 10,
    threads_per_sm: 2048,
    sms: 108,
    half_ops_per_clock: 2048,
    cp_async: true,
    mma_bf16: true,
    mma_tf32: true,
    mma_f64: true,
    ..BASE
};

pub const TARGETS: [Target; 7] = [
    BASE,
    SM_80,
    Target {
        name: "sm_86",
        compute: (8, 6),
        shared_per_block: 99 << 10,
        shared_per_sm: 100 << 10,
        threads_per_sm: 1536,
        sms: 84,
        half_ops_per_clock: 1024,
        ..SM_80
    },
    Target {
        name: "sm_89",
        compute: (8, 9),
        shared_per_block: 99 << 10,
        shared_per_sm: 100 << 10,
        threads_per_sm: 1536,
        sms: 128,
        half_ops_per_clock: 1024,
        mma_fp8: true,
        ..SM_80
    },
    Target {
        name: "sm_90a",
        compute: (9, 0),
        shared_per_block: 227 << 10,
        shared_per_sm: 228 << 10,
        sms: 132,
        half_ops_per_clock: 4096,
        mma_fp8: true,
        wgmma: true,
        tma: true,
        clusters: true,
        ..SM_80
    },
    Target {
        name: "sm_100a",
        compute: (10, 0),
        shared_per_block: 227 << 10,
        shared_per_sm: 228 << 10,
        sms: 148,
        half_ops_per_clock: 8192,
        mma_fp8: true,
        tma: true,
        clusters: true,
        ..SM_80
    },
    Target {
        name: "sm_120a",
        compute: (12, 0),
        shared_per_block: 99 << 10,
        shared_per_sm: 100 << 10,
        threads_per_sm: 1536,
        sms: 188,
        half_ops_per_clock: 1024,
        mma_fp8: true,
        tma: true,
        ..SM_80
    },
];

/// GPUs and generations by their names, with the target that they are.
const CALLED: &[(&[&str], &str)] = &[
    (&["t4", "turing", "rtx2080", "rtx6000"], "sm_75"),
    (&["a100", "a30", "ampere"], "sm_80"),
    (&["a10", "a40", "a6000", "rtx3090", "rtx3080"], "sm_86"),
    (&["l4", "l40", "l40s", "ada", "rtx4090", "rtx4080"], "sm_89"),
    (&["h100", "h200", "h800", "h20", "gh200", "hopper"], "sm_90a"),
    (&["b100", "b200", "gb200", "blackwell"], "sm_100a"),
    (&["rtx5090", "rtx5080"], "sm_120a"),
];

impl Target {
    /// The target that is called otherwise: `h100`, `sm90`, `compute_90`, `90a`.
    pub fn called(name: &str) -> Option<&'static str> {
        let word = name.to_ascii_lowercase().replace(['-', '_', ' '], "");
        if let Some((_, target)) = CALLED.iter().find(|(words, _)| words.contains(&word.as_str())) {
            return Some(target);
        }
        let number = word
            .trim_start_matches("compute")
            .trim_start_matches("sm")
            .trim_end_matches('a')
            .replace('.', "");
        let same = |t: &&Target| t.name.trim_start_matches("sm_").trim_end_matches('a') == number;
        TARGETS.iter().find(same).map(|t| t.name)
    }

    /// Operations a clock of one multiprocessor at products of this operand dtype, by its fastest units: 8-bit operands
    /// have twice the rate of 16-bit floats, f32 three tf32 products each, f64 a sixteenth; without tensor cores for a dtype,
    /// fused multiply-adds.
    pub fn products_per_clock(&self, dtype: DType) -> f64 {
        let half = self.half_ops_per_clock as f64;
        let fma = if dtype == DType::F64 { 4.0 } else { 256.0 };
        match dtype {
            DType::F16 if self.mma_f16 => half,
            DType::BF16 if self.mma_bf16 => half,
            DType::F32 if self.mma_tf32 => f64::max(fma, half / 6.0),
            DType::F64 if self.mma_f64 => half / 16.0,
            d if d.is_float() && d.bits() <= 8 && self.mma_fp8 => 2.0 * half,
            d if d.is_float() && d.bits() <= 8 && self.mma_f16 => half,
            d if !d.is_float() && d.bits() <= 8 && self.mma_i8 => 2.0 * half,
            _ => fma,
        }
    }

    /// By name; `sm_90` covers `sm_90a`.
    pub fn parse(name: &str) -> Option<&'static Target> {
        TARGETS.iter().find(|t| t.name == name || t.name.strip_suffix('a') == Some(name))
    }

    /// The row for a device's compute capability: the exact one, else the highest below it of the same major.
    pub fn for_compute(major: u32, minor: u32) -> Option<&'static Target> {
        TARGETS.iter().filter(|t| t.compute.0 == major && t.compute.1 <= minor).max_by_key(|t| t.compute)
    }
}
