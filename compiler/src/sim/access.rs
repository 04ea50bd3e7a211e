//! One warp's access to memory: addresses, checks, transfer, cost.

use super::block::Block;
use super::code::{ArrayRef, Place, Space};
use super::codec;
use super::lanes::{LANES, Reg, lanes};
use super::memory;
use super::report::{Fail, Kind};
use super::shared;
use super::warp::Warp;
use crate::vocab::dtype::{DType, Ty};
use std::sync::atomic::Ordering::Relaxed;

type Result<T> = std::result::Result<T, Fail>;

/// Byte addresses of the lanes' elements: in the buffer, or in the shared window.
pub struct Addresses {
    pub bytes: [usize; LANES],
    /// For 4-bit elements: which nibble.
    pub high: u32,
    /// Bytes that each lane touches.
    pub len: usize,
}

impl Block<'_> {
    /// The addresses of `count` elements from each active lane's index, all in bounds and aligned to their size.
    pub fn addresses(&self, w: &Warp, place: Place, count: u32) -> Result<Addresses> {
        let mut indices = [0i64; LANES];
        if place.wide {
            indices = *w.regs.get::<i64>(place.index);
        } else {
            let narrow = w.regs.get::<i32>(place.index);
            for i in 0..LANES {
                indices[i] = narrow[i] as i64;
            }
        }
        let (base, len) = match place.space {
            Space::Shared { base, len, .. } => (base as usize, len as i64),
            Space::Global(p) => (0, self.launch.globals[p as usize].len),
        };
        let bits = place.dtype.bits() as usize;
        let total = (count as usize * bits).div_ceil(8);
        let mut out = Addresses { bytes: [0; LANES], high: 0, len: total };
        for i in lanes(w.mask) {
            let index = indices[i];
            if index < 0 || index > len - count as i64 {
                return Err(self.outside(place, i, index, len, count));
            }
            let bit = index as usize * bits;
            out.bytes[i] = base + bit / 8;
            out.high |= ((bit & 4 != 0) as u32) << i;
            if count > 1 && (bit % 8 != 0 || !out.bytes[i].is_multiple_of(total)) {
                let name = self.name(place.space);
                let message =
                    format!("{total} bytes at index {index} of {name} are not aligned to their size");
                return Err(Fail::new(Kind::Misaligned, i, message));
            }
        }
        Ok(out)
    }

    fn outside(&self, place: Place, lane: usize, index: i64, len: i64, count: u32) -> Fail {
        let what =
            if count > 1 { format!("{count} elements from index {index}") } else { format!("index {index}") };
        let message = format!("{what} of {}, which has {len} elements", self.name(place.space));
        Fail::new(Kind::OutOfBounds, lane, message)
    }

    pub fn name(&self, space: Space) -> &str {
        match space {
            Space::Global(p) => &self.launch.globals[p as usize].name,
            Space::Shared { array, .. } => &self.code.shared[array as usize].2,
        }
    }

    /// Checks the active lanes' reads against the shadow and counts their cost.
    pub fn before_read(&mut self, w: &Warp, space: Space, a: &Addresses, nibbles: bool) -> Result<()> {
        match space {
            Space::Global(p) => {
                self.counters.global_read += sectors(a, w.mask);
                let buffer = self.launch.globals[p as usize].buffer;
                if !self.checks || !buffer.is_checked() {
                    return Ok(());
                }
                for i in lanes(w.mask) {
                    let order = self.global_order(w, i);
                    let part = nibble(a, i, nibbles);
                    let noted = buffer.note_read(a.bytes[i], a.len, part, &order);
                    noted.map_err(|f| self.global_fail(space, i, false, f))?;
                }
            }
            Space::Shared { .. } => {
                self.count_shared(w, a);
                if !self.checks {
                    return Ok(());
                }
                for i in lanes(w.mask) {
                    self.read_shared(w, space, i, a.bytes[i], a.len, nibble(a, i, nibbles))?;
                }
            }
        }
        Ok(())
    }

    /// Checks one lane's read of shared memory. What nothing has written may be written later in this interval by
    /// another thread, and is a race then; so the error waits for the warps to reach their barrier.
    pub fn read_shared(
        &mut self,
        w: &Warp,
        space: Space,
        lane: usize,
        byte: usize,
        len: usize,
        nibbles: u8,
    ) -> Result<()> {
        let order = self.shared_order(w, lane);
        match self.shared.note_read(byte, len, nibbles, &order) {
            Ok(()) => Ok(()),
            Err(fault) => {
                let unknown = matches!(fault, shared::Fault::Uninitialised);
                let fail = self.shared_fail(space, byte, lane, false, fault);
                if !unknown {
                    return Err(fail);
                }
                if self.deferred.is_none() {
                    self.deferred = Some(self.error(w, fail));
                }
                Ok(())
            }
        }
    }

    fn count_shared(&mut self, w: &Warp, a: &Addresses) {
        let mut words = [0u32; LANES];
        for i in lanes(w.mask) {
            words[i] = a.bytes[i] as u32;
        }
        let (cost, ideal) = shared::wavefronts(&words, w.mask, a.len as u32);
        self.counters.shared(w.pc, cost, ideal);
    }

    pub fn global_order(&self, w: &Warp, lane: usize) -> memory::Order<'_> {
        let thread = (w.index * 32 + lane) as u64;
        memory::Order {
            me: memory::Stamp::new(self.launch.tag, self.linear, thread, self.clock as u64),
            block_start: self.block_start as u64,
            warp_start: w.start as u64,
            fences: &self.launch.fences,
            acquired: self.acquired,
        }
    }

    pub fn shared_order<'w>(&self, w: &'w Warp, lane: usize) -> shared::Order<'w> {
        shared::Order {
            thread: (w.index * 32 + lane) as u16,
            pc: w.pc as u32,
            clock: self.clock,
            block_start: self.block_start,
            warp_start: w.start,
            seen: &w.seen,
        }
    }

    pub fn global_fail(&self, space: Space, lane: usize, writes: bool, fault: memory::Fault) -> Fail {
        let name = self.name(space);
        match fault {
            memory::Fault::Uninitialised => uninitialised(name, lane),
            memory::Fault::Race { wrote, other } => {
                let theirs = if wrote { "written" } else { "read" };
                let mine = if writes { "writes" } else { "reads" };
                let who = if other.block() == self.linear {
                    format!("thread {} of this block", other.thread())
                } else {
                    format!("block {}", other.block())
                };
                let message = format!(
                    "this thread {mine} an element of {name} that {who} has {theirs}, with nothing to order them"
                );
                Fail::new(Kind::Race, lane, message)
            }
        }
    }

    pub fn shared_fail(
        &self,
        space: Space,
        byte: usize,
        lane: usize,
        writes: bool,
        fault: shared::Fault,
    ) -> Fail {
        let name = match space {
            Space::Shared { .. } => self.name(space),
            Space::Global(_) => self.shared_name(byte),
        };
        match fault {
            shared::Fault::Uninitialised => uninitialised(name, lane),
            shared::Fault::Race { wrote, other } => {
                let theirs = if wrote { "written" } else { "read" };
                let mine = if writes { "writes" } else { "reads" };
                let message = format!(
                    "this thread {mine} shared {name} at byte {byte} that {} has {theirs}, without a barrier between",
                    other.who()
                );
                Fail::new(Kind::Race, lane, message).with_other(self.span_of(other.pc as usize))
            }
        }
    }

    /// The shared array that has this byte of the window.
    pub fn shared_name(&self, byte: usize) -> &str {
        let has = |s: &&(u32, u32, String)| (s.0 as usize..(s.0 + s.1) as usize).contains(&byte);
        self.code.shared.iter().find(has).map_or("memory", |s| &s.2)
    }

    pub fn load(&mut self, w: &mut Warp, d: Reg, place: Place) -> Result<()> {
        let a = self.addresses(w, place, 1)?;
        self.before_read(w, place.space, &a, place.dtype.bits() == 4)?;
        let dtype = place.dtype;
        match dtype.compute() {
            Ty::Bool => {
                let mut mask = w.regs.mask(d);
                for i in lanes(w.mask) {
                    let bit = (self.fetch(place.space, a.bytes[i], 1) != 0) as u32;
                    mask = mask & !(1 << i) | bit << i;
                }
                w.regs.set_mask(d, mask);
            }
            Ty::I64 | Ty::F64 => {
                for i in lanes(w.mask) {
                    w.regs.get_mut::<u64>(d)[i] = self.fetch(place.space, a.bytes[i], 8);
                }
            }
            Ty::I32 | Ty::F32 => {
                let size = dtype.bits().div_ceil(8);
                for i in lanes(w.mask) {
                    let mut raw = self.fetch(place.space, a.bytes[i], size) as u32;
                    if dtype.bits() == 4 && a.high >> i & 1 != 0 {
                        raw >>= 4;
                    }
                    w.regs.get_mut::<u32>(d)[i] = codec::decode(dtype, raw);
                }
            }
        }
        Ok(())
    }

    /// The stored bits of `size` (1, 2, 4, 8) bytes.
    #[inline(always)]
    pub fn fetch(&self, space: Space, byte: usize, size: u32) -> u64 {
        match space {
            Space::Global(p) => {
                let b = self.launch.globals[p as usize].buffer;
                match size {
                    1 => b.word8(byte).load(Relaxed) as u64,
                    2 => b.word16(byte).load(Relaxed) as u64,
                    4 => b.word32(byte).load(Relaxed) as u64,
                    _ => b.word64(byte).load(Relaxed),
                }
            }
            Space::Shared { .. } => match size {
                1 => self.shared.get::<1>(byte)[0] as u64,
                2 => u16::from_le_bytes(self.shared.get(byte)) as u64,
                4 => u32::from_le_bytes(self.shared.get(byte)) as u64,
                _ => u64::from_le_bytes(self.shared.get(byte)),
            },
        }
    }

    #[inline(always)]
    pub fn put(&mut self, space: Space, byte: usize, size: u32, bits: u64) {
        match space {
            Space::Global(p) => {
                let b = self.launch.globals[p as usize].buffer;
                match size {
                    1 => b.word8(byte).store(bits as u8, Relaxed),
                    2 => b.word16(byte).store(bits as u16, Relaxed),
                    4 => b.word32(byte).store(bits as u32, Relaxed),
                    _ => b.word64(byte).store(bits, Relaxed),
                }
            }
            Space::Shared { .. } => match size {
                1 => self.shared.put(byte, [bits as u8]),
                2 => self.shared.put(byte, (bits as u16).to_le_bytes()),
                4 => self.shared.put(byte, (bits as u32).to_le_bytes()),
                _ => self.shared.put(byte, bits.to_le_bytes()),
            },
        }
    }

    pub fn store(&mut self, w: &Warp, s: Reg, place: Place) -> Result<()> {
        let a = self.addresses(w, place, 1)?;
        self.count_write(w, place.space, &a);
        let dtype = place.dtype;
        let size = dtype.bits().div_ceil(8);
        let packed = dtype.bits() == 4;
        for i in lanes(w.mask) {
            let mut bits = match dtype.compute() {
                Ty::Bool => (w.regs.mask(s) >> i & 1) as u64,
                Ty::I64 | Ty::F64 => w.regs.get::<u64>(s)[i],
                Ty::I32 | Ty::F32 => codec::encode(dtype, w.regs.get::<u32>(s)[i]) as u64,
            };
            let old = self.fetch(place.space, a.bytes[i], size);
            if packed {
                let shift = 4 * (a.high >> i & 1);
                bits = old & !(15 << shift) | bits << shift;
            }
            self.note_write(w, place.space, a.bytes[i], a.len, nibble(&a, i, packed), old == bits, i)?;
            self.put(place.space, a.bytes[i], size, bits);
        }
        Ok(())
    }

    fn count_write(&mut self, w: &Warp, space: Space, a: &Addresses) {
        match space {
            Space::Global(_) => self.counters.global_written += sectors(a, w.mask),
            Space::Shared { .. } => self.count_shared(w, a),
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one call for both spaces; a struct would only rename these"
    )]
    pub fn note_write(
        &mut self,
        w: &Warp,
        space: Space,
        byte: usize,
        len: usize,
        nibbles: u8,
        same: bool,
        lane: usize,
    ) -> Result<()> {
        match space {
            Space::Global(p) => {
                let buffer = self.launch.globals[p as usize].buffer;
                let noted =
                    buffer.note_write(byte, len, nibbles, same, &self.global_order(w, lane), self.checks);
                noted.map_err(|f| self.global_fail(space, lane, true, f))
            }
            Space::Shared { .. } if self.checks => {
                let order = self.shared_order(w, lane);
                let noted = self.shared.note_write(byte, len, nibbles, same, &order);
                noted.map_err(|f| self.shared_fail(space, byte, lane, true, f))
            }
            Space::Shared { .. } => Ok(()),
        }
    }

    pub fn load_vec(
        &mut self,
        w: &mut Warp,
        array: ArrayRef,
        at: u32,
        count: u32,
        raw: bool,
        place: Place,
    ) -> Result<()> {
        let a = self.addresses(w, place, count)?;
        self.before_read(w, place.space, &a, false)?;
        let units = units(place.dtype, count, raw);
        for u in 0..units.count {
            let d = array.at(at + u);
            for i in lanes(w.mask) {
                let (byte, high) = units.place(a.bytes[i], u);
                let bits = self.fetch(place.space, byte, units.size);
                self.put_register(w, d, i, place.dtype, raw, if high { bits >> 4 } else { bits });
            }
            w.valid[(array.elem + at + u) as usize] |= w.mask;
        }
        Ok(())
    }

    fn put_register(&self, w: &mut Warp, d: Reg, lane: usize, dtype: DType, raw: bool, bits: u64) {
        match dtype.compute() {
            _ if raw => w.regs.get_mut::<u32>(d)[lane] = bits as u32,
            Ty::Bool => {
                let mask = w.regs.mask(d) & !(1 << lane) | ((bits != 0) as u32) << lane;
                w.regs.set_mask(d, mask);
            }
            Ty::I64 | Ty::F64 => w.regs.get_mut::<u64>(d)[lane] = bits,
            Ty::I32 | Ty::F32 => w.regs.get_mut::<u32>(d)[lane] = codec::decode(dtype, bits as u32),
        }
    }

    pub fn store_vec(
        &mut self,
        w: &Warp,
        array: ArrayRef,
        at: u32,
        count: u32,
        raw: bool,
        place: Place,
    ) -> Result<()> {
        let a = self.addresses(w, place, count)?;
        self.count_write(w, place.space, &a);
        let units = units(place.dtype, count, raw);
        for i in lanes(w.mask) {
            for u in 0..units.count {
                let s = array.at(at + u);
                let (byte, high) = units.place(a.bytes[i], u);
                let mut bits = match place.dtype.compute() {
                    _ if raw => w.regs.get::<u32>(s)[i] as u64,
                    Ty::Bool => (w.regs.mask(s) >> i & 1) as u64,
                    Ty::I64 | Ty::F64 => w.regs.get::<u64>(s)[i],
                    Ty::I32 | Ty::F32 => codec::encode(place.dtype, w.regs.get::<u32>(s)[i]) as u64,
                };
                let old = self.fetch(place.space, byte, units.size);
                let nibbles = if units.packed { 1 << high as u8 } else { 3 };
                if units.packed {
                    let shift = 4 * high as u32;
                    bits = old & !(15 << shift) | bits << shift;
                }
                self.note_write(w, place.space, byte, units.size as usize, nibbles, old == bits, i)?;
                self.put(place.space, byte, units.size, bits);
            }
        }
        Ok(())
    }
}

