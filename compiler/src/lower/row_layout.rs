//! Row kernels: how the threads of a block lie over rows, and how wide they load.

use super::home::Home;
use super::index::Facts;
use super::row_lead::{self, Lead};
use super::row_pass::{Item, Kind, Pass};
use super::{Choice, Lowering, Refusal, row_cluster, row_online};
use crate::ir::graph::{Access, AxisId, Combine, Expr as Node, ExprId, Graph, Read, TensorId, Word};
use crate::ir::plan::PlanKernel;
use crate::pass::inline::below;
use crate::pass::rows::Rows;
use crate::vocab::func::Func;
use crate::vocab::monoid::Monoid;

/// Threads over rows.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Rows there are.
    pub rows: i64,
    /// Rows of a block.
    pub per_block: i64,
    /// Threads of a row in one block: a power of two; neighbouring threads where `columns` is false.
    pub lanes: i64,
    /// Blocks of a row, in a cluster (1: none). Then a block has one row.
    pub cluster: i64,
    /// What several passes read is held in registers.
    pub held: bool,
    /// Neighbouring threads have neighbouring rows.
    pub columns: bool,
    /// Neighbouring elements that a thread takes at a time.
    pub vector: i64,
    /// Where rows begin, if that is not always an aligned place.
    pub lead: Option<Lead>,
    /// Blocks of a multiprocessor that its registers must suffice for (0: as many as the compiler likes).
    pub together: u32,
}

impl Layout {
    /// Elements that one instruction loads of a read, if it is loaded by vectors.
    pub fn chunk(&self, graph: &Graph, home: &Home, item: &Item<'_>, r: &Read) -> Option<i64> {
        match &self.lead {
            Some(lead) => row_lead::chunk_of_read(lead, graph, home, item, r)
                .or_else(|| row_lead::any_place(lead, graph, home, item, r)),
            None => vector_read(graph, home, r, &item.axes, self.vector),
        }
    }
}

/// Registers of a thread that may hold what several passes read.
pub const RESIDENT: i64 = 64;
pub const MOST_THREADS: i64 = 1024;
/// Multiprocessors of a usual device, for judging whether there are few rows.
const SMS: i64 = 132;
const WARP: i64 = 32;
/// Warps of a block that have a row each.
const WARPS: i64 = 4;

pub fn choose(
    cx: &Lowering<'_>,
    k: &PlanKernel,
    rows: &Rows,
    passes: &[Pass<'_>],
) -> Result<Layout, Refusal> {
    let count = rows.count() as i64;
    let longest =
        passes.iter().map(|p| super::row::points(&p.dims).unwrap_or(1024)).max().unwrap_or(1).max(1);
    let columns = is_column(cx, passes);
    let vector = if columns { 1 } else { vector(cx, passes) };
    let lead = if columns { None } else { row_lead::find(cx, passes, vector) };
    let vector = lead.as_ref().map_or(vector, |l| l.v);
    let packs = vector > 1 && packs(cx, passes);
    // A maximum and its sum go over columns once: there is nothing to hold.
    let maps = passes.iter().flat_map(|p| &p.items).any(|i| matches!(i.kind, Kind::Map { .. }));
    let once = !maps && row_online::joins(cx.graph, passes).is_some();
    let mut layout = if columns {
        by_column(count, longest, if once { 1 } else { passes.len() })
    } else {
        let (light, beside) = (is_light(cx, passes), has_matrix(cx, passes));
        by_row(count, longest, vector, packs, passes.len(), light, beside)
    };
    if !columns && is_short_search(passes, longest / vector) && count >= 2 * SMS {
        // A warp a row: what is found need not go through shared memory.
        (layout.lanes, layout.per_block) = (WARP, WARPS);
    }
    layout.lead = lead;
    row_cluster::choose(cx, rows, passes, &mut layout);
    settings(cx, k, rows, passes, &mut layout)?;
    let fits = row_cluster::fits(cx, rows, passes, &layout);
    if let (false, true, Some(Word::Name(n))) = (fits, layout.held, cx.schedule.get(&k.name, "hold", "")) {
        let text = format!("{}: a row does not fit {n}: take more threads, a cluster or `stream`", k.name);
        return Err(Refusal::new(Default::default(), text).setting("hold"));
    }
    layout.held &= fits;
    layout.together = row_cluster::together(cx, rows, passes, &layout);
    let blocks = (count + layout.per_block - 1) / layout.per_block;
    if blocks > super::MAX_GRID_X / layout.cluster {
        return Err(Refusal::new(
            Default::default(),
            format!("{}: more rows than a grid has blocks", k.name),
        ));
    }
    Ok(layout)
}

/// Rows of 16-bit elements, which are held two a register.
pub fn packs(cx: &Lowering<'_>, passes: &[Pass<'_>]) -> bool {
    let items = passes.iter().filter(|p| !p.ordered && p.dims.is_some()).flat_map(|p| &p.items);
    let of_rows =
        |i: &Item<'_>, r: &Read| r.index.iter().any(|&x| i.rows.iter().any(|a| cx.facts.free(x).contains(a)));
    let along = items.flat_map(|i| {
        reads(cx.graph, i).into_iter().filter(move |(_, r)| reads_row(cx, i, r) && of_rows(i, r))
    });
    let bits: Vec<u32> = along.map(|(_, r)| cx.graph.tensor(r.tensor).dtype.bits()).collect();
    !bits.is_empty() && bits.iter().all(|&b| b == 16)
}

