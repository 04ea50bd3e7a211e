//! Trial of points: integer expressions of axes and constants are evaluated at each point of their axes.
//!
//! An expression is flattened once; then a point costs a walk over a list. What depends on data is unknown.

use super::build::{int_compare, int_func};
use super::prove::Prover;
use crate::host::as_i64;
use crate::ir::graph::*;
use crate::vocab::dtype::{Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;
use rustc_hash::FxHashMap as HashMap;
use std::rc::Rc;

enum Step {
    Known(i64),
    Unknown,
    Axis(AxisId),
    Call(Func, usize, usize, i64),
    Compare(Func, usize, usize),
    Select(usize, usize, usize),
    /// A wider or narrower integer: saturates to this range.
    Clamp(usize, i64, i64),
    Table {
        values: Rc<Vec<Option<i64>>>,
        lo: Vec<i64>,
        dims: Vec<i64>,
        index: Vec<usize>,
    },
    Fold {
        monoid: Monoid,
        axes: Vec<AxisId>,
        body: Box<Program>,
    },
}

/// Expressions flattened into one list. `axes` of folds have literal ranges.
pub struct Program {
    steps: Vec<Step>,
    /// Ranges of the axes of folds.
    ranges: HashMap<AxisId, (i64, i64)>,
    cond: Option<usize>,
    root: usize,
    at: HashMap<ExprId, usize>,
}

/// Where the axes stand.
pub type Point = HashMap<AxisId, i64>;

impl Program {
    pub fn new() -> Program {
        Program { steps: Vec::new(), ranges: HashMap::default(), cond: None, root: 0, at: HashMap::default() }
    }

    /// Adds an expression; its place among the values of a run.
    pub fn add(&mut self, g: &Graph, p: &Prover, e: ExprId) -> usize {
        if let Some(&i) = self.at.get(&e) {
            return i;
        }
        let step = self.step(g, p, e);
        self.steps.push(step);
        self.at.insert(e, self.steps.len() - 1);
        self.steps.len() - 1
    }

    fn step(&mut self, g: &Graph, p: &Prover, e: ExprId) -> Step {
        let ty = g.ty(e);
        match g.expr(e).clone() {
            Expr::Lit(Value::F32(_) | Value::F64(_)) => Step::Unknown,
            Expr::Lit(v) => Step::Known(as_i64(v)),
            Expr::Axis(a) => Step::Axis(a),
            _ if ty.is_float() => Step::Unknown,
            Expr::Call(f, args) if !g.ty(args[0]).is_float() && args.len() <= 2 => {
                let a = self.add(g, p, args[0]);
                let b = args.get(1).map_or(a, |&b| self.add(g, p, b));
                match f {
                    Func::Eq | Func::Ne | Func::Lt | Func::Le => Step::Compare(f, a, b),
                    Func::RandBits => Step::Unknown,
                    _ => Step::Call(
                        f,
                        a,
                        b,
                        [64, 32, 1][(ty == Ty::I32) as usize + 2 * (ty == Ty::Bool) as usize],
                    ),
                }
            }
            Expr::Cast(a) if !g.ty(a).is_float() => {
                let (lo, hi) = super::interval::of_type(ty);
                Step::Clamp(self.add(g, p, a), lo as i64, hi as i64)
            }
            Expr::Round(d, _, a) if d.is_int() => {
                let (lo, hi) = d.row().int_range;
                Step::Clamp(self.add(g, p, a), lo, hi)
            }
            Expr::Select(c, a, b) => Step::Select(self.add(g, p, c), self.add(g, p, a), self.add(g, p, b)),
            Expr::Read(r) if !matches!(r.access, Access::Else(_)) => self.table(g, p, &r),
            Expr::Fold(f) => self.fold(g, p, &f),
            _ => Step::Unknown,
        }
    }

    fn table(&mut self, g: &Graph, p: &Prover, r: &Read) -> Step {
        let Some(values) = p.tensors.get(r.tensor.0 as usize).and_then(|t| t.table.clone()) else {
            return Step::Unknown;
        };
        let index = r.index.iter().map(|&i| self.add(g, p, i)).collect();
        let t = g.tensor(r.tensor);
        Step::Table { values, lo: t.lo.clone(), dims: t.dims.clone(), index }
    }

    fn fold(&mut self, g: &Graph, p: &Prover, f: &Fold) -> Step {
        let ranges: Option<Vec<_>> = f.axes.iter().map(|&a| Some((a, g.axis_range(a)?))).collect();
        let (Some(ranges), Combine::Builtin(monoid)) = (ranges, f.combine) else { return Step::Unknown };
        if g.ty(f.body).is_float() || matches!(monoid, Monoid::ArgMax | Monoid::ArgMin) {
            return Step::Unknown;
        }
        let mut inner = Program::new();
        inner.cond = f.cond.map(|c| inner.add(g, p, c));
        inner.root = inner.add(g, p, f.body);
        inner.ranges = ranges.into_iter().collect();
        Step::Fold { monoid, axes: f.axes.clone(), body: Box::new(inner) }
    }

    /// The values of all expressions at a point. `fuel` counts what it costs; at 0 everything is unknown.
    pub fn run(&self, point: &mut Point, fuel: &mut u64) -> Vec<Option<i64>> {
        let mut v: Vec<Option<i64>> = Vec::with_capacity(self.steps.len());
        *fuel = fuel.saturating_sub(self.steps.len() as u64);
        for s in &self.steps {
            let value = if *fuel == 0 { None } else { self.value(s, &v, point, fuel) };
            v.push(value);
        }
        v
    }

    fn value(&self, s: &Step, v: &[Option<i64>], point: &mut Point, fuel: &mut u64) -> Option<i64> {
        match s {
            Step::Known(k) => Some(*k),
            Step::Unknown => None,
            Step::Axis(a) => point.get(a).copied(),
            Step::Call(Func::Not, a, _, 1) => Some(1 - v[*a]?),
            Step::Call(f, a, b, width) => {
                let r = int_func(*f, v[*a]?, v[*b]?, (*width).max(32))?;
                Some(if *width == 32 { r as i32 as i64 } else { r })
            }
            Step::Compare(f, a, b) => int_compare(*f, v[*a]?, v[*b]?).map(i64::from),
            Step::Select(c, a, b) => match v[*c] {
                Some(0) => v[*b],
                Some(_) => v[*a],
                None if v[*a].is_some() && v[*a] == v[*b] => v[*a],
                None => None,
            },
            Step::Clamp(a, lo, hi) => v[*a].map(|x| x.clamp(*lo, *hi)),
            Step::Table { values, lo, dims, index } => {
                let mut at = 0;
                for ((i, lo), n) in index.iter().zip(lo).zip(dims) {
                    let x = v[*i]?.checked_sub(*lo)?;
                    if !(0..*n).contains(&x) {
                        return None;
                    }
                    at = at * n + x;
                }
                values.get(at as usize).copied().flatten()
            }
            Step::Fold { monoid, axes, body } => body.total(*monoid, axes, point, fuel),
        }
    }

    fn total(&self, monoid: Monoid, axes: &[AxisId], point: &mut Point, fuel: &mut u64) -> Option<i64> {
        let Some((&axis, rest)) = axes.split_first() else {
            let v = self.run(point, fuel);
            let unit = Some(as_i64(monoid.unit(Ty::I64)));
            return match self.cond.map(|c| v[c]) {
                Some(Some(0)) => unit,
                Some(None) => None,
                _ => v[self.root],
            };
        };
        let (lo, hi) = self.ranges[&axis];
        let mut acc = match monoid {
            Monoid::Any => 0,
            Monoid::All => 1,
            m => as_i64(m.unit(Ty::I64)),
        };
        for i in lo..hi {
            if *fuel == 0 {
                return None;
            }
            point.insert(axis, i);
            let v = self.total(monoid, rest, point, fuel)?;
            acc = match monoid {
                Monoid::Sum => acc.wrapping_add(v),
                Monoid::Prod => acc.wrapping_mul(v),
                Monoid::Max | Monoid::Any => acc.max(v),
                _ => acc.min(v),
            };
        }
        Some(acc)
    }
}

/// What a trial found.
pub enum Trial {
    AllInside,
    /// The axes' values at a point where the index is outside, and the index.
    Outside(Vec<(AxisId, i64)>, i64),
    Undecided,
}

/// Tries the points of `axes` (outermost first; ranges may depend on outer ones) that the conditions admit.
pub struct Search<'a> {
    pub g: &'a Graph,
    pub axes: &'a [AxisId],
    pub program: &'a Program,
    /// Places of lo and hi of each axis, of the conditions with their side, and of the index, in the program's values.
    pub bounds: &'a [(usize, usize)],
    pub conds: &'a [(usize, bool)],
    pub index: usize,
    pub inside: (i64, i64),
    pub limit: u64,
}

