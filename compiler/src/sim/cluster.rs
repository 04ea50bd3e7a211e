//! Blocks of a cluster: they run side by side, in turns, and store to each other's shared memory.
//!
//! - A block runs until all its warps wait; then the next. When none can go on, the cluster's barrier opens if all
//!   threads stand at it; else one store or copy lands (as late as it may be).
//! - A store to another block is checked when it lands: the barrier that counts it was initialised before a barrier
//!   of the cluster that the storing thread had passed, and no thread of the receiving block touches the bytes after
//!   that barrier without having waited for the count.
//! - A copy to several blocks is checked in each as if its issuing thread were of that block: it knows what arrivals at
//!   its own block's mbarriers told it of the other's accesses, and what the cluster's barrier ordered.

use super::block::Block;
use super::code::Space;
use super::engine::{Copy, merge};
use super::lanes::{Reg, lanes};
use super::report::{Fail, Kind, SimError};
use super::shared::Order;
use super::warp::{Stop, Warp};

/// The number of a thread of another block: none of this one's.
const FOREIGN: u16 = 0x3ffe;

/// The bits of a shared address that are its place in a block's memory; in a cluster the block's number stands above them.
pub const WINDOW: u32 = 24;

/// The place of a shared address in the block's memory.
pub fn place(address: u32) -> u32 {
    address & ((1 << WINDOW) - 1)
}

type Result<T> = std::result::Result<T, Fail>;

/// What a block knows of its cluster.
#[derive(Default)]
pub struct State {
    /// The block's clock at each barrier of the cluster that it has passed.
    passed: Vec<u32>,
    /// For each warp: at how many barriers of the cluster it has arrived.
    arrived: Vec<u32>,
    /// Stores on their way to other blocks.
    sent: Vec<Remote>,
    /// Stores on their way to this one.
    coming: Vec<Remote>,
    /// Copies and arrivals for other blocks.
    casts: Vec<Cast>,
    arrivals: Vec<Arrival>,
}

impl State {
    /// Barriers of the cluster that the block has passed.
    pub fn epoch(&self) -> u32 {
        self.passed.len() as u32
    }
}

/// A copy that goes to another block too.
struct Cast {
    block: u32,
    copy: Copy,
    /// What its issuing warp knows of the other block.
    known: Vec<u32>,
    epoch: u32,
}

struct Arrival {
    block: u32,
    from: u32,
    barrier: u32,
    given: Vec<u32>,
    epoch: u32,
    pc: usize,
}

struct Remote {
    block: u32,
    at: u32,
    barrier: u32,
    data: Vec<u8>,
    epoch: u32,
    pc: usize,
}

