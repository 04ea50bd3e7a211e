//! Which form lowers a statement: decided by its structure alone, so that a filetest can fix it.

use super::facts::{self, Facts};
use super::rows;
use crate::ir::graph::*;
use crate::ir::plan::Form;
use crate::lower::{scan_step, step_split};

/// The form for a statement other than a definition that stands in a kernel of its own; `None` for a table, which
/// needs no kernel.
pub fn of_stmt(g: &Graph, facts: &mut Facts, s: &Stmt, _: Option<Form>) -> Option<Form> {
    Some(match s {
        Stmt::Define(_) => Form::Map,
        Stmt::Scan(_) => Form::Scan,
        Stmt::Sort(_) => Form::Sort,
        Stmt::Update(_) => Form::Scatter,
        Stmt::Recur(r) => of_recur(g, facts, r),
        Stmt::Table { .. } => return None,
    })
}

/// The form for definition `i`; `contracts` says whether the contract form takes it.
pub fn of_define(
    g: &Graph,
    facts: &mut Facts,
    i: usize,
    d: &Define,
    force: Option<Form>,
    contracts: bool,
) -> Form {
    if !facts.has_fold(g, d.value) {
        return Form::Map;
    }
    match force {
        Some(Form::Map) => return Form::Map,
        Some(Form::Row) if rows::analyse(g, facts, &[i]).is_ok() => return Form::Row,
        Some(Form::Contract) if contracts => return Form::Contract,
        _ => {}
    }
    if facts.chain(g, d).is_ok() {
        return Form::Fold;
    }
    if contracts {
        return Form::Contract;
    }
    match rows::analyse(g, facts, &[i]) {
        Ok(found) if worth_a_block(g, &found) => Form::Row,
        _ => Form::Map,
    }
}

/// Long enough reductions, or values for the whole row: threads work together. Short ones are loops in a thread.
fn worth_a_block(g: &Graph, found: &rows::Rows) -> bool {
    const LONG: f64 = 32.0;
    let mapped = found.members.iter().any(|m| facts::volume(g, &m.inner) > 1.0);
    mapped || rows::row_points(g, found) >= LONG
}

/// How the points of a recurrence depend on each other at one step.
///
/// An axis is *coupled* if some member reads a member at another place of it. Without coupled axes every point runs
/// on its own: a loop in a thread. With few coupled points a block runs them, a barrier between steps. Otherwise
/// each step is a launch.
fn of_recur(g: &Graph, facts: &mut Facts, r: &Recur) -> Form {
    /// Points a block may step together, each thread taking several.
    const BLOCK_POINTS: f64 = 8192.0;
    /// Terms that a block may add by itself in a step.
    const BLOCK_TERMS: f64 = 131_072.0;
    let coupled = coupled_points(g, facts, r);
    let free = independent_axes(g, facts, r);
    if coupled <= 1.0 && is_scan(g, r) {
        Form::Scan
    } else if coupled <= 1.0 {
        Form::Thread
    } else if coupled <= BLOCK_POINTS && step_split::terms_of_a_part(g, r, &free) <= BLOCK_TERMS {
        Form::Block
    } else {
        Form::Step
    }
}

/// May the recurrence reassociate, and is there more to gain than a loop in a thread gives: rows that lie along memory,
/// which threads should read together, or few rows with many steps?
fn is_scan(g: &Graph, r: &Recur) -> bool {
    const LONG: i64 = 64;
    /// Rows from which on a thread each keeps the device busy.
    const MANY: i64 = 1 << 17;
    let Some(found) = scan_step::recognise(g, r) else { return false };
    let t = g.tensor(found.define.target);
    let steps = t.dims[found.along];
    let rows: i64 = t.dims.iter().enumerate().filter(|(d, _)| *d != found.along).map(|(_, n)| n).product();
    let along_memory = t.dims[found.along + 1..].iter().product::<i64>() == 1;
    steps >= LONG && (along_memory || rows < MANY)
}

/// Points of one step that must run together: the product of the coupled axes of the widest member (1: none).
fn coupled_points(g: &Graph, facts: &mut Facts, r: &Recur) -> f64 {
    let free = independent_axes(g, facts, r);
    let mut widest = 1.0f64;
    for (m, d) in r.members.iter().enumerate() {
        let stepped: Vec<usize> = r.steps.iter().map(|s| s.position[m]).collect();
        let coupled: f64 = (0..d.axes.len())
            .filter(|p| !stepped.contains(p) && !free[m].contains(p))
            .map(|p| facts::points(g, d.axes[p]))
            .product();
        widest = widest.max(coupled);
    }
    widest
}

/// For each member the positions of the axes along which every read of every member stays at the same place, so
/// that the recurrence falls into independent parts. Members share such an axis by position among the axes that
/// are no steps.
pub fn independent_axes(g: &Graph, facts: &mut Facts, r: &Recur) -> Vec<Vec<usize>> {
    let plain: Vec<Vec<usize>> = (0..r.members.len())
        .map(|m| {
            let stepped: Vec<usize> = r.steps.iter().map(|s| s.position[m]).collect();
            (0..r.members[m].axes.len()).filter(|p| !stepped.contains(p)).collect()
        })
        .collect();
    let rank = plain.iter().map(Vec::len).min().unwrap_or(0);
    let mut count = 0;
    while count < rank && is_independent(g, facts, r, &plain, count) {
        count += 1;
    }
    plain.into_iter().map(|p| p.into_iter().take(count).collect()).collect()
}

/// Does every read of a member by a member have the reader's own axis at its `k`-th plain place?
fn is_independent(g: &Graph, _: &mut Facts, r: &Recur, plain: &[Vec<usize>], k: usize) -> bool {
    let extent = g.axis_range(r.members[0].axes[plain[0][k]]);
    r.members.iter().enumerate().all(|(m, d)| {
        let axis = d.axes[plain[m][k]];
        g.axis_range(axis) == extent
            && member_reads(g, r, d.value)
                .iter()
                .all(|(read, of)| matches!(g.expr(read.index[plain[*of][k]]), Expr::Axis(a) if *a == axis))
    })
}

/// The reads of members below an expression, each with the member's number.
fn member_reads(g: &Graph, r: &Recur, e: ExprId) -> Vec<(Read, usize)> {
    let mut seen = std::collections::HashSet::new();
    let mut stack = vec![e];
    let mut found = Vec::new();
    while let Some(x) = stack.pop() {
        if !seen.insert(x) {
            continue;
        }
        if let Expr::Read(read) = g.expr(x)
            && let Some(m) = r.members.iter().position(|d| d.target == read.tensor)
        {
            found.push((read.clone(), m));
        }
        stack.extend(g.children(x));
    }
    found
}
