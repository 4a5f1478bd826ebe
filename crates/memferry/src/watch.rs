// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watches a range before its pages move: a userfaultfd that hears of every fault in it and every change of its mappings.
//!
//! No page leaves here. What is decided is that everything in the range is watched, or that the range is refused.

use crate::emptied;
use crate::error::{MoveError, explain_userfaultfd};
use crate::forkgate::ParentOnly;
use crate::pool::SEGMENT;
use crate::result::{Account, Outcome};
use crate::sys::list::List;
use crate::sys::memory::Mapping;
use crate::sys::own::{Noted, What};
use crate::sys::thread::Attempts;
use crate::sys::uffd::{FEATURE_EVENTS, FEATURE_MOVE, Message, Uffd};
use crate::sys::{self, errno, page_size};
use crate::vma::{self, Vma};
use memferry_linux::pagemap::{HUGE, Pagemap, Region, ZERO};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long, and how often at least, a range is tried whose mappings change at the same time. Each attempt is lost to
/// anybody who changes one during it, so on a busy machine a hundred alone are lost to one busy thread now and then.
const WATCH_PATIENCE: Duration = Duration::from_secs(1);
const WATCH_ATTEMPTS: u32 = 100;

pub(crate) const MAPS: &str = "/proc/self/maps";

/// What moves through userfaultfd need.
pub(crate) struct Userfault {
    pub(crate) pagemap: Pagemap,
    /// A mapped page that is not there.
    pub(crate) nothing: Mapping,
    /// So it must not be moved.
    _noted: Noted,
}

/// Watches a stretch: the descriptor, and the mappings that it watches, which are all there are. From here on any
/// change of them is reported. An error comes with its errno.
///
/// One descriptor per stretch: closing it ends the watch whatever happened to the mappings meanwhile, and releases
/// who still waits for an answer.
pub(crate) fn watch(
    userfault: &Userfault,
    stretch: &Range<usize>,
) -> Result<(ParentOnly<Uffd>, List<Vma>), (i32, MoveError)> {
    let fail = |call, hint| {
        move |error: std::io::Error| (errno(&error), MoveError::system(call, hint)(error))
    };
    let begun = Instant::now();
    let mut attempts = Attempts::default();
    while attempts.failed() < WATCH_ATTEMPTS || begun.elapsed() < WATCH_PATIENCE {
        let place = ParentOnly::open(|| Uffd::open(FEATURE_MOVE | FEATURE_EVENTS))
            .map_err(fail("userfaultfd", "raise the limit of open files"))?;
        let registered = place.register(stretch.start, stretch.len());
        // Then the kernel has registered nothing, and before Linux 6.17 it would end somebody else's watch.
        let refused = registered
            .as_ref()
            .is_err_and(|e| matches!(errno(e), libc::EBUSY | libc::EINVAL | libc::EPERM));
        let looked = match registered {
            Err(error) if errno(&error) == libc::EBUSY => {
                let range = stretch.clone();
                Err((libc::EBUSY, MoveError::Watched { range }))
            }
            // The mappings tell the reason, if it is not over. EPERM: one that nobody may write to is shared.
            Err(error) if matches!(errno(&error), libc::EINVAL | libc::EPERM) => {
                look(userfault, &place, stretch).map(|_| None)
            }
            Err(error) => Err(fail("UFFDIO_REGISTER", "check vm.max_map_count")(error)),
            Ok(()) => look(userfault, &place, stretch),
        };
        // Who changes a mapping waits until we read that, and what was read may not be so any more.
        let changing = place.is_changing();
        match looked {
            Ok(Some(vmas)) if !changing => return Ok((place, vmas)),
            looked => {
                if !refused {
                    end_watch(&place, stretch);
                }
                match looked {
                    Err(why) if !changing => return Err(why),
                    _ => attempts.pause(),
                }
            }
        }
    }
    let why = std::io::Error::from_raw_os_error(libc::EAGAIN);
    Err(fail(
        "watching the range",
        "its mappings keep changing: move it at a calmer time",
    )(why))
}

/// The mappings of a stretch; `None` when one of them is not watched.
fn look(
    userfault: &Userfault,
    place: &Uffd,
    stretch: &Range<usize>,
) -> Result<Option<List<Vma>>, (i32, MoveError)> {
    let mut vmas = vma::movable(Path::new(MAPS), stretch).map_err(|why| (why.errno(), why))?;
    let mut locked_page = None;
    for vma in vmas.iter_mut().filter(|v| v.read && v.write && !v.exec) {
        match watched(userfault, &mut locked_page, place, vma) {
            Ok(Watched::Yes { locked }) => (vma.watched, vma.locked) = (true, locked),
            Ok(Watched::Empty) => {}
            Ok(Watched::No) => return Ok(None),
            Err(error) => {
                let hint = "free some memory, or raise RLIMIT_MEMLOCK if the range is locked";
                let why = MoveError::system("asking whether a mapping is watched", hint);
                return Err((errno(&error), why(error)));
            }
        }
    }
    Ok(Some(vmas))
}

