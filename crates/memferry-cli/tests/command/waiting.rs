// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that are moved, and machines that say in which cgroups they are.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use super::memferry;

/// A child that does not outlive a test that fails.
pub struct Waiting(pub Child);

impl Waiting {
    /// A program that waits for its stdin to close.
    pub fn new() -> Waiting {
        Waiting::start(&mut Command::new("cat"))
    }

    /// The same of another user; the test is root's.
    pub fn of(user: u32) -> Waiting {
        Waiting::start(Command::new("cat").uid(user).gid(user))
    }

    fn start(program: &mut Command) -> Waiting {
        let mut child = program
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start");
        // It has begun its work once it answers.
        let mut answer = [0];
        let (stdin, stdout) = (child.stdin.as_mut(), child.stdout.as_mut());
        std::io::Write::write_all(stdin.expect("stdin"), b"x").expect("write");
        std::io::Read::read_exact(stdout.expect("stdout"), &mut answer).expect("read");
        Waiting(child)
    }

    /// Its number.
    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Waits until something is so that the child, which must not end before, brings about.
    pub fn until<T>(&mut self, mut so: impl FnMut(&Self) -> Option<T>) -> T {
        loop {
            if let Some(value) = so(self) {
                return value;
            }
            let ended = self.0.try_wait().expect("wait");
            assert!(ended.is_none(), "it has ended: {ended:?}");
            std::thread::yield_now();
        }
    }

    /// Closes its stdin and waits for its end: its status, and what it wrote, little of each.
    pub fn ended(&mut self) -> Output {
        drop(self.0.stdin.take());
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let (out, told) = (self.0.stdout.take(), self.0.stderr.take());
        out.expect("stdout").read_to_end(&mut stdout).expect("read");
        told.expect("stderr")
            .read_to_end(&mut stderr)
            .expect("read");
        let status = self.0.wait().expect("end");
        Output {
            status,
            stdout,
            stderr,
        }
    }

    /// Presses Ctrl-C.
    pub fn interrupt(&self) {
        self.signal(libc::SIGINT);
    }

    /// Sends it a signal.
    pub fn signal(&self, number: i32) {
        let pid = i32::try_from(self.0.id()).expect("pid");
        // SAFETY: the child is not waited for yet, so the number is still its own.
        assert_eq!(unsafe { libc::kill(pid, number) }, 0);
    }

    /// Whether the child, which has not ended, handles SIGINT itself. SIGHUP is the last signal that it prepares for: when
    /// that is caught, SIGINT is ready; before, it could be lost.
    pub fn catches_interrupts(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("status");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = u64::from_str_radix(mask.expect("SigCgt").trim(), 16).expect("mask");
        mask & 1 << (libc::SIGHUP - 1) != 0
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A terminal of 80 columns: the side that a person sees, and the side of the program.
pub fn terminal() -> (File, OwnedFd) {
    let (mut person, mut program) = (0, 0);
    let size = libc::winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: two places for descriptors and a size; no name and no settings are asked for.
    let result = unsafe {
        libc::openpty(
            &mut person,
            &mut program,
            std::ptr::null_mut(),
            std::ptr::null(),
            &size,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both were opened just now and belong to nobody else.
    unsafe { (File::from_raw_fd(person), OwnedFd::from_raw_fd(program)) }
}

/// The first node with memory.
pub fn node() -> String {
    let text = std::fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    let first = text.trim().split(['-', ',']).next().unwrap_or("0");
    if first.is_empty() { "0" } else { first }.to_owned()
}

/// A number of a JSON file.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// A machine with these cgroups: paths, and the processes in each.
pub fn cgroups(all: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("folder");
    let mount = root.path().join("sys/fs/cgroup");
    fs::create_dir_all(&mount).expect("folder");
    fs::write(mount.join("cgroup.controllers"), "memory\n").expect("file");
    for (path, processes) in all {
        let folder = mount.join(path);
        fs::create_dir_all(&folder).expect("folder");
        fs::write(folder.join("cgroup.procs"), processes).expect("file");
    }
    root
}

/// A copy of the command for other users, who may not be able to reach the folder that it was built in; and what else they may read.
pub fn for_others(folder: &Path, read: &Path) -> PathBuf {
    let program = folder.join("memferry");
    // By a process of its own: a child that another test starts now would inherit the file open for writing, and no kernel
    // starts such a program.
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_memferry"))
        .arg(&program)
        .status();
    assert!(copied.expect("cp").success());
    for open in [folder, read] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).expect("permissions");
    }
    program
}

/// Runs `memferry move` on such a machine.
pub fn move_below(root: &Path, line: &str) -> Output {
    memferry(&format!("{line} --root {}", root.display()))
}
