//! The database: what was found, a file a record, in a folder beside the cubins, in their store's format (whole key,
//! checksum, one rename to publish). Any number of processes may read and write; a file that is damaged or that
//! another version wrote is a miss with a note. Merging is copying. Under the user's store lie read-only ones, as
//! shipped with a product.
//!
//! `STORE/FAMILY/DIGEST`: the family is the op's meaning with its dtypes and consts on one kind of device, for all
//! shapes, so that a shape that was not tuned finds its neighbours in one folder; the digest is that of the whole key.

use crate::protocol::Configuration;
use girih_runtime::cache::{decode, digest, encode, write_atomically};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// What a record is found by. Everything that may change which configuration is best, or that it is right.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub op: String,
    /// Digest of the op as it was written, without comments and spaces.
    pub text: String,
    pub consts: BTreeMap<String, String>,
    /// Dtype and alignment of each argument, in order.
    pub arguments: Vec<String>,
    /// Name, multiprocessors, memory, MIG slice, driver.
    pub device: String,
    pub target: String,
    /// Versions of the compiler and of NVRTC with its options.
    pub compiler: String,
    /// Digest of the bound graph: sizes, strides, `tile` blocks and all.
    pub meaning: String,
    pub dims: BTreeMap<String, i64>,
}

impl Key {
    /// The same for all shapes.
    pub fn family(&self) -> String {
        let part = Key { meaning: String::new(), dims: BTreeMap::new(), ..self.clone() };
        digest(&part.bytes())
    }

    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// `M=16 N=32`
    pub fn shape(&self) -> String {
        self.dims.iter().map(|(k, n)| format!("{k}={n}")).collect::<Vec<_>>().join(" ")
    }
}

/// What was found for a key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub configuration: Configuration,
    pub us: f64,
    /// Of the form's own choice, and what the model said of the winner.
    pub default_us: f64,
    /// Of the fixed default of each form, and of what the model alone would take; 0 where they were not measured.
    #[serde(default)]
    pub fixed_us: f64,
    #[serde(default)]
    pub model_us: f64,
    pub predicted_us: f64,
    pub trials: usize,
    pub failed: usize,
    pub seed: u64,
    /// Digest of the CUDA text that was measured and checked: it holds for no other.
    pub code: String,
    /// Seconds that the search took.
    pub seconds: f64,
    pub notes: Vec<String>,
}

/// A record with its key and file.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: Key,
    pub record: Record,
    pub path: PathBuf,
}

/// Layers of folders; the first is written to.
#[derive(Clone, Debug, Default)]
pub struct Database {
    layers: Vec<PathBuf>,
    writable: bool,
}

/// What merging or pruning did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    pub taken: usize,
    pub kept: usize,
    pub damaged: usize,
}

impl Database {
    /// The user's store (none: nothing is kept) over read-only ones, the first of which wins.
    pub fn new(own: Option<PathBuf>, shipped: Vec<PathBuf>) -> Database {
        let writable = own.is_some();
        Database { layers: own.into_iter().chain(shipped).collect(), writable }
    }

    pub fn layers(&self) -> &[PathBuf] {
        &self.layers
    }

    /// The folder that is written to.
    pub fn own(&self) -> Option<&Path> {
        self.layers.first().filter(|_| self.writable).map(PathBuf::as_path)
    }

    /// The record of exactly this key. What is damaged is a miss with a note.
    pub fn get(&self, key: &Key, notes: &mut Vec<String>) -> Option<Record> {
        let (bytes, family) = (key.bytes(), key.family());
        self.layers.iter().find_map(|layer| {
            let path = layer.join(&family).join(digest(&bytes));
            let entry = read(&path).map_err(|why| notes.extend(why.note(&path))).ok()?;
            (entry.key == *key).then_some(entry.record)
        })
    }

    /// Every record of the key's family, the user's before shipped ones, sorted by key.
    pub fn family(&self, key: &Key, notes: &mut Vec<String>) -> Vec<Entry> {
        self.entries(Some(&key.family()), notes)
    }

    /// Every record.
    pub fn all(&self, notes: &mut Vec<String>) -> Vec<Entry> {
        self.entries(None, notes)
    }

    fn entries(&self, family: Option<&str>, notes: &mut Vec<String>) -> Vec<Entry> {
        let mut found: BTreeMap<Key, Entry> = BTreeMap::new();
        for layer in &self.layers {
            let folders = match family {
                Some(f) => vec![layer.join(f)],
                None => listed(layer).into_iter().filter(|p| p.is_dir()).collect(),
            };
            for path in folders.iter().flat_map(|f| listed(f)).filter(|p| is_record(p)) {
                match read(&path) {
                    Ok(entry) => {
                        found.entry(entry.key.clone()).or_insert(entry);
                    }
                    Err(why) => notes.extend(why.note(&path)),
                }
            }
        }
        found.into_values().collect()
    }

