//! The operator library, carried in the program: `import nn` finds its text here.

/// Library modules by name, in alphabetical order. `prelude` is always imported.
const MODULES: &[(&str, &str)] = &[
    ("attention", include_str!("../std/attention.tile")),
    ("conv", include_str!("../std/conv.tile")),
    ("image", include_str!("../std/image.tile")),
    ("linalg", include_str!("../std/linalg.tile")),
    ("loss", include_str!("../std/loss.tile")),
    ("moe", include_str!("../std/moe.tile")),
    ("nn", include_str!("../std/nn.tile")),
    ("norm", include_str!("../std/norm.tile")),
    ("optim", include_str!("../std/optim.tile")),
    ("pool", include_str!("../std/pool.tile")),
    ("prelude", include_str!("../std/prelude.tile")),
    ("quant", include_str!("../std/quant.tile")),
    ("rnn", include_str!("../std/rnn.tile")),
    ("scan", include_str!("../std/scan.tile")),
];

/// The text of a library module.
pub fn library(name: &str) -> Option<&'static str> {
    MODULES.iter().find(|(module, _)| *module == name).map(|(_, text)| *text)
}

/// The module that defines an op or fn of this name.
pub fn library_with(name: &str) -> Option<&'static str> {
    let heads = ["op", "fn"].map(|kind| format!("{kind} {name}"));
    let defines = |line: &str| {
        let rest = heads.iter().find_map(|h| line.strip_prefix(h.as_str()));
        rest.is_some_and(|rest| rest.starts_with(['(', '[', ' ']) || rest.is_empty())
    };
    MODULES.iter().find(|(_, text)| text.lines().any(defines)).map(|(module, _)| *module)
}

/// The names of all library modules.
pub fn library_names() -> impl Iterator<Item = &'static str> {
    MODULES.iter().map(|(name, _)| *name)
}
