// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capabilities that this process lacks, for messages: what the kernel refuses, it refuses without a reason.

use std::fs;
use std::path::Path;

/// A bit of `CapEff` (include/uapi/linux/capability.h), its name, and a bit that gives the same and more.
#[derive(Clone, Copy, Debug)]
pub struct Right(u32, &'static str, u32);

/// Whatever root may.
pub const ADMIN: Right = Right(21, "CAP_SYS_ADMIN", 21);
/// All CPUs may be sampled.
pub const SAMPLE: Right = Right(38, "CAP_PERFMON", 21);

/// Of some rights those that this process lacks, as text; `None` if it has all, or that is not known.
pub fn missing(root: &Path, wanted: &[Right]) -> Option<String> {
    let status = fs::read_to_string(root.join("proc/self/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    let set = u64::from_str_radix(line.trim(), 16).ok()?;
    let lacks = |right: &&Right| set >> right.0 & 1 == 0 && set >> right.2 & 1 == 0;
    let names: Vec<&str> = wanted.iter().filter(lacks).map(|right| right.1).collect();
    (!names.is_empty()).then(|| format!("without {}", names.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::put;

    #[test]
    fn what_is_missing_is_named_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let has = |set: u64| {
            let text = format!("Name:\tx\nCapInh:\t0\nCapEff:\t{set:016x}\nSeccomp:\t0\n");
            put(root.path(), "proc/self/status", &text);
            missing(root.path(), &[SAMPLE, ADMIN])
        };
        assert_eq!(has(1 << 38).unwrap(), "without CAP_SYS_ADMIN");
        assert_eq!(has(0).unwrap(), "without CAP_PERFMON and CAP_SYS_ADMIN");
        // Some rights stand for others.
        assert_eq!(has(1 << 21), None);
    }
}
