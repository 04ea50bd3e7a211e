//! What the command line takes.

use clap::{Args, Parser, Subcommand, ValueEnum};
use girih::device::{DeviceName, parse_target};
use girih_compiler::ir::plan::Form;
use girih_compiler::vocab::target::Target;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Parser)]
#[command(name = "girih", version, about = "Compiles .tile programs to CUDA kernels, and runs and checks them", long_about = None)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check programs: names, types, ranges, bounds
    Check {
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Format programs in place
    Fmt {
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Write nothing; tell whether something is to be formatted
        #[arg(long)]
        check: bool,
    },
    /// Print a stage on the way from text to kernel
    Emit {
        #[command(flatten)]
        op: OpArgs,
        #[arg(long, value_enum, default_value_t = StageArg::Cuda)]
        stage: StageArg,
    },
    /// Run an op on given or random inputs
    Run(RunArgs),
    /// Time the peers' suite, or an op of one's own, on a GPU with a cold L2
    Bench(BenchArgs),
    /// Search for the best configuration of an op, and keep it
    Tune(TuneArgs),
    /// Build what runs without the compiler: cubins, manifest, a C launcher
    Build(BuildArgs),
    /// What tuning has found: list, show, export, merge, prune
    #[command(subcommand)]
    Db(DbCommand),
    /// Compile and measure for `tune`, which starts it
    #[command(hide = true)]
    TuneWorker,
    /// Compile for another girih, which starts it
    #[command(hide = true)]
    CompileWorker,
    /// Report driver, GPUs, NVRTC and cache, and what is wrong
    Doctor {
        /// For programs to read
        #[arg(long)]
        json: bool,
    },
    /// Explain an error code
    Explain { code: String },
    /// Tell which rules made an op what it became, and why something was not fused
    Why {
        #[command(flatten)]
        op: OpArgs,
    },
    /// Print a completion script
    Completions { shell: clap_complete::Shell },
}

/// Which op, for what sizes, how.
#[derive(Args, Debug)]
pub struct OpArgs {
    /// The program
    pub file: PathBuf,
    /// The op; may be left out where the file has one
    #[arg(long)]
    pub op: Option<String>,
    /// A size: M=1024
    #[arg(long = "dim", value_name = "NAME=N", value_parser = size)]
    pub dims: Vec<(String, i64)>,
    /// A const, a dtype parameter or a run-time scalar: causal=true
    #[arg(long = "const", value_name = "NAME=VALUE", value_parser = pair)]
    pub consts: Vec<(String, String)>,
    /// What sim and emit compile for [default: sm_90a]
    #[arg(long, value_name = "sm_XX", value_parser = target)]
    pub target: Option<Target>,
    /// A file with `tile` blocks, as `girih tune` prints them, or with a line `kernel.setting axis = value` for each setting; or
    /// each: every schedule in turn
    #[arg(long, value_name = "each|FILE")]
    pub schedule: Option<String>,
    /// Try this kernel form first, for tests and comparisons: map, row, contract, fold, scan, scatter, sort, thread, block or
    /// step. Kernels that it cannot take keep their own
    #[arg(long, value_name = "NAME", value_parser = form)]
    pub form: Option<Form>,
}

#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    pub op: OpArgs,
    /// An input from a file: x=a.npy or x=w.safetensors:key
    #[arg(long = "input", value_name = "NAME=FILE[:KEY]", value_parser = pair)]
    pub inputs: Vec<(String, String)>,
    /// Inputs by their names from a safetensors file
    #[arg(long, value_name = "FILE")]
    pub input_file: Option<PathBuf>,
    /// Write results and updated tensors to a safetensors file
    #[arg(long, value_name = "FILE")]
    pub output_file: Option<PathBuf>,
    /// For random inputs
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_parser = seed)]
    pub seed: u64,
    /// Compare with the definition
    #[arg(long)]
    pub check: bool,
    /// For programs to read
    #[arg(long)]
    pub json: bool,
    /// Only what FILE.lock holds (girih tune --freeze writes it)
    #[arg(long, conflicts_with_all = ["schedule", "form"])]
    pub locked: bool,
    /// auto, sim, ref, cuda or cuda:N
    #[arg(long, default_value = "auto", value_parser = device)]
    pub device: DeviceName,
}

/// The remedy for `--only` without `--suite`.
pub const ONLY: &str = "it picks workloads of a suite by their names: give --suite FILE as well";

#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(flatten)]
    pub op: Option<OpArgs>,
    /// Workloads as the peers' benchmark knows them: a JSON list of {id, kind, args}
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub suite: Option<PathBuf>,
    /// Workloads whose id matches
    #[arg(long, value_name = "REGEX")]
    pub only: Option<String>,
    /// Write JSON lines here instead of to standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Do not compare results with the definition first, which is done at small sizes of the same classes
    #[arg(long)]
    pub no_check: bool,
    /// cuda or cuda:N
    #[arg(long, default_value = "auto", value_parser = device)]
    pub device: DeviceName,
}

