//! The interpreter: runs one warp's operations under its mask of active lanes.

use super::block::Block;
use super::bulk_store::Stores;
use super::code::{ArrayRef, Code, Const, Op, Width};
use super::compile::SCRATCH;
use super::engine::Products;
use super::intrinsics::AsyncCopy;
use super::lanes::{FULL, LANES, Reg, Regs, lanes};
use super::ops;
use super::report::{Fail, Kind};
use crate::host;
use crate::ir::simt::{AtomicOp, IntOp, ShuffleKind, Ty};
use crate::vocab::dtype::Value;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

type Result<T> = std::result::Result<T, Fail>;

pub struct Warp {
    pub regs: Regs,
    pub pc: usize,
    pub mask: u32,
    /// Threads that exist.
    pub all: u32,
    pub index: usize,
    /// Clock of the last barrier of the warp or its block.
    pub start: u32,
    /// For each array element: the lanes that have set it.
    pub valid: Vec<u32>,
    /// (mask to restore, mask of the other branch)
    stack: Vec<(u32, u32)>,
    /// Rounds of `While` loops so far.
    rounds: u64,
    pub copies: Vec<AsyncCopy>,
    /// Groups of asynchronous copies that each lane has committed.
    pub groups: [u32; LANES],
    /// For each warp of the block, and last for the engine that copies boxes: this one is ordered after what it did
    /// before this clock. Empty where warps are ordered all at once alone.
    pub seen: Vec<u32>,
    /// The same for other blocks of the cluster.
    pub peers: BTreeMap<u32, Vec<u32>>,
    /// Matrix products under way.
    pub products: Products,
    pub stores: Stores,
}

/// Why a warp does not go on. Its pc stays at the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Barrier,
    /// At the named barrier of this number, for so many threads.
    Named(u32, u32),
    /// For the phase of this parity of the mbarrier at this address.
    Phase(u32, u32),
    /// At the cluster's barrier.
    Cluster,
    /// For words of other blocks.
    Words,
    End,
}

impl Warp {
    pub fn new(code: &Code) -> Warp {
        Warp {
            regs: Regs::new(code.rows),
            pc: 0,
            mask: 0,
            all: 0,
            index: 0,
            start: 1,
            valid: vec![0; code.elems],
            stack: Vec::new(),
            rounds: 0,
            copies: Vec::new(),
            groups: [0; LANES],
            seen: Vec::new(),
            peers: BTreeMap::new(),
            products: Products::default(),
            stores: Stores::default(),
        }
    }

    pub fn start_block(&mut self, index: usize, mask: u32) {
        self.pc = 0;
        (self.mask, self.all, self.index, self.start) = (mask, mask, index, 1);
        self.valid.fill(0);
        self.stack.clear();
        self.copies.clear();
        self.groups = [0; LANES];
        self.rounds = 0;
        self.peers.clear();
        self.products = Products::default();
        self.stores = Stores::default();
    }

    pub fn set_constant(&mut self, reg: Reg, value: Const) {
        match value {
            Const::Word(v) => *self.regs.get_mut(reg) = [v; LANES],
            Const::Wide(v) => *self.regs.get_mut(reg) = [v; LANES],
            Const::Mask(v) => self.regs.set_mask(reg, v),
        }
    }

    pub fn set_scalar(&mut self, reg: Reg, ty: Ty, bits: u64) {
        match Width::of(ty) {
            Width::Word => *self.regs.get_mut(reg) = [bits as u32; LANES],
            Width::Wide => *self.regs.get_mut(reg) = [bits; LANES],
            Width::Mask => self.regs.set_mask(reg, if bits != 0 { FULL } else { 0 }),
        }
    }

    fn blend(&mut self, width: Width, d: Reg, s: Reg) {
        match width {
            Width::Word => self.regs.blend::<u32>(d, s, self.mask),
            Width::Wide => self.regs.blend::<u64>(d, s, self.mask),
            Width::Mask => self.regs.blend_mask(d, s, self.mask),
        }
    }

    fn pop(&mut self) {
        // Every push (`If`, `Enter`) has its pop by construction of the code.
        if let Some((saved, _)) = self.stack.pop() {
            self.mask = saved;
        }
    }

