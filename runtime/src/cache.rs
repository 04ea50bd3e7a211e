//! The on-disk cache: what a key was made into, one file an entry.
//!
//! An entry is found by a hash of its key and holds the whole key, so that a hash collision is a miss and never a
//! wrong entry; a checksum over everything makes corruption a miss. An entry is published by one rename of a
//! finished temporary file, so that any number of processes may read and write at once: readers see all of it or
//! nothing. The folder is kept under a size by dropping the entries that were unused longest. A folder that
//! cannot be written means working without a cache, with a note.
//!
//! Own code and not the crate `cacache`: that keeps an index beside the contents, has no bound, and brings an
//! asynchronous run time with it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

const MAGIC: &[u8; 8] = b"girih\0c1";
/// Bytes of an entry before the key: magic, key length, value length, checksum.
const HEAD: usize = 8 + 8 + 8 + 8;
/// Room for entries, in bytes, if `GIRIH_CACHE_MAX` does not say otherwise.
const DEFAULT_MAX: u64 = 1 << 30;
/// Temporary files older than this many seconds belong to writers that died.
const STALE: u64 = 3600;

/// A cache folder.
#[derive(Clone, Debug)]
pub struct Cache {
    dir: Option<PathBuf>,
    max: u64,
    note: Option<String>,
}

/// What a look over all entries found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    pub entries: usize,
    pub bytes: u64,
    pub corrupt: usize,
}

impl Cache {
    /// The user's cache: `GIRIH_CACHE`, else the platform's cache folder. `GIRIH_CACHE=off` works without one.
    pub fn user() -> Cache {
        let max = std::env::var("GIRIH_CACHE_MAX").ok().and_then(|v| v.parse().ok()).unwrap_or(DEFAULT_MAX);
        match std::env::var_os("GIRIH_CACHE").filter(|v| !v.is_empty()) {
            Some(v) if v == "off" => Cache::none("switched off by GIRIH_CACHE=off"),
            Some(v) => Cache::at(Path::new(&v), max),
            None => match user_folder() {
                Some(dir) => Cache::at(&dir, max),
                None => Cache::none("neither GIRIH_CACHE nor XDG_CACHE_HOME nor HOME is set"),
            },
        }
    }

    /// A cache in this folder, made if it is not there, kept under `max` bytes.
    pub fn at(dir: &Path, max: u64) -> Cache {
        match writable(dir) {
            Ok(()) => Cache { dir: Some(dir.to_path_buf()), max, note: None },
            Err(e) => Cache::none(&format!("{} cannot be written: {e}", dir.display())),
        }
    }

    /// No cache, and why.
    pub fn none(why: &str) -> Cache {
        Cache { dir: None, max: 0, note: Some(format!("working without a cache: {why}")) }
    }

    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// Why there is no cache, if there is none.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The value stored for this key. A miss is `None`: nothing there, another key, or an entry that is damaged
    /// (which is removed).
    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let path = self.path(key)?;
        let bytes = fs::read(&path).ok()?;
        match decode(&bytes) {
            Some((k, value)) if k == key => {
                touch(&path);
                Some(value.to_vec())
            }
            Some(_) => None,
            None => {
                let _ = fs::remove_file(&path);
                None
            }
        }
    }

    /// Stores a value. A failure to do so is returned for a note; the work can go on without.
    pub fn put(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let Some(path) = self.path(key) else { return Ok(()) };
        write_atomically(&path, &encode(key, value))?;
        self.trim(&path);
        Ok(())
    }

    /// Looks at every entry.
    pub fn health(&self) -> Health {
        let mut health = Health::default();
        for entry in self.entries() {
            health.entries += 1;
            health.bytes += entry.bytes;
            let whole = fs::read(&entry.path).is_ok_and(|b| decode(&b).is_some());
            health.corrupt += usize::from(!whole);
        }
        health
    }

    fn path(&self, key: &[u8]) -> Option<PathBuf> {
        Some(self.dir.as_ref()?.join(digest(key)))
    }

    fn entries(&self) -> Vec<Entry> {
        let Some(dir) = &self.dir else { return Vec::new() };
        let files = fs::read_dir(dir).into_iter().flatten().flatten();
        files.filter_map(|f| Entry::of(f.path())).collect()
    }

    /// Drops the entries that were unused longest until the folder fits, but not the one just written.
    fn trim(&self, keep: &Path) {
        let mut entries = self.entries();
        let mut total: u64 = entries.iter().map(|e| e.bytes).sum();
        if total <= self.max {
            return;
        }
        entries.sort_by_key(|e| e.used);
        for e in entries.iter().filter(|e| e.path != keep) {
            if total <= self.max {
                break;
            }
            if fs::remove_file(&e.path).is_ok() {
                total -= e.bytes;
            }
        }
    }
}

