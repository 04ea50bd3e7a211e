//! `tile` blocks of an op, resolved.

use super::elab::Elab;
use girih_dsl::ast::Op;

impl Elab<'_> {
    /// Notes the tile blocks that speak of an op.
    pub fn tiles(&mut self, _op: &Op) {}
}
