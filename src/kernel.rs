//! The facade: load a program, choose an op and its sizes, compile it for a device, run it.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::execute::{Compiled, Origin, is_given};
use crate::pipeline::{self, Fusion, Level, Options};
use girih_compiler::ir::graph::{Graph, ScalarId, Tensor, TensorId};
use girih_compiler::ir::plan::{Form, Plan};
use girih_compiler::ir::tile::Tile;
use girih_compiler::lower::Schedule;
use girih_compiler::pass::ast_to_graph::{self, Bindings, listed, listed_or};
use girih_compiler::pass::bind::tiles;
use girih_compiler::pass::check;
use girih_compiler::pass::graph_to_plan::Alternative;
use girih_compiler::pass::module::{self, Module};
use girih_compiler::pass::propose::propose;
use girih_compiler::vocab::dtype::{DType, Value};
use girih_dsl::ast;
use girih_dsl::diagnostic::{Diagnostic, Severity};
use girih_dsl::source::Sources;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// A program, loaded.
#[derive(Clone, Debug)]
pub struct Kernel(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    module: Module,
    sources: Sources,
}

impl Kernel {
    /// Loads a file and what it imports.
    pub fn load(path: impl AsRef<Path>) -> Result<Kernel> {
        let path = path.as_ref();
        Kernel::load_text(path, &read(path)?)
    }

