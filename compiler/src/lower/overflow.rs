//! Ranges of index arithmetic: where a 32-bit number of a kernel may leave its type.
//!
//! `Expr::Int` on I32 prints as C's signed operators, which must not overflow. The simulator reports one that does,
//! at sizes that it can run; this looks at kernels of any size without running them. A range is that of all threads
//! and all rounds; what comes from memory, from scalars or from a variable that is counted up in a loop without an end
//! in sight is not known, and nothing is said of what is made of it.

use super::unused::{operands, parts};
use crate::ir::simt::*;
use crate::ir::simt_text;
use crate::ir::simt_verify::{type_of, visit};
use crate::vocab::dtype::Value;
use std::collections::{HashMap, HashSet};

/// What is known of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    /// No value reaches it (yet).
    Never,
    Known(i128, i128),
    Any,
}

use Range::{Any, Known, Never};

impl Range {
    fn join(self, o: Range) -> Range {
        match (self, o) {
            (Never, r) | (r, Never) => r,
            (Known(a, b), Known(c, d)) => Known(a.min(c), b.max(d)),
            _ => Any,
        }
    }

    /// Takes in another range, whether that changed it; what still grows in the last round has no end.
    fn grow(&mut self, r: Range, last: bool) -> bool {
        let joined = self.join(r);
        let grows = joined != *self;
        if grows {
            *self = if last { Any } else { joined };
        }
        grows
    }

    fn with(self, o: Range, f: impl Fn(i128, i128, i128, i128) -> Option<(i128, i128)>) -> Range {
        match (self, o) {
            (Never, _) | (_, Never) => Never,
            (Known(a, b), Known(c, d)) => f(a, b, c, d).map_or(Any, |(lo, hi)| Known(lo, hi)),
            _ => Any,
        }
    }

    fn leaves_i32(self) -> bool {
        matches!(self, Known(lo, hi) if lo < i32::MIN as i128 || hi > i32::MAX as i128)
    }
}

/// Rounds after which what still grows is taken to have no end.
const ROUNDS: usize = 6;

struct Ranges<'a> {
    kernel: &'a Kernel,
    vars: Vec<Range>,
    arrays: Vec<Range>,
    /// Variables that change after their declaration: a condition on one does not hold all through its block.
    set: HashSet<VarId>,
    /// Conditions by the name they were given.
    conds: HashMap<VarId, &'a Expr>,
    /// What the conditions around a statement say of variables.
    under: Vec<(VarId, Range)>,
    changed: bool,
}

/// The places of a kernel where a 32-bit sum, difference, product or shift may overflow, as text.
pub fn overflows(kernel: &Kernel) -> Vec<String> {
    let mut ranges = Ranges {
        kernel,
        vars: vec![Never; kernel.vars.len()],
        arrays: vec![Never; kernel.arrays.len()],
        set: HashSet::new(),
        conds: HashMap::new(),
        under: Vec::new(),
        changed: true,
    };
    note_set(&kernel.body, &mut ranges.set);
    note_conds(kernel, &kernel.body, &mut ranges.conds);
    for round in 0.. {
        if !std::mem::take(&mut ranges.changed) {
            break;
        }
        ranges.stmts(&kernel.body, round >= ROUNDS);
    }
    let mut found = Vec::new();
    ranges.report(&kernel.body, &mut found);
    found
}

fn note_set(stmts: &[Stmt], set: &mut HashSet<VarId>) {
    for s in stmts {
        if let Stmt::Set(v, _) = s {
            set.insert(*v);
        }
        parts(s).into_iter().for_each(|part| note_set(part, set));
    }
}

fn note_conds<'a>(kernel: &Kernel, stmts: &'a [Stmt], conds: &mut HashMap<VarId, &'a Expr>) {
    for s in stmts {
        if let Stmt::Let(v, e) = s
            && kernel.vars[v.0 as usize].ty == Ty::Bool
        {
            conds.insert(*v, e);
        }
        parts(s).into_iter().for_each(|part| note_conds(kernel, part, conds));
    }
}