    /// All threads of the warp must be active.
    pub fn whole(&self, what: &str) -> Result<()> {
        if self.mask == FULL {
            return Ok(());
        }
        let missing = (!self.mask).trailing_zeros() as usize;
        let message = format!("{what} needs all 32 threads of the warp; thread {missing} of it is not here");
        Err(Fail::new(Kind::PartialWarp, self.mask.trailing_zeros() as usize % 32, message))
    }
}

impl Block<'_> {
    /// Runs until the warp waits at a barrier (its pc stays there) or ends.
    pub fn run_warp(&mut self, w: &mut Warp) -> Result<Stop> {
        let code = self.code;
        loop {
            let op = &code.ops[w.pc];
            self.counters.operations[op.class() as usize] += 1;
            match op {
                Op::Pure { f, d, args, keep, .. } => match keep {
                    Some(width) if w.mask != FULL => {
                        f(&mut w.regs, SCRATCH, *args, w.mask);
                        w.blend(*width, *d, SCRATCH);
                    }
                    _ => f(&mut w.regs, *d, *args, w.mask),
                },
                Op::Blend { width, d, s } => w.blend(*width, *d, *s),
                Op::Int { op, ty, d, a, b } => checked_int(w, *op, *ty, *d, *a, *b)?,
                Op::CheckElem { array, elem } => check_elem(w, *array, *elem)?,
                Op::MarkElem { elem } => w.valid[*elem as usize] |= w.mask,
                Op::ReadElem { d, array, id, index } => read_elem(w, *d, *array, *id, *index)?,
                Op::WriteElem { s, array, id, index } => write_elem(w, *s, *array, *id, *index)?,
                Op::Load { d, place } => self.load(w, *d, *place)?,
                Op::Store { s, place } => self.store(w, *s, *place)?,
                Op::LoadVec { array, at, count, raw, place } => {
                    self.load_vec(w, *array, *at, *count, *raw, *place)?
                }
                Op::StoreVec { array, at, count, raw, place } => {
                    self.store_vec(w, *array, *at, *count, *raw, *place)?
                }
                Op::Barrier => {
                    if w.mask != w.all {
                        let missing = (w.all & !w.mask).trailing_zeros();
                        let message =
                            format!("thread {} does not reach this barrier", w.index as u32 * 32 + missing);
                        return Err(Fail::new(Kind::DivergentBarrier, first(w.mask), message));
                    }
                    return Ok(Stop::Barrier);
                }
                Op::WarpBarrier => {
                    if w.mask != w.all {
                        let missing = (w.all & !w.mask).trailing_zeros();
                        let message = format!(
                            "thread {} does not reach this warp barrier",
                            w.index as u32 * 32 + missing
                        );
                        return Err(Fail::new(Kind::DivergentBarrier, first(w.mask), message));
                    }
                    self.clock += 1;
                    w.start = self.clock;
                }
                Op::Fence => {
                    self.clock += 1;
                    self.launch.fences[self.linear as usize].store(self.clock, Relaxed);
                }
                Op::Shuffle { d, kind, width, s, lane } => shuffle(w, *d, *kind, *width, *s, *lane)?,
                Op::Ballot { d, pred } => {
                    w.whole("a ballot")?;
                    *w.regs.get_mut(*d) = [w.regs.mask(*pred); LANES];
                }
                Op::Atomic { op, place, value, old } => self.atomic(w, *op, *place, *value, *old)?,
                Op::Intrinsic { op, outs, args } => {
                    if let Some(stop) = self.intrinsic(w, *op, outs, args)? {
                        return Ok(stop);
                    }
                }
                Op::Fault { fault, site, value, ty } => self.record_fault(w, *fault, *site, *value, *ty),
                Op::End => return Ok(Stop::End),
                Op::If { .. } | Op::Else { .. } | Op::EndIf | Op::Enter | Op::Jump { .. } => {
                    self.branch(w, op)
                }
                Op::ForTest { .. } | Op::ForStep { .. } | Op::WhileTest { .. } => self.loop_step(w, op)?,
            }
            w.pc += 1;
        }
    }

    /// Moves the pc to one before the next operation.
    #[inline(always)]
    fn branch(&mut self, w: &mut Warp, op: &Op) {
        match op {
            Op::If { cond, otherwise } => {
                let taken = w.mask & w.regs.mask(*cond);
                w.stack.push((w.mask, w.mask & !taken));
                w.mask = taken;
                if taken == 0 {
                    w.pc = *otherwise as usize - 1;
                }
            }
            Op::Else { end } => {
                w.mask = w.stack.last().map_or(0, |f| f.1);
                if w.mask == 0 {
                    w.pc = *end as usize - 1;
                }
            }
            Op::EndIf => w.pop(),
            Op::Enter => w.stack.push((w.mask, 0)),
            Op::Jump { to } => w.pc = (*to as usize).wrapping_sub(1),
            _ => {}
        }
    }

    #[inline(always)]
    fn loop_step(&mut self, w: &mut Warp, op: &Op) -> Result<()> {
        match op {
            Op::ForTest { var, hi, wide, end } => {
                let below = if *wide { less::<i64>(w, *var, *hi) } else { less::<i32>(w, *var, *hi) };
                w.mask &= below;
                if w.mask == 0 {
                    w.pop();
                    w.pc = *end as usize - 1;
                }
            }
            Op::ForStep { var, step, wide, back } => {
                if *wide {
                    let by = *w.regs.get::<i64>(*step);
                    let var = w.regs.get_mut::<i64>(*var);
                    (0..LANES).for_each(|i| var[i] = var[i].wrapping_add(by[i]));
                } else {
                    let by = *w.regs.get::<i32>(*step);
                    let var = w.regs.get_mut::<i32>(*var);
                    (0..LANES).for_each(|i| var[i] = var[i].wrapping_add(by[i]));
                }
                w.pc = *back as usize - 1;
            }
            Op::WhileTest { cond, end } => {
                w.mask &= w.regs.mask(*cond);
                w.rounds += 1;
                if w.rounds > self.launch.loop_limit {
                    let message = format!("more than {} rounds of `while` loops", self.launch.loop_limit);
                    return Err(Fail::new(Kind::Runaway, first(w.mask), message));
                }
                if w.mask == 0 {
                    w.pop();
                    w.pc = *end as usize - 1;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn atomic(
        &mut self,
        w: &mut Warp,
        op: AtomicOp,
        place: super::code::Place,
        value: Reg,
        old: Option<Reg>,
    ) -> Result<()> {
        let a = self.addresses(w, place, 1)?;
        let ty = Ty::of(place.dtype.compute());
        let global = match place.space {
            super::code::Space::Global(p) => Some(self.launch.globals[p as usize].buffer),
            super::code::Space::Shared { .. } => None,
        };
        self.acquired |= global.is_some();
        for i in lanes(w.mask) {
            let byte = a.bytes[i];
            let operand = ops::value(&w.regs, value, ty, i);
            let wide = Width::of(ty) == Width::Wide;
            let next = |bits: u64| bits_of(combine(op, value_of(bits, ty), operand));
            let before = match global {
                Some(b) => {
                    let noted = if self.checks { b.note_atomic(byte, a.len) } else { Ok(()) };
                    noted.map_err(|f| self.global_fail(place.space, i, true, f))?;
                    if wide {
                        b.word64(byte).fetch_update(Relaxed, Relaxed, |v| Some(next(v))).unwrap_or_else(|v| v)
                    } else {
                        let step = |v: u32| Some(next(v as u64) as u32);
                        b.word32(byte).fetch_update(Relaxed, Relaxed, step).unwrap_or_else(|v| v) as u64
                    }
                }
                None => {
                    let noted = if self.checks { self.shared.note_atomic(byte, a.len) } else { Ok(()) };
                    noted.map_err(|f| self.shared_fail(place.space, byte, i, true, f))?;
                    let size = if wide { 8 } else { 4 };
                    let bits = self.fetch(place.space, byte, size);
                    self.put(place.space, byte, size, next(bits));
                    bits
                }
            };
            if let Some(d) = old {
                ops::set_value(&mut w.regs, d, i, value_of(before, ty));
            }
        }
        Ok(())
    }

    fn record_fault(&mut self, w: &Warp, fault: u16, site: u32, value: Reg, ty: Ty) {
        let Some(lane) = lanes(w.mask).next() else { return };
        let buffer = self.launch.globals[fault as usize].buffer;
        let word = buffer.word64(0);
        if word.compare_exchange(0, site as u64 + 1, Relaxed, Relaxed).is_ok() {
            let v = host::as_i64(ops::value(&w.regs, value, ty, lane)) as u64;
            buffer.word64(8).store(v, Relaxed);
            buffer.word64(16).store(v, Relaxed);
        }
    }
}

fn first(mask: u32) -> usize {
    mask.trailing_zeros() as usize % LANES
}

#[inline(always)]
fn less<T: super::lanes::Lane + PartialOrd>(w: &Warp, a: Reg, b: Reg) -> u32 {
    let (a, b) = (w.regs.get::<T>(a), w.regs.get::<T>(b));
    let mut mask = 0;
    for i in 0..LANES {
        mask |= ((a[i] < b[i]) as u32) << i;
    }
    mask
}

fn checked_int(w: &mut Warp, op: IntOp, ty: Ty, d: Reg, a: Reg, b: Reg) -> Result<()> {
    for i in lanes(w.mask) {
        let (x, y) = (integer(w, a, ty, i), integer(w, b, ty, i));
        let width = crate::ir::simt_verify::bits(ty) as i128;
        let ok = match op {
            IntOp::Div | IntOp::Rem => x >= 0 && y > 0,
            _ => (0..width).contains(&y),
        };
        if !ok {
            let message = format!("{op:?} of {x} by {y}");
            return Err(Fail::new(Kind::Arithmetic, i, message));
        }
        let result = match op {
            IntOp::Div => x / y,
            IntOp::Rem => x % y,
            IntOp::Shl => x << y,
            _ => x >> y,
        };
        if width == 32 {
            w.regs.get_mut::<u32>(d)[i] = result as u32;
        } else {
            w.regs.get_mut::<u64>(d)[i] = result as u64;
        }
    }
    Ok(())
}

fn integer(w: &Warp, r: Reg, ty: Ty, lane: usize) -> i128 {
    match ty {
        Ty::I32 => w.regs.get::<i32>(r)[lane] as i128,
        Ty::U32 => w.regs.get::<u32>(r)[lane] as i128,
        Ty::I64 => w.regs.get::<i64>(r)[lane] as i128,
        _ => w.regs.get::<u64>(r)[lane] as i128,
    }
}

fn check_elem(w: &Warp, array: u32, elem: u32) -> Result<()> {
    let missing = w.mask & !w.valid[elem as usize];
    if missing == 0 {
        return Ok(());
    }
    let message = format!("this thread reads an element of array {array} that it has not set");
    Err(Fail::new(Kind::Uninitialised, first(missing), message))
}

/// The element that all active lanes agree on, or `None`; an error where one is outside.
fn element(w: &Warp, array: ArrayRef, id: u32, index: Reg) -> Result<Option<u32>> {
    let index = w.regs.get::<i32>(index);
    let one = index[first(w.mask)];
    let mut uniform = true;
    for i in lanes(w.mask) {
        if index[i] as u32 >= array.len {
            let message = format!("index {} of array {id} of {} elements", index[i], array.len);
            return Err(Fail::new(Kind::OutOfBounds, i, message));
        }
        uniform &= index[i] == one;
    }
    Ok(uniform.then_some(one as u32))
}

fn read_elem(w: &mut Warp, d: Reg, array: ArrayRef, id: u32, index: Reg) -> Result<()> {
    if let Some(at) = element(w, array, id, index)? {
        check_elem(w, id, array.elem + at)?;
        // All lanes may be written: the destination is a temporary or just declared.
        let s = array.at(at);
        match array.width {
            Width::Word => *w.regs.get_mut::<u32>(d) = *w.regs.get::<u32>(s),
            Width::Wide => *w.regs.get_mut::<u64>(d) = *w.regs.get::<u64>(s),
            Width::Mask => w.regs.set_mask(d, w.regs.mask(s)),
        }
        return Ok(());
    }
    let index = *w.regs.get::<u32>(index);
    for i in lanes(w.mask) {
        let elem = array.elem + index[i];
        if w.valid[elem as usize] >> i & 1 == 0 {
            let message = format!("this thread reads element {} of array {id} that it has not set", index[i]);
            return Err(Fail::new(Kind::Uninitialised, i, message));
        }
        move_lane(w, array.width, d, array.at(index[i]), i);
    }
    Ok(())
}

fn write_elem(w: &mut Warp, s: Reg, array: ArrayRef, id: u32, index: Reg) -> Result<()> {
    if let Some(at) = element(w, array, id, index)? {
        w.blend(array.width, array.at(at), s);
        w.valid[(array.elem + at) as usize] |= w.mask;
        return Ok(());
    }
    let index = *w.regs.get::<u32>(index);
    for i in lanes(w.mask) {
        move_lane(w, array.width, array.at(index[i]), s, i);
        w.valid[(array.elem + index[i]) as usize] |= 1 << i;
    }
    Ok(())
}

fn move_lane(w: &mut Warp, width: Width, d: Reg, s: Reg, lane: usize) {
    match width {
        Width::Word => w.regs.get_mut::<u32>(d)[lane] = w.regs.get::<u32>(s)[lane],
        Width::Wide => w.regs.get_mut::<u64>(d)[lane] = w.regs.get::<u64>(s)[lane],
        Width::Mask => w.regs.blend_mask(d, s, 1 << lane),
    }
}

fn shuffle(w: &mut Warp, d: Reg, kind: ShuffleKind, width: Width, s: Reg, lane: Reg) -> Result<()> {
    w.whole("a shuffle")?;
    let by = *w.regs.get::<i32>(lane);
    let from: [usize; LANES] = std::array::from_fn(|i| {
        let (me, n) = (i as i32, by[i]);
        let lane = match kind {
            ShuffleKind::Index => n & 31,
            ShuffleKind::Xor => me ^ (n & 31),
            ShuffleKind::Up if n <= me => me - n,
            ShuffleKind::Down if n + me < 32 => me + n,
            ShuffleKind::Up | ShuffleKind::Down => me,
        };
        lane as usize % LANES
    });
    match width {
        Width::Word => {
            let v = *w.regs.get::<u32>(s);
            *w.regs.get_mut(d) = from.map(|i| v[i]);
        }
        Width::Wide => {
            let v = *w.regs.get::<u64>(s);
            *w.regs.get_mut(d) = from.map(|i| v[i]);
        }
        Width::Mask => {
            let v = w.regs.mask(s);
            let mask = (0..LANES).fold(0, |m, i| m | (v >> from[i] & 1) << i);
            w.regs.set_mask(d, mask);
        }
    }
    Ok(())
}

fn value_of(bits: u64, ty: Ty) -> Value {
    match ty {
        Ty::F32 => Value::F32(f32::from_bits(bits as u32)),
        Ty::F64 => Value::F64(f64::from_bits(bits)),
        Ty::I64 | Ty::U64 => Value::I64(bits as i64),
        _ => Value::I32(bits as i32),
    }
}

fn bits_of(v: Value) -> u64 {
    match v {
        Value::Bool(b) => b as u64,
        Value::I32(v) => v as u32 as u64,
        Value::I64(v) => v as u64,
        Value::F32(v) => v.to_bits() as u64,
        Value::F64(v) => v.to_bits(),
    }
}

/// What an atomic operation leaves in memory. Min and max of floats propagate NaN, as the printed form does.
fn combine(op: AtomicOp, old: Value, new: Value) -> Value {
    use crate::vocab::func::Func;
    match op {
        AtomicOp::Add => Func::Add.eval(&[old, new]),
        AtomicOp::Min => Func::Min.eval(&[old, new]),
        AtomicOp::Max => Func::Max.eval(&[old, new]),
        AtomicOp::Or => Func::Or.eval(&[old, new]),
        AtomicOp::Exchange => new,
    }
}
