// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the daemon knows of a process or a group, told to those who ask at a socket in its folder: root alone.
//!
//! A question is a line, the number of a process or the name of a group; the answer is JSON, and ends the connection. The daemon answers
//! between two rounds, one question each.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::DaemonError;
use crate::knobs::FOLDER;
use crate::status::GroupStatus;
use crate::tiering::MemoryState;

/// Whoever has connected and asks nothing for so long holds up no round.
const ASKED: Duration = Duration::from_millis(20);
/// The same of one who does not take the answer.
const TAKEN: Duration = Duration::from_secs(1);
/// A round with looks at very large processes takes seconds.
const ANSWERED: Duration = Duration::from_secs(30);
/// Bytes of a question at most: the name of a group.
const LONGEST: u64 = 1024;

/// What the daemon knows; bytes and seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DaemonExplanation")]
pub struct Explanation {
    /// Whether the daemon moves pages and changes settings, or only watches.
    pub act: bool,
    /// What reports heat.
    pub source: String,
    /// Why it is the one.
    pub why: String,
    /// Whether the kernel moves, so that the daemon knows of no use.
    pub kernel_moves: bool,
    /// The group, as `memferry top` has it.
    pub group: GroupStatus,
    /// The process, or all of the group, the largest first.
    pub memories: Vec<Explained>,
}

/// A process, or memory that processes of the group share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DaemonExplained")]
pub struct Explained {
    /// The number of the process; null of shared memory.
    pub pid: Option<u32>,
    /// Its name, or device and inode.
    pub name: String,
    /// Bytes that cannot be moved, by reason, as in the group's.
    #[serde(default)]
    pub unmovable: BTreeMap<String, u64>,
    /// What is known; null before the first look.
    pub state: Option<MemoryState>,
}

/// An answer as it goes over the socket.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Explanation(Box<Explanation>),
    /// Why there is none.
    Unknown(String),
}

fn path(root: &Path) -> PathBuf {
    root.join(FOLDER).join("explain.sock")
}

/// Where questions come.
#[derive(Debug)]
pub(crate) struct Questions(UnixListener);

impl Questions {
    /// Replaces the socket that a killed daemon left.
    ///
    /// # Errors
    /// The folder cannot be written to, or its path is too long for a socket.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let path = path(root);
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self(listener))
    }

    /// The next one, if somebody asks.
    pub(crate) fn next(&self) -> Option<(String, UnixStream)> {
        let (stream, _) = self.0.accept().ok()?;
        let asked = |stream: &UnixStream| -> io::Result<String> {
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(ASKED))?;
            stream.set_write_timeout(Some(TAKEN))?;
            let mut line = String::new();
            BufReader::new(stream.take(LONGEST)).read_line(&mut line)?;
            Ok(line.trim_end_matches('\n').to_owned())
        };
        Some((asked(&stream).ok()?, stream))
    }

    /// Removes the socket: the daemon has ended.
    pub(crate) fn remove(root: &Path) {
        // Without it there is nothing to remove.
        let _ = fs::remove_file(path(root));
    }
}

/// Answers a question. Whoever has gone does not hear it.
pub(crate) fn answer(mut stream: UnixStream, known: Result<Explanation, String>) {
    let answer = match known {
        Ok(known) => Answer::Explanation(Box::new(known)),
        Err(why) => Answer::Unknown(why),
    };
    let text = serde_json::to_vec(&answer).unwrap_or_default();
    if let Err(error) = stream.write_all(&text) {
        tracing::debug!("a question was not answered: {error}");
    }
}

/// Asks the daemon whose folder is below `root` of a process, by its number, or of a group, by its name.
///
/// # Errors
/// No daemon runs, it may not be asked, or it knows neither.
pub fn ask(root: &Path, what: &str) -> Result<Explanation, DaemonError> {
    let path = path(root);
    let asked = || -> io::Result<Answer> {
        let mut stream = UnixStream::connect(&path)?;
        stream.set_read_timeout(Some(ANSWERED))?;
        writeln!(stream, "{what}")?;
        Ok(serde_json::from_reader(BufReader::new(stream))?)
    };
    match asked().map_err(|error| DaemonError::Unasked {
        path: path.clone(),
        error,
    })? {
        Answer::Explanation(known) => Ok(*known),
        Answer::Unknown(why) => Err(DaemonError::Unknown { why }),
    }
}
