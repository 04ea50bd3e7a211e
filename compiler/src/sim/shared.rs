//! Shared memory of one block, with its shadow (who wrote and read what since which barrier) and the cost of
//! accesses in bank wavefronts.
//!
//! A block's clock advances at each barrier; two accesses of different threads are ordered if a block barrier lies
//! between them, or, for threads of one warp, a warp barrier. Threads of a warp are not taken to run in lockstep.
//! Where warps wait for each other by mbarriers or named barriers, each warp knows for every other one (and for the
//! engine that copies boxes) up to which clock it is ordered after it: a vector clock a warp.

/// log2 of the granule is chosen for each kernel: the smallest element of its shared arrays.
pub struct Shared {
    pub data: Vec<u8>,
    granule: u32,
    valid: Vec<u8>,
    writers: Vec<Access>,
    readers: Vec<Access>,
    /// Where warps are ordered apart: for each granule the clock at which each of `warps` last read it.
    reads: Vec<u32>,
    warps: usize,
}

/// One access in the shadow; `clock` 0 is none.
#[derive(Clone, Copy, Default)]
pub struct Access {
    pub clock: u32,
    /// Thread number, or [`MANY_IN_WARP`] + warp, or [`MANY`].
    pub thread: u16,
    /// Where in the code.
    pub pc: u32,
}

const MANY_IN_WARP: u16 = 0x4000;
const MANY: u16 = 0x7fff;
/// The engine that copies boxes.
pub const ENGINE: u16 = 0x3fff;
/// The clock of a copy that is under way: nothing is ordered after it.
pub const UNDER_WAY: u32 = u32::MAX;

impl Access {
    fn warp(self) -> Option<u16> {
        match self.thread {
            MANY | ENGINE => None,
            t if t >= MANY_IN_WARP => Some(t - MANY_IN_WARP),
            t => Some(t / 32),
        }
    }
}

impl Access {
    /// The thread or threads, in words.
    pub fn who(self) -> String {
        match self.thread {
            MANY => "several threads of different warps".into(),
            ENGINE => "a copy of a box".into(),
            t if t >= MANY_IN_WARP => format!("several threads of warp {}", t - MANY_IN_WARP),
            t => format!("thread {t}"),
        }
    }
}

/// The accessing thread and what it is ordered after.
#[derive(Clone, Copy)]
pub struct Order<'w> {
    pub thread: u16,
    pub pc: u32,
    pub clock: u32,
    pub block_start: u32,
    pub warp_start: u32,
    /// For each warp, and last for the engine: accesses before this clock come before this one. Empty where warps are
    /// ordered all at once alone.
    pub seen: &'w [u32],
}

impl Order<'_> {
    fn after(&self, other: Access) -> bool {
        if other.thread == ENGINE {
            return self.seen.last().is_some_and(|&s| other.clock < s);
        }
        other.thread == self.thread
            || other.clock < self.block_start
            || match other.warp() {
                Some(w) if w == self.thread / 32 => other.clock < self.warp_start,
                Some(w) => self.seen.get(w as usize).is_some_and(|&s| other.clock < s),
                None => false,
            }
    }

    /// The warp that has read at this clock of those in `reads` without being ordered before, if any.
    fn unordered(&self, reads: &[u32]) -> Option<(u16, u32)> {
        let me = self.thread / 32;
        let late = |(w, &clock): (usize, &u32)| {
            let seen = self.seen[w].max(self.block_start);
            (w as u16 != me && clock != 0 && clock >= seen).then_some((w as u16, clock))
        };
        reads.iter().enumerate().find_map(late)
    }

    fn access(&self) -> Access {
        Access { clock: self.clock, thread: self.thread, pc: self.pc }
    }
}

pub enum Fault {
    Uninitialised,
    Race { wrote: bool, other: Access },
}

impl Shared {
    /// `warps`: how many are ordered apart (0: they are not).
    pub fn new(bytes: usize, granule: u32, warps: usize) -> Shared {
        let granules = bytes.div_ceil(1 << granule);
        Shared {
            data: vec![0; bytes],
            granule,
            valid: vec![0; granules],
            writers: vec![Access::default(); granules],
            readers: vec![Access::default(); granules],
            reads: vec![0; granules * warps],
            warps,
        }
    }

