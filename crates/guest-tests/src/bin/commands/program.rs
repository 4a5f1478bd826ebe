// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command under test, run as a shell would, and the machine that it runs on.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::{fmt, fs};

use serde_json::Value;

/// Where the command is.
pub fn path() -> PathBuf {
    match std::env::var_os("MEMFERRY") {
        Some(path) => path.into(),
        None => built("memferry"),
    }
}

/// Where a program is that was built or installed with this one.
fn built(name: &str) -> PathBuf {
    let me = std::env::current_exe().unwrap();
    let folders = me.ancestors().skip(1).take(2);
    folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .unwrap_or_else(|| name.into())
}

/// The command with these arguments, words between spaces.
pub fn command(line: &str) -> Command {
    started(path(), line)
}

/// The daemon with these arguments.
pub fn daemon(line: &str) -> Command {
    started(built("memferryd"), line)
}

fn started(program: PathBuf, line: &str) -> Command {
    let mut command = Command::new(program);
    command
        .args(line.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// What a finished command said.
pub struct Done {
    pub line: String,
    pub status: Option<i32>,
    pub out: String,
    pub told: String,
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Done {
            line,
            status,
            out,
            told,
        } = self;
        write!(
            f,
            "{line}: status {status:?}\nstdout: {out}\nstderr: {told}"
        )
    }
}

impl Done {
    pub fn new(line: &str, output: Output) -> Done {
        Done {
            line: line.to_owned(),
            status: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            told: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// It ended with this status.
    pub fn gives(self, status: i32) -> Done {
        assert_eq!(self.status, Some(status), "{self:?}");
        self
    }

    /// It said this somewhere, however its lines are broken.
    pub fn says(self, part: &str) -> Done {
        let text = format!("{} {}", self.out, self.told);
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains(part), "{part}: {self:?}");
        self
    }

    /// Its stdout as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs the daemon to its end.
pub fn memferryd(line: &str) -> Done {
    Done::new(&format!("memferryd {line}"), daemon(line).output().unwrap())
}

/// Runs the command to its end.
pub fn memferry(line: &str) -> Done {
    Done::new(line, command(line).output().unwrap())
}

/// A number of a JSON file.
pub fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

/// Nodes with memory, ascending.
pub fn nodes() -> Vec<u32> {
    let text = fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    memferry_linux::topology::parse::id_list(&text).unwrap_or_default()
}

/// Sends a signal to a process that was not waited for.
pub fn signal(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).unwrap();
    // SAFETY: no memory is touched.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}
