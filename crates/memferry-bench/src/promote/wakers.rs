// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that wake often, beside the accessing threads of an emulated machine. Its CPUs keep translations for longer than real
//! ones, which have room for some thousand, and DAMON does not flush them: it would see accesses of a thread that has its CPU to itself
//! once. A switch to another process drops them.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use memferry_linux::affinity;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::failure::Failure;

/// How long one sleeps.
const SLEEP: Duration = Duration::from_millis(5);

/// What the argument of one begins with; the number of its CPU follows.
pub const ARGUMENT: &str = "wake-on-";

/// They end with this value.
pub struct Wakers(Vec<Child>);

impl Wakers {
    /// One on each of these CPUs.
    pub fn start(cpus: &[u32]) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            let next = "run memferry from a file that is still there";
            Failure::new("cannot start a process that wakes often", error, next)
        };
        let program = std::env::current_exe().map_err(failed)?;
        let mut wakers = Self(Vec::new());
        for cpu in cpus {
            let mut command = Command::new(&program);
            command.args(["promote-run", &format!("{ARGUMENT}{cpu}")]);
            // A Ctrl-C of the terminal is for the command, which then ends this.
            let command = command.stdin(Stdio::null()).process_group(0);
            wakers.0.push(command.spawn().map_err(failed)?);
        }
        Ok(wakers)
    }
}

impl Drop for Wakers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The body of one; it ends with the command.
pub fn wake_on(cpu: &str) -> Result<(), Failure> {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let failed = |error: &dyn ToString| {
        let next = "run `memferry bench promote`";
        Failure::new("cannot wake on a CPU", error.to_string(), next)
    };
    let cpu = cpu.parse().map_err(|error| failed(&error))?;
    affinity::pin(&[cpu]).map_err(|error| failed(&error))?;
    loop {
        std::thread::sleep(SLEEP);
    }
}
