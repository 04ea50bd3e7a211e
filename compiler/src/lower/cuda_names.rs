//! Names in printed kernels: identifiers of C that clash with nothing of C++, CUDA or the prelude, one for each thing.

use super::cuda_prelude::HELPERS;
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

/// Words that a name may not be: C++'s, CUDA's, and those that printed statements use.
const RESERVED: &str = "
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do
double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace
new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires return
short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef
typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq override final import module
threadIdx blockIdx blockDim gridDim warpSize dim3 clock clock64 printf assert malloc free memcpy memset main nullptr_t
size_t ptrdiff_t half half2 uint ushort uchar ulong min max abs labs llabs
char1 char2 char3 char4 uchar1 uchar2 uchar3 uchar4 short1 short2 short3 short4 ushort1 ushort2 ushort3 ushort4
int1 int2 int3 int4 uint1 uint2 uint3 uint4 long1 long2 long3 long4 ulong1 ulong2 ulong3 ulong4
longlong1 longlong2 longlong3 longlong4 ulonglong1 ulonglong2 ulonglong3 ulonglong4
float1 float2 float3 float4 double1 double2 double3 double4
u8 i8 u16 i16 u32 u64 i64 f16 bf16 e4m3 e5m2 i4x2 u4x2 b8 words shared_memory
acosf acoshf asinf asinhf atan2f atanf atanhf cbrtf ceilf copysignf cosf coshf cospif erfcf erff exp10f exp2f expf
expm1f fabsf fdimf floorf fmaf fmaxf fminf fmodf frexpf hypotf ilogbf isfinite isinf isnan j0f j1f jnf ldexpf lgammaf
llrintf llroundf log10f log1pf log2f logbf logf lrintf lroundf modff nanf nearbyintf nextafterf normf powf
remainderf remquof rhypotf rintf rnormf roundf rsqrtf scalblnf scalbnf signbit sincosf sincospif sinf sinhf sinpif
sqrtf tanf tanhf tgammaf truncf y0f y1f ynf
acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi erf erfc erfcinv erfcx erfinv exp exp10 exp2
expm1 fabs fdim floor fma fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2
logb lrint lround modf nan nearbyint nextafter norm norm3d norm4d normcdf normcdfinv pow remainder remquo rhypot rint
rnorm round rsqrt scalbln scalbn sin sincos sincospi sinh sinpi sqrt tan tanh tgamma trunc y0 y1 yn
atomicAdd atomicSub atomicExch atomicMin atomicMax atomicInc atomicDec atomicCAS atomicAnd atomicOr atomicXor
cp_async_4 cp_async_8 cp_async_16 cp_async_commit cp_async_wait
ldmatrix_x1 ldmatrix_x2 ldmatrix_x4 ldmatrix_x1_trans ldmatrix_x2_trans ldmatrix_x4_trans
stmatrix_x1 stmatrix_x2 stmatrix_x4 stmatrix_x1_trans stmatrix_x2_trans stmatrix_x4_trans
linux unix i386 NULL INFINITY NAN
";

static RESERVED_SET: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    let helpers = HELPERS.iter().map(|h| h.name);
    let matrices = crate::sim::intrinsics::SHAPES.iter().map(|s| s.name);
    RESERVED.split_whitespace().chain(helpers).chain(matrices).collect()
});

/// How long a name may be before its middle is left out.
const LONGEST: usize = 60;

/// A C identifier for a name: other characters become `_`, words with a meaning get a `_` at their end.
pub fn mangle(name: &str) -> String {
    let mut out: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if out.len() > LONGEST {
        out = format!("{}__{}", &out[..LONGEST / 2], &out[out.len() - LONGEST / 4..]);
    }
    // Names that begin with `_` are the compiler's, those that begin with a digit no one's.
    if !out.starts_with(|c: char| c.is_ascii_alphabetic()) {
        out.insert_str(0, "v_");
    }
    if RESERVED_SET.contains(out.as_str()) {
        out.push('_');
    }
    out
}

/// Gives each thing of a kernel a name that no other has.
#[derive(Default)]
pub struct Names {
    used: HashSet<String>,
    counts: HashMap<String, usize>,
}

impl Names {
    pub fn unique(&mut self, name: &str) -> String {
        let base = mangle(name);
        let mut candidate = base.clone();
        // `x_2` may itself be a name that was given.
        while !self.used.insert(candidate.clone()) {
            let count = self.counts.entry(base.clone()).or_insert(1);
            *count += 1;
            candidate = format!("{base}_{count}");
        }
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_a_meaning_are_changed() {
        assert_eq!(mangle("double"), "double_");
        assert_eq!(mangle("__x"), "v___x");
        assert_eq!(mangle("threadIdx"), "threadIdx_");
        assert_eq!(mangle("gate_up.g"), "gate_up_g");
        assert_eq!(mangle("größe"), "gr__e");
        assert_eq!(mangle(""), "v_");
        assert!(mangle(&"x".repeat(10000)).len() <= LONGEST);
    }

    #[test]
    fn names_are_told_apart() {
        let mut names = Names::default();
        let all = ["x", "x", "x_2", "x", "x_2", "x_2_2", "x"].map(|n| names.unique(n));
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len(), "{all:?}");
    }
}
