//! Helper functions of printed kernels: one row each; a kernel's text defines those that it uses.
//!
//! No header is included: what CUDA's headers would give is spelled here. A row may have a form for targets of at
//! least some compute capability (PTX instructions) and one for those below (bit arithmetic).

use crate::vocab::target::Target;
use std::collections::BTreeSet;

pub struct Helper {
    pub name: &'static str,
    /// Other helpers that it calls.
    pub needs: &'static [&'static str],
    /// The text, with `F` standing for `__device__ __forceinline__`.
    pub text: &'static str,
    /// A form for targets from this compute capability on.
    pub newer: Option<((u32, u32), &'static str)>,
}

const fn plain(name: &'static str, needs: &'static [&'static str], text: &'static str) -> Helper {
    Helper { name, needs, text, newer: None }
}

const fn from(
    name: &'static str,
    needs: &'static [&'static str],
    since: (u32, u32),
    newer: &'static str,
    text: &'static str,
) -> Helper {
    Helper { name, needs, text, newer: Some((since, newer)) }
}

/// Types that every kernel may name.
pub const TYPES: &str = "\
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
typedef u16 f16;
typedef u16 bf16;
typedef u8 e4m3;
typedef u8 e5m2;
typedef u8 i4x2;
typedef u8 u4x2;
typedef u8 b8;
";

