// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists whose memory comes from mmap.
//!
//! While a range is watched the mover must not ask the program's heap for memory: whoever holds the heap's lock may be waiting
//! for the mover.

use super::memory::map_somewhere;
use super::own;
use super::page_size;
use allocator_api2::alloc::{AllocError, Allocator, Layout};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// A vector outside of the heap. Like one of the heap it ends the process where there is no memory at all.
pub(crate) type List<T> = allocator_api2::vec::Vec<T, Pages>;

/// Whole pages of memory. Up to 16 pages are cut from one mapping that stays: mapping and unmapping them costs as much as a
/// small move, and a mapping of a page would land in the gaps that the program leaves. More pages have a mapping of their own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pages;

/// Sizes of small ones: 1, 2, 4, 8 and 16 pages, and how many there are of each.
const SIZES: usize = 5;
const OF_EACH: usize = 32;

/// Where the small ones lie, by size; 0 as long as there is none.
static SMALL: AtomicUsize = AtomicUsize::new(0);
/// Which of them are taken, a bit each.
static TAKEN: [AtomicU32; SIZES] = [const { AtomicU32::new(0) }; SIZES];

fn small_bytes() -> usize {
    page_size() * OF_EACH * ((1 << SIZES) - 1)
}

/// Where the small ones lie; they are mapped by the first who asks.
fn small() -> Option<usize> {
    let known = SMALL.load(Ordering::Acquire);
    if known != 0 {
        return Some(known);
    }
    let mine = map_somewhere(small_bytes()).ok()?;
    let addr = mine.as_ptr().expose_provenance();
    if !own::note_list(addr, small_bytes()) {
        // SAFETY: nobody else knows this mapping.
        unsafe { libc::munmap(mine.as_ptr().cast(), small_bytes()) };
        return None;
    }
    match SMALL.compare_exchange(0, addr, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(addr),
        Err(other) => {
            own::forget_list(addr);
            // SAFETY: nobody else knows this mapping.
            unsafe { libc::munmap(mine.as_ptr().cast(), small_bytes()) };
            Some(other)
        }
    }
}

/// Offset of small one `slot` of `1 << size` pages.
fn offset(size: usize, slot: usize) -> usize {
    page_size() * (OF_EACH * ((1 << size) - 1) + (slot << size))
}

fn take_small(size: usize) -> Option<NonNull<u8>> {
    let base = small()?;
    let mut taken = TAKEN[size].load(Ordering::Relaxed);
    while taken != u32::MAX {
        let slot = taken.trailing_ones();
        let (with, order) = (taken | 1 << slot, Ordering::Relaxed);
        match TAKEN[size].compare_exchange_weak(taken, with, Ordering::Acquire, order) {
            Ok(_) => {
                let addr = base + offset(size, slot as usize);
                return NonNull::new(std::ptr::with_exposed_provenance_mut(addr));
            }
            Err(now) => taken = now,
        }
    }
    None
}

/// Bytes of an allocation, and its size as a power of two of pages.
fn size_of_layout(layout: Layout) -> Result<(usize, usize), AllocError> {
    debug_assert!(layout.align() <= page_size());
    let pages = layout.size().div_ceil(page_size());
    let pages = pages.checked_next_power_of_two().ok_or(AllocError)?;
    let len = pages.checked_mul(page_size()).ok_or(AllocError)?;
    Ok((len, pages.trailing_zeros() as usize))
}

// SAFETY: each allocation is pages that nobody else has until it is deallocated, wherever the allocator goes.
unsafe impl Allocator for Pages {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let (len, size) = size_of_layout(layout)?;
        if let Some(start) = (size < SIZES).then(|| take_small(size)).flatten() {
            return Ok(NonNull::slice_from_raw_parts(start, len));
        }
        let start = map_somewhere(len).map_err(|_| AllocError)?;
        if !own::note_list(start.as_ptr().addr(), len) {
            // SAFETY: nobody else knows this mapping.
            unsafe { libc::munmap(start.as_ptr().cast(), len) };
            return Err(AllocError);
        }
        Ok(NonNull::slice_from_raw_parts(start, len))
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        let Ok((len, size)) = size_of_layout(layout) else {
            return;
        };
        let addr = start.as_ptr().addr();
        let base = SMALL.load(Ordering::Acquire);
        if base != 0 && (base..base + small_bytes()).contains(&addr) {
            let slot = (addr - base - offset(size, 0)) / len;
            TAKEN[size].fetch_and(!(1 << slot), Ordering::Release);
            return;
        }
        own::forget_list(addr);
        // SAFETY: `allocate` mapped it, with a layout whose pages are as many.
        unsafe { libc::munmap(start.as_ptr().cast(), len) };
    }
}

/// What a file of /proc says.
pub(crate) fn read_file(path: &Path) -> io::Result<List<u8>> {
    let mut file = File::open(path)?;
    let mut text = List::new_in(Pages);
    loop {
        let len = text.len();
        text.resize(len + (4 << 10), 0);
        let count = file.read(&mut text[len..])?;
        text.truncate(len + count);
        if count == 0 {
            return Ok(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Unpoisoned;
    use std::sync::Mutex;

    /// Held by tests that have hundreds of lists: one would find another's where its own were.
    static MANY: Mutex<()> = Mutex::new(());

    #[test]
    fn a_list_grows_and_keeps_what_it_holds() {
        let mut list = List::new_in(Pages);
        for n in 0..10_000_u64 {
            list.push(n);
        }
        list.remove(0);
        list.truncate(9_000);
        let within = |list: &List<u64>| {
            let at = list.as_ptr().addr();
            own::all().any(|own| own.range.contains(&at))
        };
        assert!(within(&list), "a large one is known");
        list.shrink_to_fit();
        assert!(within(&list));
        assert!(list.iter().copied().eq(1..=9_000));
        assert_eq!(list.as_ptr().addr() % page_size(), 0);
    }

    #[test]
    fn any_number_of_large_lists_is_known() {
        let _turn = MANY.lock().unpoisoned();
        let lists: Vec<List<u8>> = (0..300)
            .map(|_| List::with_capacity_in(17 * page_size(), Pages))
            .collect();
        for list in &lists {
            let at = list.as_ptr().addr();
            assert!(own::all().any(|own| own.range.contains(&at)));
        }
        let places: Vec<usize> = lists.iter().map(|list| list.as_ptr().addr()).collect();
        drop(lists);
        // A test of something else may map a list where one of these was.
        let known = |at: &&usize| own::all().any(|own| own.range.start == **at);
        assert!(places.iter().filter(known).count() < 30);
    }

    #[test]
    fn no_two_lists_share_a_page() {
        let _turn = MANY.lock().unpoisoned();
        let lists = || {
            let mut lists: Vec<(u8, List<u8>)> = Vec::new();
            // More than there are small ones of each size.
            for n in 0..5 * OF_EACH {
                let mut list = List::new_in(Pages);
                list.resize(page_size() << (n % 7), n as u8);
                lists.push((n as u8, list));
                if n % 3 == 0 {
                    drop(lists.swap_remove(n / 2 % lists.len()));
                }
            }
            for (wanted, list) in &lists {
                assert!(list.iter().all(|byte| byte == wanted));
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(lists))));
    }
}
