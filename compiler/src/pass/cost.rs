//! The constants of the model that chooses between storing and recomputing: one H200, as measured. `model` puts them
//! together for a kernel; `docs/architecture.md`, "Choosing what is stored", says what the model leaves out.

use crate::vocab::dtype::DType;

/// Bytes a second from device memory that a good kernel reaches.
pub const BANDWIDTH: f64 = 4.2e12;
/// Scalar operations a second outside tensor cores that real kernels reach.
pub const OPERATIONS: f64 = 1.2e13;
/// Starting a kernel that follows another, its tail included. Seconds.
pub const LAUNCH: f64 = 2.5e-6;
/// Multiprocessors.
pub const SMS: f64 = 132.0;
/// Threads that must be in flight for memory, or arithmetic, to run at its rate.
pub const BUSY_THREADS: f64 = SMS * 512.0;
/// One term of a loop that a single thread runs alone. Seconds.
pub const SERIAL: f64 = 2e-9;
/// Points along either side of a contraction's tile.
pub const TILE: f64 = 128.0;
/// What a contraction keeps of its rates, the memory's too, if an operand's elements are computed on the way to shared
/// memory: nothing is copied asynchronously then.
pub const COMPUTED_OPERAND: f64 = 0.5;
/// The same of its products, where what is computed are weights of 4 bits: that goes on beside the products, and codes are copied
/// asynchronously.
pub const CODES: f64 = 0.85;
/// What it keeps for each further sum that shares the registers of its tile.
pub const SEVERAL_SUMS: f64 = 0.8;
/// What chained products keep of their rate: what stands between them takes its time too.
pub const CHAINED: f64 = 0.6;
/// Values of a row that a block keeps in registers between passes.
pub const RESIDENT: f64 = 65536.0;

/// Values of a row from which on it is split over blocks, where it is read once.
pub const SPLIT_ROW: f64 = 32768.0;

/// Seconds to move bytes.
pub fn memory(bytes: f64) -> f64 {
    bytes / BANDWIDTH
}

/// Seconds of scalar work.
pub fn compute(operations: f64) -> f64 {
    operations / OPERATIONS
}

/// Multiplications and additions a second of a contraction whose operands have this dtype.
pub fn products(operand: DType) -> f64 {
    match operand {
        DType::F16 | DType::BF16 => 650e12,
        d if d.is_float() && d.bits() == 8 => 1200e12,
        d if !d.is_float() && d.bits() <= 8 => 1200e12,
        DType::F32 => 100e12,
        DType::F64 => 50e12,
        _ => 2.0 * OPERATIONS,
    }
}
