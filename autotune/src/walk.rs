//! What one block of a kernel does, counted without running it.
//!
//! The body is walked for one warp of each warpgroup of one block. Integers are evaluated
//! where they are known, for two neighbouring lanes at once, so that trip counts, the roles of warps and the
//! distance of neighbouring lanes' addresses (hence sectors and bank conflicts) are known too. A loop's body is
//! walked once and counted as often as it runs. What depends on data counts as half taken.

use girih_compiler::ir::simt::*;
use girih_compiler::vocab::dtype::{DType, Value};
use girih_compiler::vocab::func::FUNCS;

/// Counts of a whole block.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Bytes of global memory that threads ask for.
    pub read: f64,
    pub written: f64,
    /// Sectors of 32 bytes that these requests touch.
    pub sectors: f64,
    /// Of `read` and `written`, those of each parameter.
    pub params: Vec<f64>,
    /// Warp instructions.
    pub instructions: f64,
    /// Wavefronts of shared memory.
    pub wavefronts: f64,
    pub flop: f64,
    /// Cycles of a multiprocessor's tensor cores.
    pub tensor_cycles: f64,
    /// Barriers and waits that a warp passes.
    pub waits: f64,
    /// Cycles of the longest warp's dependent steps.
    pub chain: f64,
    /// Bytes that a thread has under way at once, where copies are not asynchronous.
    pub in_flight: f64,
    pub asynchronous: bool,
}

/// The lanes for which integers are known: those whose numbers have one bit tell all others' where addresses add up bit by
/// bit, as they do for parts of a lane's number.
const LANES: [i64; 6] = [0, 1, 2, 4, 8, 16];

/// A known integer for some lanes.
type Known = Option<[i64; LANES.len()]>;

/// Trips of a loop whose bounds are not known.
const UNKNOWN_TRIPS: f64 = 8.0;
/// How often what is noted as an exception happens.
const EXCEPTION: f64 = 0.001;
/// Cycles until what another block of the cluster sent has arrived, beside the usual wait: a further reduction over clusters of
/// two to eight blocks costs 0.6 to 0.9 us a wave (LayerNorm beside RMSNorm, 8192 rows of 16,384), of which the overlap with
/// other resources hides a part again.
const REMOTE: f64 = 1600.0;
/// Rounds of a `While` that are followed one by one.
const FOLLOWED: u32 = 32;

pub fn block(k: &Kernel, at: [i64; 3]) -> Block {
    let warps = k.threads().div_ceil(32).max(1);
    let mut all = Block { params: vec![0.0; k.params.len()], ..Block::default() };
    let groups = warps.div_ceil(4);
    // Blocks of many alike warps are not walked warp by warp.
    let step = groups.div_ceil(6);
    let mut first = 0;
    while first < groups {
        let share = (4 * step).min(warps - 4 * first);
        let mut w = Walk::new(k, at, 128 * first, f64::from(share));
        w.body(&k.body, 1.0);
        w.end_line();
        all.add(&w.block);
        first += step;
    }
    all
}

impl Block {
    fn add(&mut self, o: &Block) {
        self.read += o.read;
        self.written += o.written;
        self.sectors += o.sectors;
        self.params.iter_mut().zip(&o.params).for_each(|(a, b)| *a += b);
        self.instructions += o.instructions;
        self.wavefronts += o.wavefronts;
        self.flop += o.flop;
        self.tensor_cycles += o.tensor_cycles;
        self.waits = self.waits.max(o.waits);
        self.chain = self.chain.max(o.chain);
        self.in_flight = self.in_flight.max(o.in_flight);
        self.asynchronous |= o.asynchronous;
    }
}

struct Walk<'k> {
    k: &'k Kernel,
    vars: Vec<Known>,
    thread: i64,
    block_at: [i64; 3],
    /// Warps that do the same.
    warps: f64,
    block: Block,
    /// Bytes loaded in the straight line that is being walked.
    line: f64,
    /// Whether the warp instruction at hand is executed by one lane alone.
    alone: bool,
    /// Blocks were sent something that they will wait for.
    sent: bool,
}

