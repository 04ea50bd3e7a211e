//! The command line, by small text files in `tests/cli`: each makes files in a folder of its own, runs `girih`
//! there, and says what must come of it. A line each:
//!
//! ```text
//! # a remark
//! file NAME            a text file; its lines follow, each after `| `
//! safetensors NAME x=f32[2, 3] y=i64[4]   zeros, written as a valid file
//! npy NAME f32[2, 3]   zeros, written as a valid file
//! cut NAME N           keeps only the first N bytes
//! env NAME=VALUE       for the runs that follow
//! run ARGUMENTS        runs girih; what follows is about this run
//! exit N               its exit code (0 if not said)
//! out TEXT · err TEXT  stdout, stderr hold this; `{dir}` is the folder
//! no out TEXT · no err TEXT
//! exists NAME · missing NAME
//! ```
//!
//! No run may panic, whatever it is given.

use girih_compiler::host::HostTensor;
use girih_compiler::vocab::dtype::DType;
use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn main() {
    let options = Arguments::from_args();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli");
    let mut cases: Vec<PathBuf> =
        fs::read_dir(folder).expect("the cases").flatten().map(|e| e.path()).collect();
    cases.sort();
    let trials = cases.into_iter().map(|path| {
        let name = path.file_stem().map_or(String::new(), |s| s.to_string_lossy().into_owned());
        Trial::test(name, move || case(&path))
    });
    libtest_mimic::run(&options, trials.collect()).exit();
}

struct Case {
    dir: PathBuf,
    env: Vec<(String, String)>,
    /// The last run, with its line and whether its exit code was asked for.
    last: Option<(String, Output, bool)>,
}

