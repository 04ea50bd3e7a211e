//! Syntax tree → text: `girih fmt`, and single expressions for messages.
//!
//! Formatting changes white space only: the words of a text stay as they are, comments included, so its meaning cannot change.
//! `print/marks.rs` finds what each word is for, `print/spacing.rs` what stands between two words of a line,
//! `print/layout.rs` where lines break and how far they are indented.
//! Invariants: the result is a fixed point; no line is longer than [`WIDTH`] where a break is possible.

mod expr;
mod layout;
mod marks;
mod spacing;

use crate::diagnostic::{Diagnostic, Severity};

pub use expr::print_expr;

/// The width that lines are broken to.
pub const WIDTH: usize = 110;

/// One step of indentation.
const INDENT: usize = 4;

/// The text in its usual form. A text with errors is not touched.
pub fn format(text: &str) -> Result<String, Vec<Diagnostic>> {
    let (file, diagnostics) = crate::parse(text, 0);
    if diagnostics.iter().any(|d| d.severity == Severity::Error) {
        return Err(diagnostics);
    }
    let marks = marks::marks(text, &file);
    let gaps = spacing::gaps(&marks);
    Ok(layout::layout(&marks, &gaps))
}
