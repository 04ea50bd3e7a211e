//! The stages between the levels, and what several of them share.

pub mod facts;
pub mod forms;
pub mod graph_to_plan;
pub mod subst;