    /// Loads a file's text, and what it imports from beside the file.
    fn load_text(path: &Path, text: &str) -> Result<Kernel> {
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        Kernel::from_parts(&path.display().to_string(), text, &|import| {
            let path = folder.join(import);
            // A device or a pipe need not end; nor is its text the same twice.
            match std::fs::metadata(&path) {
                Ok(m) if !m.is_file() => return Err("it is no regular file".into()),
                Ok(_) => {}
                Err(e) => return Err(e.to_string()),
            }
            let bytes = bytes_of(&path).map_err(|e| e.to_string())?;
            String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_string())
        })
    }

    /// Loads a file under the `tile` blocks of another text, which take the place of what the file says of the same op and
    /// definition. `named` is that text's name, for reports.
    pub fn load_under(path: impl AsRef<Path>, named: &Path, blocks: &str) -> Result<Kernel> {
        let path = path.as_ref();
        let mut sources = Sources::default();
        let file = sources.add(named.display().to_string(), blocks);
        let (theirs, diagnostics) = girih_dsl::parse(blocks, file);
        if diagnostics.iter().any(|d| d.severity == Severity::Error) {
            return Err(program_error(&sources, diagnostics));
        }
        let heads: Vec<(&str, Option<&str>)> = theirs.items.iter().filter_map(tile_head).collect();
        if heads.len() < theirs.items.len() {
            return Err(Error::file(
                named,
                "a schedule file holds `tile` blocks only, or lines `kernel.setting axis = value`",
            ));
        }
        let text = read(path)?;
        let (own, _) = girih_dsl::parse(&text, 0);
        // Blanks, so that what is reported of the file keeps its place.
        let mut merged = text.clone().into_bytes();
        for item in own.items.iter().filter(|i| tile_head(i).is_some_and(|h| heads.contains(&h))) {
            if let ast::Item::Tile(t) = item {
                let bytes = &mut merged[t.span.start as usize..t.span.end as usize];
                bytes.iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
            }
        }
        let merged = String::from_utf8(merged).map_err(|_| Error::file(path, "it is not UTF-8 text"))?;
        let kernel = Kernel::load_text(path, &format!("{merged}\n{blocks}\n"))?;
        match kernel.wrong_blocks_from(merged.len() + 1, file) {
            wrong if wrong.is_empty() => Ok(kernel),
            wrong => Err(program_error(&sources, wrong)),
        }
    }

    /// What is wrong with the blocks from a place of the file on, which are the whole of another one: told of that one.
    fn wrong_blocks_from(&self, start: usize, other: u32) -> Vec<Diagnostic> {
        let Some(root) = self.items().find_map(item_file) else { return Vec::new() };
        let moved = |s: ast::Span| {
            let start = start as u32;
            let theirs = s.file == root && s.start >= start;
            theirs.then(|| ast::Span { file: other, start: s.start - start, end: s.end - start })
        };
        let told = |d: Diagnostic| {
            let more = d.more.iter().filter_map(|(s, words)| Some((moved(*s)?, words.clone()))).collect();
            Some(Diagnostic { span: moved(d.span)?, more, ..d })
        };
        let wrong = tiles::check_blocks(&self.0.module).into_iter();
        wrong.filter(|d| d.severity == Severity::Error).filter_map(told).collect()
    }

    /// The same from a text. It may import the library, and no files.
    pub fn from_text(name: &str, text: &str) -> Result<Kernel> {
        Kernel::from_parts(name, text, &|_| Err("a program given as text cannot import files".into()))
    }

    fn from_parts(
        name: &str,
        text: &str,
        read: &dyn Fn(&str) -> std::result::Result<String, String>,
    ) -> Result<Kernel> {
        let mut sources = Sources::default();
        let loaded = module::load(name, text, &mut sources, read);
        let module = loaded.map_err(|d| program_error(&sources, propose(&sources, d)))?;
        Ok(Kernel(Arc::new(Loaded { module, sources })))
    }

    /// Names of the ops that the file defines.
    pub fn ops(&self) -> Vec<&str> {
        self.0.module.ops().map(|o| o.name.text.as_str()).collect()
    }

    /// Chooses an op by its name.
    pub fn op(&self, name: &str) -> Result<Op> {
        match self.0.module.op(name) {
            Some(_) => Ok(Op::new(self, name)),
            None => {
                let known = listed_or("the file has", "the file defines none", self.ops().into_iter());
                Err(Error::argument(name, format!("there is no such op: {known}")))
            }
        }
    }

    /// The file's only op.
    pub fn only_op(&self) -> Result<Op> {
        match self.ops()[..] {
            [one] => Ok(Op::new(self, one)),
            [] => Err(Error::argument("op", "the file defines no op")),
            ref many => {
                Err(Error::argument("op", format!("the file has several: choose one of {}", listed(many))))
            }
        }
    }

    pub fn sources(&self) -> &Sources {
        &self.0.sources
    }

    /// What the file itself holds, in order.
    pub fn items(&self) -> impl Iterator<Item = &ast::Item> {
        self.0.module.root().file.items.iter()
    }

    /// The file and its imports as one text without comments and `profile` blocks, and with single spaces. What is tuned
    /// under one `tile` block says nothing of another, so those count.
    pub fn plain_text(&self) -> String {
        let mut text = String::new();
        let Loaded { module, sources } = &*self.0;
        for (i, unit) in module.units.iter().enumerate() {
            let span = |item: &ast::Item| match item {
                ast::Item::Profile(p) => Some(p.span),
                _ => None,
            };
            // The library is the compiler's own, of its version.
            if i > 0 && girih_dsl::library(&unit.name).is_some() {
                continue;
            }
            let left_out: Vec<_> = unit.file.items.iter().filter_map(span).collect();
            let Some(file) = unit.file.items.iter().find_map(item_file) else { continue };
            plain(&sources.get(file).text, &left_out, &mut text);
        }
        text
    }

    /// Checks every op of the file, for all sizes as far as that goes. Gives the warnings as text; empty if there are
    /// none. Binding an op finds whatever is wrong with it for its sizes, so a run does not need this.
    pub fn check(&self, color: bool) -> Result<String> {
        let diagnostics = check::check(&self.0.module, &self.0.sources);
        if diagnostics.iter().any(|d| d.severity == Severity::Error) {
            return Err(program_error(&self.0.sources, propose(&self.0.sources, diagnostics)));
        }
        Ok(girih_dsl::render(&self.0.sources, &diagnostics, color))
    }

    /// Checks the op's `profile` blocks, which binding does not look at: whoever takes sizes from them needs this.
    pub fn check_profiles(&self, op: &str) -> Result<()> {
        let profiles = self.items().filter_map(|item| match item {
            ast::Item::Profile(p) if p.op.text == op => Some(p.span),
            _ => None,
        });
        let profiles: Vec<ast::Span> = profiles.collect();
        let within = |d: &Diagnostic| {
            profiles.iter().any(|p| p.file == d.span.file && p.start <= d.span.start && d.span.end <= p.end)
        };
        let mut wrong = tiles::check_blocks(&self.0.module);
        wrong.retain(|d| d.severity == Severity::Error && within(d));
        if wrong.is_empty() { Ok(()) } else { Err(program_error(&self.0.sources, wrong)) }
    }
}

