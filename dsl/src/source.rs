//! Source texts and their names. A [`Span`](crate::ast::Span)'s `file` is an index into [`Sources`].

use crate::ast::Span;

#[derive(Clone, Debug)]
pub struct Source {
    pub name: String,
    pub text: String,
}

#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<Source>,
}

impl Sources {
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> u32 {
        self.files.push(Source { name: name.into(), text: text.into() });
        self.files.len() as u32 - 1
    }

    pub fn get(&self, file: u32) -> &Source {
        &self.files[file as usize]
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// 1-based line and column (in characters) of a byte position.
    pub fn line_column(&self, span: Span) -> (usize, usize) {
        let text = &self.get(span.file).text;
        let mut at = (span.start as usize).min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &text[..at];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// `file:line`
    pub fn place(&self, span: Span) -> String {
        format!("{}:{}", self.get(span.file).name, self.line_column(span).0)
    }

    pub fn snippet(&self, span: Span) -> &str {
        self.get(span.file).text.get(span.start as usize..span.end as usize).unwrap_or("")
    }
}
