//! Sixteen bytes of elements from any place of a tensor: two aligned loads, of which neighbouring threads have one in common,
//! and shifts. Near the tensor's end element by element.

use super::scalar::{Emit, Num, and, arith, cast, cmp, int_of, lit32};
use crate::ir::graph::TensorId;
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Mem, Stmt, Ty};
use crate::vocab::dtype::DType;

/// Words of 16 bytes.
const WORDS: usize = 4;

/// Elements of 16 bytes of a tensor that can be loaded this way.
pub fn width(e_dtype: DType, len: i64, align: u32) -> Option<i64> {
    let v = match e_dtype {
        DType::F16 | DType::BF16 => 8,
        DType::F32 | DType::I32 => 4,
        _ => return None,
    };
    (align >= 16 && len >= 2 * v).then_some(v)
}

/// Loads the elements from `place` on into four words; what is beyond the tensor's end, or `before` it, is 0.
pub fn load(e: &mut Emit<'_>, tensor: TensorId, place: &Num, v: i64, before: bool) -> ArrayId {
    let (home, dtype) = (e.home(tensor), e.graph.tensor(tensor).dtype);
    let mem = Mem::Global(e.tensor_param(tensor, false));
    let ty = place.ty;
    let found = e.kernel.array("words", Ty::U32, WORDS as u32);
    let off = Expr::Int(IntOp::And, Box::new(place.expr.clone()), Box::new(int_of(ty, v - 1).expr));
    let off = Num { expr: e.named("off", ty, off), ty };
    let start = arith(IntOp::Sub, place.clone(), off.clone());
    let start = Num { expr: e.named("start", ty, start.expr), ty };
    let whole = cmp(CmpOp::Le, start.expr.clone(), int_of(ty, home.len - 2 * v).expr);
    let low = before.then(|| cmp(CmpOp::Ge, start.expr.clone(), int_of(ty, 0).expr));
    let whole = low.into_iter().fold(whole, and);
    let off = super::read::to(off, Ty::I32);
    e.if_else(
        whole,
        |e| {
            let both = e.kernel.array("both", Ty::U32, 2 * WORDS as u32);
            for part in 0..2 {
                let index = arith(IntOp::Add, start.clone(), int_of(ty, part * v)).expr;
                e.push(Stmt::LoadVec {
                    array: both,
                    at: WORDS as u32 * part as u32,
                    mem,
                    index,
                    count: v as u32,
                });
            }
            shifted(e, both, found, &off, v);
        },
        |e| single(e, mem, dtype, place, (home.len, v, before), found),
    );
    found
}

/// Moves eight words down by `off` elements, of `v` to four words: by two words, by one, by half of one.
fn shifted(e: &mut Emit<'_>, from: ArrayId, to: ArrayId, off: &Expr, v: i64) {
    let mut words: Vec<Expr> = (0..2 * WORDS).map(|i| Expr::Elem(from, Box::new(lit32(i as i32)))).collect();
    let mut step = v / 2;
    let mut by = WORDS / 2;
    while by > 0 {
        let bit = Expr::Int(IntOp::And, Box::new(off.clone()), Box::new(lit32(step as i32)));
        let moves = cmp(CmpOp::Ne, bit, lit32(0));
        let moves = e.named("moves", Ty::Bool, moves);
        let one = |i: usize| {
            Expr::Select(Box::new(moves.clone()), Box::new(words[i + by].clone()), Box::new(words[i].clone()))
        };
        let chosen: Vec<Expr> = (0..words.len() - by).map(one).collect();
        words = chosen.into_iter().map(|w| e.named("word", Ty::U32, w)).collect();
        (step, by) = (step / 2, by / 2);
    }
    if step == 1 {
        let bit = Expr::Int(IntOp::And, Box::new(off.clone()), Box::new(lit32(1)));
        let moves = cmp(CmpOp::Ne, bit, lit32(0));
        let moves = e.named("moves", Ty::Bool, moves);
        let half = |i: usize| {
            let op = |op, w: &Expr| Expr::Int(op, Box::new(w.clone()), Box::new(cast(Ty::U32, lit32(16))));
            let both = Expr::Int(
                IntOp::Or,
                Box::new(op(IntOp::Shr, &words[i])),
                Box::new(op(IntOp::Shl, &words[i + 1])),
            );
            Expr::Select(Box::new(moves.clone()), Box::new(both), Box::new(words[i].clone()))
        };
        words = (0..WORDS).map(half).collect();
    }
    for (i, w) in words.into_iter().take(WORDS).enumerate() {
        e.push(Stmt::SetElem(to, lit32(i as i32), w));
    }
}

fn single(
    e: &mut Emit<'_>,
    mem: Mem,
    dtype: DType,
    place: &Num,
    (len, v, before): (i64, i64, bool),
    to: ArrayId,
) {
    let ty = Ty::of(dtype.compute());
    let zero = super::arith::default_of(ty);
    let one = |e: &mut Emit<'_>, i: i64| {
        let x = e.let_var("x", ty, zero.clone());
        let at = arith(IntOp::Add, place.clone(), int_of(place.ty, i)).expr;
        let there = cmp(CmpOp::Lt, at.clone(), int_of(place.ty, len).expr);
        let low = before.then(|| cmp(CmpOp::Ge, at.clone(), int_of(place.ty, 0).expr));
        let there = low.into_iter().fold(there, and);
        e.if_then(there, |e| e.push(Stmt::Set(x, Expr::Load(mem, Box::new(at)))));
        Expr::Var(x)
    };
    for w in 0..WORDS as i64 {
        let word = match dtype {
            _ if v == 8 => {
                let (a, b) = (one(e, 2 * w), one(e, 2 * w + 1));
                Expr::Pack2(dtype, Box::new(a), Box::new(b))
            }
            DType::F32 => Expr::Bitcast(Ty::U32, Box::new(one(e, w))),
            _ => Expr::Cast(Ty::U32, Box::new(one(e, w))),
        };
        e.push(Stmt::SetElem(to, lit32(w as i32), word));
    }
}