impl Block<'_> {
    /// The block's number in its cluster.
    pub fn rank(&self) -> u32 {
        (self.linear % self.launch.cluster as u64) as u32
    }

    /// args: shared address, barrier, coordinates; `others`: a bit for each block.
    pub fn multicast(&mut self, w: &Warp, param: u32, args: &[Reg], others: u32) -> Result<()> {
        for i in lanes(w.mask) {
            for block in (0..32).filter(|b| others >> b & 1 != 0) {
                self.is_member(block, i)?;
                let copy = self.boxed(w, i, param, args)?;
                let known = w.peers.get(&block).cloned().unwrap_or_default();
                let epoch = self.engine.cluster.epoch();
                self.engine.cluster.casts.push(Cast { block, copy, known, epoch });
            }
        }
        Ok(())
    }

    /// args: address, block of the cluster.
    pub fn arrive_at(&mut self, w: &Warp, args: &[Reg]) -> Result<()> {
        let (given, from, epoch) = (self.given(w), self.rank(), self.engine.cluster.epoch());
        for i in lanes(w.mask) {
            let (barrier, block) = (place(w.regs.get::<u32>(args[0])[i]), w.regs.get::<u32>(args[1])[i]);
            self.is_member(block, i)?;
            if block == from {
                self.arrive_here(w, i, barrier, 0, &given)?;
                continue;
            }
            let arrival = Arrival { block, from, barrier, given: given.clone(), epoch, pc: w.pc };
            self.engine.cluster.arrivals.push(arrival);
        }
        Ok(())
    }

    fn is_member(&self, block: u32, lane: usize) -> Result<()> {
        if block < self.launch.cluster {
            return Ok(());
        }
        let message = format!("block {block} of a cluster of {}", self.launch.cluster);
        Err(Fail::new(Kind::OutOfBounds, lane, message))
    }

    /// Whether another block may use this barrier, which it knows since a barrier of the cluster.
    fn is_known(&self, barrier: u32, epoch: u32) -> Result<()> {
        if self.engine.barriers.get(&barrier).is_some_and(|b| b.epoch < epoch) {
            return Ok(());
        }
        let message = format!(
            "byte {barrier} of another block is no barrier whose initialisation the cluster has waited for"
        );
        Err(Fail::new(Kind::Uninitialised, 0, message))
    }

    /// A copy from another block begins.
    fn receive(&mut self, cast: Cast) -> Result<()> {
        self.is_known(cast.copy.barrier, cast.epoch)?;
        if self.checks {
            let passed = self.engine.cluster.passed[cast.epoch as usize - 1];
            let warps = self.threads().div_ceil(32);
            let mut seen = vec![passed; warps + 1];
            merge(&mut seen, &cast.known);
            let (pc, clock) = (cast.copy.pc as u32, self.clock);
            let order = Order { thread: FOREIGN, pc, clock, block_start: 0, warp_start: 0, seen: &seen };
            for (byte, _) in &cast.copy.chunks {
                let noted = self.shared.note_copy(*byte as usize, 16, &order);
                noted.map_err(|f| self.shared_fail(Space::Global(0), *byte as usize, 0, true, f))?;
            }
        }
        self.engine.copies.push(cast.copy);
        Ok(())
    }

    fn receive_arrival(&mut self, a: &Arrival) -> Result<()> {
        self.is_known(a.barrier, a.epoch)?;
        let Some(b) = self.engine.barriers.get_mut(&a.barrier) else { return Ok(()) };
        if b.pending == 0 {
            let message =
                format!("more than {} arrivals in one phase of the barrier at byte {}", b.count, a.barrier);
            return Err(Fail::new(Kind::Race, 0, message));
        }
        merge(b.peers_given.entry(a.from).or_default(), &a.given);
        b.pending -= 1;
        b.advance();
        Ok(())
    }

    pub fn arrive_cluster(&mut self, w: &mut Warp) -> Result<()> {
        w.whole("an arrival at the cluster's barrier")?;
        let arrived = &mut self.engine.cluster.arrived;
        arrived.resize(arrived.len().max(w.index + 1), 0);
        arrived[w.index] += 1;
        match arrived[w.index] == self.engine.cluster.epoch() + 1 {
            true => Ok(()),
            false => Err(Fail::new(Kind::DivergentBarrier, 0, "a second arrival at the cluster's barrier")),
        }
    }

    pub fn wait_cluster(&mut self, w: &mut Warp) -> Result<Stop> {
        w.whole("a wait at the cluster's barrier")?;
        match self.engine.cluster.arrived.get(w.index) == Some(&(self.engine.cluster.epoch() + 1)) {
            true => Ok(Stop::Cluster),
            false => {
                let message = "a wait at the cluster's barrier without an arrival";
                Err(Fail::new(Kind::DivergentBarrier, 0, message))
            }
        }
    }

    /// args: address, barrier, block of the cluster, value.
    pub fn store_async(&mut self, w: &Warp, wide: bool, args: &[Reg]) -> Result<()> {
        let bytes = if wide { 8 } else { 4 };
        for i in lanes(w.mask) {
            let word = |r: Reg| w.regs.get::<u32>(r)[i];
            let (at, barrier, block) = (place(word(args[0])), place(word(args[1])), word(args[2]));
            self.is_member(block, i)?;
            if !at.is_multiple_of(bytes) || (at + bytes) as usize > self.shared.data.len() {
                let message = format!("a store of {bytes} bytes at byte {at} of shared memory");
                return Err(Fail::new(Kind::OutOfBounds, i, message));
            }
            let data = match wide {
                true => w.regs.get::<u64>(args[3])[i].to_le_bytes().to_vec(),
                false => word(args[3]).to_le_bytes().to_vec(),
            };
            let epoch = self.engine.cluster.epoch();
            self.engine.cluster.sent.push(Remote { block, at, barrier, data, epoch, pc: w.pc });
        }
        Ok(())
    }

    /// Lets a store to this block land. `None`: there is none.
    fn land_remote(&mut self, ended: bool, w: &Warp) -> Option<std::result::Result<(), SimError>> {
        let r = self.engine.cluster.coming.pop()?;
        let fail = |block: &Self, kind, message: String| {
            let mut e = block.error(w, Fail::new(kind, 0, message));
            e.span = block.span_of(r.pc);
            Some(Err(e))
        };
        if ended {
            let message = "a store from another block of the cluster lands where the block has ended";
            return fail(self, Kind::Race, message.into());
        }
        if let Err(f) = self.is_known(r.barrier, r.epoch) {
            let mut e = self.error(w, f);
            e.span = self.span_of(r.pc);
            return Some(Err(e));
        }
        let since = self.engine.cluster.passed[r.epoch as usize - 1];
        if self.checks && self.shared.touched_since(r.at as usize, r.data.len(), since) {
            let message = format!(
                "a store from another block of the cluster to {}, which this block uses at the same time",
                self.shared_name(r.at as usize)
            );
            return fail(self, Kind::Race, message);
        }
        self.shared.land(r.at as usize, &r.data, self.clock, r.pc as u32);
        self.landed(r.barrier, r.data.len() as u32);
        Some(Ok(()))
    }
}

/// A block of a cluster with its warps and what they wait for.
pub struct Member<'a> {
    pub block: Block<'a>,
    warps: Vec<Warp>,
    stops: Vec<Option<Stop>>,
}

