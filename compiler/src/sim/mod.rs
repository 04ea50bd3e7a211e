//! The simulator: runs a program's simt kernels on the CPU, warp by warp, and reports what a GPU would hide.
//!
//! A kernel is compiled to bytecode (`compile.rs`, `code.rs`) whose operations run over the 32 lanes of a warp
//! (`lanes.rs`, `ops.rs`) under a mask (`warp.rs`). The warps of a block take turns between barriers (`block.rs`),
//! blocks run in parallel (`run.rs`). Memory has a shadow (`memory.rs`, `shared.rs`), by which accesses out of
//! bounds, reads of what nothing wrote, and races are found; errors carry the `.tile` place (`report.rs`).
//!
//! Blocks that wait for words of others are resident a few at a time, in the order that suits them least
//! (`resident.rs`). What it does not model: a block that waits for another's write in a loop of its own may wait for
//! ever; `While` rounds are therefore limited.

mod access;
mod block;
mod boxes;
mod bulk_store;
mod cluster;
mod code;
pub mod codec;
mod compile;
mod engine;
mod engine_ptx;
pub mod intrinsics;
mod lanes;
mod memory;
mod ops;
mod report;
mod resident;
mod run;
mod shared;
mod warp;

pub use code::CLASS_NAMES;
pub use report::{Conflict, KernelReport, Kind, SimError};
pub use run::{SimOptions, SimOutcome, run};
