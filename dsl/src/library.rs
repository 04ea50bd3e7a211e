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
    library_names().find(|module| library_has(module, name))
}

/// The names of all library modules.
pub fn library_names() -> impl Iterator<Item = &'static str> {
    MODULES.iter().map(|(name, _)| *name)
}

/// The ops and fns that a module defines, in the order of its text.
pub fn library_items(module: &str) -> impl Iterator<Item = &'static str> {
    let lines = library(module).unwrap_or_default().lines();
    lines.filter_map(|line| {
        let rest = line.strip_prefix("op ").or_else(|| line.strip_prefix("fn "))?;
        rest.split(['(', '[', ' ']).next().filter(|name| !name.is_empty())
    })
}

/// Does a module define an op or fn of this name?
pub fn library_has(module: &str, name: &str) -> bool {
    library_items(module).any(|item| item == name)
}
