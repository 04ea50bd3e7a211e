//! What is wrong with a text that the parser refused, in the user's terms.
//!
//! The parser says only whether a text is right. This reads the words of a refused part once more, by the same grammar, and
//! stops where a rule is broken, knowing what it was in the middle of (`expected.rs` has the words). After a wrong statement it
//! goes on with the next one, so that one run shows several errors. That both agree on what is right is tested in
//! `agreement.rs`; should they ever not, the parser's word counts and its place is shown.

use crate::ast::Span;
use crate::diagnostic::Diagnostic;
use crate::expected::{self, Wanted};
use crate::scan;
use crate::token::{Kind, Token};

/// More errors in one item are not shown: the later ones mostly follow from the first.
const MAX_ERRORS: usize = 8;

/// The errors of one part of the text that the parser refused; it got as far as the byte `at`.
pub fn diagnose(text: &str, tokens: &[Token], at: usize, file: u32) -> Vec<Diagnostic> {
    let errors = check(text, tokens, file);
    if errors.is_empty() { vec![unexpected(text, tokens, at, file)] } else { errors }
}

/// The errors of one part of the text, found without the parser.
pub fn check(text: &str, tokens: &[Token], file: u32) -> Vec<Diagnostic> {
    let tokens = tokens.iter().filter(|t| !t.is_comment()).copied().collect();
    let mut reader = Reader { text, tokens, at: 0, file, errors: Vec::new() };
    reader.items();
    reader.errors
}

/// The parser stopped at the byte `at`, for a reason unknown.
pub fn unexpected(text: &str, tokens: &[Token], at: usize, file: u32) -> Diagnostic {
    let found = tokens.iter().find(|t| t.start >= at && !t.is_comment());
    let (span, what) = match found {
        Some(token) => (scan::span(token, file), format!("unexpected `{}`", token.text(text))),
        None => (end_of(tokens, file), "the text ends too early".to_string()),
    };
    Diagnostic::error("E0005", span, what).help("compare with the grammar in the language reference")
}

/// Just after the last word.
fn end_of(tokens: &[Token], file: u32) -> Span {
    let end = tokens.iter().rev().find(|t| !t.is_comment()).map_or(0, |t| t.end) as u32;
    Span { file, start: end, end }
}

/// A broken rule. Boxed, since it is passed up through every level.
type Read = Result<(), Box<Diagnostic>>;

pub struct Reader<'t> {
    pub text: &'t str,
    /// Without comments.
    pub tokens: Vec<Token>,
    pub at: usize,
    pub file: u32,
    errors: Vec<Diagnostic>,
}

