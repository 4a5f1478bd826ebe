// SPDX-License-Identifier: MIT OR Apache-2.0
//! prototype

use super::records::Records;
use super::{Policy, Site};
use crate::machine::{MS, Machine, ParameterError};
use crate::tiers::{Tier, Tiers};

pub(super) struct Ours {
    records: Records,
    next_wake: u64,
    sweeps: u64,
    site: Site,
}

fn env(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(default)
}

impl Ours {
    pub(super) fn new(site: Site, machine: &Machine) -> Result<Self, ParameterError> {
        let mut records = Records::new(site.pages, machine.seed);
        records.most = env("MOST", 7) as u8;
        records.step = env("STEP", 1) as u32;
        Ok(Self {
            records,
            next_wake: env("SWEEP", 1000) * MS,
            sweeps: 0,
            site,
        })
    }
}

impl Policy for Ours {
    fn samples(&self) -> bool {
        true
    }
    fn report(&mut self, page: u32, now: u64, _: &mut Tiers) {
        self.records.access(page, now);
    }
    fn next_wake(&self) -> u64 {
        self.next_wake
    }
    fn wake(&mut self, now: u64, tiers: &mut Tiers) {
        self.next_wake = now + env("SWEEP", 1000) * MS;
        self.sweeps += 1;
        let margin = env("MARGIN", 16) as u32;
        let least = env("LEAST", 2) as u32 * 16;
        let cool = env("COOL", 16);
        if cool > 0 && self.sweeps % cool == 0 {
            self.records.cool();
        }
        let mut low: Vec<(u32, u32)> = Vec::new();
        let mut top: Vec<(u32, u32)> = Vec::new();
        for page in 0..self.site.pages {
            match tiers.tier(page) {
                Some(Tier::Low) => {
                    let heat = self.records.heat(page, now);
                    if heat >= least {
                        low.push((heat, page));
                    }
                }
                Some(Tier::Top) => top.push((self.records.heat(page, now), page)),
                None => {}
            }
        }
        low.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        top.sort_unstable();
        let mut cold = top.iter();
        for &(heat, page) in &low {
            if tiers.free() == 0 {
                let Some(&(cold_heat, victim)) = cold.next() else {
                    break;
                };
                if heat < cold_heat + margin {
                    break;
                }
                tiers.demote(victim);
            }
            tiers.promote(page);
        }
    }
    fn tracker_bytes(&self) -> u64 {
        u64::from(self.site.pages) * 4
    }
}
