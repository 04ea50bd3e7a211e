//! Types of simt expressions, and the verifier of simt kernels.
//!
//! Checked: every variable is declared once, before its uses and in a scope around them; types agree exactly;
//! operands fit the functions' laws; ids are in range; constant indices of arrays are in bounds; vector accesses
//! are of 4, 8 or 16 bytes; stores go to parameters marked as written; intrinsics have their operands.

use super::simt::*;
use crate::vocab::dtype::{self, DType, Value};
use crate::vocab::func::Func;
use std::collections::HashSet;

type Result<T> = std::result::Result<T, String>;

/// The type of a well-formed expression, or what is wrong with it.
/// The array of an element.
fn element<'k>(k: &'k Kernel, a: ArrayId, i: &Expr) -> Result<&'k Array> {
    want(k, i, Ty::I32, "the index of an array")?;
    let array = lookup(&k.arrays, a.0, "array")?;
    if array.named && !matches!(i, Expr::Lit(_)) {
        return Err(format!(
            "an index of {} that is no constant, though PTX names its registers",
            array.name
        ));
    }
    Ok(array)
}

pub fn type_of(k: &Kernel, e: &Expr) -> Result<Ty> {
    match e {
        Expr::Lit(v) => Ok(value_type(*v)),
        Expr::U32(_) => Ok(Ty::U32),
        Expr::Var(v) => Ok(lookup(&k.vars, v.0, "variable")?.ty),
        Expr::Param(p) => match &lookup(&k.params, p.0, "parameter")?.kind {
            ParamKind::Scalar(ty) => Ok(*ty),
            ParamKind::Pointer { .. } => Err("a pointer parameter used as a value".into()),
            ParamKind::TensorMap(_) => Err("a tensor map used as a value".into()),
        },
        Expr::Special(_) => Ok(Ty::I32),
        Expr::Elem(a, i) => Ok(element(k, *a, i)?.ty),
        Expr::Load(mem, i) => {
            index(k, i)?;
            Ok(Ty::of(mem_dtype(k, *mem)?.compute()))
        }
        Expr::Call(f, args) => call_type(*f, &types(k, args)?),
        Expr::Approx(f, args) => match types(k, args)? {
            tys if tys.len() == f.arity() && tys.iter().all(|&t| t == Ty::F32) => Ok(Ty::F32),
            tys => Err(format!("{} of {tys:?}", f.row().name)),
        },
        Expr::Int(op, a, b) => int_type(k, *op, a, b),
        Expr::Compare(_, a, b) => same(k, a, b).map(|_| Ty::Bool),
        Expr::Select(c, a, b) => {
            want(k, c, Ty::Bool, "a condition")?;
            same(k, a, b)
        }
        Expr::And(a, b) | Expr::Or(a, b) => {
            want(k, a, Ty::Bool, "an operand of and/or")?;
            want(k, b, Ty::Bool, "an operand of and/or").map(|_| Ty::Bool)
        }
        Expr::Not(a) => want(k, a, Ty::Bool, "the operand of not").map(|_| Ty::Bool),
        Expr::Cast(ty, a) => type_of(k, a).map(|_| *ty),
        Expr::Round(dtype, a) => match type_of(k, a)? {
            Ty::U32 | Ty::U64 => Err("a rounding of a bit pattern".into()),
            _ => Ok(Ty::of(dtype.compute())),
        },
        Expr::Bitcast(ty, a) => match bits(type_of(k, a)?) == bits(*ty) && bits(*ty) > 1 {
            true => Ok(*ty),
            false => Err(format!("a bit cast between different widths, to {ty:?}")),
        },
        Expr::Pack2(dtype, a, b) => {
            half(*dtype)?;
            want(k, a, Ty::F32, "an operand of pack")?;
            want(k, b, Ty::F32, "an operand of pack").map(|_| Ty::U32)
        }
        Expr::Unpack2(dtype, at, a) => {
            half(*dtype)?;
            if *at > 1 {
                return Err("a packed register has elements 0 and 1".into());
            }
            want(k, a, Ty::U32, "the operand of unpack").map(|_| Ty::F32)
        }
        Expr::SharedAddr(s, i) => {
            lookup(&k.shared, s.0, "shared array")?;
            index(k, i).map(|_| Ty::U32)
        }
    }
}

