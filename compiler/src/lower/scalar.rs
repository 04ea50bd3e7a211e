//! Emit: graph expressions to simt, inside a kernel under construction.
//!
//! Statements go to the innermost open block. An expression that was emitted in a block that is still open is
//! reused (so common subexpressions are computed once), which is sound because expressions are pure, an axis is
//! bound once at a time, and a block's values are forgotten when it closes.
//!
//! Forms steer it through hooks: `bind` gives the value of an expression that something else computes (an
//! accumulator for its fold), `stage` takes over the reads of a tensor (a tile in shared memory), `forward` gives
//! the value that was just defined at these very axes.

use super::home::Home;
use super::index::{Facts, Interval};
use crate::ir::graph::{AxisId, Expr as Node, ExprId, Graph, Read, ScalarId, TensorId};
use crate::ir::program::{Arg, Buffer, BufferId, FaultKind, FaultSite};
use crate::ir::simt::{CmpOp, Expr, IntOp, Kernel, ParamId, ParamKind, Special, Stmt, TensorMap, Ty, VarId};
use crate::vocab::dtype::{self, DType, Value};
use girih_dsl::ast::Span;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// A value in registers: an expression without side effects that is cheap to repeat (a variable, a literal, or
/// little arithmetic on such), and its type. Graph values of type I64 may be held in I32 where they fit.
#[derive(Clone, Debug)]
pub struct Num {
    pub expr: Expr,
    pub ty: Ty,
}

/// A block of statements under construction, with what was computed in it.
#[derive(Default)]
struct Frame {
    stmts: Vec<Stmt>,
    memo: HashMap<ExprId, Num>,
    axes: Vec<AxisId>,
    /// The arguments of the fold function whose body is being emitted here.
    params: Option<[Num; 2]>,
}

/// Names and places of axes that no statement around them bound.
pub(super) type Broken = Rc<RefCell<Vec<(String, Span)>>>;

/// Takes over reads of a tensor: `None` leaves the read to the emitter.
pub type Stage<'a> = Rc<dyn Fn(&mut Emit<'a>, &Read) -> Option<Expr> + 'a>;

pub struct Emit<'a> {
    pub graph: &'a Graph,
    pub facts: Rc<Facts<'a>>,
    pub kernel: Kernel,
    args: Vec<Arg>,
    homes: Rc<BTreeMap<TensorId, Home>>,
    sites: Rc<RefCell<Vec<FaultSite>>>,
    site_of: HashMap<(TensorId, usize, Span, FaultKindKey), u32>,
    fault: BufferId,
    /// dtype and name of each buffer, for parameters.
    buffers: Vec<(String, DType, i64)>,
    pointers: HashMap<BufferId, ParamId>,
    scalars: HashMap<ScalarId, Num>,
    frames: Vec<Frame>,
    axis_values: HashMap<AxisId, Num>,
    stages: HashMap<TensorId, Stage<'a>>,
    forwards: HashMap<TensorId, (Vec<AxisId>, Num)>,
    line: Option<Span>,
    /// Expressions that are evaluated at each point anyway: computing them early costs nothing.
    pub(super) certain: BTreeSet<ExprId>,
    /// Axes that were read without a value, for the lowering to refuse the program.
    broken: Broken,
}

type FaultKindKey = u8;

