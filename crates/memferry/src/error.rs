// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one error type of the library's moves: what is wrong, why, and what to try.

use crate::sys::{errno, page_size};
use std::io;
use std::ops::Range;

/// Why nothing was moved.
///
/// What happens to single pages on the way is no error: [`MoveResult`](crate::MoveResult) counts it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// The range is empty, unaligned or wraps.
    #[error(
        "range {:#x}-{:#x} cannot be moved: {why}; give a start and a length that are multiples of {page} bytes",
        range.start, range.end
    )]
    BadRange {
        /// The range as given.
        range: Range<usize>,
        /// What is wrong with it.
        why: &'static str,
        /// Base page, bytes.
        page: usize,
    },
    /// A range has addresses of another one: of the list, or of what is tiered.
    #[error(
        "range {:#x}-{:#x} has addresses of another range; give each page once",
        range.start, range.end
    )]
    Overlap {
        /// The later one.
        range: Range<usize>,
    },
    /// Part of the range is no memory that this backend can move.
    #[error("range {:#x}-{:#x} cannot be moved: {what}; {hint}", range.start, range.end)]
    Unmovable {
        /// The offending part.
        range: Range<usize>,
        /// What lies there.
        what: Unmovable,
        /// What to try.
        hint: &'static str,
    },
    /// The range holds memory that a move needs, this one or another under way: movers, their pools, a calling thread's stack and
    /// thread-locals, statics of the library or of one that it calls.
    #[error(
        "range {:#x}-{:#x} holds {what}, which moves need themselves; move the ranges around it",
        range.start, range.end
    )]
    OwnMemory {
        /// The part that the mover needs.
        range: Range<usize>,
        /// What lies there.
        what: &'static str,
    },
    /// Another userfaultfd watches the range.
    #[error(
        "range {:#x}-{:#x} is registered with another userfaultfd; move it before that one is set up or after it is closed",
        range.start, range.end
    )]
    Watched {
        /// The range as given.
        range: Range<usize>,
    },
    /// The node is not there or has no memory.
    #[error(
        "node {node} cannot take pages: {why}; `memferry topology` lists the nodes with memory"
    )]
    BadNode {
        /// The node asked for.
        node: u32,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An option is outside what is possible.
    #[error("option {name} is {value}: {why}")]
    BadOption {
        /// Name of the option.
        name: &'static str,
        /// Its value.
        value: usize,
        /// What is allowed.
        why: String,
    },
    /// The base pages of this kernel are not those that the library moves.
    #[error("base pages are {} KiB here, and those of {} KiB alone are moved; boot a kernel with such pages", page >> 10, PAGE_BYTES >> 10)]
    PageSize {
        /// Base page, bytes.
        page: usize,
    },
    /// Neither way to move pages works on this system.
    #[error("no way to move pages here: userfaultfd: {userfaultfd}; move_pages: {move_pages}")]
    NoBackend {
        /// Why userfaultfd does not do, and what would enable it.
        userfaultfd: String,
        /// Why move_pages(2) does not do, and what would enable it.
        move_pages: String,
    },
    /// There is no process of that number, or none that has memory.
    #[error("process {pid} cannot be moved: {why}; {hint}")]
    NoProcess {
        /// The number.
        pid: u32,
        /// What is wrong with it.
        why: &'static str,
        /// What to try.
        hint: &'static str,
    },
    /// The value was made before a fork and belongs to the parent process.
    #[error("this mover belongs to the process that made it; make a new one after fork")]
    OtherProcess,
    /// A system call failed that has no other reason to fail.
    #[error("{call} failed: {source}; {hint}")]
    System {
        /// The system call.
        call: &'static str,
        /// What to try.
        hint: &'static str,
        /// The error.
        source: io::Error,
    },
}

/// Memory that cannot be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unmovable {
    /// Nothing is mapped there.
    #[error("nothing is mapped there")]
    Unmapped,
    /// A shared mapping.
    #[error("it is a shared mapping")]
    Shared,
    /// A private mapping of a file.
    #[error("it is backed by a file")]
    File,
    /// Huge pages of hugetlbfs.
    #[error("it is made of hugetlb pages")]
    Hugetlb,
    /// Memory of a device or of the kernel.
    #[error("it is memory of a device or of the kernel")]
    Device,
}

impl MoveError {
    pub(crate) fn system(
        call: &'static str,
        hint: &'static str,
    ) -> impl FnOnce(io::Error) -> MoveError {
        move |source| MoveError::System { call, hint, source }
    }

    /// The nearest errno, as the C interface returns it (positive).
    pub fn errno(&self) -> i32 {
        match self {
            MoveError::BadRange { .. }
            | MoveError::Overlap { .. }
            | MoveError::BadOption { .. } => libc::EINVAL,
            MoveError::Unmovable {
                what: Unmovable::Unmapped,
                ..
            } => libc::EFAULT,
            MoveError::Unmovable { .. } | MoveError::PageSize { .. } => libc::EOPNOTSUPP,
            MoveError::OwnMemory { .. } => libc::EDEADLK,
            MoveError::Watched { .. } => libc::EBUSY,
            MoveError::BadNode { .. } => libc::ENODEV,
            MoveError::NoBackend { .. } => libc::ENOSYS,
            MoveError::NoProcess { .. } | MoveError::OtherProcess => libc::ESRCH,
            MoveError::System { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

/// Base page of every kernel that the library was tested on, bytes.
const PAGE_BYTES: usize = 4096;

/// Refuses base pages of `page` bytes unless they are of 4 KiB: with larger ones a huge page is no segment of the pool.
///
/// # Errors
/// [`MoveError::PageSize`].
pub fn check_page_size(page: usize) -> Result<(), MoveError> {
    if page == PAGE_BYTES {
        Ok(())
    } else {
        Err(MoveError::PageSize { page })
    }
}

/// A range that some process can have: whole base pages, at least one, in the lower half of the addresses.
pub(crate) fn check_range(range: &Range<usize>) -> Result<(), MoveError> {
    let page = page_size();
    let why = if range.start >= range.end {
        "it is empty or ends before it starts"
    } else if range.start % page != 0 || range.end % page != 0 {
        "it is not aligned to pages"
    } else if size_of::<usize>() > 4 && range.end > usize::MAX / 2 {
        "it ends beyond the last address of a process"
    } else {
        return Ok(());
    };
    Err(MoveError::BadRange {
        range: range.clone(),
        why,
        page,
    })
}

/// Why move_pages(2) does or does not do on a machine with so many memory nodes.
pub(crate) fn move_pages_verdict(nodes: usize) -> String {
    if nodes < 2 {
        "this machine has one memory node, and move_pages(2) only moves between nodes".to_owned()
    } else {
        "usable".to_owned()
    }
}

/// Why a userfaultfd could not be opened, and what would enable it.
pub(crate) fn explain_userfaultfd(error: &io::Error) -> String {
    match errno(error) {
        libc::EPERM => "not permitted: give this process CAP_SYS_PTRACE, or access to /dev/userfaultfd, or set \
                        vm.unprivileged_userfaultfd=1 (a container's seccomp profile may also forbid it)"
            .to_owned(),
        libc::ENOSYS => "this kernel is built without CONFIG_USERFAULTFD".to_owned(),
        libc::EINVAL => "this kernel has no UFFDIO_MOVE; Linux 6.8 has it".to_owned(),
        _ => format!("{error}; raise the limit of open files if it is reached"),
    }
}
