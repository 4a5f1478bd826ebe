// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel's settings were before a benchmark changed them: in a file under /run from before the first change until
//! they are back, so that a benchmark that is killed can be undone.
//!
//! The benchmark that wrote the file holds a lock on it: a file without a lock is of one that was killed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, OrFail};

/// The folder of the file, below the root.
const FOLDER: &str = "run/memferry";
/// The file.
const NAME: &str = "restore.json";
/// The value of [`Stored::schema`].
const SCHEMA: &str = "memferry-restore/1";

/// What the file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    schema: String,
    /// The benchmark's process: a daemon that it starts may run beside it.
    #[serde(default)]
    pid: u32,
    arguments: Vec<String>,
    /// Files of the kernel below the root, with what they said before, in the order in which they are set back.
    before: Vec<(String, String)>,
}

/// One file of the kernel that does not say what it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The file, below the root.
    pub file: String,
    /// What it says.
    pub now: String,
    /// What it said.
    pub before: String,
}

/// Settings that a benchmark changed and did not set back.
#[derive(Debug)]
pub struct Left {
    /// The command line of the benchmark.
    pub arguments: Vec<String>,
    /// Whether it still runs.
    pub running: bool,
    /// What differs from before.
    pub steps: Vec<Step>,
}

/// Settings that this command changes; they come back with [`Restore::bring_back`], at the latest when this value goes.
pub struct Restore {
    root: PathBuf,
    files: &'static [&'static str],
    /// Files that are made before they are changed, with what they say when they come back.
    made: Vec<(String, String)>,
    /// The locked file and what it holds; `None` while nothing is changed.
    stored: Option<(File, Stored)>,
}

impl Restore {
    /// Of these files below `root`, in the order in which they are set back, those that are there. Nothing is stored yet.
    ///
    /// # Errors
    /// Settings are still as another benchmark has changed them: they are not what must come back afterwards.
    pub fn new(root: &Path, files: &'static [&'static str]) -> Result<Self, Failure> {
        if let Some(left) = left(root)? {
            let by = format!("they are from `memferry {}`", left.arguments.join(" "));
            return Err(match left.running {
                true => Failure::new(
                    "another benchmark has changed settings of the kernel",
                    by,
                    "wait for its end, or interrupt it: it sets them back",
                ),
                false => Failure::new(
                    "the kernel's settings are as a benchmark left them that was killed",
                    by,
                    "`memferry kernel set --restore` sets them back, `memferry kernel status` shows them",
                ),
            });
        }
        unless_daemon(root, |changed| files.contains(&changed))?;
        Ok(Self {
            root: root.to_owned(),
            files,
            made: Vec::new(),
            stored: None,
        })
    }

    /// Files that are not there yet or say so now, with what they say when they come back, in this order, before the others.
    pub fn will_be_made(&mut self, made: Vec<(String, String)>) {
        self.made = made;
    }

    /// Stores what the files say now; to be called before a change, and without effect after the first time.
    pub fn begin(&mut self) -> Result<(), Failure> {
        if self.stored.is_some() {
            return Ok(());
        }
        let mut before = self.made.clone();
        for file in self.files {
            match read(&self.root, file) {
                Ok(text) => before.push(((*file).to_owned(), text)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(Failure::new(
                        format!("cannot read /{file}, which would be changed"),
                        error,
                        "be root",
                    ));
                }
            }
        }
        let arguments = std::env::args_os().skip(1);
        let stored = Stored {
            schema: SCHEMA.to_owned(),
            pid: std::process::id(),
            arguments: arguments
                .map(|of| of.to_string_lossy().into_owned())
                .collect(),
            before,
        };
        let file = store(&self.root, &stored).or_fail(
            format!(
                "cannot store the kernel's settings in /{FOLDER}/{NAME}, so nothing is changed"
            ),
            "be root, with a /run that can be written to",
        )?;
        self.stored = Some((file, stored));
        Ok(())
    }

    /// Sets everything back, and forgets it.
    pub fn bring_back(&mut self) -> Result<(), Failure> {
        let Some((_locked, stored)) = self.stored.take() else {
            return Ok(());
        };
        set_back(&self.root, &changed(&self.root, &stored))
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        // Whoever wants to hear of a failure calls `bring_back`.
        let _ = self.bring_back();
    }
}

