//! The tile language: text to syntax tree and back, and diagnostics. No I/O.

pub mod ast;
pub mod diagnostic;
pub mod source;
