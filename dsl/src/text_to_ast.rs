//! text → syntax tree. The only file that names pest's `Rule`.
//!
//! A text is looked at first (`scan.rs`: junk, numbers that are none, nesting), then parsed by the grammar. If that fails, its
//! items are parsed one by one, so that each wrong item gets its own error (worded by `diagnose.rs`) and the right ones are kept.
//! Invariants of the tree: every span lies in the text and ends with its last token; `Else` has an indexed read on its left;
//! a `Chain` goes one way; no expression is deeper than [`MAX_DEPTH`], so walks over it may recurse.

use pest::Parser;
use pest::iterators::{Pair, Pairs};
use pest_derive::Parser;

use crate::ast::*;
use crate::diagnose;
use crate::diagnostic::Diagnostic;
use crate::scan;
use crate::token::{self, Token};

#[derive(Parser)]
#[grammar = "grammar.pest"]
struct TileParser;

/// The depth of an expression's tree. A chain `a + b + c + …` is as deep as it is long.
pub const MAX_DEPTH: usize = 256;

/// Longer texts are refused.
pub const MAX_BYTES: usize = 16 << 20;

/// Parses a whole file. With errors, the file holds the items that could be read.
pub fn parse(text: &str, file: u32) -> (File, Vec<Diagnostic>) {
    if text.len() > MAX_BYTES {
        let at = Span { file, start: 0, end: 0 };
        let what = format!("the file has {} bytes, more than {} MiB", text.len(), MAX_BYTES >> 20);
        let refusal = Diagnostic::error("E0001", at, what).help("split it, and `import` the parts");
        return (File::default(), vec![refusal]);
    }
    let tokens = token::tokens(text);
    // Who ends his statements with `;` is told so once, and all else that is wrong.
    if let Some(first) = tokens.iter().find(|t| t.kind == token::Kind::Junk && t.text(text) == ";") {
        let mut blank = text.to_string();
        for t in tokens.iter().filter(|t| t.kind == token::Kind::Junk && t.text(text) == ";") {
            blank.replace_range(t.start..t.end, " ");
        }
        let (parsed, mut diagnostics) = parse(&blank, file);
        diagnostics.extend(scan::scan(text, std::slice::from_ref(first), file));
        diagnostics.sort_by_key(|d| d.span.start);
        return (parsed, diagnostics);
    }
    let chunks = scan::chunks(text, &tokens);
    let found: Vec<Vec<Diagnostic>> =
        chunks.iter().map(|c| scan::scan(text, &tokens[c.first..c.end], file)).collect();
    let mut builder =
        Builder { text, tokens: &tokens, file, offset: 0, docs_done: 0, diagnostics: Vec::new() };
    let mut out = File::default();
    if found.iter().all(Vec::is_empty)
        && let Ok(pairs) = TileParser::parse(Rule::file, text)
    {
        out.items = builder.items(pairs);
        builder.diagnostics.extend(scan::divisions(text, &tokens, file));
        return (out, builder.diagnostics);
    }
    for (chunk, wrong) in chunks.iter().zip(found) {
        if !wrong.is_empty() {
            builder.diagnostics.extend(wrong);
            continue;
        }
        let part = &tokens[chunk.first..chunk.end];
        let (Some(first), Some(last)) = (part.first(), part.last()) else { continue };
        builder.offset = first.start;
        match TileParser::parse(Rule::file, &text[first.start..last.end]) {
            Ok(pairs) => out.items.extend(builder.items(pairs)),
            Err(error) => {
                let at = first.start + furthest(&error);
                builder.diagnostics.extend(diagnose::diagnose(text, part, at, file));
            }
        }
    }
    if builder.diagnostics.is_empty() {
        // The parts are right and the whole is not: cannot be, but must not pass in silence.
        builder.diagnostics.push(diagnose::unexpected(text, &tokens, text.len(), file));
    }
    (out, builder.diagnostics)
}

/// Parses one expression, for tests and tools. Its positions count from a `const a = ` put before it.
pub fn parse_expr(text: &str, file: u32) -> Result<Expr, Vec<Diagnostic>> {
    let prefix = "const a = ";
    let (parsed, diagnostics) = parse(&format!("{prefix}{text}"), file);
    match parsed.items.into_iter().next() {
        Some(Item::Const(Constant { value: ConstValue::Expr(expr), .. })) if diagnostics.is_empty() => {
            Ok(expr)
        }
        _ => Err(diagnostics),
    }
}

