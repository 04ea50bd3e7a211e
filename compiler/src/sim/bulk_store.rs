//! Copies of boxes from shared to global memory (TMA stores), in groups that the issuing thread waits for.
//!
//! A store reads shared memory as late as it may: when its thread waits for its group. It is checked when it is issued
//! and when it reads, and what lies there must be the same both times. What a box covers beyond the tensor is not
//! written.

use super::access::unfenced;
use super::block::Block;
use super::code::Space;
use super::lanes::{LANES, Reg, lanes};
use super::report::{Fail, Kind};
use super::warp::Warp;
use crate::ir::simt::{Swizzle, TensorMap};

type Result<T> = std::result::Result<T, Fail>;

/// The stores of a warp's threads that have not read yet.
#[derive(Default)]
pub struct Stores {
    open: Vec<Store>,
    /// Groups that each lane has closed.
    groups: [u32; LANES],
}

impl Stores {
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub fn commit(&mut self, mask: u32) {
        lanes(mask).for_each(|i| self.groups[i] += 1);
    }
}

struct Store {
    lane: usize,
    group: u32,
    param: u32,
    from: u32,
    at: Vec<i64>,
    /// What lay there when it was issued.
    seen: Vec<[u8; 16]>,
}

impl Block<'_> {
    /// args: shared address, coordinates.
    pub fn store_box(&mut self, w: &mut Warp, param: u32, args: &[Reg]) -> Result<()> {
        let Some(map) = self.launch.maps[param as usize] else {
            return Err(Fail::new(Kind::Malformed, 0, "a store of boxes without a tensor map"));
        };
        for i in lanes(w.mask) {
            let from = super::cluster::place(w.regs.get::<u32>(args[0])[i]);
            let at: Vec<i64> = args[1..].iter().map(|&r| w.regs.get::<i32>(r)[i] as i64).collect();
            let align = if map.swizzle == Swizzle::None { 128 } else { 8 * map.swizzle.width() };
            let inner = at[0] * map.dtype.bits() as i64 / 8;
            if !from.is_multiple_of(align) || inner % 16 != 0 || at.iter().any(|&x| x < 0) {
                let message = format!(
                    "a store of a box at {at:?} from byte {from} of shared memory, which is to be a multiple of {align}"
                );
                return Err(Fail::new(Kind::Misaligned, i, message));
            }
            if (from + map.bytes()) as usize > self.shared.data.len() {
                let message = format!("a store of {} bytes from byte {from} of shared memory", map.bytes());
                return Err(Fail::new(Kind::OutOfBounds, i, message));
            }
            let seen = self.read_staged(w, i, map, from)?;
            let group = w.stores.groups[i];
            w.stores.open.push(Store { lane: i, group, param, from, at, seen });
        }
        Ok(())
    }

    /// The box's 16-byte chunks as they lie in shared memory, line by line.
    fn read_staged(&mut self, w: &Warp, lane: usize, map: &TensorMap, from: u32) -> Result<Vec<[u8; 16]>> {
        let mut out = Vec::with_capacity(map.bytes() as usize / 16);
        for chunk in 0..map.bytes() / 16 {
            let byte = map.swizzle.place(from + 16 * chunk) as usize;
            if self.checks {
                self.read_shared(w, Space::Global(0), lane, byte, 16, 3)?;
                let since = |warp: usize| self.fence_of(warp);
                if self.shared.written_since(byte, 16, &since).is_some() {
                    return Err(unfenced(self.shared_name(byte)));
                }
            }
            out.push(self.shared.get(byte));
        }
        Ok(out)
    }

    /// Carries out all but the last `left` groups of the active lanes.
    pub fn retire_stores(&mut self, w: &mut Warp, left: u32) -> Result<()> {
        let groups = w.stores.groups;
        let due = |s: &Store| w.mask >> s.lane & 1 != 0 && s.group + left < groups[s.lane];
        let (now, later) = std::mem::take(&mut w.stores.open).into_iter().partition(due);
        w.stores.open = later;
        let now: Vec<Store> = now;
        now.iter().try_for_each(|s| self.write_box(w, s))
    }

    fn write_box(&mut self, w: &Warp, s: &Store) -> Result<()> {
        let Some(map) = self.launch.maps[s.param as usize] else { return Ok(()) };
        let data = self.read_staged(w, s.lane, map, s.from)?;
        if data != s.seen {
            let message = "what a store of a box reads in shared memory was overwritten before it was read";
            return Err(Fail::new(Kind::Race, s.lane, message));
        }
        let size = map.dtype.bits() / 8;
        let per_line = (map.extent[0] * size / 16) as usize;
        let space = Space::Global(s.param as u16);
        for (line, chunks) in super::boxes::lines(map, &s.at).into_iter().zip(data.chunks(per_line)) {
            let Some(line) = line else { continue };
            let bytes = chunks.concat();
            for (x, value) in (s.at[0]..map.dims[0]).zip(bytes.chunks(size as usize)) {
                let byte = (line + x * size as i64) as usize;
                let mut word = [0; 8];
                word[..value.len()].copy_from_slice(value);
                let bits = u64::from_le_bytes(word);
                let same = self.fetch(space, byte, size) == bits;
                self.note_write(w, space, byte, size as usize, 3, same, s.lane)?;
                self.put(space, byte, size, bits);
                self.counters.global_written += size as u64;
            }
        }
        Ok(())
    }
}
