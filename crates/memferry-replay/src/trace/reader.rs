// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a trace file, trusting nothing in it.
//!
//! A reader holds one block at a time; only [`Reader::trace`] holds all events, up to a limit.

use std::io::Read;

use crate::error::Error;
use crate::event::{Event, Trace};

use super::block::{self, Before};
use super::chunk::{self, Input};
use super::header::Header;
use super::order::deal;
use super::totals::Totals;
use super::{MAGIC, VERSION};

/// The most that is read into memory: a file of some bytes can stand for thousands of times as many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pages, at 8 bytes each.
    pub pages: u64,
    /// Events, at 24 bytes each.
    pub events: u64,
}

impl Default for Limits {
    /// 64 M pages (256 GiB of 4 KiB) and 128 M events: 3.5 GiB of memory.
    fn default() -> Self {
        Self {
            pages: 64 << 20,
            events: 128 << 20,
        }
    }
}

/// A trace file that is being read.
pub struct Reader<R> {
    input: Input<R>,
    header: Header,
    limits: Limits,
    before: Before,
    places: Vec<u64>,
    /// The page number at which each block's new pages start, and the block's offset.
    blocks: Vec<(usize, u64)>,
    totals: Totals,
    /// At the end, the numbers of the pages in the order of their addresses.
    order: Vec<u32>,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub fn new(from: R, limits: Limits) -> Result<Self, Error> {
        let mut input = Input::new(from);
        let magic: Option<[u8; MAGIC.len()]> = input.array()?;
        if magic != Some(MAGIC) {
            return Err(Error::Foreign);
        }
        let version = input.array()?.map(u16::from_le_bytes);
        let version = version.ok_or(Error::Truncated { offset: 8 })?;
        if version != VERSION {
            return Err(Error::Version { version });
        }
        let first = input.chunk()?;
        let damaged = |what| Error::Damaged {
            offset: first.offset,
            what,
        };
        if first.kind != chunk::HEADER {
            return Err(damaged("the header is missing"));
        }
        let header = Header::decode(&first.contents).map_err(damaged)?;
        Ok(Self {
            input,
            header,
            limits,
            before: Before::default(),
            places: Vec::new(),
            blocks: Vec::new(),
            totals: Totals::default(),
            order: Vec::new(),
            ended: false,
        })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What was read so far; after the last block, what the file has.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The virtual page numbers of the pages met so far. An event that [`Reader::block`] gives names its page by its
    /// place here.
    pub fn places(&self) -> &[u64] {
        &self.places
    }

    /// Appends the next block's events in the order of the file; `false` after the last one, when the file has been found whole.
    pub fn block(&mut self, events: &mut Vec<Event>) -> Result<bool, Error> {
        if self.ended {
            return Ok(false);
        }
        let chunk = self.input.chunk()?;
        let offset = chunk.offset;
        let damaged = |what| Error::Damaged { offset, what };
        match chunk.kind {
            chunk::EVENTS => {
                let (first, place) = (events.len(), self.places.len());
                self.blocks.push((place, offset));
                block::decode(&chunk.contents, &mut self.before, &mut self.places, events)
                    .map_err(damaged)?;
                for event in &events[first..] {
                    self.totals.add(event);
                }
                self.totals.pages = self.places.len() as u64;
                self.limit(offset)?;
                Ok(true)
            }
            chunk::END => {
                let said = Totals::decode(&chunk.contents).ok_or(damaged("totals not whole"))?;
                let counted = Totals {
                    end: said.end.max(self.totals.end),
                    seen: said.seen,
                    ..self.totals
                };
                if said != counted {
                    return Err(damaged("the totals are not those of the events"));
                }
                self.totals = said;
                self.input.end()?;
                self.order = self.order()?;
                self.ended = true;
                Ok(false)
            }
            _ => Err(damaged("a part of an unknown kind")),
        }
    }

    /// Reads all of it into memory.
    pub fn trace(mut self) -> Result<(Header, Trace, Totals), Error> {
        let mut events = Vec::new();
        while self.block(&mut events)? {}
        // From the order in which they were met to the order of addresses.
        let place = |&number: &u32| self.places[number as usize];
        let pages = self.order.iter().map(place).collect();
        let mut index = vec![0; self.order.len()];
        for (at, &number) in self.order.iter().enumerate() {
            index[number as usize] = at as u32;
        }
        for event in &mut events {
            event.page = index[event.page as usize];
        }
        let header = self.header;
        if header.window > 0 {
            deal(&mut events);
        }
        let trace = Trace {
            name: header.name.clone(),
            clock: header.clock,
            page_bytes: header.page_bytes,
            sampling: header.sampling,
            pages,
            events,
        };
        Ok((header, trace, self.totals))
    }

    /// The numbers of all pages in the order of their addresses; no page may be there twice.
    fn order(&self) -> Result<Vec<u32>, Error> {
        let place = |number: u32| self.places[number as usize];
        let mut order: Vec<u32> = (0..self.places.len() as u32).collect();
        order.sort_unstable_by_key(|&number| place(number));
        let same = |pair: &[u32]| place(pair[0]) == place(pair[1]);
        let Some(twice) = order.windows(2).find(|pair| same(pair)) else {
            return Ok(order);
        };
        let number = twice[0].max(twice[1]) as usize;
        let block = self.blocks.partition_point(|&(first, _)| first <= number);
        Err(Error::Damaged {
            offset: self.blocks[block - 1].1,
            what: "a page that was there before",
        })
    }

    fn limit(&self, offset: u64) -> Result<(), Error> {
        for (count, limit, what) in [
            (self.totals.pages, self.limits.pages, "pages"),
            (self.totals.events, self.limits.events, "events"),
        ] {
            if count > limit {
                return Err(Error::TooLarge {
                    offset,
                    limit,
                    what,
                });
            }
        }
        Ok(())
    }
}

/// Reads a trace within [`Limits::default`].
pub fn read(from: impl Read) -> Result<Trace, Error> {
    Ok(Reader::new(from, Limits::default())?.trace()?.1)
}
