//! Device time of work on a stream.

use crate::error::{Error, Result};
use crate::stream::{Event, Stream};
use std::time::Duration;

/// Two events around a piece of work.
#[derive(Debug)]
pub struct Timer {
    start: Event,
    end: Event,
}

impl Timer {
    pub fn new(stream: &Stream) -> Result<Timer> {
        Ok(Timer { start: Event::new(stream.device())?, end: Event::new(stream.device())? })
    }

    /// Device time that `work` takes on the stream; waits for it.
    pub fn time<E: From<Error>>(
        &self,
        stream: &Stream,
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<Duration, E> {
        self.start.record(stream)?;
        work()?;
        self.end.record(stream)?;
        self.end.synchronize()?;
        Ok(self.start.elapsed(&self.end)?)
    }
}

/// The middle one of some times.
pub fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
