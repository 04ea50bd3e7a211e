//! Where the lines of a copied box come from.

use crate::ir::simt::{Pixels, TensorMap};

/// For each line of a box (its elements along dim 0), in the order in which they lie in shared memory: the byte of the
/// buffer where coordinate 0 along dim 0 would be, or `None` for a line outside of the tensor.
pub fn lines(map: &TensorMap, at: &[i64]) -> Vec<Option<i64>> {
    match &map.pixels {
        None => boxed(map, at),
        Some(p) => pixels(map, p, at),
    }
}

fn line(map: &TensorMap, at: impl Iterator<Item = i64>) -> Option<i64> {
    let dims = map.dims[1..].iter().zip(&map.strides);
    at.zip(dims)
        .try_fold(map.offset, |from, (x, (n, stride))| (0..*n).contains(&x).then(|| from + x * stride))
}

fn boxed(map: &TensorMap, at: &[i64]) -> Vec<Option<i64>> {
    let rows: u32 = map.extent[1..].iter().product();
    let one = |row: u32| {
        let mut rest = row;
        let within = map.extent[1..].iter().map(|&n| {
            let x = rest % n;
            rest /= n;
            x as i64
        });
        let within: Vec<i64> = within.collect();
        line(map, at[1..].iter().zip(within).map(|(a, b)| a + b))
    };
    (0..rows).map(one).collect()
}

/// `at`: the first pixel, then the offsets.
fn pixels(map: &TensorMap, p: &Pixels, at: &[i64]) -> Vec<Option<i64>> {
    let rank = map.dims.len();
    let mut here = at[1..rank].to_vec();
    let offsets = &at[rank..];
    let mut out = Vec::new();
    for _ in 0..map.extent[1] {
        let moved = here.iter().enumerate().map(|(d, x)| x + offsets.get(d).copied().unwrap_or(0));
        out.push(line(map, moved));
        for d in 0..here.len() {
            here[d] += p.step.get(d).map_or(1, |&s| s as i64);
            let windowed = d < p.lower.len();
            if !windowed || here[d] < map.dims[d + 1] + p.upper[d] as i64 {
                break;
            }
            here[d] = p.lower[d] as i64;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::simt::Swizzle;
    use crate::vocab::dtype::DType;

    /// One channel block of 16 bytes, 2 images of 3 × 4.
    fn map(pixels: Option<Pixels>, extent: Vec<u32>) -> TensorMap {
        TensorMap {
            dtype: DType::F16,
            offset: 0,
            dims: vec![8, 4, 3, 2],
            strides: vec![16, 64, 192],
            extent,
            swizzle: Swizzle::None,
            pixels,
        }
    }

    #[test]
    fn boxes_cross_the_edges() {
        let m = map(None, vec![8, 2, 2, 1]);
        assert_eq!(lines(&m, &[0, -1, 2, 1]), [None, Some(192 + 128), None, None]);
    }

    #[test]
    fn pixels_walk_a_window() {
        // A filter of 3 × 3 with one row and column of padding, every second place.
        let p = Pixels { lower: vec![-1, -1], upper: vec![-1, -1], step: vec![2, 2] };
        let m = map(Some(p), vec![8, 5]);
        // Places (-1, -1), (-1, 1), (1, -1), (1, 1) of image 0, then the first of image 1; moved by (1, 1).
        let want = [Some(0), Some(32), Some(128), Some(160), Some(192)];
        assert_eq!(lines(&m, &[0, -1, -1, 0, 1, 1]), want);
        assert_eq!(lines(&m, &[0, -1, -1, 0, 0, 1]), [None, Some(16), None, Some(144), None]);
    }
}
