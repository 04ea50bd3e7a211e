//! Homes: in which buffer, and with which strides, each tensor of a plan lives.

use super::index::reads;
use super::keep::{self, Ring};
use crate::host::HostTensor;
use crate::ir::graph::{Base, Expr, Graph, Read, Role, Stmt, TensorId};
use crate::ir::plan::{Form, Plan};
use crate::ir::program::{Buffer, BufferId, BufferRole, Program};
use crate::ir::simt::Ty;
use crate::vocab::dtype::DType;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub struct Home {
    pub buffer: BufferId,
    /// What the buffer holds: the tensor's dtype, or I8 while a kernel whose threads would share bytes of a packed
    /// tensor writes it.
    pub dtype: DType,
    /// Elements (nibbles, for packed dtypes) between neighbours along each dim.
    pub strides: Vec<i64>,
    /// Elements of the buffer, gaps and padding included.
    pub len: i64,
    /// Bytes that the first element's address is known to be a multiple of.
    pub align: u32,
    /// Of a recurrence that keeps some of its steps alone.
    pub ring: Option<Ring>,
}

impl Home {
    /// What counts its elements.
    pub fn index_ty(&self) -> Ty {
        index_ty(self.len)
    }
}

/// What counts so many elements.
pub fn index_ty(len: i64) -> Ty {
    if len > i32::MAX as i64 { Ty::I64 } else { Ty::I32 }
}

/// Strides of a contiguous tensor; rows of packed dtypes start at a byte.
pub fn contiguous(dtype: DType, dims: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; dims.len()];
    for d in (0..dims.len().saturating_sub(1)).rev() {
        let inner = if d + 2 == dims.len() { padded(dtype, dims[d + 1]) } else { dims[d + 1] };
        strides[d] = strides[d + 1] * inner;
    }
    strides
}

fn padded(dtype: DType, n: i64) -> i64 {
    if dtype.bits() == 4 { (n + 1) / 2 * 2 } else { n }
}

/// Gives every tensor a home, adding the buffers to the program.
pub fn assign(plan: &Plan, program: &mut Program) -> BTreeMap<TensorId, Home> {
    let graph = &plan.graph;
    let class = classes(plan);
    let mut homes: BTreeMap<TensorId, Home> = BTreeMap::new();
    let mut of_class: BTreeMap<TensorId, Home> = BTreeMap::new();
    // Inputs first: a class with an `inout` lives in that, with its strides.
    for i in 0..graph.tensors.len() {
        let id = TensorId(i as u32);
        if matches!(graph.tensor(id).role, Role::Input | Role::Inout) {
            let role = match graph.tensor(id).role {
                Role::Inout => BufferRole::Inout(id, graph.tensor(id).name.clone()),
                _ => BufferRole::Input(id),
            };
            let home = given(graph, id, role, program);
            of_class.insert(class[&id], home.clone());
            homes.insert(id, home);
        }
    }
    for (s, stmt) in graph.stmts.iter().enumerate() {
        for id in stmt.targets() {
            let home = match of_class.get(&class[&id]) {
                Some(home) => home.clone(),
                None if keep::ring(plan, s, id).is_some() => kept(plan, s, id, program),
                None => {
                    let role = role_of(graph, &class, id, stmt);
                    let like = layout(graph, id, stmt, &homes);
                    made(graph, id, role, like, program)
                }
            };
            of_class.insert(class[&id], home.clone());
            homes.insert(id, home);
        }
    }
    extra_outputs(graph, &homes, program);
    homes
}

fn given(graph: &Graph, id: TensorId, role: BufferRole, program: &mut Program) -> Home {
    let t = graph.tensor(id);
    let plain = {
        let mut s = vec![1; t.dims.len()];
        for d in (0..t.dims.len().saturating_sub(1)).rev() {
            s[d] = s[d + 1] * t.dims[d + 1];
        }
        s
    };
    let strides = if t.strides.len() != t.dims.len() || t.strides == plain {
        contiguous(t.dtype, &t.dims)
    } else {
        t.strides.clone()
    };
    let align = if t.align == 0 { t.dtype.bits().div_ceil(8) } else { t.align };
    home(graph, id, strides, align, role, program)
}

