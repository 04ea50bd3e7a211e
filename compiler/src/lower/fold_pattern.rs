//! Recognises chained products that the form `fold` takes: `o = Σⱼ w(j) · v(j)` where the weights w are those of a
//! cascade (`pass/cascade`) and its scores are products of matrices themselves.
//!
//! The rows of both products are the same digits. All three matrices are plain reads that lie as boxes want it.

use super::contract_operand::{Ground, Source};
use super::contract_pattern::{self, ContractShape, Contraction, Digit};
use super::fold_beside::Beside;
use super::fold_boxes::{self, Boxes};
use super::home::Home;
use super::hopper_gather::affine;
use super::index::Facts;
use crate::ir::graph::{Access, AxisId, Combine, Define, Expr, ExprId, Fold, Graph, Read, TensorId};
use crate::ir::program::BufferId;
use crate::pass::cascade::{self, Cascade};
use crate::pass::{facts, inline};
use crate::vocab::dtype::{DType, Ty, Value};
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;

/// Terms of the sum below which kernels of their own are taken.
const LEAST: i64 = 128;

/// Most terms of the scores, and columns.
const WIDEST: i64 = 256;

/// Why an ordinary product is none: not worth saying.
pub const NO_FOLD: &str = "its terms hold no fold";

/// A chain of two products.
pub struct Chain {
    pub cascade: Cascade,
    /// Further conditions of the second product's terms.
    pub values: Vec<ExprId>,
    /// Whether what they leave out may be infinite or NaN and must not show.
    pub strict: bool,
    /// Scores: the sum of these products.
    pub products: Vec<Product>,
    /// That sum.
    pub score_sum: ExprId,
    /// The second product; its first factor are the weights.
    pub outer: ContractShape,
    pub dtype: DType,
    /// Numbers of this type that a weight is the sum of.
    pub pieces: u32,
    pub v: Boxes,
    pub bounds: Vec<Bound>,
    /// Values of its rows that the same kernel stores.
    pub beside: Vec<Beside>,
}

/// A product that scores are made of: rows of `a` by columns of `b`, which are the terms of the second product.
pub struct Product {
    pub shape: ContractShape,
    pub a: Boxes,
    pub b: Boxes,
}

/// A condition that leaves out scores before or after a place that moves with the row.
#[derive(Clone, Debug)]
pub struct Bound {
    pub cond: ExprId,
    /// The condition's value where the score counts.
    pub counts: bool,
    /// Scores count up to this place (else from it on).
    pub upper: bool,
    /// The place is the row's number plus `at` (else `at`).
    pub row: bool,
    pub at: i64,
}

impl Chain {
    /// The part of all scores that conditions on row and term leave.
    pub fn share(&self) -> f64 {
        const SAMPLES: i64 = 64;
        let rows = self.outer.m.last().map_or(1, |d| d.extent);
        let terms = self.sizes()[2];
        let at = |sample: i64| (2 * sample + 1) * rows / (2 * SAMPLES);
        let taken = |row: i64| {
            let (mut lo, mut hi) = (0, terms);
            for b in &self.bounds {
                let place = if b.row { row + b.at } else { b.at };
                if b.upper { hi = hi.min(place + 1) } else { lo = lo.max(place) }
            }
            (hi - lo).clamp(0, terms) as f64 / terms as f64
        };
        (0..SAMPLES).map(|s| taken(at(s))).sum::<f64>() / SAMPLES as f64
    }

    /// Whether rows further down have more steps.
    pub fn grows(&self) -> bool {
        self.bounds.iter().any(|b| b.upper && b.row)
    }

    /// The shape of the scores.
    pub fn inner(&self) -> &ContractShape {
        &self.products[0].shape
    }

    pub fn fold(&self) -> &Contraction {
        &self.outer.folds[0]
    }

