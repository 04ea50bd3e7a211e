//! simt expressions as C text, with no more parentheses than needed.

use super::cuda_names::Names;
use crate::ir::simt::*;
use crate::ir::simt_verify::{mem_dtype, type_of};
use crate::vocab::cuda::{self, Prec, Spelling};
use crate::vocab::dtype::{DType, Value};
use crate::vocab::func::Func;
use std::collections::BTreeSet;

/// The names of a kernel's things, and the helpers that were used so far.
pub struct Writer<'a> {
    kernel: &'a Kernel,
    pub names: Names,
    pub vars: Vec<String>,
    pub arrays: Vec<String>,
    pub shared: Vec<String>,
    pub params: Vec<String>,
    pub helpers: BTreeSet<&'static str>,
}

impl<'a> Writer<'a> {
    pub fn new(kernel: &'a Kernel) -> Writer<'a> {
        let mut names = Names::default();
        let _ = names.unique(&kernel.name);
        let params = kernel.params.iter().map(|p| names.unique(&p.name)).collect();
        let shared = kernel.shared.iter().map(|s| names.unique(&s.name)).collect();
        let arrays = kernel.arrays.iter().map(|a| names.unique(&a.name)).collect();
        let vars = kernel.vars.iter().map(|v| names.unique(&v.name)).collect();
        Writer { kernel, names, vars, arrays, shared, params, helpers: BTreeSet::new() }
    }

    pub fn ty(&self, e: &Expr) -> Ty {
        // A verified kernel has a type everywhere; what has none prints as a word that does not compile.
        type_of(self.kernel, e).unwrap_or(Ty::I32)
    }

    pub fn dtype(&self, mem: Mem) -> DType {
        mem_dtype(self.kernel, mem).unwrap_or(DType::U8)
    }

    /// Whether PTX names an array's registers.
    pub fn named(&self, a: ArrayId) -> bool {
        self.kernel.arrays[a.0 as usize].named
    }

    pub fn mem(&self, mem: Mem) -> String {
        match mem {
            Mem::Global(p) => self.params[p.0 as usize].clone(),
            Mem::Shared(s) => self.shared[s.0 as usize].clone(),
        }
    }

    /// Text of an expression that stands where at least precedence `min` is needed.
    pub fn expr(&mut self, e: &Expr, min: Prec) -> String {
        let (text, prec) = self.write(e);
        if prec < min { format!("({text})") } else { text }
    }

    fn infix(&mut self, op: &str, prec: Prec, a: &Expr, b: &Expr) -> (String, Prec) {
        let (a, b) = (self.expr(a, prec), self.expr(b, prec.tighter()));
        (format!("{a} {op} {b}"), prec)
    }

    fn call(&mut self, name: &str, args: &[&Expr]) -> (String, Prec) {
        let args: Vec<String> = args.iter().map(|a| self.expr(a, Prec::Any)).collect();
        (format!("{name}({})", args.join(", ")), Prec::Primary)
    }

    fn helper(&mut self, name: &'static str, args: &[&Expr]) -> (String, Prec) {
        self.helpers.insert(name);
        self.call(name, args)
    }

    fn spelled(&mut self, s: Spelling, args: &[&Expr]) -> (String, Prec) {
        match s {
            Spelling::Infix(op, prec) => self.infix(op, prec, args[0], args[1]),
            Spelling::Prefix(op) => {
                let a = self.expr(args[0], Prec::Unary);
                // `--x` would be another operator.
                let gap = if op == "-" && a.starts_with('-') { " " } else { "" };
                (format!("{op}{gap}{a}"), Prec::Unary)
            }
            Spelling::Builtin(name) => self.call(name, args),
            Spelling::Helper(name) => self.helper(name, args),
        }
    }

    fn write(&mut self, e: &Expr) -> (String, Prec) {
        match e {
            Expr::Lit(v) => literal(*v),
            Expr::U32(v) if *v < 65536 => (format!("{v}u"), Prec::Primary),
            Expr::U32(v) => (format!("{v:#x}u"), Prec::Primary),
            Expr::Var(v) => (self.vars[v.0 as usize].clone(), Prec::Primary),
            Expr::Param(p) => (self.params[p.0 as usize].clone(), Prec::Primary),
            Expr::Special(s) => (special(*s).into(), Prec::Primary),
            Expr::Elem(a, i) => {
                let (i, name) = (self.expr(i, Prec::Any), &self.arrays[a.0 as usize]);
                let text = if self.named(*a) { format!("{name}_at<{i}>()") } else { format!("{name}[{i}]") };
                (text, Prec::Primary)
            }
            Expr::Load(mem, i) => self.load(*mem, i),
            Expr::Call(f, args) => {
                let args: Vec<&Expr> = args.iter().collect();
                let spelling = cuda::spelling(*f, self.ty(args[0]));
                self.spelled(spelling, &args)
            }
            Expr::Approx(f, args) => {
                let args: Vec<&Expr> = args.iter().collect();
                self.helper(f.row().name, &args)
            }
            Expr::Int(op, a, b) => match int_spelling(*op) {
                Some((op, prec)) => self.infix(op, prec, a, b),
                None => self.call(if *op == IntOp::Min { "min" } else { "max" }, &[a, b]),
            },
            Expr::Compare(op, a, b) => {
                let (op, prec) = compare_spelling(*op);
                self.infix(op, prec, a, b)
            }
            Expr::Select(c, a, b) => {
                let c = self.expr(c, Prec::Or);
                let (a, b) = (self.expr(a, Prec::Ternary), self.expr(b, Prec::Ternary));
                (format!("{c} ? {a} : {b}"), Prec::Ternary)
            }
            Expr::And(a, b) => self.infix("&&", Prec::And, a, b),
            Expr::Or(a, b) => self.infix("||", Prec::Or, a, b),
            Expr::Not(a) => self.spelled(Spelling::Prefix("!"), &[a]),
            Expr::Cast(to, a) => self.cast(*to, a),
            Expr::Round(dtype, a) => self.round(*dtype, a),
            Expr::Bitcast(to, a) => {
                let name = cuda::bitcast(self.ty(a), *to);
                if matches!(name, "u64_bits_of" | "f64_of_bits") {
                    self.helpers.insert(if name == "u64_bits_of" { "u64_bits_of" } else { "f64_of_bits" });
                }
                self.call(name, &[a])
            }
            Expr::Pack2(dtype, a, b) => {
                self.helper(if *dtype == DType::F16 { "pack_f16" } else { "pack_bf16" }, &[a, b])
            }
            Expr::Unpack2(dtype, at, a) => self.helper(half_of(*dtype, *at), &[a]),
            Expr::SharedAddr(s, i) => {
                let place = self.address(Mem::Shared(*s), i);
                self.helpers.insert("shared_address");
                (format!("shared_address({place})"), Prec::Primary)
            }
        }
    }

    /// A pointer to an element.
    pub fn address(&mut self, mem: Mem, index: &Expr) -> String {
        let name = self.mem(mem);
        if self.dtype(mem).bits() == 4 {
            let i = self.expr(index, Prec::Shift);
            return format!("{name} + ({i} >> 1)");
        }
        match index {
            Expr::Lit(Value::I32(0) | Value::I64(0)) => name,
            _ => {
                let i = self.expr(index, Prec::Sum);
                format!("{name} + {i}")
            }
        }
    }

    fn load(&mut self, mem: Mem, index: &Expr) -> (String, Prec) {
        let (dtype, name) = (self.dtype(mem), self.mem(mem));
        let i = self.expr(index, Prec::Any);
        match dtype {
            DType::I4 | DType::U4 => {
                let helper = if dtype == DType::I4 { "load_i4" } else { "load_u4" };
                self.helpers.insert(helper);
                (format!("{helper}({name}, {i})"), Prec::Primary)
            }
            DType::Bool => (format!("{name}[{i}] != 0"), Prec::Equal),
            // C promotes these by itself, but not in the operand of `-` or where an overload is chosen.
            DType::I16 | DType::I8 | DType::U8 => (format!("int({name}[{i}])"), Prec::Primary),
            _ => (self.decoded(dtype, format!("{name}[{i}]")), Prec::Primary),
        }
    }

    fn decoded(&mut self, dtype: DType, text: String) -> String {
        match cuda::decoder(dtype) {
            Some(helper) => {
                self.helpers.insert(helper);
                format!("{helper}({text})")
            }
            None => text,
        }
    }

    /// A compute value as a stored element.
    pub fn encoded(&mut self, dtype: DType, text: String) -> String {
        match cuda::encoder(dtype) {
            Some(helper) => {
                self.helpers.insert(helper);
                format!("{helper}({text})")
            }
            None => text,
        }
    }

    /// Element `i` of a 32-bit word of stored elements, as a compute value.
    pub fn from_word(&mut self, dtype: DType, word: &str, i: u32) -> String {
        let shift = i * dtype.bits();
        let low = if shift == 0 { word.to_string() } else { format!("{word} >> {shift}") };
        match dtype {
            DType::F16 | DType::BF16 => {
                let helper = half_of(dtype, i as u8);
                self.helpers.insert(helper);
                format!("{helper}({word})")
            }
            DType::I4 => format!("int({word} << {}) >> 28", 28 - shift),
            DType::U4 => format!("int({low} & 15u)", low = parenthesised(&low)),
            DType::Bool => format!("u8({low}) != 0"),
            DType::I16 | DType::I8 | DType::U8 => format!("int({}({low}))", cuda::stored_type(dtype)),
            _ => self.decoded(dtype, format!("{}({low})", cuda::stored_type(dtype))),
        }
    }

    /// A word of stored elements from compute values.
    pub fn to_word(&mut self, dtype: DType, values: &[String]) -> String {
        if matches!(dtype, DType::F16 | DType::BF16) {
            let helper = if dtype == DType::F16 { "pack_f16" } else { "pack_bf16" };
            self.helpers.insert(helper);
            return format!("{helper}({})", values.join(", "));
        }
        let bits = dtype.bits();
        let mask = (1u64 << bits) - 1;
        let parts: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(i, v)| {
                let stored = self.encoded(dtype, v.clone());
                let part = match dtype {
                    DType::I16 | DType::I8 | DType::I4 => format!("(u32({stored}) & {mask:#x}u)"),
                    _ => format!("u32({stored})"),
                };
                if i == 0 { part } else { format!("{part} << {}", i as u32 * bits) }
            })
            .collect();
        parts.join(" | ")
    }

