// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two small memories beside the records: who uses a section, and which pages go up and down.

use crate::sys;

/// The node that most accesses to a section come from, in two bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Majority(u16);

impl Majority {
    /// After an access from `node`, 0 to 1022; larger ones count for none.
    #[must_use]
    pub fn accessed(self, node: u16) -> Self {
        Self(sys::ferry_hot_majority(self.0, node.into()))
    }

    /// The node, if one prevails.
    pub fn node(self) -> Option<u16> {
        let node = sys::ferry_hot_majority_node(self.0);
        (node != sys::NO_NODE).then_some(node as u16)
    }

    /// The two bytes.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// From the two bytes; any are valid.
    pub fn from_bits(bits: u16) -> Self {
        Self(bits)
    }
}

/// Which pages were promoted, demoted and promoted again lately: a table that forgets where pages meet.
#[derive(Clone, Debug)]
pub struct Bounces {
    entries: Vec<u16>,
    bounced: u64,
}

impl Bounces {
    /// Entries of [`Bounces::default`]: 128 KiB, for some tens of thousands of pages that moved lately.
    pub const ENTRIES: usize = 1 << 16;

    /// A table of `entries`, rounded up to a power of two.
    pub fn new(entries: usize) -> Self {
        Self {
            entries: vec![0; entries.max(1).next_power_of_two()],
            bounced: 0,
        }
    }

    /// The entry and the tag of a page: a product's highest bits are a good hash (Knuth, multiplicative hashing).
    fn place(&self, page: u64) -> (usize, u32) {
        let hash = page.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (hash >> 32) as usize & (self.entries.len() - 1);
        (place, (hash >> 24) as u32 & 0xff)
    }

    /// Notes a promotion; true if the page had been promoted and demoted before.
    pub fn promoted(&mut self, page: u64) -> bool {
        let (place, tag) = self.place(page);
        let mut bounced = 0;
        self.entries[place] = sys::ferry_hot_promoted(self.entries[place], tag, &mut bounced);
        self.bounced += u64::from(bounced);
        bounced != 0
    }

    /// Notes a demotion.
    pub fn demoted(&mut self, page: u64) {
        let (place, tag) = self.place(page);
        self.entries[place] = sys::ferry_hot_demoted(self.entries[place], tag);
    }

    /// How often the page bounced lately, 0 to 7.
    pub fn of(&self, page: u64) -> u32 {
        let (place, tag) = self.place(page);
        sys::ferry_hot_bounces(self.entries[place], tag)
    }

    /// Forgets a little. Call it as often as the records cool.
    pub fn age(&mut self) {
        for entry in &mut self.entries {
            *entry = sys::ferry_hot_bounce_aged(*entry);
        }
    }

    /// Bounces so far.
    pub fn bounced(&self) -> u64 {
        self.bounced
    }

    /// Bytes of the table.
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<u16>()
    }
}

impl Default for Bounces {
    fn default() -> Self {
        Self::new(Self::ENTRIES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounces_are_counted_and_forgotten() {
        let mut bounces = Bounces::new(1000);
        assert_eq!(bounces.bytes(), 2048);
        for _ in 0..3 {
            bounces.promoted(42);
            bounces.demoted(42);
        }
        assert_eq!(
            (bounces.of(42), bounces.of(43), bounces.bounced()),
            (2, 0, 2)
        );
        bounces.age();
        bounces.age();
        assert_eq!(bounces.of(42), 0);
        assert!(bounces.promoted(42), "what bounced is known for a while");
    }

    #[test]
    fn a_majority_is_two_bytes() {
        let mut majority = Majority::default();
        assert_eq!(majority.node(), None);
        for node in [3, 7, 7] {
            majority = majority.accessed(node);
        }
        assert_eq!(majority.node(), Some(7));
        assert_eq!(Majority::from_bits(majority.bits()), majority);
    }
}
