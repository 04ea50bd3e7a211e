//! Layouts as linear maps over bits, so that coordinates, swizzles and bank conflicts are computed, not guessed.
//!
//! A [`BitMap`] sends the bits of some named inputs (register, lane, row, chunk, …) to the bits of one output by
//! exclusive or of basis vectors (a linear map over GF(2)). Register fragments of the tensor cores and swizzled
//! shared-memory tiles of power-of-two shape are such maps. A [`SharedTile`] of another shape is padded instead.
//!
//! Invariants: a basis vector of a `BitMap` has one entry for each bit of its input; a `SharedTile` maps distinct
//! (row, chunk) pairs to distinct chunks, and `chunks` ≤ `pitch`.

use std::fmt;

/// Banks of shared memory, each four bytes wide.
pub const BANKS: u32 = 32;
/// Bytes of the unit that swizzles move: what one lane gives `ldmatrix` and what one `cp.async` copies.
pub const CHUNK: u32 = 16;

/// A linear map over bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitMap {
    /// For each input: its name, and what each of its bits (low first) adds to the output by exclusive or.
    pub inputs: Vec<(&'static str, Vec<u32>)>,
}

impl BitMap {
    pub fn apply(&self, values: &[u32]) -> u32 {
        let bits = |value: u32, basis: &[u32]| {
            basis.iter().enumerate().filter(|(i, _)| value >> i & 1 == 1).fold(0, |out, (_, b)| out ^ b)
        };
        self.inputs.iter().zip(values).fold(0, |out, ((_, basis), &v)| out ^ bits(v, basis))
    }

    /// Number of bits over all inputs.
    pub fn bits(&self) -> usize {
        self.inputs.iter().map(|(_, b)| b.len()).sum()
    }

    /// Whether distinct inputs give distinct outputs: the basis vectors are independent.
    pub fn is_injective(&self) -> bool {
        self.rank() == self.bits()
    }

    fn rank(&self) -> usize {
        let mut reduced: Vec<u32> = Vec::new();
        for &vector in self.inputs.iter().flat_map(|(_, b)| b) {
            let rest = reduced.iter().fold(vector, |v, &r| v.min(v ^ r));
            if rest != 0 {
                reduced.push(rest);
            }
        }
        reduced.len()
    }
}

impl fmt::Display for BitMap {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (i, (name, basis)) in self.inputs.iter().enumerate() {
            let vectors: Vec<String> = basis.iter().map(|b| b.to_string()).collect();
            write!(f, "{}{name}→[{}]", if i == 0 { "" } else { " " }, vectors.join(" "))?;
        }
        Ok(())
    }
}

/// The accumulator of `mma.m16n8`: register (2 bits) and lane (5 bits) to `row << 3 | column` of the 16 × 8 tile.
pub fn accumulator() -> BitMap {
    BitMap { inputs: vec![("register", vec![1, 8 << 3]), ("lane", vec![2, 4, 1 << 3, 2 << 3, 4 << 3])] }
}

/// An 8 × 16-byte matrix as `ldmatrix` spreads it: lane to `row << 2 | word`.
pub fn ldmatrix_word() -> BitMap {
    BitMap { inputs: vec![("lane", vec![1, 2, 1 << 2, 2 << 2, 4 << 2])] }
}

/// A tile in shared memory: `rows` rows of `chunks` 16-byte chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedTile {
    pub rows: u32,
    pub chunks: u32,
    /// Chunks from a row to the next.
    pub pitch: u32,
    /// Chunk `c` of row `r` stands at `c ^ ((r >> shift) & mask)`; mask 0: not swizzled.
    pub shift: u32,
    pub mask: u32,
}

impl SharedTile {
    /// The layout in which the eight rows of any `ldmatrix` matrix lie in different banks: an exclusive-or swizzle
    /// where the number of chunks is a power of two (the smallest that is free of conflicts), otherwise rows padded
    /// to an odd number of chunks.
    pub fn conflict_free(rows: u32, chunks: u32) -> SharedTile {
        let plain = SharedTile { rows, chunks, pitch: chunks, shift: 0, mask: 0 };
        if !chunks.is_power_of_two() {
            return SharedTile { pitch: chunks | 1, ..plain };
        }
        let bits = chunks.trailing_zeros().min(3);
        let swizzles = (0..=3).map(|shift| SharedTile { shift, mask: (1 << bits) - 1, ..plain });
        std::iter::once(plain)
            .chain(swizzles)
            .find(|t| t.ldmatrix_ways() == 1)
            .unwrap_or(SharedTile { pitch: chunks | 1, ..plain })
    }

    pub fn bytes(&self) -> u32 {
        self.rows * self.pitch * CHUNK
    }

    /// Byte offset of a chunk.
    pub fn offset(&self, row: u32, chunk: u32) -> u32 {
        (row * self.pitch + (chunk ^ (row >> self.shift & self.mask))) * CHUNK
    }

