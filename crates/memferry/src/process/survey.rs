// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which parts of a process's address space hold pages: /proc/PID/maps for what is mapped, /proc/PID/pagemap for what is
//! present. Where the pages lie is `census`'s work.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::Process;
use crate::error::{MoveError, Unmovable};
use crate::move_pages::PART;
use crate::sys::page_size;
use crate::sys::pagemap::{PRESENT, Pagemap, Region, ZERO};
use crate::vma;

/// Which mappings count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kinds {
    /// All that move_pages(2) can move: anonymous, shared, of files.
    #[default]
    All,
    /// Only private anonymous memory: heap, stacks, mmap(MAP_ANONYMOUS | MAP_PRIVATE).
    Anonymous,
}

/// Where a process has pages.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Parts with pages, ascending; none crosses a mapping's end or a multiple of [`PART`].
    pub(super) parts: Vec<Range<usize>>,
    /// Mappings that were looked at.
    pub mappings: usize,
    /// Bytes of present pages in them; the shared zero page is none.
    pub resident_bytes: u64,
}

impl Process {
    /// Finds its pages.
    ///
    /// # Errors
    /// Not permitted (it takes the same user or CAP_SYS_PTRACE), or the process has no memory of its own: a kernel thread,
    /// or one that has ended.
    pub fn survey(&self, kinds: Kinds) -> Result<Survey, MoveError> {
        let text = vma::read(&self.folder.join("maps"))?;
        if text.is_empty() {
            return Err(MoveError::NoProcess {
                pid: self.pid(),
                why: "it has no memory of its own: it is a kernel thread, or it has ended",
                hint: "give the number of a running program",
            });
        }
        let failed = || {
            MoveError::system(
                "reading the process's pagemap",
                "it needs the same user or CAP_SYS_PTRACE",
            )
        };
        let pages = Pages::open(self).map_err(failed())?;
        let mut survey = Survey::default();
        for vma in vma::parse(&text) {
            let wanted = match (vma.unmovable, kinds) {
                (Some(Unmovable::Device), _) => false,
                (None, _) | (Some(_), Kinds::All) => true,
                (Some(_), Kinds::Anonymous) => false,
            };
            if wanted {
                survey.mappings += 1;
                let mut found = |run: Range<usize>| survey.add(&vma.range, run);
                pages.each_run(&vma.range, &mut found).map_err(failed())?;
            }
        }
        Ok(survey)
    }
}

impl Survey {
    /// Adds a run of present pages of a mapping.
    fn add(&mut self, mapping: &Range<usize>, run: Range<usize>) {
        self.resident_bytes += run.len() as u64;
        let mut window = run.start / PART * PART;
        while window < run.end {
            let part = window.max(mapping.start)..(window + PART).min(mapping.end);
            if self.parts.last() != Some(&part) {
                self.parts.push(part);
            }
            window += PART;
        }
    }
}

/// The page tables of a process: PAGEMAP_SCAN jumps over what is empty; older kernels tell page by page.
enum Pages {
    Scan(Pagemap),
    Read(File),
}

/// The page is in memory (bit 63 of an entry of /proc/PID/pagemap).
const ENTRY_PRESENT: u64 = 1 << 63;
/// Entries read at once: 256 KiB, for 128 MiB of addresses.
const ENTRIES: usize = 32 << 10;

impl Pages {
    fn open(process: &Process) -> io::Result<Pages> {
        let pagemap = Pagemap::of(&process.folder)?;
        Ok(match pagemap.scan(0, 0, &mut [Region::default()]) {
            Ok(_) => Pages::Scan(pagemap),
            Err(_) => Pages::Read(File::open(process.folder.join("pagemap"))?),
        })
    }

    /// Hands on the runs of present pages in `range`, ascending.
    fn each_run(
        &self,
        range: &Range<usize>,
        found: &mut dyn FnMut(Range<usize>),
    ) -> io::Result<()> {
        match self {
            Pages::Scan(pagemap) => scan(pagemap, range, found),
            Pages::Read(file) => read(file, range, found),
        }
    }
}

fn scan(
    pagemap: &Pagemap,
    range: &Range<usize>,
    found: &mut dyn FnMut(Range<usize>),
) -> io::Result<()> {
    let mut regions = vec![Region::default(); 512];
    let mut at = range.start;
    while at < range.end {
        let (count, end) = pagemap.scan(at, range.end, &mut regions)?;
        for region in &regions[..count] {
            if region.categories & (PRESENT | ZERO) == PRESENT {
                found(region.start as usize..region.end as usize);
            }
        }
        // A walk that does not advance has nothing more to tell.
        if end <= at {
            break;
        }
        at = end;
    }
    Ok(())
}

fn read(file: &File, range: &Range<usize>, found: &mut dyn FnMut(Range<usize>)) -> io::Result<()> {
    let page = page_size();
    let mut bytes = vec![0; ENTRIES * 8];
    let mut at = range.start;
    while at < range.end {
        let wanted = ((range.end - at) / page).min(ENTRIES) * 8;
        let got = file.read_at(&mut bytes[..wanted], (at / page * 8) as u64)? / 8;
        // The process has ended, or the range lies beyond its addresses.
        if got == 0 {
            break;
        }
        let entries = bytes[..got * 8].chunks_exact(8).enumerate();
        let present = |entry: &[u8]| {
            let entry = entry.try_into().map_or(0, u64::from_ne_bytes);
            entry & ENTRY_PRESENT != 0
        };
        let mut run: Option<Range<usize>> = None;
        for (index, _) in entries.filter(|(_, entry)| present(entry)) {
            let start = at + index * page;
            match &mut run {
                Some(run) if run.end == start => run.end += page,
                _ => {
                    run.replace(start..start + page)
                        .into_iter()
                        .for_each(&mut *found);
                }
            }
        }
        run.into_iter().for_each(&mut *found);
        at += got * page;
    }
    Ok(())
}
