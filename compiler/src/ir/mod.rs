//! The levels between the syntax tree and CUDA text.

pub mod graph;
pub mod graph_text;
pub mod graph_verify;
pub mod layout;
pub mod plan;
pub mod plan_text;
pub mod program;
pub mod simt;
pub mod simt_parse;
pub mod simt_text;
pub mod simt_verify;
pub mod tile;