impl<'a> Emit<'a> {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn new(
        graph: &'a Graph,
        facts: Rc<Facts<'a>>,
        homes: Rc<BTreeMap<TensorId, Home>>,
        sites: Rc<RefCell<Vec<FaultSite>>>,
        broken: Broken,
        fault: BufferId,
        buffers: &[Buffer],
        name: String,
    ) -> Emit<'a> {
        let kernel =
            Kernel { name, grid: [1, 1, 1], block: [1, 1, 1], cluster: [1, 1, 1], ..Kernel::default() };
        let buffers =
            buffers.iter().map(|b| (b.name.clone(), b.dtype, b.bytes * 8 / b.dtype.bits() as i64)).collect();
        Emit {
            graph,
            facts,
            kernel,
            args: Vec::new(),
            homes,
            sites,
            site_of: HashMap::new(),
            fault,
            buffers,
            pointers: HashMap::new(),
            scalars: HashMap::new(),
            frames: vec![Frame::default()],
            axis_values: HashMap::new(),
            stages: HashMap::new(),
            forwards: HashMap::new(),
            line: None,
            certain: BTreeSet::new(),
            broken,
        }
    }

    /// The finished kernel with one argument for each parameter.
    pub fn finish(mut self) -> (Kernel, Vec<Arg>) {
        debug_assert_eq!(self.frames.len(), 1, "a block was left open in {}", self.kernel.name);
        let frame = self.frames.pop().expect("the kernel's own block is always open");
        self.kernel.body.extend(frame.stmts);
        (self.kernel, self.args)
    }

    // Blocks and variables.

    /// Opens a block; statements go into it until `close`.
    pub fn open(&mut self) {
        self.frames.push(Frame::default());
    }

    /// Closes the innermost block, giving its statements. What was computed in it is forgotten.
    pub fn close(&mut self) -> Vec<Stmt> {
        let frame = self.frames.pop().expect("open and close come in pairs");
        for axis in frame.axes {
            self.axis_values.remove(&axis);
        }
        frame.stmts
    }

    /// The statements that `f` emits, as a block.
    pub fn block(&mut self, f: impl FnOnce(&mut Self)) -> Vec<Stmt> {
        self.open();
        f(self);
        self.close()
    }

    /// The statements that `f` emits stand in the innermost block, but what it computes and binds is forgotten
    /// after it: for the same expressions at other values of their axes.
    pub fn scope<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        self.open();
        let r = f(self);
        let stmts = self.close();
        self.top().stmts.extend(stmts);
        r
    }

    fn top(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("the kernel's own block is always open")
    }

    pub fn push(&mut self, stmt: Stmt) {
        self.top().stmts.push(stmt);
    }

    /// Says from which place in the source what follows comes.
    pub fn line(&mut self, span: Span) {
        if self.line != Some(span) {
            self.line = Some(span);
            self.push(Stmt::Line(span));
        }
    }

    /// A new variable set to `value`.
    pub fn let_var(&mut self, name: &str, ty: Ty, value: Expr) -> VarId {
        let var = self.kernel.var(name, ty);
        self.push(Stmt::Let(var, value));
        var
    }

    /// `value` in a variable, unless it is a variable or a literal as it stands.
    pub fn named(&mut self, name: &str, ty: Ty, value: Expr) -> Expr {
        if is_leaf(&value) { value } else { Expr::Var(self.let_var(name, ty, value)) }
    }

    pub fn if_then(&mut self, cond: Expr, f: impl FnOnce(&mut Self)) {
        let then = self.block(f);
        self.push(Stmt::If { cond, then, otherwise: Vec::new() });
    }

    pub fn if_else(&mut self, cond: Expr, f: impl FnOnce(&mut Self), g: impl FnOnce(&mut Self)) {
        let then = self.block(f);
        let otherwise = self.block(g);
        self.push(Stmt::If { cond, then, otherwise });
    }

    // Parameters.

    /// The pointer parameter for a buffer.
    pub fn pointer(&mut self, buffer: BufferId, written: bool) -> ParamId {
        let id = match self.pointers.get(&buffer) {
            Some(&id) => id,
            None => {
                let (name, dtype, len) = self.buffer_row(buffer);
                let id = self
                    .kernel
                    .param(c_name(&name, self.args.len()), ParamKind::Pointer { dtype, len, written });
                self.args.push(Arg::Buffer(buffer));
                self.pointers.insert(buffer, id);
                id
            }
        };
        if written && let ParamKind::Pointer { written: w, .. } = &mut self.kernel.params[id.0 as usize].kind
        {
            *w = true;
        }
        id
    }

    /// A pointer to a tensor's home that reads its bits as elements of another dtype.
    pub fn bits_of(&mut self, tensor: TensorId, dtype: DType) -> ParamId {
        let home = self.homes[&tensor].clone();
        let len = home.len * home.dtype.bits() as i64 / dtype.bits() as i64;
        let name = self.buffer_row(home.buffer).0;
        let name = c_name(&format!("{name}_bits"), self.args.len());
        let id = self.kernel.param(name, ParamKind::Pointer { dtype, len, written: false });
        self.args.push(Arg::Buffer(home.buffer));
        id
    }

    /// A tensor map over a tensor's home, or over a copy in another buffer.
    pub fn tensor_map(
        &mut self,
        tensor: TensorId,
        copy: Option<BufferId>,
        name: &str,
        map: TensorMap,
    ) -> ParamId {
        let id = self.kernel.param(c_name(name, self.args.len()), ParamKind::TensorMap(map));
        self.args.push(Arg::Buffer(copy.unwrap_or(self.homes[&tensor].buffer)));
        id
    }

    fn buffer_row(&self, buffer: BufferId) -> (String, DType, i64) {
        self.buffers[buffer.0 as usize].clone()
    }

    /// Tells the emitter of a buffer that was made after it.
    pub fn know_buffer(&mut self, buffer: BufferId, name: &str, dtype: DType, len: i64) {
        let at = buffer.0 as usize;
        if self.buffers.len() <= at {
            self.buffers.resize(at + 1, (String::new(), dtype, 0));
        }
        self.buffers[at] = (name.to_string(), dtype, len);
    }

    /// The pointer parameter for a tensor's home.
    pub fn tensor_param(&mut self, tensor: TensorId, written: bool) -> ParamId {
        self.pointer(self.homes[&tensor].buffer, written)
    }

    pub fn home(&self, tensor: TensorId) -> Home {
        self.homes[&tensor].clone()
    }

    /// A scalar parameter of the kernel with its argument (the step's counter, a constant).
    pub fn scalar_param(&mut self, name: &str, ty: Ty, arg: Arg) -> Expr {
        let id = self.kernel.param(c_name(name, self.args.len()), ParamKind::Scalar(ty));
        self.args.push(arg);
        Expr::Param(id)
    }

    pub fn fault_param(&mut self) -> ParamId {
        self.pointer(self.fault, true)
    }

    /// Records a fault: `value` is what was found (I64).
    pub fn fault(&mut self, tensor: TensorId, dim: usize, what: FaultKind, span: Span, value: Num) {
        let t = self.graph.tensor(tensor);
        let (lo, hi) = match what {
            FaultKind::Read | FaultKind::Write => {
                let lo = t.lo.get(dim).copied().unwrap_or(0);
                (lo, lo + t.dims.get(dim).copied().unwrap_or(0))
            }
            FaultKind::Declared | FaultKind::NotUnique => t.range.unwrap_or((0, 0)),
        };
        let site = FaultSite { tensor: t.name.clone(), dim, lo, hi, span, what };
        let sites = self.sites.clone();
        let site = *self.site_of.entry((tensor, dim, span, what as u8)).or_insert_with(|| {
            sites.borrow_mut().push(site);
            sites.borrow().len() as u32 - 1
        });
        self.fault_at(site, value);
    }

    /// Records a fault at a site of `Lowering::fault_site`.
    pub fn fault_at(&mut self, site: u32, value: Num) {
        let fault = self.fault_param();
        self.push(Stmt::Fault { fault, site, value: widen(value).expr });
    }

    // Hooks.

    /// Gives an axis its value in the innermost block: an I32 or I64 variable or literal.
    pub fn bind_axis(&mut self, axis: AxisId, value: Expr, ty: Ty) {
        debug_assert!(!self.axis_values.contains_key(&axis), "axis bound twice");
        self.axis_values.insert(axis, Num { expr: value, ty });
        self.top().axes.push(axis);
    }

    /// The value an axis is bound to.
    pub fn axis_value(&self, axis: AxisId) -> Option<&Num> {
        self.axis_values.get(&axis)
    }

    /// In the innermost block, `id` has this value (of its own type).
    pub fn bind(&mut self, id: ExprId, value: Expr) {
        let ty = Ty::of(self.graph.ty(id));
        self.bind_num(id, Num { expr: value, ty });
    }

    /// As `bind`; a value of type I64 may be given in I32.
    pub fn bind_num(&mut self, id: ExprId, value: Num) {
        self.top().memo.insert(id, value);
    }

    /// Reads of `tensor` are asked of `stage` first.
    pub fn stage(&mut self, tensor: TensorId, stage: Stage<'a>) {
        self.stages.insert(tensor, stage);
    }

    /// Whether reads of a tensor are asked of a stage.
    pub fn is_staged(&self, tensor: TensorId) -> bool {
        self.stages.contains_key(&tensor)
    }

    pub fn unstage(&mut self, tensor: TensorId) {
        self.stages.remove(&tensor);
    }

    /// A read of `tensor` at axes bound to the same values as `axes` is `value` (already rounded to its dtype).
    pub fn forward(&mut self, tensor: TensorId, axes: &[AxisId], value: Num) {
        self.forwards.insert(tensor, (axes.to_vec(), value));
    }

    pub fn unforward(&mut self, tensor: TensorId) {
        self.forwards.remove(&tensor);
    }

    pub(super) fn staged(&mut self, r: &Read) -> Option<Num> {
        if let Some((axes, value)) = self.forwards.get(&r.tensor)
            && self.same_point(r, axes)
        {
            return Some(value.clone());
        }
        let stage = self.stages.get(&r.tensor)?.clone();
        let expr = stage(self, r)?;
        Some(Num { expr, ty: Ty::of(self.graph.tensor(r.tensor).dtype.compute()) })
    }

    fn same_point(&self, r: &Read, axes: &[AxisId]) -> bool {
        r.index.len() == axes.len()
            && r.index.iter().zip(axes).all(|(&i, a)| match self.graph.expr(i) {
                Node::Axis(b) => match (self.axis_values.get(a), self.axis_values.get(b)) {
                    (Some(x), Some(y)) => a == b || same(&x.expr, &y.expr),
                    _ => false,
                },
                _ => false,
            })
    }

    // Values.

    /// The value of an expression, in its own type.
    pub fn value(&mut self, id: ExprId) -> Expr {
        let n = self.num(id);
        match self.graph.ty(id) {
            dtype::Ty::I64 => widen(n).expr,
            _ => n.expr,
        }
    }

    /// The value of an expression; one of type I64 is in I32 where its range fits.
    pub fn num(&mut self, id: ExprId) -> Num {
        if let Some(n) = self.known(id) {
            return n;
        }
        let n = self.compute(id);
        let keep = self.facts.uses(id) > 1 || matches!(self.graph.expr(id), Node::Read(_) | Node::Fold(_));
        let n = if keep { self.name_num(id, n) } else { n };
        if !matches!(self.graph.expr(id), Node::Axis(_) | Node::Param(_)) {
            self.top().memo.insert(id, n.clone());
        }
        n
    }

    /// In a variable, so that it may be used many times.
    fn name_num(&mut self, id: ExprId, n: Num) -> Num {
        let expr = self.named(self.hint(id), n.ty, n.expr);
        Num { expr, ty: n.ty }
    }

    /// Whether the value was computed or bound in an open block.
    pub fn is_known(&self, id: ExprId) -> bool {
        self.known(id).is_some()
    }

    /// The value of a condition that a block around branches on, or of a literal.
    pub(super) fn known_bool(&self, id: ExprId) -> Option<bool> {
        let lit = |e: &Expr| match e {
            Expr::Lit(Value::Bool(b)) => Some(*b),
            _ => None,
        };
        match self.graph.expr(id) {
            Node::Lit(Value::Bool(b)) => Some(*b),
            _ => lit(&self.known(id)?.expr),
        }
    }

    fn known(&self, id: ExprId) -> Option<Num> {
        let inner = self.facts.has_param(id);
        for frame in self.frames.iter().rev() {
            if let Some(n) = frame.memo.get(&id) {
                return Some(n.clone());
            }
            if inner && frame.params.is_some() {
                return None;
            }
        }
        None
    }

    /// A name for a variable that holds this expression.
    fn hint(&self, id: ExprId) -> &'static str {
        match self.graph.expr(id) {
            Node::Read(_) => "x",
            Node::Fold(_) => "acc",
            Node::Select(..) => "sel",
            _ if self.graph.ty(id) == dtype::Ty::Bool => "c",
            _ if self.graph.ty(id).is_int() => "i",
            _ => "v",
        }
    }

    fn compute(&mut self, id: ExprId) -> Num {
        let graph = self.graph;
        let ty = graph.ty(id);
        match graph.expr(id) {
            Node::Lit(Value::I64(v)) => int(*v),
            Node::Lit(v) => Num { expr: Expr::Lit(*v), ty: Ty::of(ty) },
            Node::Axis(a) => self.axis_values.get(a).cloned().unwrap_or_else(|| {
                self.broken.borrow_mut().push((graph.axis(*a).name.clone(), graph.span(id)));
                int(0)
            }),
            Node::Scalar(s) => self.scalar(*s, graph.span(id)),
            Node::Read(r) => self.read(r, graph.span(id)),
            Node::Call(f, args) => self.call(id, *f, args),
            Node::Cast(a) => self.cast(ty, *a),
            Node::Round(d, _, a) => self.round(*d, *a),
            Node::Select(c, a, b) => self.select(id, *c, *a, *b),
            Node::Fold(f) => self.fold(f, ty),
            Node::Param(p) => self.param(*p),
        }
    }

    fn param(&self, p: u8) -> Num {
        let frame = self.frames.iter().rev().find_map(|f| f.params.as_ref());
        frame.map_or_else(|| int(0), |args| args[p as usize & 1].clone())
    }

    /// The body of a fold function at two arguments.
    pub(super) fn apply(&mut self, body: ExprId, args: [Num; 2]) -> Num {
        let outer = self.frames.len();
        self.open();
        self.top().params = Some(args);
        let n = self.num(body);
        debug_assert_eq!(self.frames.len(), outer + 1);
        let n = self.name_num(body, n);
        let stmts = self.close();
        self.top().stmts.extend(stmts);
        n
    }

    fn scalar(&mut self, id: ScalarId, span: Span) -> Num {
        if let Some(n) = self.scalars.get(&id) {
            return n.clone();
        }
        let s = &self.graph.scalars[id.0 as usize];
        let ty = Ty::of(s.dtype.compute());
        let expr = self.scalar_param(&s.name, ty, Arg::Scalar(id));
        let Some((lo, hi)) = s.range else {
            let n = Num { expr, ty };
            self.scalars.insert(id, n.clone());
            return n;
        };
        // Checked anew in each block that meets it: a check in a branch does not hold outside it.
        let site = FaultSite { tensor: s.name.clone(), dim: 0, lo, hi, span, what: FaultKind::Declared };
        self.sites.borrow_mut().push(site);
        let site = self.sites.borrow().len() as u32 - 1;
        self.checked(Num { expr, ty }, Interval::new(lo, hi.saturating_sub(1)), |e, n| e.fault_at(site, n))
    }

    /// `n`, if it is inside; else `fault` is recorded and it is the least value inside.
    pub(super) fn checked(&mut self, n: Num, inside: Interval, fault: impl FnOnce(&mut Self, Num)) -> Num {
        let out = self.kernel.var("checked", n.ty);
        self.push(Stmt::Let(out, n.expr));
        let v = Num { expr: Expr::Var(out), ty: n.ty };
        let below = compare(CmpOp::Lt, v.clone(), int_of(n.ty, inside.lo));
        let above = compare(CmpOp::Gt, v.clone(), int_of(n.ty, inside.hi));
        let cond = Expr::Or(Box::new(below), Box::new(above));
        self.if_then(cond, |e| {
            fault(e, v.clone());
            e.push(Stmt::Set(out, int_of(v.ty, inside.lo).expr));
        });
        v
    }

    /// The thread's number within its grid along x, as I32 or I64 by the number of threads there are.
    pub fn thread_number(&mut self, threads: i64) -> Num {
        let width = self.kernel.block[0] as i64;
        let block = Expr::Special(Special::BlockX);
        let thread = Expr::Special(Special::ThreadX);
        if threads + width <= i32::MAX as i64 {
            let at = add(mul(block, lit32(width as i32)), thread);
            let v = self.let_var("id", Ty::I32, at);
            Num { expr: Expr::Var(v), ty: Ty::I32 }
        } else {
            let at = add(mul(cast(Ty::I64, block), Expr::Lit(Value::I64(width))), cast(Ty::I64, thread));
            let v = self.let_var("id", Ty::I64, at);
            Num { expr: Expr::Var(v), ty: Ty::I64 }
        }
    }
}