fn half(dtype: DType) -> Result<()> {
    match matches!(dtype, DType::F16 | DType::BF16) {
        true => Ok(()),
        false => Err(format!("{} is not a 16-bit float", dtype.name())),
    }
}

pub fn value_type(v: Value) -> Ty {
    Ty::of(v.ty())
}

pub fn bits(ty: Ty) -> u32 {
    match ty {
        Ty::Bool => 1,
        Ty::I32 | Ty::U32 | Ty::F32 => 32,
        Ty::I64 | Ty::U64 | Ty::F64 => 64,
    }
}

/// The dtype of the elements that a memory operand names.
pub fn mem_dtype(k: &Kernel, mem: Mem) -> Result<DType> {
    match mem {
        Mem::Shared(s) => Ok(lookup(&k.shared, s.0, "shared array")?.dtype),
        Mem::Global(p) => match &lookup(&k.params, p.0, "parameter")?.kind {
            ParamKind::Pointer { dtype, .. } => Ok(*dtype),
            ParamKind::Scalar(_) => Err("a scalar parameter used as memory".into()),
            ParamKind::TensorMap(_) => Err("a tensor map used as memory".into()),
        },
    }
}

fn lookup<'a, T>(table: &'a [T], i: u32, what: &str) -> Result<&'a T> {
    table.get(i as usize).ok_or_else(|| format!("{what} {i} does not exist"))
}

fn types(k: &Kernel, args: &[Expr]) -> Result<Vec<Ty>> {
    args.iter().map(|a| type_of(k, a)).collect()
}

fn want(k: &Kernel, e: &Expr, ty: Ty, what: &str) -> Result<()> {
    match type_of(k, e)? {
        found if found == ty => Ok(()),
        found => Err(format!("{what} is {found:?}, not {ty:?}")),
    }
}

fn same(k: &Kernel, a: &Expr, b: &Expr) -> Result<Ty> {
    match (type_of(k, a)?, type_of(k, b)?) {
        (a, b) if a == b => Ok(a),
        (a, b) => Err(format!("operands of types {a:?} and {b:?}")),
    }
}

fn index(k: &Kernel, i: &Expr) -> Result<()> {
    match type_of(k, i)? {
        Ty::I32 | Ty::I64 => Ok(()),
        ty => Err(format!("an index of type {ty:?}")),
    }
}

fn int_type(k: &Kernel, op: IntOp, a: &Expr, b: &Expr) -> Result<Ty> {
    match same(k, a, b)? {
        ty @ (Ty::I32 | Ty::U32 | Ty::I64 | Ty::U64) => Ok(ty),
        ty => Err(format!("{op:?} of {ty:?}")),
    }
}

/// The result of a scalar function.
pub fn call_type(f: Func, args: &[Ty]) -> Result<Ty> {
    let language: Option<Vec<_>> = args.iter().map(|&t| language_type(t)).collect();
    match language.and_then(|tys| f.result(&tys)) {
        Some(ty) => Ok(Ty::of(ty)),
        None => Err(format!("{} of {args:?}", f.name())),
    }
}

/// The language's type that a register's type is, if it is one.
fn language_type(ty: Ty) -> Option<dtype::Ty> {
    match ty {
        Ty::Bool => Some(dtype::Ty::Bool),
        Ty::I32 => Some(dtype::Ty::I32),
        Ty::I64 => Some(dtype::Ty::I64),
        Ty::F32 => Some(dtype::Ty::F32),
        Ty::F64 => Some(dtype::Ty::F64),
        Ty::U32 | Ty::U64 => None,
    }
}

