//! From codes of 4 bits to weights: the table of the groups' constants in shared memory, and the bit operations.

use super::contract_codes::{Codes, sides};
use super::contract_coords::{Known, Place as Where, bind, digits, fold_op, modulo, over, plus, times};
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
    /// Elements between neighbouring groups of a row, between rows, and between constants.
    strides: [i64; 3],
}

/// The bits of a number in both halves of a word.
fn pair(dtype: DType, v: f32) -> u32 {
    let bits = match dtype {
        DType::F16 => half::f16::from_f32(v).to_bits(),
        _ => half::bf16::from_f32(v).to_bits(),
    } as u32;
    bits << 16 | bits
}

/// What was put there.
fn operand(to: &Place) -> Expr {
    match to {
        Place::Elem(a, i) => Expr::Elem(*a, Box::new(lit32(*i as i32))),
        Place::Var(v) => Expr::Var(*v),
    }
}

/// Elements between rows of a table by rows.
pub fn pitch(groups: i64) -> i64 {
    groups | 1
}

/// The number whose last bits a code is put into: its unit in the last place is 1.
fn magic(dtype: DType) -> f32 {
    if dtype == DType::F16 { 1024.0 } else { 128.0 }
}

impl<'x> Table<'x> {
    /// Without a place in shared memory: constants are evaluated where they are asked for.
    pub fn bare(codes: &'x Codes, shape: &'x ContractShape) -> Table<'x> {
        Table { codes, shape, c: &shape.folds[0], shared: None, strides: [0; 3] }
    }

    pub fn new(e: &mut Emit, codes: &'x Codes, shape: &'x ContractShape) -> Table<'x> {
        let (groups, rows) = (codes.groups, codes.rows() as i64);
        Table::with(e, codes, shape, [rows, 1, groups * rows])
    }

    /// Where lanes read neighbouring groups of a row, or neighbouring rows of a group: an odd pitch of rows meets no bank
    /// twice.
    pub fn by_rows(e: &mut Emit, codes: &'x Codes, shape: &'x ContractShape) -> Table<'x> {
        let pitch = pitch(codes.groups);
        Table::with(e, codes, shape, [1, pitch, pitch * codes.rows() as i64])
    }

    fn with(e: &mut Emit, codes: &'x Codes, shape: &'x ContractShape, strides: [i64; 3]) -> Table<'x> {
        let mut table = Table { codes, shape, c: &shape.folds[0], shared: None, strides };
        let entries = table.constants().len() as u32 * strides[2] as u32;
        table.shared = (entries > 0).then(|| e.kernel.shared("table", DType::I32, entries, 16));
        table
    }

    /// Where a constant of a group stands for a row.
    fn at(&self, constant: usize, group: Expr, row: Expr) -> Expr {
        let [along, down, apart] = self.strides;
        plus(plus(times(group, along), times(row, down)), lit32((constant as i64 * apart) as i32))
    }

    /// What stands in the table, in order.
    fn constants(&self) -> Vec<ExprId> {
        let w = &self.codes.weight;
        [w.zero, w.scale, w.shift].into_iter().flatten().collect()
    }

    /// Terms of a group.
    pub fn group(&self) -> i64 {
        if self.codes.weight.group == 0 { self.codes.terms } else { self.codes.weight.group }
    }

    /// The side of the weights' rows.
    fn side(&self) -> (&'x Side, &'x [Digit]) {
        let [rows, _] = sides(self.codes, &self.codes.choice.tile, self.shape);
        rows
    }

    /// Evaluates the constants of the block's groups, from the one of term `first` on. `thread`: a number of this
    /// thread among `threads`.
    pub fn fill(&self, e: &mut Emit, place: &Where, first: &Expr, (thread, threads): (Expr, u32)) {
        let Some(table) = self.shared else { return };
        let (rows, groups) = (self.codes.rows() as i64, self.codes.groups);
        let (start, _) = super::contract_codes::starts(self.codes, place);
        let first = e.named("group0", Ty::I32, over(first.clone(), self.group()));
        let var = e.kernel.var("entry", Ty::I32);
        let body = e.block(|e| {
            let entry = Expr::Var(var);
            let (own, group) = (modulo(entry.clone(), rows), over(entry, rows));
            let row = plus(start.clone(), own.clone());
            let term = times(plus(first.clone(), group.clone()), self.group());
            for (i, v) in self.evaluate(e, place, row, term).into_iter().enumerate() {
                let to = self.at(i, group.clone(), own.clone());
                e.push(Stmt::Store(Mem::Shared(table), to, self.word(v)));
            }
        });
        let (hi, step) = (lit32((groups * rows) as i32), lit32(threads as i32));
        // Several loads are under way at once.
        e.push(Stmt::For { var, lo: thread, hi, step, unroll: Unroll::By(8), body });
    }

    /// The constants of a row of weights from some term on, or of the last there are.
    pub fn evaluate(&self, e: &mut Emit, place: &Where, row: Expr, term: Expr) -> Vec<Expr> {
        let (side, of) = self.side();
        let row = int_op(IntOp::Min, row, lit32(side.points() as i32 - 1));
        let row = e.named("row", Ty::I32, row);
        let term = int_op(IntOp::Min, term, lit32(self.codes.terms as i32 - 1));
        let term = e.named("term", Ty::I32, term);
        let at = digits(e, side, of, &[row]);
        let known = Known { batch: &place.batch, m: &[], n: &[] };
        let known = if self.codes.first { Known { m: &at, ..known } } else { Known { n: &at, ..known } };
        bind(e, self.shape, self.c.stmt, known);
        e.bind_axis(self.codes.k, term, Ty::I32);
        let value = |(i, id): (usize, ExprId)| {
            let v = e.value(id);
            let v = if self.codes.weight.zero == Some(id) && i == 0 { self.minus(v) } else { v };
            e.named("v", Ty::F32, v)
        };
        self.constants().into_iter().enumerate().map(value).collect()
    }

    /// A constant as it stands in the table: both halves of a word.
    pub fn word(&self, v: Expr) -> Expr {
        let word = Expr::Pack2(self.codes.dtype, Box::new(v.clone()), Box::new(v));
        cast(Ty::I32, word)
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
        let group = self.group();
        let number = fold_op(IntOp::Sub, over(term, group), over(first.clone(), group));
        let at = e.named("entry", Ty::I32, self.at(0, number, row));
        let load = |e: &mut Emit, j: usize| {
            let index = plus(at.clone(), lit32((j as i64 * self.strides[2]) as i32));
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
        let own = operand(&to);
        e.push(Stmt::Intrinsic {
            op: Intrinsic::BytePermute,
            outs: vec![to.clone()],
            args: vec![word.clone(), upper.clone(), selector],
        });
        self.weights_of(e, own, constants, to);
    }

    /// A pair of weights to a register from a word with a code in the last bits of each half.
    pub fn weights_of(&self, e: &mut Emit, codes: Expr, constants: &[Expr], to: Place) {
        let (dtype, w) = (self.codes.dtype, &self.codes.weight);
        let own = operand(&to);
        let mut call = |op, args| e.push(Stmt::Intrinsic { op, outs: vec![to.clone()], args });
        let exponent = pair(dtype, magic(dtype)) | if self.codes.signed { 0x0008_0008 } else { 0 };
        let mut rest = constants.iter().cloned();
        let mut next = |there: bool| if there { rest.next() } else { None };
        let (zero, scale, shift) = (next(w.zero.is_some()), next(w.scale.is_some()), next(w.shift.is_some()));
        let zero = zero.unwrap_or(Expr::U32(pair(dtype, -self.bias())));
        let one = Expr::U32(pair(dtype, 1.0));
        let code = int_op(IntOp::And, codes, Expr::U32(0x000f_000f));
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