/// A place is looked for in rows of so many vectors that a warp loads them in a few turns.
fn is_short_search(passes: &[Pass<'_>], vectors: i64) -> bool {
    let search = |i: &Item<'_>| match &i.kind {
        Kind::Fold { fold, .. } => matches!(fold.combine, Combine::Builtin(Monoid::ArgMax | Monoid::ArgMin)),
        Kind::Map { .. } => false,
    };
    let [pass] = passes else { return false };
    !pass.ordered && pass.items.iter().all(search) && (2 * WARP..=16 * WARP).contains(&vectors)
}

/// Several passes that only add, multiply and compare: more threads then wait for each other less.
fn is_light(cx: &Lowering<'_>, passes: &[Pass<'_>]) -> bool {
    let long = |e: ExprId| match cx.graph.expr(e) {
        Node::Call(f, _) => f.row().cost > 4.0 && !matches!(f, Func::Div | Func::Sqrt),
        _ => false,
    };
    let all = passes.iter().flat_map(|p| &p.items).flat_map(|i| below_item(cx.graph, i));
    passes.len() > 2 && !all.into_iter().any(long)
}

/// What a read looks at, of all rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OfRows {
    /// The same in every row.
    None,
    Some,
    /// Something else in each.
    Each,
}

pub fn rows_of(graph: &Graph, facts: &Facts<'_>, item: &Item<'_>, r: &Read) -> OfRows {
    let looks = |a: AxisId| r.index.iter().any(|&i| facts.free(i).contains(&a));
    let mut long = item.rows.iter().copied().filter(|&a| graph.extent(a) != Some(1));
    match (long.clone().any(looks), long.all(looks)) {
        (false, _) => OfRows::None,
        (true, all) => {
            if all {
                OfRows::Each
            } else {
                OfRows::Some
            }
        }
    }
}

/// One pass over rows of a matrix beside what every row reads again: a product with a vector.
fn has_matrix(cx: &Lowering<'_>, passes: &[Pass<'_>]) -> bool {
    let [pass] = passes else { return false };
    pass.items.iter().any(|item| {
        let of: Vec<OfRows> = reads(cx.graph, item)
            .iter()
            .filter(|(_, r)| reads_row(cx, item, r))
            .map(|(_, r)| rows_of(cx.graph, &cx.facts, item, r))
            .collect();
        of.contains(&OfRows::None) && of.contains(&OfRows::Each)
    })
}