/// The first thing wrong with a kernel, if any.
pub fn verify(k: &Kernel) -> Result<()> {
    let threads: u64 = k.block.iter().map(|&n| n as u64).product();
    if threads == 0 || threads > 1024 {
        return Err(format!("a block of {threads} threads"));
    }
    let [across, y, z] = k.cluster.map(|n| n.max(1));
    if across > 16 || y * z > 1 || !k.grid[0].is_multiple_of(across) {
        return Err(format!("clusters of {:?} blocks in a grid of {:?}", k.cluster, k.grid));
    }
    for s in &k.shared {
        if !s.align.is_power_of_two() || s.align * 8 < s.dtype.bits() {
            return Err(format!("shared {} is aligned to {} bytes", s.name, s.align));
        }
    }
    let mut v = Verifier { k, scope: HashSet::new() };
    v.block(&k.body)
}

struct Verifier<'a> {
    k: &'a Kernel,
    /// Variables that are declared here.
    scope: HashSet<VarId>,
}

impl Verifier<'_> {
    fn block(&mut self, stmts: &[Stmt]) -> Result<()> {
        let before = self.scope.clone();
        for s in stmts {
            self.stmt(s).map_err(|m| format!("{m}, in {}", brief(s)))?;
        }
        self.scope = before;
        Ok(())
    }

    /// An expression's type, with all its variables declared.
    fn expr(&self, e: &Expr) -> Result<Ty> {
        let mut missing = None;
        visit(e, &mut |e| match e {
            Expr::Var(v) if !self.scope.contains(v) => missing = Some(*v),
            _ => {}
        });
        match missing {
            Some(v) => {
                let name = &lookup(&self.k.vars, v.0, "variable")?.name;
                Err(format!("variable {name} ({}) is used where it is not declared", v.0))
            }
            None => type_of(self.k, e),
        }
    }

    fn is(&self, e: &Expr, ty: Ty, what: &str) -> Result<()> {
        match self.expr(e)? {
            found if found == ty => Ok(()),
            found => Err(format!("{what} is {found:?}, not {ty:?}")),
        }
    }

    fn declare(&mut self, v: VarId) -> Result<Ty> {
        let var = lookup(&self.k.vars, v.0, "variable")?;
        match self.scope.insert(v) {
            true => Ok(var.ty),
            false => Err(format!("variable {} is declared twice", var.name)),
        }
    }

    /// A variable that a statement sets, and declares if nothing has.
    fn result(&mut self, v: VarId, ty: Ty) -> Result<()> {
        let var = lookup(&self.k.vars, v.0, "variable")?;
        self.scope.insert(v);
        match var.ty == ty {
            true => Ok(()),
            false => Err(format!("variable {} is {:?}, its value {ty:?}", var.name, var.ty)),
        }
    }

    fn index(&self, e: &Expr) -> Result<()> {
        match self.expr(e)? {
            Ty::I32 | Ty::I64 => Ok(()),
            ty => Err(format!("an index of type {ty:?}")),
        }
    }

    /// The dtype of memory that is written.
    fn written(&self, mem: Mem) -> Result<DType> {
        if let Mem::Global(p) = mem
            && let ParamKind::Pointer { written: false, .. } = lookup(&self.k.params, p.0, "parameter")?.kind
        {
            return Err(format!("{} is written but not marked so", self.k.params[p.0 as usize].name));
        }
        mem_dtype(self.k, mem)
    }

    fn stmt(&mut self, s: &Stmt) -> Result<()> {
        match s {
            Stmt::Let(v, e) => {
                let ty = self.expr(e)?;
                match self.declare(*v)? {
                    declared if declared == ty => Ok(()),
                    declared => Err(format!("a value of {ty:?} for a variable of {declared:?}")),
                }
            }
            Stmt::Set(v, e) => {
                self.expr(&Expr::Var(*v))?;
                self.is(e, self.k.vars[v.0 as usize].ty, "the value")
            }
            Stmt::SetElem(a, i, e) => {
                let array = element(self.k, *a, i)?;
                self.is(e, array.ty, "the value")
            }
            Stmt::Store(mem, i, e) => {
                let dtype = self.written(*mem)?;
                self.index(i)?;
                self.is(e, Ty::of(dtype.compute()), "the stored value")
            }
            Stmt::LoadVec { array, mem, index, count, at } => {
                mem_dtype(self.k, *mem)?;
                self.vector(*array, *mem, index, *count, *at)
            }
            Stmt::StoreVec { array, mem, index, count, at } => {
                self.written(*mem)?;
                self.vector(*array, *mem, index, *count, *at)
            }
            Stmt::For { var, lo, hi, step, body, .. } => {
                let ty = lookup(&self.k.vars, var.0, "variable")?.ty;
                if !matches!(ty, Ty::I32 | Ty::I64) {
                    return Err(format!("a loop over {ty:?}"));
                }
                for e in [lo, hi, step] {
                    self.is(e, ty, "a bound of the loop")?;
                }
                if matches!(step, Expr::Lit(Value::I32(..=0) | Value::I64(..=0))) {
                    return Err("a loop's step is positive".into());
                }
                let before = self.scope.clone();
                self.declare(*var)?;
                self.block(body)?;
                self.scope = before;
                Ok(())
            }
            Stmt::While { cond, body } => {
                self.is(cond, Ty::Bool, "a condition")?;
                self.block(body)
            }
            Stmt::If { cond, then, otherwise } => {
                self.is(cond, Ty::Bool, "a condition")?;
                self.block(then)?;
                self.block(otherwise)
            }
            Stmt::Shuffle { var, value, lane, .. } => {
                self.is(lane, Ty::I32, "the lane of a shuffle")?;
                let ty = self.expr(value)?;
                self.result(*var, ty)
            }
            Stmt::Ballot { var, pred } => {
                self.is(pred, Ty::Bool, "a predicate")?;
                self.result(*var, Ty::U32)
            }
            Stmt::Atomic { op, mem, index, value, old } => self.atomic(*op, *mem, index, value, *old),
            Stmt::Intrinsic { op, outs, args } => self.intrinsic(*op, outs, args),
            Stmt::Fault { fault, value, .. } => {
                self.written(Mem::Global(*fault))?;
                self.is(value, Ty::I64, "the value of a fault")
            }
            Stmt::Barrier | Stmt::WarpBarrier | Stmt::Fence | Stmt::Line(_) | Stmt::Comment(_) => Ok(()),
        }
    }

    fn vector(&self, array: ArrayId, mem: Mem, i: &Expr, count: u32, at: u32) -> Result<()> {
        self.index(i)?;
        let (array, dtype) = (lookup(&self.k.arrays, array.0, "array")?, mem_dtype(self.k, mem)?);
        if array.named {
            return Err(format!("a vector of {}, whose registers PTX names", array.name));
        }
        let bits = count * dtype.bits();
        if !matches!(bits, 32 | 64 | 128) {
            return Err(format!("a vector of {bits} bits"));
        }
        let elems = if array.ty == Ty::U32 { bits / 32 } else { count };
        if array.ty != Ty::U32 && array.ty != Ty::of(dtype.compute()) {
            return Err(format!("elements of {} for an array of {:?}", dtype.name(), array.ty));
        }
        match at + elems <= array.len {
            true => Ok(()),
            false => {
                Err(format!("elements {at}..{} of array {}, which has {}", at + elems, array.name, array.len))
            }
        }
    }

    fn atomic(&mut self, op: AtomicOp, mem: Mem, i: &Expr, value: &Expr, old: Option<VarId>) -> Result<()> {
        let dtype = self.written(mem)?;
        let ty = Ty::of(dtype.compute());
        let float = matches!(ty, Ty::F32 | Ty::F64);
        if ty == Ty::Bool || dtype.bits() < 32 || (float && op == AtomicOp::Or) {
            return Err(format!("an atomic {op:?} on {}", dtype.name()));
        }
        self.index(i)?;
        self.is(value, ty, "the value of an atomic")?;
        old.map_or(Ok(()), |v| self.result(v, ty))
    }

    fn intrinsic(&mut self, op: Intrinsic, outs: &[Place], args: &[Expr]) -> Result<()> {
        if let Intrinsic::TmaLoad { map, rank } = op {
            tensor_map(self.k, map, rank, false)?;
        }
        if let Intrinsic::TmaStore { map, rank } | Intrinsic::TmaMulticast { map, rank } = op {
            tensor_map(self.k, map, rank, false)?;
        }
        if let Intrinsic::TmaPixels { map, rank, .. } = op {
            tensor_map(self.k, map, rank, true)?;
        }
        if let Intrinsic::PublishWord { mem } | Intrinsic::AwaitWords { mem, .. } = op {
            let dtype = self.written(Mem::Global(mem))?;
            if dtype != DType::I64 {
                return Err(format!("words that are published in {}", dtype.name()));
            }
        }
        let (want_args, want_outs) = signature(op)?;
        if args.len() != want_args.len() || outs.len() != want_outs.len() {
            return Err(format!("{} operands and {} results", args.len(), outs.len()));
        }
        for (arg, ty) in args.iter().zip(want_args) {
            match (self.expr(arg)?, ty) {
                (found, Some(ty)) if found != ty => {
                    return Err(format!("an operand is {found:?}, not {ty:?}"));
                }
                (Ty::I32 | Ty::I64, None) | (_, Some(_)) => {}
                (found, None) => return Err(format!("an index of type {found:?}")),
            }
        }
        if let (Intrinsic::Wgmma { .. } | Intrinsic::WgmmaRegs { .. }, Some(Place::Elem(a, first))) =
            (op, outs.first())
        {
            let neighbours =
                |(i, o): (u32, &Place)| matches!(o, Place::Elem(b, j) if b == a && *j == first + i);
            if !(0..).zip(outs).all(neighbours) {
                return Err("accumulators that are not neighbours".into());
            }
        }
        let named = |a: &ArrayId| self.k.arrays.get(a.0 as usize).is_some_and(|a| a.named);
        if !matches!(op, Intrinsic::Wgmma { .. })
            && outs.iter().any(|o| matches!(o, Place::Elem(a, _) if named(a)))
        {
            return Err("results in registers that PTX names, which only matrix instructions set".into());
        }
        for (out, ty) in outs.iter().zip(want_outs) {
            match out {
                Place::Var(v) => self.result(*v, ty)?,
                Place::Elem(a, i) => {
                    let array = lookup(&self.k.arrays, a.0, "array")?;
                    if array.ty != ty || *i >= array.len {
                        return Err(format!("result {i} of array {}", array.name));
                    }
                }
            }
        }
        Ok(())
    }
}

