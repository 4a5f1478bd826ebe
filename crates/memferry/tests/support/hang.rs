// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends a test binary that hangs, and says where its threads are: a hang of the mover, or of the kernel below it, is rare, and
//! leaves nothing else to see.

use std::fs::{read_dir, read_to_string};
use std::io::Write;
use std::sync::Once;
use std::time::Duration;

/// More than any test binary takes on a slow host.
const LONGEST: Duration = Duration::from_secs(20 * 60);

/// Begins to watch this process, once.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::thread::Builder::new()
            .name("hang-watch".to_owned())
            .spawn(|| {
                std::thread::sleep(LONGEST);
                let said = format!(
                    "a test hangs; threads of {}:\n{}",
                    std::process::id(),
                    threads()
                );
                // What is printed would be kept for the end of the test.
                let _ = std::io::stderr().write_all(said.as_bytes());
                std::process::abort();
            })
            .expect("a thread");
    });
}

/// Name, state, system call and, for root, kernel stack of each thread.
fn threads() -> String {
    let tasks = read_dir("/proc/self/task").expect("/proc");
    let tell = |task: std::io::Result<std::fs::DirEntry>| {
        let path = task.ok()?.path();
        let read = |file| read_to_string(path.join(file)).unwrap_or_default();
        let status = read("status");
        let state = status.lines().find(|line| line.starts_with("State:"))?;
        let (name, id) = (read("comm"), path.file_name()?.to_string_lossy());
        let (call, stack) = (read("syscall"), read("stack"));
        Some(format!("{id} {name}{state}\nsystem call {call}{stack}\n"))
    };
    tasks.filter_map(tell).collect()
}
