//! What the environment sets: a value that cannot be read is told, not passed over.

use girih::{Error, Result};
use std::time::Duration;

/// Seconds that NVRTC may take for one program, where `GIRIH_COMPILE_LIMIT` does not say it.
const COMPILE_LIMIT: u64 = 300;

/// Refuses numbers that are none, and warns of folders that are not there.
pub fn check() -> Result<()> {
    number("GIRIH_COMPILE_LIMIT", "seconds, as 300; 0 compiles without a child process")?;
    number("GIRIH_CACHE_MAX", "bytes, as 1073741824")?;
    let listed = std::env::var_os("GIRIH_TUNED").unwrap_or_default();
    for folder in std::env::split_paths(&listed).filter(|p| !p.as_os_str().is_empty() && !p.is_dir()) {
        eprintln!("warning: GIRIH_TUNED lists {}, which is no folder", folder.display());
    }
    Ok(())
}

/// How long NVRTC may take for one program; zero for no limit and no child.
pub fn compile_limit() -> Duration {
    let said = number("GIRIH_COMPILE_LIMIT", "").ok().flatten();
    Duration::from_secs(said.unwrap_or(COMPILE_LIMIT))
}

/// A whole number; `None` where nothing is said.
fn number(name: &str, form: &str) -> Result<Option<u64>> {
    let Some(said) = std::env::var_os(name).filter(|s| !s.is_empty()) else { return Ok(None) };
    let said = said.to_string_lossy();
    let read = said.parse().map(Some);
    read.map_err(|_| Error::argument(name, format!("`{said}` is no whole number of {form}")))
}
