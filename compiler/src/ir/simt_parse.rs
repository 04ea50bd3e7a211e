//! Reads what `simt_text.rs` prints. Errors name the line.

use super::simt::*;
use super::simt_text::{ATOMICS, CMP_OPS, INT_OPS, SHUFFLES, SPECIALS, TYPES, matrix_instruction};
use crate::vocab::approx::Approx;
use crate::vocab::dtype::{DType, Value};
use crate::vocab::func::FUNCS;
use girih_dsl::ast::Span;

type Result<T> = std::result::Result<T, String>;

/// Nesting of statements and expressions that is read.
const DEEPEST: usize = 200;

/// The kernels of a text.
pub fn parse(text: &str) -> Result<Vec<Kernel>> {
    let tokens = tokens(text)?;
    let mut p = Parser { tokens: &tokens, at: 0, depth: 0 };
    let mut kernels = Vec::new();
    while p.at < tokens.len() {
        let kernel = p.kernel();
        kernels.push(kernel.map_err(|m| format!("line {}: {m}", p.line()))?);
    }
    Ok(kernels)
}

struct Token {
    text: String,
    line: usize,
    quoted: bool,
}

fn tokens(text: &str) -> Result<Vec<Token>> {
    let mut out = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(c) = rest.chars().next() {
            let (len, token) = if c == '"' {
                let len = quoted(rest).ok_or_else(|| format!("line {}: a text without its end", n + 1))?;
                (
                    len,
                    unescape(&rest[1..len - 1])
                        .ok_or_else(|| format!("line {}: an unknown escape", n + 1))?,
                )
            } else if is_mark(c) {
                (c.len_utf8(), c.to_string())
            } else {
                let len =
                    rest.find(|c: char| c.is_whitespace() || is_mark(c) || c == '"').unwrap_or(rest.len());
                (len, rest[..len].to_string())
            };
            out.push(Token { text: token, line: n + 1, quoted: c == '"' });
            rest = rest[len..].trim_start();
        }
    }
    Ok(out)
}

fn is_mark(c: char) -> bool {
    "()[]{},=".contains(c)
}

/// Length of the quoted text at the start, with its quotes.
fn quoted(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(i + 1),
            _ => {}
        }
    }
    None
}

