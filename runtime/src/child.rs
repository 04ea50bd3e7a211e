//! NVRTC in a process of its own, for programs that must outlive it: a compiler that crashes or never ends is an error
//! like any other. The program names how such a process is started ([`compile_in_children`]); where none is named, NVRTC runs in
//! the process that asks.
//!
//! A process serves one compile after the other, so that the library is loaded once. A request is three lengths (8 bytes each, low
//! byte first) and the bytes: what is wanted (`cubin` or `ptx`) with the architecture, the program's name, the source. The answer is a
//! byte (1: made) and two lengths with the bytes: the log, and the code. What NVRTC refuses is compiled again in the asking process,
//! which gives the typed error: it did not crash the other one.

use crate::error::{Error, Result};
use crate::locate;
use crate::nvrtc::{CompileReport, Compiled, Nvrtc};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How a process is started, and how long a compile may take.
struct Starter {
    command: Vec<OsString>,
    limit: Duration,
    /// Processes that wait for work.
    idle: Mutex<Vec<Process>>,
}

static STARTER: OnceLock<Starter> = OnceLock::new();

/// From now on this process compiles in children, which it starts so. The first caller's word holds.
pub fn compile_in_children(command: Vec<OsString>, limit: Duration) {
    let _ = STARTER.set(Starter { command, limit, idle: Mutex::default() });
}

/// Source to a cubin, in a child where one is named.
pub fn compile(program: &str, source: &str, arch: &str) -> Result<Compiled> {
    let start = Instant::now();
    match asked("cubin", program, source, arch)? {
        Some((log, cubin)) => {
            let report = CompileReport { time: start.elapsed(), ..CompileReport::parse(&log) };
            Ok(Compiled { cubin, report })
        }
        None => Nvrtc::get()?.compile(program, source, arch),
    }
}

/// Source to PTX, the same way.
pub fn ptx(program: &str, source: &str, arch: &str) -> Result<String> {
    match asked("ptx", program, source, arch)? {
        Some((_, text)) => Ok(String::from_utf8_lossy(&text).into_owned()),
        None => Nvrtc::get()?.ptx(program, source, arch),
    }
}

/// What a child made; `None` where there is no child to ask, or it was refused.
fn asked(what: &str, program: &str, source: &str, arch: &str) -> Result<Option<(String, Vec<u8>)>> {
    let Some(starter) = STARTER.get() else { return Ok(None) };
    // A library that is not there is told without a process.
    let library = locate::nvrtc()?;
    let waiting = starter.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let started = waiting.map_or_else(|| Process::start(&starter.command), Ok);
    // Where no process can be started, there is still this one.
    let Ok(mut process) = started else { return Ok(None) };
    let answer = process.ask(&[&format!("{what} {arch}"), program, source], starter.limit);
    match answer {
        Ok(made) => {
            starter.idle.lock().unwrap_or_else(PoisonError::into_inner).push(process);
            Ok(made)
        }
        Err(how) => Err(Error::CompilerDied { program: program.to_string(), path: library, how }),
    }
}

type Answer = Option<(String, Vec<u8>)>;

struct Process {
    child: Child,
    input: ChildStdin,
    answers: Receiver<Answer>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has nothing to lose; one that has ended already is only waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    fn start(command: &[OsString]) -> std::io::Result<Process> {
        let [program, arguments @ ..] = command else {
            return Err(std::io::Error::other("no program is named"));
        };
        let mut child =
            Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(input), Some(mut output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(std::io::Error::other("the process has no pipes"));
        };
        let (say, answers) = channel();
        std::thread::spawn(move || {
            while let Ok(answer) = read_answer(&mut output) {
                if say.send(answer).is_err() {
                    break;
                }
            }
        });
        Ok(Process { child, input, answers })
    }

    fn ask(&mut self, parts: &[&str; 3], limit: Duration) -> std::result::Result<Answer, String> {
        let mut bytes = Vec::new();
        parts.iter().for_each(|p| bytes.extend((p.len() as u64).to_le_bytes()));
        parts.iter().for_each(|p| bytes.extend(p.as_bytes()));
        // A pipe that is closed tells itself below.
        let _ = self.input.write_all(&bytes).and_then(|()| self.input.flush());
        match self.answers.recv_timeout(limit) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("did not end within {:.0} s", limit.as_secs_f64().max(1.0)))
            }
            Err(RecvTimeoutError::Disconnected) => {
                let how = self.child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
                Err(format!("crashed ({how})"))
            }
        }
    }
}

fn read_answer(from: &mut impl Read) -> std::io::Result<Answer> {
    let mut made = [0];
    from.read_exact(&mut made)?;
    let [log, code] = read_parts(from)?;
    Ok((made[0] == 1).then(|| (String::from_utf8_lossy(&log).into_owned(), code)))
}

/// So many lengths, and their bytes.
fn read_parts<const N: usize>(from: &mut impl Read) -> std::io::Result<[Vec<u8>; N]> {
    let mut lengths = [0u64; N];
    for n in &mut lengths {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes)?;
        *n = u64::from_le_bytes(bytes);
    }
    let mut parts = [const { Vec::new() }; N];
    for (part, n) in parts.iter_mut().zip(lengths) {
        // What does not come is no memory taken.
        from.take(n).read_to_end(part)?;
        if part.len() as u64 != n {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(parts)
}

/// The child's side: compiles what it is asked until there is no more.
pub fn serve(from: &mut impl Read, to: &mut impl Write) -> std::io::Result<()> {
    while let Ok([what, program, source]) = read_parts::<3>(from) {
        let [what, program, source] =
            [what, program, source].map(|b| String::from_utf8_lossy(&b).into_owned());
        let made = Nvrtc::get().and_then(|nvrtc| match what.split_once(' ') {
            Some(("ptx", arch)) => Ok((String::new(), nvrtc.ptx(&program, &source, arch)?.into_bytes())),
            Some((_, arch)) => nvrtc.compile(&program, &source, arch).map(|c| (c.report.log, c.cubin)),
            None => Err(Error::argument("compile", "no architecture")),
        });
        let (right, (log, code)) = (u8::from(made.is_ok()), made.unwrap_or_default());
        to.write_all(&[right])?;
        to.write_all(&(log.len() as u64).to_le_bytes())?;
        to.write_all(&(code.len() as u64).to_le_bytes())?;
        to.write_all(log.as_bytes())?;
        to.write_all(&code)?;
        to.flush()?;
    }
    Ok(())
}
