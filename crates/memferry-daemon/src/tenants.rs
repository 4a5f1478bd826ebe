// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each tenant may have of the top tier, and how fast its pages may go up. Numbers only; nothing is read or moved.

/// One tenant's claims and what it has, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tenant {
    /// Kept for it.
    pub protect: u64,
    /// At most; `u64::MAX` for no limit.
    pub limit: u64,
    /// Of what nobody protects, beside the other weights.
    pub weight: u32,
    /// What it has in all tiers.
    pub resident: u64,
    /// What it has in the top tier.
    pub used: u64,
    /// What pressure in its own cgroups leaves of its rate.
    pub pressure: Rate,
}

/// Divides `capacity` among tenants: first what is protected (in proportion if that is more than there is), then the rest by
/// weight. Nobody gets more than its limit or than it has; what that leaves over goes to the others.
pub fn shares(tenants: &[Tenant], capacity: u64) -> Vec<u64> {
    let wants: Vec<u64> = tenants.iter().map(|of| of.resident.min(of.limit)).collect();
    let mut shares: Vec<u64> = (tenants.iter().zip(&wants))
        .map(|(of, wants)| of.protect.min(*wants))
        .collect();
    let promised: u128 = shares.iter().map(|of| u128::from(*of)).sum();
    if promised > u128::from(capacity) {
        for share in &mut shares {
            *share = (u128::from(*share) * u128::from(capacity) / promised) as u64;
        }
        return shares;
    }
    let mut left = capacity - promised as u64;
    // Each pass satisfies a tenant or is the last.
    while left > 0 {
        let open = |index: &usize| shares[*index] < wants[*index];
        let open: Vec<usize> = (0..tenants.len()).filter(open).collect();
        let weights: u128 = open
            .iter()
            .map(|index| u128::from(tenants[*index].weight))
            .sum();
        if weights == 0 {
            break;
        }
        let before = left;
        let part = |index: usize| u128::from(before) * u128::from(tenants[index].weight) / weights;
        let is_full = |index: &usize| part(*index) >= u128::from(wants[*index] - shares[*index]);
        let full: Vec<usize> = open.iter().copied().filter(is_full).collect();
        let give = if full.is_empty() { &open } else { &full };
        for &index in give {
            let given = (wants[index] - shares[index]).min(part(index) as u64);
            shares[index] += given;
            left -= given;
        }
        if full.is_empty() {
            break;
        }
    }
    shares
}

/// A rate that halves while something is wrong, down to nothing, and doubles again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    halvings: u32,
    /// Rounds since the last change.
    quiet: u32,
}

/// So many halvings are nothing: a 64th of the budget would be less than a chunk a second.
const OFF: u32 = 6;
/// Rounds until a rate doubles again: 5 s, so that the effect of the last change is seen first.
pub const QUIET_ROUNDS: u32 = 25;
/// Rounds until a rate that became nothing is tried again: 2 minutes.
pub const OFF_ROUNDS: u32 = 600;

impl Rate {
    /// Halves it.
    pub fn halve(&mut self) {
        self.halvings = (self.halvings + 1).min(OFF);
        self.quiet = 0;
    }

    /// Doubles it.
    pub fn double(&mut self) {
        self.halvings = self.halvings.saturating_sub(1);
        self.quiet = 0;
    }

    /// Whether the last change was so long ago that its effect may be seen: 0.6 s.
    pub fn may_halve(&self) -> bool {
        self.halvings == 0 || self.quiet >= 3
    }

    /// A round in which nothing was wrong; after so many it doubles, after [`OFF_ROUNDS`] if it was nothing.
    pub fn recover(&mut self, rounds: u32) {
        self.quiet = self.quiet.saturating_add(1);
        let wait = if self.halvings == OFF {
            OFF_ROUNDS
        } else {
            rounds
        };
        if self.quiet >= wait {
            self.double();
        }
    }

