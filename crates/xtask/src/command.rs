// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running other programs: make, git, tar, cargo. Their output goes to a log file, whose end an
//! error shows; Ctrl-C ends them with us.

use std::env;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail};
use fs_err::{self as fs, File};

/// How much of a log an error shows.
const LINES_SHOWN: usize = 20;

/// Whether Ctrl-C or SIGTERM came.
pub fn interrupted() -> bool {
    flag().load(Ordering::Relaxed)
}

/// Takes Ctrl-C and SIGTERM as wishes to end cleanly; to be called once, early.
pub fn catch_interrupts() -> Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second one ends the process at once.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(flag()))?;
        signal_hook::flag::register(signal, Arc::clone(flag()))?;
    }
    Ok(())
}

fn flag() -> &'static Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    FLAG.get_or_init(Arc::default)
}

/// Runs `command` with its output in `log`. `what` says what it does: "build the kernel".
pub fn logged(command: &mut Command, log: &Path, what: &str) -> Result<()> {
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder)?;
    }
    let out = File::create(log)?.into_file();
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .stdin(Stdio::null())
        .stderr(out.try_clone()?)
        .stdout(out)
        .status()
        .with_context(|| format!("{what}: run {program}"))?;
    if interrupted() {
        bail!("interrupted");
    }
    if !status.success() {
        bail!(
            "could not {what}: {program} ended with {status}\n{}\nall of it: {}",
            tail(log),
            log.display()
        );
    }
    Ok(())
}

/// What `command` prints when it is given `input`. An error has what it complains of.
pub fn output(command: &mut Command, input: &str) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {program}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // It may end without having read all; its status says more.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The first line that `command` prints, or an error.
pub fn first_line(command: &mut Command) -> Result<String> {
    let text = output(command, "")?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// git in a temporary `folder`, for which neither the user's settings nor a repository above count.
pub fn git(folder: &Path) -> Command {
    let mut git = Command::new("git");
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("GIT_") {
            git.env_remove(name);
        }
    }
    git.current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CEILING_DIRECTORIES", env::temp_dir());
    git
}

/// The last lines of a file.
pub fn tail(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
}
