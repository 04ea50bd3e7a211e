//! The search: points are ranked by the model, the best are measured a few times, the better part of them again and
//! more often (successive halving), then the settings around the best one by one, until nothing gains or the budget is
//! spent. A kernel's settings are searched while those of the others stay, the kernel with the largest share of the
//! measured time first, and each gets its share of the budget. The plan whose forms' own choices were fastest comes
//! first, then those that were not much slower.
//!
//! The same seed gives the same search. Times within a band of each other are a tie, which the least point wins.

use crate::fixed;
use crate::measure::Answers;
use crate::model::{self, KernelTime};
use crate::protocol::*;
use crate::prune;
use crate::space::Space;
use girih_compiler::ir::plan::Plan;
use girih_compiler::lower::{Schedule, simt_to_cuda};
use girih_compiler::vocab::target::Target;
use girih_dsl::source::Sources;
use girih_runtime::cache::code_digest;
use std::collections::{BTreeMap, BTreeSet};

/// What is searched: the plans (one for each way to fuse) and the target.
pub struct Problem<'a> {
    pub plans: Vec<(String, Plan)>,
    pub target: Target,
    pub sources: &'a Sources,
    /// What was found before: measured again beside the rest, so that nothing slower takes its place.
    pub known: Option<Configuration>,
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
/// Turns of the last comparison, of as many calls as in the second rung.
const TURNS: usize = 3;
/// Points that are lowered for the model at most.
const LOWERED: usize = 1200;
/// Rounds of refinement, and neighbours that are tried in one.
const ROUNDS: usize = 6;
const AROUND: usize = 12;
/// Plans whose own choices take longer than the best by more than this are not searched, and what part of the budget
/// the others get beside the best.
const NEAR: f64 = 1.3;
const OTHERS: f64 = 0.3;
/// What takes so much longer than the best is not measured again and again; a part of the time stays for the last
/// comparison.
const HOPELESS: f64 = 1.5;
const SEARCHED: f64 = 0.93;
/// Candidates of an exhaustive search that are measured before the best so far is looked at again.
const CHUNK: usize = 96;

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
    /// The same plan under the fixed default of each form, and under the settings that the model ranks first.
    pub fixed: Option<usize>,
    pub model: Option<usize>,
    /// What was known before, if it is a point of the space and was measured.
    pub known: Option<usize>,
    /// Points that were lowered, and why some were left out without compiling.
    pub lowered: usize,
    pub pruned: BTreeMap<String, usize>,
    pub notes: Vec<String>,
}

/// What answers: the pool of workers, or a test.
pub trait Bench {
    fn run(&mut self, requests: Vec<Request>) -> Answers;
    /// The same on one device, where several would answer.
    fn run_on_one(&mut self, requests: Vec<Request>) -> Answers {
        self.run(requests)
    }
    /// What follows gets this share of the time that is left.
    fn allow(&mut self, _share: f64) {}
    /// Whether that time is spent.
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
    let (found, tried) = (Found::default(), BTreeMap::new());
    let picks = BTreeMap::new();
    let mut s = Search { problem, options, bench, spaces, found, tried, picks, stop: usize::MAX };
    s.defaults();
    s.found.known = s.known();
    s.found.fixed = s.fixed();
    let parts = s.parts();
    let mut left: f64 = parts.iter().map(|p| p.share).sum();
    for part in parts {
        let share = (SEARCHED * part.share / left).min(1.0);
        left -= part.share;
        s.stop = usize::MAX;
        s.stop = s.found.trials.len().saturating_add((s.left() as f64 * share).ceil() as usize);
        s.bench.allow(share);
        s.kernel(part.plan, part.kernel);
    }
    s.stop = usize::MAX;
    s.bench.allow(1.0);
    s.finish()
}

/// A kernel to be searched, with its share of the work.
struct Part {
    plan: usize,
    kernel: usize,
    share: f64,
}

struct Search<'a> {
    problem: &'a Problem<'a>,
    options: &'a Options,
    bench: &'a mut dyn Bench,
    spaces: Vec<Space>,
    found: Found,
    /// Generated text that was tried, and in which trial.
    tried: BTreeMap<String, usize>,
    /// Of each kernel of the planner's plan that was looked at: the point that the model ranks first.
    picks: BTreeMap<usize, u64>,
    /// Trials after which the part at hand ends.
    stop: usize,
}

