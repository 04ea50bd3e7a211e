//! The search: points are ranked by the model, the best are measured a few times, the better part of them again and
//! more often (successive halving), then the settings around the best one by one, until nothing gains or the budget is
//! spent. A kernel's settings are searched while those of the others stay, the kernel with the largest predicted share
//! first.
//!
//! The same seed gives the same search. Times within a band of each other are a tie, which the least point wins.

use crate::measure::Answers;
use crate::model::{self, KernelTime};
use crate::protocol::*;
use crate::prune;
use crate::space::Space;
use girih_compiler::ir::plan::Plan;
use girih_compiler::lower::{Schedule, simt_to_cuda};
use girih_compiler::vocab::target::Target;
use girih_dsl::source::Sources;
use girih_runtime::cache::digest;
use std::collections::{BTreeMap, BTreeSet};

/// What is searched: the plans (one for each way to fuse) and the target.
pub struct Problem<'a> {
    pub plans: Vec<(String, Plan)>,
    pub target: Target,
    pub sources: &'a Sources,
}

#[derive(Clone, Debug)]
pub struct Options {
    /// Configurations that are measured at most.
    pub trials: Option<u32>,
    /// The i-th of n parts of the space, from 1.
    pub shard: Option<(u32, u32)>,
    pub seed: u64,
    /// Measure everything that is left after pruning, up to so many, instead of searching.
    pub exhaustive: Option<u32>,
    /// The times are exact: nothing is measured again.
    pub exact: bool,
}

/// Times closer than this are a tie.
pub const TIE: f64 = 0.01;
/// Configurations of the first rung, and what part of a rung is measured again.
const FIRST: usize = 40;
const KEPT: usize = 3;
/// Calls that are timed in each rung.
const CALLS: [u32; 3] = [7, 21, 63];
/// Points that are lowered for the model at most.
const LOWERED: usize = 1200;
/// Rounds of refinement, and neighbours that are tried in one.
const ROUNDS: usize = 6;
const AROUND: usize = 12;

/// One configuration with what became of it.
#[derive(Clone, Debug)]
pub struct Trial {
    pub configuration: Configuration,
    /// Its number among the plans, and its kernels' points: the order among ties.
    pub order: (usize, Vec<u64>),
    pub predicted: f64,
    /// What the model made of each of its kernels.
    pub kernels: Vec<KernelTime>,
    pub result: Result<Sample, Failure>,
    /// Times of earlier rungs are replaced by those of later ones.
    pub calls: u32,
}

impl Trial {
    pub fn us(&self) -> Option<f64> {
        self.result.as_ref().ok().map(|s| s.us)
    }
}

/// Everything that was found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Measured, or failed on the way, in the order in which they were tried.
    pub trials: Vec<Trial>,
    /// Index of the winner; `None` if every configuration failed.
    pub best: Option<usize>,
    /// Index of the form's own choice under the planner's own fusion.
    pub default: Option<usize>,
    /// Points that were lowered, and why some were left out without compiling.
    pub lowered: usize,
    pub pruned: BTreeMap<String, usize>,
    pub notes: Vec<String>,
}

/// What answers: the pool of workers, or a test.
pub trait Bench {
    fn run(&mut self, requests: Vec<Request>) -> Answers;
    /// Whether the time is spent.
    fn over(&self) -> bool;
}

struct Candidate {
    configuration: Configuration,
    order: (usize, Vec<u64>),
    predicted: f64,
    kernels: Vec<KernelTime>,
    code: String,
}

pub fn search(problem: &Problem, options: &Options, bench: &mut dyn Bench) -> Found {
    let spaces = problem.plans.iter().map(|(_, plan)| Space::of(plan, &problem.target)).collect();
    let mut s = Search { problem, options, bench, spaces, found: Found::default(), tried: BTreeMap::new() };
    s.defaults();
    let Some(plan) = s.best_plan() else { return s.finish() };
    for kernel in s.kernels_by_share(plan) {
        s.kernel(plan, kernel);
        if s.spent() {
            break;
        }
    }
    s.finish()
}

struct Search<'a> {
    problem: &'a Problem<'a>,
    options: &'a Options,
    bench: &'a mut dyn Bench,
    spaces: Vec<Space>,
    found: Found,
    /// Generated text that was tried, and in which trial.
    tried: BTreeMap<String, usize>,
}

