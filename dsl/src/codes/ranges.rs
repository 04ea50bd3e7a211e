//! E02xx: ranges and bounds.

use super::Code;

pub const ROWS: &[Code] = &[];
