//! Global memory: the program's buffers, with a shadow that knows what was written and by whom.
//!
//! Blocks run in parallel, and a wrong program may touch one address from two blocks, so bytes live in atomics and
//! are accessed with relaxed loads and stores of the access's own size (plain moves on every machine). That is
//! free of undefined behaviour as long as accesses that race have one size; those that race at different sizes are
//! errors of the simulated program which the shadow reports.
//!
//! The shadow has one entry for each granule (the smallest element that any parameter gives the buffer, at least a
//! byte; nibbles of a byte share one, as their stores conflict on the device). Orderings it accepts between two
//! accesses of different threads of one launch: a barrier between them in their block, or a fence of the writer's
//! block after the write together with an atomic of the reader's block before the read.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

pub struct Buffer {
    words: Box<[AtomicU64]>,
    pub bytes: usize,
    /// log2 of the granule's bytes.
    granule: u32,
    /// For each granule: bit 0 (low nibble or the whole) and 1 (high nibble) tell what holds a value. Empty: all do.
    valid: Box<[AtomicU8]>,
    writers: Box<[AtomicU64]>,
    readers: Box<[AtomicU64]>,
}

/// Who accesses, packed as the shadow keeps it: launch tag 15, block 21, thread 11, clock 17 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stamp(pub u64);

/// More than one thread of a block, or more than one block, read.
const MANY_THREADS: u64 = 0x7ff;
const MANY_BLOCKS: u64 = 0x1f_ffff;
pub const TAGS: u64 = 0x7fff;

impl Stamp {
    pub fn new(tag: u64, block: u64, thread: u64, clock: u64) -> Stamp {
        // A clock that ran over stays at its greatest value, where accesses count as ordered.
        Stamp(tag << 49 | block.min(MANY_BLOCKS - 1) << 28 | thread << 17 | clock.min(0x1_ffff))
    }

    fn tag(self) -> u64 {
        self.0 >> 49
    }

    pub fn block(self) -> u64 {
        self.0 >> 28 & MANY_BLOCKS
    }

    pub fn thread(self) -> u64 {
        self.0 >> 17 & 0x7ff
    }

    pub fn clock(self) -> u64 {
        self.0 & 0x1_ffff
    }

    fn with_many_threads(self) -> Stamp {
        Stamp(self.0 | MANY_THREADS << 17)
    }

    fn with_many_blocks(self) -> Stamp {
        Stamp(self.0 | MANY_BLOCKS << 28)
    }
}

/// What the accessing thread is ordered after.
pub struct Order<'a> {
    pub me: Stamp,
    /// Clock of the block's last barrier: earlier accesses of the block are ordered.
    pub block_start: u64,
    /// Clock of the warp's last barrier.
    pub warp_start: u64,
    /// For each block of the launch, the clock at its last fence.
    pub fences: &'a [AtomicU32],
    /// Whether this block has done an atomic operation on global memory.
    pub acquired: bool,
}

impl Order<'_> {
    /// Whether the access `other` of this launch happened before this one.
    fn after(&self, other: Stamp) -> bool {
        if other.tag() != self.me.tag() || other.clock() == 0x1_ffff {
            return true;
        }
        if other.block() != self.me.block() {
            let fenced = self.fences.get(other.block() as usize).map_or(0, |f| f.load(Relaxed)) as u64;
            return self.acquired && (other.block() == MANY_BLOCKS || fenced > other.clock());
        }
        let same_warp = other.thread() / 32 == self.me.thread() / 32 && other.thread() != MANY_THREADS;
        other.thread() == self.me.thread()
            || other.clock() < self.block_start
            || (same_warp && other.clock() < self.warp_start)
    }
}

/// Why an access is wrong.
pub enum Fault {
    Uninitialised,
    /// With an earlier access of another thread: (was a write, its block and thread).
    Race {
        wrote: bool,
        other: Stamp,
    },
}

impl Buffer {
    pub fn new(bytes: usize, granule: u32, initialised: bool) -> Buffer {
        let granules = bytes.div_ceil(1 << granule);
        let entries = if initialised { 0 } else { granules };
        Buffer {
            words: zeroed(bytes.div_ceil(8) + 1),
            bytes,
            granule,
            valid: (0..entries).map(|_| AtomicU8::new(0)).collect(),
            writers: Box::default(),
            readers: Box::default(),
        }
    }

    /// Makes the shadow of accesses, for a buffer that a kernel writes.
    pub fn track(&mut self) {
        if self.writers.is_empty() {
            let granules = self.bytes.div_ceil(1 << self.granule);
            self.writers = zeroed(granules);
            self.readers = zeroed(granules);
        }
    }

    /// Forgets all accesses (when launch tags start again).
    pub fn forget(&self) {
        for w in self.writers.iter().chain(&self.readers) {
            w.store(0, Relaxed);
        }
    }

