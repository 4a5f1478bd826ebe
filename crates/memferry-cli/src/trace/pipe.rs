// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pipe through which valgrind tells of accesses.
//!
//! A pipe ends when nobody holds its other side any more. A child that the traced command left behind may hold it for
//! ever, so the end is marked: once the command has ended, a byte that no text has is written behind its last word.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

/// The mark.
const END: u8 = 0;

/// Bytes that the pipe holds, if the kernel lets it (/proc/sys/fs/pipe-max-size).
const HELD: usize = 1 << 20;

/// How long a reader waits for more before it reads. valgrind writes each line by itself, some millions a second;
/// woken for each, reader and writer take turns and are five times slower. A pipe fills in tens of milliseconds.
const GATHER: Duration = Duration::from_millis(2);

/// The reading side; ends at the mark.
pub struct Log {
    from: File,
    ended: bool,
    /// The last read had little to read.
    early: bool,
}

/// The writing side.
pub struct Writing(File);

/// Makes a pipe.
pub fn new() -> io::Result<(Log, Writing)> {
    let (from, to) = pipe_with(PipeFlags::CLOEXEC)?;
    // A smaller pipe works as well.
    let _ = fcntl_setpipe_size(&to, HELD);
    let log = Log {
        from: from.into(),
        ended: false,
        early: false,
    };
    Ok((log, Writing(to.into())))
}

impl Writing {
    /// A path by which another process of this user opens it, while this one lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Marks the end.
    pub fn end(mut self) {
        // A reader that has gone needs no mark.
        let _ = self.0.write_all(&[END]);
    }
}

impl Read for Log {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.ended {
            return Ok(0);
        }
        if self.early {
            std::thread::sleep(GATHER);
        }
        let read = self.from.read(bytes)?;
        self.early = read < HELD / 16;
        let text = &bytes[..read];
        match text.iter().position(|&byte| byte == END) {
            None => Ok(read),
            Some(end) => {
                self.ended = true;
                Ok(end)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_ends_at_the_mark_though_another_holds_the_pipe() {
        let (mut log, writing) = new().expect("pipe");
        let mut other = writing.0.try_clone().expect("clone");
        other.write_all(b"I  04,1\n").expect("write");
        writing.end();
        let mut text = String::new();
        log.read_to_string(&mut text).expect("read");
        assert_eq!(text, "I  04,1\n");
        drop(other);
    }
}
