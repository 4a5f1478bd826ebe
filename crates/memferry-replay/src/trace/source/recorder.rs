// SPDX-License-Identifier: MIT OR Apache-2.0
//! From every access of a program to the events of a trace: what a cache would serve is left out, what is close
//! together is merged, the rest is written.

use std::io::Write;

use crate::error::Error;
use crate::trace::{Header, Totals, Writer};

use super::cache::CacheModel;
use super::window::Window;
use super::{Access, Kind};

/// Which of a program's accesses are recorded, counted as the header says (with instruction fetches or without).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// So many at the start are not; they fill the modelled cache.
    pub skip: u64,
    /// So many after that are, then recording ends.
    pub most: u64,
}

impl Span {
    /// All of them.
    pub const ALL: Self = Self {
        skip: 0,
        most: u64::MAX,
    };
}

/// Whether more accesses are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// Go on.
    Yes,
    /// As many as were asked for are recorded.
    No,
}

/// Records accesses into a trace.
///
/// Time counts the program's accesses, those that the cache serves among them. All events of a window have the time
/// of its start: merging has lost what was in between.
pub struct Recorder<W> {
    writer: Writer<W>,
    window: Window,
    cache: Option<CacheModel>,
    instructions: bool,
    page_shift: u32,
    length: u64,
    skip: u64,
    most: u64,
    /// Accesses since recording began.
    seen: u64,
    start: u64,
}

impl<W: Write> Recorder<W> {
    /// Writes the header and makes ready. The header's `cache`, `window` and `instructions` say what is done.
    pub fn new(out: W, header: &Header, span: Span) -> Result<Self, Error> {
        let writer = Writer::new(out, header)?;
        Ok(Self {
            writer,
            window: Window::default(),
            cache: header.cache.and_then(CacheModel::new),
            instructions: header.instructions,
            page_shift: header.page_bytes.trailing_zeros(),
            length: header.window.max(1),
            skip: span.skip,
            most: span.most,
            seen: 0,
            start: 0,
        })
    }

    /// Records an access.
    pub fn record(&mut self, access: Access) -> Result<More, Error> {
        match access.kind {
            Kind::Instruction if !self.instructions => Ok(More::Yes),
            Kind::Instruction | Kind::Load => self.single(access, false),
            Kind::Store => self.single(access, true),
            Kind::Modify => match self.single(access, false)? {
                More::Yes => self.single(access, true),
                More::No => Ok(More::No),
            },
        }
    }

    /// The accesses since recording began, those among them that the cache served.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Writes the rest.
    pub fn finish(mut self) -> Result<(W, Totals), Error> {
        self.flush()?;
        self.writer.finish(self.seen, self.seen)
    }

    fn single(&mut self, access: Access, is_write: bool) -> Result<More, Error> {
        let last = access
            .address
            .saturating_add(u64::from(access.bytes.max(1)) - 1);
        if self.skip > 0 {
            self.skip -= 1;
            if let Some(cache) = &mut self.cache {
                let shift = cache.line_shift();
                for line in access.address >> shift..=last >> shift {
                    cache.touch(line);
                }
            }
            return Ok(More::Yes);
        }
        if self.seen >= self.most {
            return Ok(More::No);
        }
        if self.seen - self.start >= self.length {
            self.flush()?;
        }
        self.seen += 1;
        let (reads, writes) = (u32::from(!is_write), u32::from(is_write));
        let page_shift = self.page_shift;
        match &mut self.cache {
            None => {
                for place in access.address >> page_shift..=last >> page_shift {
                    self.window.add(place, reads, writes);
                }
            }
            Some(cache) => {
                let shift = cache.line_shift();
                for line in access.address >> shift..=last >> shift {
                    if !cache.touch(line) {
                        self.window
                            .add((line << shift) >> page_shift, reads, writes);
                    }
                }
            }
        }
        Ok(match self.seen < self.most {
            true => More::Yes,
            false => More::No,
        })
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.window.write(&mut self.writer, self.start)?;
        self.start = self.seen;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Clock, Trace};
    use crate::trace::{Cache, read};

    fn access(kind: Kind, address: u64, bytes: u32) -> Access {
        Access {
            address,
            bytes,
            kind,
        }
    }

