// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that the movers of this process need to bring pages back. No move may take it away, its own mover's or another's: a lane
//! that waits for such a page waits for a lane, and two movers that had each other's would wait for ever.
//!
//! A move notes what it needs before it looks at what others have noted, so of two that begin at once one at least sees the other.

use super::memory::map_somewhere;
use super::{page_size, process};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

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

/// Free while `start` is 0; valid once `end` is set.
struct Entry {
    start: AtomicUsize,
    end: AtomicUsize,
    /// Index of what lies there, above it the generation of the process that noted it.
    what: AtomicU64,
    /// Address of the `Core` whose move noted it; 0: noted for good.
    owner: AtomicUsize,
}

/// What is noted.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) range: Range<usize>,
    pub(crate) what: What,
    owner: usize,
}

/// Entries of a table, which is the smallest page there is.
const ENTRIES: usize = (4096 - size_of::<AtomicPtr<Table>>()) / size_of::<Entry>();

/// A table of them, and the next for more. A table stays once it is there, so nobody needs a lock to read it, a child of fork neither.
struct Table {
    entries: [Entry; ENTRIES],
    next: AtomicPtr<Table>,
}

static FIRST: Table = Table {
    entries: [const {
        Entry {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            what: AtomicU64::new(0),
            owner: AtomicUsize::new(0),
        }
    }; ENTRIES],
    next: AtomicPtr::new(std::ptr::null_mut()),
};

const _: () = assert!(size_of::<Table>() <= 4096);

impl Entry {
    /// `None` if the entry is free, or was freed or taken by another range while it was read.
    fn read(&self) -> Option<Own> {
        let start = self.start.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Acquire);
        let what = self.what.load(Ordering::Acquire);
        let owner = self.owner.load(Ordering::Acquire);
        let same = start == self.start.load(Ordering::Acquire);
        if !same || start >= end {
            return None;
        }
        let (generation, what) = ((what >> 8) as u32, What::ALL[what as usize & 0xff]);
        // A child of fork has its parent's lists, but no mapping of a pool and no move of it.
        let inherited = what != What::List && generation != process::generation();
        let range = start..end;
        (!inherited).then_some(Own { range, what, owner })
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
fn note(range: &Range<usize>, what: What, owner: usize) -> Option<&'static Entry> {
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
            let generation = u64::from(process::generation());
            entry.owner.store(owner, Ordering::Release);
            (entry.what).store(generation << 8 | what as u64, Ordering::Release);
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
    note(&(addr..addr + len), What::List, 0).is_some()
}

pub(crate) fn forget_list(addr: usize) {
    let mut entries = Table::all().flat_map(|table| &table.entries);
    let is_list = |own: Own| (own.range.start, own.what) == (addr, What::List);
    let list = |entry: &Entry| entry.read().is_some_and(is_list);
    if let Some(entry) = entries.find(|entry| list(entry)) {
        entry.free();
    }
}

/// All that is noted, and the tables themselves.
pub(crate) fn all() -> impl Iterator<Item = Own> {
    let noted = Table::all()
        .flat_map(|table| &table.entries)
        .filter_map(Entry::read);
    // The first table is no mapping.
    let tables = Table::all().skip(1).map(|table| {
        let start = std::ptr::from_ref(table).addr();
        Own {
            range: start..start + page_size(),
            what: What::List,
            owner: 0,
        }
    });
    noted.chain(tables)
}

/// All but the notes of moves of the same mover: these take turns.
pub(crate) fn all_but(owner: usize) -> impl Iterator<Item = Own> {
    all().filter(move |own| own.owner == 0 || own.owner != owner)
}

/// Keeps a range noted.
pub(crate) struct Noted(Option<&'static Entry>);

impl Noted {
    /// # Errors
    /// There is no memory to note it.
    pub(crate) fn new(range: &Range<usize>, what: What, owner: usize) -> io::Result<Noted> {
        if range.is_empty() {
            return Ok(Noted(None));
        }
        let entry =
            note(range, what, owner).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forkgate::tests::in_child;

    const RANGE: Range<usize> = 1 << 20..2 << 20;

    fn is_noted() -> bool {
        all_but(0).any(|own| own.range == RANGE)
    }

    #[test]
    fn a_child_of_fork_has_no_moves() {
        let noted = Noted::new(&RANGE, What::Caller, 1).unwrap();
        assert!(is_noted());
        assert!(all_but(1).all(|own| own.range != RANGE), "its own mover's");
        assert!(in_child(|| !is_noted()));
        drop(noted);
        assert!(!is_noted());
    }
}
