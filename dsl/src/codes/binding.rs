//! E05xx: sizes, consts and inputs of a run.

use super::Code;

pub const ROWS: &[Code] = &[];
