// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destination pages on a node, and the staging ranges that pages are moved out to.
//!
//! A pool keeps two kinds of address ranges ("pieces") of mappings that it owns: full ones hold a free page at each
//! address, empty ones wait for pages that are moved out. It moves nothing itself. Free pages come from `prefill`, from
//! the kernel when there is none (cold), and, where the caller allows it, from the source pages of earlier moves (warm).

mod free;
#[cfg(test)]
mod tests;

pub(crate) use free::Piece;

use crate::sync::Unpoisoned;
use crate::sys;
use crate::sys::heap::Heap;
use crate::sys::list::{List, Pages};
use crate::sys::memory::{self, Mapping};
use crate::sys::own::{Noted, What};
use crate::sys::uffd::{self, Uffd};
use free::FreePieces;
use memferry_linux::numa;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Address space that is mapped at a time, bytes. Each such mapping has an anon_vma lock of its own, so lanes that
/// remap from different ones do not wait for each other.
const CHUNK: usize = 64 << 20;

/// Pieces stay below this size and never cross a multiple of it: one page table, one PMD, one THP.
pub(crate) const SEGMENT: usize = 2 << 20;

/// What one free list holds: pages of one node, size and locking, since UFFDIO_MOVE demands equal VMA flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageClass {
    /// Node the pages lie on.
    pub node: u32,
    /// 2 MiB THPs rather than base pages.
    pub huge: bool,
    /// The mapping is locked (mlock).
    pub locked: bool,
}

impl PageClass {
    /// Bytes of one of its pages.
    pub(crate) fn unit(self) -> usize {
        if self.huge { SEGMENT } else { sys::page_size() }
    }
}

struct FreeList {
    class: PageClass,
    /// Free pages.
    full: FreePieces,
    /// Empty staging ranges.
    empty: FreePieces,
    /// Empty ranges that pages can be allocated in.
    fresh: FreePieces,
    mappings: List<Chunk>,
}

/// A mapping of the pool, noted so that no mover moves it.
struct Chunk {
    _noted: Noted,
    mapping: Mapping,
}

/// The mapping of staging that a userfaultfd watches at this moment as a whole.
#[derive(Default)]
pub(crate) struct Watched {
    /// Empty: nothing.
    range: Range<usize>,
    /// The descriptor, open until `end_staging`.
    fd: RawFd,
    /// Only single pieces are watched until `end_staging`; else mappings as a whole may be at any time.
    by_piece: bool,
}

impl Watched {
    fn end(&mut self) {
        if !self.range.is_empty() {
            // It cannot fail on a range of ours.
            let _ = uffd::unregister(self.fd, self.range.start, self.range.len());
            self.range = 0..0;
        }
    }
}

/// Keeps a part of staging watched, and others from giving up its pages.
pub(crate) enum Staging<'p> {
    Whole {
        _watched: RwLockReadGuard<'p, Watched>,
    },
    Piece {
        place: &'p Uffd,
        range: Range<usize>,
    },
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        if let Staging::Piece { place, range } = self {
            // It cannot fail on a range of ours.
            let _ = place.unregister(range.start, range.len());
        }
    }
}

/// The pool of one mover.
pub(crate) struct PagePool {
    free_lists: Mutex<List<FreeList>>,
    /// Bytes of free pages that may be kept.
    limit: usize,
    /// The mapping of staging that is watched at this moment. Its lock comes before that of `free_lists`.
    watched: RwLock<Watched>,
    /// Whether a node must be asked for: a machine with one node takes pages where they are.
    bind: bool,
}

impl PagePool {
    /// An empty pool that keeps at most `limit` bytes of free pages.
    pub(crate) fn new(limit: usize, bind: bool) -> PagePool {
        PagePool {
            free_lists: Mutex::new(List::new_in(Pages)),
            limit,
            watched: RwLock::default(),
            bind,
        }
    }

