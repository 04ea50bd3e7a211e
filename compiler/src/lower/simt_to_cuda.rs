//! simt → CUDA C text. Decides nothing: each statement is a line or a block; the helpers used stand in front.
//!
//! Facts of the text:
//! - No header is included; NVRTC's own declarations and the prelude are enough. `--fmad=false` is assumed.
//! - Shared arrays that do not fit 48 KiB together are carved out of dynamic shared memory, at the offsets of
//!   `Kernel::shared_bytes`, whose total the launch gives.
//! - 4-bit stores rewrite a byte: a thread owns whole bytes (the simulator reports where that is not so).
//! - Shuffles, ballots, atomics and intrinsics declare their result if nothing has before.

use super::cuda_expr::Writer;
use super::cuda_prelude;
use crate::ir::program::Program;
use crate::ir::simt::*;
use crate::sim::intrinsics;
use crate::vocab::cuda::{Prec, stored_type, type_name};
use crate::vocab::dtype::{DType, Value};
use crate::vocab::target::Target;
use girih_dsl::ast::Span;
use girih_dsl::source::Sources;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;

pub use super::cuda_names::mangle;

/// All kernels of a program as one text.
pub fn print(program: &Program, target: &Target, sources: &Sources) -> String {
    print_kernels(&program.kernels.iter().collect::<Vec<_>>(), target, sources)
}

/// One kernel, with the helpers that it uses.
pub fn print_kernel(kernel: &Kernel, target: &Target, sources: &Sources) -> String {
    print_kernels(&[kernel], target, sources)
}

fn print_kernels(kernels: &[&Kernel], target: &Target, sources: &Sources) -> String {
    let mut helpers = BTreeSet::new();
    let mut wrappers = BTreeMap::new();
    let mut bodies = String::new();
    for kernel in kernels {
        let mut p = Printer::new(kernel, target, sources);
        bodies.push('\n');
        bodies.push_str(&p.kernel());
        helpers.extend(p.writer.helpers);
        wrappers.extend(p.wrappers);
    }
    let mut out = format!("// Girih, for {}.\n{}", target.name, cuda_prelude::TYPES);
    let definitions = cuda_prelude::definitions(&helpers, target);
    for part in std::iter::once(definitions).chain(wrappers.into_values()).filter(|p| !p.is_empty()) {
        out.push('\n');
        out.push_str(&part);
    }
    out + &bodies
}

struct Printer<'a> {
    kernel: &'a Kernel,
    target: &'a Target,
    sources: &'a Sources,
    writer: Writer<'a>,
    /// Definitions of intrinsics by name.
    wrappers: BTreeMap<String, String>,
    /// Variables that statements set after their declaration.
    changed: HashSet<VarId>,
    declared: HashSet<VarId>,
    out: String,
    depth: usize,
    line: Option<Span>,
}

