//! E07xx: compiling and running.

use super::Code;

pub const ROWS: &[Code] = &[];
