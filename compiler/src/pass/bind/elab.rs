//! The state of a binding: the graph that grows, what names mean, what is known where we stand.

use super::build;
use super::poly::Poly;
use super::prove::{Prover, Values};
use super::typ::{Typ, Val};
use crate::ir::graph::*;
use crate::pass::module::Module;
use crate::pass::subst::Subst;
use crate::vocab::dtype::{DType, Ty, Value};
use girih_dsl::ast::{self, Name, Span};
use girih_dsl::diagnostic::{Diagnostic, Severity};
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

/// Nested expressions and calls may go this deep.
const MAX_DEPTH: u32 = 600;
/// Expressions that one binding may look at, inlined ones counted each time.
const MAX_WORK: u32 = 200_000;

/// A tensor as an op sees it.
#[derive(Clone, Debug)]
pub struct View {
    pub id: TensorId,
    /// The f64 form of a local whose type is open.
    pub wide: TensorId,
    pub typ: Typ,
    /// Indices in front of the ones written: the axes over which the op is repeated, or an argument's leading indices.
    /// They speak of the frame's `lead` axes.
    pub lead: Vec<ExprId>,
    /// First index and end of each dim that is written.
    pub sym: Vec<(Poly, Poly)>,
    pub kind: Kind,
    /// It is being defined: its dims say nothing about the ranges of axes.
    pub early: bool,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Input,
    Inout,
    Local,
    Result,
    Table,
}

#[derive(Clone, Debug)]
pub enum Meaning {
    /// A size, a const parameter or a fn's argument; the polynomial of the first two.
    Value(Val, Option<Poly>),
    Tensor(View),
}

/// An axis that is bound here.
#[derive(Clone, Debug)]
pub struct Bound {
    pub name: String,
    pub id: AxisId,
    pub span: Span,
}

/// A result as declared.
#[derive(Clone, Debug)]
pub struct Declared {
    pub dtype: DType,
    pub dims: Vec<i64>,
    pub sym: Vec<(Poly, Poly)>,
    pub span: Span,
}

/// One op or fn body that is being read.
#[derive(Default)]
pub struct Frame {
    pub unit: usize,
    /// In front of the names of locals: `gate_up.` in an inlined op.
    pub prefix: String,
    pub is_fn: bool,
    pub names: HashMap<String, Meaning>,
    /// Every value name of the op, wherever it is defined: no axis may have one.
    pub taken: HashMap<String, Span>,
    pub dtypes: HashMap<String, DType>,
    pub axes: Vec<Bound>,
    /// How many of them stand on the left of the statement at hand; folds bind the others.
    pub left: usize,
    /// The statement at hand defines a local, whose axes may have any range.
    pub local: bool,
    pub results: HashMap<String, Declared>,
    /// Axes over which an inlined op is repeated: the ones that views speak of, and those of the statement at hand.
    pub lead: Vec<AxisId>,
    pub lead_now: Vec<AxisId>,
    /// The call that an inlined op stands for.
    pub call: Option<Span>,
}

/// A read of a member of a recurrence by a member.
#[derive(Clone, Debug)]
pub struct MemberRead {
    pub reader: usize,
    pub target: usize,
    /// For each dim of the target, how its index stands to the reader's axis of the same name.
    pub order: Vec<(String, Order)>,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Less,
    Equal,
    Greater,
    Unknown,
}

/// The recurrence whose members are being read.
#[derive(Default)]
pub struct Recurrence {
    /// Tensor and names of the axes of each member.
    pub members: Vec<(TensorId, Vec<String>)>,
    pub names: Vec<String>,
    /// Ranges of the axes of each member; they count for the members below it.
    pub dims: Vec<(String, Vec<super::fold::AxisRange>)>,
    pub current: usize,
    pub reads: Vec<MemberRead>,
}

pub struct Elab<'m> {
    pub module: &'m Module,
    pub g: Graph,
    pub diags: Vec<Diagnostic>,
    seen: HashSet<(&'static str, Span)>,
    pub frames: Vec<Frame>,
    pub prover: Prover,
    /// By axis.
    pub axis_sym: Vec<(Poly, Poly)>,
    /// Axes of the statement at hand and of the folds around, outermost first, in all frames.
    pub scope: Vec<AxisId>,
    /// Dims that a `where` says are equal.
    pub equal: Vec<(Poly, Poly)>,
    pub recurrence: Option<Recurrence>,
    pub fold_fns: HashMap<(usize, String, Ty), FoldFnId>,
    pub tables: HashMap<(usize, String), View>,
    /// Above 0: in a branch that is never taken; reads have no obligation.
    pub dead: u32,
    /// Bounds that cannot be proven are let pass (sample sizes are not the user's).
    pub lenient: bool,
    /// Points that a trial may take.
    pub trial: u64,
    depth: u32,
    work: u32,
    fresh: u32,
    /// Names of ops and fns that are being inlined.
    pub calls: Vec<String>,
    /// The ops that were called, each once.
    pub called: Vec<&'m girih_dsl::ast::Op>,
    /// The ops whose bodies are being read, innermost last, and the statement at hand.
    pub ops: Vec<&'m girih_dsl::ast::Op>,
    pub at_hand: Option<&'m girih_dsl::ast::Stmt>,
    /// Where the fns that are being inlined are called.
    pub sites: Vec<Span>,
    /// Sizes that stand for the user's, to be named where an error depends on them.
    pub sample: Option<String>,
}

