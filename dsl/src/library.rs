//! The operator library, carried in the program: `import nn` finds its text here.

/// Library modules by name, in alphabetical order. `prelude` is always imported.
const MODULES: &[(&str, &str)] = &[("prelude", include_str!("../std/prelude.tile"))];

/// The text of a library module.
pub fn library(name: &str) -> Option<&'static str> {
    MODULES.iter().find(|(module, _)| *module == name).map(|(_, text)| *text)
}

/// The names of all library modules.
pub fn library_names() -> impl Iterator<Item = &'static str> {
    MODULES.iter().map(|(name, _)| *name)
}