// Small constructors.

pub fn lit32(v: i32) -> Expr {
    Expr::Lit(Value::I32(v))
}

pub fn lit64(v: i64) -> Expr {
    Expr::Lit(Value::I64(v))
}

pub fn cast(ty: Ty, e: Expr) -> Expr {
    Expr::Cast(ty, Box::new(e))
}

pub fn int_op(op: IntOp, a: Expr, b: Expr) -> Expr {
    Expr::Int(op, Box::new(a), Box::new(b))
}

pub fn add(a: Expr, b: Expr) -> Expr {
    int_op(IntOp::Add, a, b)
}

pub fn sub(a: Expr, b: Expr) -> Expr {
    int_op(IntOp::Sub, a, b)
}

pub fn mul(a: Expr, b: Expr) -> Expr {
    int_op(IntOp::Mul, a, b)
}

pub fn cmp(op: CmpOp, a: Expr, b: Expr) -> Expr {
    Expr::Compare(op, Box::new(a), Box::new(b))
}

pub fn and(a: Expr, b: Expr) -> Expr {
    Expr::And(Box::new(a), Box::new(b))
}

pub fn not(a: Expr) -> Expr {
    Expr::Not(Box::new(a))
}

/// An integer in the narrowest index type.
pub fn int(v: i64) -> Num {
    match i32::try_from(v) {
        Ok(v) => Num { expr: lit32(v), ty: Ty::I32 },
        Err(_) => Num { expr: lit64(v), ty: Ty::I64 },
    }
}