/// A parameter that is a tensor map of this rank, as the hardware takes it.
fn tensor_map(k: &Kernel, p: ParamId, rank: u8, pixels: bool) -> Result<()> {
    let ParamKind::TensorMap(t) = &lookup(&k.params, p.0, "parameter")?.kind else {
        return Err("a copy of boxes without a tensor map".into());
    };
    let n = t.dims.len();
    let inner = t.extent.first().map_or(0, |e| e * t.dtype.bits() / 8);
    let fits = (1..=5).contains(&n)
        && rank as usize == n
        && t.extent.len() == if pixels { 2 } else { n }
        && t.pixels.is_some() == pixels
        && t.pixels.as_ref().is_none_or(|p| walks(p, n))
        && t.strides.len() + 1 == n
        && t.offset % 16 == 0
        && t.dims.iter().all(|d| (1..=1 << 32).contains(d))
        && t.strides.iter().all(|s| s % 16 == 0 && (0..1 << 40).contains(s))
        && t.extent.iter().all(|e| (1..=256).contains(e))
        && inner % 16 == 0
        && (t.swizzle == Swizzle::None || inner <= t.swizzle.width());
    if fits { Ok(()) } else { Err(format!("a tensor map that the hardware does not take: {t:?}")) }
}

/// Whether windows of pixels are within what a map of this rank can say.
fn walks(p: &Pixels, rank: usize) -> bool {
    let corner = match rank {
        3 => 1 << 15,
        4 => 1 << 7,
        5 => 1 << 4,
        _ => return false,
    };
    let fits = |v: &i32| (-corner..corner).contains(v);
    [p.lower.len(), p.upper.len(), p.step.len()] == [rank - 2; 3]
        && p.lower.iter().chain(&p.upper).all(fits)
        && p.step.iter().all(|s| (1..=8).contains(s))
}