/// Undoes what `{:?}` of a text does.
fn unescape(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match rest.next()? {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            '0' => '\0',
            'u' => {
                let code: String = rest.by_ref().skip(1).take_while(|c| *c != '}').collect();
                char::from_u32(u32::from_str_radix(&code, 16).ok()?)?
            }
            c => c,
        });
    }
    Some(out)
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn line(&self) -> usize {
        self.tokens.get(self.at.saturating_sub(1)).map_or(1, |t| t.line)
    }

    fn peek(&self) -> &'a str {
        self.tokens.get(self.at).filter(|t| !t.quoted).map_or("", |t| &t.text)
    }

    fn next(&mut self) -> Result<&'a str> {
        let token = self.tokens.get(self.at).ok_or("the text ends too early")?;
        self.at += 1;
        Ok(&token.text)
    }

    fn accept(&mut self, word: &str) -> bool {
        let found = self.peek() == word;
        self.at += found as usize;
        found
    }

    fn expect(&mut self, word: &str) -> Result<()> {
        match self.next()? {
            found if found == word => Ok(()),
            found => Err(format!("`{word}` is expected, not `{found}`")),
        }
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T> {
        let word = self.next()?;
        word.parse().map_err(|_| format!("a number is expected, not `{word}`"))
    }

    fn row<T: Copy>(&mut self, table: &[(T, &str)], what: &str) -> Result<T> {
        let word = self.next()?;
        find(table, word).ok_or_else(|| format!("`{word}` is no {what}"))
    }

    fn ty(&mut self) -> Result<Ty> {
        self.row(&TYPES, "type")
    }

    fn dtype(&mut self) -> Result<DType> {
        let word = self.next()?;
        DType::parse(word).ok_or_else(|| format!("`{word}` is no dtype"))
    }

    fn id(&mut self, sigil: char) -> Result<u32> {
        let word = self.next()?;
        id_of(word, sigil).ok_or_else(|| format!("a name with `{sigil}` is expected, not `{word}`"))
    }

    fn three(&mut self, word: &str) -> Result<[u32; 3]> {
        self.expect(word)?;
        Ok([self.number()?, self.number()?, self.number()?])
    }

    fn kernel(&mut self) -> Result<Kernel> {
        self.expect("kernel")?;
        let mut k = Kernel { name: self.next()?.into(), ..Kernel::default() };
        k.grid = self.three("grid")?;
        k.block = self.three("block")?;
        k.cluster = self.three("cluster")?;
        self.expect("min_blocks")?;
        k.min_blocks = self.number()?;
        while !self.accept("{") {
            self.declaration(&mut k)?;
        }
        k.body = self.block()?;
        Ok(k)
    }

    fn declaration(&mut self, k: &mut Kernel) -> Result<()> {
        let word = self.next()?;
        let name = self.next()?.to_string();
        match word {
            "param" if self.accept("scalar") => {
                let kind = ParamKind::Scalar(self.ty()?);
                k.params.push(Param { name, kind });
            }
            "param" if self.accept("tensor_map") => {
                let kind = ParamKind::TensorMap(self.tensor_map()?);
                k.params.push(Param { name, kind });
            }
            "param" => {
                self.expect("pointer")?;
                let (dtype, len) = (self.dtype()?, self.number()?);
                k.params.push(Param {
                    name,
                    kind: ParamKind::Pointer { dtype, len, written: self.accept("written") },
                });
                if self.accept("once") {
                    k.once.push(ParamId(k.params.len() as u32 - 1));
                }
            }
            "shared" => {
                let (dtype, len) = (self.dtype()?, self.number()?);
                self.expect("align")?;
                k.shared.push(Shared { name, dtype, len, align: self.number()? });
            }
            "array" => {
                let (ty, len) = (self.ty()?, self.number()?);
                k.arrays.push(Array { name, ty, len, named: self.accept("named") });
            }
            "var" => k.vars.push(Var { name, ty: self.ty()? }),
            _ => return Err(format!("`{word}` declares nothing")),
        }
        Ok(())
    }

    /// Statements up to the closing brace.
    fn block(&mut self) -> Result<Vec<Stmt>> {
        let mut stmts = Vec::new();
        self.deeper()?;
        while !self.accept("}") {
            stmts.push(self.stmt()?);
        }
        self.depth -= 1;
        Ok(stmts)
    }

    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > DEEPEST { Err(format!("nested deeper than {DEEPEST}")) } else { Ok(()) }
    }

    fn stmt(&mut self) -> Result<Stmt> {
        let word = self.next()?;
        Ok(match word {
            "let" => {
                let v = VarId(self.id('%')?);
                Stmt::Let(v, self.value()?)
            }
            "set" if self.peek().starts_with('$') => {
                let (a, i) = self.elem()?;
                Stmt::SetElem(a, i, self.value()?)
            }
            "set" => {
                let v = VarId(self.id('%')?);
                Stmt::Set(v, self.value()?)
            }
            "store" if self.peek().starts_with(|c: char| c.is_ascii_digit()) => {
                let count = self.number()?;
                let (mem, index) = self.place()?;
                self.expect("=")?;
                let (array, at) = self.constant_elem()?;
                Stmt::StoreVec { mem, index, array, at, count }
            }
            "store" => {
                let (mem, i) = self.place()?;
                Stmt::Store(mem, i, self.value()?)
            }
            "load" => {
                let count = self.number()?;
                let (array, at) = self.constant_elem()?;
                self.expect("=")?;
                let (mem, index) = self.place()?;
                Stmt::LoadVec { array, at, mem, index, count }
            }
            "for" => self.for_loop()?,
            "while" => {
                let cond = self.expr()?;
                self.expect("{")?;
                Stmt::While { cond, body: self.block()? }
            }
            "if" => {
                let cond = self.expr()?;
                self.expect("{")?;
                let then = self.block()?;
                let mut otherwise = Vec::new();
                if self.accept("else") {
                    self.expect("{")?;
                    otherwise = self.block()?;
                }
                Stmt::If { cond, then, otherwise }
            }
            "barrier" => Stmt::Barrier,
            "warp_barrier" => Stmt::WarpBarrier,
            "fence" => Stmt::Fence,
            "shuffle" => {
                let kind = self.row(&SHUFFLES, "shuffle")?;
                let var = VarId(self.id('%')?);
                Stmt::Shuffle { var, kind, value: self.expr()?, lane: self.expr()? }
            }
            "ballot" => {
                let var = VarId(self.id('%')?);
                Stmt::Ballot { var, pred: self.value()? }
            }
            "atomic" => {
                let op = self.row(&ATOMICS, "atomic operation")?;
                let (mem, index) = self.place()?;
                let value = self.value()?;
                let old = if self.accept("old") { Some(VarId(self.id('%')?)) } else { None };
                Stmt::Atomic { op, mem, index, value, old }
            }
            "call" => self.intrinsic()?,
            "fault" => {
                let fault = ParamId(self.id('&')?);
                Stmt::Fault { fault, site: self.number()?, value: self.expr()? }
            }
            "line" => {
                let (file, start, end) = (self.number()?, self.number()?, self.number()?);
                Stmt::Line(Span { file, start, end })
            }
            "comment" => Stmt::Comment(self.next()?.into()),
            _ => return Err(format!("`{word}` is no statement")),
        })
    }

    /// `= expr`
    fn value(&mut self) -> Result<Expr> {
        self.expect("=")?;
        self.expr()
    }

    fn for_loop(&mut self) -> Result<Stmt> {
        let var = VarId(self.id('%')?);
        let lo = self.value()?;
        self.expect("to")?;
        let hi = self.expr()?;
        self.expect("step")?;
        let step = self.expr()?;
        self.expect("unroll")?;
        let unroll = match self.next()? {
            "auto" => Unroll::Auto,
            "full" => Unroll::Full,
            "none" => Unroll::None,
            n => Unroll::By(n.parse().map_err(|_| format!("`{n}` is no way to unroll"))?),
        };
        self.expect("{")?;
        Ok(Stmt::For { var, lo, hi, step, unroll, body: self.block()? })
    }

    fn elem(&mut self) -> Result<(ArrayId, Expr)> {
        let a = ArrayId(self.id('$')?);
        Ok((a, self.index()?))
    }

    fn constant_elem(&mut self) -> Result<(ArrayId, u32)> {
        let a = ArrayId(self.id('$')?);
        self.expect("[")?;
        let at = self.number()?;
        self.expect("]")?;
        Ok((a, at))
    }

    fn index(&mut self) -> Result<Expr> {
        self.expect("[")?;
        let i = self.expr()?;
        self.expect("]")?;
        Ok(i)
    }

    fn place(&mut self) -> Result<(Mem, Expr)> {
        let word = self.next()?;
        let mem = match (id_of(word, '&'), id_of(word, '@')) {
            (Some(p), _) => Mem::Global(ParamId(p)),
            (_, Some(s)) => Mem::Shared(SharedId(s)),
            _ => return Err(format!("memory is expected, not `{word}`")),
        };
        Ok((mem, self.index()?))
    }

    fn tensor_map(&mut self) -> Result<TensorMap> {
        let (dtype, rank) = (self.dtype()?, self.number::<usize>()?);
        if !(1..=5).contains(&rank) {
            return Err(format!("a tensor map of {rank} dims"));
        }
        self.expect("offset")?;
        let offset = self.number()?;
        self.expect("swizzle")?;
        let width: u32 = self.number()?;
        let all = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];
        let swizzle = all.into_iter().find(|s| s.width() == width);
        let swizzle = swizzle.ok_or_else(|| format!("a swizzle of {width} bytes"))?;
        self.expect("dims")?;
        let dims = self.numbers(rank)?;
        self.expect("strides")?;
        let strides = self.numbers(rank - 1)?;
        let mut pixels = None;
        if self.accept("pixels") {
            let inner = rank.saturating_sub(2);
            self.expect("lower")?;
            let lower = self.numbers(inner)?;
            self.expect("upper")?;
            let upper = self.numbers(inner)?;
            self.expect("step")?;
            pixels = Some(Pixels { lower, upper, step: self.numbers(inner)? });
        }
        self.expect("box")?;
        let extent = self.numbers(if pixels.is_some() { 2 } else { rank })?;
        Ok(TensorMap { dtype, offset, dims, strides, extent, swizzle, pixels })
    }

    fn numbers<T: std::str::FromStr>(&mut self, count: usize) -> Result<Vec<T>> {
        (0..count).map(|_| self.number()).collect()
    }

    fn intrinsic(&mut self) -> Result<Stmt> {
        let name = self.next()?;
        let op = match name {
            "cp_async" => Intrinsic::CpAsync { mem: ParamId(self.id('&')?), bytes: self.number()? },
            "publish_word" => Intrinsic::PublishWord { mem: ParamId(self.id('&')?) },
            "await_words" => Intrinsic::AwaitWords { mem: ParamId(self.id('&')?), count: self.number()? },
            "philox" => Intrinsic::Philox,
            "match_digit" => Intrinsic::MatchDigit { bits: self.number()? },
            "cp_async_wait" => Intrinsic::CpAsyncWait(self.number()?),
            "ldmatrix" => Intrinsic::LdMatrix { count: self.number()?, trans: self.number()? },
            "tma_load" => Intrinsic::TmaLoad { map: ParamId(self.id('&')?), rank: self.number()? },
            "tma_multicast" => Intrinsic::TmaMulticast { map: ParamId(self.id('&')?), rank: self.number()? },
            "tma_store" => Intrinsic::TmaStore { map: ParamId(self.id('&')?), rank: self.number()? },
            "stmatrix" => Intrinsic::StMatrix { count: self.number()?, trans: self.number()? },
            "bulk_wait" => Intrinsic::BulkWait(self.number()?),
            name @ ("tma_pixels" | "tma_pixels_multicast") => {
                let multicast = name.ends_with("multicast");
                Intrinsic::TmaPixels { map: ParamId(self.id('&')?), rank: self.number()?, multicast }
            }
            "wgmma_wait" => Intrinsic::WgmmaWait(self.number()?),
            "wgmma" => {
                let (dtypes, n) = ([self.dtype()?, self.dtype()?], self.number()?);
                Intrinsic::Wgmma { dtypes, n, trans: [self.number()?, self.number()?] }
            }
            "wgmma_regs" => {
                let (dtype, n) = (self.dtype()?, self.number()?);
                Intrinsic::WgmmaRegs { dtype, n, trans: self.number()? }
            }
            "set_max_registers" => Intrinsic::SetMaxRegisters { more: self.number()?, count: self.number()? },
            "named_barrier" => Intrinsic::NamedBarrier { threads: self.number()? },
            name => matrix_instruction(name).ok_or_else(|| format!("`{name}` is no intrinsic"))?,
        };
        let mut outs = Vec::new();
        self.expect("(")?;
        while !self.accept(")") {
            outs.push(if self.peek().starts_with('$') {
                let (a, i) = self.constant_elem()?;
                Place::Elem(a, i)
            } else {
                Place::Var(VarId(self.id('%')?))
            });
            self.accept(",");
        }
        self.expect("=")?;
        Ok(Stmt::Intrinsic { op, outs, args: self.args()? })
    }

    /// `(a, b, …)`
    fn args(&mut self) -> Result<Vec<Expr>> {
        let mut args = Vec::new();
        self.expect("(")?;
        while !self.accept(")") {
            args.push(self.expr()?);
            self.accept(",");
        }
        Ok(args)
    }

    fn expr(&mut self) -> Result<Expr> {
        self.deeper()?;
        let word = self.peek();
        let e = match word.chars().next() {
            Some('%') => Expr::Var(VarId(self.id('%')?)),
            Some('$') => {
                let (a, i) = self.elem()?;
                Expr::Elem(a, Box::new(i))
            }
            Some('&') if self.tokens.get(self.at + 1).is_none_or(|t| t.text != "[") => {
                Expr::Param(ParamId(self.id('&')?))
            }
            Some('&' | '@') => {
                let (mem, i) = self.place()?;
                Expr::Load(mem, Box::new(i))
            }
            _ => {
                self.at += 1;
                match (find(&SPECIALS, word), literal(word)) {
                    (Some(s), _) => Expr::Special(s),
                    (_, Some(e)) => e,
                    _ => self.call(word)?,
                }
            }
        };
        self.depth -= 1;
        Ok(e)
    }

    fn call(&mut self, name: &str) -> Result<Expr> {
        let args = self.args()?;
        let unknown = || format!("`{name}` of {} operands", args.len());
        let boxed: Vec<Box<Expr>> = args.iter().cloned().map(Box::new).collect();
        if let Ok([a, b]) = <[Box<Expr>; 2]>::try_from(boxed.clone())
            && let Some(e) = binary(name, a, b)
        {
            return Ok(e);
        }
        if let Ok([c, a, b]) = <[Box<Expr>; 3]>::try_from(boxed.clone())
            && name == "select"
        {
            return Ok(Expr::Select(c, a, b));
        }
        if let Ok([a]) = <[Box<Expr>; 1]>::try_from(boxed)
            && let Some(e) = unary(name, a)
        {
            return Ok(e);
        }
        if let Some(f) = Approx::parse(name).filter(|f| f.arity() == args.len()) {
            return Ok(Expr::Approx(f, args));
        }
        let row =
            FUNCS.iter().find(|r| format!("{:?}", r.func).eq_ignore_ascii_case(name)).ok_or_else(unknown)?;
        if row.arity as usize != args.len() {
            return Err(unknown());
        }
        Ok(Expr::Call(row.func, args))
    }
}

