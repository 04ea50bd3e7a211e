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
    copies: Vec<Copy>,
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
    count: u32,
    /// Arrivals and bytes that the phase still waits for.
    pending: u32,
    bytes: i64,
    /// Completed phases.
    phase: u32,
    /// What arrivals gave, and what waiting takes.
    given: Vec<u32>,
    taken: Vec<u32>,
}

impl Mbarrier {
    fn advance(&mut self) {
        if self.pending == 0 && self.bytes == 0 {
            self.phase += 1;
            self.pending = self.count;
            self.taken.clone_from(&self.given);
        }
    }

    fn completed(&self, parity: u32) -> bool {
        self.phase & 1 != parity & 1
    }
}

struct Copy {
    barrier: u32,
    bytes: u32,
    chunks: Vec<(u32, [u8; 16])>,
    pc: usize,
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
    descriptors: [u64; 2],
    scale: bool,
    outs: Vec<Out>,
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
            | Intrinsic::TmaStore { .. }
            | Intrinsic::BulkCommit
            | Intrinsic::BulkWait(_)
            | Intrinsic::WgmmaFence
            | Intrinsic::WgmmaCommit
            | Intrinsic::WgmmaWait(_)
            | Intrinsic::Wgmma { .. }
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
            Intrinsic::MbarrierExpect => self.arrive(w, args[0], Some(args[1]))?,
            Intrinsic::MbarrierWait => return self.wait_phase(w, args),
            Intrinsic::FenceMbarrierInit => {}
            Intrinsic::FenceProxyAsync => {
                self.clock += 1;
                self.engine.fences.insert(w.index, self.clock);
            }
            Intrinsic::TmaLoad { map, .. } | Intrinsic::TmaPixels { map, .. } => {
                self.copy_box(w, map.0, args)?
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
            let (at, count) = (w.regs.get::<u32>(args[0])[i], w.regs.get::<u32>(args[1])[i]);
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
            let barrier = Mbarrier { epoch, count, pending: count, bytes: 0, phase: 0, given, taken };
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
        // What the warp's other lanes did since its last synchronisation is not given by this one's arrival.
        let own = if w.mask == w.all {
            self.clock += 1;
            self.clock
        } else {
            w.start
        };
        for i in lanes(w.mask) {
            let at = w.regs.get::<u32>(at)[i];
            let bytes = bytes.map_or(0, |b| w.regs.get::<u32>(b)[i]);
            self.known_barrier(w, i, at)?;
            let Some(b) = self.engine.barriers.get_mut(&at) else { continue };
            if b.pending == 0 {
                let message =
                    format!("more than {} arrivals in one phase of the barrier at byte {at}", b.count);
                return Err(Fail::new(Kind::Race, i, message));
            }
            for (given, seen) in b.given.iter_mut().zip(&w.seen) {
                *given = (*given).max(*seen);
            }
            if let Some(given) = b.given.get_mut(w.index) {
                *given = (*given).max(own);
            }
            b.bytes += bytes as i64;
            b.pending -= 1;
            b.advance();
        }
        Ok(())
    }