    /// Rows, terms of the scores, terms of the second product, columns.
    pub fn sizes(&self) -> [i64; 4] {
        let points = ContractShape::points;
        let inner = self.products.iter().map(|p| p.shape.folds[0].terms()).sum();
        [points(&self.outer.m), inner, self.outer.folds[0].terms(), points(&self.outer.n)]
    }
}

/// The chain that a definition is, where every tensor lies as the graph says.
pub fn takes(g: &Graph, d: &Define) -> Result<Chain, String> {
    let home = |t: TensorId| {
        let t = g.tensor(t);
        let len = t.dims.iter().product();
        Home {
            buffer: BufferId(0),
            dtype: t.dtype,
            strides: t.strides.clone(),
            len,
            align: t.align,
            ring: None,
        }
    };
    // Cheap to see, and most definitions end here.
    the_sum(g, d)?;
    recognise(g, &Facts::new(g), d, &home)
}

/// The sum of a definition that may be a chain.
struct Outer {
    /// The sum, or the quotient by a sum of its weights.
    value: ExprId,
    id: ExprId,
    fold: Fold,
    /// What the whole sum is divided by.
    late: Option<ExprId>,
}

/// The one sum of a definition, over one axis, with a fold inside.
fn the_sum(g: &Graph, d: &Define) -> Result<Outer, String> {
    let folds = inline::outer_folds(g, d.value);
    let fold = |e: ExprId| match g.expr(e) {
        Expr::Fold(f) => Some(f.clone()),
        _ => None,
    };
    let nested = |e: &ExprId| fold(*e).is_some_and(|f| !inline::outer_folds(g, f.body).is_empty());
    let mut late = None;
    let (value, sum) = match folds[..] {
        [r] => (r, r),
        [] => return Err("no sum".into()),
        _ => {
            let (value, sum, by) = quotient(g, d.value).ok_or("not one sum")?;
            late = Some(by);
            (value, sum)
        }
    };
    let f = fold(sum).ok_or("no sum")?;
    match f.axes[..] {
        [_] if nested(&sum) && f.combine == Combine::Builtin(Monoid::Sum) => {
            Ok(Outer { value, id: sum, fold: f, late })
        }
        _ => Err(NO_FOLD.into()),
    }
}

/// The one quotient of a sum by what has folds, outside which the value has none.
fn quotient(g: &Graph, value: ExprId) -> Option<(ExprId, ExprId, ExprId)> {
    let mut e = value;
    loop {
        let with: Vec<ExprId> =
            g.children(e).into_iter().filter(|&c| !inline::outer_folds(g, c).is_empty()).collect();
        match (g.expr(e), &with[..]) {
            (Expr::Call(Func::Div, a), [_, _]) if matches!(g.expr(a[0]), Expr::Fold(_)) => {
                return Some((e, a[0], a[1]));
            }
            (Expr::Fold(_), _) => return None,
            (_, &[one]) => e = one,
            _ => return None,
        }
    }
}

/// A sum's terms where they are taken.
struct Terms {
    product: ExprId,
    factors: [ExprId; 2],
    /// The conditions under which terms are taken, outermost first.
    conds: Vec<ExprId>,
}

fn terms(g: &Graph, f: &Fold) -> Result<Terms, String> {
    let (mut product, mut conds) = (f.body, Vec::from_iter(f.cond));
    // `c ? x : 0` is the sum of x where c.
    while let Expr::Select(c, a, b) = *g.expr(product)
        && matches!(g.expr(b), Expr::Lit(Value::F32(v)) if *v == 0.0)
    {
        conds.push(c);
        product = a;
    }
    match g.expr(product) {
        Expr::Call(Func::Mul, args) => Ok(Terms { product, factors: [args[0], args[1]], conds }),
        _ => Err("terms that are no products".into()),
    }
}

/// A chain's sum as it is defined.
pub struct Sum {
    pub id: ExprId,
    pub fold: Fold,
    /// What is added where all `conds` hold: `term`, which holds folds, times what holds none.
    pub product: ExprId,
    pub term: ExprId,
    pub conds: Vec<ExprId>,
}

