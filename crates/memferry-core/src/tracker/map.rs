// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the records of a page lie: a tree of two levels over sections of 128 MiB, which only grows.
//!
//! A section's records are one mapping of just their size, with nothing else in it. What else is known of a section, such
//! as its majority node, lies in the tree. Nothing is freed before the whole map, so readers need no lock.

use super::zeroes::Zeroes;
use super::{TrackError, cell};
use crate::hotness::{Majority, Record, SECTION_PAGES};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// Sections of a leaf: 512 GiB of pages of 4 KiB.
const LEAF: usize = 4096;
/// Leaves: with them 2^40 pages, all that 52 bits of physical address or 48 of virtual ones have.
const LEAVES: usize = 8192;
/// Pages that the map can hold.
pub(super) const PAGES: u64 = (LEAVES * LEAF * SECTION_PAGES) as u64;

/// The records of a section.
pub(super) struct Section {
    zeroes: Zeroes,
    majority: AtomicU16,
}

impl Section {
    /// The records, by the word.
    pub(super) fn words(&self) -> &[AtomicU64] {
        self.zeroes.words()
    }

    /// The node that most accesses come from.
    pub(super) fn majority(&self) -> Option<u16> {
        Majority::from_bits(self.majority.load(Ordering::Relaxed)).node()
    }

    /// Counts an access from `node`, in the mode whose records have none of their own. A vote that is lost to another
    /// thread's at the same moment is no loss.
    #[inline]
    pub(super) fn vote<R: Record>(&self, node: Option<u16>) {
        if let (Some(node), 1) = (node, size_of::<R>()) {
            let before = Majority::from_bits(self.majority.load(Ordering::Relaxed));
            let after = before.accessed(node);
            if after != before {
                self.majority.store(after.bits(), Ordering::Relaxed);
            }
        }
    }
}

type Leaf = [OnceLock<Section>];

pub(super) struct Map<R> {
    leaves: Box<[OnceLock<Box<Leaf>>]>,
    records: PhantomData<fn(R)>,
}

/// A page's place: section, word, and record of the word.
pub(super) struct Place<'a> {
    pub section: &'a Section,
    pub word: &'a AtomicU64,
    pub lane: usize,
}

fn split(page: u64) -> (usize, usize, usize) {
    let section = (page / SECTION_PAGES as u64) as usize;
    (
        section / LEAF,
        section % LEAF,
        (page % SECTION_PAGES as u64) as usize,
    )
}

impl<R: Record> Map<R> {
    pub(super) fn new() -> Self {
        Self {
            leaves: (0..LEAVES).map(|_| OnceLock::new()).collect(),
            records: PhantomData,
        }
    }

    fn place(section: &Section, index: usize) -> Place<'_> {
        Place {
            section,
            word: &section.words()[index / cell::lanes::<R>()],
            lane: index % cell::lanes::<R>(),
        }
    }

    /// Where the records of a page lie, if its section has any.
    #[inline]
    pub(super) fn get(&self, page: u64) -> Option<Place<'_>> {
        let (leaf, section, index) = split(page);
        let section = self.leaves.get(leaf)?.get()?[section].get()?;
        Some(Self::place(section, index))
    }

    /// The same, making room if it is the first page of its section.
    #[inline]
    pub(super) fn get_or_make(&self, page: u64) -> Result<Place<'_>, TrackError> {
        match self.get(page) {
            Some(place) => Ok(place),
            None => self.make(page),
        }
    }

    #[cold]
    fn make(&self, page: u64) -> Result<Place<'_>, TrackError> {
        let (leaf, section, index) = split(page);
        let leaf = self.leaves.get(leaf).ok_or(TrackError::Page { page })?;
        let leaf = leaf.get_or_init(|| (0..LEAF).map(|_| OnceLock::new()).collect());
        if leaf[section].get().is_none() {
            let made = Section {
                zeroes: Zeroes::new(SECTION_PAGES * size_of::<R>())
                    .map_err(|source| TrackError::Memory { page, source })?,
                majority: AtomicU16::new(0),
            };
            // Another thread may have been faster; then this one is not needed.
            let _ = leaf[section].set(made);
        }
        let section = leaf[section].get().ok_or(TrackError::Page { page })?;
        Ok(Self::place(section, index))
    }

    /// The sections, ascending, each with its first page.
    pub(super) fn sections(&self) -> impl Iterator<Item = (u64, &Section)> {
        let leaves = self.leaves.iter().enumerate();
        leaves
            .filter_map(|(at, leaf)| Some((at, leaf.get()?)))
            .flat_map(|(at, leaf)| {
                let sections = leaf.iter().enumerate();
                sections.filter_map(move |(section, made)| {
                    let first = ((at * LEAF + section) * SECTION_PAGES) as u64;
                    Some((first, made.get()?))
                })
            })
    }

    /// Bytes of the records and of the tree.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let sections = self.sections().count();
        let leaves = self.leaves.iter().filter(|leaf| leaf.get().is_some());
        let tree =
            size_of_val(&*self.leaves) + leaves.count() * LEAF * size_of::<OnceLock<Section>>();
        (
            (sections * SECTION_PAGES * size_of::<R>()) as u64,
            tree as u64,
        )
    }
}
