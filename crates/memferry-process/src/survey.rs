// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which parts of a process's address space hold pages: /proc/PID/maps for what is mapped, /proc/PID/pagemap for what is
//! present. Where the pages lie is `census`'s work.

use std::ops::Range;

use super::Process;
use memferry::move_pages::{PART, mappings};
use memferry::{MoveError, Unmovable};
use memferry_linux::pagemap::Pages;

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
        let mappings = mappings(&self.folder).map_err(|error| self.failed(error))?;
        if mappings.is_empty() {
            return Err(MoveError::NoProcess {
                pid: self.pid(),
                why: "it has no memory of its own: it is a kernel thread, or it has ended",
                hint: "give the number of a running program",
            });
        }
        let wanted = mappings
            .into_iter()
            .filter(|(_, unmovable)| match unmovable {
                None => true,
                Some(Unmovable::Device) => false,
                Some(_) => kinds == Kinds::All,
            });
        let ranges: Vec<_> = wanted.map(|(range, _)| range).collect();
        self.survey_of(&ranges)
    }

    /// Finds its pages in ranges that ascend and have no address in common; each counts as a mapping. What is not mapped there
    /// any more has no pages.
    ///
    /// # Errors
    /// Not permitted, or the process has ended.
    pub fn survey_of(&self, ranges: &[Range<usize>]) -> Result<Survey, MoveError> {
        let failed = |source| {
            self.failed(MoveError::System {
                call: "reading the process's pagemap",
                hint: "it needs the same user or CAP_SYS_PTRACE",
                source,
            })
        };
        let pages = Pages::of(&self.folder).map_err(failed)?;
        let mut survey = Survey::default();
        for range in ranges {
            survey.mappings += 1;
            let mut found = |run: Range<usize>| survey.add(range, run);
            pages.each_run(range, &mut found).map_err(failed)?;
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