impl Reader<'_> {
    /// The word `ahead` places further on; empty past the end.
    pub fn look(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", |t| t.text(self.text))
    }

    pub fn token(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead)
    }

    pub fn previous(&self) -> Option<&Token> {
        self.at.checked_sub(1).map(|i| &self.tokens[i])
    }

    /// The place of the next word, or the end of the text.
    pub fn here(&self) -> Span {
        self.token(0).map_or_else(|| end_of(&self.tokens, self.file), |t| scan::span(t, self.file))
    }

    pub fn is_name(&self, ahead: usize) -> bool {
        self.token(ahead).is_some_and(|t| t.kind == Kind::Word) && !expected::is_reserved(self.look(ahead))
    }

    fn eat(&mut self, word: &str) -> bool {
        let found = self.look(0) == word && self.at < self.tokens.len();
        self.at += usize::from(found);
        found
    }

    fn wrong(&self, wanted: Wanted) -> Read {
        Err(Box::new(expected::expected(self, wanted)))
    }

    fn expect(&mut self, word: &'static str, after: &'static str) -> Read {
        if self.eat(word) { Ok(()) } else { self.wrong(Wanted::Word(word, after)) }
    }

    /// The partner of the bracket at token `open`.
    fn close(&mut self, word: &'static str, open: usize) -> Read {
        if self.eat(word) { Ok(()) } else { self.wrong(Wanted::Close(word, open)) }
    }

    fn name(&mut self, what: &'static str) -> Read {
        if self.is_name(0) {
            self.at += 1;
            return Ok(());
        }
        self.wrong(Wanted::Name(what))
    }

    /// `one ("," one)*`, with a last comma if `trailing`, up to `end`.
    fn list(&mut self, end: &str, trailing: bool, mut one: impl FnMut(&mut Self) -> Read) -> Read {
        loop {
            one(self)?;
            if !self.eat(",") || trailing && self.look(0) == end {
                return Ok(());
            }
        }
    }

    /// Brackets around a list. `least` says what one entry at least is needed for.
    fn bracketed(
        &mut self,
        [open, end]: [&'static str; 2],
        trailing: bool,
        least: Option<&'static str>,
        one: impl FnMut(&mut Self) -> Read,
    ) -> Read {
        let opened = self.at;
        self.expect(open, "")?;
        if self.look(0) == end {
            if let Some(what) = least {
                return self.wrong(Wanted::Least(what));
            }
        } else {
            self.list(end, trailing, one)?;
        }
        self.close(end, opened)
    }

    fn items(&mut self) {
        while self.at < self.tokens.len() {
            if let Err(error) = self.item() {
                self.errors.push(*error);
                return;
            }
            if self.errors.len() >= MAX_ERRORS {
                return;
            }
        }
    }

    fn item(&mut self) -> Read {
        match self.look(0) {
            "import" => self.import(),
            "const" => self.constant(),
            "fn" => self.function(),
            "op" => self.op(),
            "tile" => self.tile(),
            "profile" => self.profile(),
            _ => self.wrong(Wanted::Item),
        }
    }

    fn import(&mut self) -> Read {
        self.at += 1;
        if self.token(0).is_some_and(|t| t.kind == Kind::Text) {
            self.at += 1;
            return Ok(());
        }
        self.name("the name of a library, or a file in quotes")
    }

    fn constant(&mut self) -> Read {
        self.at += 1;
        self.name("the name of the constant")?;
        if self.eat(":") {
            self.dtype()?;
            self.dims_if_any()?;
        }
        self.expect("=", "the name of the constant")?;
        if self.look(0) == "[" {
            return self.bracketed(["[", "]"], true, Some("a list"), Self::expr);
        }
        self.expr()
    }

    fn function(&mut self) -> Read {
        self.at += 1;
        self.name("the name of the function")?;
        if self.look(0) != "(" {
            return self.wrong(Wanted::Word("(", "the name of the function"));
        }
        self.bracketed(["(", ")"], false, Some("a function"), |r| r.name("a parameter"))?;
        if self.eat("from") {
            self.expr()?;
        }
        self.expect("=", "the parameters")?;
        self.expr()
    }

    fn op(&mut self) -> Read {
        self.at += 1;
        self.name("the name of the op")?;
        if let Err(error) = self.op_head() {
            self.errors.push(*error);
            if !self.skip_to_body() {
                self.at = self.tokens.len();
                return Ok(());
            }
        }
        self.body()
    }

    fn op_head(&mut self) -> Read {
        if self.look(0) == "[" {
            self.bracketed(["[", "]"], true, None, Self::size)?;
        }
        if self.look(0) != "(" {
            return self.wrong(Wanted::Word("(", "the op's name and sizes"));
        }
        self.bracketed(["(", ")"], true, None, Self::param)?;
        if self.eat("->") {
            if self.look(0) != "(" {
                return self.wrong(Wanted::Word("(", "`->`"));
            }
            self.bracketed(["(", ")"], true, Some("`->`"), Self::result)?;
        }
        if self.eat("where") {
            self.list("", false, Self::expr)?;
        }
        if self.look(0) == "{" { Ok(()) } else { self.wrong(Wanted::Body) }
    }

    /// After an error before the body. (`T: {f16, bf16}` is no body.)
    fn skip_to_body(&mut self) -> bool {
        while self.at < self.tokens.len() {
            if self.look(0) == "{" && self.previous().is_some_and(|t| t.text(self.text) != ":") {
                return true;
            }
            self.at += 1;
        }
        false
    }

    fn body(&mut self) -> Read {
        let open = self.at;
        self.expect("{", "the op's head")?;
        // Braces of blocks that other languages have, `for … { … }`, which the errors before have told of.
        let mut inner = 0usize;
        while self.look(0) != "}" || inner > 0 {
            if self.at >= self.tokens.len() {
                return self.wrong(Wanted::Close("}", open));
            }
            if self.look(0) == "}" {
                (self.at, inner) = (self.at + 1, inner - 1);
                continue;
            }
            let start = self.at;
            if let Err(error) = self.stmt() {
                self.errors.push(*error);
                if self.errors.len() >= MAX_ERRORS || !self.skip_to_stmt() {
                    self.at = self.tokens.len();
                    return Ok(());
                }
                let count =
                    |brace| self.tokens[start..self.at].iter().filter(|t| t.text(self.text) == brace).count();
                inner = (inner + count("{")).saturating_sub(count("}"));
            }
        }
        self.at += 1;
        Ok(())
    }

    /// After a wrong statement: to the next line that starts like one, or to the brace that ends the body.
    fn skip_to_stmt(&mut self) -> bool {
        while let Some(token) = self.token(0) {
            if token.first && (self.look(0) == "}" || self.looks_like_stmt()) {
                return true;
            }
            if self.look(0) == "}" && self.tokens[self.at + 1..].iter().all(|t| t.text(self.text) != "}") {
                return true;
            }
            self.at += 1;
        }
        false
    }

    /// How far ahead the target that starts here ends: `name`, perhaps with a dtype and an index.
    fn target_len(&self) -> Option<usize> {
        if !self.is_name(0) {
            return None;
        }
        let mut ahead = 1;
        if self.look(ahead) == ":" && self.is_name(ahead + 1) {
            ahead += 2;
        }
        if self.look(ahead) == "[" {
            ahead = self.partner(ahead)? + 1;
        }
        Some(ahead)
    }

    fn touches_next(&self, ahead: usize) -> bool {
        self.token(ahead).zip(self.token(ahead + 1)).is_some_and(|(a, b)| a.end == b.start)
    }

    /// A target and `=` or its like follow.
    fn starts_stmt(&self) -> bool {
        self.target_len().is_some_and(|n| match self.look(n) {
            "=" | "+=" => true,
            "max" | "min" => self.look(n + 1) == "=" && self.touches_next(n),
            _ => false,
        })
    }

    /// A statement follows, or something that was meant to be one.
    fn looks_like_stmt(&self) -> bool {
        let foreign = |n: usize| match self.look(n) {
            "," | "==" => true,
            "-" | "*" | "/" | "%" | "|" | "&" | "^" | "**" | ":" => {
                self.look(n + 1) == "=" && self.touches_next(n)
            }
            _ => false,
        };
        crate::foreign::is_statement(self.look(0))
            || self.starts_stmt()
            || self.look(1) == ":" && self.look(2) == "="
            || self.target_len().is_some_and(foreign)
    }

    /// How far ahead the bracket stands that closes the one `ahead` tokens from here.
    fn partner(&self, ahead: usize) -> Option<usize> {
        let mut depth = 0usize;
        for (i, token) in self.tokens[self.at + ahead..].iter().enumerate() {
            match token.text(self.text) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" if depth == 1 => return Some(ahead + i),
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
        }
        None
    }

    fn size(&mut self) -> Read {
        self.name("a size")?;
        if self.eat(":") {
            if self.look(0) == "{" {
                return self.bracketed(["{", "}"], false, Some("a set of dtypes"), |r| r.name("a dtype"));
            }
            return self.name("a kind of dtype: `float`, `int`, `any`, or a set as `{f16, bf16}`");
        }
        if self.eat("=") { self.expr() } else { Ok(()) }
    }

    fn param(&mut self) -> Read {
        self.eat("inout");
        self.name("a parameter")?;
        self.expect(":", "the parameter's name")?;
        if self.look(0) == "const" && self.is_name(1) {
            self.at += 2;
        } else {
            self.dtype()?;
            self.dims_if_any()?;
        }
        if self.eat("in") {
            self.range()?;
            self.eat("unique");
        }
        if self.eat("=") { self.expr() } else { Ok(()) }
    }

    fn result(&mut self) -> Read {
        self.name("a result")?;
        self.expect(":", "the result's name")?;
        self.dtype()?;
        self.dims_if_any()
    }

    fn dtype(&mut self) -> Read {
        self.name("a dtype, such as f32 or bf16")
    }

    fn dims_if_any(&mut self) -> Read {
        if self.look(0) != "[" {
            return Ok(());
        }
        self.bracketed(["[", "]"], false, None, Self::expr)
    }

    fn stmt(&mut self) -> Read {
        self.list("", false, Self::target)?;
        self.assign()?;
        self.arg()?;
        if self.eat("where") { self.expr() } else { Ok(()) }
    }

    fn target(&mut self) -> Read {
        self.name("a statement")?;
        if self.eat(":") {
            self.dtype()?;
        }
        if self.look(0) != "[" {
            return Ok(());
        }
        self.bracketed(["[", "]"], false, None, Self::slot)
    }

    fn assign(&mut self) -> Read {
        if matches!(self.look(0), "max" | "min") && self.look(1) == "=" && self.touches_next(0) {
            self.at += 2;
            return Ok(());
        }
        if self.eat("=") || self.eat("+=") { Ok(()) } else { self.wrong(Wanted::Assign) }
    }

    fn slot(&mut self) -> Read {
        if self.is_name(0) && self.look(1) == "in" {
            self.at += 2;
            return self.range();
        }
        self.expr()
    }

    fn range(&mut self) -> Read {
        self.expr()?;
        if !self.eat("..") && !self.eat("..=") {
            return self.wrong(Wanted::Dots);
        }
        self.expr()
    }

    fn arg(&mut self) -> Read {
        self.expr()?;
        if self.eat("else") { self.expr() } else { Ok(()) }
    }

    fn expr(&mut self) -> Read {
        if self.eat("if") {
            self.expr()?;
            self.expect("then", "the condition")?;
            self.expr()?;
            self.expect("else", "the first branch (every `if` has both)")?;
            return self.expr();
        }
        self.operand()?;
        // How operators bind does not matter for what is right.
        while expected::is_operator(self.look(0)) && self.look(0) != "**" {
            self.at += 1;
            if self.token(0).is_some_and(|t| t.first) && self.starts_stmt() {
                return self.wrong(Wanted::OperandAbove);
            }
            self.operand()?;
        }
        Ok(())
    }

    fn operand(&mut self) -> Read {
        while self.eat("-") || self.eat("!") {}
        self.atom()?;
        if self.eat("**") { self.operand() } else { Ok(()) }
    }

    fn atom(&mut self) -> Read {
        let kind = self.token(0).map(|t| t.kind);
        if matches!(kind, Some(Kind::Int | Kind::Float)) || expected::is_literal(self.look(0)) {
            self.at += 1;
            return Ok(());
        }
        if self.look(0) == "(" {
            let open = self.at;
            self.at += 1;
            self.arg()?;
            return self.close(")", open);
        }
        if !self.is_name(0) {
            return self.wrong(Wanted::Operand);
        }
        self.after_name()
    }

    /// A fold, a call or a read.
    fn after_name(&mut self) -> Read {
        let fold = self.look(1) == "[" && self.partner(1).is_some_and(|n| self.look(n + 1) == "(");
        self.at += 1;
        if fold {
            return self.fold();
        }
        if self.look(0) == "." {
            if !self.is_name(1) || self.look(2) != "(" {
                return self.wrong(Wanted::Selection);
            }
            self.at += 2;
        }
        if self.look(0) == "(" {
            return self.bracketed(["(", ")"], true, None, Self::field);
        }
        self.dims_if_any()
    }

    fn fold(&mut self) -> Read {
        let open = self.at;
        self.at += 1;
        if self.look(0) == "]" {
            return self.wrong(Wanted::Least("a fold"));
        }
        self.list("", false, Self::binder)?;
        if self.eat("where") {
            self.expr()?;
        }
        self.close("]", open)?;
        let open = self.at;
        self.expect("(", "the axes of the fold")?;
        self.arg()?;
        self.close(")", open)
    }

    fn binder(&mut self) -> Read {
        self.name("an axis of the fold")?;
        if self.eat("in") { self.range() } else { Ok(()) }
    }

    fn field(&mut self) -> Read {
        if self.is_name(0) && self.look(1) == "=" {
            self.at += 2;
            return self.expr();
        }
        self.arg()
    }

    fn tile(&mut self) -> Read {
        self.at += 1;
        self.name("the op that the block is for")?;
        if self.eat(".") {
            self.name("a definition of the op")?;
        }
        if self.eat("for") {
            self.list("", false, |r| r.name("a target, such as sm_90"))?;
        }
        let open = self.at;
        self.expect("{", "the head of the tile block")?;
        while self.look(0) != "}" {
            if self.at >= self.tokens.len() {
                return self.wrong(Wanted::Close("}", open));
            }
            self.setting()?;
        }
        self.at += 1;
        Ok(())
    }

    fn setting(&mut self) -> Read {
        self.name("a setting, such as `block m = 128` or `stages = 3`")?;
        if self.eat("=") {
            return self.choice();
        }
        self.list("", false, |r| {
            r.name("`=` or an axis")?;
            r.expect("=", "the axis")?;
            r.choice()
        })
    }

    fn choice(&mut self) -> Read {
        if self.look(0) == "{" {
            return self.bracketed(["{", "}"], false, Some("a set"), Self::choice);
        }
        if self.eat_int() {
            if self.eat("..=") && !self.eat_int() {
                return self.wrong(Wanted::Name("a whole number"));
            }
            return Ok(());
        }
        self.name("a whole number, a range as `2..=5`, a set as `{64, 128}`, or a word")?;
        if self.look(0) != "(" {
            return Ok(());
        }
        let open = self.at;
        self.at += 1;
        self.choice()?;
        self.close(")", open)
    }

    fn eat_int(&mut self) -> bool {
        let found = self.token(0).is_some_and(|t| t.kind == Kind::Int);
        self.at += usize::from(found);
        found
    }

    fn profile(&mut self) -> Read {
        self.at += 1;
        self.name("the op to profile")?;
        self.list("", false, |r| {
            r.name("a size or dtype of the op")?;
            r.expect("=", "the size")?;
            r.choice()?;
            if r.eat("at") { r.choice() } else { Ok(()) }
        })
    }
}
