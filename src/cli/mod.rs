//! The command line. Exit codes: 0 right, 1 wrong or refused input, 2 usage.

mod args;
mod bench;
mod build;
mod check;
mod db;
mod doctor;
mod emit;
mod environment;
mod report;
mod run;
mod tune;

use args::{Cli, Command};
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// How a command ended.
pub enum Outcome {
    Right,
    Wrong,
}

/// Room for the recursion over deeply nested expressions, which debug builds need.
const STACK_BYTES: usize = 256 << 20;

/// Runs the command line on a thread with a large stack. A panic is a fault of ours and is told as one.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let e = with_remedy(e);
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
    };
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or(String::new(), |l| format!(" ({}:{})", l.file(), l.line()));
        let what = info.payload();
        let text = what.downcast_ref::<&str>().copied().or(what.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("no message");
        if text.starts_with("failed printing to") {
            // The reader has gone away, as in `girih … | head`: that is no fault.
            return;
        }
        let mut stderr = std::io::stderr();
        let _ = writeln!(stderr, "error: girih met a fault of its own{place}: {text}");
        let _ =
            writeln!(stderr, "Please report it with the .tile file and the command: nothing was written.");
    }));
    let work = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || run(cli.command));
    let outcome = work.map(std::thread::JoinHandle::join);
    match outcome {
        Ok(Ok(Outcome::Right)) => ExitCode::SUCCESS,
        Ok(Ok(Outcome::Wrong) | Err(_)) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: no thread to work on: {e}");
            ExitCode::FAILURE
        }
    }
}

/// A usage error with what was meant, where that can be told.
fn with_remedy(mut e: clap::Error) -> clap::Error {
    let words: Vec<String> = std::env::args_os().skip(2).map(|w| w.to_string_lossy().into_owned()).collect();
    let of_an_op = ["run", "emit", "why", "bench", "tune", "build"];
    if std::env::args_os().nth(1).is_some_and(|command| of_an_op.iter().any(|c| *c == command))
        && let Some(ContextValue::String(word)) = e.get(ContextKind::InvalidArg)
        && let Some(remedy) = args::remedy(&words, word)
    {
        e.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![remedy.into()]));
    }
    e
}

/// A crash or a hang of NVRTC costs a child. The tuner's workers are children themselves, with limits of their own.
fn compile_in_children(command: &Command) {
    if matches!(command, Command::TuneWorker | Command::CompileWorker) {
        return;
    }
    let limit = environment::compile_limit();
    // 0: no child, for who looks for a fault of NVRTC itself.
    if limit.is_zero() {
        return;
    }
    if let Ok(program) = std::env::current_exe() {
        girih_runtime::child::compile_in_children(vec![program.into(), "compile-worker".into()], limit);
    }
}

fn compile_worker() -> girih::Result<Outcome> {
    let served = girih_runtime::child::serve(&mut std::io::stdin().lock(), &mut std::io::stdout().lock());
    Ok(if served.is_ok() { Outcome::Right } else { Outcome::Wrong })
}

fn run(command: Command) -> Outcome {
    // Workers are started by a process that has looked.
    if !matches!(command, Command::TuneWorker | Command::CompileWorker)
        && let Err(e) = environment::check()
    {
        let _ = writeln!(std::io::stderr(), "{e}");
        return Outcome::Wrong;
    }
    compile_in_children(&command);
    let done = match command {
        Command::Check { files } => return check::check(&files),
        Command::Fmt { files, check } => return check::fmt(&files, check),
        Command::Doctor { json } => return doctor::doctor(json),
        Command::Explain { code } => return check::explain(&code),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "girih", &mut std::io::stdout());
            return Outcome::Right;
        }
        Command::Emit { op, stage } => emit::emit(&op, stage),
        Command::Why { op } => emit::why(&op),
        Command::Run(args) => run::run(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Tune(args) => tune::tune(&args),
        Command::Build(args) => build::build(&args),
        Command::Db(command) => db::db(&command),
        Command::TuneWorker => tune::worker(),
        Command::CompileWorker => compile_worker(),
    };
    done.unwrap_or_else(|e| {
        let _ = writeln!(std::io::stderr(), "{e}");
        Outcome::Wrong
    })
}

/// Whether diagnostics on stderr may have colors.
fn color() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Prints to stdout; a reader that has gone away is not our fault.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