/// Types of an intrinsic's operands (`None`: an index, I32 or I64) and results.
pub fn signature(op: Intrinsic) -> Result<(Vec<Option<Ty>>, Vec<Ty>)> {
    match op {
        Intrinsic::CpAsync { bytes, .. } if !matches!(bytes, 4 | 8 | 16) => {
            Err(format!("a copy of {bytes} bytes"))
        }
        Intrinsic::CpAsync { .. } => Ok((vec![Some(Ty::U32), None, Some(Ty::I32)], vec![])),
        Intrinsic::PublishWord { .. } => Ok((vec![None, Some(Ty::U32)], vec![])),
        Intrinsic::AwaitWords { count, .. } => Ok((vec![None, Some(Ty::I32)], vec![Ty::U32; count as usize])),
        Intrinsic::MatchDigit { .. } => Ok((vec![Some(Ty::U32)], vec![Ty::I32; 2])),
        Intrinsic::Philox => Ok((vec![Some(Ty::I64); 2], vec![Ty::U32; 4])),
        Intrinsic::CpAsyncCommit | Intrinsic::CpAsyncWait(_) | Intrinsic::GridWait => Ok((vec![], vec![])),
        Intrinsic::LdMatrix { count, .. } | Intrinsic::StMatrix { count, .. }
            if !matches!(count, 1 | 2 | 4) =>
        {
            Err(format!("{count} matrices"))
        }
        Intrinsic::StMatrix { count, .. } => Ok((vec![Some(Ty::U32); 1 + count as usize], vec![])),
        Intrinsic::LdMatrix { count, .. } => Ok((vec![Some(Ty::U32)], vec![Ty::U32; count as usize])),
        Intrinsic::BytePermute => Ok((vec![Some(Ty::U32); 3], vec![Ty::U32])),
        Intrinsic::HalfFma { dtype } => {
            half(dtype)?;
            Ok((vec![Some(Ty::U32); 3], vec![Ty::U32]))
        }
        Intrinsic::MbarrierInit
        | Intrinsic::MbarrierExpect
        | Intrinsic::MbarrierWait
        | Intrinsic::MbarrierArriveAt => Ok((vec![Some(Ty::U32); 2], vec![])),
        Intrinsic::MbarrierArrive | Intrinsic::NamedBarrier { .. } => Ok((vec![Some(Ty::U32)], vec![])),
        Intrinsic::FenceMbarrierInit
        | Intrinsic::FenceProxyAsync
        | Intrinsic::WgmmaFence
        | Intrinsic::WgmmaCommit
        | Intrinsic::ClusterArrive
        | Intrinsic::ClusterWait
        | Intrinsic::BulkCommit
        | Intrinsic::BulkWait(_)
        | Intrinsic::WgmmaWait(_) => Ok((vec![], vec![])),
        Intrinsic::StoreAsync { wide } => {
            let value = if wide { Ty::U64 } else { Ty::U32 };
            Ok((vec![Some(Ty::U32), Some(Ty::U32), Some(Ty::U32), Some(value)], vec![]))
        }
        Intrinsic::SetMaxRegisters { count, .. } if count % 8 != 0 || !(24..=256).contains(&count) => {
            Err(format!("{count} registers a thread"))
        }
        Intrinsic::SetMaxRegisters { .. } => Ok((vec![], vec![])),
        Intrinsic::TmaLoad { rank, .. } => {
            let mut args = vec![Some(Ty::U32); 2];
            args.extend(vec![Some(Ty::I32); rank as usize]);
            Ok((args, vec![]))
        }
        Intrinsic::TmaMulticast { rank, .. } => {
            let mut args = vec![Some(Ty::U32); 2];
            args.extend(vec![Some(Ty::I32); rank as usize]);
            args.push(Some(Ty::U32));
            Ok((args, vec![]))
        }
        Intrinsic::TmaStore { rank, .. } => {
            let mut args = vec![Some(Ty::U32)];
            args.extend(vec![Some(Ty::I32); rank as usize]);
            Ok((args, vec![]))
        }
        Intrinsic::TmaPixels { rank, multicast, .. } => {
            let mut args = vec![Some(Ty::U32); 2];
            args.extend(vec![Some(Ty::I32); 2 * rank.max(1) as usize - 2]);
            args.extend(multicast.then_some(Some(Ty::U32)));
            Ok((args, vec![]))
        }
        Intrinsic::Wgmma { dtypes, n, trans } => {
            let sum = wgmma_sum(dtypes)?;
            if trans != [false; 2] && dtypes[0].bits() != 16 {
                return Err("a transposed operand that is not of 16 bits".into());
            }
            let whole = n % if sum == Ty::I32 && n > 24 { 16 } else { 8 } == 0;
            match whole && (8..=256).contains(&n) {
                true => Ok((vec![Some(Ty::U64), Some(Ty::U64), Some(Ty::I32)], vec![sum; n as usize / 2])),
                false => Err(format!("a matrix instruction with {n} columns")),
            }
        }
        Intrinsic::WgmmaRegs { dtype, n, .. } => {
            half(dtype)?;
            let mut args = vec![Some(Ty::U32); 4];
            args.extend([Some(Ty::U64), Some(Ty::I32)]);
            match n % 8 == 0 && (8..=256).contains(&n) {
                true => Ok((args, vec![Ty::F32; n as usize / 2])),
                false => Err(format!("a matrix instruction with {n} columns")),
            }
        }
        _ => {
            let shape = crate::sim::intrinsics::shape(op).ok_or("an mma that does not exist")?;
            let [a, b, c] = shape.regs;
            let sum = Ty::of(shape.sum.compute());
            let part = if shape.sum == DType::F64 { Ty::F64 } else { Ty::U32 };
            let mut args = vec![Some(part); a + b];
            args.extend(vec![Some(sum); c]);
            Ok((args, vec![sum; c]))
        }
    }
}