impl<'a> Member<'a> {
    pub fn new(block: Block<'a>) -> Member<'a> {
        Member { block, warps: Vec::new(), stops: Vec::new() }
    }

    fn ended(&self) -> bool {
        self.stops.iter().all(|s| *s == Some(Stop::End))
    }

    /// Whether another block may still reach this one.
    fn open(&self) -> Result<()> {
        match self.ended() {
            false => Ok(()),
            true => {
                let message =
                    "a copy or an arrival of another block of the cluster, where the block has ended";
                Err(Fail::new(Kind::Race, 0, message))
            }
        }
    }

    /// An error that another block caused at `pc`.
    fn foreign(&self, fail: Fail, pc: usize) -> SimError {
        let mut e = self.block.error(&self.warps[0], fail);
        e.span = self.block.span_of(pc);
        e
    }

    /// Goes on as far as the block can by itself. False if it cannot.
    fn advance(&mut self) -> std::result::Result<bool, SimError> {
        let ran = self.block.turn(&mut self.warps, &mut self.stops)?;
        let woken = self.block.wake_phases(&mut self.warps, &mut self.stops)
            | self.block.wake_named(&mut self.warps, &mut self.stops)?;
        let own = |s: &Option<Stop>| matches!(s, Some(Stop::Barrier | Stop::End));
        if !woken && self.stops.iter().all(own) && !self.ended() {
            self.block.wake_block(&mut self.warps, &mut self.stops)?;
            return Ok(true);
        }
        Ok(ran || woken)
    }

    fn pass_cluster(&mut self) {
        self.block.clock += 1;
        let clock = self.block.clock;
        self.block.engine.cluster.passed.push(clock);
        for (w, stop) in self.warps.iter_mut().zip(&mut self.stops) {
            w.pc += 1;
            *stop = None;
        }
    }
}

/// Runs the cluster whose first block is `first`. Its blocks are neighbours along x.
pub fn run(members: &mut [Member<'_>], first: u64) -> std::result::Result<(), SimError> {
    for (i, m) in members.iter_mut().enumerate() {
        m.block.begin(first + i as u64, &mut m.warps);
        m.stops = vec![None; m.warps.len()];
    }
    loop {
        let mut moved = false;
        for m in members.iter_mut() {
            moved |= m.advance()?;
        }
        for i in 0..members.len() {
            for r in std::mem::take(&mut members[i].block.engine.cluster.sent) {
                members[r.block as usize].block.engine.cluster.coming.push(r);
            }
        }
        moved |= exchange(members)?;
        if moved || open_barrier(members) || land_one(members)? {
            continue;
        }
        if members.iter().all(Member::ended) {
            return members.iter_mut().try_for_each(|m| m.block.ended(&m.warps));
        }
        return Err(stuck(members));
    }
}

/// Hands copies and arrivals to the blocks that they are for. False if there are none.
fn exchange(members: &mut [Member<'_>]) -> std::result::Result<bool, SimError> {
    let mut any = false;
    for i in 0..members.len() {
        let state = &mut members[i].block.engine.cluster;
        let (casts, arrivals) = (std::mem::take(&mut state.casts), std::mem::take(&mut state.arrivals));
        any |= !casts.is_empty() || !arrivals.is_empty();
        for cast in casts {
            let (m, pc) = (&mut members[cast.block as usize], cast.copy.pc);
            let done = m.open().and_then(|()| m.block.receive(cast));
            done.map_err(|f| m.foreign(f, pc))?;
        }
        for a in arrivals {
            let m = &mut members[a.block as usize];
            let done = m.open().and_then(|()| m.block.receive_arrival(&a));
            done.map_err(|f| m.foreign(f, a.pc))?;
        }
    }
    Ok(any)
}

/// The cluster's barrier opens if all threads stand at it.
fn open_barrier(members: &mut [Member<'_>]) -> bool {
    let all = members.iter().flat_map(|m| &m.stops).all(|s| *s == Some(Stop::Cluster));
    if all {
        members.iter_mut().for_each(Member::pass_cluster);
    }
    all
}

fn land_one(members: &mut [Member<'_>]) -> std::result::Result<bool, SimError> {
    for m in members.iter_mut().rev() {
        let ended = m.ended();
        if let Some(landed) = m.block.land_remote(ended, &m.warps[0]) {
            return landed.map(|()| true);
        }
        if m.block.land_one() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn stuck(members: &mut [Member<'_>]) -> SimError {
    if let Some(e) = members.iter_mut().find_map(|m| m.block.deferred.take()) {
        return e;
    }
    let waits = |s: &Option<Stop>| !matches!(s, Some(Stop::End));
    let found = members.iter().find_map(|m| Some((m, m.stops.iter().position(waits)?)));
    let (m, i) = found.unwrap_or((&members[0], 0));
    let message = match m.stops.get(i) {
        Some(Some(Stop::Cluster)) => {
            "this warp waits at the cluster's barrier, to which others do not come".into()
        }
        Some(stop) => super::block::waits_for(*stop),
        None => "the cluster waits".into(),
    };
    m.block.error(&m.warps[i], Fail::new(Kind::Deadlock, 0, message))
}