    /// The worst number of passes that an 8-row matrix read of any chunk column takes.
    pub fn ldmatrix_ways(&self) -> u32 {
        let rows = self.rows.max(8);
        let matrix = |row: u32, c: u32| (row..row + 8).map(|r| self.offset(r, c)).collect::<Vec<_>>();
        (0..rows / 8)
            .flat_map(|g| (0..self.chunks).map(move |c| (g * 8, c)))
            .map(|(row, c)| bank_passes(&matrix(row, c), CHUNK))
            .max()
            .unwrap_or(1)
    }

    /// The map in bits, where the shape has powers of two: row and chunk to the chunk's place.
    pub fn bit_map(&self) -> Option<BitMap> {
        if !self.rows.is_power_of_two() || !self.chunks.is_power_of_two() || self.pitch != self.chunks {
            return None;
        }
        let place = |r, c| self.offset(r, c) / CHUNK;
        let rows = (0..self.rows.trailing_zeros()).map(|b| place(1 << b, 0)).collect();
        let chunks = (0..self.chunks.trailing_zeros()).map(|b| place(0, 1 << b)).collect();
        Some(BitMap { inputs: vec![("row", rows), ("chunk", chunks)] })
    }
}

impl fmt::Display for SharedTile {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}×{}×16B", self.rows, self.chunks)?;
        if self.mask != 0 {
            write!(f, " chunk ^= (row >> {}) & {}", self.shift, self.mask)?;
        } else if self.pitch != self.chunks {
            write!(f, " pitch {}×16B", self.pitch)?;
        }
        Ok(())
    }
}

/// Passes that one access of `bytes` bytes at each of these byte addresses takes (1: no conflict): the most distinct
/// words that fall into one bank, within the groups of lanes that the hardware serves together (128 bytes).
pub fn bank_passes(addresses: &[u32], bytes: u32) -> u32 {
    let group = (BANKS * 4 / bytes.max(4)).max(1) as usize;
    addresses.chunks(group).map(|lanes| group_passes(lanes, bytes)).max().unwrap_or(1)
}

fn group_passes(addresses: &[u32], bytes: u32) -> u32 {
    let mut words: Vec<u32> =
        addresses.iter().flat_map(|a| (0..bytes.div_ceil(4)).map(move |w| a / 4 + w)).collect();
    words.sort_unstable();
    words.dedup();
    let mut banks = [0u32; BANKS as usize];
    words.iter().for_each(|w| banks[(w % BANKS) as usize] += 1);
    banks.iter().copied().max().unwrap_or(0).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_shape_is_free_of_ldmatrix_conflicts() {
        for rows in [8, 16, 24, 32, 64, 128, 256] {
            for chunks in 1..=40 {
                let tile = SharedTile::conflict_free(rows, chunks);
                assert_eq!(tile.ldmatrix_ways(), 1, "{tile}");
            }
        }
    }

    #[test]
    fn tiles_map_chunks_to_distinct_places() {
        for chunks in 1..=16 {
            let tile = SharedTile::conflict_free(32, chunks);
            let mut seen = std::collections::BTreeSet::new();
            for (r, c) in (0..32).flat_map(|r| (0..chunks).map(move |c| (r, c))) {
                assert!(tile.offset(r, c) < tile.bytes());
                assert!(seen.insert(tile.offset(r, c)), "{tile}: row {r} chunk {c}");
            }
        }
    }

    #[test]
    fn swizzles_are_linear() {
        for chunks in [1, 2, 4, 8, 16] {
            let tile = SharedTile::conflict_free(64, chunks);
            let map = tile.bit_map().expect("powers of two");
            assert!(map.is_injective(), "{map}");
            for (r, c) in (0..64).flat_map(|r| (0..chunks).map(move |c| (r, c))) {
                assert_eq!(map.apply(&[r, c]) * CHUNK, tile.offset(r, c));
            }
        }
    }

    #[test]
    fn the_usual_swizzles_are_found() {
        let of = |chunks| {
            let t = SharedTile::conflict_free(64, chunks);
            (t.shift, t.mask)
        };
        assert_eq!(of(8), (0, 7), "128-byte rows");
        assert_eq!(of(4), (1, 3), "64-byte rows");
        assert_eq!(of(2), (2, 1), "32-byte rows");
        assert_eq!(of(1), (0, 0), "16-byte rows");
    }

    #[test]
    fn fragments_cover_their_tiles() {
        assert!(accumulator().is_injective());
        assert!(ldmatrix_word().is_injective());
        assert_eq!(accumulator().apply(&[2, 5]), (8 + 1) << 3 | 2, "register 2 of lane 5: row 9, column 2");
    }

    #[test]
    fn conflicts_are_counted_in_the_groups_the_hardware_serves() {
        let stride = |n: u32| (0..32).map(|l| l * n).collect::<Vec<_>>();
        assert_eq!(bank_passes(&stride(4), 4), 1);
        assert_eq!(bank_passes(&stride(8), 4), 2);
        assert_eq!(bank_passes(&stride(128), 4), 32);
        assert_eq!(bank_passes(&stride(0), 4), 1, "a broadcast");
        assert_eq!(bank_passes(&stride(16), 16), 1);
    }
}