/// Refuses settings that a daemon has changed: they come back at its end, so they are not what was before.
///
/// # Errors
/// A daemon has changed one of those that are meant.
pub fn unless_daemon(root: &Path, is_meant: impl Fn(&str) -> bool) -> Result<(), Failure> {
    let changed = memferry_daemon::knobs::changed(root);
    match changed.iter().find(|file| is_meant(file)) {
        None => Ok(()),
        Some(file) => Err(Failure::new(
            format!("memferryd has changed /{file}"),
            "it sets it back when it ends",
            "systemctl stop memferry; if it was killed, `memferryd --once --dry-run`",
        )),
    }
}

/// What a benchmark has changed and not set back.
///
/// # Errors
/// The file is there and is none of memferry's.
pub fn left(root: &Path) -> Result<Option<Left>, Failure> {
    let path = root.join(FOLDER).join(NAME);
    let unusable = |error: io::Error| {
        Failure::new(
            format!("cannot use {}", path.display()),
            error,
            "it holds the kernel's settings from before a benchmark: read it, then remove it",
        )
    };
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(unusable)?,
    };
    let stored: Stored = serde_json::from_reader(&file).map_err(|error| unusable(error.into()))?;
    if stored.schema != SCHEMA {
        return Err(unusable(io::Error::other(format!(
            "its schema is {}",
            stored.schema
        ))));
    }
    Ok(Some(Left {
        running: flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
        steps: changed(root, &stored),
        arguments: stored.arguments,
    }))
}

/// Writes what the files said before, then removes what was stored; it stays if a file cannot be written.
pub fn set_back(root: &Path, steps: &[Step]) -> Result<(), Failure> {
    let mut failure = None;
    for Step { file, before, .. } in steps {
        if let Err(error) = fs::write(root.join(file), format!("{before}\n")) {
            failure.get_or_insert(Failure::new(
                format!("/{file} was not set back to {before:?}"),
                error,
                "`memferry kernel set --restore` tries it again; else set it by hand",
            ));
        }
    }
    match failure {
        Some(failure) => Err(failure),
        None => fs::remove_file(root.join(FOLDER).join(NAME)).or_fail(
            format!("the kernel's settings are back, but /{FOLDER}/{NAME} cannot be removed"),
            "remove it by hand",
        ),
    }
}

/// The files that do not say what they did. One that has gone, with its module, has nothing to come back to.
fn changed(root: &Path, stored: &Stored) -> Vec<Step> {
    let step = |(file, before): &(String, String)| {
        let now = match read(root, file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            other => other.unwrap_or_default(),
        };
        let (now, before) = differing_lines(&now, before)?;
        Some(Step {
            file: file.clone(),
            now,
            before,
        })
    };
    stored.before.iter().filter_map(step).collect()
}

/// The lines in which two texts differ: a file of several, such as `reasons`, takes each by itself.
fn differing_lines(now: &str, before: &str) -> Option<(String, String)> {
    if now.lines().count() != before.lines().count() {
        return Some((now.to_owned(), before.to_owned()));
    }
    let pairs = now.lines().zip(before.lines());
    let differ = pairs.filter(|(now, before)| now != before);
    let (now, before): (Vec<&str>, Vec<&str>) = differ.unzip();
    (!now.is_empty()).then(|| (now.join("\n"), before.join("\n")))
}

/// What a setting is; where a file lists all that are possible, the one in brackets.
fn read(root: &Path, file: &str) -> io::Result<String> {
    let text = fs::read_to_string(root.join(file))?;
    let chosen = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    Ok(chosen.map_or(text.trim(), |(chosen, _)| chosen).to_owned())
}