struct Entry {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

impl Entry {
    /// A finished entry; what a dead writer left is removed on the way.
    fn of(path: PathBuf) -> Option<Entry> {
        let name = path.file_name()?.to_str()?;
        let meta = fs::metadata(&path).ok()?;
        let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        if name.starts_with(TEMPORARY) {
            let old = used.elapsed().is_ok_and(|d| d.as_secs() > STALE);
            if old {
                let _ = fs::remove_file(&path);
            }
            return None;
        }
        let ours = name.len() == 32 && name.bytes().all(|b| b.is_ascii_hexdigit());
        ours.then_some(Entry { bytes: meta.len(), used, path })
    }
}

const TEMPORARY: &str = ".new-";

/// Writes a file so that its path shows the old content or all of the new one, whatever happens.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = format!("{TEMPORARY}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let temporary = dir.join(name);
    let written = fs::File::create_new(&temporary)
        .and_then(|mut f| f.write_all(bytes).and_then(|()| f.sync_data()))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Marks an entry as used now. It is a hint for [`Cache::trim`], so a failure does not matter.
fn touch(path: &Path) {
    if let Ok(file) = fs::File::options().write(true).open(path) {
        let _ = file.set_modified(SystemTime::now());
    }
}

/// Makes the folder and sees whether files can be made in it.
fn writable(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let probe =
        dir.join(format!("{TEMPORARY}{}-probe-{:?}", std::process::id(), std::thread::current().id()));
    fs::write(&probe, b"")?;
    fs::remove_file(probe)
}

fn user_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache"))).map(|d| d.join("girih"))
}

/// A whole entry: key and value with their checksum.
pub fn encode(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(HEAD + key.len() + value.len());
    body.extend_from_slice(MAGIC);
    body.extend_from_slice(&(key.len() as u64).to_le_bytes());
    body.extend_from_slice(&(value.len() as u64).to_le_bytes());
    body.extend_from_slice(&checksum(key, value).to_le_bytes());
    body.extend_from_slice(key);
    body.extend_from_slice(value);
    body
}

/// Key and value of a whole, undamaged entry.
pub fn decode(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, body) = bytes.split_at_checked(HEAD)?;
    let word = |i: usize| u64::from_le_bytes(head[8 * i..8 * i + 8].try_into().expect("eight bytes"));
    let (keys, values) = (usize::try_from(word(1)).ok()?, usize::try_from(word(2)).ok()?);
    if &head[..8] != MAGIC || keys.checked_add(values)? != body.len() {
        return None;
    }
    let (key, value) = body.split_at(keys);
    (checksum(key, value) == word(3)).then_some((key, value))
}

fn checksum(key: &[u8], value: &[u8]) -> u64 {
    fnv(value, fnv(key, FNV_BASIS ^ key.len() as u64))
}

/// The name of a key's entry: 32 hexadecimal digits.
pub fn digest(key: &[u8]) -> String {
    format!("{:016x}{:016x}", fnv(key, FNV_BASIS), fnv(key, !FNV_BASIS))
}

/// The name of a program's CUDA text. Comment lines do not count: they say which line of which file a part comes from,
/// and code is the same wherever its file lies.
pub fn code_digest(cuda: &str) -> String {
    let code: String =
        cuda.lines().filter(|l| !l.trim_start().starts_with("//")).flat_map(|l| [l, "\n"]).collect();
    digest(code.as_bytes())
}

