//! Worker processes and what they are asked: each runs in a process of its own, is watched by a clock, and is replaced
//! when it crashes, hangs or loses its device. What that costs is the one configuration.

use crate::protocol::*;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a worker may take. The last word is the process's end.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub start: Duration,
    pub compile: Duration,
    pub run: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            start: Duration::from_secs(60),
            compile: Duration::from_secs(20),
            run: Duration::from_secs(30),
        }
    }
}

/// How workers are started: the program with its arguments.
#[derive(Clone, Debug)]
pub struct Starter {
    pub command: Vec<OsString>,
    pub limits: Limits,
}

/// A worker that is started when it is first asked, and again when it has ended.
pub struct Worker {
    starter: Starter,
    job: Job,
    process: Option<Process>,
    pub ready: Option<Ready>,
    /// Processes that ended before they should.
    pub lost: u32,
}

struct Process {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    words: Arc<Mutex<VecDeque<String>>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lines of a worker's errors that are kept.
const LAST_WORDS: usize = 12;

impl Process {
    fn start(starter: &Starter, job: &Job) -> Result<Process, Failure> {
        let failed = |e: std::io::Error| Failure::new(FailureKind::Other, format!("no worker starts: {e}"));
        let [program, arguments @ ..] = &starter.command[..] else {
            return Err(Failure::new(FailureKind::Other, "no worker is named"));
        };
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (Some(input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Failure::new(FailureKind::Other, "the worker has no pipes"));
        };
        let (say, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if say.send(line).is_err() {
                    break;
                }
            }
        });
        let words = Arc::new(Mutex::new(VecDeque::new()));
        let heard = words.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                let mut kept = heard.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_back(line);
                if kept.len() > LAST_WORDS {
                    kept.pop_front();
                }
            }
        });
        let mut process = Process { child, input, lines, words };
        let line = serde_json::to_string(job).map_err(|e| Failure::new(FailureKind::Other, e.to_string()))?;
        process.say(&line)?;
        Ok(process)
    }

    fn say(&mut self, line: &str) -> Result<(), Failure> {
        let sent = writeln!(self.input, "{line}").and_then(|()| self.input.flush());
        sent.map_err(|_| self.ended())
    }

    /// The next reply, or why there is none. After a failure the process is of no more use.
    fn hear(&mut self, limit: Duration, late: FailureKind) -> Result<Reply, Failure> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => serde_json::from_str(&line).map_err(|e| {
                Failure::new(FailureKind::Crash, format!("its words make no sense: {e}: {line}"))
            }),
            Err(RecvTimeoutError::Timeout) => {
                Err(Failure::new(late, format!("no answer in {:.1} s", limit.as_secs_f64())))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
        }
    }

    /// How the process ended, with its last words.
    fn ended(&mut self) -> Failure {
        let status = self.child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = if words.is_empty() { String::new() } else { format!(": {}", words.join(" / ")) };
        Failure::new(FailureKind::Crash, format!("the worker ended ({status}){said}"))
    }
}

impl Worker {
    pub fn new(starter: &Starter, job: Job) -> Worker {
        Worker { starter: starter.clone(), job, process: None, ready: None, lost: 0 }
    }

    /// Starts the process if there is none. A failure here is the job's own, not a configuration's.
    pub fn start(&mut self) -> Result<Ready, Failure> {
        if let (Some(_), Some(ready)) = (&self.process, &self.ready) {
            return Ok(ready.clone());
        }
        let mut process = Process::start(&self.starter, &self.job)?;
        match process.hear(self.starter.limits.start, FailureKind::Hang)? {
            Reply::Ready(ready) => {
                self.process = Some(process);
                self.ready = Some(ready.clone());
                Ok(ready)
            }
            Reply::Failed { failure, .. } => Err(failure),
            Reply::Done { .. } => Err(Failure::new(FailureKind::Crash, "an answer before a question")),
        }
    }

    /// Asks for one thing.
    pub fn ask(&mut self, request: &Request) -> Result<Done, Failure> {
        self.start()?;
        let limits = self.starter.limits;
        let (limit, late) = match request.task {
            Task::Compile => (limits.compile, FailureKind::SlowCompile),
            Task::Measure { .. } | Task::Parts | Task::Tail => (limits.run, FailureKind::Hang),
        };
        let line =
            serde_json::to_string(request).map_err(|e| Failure::new(FailureKind::Other, e.to_string()))?;
        let answer = self.exchange(&line, request.id, limit, late);
        if let Err(Failure {
            kind: FailureKind::Crash | FailureKind::Hang | FailureKind::SlowCompile, ..
        }) = answer
        {
            self.process = None;
            self.lost += 1;
        }
        answer
    }

