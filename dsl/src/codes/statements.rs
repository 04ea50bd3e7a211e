//! E04xx: definitions, recurrences, updates and op calls.

use super::Code;

pub const ROWS: &[Code] = &[];
