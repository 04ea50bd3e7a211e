//! The registers of one warp: rows of 32 lanes, and how pure operations run over them.
//!
//! A row is 32 words of 32 bits. A 32-bit register is one row, a 64-bit register two; a Bool register is one row
//! whose first word is the mask of lanes that hold true. Pure operations run over all lanes, active or not: they
//! cannot fail, and what an inactive lane holds is never read.

pub const LANES: usize = 32;
pub const FULL: u32 = u32::MAX;

/// Index of a register's first row.
pub type Reg = u32;

#[repr(C, align(128))]
#[derive(Clone, Copy)]
pub struct Row(pub [u32; LANES]);

pub struct Regs {
    rows: Vec<Row>,
}

/// A machine type that fills lanes.
///
/// # Safety
/// Every bit pattern must be a valid value, and `ROWS` rows must be exactly 32 values.
pub unsafe trait Lane: Copy + Default + Send + Sync + 'static {
    const ROWS: usize;
}

// SAFETY: plain numbers of 4 or 8 bytes; 32 of them fill one or two rows of 128 bytes.
unsafe impl Lane for u32 {
    const ROWS: usize = 1;
}
// SAFETY: as above.
unsafe impl Lane for i32 {
    const ROWS: usize = 1;
}
// SAFETY: as above.
unsafe impl Lane for f32 {
    const ROWS: usize = 1;
}
// SAFETY: as above.
unsafe impl Lane for u64 {
    const ROWS: usize = 2;
}
// SAFETY: as above.
unsafe impl Lane for i64 {
    const ROWS: usize = 2;
}
// SAFETY: as above.
unsafe impl Lane for f64 {
    const ROWS: usize = 2;
}

impl Regs {
    pub fn new(rows: usize) -> Regs {
        Regs { rows: vec![Row([0; LANES]); rows] }
    }

    /// The 32 values of a register.
    #[inline(always)]
    pub fn get<T: Lane>(&self, r: Reg) -> &[T; LANES] {
        let rows = &self.rows[r as usize..r as usize + T::ROWS];
        // SAFETY: `Lane` promises that these rows are exactly 32 values of a type without invalid patterns; rows
        // are contiguous and aligned to 128 bytes.
        unsafe { &*rows.as_ptr().cast() }
    }

    #[inline(always)]
    pub fn get_mut<T: Lane>(&mut self, r: Reg) -> &mut [T; LANES] {
        let rows = &mut self.rows[r as usize..r as usize + T::ROWS];
        // SAFETY: as in `get`; the borrow of `self` makes it unique.
        unsafe { &mut *rows.as_mut_ptr().cast() }
    }

    #[inline(always)]
    pub fn mask(&self, r: Reg) -> u32 {
        self.rows[r as usize].0[0]
    }

    #[inline(always)]
    pub fn set_mask(&mut self, r: Reg, mask: u32) {
        self.rows[r as usize].0[0] = mask;
    }

    /// Copies the active lanes of a register.
    #[inline(always)]
    pub fn blend<T: Lane>(&mut self, d: Reg, s: Reg, mask: u32) {
        let from = *self.get::<T>(s);
        let to = self.get_mut::<T>(d);
        if mask == FULL {
            *to = from;
        } else {
            for i in lanes(mask) {
                to[i] = from[i];
            }
        }
    }

    pub fn blend_mask(&mut self, d: Reg, s: Reg, mask: u32) {
        let value = (self.mask(d) & !mask) | (self.mask(s) & mask);
        self.set_mask(d, value);
    }
}

/// The set bits of a mask, lowest first.
#[inline(always)]
pub fn lanes(mask: u32) -> Lanes {
    Lanes(mask)
}

pub struct Lanes(u32);

impl Iterator for Lanes {
    type Item = usize;
    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let i = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(i)
    }
}