fn case(path: &Path) -> Result<(), Failed> {
    let text = fs::read_to_string(path)?;
    let stem = path.file_stem().map_or(String::new(), |s| s.to_string_lossy().into_owned());
    let dir = std::env::temp_dir().join(format!("girih-cli-{stem}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir)?;
    let mut case = Case { dir, env: Vec::new(), last: None };
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut body = String::new();
        while let Some(more) = lines.next_if(|l| l.starts_with('|')) {
            body += more.strip_prefix("| ").unwrap_or(&more[1..]);
            body.push('\n');
        }
        case.step(word, rest, &body).map_err(|e| Failed::from(format!("`{line}`: {e}{}", case.said())))?;
    }
    case.exit_was_zero().map_err(|e| Failed::from(format!("{e}{}", case.said())))?;
    fs::remove_dir_all(&case.dir)?;
    Ok(())
}

impl Case {
    fn step(&mut self, word: &str, rest: &str, body: &str) -> Result<(), String> {
        match word {
            "" | "#" => Ok(()),
            "file" => fs::write(self.dir.join(rest), body).map_err(|e| e.to_string()),
            "safetensors" => self.safetensors(rest),
            "npy" => self.npy(rest),
            "cut" => self.cut(rest),
            "env" => {
                let (name, value) = rest.split_once('=').ok_or("write NAME=VALUE")?;
                self.env.push((name.into(), self.expand(value)));
                Ok(())
            }
            "run" => self.run(rest),
            "exit" => self.exit(rest),
            "out" => self.has(false, rest, true),
            "err" => self.has(true, rest, true),
            "no" => match rest.split_once(' ') {
                Some(("out", text)) => self.has(false, text, false),
                Some(("err", text)) => self.has(true, text, false),
                _ => Err("write no out or no err".into()),
            },
            "exists" => self.file(rest, true),
            "missing" => self.file(rest, false),
            _ => Err("no such step".into()),
        }
    }

    fn expand(&self, text: &str) -> String {
        text.replace("{dir}", &self.dir.display().to_string())
    }

    fn run(&mut self, arguments: &str) -> Result<(), String> {
        self.exit_was_zero()?;
        let arguments = self.expand(arguments);
        let mut command = Command::new(env!("CARGO_BIN_EXE_girih"));
        command.args(arguments.split_whitespace()).current_dir(&self.dir);
        command.env("GIRIH_CACHE", self.dir.join("cache")).env("NO_COLOR", "1");
        let output = command.envs(self.env.iter().cloned()).output().map_err(|e| e.to_string())?;
        self.last = Some((arguments, output, false));
        let words = ["panicked at", "a fault of its own", "RUST_BACKTRACE"];
        match words.iter().find(|w| self.text(true).contains(*w)) {
            Some(_) => Err("it panicked".into()),
            None => Ok(()),
        }
    }

    fn text(&self, stderr: bool) -> String {
        let Some((_, output, _)) = &self.last else { return String::new() };
        String::from_utf8_lossy(if stderr { &output.stderr } else { &output.stdout }).into_owned()
    }

    fn said(&self) -> String {
        let Some((line, output, _)) = &self.last else { return String::new() };
        let code = output.status.code();
        format!("\ngirih {line}\nexit {code:?}\nstdout:\n{}\nstderr:\n{}", self.text(false), self.text(true))
    }

    fn exit(&mut self, code: &str) -> Result<(), String> {
        let (_, output, asked) = self.last.as_mut().ok_or("nothing was run")?;
        *asked = true;
        let code: i32 = code.parse().map_err(|_| "not a number")?;
        if output.status.code() == Some(code) { Ok(()) } else { Err("another exit code".into()) }
    }

    /// A run whose exit code was not asked for must have been right.
    fn exit_was_zero(&self) -> Result<(), String> {
        match &self.last {
            Some((_, output, false)) if output.status.code() != Some(0) => {
                Err("another exit code than 0".into())
            }
            _ => Ok(()),
        }
    }

    fn has(&self, stderr: bool, text: &str, wanted: bool) -> Result<(), String> {
        let there = self.text(stderr).contains(&self.expand(text));
        if there == wanted { Ok(()) } else { Err(if wanted { "not said" } else { "said" }.into()) }
    }

    fn file(&self, name: &str, wanted: bool) -> Result<(), String> {
        if self.dir.join(name).exists() == wanted { Ok(()) } else { Err("no".into()) }
    }

    fn safetensors(&self, rest: &str) -> Result<(), String> {
        let (name, tensors) = rest.split_once(' ').unwrap_or((rest, ""));
        let mut all = BTreeMap::new();
        for t in tensors.split_inclusive(']').map(str::trim).filter(|t| !t.is_empty()) {
            let (key, spec) = t.split_once('=').ok_or("write x=f32[2, 3]")?;
            all.insert(key.to_string(), zeros(spec)?);
        }
        girih::files::write_safetensors(&self.dir.join(name), &all).map_err(|e| e.to_string())
    }

    fn npy(&self, rest: &str) -> Result<(), String> {
        let (name, spec) = rest.split_once(' ').ok_or("write npy NAME f32[2, 3]")?;
        let t = zeros(spec)?;
        let kind = if t.dtype.is_float() { 'f' } else { 'i' };
        let dims: String = t.dims.iter().map(|d| format!("{d}, ")).collect();
        let bytes = t.dtype.bits() / 8;
        let head = format!("{{'descr': '<{kind}{bytes}', 'fortran_order': False, 'shape': ({dims}), }}\n");
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend_from_slice(&(head.len() as u16).to_le_bytes());
        file.extend_from_slice(head.as_bytes());
        file.extend_from_slice(&t.data);
        fs::write(self.dir.join(name), file).map_err(|e| e.to_string())
    }

    fn cut(&self, rest: &str) -> Result<(), String> {
        let (name, n) = rest.split_once(' ').ok_or("write cut NAME N")?;
        let path = self.dir.join(name);
        let mut bytes = fs::read(&path).map_err(|e| e.to_string())?;
        bytes.truncate(n.parse().map_err(|_| "not a number")?);
        fs::write(path, bytes).map_err(|e| e.to_string())
    }
}

/// `f32[2, 3]`.
fn zeros(spec: &str) -> Result<HostTensor, String> {
    let (dtype, dims) =
        spec.trim().strip_suffix(']').and_then(|s| s.split_once('[')).ok_or("write f32[2, 3]")?;
    let dtype = DType::parse(dtype).ok_or("no such dtype")?;
    let dims = dims.split(',').map(str::trim).filter(|d| !d.is_empty()).map(str::parse);
    let dims: Vec<i64> = dims.collect::<Result<_, _>>().map_err(|_| "a dim is no number")?;
    Ok(HostTensor::zeros(dtype, &dims))
}
