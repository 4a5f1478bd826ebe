// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capabilities that this process lacks, for messages: what the kernel refuses, it refuses without a reason.

use std::io;
use std::path::Path;

use crate::machine::text;

/// A bit of `CapEff` (include/uapi/linux/capability.h), its name, and a bit that gives the same and more.
#[derive(Clone, Copy, Debug)]
pub struct Right(u32, &'static str, u32);

/// Files of others may be read.
pub const READ_FILES: Right = Right(2, "CAP_DAC_READ_SEARCH", 1);
/// Files of others may be written.
pub const WRITE_FILES: Right = Right(1, "CAP_DAC_OVERRIDE", 1);
/// Processes of others may be looked at, and their pages moved.
pub const TRACE: Right = Right(19, "CAP_SYS_PTRACE", 19);
/// Pages that several processes map may be moved.
pub const SHARED: Right = Right(23, "CAP_SYS_NICE", 23);
/// NUMA balancing may be set.
pub const ADMIN: Right = Right(21, "CAP_SYS_ADMIN", 21);
/// Programs of BPF may be loaded.
pub const BPF: Right = Right(39, "CAP_BPF", 21);
/// All CPUs may be sampled.
pub const SAMPLE: Right = Right(38, "CAP_PERFMON", 21);

/// Of some rights those that this process lacks, as text; `None` if it has all, or that is not known.
pub fn missing(root: &Path, wanted: &[Right]) -> Option<String> {
    let status = text(root, "proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    let set = u64::from_str_radix(line.trim(), 16).ok()?;
    let lacks = |right: &&Right| set >> right.0 & 1 == 0 && set >> right.2 & 1 == 0;
    let names: Vec<&str> = wanted.iter().filter(lacks).map(|right| right.1).collect();
    (!names.is_empty()).then(|| format!("without {}", names.join(" and ")))
}

/// An error with the rights that may be the reason, if the kernel denied something.
pub fn explain(root: &Path, error: io::Error, wanted: &[Right]) -> io::Error {
    let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
    match missing(root, wanted).filter(|_| is_denied) {
        Some(missing) => io::Error::new(error.kind(), format!("{error}, {missing}")),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::put;

    #[test]
    fn a_denied_call_names_the_rights_that_are_missing_and_no_other() {
        let root = tempfile::tempdir().unwrap();
        let wanted = [READ_FILES, TRACE, SAMPLE];
        let denied = || io::Error::from_raw_os_error(13);
        assert_eq!(missing(root.path(), &wanted), None, "nothing is known");
        let has = |set: u64| {
            let text = format!("Name:\tx\nCapInh:\t0\nCapEff:\t{set:016x}\nSeccomp:\t0\n");
            put(root.path(), "proc/self/status", &text);
            explain(root.path(), denied(), &wanted).to_string()
        };
        assert!(has(1 << 2 | 1 << 38).ends_with(", without CAP_SYS_PTRACE"));
        assert!(has(1 << 19).ends_with(", without CAP_DAC_READ_SEARCH and CAP_PERFMON"));
        // Some rights stand for others.
        assert_eq!(has(1 << 1 | 1 << 19 | 1 << 21), denied().to_string());
        has(0);
        let gone = explain(root.path(), io::Error::from_raw_os_error(2), &wanted);
        assert_eq!(
            gone.to_string(),
            io::Error::from_raw_os_error(2).to_string()
        );
    }
}
