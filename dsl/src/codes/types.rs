//! E03xx: types and conversions.

use super::Code;

pub const ROWS: &[Code] = &[];
