//! What may be said: one table for each kind of word, one row for each word.

pub mod approx;
pub mod cuda;
pub mod dtype;
pub mod func;
pub mod meaning;
pub mod monoid;
pub mod random;
pub mod target;
