// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that run while a test does. The tests of `memferryd` use it, too.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};

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
