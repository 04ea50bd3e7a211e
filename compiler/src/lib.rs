//! Girih's compiler: from a syntax tree to CUDA C, and the two CPU executions that check it.
//!
//! ```text
//! ast → graph → egraph → plan → tile → simt → cuda
//! ```
//!
//! Pure: no I/O, no clock, no GPU. `vocab` holds what may be said, `ir` the levels, `pass` the stages,
//! `rules` the e-graph's rule tables, `lower` the kernel forms, `sim` the simulator, `reference` the oracle.

pub mod host;
pub mod ir;
pub mod lower;
pub mod pass;
pub mod reference;
pub mod rules;
pub mod sim;
pub mod vocab;

/// Tests inside the crate share helpers with those outside.
#[cfg(test)]
extern crate self as girih_compiler;