/// The sum of a definition that is a chain.
pub fn sum(g: &Graph, d: &Define) -> Result<Sum, String> {
    let Outer { id, fold, .. } = the_sum(g, d)?;
    let Terms { product, factors: [x, y], conds } = terms(g, &fold)?;
    let term = if facts::Facts::default().has_fold(g, x) { x } else { y };
    Ok(Sum { id, fold, product, term, conds })
}

pub fn recognise(
    g: &Graph,
    index: &Facts,
    d: &Define,
    home: &dyn Fn(TensorId) -> Home,
) -> Result<Chain, String> {
    let Outer { value, fold: f, late, .. } = the_sum(g, d)?;
    let axis = f.axes[0];
    let mut facts = facts::Facts::default();
    let Terms { factors: [x, y], conds: values, .. } = terms(g, &f)?;
    let (term, other) = if facts.has_fold(g, x) { (x, y) } else { (y, x) };
    if facts.has_fold(g, other) {
        return Err("two factors with folds".into());
    }
    if values.iter().any(|&c| facts.has_fold(g, c)) {
        return Err("a condition with a loop".into());
    }
    let cascade = cascade::of_term(g, &mut facts, term, axis, &values, late)?;
    let strict = !values.is_empty();
    let values = values.into_iter().filter(|&c| !cascade.implies(g, c)).collect();
    let stored = match g.expr(other) {
        Expr::Read(r) => Some(g.tensor(r.tensor).dtype),
        _ => None,
    };
    let (dtype, pieces) = match cascade.rounded {
        Some(d @ (DType::F16 | DType::BF16)) => (d, 1),
        // Three numbers of 8 bits are one of 24, and weights of an exponential are not infinite.
        None if stored == Some(DType::BF16) && cascade.state.is_some() => (DType::BF16, 3),
        _ => return Err("weights that are not rounded to 16 bits".into()),
    };
    let mut outer = second(g, &mut facts, d, (value, &f), term, other)?;
    plain(&mut outer, axis)?;
    let (score_sum, mut inners) = scores(g, &mut facts, d, &outer, &cascade, axis)?;
    inners.iter_mut().chain([&mut outer]).for_each(longest_last);
    let lying = Lying { graph: g, facts: index, home, dtype, axis };
    let apart = |inners: &[ContractShape], outer: &ContractShape| {
        let (mut inners, mut outer) = (inners.to_vec(), outer.clone());
        inners.iter_mut().chain([&mut outer]).for_each(split_rows);
        let found = matrices(&lying, &inners, &outer)?;
        Ok::<_, String>((found, inners, outer))
    };
    let rows_are_many = outer.m.len() > 1;
    let mut found = match matrices(&lying, &inners, &outer) {
        Ok(found) => found,
        // Rows that are not one number: only the innermost are cut in blocks.
        Err(_) if rows_are_many => {
            let found;
            (found, inners, outer) = apart(&inners, &outer)?;
            found
        }
        Err(why) => return Err(why),
    };
    let bounds_of = |outer: &ContractShape| {
        bounds(&Ground { graph: g, facts: index, shape: outer, home }, &cascade, axis)
    };
    let mut bounds = bounds_of(&outer);
    // A block whose rows are the end of one line and the start of the next one has all steps.
    let long = outer.m.len() > 1 && outer.m.last().is_some_and(|d| d.extent >= LEAST);
    if long
        && bounds.iter().any(|b| b.row)
        && let Ok(better) = apart(&inners, &outer)
    {
        (found, inners, outer) = better;
        bounds = bounds_of(&outer);
    }
    let (factors, v) = found;
    let products = inners.into_iter().zip(factors).map(|(shape, [a, b])| Product { shape, a, b }).collect();
    let beside = Vec::new();
    let chain =
        Chain { cascade, values, strict, products, score_sum, outer, dtype, pieces, v, bounds, beside };
    let [rows, terms, keys, columns] = chain.sizes();
    if keys < LEAST || terms > WIDEST || columns > WIDEST {
        return Err(format!("{rows} rows of {terms} terms, {keys} of {columns} columns"));
    }
    Ok(chain)
}

