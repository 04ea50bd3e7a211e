//! Tensor files: safetensors and npy in, safetensors out. A damaged file is an error that says what is damaged.

use crate::error::{Error, Result};
use girih_compiler::host::HostTensor;
use girih_compiler::vocab::dtype::{DTYPES, DType};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::collections::BTreeMap;
use std::path::Path;

/// A tensor as it stands in a file: a dtype by its file's name, a shape, bytes. What it means is decided where the
/// parameter is known (`U8` may hold `u8`, or `i4` and `u4` two a byte).
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Every dtype of the language that this may be; none, if the language does not have it.
    pub dtypes: Vec<DType>,
    /// The dtype in the file's words.
    pub called: String,
    pub shape: Vec<i64>,
    pub data: Vec<u8>,
}

/// All tensors of a safetensors file, by name.
pub fn read_safetensors(path: &Path) -> Result<BTreeMap<String, Stored>> {
    let bytes = read(path)?;
    parse_safetensors(&bytes).map_err(|why| Error::file(path, why))
}

/// One tensor of a safetensors file.
pub fn read_safetensor(path: &Path, key: &str) -> Result<Stored> {
    let bytes = read(path)?;
    let file = open(&bytes).map_err(|why| Error::file(path, why))?;
    let Ok(view) = file.tensor(key) else {
        let mut names = file.names();
        names.sort_unstable();
        let shown = names.iter().take(8).copied().collect::<Vec<_>>().join(", ");
        let more = if names.len() > 8 { ", …" } else { "" };
        return Err(Error::file(path, format!("it has no tensor {key}: it has {shown}{more}")));
    };
    Ok(stored(&view))
}

/// The one array of an npy file.
pub fn read_npy(path: &Path) -> Result<Stored> {
    let bytes = read(path)?;
    parse_npy(&bytes).map_err(|why| Error::file(path, why))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| Error::file(path, format!("cannot be read: {e}")))
}

fn open(bytes: &[u8]) -> std::result::Result<SafeTensors<'_>, String> {
    SafeTensors::deserialize(bytes).map_err(|e| format!("not a whole safetensors file: {e}"))
}

/// All tensors in the bytes of a safetensors file.
pub fn parse_safetensors(bytes: &[u8]) -> std::result::Result<BTreeMap<String, Stored>, String> {
    let file = open(bytes)?;
    Ok(file.iter().map(|(name, view)| (name.to_string(), stored(&view))).collect())
}

fn stored(view: &TensorView<'_>) -> Stored {
    let called = format!("{:?}", view.dtype());
    let dtypes = DTYPES.iter().filter(|r| r.safetensors == called).map(|r| r.dtype).collect();
    let shape = view.shape().iter().map(|&n| n as i64).collect();
    Stored { dtypes, called, shape, data: view.data().to_vec() }
}

/// Writes tensors to a safetensors file: all of it or, on an error, nothing.
pub fn write_safetensors(path: &Path, tensors: &BTreeMap<String, HostTensor>) -> Result<()> {
    let views = tensors.iter().map(|(name, t)| view(t).map(|v| (name.as_str(), v)));
    let views: Vec<_> =
        views.collect::<std::result::Result<_, String>>().map_err(|e| Error::file(path, e))?;
    let bytes = safetensors::serialize(views, None).map_err(|e| Error::file(path, e.to_string()))?;
    girih_runtime::cache::write_atomically(path, &bytes)
        .map_err(|e| Error::file(path, format!("cannot be written: {e}")))
}

fn view(t: &HostTensor) -> std::result::Result<TensorView<'_>, String> {
    let shape = stored_shape(t.dtype, &t.dims).iter().map(|&n| n as usize).collect();
    TensorView::new(file_dtype(t.dtype), shape, &t.data).map_err(|e| e.to_string())
}

/// The shape in a file: `i4` and `u4` are two a byte.
pub fn stored_shape(dtype: DType, dims: &[i64]) -> Vec<i64> {
    let mut shape = dims.to_vec();
    if let (4, Some(last)) = (dtype.bits(), shape.last_mut()) {
        *last = (*last + 1) / 2;
    }
    shape
}

fn file_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::E4M3 => Dtype::F8_E4M3,
        DType::E5M2 => Dtype::F8_E5M2,
        DType::I64 => Dtype::I64,
        DType::I32 => Dtype::I32,
        DType::I16 => Dtype::I16,
        DType::I8 => Dtype::I8,
        DType::U8 | DType::I4 | DType::U4 => Dtype::U8,
        DType::Bool => Dtype::BOOL,
    }
}