impl Ranges<'_> {
    fn stmts(&mut self, stmts: &[Stmt], last: bool) {
        for s in stmts {
            self.stmt(s, last);
            self.within(s, |r, part| r.stmts(part, last));
        }
    }

    /// The blocks of a statement, each under its condition.
    fn within(&mut self, s: &Stmt, mut f: impl FnMut(&mut Self, &[Stmt])) {
        let before = self.under.len();
        for (i, part) in parts(s).into_iter().enumerate() {
            if let (Stmt::If { cond, .. }, 0) = (s, i) {
                self.assume(cond);
            }
            f(self, part);
            self.under.truncate(before);
        }
    }

    fn assume(&mut self, cond: &Expr) {
        match cond {
            Expr::Var(v) if !self.set.contains(v) => {
                if let Some(named) = self.conds.get(v).copied() {
                    self.assume(named);
                }
            }
            Expr::And(a, b) => {
                self.assume(a);
                self.assume(b);
            }
            Expr::Compare(op, a, b) => {
                let Known(lo, hi) = self.of(b) else { return };
                let Expr::Var(v) = **a else { return };
                let (lo, hi) = match op {
                    CmpOp::Lt => (i128::MIN, hi - 1),
                    CmpOp::Le => (i128::MIN, hi),
                    CmpOp::Gt => (lo + 1, i128::MAX),
                    CmpOp::Ge => (lo, i128::MAX),
                    CmpOp::Eq => (lo, hi),
                    CmpOp::Ne => return,
                };
                if !self.set.contains(&v) {
                    self.under.push((v, Known(lo, hi)));
                }
            }
            _ => {}
        }
    }

    fn var(&self, v: VarId) -> Range {
        let conds = self.under.iter().filter(|u| u.0 == v);
        conds.fold(self.vars[v.0 as usize], |r, (_, u)| {
            r.with(*u, |a, b, c, d| Some((a.max(c).min(d), b.min(d).max(c))))
        })
    }

    fn stmt(&mut self, s: &Stmt, last: bool) {
        match s {
            Stmt::Let(v, e) | Stmt::Set(v, e) => self.put(*v, self.of(e), last),
            Stmt::SetElem(a, _, e) => self.put_elem(*a, self.of(e), last),
            Stmt::LoadVec { array, .. } => self.put_elem(*array, Any, last),
            Stmt::For { var, lo, hi, .. } => {
                let one = Known(1, 1);
                let upper = self.int(IntOp::Sub, self.of(hi), one);
                let range = self.of(lo).with(upper, |lo, most, _, hi| Some((lo, hi.max(most).max(lo))));
                self.put(*var, range, last);
            }
            Stmt::Shuffle { var, value, .. } => self.put(*var, self.of(value), last),
            Stmt::Ballot { var, .. } => self.put(*var, Any, last),
            Stmt::Atomic { old: Some(v), .. } => self.put(*v, Any, last),
            Stmt::Intrinsic { outs, .. } => outs.iter().for_each(|out| match out {
                Place::Var(v) => self.put(*v, Any, last),
                Place::Elem(a, _) => self.put_elem(*a, Any, last),
            }),
            _ => {}
        }
    }

    fn put(&mut self, v: VarId, r: Range, last: bool) {
        self.changed |= self.vars[v.0 as usize].grow(r, last);
    }

    fn put_elem(&mut self, a: ArrayId, r: Range, last: bool) {
        self.changed |= self.arrays[a.0 as usize].grow(r, last);
    }

    fn of(&self, e: &Expr) -> Range {
        match e {
            Expr::Lit(Value::I32(v)) => Known(*v as i128, *v as i128),
            Expr::Lit(Value::I64(v)) => Known(*v as i128, *v as i128),
            Expr::U32(v) => Known(*v as i128, *v as i128),
            Expr::Var(v) => self.var(*v),
            Expr::Special(s) => self.special(*s),
            Expr::Elem(a, _) => self.arrays[a.0 as usize],
            Expr::Int(op, a, b) => self.int(*op, self.of(a), self.of(b)),
            Expr::Select(_, a, b) => self.of(a).join(self.of(b)),
            Expr::Cast(ty, a) => self.cast(*ty, self.of(a)),
            _ => Any,
        }
    }

    fn cast(&self, ty: Ty, r: Range) -> Range {
        match (ty, r) {
            (Ty::I32, r) if r.leaves_i32() => Any,
            (Ty::U32 | Ty::U64, Known(lo, _)) if lo < 0 => Any,
            (Ty::U32, Known(_, hi)) if hi > u32::MAX as i128 => Any,
            (Ty::I32 | Ty::I64 | Ty::U32 | Ty::U64, r) => r,
            _ => Any,
        }
    }

    fn special(&self, s: Special) -> Range {
        let k = self.kernel;
        let below = |n: u32| Known(0, n.max(1) as i128 - 1);
        match s {
            Special::ThreadX => below(k.block[0]),
            Special::ThreadY => below(k.block[1]),
            Special::ThreadZ => below(k.block[2]),
            Special::BlockX => below(k.grid[0]),
            Special::BlockY => below(k.grid[1]),
            Special::BlockZ => below(k.grid[2]),
            Special::Lane => below(32),
            Special::Warp => below(k.block[0].div_ceil(32)),
        }
    }

    fn int(&self, op: IntOp, x: Range, y: Range) -> Range {
        let corners = |f: fn(i128, i128) -> Option<i128>| {
            x.with(y, |a, b, c, d| {
                let all = [f(a, c)?, f(a, d)?, f(b, c)?, f(b, d)?];
                Some((*all.iter().min()?, *all.iter().max()?))
            })
        };
        match op {
            IntOp::Add => corners(i128::checked_add),
            IntOp::Sub => corners(i128::checked_sub),
            IntOp::Mul => corners(i128::checked_mul),
            IntOp::Div => x.with(y, |a, b, c, d| (a >= 0 && c > 0).then(|| (a / d, b / c))),
            IntOp::Rem => x.with(y, |a, b, c, d| {
                (a >= 0 && c > 0).then(|| if b < c { (a, b) } else { (0, b.min(d - 1)) })
            }),
            IntOp::And => match (x, y) {
                (_, Known(c, d)) if c >= 0 => Known(0, d),
                (Known(a, b), _) if a >= 0 => Known(0, b),
                _ => Any,
            },
            IntOp::Or | IntOp::Xor => x.with(y, |a, b, c, d| {
                (a >= 0 && c >= 0).then(|| (0, (b.max(d) as u128 + 1).next_power_of_two() as i128 - 1))
            }),
            IntOp::Shl => corners(|a, n| a.checked_mul(1i128.checked_shl(u32::try_from(n).ok()?)?)),
            IntOp::Shr => corners(|a, n| Some(a >> u32::try_from(n).ok()?.min(127))),
            IntOp::Min => x.with(y, |a, b, c, d| Some((a.min(c), b.min(d)))),
            IntOp::Max => x.with(y, |a, b, c, d| Some((a.max(c), b.max(d)))),
        }
    }

    fn report(&mut self, stmts: &[Stmt], found: &mut Vec<String>) {
        for s in stmts {
            operands(s).into_iter().for_each(|e| self.look(e, found));
            self.within(s, |r, part| r.report(part, found));
        }
    }

    fn look(&mut self, e: &Expr, found: &mut Vec<String>) {
        let mut here = Vec::new();
        visit(e, &mut |e| {
            if self.overflows(e) {
                here.push(e);
            }
        });
        // A choice prints as one that evaluates only what it takes.
        visit(e, &mut |e| {
            let Expr::Select(cond, taken, _) = e else { return };
            let before = self.under.len();
            self.assume(cond);
            visit(taken, &mut |e| {
                if !self.overflows(e) {
                    here.retain(|h| !std::ptr::eq(*h, e));
                }
            });
            self.under.truncate(before);
        });
        let text = |e: &Expr| format!("{}: {:?}", simt_text::expr(self.kernel, e), self.of(e));
        found.extend(here.into_iter().map(text));
    }

    fn overflows(&self, e: &Expr) -> bool {
        let grows = matches!(e, Expr::Int(IntOp::Add | IntOp::Sub | IntOp::Mul | IntOp::Shl, ..));
        grows && self.of(e).leaves_i32() && type_of(self.kernel, e).is_ok_and(|ty| ty == Ty::I32)
    }
}