/// Where matrices lie.
struct Lying<'a> {
    graph: &'a Graph,
    facts: &'a Facts<'a>,
    home: &'a dyn Fn(TensorId) -> Home,
    dtype: DType,
    /// The terms of the second product.
    axis: AxisId,
}

/// The matrices of the scores' products, and that of the second product.
type Matrices = (Vec<[Boxes; 2]>, Boxes);

/// All matrices, if boxes can copy them.
fn matrices(lying: &Lying, inners: &[ContractShape], outer: &ContractShape) -> Result<Matrices, String> {
    let Lying { graph, facts, home, dtype, axis } = *lying;
    let operand = |shape: &ContractShape, second: bool, rows: &[Digit], k: AxisId| {
        let ground = Ground { graph, facts, shape, home };
        let c = &shape.folds[0];
        let factor = if second { &c.b } else { &c.a };
        match ground.source(c, factor, dtype) {
            Source::Plain(p) => fold_boxes::of(&ground, c, &p, rows, k, dtype),
            Source::Computed => None,
        }
        .ok_or_else(|| "a matrix that does not lie as boxes want it".to_string())
    };
    let pair = |inner: &ContractShape| {
        let k = inner.folds[0].k[long_axis(&inner.folds[0])?].axis;
        Ok::<_, String>([operand(inner, false, &inner.m, k)?, operand(inner, true, &inner.n, k)?])
    };
    let pairs = inners.iter().map(pair).collect::<Result<_, _>>()?;
    Ok((pairs, operand(outer, true, &outer.n, axis)?))
}

/// Puts the rows' digit with the most values innermost: blocks are cut along it, and conditions speak of it.
fn longest_last(shape: &mut ContractShape) {
    if let Some(at) = (0..shape.m.len()).max_by_key(|&i| shape.m[i].extent) {
        let longest = shape.m.remove(at);
        shape.m.push(longest);
    }
}

/// Counts all rows but the innermost with the batch.
fn split_rows(shape: &mut ContractShape) {
    if let Some(last) = shape.m.pop() {
        shape.batch.append(&mut shape.m);
        shape.m.push(last);
    }
}

/// The shape of the second product: as if the weights were a matrix.
fn second(
    g: &Graph,
    facts: &mut facts::Facts,
    d: &Define,
    (value, f): (ExprId, &Fold),
    term: ExprId,
    other: ExprId,
) -> Result<ContractShape, String> {
    let mut g = g.clone();
    let axes: Vec<AxisId> = facts.free(&g, term).iter().copied().collect();
    let ranges: Option<Vec<(i64, i64)>> = axes.iter().map(|&a| g.axis_range(a)).collect();
    let ranges = ranges.ok_or("axes without a fixed range")?;
    let mut weights = g.tensor(d.target).clone();
    weights.dtype = DType::F32;
    weights.lo = ranges.iter().map(|r| r.0).collect();
    weights.dims = ranges.iter().map(|r| (r.1 - r.0).max(0)).collect();
    weights.strides = super::home::contiguous(weights.dtype, &weights.dims);
    g.tensors.push(weights);
    let tensor = TensorId(g.tensors.len() as u32 - 1);
    let index = axes.into_iter().map(|a| g.axis_expr(a)).collect();
    let (ty, span) = (g.ty(term), g.span(term));
    let read = g.add(Expr::Read(Read { tensor, index, access: Access::Proven }), ty, span);
    let body = g.add(Expr::Call(Func::Mul, vec![read, other]), ty, span);
    // What its conditions leave out has no weight.
    let sum = g.add(Expr::Fold(Fold { body, cond: None, ..f.clone() }), ty, span);
    let mut shape = shape_of(&g, d, &d.axes, sum)?;
    let c = &mut shape.folds[0];
    c.fold = value;
    for factor in [&mut c.a, &mut c.b] {
        factor.exprs.iter_mut().filter(|e| **e == read).for_each(|e| *e = term);
    }
    if shape.folds[0].b.exprs == [term] {
        swap(&mut shape);
    }
    if shape.n.is_empty() {
        return Err("a second product without columns".into());
    }
    match shape.folds[0].a.exprs == [term] && shape.folds[0].b.exprs == [other] {
        true => Ok(shape),
        false => Err("factors that do not split as matrices".into()),
    }
}