fn binary(name: &str, a: Box<Expr>, b: Box<Expr>) -> Option<Expr> {
    if let Some(op) = find(&INT_OPS, name) {
        return Some(Expr::Int(op, a, b));
    }
    if let Some(op) = find(&CMP_OPS, name) {
        return Some(Expr::Compare(op, a, b));
    }
    match name {
        "b.and" => Some(Expr::And(a, b)),
        "b.or" => Some(Expr::Or(a, b)),
        _ => Some(Expr::Pack2(DType::parse(name.strip_prefix("pack.")?)?, a, b)),
    }
}

fn unary(name: &str, a: Box<Expr>) -> Option<Expr> {
    if let ("addr", Expr::Load(Mem::Shared(s), i)) = (name, &*a) {
        return Some(Expr::SharedAddr(*s, i.clone()));
    }
    if name == "b.not" {
        return Some(Expr::Not(a));
    }
    let (kind, of) = name.split_once('.')?;
    match kind {
        "cast" => Some(Expr::Cast(find(&TYPES, of)?, a)),
        "bitcast" => Some(Expr::Bitcast(find(&TYPES, of)?, a)),
        "round" => Some(Expr::Round(DType::parse(of)?, a)),
        "unpack0" => Some(Expr::Unpack2(DType::parse(of)?, 0, a)),
        "unpack1" => Some(Expr::Unpack2(DType::parse(of)?, 1, a)),
        _ => None,
    }
}

