// SPDX-License-Identifier: MIT OR Apache-2.0
//! The core against a plain, slow model: time without bounds, no bits, no tricks, over random sequences of operations.
//!
//! The model is written from the words of core/include/memferry/hotness.h and knows nothing of how records are stored.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use memferry_core::hotness::{Access, Histogram, Params, Policy, Record, Sweep};
use proptest::prelude::*;

/// What differs between the formats.
struct Format {
    freq_max: u32,
    /// Milliseconds of a unit of time.
    unit: u64,
    /// Units of a youngest age class.
    class: u64,
    /// Idle classes.
    idle_max: u32,
    /// Whether it keeps eighths of an access.
    eighths: bool,
    keeps_node: bool,
}

const DEFAULT: Format = Format {
    freq_max: 3,
    unit: 128,
    class: 8,
    idle_max: 8,
    eighths: false,
    keeps_node: false,
};

const PRECISE: Format = Format {
    freq_max: 7,
    unit: 1,
    class: 4096,
    idle_max: 15,
    eighths: true,
    keeps_node: true,
};

/// What the model knows of a page.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    freq: u32,
    /// Eighths of an access that cooled off.
    off: u32,
    node: Option<u16>,
    state: State,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// All else is 0, too.
    #[default]
    Unknown,
    Seen {
        /// In units, since the beginning of the world.
        time: u64,
        ready: bool,
    },
    Idle {
        class: u32,
    },
}

impl Page {
    /// Is the last access surely within the window? A unit's beginning and end may both be meant.
    fn in_window(format: &Format, params: &Params, time: u64, now: u64) -> bool {
        let units = (now / format.unit).saturating_sub(time);
        units * format.unit + (format.unit - 1) <= u64::from(params.window_ms)
    }

    fn accessed(&self, format: &Format, params: &Params, now: u64, access: &Access) -> Page {
        if access.weight == 0 {
            return *self;
        }
        let Page {
            mut freq,
            mut off,
            mut node,
            state,
        } = *self;
        let mut ready = false;
        match state {
            State::Seen { time, ready: was } if Self::in_window(format, params, time, now) => {
                ready = was
            }
            // What outlives the window.
            _ if freq > params.recall => (freq, off) = (params.recall, 0),
            _ => {}
        }
        if freq == format.freq_max {
            off = 0;
        }
        let mut left = u64::from(access.weight.min(65535));
        while left > 0 && freq < format.freq_max {
            // How many accesses the next level takes.
            let takes = if freq < params.threshold {
                1
            } else {
                2_u64.pow((params.step * (freq - params.threshold + 1)).min(31))
            };
            if left < takes {
                // A random number of [0, 1) below the share of the level that is there.
                let chance = left as f64 / takes as f64;
                if f64::from(access.random) / 2_f64.powi(32) < chance {
                    freq += 1;
                }
                break;
            }
            left -= takes;
            freq += 1;
        }
        ready |= freq >= params.threshold;
        if let Some(known) = access.node.filter(|&node| node < 1023) {
            node = Some(known);
        }
        Page {
            freq,
            off,
            node: node.filter(|_| format.keeps_node),
            state: State::Seen {
                time: now / format.unit,
                ready,
            },
        }
    }

    fn aged(&self, format: &Format, params: &Params, now: u64, last: u64, number: u32) -> Page {
        let mut page = *self;
        page.state = match self.state {
            State::Unknown => return *self,
            State::Seen { time, .. } => {
                let late = now - last > u64::from(params.sweep_ms);
                match late || !Self::in_window(format, params, time, now) {
                    true => State::Idle { class: 1 },
                    false => self.state,
                }
            }
            State::Idle { class } => {
                let leaves = number % 2_u32.pow(class - 1) == 0;
                let class = class + u32::from(leaves);
                if class > format.idle_max {
                    return Page::default();
                }
                State::Idle { class }
            }
        };
        if params.cool_sweeps != 0 && number % params.cool_sweeps == 0 {
            let has = 8 * self.freq - self.off;
            let left = match format.eighths && params.step == 0 {
                true => (has - has.div_ceil(8)).max(1),
                false if has > 8 => has - 8,
                false => has,
            };
            (page.freq, page.off) = (left.div_ceil(8), (8 - left % 8) % 8);
        }
        page
    }

    fn claim(&mut self, claimed: bool) {
        if let State::Seen { ready, .. } = &mut self.state {
            *ready = !claimed;
        }
    }

