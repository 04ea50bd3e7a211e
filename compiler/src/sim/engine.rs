//! What goes on beside a warp's own operations: mbarriers, copies of boxes (TMA), and a warpgroup's matrix products.
//!
//! - A copy is checked against the shadow when it is issued and its bytes are unreadable until it lands, which is as
//!   late as it may be: when no warp can go on. Landing completes its bytes on its mbarrier.
//! - A product reads shared memory and writes its accumulators when a wait retires its group, and is checked both then
//!   and when it is issued: what is overwritten or read between is found.
//! - Orderings go through vector clocks of warps: arriving at an mbarrier gives what the warp knows to the phase, and
//!   who waits for the phase takes it. An arrival by some lanes gives what the warp did before its last warp-wide
//!   synchronisation (the wait for products is one).
//! - Each warp of a warpgroup carries out its own 16 of the 64 rows.

use super::access::unfenced;
use super::block::Block;
use super::cluster::place;
use super::code::{Out, Space};
use super::codec;
use super::lanes::{LANES, Reg, lanes};
use super::report::{Fail, Kind, SimError};
use super::warp::{Stop, Warp};
use crate::ir::simt::{Intrinsic, Swizzle, TensorMap};
use crate::vocab::dtype::DType;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;

type Result<T> = std::result::Result<T, Fail>;

/// The block's mbarriers and the copies that are under way.
#[derive(Default)]
pub struct Engine {
    pub(super) barriers: BTreeMap<u32, Mbarrier>,
    pub(super) copies: Vec<Copy>,
    pub(super) cluster: super::cluster::State,
    /// For each warp the clock of its last fence before the engine reads what it stored.
    fences: BTreeMap<usize, u32>,
}

impl Engine {
    pub fn reset(&mut self) {
        *self = Engine::default();
    }
}

pub(super) struct Mbarrier {
    /// How many barriers of the cluster its block had passed when it was initialised.
    pub epoch: u32,
    pub count: u32,
    /// Arrivals and bytes that the phase still waits for.
    pub pending: u32,
    bytes: i64,
    /// Completed phases.
    phase: u32,
    /// What arrivals gave, and what waiting takes.
    pub given: Vec<u32>,
    taken: Vec<u32>,
    /// The same by block of the cluster: what is known of that block's warps.
    pub peers_given: BTreeMap<u32, Vec<u32>>,
    peers_taken: BTreeMap<u32, Vec<u32>>,
}

impl Mbarrier {
    pub fn advance(&mut self) {
        if self.pending == 0 && self.bytes == 0 {
            self.peers_taken.clone_from(&self.peers_given);
            self.phase += 1;
            self.pending = self.count;
            self.taken.clone_from(&self.given);
        }
    }

    fn completed(&self, parity: u32) -> bool {
        self.phase & 1 != parity & 1
    }
}

pub(super) struct Copy {
    pub barrier: u32,
    pub bytes: u32,
    pub chunks: Vec<(u32, [u8; 16])>,
    pub pc: usize,
}

/// The products of a warp that are not retired.
#[derive(Default)]
pub struct Products {
    fenced: bool,
    open: Vec<Product>,
    groups: VecDeque<Vec<Product>>,
}

impl Products {
    fn pending(&self, elem: u32) -> bool {
        let has = |p: &Product| p.outs.iter().any(|o| o.elem == Some(elem));
        self.open.iter().any(has) || self.groups.iter().flatten().any(has)
    }
}

struct Product {
    dtypes: [DType; 2],
    n: u32,
    trans: [bool; 2],
    /// A's matrix, or its values where it came from registers; B's matrix.
    a: Source,
    b: u64,
    scale: bool,
    outs: Vec<Out>,
}

/// The later of each pair of clocks.
pub(super) fn merge(into: &mut Vec<u32>, from: &[u32]) {
    into.resize(into.len().max(from.len()), 0);
    for (a, b) in into.iter_mut().zip(from) {
        *a = (*a).max(*b);
    }
}

enum Source {
    Descriptor(u64),
    Values(Vec<f64>),
}