fn by_row(
    rows: i64,
    points: i64,
    vector: i64,
    packs: bool,
    passes: usize,
    light: bool,
    beside: bool,
) -> Layout {
    /// Elements that a thread takes, where there are rows enough.
    const EACH: i64 = 16;
    const BLOCK: i64 = 128;
    /// Threads up to which a block has 128 registers for each.
    const ROOMY: i64 = 512;
    /// Packed elements above which blocks of few threads do not share a multiprocessor.
    const WIDE: i64 = 16384;
    let each = match packs {
        _ if rows < 2 * SMS => vector,
        // One block a multiprocessor either way: more threads hide more.
        true if points > WIDE && points <= 2 * WIDE => 2 * EACH,
        // Short rows without vectors: neighbouring threads have neighbouring elements.
        _ if vector == 1 && (5..=64).contains(&points) => 2,
        // Nothing is held: what is on its way is what counts.
        true if beside => EACH,
        true if points > 8192 => 4 * EACH,
        true if points > 2048 && !light => 2 * EACH,
        _ => EACH.max(vector),
    };
    let lanes = power((points + each - 1) / each).clamp(1, MOST_THREADS);
    let lanes = match points {
        _ if rows < 2 * SMS => lanes,
        // Read once from memory: many blocks with a few loads each.
        _ if passes == 1 && points > 4 * WIDE => lanes.min(256),
        // Fewer threads have more rounds, of which more go four at a time.
        _ if passes == 1 && points > WIDE => lanes.min(128),
        n if n > ROOMY * RESIDENT || packs && n > WIDE => lanes,
        _ => lanes.min(ROOMY),
    };
    let lanes = if rows < 2 * SMS || passes == 1 { lanes } else { busy(lanes, points, vector, packs) };
    let per_block = (BLOCK / lanes).max(1).min(power(rows)).max(32 / lanes.min(32));
    Layout { rows, per_block, lanes, cluster: 1, held: true, columns: false, vector, lead: None, together: 0 }
}

/// As many threads, or fewer that take more rounds, if many are idle in the last round otherwise.
fn busy(lanes: i64, points: i64, vector: i64, packs: bool) -> i64 {
    /// Registers that the rounds may take.
    const HELD: i64 = 32;
    const LEAST: i64 = 64;
    let vectors = (points + vector - 1) / vector;
    let rounds = |lanes: i64| (vectors + lanes - 1) / lanes;
    let turns = |lanes: i64| rounds(lanes) * lanes;
    let holds = |lanes: i64| rounds(lanes) * vector / if packs { 2 } else { 1 } <= HELD;
    let mut best = lanes;
    let mut fewer = lanes / 2;
    while fewer >= LEAST && holds(fewer) {
        // Less by a quarter of the row.
        if 4 * turns(fewer) + vectors <= 4 * turns(best) {
            best = fewer;
        }
        fewer /= 2;
    }
    best
}

fn by_column(rows: i64, points: i64, passes: usize) -> Layout {
    const NEIGHBOURS: i64 = 32;
    const HELD: i64 = 32;
    let wanted = power((SMS * 1024 + rows - 1) / rows.max(1));
    // What several passes read is held, if a thread has few elements of it.
    let holds = power((points + HELD - 1) / HELD);
    let held = passes > 1 && holds <= 32;
    let wanted = if held { wanted.max(holds) } else { wanted };
    let lanes = wanted.clamp(1, 32).min(power((points + 3) / 4));
    let per_block = match lanes {
        32 if held => NEIGHBOURS / 2,
        8.. => NEIGHBOURS,
        _ => 256 / lanes.max(1),
    };
    Layout {
        rows,
        per_block,
        lanes,
        cluster: 1,
        held: true,
        columns: true,
        vector: 1,
        lead: None,
        together: 1,
    }
}