    fn wait_phase(&mut self, w: &Warp, args: &[Reg]) -> Result<Option<Stop>> {
        let at = uniform::<u32>(w, args[0], "the address of a barrier that a warp waits for")?;
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
            for (seen, taken) in w.seen.iter_mut().zip(&b.taken) {
                *seen = (*seen).max(*taken);
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
        let Some(map) = self.launch.maps[param as usize] else {
            return Err(Fail::new(Kind::Malformed, 0, "a copy of boxes without a tensor map"));
        };
        for i in lanes(w.mask) {
            let (to, barrier) = (w.regs.get::<u32>(args[0])[i], w.regs.get::<u32>(args[1])[i]);
            let at: Vec<i64> = args[2..].iter().map(|&r| w.regs.get::<i32>(r)[i] as i64).collect();
            self.known_barrier(w, i, barrier)?;
            let align = if map.swizzle == Swizzle::None { 128 } else { 8 * map.swizzle.width() };
            if !to.is_multiple_of(align) || at[0] * map.dtype.bits() as i64 / 8 % 16 != 0 {
                let message = format!(
                    "a box at {at:?} to byte {to} of shared memory, which is to be a multiple of {align}"
                );
                return Err(Fail::new(Kind::Misaligned, i, message));
            }
            if (to + map.bytes()) as usize > self.shared.data.len() {
                let message = format!("a box of {} bytes to byte {to} of shared memory", map.bytes());
                return Err(Fail::new(Kind::OutOfBounds, i, message));
            }
            let chunks = self.read_box(w, i, param, map, to, &at)?;
            if self.checks {
                let order = self.shared_order(w, i);
                for (byte, _) in &chunks {
                    let noted = self.shared.note_copy(*byte as usize, 16, &order);
                    noted.map_err(|f| self.shared_fail(Space::Global(0), *byte as usize, i, true, f))?;
                }
            }
            self.counters.global_read += map.bytes() as u64;
            self.engine.copies.push(Copy { barrier, bytes: map.bytes(), chunks, pc: w.pc });
        }
        Ok(())
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
        let descriptors = [uniform::<u64>(w, args[0], what)?, uniform::<u64>(w, args[1], what)?];
        let scale = uniform::<u32>(w, args[2], "the scale of an accumulator")? != 0;
        for elem in outs.iter().filter_map(|o| o.elem) {
            if scale && w.valid[elem as usize] != w.mask && !w.products.pending(elem) {
                let message = "this thread's accumulator has an element that it has not set";
                return Err(Fail::new(Kind::Uninitialised, 0, message));
            }
            w.valid[elem as usize] = 0;
        }
        let p = Product { dtypes, n, trans, descriptors, scale, outs: outs.to_vec() };
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
        let a = self.read_matrix(w, p.descriptors[0], p.trans[0], p.dtypes[0], first, 16)?;
        let b = self.read_matrix(w, p.descriptors[1], p.trans[1], p.dtypes[1], 0, p.n)?;
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

/// The C name of an intrinsic's function.
pub fn name(op: Intrinsic) -> String {
    match op {
        Intrinsic::MbarrierInit => "mbarrier_init".into(),
        Intrinsic::MbarrierArrive => "mbarrier_arrive".into(),
        Intrinsic::MbarrierExpect => "mbarrier_expect".into(),
        Intrinsic::MbarrierWait => "mbarrier_wait".into(),
        Intrinsic::FenceMbarrierInit => "fence_mbarrier_init".into(),
        Intrinsic::FenceProxyAsync => "fence_proxy_async".into(),
        Intrinsic::TmaLoad { rank, .. } => format!("tma_load_{rank}d"),
        Intrinsic::TmaPixels { rank, .. } => format!("tma_pixels_{rank}d"),
        Intrinsic::TmaStore { rank, .. } => format!("tma_store_{rank}d"),
        Intrinsic::BulkCommit => "bulk_commit".into(),
        Intrinsic::BulkWait(n) => format!("bulk_wait<{n}>"),
        Intrinsic::WgmmaFence => "wgmma_fence".into(),
        Intrinsic::WgmmaCommit => "wgmma_commit".into(),
        Intrinsic::WgmmaWait(n) => format!("wgmma_wait<{n}>"),
        Intrinsic::Wgmma { dtypes: [a, b], n, trans } => {
            let lie = trans.map(|t| if t { 't' } else { 'n' });
            let k = 256 / a.bits();
            format!("wgmma_m64n{n}k{k}_{}_{}_{}{}", a.name(), b.name(), lie[0], lie[1])
        }
        Intrinsic::SetMaxRegisters { more, count } => {
            format!("{}_registers<{count}>", if more { "more" } else { "fewer" })
        }
        Intrinsic::NamedBarrier { threads } => format!("named_barrier<{threads}>"),
        Intrinsic::ClusterArrive => "cluster_arrive".into(),
        Intrinsic::ClusterWait => "cluster_wait".into(),
        Intrinsic::StoreAsync { wide } => format!("store_async_{}", if wide { 64 } else { 32 }),
        _ => String::new(),
    }
}

/// The C function of an intrinsic, around its PTX.
pub fn definition(op: Intrinsic) -> String {
    let function = |head: &str, comment: &str, ptx: &str, operands: &str| {
        format!(
            "// {comment}\n{head} {{\n    asm volatile(\"{ptx}\" :: {operands}{}\"memory\");\n}}\n",
            if operands.is_empty() { ": " } else { " : " }
        )
        .replace("::  :", ":::")
    };
    let plain = |params: &str, comment: &str, ptx: &str, operands: &str| {
        let name = name(op);
        function(&format!("__device__ __forceinline__ void {name}({params})"), comment, ptx, operands)
    };
    let numbered = |comment: &str, ptx: &str| {
        let name = name(op);
        let name = name.split('<').next().unwrap_or("");
        let head = format!("template <int N> __device__ __forceinline__ void {name}()");
        function(&head, comment, ptx, "\"n\"(N)")
    };
    match op {
        Intrinsic::MbarrierInit => plain(
            "u32 barrier, u32 count",
            "A barrier whose phases are of `count` arrivals.",
            "mbarrier.init.shared::cta.b64 [%0], %1;",
            "\"r\"(barrier), \"r\"(count)",
        ),
        Intrinsic::MbarrierArrive => {
            plain("u32 barrier", "Arrives.", "mbarrier.arrive.shared::cta.b64 _, [%0];", "\"r\"(barrier)")
        }
        Intrinsic::MbarrierExpect => plain(
            "u32 barrier, u32 bytes",
            "Arrives; the phase also waits for so many bytes of copies.",
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;",
            "\"r\"(barrier), \"r\"(bytes)",
        ),
        Intrinsic::MbarrierWait => "// Waits until the phase of this parity has completed.\n\
             __device__ __forceinline__ void mbarrier_wait(u32 barrier, u32 parity) {\n    \
             u32 done;\n    do {\n        \
             asm volatile(\"{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; \
             selp.u32 %0, 1, 0, p; }\"\n            \
             : \"=r\"(done) : \"r\"(barrier), \"r\"(parity) : \"memory\");\n    } while (!done);\n}\n"
            .into(),
        Intrinsic::FenceMbarrierInit => plain(
            "",
            "Makes initialised barriers known to copies.",
            "fence.mbarrier_init.release.cluster;",
            "",
        ),
        Intrinsic::FenceProxyAsync => plain(
            "",
            "What ordinary stores wrote to shared memory is seen by copies and matrix instructions.",
            "fence.proxy.async.shared::cta;",
            "",
        ),
        Intrinsic::TmaLoad { rank, .. } => tma_load_definition(rank as usize),
        Intrinsic::TmaPixels { rank, .. } => tma_pixels_definition(rank as usize),
        Intrinsic::TmaStore { rank, .. } => tma_store_definition(rank as usize),
        Intrinsic::BulkCommit => {
            plain("", "Closes this thread's group of stores.", "cp.async.bulk.commit_group;", "")
        }
        Intrinsic::BulkWait(_) => numbered(
            "Waits until at most N of this thread's groups of stores have still to read shared memory.",
            "cp.async.bulk.wait_group.read %0;",
        ),
        Intrinsic::WgmmaFence => plain(
            "",
            "Before matrix instructions: registers are as written.",
            "wgmma.fence.sync.aligned;",
            "",
        ),
        Intrinsic::WgmmaCommit => {
            plain("", "Closes a group of matrix instructions.", "wgmma.commit_group.sync.aligned;", "")
        }
        Intrinsic::WgmmaWait(_) => numbered(
            "Waits until at most N groups of matrix instructions are under way.",
            "wgmma.wait_group.sync.aligned %0;",
        ),
        Intrinsic::SetMaxRegisters { more, .. } => numbered(
            "The warpgroup's registers a thread from here on.",
            if more { "setmaxnreg.inc.sync.aligned.u32 %0;" } else { "setmaxnreg.dec.sync.aligned.u32 %0;" },
        ),
        Intrinsic::NamedBarrier { .. } => "// A barrier of N threads.\n\
             template <int N> __device__ __forceinline__ void named_barrier(u32 id) {\n    \
             asm volatile(\"bar.sync %0, %1;\" :: \"r\"(id), \"n\"(N) : \"memory\");\n}\n"
            .into(),
        Intrinsic::Wgmma { dtypes, n, trans } => wgmma_definition(dtypes, n as usize, trans),
        Intrinsic::ClusterArrive => plain(
            "",
            "Arrives at the cluster's barrier; of memory, only initialised barriers are ordered.",
            "barrier.cluster.arrive.relaxed.aligned;",
            "",
        ),
        Intrinsic::ClusterWait => {
            plain("", "Waits for the cluster's threads.", "barrier.cluster.wait.acquire.aligned;", "")
        }
        Intrinsic::StoreAsync { wide } => store_async_definition(wide),
        _ => String::new(),
    }
}

fn store_async_definition(wide: bool) -> String {
    let (bits, ty, kind) = if wide { (64, "u64", "l") } else { (32, "u32", "r") };
    format!(
        "// Stores to this place in another block of the cluster, counted on that block's barrier.\n\
         __device__ __forceinline__ void store_async_{bits}(u32 to, u32 barrier, u32 block, {ty} value) {{\n    \
         asm volatile(\"{{ .reg .b32 a, b; mapa.shared::cluster.u32 a, %0, %2; mapa.shared::cluster.u32 b, %1, %2; \"\n        \
         \"st.async.shared::cluster.mbarrier::complete_tx::bytes.b{bits} [a], %3, [b]; }}\"\n        \
         :: \"r\"(to), \"r\"(barrier), \"r\"(block), \"{kind}\"(value) : \"memory\");\n}}\n"
    )
}

fn tma_load_definition(rank: usize) -> String {
    let params: String = (0..rank).map(|i| format!(", int x{i}")).collect();
    let places: Vec<String> = (0..rank).map(|i| format!("%{}", i + 3)).collect();
    let operands: String = (0..rank).map(|i| format!(", \"r\"(x{i})")).collect();
    format!(
        "// Copies the box at these coordinates to shared memory; its bytes are counted on the barrier.\n\
         __device__ __forceinline__ void tma_load_{rank}d(u32 to, u32 barrier, const TensorMap* map{params}) {{\n    \
         asm volatile(\"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes \
         [%0], [%1, {{{}}}], [%2];\"\n        \
         :: \"r\"(to), \"l\"(map), \"r\"(barrier){operands} : \"memory\");\n}}\n",
        places.join(", ")
    )
}

fn tma_store_definition(rank: usize) -> String {
    let params: String = (0..rank).map(|i| format!(", int x{i}")).collect();
    let places: Vec<String> = (0..rank).map(|i| format!("%{}", i + 2)).collect();
    let operands: String = (0..rank).map(|i| format!(", \"r\"(x{i})")).collect();
    format!(
        "// Copies the box at these coordinates from shared memory.\n\
         __device__ __forceinline__ void tma_store_{rank}d(u32 from, const TensorMap* map{params}) {{\n    \
         asm volatile(\"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%1, {{{}}}], [%0];\"\n        \
         :: \"r\"(from), \"l\"(map){operands} : \"memory\");\n}}\n",
        places.join(", ")
    )
}

fn tma_pixels_definition(rank: usize) -> String {
    let inner = rank - 2;
    let params: String = (0..rank).map(|i| format!(", int x{i}")).collect();
    let offsets: String = (0..inner).map(|i| format!(", int o{i}")).collect();
    let list = |from: usize, n: usize| -> String {
        (from..from + n).map(|i| format!("%{i}")).collect::<Vec<_>>().join(", ")
    };
    let (places, moves) = (list(3, rank), list(3 + rank, inner));
    let operands: String = (0..rank).map(|i| format!(", \"r\"(x{i})")).collect();
    let shorts: String = (0..inner).map(|i| format!(", \"h\"((unsigned short)o{i})")).collect();
    format!(
        "// Copies pixels in a row from this one on, all moved by the offsets; their bytes are counted on the barrier.\n\
         __device__ __forceinline__ void tma_pixels_{rank}d(u32 to, u32 barrier, const TensorMap* map{params}{offsets}) {{\n    \
         asm volatile(\"cp.async.bulk.tensor.{rank}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes \
         [%0], [%1, {{{places}}}], [%2], {{{moves}}};\"\n        \
         :: \"r\"(to), \"l\"(map), \"r\"(barrier){operands}{shorts} : \"memory\");\n}}\n"
    )
}

/// How PTX names an operand of a matrix instruction.
fn ptx_type(dtype: DType) -> &'static str {
    match dtype {
        DType::I8 => "s8",
        DType::F32 => "tf32",
        d => d.name(),
    }
}

fn wgmma_definition(dtypes: [DType; 2], n: usize, trans: [bool; 2]) -> String {
    let regs = n / 2;
    let integer = matches!(dtypes[0], DType::I8 | DType::U8);
    let (c_type, sum, letter) = if integer { ("int", "s32", 'r') } else { ("float", "f32", 'f') };
    let places: Vec<String> = (0..regs).map(|i| format!("%{i}")).collect();
    let outs: Vec<String> = (0..regs).map(|i| format!("\"+{letter}\"(d[{i}])")).collect();
    // Integers have no sign operands, and only 16-bit operands can lie along M or N.
    let [a, b] = trans.map(|t| t as u8);
    let rest = match (integer, dtypes[0].bits()) {
        (true, _) => String::new(),
        (false, 16) => format!(", 1, 1, {a}, {b}"),
        _ => ", 1, 1".into(),
    };
    let k = 256 / dtypes[0].bits();
    let [x, y] = dtypes.map(ptx_type);
    format!(
        "// d = a * b + scale * d over the warpgroup's 64x{n}x{k}.\n\
         __device__ __forceinline__ void {}({c_type}* d, u64 a, u64 b, int scale) {{\n    \
         asm volatile(\"{{ .reg .pred p; setp.ne.b32 p, %{}, 0; \"\n        \
         \"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{sum}.{x}.{y} {{{}}}, %{regs}, %{}, p{rest}; }}\"\n        \
         : {}\n        : \"l\"(a), \"l\"(b), \"r\"(scale));\n}}\n",
        name(Intrinsic::Wgmma { dtypes, n: n as u16, trans }),
        regs + 2,
        places.join(", "),
        regs + 1,
        outs.join(", ")
    )
}
