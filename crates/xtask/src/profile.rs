// SPDX-License-Identifier: MIT OR Apache-2.0
//! What kind of kernel: Linux as it is, with the series, or with the series and checkers.

use std::fmt;

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde::Deserialize;

use crate::cli::Usage;
use crate::machine::Machine;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Linux as it is
    Vanilla,
    /// with the series
    Release,
    /// with the series and base pages of 64 KiB: arm64 alone
    #[value(name = "release-64k")]
    #[serde(rename = "release-64k")]
    Release64k,
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

    /// The suites of KUnit that must run while it boots.
    pub fn suites(self) -> &'static [&'static str] {
        match self {
            Self::Vanilla | Self::Debian => &[],
            _ => &[
                "migrator",
                "migrator-folios",
                "migrator-cpus",
                "memferry-hotness",
                "memferry-pace",
                "memferry-balance",
            ],
        }
    }

    /// The configuration fragments that it adds to the machine's.
    pub fn fragments(self) -> &'static [&'static str] {
        match self {
            Self::Debian => &[],
            Self::Vanilla => &["tests"],
            Self::Release => &["tests", "memferry"],
            Self::Release64k => &["tests", "memferry", "64k"],
            Self::Debug => &["tests", "memferry", "debug"],
            Self::Kcsan => &["tests", "memferry", "kcsan"],
        }
    }

    /// The tree that it is built in. Kernels that share one cost little after each other.
    pub fn tree(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::Release => "main",
            Self::Release64k => "64k",
            Self::Debug => "debug",
            Self::Kcsan => "kcsan",
            Self::Debian => "deb",
        }
    }

    /// Refuses a machine that such a kernel is not for.
    pub fn require(self, machine: &Machine) -> Result<()> {
        let arch = &machine.kernel.arch;
        if self == Self::Release64k && arch != "arm64" {
            bail!(Usage(format!(
                "profile {self} is for arm64, and {} is {arch}, whose pages are of 4 KiB; try --machine zcu102",
                machine.name
            )));
        }
        Ok(())
    }

    /// Whether Linux groups the pages of a machine by mobility: not if these are fewer than six blocks of 512 MiB.
    pub fn groups_by_mobility(self) -> bool {
        self != Self::Release64k
    }

    /// More of the kernel's command line. With base pages of 64 KiB a THP and the smallest CMA area have 512 MiB, of 2 GiB:
    /// folios of 2 MiB are on by themselves instead, and there is no area, which nothing could use without that grouping.
    pub fn append(self) -> &'static str {
        match self {
            Self::Release64k => "thp_anon=2M:inherit cma=0",
            _ => "",
        }
    }

    /// By how much it is slower than a release kernel: KASAN and lockdep, or KCSAN, under emulation.
    pub fn slowness(self) -> u64 {
        match self {
            Self::Vanilla | Self::Release | Self::Release64k | Self::Debian => 1,
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn large_base_pages_are_refused_where_there_are_none() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let machine = |name| Machine::read(&root, name).unwrap();
        Profile::Release64k.require(&machine("zcu102")).unwrap();
        let refused = Profile::Release64k.require(&machine("x86_64-8"));
        let error = refused.unwrap_err();
        assert!(
            error.is::<Usage>() && error.to_string().contains("zcu102"),
            "{error}"
        );
    }
}
