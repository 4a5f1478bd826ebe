// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accesses to one page that are close together, made into one.

use std::collections::HashMap;
use std::io::Write;

use crate::error::Error;
use crate::trace::Writer;

/// Accesses to one page within a window.
struct Merged {
    /// Virtual page number.
    place: u64,
    /// Loads.
    reads: u32,
    /// Stores.
    writes: u32,
}

/// The accesses of the window that is open, by page.
#[derive(Default)]
pub struct Window {
    merged: Vec<Merged>,
    at: HashMap<u64, usize>,
    /// The page that was touched last is often touched again.
    last: usize,
}

impl Window {
    /// Counts accesses to a page.
    pub fn add(&mut self, place: u64, reads: u32, writes: u32) {
        let same = |of: &Merged| of.place == place;
        if !self.merged.get(self.last).is_some_and(same) {
            self.last = *self.at.entry(place).or_insert(self.merged.len());
            if self.last == self.merged.len() {
                self.merged.push(Merged {
                    place,
                    reads: 0,
                    writes: 0,
                });
            }
        }
        let page = &mut self.merged[self.last];
        page.reads = page.reads.saturating_add(reads);
        page.writes = page.writes.saturating_add(writes);
    }

    /// Writes what was counted as events of this time; the next window starts empty.
    ///
    /// They come by page number, new pages last, which get theirs by address: small steps from one to the next.
    pub fn write<W: Write>(&mut self, writer: &mut Writer<W>, time: u64) -> Result<(), Error> {
        self.at.clear();
        self.last = 0;
        self.merged.sort_unstable_by_key(|page| {
            let number = writer.number(page.place);
            (number.is_none(), number, page.place)
        });
        for page in self.merged.drain(..) {
            writer.push(time, page.place, page.reads, page.writes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Clock;
    use crate::trace::{Header, Limits, Reader};

    #[test]
    fn a_page_comes_once_with_all_its_accesses() {
        let header = Header::new("", "", Clock::Accesses);
        let mut writer = Writer::new(Vec::new(), &header).expect("header");
        let mut window = Window::default();
        for (place, writes) in [(9, 0), (9, 1), (3, 0), (9, 0), (3, 0)] {
            window.add(place, 1 - writes, writes);
        }
        window.write(&mut writer, 0).expect("write");
        // Known pages first, in the order of their numbers.
        for place in [1, 9, 3] {
            window.add(place, 0, 1);
        }
        window.write(&mut writer, 7).expect("write");
        window.write(&mut writer, 8).expect("write");
        let (bytes, _) = writer.finish(0, 0).expect("finish");
        let mut reader = Reader::new(&bytes[..], Limits::default()).expect("header");
        let mut events = Vec::new();
        while reader.block(&mut events).expect("block") {}
        let events: Vec<_> = (events.iter())
            .map(|e| (e.time, reader.places()[e.page as usize], e.reads, e.writes))
            .collect();
        let first = [(0, 3, 2, 0), (0, 9, 2, 1)];
        assert_eq!(events[..2], first);
        assert_eq!(events[2..], [(7, 3, 0, 1), (7, 9, 0, 1), (7, 1, 0, 1)]);
    }
}
