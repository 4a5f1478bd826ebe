// SPDX-License-Identifier: MIT OR Apache-2.0
//! One record and many: the two formats behind one trait.

use super::{Histogram, Policy, Sweep};
use crate::sys::{self, NO_NODE};
use std::fmt::Debug;

/// One reported access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// When, in ms, modulo 2^32.
    pub now: u32,
    /// For how many accesses it stands; more than [`WEIGHT_MAX`](super::WEIGHT_MAX) counts as so many, 0 as none.
    pub weight: u32,
    /// Any 32 bits, evenly spread: counting beyond the threshold draws from them.
    pub random: u32,
    /// Whose CPU it was, 0 to 1022; None if the source does not know. Only precision mode keeps it.
    pub node: Option<u16>,
}

impl Access {
    /// One access at `time` ms of which no more is known.
    pub fn at(time: u64) -> Self {
        Self {
            now: time as u32,
            weight: 1,
            random: 0,
            node: None,
        }
    }
}

/// What a record says at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Frequency, 0 if nothing is known.
    pub freq: u8,
    /// The same less what cooled off, in eighths.
    pub eighths: u8,
    /// Age class, 0 the youngest; from [`IDLE_AGE`](super::IDLE_AGE) on idle.
    pub age: u8,
    /// Hot, and not claimed.
    pub ready: bool,
    /// Node of the last access of a known node.
    pub node: Option<u16>,
}

impl From<sys::View> for View {
    fn from(view: sys::View) -> Self {
        Self {
            freq: view.freq as u8,
            eighths: view.eighths as u8,
            age: view.age as u8,
            ready: view.ready != 0,
            node: (view.node != NO_NODE).then_some(view.node as u16),
        }
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for u32 {}
}

/// A record: [`u8`] in default mode, [`u32`] in precision mode. 0 is a page of which nothing is known.
///
/// Methods are pure: they give the record after something happened, and the caller stores it, by compare-and-exchange
/// where others write. `now` is ms modulo 2^32, and at most `sweep_ms` after the last sweep.
pub trait Record: sealed::Sealed + Copy + Default + Eq + Debug + Send + Sync + 'static {
    #[doc(hidden)]
    const FORMAT: u32;

    /// The largest frequency.
    const FREQ_MAX: u32;

    /// As a number.
    fn bits(self) -> u64;

    /// From a number, of which only as many bits count as a record has.
    fn from_bits(bits: u64) -> Self;

    /// After an access.
    #[must_use]
    fn accessed(self, policy: &Policy<Self>, access: &Access) -> Self;

    /// Whether an access changes nothing, as most accesses to a page in use do: its time is now, its frequency the largest and
    /// it is ready. Cheaper than [`Record::accessed`], and no random number is needed; false decides nothing.
    fn settled(self, now: u32, node: Option<u16>) -> bool;

    /// After a sweep.
    #[must_use]
    fn aged(self, policy: &Policy<Self>, sweep: &Sweep) -> Self;

    /// What it says.
    fn view(self, now: u32) -> View;

    /// How many ms ago the last access was at most; None if it left the window before the last sweep, or never was.
    fn age_ms(self, now: u32) -> Option<u32>;

    /// Hot, and not claimed.
    fn ready(self) -> bool;

    /// After its page's move began: not ready, all else kept.
    #[must_use]
    fn claimed(self) -> Self;

    /// After its page's move was refused: ready again, unless it became idle.
    #[must_use]
    fn unclaimed(self) -> Self;

    /// Ages all records and adds them to the histogram. Returns how many changed.
    fn sweep(
        records: &mut [Self],
        policy: &Policy<Self>,
        sweep: &Sweep,
        histogram: &mut Histogram,
    ) -> usize;

    /// Adds all records to the histogram.
    fn count(records: &[Self], now: u32, histogram: &mut Histogram);

    /// The records of a heat from `least` to `most`, from index `from` on: fills `found` with indices, ascending.
    /// Returns how many it found and where to go on.
    fn find(
        records: &[Self],
        from: usize,
        policy: &Policy<Self>,
        now: u32,
        heats: (u32, u32),
        found: &mut [u32],
    ) -> (usize, usize);
}

/// Milliseconds of a time bucket of default mode, as a power of two.
const BUCKET_SHIFT: u32 = 7;

/// Records that the core sweeps or counts in one call: those of default mode in 32 bits.
const PART: usize = 1 << 30;

