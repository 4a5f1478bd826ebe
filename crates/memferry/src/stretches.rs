// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts ranges into what is done at a time: what is watched at once, or what one call of move_pages(2) is for.

use crate::pool::SEGMENT;
use crate::ranges::common;
use std::ops::Range;

/// One part of a list of ranges or a piece of it, or several with what lies between them.
#[derive(Debug)]
pub(crate) struct Stretch {
    /// From the first address to the last.
    pub range: Range<usize>,
    /// Which parts.
    pub parts: Range<usize>,
    /// Bytes of the parts in it.
    pub bytes: usize,
}

impl Stretch {
    /// What it has of the parts that it was cut from, ascending.
    pub(crate) fn of(&self, parts: &[Range<usize>]) -> impl Iterator<Item = Range<usize>> {
        let parts = parts[self.parts.clone()].iter();
        parts.map(move |part| common(part, &self.range))
    }
}

/// Stretches of ascending parts.
pub(crate) struct Stretches<'a, F> {
    parts: &'a [Range<usize>],
    most: usize,
    may_join: F,
    /// The next part, and the next address.
    part: usize,
    at: usize,
}

impl<'a, F: Fn(&Range<usize>) -> bool> Stretches<'a, F> {
    /// Of at most `most` bytes each, which is a multiple of 2 MiB: no piece of a part cuts a THP. Neighbours are one stretch where
    /// `may_join` says so of what lies between them.
    pub(crate) fn new(parts: &'a [Range<usize>], most: usize, may_join: F) -> Stretches<'a, F> {
        Stretches {
            parts,
            most,
            may_join,
            part: 0,
            at: 0,
        }
    }
}

impl<F: Fn(&Range<usize>) -> bool> Iterator for Stretches<'_, F> {
    type Item = Stretch;

    fn next(&mut self) -> Option<Stretch> {
        let mut next: Option<Stretch> = None;
        while let Some(part) = self.parts.get(self.part) {
            let start = self.at.max(part.start);
            let end = (start / SEGMENT * SEGMENT)
                .saturating_add(self.most)
                .min(part.end);
            let bytes = end - start;
            match &mut next {
                None => {
                    next = Some(Stretch {
                        range: start..end,
                        parts: self.part..self.part + 1,
                        bytes,
                    });
                }
                Some(stretch)
                    if stretch.bytes + bytes <= self.most
                        && (self.may_join)(&(stretch.range.end..start)) =>
                {
                    stretch.range.end = end;
                    stretch.parts.end = self.part + 1;
                    stretch.bytes += bytes;
                }
                Some(_) => break,
            }
            self.at = end;
            if end == part.end {
                self.part += 1;
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranges::Ranges;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stretches_cover_the_parts_once_and_cut_no_huge_page(
            parts in prop::collection::vec((0usize..1 << 19, 1usize..1 << 19, any::<bool>()), 0..12),
            small: bool,
            most in prop_oneof![Just(1usize), 1usize..512],
        ) {
            let most = most * SEGMENT;
            // Parts in about one stretch, or in many.
            let unit = if small { 1 } else { 4096 };
            let (mut at, mut gaps) = (0, Vec::new());
            let parts: Vec<_> = parts.iter().map(|(gap, pages, joined)| {
                let start = at + (gap / unit).max(1) * 4096;
                gaps.push((at..start, *joined));
                at = start + (pages / unit).max(1) * 4096;
                start..at
            }).collect();
            let may_join = |gap: &Range<usize>| gap.is_empty() || gaps.contains(&(gap.clone(), true));
            let mut covered = Vec::new();
            for stretch in Stretches::new(&parts, most, may_join) {
                let (first, last) = (stretch.range.start, stretch.range.end);
                let inside: Vec<_> = stretch.of(&parts).collect();
                prop_assert!(inside.iter().all(|part| !part.is_empty()));
                prop_assert_eq!((inside[0].start, inside[inside.len() - 1].end), (first, last));
                prop_assert_eq!(inside.iter().map(Range::len).sum::<usize>(), stretch.bytes);
                prop_assert!(stretch.bytes <= most);
                prop_assert!(inside.windows(2).all(|two| may_join(&(two[0].end..two[1].start))));
                prop_assert!(last % SEGMENT == 0 || parts.iter().any(|part| part.end == last));
                covered.extend(inside);
            }
            let mut joined = Ranges::default();
            joined.add_all(&covered);
            prop_assert_eq!(joined.as_slice(), &parts[..]);
            prop_assert_eq!(covered.iter().map(Range::len).sum::<usize>(), parts.iter().map(Range::len).sum::<usize>());
        }
    }
}
