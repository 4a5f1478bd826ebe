// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of another process, moved from outside with move_pages(2).
//!
//! [`Process::survey`] finds its pages, [`Process::census`] says where they lie, [`Process::move_pages`] moves them in parts,
//! on several threads, no faster than it is told. Nothing is stopped meanwhile: the process goes on, may map and unmap, and
//! may end.

mod census;
mod moving;
mod reason;
mod survey;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};

use memferry::move_pages::{Callers, Fate, Target, mappings};
use memferry::{MoveError, check_page_size, page_size};

pub use census::Census;
pub use moving::{End, ProcessMove, ProcessResult};
pub use reason::Reason;
pub use survey::{Kinds, Survey};

/// A process whose pages can be moved.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    /// Its folder below /proc.
    folder: PathBuf,
    /// `None` where the kernel has none, or `pid` names a thread.
    descriptor: Option<OwnedFd>,
}

/// How far a move has come; another thread may read it meanwhile.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of present pages that were dealt with, moved or not; at the end those of the survey, unless the process
    /// changed.
    pub looked_bytes: AtomicU64,
    /// Bytes of them that were moved.
    pub moved_bytes: AtomicU64,
}

impl Process {
    /// Finds a process of this machine.
    ///
    /// # Errors
    /// There is none of this number, or base pages are not of 4 KiB.
    pub fn open(pid: u32) -> Result<Process, MoveError> {
        check_page_size(page_size())?;
        let process = Process::open_below(Path::new("/proc"), pid)?;
        let descriptor = memferry_linux::process::open(process.pid).ok();
        Ok(Process {
            descriptor,
            ..process
        })
    }

    /// Finds a process by its folder below `proc`.
    fn open_below(proc: &Path, pid: u32) -> Result<Process, MoveError> {
        let none = |why, hint| MoveError::NoProcess { pid, why, hint };
        let folder = proc.join(pid.to_string());
        let number = i32::try_from(pid).ok().filter(|&pid| pid > 0);
        let number = number.ok_or(none("no process has that number", "list them with ps"))?;
        if !proc.join("self").exists() {
            return Err(none("/proc is not mounted", "mount it in this container"));
        }
        if !folder.exists() {
            return Err(none(
                "it has ended, or it is hidden from this user",
                "list those that can be seen with ps",
            ));
        }
        Ok(Process {
            pid: number,
            folder,
            descriptor: None,
        })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Moves the parts of a survey and tells `book` what became of their pages; says whether all were done.
    fn carry(
        &self,
        survey: &Survey,
        target: Target,
        callers: usize,
        (cancel, bytes_per_second): (&AtomicBool, Option<u64>),
        book: &(dyn Fn(&Fate) + Sync),
    ) -> io::Result<bool> {
        let by = Callers {
            target,
            folder: &self.folder,
            count: callers,
            cancel,
            bytes_per_second,
            has_ended: &|| self.has_ended(),
        };
        by.run(&survey.parts, book, &|_| false)
    }

    /// Why a call failed: as it says, unless the process has ended meanwhile. The kernel has many an errno for that.
    fn failed(&self, error: MoveError) -> MoveError {
        match self.is_gone() {
            true => self.gone(),
            false => error,
        }
    }

    /// Whether it has ended, or is about to: a process that exits loses its memory first, and a large one takes a while over it.
    fn is_gone(&self) -> bool {
        self.has_ended() || mappings(&self.folder).is_ok_and(|all| all.is_empty())
    }

    /// It ended before anything was done.
    fn gone(&self) -> MoveError {
        MoveError::NoProcess {
            pid: self.pid(),
            why: "it has ended",
            hint: "give the number of a running program",
        }
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        match &self.descriptor {
            Some(descriptor) => memferry_linux::process::has_ended(descriptor).unwrap_or(false),
            None => !self.folder.exists(),
        }
    }
}