impl<'k> Walk<'k> {
    fn new(k: &'k Kernel, block_at: [i64; 3], thread: u32, warps: f64) -> Walk<'k> {
        let block = Block { params: vec![0.0; k.params.len()], ..Block::default() };
        let vars = vec![None; k.vars.len()];
        Walk {
            k,
            vars,
            thread: i64::from(thread),
            block_at,
            warps,
            block,
            line: 0.0,
            alone: false,
            sent: false,
        }
    }

    fn body(&mut self, stmts: &[Stmt], times: f64) {
        stmts.iter().for_each(|s| self.stmt(s, times));
    }

    fn issue(&mut self, n: f64, times: f64) {
        self.block.instructions += n * times * self.warps;
    }

    /// Counts the instructions and loads of an expression; gives its value where it is known.
    fn expr(&mut self, e: &Expr, times: f64) -> Known {
        let both = |a: Known, b: Known, f: &dyn Fn(i64, i64) -> Option<i64>| {
            let (a, b) = (a?, b?);
            let mut v = a;
            for (v, (a, b)) in v.iter_mut().zip(a.iter().zip(b)) {
                *v = f(*a, b)?;
            }
            Some(v)
        };
        match e {
            Expr::Lit(v) => match v {
                Value::I32(n) => Some(all(i64::from(*n))),
                Value::I64(n) => Some(all(*n)),
                Value::Bool(b) => Some(all(i64::from(*b))),
                _ => None,
            },
            Expr::U32(n) => Some(all(i64::from(*n))),
            Expr::Var(v) => self.vars[v.0 as usize],
            Expr::Param(_) => None,
            Expr::Special(s) => Some(self.special(*s)),
            Expr::Elem(_, i) => {
                self.expr(i, times);
                None
            }
            Expr::Load(mem, i) => {
                let at = self.expr(i, times);
                self.access(*mem, at, 1, true, times);
                None
            }
            Expr::Call(f, args) => {
                for a in args {
                    self.expr(a, times);
                }
                let cost = FUNCS.iter().find(|r| r.func == *f).map_or(1.0, |r| f64::from(r.cost));
                self.issue(cost.max(1.0), times);
                None
            }
            Expr::Approx(_, args) => {
                for a in args {
                    self.expr(a, times);
                }
                self.issue(4.0, times);
                None
            }
            Expr::Int(op, a, b) => {
                let (a, b) = (self.expr(a, times), self.expr(b, times));
                let v = both(a, b, &|x, y| int(*op, x, y));
                // Most of it is shared, folded or merged into addresses; division is a few instructions.
                let slow = matches!(op, IntOp::Div | IntOp::Rem);
                self.issue(if slow { 1.0 } else { 0.2 }, times);
                v
            }
            Expr::Compare(op, a, b) => {
                let (a, b) = (self.expr(a, times), self.expr(b, times));
                self.issue(0.5, times);
                both(a, b, &|x, y| Some(i64::from(compare(*op, x, y))))
            }
            Expr::Select(c, a, b) => {
                let c = self.expr(c, times);
                let (a, b) = (self.expr(a, times), self.expr(b, times));
                self.issue(1.0, times);
                let (c, a, b) = (c?, a?, b?);
                let mut v = a;
                v.iter_mut().zip(c.iter().zip(b)).for_each(|(v, (c, b))| *v = if *c != 0 { *v } else { b });
                Some(v)
            }
            Expr::And(a, b) => {
                let (a, b) = (self.expr(a, times), self.expr(b, times));
                match (a, b) {
                    (Some(v), _) | (_, Some(v)) if v == all(0) => Some(v),
                    _ => both(a, b, &|x, y| Some(i64::from(x != 0 && y != 0))),
                }
            }
            Expr::Or(a, b) => {
                let (a, b) = (self.expr(a, times), self.expr(b, times));
                both(a, b, &|x, y| Some(i64::from(x != 0 || y != 0)))
            }
            Expr::Not(a) => self.expr(a, times).map(|v| v.map(|x| i64::from(x == 0))),
            Expr::Cast(ty, a) => {
                let v = self.expr(a, times);
                let index = matches!(ty, Ty::I32 | Ty::U32 | Ty::I64 | Ty::U64);
                self.issue(if index { 0.1 } else { 1.0 }, times);
                v.filter(|_| index)
            }
            Expr::Round(_, a) | Expr::Unpack2(_, _, a) => {
                self.expr(a, times);
                self.issue(1.0, times);
                None
            }
            Expr::Bitcast(_, a) => self.expr(a, times),
            Expr::Pack2(_, a, b) => {
                self.expr(a, times);
                self.expr(b, times);
                self.issue(1.0, times);
                None
            }
            Expr::SharedAddr(s, i) => {
                let at = self.expr(i, times)?;
                let bits = i64::from(self.k.shared[s.0 as usize].dtype.bits());
                Some(at.map(|x| x * bits / 8))
            }
        }
    }

    fn special(&self, s: Special) -> [i64; LANES.len()] {
        let [x, y, _] = self.k.block.map(i64::from);
        let threads = LANES.map(|l| self.thread + l);
        match s {
            Special::ThreadX => threads.map(|t| t % x.max(1)),
            Special::ThreadY => threads.map(|t| t / x.max(1) % y.max(1)),
            Special::ThreadZ => threads.map(|t| t / (x * y).max(1)),
            Special::BlockX => all(self.block_at[0]),
            Special::BlockY => all(self.block_at[1]),
            Special::BlockZ => all(self.block_at[2]),
            Special::Lane => threads.map(|t| t % 32),
            Special::Warp => threads.map(|t| t / 32),
        }
    }

    /// `count` neighbouring elements of each lane.
    fn access(&mut self, mem: Mem, at: Known, count: u32, load: bool, times: f64) {
        self.issue(1.0, times);
        let lanes = if self.alone { 1.0 } else { 32.0 };
        match mem {
            Mem::Global(p) => {
                let bits = match &self.k.params[p.0 as usize].kind {
                    ParamKind::Pointer { dtype, .. } => dtype.bits(),
                    _ => 32,
                };
                let own = f64::from(bits * count) / 8.0;
                let own_bits = i64::from(bits * count);
                // Neighbours, where nothing is known.
                let offsets =
                    at.map_or(LANES.map(|l| l * own_bits), |v| v.map(|x| (x - v[0]) * i64::from(bits)));
                let asked = if offsets == all(0) { own } else { own * lanes };
                let [sectors, lines] = match self.alone {
                    true => [own / 32.0, own / 128.0].map(|x| x.max(1.0)),
                    false => [32, 128].map(|bytes| pieces(&offsets, own_bits, 8 * bytes)),
                };
                let n = times * self.warps;
                self.block.sectors += sectors * n;
                // The L1 cache looks one line up at a time.
                self.block.wavefronts += lines * n;
                self.block.params[p.0 as usize] += asked * n;
                if load {
                    self.block.read += asked * n;
                    self.line += own;
                } else {
                    self.block.written += asked * n;
                }
            }
            Mem::Shared(s) => {
                let bytes = f64::from(self.k.shared[s.0 as usize].dtype.bits() * count) / 8.0;
                let apart = at.map(|v| (v[1] - v[0]).unsigned_abs() as f64 * bytes / f64::from(count));
                self.block.wavefronts += bank_wavefronts(bytes, apart, lanes) * times * self.warps;
            }
        }
    }

    fn set(&mut self, var: VarId, value: Known) {
        self.vars[var.0 as usize] = value;
    }

    fn stmt(&mut self, s: &Stmt, times: f64) {
        match s {
            Stmt::Let(v, e) | Stmt::Set(v, e) => {
                let value = self.expr(e, times);
                self.set(*v, value);
            }
            Stmt::SetElem(_, i, e) => {
                self.expr(i, times);
                self.expr(e, times);
            }
            Stmt::Store(mem, i, e) => {
                let at = self.expr(i, times);
                self.expr(e, times);
                self.access(*mem, at, 1, false, times);
            }
            Stmt::LoadVec { mem, index, count, .. } => {
                let at = self.expr(index, times);
                self.access(*mem, at, *count, true, times);
                self.issue(f64::from(*count) * 0.25, times);
            }
            Stmt::StoreVec { mem, index, count, .. } => {
                let at = self.expr(index, times);
                self.access(*mem, at, *count, false, times);
                self.issue(f64::from(*count) * 0.25, times);
            }
            Stmt::For { var, lo, hi, step, unroll, body } => {
                self.repeat(*var, [lo, hi, step], *unroll, body, times)
            }
            Stmt::While { cond, body } => self.follow(cond, body, times),
            Stmt::If { cond, then, otherwise } => self.branch(cond, then, otherwise, times),
            Stmt::Barrier | Stmt::WarpBarrier | Stmt::Fence => self.wait(times, 25.0),
            Stmt::Shuffle { var, value, lane, .. } => {
                // What all lanes hold stays what it is.
                let same = self.expr(value, times).filter(|v| *v == all(v[0]));
                self.expr(lane, times);
                self.set(*var, same);
                self.issue(2.0, times);
                self.block.chain += 24.0 * times;
            }
            Stmt::Ballot { var, pred } => {
                self.expr(pred, times);
                self.set(*var, None);
                self.issue(2.0, times);
            }
            Stmt::Atomic { mem, index, value, old, .. } => {
                let at = self.expr(index, times);
                self.expr(value, times);
                self.access(*mem, at, 1, false, times * 2.0);
                if let Some(v) = old {
                    self.set(*v, None);
                }
            }
            Stmt::Intrinsic { op, args, outs } => self.intrinsic(op, args, outs, times),
            Stmt::Fault { value, .. } => {
                self.expr(value, times);
            }
            Stmt::Line(_) | Stmt::Comment(_) => {}
        }
    }

    fn wait(&mut self, times: f64, cycles: f64) {
        self.issue(1.0, times);
        self.block.waits += times;
        self.block.chain += cycles * times;
        self.end_line();
    }

    /// What was loaded so far has arrived.
    fn end_line(&mut self) {
        self.block.in_flight = self.block.in_flight.max(self.line.min(256.0));
        self.line = 0.0;
    }

    fn repeat(&mut self, var: VarId, [lo, hi, step]: [&Expr; 3], unroll: Unroll, body: &[Stmt], times: f64) {
        let [lo, hi, step] = [lo, hi, step].map(|e| self.expr(e, times));
        let trips = match (lo, hi, step) {
            (Some(lo), Some(hi), Some(step)) if step[0] > 0 => {
                ((hi[0] - lo[0]).max(0) as f64 / step[0] as f64).ceil()
            }
            _ => UNKNOWN_TRIPS,
        };
        if trips == 0.0 {
            return;
        }
        let overlapped = match unroll {
            Unroll::Full => trips,
            Unroll::By(n) => f64::from(n).min(trips),
            Unroll::Auto => trips.min(4.0),
            Unroll::None => 1.0,
        };
        if overlapped < trips {
            self.end_line();
        }
        self.set(var, lo);
        let before = self.line;
        self.body(body, times * trips);
        self.line = before + (self.line - before).max(0.0) * overlapped;
        let loaded = self.line > before;
        if overlapped < trips {
            self.end_line();
            // A loop that is not unrolled waits for its loads, or at least for itself.
            let each = if loaded { 700.0 } else { 4.0 };
            self.block.chain += times * (trips / overlapped) * each;
        }
        self.issue(2.0 / overlapped, times * trips);
        self.forget(body);
        self.set(var, None);
    }

    fn follow(&mut self, cond: &Expr, body: &[Stmt], times: f64) {
        for _ in 0..FOLLOWED {
            match self.expr(cond, times) {
                Some([0, ..]) => return,
                Some(_) => self.body(body, times),
                None => {
                    self.body(body, times * 2.0);
                    self.forget(body);
                    return;
                }
            }
        }
        self.forget(body);
    }

    fn branch(&mut self, cond: &Expr, then: &[Stmt], otherwise: &[Stmt], times: f64) {
        let known = self.expr(cond, times);
        self.issue(1.0, times);
        match known {
            Some([0, 0, ..]) => self.body(otherwise, times),
            Some([a, b, ..]) if a != 0 && b != 0 => self.body(then, times),
            Some(_) => {
                let before = std::mem::replace(&mut self.alone, true);
                self.body(then, times);
                self.alone = before;
                self.body(otherwise, times);
            }
            None => {
                // Guards are mostly true; a choice is made one way or the other.
                let share = match otherwise.is_empty() {
                    // What a fast path left over: mostly nothing.
                    true if self.k.rare => 0.0,
                    true if self.is_exception(cond) => EXCEPTION,
                    true => 0.9,
                    false => 0.5,
                };
                self.body(then, times * share);
                self.body(otherwise, times * (1.0 - share));
                self.forget(then);
                self.forget(otherwise);
            }
        }
    }

    /// Whether a test asks for a note that another kernel left in memory: forms do so for what is evaluated once more, as its
    /// result was not finite.
    fn is_exception(&self, cond: &Expr) -> bool {
        match cond {
            Expr::And(a, b) => self.is_exception(a) || self.is_exception(b),
            Expr::Compare(CmpOp::Ne, a, b) => {
                let word = |p: &ParamId| {
                    let kind = &self.k.params[p.0 as usize].kind;
                    matches!(kind, ParamKind::Pointer { dtype: DType::I32, written: false, .. })
                };
                matches!(&**a, Expr::Load(Mem::Global(p), _) if word(p))
                    && matches!(**b, Expr::Lit(Value::I32(0)))
            }
            _ => false,
        }
    }

    /// What statements set is not known after them.
    fn forget(&mut self, stmts: &[Stmt]) {
        for s in stmts {
            match s {
                Stmt::Set(v, _) => self.set(*v, None),
                Stmt::For { body, .. } | Stmt::While { body, .. } => self.forget(body),
                Stmt::If { then, otherwise, .. } => {
                    self.forget(then);
                    self.forget(otherwise);
                }
                _ => {}
            }
        }
    }

    /// Bytes of a tensor map's box.
    fn box_bytes(&self, map: ParamId) -> f64 {
        match &self.k.params[map.0 as usize].kind {
            ParamKind::TensorMap(m) => f64::from(m.bytes()),
            _ => 0.0,
        }
    }

    /// Issued by four warps together, for 32 bytes along the sum; operands come from shared memory, but for rows of the
    /// first that registers hold.
    fn wgmma(&mut self, columns: u16, bits: u32, rows: f64, n: f64) {
        let columns = f64::from(columns);
        let terms = 256.0 / f64::from(bits);
        self.block.flop += 2.0 * 64.0 * columns * terms * n / 4.0;
        self.block.tensor_cycles += 2.0 * 64.0 * columns * 16.0 / 4096.0 * n / 4.0;
        self.block.wavefronts += (rows + columns) * 32.0 / 128.0 * n / 4.0;
    }

    fn intrinsic(&mut self, op: &Intrinsic, args: &[Expr], outs: &[Place], times: f64) {
        for a in args {
            self.expr(a, times);
        }
        for out in outs {
            if let Place::Var(v) = out {
                self.set(*v, None);
            }
        }
        let n = times * self.warps;
        match op {
            Intrinsic::CpAsync { mem, bytes } => {
                self.issue(1.0, times);
                let asked = f64::from(*bytes) * if self.alone { 1.0 } else { 32.0 };
                self.block.read += asked * n;
                self.block.sectors += asked / 32.0 * n;
                self.block.params[mem.0 as usize] += asked * n;
                self.block.wavefronts += asked / 128.0 * n;
                self.block.asynchronous = true;
            }
            Intrinsic::TmaLoad { map, .. }
            | Intrinsic::TmaPixels { map, .. }
            | Intrinsic::TmaMulticast { map, .. } => {
                let bytes = self.box_bytes(*map);
                // One thread of the block issues it.
                self.block.read += bytes * times;
                self.block.sectors += bytes / 32.0 * times;
                self.block.params[map.0 as usize] += bytes * times;
                // It arrives at each block of the cluster, which issue their parts of what all get.
                let arrives = match op {
                    Intrinsic::TmaMulticast { .. } | Intrinsic::TmaPixels { multicast: true, .. } => {
                        self.k.cluster.iter().map(|&c| c.max(1)).product()
                    }
                    _ => 1u32,
                };
                self.block.wavefronts += bytes * f64::from(arrives) / 128.0 * times;
                self.block.asynchronous = true;
            }
            Intrinsic::TmaStore { map, .. } => {
                let bytes = self.box_bytes(*map);
                self.block.written += bytes * times;
                self.block.sectors += bytes / 32.0 * times;
                self.block.params[map.0 as usize] += bytes * times;
                self.block.wavefronts += bytes / 128.0 * times;
            }
            Intrinsic::LdMatrix { count, .. } | Intrinsic::StMatrix { count, .. } => {
                self.issue(1.0, times);
                self.block.wavefronts += f64::from(*count) * n;
            }
            Intrinsic::Wgmma { n: columns, dtypes, .. } => {
                self.wgmma(*columns, dtypes[0].bits(), 64.0, n);
                self.issue(1.0, times);
            }
            Intrinsic::WgmmaRegs { n: columns, dtype, .. } => {
                self.wgmma(*columns, dtype.bits(), 0.0, n);
                self.issue(1.0, times);
            }
            Intrinsic::StoreAsync { .. } => {
                self.issue(1.0, times);
                self.sent = true;
            }
            Intrinsic::MbarrierWait if std::mem::take(&mut self.sent) => self.wait(times, 40.0 + REMOTE),
            Intrinsic::WgmmaWait(_) | Intrinsic::MbarrierWait | Intrinsic::CpAsyncWait(_) => {
                self.wait(times, 40.0)
            }
            Intrinsic::NamedBarrier { .. } => self.wait(times, 25.0),
            Intrinsic::Philox => self.issue(60.0, times),
            other => match flop(other) {
                Some((flop, rate)) => {
                    self.issue(1.0, times);
                    self.block.flop += flop * n;
                    self.block.tensor_cycles += flop / rate * n;
                }
                None => self.issue(1.0, times),
            },
        }
    }
}

/// Operations of a warp's matrix instruction, and operations a cycle of a multiprocessor. `mma.sync` reaches about
/// two thirds of what `wgmma` does (4096).
fn flop(op: &Intrinsic) -> Option<(f64, f64)> {
    const HALF: f64 = 2600.0;
    match op {
        Intrinsic::MmaM16N8K16 { .. } => Some((4096.0, HALF)),
        Intrinsic::MmaM16N8K8F16 => Some((2048.0, HALF)),
        Intrinsic::MmaM16N8K32 { .. } => Some((8192.0, 2.0 * HALF)),
        Intrinsic::MmaM16N8K8Tf32 => Some((2048.0, HALF / 2.0)),
        Intrinsic::MmaM8N8K4F64 => Some((512.0, HALF / 20.0)),
        _ => None,
    }
}

/// Wavefronts of a warp's access: all banks at once where neighbours are neighbours, more where their distance is a
/// multiple of many banks.
fn bank_wavefronts(bytes: f64, apart: Option<f64>, lanes: f64) -> f64 {
    let least = (bytes * lanes / 128.0).max(1.0);
    let Some(apart) = apart else { return least };
    let words = (apart / 4.0) as i64;
    if words <= (bytes / 4.0).max(1.0) as i64 {
        return least;
    }
    let common = gcd(words, 32).min(32) as f64;
    (least * (common * bytes.max(4.0) / 4.0).min(lanes) / (bytes / 4.0).max(1.0)).max(least)
}

/// The same for every lane.
fn all(n: i64) -> [i64; LANES.len()] {
    [n; LANES.len()]
}

/// Pieces of so many bits that a warp's accesses of `own` bits touch, at these distances from the first lane's.
fn pieces(offsets: &[i64; LANES.len()], own: i64, bits: i64) -> f64 {
    let mut found = std::collections::BTreeSet::new();
    for lane in 0..32 {
        let bit = |i: usize| if lane >> i & 1 == 1 { offsets[i + 1] } else { 0 };
        let at: i64 = (0..LANES.len() - 1).map(bit).sum();
        found.extend(at.div_euclid(bits)..=(at + own.max(1) - 1).div_euclid(bits));
    }
    found.len() as f64
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

fn int(op: IntOp, a: i64, b: i64) -> Option<i64> {
    Some(match op {
        IntOp::Add => a.wrapping_add(b),
        IntOp::Sub => a.wrapping_sub(b),
        IntOp::Mul => a.wrapping_mul(b),
        IntOp::Div => a.checked_div(b)?,
        IntOp::Rem => a.checked_rem(b)?,
        IntOp::And => a & b,
        IntOp::Or => a | b,
        IntOp::Xor => a ^ b,
        IntOp::Shl => a.checked_shl(u32::try_from(b).ok()?)?,
        IntOp::Shr => a.checked_shr(u32::try_from(b).ok()?)?,
        IntOp::Min => a.min(b),
        IntOp::Max => a.max(b),
    })
}

fn compare(op: CmpOp, a: i64, b: i64) -> bool {
    match op {
        CmpOp::Lt => a < b,
        CmpOp::Le => a <= b,
        CmpOp::Gt => a > b,
        CmpOp::Ge => a >= b,
        CmpOp::Eq => a == b,
        CmpOp::Ne => a != b,
    }
}
