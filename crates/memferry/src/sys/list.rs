// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists whose memory comes from mmap.
//!
//! While a range is watched the mover must not ask the program's heap for memory: whoever holds the heap's lock may be waiting
//! for the mover.

use super::page_size;
use allocator_api2::alloc::{AllocError, Allocator, Layout};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A vector outside of the heap. Like one of the heap it ends the process where there is no memory at all.
pub(crate) type List<T> = allocator_api2::vec::Vec<T, Pages>;

/// Whole pages of memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pages;

/// Small mappings that are free, by how many pages they have as a power of two: a move makes and drops a dozen lists, and a
/// mapping that comes and goes costs as much as a small move.
static FREE: [[AtomicUsize; 8]; 5] = [const { [const { AtomicUsize::new(0) }; 8] }; 5];

/// The bytes of an allocation, and which of `FREE` has such.
fn size_of_layout(
    layout: Layout,
) -> Result<(usize, Option<&'static [AtomicUsize; 8]>), AllocError> {
    debug_assert!(layout.align() <= page_size());
    let pages = layout.size().div_ceil(page_size());
    let pages = pages.checked_next_power_of_two().ok_or(AllocError)?;
    let len = pages.checked_mul(page_size()).ok_or(AllocError)?;
    Ok((len, FREE.get(pages.trailing_zeros() as usize)))
}

// SAFETY: each allocation is a mapping of its own, which stays until it is deallocated, wherever the allocator goes.
unsafe impl Allocator for Pages {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let (len, free) = size_of_layout(layout)?;
        for slot in free.into_iter().flatten() {
            let kept = slot.swap(0, Ordering::Acquire);
            if let Some(start) = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(kept)) {
                return Ok(NonNull::slice_from_raw_parts(start, len));
            }
        }
        // SAFETY: an anonymous mapping at an address that the kernel chooses overlaps nothing.
        let raw = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let start = NonNull::new(raw.cast::<u8>()).filter(|_| raw != libc::MAP_FAILED);
        Ok(NonNull::slice_from_raw_parts(start.ok_or(AllocError)?, len))
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        let Ok((len, free)) = size_of_layout(layout) else {
            return;
        };
        let put = |slot: &AtomicUsize| {
            let addr = start.as_ptr().expose_provenance();
            slot.compare_exchange(0, addr, Ordering::Release, Ordering::Relaxed)
                .is_ok()
        };
        if !free.into_iter().flatten().any(put) {
            // SAFETY: `allocate` mapped it, with a layout whose pages are as many.
            unsafe { libc::munmap(start.as_ptr().cast(), len) };
        }
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

    #[test]
    fn a_list_grows_and_keeps_what_it_holds() {
        let mut list = List::new_in(Pages);
        for n in 0..10_000_u64 {
            list.push(n);
        }
        list.remove(0);
        list.truncate(9_000);
        list.shrink_to_fit();
        assert!(list.iter().copied().eq(1..=9_000));
        assert_eq!(list.as_ptr().addr() % page_size(), 0);
    }
}