/// The array in the bytes of an npy file (format 1 to 3, little endian).
pub fn parse_npy(bytes: &[u8]) -> std::result::Result<Stored, String> {
    let rest = bytes.strip_prefix(b"\x93NUMPY").ok_or("not an npy file")?;
    let (version, rest) = rest.split_at_checked(2).ok_or("the file ends in its head")?;
    let wide = if version[0] >= 2 { 4 } else { 2 };
    let (length, rest) = rest.split_at_checked(wide).ok_or("the file ends in its head")?;
    let length = length.iter().rev().fold(0usize, |n, &b| n << 8 | b as usize);
    let (head, data) = rest.split_at_checked(length).ok_or("the file ends in its head")?;
    let head = std::str::from_utf8(head).map_err(|_| "its head is not text")?;
    if field(head, "fortran_order")?.starts_with("True") {
        return Err("it is in Fortran order: save numpy.ascontiguousarray(x)".into());
    }
    let dtypes = npy_dtypes(field(head, "descr")?)?;
    let shape = npy_shape(field(head, "shape")?)?;
    let wanted = shape
        .iter()
        .try_fold(dtypes[0].bits() as i64 / 8, |n, &d| n.checked_mul(d))
        .ok_or("its shape is too large")?;
    if data.len() as i64 != wanted {
        return Err(format!("it has {} bytes of data and its shape {shape:?} needs {wanted}", data.len()));
    }
    Ok(Stored { called: dtypes[0].name().into(), dtypes, shape, data: data.to_vec() })
}

/// What stands after `'name':` in the head's dictionary.
fn field<'a>(head: &'a str, name: &str) -> std::result::Result<&'a str, String> {
    let quoted = [format!("'{name}'"), format!("\"{name}\"")];
    let after = quoted.iter().find_map(|q| head.split_once(q.as_str()));
    let value = after.and_then(|(_, rest)| rest.trim_start().strip_prefix(':'));
    value.map(str::trim_start).ok_or_else(|| format!("its head has no {name}"))
}

/// `'<f4'` and its like. numpy has no bf16 and no fp8: ml_dtypes writes them as plain bytes of that width.
fn npy_dtypes(value: &str) -> std::result::Result<Vec<DType>, String> {
    let quote = value.chars().next().filter(|c| matches!(c, '\'' | '"')).ok_or("its dtype is a record")?;
    let name = value[1..].split(quote).next().unwrap_or("");
    if name.starts_with('>') {
        return Err(format!("its dtype {name} is big endian"));
    }
    match name.trim_start_matches(['<', '|', '=']) {
        "f8" => Ok(vec![DType::F64]),
        "f4" => Ok(vec![DType::F32]),
        "f2" => Ok(vec![DType::F16]),
        "V2" | "bfloat16" => Ok(vec![DType::BF16]),
        "V1" => Ok(vec![DType::E4M3, DType::E5M2]),
        "f1" | "float8_e4m3fn" => Ok(vec![DType::E4M3]),
        "float8_e5m2" => Ok(vec![DType::E5M2]),
        "i8" => Ok(vec![DType::I64]),
        "i4" => Ok(vec![DType::I32]),
        "i2" => Ok(vec![DType::I16]),
        "i1" => Ok(vec![DType::I8]),
        "u1" => Ok(vec![DType::U8, DType::I4, DType::U4]),
        "b1" => Ok(vec![DType::Bool]),
        _ => Err(format!("its dtype {name} is none of the language's")),
    }
}

