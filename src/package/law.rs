//! How a number of a launch follows from the sizes: found from its values at every size of a range, and held against all
//! of them.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Law {
    /// `plus + times · ∏ ⌊(size + add) / per⌋`, at most `most`
    Terms {
        plus: i64,
        times: i64,
        factors: Vec<Factor>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        most: Option<i64>,
    },
    /// The value at each of a bucket's sizes, in order.
    Table(Vec<i64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Factor {
    /// Which size, by its place.
    pub size: usize,
    pub add: i64,
    pub per: i64,
}

/// Sizes that a law multiplies.
pub const MOST_FACTORS: usize = 4;

impl Factor {
    fn at(&self, sizes: &[i64]) -> i64 {
        let n = sizes.get(self.size).copied().unwrap_or(0);
        n.wrapping_add(self.add).div_euclid(self.per.max(1))
    }
}

impl Law {
    /// The number at these sizes, which are the bucket's `place`-th.
    pub fn at(&self, sizes: &[i64], place: usize) -> Option<i64> {
        match self {
            Law::Terms { plus, times, factors, most } => {
                let product = factors.iter().fold(*times, |n, f| n.wrapping_mul(f.at(sizes)));
                let value = plus.wrapping_add(product);
                Some(most.map_or(value, |m| value.min(m)))
            }
            Law::Table(values) => values.get(place).copied(),
        }
    }

    /// The simplest law that gives every one of these values.
    pub fn of(sizes: &[Vec<i64>], values: &[i64]) -> Law {
        let free: Vec<usize> = (0..sizes.first().map_or(0, Vec::len))
            .filter(|&i| sizes.iter().any(|s| s[i] != sizes[0][i]))
            .collect();
        let holds = |law: &Law| sizes.iter().zip(values).all(|(s, v)| law.at(s, 0) == Some(*v));
        let single = free.iter().find_map(|&size| along(size, sizes, values, &holds));
        let found = single.or_else(|| product(&free, sizes, values, &holds));
        found.unwrap_or_else(|| Law::Table(values.to_vec()))
    }
}

/// What sizes are divided by: tiles, vectors, steps.
fn divisors() -> impl Iterator<Item = i64> {
    (1..=64)
        .chain([80, 96, 112, 128, 160, 192, 224, 240, 256, 320, 384, 448, 512, 640, 768])
        .chain((10..=20).map(|b| 1 << b))
}

fn factors(size: usize) -> impl Iterator<Item = Factor> {
    divisors().flat_map(move |per| {
        let up = (per > 1).then_some(Factor { size, add: per - 1, per });
        [Some(Factor { size, add: 0, per }), up].into_iter().flatten()
    })
}

/// A law of one size.
fn along(size: usize, sizes: &[Vec<i64>], values: &[i64], holds: &dyn Fn(&Law) -> bool) -> Option<Law> {
    let most = *values.iter().max()?;
    let below = values.iter().filter(|v| **v < most).count();
    // With a greatest value the others alone tell the slope.
    let caps: &[Option<i64>] = if below >= 2 { &[None, Some(most)] } else { &[None] };
    caps.iter().find_map(|cap| {
        let mut used = sizes.iter().zip(values).filter(|(_, v)| cap.is_none_or(|c| **v < c));
        let (first, v0) = used.clone().next()?;
        let (last, v1) = used.next_back()?;
        factors(size).find_map(|f| {
            let (a, b) = (f.at(first), f.at(last));
            let (rise, run) = (v1.checked_sub(*v0)?, b - a);
            if run == 0 || rise % run != 0 {
                return None;
            }
            let times = rise / run;
            let plus = v0.checked_sub(times.checked_mul(a)?)?;
            let law = Law::Terms { plus, times, factors: vec![f], most: *cap };
            holds(&law).then_some(law)
        })
    })
}

/// A product over several sizes.
fn product(free: &[usize], sizes: &[Vec<i64>], values: &[i64], holds: &dyn Fn(&Law) -> bool) -> Option<Law> {
    if !(2..=MOST_FACTORS).contains(&free.len()) {
        return None;
    }
    let (at, v) = sizes.iter().zip(values).find(|(_, v)| **v != 0)?;
    let mut all: Vec<Vec<Factor>> = vec![Vec::new()];
    for &size in free {
        let choices: Vec<Factor> = factors(size).filter(|f| f.per <= 2 || f.per % 8 == 0).collect();
        let longer = |made: &Vec<Factor>| {
            let made = made.clone();
            choices.iter().map(move |f| [made.clone(), vec![*f]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
        if all.len() > 100_000 {
            return None;
        }
    }
    all.into_iter().find_map(|factors| {
        let whole = factors.iter().map(|f| f.at(at)).product::<i64>();
        if whole == 0 || v % whole != 0 {
            return None;
        }
        let law = Law::Terms { plus: 0, times: v / whole, factors, most: None };
        holds(&law).then_some(law)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sizes: &[Vec<i64>], f: &dyn Fn(&[i64]) -> i64) -> Law {
        let values: Vec<i64> = sizes.iter().map(|s| f(s)).collect();
        let law = Law::of(sizes, &values);
        for (i, (s, v)) in sizes.iter().zip(&values).enumerate() {
            assert_eq!(law.at(s, i), Some(*v), "{law:?} at {s:?}");
        }
        law
    }

    fn is_table(law: &Law) -> bool {
        matches!(law, Law::Table(_))
    }

    #[test]
    fn what_tiles_and_strides_are_made_of_is_found() {
        let line: Vec<Vec<i64>> = (1..=500).map(|m| vec![m, 4096]).collect();
        for (f, text) in [
            (&(|s: &[i64]| s[0]) as &dyn Fn(&[i64]) -> i64, "the size"),
            (&|s| (s[0] + 127) / 128 * 16, "tiles"),
            (&|s| s[0] * s[1] * 2, "bytes"),
            (&|s| s[0] / 8 - 1, "the last vector"),
            (&|s| 132.min((s[0] + 1) / 2), "one wave"),
            (&|s| -3 * s[0], "negative"),
        ] {
            assert!(!is_table(&found(&line, f)), "{text}");
        }
        assert!(is_table(&found(&line, &|s| i64::from((s[0] as f32).recip().to_bits()))));
        let square: Vec<Vec<i64>> = (1..=20).flat_map(|m| (1..=20).map(move |n| vec![m * 8, n])).collect();
        assert!(!is_table(&found(&square, &|s| s[0] * s[1] * 4)));
        assert!(!is_table(&found(&square, &|s| (s[0] + 15) / 16 * s[1])));
        assert!(is_table(&found(&square, &|s| s[0] ^ s[1])));
    }

    #[test]
    fn a_single_size_is_told_as_it_is() {
        found(&[vec![5]], &|_| 7);
        found(&[vec![5], vec![6]], &|s| s[0] * s[0]);
    }
}