    pub fn fill(&self, data: &[u8]) {
        for (word, chunk) in self.words.iter().zip(data.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(bytes), Relaxed);
        }
        self.set_all_valid();
    }

    pub fn set_all_valid(&self) {
        self.valid.iter().for_each(|v| v.store(3, Relaxed));
    }

    pub fn copy_from(&self, from: &Buffer) {
        for (to, from) in self.words.iter().zip(&from.words) {
            to.store(from.load(Relaxed), Relaxed);
        }
        let all = from.valid.is_empty() || from.granule != self.granule;
        for (i, to) in self.valid.iter().enumerate() {
            to.store(if all { 3 } else { from.valid[i].load(Relaxed) }, Relaxed);
        }
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut out: Vec<u8> = self.words.iter().flat_map(|w| w.load(Relaxed).to_le_bytes()).collect();
        out.truncate(self.bytes);
        out
    }

    #[inline(always)]
    fn at<T>(&self, byte: usize) -> &T {
        assert!(byte + size_of::<T>() <= self.words.len() * 8 && byte.is_multiple_of(align_of::<T>()));
        // SAFETY: the range is inside the allocation (asserted), aligned for T (asserted; the base is aligned to 8),
        // and T is an atomic integer (the callers below), so shared access is allowed.
        unsafe { &*self.words.as_ptr().cast::<u8>().add(byte).cast::<T>() }
    }

    pub fn word8(&self, byte: usize) -> &AtomicU8 {
        self.at(byte)
    }

    pub fn word16(&self, byte: usize) -> &AtomicU16 {
        self.at(byte)
    }

    pub fn word32(&self, byte: usize) -> &AtomicU32 {
        self.at(byte)
    }

    pub fn word64(&self, byte: usize) -> &AtomicU64 {
        self.at(byte)
    }

    /// Whether any check has to look at reads (or writes) of this buffer.
    pub fn is_checked(&self) -> bool {
        !self.valid.is_empty() || !self.writers.is_empty()
    }

    /// Checks and records a read of `len` bytes; `nibbles` is 3, or the one nibble that is read.
    pub fn note_read(&self, byte: usize, len: usize, nibbles: u8, order: &Order) -> Result<(), Fault> {
        for g in self.granules(byte, len) {
            if !self.valid.is_empty() && self.valid[g].load(Relaxed) & nibbles != nibbles {
                return Err(Fault::Uninitialised);
            }
            if self.writers.is_empty() {
                continue;
            }
            let last = Stamp(self.readers[g].load(Relaxed));
            let mine = merge_readers(last, order);
            if mine != last {
                self.readers[g].store(mine.0, Relaxed);
            }
            let writer = Stamp(self.writers[g].load(Relaxed));
            if writer.0 != 0 && !order.after(writer) {
                return Err(Fault::Race { wrote: true, other: writer });
            }
        }
        Ok(())
    }

    /// Checks and records a write; `same` tells that it stores what is there already, which no one can tell from
    /// no write.
    pub fn note_write(
        &self,
        byte: usize,
        len: usize,
        nibbles: u8,
        same: bool,
        order: &Order,
        checks: bool,
    ) -> Result<(), Fault> {
        for g in self.granules(byte, len) {
            if !self.valid.is_empty() {
                let known = self.valid[g].load(Relaxed);
                if known & nibbles != nibbles {
                    self.valid[g].fetch_or(nibbles, Relaxed);
                }
            }
            if self.writers.is_empty() || !checks {
                continue;
            }
            let writer = Stamp(self.writers[g].swap(order.me.0, Relaxed));
            if writer.0 != 0 && !same && !order.after(writer) {
                return Err(Fault::Race { wrote: true, other: writer });
            }
            let reader = Stamp(self.readers[g].load(Relaxed));
            if reader.0 != 0 && !same && !order.after(reader) {
                return Err(Fault::Race { wrote: false, other: reader });
            }
        }
        Ok(())
    }

    /// Marks what an atomic operation touched.
    pub fn note_atomic(&self, byte: usize, len: usize) -> Result<(), Fault> {
        match self.granules(byte, len).any(|g| !self.valid.is_empty() && self.valid[g].load(Relaxed) != 3) {
            true => Err(Fault::Uninitialised),
            false => Ok(()),
        }
    }

    /// The first byte of the elements' range that was never written, if any.
    pub fn is_valid(&self, byte: usize, nibbles: u8) -> bool {
        self.valid.is_empty() || self.valid[byte >> self.granule].load(Relaxed) & nibbles == nibbles
    }

    fn granules(&self, byte: usize, len: usize) -> std::ops::RangeInclusive<usize> {
        byte >> self.granule..=(byte + len - 1) >> self.granule
    }
}

/// The record of readers after one more reads.
fn merge_readers(last: Stamp, order: &Order) -> Stamp {
    if last.0 == 0 || last.tag() != order.me.tag() {
        return order.me;
    }
    if last.block() != order.me.block() {
        return order.me.with_many_threads().with_many_blocks();
    }
    if last.thread() == order.me.thread() || order.after(last) {
        return order.me;
    }
    order.me.with_many_threads()
}

fn zeroed(len: usize) -> Box<[AtomicU64]> {
    (0..len).map(|_| AtomicU64::new(0)).collect()
}