/// The least power of two that is no less.
fn power(n: i64) -> i64 {
    (n.max(1) as u64).next_power_of_two() as i64
}

/// What the schedule says: `threads` or `warps` of a block, `block m` rows of a block, `hold` what several passes read
/// in `registers`, across a `cluster` (`cluster n`: of so many blocks) or nowhere (`stream`).
fn settings(
    cx: &Lowering<'_>,
    k: &PlanKernel,
    rows: &Rows,
    passes: &[Pass<'_>],
    layout: &mut Layout,
) -> Result<(), Refusal> {
    let int = |key: &str, axis: &str| cx.schedule.int(&k.name, key, axis);
    let named = |axes: &[AxisId], key: &str| -> Option<i64> {
        let found: Vec<i64> = axes.iter().filter_map(|&a| int(key, &cx.graph.axis(a).name)).collect();
        (!found.is_empty()).then(|| found.iter().product())
    };
    let last = &rows.members[rows.members.len() - 1];
    let span = super::row::define(cx.graph, last.stmt).map_or_else(Default::default, |d| d.span);
    let refuse = |text: String, setting: &str| Err(Refusal::new(span, text).setting(setting));
    let hold = match cx.schedule.get(&k.name, "hold", "") {
        Some(Word::Name(n)) => Some(n.as_str()),
        _ => None,
    };
    let inner: Vec<AxisId> = rows.members.iter().flat_map(|m| m.inner.iter().copied()).collect();
    let cluster = int("cluster", "").or(named(&inner, "cluster"));
    match (hold, cluster) {
        (Some("stream"), _) => (layout.held, layout.cluster) = (false, 1),
        (Some("registers"), _) => layout.cluster = 1,
        (Some("cluster"), None) if layout.cluster == 1 => layout.cluster = 2,
        (_, Some(n)) => layout.cluster = n,
        _ => {}
    }
    if layout.cluster > 1 {
        let able = row_cluster::able(cx, passes, layout);
        if !able || layout.cluster > 8 || layout.cluster.count_ones() != 1 {
            let text = format!("a cluster of {} blocks cannot share a row here", layout.cluster);
            return refuse(text, "cluster");
        }
        layout.per_block = 1;
        layout.lanes = layout.lanes.max(32);
    }
    let threads = cx.schedule.block_threads(&k.name);
    let blocks = named(&last.rows, "block");
    if let Some(setting) = beside(cx, k, &last.rows, &inner, last.stmt) {
        return refuse(format!("kernel `{}` takes whole rows: a block is told how many", k.name), &setting);
    }
    if threads.is_none() && blocks.is_none() {
        return Ok(());
    }
    let key = threads.map_or("block", |t| t.1);
    let per_block = blocks.unwrap_or(layout.per_block);
    let threads = threads.map_or((layout.lanes * per_block).clamp(32, MOST_THREADS), |t| t.0);
    let lanes = threads / per_block.max(1);
    let fits = per_block > 0 && threads % 32 == 0 && threads <= MOST_THREADS && lanes * per_block == threads;
    let shared = layout.cluster == 1 || per_block == 1;
    if !fits || !shared || lanes == 0 || lanes.count_ones() != 1 || (lanes > 32 && layout.columns) {
        let text = format!("{threads} threads cannot share {per_block} rows evenly: take powers of two");
        let axis =
            last.rows.iter().map(|&a| &cx.graph.axis(a).name).find(|name| int("block", name).is_some());
        let block = axis.map_or("block".to_string(), |a| format!("block {a}"));
        return refuse(text, if blocks.is_some() { &block } else { key });
    }
    layout.per_block = per_block;
    layout.lanes = lanes;
    Ok(())
}

/// The settings of a row kernel with the values worth trying.
pub fn space(graph: &Graph, rows: &Rows) -> Vec<Choice> {
    let names = |list: &[&str]| list.iter().map(|n| Word::Name(n.to_string())).collect();
    let mut all = vec![Choice::ints("threads", "", &[32, 64, 128, 256, 512, 1024])];
    if let Some(&a) = rows.members.last().and_then(|m| m.rows.last()) {
        all.push(Choice::ints("block", &graph.axis(a).name, &[1, 2, 4, 8, 32]));
    }
    if let Some(&a) = rows.members.iter().rev().find_map(|m| m.inner.last()) {
        let hold = names(&["registers", "cluster", "stream"]);
        all.push(Choice { key: "hold".into(), axis: String::new(), values: hold });
        all.push(Choice::ints("cluster", &graph.axis(a).name, &[2, 4, 8]));
    }
    all
}

/// A setting that rows do not follow: `block` along the row (unless it is no shorter), `cluster` across rows.
fn beside(
    cx: &Lowering<'_>,
    k: &PlanKernel,
    rows: &[AxisId],
    inner: &[AxisId],
    stmt: usize,
) -> Option<String> {
    let among = |axes: &[AxisId], name: &str| axes.iter().any(|&a| cx.graph.axis(a).name == name);
    let define = super::row::define(cx.graph, stmt);
    let whole = |axis: &str, v: &Word| {
        let axes = define.iter().flat_map(|d| &d.axes).filter(|&&a| cx.graph.axis(a).name == axis);
        let mut extents = axes.map(|&a| cx.graph.extent(a));
        extents.all(|n| n.is_some_and(|n| matches!(v, Word::Int(v) if *v >= n)))
    };
    let own = cx.schedule.kernels.get(&k.name)?.iter();
    let mut wrong = own.filter(|((key, axis), v)| match key.as_str() {
        "block" => !among(rows, axis) && !whole(axis, v),
        "cluster" => !axis.is_empty() && !among(inner, axis) && **v != Word::Int(1),
        _ => false,
    });
    wrong.next().map(|((key, axis), _)| super::settings::named(key, axis))
}

/// Do the reads, by the elements that they look at, mostly have neighbouring elements in neighbouring rows?
fn is_column(cx: &Lowering<'_>, passes: &[Pass<'_>]) -> bool {
    let mut along = 0f64;
    let mut across = 0f64;
    for item in passes.iter().flat_map(|p| &p.items) {
        for (_, r) in reads(cx.graph, item) {
            let home = cx.home(r.tensor);
            let t = cx.graph.tensor(r.tensor);
            let Some(d) = (0..t.dims.len()).rev().find(|&d| home.strides[d] == 1 && t.dims[d] > 1) else {
                continue;
            };
            let free = cx.facts.free(r.index[d]);
            let own = item.rows.iter().chain(&item.axes);
            let seen = own.filter(|a| r.index.iter().any(|&i| cx.facts.free(i).contains(a)));
            let elements: f64 = seen.map(|&a| cx.graph.extent(a).unwrap_or(1) as f64).product();
            if item.axes.iter().any(|a| free.contains(a)) {
                along += elements;
            } else if item.rows.iter().any(|a| free.contains(a)) && reads_row(cx, item, &r) {
                across += elements;
            }
        }
    }
    across > along
}

