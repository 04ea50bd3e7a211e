//! Removes declarations whose variable nothing reads, so that the text has no idle lines and NVRTC no warnings.
//! Expressions have no effects, so a declaration that nothing reads has none either.

use crate::ir::simt::{Expr, Kernel, Stmt, VarId};
use crate::ir::simt_verify::visit;
use std::collections::HashMap;

/// Removes them all: also those that only removed ones read.
pub fn remove(kernel: &mut Kernel) {
    let mut uses = HashMap::new();
    count(&kernel.body, &mut uses);
    while sweep(&mut kernel.body, &mut uses) {}
}

type Uses = HashMap<VarId, usize>;

fn count(stmts: &[Stmt], uses: &mut Uses) {
    for s in stmts {
        for e in operands(s) {
            visit(e, &mut |e| note(e, uses, true));
        }
        // A variable that is set is kept: its `Set` needs the declaration.
        if let Stmt::Set(v, _) | Stmt::Shuffle { var: v, .. } | Stmt::Ballot { var: v, .. } = s {
            *uses.entry(*v).or_insert(0) += 1;
        }
        if let Stmt::Atomic { old: Some(v), .. } = s {
            *uses.entry(*v).or_insert(0) += 1;
        }
        if let Stmt::Intrinsic { outs, .. } = s {
            for out in outs {
                if let crate::ir::simt::Place::Var(v) = out {
                    *uses.entry(*v).or_insert(0) += 1;
                }
            }
        }
        for part in parts(s) {
            count(part, uses);
        }
    }
}

fn note(e: &Expr, uses: &mut Uses, more: bool) {
    if let Expr::Var(v) = e {
        let n = uses.entry(*v).or_insert(0);
        *n = if more { *n + 1 } else { n.saturating_sub(1) };
    }
}

/// Removes what is idle now; whether anything was.
fn sweep(stmts: &mut Vec<Stmt>, uses: &mut Uses) -> bool {
    let before = stmts.len();
    stmts.retain(|s| match s {
        Stmt::Let(v, e) if uses.get(v).is_none_or(|&n| n == 0) => {
            visit(e, &mut |e| note(e, uses, false));
            false
        }
        _ => true,
    });
    let mut changed = stmts.len() < before;
    for s in stmts {
        match s {
            Stmt::For { body, .. } | Stmt::While { body, .. } => changed |= sweep(body, uses),
            Stmt::If { then, otherwise, .. } => {
                changed |= sweep(then, uses);
                changed |= sweep(otherwise, uses);
            }
            _ => {}
        }
    }
    changed
}

/// The blocks of a statement.
pub(super) fn parts(s: &Stmt) -> Vec<&[Stmt]> {
    match s {
        Stmt::For { body, .. } | Stmt::While { body, .. } => vec![body],
        Stmt::If { then, otherwise, .. } => vec![then, otherwise],
        _ => vec![],
    }
}

/// The expressions of a statement itself.
pub(super) fn operands(s: &Stmt) -> Vec<&Expr> {
    match s {
        Stmt::Let(_, e) | Stmt::Set(_, e) => vec![e],
        Stmt::SetElem(_, i, e) | Stmt::Store(_, i, e) => vec![i, e],
        Stmt::LoadVec { index, .. } | Stmt::StoreVec { index, .. } => vec![index],
        Stmt::For { lo, hi, step, .. } => vec![lo, hi, step],
        Stmt::While { cond, .. } | Stmt::If { cond, .. } => vec![cond],
        Stmt::Shuffle { value, lane, .. } => vec![value, lane],
        Stmt::Ballot { pred, .. } => vec![pred],
        Stmt::Atomic { index, value, .. } => vec![index, value],
        Stmt::Intrinsic { args, .. } => args.iter().collect(),
        Stmt::Fault { value, .. } => vec![value],
        Stmt::Barrier | Stmt::WarpBarrier | Stmt::Fence | Stmt::Line(_) | Stmt::Comment(_) => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::simt::{Mem, ParamKind, Ty};
    use crate::vocab::dtype::{DType, Value};

    #[test]
    fn chains_of_idle_declarations_go() {
        let mut k = Kernel::default();
        let y = k.param("y", ParamKind::Pointer { dtype: DType::I32, len: 1, written: true });
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|n| k.var(n, Ty::I32));
        let one = || Expr::Lit(Value::I32(1));
        let body = vec![Stmt::Let(c, Expr::Var(b)), Stmt::Set(d, Expr::Var(a))];
        k.body = vec![
            Stmt::Let(a, one()),
            Stmt::Let(b, Expr::Var(a)),
            Stmt::Let(d, one()),
            Stmt::If { cond: Expr::Lit(Value::Bool(true)), then: body, otherwise: vec![] },
            Stmt::Store(Mem::Global(y), Expr::Lit(Value::I32(0)), Expr::Var(d)),
        ];
        remove(&mut k);
        let text = crate::ir::simt_text::print(&k);
        assert!(!text.contains("let %b.1") && !text.contains("let %c.2"), "{text}");
        assert!(text.contains("let %a.0") && text.contains("let %d.3"), "{text}");
    }
}
