// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts that a trace file is made of, each with its length and a checksum.
//!
//! ```text
//! kind       4 letters
//! length     of the contents, u32, little endian
//! contents
//! checksum   CRC-32 of all of the above, u32, little endian
//! ```

use std::io::{self, ErrorKind, Read, Write};

use super::error::ReadError;

/// The header.
pub const HEADER: [u8; 4] = *b"HEAD";
/// Events.
pub const EVENTS: [u8; 4] = *b"EVTS";
/// The totals; nothing follows.
pub const END: [u8; 4] = *b"ENDS";

/// Bytes of the longest contents. A block of events at its largest has half of it.
pub const LONGEST: u32 = 8 << 20;

/// Writes a chunk.
pub fn write(out: &mut impl Write, kind: [u8; 4], contents: &[u8]) -> io::Result<()> {
    let length = u32::try_from(contents.len())
        .ok()
        .filter(|&length| length <= LONGEST)
        .ok_or_else(|| io::Error::other("a part of a trace is longer than its format allows"))?;
    let mut sum = crc32fast::Hasher::new();
    for part in [&kind[..], &length.to_le_bytes(), contents] {
        sum.update(part);
        out.write_all(part)?;
    }
    out.write_all(&sum.finalize().to_le_bytes())
}

/// A chunk that was read whole.
pub struct Chunk {
    /// What it is.
    pub kind: [u8; 4],
    /// Where in the file it starts.
    pub offset: u64,
    /// Its contents.
    pub contents: Vec<u8>,
}

/// The same bytes with the checksum of each chunk made right, as far as there are chunks.
pub fn with_right_sums(bytes: &[u8]) -> Vec<u8> {
    let mut all = bytes.to_vec();
    let mut at = super::MAGIC.len() + 2;
    while let Some(length) = all.get(at + 4..at + 8) {
        let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
        let end = at + 8 + length.min(LONGEST as usize);
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

/// Reads one part after the other and knows where it is.
pub struct Input<R> {
    from: R,
    offset: u64,
}

impl<R: Read> Input<R> {
    /// Reads from the start of a file.
    pub fn new(from: R) -> Self {
        Self { from, offset: 0 }
    }

    /// Fills `bytes`, or as much of it as there is.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, ReadError> {
        let mut done = 0;
        while done < bytes.len() {
            match self.from.read(&mut bytes[done..]) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(ReadError::Io {
                        offset: self.offset + done as u64,
                        source,
                    });
                }
            }
        }
        self.offset += done as u64;
        Ok(done)
    }

    /// Reads `N` bytes; `None` if there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<Option<[u8; N]>, ReadError> {
        let mut bytes = [0; N];
        Ok((self.fill(&mut bytes)? == N).then_some(bytes))
    }

    /// Reads the next chunk.
    pub fn chunk(&mut self) -> Result<Chunk, ReadError> {
        let offset = self.offset;
        let start: [u8; 8] = self.whole()?;
        let kind = [start[0], start[1], start[2], start[3]];
        let length = u32::from_le_bytes([start[4], start[5], start[6], start[7]]);
        if length > LONGEST {
            let what = "a part longer than any that memferry writes";
            return Err(ReadError::Damaged { offset, what });
        }
        let mut contents = Vec::new();
        let mut left = length as usize;
        // A length that is a lie costs no more than what the file has.
        while left > 0 {
            let part = left.min(64 << 10);
            let at = contents.len();
            contents.resize(at + part, 0);
            if self.fill(&mut contents[at..])? < part {
                return Err(self.truncated());
            }
            left -= part;
        }
        let mut sum = crc32fast::Hasher::new();
        sum.update(&start);
        sum.update(&contents);
        if u32::from_le_bytes(self.whole()?) != sum.finalize() {
            let what = "its checksum does not match";
            return Err(ReadError::Damaged { offset, what });
        }
        Ok(Chunk {
            kind,
            offset,
            contents,
        })
    }

    /// Checks that nothing follows.
    pub fn end(&mut self) -> Result<(), ReadError> {
        let offset = self.offset;
        let what = "bytes after the end of the trace";
        match self.fill(&mut [0])? {
            0 => Ok(()),
            _ => Err(ReadError::Damaged { offset, what }),
        }
    }

    fn whole<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        self.array()?.ok_or_else(|| self.truncated())
    }

    fn truncated(&self) -> ReadError {
        ReadError::Truncated {
            offset: self.offset,
        }
    }
}
