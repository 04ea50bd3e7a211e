//! E01xx: names, imports and axes.

use super::Code;

pub const ROWS: &[Code] = &[];