/// An integer of a given type; saturates if it does not fit.
pub fn int_of(ty: Ty, v: i64) -> Num {
    let expr = match ty {
        Ty::I32 => lit32(v.clamp(i32::MIN as i64, i32::MAX as i64) as i32),
        _ => lit64(v),
    };
    Num { expr, ty }
}

/// In I64, if it is in I32.
pub fn widen(n: Num) -> Num {
    match (n.ty, n.expr) {
        (Ty::I32, Expr::Lit(Value::I32(v))) => Num { expr: lit64(v as i64), ty: Ty::I64 },
        (Ty::I32 | Ty::Bool, e) => Num { expr: cast(Ty::I64, e), ty: Ty::I64 },
        (ty, expr) => Num { expr, ty },
    }
}

/// Both in I32 if they are, else both in I64.
pub fn level(a: Num, b: Num) -> (Expr, Expr, Ty) {
    if a.ty == b.ty {
        return (a.expr, b.expr, a.ty);
    }
    (widen(a).expr, widen(b).expr, Ty::I64)
}

/// `a op b` on integers of either width.
pub fn arith(op: IntOp, a: Num, b: Num) -> Num {
    let (a, b, ty) = level(a, b);
    Num { expr: folded(op, a, b), ty }
}

/// A number times a constant, in 64 bits where what it counts up to needs them.
pub fn times(n: Num, by: i64, end: i64) -> Num {
    let ty = if end + by > i32::MAX as i64 { Ty::I64 } else { n.ty };
    arith(IntOp::Mul, Num { expr: super::read::to(n, ty), ty }, int_of(ty, by))
}

