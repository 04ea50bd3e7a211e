//! Random numbers: Philox4x32-10 by counter (LANGUAGE.md section 8).

use super::dtype::Value;
use crate::host::as_i64;

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// The four words of a block.
pub fn philox(key: u64, block: u64) -> [u32; 4] {
    let mut k = [key as u32, (key >> 32) as u32];
    let mut c = [block as u32, (block >> 32) as u32, 0, 0];
    for _ in 0..10 {
        let p0 = MULTIPLIERS[0] as u64 * c[0] as u64;
        let p1 = MULTIPLIERS[1] as u64 * c[2] as u64;
        c = [(p1 >> 32) as u32 ^ c[1] ^ k[0], p1 as u32, (p0 >> 32) as u32 ^ c[3] ^ k[1], p0 as u32];
        k = [k[0].wrapping_add(WEYL[0]), k[1].wrapping_add(WEYL[1])];
    }
    c
}

/// Word c mod 4 of block c/4.
pub fn randbits(seed: i64, counter: i64) -> u32 {
    let c = counter as u64;
    philox(seed as u64, c / 4)[(c % 4) as usize]
}

/// A word as a number in [0, 1).
fn unit(word: u32) -> f64 {
    (word >> 8) as f64 * 2f64.powi(-24)
}

pub fn uniform(seed: i64, counter: i64) -> f64 {
    unit(randbits(seed, counter))
}

/// Box–Muller with words 2(c mod 2), 2(c mod 2) + 1 of block c/2.
pub fn normal(seed: i64, counter: i64) -> f64 {
    let c = counter as u64;
    let words = philox(seed as u64, c / 2);
    let at = 2 * (c % 2) as usize;
    let (u, v) = (unit(words[at]), unit(words[at + 1]));
    (-2.0 * (1.0 - u).ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()
}

pub fn uniform_value(args: &[Value]) -> Value {
    Value::F32(uniform(as_i64(args[0]), as_i64(args[1])) as f32)
}

pub fn normal_value(args: &[Value]) -> Value {
    Value::F32(normal(as_i64(args[0]), as_i64(args[1])) as f32)
}

pub fn randbits_value(args: &[Value]) -> Value {
    Value::I64(randbits(as_i64(args[0]), as_i64(args[1])) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first known-answer vectors of Random123 that this counter layout reaches.
    #[test]
    fn philox_known_answer() {
        assert_eq!(philox(0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    }

    #[test]
    fn words_of_a_block() {
        let w = philox(7, 3);
        assert_eq!([12, 13, 14, 15].map(|c| randbits(7, c)), w);
        assert!((0..1000).all(|c| (0.0..1.0).contains(&uniform(1, c))));
    }

    #[test]
    fn normals_have_mean_0_and_variance_1() {
        let n = 20000;
        let x: Vec<f64> = (0..n).map(|c| normal(42, c)).collect();
        let mean = x.iter().sum::<f64>() / n as f64;
        let var = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
        assert!(mean.abs() < 0.03 && (var - 1.0).abs() < 0.05, "{mean} {var}");
    }
}
