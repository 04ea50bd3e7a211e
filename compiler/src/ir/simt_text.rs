//! simt kernels as text that people read and that is read back.
//!
//! A word's first character tells what it names: `%i.3` variable 3, `$acc.0` array 0, `@tile.1` shared array 1,
//! `&x.0` parameter 0; what stands before the number is for the reader alone. Functions of the vocabulary are called
//! by their names in lower case; `i.add` is machine arithmetic, `c.lt` a comparison, `b.and` logic on Bool.

use super::simt::*;
use crate::sim::intrinsics;
use crate::vocab::dtype::{DType, Value};
use girih_dsl::ast::Span;
use std::fmt::Write;

pub use super::simt_parse::parse;

pub const TYPES: [(Ty, &str); 7] = [
    (Ty::Bool, "bool"),
    (Ty::I32, "i32"),
    (Ty::U32, "u32"),
    (Ty::I64, "i64"),
    (Ty::U64, "u64"),
    (Ty::F32, "f32"),
    (Ty::F64, "f64"),
];

pub const INT_OPS: [(IntOp, &str); 12] = [
    (IntOp::Add, "i.add"),
    (IntOp::Sub, "i.sub"),
    (IntOp::Mul, "i.mul"),
    (IntOp::Div, "i.div"),
    (IntOp::Rem, "i.rem"),
    (IntOp::And, "i.and"),
    (IntOp::Or, "i.or"),
    (IntOp::Xor, "i.xor"),
    (IntOp::Shl, "i.shl"),
    (IntOp::Shr, "i.shr"),
    (IntOp::Min, "i.min"),
    (IntOp::Max, "i.max"),
];

pub const CMP_OPS: [(CmpOp, &str); 6] = [
    (CmpOp::Lt, "c.lt"),
    (CmpOp::Le, "c.le"),
    (CmpOp::Gt, "c.gt"),
    (CmpOp::Ge, "c.ge"),
    (CmpOp::Eq, "c.eq"),
    (CmpOp::Ne, "c.ne"),
];

pub const SPECIALS: [(Special, &str); 8] = [
    (Special::ThreadX, "thread.x"),
    (Special::ThreadY, "thread.y"),
    (Special::ThreadZ, "thread.z"),
    (Special::BlockX, "block.x"),
    (Special::BlockY, "block.y"),
    (Special::BlockZ, "block.z"),
    (Special::Lane, "lane"),
    (Special::Warp, "warp"),
];

pub const SHUFFLES: [(ShuffleKind, &str); 4] = [
    (ShuffleKind::Index, "index"),
    (ShuffleKind::Xor, "xor"),
    (ShuffleKind::Up, "up"),
    (ShuffleKind::Down, "down"),
];

pub const ATOMICS: [(AtomicOp, &str); 5] = [
    (AtomicOp::Add, "add"),
    (AtomicOp::Min, "min"),
    (AtomicOp::Max, "max"),
    (AtomicOp::Or, "or"),
    (AtomicOp::Exchange, "exchange"),
];