    /// Keeps a record in the user's store; gives its file.
    pub fn put(&self, key: &Key, record: &Record) -> io::Result<Option<PathBuf>> {
        let Some(own) = self.own() else { return Ok(None) };
        let folder = own.join(key.family());
        std::fs::create_dir_all(&folder)?;
        let path = folder.join(digest(&key.bytes()));
        let value = serde_json::to_vec(record).map_err(io::Error::other)?;
        write_atomically(&path, &encode(&key.bytes(), &value))?;
        Ok(Some(path))
    }

    /// Copies what another store has and this one has not, or has with a slower time.
    pub fn merge(&self, from: &Path, notes: &mut Vec<String>) -> io::Result<Changed> {
        let mut changed = Changed::default();
        let before = notes.len();
        let other = Database::new(None, vec![from.to_path_buf()]);
        let own = Database::new(self.own().map(Path::to_path_buf), Vec::new());
        for entry in other.all(notes) {
            match own.get(&entry.key, notes) {
                Some(known) if known.us <= entry.record.us => changed.kept += 1,
                _ => {
                    own.put(&entry.key, &entry.record)?;
                    changed.taken += 1;
                }
            }
        }
        changed.damaged = notes.len() - before;
        Ok(changed)
    }

    /// Removes damaged files, and the records that `drop` names, from the user's store.
    pub fn prune(&self, drop: &dyn Fn(&Entry) -> bool) -> io::Result<Changed> {
        let mut changed = Changed::default();
        let Some(own) = self.own() else { return Ok(changed) };
        for folder in listed(own).into_iter().filter(|p| p.is_dir()) {
            for path in listed(&folder) {
                match read(&path) {
                    _ if !is_record(&path) && !is_old_temporary(&path) => continue,
                    Ok(entry) if !drop(&entry) => {
                        changed.kept += 1;
                        continue;
                    }
                    Ok(_) => changed.taken += 1,
                    Err(_) => changed.damaged += 1,
                }
                std::fs::remove_file(&path)?;
            }
            // Only an empty folder goes.
            let _ = std::fs::remove_dir(&folder);
        }
        Ok(changed)
    }
}

fn listed(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    all.sort();
    all
}

fn is_record(path: &Path) -> bool {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
    name.len() == 32 && name.bytes().all(|b| b.is_ascii_hexdigit())
}

/// What a writer that died left.
fn is_old_temporary(path: &Path) -> bool {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
    let age = std::fs::metadata(path).and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
    name.starts_with(".new-") && age.is_some_and(|a| a.as_secs() > 3600)
}

enum Unread {
    Missing,
    Damaged(String),
}

impl Unread {
    fn note(&self, path: &Path) -> Option<String> {
        match self {
            Unread::Missing => None,
            Unread::Damaged(why) => {
                Some(format!("{} is no tuning record ({why}) and is not used", path.display()))
            }
        }
    }
}

fn read(path: &Path) -> Result<Entry, Unread> {
    let bytes = std::fs::read(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Unread::Missing,
        _ => Unread::Damaged(e.to_string()),
    })?;
    let damaged = |why: &str| Unread::Damaged(why.to_string());
    let (key, value) = decode(&bytes).ok_or_else(|| damaged("it is cut or its checksum is wrong"))?;
    let key = serde_json::from_slice(key).map_err(|_| damaged("another version wrote it"))?;
    let record = serde_json::from_slice(value).map_err(|_| damaged("another version wrote it"))?;
    Ok(Entry { key, record, path: path.to_path_buf() })
}

/// How far two shapes are apart: the sum of their sizes' ratios in octaves. `None` where their sizes have other names.
pub fn distance(a: &BTreeMap<String, i64>, b: &BTreeMap<String, i64>) -> Option<f64> {
    let same = a.len() == b.len() && a.keys().eq(b.keys());
    let octaves = |(x, y): (&i64, &i64)| ((*x).max(1) as f64 / (*y).max(1) as f64).log2().abs();
    same.then(|| a.values().zip(b.values()).map(octaves).sum())
}