impl Search<'_> {
    fn left(&self) -> usize {
        self.options.trials.map_or(usize::MAX, |t| (t as usize).saturating_sub(self.found.trials.len()))
    }

    fn spent(&self) -> bool {
        self.left() == 0 || self.bench.over()
    }

    /// Each plan under its forms' own choices.
    fn defaults(&mut self) {
        let plans = 0..self.problem.plans.len();
        let all: Vec<Candidate> = plans.filter_map(|p| self.candidate(p, self.origin(p))).collect();
        let all = self.fresh(all);
        self.try_all(all, CALLS[1]);
        self.found.default = self.found.trials.iter().position(|t| t.order == (0, self.origin(0)));
    }

    fn origin(&self, plan: usize) -> Vec<u64> {
        vec![0; self.spaces[plan].kernels.len()]
    }

    /// The plan whose own choices were fastest; the first that lowers where none ran.
    fn best_plan(&mut self) -> Option<usize> {
        match self.winner() {
            Some(best) => Some(self.found.trials[best].order.0),
            None => (0..self.problem.plans.len()).find(|&p| !self.spaces[p].kernels.is_empty()),
        }
    }

    fn kernels_by_share(&self, plan: usize) -> Vec<usize> {
        let space = &self.spaces[plan];
        let mut shares = vec![0.0; space.kernels.len()];
        if let Ok(program) =
            prune::judge(&self.problem.plans[plan].1, &self.problem.target, &Schedule::default())
        {
            let times = model::times(&program, &self.problem.target);
            for (i, k) in space.kernels.iter().enumerate() {
                let rows = program.forms.iter().filter(|f| f.kernel == k.kernel).flat_map(|f| &f.simt);
                let names: BTreeSet<&str> = rows.map(|&r| program.kernels[r].name.as_str()).collect();
                let own = times.iter().filter(|t| names.contains(t.kernel.as_str()));
                shares[i] = own.map(|t| t.seconds * t.launches).sum();
            }
        }
        let mut order: Vec<usize> = (0..shares.len()).filter(|&i| space.kernels[i].size() > 1).collect();
        order.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]).then(a.cmp(&b)));
        order
    }

    /// Lowers a point; what cannot be is counted with its reason.
    fn candidate(&mut self, plan: usize, points: Vec<u64>) -> Option<Candidate> {
        let made = lower(self.problem, &self.spaces[plan], plan, &points);
        self.note(made)
    }

    fn note(&mut self, made: Result<Candidate, Failure>) -> Option<Candidate> {
        self.found.lowered += 1;
        made.map_err(|f| *self.found.pruned.entry(short(&f.reason)).or_default() += 1).ok()
    }

    /// Lowers many points, on all cores; the order is that of the points.
    fn lower_all(&mut self, plan: usize, points: Vec<Vec<u64>>) -> Vec<Candidate> {
        let threads = std::thread::available_parallelism().map_or(2, |n| n.get()).min(16);
        let part = points.len().div_ceil(threads).max(1);
        let (problem, space) = (self.problem, &self.spaces[plan]);
        let made: Vec<Result<Candidate, Failure>> = std::thread::scope(|s| {
            let work = |part: Vec<Vec<u64>>| {
                move || part.iter().map(|p| lower(problem, space, plan, p)).collect::<Vec<_>>()
            };
            let spawn = |chunk: &[Vec<u64>]| {
                std::thread::Builder::new().stack_size(64 << 20).spawn_scoped(s, work(chunk.to_vec()))
            };
            let threads: Vec<_> = points.chunks(part).map(spawn).collect();
            let join = |t: std::io::Result<std::thread::ScopedJoinHandle<'_, Vec<_>>>| {
                t.ok().and_then(|t| t.join().ok()).unwrap_or_default()
            };
            threads.into_iter().flat_map(join).collect()
        });
        made.into_iter().filter_map(|m| self.note(m)).collect()
    }

    /// One of each text, none that was tried.
    fn fresh(&self, mut all: Vec<Candidate>) -> Vec<Candidate> {
        all.sort_by(|a, b| a.predicted.total_cmp(&b.predicted).then(a.order.cmp(&b.order)));
        let mut seen = BTreeSet::new();
        all.retain(|c| !self.tried.contains_key(&c.code) && seen.insert(c.code.clone()));
        all
    }

    /// Points of a kernel's space that the model looks at: all of them, or a sample that is the same for a seed.
    fn sampled(&self, plan: usize, kernel: usize) -> Vec<u64> {
        let size = self.spaces[plan].kernels[kernel].size();
        let mine =
            |p: &u64| self.options.shard.is_none_or(|(i, n)| mix(*p, 0) % u64::from(n) == u64::from(i - 1));
        let most = self.options.exhaustive.map_or(LOWERED, |n| (n as usize).max(LOWERED) * 8);
        if size <= most as u64 {
            return (0..size).filter(mine).collect();
        }
        // Whatever is one setting away from the form's own choice, and points from everywhere.
        let near = self.spaces[plan].kernels[kernel].neighbours(0);
        let mut points: BTreeSet<u64> = near.into_iter().chain([0]).filter(mine).collect();
        let mut n = 0;
        while points.len() < most && n < 8 * most as u64 {
            let p = mix(n, self.options.seed) % size;
            if mine(&p) {
                points.insert(p);
            }
            n += 1;
        }
        points.into_iter().collect()
    }

    fn with(&self, base: &[u64], kernel: usize, point: u64) -> Vec<u64> {
        let mut points = base.to_vec();
        points[kernel] = point;
        points
    }

    /// The best points so far of a plan.
    fn base(&self, plan: usize) -> Vec<u64> {
        let own = |i: &usize| self.found.trials[*i].order.0 == plan;
        self.winner().filter(own).map_or_else(|| self.origin(plan), |i| self.found.trials[i].order.1.clone())
    }

    fn kernel(&mut self, plan: usize, kernel: usize) {
        let base = self.base(plan);
        let points = self.sampled(plan, kernel).into_iter().map(|p| self.with(&base, kernel, p)).collect();
        let made = self.lower_all(plan, points);
        let mut pool = self.fresh(made);
        if let Some(most) = self.options.exhaustive {
            pool.truncate((most as usize).min(self.left()));
            self.try_all(pool, CALLS[1]);
            return;
        }
        if pool.is_empty() {
            return;
        }
        let rest = pool.split_off(pool.len().min(FIRST).min(self.left()));
        drop(rest);
        let first = self.try_all(pool, CALLS[0]);
        self.halve(first);
        self.refine(plan, kernel);
    }

    /// Measures the better part of some trials again, more often each time.
    fn halve(&mut self, mut trials: Vec<usize>) {
        if self.options.exact {
            return;
        }
        for calls in &CALLS[1..] {
            trials.retain(|&t| self.found.trials[t].us().is_some());
            self.rank(&mut trials);
            trials.truncate(trials.len().div_ceil(KEPT).max(2));
            if self.bench.over() {
                return;
            }
            self.again(&trials, *calls);
        }
    }

    fn rank(&self, trials: &mut [usize]) {
        let key =
            |t: &usize| (self.found.trials[*t].us().unwrap_or(f64::INFINITY), &self.found.trials[*t].order);
        trials.sort_by(|a, b| {
            let (a, b) = (key(a), key(b));
            a.0.total_cmp(&b.0).then(a.1.cmp(b.1))
        });
    }

    /// Around the best, setting by setting, until nothing gains.
    fn refine(&mut self, plan: usize, kernel: usize) {
        for _ in 0..ROUNDS {
            let Some(best) = self.winner() else { return };
            let (base, before) = (self.base(plan), self.found.trials[best].us());
            let near = self.spaces[plan].kernels[kernel].neighbours(base[kernel]);
            let points = near.into_iter().map(|p| self.with(&base, kernel, p)).collect();
            let made = self.lower_all(plan, points);
            let mut pool = self.fresh(made);
            pool.truncate(AROUND.min(self.left()));
            if pool.is_empty() || self.spent() {
                return;
            }
            let tried = self.try_all(pool, CALLS[0]);
            let close: Vec<usize> = tried
                .into_iter()
                .filter(|&t| self.found.trials[t].us().zip(before).is_some_and(|(a, b)| a < b * (1.0 + TIE)))
                .collect();
            if close.is_empty() {
                return;
            }
            if !self.options.exact {
                self.again(&close, CALLS[2]);
            }
            let gained = self.winner().and_then(|w| self.found.trials[w].us());
            if gained.zip(before).is_none_or(|(now, b)| now >= b * (1.0 - TIE)) {
                return;
            }
        }
    }

    /// Measures candidates; gives their trials' indices.
    fn try_all(&mut self, all: Vec<Candidate>, calls: u32) -> Vec<usize> {
        let all: Vec<Candidate> = all.into_iter().take(self.left()).collect();
        let first = self.found.trials.len() as u64;
        let ask = |(i, c): (usize, &Candidate)| Request {
            id: first + i as u64,
            task: Task::Measure { calls },
            configuration: c.configuration.clone(),
        };
        let mut answers = self.bench.run(all.iter().enumerate().map(ask).collect());
        let mut made = Vec::new();
        for (i, c) in all.into_iter().enumerate() {
            let Some(answer) = answers.remove(&(first + i as u64)) else { continue };
            let result = sample(answer);
            self.tried.insert(c.code, self.found.trials.len());
            made.push(self.found.trials.len());
            let calls = result.as_ref().map_or(0, |s| s.calls);
            let Candidate { configuration, order, predicted, kernels, .. } = c;
            self.found.trials.push(Trial { configuration, order, predicted, kernels, result, calls });
        }
        made
    }

    /// Measures trials again.
    fn again(&mut self, trials: &[usize], calls: u32) {
        let ask = |&t: &usize| Request {
            id: t as u64,
            task: Task::Measure { calls },
            configuration: self.found.trials[t].configuration.clone(),
        };
        let answers = self.bench.run(trials.iter().map(ask).collect());
        for (id, answer) in answers {
            let trial = &mut self.found.trials[id as usize];
            trial.result = sample(answer);
            trial.calls = trial.result.as_ref().map_or(trial.calls, |s| s.calls);
        }
    }

    /// The fastest trial; among ties the least in order.
    fn winner(&self) -> Option<usize> {
        let timed = || self.found.trials.iter().enumerate().filter_map(|(i, t)| Some((i, t.us()?)));
        let least = timed().map(|(_, us)| us).min_by(f64::total_cmp)?;
        let tied =
            timed().filter(|(_, us)| *us <= least * (1.0 + if self.options.exact { 0.0 } else { TIE }));
        tied.min_by(|a, b| self.found.trials[a.0].order.cmp(&self.found.trials[b.0].order)).map(|t| t.0)
    }

    /// The winner must also be right where its sizes divide nothing; one that is not is a failure like any other.
    fn finish(mut self) -> Found {
        // The form's own choice and the best few once more, side by side, as often as it goes.
        if !self.options.exact && !self.bench.over() {
            let mut last: Vec<usize> =
                (0..self.found.trials.len()).filter(|&t| self.found.trials[t].us().is_some()).collect();
            self.rank(&mut last);
            last.truncate(4);
            last.extend(
                self.found.default.filter(|d| !last.contains(d) && self.found.trials[*d].us().is_some()),
            );
            self.again(&last, CALLS[2]);
        }
        while let Some(best) = self.winner() {
            let configuration = self.found.trials[best].configuration.clone();
            let request = Request { id: best as u64, task: Task::Tail, configuration };
            match self.bench.run(vec![request]).remove(&(best as u64)) {
                Some(Ok(Done::Right(at))) => self.found.notes.push(format!("right at {at}")),
                Some(Ok(_)) => {}
                Some(Err(failure)) => {
                    self.found.trials[best].result = Err(failure);
                    continue;
                }
                None => self.found.notes.push("no time was left to check a shape with tails".into()),
            }
            self.found.best = Some(best);
            break;
        }
        self.found
    }
}

