//! A simt kernel to bytecode: registers are given out, expressions become operations, control flow becomes jumps.
//!
//! Variables, arrays, constants and parameters have registers of their own for the whole kernel; temporaries come
//! from free lists. An expression's operands are released after its destination is taken, so an operation never
//! writes a register that it reads at another width.

use super::code::*;
use super::lanes::{PureFn, Reg};
use super::ops;
use crate::ir::simt::{ArrayId, Expr, IntOp, Intrinsic, Kernel, Mem, ParamId, Special, Stmt, Ty, VarId};
use crate::ir::simt_verify::{mem_dtype, type_of};
use crate::vocab::dtype::Value;
use girih_dsl::ast::Span;
use std::collections::{BTreeSet, HashMap};

/// First rows: where masked operations put their lanes before they are blended.
pub const SCRATCH: Reg = 0;
const SCRATCH_ROWS: u32 = 2;

type Result<T> = std::result::Result<T, String>;

pub fn compile(kernel: &Kernel) -> Result<Code> {
    let mut c = Compiler::new(kernel);
    c.block(&kernel.body)?;
    c.emit(Op::End);
    c.code.rows = c.rows as usize;
    Ok(c.code)
}

struct Compiler<'a> {
    kernel: &'a Kernel,
    code: Code,
    vars: Vec<Reg>,
    arrays: Vec<ArrayRef>,
    consts: HashMap<Const, Reg>,
    specials: HashMap<Special, Reg>,
    scalars: HashMap<u32, Reg>,
    /// Array elements that every path to here has set.
    assigned: BTreeSet<u32>,
    rows: u32,
    free_narrow: Vec<Reg>,
    free_wide: Vec<Reg>,
    span: u32,
}

/// A value in a register; `temp` if the register is to be released.
#[derive(Clone, Copy)]
struct Operand {
    reg: Reg,
    temp: Option<Width>,
}

/// Where an expression's value goes.
#[derive(Clone, Copy)]
enum Into {
    Any,
    /// All lanes may be written.
    Reg(Reg),
    /// Only active lanes may be written.
    Keep(Reg),
}

