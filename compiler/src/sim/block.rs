//! One thread block: its warps take turns, each runs until it waits at a barrier or ends.

use super::code::Code;
use super::engine::Engine;
use super::lanes::{FULL, Row};
use super::memory::Buffer;
use super::report::{Counters, Fail, FailInfo, Kind, SimError};
use super::shared::Shared;
use super::warp::{Stop, Warp};
use crate::ir::simt::{Special, TensorMap};
use girih_dsl::ast::Span;
use std::sync::atomic::AtomicU32;

/// A pointer argument.
pub struct Global<'a> {
    pub name: String,
    pub buffer: &'a Buffer,
    /// Elements of the parameter's dtype.
    pub len: i64,
    /// Bits of an element.
    pub bits: u32,
}

/// What the blocks of a launch share.
pub struct LaunchCx<'a> {
    pub kernel: &'a str,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Blocks of a cluster, neighbours along x.
    pub cluster: u32,
    pub tag: u64,
    /// One for each parameter; scalars have an entry without a buffer's use.
    pub globals: Vec<Global<'a>>,
    /// Bits of the scalar parameters.
    pub scalars: Vec<u64>,
    /// The tensor maps among the parameters.
    pub maps: Vec<Option<&'a TensorMap>>,
    /// For each block: the clock of its last fence.
    pub fences: Vec<AtomicU32>,
    pub loop_limit: u64,
}

/// One block as it runs; reused for the next.
pub struct Block<'a> {
    pub code: &'a Code,
    pub launch: &'a LaunchCx<'a>,
    pub shared: Shared,
    pub linear: u64,
    /// Advances at barriers and fences.
    pub clock: u32,
    pub block_start: u32,
    pub acquired: bool,
    pub checks: bool,
    pub counters: Counters,
    /// A read of uninitialised shared memory in this interval.
    pub deferred: Option<SimError>,
    pub engine: Engine,
    coordinates: [u32; 3],
}

pub fn waits_for(stop: Option<Stop>) -> String {
    match stop {
        Some(Stop::Phase(at, parity)) => {
            format!(
                "this warp waits for the phase of parity {parity} of the barrier at byte {at}, which nothing completes"
            )
        }
        Some(Stop::Named(id, threads)) => {
            format!("this warp waits at barrier {id} for {threads} threads, and the others do not come")
        }
        Some(Stop::Words) => "this warp waits for words that no block that runs will publish".into(),
        _ => "this warp waits".into(),
    }
}

