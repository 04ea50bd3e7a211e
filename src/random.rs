//! Random inputs: what a graph's input may hold, from a seed and the input's name.

use crate::error::{Error, Result};
use girih_compiler::host::HostTensor;
use girih_compiler::ir::graph::Tensor;
use girih_compiler::vocab::dtype::{DType, Value};
use girih_compiler::vocab::random::philox;
use std::collections::{BTreeSet, HashMap};

/// A tensor within its declared range, without repeats where it is declared `unique`; floats are normal, integers
/// without a range are small.
pub fn tensor(t: &Tensor, seed: u64) -> Result<HostTensor> {
    let mut words = Words::new(seed, &t.name);
    has_room(t)?;
    let mut out = HostTensor::zeros(t.dtype, &t.dims);
    let n = out.len();
    if t.dtype.is_float() {
        (0..n).for_each(|i| out.set(i, Value::F64(words.normal())));
        return Ok(out);
    }
    if t.dtype == DType::Bool {
        (0..n).for_each(|i| out.set(i, Value::Bool(words.below(2) == 1)));
        return Ok(out);
    }
    let (lo, hi) = range(t);
    if n > 0 && lo >= hi {
        return Err(Error::argument(
            &t.name,
            format!("its range {lo}..{hi} is empty, so it cannot be made up: give it with --input"),
        ));
    }
    let values = if t.unique {
        distinct(t, n, lo, hi, &mut words)?
    } else {
        (0..n).map(|_| words.between(lo, hi)).collect()
    };
    values.into_iter().enumerate().for_each(|(i, v)| out.set(i, Value::I64(v)));
    Ok(out)
}

/// A tensor that cannot be held is refused in words.
pub fn has_room(t: &Tensor) -> Result<()> {
    let bytes = t.dtype.bytes(&t.dims).max(0) as usize;
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| {
        let what = format!("its {:.1} GB do not fit in memory: choose smaller sizes", bytes as f64 / 1e9);
        Error::argument(&t.name, what)
    })
}

/// The half-open range to draw from.
fn range(t: &Tensor) -> (i64, i64) {
    let (least, greatest) = t.dtype.row().int_range;
    match t.range {
        Some((lo, hi)) => (lo.max(least), hi.min(greatest.saturating_add(1))),
        None if t.dtype.bits() <= 8 => (least, greatest + 1),
        None => (-100, 101),
    }
}

/// `n` values of which none but −1 occurs twice.
fn distinct(t: &Tensor, n: usize, lo: i64, hi: i64, words: &mut Words) -> Result<Vec<i64>> {
    let first = lo.max(0);
    let room = (hi - first).max(0) as u64;
    if room < n as u64 && lo > -1 {
        return Err(Error::argument(
            &t.name,
            format!(
                "{n} distinct values do not fit in {lo}..{hi}, so it cannot be made up: give it with --input"
            ),
        ));
    }
    // The first values of a shuffle, without the whole array.
    let mut moved: HashMap<u64, u64> = HashMap::new();
    let taken = (n as u64).min(room);
    let mut values: Vec<i64> = (0..taken)
        .map(|i| {
            let j = i + words.below(room - i);
            let at = |m: &HashMap<u64, u64>, k: u64| m.get(&k).copied().unwrap_or(k);
            let (vi, vj) = (at(&moved, i), at(&moved, j));
            moved.insert(j, vi);
            first + vj as i64
        })
        .collect();
    values.resize(n, -1);
    debug_assert!(values.iter().filter(|&&v| v >= 0).collect::<BTreeSet<_>>().len() as u64 == taken);
    Ok(values)
}

/// A stream of random words of its own for each name.
struct Words {
    key: u64,
    block: u64,
    left: Vec<u32>,
}

impl Words {
    fn new(seed: u64, name: &str) -> Words {
        let key = name.bytes().fold(seed ^ 0x9e37_79b9_7f4a_7c15, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17)
        });
        Words { key, block: 0, left: Vec::new() }
    }

    fn word(&mut self) -> u32 {
        if self.left.is_empty() {
            self.left = philox(self.key, self.block).to_vec();
            self.block += 1;
        }
        self.left.pop().expect("just filled")
    }

    /// In [0, 1).
    fn unit(&mut self) -> f64 {
        (f64::from(self.word()) + 0.5) / 4_294_967_296.0
    }

    fn normal(&mut self) -> f64 {
        let (u, v) = (self.unit(), self.unit());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// In 0..n, n > 0; the bias is below 2⁻⁶⁴·n.
    fn below(&mut self, n: u64) -> u64 {
        let word = u64::from(self.word()) << 32 | u64::from(self.word());
        ((u128::from(word) * u128::from(n)) >> 64) as u64
    }

    /// In lo..hi, lo < hi, also where the difference passes i64.
    fn between(&mut self, lo: i64, hi: i64) -> i64 {
        lo.wrapping_add(self.below(hi.wrapping_sub(lo) as u64) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use girih_compiler::host::as_i64;
    use girih_compiler::ir::graph::Role;

    fn wanted(dtype: DType, dims: &[i64], range: Option<(i64, i64)>, unique: bool) -> Tensor {
        Tensor {
            name: "x".into(),
            version: 0,
            dtype,
            dims: dims.to_vec(),
            lo: vec![0; dims.len()],
            role: Role::Input,
            range,
            unique,
            cast: false,
            strides: Vec::new(),
            align: 16,
            span: Default::default(),
        }
    }

    fn values(t: &Tensor) -> Vec<i64> {
        let h = tensor(t, 1).unwrap();
        (0..h.len()).map(|i| as_i64(h.get(i))).collect()
    }

    #[test]
    fn integers_stay_in_their_range_and_reach_its_ends() {
        let v = values(&wanted(DType::I64, &[1000], Some((-1, 4)), false));
        assert_eq!(v.iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from([-1, 0, 1, 2, 3]));
        let v = values(&wanted(DType::U4, &[10, 33], None, false));
        assert_eq!(v.into_iter().collect::<BTreeSet<_>>().len(), 16);
    }

    #[test]
    fn unique_values_are_distinct() {
        let v = values(&wanted(DType::I32, &[50], Some((0, 50)), true));
        assert_eq!(v.into_iter().collect::<BTreeSet<_>>().len(), 50);
        let v = values(&wanted(DType::I32, &[8], Some((-1, 5)), true));
        assert_eq!((v.iter().filter(|&&x| x == -1).count(), v.iter().collect::<BTreeSet<_>>().len()), (3, 6));
        let e = tensor(&wanted(DType::I32, &[8], Some((0, 5)), true), 1).unwrap_err().to_string();
        assert!(e.contains("x: 8 distinct values"), "{e}");
    }

    #[test]
    fn an_empty_range_is_an_error_unless_nothing_is_drawn() {
        assert!(tensor(&wanted(DType::I64, &[3], Some((0, 0)), false), 1).is_err());
        assert!(tensor(&wanted(DType::I64, &[0], Some((0, 0)), false), 1).is_ok());
    }

    #[test]
    fn seeds_and_names_give_different_tensors_and_repeat() {
        let t = wanted(DType::F32, &[64], None, false);
        let other = Tensor { name: "y".into(), ..t.clone() };
        assert_eq!(tensor(&t, 1).unwrap(), tensor(&t, 1).unwrap());
        assert_ne!(tensor(&t, 1).unwrap(), tensor(&t, 2).unwrap());
        assert_ne!(tensor(&t, 1).unwrap(), tensor(&other, 1).unwrap());
    }
}