impl Search<'_> {
    fn left(&self) -> usize {
        let most = self.options.trials.map_or(usize::MAX, |t| t as usize).min(self.stop);
        most.saturating_sub(self.found.trials.len())
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

    /// What was found before, measured.
    fn known(&mut self) -> Option<usize> {
        let known = self.problem.known.as_ref()?;
        let plan = self.problem.plans.iter().position(|p| p.0 == known.fusion)?;
        let schedule = Schedule::parse(&known.schedule).ok()?;
        let points = self.spaces[plan].kernels.iter().map(|k| k.find(&schedule));
        let points = points.collect::<Option<Vec<u64>>>()?;
        self.point(plan, points)
    }

    /// The fixed default of each form, measured.
    fn fixed(&mut self) -> Option<usize> {
        let (_, plan) = self.problem.plans.first()?;
        let points = fixed::points(plan, &self.problem.target, &self.spaces[0]);
        self.point(0, points)
    }

    /// What the model alone would take, measured, once it has seen every kernel that has settings.
    fn model(&mut self) -> Option<usize> {
        let open = |k: &usize| self.spaces[0].kernels[*k].size() > 1;
        let seen = (0..self.spaces.first()?.kernels.len()).filter(open).all(|k| self.picks.contains_key(&k));
        let mut points = self.origin(0);
        self.picks.iter().for_each(|(&k, &p)| points[k] = p);
        if seen { self.point(0, points) } else { None }
    }

    /// The trial of a point, which is made if there is none yet.
    fn point(&mut self, plan: usize, points: Vec<u64>) -> Option<usize> {
        let candidate = self.candidate(plan, points)?;
        if let Some(&known) = self.tried.get(&candidate.code) {
            return Some(known);
        }
        self.try_all(vec![candidate], CALLS[1]).first().copied()
    }

    fn origin(&self, plan: usize) -> Vec<u64> {
        vec![0; self.spaces[plan].kernels.len()]
    }

    /// The kernels that are searched: those of the plan whose own choices were fastest (the first plan with kernels where
    /// none ran), then those of plans that come near it.
    fn parts(&mut self) -> Vec<Part> {
        let own = |s: &Self, plan| {
            let mut all = s.found.trials.iter().filter(|t| t.order == (plan, s.origin(plan)));
            all.find_map(Trial::us)
        };
        let Some(best) = self.winner().map(|w| self.found.trials[w].order.0) else {
            let first = (0..self.problem.plans.len()).find(|&p| !self.spaces[p].kernels.is_empty());
            return first.map_or_else(Vec::new, |p| self.kernels_by_share(p, 1.0));
        };
        let least = own(self, best).unwrap_or(f64::INFINITY);
        let mut near: Vec<(f64, usize)> =
            (0..self.problem.plans.len()).filter_map(|p| Some((own(self, p)?, p))).collect();
        near.retain(|n| n.1 != best && n.0 <= NEAR * least);
        near.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut parts = self.kernels_by_share(best, 1.0);
        for (_, plan) in near {
            parts.extend(self.kernels_by_share(plan, OTHERS));
        }
        parts
    }

    /// Measured microseconds of each kernel of a plan under its forms' own choices, by the generated kernels' names.
    fn measured(&mut self, plan: usize) -> BTreeMap<String, f64> {
        let trial =
            self.found.trials.iter().find(|t| t.order == (plan, self.origin(plan)) && t.us().is_some());
        let several = self.spaces[plan].kernels.len() > 1;
        let Some(trial) = trial.filter(|_| several) else { return BTreeMap::new() };
        let id = u64::MAX;
        let request = Request { id, task: Task::Parts, configuration: trial.configuration.clone() };
        match self.bench.run_on_one(vec![request]).remove(&id) {
            Some(Ok(Done::Parts(times))) => times,
            _ => BTreeMap::new(),
        }
    }

    /// The kernels of a plan that have settings, by their share of its time.
    fn kernels_by_share(&mut self, plan: usize, all: f64) -> Vec<Part> {
        let measured = self.measured(plan);
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
                let predicted = |t: &KernelTime| t.seconds * t.launches * 1e6;
                shares[i] = match measured.is_empty() {
                    true => own.map(predicted).sum(),
                    false => own.filter_map(|t| measured.get(&t.kernel)).sum(),
                };
            }
        }
        let mut order: Vec<usize> = (0..shares.len()).filter(|&i| space.kernels[i].size() > 1).collect();
        order.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]).then(a.cmp(&b)));
        let whole = order.iter().map(|&i| shares[i]).sum::<f64>();
        let share = |i: usize| if whole > 0.0 { all * shares[i] / whole } else { all / order.len() as f64 };
        order.iter().map(|&kernel| Part { plan, kernel, share: share(kernel).max(1e-6) }).collect()
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
        self.winner_of(|t| t.order.0 == plan)
            .map_or_else(|| self.origin(plan), |i| self.found.trials[i].order.1.clone())
    }

    fn kernel(&mut self, plan: usize, kernel: usize) {
        if self.spent() {
            return;
        }
        let base = self.base(plan);
        let points = self.sampled(plan, kernel).into_iter().map(|p| self.with(&base, kernel, p)).collect();
        let made = self.lower_all(plan, points);
        let first =
            made.iter().min_by(|a, b| a.predicted.total_cmp(&b.predicted).then(a.order.cmp(&b.order)));
        if let Some(first) = first.filter(|_| plan == 0) {
            self.picks.insert(kernel, first.order.1[kernel]);
        }
        let mut pool = self.fresh(made);
        if let Some(most) = self.options.exhaustive {
            pool.truncate((most as usize).min(self.left()));
            while !pool.is_empty() && !self.spent() {
                let rest = pool.split_off(pool.len().min(CHUNK));
                self.try_all(pool, CALLS[1]);
                pool = rest;
            }
            return;
        }
        pool.truncate(FIRST.min(self.left()));
        if pool.is_empty() || self.spent() {
            return;
        }
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
        let cut = self.winner().and_then(|w| Some(HOPELESS * self.found.trials[w].us()?));
        let ask = |(i, c): (usize, &Candidate)| Request {
            id: first + i as u64,
            task: Task::Measure { calls, cut },
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
            task: Task::Measure { calls, cut: None },
            configuration: self.found.trials[t].configuration.clone(),
        };
        let answers = self.bench.run_on_one(trials.iter().map(ask).collect());
        for (id, answer) in answers {
            let trial = &mut self.found.trials[id as usize];
            trial.result = sample(answer);
            trial.calls = trial.result.as_ref().map_or(trial.calls, |s| s.calls);
        }
    }

    /// Measures trials in turn, so that a clock that drifts meets them alike: the middle of a few medians counts.
    fn side_by_side(&mut self, trials: &[usize]) {
        let mut times: BTreeMap<usize, Vec<Sample>> = BTreeMap::new();
        for _ in 0..TURNS {
            self.again(trials, CALLS[1]);
            for &t in trials {
                times.entry(t).or_default().extend(self.found.trials[t].result.clone());
            }
        }
        for (t, mut all) in times {
            if self.found.trials[t].result.is_ok() && !all.is_empty() {
                all.sort_by(|a, b| a.us.total_cmp(&b.us));
                self.found.trials[t].result = Ok(all.swap_remove(all.len() / 2));
            }
        }
    }

    /// The fastest trial; among ties the least in order.
    fn winner(&self) -> Option<usize> {
        self.winner_of(|_| true)
    }

    /// The same among some.
    fn winner_of(&self, counts: impl Fn(&Trial) -> bool) -> Option<usize> {
        let among = || self.found.trials.iter().enumerate().filter(|t| counts(t.1));
        let timed = || among().filter_map(|(i, t)| Some((i, t.us()?)));
        let least = timed().map(|(_, us)| us).min_by(f64::total_cmp)?;
        let tied =
            timed().filter(|(_, us)| *us <= least * (1.0 + if self.options.exact { 0.0 } else { TIE }));
        tied.min_by(|a, b| self.found.trials[a.0].order.cmp(&self.found.trials[b.0].order)).map(|t| t.0)
    }

    /// The winner must also be right where its sizes divide nothing; one that is not is a failure like any other.
    fn finish(mut self) -> Found {
        self.found.model = self.model();
        // What others are told beside, and the best few, once more, side by side, as often as it goes.
        if !self.options.exact && !self.bench.over() {
            let mut last: Vec<usize> =
                (0..self.found.trials.len()).filter(|&t| self.found.trials[t].us().is_some()).collect();
            self.rank(&mut last);
            last.truncate(4);
            let told = [self.found.default, self.found.fixed, self.found.model, self.found.known];
            for told in told.into_iter().flatten() {
                if !last.contains(&told) && self.found.trials[told].us().is_some() {
                    last.push(told);
                }
            }
            self.side_by_side(&last);
        }
        while let Some(best) = self.winner() {
            let configuration = self.found.trials[best].configuration.clone();
            let request = Request { id: best as u64, task: Task::Tail, configuration };
            match self.bench.run(vec![request]).remove(&(best as u64)) {
                Some(Ok(Done::Right(at))) => self.found.notes.push(at),
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
    let Problem { plans, target, sources, .. } = problem;
    let mut schedule = Schedule::default();
    space.kernels.iter().zip(points).for_each(|(k, &p)| k.add(p, &mut schedule));
    let program = prune::judge(&plans[plan].1, target, &schedule)?;
    let kernels = model::times(&program, target);
    Ok(Candidate {
        configuration: Configuration { fusion: plans[plan].0.clone(), schedule: schedule.to_string() },
        order: (plan, points.to_vec()),
        predicted: model::total(&kernels),
        kernels,
        code: code_digest(&simt_to_cuda::print(&program, target, sources)),
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