#[derive(Args, Debug)]
pub struct BuildArgs {
    #[command(flatten)]
    pub op: OpArgs,
    /// The folder to write to
    #[arg(short = 'o', long, value_name = "DIR")]
    pub out: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum DbCommand {
    /// One line a record
    List {
        /// Records of this op
        #[arg(long)]
        op: Option<String>,
        /// For programs to read, a JSON value a line
        #[arg(long)]
        json: bool,
    },
    /// One record whole
    Show {
        /// Its name, or the beginning of it, as `list` prints it
        name: String,
    },
    /// Copy records to a folder, to be shipped or merged
    Export {
        folder: PathBuf,
        /// Records of this op
        #[arg(long)]
        op: Option<String>,
    },
    /// Take what other stores have
    Merge {
        #[arg(required = true)]
        folders: Vec<PathBuf>,
    },
    /// Remove damaged records, those of other compilers, and on request more
    Prune {
        /// Records of this op
        #[arg(long)]
        op: Option<String>,
        /// Every record
        #[arg(long)]
        all: bool,
    },
}

#[derive(Args, Debug)]
pub struct TuneArgs {
    #[command(flatten)]
    pub op: OpArgs,
    /// Print the space and its predicted best, and measure nothing
    #[arg(long, conflicts_with_all = ["report", "log", "freeze"])]
    pub space: bool,
    /// Tune the workloads of a suite whose operators are in the program, as bench does (tests/peers/suite.json with
    /// src/bench/kinds.tile)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["op", "dims", "consts"])]
    pub suite: Option<PathBuf>,
    /// Only the workloads whose names match this regular expression
    #[arg(long, value_name = "REGEX")]
    pub only: Option<String>,
    /// Stop after this time: 60s, 5m
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub budget: Option<Duration>,
    /// Stop after so many configurations were measured
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub trials: Option<u32>,
    /// Only the i-th of n parts of the space, for a job over several machines: 1/4
    #[arg(long, value_name = "I/N", value_parser = shard)]
    pub shard: Option<(u32, u32)>,
    /// Write what was chosen to FILE.lock
    #[arg(long)]
    pub freeze: bool,
    /// Write the report's page here
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Write every measurement here, a JSON value a line
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Measure every configuration that is left after pruning, at most so many
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub exhaustive: Option<u32>,
    /// For inputs, and for ties in the search
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_parser = seed)]
    pub seed: u64,
    /// Tune again what is already known
    #[arg(long)]
    pub force: bool,
    /// auto, sim, cuda, cuda:N, or several: cuda:0,cuda:1
    #[arg(long, default_value = "auto")]
    pub device: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StageArg {
    Ast,
    Graph,
    Egraph,
    Plan,
    Tile,
    Simt,
    Cuda,
    Ptx,
    /// The GPU's own code, by cuobjdump.
    Sass,
}

/// `NAME=VALUE`.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name.into(), value.into())),
        _ => Err("write NAME=VALUE".into()),
    }
}

/// `NAME=N`, underscores allowed in the number.
fn size(text: &str) -> Result<(String, i64), String> {
    let (name, value) = pair(text)?;
    match value.replace('_', "").parse() {
        Ok(n) if n >= 0 => Ok((name, n)),
        _ if text.contains(',') => {
            let each: Vec<String> = text.split(',').map(|one| format!("--dim {}", one.trim())).collect();
            Err(format!("each size has a --dim of its own: write {}", each.join(" ")))
        }
        _ => Err(format!("{value} is not a size: write a whole number from 0, as --dim {name}=1024")),
    }
}

fn seed(text: &str) -> Result<u64, String> {
    text.replace('_', "").parse().map_err(|_| "a seed is a whole number from 0, as --seed 7".into())
}

/// What is meant by a word that no option takes: a further `NAME=VALUE`, or one that is written as two words.
pub fn remedy(words: &[String], unexpected: &str) -> Option<String> {
    const PAIRS: [&str; 3] = ["--dim", "--const", "--input"];
    if unexpected.starts_with('-') {
        return None;
    }
    let at = words.iter().position(|w| w == unexpected)?;
    let from = words[..at].iter().rposition(|w| w.starts_with('-'));
    let (option, mut rest) = match from {
        Some(i) if PAIRS.contains(&words[i].as_str()) => (words[i].as_str(), &words[i + 1..]),
        Some(i) => {
            let (option, _) = words[i].split_once('=')?;
            (PAIRS.into_iter().find(|p| *p == option)?, &words[i + 1..])
        }
        None => ("--dim", &words[at..]),
    };
    let is_value =
        |v: &str| !v.starts_with('-') && (option != "--dim" || v.starts_with(|c: char| c.is_ascii_digit()));
    let mut said = Vec::new();
    loop {
        rest = match rest {
            [one, rest @ ..] if pair(one).is_ok() => {
                said.push(format!("{option} {one}"));
                rest
            }
            [name, value, rest @ ..] if is_name(name) && is_value(value) => {
                said.push(format!("{option} {name}={value}"));
                rest
            }
            _ => break,
        }
    }
    (!said.is_empty()).then(|| format!("each has a {option} of its own: write {}", said.join(" ")))
}

fn is_name(word: &str) -> bool {
    let mut letters = word.chars();
    letters.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && letters.all(|c| c.is_alphanumeric() || c == '_')
}

/// `90`, `90s`, `5m`, `1h`, `500ms`.
fn time(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let unit = match &text[end..] {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("write a time: 500ms, 60s, 5m, 1h".into()),
    };
    let n: f64 = text[..end].parse().map_err(|_| "write a time: 500ms, 60s, 5m, 1h".to_string())?;
    Duration::try_from_secs_f64(n * unit).map_err(|e| e.to_string())
}

/// `I/N`, from 1.
fn shard(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    parts.filter(|(i, n)| (1..=*n).contains(i)).ok_or_else(|| "write I/N with I from 1 to N: 1/4".into())
}

fn target(text: &str) -> Result<Target, String> {
    parse_target(text).map_err(|e| e.text())
}

fn device(text: &str) -> Result<DeviceName, String> {
    DeviceName::parse(text).map_err(|e| e.text())
}

fn form(text: &str) -> Result<Form, String> {
    let known = || format!("there is no form {text}: write one of {}", Form::ALL.map(Form::name).join(", "));
    Form::ALL.into_iter().find(|f| f.name() == text).ok_or_else(known)
}
