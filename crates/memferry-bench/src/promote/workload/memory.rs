// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that a workload accesses: made, placed, found again and compared. It makes no access of the workload.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use memferry_linux::numa;

use super::load::words;
use super::spec::WorkSpec;
use crate::args::workload::Memory;
use crate::failure::{Failure, OrFail};
use crate::nodes::{bring, call_failed};
use crate::promote::filling::{Filling, Want, left_for, on, reserve};
use crate::promote::place::room_to_fill;
use crate::promote::watch::Pages;
use crate::promote::worker::lost;
use crate::region::{PAGE, Region, THP};

/// Of the folios that are to be placed, so many must come.
const PLACED: f64 = 0.95;
/// What may be free of a node beside the room: what the kernel frees meanwhile.
const FREED: usize = 32 << 20;

/// Memory of one kind.
pub struct WorkMemory {
    region: Region,
    /// Bytes of a folio.
    pub folio: usize,
    /// What is locked of the top tier.
    pub filling: Filling,
    lower: u32,
    top: Vec<u32>,
    /// The folios that were placed in the top tier, as places in the memory.
    placed: Vec<usize>,
}

impl WorkMemory {
    /// All of it in the lower tier, and of the top tier as much left as there is to be room.
    pub fn new(spec: &WorkSpec) -> Result<Self, Failure> {
        let above = reserve(&spec.top)?;
        let (bytes, node, threads) = (spec.bytes, spec.lower, spec.threads);
        let failed = format!("cannot map {} MiB on node {node}", bytes >> 20);
        let next = "free memory, or give a smaller --size; a file needs room where temporary files are (TMPDIR)";
        let region = match spec.memory {
            Memory::Base => on(node, bytes, threads)?,
            Memory::Thp => of_thps(node, bytes, threads).or_fail(failed, next)?,
            Memory::Shared => shared(node, bytes, threads).or_fail(failed, next)?,
            Memory::File => of_file(node, bytes, threads).or_fail(failed, next)?,
        };
        drop(above);
        let folio = if spec.memory == Memory::Thp {
            THP
        } else {
            PAGE
        };
        let mut memory = Self {
            region,
            folio,
            filling: Filling::default(),
            lower: spec.lower,
            top: spec.top.clone(),
            placed: Vec::new(),
        };
        bring(&memory.heads(0..bytes / folio), node)?;
        if let Some(room) = spec.room {
            let want = Want {
                top: &spec.top,
                threads,
                idle_bytes: Some(0),
                left_bytes: left_for(spec.placing, room),
            };
            memory.filling = Filling::new(&want)?;
            memory.filling.check_full(&want, FREED)?;
        }
        Ok(memory)
    }

    /// Its addresses.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.region.range()
    }

    /// The word that a load reads at the offset of a line.
    pub fn word(&self, line: usize) -> u64 {
        self.region.written(line + words::READ * 8)
    }

    fn heads(&self, folios: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let start = self.region.range().start;
        let head = |folio| start + folio * self.folio;
        folios.into_iter().map(head).collect()
    }

    /// Brings these folios to the top tier, and those back that were placed before and are not among them.
    pub fn place(&mut self, folios: &[usize]) -> Result<(), Failure> {
        let (old, new): (HashSet<usize>, HashSet<usize>) = (
            self.placed.iter().copied().collect(),
            folios.iter().copied().collect(),
        );
        let down = self.placed.iter().copied().filter(|of| !new.contains(of));
        bring(&self.heads(down), self.lower)?;
        let up = folios.iter().copied().filter(|of| !old.contains(of));
        let up = self.heads(up);
        let mut left = &up[..];
        for &node in &self.top {
            let fit = left.len().min(room_to_fill(node)? / self.folio);
            let (now, later) = left.split_at(fit);
            // What does not come is counted below.
            let _ = bring(now, node);
            left = later;
        }
        // Promotion may go nearer to the watermarks than what fills the tier.
        let _ = bring(left, self.top[0]);
        self.placed = folios.to_vec();
        let came = self.placed_in_top()? as f64 * PAGE as f64 / self.folio as f64;
        match came < PLACED * folios.len() as f64 {
            true => Err(Failure::new(
                "cannot place pages in the top tier",
                format!("{came} of {} folios came", folios.len()),
                "give a smaller --room, or end what uses the top tier",
            )),
            false => Ok(()),
        }
    }

    /// How many of the pages that were placed are in the top tier now.
    pub fn placed_in_top(&self) -> Result<u64, Failure> {
        self.count(self.heads(self.placed.iter().copied()))
    }

    /// How many of all pages are there: by the first page of each folio, but every page where THPs may have been split.
    pub fn in_top(&self) -> Result<u64, Failure> {
        let pages = Vec::from_iter(self.region.range().step_by(PAGE));
        let mut pages = Pages::new(pages, &self.top);
        pages.look(|_, _| ()).map_err(call_failed)?;
        Ok(pages.in_top() as u64)
    }

    /// Pages of the folios at these addresses whose head is in the top tier.
    fn count(&self, heads: Vec<usize>) -> Result<u64, Failure> {
        let mut heads = Pages::new(heads, &self.top);
        heads.look(|_, _| ()).map_err(call_failed)?;
        Ok((heads.in_top() * self.folio / PAGE) as u64)
    }

    /// Compares every byte with what it must be after so many stores of so many threads; gives the number of bytes.
    pub fn check(&self, stores: u64, threads: usize) -> Result<u64, Failure> {
        let counted = self.region.added(words::counted(threads), threads);
        let counted = counted.map_err(|at| lost(format!("byte {at} is not what was written")))?;
        if counted != stores {
            let why = format!("{counted} of {stores} stores are in the memory");
            return Err(lost(why));
        }
        Ok(self.region.range().len() as u64)
    }
}

