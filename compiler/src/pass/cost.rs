//! A simple model of a GPU (an H200's numbers), for choosing between storing and recomputing. Seconds.

/// Bytes a second from device memory that a good kernel reaches.
const BANDWIDTH: f64 = 3.6e12;
/// Scalar operations a second outside tensor cores that real kernels reach.
const OPERATIONS: f64 = 1.2e13;
/// Starting a kernel that follows another, its tail included.
pub const LAUNCH: f64 = 2.5e-6;
/// Multiprocessors.
pub const SMS: f64 = 132.0;

pub fn memory(bytes: f64) -> f64 {
    bytes / BANDWIDTH
}

pub fn compute(operations: f64) -> f64 {
    operations / OPERATIONS
}
