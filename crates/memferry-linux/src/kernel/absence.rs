// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a kernel has no /sys/kernel/mm/migration, as far as its files tell, and what would bring it.

use crate::topology::error::ParseError;
use crate::topology::files::Root;

/// Why the interface is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Absence {
    /// Sysfs itself is not there.
    #[error("sysfs is not mounted here")]
    NoSysfs,
    /// The kernel's configuration does not know the option.
    #[error("this is a stock kernel: Memferry's series is not in it")]
    NoSeries,
    /// The kernel's configuration has the option switched off.
    #[error(
        "this kernel has Memferry's series, but was built without CONFIG_MIGRATION_COPY_OFFLOAD"
    )]
    OptionOff,
    /// The kernel's configuration has the option switched on.
    #[error(
        "this kernel was built with CONFIG_MIGRATION_COPY_OFFLOAD, but /sys/kernel/mm/migration is not shown here"
    )]
    Hidden,
    /// No configuration of this kernel is to be found.
    #[error(
        "this is a stock kernel, or it was built without CONFIG_MIGRATION_COPY_OFFLOAD (its configuration is not to be \
         found)"
    )]
    Unknown,
}

impl Absence {
    /// What to do about it.
    pub fn hint(self) -> &'static str {
        match self {
            Absence::NoSysfs => "mount sysfs on /sys",
            Absence::Hidden => {
                "look outside of this container, which may hide /sys; else the kernel could not make it: dmesg"
            }
            Absence::OptionOff => "build it again with CONFIG_MIGRATION_COPY_OFFLOAD=y",
            Absence::NoSeries | Absence::Unknown => {
                "boot a Linux 6.12 or 7.3 with Memferry's series and CONFIG_MIGRATION_COPY_OFFLOAD=y"
            }
        }
    }
}

/// The option's name, as a configuration writes it.
pub(super) const OPTION: &str = "CONFIG_MIGRATION_COPY_OFFLOAD";

/// Finds the reason why what the option `option` brings is not there. An unreadable file counts as absent: it is only told,
/// not acted on.
pub(super) fn find(root: &Root<'_>, option: &str) -> Absence {
    if !root.exists("sys/kernel/mm") {
        return Absence::NoSysfs;
    }
    let text = |text: &str| Ok::<_, ParseError>(text.to_owned());
    let read = |file: &str| root.optional(file, "a text", text).ok().flatten();
    let Some(release) = read("proc/sys/kernel/osrelease") else {
        return Absence::Unknown;
    };
    let release = release.trim();
    let places = [
        format!("boot/config-{release}"),
        format!("lib/modules/{release}/config"),
        format!("lib/modules/{release}/build/.config"),
    ];
    match places.iter().find_map(|file| read(file)) {
        None => Absence::Unknown,
        Some(config) => judge(&config, option),
    }
}

/// What a configuration says of the option, in a line of its own.
fn judge(config: &str, option: &str) -> Absence {
    let has = |line: &str| config.lines().any(|other| other.trim_end() == line);
    if has(&format!("{option}=y")) {
        Absence::Hidden
    } else if has(&format!("# {option} is not set")) {
        Absence::OptionOff
    } else {
        Absence::NoSeries
    }
}
