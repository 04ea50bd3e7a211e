//! The tile language: text to syntax tree and back, and diagnostics. No I/O.

#[cfg(test)]
mod agreement;
pub mod ast;
pub mod codes;
mod diagnose;
pub mod diagnostic;
mod expected;
pub mod foreign;
mod library;
mod print;
mod render;
pub mod rewrite;
mod scan;
pub mod source;
mod text_to_ast;
mod token;

pub use codes::explain;
pub use library::{library, library_has, library_items, library_names, library_with};
pub use print::{WIDTH, format, print_expr};
pub use render::render;
pub use text_to_ast::{MAX_BYTES, MAX_DEPTH, parse, parse_expr};
