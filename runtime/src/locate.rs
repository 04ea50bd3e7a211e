//! Where NVRTC may be: named by the user, installed for the project, in a Python environment, or on the system.

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// The library to load: the first that exists, in the order of [`candidates`].
pub fn nvrtc() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("GIRIH_NVRTC").filter(|v| !v.is_empty()) {
        let named = PathBuf::from(named);
        return library_at(&named).ok_or_else(|| Error::BadNvrtc {
            path: named,
            why: "GIRIH_NVRTC names no libnvrtc.so and no folder with one".into(),
        });
    }
    let places = candidates();
    match places.iter().find_map(|p| library_at(p)) {
        Some(path) => Ok(path),
        None => Err(Error::NoNvrtc { looked: places }),
    }
}

/// Folders that may hold the library, most specific first.
fn candidates() -> Vec<PathBuf> {
    let mut places = Vec::new();
    for root in project_roots() {
        places.push(root.join(".girih/nvrtc"));
        places.push(root.join(".girih/venv"));
    }
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        places.extend(std::env::var_os(variable).map(PathBuf::from));
    }
    places.extend(python_prefixes());
    for variable in ["CUDA_HOME", "CUDA_PATH"] {
        places.extend(std::env::var_os(variable).map(|v| PathBuf::from(v).join("lib64")));
    }
    places.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
    for system in ["/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"] {
        places.push(PathBuf::from(system));
    }
    places
}

/// The current folder and its parents, the program's, and the user's home.
fn project_roots() -> Vec<PathBuf> {
    let mut roots = Vec::new();
    for start in [std::env::current_dir().ok(), std::env::current_exe().ok()].into_iter().flatten() {
        roots.extend(start.ancestors().map(Path::to_path_buf));
    }
    roots.extend(std::env::var_os("HOME").map(PathBuf::from));
    roots
}

/// Prefixes of the Python interpreters on PATH (`bin/python3` → its parent), links followed.
fn python_prefixes() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = Vec::new();
    for dir in std::env::split_paths(&path) {
        let python = dir.join("python3");
        if python.exists() {
            found.extend(dir.parent().map(Path::to_path_buf));
            let real = python.canonicalize().ok();
            found
                .extend(real.as_deref().and_then(Path::parent).and_then(Path::parent).map(Path::to_path_buf));
        }
    }
    found
}

/// The library that a path names: itself, or in the folder, or in a Python environment's packages below it.
fn library_at(place: &Path) -> Option<PathBuf> {
    if place.is_file() {
        return Some(place.to_path_buf());
    }
    library_in(place).or_else(|| package_folders(place).iter().find_map(|d| library_in(d)))
}

/// `libnvrtc.so.N` in a folder, the highest N.
fn library_in(dir: &Path) -> Option<PathBuf> {
    let mut best: Option<(u32, PathBuf)> = None;
    for entry in std::fs::read_dir(dir).ok()?.flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|n| n.strip_prefix("libnvrtc.so")) else { continue };
        let major = rest.trim_start_matches('.').split('.').next().unwrap_or("").parse().unwrap_or(0);
        if best.as_ref().is_none_or(|(m, _)| major > *m) {
            best = Some((major, entry.path()));
        }
    }
    best.map(|b| b.1)
}

/// Where the PyPI packages put it below a prefix: `nvidia/cu13/lib`, `nvidia/cuda_nvrtc/lib`, at the prefix itself
/// (`pip install --target`) or in `lib/python3.x/site-packages`.
fn package_folders(prefix: &Path) -> Vec<PathBuf> {
    let mut bases = vec![prefix.to_path_buf()];
    for lib in ["lib", "lib64"] {
        for entry in std::fs::read_dir(prefix.join(lib)).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("python3") {
                bases.push(entry.path().join("site-packages"));
                bases.push(entry.path().join("dist-packages"));
            }
        }
    }
    let mut found = Vec::new();
    for base in bases {
        let mut packages: Vec<_> = std::fs::read_dir(base.join("nvidia"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path())
            .collect();
        // cu13 before cuda_nvrtc: the newer layout first, and the same order everywhere.
        packages.sort_by_key(|p| (!p.file_name().is_some_and(|n| n == "cu13"), p.clone()));
        found.extend(packages.into_iter().map(|p| p.join("lib")));
    }
    found
}

/// The libraries beside NVRTC that hold its built-in declarations. It asks for them by a bare name, which the loader
/// only knows once they are loaded.
pub fn companions(library: &Path) -> Vec<PathBuf> {
    let entries = library.parent().and_then(|d| std::fs::read_dir(d).ok()).into_iter().flatten().flatten();
    let ours = |p: &PathBuf| {
        let name = p.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned());
        name.starts_with("libnvrtc-builtins.so")
    };
    let mut found: Vec<PathBuf> = entries.map(|e| e.path()).filter(ours).collect();
    found.sort();
    found
}

/// What tells one NVRTC from another without loading it: the version in its companion's name, and its size.
pub fn fingerprint(library: &Path) -> String {
    let name = |p: &Path| p.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned());
    let size = std::fs::metadata(library).map_or(0, |m| m.len());
    let companions: Vec<String> = companions(library).iter().map(|p| name(p)).collect();
    format!("{}:{size}:{}", name(library), companions.join(","))
}
