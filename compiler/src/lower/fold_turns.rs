//! Form `fold`, blocks that take one tile after the other: the copies for a tile's rows and first steps start while the
//! tile before ends, where a block of its own would start after a block has ended.

use super::fold_form::Layout;
use super::fold_pattern::Chain;
use crate::vocab::target::Target;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nanoseconds of a block's start and end, with its first copies, and of a tile's within a block.
const BLOCK: i64 = 2500;
const TILE: i64 = 1500;
/// Floating-point operations of a multiprocessor in a microsecond.
const RATE: f64 = 4.9e6;
/// Nanoseconds of the longest of tiles that see a part of the terms only, and terms of a score, from which blocks of their own end as early: what
/// starts on the multiprocessor that is free first then weighs more than a start saved.
const LONGEST: i64 = 80_000;
const LEAST_TERMS: i64 = 128;
/// Most tiles that are counted one by one, and most of a block.
const COUNTED: i64 = 1 << 16;
const MOST: i64 = 16;

/// How many blocks take the tiles; `None`: one for each.
pub fn best(chain: &Chain, layout: &Layout, target: &Target) -> Option<u32> {
    let tiles = layout.tiles(chain);
    let sms = target.sms as i64;
    if layout.split > 1 || tiles <= sms || tiles > COUNTED {
        return None;
    }
    let lengths = lengths(chain, layout);
    let longest = lengths.iter().copied().max().unwrap_or(0);
    if !chain.bounds.is_empty() && (longest > LONGEST || chain.sizes()[1] < LEAST_TERMS) {
        return None;
    }
    let alone = time(&lengths, tiles, tiles, sms);
    // What begins with a long tile ends with a short one only if heads are not cut.
    let whole = if chain.grows() { lengths.len() as i64 } else { 1 };
    let blocks = (2..=MOST).map(|n| (tiles + n * whole - 1) / (n * whole) * whole);
    // Blocks of their own, of which the longest wait for none, were seen to be up to 7% faster than counted.
    let least = if chain.grows() { 13 } else { 64 };
    let gains = |&(_, t): &(i64, i64)| t + t / least < alone;
    let timed = blocks.filter(|&b| b < tiles).map(|b| (b, time(&lengths, tiles, b, sms)));
    timed.filter(gains).min_by_key(|&(_, t)| t).map(|(b, _)| b as u32)
}

/// Nanoseconds of the steps of each of a head's tiles, in the order in which they are taken.
fn lengths(chain: &Chain, layout: &Layout) -> Vec<i64> {
    let [rows, inner, terms, columns] = chain.sizes();
    let (block, step) = (layout.rows as i64, layout.step as i64);
    let operations = 2 * block * step * (inner + columns * chain.pieces as i64);
    let each = (operations as f64 / RATE * 1000.0) as i64;
    let last = chain.outer.m.last().map_or(1, |d| d.extent);
    let steps = |tile: i64| {
        let (from, to) = (tile * block % last, (tile * block + block - 1).min(rows - 1) % last);
        let (mut lo, mut hi) = (0, terms - 1);
        for b in chain.bounds.iter().filter(|_| last == rows || last % block == 0) {
            match (b.upper, b.row) {
                (true, row) => hi = hi.min(if row { to + b.at } else { b.at }),
                (false, row) => lo = lo.max(if row { from + b.at } else { b.at }),
            }
        }
        (hi.max(0) / step - lo.clamp(0, terms - 1) / step + 1).max(1) * each
    };
    let tiles = (rows + block - 1) / block;
    let number = |i: i64| if chain.grows() { tiles - 1 - i } else { i };
    (0..tiles).map(|i| steps(number(i))).collect()
}

/// When the last of so many blocks ends, each starting on the multiprocessor that is free first.
fn time(lengths: &[i64], tiles: i64, blocks: i64, sms: i64) -> i64 {
    let mut free: BinaryHeap<Reverse<i64>> = (0..sms).map(|_| Reverse(0)).collect();
    let mut end = 0;
    for b in 0..blocks {
        let turns = (0..).map(|n| n * blocks + if n % 2 == 1 { blocks - 1 - b } else { b });
        let own: i64 = turns
            .take_while(|&t| t < tiles)
            .map(|t| lengths[(t % lengths.len() as i64) as usize] + TILE)
            .sum();
        let Some(Reverse(start)) = free.pop() else { break };
        end = end.max(start + BLOCK + own);
        free.push(Reverse(start + BLOCK + own));
    }
    end
}