impl<'a> Compiler<'a> {
    fn new(kernel: &'a Kernel) -> Compiler<'a> {
        let mut rows = SCRATCH_ROWS;
        let mut take = |n: u32| {
            rows += n;
            rows - n
        };
        let vars = kernel.vars.iter().map(|v| take(Width::of(v.ty).rows())).collect();
        let mut elems = 0;
        let mut arrays = Vec::new();
        for a in &kernel.arrays {
            let width = Width::of(a.ty);
            arrays.push(ArrayRef { reg: take(width.rows() * a.len), elem: elems, len: a.len, width });
            elems += a.len;
        }
        let code = Code {
            ops: Vec::new(),
            spans: Vec::new(),
            span_table: vec![Span::default()],
            rows: 0,
            consts: Vec::new(),
            specials: Vec::new(),
            scalars: Vec::new(),
            elems: elems as usize,
            ordered_apart: false,
            awaits: false,
            shared_bytes: kernel.shared_bytes() as usize,
            shared_granule: granule(kernel),
            shared: shared_layout(kernel),
        };
        Compiler {
            kernel,
            code,
            vars,
            arrays,
            consts: HashMap::new(),
            specials: HashMap::new(),
            scalars: HashMap::new(),
            assigned: BTreeSet::new(),
            rows,
            free_narrow: Vec::new(),
            free_wide: Vec::new(),
            span: 0,
        }
    }

    fn emit(&mut self, op: Op) -> usize {
        self.code.ops.push(op);
        self.code.spans.push(self.span);
        self.code.ops.len() - 1
    }

    fn here(&self) -> u32 {
        self.code.ops.len() as u32
    }

    /// A register that lives for the kernel.
    fn fixed(&mut self, width: Width) -> Reg {
        self.rows += width.rows();
        self.rows - width.rows()
    }

    fn temp(&mut self, width: Width) -> Operand {
        let free = if width == Width::Wide { &mut self.free_wide } else { &mut self.free_narrow };
        let reg = free.pop();
        let reg = reg.unwrap_or_else(|| self.fixed(width));
        Operand { reg, temp: Some(width) }
    }

    fn release(&mut self, o: Operand) {
        match o.temp {
            Some(Width::Wide) => self.free_wide.push(o.reg),
            Some(_) => self.free_narrow.push(o.reg),
            None => {}
        }
    }

    fn release_all(&mut self, operands: &[Operand]) {
        operands.iter().for_each(|&o| self.release(o));
    }

    fn ty(&self, e: &Expr) -> Result<Ty> {
        type_of(self.kernel, e)
    }

    fn constant(&mut self, value: Const) -> Operand {
        let width = match value {
            Const::Word(_) => Width::Word,
            Const::Wide(_) => Width::Wide,
            Const::Mask(_) => Width::Mask,
        };
        let reg = match self.consts.get(&value) {
            Some(&reg) => reg,
            None => {
                let reg = self.fixed(width);
                self.consts.insert(value, reg);
                self.code.consts.push((reg, value));
                reg
            }
        };
        Operand { reg, temp: None }
    }

    fn special(&mut self, s: Special) -> Operand {
        let reg = match self.specials.get(&s) {
            Some(&reg) => reg,
            None => {
                let reg = self.fixed(Width::Word);
                self.specials.insert(s, reg);
                self.code.specials.push((s, reg));
                reg
            }
        };
        Operand { reg, temp: None }
    }

    fn scalar(&mut self, p: ParamId, ty: Ty) -> Operand {
        let reg = match self.scalars.get(&p.0) {
            Some(&reg) => reg,
            None => {
                let reg = self.fixed(Width::of(ty));
                self.scalars.insert(p.0, reg);
                self.code.scalars.push((p.0 as usize, reg, ty));
                reg
            }
        };
        Operand { reg, temp: None }
    }

    // Expressions.

    /// Puts an expression's value where it is wanted, or anywhere.
    fn expr(&mut self, e: &Expr, into: Into) -> Result<Operand> {
        match e {
            Expr::Lit(v) => {
                let c = self.constant(literal(*v));
                Ok(self.deliver(c, Width::of(Ty::of(v.ty())), into))
            }
            Expr::U32(v) => {
                let c = self.constant(Const::Word(*v));
                Ok(self.deliver(c, Width::Word, into))
            }
            Expr::Var(v) => {
                let reg = *self.vars.get(v.0 as usize).ok_or("a variable that does not exist")?;
                let width = Width::of(self.kernel.vars[v.0 as usize].ty);
                Ok(self.deliver(Operand { reg, temp: None }, width, into))
            }
            Expr::Param(p) => {
                let ty = self.ty(e)?;
                let o = self.scalar(*p, ty);
                Ok(self.deliver(o, Width::of(ty), into))
            }
            Expr::Special(s) => {
                let o = self.special(*s);
                Ok(self.deliver(o, Width::Word, into))
            }
            Expr::Elem(a, i) => self.elem(*a, i, into),
            Expr::Load(mem, i) => self.load(*mem, i, into),
            Expr::Int(op, a, b) => self.int(*op, a, b, into),
            _ => self.pure(e, into),
        }
    }

    /// A value that already stands in a register, moved if it is wanted elsewhere.
    fn deliver(&mut self, o: Operand, width: Width, into: Into) -> Operand {
        match into {
            Into::Any => o,
            Into::Reg(d) | Into::Keep(d) => {
                let keep = matches!(into, Into::Keep(_)).then_some(width);
                let args = [o.reg; 3];
                self.emit(Op::Pure { f: ops::copy_of(width), d, args, keep, class: Class::Move });
                self.release(o);
                Operand { reg: d, temp: None }
            }
        }
    }

    /// The destination of an operation that writes all lanes.
    fn target(&mut self, width: Width, into: Into) -> Operand {
        match into {
            Into::Reg(reg) => Operand { reg, temp: None },
            _ => self.temp(width),
        }
    }

    /// Blends a value made in a temporary into its place, if only active lanes may be written.
    fn settle(&mut self, o: Operand, width: Width, into: Into) -> Operand {
        let Into::Keep(d) = into else { return o };
        self.emit(Op::Blend { width, d, s: o.reg });
        self.release(o);
        Operand { reg: d, temp: None }
    }

    fn apply(&mut self, f: Box<PureFn>, class: Class, width: Width, args: &[Operand], into: Into) -> Operand {
        let (d, keep) = match into {
            Into::Any => (self.temp(width), None),
            Into::Reg(reg) => (Operand { reg, temp: None }, None),
            Into::Keep(reg) => (Operand { reg, temp: None }, Some(width)),
        };
        let arg = |i: usize| args.get(i).unwrap_or(&args[0]).reg;
        self.emit(Op::Pure { f, d: d.reg, args: [arg(0), arg(1), arg(2)], keep, class });
        self.release_all(args);
        d
    }

    fn operands(&mut self, exprs: &[&Expr]) -> Result<Vec<Operand>> {
        exprs.iter().map(|e| self.expr(e, Into::Any)).collect()
    }

    fn pure(&mut self, e: &Expr, into: Into) -> Result<Operand> {
        let result = self.ty(e)?;
        let (f, class, exprs): (Box<PureFn>, Class, Vec<&Expr>) = match e {
            Expr::Call(func, args) => {
                let tys: Vec<Ty> = args.iter().map(|a| self.ty(a)).collect::<Result<_>>()?;
                let (f, class) = ops::call(*func, &tys);
                (f, class, args.iter().collect())
            }
            Expr::Approx(f, args) => (ops::approx(*f), Class::Function, args.iter().collect()),
            Expr::Compare(op, a, b) => (ops::compare(*op, self.ty(a)?), Class::Int, vec![a, b]),
            Expr::Select(c, a, b) => (ops::select_of(result), Class::Move, vec![c, a, b]),
            Expr::And(a, b) => (super::lanes::logic(|a, b| a & b), Class::Int, vec![a, b]),
            Expr::Or(a, b) => (super::lanes::logic(|a, b| a | b), Class::Int, vec![a, b]),
            Expr::Not(a) => (super::lanes::logic(|a, _| !a), Class::Int, vec![a]),
            Expr::Cast(to, a) => (ops::cast(*to, self.ty(a)?), Class::Convert, vec![a]),
            Expr::Round(dtype, a) => (ops::round(*dtype, self.ty(a)?), Class::Convert, vec![a]),
            Expr::Bitcast(_, a) => (ops::copy_of(Width::of(result)), Class::Move, vec![a]),
            Expr::Pack2(dtype, a, b) => (ops::pack2(*dtype), Class::Convert, vec![a, b]),
            Expr::Unpack2(dtype, half, a) => (ops::unpack2(*dtype, *half), Class::Convert, vec![a]),
            Expr::SharedAddr(s, i) => {
                let base = self.code.shared[s.0 as usize].0;
                let bits = self.kernel.shared[s.0 as usize].dtype.bits();
                let (index, cluster) = (self.ty(i)?, self.kernel.cluster.iter().map(|&n| n.max(1)).product());
                match cluster {
                    1 => (ops::shared_address(base, bits, index), Class::Int, vec![i]),
                    n => {
                        let f = ops::shared_address_of_block(base, bits, index, n);
                        (f, Class::Int, vec![i, &BLOCK])
                    }
                }
            }
            _ => return Err(format!("an expression that is not pure: {e:?}")),
        };
        let args = self.operands(&exprs)?;
        Ok(self.apply(f, class, Width::of(result), &args, into))
    }

    fn int(&mut self, op: IntOp, a: &Expr, b: &Expr, into: Into) -> Result<Operand> {
        let ty = self.ty(a)?;
        let width = Width::of(ty);
        let args = self.operands(&[a, b])?;
        // Division and shifts by a constant in the domain need no check as they run.
        let safe = ops::int(op, ty).or_else(|| constant_of(b).and_then(|c| ops::int_by(op, ty, c)));
        if let Some(f) = safe {
            return Ok(self.apply(f, Class::Int, width, &args, into));
        }
        let d = self.target(width, into);
        self.emit(Op::Int { op, ty, d: d.reg, a: args[0].reg, b: args[1].reg });
        self.release_all(&args);
        Ok(self.settle(d, width, into))
    }

    fn elem(&mut self, a: ArrayId, i: &Expr, into: Into) -> Result<Operand> {
        let array = *self.arrays.get(a.0 as usize).ok_or("an array that does not exist")?;
        if let Some(at) = constant_of(i) {
            let at = in_array(array, at, a)?;
            if !self.assigned.contains(&(array.elem + at)) {
                self.emit(Op::CheckElem { array: a.0, elem: array.elem + at });
            }
            return Ok(self.deliver(Operand { reg: array.at(at), temp: None }, array.width, into));
        }
        let index = self.expr(i, Into::Any)?;
        let d = self.target(array.width, into);
        self.emit(Op::ReadElem { d: d.reg, array, id: a.0, index: index.reg });
        self.release(index);
        Ok(self.settle(d, array.width, into))
    }

    fn place(&mut self, mem: Mem, i: &Expr) -> Result<(Place, Operand)> {
        let dtype = mem_dtype(self.kernel, mem)?;
        let wide = self.ty(i)? == Ty::I64;
        let index = self.expr(i, Into::Any)?;
        let space = match mem {
            Mem::Global(p) => Space::Global(p.0 as u16),
            Mem::Shared(s) => Space::Shared {
                array: s.0 as u16,
                base: self.code.shared[s.0 as usize].0,
                len: self.kernel.shared[s.0 as usize].len,
            },
        };
        Ok((Place { space, dtype, index: index.reg, wide }, index))
    }

    fn load(&mut self, mem: Mem, i: &Expr, into: Into) -> Result<Operand> {
        let (place, index) = self.place(mem, i)?;
        let width = Width::of(Ty::of(place.dtype.compute()));
        let d = self.target(width, into);
        self.emit(Op::Load { d: d.reg, place });
        self.release(index);
        Ok(self.settle(d, width, into))
    }

    // Statements.

    fn block(&mut self, stmts: &[Stmt]) -> Result<()> {
        stmts.iter().try_for_each(|s| self.stmt(s))
    }

    fn stmt(&mut self, s: &Stmt) -> Result<()> {
        match s {
            Stmt::Let(v, e) => self.expr(e, Into::Reg(self.vars[v.0 as usize])).map(drop),
            Stmt::Set(v, e) => self.expr(e, Into::Keep(self.vars[v.0 as usize])).map(drop),
            Stmt::SetElem(a, i, e) => self.set_elem(*a, i, e),
            Stmt::Store(mem, i, e) => self.store(*mem, i, e),
            Stmt::LoadVec { array, at, mem, index, count } => {
                let (place, o) = self.place(*mem, index)?;
                let (array, raw, words) = self.vector(*array, *at, place, *count)?;
                self.emit(Op::LoadVec { array, at: *at, count: *count, raw, place });
                self.assigned.extend((0..words).map(|i| array.elem + at + i));
                self.release(o);
                Ok(())
            }
            Stmt::StoreVec { mem, index, array, at, count } => {
                let (place, o) = self.place(*mem, index)?;
                let id = *array;
                let (array, raw, words) = self.vector(id, *at, place, *count)?;
                for i in 0..words {
                    if !self.assigned.contains(&(array.elem + at + i)) {
                        self.emit(Op::CheckElem { array: id.0, elem: array.elem + at + i });
                    }
                }
                self.emit(Op::StoreVec { array, at: *at, count: *count, raw, place });
                self.release(o);
                Ok(())
            }
            Stmt::For { var, lo, hi, step, body, .. } => self.for_loop(*var, [lo, hi, step], body),
            Stmt::While { cond, body } => self.while_loop(cond, body),
            Stmt::If { cond, then, otherwise } => self.branch(cond, then, otherwise),
            Stmt::Barrier => self.plain(Op::Barrier),
            Stmt::WarpBarrier => self.plain(Op::WarpBarrier),
            Stmt::Fence => self.plain(Op::Fence),
            Stmt::Shuffle { var, kind, value, lane } => {
                let width = Width::of(self.ty(value)?);
                let args = self.operands(&[value, lane])?;
                let (s, lane) = (args[0].reg, args[1].reg);
                self.emit(Op::Shuffle { d: self.vars[var.0 as usize], kind: *kind, width, s, lane });
                self.release_all(&args);
                Ok(())
            }
            Stmt::Ballot { var, pred } => {
                let p = self.expr(pred, Into::Any)?;
                self.emit(Op::Ballot { d: self.vars[var.0 as usize], pred: p.reg });
                self.release(p);
                Ok(())
            }
            Stmt::Atomic { op, mem, index, value, old } => {
                let (place, o) = self.place(*mem, index)?;
                let v = self.expr(value, Into::Any)?;
                let old = old.map(|v| self.vars[v.0 as usize]);
                self.emit(Op::Atomic { op: *op, place, value: v.reg, old });
                self.release_all(&[o, v]);
                Ok(())
            }
            Stmt::Intrinsic { op, outs, args } => self.intrinsic(*op, outs, args),
            Stmt::Fault { fault, site, value } => {
                let ty = self.ty(value)?;
                let v = self.expr(value, Into::Any)?;
                self.emit(Op::Fault { fault: fault.0 as u16, site: *site, value: v.reg, ty });
                self.release(v);
                Ok(())
            }
            Stmt::Line(span) => {
                self.line(*span);
                Ok(())
            }
            Stmt::Comment(_) => Ok(()),
        }
    }

    fn line(&mut self, span: Span) {
        let table = &mut self.code.span_table;
        self.span = match table.iter().position(|s| *s == span) {
            Some(i) => i as u32,
            None => {
                table.push(span);
                table.len() as u32 - 1
            }
        };
    }

    fn plain(&mut self, op: Op) -> Result<()> {
        self.emit(op);
        Ok(())
    }

    fn set_elem(&mut self, a: ArrayId, i: &Expr, e: &Expr) -> Result<()> {
        let array = *self.arrays.get(a.0 as usize).ok_or("an array that does not exist")?;
        if let Some(at) = constant_of(i) {
            let at = in_array(array, at, a)?;
            self.expr(e, Into::Keep(array.at(at)))?;
            self.mark(array.elem + at);
            return Ok(());
        }
        let args = self.operands(&[i, e])?;
        self.emit(Op::WriteElem { s: args[1].reg, array, id: a.0, index: args[0].reg });
        self.release_all(&args);
        Ok(())
    }

    fn mark(&mut self, elem: u32) {
        // Marks stand even where this path surely set the element before: a path that joins later may not have.
        if self.assigned.insert(elem) {
            self.emit(Op::MarkElem { elem });
        }
    }

    fn store(&mut self, mem: Mem, i: &Expr, e: &Expr) -> Result<()> {
        let (place, index) = self.place(mem, i)?;
        let v = self.expr(e, Into::Any)?;
        self.emit(Op::Store { s: v.reg, place });
        self.release_all(&[index, v]);
        Ok(())
    }

    /// The array of a vector access, whether it holds raw words, and how many of its elements are touched.
    fn vector(&self, id: ArrayId, at: u32, place: Place, count: u32) -> Result<(ArrayRef, bool, u32)> {
        let array = *self.arrays.get(id.0 as usize).ok_or("an array that does not exist")?;
        let raw = self.kernel.arrays[id.0 as usize].ty == Ty::U32;
        let words = if raw { count * place.dtype.bits() / 32 } else { count };
        match at + words <= array.len {
            true => Ok((array, raw, words)),
            false => {
                Err(format!("a vector access past the end of {}", self.kernel.arrays[id.0 as usize].name))
            }
        }
    }

    fn for_loop(&mut self, var: VarId, [lo, hi, step]: [&Expr; 3], body: &[Stmt]) -> Result<()> {
        let reg = self.vars[var.0 as usize];
        let wide = self.kernel.vars[var.0 as usize].ty == Ty::I64;
        let width = if wide { Width::Wide } else { Width::Word };
        self.expr(lo, Into::Reg(reg))?;
        // Bounds are evaluated once: constants and what cannot change stand where they are, others get a register.
        let (hi, step) = (self.stable(hi, width)?, self.stable(step, width)?);
        self.emit(Op::Enter);
        let test = self.emit(Op::Jump { to: 0 });
        let before = self.assigned.clone();
        self.block(body)?;
        self.assigned = before;
        let var = reg;
        self.emit(Op::ForStep { var, step: step.reg, wide, back: test as u32 });
        let end = self.here();
        self.code.ops[test] = Op::ForTest { var, hi: hi.reg, wide, end };
        self.release_all(&[hi, step]);
        Ok(())
    }

    /// A value that later statements cannot change.
    fn stable(&mut self, e: &Expr, width: Width) -> Result<Operand> {
        if constant_of(e).is_some() || matches!(e, Expr::Param(_) | Expr::Special(_)) {
            return self.expr(e, Into::Any);
        }
        let t = self.temp(width);
        self.expr(e, Into::Reg(t.reg))?;
        Ok(t)
    }

    fn while_loop(&mut self, cond: &Expr, body: &[Stmt]) -> Result<()> {
        self.emit(Op::Enter);
        let start = self.here();
        let c = self.expr(cond, Into::Any)?;
        let test = self.emit(Op::Jump { to: 0 });
        self.release(c);
        let before = self.assigned.clone();
        self.block(body)?;
        self.assigned = before;
        self.emit(Op::Jump { to: start });
        let end = self.here();
        self.code.ops[test] = Op::WhileTest { cond: c.reg, end };
        Ok(())
    }

    fn branch(&mut self, cond: &Expr, then: &[Stmt], otherwise: &[Stmt]) -> Result<()> {
        let c = self.expr(cond, Into::Any)?;
        let test = self.emit(Op::Jump { to: 0 });
        self.release(c);
        let before = self.assigned.clone();
        self.block(then)?;
        let after_then = std::mem::replace(&mut self.assigned, before);
        let middle = self.emit(Op::Jump { to: 0 });
        self.code.ops[test] = Op::If { cond: c.reg, otherwise: self.here() - 1 };
        self.block(otherwise)?;
        self.assigned = self.assigned.intersection(&after_then).copied().collect();
        let end = self.here();
        self.code.ops[middle] = Op::Else { end };
        self.emit(Op::EndIf);
        Ok(())
    }

    fn intrinsic(&mut self, op: Intrinsic, outs: &[crate::ir::simt::Place], args: &[Expr]) -> Result<()> {
        let mut targets = Vec::new();
        for out in outs {
            targets.push(match out {
                crate::ir::simt::Place::Var(v) => Out { reg: self.vars[v.0 as usize], elem: None },
                crate::ir::simt::Place::Elem(a, i) => {
                    let array = *self.arrays.get(a.0 as usize).ok_or("an array that does not exist")?;
                    let at = in_array(array, *i as i64, *a)?;
                    Out { reg: array.at(at), elem: Some(array.elem + at) }
                }
            });
        }
        let mut args: Vec<Expr> = args.to_vec();
        if let (Intrinsic::CpAsync { .. }, [_, index, _]) = (op, &mut args[..]) {
            *index = Expr::Cast(Ty::I64, Box::new(index.clone()));
        }
        if let (Intrinsic::PublishWord { .. } | Intrinsic::AwaitWords { .. }, [index, _]) =
            (op, &mut args[..])
        {
            *index = Expr::Cast(Ty::I64, Box::new(index.clone()));
            self.code.awaits |= matches!(op, Intrinsic::AwaitWords { .. });
        }
        let operands = self.operands(&args.iter().collect::<Vec<_>>())?;
        let regs = operands.iter().map(|o| o.reg).collect();
        let elems: Vec<u32> = targets.iter().filter_map(|t| t.elem).collect();
        self.emit(Op::Intrinsic { op, outs: targets, args: regs });
        match op {
            // The results are there only after a wait, which the shadow knows.
            Intrinsic::Wgmma { .. } | Intrinsic::WgmmaRegs { .. } => elems.iter().for_each(|e| {
                self.assigned.remove(e);
            }),
            _ => elems.into_iter().for_each(|e| self.mark(e)),
        }
        let apart = matches!(op, Intrinsic::MbarrierInit | Intrinsic::NamedBarrier { .. });
        self.code.ordered_apart |= apart;
        self.release_all(&operands);
        Ok(())
    }
}

/// The block, whose number in its cluster is a part of shared addresses.
static BLOCK: Expr = Expr::Special(Special::BlockX);

fn in_array(array: ArrayRef, at: i64, id: ArrayId) -> Result<u32> {
    match u32::try_from(at) {
        Ok(at) if at < array.len => Ok(at),
        _ => Err(format!("index {at} of array {} of {} elements", id.0, array.len)),
    }
}

fn constant_of(e: &Expr) -> Option<i64> {
    match e {
        Expr::Lit(Value::I32(v)) => Some(*v as i64),
        Expr::Lit(Value::I64(v)) => Some(*v),
        Expr::U32(v) => Some(*v as i64),
        _ => None,
    }
}

fn literal(v: Value) -> Const {
    match v {
        Value::Bool(b) => Const::Mask(if b { u32::MAX } else { 0 }),
        Value::I32(v) => Const::Word(v as u32),
        Value::F32(v) => Const::Word(v.to_bits()),
        Value::I64(v) => Const::Wide(v as u64),
        Value::F64(v) => Const::Wide(v.to_bits()),
    }
}

/// log2 of the smallest element of the shared arrays.
fn granule(kernel: &Kernel) -> u32 {
    kernel.shared.iter().map(|s| (s.dtype.bits().max(8) / 8).trailing_zeros()).min().unwrap_or(2)
}

/// First byte, bytes and name of each shared array.
fn shared_layout(kernel: &Kernel) -> Vec<(u32, u32, String)> {
    let arrays = kernel.shared_offsets().into_iter().zip(&kernel.shared);
    arrays.map(|(at, s)| (at, s.bytes(), s.name.clone())).collect()
}