/// In an order in which each stands below what it needs.
pub static HELPERS: &[Helper] = &[
    // Integers of the language: they wrap, `/` and `%` floor, x / 0 is 0, x % 0 is x.
    plain("add_i32", &[], "F int add_i32(int a, int b) { return int(u32(a) + u32(b)); }"),
    plain("sub_i32", &[], "F int sub_i32(int a, int b) { return int(u32(a) - u32(b)); }"),
    plain("mul_i32", &[], "F int mul_i32(int a, int b) { return int(u32(a) * u32(b)); }"),
    plain("neg_i32", &[], "F int neg_i32(int a) { return int(0u - u32(a)); }"),
    plain("abs_i32", &["neg_i32"], "F int abs_i32(int a) { return a < 0 ? neg_i32(a) : a; }"),
    plain("sign_i32", &[], "F int sign_i32(int a) { return (a > 0) - (a < 0); }"),
    plain(
        "div_i32",
        &["neg_i32"],
        "F int div_i32(int a, int b) {
    if (b == 0) return 0;
    if (b == -1) return neg_i32(a);
    const int q = a / b;
    return q - ((a % b != 0) & ((a ^ b) < 0));
}",
    ),
    plain(
        "rem_i32",
        &[],
        "F int rem_i32(int a, int b) {
    if (b == 0) return a;
    if (b == -1) return 0;
    const int r = a % b;
    return r != 0 && (r ^ b) < 0 ? r + b : r;
}",
    ),
    plain("shl_i32", &[], "F int shl_i32(int a, int n) { return u32(n) < 32 ? int(u32(a) << n) : 0; }"),
    plain("shr_i32", &[], "F int shr_i32(int a, int n) { return a >> (u32(n) < 32 ? n : 31); }"),
    plain("add_i64", &[], "F i64 add_i64(i64 a, i64 b) { return i64(u64(a) + u64(b)); }"),
    plain("sub_i64", &[], "F i64 sub_i64(i64 a, i64 b) { return i64(u64(a) - u64(b)); }"),
    plain("mul_i64", &[], "F i64 mul_i64(i64 a, i64 b) { return i64(u64(a) * u64(b)); }"),
    plain("neg_i64", &[], "F i64 neg_i64(i64 a) { return i64(0ull - u64(a)); }"),
    plain("abs_i64", &["neg_i64"], "F i64 abs_i64(i64 a) { return a < 0 ? neg_i64(a) : a; }"),
    plain("sign_i64", &[], "F i64 sign_i64(i64 a) { return (a > 0) - (a < 0); }"),
    plain(
        "div_i64",
        &["neg_i64"],
        "F i64 div_i64(i64 a, i64 b) {
    if (b == 0) return 0;
    if (b == -1) return neg_i64(a);
    const i64 q = a / b;
    return q - ((a % b != 0) & ((a ^ b) < 0));
}",
    ),
    plain(
        "rem_i64",
        &[],
        "F i64 rem_i64(i64 a, i64 b) {
    if (b == 0) return a;
    if (b == -1) return 0;
    const i64 r = a % b;
    return r != 0 && (r ^ b) < 0 ? r + b : r;
}",
    ),
    plain("shl_i64", &[], "F i64 shl_i64(i64 a, i64 n) { return u64(n) < 64 ? i64(u64(a) << n) : 0; }"),
    plain("shr_i64", &[], "F i64 shr_i64(i64 a, i64 n) { return a >> (u64(n) < 64 ? n : 63); }"),
    plain("tensor_map", &[], "struct __align__(128) TensorMap { u64 words[16]; };"),
    // Floats.
    plain("is_nan_f32", &[], "F bool is_nan_f32(float a) { return a != a; }"),
    plain("is_nan_f64", &[], "F bool is_nan_f64(double a) { return a != a; }"),
    plain(
        "is_inf_f32",
        &[],
        "F bool is_inf_f32(float a) { return fabsf(a) == __uint_as_float(0x7f800000u); }",
    ),
    plain(
        "is_inf_f64",
        &[],
        "F bool is_inf_f64(double a) { return fabs(a) == __longlong_as_double(0x7ff0000000000000ll); }",
    ),
    plain(
        "is_finite_f32",
        &[],
        "F bool is_finite_f32(float a) { return fabsf(a) < __uint_as_float(0x7f800000u); }",
    ),
    plain(
        "is_finite_f64",
        &[],
        "F bool is_finite_f64(double a) { return fabs(a) < __longlong_as_double(0x7ff0000000000000ll); }",
    ),
    from(
        "min_f32",
        &[],
        (8, 0),
        "// Propagates NaN; -0 < +0.
F float min_f32(float a, float b) {
    float r;
    asm(\"min.NaN.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a), \"f\"(b));
    return r;
}",
        "// Propagates NaN; -0 < +0.
F float min_f32(float a, float b) { return a != a || b != b ? a + b : fminf(a, b); }",
    ),
    from(
        "max_f32",
        &[],
        (8, 0),
        "// Propagates NaN; -0 < +0.
F float max_f32(float a, float b) {
    float r;
    asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a), \"f\"(b));
    return r;
}",
        "// Propagates NaN; -0 < +0.
F float max_f32(float a, float b) { return a != a || b != b ? a + b : fmaxf(a, b); }",
    ),
    plain(
        "min_f64",
        &[],
        "// Propagates NaN; -0 < +0.
F double min_f64(double a, double b) { return a != a || b != b ? a + b : fmin(a, b); }",
    ),
    plain(
        "max_f64",
        &[],
        "// Propagates NaN; -0 < +0.
F double max_f64(double a, double b) { return a != a || b != b ? a + b : fmax(a, b); }",
    ),
    plain(
        "rem_f32",
        &[],
        "// The remainder with the sign of the divisor.
F float rem_f32(float a, float b) {
    const float r = fmodf(a, b);
    if (r == 0.0f) return copysignf(0.0f, b);
    // One rounding, as of the exact sum.
    return (r < 0.0f) != (b < 0.0f) ? float(double(r) + double(b)) : r;
}",
    ),
    plain(
        "rem_f64",
        &[],
        "// The remainder with the sign of the divisor.
F double rem_f64(double a, double b) {
    const double r = fmod(a, b);
    if (r == 0.0) return copysign(0.0, b);
    return (r < 0.0) != (b < 0.0) ? r + b : r;
}",
    ),
    plain("sign_f32", &[], "F float sign_f32(float a) { return a > 0.0f ? 1.0f : a < 0.0f ? -1.0f : a; }"),
    plain("sign_f64", &[], "F double sign_f64(double a) { return a > 0.0 ? 1.0 : a < 0.0 ? -1.0 : a; }"),
    plain(
        "round_tf32",
        &[],
        "// To 11 significant bits, nearest even.
F float round_tf32(float a) {
    const u32 w = __float_as_uint(a);
    if ((w & 0x7f800000u) == 0x7f800000u) return a;
    return __uint_as_float((w + 0xfffu + (w >> 13 & 1u)) & 0xffffe000u);
}",
    ),
    // Approximate functions: the rows of `vocab/approx.rs`, in the same formulas.
    plain(
        "exp2_near",
        &[],
        "F float exp2_near(float a) {
    float r;
    asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(r) : \"f\"(a));
    return r;
}",
    ),
    plain(
        "rcp_near",
        &[],
        "F float rcp_near(float a) {
    float r;
    asm(\"rcp.approx.ftz.f32 %0, %1;\" : \"=f\"(r) : \"f\"(a));
    return r;
}",
    ),
    plain(
        "exp_near",
        &["exp2_near"],
        "// Rounded toward zero, so that it overflows only where exp does.
F float exp_near(float a) { return exp2_near(__fmul_rz(a, 1.44269502f)); }",
    ),
    plain(
        "sqrt_near",
        &[],
        "F float sqrt_near(float a) {
    float r;
    asm(\"sqrt.approx.f32 %0, %1;\" : \"=f\"(r) : \"f\"(a));
    return r;
}",
    ),
    plain(
        "tanh_near",
        &["exp2_near", "rcp_near"],
        "// A series near 0, 1 - 2/(exp(2|x|) + 1) elsewhere.
F float tanh_near(float x) {
    const float a = fabsf(x), s = x * x;
    const float p = fmaf(fmaf(s, -0.0539682545f, 0.133333340f), s, -0.333333343f);
    const float large = fmaf(rcp_near(exp2_near(a * 2.88539004f) + 1.0f), -2.0f, 1.0f);
    return a < 0.25f ? fmaf(x * s, p, x) : copysignf(large, x);
}",
    ),
    plain(
        "erfc_near",
        &["exp_near", "rcp_near"],
        "// Chebyshev's fit of log(erfc(z)/t) + z*z in t = 1/(1 + z/2).
F float erfc_near(float x) {
    const float a = fabsf(x), t = rcp_near(fmaf(a, 0.5f, 1.0f));
    float p = fmaf(0.170872770f, t, -0.822152230f);
    p = fmaf(p, t, 1.48851590f);
    p = fmaf(p, t, -1.13520400f);
    p = fmaf(p, t, 0.278868070f);
    p = fmaf(p, t, -0.186288060f);
    p = fmaf(p, t, 0.0967841800f);
    p = fmaf(p, t, 0.374091960f);
    p = fmaf(p, t, 1.00002370f);
    p = fmaf(p, t, -1.26551220f);
    const float r = t * exp_near(fmaf(-a, a, p));
    return x < 0.0f ? 2.0f - r : r;
}",
    ),
    plain(
        "erf_near",
        &["erfc_near"],
        "F float erf_near(float x) {
    const float a = fabsf(x), s = x * x;
    float p = fmaf(-0.000757575757f, s, 0.00462962963f);
    p = fmaf(p, s, -0.0238095243f);
    p = fmaf(p, s, 0.1f);
    p = fmaf(p, s, -0.333333343f);
    p = fmaf(p, s, 1.0f);
    return a < 0.5f ? x * 1.12837923f * p : copysignf(1.0f - erfc_near(a), x);
}",
    ),
    plain(
        "div_near",
        &[],
        "F float div_near(float a, float b) {
    float r;
    asm(\"div.full.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a), \"f\"(b));
    return r;
}",
    ),
    plain(
        "div_by_large",
        &["rcp_near"],
        "// b is from 1 to 2^120.
F float div_by_large(float a, float b) { return a * rcp_near(b); }",
    ),
    plain("u64_bits_of", &[], "F u64 u64_bits_of(double a) { return u64(__double_as_longlong(a)); }"),
    plain("f64_of_bits", &[], "F double f64_of_bits(u64 a) { return __longlong_as_double(i64(a)); }"),
    // Conversions of the language: truncate, saturate, NaN gives 0.
    plain("i64_from_f32", &[], "F i64 i64_from_f32(float a) { return a != a ? 0 : __float2ll_rz(a); }"),
    plain("i32_from_f64", &[], "F int i32_from_f64(double a) { return a != a ? 0 : __double2int_rz(a); }"),
    plain("i64_from_f64", &[], "F i64 i64_from_f64(double a) { return a != a ? 0 : __double2ll_rz(a); }"),
    plain("u64_from_f32", &[], "F u64 u64_from_f32(float a) { return a != a ? 0 : __float2ull_rz(a); }"),
    plain("u32_from_f64", &[], "F u32 u32_from_f64(double a) { return a != a ? 0 : __double2uint_rz(a); }"),
    plain("u64_from_f64", &[], "F u64 u64_from_f64(double a) { return a != a ? 0 : __double2ull_rz(a); }"),
    plain(
        "i32_from_i64",
        &[],
        "F int i32_from_i64(i64 a) { return int(min(max(a, -2147483648ll), 2147483647ll)); }",
    ),
    plain("saturate_i16", &[], "F int saturate_i16(int a) { return min(max(a, -32768), 32767); }"),
    plain("saturate_i8", &[], "F int saturate_i8(int a) { return min(max(a, -128), 127); }"),
    plain("saturate_u8", &[], "F int saturate_u8(int a) { return min(max(a, 0), 255); }"),
    plain("saturate_i4", &[], "F int saturate_i4(int a) { return min(max(a, -8), 7); }"),
    plain("saturate_u4", &[], "F int saturate_u4(int a) { return min(max(a, 0), 15); }"),
    plain(
        "f32_odd_from_f64",
        &[],
        "// Rounds to odd, so that a second rounding to fewer bits is the only one.
F float f32_odd_from_f64(double a) {
    const float r = __double2float_rz(a);
    return a != a || double(r) == a ? r : __uint_as_float(__float_as_uint(r) | 1u);
}",
    ),
    plain(
        "f64_odd_from_i64",
        &[],
        "// Rounds to odd, so that a second rounding to fewer bits is the only one.
F double f64_odd_from_i64(i64 a) {
    const double r = __ll2double_rz(a);
    return __double2ll_rz(r) == a ? r : __longlong_as_double(__double_as_longlong(r) | 1);
}",
    ),
    // 16-bit floats.
    plain(
        "f32_from_f16",
        &[],
        "F float f32_from_f16(f16 a) {
    float r;
    asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(r) : \"h\"(a));
    return r;
}",
    ),
    plain(
        "f16_from_f32",
        &[],
        "F f16 f16_from_f32(float a) {
    f16 r;
    asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(a));
    return r;
}",
    ),
    plain("f32_from_bf16", &[], "F float f32_from_bf16(bf16 a) { return __uint_as_float(u32(a) << 16); }"),
    from(
        "bf16_from_f32",
        &[],
        (8, 0),
        "F bf16 bf16_from_f32(float a) {
    bf16 r;
    asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(a));
    return r;
}",
        "F bf16 bf16_from_f32(float a) {
    const u32 w = __float_as_uint(a);
    return a != a ? 0x7fff : bf16((w + 0x7fffu + (w >> 16 & 1u)) >> 16);
}",
    ),
    from(
        "pack_f16",
        &["f16_from_f32"],
        (8, 0),
        "F u32 pack_f16(float lo, float hi) {
    u32 r;
    asm(\"cvt.rn.f16x2.f32 %0, %1, %2;\" : \"=r\"(r) : \"f\"(hi), \"f\"(lo));
    return r;
}",
        "F u32 pack_f16(float lo, float hi) { return f16_from_f32(lo) | u32(f16_from_f32(hi)) << 16; }",
    ),
    from(
        "pack_bf16",
        &["bf16_from_f32"],
        (8, 0),
        "F u32 pack_bf16(float lo, float hi) {
    u32 r;
    asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(r) : \"f\"(hi), \"f\"(lo));
    return r;
}",
        "F u32 pack_bf16(float lo, float hi) { return bf16_from_f32(lo) | u32(bf16_from_f32(hi)) << 16; }",
    ),
    plain("low_f16", &["f32_from_f16"], "F float low_f16(u32 w) { return f32_from_f16(f16(w)); }"),
    plain("high_f16", &["f32_from_f16"], "F float high_f16(u32 w) { return f32_from_f16(f16(w >> 16)); }"),
    plain("low_bf16", &[], "F float low_bf16(u32 w) { return __uint_as_float(w << 16); }"),
    plain("high_bf16", &[], "F float high_bf16(u32 w) { return __uint_as_float(w & 0xffff0000u); }"),
    // 8-bit floats: they saturate, also from infinities.
    from(
        "f32_from_e4m3",
        &["f32_from_f16"],
        (8, 9),
        "F float f32_from_e4m3(e4m3 a) {
    u32 r;
    asm(\"cvt.rn.f16x2.e4m3x2 %0, %1;\" : \"=r\"(r) : \"h\"(u16(a)));
    return f32_from_f16(f16(r));
}",
        "F float f32_from_e4m3(e4m3 a) {
    const u32 sign = u32(a & 0x80) << 24;
    if ((a & 0x7f) == 0x7f) return __uint_as_float(sign | 0x7fc00000u);
    // The code's bits at f32's place are the value times 2^-120, subnormals too.
    return __uint_as_float(sign | u32(a & 0x7f) << 20) * __uint_as_float(0x7b800000u);
}",
    ),
    from(
        "e4m3_from_f32",
        &[],
        (8, 9),
        "F e4m3 e4m3_from_f32(float a) {
    u16 r;
    asm(\"cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;\" : \"=h\"(r) : \"f\"(0.0f), \"f\"(a));
    return e4m3(r);
}",
        "F e4m3 e4m3_from_f32(float a) {
    const u32 w = __float_as_uint(a), sign = w >> 24 & 0x80u;
    const float m = fabsf(a);
    if (a != a) return e4m3(sign | 0x7fu);
    if (m >= 448.0f) return e4m3(sign | 0x7eu);
    // Below 2^-6 values are multiples of 2^-9: adding 2^14 rounds to them.
    if (m < 0.015625f) return e4m3(sign | (__float_as_uint(m + 16384.0f) & 0xfu));
    const u32 v = __float_as_uint(m);
    return e4m3(sign | ((v + 0x7ffffu + (v >> 20 & 1u)) >> 20) - (120u << 3));
}",
    ),
    plain(
        "f32_from_e5m2",
        &["f32_from_f16"],
        "F float f32_from_e5m2(e5m2 a) { return f32_from_f16(f16(a << 8)); }",
    ),
    from(
        "e5m2_from_f32",
        &[],
        (8, 9),
        "F e5m2 e5m2_from_f32(float a) {
    u16 r;
    asm(\"cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;\" : \"=h\"(r) : \"f\"(0.0f), \"f\"(a));
    return e5m2(r);
}",
        "F e5m2 e5m2_from_f32(float a) {
    const u32 w = __float_as_uint(a), sign = w >> 24 & 0x80u;
    const float m = fabsf(a);
    if (a != a) return e5m2(sign | 0x7fu);
    if (m >= 57344.0f) return e5m2(sign | 0x7bu);
    // Below 2^-14 values are multiples of 2^-16: adding 2^7 rounds to them.
    if (m < 0.00006103515625f) return e5m2(sign | (__float_as_uint(m + 128.0f) & 0x7u));
    const u32 v = __float_as_uint(m);
    return e5m2(sign | ((v + 0xfffffu + (v >> 21 & 1u)) >> 21) - (112u << 2));
}",
    ),
    // 4-bit integers: two a byte. A store rewrites the byte, so one thread owns both of its nibbles.
    plain(
        "load_i4",
        &[],
        "F int load_i4(const i4x2* p, i64 i) { return int(u32(p[i >> 1]) << (28 - 4 * (i & 1))) >> 28; }",
    ),
    plain("load_u4", &[], "F int load_u4(const u4x2* p, i64 i) { return p[i >> 1] >> (4 * (i & 1)) & 15; }"),
    plain(
        "store_nibble",
        &[],
        "// Rewrites the byte: one thread owns both of its nibbles.
F void store_nibble(u8* p, i64 i, int v) {
    const int shift = 4 * (i & 1);
    p[i >> 1] = u8((p[i >> 1] & ~(15 << shift)) | (v & 15) << shift);
}",
    ),
    plain(
        "shared_address",
        &[],
        "F u32 shared_address(const void* p) {
    u32 r;
    asm(\"{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }\" : \"=r\"(r) : \"l\"(p));
    return r;
}",
    ),
    // Random numbers: Philox4x32-10 by counter.
    plain(
        "philox",
        &[],
        "// Philox4x32-10: the four words of a block.
F uint4 philox(u64 key, u64 block) {
    u32 k0 = u32(key), k1 = u32(key >> 32);
    uint4 c = make_uint4(u32(block), u32(block >> 32), 0u, 0u);
    for (int i = 0; i < 10; ++i) {
        const u64 p0 = 0xd2511f53ull * c.x, p1 = 0xcd9e8d57ull * c.z;
        c = make_uint4(u32(p1 >> 32) ^ c.y ^ k0, u32(p1), u32(p0 >> 32) ^ c.w ^ k1, u32(p0));
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return c;
}",
    ),
    plain(
        "random_bits",
        &["philox"],
        "F i64 random_bits(i64 seed, i64 counter) {
    const uint4 w = philox(u64(seed), u64(counter) >> 2);
    const int i = int(counter & 3);
    return i == 0 ? w.x : i == 1 ? w.y : i == 2 ? w.z : w.w;
}",
    ),
    plain(
        "random_uniform",
        &["random_bits"],
        "F float random_uniform(i64 seed, i64 counter) {
    return float(u32(random_bits(seed, counter)) >> 8) * 0x1p-24f;
}",
    ),
    plain(
        "random_normal",
        &["philox"],
        "// Box-Muller.
F float random_normal(i64 seed, i64 counter) {
    const uint4 w = philox(u64(seed), u64(counter) >> 1);
    const u32 a = counter & 1 ? w.z : w.x, b = counter & 1 ? w.w : w.y;
    const float u = float(a >> 8) * 0x1p-24f, v = float(b >> 8) * 0x1p-23f;
    return sqrtf(-2.0f * logf(1.0f - u)) * cospif(v);
}",
    ),
    // Atomic operations that the hardware does not have.
    plain(
        "atomic_min_f32",
        &[],
        "F float atomic_min_f32(float* p, float v) {
    // Floats without a sign are ordered as integers, those with one the other way round; the NaN of all bits is the least.
    const int b = v != v ? -1 : __float_as_int(v);
    return __int_as_float(b >= 0 ? atomicMin((int*)p, b) : int(atomicMax((u32*)p, u32(b))));
}",
    ),
    plain(
        "atomic_max_f32",
        &[],
        "F float atomic_max_f32(float* p, float v) {
    // As for the least; the greatest is the NaN of all bits but the sign.
    const int b = v != v ? 0x7fffffff : __float_as_int(v);
    return __int_as_float(b >= 0 ? atomicMax((int*)p, b) : int(atomicMin((u32*)p, u32(b))));
}",
    ),
    plain(
        "atomic_min_f64",
        &["min_f64"],
        "F double atomic_min_f64(double* p, double v) {
    u64* const q = (u64*)p;
    u64 old = *q, seen;
    do {
        seen = old;
        old = atomicCAS(q, seen, u64(__double_as_longlong(min_f64(__longlong_as_double(i64(seen)), v))));
    } while (old != seen);
    return __longlong_as_double(i64(old));
}",
    ),
    plain(
        "atomic_max_f64",
        &["max_f64"],
        "F double atomic_max_f64(double* p, double v) {
    u64* const q = (u64*)p;
    u64 old = *q, seen;
    do {
        seen = old;
        old = atomicCAS(q, seen, u64(__double_as_longlong(max_f64(__longlong_as_double(i64(seen)), v))));
    } while (old != seen);
    return __longlong_as_double(i64(old));
}",
    ),
    plain(
        "atomic_exchange_f64",
        &[],
        "F double atomic_exchange_f64(double* p, double v) {
    return __longlong_as_double(i64(atomicExch((u64*)p, u64(__double_as_longlong(v)))));
}",
    ),
    plain(
        "record_fault",
        &[],
        "// Keeps the first fault: its site + 1, and the value.
__device__ __noinline__ void record_fault(i64* fault, u64 site, i64 value) {
    if (atomicCAS((u64*)fault, 0ull, site + 1) == 0) {
        fault[1] = value;
        fault[2] = value;
    }
}",
    ),
];

/// The definitions of the named helpers and of what they need.
pub fn definitions(used: &BTreeSet<&str>, target: &Target) -> String {
    let mut wanted: BTreeSet<&str> = used.clone();
    for h in HELPERS.iter().rev().filter(|h| !h.needs.is_empty()) {
        if wanted.contains(h.name) {
            wanted.extend(h.needs);
        }
    }
    let mut out = String::new();
    for h in HELPERS.iter().filter(|h| wanted.contains(h.name)) {
        let text = match h.newer {
            Some((since, newer)) if target.compute >= since => newer,
            _ => h.text,
        };
        let text = text.replace("\nF ", "\n__device__ __forceinline__ ");
        let text =
            text.strip_prefix("F ").map_or(text.clone(), |t| format!("__device__ __forceinline__ {t}"));
        out.push_str(&text);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_stand_below_what_they_need() {
        for (i, h) in HELPERS.iter().enumerate() {
            for need in h.needs {
                assert!(HELPERS[..i].iter().any(|o| o.name == *need), "{} needs {need}", h.name);
            }
        }
    }
}
