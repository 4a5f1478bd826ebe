// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts that a trace file is made of, each with its length and a checksum.
//!
//! ```text
//! kind       4 letters
//! length     of the contents, u32, little endian
//! contents
//! checksum   CRC-32 of all of the above, u32, little endian
//! ```

use std::io::{self, Read, Write};

use crate::error::Error;

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

    /// Reads so many bytes, or as many as there are: a length that is a lie costs no more than what the file has.
    fn read(&mut self, most: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        let read = self.from.by_ref().take(most as u64).read_to_end(&mut bytes);
        self.offset += bytes.len() as u64;
        let offset = self.offset;
        read.map_err(|source| Error::Read { offset, source })?;
        Ok(bytes)
    }

    /// Reads `N` bytes; `None` if there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Error> {
        Ok(self.read(N)?.try_into().ok())
    }

    /// Reads the next chunk.
    pub fn chunk(&mut self) -> Result<Chunk, Error> {
        let offset = self.offset;
        let start: [u8; 8] = self.whole()?;
        let kind = [start[0], start[1], start[2], start[3]];
        let length = u32::from_le_bytes([start[4], start[5], start[6], start[7]]);
        if length > LONGEST {
            let what = "a part longer than any that memferry writes";
            return Err(Error::Damaged { offset, what });
        }
        let contents = self.read(length as usize)?;
        if contents.len() < length as usize {
            return Err(self.truncated());
        }
        let mut sum = crc32fast::Hasher::new();
        sum.update(&start);
        sum.update(&contents);
        if u32::from_le_bytes(self.whole()?) != sum.finalize() {
            let what = "its checksum does not match";
            return Err(Error::Damaged { offset, what });
        }
        Ok(Chunk {
            kind,
            offset,
            contents,
        })
    }

    /// Checks that nothing follows.
    pub fn end(&mut self) -> Result<(), Error> {
        let offset = self.offset;
        let what = "bytes after the end of the trace";
        match self.read(1)?.is_empty() {
            true => Ok(()),
            false => Err(Error::Damaged { offset, what }),
        }
    }

    fn whole<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        self.array()?.ok_or_else(|| self.truncated())
    }

    fn truncated(&self) -> Error {
        Error::Truncated {
            offset: self.offset,
        }
    }
}