impl<'a> Block<'a> {
    pub fn new(code: &'a Code, launch: &'a LaunchCx<'a>, checks: bool) -> Block<'a> {
        let warps = launch.block.iter().product::<u32>().div_ceil(32) as usize;
        let apart = if code.ordered_apart { warps } else { 0 };
        Block {
            code,
            launch,
            shared: Shared::new(code.shared_bytes, code.shared_granule, apart),
            linear: 0,
            clock: 1,
            block_start: 1,
            acquired: false,
            checks,
            counters: Counters::new(code.ops.len()),
            deferred: None,
            engine: Engine::default(),
            coordinates: [0; 3],
        }
    }

    pub fn threads(&self) -> usize {
        self.launch.block.iter().product::<u32>() as usize
    }

    /// Block `linear` of the grid with its warps, at the kernel's start.
    pub fn begin(&mut self, linear: u64, warps: &mut Vec<Warp>) {
        self.start(linear);
        warps.resize_with(self.threads().div_ceil(32), || Warp::new(self.code));
        for (i, w) in warps.iter_mut().enumerate() {
            self.start_warp(w, i);
        }
    }

    /// Lets each warp run that waits for nothing. False if all wait.
    pub fn turn(&mut self, warps: &mut [Warp], stops: &mut [Option<Stop>]) -> Result<bool, SimError> {
        let mut ran = false;
        for (w, stop) in warps.iter_mut().zip(stops) {
            if stop.is_none() {
                ran = true;
                *stop = Some(self.run_warp(w).map_err(|fail| self.explained(w, fail))?);
            }
        }
        Ok(ran)
    }

    /// Runs block `linear` of the grid.
    pub fn run(&mut self, linear: u64, warps: &mut Vec<Warp>) -> Result<(), SimError> {
        self.begin(linear, warps);
        let mut stops: Vec<Option<Stop>> = vec![None; warps.len()];
        loop {
            self.turn(warps, &mut stops)?;
            if !self.code.ordered_apart
                && let Some(e) = self.deferred.take()
            {
                return Err(e);
            }
            if !self.wake(warps, &mut stops)? {
                return self.ended(warps);
            }
        }
    }

    /// What follows a read of nonsense is told only where it explains the read.
    fn explained(&mut self, w: &Warp, fail: Fail) -> SimError {
        let e = self.error(w, fail);
        self.deferred.take().filter(|_| e.kind != Kind::Race).unwrap_or(e)
    }

    /// Lets those go on that wait for nothing any more. False if all warps have ended.
    pub fn wake(&mut self, warps: &mut [Warp], stops: &mut [Option<Stop>]) -> Result<bool, SimError> {
        if stops.iter().all(|s| *s == Some(Stop::End)) {
            return Ok(false);
        }
        loop {
            if self.wake_phases(warps, stops) | self.wake_named(warps, stops)? {
                return Ok(true);
            }
            // Copies land as late as they may.
            if !self.land_one() {
                break;
            }
        }
        if let Some(e) = self.deferred.take() {
            return Err(e);
        }
        self.wake_block(warps, stops).map(|()| true)
    }

    pub fn wake_block(&mut self, warps: &mut [Warp], stops: &mut [Option<Stop>]) -> Result<(), SimError> {
        let mut waiting = None;
        let mut ended = None;
        for (w, stop) in warps.iter().zip(stops.iter()) {
            match stop {
                Some(Stop::Barrier) => self.same_barrier(&mut waiting, w).map_err(|f| self.error(w, f))?,
                Some(Stop::End) => ended = Some(w.index),
                _ => {}
            }
        }
        if let Some((w, stop)) =
            warps.iter().zip(stops.iter()).find(|(_, s)| !matches!(s, Some(Stop::Barrier | Stop::End)))
        {
            return Err(self.error(w, Fail::new(Kind::Deadlock, 0, waits_for(*stop))));
        }
        let Some((pc, _)) = waiting else { return Ok(()) };
        if let Some(ended) = ended {
            return Err(self.left_waiting(pc, ended, &warps[0]));
        }
        self.clock += 1;
        self.block_start = self.clock;
        self.meet(warps, &|_| true);
        for (w, stop) in warps.iter_mut().zip(stops) {
            w.start = self.clock;
            w.pc += 1;
            *stop = None;
        }
        Ok(())
    }

    fn start(&mut self, linear: u64) {
        let [x, y, _] = self.launch.grid.map(u64::from);
        self.linear = linear;
        self.coordinates = [(linear % x) as u32, (linear / x % y) as u32, (linear / x / y) as u32];
        self.clock = 1;
        self.block_start = 1;
        self.acquired = false;
        self.deferred = None;
        self.shared.reset();
        self.engine.reset();
    }

    fn start_warp(&self, w: &mut Warp, index: usize) {
        let threads = self.threads() - index * 32;
        let mask = if threads >= 32 { FULL } else { (1 << threads) - 1 };
        w.start_block(index, mask);
        let apart = if self.code.ordered_apart { self.threads().div_ceil(32) + 1 } else { 0 };
        w.seen = vec![1; apart];
        for &(reg, value) in &self.code.consts {
            w.set_constant(reg, value);
        }
        for &(special, reg) in &self.code.specials {
            *w.regs.get_mut::<u32>(reg) = self.special(special, index).0;
        }
        for &(param, reg, ty) in &self.code.scalars {
            w.set_scalar(reg, ty, self.launch.scalars[param]);
        }
    }

    fn special(&self, s: Special, warp: usize) -> Row {
        let [bx, by, _] = self.launch.block;
        Row(std::array::from_fn(|lane| {
            let t = (warp * 32 + lane) as u32;
            match s {
                Special::ThreadX => t % bx,
                Special::ThreadY => t / bx % by,
                Special::ThreadZ => t / bx / by,
                Special::BlockX => self.coordinates[0],
                Special::BlockY => self.coordinates[1],
                Special::BlockZ => self.coordinates[2],
                Special::Lane => lane as u32,
                Special::Warp => warp as u32,
            }
        }))
    }

    /// All warps must wait at one barrier.
    fn same_barrier(&self, waiting: &mut Option<(usize, usize)>, w: &Warp) -> Result<(), Fail> {
        let (pc, other) = *waiting.get_or_insert((w.pc, w.index));
        if pc == w.pc {
            return Ok(());
        }
        let message = format!("warp {} waits here, warp {other} at another barrier", w.index);
        Err(Fail::new(Kind::DivergentBarrier, 0, message).with_other(self.span_of(pc)))
    }

    fn left_waiting(&self, pc: usize, ended: usize, w: &Warp) -> SimError {
        let message = format!("warp {ended} ends without reaching the barrier at which others wait");
        let mut e = self.error(w, Fail::new(Kind::DivergentBarrier, 0, message));
        e.thread = ended as u32 * 32;
        e.span = self.span_of(pc);
        e
    }

    pub fn span_of(&self, pc: usize) -> Option<Span> {
        let span = self.code.span_table[self.code.spans[pc] as usize];
        (span != Span::default()).then_some(span)
    }

    pub fn error(&self, w: &Warp, Fail(info): Fail) -> SimError {
        let FailInfo { kind, lane, message, other } = *info;
        SimError {
            kind,
            kernel: self.launch.kernel.to_string(),
            block: self.coordinates,
            thread: (w.index * 32 + lane) as u32,
            message,
            span: self.span_of(w.pc),
            other,
            fault: None,
        }
    }
}
