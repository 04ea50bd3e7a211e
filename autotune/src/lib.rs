//! The autotuner: not built yet (see the roadmap in the CHANGELOG).