/// The op and the definition that a `tile` block speaks of.
fn tile_head(item: &ast::Item) -> Option<(&str, Option<&str>)> {
    match item {
        ast::Item::Tile(t) => Some((t.op.text.as_str(), t.def.as_ref().map(|d| d.text.as_str()))),
        _ => None,
    }
}

fn item_file(item: &ast::Item) -> Option<u32> {
    Some(match item {
        ast::Item::Import(i) => i.span.file,
        ast::Item::Const(c) => c.span.file,
        ast::Item::Fn(f) => f.span.file,
        ast::Item::Op(o) => o.span.file,
        ast::Item::Tile(t) => t.span.file,
        ast::Item::Profile(p) => p.span.file,
    })
}

/// Adds a text without comments and some spans, and with white space only where it parts two words.
fn plain(text: &str, left_out: &[ast::Span], out: &mut String) {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let code = line.find("//").map_or(line, |i| &line[..i]);
        for (i, c) in code.char_indices() {
            let place = (at + i) as u32;
            if left_out.iter().any(|s| s.start <= place && place < s.end) {
                continue;
            }
            match c.is_whitespace() {
                true if out.ends_with(' ') => {}
                true => out.push(' '),
                false => {
                    let word = |c: char| c.is_alphanumeric() || c == '_';
                    let parted = out.trim_end().chars().next_back().is_some_and(word) && word(c);
                    if !parted && out.ends_with(' ') {
                        out.pop();
                    }
                    out.push(c);
                }
            }
        }
        if !out.ends_with(' ') {
            out.push(' ');
        }
        at += line.len();
    }
}