    fn record(header: &Header, span: Span, accesses: &[Access]) -> (Trace, Totals) {
        let mut recorder = Recorder::new(Vec::new(), header, span).expect("header");
        for &access in accesses {
            if recorder.record(access).expect("record") == More::No {
                break;
            }
        }
        let (bytes, totals) = recorder.finish().expect("finish");
        (read(&bytes[..]).expect("read"), totals)
    }

    /// Time, page, reads, writes; in the order of pages where times are the same.
    fn events(trace: &Trace) -> Vec<(u64, u64, u32, u32)> {
        let place = |page: u32| trace.pages[page as usize];
        let mut events: Vec<_> = (trace.events.iter())
            .map(|e| (e.time, place(e.page), e.reads, e.writes))
            .collect();
        events.sort_unstable();
        events
    }

    fn header(window: u64) -> Header {
        Header {
            window,
            instructions: true,
            ..Header::new("test", "test", Clock::Accesses)
        }
    }

    #[test]
    fn a_window_merges_by_page_and_tells_its_start() {
        let accesses = [
            access(Kind::Load, 0x1000, 8),
            access(Kind::Store, 0x5000, 8),
            access(Kind::Modify, 0x1008, 8),
            access(Kind::Load, 0x1ffc, 8),
            access(Kind::Instruction, 0x1000, 2),
        ];
        let (trace, totals) = record(&header(4), Span::ALL, &accesses);
        let first = [(0, 1, 2, 1), (0, 5, 0, 1)];
        assert_eq!(
            events(&trace),
            [&first[..], &[(4, 1, 2, 0), (4, 2, 1, 0)]].concat()
        );
        assert_eq!((totals.seen, totals.end), (6, 6));

        // Without merging, each access is an event.
        let (trace, _) = record(&header(0), Span::ALL, &accesses[..2]);
        assert_eq!(events(&trace), [(0, 1, 1, 0), (1, 5, 0, 1)]);
    }

    #[test]
    fn data_alone_is_recorded_and_counted_if_wanted() {
        let header = Header {
            instructions: false,
            ..header(4)
        };
        let accesses = [
            access(Kind::Instruction, 0x1000, 2),
            access(Kind::Load, 0x2000, 1),
        ];
        let (trace, totals) = record(&header, Span::ALL, &accesses);
        assert_eq!(events(&trace), [(0, 2, 1, 0)]);
        assert_eq!(totals.seen, 1);
    }

    #[test]
    fn a_cache_lets_only_misses_through() {
        let header = Header {
            cache: Some(Cache {
                bytes: 4096,
                ways: 4,
                line_bytes: 64,
            }),
            ..header(100)
        };
        let accesses = [
            access(Kind::Load, 0x1000, 8),
            access(Kind::Store, 0x1008, 8),
            // The load of it misses, the store hits.
            access(Kind::Modify, 0x2000, 4),
            // Two lines.
            access(Kind::Store, 0x303c, 8),
        ];
        let (trace, totals) = record(&header, Span::ALL, &accesses);
        assert_eq!(events(&trace), [(0, 1, 1, 0), (0, 2, 1, 0), (0, 3, 0, 2)]);
        assert_eq!((totals.accesses(), totals.seen), (4, 5));

        // What is skipped has filled the cache.
        let span = Span { skip: 1, most: 1 };
        let (trace, totals) = record(&header, span, &accesses);
        assert_eq!((trace.events.len(), totals.seen), (0, 1));
    }

    #[test]
    fn recording_ends_after_as_many_as_were_asked_for() {
        let span = Span { skip: 0, most: 3 };
        let modify = access(Kind::Modify, 0x1000, 8);
        let (trace, totals) = record(&header(10), span, &[modify; 5]);
        assert_eq!(events(&trace), [(0, 1, 2, 1)]);
        assert_eq!(totals.seen, 3);
    }

    #[test]
    fn the_last_byte_of_all_is_a_page_too() {
        let (trace, _) = record(&header(9), Span::ALL, &[access(Kind::Load, u64::MAX, 8)]);
        assert_eq!(events(&trace), [(0, u64::MAX >> 12, 1, 0)]);
    }
}
