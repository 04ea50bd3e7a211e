//! Many processes on one cache folder: this binary starts itself again as the workers.

use girih_runtime::Cache;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROLE: &str = "GIRIH_TEST_CACHE_WORKER";
const KEYS: u64 = 12;

/// What every worker stores under a key, so that any reader can tell a mixed entry.
fn value(key: u64) -> Vec<u8> {
    (0..2_000 + 997 * key).map(|i| (i * 31 + key * 17) as u8).collect()
}

fn work(dir: &Path, worker: u64) {
    // Room for about half of the keys, so that entries are dropped while others read them.
    let cache = Cache::at(dir, 40_000);
    assert!(cache.note().is_none());
    for round in 0..60u64 {
        let key = (round * 7 + worker * 5) % KEYS;
        if let Some(got) = cache.get(&key.to_le_bytes()) {
            assert_eq!(got, value(key), "worker {worker}, round {round}");
        }
        cache.put(&key.to_le_bytes(), &value(key)).unwrap();
    }
}

#[test]
fn processes_share_a_folder() {
    if let Some(role) = std::env::var_os(ROLE) {
        let role = role.into_string().unwrap();
        let (worker, dir) = role.split_once(':').unwrap();
        return work(Path::new(dir), worker.parse().unwrap());
    }
    let dir: PathBuf = std::env::temp_dir().join(format!("girih-processes-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let mut workers: Vec<_> = (0..16)
        .map(|w| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "processes_share_a_folder"])
                .env(ROLE, format!("{w}:{}", dir.display()))
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    // One of them is killed in the middle: it may leave a temporary file and nothing else.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let _ = workers[0].kill();
    for (i, w) in workers.iter_mut().enumerate() {
        let ok = w.wait().unwrap().success();
        assert!(ok || i == 0, "worker {i} failed");
    }
    let health = Cache::at(&dir, 40_000).health();
    assert!(health.corrupt == 0 && health.entries > 0 && health.bytes < 80_000, "{health:?}");
    std::fs::remove_dir_all(dir).unwrap();
}