impl Search<'_> {
    pub fn run(&self) -> Trial {
        let mut fuel = self.limit.saturating_mul(self.program.steps.len() as u64 + 1).min(1 << 26);
        for all in [false, true] {
            let mut unknown = false;
            let mut left = self.limit;
            let mut point = Point::default();
            match self.walk(0, all, &mut point, &mut fuel, &mut left, &mut unknown) {
                Some(found) => return found,
                None if all && left > 0 && fuel > 0 && !unknown => return Trial::AllInside,
                None => {}
            }
        }
        Trial::Undecided
    }

    /// `None`: nothing outside was found.
    fn walk(
        &self,
        depth: usize,
        all: bool,
        point: &mut Point,
        fuel: &mut u64,
        left: &mut u64,
        unknown: &mut bool,
    ) -> Option<Trial> {
        if *left == 0 || *fuel == 0 {
            return None;
        }
        let Some(&axis) = self.axes.get(depth) else {
            *left -= 1;
            return self.look(point, fuel, unknown);
        };
        let range = match self.g.axis_range(axis) {
            Some(r) => Some(r),
            None => {
                let v = self.program.run(point, fuel);
                v[self.bounds[depth].0].zip(v[self.bounds[depth].1])
            }
        };
        let Some((lo, hi)) = range else {
            *unknown = true;
            return None;
        };
        let few = [lo, hi - 1, lo.saturating_add(1), hi.saturating_sub(2)];
        let mut values: Box<dyn Iterator<Item = i64>> = match all {
            true => Box::new(lo..hi),
            false => {
                let mut few: Vec<i64> = few.into_iter().filter(|v| (lo..hi).contains(v)).collect();
                few.dedup();
                Box::new(few.into_iter())
            }
        };
        values.find_map(|v| {
            point.insert(axis, v);
            self.walk(depth + 1, all, point, fuel, left, unknown)
        })
    }

    fn look(&self, point: &mut Point, fuel: &mut u64, unknown: &mut bool) -> Option<Trial> {
        let v = self.program.run(point, fuel);
        if self.conds.iter().any(|&(c, side)| v[c].is_some_and(|x| (x != 0) != side)) {
            return None;
        }
        match v[self.index] {
            None => {
                *unknown = true;
                None
            }
            Some(i) if (self.inside.0..self.inside.1).contains(&i) => None,
            Some(i) => {
                let at = self.axes.iter().map(|&a| (a, point[&a])).collect();
                Some(Trial::Outside(at, i))
            }
        }
    }
}
