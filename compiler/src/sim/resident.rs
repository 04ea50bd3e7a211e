//! Kernels whose blocks wait for words of other blocks: a few are resident at a time and run in turns, the last ones of
//! the grid first. Hardware may start blocks in any order, so what relies on their numbers is found to be stuck here; who
//! draws a ticket when it starts waits only for blocks that have started.

use super::block::{Block, LaunchCx, waits_for};
use super::code::{Code, Out};
use super::lanes::{Reg, lanes};
use super::report::{Counters, Fail, Kind, SimError};
use super::warp::{Stop, Warp};
use crate::ir::simt::{Intrinsic, ParamId};
use std::sync::atomic::Ordering::Relaxed;

/// Blocks that run side by side.
const RESIDENT: u64 = 5;
/// Set in a place that holds a word.
const THERE: u64 = 1 << 32;

/// The C functions, around their PTX.
pub fn definition(op: Intrinsic) -> String {
    let Intrinsic::AwaitWords { count, .. } = op else {
        return "// Gives a word to other blocks: the flag travels with it, so nothing else has to be ordered.\n\
             __device__ __forceinline__ void publish_word(i64* place, u32 word) {\n    \
             asm volatile(\"st.relaxed.gpu.global.u64 [%0], %1;\" :: \"l\"(place), \"l\"(0x100000000ull | word) : \"memory\");\n}\n"
            .into();
    };
    let params: String = (0..count).map(|i| format!("u32& d{i}, ")).collect();
    let outs: String = (0..count).map(|i| format!("    d{i} = u32(x[{i}]);\n")).collect();
    format!(
        "// Waits until the first `wanted` of {count} words are there.\n\
         __device__ __forceinline__ void await_words_{count}({params}const i64* place, int wanted) {{\n    \
         unsigned long long x[{count}];\n    bool all;\n    do {{\n        all = true;\n        \
         #pragma unroll\n        for (int i = 0; i < {count}; ++i) {{\n            \
         asm volatile(\"{{ .reg .pred p; setp.lt.s32 p, %3, %2; mov.u64 %0, 0x100000000; \
         @p ld.relaxed.gpu.global.u64 %0, [%1]; }}\" : \"=&l\"(x[i]) : \"l\"(place + i), \"r\"(wanted), \"r\"(i) : \"memory\");\n        }}\n        \
         #pragma unroll\n        for (int i = 0; i < {count}; ++i) all = all && x[i] >> 32 != 0;\n    \
         }} while (!all);\n{outs}}}\n"
    )
}

impl Block<'_> {
    /// args: index, word.
    pub fn publish_word(&mut self, w: &Warp, mem: ParamId, args: &[Reg]) -> Result<(), Fail> {
        for i in lanes(w.mask) {
            let byte = self.place_of_words(w, mem, args[0], i, 1)?;
            let word = w.regs.get::<u32>(args[1])[i];
            let buffer = self.launch.globals[mem.0 as usize].buffer;
            let before = buffer.word64(byte).swap(THERE | word as u64, Relaxed);
            if before & THERE != 0 {
                return Err(Fail::new(Kind::Race, i, "a word that is published twice"));
            }
        }
        Ok(())
    }

    /// args: index of the first, how many are wanted. False if one is not there.
    pub fn await_words(
        &mut self,
        w: &mut Warp,
        mem: ParamId,
        outs: &[Out],
        args: &[Reg],
    ) -> Result<bool, Fail> {
        let mut found = vec![[0u32; super::lanes::LANES]; outs.len()];
        for i in lanes(w.mask) {
            let wanted = w.regs.get::<i32>(args[1])[i].clamp(0, outs.len() as i32) as usize;
            if wanted == 0 {
                continue;
            }
            let byte = self.place_of_words(w, mem, args[0], i, wanted)?;
            let buffer = self.launch.globals[mem.0 as usize].buffer;
            for (j, words) in found.iter_mut().enumerate().take(wanted) {
                let value = buffer.word64(byte + 8 * j).load(Relaxed);
                if value & THERE == 0 {
                    return Ok(false);
                }
                words[i] = value as u32;
            }
        }
        for (out, words) in outs.iter().zip(&found) {
            let to = w.regs.get_mut::<u32>(out.reg);
            lanes(w.mask).for_each(|i| to[i] = words[i]);
        }
        Ok(true)
    }

    fn place_of_words(
        &self,
        w: &Warp,
        mem: ParamId,
        index: Reg,
        lane: usize,
        count: usize,
    ) -> Result<usize, Fail> {
        let global = &self.launch.globals[mem.0 as usize];
        let at = w.regs.get::<i64>(index)[lane];
        if at < 0 || at + count as i64 > global.len {
            let message = format!("{count} words at index {at} of {}, which has {}", global.name, global.len);
            return Err(Fail::new(Kind::OutOfBounds, lane, message));
        }
        let noted = if self.checks { global.buffer.note_atomic(8 * at as usize, 8 * count) } else { Ok(()) };
        noted.map_err(|f| self.global_fail(super::code::Space::Global(mem.0 as u16), lane, true, f))?;
        Ok(8 * at as usize)
    }
}

