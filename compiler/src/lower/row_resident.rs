//! Row kernels: what several passes read, loaded once into registers before all of them.

use super::home::Home;
use super::index::Facts;
use super::row::Row;
use super::row_layout::{self, RESIDENT};
use super::row_lead;
use super::row_made;
use super::row_pass::{Item, Pass, Rounds, base_at, bind_point};
use super::scalar::{Emit, Num, arith, cmp, int_of, lit32};
use crate::ir::graph::{Access, AxisId, Expr as Node, ExprId, Graph, Read};
use crate::ir::simt::{ArrayId, CmpOp, Expr, IntOp, Mem, Stmt, Ty};
use crate::pass::rows::{Member, Rows};
use crate::pass::shape;
use crate::vocab::dtype::DType;
use std::collections::BTreeMap;

/// An array of a thread with what a read gives at each of its points.
#[derive(Clone)]
pub struct Resident {
    pub(super) dims: Vec<i64>,
    pub(super) key: String,
    pub(super) held: Held,
}

/// Where the elements of a resident read are: one a register, or two of 16 bits.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) array: ArrayId,
    pub(super) packed: Option<DType>,
}

impl Held {
    /// The element of slot `at`; `half` is its parity, where the slot is two times `pair` and that.
    pub(super) fn element(self, at: &Expr, pair: &Expr, half: u8) -> Expr {
        match self.packed {
            Some(dtype) => {
                Expr::Unpack2(dtype, half, Box::new(Expr::Elem(self.array, Box::new(pair.clone()))))
            }
            None => Expr::Elem(self.array, Box::new(at.clone())),
        }
    }
}

/// What tells which reads may be held.
#[derive(Clone, Copy)]
pub struct Look<'x, 'a> {
    pub graph: &'a Graph,
    pub facts: &'x Facts<'a>,
    pub rows: &'x Rows,
}

/// A read with the item where it comes first, and its key.
pub(super) type Shared<'a> = (String, Item<'a>, ExprId, Read);

/// Reads that several passes over one box make.
pub fn shared_reads<'a>(look: Look<'_, 'a>, passes: &[Pass<'a>], dims: &[i64]) -> Vec<Shared<'a>> {
    let mut seen: BTreeMap<String, (usize, usize, Item<'a>, ExprId, Read)> = BTreeMap::new();
    let mut order = Vec::new();
    for (p, pass) in passes.iter().enumerate().filter(|(_, p)| p.dims.as_deref() == Some(dims) && !p.ordered)
    {
        for item in &pass.items {
            for (e, r) in row_layout::reads(look.graph, item) {
                if !keeps(look, item, e, &r) || look.rows.held.contains(&r.tensor) {
                    continue;
                }
                let key = key(look.graph, item, e);
                match seen.get_mut(&key) {
                    Some(s) if s.1 != p => (s.0, s.1) = (s.0 + 1, p),
                    Some(_) => {}
                    None => {
                        order.push(key.clone());
                        seen.insert(key, (1, p, item.clone(), e, r));
                    }
                }
            }
        }
    }
    order
        .into_iter()
        .filter_map(|k| {
            let (passes, _, item, e, r) = seen.remove(&k)?;
            (passes > 1).then_some((k, item, e, r))
        })
        .collect()
}

/// May a read be made once, before all passes? It is proven, depends on the place in the row, and on no other axis
/// or value of the row.
pub(super) fn keeps(look: Look<'_, '_>, item: &Item<'_>, e: ExprId, r: &Read) -> bool {
    let free = look.facts.free(e);
    let of_row = free.iter().all(|a| item.axes.contains(a) || item.rows.contains(a));
    let plain = r.index.iter().all(|&i| !reads_anything(look.graph, i));
    let made = |m: &Member| look.graph.stmts[m.stmt].targets().contains(&r.tensor);
    let own = !look.rows.held.contains(&r.tensor) && look.rows.members.iter().any(made);
    r.access == Access::Proven
        && of_row
        && plain
        && !own
        && crate::pass::bounds::read_is_safe(look.graph, r)
        && item.axes.iter().any(|a| free.contains(a))
}