/// The shape of one sum as a product of its own; a single row has no axis.
fn shape_of(g: &Graph, d: &Define, axes: &[AxisId], sum: ExprId) -> Result<ContractShape, String> {
    let own = Define { target: d.target, axes: axes.to_vec(), value: sum, span: d.span };
    let shape = contract_pattern::takes(g, &own, true)?;
    match shape.folds[..] {
        [ref c] if shape.selector.is_none() && c.ty == Ty::F32 && c.hoisted.is_empty() => Ok(shape),
        _ => Err("not one plain sum of products".into()),
    }
}

fn swap(shape: &mut ContractShape) {
    std::mem::swap(&mut shape.m, &mut shape.n);
    for c in &mut shape.folds {
        std::mem::swap(&mut c.a, &mut c.b);
    }
}

fn long_axis(c: &Contraction) -> Result<usize, String> {
    let mut long = (0..c.k.len()).filter(|&i| c.k[i].extent > 1);
    match (long.next(), long.next()) {
        (Some(i), None) => Ok(i),
        _ => Err("a sum over several axes".into()),
    }
}

/// What is left out has no weight: the conditions need not be asked where the second product is made.
fn plain(outer: &mut ContractShape, axis: AxisId) -> Result<(), String> {
    let c = &mut outer.folds[0];
    if c.k.len() != 1 || c.k[0].axis != axis || c.k[0].lo != 0 {
        return Err("a sum over several axes".into());
    }
    c.a.guards.clear();
    c.b.guards.clear();
    c.result_guards.clear();
    Ok(())
}

/// The products in the scores, and their sum: one product, or a sum of some.
fn scores(
    g: &Graph,
    facts: &mut facts::Facts,
    d: &Define,
    outer: &ContractShape,
    cascade: &Cascade,
    axis: AxisId,
) -> Result<(ExprId, Vec<ContractShape>), String> {
    let found = inline::outer_folds(g, cascade.score);
    let sum = sum_of(g, cascade.score, &found).ok_or("scores that are not one product")?;
    if cascade.taken.is_some_and(|c| facts.has_fold(g, c)) {
        return Err("a condition with a loop".into());
    }
    let own: Vec<usize> = outer.n.iter().map(|n| n.out).collect();
    let mut axes: Vec<AxisId> = (0..d.axes.len()).filter(|i| !own.contains(i)).map(|i| d.axes[i]).collect();
    axes.push(axis);
    let shapes = found.into_iter().map(|product| score(g, d, outer, &axes, product));
    Ok((sum, shapes.collect::<Result<_, _>>()?))
}

/// The expression that adds these products and nothing else.
fn sum_of(g: &Graph, score: ExprId, products: &[ExprId]) -> Option<ExprId> {
    const MOST: usize = 3;
    // One may be used in several places.
    if let [one] = products {
        return Some(*one);
    }
    let (mut e, mut rest) = (score, products.to_vec());
    if rest.is_empty() || rest.len() > MOST {
        return None;
    }
    // Down to where the products part.
    while !rest.contains(&e) {
        let with: Vec<ExprId> =
            g.children(e).into_iter().filter(|&c| !inline::outer_folds(g, c).is_empty()).collect();
        match with[..] {
            [one] => e = one,
            _ => break,
        }
    }
    let mut todo = vec![e];
    while let Some(x) = todo.pop() {
        match g.expr(x) {
            _ if rest.contains(&x) => rest.retain(|&p| p != x),
            Expr::Call(Func::Add, args) => todo.extend(args),
            _ => return None,
        }
    }
    rest.is_empty().then_some(e)
}