impl<'a> Printer<'a> {
    fn new(kernel: &'a Kernel, target: &'a Target, sources: &'a Sources) -> Printer<'a> {
        let mut changed = HashSet::new();
        note_changed(&kernel.body, &mut changed);
        Printer {
            kernel,
            target,
            sources,
            writer: Writer::new(kernel),
            wrappers: BTreeMap::new(),
            changed,
            declared: HashSet::new(),
            out: String::new(),
            depth: 0,
            line: None,
        }
    }

    fn kernel(&mut self) -> String {
        let params: Vec<String> = (0..self.kernel.params.len()).map(|i| self.param(i)).collect();
        let bounds = match self.kernel.min_blocks {
            0 => format!("{}", self.kernel.threads()),
            n => format!("{}, {n}", self.kernel.threads()),
        };
        let [x, y, z] = self.kernel.cluster;
        let cluster = match self.target.clusters && x.max(1) * y.max(1) * z.max(1) > 1 {
            true => format!(" __cluster_dims__({x}, {y}, {z})"),
            false => String::new(),
        };
        self.out.push_str(&format!("extern \"C\" __global__ void __launch_bounds__({bounds}){cluster}\n"));
        self.out.push_str(&format!("{}({}) {{\n", self.kernel.name, params.join(", ")));
        self.depth = 1;
        self.shared();
        for (array, name) in self.kernel.arrays.iter().zip(self.writer.arrays.clone()) {
            if !array.named {
                self.say(format!("{} {name}[{}];", type_name(array.ty), array.len.max(1)));
                continue;
            }
            let key = format!("{name}_at");
            self.wrappers.entry(key).or_insert_with(|| intrinsics::named_registers(array.ty, &name));
            self.say(intrinsics::named_declaration(array.ty, &name, array.len));
        }
        self.block(&self.kernel.body);
        self.out.push_str("}\n");
        std::mem::take(&mut self.out)
    }

    fn param(&self, i: usize) -> String {
        let name = &self.writer.params[i];
        match self.kernel.params[i].kind {
            ParamKind::TensorMap(_) => format!("const __grid_constant__ TensorMap {name}"),
            ParamKind::Pointer { dtype, written: true, .. } => format!("{}* {name}", stored_type(dtype)),
            // NVRTC 13.0 to 13.5 crashes for sm_100 and later where a loop reads an element of a `__restrict__` integer
            // array that does not change in it, and branches on its range (every checked index does).
            ParamKind::Pointer { dtype, .. } if self.target.compute.0 >= 10 && dtype.is_int() => {
                format!("const {}* {name}", stored_type(dtype))
            }
            ParamKind::Pointer { dtype, .. } => format!("const {}* __restrict__ {name}", stored_type(dtype)),
            ParamKind::Scalar(ty) => format!("{} {name}", type_name(ty)),
        }
    }

    fn shared(&mut self) {
        let dynamic = self.kernel.dynamic_shared_bytes() > 0;
        if dynamic {
            let align = self.kernel.shared.iter().map(|s| s.align).max().unwrap_or(16).max(16);
            self.say(format!("extern __shared__ __align__({align}) u8 shared_memory[];"));
        }
        let names = self.writer.shared.clone();
        for ((s, name), at) in self.kernel.shared.iter().zip(names).zip(self.kernel.shared_offsets()) {
            let ty = stored_type(s.dtype);
            if dynamic {
                self.say(format!("{ty}* const {name} = ({ty}*)(shared_memory + {at});"));
            } else {
                let len = (s.len * s.dtype.bits()).div_ceil(s.dtype.bits().max(8)).max(1);
                self.say(format!("__shared__ __align__({}) {ty} {name}[{len}];", s.align.max(1)));
            }
        }
    }

    fn say(&mut self, text: impl AsRef<str>) {
        for _ in 0..self.depth {
            self.out.push_str("    ");
        }
        self.out.push_str(text.as_ref());
        self.out.push('\n');
    }

    fn block(&mut self, stmts: &[Stmt]) {
        stmts.iter().for_each(|s| self.stmt(s));
    }

    fn nested(&mut self, stmts: &[Stmt]) {
        let before = self.declared.clone();
        self.depth += 1;
        self.block(stmts);
        self.depth -= 1;
        self.declared = before;
    }

    fn any(&mut self, e: &Expr) -> String {
        self.writer.expr(e, Prec::Any)
    }

    fn stmt(&mut self, s: &Stmt) {
        match s {
            Stmt::Let(v, e) => {
                let e = self.any(e);
                self.declared.insert(*v);
                let fixed = if self.changed.contains(v) { "" } else { "const " };
                let (ty, name) = (type_name(self.kernel.vars[v.0 as usize].ty), self.var(*v));
                self.say(format!("{fixed}{ty} {name} = {e};"));
            }
            Stmt::Set(v, e) => {
                let text = self.assignment(*v, e);
                self.say(text);
            }
            Stmt::SetElem(a, i, e) => {
                if let (Expr::Elem(from, at), false) = (e, self.writer.named(*a))
                    && self.writer.named(*from)
                {
                    // A statement instead of a function of the register's number: compilers are quicker with it.
                    let (to, at) = (self.any(&Expr::Elem(*a, Box::new(i.clone()))), self.any(at));
                    let name = &self.writer.arrays[from.0 as usize];
                    let ty = self.kernel.arrays[from.0 as usize].ty;
                    return self.say(intrinsics::named_read(ty, name, &at, &to));
                }
                let (i, e) = (self.any(i), self.any(e));
                let name = &self.writer.arrays[a.0 as usize];
                let text = match self.writer.named(*a) {
                    true => format!("{name}_set<{i}>({e});"),
                    false => format!("{name}[{i}] = {e};"),
                };
                self.say(text);
            }
            Stmt::Store(mem, i, e) => self.store(*mem, i, e),
            Stmt::LoadVec { array, at, mem, index, count } => self.load_vec(*array, *at, *mem, index, *count),
            Stmt::StoreVec { mem, index, array, at, count } => {
                self.store_vec(*array, *at, *mem, index, *count)
            }
            Stmt::For { .. } => self.for_loop(s),
            Stmt::While { cond, body } => {
                let cond = self.any(cond);
                self.say(format!("while ({cond}) {{"));
                self.nested(body);
                self.say("}");
            }
            Stmt::If { cond, then, otherwise } => self.branch(cond, then, otherwise),
            Stmt::Barrier => self.say("__syncthreads();"),
            Stmt::WarpBarrier => self.say("__syncwarp();"),
            Stmt::Fence => self.say("__threadfence();"),
            Stmt::Shuffle { var, kind, value, lane } => self.shuffle(*var, *kind, value, lane),
            Stmt::Ballot { var, pred } => {
                let pred = self.any(pred);
                self.result(*var, &format!("__ballot_sync(0xffffffffu, {pred})"));
            }
            Stmt::Atomic { op, mem, index, value, old } => self.atomic(*op, *mem, index, value, *old),
            Stmt::Intrinsic { op, outs, args } => self.intrinsic(*op, outs, args),
            Stmt::Fault { fault, site, value } => {
                let value = self.any(value);
                let fault = self.writer.params[fault.0 as usize].clone();
                self.writer.helpers.insert("record_fault");
                self.say(format!("record_fault({fault}, {site}, {value});"));
            }
            Stmt::Line(span) => self.source_line(*span),
            Stmt::Comment(text) => self.comment(text),
        }
    }

    fn var(&self, v: VarId) -> &str {
        &self.writer.vars[v.0 as usize]
    }

    /// `x = x + e` as `x += e` where C has the operator.
    fn assignment(&mut self, v: VarId, e: &Expr) -> String {
        let name = self.var(v).to_string();
        if let Some((op, rest)) = self.writer.compound(v, e) {
            let rest = self.any(rest);
            return format!("{name} {op}= {rest};");
        }
        let e = self.any(e);
        format!("{name} = {e};")
    }

    /// Sets a variable to the result of a call, declaring it if nothing has.
    fn result(&mut self, v: VarId, call: &str) {
        let name = self.var(v);
        let ty = type_name(self.kernel.vars[v.0 as usize].ty);
        let text = match self.declared.contains(&v) {
            true => format!("{name} = {call};"),
            false => format!("{ty} {name} = {call};"),
        };
        self.declared.insert(v);
        self.say(text);
    }

    fn source_line(&mut self, span: Span) {
        if self.line == Some(span) || span == Span::default() || span.file as usize >= self.sources.len() {
            return;
        }
        self.line = Some(span);
        let source = self.sources.get(span.file);
        let (line, _) = self.sources.line_column(span);
        let text = source.text.lines().nth(line - 1).unwrap_or("").trim();
        self.comment(&format!("{}:{line}  {text}", source.name));
    }

    fn comment(&mut self, text: &str) {
        // A backslash at the end would take the next line into the comment.
        let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.say(format!("// {}", plain.trim_end_matches(['\\', ' '])));
    }

    fn branch(&mut self, cond: &Expr, then: &[Stmt], otherwise: &[Stmt]) {
        let text = self.any(cond);
        self.say(format!("if ({text}) {{"));
        self.nested(then);
        if !otherwise.is_empty() {
            self.say("} else {");
            self.nested(otherwise);
        }
        self.say("}");
    }

    fn for_loop(&mut self, s: &Stmt) {
        let Stmt::For { var, lo, hi, step, unroll, body } = s else { return };
        match unroll {
            Unroll::Auto => {}
            Unroll::Full => self.say("#pragma unroll"),
            Unroll::By(n) => self.say(format!("#pragma unroll {n}")),
            Unroll::None => self.say("#pragma unroll 1"),
        }
        let (ty, name) = (type_name(self.kernel.vars[var.0 as usize].ty), self.var(*var).to_string());
        let mut head = format!("{ty} {name} = {}", self.any(lo));
        let mut fixed = |p: &mut Self, e: &Expr, suffix: &str| {
            if p.is_fixed(e) {
                return p.writer.expr(e, Prec::Less.tighter());
            }
            let text = p.any(e);
            let bound = p.writer.names.unique(&format!("{name}_{suffix}"));
            let _ = write!(head, ", {bound} = {text}");
            bound
        };
        let hi = fixed(self, hi, "end");
        let by = match step {
            Expr::Lit(Value::I32(1) | Value::I64(1)) => format!("++{name}"),
            step => format!("{name} += {}", fixed(self, step, "step")),
        };
        self.say(format!("for ({head}; {name} < {hi}; {by}) {{"));
        self.declared.insert(*var);
        self.nested(body);
        self.say("}");
    }

    /// Whether an expression is cheap and the same at each evaluation.
    fn is_fixed(&self, e: &Expr) -> bool {
        match e {
            Expr::Lit(_) | Expr::U32(_) | Expr::Param(_) | Expr::Special(_) => true,
            Expr::Var(v) => !self.changed.contains(v),
            _ => false,
        }
    }

    fn store(&mut self, mem: Mem, i: &Expr, e: &Expr) {
        let dtype = self.writer.dtype(mem);
        let value = self.any(e);
        let name = self.writer.mem(mem);
        let text = match dtype {
            DType::I4 | DType::U4 => {
                let i = self.any(i);
                let value = self.writer.encoded(dtype, value);
                self.writer.helpers.insert("store_nibble");
                format!("store_nibble({name}, {i}, {value});")
            }
            _ => {
                let i = self.any(i);
                let value = self.writer.encoded(dtype, value);
                format!("{name}[{i}] = {value};")
            }
        };
        self.say(text);
    }

    fn shuffle(&mut self, var: VarId, kind: ShuffleKind, value: &Expr, lane: &Expr) {
        let function = match kind {
            ShuffleKind::Index => "__shfl_sync",
            ShuffleKind::Xor => "__shfl_xor_sync",
            ShuffleKind::Up => "__shfl_up_sync",
            ShuffleKind::Down => "__shfl_down_sync",
        };
        let bool = self.writer.ty(value) == Ty::Bool;
        let (value, lane) = (self.any(value), self.any(lane));
        let call = match bool {
            true => format!("{function}(0xffffffffu, int({value}), {lane}) != 0"),
            false => format!("{function}(0xffffffffu, {value}, {lane})"),
        };
        self.result(var, &call);
    }

    fn atomic(&mut self, op: AtomicOp, mem: Mem, index: &Expr, value: &Expr, old: Option<VarId>) {
        let dtype = self.writer.dtype(mem);
        let (i, value) = (self.any(index), self.any(value));
        let place = format!("&{}[{i}]", self.writer.mem(mem));
        let (function, wide) = match (op, dtype) {
            (AtomicOp::Min, DType::F32) => ("atomic_min_f32", false),
            (AtomicOp::Max, DType::F32) => ("atomic_max_f32", false),
            (AtomicOp::Min, DType::F64) => ("atomic_min_f64", false),
            (AtomicOp::Max, DType::F64) => ("atomic_max_f64", false),
            (AtomicOp::Exchange, DType::F64) => ("atomic_exchange_f64", false),
            (AtomicOp::Add, d) => ("atomicAdd", d == DType::I64),
            (AtomicOp::Exchange, d) => ("atomicExch", d == DType::I64),
            (AtomicOp::Or, d) => ("atomicOr", d == DType::I64),
            (AtomicOp::Min, _) => ("atomicMin", false),
            (AtomicOp::Max, _) => ("atomicMax", false),
        };
        if function.starts_with("atomic_") {
            self.writer.helpers.insert(function);
        }
        let call = match wide {
            true => format!("{function}((u64*){place}, u64({value}))"),
            false => format!("{function}({place}, {value})"),
        };
        match old {
            Some(v) if wide => self.result(v, &format!("i64({call})")),
            Some(v) => self.result(v, &call),
            None => self.say(format!("{call};")),
        }
    }

    fn intrinsic(&mut self, op: Intrinsic, outs: &[Place], args: &[Expr]) {
        let mut name = intrinsics::name(op);
        let named = match (op, outs.first()) {
            (Intrinsic::Wgmma { .. }, Some(&Place::Elem(a, i))) if self.writer.named(a) => {
                Some((self.writer.arrays[a.0 as usize].clone(), i))
            }
            _ => None,
        };
        if let Some((array, first)) = &named {
            let _ = write!(name, "_{array}_{first}");
        }
        if matches!(
            op,
            Intrinsic::TmaLoad { .. }
                | Intrinsic::TmaPixels { .. }
                | Intrinsic::TmaMulticast { .. }
                | Intrinsic::TmaStore { .. }
        ) {
            self.writer.helpers.insert("tensor_map");
        }
        // `cp_async_wait<n>` has one definition for all n.
        let key = name.split('<').next().unwrap_or(&name).to_string();
        self.wrappers.entry(key).or_insert_with(|| match &named {
            Some((array, first)) => intrinsics::definition_of_named(op, array, *first),
            None => intrinsics::definition(op),
        });
        let mut operands = Vec::new();
        let of_warpgroup = matches!(op, Intrinsic::Wgmma { .. } | Intrinsic::WgmmaRegs { .. });
        if let (true, None, Some(Place::Elem(a, i))) = (of_warpgroup, &named, outs.first()) {
            // The accumulators are neighbours in their array.
            operands.push(format!("{} + {i}", self.writer.arrays[a.0 as usize]));
        }
        let outs = if of_warpgroup { &[] } else { outs };
        for out in outs {
            operands.push(match out {
                Place::Var(v) => {
                    if self.declared.insert(*v) {
                        let ty = type_name(self.kernel.vars[v.0 as usize].ty);
                        self.say(format!("{ty} {};", self.writer.vars[v.0 as usize]));
                    }
                    self.var(*v).to_string()
                }
                Place::Elem(a, i) => format!("{}[{i}]", self.writer.arrays[a.0 as usize]),
            });
        }
        if let Intrinsic::CpAsync { mem, .. } = op
            && let [to, index, valid] = args
        {
            let from = self.writer.address(Mem::Global(mem), index);
            operands.extend([self.any(to), from, self.any(valid)]);
        } else if let Intrinsic::PublishWord { mem } | Intrinsic::AwaitWords { mem, .. } = op
            && let [index, word] = args
        {
            let at = self.writer.address(Mem::Global(mem), index);
            operands.extend([at, self.any(word)]);
        } else {
            operands.extend(args.iter().map(|a| self.writer.expr(a, Prec::Any)));
        }
        if let Intrinsic::TmaLoad { map, .. }
        | Intrinsic::TmaPixels { map, .. }
        | Intrinsic::TmaMulticast { map, .. } = op
        {
            operands.insert(2, format!("&{}", self.writer.params[map.0 as usize]));
        }
        if let Intrinsic::TmaStore { map, .. } = op {
            operands.insert(1, format!("&{}", self.writer.params[map.0 as usize]));
        }
        self.say(format!("{name}({});", operands.join(", ")));
    }
}

/// Bits of one transfer as C's vector type, its parts, and the type of a part.
fn vector_type(bytes: u32, part: &str) -> (String, Vec<&'static str>) {
    const PARTS: [&str; 4] = [".x", ".y", ".z", ".w"];
    let size = if matches!(part, "double" | "longlong") { 8 } else { 4 };
    match bytes / size {
        1 => (if part == "uint" { "u32".into() } else { part.to_string() }, vec![""]),
        n => (format!("{part}{n}"), PARTS[..n as usize].to_vec()),
    }
}

impl Printer<'_> {
    /// The vector type that moves `count` elements, its parts, and whether a part is one element as it stands.
    fn vector(&self, array: ArrayId, dtype: DType, count: u32) -> (String, Vec<&'static str>, bool) {
        let raw = self.kernel.arrays[array.0 as usize].ty == Ty::U32;
        let bytes = count * dtype.bits() / 8;
        let part = match dtype {
            _ if raw => "uint",
            DType::F32 => "float",
            DType::I32 => "int",
            DType::F64 => "double",
            DType::I64 => "longlong",
            _ => "uint",
        };
        let whole = raw || matches!(dtype, DType::F32 | DType::I32 | DType::F64 | DType::I64);
        let (ty, parts) = vector_type(bytes, part);
        let ty = if ty == "longlong" { "i64".into() } else { ty };
        (ty, parts, whole)
    }

