//! A tuning as `girih_autotune::report` shows it.

use super::run::{Tuned, one_line, to_paste};
use girih_autotune::model::{CLOCK, MEMORY};
use girih_autotune::report::{self, Row, Tuning};
use girih_autotune::search::{Found, Trial};

/// Operations a cycle of a multiprocessor's tensor cores on 16-bit floats.
const PRODUCTS: f64 = 4096.0;

/// Everything that a page needs.
pub fn tuning(t: &Tuned) -> Tuning {
    let best = t.found.best.map(|b| &t.found.trials[b].configuration);
    Tuning {
        title: format!("{} at {}", t.key.op, t.key.shape()),
        device: t.key.device.clone(),
        rows: t.found.trials.iter().map(row).collect(),
        best: t.found.best,
        default: t.found.default,
        model: t.found.model,
        fixed: t.found.fixed,
        correlation: rank_correlation(&t.found),
        tile_block: best.map_or(String::new(), |c| to_paste(t, c)),
        notes: t.notes.iter().chain(&t.found.notes).cloned().collect(),
        pruned: t.found.pruned.iter().map(|(why, n)| (why.clone(), *n)).collect(),
        peaks: (MEMORY, PRODUCTS * CLOCK * f64::from(t.target.sms)),
    }
}

fn row(t: &Trial) -> Row {
    let setting = |line: &str| line.split_once(" = ").map(|(k, v)| (k.to_string(), v.to_string()));
    let sum = |f: &dyn Fn(&girih_autotune::model::KernelTime) -> f64| {
        t.kernels.iter().map(|k| f(k) * k.launches).sum()
    };
    let part = |k: &girih_autotune::model::KernelTime| {
        k.parts.iter().map(|(name, s)| (format!("{}: {name}", k.kernel), s * 1e6)).collect::<Vec<_>>()
    };
    Row {
        label: one_line(&t.configuration),
        settings: t.configuration.schedule.lines().filter_map(setting).collect(),
        us: t.us(),
        spread: t.result.as_ref().map_or((0.0, 0.0), |s| (s.least, s.greatest)),
        predicted: t.predicted,
        failure: t.result.as_ref().err().map(|f| f.to_string()),
        bytes: sum(&|k| k.bytes),
        flop: sum(&|k| k.flop),
        parts: t.kernels.iter().flat_map(part).collect(),
    }
}

/// Of the model's times with the measured ones.
pub fn rank_correlation(found: &Found) -> Option<f64> {
    let pairs: Vec<(f64, f64)> = found.trials.iter().filter_map(|t| Some((t.predicted, t.us()?))).collect();
    report::rank_correlation(&pairs)
}