    /// What is left of so many bytes.
    pub fn of(&self, bytes: u64) -> u64 {
        match self.halvings {
            OFF.. => 0,
            halvings => bytes >> halvings,
        }
    }

    /// Thousandths of the full rate.
    pub fn per_mille(&self) -> u64 {
        self.of(1000)
    }
}

/// What a tenant may promote of `budget` bytes: all of it up to its share, and above that in proportion less. Its limit is another matter:
/// what is at it may still change places.
pub fn allowance(tenant: &Tenant, share: u64, rate: &Rate, budget: u64) -> u64 {
    let slowed = match tenant.used > share {
        true => (u128::from(budget) * u128::from(share) / u128::from(tenant.used)) as u64,
        false => budget,
    };
    tenant.pressure.of(rate.of(slowed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tenant() -> impl Strategy<Value = Tenant> {
        (
            0..2000_u64,
            prop::option::of(0..3000_u64),
            1..10_000_u32,
            0..4000_u64,
            0..4000_u64,
        )
            .prop_map(|(protect, limit, weight, resident, used)| Tenant {
                protect,
                limit: limit.map_or(u64::MAX, |limit| limit.max(protect)),
                weight,
                resident,
                used: used.min(resident),
                ..Tenant::default()
            })
    }

    proptest! {
        #[test]
        fn shares_keep_what_is_promised(tenants in prop::collection::vec(tenant(), 0..8), capacity in 0..8000_u64) {
            let shares = shares(&tenants, capacity);
            let sum: u64 = shares.iter().sum();
            prop_assert!(sum <= capacity);
            let wants = |of: &Tenant| of.resident.min(of.limit);
            let protected: u64 = tenants.iter().map(|of| of.protect.min(wants(of))).sum();
            for (of, share) in tenants.iter().zip(&shares) {
                prop_assert!(*share <= wants(of));
                if protected <= capacity {
                    prop_assert!(*share >= of.protect.min(wants(of)));
                }
            }
            // Nothing is left while somebody wants it, but for rounding.
            let all: u64 = tenants.iter().map(wants).sum();
            prop_assert!(sum + tenants.len() as u64 >= capacity.min(all), "{shares:?}");
        }

        #[test]
        fn more_above_the_share_is_slower(of in tenant(), share in 1..3000_u64, more in 0..1000_u64, budget in 0..1_000_000_u64) {
            let rate = Rate::default();
            let slower = Tenant { used: of.used + more, ..of };
            let (a, b) = (allowance(&of, share, &rate, budget), allowance(&slower, share, &rate, budget));
            prop_assert!(b <= a && a <= budget);
        }
    }

    #[test]
    fn equal_weights_share_equally_and_double_ones_double() {
        let of = |weight| Tenant {
            weight,
            limit: u64::MAX,
            resident: 10_000,
            ..Tenant::default()
        };
        assert_eq!(shares(&[of(1), of(1)], 1000), [500, 500]);
        assert_eq!(shares(&[of(1), of(2)], 900), [300, 600]);
        let idle = Tenant {
            resident: 100,
            ..of(100)
        };
        assert_eq!(shares(&[idle, of(1)], 1000), [100, 900]);
    }

    #[test]
    fn a_rate_halves_down_to_nothing_and_comes_back() {
        let mut rate = Rate::default();
        let mut seen = vec![rate.per_mille()];
        for _ in 0..8 {
            rate.halve();
            seen.push(rate.per_mille());
        }
        assert_eq!(seen, [1000, 500, 250, 125, 62, 31, 0, 0, 0]);
        for _ in 0..OFF_ROUNDS {
            assert_eq!(rate.of(1 << 30), 0);
            rate.recover(QUIET_ROUNDS);
        }
        assert_eq!(rate.per_mille(), 31);
        for _ in 0..QUIET_ROUNDS * 5 {
            rate.recover(QUIET_ROUNDS);
        }
        assert_eq!(rate.per_mille(), 1000);
    }
}