fn made(
    graph: &Graph,
    id: TensorId,
    role: BufferRole,
    strides: Option<Vec<i64>>,
    program: &mut Program,
) -> Home {
    let t = graph.tensor(id);
    let strides = strides.unwrap_or_else(|| contiguous(t.dtype, &t.dims));
    // Results are the caller's memory; their last version says how it is aligned.
    let align = match &role {
        BufferRole::Output(name) => output_align(graph, name),
        _ => 256,
    };
    home(graph, id, strides, align, role, program)
}

/// A ring in a workspace.
fn kept(plan: &Plan, s: usize, id: TensorId, program: &mut Program) -> Home {
    let t = plan.graph.tensor(id);
    let ring = keep::ring(plan, s, id);
    let mut dims = t.dims.clone();
    if let Some(r) = &ring {
        dims.remove(r.dim);
    }
    let mut strides = contiguous(t.dtype, &dims);
    if let Some(r) = &ring {
        strides.insert(r.dim, 0);
        dims.insert(0, r.depth);
    }
    let (len, bytes) = (dims.iter().product(), t.dtype.bytes(&dims));
    let name = t.name.clone();
    program.buffers.push(Buffer { name, dtype: t.dtype, dims, bytes, role: BufferRole::Workspace });
    Home {
        buffer: BufferId(program.buffers.len() as u32 - 1),
        dtype: t.dtype,
        strides,
        len,
        align: 256,
        ring,
    }
}

fn output_align(graph: &Graph, name: &str) -> u32 {
    let output = graph.outputs.iter().find(|o| o.name == name);
    output.map(|o| graph.tensor(o.tensor).align).filter(|&a| a > 0).unwrap_or(256)
}

fn home(
    graph: &Graph,
    id: TensorId,
    strides: Vec<i64>,
    align: u32,
    role: BufferRole,
    program: &mut Program,
) -> Home {
    let t = graph.tensor(id);
    let len = if t.dims.contains(&0) {
        0
    } else {
        1 + t.dims.iter().zip(&strides).map(|(n, s)| (n - 1) * s).sum::<i64>()
    };
    let is_plain = strides == contiguous(t.dtype, &t.dims);
    let bytes = if is_plain { t.dtype.bytes(&t.dims) } else { (len * t.dtype.bits() as i64 + 7) / 8 };
    let len = len.max(bytes * 8 / t.dtype.bits() as i64);
    let name = if t.version == 0 { t.name.clone() } else { format!("{}_{}", t.name, t.version) };
    program.buffers.push(Buffer { name, dtype: t.dtype, dims: t.dims.clone(), bytes, role });
    Home {
        buffer: BufferId(program.buffers.len() as u32 - 1),
        dtype: t.dtype,
        strides,
        len,
        align,
        ring: None,
    }
}

/// What the buffer of a defined tensor's class is for.
fn role_of(graph: &Graph, class: &BTreeMap<TensorId, TensorId>, id: TensorId, stmt: &Stmt) -> BufferRole {
    if let Stmt::Table { values, .. } = stmt {
        let t = graph.tensor(id);
        let list = HostTensor::from_values(t.dtype, &t.dims, values.iter().copied());
        return BufferRole::Constant(list.data);
    }
    let output = graph.outputs.iter().find(|o| o.inout.is_none() && class[&o.tensor] == class[&id]);
    match output {
        Some(o) => BufferRole::Output(o.name.clone()),
        None => BufferRole::Workspace,
    }
}

/// A version that is copied from its base, or will be copied back to an `inout`, has the same layout.
fn layout(graph: &Graph, id: TensorId, stmt: &Stmt, homes: &BTreeMap<TensorId, Home>) -> Option<Vec<i64>> {
    if let Stmt::Update(u) = stmt
        && let Base::Tensor(base) = u.base
    {
        return homes.get(&base).map(|h| h.strides.clone());
    }
    let out = graph.outputs.iter().find(|o| o.tensor == id)?;
    homes.get(&out.inout?).map(|h| h.strides.clone())
}

/// Outputs that have no buffer of their own (their tensor is also another output, or an input).
fn extra_outputs(graph: &Graph, homes: &BTreeMap<TensorId, Home>, program: &mut Program) {
    for o in graph.outputs.iter().filter(|o| o.inout.is_none()) {
        let buffer = &program.buffers[homes[&o.tensor].buffer.0 as usize];
        if buffer.role != BufferRole::Output(o.name.clone()) {
            let t = graph.tensor(o.tensor);
            program.buffers.push(Buffer {
                name: o.name.clone(),
                dtype: t.dtype,
                dims: t.dims.clone(),
                bytes: t.dtype.bytes(&t.dims),
                role: BufferRole::Output(o.name.clone()),
            });
        }
        if let (Some(shape), Some(b)) = (&o.shape, extra_output(program, &o.name)) {
            program.buffers[b.0 as usize].dims = shape.clone();
        }
    }
}

