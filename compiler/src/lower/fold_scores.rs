//! Form `fold`, the scores: from the accumulators of the first product to what the exponential takes, with what does
//! not count at −inf, and which steps a block has at all.

use super::contract_coords::{Known, axis_values, bind, fold_op, modulo, over, plus, times};
use super::fold_pattern::{Bound, Chain};
use super::map_vec;
use super::scalar::{Emit, Num, and, cmp, int_op, lit32, lit64};
use crate::ir::graph::{AxisId, Expr as Node, ExprId, Graph};
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Intrinsic, Place, ShuffleKind, Special, Stmt, Ty};
use crate::ir::tile::Tile;
use crate::pass::inline;
use crate::vocab::dtype::Value;
use crate::vocab::func::Func;
use std::collections::{BTreeMap, BTreeSet};

pub const MINUS_INFINITY: Expr = Expr::Lit(Value::F32(f32::NEG_INFINITY));

pub struct Scores<'x> {
    pub chain: &'x Chain,
    /// Terms of a step, and blocks that share the steps.
    step: i64,
    parts: i64,
    /// The axes that scores depend on beside the product.
    axes: BTreeSet<AxisId>,
    /// First and last row of the block, where bounds move with the row.
    first_row: Expr,
    last_row: Expr,
    /// What all scores that count are multiplied with at last, left to the exponential, and its expression.
    scale: (f32, Option<ExprId>),
    /// Divisions by constants: what is divided, and by what to multiply. The weights are rounded to 16 bits, so
    /// nothing that scores lead to can tell.
    divisions: Vec<Division>,
    /// The same above the exponential.
    last_divisions: Vec<Division>,
    /// Random functions of the weights whose counters run with the terms: four terms have one block of words.
    randoms: Vec<(ExprId, Func, [ExprId; 2])>,
}

/// A quotient by a constant: itself, what is divided, and by what to multiply.
type Division = (ExprId, ExprId, f32);

/// What a thread knows of its place.
pub struct Thread {
    pub batch: Vec<Num>,
    /// The digits of its two rows.
    pub rows: [Vec<Num>; 2],
    /// The first column of its pairs.
    pub column: Expr,
}