/// Lowers a point and has its time predicted.
fn lower(problem: &Problem, space: &Space, plan: usize, points: &[u64]) -> Result<Candidate, Failure> {
    let Problem { plans, target, sources } = problem;
    let mut schedule = Schedule::default();
    space.kernels.iter().zip(points).for_each(|(k, &p)| k.add(p, &mut schedule));
    let program = prune::judge(&plans[plan].1, target, &schedule)?;
    let kernels = model::times(&program, target);
    Ok(Candidate {
        configuration: Configuration { fusion: plans[plan].0.clone(), schedule: schedule.to_string() },
        order: (plan, points.to_vec()),
        predicted: model::total(&kernels),
        kernels,
        code: digest(simt_to_cuda::print(&program, target, sources).as_bytes()),
    })
}

fn sample(answer: Result<Done, Failure>) -> Result<Sample, Failure> {
    match answer? {
        // A time that is none would win or lose every comparison.
        Done::Measured(s) if s.us.is_finite() && s.us > 0.0 => Ok(s),
        Done::Measured(s) => Err(Failure::new(FailureKind::Other, format!("{} is no time", s.us))),
        _ => Err(Failure::new(FailureKind::Other, "an answer without a time")),
    }
}

/// A reason without its numbers' detail, for counting.
fn short(reason: &str) -> String {
    let text: String = reason.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
    let mut text = text.replace("##", "#");
    while text.contains("##") {
        text = text.replace("##", "#");
    }
    text.chars().take(120).collect()
}

/// A well-mixed number for each number and seed.
fn mix(n: u64, seed: u64) -> u64 {
    let mut h = n.wrapping_add(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    h = (h ^ h >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ h >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ h >> 31
}
