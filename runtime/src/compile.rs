//! Source to cubin through the cache.

use crate::cache::Cache;
use crate::child;
use crate::error::Result;
use crate::locate;
use crate::nvrtc::{self, CompileReport, Compiled};
use std::time::Instant;

/// A cubin, and whether NVRTC was needed.
#[derive(Clone, Debug)]
pub struct Cubin {
    pub code: Vec<u8>,
    pub report: CompileReport,
    pub from_cache: bool,
    /// Why the cache could not keep it, if so.
    pub note: Option<String>,
}

/// The cubin of a source for one architecture. NVRTC is not even loaded if the cache has it.
pub fn cubin(program: &str, source: &str, arch: &str, cache: &Cache) -> Result<Cubin> {
    let start = Instant::now();
    let key = key(source, arch, &locate::fingerprint(&locate::nvrtc()?));
    if let Some((log, code)) = cache.get(&key).as_deref().and_then(unpack) {
        let report = CompileReport { time: start.elapsed(), ..CompileReport::parse(&log) };
        return Ok(Cubin { code, report, from_cache: true, note: None });
    }
    let Compiled { cubin: code, report } = child::compile(program, source, arch)?;
    let kept = cache.put(&key, &pack(&report.log, &code));
    let note = match (kept, cache.note()) {
        (Err(e), _) => Some(format!("the cache could not keep the cubin: {e}")),
        (Ok(()), note) => note.map(str::to_string),
    };
    Ok(Cubin { code, report, from_cache: false, note })
}

/// Everything that the cubin depends on.
fn key(source: &str, arch: &str, nvrtc: &str) -> Vec<u8> {
    let parts = ["cubin 1", nvrtc, arch, &nvrtc::options(arch).join(" "), source];
    parts.join("\0").into_bytes()
}

fn pack(log: &str, code: &[u8]) -> Vec<u8> {
    [&(log.len() as u64).to_le_bytes()[..], log.as_bytes(), code].concat()
}

fn unpack(bytes: &[u8]) -> Option<(String, Vec<u8>)> {
    let (head, rest) = bytes.split_at_checked(8)?;
    let n = u64::from_le_bytes(head.try_into().ok()?);
    let (log, code) = rest.split_at_checked(usize::try_from(n).ok()?)?;
    Some((String::from_utf8(log.to_vec()).ok()?, code.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_unpack_to_what_was_packed() {
        assert_eq!(unpack(&pack("log", b"code")), Some(("log".into(), b"code".to_vec())));
        assert_eq!(unpack(&pack("", b"")), Some((String::new(), Vec::new())));
        assert_eq!(unpack(&[255; 9]), None);
        assert_eq!(unpack(b"short"), None);
    }

    #[test]
    fn what_changes_the_cubin_changes_the_key() {
        let base = key("source", "sm_90a", "13.0");
        assert_ne!(base, key("source ", "sm_90a", "13.0"));
        assert_ne!(base, key("source", "sm_90", "13.0"));
        assert_ne!(base, key("source", "sm_90a", "13.1"));
    }
}
