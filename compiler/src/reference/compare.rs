//! Is a result within what the reference admits?

use super::Checked;
use super::num::round_f64;
use crate::host::{HostTensor, as_f64, as_i64};
use crate::vocab::dtype::DType;

/// A result that is right.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The greatest error beside what is admitted there (up to 1), and where; none for the nearest value of the dtype.
    pub worst: f64,
    pub worst_index: Option<Vec<i64>>,
    /// Elements where anything, or several discrete values, would have been right.
    pub ambiguous: usize,
}

/// The first element that is not admitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    pub index: Vec<i64>,
    pub got: f64,
    pub want: f64,
    /// The least and greatest value that are admitted.
    pub allowed: (f64, f64),
    /// How many elements are not admitted.
    pub count: usize,
    pub total: usize,
    /// Another dtype or other dims; the rest is then empty.
    pub shape: Option<String>,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        if let Some(shape) = &self.shape {
            return f.write_str(shape);
        }
        let Mismatch { index, got, want, allowed, count, total, .. } = self;
        let (lo, hi) = allowed;
        write!(
            f,
            "{count} of {total} wrong, first at {index:?}: {got:e} for {want:e} ({lo:e} to {hi:e} are right)"
        )
    }
}

/// Compares a result with the reference: each element must be the rounding of a value within the bound.
pub fn compare(want: &Checked, got: &HostTensor) -> Result<Report, Mismatch> {
    let t = &want.tensor;
    if got.dtype != t.dtype || got.dims != t.dims {
        let text = format!("{}{:?} for {}{:?}", got.dtype.name(), got.dims, t.dtype.name(), t.dims);
        return Err(Mismatch {
            index: Vec::new(),
            got: f64::NAN,
            want: f64::NAN,
            allowed: (f64::NAN, f64::NAN),
            count: 0,
            total: t.len(),
            shape: Some(text),
        });
    }
    let mut report = Report { ambiguous: want.ambiguous, ..Report::default() };
    let mut first = None;
    let mut count = 0;
    let mut worst = None;
    for i in 0..t.len() {
        // What is left out may be left out at one element and not at another.
        let skipped = || want.skipped.as_ref().and_then(|other| ratio(other, got, i));
        match ratio(want, got, i).or_else(skipped) {
            Some(r) if r > report.worst => {
                report.worst = r;
                worst = Some(i);
            }
            Some(_) => {}
            None => {
                first.get_or_insert(i);
                count += 1;
            }
        }
    }
    report.worst_index = worst.map(|i| t.index_of(i));
    let Some(i) = first else { return Ok(report) };
    Err(Mismatch {
        index: t.index_of(i),
        got: as_f64(got.get(i)),
        want: want.wide[i],
        allowed: allowed(want, i),
        count,
        total: t.len(),
        shape: None,
    })
}

/// The least and greatest value admitted at an element.
fn allowed(want: &Checked, i: usize) -> (f64, f64) {
    let (v, e, dtype) = (want.wide[i], want.bound[i], want.tensor.dtype);
    if !dtype.is_float() {
        return (v - e, v + e);
    }
    // The ends are computed in f64 themselves: where they are another choice's value, that must not miss by a rounding.
    let slack = |end: f64| end.abs() * f64::EPSILON;
    let (lo, hi) = match (v - e, v + e) {
        _ if e == 0.0 => (v, v),
        (lo, hi) if lo.is_finite() && hi.is_finite() => (lo - slack(lo), hi + slack(hi)),
        ends => ends,
    };
    (round_f64(lo, dtype), round_f64(hi, dtype))
}

/// The error as a part of what is admitted; `None` where it is more.
fn ratio(want: &Checked, got: &HostTensor, i: usize) -> Option<f64> {
    let e = want.bound[i];
    if e == f64::INFINITY {
        return Some(0.0);
    }
    if !want.tensor.dtype.is_float() {
        return whole(want, got, i, e);
    }
    let (v, x) = (want.wide[i], as_f64(got.get(i)));
    if v.is_nan() || x.is_nan() {
        return (v.is_nan() && x.is_nan()).then_some(0.0);
    }
    let (lo, hi) = allowed(want, i);
    if x < lo || x > hi {
        return None;
    }
    if x == round_f64(v, want.tensor.dtype) {
        // Nothing of the dtype is nearer.
        return Some(0.0);
    }
    let most = (hi - v).max(v - lo);
    Some(if most > 0.0 && x.is_finite() { (x - v).abs() / most } else { 0.0 })
}

/// Integers and truth values.
fn whole(want: &Checked, got: &HostTensor, i: usize, e: f64) -> Option<f64> {
    if want.tensor.dtype == DType::Bool {
        return (want.tensor.get(i) == got.get(i)).then_some(0.0);
    }
    let apart = (as_i64(got.get(i)) as i128 - as_i64(want.tensor.get(i)) as i128).unsigned_abs() as f64;
    (apart <= e).then_some(if e > 0.0 { apart / e } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(dtype: DType, wide: &[f64], bound: &[f64]) -> Checked {
        let tensor = HostTensor::from_f64(dtype, &[wide.len() as i64], wide);
        Checked { tensor, wide: wide.to_vec(), bound: bound.to_vec(), ambiguous: 0, skipped: None }
    }

    #[test]
    fn a_code_is_right_when_the_bound_admits_it() {
        let near_tie = 17.0 - 1e-6;
        let want = checked(DType::E4M3, &[near_tie, near_tie], &[1e-5, 1e-7]);
        let got = |a, b| HostTensor::from_f64(DType::E4M3, &[2], &[a, b]);
        assert!(compare(&want, &got(16.0, 16.0)).is_ok());
        assert!(compare(&want, &got(18.0, 16.0)).is_ok());
        let wrong = compare(&want, &got(16.0, 18.0)).expect_err("18 is out of reach");
        assert_eq!((wrong.index, wrong.got, wrong.count), (vec![1], 18.0, 1));
    }

    #[test]
    fn nan_and_inf_must_agree() {
        let want = checked(DType::F32, &[f64::NAN, f64::INFINITY, 1.0], &[0.0, 0.0, 0.5]);
        let got = |v: &[f64]| compare(&want, &HostTensor::from_f64(DType::F32, &[3], v));
        assert!(got(&[f64::NAN, f64::INFINITY, 1.2]).is_ok());
        assert!(got(&[0.0, f64::INFINITY, 1.0]).is_err());
        assert!(got(&[f64::NAN, 3e38, 1.0]).is_err());
        assert!(got(&[f64::NAN, f64::INFINITY, f64::NAN]).is_err());
        assert!(got(&[f64::NAN, f64::INFINITY, 1.6]).is_err());
    }

    #[test]
    fn shapes_are_compared() {
        let want = checked(DType::F32, &[1.0], &[0.0]);
        assert!(compare(&want, &HostTensor::zeros(DType::F32, &[2])).is_err_and(|m| m.shape.is_some()));
    }
}