pub(super) fn reads_anything(graph: &Graph, e: ExprId) -> bool {
    crate::pass::inline::below(graph, e)
        .iter()
        .any(|&x| matches!(graph.expr(x), Node::Read(_) | Node::Fold(_)))
}

pub(super) fn key(graph: &Graph, item: &Item<'_>, e: ExprId) -> String {
    let axes: Vec<AxisId> = item.rows.iter().chain(&item.axes).copied().collect();
    shape::key(graph, e, &axes)
}

/// Registers of a thread that hold `each` elements of some reads.
pub fn registers<'r>(packs: impl Iterator<Item = &'r Option<DType>>, each: i64) -> i64 {
    packs.map(|p| if p.is_some() { each / 2 } else { each }).sum()
}

/// Registers of a thread that may hold what several passes read. A block of 1024 threads has 64 for each.
pub fn most_held(layout: &row_layout::Layout) -> i64 {
    if layout.lanes * layout.per_block > 512 { RESIDENT / 2 } else { RESIDENT }
}

/// Loads what several passes read, where it fits, and makes room for what they make and read back.
pub fn load_resident<'a>(row: &mut Row<'a, '_>, passes: &[Pass<'a>]) {
    let mut boxes: Vec<Vec<i64>> = passes.iter().filter_map(|p| p.dims.clone()).collect();
    boxes.sort();
    boxes.dedup();
    if !row.layout.held {
        return;
    }
    for dims in boxes {
        let rounds = Rounds::new(row, &dims);
        let facts = row.e.facts.clone();
        let look = Look { graph: row.graph, facts: &facts, rows: row.rows };
        let reads = shared_reads(look, passes, &dims);
        let packs: Vec<Option<DType>> = reads
            .iter()
            .map(|(_, item, _, r)| packed(row.graph, &row.e.home(r.tensor), &row.layout, item, r))
            .collect();
        let made = row_made::of_box(look, passes, &dims, &row.layout, &|t| row.e.home(t));
        let all = packs.iter().chain(made.iter().map(|m| &m.1));
        if rounds.points == 0 || registers(all, rounds.each()) > most_held(&row.layout) {
            continue;
        }
        for ((key, _, e, r), packed) in made {
            let ty = if packed.is_some() { Ty::U32 } else { Ty::of(row.graph.ty(e)) };
            let each = if packed.is_some() { rounds.each() / 2 } else { rounds.each() };
            let name = row.graph.tensor(r.tensor).name.clone();
            let held = Held { array: row.e.kernel.array(format!("row_{name}"), ty, each as u32), packed };
            row.made.insert(r.tensor, held);
            row.resident.push(Resident { dims: dims.clone(), key, held });
        }
        for ((key, item, e, r), packed) in reads.into_iter().zip(packs) {
            let array = load_one(row, &rounds, &item, e, &r, packed.is_some());
            row.resident.push(Resident { dims: dims.clone(), key, held: Held { array, packed } });
        }
    }
}

/// The dtype of a read whose elements can be held two a register.
pub fn packed(
    graph: &Graph,
    home: &Home,
    layout: &row_layout::Layout,
    item: &Item<'_>,
    r: &Read,
) -> Option<DType> {
    let dtype = graph.tensor(r.tensor).dtype;
    let chunk = layout.chunk(graph, home, item, r)?;
    (matches!(dtype, DType::F16 | DType::BF16) && chunk % 2 == 0).then_some(dtype)
}

