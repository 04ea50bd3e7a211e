//! Row kernels: a thread's vectors of what is mapped over the row.

use super::map;
use super::row::Row;
use super::row_layout::vector_write;
use super::row_lead;
use super::row_pass::{Item, Kind, Pass, Rounds, bind_point};
use super::scalar::{Emit, Num, arith, int_of};
use crate::ir::graph::Define;
use crate::ir::simt::{ArrayId, IntOp, Mem, Stmt, Ty};

/// For each item that is a map and can store vectors: an array for its values, and the elements of one store.
pub fn out_arrays(row: &mut Row<'_, '_>, pass: &Pass<'_>, rounds: &Rounds) -> Vec<Option<(ArrayId, i64)>> {
    pass.items
        .iter()
        .map(|item| {
            let Kind::Map { define } = &item.kind else { return None };
            let home = row.e.home(define.target);
            let chunk = match &row.layout.lead {
                Some(lead) => row_lead::chunk_of_write(lead, row.graph, &home, item, define)?,
                None => {
                    vector_write(row.graph, &home, define.target, &define.axes, &item.axes, rounds.vector)?
                }
            };
            let name = format!("out_{}", row.graph.tensor(define.target).name);
            let ty = Ty::of(row.graph.ty(define.value));
            Some((row.e.kernel.array(name, ty, rounds.vector as u32), chunk))
        })
        .collect()
}

pub fn store_vector<'a>(
    row: &mut Row<'a, '_>,
    rounds: &Rounds,
    item: &Item<'a>,
    d: &Define,
    base: &Num,
    array: ArrayId,
    chunk: i64,
) {
    row.e.open();
    if rounds.lead.is_some() {
        row_lead::store(&mut row.e, rounds, item, d, base, array, chunk);
    } else {
        store_aligned(row, rounds, item, d, base, array, chunk);
    }
    let stmts = row.e.close();
    match row.valid.clone() {
        Some(cond) => row.e.push(Stmt::If { cond, then: stmts, otherwise: Vec::new() }),
        None => stmts.into_iter().for_each(|s| row.e.push(s)),
    }
}

fn store_aligned<'a>(
    row: &mut Row<'a, '_>,
    rounds: &Rounds,
    item: &Item<'a>,
    d: &Define,
    base: &Num,
    array: ArrayId,
    chunk: i64,
) {
    bind_point(&mut row.e, rounds, item, base);
    let index = map::own_index(&row.e, d.target, &d.axes);
    let offset = row.e.offset(d.target, &index);
    let ty = row.e.home(d.target).index_ty();
    let offset = row.e.named("to", ty, offset);
    let mem = Mem::Global(row.e.tensor_param(d.target, true));
    store_chunks(&mut row.e, mem, &Num { expr: offset, ty }, array, rounds.vector, chunk);
}

/// Stores all of a vector, a chunk at a time.
pub fn store_chunks(e: &mut Emit<'_>, mem: Mem, to: &Num, array: ArrayId, vector: i64, chunk: i64) {
    for c in 0..vector / chunk {
        let index = arith(IntOp::Add, to.clone(), int_of(to.ty, c * chunk)).expr;
        e.push(Stmt::StoreVec { mem, index, array, at: (c * chunk) as u32, count: chunk as u32 });
    }
}
