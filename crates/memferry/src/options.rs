// SPDX-License-Identifier: MIT OR Apache-2.0
//! How one move is done, whichever way the pages go.

use crate::pool::SEGMENT;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Setters of fields of an option struct, which callers outside of this crate cannot build.
macro_rules! setters {
    ($($name:ident: $type:ty),* $(,)?) => {$(
        #[doc = concat!("Sets [`", stringify!($name), "`](Self::", stringify!($name), ").")]
        pub fn $name(mut self, $name: $type) -> Self {
            self.$name = $name.into();
            self
        }
    )*};
}
pub(crate) use setters;

/// Bytes of a batch for each lane, unless the options say otherwise; a batch ends at 2 MiB all the same. A page is then
/// away for about 0.2 ms whatever the lanes; docs/results has the measured trade of throughput against stall.
pub const DEFAULT_BATCH_BYTES: usize = 1 << 20;

/// Bytes of a batch of so many lanes, unless the options say otherwise.
pub(crate) fn batch_of(lanes: usize) -> usize {
    DEFAULT_BATCH_BYTES.saturating_mul(lanes).min(SEGMENT)
}

/// How pages are moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// userfaultfd where it works, else move_pages(2); between two nodes or more the one that moves base pages faster, as
    /// [`probe::move_cost`](crate::probe::move_cost) measures it, and what userfaultfd cannot move (shared, file and hugetlb memory) goes through
    /// move_pages(2), mapping by mapping.
    #[default]
    Auto,
    /// userfaultfd's UFFDIO_MOVE, Linux 6.8.
    Userfaultfd,
    /// move_pages(2): any process and any kernel, two nodes or more.
    MovePages,
}

/// How one move is done.
///
/// ```
/// let options = memferry::MoveOptions::default().list_pages(true).bytes_per_second(1 << 30);
/// # assert!(options.list_pages);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MoveOptions {
    /// Bytes that are away from their place together; 0: [`DEFAULT_BATCH_BYTES`] per lane. A multiple of the base page, at
    /// most 2 MiB, one page table's worth: beyond that a batch only makes waiters wait longer. A THP is a batch of its own.
    pub batch_bytes: usize,
    /// Move pages that lie on the target node already, to other pages of it. move_pages(2) cannot: there they stay, and
    /// count as already there.
    pub relocate: bool,
    /// List what became of each page in [`MoveResult::pages`](crate::MoveResult::pages).
    pub list_pages: bool,
    /// Whoever sets it ends the move early: batches under way are finished, the others stay where they are.
    pub cancel: Option<Arc<AtomicBool>>,
    /// What becomes of the source pages.
    pub source: SourcePages,
    /// Bytes moved per second at most; 0 is refused. Between its parts, of 10 ms each but no less than 2 MiB, nothing is watched and no page
    /// is away.
    pub bytes_per_second: Option<u64>,
}

impl MoveOptions {
    setters! {
        batch_bytes: usize,
        relocate: bool,
        list_pages: bool,
        cancel: impl Into<Option<Arc<AtomicBool>>>,
        source: SourcePages,
        bytes_per_second: impl Into<Option<u64>>,
    }
}

/// What becomes of the source pages of a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourcePages {
    pub(crate) keep: bool,
}

impl SourcePages {
    /// They are given back to the kernel, which frees each when nobody refers to it any more. The default.
    pub const GIVE_BACK: SourcePages = SourcePages { keep: false };

    /// They are kept as free pages of their node, up to the pool's limit: the next move in the other direction finds
    /// its destination warm, without allocating and zeroing.
    ///
    /// # Safety
    /// The kernel must hold no reference to the pages other than page-table entries and FOLL_PIN pins (which make a
    /// page [`Busy`](crate::Outcome::Busy)): nothing of the range may be under `vmsplice(2)` or in a `MSG_ZEROCOPY`
    /// transmission. UFFDIO_MOVE does not look at such references, so a page would be reused under its reader.
    ///
    /// Nothing of the range may be freed lazily (`MADV_FREE`) and not written to since: the kernel may discard such a page at any time,
    /// and a move that is to copy it then never ends.
    pub const unsafe fn keep() -> SourcePages {
        SourcePages { keep: true }
    }
}