    fn lock(&self) -> Locked<'_> {
        Locked {
            lists: self.free_lists.lock().unpoisoned(),
            _heap: Heap::forbid(),
        }
    }

    /// Bytes of free pages kept at this moment.
    pub(crate) fn kept(&self) -> usize {
        self.lock().kept()
    }

    /// Bytes of free pages kept for one class.
    pub(crate) fn kept_on(&self, class: PageClass) -> usize {
        self.lock().free_list(class).full.bytes()
    }

    /// Free pages for at most `len` bytes, contiguous addresses; `None` when there are none.
    pub(crate) fn take_full(&self, class: PageClass, len: usize) -> Option<Piece> {
        self.lock().free_list(class).full.take_oldest(len)
    }

    /// An empty range of at most `len` bytes: to move pages out to (`staging`), or to allocate pages in.
    pub(crate) fn take_empty(
        &self,
        class: PageClass,
        len: usize,
        staging: bool,
    ) -> io::Result<Piece> {
        let mut lists = self.lock();
        let free_list = lists.free_list(class);
        // A part of half the length at least: small ones would make small batches, and no THP at all.
        let least = if class.huge { len } else { len.div_ceil(2) };
        if let Some(piece) = free_list.without_pages(staging).take_tightest(len, least) {
            return Ok(piece);
        }
        free_list.grow(self.bind, staging)?;
        let piece = free_list.without_pages(staging).take_tightest(len, least);
        piece.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
    }

    /// Takes a range back that holds a free page at each address. What the limit does not allow goes to the kernel.
    pub(crate) fn put_full(&self, piece: Piece) {
        if piece.len == 0 {
            return;
        }
        let mut lists = self.lock();
        let refused = match lists.kept() + piece.len <= self.limit {
            true => lists.free_list(piece.class).full.put(piece),
            false => Some(piece),
        };
        drop(lists);
        if let Some(piece) = refused {
            self.discard(piece);
        }
    }

    /// Watches where a staging piece lies, so that pages can be moved out to it as long as the answer lives.
    ///
    /// A page that its owner freed lazily (MADV_FREE) the kernel may discard once it has moved out; a lane that copies from there while
    /// it is still watched waits for itself. With `keep` the whole mapping is watched at once and for the rest of the move, and the
    /// caller has promised that there is no such page.
    pub(crate) fn stage<'p>(
        &'p self,
        place: &'p Uffd,
        piece: &Piece,
        keep: bool,
    ) -> io::Result<Staging<'p>> {
        if !keep {
            let by_piece = self.watched.read().unpoisoned().by_piece;
            if !by_piece {
                let mut watched = self.watching();
                watched.end();
                watched.by_piece = true;
            }
            let range = piece.addr..piece.end();
            place.register(range.start, range.len())?;
            return Ok(Staging::Piece { place, range });
        }
        loop {
            let watched = self.watched.read().unpoisoned();
            if watched.range.contains(&piece.addr) {
                return Ok(Staging::Whole { _watched: watched });
            }
            drop(watched);
            let mut watched = self.watching();
            watched.end();
            let range = self.mapping_of(piece);
            place.register(range.start, range.len())?;
            *watched = Watched {
                range,
                fd: place.as_raw_fd(),
                by_piece: false,
            };
        }
    }

    /// Watches no staging any more. Must come before the descriptor is closed.
    pub(crate) fn end_staging(&self) {
        let mut watched = self.watching();
        watched.end();
        watched.by_piece = false;
    }

    /// The piece is not watched as long as the answer lives. Who empties a watched range waits in the kernel until a lane has read the
    /// message of it: the emptying lane may be the only one that could.
    fn unwatched(&self, piece: &Piece) -> Option<RwLockWriteGuard<'_, Watched>> {
        let mut watched = self.watching();
        if watched.range.contains(&piece.addr) {
            watched.end();
        }
        (piece.staging && !watched.by_piece).then_some(watched)
    }

    fn watching(&self) -> RwLockWriteGuard<'_, Watched> {
        self.watched.write().unpoisoned()
    }

    fn mapping_of(&self, piece: &Piece) -> Range<usize> {
        let lists = self.lock();
        let mut extents = lists.extents();
        let found = extents.find(|range| range.contains(&piece.addr));
        found.unwrap_or(piece.addr..piece.end())
    }

    /// Gives the pages of a range to the kernel and keeps the addresses.
    pub(crate) fn discard(&self, piece: Piece) {
        if piece.len == 0 {
            return;
        }
        {
            let _unwatched = self.unwatched(&piece);
            // MADV_DONTNEED fails on a locked range; then unlock it first. It cannot fail otherwise on our own mapping.
            // SAFETY: the piece was given out by this pool and came back: nobody refers to it.
            let discard = || unsafe { memory::discard(piece.addr, piece.len) };
            if discard().is_err() {
                let _ = memory::unlock(piece.addr, piece.len);
                let _ = discard();
                let _ = memory::lock_on_fault(piece.addr, piece.len);
            }
        }
        self.put_empty(piece);
    }

    /// Takes an empty range back. Where there is no memory for the list the addresses lie idle until the pool ends: pages may be away,
    /// and the process must not end for it.
    pub(crate) fn put_empty(&self, piece: Piece) {
        if piece.len == 0 {
            return;
        }
        let mut lists = self.lock();
        let list = lists.free_list(piece.class).without_pages(piece.staging);
        let _idle = list.put(piece);
    }

    /// Free pages for at most `len` bytes that the kernel allocates on the class's node. `is_huge` tells whether a piece holds a
    /// THP: one that the kernel could only give as base pages is refused.
    pub(crate) fn allocate(
        &self,
        class: PageClass,
        len: usize,
        is_huge: impl Fn(&Piece) -> bool,
    ) -> io::Result<Piece> {
        let piece = self.take_empty(class, len, false)?;
        let populated = match self.populate(&piece) {
            Ok(()) if class.huge && !is_huge(&piece) => {
                Err(io::Error::from_raw_os_error(libc::ENOMEM))
            }
            populated => populated,
        };
        match populated {
            Ok(()) => Ok(piece),
            Err(error) => {
                self.reset(piece);
                Err(error)
            }
        }
    }

    /// Allocates the pages of an empty, non-staging range on the class's node. After a failure, `reset` the range.
    fn populate(&self, piece: &Piece) -> io::Result<()> {
        if piece.class.huge && piece.len == SEGMENT {
            // A fault takes the lock of the mapping alone; madvise(2) would hold that of all mappings while the kernel clears the
            // THP, and lanes that register staging would wait. Where there is no THP `is_huge` finds out.
            // SAFETY: the piece is empty and the caller's.
            unsafe { (piece.addr as *mut u8).write_volatile(0) };
        } else {
            memory::populate(piece.addr, piece.len)?;
        }
        if self.bind {
            bring_to_node(piece)?;
        }
        Ok(())
    }

    /// Takes back a range whatever it holds: one that `populate` filled only in part, or with base pages instead of a THP,
    /// or one in which a THP was split. Discarding would keep the page table of those, and no THP would ever fit there again.
    pub(crate) fn reset(&self, piece: Piece) {
        if !piece.class.huge {
            return self.discard(piece);
        }
        let unwatched = self.unwatched(&piece);
        // SAFETY: the piece was given out by this pool and came back: nobody refers to it.
        let anew = unsafe { memory::map_anew(piece.addr, piece.len) };
        if anew.is_err() {
            drop(unwatched);
            return self.discard(piece);
        }
        // SAFETY: the piece is mapped anew, and nobody has it.
        let set_up = unsafe { set_up(piece.addr, piece.len, piece.class, self.bind) };
        drop(unwatched);
        // Else the addresses lie idle until the pool ends.
        if set_up.is_ok() {
            self.put_empty(piece);
        }
    }

    /// Gives free pages back until at most `bytes` are kept.
    pub(crate) fn trim(&self, bytes: usize) {
        loop {
            let mut lists = self.lock();
            if lists.kept() <= bytes {
                return;
            }
            let mut full = lists.lists.iter_mut().map(|list| &mut list.full);
            let Some(piece) = full.find_map(|list| list.take_oldest(SEGMENT)) else {
                return;
            };
            drop(lists);
            self.discard(piece);
        }
    }

    /// The limit, bytes.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }
}

