//! A module: a root text with everything it imports, and what each callable and constant name in it means.
//!
//! Callables (ops, fns) and values (consts) are two spaces. A file's own name wins over an imported one, that over
//! the prelude. Files are read through a callback, so this stage does no I/O.

use girih_dsl::ast::*;
use girih_dsl::diagnostic::{Diagnostic, Severity};
use girih_dsl::source::Sources;
use rustc_hash::FxHashMap as HashMap;

/// A file of the module. Unit 0 is the root.
#[derive(Clone, Debug)]
pub struct Unit {
    /// What `import` called it: a library's name or a path.
    pub name: String,
    /// What stands before the dot in `nn.f`: a library's name, or a file's without folder and extension.
    pub qualifier: String,
    pub file: File,
    /// The units it imports, in order.
    pub imports: Vec<usize>,
    callables: HashMap<String, usize>,
    consts: HashMap<String, usize>,
}

/// Everything that was loaded, parsed without errors.
#[derive(Clone, Debug)]
pub struct Module {
    pub units: Vec<Unit>,
    /// What is odd, but not wrong, in how the files hang together.
    pub warnings: Vec<Diagnostic>,
    /// The unit that is always there, below all imports.
    prelude: usize,
}

/// An op or fn, where it is defined.
#[derive(Clone, Copy, Debug)]
pub enum Callable<'m> {
    Op(usize, &'m Op),
    Fn(usize, &'m Function),
}

/// The answer to a look-up of a name.
pub enum Found<T> {
    One(T),
    /// Two imports have it: their qualifiers.
    Clash(String, String),
    None,
}

impl Module {
    pub fn root(&self) -> &Unit {
        &self.units[0]
    }

    /// The op of this name that the root file defines or imports.
    pub fn op(&self, name: &str) -> Option<(usize, &Op)> {
        match self.callable(0, None, name) {
            Found::One(Callable::Op(unit, op)) => Some((unit, op)),
            _ => None,
        }
    }

    /// The ops that the root file defines, in order.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        self.root().file.items.iter().filter_map(|i| if let Item::Op(o) = i { Some(o) } else { None })
    }

    /// What `name(…)` or `lib.name(…)` means in a unit.
    pub fn callable(&self, unit: usize, lib: Option<&str>, name: &str) -> Found<Callable<'_>> {
        let at = |u: usize| {
            let item = &self.units[u].file.items[*self.units[u].callables.get(name)?];
            match item {
                Item::Op(op) => Some(Callable::Op(u, op)),
                Item::Fn(f) => Some(Callable::Fn(u, f)),
                _ => None,
            }
        };
        self.find(unit, lib, at)
    }

    /// What a constant's name means in a unit.
    pub fn constant(&self, unit: usize, name: &str) -> Found<(usize, &Constant)> {
        let at = |u: usize| match &self.units[u].file.items[*self.units[u].consts.get(name)?] {
            Item::Const(c) => Some((u, c)),
            _ => None,
        };
        self.find(unit, None, at)
    }

    fn find<T>(&self, unit: usize, lib: Option<&str>, at: impl Fn(usize) -> Option<T>) -> Found<T> {
        if lib.is_none()
            && let Some(own) = at(unit)
        {
            return Found::One(own);
        }
        let mut found: Option<(usize, T)> = None;
        for &i in &self.units[unit].imports {
            if lib.is_some_and(|l| l != self.units[i].qualifier) {
                continue;
            }
            if let Some(it) = at(i) {
                if let Some((first, _)) = &found {
                    let names = |u: usize| self.units[u].qualifier.clone();
                    return Found::Clash(names(*first), names(i));
                }
                found = Some((i, it));
            }
        }
        match found {
            Some((_, it)) => Found::One(it),
            None if lib.is_some() => Found::None,
            None => at(self.prelude).map_or(Found::None, Found::One),
        }
    }

    /// Names of callables that a unit may use, for suggestions.
    pub fn callable_names(&self, unit: usize) -> impl Iterator<Item = &str> {
        let units = std::iter::once(unit).chain(self.units[unit].imports.iter().copied());
        units.chain([self.prelude]).flat_map(|u| self.units[u].callables.keys().map(String::as_str))
    }

    /// Has the unit an import of this qualifier?
    pub fn imports_as(&self, unit: usize, lib: &str) -> bool {
        self.units[unit].imports.iter().any(|&i| self.units[i].qualifier == lib)
    }
}

