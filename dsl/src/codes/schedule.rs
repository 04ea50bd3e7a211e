//! E06xx: `tile` and `profile`.

use super::Code;

pub const ROWS: &[Code] = &[];