    /// Ready for the next block.
    pub fn reset(&mut self) {
        self.valid.fill(0);
        self.writers.fill(Access::default());
        self.readers.fill(Access::default());
        self.reads.fill(0);
    }

    /// A read of what nothing has written is told last: it is recorded like any other.
    pub fn note_read(&mut self, byte: usize, len: usize, nibbles: u8, order: &Order) -> Result<(), Fault> {
        let mut known = true;
        for g in byte >> self.granule..=(byte + len - 1) >> self.granule {
            let writer = self.writers[g];
            if writer.clock != 0 && !order.after(writer) {
                return Err(Fault::Race { wrote: true, other: writer });
            }
            known &= self.valid[g] & nibbles == nibbles;
            let last = self.readers[g];
            let mut mine = order.access();
            if last.clock != 0 && !order.after(last) {
                let one_warp = last.warp() == Some(order.thread / 32);
                mine.thread = if one_warp { MANY_IN_WARP + order.thread / 32 } else { MANY };
            }
            self.readers[g] = mine;
            if self.warps > 0 {
                self.reads[g * self.warps + order.thread as usize / 32] = order.clock;
            }
        }
        if known { Ok(()) } else { Err(Fault::Uninitialised) }
    }

    /// `same`: the bytes are there already.
    pub fn note_write(
        &mut self,
        byte: usize,
        len: usize,
        nibbles: u8,
        same: bool,
        order: &Order,
    ) -> Result<(), Fault> {
        for g in byte >> self.granule..=(byte + len - 1) >> self.granule {
            let (writer, reader) = (self.writers[g], self.readers[g]);
            let known = self.valid[g] & nibbles == nibbles;
            if writer.clock != 0 && !(same && known) && !order.after(writer) {
                return Err(Fault::Race { wrote: true, other: writer });
            }
            if let Some(other) = self.unordered_reader(g, reader, order).filter(|_| !same) {
                return Err(Fault::Race { wrote: false, other });
            }
            self.writers[g] = order.access();
            self.valid[g] |= nibbles;
        }
        Ok(())
    }

    fn unordered_reader(&self, g: usize, last: Access, order: &Order) -> Option<Access> {
        if self.warps > 0 {
            let reads = &self.reads[g * self.warps..(g + 1) * self.warps];
            if let Some((warp, clock)) = order.unordered(reads) {
                return Some(Access { clock, thread: MANY_IN_WARP + warp, pc: last.pc });
            }
            // The others' reads are ordered; what is left is this warp's own.
            if last.warp() != Some(order.thread / 32) {
                return None;
            }
        }
        (last.clock != 0 && !order.after(last)).then_some(last)
    }

    /// A copy by the engine starts to write, ordered as its issuing thread is.
    pub fn note_copy(&mut self, byte: usize, len: usize, order: &Order) -> Result<(), Fault> {
        self.note_write(byte, len, 3, false, order)?;
        self.engine(byte, len, UNDER_WAY, order.pc);
        self.invalidate(byte, len);
        Ok(())
    }

    /// Its bytes are there, at this clock.
    pub fn land(&mut self, byte: usize, data: &[u8], clock: u32, pc: u32) {
        self.engine(byte, data.len(), clock, pc);
        self.data[byte..byte + data.len()].copy_from_slice(data);
        for g in byte >> self.granule..=(byte + data.len() - 1) >> self.granule {
            self.valid[g] = 3;
        }
    }

    fn engine(&mut self, byte: usize, len: usize, clock: u32, pc: u32) {
        for g in byte >> self.granule..=(byte + len - 1) >> self.granule {
            self.writers[g] = Access { clock, thread: ENGINE, pc };
        }
    }

