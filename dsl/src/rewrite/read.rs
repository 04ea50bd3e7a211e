//! Expressions as other array languages write them: calls of libraries, methods, slices, `@`, ternaries, beside all that is
//! written here. A reader that refuses what it does not know.

use crate::token::{Kind, Token};

/// An expression of another language.
#[derive(Clone, Debug, PartialEq)]
pub enum F {
    /// A number, or a word for a value.
    Number(String),
    Name(String),
    /// What stands between quotes.
    Text(String),
    /// A call with the last word of its path; `on` is the value before the dot, `path` says that a library stood there.
    Call {
        name: String,
        on: Option<Box<F>>,
        path: bool,
        args: Vec<(Option<String>, F)>,
    },
    Member(Box<F>, String),
    Index(Box<F>, Vec<F>),
    /// A fold as it is written here: its name, what stands between its brackets, the axes there, its body.
    Fold(String, String, Vec<String>, Box<F>),
    Binary(String, Box<F>, Box<F>),
    Prefix(char, Box<F>),
    /// Condition, then, else.
    If(Box<F>, Box<F>, Box<F>),
    /// A read with a default.
    Else(Box<F>, Box<F>),
    List(Vec<F>),
    /// `lo:hi:step`, and `n in lo..hi` with the name of its axis.
    Slice(Option<String>, [Option<Box<F>>; 3]),
    Ellipsis,
}

/// How deep an expression may nest.
const MAX_DEPTH: usize = 40;

pub struct Reader<'t> {
    pub text: &'t str,
    pub tokens: &'t [Token],
    pub at: usize,
    /// Is the name that of a tensor or a number here (and no library)?
    pub is_value: &'t dyn Fn(&str) -> bool,
    pub depth: usize,
    /// `&` and `|` join comparisons, and `^` is a power.
    pub loose: bool,
}

/// Operators by how tightly they bind; `@` as `*`.
fn level(op: &str) -> Option<u8> {
    Some(match op {
        "||" | "or" => 1,
        "&&" | "and" => 2,
        "==" | "!=" | "<=" | ">=" | "<" | ">" | "is" => 3,
        "|" => 4,
        "^" => 5,
        "&" => 6,
        "<<" | ">>" => 7,
        "+" | "-" | "−" => 8,
        "*" | "/" | "%" | "@" | "×" | "·" | "mod" => 9,
        "**" => 11,
        _ => return None,
    })
}

/// The level of a printed operator; an `if` is below all, a name or a call above all.
pub fn binds(op: &str) -> u8 {
    level(op).unwrap_or(12)
}

/// `float("-inf")`, `T.infinity("float32")`
fn special(callee: &F, args: &[(Option<String>, F)]) -> Option<F> {
    let (F::Name(name) | F::Member(_, name)) = callee else { return None };
    let inf = || F::Number("inf".into());
    if name == "infinity" {
        return Some(inf());
    }
    let [(None, F::Text(text))] = args else { return None };
    if !crate::foreign::is_like_a_dtype(name) {
        return None;
    }
    match text.trim_start_matches('+') {
        "inf" | "infinity" | "Infinity" => Some(inf()),
        "-inf" | "-infinity" | "-Infinity" => Some(F::Prefix('-', inf().into())),
        "nan" | "NaN" => Some(F::Number("nan".into())),
        _ => None,
    }
}