/// All rounds of one read into an array.
pub(super) fn load_one<'a>(
    row: &mut Row<'a, '_>,
    rounds: &Rounds,
    item: &Item<'a>,
    e: ExprId,
    r: &Read,
    packed: bool,
) -> ArrayId {
    let ty = if packed { Ty::U32 } else { Ty::of(row.graph.ty(e)) };
    let name = row.graph.tensor(r.tensor).name.clone();
    let each = if packed { rounds.each() / 2 } else { rounds.each() };
    let array = row.e.kernel.array(format!("row_{name}"), ty, each as u32);
    let chunk = row.layout.chunk(row.graph, &row.e.home(r.tensor), item, r);
    let lane = row.lanes.lane.clone();
    for j in 0..rounds.count {
        let rounds = &rounds.at(j);
        let base = base_at(rounds, &lane, int_of(rounds.ty, j));
        let base = Num { expr: row.e.named("at", base.ty, base.expr), ty: base.ty };
        let load = |e: &mut Emit<'a>| match chunk {
            Some(chunk) => load_vector(e, rounds, item, r, &base, array, j * rounds.vector, chunk),
            None => load_each(e, rounds, item, r, &base, array, j * rounds.vector),
        };
        if rounds.is_even() || rounds.lead.is_some() && !rounds.edge {
            row.e.scope(load);
        } else {
            let inside = cmp(CmpOp::Lt, base.expr.clone(), int_of(rounds.ty, rounds.points).expr);
            row.e.if_then(inside, load);
        }
    }
    array
}

#[allow(clippy::too_many_arguments)]
pub(super) fn load_vector<'a>(
    e: &mut Emit<'a>,
    rounds: &Rounds,
    item: &Item<'a>,
    r: &Read,
    base: &Num,
    array: ArrayId,
    at: i64,
    chunk: i64,
) {
    if rounds.lead.is_some() {
        return row_lead::load(e, rounds, item, r, base, array, at, chunk);
    }
    bind_point(e, rounds, item, base);
    let index: Vec<_> = r.index.iter().map(|&i| e.index(i)).collect();
    let offset = e.offset(r.tensor, &index);
    let ty = e.home(r.tensor).index_ty();
    let offset = e.named("from", ty, offset);
    let mem = Mem::Global(e.tensor_param(r.tensor, false));
    load_chunks(e, mem, &Num { expr: offset, ty }, array, at, rounds.vector, chunk);
}

/// Loads all of a vector, a chunk at a time, into an array that may hold two elements a register.
pub(super) fn load_chunks(
    e: &mut Emit<'_>,
    mem: Mem,
    from: &Num,
    array: ArrayId,
    at: i64,
    vector: i64,
    chunk: i64,
) {
    let words = if e.kernel.arrays[array.0 as usize].ty == Ty::U32 { 2 } else { 1 };
    for c in 0..vector / chunk {
        let index = arith(IntOp::Add, from.clone(), int_of(from.ty, c * chunk)).expr;
        let at = ((at + c * chunk) / words) as u32;
        e.push(Stmt::LoadVec { array, at, mem, index, count: chunk as u32 });
    }
}

pub(super) fn load_each<'a>(
    e: &mut Emit<'a>,
    rounds: &Rounds,
    item: &Item<'a>,
    r: &Read,
    base: &Num,
    array: ArrayId,
    at: i64,
) {
    for v in 0..rounds.vector {
        let pos = arith(IntOp::Add, base.clone(), int_of(base.ty, v));
        let pos = Num { expr: e.named("at", pos.ty, pos.expr), ty: pos.ty };
        let one = |e: &mut Emit<'a>| {
            bind_point(e, rounds, item, &pos);
            let index: Vec<_> = r.index.iter().map(|&i| e.index(i)).collect();
            let n = e.load(r.tensor, &index, Default::default());
            let ty = e.kernel.arrays[array.0 as usize].ty;
            let value = super::read::to(n, ty);
            e.push(Stmt::SetElem(array, lit32((at + v) as i32), value));
        };
        if rounds.edge {
            e.if_then(row_lead::inside(rounds, &pos), one);
        } else {
            e.scope(one);
        }
    }
}
