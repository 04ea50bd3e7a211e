//! Index arithmetic at sizes beyond 32 bits, which no simulator run reaches: each op of the corpus with one size after
//! the other so large that a tensor has more than 2³¹ or 2³² elements. No 32-bit number of its kernels may overflow.

#[path = "common/corpus.rs"]
mod corpus;

use girih_compiler::lower::{Schedule, overflow::overflows, plan_to_program};
use girih_compiler::pass::ast_to_graph::{Bindings, bind};
use girih_compiler::pass::graph_to_plan::{PlanOptions, plan};
use girih_compiler::pass::module::{self, Module};
use girih_compiler::vocab::target::Target;
use girih_dsl::source::Sources;
use std::collections::BTreeSet;

/// The last group of a raster has fewer rows of tiles and so fewer tiles: ranges know nothing of what two numbers have
/// to do with each other, and take the quotient of all tiles by one row.
const RELATED: (&str, &str) = ("conv2d_nchw", "F");

fn load(text: &str) -> Module {
    let mut sources = Sources::default();
    module::load("wide.tile", text, &mut sources, &|_| Err("no imports here".into())).expect("it loads")
}

/// Elements of the largest tensor, if these sizes are accepted.
fn largest(m: &Module, op: &str, b: &Bindings) -> Option<i64> {
    let g = bind(m, op, b).ok()?.graph;
    g.tensors.iter().map(|t| t.dims.iter().product()).max()
}

/// What overflows in the kernels of an op at these sizes; `None` if it is refused.
fn look(m: &Module, op: &str, b: &Bindings, target: &Target) -> Option<Vec<String>> {
    let g = bind(m, op, b).ok()?.graph;
    let program = plan_to_program(&plan(&g, &PlanOptions::default()), target, &Schedule::default()).ok()?;
    Some(
        program
            .kernels
            .iter()
            .flat_map(|k| overflows(k).into_iter().map(|o| format!("{}: {o}", k.name)))
            .collect(),
    )
}

#[test]
fn no_index_overflows() {
    let mut seen = BTreeSet::new();
    let (mut lowered, mut wrong) = (0, String::new());
    for entry in &corpus::entries() {
        let (name, op) = (entry["name"].as_str().expect("a name"), entry["op"].as_str().expect("an op"));
        if !seen.insert((entry["tile_file"].to_string(), op)) {
            continue;
        }
        let m = load(&corpus::text(entry));
        let mut b = corpus::bindings(entry);
        b.inputs.clear();
        let Some(small) = largest(&m, op, &b) else { continue };
        for (size, odd) in [(31, 0), (31, 1), (32, 0)] {
            let factor = (1i64 << size) / small.max(1) + 8;
            for dim in b.dims.keys().filter(|d| (name, d.as_str()) != RELATED) {
                let mut big = b.clone();
                let n = big.dims.get_mut(dim).expect("a key");
                *n = (*n * factor + 1023) / 1024 * 1024 + odd;
                for target in ["sm_90a", "sm_80"] {
                    let target = Target::parse(target).expect("a target of the table");
                    if let Some(found) = look(&m, op, &big, target) {
                        lowered += 1;
                        for o in found {
                            wrong += &format!("{name} {dim}={} {}: {o}\n", big.dims[dim], target.name);
                        }
                    }
                }
            }
        }
    }
    assert!(lowered > 500, "{lowered} programs");
    assert!(wrong.is_empty(), "of {lowered} programs\n{wrong}");
}
