//! `profile` blocks: the sizes, consts and dtypes that an op is tuned for.

use crate::kernel::Kernel;
use girih_dsl::ast::{Bucket, Choice, Item, Profile};
use std::collections::BTreeMap;

/// One point of a profile: every named size, const and dtype with its value.
pub type Point = BTreeMap<String, String>;

/// Least and greatest of the sizes that a point stands for, by name.
pub type Around = BTreeMap<String, (i64, i64)>;

/// Points that a profile may have.
const MOST: usize = 256;

/// What an op's profiles name, all combinations of each block.
pub fn points(kernel: &Kernel, op: &str) -> Vec<Point> {
    points_and_ranges(kernel, op).into_iter().map(|p| p.0).collect()
}

/// The same with what each point stands for where a size has a range: what lies above the point before it, up to itself; the last
/// one up to the range's end.
pub fn points_and_ranges(kernel: &Kernel, op: &str) -> Vec<(Point, Around)> {
    let mut all = Vec::new();
    for profile in profiles(kernel, op) {
        let mut points = vec![(Point::new(), Around::new())];
        for bucket in &profile.buckets {
            let values = with_ranges(bucket);
            let with = |(p, around): &(Point, Around), (value, range): &(String, Option<(i64, i64)>)| {
                let (mut p, mut around) = (p.clone(), around.clone());
                let name = &bucket.name.text;
                p.insert(name.clone(), value.clone());
                around.extend(range.map(|r| (name.clone(), r)));
                (p, around)
            };
            points = points.iter().flat_map(|p| values.iter().map(move |v| with(p, v))).take(MOST).collect();
        }
        all.extend(points);
    }
    all
}

/// A bucket's values, each with the part of the range around it.
fn with_ranges(bucket: &Bucket) -> Vec<(String, Option<(i64, i64)>)> {
    let plain = || values(bucket).into_iter().map(|v| (v, None)).collect();
    let Choice::Range(lo, hi, _) = bucket.values else { return plain() };
    let numbers: Option<Vec<i64>> = values(bucket).iter().map(|v| v.parse().ok()).collect();
    let Some(mut numbers) = numbers else { return plain() };
    numbers.sort_unstable();
    numbers.dedup();
    let last = numbers.len().saturating_sub(1);
    let mut from = lo;
    let mut all = Vec::new();
    for (i, n) in numbers.into_iter().enumerate() {
        let to = if i == last { hi.max(n) } else { n };
        all.push((n.to_string(), Some((from.min(n), to))));
        from = n + 1;
    }
    all
}

/// The sizes that a profile's ranges admit, by name: least and greatest.
pub fn ranges(kernel: &Kernel, op: &str) -> BTreeMap<String, (i64, i64)> {
    let mut found = BTreeMap::new();
    for bucket in profiles(kernel, op).flat_map(|p| &p.buckets) {
        if let Choice::Range(lo, hi, _) = bucket.values {
            found.insert(bucket.name.text.clone(), (lo, hi));
        }
    }
    found
}

fn profiles<'k>(kernel: &'k Kernel, op: &str) -> impl Iterator<Item = &'k Profile> {
    let of = move |item: &'k Item, op: &str| match item {
        Item::Profile(p) if p.op.text == op => Some(p),
        _ => None,
    };
    let op = op.to_string();
    kernel.items().filter_map(move |i| of(i, &op))
}

/// The values at which to tune: those after `at`, else the set that is written; of a bare range its ends and the powers
/// of four between.
fn values(bucket: &Bucket) -> Vec<String> {
    words(bucket.at.as_ref().unwrap_or(&bucket.values))
}

fn words(c: &Choice) -> Vec<String> {
    match c {
        Choice::Int(n, _) => vec![n.to_string()],
        Choice::Word(n) => vec![n.text.clone()],
        Choice::Set(all, _) => all.iter().flat_map(words).collect(),
        Choice::Apply(n, a) => words(a).into_iter().map(|a| format!("{}({a})", n.text)).collect(),
        Choice::Range(lo, hi, _) => {
            let between = std::iter::successors(Some(1i64), |n| n.checked_mul(4)).take_while(|n| n < hi);
            let mut all: Vec<i64> = between.filter(|n| n > lo).chain([*lo, *hi]).collect();
            all.sort_unstable();
            all.dedup();
            all.iter().map(i64::to_string).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_a_point() {
        let text = "op f[T: float, M, K](x: T[M, K]) -> (y: T[M]) { y[m] = sum[k](x[m, k]) }\n\
                    profile f M = 1..=8192 at {16, 512}, K = {64, 128}, T = bf16";
        let kernel = Kernel::from_text("f.tile", text).unwrap();
        let points = points(&kernel, "f");
        assert_eq!(points.len(), 4);
        assert!(points.iter().all(|p| p["T"] == "bf16"));
        assert_eq!(ranges(&kernel, "f")["M"], (1, 8192));
        let around: Vec<(i64, i64)> = points_and_ranges(&kernel, "f").iter().map(|p| p.1["M"]).collect();
        assert_eq!(around, [(1, 16), (1, 16), (17, 8192), (17, 8192)]);
        assert_eq!(words(&Choice::Range(1, 100, Default::default())), ["1", "4", "16", "64", "100"]);
    }
}
