// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes a trace file as its events come.

use std::collections::HashMap;
use std::io::Write;

use crate::error::Error;
use crate::event::{Event, Trace};

use super::block::{self, Before, MOST};
use super::chunk;
use super::header::Header;
use super::totals::Totals;
use super::{MAGIC, VERSION};

/// A trace file that is being written. It is whole after [`Writer::finish`] only.
pub struct Writer<W> {
    out: W,
    before: Before,
    numbers: HashMap<u64, u32>,
    places: Vec<u64>,
    events: Vec<Event>,
    totals: Totals,
}

impl<W: Write> Writer<W> {
    /// Writes the header. `out` gets whole chunks of some hundred kilobytes and needs no buffer.
    pub fn new(mut out: W, header: &Header) -> Result<Self, Error> {
        header.check().map_err(Error::Header)?;
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        chunk::write(&mut out, chunk::HEADER, &header.encode())?;
        Ok(Self {
            out,
            before: Before::default(),
            numbers: HashMap::new(),
            places: Vec::new(),
            events: Vec::new(),
            totals: Totals::default(),
        })
    }

    /// Adds a page, by its virtual page number, that may have no events; [`Writer::push`] adds what it meets by itself.
    pub fn add_page(&mut self, place: u64) -> Result<u32, Error> {
        if let Some(&number) = self.numbers.get(&place) {
            return Ok(number);
        }
        let number = u32::try_from(self.numbers.len())
            .ok()
            .filter(|&number| number < u32::MAX)
            .ok_or(Error::TooManyPages)?;
        self.numbers.insert(place, number);
        self.places.push(place);
        self.totals.pages += 1;
        if self.places.len() == MOST {
            self.flush()?;
        }
        Ok(number)
    }

    /// The number of a page that was met before.
    pub(super) fn number(&self, place: u64) -> Option<u32> {
        self.numbers.get(&place).copied()
    }

    /// Adds accesses to the page with this virtual page number.
    pub fn push(&mut self, time: u64, place: u64, reads: u32, writes: u32) -> Result<(), Error> {
        let (event, before) = (self.totals.events, self.totals.end);
        if time < before {
            return Err(Error::TimeGoesBack {
                event,
                time,
                before,
            });
        }
        if reads == 0 && writes == 0 {
            return Err(Error::NoAccess { event });
        }
        let event = Event {
            time,
            page: self.add_page(place)?,
            reads,
            writes,
        };
        self.events.push(event);
        self.totals.add(&event);
        if self.events.len() == MOST {
            self.flush()?;
        }
        Ok(())
    }

    /// What was written so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Writes the rest. `end` is when tracing ended, which may be after the last event; `seen` the accesses of the
    /// program meanwhile, also those that were left out, or 0 if that is not known.
    pub fn finish(mut self, end: u64, seen: u64) -> Result<(W, Totals), Error> {
        self.flush()?;
        self.totals.end = self.totals.end.max(end);
        self.totals.seen = seen;
        chunk::write(&mut self.out, chunk::END, &self.totals.encode())?;
        self.out.flush()?;
        Ok((self.out, self.totals))
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.places.is_empty() && self.events.is_empty() {
            return Ok(());
        }
        let contents = block::encode(&self.places, &self.events, &mut self.before);
        self.places.clear();
        self.events.clear();
        Ok(chunk::write(&mut self.out, chunk::EVENTS, &contents)?)
    }
}

/// Writes a trace that is in memory. `header` says where it comes from; what both say is taken from the trace. With a
/// window in the header, events of one time do not keep their order among them.
///
/// # Panics
/// An event names a page that is not there.
pub fn write<W: Write>(out: W, header: &Header, trace: &Trace) -> Result<W, Error> {
    let header = Header {
        clock: trace.clock,
        page_bytes: trace.page_bytes,
        sampling: trace.sampling,
        name: trace.name.clone(),
        ..header.clone()
    };
    let mut writer = Writer::new(out, &header)?;
    for event in &trace.events {
        let place = trace.pages[event.page as usize];
        writer.push(event.time, place, event.reads, event.writes)?;
    }
    for &place in &trace.pages {
        writer.add_page(place)?;
    }
    Ok(writer.finish(0, 0)?.0)
}
