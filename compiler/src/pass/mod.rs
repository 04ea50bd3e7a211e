//! The stages between the levels, and what several of them share.

pub mod ast_to_graph;
pub mod bind;
pub mod bounds;
pub mod cascade;
pub mod check;
pub mod class_key;
pub mod classes;
pub mod compact;
pub mod cost;
pub mod egraph_to_plan;
pub mod extract;
pub mod facts;
pub mod forms;
pub mod graph_to_egraph;
pub mod graph_to_plan;
pub mod group;
pub mod hoist;
pub mod inline;
pub mod model;
pub mod module;
pub mod rows;
pub mod shape;
pub mod sites;
pub mod stored;
pub mod subst;
pub mod work;
