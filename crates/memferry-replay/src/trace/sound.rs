// SPDX-License-Identifier: MIT OR Apache-2.0
//! What holds for every trace in memory that can be replayed.

use thiserror::Error;

use crate::event::Trace;

/// Why a trace cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unsound {
    /// A page has no size, or an odd one.
    #[error("a page of {0} bytes, which is no power of two")]
    PageSize(u32),
    /// A reported access stands for none.
    #[error("a sampling of 0: one reported access stands for one at least")]
    Sampling,
    /// Pages are not ascending.
    #[error("page {index} is not above the one before it")]
    PageOrder {
        /// Index into the pages.
        index: usize,
    },
    /// An event names a page that is not there.
    #[error("event {index} names page {page} of {pages}")]
    PageMissing {
        /// Index into the events.
        index: usize,
        /// The page it names.
        page: u32,
        /// Pages there are.
        pages: usize,
    },
    /// An event is earlier than the one before it.
    #[error("event {index} is earlier than the one before it")]
    TimeGoesBack {
        /// Index into the events.
        index: usize,
    },
    /// An event without any access.
    #[error("event {index} has no access")]
    NoAccess {
        /// Index into the events.
        index: usize,
    },
}

impl Trace {
    /// Checks that pages ascend, times do not go back, and every event has an access to a page that is there.
    pub fn check(&self) -> Result<(), Unsound> {
        if !self.page_bytes.is_power_of_two() {
            return Err(Unsound::PageSize(self.page_bytes));
        }
        if self.sampling == 0 {
            return Err(Unsound::Sampling);
        }
        if let Some(at) = self.pages.windows(2).position(|pair| pair[0] >= pair[1]) {
            return Err(Unsound::PageOrder { index: at + 1 });
        }
        let mut time = 0;
        for (index, event) in self.events.iter().enumerate() {
            if event.page as usize >= self.pages.len() {
                return Err(Unsound::PageMissing {
                    index,
                    page: event.page,
                    pages: self.pages.len(),
                });
            }
            if event.time < time {
                return Err(Unsound::TimeGoesBack { index });
            }
            if event.reads == 0 && event.writes == 0 {
                return Err(Unsound::NoAccess { index });
            }
            time = event.time;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::trace;
    use super::*;

    #[test]
    fn what_is_wrong_is_found_where_it_is() {
        let sound = trace(&[7, 9], &[(0, 0, 1, 0), (5, 1, 0, 2)]);
        assert_eq!(sound.check(), Ok(()));
        let broken = |wrong: &dyn Fn(&mut crate::event::Trace)| {
            let mut trace = sound.clone();
            wrong(&mut trace);
            trace.check().expect_err("unsound")
        };
        assert_eq!(broken(&|t| t.page_bytes = 5), Unsound::PageSize(5));
        assert_eq!(broken(&|t| t.sampling = 0), Unsound::Sampling);
        assert_eq!(broken(&|t| t.pages[1] = 7), Unsound::PageOrder { index: 1 });
        let missing = Unsound::PageMissing {
            index: 1,
            page: 2,
            pages: 2,
        };
        assert_eq!(broken(&|t| t.events[1].page = 2), missing);
        assert_eq!(
            broken(&|t| t.events[0].time = 6),
            Unsound::TimeGoesBack { index: 1 }
        );
        assert_eq!(
            broken(&|t| t.events[1].writes = 0),
            Unsound::NoAccess { index: 1 }
        );
    }
}
