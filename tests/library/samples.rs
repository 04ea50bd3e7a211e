//! Sizes and consts at which each operator of the library means something.

use girih_compiler::pass::ast_to_graph::Bindings;
use girih_compiler::vocab::dtype::DType;
use girih_dsl::ast::{Op, SizeKind};
use std::collections::BTreeMap;

/// Dtypes that dtype parameters are bound to.
pub const DTYPES: [&str; 4] = ["f32", "bf16", "f16", "f64"];

/// How sizes are chosen that an op leaves free.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sizes {
    /// 2, 4, 6, …: what every op takes.
    Even,
    /// 3, 5, 7, 9, …
    Odd,
    /// 1, where it can be.
    One,
    /// 17, 37, 19, …: over one warp's tile, and prime.
    Prime,
}

impl Sizes {
    fn size(self, i: usize) -> i64 {
        match self {
            Sizes::Even => 2 * i as i64 + 2,
            Sizes::Odd => 2 * i as i64 + 3,
            Sizes::One => 1,
            Sizes::Prime => [17, 37, 19, 13, 11, 7, 5, 3][i.min(7)],
        }
    }
}

/// Sizes and consts that an op asks for. Other sizes are chosen, other consts are 1.
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

/// Integer inputs whose values have to stay below a size for the run not to end in a fault, though their declared
/// values go further (-1 for no page, a label that is ignored).
const BELOW: &[(&str, &str, &str)] = &[("attention_paged", "table", "P"), ("cross_entropy", "label", "V")];

/// The size that an input's values have to stay below.
pub fn below(op: &str, input: &str) -> Option<&'static str> {
    BELOW.iter().find(|row| row.0 == op && row.1 == input).map(|row| row.2)
}

fn given(op: &str) -> BTreeMap<String, String> {
    let rows = GIVEN.iter().filter(|(name, _)| *name == op).flat_map(|(_, given)| given.split_whitespace());
    rows.filter_map(|g| g.split_once('=')).map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

/// The bindings of an op for a dtype.
pub fn bindings(op: &Op, dtype: &str, sizes: Sizes) -> Bindings {
    let mut given = given(&op.name.text);
    let mut out = Bindings::default();
    for (i, size) in op.sizes.iter().enumerate() {
        let name = size.name.text.clone();
        match &size.kind {
            SizeKind::Plain => {
                let value = given.remove(&name).and_then(|v| v.parse().ok()).unwrap_or(sizes.size(i));
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
    for param in op.params.iter().filter(|p| p.dims.is_none() && p.default.is_none()) {
        let whole = param.is_const || DType::parse(&param.dtype.text).is_some_and(|d| !d.is_float());
        out.consts.insert(param.name.text.clone(), if whole { "1" } else { "0.25" }.to_string());
    }
    out.consts.extend(given);
    out
}
