// SPDX-License-Identifier: MIT OR Apache-2.0
//! What kind of kernel: Linux as it is, with the series, or with the series and checkers.

use std::fmt;

use clap::ValueEnum;
use serde::Deserialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Linux as it is
    Vanilla,
    /// with the series
    Release,
    /// with the series and the kernel's checkers: slow
    Debug,
    /// with the series and the search for data races, which excludes KASAN: slow
    Kcsan,
    /// with the series, as Debian configures its own: the packages that `make kernel-deb` left
    Debian,
}

impl Profile {
    /// Whether the series is in.
    pub fn has_series(self) -> bool {
        self != Self::Vanilla
    }

    /// Whether KUnit's tests run while it boots.
    pub fn has_kunit(self) -> bool {
        self.has_series() && self != Self::Debian
    }

    /// The configuration fragments that it adds to the machine's.
    pub fn fragments(self) -> &'static [&'static str] {
        match self {
            Self::Debian => &[],
            Self::Vanilla => &["tests"],
            Self::Release => &["tests", "memferry"],
            Self::Debug => &["tests", "memferry", "debug"],
            Self::Kcsan => &["tests", "memferry", "kcsan"],
        }
    }

    /// The tree that it is built in. Kernels that share one cost little after each other.
    pub fn tree(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::Release => "main",
            Self::Debug => "debug",
            Self::Kcsan => "kcsan",
            Self::Debian => "deb",
        }
    }

    /// By how much it is slower than a release kernel: KASAN and lockdep, or KCSAN, under emulation.
    pub fn slowness(self) -> u64 {
        match self {
            Self::Vanilla | Self::Release | Self::Debian => 1,
            Self::Debug | Self::Kcsan => 6,
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&name(self))
    }
}

/// What the command line and the files call `value`.
pub fn name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}