const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a over eight bytes at a time, mixed once more at the end. Not for enemies: a cache folder is trusted.
fn fnv(bytes: &[u8], basis: u64) -> u64 {
    let step = |h: u64, w: u64| (h ^ w).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    let chunks = bytes.chunks_exact(8);
    let tail = chunks.remainder().iter().fold(0u64, |w, &b| w << 8 | b as u64);
    let mut h = chunks.fold(basis, |h, c| step(h, u64::from_le_bytes(c.try_into().expect("eight bytes"))));
    h = step(step(h, tail), bytes.len() as u64);
    h ^= h >> 32;
    h.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ h >> 29
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("girih-cache-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn what_is_put_is_got() {
        let dir = folder("roundtrip");
        let cache = Cache::at(&dir, 1 << 20);
        assert_eq!(cache.get(b"k"), None);
        cache.put(b"k", b"value").unwrap();
        cache.put(b"", b"").unwrap();
        assert_eq!(cache.get(b"k").as_deref(), Some(&b"value"[..]));
        assert_eq!(cache.get(b"").as_deref(), Some(&b""[..]));
        assert_eq!(cache.health(), Health { entries: 2, bytes: 2 * HEAD as u64 + 6, corrupt: 0 });
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_a_miss() {
        let whole = encode(b"key", b"some value");
        for bit in 0..whole.len() * 8 {
            let mut bad = whole.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(decode(&bad), Some((&b"key"[..], &b"some value"[..])), "bit {bit}");
            assert!(decode(&bad).is_none_or(|(k, _)| k != b"key"), "bit {bit}");
        }
        for cut in 0..whole.len() {
            assert_eq!(decode(&whole[..cut]), None);
        }
    }

    #[test]
    fn a_damaged_entry_is_a_miss_and_can_be_written_again() {
        let dir = folder("damage");
        let cache = Cache::at(&dir, 1 << 20);
        cache.put(b"k", b"value").unwrap();
        let path = cache.path(b"k").unwrap();
        fs::write(&path, b"nonsense").unwrap();
        assert_eq!(cache.health().corrupt, 1);
        assert_eq!(cache.get(b"k"), None);
        cache.put(b"k", b"value").unwrap();
        assert_eq!(cache.get(b"k").as_deref(), Some(&b"value"[..]));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn an_entry_under_another_keys_name_is_a_miss() {
        let dir = folder("collision");
        let cache = Cache::at(&dir, 1 << 20);
        cache.put(b"a", b"value").unwrap();
        fs::rename(cache.path(b"a").unwrap(), cache.path(b"b").unwrap()).unwrap();
        assert_eq!(cache.get(b"b"), None);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_folder_stays_under_its_size_and_what_was_used_stays() {
        let dir = folder("bound");
        let cache = Cache::at(&dir, 10 * (HEAD as u64 + 101));
        for i in 0..50u8 {
            cache.put(&[i], &[i; 100]).unwrap();
            let used = SystemTime::now() - std::time::Duration::from_secs(1000 - i as u64);
            let file = fs::File::options().write(true).open(cache.path(&[i]).unwrap()).unwrap();
            file.set_modified(used).unwrap();
            assert!(i == 0 || cache.get(&[0]).is_some(), "used all the time, and gone after {i}");
        }
        assert!(cache.health().entries <= 10);
        assert!(cache.get(&[49]).is_some() && cache.get(&[5]).is_none());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_written_means_no_cache_with_a_note() {
        let file = folder("unwritable");
        fs::write(&file, b"a file, not a folder").unwrap();
        let cache = Cache::at(&file, 1 << 20);
        assert!(cache.note().unwrap().contains("without a cache"));
        assert!(cache.put(b"k", b"v").is_ok() && cache.get(b"k").is_none());
        fs::remove_file(file).unwrap();
    }

    #[test]
    fn threads_never_see_half_an_entry() {
        let dir = folder("threads");
        let cache = Cache::at(&dir, 20_000);
        std::thread::scope(|s| {
            for t in 0..8u64 {
                let cache = &cache;
                s.spawn(move || {
                    for i in 0..100 {
                        let key = ((t + i) % 7).to_le_bytes();
                        let value = vec![key[0]; 1000 + 500 * key[0] as usize];
                        if let Some(v) = cache.get(&key) {
                            assert_eq!(v, value);
                        }
                        cache.put(&key, &value).unwrap();
                    }
                });
            }
        });
        assert_eq!(cache.health().corrupt, 0);
        fs::remove_dir_all(dir).unwrap();
    }
}