/// How a vector splits: `count` transfers of `size` bytes (of one nibble each if packed).
struct Units {
    count: u32,
    size: u32,
    packed: bool,
}

impl Units {
    fn place(&self, base: usize, u: u32) -> (usize, bool) {
        if self.packed {
            return (base + u as usize / 2, u % 2 == 1);
        }
        (base + (u * self.size) as usize, false)
    }
}

fn units(dtype: DType, count: u32, raw: bool) -> Units {
    match (raw, dtype.bits()) {
        (true, bits) => Units { count: count * bits / 32, size: 4, packed: false },
        (false, 4) => Units { count, size: 1, packed: true },
        (false, bits) => Units { count, size: bits / 8, packed: false },
    }
}

fn nibble(a: &Addresses, lane: usize, packed: bool) -> u8 {
    if packed { 1 << (a.high >> lane & 1) } else { 3 }
}

/// Shared memory that a matrix instruction reads and an ordinary store wrote without a fence after it.
pub fn unfenced(name: &str) -> Fail {
    let message =
        format!("a matrix instruction reads shared {name}, stored to without a proxy fence after it");
    Fail::new(Kind::Race, 0, message)
}

fn uninitialised(name: &str, lane: usize) -> Fail {
    let message = format!("this thread reads an element of {name} that nothing has written");
    Fail::new(Kind::Uninitialised, lane, message)
}