/// The word of a row; the tables above are whole.
fn word<T: PartialEq>(table: &[(T, &'static str)], value: T) -> &'static str {
    table.iter().find(|r| r.0 == value).map_or("?", |r| r.1)
}

/// A kernel as text.
pub fn print(k: &Kernel) -> String {
    let mut p = Printer { k, out: String::new(), depth: 1 };
    p.head();
    p.out.push_str("{\n");
    p.block(&k.body);
    p.out.push_str("}\n");
    p.out
}

/// An expression of a kernel as text.
pub fn expr(k: &Kernel, e: &Expr) -> String {
    Printer { k, out: String::new(), depth: 0 }.expr(e)
}

struct Printer<'a> {
    k: &'a Kernel,
    out: String,
    depth: usize,
}

impl Printer<'_> {
    fn head(&mut self) {
        let k = self.k;
        let three = |n: [u32; 3]| format!("{} {} {}", n[0], n[1], n[2]);
        let (grid, block, cluster) = (three(k.grid), three(k.block), three(k.cluster));
        let mut out = format!(
            "kernel {:?} grid {grid} block {block} cluster {cluster} min_blocks {}\n",
            k.name, k.min_blocks
        );
        for (i, p) in k.params.iter().enumerate() {
            let once = if k.once.contains(&ParamId(i as u32)) { " once" } else { "" };
            let kind = match &p.kind {
                ParamKind::Pointer { dtype, len, written } => {
                    format!("pointer {} {len}{}", dtype.name(), if *written { " written" } else { "" })
                }
                ParamKind::Scalar(ty) => format!("scalar {}", word(&TYPES, *ty)),
                ParamKind::TensorMap(t) => tensor_map(t),
            };
            let _ = writeln!(out, "param {:?} {kind}{once}", p.name);
        }
        for s in &k.shared {
            let _ = writeln!(out, "shared {:?} {} {} align {}", s.name, s.dtype.name(), s.len, s.align);
        }
        for a in &k.arrays {
            let named = if a.named { " named" } else { "" };
            let _ = writeln!(out, "array {:?} {} {}{named}", a.name, word(&TYPES, a.ty), a.len);
        }
        for v in &k.vars {
            let _ = writeln!(out, "var {:?} {}", v.name, word(&TYPES, v.ty));
        }
        self.out = out;
    }

    fn say(&mut self, text: String) {
        self.out.push_str(&"  ".repeat(self.depth));
        self.out.push_str(&text);
        self.out.push('\n');
    }

    fn block(&mut self, stmts: &[Stmt]) {
        stmts.iter().for_each(|s| self.stmt(s));
    }

    fn nested(&mut self, stmts: &[Stmt]) {
        self.depth += 1;
        self.block(stmts);
        self.depth -= 1;
    }

    fn stmt(&mut self, s: &Stmt) {
        match s {
            Stmt::Let(v, e) => self.say(format!("let {} = {}", self.var(*v), self.expr(e))),
            Stmt::Set(v, e) => self.say(format!("set {} = {}", self.var(*v), self.expr(e))),
            Stmt::SetElem(a, i, e) => {
                self.say(format!("set {}[{}] = {}", self.array(*a), self.expr(i), self.expr(e)));
            }
            Stmt::Store(mem, i, e) => self.say(format!("store {} = {}", self.place(*mem, i), self.expr(e))),
            Stmt::LoadVec { array, at, mem, index, count } => {
                let (to, from) = (self.array(*array), self.place(*mem, index));
                self.say(format!("load {count} {to}[{at}] = {from}"));
            }
            Stmt::StoreVec { mem, index, array, at, count } => {
                let (to, from) = (self.place(*mem, index), self.array(*array));
                self.say(format!("store {count} {to} = {from}[{at}]"));
            }
            Stmt::For { var, lo, hi, step, unroll, body } => {
                let unroll = match unroll {
                    Unroll::Auto => "auto".into(),
                    Unroll::Full => "full".into(),
                    Unroll::None => "none".into(),
                    Unroll::By(n) => n.to_string(),
                };
                let (lo, hi, step) = (self.expr(lo), self.expr(hi), self.expr(step));
                self.say(format!("for {} = {lo} to {hi} step {step} unroll {unroll} {{", self.var(*var)));
                self.nested(body);
                self.say("}".into());
            }
            Stmt::While { cond, body } => {
                self.say(format!("while {} {{", self.expr(cond)));
                self.nested(body);
                self.say("}".into());
            }
            Stmt::If { cond, then, otherwise } => {
                self.say(format!("if {} {{", self.expr(cond)));
                self.nested(then);
                if !otherwise.is_empty() {
                    self.say("} else {".into());
                    self.nested(otherwise);
                }
                self.say("}".into());
            }
            Stmt::Barrier => self.say("barrier".into()),
            Stmt::WarpBarrier => self.say("warp_barrier".into()),
            Stmt::Fence => self.say("fence".into()),
            Stmt::Shuffle { var, kind, value, lane } => {
                let (value, lane) = (self.expr(value), self.expr(lane));
                self.say(format!("shuffle {} {} {value} {lane}", word(&SHUFFLES, *kind), self.var(*var)));
            }
            Stmt::Ballot { var, pred } => {
                self.say(format!("ballot {} = {}", self.var(*var), self.expr(pred)))
            }
            Stmt::Atomic { op, mem, index, value, old } => {
                let old = old.map_or(String::new(), |v| format!(" old {}", self.var(v)));
                let (place, value) = (self.place(*mem, index), self.expr(value));
                self.say(format!("atomic {} {place} = {value}{old}", word(&ATOMICS, *op)));
            }
            Stmt::Intrinsic { op, outs, args } => self.intrinsic(*op, outs, args),
            Stmt::Fault { fault, site, value } => {
                self.say(format!("fault {} {site} {}", self.param(*fault), self.expr(value)));
            }
            Stmt::Line(Span { file, start, end }) => self.say(format!("line {file} {start} {end}")),
            Stmt::Comment(text) => self.say(format!("comment {text:?}")),
        }
    }

    fn intrinsic(&mut self, op: Intrinsic, outs: &[Place], args: &[Expr]) {
        let name = match op {
            Intrinsic::CpAsync { mem, bytes } => format!("cp_async {} {bytes}", self.param(mem)),
            Intrinsic::PublishWord { mem } => format!("publish_word {}", self.param(mem)),
            Intrinsic::AwaitWords { mem, count } => format!("await_words {} {count}", self.param(mem)),
            Intrinsic::Philox => "philox".into(),
            Intrinsic::MatchDigit { bits } => format!("match_digit {bits}"),
            Intrinsic::CpAsyncWait(n) => format!("cp_async_wait {n}"),
            Intrinsic::LdMatrix { count, trans } => format!("ldmatrix {count} {trans}"),
            Intrinsic::TmaLoad { map, rank } => format!("tma_load {} {rank}", self.param(map)),
            Intrinsic::TmaMulticast { map, rank } => format!("tma_multicast {} {rank}", self.param(map)),
            Intrinsic::TmaStore { map, rank } => format!("tma_store {} {rank}", self.param(map)),
            Intrinsic::StMatrix { count, trans } => format!("stmatrix {count} {trans}"),
            Intrinsic::BulkWait(n) => format!("bulk_wait {n}"),
            Intrinsic::TmaPixels { map, rank, multicast } => {
                let name = if multicast { "tma_pixels_multicast" } else { "tma_pixels" };
                format!("{name} {} {rank}", self.param(map))
            }
            Intrinsic::WgmmaWait(n) => format!("wgmma_wait {n}"),
            Intrinsic::Wgmma { dtypes: [x, y], n, trans: [a, b] } => {
                format!("wgmma {} {} {n} {a} {b}", x.name(), y.name())
            }
            Intrinsic::WgmmaRegs { dtype, n, trans } => format!("wgmma_regs {} {n} {trans}", dtype.name()),
            Intrinsic::SetMaxRegisters { more, count } => format!("set_max_registers {more} {count}"),
            Intrinsic::NamedBarrier { threads } => format!("named_barrier {threads}"),
            op => intrinsics::name(op),
        };
        let outs: Vec<String> = outs
            .iter()
            .map(|o| match o {
                Place::Var(v) => self.var(*v),
                Place::Elem(a, i) => format!("{}[{i}]", self.array(*a)),
            })
            .collect();
        let args: Vec<String> = args.iter().map(|a| self.expr(a)).collect();
        self.say(format!("call {name} ({}) = ({})", outs.join(", "), args.join(", ")));
    }

    fn var(&self, v: VarId) -> String {
        sign('%', v.0, self.k.vars.get(v.0 as usize).map(|v| &v.name))
    }

    fn array(&self, a: ArrayId) -> String {
        sign('$', a.0, self.k.arrays.get(a.0 as usize).map(|a| &a.name))
    }

    fn param(&self, p: ParamId) -> String {
        sign('&', p.0, self.k.params.get(p.0 as usize).map(|p| &p.name))
    }

    fn place(&self, mem: Mem, index: &Expr) -> String {
        let mem = match mem {
            Mem::Global(p) => self.param(p),
            Mem::Shared(s) => self.shared(s),
        };
        format!("{mem}[{}]", self.expr(index))
    }

    fn shared(&self, s: SharedId) -> String {
        sign('@', s.0, self.k.shared.get(s.0 as usize).map(|s| &s.name))
    }

    fn call(&self, name: &str, args: &[&Expr]) -> String {
        let args: Vec<String> = args.iter().map(|a| self.expr(a)).collect();
        format!("{name}({})", args.join(", "))
    }

    fn expr(&self, e: &Expr) -> String {
        match e {
            Expr::Lit(v) => literal(*v),
            Expr::U32(v) => format!("{v:#x}u"),
            Expr::Var(v) => self.var(*v),
            Expr::Param(p) => self.param(*p),
            Expr::Special(s) => word(&SPECIALS, *s).into(),
            Expr::Elem(a, i) => format!("{}[{}]", self.array(*a), self.expr(i)),
            Expr::Load(mem, i) => self.place(*mem, i),
            Expr::Call(f, args) => {
                self.call(&format!("{f:?}").to_ascii_lowercase(), &args.iter().collect::<Vec<_>>())
            }
            Expr::Approx(f, args) => self.call(f.row().name, &args.iter().collect::<Vec<_>>()),
            Expr::Int(op, a, b) => self.call(word(&INT_OPS, *op), &[a, b]),
            Expr::Compare(op, a, b) => self.call(word(&CMP_OPS, *op), &[a, b]),
            Expr::Select(c, a, b) => self.call("select", &[c, a, b]),
            Expr::And(a, b) => self.call("b.and", &[a, b]),
            Expr::Or(a, b) => self.call("b.or", &[a, b]),
            Expr::Not(a) => self.call("b.not", &[a]),
            Expr::Cast(ty, a) => self.call(&format!("cast.{}", word(&TYPES, *ty)), &[a]),
            Expr::Bitcast(ty, a) => self.call(&format!("bitcast.{}", word(&TYPES, *ty)), &[a]),
            Expr::Round(dtype, a) => self.call(&format!("round.{}", dtype.name()), &[a]),
            Expr::Pack2(dtype, a, b) => self.call(&format!("pack.{}", dtype.name()), &[a, b]),
            Expr::Unpack2(dtype, i, a) => self.call(&format!("unpack{i}.{}", dtype.name()), &[a]),
            Expr::SharedAddr(s, i) => format!("addr({}[{}])", self.shared(*s), self.expr(i)),
        }
    }
}

fn tensor_map(t: &TensorMap) -> String {
    let list = |l: &[i64]| l.iter().map(|v| format!(" {v}")).collect::<String>();
    let extent: Vec<i64> = t.extent.iter().map(|&e| e as i64).collect();
    let (n, dtype, swizzle) = (t.dims.len(), t.dtype.name(), t.swizzle.width());
    let (dims, strides, extent) = (list(&t.dims), list(&t.strides), list(&extent));
    let shape = match &t.pixels {
        None => String::new(),
        Some(p) => {
            let list = |l: &[i32]| l.iter().map(|v| format!(" {v}")).collect::<String>();
            let step: String = p.step.iter().map(|v| format!(" {v}")).collect();
            format!(" pixels lower{} upper{} step{step}", list(&p.lower), list(&p.upper))
        }
    };
    format!(
        "tensor_map {dtype} {n} offset {} swizzle {swizzle} dims{dims} strides{strides}{shape} box{extent}",
        t.offset
    )
}

fn sign(sigil: char, id: u32, name: Option<&String>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = name.map_or("", |n| n.as_str()).chars().take(30).map(plain).collect();
    format!("{sigil}{name}.{id}")
}

fn literal(v: Value) -> String {
    match v {
        Value::Bool(b) => b.to_string(),
        Value::I32(v) => v.to_string(),
        Value::I64(v) => format!("{v}L"),
        Value::F32(v) if v.is_finite() => format!("{v:?}f"),
        Value::F32(v) => format!("f:{:x}", v.to_bits()),
        Value::F64(v) if v.is_finite() => format!("{v:?}d"),
        Value::F64(v) => format!("d:{:x}", v.to_bits()),
    }
}

/// The intrinsics whose names say all of them.
pub const PLAIN: [Intrinsic; 16] = [
    Intrinsic::GridWait,
    Intrinsic::CpAsyncCommit,
    Intrinsic::MbarrierInit,
    Intrinsic::MbarrierArrive,
    Intrinsic::MbarrierArriveAt,
    Intrinsic::MbarrierExpect,
    Intrinsic::MbarrierWait,
    Intrinsic::FenceMbarrierInit,
    Intrinsic::FenceProxyAsync,
    Intrinsic::WgmmaFence,
    Intrinsic::WgmmaCommit,
    Intrinsic::ClusterArrive,
    Intrinsic::ClusterWait,
    Intrinsic::StoreAsync { wide: false },
    Intrinsic::StoreAsync { wide: true },
    Intrinsic::BulkCommit,
];

/// Matrix instructions and plain intrinsics by name.
pub fn matrix_instruction(name: &str) -> Option<Intrinsic> {
    use DType::*;
    let mut all = PLAIN.to_vec();
    all.extend([
        Intrinsic::MmaM16N8K8F16,
        Intrinsic::MmaM16N8K8Tf32,
        Intrinsic::MmaM8N8K4F64,
        Intrinsic::MmaM16N8K16 { dtype: F16 },
        Intrinsic::MmaM16N8K16 { dtype: BF16 },
        Intrinsic::BytePermute,
        Intrinsic::HalfFma { dtype: F16 },
        Intrinsic::HalfFma { dtype: BF16 },
    ]);
    for group in [[E4M3, E5M2], [I8, U8]] {
        for a in group {
            all.extend(group.map(|b| Intrinsic::MmaM16N8K32 { a, b }));
        }
    }
    all.into_iter().find(|op| intrinsics::name(*op) == name)
}