/// A product in the scores, over the rows of the second product.
fn score(
    g: &Graph,
    d: &Define,
    outer: &ContractShape,
    axes: &[AxisId],
    product: ExprId,
) -> Result<ContractShape, String> {
    let axis = *axes.last().ok_or("no axes")?;
    let mut inner = shape_of(g, d, axes, product)?;
    let key = |shape: &ContractShape, digits: &[Digit]| -> Vec<(AxisId, i64, i64)> {
        digits.iter().map(|x| (shape.stmts[0].axes[x.out], x.stride, x.extent)).collect()
    };
    let column = |shape: &ContractShape| matches!(key(shape, &shape.n)[..], [(a, 1, n)] if a == axis && Some(n) == g.extent(axis));
    if !column(&inner) {
        swap(&mut inner);
    }
    if !column(&inner) || !inner.folds[0].result_guards.is_empty() {
        return Err("scores that are no product of a row and a term".into());
    }
    // Where the columns are the same for some of the batch (heads that share keys), those are among its rows.
    let mut batch = Vec::new();
    for wanted in key(outer, &outer.batch) {
        let mut from = std::mem::take(&mut inner.batch);
        from.append(&mut inner.m);
        let at = from.iter().position(|x| key(&inner, std::slice::from_ref(x)) == [wanted]);
        batch.push(from.remove(at.ok_or("the products' rows differ")?));
        inner.m = from;
    }
    inner.batch = batch;
    match key(&inner, &inner.m) == key(outer, &outer.m) {
        true => Ok(inner),
        false => Err("the products' rows differ".into()),
    }
}

/// The conditions of the scores that are linear in the row and the term.
fn bounds(ground: &Ground, cascade: &Cascade, axis: AxisId) -> Vec<Bound> {
    let (g, outer) = (ground.graph, ground.shape);
    let row = outer
        .m
        .last()
        .filter(|d| d.stride == 1 && outer.axes[d.out].lo == 0 && outer.axes[d.out].extent == d.extent);
    let row = row.map(|d| outer.stmts[0].axes[d.out]);
    cascade.needs(g).into_iter().filter_map(|(c, counts)| linear(ground, c, counts, row, axis)).collect()
}

fn linear(ground: &Ground, cond: ExprId, counts: bool, row: Option<AxisId>, axis: AxisId) -> Option<Bound> {
    let g = ground.graph;
    let Expr::Call(f, args) = g.expr(cond) else { return None };
    let (low, high, strict) = match f {
        Func::Lt => (args[0], args[1], 1),
        Func::Le => (args[0], args[1], 0),
        _ => return None,
    };
    if !g.ty(low).is_int() {
        return None;
    }
    // It holds where low + strict ≤ high; it fails where high + 1 − strict ≤ low.
    let (low, high, more) = if counts { (low, high, strict) } else { (high, low, 1 - strict) };
    let (low, high) = (affine(ground.graph, low)?, affine(ground.graph, high)?);
    let by = |axis: AxisId| high.axes.get(&axis).unwrap_or(&0) - low.axes.get(&axis).unwrap_or(&0);
    let others = low.axes.keys().chain(high.axes.keys()).any(|&a| a != axis && Some(a) != row && by(a) != 0);
    let place = high.constant - low.constant - more;
    let along = row.map_or(0, by);
    let bound = |upper, at| Some(Bound { cond, counts, upper, row: along != 0, at });
    match (by(axis), along) {
        _ if others => None,
        // j ≤ row + place
        (-1, 0 | 1) => bound(true, place),
        // j ≥ row − place
        (1, 0 | -1) => bound(false, -place),
        _ => None,
    }
}
