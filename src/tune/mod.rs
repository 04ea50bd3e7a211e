//! Tuning: searching for the best configuration of an op (`run`), keeping it (`store`), and using it (`choose`, `lock`).

pub mod choose;
mod gpu;
pub mod lock;
pub mod loss;
mod plain;
pub mod profile;
pub mod report;
pub mod run;
mod sim;
pub(crate) mod small;
pub mod store;
pub mod worker;