/// A file's bytes. A device may never end: no more is read than a program may have.
fn bytes_of(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(girih_dsl::MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() > girih_dsl::MAX_BYTES {
        true => Err(std::io::Error::other(format!("it has more than {} MiB", girih_dsl::MAX_BYTES >> 20))),
        false => Ok(bytes),
    }
}

/// A file's text.
pub fn read(path: &Path) -> Result<String> {
    let bytes = bytes_of(path).map_err(|e| Error::file(path, format!("cannot be read: {e}")))?;
    String::from_utf8(bytes).map_err(|e| {
        let line = e.as_bytes()[..e.utf8_error().valid_up_to()].iter().filter(|&&b| b == b'\n').count() + 1;
        Error::file(path, format!("line {line} is not UTF-8 text"))
    })
}

fn program_error(sources: &Sources, diagnostics: Vec<Diagnostic>) -> Error {
    Error::Program { text: girih_dsl::render(sources, &diagnostics, false), diagnostics }
}

/// An op with what has been chosen for it so far.
#[derive(Clone, Debug)]
pub struct Op {
    kernel: Kernel,
    name: String,
    bindings: Bindings,
    schedule: Schedule,
    form: Option<Form>,
    fusion: Fusion,
}

impl Op {
    fn new(kernel: &Kernel, name: &str) -> Op {
        Op {
            kernel: kernel.clone(),
            name: name.to_string(),
            bindings: Bindings::default(),
            schedule: Schedule::default(),
            form: None,
            fusion: Fusion::default(),
        }
    }

    /// Gives a size.
    pub fn dim(mut self, name: &str, value: i64) -> Op {
        self.bindings.dims.insert(name.to_string(), value);
        self
    }

    /// Gives a const parameter, a dtype parameter or a run-time scalar, as it is written in the language.
    pub fn constant(mut self, name: &str, value: impl ToString) -> Op {
        self.bindings.consts.insert(name.to_string(), value.to_string());
        self
    }

    /// Gives an input's dtype and shape, which bind sizes and dtype parameters.
    pub fn input(mut self, name: &str, dtype: DType, dims: &[i64]) -> Op {
        self.bindings.inputs.insert(name.to_string(), (dtype, dims.to_vec()));
        self
    }

    /// Settings on top of the program's `tile` blocks.
    pub fn schedule(mut self, schedule: Schedule) -> Op {
        self.schedule = schedule;
        self
    }

    /// The settings that were given on top of the program's.
    pub fn settings(&self) -> &Schedule {
        &self.schedule
    }

    /// Lowers kernels in this form where it can take them.
    pub fn form(mut self, form: Form) -> Op {
        self.form = Some(form);
        self
    }

    /// How much is fused.
    pub fn fusion(mut self, fusion: Fusion) -> Op {
        self.fusion = fusion;
        self
    }

    /// How much is fused.
    pub fn chosen_fusion(&self) -> Fusion {
        self.fusion
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// What was written.
    pub fn ast(&self) -> &ast::Op {
        self.kernel.0.module.op(&self.name).expect("looked up by Kernel::op").1
    }

    /// Resolves everything that the sizes decide.
    pub fn bind(&self) -> Result<BoundOp> {
        let bound = ast_to_graph::bind(&self.kernel.0.module, &self.name, &self.bindings)
            .map_err(|d| program_error(self.kernel.sources(), propose(self.kernel.sources(), d)))?;
        Ok(BoundOp {
            op: self.clone(),
            graph: Arc::new(bound.graph),
            scalars: bound.scalars,
            warnings: bound.warnings,
        })
    }

    /// Binds and compiles.
    pub fn compile(&self, device: &Device) -> Result<Compiled> {
        self.bind()?.compile(device)
    }
}

/// An op for given sizes, consts and dtypes.
#[derive(Clone, Debug)]
pub struct BoundOp {
    op: Op,
    graph: Arc<Graph>,
    scalars: Vec<(ScalarId, Option<Value>)>,
    warnings: Vec<Diagnostic>,
}

impl BoundOp {
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    pub fn op(&self) -> &Op {
        &self.op
    }

    /// The run-time scalars that are known, and the names of those that are not.
    pub fn scalars(&self) -> (Vec<(String, Value)>, Vec<String>) {
        let mut known = Vec::new();
        let mut open = Vec::new();
        for (id, value) in &self.scalars {
            let name = self.graph.scalars[id.0 as usize].name.clone();
            match value {
                Some(v) => known.push((name, *v)),
                None => open.push(name),
            }
        }
        (known, open)
    }

    /// The same with other settings.
    pub fn with_schedule(&self, schedule: Schedule) -> BoundOp {
        let mut other = self.clone();
        other.op.schedule = schedule;
        other
    }

    /// The same for arguments whose memory is aligned to less.
    pub(crate) fn with_alignment(&self, bytes: &BTreeMap<String, u32>) -> BoundOp {
        let mut other = self.clone();
        let graph = Arc::make_mut(&mut other.graph);
        let results: Vec<(TensorId, String)> =
            graph.outputs.iter().map(|o| (o.tensor, o.name.clone())).collect();
        for (i, t) in graph.tensors.iter_mut().enumerate() {
            let result = results.iter().find(|r| r.0.0 as usize == i).map(|r| &r.1);
            let name = result.or(is_given(t).then_some(&t.name));
            if let Some(&align) = name.and_then(|n| bytes.get(n)) {
                t.align = align;
            }
        }
        other
    }

    /// Alignment in bytes that programs are made for, by argument.
    pub fn alignment(&self) -> BTreeMap<String, u32> {
        let graph = self.graph();
        // Accesses are at most 16 bytes wide; an alignment that is not said is an element's, or for results any.
        let wanted = |t: &Tensor, unsaid: u32| if t.align == 0 { unsaid } else { t.align.min(16) };
        let made = graph.outputs.iter().map(|o| (o.name.clone(), wanted(graph.tensor(o.tensor), 16)));
        let given = self.inputs().map(|t| (t.name.clone(), wanted(t, t.dtype.bits().div_ceil(8))));
        made.chain(given).collect()
    }

    pub fn warnings(&self, color: bool) -> String {
        girih_dsl::render(self.op.kernel.sources(), &self.warnings, color)
    }

    /// The tensors that the caller gives, in order.
    pub fn inputs(&self) -> impl Iterator<Item = &Tensor> {
        self.graph.tensors.iter().filter(|t| is_given(t))
    }

    /// The kernels that it becomes on a device.
    pub fn plan(&self, device: &Device) -> Result<Plan> {
        Ok(pipeline::graph_to_plan(&self.graph, &self.options(device)?))
    }

    /// The plan that the model takes for the best, and up to `most` − 1 others that may be as good.
    pub fn plans(&self, device: &Device, most: usize) -> Result<Vec<Alternative>> {
        Ok(pipeline::graph_to_plans(&self.graph, &self.options(device)?, most))
    }

    /// Their tile level, by name and form; `None` for forms that have none.
    pub fn tiles(&self, device: &Device) -> Result<Vec<(String, Form, Option<Tile>)>> {
        pipeline::graph_to_tiles(&self.graph, self.op.kernel.sources(), &self.options(device)?)
    }

    pub(crate) fn options(&self, device: &Device) -> Result<Options> {
        let (schedule, form, fusion) = (self.op.schedule.clone(), self.op.form, self.op.fusion);
        Ok(Options { target: device.target()?, schedule, form, fusion })
    }

    /// The same planned otherwise.
    pub fn with_fusion(&self, fusion: Fusion) -> BoundOp {
        let mut other = self.clone();
        other.op.fusion = fusion;
        other
    }

    /// The same with its reductions in this form where it can take them.
    pub fn with_form(&self, form: Form) -> BoundOp {
        let mut other = self.clone();
        other.op.form = Some(form);
        other
    }

    /// Compiles for a device: with the settings that were given, otherwise as tuned.
    pub fn compile(&self, device: &Device) -> Result<Compiled> {
        let said = !self.op.schedule.kernels.is_empty() || self.op.form.is_some();
        if said || self.op.fusion != Fusion::default() || matches!(device, Device::Reference) {
            let origin = if matches!(device, Device::Reference) { Origin::Own } else { Origin::Given };
            return Ok(self.compile_as_is(device)?.with_origin(origin));
        }
        crate::tune::choose::compile(self, device)
    }

    /// Compiles with the settings that were given and the forms' own choices, whatever was tuned.
    pub fn compile_as_is(&self, device: &Device) -> Result<Compiled> {
        self.compile_seeing(device, &mut |_| ())
    }

    /// Compiles a plan of this op that was made before (see [`BoundOp::plan`]).
    pub fn compile_plan(&self, plan: &Plan, device: &Device) -> Result<Compiled> {
        let options = self.options(device)?;
        let start = Instant::now();
        let sources = self.op.kernel.sources();
        let lowered = pipeline::plan_to_cuda(plan.clone(), sources, &options, &mut |_| ())?;
        Compiled::new(self, device, lowered, start.elapsed())
    }

    /// Compiles, and shows each level as it is made.
    pub fn compile_seeing(&self, device: &Device, see: &mut dyn FnMut(Level<'_>)) -> Result<Compiled> {
        if matches!(device, Device::Reference) {
            return Compiled::for_reference(self);
        }
        let options = self.options(device)?;
        let start = Instant::now();
        let lowered = pipeline::graph_to_cuda(&self.graph, self.op.kernel.sources(), &options, see)?;
        Compiled::new(self, device, lowered, start.elapsed())
    }
}