/// Whoever holds the heap's lock may wait for a page that is away, and the lane that brings it back for the pool.
struct Locked<'a> {
    lists: MutexGuard<'a, List<FreeList>>,
    _heap: Heap,
}

impl Locked<'_> {
    /// Addresses of all mappings.
    fn extents(&self) -> impl Iterator<Item = Range<usize>> {
        let mappings = self.lists.iter().flat_map(|list| &list.mappings);
        mappings.map(|chunk| chunk.mapping.range())
    }

    /// Bytes of free pages kept.
    fn kept(&self) -> usize {
        self.lists.iter().map(|list| list.full.bytes()).sum()
    }

    fn free_list(&mut self, class: PageClass) -> &mut FreeList {
        let index = match self.lists.iter().position(|s| s.class == class) {
            Some(index) => index,
            None => {
                self.lists.push(FreeList {
                    class,
                    full: FreePieces::new(),
                    empty: FreePieces::new(),
                    fresh: FreePieces::new(),
                    mappings: List::new_in(Pages),
                });
                self.lists.len() - 1
            }
        };
        &mut self.lists[index]
    }
}

impl FreeList {
    fn without_pages(&mut self, staging: bool) -> &mut FreePieces {
        match staging {
            true => &mut self.empty,
            false => &mut self.fresh,
        }
    }