fn of_thps(node: u32, bytes: usize, threads: usize) -> io::Result<Region> {
    let region = Region::on(node, bytes, THP, threads)?;
    numa::follow_task(&region.range())?;
    match region.is_made_of(true)? {
        true => Ok(region),
        false => Err(io::Error::other(
            "the kernel gave base pages where THPs were wanted",
        )),
    }
}

/// Memory of a memfd.
fn shared(node: u32, bytes: usize, threads: usize) -> io::Result<Region> {
    // SAFETY: the name is a C string; the descriptor is new and nobody else's.
    let file = unsafe {
        match libc::memfd_create(c"promote-run".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => return Err(io::Error::last_os_error()),
            raw => File::from(OwnedFd::from_raw_fd(raw)),
        }
    };
    filled(&file, node, bytes, threads)
}

/// A file in the page cache, mapped read-only. It has no name any more.
fn of_file(node: u32, bytes: usize, threads: usize) -> io::Result<Region> {
    let named = tempfile::NamedTempFile::new()?;
    let region = filled(named.as_file(), node, bytes, threads)?;
    named.as_file().sync_all()?;
    region.reopen(&File::open(named.path())?)?;
    Ok(region)
}

/// A file with words everywhere, its pages on a node as far as the file system asks for the policy of a mapping.
fn filled(file: &File, node: u32, bytes: usize, threads: usize) -> io::Result<Region> {
    file.set_len(bytes as u64)?;
    let mut region = Region::of_file(file, bytes)?;
    numa::prefer(&region.range(), node)?;
    region.fill(threads);
    numa::follow_task(&region.range())?;
    Ok(region)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On the one node of this machine, which is both tiers.
    fn memory(region: Region) -> WorkMemory {
        WorkMemory {
            region,
            folio: PAGE,
            filling: Filling::default(),
            lower: 0,
            top: vec![0],
            placed: vec![1, 2],
        }
    }

    #[test]
    fn memory_of_each_kind_holds_its_words_and_a_flipped_byte_is_found() {
        let bytes = 4 << 20;
        for (region, writable) in [
            (on(0, bytes, 1).expect("base"), true),
            (shared(0, bytes, 1).expect("shared"), true),
            (of_file(0, bytes, 1).expect("file"), false),
        ] {
            let memory = memory(region);
            assert_eq!(memory.check(0, 1).expect("as written"), bytes as u64);
            let line = memory.range().start + 4096;
            // SAFETY: inside of the memory, which nobody else uses.
            let read = unsafe { *((line + words::READ * 8) as *const u64) };
            assert_eq!(read, memory.word(4096));
            assert_eq!(memory.in_top().expect("looked"), bytes as u64 / 4096);
            assert_eq!(memory.placed_in_top().expect("looked"), 2);
            if !writable {
                continue;
            }
            for (word, stores) in [(0, 1), (6, 1)] {
                let at = (line + word * 8) as *mut u64;
                // SAFETY: as above.
                unsafe { at.write(at.read() + 1) };
                let threads = word + 1;
                assert!(memory.check(stores, threads).is_ok(), "a store of a thread");
                assert!(memory.check(stores + 1, threads).is_err(), "one is lost");
                assert!(word == 0 || memory.check(stores, word).is_err());
                // SAFETY: as above.
                unsafe { at.write(at.read() - 1) };
            }
            let byte = (line + 60) as *mut u8;
            // SAFETY: as above.
            unsafe { byte.write(!byte.read()) };
            let told = memory.check(0, 7).expect_err("flipped").to_string();
            assert!(told.contains("byte 4152"), "{told}");
        }
    }
}
