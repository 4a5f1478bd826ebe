// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry trace record`: runs a command under valgrind's lackey and records as it runs.
//!
//! One thread reads what valgrind writes, another waits for the command. However the command ends, what it did until
//! then is a whole trace.

use std::io::{self, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use memferry_replay::Error;
use memferry_replay::event::Clock;
use memferry_replay::trace::Header;
use memferry_replay::trace::source::{More, Recorder, record_lackey};
use rustix::process::{Pid, Signal, kill_process};

use crate::cli::trace::RecordArgs;
use crate::failure::Failure;
use crate::results::{Stream, Target};
use crate::ui::Ui;

use super::pipe::{self, Log, Writing};

/// How often the command is looked at: what a person at Ctrl-C does not notice.
const LOOK: Duration = Duration::from_millis(20);

/// How long a command may take to end by itself after it was asked to; it runs a hundred times slower than usual.
const GRACE: Duration = Duration::from_secs(10);

/// Bytes read at once.
const BUFFER: usize = 1 << 20;

/// Runs the command and writes the trace.
pub fn run(args: &RecordArgs) -> Result<(), Failure> {
    if args.output.as_os_str() == "-" {
        return Err(Failure::new(
            "the trace cannot go to stdout",
            "stdout is the traced command's",
            "name a file with --output",
        ));
    }
    let version = version()?;
    let ui = Ui::quiet();
    ui.catch_interrupts()?;
    let out = Target::open(&args.output)?.stream();
    let header = header(args, &version);
    let not_written = |error| super::failure(&args.output, &args.output, error);
    let mut recorder = Recorder::new(out, &header, args.reduction.span()).map_err(not_written)?;
    let (log, writing) = pipe::new().map_err(not_started)?;
    let child = start(args, &writing)?;
    let enough = AtomicBool::new(false);
    let (ended, recorded) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(child, writing, &ui, &enough));
        let recorded = follow(log, &mut recorder, &enough);
        (waiting.join(), recorded)
    });
    let ended = match ended {
        Ok(ended) => ended.map_err(not_started)?,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    recorded.map_err(|error| match error {
        Error::Text { .. } | Error::Line { .. } | Error::Unusable { .. } => Failure::new(
            format!("no trace is written: {version} says what was not expected"),
            &error,
            "report this as a bug, with the version of valgrind",
        ),
        error => not_written(error),
    })?;
    finish(args, &ui, recorder, ended, enough.into_inner())
}

/// Ends the file and says how the command ended.
fn finish(
    args: &RecordArgs,
    ui: &Ui,
    recorder: Recorder<Stream>,
    ended: ExitStatus,
    enough: bool,
) -> Result<(), Failure> {
    let command = args.command[0].to_string_lossy();
    if recorder.seen() == 0 {
        return Err(nothing(args, &command, ended));
    }
    let (out, totals) = recorder
        .finish()
        .map_err(|error| super::failure(&args.output, &args.output, error))?;
    super::commit(out, &args.output, &totals)?;
    let path = args.output.display();
    if enough {
        return Ok(());
    }
    if ui.stopped() {
        return Err(Failure::new(
            format!("stopped: {path} has what {command} did until then"),
            "interrupted",
            "use the trace as it is, or record again; --max-accesses ends a recording by itself",
        ));
    }
    match ended.success() {
        true => Ok(()),
        false => Err(Failure::new(
            format!("{command} failed; {path} has what it did"),
            format!("it {}", how(ended)),
            "use the trace if that was to be expected; else make the command work and record again",
        )),
    }
}

