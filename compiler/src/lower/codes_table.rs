//! From codes of 4 bits to weights: the table of the groups' constants in shared memory, and the bit operations.

use super::contract_codes::Codes;
use super::contract_coords::{Known, Place as Where, bind, digits, modulo, over, plus, times};
use super::contract_pattern::{ContractShape, Contraction, Digit};
use super::scalar::{Emit, cast, int_op, lit32};
use crate::ir::graph::ExprId;
use crate::ir::simt::{Expr, IntOp, Intrinsic, Mem, Place, SharedId, Stmt, Ty, Unroll};
use crate::ir::tile::Side;
use crate::vocab::dtype::{DType, Value};
use crate::vocab::func::Func;

/// The constants of a block's groups, as pairs of halves.
pub struct Table<'x> {
    codes: &'x Codes,
    shape: &'x ContractShape,
    c: &'x Contraction,
    shared: Option<SharedId>,
}

/// The bits of a number in both halves of a word.
fn pair(dtype: DType, v: f32) -> u32 {
    let bits = match dtype {
        DType::F16 => half::f16::from_f32(v).to_bits(),
        _ => half::bf16::from_f32(v).to_bits(),
    } as u32;
    bits << 16 | bits
}

/// The number whose last bits a code is put into: its unit in the last place is 1.
fn magic(dtype: DType) -> f32 {
    if dtype == DType::F16 { 1024.0 } else { 128.0 }
}

