// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pieces of a pool's mappings that are free: of one class, all with pages or all without.
//!
//! A list never looks at all that it has: only segments of which a part is taken are searched.

use super::{PageClass, SEGMENT};
use crate::sys::list::{List, Pages};

/// How many parts before the next whole segment are looked at for one of the right size.
const SOON: usize = 16;

/// A range of addresses inside one segment of a pool's mapping. Whoever has it has the addresses alone: the pool makes pieces of
/// its mappings only, none can be copied, and each is taken by what it is put back with.
#[must_use = "its addresses would be lost"]
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(super) addr: usize,
    pub(super) len: usize,
    /// What pages its mapping is for.
    pub(super) class: PageClass,
    /// Lies in a mapping that pages can be moved out to.
    pub(super) staging: bool,
}

impl Piece {
    pub(crate) fn addr(&self) -> usize {
        self.addr
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn class(&self) -> PageClass {
        self.class
    }

    pub(crate) fn end(&self) -> usize {
        self.addr + self.len
    }

    /// Both parts of it, cut after `len` bytes, or at its end if it has fewer.
    pub(crate) fn cut(mut self, len: usize) -> (Piece, Piece) {
        let len = len.min(self.len);
        (self.take(len), self)
    }

    /// The first `len` bytes; `self` keeps the rest.
    fn take(&mut self, len: usize) -> Piece {
        let head = Piece { len, ..*self };
        self.addr += len;
        self.len -= len;
        head
    }

    fn joins(&self, next: &Piece) -> bool {
        self.staging == next.staging && self.end() == next.addr && next.addr % SEGMENT != 0
    }
}

/// A piece, and which that came it was.
type Numbered = (u64, Piece);

/// Free pieces.
pub(super) struct FreePieces {
    /// Whole segments in the order in which they came, from `front` on.
    whole: List<Numbered>,
    front: usize,
    /// Parts of segments in the order in which they came; neighbours are one part.
    parts: List<Numbered>,
    /// Pieces that came.
    came: u64,
    bytes: usize,
}

impl FreePieces {
    pub(super) fn new() -> FreePieces {
        FreePieces {
            whole: List::new_in(Pages),
            front: 0,
            parts: List::new_in(Pages),
            came: 0,
            bytes: 0,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// At most `len` bytes of what came first: the page that was used longest ago is the coldest in the caches, and reusing it last
    /// would measure the cache.
    pub(super) fn take_oldest(&mut self, len: usize) -> Option<Piece> {
        let next = self.whole.get(self.front).map_or(u64::MAX, |whole| whole.0);
        let before = |part: &&Numbered| part.0 < next;
        let soon = self.parts.iter().take(SOON).take_while(before);
        let (waiting, fits) = (
            soon.clone().count(),
            soon.clone().position(|part| part.1.len >= len),
        );
        // A part that is too short waits a while for its other half to come back.
        let waits = waiting == SOON || next == u64::MAX && waiting > 0;
        if let Some(index) = fits.or(waits.then_some(0)) {
            return Some(self.take_part(index, len));
        }
        self.parts.try_reserve(1).ok()?;
        let (number, piece) = std::mem::take(self.whole.get_mut(self.front)?);
        self.front += 1;
        if self.front * 2 > self.whole.len() {
            self.whole.drain(..self.front);
            self.front = 0;
        }
        Some(self.take_whole(number, piece, len))
    }

    /// At most `len` bytes, `least` at least: of the part that fits most tightly, so that parts are used up and segments become whole
    /// again; else of the largest part; else of the segment that came last.
    pub(super) fn take_tightest(&mut self, len: usize, least: usize) -> Option<Piece> {
        let bytes = |index: &usize| self.parts[*index].1.len;
        let fits = (0..self.parts.len()).filter(|index| bytes(index) >= least);
        let best = fits.min_by_key(|index| match bytes(index).checked_sub(len) {
            Some(over) => (false, over),
            None => (true, len - bytes(index)),
        });
        if let Some(index) = best {
            return Some(self.take_part(index, len));
        }
        self.parts.try_reserve(1).ok()?;
        debug_assert_eq!(self.front, 0, "a list is a queue or a stack");
        let (number, piece) = self.whole.pop()?;
        Some(self.take_whole(number, piece, len))
    }

    fn take_part(&mut self, index: usize, len: usize) -> Piece {
        let part = &mut self.parts[index].1;
        let piece = match part.len <= len {
            true => self.parts.remove(index).1,
            false => part.take(len),
        };
        self.bytes -= piece.len;
        piece
    }

    /// The first `len` bytes of a segment; there is room for its rest among the parts.
    fn take_whole(&mut self, number: u64, whole: Piece, len: usize) -> Piece {
        let (piece, rest) = whole.cut(len);
        if rest.len > 0 {
            let at = self.parts.partition_point(|part| part.0 < number);
            self.parts.insert(at, (number, rest));
        }
        self.bytes -= piece.len;
        piece
    }

    /// Takes a piece. With the parts beside it, whose place in the order it takes, it is one: what was cut becomes whole again, and
    /// with it the batches that it is for. Gives the piece back where there is no memory for the list.
    pub(super) fn put(&mut self, mut piece: Piece) -> Option<Piece> {
        let bytes = piece.len;
        let mut number = None;
        for before in [true, false] {
            let beside = |part: &Numbered| match before {
                true => part.1.joins(&piece),
                false => piece.joins(&part.1),
            };
            if let Some(at) = self.parts.iter().position(beside) {
                let (came, part) = self.parts.remove(at);
                number = number.or(Some(came));
                piece.addr = piece.addr.min(part.addr);
                piece.len += part.len;
            }
        }
        self.came += 1;
        if piece.len == SEGMENT && self.whole.try_reserve(1).is_ok() {
            self.whole.push((self.came, piece));
        } else {
            // It cannot fail after a part was taken out.
            if self.parts.try_reserve(1).is_err() {
                return Some(piece);
            }
            let number = number.unwrap_or(self.came);
            let at = self.parts.partition_point(|part| part.0 < number);
            self.parts.insert(at, (number, piece));
        }
        self.bytes += bytes;
        None
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.whole[self.front..]
            .iter()
            .chain(&self.parts)
            .map(|numbered| &numbered.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(segment: usize, from: usize, len: usize) -> Piece {
        Piece {
            addr: (1 << 40) + segment * SEGMENT + from,
            len,
            ..Piece::default()
        }
    }

    #[test]
    fn what_came_first_goes_first_and_halves_become_whole() {
        const HALF: usize = SEGMENT / 2;
        let mut free = FreePieces::new();
        for segment in 0..3 {
            assert_eq!(free.put(piece(segment, 0, SEGMENT)), None);
        }
        let taken = free.take_oldest(HALF);
        assert_eq!(taken, Some(piece(0, 0, HALF)));
        // Segment 3 comes in halves while the rest of segment 0 waits.
        for from in [0, HALF] {
            assert_eq!(free.put(piece(3, from, HALF)), None);
        }
        assert_eq!(free.take_oldest(HALF), Some(piece(0, HALF, HALF)));
        for segment in 1..4 {
            assert_eq!(free.take_oldest(SEGMENT), Some(piece(segment, 0, SEGMENT)));
        }
        assert_eq!((free.take_oldest(SEGMENT), free.bytes()), (None, 0));
    }

    #[test]
    fn parts_that_are_too_short_wait_until_there_are_many() {
        let mut free = FreePieces::new();
        for segment in 0..SOON {
            assert_eq!(free.put(piece(segment, 0, 4096)), None);
        }
        assert_eq!(free.put(piece(SOON, 0, SEGMENT)), None);
        assert_eq!(free.take_oldest(8192), Some(piece(0, 0, 4096)));
        assert_eq!(free.take_oldest(8192), Some(piece(SOON, 0, 8192)));
    }

    #[test]
    fn a_part_that_fits_goes_before_a_whole_segment_and_one_below_least_stays() {
        let mut free = FreePieces::new();
        assert_eq!(free.put(piece(0, 0, 4096)), None);
        assert_eq!(free.put(piece(1, 0, 5 * 4096)), None);
        assert_eq!(free.put(piece(2, 0, 4 * 4096)), None);
        assert_eq!(free.put(piece(3, 0, SEGMENT)), None);
        for (len, least, taken) in [
            (3 * 4096, 2 * 4096, piece(2, 0, 3 * 4096)),
            (6 * 4096, 3 * 4096, piece(1, 0, 5 * 4096)),
            (6 * 4096, 3 * 4096, piece(3, 0, 6 * 4096)),
        ] {
            assert_eq!(free.take_tightest(len, least), Some(taken));
        }
    }
}