/// A block that runs, with its warps and what they wait for.
struct Resident<'a> {
    block: Block<'a>,
    warps: Vec<Warp>,
    stops: Vec<Option<Stop>>,
    busy: bool,
}

impl Resident<'_> {
    fn begin(&mut self, linear: u64) {
        self.block.begin(linear, &mut self.warps);
        self.stops = vec![None; self.warps.len()];
        self.busy = true;
    }

    /// Goes on as far as it can. False if nothing changed.
    fn advance(&mut self) -> Result<bool, SimError> {
        let asks: Vec<Option<usize>> = (self.warps.iter().zip(&mut self.stops))
            .map(|(w, stop)| (*stop == Some(Stop::Words)).then(|| stop.take()).map(|_| w.pc))
            .collect();
        let others = self.stops.iter().zip(&asks).any(|(s, asks)| s.is_none() && asks.is_none());
        self.block.turn(&mut self.warps, &mut self.stops)?;
        let still = |(i, asks): (usize, &Option<usize>)| {
            asks.is_some_and(|pc| self.stops[i] != Some(Stop::Words) || self.warps[i].pc != pc)
        };
        let answered = asks.iter().enumerate().any(still);
        if self.stops.contains(&Some(Stop::Words)) {
            let woken = self.block.wake_phases(&mut self.warps, &mut self.stops)
                | self.block.wake_named(&mut self.warps, &mut self.stops)?;
            return Ok(others || answered || woken || self.block.land_one());
        }
        if !self.block.wake(&mut self.warps, &mut self.stops)? {
            self.busy = false;
            self.block.ended(&self.warps)?;
        }
        Ok(true)
    }

    fn stuck(&self) -> SimError {
        let at = self.stops.iter().position(|s| *s == Some(Stop::Words)).unwrap_or(0);
        let message = waits_for(self.stops.get(at).copied().flatten());
        self.block.error(&self.warps[at], Fail::new(Kind::Deadlock, 0, message))
    }
}

/// Runs all blocks of the grid.
pub fn run(code: &Code, cx: &LaunchCx, checks: bool) -> Result<Counters, SimError> {
    let blocks = cx.fences.len() as u64;
    let mut left = blocks;
    let mut all: Vec<Resident> = (0..RESIDENT.min(blocks))
        .map(|_| Resident {
            block: Block::new(code, cx, checks),
            warps: Vec::new(),
            stops: Vec::new(),
            busy: false,
        })
        .collect();
    loop {
        for r in all.iter_mut().filter(|r| !r.busy) {
            if left > 0 {
                left -= 1;
                r.begin(left);
            }
        }
        let mut moved = false;
        for r in all.iter_mut().filter(|r| r.busy) {
            moved |= r.advance()?;
        }
        match all.iter().find(|r| r.busy) {
            None if left == 0 => break,
            Some(r) if !moved => return Err(r.stuck()),
            _ => {}
        }
    }
    let mut sum = Counters::new(code.ops.len());
    all.iter().for_each(|r| sum.add(&r.block.counters));
    Ok(sum)
}