impl<'t> Reader<'t> {
    pub fn look(&self, ahead: usize) -> &'t str {
        self.tokens.get(self.at + ahead).map_or("", |t| t.text(self.text))
    }

    fn kind(&self) -> Option<Kind> {
        self.tokens.get(self.at).map(|t| t.kind)
    }

    pub fn eat(&mut self, word: &str) -> bool {
        let found = self.at < self.tokens.len() && self.look(0) == word;
        self.at += usize::from(found);
        found
    }

    fn touches(&self, ahead: usize) -> bool {
        let pair = self.tokens.get(self.at + ahead).zip(self.tokens.get(self.at + ahead + 1));
        pair.is_some_and(|(a, b)| a.end == b.start)
    }

    /// A whole expression: Python's and C's choices bind loosest.
    pub fn expr(&mut self) -> Option<F> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let found = self.choice();
        self.depth -= 1;
        found
    }

    fn choice(&mut self) -> Option<F> {
        if self.eat("if") {
            let c = self.expr()?;
            let braces = !self.eat("then") && self.eat("{");
            let a = self.expr()?;
            if braces && !self.eat("}") {
                return None;
            }
            if !self.eat("else") {
                return Some(F::If(c.into(), a.into(), F::Number("0".into()).into()));
            }
            let braces = self.eat("{");
            let b = self.expr()?;
            if braces && !self.eat("}") {
                return None;
            }
            return Some(F::If(c.into(), a.into(), b.into()));
        }
        let a = self.operands(1)?;
        if self.look(0) == "?" {
            self.at += 1;
            let then = self.expr()?;
            return self
                .eat(":")
                .then(|| self.expr())
                .flatten()
                .map(|b| F::If(a.into(), then.into(), b.into()));
        }
        let here = self.tokens.get(self.at).is_some_and(|t| !t.first);
        if here && self.look(0) == "if" {
            self.at += 1;
            let c = self.operands(1)?;
            let b = if self.eat("else") { self.expr()? } else { F::Number("0".into()) };
            return Some(F::If(c.into(), a.into(), b.into()));
        }
        Some(a)
    }

    fn operands(&mut self, least: u8) -> Option<F> {
        let mut left = self.prefix()?;
        loop {
            // Element-wise operators of Julia and MATLAB: `.*`.
            let dotted = usize::from(self.look(0) == "." && self.touches(0) && level(self.look(1)).is_some());
            let word = self.look(dotted);
            let word = match word {
                "&" if self.loose => "and",
                "|" if self.loose => "or",
                "^" if self.loose => "**",
                word => word,
            };
            let Some(l) = level(word).filter(|l| *l >= least) else { return Some(left) };
            let starts_a_line = self.tokens.get(self.at).is_some_and(|t| t.first);
            if starts_a_line && self.tokens[self.at].kind == Kind::Word {
                return Some(left);
            }
            // `+=` and its like end an expression.
            if self.look(dotted + 1) == "=" && self.touches(dotted) {
                return None;
            }
            self.at += dotted + 1;
            let op = match word {
                "or" => "||",
                "and" => "&&",
                "is" => "==",
                "−" => "-",
                "×" | "·" => "*",
                "mod" => "%",
                "^" if dotted == 1 => "**",
                op => op,
            };
            let right = self.operands(if op == "**" { 10 } else { l + 1 })?;
            left = F::Binary(op.into(), left.into(), right.into());
        }
    }

    fn prefix(&mut self) -> Option<F> {
        let op = match self.look(0) {
            "-" | "−" => '-',
            "!" | "not" | "~" => '!',
            "+" => '+',
            _ => return self.postfix(),
        };
        self.at += 1;
        // A power binds tighter than its prefix.
        let operand = self.operands(10)?;
        Some(if op == '+' { operand } else { F::Prefix(op, operand.into()) })
    }

    fn postfix(&mut self) -> Option<F> {
        let mut value = self.atom()?;
        loop {
            let first = self.tokens.get(self.at).is_none_or(|t| t.first);
            match self.look(0) {
                "[" if !first => {
                    let body_follows = self.closing().is_some_and(|n| self.look(n + 1) == "(");
                    value = match value {
                        F::Name(name) if body_follows && !(self.is_value)(&name) => self.fold(name)?,
                        value => F::Index(value.into(), self.list("[", "]")?),
                    };
                }
                "." if self.kind() == Some(Kind::Punct) && self.look(1) != "." => {
                    // `exp.(x)`
                    if self.look(1) == "(" {
                        self.at += 1;
                        continue;
                    }
                    if self.tokens.get(self.at + 1)?.kind != Kind::Word {
                        return Some(value);
                    }
                    self.at += 1;
                    let name = self.look(0).to_string();
                    self.at += 1;
                    value = F::Member(value.into(), name);
                }
                // `sum{n}(…)`, `sum<n>(…)`
                "{" | "<"
                    if matches!(&value, F::Name(n) if crate::foreign::is_fold(n))
                        && matches!(self.look(2), "}" | ">")
                        && self.look(3) == "(" =>
                {
                    let F::Name(name) = value else { return None };
                    let axis = self.look(1).to_string();
                    self.at += 4;
                    let body = self.expr()?;
                    if !self.eat(")") {
                        return None;
                    }
                    value = F::Fold(name, axis.clone(), vec![axis], body.into());
                }
                "(" if !first => value = self.call(value)?,
                "'" if !first && self.tokens[self.at - 1].end == self.tokens[self.at].start => {
                    self.at += 1;
                    value = F::Member(value.into(), "T".into());
                }
                // `cast<half>(x)`, `std::max(a, b)`
                "<" if matches!(&value, F::Name(n) if n.ends_with("cast") || n == "cast")
                    && self.look(2) == ">" =>
                {
                    let dtype = self.look(1).to_string();
                    self.at += 3;
                    value = F::Call { name: dtype, on: None, path: false, args: self.arguments()? };
                }
                ":" if self.look(1) == ":" && self.touches(0) && !first => {
                    let name = self.look(2).to_string();
                    self.at += 3;
                    value = F::Member(value.into(), name);
                }
                _ => return Some(value),
            }
        }
    }

    fn call(&mut self, callee: F) -> Option<F> {
        let args = self.arguments()?;
        if let (F::Name(fold), [(Some(word), F::Name(axis)), (None, body)]) = (&callee, &args[..])
            && word == "for"
        {
            return Some(F::Fold(fold.clone(), axis.clone(), vec![axis.clone()], body.clone().into()));
        }
        if let Some(number) = special(&callee, &args) {
            return Some(number);
        }
        Some(match callee {
            F::Name(name) if (self.is_value)(&name) => {
                F::Index(F::Name(name).into(), args.into_iter().map(|a| a.1).collect())
            }
            F::Name(name) => F::Call { name, on: None, path: false, args },
            F::Member(base, name) if self.is_path(&base) => F::Call { name, on: None, path: true, args },
            F::Member(base, name) => F::Call { name, on: Some(base), path: false, args },
            _ => return None,
        })
    }

    /// `np`, `torch.nn.functional`
    fn is_path(&self, base: &F) -> bool {
        match base {
            F::Name(n) => !(self.is_value)(n),
            F::Member(b, _) => self.is_path(b),
            _ => false,
        }
    }

    fn arguments(&mut self) -> Option<Vec<(Option<String>, F)>> {
        let mut all = Vec::new();
        self.at += 1;
        while !self.eat(")") {
            let named = self.kind() == Some(Kind::Word) && self.look(1) == "=" && self.look(2) != "=";
            let name = named.then(|| self.look(0).to_string());
            if named {
                self.at += 2;
            }
            self.eat("&");
            let value = self.element()?;
            let value = if self.eat("else") { F::Else(value.into(), self.expr()?.into()) } else { value };
            // `x[i] for i in range(N)`
            if self.eat("for") {
                all.push((Some("for".into()), F::Name(self.look(0).into())));
                self.at += 2;
                self.expr()?;
            }
            all.push((name, value));
            if !self.eat(",") && self.look(0) != ")" {
                return None;
            }
        }
        Some(all)
    }

    /// How far ahead the bracket stands that closes the one here.
    fn closing(&self) -> Option<usize> {
        let mut depth = 0usize;
        for (i, t) in self.tokens[self.at..].iter().enumerate() {
            match t.text(self.text) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" if depth <= 1 => return Some(i),
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
        }
        None
    }

    /// `sum[k in 0..K where c](…)`, read as it stands.
    fn fold(&mut self, name: String) -> Option<F> {
        let n = self.closing()?;
        let inside = &self.tokens[self.at + 1..self.at + n];
        let (first, last) = (inside.first()?, inside.last()?);
        let head = self.text[first.start..last.end].to_string();
        let mut axes = Vec::new();
        for (i, t) in inside.iter().enumerate() {
            let before = i.checked_sub(1).map_or(",", |b| inside[b].text(self.text));
            if t.text(self.text) == "where" {
                break;
            }
            if before == "," && t.kind == Kind::Word {
                axes.push(t.text(self.text).to_string());
            }
        }
        self.at += n + 2;
        let body = self.expr()?;
        let body = if self.eat("else") { F::Else(body.into(), self.expr()?.into()) } else { body };
        self.eat(")").then(|| F::Fold(name, head, axes, body.into()))
    }

    fn list(&mut self, open: &str, end: &str) -> Option<Vec<F>> {
        let mut all = Vec::new();
        if !self.eat(open) {
            return None;
        }
        while !self.eat(end) {
            all.push(self.element()?);
            if !self.eat(",") && self.look(0) != end {
                return None;
            }
        }
        Some(all)
    }

    /// An index or an argument: perhaps a slice.
    fn element(&mut self) -> Option<F> {
        if self.look(0) == ".." && self.look(1) == "." {
            self.at += 2;
            return Some(F::Ellipsis);
        }
        if self.look(1) == "in" && self.kind() == Some(Kind::Word) {
            let axis = self.look(0).to_string();
            self.at += 2;
            let lo = self.expr()?;
            if !self.eat("..") && !self.eat(":") {
                return None;
            }
            let hi = self.expr()?;
            return Some(F::Slice(Some(axis), [Some(lo.into()), Some(hi.into()), None]));
        }
        let ends = |r: &Self| matches!(r.look(0), ":" | "," | "]" | ")");
        let first = if self.look(0) == ":" { None } else { Some(Box::new(self.expr()?)) };
        if self.eat("..") {
            let hi = if ends(self) { None } else { Some(Box::new(self.expr()?)) };
            return Some(F::Slice(None, [first, hi, None]));
        }
        if !self.eat(":") {
            return first.map(|f| *f);
        }
        let second = if ends(self) { None } else { Some(Box::new(self.expr()?)) };
        let third = if self.eat(":") && !ends(self) { Some(Box::new(self.expr()?)) } else { None };
        Some(F::Slice(None, [first, second, third]))
    }

    fn atom(&mut self) -> Option<F> {
        let token = self.tokens.get(self.at)?;
        let word = token.text(self.text);
        match token.kind {
            Kind::Int | Kind::Float => {
                self.at += 1;
                Some(F::Number(word.into()))
            }
            Kind::BadNumber => {
                self.at += 1;
                crate::scan::as_number(word).map(F::Number)
            }
            Kind::Text => {
                self.at += 1;
                Some(F::Text(word.trim_matches('"').into()))
            }
            Kind::Word => {
                self.at += 1;
                if let Some(ours) = crate::foreign::value(word).or(match word {
                    "inf" | "nan" | "pi" | "true" | "false" => Some(word),
                    _ => None,
                }) {
                    return Some(F::Number(ours.into()));
                }
                (!crate::expected::is_reserved(word)).then(|| F::Name(word.into()))
            }
            Kind::Junk if word == "'" => self.quoted(),
            Kind::Punct if word == "[" => Some(F::List(self.list("[", "]")?)),
            Kind::Punct if word == "|" => {
                self.at += 1;
                let inside = self.operands(8)?;
                let call = F::Call { name: "abs".into(), on: None, path: false, args: vec![(None, inside)] };
                self.eat("|").then_some(call)
            }
            Kind::Punct if word == "(" => self.parenthesized(),
            _ => None,
        }
    }

    /// `'fast'`, which is no text here.
    fn quoted(&mut self) -> Option<F> {
        let start = self.tokens[self.at].end;
        let partner = self.tokens[self.at + 1..].iter().position(|t| t.text(self.text) == "'")?;
        let end = self.tokens[self.at + 1 + partner].start;
        self.at += partner + 2;
        Some(F::Text(self.text[start..end].into()))
    }

    /// `(a + b)`, `(float)x`, `(x[i] else 0)`, `(1, 2)`
    fn parenthesized(&mut self) -> Option<F> {
        let cast = self.look(1);
        if self.look(2) == ")" && crate::foreign::is_like_a_dtype(cast) && !(self.is_value)(cast) {
            self.at += 3;
            let value = self.operands(10)?;
            return Some(F::Call { name: cast.into(), on: None, path: false, args: vec![(None, value)] });
        }
        self.at += 1;
        let first = self.expr()?;
        if self.eat("else") {
            let default = self.expr()?;
            return self.eat(")").then(|| F::Else(first.into(), default.into()));
        }
        if self.eat(")") {
            return Some(first);
        }
        let mut all = vec![first];
        while self.eat(",") {
            if self.look(0) != ")" {
                all.push(self.expr()?);
            }
        }
        self.eat(")").then_some(F::List(all))
    }
}
