//! W0xxx: right, but perhaps not meant.

use super::Code;

pub const ROWS: &[Code] = &[];