/// A pure operation: registers, destination, up to three operands, active mask (only costly functions look at it).
pub type PureFn = dyn Fn(&mut Regs, Reg, [Reg; 3], u32) + Send + Sync;

pub fn map1<A: Lane, D: Lane>(f: impl Fn(A) -> D + Send + Sync + 'static) -> Box<PureFn> {
    Box::new(move |regs, d, [a, ..], _| {
        let a = *regs.get::<A>(a);
        let d = regs.get_mut::<D>(d);
        for i in 0..LANES {
            d[i] = f(a[i]);
        }
    })
}

pub fn map2<A: Lane, B: Lane, D: Lane>(f: impl Fn(A, B) -> D + Send + Sync + 'static) -> Box<PureFn> {
    Box::new(move |regs, d, [a, b, _], _| {
        let (a, b) = (*regs.get::<A>(a), *regs.get::<B>(b));
        let d = regs.get_mut::<D>(d);
        for i in 0..LANES {
            d[i] = f(a[i], b[i]);
        }
    })
}

pub fn map3<A: Lane, D: Lane>(f: impl Fn(A, A, A) -> D + Send + Sync + 'static) -> Box<PureFn> {
    Box::new(move |regs, d, [a, b, c], _| {
        let (a, b, c) = (*regs.get::<A>(a), *regs.get::<A>(b), *regs.get::<A>(c));
        let d = regs.get_mut::<D>(d);
        for i in 0..LANES {
            d[i] = f(a[i], b[i], c[i]);
        }
    })
}

/// A comparison: two registers to a Bool register.
pub fn test2<A: Lane>(f: impl Fn(A, A) -> bool + Send + Sync + 'static) -> Box<PureFn> {
    Box::new(move |regs, d, [a, b, _], _| {
        let (a, b) = (regs.get::<A>(a), regs.get::<A>(b));
        let mut mask = 0;
        for i in 0..LANES {
            mask |= (f(a[i], b[i]) as u32) << i;
        }
        regs.set_mask(d, mask);
    })
}

pub fn test1<A: Lane>(f: impl Fn(A) -> bool + Send + Sync + 'static) -> Box<PureFn> {
    Box::new(move |regs, d, [a, ..], _| {
        let a = regs.get::<A>(a);
        let mut mask = 0;
        for i in 0..LANES {
            mask |= (f(a[i]) as u32) << i;
        }
        regs.set_mask(d, mask);
    })
}

/// An operation on Bool registers.
pub fn logic(f: impl Fn(u32, u32) -> u32 + Send + Sync + 'static) -> Box<PureFn> {
    Box::new(move |regs, d, [a, b, _], _| {
        let mask = f(regs.mask(a), regs.mask(b));
        regs.set_mask(d, mask);
    })
}

pub fn select<T: Lane>() -> Box<PureFn> {
    Box::new(|regs, d, [c, a, b], _| {
        let c = regs.mask(c);
        let (a, b) = (*regs.get::<T>(a), *regs.get::<T>(b));
        let d = regs.get_mut::<T>(d);
        for i in 0..LANES {
            d[i] = if c >> i & 1 != 0 { a[i] } else { b[i] };
        }
    })
}

pub fn select_mask() -> Box<PureFn> {
    Box::new(|regs, d, [c, a, b], _| {
        let (c, a, b) = (regs.mask(c), regs.mask(a), regs.mask(b));
        regs.set_mask(d, (c & a) | (!c & b));
    })
}

/// From Bool to a number.
pub fn from_mask<D: Lane>(no: D, yes: D) -> Box<PureFn> {
    Box::new(move |regs, d, [a, ..], _| {
        let a = regs.mask(a);
        let d = regs.get_mut::<D>(d);
        for i in 0..LANES {
            d[i] = if a >> i & 1 != 0 { yes } else { no };
        }
    })
}

/// A copy of one register to another.
pub fn copy<T: Lane>() -> Box<PureFn> {
    map1(|a: T| a)
}
