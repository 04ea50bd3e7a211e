//! The autotuner: search spaces, pruning, the analytic model, the search, measurement in child processes, and the
//! database of what was found. It knows nothing of files with programs: `girih` (the facade) binds them, and has the
//! worker that measures.

pub mod database;
pub mod fixed;
pub mod measure;
pub mod model;
pub mod protocol;
pub mod prune;
pub mod report;
pub mod search;
pub mod space;
mod walk;