    /// The thread (not the engine) that last wrote one of these bytes at or after a clock of its warp.
    pub fn written_since(&self, byte: usize, len: usize, since: &dyn Fn(usize) -> u32) -> Option<Access> {
        (byte >> self.granule..=(byte + len - 1) >> self.granule)
            .map(|g| self.writers[g])
            .find(|a| a.clock != 0 && a.warp().is_some_and(|w| a.clock >= since(w as usize)))
    }

    /// Whether a thread of the block used one of these bytes at or after a clock.
    pub fn touched_since(&self, byte: usize, len: usize, since: u32) -> bool {
        let own = |a: &Access| a.clock != 0 && a.thread != ENGINE && a.clock >= since;
        (byte >> self.granule..=(byte + len - 1) >> self.granule)
            .any(|g| own(&self.writers[g]) || own(&self.readers[g]))
    }

    /// Bytes on their way (cp.async): what was there is gone.
    pub fn invalidate(&mut self, byte: usize, len: usize) {
        for g in byte >> self.granule..=(byte + len - 1) >> self.granule {
            self.valid[g] = 0;
        }
    }

    /// Marks an atomic operation; an atomic on a value that plain accesses race with is not looked for.
    pub fn note_atomic(&mut self, byte: usize, len: usize) -> Result<(), Fault> {
        match (byte >> self.granule..=(byte + len - 1) >> self.granule).any(|g| self.valid[g] != 3) {
            true => Err(Fault::Uninitialised),
            false => Ok(()),
        }
    }

    pub fn get<const N: usize>(&self, byte: usize) -> [u8; N] {
        self.data[byte..byte + N].try_into().expect("the range has N bytes")
    }

    pub fn put<const N: usize>(&mut self, byte: usize, value: [u8; N]) {
        self.data[byte..byte + N].copy_from_slice(&value);
    }
}

/// (wavefronts, the least possible) of one warp's access of `len` bytes a lane at the given byte addresses.
///
/// 32 banks of 4 bytes. Accesses of 8 and 16 bytes a lane go in 2 and 4 groups of neighbouring lanes; within a group
/// different words of one bank take turns, equal words are one.
pub fn wavefronts(addresses: &[u32; 32], mask: u32, len: u32) -> (u32, u32) {
    let groups = (len / 4).clamp(1, 4);
    let lanes = 32 / groups;
    let (mut total, mut ideal) = (0, 0);
    for g in 0..groups {
        let part = mask & (u32::MAX >> (32 - lanes)) << (g * lanes);
        if part != 0 {
            total += group_wavefronts(addresses, part, len);
            ideal += 1;
        }
    }
    (total, ideal)
}

fn group_wavefronts(addresses: &[u32; 32], mask: u32, len: u32) -> u32 {
    // The words each bank has seen; conflicts are rare, so the first word stands apart from the list of others.
    let mut first = [u32::MAX; 32];
    let mut others: Vec<(u32, u32)> = Vec::new();
    for lane in super::lanes::lanes(mask) {
        for word in addresses[lane] / 4..=(addresses[lane] + len - 1) / 4 {
            let bank = (word % 32) as usize;
            if first[bank] == u32::MAX {
                first[bank] = word;
            } else if first[bank] != word && !others.contains(&(bank as u32, word)) {
                others.push((bank as u32, word));
            }
        }
    }
    if others.is_empty() {
        return 1;
    }
    1 + (0..32).map(|b| others.iter().filter(|o| o.0 == b).count() as u32).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(len: u32, f: impl Fn(u32) -> u32) -> (u32, u32) {
        wavefronts(&std::array::from_fn(|i| f(i as u32)), u32::MAX, len)
    }

    #[test]
    fn banks() {
        assert_eq!(cost(4, |i| 4 * i), (1, 1));
        assert_eq!(cost(4, |i| 8 * i), (2, 1));
        assert_eq!(cost(4, |i| 128 * i), (32, 1));
        assert_eq!(cost(4, |_| 12), (1, 1));
        assert_eq!(cost(2, |i| 2 * i), (1, 1));
        assert_eq!(cost(8, |i| 8 * i), (2, 2));
        assert_eq!(cost(16, |i| 16 * i), (4, 4));
        assert_eq!(cost(16, |i| 128 * i), (32, 4));
    }
}
