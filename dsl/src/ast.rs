//! The syntax tree: what was written, with spans, nothing resolved.
//!
//! Every name keeps its [`Span`]. Callables and values are told apart by the grammar alone (a callable stands
//! before `(` or `[...](`); what a name means is decided in the compiler (`pass/resolve.rs`).

/// A half-open range of bytes in one source file. `file` indexes [`crate::source::Sources`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    pub file: u32,
    pub start: u32,
    pub end: u32,
}

impl Span {
    /// The smallest span that covers both (of one file).
    pub fn to(self, other: Span) -> Span {
        Span { file: self.file, start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// Does the other lie within this one?
    pub fn covers(self, other: Span) -> bool {
        self.file == other.file && self.start <= other.start && other.end <= self.end
    }
}

/// A name and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    pub text: String,
    pub span: Span,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct File {
    pub items: Vec<Item>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    Import(Import),
    Const(Constant),
    Fn(Function),
    Op(Op),
    Tile(Tile),
    Profile(Profile),
}

/// `import nn` or `import "file.tile"`.
#[derive(Clone, Debug, PartialEq)]
pub struct Import {
    pub what: ImportTarget,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ImportTarget {
    Library(Name),
    File { path: String, span: Span },
}

/// `const name: dtype[dims] = expr` or `= [a, b, c]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    pub name: Name,
    pub dtype: Option<Name>,
    pub dims: Option<Vec<Expr>>,
    pub value: ConstValue,
    pub docs: Vec<String>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ConstValue {
    Expr(Expr),
    Array { items: Vec<Expr>, span: Span },
}

/// `fn f(a, b) from unit = body`.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    pub name: Name,
    pub params: Vec<Name>,
    pub unit: Option<Expr>,
    pub body: Expr,
    pub docs: Vec<String>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    pub name: Name,
    pub sizes: Vec<Size>,
    pub params: Vec<Param>,
    pub results: Vec<ResultDecl>,
    pub wheres: Vec<Expr>,
    pub body: Vec<Stmt>,
    pub docs: Vec<String>,
    pub span: Span,
}

/// An entry of `op name[…]`: a size, a derived size, or a dtype parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Size {
    pub name: Name,
    pub kind: SizeKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SizeKind {
    Plain,
    /// `P = (H + 2*pad - R)/st + 1`
    Derived(Expr),
    /// `T: float` or `T: bf16`
    DType(Name),
    /// `T: {f16, bf16}`
    DTypeSet(Vec<Name>, Span),
}

/// `inout name: dtype[dims] in lo..hi unique = default`.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    pub inout: bool,
    pub name: Name,
    /// `const` before the dtype.
    pub is_const: bool,
    pub dtype: Name,
    /// `None`: a scalar written without brackets.
    pub dims: Option<Vec<Expr>>,
    pub range: Option<Range>,
    pub unique: bool,
    pub default: Option<Expr>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ResultDecl {
    pub name: Name,
    pub dtype: Name,
    pub dims: Option<Vec<Expr>>,
    pub span: Span,
}

/// `target, target = value where cond`.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    pub targets: Vec<Target>,
    pub assign: Assign,
    pub assign_span: Span,
    pub value: Expr,
    pub cond: Option<Expr>,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Assign {
    Set,
    Add,
    Max,
    Min,
}

impl Assign {
    pub fn spelling(self) -> &'static str {
        match self {
            Assign::Set => "=",
            Assign::Add => "+=",
            Assign::Max => "max=",
            Assign::Min => "min=",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub name: Name,
    pub dtype: Option<Name>,
    /// `None`: no brackets written.
    pub slots: Option<Vec<Slot>>,
    pub span: Span,
}

/// One index on the left-hand side.
#[derive(Clone, Debug, PartialEq)]
pub enum Slot {
    /// `i in lo..hi`
    Axis(Name, Range),
    Expr(Expr),
}

/// `lo..hi` (half-open) or `lo..=hi`.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    pub lo: Box<Expr>,
    pub hi: Box<Expr>,
    pub closed: bool,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    pub kind: ExprKind,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinOp {
    Or,
    And,
    Eq,
    Ne,
    Le,
    Ge,
    Lt,
    Gt,
    BitOr,
    BitXor,
    BitAnd,
    Shl,
    Shr,
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Pow,
}

impl BinOp {
    pub const ALL: [BinOp; 19] = [
        BinOp::Or,
        BinOp::And,
        BinOp::Eq,
        BinOp::Ne,
        BinOp::Le,
        BinOp::Ge,
        BinOp::Lt,
        BinOp::Gt,
        BinOp::BitOr,
        BinOp::BitXor,
        BinOp::BitAnd,
        BinOp::Shl,
        BinOp::Shr,
        BinOp::Add,
        BinOp::Sub,
        BinOp::Mul,
        BinOp::Div,
        BinOp::Rem,
        BinOp::Pow,
    ];

    /// As it is written.
    pub fn spelling(self) -> &'static str {
        self.row().0
    }

    /// How tightly it binds; larger is tighter. Prefix operators stand between `*` and `**`.
    pub fn precedence(self) -> u8 {
        self.row().1
    }

    fn row(self) -> (&'static str, u8) {
        match self {
            BinOp::Or => ("||", 1),
            BinOp::And => ("&&", 2),
            BinOp::Eq => ("==", 3),
            BinOp::Ne => ("!=", 3),
            BinOp::Le => ("<=", 3),
            BinOp::Ge => (">=", 3),
            BinOp::Lt => ("<", 3),
            BinOp::Gt => (">", 3),
            BinOp::BitOr => ("|", 4),
            BinOp::BitXor => ("^", 5),
            BinOp::BitAnd => ("&", 6),
            BinOp::Shl => ("<<", 7),
            BinOp::Shr => (">>", 7),
            BinOp::Add => ("+", 8),
            BinOp::Sub => ("-", 8),
            BinOp::Mul => ("*", 9),
            BinOp::Div => ("/", 9),
            BinOp::Rem => ("%", 9),
            BinOp::Pow => ("**", 11),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnOp {
    Neg,
    Not,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// As written (digits, underscores, `0x`): its value may be larger than i64, which is an error found later.
    Int(String),
    Float(String),
    Bool(bool),
    Inf,
    Nan,
    Pi,
    /// A bare name, or `name[indices]`.
    Read {
        name: Name,
        index: Option<Vec<Expr>>,
    },
    /// `f(a, b, name = c)` or `lib.f(…)`.
    Call {
        lib: Option<Name>,
        name: Name,
        args: Vec<Arg>,
    },
    /// `sum[k in 0..K, j where c](body)`, and the maps along an axis, which are written alike.
    Fold {
        name: Name,
        binders: Vec<Binder>,
        cond: Option<Box<Expr>>,
        body: Box<Expr>,
    },
    Unary(UnOp, Box<Expr>),
    /// Chained comparisons `a < b <= c` are kept in [`ExprKind::Chain`].
    Binary(BinOp, Box<Expr>, Box<Expr>),
    /// `a < b <= c`: n operators between n + 1 operands, n ≥ 2, all one way.
    Chain(Vec<Expr>, Vec<BinOp>),
    If(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `read else default`, in parentheses, as an argument, or as a right-hand side.
    Else(Box<Expr>, Box<Expr>),
    /// Parentheses, kept for the formatter.
    Paren(Box<Expr>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Arg {
    pub name: Option<Name>,
    pub value: Expr,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Binder {
    pub name: Name,
    pub range: Option<Range>,
}

/// `tile op.def for sm_90 { settings }`.
#[derive(Clone, Debug, PartialEq)]
pub struct Tile {
    pub op: Name,
    pub def: Option<Name>,
    pub targets: Vec<Name>,
    pub settings: Vec<Setting>,
    pub docs: Vec<String>,
    pub span: Span,
}

/// `stages = 3..=6`, or `block m = 128, n = {64, 128}`.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    pub key: Name,
    pub value: SettingValue,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SettingValue {
    One(Choice),
    Axes(Vec<(Name, Choice)>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    Set(Vec<Choice>, Span),
    /// `a..=b`
    Range(i64, i64, Span),
    Int(i64, Span),
    Word(Name),
    /// `swizzle({4, 8})`
    Apply(Name, Box<Choice>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    pub op: Name,
    pub buckets: Vec<Bucket>,
    pub docs: Vec<String>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    pub name: Name,
    pub values: Choice,
    pub at: Option<Choice>,
}