/// What a warpgroup's matrix instruction of these operands sums in.
fn wgmma_sum(dtypes: [DType; 2]) -> std::result::Result<Ty, String> {
    use DType::*;
    match dtypes {
        [F16, F16] | [BF16, BF16] | [F32, F32] | [E4M3 | E5M2, E4M3 | E5M2] => Ok(Ty::F32),
        [I8 | U8, I8 | U8] => Ok(Ty::I32),
        [a, b] => Err(format!("a matrix instruction of {} and {}", a.name(), b.name())),
    }
}

/// A statement without what it contains.
fn brief(s: &Stmt) -> String {
    match s {
        Stmt::For { .. } => "a for loop".into(),
        Stmt::While { .. } => "a while loop".into(),
        Stmt::If { .. } => "an if".into(),
        s => {
            let text = format!("{s:?}");
            if text.len() > 200 { format!("{}…", text.chars().take(200).collect::<String>()) } else { text }
        }
    }
}

/// Calls `f` with an expression and all its parts.
pub fn visit<'e>(e: &'e Expr, f: &mut dyn FnMut(&'e Expr)) {
    f(e);
    match e {
        Expr::Lit(_) | Expr::U32(_) | Expr::Var(_) | Expr::Param(_) | Expr::Special(_) => {}
        Expr::Elem(_, a)
        | Expr::Load(_, a)
        | Expr::Not(a)
        | Expr::Cast(_, a)
        | Expr::Round(_, a)
        | Expr::Bitcast(_, a)
        | Expr::Unpack2(_, _, a)
        | Expr::SharedAddr(_, a) => visit(a, f),
        Expr::Int(_, a, b)
        | Expr::Compare(_, a, b)
        | Expr::And(a, b)
        | Expr::Or(a, b)
        | Expr::Pack2(_, a, b) => {
            visit(a, f);
            visit(b, f);
        }
        Expr::Select(c, a, b) => {
            visit(c, f);
            visit(a, f);
            visit(b, f);
        }
        Expr::Call(_, args) | Expr::Approx(_, args) => args.iter().for_each(|a| visit(a, f)),
    }
}