fn furthest(error: &pest::error::Error<Rule>) -> usize {
    match error.location {
        pest::error::InputLocation::Pos(at) => at,
        pest::error::InputLocation::Span((at, _)) => at,
    }
}

type P<'t> = Pair<'t, Rule>;

/// What is left of an expression's pairs.
type Parts<'t> = std::iter::Peekable<Pairs<'t, Rule>>;

/// An expression and the depth of its tree.
type Deep = (Expr, usize);

struct Builder<'t> {
    text: &'t str,
    tokens: &'t [Token],
    file: u32,
    /// Where in the text the part begins that pest saw.
    offset: usize,
    /// Documentation is looked for from this token on.
    docs_done: usize,
    diagnostics: Vec<Diagnostic>,
}

/// The parts of a rule, its keywords (which are pairs too) left out.
fn parts(pair: P<'_>) -> std::iter::Peekable<impl Iterator<Item = P<'_>>> {
    pair.into_inner().filter(|p| !is_keyword(p.as_rule())).peekable()
}

fn is_keyword(rule: Rule) -> bool {
    matches!(
        rule,
        Rule::IF
            | Rule::THEN
            | Rule::ELSE
            | Rule::WHERE
            | Rule::IN
            | Rule::CONST
            | Rule::OP
            | Rule::FN
            | Rule::FROM
            | Rule::IMPORT
            | Rule::TILE
            | Rule::FOR
            | Rule::PROFILE
            | Rule::AT
            | Rule::EOI
    )
}

/// The grammar promises a part; that it is there is pest's doing.
const GRAMMAR: &str = "the grammar has this part";

impl<'t> Builder<'t> {
    fn items(&mut self, pairs: Pairs<'t, Rule>) -> Vec<Item> {
        let file = pairs.into_iter().next().expect(GRAMMAR);
        parts(file).map(|item| self.item(item.into_inner().next().expect(GRAMMAR))).collect()
    }

    fn span(&self, pair: &P<'_>) -> Span {
        self.trimmed(pair.as_span())
    }

    /// A span without the white space and comments that pest lets it end with.
    fn trimmed(&self, span: pest::Span<'_>) -> Span {
        let (start, end) = (span.start() + self.offset, span.end() + self.offset);
        let next = self.tokens.partition_point(|t| t.start < end);
        let last = self.tokens[..next].iter().rev().find(|t| !t.is_comment());
        let end = last.map_or(end, |t| t.end.min(end)).max(start);
        Span { file: self.file, start: start as u32, end: end as u32 }
    }

    fn name(&self, pair: P<'_>) -> Name {
        Name { text: pair.as_str().to_string(), span: self.span(&pair) }
    }

    fn names(&self, parts: impl Iterator<Item = P<'t>>) -> Vec<Name> {
        parts.map(|p| self.name(p)).collect()
    }

    /// The `///` lines right above the item that starts at `start`.
    fn docs(&mut self, start: u32) -> Vec<String> {
        let at = self.docs_done + self.tokens[self.docs_done..].partition_point(|t| t.start < start as usize);
        self.docs_done = at;
        let above = self.tokens[..at].iter().rev().take_while(|t| t.is_comment());
        let mut docs: Vec<String> = above
            .filter(|t| t.kind == token::Kind::Doc && t.first)
            .map(|t| {
                let line = &t.text(self.text)[3..];
                line.strip_prefix(' ').unwrap_or(line).trim_end().to_string()
            })
            .collect();
        docs.reverse();
        docs
    }

    fn item(&mut self, pair: P<'t>) -> Item {
        let span = self.span(&pair);
        let docs = self.docs(span.start);
        match pair.as_rule() {
            Rule::import => Item::Import(self.import(pair, span)),
            Rule::constant => Item::Const(self.constant(pair, span, docs)),
            Rule::function => Item::Fn(self.function(pair, span, docs)),
            Rule::op => Item::Op(self.op(pair, span, docs)),
            Rule::tile => Item::Tile(self.tile(pair, span, docs)),
            _ => Item::Profile(self.profile(pair, span, docs)),
        }
    }

    fn import(&mut self, pair: P<'t>, span: Span) -> Import {
        let what = parts(pair).next().expect(GRAMMAR);
        let what = match what.as_rule() {
            Rule::text => ImportTarget::File {
                path: what.as_str().trim_matches('"').to_string(),
                span: self.span(&what),
            },
            _ => ImportTarget::Library(self.name(what)),
        };
        Import { what, span }
    }

    fn constant(&mut self, pair: P<'t>, span: Span, docs: Vec<String>) -> Constant {
        let mut parts = parts(pair);
        let name = self.name(parts.next().expect(GRAMMAR));
        let dtype = parts.next_if(|p| p.as_rule() == Rule::name).map(|p| self.name(p));
        let dims = self.dims(parts.next_if(|p| p.as_rule() == Rule::dims));
        let value = parts.next().expect(GRAMMAR);
        let value = match value.as_rule() {
            Rule::array => {
                ConstValue::Array { span: self.span(&value), items: self.exprs(value.into_inner()) }
            }
            _ => ConstValue::Expr(self.expr(value)),
        };
        Constant { name, dtype, dims, value, docs, span }
    }

    fn function(&mut self, pair: P<'t>, span: Span, docs: Vec<String>) -> Function {
        let mut parts = parts(pair);
        let name = self.name(parts.next().expect(GRAMMAR));
        let mut params = Vec::new();
        while let Some(param) = parts.next_if(|p| p.as_rule() == Rule::name) {
            params.push(self.name(param));
        }
        let mut exprs: Vec<Expr> = self.exprs(parts);
        let body = exprs.pop().expect(GRAMMAR);
        Function { name, params, unit: exprs.pop(), body, docs, span }
    }

    fn op(&mut self, pair: P<'t>, span: Span, docs: Vec<String>) -> Op {
        let mut parts = parts(pair);
        let name = self.name(parts.next().expect(GRAMMAR));
        let mut op = Op {
            name,
            sizes: Vec::new(),
            params: Vec::new(),
            results: Vec::new(),
            wheres: Vec::new(),
            body: Vec::new(),
            docs,
            span,
        };
        for part in parts {
            match part.as_rule() {
                Rule::sizes => op.sizes = part.into_inner().map(|p| self.size(p)).collect(),
                Rule::param => {
                    let param = self.param(part);
                    op.params.push(param);
                }
                Rule::results => op.results = part.into_inner().map(|p| self.result(p)).collect(),
                Rule::wheres => op.wheres = self.exprs(self::parts(part)),
                _ => {
                    let stmt = self.stmt(part);
                    op.body.push(stmt);
                }
            }
        }
        op
    }

    fn size(&mut self, pair: P<'t>) -> Size {
        let mut parts = parts(pair);
        let name = self.name(parts.next().expect(GRAMMAR));
        let kind = match parts.next() {
            None => SizeKind::Plain,
            Some(p) if p.as_rule() == Rule::expr => SizeKind::Derived(self.expr(p)),
            Some(p) if p.as_str().starts_with('{') => {
                SizeKind::DTypeSet(self.names(p.clone().into_inner()), self.span(&p))
            }
            Some(p) => SizeKind::DType(self.name(p.into_inner().next().expect(GRAMMAR))),
        };
        Size { name, kind }
    }

    fn param(&mut self, pair: P<'t>) -> Param {
        let span = self.span(&pair);
        let is_const = pair.clone().into_inner().any(|p| p.as_rule() == Rule::CONST);
        let mut parts = parts(pair);
        let inout = parts.next_if(|p| p.as_rule() == Rule::INOUT).is_some();
        let name = self.name(parts.next().expect(GRAMMAR));
        let dtype = self.name(parts.next().expect(GRAMMAR));
        let dims = self.dims(parts.next_if(|p| p.as_rule() == Rule::dims));
        let range = parts.next_if(|p| p.as_rule() == Rule::range).map(|p| self.range(p));
        let unique = parts.next_if(|p| p.as_rule() == Rule::UNIQUE).is_some();
        let default = parts.next().map(|p| self.expr(p));
        Param { inout, name, is_const, dtype, dims, range, unique, default, span }
    }

    fn result(&mut self, pair: P<'t>) -> ResultDecl {
        let span = self.span(&pair);
        let mut parts = parts(pair);
        let name = self.name(parts.next().expect(GRAMMAR));
        let dtype = self.name(parts.next().expect(GRAMMAR));
        let dims = self.dims(parts.next());
        ResultDecl { name, dtype, dims, span }
    }

    fn dims(&mut self, pair: Option<P<'t>>) -> Option<Vec<Expr>> {
        pair.map(|p| self.exprs(p.into_inner()))
    }

    fn stmt(&mut self, pair: P<'t>) -> Stmt {
        let span = self.span(&pair);
        let mut parts = parts(pair);
        let mut targets = Vec::new();
        while let Some(target) = parts.next_if(|p| p.as_rule() == Rule::target) {
            let target = self.target(target);
            targets.push(target);
        }
        let assign = parts.next().expect(GRAMMAR);
        let assign_span = self.span(&assign);
        let assign = match assign.as_str() {
            "+=" => Assign::Add,
            "max=" => Assign::Max,
            "min=" => Assign::Min,
            _ => Assign::Set,
        };
        let value = self.arg(parts.next().expect(GRAMMAR)).0;
        let cond = parts.next().map(|p| self.expr(p));
        Stmt { targets, assign, assign_span, value, cond, span }
    }

    fn target(&mut self, pair: P<'t>) -> Target {
        let span = self.span(&pair);
        let brackets = self.text[span.start as usize..span.end as usize].ends_with(']');
        let mut parts = parts(pair);
        let name = self.name(parts.next().expect(GRAMMAR));
        let dtype = parts.next_if(|p| p.as_rule() == Rule::name).map(|p| self.name(p));
        let slots: Vec<Slot> = parts.map(|p| self.slot(p)).collect();
        Target { name, dtype, slots: brackets.then_some(slots), span }
    }

    fn slot(&mut self, pair: P<'t>) -> Slot {
        let mut parts = parts(pair);
        let first = parts.next().expect(GRAMMAR);
        match first.as_rule() {
            Rule::name => Slot::Axis(self.name(first), self.range(parts.next().expect(GRAMMAR))),
            _ => Slot::Expr(self.expr(first)),
        }
    }

    fn range(&mut self, pair: P<'t>) -> Range {
        let span = self.span(&pair);
        let mut inner = pair.into_inner();
        let lo = inner.next().expect(GRAMMAR);
        let hi = inner.next().expect(GRAMMAR);
        // The `..=` is no pair: it is the first token after the lower end.
        let after = self.span(&lo).end as usize;
        let next = self.tokens.partition_point(|t| t.start < after);
        let dots = self.tokens[next..].iter().find(|t| !t.is_comment());
        let closed = dots.is_some_and(|t| t.text(self.text) == "..=");
        Range { lo: Box::new(self.expr(lo)), hi: Box::new(self.expr(hi)), closed, span }
    }

    fn exprs(&mut self, pairs: impl Iterator<Item = P<'t>>) -> Vec<Expr> {
        pairs.map(|p| self.expr(p)).collect()
    }

    fn expr(&mut self, pair: P<'t>) -> Expr {
        self.deep(pair).0
    }

    /// An `expr`: an `if`, or operands with operators between them.
    fn deep(&mut self, pair: P<'t>) -> Deep {
        let span = pair.as_span();
        let mut inner = pair.into_inner().peekable();
        if inner.peek().is_some_and(|p| p.as_rule() == Rule::IF) {
            return self.choice_of_two(self.trimmed(span), inner);
        }
        self.chain(&mut inner, 0)
    }

    /// Operands and the operators between them that bind at least as tightly as `least`.
    fn chain(&mut self, parts: &mut Parts<'t>, least: u8) -> Deep {
        let (mut left, mut depth) = self.operand(parts);
        while let Some(op) = parts.peek().map(|p| binary_op(p.as_str())) {
            let level = op.precedence();
            if level < least {
                break;
            }
            if level == BinOp::Eq.precedence() {
                (left, depth) = self.comparison(left, depth, parts);
                continue;
            }
            let at = self.span(&parts.next().expect(GRAMMAR));
            if depth >= MAX_DEPTH {
                self.too_long(at);
                parts.by_ref().for_each(drop);
                break;
            }
            let (right, d) = self.chain(parts, level + 1);
            (left, depth) = self.binary(op, left, right, depth.max(d));
        }
        (left, depth)
    }

    fn binary(&mut self, op: BinOp, left: Expr, right: Expr, below: usize) -> Deep {
        let span = left.span.to(right.span);
        self.node(ExprKind::Binary(op, Box::new(left), Box::new(right)), span, below)
    }

    /// A prefix and its operand, or an atom and its power: prefixes bind looser than `**`.
    fn operand(&mut self, parts: &mut Parts<'t>) -> Deep {
        let first = parts.next().expect(GRAMMAR);
        if first.as_rule() == Rule::prefix {
            let op = if first.as_str() == "-" { UnOp::Neg } else { UnOp::Not };
            let (operand, depth) = self.operand(parts);
            let span = self.span(&first).to(operand.span);
            return self.node(ExprKind::Unary(op, Box::new(operand)), span, depth);
        }
        let (base, depth) = self.atom(first);
        if parts.next_if(|p| p.as_str() == "**").is_none() {
            return (base, depth);
        }
        let (exponent, d) = self.operand(parts);
        self.binary(BinOp::Pow, base, exponent, depth.max(d))
    }

    /// `if a then b else c`.
    fn choice_of_two(&mut self, span: Span, inner: Parts<'t>) -> Deep {
        let mut operands = inner.filter(|p| !is_keyword(p.as_rule()));
        let (cond, d0) = self.deep(operands.next().expect(GRAMMAR));
        let (then, d1) = self.deep(operands.next().expect(GRAMMAR));
        let (other, d2) = self.deep(operands.next().expect(GRAMMAR));
        let kind = ExprKind::If(Box::new(cond), Box::new(then), Box::new(other));
        self.node(kind, span, d0.max(d1).max(d2))
    }

    fn node(&mut self, kind: ExprKind, span: Span, below: usize) -> Deep {
        (Expr { kind, span }, below + 1)
    }

    fn too_long(&mut self, at: Span) {
        let message = format!("this expression is deeper than {MAX_DEPTH} operators");
        self.diagnostics.push(
            Diagnostic::error("E0012", at, message)
                .label("from here on")
                .help("give parts of it names, in statements above, or write a fold such as `sum[k](…)`"),
        );
    }

    /// Comparisons of operands in a row; the first operand is read.
    fn comparison(&mut self, first: Expr, below: usize, parts: &mut Parts<'t>) -> Deep {
        let level = BinOp::Eq.precedence();
        let mut operands = vec![first];
        let mut ops: Vec<(BinOp, Span)> = Vec::new();
        let mut depth = below;
        while let Some(op) = parts.next_if(|p| binary_op(p.as_str()).precedence() == level) {
            ops.push((binary_op(op.as_str()), self.span(&op)));
            let (operand, d) = self.chain(parts, level + 1);
            operands.push(operand);
            depth = depth.max(d);
        }
        self.check_one_way(&ops);
        let span = operands[0].span.to(operands[operands.len() - 1].span);
        let mut ops = ops.into_iter().map(|(op, _)| op);
        let kind = match operands.len() {
            2 => {
                let right = Box::new(operands.remove(1));
                ExprKind::Binary(ops.next().expect(GRAMMAR), Box::new(operands.remove(0)), right)
            }
            _ => ExprKind::Chain(operands, ops.collect()),
        };
        self.node(kind, span, depth)
    }

    /// A chain may hold `==`, and `<` `<=` or `>` `>=`, but not both ways, and no `!=`.
    fn check_one_way(&mut self, ops: &[(BinOp, Span)]) {
        if ops.len() < 2 {
            return;
        }
        let way = |op: BinOp| match op {
            BinOp::Lt | BinOp::Le => Some(true),
            BinOp::Gt | BinOp::Ge => Some(false),
            _ => None,
        };
        let first = ops.iter().find(|(op, _)| way(*op).is_some());
        let wrong = ops.iter().find(|(op, _)| {
            *op == BinOp::Ne || first.is_some_and(|(f, _)| way(*op).is_some() && way(*op) != way(*f))
        });
        let Some((op, at)) = wrong else { return };
        let mut error = Diagnostic::error("E0013", *at, "a chain of comparisons goes one way");
        error = match first {
            Some((_, other)) if *op != BinOp::Ne => {
                error.label("turns round here").also(*other, "starts this way")
            }
            _ => error.label("`!=` cannot be chained"),
        };
        self.diagnostics.push(error.help("write `a < b && b > c`; `a < b <= c` means `a < b && b <= c`"));
    }

    fn atom(&mut self, pair: P<'t>) -> Deep {
        let span = self.span(&pair);
        let inner = pair.into_inner().next().expect(GRAMMAR);
        let written = || inner.as_str().to_string();
        let kind = match inner.as_rule() {
            Rule::float => ExprKind::Float(written()),
            Rule::int => ExprKind::Int(written()),
            Rule::literal => literal(inner.as_str()),
            Rule::fold => return self.fold(inner, span),
            Rule::call => return self.call(inner, span),
            Rule::read => return self.read(inner, span),
            _ => {
                let (inside, depth) = self.arg(inner);
                return self.node(ExprKind::Paren(Box::new(inside)), span, depth);
            }
        };
        self.node(kind, span, 0)
    }

    /// `expr`, or `read else default`.
    fn arg(&mut self, pair: P<'t>) -> Deep {
        let span = pair.as_span();
        let mut operands = parts(pair);
        let (value, depth) = self.deep(operands.next().expect(GRAMMAR));
        let Some(default) = operands.next() else { return (value, depth) };
        let span = self.trimmed(span);
        let (default, d) = self.deep(default);
        if !matches!(&value.kind, ExprKind::Read { index: Some(index), .. } if !index.is_empty()) {
            self.diagnostics.push(misplaced_else(&value, &default));
        }
        self.node(ExprKind::Else(Box::new(value), Box::new(default)), span, depth.max(d))
    }

    fn fold(&mut self, pair: P<'t>, span: Span) -> Deep {
        let mut parts = parts(pair);
        let name = self.name(parts.next().expect(GRAMMAR));
        let mut binders = Vec::new();
        while let Some(binder) = parts.next_if(|p| p.as_rule() == Rule::binder) {
            let binder = self.binder(binder);
            binders.push(binder);
        }
        let cond = parts.next_if(|p| p.as_rule() == Rule::expr).map(|p| self.deep(p));
        let (body, depth) = self.arg(parts.next().expect(GRAMMAR));
        let depth = depth.max(cond.as_ref().map_or(0, |c| c.1));
        let cond = cond.map(|c| Box::new(c.0));
        self.node(ExprKind::Fold { name, binders, cond, body: Box::new(body) }, span, depth)
    }

    fn binder(&mut self, pair: P<'t>) -> Binder {
        let mut parts = parts(pair);
        Binder { name: self.name(parts.next().expect(GRAMMAR)), range: parts.next().map(|p| self.range(p)) }
    }

    fn call(&mut self, pair: P<'t>, span: Span) -> Deep {
        let mut parts = parts(pair);
        let first = self.name(parts.next().expect(GRAMMAR));
        let (lib, name) = match parts.next_if(|p| p.as_rule() == Rule::name) {
            Some(second) => (Some(first), self.name(second)),
            None => (None, first),
        };
        let mut below = 0;
        let mut args = Vec::new();
        for field in parts {
            let mut inner = field.into_inner().peekable();
            let name = inner.next_if(|p| p.as_rule() == Rule::name).map(|p| self.name(p));
            let value = inner.next().expect(GRAMMAR);
            let (value, depth) =
                if value.as_rule() == Rule::arg { self.arg(value) } else { self.deep(value) };
            below = below.max(depth);
            args.push(Arg { name, value });
        }
        self.node(ExprKind::Call { lib, name, args }, span, below)
    }

    fn read(&mut self, pair: P<'t>, span: Span) -> Deep {
        let mut parts = parts(pair);
        let name = self.name(parts.next().expect(GRAMMAR));
        let mut below = 0;
        let index = parts.next().map(|dims| {
            dims.into_inner()
                .map(|p| {
                    let (index, depth) = self.deep(p);
                    below = below.max(depth);
                    index
                })
                .collect()
        });
        self.node(ExprKind::Read { name, index }, span, below)
    }

    fn tile(&mut self, pair: P<'t>, span: Span, docs: Vec<String>) -> Tile {
        // `.def` and `for` are told apart by the keyword's pair.
        let mut before_for = Vec::new();
        let mut targets = Vec::new();
        let mut settings = Vec::new();
        let mut past_for = false;
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::FOR => past_for = true,
                Rule::name if past_for => targets.push(self.name(part)),
                Rule::name => before_for.push(self.name(part)),
                Rule::setting => settings.push(self.setting(part)),
                _ => {}
            }
        }
        let mut names = before_for.into_iter();
        Tile { op: names.next().expect(GRAMMAR), def: names.next(), targets, settings, docs, span }
    }

    fn setting(&mut self, pair: P<'t>) -> Setting {
        let span = self.span(&pair);
        let mut parts = parts(pair);
        let key = self.name(parts.next().expect(GRAMMAR));
        if let Some(choice) = parts.next_if(|p| p.as_rule() == Rule::choice) {
            return Setting { key, value: SettingValue::One(self.choice(choice)), span };
        }
        let mut axes = Vec::new();
        while let Some(axis) = parts.next() {
            let axis = self.name(axis);
            axes.push((axis, self.choice(parts.next().expect(GRAMMAR))));
        }
        Setting { key, value: SettingValue::Axes(axes), span }
    }

    fn choice(&mut self, pair: P<'t>) -> Choice {
        let span = self.span(&pair);
        let mut parts = parts(pair).peekable();
        let first = parts.next().expect(GRAMMAR);
        let second = parts.next();
        match (first.as_rule(), second) {
            (Rule::int, None) => Choice::Int(self.int(&first), span),
            (Rule::int, Some(hi)) => Choice::Range(self.int(&first), self.int(&hi), span),
            (Rule::name, None) => Choice::Word(self.name(first)),
            (Rule::name, Some(inside)) => Choice::Apply(self.name(first), Box::new(self.choice(inside))),
            (_, second) => {
                let all = std::iter::once(first).chain(second).chain(parts);
                Choice::Set(all.map(|p| self.choice(p)).collect(), span)
            }
        }
    }

    fn int(&mut self, pair: &P<'t>) -> i64 {
        let digits = pair.as_str().replace('_', "");
        let value = match digits.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16),
            None => digits.parse(),
        };
        value.unwrap_or_else(|_| {
            let message = format!("`{}` does not fit 64 bits", pair.as_str());
            let error = Diagnostic::error("E0014", self.span(pair), message);
            self.diagnostics.push(error.help("sizes, blocks and stages are below 9223372036854775808"));
            0
        })
    }

    fn profile(&mut self, pair: P<'t>, span: Span, docs: Vec<String>) -> Profile {
        let mut parts = parts(pair);
        let op = self.name(parts.next().expect(GRAMMAR));
        let buckets = parts.map(|p| self.bucket(p)).collect();
        Profile { op, buckets, docs, span }
    }

    fn bucket(&mut self, pair: P<'t>) -> Bucket {
        let mut parts = parts(pair);
        let name = self.name(parts.next().expect(GRAMMAR));
        let values = self.choice(parts.next().expect(GRAMMAR));
        Bucket { name, values, at: parts.next().map(|p| self.choice(p)) }
    }
}

