// SPDX-License-Identifier: MIT OR Apache-2.0
//! What must hold for every input there can be, as functions for a fuzzer and for the bounded run in `cargo test`.
//!
//! Each takes any bytes. Nothing may panic, hang or fill the memory; what is accepted must be sound.

use std::io::BufRead;

use memferry_replay::Error;
use memferry_replay::event::Clock;
use memferry_replay::trace::source::{
    More, Recorder, Span, import_damon_within, import_perf, record_lackey,
};
use memferry_replay::trace::{Cache, Header, Limits, MAGIC, Reader, read, write};

/// Small enough that an input which exceeds it is found quickly.
const LIMITS: Limits = Limits {
    pages: 100_000,
    events: 1_000_000,
};

/// A file: it is refused, or it is a sound trace that comes back as it is when it is written again.
pub fn file(bytes: &[u8]) {
    let Ok((header, trace, totals)) = Reader::new(bytes, LIMITS).and_then(Reader::trace) else {
        return;
    };
    assert!(header.check().is_ok(), "{header:?}");
    assert!(trace.pages.is_sorted_by(|a, b| a < b));
    assert!(trace.events.is_sorted_by_key(|event| event.time));
    for event in &trace.events {
        assert!((event.page as usize) < trace.pages.len());
        assert!(event.reads > 0 || event.writes > 0);
    }
    assert_eq!(totals.events, trace.events.len() as u64);
    assert_eq!(totals.pages, trace.pages.len() as u64);
    let kept = Header {
        window: 0,
        ..header
    };
    let again = write(Vec::new(), &kept, &trace).expect("a sound trace is written");
    assert_eq!(read(&again[..]).expect("what was written is read"), trace);
}

/// A file as it would be if its checksums were right: the same, behind the first line of defence.
pub fn file_with_sums(bytes: &[u8]) {
    file(&with_right_sums(bytes));
}

/// The same bytes with the checksum of each chunk made right, as far as there are chunks.
fn with_right_sums(bytes: &[u8]) -> Vec<u8> {
    /// Bytes of the longest contents of a chunk.
    const LONGEST: usize = 8 << 20;
    let mut all = bytes.to_vec();
    let mut at = MAGIC.len() + 2;
    while let Some(length) = all.get(at + 4..at + 8) {
        let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
        let end = at + 8 + length.min(LONGEST);
        let Some(checked) = all.get(at..end) else {
            break;
        };
        let sum = crc32fast::hash(checked).to_le_bytes();
        if let Some(place) = all.get_mut(end..end + 4) {
            place.copy_from_slice(&sum);
        }
        at = end + 4;
    }
    all
}

/// The text of lackey.
pub fn lackey(text: &[u8]) {
    let header = Header {
        window: 16,
        instructions: true,
        cache: Some(Cache {
            bytes: 4096,
            ways: 4,
            line_bytes: 64,
        }),
        ..Header::new("", "", Clock::Accesses)
    };
    let mut recorder = Recorder::new(Vec::new(), &header, Span::ALL).expect("header");
    match record_lackey(text, &mut recorder) {
        Ok(more) => assert_eq!(more, More::Yes),
        Err(error) => return told(&error, text),
    }
    let (bytes, _) = recorder.finish().expect("finish");
    file(&bytes);
}

/// The text of `perf script`.
pub fn perf(text: &[u8]) {
    let header = Header::new("", "", Clock::Nanoseconds);
    for only in [None, Some(1)] {
        match import_perf(text, Vec::new(), &header, only) {
            Ok((bytes, _, _)) => file(&bytes),
            Err(error) => told(&error, text),
        }
    }
}

/// The text of DAMON.
pub fn damon(text: &[u8]) {
    let header = Header::new("", "", Clock::Nanoseconds);
    for only in [None, Some(0)] {
        match import_damon_within(text, Vec::new(), &header, only, LIMITS) {
            Ok((bytes, _)) => file(&bytes),
            Err(error) => told(&error, text),
        }
    }
}

/// An error names a line that is there.
fn told(error: &Error, text: &[u8]) {
    let line = error.at().unwrap_or_else(|| panic!("{error}"));
    let lines = text.lines().count() as u64;
    assert!((1..=lines.max(1)).contains(&line), "line {line} of {lines}");
}
