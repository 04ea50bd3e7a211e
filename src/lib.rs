//! Girih.
