//! What binding an op is made of; `pass/ast_to_graph.rs` is the way in.

mod advice;
pub mod build;
pub mod call;
pub mod compact;
pub mod convert;
pub mod elab;
mod exact;
pub mod expr;
pub mod fold;
mod hints;
mod hoisted;
pub mod inline;
pub mod interval;
pub mod points;
pub mod poly;
pub mod prove;
pub mod read;
pub mod recur;
pub mod scan;
pub mod sizes;
pub mod stmt;
pub mod tiles;
pub mod typ;
pub mod update;
mod ways;