    /// Maps another chunk, as staging or to allocate in.
    fn grow(&mut self, bind: bool, staging: bool) -> io::Result<()> {
        // What is locked counts against RLIMIT_MEMLOCK whether pages are there or not.
        let chunk = if self.class.locked { SEGMENT } else { CHUNK };
        let mapping = Mapping::new(chunk, SEGMENT)?;
        let noted = Noted::new(&mapping.range(), What::Pool, 0)?;
        let (addr, len) = (mapping.addr(), mapping.len());
        if staging && !self.class.huge {
            // The mapping gets its anon_vma before a part of it is watched: Linux 6.12 never makes one mapping again of parts that got it
            // later, and the kernel moves pages to one at a time. THPs come by whole segments.
            memory::populate(addr, sys::page_size())?;
        }
        // SAFETY: the mapping is new.
        unsafe { set_up(addr, len, self.class, bind)? };
        // The lowest comes last, and is taken first.
        for addr in (addr..addr + len).step_by(SEGMENT).rev() {
            let (len, class) = (SEGMENT, self.class);
            let piece = Piece {
                addr,
                len,
                class,
                staging,
            };
            let _idle = self.without_pages(staging).put(piece);
        }
        self.mappings.push(Chunk {
            _noted: noted,
            mapping,
        });
        Ok(())
    }
}

/// Makes a fresh mapping one for pages of the class.
///
/// # Safety
/// The range is a part of a `Mapping` of this pool, and nobody refers to it.
unsafe fn set_up(addr: usize, len: usize, class: PageClass, bind: bool) -> io::Result<()> {
    // Under mlockall(MCL_FUTURE) the kernel has locked and filled it.
    memory::unlock(addr, len)?;
    // SAFETY: the caller's promise.
    unsafe { memory::discard(addr, len)? };
    // A kernel without THP knows neither advice; it has no huge pages to keep away either.
    match memory::advise_thps(addr, len, class.huge) {
        Err(e) if sys::errno(&e) != libc::EINVAL || class.huge => return Err(e),
        _ => {}
    }
    if bind {
        numa::prefer(&(addr..addr + len), class.node)?;
    }
    if class.locked {
        memory::lock_on_fault(addr, len)?;
    }
    Ok(())
}

/// Sees to it that the fresh pages of a range lie on the class's node. The kernel took those that the node did not have
/// at once from another one; move_pages(2) tries harder, but kills nobody.
fn bring_to_node(piece: &Piece) -> io::Result<()> {
    // On the stack: a lane must not touch memory that may itself be on its way.
    const AT_ONCE: usize = 256;
    let (unit, node) = (piece.class.unit(), piece.class.node as i32);
    let mut addresses = [0; AT_ONCE];
    let mut status = [0; AT_ONCE];
    let mut start = piece.addr;
    while start < piece.end() {
        let count = ((piece.end() - start) / unit).clamp(1, AT_ONCE);
        for (index, address) in addresses[..count].iter_mut().enumerate() {
            *address = start + index * unit;
        }
        let (addresses, status) = (&addresses[..count], &mut status[..count]);
        numa::move_pages(0, addresses, None, status, false)?;
        if status.iter().any(|&s| s != node) {
            // Whether it worked shows in the second look.
            let _ = numa::move_pages(0, addresses, Some(&[node; AT_ONCE][..count]), status, false);
            numa::move_pages(0, addresses, None, status, false)?;
            if status.iter().any(|&s| s != node) {
                return Err(io::Error::from_raw_os_error(libc::ENOMEM));
            }
        }
        start += count * unit;
    }
    Ok(())
}
