//! The tile language: text to syntax tree and back, and diagnostics. No I/O.

pub mod ast;
pub mod diagnostic;
mod explain;
mod scan;
pub mod source;
mod text_to_ast;
mod token;

pub use text_to_ast::{MAX_BYTES, MAX_DEPTH, parse, parse_expr};
