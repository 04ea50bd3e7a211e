//! What each word of a right text is for, as far as formatting asks.

use std::collections::HashSet;

use crate::ast::{File, Item, Span};
use crate::expected;
use crate::token::{self, Kind, Token};

/// Where a word stands in its item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The first word of an item.
    Item,
    /// The first word of a statement of an op.
    Stmt,
    /// The first word of a setting of a `tile` block.
    Setting,
    /// The brace that opens or closes an op's body or a `tile` block.
    BlockOpen,
    BlockClose,
    /// The `=`, `+=`, `max` or `min` after a statement's targets.
    Assign,
    /// A prefix operator.
    Prefix,
    /// An operator between two operands.
    Binary,
    /// A word of the grammar in front of an expression: `from`, `then`, `in` …
    Keyword,
    Comment,
    Other,
}

#[derive(Clone, Copy, Debug)]
pub struct Mark<'t> {
    pub token: Token,
    pub text: &'t str,
    pub role: Role,
    /// How many brackets are open before it, block braces not counted.
    pub depth: usize,
    /// The innermost bracket around it is `[`: of an index, of dims or of a fold's axes.
    pub in_index: bool,
    /// It belongs to the head of an op (name, sizes, parameters, results, conditions).
    pub head: bool,
    /// Empty lines stand above it.
    pub blank_above: bool,
}

impl Mark<'_> {
    pub fn is_comment(&self) -> bool {
        self.role == Role::Comment
    }

    pub fn opens(&self) -> bool {
        matches!(self.text, "(" | "[" | "{") && !self.is_comment()
    }

    pub fn closes(&self) -> bool {
        matches!(self.text, ")" | "]" | "}") && !self.is_comment()
    }

    /// An operand may end with it.
    pub fn ends_operand(&self) -> bool {
        match self.token.kind {
            Kind::Word => self.role != Role::Keyword,
            Kind::Int | Kind::Float | Kind::Text => true,
            _ => matches!(self.text, ")" | "]" | "}"),
        }
    }
}

#[derive(Default)]
struct Starts {
    items: HashSet<usize>,
    stmts: HashSet<usize>,
    settings: HashSet<usize>,
    assigns: HashSet<usize>,
}

fn starts(file: &File) -> Starts {
    let mut out = Starts::default();
    for item in &file.items {
        out.items.insert(item_span(item).start as usize);
        match item {
            Item::Op(op) => {
                out.stmts.extend(op.body.iter().map(|s| s.span.start as usize));
                out.assigns.extend(op.body.iter().map(|s| s.assign_span.start as usize));
            }
            Item::Tile(tile) => out.settings.extend(tile.settings.iter().map(|s| s.span.start as usize)),
            _ => {}
        }
    }
    out
}

fn item_span(item: &Item) -> Span {
    match item {
        Item::Import(x) => x.span,
        Item::Const(x) => x.span,
        Item::Fn(x) => x.span,
        Item::Op(x) => x.span,
        Item::Tile(x) => x.span,
        Item::Profile(x) => x.span,
    }
}

/// All words of the text, marked.
pub fn marks<'t>(text: &'t str, file: &File) -> Vec<Mark<'t>> {
    let starts = starts(file);
    let mut out: Vec<Mark<'t>> = Vec::new();
    let mut item = "";
    let mut brackets: Vec<&str> = Vec::new();
    let mut in_block = false;
    let mut last: Option<usize> = None;
    let mut end = 0;
    for token in token::tokens(text) {
        let word = token.text(text);
        let blank_above = text[end..token.start].matches('\n').count() > 1;
        end = token.end;
        let depth = brackets.len();
        let in_index = brackets.last().is_some_and(|b| *b == "[");
        if token.is_comment() {
            let role = Role::Comment;
            out.push(Mark { token, text: word, role, depth, in_index, head: false, blank_above });
            continue;
        }
        if starts.items.contains(&token.start) {
            (item, in_block) = (word, false);
        }
        let block = matches!(item, "op" | "tile") && depth == 0;
        let role = match word {
            _ if starts.items.contains(&token.start) => Role::Item,
            _ if starts.stmts.contains(&token.start) => Role::Stmt,
            _ if starts.settings.contains(&token.start) => Role::Setting,
            _ if starts.assigns.contains(&token.start) => Role::Assign,
            "{" if block && !in_block => Role::BlockOpen,
            "}" if block && in_block => Role::BlockClose,
            _ => role(word, token.kind, item, depth, last.map(|i| &out[i])),
        };
        if word.len() == 1 && ")]}".contains(word) && role != Role::BlockClose {
            brackets.pop();
        }
        let head = item == "op" && !in_block && role != Role::BlockClose;
        in_block = (in_block || role == Role::BlockOpen) && role != Role::BlockClose;
        last = Some(out.len());
        let depth = brackets.len();
        out.push(Mark { token, text: word, role, depth, in_index, head, blank_above });
        if word.len() == 1 && "([{".contains(word) && role != Role::BlockOpen {
            brackets.push(word);
        }
    }
    out
}

fn role(word: &str, kind: Kind, item: &str, depth: usize, previous: Option<&Mark>) -> Role {
    let after_operand = previous.is_some_and(Mark::ends_operand);
    match word {
        _ if expected::is_literal(word) => Role::Other,
        _ if expected::is_reserved(word) => Role::Keyword,
        "from" if item == "fn" && depth == 0 && previous.is_some_and(|p| p.text == ")") => Role::Keyword,
        "at" if item == "profile" && depth == 0 && after_operand => Role::Keyword,
        "for"
            if item == "tile"
                && depth == 0
                && after_operand
                && previous.is_some_and(|p| p.text != "tile") =>
        {
            Role::Keyword
        }
        "-" | "!" if !after_operand => Role::Prefix,
        _ if kind == Kind::Punct && expected::is_operator(word) => Role::Binary,
        _ => Role::Other,
    }
}