impl<'x> Table<'x> {
    pub fn new(e: &mut Emit, codes: &'x Codes, shape: &'x ContractShape) -> Table<'x> {
        let mut table = Table { codes, shape, c: &shape.folds[0], shared: None };
        let entries = table.constants().len() as u32 * codes.groups as u32 * codes.rows();
        table.shared = (entries > 0).then(|| e.kernel.shared("table", DType::I32, entries, 16));
        table
    }

    /// What stands in the table, in order.
    fn constants(&self) -> Vec<ExprId> {
        let w = &self.codes.weight;
        [w.zero, w.scale, w.shift].into_iter().flatten().collect()
    }

    fn group(&self) -> i64 {
        if self.codes.weight.group == 0 { self.codes.terms } else { self.codes.weight.group }
    }

    /// The side of the weights' rows.
    fn side(&self) -> (&'x Side, &'x [Digit]) {
        let tile = &self.codes.choice.tile;
        if self.codes.first { (&tile.m, &self.shape.m) } else { (&tile.n, &self.shape.n) }
    }

    /// Evaluates the constants of the block's groups, from the one of term `first` on. `thread`: a number of this
    /// thread among `threads`.
    pub fn fill(&self, e: &mut Emit, place: &Where, first: &Expr, (thread, threads): (Expr, u32)) {
        let Some(table) = self.shared else { return };
        let (rows, groups) = (self.codes.rows() as i64, self.codes.groups);
        let (start, _) = super::contract_codes::starts(self.codes, place);
        let (side, of) = self.side();
        let first = e.named("group0", Ty::I32, over(first.clone(), self.group()));
        let var = e.kernel.var("entry", Ty::I32);
        let body = e.block(|e| {
            let entry = Expr::Var(var);
            let row = plus(start.clone(), modulo(entry.clone(), rows));
            let row = int_op(IntOp::Min, row, lit32(side.points() as i32 - 1));
            let row = e.named("row", Ty::I32, row);
            let term = times(plus(first.clone(), over(entry.clone(), rows)), self.group());
            let term = int_op(IntOp::Min, term, lit32(self.codes.terms as i32 - 1));
            let term = e.named("term", Ty::I32, term);
            let at = digits(e, side, of, &[row]);
            let known = Known { batch: &place.batch, m: &[], n: &[] };
            let known = if self.codes.first { Known { m: &at, ..known } } else { Known { n: &at, ..known } };
            bind(e, self.shape, self.c.stmt, known);
            e.bind_axis(self.codes.k, term, Ty::I32);
            for (i, id) in self.constants().into_iter().enumerate() {
                let v = e.value(id);
                let v = if self.codes.weight.zero == Some(id) && i == 0 { self.minus(v) } else { v };
                let v = e.named("v", Ty::F32, v);
                let word = Expr::Pack2(self.codes.dtype, Box::new(v.clone()), Box::new(v));
                let to = plus(entry.clone(), lit32((i as i64 * groups * rows) as i32));
                e.push(Stmt::Store(Mem::Shared(table), to, cast(Ty::I32, word)));
            }
        });
        let (hi, step) = (lit32((groups * rows) as i32), lit32(threads as i32));
        // Several loads are under way at once.
        e.push(Stmt::For { var, lo: thread, hi, step, unroll: Unroll::By(8), body });
    }

    /// What is added to a code in its magic number: −(magic + zero).
    fn minus(&self, zero: Expr) -> Expr {
        let least = Expr::Lit(Value::F32(-self.bias()));
        Expr::Call(Func::Sub, vec![least, cast(Ty::F32, zero)])
    }

    /// The magic number and the constant zero; a signed code is 8 more in it.
    fn bias(&self) -> f32 {
        magic(self.codes.dtype) + self.codes.weight.offset as f32 + if self.codes.signed { 8.0 } else { 0.0 }
    }

    /// What the codes of a row of the block are moved, scaled and shifted by from some term on; `first`: the block's
    /// first term.
    pub fn entry(&self, e: &mut Emit, first: &Expr, term: Expr, row: Expr) -> Vec<Expr> {
        let Some(table) = self.shared else { return Vec::new() };
        let (rows, group) = (self.codes.rows() as i64, self.group());
        let number = int_op(IntOp::Sub, over(term, group), over(first.clone(), group));
        let at = e.named("entry", Ty::I32, plus(times(number, rows), row));
        let load = |e: &mut Emit, j: usize| {
            let index = plus(at.clone(), lit32((j as i64 * self.codes.groups * rows) as i32));
            let word = Expr::Load(Mem::Shared(table), Box::new(index));
            e.named("constant", Ty::U32, cast(Ty::U32, word))
        };
        (0..self.constants().len()).map(|j| load(e, j)).collect()
    }

    /// A pair of weights to a register, from byte j of `word` (low code) and of `upper`, the word moved by a code (the
    /// high one): `selector` is 0x4400 + 0x1111 · j.
    pub fn weights(
        &self,
        e: &mut Emit,
        (word, upper): (&Expr, &Expr),
        selector: Expr,
        constants: &[Expr],
        to: Place,
    ) {
        let (dtype, w) = (self.codes.dtype, &self.codes.weight);
        let mut call = |op, args| e.push(Stmt::Intrinsic { op, outs: vec![to.clone()], args });
        let own = match &to {
            Place::Elem(a, i) => Expr::Elem(*a, Box::new(lit32(*i as i32))),
            Place::Var(v) => Expr::Var(*v),
        };
        let exponent = pair(dtype, magic(dtype)) | if self.codes.signed { 0x0008_0008 } else { 0 };
        let mut rest = constants.iter().cloned();
        let mut next = |there: bool| if there { rest.next() } else { None };
        let (zero, scale, shift) = (next(w.zero.is_some()), next(w.scale.is_some()), next(w.shift.is_some()));
        let zero = zero.unwrap_or(Expr::U32(pair(dtype, -self.bias())));
        let one = Expr::U32(pair(dtype, 1.0));
        call(Intrinsic::BytePermute, vec![word.clone(), upper.clone(), selector]);
        let code = int_op(IntOp::And, own.clone(), Expr::U32(0x000f_000f));
        let code = int_op(IntOp::Xor, code, Expr::U32(exponent));
        let fma = Intrinsic::HalfFma { dtype };
        call(fma, vec![code, one.clone(), zero]);
        if scale.is_some() || shift.is_some() {
            // Adding −0 changes nothing.
            let shift = shift.unwrap_or(Expr::U32(0x8000_8000));
            call(fma, vec![own, scale.unwrap_or(one), shift]);
        }
    }
}