impl<'m> Elab<'m> {
    pub fn new(module: &'m Module) -> Elab<'m> {
        Elab {
            module,
            g: Graph::default(),
            diags: Vec::new(),
            seen: HashSet::default(),
            frames: Vec::new(),
            prover: Prover::default(),
            axis_sym: Vec::new(),
            scope: Vec::new(),
            equal: Vec::new(),
            recurrence: None,
            fold_fns: HashMap::default(),
            tables: HashMap::default(),
            dead: 0,
            lenient: false,
            trial: 1 << 20,
            depth: 0,
            work: 0,
            fresh: 0,
            calls: Vec::new(),
            called: Vec::new(),
            ops: Vec::new(),
            at_hand: None,
            sites: Vec::new(),
            sample: None,
        }
    }

    pub fn frame(&self) -> &Frame {
        self.frames.last().expect("a frame is pushed before anything is read")
    }

    pub fn frame_mut(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("a frame is pushed before anything is read")
    }

    /// Reports once at a place.
    pub fn report(&mut self, d: Diagnostic) {
        let enough = d.code == "E0130" && self.diags.iter().any(|x| x.code == "E0130");
        if !enough && self.seen.insert((d.code, d.span)) {
            self.diags.push(d);
        }
    }

    /// ` (for N = 5)` where the sizes are samples.
    pub fn for_sample(&self) -> String {
        self.sample.as_ref().map_or(String::new(), |s| format!(" (for {s})"))
    }

    pub fn failed(&self) -> bool {
        self.diags.iter().any(|d| d.severity == Severity::Error)
    }

    pub fn poison(&mut self) -> Val {
        let id = self.g.int(0);
        Val::new(Typ::Error, id)
    }

    /// Reports, and gives a value that meets everything in silence.
    pub fn wrong(&mut self, d: Diagnostic) -> Val {
        self.report(d);
        self.poison()
    }

    /// Runs one level deeper; silly depth and silly amounts of work are refused.
    pub fn deeper<T>(&mut self, span: Span, f: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.work += 1;
        if self.depth >= MAX_DEPTH || self.work >= MAX_WORK {
            // At the call in the op itself: what it expands to is not what was written there.
            self.report(too_much(self.sites.first().copied().unwrap_or(span)));
            return None;
        }
        self.depth += 1;
        let r = f(self);
        self.depth -= 1;
        r
    }

    pub fn fresh(&mut self) -> u32 {
        self.fresh += 1;
        self.fresh
    }

    pub fn int(&mut self, v: i64) -> Val {
        let id = self.g.int(v);
        Val::new(Typ::Index, id)
    }

    pub fn float(&mut self, v: f64) -> Val {
        let id = self.g.lit(Value::F32(v as f32));
        let wide = self.g.lit(Value::F64(v));
        Val::open(id, wide)
    }

    pub fn bool(&mut self, v: bool) -> Val {
        let id = self.g.lit(Value::Bool(v));
        Val::new(Typ::Bool, id)
    }

    /// A new axis with its polynomials.
    pub fn axis(&mut self, name: &str, lo: ExprId, hi: ExprId, sym: (Poly, Poly), span: Span) -> AxisId {
        let id = self.g.new_axis(name, lo, hi, span);
        self.axis_sym.resize(id.0 as usize + 1, (Poly::default(), Poly::default()));
        self.axis_sym[id.0 as usize] = sym;
        id
    }

    /// Another axis with the same range.
    pub fn axis_like(&mut self, a: AxisId) -> AxisId {
        let (name, lo, hi, span) = {
            let x = self.g.axis(a);
            (x.name.clone(), x.lo, x.hi, x.span)
        };
        let sym = self.sym_of_axis(a);
        self.axis(&name, lo, hi, sym, span)
    }

    pub fn sym_of_axis(&self, a: AxisId) -> (Poly, Poly) {
        self.axis_sym.get(a.0 as usize).cloned().unwrap_or_default()
    }

    /// Binds an axis in the frame at hand and in the scope.
    pub fn bind_axis(&mut self, name: &str, id: AxisId, span: Span) {
        self.frame_mut().axes.push(Bound { name: name.into(), id, span });
        self.scope.push(id);
        self.prover.enter_axis(&mut self.g, id);
    }

    pub fn bound(&self, name: &str) -> Option<&Bound> {
        self.frame().axes.iter().rev().find(|b| b.name == name)
    }

    /// A new tensor, with what is known of its values.
    pub fn tensor(&mut self, t: Tensor, values: Values) -> TensorId {
        let id = TensorId(self.g.tensors.len() as u32);
        self.g.tensors.push(t);
        self.prover.tensors.push(values);
        id
    }

    /// Replaces the axes over which the op is repeated by those of the statement at hand.
    pub fn to_now(&mut self) -> Subst {
        let (from, to) = (self.frame().lead.clone(), self.frame().lead_now.clone());
        let mut map = Vec::new();
        for (f, t) in from.into_iter().zip(to) {
            map.push((f, self.g.axis_expr(t)));
        }
        Subst::of_axes(&mut self.g, map)
    }

    /// A view's leading indices for the statement at hand.
    pub fn lead_of(&mut self, view: &View) -> Vec<ExprId> {
        let mut s = self.to_now();
        view.lead.iter().map(|&e| s.apply(&mut self.g, e)).collect()
    }

    /// The dtype that a name means here, a dtype parameter or a dtype.
    pub fn dtype(&mut self, name: &Name) -> Option<DType> {
        let own = self.frames.iter().rev().find(|f| !f.is_fn).and_then(|f| f.dtypes.get(&name.text).copied());
        let found = own.or_else(|| DType::parse(&name.text));
        if found.is_none() {
            self.report(unknown_dtype(name));
        }
        found
    }

    /// Are two polynomials equal, by themselves or by a `where`?
    pub fn same(&self, a: &Poly, b: &Poly) -> bool {
        if a == b {
            return true;
        }
        let d = a.sub(b);
        self.equal.iter().any(|(x, y)| {
            let e = x.sub(y);
            if d == e || d == e.neg() {
                return true;
            }
            let by = |v: &Poly, to: &Poly| {
                v.as_var().is_some_and(|v| {
                    let f = |n: &str| (n == v).then(|| to.clone());
                    a.map_vars(&f) == b.map_vars(&f)
                })
            };
            by(x, y) || by(y, x)
        })
    }

    /// The polynomial of an integer expression; what it cannot say becomes opaque.
    pub fn poly(&mut self, e: &ast::Expr) -> Poly {
        use ast::{BinOp, ExprKind, UnOp};
        match &e.kind {
            ExprKind::Int(_) => build::literal_int_text(e).map_or_else(Poly::default, Poly::constant),
            ExprKind::Paren(a) => self.poly(a),
            ExprKind::Unary(UnOp::Neg, a) => self.poly(a).neg(),
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.poly(a), self.poly(b));
                match op {
                    BinOp::Add => a.add(&b),
                    BinOp::Sub => a.sub(&b),
                    BinOp::Mul => a.mul(&b),
                    BinOp::Div => a.div(&b),
                    BinOp::Rem => Poly::fun("%", vec![a, b]),
                    BinOp::Shl => match (a.as_const(), b.as_const()) {
                        (Some(x), Some(n)) => Poly::constant(build::shift_left(x, n, 64)),
                        _ => Poly::fun("<<", vec![a, b]),
                    },
                    op => Poly::fun(&format!("{op:?}"), vec![a, b]),
                }
            }
            ExprKind::Read { name, index: None } => self.poly_of_name(name),
            ExprKind::Read { name, index: Some(index) } => {
                let args = index.iter().map(|i| self.poly(i)).collect();
                Poly::fun(&name.text, args)
            }
            ExprKind::Call { name, args, .. } => {
                let args = args.iter().map(|a| self.poly(&a.value)).collect();
                Poly::fun(&name.text, args)
            }
            ExprKind::If(c, a, b) => {
                let args = [c, a, b].map(|x| self.poly(x)).to_vec();
                Poly::fun("if", args)
            }
            _ => Poly::var(format!("?{}", self.fresh())),
        }
    }

    fn poly_of_name(&mut self, name: &Name) -> Poly {
        if let Some(b) = self.bound(&name.text) {
            return Poly::var(format!("{}#{}", b.name, b.id.0));
        }
        match self.frame().names.get(&name.text) {
            Some(Meaning::Value(_, Some(p))) => return p.clone(),
            Some(_) => return Poly::var(name.text.clone()),
            None => {}
        }
        match self.constant_value(name) {
            Some(v) => match build::literal_int(&self.g, v.id) {
                Some(i) => Poly::constant(i),
                None => Poly::var(name.text.clone()),
            },
            None => Poly::var(name.text.clone()),
        }
    }
}

pub fn too_much(span: Span) -> Diagnostic {
    Diagnostic::error("E0130", span, "this is nested too deeply, or expands to too much")
        .help("give parts of it names of their own")
}

pub fn unknown_dtype(name: &Name) -> Diagnostic {
    let known: Vec<&str> = crate::vocab::dtype::DTYPES.iter().map(|r| r.name).collect();
    Diagnostic::error("E0309", name.span, format!("unknown dtype `{}`", name.text))
        .help(girih_dsl::foreign::dtype_help(&name.text, &known.join(", ")))
}
