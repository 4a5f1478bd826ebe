// SPDX-License-Identifier: MIT OR Apache-2.0
//! Some events as a file holds them: one column after the other, each compressed by itself.
//!
//! Pages are numbered as they are first met, so that a page's number costs nothing but its place: `places` has the
//! virtual page numbers of those that are new in this block, as steps from one to the next. `pages` has the steps
//! between the numbers of one event and the next, `times` the time since the event before, then reads and writes.
//! Columns differ in what is frequent in them; compressed one by one, each has a code that fits it.

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_slice_iter_to_slice;

use crate::event::Event;

use super::varint::{self, follow, put, step, take};

/// Events of a block at most, and new pages: some hundred kilobytes, of which a reader holds one at a time.
pub const MOST: usize = 1 << 16;

/// How hard deflate tries, of 10. Writing is faster than any source even so.
const LEVEL: u8 = 9;

/// Columns of a block.
const COLUMNS: usize = 5;

/// What a block continues: what the blocks before it ended with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// Virtual page number of the page that was met last.
    pub place: u64,
    /// Number of the last event's page.
    pub page: u32,
    /// Time of the last event.
    pub time: u64,
}

/// The contents of a chunk with these new pages and events; `before` moves on.
pub fn encode(places: &[u64], events: &[Event], before: &mut Before) -> Vec<u8> {
    let mut columns: [Vec<u8>; COLUMNS] = Default::default();
    for &place in places {
        put(&mut columns[0], step(before.place, place));
        before.place = place;
    }
    for event in events {
        put(&mut columns[1], step(before.page.into(), event.page.into()));
        put(&mut columns[2], event.time - before.time);
        put(&mut columns[3], event.reads.into());
        put(&mut columns[4], event.writes.into());
        (before.page, before.time) = (event.page, event.time);
    }
    let mut out = Vec::new();
    put(&mut out, places.len() as u64);
    put(&mut out, events.len() as u64);
    for column in columns {
        let packed = match column.is_empty() {
            true => Vec::new(),
            false => compress_to_vec(&column, LEVEL),
        };
        put(&mut out, column.len() as u64);
        put(&mut out, packed.len() as u64);
        out.extend(packed);
    }
    out
}

/// Appends the new pages and the events of a chunk; the error says what is wrong.
pub fn decode(
    mut contents: &[u8],
    before: &mut Before,
    places: &mut Vec<u64>,
    events: &mut Vec<Event>,
) -> Result<(), &'static str> {
    let input = &mut contents;
    let new = count(input).ok_or("an impossible number of pages")?;
    let more = count(input).ok_or("an impossible number of events")?;
    let columns = [new, more, more, more, more].map(|numbers| column(input, numbers));
    let [of_places, of_pages, of_times, of_reads, of_writes] = &columns;
    let mut of_places = numbers(of_places)?;
    let (mut of_pages, mut of_times) = (numbers(of_pages)?, numbers(of_times)?);
    let (mut of_reads, mut of_writes) = (numbers(of_reads)?, numbers(of_writes)?);
    if !input.is_empty() {
        return Err("more than its columns");
    }
    for _ in 0..new {
        let step = take(&mut of_places).ok_or("fewer pages than it says")?;
        before.place = follow(before.place, step);
        places.push(before.place);
    }
    for _ in 0..more {
        let next = |column: &mut &[u8]| take(column).ok_or("fewer events than it says");
        let page = follow(before.page.into(), next(&mut of_pages)?);
        before.page = u32::try_from(page)
            .ok()
            .filter(|&page| (page as usize) < places.len())
            .ok_or("an event of a page that is not there")?;
        let time = before.time.checked_add(next(&mut of_times)?);
        before.time = time.ok_or("a time beyond all times")?;
        let small = |number: u64| u32::try_from(number).map_err(|_| "an impossible count");
        let event = Event {
            time: before.time,
            page: before.page,
            reads: small(next(&mut of_reads)?)?,
            writes: small(next(&mut of_writes)?)?,
        };
        if event.reads == 0 && event.writes == 0 {
            return Err("an event without an access");
        }
        events.push(event);
    }
    let rest = [of_places, of_pages, of_times, of_reads, of_writes];
    match rest.iter().all(|column| column.is_empty()) {
        true => Ok(()),
        false => Err("more in a column than it says"),
    }
}

fn count(input: &mut &[u8]) -> Option<usize> {
    let count = usize::try_from(take(input)?).ok()?;
    (count <= MOST).then_some(count)
}

/// Takes a column of so many numbers off the front of `input`.
fn column(input: &mut &[u8], numbers: usize) -> Option<Vec<u8>> {
    let bytes = usize::try_from(take(input)?).ok()?;
    let length = usize::try_from(take(input)?).ok()?;
    let (packed, rest) = input.split_at_checked(length)?;
    *input = rest;
    if bytes > numbers * varint::LONGEST {
        return None;
    }
    let mut column = vec![0; bytes];
    if bytes > 0 {
        let packed = std::iter::once(packed);
        let unpacked = decompress_slice_iter_to_slice(&mut column, packed, false, true);
        if unpacked != Ok(bytes) {
            return None;
        }
    }
    Some(column)
}

fn numbers(column: &Option<Vec<u8>>) -> Result<&[u8], &'static str> {
    column.as_deref().ok_or("a column that does not unpack")
}