/// The nearest record of a family; among equals the first by key.
pub fn nearest<'e>(dims: &BTreeMap<String, i64>, entries: &'e [Entry]) -> Option<(f64, &'e Entry)> {
    let far = |e: &'e Entry| Some((distance(dims, &e.key.dims)?, e));
    entries.iter().filter_map(far).min_by(|a, b| a.0.total_cmp(&b.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("girih-db-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        dir
    }

    fn key(m: i64) -> Key {
        Key { op: "f".into(), dims: [("M".into(), m)].into(), meaning: m.to_string(), ..Key::default() }
    }

    fn record(us: f64) -> Record {
        Record {
            us,
            configuration: Configuration { schedule: "y.stages = 3\n".into(), ..Default::default() },
            ..Default::default()
        }
    }

    #[test]
    fn what_is_put_is_got_and_its_family_found() {
        let dir = folder("put");
        let db = Database::new(Some(dir.clone()), Vec::new());
        let notes = &mut Vec::new();
        assert_eq!(db.get(&key(16), notes), None);
        for m in [16, 512, 8192] {
            db.put(&key(m), &record(m as f64)).unwrap();
        }
        assert_eq!(db.get(&key(512), notes), Some(record(512.0)));
        let family = db.family(&key(1), notes);
        assert_eq!(family.len(), 3);
        let near = nearest(&key(300).dims, &family).unwrap();
        assert_eq!(near.1.record.us, 512.0);
        let other = Key { op: "g".into(), ..key(16) };
        assert!(db.family(&other, notes).is_empty() && notes.is_empty());
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn damage_and_other_versions_are_misses_with_a_note() {
        let dir = folder("damage");
        let db = Database::new(Some(dir.clone()), Vec::new());
        let path = db.put(&key(1), &record(1.0)).unwrap().unwrap();
        let whole = std::fs::read(&path).unwrap();
        for cut in [0, 7, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let notes = &mut Vec::new();
            assert_eq!(db.get(&key(1), notes), None);
            assert_eq!(notes.len(), 1, "{notes:?}");
        }
        std::fs::write(&path, encode(&key(1).bytes(), b"{\"other\": 1}")).unwrap();
        let notes = &mut Vec::new();
        assert_eq!(db.get(&key(1), notes), None);
        assert!(notes[0].contains("another version"), "{notes:?}");
        assert_eq!(db.prune(&|_| false).unwrap(), Changed { damaged: 1, ..Changed::default() });
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn records_with_any_byte_changed_are_misses_or_whole() {
        let dir = folder("bytes");
        let db = Database::new(Some(dir.clone()), Vec::new());
        let path = db.put(&key(1), &record(1.0)).unwrap().unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x20;
            std::fs::write(&path, &bytes).unwrap();
            let notes = &mut Vec::new();
            assert_eq!(db.get(&key(1), notes), None, "byte {at}");
            assert_eq!(notes.len(), 1, "byte {at}: {notes:?}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn shipped_records_lie_under_the_users_and_merging_keeps_the_faster() {
        let (own, shipped) = (folder("own"), folder("shipped"));
        let factory = Database::new(Some(shipped.clone()), Vec::new());
        factory.put(&key(1), &record(10.0)).unwrap();
        factory.put(&key(2), &record(20.0)).unwrap();
        let db = Database::new(Some(own.clone()), vec![shipped.clone()]);
        db.put(&key(1), &record(9.0)).unwrap();
        let notes = &mut Vec::new();
        assert_eq!(db.get(&key(1), notes).unwrap().us, 9.0);
        assert_eq!(db.get(&key(2), notes).unwrap().us, 20.0);
        assert_eq!(db.all(notes).len(), 2);
        let merged = db.merge(&shipped, notes).unwrap();
        assert_eq!(merged, Changed { taken: 1, kept: 1, damaged: 0 });
        assert_eq!(Database::new(Some(own.clone()), Vec::new()).all(notes).len(), 2);
        std::fs::remove_dir_all(own).unwrap();
        std::fs::remove_dir_all(shipped).unwrap();
    }

    #[test]
    fn everything_that_matters_is_in_the_key() {
        let base = key(1);
        let changes: [fn(&mut Key); 8] = [
            |k| k.text = "other".into(),
            |k| k.arguments = vec!["f16 16".into()],
            |k| k.device = "other".into(),
            |k| k.target = "sm_80".into(),
            |k| k.compiler = "2".into(),
            |k| k.meaning = "other strides".into(),
            |k| k.consts = [("T".into(), "f16".into())].into(),
            |k| k.op = "g".into(),
        ];
        for change in changes {
            let mut other = base.clone();
            change(&mut other);
            assert_ne!(digest(&base.bytes()), digest(&other.bytes()));
        }
    }
}