    fn cast(&mut self, to: Ty, a: &Expr) -> (String, Prec) {
        let from = self.ty(a);
        if from == to {
            return self.write(a);
        }
        if to == Ty::Bool {
            let zero = match from {
                Ty::F32 => "0.0f",
                Ty::F64 => "0.0",
                Ty::U32 => "0u",
                _ => "0",
            };
            return (format!("{} != {zero}", self.expr(a, Prec::Equal)), Prec::Equal);
        }
        self.spelled(cuda::cast(from, to), &[a])
    }

    fn round(&mut self, dtype: DType, a: &Expr) -> (String, Prec) {
        let from = self.ty(a);
        let compute = Ty::of(dtype.compute());
        if dtype.compute().stored() == dtype {
            return self.cast(compute, a);
        }
        if dtype.is_int() {
            // Saturating to i32 first changes nothing: the dtype's range is inside.
            let (text, _) = self.cast(Ty::I32, a);
            return (self.encoded(dtype, text), Prec::Primary);
        }
        let value = match from {
            Ty::F32 => self.expr(a, Prec::Any),
            _ => self.odd(from, a),
        };
        let stored = self.encoded(dtype, value);
        (self.decoded(dtype, stored), Prec::Primary)
    }

    /// A wider value as a float that rounds to 16 or 8 bits as the value itself does.
    fn odd(&mut self, from: Ty, a: &Expr) -> String {
        self.helpers.insert("f32_odd_from_f64");
        let wide = match from {
            Ty::I64 => self.helper("f64_odd_from_i64", &[a]).0,
            Ty::F64 => self.expr(a, Prec::Any),
            _ => self.call("double", &[a]).0,
        };
        format!("f32_odd_from_f64({wide})")
    }

