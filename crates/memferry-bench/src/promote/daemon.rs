// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferryd` for the time of one run: started for the run's process, waited for until it watches that, ended afterwards.
//! What it did is by its own word, since the kernel counts no promotions by move_pages(2).

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use memferry_daemon::Status;
use memferry_daemon::history::Record;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use tempfile::TempDir;

use super::mover::Done;
use crate::failure::Failure;
use crate::region::PAGE;
use crate::ui::Ui;

/// How often its status is read: it changes five times a second.
const PATIENCE: Duration = Duration::from_millis(50);

/// What reports heat to it.
pub const SOURCE: &str = "damon";

/// A daemon that runs.
pub struct Daemon {
    child: Child,
    /// Its configuration, its log and its history.
    folder: TempDir,
    /// What it had done when it began to watch the run.
    before: Status,
}

impl Daemon {
    /// Starts it, and waits until it watches the process of this name; none if the user stopped it.
    pub fn start(root: &Path, process: &str, ui: &Ui) -> Result<Option<Self>, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(
                "cannot start memferryd",
                error,
                "install memferryd beside memferry or where PATH finds it, with a /tmp that can be written to",
            )
        };
        let folder = tempfile::tempdir().map_err(failed)?;
        let at = |name: &str| folder.path().join(name);
        let history = at("history.jsonl");
        // The rest is as a user has it who says nothing; the history tells the last totals.
        let config = format!(
            "act = true\nsource = \"{SOURCE}\"\n[history]\nfile = \"{}\"\n[[group]]\nname = \"run\"\nprocesses = [\"{process}\"]\n",
            history.display()
        );
        fs::write(at("config.toml"), config).map_err(failed)?;
        let log = File::create(at("log")).map_err(failed)?;
        let mut command = Command::new(program());
        command
            .arg("--config")
            .arg(at("config.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // A Ctrl-C of the terminal is for the command, which then ends this.
            .process_group(0);
        let follow = || Ok(set_parent_process_death_signal(Some(Signal::TERM))?);
        // SAFETY: the closure makes one system call, which may be made after a fork.
        unsafe { command.pre_exec(follow) };
        let mut daemon = Self {
            child: command.spawn().map_err(failed)?,
            folder,
            before: Status::default(),
        };
        loop {
            if ui.stopped() {
                return Ok(None);
            }
            if let Some(status) = daemon.child.try_wait().map_err(failed)? {
                return Err(daemon.useless(&status.to_string()));
            }
            // Before its first round there is no file, or that of another one.
            let status = Status::read(root).ok();
            if let Some(status) = status.filter(|status| daemon.watches(status)) {
                daemon.before = status;
                return Ok(Some(daemon));
            }
            std::thread::sleep(PATIENCE);
        }
    }

    fn watches(&self, status: &Status) -> bool {
        status.pid == self.child.id() && status.source.watched > 0
    }

    /// Ends it; what it did meanwhile.
    pub fn end(mut self) -> Result<Done, Failure> {
        let ended = self
            .terminate()
            .map_or_else(|error| error.to_string(), |status| status.to_string());
        let history = fs::read_to_string(self.folder.path().join("history.jsonl"));
        let last = history.ok().and_then(|text| {
            let record: Record = serde_json::from_str(text.lines().last()?).ok()?;
            // Only the last record of one that was asked to end has no next one.
            record.next.is_none().then_some(record.status)
        });
        match last.and_then(|last| done(&self.before, &last)) {
            Some(done) => Ok(done),
            None => Err(self.useless(&ended)),
        }
    }

    fn terminate(&mut self) -> std::io::Result<std::process::ExitStatus> {
        if let (None, Some(pid)) = (
            self.child.try_wait()?,
            Pid::from_raw(self.child.id() as i32),
        ) {
            kill_process(pid, Signal::TERM)?;
        }
        self.child.wait()
    }

    fn useless(&self, ended: &str) -> Failure {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let last = log.lines().last().unwrap_or_default().trim();
        Failure::new(
            "memferryd did not act on the run",
            format!("{ended}; the last line of its log is {last:?}"),
            "end what else uses DAMON or is a daemon of memferry (`memferry doctor` names it), or run other modes",
        )
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It sets back what it has set, which takes a round at most.
        let _ = self.terminate();
    }
}

/// The daemon that was installed with this program, else the one that PATH finds.
fn program() -> PathBuf {
    let own = std::env::current_exe().ok();
    let beside = own.map(|own| own.with_file_name("memferryd"));
    let there = beside.filter(|beside| beside.is_file());
    there.unwrap_or_else(|| "memferryd".into())
}

/// From one status to another; none if it did not act with its source until the end.
fn done(before: &Status, last: &Status) -> Option<Done> {
    let acted = last.act && last.source.name == SOURCE && last.source.watched > 0;
    let moved = |of: &Status| {
        let groups = of.groups.iter();
        groups.fold((0, 0), |(up, down), group| {
            (up + group.promoted, down + group.demoted)
        })
    };
    let (from, to) = (moved(before), moved(last));
    acted.then(|| Done {
        promoted_pages: (to.0 - from.0) / PAGE as u64,
        demoted_pages: (to.1 - from.1) / PAGE as u64,
        cpu_s: last.cpu_seconds - before.cpu_seconds,
        source_cpu_s: last.source.cpu_seconds.unwrap_or(0.0)
            - before.source.cpu_seconds.unwrap_or(0.0),
    })
}

/// Pages that the daemon of this machine has promoted since it began.
pub fn promoted() -> u64 {
    let status = Status::read(Path::new("/")).unwrap_or_default();
    let bytes: u64 = status.groups.iter().map(|group| group.promoted).sum();
    bytes / PAGE as u64
}

#[cfg(test)]
mod tests {
    use memferry_daemon::status::{GroupStatus, SourceStatus};

    use super::*;

    fn status(promoted: u64, cpu_seconds: f64) -> Status {
        Status {
            act: true,
            cpu_seconds,
            source: SourceStatus {
                name: SOURCE.to_owned(),
                watched: 1,
                cpu_seconds: Some(cpu_seconds * 2.0),
                ..SourceStatus::default()
            },
            groups: vec![GroupStatus {
                promoted,
                demoted: promoted / 2,
                ..GroupStatus::default()
            }],
            ..Status::default()
        }
    }

    #[test]
    fn what_it_did_is_what_came_since_the_run_began() {
        let told = done(&status(4096, 0.5), &status(4096 * 9, 1.5));
        assert_eq!(
            told,
            Some(Done {
                promoted_pages: 8,
                demoted_pages: 4,
                cpu_s: 1.0,
                source_cpu_s: 2.0
            })
        );
    }

    #[test]
    fn a_daemon_that_only_watched_or_lost_its_source_did_nothing() {
        let mut last = status(0, 1.0);
        last.act = false;
        assert_eq!(done(&Status::default(), &last), None);
        let mut last = status(0, 1.0);
        last.source.watched = 0;
        assert_eq!(done(&Status::default(), &last), None);
        last = status(0, 1.0);
        last.source.name = "numa-balancing".to_owned();
        assert_eq!(done(&Status::default(), &last), None);
    }
}
