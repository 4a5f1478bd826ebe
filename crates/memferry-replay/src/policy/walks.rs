// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a round of `ours` begins with a walk of page tables: for who has samples that tell what the lower tier costs. The kernel has
//! none, and its scan walks in every period.

/// Of so many rounds at least one has a walk: 2 s, in which a record in eighths loses a level, which one touch gives back.
const ROUNDS: u32 = 8;

/// Losses count until they are worth so many walks, a second's: one expensive moment does not pay for a quiet minute.
const CREDIT: u64 = 4;

/// A round in which more than this part of the tier's pages are new has a walk: 8 MiB of 32 GiB.
const BORN: u64 = 4096;

/// What was lost and not spent on walks, and rounds since the last one.
#[derive(Default)]
pub(super) struct Walks {
    credit: u64,
    unwalked: u32,
}

impl Walks {
    /// Whether this round walks. `born` of the tier's `capacity` pages were touched first since the last round, `lost` is how much
    /// longer accesses to the lower tier took than in the top tier, `cost` how long a walk takes.
    ///
    /// A walk wins at most what the lower tier costs. So no more time is spent on walks than is lost, but for a few, since what nobody
    /// accessed for long is not known to be cold before a walk said so. New pages are a reason by themselves.
    pub(super) fn due(&mut self, born: u64, capacity: u64, lost: u64, cost: u64) -> bool {
        self.credit = self
            .credit
            .saturating_add(lost)
            .min(cost.saturating_mul(CREDIT));
        self.unwalked += 1;
        if self.credit < cost && born <= capacity / BORN && self.unwalked < ROUNDS {
            return false;
        }
        self.credit = self.credit.saturating_sub(cost);
        self.unwalked = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks of `rounds` rounds in which `lost` is lost and `born` of 8000 pages are new.
    fn walks(of: &mut Walks, rounds: u32, born: u64, lost: u64) -> usize {
        (0..rounds)
            .filter(|_| of.due(born, 8000, lost, 16_000))
            .count()
    }

    #[test]
    fn walks_take_as_much_time_as_is_lost() {
        let mut of = Walks::default();
        assert_eq!(walks(&mut of, 800, 0, 0), 100, "now and then");
        assert_eq!(walks(&mut of, 800, 0, 8000), 400);
        assert_eq!(walks(&mut of, 800, 0, 16_000), 800);
        assert_eq!(walks(&mut of, 800, 0, 1_000_000), 800);
        assert_eq!(walks(&mut of, 3, 0, 0), 3, "some of that is spent later");
        assert!(walks(&mut of, 800, 0, 0) <= 101);
        assert_eq!(walks(&mut of, 1, 0, u64::MAX), 1);
    }

    #[test]
    fn walks_come_back_with_the_first_loss() {
        let mut of = Walks::default();
        assert_eq!(walks(&mut of, 16, 0, 0), 2);
        assert_eq!(walks(&mut of, 1, 0, 0), 0);
        assert_eq!(walks(&mut of, 1, 0, 30_000), 1);
    }

    #[test]
    fn new_pages_are_a_reason_to_walk() {
        let mut of = Walks::default();
        assert_eq!(walks(&mut of, 7, 1, 0), 0, "8000 / 4096 is 1");
        assert_eq!(walks(&mut of, 100, 2, 0), 100);
    }
}