    fn exchange(&mut self, line: &str, id: u64, limit: Duration, late: FailureKind) -> Result<Done, Failure> {
        let Some(process) = &mut self.process else {
            return Err(Failure::new(FailureKind::Crash, "there is no worker"));
        };
        if process.say(line).is_err() {
            // It ended after its last answer, as after an illegal access: this question was not heard yet.
            self.process = None;
            self.lost += 1;
            self.start()?;
        }
        let Some(process) = &mut self.process else {
            return Err(Failure::new(FailureKind::Crash, "there is no worker"));
        };
        if line.is_empty() {
            return Err(Failure::new(FailureKind::Other, "nothing was asked"));
        }
        let reply = match process.hear(limit, late) {
            // The pipe took the question, but the process was already on its way out.
            Err(f) if f.kind == FailureKind::Crash && self.starter.ends_after_fault(&f) => {
                self.process = None;
                self.lost += 1;
                self.start()?;
                let Some(process) = &mut self.process else { return Err(f) };
                process.say(line)?;
                process.hear(limit, late)?
            }
            other => other?,
        };
        match reply {
            Reply::Done { id: n, done } if n == id => Ok(done),
            Reply::Failed { id: n, failure } if n == id => Err(failure),
            other => {
                Err(Failure::new(FailureKind::Crash, format!("an answer to another question: {other:?}")))
            }
        }
    }
}

impl Starter {
    /// Workers end with this code once their context is lost, after they said so.
    fn ends_after_fault(&self, f: &Failure) -> bool {
        f.reason.contains("exit status: 3")
    }
}

/// Workers that share a list of requests: those that compile, and behind them those that measure.
pub struct Pool {
    pub compilers: Vec<Worker>,
    pub benches: Vec<Worker>,
    /// Nothing new is begun after this.
    pub deadline: Option<Instant>,
    /// Compilation that spills or loses speed fails, as long as the forms' own choices do neither.
    pub strict: bool,
    /// Only the first bench answers: what is to be told apart is measured on one device.
    pub alone: bool,
}

/// Answers by the request's number. What the deadline cut off is not there.
pub type Answers = BTreeMap<u64, Result<Done, Failure>>;

impl Pool {
    fn late(&self) -> bool {
        self.deadline.is_some_and(|d| Instant::now() >= d)
    }

    /// Answers every request: what is measured is compiled first, by several workers at once. `seen` hears each
    /// answer as it comes.
    pub fn run(
        &mut self,
        requests: Vec<Request>,
        seen: &mut dyn FnMut(u64, &Result<Done, Failure>),
    ) -> Answers {
        let late = self.late();
        let deadline = self.deadline;
        if late {
            return Answers::new();
        }
        let queue = Mutex::new(VecDeque::from(requests));
        let (to_bench, compiled) = channel::<Request>();
        let compiled = Mutex::new(compiled);
        let (answer, answers) = channel::<(u64, Result<Done, Failure>)>();
        let strict = AtomicBool::new(self.strict);
        let direct = self.compilers.is_empty();
        let mut all = Answers::new();
        std::thread::scope(|s| {
            for worker in &mut self.compilers {
                let (queue, strict) = (&queue, &strict);
                let (to_bench, answer) = (to_bench.clone(), answer.clone());
                s.spawn(move || compile_all(worker, queue, deadline, strict, &to_bench, &answer));
            }
            if direct {
                for request in queue.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                    let _ = to_bench.send(request);
                }
            }
            drop(to_bench);
            let most = if self.alone { 1 } else { usize::MAX };
            for worker in self.benches.iter_mut().take(most) {
                let (compiled, answer) = (&compiled, answer.clone());
                s.spawn(move || bench_all(worker, compiled, deadline, &answer));
            }
            drop(answer);
            for (id, result) in answers {
                seen(id, &result);
                all.insert(id, result);
            }
        });
        self.strict = strict.into_inner();
        all
    }
}

type Queue = Mutex<VecDeque<Request>>;

fn passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|d| Instant::now() >= d)
}

fn compile_all(
    worker: &mut Worker,
    queue: &Queue,
    deadline: Option<Instant>,
    strict: &AtomicBool,
    to_bench: &Sender<Request>,
    answer: &Sender<(u64, Result<Done, Failure>)>,
) {
    while let Some(request) = { queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front() } {
        if passed(deadline) {
            return;
        }
        let question = Request { task: Task::Compile, ..request.clone() };
        let own = request.configuration.schedule.is_empty();
        match worker.ask(&question).and_then(|d| accept(d, own, strict)) {
            Ok(()) => {
                let _ = to_bench.send(request);
            }
            Err(failure) => {
                let _ = answer.send((request.id, Err(failure)));
            }
        }
    }
}

/// What the compiler's log says of lost speed is a failure of the configuration, not noise; but where it says so of
/// the form's own choice, too, times decide.
fn accept(done: Done, own: bool, strict: &AtomicBool) -> Result<(), Failure> {
    let Done::Compiled(c) = done else { return Ok(()) };
    if own {
        if c.spills > 0 || !c.lost_speed.is_empty() {
            strict.store(false, Ordering::Relaxed);
        }
        return Ok(());
    }
    let strict = strict.load(Ordering::Relaxed);
    if strict && c.spills > 0 {
        return Err(Failure::new(FailureKind::Compile, format!("spills {} bytes of registers", c.spills)));
    }
    match c.lost_speed.first() {
        Some(line) if strict => Err(Failure::new(FailureKind::Compile, format!("loses speed: {line}"))),
        _ => Ok(()),
    }
}

fn bench_all(
    worker: &mut Worker,
    compiled: &Mutex<Receiver<Request>>,
    deadline: Option<Instant>,
    answer: &Sender<(u64, Result<Done, Failure>)>,
) {
    loop {
        let next = { compiled.lock().unwrap_or_else(PoisonError::into_inner).recv() };
        let Ok(request) = next else { return };
        if passed(deadline) {
            return;
        }
        let _ = answer.send((request.id, worker.ask(&request)));
    }
}
