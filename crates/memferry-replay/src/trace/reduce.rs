// SPDX-License-Identifier: MIT OR Apache-2.0
//! A smaller trace from a larger one: the same accesses in longer windows.

use std::io::{Read, Write};

use crate::error::Error;
use crate::event::Clock;

use super::source::Window;
use super::{Header, Reader, Totals, Writer};

/// Writes what recording with this window would have written.
pub fn reduce<W: Write>(
    mut from: Reader<impl Read>,
    out: W,
    window: u64,
) -> Result<(W, Totals), Error> {
    let header = from.header().clone();
    if header.clock != Clock::Accesses {
        return Err(Error::Clock);
    }
    let has = header.window;
    if window == 0 || window % has.max(1) != 0 {
        return Err(Error::Window { window, has });
    }
    let mut writer = Writer::new(out, &Header { window, ..header })?;
    let mut merged = Window::default();
    let mut start = 0;
    let mut events = Vec::new();
    while from.block(&mut events)? {
        for event in events.drain(..) {
            let its = event.time - event.time % window;
            if its > start {
                merged.write(&mut writer, start)?;
                start = its;
            }
            let place = from.places()[event.page as usize];
            merged.add(place, event.reads, event.writes);
        }
    }
    merged.write(&mut writer, start)?;
    let totals = *from.totals();
    writer.finish(totals.end, totals.seen)
}

#[cfg(test)]
mod tests {
    use super::super::Limits;
    use super::super::source::{Access, Kind, Recorder, Span};
    use super::*;

    fn recorded(window: u64) -> Vec<u8> {
        let header = Header {
            window,
            ..Header::new("test", "test", Clock::Accesses)
        };
        let mut recorder = Recorder::new(Vec::new(), &header, Span::ALL).expect("header");
        for at in 0..100_000u64 {
            let access = Access {
                address: (at * at % 977) << 12,
                bytes: 8,
                kind: [Kind::Load, Kind::Store, Kind::Modify][at as usize % 3],
            };
            recorder.record(access).expect("record");
        }
        recorder.finish().expect("finish").0
    }

    fn open(bytes: &[u8]) -> Reader<&[u8]> {
        Reader::new(bytes, Limits::default()).expect("header")
    }

    #[test]
    fn a_reduced_trace_is_the_one_that_recording_would_have_made() {
        for (has, window) in [(0, 4096), (1, 64), (64, 64), (64, 4096), (1000, 2_000_000)] {
            let (bytes, _) = reduce(open(&recorded(has)), Vec::new(), window).expect("reduce");
            let (header, trace, totals) = open(&bytes).trace().expect("read");
            let (as_header, mut as_trace, as_totals) =
                open(&recorded(window)).trace().expect("read");
            assert_eq!((header, totals), (as_header, as_totals));
            let mut trace = trace;
            for of in [&mut trace, &mut as_trace] {
                of.events
                    .sort_unstable_by_key(|event| (event.time, event.page));
            }
            assert_eq!(trace, as_trace, "{has} to {window}");
        }
    }

    #[test]
    fn windows_that_do_not_fit_are_refused() {
        for (has, window) in [(64, 32), (64, 100), (64, 0)] {
            let error = reduce(open(&recorded(has)), Vec::new(), window).expect_err("no multiple");
            assert!(matches!(error, Error::Window { .. }), "{error}");
        }
        let header = Header::new("", "", Clock::Nanoseconds);
        let writer = Writer::new(Vec::new(), &header).expect("header");
        let (bytes, _) = writer.finish(0, 0).expect("finish");
        let error = reduce(open(&bytes), Vec::new(), 64).expect_err("clock");
        assert!(matches!(error, Error::Clock), "{error}");
    }
}
