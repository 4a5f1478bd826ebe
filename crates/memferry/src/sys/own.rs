// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that the movers of this process need to bring pages back. No move may take it away, its own mover's or another's: a lane
//! that waits for such a page waits for a lane, and two movers that had each other's would wait for ever.
//!
//! Who notes memory here looks afterwards at what others have noted, so of two that begin at once one at least sees the other.

use super::memory::map_somewhere;
use super::page_size;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};

/// What lies in a range. Its text completes "the range holds ...".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    List,
    Pool,
    Page,
    CancelFlag,
    Mover,
    Migrator,
    Caller,
    Lane,
}

impl What {
    const ALL: [What; 8] = [
        What::List,
        What::Pool,
        What::Page,
        What::CancelFlag,
        What::Mover,
        What::Migrator,
        What::Caller,
        What::Lane,
    ];

    pub(crate) fn text(self) -> &'static str {
        match self {
            What::List => "lists of a mover",
            What::Pool => "pages of a mover's pool",
            What::Page => "a page of a mover",
            What::CancelFlag => "the cancel flag of a move",
            What::Mover => "a mover",
            What::Migrator => "a migrator",
            What::Caller => "the stack of a calling thread",
            What::Lane => "the stack of a lane",
        }
    }
}

/// A range that is free (0), or noted once its end is there.
struct Entry {
    start: AtomicUsize,
    end: AtomicUsize,
    what: AtomicUsize,
}

/// A table of them, and the next for more. A table stays once it is there, so nobody needs a lock to read it, a child of fork neither.
struct Table {
    entries: [Entry; 170],
    next: AtomicPtr<Table>,
}

static FIRST: Table = Table {
    entries: [const {
        Entry {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            what: AtomicUsize::new(0),
        }
    }; 170],
    next: AtomicPtr::new(std::ptr::null_mut()),
};

// The smallest page there is.
const _: () = assert!(size_of::<Table>() <= 4096);

impl Entry {
    /// What it notes. `forget` may free the entry meanwhile, and another range take it: then it is nobody's.
    fn read(&self) -> Option<(Range<usize>, What)> {
        let start = self.start.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Acquire);
        let what = self.what.load(Ordering::Acquire);
        let same = start == self.start.load(Ordering::Acquire);
        (same && start < end).then(|| (start..end, What::ALL[what]))
    }

    fn free(&self) {
        self.end.store(0, Ordering::Release);
        self.start.store(0, Ordering::Release);
    }
}

impl Table {
    fn next(&self) -> Option<&'static Table> {
        // SAFETY: null, or a table that `grow` made, which stays.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    fn all() -> impl Iterator<Item = &'static Table> {
        std::iter::successors(Some(&FIRST), |table| table.next())
    }

    /// Another table behind this one, which is the last; `None` if there is no memory.
    fn grow(&self) -> Option<&'static Table> {
        let mine = map_somewhere(page_size()).ok()?.cast::<Table>();
        let (null, order) = (std::ptr::null_mut(), Ordering::AcqRel);
        let set = (self.next).compare_exchange(null, mine.as_ptr(), order, Ordering::Acquire);
        if set.is_err() {
            // SAFETY: nobody else knows this mapping.
            unsafe { libc::munmap(mine.as_ptr().cast(), page_size()) };
        }
        self.next()
    }
}

/// Notes a range that is not empty; `None` if there is no memory for the table.
fn note(range: &Range<usize>, what: What) -> Option<&'static Entry> {
    let mut table = &FIRST;
    loop {
        let free = table.entries.iter().find(|entry| {
            let (taken, failed) = (Ordering::AcqRel, Ordering::Relaxed);
            entry.start.load(failed) == 0
                && (entry.start)
                    .compare_exchange(0, range.start, taken, failed)
                    .is_ok()
        });
        if let Some(entry) = free {
            entry.what.store(what as usize, Ordering::Release);
            entry.end.store(range.end, Ordering::Release);
            // Before anything of others is read.
            fence(Ordering::SeqCst);
            return Some(entry);
        }
        table = table.next().or_else(|| table.grow())?;
    }
}

/// Notes a mapping with lists; false if there is no memory for the table.
pub(crate) fn note_list(addr: usize, len: usize) -> bool {
    note(&(addr..addr + len), What::List).is_some()
}

pub(crate) fn forget_list(addr: usize) {
    let mut entries = Table::all().flat_map(|table| &table.entries);
    let list = |entry: &Entry| {
        entry
            .read()
            .is_some_and(|(range, what)| (range.start, what) == (addr, What::List))
    };
    if let Some(entry) = entries.find(|entry| list(entry)) {
        entry.free();
    }
}

/// All that is noted, and the tables themselves.
pub(crate) fn all() -> impl Iterator<Item = (Range<usize>, What)> {
    let noted = Table::all()
        .flat_map(|table| &table.entries)
        .filter_map(Entry::read);
    // The first table is no mapping.
    let tables = Table::all().skip(1).map(|table| {
        let start = std::ptr::from_ref(table).addr();
        (start..start + page_size(), What::List)
    });
    noted.chain(tables)
}

/// Keeps a range noted.
pub(crate) struct Noted(Option<&'static Entry>);

impl Noted {
    /// # Errors
    /// There is no memory to note it.
    pub(crate) fn new(range: &Range<usize>, what: What) -> io::Result<Noted> {
        if range.is_empty() {
            return Ok(Noted(None));
        }
        let entry = note(range, what).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Noted(Some(entry)))
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(entry) = self.0 {
            entry.free();
        }
    }
}
