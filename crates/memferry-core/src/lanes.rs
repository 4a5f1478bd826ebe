// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lanes: how a batch is dealt to the parallel copiers of a migrator.
//!
//! Decides only who copies which bytes; it copies nothing and follows no address.

use crate::error::DealError;
use crate::sys::{self, Extent, GRANULE_MAX, GRANULE_MIN, LANES_MAX};

/// How batches are dealt: to how many lanes, and how evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deal {
    lanes: u32,
    granule: u64,
}

impl Deal {
    /// Deals to `lanes` lanes (1 to [`LANES_MAX`]) whose loads differ by at most `granule`
    /// bytes: a power of two from [`GRANULE_MIN`] to [`GRANULE_MAX`], and at least the host's
    /// page size. Extents are cut only at multiples of it from their start.
    /// [`GRANULE_DEFAULT`](crate::GRANULE_DEFAULT) suits most machines.
    ///
    /// # Errors
    /// [`DealError::Lanes`] and [`DealError::Granule`] if a number is out of range.
    pub fn new(lanes: usize, granule: u64) -> Result<Self, DealError> {
        if !(GRANULE_MIN..=GRANULE_MAX).contains(&granule) || !granule.is_power_of_two() {
            return Err(DealError::Granule { granule });
        }
        match u32::try_from(lanes) {
            Ok(count) if (1..=LANES_MAX).contains(&lanes) => Ok(Self {
                lanes: count,
                granule,
            }),
            _ => Err(DealError::Lanes { lanes }),
        }
    }

    /// The number of lanes.
    pub fn lanes(&self) -> usize {
        self.lanes as usize
    }

    /// The granule in bytes.
    pub fn granule(&self) -> u64 {
        self.granule
    }

    /// Deals one batch. For batch after batch keep the result and use
    /// [`Dealt::deal_into`], which reuses its space.
    ///
    /// # Errors
    /// As [`Dealt::deal_into`].
    pub fn deal(self, extents: &[Extent]) -> Result<Dealt, DealError> {
        let mut dealt = Dealt::new(self);
        dealt.deal_into(extents)?;
        Ok(dealt)
    }
}

/// A batch that has been dealt, and the space for the next one.
#[derive(Clone, Debug)]
pub struct Dealt {
    deal: Deal,
    /// Lane after lane; entries behind the last lane's are left over from other batches.
    pieces: Vec<Extent>,
    /// Always `deal.lanes` entries.
    lanes: Vec<sys::Lane>,
    scratch: Vec<u32>,
}

impl Dealt {
    /// Nothing dealt yet: every lane is empty.
    pub fn new(deal: Deal) -> Self {
        Self {
            deal,
            pieces: Vec::new(),
            lanes: vec![sys::Lane::default(); deal.lanes()],
            scratch: Vec::new(),
        }
    }

    /// Deals a batch in place of the last one.
    ///
    /// Every byte lies in exactly one piece of one lane; the pieces, lane after lane, are the
    /// batch in its order; the lanes' loads differ by at most a granule. Extents are cut only
    /// at multiples of the granule from their start, and only where neither of their ends
    /// would keep the loads as equal, so one of a granule or less is never cut. A batch with
    /// few bytes leaves lanes empty, and so does a batch without extents. The same batch is
    /// always dealt alike.
    ///
    /// Sources may overlap each other; destinations may overlap nothing. Allocates only for a
    /// batch of more extents than any before. Fastest if destinations ascend and all lie on
    /// one side of the sources: some microseconds for 512 extents.
    ///
    /// # Errors
    /// Every variant of [`DealError`] but the two of [`Deal::new`]. All lanes are empty then,
    /// so that the last batch is not copied again by mistake.
    pub fn deal_into(&mut self, extents: &[Extent]) -> Result<(), DealError> {
        self.lanes.fill(sys::Lane::default());
        grow(
            &mut self.pieces,
            sys::ferry_deal_space(extents.len(), self.deal.lanes),
        );
        grow(&mut self.scratch, sys::ferry_extents_scratch(extents.len()));
        let deal = sys::Deal {
            extents: extents.as_ptr(),
            nr_extents: extents.len(),
            granule: self.deal.granule,
            nr_lanes: self.deal.lanes,
            flags: 0,
            out: self.pieces.as_mut_ptr(),
            out_space: self.pieces.len(),
            lanes: self.lanes.as_mut_ptr(),
            scratch: self.scratch.as_mut_ptr(),
            scratch_space: self.scratch.len(),
        };
        // SAFETY: each pointer is of a slice or vector that outlives the call and has as many
        // entries as the field beside it says; `lanes` has `nr_lanes` since `new`. The vectors
        // are borrowed mutably and thus distinct from each other and from `extents`.
        match unsafe { sys::ferry_deal(&raw const deal) } {
            0 => Ok(()),
            code => Err(DealError::of(code, extents)),
        }
    }

    /// How batches are dealt.
    pub fn deal(&self) -> Deal {
        self.deal
    }

    /// What lane `lane` copies, in the batch's order; empty if it has nothing to do.
    ///
    /// # Panics
    /// If there is no such lane.
    pub fn lane(&self, lane: usize) -> &[Extent] {
        let span = self.lanes[lane];
        &self.pieces[span.first as usize..][..span.count as usize]
    }

    /// The load of lane `lane` in bytes.
    ///
    /// # Panics
    /// If there is no such lane.
    pub fn lane_bytes(&self, lane: usize) -> u64 {
        self.lanes[lane].bytes
    }

    /// What each lane copies, from lane 0 on.
    pub fn lanes(&self) -> impl ExactSizeIterator<Item = &[Extent]> {
        (0..self.lanes.len()).map(|lane| self.lane(lane))
    }
}

/// Makes room for `space` entries; keeps what is there, so that nothing is cleared per batch.
fn grow<T: Clone + Default>(entries: &mut Vec<T>, space: usize) {
    if entries.len() < space {
        entries.resize(space, T::default());
    }
}