/// Puts a whole file in its place, where none may be, locked and on disk.
fn store(root: &Path, stored: &Stored) -> io::Result<File> {
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder)?;
    let mut file = tempfile::NamedTempFile::new_in(&folder)?;
    file.write_all(&serde_json::to_vec_pretty(stored)?)?;
    rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o644))?;
    file.as_file().sync_all()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let file = file
        .persist_noclobber(folder.join(NAME))
        .map_err(|error| error.error)?;
    File::open(&folder)?.sync_all()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    const FILES: &[&str] = &[
        "proc/sys/kernel/numa_balancing",
        "sys/kernel/mm/migration/migrator",
        "sys/not/there",
    ];
    const BEFORE: [&str; 2] = ["1\n", "none [kernel] mtcopy\n"];

    #[test]
    fn of_several_lines_only_those_that_differ_come_back() {
        let now = "compaction default\ndemotion dcbm\ndamon none";
        let before = "compaction none\ndemotion dcbm\ndamon auto";
        let (left, back) = (
            "compaction default\ndamon none",
            "compaction none\ndamon auto",
        );
        let own = |text: &str| text.to_owned();
        assert_eq!(differing_lines(now, before), Some((own(left), own(back))));
        assert_eq!(differing_lines(now, now), None);
        assert_eq!(differing_lines("", "1"), Some((own(""), own("1"))));
    }

    fn machine() -> tempfile::TempDir {
        crate::synthetic::machine(&[(FILES[0], BEFORE[0]), (FILES[1], BEFORE[1])])
    }

    fn change(root: &Path) -> Restore {
        let mut restore = Restore::new(root, FILES).expect("nothing is left");
        restore.begin().expect("stored");
        fs::write(root.join(FILES[0]), "2\n").expect("file");
        fs::write(root.join(FILES[1]), "none kernel [mtcopy]\n").expect("file");
        restore
    }

    #[test]
    fn nothing_is_left_of_what_came_back() {
        let root = machine();
        change(root.path()).bring_back().expect("back");
        assert_eq!(read(root.path(), FILES[0]).expect("file"), "1");
        assert_eq!(read(root.path(), FILES[1]).expect("file"), "kernel");
        assert!(left(root.path()).expect("readable").is_none());
        drop(change(root.path()));
        assert_eq!(read(root.path(), FILES[0]).expect("file"), "1");
    }

    #[test]
    fn what_is_made_meanwhile_comes_back_before_the_rest() {
        let root = machine();
        let made = ["on", "2"].map(|of| format!("sys/made/{of}"));
        let mut restore = Restore::new(root.path(), FILES).expect("nothing is left");
        restore.will_be_made(made.iter().map(|of| (of.clone(), "0".to_owned())).collect());
        restore.begin().expect("stored");
        fs::write(root.path().join(FILES[0]), "2\n").expect("file");
        crate::synthetic::put(root.path(), &made[1], "2");
        let of = left(root.path()).expect("readable").expect("left");
        let files: Vec<&str> = of.steps.iter().map(|step| step.file.as_str()).collect();
        assert_eq!(files, [made[1].as_str(), FILES[0]]);
        restore.bring_back().expect("back");
        assert_eq!(read(root.path(), &made[1]).expect("file"), "0");
        assert!(!root.path().join(&made[0]).exists(), "no file is made");
    }

    #[test]
    fn nothing_is_stored_before_a_change() {
        let root = machine();
        drop(Restore::new(root.path(), FILES).expect("nothing is left"));
        assert!(!root.path().join(FOLDER).exists());
    }

    #[test]
    fn two_benchmarks_do_not_change_the_same_settings() {
        let root = machine();
        // Made before the other's change, it must not take the changed settings for the former ones.
        let mut late = Restore::new(root.path(), FILES).expect("nothing is left");
        let first = change(root.path());
        let told = Restore::new(root.path(), FILES)
            .err()
            .expect("refused")
            .to_string();
        assert!(told.contains("another benchmark"), "{told}");
        assert!(late.begin().is_err());
        drop(first);
        assert!(late.begin().is_ok());
    }

    /// The victim of the next test.
    #[test]
    #[ignore = "waits to be killed"]
    fn waits_with_changed_settings() {
        let root = PathBuf::from(std::env::var_os("CHANGED_ROOT").expect("root"));
        let _restore = change(&root);
        println!("\nchanged");
        let mut line = String::new();
        let _ = io::stdin().read_line(&mut line);
    }

    #[test]
    fn what_a_killed_benchmark_changed_can_be_set_back() {
        let root = machine();
        let mut victim = Command::new(std::env::current_exe().expect("test"))
            .args([
                "--exact",
                "restore::tests::waits_with_changed_settings",
                "--ignored",
                "--nocapture",
            ])
            .env("CHANGED_ROOT", root.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start");
        let lines = BufReader::new(victim.stdout.take().expect("stdout")).lines();
        let changed = lines.map_while(Result::ok).any(|line| line == "changed");
        let running = left(root.path())
            .expect("readable")
            .expect("changed")
            .running;
        victim.kill().expect("kill");
        victim.wait().expect("end");
        assert!(changed && running);
        let of = left(root.path()).expect("readable").expect("left");
        assert!(!of.running);
        let step = |at: usize, now: &str, before: &str| Step {
            file: FILES[at].to_owned(),
            now: now.to_owned(),
            before: before.to_owned(),
        };
        assert_eq!(of.steps, [step(0, "2", "1"), step(1, "mtcopy", "kernel")]);
        let told = Restore::new(root.path(), FILES)
            .err()
            .expect("refused")
            .to_string();
        assert!(told.contains("kernel set --restore"), "{told}");
        set_back(root.path(), &of.steps).expect("back");
        assert_eq!(read(root.path(), FILES[1]).expect("file"), "kernel");
        assert!(Restore::new(root.path(), FILES).is_ok());
    }
}