/// `a op b` without what does nothing: literals are computed, `x + 0`, `x · 1`, `x · 0` are simplified.
fn folded(op: IntOp, a: Expr, b: Expr) -> Expr {
    match (op, literal(&a), literal(&b)) {
        (IntOp::Add | IntOp::Sub, _, Some(0)) | (IntOp::Mul | IntOp::Div, _, Some(1)) => a,
        (IntOp::Shl | IntOp::Shr, _, Some(0)) => a,
        (IntOp::Add, Some(0), _) | (IntOp::Mul, Some(1), _) => b,
        (IntOp::Mul, Some(0), _) => a,
        (IntOp::Mul, _, Some(0)) => b,
        (IntOp::Add, Some(x), Some(y)) => like(&a, x.wrapping_add(y)).unwrap_or_else(|| int_op(op, a, b)),
        (IntOp::Sub, Some(x), Some(y)) => like(&a, x.wrapping_sub(y)).unwrap_or_else(|| int_op(op, a, b)),
        (IntOp::Mul, Some(x), Some(y)) => like(&a, x.wrapping_mul(y)).unwrap_or_else(|| int_op(op, a, b)),
        _ => int_op(op, a, b),
    }
}

pub(super) fn literal(e: &Expr) -> Option<i64> {
    match e {
        Expr::Lit(Value::I32(v)) => Some(*v as i64),
        Expr::Lit(Value::I64(v)) => Some(*v),
        _ => None,
    }
}

/// A literal of the type of `e`, if the value fits it.
fn like(e: &Expr, v: i64) -> Option<Expr> {
    match e {
        Expr::Lit(Value::I32(_)) => i32::try_from(v).ok().map(lit32),
        _ => Some(lit64(v)),
    }
}

/// Comparison of integers of either width.
pub fn compare(op: CmpOp, a: Num, b: Num) -> Expr {
    let (a, b, _) = level(a, b);
    cmp(op, a, b)
}

pub fn is_leaf(e: &Expr) -> bool {
    matches!(e, Expr::Var(_) | Expr::Lit(_) | Expr::U32(_) | Expr::Param(_))
}

/// Whether two leaves are the same.
pub fn same(a: &Expr, b: &Expr) -> bool {
    match (a, b) {
        (Expr::Var(x), Expr::Var(y)) => x == y,
        (Expr::Param(x), Expr::Param(y)) => x == y,
        (Expr::Lit(x), Expr::Lit(y)) => x == y,
        _ => false,
    }
}

/// A C identifier: the trailing number keeps it apart from keywords and from other parameters.
fn c_name(name: &str, number: usize) -> String {
    let s: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("p_{s}_{number}")
}
