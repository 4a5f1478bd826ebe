// SPDX-License-Identifier: MIT OR Apache-2.0
//! A text, line by line, none longer than anything that the sources write.

use std::io::{BufRead, ErrorKind};

use crate::error::Error;

/// Bytes of the longest line that is read. Command names, event names and symbols stay far below.
const LONGEST: usize = 16 << 10;

/// Characters of a line that an error shows.
const SHOWN: usize = 80;

/// The lines of a text.
pub struct Lines<R> {
    from: R,
    line: Vec<u8>,
    number: u64,
    ended: bool,
}

impl<R: BufRead> Lines<R> {
    /// Reads from the start.
    pub fn new(from: R) -> Self {
        Self {
            from,
            line: Vec::new(),
            number: 0,
            ended: false,
        }
    }

    /// The next line without its end; `None` after the last.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, Error> {
        self.line.clear();
        self.number += 1;
        loop {
            let found = match self.from.fill_buf() {
                Ok(found) => found,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(source) => {
                    let line = self.number;
                    return Err(Error::Text { line, source });
                }
            };
            if found.is_empty() {
                self.ended = true;
                return Ok((!self.line.is_empty()).then_some(&self.line));
            }
            let end = found.iter().position(|&byte| byte == b'\n');
            let taken = end.unwrap_or(found.len());
            if self.line.len() + taken > LONGEST {
                let rest = LONGEST - self.line.len();
                self.line.extend(&found[..rest.min(SHOWN)]);
                return Err(self.unexpected(
                    "line of text: it has more than 16 KiB",
                    "name a text file; a binary one (perf.data, damon.data) is turned into text by the program that \
                     wrote it",
                ));
            }
            self.line.extend(&found[..taken]);
            self.from.consume(taken + usize::from(end.is_some()));
            if end.is_some() {
                return Ok(Some(&self.line));
            }
        }
    }

    /// Whether the line that [`Lines::next_line`] gave was the last and had no end: its writer may have been stopped within it.
    pub fn is_cut(&self) -> bool {
        self.ended
    }

    /// The error that this line is not what was `expected`.
    pub fn unexpected(&self, expected: &'static str, next: &'static str) -> Error {
        let text = String::from_utf8_lossy(&self.line);
        let shown = text.chars().take(SHOWN);
        Error::Line {
            line: self.number,
            expected,
            found: shown
                .map(|c| if c.is_control() { '\u{fffd}' } else { c })
                .collect(),
            next,
        }
    }

    /// The error that this line says something unusable.
    pub fn unusable(&self, why: impl Into<String>, next: &'static str) -> Error {
        Error::Unusable {
            line: self.number,
            why: why.into(),
            next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_with_their_numbers() {
        let mut lines = Lines::new(&b"a\n\nbc"[..]);
        for (number, text) in [(1, &b"a"[..]), (2, b""), (3, b"bc")] {
            assert_eq!(lines.next_line().expect("line"), Some(text));
            assert_eq!(lines.number, number);
            assert_eq!(lines.is_cut(), number == 3);
        }
        assert_eq!(lines.next_line().expect("end"), None);
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_the_memory() {
        let endless = std::io::BufReader::new(std::io::repeat(b'x'));
        let mut lines = Lines::new(endless);
        let error = lines.next_line().expect_err("too long");
        assert_eq!(error.at(), Some(1));
        assert!(error.to_string().contains("16 KiB"), "{error}");
    }
}