/// The buffer of an output.
pub fn extra_output(program: &Program, name: &str) -> Option<BufferId> {
    let found = program.buffers.iter().position(|b| b.role == BufferRole::Output(name.to_string()))?;
    Some(BufferId(found as u32))
}

/// For each tensor, the first tensor whose memory it takes (itself, if none).
fn classes(plan: &Plan) -> BTreeMap<TensorId, TensorId> {
    let graph = &plan.graph;
    let mut class: BTreeMap<TensorId, TensorId> =
        (0..graph.tensors.len() as u32).map(|i| (TensorId(i), TensorId(i))).collect();
    for (s, stmt) in graph.stmts.iter().enumerate() {
        match stmt {
            Stmt::Update(u) => {
                if let Base::Tensor(base) = u.base
                    && update_in_place(plan, s, base)
                {
                    class.insert(u.target, class[&base]);
                }
            }
            Stmt::Define(d) => {
                if let Some(old) = define_in_place(plan, s, d.target) {
                    class.insert(d.target, class[&old]);
                }
            }
            _ => {}
        }
    }
    class
}

/// Whether statement `s` may write its update over the memory of `base`.
fn update_in_place(plan: &Plan, s: usize, base: TensorId) -> bool {
    let graph = &plan.graph;
    let written = graph.tensor(base).role != Role::Input;
    let table = graph.stmts.iter().any(|t| matches!(t, Stmt::Table { target, .. } if *target == base));
    written && !table && no_output(graph, base) && !read_from(graph, base, s)
}

/// No output holds this version at the end.
fn no_output(graph: &Graph, id: TensorId) -> bool {
    graph.outputs.iter().all(|o| o.tensor != id)
}

/// Whether a statement from `first` on reads the tensor (or takes it as an update's base, beyond `first` itself).
fn read_from(graph: &Graph, id: TensorId, first: usize) -> bool {
    graph.stmts.iter().enumerate().skip(first).any(|(i, stmt)| {
        let base = matches!(stmt, Stmt::Update(u) if i > first && u.base == Base::Tensor(id));
        base || reads(graph, stmt).iter().any(|(_, r)| r.tensor == id)
    })
}

/// The `inout` whose memory a definition may take: its kernel reads the old value only at the point that it
/// writes, and nothing after the kernel reads it at all.
fn define_in_place(plan: &Plan, s: usize, target: TensorId) -> Option<TensorId> {
    let graph = &plan.graph;
    let old = graph.outputs.iter().find(|o| o.tensor == target)?.inout?;
    let kernel = plan.kernels.iter().find(|k| k.stmts.contains(&s))?;
    let same_shape = graph.tensor(old).dims == graph.tensor(target).dims;
    if kernel.form != Form::Map || !same_shape {
        return None;
    }
    let later = graph.stmts.iter().enumerate().any(|(i, stmt)| {
        let elsewhere = i > s && !kernel.stmts.contains(&i);
        let base = matches!(stmt, Stmt::Update(u) if u.base == Base::Tensor(old) && i > s);
        base || elsewhere && reads(graph, stmt).iter().any(|(_, r)| r.tensor == old)
    });
    // Reads of the kernel's own definitions must be at the point too, or it becomes several launches.
    let targets: Vec<TensorId> = kernel.stmts.iter().flat_map(|&i| graph.stmts[i].targets()).collect();
    let at_point = kernel.stmts.iter().all(|&i| {
        let Stmt::Define(d) = &graph.stmts[i] else { return false };
        graph.tensor(d.target).dims == graph.tensor(target).dims
            && reads(graph, &graph.stmts[i])
                .iter()
                .filter(|(_, r)| r.tensor == old || targets.contains(&r.tensor))
                .all(|(_, r)| identity(graph, r, &d.axes))
    });
    (!later && at_point).then_some(old)
}

/// Whether a read's indices are the axes, in order.
pub fn identity(graph: &Graph, r: &Read, axes: &[crate::ir::graph::AxisId]) -> bool {
    r.index.len() == axes.len()
        && r.index.iter().zip(axes).all(|(&i, &a)| matches!(graph.expr(i), Expr::Axis(b) if *b == a))
}