/// Why no access was recorded.
fn nothing(args: &RecordArgs, command: &str, ended: ExitStatus) -> Failure {
    let headline = "no trace is written: no access was recorded";
    // What valgrind ends with, as shells do, if it cannot start the command.
    match (args.reduction.skip, ended.code()) {
        (Some(skip), _) => Failure::new(
            headline,
            format!("{command} {} within the {skip} to skip", how(ended)),
            "skip less",
        ),
        (None, Some(127)) => Failure::new(
            format!("no trace is written: {command} was not found"),
            "it is no program in PATH, and no file",
            "check its name; options of memferry come before the command",
        ),
        (None, Some(126)) => Failure::new(
            format!("no trace is written: {command} cannot be run"),
            "it is a folder, or a file that may not be executed",
            "name a program, or make the file executable: chmod +x",
        ),
        (None, _) => Failure::new(
            headline,
            format!("{command} {}", how(ended)),
            "check that `valgrind --tool=lackey` runs the command",
        ),
    }
}

/// Records until the log ends. Whatever happens, it reads on: the command would wait for its log to be read.
fn follow(log: Log, recorder: &mut Recorder<Stream>, enough: &AtomicBool) -> Result<(), Error> {
    let mut text = BufReader::with_capacity(BUFFER, log);
    let recorded = record_lackey(&mut text, recorder);
    if !matches!(recorded, Ok(More::Yes)) {
        enough.store(true, Ordering::Relaxed);
        let mut rest = vec![0; BUFFER];
        while !matches!(text.read(&mut rest), Ok(0) | Err(_)) {}
    }
    recorded.map(|_| ())
}

/// Waits for the command to end, and makes it end if that is wanted.
fn wait(
    mut child: Child,
    writing: Writing,
    ui: &Ui,
    enough: &AtomicBool,
) -> io::Result<ExitStatus> {
    let mut asked: Option<Instant> = None;
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Err(error) => break Err(error),
            Ok(None) => {}
        }
        match asked {
            None if ui.stopped() || enough.load(Ordering::Relaxed) => {
                asked = Some(Instant::now());
                if let Some(pid) = Pid::from_raw(child.id() as i32) {
                    // It may have ended since; then there is nothing to ask.
                    let _ = kill_process(pid, Signal::TERM);
                }
            }
            Some(when) if when.elapsed() > GRACE => {
                asked = Some(Instant::now());
                // The same.
                let _ = child.kill();
            }
            _ => {}
        }
        std::thread::sleep(LOOK);
    };
    writing.end();
    ended
}

fn start(args: &RecordArgs, writing: &Writing) -> Result<Child, Failure> {
    Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--basic-counts=no"])
        // Two processes in one log could not be told apart.
        .args(["--trace-children=no", "--child-silent-after-fork=yes"])
        .arg("--quiet")
        .arg(format!("--log-file={}", writing.path()))
        .arg("--")
        .args(&args.command)
        .spawn()
        .map_err(not_started)
}

/// What `valgrind --version` says: `valgrind-3.19.0`.
fn version() -> Result<String, Failure> {
    let asked = Command::new("valgrind")
        .arg("--version")
        .stdin(Stdio::null())
        .output();
    match asked {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(output) => Err(not_started(format!(
            "valgrind --version {}: {}",
            how(output.status),
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Failure::new(
            "nothing is recorded: valgrind is missing",
            "accesses are recorded with valgrind's tool lackey, and no valgrind is in PATH",
            "sudo apt-get install valgrind (Debian, Ubuntu), sudo dnf install valgrind (Fedora)",
        )),
        Err(error) => Err(not_started(error)),
    }
}

fn header(args: &RecordArgs, version: &str) -> Header {
    let words: Vec<_> = (args.command.iter())
        .map(|word| word.to_string_lossy())
        .collect();
    let name = args.name.clone().unwrap_or_else(|| words.join(" "));
    Header {
        page_bytes: args.reduction.page.0 as u32,
        window: args.reduction.window(),
        cache: args.reduction.cache(),
        instructions: !args.reduction.data_only,
        ..Header::new(name, format!("lackey ({version})"), Clock::Accesses)
    }
}

/// How a process ended, as a sentence goes on.
fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

fn not_started(error: impl std::fmt::Display) -> Failure {
    Failure::new(
        "nothing is recorded: valgrind does not run",
        error,
        "check that `valgrind --tool=lackey true` works",
    )
}
