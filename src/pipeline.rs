//! The way through, one function, one line a stage. Filled in as the stages land.
