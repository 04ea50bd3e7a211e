//! Checks of what is declared of inputs, where reading them is not enough: a `unique` tensor holds no value twice.
//! (Declared ranges are checked as elements are read.)

use super::map::count;
use super::read::to;
use super::scalar::{and, cmp, compare, int_of, lit32, not};
use super::scatter::each_element;
use super::{Lowering, Refusal};
use crate::ir::graph::{Role, TensorId};
use crate::ir::program::{FaultKind, Step};
use crate::ir::simt::{AtomicOp, CmpOp, Expr, Mem, Stmt, Ty};
use crate::vocab::dtype::DType;

/// A launch for each `unique` input.
pub fn declared(cx: &mut Lowering<'_>) -> Result<(), Refusal> {
    let tensors = (0..cx.graph.tensors.len() as u32).map(TensorId);
    let given = |t: &TensorId| {
        let t = cx.graph.tensor(*t);
        t.unique && matches!(t.role, Role::Input | Role::Inout) && t.version == 0
    };
    let unique: Vec<TensorId> = tensors.filter(given).collect();
    unique.into_iter().try_for_each(|t| no_value_twice(cx, t))
}

/// Counts each value (negative ones may repeat); a fault where a count passes 1.
fn no_value_twice(cx: &mut Lowering<'_>, tensor: TensorId) -> Result<(), Refusal> {
    let t = cx.graph.tensor(tensor);
    let Some((_, hi)) = t.range else { return Ok(()) };
    if hi <= 0 || hi > i32::MAX as i64 || count(&t.dims, t.span, &t.name)? == 0 {
        return Ok(());
    }
    let seen = cx.workspace(format!("{}_seen", t.name), DType::I32, &[hi]);
    cx.step(Step::Fill { buffer: seen, byte: 0 });
    each_element(cx, &format!("{}_unique", t.name), tensor, |e, index| {
        let v = e.load(tensor, index, t.span);
        let counted = and(
            compare(CmpOp::Ge, v.clone(), int_of(v.ty, 0)),
            compare(CmpOp::Lt, v.clone(), int_of(v.ty, hi)),
        );
        e.if_then(counted, |e| {
            let mem = Mem::Global(e.pointer(seen, true));
            let old = e.let_var("old", Ty::I32, lit32(0));
            let index = to(v.clone(), Ty::I32);
            e.push(Stmt::Atomic { op: AtomicOp::Add, mem, index, value: lit32(1), old: Some(old) });
            let twice = not(cmp(CmpOp::Eq, Expr::Var(old), lit32(0)));
            e.if_then(twice, |e| e.fault(tensor, 0, FaultKind::NotUnique, t.span, v.clone()));
        });
    })
}