fn literal(word: &str) -> ExprKind {
    match word {
        "inf" => ExprKind::Inf,
        "nan" => ExprKind::Nan,
        "pi" => ExprKind::Pi,
        word => ExprKind::Bool(word == "true"),
    }
}

fn binary_op(written: &str) -> BinOp {
    BinOp::ALL
        .into_iter()
        .find(|op| op.spelling() == written)
        .expect("the grammar's operators are all in the table")
}

fn misplaced_else(value: &Expr, default: &Expr) -> Diagnostic {
    let error =
        Diagnostic::error("E0010", value.span, "an `else` gives the value of one read that is out of bounds")
            .also(default.span, "this is the default");
    match &value.kind {
        ExprKind::If(..) => error
            .label("this is an `if`, which has its `else` already")
            .help("put the read and its default in parentheses: `if c then a else (x[i-1] else 0)`"),
        ExprKind::Read { name, .. } => error
            .label("read without an index")
            .help(format!("write `({}[…] else …)`, or leave the `else` out", name.text)),
        _ => error
            .label("this is not a single read")
            .help("give each read its own: `(x[i-1] else 0) + (x[i+1] else 0)`"),
    }
}

/// Whether the grammar accepts the text as a file.
#[cfg(test)]
pub fn accepts(text: &str) -> bool {
    TileParser::parse(Rule::file, text).is_ok()
}