/// Does the read depend on where in the row it is made?
fn reads_row(cx: &Lowering<'_>, item: &Item<'_>, r: &Read) -> bool {
    r.index.iter().any(|&i| item.axes.iter().any(|a| cx.facts.free(i).contains(a)))
}

/// The expressions of an item.
pub fn below_item(graph: &Graph, item: &Item<'_>) -> Vec<ExprId> {
    let roots: Vec<ExprId> = match &item.kind {
        Kind::Fold { fold, .. } => fold.cond.into_iter().chain([fold.body]).collect(),
        Kind::Map { define } => vec![define.value],
    };
    let mut all: Vec<ExprId> = roots.into_iter().flat_map(|r| below(graph, r)).collect();
    all.sort();
    all.dedup();
    all
}

/// The reads of an item, by expression.
pub fn reads(graph: &Graph, item: &Item<'_>) -> Vec<(ExprId, Read)> {
    below_item(graph, item)
        .into_iter()
        .filter_map(|e| match graph.expr(e) {
            Node::Read(r) => Some((e, r.clone())),
            _ => None,
        })
        .collect()
}

/// The widest vector that some reads can be made with.
fn vector(cx: &Lowering<'_>, passes: &[Pass<'_>]) -> i64 {
    let mut widest = 1;
    for pass in passes.iter().filter(|p| !p.ordered && p.dims.is_some()) {
        for item in &pass.items {
            for (_, r) in reads(cx.graph, item) {
                let bytes = (cx.graph.tensor(r.tensor).dtype.bits() as i64 / 8).max(1);
                let want = (16 / bytes).min(8);
                let found = [8, 4, 2].into_iter().find(|&v| {
                    v <= want && vector_read(cx.graph, cx.home(r.tensor), &r, &item.axes, v).is_some()
                });
                widest = found.unwrap_or(1).max(widest);
            }
        }
    }
    let even = |v: i64| {
        let boxes = passes.iter().filter(|p| !p.ordered).filter_map(|p| p.dims.as_ref());
        boxes.filter_map(|d| d.last()).all(|n| n % v == 0)
    };
    while widest > 1 && !even(widest) {
        widest /= 2;
    }
    widest
}