fn find<T: Copy>(table: &[(T, &str)], word: &str) -> Option<T> {
    table.iter().find(|r| r.1 == word).map(|r| r.0)
}

/// The number of a name like `%sum.3`.
fn id_of(word: &str, sigil: char) -> Option<u32> {
    word.strip_prefix(sigil)?.rsplit_once('.')?.1.parse().ok()
}

fn literal(word: &str) -> Option<Expr> {
    let value = match word {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => {
            if let Some(bits) = word.strip_prefix("f:") {
                Value::F32(f32::from_bits(u32::from_str_radix(bits, 16).ok()?))
            } else if let Some(bits) = word.strip_prefix("d:") {
                Value::F64(f64::from_bits(u64::from_str_radix(bits, 16).ok()?))
            } else if let Some(hex) = word.strip_prefix("0x").and_then(|w| w.strip_suffix('u')) {
                return u32::from_str_radix(hex, 16).ok().map(Expr::U32);
            } else if let Some(v) = word.strip_suffix('L') {
                Value::I64(v.parse().ok()?)
            } else if let Ok(v) = word.parse::<i32>() {
                Value::I32(v)
            } else if let Some(v) = word.strip_suffix('f').filter(|_| is_number(word)) {
                Value::F32(v.parse().ok()?)
            } else {
                Value::F64(word.strip_suffix('d').filter(|_| is_number(word))?.parse().ok()?)
            }
        }
    };
    Some(Expr::Lit(value))
}

/// Told from names such as `erf`: numbers begin with a digit or a sign.
fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit() || c == '-')
}
