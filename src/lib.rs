//! Girih.

pub mod error;
pub mod files;

pub use error::{Error, Result};
