// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pace against a model that counts in thousandths of a byte with time without bounds.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use memferry_core::pace::{PACE_RATE_MAX, Pace, PaceParams};
use proptest::prelude::*;

struct Model {
    params: PaceParams,
    /// Thousandths of a byte.
    tokens: i128,
    refilled: u64,
    candidates: u128,
    window_start: u64,
    threshold: u32,
}

impl Model {
    fn depth(&self) -> i128 {
        i128::from(self.params.rate) * i128::from(self.params.burst_ms) / 1000 * 1000
    }

    fn refill(&mut self, now: u64) {
        let elapsed = i128::from(now - self.refilled);
        self.refilled = now;
        self.tokens = (self.tokens + elapsed * i128::from(self.params.rate)).min(self.depth());
    }

    fn reserve(&mut self, now: u64, bytes: u64) -> bool {
        self.refill(now);
        let passes =
            self.tokens.div_euclid(1000) * 1000 >= (i128::from(bytes) * 1000).min(self.depth());
        if passes {
            self.tokens -= i128::from(bytes) * 1000;
        }
        passes
    }

    fn settle(&mut self, reserved: u64, moved: u64) {
        let back = i128::from(reserved.saturating_sub(moved)) * 1000;
        let depth = self.depth();
        if self.tokens + back > depth {
            self.tokens = depth + (self.tokens + back).rem_euclid(1000);
        } else {
            self.tokens += back;
        }
    }

    fn threshold(&mut self, now: u64) -> u32 {
        let elapsed = now - self.window_start;
        if elapsed >= u64::from(self.params.window_ms) {
            let allowed = u128::from(self.params.rate) * u128::from(elapsed) / 1000;
            let step = self.params.reference_ms / 8;
            if self.candidates * 10 > allowed * 11 {
                self.threshold = self.threshold.saturating_sub(step).max(step);
            } else if self.candidates * 10 < allowed * 9 {
                self.threshold = (self.threshold + step).min(2 * self.params.reference_ms);
            }
            self.candidates = 0;
            self.window_start = now;
        }
        self.threshold
    }
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Reserve { bytes: u64, moved: u64 },
    Candidate(u64),
    Threshold,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = || prop_oneof![0..100_000_u64, 0..(1_u64 << 40), Just(4096)];
    let step = prop_oneof![
        3 => prop_oneof![0..50_u64, 0..100_000_u64].prop_map(Step::Wait),
        4 => (bytes(), bytes()).prop_map(|(bytes, moved)| Step::Reserve { bytes, moved }),
        2 => bytes().prop_map(Step::Candidate),
        1 => Just(Step::Threshold),
    ];
    prop::collection::vec(step, 1..200)
}

fn params() -> impl Strategy<Value = PaceParams> {
    let rate = prop_oneof![1..2000_u64, 1..(1_u64 << 32), 1..=PACE_RATE_MAX];
    (rate, 1..=60_000_u32, 1..100_000_u32, 8..100_000_u32).prop_map(
        |(rate, burst_ms, window_ms, reference_ms)| PaceParams {
            rate,
            burst_ms,
            window_ms,
            reference_ms,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_pace_does_what_the_model_does(
        params in params(), steps in steps(), start in (1_u64 << 32) - 200_000..(1 << 32),
    ) {
        let mut now = start;
        let mut pace = Pace::new(params, now).unwrap();
        let mut model = Model {
            params, tokens: 0, refilled: now, candidates: 0, window_start: now,
            threshold: params.reference_ms,
        };
        model.tokens = model.depth();
        for step in steps {
            match step {
                Step::Wait(ms) => now += ms,
                Step::Candidate(bytes) => {
                    pace.candidate(bytes);
                    model.candidates += u128::from(bytes);
                }
                Step::Threshold => prop_assert_eq!(pace.threshold_ms(now), model.threshold(now)),
                Step::Reserve { bytes, moved } => {
                    let reserved = pace.reserve(now, bytes);
                    prop_assert_eq!(reserved.is_some(), model.reserve(now, bytes));
                    if let Some(reserved) = reserved {
                        prop_assert_eq!(reserved.bytes(), bytes);
                        pace.settle(reserved, moved);
                        model.settle(bytes, moved);
                    }
                }
            }
            model.refill(now);
            let budget = model.tokens.max(0) / 1000;
            prop_assert_eq!(i128::from(pace.budget(now)), budget);
        }
    }
}

#[test]
fn numbers_out_of_range_are_named() {
    let (good, most) = (PaceParams::default(), PACE_RATE_MAX);
    #[rustfmt::skip]
    let wrong = [
        (PaceParams { rate: 0, ..good }, format!("rate is 0: it must be from 1 to {most}")),
        (PaceParams { burst_ms: 60_001, ..good }, "burst_ms is 60001: it must be from 1 to 60000".to_owned()),
        (PaceParams { window_ms: 0, ..good }, "window_ms is 0: ".to_owned()),
        (PaceParams { reference_ms: 7, ..good }, "reference_ms is 7: ".to_owned()),
    ];
    for (params, told) in wrong {
        let error = Pace::new(params, 0).unwrap_err().to_string();
        assert!(error.starts_with(&told), "{error}");
    }
}
