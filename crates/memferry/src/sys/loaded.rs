// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the variables of the code that a move runs lie: statics of loaded objects, thread-locals, the thread control block.

use super::page_size;
use super::thread::stack;
use std::ops::Range;
use std::os::raw::{c_int, c_void};

/// Bytes behind `pthread_self` that count as the thread control block: the `struct pthread` of glibc has 2.3 KiB, that of musl less.
const CONTROL_BLOCK: usize = 4096;

/// Of the ELF specification: a segment that is mapped, the thread-locals of an object, and a segment that may be written to.
const PT_LOAD: u32 = 1;
const PT_TLS: u32 = 7;
const PF_W: u32 = 2;

/// What `see` is called with, behind the pointer that the C library hands through.
struct Seen<'a> {
    see: &'a mut dyn FnMut(Range<usize>, &'static str),
    objects: usize,
}

/// Calls `see` for the memory that this thread needs in any call of the library or the C library, and says what it is:
/// - the writable segments of shared libraries, through which a lane calls, and of the program if the library is linked into it;
/// - the thread's instances of thread-locals that are allocated, and its control block where that is no part of its stack.
pub(crate) fn own_memory(mut see: impl FnMut(Range<usize>, &'static str)) {
    let mut seen = Seen {
        see: &mut see,
        objects: 0,
    };
    // SAFETY: the function has the type that is asked for, and is called with `seen` until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(see_object), (&raw mut seen).cast()) };
    // SAFETY: it returns a number.
    let control = unsafe { libc::pthread_self() } as usize;
    // Of a thread that pthread_create(3) made it is the end of the stack, and somebody else's memory may follow.
    if !stack().is_ok_and(|stack| stack.contains(&control)) {
        let what = "the control block of the calling thread";
        see(control..control + CONTROL_BLOCK, what);
    }
}

unsafe extern "C" fn see_object(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    seen: *mut c_void,
) -> c_int {
    // SAFETY: the C library hands over an object that stays loaded during the call, and the pointer of `own_memory`.
    let (info, seen) = unsafe { (&*info, &mut *seen.cast::<Seen<'_>>()) };
    // The program comes first.
    let is_program = seen.objects == 0;
    seen.objects += 1;
    let headers = match info.dlpi_phnum {
        0 => &[],
        // SAFETY: an object with headers has so many.
        count => unsafe { std::slice::from_raw_parts(info.dlpi_phdr, count.into()) },
    };
    let segments = headers.iter().filter(|header| header.p_type == PT_LOAD);
    let segments = segments.map(|header| {
        let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        let end = start.wrapping_add(header.p_memsz as usize);
        (start..end, header.p_flags & PF_W != 0)
    });
    let here = see_object as *const () as usize;
    if !is_program || segments.clone().any(|(memory, _)| memory.contains(&here)) {
        for (memory, _) in segments.filter(|(_, writable)| *writable) {
            let page = page_size();
            let pages = memory.start / page * page..memory.end.next_multiple_of(page);
            (seen.see)(pages, "statics of the library, or of one that it calls");
        }
    }
    let locals = info.dlpi_tls_data as usize;
    if locals != 0 {
        for header in headers.iter().filter(|header| header.p_type == PT_TLS) {
            let what = "thread-local data of the calling thread";
            (seen.see)(locals..locals + header.p_memsz as usize, what);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn statics_of_the_library_and_thread_locals_are_own_memory() {
        static STATIC: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        thread_local! {
            static LOCAL: Cell<u64> = const { Cell::new(1) };
        }
        let is_own = |at: usize| {
            let mut found = false;
            own_memory(|range, _| found |= range.contains(&at));
            found
        };
        assert!(is_own((&raw const STATIC).addr()));
        assert!(is_own(LOCAL.with(|local| std::ptr::from_ref(local).addr())));
        // SAFETY: it returns an address and touches nothing.
        assert!(is_own(unsafe { libc::__errno_location() }.addr()));
        let boxed = Box::new(7u64);
        assert!(!is_own(std::ptr::from_ref(&*boxed).addr()));
    }
}