/// Elements that one load instruction takes, if `v` neighbours along the last axis can be loaded together.
pub fn vector_read(graph: &Graph, home: &Home, r: &Read, axes: &[AxisId], v: i64) -> Option<i64> {
    let t = graph.tensor(r.tensor);
    if r.access != Access::Proven || t.range.is_some() {
        return None;
    }
    let shapes: Vec<Along> = r.index.iter().map(|&i| along(graph, i, axes)).collect();
    vector_at(graph, home, r.tensor, &shapes, axes, v)
}

/// The same for a definition's own elements.
pub fn vector_write(
    graph: &Graph,
    home: &Home,
    target: TensorId,
    own: &[AxisId],
    axes: &[AxisId],
    v: i64,
) -> Option<i64> {
    let last = axes.last()?;
    let shapes: Vec<Along> = own.iter().map(|a| if a == last { Along::Plain } else { Along::Free }).collect();
    vector_at(graph, home, target, &shapes, axes, v)
}

/// How an index changes along the last axis of a box.
#[derive(Clone, Copy, PartialEq)]
enum Along {
    Free,
    Plain,
    Other,
}

fn along(graph: &Graph, index: ExprId, axes: &[AxisId]) -> Along {
    let Some(&last) = axes.last() else { return Along::Other };
    match graph.expr(index) {
        Node::Axis(a) if *a == last => Along::Plain,
        _ if below(graph, index).iter().all(|&x| !matches!(graph.expr(x), Node::Axis(a) if *a == last)) => {
            Along::Free
        }
        _ => Along::Other,
    }
}

fn vector_at(
    graph: &Graph,
    home: &Home,
    tensor: TensorId,
    shapes: &[Along],
    axes: &[AxisId],
    v: i64,
) -> Option<i64> {
    let t = graph.tensor(tensor);
    let bits = t.dtype.bits() as i64;
    let chunk = v.min(128 / bits);
    let bytes = chunk * bits / 8;
    if bits < 8 || v == 1 || ![4, 8, 16].contains(&bytes) || home.align as i64 % bytes != 0 {
        return None;
    }
    let (lo, hi) = graph.axis_range(*axes.last()?)?;
    let mut plain = 0;
    for (d, s) in shapes.iter().enumerate() {
        match s {
            Along::Plain if home.strides[d] == 1 && (lo - t.lo[d]) % chunk == 0 => plain += 1,
            Along::Free if t.dims[d] <= 1 || home.strides[d] % chunk == 0 => {}
            _ => return None,
        }
    }
    ((hi - lo) % v == 0 && plain == 1).then_some(chunk)
}
