// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a kernel does not have what an option of Memferry's series brings, as far as its files tell, and what would bring it.

use std::fmt;

use crate::topology::error::ParseError;
use crate::topology::files::Root;

/// Why an interface is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Absence {
    pub(super) why: Why,
    /// The option, as a configuration writes it.
    option: &'static str,
    /// What it brings, below the root.
    shown: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Sysfs itself is not there.
    NoSysfs,
    /// The kernel's configuration does not know the option.
    NoSeries,
    /// The kernel's configuration has the option switched off.
    OptionOff,
    /// The kernel's configuration has the option switched on.
    Hidden,
    /// No configuration of this kernel is to be found.
    Unknown,
}

impl std::error::Error for Absence {}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { option, shown, .. } = self;
        match self.why {
            Why::NoSysfs => f.write_str("sysfs is not mounted here"),
            Why::NoSeries => write!(
                f,
                "this kernel does not know {option}, as no stock kernel does"
            ),
            Why::OptionOff => write!(f, "this kernel was built without {option}"),
            Why::Hidden => write!(
                f,
                "this kernel was built with {option}, but /{shown} is not shown here"
            ),
            Why::Unknown => write!(
                f,
                "this is a stock kernel, or it was built without {option} (its configuration is not to be found)"
            ),
        }
    }
}

impl Absence {
    /// What to do about it.
    pub fn hint(self) -> String {
        let Self { option, shown, .. } = self;
        match self.why {
            Why::NoSysfs => "mount sysfs on /sys".to_owned(),
            Why::Hidden => format!(
                "look outside of this container, which may hide /{shown}; else the kernel could not make it: dmesg"
            ),
            Why::OptionOff => format!("build it again with {option}=y"),
            Why::NoSeries | Why::Unknown => {
                format!("boot a Linux 6.12 or 7.3 with Memferry's series and {option}=y")
            }
        }
    }

    /// Finds the reason why what `option` brings is not there. An unreadable file counts as absent: it is only told, not acted
    /// on.
    pub(super) fn find(root: &Root<'_>, option: &'static str, shown: &'static str) -> Self {
        Self {
            why: why(root, option),
            option,
            shown,
        }
    }
}

fn why(root: &Root<'_>, option: &str) -> Why {
    if !root.exists("sys/kernel/mm") {
        return Why::NoSysfs;
    }
    let text = |text: &str| Ok::<_, ParseError>(text.to_owned());
    let read = |file: &str| root.optional(file, "a text", text).ok().flatten();
    let Some(release) = read("proc/sys/kernel/osrelease") else {
        return Why::Unknown;
    };
    let release = release.trim();
    let places = [
        format!("boot/config-{release}"),
        format!("lib/modules/{release}/config"),
        format!("lib/modules/{release}/build/.config"),
    ];
    match places.iter().find_map(|file| read(file)) {
        None => Why::Unknown,
        Some(config) => judge(&config, option),
    }
}

/// What a configuration says of the option, in a line of its own.
fn judge(config: &str, option: &str) -> Why {
    let has = |line: &str| config.lines().any(|other| other.trim_end() == line);
    if has(&format!("{option}=y")) {
        Why::Hidden
    } else if has(&format!("# {option} is not set")) {
        Why::OptionOff
    } else {
        Why::NoSeries
    }
}