    fn load_vec(&mut self, array: ArrayId, at: u32, mem: Mem, index: &Expr, count: u32) {
        let dtype = self.writer.dtype(mem);
        let (ty, parts, whole) = self.vector(array, dtype, count);
        let from = self.writer.address(mem, index);
        let name = self.writer.arrays[array.0 as usize].clone();
        self.say("{");
        self.depth += 1;
        let once = matches!(mem, Mem::Global(p) if self.kernel.once.contains(&p));
        match intrinsics::load_once(&ty).filter(|_| once) {
            Some((load, definition)) => {
                self.say(format!("const {ty} words = {load}({from});"));
                self.wrappers.entry(load).or_insert(definition);
            }
            None => self.say(format!("const {ty} words = *(const {ty}*)({from});")),
        }
        if whole {
            for (i, part) in parts.iter().enumerate() {
                self.say(format!("{name}[{}] = words{part};", at + i as u32));
            }
        } else {
            let each = 32 / dtype.bits();
            for i in 0..count {
                let value =
                    self.writer.from_word(dtype, &format!("words{}", parts[(i / each) as usize]), i % each);
                self.say(format!("{name}[{}] = {value};", at + i));
            }
        }
        self.depth -= 1;
        self.say("}");
    }

    fn store_vec(&mut self, array: ArrayId, at: u32, mem: Mem, index: &Expr, count: u32) {
        let dtype = self.writer.dtype(mem);
        let (ty, parts, whole) = self.vector(array, dtype, count);
        let to = self.writer.address(mem, index);
        let name = self.writer.arrays[array.0 as usize].clone();
        self.say("{");
        self.depth += 1;
        self.say(format!("{ty} words;"));
        let each = if whole { 1 } else { 32 / dtype.bits() };
        for (p, part) in parts.iter().enumerate() {
            let elems: Vec<String> =
                (0..each).map(|i| format!("{name}[{}]", at + p as u32 * each + i)).collect();
            let word = if whole { elems[0].clone() } else { self.writer.to_word(dtype, &elems) };
            self.say(format!("words{part} = {word};"));
        }
        self.say(format!("*({ty}*)({to}) = words;"));
        self.depth -= 1;
        self.say("}");
    }
}

/// The variables that are set after their declaration.
fn note_changed(stmts: &[Stmt], changed: &mut HashSet<VarId>) {
    for s in stmts {
        match s {
            Stmt::Set(v, _) | Stmt::Shuffle { var: v, .. } | Stmt::Ballot { var: v, .. } => {
                changed.insert(*v);
            }
            Stmt::Atomic { old: Some(v), .. } => {
                changed.insert(*v);
            }
            Stmt::Intrinsic { outs, .. } => changed.extend(outs.iter().filter_map(|o| match o {
                Place::Var(v) => Some(*v),
                Place::Elem(..) => None,
            })),
            Stmt::For { var, body, .. } => {
                changed.insert(*var);
                note_changed(body, changed);
            }
            Stmt::While { body, .. } => note_changed(body, changed),
            Stmt::If { then, otherwise, .. } => {
                note_changed(then, changed);
                note_changed(otherwise, changed);
            }
            _ => {}
        }
    }
}