/// Whether an intrinsic is one of this file.
pub fn takes(op: Intrinsic) -> bool {
    matches!(
        op,
        Intrinsic::MbarrierInit
            | Intrinsic::MbarrierArrive
            | Intrinsic::MbarrierExpect
            | Intrinsic::MbarrierWait
            | Intrinsic::FenceMbarrierInit
            | Intrinsic::FenceProxyAsync
            | Intrinsic::TmaLoad { .. }
            | Intrinsic::TmaPixels { .. }
            | Intrinsic::TmaMulticast { .. }
            | Intrinsic::MbarrierArriveAt
            | Intrinsic::TmaStore { .. }
            | Intrinsic::BulkCommit
            | Intrinsic::BulkWait(_)
            | Intrinsic::WgmmaFence
            | Intrinsic::WgmmaCommit
            | Intrinsic::WgmmaWait(_)
            | Intrinsic::Wgmma { .. }
            | Intrinsic::WgmmaRegs { .. }
            | Intrinsic::SetMaxRegisters { .. }
            | Intrinsic::NamedBarrier { .. }
            | Intrinsic::ClusterArrive
            | Intrinsic::ClusterWait
            | Intrinsic::StoreAsync { .. }
    )
}

impl Block<'_> {
    pub fn engine_intrinsic(
        &mut self,
        w: &mut Warp,
        op: Intrinsic,
        outs: &[Out],
        args: &[Reg],
    ) -> Result<Option<Stop>> {
        match op {
            Intrinsic::MbarrierInit => self.init_barrier(w, args)?,
            Intrinsic::MbarrierArrive => self.arrive(w, args[0], None)?,
            Intrinsic::MbarrierArriveAt => self.arrive_at(w, args)?,
            Intrinsic::MbarrierExpect => self.arrive(w, args[0], Some(args[1]))?,
            Intrinsic::MbarrierWait => return self.wait_phase(w, args),
            Intrinsic::FenceMbarrierInit => {}
            Intrinsic::FenceProxyAsync => {
                self.clock += 1;
                self.engine.fences.insert(w.index, self.clock);
            }
            Intrinsic::TmaLoad { map, .. } | Intrinsic::TmaPixels { map, multicast: false, .. } => {
                self.copy_box(w, map.0, args)?
            }
            Intrinsic::TmaMulticast { map, .. } | Intrinsic::TmaPixels { map, multicast: true, .. } => {
                let (mask, args) = args.split_last().expect("the signature has a mask");
                let (mask, own) = (uniform::<u32>(w, *mask, "the blocks of a copy")?, self.rank());
                self.multicast(w, map.0, args, mask & !(1 << own))?;
                if mask >> own & 1 != 0 {
                    self.copy_box(w, map.0, args)?;
                }
            }
            Intrinsic::TmaStore { map, .. } => self.store_box(w, map.0, args)?,
            Intrinsic::BulkCommit => w.stores.commit(w.mask),
            Intrinsic::BulkWait(n) => self.retire_stores(w, n as u32)?,
            Intrinsic::WgmmaFence => {
                w.whole("a fence of matrix instructions")?;
                w.products.fenced = true;
            }
            Intrinsic::WgmmaCommit => {
                w.whole("a commit of matrix instructions")?;
                let group = std::mem::take(&mut w.products.open);
                w.products.groups.push_back(group);
            }
            Intrinsic::WgmmaWait(n) => self.retire(w, n as usize)?,
            Intrinsic::Wgmma { dtypes, n, trans } => self.product(w, dtypes, n as u32, trans, outs, args)?,
            Intrinsic::WgmmaRegs { dtype, n, trans } => {
                self.product(w, [dtype; 2], n as u32, [false, trans], outs, args)?
            }
            Intrinsic::SetMaxRegisters { .. } => w.whole("a change of registers")?,
            Intrinsic::NamedBarrier { threads } => {
                w.whole("a named barrier")?;
                let id = uniform::<u32>(w, args[0], "the number of a barrier")?;
                return Ok(Some(Stop::Named(id, threads as u32)));
            }
            Intrinsic::ClusterArrive => self.arrive_cluster(w)?,
            Intrinsic::ClusterWait => return self.wait_cluster(w).map(Some),
            Intrinsic::StoreAsync { wide } => self.store_async(w, wide, args)?,
            _ => {}
        }
        Ok(None)
    }

    fn init_barrier(&mut self, w: &Warp, args: &[Reg]) -> Result<()> {
        let entries = w.seen.len();
        for i in lanes(w.mask) {
            let (at, count) = (place(w.regs.get::<u32>(args[0])[i]), w.regs.get::<u32>(args[1])[i]);
            if !at.is_multiple_of(8) || at as usize + 8 > self.shared.data.len() || count == 0 {
                let message = format!("a barrier of {count} arrivals at byte {at} of shared memory");
                return Err(Fail::new(Kind::OutOfBounds, i, message));
            }
            if self.checks {
                let noted = self.shared.note_write(at as usize, 8, 3, false, &self.shared_order(w, i));
                noted.map_err(|f| self.shared_fail(Space::Global(0), at as usize, i, true, f))?;
            }
            let clocks = vec![0; entries];
            let epoch = self.engine.cluster.epoch();
            let (given, taken) = (clocks.clone(), clocks);
            let (peers_given, peers_taken) = Default::default();
            let (pending, bytes, phase) = (count, 0, 0);
            let barrier =
                Mbarrier { epoch, count, pending, bytes, phase, given, taken, peers_given, peers_taken };
            self.engine.barriers.insert(at, barrier);
        }
        Ok(())
    }

    /// A barrier that this lane may use: it is there, and its initialisation came before.
    fn known_barrier(&mut self, w: &Warp, lane: usize, at: u32) -> Result<()> {
        if !self.engine.barriers.contains_key(&at) {
            let message = format!("byte {at} of shared memory is no initialised barrier");
            return Err(Fail::new(Kind::Uninitialised, lane, message));
        }
        if self.checks {
            self.read_shared(w, Space::Global(0), lane, at as usize, 8, 3)?;
        }
        Ok(())
    }

    fn arrive(&mut self, w: &Warp, at: Reg, bytes: Option<Reg>) -> Result<()> {
        let given = self.given(w);
        for i in lanes(w.mask) {
            let at = place(w.regs.get::<u32>(at)[i]);
            let bytes = bytes.map_or(0, |b| w.regs.get::<u32>(b)[i]);
            self.arrive_here(w, i, at, bytes, &given)?;
        }
        Ok(())
    }

    /// What an arrival of these lanes gives: for each warp the clock up to which its accesses come before.
    pub(super) fn given(&mut self, w: &Warp) -> Vec<u32> {
        // What the warp's other lanes did since its last synchronisation is not given by this one's arrival.
        let own = if w.mask == w.all {
            self.clock += 1;
            self.clock
        } else {
            w.start
        };
        let mut given = w.seen.clone();
        if let Some(g) = given.get_mut(w.index) {
            *g = (*g).max(own);
        }
        given
    }

    pub(super) fn arrive_here(
        &mut self,
        w: &Warp,
        lane: usize,
        at: u32,
        bytes: u32,
        given: &[u32],
    ) -> Result<()> {
        self.known_barrier(w, lane, at)?;
        let Some(b) = self.engine.barriers.get_mut(&at) else { return Ok(()) };
        if b.pending == 0 {
            let message = format!("more than {} arrivals in one phase of the barrier at byte {at}", b.count);
            return Err(Fail::new(Kind::Race, lane, message));
        }
        merge(&mut b.given, given);
        b.bytes += bytes as i64;
        b.pending -= 1;
        b.advance();
        Ok(())
    }

    fn wait_phase(&mut self, w: &Warp, args: &[Reg]) -> Result<Option<Stop>> {
        let at = place(uniform::<u32>(w, args[0], "the address of a barrier that a warp waits for")?);
        let parity = uniform::<u32>(w, args[1], "the parity that a warp waits for")?;
        self.known_barrier(w, w.mask.trailing_zeros() as usize % LANES, at)?;
        Ok(Some(Stop::Phase(at, parity)))
    }

    /// Lets go on who waits for a completed phase.
    pub fn wake_phases(&mut self, warps: &mut [Warp], stops: &mut [Option<Stop>]) -> bool {
        let mut any = false;
        for (w, stop) in warps.iter_mut().zip(stops) {
            let Some(Stop::Phase(at, parity)) = *stop else { continue };
            let Some(b) = self.engine.barriers.get(&at).filter(|b| b.completed(parity)) else { continue };
            merge(&mut w.seen, &b.taken);
            for (&block, taken) in &b.peers_taken {
                merge(w.peers.entry(block).or_default(), taken);
            }
            w.pc += 1;
            *stop = None;
            any = true;
        }
        any
    }

    /// Lets go on who stands at a named barrier to which all have come.
    pub fn wake_named(
        &mut self,
        warps: &mut [Warp],
        stops: &mut [Option<Stop>],
    ) -> std::result::Result<bool, SimError> {
        let here: Vec<Stop> =
            stops.iter().flatten().filter(|s| matches!(s, Stop::Named(..))).copied().collect();
        for stop in &here {
            let Stop::Named(id, threads) = *stop else { continue };
            let of = |s: &Option<Stop>| matches!(s, Some(Stop::Named(i, _)) if *i == id);
            let there = |w: &Warp| of(&stops[w.index]);
            let count = stops.iter().filter(|s| of(s)).count() as u32;
            if 32 * count > threads || stops.iter().any(|s| of(s) && *s != Some(*stop)) {
                let message = format!("{} threads come to barrier {id}, for {threads}", 32 * count);
                let w = warps.iter().find(|w| there(w)).unwrap_or(&warps[0]);
                return Err(self.error(w, Fail::new(Kind::DivergentBarrier, 0, message)));
            }
            if 32 * count < threads {
                continue;
            }
            self.clock += 1;
            self.meet(warps, &there);
            for (w, s) in warps.iter_mut().zip(stops.iter_mut()).filter(|(_, s)| of(s)) {
                w.start = self.clock;
                w.pc += 1;
                *s = None;
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// The warps know of each other's accesses up to now, and what any of them knew.
    pub fn meet(&self, warps: &mut [Warp], who: &dyn Fn(&Warp) -> bool) {
        let entries = warps.first().map_or(0, |w| w.seen.len());
        let mut all = vec![0; entries];
        for w in warps.iter().filter(|w| who(w)) {
            for (a, s) in all.iter_mut().zip(&w.seen) {
                *a = (*a).max(*s);
            }
            if let Some(a) = all.get_mut(w.index) {
                *a = self.clock;
            }
        }
        for w in warps.iter_mut().filter(|w| who(w)) {
            w.seen.clone_from(&all);
        }
    }

    /// What must not be left when all warps have ended.
    pub fn ended(&mut self, warps: &[Warp]) -> std::result::Result<(), SimError> {
        if let Some(e) = self.deferred.take() {
            return Err(e);
        }
        let unfinished = warps.iter().find(|w| !w.products.open.is_empty() || !w.products.groups.is_empty());
        if let Some(w) = unfinished {
            let message = "this warp ends with matrix products that it has not waited for";
            return Err(self.error(w, Fail::new(Kind::Uninitialised, 0, message)));
        }
        if let Some(w) = warps.iter().find(|w| !w.stores.is_empty()) {
            let message = "this warp ends with stores of boxes that may still read shared memory";
            return Err(self.error(w, Fail::new(Kind::Race, 0, message)));
        }
        match self.engine.copies.is_empty() {
            true => Ok(()),
            false => {
                let message = "the block ends with copies to its shared memory under way";
                Err(self.error(&warps[0], Fail::new(Kind::Race, 0, message)))
            }
        }
    }

    /// The clock of a warp's last fence before the engine reads what it stored.
    pub fn fence_of(&self, warp: usize) -> u32 {
        self.engine.fences.get(&warp).copied().unwrap_or(0)
    }

    /// args: shared address, barrier, coordinates.
    fn copy_box(&mut self, w: &Warp, param: u32, args: &[Reg]) -> Result<()> {
        for i in lanes(w.mask) {
            let copy = self.boxed(w, i, param, args)?;
            self.known_barrier(w, i, copy.barrier)?;
            if self.checks {
                let order = self.shared_order(w, i);
                for (byte, _) in &copy.chunks {
                    let noted = self.shared.note_copy(*byte as usize, 16, &order);
                    noted.map_err(|f| self.shared_fail(Space::Global(0), *byte as usize, i, true, f))?;
                }
            }
            self.counters.global_read += copy.bytes as u64;
            self.engine.copies.push(copy);
        }
        Ok(())
    }

    /// What a lane's copy of a box carries.
    pub(super) fn boxed(&mut self, w: &Warp, lane: usize, param: u32, args: &[Reg]) -> Result<Copy> {
        let Some(map) = self.launch.maps[param as usize] else {
            return Err(Fail::new(Kind::Malformed, 0, "a copy of boxes without a tensor map"));
        };
        let [to, barrier] = [args[0], args[1]].map(|r| place(w.regs.get::<u32>(r)[lane]));
        let at: Vec<i64> = args[2..].iter().map(|&r| w.regs.get::<i32>(r)[lane] as i64).collect();
        let align = if map.swizzle == Swizzle::None { 128 } else { 8 * map.swizzle.width() };
        if !to.is_multiple_of(align) || at[0] * map.dtype.bits() as i64 / 8 % 16 != 0 {
            let message = format!(
                "a box at {at:?} to byte {to} of shared memory, which is to be a multiple of {align}"
            );
            return Err(Fail::new(Kind::Misaligned, lane, message));
        }
        if (to + map.bytes()) as usize > self.shared.data.len() {
            let message = format!("a box of {} bytes to byte {to} of shared memory", map.bytes());
            return Err(Fail::new(Kind::OutOfBounds, lane, message));
        }
        let chunks = self.read_box(w, lane, param, map, to, &at)?;
        Ok(Copy { barrier, bytes: map.bytes(), chunks, pc: w.pc })
    }

    /// The 16-byte chunks of a box, each with where it goes.
    fn read_box(
        &self,
        w: &Warp,
        lane: usize,
        param: u32,
        map: &TensorMap,
        to: u32,
        at: &[i64],
    ) -> Result<Vec<(u32, [u8; 16])>> {
        let buffer = self.launch.globals[param as usize].buffer;
        let size = map.dtype.bits() as usize / 8;
        let each = 16 / size;
        let inner = map.extent[0] as usize / each;
        let lines = super::boxes::lines(map, at);
        let mut chunks = Vec::with_capacity(inner * lines.len());
        for (row, line) in (0..).zip(lines) {
            for c in 0..inner {
                let first = at[0] + (c * each) as i64;
                let mut data = [0; 16];
                for (e, bytes) in data.chunks_mut(size).enumerate() {
                    let x = first + e as i64;
                    let Some(from) = line.filter(|_| (0..map.dims[0]).contains(&x)) else { continue };
                    let byte = (from + x * size as i64) as usize;
                    if self.checks && buffer.is_checked() {
                        let noted = buffer.note_read(byte, size, 3, &self.global_order(w, lane));
                        noted.map_err(|f| self.global_fail(Space::Global(param as u16), lane, false, f))?;
                    }
                    for (j, b) in bytes.iter_mut().enumerate() {
                        *b = buffer.word8(byte + j).load(Relaxed);
                    }
                }
                let plain = to + (row * map.extent[0]) * size as u32 + 16 * c as u32;
                chunks.push((map.swizzle.place(plain), data));
            }
        }
        Ok(chunks)
    }

    /// Lets the copy that was issued last land. False if none is under way.
    pub fn land_one(&mut self) -> bool {
        let Some(copy) = self.engine.copies.pop() else { return false };
        for (byte, data) in &copy.chunks {
            self.shared.land(*byte as usize, data, self.clock, copy.pc as u32);
        }
        self.landed(copy.barrier, copy.bytes);
        true
    }

    /// Bytes that a copy wrote are counted on its barrier.
    pub(super) fn landed(&mut self, barrier: u32, bytes: u32) {
        self.clock += 1;
        if let Some(b) = self.engine.barriers.get_mut(&barrier) {
            b.bytes -= bytes as i64;
            if let Some(engine) = b.given.last_mut() {
                *engine = self.clock;
            }
            b.advance();
        }
    }

    fn product(
        &mut self,
        w: &mut Warp,
        dtypes: [DType; 2],
        n: u32,
        trans: [bool; 2],
        outs: &[Out],
        args: &[Reg],
    ) -> Result<()> {
        w.whole("a matrix instruction of a warpgroup")?;
        if !self.threads().is_multiple_of(128) {
            return Err(Fail::new(Kind::PartialWarp, 0, "a matrix instruction needs whole warpgroups"));
        }
        if !w.products.fenced {
            let message = "no fence between the accumulators' last use and this matrix instruction";
            return Err(Fail::new(Kind::Race, 0, message));
        }
        let what = "a descriptor of a matrix";
        let (a, rest) = match args {
            [a, rest @ ..] if rest.len() == 2 => (Source::Descriptor(uniform::<u64>(w, *a, what)?), rest),
            _ => (Source::Values(fragment(w, dtypes[0], &args[..4])), &args[4..]),
        };
        let b = uniform::<u64>(w, rest[0], what)?;
        let scale = uniform::<u32>(w, rest[1], "the scale of an accumulator")? != 0;
        for elem in outs.iter().filter_map(|o| o.elem) {
            if scale && w.valid[elem as usize] != w.mask && !w.products.pending(elem) {
                let message = "this thread's accumulator has an element that it has not set";
                return Err(Fail::new(Kind::Uninitialised, 0, message));
            }
            w.valid[elem as usize] = 0;
        }
        let p = Product { dtypes, n, trans, a, b, scale, outs: outs.to_vec() };
        self.read_operands(w, &p)?;
        w.products.open.push(p);
        Ok(())
    }

    /// Completes groups of products until at most `left` are under way.
    fn retire(&mut self, w: &mut Warp, left: usize) -> Result<()> {
        w.whole("a wait for matrix instructions")?;
        while w.products.groups.len() > left {
            let Some(group) = w.products.groups.pop_front() else { break };
            for p in group {
                let (a, b) = self.read_operands(w, &p)?;
                accumulate(w, &p, &a, &b);
                for elem in p.outs.iter().filter_map(|o| o.elem) {
                    if !w.products.pending(elem) {
                        w.valid[elem as usize] = w.mask;
                    }
                }
            }
        }
        w.products.fenced = false;
        self.clock += 1;
        w.start = self.clock;
        Ok(())
    }

    /// This warp's 16 rows of A and all n of B, 32 bytes of each, as f64.
    fn read_operands(&mut self, w: &Warp, p: &Product) -> Result<(Vec<f64>, Vec<f64>)> {
        let first = w.index as u32 % 4 * 16;
        let a = match &p.a {
            Source::Descriptor(d) => self.read_matrix(w, *d, p.trans[0], p.dtypes[0], first, 16)?,
            Source::Values(values) => values.clone(),
        };
        let b = self.read_matrix(w, p.b, p.trans[1], p.dtypes[1], 0, p.n)?;
        Ok((a, b))
    }

    /// Rows of 32 bytes of K. Pieces that lie together are read at once.
    fn read_matrix(
        &mut self,
        w: &Warp,
        descriptor: u64,
        trans: bool,
        dtype: DType,
        first: u32,
        rows: u32,
    ) -> Result<Vec<f64>> {
        let layout = Layout::of(descriptor, trans)?;
        let size = dtype.bits() as usize / 8;
        let (terms, each) = (32 / size, 16 / size);
        let mut out = vec![0.0; rows as usize * terms];
        // The elements of a chunk: neighbours along K, or (of 16 bits) along M or N where the operand is transposed.
        for piece in 0..rows * 2 {
            let (r, k) =
                if trans { (piece / 16 * 8, piece % 16) } else { (piece / 2, piece % 2 * each as u32) };
            let byte = layout.place(first + r, k, size as u32) as usize;
            if byte + 16 > self.shared.data.len() {
                let message =
                    format!("a matrix at byte {byte} of shared memory, which has {}", self.shared.data.len());
                return Err(Fail::new(Kind::OutOfBounds, 0, message));
            }
            if self.checks {
                self.read_shared(w, Space::Global(0), 0, byte, 16, 3)?;
                let since = |warp: usize| self.fence_of(warp);
                if self.shared.written_since(byte, 16, &since).is_some() {
                    return Err(unfenced(self.shared_name(byte)));
                }
            }
            let words: [u8; 16] = self.shared.get(byte);
            for (i, bytes) in words.chunks(size).enumerate() {
                let bits = bytes.iter().rev().fold(0, |bits, &b| bits << 8 | b as u32);
                let (r, k) = if trans { (r as usize + i, k as usize) } else { (r as usize, k as usize + i) };
                out[r * terms + k] = operand_value(dtype, bits);
            }
        }
        Ok(out)
    }
}

/// A matrix in shared memory as a descriptor says it.
struct Layout {
    start: u32,
    leading: u32,
    stride: u32,
    swizzle: Swizzle,
    trans: bool,
}

impl Layout {
    fn of(descriptor: u64, trans: bool) -> Result<Layout> {
        let field = |at: u32| (descriptor >> at) as u32 & 0x3fff;
        let swizzle = match descriptor >> 62 {
            0 => Swizzle::None,
            1 => Swizzle::B128,
            2 => Swizzle::B64,
            _ => Swizzle::B32,
        };
        if descriptor >> 49 & 7 != 0 || (trans && swizzle != Swizzle::B128) {
            let message = format!("a descriptor {descriptor:#x} of a layout that is not modelled");
            return Err(Fail::new(Kind::Malformed, 0, message));
        }
        let (start, leading, stride) = (field(0) << 4, field(16) << 4, field(32) << 4);
        Ok(Layout { start, leading, stride, swizzle, trans })
    }

    /// The byte of element (row, k) of `size` bytes: `row` along M or N.
    fn place(&self, row: u32, k: u32, size: u32) -> u32 {
        let plain = if self.trans {
            // Atoms of 64 rows × 8 k, 128 bytes for each k.
            row / 64 * self.leading + k / 8 * self.stride + k % 8 * 128 + row % 64 * 2
        } else if self.swizzle == Swizzle::None {
            // Core matrices of 8 rows × 16 bytes.
            let byte = k * size;
            row / 8 * self.stride + byte / 16 * self.leading + row % 8 * 16 + byte % 16
        } else {
            row / 8 * self.stride + row % 8 * self.swizzle.width() + k * size
        };
        self.swizzle.place(self.start + plain)
    }
}

/// A warp's 16 × 16 elements of A from four registers a lane.
fn fragment(w: &Warp, dtype: DType, regs: &[Reg]) -> Vec<f64> {
    let mut out = vec![0.0; 256];
    for (i, &r) in regs.iter().enumerate() {
        let words = w.regs.get::<u32>(r);
        for lane in 0..LANES {
            for half in 0..2 {
                let (row, k) = (lane / 4 + 8 * (i % 2), 2 * (lane % 4) + 8 * (i / 2) + half);
                let bits = words[lane] >> (16 * half) & 0xffff;
                out[row * 16 + k] = f32::from_bits(codec::decode(dtype, bits)) as f64;
            }
        }
    }
    out
}

/// An element as tensor cores take it: of an f32 the bits that tf32 has.
fn operand_value(dtype: DType, bits: u32) -> f64 {
    match dtype {
        DType::F32 => f32::from_bits(bits & 0xffff_e000) as f64,
        DType::I8 | DType::U8 => codec::decode(dtype, bits) as i32 as f64,
        _ => f32::from_bits(codec::decode(dtype, bits)) as f64,
    }
}

/// Products are exact; one instruction's products and its accumulator are summed in f64 and rounded once to f32, or
/// wrapped to i32.
fn accumulate(w: &mut Warp, p: &Product, a: &[f64], b: &[f64]) {
    let terms = 256 / p.dtypes[0].bits() as usize;
    let integer = matches!(p.dtypes[0], DType::I8 | DType::U8);
    for lane in 0..LANES {
        for (i, out) in p.outs.iter().enumerate() {
            let row = lane / 4 + 8 * (i / 2 % 2);
            let col = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
            let (a, b) = (&a[row * terms..][..terms], &b[col * terms..][..terms]);
            let sum = |from: f64| a.iter().zip(b).fold(from, |sum, (x, y)| sum + x * y);
            if integer {
                let d = &mut w.regs.get_mut::<i32>(out.reg)[lane];
                *d = sum(if p.scale { *d as f64 } else { 0.0 }) as i64 as i32;
            } else {
                let d = &mut w.regs.get_mut::<f32>(out.reg)[lane];
                *d = sum(if p.scale { *d as f64 } else { 0.0 }) as f32;
            }
        }
    }
}

/// A value that all active lanes agree on.
fn uniform<T: super::lanes::Lane + PartialEq>(w: &Warp, r: Reg, what: &str) -> Result<T> {
    let values = w.regs.get::<T>(r);
    let first = values[w.mask.trailing_zeros() as usize % LANES];
    match lanes(w.mask).find(|&i| values[i] != first) {
        None => Ok(first),
        Some(i) => Err(Fail::new(Kind::PartialWarp, i, format!("{what} differs between threads"))),
    }
}