    /// Frequency, the same in eighths, age class, ready, node.
    fn view(&self, format: &Format, now: u64) -> (u8, u8, u8, bool, Option<u16>) {
        let (age, ready) = match self.state {
            State::Unknown => (15, false),
            State::Seen { time, ready } => {
                let units = (now / format.unit).saturating_sub(time);
                ((units / format.class) as u32, ready)
            }
            // Default mode has every second age class.
            State::Idle { class } => match format.eighths {
                true => ((3 + class).min(15), false),
                false => (4 + (class - 1) / 2 * 2, false),
            },
        };
        let eighths = 8 * self.freq - self.off;
        (self.freq as u8, eighths as u8, age as u8, ready, self.node)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Access {
        page: usize,
        /// Milliseconds before now: another CPU's clock reading.
        behind: u64,
        /// Its time is set when it happens.
        access: Access,
    },
    Wait(u64),
    /// Waits until the sweep is due, less so much, or more.
    Sweep(i64),
    Claim(usize),
    Unclaim(usize),
    Forget(usize),
}

const PAGES: usize = 6;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let weight = prop_oneof![8 => Just(1), 1 => 0..5_u32, 1 => any::<u32>()];
    let node = prop::option::of(0..1030_u16);
    let access = (0..PAGES, 0..100_u64, weight, any::<u32>(), node).prop_map(
        |(page, behind, weight, random, node)| {
            let access = Access {
                now: 0,
                weight,
                random,
                node,
            };
            Step::Access {
                page,
                behind,
                access,
            }
        },
    );
    let step = prop_oneof![
        8 => access,
        4 => prop_oneof![0..200_u64, 0..5000_u64].prop_map(Step::Wait),
        5 => prop_oneof![4 => Just(0), 2 => 0..300_i64, 1 => -300..0_i64].prop_map(Step::Sweep),
        1 => (0..PAGES).prop_map(Step::Claim),
        1 => (0..PAGES).prop_map(Step::Unclaim),
        1 => (0..PAGES).prop_map(Step::Forget),
    ];
    prop::collection::vec(step, 1..300)
}

fn params<R: Record>() -> impl Strategy<Value = Params> {
    let windows = if R::FREQ_MAX == 3 {
        256..=3712_u32
    } else {
        16..=15000
    };
    let counting = (
        1..=R::FREQ_MAX,
        0..=R::FREQ_MAX,
        prop_oneof![Just(0), 0..=8_u32],
    );
    (windows, counting, any::<prop::sample::Index>(), 0..5_u32).prop_map(
        |(window_ms, (threshold, recall, step), sweep, cool_sweeps)| {
            let mut params = Params {
                window_ms,
                threshold,
                recall,
                step,
                sweep_ms: u32::MAX,
                cool_sweeps,
                ..Params::of::<R>()
            };
            let most = Policy::<R>::new(params).unwrap_err().most;
            params.sweep_ms = 1 + sweep.index(most as usize) as u32;
            params
        },
    )
}

/// Does both, and compares what they say after each step.
fn agree<R: Record>(format: &Format, params: Params, start: u64, steps: &[Step]) {
    let policy = Policy::<R>::new(params).unwrap();
    let mut records = [R::default(); PAGES];
    let mut pages = [Page::default(); PAGES];
    // What is seen before the first sweep is as old as the world at most.
    let (mut now, mut last, mut number) = (start, start, 0);
    for step in steps {
        match *step {
            Step::Wait(ms) => {
                // A caller that keeps its promise sweeps in time.
                now = (now + ms).min(last + u64::from(params.sweep_ms));
            }
            Step::Access {
                page,
                behind,
                access,
            } => {
                let then = (now - behind).max(last);
                let access = Access {
                    now: then as u32,
                    ..access
                };
                records[page] = records[page].accessed(&policy, &access);
                pages[page] = pages[page].accessed(format, &params, then, &access);
            }
            Step::Sweep(early) => {
                now = (last + u64::from(params.sweep_ms))
                    .saturating_add_signed(-early)
                    .max(now);
                number += 1;
                let sweep = Sweep {
                    now: now as u32,
                    last: last as u32,
                    number,
                };
                let before = records;
                let mut histogram = Histogram::default();
                let changed = R::sweep(&mut records, &policy, &sweep, &mut histogram);
                let differ = (0..PAGES).filter(|&page| records[page] != before[page]);
                assert_eq!(changed, differ.count());
                for page in &mut pages {
                    *page = page.aged(format, &params, now, last, number);
                    let (_, eighths, age, ..) = page.view(format, now);
                    histogram.pages[usize::from(eighths)][usize::from(age)] -= 1;
                }
                assert_eq!(histogram, Histogram::default());
                last = now;
            }
            Step::Claim(page) => {
                records[page] = records[page].claimed();
                pages[page].claim(true);
            }
            Step::Unclaim(page) => {
                records[page] = records[page].unclaimed();
                pages[page].claim(false);
            }
            Step::Forget(page) => {
                records[page] = R::default();
                pages[page] = Page::default();
            }
        }
        for (record, page) in records.iter().zip(&pages) {
            let view = record.view(now as u32);
            let seen = (view.freq, view.eighths, view.age, view.ready, view.node);
            assert_eq!(
                seen,
                page.view(format, now),
                "{page:?} after {step:?} at {now}"
            );
            assert_eq!(record.ready(), view.ready);
            if let State::Seen { time, .. } = page.state {
                let most = (now / format.unit).saturating_sub(time) * format.unit + format.unit - 1;
                assert_eq!(record.age_ms(now as u32), Some(most as u32));
            } else {
                assert_eq!(record.age_ms(now as u32), None);
            }
        }
    }
}

/// Times around where 32 bits end, and others.
fn starts() -> impl Strategy<Value = u64> {
    prop_oneof![
        200..100_000_u64,
        (1 << 32) - 100_000..(1_u64 << 32),
        any::<u32>().prop_map(|start| u64::from(start) + (1 << 40)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn default_mode_does_what_the_model_does(params in params::<u8>(), start in starts(), steps in steps()) {
        agree::<u8>(&DEFAULT, params, start, &steps);
    }

    #[test]
    fn precision_mode_does_what_the_model_does(
        params in params::<u32>(), start in starts(), steps in steps(),
    ) {
        agree::<u32>(&PRECISE, params, start, &steps);
    }
}