    /// For `v = v op e`: the operator and e, where C's compound assignment says the same.
    pub fn compound<'e>(&self, v: VarId, e: &'e Expr) -> Option<(&'static str, &'e Expr)> {
        let is_var = |a: &Expr| matches!(a, Expr::Var(x) if *x == v);
        match e {
            Expr::Int(op, a, b) if is_var(a) => int_spelling(*op).map(|(op, _)| (op, &**b)),
            Expr::Call(f @ (Func::Add | Func::Sub | Func::Mul), args) if is_var(&args[0]) => {
                match cuda::spelling(*f, self.ty(&args[0])) {
                    Spelling::Infix(op, _) => Some((op, &args[1])),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

fn parenthesised(text: &str) -> String {
    if text.contains(' ') { format!("({text})") } else { text.to_string() }
}

fn half_of(dtype: DType, at: u8) -> &'static str {
    match (dtype, at) {
        (DType::F16, 0) => "low_f16",
        (DType::F16, _) => "high_f16",
        (_, 0) => "low_bf16",
        _ => "high_bf16",
    }
}

fn int_spelling(op: IntOp) -> Option<(&'static str, Prec)> {
    Some(match op {
        IntOp::Add => ("+", Prec::Sum),
        IntOp::Sub => ("-", Prec::Sum),
        IntOp::Mul => ("*", Prec::Product),
        IntOp::Div => ("/", Prec::Product),
        IntOp::Rem => ("%", Prec::Product),
        IntOp::And => ("&", Prec::BitAnd),
        IntOp::Or => ("|", Prec::BitOr),
        IntOp::Xor => ("^", Prec::BitXor),
        IntOp::Shl => ("<<", Prec::Shift),
        IntOp::Shr => (">>", Prec::Shift),
        IntOp::Min | IntOp::Max => return None,
    })
}

fn compare_spelling(op: CmpOp) -> (&'static str, Prec) {
    match op {
        CmpOp::Lt => ("<", Prec::Less),
        CmpOp::Le => ("<=", Prec::Less),
        CmpOp::Gt => (">", Prec::Less),
        CmpOp::Ge => (">=", Prec::Less),
        CmpOp::Eq => ("==", Prec::Equal),
        CmpOp::Ne => ("!=", Prec::Equal),
    }
}

/// All signed, so that arithmetic with them is.
fn special(s: Special) -> &'static str {
    match s {
        Special::ThreadX => "int(threadIdx.x)",
        Special::ThreadY => "int(threadIdx.y)",
        Special::ThreadZ => "int(threadIdx.z)",
        Special::BlockX => "int(blockIdx.x)",
        Special::BlockY => "int(blockIdx.y)",
        Special::BlockZ => "int(blockIdx.z)",
        Special::Lane => "int(threadIdx.x % 32)",
        Special::Warp => "int(threadIdx.x / 32)",
    }
}

fn literal(v: Value) -> (String, Prec) {
    match v {
        Value::Bool(b) => (b.to_string(), Prec::Primary),
        Value::I32(i32::MIN) => ("-2147483647 - 1".into(), Prec::Sum),
        Value::I32(v) => signed(v.to_string()),
        Value::I64(i64::MIN) => ("-9223372036854775807ll - 1".into(), Prec::Sum),
        Value::I64(v) => signed(format!("{v}ll")),
        Value::F32(v) if v.is_finite() => signed(format!("{v:?}f")),
        Value::F32(v) => (format!("__uint_as_float({:#x}u)", v.to_bits()), Prec::Primary),
        Value::F64(v) if v.is_finite() => signed(format!("{v:?}")),
        Value::F64(v) => (format!("__longlong_as_double({:#x}ll)", v.to_bits()), Prec::Primary),
    }
}

fn signed(text: String) -> (String, Prec) {
    let prec = if text.starts_with('-') { Prec::Unary } else { Prec::Primary };
    (text, prec)
}