/// A format by the core's functions for it, and what the core does not have for both.
macro_rules! record {
    ($record:ty, $format:ident, $aged:ident, $view:ident, $age_ms:ident, $claim:ident, $unclaim:ident, $sweep:ident,
     $count:ident, $find:ident, $($own:tt)*) => {
        impl Record for $record {
            const FORMAT: u32 = sys::$format;
            $($own)*

            #[inline]
            fn bits(self) -> u64 {
                self.into()
            }

            #[inline]
            fn from_bits(bits: u64) -> Self {
                bits as $record
            }

            fn aged(self, policy: &Policy<Self>, sweep: &Sweep) -> Self {
                sys::$aged(self, policy.params(), sweep)
            }

            fn view(self, now: u32) -> View {
                sys::$view(self, now).into()
            }

            fn age_ms(self, now: u32) -> Option<u32> {
                Some(sys::$age_ms(self, now)).filter(|&age| age != u32::MAX)
            }

            fn ready(self) -> bool {
                self >> (Self::BITS - 1) != 0
            }

            fn claimed(self) -> Self {
                sys::$claim(self)
            }

            fn unclaimed(self) -> Self {
                sys::$unclaim(self)
            }

            fn sweep(records: &mut [Self], policy: &Policy<Self>, sweep: &Sweep, histogram: &mut Histogram) -> usize {
                let pass = |part: &mut [Self]| {
                    let params = policy.params();
                    // SAFETY: pointer and length are of one slice that is borrowed mutably; the length fits 32 bits.
                    unsafe { sys::$sweep(part.as_mut_ptr(), part.len(), params, sweep, histogram) }
                };
                records.chunks_mut(PART).map(pass).sum()
            }

            fn count(records: &[Self], now: u32, histogram: &mut Histogram) {
                for part in records.chunks(PART) {
                    // SAFETY: pointer and length are of one slice; the length fits 32 bits.
                    unsafe { sys::$count(part.as_ptr(), part.len(), now, histogram) }
                }
            }

            fn find(
                records: &[Self],
                mut from: usize,
                policy: &Policy<Self>,
                now: u32,
                (least, most): (u32, u32),
                found: &mut [u32],
            ) -> (usize, usize) {
                let (first, len, params) = (records.as_ptr(), records.len(), policy.params());
                let (space, room) = (found.as_mut_ptr(), found.len());
                // SAFETY: pointers and lengths are of two slices, one of them borrowed mutably.
                let n = unsafe { sys::$find(first, len, &mut from, params, now, least, most, space, room) };
                (n, from)
            }
        }
    };
}

record! {
    u8, FORMAT_DEFAULT, ferry_hot8_aged, ferry_hot8_view, ferry_hot8_age_ms, ferry_hot8_claim, ferry_hot8_unclaim,
    ferry_hot8_sweep, ferry_hot8_count, ferry_hot8_find,

    const FREQ_MAX: u32 = 3;

    #[inline]
    fn accessed(self, policy: &Policy<u8>, access: &Access) -> u8 {
        let Access { now, weight, random, .. } = *access;
        sys::ferry_hot8_access(self, policy.params(), now, weight, random)
    }

    #[inline]
    fn settled(self, now: u32, _: Option<u16>) -> bool {
        self == (0x83 | (now >> BUCKET_SHIFT & 31) << 2) as u8
    }
}

record! {
    u32, FORMAT_PRECISE, ferry_hot32_aged, ferry_hot32_view, ferry_hot32_age_ms, ferry_hot32_claim, ferry_hot32_unclaim,
    ferry_hot32_sweep, ferry_hot32_count, ferry_hot32_find,

    const FREQ_MAX: u32 = 7;

    #[inline]
    fn accessed(self, policy: &Policy<u32>, access: &Access) -> u32 {
        let Access { now, weight, random, node } = *access;
        let node = node.map_or(NO_NODE, u32::from);
        sys::ferry_hot32_access(self, policy.params(), now, weight, random, node)
    }

    #[inline]
    fn settled(self, now: u32, node: Option<u16>) -> bool {
        let node = node.map_or(self & NO_NODE, u32::from);
        self == 1 << 31 | (now & 0x3fff) << 13 | Self::FREQ_MAX << 10 | node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A settled record is one that no access changes, of whatever weight and random number; and there is one.
    fn settled_records_stay<R: Record>(most: u64) {
        let policy = Policy::<R>::default();
        let mut settled = 0;
        for bits in 0..most {
            // All bits of default mode; of precision mode, times and nodes near those that are asked for.
            let record = match size_of::<R>() {
                1 => R::from_bits(bits),
                _ => R::from_bits(bits << 10 | 5),
            };
            for (now, node) in [(1000, None), (1000, Some(5)), (1100, Some(6)), (260, None)] {
                if !record.settled(now, node) {
                    continue;
                }
                settled += 1;
                for (weight, random) in [(1, 0), (1, u32::MAX), (99, 7), (0, 0)] {
                    let access = Access {
                        now,
                        weight,
                        random,
                        node,
                    };
                    assert_eq!(record.accessed(&policy, &access), record, "{access:?}");
                    assert!(record.ready());
                }
            }
        }
        assert!(settled >= 3, "{settled}");
    }

    #[test]
    fn no_access_changes_a_settled_record() {
        settled_records_stay::<u8>(256);
        settled_records_stay::<u32>(1 << 22);
    }
}