impl<'x> Scores<'x> {
    pub fn new(e: &mut Emit, chain: &'x Chain, tile: &Tile, step: u32, m0: &Expr) -> Scores<'x> {
        let mut axes = BTreeSet::new();
        let product = chain.score_sum;
        let scale = scale_of(e.graph, chain);
        let g = e.graph;
        // A weight's divisor and exponential are known.
        let mut known: BTreeMap<ExprId, Option<ExprId>> = BTreeMap::from([(product, None)]);
        let roots: Vec<ExprId> = chain.cascade.taken.into_iter().chain([chain.cascade.score]).collect();
        let mut divisions = below(g, &roots, &known, &mut axes);
        divisions.retain(|d| Some(d.0) != scale.1);
        let mut last: Vec<ExprId> = chain.values.clone();
        if let (Some(s), true) = (&chain.cascade.state, chain.cascade.more) {
            known.extend(chain.cascade.same.iter().map(|&(id, inner)| (id, Some(inner))));
            known.insert(s.exp, None);
            last.push(chain.cascade.weight);
        }
        let last_divisions = below(g, &last, &known, &mut axes);
        let randoms = randoms(e, &last, chain.fold().k[0].axis);
        let (rows, block) = (tile.m.points(), tile.m.block as i64);
        let inner = chain.outer.m.last().map_or(1, |d| d.extent);
        let (first_row, last_row) = if inner == rows || inner % block == 0 {
            let first = e.named("first_row", Ty::I32, modulo_unless(m0.clone(), inner, rows));
            let last = plus(first.clone(), lit32(block as i32 - 1));
            let last =
                if inner % block == 0 { last } else { int_op(IntOp::Min, last, lit32(inner as i32 - 1)) };
            (first, e.named("last_row", Ty::I32, last))
        } else {
            (lit32(0), lit32(inner as i32 - 1))
        };
        Scores {
            chain,
            step: step.into(),
            parts: tile.split,
            axes,
            first_row,
            last_row,
            scale,
            divisions,
            last_divisions,
            randoms,
        }
    }

    /// What the exponential multiplies its operand with.
    pub fn scale(&self) -> f32 {
        self.scale.0
    }

    fn terms(&self) -> i64 {
        self.chain.sizes()[2]
    }

    /// The first place that counts (or the last, for an upper bound) over these rows.
    fn place(&self, b: &Bound, row: &Expr) -> Expr {
        let at = lit32(b.at.clamp(-(1 << 30), 1 << 30) as i32);
        if b.row { plus(row.clone(), at) } else { at }
    }

    /// First step and number of steps of the block: those in which a score may count, at least one.
    pub fn steps(&self, e: &mut Emit, part: &Expr) -> (Expr, Expr) {
        let step = self.step;
        let all = (self.terms() + step - 1) / step;
        let (mut first, mut end) = (lit32(0), lit32(all as i32));
        for b in &self.chain.bounds {
            let row = if b.upper { &self.last_row } else { &self.first_row };
            let place = int_op(IntOp::Max, self.place(b, row), lit32(0));
            if b.upper {
                let behind = plus(over(place, step), lit32(1));
                end = int_op(IntOp::Min, end, behind);
            } else {
                first = int_op(IntOp::Max, first, over(place, step));
            }
        }
        let last = lit32(all as i32 - 1);
        if !self.chain.bounds.is_empty() {
            first = int_op(IntOp::Min, first, last);
        }
        let first = e.named("first", Ty::I32, first);
        let count = fold_op(IntOp::Sub, end, first.clone());
        let count = if self.chain.bounds.is_empty() { count } else { int_op(IntOp::Max, count, lit32(1)) };
        let count = e.named("count", Ty::I32, count);
        if self.parts == 1 {
            return (first, count);
        }
        let up = plus(count.clone(), lit32(self.parts as i32 - 1));
        let per = e.named("per", Ty::I32, over(up, self.parts));
        let before = e.named("before", Ty::I32, int_op(IntOp::Mul, part.clone(), per.clone()));
        let left = e.named("left", Ty::I32, int_op(IntOp::Sub, count, before.clone()));
        // A part without steps takes one beyond the terms.
        let some = cmp(CmpOp::Gt, left.clone(), lit32(0));
        let own = plus(first, before);
        let first = Expr::Select(Box::new(some), Box::new(own), Box::new(lit32(all as i32)));
        let count = int_op(IntOp::Max, int_op(IntOp::Min, per, left), lit32(1));
        (e.named("first_step", Ty::I32, first), e.named("steps", Ty::I32, count))
    }

    /// Whether every score of a step from term `j0` counts as far as its place says; `None`: that is known.
    pub fn whole(&self, e: &mut Emit, j0: &Expr) -> Option<Expr> {
        let mut all: Option<Expr> = None;
        let mut need = |c: Expr| {
            all = Some(match all.take() {
                Some(a) => and(a, c),
                None => c,
            });
        };
        let last = plus(j0.clone(), lit32(self.step as i32 - 1));
        if self.is_ragged() {
            need(cmp(CmpOp::Lt, last.clone(), lit32(self.terms() as i32)));
        }
        for b in &self.chain.bounds {
            let row = if b.upper { &self.first_row } else { &self.last_row };
            let place = self.place(b, row);
            need(match b.upper {
                true => cmp(CmpOp::Le, last.clone(), place),
                false => cmp(CmpOp::Ge, j0.clone(), place),
            });
        }
        all.map(|c| e.named("whole", Ty::Bool, c))
    }

    /// Turns the products of a step into scores, and gives the greatest of each row so far through `top`.
    pub fn emit(
        &self,
        e: &mut Emit,
        acc: ArrayId,
        group: &Expr,
        j0: &Expr,
        thread: &Thread,
        whole: bool,
        each: &mut dyn FnMut(&mut Emit, usize, Expr, Expr),
    ) {
        for r in 0..2 {
            for w in 0..2 {
                e.scope(|e| {
                    let at = plus(times(group.clone(), 4), lit32(2 * r as i32 + w));
                    let j = term(j0, group, thread, w);
                    let product = Expr::Elem(acc, Box::new(at.clone()));
                    let value = self.value(e, product, j, thread, r, whole);
                    let value = e.named("score", Ty::F32, value);
                    each(e, r, at, value);
                });
            }
        }
    }

    /// Gives the axes their values at a score; its term as it is, where that is needed.
    fn bind_place(&self, e: &mut Emit, j: Expr, thread: &Thread, r: usize, ragged: bool) -> Expr {
        let chain = self.chain;
        let uses_term = self.axes.contains(&chain.outer.folds[0].k[0].axis);
        let j = if uses_term || ragged { e.named("term", Ty::I32, j) } else { j };
        if self.axes.is_empty() {
            return j;
        }
        let inside =
            if ragged { int_op(IntOp::Min, j.clone(), lit32(self.terms() as i32 - 1)) } else { j.clone() };
        let inside = if uses_term { e.named("term", Ty::I32, inside) } else { lit32(0) };
        let column = [Num { expr: inside, ty: Ty::I32 }];
        let known = Known { batch: &thread.batch, m: &thread.rows[r], n: &column };
        let values = axis_values(e, chain.inner(), known);
        for (&axis, value) in chain.inner().stmts[0].axes.iter().zip(&values) {
            if let Some(v) = value.as_ref().filter(|_| self.axes.contains(&axis)) {
                e.bind_axis(axis, v.expr.clone(), v.ty);
            }
        }
        j
    }

    fn value(&self, e: &mut Emit, product: Expr, j: Expr, thread: &Thread, r: usize, whole: bool) -> Expr {
        let chain = self.chain;
        let ragged = !whole && self.is_ragged();
        let j = self.bind_place(e, j, thread, r, ragged);
        if whole {
            for b in &chain.bounds {
                let known = Expr::Lit(Value::Bool(b.counts));
                e.bind_num(b.cond, Num { expr: known, ty: Ty::Bool });
            }
        }
        let product = e.named("product", Ty::F32, product);
        e.bind(chain.score_sum, product.clone());
        if let Some(scaled) = self.scale.1 {
            e.bind(scaled, product);
        }
        divide(e, &self.divisions);
        let nothing = if chain.cascade.state.is_some() { MINUS_INFINITY } else { Expr::Lit(Value::F32(0.0)) };
        let mut conds: Vec<ExprId> = chain.cascade.taken.into_iter().collect();
        if chain.cascade.state.is_none() {
            conds.extend(&chain.values);
        }
        let value = e.value(chain.cascade.score);
        let value = self.where_all(e, &conds, value, &nothing);
        self.inside(ragged, j, value, nothing)
    }

    /// Whether a step may go beyond the terms.
    fn is_ragged(&self) -> bool {
        self.terms() % self.step != 0 || self.parts > 1
    }

    fn inside(&self, ragged: bool, j: Expr, value: Expr, nothing: Expr) -> Expr {
        if !ragged {
            return value;
        }
        let inside = cmp(CmpOp::Lt, j, lit32(self.terms() as i32));
        Expr::Select(Box::new(inside), Box::new(value), Box::new(nothing))
    }

    fn where_all(&self, e: &mut Emit, conds: &[ExprId], value: Expr, nothing: &Expr) -> Expr {
        let mut value = value;
        for &cond in conds {
            let c = e.value(cond);
            if !matches!(c, Expr::Lit(Value::Bool(true))) {
                value = Expr::Select(Box::new(c), Box::new(value), Box::new(nothing.clone()));
            }
        }
        value
    }

    /// Whether a weight is more than the exponential of its score.
    pub fn has_more(&self) -> bool {
        let c = &self.chain.cascade;
        c.state.is_some() && (c.more || !self.chain.values.is_empty())
    }

    /// What depends on the row alone, at row `r`.
    pub fn of_row(&self, e: &mut Emit, value: ExprId, thread: &Thread, r: usize) -> Expr {
        let known = Known { batch: &thread.batch, m: &thread.rows[r], n: &[] };
        e.scope(|e| {
            bind(e, &self.chain.outer, 0, known);
            let value = e.value(value);
            e.named("of_row", Ty::F32, value)
        })
    }

    pub fn has_randoms(&self) -> bool {
        !self.randoms.is_empty()
    }

    /// The random words of two neighbouring groups of columns at both rows: for each function, row and group two for
    /// the thread's pair. Two lanes share the words of four columns: each makes those of one group.
    pub fn words(&self, e: &mut Emit, j0: &Expr, first_group: &Expr, thread: &Thread) -> ArrayId {
        let array = e.kernel.array("random", Ty::U32, 8 * self.randoms.len() as u32);
        let lane = || Expr::Special(Special::Lane);
        let odd = e.named("odd", Ty::I32, modulo(lane(), 2));
        let is_odd = e.named("is_odd", Ty::Bool, cmp(CmpOp::Eq, odd.clone(), lit32(1)));
        let quad = times(over(modulo(lane(), 4), 2), 4);
        let group = plus(first_group.clone(), odd);
        let column = e.named("first_column", Ty::I32, plus(plus(j0.clone(), times(group, 8)), quad));
        for (n, &(_, _, [seed, counter])) in self.randoms.iter().enumerate() {
            for r in 0..2 {
                e.scope(|e| {
                    self.bind_place(e, column.clone(), thread, r, self.is_ragged());
                    let (key, counter) = (e.value(seed), e.value(counter));
                    let block = Expr::Int(IntOp::Shr, Box::new(counter), Box::new(lit64(2)));
                    let own = e.kernel.array("words", Ty::U32, 4);
                    let outs = (0..4).map(|i| Place::Elem(own, i)).collect();
                    e.push(Stmt::Intrinsic { op: Intrinsic::Philox, outs, args: vec![key, block] });
                    let word = |i: i32| Expr::Elem(own, Box::new(lit32(i)));
                    let pick =
                        |a: Expr, b: Expr| Expr::Select(Box::new(is_odd.clone()), Box::new(a), Box::new(b));
                    for w in 0..2 {
                        let other = e.kernel.var("other", Ty::U32);
                        let (kind, value) = (ShuffleKind::Xor, pick(word(w), word(2 + w)));
                        e.push(Stmt::Shuffle { var: other, kind, value, lane: lit32(1) });
                        let other = || Expr::Var(other);
                        let at = |group: i32| lit32(8 * n as i32 + 4 * r as i32 + 2 * group + w);
                        e.push(Stmt::SetElem(array, at(0), pick(other(), word(w))));
                        e.push(Stmt::SetElem(array, at(1), pick(word(2 + w), other())));
                    }
                });
            }
        }
        array
    }

    /// Gives the random functions their values at row `r`, group 0 or 1 and column `w` of the pair.
    pub fn bind_words(&self, e: &mut Emit, words: ArrayId, r: usize, group: usize, w: i32) {
        for (n, &(id, func, _)) in self.randoms.iter().enumerate() {
            let at = (8 * n + 4 * r + 2 * group) as i32 + w;
            let value = map_vec::random_value(e, func, Expr::Elem(words, Box::new(lit32(at))));
            e.bind_num(id, value);
        }
    }

    /// The weight at row `r` and term `j` of which `exp` is the exponential, as the second product takes it.
    pub fn weight(&self, e: &mut Emit, exp: Expr, j: Expr, thread: &Thread, r: usize) -> Expr {
        let (chain, ragged) = (self.chain, self.is_ragged());
        let j = self.bind_place(e, j, thread, r, ragged);
        if let Some(state) = &chain.cascade.state {
            e.bind(state.exp, exp.clone());
        }
        // Expressions below come before those above.
        let same = chain.cascade.same.iter().map(|&(id, inner)| (id, inner, None));
        let mut steps: Vec<_> =
            same.chain(self.last_divisions.iter().map(|&(id, left, by)| (id, left, Some(by)))).collect();
        steps.sort_by_key(|s| s.0);
        for (id, inner, by) in steps.into_iter().filter(|_| chain.cascade.more) {
            match by {
                Some(by) => divide(e, &[(id, inner, by)]),
                None => {
                    let inner = e.value(inner);
                    e.bind(id, inner);
                }
            }
        }
        let zero = Expr::Lit(Value::F32(0.0));
        let value = if chain.cascade.more { e.value(chain.cascade.weight) } else { exp };
        let value = self.where_all(e, &chain.values, value, &zero);
        let value = self.inside(ragged, j, value, zero);
        e.named("weighted", Ty::F32, value)
    }
}

/// The random functions below weights whose words may be shared by four terms.
fn randoms(e: &Emit, roots: &[ExprId], axis: AxisId) -> Vec<(ExprId, Func, [ExprId; 2])> {
    let all: BTreeSet<ExprId> = roots.iter().flat_map(|&r| inline::below(e.graph, r)).collect();
    let call = |id: ExprId| match e.graph.expr(id) {
        Node::Call(f @ (Func::Uniform | Func::RandBits), args) => Some((id, *f, [args[0], args[1]])),
        _ => None,
    };
    let found = all.into_iter().filter_map(call);
    found.filter(|(_, _, args)| map_vec::words_run(e, args, axis, 4)).collect()
}

/// Divisions by constants among what expressions are made of, and the axes that they depend on. What is known is not
/// looked into, but for what it is as.
fn below(
    g: &Graph,
    roots: &[ExprId],
    known: &BTreeMap<ExprId, Option<ExprId>>,
    axes: &mut BTreeSet<AxisId>,
) -> Vec<Division> {
    let (mut todo, mut seen, mut found) = (roots.to_vec(), BTreeSet::new(), Vec::new());
    while let Some(x) = todo.pop() {
        if !seen.insert(x) {
            continue;
        }
        if let Some(inner) = known.get(&x) {
            todo.extend(*inner);
            continue;
        }
        if let Node::Axis(a) = g.expr(x) {
            axes.insert(*a);
        }
        found.extend(division(g, x).map(|(left, by)| (x, left, by)));
        todo.extend(g.children(x));
    }
    found.sort_by_key(|d| d.0);
    found
}

fn divide(e: &mut Emit, divisions: &[Division]) {
    for &(id, left, by) in divisions {
        let left = e.value(left);
        let quotient = Expr::Call(Func::Mul, vec![left, Expr::Lit(Value::F32(by))]);
        let quotient = e.named("quotient", Ty::F32, quotient);
        e.bind(id, quotient);
    }
}

/// The term of an element `w` of a group of a thread's columns.
pub fn term(j0: &Expr, group: &Expr, thread: &Thread, w: i32) -> Expr {
    plus(plus(j0.clone(), times(group.clone(), 8)), plus(thread.column.clone(), lit32(w)))
}

/// What all scores that count are multiplied with at last, and that expression. Without an exponential nothing takes it
/// for nothing.
pub fn scale_of(g: &Graph, chain: &Chain) -> (f32, Option<ExprId>) {
    match chain.cascade.state {
        Some(_) => scale(g, chain.cascade.score, chain.score_sum),
        None => (1.0, None),
    }
}

/// A positive constant that the score is the product times, where it counts.
fn scale(g: &Graph, score: ExprId, product: ExprId) -> (f32, Option<ExprId>) {
    let literal = |e: ExprId| match g.expr(e) {
        Node::Lit(Value::F32(v)) => Some(*v),
        _ => None,
    };
    let infinite = |e: ExprId| literal(e) == Some(f32::NEG_INFINITY);
    let mut e = score;
    while let Node::Select(_, a, b) = g.expr(e) {
        e = match (infinite(*a), infinite(*b)) {
            (true, false) => *b,
            (false, true) => *a,
            _ => return (1.0, None),
        };
    }
    let by = match g.expr(e) {
        Node::Call(Func::Div, a) if a[0] == product => literal(a[1]).map(|v| 1.0 / v),
        Node::Call(Func::Mul, a) if a[0] == product => literal(a[1]),
        Node::Call(Func::Mul, a) if a[1] == product => literal(a[0]),
        _ => None,
    };
    match by {
        Some(v) if v > 0.0 && v.is_normal() => (v, Some(e)),
        _ => (1.0, None),
    }
}

/// A division of floats by a constant whose reciprocal is ordinary.
fn division(g: &Graph, e: ExprId) -> Option<(ExprId, f32)> {
    let Node::Call(Func::Div, a) = g.expr(e) else { return None };
    let Node::Lit(Value::F32(v)) = g.expr(a[1]) else { return None };
    let by = 1.0 / v;
    (v.is_normal() && by.is_normal()).then_some((a[0], by))
}

fn modulo_unless(a: Expr, n: i64, all: i64) -> Expr {
    if n == all { a } else { modulo(a, n) }
}

/// The first of a lane's columns.
pub fn lane_column() -> Expr {
    times(modulo(Expr::Special(Special::Lane), 4), 2)
}
