// SPDX-License-Identifier: MIT OR Apache-2.0
//! What kind of kernel: Linux as it is, with the series, or with the series and every checker.

use std::fmt;

use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// Linux as it is
    Vanilla,
    /// with the series
    Release,
    /// with the series and the kernel's checkers: slow
    Debug,
}

impl Profile {
    /// Whether the series is in.
    pub fn has_series(self) -> bool {
        self != Self::Vanilla
    }

    /// The configuration fragments that it adds to the machine's.
    pub fn fragments(self) -> &'static [&'static str] {
        match self {
            Self::Vanilla => &["tests"],
            Self::Release => &["tests", "memferry"],
            Self::Debug => &["tests", "memferry", "debug"],
        }
    }

    /// By how much it is slower than a release kernel: KASAN and lockdep under emulation.
    pub fn slowness(self) -> u64 {
        if self == Self::Debug { 6 } else { 1 }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Vanilla => "vanilla",
            Self::Release => "release",
            Self::Debug => "debug",
        })
    }
}