/// Parses the root text and everything it imports. Errors of all files are reported together.
pub fn load(
    root_name: &str,
    root_text: &str,
    sources: &mut Sources,
    read: &dyn Fn(&str) -> Result<String, String>,
) -> Result<Module, Vec<Diagnostic>> {
    let mut loader = Loader {
        sources,
        read,
        units: Vec::new(),
        open: Vec::new(),
        known: HashMap::default(),
        diags: Vec::new(),
        missing: Vec::new(),
        imported: true,
    };
    loader.unit(root_name, stem(root_name), root_text);
    let prelude = match girih_dsl::library("prelude") {
        Some(text) => loader.unit("prelude", "prelude".into(), text),
        None => loader.unit("prelude", "prelude".into(), ""),
    };
    let (diags, missing, imported) = (loader.diags, loader.missing, loader.imported);
    let wrong = diags.iter().any(|d| d.severity == Severity::Error);
    let warnings = if wrong { Vec::new() } else { diags.clone() };
    let module = Module { units: loader.units, warnings, prelude };
    if wrong {
        return Err(with_those_of_the_rest(&module, diags, &missing, imported));
    }
    Ok(module)
}

/// The errors so far, and those of the items that could be read: the ones that come of what could not be read are left out.
fn with_those_of_the_rest(
    module: &Module,
    mut diags: Vec<Diagnostic>,
    missing: &[String],
    imported: bool,
) -> Vec<Diagnostic> {
    let follows = |d: &Diagnostic| {
        let unknown = matches!(d.code, "E0102" | "E0105" | "E0108" | "E0109" | "E0512" | "E0601");
        !imported && unknown || missing.iter().any(|name| d.message.contains(&format!("`{name}`")))
    };
    let more = super::check::check(module, &Sources::default());
    diags.extend(more.into_iter().filter(|d| d.severity == Severity::Error && !follows(d)));
    diags.sort_by_key(|d| d.span);
    diags
}

struct Loader<'a> {
    sources: &'a mut Sources,
    read: &'a dyn Fn(&str) -> Result<String, String>,
    units: Vec<Unit>,
    /// Names of the units that are being loaded, outermost first.
    open: Vec<String>,
    known: HashMap<String, usize>,
    diags: Vec<Diagnostic>,
    /// Names of items that could not be read.
    missing: Vec<String>,
    /// Could all imports be?
    imported: bool,
}