/// Ends a watch before any page has left, and notes what its owner is about to empty: the kernel does not tell again.
pub(crate) fn end_watch(place: &Uffd, range: &Range<usize>) {
    let unregister = |range| part_by_part(range, &|addr, len| place.unregister(addr, len));
    unregister(range.clone());
    let mut messages = [Message::Other; 16];
    let mut attempts = Attempts::default();
    loop {
        let count = place.read(&mut messages).unwrap_or(0);
        for message in &messages[..count] {
            match *message {
                Message::Remove { start, end } => emptied::note(start..end),
                Message::Remap { to, len, .. } => unregister(to..to + len),
                // In the middle of an mremap that fills what it adds, nothing but this lets it go on.
                Message::Fault { addr, .. } => unregister(addr..addr + page_size()),
                _ => {}
            }
        }
        // Nobody new can begin, so this ends when those who had begun were scheduled again.
        if count == 0 && !place.is_changing() {
            return;
        }
        attempts.pause();
    }
}

/// Calls `act`, which begins or ends the watch of a range, for the range or, where it fails, for its parts: around what is mapped
/// there and cannot be watched or never was.
pub(crate) fn part_by_part(range: Range<usize>, act: &dyn Fn(usize, usize) -> std::io::Result<()>) {
    let pages = range.len() / page_size();
    if act(range.start, range.len()).is_err() && pages > 1 {
        let middle = range.start + pages / 2 * page_size();
        part_by_part(range.start..middle, act);
        part_by_part(middle..range.end, act);
    }
}

/// What is known of a mapping that was in the list a moment ago.
#[derive(Debug, PartialEq, Eq)]
enum Watched {
    Yes {
        /// The mapping is locked (mlock).
        locked: bool,
    },
    /// No page was found that tells. Whatever comes to it stays there.
    Empty,
    No,
}

/// Whether `place` watches a mapping. One that came into the range after it was registered is not watched: pages that left
/// it could not come back. It may also be elsewhere at this moment and come back later, as little watched as before, and
/// nobody would tell: so only a page that is registered for sure speaks for its mapping.
///
/// `locked_page` is a locked page that is not there, made when a mapping asks for it, since it counts against RLIMIT_MEMLOCK.
fn watched(
    userfault: &Userfault,
    locked_page: &mut Option<Mapping>,
    place: &Uffd,
    vma: &Vma,
) -> std::io::Result<Watched> {
    let (start, end) = (vma.range.start, vma.range.end);
    let Some(page) = userfault.pagemap.first(start, end)? else {
        // To ask at a hole would leave a page table there, where a THP might have come.
        return Ok(Watched::Empty);
    };
    // The kernel compares the mappings' locks too: the page that it takes tells which the mapping has.
    if place.is_registered(page, userfault.nothing.addr())? {
        return Ok(Watched::Yes { locked: false });
    }
    if sys::memory::any_locked() {
        let locked = match locked_page.take() {
            Some(locked) => locked,
            None => empty_page(true)?,
        };
        if place.is_registered(page, locked_page.insert(locked).addr())? {
            return Ok(Watched::Yes { locked: true });
        }
    }
    Ok(Watched::No)
}

/// A mapped page that is not there.
fn empty_page(locked: bool) -> std::io::Result<Mapping> {
    let mapping = Mapping::new(page_size(), page_size())?;
    mapping.empty()?;
    if locked {
        sys::memory::lock_on_fault(mapping.addr(), mapping.len())?;
    }
    Ok(mapping)
}

pub(crate) fn open_userfault() -> Result<Userfault, String> {
    // Each move opens its own; here it only shows that one can.
    Uffd::open(FEATURE_MOVE | FEATURE_EVENTS).map_err(|e| explain_userfaultfd(&e))?;
    let pagemap = Pagemap::open()
        .map_err(|e| format!("/proc/self/pagemap cannot be opened: {e}; mount /proc"))?;
    pagemap
        .scan(0, 0, &mut [Default::default()])
        .map_err(|e| format!("PAGEMAP_SCAN is missing ({e}); Linux 6.7 has it"))?;
    let no_memory = |e| format!("no memory: {e}; raise RLIMIT_AS");
    let nothing = empty_page(false).map_err(no_memory)?;
    let noted = Noted::new(&nothing.range(), What::Page, 0).map_err(no_memory)?;
    Ok(Userfault {
        pagemap,
        nothing,
        _noted: noted,
    })
}

