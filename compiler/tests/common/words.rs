//! An op of a text, bound as words say.

use girih_compiler::ir::graph::Graph;
use girih_compiler::pass::ast_to_graph::{Bindings, bind};
use girih_compiler::pass::module;
use girih_dsl::source::Sources;

/// An op of a text bound to `NAME=VALUE` words: sizes, and consts where the value is no number.
pub fn graph(text: &str, op: &str, words: &str) -> Graph {
    let mut b = Bindings::default();
    for (name, value) in words.split(' ').filter_map(|w| w.split_once('=')) {
        match value.parse() {
            Ok(n) => b.dims.insert(name.into(), n).map(|_| ()),
            Err(_) => b.consts.insert(name.into(), value.into()).map(|_| ()),
        };
    }
    let mut sources = Sources::default();
    let loaded = module::load("case.tile", text, &mut sources, &|_| Err("no imports here".into()));
    let bound = loaded.and_then(|m| bind(&m, op, &b));
    bound.unwrap_or_else(|d| panic!("{op}: {}", girih_dsl::render(&sources, &d, false))).graph
}