/// Bytes moved: the 32-byte sectors that the active lanes touch.
pub fn sectors(a: &Addresses, mask: u32) -> u64 {
    // Lanes mostly go up in memory; then each new sector differs from the one before.
    let (mut count, mut next, mut rising) = (0, 0, true);
    for i in lanes(mask) {
        let (first, last) = (a.bytes[i] / 32, (a.bytes[i] + a.len - 1) / 32);
        rising &= first + 1 >= next;
        count += (last + 1).saturating_sub(first.max(next));
        next = next.max(last + 1);
    }
    if rising {
        return 32 * count as u64;
    }
    let each = |i: usize| a.bytes[i] / 32..=(a.bytes[i] + a.len - 1) / 32;
    let mut all: Vec<usize> = lanes(mask).flat_map(each).collect();
    all.sort_unstable();
    all.dedup();
    32 * all.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_are_counted_once() {
        let count = |len: usize, f: fn(usize) -> usize| {
            sectors(&Addresses { bytes: std::array::from_fn(f), high: 0, len }, u32::MAX) / 32
        };
        assert_eq!(count(4, |i| 4 * i), 4);
        assert_eq!(count(4, |i| 124 - 4 * i), 4);
        assert_eq!(count(4, |_| 64), 1);
        assert_eq!(count(16, |i| 16 * i), 16);
        assert_eq!(count(4, |i| 128 * i), 32);
        assert_eq!(count(4, |i| 128 * (i % 4)), 4);
        assert_eq!(count(8, |i| 8 * (i ^ 1)), 8);
    }
}