/// Books the parts of THPs that the range cuts, and returns what lies between them: the kernel splits a THP when only a
/// part of it is watched.
pub(crate) fn leave_cut_thps(
    pagemap: &Pagemap,
    range: Range<usize>,
    account: &Account,
) -> Range<usize> {
    let leave = |part: &Range<usize>| {
        let mut region = [Region::default()];
        let looked = pagemap.scan(part.start, part.end, &mut region);
        let is_cut = matches!(looked, Ok((1.., _))) && region[0].categories & (HUGE | ZERO) == HUGE;
        if is_cut {
            account.book(Outcome::Unsupported, part.clone(), page_size());
        }
        is_cut
    };
    let mut left = range;
    let head = left.start..left.start.next_multiple_of(SEGMENT).min(left.end);
    if !head.is_empty() && leave(&head) {
        left.start = head.end;
    }
    let tail = (left.end / SEGMENT * SEGMENT).max(left.start)..left.end;
    if !tail.is_empty() && leave(&tail) {
        left.end = tail.start;
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_watched(place: &Uffd, vmas: &[Vma]) -> Vec<Watched> {
        let userfault = open_userfault().unwrap();
        let mut locked_page = None;
        vmas.iter()
            .map(|vma| watched(&userfault, &mut locked_page, place, vma).unwrap())
            .collect()
    }

    fn mappings_of(memory: &Mapping) -> List<Vma> {
        vma::movable(Path::new(MAPS), &memory.range()).unwrap()
    }

    #[test]
    fn a_mapping_that_came_after_the_watch_is_not_watched() {
        let memory = Mapping::new(2 * SEGMENT, SEGMENT).unwrap();
        sys::memory::populate(memory.addr(), memory.len()).unwrap();
        let place = Uffd::open(FEATURE_MOVE | FEATURE_EVENTS).unwrap();
        place.register(memory.addr(), SEGMENT).unwrap();
        let vmas = mappings_of(&memory);
        assert_eq!(
            all_watched(&place, &vmas),
            [Watched::Yes { locked: false }, Watched::No]
        );
    }

    #[test]
    fn a_mapping_that_went_elsewhere_after_it_was_listed_is_not_watched() {
        let place = Uffd::open(FEATURE_MOVE | FEATURE_EVENTS).unwrap();
        let memory = Mapping::new(2 * SEGMENT, SEGMENT).unwrap();
        sys::memory::populate(memory.addr(), memory.len()).unwrap();
        let (vmas, gone) = (mappings_of(&memory), memory.addr());
        let elsewhere = Mapping::new(memory.len(), SEGMENT).unwrap();
        sys::memory::remap(&memory.range(), elsewhere.addr());
        let nothing = empty_page(false).unwrap();
        assert!(!place.is_registered(gone, nothing.addr()).unwrap());
        assert_eq!(all_watched(&place, &vmas), [Watched::Empty]);
        drop(memory);
        assert!(!place.is_registered(gone, nothing.addr()).unwrap());
    }

    #[test]
    fn a_locked_mapping_is_told_from_its_neighbours() {
        let memory = Mapping::new(4 * SEGMENT, SEGMENT).unwrap();
        sys::memory::populate(memory.addr(), memory.len()).unwrap();
        sys::memory::lock_on_fault(memory.addr() + SEGMENT, SEGMENT).unwrap();
        let place = Uffd::open(FEATURE_MOVE | FEATURE_EVENTS).unwrap();
        place.register(memory.addr(), 3 * SEGMENT).unwrap();
        let yes = |locked| Watched::Yes { locked };
        assert_eq!(
            all_watched(&place, &mappings_of(&memory)),
            [yes(false), yes(true), yes(false), Watched::No]
        );
    }

    #[test]
    fn asking_about_an_empty_mapping_leaves_room_for_a_thp() {
        let memory = Mapping::new(2 * SEGMENT, SEGMENT).unwrap();
        sys::memory::advise_thps(memory.addr(), memory.len(), true).unwrap();
        let place = Uffd::open(FEATURE_MOVE | FEATURE_EVENTS).unwrap();
        place.register(memory.addr(), memory.len()).unwrap();
        assert_eq!(all_watched(&place, &mappings_of(&memory)), [Watched::Empty]);
        drop(place);
        sys::memory::populate(memory.addr(), SEGMENT).unwrap();
        let pagemap = Pagemap::open().unwrap();
        assert!(pagemap.is_huge(memory.addr(), SEGMENT).unwrap());
    }
}