impl Loader<'_> {
    fn unit(&mut self, name: &str, qualifier: String, text: &str) -> usize {
        let source = self.sources.add(name, text);
        // A parser by recursive descent needs room for nested brackets.
        let (file, diags) = super::ast_to_graph::with_stack(|| girih_dsl::parse(text, source));
        if diags.iter().any(|d| d.severity == Severity::Error) {
            let read =
                |name: &String| file.items.iter().any(|i| item_name(i).is_some_and(|n| n.text == *name));
            self.missing.extend(girih_dsl::rewrite::item_names(text).into_iter().filter(|n| !read(n)));
        }
        self.diags.extend(diags);
        let index = self.units.len();
        self.known.insert(name.to_string(), index);
        let (callables, consts) = self.index(&file);
        let imports = Vec::new();
        self.units.push(Unit {
            name: name.into(),
            qualifier,
            file: File::default(),
            imports,
            callables,
            consts,
        });
        self.open.push(name.to_string());
        let mut imports = Vec::new();
        for item in &file.items {
            if let Item::Import(import) = item
                && let Some(unit) = self.import(name, import)
            {
                match imports.contains(&unit) {
                    true => self.diags.push(
                        Diagnostic::warning("W0002", import.span, "this is imported twice")
                            .help("delete the line"),
                    ),
                    false => imports.push(unit),
                }
            }
        }
        self.open.pop();
        self.units[index].imports = imports;
        self.units[index].file = file;
        index
    }

    fn import(&mut self, from: &str, import: &Import) -> Option<usize> {
        let unit = self.imported(from, import);
        self.imported &= unit.is_some();
        unit
    }

    fn imported(&mut self, from: &str, import: &Import) -> Option<usize> {
        let (name, qualifier, text) = match &import.what {
            ImportTarget::Library(n) => {
                (n.text.clone(), n.text.clone(), girih_dsl::library(&n.text).map(Into::into))
            }
            ImportTarget::File { path, .. } => {
                let full = beside(from, path);
                (full.clone(), stem(&full), None)
            }
        };
        if self.open.contains(&name) {
            let chain = self.open.iter().skip_while(|o| **o != name).cloned().chain([name.clone()]);
            let chain = chain.collect::<Vec<_>>().join(" → ");
            let d = Diagnostic::error("E0123", import.span, format!("imports go in a circle: {chain}"));
            self.diags.push(d.help("move what both need to a third file"));
            return None;
        }
        if let Some(&unit) = self.known.get(&name) {
            return Some(unit);
        }
        let text = match (text, &import.what) {
            (Some(text), _) => text,
            (None, ImportTarget::Library(n)) => {
                let d = Diagnostic::error("E0121", n.span, format!("there is no library `{name}`"));
                let all = libraries();
                self.diags.push(d.help(match girih_dsl::foreign::is_library(&name) {
                    true => format!(
                        "functions such as exp and sum need no import: leave the line out; there are {all}"
                    ),
                    false => format!(
                        "there are {all}; a file is imported by its path in quotes: import \"my.tile\""
                    ),
                }));
                return None;
            }
            (None, ImportTarget::File { span, .. }) => match (self.read)(&name) {
                Ok(text) => text,
                Err(why) => {
                    let d = Diagnostic::error("E0122", *span, format!("`{name}` cannot be read: {why}"));
                    let ImportTarget::File { path, .. } = &import.what else { return None };
                    let library = path.trim_end_matches(".tile");
                    self.diags.push(match girih_dsl::library(library).is_some() {
                        true => d.help(format!("a library has no quotes: write `import {library}`")),
                        false => d.help("paths are relative to the file that imports"),
                    });
                    return None;
                }
            },
        };
        Some(self.unit(&name, qualifier, &text))
    }

    /// Positions of the items by name. A name defined twice is an error.
    fn index(&mut self, file: &File) -> (HashMap<String, usize>, HashMap<String, usize>) {
        let (mut callables, mut consts) = (HashMap::default(), HashMap::default());
        let mut first: HashMap<(bool, &str), Span> = HashMap::default();
        for (i, item) in file.items.iter().enumerate() {
            let Some(name) = item_name(item) else { continue };
            let value = matches!(item, Item::Const(_));
            if let Some(&before) = first.get(&(value, name.text.as_str())) {
                let d = Diagnostic::error("E0101", name.span, format!("`{}` is defined twice", name.text));
                self.diags.push(d.also(before, "first here").help("give one of them another name"));
                continue;
            }
            first.insert((value, &name.text), name.span);
            let map = if value { &mut consts } else { &mut callables };
            map.insert(name.text.clone(), i);
        }
        (callables, consts)
    }
}

/// The name that an item gives to something.
fn item_name(item: &Item) -> Option<&Name> {
    match item {
        Item::Op(o) => Some(&o.name),
        Item::Fn(f) => Some(&f.name),
        Item::Const(c) => Some(&c.name),
        Item::Import(_) | Item::Tile(_) | Item::Profile(_) => None,
    }
}

/// A file's name without folder and extension.
fn stem(path: &str) -> String {
    let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).to_string()
}

/// `path` seen from the folder of the file `from`, without `./` and `x/../` parts.
fn beside(from: &str, path: &str) -> String {
    if path.starts_with('/') {
        return path.to_string();
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for p in path.split('/') {
        match p {
            "." | "" => {}
            ".." if parts.last().is_some_and(|l| *l != ".." && !l.is_empty()) => {
                parts.pop();
            }
            p => parts.push(p),
        }
    }
    parts.join("/")
}

/// The libraries that can be imported, in words.
pub fn libraries() -> String {
    let names: Vec<&str> = girih_dsl::library_names().filter(|n| *n != "prelude").collect();
    names.join(", ")
}
