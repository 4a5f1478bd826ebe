// SPDX-License-Identifier: MIT OR Apache-2.0
//! The routines that copy pages: plain `memcpy` and the non-temporal ones of each instruction set.
//! One call copies one extent on the calling thread. Lanes are the migrator's work, not done here.
//!
//! A page that moves was in use on the old node and will be used on the new one, but the copy itself
//! seldom finds it in cache and never reads the destination. So a plain store is wasteful twice: it first
//! fetches the line that it is about to overwrite, and it pushes the program's own data out of the
//! cache. Non-temporal stores do neither. What remains is one core's limit on outstanding reads; four
//! interleaved streams and a prefetch into the second-level cache raise it.
//!
//! # Measured
//!
//! GB/s (1e9 bytes copied per second), medians of 3, on a 2-vCPU KVM guest on an Intel Xeon, family 6 model
//! 207; source and destination 1 GiB each, so cold in every cache, extents in random order. Mapped with
//! randomly placed 4 KiB pages; 2 MiB pages are 2 to 4 percent faster. One [`Routine::copy`] for each extent. Never the best were
//! `rep movsb` (as `memcpy`), one stream of non-temporal stores (a fifth to a quarter less from 64 KiB on), and stores of 64 bytes
//! (AVX-512: equal on long extents, slower on single pages).
//!
//! | routine | threads | 4 KiB | 64 KiB | 256 KiB | 1 MiB | 2 MiB |
//! |---|---|---|---|---|---|---|
//! | memcpy | 1 | 6.9 | 7.5 | 7.6 | 7.6 | 7.6 |
//! | sse2-nt-4 | 1 | 7.3 | 12.8 | 13.5 | 13.6 | 13.5 |
//! | avx2-nt-4 | 1 | 8.1 | 13.0 | 13.8 | 14.0 | 13.8 |
//! | memcpy | 2 | 13.5 | 14.6 | 14.3 | 14.4 | 14.0 |
//! | sse2-nt-4 | 2 | 14.3 | 25.3 | 23.5 | 24.6 | 25.9 |
//! | avx2-nt-4 | 2 | 15.4 | 25.6 | 26.3 | 26.2 | 26.2 |

mod best;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(test)]
mod tests;

use crate::sync::MadeOnce;
pub use best::{Unavailable, best, requested};

/// The environment variable that names the routine [`best`] must return.
pub const ROUTINE_VARIABLE: &str = "MEMFERRY_COPY";

/// One way to copy memory that this CPU can run.
///
/// A value exists only if the CPU and the operating system support its instructions, so calling it needs
/// no further check. Two routines are equal if their names are.
#[derive(Clone, Copy, Debug)]
pub struct Routine {
    name: &'static str,
    about: &'static str,
    /// Leaves the destination in no cache, so that its whole cost shows at once.
    bypasses_cache: bool,
    copy: unsafe fn(*const u8, *mut u8, usize),
}

impl Routine {
    /// The name that tables show and [`by_name`] takes, e.g. `memcpy` or `avx2-nt-4`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What the routine does, in one line for a table.
    pub fn describe(&self) -> &'static str {
        self.about
    }

    /// Whether it writes past the caches, so that what others have in them stays.
    pub fn bypasses_cache(&self) -> bool {
        self.bypasses_cache
    }

    /// Copies `len` bytes from `src` to `dst`; any length and any alignment.
    ///
    /// When it returns, the data is visible to every thread that synchronises with the caller in the
    /// usual ways: non-temporal routines end with a store fence, which costs a single 4 KiB page dearly.
    ///
    /// # Safety
    ///
    /// `src..src + len` must be readable and `dst..dst + len` writable; they must not overlap, and no
    /// other thread may write the source or touch the destination during the call. Neither pointer may be
    /// null unless `len` is 0.
    #[inline]
    pub unsafe fn copy(&self, src: *const u8, dst: *mut u8, len: usize) {
        // SAFETY: the caller keeps the contract above, which is the contract of every `copy` in the tables.
        unsafe { (self.copy)(src, dst, len) }
    }
}

impl PartialEq for Routine {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Routine {}

/// The routines that this CPU can run: `memcpy` first, then in rising order of preference among those that
/// a measurement finds equal.
pub fn available() -> &'static [Routine] {
    static AVAILABLE: MadeOnce<Vec<Routine>> = MadeOnce::new();
    AVAILABLE.get(|| {
        let mut routines = vec![memcpy()];
        #[cfg(target_arch = "x86_64")]
        routines.extend(x86_64::detected());
        #[cfg(target_arch = "aarch64")]
        routines.push(aarch64::NEON);
        routines
    })
}

/// The C library's `memcpy`: the baseline, and what unknown architectures use. It stores through the cache; the C library may
/// itself switch to other stores for long copies.
pub fn memcpy() -> Routine {
    Routine {
        name: "memcpy",
        about: "the C library's memcpy, through the cache",
        bypasses_cache: false,
        copy: |src, dst, len| {
            if len != 0 {
                // SAFETY: `Routine::copy`'s contract: valid for `len` bytes and not overlapping.
                unsafe { std::ptr::copy_nonoverlapping(src, dst, len) }
            }
        },
    }
}

/// The routine of that name, if this CPU can run it.
pub fn by_name(name: &str) -> Option<Routine> {
    available().iter().copied().find(|r| r.name == name)
}
