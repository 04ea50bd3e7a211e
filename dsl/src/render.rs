//! Diagnostics as text: the place, the line with a caret under it, what is wrong and what to write instead.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::ast::Span;
use crate::diagnostic::{Diagnostic, Severity};
use crate::source::Sources;

/// All diagnostics, each with `name.tile:LINE:COLUMN`, separated by empty lines.
pub fn render(sources: &Sources, diagnostics: &[Diagnostic], color: bool) -> String {
    let renderer = if color { Renderer::styled() } else { Renderer::plain() };
    let mut out = String::new();
    for diagnostic in diagnostics {
        out.push_str(&renderer.render(&[group(sources, diagnostic)]));
        out.push_str("\n\n");
    }
    out
}

fn group<'s>(sources: &'s Sources, diagnostic: &'s Diagnostic) -> Group<'s> {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut group = Group::with_title(level.primary_title(diagnostic.message.as_str()).id(diagnostic.code));
    for snippet in snippets(sources, diagnostic) {
        group = group.element(snippet);
    }
    match &diagnostic.help {
        Some(help) => group.element(Level::HELP.message(help.as_str())),
        None => group,
    }
}

/// One snippet a file, that of the error first.
fn snippets<'s>(
    sources: &'s Sources,
    diagnostic: &'s Diagnostic,
) -> Vec<Snippet<'s, annotate_snippets::Annotation<'s>>> {
    let mut files = vec![diagnostic.span.file];
    for (span, _) in &diagnostic.more {
        if !files.contains(&span.file) {
            files.push(span.file);
        }
    }
    // A diagnostic without a place (its file is none of the sources) has its message only.
    files.retain(|file| (*file as usize) < sources.len());
    files.into_iter().map(|file| snippet(sources, diagnostic, file)).collect()
}

fn snippet<'s>(
    sources: &'s Sources,
    diagnostic: &'s Diagnostic,
    file: u32,
) -> Snippet<'s, annotate_snippets::Annotation<'s>> {
    let source = sources.get(file);
    let mut snippet = Snippet::source(source.text.as_str()).path(source.name.as_str());
    let primary = std::iter::once((&diagnostic.span, &diagnostic.label, AnnotationKind::Primary));
    let further = diagnostic.more.iter().map(|(span, label)| (span, label, AnnotationKind::Context));
    for (span, label, kind) in primary.chain(further).filter(|(span, ..)| span.file == file) {
        let annotation = kind.span(visible(&source.text, *span));
        let label = (!label.is_empty()).then_some(label.as_str());
        snippet = snippet.annotation(annotation.label(label));
    }
    snippet
}

/// The bytes of a span, on character boundaries and within the text.
fn visible(text: &str, span: Span) -> Range<usize> {
    let boundary =
        |at: u32| (0..=(at as usize).min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    let (start, end) = (boundary(span.start), boundary(span.end));
    start..end.max(start)
}
