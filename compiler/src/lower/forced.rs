//! Choices that costs decide, and that small tests ask for though they do not pay at their sizes.

/// A choice that is made where it is cheaper.
#[derive(Clone, Copy)]
pub enum Gain {
    /// Operands are packed.
    Packs,
    /// Floats of 32 bits come in parts.
    Splits,
    /// The sides of a product change places.
    Turns,
}

#[cfg(test)]
thread_local! { static FORCED: std::cell::Cell<[bool; 3]> = const { std::cell::Cell::new([false; 3]) } }

/// Whether it is made whatever it costs.
#[cfg(test)]
pub fn is_forced(gain: Gain) -> bool {
    FORCED.get()[gain as usize]
}

#[cfg(not(test))]
pub fn is_forced(_: Gain) -> bool {
    false
}

/// Says so for this thread, and gives what was said before.
#[cfg(test)]
pub fn force(gain: Gain, on: bool) -> bool {
    let mut all = FORCED.get();
    let before = std::mem::replace(&mut all[gain as usize], on);
    FORCED.set(all);
    before
}