/// `(3, 4)`, `(3,)`, `()`.
fn npy_shape(value: &str) -> std::result::Result<Vec<i64>, String> {
    let inside = value.strip_prefix('(').and_then(|v| v.split_once(')')).ok_or("its shape is not a tuple")?.0;
    let numbers = inside.split(',').map(str::trim).filter(|n| !n.is_empty());
    let shape = numbers.map(|n| n.parse::<i64>().ok().filter(|&n| n >= 0)).collect::<Option<Vec<_>>>();
    shape.ok_or_else(|| format!("its shape ({inside}) is not a list of sizes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn npy(head: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(head.len() as u16).to_le_bytes());
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    const HEAD: &str = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }          \n";

    #[test]
    fn npy_as_numpy_writes_it() {
        let t = parse_npy(&npy(HEAD, &[0, 0, 128, 63, 0, 0, 0, 64])).unwrap();
        assert_eq!((t.dtypes, t.shape, t.data.len()), (vec![DType::F32], vec![2, 1], 8));
        let scalar = "{'descr': '|b1', 'fortran_order': False, 'shape': (), }";
        assert_eq!(parse_npy(&npy(scalar, &[1])).unwrap().shape, Vec::<i64>::new());
    }

    #[test]
    fn damaged_npy_says_what_is_damaged() {
        let whole = npy(HEAD, &[0; 8]);
        for cut in 0..whole.len() {
            assert!(parse_npy(&whole[..cut]).is_err(), "cut at {cut}");
        }
        let says = |head: &str, word: &str| {
            let why = parse_npy(&npy(head, &[0; 8])).unwrap_err();
            assert!(why.contains(word), "{why}");
        };
        says(&HEAD.replace("False", "True"), "Fortran");
        says(&HEAD.replace("<f4", ">f4"), "big endian");
        says(&HEAD.replace("<f4", "<c8"), "c8");
        says(&HEAD.replace("(2, 1)", "(2, -1)"), "sizes");
        says(&HEAD.replace("(2, 1)", "(4611686018427387904, 4)"), "too large");
        says(&HEAD.replace("(2, 1)", "(3, 1)"), "needs 12");
    }

    #[test]
    fn safetensors_round_trip_and_every_cut_fails() {
        let dir = std::env::temp_dir().join(format!("girih-files-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("t.safetensors");
        let tensors: BTreeMap<_, _> = DTYPES
            .iter()
            .map(|r| (r.name.to_string(), HostTensor::zeros(r.dtype, &[2, 3])))
            .chain([("empty".to_string(), HostTensor::zeros(DType::F32, &[0, 4]))])
            .chain([("scalar".to_string(), HostTensor::zeros(DType::F32, &[]))])
            .collect();
        write_safetensors(&path, &tensors).unwrap();
        let back = read_safetensors(&path).unwrap();
        for (name, t) in &tensors {
            let b = &back[name];
            assert!(
                b.dtypes.contains(&t.dtype) && b.shape == stored_shape(t.dtype, &t.dims) && b.data == t.data
            );
        }
        let bytes = std::fs::read(&path).unwrap();
        for cut in 0..bytes.len() {
            assert!(parse_safetensors(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn an_output_that_cannot_be_written_leaves_nothing() {
        let path = std::env::temp_dir().join("girih-no-such-folder/out.safetensors");
        let why = write_safetensors(&path, &BTreeMap::new()).unwrap_err().to_string();
        assert!(why.contains("cannot be written") && why.contains("out.safetensors"), "{why}");
    }

    proptest! {
        #[test]
        fn readers_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_npy(&bytes);
            let _ = parse_safetensors(&bytes);
        }

        #[test]
        fn near_misses_never_panic(at in 0usize..80, with in any::<u8>()) {
            let mut bytes = npy(HEAD, &[0; 8]);
            bytes[at] = with;
            let _ = parse_npy(&bytes);
        }

        #[test]
        fn changed_safetensors_never_panic(edits in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6), cut in any::<usize>()) {
            let tensor = HostTensor::zeros(DType::F32, &[2, 3]);
            let mut bytes = safetensors::serialize([("x", view(&tensor).unwrap())], None).unwrap();
            for (at, with) in edits {
                let at = at % bytes.len();
                bytes[at] = with;
            }
            bytes.truncate(bytes.len() - cut % 3);
            for t in parse_safetensors(&bytes).into_iter().flat_map(|all| all.into_values()) {
                prop_assert!(t.shape.iter().all(|&n| n >= 0) && t.data.len() <= bytes.len());
            }
        }

        #[test]
        fn shapes_agree_with_their_bytes(shape in proptest::collection::vec(0u64..1 << 40, 0..4), len in 0usize..64) {
            let dims: String = shape.iter().map(|n| format!("{n}, ")).collect();
            let head = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({dims}), }}");
            if let Ok(t) = parse_npy(&npy(&head, &vec![0; len])) {
                prop_assert_eq!(t.shape.iter().product::<i64>() * 4, len as i64);
            }
        }

        #[test]
        fn heads_never_panic(head in ".{0,80}") {
            let _ = parse_npy(&npy(&head, &[0; 8]));
            let _ = parse_npy(&npy(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {head}}}"), &[]));
        }
    }
}
