//! Lock files: `FILE.lock` beside `FILE.tile` holds what was chosen, so that a deployment runs that and nothing else.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::execute::{Compiled, Origin};
use crate::kernel::BoundOp;
use girih_autotune::database::{Key, Record};
use girih_runtime::cache::{code_digest, write_atomically};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Lock {
    /// Of the format.
    version: u32,
    entries: Vec<Locked>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Locked {
    key: Key,
    record: Record,
}

/// `f.lock` for `f.tile`.
pub fn path(file: &Path) -> PathBuf {
    file.with_extension("lock")
}

fn read(path: &Path) -> Result<Lock> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::file(path, format!("cannot be read: {e}: write it with girih tune --freeze")))?;
    parse(&text).map_err(|why| Error::file(path, why))
}

fn parse(text: &str) -> std::result::Result<Lock, String> {
    let lock: Lock = serde_json::from_str(text).map_err(|e| {
        format!("is no lock file: {e}: move it away, and write it again with girih tune --freeze")
    })?;
    match lock.version {
        1 => Ok(lock),
        other => Err(format!("has format {other} and 1 is known")),
    }
}

/// What a program's lock file holds; nothing where there is none.
pub fn entries(file: &Path) -> Result<Vec<(Key, Record)>> {
    let path = path(file);
    match path.exists() {
        true => Ok(read(&path)?.entries.into_iter().map(|e| (e.key, e.record)).collect()),
        false => Ok(Vec::new()),
    }
}

/// Adds what was found to the lock file; gives its path.
pub fn freeze(file: &Path, key: &Key, record: &Record) -> Result<PathBuf> {
    let path = path(file);
    // Held until the file is written: what other processes freeze meanwhile is read first, and kept.
    let program = std::fs::File::open(file).map_err(|e| Error::file(file, format!("cannot be read: {e}")))?;
    program.lock().map_err(|e| Error::file(file, format!("cannot be locked: {e}")))?;
    let mut lock = if path.exists() { read(&path)? } else { Lock { version: 1, entries: Vec::new() } };
    lock.entries.retain(|e| e.key != *key);
    lock.entries.push(Locked { key: key.clone(), record: record.clone() });
    lock.entries.sort_by(|a, b| a.key.cmp(&b.key));
    let text = serde_json::to_string_pretty(&lock).map_err(|e| Error::file(&path, e.to_string()))? + "\n";
    write_atomically(&path, text.as_bytes())
        .map_err(|e| Error::file(&path, format!("cannot be written: {e}")))?;
    Ok(path)
}

/// Compiles exactly what the lock file holds for this op, shape and device, and refuses anything else.
pub fn compile(file: &Path, bound: &BoundOp, device: &Device) -> Result<Compiled> {
    let path = path(file);
    let key = super::store::key(bound, device)?;
    let lock = read(&path)?;
    let found = lock.entries.iter().find(|e| e.key == key).ok_or_else(|| refusal(&path, &key, &lock))?;
    let configured = super::choose::configured(bound, &found.record.configuration)
        .ok_or_else(|| Error::file(&path, "its settings cannot be read"))?;
    let compiled = configured.compile_as_is(device)?;
    let code = compiled.lowered().map(|l| code_digest(&l.cuda)).unwrap_or_default();
    if code != found.record.code {
        return Err(Error::file(
            &path,
            format!(
                "another compiler froze {} at {}: freeze it again with girih tune --freeze",
                key.op,
                key.shape()
            ),
        ));
    }
    let notes = vec![format!("locked: {:.1} us when it was measured", found.record.us)];
    Ok(compiled.with_notes(notes).with_origin(Origin::Lock(found.record.us)))
}

/// Why nothing in a lock file fits: the nearest miss in words.
fn refusal(path: &Path, key: &Key, lock: &Lock) -> Error {
    let same = lock.entries.iter().filter(|e| e.key.op == key.op);
    let differs = |e: &Locked| {
        let k = &e.key;
        let rows = [
            (k.dims != key.dims, format!("sizes {} and not {}", k.shape(), key.shape())),
            (k.device != key.device, format!("{} and not {}", k.device, key.device)),
            (k.text != key.text, "another text of the program".to_string()),
            (k.compiler != key.compiler, format!("{} and not {}", k.compiler, key.compiler)),
        ];
        let why: Vec<String> = rows.into_iter().filter(|r| r.0).map(|r| r.1).collect();
        if why.is_empty() { "other dtypes, consts or tile blocks".into() } else { why.join(", ") }
    };
    let nearest = same.map(differs).min_by_key(String::len);
    let why = nearest.map_or_else(|| format!("nothing for {}", key.op), |w| format!("{} for {w}", key.op));
    Error::file(
        path,
        format!("does not hold {} at {}: it has {why}: girih tune --freeze adds it", key.op, key.shape()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole() -> String {
        let key = Key { op: "f".into(), dims: [("M".into(), 16)].into(), ..Key::default() };
        let lock = Lock { version: 1, entries: vec![Locked { key, record: Record::default() }] };
        serde_json::to_string(&lock).unwrap()
    }

    #[test]
    fn every_cut_and_another_version_are_refused_in_words() {
        let text = whole();
        assert_eq!(parse(&text).unwrap().entries.len(), 1);
        for cut in 0..text.len() {
            assert!(parse(&text[..cut]).unwrap_err().contains("no lock file"), "cut at {cut}");
        }
        let other = text.replace("\"version\":1", "\"version\":2");
        assert!(parse(&other).unwrap_err().contains("format 2"));
        assert!(parse(&"[".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn near_misses_never_panic(at in 0usize..400, with in any::<char>()) {
            let mut text: Vec<char> = whole().chars().collect();
            let at = at % text.len();
            text[at] = with;
            let _ = parse(&text.into_iter().collect::<String>());
        }
    }
}
