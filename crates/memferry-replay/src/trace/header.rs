// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a trace file says of itself before its events: where they come from, and in which units.

use schemars::JsonSchema;
use serde::Serialize;

use crate::event::Clock;

use super::varint::{put, take};

/// Bytes of the longest name and of the longest source; a command line is cut to it.
pub const LONGEST_TEXT: usize = 4096;

/// The smallest and the largest page, bytes: a cache line, and the largest huge page there is (16 GiB) fits too.
const PAGES: std::ops::RangeInclusive<u32> = 64..=1 << 31;

/// Accesses of the longest window: an event's counts hold all of them.
pub const LONGEST_WINDOW: u64 = 1 << 31;

/// The first chunk of a trace file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Header {
    /// What was traced: a command line, or what the user calls it.
    pub name: String,
    /// What reported the accesses, with its version where that is known: `lackey (valgrind-3.19.0)`.
    pub source: String,
    /// What times count.
    pub clock: Clock,
    /// Bytes of a page, a power of two.
    pub page_bytes: u32,
    /// Accesses that one reported access stands for; 1 where all are reported.
    pub sampling: u32,
    /// Accesses of the program within which those to one page became one event; 0 where none were merged.
    pub window: u64,
    /// The cache whose hits were left out; `None` where every access is there.
    pub cache: Option<Cache>,
    /// Instruction fetches are among the accesses.
    pub instructions: bool,
}

/// A set-associative cache with least-recently-used replacement, as [`crate::trace::source::CacheModel`] plays it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Cache {
    /// Bytes that it holds.
    pub bytes: u64,
    /// Lines of a set.
    pub ways: u32,
    /// Bytes of a line.
    pub line_bytes: u32,
}

impl Header {
    /// A header for events of which nothing special is known: every access reported, none merged.
    pub fn new(name: impl Into<String>, source: impl Into<String>, clock: Clock) -> Self {
        Self {
            name: cut(name.into()),
            source: cut(source.into()),
            clock,
            page_bytes: 4096,
            sampling: 1,
            window: 0,
            cache: None,
            instructions: false,
        }
    }

    /// What is wrong with it, if anything is.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.name.len() > LONGEST_TEXT || self.source.len() > LONGEST_TEXT {
            return Err("a name or source of more than 4096 bytes");
        }
        if !self.page_bytes.is_power_of_two() || !PAGES.contains(&self.page_bytes) {
            return Err("a page size that is no power of two from 64 bytes to 2 GiB");
        }
        if self.sampling == 0 {
            return Err("a sampling of 0: one reported access stands for one at least");
        }
        if self.window > LONGEST_WINDOW {
            return Err("a window of more than 2^31 accesses");
        }
        match self.cache {
            Some(cache) if !cache.is_possible() => Err("a cache whose size is not ways x lines"),
            _ => Ok(()),
        }
    }

    /// As the file holds it.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for text in [&self.name, &self.source] {
            put(&mut out, text.len() as u64);
            out.extend(text.as_bytes());
        }
        let clock = match self.clock {
            Clock::Accesses => 0,
            Clock::Nanoseconds => 1,
        };
        let cache = self.cache.unwrap_or(Cache {
            bytes: 0,
            ways: 0,
            line_bytes: 0,
        });
        for number in [
            clock,
            self.page_bytes.into(),
            self.sampling.into(),
            self.window,
            cache.bytes,
            cache.ways.into(),
            cache.line_bytes.into(),
            self.instructions.into(),
        ] {
            put(&mut out, number);
        }
        out
    }

    /// Reads what [`Header::encode`] wrote; the error says what is wrong.
    pub(super) fn decode(mut bytes: &[u8]) -> Result<Self, &'static str> {
        let input = &mut bytes;
        let name = text(input).ok_or("a name that is not whole")?;
        let source = text(input).ok_or("a source that is not whole")?;
        let mut number = || take(input).ok_or("a header that is not whole");
        let clock = match number()? {
            0 => Clock::Accesses,
            1 => Clock::Nanoseconds,
            _ => return Err("an unknown clock"),
        };
        let small = |number: u64| u32::try_from(number).map_err(|_| "a number out of its range");
        let (page_bytes, sampling) = (small(number()?)?, small(number()?)?);
        let window = number()?;
        let cache = Cache {
            bytes: number()?,
            ways: small(number()?)?,
            line_bytes: small(number()?)?,
        };
        let header = Self {
            name,
            source,
            clock,
            page_bytes,
            sampling,
            window,
            cache: (cache.bytes > 0).then_some(cache),
            instructions: number()? != 0,
        };
        if !input.is_empty() {
            return Err("a header with more fields than this version knows");
        }
        header.check().map(|()| header)
    }
}

impl Cache {
    /// Whether it can be built: whole sets of whole lines, lines and sets being powers of two.
    pub fn is_possible(&self) -> bool {
        let set = u64::from(self.ways) * u64::from(self.line_bytes);
        self.line_bytes.is_power_of_two()
            && set > 0
            && self.bytes % set == 0
            && (self.bytes / set).is_power_of_two()
    }
}

/// At most [`LONGEST_TEXT`] bytes of it, whole characters.
fn cut(mut text: String) -> String {
    let fits = |&end: &usize| text.is_char_boundary(end);
    let end = (0..=LONGEST_TEXT.min(text.len())).rev().find(fits);
    text.truncate(end.unwrap_or(0));
    text
}

fn text(input: &mut &[u8]) -> Option<String> {
    let bytes = usize::try_from(take(input)?).ok()?;
    let (text, rest) = input.split_at_checked(bytes)?;
    *input = rest;
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Header {
        Header {
            page_bytes: 1 << 21,
            sampling: 5000,
            window: 4096,
            cache: Some(Cache {
                bytes: 1 << 20,
                ways: 16,
                line_bytes: 64,
            }),
            instructions: true,
            ..Header::new("sqlite3 ü.db", "lackey", Clock::Accesses)
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let plain = Header::new("", "perf", Clock::Nanoseconds);
        for header in [full(), plain] {
            assert_eq!(Header::decode(&header.encode()), Ok(header));
        }
    }

    #[test]
    fn every_shorter_or_longer_header_is_refused() {
        let bytes = full().encode();
        for end in 0..bytes.len() {
            assert!(Header::decode(&bytes[..end]).is_err(), "{end}");
        }
        assert!(Header::decode(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn impossible_values_are_refused() {
        let cache = |bytes, ways, line_bytes| {
            Some(Cache {
                bytes,
                ways,
                line_bytes,
            })
        };
        for wrong in [
            Header {
                page_bytes: 0,
                ..full()
            },
            Header {
                page_bytes: 5000,
                ..full()
            },
            Header {
                sampling: 0,
                ..full()
            },
            Header {
                window: 1 << 32,
                ..full()
            },
            Header {
                cache: cache(1 << 20, 0, 64),
                ..full()
            },
            Header {
                cache: cache(1 << 20, 12, 64),
                ..full()
            },
            Header {
                cache: cache(1 << 20, 16, 48),
                ..full()
            },
            Header {
                name: "x".repeat(5000),
                ..full()
            },
        ] {
            assert!(Header::decode(&wrong.encode()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_long_command_line_is_cut_between_characters() {
        let header = Header::new("ü".repeat(3000) + "x", "", Clock::Accesses);
        assert_eq!(header.name, "ü".repeat(2048));
    }
}
