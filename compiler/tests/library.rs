//! Every operator of the library, and every example of the documentation, binds at small sizes, for each dtype it takes.

use std::collections::BTreeMap;

use girih_compiler::pass::ast_to_graph::{Bindings, bind};
use girih_compiler::pass::module;
use girih_dsl::ast::{Item, Op, SizeKind};
use girih_dsl::source::Sources;

/// Sizes and consts that an op asks for. Other sizes are even and differ, other consts are 1.
const GIVEN: &[(&str, &str)] = &[
    ("rope_partial", "rot=4"),
    ("conv1d", "L=9 R=3"),
    ("conv2d", "H=9 W=8 R=3 S=2 stride=2 pad=1"),
    ("conv2d_bias", "H=9 W=8 R=3 S=2 dil=2"),
    ("conv2d_relu", "H=9 W=8 R=3 S=2"),
    ("conv2d_nhwc", "H=9 W=8 R=3 S=2"),
    ("conv2d_grouped", "C=4 F=6 groups=2 H=9 W=8 R=3 S=2"),
    ("conv2d_depthwise", "H=9 W=8 R=3 S=2"),
    ("conv3d", "D=5 H=6 W=7 A=1 R=2 S=3"),
    ("conv_transpose1d", "stride=2 pad=1 outpad=1"),
    ("conv_transpose2d", "H=5 W=4 R=3 S=2 stride=2 pad=1 outpad=1"),
    ("conv_transpose3d", "D=3 H=3 W=3 A=2 R=2 S=3 stride=2"),
    ("conv2d_grad_x", "H=9 W=8 R=3 S=2 P=4 Q=4 stride=2"),
    ("conv2d_grad_w", "H=9 W=8 R=3 S=2 P=4 Q=4 stride=2"),
    ("max_pool1d", "K=3 stride=2 pad=1"),
    ("max_pool2d", "K=3 stride=2 pad=1"),
    ("max_pool2d_indices", "K=2 stride=2"),
    ("avg_pool1d", "K=3"),
    ("avg_pool2d", "K=3"),
    ("avg_pool2d_valid", "K=3 pad=1"),
    ("avg_pool3d", "K=2"),
    ("avg_pool2d_grad", "K=2 stride=2 H=8 W=9 P=4 Q=4"),
    ("group_norm1d", "C=6 G=3"),
    ("group_norm2d", "C=6 G=3"),
    ("topk", "N=7 K=3"),
    ("route_topk", "E=7 K=3"),
    ("route_softmax_topk", "E=7 K=3"),
    ("route_sigmoid_topk", "E=7 K=3"),
    ("quantize_e4m3_groups", "N=12 Q=3"),
    ("quantize_i4_groups", "K=12 Q=3"),
    ("quantize_u4_groups", "K=12 Q=3"),
    ("linear_w4", "K=12 Q=3"),
    ("linear_w4_zero", "K=12 Q=3"),
    ("pixel_shuffle", "r=2"),
    ("pixel_unshuffle", "r=2"),
    ("pad_reflect", "pad=2"),
    ("patchify", "H=6 W=4 K=2"),
    ("attention_window", "window=3"),
    // Of the documentation.
    ("w4_linear", "K=12 Q=3"),
    ("route", "E=7 K=3"),
];

fn given(op: &str) -> BTreeMap<String, String> {
    let rows = GIVEN.iter().filter(|(name, _)| *name == op).flat_map(|(_, given)| given.split_whitespace());
    rows.filter_map(|g| g.split_once('=')).map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

fn bindings(op: &Op, dtype: &str) -> Bindings {
    let mut given = given(&op.name.text);
    let mut out = Bindings::default();
    for (i, size) in op.sizes.iter().enumerate() {
        let name = size.name.text.clone();
        match &size.kind {
            SizeKind::Plain => {
                let value = given.remove(&name).and_then(|v| v.parse().ok()).unwrap_or(2 * i as i64 + 2);
                out.dims.insert(name, value);
            }
            SizeKind::Derived(_) => {}
            SizeKind::DType(_) => drop(out.consts.insert(name, dtype.to_string())),
            SizeKind::DTypeSet(set, _) => {
                let one = set.iter().find(|d| d.text == dtype).unwrap_or(&set[0]);
                out.consts.insert(name, one.text.clone());
            }
        }
    }
    for param in op.params.iter().filter(|p| p.is_const && p.default.is_none()) {
        out.consts.insert(param.name.text.clone(), "1".to_string());
    }
    out.consts.extend(given);
    out
}

/// Binds every op of a text, for each dtype; what goes wrong is appended.
fn bind_all(name: &str, text: &str, wrong: &mut String) -> usize {
    let mut sources = Sources::default();
    let loaded = module::load(name, text, &mut sources, &|path| Err(format!("no {path}")));
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(diagnostics) => {
            *wrong += &girih_dsl::render(&sources, &diagnostics, false);
            return 0;
        }
    };
    let mut count = 0;
    let ops =
        loaded.root().file.items.iter().filter_map(|i| if let Item::Op(op) = i { Some(op) } else { None });
    for op in ops {
        for dtype in ["f32", "bf16", "f16", "f64"] {
            if let Err(diagnostics) = bind(&loaded, &op.name.text, &bindings(op, dtype)) {
                *wrong += &format!("\n== {name}: {} {dtype}\n", op.name.text);
                *wrong += &girih_dsl::render(&sources, &diagnostics, false);
            }
            count += 1;
        }
    }
    count
}

#[test]
fn every_operator_binds() {
    let mut wrong = String::new();
    let mut count = 0;
    for name in girih_dsl::library_names() {
        let text = girih_dsl::library(name).expect("a module of the list");
        count += bind_all(&format!("{name}.tile"), text, &mut wrong);
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count > 600, "only {count}");
}

#[test]
fn every_example_of_the_documentation_binds() {
    let mut wrong = String::new();
    let mut count = 0;
    for page in ["language.md", "tutorial.md"] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
        let text = std::fs::read_to_string(path).expect("a page");
        for block in text.split("```tile\n").skip(1) {
            let example = block.split("```").next().unwrap_or("");
            count += bind_all(page, example, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count > 60, "only {count}");
}
